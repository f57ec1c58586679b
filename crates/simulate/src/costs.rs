//! The cost of each step, in nanoseconds, and the file format of cost tables.
//!
//! Steps are distinguished by what they touch, and by whether the core touched the same cache line just
//! before, or earlier in the same attempt. Work that is private to a core, such as copying rows and keeping
//! sets, is charged with the steps around it. Most of it is charged with the first touch of a line: commits
//! return to lines and do little else. Private work differs between protocols, and so do their costs.
//! Transfers between cores, and waiting, cost the same for all: they belong to the machine.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use seriatim_base::thread::BatchWork;

use crate::validation::Compared;

/// The kinds of step that are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An attempt begins; includes the fixed cost of an attempt and its end.
    Begin,
    /// A line of an index that the attempt has not touched before.
    Node,
    /// The header of a record that the attempt has not touched before.
    Record,
    /// A line that the attempt has touched before, but not just before.
    Revisit,
    /// A word of the line that was touched just before.
    Again,
    /// A word is stored.
    Store,
    /// A word is exchanged by compare-and-swap or the like.
    Exchange,
    /// A word of a row is copied into a record.
    Copy,
}

impl Step {
    /// All kinds.
    pub const ALL: [Step; 8] =
        [Step::Begin, Step::Node, Step::Record, Step::Revisit, Step::Again, Step::Store, Step::Exchange, Step::Copy];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Step::Begin => "begin",
            Step::Node => "node",
            Step::Record => "record",
            Step::Revisit => "revisit",
            Step::Again => "again",
            Step::Store => "store",
            Step::Exchange => "exchange",
            Step::Copy => "copy",
        }
    }

    /// Whether it is the first touch of a line in an attempt. Private work and lines outside the near caches
    /// are charged with these steps, so their costs differ between workloads.
    pub fn is_first(self) -> bool {
        matches!(self, Step::Begin | Step::Node | Step::Record)
    }
}

/// The number of steps of each kind.
pub type Counts = [u64; Step::ALL.len()];

/// The cost of each kind of step under one protocol, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// As [`Step::Begin`].
    pub begin: f64,
    /// As [`Step::Node`].
    pub node: f64,
    /// As [`Step::Record`].
    pub record: f64,
    /// As [`Step::Revisit`].
    pub revisit: f64,
    /// As [`Step::Again`].
    pub again: f64,
    /// As [`Step::Store`].
    pub store: f64,
    /// As [`Step::Exchange`].
    pub exchange: f64,
    /// As [`Step::Copy`].
    pub copy: f64,
}

impl Work {
    /// By number of the kind of step.
    pub fn by_step(&self) -> [f64; Step::ALL.len()] {
        [self.begin, self.node, self.record, self.revisit, self.again, self.store, self.exchange, self.copy]
    }

    /// The inverse of [`Work::by_step`].
    pub fn of_steps([begin, node, record, revisit, again, store, exchange, copy]: [f64; Step::ALL.len()]) -> Work {
        Work { begin, node, record, revisit, again, store, exchange, copy }
    }

    /// With the costs of first touches multiplied.
    #[must_use]
    pub fn scaled(&self, scale: f64) -> Work {
        let costs = self.by_step();
        Work::of_steps(Step::ALL.map(|step| costs[step as usize] * if step.is_first() { scale } else { 1.0 }))
    }
}

/// The costs of transfers between cores, and of waiting, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The additional cost of touching a line that another core wrote last. Or that of a write to a line that others
    /// have read since. It is charged where the core has to wait for the line: at an exchange, and at the first look
    /// after a wait.
    pub transfer: f64,
    /// The same where the core continues meanwhile: all other loads and stores.
    pub overlapped: f64,
    /// A pause instruction.
    pub pause: f64,
    /// Yielding the processor when there are no other threads.
    #[serde(rename = "yield")]
    pub yields: f64,
    /// The time by which a sleep takes longer than requested.
    pub sleep: f64,
    /// Beginning and committing a region.
    pub region: f64,
    /// Undoing a region.
    pub abort: f64,
}

