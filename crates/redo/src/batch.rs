//! Batches: a logger writes and flushes one batch at a time.
//!
//! Invariant: a batch begins at a multiple of [`PAGE`], and no other batch is ever written to its pages. So
//! writing one batch cannot damage a flushed one. The header alone tells whether header and payload are intact.
//!
//! ```text
//! header, 64 bytes, little-endian
//!    0  magic u32                  24  closed epoch u64
//!    4  checksum of bytes 8..64 u32 32 durable epoch known u64
//!    8  crc32 of the payload u32   40  newest epoch in the payload u48
//!   12  payload bytes u32          46  newest epoch before it u48
//!   16  number u64                 52  groups u32, whose top bit says that some are of the catalogue
//!                                  56  incarnation u64
//! payload: groups, one after the other (module `entry`); then zeros up to a multiple of PAGE
//! link, behind the last batch of a segment that was filled: the log goes on in the next one
//!    0  magic u32                   8  incarnation u64            24  sequence of the next segment u64
//!    4  checksum of bytes 8..32 u32 16 number of the next batch u64
//! ```
//! A batch is written only after the batch before it was flushed. So a batch that fails its checksums is a torn
//! tail if no batch of a higher number exists, and damage otherwise. The checksums of headers and links begin
//! with the nonce of their segment ([`Salt`]). Therefore bytes of a row are never taken for a header, even at a
//! place where a batch could begin.

use seriatim_base::Epoch;

use crate::narrow;

/// The unit of space in a segment, in bytes. A disk writes each page, or each of its eight sectors, separately.
pub const PAGE: usize = 4096;
/// Bytes of a batch's header.
pub const HEADER_BYTES: usize = 64;

/// Bytes of a link.
pub const LINK_BYTES: usize = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"BTCH");
/// The bit that says that some groups are of the catalogue.
const CATALOGUE: u32 = 1 << 31;
const LINK_MAGIC: u32 = u32::from_le_bytes(*b"NEXT");

/// The state with which the checksums of headers in one segment begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(u32);

impl Salt {
    /// For segments of format 1, which have no nonce.
    pub const NONE: Salt = Salt(0);

    /// For a segment with this nonce.
    pub fn of(nonce: u64) -> Salt {
        Salt(crc32fast::hash(&nonce.to_le_bytes()))
    }

