//! One life of a database: sessions at work, and how it ends.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use seriatim::test_support;
use seriatim::{
    Committed, Database, Durability, DynHandle, Freshness, Pending, Rng, Savepoint, SchemaError, Session, StorageError,
    TransactError, Transaction,
};
use seriatim_base::disk::{FaultyDisk, Operation, Times};

use super::case::{Plan, Tally};
use super::model::{Model, Verdict};
use super::moved::{self, move_amount, set_amount};
use super::schema::{self, KINDS, LINES, definition};
use super::script::{Author, Op, Runner, Seen};
use super::verify::{self, Declared, Known};
use crate::Planted;
use crate::linked::Tables;

/// A life.
pub(super) struct CrashRun<'c> {
    pub(super) db: Database,
    pub(super) disk: &'c FaultyDisk,
    /// The disk as this life's process sees it.
    pub(super) process: FaultyDisk,
    pub(super) rng: Rng,
    pub(super) mode: Durability,
    pub(super) plan: Plan,
    pub(super) planted: Option<Planted>,
    /// Whether a transaction may see what others have overwritten since, and commit: then it comes before them.
    pub(super) reads_the_past: bool,
    /// Whether durability is by snapshot: then each is read.
    pub(super) shows: bool,
    /// Whether what calls add is published later.
    pub(super) defers: bool,
    pub(super) model: &'c mut Model,
    pub(super) known: &'c mut Known,
    pub(super) tally: &'c mut Tally,
}

/// Whether an error is one that a failing disk explains.
pub(super) fn is_explained(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::Io { .. }
            | StorageError::Stopped(_)
            | StorageError::Full { .. }
            | StorageError::Backlogged { .. }
    )
}

/// A transaction that was submitted and not answered yet.
pub(super) struct Outstanding {
    pub(super) pending: Pending<()>,
    pub(super) depends: Depends,
}

/// The dependencies of a result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depends {
    /// The newest commit that it shows.
    pub(super) saw: u64,
    /// Its epoch, if it is one that changed something.
    pub(super) own: Option<u64>,
}

/// An explicit transaction between two of its operations.
pub(super) struct Parked<'s> {
    tx: Transaction<'s>,
    /// The newest commit when it began.
    begun: u64,
    program: Vec<Op>,
    seen: Vec<Seen>,
    savepoints: Vec<Savepoint>,
}

/// The outcome of a submitted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    Yes(Verdict),
    /// It conflicted.
    Conflict,
    /// The log takes nothing.
    Refused,
}

/// A submitted transaction, before the oracle has seen it.
struct Submitted {
    program: Vec<Op>,
    epoch: u64,
    /// Its observations; those of a call are not known.
    seen: Option<Vec<Seen>>,
    pending: Pending<()>,
}

/// Most operations of a life.
const ACTIONS_MAX: u64 = 60;

/// Explicit transactions of a life.
const EXPLICIT: usize = 5;

/// Those that are open at a time, at most.
const PARKED_MAX: usize = 3;

