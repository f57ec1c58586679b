//! The catalogue: which tables, columns and indexes a database has. It is data: rows of a table of its own, changed by
//! transactions, in log and checkpoints like all other rows.
//!
//! ```text
//! object u32 | kind u8 | number u32        the key: a table's id, and what the row says of it
//! body text                                JSON (`mirror`), by kind
//!     0   number 0             the table: name, key, organization, place among the tables
//!     1   position             a column
//!     2   position             an index
//!     3   id of a layout       nothing: the layout has the table's columns
//!     4   position             a condition that each row meets
//!     6   position             a foreign key
//!     10  number 0             of which table its rows are now ([`EarlierEntry`]); the table is void
//! sequence u32 | kind u8 | 0               likewise of a sequence, whose ids are not those of tables
//!     8                        its declaration, and the table that it belongs to
//!     9                        up to which number it is reserved ([`Reserved`])
//! role u32 | kind u8 | 0                   likewise of a role
//!     16                       its declaration
//! position u32 | kind u8 | 0               the rights to an object: the place of a table among the tables
//!     17                       owner and grants of the table
//!     18                       the same of the schema, which has the position 0
//!     19                       the secret of which salts of unknown users are made, at position 0
//!     20                       owner and grants of a sequence, at its id
//! ```
//! Invariant: the catalogue can be read before any other row is. Its own table has a fixed id, layout and declaration.
//! A group of the log has rows of the catalogue only, or none, and so has a block of a checkpoint. The headers of
//! batches and blocks say where they are. So no reader needs the layout of a row that it skips.
//!
//! Recovery reads the catalogue as it is at the end of the log, and then everything else by its layouts. A table that
//! was replaced stays in it as void, since any file may have entries of it. It can be deleted when a checkpoint has
//! begun after the last entry was committed ([`Found::obsolete`]).
//!
//! Decision record 27 has the reasons, and the order of changes of the catalogue and of rows across loggers.

pub(crate) mod mirror;
mod read;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use seriatim_base::{ColumnId, LayoutId, TableId};
use seriatim_catalog::evolution::Source;
use seriatim_catalog::wire::RowWire;
use seriatim_catalog::{
    Access, CheckDef, ColumnDef, ColumnType, KeyCodec, Object, ReferenceDef, Rights, RoleDef, Secret, SequenceDef,
    TableDef, Value, WrittenGrant, check_references,
};

pub use self::read::Found;
pub(crate) use self::read::{find, find_in, is_group};

/// The id of the catalogue's own table. All ids of others are below it.
pub const TABLE: TableId = TableId((1 << 14) - 1);
/// The layout of its rows. All ids of other layouts are below it.
pub const LAYOUT: LayoutId = LayoutId(TABLE.0);

/// Places among the tables are below this. Each new table has one more than the last.
const POSITION_END: u64 = 1 << 63;

const OF_TABLE: u8 = 0;
const OF_COLUMN: u8 = 1;
const OF_INDEX: u8 = 2;
const OF_LAYOUT: u8 = 3;
const OF_CHECK: u8 = 4;
const OF_REFERENCE: u8 = 6;
const OF_SEQUENCE: u8 = 8;
const OF_RESERVED: u8 = 9;
const OF_EARLIER: u8 = 10;
const OF_ROLE: u8 = 16;
const OF_TABLE_RIGHTS: u8 = 17;
const OF_SCHEMA_RIGHTS: u8 = 18;
const OF_SECRET: u8 = 19;
const OF_SEQUENCE_RIGHTS: u8 = 20;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its id.
    pub id: TableId,
    /// Its declaration.
    pub definition: TableDef,
    /// The ids of its indexes, in order of declaration.
    pub indexes: Vec<TableId>,
    /// Its place among the tables, which need not be the order of ids. A table has that of the table it replaces.
    pub position: u64,
    /// Whether its rows are void: it was replaced, or it will replace another table and is not complete. Its
    /// declaration tells how to skip its rows in log and checkpoint.
    pub is_void: bool,
}

/// The meaning of a layout id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutEntry {
    /// The id.
    pub id: LayoutId,
    /// The table whose declared columns it describes.
    pub table: TableId,
}

/// Where a column of a converted row has its value from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The column of the earlier row at this position.
    Column(u16),
    /// This value, as text; NULL if there is none.
    Value(Option<String>),
}

