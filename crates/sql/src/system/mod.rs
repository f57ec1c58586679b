//! The system catalogue: tables and functions that describe the tables of the database.
//!
//! Their rows are computed from one snapshot of the declarations, which a statement takes when it asks for the first of
//! them.
//!
//! Numbers of objects (OIDs) are computed, too. The table with the number `n` among the tables has `16384 + 4096 * n`.
//! What belongs to it has one of the numbers behind, which is computed from its name. So all stay as long as the table
//! and the name do.

mod functions;
mod schema;
mod tables;

pub(crate) use functions::{FUNCTIONS_FROM, call, function};
use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::Datum;
use sqlparser::ast::{ObjectName, ObjectNamePart};

pub(crate) use self::schema::Schema;
use crate::error::{SqlError, SqlState};
use crate::names::{CATALOG, name};
use crate::rows::{Origin, Owned, Source, SourceColumn};
use crate::select::Row;
use crate::types::SqlType;

/// The schema of the standard.
pub(crate) const INFORMATION: &str = "information_schema";

/// A table of the catalogue.
#[derive(Debug)]
pub(crate) struct Table {
    schema: &'static str,
    pub(crate) name: &'static str,
    /// Names and types: `oid oid, relname name`.
    columns: &'static str,
    /// Its rows, with values by the names of columns. Columns that a row does not name are empty.
    rows: fn(&Schema) -> Vec<Record>,
}

/// Some values of a row, by the names of their columns.
type Record = Vec<(&'static str, Owned)>;

impl Table {
    /// The number of the table at this position.
    fn oid(&self, at: usize) -> u32 {
        match self.name {
            "pg_type" => 1247,
            "pg_attribute" => 1249,
            "pg_proc" => 1255,
            "pg_class" => 1259,
            "pg_namespace" => 2615,
            _ => 12_000 + at as u32,
        }
    }

    /// Its rows.
    fn rows(&self, schema: &Schema) -> Vec<Row> {
        let columns: Vec<(&str, Column)> = self.columns().collect();
        let row = |record: Record| -> Row {
            let value = |(name, ty): &(&str, Column)| {
                let given = record.iter().find(|(column, _)| column == name);
                given.map_or_else(|| ty.empty(), |(_, value)| value.clone())
            };
            columns.iter().map(value).collect()
        };
        (self.rows)(schema).into_iter().map(row).collect()
    }

    fn columns(&self) -> impl Iterator<Item = (&'static str, Column)> {
        let pairs = self.columns.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once(' ').map_or((pair, Column::Text), |(name, ty)| (name, Column::named(ty))))
    }

    /// The table as a source.
    pub(crate) fn source(&'static self) -> Source {
        let column = |(name, ty): (&str, Column)| SourceColumn {
            name: name.to_owned(),
            table: self.name.to_owned(),
            stored: ty.stored(),
            ty: ty.sql(),
            is_hidden: false,
        };
        let columns = self.columns().map(column).collect();
        Source { alias: self.name.to_owned(), columns, origin: Origin::System(self) }
    }
}

/// The type of a column of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Column {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Oid,
    Name,
    Char,
    Text,
    TimestampTz,
    /// A type of which only the text is known here, with its number.
    Other(&'static str, u32),
}

impl Column {
    fn named(ty: &str) -> Column {
        match ty {
            "bool" => Column::Bool,
            "int2" => Column::Int2,
            "int4" => Column::Int4,
            "int8" => Column::Int8,
            "float4" => Column::Float4,
            "float8" => Column::Float8,
            "oid" => Column::Oid,
            "name" => Column::Name,
            "char" => Column::Char,
            "timestamptz" => Column::TimestampTz,
            "regproc" => Column::Other("regproc", 24),
            "int2vector" => Column::Other("int2vector", 22),
            "oidvector" => Column::Other("oidvector", 30),
            "pg_node_tree" => Column::Other("pg_node_tree", 194),
            "int2[]" => Column::Other("smallint[]", 1005),
            "oid[]" => Column::Other("oid[]", 1028),
            "text[]" => Column::Other("text[]", 1009),
            "name[]" => Column::Other("name[]", 1003),
            "char[]" => Column::Other("\"char\"[]", 1002),
            "aclitem[]" => Column::Other("aclitem[]", 1034),
            _ => Column::Text,
        }
    }

    fn stored(self) -> ColumnType {
        match self {
            Column::Bool => ColumnType::Bool,
            Column::Int2 => ColumnType::I16,
            Column::Int4 => ColumnType::I32,
            Column::Int8 => ColumnType::I64,
            Column::Float4 => ColumnType::F32,
            Column::Float8 => ColumnType::F64,
            Column::Oid => ColumnType::U32,
            Column::TimestampTz => ColumnType::Timestamp,
            Column::Name | Column::Char | Column::Text | Column::Other(..) => ColumnType::LongText,
        }
    }

