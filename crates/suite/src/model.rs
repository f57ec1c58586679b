//! Small programs over one table of cells, and what they would see if they ran one after another.

use std::collections::BTreeMap;

/// One operation. Values it computes depend on what the program has observed so far.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Reads a cell.
    Get(u32),
    /// Sets a cell, inserting it if absent, to a function of the observations so far.
    Put(u32, fn(&[Observed]) -> i64),
    /// Adds to a cell that exists; observes the sum.
    Add(u32, i64),
    /// Inserts a cell unless it exists; observes whether it was inserted.
    Insert(u32, i64),
    /// Deletes a cell; observes whether it was there.
    Delete(u32),
    /// Reads the cells in `low..=high`.
    Scan(u32, u32),
    /// As [`Op::Scan`], downwards.
    ScanDown(u32, u32),
    /// Runs the operation only if the last observation satisfies the condition.
    If(fn(&[Observed]) -> bool, &'static Op),
}

/// What an operation showed its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A cell, if it was there.
    Cell(Option<i64>),
    /// Whether something was done.
    Done(bool),
    /// Cells in the order a scan met them.
    Cells(Vec<(u32, i64)>),
}

impl Observed {
    /// The value of a cell that was there, else zero.
    pub fn value(&self) -> i64 {
        match self {
            Observed::Cell(value) => value.unwrap_or(0),
            Observed::Done(done) => i64::from(*done),
            Observed::Cells(cells) => cells.iter().map(|(_, value)| value).sum(),
        }
    }
}

/// The state of the table.
pub type State = BTreeMap<u32, i64>;

/// Runs a program on the state by itself.
pub fn run_alone(program: &[Op], state: &mut State) -> Vec<Observed> {
    let mut observed = Vec::new();
    for &op in program {
        step(op, state, &mut observed);
    }
    observed
}

fn step(op: Op, state: &mut State, observed: &mut Vec<Observed>) {
    let result = match op {
        Op::Get(key) => Observed::Cell(state.get(&key).copied()),
        Op::Put(key, value) => {
            let value = value(observed);
            state.insert(key, value);
            Observed::Done(true)
        }
        Op::Add(key, amount) => Observed::Cell(state.get_mut(&key).map(|value| {
            *value += amount;
            *value
        })),
        Op::Insert(key, value) => {
            let absent = !state.contains_key(&key);
            if absent {
                state.insert(key, value);
            }
            Observed::Done(absent)
        }
        Op::Delete(key) => Observed::Done(state.remove(&key).is_some()),
        Op::Scan(low, high) => Observed::Cells(state.range(low..=high).map(|(&k, &v)| (k, v)).collect()),
        Op::ScanDown(low, high) => Observed::Cells(state.range(low..=high).rev().map(|(&k, &v)| (k, v)).collect()),
        Op::If(condition, &then) => {
            if condition(observed) {
                step(then, state, observed);
            }
            return;
        }
    };
    observed.push(result);
}
