//! `cargo xtask ci --timings`: what each crate costs to compile, and each test program to run.
//!
//! The checks run once more as a child of this program, where cargo calls this program in the place of the compiler
//! (`RUSTC_WRAPPER`) and of each test program (`runner`). It runs what it was given, and appends the time to a file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use seriatim_base::clock::{self, Instant};

use crate::ci::finish;
use crate::pgo::host;

/// The environment variable with the file that times are appended to. Where it is set, this program stands for another.
const FILE: &str = "SERIATIM_TIMINGS";

/// Runs the named steps of `cargo xtask ci` and prints a table.
///
/// # Errors
/// When a step fails; the table is printed all the same.
pub(crate) fn run(root: &Path, steps: &[String]) -> Result<(), String> {
    let file = std::env::temp_dir().join(format!("seriatim-timings-{}", clock::unix_microseconds()));
    std::fs::write(&file, "").map_err(|error| format!("{}: {error}", file.display()))?;
    let this = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let runner = format!("CARGO_TARGET_{}_RUNNER", host(root)?.to_uppercase().replace(['-', '.'], "_"));
    let mut command = Command::new(&this);
    command.current_dir(root).arg("ci").args(steps).env("RUSTC_WRAPPER", &this).env(runner, &this).env(FILE, &file);
    command.env("CARGO_MANIFEST_DIR", root.join("xtask"));
    let done = finish(command);
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let _ = std::fs::remove_file(&file);
    println!("{}", table(&text));
    done
}

/// Runs a compiler or a test program in whose place this one was called, if it was.
pub(crate) fn stand_in() -> Option<ExitCode> {
    let file = std::env::var_os(FILE)?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (program, rest) = arguments.split_first().filter(|(program, _)| Path::new(program).is_absolute())?;
    let began = Instant::now();
    // The programs that it starts are not timed separately.
    let status = Command::new(program).args(rest).env_remove(FILE).status();
    let seconds = began.elapsed().as_secs_f64();
    if let Some(what) = what(program, rest)
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(file)
    {
        // One write: other processes append as well.
        let _ = file.write_all(format!("{what} {seconds:.2}\n").as_bytes());
    }
    match status {
        Ok(status) => Some(ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1))),
        Err(error) => {
            eprintln!("xtask: cannot run {}: {error}", program.display());
            Some(ExitCode::FAILURE)
        }
    }
}

/// The timed work: the compilation of a crate of the workspace or of a dependency, or a test program.
fn what(program: &OsString, arguments: &[OsString]) -> Option<String> {
    let name = Path::new(program).file_name()?.to_string_lossy().into_owned();
    let after = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        Some(arguments.get(at + 1)?.to_string_lossy().into_owned())
    };
    if name != "rustc" && name != "clippy-driver" {
        // The hash behind the name changes with each version.
        return Some(format!("run {}", name.rsplit_once('-').map_or(name.as_str(), |(name, _)| name)));
    }
    let krate = after("--crate-name").filter(|krate| krate != "___")?;
    let is_ours = !arguments.iter().any(|argument| argument == "--cap-lints");
    Some(format!("compile {}", if is_ours { krate } else { "(dependencies)".to_owned() }))
}

/// Sums of what was timed, the longest first.
fn table(text: &str) -> String {
    let mut sums: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for line in text.lines() {
        if let [what, name, seconds] = line.split(' ').collect::<Vec<_>>()[..]
            && let Ok(seconds) = seconds.parse::<f64>()
        {
            *sums.entry((what, name)).or_default() += seconds;
        }
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut text = "| what | seconds |\n| --- | --- |".to_owned();
    for ((what, name), seconds) in rows.iter().filter(|(_, seconds)| *seconds >= 1.0) {
        let _ = write!(text, "\n| {what} {name} | {seconds:.0} |");
    }
    for kind in ["compile", "run"] {
        let sum: f64 = rows.iter().filter(|((what, _), _)| *what == kind).map(|(_, seconds)| seconds).sum();
        let _ = write!(text, "\n| {kind}, all | {sum:.0} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn crates_dependencies_and_test_programs_are_told_apart() {
        let rustc = OsString::from("/a/rustc");
        assert_eq!(
            what(&rustc, &words("--crate-name tokio a.rs --cap-lints allow")).as_deref(),
            Some("compile (dependencies)")
        );
        assert_eq!(what(&rustc, &words("--crate-name seriatim_base a.rs")).as_deref(), Some("compile seriatim_base"));
        assert_eq!(what(&rustc, &words("-vV")), None);
        assert_eq!(what(&OsString::from("/t/deps/turns-0a1b"), &[]).as_deref(), Some("run turns"));
    }

    #[test]
    fn the_table_has_sums_and_the_longest_first() {
        let text = table("run a 1.50\ncompile b 2.00\nrun a 1.00\ncut o\nrun c 0.50\n");
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows, ["| run a | 2 |", "| compile b | 2 |", "| compile, all | 2 |", "| run, all | 3 |"]);
    }
}
