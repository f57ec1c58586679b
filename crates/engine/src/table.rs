//! Tables and their indexes, as handles refer to them.

use seriatim_base::{LayoutId, TableId};
use seriatim_catalog::wire::RowWire;
use seriatim_catalog::{ColumnSet, ColumnUse, IndexDef, Layout, Organization, TableDef};
use seriatim_txn::{Core, Wire};

use crate::cluster::Cluster;
use crate::engine::Foundation;
use crate::error::SchemaError;
use crate::index;

/// A table with its secondary indexes. The fields that each operation reads come first, in one cache line.
#[repr(C, align(32))]
pub struct TableSet {
    /// The number of its database: handles of another database are refused.
    pub(crate) database: u64,
    /// How rows are stored in the records of `primary`.
    pub(crate) cluster: Cluster,
    /// The columns that its indexes have.
    indexed: ColumnSet,
    /// The declaration.
    pub definition: TableDef,
    /// Its rows; if the table is clustered, its runs.
    pub primary: seriatim_txn::Table,
    /// The places of the columns in its rows.
    pub layout: Layout,
    /// Its indexes, in order of declaration.
    pub indexes: Vec<Secondary>,
    /// Its place among the tables: see `TableEntry::position` of the catalogue.
    pub(crate) position: u64,
    /// Most bytes of a long text, so that a row with its key fits a log entry.
    pub(crate) text_bytes_max: usize,
    /// Keeps the memory of records and nodes alive.
    _memory: seriatim_memory::Memory,
}

/// A secondary index.
pub struct Secondary {
    /// Its entries.
    pub table: seriatim_txn::Table,
    /// The indexed columns.
    pub(crate) columns: ColumnSet,
    /// The declared organization; the entries may be stored in another.
    pub organization: Organization,
    unique: bool,
    shares_keys: bool,
}

impl Secondary {
    /// Whether the index is unique. Rows may still share a key with a NULL.
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

/// As [`TableSet::dispose`].
///
/// # Safety
/// The conditions of [`TableSet::dispose`].
unsafe fn dispose(primary: seriatim_txn::Table, indexes: Vec<Secondary>, core: &mut Core) {
    for table in std::iter::once(primary).chain(indexes.into_iter().map(|index| index.table)) {
        let before = core.local.live_bytes();
        // SAFETY: the caller's promise.
        unsafe { table.index.dispose(&mut core.local) };
        core.counts.add(table.id, 0, core.local.live_bytes() - before);
    }
}

impl TableSet {
    /// An empty table whose id is `first`, and whose indexes' ids follow.
    pub(crate) fn new(
        foundation: &Foundation,
        definition: TableDef,
        first: TableId,
        position: u64,
        core: &mut Core,
    ) -> Result<TableSet, SchemaError> {
        let Foundation { protocol, environment, number, .. } = foundation;
        let (header, version_header) = (protocol.header_bytes(), protocol.version_header_bytes());
        let make = |id: TableId, index: Option<(&IndexDef, Layout)>, core: &mut Core| {
            core.local.enter();
            let before = core.local.live_bytes();
            let table = seriatim_txn::Table::new(id, &definition, index, header, version_header, core);
            core.counts.add(id, 0, core.local.live_bytes() - before);
            core.local.leave();
            table.map_err(|_| SchemaError::OutOfMemory { held: None })
        };
        let mut primary = make(first, None, core)?;
        // The columns have only one version so far, so the table's id serves as the layout's.
        let wire = Wire { layout: LayoutId(first.0), rows: RowWire::new(&definition, &primary.layout) };
        primary.wire = Some(Box::new(wire));
        let mut indexes: Vec<Secondary> = Vec::new();
        for (at, index) in definition.indexes.iter().enumerate() {
            let id = TableId(first.0 + 1 + at as u32);
            let table = match make(id, Some((index, index::entry_layout(primary.class))), core) {
                Ok(table) => table,
                Err(error) => {
                    // SAFETY: no other thread has seen the table.
                    unsafe { dispose(primary, indexes, core) };
                    return Err(error);
                }
            };
            let columns = index.parts.iter().map(|part| part.column).collect();
            let shares_keys = definition.has_shared_keys(index);
            let (organization, unique) = (index.organization, index.unique);
            indexes.push(Secondary { table, columns, organization, unique, shares_keys });
        }
        let _memory = environment.memory.clone();
        let text_bytes_max = text_bytes_max(&definition);
        let layout = Layout::of(&definition);
        let cluster = Cluster::new(&definition, &primary.codec, primary.class, layout.row_bytes);
        let indexed = indexes.iter().fold(ColumnSet::EMPTY, |all, index| all.union(index.columns));
        Ok(TableSet {
            database: *number,
            cluster,
            indexed,
            definition,
            primary,
            layout,
            indexes,
            position,
            text_bytes_max,
            _memory,
        })
    }

    /// Gives the memory of an empty table back.
    ///
    /// # Safety
    /// No other thread has seen the table.
    pub(crate) unsafe fn dispose(self, core: &mut Core) {
        // SAFETY: the caller's promise.
        unsafe { dispose(self.primary, self.indexes, core) };
    }

    /// Whether each row is a record, and an update with this use of columns changes no index.
    #[inline(always)]
    pub(crate) fn is_plain_for(&self, columns: ColumnUse) -> bool {
        !self.cluster.is_on() && !self.indexed.intersects(columns.changed())
    }

    /// Whether a write can fail after the row was written.
    #[inline]
    pub(crate) fn has_unique_index(&self) -> bool {
        self.indexes.iter().any(|index| index.unique)
    }

    /// The columns that an update of these columns reads or changes, with those of the indexes that it must
    /// maintain.
    pub(crate) fn with_indexed(&self, columns: ColumnUse) -> ColumnUse {
        let followed = self.indexes.iter().filter(|index| index.columns.intersects(columns.changed()));
        followed.fold(columns, |all, index| all.union(index.columns.into()))
    }

    /// The table and its indexes, in order of their ids.
    pub(crate) fn physical(&self) -> impl Iterator<Item = &seriatim_txn::Table> {
        std::iter::once(&self.primary).chain(self.indexes.iter().map(|index| &index.table))
    }
}
