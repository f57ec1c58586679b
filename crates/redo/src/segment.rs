//! Segments: pre-zeroed files that hold batches.
//!
//! Invariant: every byte of a segment was written and synced, as a zero, before a batch is written over it.
//! Then flushing a batch changes neither the file's length nor its place on the disk, so it is one write, and a
//! full disk is noticed ahead of need. A segment's name is synced before its first batch is written. The next
//! segment is made in pieces, of twice the bytes that were just flushed, from when the current one is half
//! full: so it is there when it is needed, and no flush waits for all of it.
//!
//! ```text
//! log-<incarnation>-<logger>-<sequence>     decimal, padded so that names sort
//! header page, 4096 bytes, little-endian: magic "SRTMLOG1" | format u32 | logger u32 | database u128 | incarnation u64 |
//!                                         sequence u64 | nonce u64 | bytes u64 | crc32 of the bytes before it u32 | zeros
//! batches, each at a multiple of 4096, the last page kept for a link
//! ```
//! Segments of format 1 have neither nonce nor bytes. The header is written last, so a segment with one is as
//! long as that says; it is cut only when the manifest says where its log ends.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use seriatim_base::disk::{Disk, DiskFile, Opening};

use crate::LogError;
use crate::batch::{Link, PAGE, Salt};

const MAGIC: &[u8; 8] = b"SRTMLOG1";
/// Bytes of the header page that are covered by its checksum, in format 1.
const CHECKED_1: usize = 48;
/// The same from format 2 on.
const CHECKED: usize = 64;
/// Bytes of the header page that say anything.
const HEADER_BYTES: usize = CHECKED + 4;
/// A segment is no larger, in bytes: one batch of 4 GiB fits.
pub const SEGMENT_BYTES_MAX: u64 = 8 << 30;
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
    /// Random, part of the checksums in it. Zero in format 1.
    pub nonce: u64,
    /// The file's length, if nothing was cut off, in bytes. Zero in format 1.
    pub bytes: u64,
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
        if self.format > 1 {
            page[48..56].copy_from_slice(&self.nonce.to_le_bytes());
            page[56..64].copy_from_slice(&self.bytes.to_le_bytes());
        }
        let checked = checked_bytes(self.format);
        let crc = crc32fast::hash(&page[..checked]);
        page[checked..checked + 4].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// The header at the front of `bytes`, if it checks out; of whatever format.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let format = u32_at(8)?;
        let checked = checked_bytes(format);
        let checks_out = bytes.starts_with(MAGIC) && u32_at(checked)? == crc32fast::hash(&bytes[..checked]);
        let (nonce, whole) = if format == 1 { (0, 0) } else { (u64_at(48)?, u64_at(56)?) };
        let possible = format == 1 || (PAGE as u64..=SEGMENT_BYTES_MAX).contains(&whole);
        let header = Header {
            format,
            database: u128::from_le_bytes(*bytes.get(16..)?.first_chunk()?),
            name: Name { logger: u32_at(12)?, incarnation: u64_at(32)?, sequence: u64_at(40)? },
            nonce,
            bytes: whole,
        };
        (checks_out && possible).then_some(header)
    }

    /// What the checksums in the segment begin with.
    pub fn salt(&self) -> Salt {
        if self.format == 1 { Salt::NONE } else { Salt::of(self.nonce) }
    }

    /// The file's length, if it says that.
    pub fn whole_bytes(&self) -> Option<u64> {
        (self.format > 1).then_some(self.bytes)
    }
}

/// How many bytes of a header the checksum behind them is of.
fn checked_bytes(format: u32) -> usize {
    if format == 1 { CHECKED_1 } else { CHECKED }
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

/// Deletes the segments in a directory that were written by incarnations before `incarnation`, oldest first: for when a
/// checkpoint of `incarnation` is durable and the manifest no longer names those before it. Answers how many.
///
/// # Errors
/// When the directory cannot be read or changed; the rest is then still there, and may be deleted later.
pub fn delete_before(disk: &dyn Disk, directory: &Path, incarnation: u64) -> Result<usize, LogError> {
    let mut segments = list(disk, directory)?;
    segments.retain(|segment| segment.name.incarnation < incarnation);
    segments.iter().try_for_each(|segment| delete(disk, &segment.path))?;
    Ok(segments.len())
}

/// Deletes the segments that an opening left which did not come to be: those of this database from
/// `incarnation` on, which no manifest names. Databases do not share a directory for their logs, since their
/// segments have the same names: looks at all of them.
///
/// # Errors
/// [`LogError::NotADatabase`] if a segment is of another database; [`LogError::Io`].
pub fn delete_unnamed(disk: &dyn Disk, directory: &Path, database: u128, incarnation: u64) -> Result<(), LogError> {
    for FoundSegment { name, path, .. } in list(disk, directory)? {
        let read = || {
            let mut page = [0; HEADER_BYTES];
            let read = disk.open(&path, Opening::Read)?.read_at(&mut page, 0)?;
            Ok(Header::decode(&page[..read]))
        };
        // Without a header it was being made.
        let header = read().map_err(LogError::io("looking at a segment of the log"))?;
        if header.is_some_and(|header| header.database != database) {
            let problem =
                format!("{} is of another database; give each its own directories for the log", path.display());
            return Err(LogError::NotADatabase { directory: directory.to_owned(), problem });
        }
        if name.incarnation >= incarnation {
            delete(disk, &path)?;
        }
    }
    Ok(())
}

/// Deletes one segment, durably before the next is deleted: after a crash no segment is missing between two
/// that are there, unless a sync failed. One that is gone was deleted by an attempt whose sync failed.
pub(crate) fn delete(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    let failed = || LogError::io("deleting a segment of the log that is no longer needed");
    match disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed()(error)),
        _ => {}
    }
    path.parent().map_or(Ok(()), |directory| disk.sync_dir(directory)).map_err(failed())
}

