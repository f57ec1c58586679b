//! The middle tier with a real PostgreSQL server: clients see no difference, and no money is lost.

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use seriatim_middle_tier::{Acceptor, Batching, Settings, Upstream};
use seriatim_wire::message::encode;
use seriatim_wire::messages::extendedquery::{Bind, Execute, Parse, Sync};
use seriatim_wire::messages::response::{CommandComplete, ReadyForQuery, TransactionStatus};
use seriatim_wire::messages::simplequery::Query;
use seriatim_wire::messages::startup::{Authentication, BackendKeyData, ParameterStatus, SecretKey};
use support::{Answer, Client, MiddleTier, Postgres, cancel, succeed};
use tokio::net::TcpSocket;

const TEMPLATES: &str = r#"
[[template]]
name = "transfer"
parameters = { from = "integer", to = "integer", number = "integer" }
statements = [
    "UPDATE accounts SET balance = balance - 1 WHERE id = :from",
    "UPDATE accounts SET balance = balance + 1 WHERE id = :to",
    "INSERT INTO transfers VALUES (:number, :from, :to)",
]
writes = ["accounts/:from", "accounts/:to"]
retry = 100
"#;

const TABLES: &str = "drop table if exists accounts, transfers;
    create table accounts (id int primary key, balance bigint not null);
    create table transfers (number bigint, origin int, target int);
    insert into accounts select id, 100 from generate_series(1, 8) id;
    grant all on accounts, transfers to public";

/// How long a test waits for an event that must come.
const PATIENCE: Duration = Duration::from_secs(120);

fn batches(wait: Duration) -> Option<Batching> {
    let hold = Duration::from_secs(600);
    Some(Batching { size: NonZeroUsize::new(50).expect("not zero"), wait, hold })
}

fn transfer(number: usize, from: usize, to: usize) -> String {
    format!(
        "BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE accounts SET balance = balance - 1 WHERE id = {from}; \
         UPDATE accounts SET balance = balance + 1 WHERE id = {to}; INSERT INTO transfers VALUES ({number}, {from}, \
         {to}); COMMIT"
    )
}

/// Checks the sum of all balances, and each balance against its transfers.
fn audit(postgres: &Postgres) {
    assert_eq!(postgres.psql("select sum(balance) from accounts"), "800");
    let wrong = "select count(*) from accounts a where balance <> 100
        + (select count(*) from transfers where target = a.id) - (select count(*) from transfers where origin = a.id)";
    assert_eq!(postgres.psql(wrong), "0");
}

/// Output without the number of the session's temporary schema, which depends on earlier sessions.
fn unnumbered(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed).into_owned();
    let mut parts = text.split("pg_temp_");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "pg_temp_" + part.trim_start_matches(|letter: char| letter.is_ascii_digit()))
}

#[test]
fn psql_sees_no_difference() {
    let Some(postgres) = Postgres::start("passing", "") else { return };
    let tier = MiddleTier::start(&postgres.url(), TEMPLATES, batches(Duration::from_millis(1)), None);
    let script = postgres.folder().join("script.sql");
    std::fs::write(&script, include_str!("support/session.sql")).expect("a file");
    let seen = |port: u16| {
        let mut psql = postgres.program("psql", port, "secret", "application_name=script sslmode=disable");
        let output = psql.arg("-a").arg("-f").arg(&script).output().expect("psql starts");
        (unnumbered(&output.stdout), unnumbered(&output.stderr))
    };
    let (direct, through) = (seen(postgres.port), seen(tier.address.port()));
    assert!(direct.0.contains("the end") && direct.1.contains("division by zero"), "{direct:?}");
    assert_eq!(direct, through);
    // The server checks passwords, and it knows the user.
    let mut wrong = postgres.program("psql", tier.address.port(), "secret", "sslmode=disable");
    let output = wrong.env("PGPASSWORD", "wrong").args(["-c", "select 1"]).output().expect("psql starts");
    assert!(String::from_utf8_lossy(&output.stderr).contains("password authentication failed"), "{output:?}");
    let mut large = postgres.program("psql", tier.address.port(), "secret", "sslmode=disable");
    let output = succeed(large.args(["-Atc", "select repeat('x', 20000000), session_user"]));
    assert_eq!(output.stdout.len(), 20_000_000 + "|secret\n".len());
    assert_eq!(tier.counted().matched, 0);
}

