//! Opening a database directory: lock, manifest, recovery, a new incarnation.
//!
//! Until the manifest is replaced at the end nothing in the directory has changed, so a crash on the way is as if it had not been
//! opened. The new incarnation begins above every epoch that the log mentions, also in what is void: stamps are never reused.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use seriatim_base::disk::{Disk, DiskLock};
use seriatim_base::{Epoch, LayoutId, TableId, rng};
use seriatim_redo::LogError;
use seriatim_redo::logger::{Log, LogOptions, LogStart, Logger};
use seriatim_redo::manifest::{DatabaseId, Incarnation, LayoutEntry, Manifest, TableEntry};
use seriatim_redo::writer::Writer;

use super::recover::{self, Recovery};
use crate::builder::{Builder, Place};
use crate::database::{Foundation, Tables};
use crate::error::{OpenError, SchemaError};
use crate::handle::TableSet;

/// The name of the file that is locked while a database is open.
const LOCK: &str = "LOCK";

/// A database directory that is open for writing.
pub(crate) struct Home {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    /// What is in the file.
    manifest: Mutex<Manifest>,
    _lock: Box<dyn DiskLock>,
}

/// What opening found and made.
pub(crate) struct Opened {
    pub(crate) tables: Tables,
    /// How the tables came back; `None` where the directory was new.
    pub(crate) recovery: Option<Recovery>,
    /// `None` where the directory was only looked at.
    pub(crate) log: Option<OpenLog>,
}

/// A log ready for its first commit.
pub(crate) struct OpenLog {
    pub(crate) home: Home,
    pub(crate) log: Log,
    pub(crate) loggers: Vec<Logger>,
    pub(crate) writers: Vec<Writer>,
}

/// Opens the directory, recovers what it holds and, unless it is only looked at, begins a new incarnation.
///
/// # Errors
/// The directory is another process's, of a newer format, damaged; no memory; what the file system says.
pub(crate) fn open(options: &Builder, place: &Place, foundation: &Foundation) -> Result<Opened, OpenError> {
    let Place { directory, inspect, disk } = place;
    let found = Manifest::find(disk.as_ref(), directory)?;
    if *inspect && found.is_none() {
        return Err(OpenError::NoDatabase { directory: directory.clone() });
    }
    if !*inspect {
        create_directory(disk.as_ref(), directory)?;
    }
    let lock = match inspect {
        true => None,
        false => Some(lock(disk.as_ref(), directory)?),
    };
    // Only now is it ours: another process may have changed it meanwhile.
    let found = if *inspect { found } else { Manifest::find(disk.as_ref(), directory)? };
    let (mut manifest, recovered) = match found {
        Some(manifest) => {
            let recovered = recover::recover(options, place, foundation, &manifest)?;
            (manifest, Some(recovered))
        }
        None => (Manifest::new(new_database_id()), None),
    };
    let (tables, recovery, ends) = match recovered {
        Some(recovered) => (recovered.tables, Some(recovered.recovery), recovered.ends),
        None => (Tables::default(), None, recover::Ends::of_nothing()),
    };
    let Some(lock) = lock else { return Ok(Opened { tables, recovery, log: None }) };
    let start = begin_incarnation(options, &mut manifest, ends);
    manifest.write(disk.as_ref(), directory)?;
    foundation.environment.epochs.skip_to(start.first_epoch);
    let log_options = LogOptions {
        directories: manifest.incarnations.last().map(|current| current.loggers.iter().map(|at| directory.join(at)).collect()).unwrap_or_default(),
        segment_bytes: options.log.segment_bytes,
        chunk_bytes: options.log.buffer_bytes,
        backlog_bytes_max: options.log.backlog_bytes as u64,
    };
    let (log, loggers, writers) = Log::open(Arc::clone(disk), log_options, start, options.workers)?;
    let home = Home { disk: Arc::clone(disk), directory: directory.clone(), manifest: Mutex::new(manifest), _lock: lock };
    Ok(Opened { tables, recovery, log: Some(OpenLog { home, log, loggers, writers }) })
}
