//! What figures are measured with: sizes, threads, and the commands made of them.

use crate::figure::Point;
use crate::judge::{ROUNDS_MIN, SECONDS_MIN};
use crate::measured::{Cores, Size};

/// What the one who draws figures chose, and what the machine has.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// How much is run.
    pub size: Size,
    /// Processors of the machine.
    pub processors: usize,
    /// Whether regions of the processor commit.
    pub has_regions: bool,
    /// Seconds of a run on the machine's threads; by default what the size says.
    pub seconds: Option<f64>,
    /// Runs of a point on the machine's threads; by default what the size says.
    pub rounds: Option<u32>,
    /// The seed of the first run; later ones count on.
    pub seed: u64,
}

/// Where a point runs: so many threads or simulated cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scene {
    /// Which of them.
    pub cores: Cores,
    /// How many.
    pub threads: usize,
}

/// How hot records are found within short runs: the default's rates, counted for a tenth of the time.
const SOON: &str = "--protocol htcc --option hot_period=2 --option hot_failures=2 --option hot_failures_kept=1";

impl Setting {
    fn is_small(&self) -> bool {
        self.size == Size::Small
    }

    /// The scenes on the machine's threads: powers of two, and all of them.
    pub fn real(&self) -> Vec<Scene> {
        let most = if self.is_small() { 2 } else { self.processors };
        let mut threads: Vec<usize> = (0..).map(|power| 1 << power).take_while(|threads| *threads < most).collect();
        threads.push(most);
        threads.into_iter().map(|threads| Scene { cores: Cores::Real, threads }).collect()
    }

    /// The scenes on simulated cores: these numbers, or of a small size one.
    pub fn simulated(&self, cores: &[usize]) -> Vec<Scene> {
        let few = [2];
        let cores = if self.is_small() { &few } else { cores };
        cores.iter().map(|&threads| Scene { cores: Cores::Simulated, threads }).collect()
    }

    /// Both, one after the other.
    pub fn scenes(&self, simulated: &[usize]) -> Vec<Scene> {
        [self.real(), self.simulated(simulated)].concat()
    }

    /// All threads of the machine, and so many simulated cores.
    pub fn widest(&self, simulated: usize) -> Vec<Scene> {
        let real = self.real().pop();
        real.into_iter().chain(self.simulated(&[simulated])).collect()
    }

    /// So many warehouses, or of a small size at most two.
    pub fn warehouses(&self, warehouses: usize) -> usize {
        if self.is_small() { warehouses.min(2) } else { warehouses }
    }

    /// Rows of a table: a million, or of a small size a thousand.
    pub fn records(&self) -> usize {
        if self.is_small() { 1_000 } else { 1_000_000 }
    }

    /// How regions run where a figure is about them: emulated where the processor has none.
    pub fn regions(&self, cores: Cores) -> &'static str {
        match cores {
            Cores::Real if !self.has_regions => "emulated",
            _ => "auto",
        }
    }

    /// How often a point runs: simulated ones repeat, so once.
    pub(crate) fn rounds(&self, cores: Cores) -> u32 {
        match cores {
            Cores::Simulated => 1,
            Cores::Real => self.rounds.unwrap_or(if self.is_small() { 1 } else { ROUNDS_MIN as u32 }).max(1),
        }
    }

    /// TPC-C by a protocol as it is compared: `htcc` finds hot records within the run.
    pub fn tpcc(&self, warehouses: usize, protocol: &str, more: &str) -> String {
        let (warehouses, small) = (self.warehouses(warehouses), if self.is_small() { " --scale small" } else { "" });
        format!("tpcc --warehouses {warehouses}{small} {} {more}", protocol_arguments(protocol))
    }

    /// The options by which a protocol runs in comparisons.
    pub fn protocol(&self, protocol: &str) -> String {
        protocol_arguments(protocol)
    }

    /// A point of the curve `series` at `x`, by the workload and options that `command` names.
    pub fn point(&self, part: &'static str, series: &str, x: f64, scene: Scene, command: &str) -> Point {
        let (warmup, rest) = match (self.size, scene.cores) {
            (Size::Small, _) => (0.0, "--prefault 0"),
            (Size::Large, Cores::Real) => (0.5, "--settle --no-check"),
            (Size::Large, Cores::Simulated) => (0.02, "--no-check"),
        };
        // Virtual seconds. All cores' work is done by one thread, and many of them count as much in less time.
        let simulated = if self.is_small() { 0.002 } else { (0.24 / scene.threads as f64).clamp(0.01, 0.03) };
        let mut point = self.timed(part, series, x, scene, command, simulated);
        let more = format!("--warmup {warmup} {rest}");
        point.arguments.extend(more.split_whitespace().map(str::to_owned));
        point
    }

    /// A point of a measurement below the workloads, which `command` names: its cores are few steps away from what is measured.
    pub fn below(&self, part: &'static str, series: &str, x: f64, scene: Scene, command: &str) -> Point {
        self.timed(part, series, x, scene, command, 0.001)
    }

    /// A point of a measurement that has no threads of its own to choose, and says itself how much it runs.
    pub fn alone(&self, part: &'static str, series: &str, x: f64, command: &str) -> Point {
        let arguments = format!("bench {command}").split_whitespace().map(str::to_owned).collect();
        Point { part, cores: Cores::Real, threads: 1, series: series.to_owned(), x, arguments }
    }

    /// A point that runs for the time of its size, on simulated cores for so many virtual seconds.
    fn timed(
        &self,
        part: &'static str,
        series: &str,
        x: f64,
        Scene { cores, threads }: Scene,
        command: &str,
        simulated: f64,
    ) -> Point {
        let (count, seconds) = match cores {
            Cores::Real => ("--threads", self.seconds.unwrap_or(if self.is_small() { 0.05 } else { SECONDS_MIN })),
            Cores::Simulated => ("--simulate-cores", simulated),
        };
        let line = format!("bench {command} {count} {threads} --seconds {seconds}");
        let arguments = line.split_whitespace().map(str::to_owned).collect();
        Point { part, cores, threads, series: series.to_owned(), x, arguments }
    }
}

