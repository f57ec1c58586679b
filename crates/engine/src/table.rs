//! Tables and their indexes, as handles refer to them.

use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use seriatim_base::{LayoutId, TableId};
use seriatim_catalog::wire::RowWire;
use seriatim_catalog::{Checks, ColumnSet, ColumnUse, IndexDef, KeyClass, Layout, Organization, TableDef};
use seriatim_txn::{Core, Reason, Table, Wire};

use crate::cluster::Cluster;
use crate::earlier::Earlier;
use crate::engine::Foundation;
use crate::error::SchemaError;
use crate::follower::{Build, Follower};
use crate::index;
use crate::link::Links;
use crate::sequences::Sequence;
use crate::settling::Settling;

/// A table with its secondary indexes. The fields that each operation reads come first, in one cache line.
///
/// Handles refer to it for as long as they exist. Its parts change while no transaction is open: see
/// [`TableSet::set_shape`].
#[repr(C, align(32))]
pub struct TableSet {
    /// The number of its database: handles of another database are refused.
    pub(crate) database: u64,
    /// The columns that its indexes and conditions have; all while something is built from its rows.
    indexed: AtomicU64,
    /// Its rows; if the table is clustered, its runs.
    pub primary: Current<Table>,
    /// Bits of [`flag`].
    flags: AtomicU32,
    /// The declaration.
    pub definition: Current<TableDef>,
    /// The places of the columns in its rows.
    pub layout: Current<Layout>,
    /// How rows are stored in the records of `primary`.
    pub(crate) cluster: Current<Cluster>,
    /// Its indexes, in order of declaration.
    pub indexes: Current<Vec<Arc<Secondary>>>,
    pub(crate) followers: Current<Vec<Arc<Follower>>>,
    pub(crate) links: Current<Links>,
    /// Its conditions.
    pub(crate) checks: Current<Checks>,
    /// Its rows that are not in `primary`.
    pub(crate) earlier: Current<Earlier>,
    /// Most bytes of a long text, so that a row with its key fits a log entry.
    text_bytes_max: AtomicUsize,
    /// Its place among the tables: see `TableEntry::position` of the catalogue.
    pub(crate) position: u64,
    /// The sequence of its identity column, if it has one.
    pub(crate) identity: OnceLock<Arc<Sequence>>,
    /// The role that creates it, until others know the table; none if it is the first superuser.
    pub(crate) creator: OnceLock<u32>,
    /// The owners of the parts. Workers may keep the address of a table, so earlier ones stay.
    shapes: Mutex<Vec<Shape>>,
    /// Who is not admitted yet; while [`flag::SETTLING`] is set.
    settling: Mutex<Option<Settling>>,
    /// Keeps the memory of records and nodes alive.
    _memory: seriatim_memory::Memory,
}

/// What operations look for in a table beside its rows.
mod flag {
    /// Rows lie in runs.
    pub(super) const CLUSTERED: u32 = 1;
    /// A write changes an index or something that is being built, or must meet a condition.
    pub(super) const INDEXED: u32 = 2;
    /// A write can fail because of what the row has: of a unique index, or a condition.
    pub(super) const REFUSING: u32 = 4;
    /// Something is being built from the rows.
    pub(super) const FOLLOWED: u32 = 8;
    /// No operation is admitted now: the table is being replaced.
    pub(super) const CHANGING: u32 = 16;
    /// No operation is admitted any more: the table was replaced or dropped.
    pub(super) const GONE: u32 = 32;
    /// Rows have columns that writers of rows may not know.
    pub(super) const EXTENDED: u32 = 64;
    /// The table has references, or others refer to it.
    pub(super) const LINKED: u32 = 128;
    /// Some transactions are not admitted: they began before the table got its parts.
    pub(super) const SETTLING: u32 = 256;
    /// A sequence gives the values of a column.
    pub(super) const NUMBERED: u32 = 512;
    /// Some rows have an earlier layout.
    pub(super) const EARLIER: u32 = 1024;
    /// Not every operation is admitted.
    pub(super) const CLOSED: u32 = CHANGING | GONE | SETTLING;
}

/// How the rows of a table are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Each is a record.
    Records,
    /// Those of a record are a run.
    Runs,
}

/// A part of a table that can be replaced by another.
pub struct Current<T>(AtomicPtr<T>);

