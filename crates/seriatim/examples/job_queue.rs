//! A job queue: jobs are taken oldest first, each by one worker, and done exactly once or put back.
//!
//! `cargo run -p seriatim --example job_queue`. What to look at:
//! - `take` finds the oldest job and removes it in one transaction; no other lock is needed.
//! - A worker that fails puts its job back behind the others.
//! - Completed jobs are counted in a column that is only added to.

use seriatim::procedure::plan::{Chopping, Options};
use seriatim::{Abort, Builder, Data, Database, Rng, Table, Text, TransactError, Tx, procedure, procedures, thread};

const JOBS: u64 = 300;
const WORKERS: u32 = 3;

/// Jobs that wait for a worker.
#[derive(Table)]
#[table(name = "waiting", key(queue, number), ordered)]
struct Waiting {
    queue: u16,
    number: u64,
    #[column(immutable)]
    payload: Text<40>,
    attempts: u32,
}

/// Jobs that a worker has taken.
#[derive(Table)]
#[table(name = "running", key(queue, number), ordered)]
struct Running {
    queue: u16,
    number: u64,
    #[column(immutable)]
    payload: Text<40>,
    attempts: u32,
    worker: u32,
}

#[derive(Table)]
#[table(name = "queue", key(id), hash)]
struct Queue {
    id: u16,
    next: u64,
    done: i64,
}

/// A job that was taken.
#[derive(Data, Clone, Debug)]
struct Job {
    number: u64,
    payload: Text<40>,
    attempts: u32,
}

/// Adds a job; returns its number.
#[procedure]
fn enqueue(tx: &Tx, queue: u16, payload: Text<40>) -> Result<u64, Abort> {
    let number = tx.update::<Queue>(queue, |queue| {
        let number = queue.next;
        queue.next += 1;
        number
    })?;
    tx.insert(Waiting { queue, number, payload, attempts: 0 })?;
    Ok(number)
}

/// Takes the oldest job, if there is one.
#[procedure]
fn take(tx: &Tx, queue: u16, worker: u32) -> Result<Option<Job>, Abort> {
    let oldest = tx.prefix::<Waiting>((queue,)).first()?;
    let Some(oldest) = oldest else { return Ok(None) };
    let (number, payload, attempts) = (oldest.number, Text::truncated(oldest.payload), oldest.attempts);
    tx.delete::<Waiting>((queue, number))?;
    tx.insert(Running { queue, number, payload, attempts, worker })?;
    Ok(Some(Job { number, payload, attempts }))
}

/// Completes a job.
#[procedure]
fn finish(tx: &Tx, queue: u16, number: u64) -> Result<(), Abort> {
    tx.delete::<Running>((queue, number))?;
    let _ = tx.update_if::<Queue>(queue, |queue| queue.done += 1)?;
    Ok(())
}

/// Returns a failed job to the queue, as the newest.
#[procedure]
fn put_back(tx: &Tx, queue: u16, number: u64) -> Result<u64, Abort> {
    let job = tx.require::<Running>((queue, number))?;
    let (payload, attempts) = (Text::truncated(job.payload), job.attempts);
    tx.delete::<Running>((queue, number))?;
    let again = tx.update::<Queue>(queue, |queue| {
        let again = queue.next;
        queue.next += 1;
        again
    })?;
    tx.insert(Waiting { queue, number: again, payload, attempts: attempts + 1 })?;
    Ok(again)
}

/// Opens a database, with its procedures and a queue.
pub(crate) fn open(builder: Builder) -> Result<Database, Box<dyn std::error::Error>> {
    let db = builder.open()?;
    let queues = db.create::<Queue>()?;
    db.create::<Waiting>()?;
    db.create::<Running>()?;
    db.register(procedures![enqueue, take, finish, put_back])?;
    db.session().transact(|tx| tx.insert(&queues, &Queue { id: 1, next: 0, done: 0 }))?;
    Ok(db)
}

/// Runs the example under this protocol; returns into which pieces its procedures may be cut.
pub(crate) fn run(protocol: &str) -> Result<Chopping, Box<dyn std::error::Error>> {
    let db = open(Database::builder().protocol(protocol))?;
    let (queues, mut session) = (db.table::<Queue>()?, db.session());
    for number in 0..JOBS {
        session.call(enqueue, &(1, Text::truncated(&format!("job {number}"))))?;
    }

    let worker = |worker: u32| -> Result<(Vec<Text<40>>, u32), TransactError> {
        let (mut session, mut rng) = (db.session(), Rng::from_seed(u64::from(worker)));
        let (mut done, mut failed) = (Vec::new(), 0);
        while let Some(job) = session.call(take, &(1, worker))?.into_value() {
            if rng.percent(10) && job.attempts < 3 {
                failed += 1;
                session.call(put_back, &(1, job.number))?;
            } else {
                done.push(job.payload);
                session.call(finish, &(1, job.number))?;
            }
        }
        Ok((done, failed))
    };
    let results = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|number| scope.spawn(move || worker(number))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect::<Result<Vec<_>, _>>()
    })?;
    // A worker that finds the queue empty may leave before another puts a job back; the other one then runs that job
    // itself.
    let failed: u32 = results.iter().map(|(_, failed)| failed).sum();
    let mut done: Vec<_> = results.into_iter().flat_map(|(done, _)| done).collect();
    done.sort_unstable();
    done.dedup();
    println!("{} jobs done, {failed} attempts failed", done.len());
    assert_eq!(done.len() as u64, JOBS, "each was done, and none twice");
    let counted = session.transact(|tx| Ok(tx.get(&queues, &1)?.map(|queue| queue.done())))?.into_value();
    assert_eq!(counted, Some(JOBS as i64));
    Ok(db.chopping(Options::OPTIMIZED)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run("auto")?);
    Ok(())
}
