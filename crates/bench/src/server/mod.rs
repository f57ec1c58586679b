//! A server of ours on loopback, beside one that answers constants with the same handling of messages.
//!
//! Clients are threads of this process. They read a row, update one, and run TPC-B as pgbench does, by prepared
//! statements, one round trip for each. The processor time of the servers is that of the process without the
//! clients'. After all rounds, the sums of the balances must be those of the history.

mod client;
mod constant;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use seriatim::Database;
use seriatim_base::clock::{Instant, thread_processor_time};
use seriatim_base::{Rng, talk, thread};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::commands::Pairs;
use crate::measure::{Length, Quartiles, until_signal};
use crate::report::Rows;
use client::Client;

/// Accounts of each branch, as pgbench has.
const TELLERS: i64 = 10;
/// The largest latency of a histogram, in nanoseconds.
const LATENCY_MAX: u64 = 60_000_000_000;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Connections, each with a thread of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// The directory of the database, which is created; without it, the database is in memory and nothing is durable
    #[arg(long)]
    data: Option<PathBuf>,
}

impl Options {
    pub(crate) fn clients(&self) -> u16 {
        self.clients
    }

    /// What the server waits for before it answers.
    pub(crate) fn durability(&self) -> &'static str {
        if self.data.is_some() { "group" } else { "off" }
    }
}

/// The transaction of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Read,
    Update,
    TpcB,
}

const WORKS: [(Work, &str); 3] = [(Work::Read, "read"), (Work::Update, "update"), (Work::TpcB, "TPC-B")];

/// The statements that each client prepares.
const STATEMENTS: [&str; 8] = [
    "select abalance from accounts where aid = $1",
    "update accounts set abalance = abalance + $1 where aid = $2",
    "begin",
    "update tellers set tbalance = tbalance + $1 where tid = $2",
    "update branches set bbalance = bbalance + $1 where bid = $2",
    "insert into history (tid, bid, aid, delta, mtime) values ($1, $2, $3, $4, current_timestamp)",
    "end",
    "rollback",
];

const TABLES: &str = "
    create table branches (bid int primary key, bbalance int not null);
    create table tellers (tid int primary key, bid int not null, tbalance int not null);
    create table accounts (aid int primary key, bid int not null, abalance int not null, filler char(84));
    create table history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
    insert into branches values (1, 0)";

/// What a client does with a connection.
struct Terminal {
    client: Client,
    accounts: i64,
    rng: Rng,
}

impl Terminal {
    /// Runs a transaction. Returns how often it was rolled back before.
    fn transact(&mut self, work: Work) -> Result<u64, String> {
        let below = |rng: &mut Rng, end: i64| 1 + rng.below(end as u64) as i64;
        let (aid, delta) = (below(&mut self.rng, self.accounts), below(&mut self.rng, 10_000) - 5_000);
        let tid = below(&mut self.rng, TELLERS);
        let read: (usize, &[i64]) = (0, &[aid]);
        let update: (usize, &[i64]) = (1, &[delta, aid]);
        let tpc_b =
            [(2, &[][..]), update, read, (3, &[delta, tid]), (4, &[delta, 1]), (5, &[tid, 1, aid, delta]), (6, &[])];
        let steps = match work {
            Work::Read => &[read][..],
            Work::Update => &[update],
            Work::TpcB => &tpc_b,
        };
        let mut rolled_back = 0;
        loop {
            match self.attempt(steps)? {
                true => return Ok(rolled_back),
                false => rolled_back += 1,
            }
        }
    }

    /// Whether all steps succeeded; otherwise others were in the way.
    fn attempt(&mut self, steps: &[(usize, &[i64])]) -> Result<bool, String> {
        for (statement, values) in steps {
            let text = STATEMENTS[*statement];
            let answer = self.client.run(*statement, values).map_err(|error| format!("{text}: {error}"))?;
            match answer.error {
                None if *statement == 0 && answer.rows != 1 => return Err(format!("{text}: {} rows", answer.rows)),
                None => {}
                Some(state) if state.is_retryable() => {
                    // A commit that failed has ended the transaction.
                    if steps.len() > 1 && *statement != 6 {
                        self.client.run(7, &[]).map_err(|error| format!("rollback: {error}"))?;
                    }
                    return Ok(false);
                }
                Some(state) => return Err(format!("{text}: SQLSTATE {state}")),
            }
        }
        Ok(true)
    }
}

/// What was measured of one server in one round.
struct Round {
    per_second: f64,
    /// Microseconds of a transaction: of the server's processors, and of the client's.
    server: f64,
    client: f64,
    rolled_back: u64,
}

/// A server, and its clients.
struct Side {
    name: &'static str,
    terminals: Vec<Terminal>,
    rounds: Vec<Round>,
    latency: Histogram<u64>,
}

impl Side {
    fn connect(name: &'static str, address: SocketAddr, clients: u16, accounts: i64) -> Result<Side, Box<dyn Error>> {
        let terminal = |_| {
            let client = Client::connect(address, &STATEMENTS)?;
            Ok::<_, std::io::Error>(Terminal { client, accounts, rng: Rng::from_seed(0) })
        };
        let terminals = (0..clients).map(terminal).collect::<Result<_, _>>()?;
        Ok(Side { name, terminals, rounds: Vec::new(), latency: histogram() })
    }

