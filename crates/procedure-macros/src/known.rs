//! Slices: the parts of a procedure that can run ahead of time.
//!
//! A *slice* of steps has those parts of them that can run without the database. These are bindings whose values are
//! known, branches and loops over known values, and the operations with known keys. Flow analysis determines which
//! variables are settled when the steps begin ([`Flow::settled`]). A variable that the steps assign is not, since its
//! value at the operation is not the current one. Parts that depend on more are left out. Of a branch whose condition
//! is not known, both sides are taken, since either may run. So a slice visits at least the operations that will run
//! with known keys, and evaluates each key as its operation will.

use std::collections::BTreeSet;

use seriatim_procedure::analysis::Flow;
use seriatim_procedure::visit;

use crate::tree::{
    Expression, ExpressionKind, Operation, OperationKind, Procedure, Source, Step, StepKind, Variable, VariableId,
    Written,
};

/// Variables.
pub(crate) type Known = BTreeSet<VariableId>;

/// A part of a slice.
pub(crate) enum Node<'t> {
    /// A `let` or `let else` with known values; `Some`: the jump in its `else`.
    Let(&'t Step, Option<Jump>),
    /// An operation with a known key.
    Touch(&'t Operation),
    If(&'t Expression, Vec<Node<'t>>, Vec<Node<'t>>),
    Match(&'t Expression, Vec<(&'t Written, Option<&'t Expression>, Vec<Node<'t>>)>),
    For(&'t Written, &'t Expression, Vec<Node<'t>>),
    /// A scope of names, which may or may not run.
    Scope(Vec<Node<'t>>),
    Jump(Jump),
}

/// Where control goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// Out of the procedure.
    End,
    Break,
    Continue,
}

/// The flow of a procedure, by which slices of it are made.
pub(crate) fn flow(procedure: &Procedure) -> Flow<Source> {
    Flow::of(&procedure.body, procedure.variables.len(), procedure.parameters.len())
}

/// Makes a slice.
struct Slicer<'f> {
    /// Whether an operation is wanted.
    wanted: &'f dyn Fn(&Operation) -> bool,
    variables: &'f [Variable],
    /// The settled variables, without those that the slice cannot bind.
    known: Known,
    /// Whether the innermost loop has a jump out of an iteration that the slice does not follow.
    skips: bool,
}

/// How much is known of the way to a step.
#[derive(Clone, Copy)]
struct PathConditions {
    /// All conditions from the beginning of the slice.
    to_end: bool,
    /// All conditions from the innermost loop, which is in the slice.
    to_loop: bool,
}

/// The slice of these steps of a procedure, for the operations that are wanted.
pub(crate) fn slice<'t>(
    procedure: &Procedure,
    flow: &Flow<Source>,
    steps: &'t [Step],
    wanted: &dyn Fn(&Operation) -> bool,
) -> Vec<Node<'t>> {
    let Some(first) = steps.first() else { return Vec::new() };
    let region = first.id.index()..steps.iter().map(end).max().unwrap_or_default();
    let mut slicer = Slicer { wanted, variables: &procedure.variables, known: flow.settled(&region), skips: false };
    let mut nodes = slicer.steps(steps, PathConditions { to_end: true, to_loop: false });
    prune(&mut nodes, &mut Known::new(), false);
    nodes
}

/// The number after a step's and all in it.
fn end(step: &Step) -> usize {
    let inner = visit::blocks(step).into_iter().flat_map(|block| &block.0).map(end);
    inner.fold(step.id.index() + 1, usize::max)
}

