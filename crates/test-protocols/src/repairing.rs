//! Protocols made of the default one. Their workers record which columns they are asked for, and ask for repairs as a
//! script says. Others state requirements or capabilities that the default does not have.
//!
//! The repairing protocol can drop only the newest operations: it drops an operation by a rollback to the
//! savepoint taken when the operation was named. What dropped operations read stays in the read set. So if a
//! test changes what was read, the protocol drops everything. All operations that write must then be repeated,
//! and the reads of the others must be unchanged.

use std::cell::RefCell;
use std::collections::VecDeque;

use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_memory::Memory;
use seriatim_procedure::plan::Kind;
use seriatim_protocol::dbx::Dbx;
use seriatim_txn::{
    Added, Addition, Core, Inserted, Mode, OnExists, OpError, Outcome, Priority, Protocol, ProtocolInfo, Redo, Repair,
    RowPtr, Runs, Savepoint, Scan, Staged, Table, Updating, Worker,
};

use crate::altered::{Alteration, Altered};
use crate::delegate::delegate;

/// The protocol that repairs.
pub const NAME: &str = Asking::INFO.name;
/// The default protocol under another name.
pub const PLAIN: &str = Unchanged::INFO.name;
/// The protocol that claims to keep all columns apart. The default does, and lets fewer transactions pass.
pub const GROUPED: &str = KeepingColumnsApart::INFO.name;
/// The protocol that needs a plan.
pub const PLANNED: &str = NeedingPlans::INFO.name;

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

macro_rules! alterations {
    ($($(#[$doc:meta])* $protocol:ident = $alteration:ident: $name:literal, |$info:ident| $change:expr;)*) => {$(
        $(#[$doc])*
        pub type $protocol = Altered<$alteration>;

        /// What differs from the default protocol.
        #[derive(Debug)]
        pub struct $alteration;

        impl Alteration for $alteration {
            type Base = Dbx;
            type Worker = Repairer;
            // Without options procedures keep repair data from the first call on, and repair at any cost.
            const INFO: ProtocolInfo = {
                let mut $info = ProtocolInfo { name: $name, ..Dbx::INFO };
                $info.options = &[];
                $info.capabilities.priorities = true;
                $change;
                $info
            };

            fn worker(base: &Dbx, core: Core, _: &Memory) -> Repairer {
                Repairer::new(Box::new(base.worker(core)), Self::INFO.capabilities.repair)
            }
        }
    )*};
}
alterations! {
    /// It asks for repairs.
    Repairing = Asking: "repairing", |info| info.capabilities.repair = true;
    /// It records which columns it is asked for, as all of these do.
    Plain = Unchanged: "plain", |info| {};
    /// It claims to keep all columns apart.
    Grouped = KeepingColumnsApart: "grouped", |info| info.capabilities.column_groups = true;
    /// It needs a plan.
    Planned = NeedingPlans: "planned", |info| (info.requirements.plan, info.capabilities.ad_hoc) = (true, false);
}

/// The worker of these protocols.
pub struct Repairer {
    inner: Box<dyn Worker>,
    /// Whether the worker repairs.
    repairs: bool,
    /// Operations in the order in which they were named, and the savepoint before each.
    savepoints: Vec<(u16, Savepoint)>,
    begun: Option<(Mode, Priority)>,
}

impl Repairer {
    fn new(inner: Box<dyn Worker>, repairs: bool) -> Repairer {
        Repairer { inner, repairs, savepoints: Vec::new(), begun: None }
    }
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
