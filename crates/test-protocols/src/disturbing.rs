//! A protocol that repairs, and that runs other work before commits ([`MEANWHILE`]) and before accesses
//! ([`before_accesses`]).

use std::cell::Cell;
use std::collections::VecDeque;

use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_memory::Memory;
use seriatim_protocol::htcc::Htcc;
use seriatim_txn::{
    Added, Addition, Core, Inserted, Mode, OnExists, OpError, Outcome, Priority, Protocol, ProtocolInfo, Redo, Repair,
    RowPtr, Scan, Staged, Table, Updating, Worker,
};

use crate::altered::{Alteration, Altered};
use crate::delegate::delegate;
use crate::repairing::MEANWHILE;

/// The protocol's name.
pub const NAME: &str = "disturbed";

/// The protocol.
pub type Disturbing = Altered<Disturbance>;

/// What differs from the protocol that repairs.
#[derive(Debug)]
pub struct Disturbance;

impl Alteration for Disturbance {
    type Base = Htcc;
    type Worker = Disturbed;
    const INFO: ProtocolInfo = ProtocolInfo { name: NAME, ..Htcc::INFO };

    fn worker(base: &Htcc, core: Core, _: &Memory) -> Disturbed {
        Disturbed { inner: Box::new(base.worker(core)) }
    }
}

thread_local! {
    /// The number of repairs that commits of this thread asked for.
    pub static REPAIRS: Cell<u32> = const { Cell::new(0) };
    static BEFORE: Cell<Option<Box<dyn FnMut()>>> = const { Cell::new(None) };
}

/// Runs `work`, and `others` before each access and each commit of this thread's transactions in it. Accesses
/// of `others` are not disturbed.
pub fn before_accesses<R>(others: impl FnMut() + 'static, work: impl FnOnce() -> R) -> R {
    BEFORE.set(Some(Box::new(others)));
    let result = work();
    BEFORE.set(None);
    result
}

fn others() {
    if let Some(mut others) = BEFORE.take() {
        others();
        BEFORE.set(Some(others));
    }
}

/// A worker that others disturb.
pub struct Disturbed {
    inner: Box<dyn Worker>,
}

impl Worker for Disturbed {
    delegate! {
        fn begin(&mut self, mode: Mode, priority: Priority);
        fn abort(&mut self);
        fn repair(&mut self) -> Option<&mut dyn Repair>;
    }

    fn read(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        others();
        self.inner.read(table, key, columns)
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, OpError> {
        others();
        self.inner.insert(table, key, staged, exists)
    }

    fn update(&mut self, table: &Table, key: Key<'_>, columns: ColumnUse) -> Result<Option<Updating>, OpError> {
        others();
        self.inner.update(table, key, columns)
    }

    fn add(&mut self, table: &Table, key: Key<'_>, addition: Addition) -> Result<Added, OpError> {
        others();
        self.inner.add(table, key, addition)
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        others();
        self.inner.delete(table, key)
    }

    fn scan_next(&mut self, table: &Table, scan: &mut Scan, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        others();
        self.inner.scan_next(table, scan, columns)
    }

    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        others();
        if let Some(meanwhile) = MEANWHILE.with_borrow_mut(VecDeque::pop_front) {
            // Commits of the other work are not disturbed.
            let rest = MEANWHILE.take();
            meanwhile();
            MEANWHILE.set(rest);
        }
        let outcome = self.inner.commit(redo);
        if let Ok(Outcome::Repair(_)) = outcome {
            REPAIRS.set(REPAIRS.get() + 1);
        }
        outcome
    }
}