impl CrashRun<'_> {
    /// Lives it. Its log may be `broken` since the opening.
    pub(super) fn run(mut self, broken: bool) -> Result<(), String> {
        let db = self.db.clone();
        let mut sessions: Vec<Session> = (0..self.rng.range(1, 4)).map(|_| db.session()).collect();
        let mut for_explicit: Vec<Session> = (0..EXPLICIT).map(|_| db.session()).collect();
        let mut work = Work {
            tables: (0..KINDS.len()).map(|table| db.open_dyn(KINDS[table].name).ok()).collect(),
            unused: for_explicit.iter_mut(),
            shown: vec![None; sessions.len()],
            parked: Vec::new(),
            outstanding: Vec::new(),
            stopped: None,
            faulted: broken,
            broken,
            full: false,
            calls: false,
            linked: Tables::open(&db)?,
            in_doubt: false,
        };
        if self.rng.percent(30) {
            self.convert(&mut work)?;
        }
        self.register(&mut work)?;
        let mut reader = db.session();
        for _ in 0..self.rng.below(ACTIONS_MAX) {
            if !self.process.is_alive() {
                break;
            }
            self.act(&mut work, &mut sessions)?;
            if self.shows {
                self.keep_snapshot(&mut reader, &work)?;
            }
            self.tally.note(self.disk.operations());
        }
        if self.process.is_alive() {
            self.look_at_stopped()?;
        }
        if self.defers && work.calls {
            self.defer_last(&mut work, &mut sessions[0])?;
        }
        let is_pending = self.db.has_deferred();
        let (disk, process) = (self.disk, self.process.clone());
        let ending = self.rng.below(10);
        match ending {
            0..4 if process.is_alive() => disk.power_off(),
            4..6 if process.is_alive() => disk.kill(),
            _ if process.is_alive() && work.full => self.space_is_back(&mut work)?,
            _ => {}
        }
        if self.rng.percent(30) {
            // Answers from here on depend on nothing that the disk does not hold.
            self.poll(&mut work)?;
        }
        let faulted = work.faulted;
        // Closing publishes it, and the epoch then says with which durability.
        self.model.publish();
        let CrashRun { known, model, tally, db: last, .. } = self;
        drop(work);
        drop((sessions, for_explicit, reader, db, last));
        if !process.is_alive() {
            tally.ended(disk);
            tally.pending += u64::from(is_pending);
        } else {
            tally.closes += 1;
            if !faulted {
                // Closing flushes.
                known.acknowledged = model.newest();
                known.recorded = known.acknowledged;
            }
        }
        Ok(())
    }

    fn act<'s>(&mut self, work: &mut Work<'s>, sessions: &mut [Session]) -> Result<(), String> {
        self.note_published()?;
        // Calls, where something comes of them that comes of nothing else, soon have their tables.
        if work.tables.iter().all(Option::is_none) || self.defers && !work.calls && self.rng.percent(20) {
            return self.declare(work);
        }
        if self.plan == Plan::Faults && self.rng.percent(6) {
            self.plan_fault(work);
        }
        let lane = self.rng.below(sessions.len() as u64) as usize;
        if self.rng.percent(12) {
            return self.link(work, &mut sessions[lane], lane);
        }
        match self.rng.below(100) {
            0..42 => {
                let calls = if self.defers { 70 } else { 40 };
                let submitted = if work.calls && work.parked.is_empty() && self.rng.percent(calls) {
                    self.call(&mut sessions[lane])
                } else {
                    let program = self.program(work);
                    self.submit(&mut sessions[lane], work, program)
                };
                let saw = self.take(work, submitted)?;
                work.shown[lane] = work.shown[lane].map(|shown| shown.max(saw));
                Ok(())
            }
            42..50 => self.begin(work),
            50..62 => self.proceed(work),
            62..68 => self.end(work),
            68..74 => {
                self.db.step();
                Ok(())
            }
            74..77 => {
                self.db.advance_epoch();
                Ok(())
            }
            77..82 => {
                self.db.step_logger(self.rng.below(4) as usize);
                Ok(())
            }
            82..89 => self.poll(work),
            89..91 => self.wait(work),
            91..94 => self.snapshot(&mut sessions[lane], lane, work),
            94..96 if self.rng.percent(40) => self.convert(work),
            94..96 => self.declare(work),
            96..97 => self.flush(work),
            _ => self.checkpoint(work),
        }
    }

    fn program(&mut self, work: &Work<'_>) -> Vec<Op> {
        let tables: Vec<usize> = (0..KINDS.len()).filter(|&table| work.tables[table].is_some()).collect();
        let born = self.model.newest() as u32;
        Author { rng: &mut self.rng, domain: self.known.domain, tables: &tables, born }.program()
    }

    fn submit(&mut self, session: &mut Session, work: &Work<'_>, program: Vec<Op>) -> Submitted {
        submit(&self.db, session, &work.tables, program)
    }

    /// Registers the procedure, where it is published in steps and its tables exist.
    fn register(&self, work: &mut Work<'_>) -> Result<(), String> {
        let are_there = moved::TABLES.iter().all(|&table| work.tables[table].is_some());
        if self.db.protocol().capabilities.pieces && are_there && !work.calls {
            self.db.register(moved::all(self.defers)).map_err(|error| format!("it is not registered: {error}"))?;
            work.calls = true;
        }
        Ok(())
    }

    /// Nothing is pending in the database: nor is it to the oracle.
    pub(super) fn note_published(&mut self) -> Result<(), String> {
        match self.db.has_deferred() {
            false => self.model.publish(),
            true if !self.model.is_pending() => return Err("something is pending that nobody deferred".to_owned()),
            true => {}
        }
        Ok(())
    }

    /// Calls one of the procedures: its observations are not reported.
    fn call(&mut self, session: &mut Session) -> Submitted {
        let (keys, groups) = (u64::from(self.known.domain.keys), u64::from(self.known.domain.groups));
        let (from, to) = (self.rng.below(keys) as u32, self.rng.below(keys) as u32);
        let (group, amount) = (self.rng.below(groups) as u16, self.rng.range(1, 50) as i64);
        let epoch = self.db.epoch_now();
        let (program, pending) = match self.defers && self.rng.percent(25) {
            true => (moved::setting(to, amount), session.submit_call(set_amount, &(to.into(), amount))),
            false => {
                let pending = session.submit_call(move_amount, &(from.into(), group, to.into(), amount));
                (moved::program(from, group, to, amount), pending)
            }
        };
        self.tally.calls += u64::from(matches!(pending.decided(), Some(Ok(_))));
        Submitted { program, epoch, seen: None, pending }
    }

    /// The last that happens in this life: calls, and loggers that take what these have logged and end no epoch.
    fn defer_last(&mut self, work: &mut Work<'_>, session: &mut Session) -> Result<(), String> {
        work.parked.clear();
        for _ in 0..self.rng.below(6) {
            if !self.process.is_alive() {
                break;
            }
            self.note_published()?;
            let submitted = self.call(session);
            self.take(work, submitted)?;
            if self.rng.percent(50) {
                self.db.step_logger(self.rng.below(4) as usize);
            }
        }
        Ok(())
    }

    /// Tells the oracle of a submitted transaction; the newest commit that it depends on, or 0.
    fn take(&mut self, work: &mut Work<'_>, submitted: Submitted) -> Result<u64, String> {
        let Submitted { program, epoch, seen, pending } = submitted;
        let decided = self.decided(work, &pending, &program)?;
        self.tally.note(match decided {
            Decided::Yes(verdict) => verdict as u64,
            Decided::Conflict => 3,
            Decided::Refused => 4,
        });
        match decided {
            Decided::Yes(verdict) => {
                let depends = self.decide(&program, verdict, seen.as_deref(), epoch)?;
                work.outstanding.push(Outstanding { pending, depends });
                return Ok(depends.saw);
            }
            Decided::Conflict if work.parked.is_empty() => {
                return Err(format!("nobody was in the way of {program:?}, and yet {:?}", pending.decided()));
            }
            Decided::Conflict | Decided::Refused => {}
        }
        Ok(0)
    }

    fn decided(&mut self, work: &mut Work<'_>, pending: &Pending<()>, program: &[Op]) -> Result<Decided, String> {
        Ok(match pending.decided() {
            Some(Ok(_)) => Decided::Yes(Verdict::Commits),
            Some(Err(TransactError::Duplicate { .. })) => Decided::Yes(Verdict::Duplicate),
            Some(Err(TransactError::User(error))) if error.to_string() == super::script::ASKED => {
                Decided::Yes(Verdict::Aborts)
            }
            Some(Err(TransactError::Conflict { .. })) => Decided::Conflict,
            Some(Err(error)) if self.is_refusal(work, error) => {
                self.count_fault();
                Decided::Refused
            }
            other => return Err(format!("{program:?} came to {other:?}")),
        })
    }

    /// An error was explained: by the disk, where it was not by the end of the process.
    pub(super) fn count_fault(&mut self) {
        self.tally.faults += u64::from(self.process.is_alive());
    }

    /// Whether the log takes nothing, as the disk's failures let expect.
    fn is_refusal(&self, work: &Work<'_>, error: &TransactError) -> bool {
        match error {
            TransactError::LogStopped { .. } => work.faulted || !self.process.is_alive(),
            TransactError::DiskFull { .. } => work.full,
            _ => false,
        }
    }

    /// Tells the oracle what a transaction came to; the newest commit that it depends on.
    fn decide(
        &mut self,
        program: &[Op],
        verdict: Verdict,
        seen: Option<&[Seen]>,
        epoch: u64,
    ) -> Result<Depends, String> {
        // A commit that is no call publishes everything first.
        let is_pending = self.db.has_deferred();
        if !is_pending {
            self.model.publish();
        }
        let before = self.model.newest();
        // A transaction of two operations without observations: a call of the procedure that defers.
        let ran = match is_pending && seen.is_none() && program.len() > 1 {
            true => self.model.commit_deferring(program, epoch),
            false => self.model.commit(program, epoch),
        };
        if ran.verdict != verdict || seen.is_some_and(|seen| ran.seen != seen) {
            return Err(format!(
                "{program:?} came to {verdict:?} and saw {seen:?}; alone it comes to {:?} and sees {:?}",
                ran.verdict, ran.seen
            ));
        }
        let changed = self.model.newest() != before;
        self.tally.commits += u64::from(changed);
        Ok(Depends { saw: ran.saw, own: changed.then_some(epoch) })
    }

    /// An answer that may leave depends on this commit.
    fn answer(&mut self, work: &Work<'_>, depends: Depends) -> Result<(), String> {
        self.tally.answers += 1;
        if self.mode == Durability::Async {
            return Ok(());
        }
        if let (Some(epoch), Some(stopped)) = (depends.own, work.stopped)
            && epoch >= stopped
        {
            return Err(format!("a commit of epoch {epoch} was acknowledged after one of {stopped} was given up"));
        }
        self.known.acknowledged = self.known.acknowledged.max(depends.saw);
        Ok(())
    }

    /// The log stopped before what depends on this commit was durable.
    fn give_up(&mut self, work: &mut Work<'_>, depends: Depends, error: &TransactError) -> Result<(), String> {
        if !matches!(error, TransactError::NotDurable { .. }) || (!work.faulted && self.process.is_alive()) {
            return Err(format!("nothing explains that a result came to {error:?}"));
        }
        self.count_fault();
        if self.process.is_alive()
            && let Some(epoch) = depends.own.filter(|_| !work.full)
        {
            work.stopped = Some(work.stopped.map_or(epoch, |stopped| stopped.min(epoch)));
        }
        Ok(())
    }

    /// An outstanding transaction was answered.
    fn answered(
        &mut self,
        work: &mut Work<'_>,
        depends: Depends,
        result: Result<Committed<()>, TransactError>,
    ) -> Result<(), String> {
        self.tally.note(u64::from(result.is_ok()));
        if let (Ok(committed), true) = (&result, self.mode != Durability::Async) {
            let snapshot = committed.receipt.snapshot();
            self.known.answered = self.known.answered.max(snapshot.filter(|_| depends.own.is_some()).unwrap_or(0));
        }
        match result {
            Ok(_)
            | Err(
                TransactError::User(_)
                | TransactError::Duplicate { .. }
                | TransactError::Check { .. }
                | TransactError::ForeignKey { .. },
            ) => self.answer(work, depends),
            Err(error) => self.give_up(work, depends, &error),
        }
    }

    fn poll(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        // A result that is awaited makes the next step of a logger end its epoch.
        let awaits = self.rng.percent(25);
        for Outstanding { mut pending, depends } in std::mem::take(&mut work.outstanding) {
            let polled = match awaits {
                true => match Pin::new(&mut pending).poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(result) => Ok(result),
                    Poll::Pending => Err(pending),
                },
                false => pending.poll(),
            };
            match polled {
                Ok(result) => self.answered(work, depends, result)?,
                Err(pending) => work.outstanding.push(Outstanding { pending, depends }),
            }
        }
        Ok(())
    }

    fn wait(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        if work.outstanding.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(work.outstanding.len() as u64) as usize;
        let Outstanding { pending, depends } = work.outstanding.swap_remove(at);
        let result = pending.wait();
        self.answered(work, depends, result)
    }

    fn begin<'s>(&mut self, work: &mut Work<'s>) -> Result<(), String> {
        if work.parked.len() >= PARKED_MAX {
            return Ok(());
        }
        let program = self.program(work);
        if let Some(session) = work.unused.next() {
            let tx = session.begin().map_err(|error| format!("a transaction does not begin: {error}"))?;
            work.parked.push(Parked {
                tx,
                begun: self.model.newest(),
                program,
                seen: Vec::new(),
                savepoints: Vec::new(),
            });
        }
        Ok(())
    }

    /// The next operation of an open transaction.
    fn proceed(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        if work.parked.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(work.parked.len() as u64) as usize;
        let Parked { tx, program, seen, savepoints, .. } = &mut work.parked[at];
        let Some(op) = program.get(seen.len()) else { return Ok(()) };
        let runner = Runner { tables: &work.tables };
        let done = runner.run(tx, std::slice::from_ref(op), savepoints, seen);
        if done.is_err() {
            work.parked.swap_remove(at).tx.rollback();
        }
        Ok(())
    }

    /// Runs an open transaction to its end.
    fn end(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        if work.parked.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(work.parked.len() as u64) as usize;
        let Parked { tx, begun, program, mut seen, mut savepoints } = work.parked.swap_remove(at);
        let runner = Runner { tables: &work.tables };
        let rest = &program[seen.len()..];
        // The oracle takes transactions in the order in which they commit.
        if self.reads_the_past && self.model.newest() != begun {
            tx.rollback();
            return Ok(());
        }
        if self.rng.percent(20) || runner.run(&tx, rest, &mut savepoints, &mut seen).is_err() {
            tx.rollback();
            return Ok(());
        }
        let epoch = self.db.epoch_now();
        let committed = tx.commit();
        let decided = matches!(committed, Ok(_) | Err(TransactError::NotDurable { .. }));
        if decided && !has_written(&program, &seen) {
            // Its place in the order may be anywhere between its begin and now. Where nothing it saw has
            // changed since, that makes no difference.
            let ran = self.model.try_out(&program);
            return match committed {
                Ok(_) if ran.saw <= begun && ran.seen == seen => self.answer(work, Depends { saw: ran.saw, own: None }),
                Ok(_) if ran.saw <= begun => Err(format!("{program:?} saw {seen:?}; alone it sees {:?}", ran.seen)),
                _ => Ok(()),
            };
        }
        match committed {
            Ok(_) => {
                let depends = self.decide(&program, Verdict::Commits, Some(&seen), epoch)?;
                self.answer(work, depends)
            }
            Err(error @ TransactError::NotDurable { .. }) => {
                let depends = self.decide(&program, Verdict::Commits, Some(&seen), epoch)?;
                self.give_up(work, depends, &error)
            }
            Err(TransactError::Conflict { .. }) => Ok(()),
            Err(error) if self.is_refusal(work, &error) => Ok(()),
            Err(error) => Err(format!("{program:?} does not commit: {error}")),
        }
    }

    /// A read-only transaction.
    fn snapshot(&mut self, session: &mut Session, lane: usize, work: &mut Work<'_>) -> Result<(), String> {
        let reads: Vec<Op> = self.program(work).into_iter().filter(Op::is_read).collect();
        let runner = Runner { tables: &work.tables };
        let shown = self.shown_epoch();
        // Those that are made are of the present here.
        self.db.make_snapshot();
        self.note_published()?;
        let result = session.snapshot(|tx| reads.iter().map(|op| runner.read(tx, op)).collect::<Result<Vec<_>, _>>());
        match result {
            Ok(committed) => {
                // One that was under way when the disk turned out to be full was run again.
                for durable in [shown.or_else(|| self.shown_epoch()), shown] {
                    let (seen, saw) = match durable {
                        Some(durable) => {
                            let (mut model, newest) = self.model.at(durable);
                            (model.try_out(&reads).seen, newest)
                        }
                        None => {
                            let ran = self.model.try_out(&reads);
                            (ran.seen, ran.saw)
                        }
                    };
                    if seen == committed.value {
                        if durable.is_none() {
                            // The first of a session is of the present; others need not have been.
                            work.shown[lane].get_or_insert(self.model.newest());
                        }
                        return self.answer(work, Depends { saw, own: None });
                    }
                    if durable == shown {
                        if shown.is_none()
                            && let Some((at, saw)) = self.past_shown(&reads, &committed.value, lane, work)
                        {
                            work.shown[lane] = Some(at);
                            return self.answer(work, Depends { saw, own: None });
                        }
                        let when = durable.map_or(String::new(), |durable| format!(" in the durable epoch {durable}"));
                        let saw = committed.value;
                        return Err(format!("a snapshot{when} of {reads:?} saw {saw:?}, right is {seen:?}"));
                    }
                }
                unreachable!("the last of them is what it shows")
            }
            Err(error) if let Some(durable) = shown => {
                Err(format!("a snapshot of the durable epoch {durable} was refused: {error}"))
            }
            Err(TransactError::Conflict { .. }) if !work.parked.is_empty() => Ok(()),
            Err(error) => self.give_up(work, Depends { saw: 0, own: None }, &error),
        }
    }

    /// Reads the newest snapshot that is offered, as a recovery of it would leave it.
    fn keep_snapshot(&mut self, reader: &mut Session, work: &Work<'_>) -> Result<(), String> {
        let tables = work.tables.iter().enumerate().filter_map(|(table, handle)| Some((table, handle.as_ref()?)));
        let tx = reader.begin_snapshot().map_err(|error| format!("no snapshot begins: {error}"))?;
        let rows = verify::rows_by_key(&tx, tables, self.known.domain);
        let rows = rows.map_err(|error| format!("a snapshot cannot be read: {error}"))??;
        // Its result waits until the versions that it saw are durable; its observations are compared with the
        // recovered state.
        let pending = tx.submit();
        match pending.decided() {
            Some(Ok(committed)) => {
                let number = committed.receipt.snapshot().ok_or("a receipt does not say its snapshot")?;
                self.known.show(number, rows)
            }
            other => Err(format!("a snapshot came to {other:?}")),
        }
    }

    /// The oldest commit after which a snapshot of the past may be, and the newest commit that it saw. It is
    /// no older than the state when the first of the parked ones began, nor than earlier snapshots and commits
    /// of its session.
    fn past_shown(&self, reads: &[Op], seen: &[Seen], lane: usize, work: &Work<'_>) -> Option<(u64, u64)> {
        if self.db.protocol().capabilities.snapshots != Freshness::Past {
            return None;
        }
        let oldest = work.parked.iter().map(|parked| parked.begun).min()?;
        (oldest.max(work.shown[lane]?)..self.model.newest()).find_map(|at| {
            let ran = self.model.after(at).try_out(reads);
            (ran.seen == seen).then_some((at, ran.saw))
        })
    }

    /// The durable epoch, if that is what snapshots show: because the log has stopped, or its disk is full
    /// and results wait for it.
    fn shown_epoch(&self) -> Option<u64> {
        let log = self.db.statistics().log.filter(|_| self.gives_snapshots())?;
        let is_shown = log.stopped || log.refusal.is_some() && self.mode != Durability::Async;
        is_shown.then_some(log.durable_epoch)
    }

    fn gives_snapshots(&self) -> bool {
        self.db.protocol().capabilities.snapshots != Freshness::None
    }

    /// The epoch that is durable for ever, if the log has stopped.
    fn stopped_at(&self) -> Option<u64> {
        let log = self.db.statistics().log.filter(|log| log.stopped)?;
        Some(log.durable_epoch)
    }

    /// Reads everything of a database whose log has stopped. It reads the durable epoch where there are snapshots.
    /// Elsewhere it reads the newest state if that is durable, or nothing.
    fn look_at_stopped(&mut self) -> Result<(), String> {
        let Some(durable) = self.stopped_at() else { return Ok(()) };
        self.tally.stopped += 1;
        let (model, newest) = self.model.at(durable);
        let seen = verify::contents(&self.db, &model, self.known);
        match seen {
            Err(problem) if !self.gives_snapshots() && problem.contains(verify::UNREADABLE) => Ok(()),
            Err(problem) => Err(format!("the log stopped when epoch {durable} was durable: {problem}")),
            Ok(()) => {
                self.known.acknowledged = self.known.acknowledged.max(newest);
                Ok(())
            }
        }
    }

    fn declare(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        let left: Vec<usize> = (0..KINDS.len()).filter(|&table| work.tables[table].is_none()).collect();
        if left.is_empty() {
            return Ok(());
        }
        let table = left[self.rng.below(left.len() as u64) as usize];
        match self.db.declare(definition(table)) {
            Ok(handle) => {
                self.known.declare(table, handle.number_in_log(), &self.db);
                work.tables[table] = Some(handle);
                self.tally.declared += 1;
                self.register(work)
            }
            Err(SchemaError::Storage(error)) if is_explained(&error) && (work.faulted || !self.process.is_alive()) => {
                self.known.tables[table] = Declared::Perhaps;
                self.count_fault();
                Ok(())
            }
            // An earlier attempt had committed when the disk became full.
            Err(SchemaError::Exists(name)) if matches!(self.known.tables[table], Declared::Perhaps) => {
                self.flush(work)?;
                if self.db.flush().is_err() {
                    return Ok(());
                }
                let handle = self.db.open_dyn(&name).map_err(|error| error.to_string())?;
                self.known.declare(table, handle.number_in_log(), &self.db);
                work.tables[table] = Some(handle);
                self.register(work)
            }
            Err(error) => Err(format!("table {} is not declared: {error}", KINDS[table].name)),
        }
    }

    /// Has the clustered table stored in the other way, if it is there and nothing uses it.
    fn convert(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        let Some(was) = self.known.tables[LINES].number().filter(|_| work.parked.is_empty()) else { return Ok(()) };
        let Some(handle) = work.tables[LINES].take() else { return Ok(()) };
        let is_clustered = handle.definition().is_clustered();
        drop(handle);
        let converted = schema::convert(&self.db, !is_clustered);
        let now = self.db.open_dyn(KINDS[LINES].name).map_err(|error| error.to_string())?;
        match converted {
            Ok(()) if now.number_in_log() == was => return Err("a table that nobody used was not converted".to_owned()),
            Ok(()) => {
                self.tally.conversions += 1;
                self.known.declare(LINES, now.number_in_log(), &self.db);
            }
            Err(SchemaError::Storage(error)) if is_explained(&error) && (work.faulted || !self.process.is_alive()) => {
                self.count_fault();
                self.known.tables[LINES] = Declared::Either(was);
            }
            Err(error) => return Err(format!("a table is not converted: {error}")),
        }
        work.tables[LINES] = Some(now);
        Ok(())
    }

    /// The disk has reported that all commits until now are durable.
    pub(super) fn all_durable(&mut self) {
        self.known.acknowledged = self.model.newest();
    }

    fn flush(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        match self.db.flush() {
            Ok(()) => {
                self.all_durable();
                Ok(())
            }
            Err(error) => self.give_up(work, Depends { saw: 0, own: None }, &error),
        }
    }

    /// A checkpoint, and transactions while it is being taken.
    fn checkpoint(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        let before = self.model.newest();
        let submitted: Rc<RefCell<Vec<Submitted>>> = Rc::default();
        let mut programs: Vec<Vec<Op>> = (0..self.rng.below(6)).map(|_| self.program(work)).collect();
        let mut rng = self.rng.fork();
        let between: test_support::Between = {
            let (db, mut session, tables) = (self.db.clone(), self.db.session(), work.tables.clone());
            let submitted = Rc::clone(&submitted);
            Box::new(move || {
                if rng.percent(20) {
                    db.step();
                }
                if rng.percent(60)
                    && let Some(program) = programs.pop()
                {
                    submitted.borrow_mut().push(submit(&db, &mut session, &tables, program));
                }
            })
        };
        let taken = test_support::between_chunks(between, || self.db.checkpoint());
        let submitted = std::mem::take(&mut *submitted.borrow_mut());
        for submitted in submitted {
            self.take(work, submitted)?;
        }
        match taken {
            Ok(_) => {
                self.tally.checkpoints += 1;
                self.known.acknowledged = self.known.acknowledged.max(before);
                self.known.recorded = self.known.recorded.max(before);
                Ok(())
            }
            Err(error) if is_explained(&error) && (work.faulted || !self.process.is_alive()) => {
                self.count_fault();
                Ok(())
            }
            Err(error) => Err(format!("no checkpoint: {error}")),
        }
    }

    fn plan_fault(&mut self, work: &mut Work<'_>) {
        work.faulted = true;
        match self.rng.below(10) {
            0..4 if !work.full => {
                work.full = true;
                self.disk.set_capacity(self.disk.used_bytes() + self.rng.below(40_000));
            }
            _ => {
                // From here on a refusal may be for good.
                work.broken = true;
                plan_failure(self.disk, &mut self.rng, 12);
            }
        }
    }

    /// A disk that was full has space again: where nothing else failed, nothing is lost and everything
    /// continues.
    fn space_is_back(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        self.disk.set_capacity(u64::MAX);
        work.full = false;
        if work.broken {
            return Ok(());
        }
        (0..4).for_each(|_| self.db.step());
        if !self.process.is_alive() {
            return Ok(());
        }
        match self.db.flush() {
            Ok(()) => self.all_durable(),
            Err(_) if !self.process.is_alive() => return Ok(()),
            Err(error) => return Err(format!("there is space again, and still: {error}")),
        }
        work.faulted = false;
        self.poll(work)
    }
}

