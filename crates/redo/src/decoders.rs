//! Tests of every decoder of files, with damaged images, random bytes and impossible lengths. A decoder must
//! return, and must not allocate much more memory than the bytes that it read.

use std::path::{Path, PathBuf};

use seriatim_base::allocation::{Watching, watch};
use seriatim_base::disk::{Disk, Opening};
use seriatim_base::{Epoch, Rng, rng};

use crate::batch::{self, HEADER_BYTES, LINK_BYTES, Link, PAGE, Salt};
use crate::checkpoint::{self, CheckpointWriter};
use crate::manifest::{Checkpoint, Manifest};
use crate::replay::{Apply, Outcome, Replay, Version};
use crate::segment::{self, Name};
use crate::synthetic::{Accounts, DATABASE, Database, LAYOUT, Write, as_row, header, salt, tid};
use crate::{LogError, Tables, backup, entry};

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// Allocations that do not depend on the input: fixed buffers, of this crate or of the compressor.
const FIXED_BYTES: usize = 1 << 20;
/// The largest single allocation for each byte of input.
const FACTOR: usize = 64;

/// Decodes, and checks that no allocation was larger than `input_bytes` explain.
#[track_caller]
fn within<R>(input_bytes: usize, decode: impl FnOnce() -> R) -> R {
    let ((decoded, _, largest), most) = (watch(decode), FIXED_BYTES + FACTOR * input_bytes);
    assert!(largest <= most, "{largest} bytes were allocated at once for {input_bytes} bytes of input");
    decoded
}

#[test]
#[should_panic(expected = "were allocated at once for 10 bytes of input")]
fn canary_an_allocation_of_a_claimed_length_is_noticed() {
    let length = FIXED_BYTES + FACTOR * 10 + 1;
    within(10, || std::hint::black_box(vec![0_u8; length]));
}

/// Runs random cases: half as many with each change, `SERIATIM_ROUNDS` times as many if that is set. The seed is
/// printed first. `cargo xtask fuzz` runs longer.
fn each(cases: u64, mut case: impl FnMut(&mut Rng)) {
    let seed = rng::seed("each");
    let rounds = std::env::var("SERIATIM_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for number in 0..rng::tries(cases / 2, cases) * rounds {
        case(&mut Rng::from_seed(seed.wrapping_add(number)));
    }
}

/// Numbers at which decoders tend to fail.
const EXTREMES: [u64; 8] = [0, 1, 0x7F, 0xFF, 0xFFFF, u32::MAX as u64, 1 << 40, u64::MAX];

/// Damages bytes by flips, extreme numbers, cuts and repetitions; or returns random bytes.
fn damaged(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    if rng.percent(10) {
        return (0..rng.below(300)).map(|_| rng.next_u64() as u8).collect();
    }
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.range(1, 4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(5) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.next_u64() as u8,
            2 => {
                let number = EXTREMES[rng.below(EXTREMES.len() as u64) as usize].to_le_bytes();
                let room = (bytes.len() - at).min([1, 2, 4, 8][rng.below(4) as usize]);
                bytes[at..at + room].copy_from_slice(&number[..room]);
            }
            3 => bytes.truncate(at),
            _ => {
                let piece = bytes[at..(at + 40).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, piece));
            }
        }
    }
    bytes
}

/// A database with two loggers and a checkpoint of three rows.
fn sound(seed: u64) -> Database {
    let mut database = Database::new(seed, 2);
    for epoch in 10..14 {
        for logger in 0..2 {
            let id = 10 * epoch as u32 + logger;
            let writes = vec![Write::Row(id, (1, 2)), Write::Update(id, (1, 2), (3, 2)), Write::Add(id, 4)];
            database.batch((1, logger), epoch, epoch - 1, &[(tid(epoch, 1), writes)]);
        }
        if epoch == 11 {
            database.roll(1, 0);
        }
    }
    let disk = std::sync::Arc::new(database.disk.clone());
    let writer = CheckpointWriter::begin(disk, &database.directory, DATABASE, Epoch(11), None).unwrap();
    let mut part = writer.part(0).unwrap();
    for id in [1, 2, 3] {
        let image = database.accounts.image(id, (5, 6));
        let key = seriatim_catalog::Key::Word8(id.into());
        part.row(LAYOUT, &database.accounts.wire, key, tid(10, 9), as_row(&image));
    }
    let parts = vec![part.finish().unwrap()];
    database.manifest.checkpoint = Some(writer.finish(parts, Epoch(12)).unwrap());
    database.manifest.write(&database.disk, &database.directory).unwrap();
    database
}

