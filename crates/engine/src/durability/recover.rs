//! Recovery: restores the tables from the checkpoint and the log.
//!
//! The protocol's own code puts each row into its final place, in the order of TIDs; no transaction runs. Log
//! entries after the durable epoch are ignored. So the tables get the state at the end of that epoch.

use std::collections::HashMap;
use std::hint::cold_path;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::disk::Disk;
use seriatim_base::{Epoch, LayoutId, TableId, thread};
use seriatim_catalog::wire::DecodeError;
use seriatim_catalog::{RowWriter, TableDef};
#[cfg(feature = "canary")]
use seriatim_redo::LogFault;
use seriatim_redo::backup::Damaged;
use seriatim_redo::catalogue::{self, Catalogue, Found};
use seriatim_redo::manifest::{Incarnation, Manifest};
use seriatim_redo::replay::{Apply, Outcome, Replay, Version};
use seriatim_redo::{checkpoint, entry};
use seriatim_store::{LeafHint, RecordPtr};
use seriatim_txn::{Change, Core, Near, Restored, Table};

use super::{NO_WORKER, RecoveryPhase, restore_prefetch};
use crate::engine::{Foundation, Tables};
use crate::error::{OpenError, StorageError};
use crate::protocol::OpenProtocol;
use crate::settings::{MissingRows, Settings};
use crate::table::TableSet;
use crate::table_ids::TableIds;

/// The result of a recovery.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// The database has every transaction of an epoch up to this one, and no effect of a later one.
    pub durable_epoch: u64,
    /// The number of the recovered snapshot, if durability is by snapshot. The database has everything that this
    /// snapshot showed, and nothing else.
    pub durable_snapshot: Option<u64>,
    /// Rows loaded from the checkpoint.
    pub checkpoint_rows: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Entries of the log applied, without those of the catalogue.
    pub entries: u64,
    /// Rows entered into secondary indexes.
    pub indexed_rows: u64,
    /// How long it took.
    pub duration: Duration,
    /// Findings that are not faults, in words, for instance a torn tail that was ignored.
    pub notices: Vec<String>,
}

/// Where the log of the last incarnation ends.
pub(super) struct Ends {
    /// The newest epoch that counts.
    pub(super) durable: Epoch,
    /// The newest epoch that the directory mentions, even in void parts.
    pub(super) newest: Epoch,
    /// The incarnations, all of which have ended.
    pub(super) incarnations: Vec<Incarnation>,
}

impl Ends {
    /// For a directory without a log.
    pub(super) fn of_nothing() -> Ends {
        Ends { durable: Epoch(0), newest: Epoch(0), incarnations: Vec::new() }
    }
}

/// A database directory to read.
#[derive(Clone, Copy)]
pub(super) struct Source<'d> {
    pub(super) disk: &'d dyn Disk,
    pub(super) directory: &'d Path,
    /// Whether another process may have it open.
    pub(super) in_use: bool,
}

/// The restored tables and where the log ends.
pub(super) struct Recovered {
    pub(super) tables: Tables,
    pub(super) catalogue: Found,
    pub(super) recovery: Recovery,
    pub(super) ends: Ends,
}

