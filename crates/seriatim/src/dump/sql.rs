//! Tables and rows as statements of SQL, as PostgreSQL 15 takes them.

use std::collections::HashSet;
use std::fmt::Write;

use super::DumpError;
use super::declaration::column_of;
use crate::Value;
use seriatim_engine::Reserved;

use crate::catalog::expression::Expression;
use crate::catalog::{
    CheckDef, ColumnDef, ColumnType, Date, DateTime, IdentityKind, IntegerType, Interval, KeyPart, OnChange,
    ScalarType, SequenceDef, TableDef,
};

/// What a script begins with. A script that is cut off has no effect, as its transaction does not end.
pub(super) const BEGIN: &str = "BEGIN;\nSET LOCAL client_encoding = 'UTF8';\nSET LOCAL standard_conforming_strings = \
                                on;\n";
/// What it ends with.
pub(super) const END: &str = "COMMIT;\n";

/// Rows of one statement.
const ROWS_MAX: usize = 100;

/// The declarations of tables as statements for PostgreSQL 15.
///
/// # Errors
/// [`DumpError::NotInSql`] if a name has a character that PostgreSQL does not have.
pub fn to_sql(tables: &[&TableDef]) -> Result<String, DumpError> {
    let created = tables.iter().map(|table| create(table, None)).collect::<Result<String, DumpError>>()?;
    Ok(created + &indexes(tables)? + &references(tables)?)
}

/// The statement that creates a sequence.
pub(super) fn create_sequence(sequence: &SequenceDef) -> Result<String, DumpError> {
    let ty = match sequence.ty {
        ColumnType::I16 => "smallint",
        ColumnType::U16 | ColumnType::I32 => "integer",
        _ => "bigint",
    };
    Ok(format!("CREATE SEQUENCE {} AS {ty} {};\n", sequence_name(sequence)?, options(sequence)))
}

/// The statement that makes it continue as it does here.
pub(super) fn set_sequence(sequence: &SequenceDef, Reserved { last, given }: Reserved) -> Result<String, DumpError> {
    Ok(format!("SELECT pg_catalog.setval({}, {last}, {given});\n", quoted(&sequence_name(sequence)?)))
}

fn sequence_name(sequence: &SequenceDef) -> Result<String, DumpError> {
    in_quotes(&sequence.name).ok_or_else(|| DumpError::NotInSql {
        table: sequence.name.to_string(),
        column: None,
        problem: "the name of a sequence has the character NUL",
    })
}

fn options(sequence: &SequenceDef) -> String {
    let ((low, high), cycle) = (sequence.range(), if sequence.options.cycle { " CYCLE" } else { "" });
    let (first, step) = (sequence.first(), sequence.step());
    format!("INCREMENT BY {step} MINVALUE {low} MAXVALUE {high} START WITH {first}{cycle}")
}

/// That a sequence gives the values of a column.
fn identity(column: &ColumnDef, own: Option<&SequenceDef>) -> Result<String, DumpError> {
    let Some(identity) = column.identity else { return Ok(String::new()) };
    let when = if identity.kind == IdentityKind::ByDefault { "BY DEFAULT" } else { "ALWAYS" };
    let own = match own {
        Some(own) => format!(" (SEQUENCE NAME {} {})", sequence_name(own)?, options(own)),
        None => String::new(),
    };
    Ok(format!(" GENERATED {when} AS IDENTITY{own}"))
}

/// The statement that creates a table with the sequence of its identity column, without its indexes.
pub(super) fn create(table: &TableDef, sequence: Option<&SequenceDef>) -> Result<String, DumpError> {
    let mut sql = format!("CREATE TABLE {} (\n", name(table, &table.name)?);
    for column in &table.columns {
        let null = if column.nullable { "" } else { " NOT NULL" };
        let (own, ty, check) = (name(table, &column.name)?, ty(column), check(table, column)?);
        let default = match column.default_value() {
            _ if column.computed_default.is_some() => {
                let text = column.computed_default.as_deref().unwrap_or_default();
                format!(" DEFAULT {}", in_sql(table, text)?)
            }
            Ok(Some(value)) if column.default.is_some() => {
                let literal = literal(&value).map_err(|problem| DumpError::not_in_sql(table, Some(column), problem))?;
                format!(" DEFAULT {literal}")
            }
            _ => String::new(),
        };
        let _ = writeln!(sql, "    {own} {ty}{null}{default}{}{check},", identity(column, sequence)?);
    }
    for check in &table.checks {
        let _ = writeln!(sql, "    CONSTRAINT {} CHECK ({}),", name(table, &check.name)?, condition(table, check)?);
    }
    let own = match &table.key_name {
        Some(own) => format!("CONSTRAINT {} ", name(table, own)?),
        None => String::new(),
    };
    let _ = writeln!(sql, "    {own}PRIMARY KEY ({})\n);", key(table, &table.key, false)?);
    Ok(sql)
}

