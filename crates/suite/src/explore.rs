//! Runs the steps of a few sessions in every interleaving and demands that each result is that of a serial order.
//!
//! Steps run on one thread through explicit transactions, so a schedule is exact. What committed must match some serial order
//! of the committed programs, in everything they observed and in the final state; where the protocol promises it, an order that
//! agrees with real time. The recorded history goes to the independent checker as well.

use seriatim::history::{self, Promises};
use seriatim::{Abort, Builder, Handle, ReadTx, SnapshotTransaction, Table, TransactError, Transaction, Tx};

use crate::Setting;
use crate::model::{Observed, Op, State, run_alone};

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

/// What the explorer needs of a table of cells.
pub trait Cells: for<'t> Table<Key = u32> + Sized + 'static {
    /// A cell.
    fn new(id: u32, value: i64) -> Self;
    /// The value in a row.
    fn value(row: &Self::Row<'_>) -> i64;
    /// The key in a row.
    fn id(row: &Self::Row<'_>) -> u32;
    /// Adds to the value.
    fn add(update: &mut Self::Update<'_>, amount: i64) -> i64;
}

/// Makes a table with columns `id: u32` and `value: i64` a table of cells.
#[macro_export]
macro_rules! cells {
    ($table:ident) => {
        impl $crate::explore::Cells for $table {
            fn new(id: u32, value: i64) -> Self {
                $table { id, value }
            }
            fn value(row: &Self::Row<'_>) -> i64 {
                row.value()
            }
            fn id(row: &Self::Row<'_>) -> u32 {
                row.id()
            }
            fn add(update: &mut Self::Update<'_>, amount: i64) -> i64 {
                update.set_value(update.value() + amount);
                update.value()
            }
        }
    };
}
cells!(Cell);
cells!(BucketCell);

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
    /// What it may do.
    pub access: Access,
    /// Its operations.
    pub ops: Vec<Op>,
    /// Whether it rolls back at its end instead of committing.
    pub rolls_back: bool,
}

impl Program {
    /// An ordinary transaction.
    pub fn new(ops: impl Into<Vec<Op>>) -> Program {
        Program { access: Access::ReadWrite, ops: ops.into(), rolls_back: false }
    }

    /// A read-only transaction.
    pub fn read_only(ops: impl Into<Vec<Op>>) -> Program {
        Program { access: Access::ReadOnly, ..Program::new(ops) }
    }

    /// A transaction that rolls back.
    pub fn rolling_back(ops: impl Into<Vec<Op>>) -> Program {
        Program { rolls_back: true, ..Program::new(ops) }
    }
}

/// A specification: the cells there are, and the programs that run at the same time.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Cells there before.
    pub initial: Vec<(u32, i64)>,
    /// Programs, one a session.
    pub programs: Vec<Program>,
    /// Whether it scans, and so needs an ordered table.
    pub ordered: bool,
}

/// What exploring came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Interleavings run.
    pub schedules: usize,
    /// Those in which every program that wanted to commit did.
    pub all_committed: usize,
}

/// Runs every interleaving of the specification in the setting.
///
/// # Errors
/// The first schedule whose result is not serial, in words.
pub fn explore(setting: &Setting, spec: &Spec) -> Result<Explored, String> {
    explore_with(setting, spec, |builder| builder)
}

/// As [`explore`], with further options.
///
/// # Errors
/// As [`explore`].
pub fn explore_with(setting: &Setting, spec: &Spec, options: impl Fn(Builder) -> Builder) -> Result<Explored, String> {
    let lengths: Vec<usize> = spec.programs.iter().map(|program| program.ops.len() + 1).collect();
    let mut explored = Explored::default();
    for schedule in interleavings(&lengths) {
        let builder = options(setting.builder());
        let run = run::<Cell>(builder.clone(), spec, &schedule, setting.strict);
        let mut committed = run.map_err(|fault| format!("{setting}, ordered, schedule {schedule:?}: {fault}"))?;
        if !spec.ordered {
            let run = run_hash(builder, spec, &schedule, setting.strict);
            committed &= run.map_err(|fault| format!("{setting}, hash, schedule {schedule:?}: {fault}"))?;
        }
        explored.schedules += 1;
        explored.all_committed += usize::from(committed);
    }
    Ok(explored)
}

fn run_hash(builder: Builder, spec: &Spec, schedule: &[usize], strict: bool) -> Result<bool, String> {
    run::<BucketCell>(builder, spec, schedule, strict)
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
    Committed { began: usize, ended: usize },
    Aborted,
}

