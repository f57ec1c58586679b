//! Batches of transactions that have not run, and the decision when each may run.
//!
//! Transactions gather until a batch is full, the first has waited long enough, or no other can come. No other can come
//! if no transaction is running, or if every client has one here. So a single client never waits for others. The crate
//! `batch` orders a batch by the reads and writes of its transactions. The batch enters the `schedule` in that order.
//! Conflicting transactions, in one batch or in several, run one after another; others run at the same time.
//!
//! Keys are hints and the server decides: a transaction that has waited longer than `hold` is sent in spite of
//! conflicts. So a transaction that does not end, because its client does not read its answer or has vanished,
//! delays others no longer than that.
//!
//! The paper moves conflicting transactions of a batch to the next batch (§5.6). Here they are last in their
//! own batch: they wait for the others, and cannot fail because of them.

mod schedule;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seriatim_batch::{Batch, Member, Policy, Settings};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Batching;
use crate::counts::Counts;
use schedule::Schedule;

/// A row, by its name in templates.
pub(crate) type Key = Vec<u8>;

/// The predicted accesses of a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Footprint {
    pub(crate) reads: Vec<Key>,
    pub(crate) writes: Vec<Key>,
    /// How often the transaction was rolled back.
    pub(crate) restarts: u32,
    /// The transaction's weight.
    pub(crate) weight: u32,
}

#[derive(Debug)]
pub(crate) struct Batches {
    size: usize,
    wait: Duration,
    hold: Duration,
    counts: Arc<Counts>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of clients.
    clients: usize,
    /// Gathering transactions, in order of arrival.
    gathering: Vec<(u64, Footprint)>,
    /// The number of this gathering, so that a timer does not end a later one.
    gathering_number: u64,
    schedule: Schedule,
    /// Notified when their transactions may run.
    go: HashMap<u64, oneshot::Sender<()>>,
    next: u64,
}

/// A client that may have transactions. When it is dropped, it will have no more.
#[derive(Debug)]
pub(crate) struct Participant(Arc<Batches>);

/// A transaction in a batch. The transaction may run when [`Admission::go`] completes. Dropping this lets waiting
/// transactions run.
#[derive(Debug)]
pub(crate) struct Admission {
    batches: Arc<Batches>,
    id: u64,
    /// When the transaction runs in spite of conflicts.
    until: Instant,
    go: oneshot::Receiver<()>,
    has_gone: bool,
}

impl Batches {
    pub(crate) fn new(batching: Batching, counts: Arc<Counts>) -> Batches {
        let Batching { size, wait, hold } = batching;
        Batches { size: size.get(), wait, hold, counts, state: Mutex::default() }
    }

    /// The state is consistent between any two calls here: none of them unwinds in between.
    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(self: &Arc<Batches>) -> Participant {
        self.locked().clients += 1;
        Participant(Arc::clone(self))
    }

    /// Admits a transaction to a batch. Must be called within a tokio runtime.
    pub(crate) fn enter(self: &Arc<Batches>, footprint: Footprint) -> Admission {
        let (sender, go) = oneshot::channel();
        let mut state = self.locked();
        let id = state.next;
        state.next += 1;
        state.go.insert(id, sender);
        state.gathering.push((id, footprint));
        if state.is_ready(self.size) {
            state.form(&self.counts);
        } else if state.gathering.len() == 1 {
            let (batches, number) = (Arc::clone(self), state.gathering_number);
            tokio::spawn(async move {
                tokio::time::sleep(batches.wait).await;
                let mut state = batches.locked();
                if state.gathering_number == number {
                    state.form(&batches.counts);
                }
            });
        }
        Admission { batches: Arc::clone(self), id, until: Instant::now() + self.hold, go, has_gone: false }
    }

    fn leave(&self, id: u64) {
        let mut state = self.locked();
        state.go.remove(&id);
        state.gathering.retain(|(gathering, _)| *gathering != id);
        let may_go = state.schedule.finish(id);
        state.release(may_go);
        if state.is_ready(self.size) {
            state.form(&self.counts);
        }
    }
}

impl State {
    /// Whether the batch is full, or no other transaction can come.
    fn is_ready(&self, size: usize) -> bool {
        let (gathering, under_way) = (self.gathering.len(), self.schedule.len());
        gathering > 0 && (gathering >= size || under_way == 0 || gathering + under_way >= self.clients)
    }

