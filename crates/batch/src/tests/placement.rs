//! Placements of batches, checked by comparing each pair of transactions.

use std::cmp::Reverse;

use seriatim_base::Rng;

use super::{Footprint, told};
use crate::fault::{Fault, INJECTED};
use crate::{Batch, Placed, Placement, Settings};

fn conflict((reads, writes): Footprint, (other_reads, other_writes): Footprint) -> bool {
    writes & (other_reads | other_writes) != 0 || reads & other_writes != 0
}

/// Whether conflicts connect these transactions.
fn connected(footprints: &[Footprint], members: &[usize]) -> bool {
    let mut reached = vec![members[0]];
    let mut at = 0;
    while at < reached.len() {
        let from = footprints[reached[at]];
        let near = |&member: &usize| !reached.contains(&member) && conflict(from, footprints[member]);
        let next: Vec<usize> = members.iter().copied().filter(near).collect();
        reached.extend(next);
        at += 1;
    }
    reached.len() == members.len()
}

/// Checks that each transaction is placed once and that conflicts connect exactly the members of a component.
/// Members are in the order of the batch, and the load of threads is balanced.
fn check(footprints: &[Footprint], batch: &Batch<u32>, loads: &[usize], placed: &[Placed]) -> Result<(), String> {
    let mut all: Vec<usize> = placed.iter().flat_map(|placed| placed.members.clone()).collect();
    all.sort_unstable();
    if !all.into_iter().eq(0..footprints.len()) {
        return Err(format!("not each once: {placed:?}"));
    }
    let decided = batch.reorder(&Settings::default());
    let order = [decided.order, decided.aborted].concat();
    let turn = |member: usize| order.iter().position(|&other| other == member);
    let mut loads = loads.to_vec();
    for (at, Placed { thread, members }) in placed.iter().enumerate() {
        for other in &placed[at + 1..] {
            let meet = |&one: &usize| other.members.iter().any(|&two| conflict(footprints[one], footprints[two]));
            if members.iter().any(meet) {
                return Err(format!("{members:?} and {:?} conflict", other.members));
            }
            if other.members.len() > members.len() {
                return Err(format!("{members:?} before {:?}", other.members));
            }
        }
        if !connected(footprints, members) {
            return Err(format!("{members:?} do not all conflict"));
        }
        if !members.is_sorted_by_key(|&member| turn(member)) {
            return Err(format!("{members:?} are not in the order {order:?}"));
        }
        if loads.iter().any(|load| *load < loads[*thread]) {
            return Err(format!("{thread} has {loads:?} already"));
        }
        loads[*thread] += members.len();
    }
    Ok(())
}

/// Checks that each transaction is placed once, in shares that differ by one at most, for the thread with the
/// least load first. Each next transaction of a share is the one that the paper's weights choose; they are
/// computed here pair by pair.
fn check_shares(footprints: &[Footprint], loads: &[usize], placed: &[Placed]) -> Result<(), String> {
    let sizes: Vec<usize> = placed.iter().map(|placed| placed.members.len()).collect();
    let (n, all) = (footprints.len(), sizes.iter().sum::<usize>());
    let is_even = sizes.iter().all(|size| [n / loads.len(), n.div_ceil(loads.len())].contains(size));
    let order: Vec<usize> = placed.iter().map(|placed| placed.thread).collect();
    if all != n || !is_even || !sizes.is_sorted_by(|one, other| one >= other) {
        return Err(format!("{n} calls on {loads:?}: {sizes:?}"));
    }
    if !order.is_sorted_by_key(|&thread| (loads[thread], thread)) || placed.len() != n.min(loads.len()) {
        return Err(format!("threads {order:?} of {loads:?}"));
    }
    let mut left: Vec<usize> = (0..n).collect();
    for Placed { members, .. } in placed {
        for (at, member) in members.iter().enumerate() {
            let with = |one: usize, others: &[usize]| {
                others.iter().filter(|&&other| other != one && conflict(footprints[one], footprints[other])).count()
            };
            let used = |at: usize| footprints[at].0 | footprints[at].1;
            let common =
                |one: usize| members[..at].iter().map(|&other| (used(one) & used(other)).count_ones()).sum::<u32>();
            let weight = |&one: &usize| (with(one, &members[..at]), common(one), with(one, &left), Reverse(one));
            if left.iter().copied().max_by_key(weight) != Some(*member) {
                return Err(format!("{member} after {:?} of {left:?}", &members[..at]));
            }
            left.retain(|other| other != member);
        }
    }
    Ok(())
}

