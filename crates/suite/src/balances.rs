//! Accounts and sums of their branches: every reader finds balances that agree, at every time.
//!
//! Each account is of a branch, and a branch keeps the sum of its accounts' balances. Procedures deposit and
//! transfer. They answer with the balances of accounts, but only add to sums. So a protocol that publishes piece by
//! piece may add to the sums later. Snapshots, closures and explicit transactions read meanwhile, and
//! write. If the database is on a disk, its durable state is recovered at some moments. In every state each branch's
//! sum is that of its accounts, and so is the total that its reserve has received. Another procedure draws on the
//! reserve, and is the only one that reads it. So a protocol may let it wait for the additions of the others. Part of
//! the sum is in a column of few bits, near an end of its range. An addition that was published late and did not fit
//! would end the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use seriatim::{
    Abort, Builder, Database, Durability, Handle, ReadTx, Rng, Session, Table, TransactError, TransactionOptions, Tx,
    thread,
};
use seriatim::{procedure, procedures};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::thread::interrupt;
use seriatim_history::{Anomaly, History, Promises, Saw, Transaction, check};

use crate::Setting;

/// An account belongs to the branch with its number modulo [`BRANCHES`].
#[derive(Table, Clone, Debug)]
#[table(name = "account", key(id), hash)]
struct Account {
    id: u32,
    balance: i64,
}

/// Keeps the sum of its accounts' balances.
#[derive(Table, Clone, Debug)]
#[table(name = "branch", key(id), hash)]
struct Branch {
    id: u32,
    #[column(immutable)]
    opened: u32,
    /// Only transactions outside procedures change it.
    fee: i64,
    total: i64,
    visits: u32,
    /// The rest of the sum.
    tight: i16,
}

/// The reserve of a branch. It receives the sum of the balances of the accounts, and amounts are drawn from it.
#[derive(Table, Clone, Debug)]
#[table(name = "reserve", key(id), hash)]
struct Reserve {
    id: u32,
    amount: i64,
    /// As [`Branch::tight`], of amounts that were put in and may not fit.
    tight: i16,
    drawn: i64,
}

const ACCOUNTS: u32 = 6;
const BRANCHES: u32 = 2;

/// [`Branch::tight`] in the beginning: a quarter of the range below the end, where there just is room for all.
const TIGHT: i16 = i16::MAX / 2;
/// The number of workers. Each may add this part of a quarter of the range at a time.
const WORKERS: usize = 8;

/// The accounts of a branch.
fn accounts_of(branch: u32) -> impl Iterator<Item = u32> {
    (branch..ACCOUNTS).step_by(BRANCHES as usize)
}

/// Adds to an account. Returns its balance after the branch's fee.
#[procedure]
fn deposit(tx: &Tx, account: u32, branch: u32, amount: i64) -> Result<i64, Abort> {
    let balance = tx.update::<Account>(account, |account| {
        account.balance += amount;
        account.balance
    })?;
    let fee = tx.update::<Branch>(branch, |branch| {
        branch.total += amount;
        branch.visits += 1;
        branch.fee
    })?;
    tx.update::<Reserve>(branch, |reserve| reserve.amount += amount)?;
    Ok(balance - fee)
}

/// As [`deposit`], of an amount that may not fit.
#[procedure]
fn squeeze(tx: &Tx, account: u32, branch: u32, amount: i16) -> Result<i64, Abort> {
    let balance = tx.update::<Account>(account, |account| {
        account.balance += i64::from(amount);
        account.balance
    })?;
    tx.update::<Branch>(branch, |branch| branch.tight += amount)?;
    tx.update::<Reserve>(branch, |reserve| reserve.tight += amount)?;
    Ok(balance)
}

/// Draws on the reserve of a branch, and moves the amount that does not fit well. Returns the rest.
#[procedure]
fn draw(tx: &Tx, branch: u32, amount: i64) -> Result<i64, Abort> {
    let left = tx.update::<Reserve>(branch, |reserve| {
        reserve.amount -= amount;
        reserve.drawn += amount + i64::from(reserve.tight);
        reserve.tight = 0i16;
        reserve.amount
    })?;
    Ok(left)
}

