//! A call stalls before one of its steps, while other callers run.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim::clock::Instant;
use seriatim::procedure::Value;
use seriatim::{Builder, Database, Session, TransactError, TransactionOptions, procedures, thread};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::thread::interrupt;
use seriatim_history::{Promises, check};

use super::ledger::{self, OTHER, Tables, deposit, visit};
use super::{LONG, STRIDE, on_disk, said};
use crate::Setting;

/// How often each other caller ended while the call was stalled, and how often only after it had continued.
pub type Waits = BTreeMap<&'static str, [u32; 2]>;

/// The action of another caller; returns the amount that it has paid in.
type Act = fn(&Database) -> Result<i64, TransactError>;

/// Callers that do not depend on the call: a stalled call never delays them.
const FREE: [(&str, Act); 3] = [
    ("a call with other rows", |db| db.session().call(deposit, &(OTHER.0, OTHER.1, 1)).map(|_| 1)),
    ("a snapshot of the past", |db| {
        let any = TransactionOptions::new().own_commits(false);
        let accounts = db.table::<ledger::Account>().expect("it is there");
        db.session().snapshot_with(&any, |tx| tx.require(&accounts, &OTHER.0).map(drop)).map(|_| 0)
    }),
    ("the beginning and end of a transaction that does nothing", |db| {
        let mut session = db.session();
        session.begin()?.rollback();
        Ok(0)
    }),
];

/// Callers that must not see half of it.
const WAITING: [(&str, Act); 10] = [
    ("a call with the same rows", |db| db.session().call(deposit, &(0, 0, 1)).map(|_| 1)),
    ("a snapshot", |db| looks(db, |session, tables| Ok(session.snapshot(|tx| tables.sums(tx))?.value))),
    ("a closure that reads", |db| looks(db, |session, tables| Ok(session.transact(|tx| tables.sums(tx))?.value))),
    ("a closure that writes", |db| looks(db, |session, tables| Ok(session.transact(|tx| tables.charge(tx))?.value))),
    ("an explicit transaction", |db| {
        looks(db, |session, tables| {
            let mut run = || {
                let tx = session.begin()?;
                let sums = tables.charge(&tx)?;
                tx.commit().map(|_| sums)
            };
            // One that gives up after a conflict has seen nothing, and has not waited either.
            loop {
                match run() {
                    Err(error) if error.is_retryable() => {}
                    ended => return ended,
                }
            }
        })
    }),
    ("the end of an epoch", |db| {
        db.advance_epoch();
        Ok(0)
    }),
    ("the next snapshot", |db| {
        db.make_snapshot();
        Ok(0)
    }),
    ("registration", |db| {
        db.register(procedures![visit]).expect("it may come at any time");
        Ok(0)
    }),
    ("a checkpoint", |db| db.checkpoint().map(|_| 0).or(Ok(0))),
    ("a backup", |db| db.backup("/copy").map(|_| 0).or(Ok(0))),
];

const CLOSING: (&str, Act) = ("closing", |db| {
    // The result is checked afterwards.
    let _ = db.clone().close();
    Ok(0)
});

/// How long waiting callers have to end while the call is stalled. They have longer if some that need not wait have not
/// run yet on a busy machine.
pub const STANDS: [Duration; 4] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(500), Duration::from_secs(5)];

/// Looks at sums that belong together.
///
/// # Panics
/// If they differ: the thread that joins this one notices.
fn looks(
    db: &Database,
    look: impl Fn(&mut Session, &Tables) -> Result<(i64, i64), TransactError>,
) -> Result<i64, TransactError> {
    let tables = Tables::of(db).expect("its tables are there");
    let (totals, balances) = look(&mut db.session(), &tables)?;
    assert_eq!(totals, balances, "branches and accounts");
    Ok(0)
}

/// Another caller.
struct OtherCaller {
    who: &'static str,
    acts: thread::JoinHandle<Result<i64, TransactError>>,
}

