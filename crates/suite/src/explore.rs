//! Runs the steps of a few sessions in every interleaving and demands that each result is that of a serial order.
//!
//! Steps run on one thread through explicit transactions, so a schedule is exact. The committed programs must
//! match some serial order, in everything that they observed and in the final state. Where the protocol promises it,
//! the order agrees with real time. The recorded history goes to the independent checker as well.

use std::ops::RangeInclusive;

use seriatim::history::{self, Promises};
use seriatim::rng::is_nightly;
use seriatim::{
    Abort, Builder, Database, Handle, ReadTx, Rng, Savepoint, Scan, SnapshotTransaction, Table, Text, TransactError,
    Transaction, Tx,
};

use crate::model::{Observed, Op, State, run_alone};
use crate::{Setting, rounds};

/// A cell of an ordered table.
#[derive(Table, Clone, Debug)]
#[table(name = "cell", key(id))]
pub struct Cell {
    /// The key.
    pub id: u32,
    /// The value.
    pub value: i64,
}

/// A cell of a hash table, for specifications without scans.
#[derive(Table, Clone, Debug)]
#[table(name = "bucket_cell", key(id), hash)]
pub struct BucketCell {
    /// The key.
    pub id: u32,
    /// The value.
    pub value: i64,
}

/// A cell of a hash table whose values are unique, for specifications of writes with duplicates.
#[derive(Table, Clone, Debug)]
#[table(name = "unique_cell", key(id), hash)]
#[table(index(name = "by_value", columns(value), hash, unique))]
pub struct UniqueCell {
    /// The key.
    pub id: u32,
    /// The value, which no other cell has.
    pub value: i64,
}

/// A cell of a clustered table, some of which share a run; one has room for few.
#[derive(Table, Clone, Debug)]
#[table(name = "run_cell", key(group, id), cluster(group))]
pub struct RunCell {
    /// Cells with neighbouring keys have the same.
    pub group: u32,
    /// The key.
    pub id: u32,
    /// The value.
    pub value: i64,
    /// Takes room.
    pub room: Text<50>,
}

/// The operations of a table of cells that the explorer uses.
pub trait Cells: Table + Sized + 'static {
    /// The key of a cell.
    fn key_of(id: u32) -> Self::Key;
    /// A cell.
    fn new(id: u32, value: i64) -> Self;
    /// The value in a row.
    fn value(row: &Self::Row<'_>) -> i64;
    /// The key in a row.
    fn id(row: &Self::Row<'_>) -> u32;
    /// Replaces the value by a function of itself. Returns the old value.
    fn change(update: &mut Self::Update<'_>, change: impl FnOnce(i64) -> i64) -> i64;
    /// The cells between two keys, upwards or down. Not used for hash tables.
    fn scan<'t>(_: &'t ReadTx, _: &'t Handle<Self>, _: RangeInclusive<u32>, _down: bool) -> Scan<'t, Self> {
        panic!("table {} has no order to scan it in", Self::NAME)
    }
    /// The first cell between two keys, or the last. Not used for hash tables.
    fn end<'t>(
        _: &'t ReadTx,
        _: &Handle<Self>,
        _: RangeInclusive<u32>,
        _last: bool,
    ) -> Result<Option<Self::Row<'t>>, Abort> {
        panic!("table {} has no order", Self::NAME)
    }
    /// Deletes the cells between two keys; how many. Not used for hash tables.
    fn delete_range(_: &Tx, _: &Handle<Self>, _: RangeInclusive<u32>) -> Result<usize, Abort> {
        panic!("table {} has no order", Self::NAME)
    }
    /// Adds to the value; the sum.
    fn add(update: &mut Self::Update<'_>, amount: i64) -> i64 {
        Self::change(update, |value| value + amount) + amount
    }
}

