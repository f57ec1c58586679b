//! Transfers between accounts on Seriatim, SQLite and redb: in one process, on one thread, with the same accounts.
//!
//! `cargo run --release --manifest-path compare/Cargo.toml`. A transfer adds to one of the accounts and takes from
//! another, in one transaction. It is run in memory, and durably: it returns when it has been flushed to the disk.
//! The databases take turns, and the table shows the median of their rounds. A run whose balances do not add up fails.

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use redb::backends::InMemoryBackend;
use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition};
use seriatim::clock::Instant;
use seriatim::{Rng, Table};

type Failure = Box<dyn Error>;

/// What every account has at first.
const CENTS: i64 = 100_00;

/// Transfers between two clock readings: a reading costs little beside them.
const BATCH: u32 = 16;

#[derive(Parser)]
#[command(about = "Compares transfers on Seriatim, SQLite and redb: one process, one thread")]
struct Arguments {
    /// The number of accounts
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(2..))]
    accounts: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Runs of each database, of which the median is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The directory for files of durable runs; what they make there is removed
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

/// A database with accounts 0 to n - 1.
trait Bank {
    /// Moves an amount, in one transaction.
    fn transfer(&mut self, from: u32, to: u32, cents: i64) -> Result<(), Failure>;

    /// The sum of all balances.
    fn sum(&mut self) -> Result<i64, Failure>;
}

/// Opens a bank with this many accounts, in a directory or in memory.
type Open = fn(u32, Option<&Path>) -> Result<Box<dyn Bank>, Failure>;

const BANKS: [(&str, Open); 3] = [("Seriatim", Seriatim::open), ("SQLite", Sqlite::open), ("redb", Redb::open)];

#[derive(Table)]
#[table(name = "account", key(id))]
struct Account {
    id: u32,
    cents: i64,
}

struct Seriatim {
    accounts: seriatim::Handle<Account>,
    session: seriatim::Session,
}

impl Seriatim {
    fn open(accounts: u32, dir: Option<&Path>) -> Result<Box<dyn Bank>, Failure> {
        let database = match dir {
            Some(dir) => seriatim::Database::open(dir)?,
            None => seriatim::Database::in_memory()?,
        };
        let handle = database.create_or_open::<Account>()?;
        let mut session = database.session();
        session
            .transact(|tx| (0..accounts).try_for_each(|id| tx.put(&handle, &Account { id, cents: CENTS }).map(drop)))?;
        Ok(Box::new(Seriatim { accounts: handle, session }))
    }
}

impl Bank for Seriatim {
    fn transfer(&mut self, from: u32, to: u32, cents: i64) -> Result<(), Failure> {
        self.session.transact(|tx| {
            tx.update(&self.accounts, &from, |account| account.set_cents(account.cents() - cents))?;
            tx.update(&self.accounts, &to, |account| account.set_cents(account.cents() + cents))
        })?;
        Ok(())
    }

    fn sum(&mut self) -> Result<i64, Failure> {
        Ok(*self.session.snapshot(|tx| tx.scan(&self.accounts, ..).map(|account| Ok(account?.cents())).sum())?)
    }
}

struct Sqlite(rusqlite::Connection);

impl Sqlite {
    fn open(accounts: u32, dir: Option<&Path>) -> Result<Box<dyn Bank>, Failure> {
        let connection = match dir {
            Some(dir) => rusqlite::Connection::open(dir.join("sqlite"))?,
            None => rusqlite::Connection::open_in_memory()?,
        };
        if dir.is_some() {
            // A commit appends to the log and flushes it.
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "full")?;
        }
        connection.execute_batch("BEGIN; CREATE TABLE account (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)")?;
        let mut insert = connection.prepare("INSERT INTO account VALUES (?1, ?2)")?;
        for id in 0..accounts {
            insert.execute((id, CENTS))?;
        }
        drop(insert);
        connection.execute_batch("COMMIT")?;
        Ok(Box::new(Sqlite(connection)))
    }
}

