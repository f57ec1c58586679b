//! Measures the model's times by the benchmark, and compares the model with measurements.
//!
//! | time | run | measured value |
//! |---|---|---|
//! | `single` (`tsp`) | no transaction over two partitions, no undo, `blocking` | an owner's time a transaction |
//! | `single_speculated` (`tspS`) | the same with undo | the same |
//! | `multi` (`tmp`) | all over two partitions, `blocking` | time a transaction |
//! | `multi_processor` (`tmpC`) | all over two partitions, `speculation` | an owner's time a transaction |
//! | `locks` (`l`) | half over two partitions, `locking` | owners' time over what the two above come to, less one |
//! | `coordinator` | all over two partitions, `speculation` | the coordinator's time a transaction; not in the paper |
//!
//! An owner's time is the time in which it does not sleep, including the cost of messages. The model has no
//! clients: use enough of them to keep the owners busy ([`Plan::with_clients`]).

use std::time::Duration;

use seriatim_partition::Scheme;
use seriatim_partition::model::{self, Mix as ModelMix, Recommendation, Times};

use super::{Measured, Mix, Plan};

/// Runs a plan.
pub type Run<'a> = &'a mut dyn FnMut(&Plan) -> Result<Measured, String>;

/// Shares of multi-partition transactions at which the model is compared.
pub const SHARES: [f64; 8] = [0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0];

/// A measurement and the model's prediction, in transactions per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The scheme.
    pub scheme: Scheme,
    /// The share of multi-partition transactions.
    pub multi: f64,
    /// The measured throughput.
    pub measured: f64,
    /// The predicted throughput.
    pub model: f64,
}

/// One of the cells of the paper's Table 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its name.
    pub name: &'static str,
    /// Its mix of transactions.
    pub mix: Mix,
    /// The model's recommendation, with the reason.
    pub recommended: Recommendation,
    /// The measured throughputs, in the order of [`Scheme::ALL`], in transactions per second.
    pub measured: [f64; 4],
}

impl Cell {
    /// The fastest scheme.
    pub fn best(&self) -> Scheme {
        let best = (0..4).max_by(|&a, &b| self.measured[a].total_cmp(&self.measured[b]));
        Scheme::ALL[best.unwrap_or(0)]
    }

    /// The throughput of the recommended scheme over that of the fastest.
    pub fn ratio(&self) -> f64 {
        let of = |scheme| Scheme::ALL.iter().position(|&one| one == scheme).map_or(0.0, |at| self.measured[at]);
        of(self.recommended.scheme) / of(self.best()).max(f64::MIN_POSITIVE)
    }
}

/// The cells: few or many aborts, few or many conflicts, one round or two; with 30 % multi-partition transactions.
pub const CELLS: [(&str, Mix); 8] = [
    ("one round", cell(0.0, 0.0, 0.0)),
    ("one round, conflicts", cell(0.0, 0.8, 0.0)),
    ("one round, aborts", cell(0.1, 0.0, 0.0)),
    ("one round, both", cell(0.1, 0.8, 0.0)),
    ("two rounds", cell(0.0, 0.0, 1.0)),
    ("two rounds, conflicts", cell(0.0, 0.8, 1.0)),
    ("two rounds, aborts", cell(0.1, 0.0, 1.0)),
    ("two rounds, both", cell(0.1, 0.8, 1.0)),
];

const fn cell(aborts: f64, conflicts: f64, two_rounds: f64) -> Mix {
    Mix { multi: 0.3, conflicts, aborts, two_rounds, undo: false }
}

impl Mix {
    /// The model's mix. The shares of all transactions also apply to multi-partition transactions.
    pub fn of_model(&self) -> ModelMix {
        let Mix { multi, conflicts, aborts, two_rounds, .. } = *self;
        ModelMix { multi, two_rounds, aborts, conflicts }
    }
}

impl Plan {
    /// The plan with this scheme and this mix.
    #[must_use]
    pub fn with(&self, scheme: Scheme, mix: Mix) -> Plan {
        let mut plan = Plan { mix, records: false, ..self.clone() };
        plan.transport.scheme = scheme;
        plan
    }
}