fn contents(database: &Database, path: &Path) -> Vec<u8> {
    let file = database.disk.open(path, Opening::Read).unwrap();
    let mut bytes = vec![0; file.bytes().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn replace(database: &Database, path: &Path, bytes: &[u8]) {
    let file = database.disk.open(path, Opening::Write).unwrap();
    file.set_bytes(0).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

/// Whether damage explains an error.
fn is_explained(error: &LogError) -> bool {
    matches!(
        error,
        LogError::Corrupt { .. } | LogError::Format { .. } | LogError::NotADatabase { .. } | LogError::Io { .. }
    )
}

/// Accepts every version.
struct Taker;

impl Apply for Taker {
    fn apply(&self, _: usize, _: &Version<'_>) -> Result<Outcome, LogError> {
        Ok(Outcome::Applied)
    }
}

/// Recovers and verifies the directory. Both must return.
fn recover(database: &Database, manifest: &Manifest) -> Result<(), LogError> {
    checkpoint::load(&database.disk, &database.directory, manifest, &database.tables(), 1, &Taker, &|_| {})?;
    Replay::open(&database.disk, &database.directory, manifest)?.run(&database.disk, 1, &Taker, &|_| {})?;
    backup::verify(&database.disk, &database.directory, &|_, _| {}).map(drop)
}

#[test]
fn headers_are_read_or_refused() {
    let (name, crafted) =
        (Name { incarnation: 1, logger: 0, sequence: 1 }, Link { incarnation: 1, number: 2, sequence: 2 });
    let (segment, link) = (header(name).encode(), crafted.encode(salt(name)));
    each(5_000, |rng| {
        let bytes = damaged(&segment[..80], rng);
        within(bytes.len(), || segment::Header::decode(&bytes));
        let bytes = damaged(&link, rng);
        within(bytes.len(), || (Link::decode(&bytes, salt(name)), batch::Header::decode(&bytes, Salt::NONE)));
    });
}

#[test]
fn manifests_are_read_or_refused() {
    let database = sound(1);
    let whole = contents(&database, &database.directory.join("MANIFEST"));
    let text = whole.rsplitn(3, |&byte| byte == b'\n').last().expect("a line above the checksum").to_vec();
    let numbers = ["0", "-1", "4294967295", "4294967296", "18446744073709551615", "1e400", "null", "[]", "\"a\""];
    each(1_000, |rng| {
        let mut bytes = if rng.percent(50) { damaged(&text, rng) } else { text.clone() };
        if rng.percent(60) {
            // Replaces a number by another one.
            let places: Vec<usize> =
                (1..bytes.len()).filter(|&at| bytes[at].is_ascii_digit() && bytes[at - 1] == b' ').collect();
            if let Some(&at) = places.get(rng.below(places.len().max(1) as u64) as usize) {
                let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let other = numbers[rng.below(numbers.len() as u64) as usize];
                drop(bytes.splice(at..at + digits, other.bytes()));
            }
        }
        bytes.push(b'\n');
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(format!("crc32 {crc:08x}\n").as_bytes());
        match within(bytes.len(), || Manifest::decode(&bytes, Path::new("MANIFEST"))) {
            Ok(manifest) => {
                // An accepted manifest is usable.
                within(bytes.len() + (1 << 20), || manifest.inherited.as_ref().map(Tables::new));
                let _ = within(1 << 20, || recover(&database, &manifest));
            }
            Err(error) => assert!(is_explained(&error), "{error}"),
        }
    });
}

#[test]
fn entries_rows_and_keys_are_read_or_refused() {
    let (accounts, tables) = (Accounts::new(), sound(1).tables());
    let writes =
        vec![Write::Row(1, (1, -1)), Write::Update(1, (1, -1), (2, 5)), Write::Add(1, 1 << 40), Write::Delete(1)];
    let (payload, _) = accounts.payload(&[(tid(10, 1), writes.clone()), (tid(11, 7), writes)]);
    each(5_000, |rng| {
        let bytes = damaged(&payload, rng);
        within(bytes.len(), || {
            for group in entry::groups(&bytes).flatten() {
                for entry in group.entries(&tables).flatten() {
                    let rows = &accounts.wire;
                    // Bytes that were skipped can be decoded.
                    let image = |decode: &dyn Fn(&mut seriatim_catalog::RowWriter<'_>)| {
                        Accounts::writing(&mut accounts.image(0, (0, 0)), |row| decode(row));
                    };
                    match entry.change {
                        entry::Change::Row(bytes) => image(&|row| rows.decode_row(bytes, row).expect("it was checked")),
                        entry::Change::Patch(bytes) => {
                            image(&|row| rows.decode_patch(bytes, row).expect("it was checked"))
                        }
                        entry::Change::Delta(bytes) => image(&|row| {
                            let _ = rows.decode_delta(bytes, row);
                        }),
                        entry::Change::Delete => {}
                    }
                }
            }
            let rows = &accounts.wire;
            let _ = (rows.decode_key(&mut &bytes[..]), rows.skip_row(&mut &bytes[..]));
            let _ = (rows.skip_patch(&mut &bytes[..]), rows.skip_delta(&mut &bytes[..]));
        });
    });
}

#[test]
fn logs_are_replayed_or_refused() {
    let segments = [(0, 1), (0, 2), (1, 1)].map(|(logger, sequence)| Name { incarnation: 1, logger, sequence });
    each(150, |rng| {
        let database = sound(rng.next_u64());
        let name = segments[rng.below(3) as usize];
        let path = database.segment(1, name.logger, name.sequence);
        let mut bytes = contents(&database, &path);
        let page = rng.below(5) as usize * PAGE;
        let mut of_page = damaged(&bytes[page..page + 200], rng);
        of_page.resize(200, 0);
        bytes[page..page + 200].copy_from_slice(&of_page);
        if rng.percent(60) {
            // Recomputes the checksums over the damage.
            let length = u32::from_le_bytes(bytes[page + 12..page + 16].try_into().expect("four bytes"));
            let payload = page + HEADER_BYTES..(page + HEADER_BYTES).saturating_add(length as usize).min(bytes.len());
            let crc = crc32fast::hash(&bytes[payload]);
            bytes[page + 8..page + 12].copy_from_slice(&crc.to_le_bytes());
            let is_link = bytes[page..].starts_with(b"NEXT");
            let checked = page + 8..page + if is_link { LINK_BYTES } else { HEADER_BYTES };
            let crc = match page {
                0 => crc32fast::hash(&bytes[..64]),
                _ => salt(name).checksum(&bytes[checked]),
            };
            let place = if page == 0 { 64 } else { page + 4 };
            bytes[place..place + 4].copy_from_slice(&crc.to_le_bytes());
        }
        replace(&database, &path, &bytes);
        if rng.percent(30) {
            database
                .disk
                .open(&path, Opening::Write)
                .unwrap()
                .set_bytes([0, 1, 4097, 1 << 30][rng.below(4) as usize])
                .unwrap();
        }
        if let Err(error) = within(bytes.len(), || recover(&database, &database.manifest)) {
            assert!(is_explained(&error), "{error}");
        }
    });
}

#[test]
fn checkpoints_are_loaded_or_refused() {
    each(400, |rng| {
        let mut database = sound(rng.next_u64());
        let directory = database.manifest.checkpoint.as_ref().expect("there is one").directory.clone();
        let path: PathBuf = database.directory.join(&directory).join("part-0000");
        let mut bytes = contents(&database, &path);
        if rng.percent(60) {
            // Damages a block header or the footer and recomputes its checksum.
            let block = 44;
            let footer = bytes.len() - 40;
            let (begin, end) = if rng.percent(60) { (block, block + 32) } else { (footer, footer + 40) };
            let mut of_header = damaged(&bytes[begin + 8..end], rng);
            of_header.resize(end - begin - 8, 0);
            bytes[begin + 8..end].copy_from_slice(&of_header);
            let crc = crc32fast::hash(&bytes[begin + 8..end]);
            bytes[begin + 4..begin + 8].copy_from_slice(&crc.to_le_bytes());
        } else {
            bytes = damaged(&bytes, rng);
        }
        replace(&database, &path, &bytes);
        if rng.percent(30) {
            let checkpoint = database.manifest.checkpoint.as_mut().expect("there is one");
            let any = EXTREMES[rng.below(EXTREMES.len() as u64) as usize];
            match rng.below(3) {
                0 => checkpoint.parts = any as u32 & 0xFFFF,
                1 => checkpoint.rows = any,
                _ => checkpoint.bytes = any,
            }
        }
        let manifest = database.manifest.clone();
        if let Err(error) = within(bytes.len(), || recover(&database, &manifest)) {
            assert!(is_explained(&error), "{error}");
        }
    });
}

/// A frame of a few bytes is trusted to hold gigabytes only if its compressed bytes could produce them.
#[test]
fn a_block_that_claims_more_than_its_payload_can_hold_allocates_nothing() {
    let mut database = sound(3);
    let Checkpoint { directory, .. } = database.manifest.checkpoint.clone().expect("there is one");
    let path = database.directory.join(directory).join("part-0000");
    let mut bytes = contents(&database, &path);
    let footer = bytes.len() - 40;
    // The size of the rows, in the header of the block and in the footer.
    bytes[44 + 16..44 + 20].copy_from_slice(&u32::MAX.to_le_bytes());
    bytes[footer + 24..footer + 32].copy_from_slice(&u64::from(u32::MAX).to_le_bytes());
    for (begin, end) in [(44, 76), (footer, footer + 40)] {
        let crc = crc32fast::hash(&bytes[begin + 8..end]);
        bytes[begin + 4..begin + 8].copy_from_slice(&crc.to_le_bytes());
    }
    replace(&database, &path, &bytes);
    let manifest = database.manifest.clone();
    let error = within(bytes.len(), || recover(&database, &manifest)).expect_err("it lies").to_string();
    assert!(error.contains("block 1 does not hold the 4294967295 bytes that its header states"), "{error}");
    database.manifest.checkpoint = None;
}