impl<T> Current<T> {
    fn new(part: &Arc<T>) -> Current<T> {
        Current(AtomicPtr::new(Arc::as_ptr(part).cast_mut()))
    }

    fn set(&self, part: &Arc<T>) {
        self.0.store(Arc::as_ptr(part).cast_mut(), Ordering::Release);
    }
}

impl<T> Deref for Current<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: it points into one of the shapes of the table, which stay as long as the table.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }
}

/// The parts of a table.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) definition: Arc<TableDef>,
    pub(crate) primary: Arc<Table>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) indexes: Arc<Vec<Arc<Secondary>>>,
    /// What is built from its rows while transactions run, and follows each write.
    pub(crate) followers: Arc<Vec<Arc<Follower>>>,
    /// Its foreign keys.
    pub(crate) links: Arc<Links>,
    pub(crate) checks: Arc<Checks>,
    /// Its rows that are not in `primary`.
    pub(crate) earlier: Arc<Earlier>,
}

/// A secondary index.
pub struct Secondary {
    /// Its entries.
    pub table: Table,
    /// The indexed columns.
    pub(crate) columns: ColumnSet,
    /// The declared organization; the entries may be stored in another.
    pub organization: Organization,
    unique: bool,
    shares_keys: bool,
}

impl Secondary {
    /// An empty index of the table with this definition and class of keys; the worker of `core` is online.
    pub(crate) fn new(
        foundation: &Foundation,
        definition: &TableDef,
        at: usize,
        id: TableId,
        class: KeyClass,
        core: &mut Core,
    ) -> Result<Secondary, SchemaError> {
        let index = &definition.indexes[at];
        let table = make(foundation, id, definition, Some((index, index::entry_layout(class))), core)?;
        let columns = index.parts.iter().map(|part| part.column).collect();
        let shares_keys = definition.has_shared_keys(index);
        Ok(Secondary {
            table,
            columns,
            organization: index.organization,
            unique: index.is_always_unique(),
            shares_keys,
        })
    }

    /// Whether no two rows agree, not even within a transaction. Rows may still share a key with a NULL.
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Whether an entry's key is the indexed columns alone, so that each key has one entry.
    pub fn is_single(&self) -> bool {
        !self.shares_keys
    }
}

/// The most bytes of a long text.
const TEXT_BYTES_MAX: usize = if cfg!(test) { 1 << 16 } else { 1 << 30 };

/// Most bytes of each long text of a row of this table. All long texts together stay below 3 of the 4 GiB of an
/// entry. Those of the key count twice more, with every byte escaped.
fn text_bytes_max(definition: &TableDef) -> usize {
    let is_long = |column: usize| definition.columns[column].ty.is_out_of_line();
    let columns = (0..definition.columns.len()).filter(|&column| is_long(column)).count();
    let key = definition.key.iter().filter(|part| is_long(part.column.index())).count();
    TEXT_BYTES_MAX.min(3 * TEXT_BYTES_MAX / (columns + 2 * key).max(1))
}

/// Gives the memory of empty tables back.
///
/// # Safety
/// No other thread has seen them.
unsafe fn dispose(tables: impl IntoIterator<Item = Table>, core: &mut Core) {
    for table in tables {
        let before = core.local.live_bytes();
        // SAFETY: the caller's promise.
        unsafe { table.index.dispose(&mut core.local) };
        core.counts.add(table.id, 0, core.local.live_bytes() - before);
    }
}

/// An empty table or index.
fn make(
    Foundation { protocol, .. }: &Foundation,
    id: TableId,
    definition: &TableDef,
    index: Option<(&IndexDef, Layout)>,
    core: &mut Core,
) -> Result<Table, SchemaError> {
    let (header, version_header) = (protocol.header_bytes(), protocol.version_header_bytes());
    core.local.enter();
    let before = core.local.live_bytes();
    let table = Table::new(id, definition, index, header, version_header, core);
    core.counts.add(id, 0, core.local.live_bytes() - before);
    core.local.leave();
    table.map_err(|_| SchemaError::OutOfMemory { held: None })
}

