//! Benchmarks that `seriatim simulate` runs, each in its own process, and the parts of their reports that it reads.

use std::path::Path;
use std::process::Command;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use seriatim_base::talk;

use super::cores::{ABSENT, MODELLED};
use crate::Failure;
use crate::machine::Machine;

pub(super) struct Commands {
    bar: ProgressBar,
}

impl Commands {
    pub(super) fn new(count: usize) -> Commands {
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Commands { bar: ProgressBar::new(count as u64).with_style(style) }
    }

    /// Runs a benchmark and returns its report.
    pub(super) fn bench(&self, program: &Path, arguments: &[&[&str]]) -> Result<Value, Failure> {
        let mut command = Command::new(program);
        command.arg("bench").args(arguments.iter().copied().flatten());
        self.bar.set_message(arguments.first().map_or_else(String::new, |workload| workload.join(" ")));
        let ran = command.output().map_err(|error| Failure::Usage(format!("{}: {error}", program.display())))?;
        self.bar.inc(1);
        if !ran.status.success() {
            let said = String::from_utf8_lossy(&ran.stderr);
            let last = said.lines().last().unwrap_or("it said nothing");
            return Err(Failure::Run(format!("{command:?} failed: {last}")));
        }
        serde_json::from_slice(&ran.stdout).map_err(Failure::run)
    }

    pub(super) fn talk(&self, line: &str) {
        self.bar.suspend(|| talk!("{line}"));
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Arguments of every run, on threads or on cores.
pub(super) fn common<'a>(protocol: &'a str, htm: &'a str) -> [&'a str; 9] {
    ["--protocol", protocol, "--htm", htm, "--no-check", "--seed", "1", "--format", "json"]
}

/// The values of `--htm` on threads and on simulated cores.
pub(super) fn modes(regions: &str) -> [&'static str; 2] {
    if regions == MODELLED { ["rtm", "auto"] } else { [ABSENT, ABSENT] }
}

pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// This machine, as text.
pub(super) fn here() -> String {
    let here = Machine::here();
    let processor = here.processor.unwrap_or_else(|| "an unknown processor".to_owned());
    format!("{processor}, {} processors", here.cores)
}
