//! How many transactions the algorithms of the crate `batch` abort in random batches, and how long they take,
//! without running transactions.
//!
//! Each batch is drawn from a workload's distribution, reordered, and checked. In the accepted order no transaction has
//! read an object that an earlier one writes. The paper's figures 5 and 6 (Ding, Kot, Gehrke, PVLDB 12(2), 2018, §5.1)
//! are for the microbenchmark.

use std::collections::HashSet;

use seriatim::Rng;
use seriatim_base::clock::Instant;
use seriatim_batch::{Batch, Decided, Member, Settings};
use seriatim_workload::random::Zipfian;

/// The largest batch for which the smallest set is found by trying all subsets.
pub const SMALLEST_MAX: usize = 14;

/// The kind of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Footprints {
    /// Five reads and five writes of nine objects: one object is read and written (§5, "Evaluation").
    FiveFive,
    /// 16 requests, each of which reads a record; every other request also writes it (§5.5).
    Ycsb,
}

/// Distinct objects of a transaction of five-five.
pub const FIVE_FIVE_OBJECTS: u64 = 9;
const YCSB_REQUESTS: usize = 16;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The kind of transactions.
    pub footprints: Footprints,
    /// The number of objects; for five-five at least [`FIVE_FIVE_OBJECTS`].
    pub objects: u64,
    /// The skew of the objects, 0 or more and below 1.
    pub theta: f64,
    /// Transactions in a batch.
    pub transactions: usize,
    /// Batches.
    pub batches: usize,
    /// How they are reordered.
    pub settings: Settings,
    /// The seed of the batches.
    pub seed: u64,
}

/// Means over the batches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Transactions aborted in a batch.
    pub left_out: f64,
    /// The smallest possible number; `None` for larger batches.
    pub smallest: Option<f64>,
    /// Microseconds to reorder a batch: the graph, the set and the order.
    pub microseconds: f64,
    /// The same for the median batch.
    pub microseconds_median: f64,
    /// Visits of vertices and edges of a batch's graph.
    pub looked: f64,
}

/// The reads and the writes of a transaction.
type Footprint = (Vec<u64>, Vec<u64>);

/// Draws the batches and reorders them.
///
/// # Errors
/// An order is not serial.
pub fn run(options: &Options) -> Result<Measured, String> {
    let Options { theta, objects, transactions, batches, settings, seed, .. } = *options;
    let (law, mut rng) = (Zipfian::new(objects, theta), Rng::from_seed(seed));
    let (mut left_out, mut looked, mut smallest, mut times) = (0, 0, Some(0), Vec::with_capacity(batches));
    for at in 0..batches {
        let footprints: Vec<Footprint> = (0..transactions).map(|_| draw(options, &law, &mut rng)).collect();
        let mut batch = Batch::new();
        for (reads, writes) in &footprints {
            let reads = reads.iter().map(|&object| (object, ()));
            batch.add(Member::default()).reads(reads).writes(writes.iter().copied());
        }
        let began = Instant::now();
        let decided = batch.reorder(&Settings { seed: seed.wrapping_add(at as u64), ..settings });
        times.push(began.elapsed().as_secs_f64() * 1e6);
        judge(&footprints, &decided).map_err(|wrong| format!("batch {at}: {wrong}"))?;
        left_out += decided.aborted.len();
        looked += decided.looked;
        smallest = smallest.and_then(|sum| Some(sum + least(&footprints)?));
    }
    times.sort_by(f64::total_cmp);
    let mean = |sum: f64| sum / batches as f64;
    Ok(Measured {
        left_out: mean(left_out as f64),
        smallest: smallest.map(|sum| mean(sum as f64)),
        looked: mean(looked as f64),
        microseconds: mean(times.iter().sum()),
        microseconds_median: times.get(times.len() / 2).copied().unwrap_or_default(),
    })
}

fn draw(options: &Options, law: &Zipfian, rng: &mut Rng) -> Footprint {
    match options.footprints {
        Footprints::FiveFive => {
            let mut objects: Vec<u64> = Vec::with_capacity(FIVE_FIVE_OBJECTS as usize);
            while objects.len() < FIVE_FIVE_OBJECTS as usize {
                let object = law.draw(rng);
                if !objects.contains(&object) {
                    objects.push(object);
                }
            }
            // Later objects are colder, since they differ from earlier ones.
            rng.shuffle(&mut objects);
            (objects[..5].to_vec(), objects[4..].to_vec())
        }
        Footprints::Ycsb => {
            let reads: Vec<u64> = (0..YCSB_REQUESTS).map(|_| law.draw(rng)).collect();
            let writes = reads.iter().copied().filter(|_| rng.percent(50)).collect();
            (reads, writes)
        }
    }
}