/// The rows of a void table are those of another, which replaced it without a copy: they are converted when they are
/// read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierEntry {
    /// The void table.
    pub table: TableId,
    /// The one whose rows they are. It may be void too, and say the same of a further one.
    pub of: TableId,
    /// For each column of that.
    pub columns: Vec<Origin>,
    /// Whether memory has no row in the earlier layout any more, so that a checkpoint that begins now has none.
    pub is_drained: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Earlier {
    of: u32,
    columns: Vec<Origin>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    drained: bool,
}

impl EarlierEntry {
    /// The row that says so.
    pub fn row(&self) -> Row {
        let body = Earlier { of: self.of.0, columns: self.columns.clone(), drained: self.is_drained };
        row_of((self.table.0, OF_EARLIER, 0), &body)
    }

    /// What the columns of converted rows are made of.
    fn sources(&self, after: &TableDef) -> Result<Vec<Source>, String> {
        if self.columns.len() != after.columns.len() {
            return Err(format!("says of {} columns where they come from", self.columns.len()));
        }
        let source = |(origin, column): (&Origin, &ColumnDef)| match origin {
            Origin::Column(at) => Ok(Source::Of(ColumnId(*at))),
            Origin::Value(None) if column.nullable => Ok(Source::Value(Value::NONE)),
            Origin::Value(None) => Err(format!("has NULL in column `{}`", column.name)),
            Origin::Value(Some(text)) => {
                let value = column.ty.parse(text).map_err(|error| error.to_string())?;
                Ok(Source::Value(if column.nullable { value.some() } else { value }))
            }
        };
        self.columns.iter().zip(&after.columns).map(source).collect()
    }

    /// That the columns have these values. `None` if a row's number is one of them: such rows are not left as they are.
    pub fn origins(sources: &[Source]) -> Option<Vec<Origin>> {
        let origin = |source: &Source| match source {
            Source::Of(column) => Some(Origin::Column(column.0)),
            Source::Value(value) => Some(Origin::Value(value.to_text())),
            Source::Number => None,
        };
        sources.iter().map(origin).collect()
    }
}

/// The sources of a conversion by the second after one by the first.
pub fn compose(first: &[Source], second: &[Source]) -> Vec<Source> {
    let source = |source: &Source| match source {
        Source::Of(column) => first.get(column.index()).unwrap_or(source).clone(),
        Source::Value(_) | Source::Number => source.clone(),
    };
    second.iter().map(source).collect()
}

/// How far a sequence has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// No number up to this one is given from now on, in the order in which the sequence gives them. If none was given
    /// yet, this is the first.
    pub last: i64,
    /// Whether `last` was given, or may have been.
    pub given: bool,
}

/// A sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceEntry {
    /// Its id. Those of tables are others.
    pub id: u32,
    /// Its declaration.
    pub definition: SequenceDef,
    /// The position of the table whose identity column has its numbers: [`TableEntry::position`].
    pub owner: Option<u64>,
    /// How far it has got.
    pub reserved: Reserved,
}

/// The row of a sequence's declaration.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sequence {
    sequence: SequenceDef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<u64>,
}

/// The tables of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// The tables, in the order of their positions.
    pub tables: Vec<TableEntry>,
    /// The meanings of the layout ids in log and checkpoint.
    pub layouts: Vec<LayoutEntry>,
    /// The sequences, in the order of their ids.
    pub sequences: Vec<SequenceEntry>,
    /// The void tables whose rows are of others.
    pub earlier: Vec<EarlierEntry>,
    /// The roles and their rights.
    pub access: Access,
}

/// The row of the rights to an object.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RightsRow {
    owner: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    grants: Vec<WrittenGrant>,
}

/// The rows of roles and rights.
///
/// # Errors
/// A table has a position that no row can have.
pub fn rows_of_access(access: &Access) -> Result<Vec<Row>, String> {
    let first = Access::default();
    let changed = access.roles().filter(|(id, role)| first.role(*id) != Some(role));
    let mut rows: Vec<Row> = changed.map(|(id, role)| row_of((id, OF_ROLE, 0), role)).collect();
    for (object, rights) in access.objects() {
        let row = RightsRow { owner: rights.owner, grants: rights.written() };
        rows.push(row_of(key_of_rights(object)?, &row));
    }
    rows.extend(access.secret().map(|secret| row_of((0, OF_SECRET, 0), secret)));
    Ok(rows)
}