/// Makes a table with columns `id: u32` and `value: i64` a table of cells: `ordered` if it is. Those with
/// another key tell how to make that, and a cell, from these.
#[macro_export]
macro_rules! cells {
    ($table:ident $($ordered:ident)?) => {
        $crate::cells!($table $($ordered)?, |id| id, |id, value| $table { id, value });
    };
    ($table:ident $($ordered:ident)?, |$id:ident| $key:expr, |$new_id:ident, $new_value:ident| $new:expr) => {
        impl $crate::explore::Cells for $table {
            $($crate::cells!(@$ordered);)?

            fn key_of($id: u32) -> Self::Key {
                $key
            }
            fn new($new_id: u32, $new_value: i64) -> Self {
                $new
            }
            fn value(row: &Self::Row<'_>) -> i64 {
                row.value()
            }
            fn id(row: &Self::Row<'_>) -> u32 {
                row.id()
            }
            fn change(update: &mut Self::Update<'_>, change: impl FnOnce(i64) -> i64) -> i64 {
                let before = update.value();
                update.set_value(change(before));
                before
            }
        }
    };
    (@ordered) => {
        fn scan<'t>(
            tx: &'t seriatim::ReadTx,
            table: &'t seriatim::Handle<Self>,
            range: std::ops::RangeInclusive<u32>,
            down: bool,
        ) -> seriatim::Scan<'t, Self> {
            let range = Self::key_of(*range.start())..=Self::key_of(*range.end());
            if down { tx.scan_rev(table, range) } else { tx.scan(table, range) }
        }
        fn end<'t>(
            tx: &'t seriatim::ReadTx,
            table: &seriatim::Handle<Self>,
            range: std::ops::RangeInclusive<u32>,
            last: bool,
        ) -> Result<Option<Self::Row<'t>>, seriatim::Abort> {
            let range = Self::key_of(*range.start())..=Self::key_of(*range.end());
            if last { tx.last(table, range) } else { tx.first(table, range) }
        }
        fn delete_range(
            tx: &seriatim::Tx,
            table: &seriatim::Handle<Self>,
            range: std::ops::RangeInclusive<u32>,
        ) -> Result<usize, seriatim::Abort> {
            tx.delete_range(table, Self::key_of(*range.start())..=Self::key_of(*range.end()))
        }
    };
}
cells!(Cell ordered);
cells!(BucketCell);
cells!(UniqueCell);
cells!(RunCell ordered, |id| (id / 8, id), |id, value| {
    RunCell { group: id / 8, id, value, room: Text::default() }
});

/// Whether a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// An ordinary transaction.
    ReadWrite,
    /// A read-only one, on a snapshot where the protocol has them.
    ReadOnly,
}

/// One session's program: its operations, then commit.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its declared access.
    pub access: Access,
    /// Its operations.
    pub ops: Vec<Op>,
    /// Its steps after them.
    pub ending: Ending,
}

/// The last step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It commits.
    Commit,
    /// It rolls back.
    RollBack,
    /// It gives up and reports an error: what it observed must have existed together, and nothing of it stays.
    Report,
}

impl Program {
    /// An ordinary transaction.
    pub fn new(ops: impl Into<Vec<Op>>) -> Program {
        Program { access: Access::ReadWrite, ops: ops.into(), ending: Ending::Commit }
    }

    /// A read-only transaction.
    pub fn read_only(ops: impl Into<Vec<Op>>) -> Program {
        Program { access: Access::ReadOnly, ..Program::new(ops) }
    }

    /// A transaction that rolls back.
    pub fn rolling_back(ops: impl Into<Vec<Op>>) -> Program {
        Program { ending: Ending::RollBack, ..Program::new(ops) }
    }

    /// A transaction that reports an error.
    pub fn reporting(ops: impl Into<Vec<Op>>) -> Program {
        Program { ending: Ending::Report, ..Program::new(ops) }
    }
}

/// A specification: the cells there are, and the programs that run at the same time.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Cells there before.
    pub initial: Vec<(u32, i64)>,
    /// Programs, one a session.
    pub programs: Vec<Program>,
    /// The tables it is for.
    pub tables: Tables,
}

/// Tables of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Ordered, hash and clustered tables.
    Any,
    /// Ordered and clustered ones, for specifications that scan.
    Ordered,
    /// A hash table, for specifications of what only hash tables do.
    Hash,
    /// A table with unique values: a write of a duplicate fails, and its program continues.
    Unique,
}

/// The outcomes of an exploration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Interleavings run.
    pub schedules: usize,
    /// Those in which every program that wanted to commit, or to report, did.
    pub all_committed: usize,
}

