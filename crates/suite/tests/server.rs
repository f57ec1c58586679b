//! What clients of the server see passes a checker by others, in every setting.
//!
//! A list is a text in a row; its elements are unique numbers. Clients read and append in statements of their own and
//! in explicit transactions, by the simple protocol and by prepared statements.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use seriatim::rng::seed;
use seriatim::{Database, RetryPolicy, Rng, thread};
use seriatim_postgres::client::{Client, Failure, Row};
use seriatim_server::Settings;
use seriatim_suite::checker::{Promised, check_history};
use seriatim_suite::clients::{Attempt, DataModel, Step};
use seriatim_suite::{Setting, matrix, rounds};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const CLIENTS: usize = 3;
/// Lists in use at a time.
const KEYS: u64 = 4;
/// Attempts after which the oldest list is abandoned for a fresh one.
const ATTEMPTS_PER_LIST: u64 = 24;
/// Most steps of an explicit transaction.
const STEPS: u64 = 4;

/// Runs `body` with the address of a server of this database, and stops the server.
fn with_server<R>(database: Database, body: impl FnOnce(SocketAddr) -> R) -> R {
    let (tell, told) = channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let serve = move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.enable_all().worker_threads(CLIENTS).thread_stack_size(seriatim_server::STACK_BYTES);
        let served = runtime.build().expect("there are threads").block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            tell.send(listener.local_addr().expect("it is bound")).expect("the test waits");
            let stop = async { drop(stopped.await) };
            seriatim_server::serve(listener, database, Settings::default(), stop, std::future::pending()).await
        });
        served.expect("it serves");
    };
    thread::scope(|scope| {
        scope.spawn(serve);
        let result = body(told.recv().expect("it listens"));
        drop(stop);
        result
    })
}

/// What the clients of a run share.
#[derive(Default)]
struct Run {
    tickets: AtomicU64,
    values: AtomicU64,
    attempts: AtomicU64,
}

/// Elements of a list. Each is followed by a space.
fn elements(text: Option<&str>) -> Vec<u64> {
    let words = text.unwrap_or_default().split_ascii_whitespace();
    words.map(|word| word.parse().expect("elements are numbers")).collect()
}

/// A client, and the attempt that it makes.
struct Caller<'r> {
    client: Client,
    process: usize,
    run: &'r Run,
    rng: Rng,
    steps: Vec<Step>,
}