    /// The value of a column about which there is nothing to say.
    fn empty(self) -> Owned {
        match self {
            Column::Bool => Datum::Bool(false),
            Column::Int2 | Column::Int4 | Column::Int8 | Column::Oid => Datum::Integer(0),
            Column::Float4 => Datum::Single(0.0),
            Column::Float8 => Datum::Float(0.0),
            Column::Char => functions::text(""),
            Column::Other("regproc", _) => functions::text("-"),
            Column::Name | Column::Text | Column::TimestampTz | Column::Other(..) => Datum::Null,
        }
    }

    fn sql(self) -> SqlType {
        match self {
            Column::Bool => SqlType::Bool,
            Column::Int2 => SqlType::Int2,
            Column::Int4 => SqlType::Int4,
            Column::Int8 => SqlType::Int8,
            Column::Float4 => SqlType::Float4,
            Column::Float8 => SqlType::Float8,
            Column::Oid => SqlType::Oid,
            Column::Name => SqlType::Name,
            Column::Char => SqlType::InternalChar,
            Column::Text => SqlType::Text,
            Column::TimestampTz => SqlType::TimestampTz,
            Column::Other(name, oid) => SqlType::Other(name, oid),
        }
    }
}

/// The table of the catalogue of this name; `None` if it is another schema's.
///
/// # Errors
/// The schema is one of the catalogue's, and has no such table.
pub(crate) fn table(of: &ObjectName) -> Result<Option<&'static Table>, SqlError> {
    let part = |part: &ObjectNamePart| part.as_ident().map(name).transpose();
    let (schema, own) = match &*of.0 {
        [own] => (None, part(own)?),
        [schema, own] => (part(schema)?, part(own)?),
        _ => return Ok(None),
    };
    let Some(own) = own else { return Ok(None) };
    let is_meant = |table: &&Table| table.name == own && table.schema == schema.as_deref().unwrap_or(CATALOG);
    match (tables::TABLES.iter().find(is_meant), schema.as_deref()) {
        (Some(table), _) => Ok(Some(table)),
        (None, Some(CATALOG | INFORMATION)) => {
            let message = format!("relation \"{of}\" does not exist");
            Err(SqlError::new(SqlState::UNDEFINED_TABLE, message))
        }
        (None, _) => Ok(None),
    }
}

/// What a function in FROM gives of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elements {
    wanted: Wanted,
    with_ordinality: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// Its elements, which are numbers or texts.
    Numbers,
    Texts,
    /// The positions of its elements.
    Positions,
    /// The tables of which a table is a partition: it is of none.
    Ancestors,
}

impl Elements {
    /// The function of this name, of an array of numbers or of others.
    pub(crate) fn named(function: &str, are_numbers: bool, with_ordinality: bool) -> Option<Elements> {
        let wanted = match function {
            "unnest" if are_numbers => Wanted::Numbers,
            "unnest" => Wanted::Texts,
            "generate_subscripts" => Wanted::Positions,
            "pg_partition_ancestors" => Wanted::Ancestors,
            _ => return None,
        };
        Some(Elements { wanted, with_ordinality })
    }

    /// Its columns.
    pub(crate) fn columns(self, function: &str) -> Vec<SourceColumn> {
        let column = |name: &str, ty: Column| SourceColumn {
            name: name.to_owned(),
            table: String::new(),
            stored: ty.stored(),
            ty: ty.sql(),
            is_hidden: false,
        };
        let first = match self.wanted {
            Wanted::Numbers => column(function, Column::Int8),
            Wanted::Texts => column(function, Column::Text),
            Wanted::Positions => column(function, Column::Int4),
            Wanted::Ancestors => column(function, Column::Oid),
        };
        [first].into_iter().chain(self.with_ordinality.then(|| column("ordinality", Column::Int8))).collect()
    }

    /// Its rows.
    ///
    /// # Errors
    /// The value is no array.
    pub(crate) fn rows(self, array: &Owned) -> Result<Vec<Row>, SqlError> {
        let Datum::Text(text) = array else { return Ok(Vec::new()) };
        if self.wanted == Wanted::Ancestors {
            return Ok(Vec::new());
        }
        let first = if text.trim_start().starts_with('{') { 1 } else { 0 };
        let elements = crate::array::elements(text)?;
        let row = |(at, element): (usize, Option<std::borrow::Cow<'_, str>>)| {
            let value = match (self.wanted, element) {
                (Wanted::Positions, _) => Datum::Integer(at as i128 + first),
                (Wanted::Numbers, Some(element)) => element.parse().map_or(Datum::Null, Datum::Integer),
                (_, Some(element)) => functions::text(element),
                (_, None) => Datum::Null,
            };
            let ordinality = self.with_ordinality.then_some(Datum::Integer(at as i128 + 1));
            [value].into_iter().chain(ordinality).collect()
        };
        Ok(elements.into_iter().enumerate().map(row).collect())
    }
}
