//! `seriatim shell` and `seriatim serve`: their output, their errors, and their end.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_postgres::client::{Client, Failure};

/// A directory that does not exist yet, and is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("seriatim-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn shell(directory: &Directory, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.args(["shell", directory.path()]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let written = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    // With -c it reads nothing.
    assert!(written.is_ok() || !arguments.is_empty());
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_shell_runs_statements_which_are_durable() {
    let directory = Directory::new("shell");
    let create = "create table word (id int primary key, text varchar(8));";
    let output = shell(&directory, &["-c", create, "-c", "insert into word values (1, 'one'), (2, null)"], "");
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "CREATE TABLE\nINSERT 0 2\n"));
    let script = "select * from word order by id;\nselect count(*) from word -- the number\n; drop table if exists x;";
    let output = shell(&directory, &[], script);
    let rows = " id | text \n----+------\n  1 | one  \n  2 |      \n(2 rows)\n";
    let wanted = format!("{rows} count \n-------\n     2 \n(1 row)\nDROP TABLE\n");
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), &*wanted));
    assert!(text(&output.stderr).contains("NOTICE: table \"x\" does not exist, skipping"), "{output:?}");
}

#[test]
fn the_first_statement_that_fails_ends_a_shell_and_says_where() {
    let directory = Directory::new("shell-fails");
    let output = shell(&directory, &[], "create table t (id int primary key);\nselec 1;\ndrop table t;");
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(1), "CREATE TABLE\n"));
    let said = text(&output.stderr);
    assert!(
        said.contains("ERROR 42601: syntax error at or near \"selec\"") && said.contains("LINE 1: selec 1;\n"),
        "{said}"
    );
    let output = shell(&directory, &["-c", "select 1; select x from t; select 2"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("ERROR 42703: column \"x\" does not exist"), "{output:?}");
    let output = shell(&directory, &["--protocol", "nothing"], "");
    assert!(output.status.code() != Some(0) && text(&output.stderr).contains("there is no protocol"), "{output:?}");
}

#[test]
fn a_server_listens_and_ends_with_a_signal() {
    let directory = Directory::new("serve");
    let mut served = Served::start(&directory, &[]);
    let connected = TcpStream::connect(served.address).expect("it listens");
    // While it serves, nobody else opens the directory.
    let refused = shell(&directory, &["-c", "select 1"], "");
    assert!(refused.status.code() != Some(0) && text(&refused.stderr).contains("open already"), "{refused:?}");
    // Without a certificate there is nothing to read again.
    for signal in ["-HUP", "-TERM"] {
        let sent =
            Command::new("kill").args([signal, &served.server.id().to_string()]).status().expect("kill is installed");
        assert!(sent.success());
    }
    assert_eq!(served.server.wait().expect("it ends").code(), Some(0));
    drop(connected);
    assert_eq!(shell(&directory, &["-c", "select 1"], "").status.code(), Some(0));
}

/// A served directory. The server ends with this.
struct Served {
    server: std::process::Child,
    address: std::net::SocketAddr,
}

