//! Tables that were created after a manifest of format 3 was written. Later formats have a
//! [`catalogue`](crate::catalogue) instead, so this only reads.
//!
//! A manifest listed all tables. Where it was long, new tables were appended to the file `MANIFEST.tables`. The next
//! manifest included them.
//!
//! ```text
//! header, 32 bytes, little-endian             record, 24 bytes, then JSON (`mirror::Addition`)
//!    0  magic "SRTMTAB1"                         0  magic "TADD"
//!    8  bytes of the manifest u64                4  crc32 of the nonce and bytes 8 to 24
//!   16  nonce u64                                8  number u64, from 1
//!   24  crc32 that the manifest states u32      16  bytes of the JSON u32
//!   28  crc32 of the bytes before it u32        20  crc32 of the JSON u32
//! ```
//! Invariant: the file counts only beside the manifest that its header names. So a new manifest makes it void. The
//! header was durable before the first record was written, and each record before the next one. So at most the last
//! record is torn. A record was written over durable zeros, a disk writes a sector as a whole or not at all, and JSON
//! has no zero bytes. So a record that fails its checksums is damaged if a later record is sound, or if none of its
//! sectors is missing.
//!
//! A last record that was durable and lost a sector later looks like a torn one. Recovery then refuses the entries of
//! its tables in the log.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use seriatim_base::disk::{Disk, Opening};

use super::{ADVICE, MANIFEST, MANIFEST_BYTES_MAX, mirror};
use crate::LogError;
use crate::batch::Salt;
use crate::catalogue::Catalogue;

/// The name of the file.
pub const ADDITIONS: &str = "MANIFEST.tables";

const MAGIC: &[u8; 8] = b"SRTMTAB1";
const HEADER_BYTES: usize = 32;
const RECORD_MAGIC: &[u8; 4] = b"TADD";
const RECORD_BYTES: usize = 24;
/// A disk writes a sector as a whole, or not at all.
const SECTOR_BYTES: usize = 512;

/// JSON of a manifest is indented, that of additions is not. It is at most this many times as long.
pub const INDENTATION: u64 = 4;

/// The length and the checksum of the manifest's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    bytes: u64,
    crc: u32,
}

impl Base {
    /// Of these bytes of the file, whose last line is sound.
    pub(super) fn of(bytes: &[u8]) -> Option<Base> {
        let digits = bytes.strip_suffix(b"\n")?.last_chunk::<8>()?;
        let crc = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        Some(Base { bytes: bytes.len() as u64, crc })
    }

    /// Of the file in this directory.
    pub(super) fn find(disk: &dyn Disk, directory: &Path) -> std::io::Result<Option<Base>> {
        let file = disk.open(&directory.join(MANIFEST), Opening::Read)?;
        let (bytes, mut end) = (file.bytes()?, [0; 9]);
        let Some(begin) = bytes.checked_sub(end.len() as u64) else { return Ok(None) };
        file.read_exact_at(&mut end, begin)?;
        Ok(Base::of(&end).map(|base| Base { bytes, ..base }))
    }
}

