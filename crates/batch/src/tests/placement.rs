//! Where batches are placed, before a judge that compares each two transactions.

use seriatim_base::Rng;

use super::{Footprint, told};
use crate::fault::{Fault, INJECTED};
use crate::{Batch, Placed, Settings};

fn conflict((reads, writes): Footprint, (other_reads, other_writes): Footprint) -> bool {
    writes & (other_reads | other_writes) != 0 || reads & other_writes != 0
}

/// Whether these are connected by conflicts.
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

/// Whether each is placed once, those that conflict together and no others, in the order of the batch, on threads that have as much
/// as the others.
fn judge(footprints: &[Footprint], batch: &Batch<u32>, loads: &[usize], placed: &[Placed]) -> Result<(), String> {
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

/// Random batches until the judge objects.
fn objection(fault: Option<Fault>) -> Option<String> {
    INJECTED.set(fault);
    let objection = (0..400).find_map(|seed| {
        let mut rng = Rng::from_seed(seed);
        let rows = rng.range(2, 60);
        let mut some = |most| (0..rng.below(most)).fold(0u64, |set, _| set | 1 << rng.below(rows));
        let n = 1 + some(4).count_ones() as usize * 4;
        let footprints: Vec<Footprint> = (0..n).map(|_| (some(4), some(3))).collect();
        let loads: Vec<usize> = (0..rng.range(1, 5)).map(|_| rng.below(4) as usize).collect();
        let batch = told(&footprints, &vec![1; n]);
        let placed = batch.place(&Settings::default(), &loads);
        judge(&footprints, &batch, &loads, &placed).err().map(|error| format!("seed {seed}: {error}"))
    });
    INJECTED.set(None);
    objection
}

#[test]
fn what_conflicts_is_on_one_thread_in_the_order_of_the_batch_and_the_rest_is_spread() {
    assert_eq!(objection(None), None);
}

#[test]
fn canary_missed_conflicts_are_noticed() {
    assert!(objection(Some(Fault::ConflictsMissed)).is_some());
}

#[test]
fn readers_of_a_row_that_nobody_writes_are_spread_and_writers_of_one_that_nobody_reads_are_not() {
    let batch = told(&[(1, 0), (1, 0), (0, 2), (0, 2)], &[1; 4]);
    let placed = |thread, members: &[usize]| Placed { thread, members: members.to_vec() };
    let places = batch.place(&Settings::default(), &[0, 0]);
    assert_eq!(places, [placed(0, &[2, 3]), placed(1, &[0]), placed(1, &[1])]);
    let places = batch.place(&Settings::default(), &[2, 0, 0]);
    assert_eq!(places, [placed(1, &[2, 3]), placed(2, &[0]), placed(2, &[1])]);
}

#[test]
fn on_a_thread_a_reader_comes_before_the_writer_and_those_on_a_cycle_come_last() {
    // 1 reads what 0 writes; 2 and 3 both read and write row 2, which 1 reads too.
    let batch = told(&[(0, 1), (1 | 4, 0), (4, 4), (4, 4)], &[1; 4]);
    let places = batch.place(&Settings::default(), &[0]);
    assert_eq!(places, [Placed { thread: 0, members: vec![1, 0, 2, 3] }]);
    assert_eq!(Batch::<u32>::new().place(&Settings::default(), &[0]), []);
}