fn key_of_rights(object: Object) -> Result<(u32, u8, u32), String> {
    match object {
        Object::Schema => Ok((0, OF_SCHEMA_RIGHTS, 0)),
        Object::Sequence(id) => Ok((id, OF_SEQUENCE_RIGHTS, 0)),
        Object::Table(position) => match u32::try_from(position) {
            Ok(position) => Ok((position, OF_TABLE_RIGHTS, 0)),
            Err(_) => Err(format!("only the first {} tables can have rights of their own", u32::MAX)),
        },
    }
}

/// Takes a row of roles and rights.
fn put_access(access: &mut Access, object: u32, kind: u8, body: &str) -> Result<(), String> {
    let wrong = |problem: &dyn std::fmt::Display| format!("row of kind {kind} of {object}: {problem}");
    match kind {
        OF_ROLE => access.put(object, of_json::<RoleDef>(body).map_err(|error| wrong(&error))?),
        OF_SECRET => access.set_secret(of_json::<Secret>(body).map_err(|error| wrong(&error))?),
        _ => {
            let row: RightsRow = of_json(body).map_err(|error| wrong(&error))?;
            let rights = Rights::of_written(row.owner, &row.grants, Ok).map_err(|error| wrong(&error))?;
            let object = match kind {
                OF_TABLE_RIGHTS => Object::Table(object.into()),
                OF_SEQUENCE_RIGHTS => Object::Sequence(object),
                _ => Object::Schema,
            };
            access.set_rights(object, rights);
        }
    }
    Ok(())
}

/// A row of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Object, kind and number.
    pub key: (u32, u8, u32),
    /// What it says.
    pub body: String,
}

impl Row {
    /// The values of its key's columns.
    pub fn key_values(&self) -> [Value; 3] {
        let (object, kind, number) = self.key;
        [Value::from(object), Value::from(kind), Value::from(number)]
    }
}

/// The name of the last column.
pub const BODY: &str = "body";

/// The declaration of the catalogue's own table.
pub fn definition() -> TableDef {
    let columns = [("object", ColumnType::U32), ("kind", ColumnType::U8), ("number", ColumnType::U32)];
    let table = columns
        .into_iter()
        .fold(TableDef::builder("catalogue"), |table, (name, ty)| table.column(ColumnDef::new(name, ty)));
    let table = table.column(ColumnDef::new(BODY, ColumnType::LongText)).key(["object", "kind", "number"]);
    table.finish().expect("a sound declaration")
}

impl TableEntry {
    /// The rows that say all of a table, with these layouts.
    pub fn rows(&self, layouts: &[LayoutEntry]) -> Vec<Row> {
        let (first, columns, indexes, checks) = self.parts();
        let mut rows = vec![first];
        rows.extend((0..).zip(&columns).map(|(at, column)| self.row_of(OF_COLUMN, at, column)));
        rows.extend((0..).zip(&indexes).map(|(at, index)| self.row_of(OF_INDEX, at, index)));
        let references = (0..).zip(&self.definition.references);
        rows.extend(references.map(|(at, reference)| self.row_of(OF_REFERENCE, at, reference)));
        rows.extend((0..).zip(&checks).map(|(at, check)| self.row_of(OF_CHECK, at, check)));
        let own = layouts.iter().filter(|layout| layout.table == self.id);
        rows.extend(own.map(|layout| Row { key: (self.id.0, OF_LAYOUT, layout.id.0), body: "{}".to_owned() }));
        rows
    }

    /// The first of its rows, which says whether it is void.
    pub fn row(&self) -> Row {
        self.parts().0
    }

    /// Its first row, and of what the others are.
    fn parts(&self) -> (Row, Vec<ColumnDef>, Vec<mirror::Index>, Vec<CheckDef>) {
        let mut table = mirror::Table::from(self);
        let (columns, indexes) = (table.columns.take().unwrap_or_default(), table.indexes.take().unwrap_or_default());
        let checks = std::mem::take(&mut table.checks);
        (self.row_of(OF_TABLE, 0, &table), columns, indexes, checks)
    }

    fn row_of(&self, kind: u8, number: u32, body: &impl Serialize) -> Row {
        row_of((self.id.0, kind, number), body)
    }
}

fn row_of(key: (u32, u8, u32), body: &impl Serialize) -> Row {
    // Bodies have only strings, numbers, and lists of these, all of which JSON can represent.
    Row { key, body: serde_json::to_string(body).expect("plain data") }
}

