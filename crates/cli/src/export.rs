//! `seriatim export`: the rows of a table, or their number, as CSV or lines of JSON.
//!
//! The directory is read as a backup reads it, without a lock. The rows are those that were durable at one moment, even
//! while a process has the database open.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Number, Value as Json};
use seriatim::catalog::ScalarType;
use seriatim::{Database, DynHandle, Value};
use seriatim_base::disk::NewFile;

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
                    "csv: a line of names, then a line for each row, where NULL is an empty field and an empty text \
                     is \"\", as PostgreSQL's COPY has them; jsonl: an object of JSON on each line",
                ),
        )
        .arg(Arg::new("out").long("out").value_name("FILE").value_parser(value_parser!(PathBuf)).help(
            "Write to this new file in place of standard output; an export that is killed leaves a file \
                     seriatim-*.partial beside it, which you may remove",
        ))
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
    let path = matches.get_one::<PathBuf>("out");
    let at = |error: io::Error| path.map_or_else(String::new, |path| format!("--out {}: {error}", path.display()));
    let out = path.map(|path| NewFile::begin(path)).transpose().map_err(|error| Failure::Usage(at(error)))?;
    let sink: Box<dyn Write> = match &out {
        None => Box::new(io::stdout().lock()),
        Some(out) => Box::new(out.writer().map_err(|error| Failure::Run(at(error)))?),
    };
    let is_json = matches.get_one::<String>("format").is_some_and(|format| format == "jsonl");
    let mut writer = Rows { names: Vec::new(), is_json, sink: BufWriter::new(sink) };
    let done = match is_count {
        true => count(&db, &chosen, &mut writer),
        false => chosen.iter().try_for_each(|name| rows(&db, name, &mut writer)),
    };
    let done = done.and_then(|()| writer.sink.flush().map_err(Stop::Output));
    drop(writer);
    let done = done.and_then(|()| out.map_or(Ok(()), NewFile::publish).map_err(Stop::Output));
    done.map_err(|stop| match stop {
        Stop::Run(failure) => failure,
        Stop::Output(error) if path.is_none() => Failure::from(error),
        Stop::Output(error) => Failure::Run(at(error)),
    })
}

/// Why an export ends early.
enum Stop {
    Run(Failure),
    /// The output that could not be written.
    Output(io::Error),
}

fn open(db: &Database, name: &str) -> Result<DynHandle, Stop> {
    db.open_dyn(name).map_err(|error| Stop::Run(Failure::run(error)))
}

fn count(db: &Database, names: &[String], writer: &mut Rows<impl Write>) -> Result<(), Stop> {
    writer.begin(["table", "rows"].map(str::to_owned).to_vec()).map_err(Stop::Output)?;
    for name in names {
        let table = open(db, name)?;
        let rows = db.each_row_dyn(&table, |_| ()).map_err(|error| Stop::Run(Failure::run(error)))?;
        writer.row(vec![Value::Text(name.clone()), Value::Integer(rows as i128, None)]).map_err(Stop::Output)?;
    }
    Ok(())
}