impl Shape {
    /// An empty table with these ids, of itself and of its indexes.
    fn new(
        foundation: &Foundation,
        definition: TableDef,
        id: TableId,
        index_ids: &[TableId],
        core: &mut Core,
    ) -> Result<Shape, SchemaError> {
        let mut primary = make(foundation, id, &definition, None, core)?;
        // A change of the columns makes another table, so the table's id serves as the layout's.
        let wire = Wire { layout: LayoutId(id.0), rows: RowWire::new(&definition, &primary.layout) };
        primary.wire = Some(Box::new(wire));
        let mut indexes: Vec<Secondary> = Vec::new();
        for (at, &id) in index_ids.iter().enumerate() {
            match Secondary::new(foundation, &definition, at, id, primary.class, core) {
                Ok(index) => indexes.push(index),
                Err(error) => {
                    // SAFETY: no other thread has seen the table.
                    unsafe {
                        dispose(std::iter::once(primary).chain(indexes.into_iter().map(|index| index.table)), core)
                    };
                    return Err(error);
                }
            }
        }
        let layout = Layout::of(&definition);
        let cluster = Cluster::new(&definition, &primary.codec, primary.class, layout.row_bytes);
        let checks = Arc::new(Checks::of(&definition));
        Ok(Shape {
            definition: Arc::new(definition),
            primary: Arc::new(primary),
            layout: Arc::new(layout),
            cluster: Arc::new(cluster),
            indexes: Arc::new(indexes.into_iter().map(Arc::new).collect()),
            followers: Arc::default(),
            links: Arc::default(),
            checks,
            earlier: Arc::default(),
        })
    }

    /// The rows that are in `primary`, without all that a write of one changes beside it.
    pub(crate) fn of_rows_alone(&self) -> Shape {
        Shape {
            indexes: Arc::default(),
            followers: Arc::default(),
            links: Arc::default(),
            checks: Arc::default(),
            earlier: Arc::default(),
            ..self.clone()
        }
    }

    /// Whether the rows of a table with these parts are rows of this one, in an earlier layout.
    pub(crate) fn has_earlier(&self, before: &Shape) -> bool {
        self.earlier.layouts.last().is_some_and(|layout| std::ptr::eq(&*layout.set.primary, &*before.primary))
    }

    /// The columns of which a change concerns more than the row.
    fn indexed(&self) -> ColumnSet {
        match self.followers.is_empty() {
            true => {
                let constrained = self.links.columns().union(self.checks.columns());
                self.indexes.iter().fold(constrained, |all, index| all.union(index.columns))
            }
            false => ColumnSet::ALL,
        }
    }

    fn has_unique_index(&self) -> bool {
        self.indexes.iter().any(|index| index.unique)
    }

    fn flags(&self) -> u32 {
        let (is_followed, is_linked) = (!self.followers.is_empty(), !self.links.is_empty());
        let bit = |is: bool, flag: u32| if is { flag } else { 0 };
        bit(self.cluster.is_on(), flag::CLUSTERED)
            | bit(is_followed || is_linked || !self.indexes.is_empty() || !self.checks.is_empty(), flag::INDEXED)
            | bit(is_linked || self.has_unique_index() || !self.checks.is_empty(), flag::REFUSING)
            | bit(is_followed, flag::FOLLOWED)
            | bit(self.definition.extension > 0, flag::EXTENDED)
            | bit(is_linked, flag::LINKED)
            | bit(!self.earlier.is_empty(), flag::EARLIER)
            | bit(self.definition.identity_column().is_some(), flag::NUMBERED)
    }
}

impl TableSet {
    /// An empty table with these ids, of itself and of its indexes.
    pub(crate) fn new(
        foundation: &Foundation,
        definition: TableDef,
        id: TableId,
        index_ids: &[TableId],
        position: u64,
        core: &mut Core,
    ) -> Result<TableSet, SchemaError> {
        let shape = Shape::new(foundation, definition, id, index_ids, core)?;
        Ok(TableSet::of(foundation, shape, position))
    }

    /// A table of these parts.
    pub(crate) fn of(foundation: &Foundation, shape: Shape, position: u64) -> TableSet {
        TableSet {
            database: foundation.number,
            indexed: AtomicU64::new(shape.indexed().bits()),
            primary: Current::new(&shape.primary),
            flags: AtomicU32::new(shape.flags()),
            definition: Current::new(&shape.definition),
            layout: Current::new(&shape.layout),
            cluster: Current::new(&shape.cluster),
            indexes: Current::new(&shape.indexes),
            followers: Current::new(&shape.followers),
            links: Current::new(&shape.links),
            checks: Current::new(&shape.checks),
            earlier: Current::new(&shape.earlier),
            text_bytes_max: AtomicUsize::new(text_bytes_max(&shape.definition)),
            position,
            identity: OnceLock::new(),
            creator: OnceLock::new(),
            shapes: Mutex::new(vec![shape]),
            settling: Mutex::default(),
            _memory: foundation.environment.memory.clone(),
        }
    }