impl SequenceEntry {
    /// The rows that say all of it.
    pub fn rows(&self) -> [Row; 2] {
        let sequence = Sequence { sequence: self.definition.clone(), owner: self.owner };
        [row_of((self.id, OF_SEQUENCE, 0), &sequence), SequenceEntry::row_of_reserved(self.id, self.reserved)]
    }

    /// The row that says how far a sequence has got.
    pub fn row_of_reserved(id: u32, reserved: Reserved) -> Row {
        row_of((id, OF_RESERVED, 0), &reserved)
    }
}

impl Catalogue {
    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let sequences = self.sequences.iter().flat_map(SequenceEntry::rows);
        let earlier = self.earlier.iter().map(EarlierEntry::row);
        let others = sequences.chain(earlier).chain(rows_of_access(&self.access).unwrap_or_default());
        self.tables.iter().flat_map(|table| table.rows(&self.layouts)).chain(others)
    }

    /// The catalogue that has these rows.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn of_rows(rows: impl IntoIterator<Item = Row>) -> Result<Catalogue, String> {
        let mut by_table: BTreeMap<u32, Parts> = BTreeMap::new();
        let (mut layouts, mut sequences, mut earlier) = (Vec::new(), SequenceRows::default(), Vec::new());
        let mut access = Access::default();
        for Row { key: (object, kind, number), body } in rows {
            if number == 0 && matches!(kind, OF_SEQUENCE | OF_RESERVED) {
                sequences.put(object, kind, &body)?;
                continue;
            }
            if number == 0 && (OF_ROLE..=OF_SEQUENCE_RIGHTS).contains(&kind) {
                put_access(&mut access, object, kind, &body)?;
                continue;
            }
            let wrong =
                |problem: &dyn std::fmt::Display| format!("row {number} of kind {kind} of table {object}: {problem}");
            let parts = by_table.entry(object).or_default();
            match kind {
                OF_TABLE if number == 0 => {
                    parts.table = Some(of_json(&body).map_err(|error| wrong(&error))?);
                }
                OF_COLUMN => drop(parts.columns.insert(number, of_json(&body).map_err(|error| wrong(&error))?)),
                OF_INDEX => drop(parts.indexes.insert(number, of_json(&body).map_err(|error| wrong(&error))?)),
                OF_REFERENCE => drop(parts.references.insert(number, of_json(&body).map_err(|error| wrong(&error))?)),
                OF_CHECK => drop(parts.checks.insert(number, of_json(&body).map_err(|error| wrong(&error))?)),
                OF_EARLIER if number == 0 => {
                    let Earlier { of, columns, drained } = of_json(&body).map_err(|error| wrong(&error))?;
                    let (table, of) = (TableId(object), TableId(of));
                    earlier.push(EarlierEntry { table, of, columns, is_drained: drained });
                }
                OF_LAYOUT if body == "{}" => layouts.push(LayoutEntry { id: LayoutId(number), table: TableId(object) }),
                _ => return Err(wrong(&"this program knows no such row")),
            }
        }
        let tables = by_table.into_iter().map(|(id, parts)| parts.finish(TableId(id)));
        let mut tables = tables.collect::<Result<Vec<TableEntry>, String>>()?;
        tables.sort_by_key(|table| (table.position, table.id));
        layouts.sort_by_key(|layout| layout.id);
        earlier.sort_by_key(|earlier| earlier.table);
        let catalogue = Catalogue { tables, layouts, sequences: sequences.finish()?, earlier, access };
        catalogue.check().map(|()| catalogue)
    }

    /// Checks that the tables agree.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), String> {
        let tables: HashSet<TableId> = self.tables.iter().map(|table| table.id).collect();
        let (mut names, mut ids) = (HashSet::new(), HashSet::new());
        for table in &self.tables {
            let definition = &table.definition;
            definition.validate().map_err(|error| error.to_string())?;
            let name = &definition.name;
            if !table.is_void && !names.insert(name) {
                return Err(format!("there are two tables `{name}`"));
            }
            if table.indexes.len() != definition.indexes.len() {
                let (ids, indexes) = (table.indexes.len(), definition.indexes.len());
                return Err(format!("table `{name}` has {indexes} indexes and {ids} ids for them"));
            }
            if table.position >= POSITION_END {
                return Err(format!(
                    "table `{name}` has the place {}; places are below {POSITION_END}",
                    table.position
                ));
            }
            for id in std::iter::once(table.id).chain(table.indexes.iter().copied()) {
                if !ids.insert(id) || id >= TABLE {
                    return Err(format!("table id {id} is used twice, or not below {TABLE}"));
                }
            }
        }
        let counting = self.tables.iter().filter(|table| !table.is_void).map(|table| &table.definition);
        check_references(counting).map_err(|error| error.to_string())?;
        self.check_sequences()?;
        self.check_earlier()?;
        self.check_access()?;
        let mut layouts = HashSet::new();
        for layout in &self.layouts {
            if !layouts.insert(layout.id) || layout.id >= LAYOUT {
                return Err(format!("layout id {} is used twice, or not below {LAYOUT}", layout.id));
            }
            if !tables.contains(&layout.table) {
                return Err(format!("layout {} is of table {}, which there is not", layout.id, layout.table));
            }
        }
        Ok(())
    }
}