    /// Makes a batch of the gathering transactions.
    fn form(&mut self, counts: &Counts) {
        self.gathering_number += 1;
        let gathering = std::mem::take(&mut self.gathering);
        if gathering.is_empty() {
            return;
        }
        counts.batches.add(1);
        counts.batched.add(gathering.len());
        for at in order(&gathering) {
            let (id, Footprint { reads, writes, .. }) = &gathering[at];
            if self.schedule.add(*id, reads, writes) {
                self.release(vec![*id]);
            } else {
                counts.waited.add(1);
            }
        }
    }

    fn release(&mut self, ids: Vec<u64>) {
        for id in ids {
            if let Some(go) = self.go.remove(&id) {
                // A receiver that has gone is about to be dropped.
                let _ = go.send(());
            }
        }
    }
}

/// The order of a batch: readers of a row before its writers, as far as possible, then the transactions that
/// were omitted because of cycles. If weights differ, light transactions are omitted, and among these the
/// heavier ones come first. Otherwise by arrival.
fn order(gathering: &[(u64, Footprint)]) -> Vec<usize> {
    if gathering.len() == 1 {
        return vec![0];
    }
    let mut batch: Batch<&[u8]> = Batch::new();
    let mut weights = gathering.iter().map(|(_, footprint)| footprint.weight);
    let first = weights.next();
    let policy = if weights.all(|weight| Some(weight) == first) { None } else { Policy::named("value") };
    for (_, Footprint { reads, writes, restarts, weight }) in gathering {
        // A write includes a read, since a change of a row finds it first.
        let read = reads.iter().chain(writes).map(|key| (key.as_slice(), ()));
        let member = Member { restarts: *restarts, value: (*weight).into() };
        batch.add(member).reads(read).writes(writes.iter().map(Vec::as_slice));
    }
    let default = Settings::default();
    let mut decided = batch.reorder(&Settings { policy: policy.unwrap_or(default.policy), ..default });
    decided.aborted.sort_by_key(|&at| Reverse(gathering[at].1.weight));
    decided.order.into_iter().chain(decided.aborted).chain(decided.stale).collect()
}

impl Participant {
    pub(crate) fn enter(&self, footprint: Footprint) -> Admission {
        self.0.enter(footprint)
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        let mut state = self.0.locked();
        state.clients -= 1;
        if state.is_ready(self.0.size) {
            state.form(&self.0.counts);
        }
    }
}

