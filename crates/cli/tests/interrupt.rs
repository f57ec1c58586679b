//! Ctrl-C during `seriatim bench`: the results so far are reported, and the exit code tells of the interruption.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use serde_json::Value;

/// A run of the program that ends only on a signal.
struct Run {
    child: Child,
    talk: BufReader<std::process::ChildStderr>,
}

impl Run {
    fn start(arguments: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
        command.arg("bench").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let talk = BufReader::new(child.stderr.take().expect("a pipe"));
        Run { child, talk }
    }

    /// Waits until the run prints a line that contains `wanted`.
    fn says(&mut self, wanted: &str) {
        let mut said = String::new();
        loop {
            let at = said.len();
            assert!(self.talk.read_line(&mut said).expect("UTF-8") > 0, "the run ended without {wanted:?}: {said}");
            if said[at..].contains(wanted) {
                return;
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("there is kill").success());
    }

    /// The exit status, the output, and the messages since.
    fn end(mut self) -> (ExitStatus, String, String) {
        let (mut printed, mut said) = (String::new(), String::new());
        self.child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("UTF-8");
        self.talk.read_to_string(&mut said).expect("UTF-8");
        (self.child.wait().expect("it was started"), printed, said)
    }
}

/// Small, but far longer than the test.
const LONG: [&str; 6] = ["--seconds", "80000", "--prefault", "0", "--seed", "7"];
const SMALL: [&str; 3] = ["smallbank", "--accounts", "1000"];

#[test]
fn a_signal_ends_a_run_early_and_its_report_has_the_verdict() {
    for (signal, more) in
        [("INT", &[][..]), ("TERM", &["--batch", "1", "--threads", "2"]), ("INT", &["--durability", "group"])]
    {
        let mut run = Run::start(&[&SMALL, &LONG[..], &["--warmup", "0"], more].concat());
        run.says(" transactions");
        run.signal(signal);
        let (status, printed, said) = run.end();
        assert_eq!(status.code(), Some(130), "{said}");
        let last = printed.lines().last().unwrap_or_default();
        assert!(last.starts_with("verdict        passed: ") && last.contains("; interrupted after "), "{printed}");
        assert!(
            said.contains("a second signal") && said.contains("seriatim: interrupted: the figures are of"),
            "{said}"
        );
    }
}

#[test]
fn a_report_as_json_says_that_the_run_was_interrupted() {
    let mut run = Run::start(&[&SMALL, &LONG[..], &["--warmup", "0", "--format", "json"]].concat());
    run.says(" transactions");
    run.signal("INT");
    let (status, printed, said) = run.end();
    let report: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}: {said}"));
    assert_eq!(
        (status.code(), &report["interrupted"], &report["consistency"]),
        (Some(130), &true.into(), &"passed".into())
    );
    let seconds = report["seconds"].as_f64().expect("a number");
    assert!(report["committed"].as_u64() > Some(0) && 0.0 < seconds && seconds < 80_000.0, "{report}");
}

#[test]
fn a_signal_in_the_warm_up_reports_nothing_and_leaves_nothing() {
    let home = std::env::temp_dir().join(format!("seriatim-interrupt-{:016x}", seriatim::rng::entropy()));
    std::fs::create_dir(&home).expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.env("TMPDIR", &home).arg("bench").args(SMALL).args(LONG).args([
        "--warmup",
        "80000",
        "--durability",
        "async",
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let talk = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut run = Run { child, talk };
    run.says("(warm-up)");
    run.signal("INT");
    let (status, printed, said) = run.end();
    assert_eq!((status.code(), &*printed), (Some(130), ""), "{said}");
    assert!(said.contains("interrupted before the measurement: nothing was measured"), "{said}");
    let left = std::fs::read_dir(&home).expect("it is there").count();
    std::fs::remove_dir_all(&home).expect("it is there");
    assert_eq!(left, 0);
}

/// Memory is touched between the warm-up and the measurement.
#[test]
fn the_reported_warm_up_ends_before_memory_is_touched() {
    let began = Instant::now();
    let tpcc = ["tpcc", "--scale", "small", "--warmup", "0.5", "--seconds", "20", "--format", "json"];
    let mut run = Run::start(&tpcc);
    run.says("touching ");
    let most = began.elapsed().as_secs_f64();
    run.signal("INT");
    let (status, printed, said) = run.end();
    let report: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}: {said}"));
    let warmup = report["warmup"]["seconds"].as_f64().expect("a number");
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(0.5 <= warmup && warmup <= most, "{warmup} s of warm-up, touching began before {most} s");
}

#[test]
fn measurements_below_the_workloads_end_early_too() {
    for what in [&["roofline"][..], &["index", "--records", "500"], &["regions", "--read", "4", "--htm", "absent"]] {
        let mut run = Run::start(&[what, &["--seconds", "80000"]].concat());
        run.says("Ctrl-C ends the run early");
        run.signal("INT");
        let (status, printed, said) = run.end();
        assert_eq!(status.code(), Some(130), "{said}");
        assert!(printed.starts_with("conditions     "), "{printed}");
    }
}

/// Rows of measurements until the signal are printed, and the exit code says that some are missing.
#[test]
fn measurements_in_rounds_and_rows_end_early_with_what_they_have() {
    let endless = ["--pairs", "1000000", "--seconds", "0.001"];
    let raw_index = [&["raw-index", "--keys", "100"][..], &endless].concat();
    let embedded = [&["embedded", "--entries", "100", "--accounts", "10"][..], &endless].concat();
    let churn = ["churn", "--rows", "50", "--seconds", "80000", "--threads", "1"].to_vec();
    for (arguments, wanted, rows) in [(raw_index, "round 2 of", 1), (embedded, "round 2 of", 3), (churn, "Ctrl-C", 0)] {
        for format in ["text", "json"] {
            let mut run = Run::start(&[&arguments[..], &["--format", format]].concat());
            run.says(wanted);
            run.signal("INT");
            let (status, printed, said) = run.end();
            assert_eq!(status.code(), Some(130), "{said}");
            assert!(said.contains("seriatim: interrupted: the figures are of the first"), "{said}");
            if format == "json" {
                let report: Value = serde_json::from_str(&printed).expect("JSON");
                assert_eq!(report["interrupted"], true, "{report}");
                assert!(report["rows"].as_array().map(Vec::len) >= Some(rows), "{report}");
            } else {
                let last = printed.lines().last().unwrap_or_default();
                assert!(printed.starts_with("conditions     ") && printed.lines().count() >= 3 + rows, "{printed}");
                assert!(last.starts_with("verdict        passed: ") && last.contains("; interrupted"), "{printed}");
            }
        }
    }
}
