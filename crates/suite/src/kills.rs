//! Real kills: a child process under load on real files, ended by SIGKILL, and an oracle outside of it.
//!
//! The child reports each acknowledged transaction through a pipe, which outlives it. The parent, which killed
//! it, opens the directory and checks it. Every reported transaction is there, and each thread's transactions are there
//! without a gap. The sum of all balances is unchanged. A clustered table has the last transactions of each thread, and
//! indexes agree with tables. Every second child has that table converted, and back, before it works. Each reported new
//! table is there with its row. Then the next child continues in the same directory. A kill loses the memory of the
//! process and nothing that it wrote: [`crate::power`] tests what power cuts lose.
//!
//! A load has rows that refer to each other, with numbers of sequences ([`Load::Links`]): no row refers to nothing, and
//! no number is given twice. Another load calls chopped procedures ([`Load::Calls`]): acknowledged calls are there
//! whole, and no call is there by half.
//!
//! A child ends by SIGKILL and in no other way. In each directory at least one lives until a transaction is
//! acknowledged. A child that fails, or makes no progress, is a fault.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use seriatim::catalog::{ColumnDef, ColumnType, TableDef, Value};
use seriatim::htm::{Emulation, HtmMode};
use seriatim::{
    Builder, Database, Durability, OpenError, Rng, SchemaError, Table, Tx, available_protocols, protocols, thread,
};

use crate::{Planted, Setting, patience, said};

mod calls;
mod links;
mod migrations;
mod snapshots;

/// A balance between which transfers move.
#[derive(Table, Clone, Debug)]
#[table(name = "account", key(id), hash)]
struct Account {
    id: u32,
    balance: i64,
}

/// A transfer: one row a transaction.
#[derive(Table, Clone, Debug)]
#[table(name = "entry", key(thread, number), index(name = "by_account", columns(account)))]
struct Entry {
    thread: u32,
    /// From 1, without a gap.
    number: u64,
    account: u32,
}

/// As [`Entry`], of the last [`LINES`] transactions of each thread only, in a clustered table: runs come, split and go.
#[derive(Table, Clone, Debug)]
#[table(name = "line", key(thread, number), cluster(thread), index(name = "by_account", columns(account)))]
struct Line {
    thread: u32,
    number: u64,
    account: u32,
    /// No other of the thread follows.
    is_last: bool,
}

/// The same, declared so that the table is converted.
#[derive(Table)]
#[table(name = "line", key(thread, number), index(name = "by_account", columns(account)))]
struct LooseLine {
    thread: u32,
    number: u64,
    account: u32,
    is_last: bool,
}

/// The number of the thread that creates tables.
const CREATOR: u32 = 99;

/// The number with which numbers of a sequence are reported.
const NUMBERS: u32 = 100;

/// The number with which identities are reported.
const IDENTITIES: u32 = 101;

/// Reports with these are not of acknowledged transactions.
const BESIDE: [u32; 3] = [CREATOR, NUMBERS, IDENTITIES];

/// Most tables that it creates in a directory.
const CREATED_MAX: u64 = 400;

/// One of these tables.
fn created(number: u64) -> TableDef {
    let table = TableDef::builder(format!("created{number}")).column(ColumnDef::new("id", ColumnType::U64));
    table.key(["id"]).finish().expect("a sound declaration")
}

/// More than a run has room for in these builds.
const LINES: u64 = 40;

const ACCOUNTS: u32 = 64;
const BALANCE: i64 = 1000;
const THREADS: u32 = 3;

/// Results that a thread of a child has outstanding.
const OUTSTANDING: usize = 16;

/// Most cycles in one directory.
const CYCLES_A_DIRECTORY: u64 = 20;

/// The load of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Closures move balances, in each mode that acknowledges what is durable. Under every protocol that this machine
    /// has, and on emulated regions under those that need regions or commit in them.
    Transfers,
    /// Procedures that are cut, under one protocol that publishes them in pieces and one that does not, in every mode.
    Calls,
    /// Transfers beside a reader, where durability is by snapshot, in every mode.
    Snapshots,
    /// Transfers beside a thread that changes their tables, under every protocol that this machine has.
    Migrations,
    /// Rows that refer to each other, with numbers of sequences, under every protocol that this machine has.
    Links,
}

