//! Costs of the machine, measured on it: transfers of lines between cores, and waiting.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{CacheAligned, thread};

use crate::costs::Machine;

/// Each figure is the shortest of this many tries: every disturbance makes a try longer.
const TRIES: usize = 100;

/// On a busy machine tries take long, and there are fewer.
const LONGEST: Duration = Duration::from_secs(2);

/// The costs of an empty region and of an aborted one, in nanoseconds, for processors without regions
/// (measured on Emerald Rapids).
const REGION: f64 = 14.0;
const ABORT: f64 = 60.0;

/// The shortest of several tries of `rounds` rounds, in nanoseconds a round.
pub fn shortest(rounds: u64, mut work: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    let tries = (0..TRIES).take_while(|&number| number == 0 || start.elapsed() < LONGEST).map(|_| {
        let began = Instant::now();
        work(rounds);
        began.elapsed().as_nanos() as f64 / rounds as f64
    });
    tries.fold(f64::INFINITY, f64::min)
}

/// The machine's costs; those of regions are constants of another machine. Takes some seconds at most.
pub fn machine() -> Machine {
    let pause = shortest(10_000, |rounds| (0..rounds).for_each(|_| spin_loop()));
    let yields = shortest(1_000, |rounds| (0..rounds).for_each(|_| thread::yield_now()));
    let asked = Duration::from_micros(10);
    let sleep = shortest(10, |rounds| (0..rounds).for_each(|_| thread::sleep(asked))) - asked.as_nanos() as f64;
    let (transfer, overlapped) = (transfer(), overlapped());
    Machine { transfer, overlapped, pause, yields, sleep: sleep.max(0.0), region: REGION, abort: ABORT }
}

/// The additional cost of loading a word that another core has changed, where nothing waits for it. Many words are
/// loaded, in an order that processors cannot predict. As [`transfer`], zero without a second processor.
fn overlapped() -> f64 {
    const LINES: usize = 256;
    // Odd, so that all words are reached.
    const STRIDE: usize = 97;
    if thread::processors() < 2 {
        return 0.0;
    }
    let lines: Vec<CacheAligned<AtomicU64>> = (0..LINES).map(|_| CacheAligned(AtomicU64::new(0))).collect();
    let load = || {
        let begin = Instant::now();
        let word = |at: usize| lines[at * STRIDE % LINES].0.load(Ordering::Relaxed);
        black_box((0..LINES).map(word).fold(0, u64::wrapping_add));
        begin.elapsed().as_nanos() as f64 / LINES as f64
    };
    let turn = AtomicU64::new(0);
    let (mut alone, mut together) = (f64::INFINITY, f64::INFINITY);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=TRIES as u64 {
                while turn.load(Ordering::Acquire) != 2 * round - 1 {
                    spin_loop();
                }
                lines.iter().for_each(|line| line.0.store(round, Ordering::Relaxed));
                turn.store(2 * round, Ordering::Release);
            }
        });
        for round in 1..=TRIES as u64 {
            turn.store(2 * round - 1, Ordering::Release);
            while turn.load(Ordering::Acquire) != 2 * round {
                spin_loop();
            }
            together = together.min(load());
            alone = alone.min(load());
        }
    });
    (together - alone).max(0.0)
}

/// The additional cost of changing a word that another core has changed. Two threads change it in turn; a turn
/// is one transfer. It cannot be measured without a second processor, and is zero then.
fn transfer() -> f64 {
    const TURNS: u64 = 500;
    if thread::processors() < 2 {
        return 0.0;
    }
    let word = CacheAligned(AtomicU64::new(0));
    let alone = shortest(TURNS, |turns| {
        for turn in 0..turns {
            let _ = black_box(word.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed));
        }
        word.store(0, Ordering::Relaxed);
    });
    let in_turn = |first: u64| {
        for turn in (first..TURNS).step_by(2) {
            while word.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
            word.store(turn + 1, Ordering::Release);
        }
    };
    let together = shortest(TURNS, |_| {
        word.store(0, Ordering::Release);
        thread::scope(|scope| {
            scope.spawn(|| in_turn(1));
            in_turn(0);
        });
    });
    (together - alone).max(0.0)
}
