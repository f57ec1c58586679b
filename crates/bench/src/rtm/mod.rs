//! The cost and capacity of hardware regions on this machine, the frequency of fallbacks, and the benefit for
//! TPC-C beside the roofline. For machines without RTM, the kind of the machine.
//!
//! Standard output is Markdown, ready for a report. A lost increment or a violated consistency condition fails
//! the run. Every measurement runs on any back end, so that its code is tested without RTM. Only on `rtm` do
//! the figures describe a processor.

mod kind;
mod mix;
mod regions;

use std::error::Error;

use clap::Args;
use seriatim_base::talk;
use seriatim_htm::{Backend, Emulation, Htm, HtmMode, RegionStatistics, detect};

use crate::measure::until_signal;

/// Options of the run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Back end: rtm, or, to test the measurements on any machine, emulated or absent
    #[arg(long, value_name = "MODE", default_value = "rtm")]
    backend: HtmMode,
    /// Small sizes, for a test
    #[arg(long)]
    small: bool,
    /// The seed of rows, inputs and places
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only prints whether regions are used here, and the kind of this machine
    #[arg(long, conflicts_with_all = ["backend", "small", "seed"])]
    kind: bool,
    /// Executes regions in this process, which dies if the instructions fault
    #[arg(long, hide = true)]
    probe: bool,
}

/// The size of the measurements.
#[derive(Clone, Copy, Debug)]
struct Setting {
    htm: HtmMode,
    /// Attempts of regions for each figure about a size.
    attempts: u32,
    /// Regions for each figure about time.
    regions: u32,
    /// Transactions of an arm between two checks of the clock, and rounds and seconds of the comparisons with TPC-C.
    rounds: u32,
    seconds: f64,
    /// Whether TPC-C has a hundredth of the specified rows.
    is_small: bool,
    seed: u64,
}

impl Setting {
    fn new(mode: HtmMode, is_small: bool, seed: u64) -> Setting {
        let htm = match mode {
            // Other threads would run between stores of an emulated region, which is not measured here.
            HtmMode::Emulated(_) => HtmMode::Emulated(Emulation { seed, abort_one_in: 64, yields: false }),
            mode => mode,
        };
        match is_small {
            true => Setting { htm, attempts: 20, regions: 2_000, rounds: 2, seconds: 0.02, is_small, seed },
            false => Setting { htm, attempts: 2_000, regions: 2_000_000, rounds: 5, seconds: 2.0, is_small, seed },
        }
    }
}

/// A table in Markdown.
fn table(title: &str, heads: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &mut dyn Iterator<Item = &str>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    let mut text = format!("### {title}\n\n");
    text += &line(&mut heads.iter().copied());
    text += &line(&mut heads.iter().map(|_| "---"));
    rows.iter().for_each(|row| text += &line(&mut row.iter().map(String::as_str)));
    text + "\n"
}

/// A share of a whole in percent; a dash if the whole is zero.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.2} %", part as f64 * 100.0 / whole as f64) }
}

const FATES: [&str; 7] =
    ["regions begun", "committed", "conflict", "capacity", "explicit", "system", "bodies that fell back"];

/// The outcomes of regions: [`FATES`].
fn fates(regions: &RegionStatistics) -> Vec<String> {
    let of_begun = |part| percent(part, regions.started);
    let aborted = regions.aborted;
    let parts = [regions.committed, aborted.conflict, aborted.capacity, aborted.explicit, aborted.system];
    let mut cells = vec![regions.started.to_string()];
    cells.extend(parts.map(of_begun));
    cells.push(percent(regions.fallback, regions.committed + regions.fallback));
    cells
}

/// The results as text.
pub(crate) fn run(options: &Options) -> Result<String, Box<dyn Error>> {
    if options.probe {
        kind::probe();
    }
    if options.kind {
        return kind::report();
    }
    let setting = Setting::new(options.backend, options.small, options.seed);
    measure(&setting)
}

/// All measurements, as one text.
fn measure(setting: &Setting) -> Result<String, Box<dyn Error>> {
    let htm = Htm::new(setting.htm)?;
    talk!("regions {}, seed {}", htm.backend(), setting.seed);
    let mut text = format!("\nBack end: {}. Detection: {}. Seed {}.\n\n", htm.backend(), detect().reason, setting.seed);
    if htm.backend() != Backend::Rtm {
        text += "**Not a measurement of hardware regions**: the back end was chosen to try the measurements.\n\n";
    }
    let parts = [regions::cost, regions::capacity, regions::duration, regions::forced, mix::beside_the_roofline];
    for part in until_signal(parts) {
        text += &part(setting)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "nightly: ten seconds"]
    fn every_measurement_runs_on_every_back_end_and_is_reported() {
        let rtm = detect().probe_commits.then_some(HtmMode::Rtm);
        for mode in [HtmMode::Absent, HtmMode::Emulated(Emulation::default())].into_iter().chain(rtm) {
            let text = measure(&Setting::new(mode, true, 3)).expect("the conditions hold");
            let titles: Vec<_> = text.lines().filter(|line| line.starts_with("### ")).collect();
            assert_eq!(titles.len(), 6, "{text}");
            assert_eq!(text.contains("Not a measurement"), mode != HtmMode::Rtm);
            for block in text.split("### ").skip(1) {
                let cells: Vec<usize> =
                    block.lines().filter(|line| line.starts_with('|')).map(|line| line.matches(" |").count()).collect();
                assert!(cells.len() > 2 && cells.iter().all(|count| *count == cells[0]), "{block}");
            }
            // TPC-C began regions if there are any; the rows of "regions absent" began none.
            assert_eq!(text.contains("warehouses: 1 | 0 | - |"), mode == HtmMode::Absent, "{text}");
        }
    }

    #[test]
    fn a_back_end_that_is_not_there_is_refused_with_the_reason() {
        let detection = detect();
        if !detection.probe_commits {
            let refused = measure(&Setting::new(HtmMode::Rtm, true, 3)).expect_err("not there").to_string();
            assert!(refused.contains(&detection.reason), "{refused}");
        }
    }

    #[test]
    fn parts_of_nothing_are_dashes() {
        assert_eq!((percent(1, 4), percent(0, 0)), ("25.00 %".to_owned(), "-".to_owned()));
        assert_eq!(fates(&RegionStatistics::default()).len(), FATES.len());
    }
}