/// Moves an amount from one account to another, perhaps of the same branch. Returns the balance of the first.
#[procedure]
fn transfer(tx: &Tx, from: u32, from_branch: u32, to: u32, to_branch: u32, amount: i64) -> Result<i64, Abort> {
    let balance = tx.update::<Account>(from, |account| {
        account.balance -= amount;
        account.balance
    })?;
    tx.update::<Account>(to, |account| account.balance += amount)?;
    tx.update::<Branch>(from_branch, |branch| branch.total -= amount)?;
    tx.update::<Branch>(to_branch, |branch| branch.total += amount)?;
    tx.update::<Reserve>(from_branch, |reserve| reserve.amount -= amount)?;
    tx.update::<Reserve>(to_branch, |reserve| reserve.amount += amount)?;
    Ok(balance)
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads that call procedures.
    pub callers: u32,
    /// The calls of each of them.
    pub calls: u32,
    /// Whether the auditors also write.
    pub writes: bool,
    /// Whether callers add amounts that may not fit.
    pub squeezes: bool,
    /// The judge of the run.
    pub judge: Judge,
}

/// The judge of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The auditors: they compare sums with balances.
    Auditors,
    /// The serializability checker, of what all of them read, wrote and added; it knows nothing of sums.
    Checker,
}

struct Tables {
    accounts: Handle<Account>,
    branches: Handle<Branch>,
    reserves: Handle<Reserve>,
}

/// The balances of a branch: its sum, and that of its accounts. Or the amount of its reserve, if that differs.
fn look(tx: &ReadTx, tables: &Tables, branch: u32) -> Result<(i64, i64), Abort> {
    let mut balances = 0;
    for id in accounts_of(branch) {
        balances += tx.get(&tables.accounts, &id)?.map_or(0, |account| account.balance());
    }
    // Other threads run between the two, on few processors too.
    thread::yield_now();
    let sum = tx.get(&tables.branches, &branch)?.map_or(0, |branch| branch.total() + i64::from(branch.tight()));
    let reserve = tx.get(&tables.reserves, &branch)?;
    let got = reserve.map_or(0, |reserve| reserve.amount() + i64::from(reserve.tight()) + reserve.drawn());
    Ok((if sum == balances { got } else { sum }, balances))
}

fn balanced(who: &str, branch: u32, (sum, balances): (i64, i64)) -> Result<(), String> {
    match sum == balances {
        true => Ok(()),
        false => Err(format!("{who}: branch {branch} says {sum}, its accounts {balances}")),
    }
}

/// Transactions of a session that calls no procedures.
struct Auditor<'a> {
    session: Session,
    tables: &'a Tables,
    rng: Rng,
    writes: bool,
    judge: Judge,
}

