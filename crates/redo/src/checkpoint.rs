//! Checkpoints hold all rows with their TIDs, so that earlier log segments can be deleted.
//!
//! ```text
//! DIR/checkpoint-<epoch>/part-<n>           n from 0, decimal, padded so that names sort; integers little-endian
//! part      header | blocks | footer
//! header    magic "SRTMCKP1" | format u32 | part u32 | database u128 | begin epoch u64 |
//!           crc32 of the bytes before it u32
//! block     magic "BLCK" | crc32 of header bytes 8..32 u32 | crc32 of the payload u32 | payload bytes u32 |
//!           raw bytes u32 | rows u32, whose top bit says that they are of the catalogue | number u64, from 1 |
//!           payload: the rows, compressed by zstd
//! footer    magic "DONE" | crc32 of footer bytes 8..40 u32 | blocks u64 | rows u64 | raw bytes u64 |
//!           bytes of the part u64
//! row       TID u64 | varint layout | key | row        as in entries of the log
//! ```
//! Part 0 begins with the blocks of the catalogue, which have no other rows: others cannot be read without them.
//!
//! Invariant: a checkpoint counts when the manifest lists it, and then it is complete and durable. It is
//! written in `checkpoint-<epoch>.new`. Its parts are synced, then the directory; the directory is renamed, and
//! its parent synced. Only then is the manifest replaced, and only when that is durable is anything deleted. A
//! power cut at any moment leaves the old checkpoint with its log, or the new checkpoint.
//!
//! A checkpoint is fuzzy: its rows are from `begin_epoch` to `end_epoch`, each with its own TID. Only with the
//! log from `begin_epoch` on do they form a state. It may omit rows of `begin_epoch` and later if that log has
//! them as whole rows. The steps of a checkpoint:
//! 1. The database reads the epoch B and waits until all commits of earlier epochs are in memory. To omit rows,
//!    it first makes commits log the first change of a row as a whole row, and then begins epoch B. Commits
//!    stop doing so after step 3.
//! 2. It walks the catalogue and its tables into [`PartWriter`]s, and flushes these at points where no transaction
//!    waits for it.
//! 3. It reads the epoch e and waits until e is durable **on disk**: a row of an epoch that a crash undoes must
//!    not count.
//! 4. [`CheckpointWriter::finish`], then the manifest. The checkpoint counts.
//! 5. It deletes superfluous files: [`delete_unnamed`], [`delete_superfluous_logs`], and the log's own segments
//!    below B.
//!
//! An abandoned checkpoint is useless and may be large. [`delete_unnamed`] deletes it at once, before the next
//! checkpoint, and when the database is opened.

mod clean;
mod name;
mod read;
mod sound;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
mod write;

use seriatim_base::Epoch;

pub(crate) use self::clean::Deleting;
pub use self::clean::{delete_superfluous_logs, delete_unfinished, delete_unnamed, forget_superfluous_logs, is_needed};
pub use self::name::is_reserved;
pub(crate) use self::read::Parts;
pub use self::read::{Loaded, bytes_found, load};
pub use self::sound::Sound;
pub use self::write::{CheckpointWriter, PartTotals, PartWriter};

/// Bytes of rows in a block, before compression.
const BLOCK_BYTES: usize = if cfg!(test) { 512 } else { 256 << 10 };
/// The compression level. Compression runs beside transactions, and rows have few repetitions that a higher
/// level would find.
const LEVEL: i32 = -5;

const PART_MAGIC: &[u8; 8] = b"SRTMCKP1";
const PART_HEADER_BYTES: usize = 44;
const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"BLCK");
const BLOCK_HEADER_BYTES: usize = 32;
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"DONE");
const FOOTER_BYTES: usize = 40;

const ADVICE: &str = "restore a backup: the log before the checkpoint is gone";

/// The name of a part's file.
fn part_name(part: u32) -> String {
    format!("part-{part:04}")
}

/// The header of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartHeader {
    format: u32,
    part: u32,
    database: u128,
    begin: Epoch,
}

impl PartHeader {
    fn encode(&self) -> [u8; PART_HEADER_BYTES] {
        let mut bytes = [0; PART_HEADER_BYTES];
        bytes[..8].copy_from_slice(PART_MAGIC);
        bytes[8..12].copy_from_slice(&self.format.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.part.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.database.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.begin.0.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..40]);
        bytes[40..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; PART_HEADER_BYTES]) -> Option<PartHeader> {
        let checks_out = bytes.starts_with(PART_MAGIC) && u32_at(bytes, 40) == crc32fast::hash(&bytes[..40]);
        checks_out.then(|| PartHeader {
            format: u32_at(bytes, 8),
            part: u32_at(bytes, 12),
            database: u128::from_le_bytes(std::array::from_fn(|at| bytes[16 + at])),
            begin: Epoch(u64_at(bytes, 32)),
        })
    }
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockHeader {
    payload_crc: u32,
    payload_bytes: u32,
    raw_bytes: u32,
    rows: u32,
    /// Whether these are rows of the catalogue.
    has_catalogue: bool,
    number: u64,
}

/// The bit that says so.
const CATALOGUE: u32 = 1 << 31;

impl BlockHeader {
    fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.raw_bytes.to_le_bytes());
        let rows = self.rows | if self.has_catalogue { CATALOGUE } else { 0 };
        bytes[20..24].copy_from_slice(&rows.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        sealed(bytes, BLOCK_MAGIC)
    }

    fn decode(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<BlockHeader> {
        is_sealed(bytes, BLOCK_MAGIC).then(|| BlockHeader {
            payload_crc: u32_at(bytes, 8),
            payload_bytes: u32_at(bytes, 12),
            raw_bytes: u32_at(bytes, 16),
            rows: u32_at(bytes, 20) & !CATALOGUE,
            has_catalogue: u32_at(bytes, 20) & CATALOGUE != 0,
            number: u64_at(bytes, 24),
        })
    }
}

/// The end of a complete part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Footer {
    blocks: u64,
    rows: u64,
    raw_bytes: u64,
    bytes: u64,
}

impl Footer {
    fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        for (at, value) in [self.blocks, self.rows, self.raw_bytes, self.bytes].into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&value.to_le_bytes());
        }
        sealed(bytes, FOOTER_MAGIC)
    }

    fn decode(bytes: &[u8; FOOTER_BYTES]) -> Option<Footer> {
        is_sealed(bytes, FOOTER_MAGIC).then(|| Footer {
            blocks: u64_at(bytes, 8),
            rows: u64_at(bytes, 16),
            raw_bytes: u64_at(bytes, 24),
            bytes: u64_at(bytes, 32),
        })
    }
}

/// Writes magic and checksum at the front of `bytes`.
fn sealed<const N: usize>(mut bytes: [u8; N], magic: u32) -> [u8; N] {
    let crc = crc32fast::hash(&bytes[8..]);
    bytes[..4].copy_from_slice(&magic.to_le_bytes());
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn is_sealed(bytes: &[u8], magic: u32) -> bool {
    u32_at(bytes, 0) == magic && u32_at(bytes, 4) == crc32fast::hash(&bytes[8..])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}
