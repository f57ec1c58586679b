//! Protocols for tests, made of the default one. Their workers ask for repairs as a script says, or record
//! which columns they are asked for, or copy rows ([`copying`]). Others state requirements or capabilities that
//! the default does not have.
//!
//! The repairing protocol can drop only the newest operations: it drops an operation by a rollback to the
//! savepoint taken when the operation was named. What dropped operations read stays in the read set. So if a
//! test changes what was read, the protocol drops everything. All operations that write must then be repeated,
//! and the reads of the others must be unchanged.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_htm::Whole;
use seriatim_memory::{Memory, OutOfMemory, Pinned};
use seriatim_procedure::plan::{Kind, Plan};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Added, Addition, Change, Core, HotRecord, Inserted, Mode, Near, OnExists, OpError, Outcome, Partitions, Peeked,
    Priority, ProtocolInfo, Redo, Repair, Restored, RowBuffer, RowPtr, Runs, Savepoint, Scan, Staged, Table, Updating,
    Worker,
};

use super::delegate::delegate;
use super::disturbing::{self, Disturbed};
use super::{OpenProtocol, copying};
use crate::procedure::repair::{Again, Repairs};

/// The protocol that repairs.
pub const NAME: &str = "repairing";
/// The protocol that needs a plan.
pub(crate) const PLANNED: &str = "planned";
/// The default protocol under another name.
pub const PLAIN: &str = "plain";
/// The protocol that claims to keep all columns apart. The default does, and lets fewer transactions pass.
pub const GROUPED: &str = "grouped";
/// The protocol that needs regions.
pub(crate) const REGIONAL: &str = "regional";

/// The entry of the protocol with this name, if it is one of these.
pub(crate) fn info(name: &str, default: &ProtocolInfo) -> Option<ProtocolInfo> {
    let ProtocolInfo { mut requirements, mut capabilities, .. } = *default;
    let name = match name {
        NAME => {
            capabilities.repair = true;
            NAME
        }
        PLANNED => {
            (requirements.plan, capabilities.ad_hoc) = (true, false);
            PLANNED
        }
        PLAIN => PLAIN,
        disturbing::NAME => disturbing::NAME,
        copying::NAME => copying::NAME,
        GROUPED => {
            capabilities.column_groups = true;
            GROUPED
        }
        REGIONAL => {
            requirements.regions = true;
            REGIONAL
        }
        _ => return None,
    };
    // The options are those of the inner protocol. Without them procedures keep repair data from the first call
    // on, and repair at any cost.
    let options = if name == disturbing::NAME { default.options } else { &[] };
    Some(ProtocolInfo { name, requirements, capabilities, options, ..*default })
}

thread_local! {
    /// The results of the next commits of this thread: operations to repair.
    pub static SCRIPT: RefCell<VecDeque<Vec<u16>>> = const { RefCell::new(VecDeque::new()) };
    /// Work of others before the next repairs of this thread.
    pub static MEANWHILE: RefCell<VecDeque<Box<dyn FnOnce()>>> = const { RefCell::new(VecDeque::new()) };
    /// Operations forgotten on this thread, in order, and whether each was to be repeated.
    pub static FORGOTTEN: RefCell<Vec<(u16, bool)>> = const { RefCell::new(Vec::new()) };
    /// The runs of operations named on this thread, in order: operation and iteration.
    pub static NAMED: RefCell<Vec<(u16, u32)>> = const { RefCell::new(Vec::new()) };
    /// The priorities of the attempts that began on this thread, in order.
    pub static BEGUN: RefCell<Vec<Priority>> = const { RefCell::new(Vec::new()) };
}

/// An operation, and the columns that it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(unreachable_pub, reason = "`test_support` gives it out")]
pub struct Asked {
    /// The kind of operation; a scan is asked for each row.
    pub kind: Kind,
    /// The table, or, as `table.index`, the index.
    pub table: String,
    /// The columns.
    pub columns: ColumnUse,
}

thread_local! {
    /// The operations that workers of this thread were asked for, while they are recorded.
    static ASKED: RefCell<Option<Vec<Asked>>> = const { RefCell::new(None) };
}

/// The operations that `work` asks of this thread's workers, in order.
#[allow(unreachable_pub, reason = "`test_support` gives it out")]
pub fn asked(work: impl FnOnce()) -> Vec<Asked> {
    ASKED.set(Some(Vec::new()));
    work();
    ASKED.take().unwrap_or_default()
}

fn note(kind: Kind, table: &Table, columns: impl Into<ColumnUse>) {
    ASKED.with_borrow_mut(|asked| {
        if let Some(asked) = asked {
            asked.push(Asked { kind, table: table.name.clone(), columns: columns.into() });
        }
    });
}

/// The default protocol under another name.
pub(crate) struct Altered {
    pub(crate) inner: Box<dyn OpenProtocol>,
    pub(crate) info: &'static ProtocolInfo,
    pub(crate) memory: Memory,
}

impl Altered {
    fn copies(&self) -> bool {
        self.info.name == copying::NAME
    }

    fn disturbs(&self) -> bool {
        self.info.name == disturbing::NAME
    }
}

impl OpenProtocol for Altered {
    fn worker(&self, core: Core) -> Box<dyn Worker> {
        let inner = self.inner.worker(core);
        if self.copies() {
            return Box::new(copying::Copier::new(inner, &self.memory));
        }
        if self.disturbs() {
            return Box::new(Disturbed { inner });
        }
        Box::new(Repairer { inner, repairs: self.info.capabilities.repair, savepoints: Vec::new(), begun: None })
    }

