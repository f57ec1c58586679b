//! `seriatim middle-tier`: its arguments, its templates, and its end. Its own crate tests the service for clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

const TEMPLATE: &str = "[[template]]\nname = \"touch\"\nparameters = { id = \"integer\" }\n\
    statements = [\"UPDATE t SET n = n + 1 WHERE id = :id\"]\nwrites = [\"t/:id\"]\n";

fn seriatim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.arg("middle-tier").args(arguments).output().expect("the binary starts")
}

fn templates(name: &str, text: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("seriatim-templates-{name}-{}", std::process::id()));
    std::fs::write(&file, text).expect("a file");
    file
}

#[track_caller]
fn refused(arguments: &[&str], words: &[&str]) {
    let output = seriatim(arguments);
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {talk}");
    assert!(words.iter().all(|word| talk.contains(word)), "{arguments:?}: {talk}");
}

#[test]
fn templates_are_checked_without_an_upstream() {
    let file = templates("good", TEMPLATE);
    let path = file.to_str().expect("text");
    let output = seriatim(&["--check", "--templates", path]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"touch\n"[..]));
    let output = seriatim(&["--check", "--templates", path, "--format", "json"]);
    let names: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(names["templates"][0], "touch");
    std::fs::write(&file, TEMPLATE.replace("WHERE id = :id", "WHERE id = :it")).expect("a file");
    refused(&["--check", "--templates", path], &[path, "line 4:", "`:it` is not a parameter"]);
    std::fs::remove_file(&file).expect("it is there");
    refused(&["--check", "--templates", path], &[path, "No such file"]);
}

#[test]
fn invalid_arguments_are_refused_with_the_valid_ones() {
    refused(&[], &["--upstream"]);
    refused(&["--check"], &["--templates"]);
    refused(&["--upstream", "mysql://h"], &["postgres://"]);
    refused(&["--upstream", "postgres://h?sslmode=verify-full"], &["sslrootcert=FILE"]);
    refused(&["--upstream", "postgres://h?sslmode=verify-full&sslrootcert=/dev/null"], &["no certificate"]);
    refused(&["--upstream", "postgres://h", "--batch", "0"], &["off or a number from 1"]);
    refused(&["--upstream", "postgres://h", "--wait", "-1"], &["from 0"]);
    refused(&["--upstream", "postgres://h", "--hold", "x"], &["from 0"]);
    refused(&["--upstream", "postgres://h", "--tls-cert", "x"], &["--tls-key"]);
    refused(&["--upstream", "postgres://h", "--tls-require"], &["--tls-cert"]);
    refused(&["--upstream", "postgres://h?sslrootcert=/dev/null"], &["sslmode=verify-full"]);
    refused(
        &["--upstream", "postgres://h", "--metrics", "nowhere", "--listen", "127.0.0.1:0"],
        &["--metrics HOST:PORT"],
    );
    refused(&["--upstream", "postgres://h", "--listen", "nowhere"], &["--listen HOST:PORT"]);
    let help = String::from_utf8(seriatim(&["--help"]).stdout).expect("text");
    assert!(help.contains("[[template]]") && help.contains("plain_begin_is_serializable"), "{help}");
}

/// A middle tier without an upstream: no server listens at port 1.
struct Tier {
    process: Child,
    output: BufReader<ChildStdout>,
    said: Value,
}

impl Tier {
    fn start(arguments: &[&str]) -> Tier {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
        command.args(["middle-tier", "--upstream", "postgres://127.0.0.1:1", "--listen", "127.0.0.1:0"]);
        command.args(["--format", "json"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary starts");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        Tier { process, output, said: serde_json::from_str(&line).expect("JSON") }
    }

    /// The answer to a client that begins a session.
    fn refuses(&self) {
        let mut client = TcpStream::connect(self.said["listening"].as_str().expect("an address")).expect("it listens");
        client.write_all(b"\0\0\0\x11\0\x03\0\0user\0me\0\0").expect("it takes it");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("an end");
        assert!(answer.starts_with(b"E") && answer.windows(6).any(|field| field == b"C08001"), "{answer:?}");
    }

    /// Ends it. Returns its counts and the rest of its log.
    fn end(mut self) -> (Value, String) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill starts").success());
        let (mut rest, mut log) = (String::new(), String::new());
        self.output.read_to_string(&mut rest).expect("text");
        self.process.stderr.take().expect("it is piped").read_to_string(&mut log).expect("text");
        assert!(self.process.wait().expect("it ends").success());
        (serde_json::from_str(&rest).expect("JSON"), log)
    }
}

#[test]
fn a_middle_tier_listens_until_a_signal_and_prints_its_counts() {
    let tier = Tier::start(&[]);
    assert_eq!(tier.said["upstream"], "127.0.0.1:1");
    tier.refuses();
    let (counted, log) = tier.end();
    assert_eq!((&counted["clients"], &counted["upstream_failures"]), (&1.into(), &1.into()), "{counted}");
    assert!(log.contains("connection to the server at 127.0.0.1:1 failed"), "{log}");
    assert!(
        log.lines().all(|line| line.as_bytes()[10] == b'T') && log.contains("a second signal ends at once"),
        "{log}"
    );
}

#[test]
fn counts_are_served_and_logged_while_it_runs() {
    let mut tier = Tier::start(&["--metrics", "127.0.0.1:0", "--stats", "1"]);
    tier.refuses();
    let mut log = BufReader::new(tier.process.stderr.take().expect("it is piped"));
    // The client and its failure may be in the lines of two intervals.
    let (mut clients, mut failures) = (false, false);
    while !(clients && failures) {
        let mut line = String::new();
        assert!(log.read_line(&mut line).expect("text") > 0, "the log ends");
        clients |= line.contains("clients +1");
        failures |= line.contains("upstream failures +1");
    }
    tier.process.stderr = Some(log.into_inner());
    let mut reader = TcpStream::connect(tier.said["metrics"].as_str().expect("an address")).expect("it listens");
    reader.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("it takes it");
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(
        text.contains("seriatim_middle_tier_clients_total 1\n") && text.contains("seriatim_middle_tier_sessions 0\n")
    );
    tier.end();
}

/// A pipe holds about 64 KiB and the log's queue 1,024 lines. Clients are answered although both are full.
#[test]
fn a_log_without_a_reader_delays_no_client() {
    let tier = Tier::start(&[]);
    (0..2500).for_each(|_| tier.refuses());
    let (counted, _) = tier.end();
    assert_eq!(counted["clients"], 2500);
    assert!(counted["lost_lines"].as_u64().is_some_and(|lost| lost > 0), "the pipe was never full: {counted}");
}

/// It does not start if the limit of open files is too low and cannot be raised.
#[test]
fn the_limit_of_open_files_is_checked_at_the_start() {
    let limited = |limit: &str| {
        let mut command = Command::new("sh");
        let tier = "exec \"$0\" middle-tier --upstream postgres://127.0.0.1:1 --clients 100 --listen nowhere";
        command.args(["-c", &format!("ulimit {limit} && {tier}"), env!("CARGO_BIN_EXE_seriatim")]);
        let output = command.output().expect("a shell");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused = limited("-n 128");
    assert!(refused.contains("100 clients need 464 open files") && refused.contains("--clients 16"), "{refused}");
    assert!(limited("-Sn 128").contains("--listen HOST:PORT"), "the next mistake is reported");
}
