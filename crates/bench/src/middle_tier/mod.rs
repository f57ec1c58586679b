//! SmallBank on a separate PostgreSQL server (Ding, Kot, Gehrke, PVLDB 12(2), 2018, §5.6, figures 26 to 28). Clients
//! connect to the server, or to the middle tier in front of it.
//!
//! Each client is a thread with a connection, and has one transaction at a time, which it sends in one message.
//! A transaction with a serialization failure is retried at once until it commits; its latency includes all
//! attempts. At the end the accounts must have the loaded cents and those that clients deposited and withdrew.

mod client;
mod smallbank;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use seriatim::Rng;
use seriatim_base::clock::Instant;
use seriatim_base::thread;
use seriatim_middle_tier::{Batching, Counted, Counts, Settings, Templates, Upstream};
use seriatim_postgres::Server;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use client::{Client, Ended};
use smallbank::{Bank, TEMPLATES};

/// The target of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The server.
    None,
    /// The middle tier without batches.
    Passes,
    /// The middle tier with batches of at most this size.
    Batches(NonZeroUsize),
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The target of clients.
    pub tier: Tier,
    /// Clients.
    pub clients: usize,
    /// Customers, each with a savings and a checking account; at least 2.
    pub accounts: u64,
    /// The skew of customers, 0 or more and below 1.
    pub theta: f64,
    /// How long a transaction waits at most for its batch to fill.
    pub wait: Duration,
    /// Seconds of the warm-up, and of the measurement.
    pub seconds: [f64; 2],
    /// The seed of the clients' inputs.
    pub seed: u64,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Transactions that committed.
    pub committed: u64,
    /// Rollbacks (40001 or 40P01).
    pub aborted: u64,
    /// Latencies of committed transactions in nanoseconds, ascending.
    pub latencies: Vec<u64>,
    /// The counts of the middle tier, including the warm-up, if there was one.
    pub counted: Option<Counted>,
    /// The server's version.
    pub version: String,
}

/// Why there is no measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// PostgreSQL is not installed. The text says how to get it.
    Missing(String),
    /// The measurement failed.
    Failed(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused::Failed(why)
    }
}

