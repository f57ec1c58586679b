//! Manifests: what is read can be written, and reads the same.
//!
//! Input: a byte, whose lowest bit says: 0, the file; 1, what is above its last line, which is made.

use std::path::Path;

use seriatim_base::disk::{Disk, Opening};
use seriatim_redo::Tables;
use seriatim_redo::catalogue::Catalogue;
use seriatim_redo::manifest::{Checkpoint, MANIFEST, Manifest};

use crate::allocation;
use crate::directory::{DIRECTORY, check_error, disk, manifest};
use crate::reader::Reader;

pub(crate) fn run(data: &[u8]) {
    let mut input = Reader(data);
    let file = match input.u8() & 1 {
        0 => input.0.to_vec(),
        _ => [input.0, format!("crc32 {:08x}\n", crc32fast::hash(input.0)).as_bytes()].concat(),
    };
    let disk = disk(MANIFEST, &file);
    let directory = Path::new(DIRECTORY);
    // A value of JSON takes some hundred bytes, and so does a column.
    allocation::within(512 * data.len() + (64 << 10), || match Manifest::read(&disk, directory) {
        Err(error) => check_error(&error),
        Ok(manifest) => {
            assert_eq!(manifest.check(), Ok(()), "what is read is sound");
            if let Some(inherited) = &manifest.inherited {
                let tables = Tables::new(inherited);
                assert!(inherited.layouts.iter().all(|layout| tables.get(layout.id).is_some()));
                assert_eq!(Catalogue::of_rows(inherited.rows()).as_ref(), Ok(inherited), "its rows say the same");
            }
            manifest.write(&disk, directory).expect("what is read can be written");
            assert_eq!(Manifest::read(&disk, directory).ok().as_ref(), Some(&manifest), "and reads the same");
        }
    });
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let checkpoint = Checkpoint {
        directory: "checkpoint-00000003".into(),
        begin_epoch: seriatim_base::Epoch(3),
        end_epoch: seriatim_base::Epoch(5),
        parts: 2,
        rows: 10,
        bytes: 1000,
    };
    let mut small = manifest(None);
    if let Some(inherited) = &mut small.inherited {
        inherited.tables.truncate(1);
        inherited.layouts.truncate(1);
    }
    let mut seeds = Vec::new();
    for manifest in [small, manifest(None), manifest(Some(checkpoint))] {
        let disk = disk("OTHER", &[]);
        manifest.write(&disk, Path::new(DIRECTORY)).expect("the disk works");
        let file = disk.open(&Path::new(DIRECTORY).join(MANIFEST), Opening::Read).expect("it was written");
        let mut bytes = vec![0; file.bytes().expect("the disk works") as usize];
        file.read_exact_at(&mut bytes, 0).expect("the disk works");
        let line = bytes.len() - "crc32 00000000\n".len();
        seeds.push([&[1], &bytes[..line]].concat());
        seeds.push([&[0], &bytes[..]].concat());
    }
    seeds
}
