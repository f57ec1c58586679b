//! Checkpoints: a part of any bytes is loaded as a whole, row by row as the manifest counts them, or refused.
//!
//! Input: a byte, whose lowest bit says: 0, the file of the only part; 1, blocks of rows, compressed here. Their
//! headers and checksums are right but for what a byte of flags changes.

use std::path::Path;

use seriatim_base::{Epoch, LayoutId, Tid};
use seriatim_catalog::wire::write_varint;
use seriatim_redo::manifest::Checkpoint;
use seriatim_redo::{Tables, checkpoint};

use crate::allocation;
use crate::directory::{Checked, DATABASE, DIRECTORY, check_error, disk, manifest};
use crate::reader::{Reader, counted};
use crate::table::{samples, test_tables};

const BEGIN: Epoch = Epoch(3);
const PART: &str = "checkpoint-00000003/part-0000";
const PART_HEADER_BYTES: usize = 44;

/// The bytes decompressed at a time, and the bytes that a decompressor keeps.
const BUFFERS: usize = 20 << 20;

/// zstd makes no more than so many bytes of one: a block of 128 KiB of one byte takes four.
const RATIO: usize = 32 << 10;

pub(crate) fn run(data: &[u8]) {
    load(data);
}

/// Loads it; how many versions were handed on, if it is not refused.
fn load(data: &[u8]) -> Option<u64> {
    let mut input = Reader(data);
    let (file, rows) = match input.u8() & 1 {
        0 => (input.0.get(8..).unwrap_or_default().to_vec(), input.u64()),
        _ => compose(&mut input),
    };
    let disk = disk(PART, &file);
    let manifest = manifest(Some(Checkpoint {
        directory: "checkpoint-00000003".into(),
        begin_epoch: BEGIN,
        end_epoch: Epoch(9),
        parts: 1,
        rows,
        bytes: file.len() as u64,
    }));
    let tables = Tables::new(manifest.inherited.as_ref().expect("the tables"));
    allocation::within(RATIO * file.len() + BUFFERS, || {
        let checked = Checked::default();
        match checkpoint::load(&disk, Path::new(DIRECTORY), &manifest, &tables, 1, &checked, &|_| {}) {
            Ok(loaded) => {
                assert!(loaded.rows <= rows, "those of the catalogue do not count");
                let versions = *checked.versions.lock().expect("one thread");
                // Rows of one key and TID are one version.
                assert!(versions <= rows && (versions > 0) == (rows > 0), "{versions} of {rows} rows are handed on");
                Some(versions)
            }
            Err(error) => {
                check_error(&error);
                None
            }
        }
    })
}

/// A part, and the rows that its footer counts.
fn compose(input: &mut Reader<'_>) -> (Vec<u8>, u64) {
    let mut file = b"SRTMCKP1".to_vec();
    file.extend_from_slice(&seriatim_redo::FORMAT.to_le_bytes());
    file.extend_from_slice(&0u32.to_le_bytes());
    file.extend_from_slice(&DATABASE.0.to_le_bytes());
    file.extend_from_slice(&BEGIN.0.to_le_bytes());
    let crc = crc32fast::hash(&file);
    file.extend_from_slice(&crc.to_le_bytes());
    assert_eq!(file.len(), PART_HEADER_BYTES);
    let (mut blocks, mut all_rows, mut all_raw) = (0u64, 0u64, 0u64);
    while !input.is_empty() {
        let flags = input.u8();
        let rows = u32::from(input.u16());
        let raw = input.counted();
        let payload = match flags & 1 {
            0 => zstd::bulk::compress(raw, -5).expect("it fits"),
            _ => raw.to_vec(),
        };
        let mut changed = |bit: u8, right: u64| if flags & 1 << bit == 0 { right } else { input.u64() };
        blocks += 1;
        let payload_bytes = changed(1, payload.len() as u64) as u32;
        let raw_bytes = changed(4, raw.len() as u64) as u32;
        let rows = changed(2, rows.into()) as u32;
        let number = changed(3, blocks);
        all_rows += u64::from(rows);
        all_raw += u64::from(raw_bytes);
        let mut header = crc32fast::hash(&payload).to_le_bytes().to_vec();
        [payload_bytes, raw_bytes, rows].iter().for_each(|number| header.extend_from_slice(&number.to_le_bytes()));
        header.extend_from_slice(&number.to_le_bytes());
        file.extend_from_slice(b"BLCK");
        file.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
        file.extend_from_slice(&header);
        file.extend_from_slice(&payload);
    }
    let bytes = file.len() as u64 + 40;
    let footer: Vec<u8> = [blocks, all_rows, all_raw, bytes].iter().flat_map(|number| number.to_le_bytes()).collect();
    file.extend_from_slice(b"DONE");
    file.extend_from_slice(&crc32fast::hash(&footer).to_le_bytes());
    file.extend_from_slice(&footer);
    (file, all_rows)
}

/// Rows of the first three tables.
fn rows(epoch: u64) -> (Vec<u8>, u16) {
    let (mut raw, mut count) = (Vec::new(), 0);
    for (layout, test_table) in test_tables().0.iter().enumerate().take(3) {
        for row in samples(test_table) {
            count += 1;
            let tid = Tid::from_bits(Tid::first_of(Epoch(epoch)).bits() + u64::from(count));
            raw.extend_from_slice(&tid.bits().to_le_bytes());
            write_varint(&mut raw, u64::from(LayoutId(layout as u32).0));
            row.with_key(|key| test_table.wire.encode_key(key, &mut raw));
            raw.extend_from_slice(&row.encoded());
        }
    }
    (raw, count)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let block = |flags: u8, epoch| {
        let (raw, count) = rows(epoch);
        [&[flags][..], &count.to_le_bytes(), &counted(&raw)].concat()
    };
    let composed = [&[1][..], &block(0, 2), &block(0, 4)].concat();
    let (file, rows) = compose(&mut Reader(&composed[1..]));
    // A block that says it holds 4 GiB.
    let large = [&[1][..], &block(1 << 4, 2), &u64::from(u32::MAX).to_le_bytes()].concat();
    vec![vec![0], vec![1], [&[0][..], &rows.to_le_bytes(), &file].concat(), composed, large]
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_are_loaded_and_what_lies_about_its_size_is_not() {
        let loaded = super::seeds().iter().map(|seed| super::load(seed)).collect::<Vec<_>>();
        assert_eq!(loaded, [None, Some(0), Some(18), Some(18), None]);
    }
}
