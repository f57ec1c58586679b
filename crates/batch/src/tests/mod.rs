//! Decisions about batches, checked against the definition of a serial order.

mod oracle;
mod placement;

use std::num::NonZeroUsize;

use seriatim_base::Rng;

use crate::fault::{Fault, INJECTED};
use crate::{ALGORITHMS, Algorithm, Batch, Decided, Member, POLICIES, Policy, Settings};
use oracle::{Executed, Op, Saw, State, check, execute, most};

/// The resources of these tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Resource {
    Row(u64),
    /// The membership of some neighbouring keys.
    Leaf(u64),
}

/// How the tests describe executed transactions to a batch: keys per leaf, and the accesses that they omit on
/// purpose.
#[derive(Clone, Copy)]
struct Description {
    leaf: u64,
    ranges: bool,
    absences: bool,
}

const EXACT_DESCRIPTION: Description = Description { leaf: 4, ranges: true, absences: true };

impl Description {
    fn describe(self, state: &State, batch: &[Executed]) -> Batch<Resource, usize> {
        let mut told = Batch::new();
        for Executed { ops, saw } in batch {
            let mut accesses = told.add(Member::default());
            let leaf = |key: u64| Resource::Leaf(key / self.leaf);
            let row = |&(key, by): &(u64, usize)| (Resource::Row(key), by);
            for saw in saw {
                match saw {
                    Saw::Key(key, by) => accesses
                        .reads(by.map(|by| row(&(*key, by))))
                        .reads(Some((leaf(*key), 0)).filter(|_| by.is_none() && self.absences)),
                    Saw::Keys(range, rows) => accesses
                        .reads(rows.iter().map(row))
                        .reads(range.clone().filter(|_| self.ranges).map(|key| (leaf(key), 0))),
                };
            }
            for op in ops {
                match *op {
                    Op::Put(key) if state.contains_key(&key) => accesses.writes([Resource::Row(key)]),
                    Op::Put(key) => accesses.writes([leaf(key)]),
                    Op::Delete(key) if state.contains_key(&key) => accesses.writes([Resource::Row(key), leaf(key)]),
                    _ => continue,
                };
            }
        }
        told
    }
}

/// Transactions that all ran on one state.
fn execute_all(state: &State, batch: &[Vec<Op>]) -> Vec<Executed> {
    batch.iter().map(|ops| execute(ops, state)).collect()
}

/// A state of these keys.
fn state(keys: impl IntoIterator<Item = u64>) -> State {
    keys.into_iter().map(|key| (key, 1 << 20)).collect()
}

/// All algorithms with all policies.
fn all_settings() -> impl Iterator<Item = Settings> {
    ALGORITHMS
        .iter()
        .flat_map(|algorithm| POLICIES.iter().map(move |policy| Settings { algorithm, policy, ..Settings::default() }))
}

fn with(algorithm: &str, policy: &str) -> Settings {
    let algorithm = Algorithm::named(algorithm).expect("listed");
    Settings { algorithm, policy: Policy::named(policy).expect("listed"), ..Settings::default() }
}

/// A batch of transactions on rows, given as pairs of read rows and written rows.
fn at_rows(transactions: &[(&[u64], &[u64])]) -> Batch<u64> {
    let mut batch = Batch::new();
    for (reads, writes) in transactions {
        let reads = reads.iter().map(|&row| (row, ()));
        batch.add(Member::default()).reads(reads).writes(writes.iter().copied());
    }
    batch
}

#[test]
fn names_are_distinct_and_found() {
    for (i, algorithm) in ALGORITHMS.iter().enumerate() {
        assert!(std::ptr::eq(Algorithm::named(algorithm.name).expect("listed"), algorithm), "{i}");
    }
    for (i, policy) in POLICIES.iter().enumerate() {
        assert!(std::ptr::eq(Policy::named(policy.name).expect("listed"), policy), "{i}");
    }
    assert!(Algorithm::named("scc").is_none() && Policy::named("").is_none());
}

