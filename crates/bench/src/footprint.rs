//! The memory that remains when rows are deleted, and the cost of opening a directory. Resident memory, as the system
//! reports it, is compared with the database's counts.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use seriatim::{Database, Handle, Table, TransactError};
use seriatim_base::clock::Instant;
use seriatim_base::{interrupt, machine, thread};

use crate::measure::until_signal;
use crate::report::{Format, Rows};

/// Options of the run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Rows of some 200 bytes
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// A new directory for the database, which is then also filled to the limit, closed and opened again
    #[arg(long)]
    data: Option<PathBuf>,
    /// The memory limit, MiB
    #[arg(long, default_value_t = 1024, requires = "data", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Concurrency-control protocol
    #[arg(long, default_value = "auto")]
    protocol: String,
    /// The format of standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Rows in a transaction.
const BATCH: u64 = 1000;
/// Seconds for helpers to release memory.
const REST: u64 = if cfg!(test) { 0 } else { 5 };

/// A row with an index.
#[derive(Table, Clone, Debug)]
#[table(name = "event", key(id), ordered)]
#[table(index(name = "by_source", columns(source), ordered))]
struct Event {
    id: u64,
    source: u32,
    text: String,
}

fn event(id: u64) -> Event {
    Event { id, source: (id * 7919) as u32, text: "x".repeat(60 + id as usize % 60) }
}

/// Adds a row about a stage.
fn print_stage(table: &mut Rows, stage: &str, db: &Database, began: Instant) -> std::io::Result<()> {
    let statistics = db.statistics();
    let rows: u64 = statistics.tables.iter().map(|table| table.rows).sum();
    let resident = machine::memory_resident().map_or(0, |bytes| bytes as usize);
    let (in_use, reserved, seconds) =
        (statistics.memory_bytes, statistics.reserved_bytes, began.elapsed().as_secs_f64());
    let [used, kept, here] = [in_use, reserved, resident].map(|bytes| bytes >> 20);
    let row = json!({
        "stage": stage, "rows": rows, "memory_bytes": in_use, "reserved_bytes": reserved,
        "resident_bytes": resident, "seconds": seconds,
    });
    table.add(&format!("{stage:<26} {rows:>12} {used:>10} {kept:>10} {here:>10} {seconds:>8.1}"), row)
}

/// Inserts rows in batches until there are `rows` or memory is refused. Returns the number of rows.
fn fill(db: &Database, events: &Handle<Event>, rows: u64) -> Result<u64, TransactError> {
    let mut session = db.session();
    for first in (0..rows).step_by(BATCH as usize) {
        let end = (first + BATCH).min(rows);
        match session.transact(|tx| (first..end).try_for_each(|id| tx.insert(events, &event(id)))) {
            Ok(_) => {}
            Err(TransactError::OutOfMemory { .. }) => return Ok(first),
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

fn delete(db: &Database, events: &Handle<Event>, rows: u64) -> Result<(), TransactError> {
    let mut session = db.session();
    for first in (0..rows).step_by(BATCH as usize) {
        let end = (first + BATCH).min(rows);
        session.transact(|tx| (first..end).try_for_each(|id| tx.delete(events, &id).map(drop)))?;
    }
    Ok(())
}

/// Runs, and prints a line for each stage.
pub(crate) fn run(options: &Options) -> Result<Value, Box<dyn Error>> {
    let [in_use, reserved, resident] = ["in use", "reserved", "resident"];
    let heads =
        format!("{:<26} {:>12} {in_use:>10} {reserved:>10} {resident:>10} {:>8}", "stage, MiB", "rows", "seconds");
    let (mut rows, began) = (Rows::new(options.format, &heads)?, Instant::now());
    let table = &mut rows;
    {
        let db = Database::builder().protocol(&options.protocol).open()?;
        let events = db.create::<Event>()?;
        print_stage(table, "empty", &db, began)?;
        for round in until_signal(1..=2) {
            let rows = fill(&db, &events, options.rows)?;
            print_stage(table, &format!("{round}: loaded"), &db, began)?;
            delete(&db, &events, rows)?;
            print_stage(table, &format!("{round}: deleted"), &db, began)?;
            thread::sleep(Duration::from_secs(REST));
            print_stage(table, &format!("{round}: {REST} seconds later"), &db, began)?;
        }
    }
    let Some(directory) = options.data.as_ref().filter(|_| !interrupt::is_requested()) else { return Ok(rows.json()) };
    let open = || {
        let limit = usize::try_from(options.limit << 20).unwrap_or(usize::MAX);
        Database::builder().protocol(&options.protocol).path(directory).memory_limit(limit).open()
    };
    let db = open()?;
    let events = db.create_or_open::<Event>()?;
    let count = fill(&db, &events, u64::MAX)?;
    print_stage(table, "filled to the limit", &db, began)?;
    drop((events, db));
    let before = machine::memory_resident();
    let db = open()?;
    print_stage(table, "opened again", &db, began)?;
    let [before, peak] = [before, machine::memory_resident_max()].map(|bytes| bytes.map_or(0, |bytes| bytes >> 20));
    options.format.line(&format!("{count} rows; resident before opening {before} MiB, at most so far {peak} MiB"))?;
    db.checkpoint()?;
    print_stage(table, "checkpoint taken", &db, began)?;
    Ok(rows.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_and_go_and_come_again_from_a_directory() {
        let data = std::env::temp_dir().join(format!("seriatim-footprint-{}", std::process::id()));
        let options = Options {
            rows: 3000,
            data: Some(data.clone()),
            limit: 4,
            protocol: "auto".to_owned(),
            format: Format::Json,
        };
        let result = run(&options).map(|object| object["rows"].as_array().map(Vec::len));
        std::fs::remove_dir_all(&data).expect("it was made");
        assert_eq!(result.map_err(|error| error.to_string()), Ok(Some(10)));
    }
}
