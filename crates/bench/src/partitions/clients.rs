//! A thread of clients of any application. Each client sends a request, waits for the answer, and repeats.

use std::collections::HashMap;
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_partition::{Outcome, TransactionId};
use seriatim_transport::{Application, Ended, Port, Refused};

/// The requests of clients, and their handling of answers.
pub(super) trait Clients<A: Application> {
    /// A request for a transaction.
    type Asked: Clone + std::fmt::Debug;

    /// The next request of the client with this index.
    fn ask(&mut self, client: usize) -> Self::Asked;

    /// Sends a request.
    fn call(&mut self, port: &mut Port<A>, asked: &Self::Asked) -> Result<TransactionId, Refused>;

    /// Records the outcome of a transaction. Returns whether the transaction must be retried.
    fn note(&mut self, under_way: &UnderWay<Self::Asked>, ended: Ended<A>, when: When) -> bool;

    /// The counts.
    fn counted(&mut self) -> &mut Counted;
}

/// A client's unanswered transaction.
#[derive(Clone, Debug)]
pub(super) struct UnderWay<Q> {
    /// The index of the client.
    pub(super) client: usize,
    pub(super) asked: Q,
    pub(super) began: Instant,
}

/// The time of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) now: Instant,
    pub(super) is_measured: bool,
    /// The half of the measurement that it is in.
    pub(super) half: usize,
}

/// The counts of the clients of one thread.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub(super) committed: u64,
    pub(super) committed_multi: u64,
    pub(super) user_aborted: u64,
    pub(super) conflict_aborted: u64,
    pub(super) latencies: Vec<u64>,
    /// Commits and rollbacks by the transaction itself, in each half of the measurement.
    pub(super) halves: [u64; 2],
    /// Of the whole run, as are the following counts.
    pub(super) ended: [u64; 2],
    /// Answers that are wrong.
    pub(super) wrong: Vec<String>,
    pub(super) whole: Duration,
}

/// How an answer is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    Committed,
    UserAborted,
    /// The transaction is retried.
    Conflict,
    Wrong,
}

impl Counts {
    /// Classifies the answer to a transaction. `fails`: whether it rolls back by itself.
    pub(super) fn of<R, E>(outcome: &Outcome<R, E>, fails: bool) -> Counts {
        match outcome {
            Outcome::Committed(_) if !fails => Counts::Committed,
            Outcome::UserAborted(_) if fails => Counts::UserAborted,
            Outcome::Conflict(_) => Counts::Conflict,
            _ => Counts::Wrong,
        }
    }
}

impl Counted {
    /// Counts an answer, described by `what`. Returns whether the transaction must be retried.
    pub(super) fn count(
        &mut self,
        counts: Counts,
        is_multi: bool,
        began: Instant,
        when: When,
        what: impl FnOnce() -> String,
    ) -> bool {
        let one = u64::from(when.is_measured);
        match counts {
            Counts::Committed => {
                self.committed += one;
                self.committed_multi += one * u64::from(is_multi);
            }
            Counts::UserAborted => self.user_aborted += one,
            Counts::Conflict => {
                self.conflict_aborted += one;
                return true;
            }
            Counts::Wrong => self.wrong.push(what()),
        }
        self.ended[usize::from(is_multi)] += 1;
        if when.is_measured {
            self.halves[when.half] += 1;
            self.latencies.push(when.now.since(began).as_nanos() as u64);
        }
        false
    }
}

/// Serves `clients` clients for `warmup` and `length`, and until all requests are answered.
pub(super) fn serve<A: Application, C: Clients<A>>(
    clients: &mut C,
    count: usize,
    mut port: Port<A>,
    warmup: Duration,
    length: Duration,
) {
    let mut under_way: HashMap<u64, UnderWay<C::Asked>> = HashMap::with_capacity(count);
    let began = Instant::now();
    let (from, to) = (began.after(warmup), began.after(warmup + length));
    let middle = began.after(warmup + length / 2);
    let call = |clients: &mut C, port: &mut Port<A>, under_way: &mut HashMap<_, _>, next: UnderWay<C::Asked>| {
        let transaction = clients.call(port, &next.asked).expect("a port has room for its clients");
        under_way.insert(transaction.number, next);
    };
    for client in 0..count {
        let asked = clients.ask(client);
        call(clients, &mut port, &mut under_way, UnderWay { client, asked, began: Instant::now() });
    }
    while let Some(answer) = port.receive(None) {
        let now = Instant::now();
        let Some(asked) = under_way.remove(&answer.transaction.number) else {
            clients.counted().wrong.push(format!("{} was answered but not requested", answer.transaction));
            continue;
        };
        let again = if matches!(answer.ended, Ended::Lost) {
            clients.counted().wrong.push(format!("{} is lost", answer.transaction));
            false
        } else {
            clients.note(
                &asked,
                answer.ended,
                When { now, is_measured: now > from && now <= to, half: usize::from(now > middle) },
            )
        };
        let next = match again {
            // The time since its first attempt.
            true => Some(asked),
            false if now < to => {
                let client = asked.client;
                Some(UnderWay { client, asked: clients.ask(client), began: now })
            }
            false => None,
        };
        if let Some(next) = next {
            call(clients, &mut port, &mut under_way, next);
        }
    }
    let counted = clients.counted();
    if !under_way.is_empty() {
        counted.wrong.push(format!("{} calls are not answered", under_way.len()));
    }
    counted.wrong.extend(port.broken().iter().map(|(transaction, at)| format!("{transaction} is not done at {at}")));
    counted.whole = began.elapsed();
}
