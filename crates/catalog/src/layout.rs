//! Where each column lies in a row. One algorithm, `const`, for derived tables at compile time and declared
//! ones at run time.
//!
//! ```text
//! row version        [address of the fixed part: 8, only if a column is immutable] [NULL bits] [mutable columns]
//!                    padded to 8
//! fixed part         [NULL bits] [immutable columns]   padded to 8
//! out-of-line block  [length: 8] [bytes]
//!                    the text or bytes of one column; its 8 bytes in the row are the block's address
//! ```
//! Columns follow one another in order of declaration, unaligned, in the machine's byte order; see [`ColumnType`] for
//! the bytes of each. Bytes beyond a text's length, the value of a NULL and the padding are zero: a row is a function
//! of its values. The NULL bits of a part are one bit for each of its nullable columns, the first in the lowest bit of
//! the first byte. A set bit means NULL. The rows of a clustered table are flat: their immutable columns lie in the row
//! version too. A row version is replaced as a whole by an update; its fixed part stays and is shared by all row
//! versions of the row.
//!
//! An extension ([`TableDef::extension`]) follows the other mutable columns: `[NULL bits] [columns]`. It lies in the
//! row version, so the places of the other columns are the same as without it.

use crate::{Column, ColumnDef, ColumnType, Stored, TableDef};

/// The properties of a column on which its placement depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// The type of its values.
    pub ty: ColumnType,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// Whether it lies in the fixed part.
    pub immutable: bool,
}

impl ColumnSpec {
    /// The specification of a column of Rust type `C`. Checked when compiled: its type in the schema has the form of
    /// what it stores. Accessors rely on it.
    pub const fn of<C: Column>(immutable: bool) -> ColumnSpec {
        let (ty, stored) = (C::TYPE, <C::Stored as Stored>::TYPE);
        assert!(ty.form().is(stored.form()), "`Column::TYPE` is of another form than what `Column::Stored` stores");
        ColumnSpec { ty, nullable: <C::Stored as Stored>::NULLABLE, immutable }
    }
}

impl From<&ColumnDef> for ColumnSpec {
    fn from(column: &ColumnDef) -> ColumnSpec {
        ColumnSpec { ty: column.ty, nullable: column.nullable, immutable: column.immutable }
    }
}

/// Which block of memory a column lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowPart {
    /// The row version.
    Row,
    /// The fixed part, whose address is the row version's first word.
    Fixed,
}

/// Where a column lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ColumnLocation {
    /// The block of memory.
    pub part: RowPart,
    /// Bytes from the block's start to the value.
    pub offset: u32,
    /// Bytes of the value.
    pub bytes: u32,
    /// The byte (from the block's start) and the bit that say whether the value is NULL; `None` if it cannot be.
    pub null: Option<(u32, u8)>,
    /// The column's number.
    pub column: u16,
}

impl ColumnLocation {
    /// Whether the value is NULL.
    ///
    /// # Safety
    /// `block` is the block of memory of a row to which the place refers, readable and not being written.
    #[inline(always)]
    pub(crate) unsafe fn is_null(&self, block: *const u8) -> bool {
        match self.null {
            // SAFETY: the caller's promise; the NULL bits lie in the block.
            Some((byte, mask)) => unsafe { block.add(byte as usize).read() & mask != 0 },
            None => false,
        }
    }

    /// Notes whether the value is NULL; nothing if it cannot be.
    ///
    /// # Safety
    /// `block` is the block of memory of a row to which the place refers, private to the caller.
    #[inline(always)]
    pub(crate) unsafe fn set_null(&self, block: *mut u8, is_null: bool) {
        if let Some((byte, mask)) = self.null {
            // SAFETY: the caller's promise; the NULL bits lie in the block.
            unsafe {
                let byte = block.add(byte as usize);
                byte.write(if is_null { byte.read() | mask } else { byte.read() & !mask });
            }
        }
    }
}