/// Starts a server, loads the accounts, runs the clients and checks the accounts.
///
/// # Errors
/// There is no server, it failed, or money was lost or created.
pub fn run(options: &Options) -> Result<Measured, Refused> {
    let Options { tier, clients, accounts, wait, seconds, .. } = *options;
    let Some(binaries) = seriatim_postgres::binaries() else {
        return Err(Refused::Missing(seriatim_postgres::MISSING.to_owned()));
    };
    // Predicate locks are kept until all transactions that ran beside theirs have ended.
    let locks = "max_pred_locks_per_transaction = 1024\n";
    let configuration = format!("max_connections = {}\nsynchronous_commit = off\n{locks}", clients + 10);
    let server = Server::start(binaries, "bench", "", &configuration)?;
    let bank = Bank::load(&server, accounts)?;
    let running = match tier {
        Tier::None => None,
        Tier::Passes => Some(Running::start(&server, None, clients)?),
        Tier::Batches(size) => {
            let batching = Batching { size, wait, ..Batching::default() };
            Some(Running::start(&server, Some(batching), clients)?)
        }
    };
    let own = SocketAddr::from(([127, 0, 0, 1], server.port()));
    let address = running.as_ref().map_or(own, |running| running.address);
    let connect = |_| Client::connect(address).map_err(|error| format!("a client cannot connect: {error}"));
    let connected: Vec<Client> = (0..clients).map(connect).collect::<Result<_, String>>()?;
    let [warmup, measured] = seconds.map(Duration::from_secs_f64);
    let (began, mut seeds) = (Instant::now(), Rng::from_seed(options.seed));
    let parts: Vec<Result<ClientResults, String>> = thread::scope(|scope| {
        let one = |client: Client| {
            let rng = Rng::from_seed(seeds.next_u64());
            scope.spawn(move || serve(client, options, rng, began, [warmup, warmup + measured]))
        };
        let threads: Vec<_> = connected.into_iter().map(one).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    let (mut sum, mut brought) = (Measured::default(), 0);
    for part in parts {
        let ClientResults { measured, brought: cents } = part?;
        sum.committed += measured.committed;
        sum.aborted += measured.aborted;
        sum.latencies.extend(measured.latencies);
        brought += cents;
    }
    sum.latencies.sort_unstable();
    bank.check(&server, brought)?;
    sum.counted = running.map(Running::end);
    sum.version = server.psql("show server_version")?;
    Ok(sum)
}

/// The results of a client, and the cents that it deposited minus those that it withdrew.
struct ClientResults {
    measured: Measured,
    brought: i64,
}

/// Runs transactions until the end of the measurement, and counts those that end after the warm-up.
fn serve(
    mut client: Client,
    options: &Options,
    mut rng: Rng,
    began: Instant,
    [from, until]: [Duration; 2],
) -> Result<ClientResults, String> {
    let inputs = smallbank::Inputs::new(options.accounts, options.theta);
    let mut part = ClientResults { measured: Measured::default(), brought: 0 };
    while began.elapsed() < until {
        let (transaction, first) = (inputs.draw(&mut rng), Instant::now());
        let text = transaction.text();
        let mut aborted = 0;
        let tags = loop {
            match client.query(&text)? {
                Ended::Committed(tags) => break tags,
                Ended::RolledBack => aborted += 1,
            }
        };
        part.brought += transaction.brings(&tags)?;
        let ended = Instant::now();
        if (from..until).contains(&ended.since(began)) {
            part.measured.committed += 1;
            part.measured.aborted += aborted;
            part.measured.latencies.push(ended.since(first).as_nanos() as u64);
        }
    }
    Ok(part)
}

/// A middle tier in front of a server.
struct Running {
    runtime: Runtime,
    counts: Arc<Counts>,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
}

impl Running {
    fn start(server: &Server, batching: Option<Batching>, clients: usize) -> Result<Running, String> {
        let told = |error: std::io::Error| format!("the middle tier does not start: {error}");
        let upstream = Upstream::parse(&server.url())?;
        let templates = Templates::parse(TEMPLATES)?;
        let settings = Settings { templates, batching, clients_max: clients, ..Settings::new(upstream) };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(told)?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(told)?;
        let address = listener.local_addr().map_err(told)?;
        let (counts, (stop, stopped)) = (Arc::new(Counts::default()), oneshot::channel::<()>());
        let counting = Arc::clone(&counts);
        runtime.spawn(async move {
            let stop = async { _ = stopped.await };
            let served = seriatim_middle_tier::serve(listener, settings, counting, stop, std::future::pending()).await;
            served.expect("without TLS all settings are consistent");
        });
        Ok(Running { runtime, counts, address, stop })
    }

    /// Ends it. Returns its counts.
    fn end(self) -> Counted {
        drop(self.stop);
        self.runtime.shutdown_timeout(Duration::from_secs(5));
        self.counts.counted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few accounts, so that transactions conflict.
    #[test]
    #[ignore = "nightly: seconds"]
    fn no_money_is_lost_behind_any_tier() {
        let fifty = NonZeroUsize::new(50).expect("not zero");
        for tier in [Tier::None, Tier::Passes, Tier::Batches(fifty)] {
            let mut options = Options {
                tier,
                clients: 4,
                accounts: 10,
                theta: 0.9,
                wait: Duration::from_millis(1),
                seconds: [0.0, 0.3],
                seed: 7,
            };
            let measured = loop {
                match run(&options) {
                    // On a busy machine it takes longer until a transaction ends in time.
                    Ok(Measured { committed: 0, .. }) if options.seconds[1] < 60.0 => options.seconds[1] *= 4.0,
                    Ok(measured) => break measured,
                    Err(Refused::Missing(how)) => return seriatim_base::talk!("skipped: {how}"),
                    Err(Refused::Failed(why)) => panic!("{tier:?}: {why}"),
                }
            };
            assert!(measured.committed > 0 && measured.latencies.len() as u64 == measured.committed, "{measured:?}");
            let counted = measured.counted.unwrap_or_default();
            assert_eq!(counted.batched > 0, matches!(tier, Tier::Batches(_)), "{counted:?}");
            assert_eq!(counted.matched > 0, tier != Tier::None, "all that clients send are templates: {counted:?}");
        }
    }
}
