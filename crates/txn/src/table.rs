//! A table as protocols see it: an index from keys to records, and the layout of a record.
//!
//! ```text
//! record:  key words 8|16 | header | row | version header | [row | version header] | fixed part
//!          `- the store -'`------------------------- the protocol -------------------------'
//! ```
//! A record has room for one row version. It has room for two where a row is small and has a fixed part: its
//! mutable columns are few, and updated often. Other row versions are outside of the record and are reached
//! through the header (decision record 14). A secondary index is a table too, whose rows are the primary keys
//! (decision record 6).

use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{LayoutId, TableId, Tid};
use seriatim_catalog::wire::RowWire;
use seriatim_catalog::{
    ColumnId, ColumnLocation, ColumnSet, ColumnUse, IndexDef, KeyClass, KeyCodec, Layout, Organization, RowPart, Run,
    TableDef,
};
use seriatim_memory::{OutOfMemory, allocated_bytes};
use seriatim_store::{Index, RecordPtr, StoreCx, key_bytes};

use crate::{Core, Placement, RowPtr};

/// Bytes of a row that a commit may copy to a place in its record.
pub const ROW_IN_PLACE_MAX: usize = 64;

/// Offsets and sizes of a record's parts, in bytes. All multiples of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// From the record to the protocol's record header.
    pub header: usize,
    /// From the record to the inline row version.
    pub row_version: usize,
    /// From the record to the second place for a row version; zero where it has none.
    pub second: usize,
    /// Bytes of the header of a row version, which is behind its row.
    pub version_header: usize,
    /// Bytes of the row, without header.
    pub row: usize,
    /// From the record to the inline fixed part.
    pub fixed: usize,
    /// Bytes of the fixed part; zero where the table has no immutable column.
    pub fixed_bytes: usize,
    /// Bytes of the whole record.
    pub record: usize,
    /// Bytes that memory counts for a record.
    pub record_allocated: usize,
    /// Bytes that memory counts for a row version outside of its record.
    pub row_version_allocated: usize,
}

impl RecordLayout {
    /// The layout of a table's records under a protocol with that header and version header.
    fn new(class: KeyClass, layout: &Layout, header_bytes: usize, version_header: usize) -> RecordLayout {
        let (row, fixed_bytes) = (layout.row_bytes as usize, layout.fixed_bytes as usize);
        assert!(
            [header_bytes, version_header, row, fixed_bytes].iter().all(|bytes| bytes % 8 == 0),
            "record parts are whole words"
        );
        let header = key_bytes(class);
        let row_version = header + header_bytes;
        let has_second = fixed_bytes > 0 && row <= ROW_IN_PLACE_MAX;
        let second = if has_second { row_version + version_header + row } else { 0 };
        let fixed = second.max(row_version) + version_header + row;
        let record = fixed + fixed_bytes;
        let (record_allocated, row_version_allocated) =
            (allocated_bytes(record), allocated_bytes(version_header + row));
        RecordLayout {
            header,
            row_version,
            second,
            version_header,
            row,
            fixed,
            fixed_bytes,
            record,
            record_allocated,
            row_version_allocated,
        }
    }

    /// Bytes of a row version with its header.
    #[inline]
    pub const fn row_version_bytes(&self) -> usize {
        self.row + self.version_header
    }

    /// The protocol's header of a record, as words.
    ///
    /// # Safety
    /// `record` is a live record of a table of this layout; `word` lies within the header.
    #[inline]
    pub unsafe fn header_word<'t>(&self, record: RecordPtr, word: usize) -> &'t AtomicU64 {
        // SAFETY: the caller vouches for the record; the header is made of aligned words that are only
        // accessed atomically.
        unsafe { &*record.as_ptr().wrapping_add(self.header + 8 * word).cast::<AtomicU64>() }
    }
}

/// A table or secondary index of an open database. Never moves and lives as long as its workers.
pub struct Table {
    /// Its id; below 2^14.
    pub id: TableId,
    /// Its name, for messages.
    pub name: String,
    /// Ordered or hash.
    pub organization: Organization,
    /// How its keys are represented.
    pub class: KeyClass,
    /// Encodes its keys and describes them in messages.
    pub codec: KeyCodec,
    /// Where its columns are.
    pub layout: Layout,
    /// Whether its records hold runs of rows.
    pub has_runs: bool,
    is_compact: bool,
    /// Where a record's parts are.
    pub record_layout: RecordLayout,
    /// Keys to records.
    pub index: Index,
    /// The records that have been unlinked from it.
    pub unlinked: Unlinked,
    /// The columns that an update may change, where rows have a fixed part; empty for other tables. The fixed
    /// part distinguishes a row from another one that was inserted after its deletion.
    pub updatable: ColumnSet,
    /// The columns in the fixed part.
    pub fixed_columns: ColumnSet,
    /// How its rows are written to disk; `None` for a secondary index, which is not logged but rebuilt.
    pub wire: Option<Box<Wire>>,
    /// The columns about which the registered procedures agree.
    pub commuting: Commuting,
    /// Which partitions its keys belong to, where there are some.
    pub placement: Placement,
}

/// Properties of a table that follow from all registered procedures, for protocols that publish piece by piece. Empty
/// until the registry sets it; it changes while no window is open.
#[derive(Debug, Default)]
pub struct Commuting {
    sums: AtomicU64,
    steady: AtomicU64,
    deferrable: AtomicU64,
}