    /// Runs transactions of all clients, and keeps what it measures unless it only warms up.
    fn run(&mut self, work: Work, length: Length, seed: u64, counts: bool) -> Result<(), String> {
        let (began, before, mut seeds) = (Instant::now(), process_time(), Rng::from_seed(seed));
        let parts: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = self
                .terminals
                .iter_mut()
                .map(|terminal| {
                    terminal.rng = Rng::from_seed(seeds.next_u64());
                    scope.spawn(move || drive(terminal, work, length, began))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
        });
        let (seconds, used) = (began.elapsed().as_secs_f64(), process_time().saturating_sub(before));
        let (mut done, mut rolled_back, mut of_clients) = (0, 0, Duration::ZERO);
        for part in parts {
            let (latency, aborts, used) = part?;
            done += latency.len();
            rolled_back += aborts;
            of_clients += used;
            if counts {
                self.latency.add(latency).expect("histograms of one layout");
            }
        }
        if counts {
            let each = |time: Duration| time.as_secs_f64() * 1e6 / done as f64;
            let (server, client) = (each(used.saturating_sub(of_clients)), each(of_clients));
            self.rounds.push(Round { per_second: done as f64 / seconds, server, client, rolled_back });
        }
        Ok(())
    }

    fn quartiles(&self, of: impl Fn(&Round) -> f64) -> Quartiles {
        Quartiles::of(self.rounds.iter().map(of))
    }

    /// Its latencies, of quantiles in microseconds, and how many transactions took at most each power of two of them.
    fn latencies(&self) -> Value {
        let at = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1e3;
        let buckets = self
            .latency
            .iter_log(1_000, 2.0)
            .map(|bucket| json!([(bucket.value_iterated_to() + 1) / 1_000, bucket.count_since_last_iteration()]));
        json!({
            "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99_9": at(0.999), "max": at(1.0),
            "histogram": buckets.collect::<Vec<_>>(),
        })
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX, 3).expect("three digits up to a minute")
}

/// Latencies, roll-backs and processor time of a client that runs for so long.
type Driven = Result<(Histogram<u64>, u64, Duration), String>;

fn drive(terminal: &mut Terminal, work: Work, length: Length, began: Instant) -> Driven {
    let used = || thread_processor_time().unwrap_or_default();
    let (mut latency, mut rolled_back, before) = (histogram(), 0, used());
    let is_over = |done: u64| match length {
        Length::Operations(count) => done >= count,
        Length::Seconds(seconds) => began.elapsed().as_secs_f64() >= seconds,
    };
    while !is_over(latency.len()) {
        let began = Instant::now();
        rolled_back += terminal.transact(work)?;
        latency.saturating_record(began.elapsed().as_nanos() as u64);
    }
    Ok((latency, rolled_back, used().saturating_sub(before)))
}

/// Processor time of this process, in steps of 10 ms, as Linux tells it; zero elsewhere.
fn process_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is in parentheses and may have blanks. `utime` and `stime` are fields 14 and 15.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().skip(11);
    let ticks: u64 = fields.take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Loads the tables by the wire.
fn load(address: SocketAddr, accounts: i64) -> Result<(), Box<dyn Error>> {
    let mut client = Client::connect(address, &[])?;
    client.query(TABLES)?;
    client.query(&format!("insert into tellers select x, 1, 0 from generate_series(1, {TELLERS}) as x"))?;
    for first in (1..=accounts).step_by(10_000) {
        let last = accounts.min(first + 9_999);
        client.query(&format!("insert into accounts select x, 1, 0, '' from generate_series({first}, {last}) as x"))?;
    }
    Ok(())
}

/// The sums must agree: of all branches, tellers and the history, and of accounts with what updates brought.
fn check(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut client = Client::connect(address, &[])?;
    let text = "select (select sum(bbalance) from branches) = (select coalesce(sum(delta), 0) from history)
        and (select sum(tbalance) from tellers) = (select coalesce(sum(delta), 0) from history)";
    match client.query(text)?.row.last() {
        Some(b't') => Ok(()),
        _ => Err("the sums of balances differ from those of the history".into()),
    }
}

/// Both servers, and what ends them.
struct Servers {
    runtime: Option<Runtime>,
    stop: tokio::sync::watch::Sender<bool>,
    ours: SocketAddr,
    constant: SocketAddr,
}

