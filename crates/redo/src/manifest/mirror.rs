//! The JSON form of the manifest: the same fields, some of them renamed. So the types of the manifest do not depend on
//! the file. An unknown or missing field is an error. So a new field raises the format, unless its absence keeps the
//! former meaning.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use seriatim_base::Epoch;

use super::DatabaseId;
use crate::catalogue::mirror::{Layout, Table};
use crate::catalogue::{Catalogue, LayoutEntry, TableEntry};

/// Encodes a manifest as indented JSON.
pub(super) fn to_json(manifest: &super::Manifest) -> String {
    // A manifest has only strings, numbers, and lists of these, all of which JSON can represent.
    serde_json::to_string_pretty(&Manifest::from(manifest)).expect("plain data")
}

/// Decodes a JSON value of the current format.
///
/// # Errors
/// A field that is missing, unknown or of another type.
pub(super) fn from_json(value: Value) -> Result<super::Manifest, String> {
    serde_json::from_value::<Manifest>(value).map_err(|error| error.to_string())?.try_into()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: u64,
    /// 32 hexadecimal digits.
    database: String,
    incarnations: Vec<Incarnation>,
    checkpoint: Option<Checkpoint>,
    /// Written only by the first opening of a directory of an older format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inherited: Option<Inherited>,
}

/// The tables of a directory of an older format.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inherited {
    tables: Vec<Table>,
    layouts: Vec<Layout>,
}

/// Tables that were created after a manifest of format 3 was written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Addition {
    tables: Vec<Table>,
    layouts: Vec<Layout>,
    #[serde(rename = "next_table")]
    _next_table: u32,
    #[serde(rename = "next_layout")]
    _next_layout: u32,
}

/// Appends tables in their order.
fn append(catalogue: &mut Catalogue, tables: Vec<Table>, layouts: Vec<Layout>) -> Result<(), String> {
    for table in tables {
        let position = catalogue.tables.len() as u64;
        catalogue.tables.push(TableEntry { position, ..table.try_into()? });
    }
    catalogue.layouts.extend(layouts.into_iter().map(LayoutEntry::from));
    Ok(())
}

/// Adds the tables of a record of new tables.
///
/// # Errors
/// A field that is missing, unknown or of another type.
pub(super) fn add_from_json(catalogue: &mut Catalogue, json: &str) -> Result<(), String> {
    let addition: Addition = serde_json::from_str(json).map_err(|error| error.to_string())?;
    append(catalogue, addition.tables, addition.layouts)
}

impl From<&Catalogue> for Inherited {
    fn from(from: &Catalogue) -> Inherited {
        let table = |table: &TableEntry| Table::from(&TableEntry { position: 0, ..table.clone() });
        Inherited {
            tables: from.tables.iter().map(table).collect(),
            layouts: from.layouts.iter().map(Layout::from).collect(),
        }
    }
}

impl TryFrom<Inherited> for Catalogue {
    type Error = String;

    fn try_from(from: Inherited) -> Result<Catalogue, String> {
        let mut catalogue = Catalogue::default();
        append(&mut catalogue, from.tables, from.layouts)?;
        Ok(catalogue)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Incarnation {
    number: u64,
    first_epoch: u64,
    durable_epoch: Option<u64>,
    loggers: Vec<String>,
    ends: Vec<LogEnd>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogEnd {
    segment: u64,
    batches: u64,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    directory: String,
    begin_epoch: u64,
    end_epoch: u64,
    parts: u32,
    rows: u64,
    bytes: u64,
}

/// A path as text. [`super::Manifest::check`] has verified that it is UTF-8.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl From<&super::Manifest> for Manifest {
    fn from(from: &super::Manifest) -> Manifest {
        Manifest {
            format: crate::FORMAT.into(),
            database: from.database.to_string(),
            incarnations: from.incarnations.iter().map(Incarnation::from).collect(),
            checkpoint: from.checkpoint.as_ref().map(Checkpoint::from),
            inherited: from.inherited.as_ref().map(Inherited::from),
        }
    }
}

impl TryFrom<Manifest> for super::Manifest {
    type Error = String;

    fn try_from(from: Manifest) -> Result<super::Manifest, String> {
        let digits = from.database.len() == 32 && from.database.bytes().all(|byte| byte.is_ascii_hexdigit());
        let database = u128::from_str_radix(&from.database, 16).ok().filter(|_| digits);
        Ok(super::Manifest {
            database: DatabaseId(database.ok_or("`database` is not 32 hexadecimal digits")?),
            incarnations: from.incarnations.into_iter().map(Incarnation::into).collect(),
            checkpoint: from.checkpoint.map(Checkpoint::into),
            inherited: from.inherited.map(Catalogue::try_from).transpose()?,
        })
    }
}

impl From<&super::Incarnation> for Incarnation {
    fn from(from: &super::Incarnation) -> Incarnation {
        Incarnation {
            number: from.number,
            first_epoch: from.first_epoch.0,
            durable_epoch: from.durable_epoch.map(|epoch| epoch.0),
            loggers: from.loggers.iter().map(|directory| text(directory)).collect(),
            ends: from.ends.iter().map(LogEnd::from).collect(),
        }
    }
}

impl From<Incarnation> for super::Incarnation {
    fn from(from: Incarnation) -> super::Incarnation {
        super::Incarnation {
            number: from.number,
            first_epoch: Epoch(from.first_epoch),
            durable_epoch: from.durable_epoch.map(Epoch),
            loggers: from.loggers.into_iter().map(PathBuf::from).collect(),
            ends: from.ends.into_iter().map(LogEnd::into).collect(),
        }
    }
}

impl From<&super::LogEnd> for LogEnd {
    fn from(&super::LogEnd { segment, batches, bytes }: &super::LogEnd) -> LogEnd {
        LogEnd { segment, batches, bytes }
    }
}

impl From<LogEnd> for super::LogEnd {
    fn from(LogEnd { segment, batches, bytes }: LogEnd) -> super::LogEnd {
        super::LogEnd { segment, batches, bytes }
    }
}

impl From<&super::Checkpoint> for Checkpoint {
    fn from(from: &super::Checkpoint) -> Checkpoint {
        Checkpoint {
            directory: text(&from.directory),
            begin_epoch: from.begin_epoch.0,
            end_epoch: from.end_epoch.0,
            parts: from.parts,
            rows: from.rows,
            bytes: from.bytes,
        }
    }
}

impl From<Checkpoint> for super::Checkpoint {
    fn from(from: Checkpoint) -> super::Checkpoint {
        super::Checkpoint {
            directory: from.directory.into(),
            begin_epoch: Epoch(from.begin_epoch),
            end_epoch: Epoch(from.end_epoch),
            parts: from.parts,
            rows: from.rows,
            bytes: from.bytes,
        }
    }
}
