//! A database directory on a simulated disk, with the tables of [`crate::table`], and what recovery hands on.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use seriatim_base::disk::{Disk, FaultyDisk, Opening};
use seriatim_base::{Epoch, LayoutId};
use seriatim_redo::LogError;
use seriatim_redo::catalogue::{self, Catalogue, LayoutEntry, TableEntry};
use seriatim_redo::entry::Change;
use seriatim_redo::manifest::{Checkpoint, DatabaseId, Incarnation, Manifest};
use seriatim_redo::replay::{Apply, Outcome, Version};

use crate::table::{Row, samples, table_id, test_tables};

pub(crate) const DIRECTORY: &str = "/db";
pub(crate) const DATABASE: DatabaseId = DatabaseId(0x5eed);

/// A manifest of one incarnation with one logger.
pub(crate) fn manifest(checkpoint: Option<Checkpoint>) -> Manifest {
    let tables: Vec<_> = (0..)
        .zip(test_tables().0)
        .map(|(at, test_table)| TableEntry {
            id: table_id(at),
            definition: test_table.definition.clone(),
            indexes: Vec::new(),
            position: at as u64,
            is_void: false,
        })
        .collect();
    let layouts = (0..tables.len()).map(|at| LayoutEntry { id: LayoutId(at as u32), table: table_id(at) });
    let inherited = Some(Catalogue { layouts: layouts.collect(), tables, ..Catalogue::default() });
    Manifest {
        database: DATABASE,
        incarnations: vec![Incarnation {
            number: 1,
            first_epoch: Epoch(2),
            durable_epoch: None,
            loggers: vec![PathBuf::new()],
            ends: Vec::new(),
        }],
        checkpoint,
        inherited,
    }
}

/// A disk with a directory and one file in it.
pub(crate) fn disk(file: &str, bytes: &[u8]) -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    let path = Path::new(DIRECTORY).join(file);
    disk.create_dir_all(path.parent().expect("a file of the directory")).expect("the disk works");
    let file = disk.open(&path, Opening::Create).expect("the disk works");
    file.write_all_at(bytes, 0).expect("the disk works");
    disk
}

/// Checks versions as they come.
#[derive(Default)]
pub(crate) struct Checked {
    pub(crate) versions: Mutex<u64>,
    pub(crate) newest: Mutex<Epoch>,
}

impl Apply for Checked {
    fn apply(&self, _: usize, version: &Version<'_>) -> Result<Outcome, LogError> {
        if version.table == catalogue::TABLE {
            *self.versions.lock().expect("one thread") += 1;
            return Ok(Outcome::Applied);
        }
        let at = test_tables().0.iter().zip(0..).find(|(_, at)| table_id(*at) == version.table);
        let (test_table, at) = at.expect("a table of the manifest");
        assert_eq!(version.layout, LayoutId(at as u32));
        assert!(!version.changes.is_empty());
        for (number, change) in version.changes.iter().enumerate() {
            let before = samples(test_table).swap_remove(0);
            let mut after = before.copied();
            match *change {
                Change::Row(bytes) => {
                    assert_eq!(number, 0, "a row is the first of a version's changes");
                    assert!(Row::decoded(test_table, bytes).is_some(), "what was checked decodes");
                }
                Change::Delete => assert_eq!(version.changes.len(), 1, "a deletion is a version of its own"),
                Change::Patch(bytes) => {
                    assert_eq!(
                        version.rows.decode_patch(bytes, &mut after.updating()),
                        Ok(()),
                        "what was checked decodes"
                    );
                }
                // An amount that the column has no room for is refused here.
                Change::Delta(bytes) => drop(version.rows.decode_delta(bytes, &mut after.updating())),
            }
        }
        *self.versions.lock().expect("one thread") += 1;
        let mut newest = self.newest.lock().expect("one thread");
        *newest = newest.max(version.tid.epoch());
        Ok(Outcome::Applied)
    }
}

/// An error names a file and says what to do, in one line.
pub(crate) fn check_error(error: &LogError) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 1 << 12 && !text.contains('\n'), "{text:?}");
}
