//! Repairs: which runs of operations are repeated when others are stale, and the passes that repeat them.
//!
//! The analysis knows which operations depend on which ([`seriatim_procedure::analysis::Follow`]). The protocol
//! knows which records each run accessed. A *run* is one execution of an operation.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;

use seriatim_procedure::analysis::Follow;
use seriatim_procedure::ir::{OperationId, StepId};
use seriatim_txn::Runs;

use crate::tx::TxCore;

/// The runs of an operation that a pass executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Again {
    /// None: the results of an earlier pass stay valid.
    #[default]
    Kept,
    /// These iterations.
    Some(BTreeSet<u32>),
    /// All.
    All,
}

impl Again {
    /// A constant to refer to.
    pub const ALL: Again = Again::All;
    /// A constant to refer to.
    pub const KEPT: Again = Again::Kept;

    /// Whether it includes this iteration.
    #[inline]
    pub fn contains(&self, iteration: u32) -> bool {
        match self {
            Again::Kept => false,
            Again::Some(iterations) => iterations.contains(&iteration),
            Again::All => true,
        }
    }

    /// Adds runs. Returns whether some are new.
    fn add(&mut self, runs: Runs) -> bool {
        match (&mut *self, runs.iteration) {
            (Again::All, _) => false,
            (Again::Some(iterations), Some(iteration)) => iterations.insert(iteration),
            (Again::Kept, Some(iteration)) => {
                *self = Again::Some(BTreeSet::from([iteration]));
                true
            }
            (Again::Kept | Again::Some(_), None) => {
                *self = Again::All;
                true
            }
        }
    }
}

/// A record that an iteration accessed, by its number; `None` if the record is not known.
type Touch = (u32, Option<usize>);

/// Calls a visitor for each access of an operation's runs: [`seriatim_txn::Repair::touched`].
pub type Touched<'t> = &'t dyn Fn(u16, &mut dyn FnMut(u32, Option<usize>));

/// The accesses of each operation's runs, computed once.
struct Touches<'t> {
    touched: Touched<'t>,
    of: Vec<OnceCell<Vec<Touch>>>,
}

impl<'t> Touches<'t> {
    /// For this many operations.
    fn new(operations: usize, touched: Touched<'t>) -> Touches<'t> {
        Touches { touched, of: vec![OnceCell::new(); operations] }
    }

    fn of(&self, operation: usize) -> &[Touch] {
        self.of[operation].get_or_init(|| {
            let mut all = Vec::new();
            (self.touched)(operation as u16, &mut |iteration, record| all.push((iteration, record)));
            all
        })
    }
}

/// The operations to repeat when runs of others are stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repairs {
    /// For each operation: its step.
    steps: Vec<StepId>,
    /// For each operation: those that depend on it.
    followers: Vec<Vec<(usize, Follow)>>,
    /// Of a hundred records and ranges that runs accessed, the most that a repair may access again.
    share_max: u32,
}

impl Repairs {
    /// From the step of each operation, and the operations that depend on it.
    pub fn new(all: impl Iterator<Item = (StepId, Vec<(usize, Follow)>)>) -> Repairs {
        let (steps, followers) = all.unzip();
        Repairs { steps, followers, share_max: 100 }
    }

    /// The same, with another bound on what a repair may access again: [`seriatim_txn::REPAIR_SHARE_MAX`].
    #[must_use]
    pub fn up_to(self, share_max: u32) -> Repairs {
        Repairs { share_max, ..self }
    }

    /// For each operation, those that depend on it.
    pub fn followers(&self) -> &[Vec<(usize, Follow)>] {
        &self.followers
    }

    /// The number of operations.
    pub fn operations(&self) -> usize {
        self.steps.len()
    }

    /// The runs of each operation that are repeated when these are stale.
    pub fn after(&self, stale: &[Runs], touched: Touched<'_>) -> Box<[Again]> {
        self.following(stale, &Touches::new(self.operations(), touched))
    }

    /// The same; `None` if the repair would repeat too much.
    fn worth_while(&self, stale: &[Runs], touched: Touched<'_>) -> Option<Box<[Again]>> {
        let touches = Touches::new(self.operations(), touched);
        let again = self.following(stale, &touches);
        self.is_worth_while(&again, &touches).then_some(again)
    }

    /// Whether these runs have accessed a small enough share of all records. A scan is one run, however many
    /// rows it reads.
    fn is_worth_while(&self, again: &[Again], touches: &Touches<'_>) -> bool {
        let (mut made, mut all) = (0, 0);
        for (operation, again) in again.iter().enumerate() {
            let touched = touches.of(operation);
            all += touched.len() as u64;
            made += touched.iter().filter(|(iteration, _)| again.contains(*iteration)).count() as u64;
        }
        made * 100 <= all * u64::from(self.share_max)
    }

