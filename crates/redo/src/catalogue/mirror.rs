//! The JSON form of tables, columns and indexes: the same fields, some of them renamed. So the types of the catalogue
//! do not depend on the files. Columns and their types are the catalog's own. An unknown or missing field is an error.
//! So a new field raises the format, unless its absence keeps the former meaning.

use serde::{Deserialize, Serialize};
use seriatim_base::{ColumnId, LayoutId, TableId};
use seriatim_catalog::{self as catalog, CheckDef, ColumnDef, Organization};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    id: u32,
    name: String,
    /// In a manifest, not in the catalogue: there each column is a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) columns: Option<Vec<ColumnDef>>,
    key: Vec<KeyPart>,
    organization: Organization,
    /// As `columns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) indexes: Option<Vec<Index>>,
    /// In neither: tables of manifests have none, and in the catalogue each is a row.
    #[serde(skip)]
    pub(super) checks: Vec<CheckDef>,
    capacity: u64,
    /// Written only if it is not zero, as in manifests, whose order it replaces.
    #[serde(default, skip_serializing_if = "is_zero")]
    position: u64,
    /// The number of leading key columns that rows of one run share. Written only if it is not zero, as
    /// `nulls_distinct`.
    #[serde(default, skip_serializing_if = "is_zero")]
    cluster: u64,
    /// Written only if it is not the first column of the key, as `nulls_distinct`.
    #[serde(default, skip_serializing_if = "is_by_first_column")]
    partition: Partition,
    /// Written only if there is one, as `nulls_distinct`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_name: Option<String>,
    /// Written only if it is not zero, as `nulls_distinct`.
    #[serde(default, skip_serializing_if = "is_zero")]
    extension: u64,
    /// Written only if it is true, as `nulls_distinct`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    void: bool,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Partition {
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

fn is_at_once(checked: &catalog::Checked) -> bool {
    *checked == catalog::Checked::Immediately
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Index {
    id: u32,
    name: String,
    key: Vec<KeyPart>,
    unique: bool,
    /// Written only if it is true. A program from before this field refuses such a manifest and does not
    /// misread it. An older manifest keeps its meaning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    nulls_distinct: bool,
    /// Likewise, if it is not always at once.
    #[serde(default, skip_serializing_if = "is_at_once")]
    checked: catalog::Checked,
    organization: Organization,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyPart {
    /// The column's number.
    column: u16,
    descending: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layout {
    id: u32,
    table: u32,
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

impl From<&super::TableEntry> for Table {
    fn from(from: &super::TableEntry) -> Table {
        let definition = &from.definition;
        let index = |(index, id): (&catalog::IndexDef, &TableId)| Index {
            id: id.0,
            name: index.name.to_string(),
            key: index.parts.iter().map(KeyPart::from).collect(),
            unique: index.unique,
            nulls_distinct: definition.has_distinct_nulls(index),
            checked: index.checked,
            organization: index.organization,
        };
        Table {
            id: from.id.0,
            name: definition.name.to_string(),
            columns: Some(definition.columns.clone()),
            key: definition.key.iter().map(KeyPart::from).collect(),
            organization: definition.organization,
            indexes: Some(definition.indexes.iter().zip(&from.indexes).map(index).collect()),
            checks: definition.checks.clone(),
            capacity: definition.capacity as u64,
            position: from.position,
            cluster: definition.cluster as u64,
            partition: match definition.partitioning {
                catalog::Partitioning::KeyColumn(at) => Partition::KeyColumn(at as u64),
                catalog::Partitioning::Replicated => Partition::Replicated,
            },
            key_name: definition.key_name.as_ref().map(|name| name.to_string()),
            extension: definition.extension as u64,
            void: from.is_void,
        }
    }
}

impl TryFrom<Table> for super::TableEntry {
    type Error = String;

    fn try_from(from: Table) -> Result<super::TableEntry, String> {
        let missing = |what| format!("table `{}` has no field `{what}`", from.name);
        let columns = from.columns.ok_or_else(|| missing("columns"))?;
        let indexes = from.indexes.ok_or_else(|| missing("indexes"))?;
        let ids = indexes.iter().map(|index| TableId(index.id)).collect();
        let nullable: Vec<bool> = columns.iter().map(|column| column.nullable).collect();
        let is_nullable = |part: &KeyPart| nullable.get(usize::from(part.column)).is_some_and(|nullable| *nullable);
        let index = |index: Index| catalog::IndexDef {
            nulls_not_distinct: index.unique && !index.nulls_distinct && index.key.iter().any(is_nullable),
            name: index.name.into(),
            parts: index.key.into_iter().map(KeyPart::into).collect(),
            unique: index.unique,
            checked: index.checked,
            organization: index.organization,
        };
        let definition = catalog::TableDef {
            name: from.name.into(),
            columns,
            key: from.key.into_iter().map(KeyPart::into).collect(),
            key_name: from.key_name.map(Into::into),
            organization: from.organization,
            indexes: indexes.into_iter().map(index).collect(),
            // In the catalogue each is a row of its own; a manifest has none.
            references: Vec::new(),
            checks: from.checks,
            // A hint. A capacity that does not fit into `usize` exceeds this machine's memory.
            capacity: usize::try_from(from.capacity).unwrap_or(usize::MAX),
            // The check of the declaration refuses a cluster that is not a prefix of the key.
            cluster: usize::try_from(from.cluster).unwrap_or(usize::MAX),
            // That check also refuses a column that the key lacks.
            partitioning: match from.partition {
                Partition::KeyColumn(at) => catalog::Partitioning::KeyColumn(usize::try_from(at).unwrap_or(usize::MAX)),
                Partition::Replicated => catalog::Partitioning::Replicated,
            },
            // The check of the declaration refuses an extension of all columns.
            extension: usize::try_from(from.extension).unwrap_or(usize::MAX),
        };
        let (id, position) = (TableId(from.id), from.position);
        Ok(super::TableEntry { id, definition, indexes: ids, position, is_void: from.void })
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