#[test]
fn a_reader_and_a_writer_both_commit() {
    let state = state([0, 1, 9]);
    let pairs = [
        ([Op::Read(1)], [Op::Put(1)]),
        ([Op::Read(1)], [Op::Delete(1)]),
        ([Op::Scan(0..8)], [Op::Put(5)]),
        ([Op::Scan(0..8)], [Op::Delete(0)]),
        ([Op::Read(5)], [Op::Put(5)]),
    ];
    for (reader, writer) in pairs {
        for (reader_at, pair) in
            [[reader.to_vec(), writer.to_vec()], [writer.to_vec(), reader.to_vec()]].iter().enumerate()
        {
            let batch = execute_all(&state, pair);
            for settings in all_settings() {
                let decided = EXACT_DESCRIPTION.describe(&state, &batch).reorder(&settings);
                let order = vec![reader_at, 1 - reader_at];
                let edges = vec![(reader_at, 1 - reader_at)];
                let expected = Decided { order, edges, looked: decided.looked, ..Decided::default() };
                assert_eq!(decided, expected, "{pair:?}, {settings:?}");
                assert_eq!(check(&state, &batch, &decided), Ok(()));
            }
        }
    }
}

#[test]
fn writes_without_readers_do_not_conflict() {
    let batch = at_rows(&[(&[], &[1, 2]), (&[], &[2, 1]), (&[3], &[1]), (&[], &[1])]);
    for settings in all_settings() {
        let decided = batch.reorder(&settings);
        assert_eq!(decided, Decided { order: vec![0, 1, 2, 3], looked: decided.looked, ..Decided::default() });
    }
}

#[test]
fn an_empty_batch_is_decided_and_a_cleared_one_is_empty() {
    let mut batch = at_rows(&[(&[1], &[1]), (&[1], &[1])]);
    assert_eq!((batch.len(), batch.reorder(&Settings::default()).aborted.len()), (2, 1));
    batch.clear();
    assert!(batch.is_empty());
    assert_eq!(batch.reorder(&Settings::default()), Decided::default());
    batch.add(Member::default()).reads([(1, ())]).writes([2]);
    assert_eq!(batch.reorder(&Settings::default()).order, [0]);
}

#[test]
fn a_transaction_that_saw_an_older_version_than_another_is_stale_and_constrains_no_other() {
    let mut batch = Batch::new();
    batch.add(Member::default()).reads([("x", 1)]).writes(["y"]);
    batch.add(Member::default()).reads([("x", 2), ("y", 5)]).writes(["x"]);
    batch.add(Member::default()).reads([("y", 5)]).writes(["x"]);
    for settings in all_settings() {
        let decided = batch.reorder(&settings);
        // Without the first, no transaction writes y. The third does not know that x is at 2.
        let (order, edges, stale, looked) = (vec![1, 2], vec![(1, 2)], vec![0], decided.looked);
        assert_eq!(decided, Decided { order, edges, aborted: vec![], stale, looked });
    }
}

/// All transactions that consist of some of these operations, in this order.
fn subsets(ops: &[Op]) -> Vec<Vec<Op>> {
    let chosen = |set: usize| (0..ops.len()).filter(move |i| set & 1 << i != 0);
    (0..1 << ops.len()).map(|set| chosen(set).map(|i| ops[i].clone()).collect()).collect()
}

/// Checks the decisions of all algorithms; the exact ones abort no more than they must.
fn check_small(state: &State, batch: &[Executed]) {
    let told = Description { leaf: 1, ..EXACT_DESCRIPTION }.describe(state, batch);
    let most = most(state, batch);
    for algorithm in ALGORITHMS {
        let decided = told.reorder(&Settings { algorithm, ..Settings::default() });
        assert_eq!(check(state, batch, &decided), Ok(()), "{}: {batch:?}", algorithm.name);
        if ["exact", "hybrid"].contains(&algorithm.name) {
            assert_eq!(decided.order.len(), most, "{}: {batch:?}", algorithm.name);
        }
    }
}

#[test]
fn every_pair_of_transactions_is_ordered_serially() {
    let state = state([0]);
    let all = subsets(&[Op::Read(0), Op::Read(1), Op::Scan(0..3), Op::Put(0), Op::Put(1), Op::Delete(0)]);
    for first in &all {
        for second in &all {
            check_small(&state, &execute_all(&state, &[first.clone(), second.clone()]));
        }
    }
}