    fn following(&self, stale: &[Runs], touches: &Touches<'_>) -> Box<[Again]> {
        let mut again: Box<[Again]> = vec![Again::Kept; self.steps.len()].into();
        for &runs in stale {
            again[usize::from(runs.operation)].add(runs);
        }
        loop {
            let mut grown = false;
            for (first, followers) in self.followers.iter().enumerate() {
                for &(then, follow) in followers {
                    if again[first] == Again::Kept || again[then] == Again::All {
                        continue;
                    }
                    for runs in following((first, &again[first]), then, follow, touches) {
                        grown |= again[then].add(runs);
                    }
                }
            }
            if !grown {
                return again;
            }
        }
    }
}

/// The runs of `then` that depend on those runs of `first` that are repeated.
fn following((first, again): (usize, &Again), then: usize, follow: Follow, touches: &Touches<'_>) -> Vec<Runs> {
    let (then, all) = (then as u16, vec![Runs::all(then as u16)]);
    match (follow, again) {
        (Follow::Iteration, Again::Some(iterations)) => iterations.iter().map(|at| Runs::one(then, *at)).collect(),
        (Follow::All | Follow::Iteration, _) => all,
        (Follow::Touching, _) => {
            let made = touches.of(first).iter().filter(|(iteration, _)| again.contains(*iteration));
            // An access without a known record may be of any.
            let records: Option<BTreeSet<usize>> = made.map(|(_, record)| *record).collect();
            let Some(records) = records.filter(|records| !records.is_empty()) else { return all };
            let follows = |record: Option<usize>| record.is_none_or(|record| records.contains(&record));
            let theirs = touches.of(usize::from(then)).iter().filter(|(_, record)| follows(*record));
            theirs.map(|(iteration, _)| Runs::one(then, *iteration)).collect()
        }
    }
}

/// Most repairs of an attempt; after that it is repeated as a whole, whatever the protocol requests.
pub const REPAIRS_MAX: u32 = if cfg!(any(test, feature = "test-support")) { 64 } else { 10_000 };

/// An attempt of a procedure that may be repaired, pass by pass.
#[derive(Debug)]
pub struct Repairing<'p> {
    repairs: &'p Repairs,
    /// The runs of this pass; `None` before the first repair: all.
    again: Option<Box<[Again]>>,
    /// How often this pass has reached each operation.
    reached: Box<[Cell<u32>]>,
    /// Runs that this pass has repeated.
    made: Cell<u64>,
    done: u32,
}

impl<'p> Repairing<'p> {
    /// An attempt before its first pass.
    pub fn new(repairs: &'p Repairs) -> Repairing<'p> {
        let reached = vec![Cell::new(0); repairs.operations()].into();
        Repairing { repairs, again: None, reached, made: Cell::new(0), done: 0 }
    }

    /// Whether this pass executes any run of the operation of this step.
    pub fn runs(&self, step: StepId) -> bool {
        self.again.as_ref().is_none_or(|again| {
            again.iter().enumerate().any(|(at, again)| self.repairs.steps[at] == step && *again != Again::Kept)
        })
    }

    /// The runs of an operation that this pass executes.
    #[inline]
    pub fn again(&self, operation: OperationId) -> &Again {
        self.again.as_ref().map_or(&Again::ALL, |again| &again[operation.index()])
    }

    /// Called each time an operation is reached. Returns whether this run is executed.
    #[inline]
    pub fn enters(&self, operation: OperationId) -> bool {
        let reached = &self.reached[operation.index()];
        let iteration = reached.replace(reached.get() + 1);
        let Some(again) = &self.again else { return true };
        let enters = again[operation.index()].contains(iteration);
        self.made.set(self.made.get() + u64::from(enters));
        enters
    }

    /// The following accesses belong to the run of this operation that was entered last.
    #[inline]
    pub fn name(&self, tx: &TxCore, operation: OperationId) {
        tx.name_operation(operation.0, self.reached[operation.index()].get().saturating_sub(1));
    }

    /// Ends a pass.
    pub fn end_pass(&self, tx: &TxCore) {
        let Some(again) = &self.again else { return };
        // Operations that were to be repeated and were not reached: a branch went the other way.
        let idle = (0..again.len()).filter(|at| again[*at] != Again::Kept && self.reached[*at].get() == 0);
        idle.for_each(|at| tx.forget_runs(Runs::all(at as u16), false));
        tx.note_repair(self.made.take());
    }

    /// Begins a repair of stale runs: the next pass repeats them, and the runs that depend on them. `false` if
    /// there were too many repairs, or if this one would repeat too much. A new attempt then costs as little,
    /// and releases the locks.
    pub fn begin_repair(&mut self, stale: &[Runs], tx: &TxCore) -> bool {
        if self.done == REPAIRS_MAX {
            return false;
        }
        self.done += 1;
        let touched: Touched<'_> = &|operation, visit| tx.touched(operation, visit);
        let Some(again) = self.repairs.worth_while(stale, touched) else {
            tx.refuse_repair();
            return false;
        };
        for (operation, again) in (0..).zip(&again) {
            match again {
                Again::Kept => {}
                Again::Some(iterations) => {
                    iterations.iter().for_each(|at| tx.forget_runs(Runs::one(operation, *at), true));
                }
                Again::All => tx.forget_runs(Runs::all(operation), true),
            }
        }
        self.again = Some(again);
        self.reached.iter().for_each(|reached| reached.set(0));
        true
    }
}

/// The conflict of a call, as it matters for keeping repair data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictSeen {
    /// No conflict.
    #[default]
    None,
    /// A conflict, which was repaired or could have been.
    Conflict,
    /// A conflict whose repair would have repeated too much.
    Refused,
}