impl Load {
    /// Every load.
    pub const ALL: [Load; 5] = [Load::Transfers, Load::Calls, Load::Snapshots, Load::Migrations, Load::Links];

    /// By [`std::fmt::Debug`].
    fn named(name: &str) -> Option<Load> {
        Load::ALL.into_iter().find(|load| format!("{load:?}") == name)
    }

    fn protocols(self) -> Vec<String> {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self {
            Load::Transfers => {
                let here = available_protocols().iter().map(|protocol| protocol.name.to_owned());
                let emulated = Setting::each_of(protocols(), HtmMode::Emulated(Emulation::default()));
                let emulated = emulated.filter(Setting::is_of_each_change);
                here.chain(emulated.map(|setting| format!("{}{EMULATED}", setting.protocol))).collect()
            }
            Load::Calls => named(&["dbx-tc", calls::DEFERRING, "silo"]),
            Load::Snapshots => named(&["dbx-tc"]),
            Load::Migrations | Load::Links => {
                available_protocols().iter().map(|protocol| protocol.name.to_owned()).collect()
            }
        }
    }

    fn modes(self) -> &'static [Durability] {
        match self {
            Load::Transfers | Load::Migrations | Load::Links => &[Durability::Group, Durability::Sync],
            Load::Calls | Load::Snapshots => &[Durability::Group, Durability::Sync, Durability::Async],
        }
    }

    /// In how many settings children are killed: protocols and modes.
    pub fn settings(self) -> u64 {
        (self.protocols().len() * self.modes().len()) as u64
    }

    fn oracle(self, directory: &Path, protocol: &str) -> Result<Box<dyn Oracle>, String> {
        Ok(match self {
            Load::Transfers | Load::Migrations => Box::<Transfers>::default(),
            Load::Calls => {
                calls::prepare(directory, protocol)?;
                Box::<calls::Calls>::default()
            }
            Load::Snapshots => Box::<snapshots::Snapshots>::default(),
            Load::Links => Box::<links::Links>::default(),
        })
    }
}

/// The end of a protocol's name in the arguments of a child that runs it on emulated regions.
const EMULATED: &str = " on emulated regions";

/// A database of this protocol, which may be [`EMULATED`].
fn builder(protocol: &str) -> Builder {
    match protocol.strip_suffix(EMULATED) {
        Some(protocol) => Database::builder().protocol(protocol).htm(HtmMode::Emulated(Emulation::default())),
        None => Database::builder().protocol(protocol),
    }
}

/// A mistake that children make on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Canary {
    /// None.
    #[default]
    None,
    /// They report results before these are written.
    Early,
    /// Epochs end in the middle of publications in pieces, of which some are always in progress.
    Halves,
    /// A fault in the data, under [`Load::Links`].
    Planted(Planted),
}

impl Canary {
    fn named(name: &str) -> Option<Canary> {
        let planted = Planted::ALL.into_iter().map(Canary::Planted);
        [Canary::None, Canary::Early, Canary::Halves]
            .into_iter()
            .chain(planted)
            .find(|canary| format!("{canary:?}") == name)
    }
}

/// Knows what must be there.
trait Oracle {
    /// This was acknowledged to a thread of the child.
    fn told(&mut self, thread: u32, number: u64);

    /// Opens the directory that a child left, and compares it with the reports. Returns the number of
    /// transactions.
    ///
    /// # Errors
    /// A description of the violated property.
    fn verify(&mut self, directory: &Path, protocol: &str) -> Result<u64, String>;

    /// How often the recovered state was a snapshot that a reader had reported.
    fn matched(&self) -> u64 {
        0
    }
}

/// How long a child may take until a first transaction is acknowledged to it: much longer than it does where
/// nothing is wrong.
const FIRST_WAIT_MAX: Duration = Duration::from_secs(120);

/// The signal that a process cannot handle.
const SIGKILL: i32 = 9;

