//! Unmodified clients: psql and pgbench, where they are installed.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use seriatim::Database;
use seriatim_server::Settings;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A server in this process, which ends with this.
struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    running: Option<std::thread::JoinHandle<Result<(), String>>>,
}

impl Server {
    fn start(settings: Settings) -> Server {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("there are threads");
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
                tell.send(listener.local_addr().expect("it is bound")).expect("somebody waits");
                let stop = async { drop(stopped.await) };
                let database = Database::in_memory().expect("there is memory");
                seriatim_server::serve(listener, database, settings, stop, std::future::pending()).await
            })
        });
        let address = told.recv().expect("it listens");
        Server { address, stop: Some(stop), running: Some(running) }
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(running) = self.running.take() {
            running.join().expect("no panic").expect("it served");
        }
    }

    fn client(&self, program: &str, arguments: &[&str]) -> Output {
        self.command(program, arguments).output().expect("it can be started")
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let program = seriatim_postgres::binaries().unwrap_or_else(|| PathBuf::from("/nonexistent")).join(program);
        let mut command = Command::new(program);
        command.env("PGHOST", "127.0.0.1").env("PGPORT", self.address.port().to_string());
        command.env("PGUSER", "postgres").env("PGDATABASE", "postgres").env("LC_ALL", "C");
        command.args(arguments);
        command
    }

    /// What psql prints.
    fn psql(&self, text: &str) -> String {
        self.psql_with(text, "")
    }

    /// What psql prints, which reads `input`.
    fn psql_with(&self, text: &str, input: &str) -> String {
        let arguments = ["-XAtq", "-v", "VERBOSITY=verbose", "-c", text];
        let mut command = self.command("psql", &arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut psql = command.spawn().expect("it can be started");
        // It may not read all if the server refuses it.
        let _ = psql.stdin.take().expect("it is piped").write_all(input.as_bytes());
        let output = psql.wait_with_output().expect("it ends");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether there are clients.
fn are_installed() -> bool {
    let are = seriatim_postgres::binaries().is_some();
    if !are {
        println!("skipped: the clients of PostgreSQL are not installed");
    }
    are
}

#[test]
fn psql_runs_statements_and_sees_rows_notices_and_errors() {
    if !are_installed() {
        return;
    }
    let server = Server::start(Settings::default());
    assert_eq!(server.psql("create table t (id int primary key, name text, n numeric(6, 2))"), "");
    assert_eq!(server.psql("insert into t values (1, 'ann', 1.5), (2, null, -3) returning id"), "1\n2\n");
    assert_eq!(server.psql("select * from t order by id"), "1|ann|1.50\n2||-3.00\n");
    assert_eq!(server.psql("select version()").split(' ').next(), Some("PostgreSQL"));
    let failed = server.psql("insert into t values (1)");
    assert!(failed.starts_with("ERROR:  23505: "), "{failed}");
    let failed = server.psql("select nothing from t");
    assert!(failed.starts_with("ERROR:  42703: column \"nothing\" does not exist"), "{failed}");
    assert!(server.psql("drop table if exists other").starts_with("NOTICE:"), "a table that is missing is told");
    let script = "begin; delete from t; rollback; select count(*) from t";
    assert_eq!(server.psql(script), "2\n");
    let output = server.client("psql", &["-X", "-c", "select id, name from t where id = 1"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(table, " id | name \n----+------\n  1 | ann\n(1 row)\n\n");
    let refused = server.client("psql", &["-X", "-U", "mallory", "-c", "select 1"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("role \"mallory\" does not exist"));
}

#[test]
fn pgbench_runs_its_script_in_each_mode_of_the_protocol() {
    if !are_installed() {
        return;
    }
    let server = Server::start(Settings::default());
    let tables = "create table pgbench_branches (bid int not null primary key, bbalance int, filler char(88));
        create table pgbench_tellers (tid int not null primary key, bid int, tbalance int, filler char(84));
        create table pgbench_accounts (aid int not null primary key, bid int, abalance int, filler char(84));
        create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22),
          primary key (tid, aid, mtime));";
    for table in tables.split(';') {
        assert_eq!(server.psql(table), "");
    }
    assert_eq!(
        server.psql(
            "insert into pgbench_branches values (1, 0);
             insert into pgbench_tellers select x, 1, 0 from generate_series(1, 10) as x;
             insert into pgbench_accounts select x, 1, 0, '' from generate_series(1, 1000) as x"
        ),
        ""
    );
    let mut done = 0;
    for mode in ["simple", "extended", "prepared"] {
        let script = std::env::temp_dir().join(format!("seriatim-pgbench-{}-{mode}", std::process::id()));
        // The script of pgbench, without the history, whose rows have no key.
        let text = "\\set aid random(1, 1000)\n\\set tid random(1, 10)\n\\set delta random(-5000, 5000)\nBEGIN;\n\
            UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n\
            SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n\
            UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;\n\
            UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;\nEND;\n";
        std::fs::write(&script, text).expect("there is space");
        let arguments = ["-n", "-M", mode, "-c", "2", "-t", "50", "--max-tries", "1000", "-f"];
        let arguments: Vec<&str> = arguments.into_iter().chain(script.to_str()).collect();
        let output = server.client("pgbench", &arguments);
        std::fs::remove_file(&script).expect("it exists");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{mode}: {said}");
        assert!(said.contains("number of transactions actually processed: 100/100"), "{mode}: {said}");
        done += 100;
        let sum = |table: &str, column: &str| server.psql(&format!("select sum({column}) from {table}"));
        let accounts = sum("pgbench_accounts", "abalance");
        assert_eq!(accounts, sum("pgbench_tellers", "tbalance"));
        assert_eq!(accounts, sum("pgbench_branches", "bbalance"));
    }
    assert_eq!(done, 300);
    // Only reads, by the built-in script.
    let output = server.client("pgbench", &["-n", "-S", "-M", "prepared", "-s", "1", "-c", "2", "-t", "100"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("number of transactions actually processed: 200/200"), "{said}");
}

#[test]
fn connections_have_a_most_and_end_with_the_server() {
    if !are_installed() {
        return;
    }
    let mut server = Server::start(Settings { connections_max: 1, ..Settings::default() });
    let mut command = server.command("psql", &["-XAtq"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut waiting = command.spawn().expect("it can be started");
    let (mut input, mut output) = (waiting.stdin.take().expect("piped"), waiting.stdout.take().expect("piped"));
    writeln!(input, "select 7;").expect("it reads");
    let mut answer = [0; 2];
    output.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"7\n");
    assert!(server.psql("select 1").contains("too many clients"));
    server.stop();
    drop(input);
    waiting.wait().expect("it ends");
}

#[test]
fn rows_are_copied_in_and_out() {
    if !are_installed() {
        return;
    }
    let server = Server::start(Settings::default());
    assert_eq!(server.psql("create table t (id int primary key, word text, at date)"), "");
    let lines = "1\ta\\tb\t2026-11-30\n2\t\\N\t\\N\n3\t\t\\N\n";
    assert_eq!(server.psql_with("copy t from stdin", lines), "");
    assert_eq!(server.psql("copy t to stdout"), lines);
    assert_eq!(
        server.psql("copy (select id, word from t where id > 1 order by id desc) to stdout csv"),
        "3,\"\"\n2,\n"
    );
    let csv = "word;id\n\"x;\"\"y\"\"\";4\n;5\n";
    assert_eq!(server.psql_with("copy t (word, id) from stdin (format csv, delimiter ';', header on)", csv), "");
    assert_eq!(server.psql("select word from t where id = 4"), "x;\"y\"\n");
    // One wrong line, and nothing is copied.
    for (wrong, state) in
        [("6\ta\t\\N\n1\ta\t\\N\n", "23505"), ("6\ta\n", "22P04"), ("x\ta\t\\N\n", "22P02"), ("\\N\ta\t\\N\n", "23502")]
    {
        let failed = server.psql_with("copy t from stdin", wrong);
        assert!(failed.starts_with(&format!("ERROR:  {state}: ")), "{failed}");
    }
    assert_eq!(server.psql("select count(*) from t"), "5\n");
    assert!(server.psql("copy t from '/etc/passwd'").starts_with("ERROR:  0A000: "));
    assert!(server.psql_with("copy t from stdin; select 1", "").contains("ERROR:  0A000: "));
    // In a transaction of the client's.
    let script =
        "begin;\ncopy t from stdin;\n9\tz\t\\N\n\\.\nselect count(*) from t;\nrollback;\nselect count(*) from t;\n";
    let mut command = server.command("psql", &["-XAtq"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut psql = command.spawn().expect("it can be started");
    psql.stdin.take().expect("it is piped").write_all(script.as_bytes()).expect("it reads");
    assert_eq!(String::from_utf8_lossy(&psql.wait_with_output().expect("it ends").stdout), "6\n5\n");
}