/// How long the work of ordering batches takes.
///
/// - Calls: estimates from the hashes and probes of a row (`seriatim bench reorder`: 25 µs for 400 accesses, 2 GHz).
/// - Decisions: the order of `occ-batch`, its tables included, takes 16 ns for each of the 24 accesses of YCSB's
///   transactions, (batches of 4 and 8, AMD EPYC). `seriatim bench reorder` takes some 5 ns for each vertex or edge,
///   within a factor of 2. Times 2.4: a batch that takes 25 µs on the machine of the table of costs takes 10.5 there.
pub(crate) fn of_batch_work(work: BatchWork) -> Duration {
    Duration::from_nanos(match work {
        BatchWork::FootprintRow => 20,
        BatchWork::CallRow => 60,
        BatchWork::Access => 38,
        BatchWork::GraphVisit => 12,
    })
}

/// All costs of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// The costs of the protocol.
    pub work: Work,
    /// The costs of the machine.
    pub machine: Machine,
}

/// A measured table: the machine, and the work of each protocol.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Names the table in reports.
    pub name: String,
    /// The machine on which it was measured, for people.
    pub measured_on: String,
    /// The revision of the measured code.
    pub revision: String,
    /// In nanoseconds.
    pub machine: Machine,
    /// In nanoseconds, by protocol.
    pub protocols: Vec<Protocol>,
    /// The machine and the revision of the latest comparison; `None` before the first one.
    #[serde(default)]
    pub validated_on: Option<String>,
    /// Comparisons of simulated cores by this table with threads; empty before the first one.
    #[serde(default)]
    pub validation: Vec<Compared>,
}

/// The costs of a protocol's steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Its name.
    pub protocol: String,
    /// How regions run: `absent` or `modelled`.
    pub regions: String,
    /// In nanoseconds.
    pub work: Work,
    /// The mean relative difference between the measured times, from which the costs were fitted, and the
    /// times that the costs predict.
    pub misfit: f64,
    /// By workload: the factor for the costs of [first touches](Step::is_first), with which a transaction
    /// takes the time that it takes on one thread. Work outside the database's steps, and the share of data in
    /// caches, differ between workloads.
    pub scales: BTreeMap<String, f64>,
}

impl Table {
    /// The costs of a workload under a protocol; not scaled if the workload was not measured.
    pub fn costs(&self, protocol: &str, regions: &str, workload: &str) -> Option<Costs> {
        let found = self.protocols.iter().find(|of| of.protocol == protocol && of.regions == regions)?;
        let scale = found.scales.get(workload).copied().unwrap_or(1.0);
        Some(Costs { work: found.work.scaled(scale), machine: self.machine })
    }

    /// The revision of the code with which a protocol was compared; `None` if it was not.
    pub fn validated_at(&self, protocol: &str, regions: &str) -> Option<&str> {
        let row = self.validation.iter().find(|row| row.protocol == protocol && row.regions == regions)?;
        row.revision.as_deref().or_else(|| Some(self.validated_on.as_deref()?.rsplit_once("revision ")?.1))
    }

    /// Whether all costs are plausible numbers.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let Machine { transfer, overlapped, pause, yields, sleep, region, abort } = self.machine;
        let mut all = vec![("machine".to_owned(), vec![transfer, overlapped, pause, yields, sleep, region, abort])];
        all.extend(self.protocols.iter().map(|of| (of.protocol.clone(), of.work.by_step().to_vec())));
        if let Some(of) =
            self.protocols.iter().find(|of| of.scales.values().any(|scale| !(0.01..=100.0).contains(scale)))
        {
            return Err(format!("the scales of {} are not all between 0.01 and 100", of.protocol));
        }
        for (of, costs) in all {
            if costs.iter().any(|cost| !(0.0..=1e9).contains(cost)) {
                return Err(format!("the costs of {of} are not all between 0 and a second"));
            }
            if costs.iter().sum::<f64>() == 0.0 {
                return Err(format!("the costs of {of} are all zero: time would stand still"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_first_touches_are_scaled() {
        let work = Work::of_steps([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(work.scaled(10.0).by_step(), [10.0, 20.0, 30.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(Step::ALL.map(|step| step as usize), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
