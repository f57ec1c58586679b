//! The speed of light: the standard mix of TPC-C on plain arrays, with one warehouse for each thread. Rows have
//! the specification's sizes, but there is no index, concurrency control, log or abort. The difference to an
//! engine is the engine's cost.
//!
//! Partitions with one owner each use the same rows and transactions (`seriatim bench partitions --workload
//! tpcc-arrays`).
//!
//! Everything is allocated and touched before the clock starts. Orders, lines and history are in rings.

pub mod data;
pub mod transactions;

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Duration;

use data::{Extent, Item, Warehouse};
use seriatim::{Rng, clock, thread};

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Threads, a warehouse each.
    pub threads: usize,
    /// The longest time of a thread.
    pub seconds: f64,
    /// Transactions of all threads.
    pub transactions: u64,
    /// Transactions per second, the threads' rates added up.
    pub per_second: f64,
    /// Nanoseconds of a transaction on its thread.
    pub nanoseconds: f64,
}

/// Transactions between two looks at the clock.
const STRIDE: u64 = 1024;

/// Runs the mix on `threads` threads for `seconds` each, or until `is_stopped`.
///
/// # Panics
/// If `threads` is zero.
pub fn run(threads: usize, seconds: f64, seed: u64, is_stopped: &(dyn Fn() -> bool + Sync)) -> Rate {
    assert!(threads > 0, "at least one thread");
    let window = Duration::from_secs_f64(seconds);
    let mut rng = Rng::from_seed(seed);
    let items = data::items(&Extent::SPEC);
    let start = Barrier::new(threads);
    let (items, start) = (&items[..], &start);
    let counts: Vec<(u64, f64)> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                let rng = rng.fork();
                scope.spawn(move || drive(items, rng, start, window, is_stopped))
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a roofline thread panicked")).collect()
    });
    let per_second = counts.iter().map(|(count, elapsed)| *count as f64 / elapsed).sum();
    let transactions = counts.iter().map(|(count, _)| count).sum();
    let seconds = counts.iter().map(|(_, elapsed)| *elapsed).fold(0.0, f64::max);
    Rate { threads, seconds, transactions, per_second, nanoseconds: threads as f64 * 1e9 / per_second }
}

/// One thread: loads its warehouse, waits for the others, runs the mix. Transactions and seconds.
fn drive(
    items: &[Item],
    mut rng: Rng,
    start: &Barrier,
    window: Duration,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> (u64, f64) {
    let mut warehouse = Warehouse::load(&mut rng, &Extent::SPEC);
    start.wait();
    let (begin, mut count) = (clock::Instant::now(), 0);
    loop {
        for _ in 0..STRIDE {
            black_box(warehouse.run_one(items, &Extent::SPEC, &mut rng, count));
            count += 1;
        }
        let elapsed = begin.elapsed();
        if elapsed >= window || is_stopped() {
            black_box(&warehouse);
            return (count, elapsed.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_counts_whole_strides_on_every_thread() {
        let rate = run(2, 0.001, 7, &|| false);
        assert_eq!((rate.threads, rate.transactions % STRIDE), (2, 0));
        assert!(rate.transactions >= 2 * STRIDE && rate.per_second > 0.0 && rate.nanoseconds > 0.0);
    }

    #[test]
    fn a_run_that_is_stopped_counts_what_it_has_done() {
        let rate = run(1, 1e6, 7, &|| true);
        assert_eq!(rate.transactions, STRIDE);
        assert!(rate.seconds < 1e6);
    }
}