/// Runs every interleaving of the specification in these settings and returns the outcomes of each.
/// Interleavings that are [`MANY`] are divided among a protocol's settings, by the seed, unless [`rounds`] are
/// more than one. With each change, only about `EACH_CHANGE` interleavings run in each setting. Those in which one
/// program runs after the other run in each setting: of the others perhaps none lets all programs commit.
///
/// # Errors
/// The first schedule whose result is not serial, in words.
pub fn explore(
    settings: &[Setting],
    spec: &Spec,
    seed: u64,
    mut explored: impl FnMut(&Setting, Explored),
) -> Result<(), String> {
    let count = interleavings(&lengths(spec)).len();
    let (few, parts_min) = if is_nightly() { (MANY, 1) } else { (EACH_CHANGE, count / EACH_CHANGE) };
    let all = rounds() > 1 || count < few;
    for (at, setting) in settings.iter().enumerate() {
        let is_alike = |other: &&Setting| other.protocol == setting.protocol;
        let before = settings[..at].iter().filter(is_alike).count() as u64;
        let alike = settings.iter().filter(is_alike).count() as u64;
        let its_own = |number: usize, schedule: &[usize]| {
            let parts = alike.max(parts_min as u64);
            all || is_serial(schedule) || Rng::from_seed(seed ^ number as u64).below(parts) == before
        };
        explored(setting, explore_some(setting, spec, |builder| builder, its_own)?);
    }
    Ok(())
}

/// Runs every interleaving of the specification in the setting. Helpers do their work between steps. Commits within one
/// epoch may be special: their order need not agree with real time, or transactions may commit in the past. There each
/// interleaving also runs without the helpers.
///
/// # Errors
/// As [`explore`].
pub fn explore_with(setting: &Setting, spec: &Spec, options: impl Fn(Builder) -> Builder) -> Result<Explored, String> {
    explore_some(setting, spec, options, |_, _| true)
}

/// Explores those interleavings that are wanted, by their numbers and their steps.
fn explore_some(
    setting: &Setting,
    spec: &Spec,
    options: impl Fn(Builder) -> Builder,
    wanted: impl Fn(usize, &[usize]) -> bool,
) -> Result<Explored, String> {
    let epochs_apart = setting.strict && !setting.reads_the_past();
    let ways: &[Helpers] = if epochs_apart { &[Helpers::Between] } else { &[Helpers::Between, Helpers::Idle] };
    let numbered = interleavings(&lengths(spec)).into_iter().enumerate();
    let schedules: Vec<_> =
        numbered.filter_map(|(number, schedule)| wanted(number, &schedule).then_some(schedule)).collect();
    let mut committed = vec![true; schedules.len()];
    for &helpers in ways {
        let run = run_all(setting, spec, &schedules, helpers, &options)?;
        committed.iter_mut().zip(run).for_each(|(all, run)| *all &= run);
    }
    Ok(Explored { schedules: schedules.len(), all_committed: committed.into_iter().filter(|&all| all).count() })
}

/// Runs one interleaving within one epoch; whether all programs committed that wanted to.
///
/// # Errors
/// As [`explore`].
pub fn follow(setting: &Setting, spec: &Spec, schedule: &[usize]) -> Result<bool, String> {
    Ok(run_all(setting, spec, &[schedule.to_vec()], Helpers::Idle, |builder| builder)? == [true])
}

/// The work of helpers while a schedule runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Helpers {
    /// Their work between any two steps: deleted records leave, memory is reused, and each step is in an
    /// epoch of its own.
    Between,
    /// Nothing.
    Idle,
}

/// So many interleavings take their time.
pub const MANY: usize = 500;
/// Of more interleavings than these, about as many run in each setting with each change.
const EACH_CHANGE: usize = 24;
/// Schedules that one database serves, each with cells of its own: to open one takes longer than to run one.
const SERVED: usize = 32;
/// How far the cells of one schedule are from those of the next. Cells that share a run still do.
const APART: u32 = 32;