/// Statements for the indexes of these tables. Two tables of a schema of PostgreSQL cannot have indexes of one name,
/// and no index has that of a table. So an index whose name is taken gets one from PostgreSQL.
pub(super) fn indexes(tables: &[&TableDef]) -> Result<String, DumpError> {
    let (mut sql, mut taken) = (String::new(), tables.iter().map(|table| &*table.name).collect::<HashSet<_>>());
    for (table, index) in tables.iter().flat_map(|table| table.indexes.iter().map(move |index| (table, index))) {
        let unique = if index.unique { "UNIQUE " } else { "" };
        let own = match taken.insert(&index.name) {
            true => format!("{} ", name(table, &index.name)?),
            false => String::new(),
        };
        let nulls = if index.nulls_not_distinct { " NULLS NOT DISTINCT" } else { "" };
        let on = name(table, &table.name)?;
        if index.is_deferrable() {
            // Only a constraint can be, and its columns have no order.
            let (nulls, key, checked) = (nulls.trim_start(), key(table, &index.parts, false)?, index.checked.sql());
            let constraint = if own.is_empty() { own } else { format!("CONSTRAINT {own}") };
            let nulls = if nulls.is_empty() { String::new() } else { format!("{nulls} ") };
            let _ = writeln!(sql, "ALTER TABLE {on} ADD {constraint}UNIQUE {nulls}({key}){checked};");
            continue;
        }
        let key = key(table, &index.parts, true)?;
        let _ = writeln!(sql, "CREATE {unique}INDEX {own}ON {on} ({key}){nulls};");
    }
    Ok(sql)
}

/// Statements for the foreign keys of these tables. Behind the rows, tables may refer to each other in any order. One
/// to a table that is not among them is left out.
pub(super) fn references(tables: &[&TableDef]) -> Result<String, DumpError> {
    let mut sql = String::new();
    for (table, reference) in tables.iter().flat_map(|table| table.references.iter().map(move |one| (table, one))) {
        let Some(parent) = tables.iter().find(|parent| parent.name == reference.table) else { continue };
        let list = |names: Vec<&str>| {
            let names = names.into_iter().map(|column| name(table, column));
            Ok::<String, DumpError>(names.collect::<Result<Vec<_>, DumpError>>()?.join(", "))
        };
        let own = list(reference.columns.iter().map(|name| &**name).collect())?;
        let (on, constraint, to) =
            (name(table, &table.name)?, name(table, &reference.name)?, name(table, &reference.table)?);
        let key = list(reference.referenced_in(parent))?;
        let _ = write!(sql, "ALTER TABLE {on} ADD CONSTRAINT {constraint} FOREIGN KEY ({own}) REFERENCES {to} ({key})");
        for (what, action) in [("DELETE", reference.on_delete), ("UPDATE", reference.on_update)] {
            if action != OnChange::NoAction {
                let _ = write!(sql, " ON {what} {}", action.sql());
            }
        }
        let _ = writeln!(sql, "{};", reference.checked.sql());
    }
    Ok(sql)
}

fn key(table: &TableDef, parts: &[KeyPart], with_order: bool) -> Result<String, DumpError> {
    let part = |part: &KeyPart| {
        let order = if part.descending && with_order { " DESC" } else { "" };
        Ok(name(table, column_of(table, part))? + order)
    };
    Ok(parts.iter().map(part).collect::<Result<Vec<_>, DumpError>>()?.join(", "))
}

/// A name in quotes.
fn name(table: &TableDef, name: &str) -> Result<String, DumpError> {
    in_quotes(name).ok_or_else(|| DumpError::not_in_sql(table, None, "a name has the character NUL"))
}

fn in_quotes(name: &str) -> Option<String> {
    (!name.contains('\0')).then(|| format!("\"{}\"", name.replace('"', "\"\"")))
}