#[test]
fn money_is_kept_under_concurrent_transfers_in_every_form() {
    let Some(postgres) = Postgres::start("bank", "max_connections = 40") else { return };
    for batching in [batches(Duration::from_millis(2)), None] {
        let tier = MiddleTier::start(&postgres.url(), TEMPLATES, batching, None);
        let pipeline = "\\set from random(1, 8)\n\\set to random(1, 8)\n\\set n random(1, 1000000)\n\\startpipeline\n\
            BEGIN ISOLATION LEVEL SERIALIZABLE;\nUPDATE accounts SET balance = balance - 1 WHERE id = :from;\n\
            UPDATE accounts SET balance = balance + 1 WHERE id = :to;\nINSERT INTO transfers VALUES (:n, :from, \
            :to);\nCOMMIT;\n\\endpipeline\n";
        let message = pipeline.replace("\\startpipeline\n", "").replace("\\endpipeline\n", "").replace(";\n", "\\;\n");
        let message = message.replace("COMMIT\\;", "COMMIT;");
        for (mode, script) in [("extended", pipeline), ("prepared", pipeline), ("simple", &message)] {
            postgres.psql(TABLES);
            let file = postgres.folder().join("script.bench");
            std::fs::write(&file, script).expect("a file");
            let before = tier.counted();
            let mut pgbench = postgres.program("pgbench", tier.address.port(), "plain", "");
            let output = succeed(pgbench.args(["-n", "-c", "8", "-j", "2", "-t", "60", "-M", mode, "-f"]).arg(&file));
            let (text, after) = (String::from_utf8_lossy(&output.stdout), tier.counted());
            assert!(text.contains("actually processed: 480/480"), "{mode}: {text}{after:?}");
            assert_eq!(postgres.psql("select count(*) from transfers"), "480", "{mode}: each once");
            audit(&postgres);
            assert_eq!(after.matched - before.matched, 480, "{mode}");
            if batching.is_some() {
                // Templates name all conflicts, so no row conflict remains. Predicate locks are on pages.
                assert!(after.batches > before.batches && after.waited > before.waited, "{mode}: {after:?}");
            } else {
                assert!(after.batches == 0 && after.retried > before.retried, "{mode}: {after:?}");
            }
            assert_eq!(after.unknown + after.upstream_failures, 0);
        }
    }
}

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_crashed_upstream_loses_and_duplicates_no_transaction() {
    let Some(mut postgres) = Postgres::start("crash", "max_connections = 40") else { return };
    let tier = MiddleTier::start(&postgres.url(), TEMPLATES, batches(Duration::from_millis(1)), None);
    postgres.psql(TABLES);
    let (numbers, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let outcomes = Mutex::new(BTreeMap::<usize, Answer>::new());
    let count = |is: fn(&Answer) -> bool| outcomes.lock().expect("whole").values().filter(|answer| is(answer)).count();
    std::thread::scope(|scope| {
        for client in 0..6 {
            let (numbers, is_over, outcomes, address) = (&numbers, &is_over, &outcomes, tier.address);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let Ok(mut connection) = Client::connect(address) else {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    };
                    loop {
                        let number = numbers.fetch_add(1, Ordering::SeqCst);
                        let answer = connection.query(&transfer(number, number % 8 + 1, (number / 8 + client) % 8 + 1));
                        let is_complete = answer.is_complete;
                        outcomes.lock().expect("whole").insert(number, answer);
                        if !is_complete || is_over.load(Ordering::SeqCst) {
                            break;
                        }
                    }
                }
            });
        }
        // Clients end with this value, even after a panic.
        let _over = Over(&is_over);
        let run_to = |committed| {
            let until = Instant::now() + PATIENCE;
            while count(Answer::is_committed) < committed {
                assert!(Instant::now() < until, "{committed} transactions do not commit");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        // At least three times, and until an outcome was unknown to a client.
        for crash in 1..100 {
            run_to(40 * crash);
            if crash > 3 && count(Answer::is_unknown) > 0 {
                break;
            }
            postgres.kill();
            let refused = Client::connect(tier.address).err().expect("there is no server");
            assert_eq!((refused.errors, refused.is_complete), (vec!["08001".to_owned()], false));
            postgres.run();
        }
    });
    let there: Vec<usize> =
        postgres.psql("select number from transfers").lines().map(|line| line.parse().expect("a number")).collect();
    let outcomes = outcomes.into_inner().expect("whole");
    let (mut committed, mut unknown) = (0, 0);
    for (number, Answer { errors, .. }) in &outcomes {
        let times = there.iter().filter(|there| *there == number).count();
        match errors.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => {
                assert!(outcomes[number].is_committed(), "{number}: {:?}", outcomes[number]);
                assert_eq!(times, 1, "{number} was acknowledged");
                committed += 1;
            }
            _ if outcomes[number].is_unknown() => {
                assert!(times <= 1, "{number} is there {times} times");
                // A reported commit has happened, whatever comes after it.
                assert!(times == 1 || outcomes[number].tags.last().is_none_or(|tag| tag != "COMMIT"), "{number}");
                unknown += 1;
            }
            _ => assert_eq!(times, 0, "{number}: {errors:?}"),
        }
    }
    assert!(committed > 100 && unknown > 0, "{committed} committed, {unknown} unknown");
    assert_eq!(there.len(), there.iter().collect::<std::collections::BTreeSet<_>>().len());
    audit(&postgres);
}