impl Servers {
    fn start(database: Database, clients: u16) -> Result<Servers, Box<dyn Error>> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.enable_all().thread_stack_size(seriatim_server::STACK_BYTES).build()?;
        let bind = || runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let (ours, constant) = (bind()?, bind()?);
        let addresses = [ours.local_addr()?, constant.local_addr()?];
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let stops = |mut stopped: tokio::sync::watch::Receiver<bool>| async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let connections_max = usize::from(clients) + 10;
        let settings = seriatim_server::Settings { connections_max, ..Default::default() };
        let serving = seriatim_server::serve(ours, database, settings, stops(stopped.clone()), std::future::ready(()));
        runtime.spawn(async move { drop(serving.await) });
        runtime.spawn(constant::serve(constant, stops(stopped)));
        let [ours, constant] = addresses;
        Ok(Servers { runtime: Some(runtime), stop, ours, constant })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

/// Measures and prints the results.
///
/// # Errors
/// A server or a client fails, or the sums of balances are wrong.
pub(crate) fn run(protocol: &str, accounts: i64, options: &Options, pairs: &Pairs) -> Result<Value, Box<dyn Error>> {
    let mut builder = Database::builder().protocol(protocol);
    if let Some(path) = &options.data {
        builder = builder.path(path);
    }
    let database = builder.open()?;
    let servers = Servers::start(database.clone(), options.clients)?;
    load(servers.ours, accounts)?;
    let heads = ["transactions a second", "server, us each", "client, us each", "of constants"];
    let [rate, server, client, ratio] = heads;
    let heads = format!("{:20} {rate:>28} {server:>24} {client:>24} {ratio:>22} {:>20}", "", "p50, p99, us");
    let mut rows = Rows::new(pairs.format, &heads)?;
    for (work, name) in until_signal(WORKS) {
        let mut sides = [
            Side::connect("constants", servers.constant, options.clients, accounts)?,
            Side::connect("seriatim", servers.ours, options.clients, accounts)?,
        ];
        let length = Length::Seconds(pairs.seconds);
        for side in &mut sides {
            side.run(work, Length::Seconds(pairs.seconds / 4.0), pairs.seed, false)?;
        }
        for round in until_signal(0..u64::from(pairs.pairs)) {
            if round % 2 == 1 {
                sides.reverse();
            }
            for side in &mut sides {
                side.run(work, length, pairs.seed + round, true)?;
            }
            if round % 2 == 1 {
                sides.reverse();
            }
            talk!("round {} of {}", round + 1, pairs.pairs);
        }
        let rates = [0, 1].map(|at: usize| sides[at].rounds.iter().map(|round| round.per_second).collect::<Vec<_>>());
        for (side, rates_of) in sides.iter().zip(&rates) {
            let (rate, server) = (side.quartiles(|round| round.per_second), side.quartiles(|round| round.server));
            let (client, ratio) = (side.quartiles(|round| round.client), Quartiles::of_ratios(rates_of, &rates[0]));
            let latency = side.latencies();
            let said =
                format!("{:.0}, {:.0}", latency["p50"].as_f64().unwrap_or(0.0), latency["p99"].as_f64().unwrap_or(0.0));
            let head = format!("{name}, {}", side.name);
            let line = format!("{head:20} {rate:>28.0} {server:>24.2} {client:>24.2} {ratio:>22.3} {said:>20}");
            let rolled_back: u64 = side.rounds.iter().map(|round| round.rolled_back).sum();
            let row = json!({
                "transaction": name, "server": side.name, "clients": options.clients, "per_second": rate.json(),
                "server_microseconds": server.json(), "client_microseconds": client.json(),
                "of_constants": ratio.json(), "rolled_back": rolled_back, "latency_microseconds": latency,
            });
            rows.add(&line, row)?;
        }
    }
    check(servers.ours)?;
    drop(servers);
    database.close()?;
    Ok(rows.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_run_all_transactions_at_both_servers_under_each_protocol() {
        for protocol in seriatim::available_protocols().iter().filter(|protocol| !protocol.requirements.plan) {
            let database = Database::builder().protocol(protocol.name).open().expect("memory");
            let servers = Servers::start(database, 2).expect("ports are free");
            load(servers.ours, 20).expect("an empty database");
            for (name, address) in [("seriatim", servers.ours), ("constants", servers.constant)] {
                let mut side = Side::connect(name, address, 2, 20).expect("it listens");
                for (work, _) in WORKS {
                    let ran = side.run(work, Length::Operations(20), 3, true);
                    assert_eq!(ran, Ok(()), "{}, {name}", protocol.name);
                }
                assert_eq!(side.latency.len(), 3 * 2 * 20);
            }
            check(servers.ours).expect("the sums agree");
            let mut client = Client::connect(servers.ours, &[]).expect("it listens");
            let answer = client.query("select count(*) from history").expect("a table");
            assert_eq!(answer.row[6..], *b"40");
        }
    }

    #[test]
    fn canary_sums_that_differ_are_found() {
        let servers = Servers::start(Database::in_memory().expect("memory"), 2).expect("ports are free");
        load(servers.ours, 20).expect("an empty database");
        check(servers.ours).expect("all are zero");
        let mut client = Client::connect(servers.ours, &[]).expect("it listens");
        client.query("update tellers set tbalance = 1 where tid = 2").expect("a row");
        assert!(check(servers.ours).is_err());
    }

    #[test]
    fn the_process_uses_time() {
        let began = process_time();
        let mut work = 1_u64;
        while process_time() - began < Duration::from_millis(20) {
            (0..10_000).for_each(|_| work = std::hint::black_box(work.wrapping_mul(3)));
        }
    }
}
