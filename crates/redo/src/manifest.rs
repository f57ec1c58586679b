//! The manifest lists the contents of a database directory.
//!
//! ```text
//! {                        JSON, for people to read: `mirror` has the fields
//!   "format": 4,
//!   ...
//! }
//! crc32 0a1b2c3d           of everything above this line
//! ```
//! Invariant: the manifest is replaced as a whole, so a power cut leaves the old one or the new one. A file of
//! the directory counts only if the manifest lists it. What tables there are is data of these files
//! ([`catalogue`](crate::catalogue)). Up to format 3 the manifest listed the tables, or a second file beside it
//! ([`additions`]).
//!
//! `format` is raised by every change that an older program would misread, also of segments and entries. A
//! newer format is refused. An older one is upgraded, one function for each step. The last line and the place
//! of `format` never change. `FORMAT.md` has the rules.

pub mod additions;
mod mirror;

use std::fmt;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use serde_json::Value;
use seriatim_base::disk::{Disk, Opening};
use seriatim_base::{Epoch, Tid};

use self::additions::{ADDITIONS, Base};
use crate::batch::PAGE;
use crate::catalogue::Catalogue;
use crate::segment::SEGMENT_BYTES_MAX;
use crate::{FORMAT, LogError, narrow};

/// The file name of the manifest.
pub const MANIFEST: &str = "MANIFEST";

/// The file name of a manifest that is being written.
pub(crate) const MANIFEST_NEW: &str = "MANIFEST.new";

/// Turns a manifest of one format into one of the next format.
type Upgrade = fn(Value) -> Result<Value, String>;

/// The upgrade from format `n` is at index `n - 1`.
const UPGRADES: [Upgrade; FORMAT as usize - 1] = [without_ends, with_narrow_epochs, with_tables];

/// The largest manifest, in bytes.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;
/// The highest number of an incarnation.
pub const INCARNATION_MAX: u64 = u32::MAX as u64;
/// The most loggers of an incarnation.
pub const LOGGERS_MAX: usize = 1 << 10;
/// The most parts of a checkpoint. Each thread that writes it writes one.
pub const PARTS_MAX: u32 = 1 << 16;
/// Epochs are below this.
const EPOCH_END: u64 = 1 << (Tid::BITS - Tid::COUNTER_BITS);

/// How often a manifest is read again because another process has replaced it meanwhile.
const LOOKS_MAX: usize = 100;

const ADVICE: &str = "restore a backup, or MANIFEST from a copy of this directory";

/// The contents of a database directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Identifies the database; its log segments state the same id.
    pub database: DatabaseId,
    /// The openings for writing, oldest first. Those that recovery does not need may be missing.
    pub incarnations: Vec<Incarnation>,
    /// The newest complete checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The tables of a directory of an older format, until they are in the catalogue. Rows of the catalogue replace
    /// them one by one.
    pub inherited: Option<Catalogue>,
}

/// 128 random bits that identify a database.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatabaseId(pub u128);

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One opening of a database for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// Its number, from 1. Names of its segments contain it.
    pub number: u64,
    /// Its first epoch, above every epoch in which an earlier incarnation can have written.
    pub first_epoch: Epoch,
    /// Its last durable epoch: entries of later epochs are void. `None` before it was closed in order or recovered.
    pub durable_epoch: Option<Epoch>,
    /// The directory of each logger's segments, relative to the database directory or absolute.
    pub loggers: Vec<PathBuf>,
    /// Where each logger's log ends: exactly, if there is a durable epoch, otherwise at least there. Empty if
    /// that is unknown, as in manifests of format 1.
    pub ends: Vec<LogEnd>,
}

impl Incarnation {
    /// Whether its logs are void: it has ended, and none of its epochs was durable.
    pub fn is_void(&self) -> bool {
        self.durable_epoch.is_some_and(|durable| durable < self.first_epoch)
    }
}

/// Where the log of one logger in one incarnation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The segment with the last batch.
    pub segment: u64,
    /// The number of the last batch; zero if there is none.
    pub batches: u64,
    /// Where the last batch ends in the segment, in bytes.
    pub bytes: u64,
}

impl LogEnd {
    /// The end of a log without a batch.
    pub const FIRST: LogEnd = LogEnd { segment: 1, batches: 0, bytes: PAGE as u64 };
}

/// A checkpoint: all rows with their TIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its directory, relative to the database directory.
    pub directory: PathBuf,
    /// The epoch in which the pass over the tables began. The checkpoint has everything of earlier epochs, and
    /// replay begins here.
    pub begin_epoch: Epoch,
    /// The epoch in which the pass ended. The checkpoint has nothing of later epochs.
    pub end_epoch: Epoch,
    /// How many files it has.
    pub parts: u32,
    /// Rows in all of them.
    pub rows: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// Why a manifest was not replaced.
