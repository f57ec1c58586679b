//! The tables of the simulated workload: every organization, every class of keys, every kind of index.

use std::sync::LazyLock;

use seriatim::catalog::{ColumnDef, ColumnType, Organization, TableDef, Value, desc};
use seriatim::procedure::Data;
use seriatim::{Database, SchemaError, Table, Text};

/// The columns of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Word,
    Pair,
    Text,
}

/// An index over one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexKind {
    pub(crate) name: &'static str,
    /// Over the tag, which no two rows share, or over the group.
    pub(crate) is_unique: bool,
    pub(crate) is_ordered: bool,
}

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    key: Key,
    pub(crate) is_ordered: bool,
    /// Whether rows with the first column of the key lie together; their notes have a maximum.
    pub(crate) is_clustered: bool,
    pub(crate) indexes: &'static [IndexKind],
}

const GROUPS: IndexKind = IndexKind { name: "groups", is_unique: false, is_ordered: true };
const GROUP_LISTS: IndexKind = IndexKind { name: "group_lists", is_unique: false, is_ordered: false };
const TAGS: IndexKind = IndexKind { name: "tags", is_unique: true, is_ordered: true };
const TAG_HASH: IndexKind = IndexKind { name: "tag_hash", is_unique: true, is_ordered: false };

/// Bytes of a note in a clustered table.
pub(crate) const NOTE_MAX: u16 = 40;

/// Every table there can be, in the order in which they are created.
pub(crate) const KINDS: [Kind; 7] = [
    Kind { name: "ledger", key: Key::Word, is_ordered: true, is_clustered: false, indexes: &[GROUPS, TAG_HASH] },
    Kind { name: "till", key: Key::Word, is_ordered: false, is_clustered: false, indexes: &[GROUP_LISTS] },
    Kind { name: "pair", key: Key::Pair, is_ordered: true, is_clustered: false, indexes: &[TAGS] },
    Kind { name: "named", key: Key::Text, is_ordered: false, is_clustered: false, indexes: &[GROUPS, TAGS] },
    Kind { name: "plain", key: Key::Text, is_ordered: true, is_clustered: false, indexes: &[] },
    Kind { name: "bare", key: Key::Pair, is_ordered: false, is_clustered: false, indexes: &[] },
    Kind { name: "lines", key: Key::Pair, is_ordered: true, is_clustered: true, indexes: &[GROUPS, TAG_HASH] },
];

/// The place in [`KINDS`] of the clustered table.
pub(crate) const LINES: usize = 6;

macro_rules! lines {
    ($lines:ident $(, $cluster:ident($of:ident))?) => {
        #[derive(Table)]
        #[table(name = "lines", key(high, low) $(, $cluster($of))?)]
        #[table(index(name = "groups", columns(desc(group))))]
        #[table(index(name = "tag_hash", columns(tag), hash, unique))]
        struct $lines {
            high: u32,
            low: u32,
            group: u16,
            tag: u32,
            #[column(immutable)]
            born: u32,
            amount: i64,
            note: Option<Text<{ NOTE_MAX as usize }>>,
        }
    };
}

lines!(Loose);
lines!(Clustered, cluster(high));

/// Has that table clustered or not, as another program would that declares it so.
///
/// # Errors
/// As [`Database::table`].
pub(crate) fn convert(db: &Database, is_clustered: bool) -> Result<(), SchemaError> {
    if is_clustered { db.table::<Clustered>().map(drop) } else { db.table::<Loose>().map(drop) }
}

static DEFINITIONS: LazyLock<Vec<TableDef>> = LazyLock::new(|| KINDS.iter().map(define).collect());

impl Kind {
    /// Whether two rows may not have the same tag.
    pub(crate) fn has_unique_tags(&self) -> bool {
        self.indexes.iter().any(|index| index.is_unique)
    }

