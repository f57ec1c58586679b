//! One snapshot of the declarations, as objects with numbers.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use seriatim::DynHandle;
use seriatim::catalog::{Access, Checked, KeyPart, Object, Organization, ReferenceDef, SequenceDef, TableDef};

use super::Table;
use super::tables::TABLES;
use crate::names::{CATALOG, Names, SCHEMA};
use crate::rows::is_row_id;
use crate::select::Row;

/// The number of the schema `pg_catalog`.
pub(super) const CATALOG_OID: u32 = 11;
/// The number of the schema of tables.
pub(super) const SCHEMA_OID: u32 = 2200;
/// The number of `information_schema`.
pub(super) const INFORMATION_OID: u32 = 13_183;
/// The number of the role that owns what belongs to nobody else.
pub(super) const ROLE_OID: u32 = Access::FIRST;
/// The number of the database.
pub(super) const DATABASE_OID: u32 = 5;
/// The number of the first table.
const FIRST: u32 = 16_384;
/// Numbers that a table and what belongs to it have.
const STEP: u32 = 4_096;

/// The schema and the name of a table of the catalogue.
type TableName = (&'static str, &'static str);

/// The tables of a database at one moment.
#[derive(Default)]
pub(crate) struct Schema {
    pub(super) tables: Vec<Relation>,
    pub(super) sequences: Vec<Numbers>,
    pub(super) access: Arc<Access>,
    rows: RefCell<BTreeMap<TableName, Rc<Vec<Row>>>>,
}

/// A table.
pub(super) struct Relation {
    pub(super) handle: DynHandle,
    pub(super) oid: u32,
    pub(super) indexes: Vec<Index>,
    pub(super) constraints: Vec<Constraint>,
}

impl Relation {
    pub(super) fn definition(&self) -> &TableDef {
        self.handle.definition()
    }
}

/// An index.
pub(super) struct Index {
    pub(super) oid: u32,
    pub(super) name: String,
    pub(super) parts: Vec<KeyPart>,
    pub(super) is_unique: bool,
    pub(super) is_primary: bool,
    pub(super) nulls_not_distinct: bool,
    pub(super) checked: Checked,
    pub(super) is_hash: bool,
}

/// A constraint.
pub(super) struct Constraint {
    pub(super) oid: u32,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Its columns, counted from 1.
    pub(super) columns: Vec<usize>,
    /// Its index, or that of the key that it refers to.
    pub(super) index: u32,
}

/// What a constraint demands.
pub(super) enum Kind {
    Primary,
    Unique(Checked),
    Check(String),
    /// A foreign key, and the number of the other table.
    Reference {
        definition: Box<ReferenceDef>,
        table: u32,
    },
}

impl Kind {
    /// The letter that `pg_constraint` has for it.
    pub(super) fn letter(&self) -> &'static str {
        match self {
            Kind::Primary => "p",
            Kind::Unique(_) => "u",
            Kind::Check(_) => "c",
            Kind::Reference { .. } => "f",
        }
    }
}

/// A sequence.
pub(super) struct Numbers {
    pub(super) oid: u32,
    pub(super) definition: SequenceDef,
    pub(super) last: Option<i64>,
    /// The table whose rows it numbers.
    table: Option<String>,
    pub(super) object: Object,
}

/// Gives numbers to what belongs to a table.
struct Places {
    table: u32,
    taken: BTreeSet<u32>,
}

impl Places {
    /// The number for a kind of object of this name.
    fn oid(&mut self, kind: &str, name: &str) -> u32 {
        // FNV-1a.
        let add = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let hash = kind.bytes().chain([0]).chain(name.bytes()).fold(0x811c_9dc5, add);
        let mut place = 1 + hash % (STEP - 1);
        while !self.taken.insert(place) {
            place = place % (STEP - 1) + 1;
        }
        self.table + place
    }
}

/// The number of the table with this number among the tables.
fn oid_of(number: u64) -> u32 {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    FIRST.saturating_add(number.saturating_mul(STEP))
}

