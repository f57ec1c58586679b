//! A partition of a few amounts, and the requests of clients.

use std::collections::BTreeMap;

use seriatim_partition::{
    CoordinatorId, FragmentRequest, LockMode, Next, Partition, PartitionId, Procedure, RecoveredState, TransactionId,
    Unfinished,
};

use crate::Application;

/// Keys of a partition, and the initial value of each.
pub(super) const KEYS: u32 = 8;
pub(super) const VALUE: i64 = 100;

/// The operations of a fragment, in order.
pub(super) type Work = Vec<Op>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Adds to an amount, and returns the sum.
    Add(u32, i64),
    /// Fails if an amount is smaller.
    Require(u32, i64),
    /// Panics, once in the incarnation of the process: the records that are run again have no such work.
    Panic,
    /// Panics when it is undone.
    Stay,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Store {
    amounts: BTreeMap<u32, i64>,
    /// Whether it says that it keeps its state.
    keeps: bool,
    /// A transaction that has added nothing to this key, and that it says to be in doubt.
    in_doubt: Option<(TransactionId, CoordinatorId, u32)>,
}

impl Store {
    pub(super) fn new() -> Store {
        Store { amounts: (0..KEYS).map(|key| (key, VALUE)).collect(), keeps: false, in_doubt: None }
    }

    pub(super) fn that_keeps() -> Store {
        Store { keeps: true, ..Store::new() }
    }

    pub(super) fn that_keeps_in_doubt(transaction: TransactionId, of: CoordinatorId, key: u32) -> Store {
        Store { in_doubt: Some((transaction, of, key)), ..Store::that_keeps() }
    }

    pub(super) fn sum(&self) -> i64 {
        self.amounts.values().sum()
    }
}

impl Partition for Store {
    type Work = Work;
    type Reply = Vec<i64>;
    type Abort = u32;
    type Undo = Vec<(u32, i64)>;
    type Key = u32;

    fn execute(&mut self, _: TransactionId, work: &Work) -> Result<(Vec<i64>, Self::Undo), u32> {
        let (mut seen, mut undo) = (Vec::new(), Vec::new());
        for &op in work {
            match op {
                Op::Add(key, amount) => {
                    let value = self.amounts.get_mut(&key).expect("it is a key");
                    undo.push((key, *value));
                    *value += amount;
                    seen.push(*value);
                }
                Op::Require(key, least) if self.amounts[&key] < least => {
                    self.undo(undo);
                    return Err(key);
                }
                Op::Require(..) => {}
                Op::Panic => panic!("deliberately"),
                Op::Stay => undo.push((KEYS, 0)),
            }
        }
        Ok((seen, undo))
    }

    fn undo(&mut self, undo: Self::Undo) {
        assert!(undo.iter().all(|(key, _)| *key < KEYS), "it cannot be taken back");
        self.amounts.extend(undo.into_iter().rev());
    }

    fn forget(&mut self, _: Self::Undo) {}

    fn left(&mut self) -> Option<RecoveredState<Store>> {
        let unfinished = |(transaction, coordinator, key)| {
            let done = vec![(vec![Op::Add(key, 0)], Vec::new())];
            Unfinished { transaction, coordinator: Some(coordinator), done }
        };
        self.keeps.then(|| RecoveredState {
            incarnation: 1,
            unfinished: self.in_doubt.into_iter().map(unfinished).collect(),
            calls: Vec::new(),
            fragments: Vec::new(),
        })
    }

    fn footprint(&self, work: &Work, locks: &mut Vec<(u32, LockMode)>) {
        for &op in work {
            match op {
                Op::Add(key, _) => locks.push((key, LockMode::Exclusive)),
                Op::Require(key, _) => locks.push((key, LockMode::Shared)),
                Op::Panic | Op::Stay => {}
            }
        }
    }
}

/// Fragments of one round, or of two: then the first round only takes their positions.
#[derive(Debug)]
pub(super) struct Program {
    parts: Vec<(PartitionId, Work)>,
    places: bool,
    /// Whether its drop panics once it has been sent.
    panics: bool,
}

impl Program {
    pub(super) fn new(parts: Vec<(PartitionId, Work)>) -> Program {
        Program { parts, places: false, panics: false }
    }

    pub(super) fn in_two_rounds(parts: Vec<(PartitionId, Work)>) -> Program {
        Program { parts, places: true, panics: false }
    }

    pub(super) fn that_panics(parts: Vec<(PartitionId, Work)>) -> Program {
        Program { parts, places: false, panics: true }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.panics && !seriatim_base::thread::panicking() {
            panic!("deliberately, when it is dropped");
        }
    }
}

impl Procedure for Program {
    type Work = Work;
    type Reply = Vec<i64>;
    type Abort = u32;
    type Output = usize;

    fn next(&mut self, replies: Vec<(PartitionId, Option<Vec<i64>>)>) -> Next<Work, usize, u32> {
        if std::mem::take(&mut self.places) {
            return Next::Round(self.parts.iter().map(|&(partition, _)| FragmentRequest::place(partition)).collect());
        }
        match std::mem::take(&mut self.parts) {
            parts if parts.is_empty() => Next::Done(replies.len()),
            parts => {
                Next::Round(parts.into_iter().map(|(partition, work)| FragmentRequest::last(partition, work)).collect())
            }
        }
    }
}

pub(super) struct Amounts;

impl Application for Amounts {
    type Partition = Store;
    type Procedure = Program;
}
