//! What is known where: which operations' keys can be computed ahead of their time.
//!
//! A *slice* of steps is what can be run of them, given the values of some variables, without touching the database: bindings
//! whose values are known, branches and loops over what is known, and the operations whose keys are. What depends on more is
//! left out; of a branch whose condition is not known, both sides are taken, since either may come. So a slice visits at least
//! the operations that will be run with known keys, and evaluates each key as its operation will.
//!
//! A variable that the steps assign is not known: its value at the operation is not the one it has now.

use std::collections::BTreeSet;

use seriatim_procedure::visit;

use crate::tree::{
    Expression, ExpressionKind, Operation, OperationKind, Step, StepKind, Variable, VariableId, Written,
};

/// Variables.
pub(crate) type Known = BTreeSet<VariableId>;

/// A part of a slice.
pub(crate) enum Node<'t> {
    /// A `let` or `let else` with known values; `Some`: how its `else` goes on.
    Let(&'t Step, Option<Jump>),
    /// An operation whose keys are known.
    Touch(&'t Operation),
    If(&'t Expression, Vec<Node<'t>>, Vec<Node<'t>>),
    Match(&'t Expression, Vec<(&'t Written, Option<&'t Expression>, Vec<Node<'t>>)>),
    For(&'t Written, &'t Expression, Vec<Node<'t>>),
    /// What has names of its own: may be it is run, may be not.
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

/// Makes slices.
pub(crate) struct Slicer<'f> {
    /// Whether an operation is wanted.
    pub(crate) wanted: &'f dyn Fn(&Operation) -> bool,
    variables: &'f [Variable],
    /// Variables that the steps assign.
    assigned: Known,
}

/// How much is known of the way to a step.
#[derive(Clone, Copy)]
struct Way {
    /// All conditions from the beginning of the slice.
    to_end: bool,
    /// All conditions from the innermost loop, which is in the slice.
    to_loop: bool,
}

impl<'f> Slicer<'f> {
    /// The slice of these steps, given the values of `known`.
    pub(crate) fn slice<'t>(
        variables: &'f [Variable],
        steps: &'t [Step],
        known: &Known,
        wanted: &'f dyn Fn(&Operation) -> bool,
    ) -> Vec<Node<'t>> {
        let mut assigned = Known::new();
        steps.iter().for_each(|step| assigned_by(step, &mut assigned));
        let slicer = Slicer { wanted, variables, assigned };
        let known = known.difference(&slicer.assigned).copied().collect();
        let mut nodes = slicer.steps(steps, &known, Way { to_end: true, to_loop: false });
        prune(&mut nodes, &mut Known::new(), false);
        nodes
    }

    /// What is known inside of a pattern's scope.
    fn with(&self, known: &Known, pattern: &Written) -> Known {
        let mut inside = known.clone();
        inside.extend(pattern.binds().into_iter().filter(|variable| !self.assigned.contains(variable)));
        inside
    }

    fn steps<'t>(&self, steps: &'t [Step], known: &Known, way: Way) -> Vec<Node<'t>> {
        let mut known = known.clone();
        let mut nodes = Vec::new();
        for step in steps {
            self.step(step, &mut known, way, &mut nodes);
        }
        nodes
    }

    fn step<'t>(&self, step: &'t Step, known: &mut Known, way: Way, nodes: &mut Vec<Node<'t>>) {
        match &step.kind {
            StepKind::Let { pattern, value, .. } => {
                if is_known(value, known) {
                    nodes.push(Node::Let(step, None));
                    *known = self.with(known, pattern);
                }
            }
            StepKind::LetElse { pattern, value, otherwise } => {
                let jump = otherwise.0.last().and_then(jump);
                let follows = match jump {
                    Some(Jump::End) => way.to_end,
                    Some(_) => way.to_loop,
                    None => false,
                };
                if is_known(value, known) && follows {
                    nodes.push(Node::Let(step, jump));
                    *known = self.with(known, pattern);
                }
            }
            StepKind::Operation { operation, .. } => self.operation(operation, known, nodes),
            StepKind::If { condition, then, otherwise } => {
                if is_known(condition, known) {
                    let (then, otherwise) = (self.steps(&then.0, known, way), self.steps(&otherwise.0, known, way));
                    nodes.push(Node::If(condition, then, otherwise));
                } else {
                    self.perhaps(&then.0, known, nodes);
                    self.perhaps(&otherwise.0, known, nodes);
                }
            }
            StepKind::Match { value, arms } => {
                let guards_known = || {
                    arms.iter().all(|arm| {
                        let guard = arm.guard.as_ref();
                        guard.is_none_or(|guard| is_known(guard, &self.with(known, &arm.pattern)))
                    })
                };
                if is_known(value, known) && guards_known() {
                    let arms = arms.iter().map(|arm| {
                        let inside = self.steps(&arm.body.0, &self.with(known, &arm.pattern), way);
                        (&arm.pattern, arm.guard.as_ref(), inside)
                    });
                    nodes.push(Node::Match(value, arms.collect()));
                } else {
                    arms.iter().for_each(|arm| self.perhaps(&arm.body.0, known, nodes));
                }
            }
            StepKind::For { pattern, over, body } => {
                // A list that the loop takes for itself is not looked at before.
                let takes = matches!(&*over.kind, ExpressionKind::Variable(list) if !self.variables[list.index()].lent);
                if is_known(over, known) && !takes {
                    let inside = Way { to_end: way.to_end, to_loop: true };
                    let inside = self.steps(&body.0, &self.with(known, pattern), inside);
                    nodes.push(Node::For(pattern, over, inside));
                } else {
                    self.perhaps(&body.0, known, nodes);
                }
            }
            StepKind::Scope((), inner) => nodes.push(Node::Scope(self.steps(&inner.0, known, way))),
            StepKind::ForEach { operation, body, .. } => {
                self.operation(operation, known, nodes);
                self.perhaps(&body.0, known, nodes);
            }
            StepKind::Return(_) | StepKind::Abort(_) | StepKind::Break | StepKind::Continue => match jump(step) {
                Some(Jump::End) if way.to_end => nodes.push(Node::Jump(Jump::End)),
                Some(inner) if way.to_loop && inner != Jump::End => nodes.push(Node::Jump(inner)),
                _ => {}
            },
            StepKind::Declare(_) | StepKind::Assign { .. } | StepKind::Yield(_) => {}
        }
    }

    fn perhaps<'t>(&self, steps: &'t [Step], known: &Known, nodes: &mut Vec<Node<'t>>) {
        let inside = self.steps(steps, known, Way { to_end: false, to_loop: false });
        nodes.push(Node::Scope(inside));
    }

    fn operation<'t>(&self, operation: &'t Operation, known: &Known, nodes: &mut Vec<Node<'t>>) {
        if (self.wanted)(operation) && keys(operation).into_iter().all(|key| is_known(key, known)) {
            nodes.push(Node::Touch(operation));
        }
    }
}

