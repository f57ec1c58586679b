//! Executions in passes, as generated code runs them: step by step, over three tables.

use std::ops::ControlFlow;
use std::sync::Arc;

use seriatim_base::Rng;
use seriatim_procedure::evaluate::Frame;
use seriatim_procedure::interpret::{Keys, Operate, bind_arguments};
use seriatim_procedure::ir::{Block, KeyRange, Operation, OperationKind, Procedure, Step, StepKind, Take};
use seriatim_procedure::{Data, Value, field};

use crate::program::TABLES;
use crate::support::toy::{Toy, ToyError};

pub(crate) fn number(value: i128) -> Value {
    Value::Integer(value, None)
}

/// Some rows of keys 0 to 2, with `v` and `w` of 0 to 2.
pub(crate) fn rows(rng: &mut Rng) -> Toy {
    let mut toy = Toy::default();
    for table in TABLES {
        toy = toy.with(table, 1, &["id", "v", "w"]).unsigned(table, "v");
        for key in 0..3 {
            if rng.below(4) > 0 {
                let values = [key, rng.below(3).into(), rng.below(3).into()];
                toy = toy.row(table, values.map(number).to_vec());
            }
        }
    }
    toy
}

/// How a block ended.
#[derive(PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
    Ended,
}

/// An execution in passes: what scheduled code does, step by step.
pub(crate) struct Chain<'p> {
    procedure: &'p Procedure,
    arguments: &'p Value,
    /// By step.
    passes: &'p [u16],
    pub(crate) pass: u16,
    /// By operation: what it gave, and how much of that this pass has met.
    kept: Vec<(Vec<Value>, usize)>,
    /// Steps that may still run: a procedure that does not end is reported instead of waited for.
    steps: u32,
    pub(crate) output: Option<Value>,
}

