//! Locking: strict two-phase locking while a transaction over several partitions is under way, and no locks
//! otherwise (§4.3 of the paper).
//!
//! A fragment requests the locks of its footprint one after another, and runs to its end when it holds them
//! all. Locks are held until the transaction is decided.
//!
//! Invariants:
//!
//! (a) While no transaction over several partitions is under way, there are no locks and no waiters: a
//!     single-partition transaction runs at once.
//! (b) A transaction that waits has not voted, so it can be ended here. One that has voted waits for its
//!     decision only.
//! (c) A single-partition transaction that waits has done nothing yet. To restart it costs only its locks, and
//!     its client does not notice.
//!
//! Why it is serializable: two-phase locking with locks held until the decision. A transaction runs without
//! locks only while there is no other to conflict with. It is strict, because locks are held at least until
//! the client is answered.
//!
//! Departure: the paper's transactions request locks while they run; ours know the footprint of a fragment
//! before it runs.
//!
//! Waits and their bounds: a request waits for the holders of the key and for earlier requests. Deadlocks at one
//! partition are found when they arise. The victim is a single-partition transaction, which restarts; if there is none,
//! the transaction with the fewest fragments so far is refused. Deadlocks over several partitions are not detected: a
//! transaction that waits for more than some ticks is refused. A transaction that waits for one that has voted waits
//! until that one's coordinator decides, however long the coordinator is down.

use std::collections::{BTreeMap, VecDeque};

use super::locks::Locks;
use super::replay::Unfinished;
use super::work::{Work, Workplace, decisions_of, send};
use super::{Call, Out, Outcome, OwnerOutput, Partition, TransactionId};
use crate::fault::{Fault, is_injected};
use crate::{Conflict, CoordinatorId, Decision, Fragment, FromCoordinator, LockMode, Refusal, Response, ToOwner};

/// Transactions that hold locks or wait for them.
pub(super) struct Locking<P: Partition> {
    locks: Locks<P::Key>,
    active: BTreeMap<TransactionId, Active<P>>,
    /// How many of the active transactions are over several partitions.
    multi: usize,
    /// Transactions that can proceed with their footprint.
    runnable: VecDeque<TransactionId>,
    ticks_max: u32,
}

struct Active<P: Partition> {
    /// The work that runs when the footprint is locked; `None` while it waits for another round or a decision.
    next: Option<Todo<P::Work>>,
    /// The locks of `next`; those before `locked` are held.
    footprint: Vec<(P::Key, LockMode)>,
    locked: usize,
    /// Keys held from earlier rounds.
    held: Vec<P::Key>,
    /// `Some` while it waits for the lock at `locked`: for how many ticks it has waited.
    waits: Option<u32>,
    /// `Some` for a transaction over several partitions.
    work: Option<Work<P>>,
}

enum Todo<W> {
    Call(Call<W>),
    Fragment(Fragment<W>),
}

impl<P: Partition> Active<P> {
    /// Every key that it holds or for which it waits.
    fn keys(&mut self) -> Vec<P::Key> {
        let mut keys = std::mem::take(&mut self.held);
        let asked = self.locked + usize::from(self.waits.take().is_some());
        keys.extend(self.footprint.drain(..).take(asked).map(|(key, _)| key));
        self.locked = 0;
        keys
    }

    fn holds(&self) -> impl Iterator<Item = &P::Key> {
        self.held.iter().chain(self.footprint[..self.locked].iter().map(|(key, _)| key))
    }

    fn waits_at(&self) -> Option<&P::Key> {
        self.waits.and_then(|_| self.footprint.get(self.locked)).map(|(key, _)| key)
    }
}