impl Catalogue {
    fn table(&self, id: TableId) -> Option<&TableEntry> {
        self.tables.iter().find(|table| table.id == id)
    }

    /// The table whose rows those of a void table are now, and how they are converted. `None` if they count for
    /// nothing.
    ///
    /// # Errors
    /// What makes no sense.
    pub(crate) fn rows_of<'a>(&'a self, void: &'a TableEntry) -> Result<Option<(&'a TableEntry, Vec<Source>)>, String> {
        let (mut at, mut sources): (_, Option<Vec<Source>>) = (void, None);
        for _ in 0..=self.earlier.len() {
            if !at.is_void {
                return Ok(sources.map(|sources| (at, sources)));
            }
            let Some(earlier) = self.earlier.iter().find(|earlier| earlier.table == at.id) else { return Ok(None) };
            let wrong = |problem: &str| format!("the row of earlier table {} {problem}", earlier.table);
            // One that was forgotten had no rows any more.
            let Some(next) = self.table(earlier.of) else { return Ok(None) };
            let own = earlier.sources(&next.definition).map_err(|problem| wrong(&problem))?;
            sources = Some(match sources {
                None => own,
                Some(first) => compose(&first, &own),
            });
            at = next;
        }
        Err(format!("the rows of table {} are those of a table that is earlier than itself", void.id))
    }

    /// Keeps what tables that stay refer to: if another table got such an id, their rows would become rows of that.
    fn keep_referenced(&self, obsolete: &mut Vec<TableId>) {
        let mut before = usize::MAX;
        while obsolete.len() < before {
            before = obsolete.len();
            let left = self.earlier.iter().filter(|earlier| !obsolete.contains(&earlier.table));
            let referenced: Vec<TableId> = left.map(|earlier| earlier.of).collect();
            obsolete.retain(|id| !referenced.contains(id));
        }
    }

    /// Checks that rows of earlier layouts can be read.
    fn check_earlier(&self) -> Result<(), String> {
        for earlier in &self.earlier {
            let id = earlier.table;
            let void = self.table(id).ok_or_else(|| format!("there is no table {id}, of which there is a row"))?;
            if !void.is_void {
                return Err(format!("table {id} is earlier than another one, and not void"));
            }
            if let Some((of, sources)) = self.rows_of(void)? {
                let wire = RowWire::of_earlier(&void.definition, &of.definition, &sources);
                wire.ok_or_else(|| format!("rows of table {id} are no rows of table {}", of.id))?;
            }
        }
        Ok(())
    }

    /// Checks that roles and rights make sense, and that the tables exist to which there are rights.
    fn check_access(&self) -> Result<(), String> {
        self.access.check()?;
        let is_there = |position: u64| self.tables.iter().any(|table| !table.is_void && table.position == position);
        let has = |id: u32| self.sequences.iter().any(|sequence| sequence.id == id);
        let lacks = self.access.objects().find_map(|(object, _)| match object {
            Object::Table(position) if !is_there(position) => Some(format!("a table at place {position}")),
            Object::Sequence(id) if !has(id) => Some(format!("sequence {id}")),
            _ => None,
        });
        lacks.map_or(Ok(()), |lacks| Err(format!("there are rights to {lacks}, which there is not")))
    }

    /// Checks that sequences make sense, and that each identity column has one.
    fn check_sequences(&self) -> Result<(), String> {
        let (mut names, mut owned) = (HashSet::new(), HashSet::new());
        for SequenceEntry { definition, owner, reserved, .. } in &self.sequences {
            definition.validate().map_err(|error| error.to_string())?;
            let (name, (low, high)) = (&definition.name, definition.range());
            if !names.insert(name) {
                return Err(format!("there are two sequences `{name}`"));
            }
            if reserved.last < low || reserved.last > high {
                return Err(format!("sequence `{name}` has got to {}; its numbers are {low} to {high}", reserved.last));
            }
            let is_of = |table: &&TableEntry| !table.is_void && Some(table.position) == *owner;
            match owner.map(|_| self.tables.iter().find(is_of)) {
                None => {}
                Some(Some(table)) if table.definition.identity_column().is_some() && owned.insert(table.id) => {}
                Some(Some(table)) => {
                    return Err(format!("table `{}` has no use for sequence `{name}`", table.definition.name));
                }
                Some(None) => return Err(format!("sequence `{name}` is of a table that there is not")),
            }
        }
        let is_lacking = |table: &&TableEntry| {
            !table.is_void && table.definition.identity_column().is_some() && !owned.contains(&table.id)
        };
        match self.tables.iter().find(is_lacking) {
            Some(table) => Err(format!("the identity column of table `{}` has no sequence", table.definition.name)),
            None => Ok(()),
        }
    }
}