impl OtherCaller {
    fn start(db: &Database, (who, act): (&'static str, Act)) -> OtherCaller {
        let db = db.clone();
        OtherCaller { who, acts: thread::spawn("somebody", move || act(&db)).expect("a thread") }
    }

    /// Whether it ends within this time.
    fn ends_within(&self, time: Duration) -> bool {
        let began = Instant::now();
        while !self.acts.is_finished() && began.elapsed() < time {
            thread::sleep(Duration::from_micros(200));
        }
        self.acts.is_finished()
    }

    /// The amount that it has paid in.
    fn end(self) -> Result<i64, String> {
        let who = self.who;
        if !self.ends_within(LONG) {
            return Err(format!("{who} waits for ever"));
        }
        match self.acts.join().map_err(|_| format!("{who} met half of a call"))? {
            Ok(paid) => Ok(paid),
            Err(error) if error.is_retryable() || refused(&error) => Ok(0),
            Err(error) => Err(format!("{who}: {error}")),
        }
    }
}

/// Whether the database is closed.
fn refused(error: &TransactError) -> bool {
    use TransactError::{Closed, LogStopped, NotDurable};
    matches!(error, Closed | LogStopped { .. } | NotDurable { .. })
}

/// Stalls a call of [`ledger`] that pays in this amount, before one step after the other, for this long each
/// time.
///
/// # Errors
/// A caller that waited for the call without need, or for ever. Or one that saw half of the call, or rows that are
/// missing at the end.
pub fn stall(
    setting: &Setting,
    (name, arguments): (&str, &Value),
    (pays, stands): (i64, Duration),
    seed: u64,
    prepare: &dyn Fn(Builder) -> Builder,
) -> Result<Waits, String> {
    let mut waits = Waits::new();
    for step in (seed as usize % STRIDE..).step_by(STRIDE) {
        let on = |disk: &FaultyDisk| {
            let builder = prepare(setting.builder()).step_helpers(true).workers(16).huge_pages(false);
            on_disk(builder, disk, None)
        };
        let stood = stand(&on, setting.strict, (name, arguments), (pays, stands), step, seed, &mut waits);
        if !stood.map_err(|found| format!("{name} before step {step}: {found}"))? {
            break;
        }
    }
    Ok(waits)
}

/// Whether there is such a step.
fn stand(
    on: &dyn Fn(&FaultyDisk) -> Builder,
    strict: bool,
    (name, arguments): (&str, &Value),
    (pays, stands): (i64, Duration),
    step: usize,
    seed: u64,
    waits: &mut Waits,
) -> Result<bool, String> {
    let disk = FaultyDisk::new(seed);
    let db = ledger::open(on(&disk).record_history(true))?;
    // When the log has ended, snapshots show what is durable.
    db.step();
    db.flush().map_err(said)?;
    db.make_snapshot();
    let closes = step / STRIDE % 2 == 1;
    let mut about = Vec::new();
    let mut held_up = None;
    let meanwhile = || {
        for free in FREE {
            let somebody = OtherCaller::start(&db, free);
            if !somebody.ends_within(LONG) {
                held_up = Some(somebody.who);
            }
            about.push(somebody);
        }
        let others = WAITING.into_iter().chain(closes.then_some(CLOSING));
        let others: Vec<_> = others.map(|other| OtherCaller::start(&db, other)).collect();
        let began = Instant::now();
        for other in &others {
            let ended = other.ends_within(stands.saturating_sub(began.elapsed()));
            waits.entry(other.who).or_default()[usize::from(!ended)] += 1;
        }
        about.extend(others);
    };
    let mut session = db.session();
    let (called, stood) = interrupt(step, meanwhile, || session.call_by_name(name, arguments));
    drop(session);
    if let Some(who) = held_up {
        return Err(format!("{who} waits for it"));
    }
    let mut paid = match called {
        Ok(_) => pays,
        // Whether it is there is checked at the end.
        Err(error) if closes && refused(&error) => {
            if error.is_maybe_committed() {
                pays
            } else {
                0
            }
        }
        Err(error) => return Err(said(error)),
    };
    for somebody in about {
        paid += somebody.end()?;
    }
    let check_sums = |who: &str, sums: (i64, i64)| match sums == (paid, paid) {
        true => Ok(()),
        // Commits after the end of the log need not be durable.
        false if closes && sums.0 == sums.1 && sums.0 <= paid => Ok(()),
        false => Err(format!("{who}: branches and accounts have {sums:?}, paid in is {paid}")),
    };
    let history = db.take_history().ok_or("no history")?;
    if !closes {
        let tables = Tables::of(&db)?;
        let found = db.session().snapshot(|tx| tables.sums(tx)).map_err(said)?.value;
        check_sums("afterwards", found)?;
        db.check_structure()?;
        db.step();
        db.flush().map_err(said)?;
    }
    // Where the log has ended, snapshots show what is durable, whatever was answered since.
    let promises = if strict && !closes { Promises::STRICT } else { Promises::SERIALIZABLE };
    check(&history, &promises).map(drop).map_err(said)?;
    drop(db);
    check_sums("a recovery", ledger::sums(on(&disk.fork(seed)))?)?;
    Ok(stood)
}
