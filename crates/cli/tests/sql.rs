//! `seriatim shell` and `seriatim serve`: their output, their errors, and their end.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

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
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.args(["serve", directory.path(), "--listen", "127.0.0.1:0", "--format", "json"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("it is piped")).read_line(&mut line).expect("it says where it listens");
    let said: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let address = said["listening"].as_str().expect("an address").to_owned();
    let connected = TcpStream::connect(&address).expect("it listens");
    // While it serves, nobody else opens the directory.
    let refused = shell(&directory, &["-c", "select 1"], "");
    assert!(refused.status.code() != Some(0) && text(&refused.stderr).contains("open already"), "{refused:?}");
    // Without a certificate there is nothing to read again.
    for signal in ["-HUP", "-TERM"] {
        let sent = Command::new("kill").args([signal, &server.id().to_string()]).status().expect("kill is installed");
        assert!(sent.success());
    }
    assert_eq!(server.wait().expect("it ends").code(), Some(0));
    drop(connected);
    assert_eq!(shell(&directory, &["-c", "select 1"], "").status.code(), Some(0));
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