/// The options by which a region begins so many times, whatever ends it, before its body runs under the locks.
pub(crate) fn thresholds(restarts: u32) -> String {
    let each = |cause| format!("--option region_{cause}_max={restarts}");
    ["conflict", "capacity", "system", "held"].map(each).join(" ")
}

/// The options by which a protocol runs in comparisons. `silo-rows`, `dbx-rows` and `htcc-rows` are the papers' protocols, which validate whole
/// rows, where ours go on from newer versions of rows of which the columns they used are the same. The paper's HTCC keeps what a repair
/// needs in every call and repairs whatever it takes, where ours weighs both.
fn protocol_arguments(protocol: &str) -> String {
    match protocol.strip_suffix("-rows") {
        Some("htcc") => format!("{SOON} --option rebases_max=0 --option repair_from=0 --option repair_share_max=100"),
        Some(protocol) => format!("--protocol {protocol} --option rebases_max=0"),
        None if protocol == "htcc" => SOON.to_owned(),
        // The paper's rule of what is in the way, which has more false conflicts than ours.
        None if protocol == "hto" => "--protocol hto --option ended=0".to_owned(),
        None => format!("--protocol {protocol}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{large, small};

    fn threads(scenes: &[Scene]) -> Vec<usize> {
        scenes.iter().map(|scene| scene.threads).collect()
    }

    #[test]
    fn threads_are_those_of_the_machine_and_no_more() {
        for (processors, wanted) in [(1, &[1][..]), (2, &[1, 2]), (6, &[1, 2, 4, 6]), (8, &[1, 2, 4, 8])] {
            let setting = Setting { processors, ..large() };
            assert_eq!(threads(&setting.real()), wanted, "{processors}");
            assert_eq!(threads(&setting.widest(40)), [processors, 40]);
        }
        assert_eq!(threads(&Setting { processors: 64, ..small() }.scenes(&[4, 40])), [1, 2, 2]);
    }

    #[test]
    fn a_command_says_all_that_it_depends_on() {
        let scene = Scene { cores: Cores::Real, threads: 2 };
        let command = |setting: &Setting, protocol, scene| {
            setting.point("", "a", 2.0, scene, &setting.tpcc(40, protocol, "--mix new-order")).arguments.join(" ")
        };
        assert_eq!(
            command(&large(), "silo-rows", scene),
            "bench tpcc --warehouses 40 --protocol silo --option rebases_max=0 --mix new-order --threads 2 --seconds 2 \
             --warmup 0.5 --settle --no-check"
        );
        for (threads, seconds) in [(8, 0.03), (16, 0.015), (40, 0.01)] {
            let scene = Scene { cores: Cores::Simulated, threads };
            let end = format!("--protocol dbx --simulate-cores {threads} --seconds {seconds} --warmup 0.02 --no-check");
            assert!(command(&large(), "dbx", scene).replace(" --mix new-order", "").ends_with(&end));
        }
        let below = small().below("", "a", 1.0, scene, "regions --read 4");
        assert_eq!(below.arguments.join(" "), "bench regions --read 4 --threads 2 --seconds 0.05");
        let scene = Scene { cores: Cores::Simulated, threads: 2 };
        assert_eq!(
            command(&small(), "dbx", scene),
            "bench tpcc --warehouses 2 --scale small --protocol dbx --mix new-order --simulate-cores 2 --seconds 0.002 \
             --warmup 0 --prefault 0"
        );
    }

    #[test]
    fn regions_are_emulated_where_there_are_none() {
        assert_eq!(Setting { has_regions: false, ..large() }.regions(Cores::Real), "emulated");
        assert_eq!(Setting { has_regions: false, ..large() }.regions(Cores::Simulated), "auto");
        assert_eq!(Setting { has_regions: true, ..large() }.regions(Cores::Real), "auto");
    }
}