impl Slicer<'_> {
    fn knows(&self, expression: &Expression) -> bool {
        let mut used = Known::new();
        uses(expression, &mut used);
        used.is_subset(&self.known)
    }

    /// The slice does not bind the variables of this pattern.
    fn leaves_out(&mut self, pattern: &Written) {
        pattern.binds().iter().for_each(|variable| {
            self.known.remove(variable);
        });
    }

    fn steps<'t>(&mut self, steps: &'t [Step], path: PathConditions) -> Vec<Node<'t>> {
        let mut nodes = Vec::new();
        for step in steps {
            self.step(step, path, &mut nodes);
        }
        nodes
    }

    fn step<'t>(&mut self, step: &'t Step, path: PathConditions, nodes: &mut Vec<Node<'t>>) {
        match &step.kind {
            StepKind::Let { pattern, value } => match self.knows(value) {
                true => nodes.push(Node::Let(step, None)),
                false => self.leaves_out(pattern),
            },
            StepKind::LetElse { pattern, value, otherwise } => {
                let jump = match otherwise.0.split_last() {
                    Some((last, before)) if !before.iter().any(skips) => jump(last),
                    _ => None,
                };
                let follows = match jump {
                    Some(Jump::End) => path.to_end,
                    Some(_) => path.to_loop,
                    None => false,
                };
                match self.knows(value) && follows {
                    true => nodes.push(Node::Let(step, jump)),
                    false => {
                        self.skips |= matches!(jump, None | Some(Jump::Break | Jump::Continue));
                        self.leaves_out(pattern);
                    }
                }
            }
            StepKind::Operation { operation, .. } => self.operation(operation, nodes),
            StepKind::If { condition, then, otherwise } => {
                if self.knows(condition) {
                    let (then, otherwise) = (self.steps(&then.0, path), self.steps(&otherwise.0, path));
                    nodes.push(Node::If(condition, then, otherwise));
                } else {
                    self.perhaps(&then.0, nodes);
                    self.perhaps(&otherwise.0, nodes);
                }
            }
            StepKind::Match { value, arms } => {
                if self.knows(value) && arms.iter().flat_map(|arm| &arm.guard).all(|guard| self.knows(guard)) {
                    let arms = arms.iter().map(|arm| {
                        let inside = self.steps(&arm.body.0, path);
                        (&arm.pattern, arm.guard.as_ref(), inside)
                    });
                    nodes.push(Node::Match(value, arms.collect()));
                } else {
                    for arm in arms {
                        self.leaves_out(&arm.pattern);
                        self.perhaps(&arm.body.0, nodes);
                    }
                }
            }
            StepKind::For { pattern, over, body } => {
                let skips = std::mem::replace(&mut self.skips, false);
                // A list that the loop takes for itself is not looked at before.
                let takes =
                    matches!(&*over.kind, ExpressionKind::Variable(list) if !self.variables[list.index()].borrowed);
                if self.knows(over) && !takes {
                    let mut inside = self.steps(&body.0, PathConditions { to_end: path.to_end, to_loop: true });
                    if self.skips {
                        // It may pass by the other jumps of the loop.
                        inside = self.steps(&body.0, PathConditions { to_end: false, to_loop: false });
                    }
                    nodes.push(Node::For(pattern, over, inside));
                } else {
                    self.leaves_out(pattern);
                    self.perhaps(&body.0, nodes);
                }
                self.skips = skips;
            }
            StepKind::Scope((), inner) => nodes.push(Node::Scope(self.steps(&inner.0, path))),
            StepKind::ForEach { operation, body, .. } => {
                let skips = self.skips;
                self.operation(operation, nodes);
                self.perhaps(&body.0, nodes);
                self.skips = skips;
            }
            StepKind::Return(_) | StepKind::Abort(_) | StepKind::Break | StepKind::Continue => match jump(step) {
                Some(Jump::End) if path.to_end => nodes.push(Node::Jump(Jump::End)),
                Some(inner) if path.to_loop && inner != Jump::End => nodes.push(Node::Jump(inner)),
                Some(Jump::Break | Jump::Continue) => self.skips = true,
                _ => {}
            },
            StepKind::Declare(_) | StepKind::Assign { .. } | StepKind::Yield(_) => {}
        }
    }

    fn perhaps<'t>(&mut self, steps: &'t [Step], nodes: &mut Vec<Node<'t>>) {
        let inside = self.steps(steps, PathConditions { to_end: false, to_loop: false });
        nodes.push(Node::Scope(inside));
    }

    fn operation<'t>(&self, operation: &'t Operation, nodes: &mut Vec<Node<'t>>) {
        if (self.wanted)(operation) && keys(operation).into_iter().all(|key| self.knows(key)) {
            nodes.push(Node::Touch(operation));
        }
    }
}

/// Whether a step may go out of the iteration that it is in.
fn skips(step: &Step) -> bool {
    let inside = || visit::blocks(step).into_iter().flat_map(|block| &block.0).any(skips);
    matches!(step.kind, StepKind::Break | StepKind::Continue) || inside()
}

fn jump(step: &Step) -> Option<Jump> {
    match step.kind {
        StepKind::Return(_) | StepKind::Abort(_) => Some(Jump::End),
        StepKind::Break => Some(Jump::Break),
        StepKind::Continue => Some(Jump::Continue),
        _ => None,
    }
}

/// The expressions that say where an operation goes. Of an insert all columns, since only the table knows
/// which are its key.
fn keys(operation: &Operation) -> Vec<&Expression> {
    match operation.kind {
        OperationKind::Insert { .. } => visit::values(operation),
        _ => visit::key(operation),
    }
}

