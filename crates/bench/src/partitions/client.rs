//! Clients of the microbenchmark.

use seriatim_base::Rng;
use seriatim_partition::{Outcome, PartitionId, TransactionId};
use seriatim_transport::{Ended, Port, Refused};

use super::clients::{self, Clients, Counted, Counts, UnderWay, When};
use super::program::Program;
use super::store::{Act, Few, Work};
use super::{KEYS, PARTS, Plan, TwelveKeys};

/// The results of the clients of one thread.
#[derive(Clone, Debug, Default)]
pub struct ClientResults {
    pub(super) counted: Counted,
    /// Keys written at each partition by committed transactions, in the whole run.
    pub(super) written: Vec<u64>,
    /// If results are recorded: for each commit, the times of its request and its answer, and the values that it read.
    pub(super) record: Vec<Recorded>,
}

/// A transaction that committed.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) client: u32,
    pub(super) began: u64,
    pub(super) ended: u64,
    /// The keys, and their values.
    pub(super) parts: Vec<(PartitionId, Few, Few)>,
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Single { at: PartitionId, work: Work },
    Multi { parts: [(PartitionId, Few); PARTS], fails_at: Option<usize>, two_rounds: bool },
}

struct Client {
    number: u32,
    rng: Rng,
}

impl Client {
    /// The mixes of §5.1 to §5.4.
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
                // The client that uses only this partition.
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
            // Each half begins with its own first key. A conflict is in one of the halves.
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

/// Replaces the first of these keys.
fn hot_first(keys: &Few, hot: u32) -> Few {
    let mut all = Few::default();
    all.push(hot);
    keys.items()[1..].iter().for_each(|&key| all.push(key));
    all
}

/// The clients of one thread.
struct Threadful<'p> {
    plan: &'p Plan,
    clients: Vec<Client>,
    results: ClientResults,
}

/// Serves the clients of thread `number` until the end of the run, and until all requests are answered.
pub(super) fn serve(plan: &Plan, port: Port<TwelveKeys>, number: u32) -> ClientResults {
    let threads = plan.transport.ports;
    let mut seeds = Rng::from_seed(plan.seed ^ (u64::from(number) << 32));
    let own = (0..plan.clients).filter(|client| client % threads == number);
    let clients: Vec<Client> = own.map(|number| Client { number, rng: seeds.fork() }).collect();
    let results = ClientResults { written: vec![0; plan.transport.partitions as usize], ..ClientResults::default() };
    let count = clients.len();
    let mut threadful = Threadful { plan, clients, results };
    clients::serve(&mut threadful, count, port, plan.warmup, plan.length);
    threadful.results
}

impl Clients<TwelveKeys> for Threadful<'_> {
    type Asked = Asked;

    fn ask(&mut self, client: usize) -> Asked {
        self.clients[client].ask(self.plan)
    }

    fn call(&mut self, port: &mut Port<TwelveKeys>, asked: &Asked) -> Result<TransactionId, Refused> {
        match *asked {
            Asked::Single { at, work } => port.call(at, work, self.plan.mix.aborts > 0.0 || self.plan.mix.undo),
            Asked::Multi { parts, fails_at, two_rounds } => port.run(Program::new(parts, fails_at, two_rounds)),
        }
    }

    fn note(&mut self, under_way: &UnderWay<Asked>, ended: Ended<TwelveKeys>, when: When) -> bool {
        let UnderWay { client, asked, began } = under_way;
        let (is_multi, fails) = match asked {
            Asked::Single { work, .. } => (false, work.fails),
            Asked::Multi { fails_at, .. } => (true, fails_at.is_some()),
        };
        let (mut parts, mut what) = (Vec::new(), String::new());
        let counts = match (ended, asked) {
            (Ended::Single(outcome), Asked::Single { at, work }) => {
                let counts = Counts::of(&outcome, fails);
                match outcome {
                    Outcome::Committed(seen) => parts = vec![(*at, work.keys, seen)],
                    other => what = format!("{other:?}"),
                }
                counts
            }
            (Ended::Multi(outcome), Asked::Multi { parts: of, .. }) => {
                let counts = Counts::of(&outcome, fails);
                match outcome {
                    Outcome::Committed(seen) => {
                        parts = of.iter().zip(seen).map(|(&(at, keys), (_, seen))| (at, keys, seen)).collect();
                    }
                    other => what = format!("{other:?}"),
                }
                counts
            }
            _ => Counts::Wrong,
        };
        if counts == Counts::Committed {
            for (at, keys, _) in &parts {
                self.results.written[at.0 as usize] += keys.items().len() as u64;
            }
            if self.plan.records {
                let (began, ended) = (began.nanoseconds(), when.now.nanoseconds());
                let client = self.clients[*client].number;
                self.results.record.push(Recorded { client, began, ended, parts });
            }
        }
        self.results.counted.count(counts, is_multi, *began, when, || format!("{asked:?} ended by {what:?}"))
    }

    fn counted(&mut self) -> &mut Counted {
        &mut self.results.counted
    }
}