/// Runs schedules in every kind of table; of each, whether all programs committed that wanted to, in all of them.
fn run_all(
    setting: &Setting,
    spec: &Spec,
    schedules: &[Vec<usize>],
    helpers: Helpers,
    options: impl Fn(Builder) -> Builder,
) -> Result<Vec<bool>, String> {
    let kinds: &[Run] = match spec.tables {
        Tables::Any => &[run::<Cell>, run::<BucketCell>, run::<RunCell>],
        Tables::Ordered => &[run::<Cell>, run::<RunCell>],
        Tables::Hash => &[run::<BucketCell>],
        Tables::Unique => &[run::<UniqueCell>],
    };
    // The values of one schedule would be duplicates of another's, and all cells are those of one schedule.
    let uses_all = spec.programs.iter().flat_map(|program| &program.ops).any(|op| matches!(op, Op::All | Op::Count));
    let served = if spec.tables == Tables::Unique || uses_all { 1 } else { SERVED };
    let mut committed = vec![true; schedules.len()];
    for run in kinds {
        for (schedules, committed) in schedules.chunks(served).zip(committed.chunks_mut(served)) {
            run(options(setting.builder()), spec, schedules, helpers, setting.strict, committed).map_err(
                |(at, fault)| format!("{setting}, schedule {:?}, helpers {helpers:?}: {fault}", schedules[at]),
            )?;
        }
    }
    Ok(committed)
}

/// Runs schedules in a database with one kind of table; notes where not all programs committed that wanted
/// to. Errors are those of the schedule at this place.
type Run = fn(Builder, &Spec, &[Vec<usize>], Helpers, bool, &mut [bool]) -> Result<(), (usize, String)>;

/// The steps of each program: its operations, and its end.
fn lengths(spec: &Spec) -> Vec<usize> {
    spec.programs.iter().map(|program| program.ops.len() + 1).collect()
}

/// Whether one sequence moves after the other.
fn is_serial(schedule: &[usize]) -> bool {
    let turns: Vec<usize> = schedule.chunk_by(|a, b| a == b).map(|steps| steps[0]).collect();
    turns.iter().enumerate().all(|(at, who)| !turns[..at].contains(who))
}

/// Every way to merge sequences of these lengths: which sequence moves at each step.
fn interleavings(lengths: &[usize]) -> Vec<Vec<usize>> {
    fn go(left: &mut [usize], path: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left.iter().all(|&n| n == 0) {
            return all.push(path.clone());
        }
        for i in 0..left.len() {
            if left[i] > 0 {
                left[i] -= 1;
                path.push(i);
                go(left, path, all);
                path.pop();
                left[i] += 1;
            }
        }
    }
    let mut all = Vec::new();
    go(&mut lengths.to_vec(), &mut Vec::new(), &mut all);
    all
}

enum Open<'s> {
    ReadWrite(Transaction<'s>),
    ReadOnly(SnapshotTransaction<'s>),
}

impl Open<'_> {
    fn reading(&self) -> &ReadTx {
        match self {
            Open::ReadWrite(tx) => tx,
            Open::ReadOnly(tx) => tx,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Running,
    /// Committed, or reported an error.
    Answered {
        began: usize,
        ended: usize,
    },
    Aborted,
}

fn run<C: Cells>(
    builder: Builder,
    spec: &Spec,
    schedules: &[Vec<usize>],
    helpers: Helpers,
    strict: bool,
    committed: &mut [bool],
) -> Result<(), (usize, String)> {
    let db = builder.step_helpers(true).record_history(true).workers(spec.programs.len() + 1).open();
    let db = db.map_err(|error| (0, error.to_string()))?;
    let handle = db.create::<C>().map_err(|error| (0, error.to_string()))?;
    for (at, schedule) in schedules.iter().enumerate() {
        if at > 0 {
            // The previous schedule is over, and no part of this one's history.
            (0..2).for_each(|_| db.step());
            db.take_history();
        }
        let cells = OwnCells { handle: &handle, first: at as u32 * APART };
        committed[at] &= run_one(&db, cells, spec, schedule, helpers, strict).map_err(|fault| (at, fault))?;
    }
    Ok(())
}

/// The cells of one schedule: a part of a table, in which they are numbered from zero.
struct OwnCells<'h, C: Cells> {
    handle: &'h Handle<C>,
    first: u32,
}

impl<C: Cells> Clone for OwnCells<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Cells> Copy for OwnCells<'_, C> {}

impl<C: Cells> OwnCells<'_, C> {
    /// # Panics
    /// If the number is of another schedule's cell.
    fn at(&self, id: u32) -> u32 {
        assert!(id < APART, "cells of a specification are numbered below {APART}, not {id}");
        self.first + id
    }

    fn key(&self, id: u32) -> C::Key {
        C::key_of(self.at(id))
    }

    fn cell(&self, id: u32, value: i64) -> C {
        C::new(self.at(id), value)
    }
}

