//! `cargo xtask rtm`: everything that needs hardware regions, where they work, with a dated report in `docs/rtm.md`.
//!
//! Machines with RTM come rarely: so one command runs all of it, within [`MINUTES`], and every part also runs on other back ends
//! (`--backend emulated --small --to FILE`), where its commands are tried. A part that fails, or is not done in time, is reported and
//! fails the whole, after all parts have had their turn. Where regions do not work it says which kind of machine this is.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use seriatim_base::clock::{self, Instant};
use seriatim_base::thread;

use crate::ci::cargo;

/// All parts together, building included.
const MINUTES: u64 = 15;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    backend: String,
    small: bool,
    /// Where the report goes.
    to: PathBuf,
}

impl Options {
    /// From the arguments.
    fn parse(root: &Path, arguments: &[String]) -> Result<Options, String> {
        let mut options = Options { backend: "rtm".to_owned(), small: false, to: root.join("docs/rtm.md") };
        let (mut has_target, mut rest) = (false, arguments.iter());
        while let Some(argument) = rest.next() {
            match (argument.as_str(), rest.as_slice().first()) {
                ("--small", _) => options.small = true,
                ("--backend", Some(name)) if ["rtm", "emulated", "absent"].contains(&name.as_str()) => {
                    options.backend = name.clone();
                    rest.next();
                }
                ("--to", Some(file)) => {
                    (options.to, has_target) = (PathBuf::from(file), true);
                    rest.next();
                }
                _ => {
                    return Err(format!("rtm: `{argument}`: use --backend rtm|emulated|absent, --small, --to FILE"));
                }
            }
        }
        if !has_target && (options.small || options.backend != "rtm") {
            return Err("rtm: name a file with --to: docs/rtm.md is for whole runs on hardware regions".to_owned());
        }
        Ok(options)
    }
}

/// One command and what it is for.
struct Part {
    name: &'static str,
    arguments: Vec<String>,
    /// Whether what it prints belongs into the report, as Markdown.
    is_measurement: bool,
}

impl Part {
    /// Whether it is to run tests, and not only to build them.
    fn is_test(&self) -> bool {
        self.arguments[0] == "test" && !self.arguments.iter().any(|argument| argument == "--no-run")
    }
}

/// Whether the output of `cargo test` tells of a test that passed: a filter that matches nothing also succeeds.
fn ran_tests(output: &str) -> bool {
    let passed = output.lines().filter_map(|line| line.trim().strip_prefix("test result: ok. "));
    passed.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).any(|count| count > 0)
}

/// What became of a part.
struct Done {
    /// Why it failed.
    failure: Option<String>,
    seconds: f64,
    /// Standard output and, of a part that is no measurement, standard error.
    output: String,
}

/// What runs, in the order in which failures say most.
fn parts(options: &Options) -> Vec<Part> {
    let part = |name, line: &str, more: &[&str]| Part {
        name,
        arguments: line.split(' ').chain(more.iter().copied()).map(str::to_owned).collect(),
        is_measurement: false,
    };
    let (backend, small) = (options.backend.as_str(), options.small);
    // Filters of tests for small runs.
    let only = |filter: &'static str| if small { filter.split(' ').collect::<Vec<_>>() } else { Vec::new() };
    let suite = "test -p seriatim-suite --test";
    let mut parts = vec![
        part("build of the tests", "test -p seriatim-htm -p seriatim-suite --no-run", &[]),
        part("build of the programs", "build --release -p seriatim-cli", &[]),
        part("regions and their traps", "test -p seriatim-htm", &[]),
        part("anomalies in every interleaving", &format!("{suite} isolation"), &only("lost_update")),
        part("histories under load", &format!("{suite} histories"), &only("scans")),
        part("canaries", &format!("{suite} canaries"), &only("skipped_validation_is_caught")),
        part("traps", &format!("{suite} traps"), &only("regions::a_mode")),
        part("what clients see", &format!("{suite} clients"), &only("lists")),
        part("workloads and their conditions", &format!("{suite} workloads"), &only("tpcc")),
    ];
    for protocol in ["dbx", "htcc", "silo", "occ", "hto", "naive", "tictoc", "cicada", "nowait", "wait-die"] {
        for warehouses in ["2", "1"] {
            let line = "run --release -p seriatim-cli -- bench tpcc --threads 2 --warmup 0 --seed 1 --htm";
            let seconds =
                if small { ["--seconds", "0.2", "--scale", "small"] } else { ["--seconds", "10", "--scale", "spec"] };
            let mut more = vec![backend, "--protocol", protocol, "--warehouses", warehouses];
            more.extend(seconds);
            parts.push(part("TPC-C and its conditions", line, &more));
        }
    }
    let line = format!("run --release -p seriatim-cli -- bench rtm --backend {backend}");
    parts.push(Part { is_measurement: true, ..part("measurements", &line, if small { &["--small"] } else { &[] }) });
    parts
}

