//! `cargo xtask rtm`: everything that needs hardware regions, where they work, with a dated report in `docs/rtm.md`.
//!
//! Machines with RTM come rarely. So one command runs all of it, within [`MINUTES`]. Every part also runs on other back
//! ends (`--backend emulated --small --to FILE`), where its commands are tried. A part that fails, or is not done in
//! time, is reported and fails the whole, after all parts have had their turn. Where regions do not work it says which
//! kind of machine this is.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use seriatim_base::clock::{self, Instant};

use crate::ci::cargo;
use crate::runs::{Done, date, machine};

/// All parts together, building included.
const MINUTES: u64 = 15;

/// Where the report of a whole run goes.
const REPORT: &str = "docs/rtm.md";

/// The options of a run.
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
        let mut options = Options { backend: "rtm".to_owned(), small: false, to: root.join(REPORT) };
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
struct ReportPart {
    name: &'static str,
    arguments: Vec<String>,
    /// Whether what it prints belongs into the report, as Markdown.
    is_measurement: bool,
}

impl ReportPart {
    /// Whether it is to run tests, and not only to build them.
    fn is_test(&self) -> bool {
        self.arguments[0] == "test" && !self.arguments.iter().any(|argument| argument == "--no-run")
    }
}

/// The parts, in the order in which failures say most.
fn parts(options: &Options) -> Vec<ReportPart> {
    let part = |name, line: &str, more: &[&str]| ReportPart {
        name,
        arguments: line.split(' ').chain(more.iter().copied()).map(str::to_owned).collect(),
        is_measurement: false,
    };
    let (backend, small) = (options.backend.as_str(), options.small);
    // Filters of tests for small runs.
    let only = |filter: &'static str| if small { filter.split(' ').collect::<Vec<_>>() } else { Vec::new() };
    let suite = "test -p seriatim-suite --test";
    let mut parts = vec![
        part(
            "build of the tests",
            "test -p seriatim-htm -p seriatim-suite --lib --tests --test traps --test workloads --no-run",
            &[],
        ),
        part("build of the programs", "build --release -p seriatim-cli", &[]),
        part("regions and their traps", "test -p seriatim-htm --lib", &[]),
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
    parts.push(ReportPart {
        is_measurement: true,
        ..part("measurements", &line, if small { &["--small"] } else { &[] })
    });
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
    let results: Vec<(ReportPart, Done)> = parts(&options)
        .into_iter()
        .map(|part| {
            eprintln!("== {}: cargo {}", part.name, part.arguments.join(" "));
            let done = execute(root, &part, &options.backend, deadline.saturating_sub(began.elapsed()));
            eprintln!("   {} in {:.1} s", done.failure.as_deref().unwrap_or("done"), done.seconds);
            (part, done)
        })
        .collect();
    let about = format!("{}\n{}", machine(root, REPORT), kind.trim_end());
    let text = report(&options, clock::unix_microseconds(), &about, &results);
    std::fs::write(&options.to, text).map_err(|error| format!("{}: {error}", options.to.display()))?;
    println!("{}", options.to.display());
    verdict(&results)
}

fn is_usable(kind: &str) -> bool {
    kind.lines().any(|line| line == "usable: yes")
}

/// Runs a part, which is ended when the time that is left is over.
fn execute(root: &Path, part: &ReportPart, backend: &str, left: Duration) -> Done {
    let mut command = cargo(root);
    command.args(&part.arguments).env("SERIATIM_HTM", backend).env("CARGO_TERM_COLOR", "never");
    Done::of(command, part.is_test(), part.is_measurement, left)
}

/// The report, in Markdown.
fn report(options: &Options, unix_microseconds: i64, about: &str, results: &[(ReportPart, Done)]) -> String {
    let failed = results.iter().filter(|(_, done)| done.failure.is_some()).count();
    let mut text = format!("# Hardware regions, {}\n\n", date(unix_microseconds));
    let size = if options.small { ", small sizes" } else { "" };
    let verdict = if failed == 0 { "every part passed".to_owned() } else { format!("**{failed} parts FAILED**") };
    let _ = writeln!(text, "Written by `cargo xtask rtm`; back end {}{size}: {verdict}.\n", options.backend);
    let _ = writeln!(
        text,
        "```text\n{about}\n```\n\n## Parts\n\n| part | command | verdict | seconds |\n| --- | --- | --- | --- |"
    );
    for (part, done) in results {
        let (command, verdict) = (part.arguments.join(" "), done.verdict());
        let _ = writeln!(text, "| {} | `cargo {command}` | {verdict} | {:.1} |", part.name, done.seconds);
    }
    for (part, done) in results {
        if part.is_measurement && !done.output.trim().is_empty() {
            let _ = write!(text, "\n## Measurements\n\n{}\n", done.output.trim_end());
        } else if let Some(failure) = &done.failure {
            let _ = writeln!(text, "\n## Failed: {}\n\n{failure}; the end of what it said:\n", part.name);
            let _ = writeln!(text, "{}", done.end());
        }
    }
    text
}

/// Failure if a part failed.
fn verdict(results: &[(ReportPart, Done)]) -> Result<(), String> {
    let failed = results.iter().filter(|(_, done)| done.failure.is_some());
    let failed: Vec<String> =
        failed.map(|(part, _)| format!("{} (cargo {})", part.name, part.arguments.join(" "))).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed, as the report says: {}", failed.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        Options::parse(Path::new("/r"), &arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    fn results(failures: [Option<&str>; 2]) -> Vec<(ReportPart, Done)> {
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
        let told = |part: &ReportPart| part.arguments.iter().filter(|argument| *argument == "rtm").count();
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
    fn parts_that_run_tests_are_known() {
        let every = parts(&parsed(&[]).expect("arguments"));
        assert_eq!(every.iter().filter(|part| part.is_test()).count(), 7);
    }

    #[test]
    fn only_a_machine_that_says_so_is_usable() {
        assert!(is_usable("usable: yes\ndetection: a\n"));
        assert!(!is_usable("usable: no\ndetection: usable: yes\n") && !is_usable(""));
    }
}