#[test]
fn every_three_transactions_at_a_row_and_an_absent_key_are_ordered_serially() {
    let state = state([0]);
    let all = subsets(&[Op::Read(0), Op::Read(1), Op::Put(0), Op::Put(1)]);
    for first in &all {
        for (i, second) in all.iter().enumerate() {
            for third in &all[i..] {
                check_small(&state, &execute_all(&state, &[first.clone(), second.clone(), third.clone()]));
            }
        }
    }
}

/// Transactions of one to six operations on 24 keys, of which every other one exists.
fn random_batch(rng: &mut Rng, transactions: u64) -> (State, Vec<Executed>) {
    let state = state((0..12).map(|key| 2 * key));
    let ops = |rng: &mut Rng| {
        let mut ops: Vec<_> = (0..rng.range(1, 6))
            .map(|_| match (rng.below(10), rng.below(24)) {
                (0..4, key) => Op::Read(key),
                (4..6, key) => Op::Scan(key..key + rng.below(6)),
                (6..9, key) => Op::Put(key),
                (_, key) => Op::Delete(key),
            })
            .collect();
        // Reads come first, and a key is changed once.
        ops.sort_by_key(|op| matches!(op, Op::Put(_) | Op::Delete(_)));
        let changed = |op: &Op| if let Op::Put(key) | Op::Delete(key) = op { Some(*key) } else { None };
        let repeated =
            |i: usize| changed(&ops[i]).is_some() && ops[..i].iter().any(|op| changed(op) == changed(&ops[i]));
        (0..ops.len()).filter(|&i| !repeated(i)).map(|i| ops[i].clone()).collect()
    };
    let batch: Vec<Vec<Op>> = (0..rng.range(1, transactions)).map(|_| ops(rng)).collect();
    let executed = execute_all(&state, &batch);
    (state, executed)
}

#[test]
fn random_batches_are_ordered_serially() {
    for seed in 0..150 {
        println!("seed {seed}");
        let mut rng = Rng::from_seed(seed);
        let (state, batch) = random_batch(&mut rng, 24);
        let told = EXACT_DESCRIPTION.describe(&state, &batch);
        for settings in all_settings() {
            let factor = NonZeroUsize::new(rng.range(1, 5) as usize).expect("not zero");
            let decided = told.reorder(&Settings { factor, seed, exact_max: rng.below(12) as usize, ..settings });
            assert_eq!(check(&state, &batch, &decided), Ok(()), "{settings:?}");
            assert_eq!(decided.stale, [0; 0]);
        }
    }
}

/// Rows read and rows written by a transaction, as bits.
type Footprint = (u64, u64);

/// The least sum of values that must abort, computed for all subsets. A set commits if one member can be last,
/// because it read nothing that the others write, and the others commit without it.
fn least(footprints: &[Footprint], values: &[u64]) -> u64 {
    let n = footprints.len();
    let (mut commits, mut written) = (vec![true; 1 << n], vec![0; 1 << n]);
    for set in 1..1usize << n {
        written[set] = written[set & (set - 1)] | footprints[set.trailing_zeros() as usize].1;
        commits[set] = (0..n).any(|i| {
            let others = set & !(1 << i);
            others != set && commits[others] && footprints[i].0 & written[others] == 0
        });
    }
    let aborted = |set: usize| (0..n).filter(|i| set & 1 << i == 0).map(|i| values[i]).sum();
    (0..1 << n).filter(|&set| commits[set]).map(aborted).min().expect("the empty set commits")
}

fn told(footprints: &[Footprint], values: &[u64]) -> Batch<u32> {
    let mut batch = Batch::new();
    for (&(reads, writes), &value) in footprints.iter().zip(values) {
        let rows = |set: u64| (0..64).filter(move |row| set & 1 << row != 0);
        let reads = rows(reads).map(|row| (row, ()));
        batch.add(Member { value, ..Member::default() }).reads(reads).writes(rows(writes));
    }
    batch
}