fn jump(step: &Step) -> Option<Jump> {
    match step.kind {
        StepKind::Return(_) | StepKind::Abort(_) => Some(Jump::End),
        StepKind::Break => Some(Jump::Break),
        StepKind::Continue => Some(Jump::Continue),
        _ => None,
    }
}

/// The expressions that say where an operation goes. Of an insert all columns, since only the table knows which are its key.
fn keys(operation: &Operation) -> Vec<&Expression> {
    match operation.kind {
        OperationKind::Insert { .. } => visit::values(operation),
        _ => visit::key(operation),
    }
}

/// Whether every variable of an expression is known, or its own.
fn is_known(expression: &Expression, known: &Known) -> bool {
    let mut used = Known::new();
    uses(expression, &mut used);
    used.is_subset(known)
}

/// The variables an expression reads, without its own.
pub(crate) fn uses(expression: &Expression, used: &mut Known) {
    let (mut read, mut own) = (Known::new(), Known::new());
    visit::expressions(expression, &mut |part| {
        if let ExpressionKind::Variable(variable) = &*part.kind {
            read.insert(*variable);
        }
        own.extend(visit::bindings(part).into_iter().flat_map(|(pattern, _)| visit::bound(pattern)));
    });
    used.extend(read.difference(&own));
}

/// The variables a step assigns, with those in it.
fn assigned_by(step: &Step, assigned: &mut Known) {
    if matches!(step.kind, StepKind::Assign { .. } | StepKind::Declare(_)) {
        assigned.extend(visit::defined(step));
    }
    visit::blocks(step).into_iter().flat_map(|block| &block.0).for_each(|step| assigned_by(step, assigned));
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

/// Leaves out what no operation needs. `needed` are the variables used by what follows, `follows` is whether operations may.
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

    /// The slice of a procedure, given its arguments: operations by number, `if`s and `match`es in braces, loops as `for{}`.
    fn sliced(body: &str) -> String {
        let text = format!("fn p(tx: &Tx, a: u32, list: &[Line], mut m: u32) -> Result<u32, Abort> {{ {body} }}");
        let function = syn::parse_str(&text).expect("a function");
        let procedure = crate::lower::procedure(&function).expect("a procedure");
        let known = procedure.parameters.iter().map(|parameter| parameter.variable).collect();
        shown(&Slicer::slice(&procedure.variables, &procedure.body.0, &known, &|_| true))
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
            for line in list { let key = (a, line.id); tx.delete::<T>(key)?; tx.delete::<T>((row.id, line.id))?; } Ok(a)";
        assert_eq!(sliced(body), "0 let 1 for{let 3}");
    }

    #[test]
    fn what_is_assigned_is_not_known() {
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
            for line in list { if line.id == a { continue; } tx.delete::<T>(line.id)?; if line.id > a { break; } } Ok(a)";
        assert_eq!(sliced(body), "if{End|} for{if{Continue|} 0 if{Break|}}");
        let body =
            "let row = tx.require::<T>(a)?; for line in list { if row.flag { break; } tx.delete::<T>(line.id)?; }
            let Some(x) = first(list) else { return Ok(a) }; tx.delete::<T>(x)?; if a > 3 { return Ok(a); } Ok(a)";
        assert_eq!(sliced(body), "0 for{1} let-else-End 2");
    }

    #[test]
    fn what_no_key_needs_is_left_out() {
        assert_eq!(sliced("let b = a + 1; let c = b + 1; let d = c + 1; tx.delete::<T>(c)?; Ok(d)"), "let let 0");
        assert_eq!(sliced("for line in list { let x = line.id; } if a > 1 { let y = a; } Ok(a)"), "");
    }

    #[test]
    fn names_of_a_block_end_with_it() {
        let body = "let b = { let a = tx.require::<T>(a)?; a.x }; tx.delete::<T>(a)?; tx.delete::<T>(b)?; Ok(a)";
        assert_eq!(sliced(body), "{0} 1");
    }
}
