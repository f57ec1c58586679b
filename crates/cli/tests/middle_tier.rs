//! `seriatim middle-tier`: its arguments, its templates, and its end. What it does for clients is tested in its own crate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

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
    refused(&["--check", "--templates", path], &[path, "line 4:", "`:it` is no parameter"]);
    std::fs::remove_file(&file).expect("it is there");
    refused(&["--check", "--templates", path], &[path, "No such file"]);
}

#[test]
fn what_cannot_be_is_refused_with_what_would_be_right() {
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
    refused(&["--upstream", "postgres://h", "--listen", "nowhere"], &["--listen HOST:PORT"]);
    let help = String::from_utf8(seriatim(&["--help"]).stdout).expect("text");
    assert!(help.contains("[[template]]") && help.contains("plain_begin_is_serializable"), "{help}");
}

#[test]
fn it_listens_until_it_is_told_to_end_and_says_what_it_has_done() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    // Nobody listens at port 1.
    command.args([
        "middle-tier",
        "--upstream",
        "postgres://127.0.0.1:1",
        "--listen",
        "127.0.0.1:0",
        "--format",
        "json",
    ]);
    let mut tier = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts");
    let mut output = BufReader::new(tier.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let said: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(said["upstream"], "127.0.0.1:1");
    let mut client = TcpStream::connect(said["listening"].as_str().expect("an address")).expect("it listens");
    client.write_all(b"\0\0\0\x11\0\x03\0\0user\0me\0\0").expect("it takes it");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("an end");
    assert!(answer.starts_with(b"E") && answer.windows(6).any(|field| field == b"C08001"), "{answer:?}");
    let pid = tier.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill starts").success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert!(tier.wait().expect("it ends").success());
    let counted: Value = serde_json::from_str(&rest).expect("JSON");
    assert_eq!((&counted["clients"], &counted["upstream_failures"]), (&1.into(), &1.into()), "{counted}");
}