impl Auditor<'_> {
    fn audit(&mut self) -> Result<(), String> {
        let Auditor { session, tables, rng, writes, judge } = self;
        let branch = rng.below(u64::from(BRANCHES)) as u32;
        let value = |committed: seriatim::Committed<(i64, i64)>| committed.value;
        let (who, looked) = match rng.below(if *writes { 7 } else { 5 }) {
            0 => ("a snapshot", session.snapshot(|tx| look(tx, tables, branch)).map(value)),
            1 => ("a closure that reads", session.transact(|tx| look(tx, tables, branch)).map(value)),
            2 => {
                let tells = |tx: &Tx| match look(tx, tables, branch)? {
                    (sum, balances) if sum != balances && *judge == Judge::Auditors => {
                        Err(tx.abort(format!("{sum} is not {balances}")))
                    }
                    seen => Ok(seen),
                };
                ("a closure that aborts", session.transact(tells).map(value))
            }
            3 => {
                let mut explicit = || {
                    let tx = session.begin()?;
                    let seen = look(&tx, tables, branch)?;
                    tx.commit()?;
                    Ok(seen)
                };
                ("an explicit transaction", explicit())
            }
            // The newest snapshot, where snapshots are made at intervals.
            4 => {
                let any = TransactionOptions::new().own_commits(false);
                ("a snapshot of the past", session.snapshot_with(&any, |tx| look(tx, tables, branch)).map(value))
            }
            5 => {
                let sets = |tx: &Tx| {
                    let seen = look(tx, tables, branch)?;
                    let _ = tx.update_if(&tables.branches, &branch, |row| {
                        row.set_total(seen.1 - i64::from(row.tight()));
                        row.set_fee(row.fee() + 1);
                    })?;
                    Ok(seen)
                };
                ("a closure that writes", session.transact(sets).map(value))
            }
            _ => {
                let moves = |tx: &Tx| {
                    let seen = look(tx, tables, branch)?;
                    let row = tx.get(&tables.branches, &branch)?.map(|row| row.to_owned());
                    if let Some(row) = row {
                        tx.delete(&tables.branches, &branch)?;
                        tx.insert(&tables.branches, &Branch { opened: row.opened + 1, ..row })?;
                    }
                    Ok(seen)
                };
                ("a closure that makes a branch anew", session.transact(moves).map(value))
            }
        };
        match looked {
            Ok(_) if *judge == Judge::Checker => Ok(()),
            Ok(seen) => balanced(who, branch, seen),
            Err(error) if error.is_retryable() => Ok(()),
            Err(error) => Err(format!("{who}: {error}")),
        }
    }
}

/// Squeezed amounts are smaller: up to several times the amount that a worker may add at a time.
const SQUEEZED_MAX: u64 = 8000;