fn run<C: Cells>(builder: Builder, spec: &Spec, schedule: &[usize], strict: bool) -> Result<bool, String> {
    let fail = |error: &dyn std::fmt::Display| error.to_string();
    let db = builder.step_helpers(true).record_history(true).workers(spec.programs.len() + 1).open();
    let db = db.map_err(|error| fail(&error))?;
    let table = db.create::<C>().map_err(|error| fail(&error))?;
    let mut loader = db.session();
    let loaded = loader.transact(|tx| spec.initial.iter().try_for_each(|&(id, v)| tx.insert(&table, &C::new(id, v))));
    loaded.map_err(|error| fail(&error))?;
    let mut sessions: Vec<_> = spec.programs.iter().map(|_| db.session()).collect();
    let mut open: Vec<Option<Open<'_>>> = Vec::new();
    for _ in &sessions {
        open.push(None);
    }
    let mut fates = vec![Fate::Running; spec.programs.len()];
    let mut began = vec![0; spec.programs.len()];
    let mut at = vec![0; spec.programs.len()];
    let mut observed: Vec<Vec<Observed>> = vec![Vec::new(); spec.programs.len()];
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
            if let Err(abort) = apply::<C>(transaction, &table, program.ops[step], &mut observed[who]) {
                if !abort.is_retryable() {
                    return Err(format!("program {who} step {step}: {abort}"));
                }
                open[who] = None;
                fates[who] = Fate::Aborted;
            }
        } else if let Some(transaction) = open[who].take() {
            fates[who] = end(transaction, program.rolls_back, began[who], moment)?;
        }
        // Between steps helpers do their work: deleted records leave, memory is reused.
        db.step();
    }
    drop(open);
    judge::<C>(&db, &table, spec, &fates, &observed, strict)?;
    Ok(spec.programs.iter().zip(&fates).all(|(program, fate)| program.rolls_back || *fate != Fate::Aborted))
}

fn end(transaction: Open<'_>, rolls_back: bool, began: usize, ended: usize) -> Result<Fate, String> {
    if rolls_back {
        drop(transaction);
        return Ok(Fate::Aborted);
    }
    let result = match transaction {
        Open::ReadWrite(tx) => tx.commit(),
        Open::ReadOnly(tx) => tx.finish(),
    };
    match result {
        Ok(_) => Ok(Fate::Committed { began, ended }),
        Err(TransactError::Conflict { .. }) => Ok(Fate::Aborted),
        Err(error) => Err(error.to_string()),
    }
}

fn apply<C: Cells>(open: &Open<'_>, table: &Handle<C>, op: Op, observed: &mut Vec<Observed>) -> Result<(), Abort> {
    let collect = |scan: seriatim::Scan<'_, C>| {
        scan.map(|row| row.map(|row| (C::id(&row), C::value(&row)))).collect::<Result<Vec<_>, _>>()
    };
    let reading = open.reading();
    let result = match op {
        Op::Get(key) => Observed::Cell(reading.get(table, &key)?.map(|row| C::value(&row))),
        Op::Scan(low, high) => Observed::Cells(collect(reading.scan(table, low..=high))?),
        Op::ScanDown(low, high) => Observed::Cells(collect(reading.scan_rev(table, low..=high))?),
        Op::If(condition, &then) => {
            return if condition(observed) { apply::<C>(open, table, then, observed) } else { Ok(()) };
        }
        op => {
            let Open::ReadWrite(tx) = open else { panic!("a read-only program does not write") };
            write::<C>(tx, table, op, observed)?
        }
    };
    observed.push(result);
    Ok(())
}

fn write<C: Cells>(tx: &Tx, table: &Handle<C>, op: Op, observed: &[Observed]) -> Result<Observed, Abort> {
    Ok(match op {
        Op::Put(key, value) => {
            tx.put(table, &C::new(key, value(observed)))?;
            Observed::Done(true)
        }
        Op::Add(key, amount) => Observed::Cell(tx.update(table, &key, |cell| C::add(cell, amount))?),
        Op::Insert(key, value) => Observed::Done(tx.try_insert(table, &C::new(key, value))?),
        Op::Delete(key) => Observed::Done(tx.delete(table, &key)?),
        Op::Get(_) | Op::Scan(..) | Op::ScanDown(..) | Op::If(..) => panic!("not a write"),
    })
}

/// Demands a serial order of the committed programs that explains everything.
fn judge<C: Cells>(
    db: &seriatim::Database,
    table: &Handle<C>,
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
        for &(id, _) in &spec.initial {
            if let Some(row) = tx.get(table, &id)? {
                state.insert(id, C::value(&row));
            }
        }
        for id in 0..16 {
            if let Some(row) = tx.get(table, &id)? {
                state.insert(id, C::value(&row));
            }
        }
        Ok(())
    });
    read.map_err(|error| error.to_string())?;
    let committed: Vec<usize> = (0..fates.len()).filter(|&i| matches!(fates[i], Fate::Committed { .. })).collect();
    let initial: State = spec.initial.iter().copied().collect();
    let explains = |order: &[usize]| {
        let mut replayed = initial.clone();
        order.iter().all(|&i| run_alone(&spec.programs[i].ops, &mut replayed) == observed[i]) && replayed == state
    };
    let in_time = |order: &[usize]| {
        !strict
            || order.iter().enumerate().all(|(place, &later)| {
                order[place + 1..].iter().all(|&after| match (fates[later], fates[after]) {
                    (Fate::Committed { began, .. }, Fate::Committed { ended, .. }) => began < ended,
                    _ => true,
                })
            })
    };
    if permutations(&committed).iter().any(|order| in_time(order) && explains(order)) {
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
}