/// The outcomes of kills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Children killed.
    pub kills: u64,
    /// Transactions that were acknowledged to them.
    pub acknowledged: u64,
    /// Transactions that were there.
    pub recovered: u64,
    /// Recoveries of a snapshot that a reader had reported.
    pub snapshots: u64,
}

/// Kills `cycles` children of `program`, which calls [`child`] with its arguments, and returns the outcomes of
/// each setting.
///
/// # Errors
/// A description of the violated property, with the directory, which is kept.
pub fn run(
    program: &Path,
    (load, canary): (Load, Canary),
    cycles: u64,
    seed: u64,
    progress: &dyn Fn(u64),
) -> Result<BTreeMap<String, Tally>, String> {
    let mut rng = Rng::from_seed(seed);
    let mut totals: BTreeMap<String, Tally> = BTreeMap::new();
    let (mut done, protocols, modes) = (0, load.protocols(), load.modes());
    for round in 0.. {
        if done >= cycles {
            break;
        }
        let protocol = &*protocols[round % protocols.len()];
        let mode = modes[round / protocols.len() % modes.len()];
        let name = format!("seriatim-kills-{load:?}-{canary:?}-{}-{seed}-{round}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let what = format!("{load:?}, {protocol}, {mode}");
        let failed = |problem: String| {
            if canary != Canary::None {
                remove(&directory);
            }
            format!("seed {seed}, {what}, {}: {problem}", directory.display())
        };
        let mut oracle = load.oracle(&directory, protocol).map_err(failed)?;
        let left = (cycles - done).min(CYCLES_A_DIRECTORY.min(cycles.div_ceil(load.settings())));
        for cycle_left in (0..left).rev() {
            let moment = Moment::pick(&mut rng, cycle_left == 0);
            let mut command = Command::new(program);
            command.arg("child").arg(&directory).args([protocol, mode.name(), &rng.next_u64().to_string()]);
            command.args([format!("{load:?}"), format!("{canary:?}")]);
            let mut tally = cycle(command, moment, &mut *oracle).map_err(failed)?;
            tally.recovered = oracle.verify(&directory, protocol).map_err(failed)?;
            let total = totals.entry(what.clone()).or_default();
            total.kills += tally.kills;
            total.acknowledged += tally.acknowledged;
            total.recovered = total.recovered.max(tally.recovered);
            done += 1;
            progress(done);
        }
        totals.entry(what.clone()).or_default().snapshots += oracle.matched();
        remove(&directory);
    }
    Ok(totals)
}

fn remove(directory: &Path) {
    // Leftovers of a test do no harm.
    let _ = std::fs::remove_dir_all(directory);
}

/// How many transactions of each thread must be there.
#[derive(Debug, Default)]
struct Transfers {
    acknowledged: BTreeMap<u32, u64>,
    /// How many tables must have been created.
    created: u64,
}

/// When a child is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// This long after it was started: often before it has opened the database.
    Any(Duration),
    /// This long after a first transaction was acknowledged to it.
    AtWork(Duration),
}

impl Moment {
    fn pick(rng: &mut Rng, is_last: bool) -> Moment {
        let wait = Duration::from_millis(rng.range(1, 250));
        if rng.percent(30) && !is_last { Moment::Any(wait) } else { Moment::AtWork(wait) }
    }
}