#[derive(Debug)]
pub struct NotWritten {
    /// The error of the file system.
    pub error: LogError,
    /// Whether a sync or the rename failed. Then it is unknown which manifest is in place and what else the disk has
    /// lost, so nothing more may be written or acknowledged. Otherwise the old manifest is untouched, and writing may
    /// be retried. A full disk that is reported before the sync of the directory is such a case.
    pub is_final: bool,
}

impl From<NotWritten> for LogError {
    fn from(not_written: NotWritten) -> LogError {
        not_written.error
    }
}

impl Manifest {
    /// Reads the manifest of a database directory, in format 3 with the tables that were added to it. Returns
    /// `None` if no database was created there: the directory does not exist, or has no file of a database. The
    /// manifest of a new database is written before its first segment and checkpoint.
    ///
    /// # Errors
    /// [`LogError::Format`] for a newer format. [`LogError::Corrupt`] if the manifest is damaged, or missing
    /// although there are segments or a checkpoint. [`LogError::Io`].
    pub fn find(disk: &dyn Disk, directory: &Path) -> Result<Option<Manifest>, LogError> {
        let path = directory.join(MANIFEST);
        let looking = || format!("looking for a database in {}", directory.display());
        if disk.find(&path).map_err(LogError::io(looking()))?.is_none() {
            return match first_of_a_database(disk, directory).map_err(LogError::io(looking()))? {
                Some(name) => {
                    Err(LogError::corrupt(&path, 0, format!("it is missing, although there is {name}"), ADVICE))
                }
                None => Ok(None),
            };
        }
        let reading = || LogError::io("reading the manifest");
        for _ in 0..LOOKS_MAX {
            let had_list = additions::is_there(disk, directory).map_err(reading())?;
            let bytes = read(disk, &path)?;
            let mut manifest = Manifest::decode(&bytes, &path)?;
            let Some(inherited) = &mut manifest.inherited else { return Ok(Some(manifest)) };
            let base = Base::of(&bytes).expect("its last line is sound");
            let added = additions::read(disk, directory, base, inherited);
            // Another process may have written a manifest with the tables of a list meanwhile. A list that began and
            // ended meanwhile need not be seen.
            let has_list = had_list || additions::is_there(disk, directory).map_err(reading())?;
            if !has_list || Base::find(disk, directory).map_err(reading())? == Some(base) {
                return added.map(|()| Some(manifest));
            }
        }
        let problem = format!("it changed {LOOKS_MAX} times while it was read: try again");
        Err(reading()(Error::new(ErrorKind::ResourceBusy, problem)))
    }

    /// Reads the manifest of a directory that must hold a database.
    ///
    /// # Errors
    /// [`LogError::NotADatabase`] if [`Manifest::find`] finds none, and its errors.
    pub fn read(disk: &dyn Disk, directory: &Path) -> Result<Manifest, LogError> {
        let problem = || format!("it holds no database: there is no file {MANIFEST} in it");
        Manifest::find(disk, directory)?
            .ok_or_else(|| LogError::NotADatabase { directory: directory.to_owned(), problem: problem() })
    }

    /// Replaces the manifest of a directory, or writes the first one. It is durable when this returns. After an
    /// error the old manifest or the new one is in place.
    ///
    /// # Errors
    /// [`NotWritten`]. A manifest that contradicts itself ([`Manifest::check`]) is not written.
    pub fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<(), NotWritten> {
        let what = "writing the manifest";
        let untouched = |source| NotWritten { error: LogError::io(what)(source), is_final: false };
        let refused = |problem| untouched(Error::new(ErrorKind::InvalidData, problem));
        let bytes = self.encode().map_err(refused)?;
        let (path, new) = (directory.join(MANIFEST), directory.join(MANIFEST_NEW));
        let prepare = || {
            if disk.find(&new)?.is_some() {
                disk.remove_file(&new)?;
            }
            let file = disk.open(&new, Opening::Create)?;
            file.write_all_at(&bytes, 0)?;
            Ok(file)
        };
        let file = prepare().map_err(untouched)?;
        let lost = |source| NotWritten { error: LogError::io(what)(source), is_final: true };
        // Some file systems allocate space at the sync and report a full disk there. This sync is not repeated,
        // so bytes that the kernel dropped do no harm. Nothing relies on this file, and the next attempt writes another
        // one.
        let unless_full = |source: Error| if is_full(&source) { untouched(source) } else { lost(source) };
        file.sync_data().map_err(unless_full)?;
        disk.rename(&new, &path).map_err(unless_full)?;
        disk.sync_dir(directory).map_err(lost)?;
        // A list of new tables names another manifest, and is void. To remove it is not needed for safety.
        if additions::is_there(disk, directory).unwrap_or(false) {
            let _ = disk.remove_file(&directory.join(ADDITIONS));
        }
        Ok(())
    }

