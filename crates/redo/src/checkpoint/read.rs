//! Reading a checkpoint. The headers of its blocks are read first, so a part that was cut short is recognized
//! before any row is applied.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use seriatim_base::disk::{Disk, DiskFile, Opening};
use seriatim_base::{LayoutId, Tid};
use seriatim_catalog::wire::read_varint;
use zstd::bulk::Decompressor;

use super::{ADVICE, BLOCK_HEADER_BYTES, BlockHeader, FOOTER_BYTES, Footer, PART_HEADER_BYTES, PartHeader, part_name};
use crate::LogError;
use crate::catalogue;
use crate::entry::{Change, Entry, Layouts};
use crate::manifest::{Checkpoint, Manifest};
use crate::narrow;
use crate::replay::Apply;
use crate::replay::partitioned::{self, Round, Scatter, Source};
use crate::tables::Tables;

const WHAT: &str = "reading a checkpoint";

/// Bytes of rows that are decompressed in one round, unless one block is larger.
const ROUND_BYTES: u64 = if cfg!(test) { 4 << 10 } else { 16 << 20 };

/// The highest ratio of zstd: a block of 128 KiB of equal bytes takes four bytes.
const COMPRESSION_MAX: u64 = 32 << 10;

/// Counts of a loaded checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rows passed to `apply`, without those of the catalogue.
    pub rows: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// Passes every row of the manifest's checkpoint to `apply`, on `threads` threads as in
/// [`Replay::run`](crate::replay::Replay::run). Does nothing without a checkpoint.
///
/// # Errors
/// [`LogError::Corrupt`] if a part is missing, cut short or damaged; [`LogError::Format`], [`LogError::Io`],
/// and errors of `apply`. Some rows may have been applied.
pub fn load(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    tables: &Tables,
    threads: usize,
    apply: &dyn Apply,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Loaded, LogError> {
    let Some(checkpoint) = &manifest.checkpoint else { return Ok(Loaded::default()) };
    Parts::open(disk, directory, manifest, checkpoint)?.load(disk, tables, threads, apply, progress)
}

/// Bytes of the files in the directory of the manifest's checkpoint, whatever they hold. Zero if the directory
/// cannot be read.
pub fn bytes_found(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> u64 {
    let Some(checkpoint) = &manifest.checkpoint else { return 0 };
    let found = disk.list(&directory.join(&checkpoint.directory)).unwrap_or_default();
    found.iter().map(|found| found.bytes).fold(0, u64::saturating_add)
}

/// The parts of a checkpoint, and the places of their blocks.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(super) files: Vec<PathBuf>,
    pub(super) blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) file: u32,
    pub(super) offset: u64,
    pub(super) header: BlockHeader,
}

impl Parts {
    /// Reads the headers of all blocks.
    pub(crate) fn open(
        disk: &dyn Disk,
        directory: &Path,
        manifest: &Manifest,
        checkpoint: &Checkpoint,
    ) -> Result<Parts, LogError> {
        let mut parts = Parts::default();
        let (mut rows, mut bytes) = (0, 0);
        for part in 0..checkpoint.parts {
            let footer = parts.part(disk, directory, manifest, checkpoint, part)?;
            rows = u64::saturating_add(rows, footer.rows);
            bytes = u64::saturating_add(bytes, footer.bytes);
        }
        if (rows, bytes) != (checkpoint.rows, checkpoint.bytes) {
            let problem = "its parts do not have the rows and bytes that the manifest states";
            return Err(LogError::corrupt(&directory.join(&checkpoint.directory), 0, problem, ADVICE));
        }
        Ok(parts)
    }

    /// Reads the headers of the blocks with the catalogue. There are none in a checkpoint of an older format.
    pub(crate) fn open_catalogue(
        disk: &dyn Disk,
        directory: &Path,
        manifest: &Manifest,
        checkpoint: &Checkpoint,
    ) -> Result<Parts, LogError> {
        let mut parts = Parts::default();
        if checkpoint.parts > 0 {
            parts.part(disk, directory, manifest, checkpoint, 0)?;
        }
        parts.blocks.retain(|block| block.header.has_catalogue);
        Ok(parts)
    }

    pub(super) fn part(
        &mut self,
        disk: &dyn Disk,
        directory: &Path,
        manifest: &Manifest,
        checkpoint: &Checkpoint,
        part: u32,
    ) -> Result<Footer, LogError> {
        let path = directory.join(&checkpoint.directory).join(part_name(part));
        let (database, begin) = (manifest.database.0, checkpoint.begin_epoch);
        self.walk(disk, path, &PartHeader { format: crate::FORMAT, part, database, begin })
    }

