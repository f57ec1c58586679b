//! The keys of a procedure's operations that its arguments determine, computed by a walk over its representation before
//! it runs. Generated code does the same for a procedure that is a function.
//!
//! A variable is bound in the walk as long as the arguments determine its value. A branch is walked if its condition is
//! true, and both are if the condition is unknown. What such branches assign is unbound behind them. So keys may be
//! visited that the procedure does not use. None that it uses is missed, unless the walk ends early.

use std::collections::BTreeSet;

use crate::arithmetic::truth;
use crate::evaluate::Frame;
use crate::interpret::{Changes, Keys, bind_arguments};
use crate::ir::{
    Block, Expression, ExpressionKind, KeyRange, Operation, OperationKind, Pattern, Procedure, Step, StepKind,
    VariableId,
};
use crate::visit;
use crate::{EvaluationError, Value};

/// The keys of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum KnownKeys {
    /// That of a row: a value for each column of the key.
    One(Vec<Value>),
    /// Those of a scan.
    Range(Keys),
    /// The values of an inserted row that are known; its key is among them, or the key is unknown.
    Row(Changes),
}

/// Most iterations of loops in one walk.
const ITERATIONS_MAX: usize = 1 << 16;

/// Called with an operation, and its keys if the arguments determine them.
pub type Visit<'v> = dyn FnMut(&Operation, Option<KnownKeys>) -> Result<(), EvaluationError> + 'v;

/// Visits each operation, in each iteration as far as these are known. Returns whether it visited all of them. It ends
/// early where an expression or `visit` fails, and after 65,536 iterations.
pub fn footprint(procedure: &Procedure, arguments: &Value, visit: &mut Visit<'_>) -> bool {
    let mut walk = Walk { frame: Frame::new(procedure.variables.len()), visit, jumps: false, left: ITERATIONS_MAX };
    let begun = bind_arguments(procedure, arguments, &mut walk.frame);
    begun.and_then(|()| walk.block(&procedure.body)).is_ok()
}

/// The variables that an expression binds inside itself.
fn bound_in(expression: &Expression) -> BTreeSet<VariableId> {
    let mut bound = BTreeSet::new();
    visit::expressions(expression, &mut |part| {
        bound.extend(visit::bindings(part).into_iter().flat_map(|(pattern, _)| visit::bound(pattern)));
    });
    bound
}

/// How a block ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
    End,
}

struct Walk<'v, 'f> {
    frame: Frame,
    visit: &'v mut Visit<'f>,
    /// Whether the innermost loop may have been left, or an iteration of it, at a place that the walk went past.
    jumps: bool,
    /// Iterations that are left.
    left: usize,
}

type Walked<T> = Result<T, EvaluationError>;

impl Walk<'_, '_> {
    /// Whether the arguments determine the value of an expression.
    fn is_known(&self, expression: &Expression) -> bool {
        let mut used = BTreeSet::new();
        visit::expressions(expression, &mut |part| {
            if let ExpressionKind::Variable(variable) = &*part.kind {
                used.insert(*variable);
            }
        });
        used.difference(&bound_in(expression)).all(|variable| self.frame.value(*variable).is_ok())
    }

    fn value(&mut self, expression: &Expression) -> Walked<Option<Value>> {
        if self.is_known(expression) {
            return self.frame.evaluate(expression).map(Some);
        }
        self.pass(expression).map(|()| None)
    }

    /// Goes past an expression without a value: what it binds is unknown.
    fn pass(&mut self, expression: &Expression) -> Walked<()> {
        self.unbind(bound_in(expression))
    }

    fn values(&mut self, expressions: &[Expression]) -> Walked<Option<Vec<Value>>> {
        let values = expressions.iter().map(|expression| self.value(expression)).collect::<Walked<Vec<_>>>()?;
        Ok(values.into_iter().collect())
    }

    fn unbind(&mut self, variables: impl IntoIterator<Item = VariableId>) -> Walked<()> {
        variables.into_iter().try_for_each(|variable| self.frame.unbind(variable))
    }

    /// The variables that a block may change.
    fn forget(&mut self, block: &Block) -> Walked<()> {
        let mut changed = BTreeSet::new();
        visit::steps(block, &mut |step| {
            changed.extend(visit::defined(step));
            changed.extend(visit::change(step).map(|(row, _)| row));
            changed.extend(visit::all_own(step).into_iter().flat_map(bound_in));
        });
        self.unbind(changed)
    }

