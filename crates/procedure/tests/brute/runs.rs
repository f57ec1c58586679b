//! Runs chopped sets piece by piece in random interleavings and looks whether a serial order remains.
//!
//! Every table is taken to have one row, so that whatever can conflict does. Once in a run the epoch changes. Additions
//! deferred in the first epoch are published when all instances that had begun have ended. A subscriber begins before
//! the change or after the publication; others continue. Additions deferred in the second epoch are published at the
//! end.
//!
//! An instance is of the epoch in which its decisive piece commits. DBX-TC's text can be read so that it is the epoch
//! in which the transaction begins. Then of two publishers the first to commit could be of the second epoch, and a
//! subscriber would see the other alone. For the same reason a subscriber whose epoch has changed when it comes to its
//! decisive piece begins anew.
//!
//! An instance may fail at an operation that can, in its decisive piece or before. Its changes are gone, but it
//! answers. Its reads up to there, including a sum too small for a subtraction, must fit into the order.

use std::collections::BTreeSet;

use seriatim_base::Rng;

use seriatim_procedure::plan::Options;

use super::oracle::{Cut, conflict, matters};
use super::sets::{Effect, Set};

/// When an instance takes its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// In its decisive piece.
    Decisive,
    /// When it begins: a broken variant.
    Begin,
    /// In its decisive piece, but subscribers continue with reads of another piece: a broken variant.
    Unconfirmed,
}

#[derive(Debug)]
struct Instance {
    procedure: usize,
    subscribes: bool,
    /// Begun before the epoch changed.
    early: bool,
    /// Whether it is of the second epoch; `None` until it has taken one.
    second: Option<bool>,
    /// Pieces executed.
    done: usize,
    /// Whether it failed.
    failed: bool,
}

/// Whether one of so many random runs of four instances has no serial order.
pub(crate) fn goes_wrong(set: &Set, cut: &Cut, taken: Taken, seed: u64, runs: usize) -> bool {
    first_wrong(set, cut, taken, seed, runs).is_some()
}

/// The first of so many runs that goes wrong, counted from 0.
pub(crate) fn first_wrong(set: &Set, cut: &Cut, taken: Taken, seed: u64, runs: usize) -> Option<usize> {
    let mut rng = Rng::from_seed(seed);
    let drawn: Vec<usize> = (0..set.0.len()).filter(|number| !cut.pieces[*number].is_empty()).collect();
    (0..if drawn.is_empty() { 0 } else { runs }).find(|_| run(set, cut, taken, &drawn, &mut rng))
}

fn run(set: &Set, cut: &Cut, taken: Taken, drawn: &[usize], rng: &mut Rng) -> bool {
    let mut instances: Vec<Instance> = (0..4)
        .map(|_| {
            let procedure = drawn[rng.below(drawn.len() as u64) as usize];
            let subscribes = subscribes(set, cut, procedure);
            Instance { procedure, subscribes, early: false, second: None, done: 0, failed: false }
        })
        .collect();
    // (instance, operation) in order of effect.
    let mut history: Vec<(usize, usize)> = Vec::new();
    let change = rng.below(8);
    let (mut changed, mut published) = (false, false);
    for step in 0.. {
        changed |= step >= change;
        if changed && !published && instances.iter().all(|at| !at.early || at.done == cut.pieces[at.procedure].len()) {
            publish(cut, &instances, false, &mut history);
            published = true;
        }
        let ready: Vec<usize> = (0..instances.len())
            .filter(|at| {
                let found = &instances[*at];
                let waits = found.done == 0 && found.subscribes && changed && !published;
                found.done < cut.pieces[found.procedure].len() && !waits
            })
            .collect();
        if ready.is_empty() {
            // Some wait for the publication, or all have ended.
            if changed && published {
                break;
            }
            changed = true;
            continue;
        }
        let at = ready[rng.below(ready.len() as u64) as usize];
        let found = &mut instances[at];
        let procedure = found.procedure;
        if found.done == 0 {
            found.early = !changed;
        }
        let takes = match taken {
            Taken::Decisive | Taken::Unconfirmed => cut.decisive[procedure].unwrap_or(0),
            Taken::Begin => 0,
        };
        if found.done == takes {
            if taken == Taken::Decisive && found.subscribes && found.early && changed {
                // Nothing of it was visible.
                history.retain(|(other, _)| *other != at);
                (found.done, found.early) = (0, false);
                continue;
            }
            found.second = Some(changed);
        }
        let piece = &cut.pieces[procedure][found.done];
        found.done += 1;
        let fails = |id: &&usize| set.0[procedure].operations[**id].may_fail(Options::OPTIMIZED);
        if found.done <= cut.decisive[procedure].unwrap_or(0) + 1
            && let Some(last) = piece.iter().find(fails).filter(|_| rng.below(4) == 0)
        {
            history.extend(piece.iter().filter(|id| *id <= last).map(|id| (at, *id)));
            (found.failed, found.second, found.done) = (true, None, cut.pieces[procedure].len());
            continue;
        }
        let now = piece.iter().filter(|operation| !cut.deferred.contains(&(procedure, **operation)));
        history.extend(now.map(|operation| (at, *operation)));
    }
    publish(cut, &instances, true, &mut history);
    let effect = |(at, operation): &(usize, usize)| {
        let op = &set.0[instances[*at].procedure].operations[*operation];
        (op.table, if instances[*at].failed { op.answer() } else { op.effect() })
    };
    is_cyclic(orders(instances.len(), &history, effect))
}

fn publish(cut: &Cut, instances: &[Instance], second: bool, history: &mut Vec<(usize, usize)>) {
    for (at, found) in instances.iter().enumerate().filter(|(_, found)| found.second == Some(second)) {
        let pending = cut.deferred.iter().filter(|(procedure, _)| *procedure == found.procedure);
        history.extend(pending.map(|(_, operation)| (at, *operation)));
    }
}

/// Whether a procedure uses what another publishes.
fn subscribes(set: &Set, cut: &Cut, procedure: usize) -> bool {
    cut.deferred.iter().any(|(publisher, operation)| {
        let published = &set.0[*publisher].operations[*operation];
        set.0[procedure].operations.iter().any(|op| conflict(op, published, true))
    })
}

/// Of each instance, those that conflicts have after it; `history` has operations with their instances, in
/// order of effect.
pub(super) fn orders(
    instances: usize,
    history: &[(usize, usize)],
    effect: impl Fn(&(usize, usize)) -> (u8, Effect),
) -> Vec<BTreeSet<usize>> {
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); instances];
    for (place, earlier) in history.iter().enumerate() {
        let (table, mine) = effect(earlier);
        for later in history[place + 1..].iter().filter(|later| later.0 != earlier.0) {
            let (of, theirs) = effect(later);
            if of == table && matters(&mine, &theirs, true) {
                before[earlier.0].insert(later.0);
            }
        }
    }
    before
}

/// Whether of these, each before those that it names, one is before itself.
pub(super) fn is_cyclic(mut before: Vec<BTreeSet<usize>>) -> bool {
    for _ in 0..before.len() {
        for at in 0..before.len() {
            let more: BTreeSet<usize> = before[at].iter().flat_map(|next| before[*next].clone()).collect();
            before[at].extend(more);
        }
    }
    before.iter().enumerate().any(|(at, after)| after.contains(&at))
}