impl Schema {
    /// Those that these names stand for now.
    pub(crate) fn of(names: Names<'_>) -> Schema {
        let handles: Vec<DynHandle> = names.tables().collect();
        let oids: BTreeMap<String, u32> =
            handles.iter().map(|table| (table.definition().name.to_string(), oid_of(table.number()))).collect();
        let mut tables: Vec<Relation> = Vec::new();
        let mut sequences = Vec::new();
        let mut places: BTreeMap<String, Places> = BTreeMap::new();
        for handle in handles {
            let oid = oid_of(handle.number());
            let mut of = Places { table: oid, taken: BTreeSet::new() };
            tables.push(relation(handle.clone(), oid, &mut of, &oids));
            places.insert(handle.definition().name.to_string(), of);
        }
        // A foreign key needs the index of the key that it refers to.
        let found: Vec<(usize, usize, u32)> = references(&tables);
        for (table, constraint, index) in found {
            tables[table].constraints[constraint].index = index;
        }
        let mut alone = Places { table: FIRST - STEP, taken: BTreeSet::new() };
        for sequence in names.database.sequences() {
            let (definition, table) = (sequence.definition(), sequence.table());
            let place = table.as_ref().and_then(|table| places.get_mut(table)).unwrap_or(&mut alone);
            let oid = place.oid("sequence", &definition.name);
            let object = names.database.object_of_sequence(&sequence);
            sequences.push(Numbers { oid, definition, last: sequence.last(), table, object });
        }
        let access = names.database.access();
        Schema { tables, sequences, access, rows: RefCell::default() }
    }

    /// The name of a role.
    pub(super) fn role(&self, oid: u32) -> Option<&str> {
        self.access.role(oid).map(|role| &*role.name)
    }

    /// The rights to a relation; none if it is of the catalogue, or there is no such relation.
    pub(super) fn object(&self, oid: u32) -> Option<Object> {
        let of = |table: &&Relation| table.oid == oid || table.indexes.iter().any(|index| index.oid == oid);
        if let Some(table) = self.tables.iter().find(of) {
            return Some(Object::Table(table.handle.number()));
        }
        self.sequences.iter().find(|sequence| sequence.oid == oid).map(|sequence| sequence.object)
    }

    /// The role that owns a relation.
    pub(super) fn owner(&self, oid: u32) -> u32 {
        let numbers = self.sequences.iter().find(|sequence| sequence.oid == oid);
        let numbered = numbers.and_then(|sequence| sequence.table.as_ref());
        let table = numbered.and_then(|name| self.tables.iter().find(|table| table.definition().name == *name));
        let object = table.map(|table| Object::Table(table.handle.number())).or_else(|| self.object(oid));
        object.map_or(Access::FIRST, |object| self.access.rights(object).owner)
    }

    /// The rows of a table of the catalogue.
    pub(crate) fn rows(&self, table: &'static Table) -> Rc<Vec<Row>> {
        let key = (table.schema, table.name);
        if let Some(rows) = self.rows.borrow().get(&key) {
            return Rc::clone(rows);
        }
        let rows = Rc::new(table.rows(self));
        self.rows.borrow_mut().insert(key, Rc::clone(&rows));
        rows
    }

    /// The name of a relation, and the number of its schema.
    pub(super) fn relation_name(&self, oid: u32) -> Option<(&str, u32)> {
        for table in &self.tables {
            if table.oid == oid {
                return Some((&table.definition().name, SCHEMA_OID));
            }
            if let Some(index) = table.indexes.iter().find(|index| index.oid == oid) {
                return Some((&index.name, SCHEMA_OID));
            }
        }
        if let Some(sequence) = self.sequences.iter().find(|sequence| sequence.oid == oid) {
            return Some((&sequence.definition.name, SCHEMA_OID));
        }
        let (_, table) = TABLES.iter().enumerate().find(|(at, table)| table.oid(*at) == oid)?;
        Some((table.name, if table.schema == CATALOG { CATALOG_OID } else { INFORMATION_OID }))
    }

