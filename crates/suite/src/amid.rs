//! Events in the middle of a call, and their effect on the call and on other callers.
//!
//! A call is interrupted before one of its steps: between two operations, two pieces, or a piece and the answer. There
//! it is cancelled, grows too old, loses its client, finds no memory or a disk that fails ([`interrupt_calls`]). Then
//! it must have happened once and whole, or not at all, as its answer says. A second database without such events has
//! the same rows. Or it stalls, while others run ([`stall::stall`]). Callers that do not depend on it continue, and the
//! others wait no longer than it. All see a state in which it is whole or absent.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use seriatim::clock::Instant;
use seriatim::procedure::{ExecutionMode, Value};
use seriatim::test_support::in_words;
use seriatim::{Builder, Bytes, Database, Durability, Table, TransactError, TransactionOptions, Tx, thread};
use seriatim_base::disk::{FaultyDisk, Operation, Times};
use seriatim_base::thread::interrupt;

use crate::{Setting, said};
use ledger::PANICS;

pub mod ledger;
pub mod stall;

/// A database with procedures, and the calls.
pub struct World<'w> {
    /// Opens it with these options, with the same rows each time.
    pub open: &'w dyn Fn(Builder) -> Result<Database, String>,
    /// Procedures and arguments, in the order in which they are called.
    pub calls: Vec<(String, Value)>,
}

/// An event before a step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is cancelled.
    Cancelled,
    /// Its client is gone: it is cancelled, and the answer is dropped.
    Disconnected,
    /// Its age is over.
    TooOld,
    /// Other transactions take all free memory.
    OutOfMemory,
    /// Code of the procedure's panics when it is run next ([`ledger::priced`]).
    Panics,
    /// The disk has no room for the log, for a while.
    DiskFull(Durability),
    /// The disk fails to make the log durable, for good.
    DiskFails(Durability),
}

impl Event {
    fn durability(self) -> Option<Durability> {
        match self {
            Event::DiskFull(mode) | Event::DiskFails(mode) => Some(mode),
            _ => None,
        }
    }
}

/// The outcomes of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Calls during which an event occurred.
    pub struck: u32,
    /// Calls that were refused, and left nothing.
    pub refused: u32,
    /// Calls that ended without a known outcome.
    pub unknown: u32,
    /// Whether each procedure was interrupted up to its last steps.
    pub is_through: bool,
}

/// How a call ended.
enum Ending {
    Done(Value),
    /// The call has no effect.
    Refused(String),
    /// The call may have an effect.
    Unknown(String),
}

/// A row that fills the remaining memory.
#[derive(Table, Clone, Debug)]
#[table(name = "ballast", key(id), hash)]
struct Ballast {
    id: u64,
    weight: Bytes<400>,
}

/// An event occurs before one in this many steps; another run tries others.
const STRIDE: usize = 5;
/// As [`STRIDE`], for events that take long.
const LONG_STRIDE: usize = 25;

/// The rest of memory, in rows of [`Ballast`].
const ROOM: u64 = 40;

/// Longer than any event takes that occurs at all.
const LONG: Duration = Duration::from_secs(60);

/// How long a call waits for the disk.
const WAIT_MAX: Duration = Duration::from_millis(10);

/// All rows but those that fill memory.
fn contents(db: &Database) -> Result<Vec<String>, String> {
    let mut rows = db.contents().map_err(said)?;
    rows.retain(|row| !row.starts_with("ballast "));
    Ok(rows)
}

/// A database whose calls have events, and one with the same calls without events.
struct Pair {
    db: Database,
    disk: FaultyDisk,
    twin: Database,
    /// The rows of both.
    rows: Vec<String>,
    mode: ExecutionMode,
}

impl Pair {
    fn open(
        setting: &Setting,
        world: &World<'_>,
        event: Event,
        mode: ExecutionMode,
        seed: u64,
    ) -> Result<Pair, String> {
        let disk = FaultyDisk::new(seed);
        let twin = (world.open)(Database::builder())?;
        let builder = setting.builder().execution_mode(mode).workers(4).huge_pages(false);
        let builder = match event.durability() {
            None if event == Event::OutOfMemory => {
                builder.memory_limit(twin.statistics().memory_bytes + (1 << 20)).step_helpers(true)
            }
            None => builder.step_helpers(true),
            mode => on_disk(builder, &disk, mode).epoch_interval(Duration::from_millis(1)),
        };
        let db = (world.open)(builder)?;
        if event == Event::OutOfMemory {
            fill_memory(&db)?;
        }
        // Rows that are durable from the beginning are not under test. In memory this returns at once.
        db.flush().map_err(said)?;
        let rows = contents(&twin)?;
        match contents(&db)? == rows {
            true => Ok(Pair { db, disk, twin, rows, mode }),
            false => Err("they differ from the beginning".to_owned()),
        }
    }