    /// Encodes the file.
    fn encode(&self) -> Result<Vec<u8>, String> {
        self.check()?;
        let mut text = mirror::to_json(self);
        text.push('\n');
        let crc = crc32fast::hash(text.as_bytes());
        text.push_str(&format!("crc32 {crc:08x}\n"));
        if text.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(format!("it would have {} bytes; {MANIFEST_BYTES_MAX} are possible", text.len()));
        }
        Ok(text.into_bytes())
    }

    /// Decodes the bytes of the file at `path`.
    ///
    /// # Errors
    /// [`LogError::Format`] for a newer format; [`LogError::Corrupt`].
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Manifest, LogError> {
        let corrupt = |offset: usize, problem: String| LogError::corrupt(path, offset as u64, problem, ADVICE);
        let text = checked(bytes).map_err(|(offset, problem)| corrupt(offset, problem.to_owned()))?;
        let value: Value = serde_json::from_slice(text).map_err(|error| corrupt(0, format!("no JSON: {error}")))?;
        let format = value.get("format").and_then(Value::as_u64);
        let format = format.ok_or_else(|| corrupt(0, "it does not say its format".to_owned()))?;
        if format > u64::from(FORMAT) {
            return Err(LogError::Format { file: path.to_owned(), found: format, newest: FORMAT.into() });
        }
        let value = upgraded(value, format, &UPGRADES);
        let manifest = value.and_then(mirror::from_json).map_err(|problem| corrupt(0, problem))?;
        manifest.check().map_err(|problem| corrupt(0, problem))?;
        Ok(manifest)
    }

    /// Checks that the fields agree.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), String> {
        self.check_incarnations()?;
        let checkpoint = self.checkpoint.iter().map(|checkpoint| &checkpoint.directory);
        let loggers = self.incarnations.iter().flat_map(|incarnation| &incarnation.loggers);
        if let Some(path) = checkpoint.chain(loggers).find(|path| path.to_str().is_none()) {
            return Err(format!("the path {} is not UTF-8 and cannot be written down", path.display()));
        }
        if let Some(checkpoint) = &self.checkpoint {
            check_epoch(checkpoint.end_epoch)?;
            if checkpoint.begin_epoch > checkpoint.end_epoch {
                return Err("the checkpoint's last epoch is before its first".to_owned());
            }
            if checkpoint.parts > PARTS_MAX {
                return Err(format!("the checkpoint has {} parts; {PARTS_MAX} are possible", checkpoint.parts));
            }
        }
        self.inherited.as_ref().map_or(Ok(()), Catalogue::check)
    }

    fn check_incarnations(&self) -> Result<(), String> {
        for pair in self.incarnations.windows(2) {
            let [earlier, later] = pair else { continue };
            let after = |epoch: Epoch| epoch < later.first_epoch;
            if earlier.number >= later.number || !earlier.durable_epoch.is_some_and(after) {
                let (earlier, later) = (earlier.number, later.number);
                return Err(format!("incarnation {later} does not begin after {earlier} has ended"));
            }
        }
        for Incarnation { number, first_epoch, durable_epoch, loggers, ends } in &self.incarnations {
            if *number == 0 || *number > INCARNATION_MAX {
                return Err(format!(
                    "incarnation {number} is out of range: incarnations are numbered from 1 to {INCARNATION_MAX}"
                ));
            }
            check_epoch(*first_epoch)?;
            durable_epoch.map_or(Ok(()), check_epoch)?;
            if loggers.is_empty() || loggers.len() > LOGGERS_MAX {
                let count = loggers.len();
                return Err(format!("incarnation {number} has {count} loggers; 1 to {LOGGERS_MAX} are possible"));
            }
            if !ends.is_empty() && ends.len() != loggers.len() {
                let (ends, loggers) = (ends.len(), loggers.len());
                return Err(format!("incarnation {number} has {loggers} loggers and {ends} ends of their logs"));
            }
            if let Some(end) = ends.iter().find(|end| !(PAGE as u64..=SEGMENT_BYTES_MAX).contains(&end.bytes)) {
                return Err(format!("a log of incarnation {number} ends at byte {}, where none can", end.bytes));
            }
        }
        Ok(())
    }
}