/// What segments are filled with.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Why bytes did not get to the disk.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There was no space to write or extend: it may be tried again.
    Full,
    /// Anything else: what is on the disk is not known.
    Final(LogError),
}

impl Failure {
    /// What a failed write, creation or extension amounts to.
    pub(crate) fn of_writing(what: &str) -> impl FnOnce(io::Error) -> Failure {
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::Full,
            _ => Failure::of_syncing(what)(error),
        }
    }

    /// What a failed sync amounts to, whatever its kind: the kernel may have dropped what it could not write.
    pub(crate) fn of_syncing(what: &str) -> impl FnOnce(io::Error) -> Failure {
        move |error| Failure::Final(LogError::io(what)(error))
    }
}

/// A segment that is being made or written.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    file: Box<dyn DiskFile>,
    header: Header,
    /// How large it is to be.
    bytes: u64,
    /// Written and synced, as zeros but for the header.
    zeroed: u64,
    /// Whether its name is durable.
    named: bool,
    /// Where the next batch goes.
    at: u64,
}

impl Segment {
    /// Creates the file of a segment with room for `room` bytes of batches. Nothing is in it yet.
    pub(crate) fn create(disk: &dyn Disk, directory: &Path, header: Header, room: u64) -> Result<Segment, Failure> {
        let path = directory.join(header.name.to_string());
        let file = disk.open(&path, Opening::Create).map_err(Failure::of_writing("creating a segment of the log"))?;
        Ok(Segment { path, file, header, bytes: bytes_for(room), zeroed: 0, named: false, at: PAGE as u64 })
    }

    /// Makes sure that there is room for `room` bytes of batches, once it is prepared. For segments that hold
    /// nothing yet.
    pub(crate) fn enlarge(&mut self, room: u64) {
        self.bytes = self.bytes.max(bytes_for(room));
    }

    /// Writes and syncs at most `piece` more bytes of zeros, the last time also its header and its name. Where
    /// it ended it goes on when called again. Answers whether it is ready.
    pub(crate) fn prepare(&mut self, disk: &dyn Disk, piece: u64) -> Result<bool, Failure> {
        let what = "making a segment of the log";
        let until = self.bytes.min(self.zeroed + piece.max(PAGE as u64));
        let mut at = self.zeroed;
        while at < until {
            let now = (until - at).min(ZEROS.len() as u64);
            self.file.write_all_at(&ZEROS[..now as usize], at).map_err(Failure::of_writing(what))?;
            at += now;
        }
        if at > self.zeroed {
            if at == self.bytes {
                self.header.bytes = self.bytes;
                self.file.write_all_at(&self.header.encode(), 0).map_err(Failure::of_writing(what))?;
            }
            self.file.sync_data().map_err(Failure::of_syncing(what))?;
            self.zeroed = at;
        }
        if self.zeroed == self.bytes && !self.named {
            let directory = self.path.parent().unwrap_or(Path::new(""));
            disk.sync_dir(directory).map_err(Failure::of_syncing(what))?;
            self.named = true;
        }
        Ok(self.zeroed == self.bytes)
    }

    /// Bytes of batches that still fit.
    pub(crate) fn room(&self) -> u64 {
        self.bytes - self.at - PAGE as u64
    }

    /// What its checksums begin with.
    pub(crate) fn salt(&self) -> Salt {
        self.header.salt()
    }

    /// Where the next batch goes.
    pub(crate) fn end(&self) -> u64 {
        self.at
    }

    /// Says, durably, that batch `number` is in the segment after this one, which is there. Nothing else is
    /// written here any more.
    pub(crate) fn link(&self, number: u64) -> Result<(), Failure> {
        let Name { incarnation, sequence, .. } = self.header.name;
        let link = Link { incarnation, number, sequence: sequence + 1 }.encode(self.salt());
        self.file.write_all_at(&link, self.at).map_err(Failure::of_writing("writing the log"))?;
        self.file.sync_data().map_err(Failure::of_syncing("flushing the log"))
    }