impl Commuting {
    /// No procedure inserts or deletes rows, uses `sums` other than by adding to them, or changes `steady`
    /// columns. Additions of procedures to `deferrable` columns may be published later, even if other
    /// procedures use these columns.
    pub fn set(&self, sums: ColumnSet, steady: ColumnSet, deferrable: ColumnSet) {
        // ORDERING: read in windows, set while none is open.
        self.sums.store(sums.bits(), Ordering::Relaxed);
        self.steady.store(steady.bits(), Ordering::Relaxed);
        self.deferrable.store(deferrable.bits(), Ordering::Relaxed);
    }

    /// The columns to which additions may be published later.
    #[inline]
    pub fn deferrable(&self) -> ColumnSet {
        ColumnSet::from_bits(self.deferrable.load(Ordering::Relaxed))
    }

    /// Whether an update with this use of columns may be published later.
    #[inline]
    pub fn defers(&self, columns: ColumnUse) -> bool {
        !columns.added.is_empty()
            && columns.added.is_subset(self.deferrable())
            && columns.used().bits() & !self.steady.load(Ordering::Relaxed) == 0
    }

    /// Whether an update with this use of columns conflicts with nothing that a procedure does.
    #[inline]
    pub fn allows(&self, columns: ColumnUse) -> bool {
        columns.added.bits() & !self.sums.load(Ordering::Relaxed) == 0
            && columns.used().bits() & !self.steady.load(Ordering::Relaxed) == 0
            && !columns.added.is_empty()
    }
}

/// How the rows of a table are written to disk.
#[derive(Debug)]
pub struct Wire {
    /// The version of its columns.
    pub layout: LayoutId,
    /// The encoding.
    pub rows: RowWire,
}

/// The newest TID of the records ever unlinked from a table. A key that is not found may have been deleted
/// with any TID up to this one. So a transaction that finds a key absent, or gives it its first record, is
/// ordered above this TID. TIDs of a key never go back although nothing is left of it.
///
/// A worker writes it before it unlinks a deleted record, if that is the newest so far; it is read after the
/// absence was seen. A worker unlinks its deleted records oldest first, so a commit that deleted moves it at
/// most once, however many rows.
#[derive(Debug, Default)]
pub struct Unlinked(AtomicU64);

impl Unlinked {
    /// Announces that a record with this TID is going to be unlinked.
    #[inline]
    pub fn announce(&self, tid: Tid) {
        if self.0.load(Ordering::Relaxed) < tid.bits() {
            // ORDERING: sequenced before the release that unlinks the record; a reader that acquires that sees this.
            self.0.fetch_max(tid.bits(), Ordering::Relaxed);
        }
    }

    /// No unlinked record that the caller could have found before has a newer TID.
    #[inline]
    pub fn newest(&self) -> Tid {
        Tid::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Table {
    /// An empty table without [`Table::wire`]: of rows as `definition` declares, or a secondary index of
    /// these, given with the layout of its entries. A protocol says how many bytes its headers have; the
    /// worker of `core` is online.
    ///
    /// # Errors
    /// When memory is refused.
    pub fn new(
        id: TableId,
        definition: &TableDef,
        index: Option<(&IndexDef, Layout)>,
        header_bytes: usize,
        version_header_bytes: usize,
        core: &mut Core,
    ) -> Result<Table, OutOfMemory> {
        let index_is_none = index.is_none();
        let (mut name, mut organization) = (definition.name.to_string(), definition.organization);
        let (codec, layout) = match index {
            None => (KeyCodec::for_table(definition), Layout::stored(definition)),
            Some((index, layout)) => {
                name = format!("{name}.{}", index.name);
                organization = definition.storage(index);
                (KeyCodec::for_index(index, definition), layout)
            }
        };
        let has_runs = index_is_none && definition.is_clustered();
        let (class, unlinked) = (codec.class(), Unlinked::default());
        let record_layout = RecordLayout::new(class, &layout, header_bytes, version_header_bytes);
        let Core { local, agent, outside, htm, .. } = core;
        let index = Index::new(organization, class, definition.capacity, htm, &mut StoreCx { local, agent, outside })?;
        let has_texts = !(layout.row_out_of_line.is_empty() && layout.fixed_out_of_line.is_empty());
        let is_compact = !has_runs && !has_texts && class != KeyClass::Bytes;
        let has_fixed = index_is_none && record_layout.fixed_bytes > 0;
        let is_fixed = |place: &&ColumnLocation| place.part == RowPart::Fixed;
        let fixed_columns = layout.places.iter().filter(is_fixed).map(|place| ColumnId(place.column)).collect();
        let updatable = if has_fixed { definition.updatable() } else { ColumnSet::EMPTY };
        Ok(Table {
            id,
            name,
            organization,
            class,
            layout,
            has_runs,
            is_compact,
            record_layout,
            index,
            unlinked,
            updatable,
            fixed_columns,
            wire: None,
            placement: Placement::of(definition, &codec, !index_is_none),
            commuting: Commuting::default(),
            codec,
        })
    }

    /// Whether a record that was inserted has one row, and owns no memory beside its own.
    #[inline]
    pub const fn is_compact(&self) -> bool {
        self.is_compact
    }

    /// Whether rows carry a pointer to a fixed part (their first word).
    #[inline]
    pub const fn has_fixed(&self) -> bool {
        self.record_layout.fixed_bytes > 0
    }

    /// The number of rows in a record's row version.
    ///
    /// # Safety
    /// It is a row of this table, readable and not being written.
    #[inline]
    pub unsafe fn rows_in(&self, row: RowPtr) -> usize {
        // SAFETY: the caller's promise.
        if self.has_runs { unsafe { Run::of(row.as_ptr()) }.len() } else { 1 }
    }

    /// Whether rows or fixed parts carry pointers to out-of-line values.
    #[inline]
    pub fn has_out_of_line(&self) -> bool {
        !(self.layout.row_out_of_line.is_empty() && self.layout.fixed_out_of_line.is_empty())
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}