    /// Whether `found` is the state that the call's answer says; `kept`: answered calls must be there.
    fn judge(&mut self, ending: Ending, found: Vec<String>, call: &(String, Value), kept: bool) -> Result<(), String> {
        let (name, arguments) = call;
        let (is_done, told) = match &ending {
            Ending::Done(value) => (true, format!("{value:?}")),
            Ending::Refused(why) | Ending::Unknown(why) => (false, why.clone()),
        };
        if found == self.rows && !(is_done && kept) {
            return Ok(());
        }
        let wanted = self.twin.session().call_by_name(name, arguments);
        self.rows = contents(&self.twin)?;
        let fault = match (ending, wanted.map(|committed| committed.value)) {
            _ if found != self.rows => "is there in part, or not at all".to_owned(),
            (Ending::Refused(_), _) => "is there".to_owned(),
            (Ending::Done(value), Ok(wanted)) if value != wanted => format!("gives {wanted:?}"),
            _ => return Ok(()),
        };
        Err(format!("{name}{arguments:?} answered {told}, and {fault}"))
    }
}

fn on_disk(builder: Builder, disk: &FaultyDisk, mode: Option<Durability>) -> Builder {
    let builder = builder.path("/amid").disk(Arc::new(disk.mount())).segment_bytes(64 << 10).checkpoint_bytes(None);
    builder.durability(mode.unwrap_or(Durability::Async))
}

/// Fills all memory but room for some rows.
fn fill_memory(db: &Database) -> Result<(), String> {
    let ballast = db.create::<Ballast>().map_err(said)?;
    let mut session = db.session();
    let rows = (0..).find_map(|id| {
        let refused = session.transact(|tx| tx.insert(&ballast, &Ballast { id, weight: Bytes::default() })).err()?;
        Some(if matches!(refused, TransactError::OutOfMemory { .. }) { Ok(id) } else { Err(said(refused)) })
    });
    let rows = rows.unwrap_or(Ok(0))?;
    let less = |tx: &Tx| (rows - ROOM.min(rows)..rows).try_for_each(|id| tx.delete_if(&ballast, &id).map(drop));
    session.transact(less).map_err(said)?;
    (0..100).for_each(|_| db.step());
    Ok(())
}

/// Calls the procedures of a world one after the other under a protocol, with the event before one step after
/// the other.
///
/// # Errors
/// A call that left a part of its effects, or other effects than its answer says.
pub fn interrupt_calls(
    setting: &Setting,
    world: &World<'_>,
    event: Event,
    mode: ExecutionMode,
    seed: u64,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut pair = Pair::open(setting, world, event, mode, seed)?;
    let names: BTreeSet<&str> = world.calls.iter().map(|(name, _)| &**name).collect();
    let stride = if event.durability().is_some() { LONG_STRIDE } else { STRIDE };
    let (mut steps, mut ended) = (BTreeMap::<&str, usize>::new(), BTreeSet::new());
    for call in &world.calls {
        let (name, arguments) = call;
        let step = steps.entry(name).or_insert(seed as usize % stride);
        let (ending, struck) = meet(&pair, event, *step, name, arguments);
        *step += stride;
        tally.struck += u32::from(struck);
        tally.refused += u32::from(struck && matches!(ending, Ending::Refused(_)));
        tally.unknown += u32::from(struck && matches!(ending, Ending::Unknown(_)));
        let found = match event {
            Event::DiskFull(_) => {
                pair.disk.heal();
                flush(&pair.db).map_err(|error| format!("there is space again, and {error}"))?;
                let found = contents(&pair.db)?;
                let again =
                    on_disk(setting.builder(), &pair.disk.fork(seed), event.durability()).open().map_err(said)?;
                if contents(&again)? != found {
                    return Err(format!("{name}{arguments:?}: what is durable is not what is there"));
                }
                found
            }
            Event::DiskFails(_) => {
                // A waiting caller is notified.
                let _ = (pair.db.flush(), pair.db.checkpoint());
                contents(&on_disk(setting.builder(), &pair.disk.fork(seed), event.durability()).open().map_err(said)?)?
            }
            _ => contents(&pair.db)?,
        };
        let kept = event.durability() != Some(Durability::Async) || !matches!(event, Event::DiskFails(_));
        pair.judge(ending, found, call, kept).map_err(|what| format!("before step {}: {what}", *step - stride))?;
        if let Event::DiskFails(_) = event {
            pair = Pair::open(setting, world, event, mode, seed)?;
        }
        // Nothing stays closed, or open.
        (0..2).for_each(|_| pair.db.step());
        pair.db.make_snapshot();
        if !struck {
            *step = (seed as usize + 1) % stride;
            ended.insert(&**name);
            tally.is_through = ended.len() == names.len();
            if tally.is_through {
                break;
            }
        }
    }
    Ok(tally)
}