/// Restores the contents of the directory. Nothing in the directory changes; the parts that count are durable
/// when this returns.
///
/// # Errors
/// Damage; no memory; an error of the file system.
pub(super) fn recover(
    options: &Settings,
    source: Source<'_>,
    foundation: &Foundation,
    manifest: &Manifest,
) -> Result<Recovered, OpenError> {
    let began = Instant::now();
    let Source { disk, directory, in_use } = source;
    let threads = options.helpers();
    let cores: Option<Vec<Core>> = (0..threads).map(|_| foundation.environment.core()).collect();
    let mut cores = cores.ok_or_else(|| OpenError::Invalid(NO_WORKER.to_owned()))?;
    #[cfg_attr(not(feature = "canary"), expect(unused_mut, reason = "a canary changes it"))]
    let (mut replay, sound) = match (&options.salvage, in_use) {
        (Some(_), _) => Replay::open_sound(disk, directory, manifest)?,
        (None, true) => (Replay::look(disk, directory, manifest)?, None),
        (None, false) => (Replay::open(disk, directory, manifest)?, None),
    };
    #[cfg(feature = "canary")]
    if options.log_fault == LogFault::ForgetLog {
        replay.forget_log();
    }
    let rows_max = replay.bytes().saturating_add(checkpoint::bytes_found(disk, directory, manifest));
    let tables = make_tables(foundation, &replay.catalogue().catalogue, rows_max, &mut cores[0])?;
    #[cfg_attr(not(feature = "canary"), expect(unused_mut, reason = "a canary changes it"))]
    let mut applier = Applier::new(foundation, &tables, cores);
    #[cfg(feature = "canary")]
    {
        applier.adds_twice = options.log_fault == LogFault::AddTwice;
    }
    let told = |phase, total| move |done| options.on_recovery.report(phase, done, Some(total));
    let checkpoint_bytes = manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.bytes);
    let progress = told(RecoveryPhase::Checkpoint, checkpoint_bytes);
    let loaded = match &sound {
        None => checkpoint::load(disk, directory, manifest, replay.tables(), threads, &applier, &progress)?,
        Some(sound) => sound.load(disk, replay.tables(), threads, &applier, &progress)?,
    };
    // The headers of files were not counted.
    progress(checkpoint_bytes);
    let progress = told(RecoveryPhase::Log, replay.bytes());
    let replayed = replay.run(disk, threads, &applier, &progress)?;
    applier.finish();
    if let (Some(missing), Some(sound)) = (&options.salvage, sound) {
        let damage = sound.damage.into_iter().filter_map(Damaged::of).collect();
        let missing = &mut *missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = MissingRows { damage, rows: sound.lost_rows, changed: replay.missing() };
    }
    #[cfg(feature = "canary")]
    let secures = options.log_fault != LogFault::TrustUnflushed;
    #[cfg(not(feature = "canary"))]
    let secures = true;
    if secures && !in_use {
        replay.secure(disk)?;
    }
    let recovery = Recovery {
        durable_epoch: replay.durable().0,
        durable_snapshot: foundation.environment.epochs.snapshots().made_by_end_of(replay.durable()),
        checkpoint_rows: loaded.rows,
        log_bytes: replayed.bytes,
        entries: replayed.versions.saturating_sub(replay.catalogue().entries),
        indexed_rows: 0,
        duration: began.elapsed(),
        notices: replay.torn().iter().map(ToString::to_string).collect(),
    };
    let incarnations = replay.ended_incarnations(manifest);
    let ends = Ends { durable: replay.durable(), newest: replay.newest(), incarnations };
    Ok(Recovered { tables, catalogue: replay.catalogue().clone(), recovery, ends })
}

/// The place of the damage that an error reports.
fn damage(error: &OpenError) -> Option<(PathBuf, u64)> {
    match error {
        OpenError::Storage(StorageError::Corrupt { file, offset, .. }) => Some((file.clone(), *offset)),
        _ => None,
    }
}

/// How often an inspection is repeated because the database changed meanwhile.
const LOOKS_MAX: usize = 10;

/// Restores the contents of a directory that may be in use. A checkpoint that completes meanwhile deletes log,
/// and a batch that is being written may look damaged. So the result counts only if the manifest has not
/// changed, and damage only if it is found twice at one place.
///
/// # Errors
/// As [`recover`]; or the database changed during each attempt.
pub(super) fn look(
    options: &Settings,
    source: Source<'_>,
    foundation: &Foundation,
    mut manifest: Manifest,
) -> Result<(Manifest, Recovered), OpenError> {
    let mut failed = None;
    for _ in 0..LOOKS_MAX {
        let recovered = recover(options, source, foundation, &manifest);
        let now = Manifest::read(source.disk, source.directory)?;
        let is_same = now == manifest;
        match recovered {
            Ok(recovered) if is_same => return Ok((manifest, recovered)),
            Err(error) if is_same && failed == Some(damage(&error)) => return Err(error),
            recovered => failed = recovered.err().filter(|_| is_same).map(|error| damage(&error)),
        }
        manifest = now;
    }
    let problem = format!("{LOOKS_MAX} checkpoints or tables were made while it was read: try again");
    let busy = std::io::Error::new(std::io::ErrorKind::ResourceBusy, problem);
    Err(OpenError::Storage(StorageError::io("looking at a database in use")(busy)))
}

/// The largest capacity of a table when its number of rows is unknown.
const CAPACITY_UNSEEN: u64 = 1 << 20;

/// The tables of a database without any: the catalogue's own.
///
/// # Errors
/// No memory.
pub(super) fn new_tables(foundation: &Foundation) -> Result<Tables, OpenError> {
    let mut core = foundation.environment.core().ok_or_else(|| OpenError::Invalid(NO_WORKER.to_owned()))?;
    make_tables(foundation, &Catalogue::default(), 0, &mut core)
}