    /// The number of a relation.
    pub(super) fn relation(&self, schema: Option<&str>, name: &str) -> Option<u32> {
        let is_catalogue = |(at, table): (usize, &Table)| {
            let is_meant = table.name == name && table.schema == schema.unwrap_or(CATALOG);
            is_meant.then(|| table.oid(at))
        };
        let known = TABLES.iter().enumerate().find_map(is_catalogue);
        if known.is_some() || schema.is_some_and(|schema| schema != SCHEMA) {
            return known;
        }
        let of_table = |table: &Relation| match table.definition().name == name {
            true => Some(table.oid),
            false => table.indexes.iter().find(|index| index.name == name).map(|index| index.oid),
        };
        let sequence = || self.sequences.iter().find(|sequence| sequence.definition.name == name);
        self.tables.iter().find_map(of_table).or_else(|| sequence().map(|sequence| sequence.oid))
    }

    /// The index of this number, and its table.
    pub(super) fn index(&self, oid: u32) -> Option<(&Relation, &Index)> {
        let of = |table: &Relation| table.indexes.iter().position(|index| index.oid == oid);
        self.tables.iter().find_map(|table| Some((table, &table.indexes[of(table)?])))
    }

    /// The constraint of this number, and its table.
    pub(super) fn constraint(&self, oid: u32) -> Option<(&Relation, &Constraint)> {
        let of = |table: &Relation| table.constraints.iter().position(|constraint| constraint.oid == oid);
        self.tables.iter().find_map(|table| Some((table, &table.constraints[of(table)?])))
    }
}

fn relation(handle: DynHandle, oid: u32, places: &mut Places, oids: &BTreeMap<String, u32>) -> Relation {
    let definition = handle.definition();
    let (mut indexes, mut constraints) = (Vec::new(), Vec::new());
    let columns_of = |parts: &[KeyPart]| parts.iter().map(|part| part.column.index() + 1).collect::<Vec<_>>();
    let is_hash = |organization: Organization| organization == Organization::Hash;
    let position = |name: &str| definition.columns.iter().position(|column| column.name == name).map_or(0, |at| at + 1);
    if !is_keyless(definition) {
        let name = definition.key_constraint_name().into_owned();
        let (index, constraint) = (places.oid("index", &name), places.oid("constraint", &name));
        indexes.push(Index {
            oid: index,
            name: name.clone(),
            parts: definition.key.clone(),
            is_unique: true,
            is_primary: true,
            nulls_not_distinct: false,
            checked: Checked::Immediately,
            is_hash: is_hash(definition.organization),
        });
        let columns = columns_of(&definition.key);
        constraints.push(Constraint { oid: constraint, name, kind: Kind::Primary, columns, index });
    }
    for index in &definition.indexes {
        let own = places.oid("index", &index.name);
        // Of an index that is always unique, a declaration does not say whether it came of UNIQUE: the names that
        // UNIQUE gives do.
        if index.unique && (index.is_deferrable() || index.name.ends_with("_key")) {
            let oid = places.oid("constraint", &index.name);
            let columns = columns_of(&index.parts);
            let name = index.name.to_string();
            constraints.push(Constraint { oid, name, kind: Kind::Unique(index.checked), columns, index: own });
        }
        indexes.push(Index {
            oid: own,
            name: index.name.to_string(),
            parts: index.parts.clone(),
            is_unique: index.unique,
            is_primary: false,
            nulls_not_distinct: index.nulls_not_distinct,
            checked: index.checked,
            is_hash: is_hash(index.organization),
        });
    }
    for check in &definition.checks {
        // In the order in which the condition names them.
        let expression = check.parse();
        let names = expression.iter().flat_map(|expression| expression.columns());
        let columns = names.map(position).collect();
        constraints.push(Constraint {
            oid: places.oid("constraint", &check.name),
            name: check.name.to_string(),
            kind: Kind::Check(check.expression.to_string()),
            columns,
            index: 0,
        });
    }
    for reference in &definition.references {
        let table = oids.get(&*reference.table).copied().unwrap_or_default();
        constraints.push(Constraint {
            oid: places.oid("constraint", &reference.name),
            name: reference.name.to_string(),
            columns: reference.columns.iter().map(|column| position(column)).collect(),
            kind: Kind::Reference { definition: Box::new(reference.clone()), table },
            index: 0,
        });
    }
    Relation { handle: handle.clone(), oid, indexes, constraints }
}

