//! Writing a checkpoint. Each part is written by one thread.

use std::io::{Error, ErrorKind};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::disk::{Disk, DiskFile, Opening};
use seriatim_base::{Epoch, LayoutId, Tid};
use seriatim_catalog::wire::{RowWire, write_varint};
use seriatim_catalog::{Key, RowRef};
use zstd::bulk::Compressor;

use super::name::Name;
use super::{BLOCK_BYTES, BlockHeader, Footer, LEVEL, PART_HEADER_BYTES, PartHeader, part_name};
use crate::LogError;
use crate::manifest::{Checkpoint, DatabaseId};

const WHAT: &str = "writing a checkpoint";

/// A part is synced whenever it has grown by this much. A single sync at the end would delay the log's flushes.
const SYNC_BYTES: u64 = if cfg!(test) { 256 } else { 16 << 20 };

/// A checkpoint being written, in a directory that does not count yet.
#[derive(Debug)]
pub struct CheckpointWriter {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Its future name.
    name: Name,
    temporary: PathBuf,
    database: DatabaseId,
    begin: Epoch,
    pace: Arc<Pace>,
}

impl CheckpointWriter {
    /// Begins a checkpoint in `directory/checkpoint-<epoch>.new`, and deletes the remains of an earlier attempt. All
    /// parts together write at most `bytes_per_second` if their writers wait as long as [`PartWriter::flush`] tells.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn begin(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        begin: Epoch,
        bytes_per_second: Option<u64>,
    ) -> Result<CheckpointWriter, LogError> {
        let mut name = Name { begin, again: 1, unfinished: false };
        let mut begun = || {
            // A checkpoint of the same epoch may exist, and may be the valid one.
            while disk.find(&directory.join(name.to_string()))?.is_some() {
                name.again += 1;
            }
            let temporary = directory.join(Name { unfinished: true, ..name }.to_string());
            if disk.find(&temporary)?.is_some() {
                disk.remove_dir_all(&temporary)?;
            }
            disk.create_dir_all(&temporary)?;
            Ok(temporary)
        };
        let temporary = begun().map_err(LogError::io(WHAT))?;
        let pace = Arc::new(Pace { bytes_per_second, begun: Instant::now(), bytes: AtomicU64::new(0) });
        Ok(CheckpointWriter { disk, directory: directory.to_owned(), name, temporary, database, begin, pace })
    }

    /// Begins a part. Parts are numbered from 0.
    ///
    /// # Errors
    /// [`LogError::Io`], also if the part exists.
    pub fn part(&self, part: u32) -> Result<PartWriter, LogError> {
        let header = PartHeader { format: crate::FORMAT, part, database: self.database.0, begin: self.begin };
        let path = self.temporary.join(part_name(part));
        let begun = || {
            let file = self.disk.open(&path, Opening::Create)?;
            file.write_all_at(&header.encode(), 0)?;
            Ok((file, Compressor::new(LEVEL)?))
        };
        let (file, compressor) = begun().map_err(LogError::io(WHAT))?;
        let totals = Footer { bytes: PART_HEADER_BYTES as u64, ..Footer::default() };
        let compressor = Compressing(compressor);
        let pace = Arc::clone(&self.pace);
        let (raw, out) = (Vec::new(), Vec::new());
        let (has_catalogue, catalogue_rows) = (false, 0);
        Ok(PartWriter {
            part,
            file,
            compressor,
            raw,
            rows: 0,
            has_catalogue,
            catalogue_rows,
            out,
            totals,
            unsynced: 0,
            pace,
        })
    }

    /// Renames the checkpoint durably, and returns its entry for the manifest. `end` is the epoch after the
    /// pass, and durable.
    ///
    /// # Errors
    /// [`LogError::Io`]; the checkpoint may have been renamed all the same ([`delete_unnamed`](super::delete_unnamed)).
    /// Also if parts are missing, or `end` is before the beginning.
    pub fn finish(self, mut parts: Vec<PartTotals>, end: Epoch) -> Result<Checkpoint, LogError> {
        parts.sort_unstable_by_key(|part| part.part);
        let finish = || {
            let begun = self.disk.list(&self.temporary)?.len();
            let all = begun == parts.len() && parts.iter().zip(0..).all(|(part, number)| part.part == number);
            if !all || end < self.begin {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "some parts were not finished, or the last epoch is before the first",
                ));
            }
            self.disk.sync_dir(&self.temporary)?;
            self.disk.rename(&self.temporary, &self.directory.join(self.name.to_string()))?;
            self.disk.sync_dir(&self.directory)
        };
        finish().map_err(LogError::io(WHAT))?;
        Ok(Checkpoint {
            directory: PathBuf::from(self.name.to_string()),
            begin_epoch: self.begin,
            end_epoch: end,
            parts: parts.len() as u32,
            rows: parts.iter().map(|part| part.rows).sum(),
            bytes: parts.iter().map(|part| part.bytes).sum(),
        })
    }
}