/// Checks that the committing transactions can commit in this order, and that each transaction is decided once.
fn judge(footprints: &[Footprint], decided: &Decided) -> Result<(), String> {
    let mut written: HashSet<u64> = HashSet::new();
    for &at in &decided.order {
        let (reads, writes) = &footprints[at];
        if let Some(object) = reads.iter().find(|object| written.contains(*object)) {
            return Err(format!("{at} read object {object}, which another writes before it"));
        }
        written.extend(writes);
    }
    let mut all = [&decided.order[..], &decided.aborted, &decided.stale].concat();
    all.sort_unstable();
    match all.into_iter().eq(0..footprints.len()) {
        true => Ok(()),
        false => Err("a transaction is decided twice or not at all".to_owned()),
    }
}

/// How many transactions of a batch must be aborted. A set can commit if one transaction can be last and the others can
/// commit without it. It can be last if it has read nothing that the others write. `None` if there are too many sets to
/// try.
fn least(footprints: &[Footprint]) -> Option<usize> {
    let n = footprints.len();
    if n > SMALLEST_MAX {
        return None;
    }
    let overwrites = |writer: usize, reader: usize| {
        writer != reader && footprints[reader].0.iter().any(|object| footprints[writer].1.contains(object))
    };
    let overwriters =
        |reader| (0..n).filter(|&writer| overwrites(writer, reader)).fold(0, |set, at| set | 1usize << at);
    let overwriters: Vec<usize> = (0..n).map(overwriters).collect();
    let mut commits = vec![true; 1 << n];
    for set in 1..1usize << n {
        let is_last = |&at: &usize| {
            let others = set & !(1 << at);
            others != set && commits[others] && overwriters[at] & others == 0
        };
        commits[set] = (0..n).any(|at| is_last(&at));
    }
    let largest = (0..1usize << n).filter(|&set| commits[set]).map(usize::count_ones).max().unwrap_or(0);
    Some(n - largest as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim_batch::Algorithm;

    fn options(footprints: Footprints, theta: f64, algorithm: &str) -> Options {
        let algorithm = Algorithm::named(algorithm).expect("listed");
        let settings = Settings { algorithm, ..Settings::default() };
        Options { footprints, objects: 200, theta, transactions: 10, batches: 30, settings, seed: 7 }
    }

    #[test]
    fn the_exact_algorithm_leaves_out_as_few_as_all_subsets_say_and_others_more() {
        for footprints in [Footprints::FiveFive, Footprints::Ycsb] {
            let of = |algorithm| run(&options(footprints, 0.9, algorithm)).expect("its orders are serial");
            let (exact, trim) = (of("exact"), of("trim"));
            assert!(exact.left_out > 0.5 && exact.microseconds > 0.0, "{exact:?}");
            assert_eq!(Some(exact.left_out), exact.smallest, "{footprints:?}");
            assert_eq!(exact.smallest, trim.smallest, "the same batches");
            assert!(trim.left_out > exact.left_out, "{trim:?}");
        }
    }

    #[test]
    fn transactions_match_the_workloads() {
        let mut rng = Rng::from_seed(1);
        let law = Zipfian::new(FIVE_FIVE_OBJECTS, 0.9);
        let (reads, writes) = draw(&options(Footprints::FiveFive, 0.9, "trim"), &law, &mut rng);
        let both = reads.iter().filter(|object| writes.contains(object)).count();
        assert_eq!((reads.len(), writes.len(), both), (5, 5, 1));
        let (reads, writes) = draw(&options(Footprints::Ycsb, 0.9, "trim"), &law, &mut rng);
        assert!(
            reads.len() == 16 && (1..16).contains(&writes.len()) && writes.iter().all(|object| reads.contains(object))
        );
    }

    #[test]
    fn canary_an_order_that_is_not_serial_is_reported() {
        let footprints = [(vec![1], vec![2]), (vec![2], vec![1])];
        let order = |order: &[usize], aborted: &[usize]| Decided {
            order: order.to_vec(),
            aborted: aborted.to_vec(),
            ..Decided::default()
        };
        assert_eq!(judge(&footprints, &order(&[1], &[0])), Ok(()));
        assert!(judge(&footprints, &order(&[0, 1], &[])).is_err());
        assert!(judge(&footprints, &order(&[0], &[])).is_err());
        assert_eq!(least(&footprints), Some(1));
    }
}
