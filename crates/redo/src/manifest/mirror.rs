//! The JSON form of the manifest: the same fields, some of them renamed. So the types of the manifest do not depend on
//! the file. Columns and their types are the catalog's own. An unknown or missing field is an error. So a new field
//! raises the format, unless its absence keeps the former meaning.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use seriatim_base::{ColumnId, Epoch, LayoutId, TableId};
use seriatim_catalog::{self as catalog, ColumnDef, Organization};

use super::DatabaseId;

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
    tables: Vec<Table>,
    layouts: Vec<Layout>,
    next_table: u32,
    next_layout: u32,
}

/// Tables that were created after the manifest was written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Addition {
    tables: Vec<Table>,
    layouts: Vec<Layout>,
    next_table: u32,
    next_layout: u32,
}

/// Encodes the tables and layouts of the manifest from these positions on.
pub(super) fn addition_to_json(manifest: &super::Manifest, tables: usize, layouts: usize) -> String {
    let addition = Addition {
        tables: manifest.tables[tables..].iter().map(Table::from).collect(),
        layouts: manifest.layouts[layouts..].iter().map(Layout::from).collect(),
        next_table: manifest.next_table.0,
        next_layout: manifest.next_layout.0,
    };
    serde_json::to_string(&addition).expect("plain data")
}

/// Adds what [`addition_to_json`] has encoded.
///
/// # Errors
/// A field that is missing, unknown or of another type.
pub(super) fn add_from_json(manifest: &mut super::Manifest, json: &str) -> Result<(), String> {
    let addition: Addition = serde_json::from_str(json).map_err(|error| error.to_string())?;
    manifest.tables.extend(addition.tables.into_iter().map(super::TableEntry::from));
    manifest.layouts.extend(addition.layouts.into_iter().map(super::LayoutEntry::from));
    (manifest.next_table, manifest.next_layout) = (TableId(addition.next_table), LayoutId(addition.next_layout));
    Ok(())
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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    id: u32,
    name: String,
    columns: Vec<ColumnDef>,
    key: Vec<KeyPart>,
    organization: Organization,
    indexes: Vec<Index>,
    capacity: u64,
    /// The number of leading key columns that rows of one run share. Written only if it is not zero, as
    /// `nulls_distinct`.
    #[serde(default, skip_serializing_if = "is_zero")]
    cluster: u64,
    /// Written only if it is not the first column of the key, as `nulls_distinct`.
    #[serde(default, skip_serializing_if = "is_by_first_column")]
    partition: Partition,
    /// Written only if it is true, as `nulls_distinct`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    void: bool,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Partition {
    KeyColumn(u64),
    Replicated,
}

impl Default for Partition {
    fn default() -> Partition {
        Partition::KeyColumn(0)
    }
}

fn is_by_first_column(partition: &Partition) -> bool {
    *partition == Partition::default()
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    id: u32,
    name: String,
    key: Vec<KeyPart>,
    unique: bool,
    /// Written only if it is true. A program from before this field refuses such a manifest and does not
    /// misread it. An older manifest keeps its meaning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    nulls_distinct: bool,
    organization: Organization,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyPart {
    /// The column's number.
    column: u16,
    descending: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layout {
    id: u32,
    table: u32,
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
            tables: from.tables.iter().map(Table::from).collect(),
            layouts: from.layouts.iter().map(Layout::from).collect(),
            next_table: from.next_table.0,
            next_layout: from.next_layout.0,
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
            tables: from.tables.into_iter().map(Table::into).collect(),
            layouts: from.layouts.into_iter().map(Layout::into).collect(),
            next_table: TableId(from.next_table),
            next_layout: LayoutId(from.next_layout),
        })
    }
}

impl From<&super::LayoutEntry> for Layout {
    fn from(from: &super::LayoutEntry) -> Layout {
        Layout { id: from.id.0, table: from.table.0 }
    }
}

impl From<Layout> for super::LayoutEntry {
    fn from(from: Layout) -> super::LayoutEntry {
        super::LayoutEntry { id: LayoutId(from.id), table: TableId(from.table) }
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

impl From<&super::TableEntry> for Table {
    fn from(from: &super::TableEntry) -> Table {
        let definition = &from.definition;
        let index = |(index, id): (&catalog::IndexDef, &TableId)| Index {
            id: id.0,
            name: index.name.to_string(),
            key: index.parts.iter().map(KeyPart::from).collect(),
            unique: index.unique,
            nulls_distinct: definition.has_distinct_nulls(index),
            organization: index.organization,
        };
        Table {
            id: from.id.0,
            name: definition.name.to_string(),
            columns: definition.columns.clone(),
            key: definition.key.iter().map(KeyPart::from).collect(),
            organization: definition.organization,
            indexes: definition.indexes.iter().zip(&from.indexes).map(index).collect(),
            capacity: definition.capacity as u64,
            cluster: definition.cluster as u64,
            partition: match definition.partitioning {
                catalog::Partitioning::KeyColumn(at) => Partition::KeyColumn(at as u64),
                catalog::Partitioning::Replicated => Partition::Replicated,
            },
            void: from.is_void,
        }
    }
}

impl From<Table> for super::TableEntry {
    fn from(from: Table) -> super::TableEntry {
        let ids = from.indexes.iter().map(|index| TableId(index.id)).collect();
        let nullable: Vec<bool> = from.columns.iter().map(|column| column.nullable).collect();
        let is_nullable = |part: &KeyPart| nullable.get(usize::from(part.column)).is_some_and(|nullable| *nullable);
        let index = |index: Index| catalog::IndexDef {
            nulls_not_distinct: index.unique && !index.nulls_distinct && index.key.iter().any(is_nullable),
            name: index.name.into(),
            parts: index.key.into_iter().map(KeyPart::into).collect(),
            unique: index.unique,
            organization: index.organization,
        };
        let definition = catalog::TableDef {
            name: from.name.into(),
            columns: from.columns,
            key: from.key.into_iter().map(KeyPart::into).collect(),
            organization: from.organization,
            indexes: from.indexes.into_iter().map(index).collect(),
            // A hint. A capacity that does not fit into `usize` exceeds this machine's memory.
            capacity: usize::try_from(from.capacity).unwrap_or(usize::MAX),
            // The check of the declaration refuses a cluster that is not a prefix of the key.
            cluster: usize::try_from(from.cluster).unwrap_or(usize::MAX),
            // That check also refuses a column that the key lacks.
            partitioning: match from.partition {
                Partition::KeyColumn(at) => catalog::Partitioning::KeyColumn(usize::try_from(at).unwrap_or(usize::MAX)),
                Partition::Replicated => catalog::Partitioning::Replicated,
            },
        };
        super::TableEntry { id: TableId(from.id), definition, indexes: ids, is_void: from.void }
    }
}

impl From<&catalog::KeyPart> for KeyPart {
    fn from(from: &catalog::KeyPart) -> KeyPart {
        KeyPart { column: from.column.0, descending: from.descending }
    }
}

impl From<KeyPart> for catalog::KeyPart {
    fn from(from: KeyPart) -> catalog::KeyPart {
        catalog::KeyPart { column: ColumnId(from.column), descending: from.descending }
    }
}
