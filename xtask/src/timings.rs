//! `cargo xtask ci --timings`: the cost of the checks, cold and warm, by step and by crate.
//!
//! The checks run twice as a child of this program: in an empty target directory, and again after a source of the
//! engine was touched. Cargo calls this program in the place of the compiler (`RUSTC_WRAPPER`) and of each test program
//! (`runner`). It runs what it was given, and appends the time of the processors to a file. A run of all steps writes
//! its tables into `CONTRIBUTING.md`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use seriatim_base::clock;

use crate::ci::finish;
use crate::contributing::target;
use crate::pgo::host;
use crate::runs::machine;

/// The environment variable with the file that times are appended to. Where it is set, this program stands for another.
const FILE: &str = "SERIATIM_TIMINGS";

/// Written anew, as it is, before the warm run.
const TOUCHED: &str = "crates/engine/src/lib.rs";

const DOCUMENT: &str = "CONTRIBUTING.md";
/// Lines of the document around the tables.
const AROUND: [&str; 2] = ["<!-- cargo xtask ci --timings -->", "<!-- end of the timings -->"];

/// Seconds by kind (`step`, `compile` or `run`) and name.
type Sums = BTreeMap<(String, String), f64>;

/// Runs the named steps of `cargo xtask ci` twice and prints what they cost; all steps if none is named, whose tables
/// also go into `CONTRIBUTING.md`.
///
/// # Errors
/// When a step fails.
pub(crate) fn run(root: &Path, steps: &[String]) -> Result<(), String> {
    let folder = target(root).join("timings");
    // An earlier run may have been stopped.
    let _ = std::fs::remove_dir_all(&folder);
    let done = cold_and_warm(root, steps, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    let text = tables(&machine(root, DOCUMENT), &done?);
    println!("{text}");
    if !steps.is_empty() {
        return Ok(());
    }
    let path = root.join(DOCUMENT);
    let failed = |error| format!("{DOCUMENT}: {error}");
    let document = std::fs::read_to_string(&path).map_err(failed)?;
    std::fs::write(&path, replaced(&document, &text)?).map_err(failed)
}

fn cold_and_warm(root: &Path, steps: &[String], folder: &Path) -> Result<[Sums; 2], String> {
    let cold = measured(root, steps, folder)?;
    let source = root.join(TOUCHED);
    let text = std::fs::read(&source).map_err(|error| format!("{TOUCHED}: {error}"))?;
    std::fs::write(&source, text).map_err(|error| format!("{TOUCHED}: {error}"))?;
    Ok([cold, measured(root, steps, folder)?])
}

/// Runs the steps once, with this target directory.
fn measured(root: &Path, steps: &[String], folder: &Path) -> Result<Sums, String> {
    let file = std::env::temp_dir().join(format!("seriatim-timings-{}", clock::unix_microseconds()));
    std::fs::write(&file, "").map_err(|error| format!("{}: {error}", file.display()))?;
    let this = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let runner = format!("CARGO_TARGET_{}_RUNNER", host(root)?.to_uppercase().replace(['-', '.'], "_"));
    let mut command = Command::new(&this);
    command.current_dir(root).arg("ci").args(steps).env("RUSTC_WRAPPER", &this).env(runner, &this).env(FILE, &file);
    // As in `.ci/run`.
    command.env("CARGO_MANIFEST_DIR", root.join("xtask")).env("CARGO_TARGET_DIR", folder).env("CARGO_INCREMENTAL", "0");
    let done = finish(command);
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let _ = std::fs::remove_file(&file);
    done.map(|()| sums(&text))
}

/// Notes the duration of a step, if they are measured.
pub(crate) fn note_step(name: &str, seconds: f64) {
    if let Some(file) = std::env::var_os(FILE) {
        append(&file, &format!("step {name}"), seconds);
    }
}

fn append(file: &OsString, what: &str, seconds: f64) {
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(file) {
        // One write: other processes append as well.
        let _ = file.write_all(format!("{what} {seconds:.2}\n").as_bytes());
    }
}

/// Runs a compiler or a test program in whose place this one was called, if it was.
pub(crate) fn stand_in() -> Option<ExitCode> {
    let file = std::env::var_os(FILE)?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (program, rest) = arguments.split_first().filter(|(program, _)| Path::new(program).is_absolute())?;
    // The programs that it starts are not timed separately.
    let status = Command::new(program).args(rest).env_remove(FILE).status();
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    if let Some(what) = what(program, rest, &package) {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        append(&file, &what, processor_seconds(&stat).unwrap_or(0.0));
    }
    match status {
        Ok(status) => Some(ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1))),
        Err(error) => {
            eprintln!("xtask: cannot run {}: {error}", program.display());
            Some(ExitCode::FAILURE)
        }
    }
}

/// The time of the processors that a process's children took, by its `/proc/PID/stat`: `cutime` and `cstime`, in
/// hundredths of a second (proc(5)).
fn processor_seconds(stat: &str) -> Option<f64> {
    // The name before them may have spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13).map(str::parse::<f64>);
    Some((fields.next()?.ok()? + fields.next()?.ok()?) / 100.0)
}