#[test]
fn waiting_and_running_transactions_can_be_cancelled() {
    let Some(postgres) = Postgres::start("cancel", "") else { return };
    let mut tier = MiddleTier::start(&postgres.url(), TEMPLATES, batches(Duration::from_millis(1)), None);
    postgres.psql(TABLES);
    let connect = || Client::connect(tier.address).unwrap_or_else(|answer| panic!("{answer:?}"));
    let (mut blocker, mut first, mut second) = (connect(), connect(), connect());
    // One transaction waits in the server for a lock, and the other waits in the middle tier for the first.
    assert_eq!(blocker.query("begin; select * from accounts where id = 1 for update").tags, ["BEGIN", "SELECT 1"]);
    let waits = |count: u64, matched: u64| {
        let until = Instant::now() + PATIENCE;
        let locked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        while postgres.psql(locked) != count.to_string() || tier.counted().matched != matched {
            assert!(Instant::now() < until, "{:?}", tier.counted());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let sent = |number| encode(&Query::new(transfer(number, 1, 2)));
    first.send(&sent(1));
    waits(1, 1);
    second.send(&sent(2));
    waits(1, 2);
    cancel(tier.address, &second.key);
    assert_eq!(second.answer().errors, ["57014"]);
    assert_eq!(tier.counted().cancelled, 1);
    cancel(tier.address, &first.key);
    let answer = first.answer();
    assert_eq!((answer.errors, answer.is_complete), (vec!["57014".to_owned()], true));
    assert_eq!(tier.counted().cancelled, 1, "the server has cancelled this one");
    assert_eq!(first.query("rollback").tags, ["ROLLBACK"]);
    // A waiting transaction runs when the client of the conflicting one has gone, with or without a goodbye.
    first.send(&sent(3));
    waits(1, 3);
    second.send(&sent(4));
    waits(1, 4);
    drop(first);
    assert_eq!(blocker.query("commit").tags, ["COMMIT"]);
    assert!(second.answer().is_committed());
    assert_eq!(postgres.psql("select string_agg(number::text, ' ' order by number) from transfers"), "3 4");
    audit(&postgres);
    // At the limit no more clients are accepted, but present ones can still cancel.
    let mut others = Vec::new();
    while others.len() < support::CLIENTS_MAX - 2 {
        // A client that has left may still be counted.
        others.extend(Client::connect(tier.address));
    }
    let refused = Client::connect(tier.address).err().expect("there is no room");
    assert_eq!(refused.errors, ["53300"]);
    others[0].send(&encode(&Query::new("select pg_sleep(3600)".into())));
    while postgres.psql("select count(*) from pg_stat_activity where wait_event = 'PgSleep'") != "1" {
        std::thread::sleep(Duration::from_millis(10));
    }
    cancel(tier.address, &others[0].key);
    assert_eq!(others[0].answer().errors, ["57014"]);
    drop(others);
    // At the end, clients are disconnected between transactions, or when their transactions have ended.
    assert_eq!(blocker.query("begin").tags, ["BEGIN"]);
    tier.stop();
    assert_eq!(second.answer().errors, ["57P01"]);
    assert_eq!(blocker.query("select 1").tags, ["SELECT 1"]);
    assert_eq!(blocker.query("commit").tags, ["COMMIT"]);
    assert_eq!(blocker.answer().errors, ["57P01"]);
    assert!(tier.has_ended());
}

#[test]
fn a_client_that_does_not_end_or_has_gone_delays_no_other_for_long() {
    let Some(postgres) = Postgres::start("hold", "") else { return };
    let batching = |hold| batches(Duration::from_millis(1)).map(|batching| Batching { hold, ..batching });
    let start = |hold| MiddleTier::start(&postgres.url(), TEMPLATES, batching(hold), None);
    let (short, long) = (start(Duration::from_millis(50)), start(Duration::from_secs(600)));
    postgres.psql(TABLES);
    let connect = |tier: &MiddleTier| Client::connect(tier.address).unwrap_or_else(|answer| panic!("{answer:?}"));
    let wait = |what: &dyn Fn() -> bool| {
        let until = Instant::now() + PATIENCE;
        while !what() {
            assert!(Instant::now() < until, "{:?} {:?}", short.counted(), long.counted());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let locked = || postgres.psql("select count(*) from pg_stat_activity where wait_event_type = 'Lock'");
    let sent = |number| encode(&Query::new(transfer(number, 1, 2)));
    let mut blocker = connect(&short);
    assert_eq!(blocker.query("begin; select * from accounts where id = 1 for update").tags, ["BEGIN", "SELECT 1"]);
    let (mut first, mut second) = (connect(&short), connect(&short));
    first.send(&sent(1));
    wait(&|| locked() == "1");
    second.send(&sent(2));
    // Both wait in the server, which would detect a deadlock.
    wait(&|| locked() == "2");
    assert_eq!(short.counted().overdue, 1);
    // A client that has gone without reading its answers closes the connection at once. No other waits for its
    // transaction.
    let (mut third, mut gone) = (connect(&long), connect(&long));
    third.send(&sent(3));
    wait(&|| locked() == "3");
    gone.send(&encode(&Query::new("select 1".into())));
    wait(&|| postgres.psql("select count(*) from pg_stat_activity where query = 'select 1' and state = 'idle'") == "1");
    gone.send(&sent(4));
    wait(&|| long.counted().matched == 2);
    drop(gone);
    wait(&|| long.counted().cancelled == 1);
    assert_eq!(blocker.query("commit").tags, ["COMMIT"]);
    for client in [&mut first, &mut second, &mut third] {
        assert!(client.answer().is_committed());
    }
    assert_eq!(postgres.psql("select string_agg(number::text, ' ' order by number) from transfers"), "1 2 3");
    audit(&postgres);
}

#[test]
fn both_sides_can_be_encrypted() {
    let tls = "ssl = on\nssl_cert_file = '../server.pem'\nssl_key_file = '../server.key'";
    let Some(postgres) = Postgres::start("tls", "") else { return };
    let [certificate, key] = ["server.pem", "server.key"].map(|name| postgres.folder().join(name));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"]);
    openssl
        .args(["subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key);
    if openssl.arg("-out").arg(&certificate).output().is_err() {
        seriatim_base::talk!("skipped: no openssl to make a certificate with; `apt-get install openssl`");
        return;
    }
    let pem = |path| std::fs::read(path).expect("openssl has made it");
    let (certificates, keys) = (pem(&certificate), pem(&key));
    let mut postgres = postgres;
    postgres.kill();
    postgres.adopt(&key);
    let settings = std::fs::OpenOptions::new().append(true).open(postgres.folder().join("data/postgresql.conf"));
    settings.and_then(|mut file| file.write_all(tls.as_bytes())).expect("its configuration");
    postgres.run();
    let acceptor = || Some(Acceptor::new(&certificates, &keys).expect("they belong together"));
    let upstream = |host: &str, mode: &str| {
        let root = if mode.starts_with("verify") { "&sslrootcert=here" } else { "" };
        let url = format!("postgres://{host}:{}?sslmode={mode}{root}&connect_timeout=120", postgres.port);
        let mut upstream = Upstream::parse(&url).expect("it is one");
        if upstream.root().is_some() {
            upstream.verify(&certificates).expect("it is a root");
        }
        upstream
    };
    let asks = |tier: &MiddleTier, settings: &str| {
        let text = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        let mut psql = postgres.program("psql", tier.address.port(), "secret", settings);
        let output = psql.args(["-Atc", text]).output().expect("psql starts");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        if output.status.success() { Ok(said[0].clone()) } else { Err(said[1].clone()) }
    };
    let encrypted = |said: &str| Ok(said.to_owned());
    // What psql reports of its connection.
    let connection = |tier: &MiddleTier, settings: &str| {
        let mut psql = postgres.program("psql", tier.address.port(), "secret", settings);
        let output = psql.args(["-c", "\\conninfo"]).output().expect("psql starts");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        if output.status.success() { Ok(said[0].clone()) } else { Err(said[1].clone()) }
    };
    // If both sides may use TLS, the middle tier requires it. Otherwise psql with its defaults would connect
    // without TLS.
    for mode in ["prefer", "require"] {
        let settings = Settings { tls: acceptor(), ..Settings::new(upstream("127.0.0.1", mode)) };
        assert!(settings.check().is_err_and(|error| error.contains("--tls-require")), "{mode}");
    }
    for (host, mode, ssl) in
        [("127.0.0.1", "disable", "f"), ("127.0.0.1", "prefer", "t"), ("localhost", "verify-full", "t")]
    {
        let tier = MiddleTier::of(upstream(host, mode), "", None, acceptor(), ssl == "t");
        match ssl {
            "f" => assert_eq!(asks(&tier, "sslmode=disable"), encrypted("f"), "{mode}"),
            _ => assert!(asks(&tier, "sslmode=disable").is_err_and(|error| error.contains("requires TLS")), "{mode}"),
        }
        // With its defaults psql either uses TLS or is refused with the reason.
        match (ssl, connection(&tier, "")) {
            ("f", Ok(said)) => assert!(said.contains("SSL connection"), "{mode}: {said}"),
            ("t", Err(error)) => {
                assert!(error.contains("channel_binding=disable") && error.contains("requires TLS"), "{mode}: {error}");
            }
            (_, said) => panic!("{mode}: {said:?}"),
        }
        let said = connection(&tier, "channel_binding=disable");
        assert!(said.as_ref().is_ok_and(|said| said.contains("SSL connection")), "{mode}: {said:?}");
        assert_eq!(asks(&tier, "sslmode=require channel_binding=disable"), encrypted(ssl), "{mode}");
        let root = certificate.display();
        let full = format!("sslmode=verify-ca sslrootcert={root} channel_binding=disable");
        assert_eq!(asks(&tier, &full), encrypted(ssl), "{mode}");
        // With TLS on both sides, SCRAM with channel binding would detect the proxy.
        let bound = asks(&tier, "sslmode=require");
        match ssl {
            "f" => assert_eq!(bound, encrypted("f")),
            _ => assert!(bound.is_err_and(|error| error.contains("channel_binding=disable")), "{mode}"),
        }
        assert!(asks(&tier, "sslmode=require channel_binding=require").is_err());
    }
    // A certificate for localhost is not valid for an address. A self-signed certificate has no other root.
    let tier = MiddleTier::of(upstream("127.0.0.1", "verify-full"), "", None, None, false);
    assert!(asks(&tier, "sslmode=prefer").is_err_and(|error| error.contains("certificate")));
    let tier = MiddleTier::of(upstream("127.0.0.1", "verify-ca"), "", None, None, false);
    assert_eq!(asks(&tier, "sslmode=prefer"), encrypted("t"), "a chain has no name");
    assert!(asks(&tier, "sslmode=require").is_err_and(|error| error.contains("does not support SSL")));
    // A client that must use TLS and does not is refused before the server sees anything.
    let tier = MiddleTier::of(upstream("127.0.0.1", "disable"), "", None, acceptor(), true);
    assert!(
        asks(&tier, "sslmode=disable").is_err_and(|error| error.contains("sslmode=require")),
        "{:?}",
        tier.counted()
    );
    assert_eq!(asks(&tier, "sslmode=require"), encrypted("f"));
    let said = connection(&tier, "");
    assert!(said.as_ref().is_ok_and(|said| said.contains("SSL connection")), "by its defaults: {said:?}");
    assert_eq!((tier.counted().clients, tier.counted().refused), (2, 1));
}

/// The upstream may not be a PostgreSQL server.
#[test]
fn an_upstream_that_is_not_postgresql_is_reported() {
    // The port is bound, so that no other process gets it, and no process listens there.
    let closed = TcpSocket::new_v4().expect("a socket");
    closed.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = closed.local_addr().expect("it is bound");
    let tier = MiddleTier::start(&format!("postgres://{address}"), "", None, None);
    let refused = Client::connect(tier.address).err().expect("there is no server");
    assert_eq!((refused.errors, refused.is_complete), (vec!["08001".to_owned()], false));
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("postgres://{}?connect_timeout=1", mute.local_addr().expect("it is bound"));
    let tier = MiddleTier::start(&url, "", None, None);
    let began = Instant::now();
    let refused = Client::connect(tier.address).err().expect("there is no answer");
    assert_eq!(refused.errors, ["08001"]);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(tier.counted().upstream_failures, 1);
}

/// A simulated upstream. It accepts sessions, answers the first query of each with `messages` messages of a
/// commit, and closes the connection. Counts the queries in `queries`.
fn dying_upstream(listener: TcpListener, messages: usize, queries: &AtomicUsize) {
    let (mut stream, _) = listener.accept().expect("the middle tier connects");
    let length = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four")) as usize;
    let mut header = [0; 5];
    stream.read_exact(&mut header[..4]).expect("a first packet");
    stream.read_exact(&mut vec![0; length(&header[..4]) - 4]).expect("all of it");
    let key = BackendKeyData::new(1, SecretKey::I32(2));
    let parameter = ParameterStatus::new("standard_conforming_strings".into(), "on".into());
    let ready = || encode(&ReadyForQuery::new(TransactionStatus::Idle));
    let greeting = [encode(&Authentication::Ok), encode(&parameter), encode(&key), ready()].concat();
    stream.write_all(&greeting).expect("it is taken");
    stream.read_exact(&mut header).expect("a query");
    assert_eq!(header[0], b'Q');
    stream.read_exact(&mut vec![0; length(&header[1..]) - 4]).expect("all of it");
    queries.fetch_add(1, Ordering::SeqCst);
    let tags = ["BEGIN", "UPDATE 1", "UPDATE 1", "INSERT 0 1", "COMMIT"];
    let mut said: Vec<_> = tags.iter().map(|tag| encode(&CommandComplete::new((*tag).into()))).collect();
    said.push(ready());
    stream.write_all(&said[..messages].concat()).expect("it is taken");
}

#[test]
fn an_upstream_that_dies_within_an_answer_leaves_no_outcome_unreported() {
    for messages in 0..=6 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("postgres://{}?sslmode=disable", listener.local_addr().expect("it is bound"));
        let tier = MiddleTier::start(&url, TEMPLATES, batches(Duration::from_millis(1)), None);
        let queries = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| dying_upstream(listener, messages, &queries));
            let mut client = Client::connect(tier.address).unwrap_or_else(|answer| panic!("{answer:?}"));
            let mut answer = client.query(&transfer(1, 1, 2));
            if answer.is_complete {
                assert!(answer.is_committed() && messages == 6, "{messages}: {answer:?}");
                answer = client.answer();
            }
            let expected = if messages < 6 { "08007" } else { "08006" };
            assert_eq!((answer.errors, answer.is_complete), (vec![expected.to_owned()], false), "{messages}");
        });
        assert_eq!(queries.into_inner(), 1, "it was sent once");
        assert_eq!((tier.counted().matched, tier.counted().unknown), (1, u64::from(messages < 6)));
    }
}

/// Clients that the server considers idle are disconnected with the middle tier, whatever ignored messages they
/// have sent.
#[test]
fn clients_that_the_server_has_answered_do_not_delay_the_end() {
    let Some(postgres) = Postgres::start("idle", "") else { return };
    let mut tier = MiddleTier::start(&postgres.url(), TEMPLATES, batches(Duration::from_millis(1)), None);
    postgres.psql(TABLES);
    let connect = || Client::connect(tier.address).unwrap_or_else(|answer| panic!("{answer:?}"));
    let (mut copies, mut behind, mut part) = (connect(), connect(), connect());
    let sync = encode(&Sync::new());
    let copy = encode(&Query::new("copy transfers from stdin".into()));
    copies.send(&[&copy[..], &sync, b"d\0\0\0\x0a1\t1\t1\n", &sync, b"c\0\0\0\x04"].concat());
    assert_eq!(copies.answer().tags, ["COPY 1"]);
    let parse = encode(&Parse::new(None, "select 1".into(), vec![]));
    let bind = encode(&Bind::new(None, None, vec![], vec![], vec![]));
    let pipeline = [&parse[..], &bind, &encode(&Execute::new(None, 0)), &encode(&Query::new("select 2".into()))];
    behind.send(&pipeline.concat());
    assert_eq!(behind.answer().tags, ["SELECT 1", "SELECT 1"]);
    part.send(&copy[..9]);
    // A silent connection, and one that has not sent its password.
    let mut mute = TcpStream::connect(tier.address).expect("it listens");
    let mut asked = TcpStream::connect(tier.address).expect("it listens");
    asked.write_all(b"\0\0\0\x27\0\x03\0\0user\0secret\0database\0postgres\0\0").expect("the packet is accepted");
    asked.read_exact(&mut [0]).expect("the server asks for the password");
    tier.stop();
    for client in [&mut copies, &mut behind, &mut part] {
        assert_eq!(client.answer().errors, ["57P01"]);
    }
    assert_eq!(mute.read(&mut [0]).expect("an end"), 0);
    let mut said = Vec::new();
    asked.read_to_end(&mut said).expect("an end");
    assert!(said.windows(6).any(|field| field == b"C57P01"), "{}", said.escape_ascii());
    assert!(tier.has_ended());
}

/// Silent connections do not count as clients, and the oldest of too many is ended.
#[test]
fn silent_connections_exclude_no_client() {
    let closed = TcpSocket::new_v4().expect("a socket");
    closed.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let url = format!("postgres://{}", closed.local_addr().expect("it is bound"));
    let upstream = Upstream::parse(&url).expect("it is one");
    // A connection ends only when a newer one replaces it.
    let greeting_max = Duration::from_secs(86_400);
    let tier = MiddleTier::with(Settings { clients_max: 2, greeting_max, ..Settings::new(upstream) });
    let mut mute: Vec<_> = (0..6).map(|_| TcpStream::connect(tier.address).expect("it listens")).collect();
    for stream in &mut mute[..4] {
        assert_eq!(stream.read(&mut [0]).expect("an end"), 0);
    }
    // It is counted after the connection is closed.
    let until = Instant::now() + PATIENCE;
    while tier.counted().ungreeted < 4 {
        assert!(Instant::now() < until, "{:?}", tier.counted());
        std::thread::sleep(Duration::from_millis(5));
    }
    // The client is not refused, but gets the error that there is no server.
    let refused = Client::connect(tier.address).err().expect("there is no server");
    assert_eq!(refused.errors, ["08001"]);
    assert_eq!((tier.counted().clients, tier.counted().refused), (1, 0));
}
