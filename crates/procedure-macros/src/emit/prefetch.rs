//! Prefetching in straight code: the rows of keys that are known before they are needed are fetched together,
//! wave by wave.
//!
//! A wave waits for the addresses that the one before it fetched. So waves pay when many keys share the wait, or other
//! work lies between:
//! - *Entry.* All keys that depend on the arguments alone, also those in loops over arguments. Buckets are fetched at
//!   the procedure's entry. Records and row versions are spread over the steps before the first loop over such keys, or
//!   before the last of them. The operation that follows at once is left out, unless it is in a loop. All are left out
//!   if they are too few to share a wait.
//! - *Loops.* For every loop, the keys that are known at its entry and not at the procedure's entry. They are fetched
//!   for a batch of iterations at a time, all waves at once. An inner loop fetches only keys that the outer one could
//!   not know.
//!
//! Looking ahead is bounded: a loop may end at its first iteration for a reason that only its rows show.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::quote;
use seriatim_procedure::analysis::Flow;

use super::expressions::Code;
use super::slice::{BATCH, Reach, SliceEmitter, iteration};
use super::{library, own, table_field};
use crate::known::{self, Node};
use crate::tree::{Operation, OperationKind, Procedure, Source, Step, StepKind};

/// The keys to fetch, and where.
pub(super) struct Plan<'p> {
    procedure: &'p Procedure,
    /// `None`: nothing is fetched.
    flow: Option<&'p Flow<Source>>,
    /// Operations fetched further out.
    fetched: RefCell<BTreeSet<usize>>,
    /// Steps of the body after which (0: before which) a wave of the entry is emitted, in order.
    waves: [usize; 3],
    /// No key is decided by the arguments: there are no waves at the entry.
    fetched_nothing: bool,
}

/// Operations by the primary key, on existing rows.
fn is_by_key(operation: &Operation) -> bool {
    operation.index.is_none()
        && matches!(
            operation.kind,
            OperationKind::Get { .. } | OperationKind::Update { .. } | OperationKind::Delete { .. }
        )
}