    /// The crc32 of the nonce and `bytes`.
    pub(crate) fn checksum(self, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// Follows the last batch of a filled segment. It is flushed before the first batch of the next segment is
/// written, so a missing next segment is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The incarnation that wrote it.
    pub incarnation: u64,
    /// The number of the first batch in the next segment.
    pub number: u64,
    /// The next segment.
    pub sequence: u64,
}

impl Link {
    /// The link's bytes.
    pub fn encode(&self, salt: Salt) -> [u8; LINK_BYTES] {
        let mut bytes = [0; LINK_BYTES];
        for (at, value) in [self.incarnation, self.number, self.sequence].into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&value.to_le_bytes());
        }
        let crc = salt.checksum(&bytes[8..]);
        bytes[0..4].copy_from_slice(&LINK_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the link at the front of `bytes`, if its checksum is right.
    pub fn decode(bytes: &[u8], salt: Salt) -> Option<Link> {
        let bytes: &[u8; LINK_BYTES] = bytes.first_chunk()?;
        let checks_out = u32_at(bytes, 0) == LINK_MAGIC && u32_at(bytes, 4) == salt.checksum(&bytes[8..]);
        checks_out.then(|| Link {
            incarnation: u64_at(bytes, 8),
            number: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
        })
    }
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Contiguous from 1 within an incarnation and logger, across segments.
    pub number: u64,
    /// The incarnation that wrote it.
    pub incarnation: u64,
    /// All commits of this logger's writers up to this epoch are in this batch or in earlier ones.
    pub closed: Epoch,
    /// The durable epoch when the batch was written: every logger had closed it on disk. Recovery finds at
    /// least this epoch.
    pub durable: Epoch,
    /// The newest epoch of a group in the payload, or zero without groups.
    pub newest: Epoch,
    /// The newest epoch of a group in earlier batches of this logger and incarnation. It tells whether the log
    /// may begin here after earlier batches were deleted.
    pub newest_before: Epoch,
    /// Groups in the payload.
    pub groups: u32,
    /// Whether some of them are of the catalogue.
    pub has_catalogue: bool,
    /// Bytes of the payload, without padding.
    pub payload_bytes: u32,
    /// Checksum of the payload.
    pub payload_crc: u32,
}

impl Header {
    /// Encodes the header for a segment with this salt.
    pub fn encode(&self, salt: Salt) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.closed.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.durable.0.to_le_bytes());
        bytes[40..46].copy_from_slice(&self.newest.0.to_le_bytes()[..6]);
        bytes[46..52].copy_from_slice(&self.newest_before.0.to_le_bytes()[..6]);
        let groups = self.groups | if self.has_catalogue { CATALOGUE } else { 0 };
        bytes[52..56].copy_from_slice(&groups.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.incarnation.to_le_bytes());
        let crc = salt.checksum(&bytes[8..]);
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the header at the front of `bytes`, if its checksum is right in a segment with this salt. It
    /// does not check the payload: see [`Header::holds`].
    pub fn decode(bytes: &[u8], salt: Salt) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let checks_out = u32_at(bytes, 0) == MAGIC && u32_at(bytes, 4) == salt.checksum(&bytes[8..]);
        checks_out.then(|| Header {
            number: u64_at(bytes, 16),
            incarnation: u64_at(bytes, 56),
            closed: Epoch(u64_at(bytes, 24)),
            durable: Epoch(u64_at(bytes, 32)),
            newest: Epoch(u48_at(bytes, 40)),
            newest_before: Epoch(u48_at(bytes, 46)),
            groups: u32_at(bytes, 52) & !CATALOGUE,
            has_catalogue: u32_at(bytes, 52) & CATALOGUE != 0,
            payload_bytes: u32_at(bytes, 12),
            payload_crc: u32_at(bytes, 8),
        })
    }

    /// The header with epochs of today, if it is in a segment of this format. Epoch zero says that there are no groups.
    pub(crate) fn widened(self, format: u32) -> Header {
        let last = |epoch| if epoch == Epoch(0) { epoch } else { narrow::last(format, epoch) };
        self.with_epochs(|epoch| narrow::last(format, epoch), last)
    }

    /// The header as it is written in a segment of this format.
    pub(crate) fn narrowed(self, format: u32) -> Header {
        let narrowed = |epoch| narrow::narrowed(format, epoch);
        self.with_epochs(narrowed, narrowed)
    }

    fn with_epochs(self, end: impl Fn(Epoch) -> Epoch, newest: impl Fn(Epoch) -> Epoch) -> Header {
        let Header { closed, durable, newest: in_it, newest_before, .. } = self;
        Header {
            closed: end(closed),
            durable: end(durable),
            newest: newest(in_it),
            newest_before: newest(newest_before),
            ..self
        }
    }

    /// Whether this is the payload that was written with the header.
    pub fn holds(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_bytes as usize && crc32fast::hash(payload) == self.payload_crc
    }

    /// Bytes from the start of this batch to where the next batch may begin.
    pub fn bytes(&self) -> u64 {
        padded(HEADER_BYTES + self.payload_bytes as usize) as u64
    }
}

/// `bytes` rounded up to a multiple of [`PAGE`].
pub fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Reads 48 bits: an epoch has fewer.
fn u48_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| if i < 6 { bytes[at + i] } else { 0 }))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn header(payload: &[u8]) -> Header {
        Header {
            number: 7,
            incarnation: 3,
            closed: Epoch(40),
            durable: Epoch(39),
            newest: Epoch(41),
            newest_before: Epoch(40),
            groups: 2,
            has_catalogue: false,
            payload_bytes: payload.len() as u32,
            payload_crc: crc32fast::hash(payload),
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written_and_a_flipped_bit_is_seen() {
        let payload = b"payload";
        let header = header(payload);
        assert!(header.holds(payload) && !header.holds(b"paYload") && !header.holds(b"payloads"));
        for salt in [Salt::NONE, Salt::of(0), Salt::of(77)] {
            let bytes = header.encode(salt);
            assert_eq!(Header::decode(&bytes, salt), Some(header));
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Header::decode(&damaged, salt), None, "bit {bit}");
            }
            assert_eq!(Header::decode(&bytes[..63], salt), None);
            assert_eq!(Header::decode(&[0; 64], salt), None, "zeros are not a batch");
            assert_eq!(Header::decode(&bytes, Salt::of(78)), None, "the header belongs to another segment");
        }
    }

    #[test]
    fn a_link_is_read_as_it_was_written_and_a_flipped_bit_is_seen() {
        let (link, salt) = (Link { incarnation: 3, number: 8, sequence: 2 }, Salt::of(5));
        let bytes = link.encode(salt);
        assert_eq!(Link::decode(&bytes, salt), Some(link));
        assert_eq!((Link::decode(&bytes, Salt::of(6)), Link::decode(&bytes[..31], salt)), (None, None));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Link::decode(&damaged, salt), None, "bit {bit}");
        }
    }

    #[test]
    fn batches_end_at_a_page() {
        assert_eq!([padded(64), padded(4096), padded(4097)], [4096, 4096, 8192]);
        assert_eq!(header(&[0; 4033]).bytes(), 8192);
    }
}