/// Whether calls of a procedure met conflicts lately, so that the next calls should keep what a repair needs.
///
/// The count rises with a call that met a conflict, and falls with one that did not. In the long run it rises if the
/// share of conflicts is above [`seriatim_txn::REPAIR_FROM`], which the session passes in. A refused repair counts as
/// no conflict, as its data was useless. If refused repairs prevail, the count starts again from zero, so that it takes
/// long until a call keeps repair data again.
#[derive(Clone, Copy, Debug)]
pub struct Conflicts(u32);

impl Conflicts {
    const MOST: u32 = 1 << 12;

    /// For a procedure that was not called yet.
    pub fn new(repair_from: u32) -> Conflicts {
        Conflicts(if repair_from == 0 { Conflicts::MOST } else { 0 })
    }

    /// Whether a call should keep what a repair needs.
    #[inline]
    pub fn are_frequent(self) -> bool {
        self.0 >= Conflicts::MOST / 2
    }

    /// Counts a call that has ended with this conflict.
    #[inline]
    pub fn called(&mut self, repair_from: u32, seen: ConflictSeen) {
        self.0 = match seen {
            ConflictSeen::Conflict => (self.0 + 100 - repair_from).min(Conflicts::MOST),
            ConflictSeen::None | ConflictSeen::Refused => self.0.saturating_sub(repair_from),
        };
        if seen == ConflictSeen::Refused && !self.are_frequent() {
            self.0 = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three operations in a loop: 1 depends on 0 by iterations, 2 on 1, and runs of 0 on each other if they
    /// access the same record.
    fn repairs() -> Repairs {
        let followers = [vec![(0, Follow::Touching), (1, Follow::Iteration)], vec![(2, Follow::All)], Vec::new()];
        Repairs::new((0..3).map(StepId).zip(followers))
    }

    fn some(iterations: &[u32]) -> Again {
        Again::Some(iterations.iter().copied().collect())
    }

    #[test]
    fn runs_follow_by_iterations_by_records_and_altogether() {
        // Iterations 1 and 3 access the same record.
        let touched: Touched<'_> = &|operation, visit| {
            assert_eq!(operation, 0);
            [(0, 7), (1, 8), (2, 9), (3, 8)].into_iter().for_each(|(iteration, record)| visit(iteration, Some(record)));
        };
        let after = |stale: &[Runs]| repairs().after(stale, touched).into_vec();
        assert_eq!(after(&[]), [Again::Kept, Again::Kept, Again::Kept]);
        assert_eq!(after(&[Runs::one(2, 5)]), [Again::Kept, Again::Kept, some(&[5])]);
        assert_eq!(after(&[Runs::one(1, 2), Runs::one(1, 4)]), [Again::Kept, some(&[2, 4]), Again::All]);
        assert_eq!(after(&[Runs::one(0, 2)]), [some(&[2]), some(&[2]), Again::All]);
        assert_eq!(after(&[Runs::one(0, 3)]), [some(&[1, 3]), some(&[1, 3]), Again::All]);
        assert_eq!(after(&[Runs::all(0)]), [Again::All, Again::All, Again::All]);
    }

    #[test]
    fn a_run_without_known_records_may_conflict_with_any() {
        let of = |touches: &'static [(u32, Option<usize>)]| {
            let touched: Touched<'_> = &|_, visit| touches.iter().for_each(|(at, record)| visit(*at, *record));
            repairs().after(&[Runs::one(0, 1)], touched)[0].clone()
        };
        assert_eq!(of(&[(0, Some(1)), (1, Some(2))]), some(&[1]));
        assert_eq!(of(&[(0, Some(1)), (1, Some(2)), (1, None)]), Again::All);
        assert_eq!(of(&[(0, None), (1, Some(2)), (2, Some(3))]), Again::All);
        assert_eq!(of(&[(0, Some(1))]), Again::All, "nothing is known of it");
    }