    /// Another table of the same rows, for work that a change of the table does not concern.
    pub(crate) fn apart(&self, foundation: &Foundation) -> Box<TableSet> {
        let shape = Shape { followers: Arc::default(), links: Arc::default(), ..self.shape() };
        Box::new(TableSet::of(foundation, shape, self.position))
    }

    /// Its parts.
    pub(crate) fn shape(&self) -> Shape {
        let shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        shapes.last().expect("there is one from the beginning").clone()
    }

    /// The index at this position, also if it was dropped.
    ///
    /// # Panics
    /// If there never was one.
    pub fn index_at(&self, at: usize) -> Arc<Secondary> {
        let shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        let index = shapes.iter().rev().find_map(|shape| shape.indexes.get(at));
        Arc::clone(index.expect("the table was opened with this index"))
    }

    /// Whether handles of its indexes may expect others than those of this declaration where it has some.
    pub(crate) fn had_other_indexes(&self, after: &TableDef) -> bool {
        let shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pairs = shapes.iter().flat_map(|shape| {
            let indexes = shape.definition.indexes.iter().zip(&after.indexes);
            indexes.map(move |(was, is)| {
                !shape.definition.is_same_index(was, after, &IndexDef { name: was.name.clone(), ..is.clone() })
            })
        });
        pairs.any(|is_other| is_other)
    }

    /// Replaces its parts. No transaction is open that was admitted to it. Other threads may see some parts before and
    /// some after the change, and read none of the rows, until they find it open.
    pub(crate) fn set_shape(&self, shape: Shape) {
        self.replace(shape, flag::SETTLING);
    }

    /// Replaces its links. No transaction is admitted, or only the one that does this.
    pub(crate) fn set_links(&self, links: Arc<Links>) {
        let shape = self.shape();
        let is_same = Arc::ptr_eq(&shape.links, &links) || shape.links.is_empty() && links.is_empty();
        if !is_same {
            self.replace(Shape { links, ..shape }, flag::CLOSED);
        }
    }

    /// Replaces its parts, and leaves these flags as they are.
    fn replace(&self, shape: Shape, kept: u32) {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        self.primary.set(&shape.primary);
        self.definition.set(&shape.definition);
        self.layout.set(&shape.layout);
        self.cluster.set(&shape.cluster);
        self.indexes.set(&shape.indexes);
        self.followers.set(&shape.followers);
        self.links.set(&shape.links);
        self.checks.set(&shape.checks);
        self.earlier.set(&shape.earlier);
        self.text_bytes_max.store(text_bytes_max(&shape.definition), Ordering::Relaxed);
        self.indexed.store(shape.indexed().bits(), Ordering::Relaxed);
        let flags = |flags: u32| Some(flags & kept | shape.flags());
        // It never fails.
        let _ = self.flags.fetch_update(Ordering::Release, Ordering::Relaxed, flags);
        shapes.push(shape);
    }

    /// Notes the role that creates it.
    pub(crate) fn note_creator(&self, role: u32) {
        let _ = self.creator.set(role);
    }

    /// Refuses operations until the next [`TableSet::set_shape`], or [`TableSet::reopen`]. A transaction that is open
    /// may still be in one.
    pub(crate) fn close(&self) {
        self.flags.fetch_or(flag::CHANGING, Ordering::Release);
    }

    /// Admits operations again, to the parts that it had when it was closed.
    pub(crate) fn reopen(&self) {
        self.flags.fetch_and(!flag::CHANGING, Ordering::Release);
    }