/// The longest run. Impossible times are not measured again by longer ones.
const LENGTH_MAX: Duration = Duration::from_secs(2);

/// Measures the times on a system like this plan's, in microseconds. If too little ran and the times are
/// impossible, repeats it with longer runs.
///
/// # Errors
/// The failure of a run, or times that are still impossible.
pub fn measure(plan: &Plan, run: Run<'_>) -> Result<Times, String> {
    let mut plan = plan.clone();
    loop {
        let times = measure_once(&plan, run)?;
        let Times { single, single_speculated, multi, multi_processor, .. } = times;
        let has_run = multi.is_finite() && single > 0.0 && single_speculated > 0.0 && multi_processor > 0.0;
        if has_run && multi > multi_processor {
            return Ok(times);
        }
        if plan.length >= LENGTH_MAX {
            return Err(format!("too little ran to measure the model's times: {times:?}"));
        }
        plan.length *= 4;
    }
}

/// The times, which may be impossible.
fn measure_once(plan: &Plan, run: Run<'_>) -> Result<Times, String> {
    let mix = |multi, undo| Mix { multi, undo, ..Mix::default() };
    let busy = |measured: &Measured| measured.owners.iter().map(|owner| owner.busy.as_secs_f64() * 1e6).sum::<f64>();
    let count = |measured: &Measured, kind: usize| measured.ended[kind].max(1) as f64;
    let mut single = |undo| run(&plan.with(Scheme::Blocking, mix(0.0, undo))).map(|of| busy(&of) / count(&of, 0));
    let (alone, speculated) = (single(false)?, single(true)?);
    let blocking = run(&plan.with(Scheme::Blocking, mix(1.0, false)))?;
    let speculation = run(&plan.with(Scheme::Speculation, mix(1.0, false)))?;
    let multi_processor = busy(&speculation) / count(&speculation, 1) / 2.0;
    let locking = run(&plan.with(Scheme::Locking, mix(0.5, false)))?;
    let unlocked = 2.0 * count(&locking, 1) * multi_processor + count(&locking, 0) * speculated;
    let coordinator = speculation.coordinator.map_or(0.0, |of| of.busy.as_secs_f64() * 1e6);
    Ok(Times {
        single: alone,
        single_speculated: speculated,
        multi: 1e6 / blocking.per_second().max(f64::MIN_POSITIVE),
        multi_processor,
        locks: (busy(&locking) / unlocked - 1.0).max(0.0),
        coordinator: coordinator / count(&speculation, 1),
    })
}

/// Compares the model with measurements, by the share of multi-partition transactions.
///
/// # Errors
/// The failure of a run.
pub fn compare(plan: &Plan, times: &Times, run: Run<'_>) -> Result<Vec<Compared>, String> {
    let mut compared = Vec::new();
    for (scheme, multi) in Scheme::ALL.into_iter().flat_map(|scheme| SHARES.map(|multi| (scheme, multi))) {
        let mix = Mix { multi, ..Mix::default() };
        let measured = run(&plan.with(scheme, mix))?.per_second();
        let model = 1e6 * model::throughput(scheme, times, &mix.of_model());
        compared.push(Compared { scheme, multi, measured, model });
    }
    Ok(compared)
}

/// Table 1: the model's recommendation in each cell, and the fastest scheme.
///
/// # Errors
/// The failure of a run.
pub fn cells(plan: &Plan, times: &Times, run: Run<'_>) -> Result<Vec<Cell>, String> {
    let mut cells = Vec::new();
    for (name, mix) in CELLS {
        let mut measured = [0.0; 4];
        for (to, scheme) in measured.iter_mut().zip(Scheme::ALL) {
            *to = run(&plan.with(scheme, mix))?.per_second();
        }
        cells.push(Cell { name, mix, recommended: model::recommend(times, &mix.of_model()), measured });
    }
    Ok(cells)
}
