//! A thread of clients: each asks, waits for the answer, and asks again.

use std::collections::HashMap;
use std::time::Duration;

use seriatim_base::Rng;
use seriatim_base::clock::Instant;
use seriatim_partition::{Outcome, PartitionId};
use seriatim_transport::{Ended, Port};

use super::program::{Program, Seen};
use super::store::{Act, Few, Work};
use super::{KEYS, PARTS, Plan, TwelveKeys};

/// What the clients of a thread were told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub(super) committed: u64,
    pub(super) committed_multi: u64,
    pub(super) user_aborted: u64,
    pub(super) conflict_aborted: u64,
    pub(super) latencies: Vec<u64>,
    /// Of the whole run, likewise what follows.
    pub(super) ended: [u64; 2],
    /// Keys that were written at each partition by what committed.
    pub(super) written: Vec<u64>,
    /// Answers that must not be.
    pub(super) wrong: Vec<String>,
    /// If it is recorded: when each that committed was asked for and answered, and what it read.
    pub(super) record: Vec<Recorded>,
    pub(super) whole: Duration,
}

/// A transaction that committed.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) client: u32,
    pub(super) began: u64,
    pub(super) ended: u64,
    /// Keys, and what their values were.
    pub(super) parts: Vec<(PartitionId, Few, Few)>,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Single { at: PartitionId, work: Work },
    Multi { parts: [(PartitionId, Few); PARTS], fails_at: Option<usize>, two_rounds: bool },
}

struct Client {
    number: u32,
    rng: Rng,
}

/// A client's transaction that is not answered.
struct UnderWay {
    /// Index of the client.
    client: usize,
    asked: Asked,
    began: Instant,
}

impl Client {
    /// §5.1 to §5.4.
    fn ask(&mut self, plan: &Plan) -> Asked {
        let (mix, partitions, rng) = (&plan.mix, plan.transport.partitions, &mut self.rng);
        let (number, clients) = (self.number, plan.clients);
        let keeps_to_one = mix.conflicts > 0.0 && number < partitions;
        let one = if keeps_to_one { number } else { rng.below(partitions.into()) as u32 };
        let is_multi = partitions > 1 && rng.unit() < mix.multi;
        let hot = (!keeps_to_one && rng.unit() < mix.conflicts).then(|| rng.below(PARTS as u64) as usize);
        let fails = rng.unit() < mix.aborts;
        let keys = |partition: u32, from: usize, to: usize, is_hot: bool| {
            let mut keys = Few::default();
            for at in from..to {
                // The client that keeps to this partition.
                let owner = if is_hot && at == from { partition.min(clients - 1) } else { number };
                keys.push(owner * KEYS as u32 + at as u32);
            }
            keys
        };
        if !is_multi {
            let work = Work { keys: keys(one, 0, KEYS, hot.is_some()), act: Act::Update, fails };
            return Asked::Single { at: PartitionId(one), work };
        }
        let other = (one + 1 + rng.below(u64::from(partitions) - 1) as u32) % partitions;
        let half = KEYS / PARTS;
        let part = |part: usize| {
            let partition = [one, other][part];
            // Each half begins with its own first key; a conflict is at one of the two.
            let is_hot = hot == Some(part);
            let mut keys_of = keys(partition, part * half, (part + 1) * half, false);
            if is_hot {
                keys_of = hot_first(&keys_of, partition.min(clients - 1) * KEYS as u32);
            }
            (PartitionId(partition), keys_of)
        };
        let parts = [part(0), part(1)];
        let fails_at = fails.then(|| rng.below(PARTS as u64) as usize);
        Asked::Multi { parts, fails_at, two_rounds: rng.unit() < mix.two_rounds }
    }
}

/// The first of these keys is this one instead.
fn hot_first(keys: &Few, hot: u32) -> Few {
    let mut all = Few::default();
    all.push(hot);
    keys.items()[1..].iter().for_each(|&key| all.push(key));
    all
}