    fn worker_type(&self) -> TypeId {
        match (self.copies(), self.disturbs()) {
            (true, _) => TypeId::of::<copying::Copier>(),
            (_, true) => TypeId::of::<Disturbed>(),
            _ => TypeId::of::<Repairer>(),
        }
    }

    fn info(&self) -> &'static ProtocolInfo {
        self.info
    }

    fn header_bytes(&self) -> usize {
        self.inner.header_bytes()
    }

    fn version_header_bytes(&self) -> usize {
        self.inner.version_header_bytes()
    }

    fn hot_records(&self) -> Option<Vec<HotRecord>> {
        self.inner.hot_records()
    }

    fn whole(&self) -> Option<Whole> {
        self.inner.whole()
    }

    fn partitions(&self) -> Option<(Arc<Partitions>, Duration)> {
        self.inner.partitions()
    }

    unsafe fn peek_committed(
        &self,
        table: &Table,
        record: RecordPtr,
        pin: Pinned<'_>,
        buffer: &mut RowBuffer,
    ) -> Peeked {
        // SAFETY: the caller's promise.
        let peeked = unsafe { self.inner.peek_committed(table, record, pin, buffer) };
        if self.copies() { copying::peeked(table, peeked, buffer) } else { peeked }
    }

    unsafe fn restore(
        &self,
        core: &mut Core,
        table: &Table,
        key: Key<'_>,
        near: Near<'_>,
        tid: Tid,
        change: Change<'_>,
    ) -> Result<Restored, OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.restore(core, table, key, near, tid, change) }
    }

    unsafe fn finish_restore(&self, core: &mut Core, table: &Table) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.finish_restore(core, table) }
    }
}

/// Operations that can be repeated together: stale ones, those that depend on them, and later ones that write,
/// which this protocol drops.
pub fn closed(plan: &Plan, repairs: &Repairs, stale: Vec<usize>) -> Vec<u16> {
    let mut again: Vec<u16> = stale.into_iter().map(|id| id as u16).collect();
    loop {
        let stale: Vec<Runs> = again.iter().map(|id| Runs::all(*id)).collect();
        let made = repairs.after(&stale, &|_, _| {});
        let more = || (0..made.len()).filter(|id| made[*id] != Again::Kept);
        let after = |id: &usize| {
            let loops = &plan.operations[*id].loops;
            let shares = |first: usize| plan.operations[first].loops.iter().any(|at| loops.contains(at));
            more().any(|first| first < *id || shares(first))
        };
        let dropped = (0..made.len()).filter(|id| plan.operations[*id].changes() && after(id));
        let all: BTreeSet<u16> = more().chain(dropped).map(|id| id as u16).collect();
        let all: Vec<u16> = all.into_iter().collect();
        if all == again {
            return again;
        }
        again = all;
    }
}

struct Repairer {
    inner: Box<dyn Worker>,
    /// Whether the worker repairs.
    repairs: bool,
    /// Operations in the order in which they were named, and the savepoint before each.
    savepoints: Vec<(u16, Savepoint)>,
    begun: Option<(Mode, Priority)>,
}

impl Repair for Repairer {
    fn operation(&mut self, index: u16, iteration: u32) {
        NAMED.with_borrow_mut(|named| named.push((index, iteration)));
        let savepoint = self.inner.savepoint();
        self.savepoints.push((index, savepoint));
    }

    fn forget(&mut self, runs: Runs, again: bool) {
        assert_eq!(runs.iteration, None, "all iterations were stale");
        FORGOTTEN.with_borrow_mut(|forgotten| forgotten.push((runs.operation, again)));
        if let Some(at) = self.savepoints.iter().position(|(operation, _)| *operation == runs.operation) {
            self.inner.rollback_to(self.savepoints[at].1);
            self.savepoints.truncate(at);
        }
    }
}

impl Worker for Repairer {
    delegate! {
        fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists)
            -> Result<Inserted, OpError>;
        fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError>;
        fn abort(&mut self);
    }

    fn begin(&mut self, mode: Mode, priority: Priority) {
        self.savepoints.clear();
        BEGUN.with_borrow_mut(|begun| begun.push(priority));
        self.begun = Some((mode, priority));
        self.inner.begin(mode, priority);
    }

    fn repair(&mut self) -> Option<&mut dyn Repair> {
        if self.repairs { Some(self) } else { None }
    }

    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        match SCRIPT.with_borrow_mut(VecDeque::pop_front).filter(|_| self.repairs) {
            Some(operations) => {
                let meanwhile = MEANWHILE.with_borrow_mut(VecDeque::pop_front);
                if let (Some(meanwhile), Some((mode, priority))) = (meanwhile, self.begun) {
                    self.inner.abort();
                    meanwhile();
                    self.begin(mode, priority);
                }
                Ok(Outcome::Repair(operations.into_iter().map(Runs::all).collect()))
            }
            None => self.inner.commit(redo),
        }
    }

    fn read(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        note(Kind::Get, table, columns);
        self.inner.read(table, key, columns)
    }

    fn update(&mut self, table: &Table, key: Key<'_>, columns: ColumnUse) -> Result<Option<Updating>, OpError> {
        note(Kind::Update, table, columns);
        self.inner.update(table, key, columns)
    }

    fn add(&mut self, table: &Table, key: Key<'_>, addition: Addition) -> Result<Added, OpError> {
        note(Kind::Update, table, addition.columns());
        self.inner.add(table, key, addition)
    }

    fn scan_next(&mut self, table: &Table, scan: &mut Scan, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        note(Kind::Scan, table, columns);
        self.inner.scan_next(table, scan, columns)
    }
}