#[test]
fn exact_sets_are_smallest_and_others_no_smaller() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut rng = Rng::from_seed(seed);
        let n = rng.range(2, 14) as usize;
        let rows = rng.range(3, 24);
        let mut some = || (0..rng.range(0, 3)).fold(0, |set, _| set | 1 << rng.below(rows));
        let footprints: Vec<Footprint> = (0..n).map(|_| (some(), some())).collect();
        let values: Vec<u64> = (0..n).map(|_| rng.below(100)).collect();
        let (ones, batch) = (vec![1; n], told(&footprints, &values));
        let smallest = least(&footprints, &ones) as usize;
        for settings in all_settings() {
            let is_exact = settings.algorithm.name == "exact";
            let aborted = batch.reorder(&settings).aborted;
            assert!(aborted.len() >= smallest, "{settings:?}");
            match settings.policy.name {
                "value" if is_exact => {
                    let sum: u64 = aborted.iter().map(|&at| values[at]).sum();
                    assert_eq!(sum, least(&footprints, &values), "{settings:?}");
                }
                _ => assert!(aborted.len() == smallest || !is_exact, "{settings:?}"),
            }
        }
    }
}

/// A ring in which each transaction reads what the next one writes.
fn ring(n: u64) -> Batch<u64> {
    let mut batch = Batch::new();
    for at in 0..n {
        batch.add(Member::default()).reads([(at, ())]).writes([(at + n - 1) % n]);
    }
    batch
}

#[test]
fn a_ring_of_any_length_loses_one() {
    for n in [2, 3, 5, 63, 64, 65, 20_000] {
        for settings in all_settings().filter(|settings| settings.algorithm.name != "trim") {
            assert_eq!(ring(n).reorder(&settings).aborted.len(), 1, "{n}, {settings:?}");
        }
    }
}

#[test]
fn sort_greedy_ends_with_any_factor_and_does_not_abort_trimmed_transactions() {
    // Two disjoint rings of two.
    let batch = at_rows(&[(&[1], &[1]), (&[1], &[1]), (&[2], &[2]), (&[2], &[2])]);
    for factor in [1, 2, 3, 4, 100] {
        let factor = NonZeroUsize::new(factor).expect("not zero");
        let decided = batch.reorder(&Settings { factor, ..Settings::default() });
        assert_eq!(decided.aborted, [1, 3], "{factor}");
    }
}

#[test]
fn transactions_between_cycles_abort_only_under_algorithms_without_components() {
    // 0, 1 and 2 conflict in both directions, as do 4, 5 and 6; they read what 3 writes, and 3 reads what
    // these write.
    let [left, right]: [(&[u64], &[u64]); 2] = [(&[1, 8], &[1]), (&[5], &[5])];
    let batch = at_rows(&[left, left, left, (&[5], &[8]), right, right, right]);
    for settings in all_settings() {
        let aborted = batch.reorder(&settings).aborted;
        match settings.algorithm.name {
            "scc-greedy" | "hybrid" | "exact" => {
                assert!(aborted.len() == 4 && !aborted.contains(&3), "{settings:?}");
            }
            "sort-greedy" if settings.policy.name == "prod-degree" => {
                assert!(aborted.contains(&3), "it has the largest degrees: {settings:?}");
            }
            _ => assert!(aborted.len() >= 4, "{settings:?}"),
        }
    }
}

#[test]
fn transactions_on_no_cycle_that_trimming_removes_do_not_abort() {
    // 0 and 1 read what both write; 2 reads that too, and 3 writes what 2 reads; 4 and 5 as 0 and 1.
    let batch =
        at_rows(&[(&[1], &[1, 8]), (&[1], &[1]), (&[1, 3], &[]), (&[8], &[3, 4]), (&[4, 5], &[5]), (&[5], &[5])]);
    for settings in all_settings() {
        let aborted = batch.reorder(&settings).aborted;
        match settings.algorithm.name {
            "trim" => assert_eq!(aborted, [0, 1, 3, 4, 5], "what is between two cycles is not trimmed"),
            _ => assert!(aborted.len() == 2 && !aborted.contains(&2) && !aborted.contains(&3), "{settings:?}"),
        }
    }
}