/// The state of an incarnation.
pub(super) struct Work<'s> {
    pub(super) tables: Vec<Option<DynHandle>>,
    /// Sessions that had no explicit transaction yet.
    pub(super) unused: std::slice::IterMut<'s, Session>,
    /// The newest commit that each session's next snapshot has to show; none: all there are.
    pub(super) shown: Vec<Option<u64>>,
    pub(super) parked: Vec<Parked<'s>>,
    pub(super) outstanding: Vec<Outstanding>,
    /// The log was stopped before the end of this epoch was durable.
    pub(super) stopped: Option<u64>,
    /// Whether something that fails was planned.
    pub(super) faulted: bool,
    /// Whether there are failures other than lack of space.
    pub(super) broken: bool,
    /// Whether the disk is, or will be, full.
    pub(super) full: bool,
    /// Whether the procedure is registered.
    pub(super) calls: bool,
    /// The tables that refer to each other.
    pub(super) linked: Option<Tables>,
    /// Whether a migration of them failed, which may have been made.
    pub(super) in_doubt: bool,
}

/// Lets an operation of the disk fail, one of the next `most` of its kind.
pub(super) fn plan_failure(disk: &FaultyDisk, rng: &mut Rng, most: u64) {
    use Operation::{Open, Remove, Rename, Resize, Sync, SyncDir, Write};
    let operations = [Write, Write, Sync, Sync, SyncDir, Rename, Open, Remove, Resize];
    let operation = operations[rng.below(operations.len() as u64) as usize];
    let times = if rng.percent(70) { Times::Once } else { Times::ForEver };
    disk.fail(operation, rng.range(1, most), times, ErrorKind::Other);
}

/// Whether a transaction with these observations wrote anything that it did not undo.
fn has_written(program: &[Op], seen: &[Seen]) -> bool {
    let (mut writes, mut savepoints) = (0, Vec::new());
    for (op, seen) in program.iter().zip(seen) {
        let written = match op {
            Op::Insert(..) | Op::Put(..) => true,
            Op::Update(..) => *seen != Seen::Row(None),
            Op::Delete(..) => *seen == Seen::Done(true),
            _ => false,
        };
        writes += u32::from(written);
        match op {
            Op::Savepoint => savepoints.push(writes),
            Op::RollbackTo(number) => {
                savepoints.truncate(number + 1);
                writes = savepoints[*number];
            }
            _ => {}
        }
    }
    writes > 0
}

fn submit(db: &Database, session: &mut Session, tables: &[Option<DynHandle>], program: Vec<Op>) -> Submitted {
    let epoch = db.epoch_now();
    let mut seen = Vec::new();
    let runner = Runner { tables };
    let pending = session.submit(|tx| {
        seen.clear();
        runner.run(tx, &program, &mut Vec::new(), &mut seen)
    });
    Submitted { program, epoch, seen: Some(seen), pending }
}