impl Served {
    fn start(directory: &Directory, options: &[&str]) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
        command.args(["serve", directory.path(), "--listen", "127.0.0.1:0", "--format", "json"]);
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().expect("the binary starts");
        let mut line = String::new();
        let output = server.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it says where it listens");
        let said: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let address = said["listening"].as_str().expect("an address").parse().expect("an address");
        Served { server, address }
    }

    fn client(&self) -> Result<Client, Failure> {
        Client::connect(self.address, "postgres")
    }

    /// SIGKILL.
    fn kill(&mut self) {
        self.server.kill().expect("it runs");
        self.server.wait().expect("it ends");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Writes numbers from `next` on until the server is killed. Each is a row of `entry`, and one in the writer's row of
/// `total` and in that of all, by one transaction. Returns the number whose transaction was not acknowledged.
fn write_until_killed(mut client: Client, writer: u64, mut next: u64, acknowledged: &AtomicU64) -> u64 {
    loop {
        let insert = format!("insert into entry (writer, number) values ({writer}, {next})");
        let update = format!("update total set entries = entries + 1 where writer in (0, {writer})");
        let written = match next % 2 {
            // The statements of one message are one transaction.
            0 => client.query(&format!("{insert}; {update}")),
            _ => client.query("begin").and_then(|_| {
                client.query(&insert)?;
                client.execute("update total set entries = entries + 1 where writer = $1", &[&writer.to_string()])?;
                client.execute("update total set entries = entries + 1 where writer = $1", &["0"])?;
                client.query("commit")
            }),
        };
        match written {
            Ok(_) => {
                next += 1;
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(Failure::Lost(_)) => return next,
            // The row of all is hot.
            Err(failure) if matches!(failure.state(), Some("40001" | "40P01")) => {
                if client.is_open() && client.query("rollback").is_err() {
                    return next;
                }
            }
            Err(failure) => panic!("{failure}"),
        }
    }
}

/// The integers of the only row.
fn integers(client: &mut Client, text: &str) -> Vec<u64> {
    let rows = client.query(text).unwrap_or_else(|failure| panic!("{text}: {failure}"));
    rows[0].iter().map(|value| value.as_deref().map_or(0, |digits| digits.parse().expect("a number"))).collect()
}

/// What a server has acknowledged outlives it. What it has not is there whole or not at all, and no identity is given
/// twice.
#[test]
fn acknowledged_transactions_outlive_servers_that_are_killed() {
    const WRITERS: u64 = 4;
    let seed = seriatim_base::rng::seed("killed servers");
    let mut rng = seriatim_base::Rng::from_seed(seed);
    let directory = Directory::new("serve-killed");
    let mut numbers = vec![1; WRITERS as usize + 1];
    for round in 0..seriatim_base::rng::tries(4, 200) {
        let mut served = Served::start(&directory, &["--protocol", "dbx"]);
        let mut client = served.client().expect("it listens");
        if round == 0 {
            client
                .query(
                    "create table entry (writer int, number int, ticket int generated always as identity,
                          primary key (writer, number));
                          create table total (writer int primary key, entries int not null);
                          insert into total select x, 0 from generate_series(0, 4) as x",
                )
                .expect("it creates tables");
        }
        let tables = integers(&mut client, "select count(*) from pg_tables where tablename like 'round%'");
        assert_eq!(tables, [round], "seed {seed}: tables that were created");
        for (writer, next) in (0u64..).zip(&mut numbers).skip(1) {
            let rows =
                format!("select count(*), max(number), count(distinct ticket) from entry where writer = {writer}");
            let [count, last, tickets] = integers(&mut client, &rows)[..] else { panic!("three columns") };
            assert!(last == *next - 1 || last == *next, "seed {seed}: {last} of writer {writer}, not {next} - 1");
            assert_eq!((count, tickets), (last, last), "seed {seed}: a number is missing");
            let total = format!("select entries from total where writer = {writer}");
            assert_eq!(integers(&mut client, &total), [last], "seed {seed}: half a transaction of writer {writer}");
            *next = last + 1;
        }
        let all = numbers.iter().map(|next| next - 1).sum::<u64>();
        let found = "select (select entries from total where writer = 0), (select count(distinct ticket) from entry)";
        assert_eq!(integers(&mut client, found), [all, all], "seed {seed}");
        client.query(&format!("create table round_{round} (id int primary key)")).expect("a new name");
        let (wanted, acknowledged) = (rng.below(100), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (1..)
                .zip(numbers[1..].to_vec())
                .map(|(writer, next)| {
                    let (client, acknowledged) = (served.client().expect("it listens"), &acknowledged);
                    scope.spawn(move || write_until_killed(client, writer, next, acknowledged))
                })
                .collect();
            while acknowledged.load(Ordering::Relaxed) < wanted {
                std::thread::sleep(Duration::from_micros(100));
            }
            served.kill();
            let ended = writers.into_iter().map(|writer| writer.join().expect("no panic"));
            ended.zip(&mut numbers[1..]).for_each(|(next, known)| *known = next);
        });
    }
}

#[test]
fn a_server_refuses_addresses_that_others_reach() {
    let directory = Directory::new("serve-refused");
    for (address, why) in [("0.0.0.0:0", "give a certificate and its key"), ("127.0.0.1:x", "cannot listen")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
        let output = command.args(["serve", directory.path(), "--listen", address]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(why), "{output:?}");
    }
}

#[test]
fn a_server_has_a_configuration_and_roles_have_passwords() {
    let directory = Directory::new("serve-configured");
    let run = |arguments: &[&str], environment: &[(&str, &str)], input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
        command.args(arguments).envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        // It may refuse its arguments first.
        let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
        child.wait_with_output().expect("it ends")
    };
    let refused = |output: Output, why: &str| {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(why), "{output:?}");
    };
    let file = std::env::temp_dir().join(format!("seriatim-serve-{}.toml", std::process::id()));
    let path = file.to_str().expect("text");
    std::fs::write(&file, "max_conections = 7\n").expect("there is space");
    let serve = ["serve", directory.path(), "--listen", "127.0.0.1:0"];
    refused(run(&[&serve[..], &["--config", path]].concat(), &[], ""), "the most similar one is max_connections");
    refused(run(&serve, &[("SERIATIM_MAX_CONNECTIONS", "none")], ""), "max_connections is \"none\"");
    refused(run(&[&serve[..], &["--statement-timeout", "5 parsecs"]].concat(), &[], ""), "\"5 parsecs\"");
    refused(run(&[&serve[..], &["--http", "0.0.0.0:0"]].concat(), &[], ""), "give http_token_file");
    refused(run(&[&serve[..], &["--tls-cert", path]].concat(), &[], ""), "both tls_cert and tls_key");
    std::fs::remove_file(&file).expect("it exists");

    let set = run(&["password", directory.path()], &[], "it's secret\n");
    assert_eq!((set.status.code(), &*text(&set.stdout)), (Some(0), "role postgres has a new password\n"), "{set:?}");
    let unknown = run(&["password", directory.path(), "eve"], &[], "x\n");
    assert!(text(&unknown.stderr).contains("role \"eve\" does not exist"), "{unknown:?}");
    refused(run(&["password", directory.path()], &[], "\n"), "a password is not empty");
}