/// Serves the clients of thread `number` until the time is over, and until all is answered.
pub(super) fn serve(plan: &Plan, mut port: Port<TwelveKeys>, number: u32) -> Told {
    let threads = plan.transport.ports;
    let mut seeds = Rng::from_seed(plan.seed ^ (u64::from(number) << 32));
    let own = (0..plan.clients).filter(|client| client % threads == number);
    let mut clients: Vec<Client> = own.map(|number| Client { number, rng: seeds.fork() }).collect();
    let mut told = Told { written: vec![0; plan.transport.partitions as usize], ..Told::default() };
    let mut under_way: HashMap<u64, UnderWay> = HashMap::with_capacity(clients.len());
    let began = Instant::now();
    let (from, to) = (began.after(plan.warmup), began.after(plan.warmup + plan.length));
    for (client, asks) in clients.iter_mut().enumerate() {
        let asked = asks.ask(plan);
        call(plan, &mut port, &mut under_way, UnderWay { client, asked, began: Instant::now() });
    }
    while let Some(answer) = port.receive(None) {
        let now = Instant::now();
        let Some(UnderWay { client, asked, began }) = under_way.remove(&answer.transaction.number) else {
            told.wrong.push(format!("{} is answered and was not asked", answer.transaction));
            continue;
        };
        let is_measured = now > from && now <= to;
        let again = match answer.ended {
            Ended::Single(outcome) => told.note(
                &clients[client],
                asked,
                began,
                now,
                is_measured,
                outcome,
                |seen, asked| {
                    let Asked::Single { at, work } = asked else { return Vec::new() };
                    vec![(at, work.keys, seen)]
                },
                plan,
            ),
            Ended::Multi(outcome) => told.note(
                &clients[client],
                asked,
                began,
                now,
                is_measured,
                outcome,
                |seen: Seen, asked| {
                    let Asked::Multi { parts, .. } = asked else { return Vec::new() };
                    parts.iter().zip(seen).map(|(&(at, keys), (_, seen))| (at, keys, seen)).collect()
                },
                plan,
            ),
            Ended::Lost => {
                told.wrong.push(format!("{} is lost", answer.transaction));
                false
            }
        };
        let next = match again {
            // From its first attempt on.
            true => Some(UnderWay { client, asked, began }),
            false if now < to => Some(UnderWay { client, asked: clients[client].ask(plan), began: now }),
            false => None,
        };
        if let Some(next) = next {
            call(plan, &mut port, &mut under_way, next);
        }
    }
    if !under_way.is_empty() {
        told.wrong.push(format!("{} calls are not answered", under_way.len()));
    }
    told.wrong.extend(port.broken().iter().map(|(transaction, at)| format!("{transaction} is not done at {at}")));
    told.whole = began.elapsed();
    told
}

fn call(plan: &Plan, port: &mut Port<TwelveKeys>, under_way: &mut HashMap<u64, UnderWay>, next: UnderWay) {
    let called = match next.asked {
        Asked::Single { at, work } => port.call(at, work, plan.mix.aborts > 0.0 || plan.mix.undo),
        Asked::Multi { parts, fails_at, two_rounds } => port.run(Program::new(parts, fails_at, two_rounds)),
    };
    let transaction = called.expect("a port has room for its clients");
    under_way.insert(transaction.number, next);
}

impl Told {
    /// Notes how a transaction ended; whether it has to be tried again.
    #[allow(clippy::too_many_arguments, reason = "what is known of one transaction")]
    fn note<R: std::fmt::Debug>(
        &mut self,
        client: &Client,
        asked: Asked,
        began: Instant,
        now: Instant,
        is_measured: bool,
        outcome: Outcome<R, ()>,
        parts: impl Fn(R, Asked) -> Vec<(PartitionId, Few, Few)>,
        plan: &Plan,
    ) -> bool {
        let is_multi = matches!(asked, Asked::Multi { .. });
        let fails = matches!(
            asked,
            Asked::Single { work: Work { fails: true, .. }, .. } | Asked::Multi { fails_at: Some(_), .. }
        );
        match outcome {
            Outcome::Committed(seen) if !fails => {
                let parts = parts(seen, asked);
                for (at, keys, _) in &parts {
                    self.written[at.0 as usize] += keys.items().len() as u64;
                }
                if plan.records {
                    let (began, ended) = (began.nanoseconds(), now.nanoseconds());
                    self.record.push(Recorded { client: client.number, began, ended, parts });
                }
                self.committed += u64::from(is_measured);
                self.committed_multi += u64::from(is_measured && is_multi);
            }
            Outcome::UserAborted(()) if fails => self.user_aborted += u64::from(is_measured),
            Outcome::Conflict(_) => {
                self.conflict_aborted += u64::from(is_measured);
                return true;
            }
            other => self.wrong.push(format!("{asked:?} ended by {other:?}")),
        }
        self.ended[usize::from(is_multi)] += 1;
        if is_measured {
            self.latencies.push(now.since(began).as_nanos() as u64);
        }
        false
    }
}