impl<P: Partition> Locking<P> {
    pub(super) fn new(ticks_max: u32) -> Locking<P> {
        Locking { locks: Locks::new(), active: BTreeMap::new(), multi: 0, runnable: VecDeque::new(), ticks_max }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn wants_ticks(&self) -> bool {
        self.active.values().any(|active| active.work.is_some() && active.waits.is_some())
    }

    pub(super) fn handle(&mut self, place: &mut Workplace<P>, message: ToOwner<P::Work>, out: &mut Out<P>) {
        match message {
            ToOwner::Call(call) if self.multi == 0 || is_injected(Fault::LockSkipped) => {
                return place.run_alone(call, out);
            }
            ToOwner::Call(call) => self.call(place, call, out),
            ToOwner::Coordinator(FromCoordinator::Fragment(fragment)) => self.fragment(place, fragment, out),
            ToOwner::Coordinator(FromCoordinator::Decision(decision)) => self.decide(place, decision, out),
            ToOwner::Coordinator(FromCoordinator::Recovered { coordinator, committed, .. }) => {
                self.coordinator_recovered(place, coordinator, &committed, out);
            }
            ToOwner::CoordinatorDown { coordinator, .. } => self.coordinator_down(place, coordinator, out),
            ToOwner::Tick => self.tick(place, out),
        }
        self.run(place, out);
        if self.multi == 0 {
            assert!(self.active.is_empty() && self.locks.is_empty(), "nobody is left that others could wait for");
        }
    }

    /// Locks are held by transaction number, so a call whose number is used by a transaction over several
    /// partitions cannot have any.
    fn call(&mut self, place: &Workplace<P>, call: Call<P::Work>, out: &mut Out<P>) {
        let transaction = call.transaction;
        if self.active.contains_key(&transaction) {
            return out.push(OwnerOutput::Reply { transaction, outcome: Outcome::Repeated });
        }
        let mut footprint = Vec::new();
        place.partition.footprint(&call.work, &mut footprint);
        let active =
            Active { next: Some(Todo::Call(call)), footprint, locked: 0, held: Vec::new(), waits: None, work: None };
        self.active.insert(transaction, active);
        self.runnable.push_back(transaction);
    }

    fn fragment(&mut self, place: &Workplace<P>, fragment: Fragment<P::Work>, out: &mut Out<P>) {
        let transaction = fragment.transaction;
        if fragment.round == 0 {
            if self.active.contains_key(&transaction) {
                return place.refuse_repeated(&fragment, out);
            }
            let work = Some(Work::new(transaction, fragment.coordinator));
            let active = Active { next: None, footprint: Vec::new(), locked: 0, held: Vec::new(), waits: None, work };
            self.active.insert(transaction, active);
            self.multi += 1;
        }
        // Without a first fragment the transaction was refused here, or was lost with the owner's memory: it
        // will be aborted.
        let Some(active) = self.active.get_mut(&transaction) else { return };
        let is_next = active.next.is_none()
            && active.work.as_ref().is_some_and(|work| {
                let is_later = fragment.round == 0 || fragment.round > work.round;
                work.coordinator == fragment.coordinator && !work.finished && is_later
            });
        if !is_next {
            return;
        }
        if let Some(work) = &fragment.work {
            place.partition.footprint(work, &mut active.footprint);
        }
        active.next = Some(Todo::Fragment(fragment));
        self.runnable.push_back(transaction);
    }

    /// Runs the transactions that can proceed.
    fn run(&mut self, place: &mut Workplace<P>, out: &mut Out<P>) {
        while let Some(transaction) = self.runnable.pop_front() {
            self.go_on(place, transaction, out);
        }
    }

    fn go_on(&mut self, place: &mut Workplace<P>, transaction: TransactionId, out: &mut Out<P>) {
        let Some(active) = self.active.get_mut(&transaction).filter(|active| active.waits.is_none()) else { return };
        while let Some((key, mode)) = active.footprint.get(active.locked) {
            if !self.locks.ask(transaction, key, *mode) {
                active.waits = Some(0);
                return self.break_circles(place, transaction, out);
            }
            active.locked += 1;
        }
        match active.next.take() {
            None => {}
            Some(Todo::Call(call)) => {
                place.run_alone(call, out);
                self.end(transaction);
            }
            Some(Todo::Fragment(fragment)) => {
                active.held.extend(active.footprint.drain(..).map(|(key, _)| key));
                active.locked = 0;
                let work = active.work.as_mut().expect("fragments are of transactions over several partitions");
                let to = work.coordinator;
                let response = place.run_fragment(work, fragment, None, out);
                if response.result.is_err() {
                    self.end(transaction);
                }
                send::<P>(to, response, out);
            }
        }
    }

    /// Breaks deadlocks with this transaction, as long as it waits.
    fn break_circles(&mut self, place: &mut Workplace<P>, transaction: TransactionId, out: &mut Out<P>) {
        // Most hold nothing for which others wait, and there may be many waiters.
        if !self.locks.are_awaited(self.active[&transaction].holds()) {
            return;
        }
        loop {
            let waits_at = |one| self.active.get(&one).and_then(Active::waits_at);
            let Some(circle) = self.locks.circle(transaction, waits_at) else { return };
            // Single-partition transactions before others, then by the number of rounds; ties are broken the
            // same way each time.
            let cost = |one: &TransactionId| match &self.active[one].work {
                None => (0, 0),
                Some(work) => (1, work.round),
            };
            let victim = circle.into_iter().min_by_key(|one| (cost(one), std::cmp::Reverse(*one)));
            let victim = victim.expect("a circle has members");
            if self.active[&victim].work.is_some() {
                self.refuse(place, victim, Conflict::Deadlock(place.id), out);
            } else {
                self.begin_anew(place, victim);
            }
        }
    }

    /// Restarts a single-partition transaction: releases all its locks, and requests them again behind all
    /// others.
    fn begin_anew(&mut self, place: &Workplace<P>, transaction: TransactionId) {
        let active = self.active.get_mut(&transaction).expect("it waits");
        let keys = active.keys();
        let Some(Todo::Call(call)) = &active.next else { unreachable!("it has not run") };
        place.partition.footprint(&call.work, &mut active.footprint);
        let granted = self.locks.release(transaction, keys);
        self.wake(granted);
        self.runnable.push_back(transaction);
    }

    /// Refuses a transaction over several partitions that waits.
    fn refuse(&mut self, place: &mut Workplace<P>, transaction: TransactionId, conflict: Conflict, out: &mut Out<P>) {
        let active = self.active.get_mut(&transaction).expect("it waits");
        let work = active.work.as_mut().expect("single-partition transactions are not refused");
        assert!(!work.finished, "who has voted does not wait");
        place.undo(work);
        let Some(Todo::Fragment(Fragment { coordinator, round, .. })) = active.next else {
            unreachable!("it waits to run a fragment")
        };
        let result = Err(Refusal::Conflict(conflict));
        send::<P>(coordinator, Response { transaction, partition: place.id, round, result, after: None }, out);
        self.end(transaction);
    }

    /// Ends a transaction here and releases its locks.
    fn end(&mut self, transaction: TransactionId) {
        let mut active = self.active.remove(&transaction).expect("it is active");
        self.multi -= usize::from(active.work.is_some());
        let granted = self.locks.release(transaction, active.keys());
        self.wake(granted);
    }

    fn wake(&mut self, granted: Vec<TransactionId>) {
        for transaction in granted {
            let active = self.active.get_mut(&transaction).expect("who waits is active");
            active.waits = None;
            active.locked += 1;
            self.runnable.push_back(transaction);
        }
    }

    fn decide(&mut self, place: &mut Workplace<P>, decision: Decision, out: &mut Out<P>) {
        let Decision { transaction, coordinator, commit } = decision;
        // A single-partition transaction may have the same number: it is never decided.
        let work = self.active.get_mut(&transaction).and_then(|active| active.work.as_mut());
        let Some(work) = work.filter(|work| work.coordinator == coordinator) else {
            if commit {
                place.ack(transaction, coordinator, out);
            }
            return;
        };
        if commit && !work.finished {
            return place.not_voted(transaction, coordinator, out);
        }
        if commit {
            place.forget(work);
        } else {
            place.undo(work);
        }
        if work.finished {
            place.decided(transaction, commit.then_some(coordinator), out);
        }
        self.end(transaction);
    }

    /// Undoes the transactions that have not voted. Those that have voted may have committed.
    fn coordinator_down(&mut self, place: &mut Workplace<P>, coordinator: CoordinatorId, out: &mut Out<P>) {
        let unvoted = |active: &Active<P>| {
            let is_its = |work: &&Work<P>| work.coordinator == coordinator;
            let undecided = active.work.as_ref().filter(is_its);
            undecided.is_some_and(|work| !work.finished || is_injected(Fault::VotedUndone))
        };
        let unvoted = self.active.iter().filter(|(_, active)| unvoted(active)).map(|(&transaction, _)| transaction);
        for transaction in unvoted.collect::<Vec<_>>() {
            self.decide(place, Decision { transaction, coordinator, commit: false }, out);
        }
    }

    fn coordinator_recovered(
        &mut self,
        place: &mut Workplace<P>,
        coordinator: CoordinatorId,
        committed: &[TransactionId],
        out: &mut Out<P>,
    ) {
        let own = |active: &Active<P>| active.work.as_ref().is_some_and(|work| work.coordinator == coordinator);
        let known = self.active.iter().filter(|(_, active)| own(active)).map(|(&transaction, _)| transaction);
        for decision in decisions_of(coordinator, known.collect(), committed) {
            self.decide(place, decision, out);
        }
    }

    /// Refuses the transactions that have waited too long.
    fn tick(&mut self, place: &mut Workplace<P>, out: &mut Out<P>) {
        let mut late = Vec::new();
        for (&transaction, active) in &mut self.active {
            if let (Some(ticks), Some(_)) = (&mut active.waits, &active.work) {
                *ticks += 1;
                if *ticks > self.ticks_max {
                    late.push(transaction);
                }
            }
        }
        for transaction in late {
            // Another refusal may have granted its lock.
            if self.active.get(&transaction).is_some_and(|active| active.waits.is_some()) {
                self.refuse(place, transaction, Conflict::Timeout(place.id), out);
            }
        }
    }

    /// Restores the transactions that were prepared at a crash. No two of them conflict.
    pub(super) fn restore(&mut self, place: &Workplace<P>, unfinished: Vec<Unfinished<P>>) {
        for Unfinished { transaction, coordinator, done } in unfinished {
            let coordinator =
                coordinator.expect("single-partition transactions do not run on top of others under locking");
            let mut footprint = Vec::new();
            done.iter().for_each(|(work, _)| place.partition.footprint(work, &mut footprint));
            for (key, mode) in &footprint {
                let is_held = self.locks.ask(transaction, key, *mode);
                assert!(is_held, "prepared transactions conflict with each other");
            }
            let held = footprint.into_iter().map(|(key, _)| key).collect();
            let work = Some(Work::restored(transaction, coordinator, done));
            let active = Active { next: None, footprint: Vec::new(), locked: 0, held, waits: None, work };
            self.active.insert(transaction, active);
            self.multi += 1;
        }
    }
}