/// Runs all parts, or says why not.
///
/// # Errors
/// When an argument is none, or a part failed; then the report says which.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = Options::parse(root, arguments)?;
    let mut ask = cargo(root);
    ask.args(["run", "--quiet", "-p", "seriatim-cli", "--", "bench", "rtm", "--kind"]);
    let output = ask.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run {ask:?}: {error}"))?;
    let kind = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{ask:?} ended with {}", output.status));
    }
    if options.backend == "rtm" && !is_usable(&kind) {
        println!("hardware regions are not used on this machine, so there is nothing to run:\n{}", kind.trim_end());
        return Ok(());
    }
    let deadline = Duration::from_secs(60 * MINUTES);
    let began = Instant::now();
    let results: Vec<(Part, Done)> = parts(&options)
        .into_iter()
        .map(|part| {
            eprintln!("== {}: cargo {}", part.name, part.arguments.join(" "));
            let done = execute(root, &part, &options.backend, deadline.saturating_sub(began.elapsed()));
            eprintln!("   {} in {:.1} s", done.failure.as_deref().unwrap_or("done"), done.seconds);
            (part, done)
        })
        .collect();
    let about = format!("{}\n{}", machine(root), kind.trim_end());
    let text = report(&options, clock::unix_microseconds(), &about, &results);
    std::fs::write(&options.to, text).map_err(|error| format!("{}: {error}", options.to.display()))?;
    println!("{}", options.to.display());
    verdict(&results)
}

fn is_usable(kind: &str) -> bool {
    kind.lines().any(|line| line == "usable: yes")
}

/// Runs a part, which is ended when the time that is left is over.
fn execute(root: &Path, part: &Part, backend: &str, left: Duration) -> Done {
    let began = Instant::now();
    let mut command = cargo(root);
    command.args(&part.arguments).env("SERIATIM_HTM", backend).env("CARGO_TERM_COLOR", "never");
    let (failure, output) = match ended(command, part.is_measurement, left) {
        Ok((None, output)) if part.is_test() && !ran_tests(&output) => (Some("ran no test".to_owned()), output),
        Ok((failure, output)) => (failure, output),
        Err(error) => (Some(error), String::new()),
    };
    Done { failure, seconds: began.elapsed().as_secs_f64(), output }
}