impl<'p> Plan<'p> {
    /// The plan of a procedure; without its flow, of one that fetches nothing.
    pub(super) fn new(procedure: &'p Procedure, flow: Option<&'p Flow<Source>>) -> Plan<'p> {
        let plan = Plan { procedure, flow, fetched: RefCell::default(), waves: [0; 3], fetched_nothing: true };
        let slice = plan.slice_of_entry();
        let mut fetched = BTreeSet::new();
        known::operations(&slice, &mut |operation| {
            fetched.insert(operation.id.index());
        });
        if fetched.len() < SHARED_MIN && !has_loop(&slice) {
            return plan;
        }
        let waves = waves(&procedure.body.0, &fetched);
        Plan { fetched_nothing: fetched.is_empty(), fetched: RefCell::new(fetched), waves, ..plan }
    }

    /// The keys that the arguments decide: of all operations but the first.
    fn slice_of_entry(&self) -> Vec<Node<'p>> {
        let steps = &self.procedure.body.0;
        let first = steps.iter().find(|step| has_operation(step)).and_then(only_operation);
        let wanted = |operation: &Operation| is_by_key(operation) && Some(operation.id.index()) != first;
        self.flow.map(|flow| known::slice(self.procedure, flow, steps, &wanted)).unwrap_or_default()
    }

    /// A slice that fetches. Where it ends early, the steps themselves say why.
    fn look(&self, nodes: &[Node<'_>], reach: Reach) -> TokenStream {
        if nodes.is_empty() {
            return TokenStream::new();
        }
        let look = SliceEmitter::closure(self.procedure, nodes, reach, &fetch);
        quote!(let _ = #look;)
    }

    /// The code before the step of the body at this position.
    pub(super) fn before(&self, position: usize) -> TokenStream {
        let tx = &self.procedure.tx;
        let waves = self.waves.iter().enumerate().filter(|(_, stands)| !self.fetched_nothing && **stands == position);
        let waves = waves.map(|(at, _)| match at {
            0 => self.look(&self.slice_of_entry(), Reach::Near),
            _ => quote!(#tx.advance_prefetch();),
        });
        when_wanted(self.procedure, quote!(#(#waves)*))
    }

    /// The code that fetches a batch of a loop's iterations, from the current [`iteration`]; `None` if there
    /// is nothing to fetch.
    pub(super) fn in_loop(&self, step: &'p Step) -> Option<TokenStream> {
        let wanted =
            |operation: &Operation| is_by_key(operation) && !self.fetched.borrow().contains(&operation.id.index());
        let nodes = known::slice(self.procedure, self.flow?, std::slice::from_ref(step), &wanted);
        // Only what is fetched for many iterations is worth it.
        let nodes: Vec<_> = nodes.into_iter().filter(|node| matches!(node, Node::For(..))).collect();
        let mut fetched = Vec::new();
        known::operations(&nodes, &mut |operation| fetched.push(operation.id.index()));
        if fetched.is_empty() {
            return None;
        }
        self.fetched.borrow_mut().extend(&fetched);
        let look = self.look(&nodes, Reach::Batch);
        let (tx, iteration) = (&self.procedure.tx, iteration());
        let fetch = when_wanted(self.procedure, quote!(#look #tx.advance_prefetch(); #tx.advance_prefetch();));
        Some(quote!(if #iteration.is_multiple_of(#BATCH) { #fetch }))
    }
}

fn when_wanted(procedure: &Procedure, fetch: TokenStream) -> TokenStream {
    if fetch.is_empty() {
        return fetch;
    }
    let tx = &procedure.tx;
    quote!(if #tx.prefetching() { #fetch })
}

fn fetch(code: &Code<'_>, operation: &Operation) -> TokenStream {
    let (OperationKind::Get { key, .. } | OperationKind::Update { key, .. } | OperationKind::Delete { key, .. }) =
        &operation.kind
    else {
        return TokenStream::new();
    };
    let (library, operations, handles, columns) = (library(), own("operations"), own("handles"), own("columns"));
    let (table, key, id) = (table_field(operation.table), code.expression(&key.value), operation.id.index());
    quote!(#library::support::prefetch(#operations, &#handles.#table, &#key, #handles.#columns[#id]);)
}

/// The positions of the entry's waves in a body that fetches these operations. The first is at its begin. The others
/// are after two and four fifths of the steps with operations that come before the keys are needed. Measured on TPC-C's
/// New-Order, where five steps come before the loop: after two and four of them 4 % faster than after one and three.
fn waves(steps: &[Step], fetched: &BTreeSet<usize>) -> [usize; 3] {
    let ends = |at: usize| steps[at + 1..].iter().find_map(first_operation).unwrap_or(usize::MAX);
    let needs_them =
        |at: usize| first_operation(&steps[at]).is_some_and(|first| fetched.range(first..ends(at)).next().is_some());
    let is_loop = |at: usize| matches!(steps[at].kind, StepKind::For { .. });
    let needed = (0..steps.len()).find(|&at| is_loop(at) && needs_them(at));
    let needed = needed.or_else(|| (0..steps.len()).rfind(|&at| needs_them(at))).unwrap_or(steps.len());
    let before: Vec<usize> = (0..needed).filter(|&at| has_operation(&steps[at])).collect();
    // Rounded to the nearest, but at least one.
    let after = |fifths: usize| match before.len() {
        0 => needed,
        count => before[((count * fifths * 2 + 5) / 10).clamp(1, count) - 1] + 1,
    };
    [0, after(2), after(4)]
}

/// Fewer keys than these are not fetched at the entry, unless they are a loop's. TPC-C's Payment knows two,
/// of which one is cold: a wave for it alone waits as long as its lookup would.
const SHARED_MIN: usize = 3;

/// Whether a loop touches something.
fn has_loop(nodes: &[Node<'_>]) -> bool {
    nodes.iter().any(|node| match node {
        Node::For(_, _, inside) => {
            let mut touches = false;
            known::operations(inside, &mut |_| touches = true);
            touches
        }
        Node::If(_, then, otherwise) => has_loop(then) || has_loop(otherwise),
        Node::Match(_, arms) => arms.iter().any(|(_, _, inside)| has_loop(inside)),
        Node::Scope(inside) => has_loop(inside),
        Node::Touch(_) | Node::Let(..) | Node::Jump(_) => false,
    })
}

fn has_operation(step: &Step) -> bool {
    first_operation(step).is_some()
}

/// The first operation of a step.
fn first_operation(step: &Step) -> Option<usize> {
    let in_block = |steps: &[Step]| steps.iter().find_map(first_operation);
    match &step.kind {
        StepKind::Operation { operation, .. } | StepKind::ForEach { operation, .. } => Some(operation.id.index()),
        StepKind::LetElse { otherwise, .. } => in_block(&otherwise.0),
        StepKind::If { then, otherwise, .. } => in_block(&then.0).or_else(|| in_block(&otherwise.0)),
        StepKind::Match { arms, .. } => arms.iter().find_map(|arm| in_block(&arm.body.0)),
        StepKind::For { body, .. } | StepKind::Scope((), body) => in_block(&body.0),
        _ => None,
    }
}

/// The operation that a step is.
fn only_operation(step: &Step) -> Option<usize> {
    match &step.kind {
        StepKind::Operation { operation, .. } => Some(operation.id.index()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procedure(body: &str) -> Procedure {
        let text = format!("fn p(tx: &Tx, a: u32, list: &[Line]) -> Result<u32, Abort> {{ {body} }}");
        crate::lower::procedure(&syn::parse_str(&text).expect("a function")).expect("a procedure")
    }

    fn operations(nodes: &[Node<'_>]) -> Vec<usize> {
        let mut all = Vec::new();
        known::operations(nodes, &mut |operation| all.push(operation.id.index()));
        all
    }

    #[test]
    fn waves_of_the_entry_are_spread_over_the_steps_before_the_keys_are_needed() {
        // As TPC-C's New-Order.
        let procedure = procedure(
            "let w = tx.require::<W>(a)?; let n = tx.update::<D>(a, |row| { row.n += 1; row.n })?;
             tx.insert(O { a, n })?; tx.insert(N { a, n })?; let c = tx.require::<C>((a, 1))?;
             for line in list { tx.get::<I>(line.i)?; tx.update::<S>((line.w, line.i), |row| row.q -= 1)?; } Ok(n)",
        );
        let flow = known::flow(&procedure);
        let plan = Plan::new(&procedure, Some(&flow));
        assert_eq!(plan.waves, [0, 2, 4]);
        assert_eq!(operations(&plan.slice_of_entry()), [1, 4, 5, 6], "all but what follows at once");
        let Some(looping) = procedure.body.0.iter().find(|step| matches!(step.kind, StepKind::For { .. })) else {
            panic!("there is a loop")
        };
        assert!(plan.in_loop(looping).is_none(), "all of it is fetched further out");
    }

    #[test]
    fn waves_stand_before_the_first_loop_that_needs_them() {
        let procedure = procedure("for line in list { tx.get::<I>(line.i)?; } tx.get::<I>(a)?; Ok(a)");
        let flow = known::flow(&procedure);
        let plan = Plan::new(&procedure, Some(&flow));
        assert_eq!(plan.waves, [0, 0, 0]);
        assert_eq!(operations(&plan.slice_of_entry()), [0, 1]);
    }

    #[test]
    fn keys_too_few_to_share_a_wait_are_not_fetched() {
        // As TPC-C's Payment.
        let few = "let w = tx.require::<W>(a)?; tx.require::<D>((a, 1))?;";
        let plan_of = |rest: &str| {
            let procedure = procedure(&format!("{few} {rest} Ok(w.n)"));
            let flow = known::flow(&procedure);
            let plan = Plan::new(&procedure, Some(&flow));
            let fetched: Vec<_> = plan.fetched.borrow().iter().copied().collect();
            assert_eq!(plan.before(0).is_empty(), fetched.is_empty());
            fetched
        };
        assert!(plan_of("if a == 1 { tx.require::<C>((a, 2))?; }").is_empty());
        assert_eq!(plan_of("tx.require::<C>((a, 2))?; tx.require::<C>((a, 3))?;"), [1, 2, 3]);
        assert_eq!(plan_of("for line in list { tx.get::<I>(line.i)?; }"), [1, 2]);
    }

    #[test]
    fn a_loop_fetches_what_is_known_at_its_entry_for_all_its_iterations() {
        // As TPC-C's Delivery.
        let procedure = procedure(
            "let mut due = Vec::new();
             for line in list { let row = tx.require::<O>((a, line.i))?; due.push((row.c, row.n)); }
             for (c, n) in &due { for at in 0..*n { tx.get::<L>((*c, at))?; } tx.get::<C>(*c)?; } Ok(a)",
        );
        let flow = known::flow(&procedure);
        let plan = Plan::new(&procedure, Some(&flow));
        assert_eq!(operations(&plan.slice_of_entry()), [0]);
        assert!(plan.in_loop(&procedure.body.0[2]).is_some());
        assert_eq!(plan.fetched.borrow().iter().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(Plan::new(&procedure, None).before(0).is_empty(), "off is off");
    }
}