/// Whether rows of the table have no key of their own.
pub(super) fn is_keyless(table: &TableDef) -> bool {
    matches!(&*table.key, [part] if is_row_id(&table.columns[part.column.index()]))
}

/// Finds what foreign keys refer to: the positions of table and constraint, and the number of the index.
fn references(tables: &[Relation]) -> Vec<(usize, usize, u32)> {
    let mut found = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        for (number, constraint) in table.constraints.iter().enumerate() {
            let Kind::Reference { definition, table: other } = &constraint.kind else { continue };
            let Some(other) = tables.iter().find(|table| table.oid == *other) else { continue };
            let columns = referenced(definition, other);
            let is_key = |index: &&Index| index.is_unique && index.checked == Checked::Immediately;
            let index = other.indexes.iter().filter(is_key).find(|index| {
                let mut parts: Vec<usize> = index.parts.iter().map(|part| part.column.index() + 1).collect();
                let mut wanted = columns.clone();
                parts.sort_unstable();
                wanted.sort_unstable();
                parts == wanted
            });
            found.push((at, number, index.map_or(0, |index| index.oid)));
        }
    }
    found
}

/// The columns that a foreign key refers to, counted from 1.
pub(super) fn referenced(reference: &ReferenceDef, table: &Relation) -> Vec<usize> {
    let definition = table.definition();
    match &*reference.referenced {
        [] => definition.key.iter().map(|part| part.column.index() + 1).collect(),
        names => names
            .iter()
            .filter_map(|name| definition.columns.iter().position(|column| column.name == *name))
            .map(|at| at + 1)
            .collect(),
    }
}

impl Constraint {
    /// The constraint in SQL.
    pub(super) fn sql(&self, schema: &Schema, table: &Relation, is_pretty: bool) -> String {
        let names = |table: &Relation, columns: &[usize]| -> String {
            let name = |at: &usize| quoted(&table.definition().columns[at - 1].name);
            columns.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        match &self.kind {
            Kind::Primary => format!("PRIMARY KEY ({})", names(table, &self.columns)),
            Kind::Unique(checked) => {
                let nulls = match table.indexes.iter().find(|index| index.oid == self.index) {
                    Some(index) if index.nulls_not_distinct => " NULLS NOT DISTINCT",
                    _ => "",
                };
                format!("UNIQUE{nulls} ({}){}", names(table, &self.columns), checked.sql())
            }
            Kind::Check(expression) if is_pretty => format!("CHECK ({expression})"),
            Kind::Check(expression) => format!("CHECK (({expression}))"),
            Kind::Reference { definition, table: other } => {
                let other = schema.tables.iter().find(|table| table.oid == *other);
                let columns = other.map_or_else(String::new, |other| names(other, &referenced(definition, other)));
                let own = names(table, &self.columns);
                let mut sql = format!("FOREIGN KEY ({own}) REFERENCES {}({columns})", quoted(&definition.table));
                for (what, change) in [("UPDATE", definition.on_update), ("DELETE", definition.on_delete)] {
                    if change != seriatim::catalog::OnChange::NoAction {
                        let _ = write!(sql, " ON {what} {}", change.sql());
                    }
                }
                sql + definition.checked.sql()
            }
        }
    }
}

impl Index {
    /// The index in SQL.
    pub(super) fn sql(&self, table: &Relation, is_pretty: bool) -> String {
        let part = |part: &KeyPart| {
            let name = quoted(&table.definition().columns[part.column.index()].name);
            if part.descending { format!("{name} DESC") } else { name }
        };
        let parts = self.parts.iter().map(part).collect::<Vec<_>>().join(", ");
        let unique = if self.is_unique { "UNIQUE " } else { "" };
        let schema = if is_pretty { "" } else { "public." };
        let method = if self.is_hash { "hash" } else { "btree" };
        let nulls = if self.nulls_not_distinct { " NULLS NOT DISTINCT" } else { "" };
        let (own, of) = (quoted(&self.name), quoted(&table.definition().name));
        format!("CREATE {unique}INDEX {own} ON {schema}{of} USING {method} ({parts}){nulls}")
    }
}

/// A name as it is written in SQL.
pub(super) fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&name);
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The words that are no names without quotes.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
];
