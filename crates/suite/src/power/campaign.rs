//! Many cases, on several threads, until something does not hold or enough was done.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use seriatim::clock::Instant;
use seriatim::thread;

use super::case::is_rare;
use super::{Case, Plan, Tally, settings};
use crate::Setting;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first case's seed; those after it follow.
    pub seed: u64,
    /// The plan of all cases.
    pub plan: Plan,
    /// Power cuts to make, over all cases.
    pub cuts: u64,
    /// After this time no case begins.
    pub most: Duration,
    /// Threads.
    pub threads: usize,
}

/// The counts of each setting.
pub type Totals = BTreeMap<String, Tally>;

/// Whether what `plan` is for has happened in every setting: where nothing happened, nothing was tested.
///
/// # Errors
/// The events that never happened, and their places.
pub fn covered(totals: &Totals, plan: Plan) -> Result<(), String> {
    let lacks = |setting: &Setting| {
        let tally = totals.get(&setting.to_string()).copied().unwrap_or_default();
        let mut never = tally.never(plan);
        if setting.gives_pieces() && tally.calls == 0 {
            never.push("call of a procedure");
        }
        (!never.is_empty()).then(|| format!("{setting}: no {}", never.join(", no ")))
    };
    // A window has only a few cases of the rare settings: too few for every kind of change.
    let lacking: Vec<String> = settings(0).iter().filter(|setting| !is_rare(setting)).filter_map(lacks).collect();
    if lacking.is_empty() { Ok(()) } else { Err(format!("{plan:?} tested too little: {}", lacking.join("; "))) }
}

impl Campaign {
    /// Runs it; `progress` is called now and then with the number of power cuts so far.
    ///
    /// # Errors
    /// The first case that did not hold.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<Totals, String> {
        let (next, cuts, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let totals = Mutex::new(Totals::new());
        let began = Instant::now();
        let work = || -> Result<(), String> {
            while cuts.load(Ordering::Relaxed) < self.cuts
                && !failed.load(Ordering::Relaxed)
                && began.elapsed() < self.most
            {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let case = Case::of(self.seed.wrapping_add(number), self.plan);
                let run = catch_unwind(AssertUnwindSafe(|| case.run()));
                let tally =
                    run.unwrap_or_else(|_| Err(format!("it panicked\nrerun: cargo xtask soak --case {}", case.seed)));
                let tally = tally.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
                let so_far = cuts.fetch_add(tally.cuts, Ordering::Relaxed) + tally.cuts;
                *totals.lock().unwrap_or_else(PoisonError::into_inner).entry(case.setting.to_string()).or_default() +=
                    tally;
                if number.is_multiple_of(1000) {
                    progress(so_far);
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        Ok(totals.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
