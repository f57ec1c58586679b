//! `seriatim export`: the rows of a table, or their number, as CSV or lines of JSON.
//!
//! The directory is read as a backup reads it, without a lock: the rows are those of one moment, all that was
//! durable then, even while a process has the database open.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Number, Value as Json};
use seriatim::{Database, DynHandle, Value};

use crate::{Failure, args, directories};

/// Rows between two updates of the progress bar.
const SHOWN_EVERY: u64 = 4096;

pub(crate) fn command() -> Command {
    Command::new("export")
        .about(
            "Writes the rows of a table, or counts them: what is durable, even while a process has the database open",
        )
        .arg(args::directory("DIR", "The database's directory"))
        .arg(
            Arg::new("table")
                .long("table")
                .value_name("T")
                .help("The table; needed if there are several, except to count the rows of all"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .default_value("csv")
                .value_parser(["csv", "jsonl"])
                .help(
                    "csv: a line of names, then a line for each row, where NULL is as an empty text; jsonl: an object \
                     of JSON on each line",
                ),
        )
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Write to this new file in place of standard output"),
        )
        .arg(
            Arg::new("count")
                .long("count")
                .action(ArgAction::SetTrue)
                .help("Write the name and the number of rows of each table, or of --table, and no rows"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let directory = directories::directory(matches, "DIR");
    let db = directories::load(Database::builder().inspect(&directory))?;
    let names = db.table_names();
    let of_all = |problem: &str| match names.is_empty() {
        true => Failure::Usage(format!("{}: {problem}; the database has no table", directory.display())),
        false => Failure::Usage(format!("{}: {problem}; the tables are {}", directory.display(), names.join(", "))),
    };
    let is_count = matches.get_flag("count");
    let chosen = match matches.get_one::<String>("table") {
        Some(name) if names.contains(name) => vec![name.clone()],
        Some(name) => return Err(of_all(&format!("there is no table `{name}`"))),
        None if is_count || names.len() == 1 => names.clone(),
        None => return Err(of_all("name one table with --table")),
    };
    let out = matches.get_one::<PathBuf>("out").map(Out::begin).transpose()?;
    let sink: Box<dyn Write> = match &out {
        None => Box::new(io::stdout().lock()),
        Some(out) => Box::new(out.create()?),
    };
    let is_json = matches.get_one::<String>("format").is_some_and(|format| format == "jsonl");
    let mut writer = Rows::new(sink, is_json);
    let done = match is_count {
        true => count(&db, &chosen, &mut writer),
        false => chosen.iter().try_for_each(|name| rows(&db, name, &mut writer)),
    };
    let done = done.and_then(|()| writer.finish().map_err(Stop::Output));
    drop(writer);
    let done = done.and_then(|()| out.as_ref().map_or(Ok(()), |out| out.publish().map_err(Stop::Output)));
    done.map_err(|stop| match (stop, &out) {
        (Stop::Run(failure), _) => failure,
        (Stop::Output(error), None) => Failure::from(error),
        (Stop::Output(error), Some(out)) => Failure::Run(format!("{}: {error}", out.path.display())),
    })
}

/// A new file, written beside its place, so that a file of this name is whole.
struct Out<'a> {
    path: &'a Path,
    partial: PathBuf,
}

impl Out<'_> {
    fn begin(path: &PathBuf) -> Result<Out<'_>, Failure> {
        if path.symlink_metadata().is_ok() {
            return Err(Failure::Usage(format!("{}: the file exists: name a new one with --out", path.display())));
        }
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        Ok(Out { path, partial: partial.into() })
    }

    fn create(&self) -> Result<File, Failure> {
        File::create(&self.partial).map_err(|error| Failure::Usage(format!("{}: {error}", self.path.display())))
    }

    fn publish(&self) -> io::Result<()> {
        // Unlike a rename, a link replaces no file that came meanwhile.
        fs::hard_link(&self.partial, self.path)
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        // It is published, or the export failed.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Why an export ends early.
enum Stop {
    Run(Failure),
    /// What was to be written.
    Output(io::Error),
}

fn open(db: &Database, name: &str) -> Result<DynHandle, Stop> {
    db.open_dyn(name).map_err(|error| Stop::Run(Failure::run(error)))
}

fn count(db: &Database, names: &[String], writer: &mut Rows) -> Result<(), Stop> {
    writer.begin(["table", "rows"].map(str::to_owned).to_vec()).map_err(Stop::Output)?;
    for name in names {
        let table = open(db, name)?;
        let rows = db.each_row_dyn(&table, |_| ()).map_err(|error| Stop::Run(Failure::run(error)))?;
        writer.row(vec![Value::Text(name.clone()), Value::Integer(rows as i128, None)]).map_err(Stop::Output)?;
    }
    Ok(())
}

fn rows(db: &Database, name: &str, writer: &mut Rows) -> Result<(), Stop> {
    let table = open(db, name)?;
    let columns = &table.definition().columns;
    writer.begin(columns.iter().map(|column| column.name.to_string()).collect()).map_err(Stop::Output)?;
    let statistics = db.statistics();
    let all = statistics.tables.iter().find(|table| table.name == name).map_or(0, |table| table.rows);
    let style = ProgressStyle::with_template("exporting {wide_bar} {human_pos} of {human_len} rows {per_sec}");
    let bar = ProgressBar::new(all).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (mut at, mut written) = (0, Ok(()));
    let listed = db.each_row_dyn(&table, |row| {
        // The list has no early end.
        if written.is_ok() {
            written = writer.row(row.values());
        }
        at += 1;
        if at % SHOWN_EVERY == 0 {
            bar.set_position(at);
        }
    });
    bar.finish_and_clear();
    listed.map_err(|error| Stop::Run(Failure::run(error)))?;
    written.map_err(Stop::Output)
}

/// Rows as text.
struct Rows {
    names: Vec<String>,
    sink: Sink,
}

enum Sink {
    Csv(Box<csv::Writer<Box<dyn Write>>>),
    Json(io::BufWriter<Box<dyn Write>>),
}

impl Rows {
    fn new(sink: Box<dyn Write>, is_json: bool) -> Rows {
        let sink = match is_json {
            true => Sink::Json(io::BufWriter::new(sink)),
            false => Sink::Csv(Box::new(csv::Writer::from_writer(sink))),
        };
        Rows { names: Vec::new(), sink }
    }

    /// Rows with columns of these names follow.
    fn begin(&mut self, names: Vec<String>) -> io::Result<()> {
        if let Sink::Csv(csv) = &mut self.sink {
            csv.write_record(&names).map_err(written)?;
        }
        self.names = names;
        Ok(())
    }

    fn row(&mut self, values: Vec<Value>) -> io::Result<()> {
        match &mut self.sink {
            Sink::Csv(csv) => csv.write_record(values.iter().map(text)).map_err(written),
            Sink::Json(json_lines) => {
                let object: Map<String, Json> = self.names.iter().cloned().zip(values.iter().map(json)).collect();
                writeln!(json_lines, "{}", Json::Object(object))
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Csv(csv) => csv.flush(),
            Sink::Json(json_lines) => json_lines.flush(),
        }
    }
}

/// The error of the sink. The conversion of `csv` loses its kind, and a closed pipe is no failure.
fn written(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// A value as text: without a type, bytes in hexadecimal digits, NULL as the empty text.
fn text(value: &Value) -> String {
    match value {
        Value::Option(None) => String::new(),
        Value::Option(Some(value)) => text(value),
        Value::Text(text) => text.clone(),
        Value::Integer(number, _) => number.to_string(),
        Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        value => value.to_string(),
    }
}

/// A value as JSON: a number is a number if JSON has it exactly, everything else but truth values is text.
fn json(value: &Value) -> Json {
    let integer =
        |number: i128| u64::try_from(number).map(Number::from).or_else(|_| i64::try_from(number).map(Number::from));
    match value {
        Value::Option(None) => Json::Null,
        Value::Option(Some(value)) => json(value),
        Value::Bool(value) => Json::Bool(*value),
        Value::Integer(number, _) => integer(*number).map_or_else(|_| Json::String(number.to_string()), Json::Number),
        Value::Float(number) => Number::from_f64(*number).map_or_else(|| Json::String(text(value)), Json::Number),
        value => Json::String(text(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_so_that_they_can_be_read_again() {
        let null = Value::Option(None);
        let some = |value| Value::Option(Some(Box::new(value)));
        let values = [
            (null, "", "null"),
            (some(Value::Text("a \"b\"\n".to_owned())), "a \"b\"\n", r#""a \"b\"\n""#),
            (Value::from(u64::MAX), "18446744073709551615", "18446744073709551615"),
            (Value::from(-7i64), "-7", "-7"),
            (
                Value::Integer(i128::MAX, None),
                "170141183460469231731687303715884105727",
                r#""170141183460469231731687303715884105727""#,
            ),
            (Value::Float(0.5), "0.5", "0.5"),
            (Value::Float(f64::NAN), "NaN", r#""NaN""#),
            (Value::Decimal { units: -105, scale: 2 }, "-1.05", r#""-1.05""#),
            (Value::Bytes(vec![0, 255]), "00ff", r#""00ff""#),
            (Value::Bool(true), "true", "true"),
        ];
        for (value, as_text, as_json) in values {
            assert_eq!((text(&value), json(&value).to_string()), (as_text.to_owned(), as_json.to_owned()));
        }
    }
}