impl Admission {
    /// Completes when the transaction may run, or has waited too long. Dropping the future is safe.
    pub(crate) async fn go(&mut self) {
        if !self.has_gone {
            // The sender is dropped only after it has sent.
            if tokio::time::timeout_at(self.until, &mut self.go).await.is_err() {
                self.batches.counts.overdue.add(1);
            }
            self.has_gone = true;
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.batches.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(reads: &[&str], writes: &[&str]) -> Footprint {
        let keys = |keys: &[&str]| keys.iter().map(|key| key.as_bytes().to_vec()).collect();
        Footprint { reads: keys(reads), writes: keys(writes), restarts: 0, weight: 1 }
    }

    fn batches(size: usize, wait: Duration) -> Arc<Batches> {
        let batching = Batching { size: size.try_into().expect("not zero"), wait, hold: LONG };
        Arc::new(Batches::new(batching, Arc::default()))
    }

    fn may_go(admission: &mut Admission) -> bool {
        admission.has_gone |= admission.go.try_recv().is_ok();
        admission.has_gone
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_single_client_does_not_wait() {
        let batches = batches(50, LONG);
        let (one, _idle) = (batches.join(), batches.join());
        for _ in 0..3 {
            let mut admission = one.enter(footprint(&[], &["x"]));
            assert!(may_go(&mut admission));
        }
        assert_eq!(batches.counts.counted().batches, 3);
    }

    #[tokio::test]
    async fn a_batch_ends_when_it_is_full_or_complete_or_has_waited() {
        let batches = batches(2, LONG);
        let clients: Vec<_> = (0..5).map(|_| batches.join()).collect();
        let _running = clients[0].enter(footprint(&[], &["a"]));
        let mut second = clients[1].enter(footprint(&[], &["b"]));
        assert!(!may_go(&mut second), "one transaction is running, and others may come");
        let mut third = clients[2].enter(footprint(&[], &["c"]));
        assert!(may_go(&mut second) && may_go(&mut third), "two are a batch");
        let mut fourth = clients[3].enter(footprint(&[], &["d"]));
        assert!(!may_go(&mut fourth));
        drop(clients.into_iter().nth(4));
        assert!(may_go(&mut fourth), "every client has a transaction here");
        let patient = self::batches(50, Duration::from_millis(5));
        let clients: Vec<_> = (0..3).map(|_| patient.join()).collect();
        let _running = clients[0].enter(footprint(&[], &["a"]));
        let mut admission = clients[1].enter(footprint(&[], &["b"]));
        assert!(!may_go(&mut admission));
        admission.go().await;
    }

    #[tokio::test]
    async fn conflicting_transactions_run_in_the_order_of_their_batch() {
        let batches = batches(50, LONG);
        let clients: Vec<_> = (0..4).map(|_| batches.join()).collect();
        let running = clients[0].enter(footprint(&[], &["x"]));
        let mut writer = clients[1].enter(footprint(&["y"], &["x"]));
        let mut reader = clients[2].enter(footprint(&["x"], &[]));
        let mut other = clients[3].enter(footprint(&[], &["z"]));
        assert!(may_go(&mut other) && !may_go(&mut writer) && !may_go(&mut reader));
        drop(running);
        assert!(may_go(&mut reader) && !may_go(&mut writer), "readers go before the writer of what they read");
        drop(reader);
        assert!(may_go(&mut writer));
        drop((writer, other));
        assert_eq!(batches.locked().schedule.len(), 0);
        assert_eq!(batches.counts.counted().waited, 2);
    }

    /// All of them change the same row: one comes first, and the others follow by weight.
    #[test]
    fn heavier_conflicting_transactions_run_first() {
        let batch = |weights: [u32; 4]| {
            let of = |(id, weight)| (id, Footprint { weight, ..footprint(&[], &["x"]) });
            order(&(0..).zip(weights).map(of).collect::<Vec<_>>())
        };
        assert_eq!(batch([2, 5, 9, 3]), [2, 1, 3, 0]);
        assert_eq!(batch([9, 3, 5, 2]), [0, 2, 1, 3]);
        let alike = batch([4; 4]);
        assert!(alike[1..].is_sorted() && alike == batch([1; 4]), "{alike:?}");
    }

    #[tokio::test]
    async fn no_transaction_waits_longer_than_hold() {
        let batching = Batching { size: 50.try_into().expect("not zero"), wait: LONG, hold: Duration::from_millis(5) };
        let batches = Arc::new(Batches::new(batching, Arc::default()));
        let clients: Vec<_> = (0..4).map(|_| batches.join()).collect();
        let stuck = clients[0].enter(footprint(&[], &["x"]));
        let gathers = clients[1].enter(footprint(&[], &["y"]));
        let soon = |admission: Admission| async {
            let mut admission = admission;
            tokio::time::timeout(Duration::from_secs(20), admission.go()).await.expect("it goes");
            admission
        };
        drop(soon(gathers).await);
        drop(clients.into_iter().skip(2).collect::<Vec<_>>());
        let client = batches.join();
        let mut waits = client.enter(footprint(&[], &["x"]));
        assert!(!may_go(&mut waits));
        let waits = soon(waits).await;
        assert_eq!(batches.counts.counted().overdue, 2);
        // A transaction that was sent because of its age still delays those behind it.
        let mut behind = client.enter(footprint(&[], &["x"]));
        drop(stuck);
        assert!(!may_go(&mut behind));
        drop(waits);
        assert!(may_go(&mut behind));
        drop(behind);
        let state = batches.locked();
        assert!(state.go.is_empty() && state.gathering.is_empty() && state.schedule.len() == 0);
    }

    #[tokio::test]
    async fn a_transaction_that_leaves_while_waiting_delays_no_other() {
        let batches = batches(50, LONG);
        let clients: Vec<_> = (0..3).map(|_| batches.join()).collect();
        let running = clients[0].enter(footprint(&[], &["x"]));
        let second = clients[1].enter(footprint(&[], &["x"]));
        drop(second);
        let mut third = clients[2].enter(footprint(&[], &["x"]));
        drop(clients);
        assert!(!may_go(&mut third));
        drop(running);
        assert!(may_go(&mut third));
        drop(third);
        let state = batches.locked();
        assert!(state.go.is_empty() && state.gathering.is_empty() && state.schedule.len() == 0);
    }
}