/// A caller of procedures.
fn call(session: &mut Session, rng: &mut Rng, squeezes: bool) -> Result<(), String> {
    let mut account = || rng.below(u64::from(ACCOUNTS)) as u32;
    let (from, to) = (account(), account());
    let (amount, tight) = (rng.below(100) as i64, rng.below(2 * SQUEEZED_MAX) as i16 - SQUEEZED_MAX as i16);
    let called = match rng.below(5) {
        4 => session.call(draw, &(from % BRANCHES, amount)).map(drop),
        0 => session.submit_call(deposit, &(from, from % BRANCHES, amount)).wait().map(drop),
        1 if squeezes => session.call(squeeze, &(from, from % BRANCHES, tight)).map(drop),
        _ => session.call(transfer, &(from, from % BRANCHES, to, to % BRANCHES, amount)).map(drop),
    };
    match called {
        Err(TransactError::MissingRow { .. } | TransactError::Overflow { .. }) => Ok(()),
        Err(error) if !error.is_retryable() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// The reason to repeat a run that found nothing: the events under test did not occur.
enum Inconclusive {
    /// The reason lies in the scheduling of conflicts.
    Late,
    /// The number of canaries, each of which could be known to others.
    Missed(usize),
}

/// The most runs in which no threads conflict.
const RUNS_MAX: u64 = 20;

/// Runs callers and auditors under a protocol, and recovers the durable state meanwhile. Repeats the run if the events
/// under test did not occur.
///
/// # Errors
/// The sums of an auditor do not balance, or none of the events under test occurred.
pub fn audit_balances(
    setting: &Setting,
    load: &Load,
    seed: u64,
    prepare: impl Fn(Builder) -> Builder + Sync,
) -> Result<(), String> {
    let mut lacks = None;
    for run in 0..RUNS_MAX {
        lacks = audit_balances_once(setting, load, seed ^ run << 32, &prepare)?;
        if lacks.is_none() {
            break;
        }
    }
    match lacks {
        None => Ok(()),
        Some(Inconclusive::Late) => Err("nothing was published late".to_owned()),
        Some(Inconclusive::Missed(count)) => Err(format!("of {count} that missed their group none was judged by it")),
    }
}

/// As [`audit_balances`], once. Returns the events that did not occur.
fn audit_balances_once(
    setting: &Setting,
    load: &Load,
    seed: u64,
    prepare: &(impl Fn(Builder) -> Builder + Sync),
) -> Result<Option<Inconclusive>, String> {
    let disk = FaultyDisk::new(seed);
    let open = |disk: FaultyDisk| {
        let builder = prepare(setting.builder()).record_history(load.judge == Judge::Checker);
        open_bank(builder.durability(Durability::Async), disk)
    };
    let db = open(disk.mount())?;
    let tables = fill(&db)?;
    let calling = AtomicU32::new(load.callers);
    let auditor = || Auditor {
        session: db.session(),
        tables: &tables,
        rng: Rng::from_seed(seed),
        writes: load.writes,
        judge: load.judge,
    };
    let ended = thread::scope(|scope| {
        let (db, calling, auditor) = (&db, &calling, &auditor);
        let callers = (0..load.callers).map(|caller| {
            scope.spawn(move || {
                let (mut session, mut rng) = (db.session(), Rng::from_seed(seed ^ u64::from(caller + 1)));
                let called = (0..load.calls).try_for_each(|_| call(&mut session, &mut rng, load.squeezes));
                calling.fetch_sub(1, Ordering::Release);
                called
            })
        });
        let callers: Vec<_> = callers.collect();
        let auditor = scope.spawn(move || {
            let mut auditor = auditor();
            loop {
                auditor.audit()?;
                if calling.load(Ordering::Acquire) == 0 {
                    return Ok(());
                }
            }
        });
        let recoverer = scope.spawn(move || {
            let mut recovered = 0;
            while recovered == 0 || calling.load(Ordering::Acquire) > 0 && recovered < RECOVERIES {
                let again = open(disk.fork(seed + recovered))?;
                recovered += 1;
                audit_recovered(&again)?;
            }
            Ok(())
        });
        let mut all = callers.into_iter().chain([auditor, recoverer]);
        all.try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    });
    let promises = if setting.strict { Promises::STRICT } else { Promises::SERIALIZABLE };
    let judge = |history: &History| check(history, &promises).map(drop).map_err(|violation| violation.to_string());
    if let Err(noticed) = ended {
        // A recovery may notice first, on a busy machine nearly always: the history is judged all the same.
        db.take_history().as_ref().map_or(Ok(()), judge)?;
        return Err(noticed);
    }
    let mut auditor = auditor();
    (0..10).try_for_each(|_| auditor.audit())?;
    let Some(history) = db.take_history() else { return Ok(None) };
    if setting.defers && !history.transactions.iter().any(|t| t.additions.iter().any(|addition| addition.deferred)) {
        return Err("nothing was deferred".to_owned());
    }
    let is_late = !setting.gives_pieces() || history.transactions.iter().any(|t| !t.additions.is_empty());
    if !is_late && !setting.adapts {
        return Err("nothing was published late".to_owned());
    }
    judge(&history)?;
    Ok(match setting.defers {
        true => order_in_groups_is_judged(history),
        // Only after a conflict, for protocols that publish later only then.
        false => (!is_late).then_some(Inconclusive::Late),
    })
}

/// Canary: a transaction misses one of its own group that had ended before it began. It is convicted, although
/// something was pending. It need not be if the other one is of another group.
fn order_in_groups_is_judged(mut history: History) -> Option<Inconclusive> {
    let mut missed = Vec::new();
    for t in &history.transactions {
        let Some(group) = t.group.filter(|group| group.shown > t.ended) else { continue };
        for write in &t.writes {
            let all = history.transactions.iter().flat_map(|t| &t.writes);
            let lower = all.filter(|w| w.table == write.table && w.key == write.key && w.version < write.version);
            let reader = Transaction::new(0).during(t.ended + 1, t.ended + 1).in_session(u32::MAX);
            let reader = |at| reader.read(write.table.0, write.key.clone(), Saw::Row(at));
            missed.extend(lower.map(|w| w.version).max().map(reader).map(|reader| (group.number, reader)));
        }
    }
    let mut is_convicted = |number: u32, reader: &Transaction| {
        history.transactions.push(reader.clone().in_group(number, u64::MAX));
        let verdict = check(&history, &Promises::STRICT);
        history.transactions.pop();
        verdict.is_err_and(|violation| violation.anomaly == Anomaly::StaleRead)
    };
    // Others may know a call that was decided long before it ended.
    let is_canary =
        |(number, reader): &(u32, Transaction)| is_convicted(*number, reader) && !is_convicted(u32::MAX, reader);
    let is_judged = missed.iter().take(CANARIES).any(is_canary);
    (!is_judged).then_some(Inconclusive::Missed(missed.len()))
}

/// Repeated until one is convicted for its group alone.
const CANARIES: usize = 500;

fn open_bank(builder: Builder, disk: FaultyDisk) -> Result<Database, String> {
    // Each recovery makes some segments of a log.
    let builder = builder.segment_bytes(32 << 10).huge_pages(false).workers(WORKERS);
    builder.path(DIRECTORY).disk(Arc::new(disk)).open().map_err(|error| error.to_string())
}

/// Makes the tables, and registers the procedures.
fn fill(db: &Database) -> Result<Tables, String> {
    let tables = Tables {
        accounts: db.create::<Account>().map_err(|error| error.to_string())?,
        branches: db.create::<Branch>().map_err(|error| error.to_string())?,
        reserves: db.create::<Reserve>().map_err(|error| error.to_string())?,
    };
    let (tight, total) = (TIGHT, -i64::from(TIGHT));
    let fill = |tx: &Tx| {
        (0..ACCOUNTS).try_for_each(|id| tx.insert(&tables.accounts, &Account { id, balance: 0 }))?;
        (0..BRANCHES).try_for_each(|id| {
            tx.insert(&tables.branches, &Branch { id, opened: 0, fee: 0, total, visits: 0, tight })?;
            tx.insert(&tables.reserves, &Reserve { id, amount: 0, tight, drawn: total })
        })
    };
    db.session().transact(fill).map_err(|error| error.to_string())?;
    db.register(procedures![deposit, squeeze, transfer, draw]).map_err(|error| error.to_string())?;
    Ok(tables)
}

/// Checks the balances of a recovered database, if its tables exist. Returns the sum of all balances.
fn audit_recovered(again: &Database) -> Result<i64, String> {
    let (Ok(accounts), Ok(branches), Ok(reserves)) =
        (again.table::<Account>(), again.table::<Branch>(), again.table::<Reserve>())
    else {
        return Ok(0);
    };
    let (tables, mut all) = (Tables { accounts, branches, reserves }, 0);
    for branch in 0..BRANCHES {
        let seen = again.session().snapshot(|tx| look(tx, &tables, branch));
        let seen = seen.map_err(|error| error.to_string())?.value;
        balanced("a recovery", branch, seen)?;
        all += seen.1;
    }
    Ok(all)
}

/// The power is cut before one in this many steps of a deposit, as all of them would take long. Another run takes
/// others.
const STRIDE: u64 = 3;

/// Deposits again and again. Each time, before another of its steps, helpers end epochs and write logs, as far as they
/// need not wait. Then the power is cut on a copy of the disk, and once more when the deposit has ended. Whatever was
/// durable then is whole. How many of the helpers had to wait for the deposit.
///
/// # Errors
/// A call that was half recovered, or was lost.
pub fn cut_power_amid_deposits(setting: &Setting, seed: u64) -> Result<u32, String> {
    let disk = FaultyDisk::new(seed);
    let builder = || setting.builder().step_helpers(true).durability(Durability::Async);
    let open = |disk: FaultyDisk| open_bank(builder(), disk);
    let db = open(disk.mount())?;
    fill(&db)?;
    let mut session = db.session();
    let mut waited = 0;
    for done in 0.. {
        db.flush().map_err(|error| error.to_string())?;
        let recover = || {
            // On a thread of its own: this one may be in a region.
            let audited = thread::scope(|scope| scope.spawn(|| audit_recovered(&open(disk.fork(seed ^ done))?)).join());
            let all = audited.map_err(|_| "a recovery panicked".to_owned())??;
            match all == done as i64 || all == done as i64 + 1 {
                true => Ok(()),
                false => Err(format!("{done} were deposited, and perhaps one more; a recovery has {all}")),
            }
        };
        let (mut helper, mut recovered) = (None, Ok(()));
        let meanwhile = || {
            let db = db.clone();
            let stepped = thread::spawn("helper", move || (0..2).for_each(|_| db.step())).expect("a thread");
            for _ in 0..5 {
                if !stepped.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            waited += u32::from(!stepped.is_finished());
            helper = Some(stepped);
            recovered = recover();
        };
        let deposits = || session.call(deposit, &(done as u32 % ACCOUNTS, done as u32 % BRANCHES, 1));
        let (deposited, _) = interrupt((seed % STRIDE + done * STRIDE) as usize, meanwhile, deposits);
        deposited.map_err(|error| error.to_string())?;
        recovered?;
        let Some(helper) = helper else { return Ok(waited) };
        helper.join().map_err(|_| "a helper panicked".to_owned())?;
        db.step();
        recover()?;
    }
    Ok(waited)
}

/// A moment between the answer of a deposit and when it is durable. It says how far the deposit is and what has
/// happened since the step before. It says whether its deferred additions are pending, and what a recovery has of it.
type Moment = (&'static str, fn(&Database), bool, i64);

const MOMENTS: [Moment; 4] = [
    ("when it was answered", |_| (), true, 0),
    ("when the rest of it was flushed", |db| db.step_logger(0), true, 0),
    ("when its epoch has ended", |db| db.advance_epoch(), false, 0),
    ("when that was flushed", |db| (0..2).for_each(|_| db.step()), false, 1),
];

/// Deposits once, with additions that are deferred, and ends the process at each of these moments. Every answered
/// deposit that must be kept is there, and each one that is there is whole.
///
/// # Errors
/// A call that was half recovered, was lost, or was answered too early; or that nothing was pending.
pub fn cut_before_publication(
    setting: &Setting,
    mode: Durability,
    ends: fn(&FaultyDisk),
    (seed, prepare): (u64, impl Fn(Builder) -> Builder),
) -> Result<(), String> {
    for cut in 0..MOMENTS.len() {
        let disk = FaultyDisk::new(seed);
        let builder = || prepare(setting.builder()).step_helpers(true).durability(mode);
        let db = open_bank(builder(), disk.mount())?;
        fill(&db)?;
        db.flush().map_err(|error| error.to_string())?;
        let mut session = db.session();
        let mut answer = Some(session.submit_call(deposit, &(0, 0, 1)));
        for (moment, step, is_pending, _) in &MOMENTS[..=cut] {
            step(&db);
            // A caller that polls waits for nothing, and ends no epoch.
            answer = answer.and_then(|answer| answer.poll().err());
            let is_early = answer.is_none() && mode != Durability::Async && *is_pending;
            if is_early || db.has_deferred() != *is_pending {
                return Err(format!("{moment}: it was answered: {}; pending: {}", answer.is_none(), db.has_deferred()));
            }
        }
        let (moment, .., kept) = MOMENTS[cut];
        if answer.is_some() && (mode == Durability::Async || kept > 0) {
            return Err(format!("{moment}: there is no answer"));
        }
        ends(&disk);
        drop((answer, session, db));
        disk.reboot();
        let all = audit_recovered(&open_bank(builder(), disk.mount())?)?;
        if all != kept {
            return Err(format!("{moment}: a recovery has {all}"));
        }
    }
    Ok(())
}

/// Recoveries of one run.
const RECOVERIES: u64 = 4;

/// The directory of the database, on a simulated disk.
const DIRECTORY: &str = "/balances";