    /// As [`load`].
    pub(super) fn load(
        &self,
        disk: &dyn Disk,
        tables: &Tables,
        threads: usize,
        apply: &dyn Apply,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Loaded, LogError> {
        let source = Rows { parts: self, disk, tables, next: Mutex::new(0), idle: Mutex::default() };
        let counts = partitioned::replay(&source, tables, threads, apply, progress)?;
        Ok(Loaded { rows: self.rows(), bytes: counts.bytes })
    }

    /// The number of rows, without those of the catalogue.
    pub(crate) fn rows(&self) -> u64 {
        let others = self.blocks.iter().filter(|block| !block.header.has_catalogue);
        others.map(|block| u64::from(block.header.rows)).sum()
    }

    fn walk(&mut self, disk: &dyn Disk, path: PathBuf, expected: &PartHeader) -> Result<Footer, LogError> {
        let corrupt = |offset: u64, problem: &str| LogError::corrupt(&path, offset, problem, ADVICE);
        let reading = || LogError::io(WHAT);
        if disk.find(&path).map_err(reading())?.is_none() {
            return Err(corrupt(0, "the part is missing"));
        }
        let file = disk.open(&path, Opening::Read).map_err(reading())?;
        let bytes = file.bytes().map_err(reading())?;
        let cut_short = || corrupt(bytes, "the part is cut short");
        let end = bytes.checked_sub(FOOTER_BYTES as u64).filter(|end| *end >= PART_HEADER_BYTES as u64);
        let end = end.ok_or_else(cut_short)?;
        let header = PartHeader::decode(&read(&*file, 0)?).ok_or_else(|| corrupt(0, "its header is damaged"))?;
        if header.format > crate::FORMAT {
            return Err(LogError::Format { file: path, found: header.format.into(), newest: crate::FORMAT.into() });
        }
        let header =
            PartHeader { format: expected.format, begin: narrow::first(header.format, header.begin), ..header };
        if header != *expected {
            return Err(corrupt(0, "it is a part of another checkpoint"));
        }
        let footer = Footer::decode(&read(&*file, end)?).filter(|footer| footer.bytes == bytes);
        let footer = footer.ok_or_else(cut_short)?;
        let (counted, offset) = self.add_blocks(&*file, end)?;
        if offset < end {
            return Err(corrupt(offset, "a block's header is damaged"));
        }
        if (Footer { bytes, ..counted }) != footer {
            return Err(corrupt(end, "its blocks do not match the totals in its footer"));
        }
        self.files.push(path);
        Ok(footer)
    }

    /// Adds the blocks of the next file that lie before `end`, up to the first with a damaged header. Returns their
    /// totals, and where the last one ends.
    pub(super) fn add_blocks(&mut self, file: &dyn DiskFile, end: u64) -> Result<(Footer, u64), LogError> {
        let (mut counted, mut offset) = (Footer::default(), PART_HEADER_BYTES as u64);
        while let Some(room) = (end - offset).checked_sub(BLOCK_HEADER_BYTES as u64) {
            let header = BlockHeader::decode(&read(file, offset)?);
            let is_next =
                |header: &BlockHeader| header.number == counted.blocks + 1 && u64::from(header.payload_bytes) <= room;
            let Some(header) = header.filter(is_next) else { break };
            self.blocks.push(Block { file: self.files.len() as u32, offset, header });
            offset += BLOCK_HEADER_BYTES as u64 + u64::from(header.payload_bytes);
            counted.blocks += 1;
            counted.rows += u64::from(header.rows);
            counted.raw_bytes += u64::from(header.raw_bytes);
        }
        Ok((counted, offset))
    }

    /// Passes on every row.
    pub(crate) fn each_row(
        &self,
        disk: &dyn Disk,
        tables: &Tables,
        mut each: impl FnMut(Tid, &Entry<'_>),
    ) -> Result<(), LogError> {
        let mut idle = Decompressing::new()?;
        self.blocks.iter().try_for_each(|block| idle.rows(self, disk, block, tables, |tid, _, entry| each(tid, entry)))
    }

    /// Reads and checks every row.
    pub(crate) fn verify(&self, disk: &dyn Disk, tables: &Tables, mut read: impl FnMut(u64)) -> Result<(), LogError> {
        let mut idle = Decompressing::new()?;
        for block in &self.blocks {
            idle.rows(self, disk, block, tables, |_, _, _| {})?;
            read(u64::from(block.header.payload_bytes));
        }
        Ok(())
    }

    /// Its files.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }
}

pub(super) fn read<const N: usize>(file: &dyn DiskFile, offset: u64) -> Result<[u8; N], LogError> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, offset).map_err(LogError::io(WHAT))?;
    Ok(bytes)
}

/// Buffers for reading a block.
pub(super) struct Decompressing {
    decompressor: Decompressor<'static>,
    payload: Vec<u8>,
    raw: Vec<u8>,
}

impl Decompressing {
    pub(super) fn new() -> Result<Decompressing, LogError> {
        let decompressor = Decompressor::new().map_err(LogError::io(WHAT))?;
        Ok(Decompressing { decompressor, payload: Vec::new(), raw: Vec::new() })
    }