/// Starts a child, kills it, and receives its reports.
fn cycle(mut command: Command, moment: Moment, oracle: &mut dyn Oracle) -> Result<Tally, String> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("no child: {error}"))?;
    let pipe = child.stdout.take().ok_or("no pipe")?;
    let (first, first_told) = sync_channel(1);
    let reader = thread::spawn("acknowledged", move || {
        let mut lines = BufReader::new(pipe);
        let (mut told, mut line) = (Vec::new(), String::new());
        // A line without an end was cut off.
        while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
            if !BESIDE.iter().any(|beside| line.starts_with(&format!("{beside} "))) {
                // Once is enough, and the receiver may be gone.
                let _ = first.try_send(());
            }
            told.push(std::mem::take(&mut line));
        }
        told
    });
    let (wait, begun) = match moment {
        Moment::Any(wait) => (wait, Ok(())),
        Moment::AtWork(wait) => (wait, first_told.recv_timeout(FIRST_WAIT_MAX)),
    };
    if begun.is_ok() {
        thread::sleep(wait);
    }
    if begun != Err(RecvTimeoutError::Disconnected) {
        child.kill().map_err(|error| format!("the child lives: {error}"))?;
    }
    // A child that has closed the pipe is about to end.
    let status = child.wait().map_err(|error| format!("the child is lost: {error}"))?;
    if status.signal() != Some(SIGKILL) {
        return Err(format!("the child ended by itself: {status}"));
    }
    begun.map_err(|_| format!("nothing was acknowledged to the child in {FIRST_WAIT_MAX:?}"))?;
    let told = reader.map_err(|error| error.to_string())?.join().map_err(|_| "the reader panicked")?;
    let mut tally = Tally { kills: 1, ..Tally::default() };
    for line in &told {
        let (thread, number) = line.trim().split_once(' ').ok_or_else(|| format!("the child said {line:?}"))?;
        let (Ok(thread), Ok(number)) = (thread.parse::<u32>(), number.parse::<u64>()) else {
            return Err(format!("the child said {line:?}"));
        };
        oracle.told(thread, number);
        tally.acknowledged += 1;
    }
    Ok(tally)
}

impl Oracle for Transfers {
    fn told(&mut self, thread: u32, number: u64) {
        let known = if thread == CREATOR { &mut self.created } else { self.acknowledged.entry(thread).or_default() };
        *known = number.max(*known);
    }

    fn verify(&mut self, directory: &Path, protocol: &str) -> Result<u64, String> {
        verify(directory, protocol, self)
    }
}

