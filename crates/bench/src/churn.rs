//! Checks that memory does not grow while rows are inserted, changed and deleted. There are long texts of
//! changing length, and indexed values that change. There are rows that are deleted and inserted again under the same
//! key, and a queue with ascending keys. The number of rows stays the same.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use seriatim::{Database, Handle, Session, Table, TransactError};
use seriatim_base::clock::Instant;
use seriatim_base::{Rng, interrupt, thread};

use crate::report::{Format, Rows};

/// Options of the run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Length of the run; compares memory in the last tenth with memory in the second tenth
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(10..))]
    seconds: u64,
    /// Seconds between two lines, at most a tenth of the run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Rows of each thread, in each of two tables
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Concurrency-control protocol
    #[arg(long, default_value = "auto")]
    protocol: String,
    /// The seed of the changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The format of standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How often a wait for the next line looks for a signal.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The longest text, in bytes.
const TEXT_MAX: u64 = 400;
/// The number of values of the indexed column.
const GROUPS: u64 = 100;

/// A row that is updated, deleted and inserted again.
#[derive(Table, Clone, Debug)]
#[table(name = "item", key(id), ordered)]
#[table(index(name = "by_group", columns(group), ordered))]
#[table(index(name = "by_tag", columns(tag), hash, unique))]
struct Item {
    id: u64,
    group: u32,
    tag: u64,
    text: String,
}

/// A row of a queue.
#[derive(Table, Clone, Debug)]
#[table(name = "queued", key(thread, place), ordered)]
struct Queued {
    thread: u64,
    place: u64,
    text: String,
}

/// The state of one thread. It has its own rows, so that no transactions conflict and counts are exact.
struct Churner {
    session: Session,
    items: Handle<Item>,
    queue: Handle<Queued>,
    rng: Rng,
    thread: u64,
    rows: u64,
    /// The first occupied position of the queue.
    first: u64,
}

fn text(rng: &mut Rng) -> String {
    "x".repeat(rng.below(TEXT_MAX) as usize)
}

impl Churner {
    /// Inserts the thread's rows.
    fn load(db: &Database, thread: u64, rows: u64, seed: u64) -> Result<Churner, Box<dyn Error>> {
        let (items, queue) = (db.table::<Item>()?, db.table::<Queued>()?);
        let rng = Rng::from_seed(seed ^ thread << 32);
        let mut churner = Churner { session: db.session(), items, queue, rng, thread, rows, first: 0 };
        for place in 0..rows {
            let item = churner.item(thread * rows + place);
            let queued = Queued { thread, place, text: text(&mut churner.rng) };
            churner.session.transact(|tx| {
                tx.insert(&churner.items, &item)?;
                tx.insert(&churner.queue, &queued)
            })?;
        }
        Ok(churner)
    }

    fn item(&mut self, id: u64) -> Item {
        let (group, text) = (self.rng.below(GROUPS) as u32, text(&mut self.rng));
        Item { id, group, tag: id << 32 | self.rng.below(1 << 32), text }
    }

    /// Changes some rows, and keeps their number. Returns the number of committed transactions.
    fn step(&mut self) -> Result<u64, TransactError> {
        let id = self.thread * self.rows + self.rng.below(self.rows);
        let new = self.item(id);
        let Churner { session, items, .. } = self;
        // Only this thread changes these rows.
        session.transact(|tx| {
            tx.update(items, &id, |row| {
                row.set_group(new.group);
                let _ = row.set_text(&new.text);
            })
        })?;
        let id = self.thread * self.rows + self.rng.below(self.rows);
        let again = self.item(id);
        let Churner { session, items, .. } = self;
        session.transact(|tx| tx.delete(items, &id))?;
        session.transact(|tx| tx.insert(items, &again))?;
        let (thread, first, place) = (self.thread, self.first, self.first + self.rows);
        let last = Queued { thread, place, text: text(&mut self.rng) };
        let Churner { session, queue, .. } = self;
        session.transact(|tx| {
            tx.delete(queue, &(thread, first))?;
            tx.insert(queue, &last)
        })?;
        self.first += 1;
        Ok(4)
    }
}

fn open(protocol: &str, step_helpers: bool) -> Result<Database, Box<dyn Error>> {
    let db = Database::builder().protocol(protocol).step_helpers(step_helpers).open()?;
    db.create::<Item>()?;
    db.create::<Queued>()?;
    Ok(db)
}