/// Bytes of the length in front of a text or byte value with room for `max` bytes.
#[inline(always)]
pub(crate) const fn length_bytes(max: usize) -> usize {
    if max <= 255 { 1 } else { 2 }
}

/// The length in front of a text or byte value with room for `max` bytes.
///
/// # Safety
/// Such a value lies at `at`, readable and not being written.
#[inline(always)]
pub(crate) unsafe fn load_length(at: *const u8, max: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { if length_bytes(max) == 1 { at.read().into() } else { at.cast::<u16>().read_unaligned().into() } }
}

/// Writes what [`load_length`] reads.
///
/// # Safety
/// There is room for such a value at `at`, private to the caller.
#[inline(always)]
pub(crate) unsafe fn store_length(at: *mut u8, max: usize, len: u16) {
    // SAFETY: the caller's promise.
    unsafe { if length_bytes(max) == 1 { at.write(len as u8) } else { at.cast::<u16>().write_unaligned(len) } }
}

/// The sizes of a row's two blocks, in bytes, multiples of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSizes {
    /// Bytes of the row version.
    pub row: u32,
    /// Bytes of the fixed part; 0 if no column is immutable, and then there is none.
    pub fixed: u32,
}

/// The algorithm: a cursor that places one column after another.
struct Cursor {
    next: [u32; 2],
    next_null: [u32; 2],
    null_start: [u32; 2],
}

impl Cursor {
    const fn new(specs: &[ColumnSpec]) -> Cursor {
        let (mut nullable, mut has_fixed, mut at) = ([0u32; 2], false, 0);
        while at < specs.len() {
            nullable[specs[at].immutable as usize] += specs[at].nullable as u32;
            has_fixed |= specs[at].immutable;
            at += 1;
        }
        let null_start = [if has_fixed { 8 } else { 0 }, 0];
        let next = [null_start[0] + nullable[0].div_ceil(8), null_start[1] + nullable[1].div_ceil(8)];
        Cursor { next, next_null: [0, 0], null_start }
    }

    const fn place(&mut self, spec: ColumnSpec, column: usize) -> ColumnLocation {
        let part = spec.immutable as usize;
        let null = if spec.nullable {
            let bit = self.next_null[part];
            self.next_null[part] += 1;
            Some((self.null_start[part] + bit / 8, 1u8 << (bit % 8)))
        } else {
            None
        };
        let (offset, bytes) = (self.next[part], spec.ty.row_bytes());
        self.next[part] += bytes;
        let part = if spec.immutable { RowPart::Fixed } else { RowPart::Row };
        ColumnLocation { part, offset, bytes, null, column: column as u16 }
    }

    /// Begins the extension: columns with so many that are nullable.
    fn extend(&mut self, nullable: u32) {
        self.null_start[0] = self.next[0];
        self.next_null[0] = 0;
        self.next[0] += nullable.div_ceil(8);
    }

    const fn bytes(&self) -> RowSizes {
        RowSizes { row: self.next[0].next_multiple_of(8), fixed: self.next[1].next_multiple_of(8) }
    }
}

/// Places the columns of a derived table.
pub const fn place<const N: usize>(specs: &[ColumnSpec; N]) -> [ColumnLocation; N] {
    let mut places = [ColumnLocation { part: RowPart::Row, offset: 0, bytes: 0, null: None, column: 0 }; N];
    let (mut cursor, mut at) = (Cursor::new(specs), 0);
    while at < N {
        places[at] = cursor.place(specs[at], at);
        at += 1;
    }
    places
}

/// The sizes of a derived table's rows.
pub const fn row_sizes(specs: &[ColumnSpec]) -> RowSizes {
    let (mut cursor, mut at) = (Cursor::new(specs), 0);
    while at < specs.len() {
        cursor.place(specs[at], at);
        at += 1;
    }
    cursor.bytes()
}