/// The variables of an expression, also its own: those are settled, and needed, as the values to which they
/// are bound.
fn uses(expression: &Expression, used: &mut Known) {
    visit::expressions(expression, &mut |part| {
        if let ExpressionKind::Variable(variable) = &*part.kind {
            used.insert(*variable);
        }
    });
}

/// The expressions of a node itself, without those of the nodes in it.
pub(crate) fn own<'t>(node: &Node<'t>) -> Vec<&'t Expression> {
    match node {
        Node::Let(step, _) => visit::all_own(step),
        Node::Touch(operation) => keys(operation),
        Node::If(condition, ..) => vec![condition],
        Node::Match(value, arms) => {
            [*value].into_iter().chain(arms.iter().filter_map(|(_, guard, _)| *guard)).collect()
        }
        Node::For(_, over, _) => vec![over],
        Node::Scope(_) | Node::Jump(_) => Vec::new(),
    }
}

/// Removes parts that no operation needs. `needed` are the variables that later parts use, `follows` is
/// whether operations may follow.
fn prune(nodes: &mut Vec<Node<'_>>, needed: &mut Known, mut follows: bool) {
    let mut kept = Vec::new();
    while let Some(mut node) = nodes.pop() {
        let keep = match &mut node {
            Node::Touch(operation) => {
                keys(operation).into_iter().for_each(|key| uses(key, needed));
                true
            }
            Node::Let(step, jump) => {
                let (StepKind::Let { pattern, value, .. } | StepKind::LetElse { pattern, value, .. }) = &step.kind
                else {
                    continue;
                };
                let mut is_needed = jump.is_some() && follows;
                pattern.binds().iter().for_each(|variable| is_needed |= needed.remove(variable));
                if is_needed {
                    uses(value, needed);
                }
                is_needed
            }
            Node::If(condition, then, otherwise) => {
                prune(then, needed, follows);
                prune(otherwise, needed, follows);
                let keep = !then.is_empty() || !otherwise.is_empty();
                if keep {
                    uses(condition, needed);
                }
                keep
            }
            Node::Match(value, arms) => {
                for (_, guard, inside) in arms.iter_mut() {
                    prune(inside, needed, follows);
                    guard.iter().for_each(|guard| uses(guard, needed));
                }
                let keep = arms.iter().any(|(_, _, inside)| !inside.is_empty());
                if keep {
                    uses(value, needed);
                }
                keep
            }
            Node::For(_, over, inside) => {
                let keep = touches(inside);
                if keep {
                    prune(inside, needed, true);
                    uses(over, needed);
                }
                keep
            }
            Node::Scope(inside) => {
                prune(inside, needed, follows);
                !inside.is_empty()
            }
            Node::Jump(_) => follows,
        };
        if keep {
            follows |= touches(std::slice::from_ref(&node));
            kept.push(node);
        }
    }
    kept.reverse();
    *nodes = kept;
}