fn rows(db: &Database, name: &str, writer: &mut Rows<impl Write>) -> Result<(), Stop> {
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
struct Rows<W: Write> {
    names: Vec<String>,
    is_json: bool,
    sink: BufWriter<W>,
}

impl<W: Write> Rows<W> {
    /// Rows with columns of these names follow.
    fn begin(&mut self, names: Vec<String>) -> io::Result<()> {
        if !self.is_json {
            self.line(names.iter().map(|name| Some(name.clone())))?;
        }
        self.names = names;
        Ok(())
    }

    fn row(&mut self, values: Vec<Value>) -> io::Result<()> {
        if self.is_json {
            let object: Map<String, Json> = self.names.iter().cloned().zip(values.iter().map(json)).collect();
            return writeln!(self.sink, "{}", Json::Object(object));
        }
        self.line(values.iter().map(Value::to_text))
    }

    /// A line of CSV, as RFC 4180 and PostgreSQL's `COPY … (FORMAT csv)` have it: NULL is an empty field without
    /// quotes, and an empty text has quotes. PostgreSQL reads a line `\.` as the end of the data, so it has quotes.
    fn line(&mut self, fields: impl Iterator<Item = Option<String>>) -> io::Result<()> {
        for (at, field) in fields.enumerate() {
            let separator = if at == 0 { "" } else { "," };
            match field {
                None => write!(self.sink, "{separator}")?,
                Some(text) if text.is_empty() || text == "\\." || text.contains([',', '"', '\r', '\n']) => {
                    write!(self.sink, "{separator}\"{}\"", text.replace('"', "\"\""))?;
                }
                Some(text) => write!(self.sink, "{separator}{text}")?,
            }
        }
        writeln!(self.sink)
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
        Value::Scalar(scalar) if f32::of_scalar(scalar).is_some_and(f32::is_finite) => {
            value.to_text().and_then(|text| text.parse().ok()).map_or(Json::Null, Json::Number)
        }
        Value::Float(number) => Number::from_f64(*number).map_or_else(|| Json::from(value.to_text()), Json::Number),
        value => Json::from(value.to_text()),
    }
}

#[cfg(test)]
mod tests {
    use seriatim::catalog::{Date, DateTime, Interval, Numeric, Time, Uuid};

    use super::*;

    #[test]
    fn values_are_written_so_that_they_can_be_read_again() {
        let null = Value::Option(None);
        let some = |value| Value::Option(Some(Box::new(value)));
        let values = [
            (null.clone(), "", "null"),
            (Value::Text(String::new()), "\"\"", "\"\""),
            (some(Value::Text("a \"b\"\n".to_owned())), "\"a \"\"b\"\"\n\"", r#""a \"b\"\n""#),
            (Value::from("\\."), "\"\\.\"", r#""\\.""#),
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
            (Value::from(0.1f32), "0.1", "0.1"),
            (Value::from(f32::INFINITY), "inf", r#""inf""#),
            (
                Value::from(u128::MAX),
                "340282366920938463463374607431768211455",
                r#""340282366920938463463374607431768211455""#,
            ),
            (Value::from('"'), r#""""""#, r#""\"""#),
            (
                Value::from(Uuid::nil()),
                "00000000-0000-0000-0000-000000000000",
                r#""00000000-0000-0000-0000-000000000000""#,
            ),
            (Value::from(Numeric::new(-1050, 2).expect("a number")), "-10.50", r#""-10.50""#),
            (Value::from(Date::default()), "1970-01-01", r#""1970-01-01""#),
            (Value::from(Time::MIDNIGHT), "00:00:00.000000", r#""00:00:00.000000""#),
            (Value::from(DateTime::default()), "1970-01-01T00:00:00.000000", r#""1970-01-01T00:00:00.000000""#),
            (Value::from(Interval { months: 1, days: -1, microseconds: 0 }), "P1M-1D", r#""P1M-1D""#),
            (Value::record("Paid", []), "Paid", r#""Paid""#),
            (Value::Bool(true), "true", "true"),
        ];
        for (value, as_csv, as_json) in values {
            assert_eq!(
                (csv(vec![value.clone()]), json(&value).to_string()),
                (format!("{as_csv}\n"), as_json.to_owned())
            );
        }
    }

    fn csv(values: Vec<Value>) -> String {
        let mut rows = Rows { names: Vec::new(), is_json: false, sink: BufWriter::new(Vec::new()) };
        rows.row(values).expect("memory");
        String::from_utf8(rows.sink.into_inner().expect("memory")).expect("UTF-8")
    }

    /// The fields of a line of CSV, by RFC 4180; a field without bytes and without quotes is NULL.
    fn fields(line: &str) -> Vec<Option<String>> {
        let mut rest = line.strip_suffix('\n').expect("a line");
        let mut fields = Vec::new();
        loop {
            let field = match rest.strip_prefix('"') {
                None => {
                    let (field, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                    rest = after;
                    (!field.is_empty()).then(|| field.to_owned())
                }
                Some(mut quoted) => {
                    let mut field = String::new();
                    loop {
                        let (part, after) = quoted.split_once('"').expect("a closing quote");
                        field.push_str(part);
                        let Some(after) = after.strip_prefix('"') else {
                            rest = after;
                            break Some(field);
                        };
                        field.push('"');
                        quoted = after;
                    }
                }
            };
            fields.push(field);
            match rest.strip_prefix(',') {
                Some(after) => rest = after,
                None => return (rest.is_empty()).then_some(fields).expect("a field ends before a comma"),
            }
        }
    }

    #[test]
    fn csv_distinguishes_null_from_an_empty_text_and_keeps_every_text() {
        let texts = ["", "\"", "\"\"", ",", ",,", "\n", "\r\n", "a,\"b\"", "\\.", "NULL", " ", "ü"];
        let values: Vec<Option<String>> = texts.iter().map(|text| Some((*text).to_owned())).chain([None]).collect();
        for first in &values {
            for second in &values {
                let row = [first.clone(), second.clone(), None].to_vec();
                let value = |text: &Option<String>| Value::Option(text.clone().map(|text| Box::new(Value::Text(text))));
                assert_eq!(fields(&csv(row.iter().map(value).collect())), row);
            }
        }
    }
}
