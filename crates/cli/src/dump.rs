//! `seriatim dump`, `load` and `schema`: rows and declarations of tables as text, and rows from text.
//!
//! A dump reads the directory as a backup does, without a lock. The rows are those that were durable at one moment,
//! even while a process has the database open. Formats are those of `seriatim::dump`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use seriatim::catalog::TableDef;
use seriatim::dump::{self, DumpError, Format, LoadError, LoadProblem, Loaded};
use seriatim::{Database, Durability, backup};
use seriatim_base::disk::NewFile;
use seriatim_base::{say, talk};

use crate::{Failure, args, directories};

/// Formats by name.
const FORMATS: [(&str, Format); 3] = [("json", Format::Json), ("csv", Format::Csv), ("sql", Format::Sql)];

/// Bytes that are read or written at a time.
const BUFFER: usize = 1 << 18;

fn tables() -> Arg {
    Arg::new("TABLE").value_name("TABLE").action(ArgAction::Append)
}

fn format(names: impl Into<Vec<&'static str>>) -> Arg {
    let names = names.into();
    Arg::new("format").long("format").value_name("FORMAT").default_value(names[0]).value_parser(names)
}

pub(crate) fn dump_command() -> Command {
    Command::new("dump")
        .about(
            "Writes tables and rows as JSON, CSV or SQL, or counts rows: what is durable, even while a process has the \
             database open",
        )
        .arg(args::directory("DIR", "The database's directory"))
        .arg(tables().help("The tables; all if none is named. CSV has the rows of one"))
        .arg(format(FORMATS.map(|(name, _)| name)).help(
            "json: declarations and rows, an object on each line, which `seriatim load` reads; csv: a line of names, \
             then the rows of one table, as PostgreSQL's COPY has them: NULL is an empty field, and an empty text is \
             \"\"; sql: a script for PostgreSQL 15",
        ))
        .arg(Arg::new("out").long("out").value_name("FILE").value_parser(value_parser!(PathBuf)).help(
            "Write to this new file in place of standard output; a dump that is killed leaves a file \
             seriatim-*.partial beside it, which you may remove",
        ))
        .arg(
            Arg::new("count")
                .long("count")
                .action(ArgAction::SetTrue)
                .conflicts_with("format")
                .help("Write the name and the number of rows of each table, as CSV, and no rows"),
        )
}

pub(crate) fn load_command() -> Command {
    Command::new("load")
        .about(
            "Reads a dump in JSON, or rows of a table in CSV, into a database, which is created if there is none. A \
             line that is wrong ends the load, and the rows before it are loaded",
        )
        .arg(args::directory("DIR", "The database's directory, which no process has open"))
        .arg(tables().action(ArgAction::Set).help("The table of rows in CSV, which exists"))
        .arg(
            format(["json", "csv"])
                .help("json: what `seriatim dump` writes; csv: a line of names of columns, then rows of TABLE"),
        )
        .arg(
            Arg::new("input")
                .long("input")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Read this file in place of standard input"),
        )
}

pub(crate) fn schema_command() -> Command {
    Command::new("schema")
        .about("Writes the declarations of tables, even while a process has the database open")
        .arg(args::directory("DIR", "The database's directory"))
        .arg(tables().help("The tables; all if none is named"))
        .arg(
            format(["text", "json", "sql"]).help(
                "text: for people; json: an object on each line, as in a dump; sql: statements for PostgreSQL 15",
            ),
        )
}

/// The format that was chosen, and the tables.
fn chosen(matches: &ArgMatches) -> (&str, Vec<&str>) {
    let format = matches.get_one::<String>("format").map_or("", String::as_str);
    (format, matches.get_many::<String>("TABLE").into_iter().flatten().map(String::as_str).collect())
}

/// A spinner for what has no known end, otherwise a bar.
fn bar(what: &str, bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), "{wide_bar} {bytes} of {total_bytes} {bytes_per_sec}"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} {bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(&format!("{what} {template}"));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Where a dump goes to.
struct Sink<'m> {
    path: Option<&'m PathBuf>,
    file: Option<NewFile>,
}

