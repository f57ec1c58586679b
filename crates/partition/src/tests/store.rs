//! A small key-value partition, which notes the reads and writes of each transaction, and asserts its side of
//! the contract.

use std::collections::BTreeMap;

use crate::fault::INJECTED;
use crate::{LockMode, Partition, PartitionId, TransactionId};

/// The operations of a fragment, in order.
pub(super) type Work = Vec<Op>;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Reads a value.
    Read(u32),
    /// Reads a value and adds to it.
    Add(u32, i64),
    /// Writes a value.
    Set(u32, i64),
    /// Reads a value and fails if it is smaller.
    Require(u32, i64),
    /// Fails.
    Fail,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) key: u32,
    pub(super) value: i64,
    pub(super) version: u64,
    pub(super) writer: Option<TransactionId>,
}

/// The failure of a fragment: its partition, and its reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed(pub(super) PartitionId, pub(super) Vec<Seen>);

/// The effects of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) transaction: TransactionId,
    pub(super) seen: Vec<Seen>,
    /// Key and version.
    pub(super) written: Vec<(u32, u64)>,
}

/// The version of initial values.
pub(super) const INITIAL: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    value: i64,
    version: u64,
    writer: Option<TransactionId>,
}

/// The partition.
#[derive(Clone, Debug)]
pub(super) struct Store {
    id: PartitionId,
    cells: BTreeMap<u32, Cell>,
    /// By the number of the execution.
    applied: BTreeMap<u64, Applied>,
    executions: u64,
    /// The number of executions without undo.
    pub(super) without_undo: u64,
}

/// The values before a fragment, and the number of its execution.
#[derive(Debug)]
pub(super) struct Undo {
    execution: u64,
    before: Vec<(u32, Cell)>,
}

impl Store {
    /// Keys 0 to `keys - 1`, each with this value.
    pub(super) fn new(id: PartitionId, keys: u32, value: i64) -> Store {
        let cell = Cell { value, version: INITIAL, writer: None };
        Store {
            id,
            cells: (0..keys).map(|key| (key, cell)).collect(),
            applied: BTreeMap::new(),
            executions: 0,
            without_undo: 0,
        }
    }

    pub(super) fn sum(&self) -> i64 {
        self.cells.values().map(|cell| cell.value).sum()
    }

    /// The executions that were not undone.
    pub(super) fn applied(&self) -> impl Iterator<Item = &Applied> {
        self.applied.values()
    }

    /// Values, versions and writers.
    pub(super) fn contents(&self) -> String {
        format!("{:?}", self.cells)
    }
}

impl Partition for Store {
    type Work = Work;
    type Reply = Vec<Seen>;
    type Abort = Failed;
    type Undo = Undo;
    type Key = u32;

    fn execute(&mut self, transaction: TransactionId, work: &Work) -> Result<(Vec<Seen>, Undo), Failed> {
        let (mut seen, mut before, mut written) = (Vec::new(), Vec::<(u32, Cell)>::new(), Vec::new());
        let mut failed = false;
        for &op in work {
            let (Op::Read(key) | Op::Add(key, _) | Op::Set(key, _) | Op::Require(key, _)) = op else {
                failed = true;
                break;
            };
            let cell = self.cells.get_mut(&key).expect("keys are of the partition");
            let is_own = before.iter().any(|(other, _)| *other == key);
            if !matches!(op, Op::Set(..)) && !is_own {
                seen.push(Seen { key, value: cell.value, version: cell.version, writer: cell.writer });
            }
            let value = match op {
                Op::Add(_, amount) => cell.value + amount,
                Op::Set(_, value) => value,
                Op::Require(_, least) if cell.value < least => {
                    failed = true;
                    break;
                }
                _ => continue,
            };
            if !is_own {
                before.push((key, *cell));
                written.push((key, cell.version + 1));
                (cell.version, cell.writer) = (cell.version + 1, Some(transaction));
            }
            cell.value = value;
        }
        if failed {
            self.cells.extend(before);
            return Err(Failed(self.id, seen));
        }
        self.executions += 1;
        self.applied.insert(self.executions, Applied { transaction, seen: seen.clone(), written });
        Ok((seen, Undo { execution: self.executions, before }))
    }

    fn execute_without_undo(&mut self, transaction: TransactionId, work: &Work) -> Result<Vec<Seen>, Failed> {
        let can_fail = work.iter().any(|op| matches!(op, Op::Require(..) | Op::Fail));
        self.without_undo += u64::from(!can_fail);
        self.execute(transaction, work).map(|(seen, _)| seen)
    }

    fn undo(&mut self, undo: Undo) {
        let applied = self.applied.remove(&undo.execution).expect("it is taken back once");
        for (key, cell) in undo.before.into_iter().rev() {
            let now = self.cells.insert(key, cell).expect("keys stay");
            let is_latest = now.writer == Some(applied.transaction) && now.version == cell.version + 1;
            // An injected fault is for the audit to notice: a partition need not know the writers.
            assert!(is_latest || INJECTED.get().is_some(), "what came after has been taken back before");
        }
    }

    fn forget(&mut self, undo: Undo) {
        let is_there = self.applied.contains_key(&undo.execution);
        assert!(is_there || INJECTED.get().is_some(), "what is forgotten was not taken back");
    }

    fn footprint(&self, work: &Work, locks: &mut Vec<(u32, LockMode)>) {
        for &op in work {
            match op {
                Op::Read(key) | Op::Require(key, _) => locks.push((key, LockMode::Shared)),
                Op::Add(key, _) | Op::Set(key, _) => locks.push((key, LockMode::Exclusive)),
                Op::Fail => {}
            }
        }
    }
}