/// Runs one schedule; whether all programs committed that wanted to.
fn run_one<C: Cells>(
    db: &Database,
    cells: OwnCells<'_, C>,
    spec: &Spec,
    schedule: &[usize],
    helpers: Helpers,
    strict: bool,
) -> Result<bool, String> {
    let fail = |error: &dyn std::fmt::Display| error.to_string();
    let mut loader = db.session();
    let load = |tx: &Tx| spec.initial.iter().try_for_each(|&(id, v)| tx.insert(cells.handle, &cells.cell(id, v)));
    loader.transact(load).map_err(|error| fail(&error))?;
    let mut sessions: Vec<_> = spec.programs.iter().map(|_| db.session()).collect();
    let mut open: Vec<Option<Open<'_>>> = Vec::new();
    for _ in &sessions {
        open.push(None);
    }
    let mut fates = vec![Fate::Running; spec.programs.len()];
    let mut began = vec![0; spec.programs.len()];
    let mut at = vec![0; spec.programs.len()];
    let mut observed: Vec<Vec<Observed>> = vec![Vec::new(); spec.programs.len()];
    let mut savepoints: Vec<Vec<Savepoint>> = vec![Vec::new(); spec.programs.len()];
    let mut slots: Vec<_> = sessions.iter_mut().map(Some).collect();
    for (moment, &who) in schedule.iter().enumerate() {
        let program = &spec.programs[who];
        if fates[who] == Fate::Aborted {
            continue;
        }
        if let Some(session) = slots[who].take() {
            began[who] = moment;
            open[who] = Some(match program.access {
                Access::ReadWrite => Open::ReadWrite(session.begin().map_err(|error| fail(&error))?),
                Access::ReadOnly => Open::ReadOnly(session.begin_snapshot().map_err(|error| fail(&error))?),
            });
        }
        let step = at[who];
        at[who] += 1;
        if step < program.ops.len() {
            let Some(transaction) = &open[who] else { continue };
            let op = program.ops[step];
            if let Err(abort) = apply(transaction, cells, op, &mut savepoints[who], &mut observed[who]) {
                if !abort.is_retryable() {
                    return Err(format!("program {who} step {step}: {abort}"));
                }
                open[who] = None;
                fates[who] = Fate::Aborted;
            }
        } else if let Some(transaction) = open[who].take() {
            fates[who] = end(transaction, cells, program.ending, began[who], moment)?;
        }
        if helpers == Helpers::Between {
            db.step();
        }
    }
    drop(open);
    check_outcome(db, cells, spec, &fates, &observed, strict)?;
    let is_done = |(program, fate): (&Program, &Fate)| program.ending == Ending::RollBack || *fate != Fate::Aborted;
    Ok(spec.programs.iter().zip(&fates).all(is_done))
}

fn end<C: Cells>(
    transaction: Open<'_>,
    cells: OwnCells<'_, C>,
    ending: Ending,
    began: usize,
    ended: usize,
) -> Result<Fate, String> {
    let answered = Fate::Answered { began, ended };
    let result = match (ending, transaction) {
        (Ending::RollBack, _) => return Ok(Fate::Aborted),
        (Ending::Report, open) => {
            // Which row is missing does not matter: it is a conflict if what was read before did not exist together.
            let abort = open.reading().missing(cells.handle, &cells.key(APART - 1));
            return Ok(if abort.is_retryable() { Fate::Aborted } else { answered });
        }
        (Ending::Commit, Open::ReadWrite(tx)) => tx.commit(),
        (Ending::Commit, Open::ReadOnly(tx)) => tx.finish(),
    };
    match result {
        Ok(_) => Ok(answered),
        Err(TransactError::Conflict { .. }) => Ok(Fate::Aborted),
        Err(error) => Err(error.to_string()),
    }
}