/// Makes the tables of the catalogue and its own, empty. Their capacity is a hint, and costs memory. If the hint
/// exceeds `rows_max`, which is an upper bound of the rows, the tables are made small, and grow.
fn make_tables(
    foundation: &Foundation,
    catalogue: &Catalogue,
    rows_max: u64,
    core: &mut Core,
) -> Result<Tables, OpenError> {
    let capacity_max = usize::try_from(rows_max.max(CAPACITY_UNSEEN)).unwrap_or(usize::MAX);
    let mut make = |definition: TableDef, id, indexes: &[TableId], position| {
        let name = definition.name.clone();
        let set = TableSet::new(foundation, definition, id, indexes, position, core);
        set.map(Arc::new).map_err(|error| OpenError::Memory(format!("for table {name:?}: {error}")))
    };
    let own = make(catalogue::definition(), catalogue::TABLE, &[], 0)?;
    let ids = TableIds::of(&catalogue.tables);
    let mut tables = Tables { ids, catalogue: Some(own), ..Tables::default() };
    let layouts: HashMap<TableId, LayoutId> =
        catalogue.layouts.iter().rev().map(|layout| (layout.table, layout.id)).collect();
    for entry in catalogue.tables.iter().filter(|entry| !entry.is_void) {
        let name = &entry.definition.name;
        if layouts.get(&entry.id) != Some(&LayoutId(entry.id.0)) {
            return Err(OpenError::Invalid(format!(
                "the catalogue gives table {name:?} a layout that this version never gives"
            )));
        }
        let mut definition = entry.definition.clone();
        definition.capacity = definition.capacity.min(capacity_max);
        tables.sets.push(make(definition, entry.id, &entry.indexes, entry.position)?);
    }
    Ok(tables)
}

/// Puts versions into tables.
struct Applier<'f> {
    protocol: &'f dyn OpenProtocol,
    /// By table id. The last is the catalogue's own, whose id is above all others.
    tables: Vec<Option<&'f Table>>,
    /// One for each thread that applies.
    hands: Vec<Mutex<ApplierThread>>,
    #[cfg(feature = "canary")]
    adds_twice: bool,
}

/// The state of a thread that applies versions.
struct ApplierThread {
    core: Core,
    /// By [`slot`]: the leaf used last.
    leaf_hints: Vec<LeafHint>,
    /// By [`slot`]: whether it deleted a row.
    deleted: Vec<bool>,
}

/// The place of a table in lists of so many, of which the last is of the catalogue's own table.
pub(super) fn slot(table: TableId, count: usize) -> usize {
    if table == catalogue::TABLE { count - 1 } else { table.index() }
}

