//! Unmodified clients: psql and pgbench, where they are installed.

#[path = "clients/authentication.rs"]
mod authentication;
#[path = "clients/mutated.rs"]
mod mutated;
#[path = "clients/waits.rs"]
mod waits;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use seriatim::Database;
use seriatim_postgres::client::{field, message, startup, values};
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
        Server::start_at("127.0.0.1:0", Database::in_memory().expect("there is memory"), settings)
    }

    fn start_at(address: &'static str, database: Database, settings: Settings) -> Server {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            runtime.enable_all().thread_stack_size(seriatim_server::STACK_BYTES);
            runtime.max_blocking_threads(seriatim_server::THREADS_MAX);
            let runtime = runtime.build().expect("there are threads");
            runtime.block_on(async move {
                let listener = TcpListener::bind(address).await.expect("a port is free");
                tell.send(listener.local_addr().expect("it is bound")).expect("somebody waits");
                let stop = async { drop(stopped.await) };
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

/// The script of pgbench, for few accounts.
const TPC_B: &str = "\\set aid random(1, 1000)\n\\set tid random(1, 10)\n\\set delta random(-5000, 5000)\nBEGIN;\n\
    UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n\
    SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n\
    UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;\n\
    UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;\n\
    INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)\n\
      VALUES (:tid, 1, :aid, :delta, CURRENT_TIMESTAMP);\nEND;\n";

/// Makes the tables of pgbench, with rows.
fn load_tpc_b(server: &Server) {
    let initialize = |steps: &str| {
        let output = server.client("pgbench", &["-i", "-q", "-I", steps]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    // Tables without keys, which come when there are rows.
    initialize("dtv");
    assert_eq!(
        server.psql(
            "insert into pgbench_branches values (1, 0);
             insert into pgbench_tellers select x, 1, 0 from generate_series(1, 10) as x;
             insert into pgbench_accounts select x, 1, 0, '' from generate_series(1, 1000) as x"
        ),
        ""
    );
    initialize("pf");
}

#[test]
fn pgbench_runs_its_script_in_each_mode_of_the_protocol() {
    if !are_installed() {
        return;
    }
    let server = Server::start(Settings::default());
    load_tpc_b(&server);
    let twice = server.psql("insert into pgbench_branches values (1, 0)");
    assert!(twice.starts_with("ERROR:  23505: "), "{twice}");
    let mut done = 0;
    for mode in ["simple", "extended", "prepared"] {
        let script = std::env::temp_dir().join(format!("seriatim-pgbench-{}-{mode}", std::process::id()));
        std::fs::write(&script, TPC_B).expect("there is space");
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
        assert_eq!(accounts, sum("pgbench_history", "delta"));
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

/// A connection whose messages a test makes itself.
struct Raw(std::net::TcpStream);

impl Raw {
    fn connect(port: u16) -> Raw {
        let mut raw = Raw(std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens"));
        raw.send(&startup(b"user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0"));
        while raw.answer().0 != b'Z' {}
        raw
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
    }

    /// The next message of the server.
    fn answer(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; 5];
        self.0.read_exact(&mut header).expect("the server answers");
        let [tag, length @ ..] = header;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        self.0.read_exact(&mut body).expect("the server answers");
        (tag, body)
    }

    /// The answers to messages, as far as all servers give them, and the rows among them.
    fn talk(&mut self, messages: &[u8]) -> (Vec<String>, Vec<Vec<u8>>) {
        self.send(&[messages, &sync(), &query("rollback"), &query("select 'the end'")].concat());
        let (mut answers, mut rows) = (Vec::new(), Vec::new());
        let mut ends = false;
        loop {
            let (tag, body) = self.answer();
            match tag {
                b'Z' if ends => return (answers, rows),
                b'D' => {
                    ends |= body.ends_with(b"the end");
                    answers.push(format!("D {body:?}"));
                    rows.push(body);
                }
                b'S' | b'N' => {}
                b'E' => answers.push(format!("E {}", field(&body, b'C'))),
                b'T' => answers.push(format!("T {:?}", columns(&body))),
                b'C' => answers.push(format!("C {}", String::from_utf8_lossy(&body))),
                tag => answers.push(format!("{} {body:?}", char::from(tag))),
            }
        }
    }
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"])
}

fn sync() -> Vec<u8> {
    message(b'S', &[])
}

fn parse(name: &str, text: &str, types: &[u32]) -> Vec<u8> {
    let types: Vec<u8> = types.iter().flat_map(|ty| ty.to_be_bytes()).collect();
    let count = u16::try_from(types.len() / 4).expect("few").to_be_bytes();
    message(b'P', &[name.as_bytes(), b"\0", text.as_bytes(), b"\0", &count, &types])
}

/// Binds values, all of one format, for rows in another.
fn bind(portal: &str, statement: &str, format: u8, values: &[Option<&[u8]>], rows: u8) -> Vec<u8> {
    let count = u16::try_from(values.len()).expect("few").to_be_bytes();
    let mut of_values = Vec::new();
    for value in values {
        let length = value.map_or(-1, |value| i32::try_from(value.len()).expect("short"));
        of_values.extend(length.to_be_bytes());
        of_values.extend(value.unwrap_or_default());
    }
    let names = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0"].concat();
    message(b'B', &[&names, &[0, 1, 0, format], &count, &of_values, &[0, 1, 0, rows]])
}

fn describe(kind: u8, name: &str) -> Vec<u8> {
    message(b'D', &[&[kind], name.as_bytes(), b"\0"])
}

fn execute(portal: &str, most: i32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), b"\0", &most.to_be_bytes()])
}

fn close(kind: u8, name: &str) -> Vec<u8> {
    message(b'C', &[&[kind], name.as_bytes(), b"\0"])
}

/// Rows of two fields, as a message of a binary COPY.
fn binary_rows(rows: &[[&[u8]; 2]]) -> Vec<u8> {
    let field = |field: &&[u8]| [&u32::try_from(field.len()).expect("short").to_be_bytes(), *field].concat();
    let row = |row: &[&[u8]; 2]| [&[0, 2][..], &row.iter().flat_map(field).collect::<Vec<u8>>()].concat();
    message(b'd', &[b"PGCOPY\n\xff\r\n\0", &[0; 8], &rows.iter().flat_map(row).collect::<Vec<u8>>(), &[0xff; 2]])
}

/// Names, types, widths, modifiers and formats of columns.
fn columns(mut body: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut columns = Vec::new();
    body = &body[2..];
    while let Some(end) = body.iter().position(|byte| *byte == 0) {
        let (name, rest) = body.split_at(end);
        // The table of a column and its number there are told by PostgreSQL only.
        columns.push((String::from_utf8_lossy(name).into_owned(), rest[7..19].to_vec()));
        body = &rest[19..];
    }
    columns
}

/// Both servers, with a connection to each.
fn both() -> Option<(Server, seriatim_postgres::Server, Raw, Raw)> {
    let binaries = seriatim_postgres::binaries()?;
    let name = format!("wire-{:?}", std::thread::current().id());
    let theirs = seriatim_postgres::Server::start(binaries, &name, "", "").unwrap_or_else(|error| panic!("{error}"));
    let ours = Server::start(Settings::default());
    let (to_ours, to_theirs) = (Raw::connect(ours.address.port()), Raw::connect(theirs.port()));
    Some((ours, theirs, to_ours, to_theirs))
}

/// Each sequence of messages has the answers of PostgreSQL.
#[test]
fn messages_have_the_answers_of_postgresql() {
    if !are_installed() {
        return;
    }
    let Some((_server, _postgres, mut ours, mut theirs)) = both() else { return };
    let n = |text: &'static str| Some(text.as_bytes());
    let setup = [
        "create table t (id int primary key, s smallint, n numeric(8, 2), c char(4), v varchar(9))",
        "insert into t select x, 1, x, 'a', 'b' from generate_series(1, 5) as x",
    ];
    for text in setup {
        assert_eq!(ours.talk(&query(text)), theirs.talk(&query(text)), "{text}");
    }
    let sequences: &[(&str, &[Vec<u8>])] = &[
        (
            "empty queries",
            &[
                query(""),
                query(";"),
                query("-- ping"),
                parse("", "", &[]),
                bind("", "", 0, &[], 0),
                describe(b'P', ""),
                execute("", 0),
                sync(),
            ],
        ),
        ("several statements", &[query("select 1; select 2 as b; select x"), query("select 1; selec 2")]),
        (
            "a failure undoes the statements before",
            &[query("insert into t values (20); insert into t values (20)"), query("select count(*) from t")],
        ),
        (
            "transactions in a text",
            &[
                query("begin; insert into t values (30); commit; insert into t values (30)"),
                query("select count(*) from t; delete from t where id = 30"),
            ],
        ),
        (
            "descriptions",
            &[
                parse("d", "select id, s, n, c, v, id + 1, s + s, n * 2, 'x' from t where id = $1 and n < $2", &[]),
                describe(b'S', "d"),
                bind("p", "d", 0, &[n("1"), n("5")], 0),
                describe(b'P', "p"),
                execute("p", 0),
                sync(),
                describe(b'S', "d"),
                close(b'S', "d"),
                sync(),
                describe(b'S', "d"),
                sync(),
            ],
        ),
        (
            "binary COPY out",
            &[
                query("copy (select id, s, n, c, v from t order by id limit 2) to stdout (format binary)"),
                query("copy (select id from t where false) to stdout with binary"),
                query("copy (select null::int, 'x'::text) to stdout binary"),
            ],
        ),
        (
            "binary COPY in",
            &[
                query("copy t (id, v) from stdin (format binary)"),
                binary_rows(&[[&[0, 0, 0, 50], b"one"], [&[0, 0, 0, 51], b""]]),
                message(b'c', &[]),
                query("select id, v from t where id >= 50 order by id; delete from t where id >= 50"),
            ],
        ),
        (
            "binary COPY of other bytes",
            &[
                query("copy t (id, v) from stdin binary"),
                message(b'd', &[b"1\tone\n"]),
                message(b'c', &[]),
                query("copy t (id, v) from stdin binary"),
                binary_rows(&[[&[0, 0, 0, 0, 0, 0, 0, 50], b"one"]]),
                message(b'c', &[]),
                query("copy t (id, v) from stdin binary"),
                binary_rows(&[[&[0, 0, 0, 50], b"\xff"]]),
                message(b'c', &[]),
                query("copy t (id) from stdin binary"),
                binary_rows(&[[&[0, 0, 0, 50], b"one"]]),
                message(b'c', &[]),
                query("copy t (id, v) from stdin binary"),
                binary_rows(&[[&[0, 0, 0, 50], b"one"]]),
                message(b'd', &[b"more"]),
                message(b'c', &[]),
                query("copy t (id, v) from stdin (format binary, delimiter ',')"),
                query("select count(*) from t where id >= 50"),
            ],
        ),
        (
            "cursors of DECLARE",
            &[
                query("begin"),
                parse("", "declare c cursor for select id, v from t where id < $1 order by id", &[]),
                bind("", "", 0, &[n("4")], 0),
                execute("", 0),
                describe(b'P', "c"),
                sync(),
                query("fetch 2 from c"),
                close(b'P', "c"),
                sync(),
                query("fetch 1 from c"),
                query("rollback"),
            ],
        ),
        (
            "suspension",
            &[
                parse("", "select id from t order by id", &[]),
                bind("p", "", 0, &[], 0),
                execute("p", 2),
                execute("p", 2),
                execute("p", 1),
                execute("p", 1),
                execute("p", 0),
                sync(),
                execute("p", 0),
                sync(),
            ],
        ),
        (
            "a suspended portal in a transaction",
            &[
                query("begin"),
                parse("", "select id from t order by id", &[]),
                bind("p", "", 0, &[], 0),
                execute("p", 2),
                sync(),
                execute("p", 2),
                sync(),
                query("commit"),
                execute("p", 2),
                sync(),
            ],
        ),
        (
            "portals end with the transaction in the middle of a sequence",
            &[
                query("begin"),
                parse("", "select id from t order by id", &[]),
                bind("p", "", 0, &[], 0),
                execute("p", 2),
                parse("c", "commit", &[]),
                bind("", "c", 0, &[], 0),
                execute("", 0),
                execute("p", 2),
                sync(),
                close(b'S', "c"),
                sync(),
            ],
        ),
        (
            "a statement takes the name of one whose portal is open",
            &[
                parse("", "select id, v from t where id = $1", &[]),
                bind("p", "", 0, &[n("1")], 0),
                parse("", "select s, n, c from t where v = $1 and c = $2", &[]),
                execute("p", 0),
                bind("q", "", 0, &[n("b"), n("a   ")], 0),
                execute("q", 0),
                describe(b'P', "p"),
                sync(),
            ],
        ),
        (
            "a statement without rows is done once",
            &[
                parse("", "insert into t values (40)", &[]),
                bind("p", "", 0, &[], 0),
                execute("p", 0),
                execute("p", 0),
                sync(),
                query("select count(*) from t"),
            ],
        ),
        (
            "rows of a change",
            &[
                query("begin"),
                parse("", "update t set s = 2 where id < 4 returning id", &[]),
                bind("p", "", 0, &[], 1),
                execute("p", 2),
                execute("p", 2),
                execute("p", 2),
                sync(),
                query("rollback"),
            ],
        ),
        (
            "errors skip to the end",
            &[
                parse("", "select 1", &[]),
                bind("", "", 0, &[], 0),
                execute("", 0),
                parse("", "selec", &[]),
                execute("", 0),
                query("select 'skipped'"),
                message(b'H', &[]),
                sync(),
                query("select 'not skipped'"),
            ],
        ),
        (
            "an error undoes what came before it",
            &[
                parse("i", "insert into t values ($1)", &[]),
                bind("", "i", 0, &[n("50")], 0),
                execute("", 0),
                bind("", "i", 0, &[n("50")], 0),
                execute("", 0),
                bind("", "i", 0, &[n("51")], 0),
                execute("", 0),
                sync(),
                query("select count(*) from t"),
                close(b'S', "i"),
                sync(),
            ],
        ),
        (
            "a transaction that has failed",
            &[
                query("begin"),
                query("select 1 / 0"),
                query("select 1"),
                parse("", "select 1", &[]),
                sync(),
                parse("", "rollback", &[]),
                bind("", "", 0, &[], 0),
                execute("", 0),
                sync(),
            ],
        ),
        (
            "savepoints",
            &[
                query("begin; savepoint a; insert into t values (60); savepoint b"),
                query("select 1 / 0"),
                query("rollback to a"),
                query("select count(*) from t"),
                query("rollback to b"),
                query("release a"),
                query("rollback to a; release a; savepoint c"),
                query("commit"),
            ],
        ),
        (
            "names that are there, and that are not",
            &[
                parse("s", "select 1", &[]),
                parse("s", "select 2", &[]),
                sync(),
                bind("p", "x", 0, &[], 0),
                sync(),
                bind("p", "s", 0, &[], 0),
                bind("p", "s", 0, &[], 0),
                sync(),
                execute("x", 0),
                sync(),
                close(b'P', "x"),
                close(b'S', "x"),
                close(b'S', "s"),
                sync(),
            ],
        ),
        (
            "numbers of values and formats",
            &[
                parse("s", "select $1::int, $2::text", &[]),
                bind("", "s", 0, &[n("1")], 0),
                sync(),
                bind("", "s", 7, &[n("1"), n("2")], 0),
                sync(),
                bind("", "s", 0, &[n("x"), n("2")], 0),
                sync(),
                bind("", "s", 0, &[None, n("2")], 0),
                execute("", 0),
                close(b'S', "s"),
                sync(),
            ],
        ),
        (
            "parameters of other types",
            &[
                parse(
                    "",
                    "select id from t where id = $1 and s = $2 and n = $3 and v = $4 order by id",
                    &[21, 20, 23, 25],
                ),
                describe(b'S', ""),
                bind("", "", 0, &[n("1"), n("1"), n("1"), n("b")], 1),
                execute("", 0),
                sync(),
                bind("", "", 1, &[Some(&[0, 1]), Some(&[0, 0, 0, 0, 0, 0, 0, 1]), Some(&[0, 0, 0, 1]), n("b")], 1),
                execute("", 0),
                sync(),
                sync(),
            ],
        ),
        (
            "settings",
            &[
                query("set standard_conforming_strings = on"),
                query("set server_version = '9'"),
                query("begin; set application_name = 'x'; set local application_name = 'y'; show application_name"),
                query("commit; show application_name"),
                query("begin; set application_name = 'z'; rollback"),
                query("show application_name"),
                query("begin read only; set transaction isolation level serializable"),
                query("insert into t values (70)"),
                query("rollback"),
                query("set default_transaction_read_only = on"),
                query("insert into t values (71); select 1"),
                query("insert into t values (72)"),
                query("show transaction_read_only"),
                query("begin read write; show transaction_read_only; rollback"),
                query("set default_transaction_read_only = off"),
                query("set nothing = 1"),
            ],
        ),
        (
            "tables that change",
            &[
                parse("s", "select count(*) from u where id = $1", &[]),
                sync(),
                query("create table u (id int primary key)"),
                parse("s", "select count(*) from u where id = $1", &[]),
                bind("", "s", 0, &[n("1")], 0),
                execute("", 0),
                sync(),
                query("drop table u"),
                query("create table u (id int primary key, more int)"),
                query("insert into u values (1)"),
                bind("", "s", 0, &[n("1")], 0),
                execute("", 0),
                sync(),
                query("begin"),
                bind("", "s", 0, &[n("1")], 0),
                execute("", 0),
                sync(),
                query("rollback"),
                query("drop table u"),
                close(b'S', "s"),
                sync(),
            ],
        ),
        (
            "a change of tables whose end comes later",
            &[
                parse("", "create table w (id int primary key)", &[]),
                bind("", "", 0, &[], 0),
                execute("", 0),
                message(b'H', &[]),
                sync(),
                query("drop table w"),
            ],
        ),
        (
            "a column list that is too long",
            &[query(&format!("select {}1", "1, ".repeat(1_664))), query(&format!("select {}1", "1, ".repeat(70_000)))],
        ),
    ];
    for (about, sequence) in sequences {
        let messages = sequence.concat();
        let (is, should) = (ours.talk(&messages).0, theirs.talk(&messages).0);
        assert_eq!(is, should, "{about}");
        // However the bytes arrive, the answers are the same.
        for message in sequence.iter() {
            let (first, rest) = message.split_at(message.len() / 2);
            ours.send(first);
            ours.send(rest);
        }
        assert_eq!(ours.talk(&[]).0, theirs.talk(&messages).0, "{about}, in pieces");
    }
}

/// The bytes of values are those of PostgreSQL, in both directions.
#[test]
fn values_have_the_bytes_of_postgresql() {
    if !are_installed() {
        return;
    }
    let Some((_server, _postgres, mut ours, mut theirs)) = both() else { return };
    let types: [(&str, &[&str]); 17] = [
        ("boolean", &["t", "f"]),
        ("smallint", &["-32768", "32767"]),
        ("int", &["-2147483648", "2147483647"]),
        ("bigint", &["-9223372036854775808", "9223372036854775807"]),
        ("real", &["1.5", "-0", "3e38", "NaN", "Infinity", "0.1"]),
        ("double precision", &["1e300", "-Infinity", "0.1", "123456789.123", "1e-7"]),
        ("numeric(10, 3)", &["0", "-1.5", "1234567.891", "0.001", "1000"]),
        ("numeric", &["0", "0.00", "10000", "-99999999999999999999.5", "0.00001", "100000000", "1.10"]),
        ("text", &["", "äb€", "\\", "x\ty"]),
        ("varchar(9)", &["", "abc  "]),
        ("char(4)", &["", "ab", "ä"]),
        ("bytea", &["\\x", "\\x00ff10", "a\\000b"]),
        ("uuid", &["00000000-0000-0000-0000-000000000007", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]),
        ("date", &["1969-12-31", "2000-01-01", "9999-12-31", "0001-01-01"]),
        ("time", &["00:00:00", "23:59:59.999999", "12:00:00.5"]),
        ("timestamp", &["1999-12-31 23:59:59.5", "2000-01-01 00:00:00", "0001-01-01 00:00:00"]),
        ("timestamptz", &["1999-12-31 23:59:59.5+00", "2026-11-30 12:00:00+02", "1970-01-01 00:00:00Z"]),
    ];
    for (ty, texts) in types {
        let create = query(&format!("create table v (id int primary key, value {ty})"));
        assert_eq!(ours.talk(&create), theirs.talk(&create), "{ty}");
        let describe_it =
            [parse("i", "insert into v values ($1, $2)", &[]), parse("s", "select value from v where id = $1", &[])];
        for server in [&mut ours, &mut theirs] {
            server.talk(&describe_it.concat());
        }
        for (id, text) in texts.iter().enumerate() {
            let [id, next] = [id, id + 100].map(|id| id.to_string());
            let insert = [bind("", "i", 0, &[Some(id.as_bytes()), Some(text.as_bytes())], 0), execute("", 0)].concat();
            assert_eq!(ours.talk(&insert), theirs.talk(&insert), "{ty} {text}");
            let mut select = Vec::new();
            for format in [1, 0] {
                select.extend(bind("", "s", 0, &[Some(id.as_bytes())], format));
                select.extend([describe(b'P', ""), execute("", 0)].concat());
            }
            let (is, should) = (ours.talk(&select), theirs.talk(&select));
            assert_eq!(is, should, "{ty} {text}");
            // What was read in binary is written in binary.
            let number = next.parse::<i32>().expect("a number").to_be_bytes();
            let written = [
                bind("", "i", 1, &[Some(&number), values(&should.1[0]).expect("it is a row")[0]], 0),
                execute("", 0),
                bind("", "s", 0, &[Some(next.as_bytes())], 0),
                execute("", 0),
            ]
            .concat();
            assert_eq!(ours.talk(&written), theirs.talk(&written), "{ty} {text}");
        }
        let end = [query("drop table v"), close(b'S', "i"), close(b'S', "s")].concat();
        assert_eq!(ours.talk(&end), theirs.talk(&end), "{ty}");
    }
}

/// Bytes that are no messages end the connection, and nothing else.
#[test]
fn bytes_that_are_no_messages_end_the_connection() {
    let server = Server::start(Settings::default());
    let port = server.address.port();
    let ends = |mut stream: std::net::TcpStream, bytes: &[u8]| {
        // The server may have closed the connection before all is written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    };
    let fresh = || std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let greeting = startup(b"user\0postgres\0\0");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 16], &[0, 0, 0, 8, 0, 2, 0, 0], &query("select 1")] {
        ends(fresh(), bytes);
    }
    for end in 0..greeting.len() {
        ends(fresh(), &greeting[..end]);
    }
    let cancel = [&16_u32.to_be_bytes()[..], &80_877_102_u32.to_be_bytes(), &[7; 8]].concat();
    ends(fresh(), &cancel);
    for message in [query("select 1"), parse("s", "select $1", &[23]), bind("", "", 0, &[None, Some(b"x")], 1), sync()]
    {
        for end in 0..message.len() {
            ends(Raw::connect(port).0, &message[..end]);
        }
        for length in [0_u32, 3, 5, 1 << 30, u32::MAX] {
            let mut lies = message.clone();
            lies[1..5].copy_from_slice(&length.to_be_bytes());
            ends(Raw::connect(port).0, &lies);
        }
    }
    for (parameters, state) in [
        (&b"user\0postgres\0options\0-c nothing=1\0\0"[..], "42704"),
        (b"user\0postgres\0search_path\0other\0\0", "22023"),
        (b"user\0postgres\0replication\0true\0\0", "0A000"),
        (b"user\0postgres\0database\0other\0\0", "3D000"),
        (b"\0", "28000"),
    ] {
        let mut raw = Raw(fresh());
        raw.send(&startup(parameters));
        let (tag, body) = raw.answer();
        assert_eq!((tag, &*field(&body, b'C')), (b'E', state));
    }
    let mut raw = Raw(fresh());
    raw.send(&startup(b"user\0postgres\0options\0-c default_transaction_read_only=on\0\0"));
    while raw.answer().0 != b'Z' {}
    let (answers, _) = raw.talk(&query("create table t (id int primary key)"));
    assert_eq!(answers[0], "E 25006", "options are not ignored");
    let (answers, _) = Raw::connect(port).talk(&query("select 1"));
    assert!(answers.contains(&"C SELECT 1\0".to_owned()), "{answers:?}");
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

/// What is described: keys, indexes, conditions, foreign keys in both directions, defaults.
const DESCRIBED: &str = "
    create table parent (a int, b varchar(10), note text default 'x y', primary key (a, b));
    create table child (
        id int primary key, pa int not null default 7, pb varchar(10), n numeric(8, 2), c char(3) default 'ab',
        t timestamptz, u int unique, d double precision, e real default 1.5, f boolean default true, g date,
        h smallint, i bigint default -5, j bytea, k uuid, l interval, m time, o timestamp,
        constraint positive check (u > 0 and pa <> 3),
        constraint child_parent foreign key (pa, pb) references parent on delete cascade
    );
    create table \"Odd name\" (\"Key\" int primary key, parent int references child (u) on update set null deferrable);
    alter table \"Odd name\" add check (parent > 1);
    create index child_n on child (n desc, pa);
    create unique index child_cu on child (c);
    create index child_h on child using hash (pb)";

/// The commands of psql that describe, and queries of its completion and of drivers.
const DESCRIPTIONS: &[&str] = &[
    "\\d",
    "\\dt",
    "\\dt child",
    "\\d child",
    "\\d parent",
    "\\d \"Odd name\"",
    "\\d public.child",
    "\\d child_n",
    "\\d child_pkey",
    "\\d child_h",
    "\\d nothing",
    "\\di",
    "\\di child*",
    "\\ds",
    "\\dv",
    "\\du",
    "\\df",
    "\\dT",
    "\\dp child",
    "\\d child*",
    // Completion of names.
    "select c.relname, null::pg_catalog.text from pg_catalog.pg_class c where c.relkind in ('r', 'S', 'v', 'm', 'f', \
     'p') and (c.relname) like 'ch%' and pg_catalog.pg_table_is_visible(c.oid) and c.relnamespace <> (select oid from \
     pg_catalog.pg_namespace where nspname = 'pg_catalog') union all select null::pg_catalog.text, n.nspname from \
     pg_catalog.pg_namespace n where n.nspname like 'pu%' and n.nspname not like E'pg\\\\_%' limit 1000",
    "select a.attname, null::pg_catalog.text from pg_catalog.pg_attribute a, pg_catalog.pg_class c where c.oid = \
     a.attrelid and a.attnum > 0 and not a.attisdropped and (a.attname) like 'p%' and (c.relname) = ('child') and \
     pg_catalog.pg_table_is_visible(c.oid) order by 1 limit 1000",
    // SQLAlchemy.
    "select pg_catalog.pg_class.relname from pg_catalog.pg_class join pg_catalog.pg_namespace on \
     pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace where pg_catalog.pg_class.relname = \
     'child'::varchar and pg_catalog.pg_class.relkind = any (array['r'::varchar, 'p'::varchar, 'f'::varchar]) and \
     pg_catalog.pg_table_is_visible(pg_catalog.pg_class.oid) and pg_catalog.pg_namespace.nspname != 'pg_catalog'",
    "select typname, oid, typarray, oid::regtype::text as regtype, typdelim as delimiter from pg_type t where t.oid = \
     to_regtype('int4') order by t.oid",
    "select array_agg(a.attname order by k.n), array_agg(a.attnum order by k.n desc) from pg_index i join lateral \
     unnest(i.indkey) with ordinality k (attnum, n) on true join pg_attribute a on a.attrelid = i.indrelid and \
     a.attnum = k.attnum where i.indrelid = 'parent'::regclass",
    // Django.
    "select c.relname, case when c.relispartition then 'p' when c.relkind in ('m', 'v') then 'v' else 't' end, \
     obj_description(c.oid, 'pg_class') from pg_catalog.pg_class c left join pg_catalog.pg_namespace n on n.oid = \
     c.relnamespace where c.relkind in ('f', 'm', 'p', 'r', 'v') and n.nspname not in ('pg_catalog', 'pg_toast') and \
     pg_catalog.pg_table_is_visible(c.oid) order by 1",
    "select a.attname as column_name, not (a.attnotnull or (t.typtype = 'd' and t.typnotnull)) as is_nullable, \
     pg_get_expr(ad.adbin, ad.adrelid) as column_default, case when collname = 'default' then null else collname end \
     as collation, a.attidentity != '' as is_autofield, col_description(a.attrelid, a.attnum) as column_comment from \
     pg_attribute a left join pg_attrdef ad on a.attrelid = ad.adrelid and a.attnum = ad.adnum left join pg_collation \
     co on a.attcollation = co.oid join pg_type t on a.atttypid = t.oid join pg_class c on a.attrelid = c.oid join \
     pg_namespace n on c.relnamespace = n.oid where c.relkind in ('f', 'm', 'p', 'r', 'v') and c.relname = 'child' and \
     n.nspname not in ('pg_catalog', 'pg_toast') and pg_catalog.pg_table_is_visible(c.oid) and a.attnum > 0 \
     order by a.attnum",
    "select c.conname, array(select attname from unnest(c.conkey) with ordinality cols (colid, arridx) join \
     pg_attribute as ca on cols.colid = ca.attnum where ca.attrelid = c.conrelid order by cols.arridx), c.contype, \
     (select fkc.relname || '.' || fka.attname from pg_attribute as fka join pg_class as fkc on fka.attrelid = fkc.oid \
     where fka.attrelid = c.confrelid and fka.attnum = c.confkey[1]), cl.reloptions from pg_constraint as c join \
     pg_class as cl on c.conrelid = cl.oid where cl.relname = 'child' and pg_catalog.pg_table_is_visible(cl.oid) \
     order by 1",
    // ActiveRecord.
    "select a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid), a.attnotnull, \
     a.atttypid, a.atttypmod, c.collname, col_description(a.attrelid, a.attnum) as comment, attidentity as identity, \
     attgenerated as attgenerated from pg_attribute a left join pg_attrdef d on a.attrelid = d.adrelid and a.attnum \
     = d.adnum left join pg_type t on a.atttypid = t.oid left join pg_collation c on a.attcollation = c.oid and \
     a.attcollation <> t.typcollation where a.attrelid = '\"child\"'::regclass and a.attnum > 0 and not \
     a.attisdropped order by a.attnum",
    "select a.attname from (select indrelid, indkey, generate_subscripts(indkey, 1) idx from pg_index where indrelid = \
     '\"parent\"'::regclass and indisprimary) i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = \
     i.indkey[i.idx] order by i.idx",
    "select distinct i.relname, d.indisunique, d.indkey, pg_get_indexdef(d.indexrelid), \
     pg_catalog.obj_description(i.oid, 'pg_class') as comment, d.indisvalid from pg_class t inner join pg_index d on \
     t.oid = d.indrelid inner join pg_class i on d.indexrelid = i.oid left join pg_namespace n on n.oid = \
     t.relnamespace where i.relkind in ('i', 'I') and d.indisprimary = 'f' and t.relname = 'child' and n.nspname = any \
     (current_schemas(false)) order by i.relname",
    "select t2.oid::regclass::text as to_table, a1.attname as column, a2.attname as primary_key, c.conname as name, \
     c.confupdtype as on_update, c.confdeltype as on_delete, c.convalidated as valid, c.condeferrable as deferrable, \
     c.condeferred as deferred from pg_constraint c join pg_class t1 on c.conrelid = t1.oid join pg_class t2 on \
     c.confrelid = t2.oid join pg_attribute a1 on a1.attnum = c.conkey[1] and a1.attrelid = t1.oid join pg_attribute \
     a2 on a2.attnum = c.confkey[1] and a2.attrelid = t2.oid join pg_namespace t3 on c.connamespace = t3.oid where \
     c.contype = 'f' and t1.relname = 'child' and t3.nspname = any (current_schemas(false)) order by c.conname",
    // pgjdbc.
    "select null as table_cat, n.nspname as table_schem, c.relname as table_name, case n.nspname ~ '^pg_' or n.nspname \
     = 'information_schema' when true then case when n.nspname = 'pg_catalog' then case c.relkind when 'r' then \
     'SYSTEM TABLE' when 'v' then 'SYSTEM VIEW' else null end else null end when false then case c.relkind when 'r' \
     then 'TABLE' when 'i' then 'INDEX' else null end else null end as table_type, d.description as remarks, '' as \
     type_cat from pg_catalog.pg_namespace n, pg_catalog.pg_class c left join pg_catalog.pg_description d on (c.oid = \
     d.objoid and d.objsubid = 0 and d.classoid = 'pg_class'::regclass) where c.relnamespace = n.oid and n.nspname = \
     'public' and c.relname like 'child%' order by table_type, table_schem, table_name",
    // pgbench.
    "select o.n, p.partstrat, pg_catalog.count(i.inhparent) from pg_catalog.pg_class as c join pg_catalog.pg_namespace \
     as n on (n.oid = c.relnamespace) cross join lateral (select \
     pg_catalog.array_position(pg_catalog.current_schemas(true), n.nspname)) as o(n) left join \
     pg_catalog.pg_partitioned_table as p on (p.partrelid = c.oid) left join pg_catalog.pg_inherits as i on (c.oid = \
     i.inhparent) where c.relname = 'child' and o.n is not null group by 1, 2 order by 1 asc limit 1",
    // The standard's tables.
    "select column_name, ordinal_position, column_default, is_nullable, data_type, character_maximum_length, \
     numeric_precision, numeric_precision_radix, numeric_scale, datetime_precision, udt_name from \
     information_schema.columns where table_name = 'child' order by 2",
    "select table_name, table_type, is_insertable_into from information_schema.tables where table_schema = 'public' \
     order by 1",
    "select constraint_name, table_name, constraint_type, is_deferrable, initially_deferred from \
     information_schema.table_constraints where constraint_schema = 'public' and constraint_type <> 'CHECK' order by 1",
    "select constraint_name, column_name, ordinal_position from information_schema.key_column_usage where \
     constraint_schema = 'public' order by 1, 3",
    "select constraint_name, unique_constraint_name, match_option, update_rule, delete_rule from \
     information_schema.referential_constraints order by 1",
    "select conname, pg_get_constraintdef(oid), conkey, confkey from pg_constraint where connamespace = \
     'public'::regnamespace and contype <> 'c' order by 1",
    "select indexdef from pg_indexes where schemaname = 'public' order by 1",
    "select 'child'::regclass, 'pg_class'::regclass::oid, '\"Odd name\"'::regclass, to_regclass('nothing'), \
     'int4'::regtype, 1043::regtype, format_type(1700, 524294), quote_ident('a b'), 'x' ~ '^[a-z]$', 'X' !~* 'x'",
];

#[test]
fn psql_describes_tables_as_those_of_postgresql() {
    let Some(binaries) = seriatim_postgres::binaries() else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let theirs =
        seriatim_postgres::Server::start(binaries, "described", "", "").unwrap_or_else(|error| panic!("{error}"));
    let ours = Server::start(Settings::default());
    for statement in DESCRIBED.split(';') {
        theirs.psql(statement).expect("it is new");
        assert_eq!(ours.psql(statement), "", "{statement}");
    }
    let mut wrong = String::new();
    for text in DESCRIPTIONS {
        let printed = |mut command: Command| {
            let output = command.args(["-X", "-c", text]).output().expect("it can be started");
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        };
        let mut psql = theirs.command("psql");
        psql.args(["-h", "127.0.0.1", "-U", "postgres", "-d", "postgres", "-p", &theirs.port().to_string()]);
        let should = printed(psql);
        let is = printed(ours.command("psql", &[]));
        if is != should {
            wrong += &format!("{text}\n--- ours\n{is}\n--- PostgreSQL\n{should}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
