//! A checker of orders, written from the definition. Transactions see a state and change it; an order is
//! serial if each transaction, run again at its position, sees what it saw. The checker knows no graph and no
//! resource.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Decided;

/// The writer of each existing key: the number of a transaction, or a number above all of them for the initial
/// state.
pub(super) type State = BTreeMap<u64, usize>;

/// An operation of a transaction. All reads come before the changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Looks a key up; it may be absent.
    Read(u64),
    /// Looks through the keys of a range.
    Scan(Range<u64>),
    /// Writes a key, whether it is there or not.
    Put(u64),
    /// Deletes a key if it is there.
    Delete(u64),
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Saw {
    Key(u64, Option<usize>),
    Keys(Range<u64>, Vec<(u64, usize)>),
}

/// An executed transaction.
#[derive(Clone, Debug)]
pub(super) struct Executed {
    pub(super) ops: Vec<Op>,
    pub(super) saw: Vec<Saw>,
}

/// The reads of a transaction in a state.
fn look(ops: &[Op], state: &State) -> Vec<Saw> {
    let seen = |op: &Op| match op {
        Op::Read(key) | Op::Delete(key) => Some(Saw::Key(*key, state.get(key).copied())),
        Op::Scan(range) => {
            Some(Saw::Keys(range.clone(), state.range(range.clone()).map(|(&key, &by)| (key, by)).collect()))
        }
        Op::Put(_) => None,
    };
    ops.iter().filter_map(seen).collect()
}

pub(super) fn execute(ops: &[Op], state: &State) -> Executed {
    Executed { ops: ops.to_vec(), saw: look(ops, state) }
}

/// Runs transactions of a batch one after another. The error names the first transaction that sees something
/// else.
pub(super) fn replay(state: &State, batch: &[Executed], order: &[usize]) -> Result<(), String> {
    let mut state = state.clone();
    for &at in order {
        let Executed { ops, saw } = &batch[at];
        let sees = look(ops, &state);
        if sees != *saw {
            return Err(format!("{at} of {order:?} saw {saw:?}, and sees {sees:?} in its place"));
        }
        for op in ops {
            match op {
                Op::Put(key) => drop(state.insert(*key, at)),
                Op::Delete(key) => drop(state.remove(key)),
                Op::Read(_) | Op::Scan(_) => {}
            }
        }
    }
    Ok(())
}

/// Another order that the edges allow: of the candidates, the one that is last in the order comes first.
fn latest_first(decided: &Decided) -> Vec<usize> {
    let mut left = decided.order.clone();
    let mut order = Vec::new();
    let may_come =
        |at: usize, left: &[usize]| !decided.edges.iter().any(|&(first, second)| second == at && left.contains(&first));
    while let Some(next) = left.iter().rposition(|&at| may_come(at, &left)) {
        order.push(left.remove(next));
    }
    order
}

/// Checks a decision. Each transaction occurs once, and those that commit are in a serial order. The edges run forward
/// in it and allow no order that is not serial.
pub(super) fn check(state: &State, batch: &[Executed], decided: &Decided) -> Result<(), String> {
    let mut all = [&decided.order[..], &decided.aborted, &decided.stale].concat();
    replay(state, batch, &decided.order)?;
    let place = |at: usize| decided.order.iter().position(|&other| other == at);
    if let Some(edge) = decided.edges.iter().find(|(first, second)| place(*first) >= place(*second)) {
        return Err(format!("{edge:?} does not run forward: {decided:?}"));
    }
    let other = latest_first(decided);
    if other.len() < decided.order.len() {
        return Err(format!("edges on a cycle: {decided:?}"));
    }
    replay(state, batch, &other)?;
    all.sort_unstable();
    match all.into_iter().eq(0..batch.len()) {
        true => Ok(()),
        false => Err(format!("not each of {} once: {decided:?}", batch.len())),
    }
}

/// The most transactions of a small batch that can commit, found by trying all orders of all subsets.
pub(super) fn most(state: &State, batch: &[Executed]) -> usize {
    let mut most = 0;
    let mut orders = vec![Vec::new()];
    while let Some(order) = orders.pop() {
        // A prefix that fails also fails with more transactions behind it.
        if replay(state, batch, &order).is_ok() {
            most = most.max(order.len());
            let others = (0..batch.len()).filter(|at| !order.contains(at));
            orders.extend(others.map(|at| [&order[..], &[at]].concat()));
        }
    }
    most
}