/// A text in quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The type of PostgreSQL that has all values of a column.
fn ty(column: &ColumnDef) -> String {
    match column.ty {
        // PostgreSQL's sequences have no greater numbers.
        ColumnType::U64 if column.identity.is_some() => "bigint",
        ColumnType::Bool => "boolean",
        ColumnType::I8 | ColumnType::U8 | ColumnType::I16 => "smallint",
        ColumnType::U16 | ColumnType::I32 => "integer",
        ColumnType::U32 | ColumnType::I64 => "bigint",
        ColumnType::U64 => "numeric(20)",
        ColumnType::I128 | ColumnType::U128 => "numeric(39)",
        ColumnType::F32 => "real",
        ColumnType::F64 => "double precision",
        ColumnType::Decimal { scale } => return format!("numeric(19, {scale})"),
        ColumnType::Numeric => "numeric",
        ColumnType::Char | ColumnType::Text { .. } | ColumnType::LongText | ColumnType::Enum { .. } => "text",
        ColumnType::Bytes { .. } | ColumnType::LongBytes | ColumnType::ByteArray { .. } => "bytea",
        ColumnType::Uuid => "uuid",
        ColumnType::Date => "date",
        ColumnType::Time => "time",
        ColumnType::DateTime => "timestamp",
        ColumnType::Timestamp => "timestamp with time zone",
        ColumnType::Interval => "interval",
    }
    .to_owned()
}

/// A condition of the table, over columns of the types that they have there.
fn condition(table: &TableDef, check: &CheckDef) -> Result<String, DumpError> {
    in_sql(table, &check.expression)
}

/// An expression, with the types that there are.
fn in_sql(table: &TableDef, text: &str) -> Result<String, DumpError> {
    fn translate(of: &mut Expression) {
        if let Expression::Cast { to, .. } = of {
            *to = match *to {
                ColumnType::I8 | ColumnType::U8 => ColumnType::I16,
                ColumnType::U16 => ColumnType::I32,
                ColumnType::U32 => ColumnType::I64,
                ColumnType::U64 | ColumnType::I128 | ColumnType::U128 => ColumnType::Numeric,
                ColumnType::Char | ColumnType::Text { .. } | ColumnType::Enum { .. } => ColumnType::LongText,
                ColumnType::Bytes { .. } | ColumnType::ByteArray { .. } => ColumnType::LongBytes,
                other => other,
            };
        }
        of.parts_mut().into_iter().for_each(translate);
    }
    let parsed = text.parse::<Expression>().ok().filter(|_| !text.contains('\0'));
    let mut expression =
        parsed.ok_or_else(|| DumpError::not_in_sql(table, None, "an expression has the character NUL"))?;
    translate(&mut expression);
    Ok(expression.to_string())
}

/// The condition that keeps out what the type of PostgreSQL has and the column's has not.
fn check(table: &TableDef, column: &ColumnDef) -> Result<String, DumpError> {
    let own = name(table, &column.name)?;
    let between = |least: &dyn std::fmt::Display, greatest: &dyn std::fmt::Display| {
        format!(" CHECK ({own} BETWEEN {least} AND {greatest})")
    };
    Ok(match column.ty {
        ColumnType::I16 | ColumnType::I32 | ColumnType::I64 => String::new(),
        ColumnType::U64 if column.identity.is_some() => between(&0, &i64::MAX),
        ColumnType::I128 => between(&i128::MIN, &i128::MAX),
        ColumnType::U128 => between(&u128::MIN, &u128::MAX),
        ColumnType::Text { max } | ColumnType::Bytes { max } => format!(" CHECK (octet_length({own}) <= {max})"),
        ColumnType::ByteArray { bytes } => format!(" CHECK (octet_length({own}) = {bytes})"),
        ColumnType::Char => format!(" CHECK (char_length({own}) = 1)"),
        ColumnType::Enum { variants } => {
            let variants: Vec<String> = variants.all().iter().map(|variant| quoted(variant.name())).collect();
            format!(" CHECK ({own} IN ({}))", variants.join(", "))
        }
        ty => IntegerType::of_column(ty).map_or_else(String::new, |ty| between(&ty.range().0, &ty.range().1)),
    })
}

/// Rows as statements.
#[derive(Default)]
pub(super) struct Rows {
    /// The table, and the rows of the statement so far.
    open: Option<(usize, usize)>,
}

