//! Rows of one layout as rows of another: values are copied, and columns that are new have one value in all rows.
//!
//! A table whose columns change keeps its rows in the layout in which they were written. Readers convert a row into a
//! buffer; the write that comes next, or a pass in the background, converts it for good. What a row does not have was
//! said once, when its table changed: later defaults do not concern it.

use crate::evolution::Source;
use crate::{
    ColumnDef, ColumnLocation, Layout, OutOfLineStore, OutOfMemory, RowPart, RowRef, RowWriter, TableDef, out_of_line,
};

/// How rows of a table become those of the table that replaces it.
#[derive(Debug)]
pub struct Conversion {
    /// A row with the values of new columns. A vector, which may move while it is pointed into.
    image: Vec<u64>,
    /// The out-of-line values of the image.
    _blocks: Vec<Vec<u64>>,
    /// The places of the columns in the row version that are copied.
    copied: Vec<(ColumnLocation, ColumnLocation)>,
    has_fixed: bool,
}

/// Keeps the out-of-line values of an image.
#[derive(Default)]
struct Blocks(Vec<Vec<u64>>);

impl OutOfLineStore for Blocks {
    fn store(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut block = vec![0u64; 1 + bytes.len().div_ceil(8)];
        block[0] = bytes.len() as u64;
        for (word, bytes) in block[1..].iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        let address = block.as_mut_ptr().expose_provenance() as u64;
        self.0.push(block);
        Ok(address)
    }
}

/// Where a column of the table before is afterwards; `None` if it is left out.
pub(crate) fn column_after(sources: &[Source], before: usize) -> Option<usize> {
    sources.iter().position(|source| matches!(source, Source::Of(column) if column.index() == before))
}

/// Whether the stored bytes of a column are those of the other, whether or not that may be NULL.
fn is_copied(was: &ColumnDef, is: &ColumnDef) -> bool {
    (was.ty == is.ty || was.ty.is_part_of(is.ty)) && (is.nullable || !was.nullable)
}

/// Whether rows need no more than to be copied column by column: nothing of the key or of the fixed part changes.
pub(crate) fn copies(before: &TableDef, after: &TableDef, sources: &[Source]) -> bool {
    if before.is_clustered() || after.is_clustered() || sources.len() != after.columns.len() {
        return false;
    }
    let (from, to) = (Layout::of(before), Layout::of(after));
    let is_kept = |(at, source): (usize, &Source)| {
        let (column, place) = (&after.columns[at], &to.places[at]);
        match source {
            Source::Number => false,
            Source::Value(_) => place.part == RowPart::Row,
            Source::Of(was) => {
                let Some(was_place) = from.places.get(was.index()) else { return false };
                let is_same_place = ColumnLocation { column: was_place.column, ..*place } == *was_place;
                is_copied(&before.columns[was.index()], column)
                    && was_place.part == place.part
                    && (place.part == RowPart::Row || is_same_place)
            }
        }
    };
    let fixed = |layout: &Layout| layout.places.iter().filter(|place| place.part == RowPart::Fixed).count();
    let key = |table: &TableDef, column: &dyn Fn(usize) -> Option<usize>| -> Vec<_> {
        table.key.iter().map(|part| (column(part.column.index()), part.descending)).collect()
    };
    let is_key_kept = |at: &crate::KeyPart| match &sources[at.column.index()] {
        Source::Of(was) => {
            let (was, is) = (&before.columns[was.index()], &after.columns[at.column.index()]);
            (was.ty, was.nullable) == (is.ty, is.nullable)
        }
        Source::Value(_) | Source::Number => false,
    };
    sources.iter().enumerate().all(is_kept)
        && (fixed(&from), from.fixed_bytes) == (fixed(&to), to.fixed_bytes)
        && key(before, &|column| column_after(sources, column)) == key(after, &Some)
        && after.key.iter().all(is_key_kept)
        && before.organization == after.organization
        && before.partitioning == after.partitioning
}

