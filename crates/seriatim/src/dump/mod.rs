//! Rows as text, and text as rows: [`Database::dump`] and [`Database::load`].
//!
//! A dump in JSON has all that is needed to make the tables again. Each line is an object:
//!
//! ```text
//! {"seriatim":"dump","version":1}
//! {"table":"part","columns":[{"name":"id","type":"u32"},…],"key":["id"],…}
//! {"table":"part","row":{"id":1,"name":"nut","weight":null}}
//! {"end":{"tables":1,"rows":1}}
//! ```
//! First there is a line for each table, then one for each row, then one for each sequence. A line has roles and their
//! rights, if there are others than a new database has. The last line tells a whole dump from one that was cut off.
//! Integers up to 2^53 and floats are numbers. Greater integers, decimals, times and all others are texts, as
//! [`Value::to_text`] writes them, so that no reader of JSON rounds them. Bytes are hexadecimal digits.
//!
//! CSV has one table: a line of names, then the rows. NULL is an empty field, and an empty text is `""`. SQL is a
//! script for PostgreSQL 15, in one transaction.

mod csv;
mod declaration;
mod json;
mod load;
mod sql;

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::ops::ControlFlow;

pub use self::declaration::{describe, to_json};
pub use self::load::{LoadError, LoadProblem, Loaded, LoadedTable};
pub use self::sql::to_sql;
use crate::catalog::{Access, ColumnDef, TableDef};
use crate::{Database, DynHandle, DynRow, Freshness, Sequence, TransactError};

/// How a dump is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tables and rows, an object on each line: what [`Database::load`] reads.
    Json,
    /// The rows of one table, with a line of names: what [`Database::load_csv`] reads.
    Csv,
    /// Tables and rows as a script for PostgreSQL 15.
    Sql,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dumped {
    /// The tables, each with the number of its rows.
    pub tables: Vec<(String, u64)>,
}

/// Why a dump is not complete.
#[derive(Debug)]
#[non_exhaustive]
pub enum DumpError {
    /// There is no such table.
    UnknownTable {
        /// The name that was given.
        name: String,
        /// The tables that there are.
        tables: Vec<String>,
    },
    /// CSV has the rows of one table, and this many were to be written.
    OneTable {
        /// The tables that there are.
        tables: Vec<String>,
    },
    /// PostgreSQL has no such value, or no such name.
    NotInSql {
        /// The table.
        table: String,
        /// The column, if it is a value of one.
        column: Option<String>,
        /// Why not.
        problem: &'static str,
    },
    /// The output failed.
    Output(io::Error),
    /// The rows could not be read.
    Transact(TransactError),
    /// The snapshot ended before all was read, as the log has stopped meanwhile. Another one shows the durable rows.
    Interrupted,
}

impl DumpError {
    fn not_in_sql(table: &TableDef, column: Option<&ColumnDef>, problem: &'static str) -> DumpError {
        let column = column.map(|column| column.name.to_string());
        DumpError::NotInSql { table: table.name.to_string(), column, problem }
    }
}

fn listed(tables: &[String]) -> String {
    if tables.is_empty() {
        "the database has no table".to_owned()
    } else {
        format!("the tables are {}", tables.join(", "))
    }
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DumpError::UnknownTable { name, tables } => write!(f, "there is no table `{name}`; {}", listed(tables)),
            DumpError::OneTable { tables } => write!(f, "CSV has the rows of one table: name one; {}", listed(tables)),
            DumpError::NotInSql { table, column, problem } => {
                write!(f, "table `{table}`")?;
                if let Some(column) = column {
                    write!(f, ", column `{column}`")?;
                }
                write!(f, ": {problem}; dump it as JSON")
            }
            DumpError::Output(error) => write!(f, "the dump cannot be written: {error}"),
            DumpError::Transact(error) => error.fmt(f),
            DumpError::Interrupted => f.write_str("the log stopped while rows were read: dump again what is durable"),
        }
    }
}