/// Random batches until the checker reports a failure.
fn objection(placement: Placement, fault: Option<Fault>) -> Option<String> {
    INJECTED.set(fault);
    let objection = (0..400).find_map(|seed| {
        let mut rng = Rng::from_seed(seed);
        let rows = rng.range(2, 60);
        let mut some = |most| (0..rng.below(most)).fold(0u64, |set, _| set | 1 << rng.below(rows));
        let n = 1 + some(4).count_ones() as usize * 4;
        let footprints: Vec<Footprint> = (0..n).map(|_| (some(4), some(3))).collect();
        let loads: Vec<usize> = (0..rng.range(1, 5)).map(|_| rng.below(4) as usize).collect();
        let batch = told(&footprints, &vec![1; n]);
        let placed = batch.place(placement, &Settings::default(), &loads);
        let checked = match placement {
            Placement::Components => check(&footprints, &batch, &loads, &placed),
            Placement::Shares => check_shares(&footprints, &loads, &placed),
        };
        checked.err().map(|error| format!("seed {seed}: {error}"))
    });
    INJECTED.set(None);
    objection
}

#[test]
fn conflicting_transactions_are_on_one_thread_in_the_order_of_the_batch_and_the_rest_is_spread() {
    assert_eq!(objection(Placement::Components, None), None);
}

#[test]
fn shares_are_equal_within_one_and_picked_by_conflicts() {
    assert_eq!(objection(Placement::Shares, None), None);
}

#[test]
fn canary_missed_conflicts_are_noticed() {
    for placement in [Placement::Components, Placement::Shares] {
        assert!(objection(placement, Some(Fault::ConflictsMissed)).is_some(), "{placement:?}");
    }
}

#[test]
fn readers_of_a_row_without_writers_are_spread_and_writers_of_one_without_readers_are_not() {
    let batch = told(&[(1, 0), (1, 0), (0, 2), (0, 2)], &[1; 4]);
    let placed = |thread, members: &[usize]| Placed { thread, members: members.to_vec() };
    let places = batch.place(Placement::Components, &Settings::default(), &[0, 0]);
    assert_eq!(places, [placed(0, &[2, 3]), placed(1, &[0]), placed(1, &[1])]);
    let places = batch.place(Placement::Components, &Settings::default(), &[2, 0, 0]);
    assert_eq!(places, [placed(1, &[2, 3]), placed(2, &[0]), placed(2, &[1])]);
}

#[test]
fn on_a_thread_a_reader_comes_before_the_writer_and_those_on_a_cycle_come_last() {
    // 1 reads what 0 writes; 2 and 3 both read and write row 2, which 1 reads too.
    let batch = told(&[(0, 1), (1 | 4, 0), (4, 4), (4, 4)], &[1; 4]);
    let places = batch.place(Placement::Components, &Settings::default(), &[0]);
    assert_eq!(places, [Placed { thread: 0, members: vec![1, 0, 2, 3] }]);
    assert_eq!(Batch::<u32>::new().place(Placement::Components, &Settings::default(), &[0]), []);
}

#[test]
fn a_component_that_is_larger_than_a_share_is_split() {
    // 1 to 4 write row 0; 0 and 5 share no row with others.
    let batch = told(&[(2, 2), (1, 1), (1, 1), (1, 1), (1, 1), (4, 4)], &[1; 6]);
    let placed = |thread, members: &[usize]| Placed { thread, members: members.to_vec() };
    let places = batch.place(Placement::Shares, &Settings::default(), &[5, 0]);
    assert_eq!(places, [placed(1, &[1, 2, 3]), placed(0, &[0, 4, 5])]);
    assert_eq!(Batch::<u32>::new().place(Placement::Shares, &Settings::default(), &[0]), []);
}

#[test]
fn accesses_in_common_count_where_conflicts_do_not() {
    // 0 and 3 read rows that 1 and 2 do not; there are no writes.
    let batch = told(&[(3, 0), (4, 0), (4, 0), (3, 0)], &[1; 4]);
    let members = |places: Vec<Placed>| places.into_iter().map(|placed| placed.members).collect::<Vec<_>>();
    let places = batch.place(Placement::Shares, &Settings::default(), &[0, 0]);
    assert_eq!(members(places), [[0, 3], [1, 2]]);
}
