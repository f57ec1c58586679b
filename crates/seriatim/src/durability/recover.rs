//! Recovery: the checkpoint and the log back into tables.
//!
//! Rows go to where they will stay, by the protocol's own hand, in the order of their stamps; no transaction runs. What the log
//! says after the durable epoch is left out, so the tables come to the state that was there when that epoch ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seriatim_base::{Epoch, LayoutId, Stamp, TableId, thread};
use seriatim_catalog::wire::DecodeError;
use seriatim_catalog::{Key, RowWriter};
use seriatim_redo::entry;
use seriatim_redo::manifest::Manifest;
use seriatim_txn::{Change, Core, Restored, Table};

use crate::builder::{Builder, Place};
use crate::database::{Foundation, Tables};
use crate::engine::Engine;
use crate::error::{OpenError, StorageError};
use crate::handle::TableSet;

/// What opening a database found in its directory.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Every transaction of an epoch up to this one is there, and nothing of a later one.
    pub durable_epoch: u64,
    /// Rows loaded from the checkpoint.
    pub checkpoint_rows: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Entries of the log applied.
    pub entries: u64,
    /// Rows entered into secondary indexes.
    pub indexed_rows: u64,
    /// How long it took.
    pub duration: Duration,
    /// What is worth knowing, in words: a torn tail that was left out, say.
    pub notices: Vec<String>,
}

/// Where the log of the last incarnation ends.
pub(super) struct Ends {
    /// The newest epoch that counts.
    pub(super) durable: Epoch,
    /// The newest epoch that the directory mentions, perhaps in what is void.
    pub(super) newest: Epoch,
}

impl Ends {
    /// Of a directory without a log.
    pub(super) fn of_nothing() -> Ends {
        Ends { durable: Epoch(0), newest: Epoch(0) }
    }
}

/// What recovery made.
pub(super) struct Recovered {
    pub(super) tables: Tables,
    pub(super) recovery: Recovery,
    pub(super) ends: Ends,
}

/// Makes the tables of the manifest, empty.
fn make_tables(foundation: &Foundation, manifest: &Manifest, core: &mut Core) -> Result<Tables, OpenError> {
    let mut tables = Tables { ids: manifest.next_table.0, ..Tables::default() };
    for entry in &manifest.tables {
        let name = &entry.definition.name;
        let consecutive = entry.indexes.iter().zip(entry.id.0 + 1..).all(|(index, id)| index.0 == id);
        let layout = manifest.layouts.iter().find(|layout| layout.table == entry.id);
        if !consecutive || layout.is_none_or(|layout| layout.id != LayoutId(entry.id.0)) {
            return Err(OpenError::Invalid(format!("the manifest gives table {name:?} ids that this version never gives")));
        }
        let set = TableSet::new(foundation, entry.definition.clone(), entry.id, core);
        let set = set.map_err(|error| OpenError::Memory(format!("for table {name:?}: {error}")))?;
        tables.sets.push(Arc::new(set));
    }
    Ok(tables)
}

/// Puts versions into tables.
struct Applier<'f> {
    engine: &'f dyn Engine,
    /// By layout id.
    tables: Vec<Option<&'f Table>>,
    /// One for each thread that applies.
    cores: Vec<Mutex<Core>>,
}

impl<'f> Applier<'f> {
    fn new(foundation: &'f Foundation, tables: &'f Tables, cores: Vec<Core>) -> Applier<'f> {
        let mut by_layout: Vec<Option<&Table>> = Vec::new();
        for set in &tables.sets {
            if let Some(wire) = &set.primary.wire {
                let at = wire.layout.0 as usize;
                by_layout.resize(by_layout.len().max(at + 1), None);
                by_layout[at] = Some(&set.primary);
            }
        }
        let cores = cores.into_iter().map(Mutex::new).collect();
        Applier { engine: foundation.engine.as_ref(), tables: by_layout, cores }
    }

    /// Makes one version the committed one of its key, if it is the newest.
    fn restore(
        &self,
        thread: usize,
        layout: LayoutId,
        key: Key<'_>,
        stamp: Stamp,
        change: entry::Change<'_>,
    ) -> Result<Restored, Failed> {
        let table = self.tables.get(layout.0 as usize).copied().flatten().ok_or(Failed::Layout)?;
        let wire = &table.wire.as_ref().ok_or(Failed::Layout)?.rows;
        let mut core = self.cores[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let mut malformed = None;
        let mut decode = |decoded: Result<(), DecodeError>| match decoded {
            Ok(()) => Ok(()),
            Err(DecodeError::OutOfMemory(error)) => Err(error),
            Err(DecodeError::Malformed(error)) => {
                malformed = Some(error);
                Ok(())
            }
        };
        let mut set = |row: &mut RowWriter<'_>| {
            decode(match change {
                entry::Change::Row(bytes) => wire.decode_row(bytes, row),
                entry::Change::Patch(bytes) => wire.decode_patch(bytes, row),
                entry::Change::Delta(bytes) => wire.decode_delta(bytes, row),
                entry::Change::Delete => Ok(()),
            })
        };
        let change = match change {
            entry::Change::Row(_) => Change::Row(&mut set),
            entry::Change::Patch(_) | entry::Change::Delta(_) => Change::Patch(&mut set),
            entry::Change::Delete => Change::Delete,
        };
        // SAFETY: replay gives all versions of a key to one thread; nobody else uses the tables yet; the layout is the table's.
        let restored = unsafe { self.engine.restore(&mut core, table, key, stamp, change) };
        match (restored, malformed) {
            (Err(_), _) => Err(Failed::OutOfMemory),
            (_, Some(error)) => Err(Failed::Malformed(error.to_string())),
            (Ok(restored), None) => Ok(restored),
        }
    }
}

/// Why a version could not be put into its table.
enum Failed {
    /// No table has its layout.
    Layout,
    Malformed(String),
    OutOfMemory,
}