/// The rows of sequences.
#[derive(Default)]
struct SequenceRows {
    sequences: BTreeMap<u32, Sequence>,
    reserved: BTreeMap<u32, Reserved>,
}

impl SequenceRows {
    fn put(&mut self, id: u32, kind: u8, body: &str) -> Result<(), String> {
        let wrong = |error: serde_json::Error| format!("row of kind {kind} of sequence {id}: {error}");
        match kind {
            OF_SEQUENCE => drop(self.sequences.insert(id, of_json(body).map_err(wrong)?)),
            _ => drop(self.reserved.insert(id, of_json(body).map_err(wrong)?)),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<SequenceEntry>, String> {
        let entry = |(id, Sequence { sequence: definition, owner })| match self.reserved.remove(&id) {
            Some(reserved) => Ok(SequenceEntry { id, definition, owner, reserved }),
            None => Err(format!("sequence {id} does not say how far it has got")),
        };
        let entries = self.sequences.into_iter().map(entry).collect::<Result<Vec<SequenceEntry>, String>>()?;
        match self.reserved.keys().next() {
            Some(id) => Err(format!("there is a row of sequence {id}, but none that says what it is")),
            None => Ok(entries),
        }
    }
}

fn of_json<T: serde::de::DeserializeOwned>(body: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(body)
}

/// The rows of a table.
#[derive(Default)]
struct Parts {
    table: Option<mirror::Table>,
    columns: BTreeMap<u32, ColumnDef>,
    indexes: BTreeMap<u32, mirror::Index>,
    references: BTreeMap<u32, ReferenceDef>,
    checks: BTreeMap<u32, CheckDef>,
}

impl Parts {
    fn finish(self, id: TableId) -> Result<TableEntry, String> {
        let Parts { table, columns, indexes, references, checks } = self;
        let mut table = table.ok_or_else(|| format!("there are rows of table {id}, but none that says what it is"))?;
        let has_gap = |what: &str| Err(format!("table {id} lacks one of its {what}"));
        if !columns.keys().copied().eq(0..columns.len() as u32) {
            return has_gap("columns");
        }
        if !indexes.keys().copied().eq(0..indexes.len() as u32) {
            return has_gap("indexes");
        }
        if !references.keys().copied().eq(0..references.len() as u32) {
            return has_gap("references");
        }
        if !checks.keys().copied().eq(0..checks.len() as u32) {
            return has_gap("conditions");
        }
        if table.columns.is_some() || table.indexes.is_some() {
            return Err(format!("the row of table {id} has columns or indexes, which are rows of their own"));
        }
        table.columns = Some(columns.into_values().collect());
        table.indexes = Some(indexes.into_values().collect());
        table.checks = checks.into_values().collect();
        let mut entry = TableEntry::try_from(table)?;
        entry.definition.references = references.into_values().collect();
        if entry.id != id {
            return Err(format!("the row of table {id} says that it is table {}", entry.id));
        }
        Ok(entry)
    }
}

/// The encoding of the catalogue's keys.
fn codec() -> KeyCodec {
    KeyCodec::for_table(&definition())
}
