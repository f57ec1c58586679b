//! Measures TPC-C's full mix on a busy machine: threads with one warehouse each, alone and beside busy loops. The loops
//! run in processes with sessions of their own, so that Linux schedules them in other groups if it groups by session. A
//! thread that waits for a descheduled thread waits for a time slice, which is some milliseconds.
//!
//! In a second comparison the same threads only count. That is the processor time that the scheduler leaves
//! them, which is the upper bound for any program.

use std::error::Error;
use std::hint::black_box;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use clap::Args;
use serde_json::{Value, json};
use seriatim::{Database, thread};
use seriatim_base::clock::Instant;
use seriatim_base::talk;
use seriatim_workload::{Ending, LoadError, Terminal, Workload};

use crate::measure::{Arm, Length, alternate, until_signal};
use crate::report::Report;
use crate::setting::{self, Setting};

/// The options.
#[derive(Args, Clone, Debug)]
#[group(id = "busy")]
pub(crate) struct Options {
    #[command(flatten)]
    setting: setting::Options,
    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Warehouses; thread n uses warehouse n, modulo their number
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    warehouses: u16,
    /// Busy loops [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    loops: Option<u16>,
}

/// Busy processes, until this is dropped.
struct Loops(Vec<Child>);

impl Loops {
    fn start(count: usize) -> Result<Loops, Box<dyn Error>> {
        let program = std::env::current_exe()?;
        let mut loops = Loops(Vec::new());
        for _ in 0..count {
            loops.0.push(Command::new(&program).args(["bench", "busy-loop"]).stdin(Stdio::piped()).spawn()?);
        }
        Ok(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // The process may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The main function of a busy process. It runs until its standard input ends, which happens when its parent ends.
pub(crate) fn spin() -> ! {
    // SAFETY: the call involves no memory. It fails if the process leads a group, which changes nothing.
    let _ = unsafe { libc::setsid() };
    let ends = thread::spawn("busy-loop-end", || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    if let Err(error) = ends {
        talk!("seriatim: no thread for the end of a busy loop: {error}");
        std::process::exit(1);
    }
    let mut count = 0u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

/// Runs `step` on one thread for each of `parts`, for a length. Returns their total rate per second.
fn rate_of<P: Send>(parts: Vec<P>, length: Length, step: impl Fn(&mut P) + Sync) -> f64 {
    let begin = Instant::now();
    let counts: Vec<u64> = thread::scope(|scope| {
        let step = &step;
        let run = move |mut part: P| {
            let mut count = 0;
            while match length {
                Length::Operations(most) => count < most,
                Length::Seconds(seconds) => begin.elapsed().as_secs_f64() < seconds,
            } {
                step(&mut part);
                count += 1;
            }
            count
        };
        let running: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || run(part))).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread of the measurement does not panic")).collect()
    });
    counts.iter().sum::<u64>() as f64 / begin.elapsed().as_secs_f64().max(1e-9)
}

/// Transactions per second of threads with one terminal each.
fn transactions(
    db: &Database,
    workload: &dyn Workload,
    threads: u16,
    length: Length,
    seed: u64,
) -> Result<f64, LoadError> {
    let terminals = (0..threads).map(|at| workload.terminal(db, at, seed)).collect::<Result<Vec<_>, _>>()?;
    let parts = terminals.into_iter().map(|terminal| (terminal, db.session())).collect();
    Ok(rate_of(parts, length, |(terminal, session): &mut (Box<dyn Terminal>, _)| {
        if let Ending::Failed(error) = terminal.run_one(session).ending {
            panic!("a transaction failed: {error}");
        }
    }))
}

/// The rate per second at which threads count to some thousands.
fn counts(threads: u16, length: Length) -> f64 {
    rate_of(vec![0u64; usize::from(threads)], length, |count| {
        (0..4096).for_each(|_| *count = black_box(count.wrapping_add(1)));
    })
}

/// Runs the comparison. `start` starts the busy loops.
fn report<L>(
    setting: &Setting,
    (threads, warehouses): (u16, u16),
    start: impl Fn() -> Result<L, Box<dyn Error>>,
) -> Result<Report, Box<dyn Error>> {
    let workload = setting.tpcc(warehouses);
    let db = setting.load(&workload)?;
    setting.prefault(&db, 2)?;
    // Fails early if the loops cannot be started.
    drop(start()?);
    let beside = |run: &dyn Fn() -> f64| {
        let _loops = start().expect("they were started before");
        run()
    };
    let mut report = Report::new(["beside", "alone"], setting)?;
    let run = |length, seed| transactions(&db, &workload, threads, length, seed).expect("the tables are there");
    let counting = |length, _| counts(threads, length);
    for (name, work) in until_signal([("tpcc", &run as &dyn Fn(Length, u64) -> f64), ("counting", &counting)]) {
        talk!("{name}");
        let mut with = |length, seed| beside(&|| work(length, seed));
        let mut without = |length, seed| work(length, seed);
        let arms: &mut [Arm<'_>] = &mut [&mut with, &mut without];
        let rates = alternate(arms, setting.rounds, setting.length, setting.seed);
        let case = json!({ "workload": name, "threads": threads, "warehouses": warehouses });
        report.add(&format!("{name}, {threads} threads"), case, [&rates[0], &rates[1]])?;
    }
    Ok(report)
}

/// Measures and prints the results.
pub(crate) fn run(options: Options) -> Result<Value, Box<dyn Error>> {
    let Options { setting, threads, warehouses, loops } = options;
    let loops = loops.map_or_else(thread::processors, usize::from);
    Ok(report(&Setting::try_from(setting)?, (threads, warehouses), || Loops::start(loops))?.json())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn loops_run_beside_one_arm_of_each_comparison() {
        struct Running<'a>(&'a Cell<i32>);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        let (running, started) = (Cell::new(0), Cell::new(0));
        let start = || {
            running.set(running.get() + 1);
            started.set(started.get() + 1);
            assert_eq!(running.get(), 1, "those of the arm before have ended");
            Ok(Running(&running))
        };
        let report = report(&Setting::small("auto", 3, 20), (2, 1), start).expect("memory").json();
        assert_eq!((running.get(), started.get()), (0, 1 + 2 * 3));
        let cases = report["comparisons"].as_array().expect("a list");
        assert_eq!(cases.len(), 2);
        assert!(cases.iter().all(|case| case["ratio"]["median"].as_f64() > Some(0.0)), "{report}");
    }

    #[test]
    fn every_thread_does_its_part() {
        let done = std::sync::atomic::AtomicU64::new(0);
        let rate = rate_of(vec![(); 3], Length::Operations(70), |()| {
            done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(rate > 0.0);
        assert_eq!(done.into_inner(), 210);
    }
}
