//! Segments: pre-zeroed files that hold batches.
//!
//! Invariant: every byte of a segment was written and synced, as a zero, before a batch is written over it. Then flushing a batch
//! changes neither the file's length nor its place on the disk, so it is one write, and a full disk is noticed ahead of need.
//! A segment's name is synced before its first batch is written. The next segment is made in pieces, of twice the bytes that were
//! just flushed, from when the current one is half full: so it is there when it is needed, and no flush waits for all of it.
//!
//! ```text
//! log-<incarnation>-<logger>-<sequence>     decimal, padded so that names sort
//! header page, 4096 bytes, little-endian: magic "SRTMLOG1" | format u32 | logger u32 | database u128 | incarnation u64 |
//!                                         sequence u64 | crc32 of the bytes before it u32 | zeros
//! batches, each at a multiple of 4096
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use seriatim_base::disk::{Disk, DiskFile, Opening};

use crate::LogError;
use crate::batch::PAGE;

/// The format of segments and batches that this program writes.
pub const FORMAT: u32 = 1;

const MAGIC: &[u8; 8] = b"SRTMLOG1";
/// Bytes of the header page that are covered by its checksum.
const CHECKED: usize = 48;
/// The least that is zeroed at once, in bytes.
const PIECE_MIN: u64 = 1 << 20;

/// Which segment: of which incarnation and logger, and the how manieth, from 1. Ordered as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The opening of the database that wrote it.
    pub incarnation: u64,
    /// The logger, from 0.
    pub logger: u32,
    /// The position among the segments of this incarnation and logger, from 1.
    pub sequence: u64,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log-{:08}-{:03}-{:08}", self.incarnation, self.logger, self.sequence)
    }
}

impl Name {
    /// The segment that a file's name says, if it is the name of one.
    pub fn parse(file_name: &str) -> Option<Name> {
        let mut parts = file_name.strip_prefix("log-")?.split('-');
        let mut part = || parts.next()?.parse::<u64>().ok();
        let name = Name { incarnation: part()?, logger: u32::try_from(part()?).ok()?, sequence: part()? };
        // Only as `Display` writes it: neither signs nor other paddings.
        (name.to_string() == file_name).then_some(name)
    }
}

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format of what follows.
    pub format: u32,
    /// The database it belongs to.
    pub database: u128,
    /// What its file should be called.
    pub name: Name,
}

impl Header {
    /// The header page.
    pub fn encode(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        page[0..8].copy_from_slice(MAGIC);
        page[8..12].copy_from_slice(&self.format.to_le_bytes());
        page[12..16].copy_from_slice(&self.name.logger.to_le_bytes());
        page[16..32].copy_from_slice(&self.database.to_le_bytes());
        page[32..40].copy_from_slice(&self.name.incarnation.to_le_bytes());
        page[40..48].copy_from_slice(&self.name.sequence.to_le_bytes());
        let crc = crc32fast::hash(&page[..CHECKED]);
        page[CHECKED..CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// The header at the front of `bytes`, if it checks out; of whatever format.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; CHECKED + 4] = bytes.first_chunk()?;
        let crc = u32::from_le_bytes(*bytes.last_chunk()?);
        let checks_out = bytes.starts_with(MAGIC) && crc == crc32fast::hash(&bytes[..CHECKED]);
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        checks_out.then(|| Header {
            format: u32_at(8),
            database: u128::from_le_bytes(std::array::from_fn(|i| bytes[16 + i])),
            name: Name { logger: u32_at(12), incarnation: u64_at(32), sequence: u64_at(40) },
        })
    }
}

/// A segment found in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSegment {
    /// Which.
    pub name: Name,
    /// Its file.
    pub path: PathBuf,
    /// The file's length.
    pub bytes: u64,
}

/// The segments in a directory, by name, whichever incarnation and logger they are of.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(disk: &dyn Disk, directory: &Path) -> Result<Vec<FoundSegment>, LogError> {
    let found = disk.list(directory).map_err(LogError::io("looking for the segments of the log"))?;
    let segments = found.into_iter().filter(|found| !found.is_dir).filter_map(|found| {
        let name = Name::parse(found.name.to_str()?)?;
        Some(FoundSegment { name, path: directory.join(&found.name), bytes: found.bytes })
    });
    let mut segments: Vec<_> = segments.collect();
    segments.sort_unstable_by_key(|segment| segment.name);
    Ok(segments)
}

/// Deletes the segments in a directory that were written by incarnations before `incarnation`, oldest first: for when a checkpoint
/// of `incarnation` is durable and the manifest no longer names those before it. Answers how many.
///
/// # Errors
/// When the directory cannot be read or changed; the rest is then still there, and may be deleted later.
pub fn delete_before(disk: &dyn Disk, directory: &Path, incarnation: u64) -> Result<usize, LogError> {
    let mut segments = list(disk, directory)?;
    segments.retain(|segment| segment.name.incarnation < incarnation);
    segments.iter().try_for_each(|segment| delete(disk, &segment.path))?;
    Ok(segments.len())
}

/// Deletes one segment, durably before the next is deleted: after a crash no segment is missing between two that are there.
pub(crate) fn delete(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    let failed = || LogError::io("deleting a segment of the log that is no longer needed");
    disk.remove_file(path).map_err(failed())?;
    path.parent().map_or(Ok(()), |directory| disk.sync_dir(directory)).map_err(failed())
}
