//! Clients that wait for rows of each other.

use std::time::Duration;

use super::*;

impl Raw {
    /// Sends a query, whose answer is read later.
    fn ask(&mut self, text: &str) {
        self.send(&query(text));
    }

    /// The answer to a query: its rows' first values and its tags, or the code of its error.
    fn answered(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let (tag, body) = self.answer();
            match tag {
                b'Z' => return all,
                b'E' => all.push(field(&body, b'C')),
                b'C' => all.push(String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned()),
                b'D' => {
                    all.push(String::from_utf8_lossy(values(&body).expect("a row")[0].unwrap_or(b"null")).into_owned())
                }
                _ => {}
            }
        }
    }

    fn run(&mut self, text: &str) -> Vec<String> {
        self.ask(text);
        self.answered()
    }
}

/// A connection, and what cancels its statements.
fn connect(port: u16) -> (Raw, Vec<u8>) {
    let mut raw = Raw(std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens"));
    raw.send(&startup(b"user\0postgres\0database\0postgres\0\0"));
    let mut key = Vec::new();
    loop {
        match raw.answer() {
            (b'Z', _) => return (raw, key),
            (b'K', body) => key = body,
            _ => {}
        }
    }
}

/// Asks a server to cancel what the session of this key runs. When it returns, the server has done so.
fn cancel(port: u16, key: &[u8]) {
    let mut raw = Raw(std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens"));
    let code = 80_877_102_u32.to_be_bytes();
    raw.send(&[&16_u32.to_be_bytes()[..], &code, key].concat());
    assert_eq!(raw.0.read(&mut [0; 1]).expect("it is closed"), 0);
}

/// What two clients are told does not depend on when the second one comes. PostgreSQL says the same.
#[test]
fn the_second_change_of_a_row_comes_after_the_first_as_in_postgresql() {
    let Some((ours, theirs, our_raw, their_raw)) = both() else { return };
    drop((our_raw, their_raw));
    for (port, is_ours) in [(ours.address.port(), true), (theirs.port(), false)] {
        let [(mut a, _), (mut b, key), (mut c, _)] = [(); 3].map(|()| connect(port));
        a.run("create table waits (id int primary key, n int); insert into waits values (1, 0), (2, 0), (3, 0)");
        for second in [
            "update waits set n = n + 1 where id = 1 returning n",
            "select n from waits where id = 1 for update",
            "insert into waits values (1, 7) on conflict (id) do update set n = waits.n + 1 returning n",
        ] {
            a.run("update waits set n = 0 where id = 1");
            assert_eq!(a.run("begin; update waits set n = 7 where id = 1"), ["BEGIN", "UPDATE 1"]);
            assert_eq!(b.run("begin"), ["BEGIN"]);
            b.ask(second);
            // A third one, in the extended protocol and in a transaction of its own, and whoever does not wait.
            let update = "update waits set n = n + $1 where id = 1 returning n";
            let messages = [parse("", update, &[23]), bind("", "", 0, &[Some(b"3")], 0), execute("", 0), sync()];
            assert_eq!(c.run("begin; select n from waits where id = 1 for update nowait"), ["BEGIN", "55P03"]);
            c.run("rollback");
            let skipping = "select id from waits where id < 3 order by id for update skip locked";
            assert_eq!(c.run(skipping), ["2", "SELECT 1"]);
            assert_eq!(a.run("commit"), ["COMMIT"]);
            let first = if second.starts_with("select") { "7" } else { "8" };
            assert_eq!(b.answered()[0], first, "{second}, ours: {is_ours}");
            c.send(&messages.concat());
            assert_eq!(b.run("commit"), ["COMMIT"]);
            let last = if first == "7" { "10" } else { "11" };
            assert_eq!(c.answered(), [last, "UPDATE 1"], "{second}, ours: {is_ours}");
        }
        // Whoever closes a cycle is refused. Who that is depends on who comes last.
        a.run("begin; update waits set n = 1 where id = 1");
        b.run("begin; update waits set n = 1 where id = 2");
        a.ask("update waits set n = 1 where id = 2");
        b.ask("update waits set n = 1 where id = 1");
        // It holds nothing then, so the other one goes on.
        let mut said = [a.answered(), b.answered()].concat();
        said.sort();
        assert_eq!(said, ["40P01", "UPDATE 1"], "ours: {is_ours}");
        a.run("rollback");
        b.run("rollback");
        // Limits of time, and a cancellation.
        a.run("begin; update waits set n = 1 where id = 1");
        let update = "update waits set n = 2 where id = 1";
        assert_eq!(b.run(&format!("set lock_timeout = 5; begin; {update}")), ["SET", "BEGIN", "55P03"]);
        assert_eq!(b.run(update), ["25P02"]);
        b.run("rollback");
        assert_eq!(b.run("set lock_timeout = 0; set statement_timeout = 5"), ["SET", "SET"]);
        assert_eq!(b.run(update), ["57014"]);
        assert_eq!(b.run("set statement_timeout = 0; begin"), ["SET", "BEGIN"]);
        b.ask(update);
        let mut cancelled = Vec::new();
        // PostgreSQL ignores one that comes before the statement.
        b.0.set_read_timeout(Some(Duration::from_millis(20))).expect("it is no zero");
        while cancelled.is_empty() {
            cancel(port, &key);
            if b.0.peek(&mut [0; 1]).is_ok() {
                b.0.set_read_timeout(None).expect("it is none");
                cancelled = b.answered();
            }
        }
        assert_eq!((cancelled, b.run("rollback")), (vec!["57014".to_owned()], vec!["ROLLBACK".to_owned()]));
        // A client that goes away leaves the queue, and its locks.
        b.run("begin; select n from waits where id = 3 for update");
        b.ask(update);
        c.ask("begin; update waits set n = 5 where id in (1, 3); commit; select n from waits where id = 1");
        drop(b);
        assert_eq!(a.run("commit"), ["COMMIT"]);
        assert_eq!(c.answered(), ["BEGIN", "UPDATE 2", "COMMIT", "5", "SELECT 1"], "ours: {is_ours}");
        a.run("drop table waits");
    }
}

/// The threads of this process.
fn threads() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:")).expect("it is told");
    line.trim().parse().expect("a number")
}

#[test]
fn five_hundred_clients_on_four_rows_need_few_threads_and_lose_nothing() {
    const CLIENTS: usize = 500;
    let database = Database::builder().workers(16).open().expect("there is memory");
    let settings = Settings { connections_max: CLIENTS + 1, ..Settings::default() };
    let server = Server::start_at("127.0.0.1:0", database, settings);
    let port = server.address.port();
    let mut holder = Raw::connect(port);
    holder.run("create table hot (id int primary key, n int); insert into hot values (0, 0), (1, 0), (2, 0), (3, 0)");
    let mut clients: Vec<Raw> = (0..CLIENTS).map(|_| Raw::connect(port)).collect();
    let (before, mut most) = (threads(), 0);
    assert_eq!(holder.run("begin; select id from hot order by id for update").len(), 6);
    for (at, client) in clients.iter_mut().enumerate() {
        let update = format!("update hot set n = n + 1 where id = {}", at % 4);
        match at % 3 {
            0 => client.ask(&update),
            1 => client.ask(&format!("begin; {update}; commit")),
            _ => {
                let parts = [parse("", &update, &[]), bind("", "", 0, &[], 0), execute("", 0), sync()];
                client.send(&[query("begin"), parts.concat(), query("commit")].concat());
            }
        }
        most = most.max(threads());
    }
    for _ in 0..20 {
        // Others are served meanwhile.
        assert_eq!(holder.run("select 1"), ["1", "SELECT 1"]);
        most = most.max(threads());
    }
    assert_eq!(holder.run("commit"), ["COMMIT"]);
    for (at, client) in clients.iter_mut().enumerate() {
        let answers: Vec<String> = (0..if at % 3 == 2 { 3 } else { 1 }).flat_map(|_| client.answered()).collect();
        let wanted: &[&str] = if at % 3 == 0 { &["UPDATE 1"] } else { &["BEGIN", "UPDATE 1", "COMMIT"] };
        assert_eq!(answers, wanted, "client {at}");
        most = most.max(threads());
    }
    assert_eq!(holder.run("select sum(n) from hot"), [CLIENTS.to_string(), "SELECT 1".to_owned()]);
    // Some are of other tests.
    assert!(most < before + seriatim_server::THREADS_MAX + 32, "{before} threads became {most}");
}

#[test]
fn clients_of_pgbench_on_one_branch_do_not_fail() {
    if !are_installed() {
        return;
    }
    let server = Server::start(Settings::default());
    load_tpc_b(&server);
    let script = std::env::temp_dir().join(format!("seriatim-pgbench-waits-{}", std::process::id()));
    std::fs::write(&script, TPC_B).expect("there is space");
    for mode in ["simple", "prepared"] {
        let arguments = ["-n", "-M", mode, "-c", "8", "-j", "2", "-t", "50", "-f"];
        let arguments: Vec<&str> = arguments.into_iter().chain(script.to_str()).collect();
        let output = server.client("pgbench", &arguments);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let failed = said.lines().find_map(|line| line.strip_prefix("number of failed transactions: "));
        let failed: u32 = failed.and_then(|failed| failed.split(' ').next()?.parse().ok()).expect(&said);
        assert!(output.status.success() && failed < 4, "{mode}: {said}");
    }
    std::fs::remove_file(&script).expect("it exists");
    let sums = "select (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)";
    assert_eq!(server.psql(sums), "t\n");
}

/// A message that ends a wait needs no thread of those who wait.
#[test]
fn those_who_wait_for_a_change_of_tables_do_not_keep_its_commit_out() {
    const CLIENTS: usize = 80;
    let settings = Settings { connections_max: CLIENTS + 1, ..Settings::default() };
    let server = Server::start_at("127.0.0.1:0", Database::in_memory().expect("there is memory"), settings);
    let port = server.address.port();
    let mut holder = Raw::connect(port);
    assert_eq!(holder.run("begin; create table held (id int primary key)"), ["BEGIN", "CREATE TABLE"]);
    let mut clients: Vec<Raw> = (0..CLIENTS).map(|_| Raw::connect(port)).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.ask(&format!("create table own_{at} (id int primary key)"));
    }
    for _ in 0..20 {
        assert_eq!(holder.run("select 1"), ["1", "SELECT 1"]);
    }
    assert_eq!(holder.run("commit"), ["COMMIT"]);
    let failed = clients.iter_mut().map(Raw::answered).filter(|said| *said != ["CREATE TABLE"]).count();
    assert_eq!(failed, 0, "of {CLIENTS}");
}