fn header(base: Base, nonce: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&base.bytes.to_le_bytes());
    bytes[16..24].copy_from_slice(&nonce.to_le_bytes());
    bytes[24..28].copy_from_slice(&base.crc.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The number and the JSON of the record at the front of `bytes`, if its header is sound. The JSON is `None` if it is
/// cut off or fails its checksum.
fn record_at(bytes: &[u8], salt: Salt) -> Option<(u64, Option<&[u8]>)> {
    let (head, rest) = bytes.split_first_chunk::<RECORD_BYTES>()?;
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    if !head.starts_with(RECORD_MAGIC) || u32_at(4) != salt.checksum(&head[8..]) {
        return None;
    }
    let number = u64::from_le_bytes(std::array::from_fn(|i| head[8 + i]));
    let json = rest.get(..u32_at(16) as usize).filter(|json| crc32fast::hash(json) == u32_at(20));
    Some((number, json))
}

/// Whether a power cut can have left the bytes at `at` in place of a sound record. Then the record is missing, the file
/// ends within it, or one of its sectors has no byte of it.
fn is_torn(bytes: &[u8], at: usize, salt: Salt) -> bool {
    let rest = &bytes[at..];
    // Where only the header's length is known, the JSON does not count.
    let json_bytes = record_at(rest, salt).map_or(0, |_| u32::from_le_bytes(std::array::from_fn(|i| rest[16 + i])));
    let end = at + RECORD_BYTES + json_bytes as usize;
    let sectors = (at / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)).map(|sector| sector * SECTOR_BYTES);
    let is_missing =
        |sector: usize| bytes[sector.max(at)..(sector + SECTOR_BYTES).min(bytes.len())].iter().all(|byte| *byte == 0);
    end > bytes.len() || sectors.into_iter().any(is_missing)
}

/// Whether the directory has the file.
pub(super) fn is_there(disk: &dyn Disk, directory: &Path) -> std::io::Result<bool> {
    Ok(disk.find(&directory.join(ADDITIONS))?.is_some())
}

/// Adds the tables of the file beside the manifest, if the file names this manifest.
///
/// # Errors
/// [`LogError::Corrupt`], [`LogError::Io`].
pub(super) fn read(disk: &dyn Disk, directory: &Path, base: Base, catalogue: &mut Catalogue) -> Result<(), LogError> {
    let path = directory.join(ADDITIONS);
    let read = || -> std::io::Result<Vec<u8>> {
        if !is_there(disk, directory)? {
            return Ok(Vec::new());
        }
        let file = disk.open(&path, Opening::Read)?;
        let mut bytes = vec![0; usize::try_from(file.bytes()?.min(MANIFEST_BYTES_MAX)).unwrap_or(usize::MAX)];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    };
    let read = match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    };
    decode(&read.map_err(LogError::io("reading the list of new tables"))?, path, base, catalogue)
}

fn decode(bytes: &[u8], path: PathBuf, base: Base, catalogue: &mut Catalogue) -> Result<(), LogError> {
    let corrupt = |at: usize, problem: String| LogError::corrupt(&path, at as u64, problem, ADVICE);
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>().filter(|_| bytes.len() > HEADER_BYTES) else {
        // The file is missing or has no record.
        return Ok(());
    };
    let nonce = u64::from_le_bytes(std::array::from_fn(|i| head[16 + i]));
    let stated = Base {
        bytes: u64::from_le_bytes(std::array::from_fn(|i| head[8 + i])),
        crc: u32::from_le_bytes(std::array::from_fn(|i| head[24 + i])),
    };
    if *head != header(stated, nonce) {
        return Err(corrupt(0, "its header is damaged".to_owned()));
    }
    if stated != base {
        return Ok(());
    }
    let (salt, mut at) = (Salt::of(nonce), HEADER_BYTES);
    for number in 1.. {
        let found = record_at(&bytes[at..], salt).filter(|(found, _)| *found == number);
        let Some((_, Some(json))) = found else { break };
        let added = std::str::from_utf8(json).map_err(|error| error.to_string());
        let added = added.and_then(|json| mirror::add_from_json(catalogue, json));
        added.map_err(|problem| corrupt(at, format!("the record's checksum is right, but {problem}")))?;
        at += RECORD_BYTES + json.len();
    }
    let is_record = |place: &usize| record_at(&bytes[*place..], salt).is_some();
    if let Some(later) = (at + 1..bytes.len()).find(is_record) {
        return Err(corrupt(at, format!("the record here is damaged, but the one at byte {later} is sound")));
    }
    if !is_torn(bytes, at, salt) {
        return Err(corrupt(at, "the record here is damaged: all of it was written".to_owned()));
    }
    catalogue.check().map_err(|problem| corrupt(HEADER_BYTES, problem))
}

#[cfg(all(test, not(loom)))]
mod tests;