fn apply<C: Cells>(
    open: &Open<'_>,
    cells: OwnCells<'_, C>,
    op: Op,
    savepoints: &mut Vec<Savepoint>,
    observed: &mut Vec<Observed>,
) -> Result<(), Abort> {
    let cell = |row: C::Row<'_>| (C::id(&row) - cells.first, C::value(&row));
    let collect = |scan: seriatim::Scan<'_, C>| scan.map(|row| row.map(cell)).collect::<Result<Vec<_>, _>>();
    let reading = open.reading();
    let range = |low: u32, high: u32| cells.at(low)..=cells.at(high);
    let result = match op {
        Op::Get(key) => Observed::Cell(reading.get(cells.handle, &cells.key(key))?.map(|row| C::value(&row))),
        Op::Scan(low, high) => Observed::Cells(collect(C::scan(reading, cells.handle, range(low, high), false))?),
        Op::ScanDown(low, high) => Observed::Cells(collect(C::scan(reading, cells.handle, range(low, high), true))?),
        Op::All => {
            let mut all = collect(reading.scan_all(cells.handle))?;
            all.sort_unstable();
            Observed::Cells(all)
        }
        Op::Count => Observed::Count(reading.count_all(cells.handle)?),
        Op::Exists(key) => Observed::Done(reading.exists(cells.handle, &cells.key(key))?),
        Op::GetMany(keys) => {
            let rows = reading.get_many(cells.handle, keys.iter().map(|&key| cells.key(key)))?;
            Observed::Many(rows.iter().map(|row| row.as_ref().map(|row| C::value(row))).collect())
        }
        Op::First(low, high) => {
            Observed::Cells(C::end(reading, cells.handle, range(low, high), false)?.map(cell).into_iter().collect())
        }
        Op::Last(low, high) => {
            Observed::Cells(C::end(reading, cells.handle, range(low, high), true)?.map(cell).into_iter().collect())
        }
        Op::If(condition, &then) => {
            return if condition(observed) { apply(open, cells, then, savepoints, observed) } else { Ok(()) };
        }
        op => {
            let Open::ReadWrite(tx) = open else { panic!("a read-only program does not write") };
            write(tx, cells, op, savepoints, observed)?
        }
    };
    observed.push(result);
    Ok(())
}

fn write<C: Cells>(
    tx: &Transaction<'_>,
    cells: OwnCells<'_, C>,
    op: Op,
    savepoints: &mut Vec<Savepoint>,
    observed: &[Observed],
) -> Result<Observed, Abort> {
    // An update has read the old value, also if it then fails as a duplicate.
    let mut saw = None;
    let done = match op {
        Op::Put(key, value) => tx.put(cells.handle, &cells.cell(key, value(observed))).map(|()| Observed::Done(true)),
        Op::Add(key, amount) => {
            let add = |cell: &mut C::Update<'_>| saw = Some(C::add(cell, amount));
            tx.update_if(cells.handle, &cells.key(key), add).map(|_| Observed::Cell(saw))
        }
        Op::Change(key, value) => {
            let change = |cell: &mut C::Update<'_>| saw = Some(C::change(cell, |before| value(observed, before)));
            tx.update_if(cells.handle, &cells.key(key), change).map(|_| Observed::Cell(saw))
        }
        Op::Insert(key, value) => tx.insert(cells.handle, &cells.cell(key, value)).map(|()| Observed::Done(true)),
        Op::Delete(key) => tx.delete_if(cells.handle, &cells.key(key)).map(|deleted| Observed::Done(deleted.is_ok())),
        Op::Savepoint => tx.savepoint().map(|savepoint| {
            savepoints.push(savepoint);
            Observed::Done(true)
        }),
        Op::RollbackTo(number) => tx.rollback_to(savepoints[number]).map(|()| {
            savepoints.truncate(number + 1);
            Observed::Done(true)
        }),
        Op::Upsert(key, amount) => {
            let add = |cell: &mut C::Update<'_>| C::add(cell, amount);
            tx.upsert(cells.handle, &cells.cell(key, amount), add).map(Observed::Cell)
        }
        Op::DeleteRange(low, high) => {
            C::delete_range(tx, cells.handle, cells.at(low)..=cells.at(high)).map(Observed::Count)
        }
        _ => panic!("not a write"),
    };
    done.or_else(|abort| match tx.explain(&abort) {
        // A duplicate by primary key, or in the index.
        TransactError::Duplicate { table, constraint, .. }
            if *constraint == *seriatim::catalog::TableDef::key_constraint(&table) =>
        {
            Ok(Observed::Done(false))
        }
        TransactError::Duplicate { .. } => Ok(Observed::Duplicate(saw)),
        _ => Err(abort),
    })
}