impl Rows {
    /// Writes a row of the table at this position.
    pub(super) fn write(
        &mut self,
        out: &mut Vec<u8>,
        at: usize,
        table: &TableDef,
        values: &[Value],
    ) -> Result<(), DumpError> {
        let rows = match self.open {
            Some((open, rows)) if open == at && rows < ROWS_MAX => {
                out.extend_from_slice(b",\n");
                rows
            }
            _ => {
                self.end(out);
                let names = table.columns.iter().map(|column| name(table, &column.name));
                let names = names.collect::<Result<Vec<_>, DumpError>>()?.join(", ");
                let overriding = match table.identity_kind() {
                    None | Some(IdentityKind::ByDefault) => "",
                    Some(_) => " OVERRIDING SYSTEM VALUE",
                };
                let begin = format!("INSERT INTO {} ({names}){overriding} VALUES\n", name(table, &table.name)?);
                out.extend_from_slice(begin.as_bytes());
                0
            }
        };
        self.open = Some((at, rows + 1));
        for (number, (column, value)) in table.columns.iter().zip(values).enumerate() {
            out.extend_from_slice(if number == 0 { b"(" } else { b", " });
            let literal = literal(value).map_err(|problem| DumpError::not_in_sql(table, Some(column), problem))?;
            out.extend_from_slice(literal.as_bytes());
        }
        out.push(b')');
        Ok(())
    }

    /// Ends the statement.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() {
            out.extend_from_slice(b";\n");
        }
    }
}

/// A value as PostgreSQL reads it in a column of the type that [`ty`] names.
///
/// # Errors
/// Why PostgreSQL has no such value.
fn literal(value: &Value) -> Result<String, &'static str> {
    const NUL: &str = "PostgreSQL has no text with the character NUL";
    let text = value.to_text().unwrap_or_default();
    Ok(match value {
        Value::Option(None) => "NULL".to_owned(),
        Value::Option(Some(value)) => return literal(value),
        Value::Bool(_) | Value::Integer(..) | Value::Decimal { .. } => text,
        Value::Text(_) if text.contains('\0') => return Err(NUL),
        Value::Bytes(_) => format!("'\\x{text}'"),
        Value::Timestamp(microseconds) => instant(*microseconds)?,
        Value::Scalar(scalar) => match scalar.column_type() {
            ColumnType::I128 | ColumnType::U128 | ColumnType::Numeric => text,
            ColumnType::Char if text == "\0" => return Err(NUL),
            ColumnType::Date => moment(Date::of_scalar(scalar).unwrap_or_default(), "")?,
            ColumnType::DateTime => {
                let moment_of_day = DateTime::of_scalar(scalar).unwrap_or_default();
                moment(moment_of_day.date(), &format!(" {}", moment_of_day.time()))?
            }
            ColumnType::Interval => {
                let Interval { months, days, microseconds } = Interval::of_scalar(scalar).unwrap_or_default();
                format!("'{months} mons {days} days {microseconds} us'")
            }
            _ => quoted(&text),
        },
        // A float too: without quotes, its zero has no sign.
        _ => quoted(&text),
    })
}

const TOO_EARLY: &str = "PostgreSQL has no day before 4714-11-24 BC";

/// A day, with what follows it.
fn moment(date: Date, behind: &str) -> Result<String, &'static str> {
    const MONTH_AND_DAY: usize = "-11-24".len();
    let text = date.to_string();
    let (year, rest) = text.split_at(text.len() - MONTH_AND_DAY);
    match year.parse::<i32>().unwrap_or(i32::MIN) {
        year if year > 0 => Ok(format!("'{year:04}{rest}{behind}'")),
        year if (year, rest) >= (-4713, "-11-24") => Ok(format!("'{:04}{rest}{behind} BC'", 1 - year)),
        _ => Err(TOO_EARLY),
    }
}

/// Microseconds since 1970-01-01 UTC as a timestamp with time zone.
fn instant(microseconds: i64) -> Result<String, &'static str> {
    const HOUR: i64 = 3_600_000_000;
    match DateTime::from_microseconds(microseconds) {
        Some(time) => moment(time.date(), &format!(" {}+00", time.time())),
        None if microseconds < 0 => Err(TOO_EARLY),
        None => {
            let (hours, rest) = (microseconds / HOUR, microseconds % HOUR);
            Ok(format!("timestamptz '1970-01-01 00:00:00+00' + interval '{hours} hours {rest} us'"))
        }
    }
}