#[test]
fn policies_abort_the_transactions_that_they_prefer() {
    // 0 conflicts with 1 and with 2, in both directions.
    let mut batch = Batch::new();
    let restarted = |restarts| Member { restarts, value: u64::from(restarts) };
    batch.add(restarted(3)).reads([(1, ()), (2, ())]).writes([1, 2]);
    batch.add(restarted(1)).reads([(1, ())]).writes([1]);
    batch.add(restarted(0)).reads([(2, ())]).writes([2]);
    let aborted = |algorithm, policy| batch.reorder(&with(algorithm, policy)).aborted;
    for algorithm in ["scc-greedy", "sort-greedy", "hybrid", "exact"] {
        for policy in ["max-degree", "sum-degree", "prod-degree"] {
            assert_eq!(aborted(algorithm, policy), [0], "{algorithm}, {policy}");
        }
        // 4 / 2^3 is less than 1 / 2^1; 2^3 is more than 2^1 + 2^0.
        for policy in ["rct", "rdeg", "value"] {
            assert_eq!(aborted(algorithm, policy), [1, 2], "{algorithm}, {policy}");
        }
    }
}

#[test]
fn a_search_that_is_out_of_steps_is_no_worse_than_scc_greedy() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut rng = Rng::from_seed(seed);
        let mut batch = Batch::new();
        for _ in 0..50 {
            let mut accesses = batch.add(Member { restarts: rng.below(4) as u32, value: rng.next_u64() });
            accesses.reads([(); 3].map(|()| (rng.below(40), ()))).writes([(); 3].map(|()| rng.below(40)));
        }
        for policy in POLICIES {
            let cost = |algorithm: &str, steps| {
                let settings = Settings { search_steps_max: steps, ..with(algorithm, policy.name) };
                let aborted = batch.reorder(&settings).aborted;
                aborted.iter().map(|&at| u128::from((policy.cost)(&batch.members()[at]))).sum::<u128>()
            };
            let greedy = cost("scc-greedy", 0);
            // Under the random policy each search draws other vertices.
            assert!(policy.name == "random" || cost("exact", 0) == greedy, "{}", policy.name);
            assert!(policy.name == "random" || cost("exact", 30) <= greedy, "{}", policy.name);
        }
    }
}

/// A small version of the paper's microbenchmark: 5 reads, 5 writes, one of both; some objects are much more
/// popular.
#[test]
fn greedy_sets_are_nearly_smallest_and_random_ones_are_not() {
    let mut sizes = [0; 7];
    for seed in 0..100 {
        let mut rng = Rng::from_seed(seed);
        let mut popular = || {
            let most = 1 << rng.below(9);
            rng.below(most)
        };
        let mut batch = Batch::new();
        for _ in 0..14 {
            let both = popular();
            let (reads, writes) = ([(); 4].map(|()| (popular(), ())), [(); 4].map(|()| popular()));
            batch.add(Member::default()).reads(reads).reads([(both, ())]).writes(writes).writes([both]);
        }
        for (size, algorithm) in sizes.iter_mut().zip(ALGORITHMS) {
            *size += batch.reorder(&Settings { algorithm, seed, ..Settings::default() }).aborted.len();
        }
    }
    let size = |name: &str| sizes[ALGORITHMS.iter().position(|algorithm| algorithm.name == name).expect("listed")];
    println!("{sizes:?}");
    assert_eq!(size("hybrid"), size("exact"));
    assert!(size("exact") <= size("scc-greedy") && size("scc-greedy") <= size("sort-greedy"));
    assert!(size("sort-greedy") * 100 <= size("exact") * 115, "within 15 %");
    assert!(size("sort-greedy") < size("random-3") && size("random-3") < size("random"));
    assert!(size("random") < size("trim"));
}

/// Random batches until the checker reports a failure.
fn objection(description: Description, fault: Option<Fault>) -> Option<String> {
    INJECTED.set(fault);
    let objection = (0..200).find_map(|seed| {
        let (state, batch) = random_batch(&mut Rng::from_seed(seed), 8);
        check(&state, &batch, &description.describe(&state, &batch).reorder(&Settings::default())).err()
    });
    INJECTED.set(None);
    objection
}

#[test]
fn canary_injected_faults_are_noticed() {
    assert_eq!(objection(EXACT_DESCRIPTION, None), None);
    for fault in [Fault::EdgesMissed, Fault::EdgesReversed, Fault::AbortedKept] {
        assert!(objection(EXACT_DESCRIPTION, Some(fault)).is_some(), "{fault:?}");
    }
    assert!(objection(Description { ranges: false, ..EXACT_DESCRIPTION }, None).is_some());
    assert!(objection(Description { absences: false, ..EXACT_DESCRIPTION }, None).is_some());
}