    /// Whether the file has no name any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.file.is_removed()
    }

    /// Whether it is time to make the next one.
    pub(crate) fn is_half_full(&self) -> bool {
        self.at * 2 >= self.bytes
    }

    /// Gives back the space after the last batch, when no more will come. Nothing relies on it.
    pub(crate) fn trim(&self) {
        // Space, not safety: a cut that fails, or that a power cut undoes, leaves zeros.
        let _ = self.file.set_bytes(self.at).and_then(|()| self.file.sync_data());
    }

    /// Removes a segment that holds nothing, and that nothing relies on.
    pub(crate) fn discard(&self, disk: &dyn Disk) {
        // Space, not safety.
        let _ = disk.remove_file(&self.path);
    }

    /// Writes a batch where the next one goes.
    pub(crate) fn write(&self, batch: &[u8]) -> Result<(), Failure> {
        debug_assert!(batch.len() as u64 <= self.room() && batch.len().is_multiple_of(PAGE));
        self.file.write_all_at(batch, self.at).map_err(Failure::of_writing("writing the log"))
    }

    /// Flushes the batch that was written, and goes on behind it.
    pub(crate) fn flush(&mut self, bytes: u64) -> Result<(), Failure> {
        self.file.sync_data().map_err(Failure::of_syncing("flushing the log"))?;
        self.at += bytes;
        Ok(())
    }
}

/// How large a segment is that has room for `room` bytes of batches: with a page in front of them and one behind.
fn bytes_for(room: u64) -> u64 {
    (2 * PAGE as u64).saturating_add(room).next_multiple_of(PAGE as u64)
}

/// What is zeroed after a batch of `batch_bytes` was flushed, in bytes: twice as much, so that a segment begun
/// when the one before is half full is ready when that one is full.
pub(crate) fn piece_after(batch_bytes: u64) -> u64 {
    PIECE_MIN.max(2 * batch_bytes)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written_and_sort_as_written() {
        let name = |incarnation, logger, sequence| Name { incarnation, logger, sequence };
        let names = [name(1, 0, 9), name(1, 0, 10), name(1, 2, 1), name(12, 0, 1)];
        for name in names {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        assert!(names.is_sorted() && names.map(|name| name.to_string()).is_sorted());
        assert_eq!(names[0].to_string(), "log-00000001-000-00000009");
        let large = name(u64::MAX, u32::MAX, u64::MAX);
        assert_eq!(Name::parse(&large.to_string()), Some(large));
        for other in
            ["log-1-0-9", "log-00000001-000-00000009.bak", "log-00000001-000", "log-+0000001-000-00000009", "LOCK"]
        {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_header_is_read_as_written_and_a_flipped_bit_is_seen() {
        let name = Name { incarnation: 3, logger: 1, sequence: 4 };
        let header = Header { format: crate::FORMAT, database: 0x1234 << 100, name, nonce: 99, bytes: 8192 };
        let page = header.encode();
        assert_eq!(Header::decode(&page), Some(header));
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = page;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(Header::decode(&page[..10]), None);
        for impossible in [0, 4095, SEGMENT_BYTES_MAX + 1, u64::MAX] {
            assert_eq!(Header::decode(&Header { bytes: impossible, ..header }.encode()), None);
        }
    }

    #[test]
    fn the_format_is_one_of_a_segment() {
        let mut page = *b"SRTMLOG1\x01\0\0\0\x02\0\0\0DATABASEdatabase\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0....";
        let crc = crc32fast::hash(&page[..48]);
        page[48..].copy_from_slice(&crc.to_le_bytes());
        let name = Name { incarnation: 3, logger: 2, sequence: 4 };
        let database = u128::from_le_bytes(*b"DATABASEdatabase");
        let header = Header::decode(&page).expect("it is read");
        assert_eq!(header, Header { format: 1, database, name, nonce: 0, bytes: 0 });
        assert_eq!((header.salt(), header.whole_bytes()), (Salt::NONE, None));
        assert_eq!(header.encode()[..52], page);
    }

    #[test]
    fn the_format_is_two_of_a_segment() {
        let name = Name { incarnation: 3, logger: 2, sequence: 4 };
        let database = u128::from_le_bytes(*b"DATABASEdatabase");
        let header = Header { format: 2, database, name, nonce: u64::from_le_bytes(*b"anonce.."), bytes: 8192 };
        let page = header.encode();
        let before = b"SRTMLOG1\x02\0\0\0\x02\0\0\0DATABASEdatabase\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0anonce..\0\x20\0\0\0\0\0\0";
        assert_eq!(page[..64], before[..]);
        assert_eq!(page[64..68], crc32fast::hash(before).to_le_bytes());
    }
}