/// Demands a serial order of the programs that committed, and of those that reported, that explains everything.
fn check_outcome<C: Cells>(
    db: &Database,
    cells: OwnCells<'_, C>,
    spec: &Spec,
    fates: &[Fate],
    observed: &[Vec<Observed>],
    strict: bool,
) -> Result<(), String> {
    let history = db.take_history().ok_or("the database records")?;
    history::check(&history, &if strict { Promises::STRICT } else { Promises::SERIALIZABLE })
        .map_err(|violation| violation.to_string())?;
    let mut state = State::new();
    let read = db.session().transact(|tx| {
        state.clear();
        for id in (0..16).chain(spec.initial.iter().map(|&(id, _)| id)) {
            if let Some(row) = tx.get(cells.handle, &cells.key(id))? {
                state.insert(id, C::value(&row));
            }
        }
        Ok(())
    });
    read.map_err(|error| error.to_string())?;
    let answered: Vec<usize> = (0..fates.len()).filter(|&i| matches!(fates[i], Fate::Answered { .. })).collect();
    let initial: State = spec.initial.iter().copied().collect();
    let unique = spec.tables == Tables::Unique;
    let explains = |order: &[usize]| {
        let mut replayed = initial.clone();
        let explained = |&i: &usize| {
            let Program { ops, ending, .. } = &spec.programs[i];
            let mut after = replayed.clone();
            let is_so = run_alone(ops, &mut after, unique) == observed[i];
            if *ending == Ending::Commit {
                replayed = after;
            }
            is_so
        };
        order.iter().all(explained) && replayed == state
    };
    // Snapshots among them: each is the first of its session, or helpers have made it since the step before.
    let in_time = |order: &[usize]| {
        !strict
            || order.iter().enumerate().all(|(place, &later)| {
                order[place + 1..].iter().all(|&after| match (fates[later], fates[after]) {
                    (Fate::Answered { began, .. }, Fate::Answered { ended, .. }) => began < ended,
                    _ => true,
                })
            })
    };
    db.check_structure()?;
    if permutations(&answered).iter().any(|order| in_time(order) && explains(order)) {
        return Ok(());
    }
    Err(format!("no serial order explains it: fates {fates:?}, observed {observed:?}, final state {state:?}"))
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, &first) in items.iter().enumerate() {
        let rest: Vec<usize> = items.iter().enumerate().filter(|&(j, _)| j != i).map(|(_, &item)| item).collect();
        for mut tail in permutations(&rest) {
            tail.insert(0, first);
            all.push(tail);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interleaving_once() {
        let all = interleavings(&[2, 2]);
        assert_eq!(all.len(), 6);
        assert!(all.iter().enumerate().all(|(i, a)| all[i + 1..].iter().all(|b| a != b)));
        assert_eq!(permutations(&[1, 2, 3]).len(), 6);
    }

    #[test]
    fn many_interleavings_are_shared_out_among_the_settings_of_a_protocol() {
        let known = seriatim::protocols().iter().find(|known| known.name == "naive").expect("a known protocol");
        let settings = [Setting::without_regions(known), Setting::without_regions(known)];
        let explored = |ops: &[Op]| {
            let programs = vec![Program::new(ops), Program::new(ops), Program::new([Op::Get(2)])];
            let spec = Spec { initial: vec![(1, 1)], programs, tables: Tables::Ordered };
            let mut schedules = Vec::new();
            explore(&settings, &spec, 7, |_, explored| schedules.push(explored.schedules)).expect("it is sound");
            schedules
        };
        // The six serial ones of many are run in both settings.
        let (few, all, far) = if is_nightly() { (90, 560 + 6, 1) } else { (12, 560 / (560 / EACH_CHANGE) * 2 + 6, 40) };
        assert!(explored(&[Op::Add(1, 1)]).iter().all(|&run| run >= few), "in each, if they are few");
        let many = explored(&[Op::Get(1), Op::Add(1, 1)]);
        let is_near = (many[0] + many[1]).abs_diff(all) < far;
        assert!(rounds() > 1 || is_near && many[0].abs_diff(many[1]) < 100, "{many:?}");
    }
}
