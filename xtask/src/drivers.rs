//! `cargo xtask drivers`: drivers and programs of PostgreSQL against `seriatim serve`, each by a script of its own.
//!
//! Each script has a server of its own, with one role without a password, and TLS. It prints a line for each check, and
//! fails at the first that does not hold. What a script needs is installed by its language's own tool, in the versions
//! of the files beside it, below `target/drivers`. A script whose tool is not installed is skipped, with a note.
//! `--at PORT` runs the scripts against a server that runs there, one after another: they create the role `ann`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::ci::cargo;
use crate::contributing::target;

/// The folder of the scripts.
const SCRIPTS: &str = "crates/server/tests/drivers";
/// The directory of Debian's binaries of PostgreSQL.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The language of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Python,
    Node,
    Go,
    Java,
    Shell,
}

/// Names of drivers, their languages, and for those of the shell the program that they need.
const DRIVERS: &[(&str, Language, &str)] = &[
    ("psycopg2", Language::Python, ""),
    ("psycopg3", Language::Python, ""),
    ("asyncpg", Language::Python, ""),
    ("pg", Language::Node, ""),
    ("pgx", Language::Go, ""),
    ("lib_pq", Language::Go, ""),
    ("pgjdbc", Language::Java, ""),
    ("psql", Language::Shell, "psql"),
    ("pgbench", Language::Shell, "pgbench"),
    ("sysbench", Language::Shell, "sysbench"),
];

const USAGE: &str = "usage: cargo xtask drivers [--at PORT AUTHORITY] [NAME...]";

impl Language {
    /// The program that installs what a script needs and runs it.
    fn tools(self) -> &'static [&'static str] {
        match self {
            Language::Python => &["python3"],
            Language::Node => &["node", "npm"],
            Language::Go => &["go"],
            Language::Java => &["java", "mvn"],
            Language::Shell => &["sh"],
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::Node => "node",
            Language::Go => "go",
            Language::Java => "java",
            Language::Shell => "shell",
        }
    }

    /// The commands that install what the scripts of this language need into `to`.
    fn setup(self, scripts: &Path, to: &Path) -> Vec<Command> {
        let from = scripts.join(self.folder());
        let command = |program: &Path, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).current_dir(to);
            command
        };
        match self {
            Language::Python => {
                let requirements = from.join("requirements.txt").display().to_string();
                let install = ["-m", "pip", "install", "--quiet", "--no-deps", "-r", &requirements];
                vec![command(Path::new("python3"), &["-m", "venv", "."]), command(&to.join("bin/python"), &install)]
            }
            Language::Node => {
                let files = ["package.json", "package-lock.json", ".npmrc"].map(|name| from.join(name));
                let mut copy = command(Path::new("cp"), &[]);
                copy.args(files).arg(".");
                vec![copy, command(Path::new("npm"), &["ci", "--silent", "--no-audit", "--no-fund"])]
            }
            Language::Go => {
                let mut build = command(Path::new("go"), &["build", "-mod=readonly", "-o"]);
                build.arg(format!("{}/", to.display())).arg("./...").current_dir(from);
                vec![build]
            }
            Language::Java => {
                let mut copy = command(Path::new("mvn"), &["-q", "-B", "dependency:copy-dependencies", "-f"]);
                copy.arg(from.join("pom.xml")).arg(format!("-DoutputDirectory={}", to.display()));
                vec![copy]
            }
            Language::Shell => Vec::new(),
        }
    }

    /// The command that runs a script.
    fn run(self, scripts: &Path, at: &Path, name: &str) -> Command {
        let file = |file: String| scripts.join(self.folder()).join(file);
        let (program, script) = match self {
            Language::Python => (at.join("bin/python"), Some(file(format!("with_{name}.py")))),
            Language::Node => (PathBuf::from("node"), Some(file(format!("with_{name}.js")))),
            Language::Go => (at.join(name), None),
            Language::Java => (PathBuf::from("java"), Some(file("WithPgjdbc.java".to_owned()))),
            Language::Shell => (PathBuf::from("sh"), Some(file(format!("with_{name}.sh")))),
        };
        let mut command = Command::new(program);
        match self {
            // What it writes of its own is no part of the repository.
            Language::Python => drop(command.arg("-B")),
            Language::Node => drop(command.env("NODE_PATH", at.join("node_modules"))),
            Language::Java => {
                command.args(["-Duser.timezone=UTC", "-cp"]).arg(at.join("*"));
            }
            Language::Go | Language::Shell => {}
        }
        command.args(script);
        command
    }
}

/// The search path of programs, with Debian's of PostgreSQL.
fn path() -> std::ffi::OsString {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten();
    let mut folders: Vec<PathBuf> = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
    folders.sort();
    let given = std::env::var_os("PATH").unwrap_or_default();
    let all = folders.into_iter().rev().chain(std::env::split_paths(&given));
    std::env::join_paths(all).unwrap_or(given)
}

/// Whether a program is installed.
fn is_installed(program: &str) -> bool {
    std::env::split_paths(&path()).any(|folder| folder.join(program).is_file())
}