    /// Whether groups can be looked up.
    pub(crate) fn group_index(&self) -> Option<&'static IndexKind> {
        self.indexes.iter().find(|index| !index.is_unique)
    }

    pub(crate) fn tag_index(&self) -> Option<&'static IndexKind> {
        self.indexes.iter().find(|index| index.is_unique)
    }

    /// The values of a key's columns.
    pub(crate) fn key_values(&self, key: u32) -> Vec<Value> {
        match self.key {
            Key::Word => vec![key.into()],
            Key::Pair => [key / 4, key % 4].map(Value::from).to_vec(),
            Key::Text => vec![Value::Text(format!("{key:03}{}", &"abcdefghij"[..key as usize % 11]))],
        }
    }

    fn key_of(&self, values: &[Value]) -> Option<u32> {
        match (self.key, values) {
            (Key::Word, [Value::Integer(key, _), ..]) => u32::try_from(*key).ok(),
            (Key::Pair, [Value::Integer(high, _), Value::Integer(low, _), ..]) => u32::try_from(high * 4 + low).ok(),
            (Key::Text, [Value::Text(text), ..]) => text.get(..3)?.parse().ok(),
            _ => None,
        }
    }

    fn key_columns(&self) -> usize {
        if self.key == Key::Pair { 2 } else { 1 }
    }
}

/// How a table is declared.
pub(crate) fn definition(kind: usize) -> TableDef {
    DEFINITIONS[kind].clone()
}

fn define(kind: &Kind) -> TableDef {
    let mut table = TableDef::builder(kind.name);
    let keys: &[&'static str] = if kind.key == Key::Pair { &["high", "low"] } else { &["id"] };
    for name in keys {
        let ty = match kind.key {
            Key::Word => ColumnType::U64,
            Key::Pair => ColumnType::U32,
            Key::Text => ColumnType::Text { max: 16 },
        };
        table = table.column(ColumnDef::new(*name, ty));
    }
    let note = if kind.is_clustered { ColumnType::Text { max: NOTE_MAX } } else { ColumnType::LongText };
    let mut table = table
        .column(ColumnDef::new("group", ColumnType::U16))
        .column(ColumnDef::new("tag", ColumnType::U32))
        .column(ColumnDef::new("born", ColumnType::U32).immutable())
        .column(ColumnDef::new("amount", ColumnType::I64))
        .column(ColumnDef::new("note", note).nullable())
        .key(keys.iter().copied());
    if !kind.is_ordered {
        table = table.hash();
    }
    if kind.is_clustered {
        table = table.cluster(keys[..1].iter().copied());
    }
    for index in kind.indexes {
        table = match (index.is_unique, index.is_ordered) {
            (true, true) => table.unique_index(index.name, ["tag"], Organization::Ordered),
            (true, false) => table.unique_index(index.name, ["tag"], Organization::Hash),
            (false, true) => table.index(index.name, [desc("group")]),
            (false, false) => table.hash_index(index.name, ["group"]),
        };
    }
    table.finish().expect("a sound declaration")
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: u32,
    pub(crate) group: u16,
    pub(crate) tag: u32,
    /// Immutable.
    pub(crate) born: u32,
    pub(crate) amount: i64,
    /// Perhaps long.
    pub(crate) note: Option<String>,
}

impl Row {
    /// Its values, one a column.
    pub(crate) fn values(&self, kind: &Kind) -> Vec<Value> {
        let mut values = kind.key_values(self.key);
        values.extend([
            self.group.into(),
            self.tag.into(),
            self.born.into(),
            self.amount.into(),
            self.note.as_deref().into(),
        ]);
        values
    }

    /// The row that has these values; `None` if no row of the workload has.
    pub(crate) fn of(kind: &Kind, values: &[Value]) -> Option<Row> {
        let key = kind.key_of(values)?;
        match &values[kind.key_columns()..] {
            [group, tag, born, amount, note] => Some(Row {
                key,
                group: u16::from_value(group).ok()?,
                tag: u32::from_value(tag).ok()?,
                born: u32::from_value(born).ok()?,
                amount: i64::from_value(amount).ok()?,
                note: Option::from_value(note).ok()?,
            }),
            _ => None,
        }
    }
}
