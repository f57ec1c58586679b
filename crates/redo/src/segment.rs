//! Segments: pre-zeroed files that hold batches.
//!
//! Invariant: every byte of a segment was written and synced as a zero before a batch is written over it. So
//! flushing a batch changes neither the length of the file nor its place on the disk, and a full disk is
//! noticed early. The name of a segment is synced before its first batch is written.
//!
//! The next segment is zeroed in pieces of twice the bytes that were just flushed, once the current segment is
//! half full. So it is ready when it is needed, and no flush waits for all of it.
//!
//! ```text
//! log-<incarnation>-<logger>-<sequence>     decimal, padded so that names sort
//! header page, 4096 bytes, little-endian: magic "SRTMLOG1" | format u32 | logger u32 | database u128 |
//!         incarnation u64 | sequence u64 | nonce u64 | bytes u64 | crc32 of the bytes before it u32 | zeros
//! batches, each at a multiple of 4096, the last page kept for a link
//! ```
//! Segments of format 1 have neither nonce nor length. The header is written last, so a segment with a header
//! has the length that the header states. It is cut only after the manifest states where its log ends.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use seriatim_base::disk::{Disk, DiskFile, Opening};

use crate::LogError;
use crate::batch::{Link, PAGE, Salt};

const MAGIC: &[u8; 8] = b"SRTMLOG1";
/// Bytes of the header page that its checksum covers, in format 1.
const CHECKED_1: usize = 48;
/// The same, from format 2 on.
const CHECKED: usize = 64;
/// Bytes of the header page before its padding.
const HEADER_BYTES: usize = CHECKED + 4;
/// The largest segment, in bytes: a batch of 4 GiB fits.
pub const SEGMENT_BYTES_MAX: u64 = 8 << 30;
/// The least that is zeroed at a time, in bytes.
const PIECE_MIN: u64 = 1 << 20;

/// Names a segment by incarnation, logger and sequence number. Names sort in the order in which segments are written.
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
    /// Parses a file name. Returns `None` for any other file.
    pub fn parse(file_name: &str) -> Option<Name> {
        let mut parts = file_name.strip_prefix("log-")?.split('-');
        let mut part = || parts.next()?.parse::<u64>().ok();
        let name = Name { incarnation: part()?, logger: u32::try_from(part()?).ok()?, sequence: part()? };
        // Only the form that `Display` writes: no sign, no other padding.
        (name.to_string() == file_name).then_some(name)
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format of the segment.
    pub format: u32,
    /// The database it belongs to.
    pub database: u128,
    /// The name that its file should have.
    pub name: Name,
    /// Random; the checksums in the segment cover it. Zero in format 1.
    pub nonce: u64,
    /// The length of the file in bytes, unless it was cut. Zero in format 1.
    pub bytes: u64,
}

impl Header {
    /// Encodes the header page.
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

    /// Decodes the header at the front of `bytes`, of any format, if its checksum is right.
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

    /// The state with which the checksums in the segment begin.
    pub fn salt(&self) -> Salt {
        if self.format == 1 { Salt::NONE } else { Salt::of(self.nonce) }
    }

    /// The length of the file, if the header states it.
    pub fn whole_bytes(&self) -> Option<u64> {
        (self.format > 1).then_some(self.bytes)
    }
}

/// Bytes of a header that its checksum covers.
fn checked_bytes(format: u32) -> usize {
    if format == 1 { CHECKED_1 } else { CHECKED }
}

/// A segment found in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSegment {
    /// Its name.
    pub name: Name,
    /// Its file.
    pub path: PathBuf,
    /// The file's length.
    pub bytes: u64,
}

/// The segments in a directory, of all incarnations and loggers, sorted by name.
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

/// Deletes the segments of incarnations before `incarnation` in a directory, oldest first. A checkpoint of
/// `incarnation` must be durable, and the manifest must no longer list those incarnations. Returns how many
/// segments it deleted.
///
/// # Errors
/// When the directory cannot be read or changed. The remaining segments may be deleted later.
pub fn delete_before(disk: &dyn Disk, directory: &Path, incarnation: u64) -> Result<usize, LogError> {
    let mut segments = list(disk, directory)?;
    segments.retain(|segment| segment.name.incarnation < incarnation);
    segments.iter().try_for_each(|segment| delete(disk, &segment.path))?;
    Ok(segments.len())
}

/// Deletes the segments of an opening that failed: those of this database from `incarnation` on, which no
/// manifest lists. Looks at every segment, since two databases must not share a log directory: their segments
/// have the same names.
///
/// # Errors
/// [`LogError::NotADatabase`] if a segment belongs to another database; [`LogError::Io`].
pub fn delete_unnamed(disk: &dyn Disk, directory: &Path, database: u128, incarnation: u64) -> Result<(), LogError> {
    for FoundSegment { name, path, .. } in list(disk, directory)? {
        let read = || {
            let mut page = [0; HEADER_BYTES];
            let read = disk.open(&path, Opening::Read)?.read_at(&mut page, 0)?;
            Ok(Header::decode(&page[..read]))
        };
        // A segment without a header was never completed.
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

/// Deletes one segment durably before the next one is deleted. So after a crash no segment is missing between
/// two others, unless a sync failed. A segment that does not exist was deleted by an attempt whose sync failed.
pub(crate) fn delete(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    let failed = || LogError::io("deleting a segment of the log that is no longer needed");
    match disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed()(error)),
        _ => {}
    }
    path.parent().map_or(Ok(()), |directory| disk.sync_dir(directory)).map_err(failed())
}