/// Runs a command that has to succeed.
fn succeed(mut command: Command) -> Result<(), String> {
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

/// A certificate for this machine and its authority, in a folder.
fn certify(folder: &Path) -> Result<(), String> {
    std::fs::write(folder.join("names"), "subjectAltName = IP:127.0.0.1, DNS:localhost")
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for line in [
        format!("req -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.pem {key}"),
        format!("req -subj /CN=localhost -keyout key.pem -out request {key}"),
        "x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem"
            .to_owned(),
    ] {
        let mut openssl = Command::new("openssl");
        openssl.args(line.split(' ')).current_dir(folder).stderr(Stdio::null());
        succeed(openssl)?;
    }
    Ok(())
}

/// A server, which ends with this.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(binary: &Path, folder: &Path) -> Result<Server, String> {
        let data = folder.join("data");
        let _ = std::fs::remove_dir_all(&data);
        let mut command = Command::new(binary);
        command.arg("serve").arg(&data).args(["--listen", "127.0.0.1:0"]);
        // A program without optimization takes its time to load tables.
        command.args(["--transaction-timeout", "10min", "--tls-cert"]).arg(folder.join("cert.pem"));
        command.arg("--tls-key").arg(folder.join("key.pem")).stdin(Stdio::null()).stdout(Stdio::piped());
        let log = std::fs::File::create(folder.join("log")).map_err(|error| format!("a log: {error}"))?;
        let mut child = command.stderr(log).spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        let read = BufReader::new(output).read_line(&mut line);
        let port = line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split(' ').next()).map(str::to_owned);
        let server = |port| Server { child, port };
        match (read, port) {
            (Ok(_), Some(port)) => Ok(server(port)),
            _ => {
                drop(server(String::new()));
                let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                Err(format!("the server does not start: {log}"))
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Installs what a language's scripts need.
fn set_up(language: Language, scripts: &Path, to: &Path) -> Result<(), String> {
    std::fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
    language.setup(scripts, to).into_iter().try_for_each(succeed)
}

/// Runs the scripts of the drivers that are named, or all.
///
/// # Errors
/// A script failed; a driver could not be installed although its tool is there; arguments that are none.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (at, names) = match arguments {
        [at, port, authority, names @ ..] if at == "--at" => (Some((port, authority)), names),
        names => (None, names),
    };
    if let Some(unknown) = names.iter().find(|name| DRIVERS.iter().all(|(known, ..)| known != name)) {
        let known: Vec<_> = DRIVERS.iter().map(|(name, ..)| *name).collect();
        return Err(format!("`{unknown}` is no driver: {}\n{USAGE}", known.join(", ")));
    }
    let folder = target(root).join("drivers");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let scripts = root.join(SCRIPTS);
    if at.is_none() {
        if !is_installed("openssl") {
            println!("skipped: all drivers need openssl, for certificates");
            return Ok(());
        }
        certify(&folder)?;
        let mut build = cargo(root);
        build.args(["build", "-p", "seriatim-cli"]);
        succeed(build)?;
    }
    let (mut failed, mut ready) = (Vec::new(), Vec::new());
    for (name, language, program) in DRIVERS {
        if !names.is_empty() && names.iter().all(|wanted| wanted != name) {
            continue;
        }
        let needed = language.tools().iter().chain([program]).filter(|tool| !tool.is_empty());
        if let Some(missing) = needed.into_iter().find(|tool| !is_installed(tool)) {
            println!("skipped: {name} needs {missing}, which is not installed");
            continue;
        }
        let installed = folder.join(language.folder());
        if !ready.contains(language) {
            if let Err(error) = set_up(*language, &scripts, &installed) {
                failed.push(format!("{name} cannot be installed: {error}"));
                continue;
            }
            ready.push(*language);
        }
        let server = match at {
            None => Some(Server::start(&target(root).join("debug/seriatim"), &folder)?),
            Some(_) => None,
        };
        let port = server.as_ref().map_or_else(|| at.map_or("", |(port, _)| port), |server| &server.port);
        let authority = at.map_or_else(|| folder.join("ca.pem"), |(_, authority)| PathBuf::from(authority));
        let mut script = language.run(&scripts, &installed, name);
        script.env("PATH", path()).env("PGHOST", "127.0.0.1").env("PGPORT", port).env("PGUSER", "postgres");
        script.env("PGDATABASE", "postgres").env("DRIVER_AUTHORITY", authority).env("LC_ALL", "C.UTF-8");
        println!("== {name}");
        if let Err(error) = succeed(script) {
            failed.push(format!("{name}: {error}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_that_of_a_driver() {
        let root = crate::files::root().join(SCRIPTS);
        for (name, language, _) in DRIVERS {
            let source = match language {
                Language::Go => root.join("go").join(name).join("main.go"),
                Language::Java => root.join("java/WithPgjdbc.java"),
                _ => {
                    let command = language.run(&root, Path::new("/installed"), name);
                    PathBuf::from(command.get_args().last().unwrap_or_default())
                }
            };
            assert!(source.is_file(), "{}", source.display());
        }
    }

    #[test]
    fn names_that_are_no_drivers_are_refused() {
        let refused = run(Path::new("/nonexistent"), &["psycopg".to_owned()]);
        assert!(refused.is_err_and(|message| message.contains("psycopg2, psycopg3")));
    }
}