impl Conversion {
    /// The conversion of rows of one table into rows of another; `None` if it takes more than copies of columns.
    pub fn new(before: &TableDef, after: &TableDef, sources: &[Source]) -> Option<Conversion> {
        if !copies(before, after, sources) {
            return None;
        }
        let (from, to) = (Layout::of(before), Layout::of(after));
        let (mut image, mut blocks) = (vec![0u64; to.row_bytes as usize / 8], Blocks::default());
        // SAFETY: a zeroed image of this layout, which is ours. No column in the fixed part is written.
        let mut writer = unsafe { RowWriter::for_insert(image.as_mut_ptr().cast(), std::ptr::null_mut(), &mut blocks) };
        let mut copied = Vec::new();
        for (at, source) in sources.iter().enumerate() {
            let place = to.places[at];
            match source {
                Source::Of(was) if place.part == RowPart::Row => copied.push((from.places[was.index()], place)),
                Source::Of(_) => {}
                Source::Number => return None,
                Source::Value(value) => value.write(&after.columns[at], &place, &mut writer).ok()?,
            }
        }
        let has_fixed = to.fixed_bytes > 0;
        Some(Conversion { image, _blocks: blocks.0, copied, has_fixed })
    }

    /// Words of a converted row version.
    pub fn words(&self) -> usize {
        self.image.len()
    }

    /// Writes the row version of a converted row. It has the fixed part and the out-of-line values of the row, and
    /// those of this conversion.
    ///
    /// # Panics
    /// If there is not exactly room for it.
    ///
    /// # Safety
    /// The row is one of the table before (rules 1 and 2 of [`RowRef`]).
    pub unsafe fn write(&self, row: RowRef<'_>, into: &mut [u64]) {
        into.copy_from_slice(&self.image);
        let (from, to) = (row.as_ptr(), into.as_mut_ptr().cast::<u8>());
        // SAFETY: the caller's promise, and both layouts: a place lies in its row version, and the bytes of both are
        // as many.
        unsafe {
            if self.has_fixed {
                to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
            }
            for (was, is) in &self.copied {
                let bytes = is.bytes as usize;
                to.add(is.offset as usize).copy_from_nonoverlapping(from.add(was.offset as usize), bytes);
                is.set_null(to, was.is_null(from));
            }
        }
    }
}

/// Copies a row with its fixed part and its out-of-line values.
///
/// # Errors
/// At the memory limit.
///
/// # Safety
/// The row has the layout (rules 1 and 2 of [`RowRef`]). There is room for its row version and for its fixed part, if
/// it has one; both are the caller's.
pub unsafe fn copy_row(
    from: RowRef<'_>,
    layout: &Layout,
    (row, fixed): (*mut u8, *mut u8),
    store: &mut dyn OutOfLineStore,
) -> Result<(), OutOfMemory> {
    let mut store_again = |block: *mut u8, offsets: &[u32]| {
        offsets.iter().try_for_each(|offset| {
            // SAFETY: the offsets of the layout lie in the block, and have out-of-line addresses.
            unsafe {
                let at = block.add(*offset as usize).cast::<u64>();
                at.write_unaligned(store.store(out_of_line(at.read_unaligned()))?);
            }
            Ok(())
        })
    };
    // SAFETY: the caller's promise.
    unsafe { row.copy_from_nonoverlapping(from.as_ptr(), layout.row_bytes as usize) };
    if layout.fixed_bytes > 0 {
        // SAFETY: the caller's promise. A row with a fixed part begins with its address.
        unsafe {
            fixed.copy_from_nonoverlapping(from.block(RowPart::Fixed), layout.fixed_bytes as usize);
            row.cast::<u64>().write_unaligned(fixed.expose_provenance() as u64);
        }
        store_again(fixed, &layout.fixed_out_of_line)?;
    }
    store_again(row, &layout.row_out_of_line)
}