fn verify(directory: &Path, protocol: &str, oracle: &mut Transfers) -> Result<u64, String> {
    let db = match builder(protocol).path(directory).open() {
        Ok(db) => db,
        Err(OpenError::NoDatabase { .. }) if oracle.acknowledged.is_empty() => return Ok(0),
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    let (Ok(accounts), Ok(entries), Ok(lines)) = (db.table::<Account>(), db.table::<Entry>(), db.table::<Line>())
    else {
        return match oracle.acknowledged.is_empty() {
            true => Ok(0),
            false => Err("the tables are lost".to_owned()),
        };
    };
    let by_account = entries.index(Entry::BY_ACCOUNT);
    let read = db.session().snapshot(|tx| {
        let (mut sum, mut count) = (0, 0);
        for id in 0..ACCOUNTS {
            if let Some(account) = tx.get(&accounts, &id)? {
                sum += account.balance();
                count += 1;
            }
        }
        let mut numbers: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for entry in tx.scan(&entries, ..) {
            let entry = entry?;
            numbers.entry(entry.thread()).or_default().push(entry.number());
        }
        let (mut indexed, mut lines_indexed) = (0, 0);
        for account in 0..ACCOUNTS {
            for entry in tx.find_by(&by_account, &account) {
                entry?;
                indexed += 1;
            }
            lines_indexed += tx.find_by(&lines.index(Line::BY_ACCOUNT), &account).try_count()?;
        }
        let mut kept = Vec::new();
        for line in tx.scan(&lines, ..) {
            let line = line?;
            kept.push((line.thread(), line.number(), line.is_last()));
        }
        Ok((sum, count, numbers, indexed, kept, lines_indexed))
    });
    let (sum, count, numbers, indexed, kept, lines_indexed) = read.map_err(|error| error.to_string())?.into_value();
    if !(count == ACCOUNTS && sum == i64::from(ACCOUNTS) * BALANCE || count == 0 && oracle.acknowledged.is_empty()) {
        return Err(format!("{count} accounts hold {sum}"));
    }
    for (thread, numbers) in &numbers {
        if !numbers.iter().copied().eq(1..=numbers.len() as u64) {
            return Err(format!("there are gaps in what thread {thread} did"));
        }
    }
    let there = |thread| numbers.get(&thread).map_or(0, |numbers| numbers.len() as u64);
    for (&thread, &acknowledged) in &oracle.acknowledged {
        if there(thread) < acknowledged {
            let there = there(thread);
            return Err(format!("{acknowledged} transactions of thread {thread} were acknowledged, {there} are there"));
        }
    }
    let all: u64 = numbers.values().map(|numbers| numbers.len() as u64).sum();
    if indexed != all {
        return Err(format!("{all} entries, and {indexed} in their index"));
    }
    let last = numbers.iter().flat_map(|(&thread, numbers)| {
        let last = numbers.len() as u64;
        (last.saturating_sub(LINES) + 1..=last).map(move |number| (thread, number, number == last))
    });
    if !kept.iter().copied().eq(last) || lines_indexed != kept.len() {
        return Err(format!("of {all} transactions there are the lines {kept:?}, and {lines_indexed} in their index"));
    }
    db.check_structure()?;
    db.check_indexes()?;
    oracle.created = tables_created(&db, oracle.created)?;
    // The reported numbers stay.
    oracle.acknowledged = numbers.into_iter().map(|(thread, numbers)| (thread, numbers.len() as u64)).collect();
    Ok(all)
}

/// How many of the tables are there that a child created one after the other; at least `told`. All up to that number
/// have their row, and one more may have.
fn tables_created(db: &Database, told: u64) -> Result<u64, String> {
    let names = db.table_names();
    let there = names.iter().filter(|name| name.starts_with("created")).count() as u64;
    if there < told {
        return Err(format!("{told} tables were reported as created, {there} are there"));
    }
    let mut session = db.session();
    for number in 1..=there {
        let table = db.open_dyn(&created(number).name).map_err(said)?;
        let row = session.snapshot(|tx| Ok(tx.get_dyn(&table, &[Value::from(number)])?.is_some())).map_err(said)?;
        if number <= told && !row.into_value() {
            return Err(format!("the row of table {number} is not there"));
        }
    }
    Ok(told)
}

/// Creates tables, each with a row.
fn create_tables(db: &Database, tell: &dyn Fn(u32, u64), stops: &dyn Fn() -> bool) -> Result<(), String> {
    let mut session = db.session();
    let mut number = 0;
    while !stops() {
        if number == CREATED_MAX {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        number += 1;
        let definition = created(number);
        let table = match db.declare(definition.clone()) {
            Err(SchemaError::Exists(_)) => db.open_dyn(&definition.name),
            table => table,
        };
        let (table, row) = (table.map_err(said)?, [Value::from(number)]);
        let insert = |tx: &Tx| match tx.get_dyn(&table, &row)?.is_some() {
            true => Ok(()),
            false => tx.insert_dyn(&table, &row),
        };
        session.transact(insert).map_err(said)?;
        tell(CREATOR, number);
    }
    Ok(())
}

/// The code of a child until it is killed, by the arguments that [`run`] gives it.
///
/// # Errors
/// A description of the failure.
pub fn child(arguments: &[&str]) -> Result<(), String> {
    let [directory, protocol, mode, seed, load, canary] = arguments else {
        return Err("a child's arguments".to_owned());
    };
    let (load, canary) = Load::named(load).zip(Canary::named(canary)).ok_or("a child's load and canary")?;
    let (directory, mode, seed) =
        (Path::new(directory), mode.parse::<Durability>()?, seed.parse::<u64>().map_err(said)?);
    let (output, stop) = (Mutex::new(std::io::stdout()), AtomicBool::new(false));
    let tell = |thread: u32, number: u64| {
        let mut output = output.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The parent may have closed its end of the pipe: then it is over.
        let told = output.write_all(format!("{thread} {number}\n").as_bytes()).and_then(|()| output.flush());
        told.unwrap_or_else(|_| stop.store(true, Ordering::Relaxed));
    };
    let (tell, stops) = (&tell, &|| stop.load(Ordering::Relaxed));
    if load == Load::Calls {
        let db = calls::open(directory, protocol, mode, canary)?;
        return work_until_killed(&db, THREADS + 1, &stop, &|thread| {
            calls::child((&db, mode, canary), seed, thread, tell, stops)
        });
    }
    let builder = builder(protocol).workers(8).retry(patience()).path(directory).durability(mode);
    let is_read = load == Load::Snapshots;
    let builder = if is_read { snapshots::configure(builder) } else { builder };
    let db = builder.segment_bytes(256 << 10).checkpoint_bytes(None).open().map_err(said)?;
    if load != Load::Links && !is_read && seed.is_multiple_of(2) {
        let _ = db.table::<LooseLine>().or_else(|_| db.create()).map_err(said)?;
    }
    if load == Load::Links {
        links::prepare(&db, canary)?;
        let work = |thread: u32| links::work(&db, (mode, canary), thread, tell, stops);
        return work_until_killed(&db, THREADS + 1, &stop, &work);
    }
    let accounts = db.table::<Account>().or_else(|_| db.create()).map_err(said)?;
    let entries = db.table::<Entry>().or_else(|_| db.create()).map_err(said)?;
    let lines = db.table::<Line>().or_else(|_| db.create()).map_err(said)?;
    let fill = |tx: &Tx| {
        if tx.get(&accounts, &0)?.is_none() {
            (0..ACCOUNTS).try_for_each(|id| tx.insert(&accounts, &Account { id, balance: BALANCE }))?;
        }
        Ok(())
    };
    db.session().transact(fill).map_err(said)?;
    let work = |thread: u32| -> Result<(), String> {
        if thread == THREADS {
            // Beside the transfers, a thread reads, changes tables, or creates tables.
            return match load {
                Load::Snapshots => snapshots::read(&db, tell, stops),
                Load::Migrations => migrations::change(&db, seed, stops),
                _ => create_tables(&db, tell, stops),
            };
        }
        let mut rng = Rng::from_seed(seed ^ u64::from(thread));
        let mut session = db.session();
        let last = session.snapshot(|tx| {
            let mut last = 0;
            for entry in tx.scan(&entries, ..) {
                let entry = entry?;
                if entry.thread() == thread {
                    last = entry.number();
                }
            }
            Ok(last)
        });
        let mut number = last.map_err(said)?.into_value();
        let mut outstanding = std::collections::VecDeque::new();
        while !stops() {
            number += 1;
            let (from, to) = (rng.below(ACCOUNTS.into()) as u32, rng.below(ACCOUNTS.into()) as u32);
            let amount = rng.range(1, 20) as i64;
            let transfer = |tx: &Tx| {
                tx.update(&accounts, &from, |account| account.set_balance(account.balance() - amount))?;
                tx.update(&accounts, &to, |account| account.set_balance(account.balance() + amount))?;
                tx.insert(&entries, &Entry { thread, number, account: from })?;
                let _ = tx.update_if(&lines, &(thread, number - 1), |line| line.set_is_last(false))?;
                tx.insert(&lines, &Line { thread, number, account: from, is_last: true })?;
                tx.delete_if(&lines, &(thread, number.saturating_sub(LINES))).map(drop)
            };
            outstanding.push_back((number, session.submit(transfer)));
            if mode == Durability::Sync || outstanding.len() > OUTSTANDING {
                let Some((number, pending)) = outstanding.pop_front() else { continue };
                pending.wait().map_err(said)?;
                // Results that are acknowledged at once may be lost.
                if mode != Durability::Async {
                    tell(thread, number);
                }
            }
        }
        Ok(())
    };
    work_until_killed(&db, THREADS + 1, &stop, &work)
}

/// Has threads work, and takes checkpoints meanwhile.
fn work_until_killed(
    db: &Database,
    threads: u32,
    stop: &AtomicBool,
    work: &(dyn Fn(u32) -> Result<(), String> + Sync),
) -> Result<(), String> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        while !stop.load(Ordering::Relaxed) && threads.iter().all(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(15));
            if let Err(error) = db.checkpoint() {
                stop.store(true, Ordering::Relaxed);
                return Err(said(error));
            }
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
    })
}