/// Waits until the database has noticed that there is space again.
fn flush(db: &Database) -> Result<(), TransactError> {
    let began = Instant::now();
    loop {
        match db.flush() {
            Err(error) if began.elapsed() > LONG => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(1)),
            Ok(()) => return Ok(()),
        }
    }
}

/// A call with the event before this step. Also returns whether it has that many steps.
fn meet(pair: &Pair, event: Event, step: usize, name: &str, arguments: &Value) -> (Ending, bool) {
    let Pair { db, disk, .. } = pair;
    let (mut session, other) = (db.session(), &mut db.session());
    if event == Event::TooOld {
        session.set_options(TransactionOptions::new().age_max(Duration::from_millis(1)));
    }
    if event.durability().is_some() {
        session.set_wait_max(Some(WAIT_MAX));
    }
    let canceller = session.canceller();
    let ballast = db.table::<Ballast>().ok();
    let (mut taker, mut helper) = (None, None);
    let strike = || match event {
        Event::Cancelled | Event::Disconnected => canceller.cancel(),
        Event::TooOld => {
            // Time goes by before an epoch ends, for which it may have to wait.
            let db = db.clone();
            let stepped = thread::spawn("helper", move || db.step()).expect("a thread");
            (0..5).filter(|_| !stepped.is_finished()).for_each(|_| thread::sleep(Duration::from_millis(1)));
            helper = Some(stepped);
        }
        Event::OutOfMemory => {
            let (Some(ballast), Ok(tx)) = (&ballast, { other }.begin()) else { return };
            let row = |id| Ballast { id, weight: Bytes::default() };
            let _ = (1 << 32..).try_for_each(|id| tx.insert(ballast, &row(id)));
            taker = Some(tx);
        }
        Event::Panics => PANICS.set(true),
        Event::DiskFull(_) => {
            disk.fail(Operation::Write, 1, Times::ForEver, ErrorKind::StorageFull);
            thread::sleep(Duration::from_millis(2));
        }
        Event::DiskFails(_) => {
            disk.fail(Operation::Sync, 1, Times::ForEver, ErrorKind::Other);
            thread::sleep(Duration::from_millis(2));
        }
    };
    let call = || {
        catch_unwind(AssertUnwindSafe(|| match event {
            Event::Disconnected => {
                drop(session.submit_by_name(name, arguments));
                None
            }
            _ => Some(session.call_by_name(name, arguments)),
        }))
    };
    let (called, struck) = interrupt(step, strike, call);
    PANICS.set(false);
    drop(taker);
    if let Some(helper) = helper {
        helper.join().expect("a helper does not panic");
    }
    let ending = match called {
        Ok(Some(Ok(committed))) => Ending::Done(committed.value),
        Ok(Some(Err(error))) if error.is_maybe_committed() => Ending::Unknown(said(error)),
        Ok(Some(Err(error))) => Ending::Refused(in_words(&error)),
        Ok(None) => Ending::Unknown("nothing".to_owned()),
        // The visible part of a chain stays: a later piece of it panicked.
        Err(_) if pair.mode == ExecutionMode::Pieces => Ending::Unknown("it panicked".to_owned()),
        Err(_) => Ending::Refused("it panicked".to_owned()),
    };
    (ending, struck)
}