impl Bank for Sqlite {
    fn transfer(&mut self, from: u32, to: u32, cents: i64) -> Result<(), Failure> {
        let run = |statement| self.0.prepare_cached(statement)?.execute(()).map(drop);
        run("BEGIN IMMEDIATE")?;
        let mut add = self.0.prepare_cached("UPDATE account SET cents = cents + ?2 WHERE id = ?1")?;
        add.execute((from, -cents))?;
        add.execute((to, cents))?;
        Ok(run("COMMIT")?)
    }

    fn sum(&mut self) -> Result<i64, Failure> {
        Ok(self.0.query_row("SELECT sum(cents) FROM account", (), |row| row.get(0))?)
    }
}

const ACCOUNTS: TableDefinition<'_, u32, i64> = TableDefinition::new("account");

struct Redb(redb::Database);

impl Redb {
    fn open(accounts: u32, dir: Option<&Path>) -> Result<Box<dyn Bank>, Failure> {
        let database = match dir {
            Some(dir) => redb::Database::create(dir.join("redb"))?,
            None => redb::Database::builder().create_with_backend(InMemoryBackend::new())?,
        };
        let transaction = database.begin_write()?;
        let mut table = transaction.open_table(ACCOUNTS)?;
        for id in 0..accounts {
            table.insert(id, CENTS)?;
        }
        drop(table);
        transaction.commit()?;
        Ok(Box::new(Redb(database)))
    }
}

impl Bank for Redb {
    /// Durability is immediate unless it is set otherwise.
    fn transfer(&mut self, from: u32, to: u32, cents: i64) -> Result<(), Failure> {
        let transaction = self.0.begin_write()?;
        let mut table = transaction.open_table(ACCOUNTS)?;
        for (id, cents) in [(from, -cents), (to, cents)] {
            let before = table.get(id)?.ok_or("no such account")?.value();
            table.insert(id, before + cents)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn sum(&mut self) -> Result<i64, Failure> {
        let table = self.0.begin_read()?.open_table(ACCOUNTS)?;
        table.iter()?.map(|row| Ok(row?.1.value())).sum()
    }
}

/// Transfers a second, on a bank that is opened for it.
fn run(open: Open, arguments: &Arguments, dir: Option<&Path>, seed: u64) -> Result<f64, Failure> {
    let dir = dir.map(tempfile::tempdir_in).transpose()?;
    let mut bank = open(arguments.accounts, dir.as_ref().map(|dir| dir.path()))?;
    let mut rng = Rng::from_seed(seed);
    let length = Duration::from_secs_f64(arguments.seconds);
    let (mut transfers, begun) = (0, Instant::now());
    while begun.elapsed() < length {
        for _ in 0..BATCH {
            let from = rng.below(u64::from(arguments.accounts)) as u32;
            let to = (from + 1 + rng.below(u64::from(arguments.accounts) - 1) as u32) % arguments.accounts;
            bank.transfer(from, to, 1)?;
        }
        transfers += BATCH;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (sum, expected) = (bank.sum()?, i64::from(arguments.accounts) * CENTS);
    if sum != expected {
        return Err(format!("the balances add up to {sum} and not to {expected}").into());
    }
    Ok(f64::from(transfers) / seconds)
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| transfers a second | {} |\n|---|{}",
        BANKS.map(|(name, _)| name).join(" | "),
        "---|".repeat(BANKS.len())
    )?;
    for (name, dir) in [("in memory", None), ("durable", Some(arguments.dir.as_path()))] {
        let mut measured = [const { Vec::new() }; BANKS.len()];
        for round in 0..arguments.rounds {
            for (measured, (_, open)) in measured.iter_mut().zip(BANKS) {
                measured.push(run(open, &arguments, dir, u64::from(round))?);
            }
        }
        let median = |mut rounds: Vec<f64>| {
            rounds.sort_by(f64::total_cmp);
            format!("{:.0}", rounds[rounds.len() / 2])
        };
        writeln!(out, "| {name} | {} |", measured.map(median).join(" | "))?;
    }
    Ok(())
}
