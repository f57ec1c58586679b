//! The memory that remains when rows are deleted, and the cost of opening a directory. Resident memory, as the system
//! reports it, is compared with the database's counts.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use seriatim::{Database, Handle, Table, TransactError};
use seriatim_base::clock::Instant;
use seriatim_base::{machine, say, thread};

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

/// Prints a line about a stage.
fn print_stage(stage: &str, db: &Database, began: Instant) -> std::io::Result<()> {
    let statistics = db.statistics();
    let mib = |bytes: usize| bytes >> 20;
    let rows: u64 = statistics.tables.iter().map(|table| table.rows).sum();
    let resident = machine::memory_resident().map_or(0, |bytes| bytes as usize);
    let (in_use, reserved) = (mib(statistics.memory_bytes), mib(statistics.reserved_bytes));
    say!(
        "{stage:<26} {rows:>12} {in_use:>10} {reserved:>10} {:>10} {:>8.1}",
        mib(resident),
        began.elapsed().as_secs_f64()
    )
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
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    say!("{:<26} {:>12} {:>10} {:>10} {:>10} {:>8}", "stage", "rows", "in use", "reserved", "resident", "seconds")?;
    let began = Instant::now();
    {
        let db = Database::builder().protocol(&options.protocol).open()?;
        let events = db.create::<Event>()?;
        print_stage("empty", &db, began)?;
        for round in 1..=2 {
            let rows = fill(&db, &events, options.rows)?;
            print_stage(&format!("{round}: loaded"), &db, began)?;
            delete(&db, &events, rows)?;
            print_stage(&format!("{round}: deleted"), &db, began)?;
            thread::sleep(Duration::from_secs(REST));
            print_stage(&format!("{round}: {REST} seconds later"), &db, began)?;
        }
    }
    let Some(directory) = &options.data else { return Ok(()) };
    let open = || {
        let limit = usize::try_from(options.limit << 20).unwrap_or(usize::MAX);
        Database::builder().protocol(&options.protocol).path(directory).memory_limit(limit).open()
    };
    let db = open()?;
    let events = db.create_or_open::<Event>()?;
    let rows = fill(&db, &events, u64::MAX)?;
    print_stage("filled to the limit", &db, began)?;
    drop((events, db));
    let before = machine::memory_resident();
    let db = open()?;
    print_stage("opened again", &db, began)?;
    let peak = machine::memory_resident_max().map_or(0, |bytes| bytes >> 20);
    say!(
        "{rows} rows; resident before opening {} MiB, at most so far {peak} MiB",
        before.map_or(0, |bytes| bytes >> 20)
    )?;
    db.checkpoint()?;
    print_stage("checkpoint taken", &db, began)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_and_go_and_come_again_from_a_directory() {
        let data = std::env::temp_dir().join(format!("seriatim-footprint-{}", std::process::id()));
        let options = Options { rows: 3000, data: Some(data.clone()), limit: 4, protocol: "auto".to_owned() };
        let result = run(&options).map_err(|error| error.to_string());
        std::fs::remove_dir_all(&data).expect("it was made");
        assert_eq!(result, Ok(()));
    }
}