/// Runs, and prints a line for each interval.
pub(crate) fn run(options: &Options) -> Result<Value, Box<dyn Error>> {
    let db = open(&options.protocol, false)?;
    let (size, seed) = (options.rows, options.seed);
    let churners = (0..options.threads).map(|thread| Churner::load(&db, thread, size, seed));
    let churners = churners.collect::<Result<Vec<_>, _>>()?;
    let heads = format!("{:>8} {:>14} {:>14} {:>14}", "seconds", "transactions", "memory_bytes", "reserved_bytes");
    let mut rows = Rows::new(options.format, &heads)?;
    let table = &mut rows;
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (done, stop) = (&done, &stop);
    let samples = thread::scope(|scope| -> Result<Vec<(f64, usize)>, Box<dyn Error>> {
        let working: Vec<_> = churners
            .into_iter()
            .map(|mut churner| {
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        done.fetch_add(churner.step()?, Ordering::Relaxed);
                    }
                    Ok::<(), TransactError>(())
                })
            })
            .collect();
        let begin = Instant::now();
        let (mut samples, mut said) = (Vec::new(), Ok(()));
        while said.is_ok()
            && begin.elapsed().as_secs_f64() < options.seconds as f64
            && !interrupt::is_requested()
            && working.iter().all(|thread| !thread.is_finished())
        {
            let next = Duration::from_secs(options.interval.min(options.seconds / 10) * (samples.len() as u64 + 1));
            while begin.elapsed() < next && !interrupt::is_requested() {
                thread::sleep(next.saturating_sub(begin.elapsed()).min(LOOK_INTERVAL));
            }
            let (seconds, statistics) = (begin.elapsed().as_secs_f64(), db.statistics());
            let (memory, reserved) = (statistics.memory_bytes, statistics.reserved_bytes);
            let transactions = done.load(Ordering::Relaxed);
            let row = json!({
                "seconds": seconds, "transactions": transactions, "memory_bytes": memory, "reserved_bytes": reserved,
            });
            said = table.add(&format!("{seconds:>8.1} {transactions:>14} {memory:>14} {reserved:>14}"), row);
            samples.push((seconds, memory));
        }
        stop.store(true, Ordering::Relaxed);
        for thread in working {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(said.map(|()| samples)?)
    })?;
    let tenth = options.seconds as f64 / 10.0;
    // Memory that waits for reuse varies with each grace period: single samples differ by a twentieth.
    let mean = |after: f64| {
        let inside = samples.iter().filter(|(seconds, _)| (after..=after + tenth + 0.5).contains(seconds));
        let (sum, count) = inside.fold((0.0, 0), |(sum, count), (_, memory)| (sum + *memory as f64, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    };
    let times = mean(tenth).zip(mean(9.0 * tenth)).map(|(early, late)| late / early);
    if let Some(times) = times {
        options.format.line(&format!("memory in the last tenth is {times:.3} times that in the second"))?;
    }
    db.check_structure()?;
    let mut object = rows.json();
    object["last_tenth_over_second"] = json!(times);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use seriatim_base::rng;

    use super::*;

    /// Memory may grow by a twentieth after a fifth of the run.
    #[test]
    fn memory_does_not_grow_under_any_protocol() {
        let seed = rng::seed("memory_does_not_grow_under_any_protocol");
        for protocol in rng::sample(seriatim::available_protocols(), 3, seed) {
            let db = open(protocol.name, true).expect("memory");
            let mut churner = Churner::load(&db, 0, 1_000, 7).expect("memory");
            let mut samples = Vec::new();
            for _ in 0..10 {
                for step in 0..1_000 {
                    churner.step().expect("alone");
                    if step % 50 == 0 {
                        db.step();
                    }
                }
                samples.push(db.statistics().memory_bytes);
            }
            eprintln!("{}: {samples:?}", protocol.name);
            assert!(samples[9] * 100 <= samples[1] * 105, "{}: {samples:?}", protocol.name);
            let rows =
                churner.session.snapshot(|tx| Ok((tx.count(&churner.items, ..)?, tx.count(&churner.queue, ..)?)));
            assert_eq!(*rows.expect("alone"), (1_000, 1_000));
            assert_eq!(db.check_structure(), Ok(()));
        }
    }
}
