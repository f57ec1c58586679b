//! Commands that run for long: ended when their time is over, their output kept; and what a report says of the machine.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use seriatim_base::clock::{self, Instant};
use seriatim_base::thread;

use crate::git;

/// Whether the output of `cargo test` tells of a test that passed: a filter that matches nothing also succeeds.
fn ran_tests(output: &str) -> bool {
    let passed = output.lines().filter_map(|line| line.trim().strip_prefix("test result: ok. "));
    passed.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).any(|count| count > 0)
}

/// The failure of a command, if it is one, and its output. The output goes through files, so that none fills a pipe
/// meanwhile.
fn ended(mut command: Command, is_measurement: bool, left: Duration) -> Result<(Option<String>, String), String> {
    let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let path =
        std::env::temp_dir().join(format!("seriatim-xtask-{}-{}", std::process::id(), clock::unix_microseconds()));
    let file = std::fs::File::create_new(&path).map_err(|error| failed("a file for output", error))?;
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
                // Programs that cargo started end by themselves, as each test bounds its own time.
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

/// The outcome of a command.
pub(crate) struct Done {
    /// The reason, if it failed.
    pub(crate) failure: Option<String>,
    pub(crate) seconds: f64,
    /// Standard output and, unless the command measures, standard error.
    pub(crate) output: String,
}

impl Done {
    /// Runs a command for at most the time that is left. Tests fail if none ran.
    pub(crate) fn of(command: Command, is_test: bool, is_measurement: bool, left: Duration) -> Done {
        let began = Instant::now();
        let (failure, output) = match ended(command, is_measurement, left) {
            Ok((None, output)) if is_test && !ran_tests(&output) => (Some("ran no test".to_owned()), output),
            Ok(done) => done,
            Err(error) => (Some(error), String::new()),
        };
        Done { failure, seconds: began.elapsed().as_secs_f64(), output }
    }

    /// The verdict, for a table of a report.
    pub(crate) fn verdict(&self) -> String {
        self.failure.as_ref().map_or("passed".to_owned(), |failure| format!("**FAILED**: {failure}"))
    }

    /// The last 60 lines of the output, as a block of a report.
    pub(crate) fn end(&self) -> String {
        let lines: Vec<&str> = self.output.lines().collect();
        format!("```text\n{}\n```", lines[lines.len().saturating_sub(60)..].join("\n"))
    }
}

/// Processor, kernel and revision, a line each, for a report.
pub(crate) fn machine(root: &Path, report: &str) -> String {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = processor.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut text = String::new();
    for (name, value) in [
        ("processor", field("model name")),
        ("microcode", field("microcode")),
        ("processors", Some(thread::processors().to_string())),
        ("kernel", Some(kernel.trim().to_owned())),
        ("revision", Some(git::revision(root, report))),
    ] {
        let _ = writeln!(text, "{name}: {}", value.filter(|value| !value.is_empty()).unwrap_or("unknown".to_owned()));
    }
    text.trim_end().to_owned()
}

/// Year, month and day of a time since 1970, in UTC (Hinnant, "chrono-compatible low-level date algorithms",
/// `civil_from_days`).
pub(crate) fn date(unix_microseconds: i64) -> String {
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

    #[test]
    fn canary_a_run_of_no_test_is_noticed() {
        assert!(ran_tests("test result: ok. 0 passed; 1\ntest result: ok. 12 passed; 0 failed\n"));
        assert!(!ran_tests("test result: ok. 0 passed; 0 failed; 7 filtered out\n") && !ran_tests(""));
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
    fn days_are_counted_through_leap_years() {
        let day = |days: i64| date(days * 86_400_000_000);
        assert_eq!(
            [day(0), day(11_016), day(11_017), day(20_779)],
            ["1970-01-01", "2000-02-29", "2000-03-01", "2026-11-22"]
        );
    }
}