/// Whether there are operations in a slice.
fn touches(nodes: &[Node<'_>]) -> bool {
    nodes.iter().any(|node| match node {
        Node::Touch(_) => true,
        Node::If(_, then, otherwise) => touches(then) || touches(otherwise),
        Node::Match(_, arms) => arms.iter().any(|(_, _, inside)| touches(inside)),
        Node::For(_, _, inside) | Node::Scope(inside) => touches(inside),
        Node::Let(..) | Node::Jump(_) => false,
    })
}

/// Calls `visit` for each operation of a slice.
pub(crate) fn operations(nodes: &[Node<'_>], visit: &mut dyn FnMut(&Operation)) {
    for node in nodes {
        match node {
            Node::Touch(operation) => visit(operation),
            Node::If(_, then, otherwise) => {
                operations(then, visit);
                operations(otherwise, visit);
            }
            Node::Match(_, arms) => arms.iter().for_each(|(_, _, inside)| operations(inside, visit)),
            Node::For(_, _, inside) | Node::Scope(inside) => operations(inside, visit),
            Node::Let(..) | Node::Jump(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slice of a procedure, given its arguments: operations by number, `if`s and `match`es in braces,
    /// loops as `for{}`.
    fn sliced(body: &str) -> String {
        let text = format!("fn p(tx: &Tx, a: u32, list: &[Line], mut m: u32) -> Result<u32, Abort> {{ {body} }}");
        let function = syn::parse_str(&text).expect("a function");
        let procedure = crate::lower::procedure(&function).expect("a procedure");
        shown(&slice(&procedure, &flow(&procedure), &procedure.body.0, &|_| true))
    }

    fn shown(nodes: &[Node<'_>]) -> String {
        let each = nodes.iter().map(|node| match node {
            Node::Let(_, None) => "let".to_owned(),
            Node::Let(_, Some(jump)) => format!("let-else-{jump:?}"),
            Node::Touch(operation) => operation.id.0.to_string(),
            Node::If(_, then, otherwise) => format!("if{{{}|{}}}", shown(then), shown(otherwise)),
            Node::Match(_, arms) => {
                let arms: Vec<_> = arms.iter().map(|(_, _, inside)| shown(inside)).collect();
                format!("match{{{}}}", arms.join("|"))
            }
            Node::For(_, _, inside) => format!("for{{{}}}", shown(inside)),
            Node::Scope(inside) => format!("{{{}}}", shown(inside)),
            Node::Jump(jump) => format!("{jump:?}"),
        });
        each.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_of_arguments_are_known_and_keys_of_rows_are_not() {
        let body = "let row = tx.require::<T>(a)?; let b = a + 1; tx.delete::<T>(b)?; tx.delete::<T>(row.next)?;
            for line in list { let key = (a, line.id); tx.delete::<T>(key)?; tx.delete::<T>((row.id, line.id))?; } \
            Ok(a)";
        assert_eq!(sliced(body), "0 let 1 for{let 3}");
    }

    #[test]
    fn an_assigned_variable_is_not_known() {
        let body = "for line in list { m += 1; tx.delete::<T>((m, line.id))?; tx.delete::<T>(line.id)?; }
            let mut sum = 0; sum += a; tx.delete::<T>(sum)?; Ok(a)";
        assert_eq!(sliced(body), "for{1}");
    }

    #[test]
    fn known_conditions_are_followed_and_of_others_both_sides_are_taken() {
        let body = "if a > 1 { tx.delete::<T>(1)?; } else { tx.delete::<T>(2)?; }
            let row = tx.require::<T>(a)?;
            if row.flag { tx.delete::<T>(3)?; } else { tx.delete::<T>(4)?; }
            match a { 0 => { tx.delete::<T>(5)?; } _ => {} } Ok(a)";
        assert_eq!(sliced(body), "if{0|1} 2 {3} {4} match{5|}");
    }

    #[test]
    fn jumps_that_arguments_decide_are_followed() {
        let body = "if list.is_empty() { return Err(tx.abort(1)); }
            for line in list { if line.id == a { continue; } tx.delete::<T>(line.id)?; if line.id > a { break; } } \
            Ok(a)";
        assert_eq!(sliced(body), "if{End|} for{if{Continue|} 0 if{Break|}}");
        let body =
            "let row = tx.require::<T>(a)?; for line in list { if row.flag { break; } tx.delete::<T>(line.id)?; }
            let Some(x) = first(list) else { return Ok(a) }; tx.delete::<T>(x)?; if a > 3 { return Ok(a); } Ok(a)";
        assert_eq!(sliced(body), "0 for{1} let-else-End 2");
    }

    #[test]
    fn jumps_that_data_may_pass_by_are_not_followed() {
        // Where a row causes `continue`, or `break`, the known jump is not reached.
        let body = "let row = tx.require::<T>(a)?;
            for line in list { if row.flag { continue; } if line.id == a { break; } tx.delete::<T>(line.id)?; } Ok(a)";
        assert_eq!(sliced(body), "0 for{1}");
        let body = "let row = tx.require::<T>(a)?;
            for line in list { if line.id == a { return Ok(a); } tx.delete::<T>(line.id)?; if row.flag { break; } }
            tx.delete::<T>(a)?; Ok(a)";
        assert_eq!(sliced(body), "0 for{1} 2");
        let body = "for line in list { let row = tx.get::<T>(line.id)?; let Some(row) = row else { continue };
            for other in list { if other.id == a { break; } tx.delete::<T>(other.id)?; } } Ok(a)";
        assert_eq!(sliced(body), "for{0 for{if{Break|} 1}}");
    }

    #[test]
    fn steps_that_no_key_needs_are_left_out() {
        assert_eq!(sliced("let b = a + 1; let c = b + 1; let d = c + 1; tx.delete::<T>(c)?; Ok(d)"), "let let 0");
        assert_eq!(sliced("for line in list { let x = line.id; } if a > 1 { let y = a; } Ok(a)"), "");
    }

    #[test]
    fn names_of_a_block_end_with_it() {
        let body = "let b = { let a = tx.require::<T>(a)?; a.x }; tx.delete::<T>(a)?; tx.delete::<T>(b)?; Ok(a)";
        assert_eq!(sliced(body), "{0} 1");
    }
}