    /// Whether it is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.has(flag::CHANGING)
    }

    /// Admits only some transactions from now on, once it is open.
    pub(crate) fn begin_settling(&self, settling: Settling) {
        *self.settling.lock().unwrap_or_else(PoisonError::into_inner) = Some(settling);
        self.flags.fetch_or(flag::SETTLING, Ordering::Release);
    }

    /// Who is not admitted yet. The lock is held meanwhile.
    pub(crate) fn settling(&self) -> MutexGuard<'_, Option<Settling>> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every transaction is admitted from now on.
    pub(crate) fn end_settling(&self, mut settling: MutexGuard<'_, Option<Settling>>) {
        *settling = None;
        self.flags.fetch_and(!flag::SETTLING, Ordering::Release);
    }

    /// Refuses operations for ever.
    pub(crate) fn end(&self) {
        self.flags.fetch_or(flag::GONE, Ordering::Release);
    }

    /// Gives the memory of an empty table back.
    ///
    /// # Safety
    /// No other thread has seen the table.
    pub(crate) unsafe fn dispose(self, core: &mut Core) {
        let shapes = self.shapes.into_inner().unwrap_or_else(PoisonError::into_inner);
        for Shape { primary, indexes, .. } in shapes {
            let indexes = Arc::into_inner(indexes).unwrap_or_default().into_iter().filter_map(Arc::into_inner);
            let tables = Arc::into_inner(primary).into_iter().chain(indexes.map(|index| index.table));
            // SAFETY: the caller's promise.
            unsafe { dispose(tables, core) };
        }
    }

    #[inline(always)]
    fn has(&self, flags: u32) -> bool {
        // ORDERING: who finds the table open again also finds its new parts.
        self.flags.load(Ordering::Acquire) & flags != 0
    }

    /// Whether each row is a record of `primary`, and operations are admitted.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        !self.has(flag::CLUSTERED | flag::CLOSED | flag::EARLIER)
    }

    /// Whether rows lie in runs, or some have an earlier layout.
    #[inline(always)]
    pub(crate) fn is_divided(&self) -> bool {
        self.has(flag::CLUSTERED | flag::EARLIER)
    }

    /// Whether some rows have an earlier layout.
    #[inline(always)]
    pub(crate) fn has_earlier(&self) -> bool {
        self.has(flag::EARLIER)
    }

    /// How rows are stored, if the writer of a row writes all of it, and operations are admitted.
    #[inline(always)]
    pub(crate) fn rows_as_written(&self) -> Option<Rows> {
        match self.flags.load(Ordering::Acquire) & (flag::CLUSTERED | flag::CLOSED | flag::EXTENDED | flag::EARLIER) {
            0 => Some(Rows::Records),
            flag::CLUSTERED => Some(Rows::Runs),
            _ => None,
        }
    }

    /// Whether an update with this use of columns changes no index and meets all conditions as before, and
    /// [`TableSet::is_plain`].
    #[inline(always)]
    pub(crate) fn is_plain_for(&self, columns: ColumnUse) -> bool {
        // In this order: an operation that finds the table open again also finds its new indexes.
        self.is_plain() && !ColumnSet::from_bits(self.indexed.load(Ordering::Relaxed)).intersects(columns.changed())
    }

    /// Whether rows lie in runs.
    #[inline(always)]
    pub(crate) fn is_clustered(&self) -> bool {
        self.has(flag::CLUSTERED)
    }

    /// Whether rows lie in runs, and a write changes no index and need not meet a condition.
    #[inline(always)]
    pub(crate) fn has_runs_alone(&self) -> bool {
        self.flags.load(Ordering::Acquire) & (flag::CLUSTERED | flag::INDEXED) == flag::CLUSTERED
    }

    /// Why not every operation is admitted, if so.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<Reason> {
        match self.has(flag::CLOSED) {
            false => None,
            true if self.has(flag::GONE) => Some(Reason::TableGone),
            true => Some(Reason::TableChanging),
        }
    }

    /// Whether rows of values are written as they are given, and operations are admitted.
    #[inline(always)]
    pub(crate) fn takes_values(&self) -> bool {
        !self.has(flag::CLOSED | flag::NUMBERED)
    }

    /// Whether a write changes more than the row, or must meet a condition.
    #[inline(always)]
    pub(crate) fn is_indexed(&self) -> bool {
        self.has(flag::INDEXED)
    }

    /// Whether the table has references, or others refer to it.
    #[inline(always)]
    pub(crate) fn is_linked(&self) -> bool {
        self.has(flag::LINKED)
    }

    /// Whether a deletion must look at more than rows and indexes: at references, or at rows of earlier layouts. Or not
    /// every operation is admitted.
    #[inline(always)]
    pub(crate) fn is_linked_or_refused(&self) -> bool {
        self.has(flag::LINKED | flag::CLOSED | flag::EARLIER)
    }

    /// Whether a write changes more than the row and its indexes.
    #[inline(always)]
    pub(crate) fn is_followed_or_linked(&self) -> bool {
        self.has(flag::FOLLOWED | flag::LINKED)
    }

    /// Whether something is being built from the rows.
    #[inline(always)]
    pub(crate) fn is_followed(&self) -> bool {
        self.has(flag::FOLLOWED)
    }

    /// Whether a write can fail because of what the row has.
    #[inline(always)]
    pub(crate) fn is_refusing(&self) -> bool {
        self.has(flag::REFUSING)
    }

    /// Whether a write can fail after the row was written.
    #[inline]
    pub(crate) fn can_fail_late(&self) -> bool {
        self.is_refusing() && (self.is_linked() || self.indexes.iter().any(|index| index.is_unique()))
    }

    /// Most bytes of a long text, so that a row with its key fits a log entry.
    #[inline]
    pub(crate) fn text_bytes_max(&self) -> usize {
        self.text_bytes_max.load(Ordering::Relaxed)
    }

    /// The columns that an update of these columns reads or changes. Those of the indexes that it must maintain are
    /// among them, and those of the conditions that it must meet.
    pub(crate) fn with_indexed(&self, columns: ColumnUse) -> ColumnUse {
        if self.is_followed() {
            return ColumnUse::ALL;
        }
        let followed = self.indexes.iter().filter(|index| index.columns.intersects(columns.changed()));
        let linked = self.links.columns_with(columns.changed());
        // A condition uses what it has beside the changed columns, and the sum of an addition.
        let checked = self.checks.columns_beside(columns.changed());
        let constrained = columns.union(linked.into()).union(ColumnUse::reading(checked));
        followed.fold(constrained, |all, index| all.union(index.columns.into()))
    }

    /// Calls `see` with each table and index that it has, had, or is about to have.
    pub(crate) fn each_table(&self, mut see: impl FnMut(&Table)) {
        for shape in &*self.shapes.lock().unwrap_or_else(PoisonError::into_inner) {
            see(&shape.primary);
            shape.earlier.layouts.iter().for_each(|layout| see(&layout.set.primary));
            shape.indexes.iter().for_each(|index| see(&index.table));
            for follower in shape.followers.iter() {
                match &follower.build {
                    Build::Copy { set, .. } => set.physical().for_each(&mut see),
                    Build::Index(index, ..) => see(&index.table),
                    Build::Checks(..) => {}
                }
            }
        }
    }

    /// The tables with its rows, in the order in which rows move from one to the other.
    pub(crate) fn row_tables(&self) -> impl Iterator<Item = &Table> {
        self.earlier.layouts.iter().map(|layout| &*layout.set.primary).chain([&*self.primary])
    }

    /// Calls `see` with each table of rows that it has or had, and the declaration by which these were made.
    pub(crate) fn each_layout(&self, mut see: impl FnMut(TableId, &TableDef)) {
        for shape in &*self.shapes.lock().unwrap_or_else(PoisonError::into_inner) {
            shape.earlier.layouts.iter().for_each(|layout| see(layout.set.primary.id, &layout.set.definition));
            see(shape.primary.id, &shape.definition);
        }
    }

    /// The name of the table or index at this place of [`TableSet::physical`], as it is called now.
    pub(crate) fn name_of(&self, at: usize) -> String {
        let definition = &*self.definition;
        match at.checked_sub(1).and_then(|at| definition.indexes.get(at)) {
            Some(index) => format!("{}.{}", definition.name, index.name),
            None => definition.name.to_string(),
        }
    }

    /// The name of the table, and the key of this table or index as a constraint. `None` if it is none of it.
    pub(crate) fn constraint(&self, id: TableId) -> Option<(String, String)> {
        let at = self.physical().position(|table| table.id == id)?;
        let definition = &*self.definition;
        let name = match at.checked_sub(1) {
            Some(index) => definition.indexes.get(index)?.name.to_string(),
            None => definition.key_constraint_name().into_owned(),
        };
        Some((definition.name.to_string(), name))
    }

    /// The table and its indexes, in order of declaration.
    pub(crate) fn physical(&self) -> impl Iterator<Item = &Table> {
        std::iter::once(&*self.primary).chain(self.indexes.iter().map(|index| &index.table))
    }
}
