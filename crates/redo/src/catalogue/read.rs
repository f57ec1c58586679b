//! Reads the catalogue of a directory: from the manifest if that is of an older format, the checkpoint, and the log.

use std::collections::HashMap;
use std::path::Path;

use seriatim_base::disk::Disk;
use seriatim_base::{Epoch, TableId, Tid};
use seriatim_catalog::KeyBuf;
use seriatim_catalog::wire::read_varint;

use super::{Catalogue, LAYOUT, Row, codec};
use crate::checkpoint::Parts;
use crate::entry::{Change, Entry, Group};
use crate::manifest::Manifest;
use crate::replay::log_scan::LogScan;
use crate::{LogError, Tables};

/// The catalogue of a directory.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The tables.
    pub catalogue: Catalogue,
    /// The void tables of which neither checkpoint nor log has rows that a recovery reads.
    pub obsolete: Vec<TableId>,
    /// Entries of the log that are rows of the catalogue.
    pub entries: u64,
}

/// Whether a group is of the catalogue.
#[inline]
pub(crate) fn is_group(entries: &[u8]) -> bool {
    read_varint(&mut &*entries).is_ok_and(|head| crate::entry::layout_of(head) == u64::from(LAYOUT.0))
}

/// A change of a row, copied from the log.
struct Changed {
    tid: Tid,
    key: KeyBuf,
    kind: Kind,
    bytes: Vec<u8>,
}

enum Kind {
    Row,
    Delete,
    Patch,
}

impl Changed {
    fn of(tid: Tid, entry: &Entry<'_>) -> Changed {
        let (kind, bytes) = match entry.change {
            Change::Row(bytes) => (Kind::Row, bytes),
            // No column of the catalogue can have a delta, so its bytes are no patch.
            Change::Patch(bytes) | Change::Delta(bytes) => (Kind::Patch, bytes),
            Change::Delete => (Kind::Delete, &[][..]),
        };
        Changed { tid, key: entry.key.to_buf(), kind, bytes: bytes.to_vec() }
    }
}

/// The rows found so far, each with the TID of its last change.
#[derive(Default)]
struct Rows(HashMap<KeyBuf, (Tid, Row)>);

impl Rows {
    fn put(&mut self, Changed { tid, key, kind, bytes }: Changed) -> Result<(), &'static str> {
        match kind {
            Kind::Row => drop(self.0.insert(key, (tid, row(&bytes).ok_or("a row is malformed")?))),
            Kind::Delete => drop(self.0.remove(&key)),
            Kind::Patch => {
                let (at, row) = self.0.get_mut(&key).ok_or("a row that does not exist was changed")?;
                let body = bytes.strip_prefix(&[1]).and_then(|mut rest| text(&mut rest));
                (*at, row.body) = (tid, body.ok_or("a change of a row is malformed")?);
            }
        }
        Ok(())
    }
}

/// Decodes a row: object, kind, number, body.
fn row(mut bytes: &[u8]) -> Option<Row> {
    let rest = &mut bytes;
    let object = u32::try_from(read_varint(rest).ok()?).ok()?;
    let (kind, behind) = rest.split_first()?;
    *rest = behind;
    let number = u32::try_from(read_varint(rest).ok()?).ok()?;
    Some(Row { key: (object, *kind, number), body: text(rest)? })
}

/// Decodes a text that the bytes end with.
fn text(rest: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(read_varint(rest).ok()?).ok()?;
    let bytes = rest.get(..length).filter(|bytes| bytes.len() == rest.len())?;
    String::from_utf8(bytes.to_vec()).ok()
}

/// Reads the catalogue of a directory whose log was scanned.
///
/// # Errors
/// [`LogError::Corrupt`], [`LogError::Format`], [`LogError::Io`].
pub(crate) fn find(disk: &dyn Disk, directory: &Path, manifest: &Manifest, scan: &LogScan) -> Result<Found, LogError> {
    let checkpoint = manifest.checkpoint.as_ref();
    let part = checkpoint.map(|checkpoint| Parts::open_catalogue(disk, directory, manifest, checkpoint)).transpose()?;
    find_in(disk, directory, manifest, scan, part.as_ref())
}

/// As [`find`], with the blocks of the catalogue in the checkpoint.
pub(crate) fn find_in(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    scan: &LogScan,
    checkpoint: Option<&Parts>,
) -> Result<Found, LogError> {
    let corrupt = |problem: &str| {
        let advice = "restore a backup, or open the database with the program that wrote it";
        LogError::corrupt(directory, 0, format!("the catalogue of its tables makes no sense: {problem}"), advice)
    };
    let (mut rows, codec, tables) = (Rows::default(), codec(), Tables::new(&Catalogue::default()));
    for row in manifest.inherited.iter().flat_map(Catalogue::rows) {
        let key = codec.encode_values(&row.key_values()).map_err(|error| corrupt(&error.to_string()))?;
        rows.0.insert(key, (Tid::ZERO, row));
    }
    let begin = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.begin_epoch);
    let mut changes = Vec::new();
    if let Some(part) = checkpoint {
        part.each_row(disk, &tables, |tid, entry| changes.push(Changed::of(tid, entry)))?;
    }
    let in_checkpoint = changes.len();
    let mut buffer = Vec::new();
    for incarnation in &scan.incarnations {
        let batches = scan.logs_of(incarnation).flat_map(|log| scan.wanted(incarnation, log, begin));
        for at in batches.filter(|at| scan.batches[*at].header.has_catalogue) {
            scan.read(disk, at, &mut buffer)?;
            scan.each_group(at, &buffer, |group: Group<'_>| {
                if scan.counts(at, group.tid.epoch(), begin) && is_group(group.body) {
                    for entry in group.entries(&tables) {
                        changes.push(Changed::of(group.tid, &entry?));
                    }
                }
                Ok(())
            })?;
        }
    }
    let entries = (changes.len() - in_checkpoint) as u64;
    // The log has what was committed after the checkpoint began, so TIDs order the changes of each row. The changes of
    // one commit are in one log, in their order.
    changes.sort_by_key(|change| change.tid);
    changes.into_iter().try_for_each(|change| rows.put(change)).map_err(corrupt)?;
    let changed: HashMap<(u32, u8, u32), Tid> = rows.0.values().map(|(tid, row)| (row.key, *tid)).collect();
    let catalogue =
        Catalogue::of_rows(rows.0.into_values().map(|(_, row)| row)).map_err(|problem| corrupt(&problem))?;
    // A conversion excludes checkpoints until the last entry of the void table is committed.
    let is_old = |key: (u32, u8, u32)| changed.get(&key).is_some_and(|tid| tid.epoch() < begin);
    // The rows of an earlier layout are in checkpoints until all are converted.
    let is_converted = |id: TableId| {
        let mut earlier = catalogue.earlier.iter().filter(|earlier| earlier.table == id);
        earlier.next().is_none_or(|earlier| earlier.is_drained && is_old(earlier.row().key))
    };
    let is_obsolete = |id: TableId| is_old((id.0, 0, 0)) && is_converted(id);
    let void = catalogue.tables.iter().filter(|table| table.is_void && manifest.inherited.is_none());
    let mut obsolete: Vec<TableId> = void.map(|table| table.id).filter(|id| is_obsolete(*id)).collect();
    catalogue.keep_referenced(&mut obsolete);
    Ok(Found { catalogue, obsolete, entries })
}