/// The zeros that fill a segment.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Why bytes did not reach the disk.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There was no space. The operation may be retried.
    Full,
    /// Any other error. The contents of the disk are unknown.
    Final(LogError),
}

impl Failure {
    /// Classifies the error of a write, creation or extension.
    pub(crate) fn of_writing(what: &str) -> impl FnOnce(io::Error) -> Failure {
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::Full,
            _ => Failure::of_syncing(what)(error),
        }
    }

    /// Classifies the error of a sync. It is always final: the kernel may have dropped what it could not write.
    pub(crate) fn of_syncing(what: &str) -> impl FnOnce(io::Error) -> Failure {
        move |error| Failure::Final(LogError::io(what)(error))
    }
}

/// A segment that is being prepared or written.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    file: Box<dyn DiskFile>,
    header: Header,
    /// Its final size.
    bytes: u64,
    /// Bytes that were written and synced as zeros, apart from the header.
    zeroed: u64,
    /// Whether its name is durable.
    named: bool,
    /// Where the next batch goes.
    at: u64,
}

impl Segment {
    /// Creates the file of a segment with room for `room` bytes of batches. The file is empty.
    pub(crate) fn create(disk: &dyn Disk, directory: &Path, header: Header, room: u64) -> Result<Segment, Failure> {
        let path = directory.join(header.name.to_string());
        let file = disk.open(&path, Opening::Create).map_err(Failure::of_writing("creating a segment of the log"))?;
        Ok(Segment { path, file, header, bytes: bytes_for(room), zeroed: 0, named: false, at: PAGE as u64 })
    }

    /// Makes room for `room` bytes of batches in a segment that is still empty.
    pub(crate) fn enlarge(&mut self, room: u64) {
        self.bytes = self.bytes.max(bytes_for(room));
    }

    /// Writes and syncs at most `piece` more bytes of zeros, and with the last piece the header and the name. A
    /// later call continues. Returns whether the segment is ready.
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

    /// The state with which its checksums begin.
    pub(crate) fn salt(&self) -> Salt {
        self.header.salt()
    }

    /// Where the next batch goes.
    pub(crate) fn end(&self) -> u64 {
        self.at
    }

    /// Records durably that batch `number` is in the next segment, which exists. Nothing is written to this
    /// segment afterwards.
    pub(crate) fn link(&self, number: u64) -> Result<(), Failure> {
        let Name { incarnation, sequence, .. } = self.header.name;
        let link = Link { incarnation, number, sequence: sequence + 1 }.encode(self.salt());
        self.file.write_all_at(&link, self.at).map_err(Failure::of_writing("writing the log"))?;
        self.file.sync_data().map_err(Failure::of_syncing("flushing the log"))
    }

    /// Whether the file has been unlinked.
    pub(crate) fn is_removed(&self) -> bool {
        self.file.is_removed()
    }

    /// Whether the next segment should be prepared.
    pub(crate) fn is_half_full(&self) -> bool {
        self.at * 2 >= self.bytes
    }

    /// Frees the space behind the last batch after the log was closed. Nothing relies on it.
    pub(crate) fn trim(&self) {
        // This saves space only: if the cut fails or a power cut undoes it, zeros remain.
        let _ = self.file.set_bytes(self.at).and_then(|()| self.file.sync_data());
    }

    /// Removes a segment that is empty and that nothing relies on.
    pub(crate) fn discard(&self, disk: &dyn Disk) {
        // This saves space only.
        let _ = disk.remove_file(&self.path);
    }

    /// Writes a batch behind the last one.
    pub(crate) fn write(&self, batch: &[u8]) -> Result<(), Failure> {
        debug_assert!(batch.len() as u64 <= self.room() && batch.len().is_multiple_of(PAGE));
        self.file.write_all_at(batch, self.at).map_err(Failure::of_writing("writing the log"))
    }

    /// Flushes the batch that was written, and advances behind it.
    pub(crate) fn flush(&mut self, bytes: u64) -> Result<(), Failure> {
        self.file.sync_data().map_err(Failure::of_syncing("flushing the log"))?;
        self.at += bytes;
        Ok(())
    }
}

/// The size of a segment with room for `room` bytes of batches. One page precedes the batches and one follows them.
fn bytes_for(room: u64) -> u64 {
    (2 * PAGE as u64).saturating_add(room).next_multiple_of(PAGE as u64)
}

/// Bytes to zero after a batch of `batch_bytes` was flushed: twice as many. So a segment that is begun when its
/// predecessor is half full is ready when that is full.
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
        let before = b"SRTMLOG1\x02\0\0\0\x02\0\0\0DATABASEdatabase\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0anonce..\
                       \0\x20\0\0\0\0\0\0";
        assert_eq!(page[..64], before[..]);
        assert_eq!(page[64..68], crc32fast::hash(before).to_le_bytes());
    }
}