/// Where the columns of a table lie, at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a row version.
    pub row_bytes: u32,
    /// Bytes of a fixed part; 0 if there is none.
    pub fixed_bytes: u32,
    /// The columns, in order of declaration.
    pub places: Vec<ColumnLocation>,
    /// Offsets of the out-of-line addresses in a row version.
    pub row_out_of_line: Vec<u32>,
    /// Offsets of the out-of-line addresses in a fixed part.
    pub fixed_out_of_line: Vec<u32>,
}

impl Layout {
    /// The layout of the rows of a table as readers see them.
    pub fn of(table: &TableDef) -> Layout {
        let (is_flat, first) = (table.is_clustered(), table.columns.len().saturating_sub(table.extension));
        let spec = |(at, column): (usize, &ColumnDef)| ColumnSpec {
            immutable: column.immutable && !is_flat && at < first,
            ..ColumnSpec::from(column)
        };
        Layout::place(&table.columns.iter().enumerate().map(spec).collect::<Vec<_>>(), first)
    }

    /// The layout of the records of a table: those of a clustered one hold runs.
    pub fn stored(table: &TableDef) -> Layout {
        if table.is_clustered() { Layout::of_runs() } else { Layout::of(table) }
    }

    /// Places `columns`, as [`place`] does.
    pub fn new(columns: &[ColumnDef]) -> Layout {
        Layout::place(&columns.iter().map(ColumnSpec::from).collect::<Vec<_>>(), columns.len())
    }

    /// Places columns, of which those from the position `first` on are an extension.
    fn place(specs: &[ColumnSpec], first: usize) -> Layout {
        let (declared, extension) = specs.split_at(first);
        let mut cursor = Cursor::new(declared);
        let mut places: Vec<ColumnLocation> = Vec::with_capacity(specs.len());
        places.extend(declared.iter().enumerate().map(|(at, &spec)| cursor.place(spec, at)));
        cursor.extend(extension.iter().map(|spec| u32::from(spec.nullable)).sum());
        places.extend((first..).zip(extension).map(|(at, &spec)| cursor.place(spec, at)));
        let out_of_line_values = |part: RowPart| {
            let long =
                |place: &&ColumnLocation| place.part == part && specs[usize::from(place.column)].ty.is_out_of_line();
            places.iter().filter(long).map(|place| place.offset).collect()
        };
        let (row_out_of_line, fixed_out_of_line) =
            (out_of_line_values(RowPart::Row), out_of_line_values(RowPart::Fixed));
        let bytes = cursor.bytes();
        Layout { row_bytes: bytes.row, fixed_bytes: bytes.fixed, places, row_out_of_line, fixed_out_of_line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immutable_columns_lie_apart_and_nulls_come_first() {
        let columns = [
            ColumnDef::new("a", ColumnType::U16),
            ColumnDef::new("b", ColumnType::Text { max: 10 }).immutable().nullable(),
            ColumnDef::new("c", ColumnType::LongText).nullable(),
            ColumnDef::new("d", ColumnType::Text { max: 300 }),
            ColumnDef::new("e", ColumnType::LongText).immutable(),
        ];
        let layout = Layout::new(&columns);
        let places: Vec<_> = layout.places.iter().map(|p| (p.part, p.offset, p.bytes, p.null)).collect();
        assert_eq!(
            places,
            [
                (RowPart::Row, 9, 2, None),
                (RowPart::Fixed, 1, 11, Some((0, 1))),
                (RowPart::Row, 11, 8, Some((8, 1))),
                (RowPart::Row, 19, 302, None),
                (RowPart::Fixed, 12, 8, None)
            ]
        );
        assert_eq!((layout.row_bytes, layout.fixed_bytes), (328, 24));
        assert_eq!((&*layout.row_out_of_line, &*layout.fixed_out_of_line), (&[11][..], &[12][..]));
    }

    #[test]
    fn a_row_without_immutable_columns_has_no_fixed_part() {
        let layout = Layout::new(&[ColumnDef::new("a", ColumnType::U64)]);
        assert_eq!((layout.row_bytes, layout.fixed_bytes, layout.places[0].offset), (8, 0, 0));
    }
}