/// The failure of a command, if it is one, and its output. The output goes through files, so that none fills a pipe meanwhile.
fn ended(mut command: Command, is_measurement: bool, left: Duration) -> Result<(Option<String>, String), String> {
    let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let path = std::env::temp_dir().join(format!("seriatim-rtm-{}-{}", std::process::id(), clock::unix_microseconds()));
    let file = std::fs::File::create(&path).map_err(|error| failed("a file for output", error))?;
    let talk = if is_measurement {
        Stdio::inherit()
    } else {
        file.try_clone().map_err(|error| failed("output", error))?.into()
    };
    command.stdout(file).stderr(talk).stdin(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn().map_err(|error| failed(&format!("cannot run {command:?}"), error))?;
    let failure = loop {
        match child.try_wait().map_err(|error| failed("waiting", error))? {
            Some(status) if status.success() => break None,
            Some(status) => break Some(format!("ended with {status}")),
            None if began.elapsed() >= left => {
                // What cargo started ends by itself; each test bounds its own time.
                let _ = child.kill();
                let _ = child.wait();
                break Some("not done in time".to_owned());
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    };
    let output = String::from_utf8_lossy(&std::fs::read(&path).map_err(|error| failed("output", error))?).into_owned();
    let _ = std::fs::remove_file(&path);
    Ok((failure, output))
}

/// Processor, kernel and revision, a line each.
fn machine(root: &Path) -> String {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = processor.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut git = Command::new("git");
    let revision = git.args(["describe", "--always", "--dirty"]).current_dir(root).output();
    let revision = revision.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let mut text = String::new();
    for (name, value) in [
        ("processor", field("model name")),
        ("microcode", field("microcode")),
        ("processors", Some(thread::processors().to_string())),
        ("kernel", Some(kernel.trim().to_owned())),
        ("revision", Some(revision)),
    ] {
        let _ = writeln!(text, "{name}: {}", value.filter(|value| !value.is_empty()).unwrap_or("unknown".to_owned()));
    }
    text.trim_end().to_owned()
}

/// The report, in Markdown.
fn report(options: &Options, unix_microseconds: i64, about: &str, results: &[(Part, Done)]) -> String {
    let failed = results.iter().filter(|(_, done)| done.failure.is_some()).count();
    let mut text = format!("# Hardware regions, {}\n\n", date(unix_microseconds));
    let size = if options.small { ", small sizes" } else { "" };
    let verdict = if failed == 0 { "every part passed".to_owned() } else { format!("**{failed} parts FAILED**") };
    let _ = writeln!(text, "Written by `cargo xtask rtm`; back end {}{size}: {verdict}.\n", options.backend);
    let _ = writeln!(
        text,
        "```text\n{about}\n```\n\n## Parts\n\n| part | command | verdict | seconds |\n| --- | --- | --- | --- |"
    );
    for (part, Done { failure, seconds, .. }) in results {
        let (name, command) = (part.name, part.arguments.join(" "));
        let verdict = failure.as_ref().map_or("passed".to_owned(), |failure| format!("**FAILED**: {failure}"));
        let _ = writeln!(text, "| {name} | `cargo {command}` | {verdict} | {seconds:.1} |");
    }
    for (part, done) in results {
        if part.is_measurement && !done.output.trim().is_empty() {
            let _ = write!(text, "\n## Measurements\n\n{}\n", done.output.trim_end());
        } else if let Some(failure) = &done.failure {
            let _ = writeln!(text, "\n## Failed: {}\n\n{failure}; the end of what it said:\n", part.name);
            let lines: Vec<&str> = done.output.lines().collect();
            let end = lines[lines.len().saturating_sub(60)..].join("\n");
            let _ = writeln!(text, "```text\n{end}\n```");
        }
    }
    text
}

/// Failure if a part failed.
fn verdict(results: &[(Part, Done)]) -> Result<(), String> {
    let failed = results.iter().filter(|(_, done)| done.failure.is_some());
    let failed: Vec<String> =
        failed.map(|(part, _)| format!("{} (cargo {})", part.name, part.arguments.join(" "))).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed, as the report says: {}", failed.join("; "))) }
}

/// Year, month and day of a time since 1970, in UTC (Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn date(unix_microseconds: i64) -> String {
    let days = unix_microseconds.div_euclid(86_400_000_000) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) =
        (day_of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        Options::parse(Path::new("/r"), &arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    fn results(failures: [Option<&str>; 2]) -> Vec<(Part, Done)> {
        let options = parsed(&["--small", "--to", "x"]).expect("arguments");
        let all = parts(&options).into_iter();
        let chosen = all.filter(|part| part.name == "canaries" || part.is_measurement);
        let done = failures.map(|failure| Done {
            failure: failure.map(str::to_owned),
            seconds: 1.5,
            output: "### Said\n".to_owned(),
        });
        chosen.zip(done).collect()
    }

    #[test]
    fn a_run_that_is_no_whole_run_on_hardware_does_not_touch_the_report() {
        assert_eq!(parsed(&[]).map(|options| options.to), Ok(PathBuf::from("/r/docs/rtm.md")));
        for wrong in [&["--small"][..], &["--backend", "emulated"], &["--backend", "tsx"], &["--to"], &["now"]] {
            assert!(parsed(wrong).is_err_and(|message| message.contains("--to")), "{wrong:?}");
        }
        let tried = parsed(&["--backend", "emulated", "--small", "--to", "/t/r.md"]).expect("arguments");
        assert_eq!(tried, Options { backend: "emulated".to_owned(), small: true, to: "/t/r.md".into() });
    }

    #[test]
    fn small_runs_have_the_parts_of_whole_ones() {
        let names = |options: &Options| parts(options).iter().map(|part| part.name).collect::<Vec<_>>();
        let (whole, small) = (parsed(&[]), parsed(&["--small", "--to", "x"]));
        assert_eq!(whole.as_ref().map(names).ok(), small.as_ref().map(names).ok());
        let every = parts(&whole.expect("arguments"));
        let told = |part: &Part| part.arguments.iter().filter(|argument| *argument == "rtm").count();
        assert!(every.iter().filter(|part| part.name.starts_with("TPC-C")).all(|part| told(part) == 1));
    }

    #[test]
    fn the_report_has_date_machine_verdicts_and_measurements() {
        let passed = results([None, None]);
        let options = parsed(&["--small", "--to", "x"]).expect("arguments");
        let text = report(&options, 1_795_305_600_000_000, "processor: A\nusable: yes", &passed);
        for wanted in
            ["# Hardware regions, 2026-11-22\n", "processor: A", "| canaries |", "every part passed", "### Said"]
        {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(verdict(&passed).is_ok() && !text.contains("FAILED"));
    }

    #[test]
    fn canary_a_failed_part_is_reported_and_fails_the_whole() {
        for at in 0..2 {
            let mut failures = [None, None];
            failures[at] = Some("ended with 1");
            let failed = results(failures);
            let text = report(&parsed(&[]).expect("arguments"), 0, "", &failed);
            assert!(text.contains("1 parts FAILED") && text.contains("**FAILED**: ended with 1"), "{text}");
            let name = failed[at].0.name;
            assert!(verdict(&failed).is_err_and(|message| message.contains(name)));
        }
    }

    #[test]
    fn a_command_is_ended_when_its_time_is_over_and_its_output_kept() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let long = Duration::from_secs(600);
        assert_eq!(ended(shell("echo one; echo two >&2"), false, long), Ok((None, "one\ntwo\n".to_owned())));
        let (failure, output) = ended(shell("echo one; exit 3"), true, long).expect("it starts");
        assert!(failure.is_some_and(|failure| failure.contains('3')) && output == "one\n");
        let (failure, _) = ended(shell("exec sleep 600"), false, Duration::from_millis(100)).expect("it starts");
        assert_eq!(failure.as_deref(), Some("not done in time"));
    }

    #[test]
    fn canary_a_part_that_runs_no_test_is_noticed() {
        assert!(ran_tests("test result: ok. 0 passed; 1\ntest result: ok. 12 passed; 0 failed\n"));
        assert!(!ran_tests("test result: ok. 0 passed; 0 failed; 7 filtered out\n") && !ran_tests(""));
        let every = parts(&parsed(&[]).expect("arguments"));
        assert_eq!(every.iter().filter(|part| part.is_test()).count(), 7);
    }

    #[test]
    fn only_a_machine_that_says_so_is_usable() {
        assert!(is_usable("usable: yes\ndetection: a\n"));
        assert!(!is_usable("usable: no\ndetection: usable: yes\n") && !is_usable(""));
    }

    #[test]
    fn days_are_counted_through_leap_years() {
        let day = |days: i64| date(days * 86_400_000_000);
        assert_eq!(
            [day(0), day(11_016), day(11_017), day(20_779)],
            ["1970-01-01", "2000-02-29", "2000-03-01", "2026-11-22"]
        );
    }
}