impl Caller<'_> {
    fn key(&mut self) -> u32 {
        let first = self.run.attempts.load(Ordering::Relaxed) / ATTEMPTS_PER_LIST;
        u32::try_from(first + self.rng.below(KEYS)).expect("a run is short")
    }

    /// A statement by one of the two protocols. `$1` and `$2` are its parameters.
    fn statement(&mut self, text: &str, parameters: &[String]) -> Result<Vec<Row>, Failure> {
        if self.rng.percent(50) {
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            return self.client.execute(text, &parameters);
        }
        let numbered = parameters.iter().enumerate();
        let text = numbered
            .fold(text.to_owned(), |text, (at, value)| text.replace(&format!("${}", at + 1), &format!("'{value}'")));
        self.client.query(&text)
    }

    fn note_read(&mut self, key: u32, saw: Vec<u64>) {
        self.steps.push(Step::Read { key, by_rolled_back_write: false, saw });
    }

    /// Reads one list or two, which may not be there, in one of several ways.
    fn read(&mut self, locks: bool) -> Result<(), Failure> {
        let [key, other] = [self.key(), self.key()];
        match self.rng.below(if locks { 4 } else { 3 }) {
            0 => {
                let rows = self.statement("select elements from list where id = $1", &[key.to_string()])?;
                self.note_read(key, elements(rows.first().and_then(|row| row[0].as_deref())));
            }
            1 => {
                let text = "select id, elements from list where id between $1 and $2";
                let (low, high) = (key.min(other), key.max(other));
                let rows = self.statement(text, &[low.to_string(), high.to_string()])?;
                for key in low..=high {
                    let found = rows.iter().find(|row| row[0] == Some(key.to_string()));
                    self.note_read(key, elements(found.and_then(|row| row[1].as_deref())));
                }
            }
            2 => {
                let text =
                    "select (select elements from list where id = $1), (select elements from list where id = $2)";
                let rows = self.statement(text, &[key.to_string(), other.to_string()])?;
                for (key, text) in [key, other].into_iter().zip(&rows[0]) {
                    self.note_read(key, elements(text.as_deref()));
                }
            }
            _ => {
                let rows = self.statement("select elements from list where id = $1 for update", &[key.to_string()])?;
                self.note_read(key, elements(rows.first().and_then(|row| row[0].as_deref())));
            }
        }
        Ok(())
    }

    /// Appends to a list, which may not be there. What the statement returns is read, too.
    fn append(&mut self) -> Result<(), Failure> {
        let (key, value) = (self.key(), self.run.values.fetch_add(1, Ordering::Relaxed) + 1);
        self.steps.push(Step::Write { key, value });
        let text = "insert into list values ($1, $2) on conflict (id) do update \
                    set elements = list.elements || excluded.elements returning elements";
        let rows = self.statement(text, &[key.to_string(), format!("{value} ")])?;
        self.note_read(key, elements(rows[0][0].as_deref()));
        Ok(())
    }

    /// An explicit transaction.
    fn transaction(&mut self, is_read_only: bool) -> Result<(), Failure> {
        self.client.query(if is_read_only { "begin read only" } else { "begin" })?;
        for _ in 0..=self.rng.below(STEPS) {
            match self.rng.below(8) {
                _ if is_read_only => self.read(false)?,
                0..3 => self.read(true)?,
                3..7 => self.append()?,
                _ => {
                    // Undone writes have no effect, what they returned was there.
                    self.client.query("savepoint s")?;
                    let key = self.key().to_string();
                    self.statement("delete from list where id = $1", std::slice::from_ref(&key))?;
                    self.statement("insert into list values ($1, $2)", &[key, "0 ".to_owned()])?;
                    self.client.query("rollback to s")?;
                }
            }
        }
        let ends = if self.rng.percent(5) { "select 1 / 0" } else { "commit" };
        self.client.query(ends).map(drop)
    }

    /// An attempt. Its failure is an error only if it is no conflict.
    fn attempt(&mut self) -> Result<Attempt, String> {
        self.run.attempts.fetch_add(1, Ordering::Relaxed);
        self.steps.clear();
        let invoked = self.run.tickets.fetch_add(1, Ordering::Relaxed);
        let kind = self.rng.below(10);
        let is_read_only = kind < 4;
        let result = match kind {
            0 | 1 => self.read(false),
            2 | 3 => self.transaction(true),
            4 | 5 => self.append(),
            _ => self.transaction(false),
        };
        if let Err(failure) = &result {
            // A deadlock, a conflict, or the division by zero.
            if !matches!(failure.state(), Some("40P01" | "40001" | "22012")) {
                return Err(format!("{failure}, after {:?}", self.steps));
            }
            if self.client.is_open() {
                self.client.query("rollback").map_err(|failure| failure.to_string())?;
            }
        }
        let answered = self.run.tickets.fetch_add(1, Ordering::Relaxed);
        let (process, steps) = (self.process, std::mem::take(&mut self.steps));
        Ok(Attempt { process, invoked, answered, is_read_only, is_committed: result.is_ok(), steps })
    }
}

fn run(setting: &Setting, attempts: u64, seed: u64) -> Result<(), String> {
    let builder = setting.builder().retry(RetryPolicy::default()).seed(seed);
    let database = builder.open().map_err(|error| error.to_string())?;
    let all = with_server(database, |address| {
        let connect = || Client::connect(address, "postgres").map_err(|failure| failure.to_string());
        let create = "create table list (id int primary key, elements text not null)";
        connect()?.query(create).map_err(|failure| failure.to_string())?;
        let shared = Run::default();
        let work = |process: usize| {
            let rng = Rng::from_seed(seed.wrapping_add(process as u64));
            let mut caller = Caller { client: connect()?, process, run: &shared, rng, steps: Vec::new() };
            (0..attempts).map(|_| caller.attempt()).collect::<Result<Vec<_>, String>>()
        };
        let work = &work;
        let results: Result<Vec<_>, String> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|process| scope.spawn(move || work(process))).collect();
            clients.into_iter().map(|client| client.join().expect("no panic")).collect()
        });
        results.map(|of_clients| of_clients.concat())
    })?;
    let committed = all.iter().filter(|attempt| attempt.is_committed).count();
    let written = all.iter().filter(|attempt| attempt.is_committed && !attempt.is_read_only).count();
    eprintln!("{setting}: {committed} of {} committed, {written} with writes", all.len());
    if committed < all.len() / 2 || written < all.len() / 8 {
        return Err(format!("only {committed} of {} committed, {written} with writes", all.len()));
    }
    check_history(DataModel::Lists, &all, Promised { is_strict: setting.strict, is_fresh: true })
}

#[test]
fn statements_and_transactions_are_serializable_to_their_clients() {
    let seed = seed("server");
    let attempts = seriatim::rng::tries(60, 400);
    for setting in matrix(seed) {
        for round in 0..rounds() {
            run(&setting, attempts, seed ^ round).unwrap_or_else(|fault| panic!("{setting}, seed {seed}: {fault}"));
        }
    }
}