impl<'m> Sink<'m> {
    fn begin(matches: &'m ArgMatches) -> Result<Sink<'m>, Failure> {
        let mut sink = Sink { path: matches.get_one::<PathBuf>("out"), file: None };
        if let Some(path) = sink.path {
            sink.file = Some(NewFile::begin(path).map_err(|error| Failure::Usage(sink.of_file(path, &error)))?);
        }
        Ok(sink)
    }

    fn of_file(&self, path: &Path, error: &io::Error) -> String {
        format!("--out {}: {error}", path.display())
    }

    fn failure(&self, error: io::Error) -> Failure {
        match self.path {
            Some(path) => Failure::Run(self.of_file(path, &error)),
            None => Failure::from(error),
        }
    }

    fn writer(&self) -> Result<Box<dyn Write>, Failure> {
        match &self.file {
            None => Ok(Box::new(io::stdout().lock())),
            Some(file) => Ok(Box::new(file.writer().map_err(|error| self.failure(error))?)),
        }
    }

    fn publish(mut self) -> Result<(), Failure> {
        let published = self.file.take().map_or(Ok(()), NewFile::publish);
        published.map_err(|error| self.failure(error))
    }
}

pub(crate) fn dump(matches: &ArgMatches) -> Result<(), Failure> {
    let directory = directories::directory(matches, "DIR");
    let db = directories::load(Database::builder().inspect(&directory))?;
    let sink = Sink::begin(matches)?;
    let failure = |error: DumpError| match error {
        DumpError::UnknownTable { .. } | DumpError::OneTable { .. } => {
            Failure::Usage(format!("{}: {error}", directory.display()))
        }
        DumpError::Output(error) => sink.failure(error),
        error => Failure::run(error),
    };
    let (name, tables) = chosen(matches);
    let is_count = matches.get_flag("count");
    let format = FORMATS.into_iter().find(|(known, _)| *known == name).map_or(Format::Json, |(_, format)| format);
    if is_count {
        let counted = counts(&db, &tables).map_err(failure)?;
        sink.writer()?.write_all(counted.as_bytes()).map_err(|error| sink.failure(error))?;
    } else {
        let bar = bar("dumping", None);
        let writer = Counting { inner: BufWriter::with_capacity(BUFFER, sink.writer()?), bar: &bar };
        let dumped = db.dump(format, &tables, writer).map_err(failure);
        bar.finish_and_clear();
        dumped?;
    }
    sink.publish()
}

/// The number of rows of these tables, or of all, as CSV.
fn counts(db: &Database, names: &[&str]) -> Result<String, DumpError> {
    let all = db.table_names();
    let names = if names.is_empty() { all.iter().map(String::as_str).collect() } else { names.to_vec() };
    let mut text = "table,rows\n".to_owned();
    for name in names {
        let unknown = |_| DumpError::UnknownTable { name: name.to_owned(), tables: all.clone() };
        let rows = db.each_row_dyn(&db.open_dyn(name).map_err(unknown)?, |_| ())?;
        let _ = match name.contains([',', '"', '\r', '\n']) {
            true => writeln!(text, "\"{}\",{rows}", name.replace('"', "\"\"")),
            false => writeln!(text, "{name},{rows}"),
        };
    }
    Ok(text)
}

/// Shows the bytes that pass.
struct Counting<'b, T> {
    inner: T,
    bar: &'b ProgressBar,
}

impl<T: Write> Write for Counting<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bar.inc(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Counting<'_, T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.bar.inc(read as u64);
        Ok(read)
    }
}

pub(crate) fn load(matches: &ArgMatches) -> Result<(), Failure> {
    let directory = directories::directory(matches, "DIR");
    let (format, tables) = chosen(matches);
    let table = match (format, &tables[..]) {
        ("json", []) => None,
        ("csv", [table]) => Some(*table),
        ("json", _) => {
            return Err(Failure::usage("a dump in JSON names its tables: leave out TABLE, or say --format csv"));
        }
        _ => return Err(Failure::usage("rows in CSV are of one table: name it after DIR")),
    };
    let of_file = |path: &Path, error: io::Error| format!("--input {}: {error}", path.display());
    // Before the directory is made.
    let (input, bytes): (Box<dyn Read>, Option<u64>) = match matches.get_one::<PathBuf>("input") {
        None => (Box::new(io::stdin().lock()), None),
        Some(path) => {
            let file = File::open(path).map_err(|error| Failure::Usage(of_file(path, error)))?;
            let bytes = file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
            (Box::new(file), bytes)
        }
    };
    // The table of rows in CSV exists, so its database does.
    let builder = Database::builder().path(&directory).create(table.is_none()).durability(Durability::Async);
    // Nothing waits for the end of a load but this command.
    let db = directories::load(builder.transaction_age_max(Duration::MAX))?;
    let bar = bar("loading", bytes);
    let input = BufReader::with_capacity(BUFFER, Counting { inner: input, bar: &bar });
    let done = read(&db, table, input);
    bar.finish_and_clear();
    let closed = db.close().map_err(Failure::run);
    match done {
        Ok(loaded) => {
            closed?;
            for table in &loaded.tables {
                let made = if table.is_new { ", created" } else { "" };
                say!("{:<14} {}: {} rows{made}\n", "loaded", table.name, table.rows)?;
            }
            Ok(())
        }
        Err(error) => {
            if let Err(Failure::Run(lost)) = closed {
                talk!("{lost}");
            }
            Err(match error.problem {
                LoadProblem::UnknownTable { .. } if table.is_some() => Failure::usage(error),
                _ => Failure::Run(format!("{}: {error}", directory.display())),
            })
        }
    }
}

fn read(db: &Database, table: Option<&str>, input: impl BufRead) -> Result<Loaded, LoadError> {
    match table {
        None => db.load(input),
        Some(table) => db.load_csv(table, input),
    }
}

pub(crate) fn schema(matches: &ArgMatches) -> Result<(), Failure> {
    let directory = directories::directory(matches, "DIR");
    let all = backup::tables(&directory).map_err(|error| directories::failure(&error))?;
    let (format, names) = chosen(matches);
    let mut shown: Vec<&TableDef> = Vec::new();
    for name in &names {
        let found = all.iter().find(|table| table.name == *name);
        shown.push(found.ok_or_else(|| {
            let tables = all.iter().map(|table| table.name.to_string()).collect();
            let error = DumpError::UnknownTable { name: (*name).to_owned(), tables };
            Failure::Usage(format!("{}: {error}", directory.display()))
        })?);
    }
    if names.is_empty() {
        shown = all.iter().collect();
    }
    match format {
        "sql" => say!("{}", dump::to_sql(&shown).map_err(Failure::run)?)?,
        "json" => shown.iter().try_for_each(|table| say!("{}\n", dump::to_json(table)))?,
        _ => shown.iter().try_for_each(|table| say!("{}", dump::describe(table)))?,
    }
    Ok(())
}