    fn block(&mut self, block: &Block) -> Walked<Flow> {
        for step in &block.0 {
            match self.step(step)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    /// Walks a block into which the procedure may or may not go.
    fn perhaps(&mut self, block: &Block) -> Walked<()> {
        let flow = self.block(block)?;
        self.jumps |= matches!(flow, Flow::Break | Flow::Continue);
        Ok(())
    }

    fn all_perhaps<'b>(&mut self, blocks: impl IntoIterator<Item = &'b Block> + Clone) -> Walked<Flow> {
        for block in blocks.clone() {
            self.perhaps(block)?;
            self.forget(block)?;
        }
        // A block may have read what another assigns.
        blocks.into_iter().try_for_each(|block| self.forget(block))?;
        Ok(Flow::Next)
    }

    fn step(&mut self, step: &Step) -> Walked<Flow> {
        if let Some(operation) = visit::operation(step) {
            self.operation(operation)?;
        }
        match &step.kind {
            StepKind::Scope(never, _) => match *never {},
            StepKind::Declare(variable) => self.frame.unbind(*variable)?,
            StepKind::Let { pattern, value } => match self.value(value)? {
                Some(value) => self.frame.destructure(pattern, &value)?,
                None => self.unbind(visit::bound(pattern))?,
            },
            StepKind::LetElse { pattern, value, otherwise } => match self.value(value)? {
                Some(value) if self.frame.matches(pattern, &value)? => {}
                Some(_) => return self.block(otherwise),
                None => {
                    self.unbind(visit::bound(pattern))?;
                    return self.all_perhaps([otherwise]);
                }
            },
            StepKind::Assign { place, operator, value } => {
                let selectors = visit::selectors(place);
                let is_whole = place.path.is_empty() && operator.is_none();
                let is_known = self.is_known(value) && selectors.into_iter().all(|index| self.is_known(index));
                match is_known && (is_whole || self.frame.value(place.variable).is_ok()) {
                    true => self.frame.assign(place, *operator, value)?,
                    false => {
                        visit::own(step).into_iter().try_for_each(|expression| self.pass(expression))?;
                        self.frame.unbind(place.variable)?;
                    }
                }
            }
            StepKind::Operation { bind, .. } => {
                if let Some((row, body)) = visit::change(step) {
                    self.frame.unbind(row)?;
                    self.forget(body)?;
                }
                self.unbind(bind.iter().flat_map(visit::bound))?;
            }
            StepKind::If { condition, then, otherwise } => match self.value(condition)? {
                Some(value) => return self.block(if truth(&value)? { then } else { otherwise }),
                None => return self.all_perhaps([then, otherwise]),
            },
            StepKind::Match { value, arms } => {
                if let Some(value) = self.value(value)? {
                    let mut decided = true;
                    for arm in arms {
                        if !self.frame.matches(&arm.pattern, &value)? {
                            continue;
                        }
                        let guard = arm.guard.as_ref().map(|guard| self.value(guard)).transpose()?;
                        match guard {
                            None => return self.block(&arm.body),
                            Some(Some(guard)) if truth(&guard)? => return self.block(&arm.body),
                            Some(Some(_)) => {}
                            Some(None) => {
                                decided = false;
                                break;
                            }
                        }
                    }
                    if decided {
                        return Err(EvaluationError::Type("no arm of a match takes its value".to_owned()));
                    }
                }
                self.unbind(arms.iter().flat_map(|arm| visit::bound(&arm.pattern)))?;
                return self.all_perhaps(arms.iter().map(|arm| &arm.body));
            }
            StepKind::For { pattern, over, body } => return self.run_for(pattern, over, body),
            StepKind::ForEach { row, body, .. } => {
                self.frame.unbind(*row)?;
                return self.any_iteration(body);
            }
            StepKind::Break => return Ok(Flow::Break),
            StepKind::Continue => return Ok(Flow::Continue),
            StepKind::Return(_) | StepKind::Abort(_) | StepKind::Yield(_) => return Ok(Flow::End),
        }
        Ok(Flow::Next)
    }

    /// Walks the body of a loop once, with what holds in every iteration.
    fn any_iteration(&mut self, body: &Block) -> Walked<Flow> {
        let jumps = std::mem::replace(&mut self.jumps, false);
        self.forget(body)?;
        self.block(body)?;
        self.forget(body)?;
        self.jumps = jumps;
        Ok(Flow::Next)
    }

    fn run_for(&mut self, pattern: &Pattern, over: &Expression, body: &Block) -> Walked<Flow> {
        if !self.is_known(over) {
            self.pass(over)?;
            self.unbind(visit::bound(pattern))?;
            return self.any_iteration(body);
        }
        let jumps = std::mem::replace(&mut self.jumps, false);
        let mut left_by = Flow::Next;
        for element in self.frame.elements(over)? {
            let too_many = || EvaluationError::Type(format!("more than {ITERATIONS_MAX} iterations"));
            self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
            if self.jumps {
                self.forget(body)?;
            }
            self.frame.destructure(pattern, &element)?;
            match self.block(body)? {
                Flow::Next | Flow::Continue => {}
                // It is not certain that the procedure gets there.
                Flow::Break | Flow::End if self.jumps => {}
                Flow::Break => break,
                Flow::End => {
                    left_by = Flow::End;
                    break;
                }
            }
        }
        if self.jumps {
            self.forget(body)?;
        }
        self.jumps = jumps;
        Ok(left_by)
    }

    fn operation(&mut self, operation: &Operation) -> Walked<()> {
        let known = match &operation.kind {
            OperationKind::Get { key, .. } | OperationKind::Update { key, .. } | OperationKind::Delete { key, .. } => {
                self.values(key)?.map(KnownKeys::One)
            }
            OperationKind::Insert { columns } => {
                let mut row = Vec::new();
                for (column, value) in columns {
                    if let Some(value) = self.value(value)? {
                        row.push((column.clone(), value));
                    }
                }
                Some(KnownKeys::Row(row))
            }
            OperationKind::Scan { range, limit, .. } => {
                let range = self.range(range)?;
                limit.iter().try_for_each(|limit| self.value(limit).map(drop))?;
                range.map(KnownKeys::Range)
            }
        };
        (self.visit)(operation, known)
    }

    fn range(&mut self, range: &KeyRange) -> Walked<Option<Keys>> {
        Ok(match range {
            KeyRange::Prefix(prefix) => self.values(prefix)?.map(Keys::Prefix),
            KeyRange::All => Some(Keys::All),
            KeyRange::Between { low, high, inclusive } => {
                let mut bound = |key: &Option<Vec<Expression>>| match key {
                    None => Ok(Some(None)),
                    Some(key) => self.values(key).map(|values| values.map(Some)),
                };
                match (bound(low)?, bound(high)?) {
                    (Some(low), Some(high)) => Some(Keys::Between { low, high, inclusive: *inclusive }),
                    _ => None,
                }
            }
        })
    }
}
