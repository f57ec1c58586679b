//! Segments: a log of any bytes is read to its end, and what is handed on was durable and is checked, or it is refused.
//!
//! Input: a byte, whose lowest bit says: 0, the file of the first segment; 1, batches. Their headers are as they should
//! be except for what a byte of flags changes. Their checksums are right.

use std::path::Path;

use seriatim_base::Epoch;
use seriatim_redo::FORMAT;
use seriatim_redo::batch::{self, PAGE, Salt, padded};
use seriatim_redo::replay::Replay;
use seriatim_redo::segment::{self, Name};

use crate::allocation;
use crate::directory::{Checked, DATABASE, DIRECTORY, check_error, disk, manifest};
use crate::entries;
use crate::reader::{Reader, counted};

const NAME: Name = Name { incarnation: 1, logger: 0, sequence: 1 };

/// Of the segment: what a fuzzer changes is checked with the right checksums.
const NONCE: u64 = 0x5a17;

/// The bytes read at a time, whatever the log is.
const BUFFERS: usize = 16 << 20;

pub(crate) fn run(data: &[u8]) {
    replay(data);
}

/// Replays it; how many versions were handed on, if it is not refused.
fn replay(data: &[u8]) -> Option<u64> {
    let mut input = Reader(data);
    let file = match input.u8() & 1 {
        0 => input.0.to_vec(),
        _ => compose(&mut input),
    };
    let disk = disk(&NAME.to_string(), &file);
    let manifest = manifest(None);
    allocation::within(16 * file.len() + BUFFERS, || {
        let replay = match Replay::open(&disk, Path::new(DIRECTORY), &manifest) {
            Ok(replay) => replay,
            Err(error) => {
                check_error(&error);
                return None;
            }
        };
        let checked = Checked::default();
        let versions = match replay.run(&disk, 1, &checked, &|_| {}) {
            Ok(replayed) => {
                assert_eq!(replayed.versions, *checked.versions.lock().expect("one thread"));
                let newest = *checked.newest.lock().expect("one thread");
                assert!(newest <= replay.durable(), "{newest:?} counts and is above {:?}", replay.durable());
                assert!(replay.bytes() <= file.len() as u64);
                Some(replayed.versions)
            }
            Err(error) => {
                check_error(&error);
                None
            }
        };
        for torn in replay.torn() {
            assert!(torn.offset + torn.bytes <= file.len() as u64, "{torn}");
        }
        versions
    })
}

/// A header page and batches.
fn compose(input: &mut Reader<'_>) -> Vec<u8> {
    let mut file = vec![0; PAGE];
    let (mut number, mut newest) = (1, Epoch(0));
    while !input.is_empty() {
        let flags = input.u8();
        let [closed, durable, epoch] = [(); 3].map(|()| Epoch(input.u16().into()));
        let groups = u32::from(input.u8());
        let payload = input.counted();
        let mut changed = |bit: u8, right: u64| if flags & 1 << bit == 0 { right } else { input.u64() };
        let header = batch::Header {
            number: changed(0, number),
            incarnation: changed(1, NAME.incarnation),
            closed: Epoch(changed(2, closed.0)),
            durable: Epoch(changed(3, durable.0)),
            newest: epoch,
            newest_before: Epoch(changed(4, newest.0)),
            groups: groups & 0x7F,
            has_catalogue: groups & 0x80 != 0,
            payload_bytes: changed(5, payload.len() as u64) as u32,
            payload_crc: crc32fast::hash(payload),
        };
        file.extend_from_slice(&header.encode(Salt::of(NONCE)));
        file.extend_from_slice(payload);
        file.resize(padded(file.len()), 0);
        if changed(6, 0) != 0 {
            // A tail that is cut, within a page or at its end.
            file.truncate(file.len() - usize::from(flags).min(PAGE));
        }
        number += 1;
        newest = newest.max(epoch);
    }
    let header =
        segment::Header { format: FORMAT, database: DATABASE.0, name: NAME, nonce: NONCE, bytes: file.len() as u64 };
    file.splice(..PAGE, header.encode());
    file
}

/// A batch as [`compose`] reads it.
fn described(epochs: &[u64], closed: u16, durable: u16) -> Vec<u8> {
    let (payload, groups) = entries::payload(epochs);
    let newest = epochs.iter().max().map_or(0, |&epoch| epoch as u16);
    let mut bytes = vec![0];
    [closed, durable, newest].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes.push(groups as u8);
    bytes.extend_from_slice(&counted(&payload));
    bytes
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let batches = [described(&[2], 2, 1), described(&[3, 4], 4, 2), described(&[], 6, 4)];
    let composed = [&[1][..], &batches.concat()].concat();
    let file = compose(&mut Reader(&composed[1..]));
    vec![vec![0], [&[0][..], &file].concat(), [&[1][..], &batches[0]].concat(), composed]
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_are_replayed() {
        let replayed = super::seeds().iter().map(|seed| super::replay(seed)).collect::<Vec<_>>();
        let [_, file, one, composed] = replayed[..] else { panic!("{replayed:?}") };
        assert!(one.is_some_and(|versions| versions > 0) && composed > one && file == composed, "{replayed:?}");
    }
}