/// Reads the file at `path`, unless it is too long for a manifest.
fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, LogError> {
    let reading = || LogError::io("reading the manifest");
    let file = disk.open(path, Opening::Read).map_err(reading())?;
    let length = file.bytes().map_err(reading())?;
    if length > MANIFEST_BYTES_MAX {
        let problem = format!("it has {length} bytes; a manifest has at most {MANIFEST_BYTES_MAX}");
        return Err(LogError::corrupt(path, MANIFEST_BYTES_MAX, problem, ADVICE));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).map_err(reading())?;
    Ok(bytes)
}

/// Whether the disk has no space for a write.
fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// An epoch has at most as many bits as it has in a TID.
pub(crate) fn check_epoch(epoch: Epoch) -> Result<(), String> {
    match epoch.0 < EPOCH_END {
        true => Ok(()),
        false => Err(format!("epoch {} is out of range: epochs are below {EPOCH_END}", epoch.0)),
    }
}

/// Upgrades from format 1 to 2. Format 1 does not state where logs end.
fn without_ends(mut value: Value) -> Result<Value, String> {
    let incarnations = value.get_mut("incarnations").and_then(Value::as_array_mut);
    for incarnation in incarnations.ok_or("`incarnations` is not a list")? {
        let incarnation = incarnation.as_object_mut().ok_or("an incarnation is not an object")?;
        if incarnation.insert("ends".to_owned(), Value::Array(Vec::new())).is_some() {
            return Err("an incarnation of format 1 has a field `ends`".to_owned());
        }
    }
    Ok(value)
}

/// Upgrades from format 2 to 3, whose epochs have more bits.
fn with_narrow_epochs(mut value: Value) -> Result<Value, String> {
    let widen = |holder: &mut Value, name: &str, widen: fn(u32, Epoch) -> Epoch| match holder.get_mut(name) {
        Some(Value::Null) => Ok(()),
        Some(epoch) => {
            let narrow = epoch.as_u64().ok_or_else(|| format!("`{name}` is not a natural number"))?;
            *epoch = widen(2, Epoch(narrow)).0.into();
            Ok(())
        }
        None => Err(format!("`{name}` is missing")),
    };
    let incarnations = value.get_mut("incarnations").and_then(Value::as_array_mut);
    for incarnation in incarnations.ok_or("`incarnations` is not a list")? {
        widen(incarnation, "first_epoch", narrow::first)?;
        widen(incarnation, "durable_epoch", narrow::last)?;
    }
    if let Some(checkpoint) = value.get_mut("checkpoint").filter(|checkpoint| !checkpoint.is_null()) {
        widen(checkpoint, "begin_epoch", narrow::first)?;
        widen(checkpoint, "end_epoch", narrow::last)?;
    }
    Ok(value)
}

/// Upgrades from format 3 to 4, whose tables are not in the manifest.
fn with_tables(mut value: Value) -> Result<Value, String> {
    let manifest = value.as_object_mut().ok_or("it is not an object")?;
    let mut inherited = serde_json::Map::new();
    for name in ["tables", "layouts"] {
        inherited.insert(name.to_owned(), manifest.remove(name).ok_or_else(|| format!("`{name}` is missing"))?);
    }
    for name in ["next_table", "next_layout"] {
        manifest.remove(name).ok_or_else(|| format!("`{name}` is missing"))?;
    }
    match manifest.insert("inherited".to_owned(), inherited.into()) {
        None => Ok(value),
        Some(_) => Err("a manifest of format 3 has a field `inherited`".to_owned()),
    }
}

/// Applies all upgrades from this format on.
fn upgraded(value: Value, format: u64, upgrades: &[Upgrade]) -> Result<Value, String> {
    let done = format.checked_sub(1).ok_or("there is no format 0")?;
    upgrades.iter().skip(done as usize).try_fold(value, |value, upgrade| upgrade(value))
}

/// The text above the last line, if that has its checksum. Otherwise the place of the error and the reason.
fn checked(bytes: &[u8]) -> Result<&[u8], (usize, &'static str)> {
    let whole = bytes.strip_suffix(b"\n").ok_or((bytes.len(), "it does not end in a line with its checksum"))?;
    let begin = whole.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let (text, last) = bytes.split_at(begin);
    if *last == *format!("crc32 {:08x}\n", crc32fast::hash(text)).as_bytes() {
        Ok(text)
    } else {
        Err((begin, "its last line is not the checksum of those above"))
    }
}

/// The name of a file or directory that only a database has, if there is one.
fn first_of_a_database(disk: &dyn Disk, directory: &Path) -> Result<Option<String>, Error> {
    if disk.find(directory)?.is_none() {
        return Ok(None);
    }
    let names = disk.list(directory)?.into_iter().filter_map(|found| found.name.into_string().ok());
    Ok(names.into_iter().find(|name| name.starts_with("log-") || name.starts_with("checkpoint-")))
}

#[cfg(all(test, not(loom)))]
mod tests;