impl<'p> Chain<'p> {
    pub(crate) fn new(procedure: &'p Procedure, arguments: &'p Value, passes: &'p [u16]) -> Chain<'p> {
        let kept = vec![(Vec::new(), 0); procedure.operations];
        Chain { procedure, arguments, passes, pass: 0, kept, steps: 1 << 14, output: None }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.pass > self.passes.iter().copied().max().unwrap_or(0)
    }

    /// Runs the next pass on a database; if it fails nothing is changed there, and the chain is at its end.
    pub(crate) fn run(&mut self, toy: &Toy) -> Result<(), ToyError> {
        let before = toy.tables.borrow().clone();
        self.kept.iter_mut().for_each(|(_, met)| *met = 0);
        self.output = None;
        let mut frame = Frame::new(self.procedure.variables.len());
        bind_arguments(self.procedure, self.arguments, &mut frame)?;
        let result = self.block(&self.procedure.body, &mut frame, toy);
        self.pass += 1;
        if let Err(stop) = result {
            *toy.tables.borrow_mut() = before;
            self.pass = u16::MAX;
            return Err(stop);
        }
        Ok(())
    }

    fn block(&mut self, block: &'p Block, frame: &mut Frame, toy: &Toy) -> Result<Flow, ToyError> {
        for step in &block.0 {
            let flow = self.step(step, frame, toy)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn step(&mut self, step: &'p Step, frame: &mut Frame, toy: &Toy) -> Result<Flow, ToyError> {
        self.steps = self.steps.checked_sub(1).unwrap_or_else(|| panic!("it does not end:\n{}", self.procedure));
        let (due, runs) = (self.passes[step.id.index()] <= self.pass, self.passes[step.id.index()] == self.pass);
        match &step.kind {
            StepKind::Scope(never, _) => match *never {},
            StepKind::Break => return Ok(Flow::Break),
            StepKind::Continue => return Ok(Flow::Continue),
            StepKind::Declare(variable) => frame.unbind(*variable)?,
            StepKind::Return(value) => {
                if due {
                    self.output = Some(frame.evaluate(value)?);
                }
                return Ok(Flow::Ended);
            }
            StepKind::Abort(error) => {
                return if due { Err(ToyError::User(frame.evaluate(error)?)) } else { Ok(Flow::Ended) };
            }
            _ if !due => {}
            StepKind::Let { pattern, value } => {
                let value = frame.evaluate(value)?;
                frame.destructure(pattern, &value)?;
            }
            StepKind::LetElse { pattern, value, otherwise } => {
                let value = frame.evaluate(value)?;
                if !frame.matches(pattern, &value)? {
                    let flow = self.block(otherwise, frame, toy)?;
                    return Ok(if flow == Flow::Next { Flow::Ended } else { flow });
                }
            }
            StepKind::Assign { place, operator, value } => frame.assign(place, *operator, value)?,
            StepKind::Operation { operation, bind } => {
                let id = operation.id.index();
                if runs {
                    let result = self.operate(operation, frame, toy)?;
                    self.keep(id, result);
                }
                if let Some(pattern) = bind {
                    let result = self.again(id);
                    frame.destructure(pattern, &result)?;
                }
            }
            StepKind::If { condition, then, otherwise } => {
                let holds = frame.evaluate(condition)? == Value::Bool(true);
                return self.block(if holds { then } else { otherwise }, frame, toy);
            }
            StepKind::Match { value, arms } => {
                let value = frame.evaluate(value)?;
                for arm in arms {
                    if frame.matches(&arm.pattern, &value)?
                        && (arm.guard.as_ref())
                            .map_or(Ok(true), |guard| frame.evaluate(guard).map(|held| held == Value::Bool(true)))?
                    {
                        return self.block(&arm.body, frame, toy);
                    }
                }
            }
            StepKind::For { pattern, over, body } => {
                for element in frame.elements(over)? {
                    frame.destructure(pattern, &element)?;
                    match self.block(body, frame, toy)? {
                        Flow::Next | Flow::Continue => {}
                        Flow::Break => break,
                        Flow::Ended => return Ok(Flow::Ended),
                    }
                }
            }
            StepKind::ForEach { row, operation, body } => {
                let id = operation.id.index();
                if runs {
                    let rows = self.operate(operation, frame, toy)?;
                    self.keep(id, rows);
                }
                let Value::List(rows) = self.again(id) else { unreachable!("a scan gives rows") };
                for found in rows {
                    frame.bind(*row, found)?;
                    match self.block(body, frame, toy)? {
                        Flow::Next | Flow::Continue => {}
                        Flow::Break => break,
                        Flow::Ended => return Ok(Flow::Ended),
                    }
                }
            }
            StepKind::Yield(_) => unreachable!("only in an update"),
        }
        Ok(Flow::Next)
    }

    /// Notes a result of the pass in which the operation runs. It does not count as met yet.
    fn keep(&mut self, operation: usize, result: Value) {
        let (kept, met) = &mut self.kept[operation];
        kept.truncate(*met);
        kept.push(result);
    }

    fn again(&mut self, operation: usize) -> Value {
        let (kept, met) = &mut self.kept[operation];
        *met += 1;
        kept.get(*met - 1).cloned().unwrap_or_else(|| panic!("operation {operation} gave nothing that often"))
    }

    fn operate(&mut self, operation: &'p Operation, frame: &mut Frame, toy: &Toy) -> Result<Value, ToyError> {
        let table: &Arc<str> = &self.procedure.tables[operation.table].table;
        match &operation.kind {
            OperationKind::Get { key, required } => {
                let key = frame.evaluate_all(key)?;
                let found = toy.get(operation, table, key.clone())?;
                match (found, required) {
                    (None, true) => Err(toy.missing(operation, table, &key)),
                    (Some(row), true) => Ok(row),
                    (found, false) => Ok(Value::Option(found.map(Box::new))),
                }
            }
            OperationKind::Update { key, required, row, body } => {
                let key = frame.evaluate_all(key)?;
                let mut value = Value::UNIT;
                let found = toy.update(operation, table, key.clone(), &mut |before| {
                    frame.bind(*row, before)?;
                    let mut columns = Vec::new();
                    for step in &body.0 {
                        match &step.kind {
                            StepKind::Assign { place, operator, value } => {
                                frame.assign(place, *operator, value)?;
                                if let [seriatim_procedure::ir::Selector::Field(column)] = &place.path[..] {
                                    columns.push(column.clone());
                                }
                            }
                            StepKind::Yield(given) => value = frame.evaluate(given)?,
                            other => unreachable!("{other:?} in an update"),
                        }
                    }
                    let after = frame.value(*row)?;
                    let changes =
                        columns.into_iter().map(|column| Ok((column.clone(), field(after, &column)?.clone())));
                    changes.collect()
                })?;
                match (found, required) {
                    (false, true) => Err(toy.missing(operation, table, &key)),
                    (true, true) => Ok(value),
                    (found, false) => Ok(Value::Option(found.then(|| Box::new(value)))),
                }
            }
            OperationKind::Delete { key, required } => {
                let key = frame.evaluate_all(key)?;
                match (toy.delete(operation, table, key.clone())?, required) {
                    (false, true) => Err(toy.missing(operation, table, &key)),
                    (true, true) => Ok(Value::UNIT),
                    (found, false) => Ok(Value::Bool(found)),
                }
            }
            OperationKind::Insert { columns } => {
                let columns = columns.iter().map(|(name, value)| Ok((name.clone(), frame.evaluate(value)?)));
                toy.insert(operation, table, columns.collect::<Result<_, ToyError>>()?)?;
                Ok(Value::UNIT)
            }
            OperationKind::Scan { range: KeyRange::Prefix(prefix), take, reverse, .. } => {
                let keys = Keys::Prefix(frame.evaluate_all(prefix)?);
                let mut rows = Vec::new();
                toy.scan(operation, table, keys, *reverse, &mut |row| {
                    rows.push(row);
                    Ok(if *take == Take::First { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
                Ok(match take {
                    Take::Count => (rows.len() as u64).to_value(),
                    Take::First => Value::Option(rows.pop().map(Box::new)),
                    Take::All | Take::Each => Value::List(rows),
                })
            }
            OperationKind::Scan { .. } => unreachable!("none is written"),
        }
    }
}