impl<'f> Applier<'f> {
    fn new(foundation: &'f Foundation, tables: &'f Tables, cores: Vec<Core>) -> Applier<'f> {
        let count = tables.ids.end() + 1;
        let mut by_id: Vec<Option<&Table>> = vec![None; count];
        for set in tables.sets.iter().chain(&tables.catalogue) {
            by_id[slot(set.primary.id, count)] = Some(&set.primary);
        }
        let hand =
            |core| ApplierThread { core, leaf_hints: vec![LeafHint::default(); count], deleted: vec![false; count] };
        let hands = cores.into_iter().map(hand).map(Mutex::new).collect();
        Applier {
            protocol: foundation.protocol.as_ref(),
            tables: by_id,
            hands,
            #[cfg(feature = "canary")]
            adds_twice: false,
        }
    }

    /// The table of a version, unless its rows do not count.
    fn counting_table(&self, version: &Version<'_>) -> Option<&'f Table> {
        self.tables.get(slot(version.table, self.tables.len())).copied().flatten()
    }

    fn table(&self, version: &Version<'_>) -> &'f Table {
        self.counting_table(version).expect("others are skipped")
    }

    /// Unlinks the remaining tombstones, and returns the threads' workers.
    fn finish(self) {
        let hands = self.hands.into_iter().map(|hand| hand.into_inner().unwrap_or_else(PoisonError::into_inner));
        let hands: Vec<ApplierThread> = hands.collect();
        let count = self.tables.len();
        let is_deleted = |table: &&Table| hands.iter().any(|hand| hand.deleted[slot(table.id, count)]);
        let with_tombstones: Vec<&Table> = self.tables.into_iter().flatten().filter(is_deleted).collect();
        let threads = hands.len();
        let (hands, left) = (Mutex::new(hands.into_iter()), Mutex::new(with_tombstones.into_iter()));
        let work = |_, _| {
            let hand = hands.lock().unwrap_or_else(PoisonError::into_inner).next();
            let mut core = hand.expect("there is one for each thread").core;
            loop {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(table) = next else { return };
                // SAFETY: every version was restored, each table is handled by one thread, and no transaction runs yet.
                unsafe { self.protocol.finish_restore(&mut core, table) };
            }
        };
        thread::crew(threads, work);
    }

    /// Puts a version into its table; `guess` is as [`Near`] requires. The hand is online.
    fn put(
        &self,
        hand: &mut ApplierThread,
        guess: Option<RecordPtr>,
        version: &Version<'_>,
    ) -> Result<Outcome, StorageError> {
        let Version { rows, key, tid, changes, .. } = *version;
        let table = self.table(version);
        let mut malformed = None;
        let mut set = |row: &mut RowWriter<'_>| {
            for change in changes {
                let decoded = match *change {
                    entry::Change::Row(bytes) => rows.decode_row(bytes, row),
                    entry::Change::Patch(bytes) => rows.decode_patch(bytes, row),
                    #[cfg(feature = "canary")]
                    entry::Change::Delta(bytes) if self.adds_twice => {
                        rows.decode_delta(bytes, row).and_then(|()| rows.decode_delta(bytes, row))
                    }
                    entry::Change::Delta(bytes) => rows.decode_delta(bytes, row),
                    entry::Change::Delete => Ok(()),
                };
                match decoded {
                    Ok(()) => {}
                    Err(DecodeError::OutOfMemory(error)) => return Err(error),
                    Err(error) => malformed = Some(error.to_string()),
                }
            }
            Ok(())
        };
        let change = match changes.first() {
            Some(entry::Change::Row(_)) => Change::Row(&mut set),
            Some(entry::Change::Delete) => {
                hand.deleted[slot(version.table, self.tables.len())] = true;
                Change::Delete
            }
            Some(entry::Change::Patch(_) | entry::Change::Delta(_)) => Change::Patch(&mut set),
            None => return Ok(Outcome::Older),
        };
        let near = Near { guess, leaf_hint: &mut hand.leaf_hints[slot(version.table, self.tables.len())] };
        // SAFETY: one thread restores all versions of a key, and no other thread uses the tables yet. The encoding is
        // the table's, and guesses are records that its index returned.
        let restored = unsafe { self.protocol.restore(&mut hand.core, table, key, near, tid, change) };
        let restored = restored.map_err(|_| StorageError::OutOfMemory { table: table.name.clone() })?;
        if let Some(problem) = malformed {
            let key = table.codec.describe(key);
            return Err(StorageError::Stopped(format!("a change of {} {key} makes no sense: {problem}", table.name)));
        }
        Ok(match restored {
            Restored::Applied => Outcome::Applied,
            Restored::Older => Outcome::Older,
            Restored::NoBase => Outcome::NoBase,
        })
    }
}

impl Apply for Applier<'_> {
    fn apply(&self, thread: usize, version: &Version<'_>) -> Result<Outcome, StorageError> {
        let mut outcomes = Vec::with_capacity(1);
        self.apply_all(thread, std::slice::from_ref(version), &mut outcomes)?;
        Ok(outcomes.pop().expect("each version has an outcome"))
    }

    fn apply_all(
        &self,
        thread: usize,
        versions: &[Version<'_>],
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), StorageError> {
        if versions.iter().any(|version| self.counting_table(version).is_none()) {
            cold_path();
            return versions.iter().try_for_each(|version| match self.counting_table(version) {
                Some(_) => self.apply_all(thread, std::slice::from_ref(version), outcomes),
                None => {
                    outcomes.push(Outcome::Older);
                    Ok(())
                }
            });
        }
        let mut hand = self.hands[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let hand = &mut *hand;
        hand.core.local.enter();
        let of_tables = versions.iter().map(|version| (self.table(version), version));
        let guesses = restore_prefetch::fetch(hand.core.local.pinned(), &mut hand.leaf_hints, of_tables);
        let put = |(version, guess)| self.put(hand, guess, version).map(|outcome| outcomes.push(outcome));
        let all = versions.iter().zip(guesses).try_for_each(put);
        hand.core.local.leave();
        all
    }
}

#[cfg(test)]
mod tests;