/// The timed work: the compilation of a crate of the workspace or of a dependency, or a test program of a crate.
fn what(program: &OsString, arguments: &[OsString], package: &str) -> Option<String> {
    let name = Path::new(program).file_name()?.to_string_lossy();
    // The unit tests of some crates are a package of their own.
    let package = package.strip_prefix("seriatim-").unwrap_or(package);
    let package = package.strip_suffix("-unit").unwrap_or(package);
    if name != "rustc" && name != "clippy-driver" {
        return Some(format!("run {package}"));
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let is_probe = !has("--crate-name") || has("___");
    (!is_probe).then(|| format!("compile {}", if has("--cap-lints") { "(dependencies)" } else { package }))
}

fn sums(text: &str) -> Sums {
    let mut sums = Sums::new();
    for line in text.lines() {
        if let [kind, name, seconds] = line.split(' ').collect::<Vec<_>>()[..]
            && let Ok(seconds) = seconds.parse::<f64>()
        {
            *sums.entry((kind.to_owned(), name.to_owned())).or_default() += seconds;
        }
    }
    sums
}

/// The tables of a cold and a warm run.
fn tables(machine: &str, [cold, warm]: &[Sums; 2]) -> String {
    let of = |sums: &Sums, kind: &str, name: &str| {
        sums.get(&(kind.to_owned(), name.to_owned())).copied().unwrap_or_default()
    };
    let all =
        |sums: &Sums, kind: &str| sums.iter().filter(|((of, _), _)| of == kind).fold(0.0, |all, (_, sum)| all + sum);
    let mut text = format!("```text\n{machine}\n```\n\n| step | cold, seconds | warm, seconds |\n| --- | --- | --- |");
    for (_, name) in cold.keys().filter(|(kind, _)| kind == "step") {
        let _ = write!(text, "\n| {name} | {:.0} | {:.0} |", of(cold, "step", name), of(warm, "step", name));
    }
    let _ = write!(text, "\n| all | {:.0} | {:.0} |\n", all(cold, "step"), all(warm, "step"));
    let mut crates: Vec<(&str, [f64; 3])> = Vec::new();
    for (_, name) in cold.keys().filter(|(kind, _)| kind != "step") {
        let row = [of(cold, "compile", name), of(warm, "compile", name), of(cold, "run", name)];
        if row.iter().any(|&seconds| seconds >= 1.0) && !crates.iter().any(|(known, _)| known == name) {
            crates.push((name, row));
        }
    }
    crates.sort_by(|(_, a), (_, b)| b.iter().sum::<f64>().total_cmp(&a.iter().sum()));
    crates.push(("all", [all(cold, "compile"), all(warm, "compile"), all(cold, "run")]));
    text +=
        "\n| crate, seconds of a processor | compiled, cold | compiled, warm | its tests |\n| --- | --- | --- | --- |";
    for (name, [cold, warm, run]) in crates {
        let _ = write!(text, "\n| {name} | {cold:.0} | {warm:.0} | {run:.0} |");
    }
    text
}

/// The document with these tables.
fn replaced(document: &str, tables: &str) -> Result<String, String> {
    let [from, to] = AROUND;
    let parts = document.split_once(from).and_then(|(before, rest)| Some((before, rest.split_once(to)?.1)));
    let (before, after) =
        parts.ok_or_else(|| format!("{DOCUMENT} has no line `{from}` with a line `{to}` below it"))?;
    Ok(format!("{before}{from}\n\n{tables}\n\n{to}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn crates_dependencies_and_test_programs_are_distinguished() {
        let rustc = OsString::from("/a/rustc");
        let said = |program: &OsString, arguments: &str, package| what(program, &words(arguments), package);
        let dependency = said(&rustc, "--crate-name tokio a.rs --cap-lints allow", "tokio");
        assert_eq!(dependency.as_deref(), Some("compile (dependencies)"));
        let unit = said(&rustc, "--crate-name seriatim_store_unit a.rs", "seriatim-store-unit");
        assert_eq!(unit.as_deref(), Some("compile store"));
        assert_eq!(said(&rustc, "-vV", ""), None);
        assert_eq!(said(&rustc, "- --crate-name ___ --print=cfg", ""), None);
        let program = OsString::from("/t/deps/turns-0a1b");
        assert_eq!(said(&program, "", "seriatim-suite").as_deref(), Some("run suite"));
    }

    #[test]
    fn the_time_of_children_is_read_after_a_name_with_spaces() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 50 60 700 80 20 0 1 0 9";
        assert_eq!(processor_seconds(stat), Some(7.8));
        assert_eq!(processor_seconds("7 (a) S 1"), None);
    }

    #[test]
    fn tables_have_steps_and_crates_the_dearest_first() {
        let cold =
            sums("compile a 2.00\nrun a 1.00\ncut o\ncompile b 4.00\ncompile b 5.00\nrun c 0.50\nstep test 9.00\n");
        let text = tables("a machine", &[cold, sums("compile b 3.00\nstep test 7.00\n")]);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ") && !line.contains("---")).collect();
        let steps = ["| step | cold, seconds | warm, seconds |", "| test | 9 | 7 |", "| all | 9 | 7 |"];
        assert_eq!(rows[..3], steps);
        assert_eq!(rows[4..], ["| b | 9 | 3 | 0 |", "| a | 2 | 0 | 1 |", "| all | 11 | 3 | 2 |"]);
    }

    #[test]
    fn tables_replace_those_of_the_document() {
        let document = format!("a\n{}\nold\n{}\nb\n", AROUND[0], AROUND[1]);
        let once = replaced(&document, "new").expect("it has both lines");
        assert_eq!(once, format!("a\n{}\n\nnew\n\n{}\nb\n", AROUND[0], AROUND[1]));
        assert_eq!(replaced(&once, "new"), Ok(once.clone()));
        assert!(replaced("a", "new").is_err_and(|message| message.contains(AROUND[0])));
    }
}