    /// Passes on the rows of a block, each with its TID and offset.
    pub(super) fn rows(
        &mut self,
        parts: &Parts,
        disk: &dyn Disk,
        block: &Block,
        tables: &Tables,
        mut each: impl FnMut(Tid, usize, &Entry<'_>),
    ) -> Result<(), LogError> {
        let path = &parts.files[block.file as usize];
        let corrupt = |problem: String| LogError::corrupt(path, block.offset, problem, ADVICE);
        let header = &block.header;
        self.payload.resize(header.payload_bytes as usize, 0);
        let file = disk.open(path, Opening::Read).map_err(LogError::io(WHAT))?;
        let payload = block.offset + BLOCK_HEADER_BYTES as u64;
        file.read_exact_at(&mut self.payload, payload).map_err(LogError::io(WHAT))?;
        if crc32fast::hash(&self.payload) != header.payload_crc {
            return Err(corrupt(format!("block {} does not match its checksum", header.number)));
        }
        let raw_bytes = header.raw_bytes as usize;
        // A frame states its size, which its compressed bytes must be able to produce.
        let told = zstd::zstd_safe::get_frame_content_size(&self.payload).ok().flatten();
        let possible = u64::from(header.raw_bytes) <= u64::from(header.payload_bytes) * COMPRESSION_MAX;
        if told != Some(raw_bytes as u64) || !possible {
            return Err(corrupt(format!(
                "block {} does not hold the {raw_bytes} bytes that its header states",
                header.number
            )));
        }
        self.raw.clear();
        self.raw.try_reserve_exact(raw_bytes).map_err(|_| corrupt("a block does not fit into memory".to_owned()))?;
        let decompressed = self.decompressor.decompress_to_buffer(&self.payload, &mut self.raw);
        if !decompressed.is_ok_and(|bytes| bytes == raw_bytes) {
            return Err(corrupt(format!("block {} cannot be decompressed", header.number)));
        }
        let mut rest = &self.raw[..];
        let mut rows = 0;
        while !rest.is_empty() {
            let offset = raw_bytes - rest.len();
            let (tid, entry) = row(&mut rest, offset, tables)
                .map_err(|problem| corrupt(format!("row {rows} of block {}: {problem}", header.number)))?;
            if (entry.layout == catalogue::LAYOUT) != header.has_catalogue {
                return Err(corrupt(format!("row {rows} of block {} belongs into another block", header.number)));
            }
            each(tid, offset, &entry);
            rows += 1;
        }
        if rows != header.rows {
            return Err(corrupt(format!("block {} has {rows} rows; its header states {}", header.number, header.rows)));
        }
        Ok(())
    }
}

/// Takes a row off the front of `rest`.
fn row<'a>(rest: &mut &'a [u8], offset: usize, tables: &Tables) -> Result<(Tid, Entry<'a>), String> {
    let (tid, behind) = rest.split_first_chunk::<8>().ok_or("it is cut short")?;
    let tid = u64::from_le_bytes(*tid);
    if tid == 0 || tid >> Tid::BITS != 0 {
        return Err("the bits of its TID are not a TID".to_owned());
    }
    *rest = behind;
    let layout = read_varint(rest).map_err(|error| error.to_string())?;
    let rows = u32::try_from(layout).ok().and_then(|layout| Some((LayoutId(layout), tables.rows(LayoutId(layout))?)));
    let (layout, rows) = rows.ok_or_else(|| format!("it is of layout {layout}, which the catalogue does not have"))?;
    let key = rows.decode_key(rest).map_err(|error| error.to_string())?;
    let change = Change::Row(rows.skip_row(rest).map_err(|error| error.to_string())?);
    Ok((Tid::from_bits(tid), Entry { layout, key, change, offset }))
}

/// A checkpoint as a source of versions.
struct Rows<'c> {
    parts: &'c Parts,
    disk: &'c dyn Disk,
    tables: &'c Tables,
    /// The block to be read next.
    next: Mutex<usize>,
    idle: Mutex<Vec<Decompressing>>,
}

impl Source for Rows<'_> {
    fn next(&self) -> Option<Round> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut round, mut raw_bytes) = (Round::default(), 0);
        while let Some(block) = self.parts.blocks.get(*next).filter(|_| raw_bytes < ROUND_BYTES) {
            round.tasks.push(*next);
            round.bytes += BLOCK_HEADER_BYTES as u64 + u64::from(block.header.payload_bytes);
            raw_bytes += u64::from(block.header.raw_bytes);
            *next += 1;
        }
        (!round.tasks.is_empty()).then_some(round)
    }

    fn decode(&self, task: usize, _: &mut Vec<u8>, scatter: &mut Scatter<'_>) -> Result<(), LogError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut idle = idle.map_or_else(Decompressing::new, Ok)?;
        idle.rows(self.parts, self.disk, &self.parts.blocks[task], self.tables, |tid, offset, entry| {
            scatter.put(tid, (task as u64) << 32 | offset as u64, entry);
        })?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(idle);
        Ok(())
    }

    fn place(&self, order: u64) -> (PathBuf, u64) {
        let block = &self.parts.blocks[(order >> 32) as usize];
        (self.parts.files[block.file as usize].clone(), block.offset)
    }
}