/// A part that is complete and durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartTotals {
    /// Its number.
    pub part: u32,
    /// Rows in it.
    pub rows: u64,
    /// Rows of the catalogue among them.
    pub catalogue_rows: u64,
    /// Bytes of its file.
    pub bytes: u64,
}

/// Writes one part.
#[derive(Debug)]
pub struct PartWriter {
    part: u32,
    file: Box<dyn DiskFile>,
    compressor: Compressing,
    /// The rows of the open block.
    raw: Vec<u8>,
    rows: u32,
    /// Whether these are rows of the catalogue.
    has_catalogue: bool,
    /// Rows of the catalogue in all blocks.
    catalogue_rows: u64,
    /// The header and the compressed rows of a block.
    out: Vec<u8>,
    totals: Footer,
    /// Bytes since the last sync.
    unsynced: u64,
    pace: Arc<Pace>,
}

impl PartWriter {
    /// Adds a row to the open block, without I/O. The caller flushes when the block is full.
    pub fn row(&mut self, layout: LayoutId, wire: &RowWire, key: Key<'_>, tid: Tid, row: RowRef<'_>) {
        self.raw.extend_from_slice(&tid.bits().to_le_bytes());
        write_varint(&mut self.raw, layout.0.into());
        wire.encode_key(key, &mut self.raw);
        wire.encode_row(row, &mut self.raw);
        self.rows += 1;
    }

    /// Says whether the next rows are of the catalogue, which has blocks of its own. They are the first of part 0.
    ///
    /// # Errors
    /// As [`PartWriter::flush`].
    pub fn set_catalogue(&mut self, has_catalogue: bool) -> Result<(), LogError> {
        self.block()?;
        self.has_catalogue = has_catalogue;
        Ok(())
    }

    /// Whether the open block is full.
    pub fn is_full(&self) -> bool {
        self.raw.len() >= BLOCK_BYTES
    }

    /// Writes the open block. Returns how long to wait before writing more, to keep to the rate.
    ///
    /// # Errors
    /// [`LogError::Io`], also if the rows exceed 4 GiB. The checkpoint must then be abandoned.
    pub fn flush(&mut self) -> Result<Duration, LogError> {
        let before = self.totals.bytes;
        self.block()?;
        Ok(self.pace.ahead_after(self.totals.bytes - before))
    }

    /// Writes the open block.
    fn block(&mut self) -> Result<(), LogError> {
        if self.rows == 0 {
            return Ok(());
        }
        let too_long = || Error::new(ErrorKind::InvalidData, "rows of more than 4 GiB in one block");
        let mut write = || {
            let payload = self.compressor.0.compress(&self.raw)?;
            self.totals.blocks += 1;
            let header = BlockHeader {
                payload_crc: crc32fast::hash(&payload),
                payload_bytes: u32::try_from(payload.len()).map_err(|_| too_long())?,
                raw_bytes: u32::try_from(self.raw.len()).map_err(|_| too_long())?,
                rows: self.rows,
                has_catalogue: self.has_catalogue,
                number: self.totals.blocks,
            };
            self.out.clear();
            self.out.extend_from_slice(&header.encode());
            self.out.extend_from_slice(&payload);
            self.file.write_all_at(&self.out, self.totals.bytes)?;
            self.unsynced += self.out.len() as u64;
            if self.unsynced >= SYNC_BYTES {
                self.unsynced = 0;
                self.file.sync_data()?;
            }
            Ok(())
        };
        write().map_err(LogError::io(WHAT))?;
        self.totals.bytes += self.out.len() as u64;
        let rows = u64::from(mem::take(&mut self.rows));
        self.totals.rows += rows;
        self.catalogue_rows += if self.has_catalogue { rows } else { 0 };
        self.totals.raw_bytes += self.raw.len() as u64;
        self.raw.clear();
        Ok(())
    }

    /// Completes the part: durable when this returns.
    ///
    /// # Errors
    /// As [`PartWriter::flush`].
    pub fn finish(mut self) -> Result<PartTotals, LogError> {
        self.block()?;
        let at = self.totals.bytes;
        self.totals.bytes += super::FOOTER_BYTES as u64;
        let finish = || {
            self.file.write_all_at(&self.totals.encode(), at)?;
            self.file.sync_data()
        };
        finish().map_err(LogError::io(WHAT))?;
        let Footer { rows, bytes, .. } = self.totals;
        Ok(PartTotals { part: self.part, rows, catalogue_rows: self.catalogue_rows, bytes })
    }
}

/// A compressor with a `Debug` implementation.
struct Compressing(Compressor<'static>);

impl std::fmt::Debug for Compressing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

/// How far the writers are ahead of their rate.
#[derive(Debug)]
struct Pace {
    bytes_per_second: Option<u64>,
    begun: Instant,
    bytes: AtomicU64,
}

impl Pace {
    /// Counts `bytes` more as written. Returns the time until all bytes so far are due.
    fn ahead_after(&self, bytes: u64) -> Duration {
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let due = Duration::try_from_secs_f64(bytes as f64 / rate.max(1) as f64).unwrap_or(Duration::MAX);
        due.saturating_sub(self.begun.elapsed())
    }
}