impl Error for DumpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            DumpError::Output(error) => Some(error),
            DumpError::Transact(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for DumpError {
    fn from(error: io::Error) -> DumpError {
        DumpError::Output(error)
    }
}

impl From<TransactError> for DumpError {
    fn from(error: TransactError) -> DumpError {
        DumpError::Transact(error)
    }
}

/// Dumps and loads.
impl Database {
    /// Writes these tables with all their rows, or all tables if none is named. Ordered tables are written in the order
    /// of their keys, hashed ones in no order. The rows are those of one moment.
    ///
    /// Where read-only transactions are snapshots that show the present or are made for the purpose
    /// ([`Freshness::Latest`], [`Freshness::Eventual`]), transactions go on meanwhile. The snapshot holds back memory
    /// of rows that they replace ([`Builder::snapshot_age_max`](crate::Builder::snapshot_age_max)). Otherwise new
    /// transactions wait, as for [`Database::each_row`].
    ///
    /// ```
    /// use seriatim::dump::Format;
    /// use seriatim::{Database, Table};
    ///
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::in_memory()?;
    /// let counters = db.create::<Counter>()?;
    /// db.session().transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// let mut dump = Vec::new();
    /// db.dump(Format::Json, &[], &mut dump)?;
    ///
    /// let copy = Database::in_memory()?;
    /// copy.load(&dump[..])?;
    /// let counters = copy.table::<Counter>()?;
    /// let n = copy.session().snapshot(|tx| Ok(tx.require(&counters, &7)?.n()))?;
    /// assert_eq!(*n, 41);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DumpError`]. A part may have been written: a dump in JSON then lacks its last line, and a script its end.
    pub fn dump(&self, format: Format, tables: &[&str], out: impl Write) -> Result<Dumped, DumpError> {
        let handles = self.named(tables)?;
        if format == Format::Csv && handles.len() != 1 {
            return Err(DumpError::OneTable { tables: self.table_names() });
        }
        let owned = self.sequences().into_iter().map(|sequence| (sequence.table(), sequence));
        let is_named = |table: &String| handles.iter().any(|handle| handle.definition().name == **table);
        let sequences = owned.filter(|(table, _)| table.as_ref().map_or(tables.is_empty(), is_named)).collect();
        let mut writer = Writer::new(format, &handles, sequences, out);
        let access = self.access();
        if tables.is_empty() && *access != Access::default() {
            let named = |object| handles.iter().find(|table| self.object_of(table) == object);
            let sequences = self.sequences();
            let name = |object| {
                let sequence = sequences.iter().find(|sequence| sequence.object() == object);
                let sequence = sequence.map(|sequence| sequence.definition().name.to_string());
                named(object).map(|table| table.definition().name.to_string()).or(sequence)
            };
            writer.access = Some(json::AccessLine::new(&access, name));
        }
        writer.begin()?;
        self.each_row_of(&handles, &mut |at, row| writer.row(at, &row))?;
        let rows = writer.end()?;
        let names = handles.iter().map(|table| table.definition().name.to_string());
        Ok(Dumped { tables: names.zip(rows).collect() })
    }

    /// The tables of these names, each once; all if none is named.
    fn named(&self, names: &[&str]) -> Result<Vec<DynHandle>, DumpError> {
        let all = self.table_names();
        let mut names: Vec<&str> = names.to_vec();
        if names.is_empty() {
            names = all.iter().map(String::as_str).collect();
        }
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(*name));
        let open = |name: &str| {
            let unknown = |_| DumpError::UnknownTable { name: name.to_owned(), tables: all.clone() };
            self.open_dyn(name).map_err(unknown)
        };
        names.into_iter().map(open).collect()
    }

    /// Calls `see` with each row of these tables, as they all are at one moment, and its table's position.
    fn each_row_of(
        &self,
        tables: &[DynHandle],
        see: &mut dyn FnMut(usize, DynRow<'_>) -> Result<(), DumpError>,
    ) -> Result<(), DumpError> {
        let mut seen = Ok(());
        let is_live = self.engine().settings().location.as_ref().is_none_or(|location| !location.inspect);
        if is_live && matches!(self.protocol().capabilities.snapshots, Freshness::Latest | Freshness::Eventual) {
            let read = self.session().snapshot(|tx| {
                // What was written cannot be taken back.
                if tx.attempt() > 1 {
                    seen = Err(DumpError::Interrupted);
                    return Err(tx.abort(DumpError::Interrupted));
                }
                for (at, table) in tables.iter().enumerate() {
                    let ended = tx.scan_all_dyn(table)?.try_for_each_row(|row| {
                        seen = see(at, row);
                        Ok(if seen.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                    })?;
                    if ended.is_break() {
                        return Err(tx.abort(DumpError::Interrupted));
                    }
                }
                Ok(())
            });
            seen?;
            return Ok(read.map(drop)?);
        }
        let tables: Vec<&DynHandle> = tables.iter().collect();
        let listed = self.engine().each_row_at_rest_dyn(&tables, &mut |at, row| {
            // The list has no early end.
            if seen.is_ok() {
                seen = see(at, row);
            }
        });
        seen?;
        Ok(listed.map(drop)?)
    }
}

/// Writes rows of several tables.
struct Writer<'t, W> {
    out: W,
    buffer: Vec<u8>,
    tables: Vec<&'t TableDef>,
    /// Each with the table to which it belongs.
    sequences: Vec<(Option<String>, Sequence)>,
    /// Roles and rights, which only JSON has.
    access: Option<json::AccessLine>,
    rows: Vec<u64>,
    form: Form,
}

enum Form {
    /// What the lines of each table begin with, and the names of its columns.
    Json(Vec<(Vec<u8>, Vec<String>)>),
    Csv,
    Sql(sql::Rows),
}

impl<'t, W: Write> Writer<'t, W> {
    /// Bytes that are written at a time.
    const BUFFER: usize = 1 << 16;

    fn new(
        format: Format,
        tables: &'t [DynHandle],
        sequences: Vec<(Option<String>, Sequence)>,
        out: W,
    ) -> Writer<'t, W> {
        let tables: Vec<&TableDef> = tables.iter().map(DynHandle::definition).collect();
        let form = match format {
            Format::Json => Form::Json(tables.iter().map(|table| json::begin_row(table)).collect()),
            Format::Csv => Form::Csv,
            Format::Sql => Form::Sql(sql::Rows::default()),
        };
        Writer { out, buffer: Vec::new(), rows: vec![0; tables.len()], tables, sequences, access: None, form }
    }

    fn begin(&mut self) -> Result<(), DumpError> {
        match &mut self.form {
            Form::Json(_) => {
                let header = json::Header { seriatim: json::Header::DUMP.into(), version: json::VERSION };
                line(&mut self.buffer, &header);
                for table in &self.tables {
                    line(&mut self.buffer, &declaration::Declaration::from(*table));
                }
            }
            Form::Csv => {
                let names = self.tables[0].columns.iter().map(|column| Some(column.name.to_string()));
                csv::write(&mut self.buffer, names)?;
            }
            Form::Sql(_) => {
                self.buffer.extend_from_slice(sql::BEGIN.as_bytes());
                for (owner, sequence) in &self.sequences {
                    if owner.is_none() {
                        self.buffer.extend_from_slice(sql::create_sequence(&sequence.definition())?.as_bytes());
                    }
                }
                for table in &self.tables {
                    let is_own = |(owner, _): &&(Option<String>, Sequence)| owner.as_deref() == Some(&table.name);
                    let own = self.sequences.iter().find(is_own).map(|(_, own)| own.definition());
                    self.buffer.extend_from_slice(sql::create(table, own.as_ref())?.as_bytes());
                }
            }
        }
        Ok(())
    }

    fn row(&mut self, at: usize, row: &DynRow<'_>) -> Result<(), DumpError> {
        let (table, values) = (self.tables[at], row.values());
        match &mut self.form {
            Form::Json(tables) => {
                let (begin, names) = &tables[at];
                json::write_row(&mut self.buffer, begin, names, &values);
            }
            Form::Csv => csv::write(&mut self.buffer, csv::fields(&values))?,
            Form::Sql(rows) => rows.write(&mut self.buffer, at, table, &values)?,
        }
        self.rows[at] += 1;
        if self.buffer.len() >= Self::BUFFER { self.flush() } else { Ok(()) }
    }

    /// Returns the number of rows of each table.
    fn end(mut self) -> Result<Vec<u64>, DumpError> {
        match &mut self.form {
            Form::Json(_) => {
                // After the rows, whose numbers were given before.
                for (owner, sequence) in &self.sequences {
                    let (definition, at) = (sequence.definition(), sequence.position());
                    line(&mut self.buffer, &json::SequenceLine::new(definition, owner.as_deref(), at));
                }
                let roles = self.access.as_ref().map_or(0, |line| line.access.roles.len() as u64);
                self.access.iter().for_each(|access| line(&mut self.buffer, access));
                let (tables, sequences) = (self.tables.len() as u64, self.sequences.len() as u64);
                let end = json::End { tables, rows: self.rows.iter().sum(), sequences, roles };
                line(&mut self.buffer, &json::EndLine { end });
            }
            Form::Csv => {}
            Form::Sql(rows) => {
                rows.end(&mut self.buffer);
                for (_, sequence) in &self.sequences {
                    let set = sql::set_sequence(&sequence.definition(), sequence.position())?;
                    self.buffer.extend_from_slice(set.as_bytes());
                }
                // After the rows: that is faster.
                self.buffer.extend_from_slice(sql::indexes(&self.tables)?.as_bytes());
                self.buffer.extend_from_slice(sql::references(&self.tables)?.as_bytes());
                self.buffer.extend_from_slice(sql::END.as_bytes());
            }
        }
        self.flush()?;
        self.out.flush()?;
        Ok(self.rows)
    }

    fn flush(&mut self) -> Result<(), DumpError> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

fn line(buffer: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(&mut *buffer, value).expect("plain data, and memory");
    buffer.push(b'\n');
}