    #[test]
    fn repairs_are_weighed_by_what_their_runs_touched() {
        // Operation 0 has one run, which scans this many rows; 1 and 2 have two runs each, and each run
        // accesses one row.
        let worth_while = |scanned: usize, stale: &[Runs], share_max: u32| {
            let touched: Touched<'_> = &|operation, visit| match operation {
                0 => (0..scanned).for_each(|row| visit(0, Some(row))),
                _ => (0..2).for_each(|iteration| visit(iteration, None)),
            };
            let followers = [vec![(2, Follow::All)], vec![(2, Follow::All)], Vec::new()];
            Repairs::new((0..3).map(StepId).zip(followers)).up_to(share_max).worth_while(stale, touched)
        };
        let again = |again: [Again; 3]| Some(Box::from(again));
        // Three of five runs, but four of 104 rows.
        let tail = [Runs::all(1)];
        assert_eq!(worth_while(100, &tail, 50), again([Again::Kept, Again::All, Again::All]));
        assert_eq!(worth_while(100, &tail, 3), None);
        assert_eq!(worth_while(4, &tail, 50), again([Again::Kept, Again::All, Again::All]));
        assert_eq!(worth_while(3, &tail, 50), None);
        // The rows of one run of 104, and the two that depend on it.
        assert_eq!(worth_while(100, &[Runs::one(0, 0)], 99), again([some(&[0]), Again::Kept, Again::All]));
        assert_eq!(worth_while(100, &[Runs::one(0, 0)], 98), None);
        assert_eq!(worth_while(100, &[Runs::one(2, 1)], 1), again([Again::Kept, Again::Kept, some(&[1])]));
        assert_eq!(worth_while(100, &[Runs::one(2, 1)], 0), None);
    }

    /// Whether conflicts are found frequent if one in so many calls meets one.
    fn frequent(repair_from: u32, one_in: u32) -> bool {
        let mut conflicts = Conflicts::new(repair_from);
        let seen = |call| if call % one_in == 0 { ConflictSeen::Conflict } else { ConflictSeen::None };
        (0..10_000).for_each(|call| conflicts.called(repair_from, seen(call)));
        conflicts.are_frequent()
    }

    #[test]
    fn conflicts_are_frequent_above_the_share_that_was_given() {
        assert!(frequent(30, 3) && !frequent(30, 4));
        assert!(frequent(5, 19) && !frequent(5, 21));
        assert!(frequent(0, u32::MAX) && Conflicts::new(0).are_frequent());
        assert!(!frequent(100, 1));
    }

    #[test]
    fn conflicts_stop_being_frequent_soon_after_the_last() {
        let mut conflicts = Conflicts::new(30);
        (0..1000).for_each(|_| conflicts.called(30, ConflictSeen::Conflict));
        assert!(conflicts.are_frequent());
        (0..100).for_each(|_| conflicts.called(30, ConflictSeen::None));
        assert!(!conflicts.are_frequent());
    }

    /// How many of 1000 calls keep repair data, if each meets a conflict and one in so many repairs is refused.
    fn kept(repair_from: u32, one_in: u32) -> usize {
        let mut conflicts = Conflicts::new(repair_from);
        let mut call = |call: u32| {
            let keeps = conflicts.are_frequent();
            let seen =
                if keeps && call.is_multiple_of(one_in) { ConflictSeen::Refused } else { ConflictSeen::Conflict };
            conflicts.called(repair_from, seen);
            keeps
        };
        (0..1000).filter(|&at| call(at)).count()
    }

    #[test]
    fn where_repairs_are_refused_few_calls_keep_what_they_need() {
        assert!(kept(30, 1) < 100, "{}", kept(30, 1));
        assert!(kept(30, 4) > 900, "{}", kept(30, 4));
        assert_eq!(kept(0, 1), 1000, "who wants it always has it");
    }
}
