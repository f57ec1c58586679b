//! Memory under update and delete churn stays where it is: many rounds leave at most 5% more than was there
//! before them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use seriatim::htm::HtmMode;
use seriatim::rng::{is_nightly, seed};
use seriatim::{Abort, Database, Handle, Rng, Session, Table, Text, Tx, thread};
use seriatim_suite::{Setting, matrix, rounds};

/// The memory that does not scale: open bags of garbage, and the part-filled nodes and blocks of a moving population.
const SLACK: usize = 128 << 10;

/// Stretches of churn, of which one must leave memory where it was. One thread that is not scheduled in the
/// middle of a transaction holds back the rows that all others delete. Indexes that grow around it stay as large. A
/// leak shows in every stretch.
const STRETCHES_MAX: usize = 3;

/// A table under test.
trait TestTable: for<'t> Table<Key = u32> + Sized + Send + Sync + 'static {
    /// Ordered indexes over values that move about. Their leaves take a while to become as sparse as they get, and
    /// split around entries that wait for their grace period.
    const SPARSE: usize = 0;
    fn new(id: u32, rng: &mut Rng) -> Self;
    fn change(update: &mut Self::Update<'_>, rng: &mut Rng);
}

#[derive(Table, Clone, Debug)]
#[table(name = "hashed", key(id), hash)]
struct Hashed {
    id: u32,
    value: u64,
    name: Text<40>,
}

impl TestTable for Hashed {
    fn new(id: u32, rng: &mut Rng) -> Hashed {
        Hashed { id, value: rng.next_u64(), name: Text::truncated("hashed") }
    }
    fn change(update: &mut Self::Update<'_>, rng: &mut Rng) {
        update.set_value(rng.next_u64());
    }
}

#[derive(Table, Clone, Debug)]
#[table(name = "ordered", key(id))]
struct Ordered {
    id: u32,
    value: u64,
    #[column(immutable)]
    name: Text<40>,
}

impl TestTable for Ordered {
    fn new(id: u32, rng: &mut Rng) -> Ordered {
        Ordered { id, value: rng.next_u64(), name: Text::truncated("ordered") }
    }
    fn change(update: &mut Self::Update<'_>, rng: &mut Rng) {
        update.set_value(rng.next_u64());
    }
}

/// Long texts, of a row and of its immutable part.
#[derive(Table, Clone, Debug)]
#[table(name = "long", key(id))]
struct Long {
    id: u32,
    #[column(immutable)]
    title: String,
    text: String,
    note: String,
}

fn text(rng: &mut Rng) -> String {
    "x".repeat(rng.below(300) as usize)
}

impl TestTable for Long {
    fn new(id: u32, rng: &mut Rng) -> Long {
        Long { id, title: text(rng), text: text(rng), note: text(rng) }
    }
    fn change(update: &mut Self::Update<'_>, rng: &mut Rng) {
        update.set_text(&text(rng)).expect("no memory limit");
        if rng.below(2) == 0 {
            update.set_note(&text(rng)).expect("no memory limit");
        }
    }
}

/// Indexes of either organization over columns that change, one with keys of bytes.
#[derive(Table, Clone, Debug)]
#[table(name = "indexed", key(id), hash)]
#[table(index(name = "by_owner", columns(owner), ordered))]
#[table(index(name = "by_color", columns(color), hash))]
#[table(index(name = "by_name", columns(name), ordered, unique))]
struct Indexed {
    id: u32,
    owner: u16,
    color: u16,
    name: Text<24>,
}

fn name(id: u32, rng: &mut Rng) -> Text<24> {
    Text::truncated(&format!("{:04x}{id}", rng.below(1 << 16)))
}

impl TestTable for Indexed {
    const SPARSE: usize = 3;

    fn new(id: u32, rng: &mut Rng) -> Indexed {
        Indexed { id, owner: rng.below(50) as u16, color: rng.below(50) as u16, name: name(id, rng) }
    }
    fn change(update: &mut Self::Update<'_>, rng: &mut Rng) {
        update.set_owner(rng.below(50) as u16);
        update.set_color(rng.below(50) as u16);
        let id = update.id();
        update.set_name(&name(id, rng));
    }
}

/// The changes of a round to the rows `base..base + rows`.
#[derive(Clone, Copy, Debug)]
enum Churn {
    /// Updates each.
    Update,
    /// Deletes each, and inserts it again.
    Reinsert,
    /// Replaces each whole row.
    Replace,
    /// Inserts the next `rows` keys and deletes the last: a queue.
    Queue,
    /// Everything, in attempts of which half roll back.
    RollBack,
}

const CHURNS: [Churn; 5] = [Churn::Update, Churn::Reinsert, Churn::Replace, Churn::Queue, Churn::RollBack];

#[derive(Debug)]
struct GivenUp;

impl std::fmt::Display for GivenUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("given up on purpose")
    }
}

impl std::error::Error for GivenUp {}

struct World<T> {
    db: Database,
    table: Handle<T>,
    rows: u32,
}

impl<T: TestTable> World<T> {
    /// One round of churn by one of several workers, each with keys of its own.
    fn round(&self, session: &mut Session, churn: Churn, round: u32, at: u32, rng: &mut Rng) {
        let base = at << 24;
        let rows = self.rows;
        let shift = if matches!(churn, Churn::Queue) { round * rows } else { 0 };
        for first in (0..rows).step_by(8) {
            let draws = rng.next_u64();
            let roll_back = matches!(churn, Churn::RollBack) && first % 16 == 0;
            let body = |tx: &Tx| -> Result<(), Abort> {
                let mut rng = Rng::from_seed(draws);
                for offset in first..rows.min(first + 8) {
                    let id = base + shift + offset;
                    match churn {
                        Churn::Update => drop(tx.update_if(&self.table, &id, |row| T::change(row, &mut rng))?),
                        Churn::Replace => tx.put(&self.table, &T::new(id, &mut rng))?,
                        Churn::Reinsert => {
                            tx.delete(&self.table, &id)?;
                            if offset % 2 == 0 {
                                tx.insert(&self.table, &T::new(id, &mut rng))?;
                            }
                        }
                        Churn::Queue => {
                            tx.insert(&self.table, &T::new(id + rows, &mut rng))?;
                            tx.delete(&self.table, &id)?;
                        }
                        Churn::RollBack => {
                            let savepoint = tx.savepoint()?;
                            tx.put(&self.table, &T::new(id, &mut rng))?;
                            tx.insert(&self.table, &T::new(id + rows, &mut rng))?;
                            tx.delete(&self.table, &id)?;
                            tx.rollback_to(savepoint)?;
                            tx.put(&self.table, &T::new(id, &mut rng))?;
                            tx.update(&self.table, &id, |row| T::change(row, &mut rng))?;
                            tx.insert(&self.table, &T::new(id + rows, &mut rng))?;
                            tx.delete(&self.table, &(id + rows))?;
                        }
                    }
                }
                if roll_back { Err(tx.abort(GivenUp)) } else { Ok(()) }
            };
            match session.transact(body) {
                Ok(_) => assert!(!roll_back),
                Err(error) => assert!(roll_back && error.user::<GivenUp>().is_some(), "{error}"),
            }
            if matches!(churn, Churn::Reinsert) {
                // The odd ones come back in a transaction of their own.
                let back = |tx: &Tx| {
                    let mut rng = Rng::from_seed(draws);
                    (first..rows.min(first + 8))
                        .filter(|offset| offset % 2 == 1)
                        .try_for_each(|offset| tx.insert(&self.table, &T::new(base + offset, &mut rng)))
                };
                session.transact(back).expect("keys of its own");
            }
        }
    }

    /// Memory once helpers have nothing left to do.
    fn rest(&self) -> usize {
        let (mut memory, mut same) = (usize::MAX, 0);
        for _ in 0..1000 {
            self.db.step();
            let now = self.db.statistics().memory_bytes;
            same = if now == memory { same + 1 } else { 0 };
            memory = now;
            if same == 4 {
                break;
            }
        }
        memory
    }
}

/// A thread that is done, or has failed.
struct Done<'a>(&'a AtomicU32);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn stays_bounded<T: TestTable>(setting: &Setting, churn: Churn, threads: u32, seed: u64) {
    let (warm_up, last) = match (T::SPARSE, setting.htm) {
        (0, _) => (2, 20),
        // Slow on purpose.
        (_, HtmMode::Emulated(_)) => (6, 16),
        _ => (12, 40),
    };
    let rows = 96;
    // No helper works during a measurement: their work is done here.
    let builder = setting.builder().workers(threads as usize + 1).retry(setting.patience()).step_helpers(true);
    let db = builder.open().expect("a database");
    let table = db.create::<T>().expect("a table");
    let world = World { db, table, rows };
    let load = |tx: &Tx| {
        let mut rng = Rng::from_seed(seed);
        (0..threads)
            .try_for_each(|at| (0..rows).try_for_each(|id| tx.insert(&world.table, &T::new((at << 24) + id, &mut rng))))
    };
    world.db.session().transact(load).expect("loading");
    let name = T::NAME;
    // Each worker holds back what it retired last.
    let slack = (SLACK + T::SPARSE * (32 << 10)) * threads as usize;
    let (mut next, mut after) = (0, Vec::new());
    loop {
        let rounds = next..next + if next == 0 { warm_up } else { last - warm_up };
        next = rounds.end;
        let working = &AtomicU32::new(threads);
        thread::scope(|scope| {
            for at in 0..threads {
                let (world, rounds) = (&world, rounds.clone());
                scope.spawn(move || {
                    let _done = Done(working);
                    let mut session = world.db.session();
                    for round in rounds {
                        let mut rng = Rng::from_seed(seed ^ u64::from(at << 16 | round));
                        world.round(&mut session, churn, round, at, &mut rng);
                        if threads == 1 && round % 3 == 0 {
                            world.db.step();
                        }
                    }
                });
            }
            while threads > 1 && working.load(Ordering::Relaxed) > 0 {
                world.db.step();
                thread::sleep(Duration::from_millis(1));
            }
        });
        after.push(world.rest());
        if let [.., warm, end] = after[..]
            && end <= warm + warm / 20 + slack
        {
            break;
        }
        assert!(
            after.len() <= STRETCHES_MAX,
            "{setting}, {name}, {churn:?}, {threads} threads: memory grows: {after:?}"
        );
    }
    world.db.check_structure().unwrap_or_else(|fault| panic!("{setting}, {name}, {churn:?}: {fault}"));
    eprintln!("{setting}, {name}, {churn:?}, {threads} threads: {after:?} bytes");
}

fn every_churn<T: TestTable>(test: &str) {
    let seed = seed(test);
    let settings = matrix(seed);
    for (at, setting) in settings.iter().enumerate() {
        // In a night every other churn, with one thread or two; in the next setting of the protocol those between. With
        // each change every fourth, and in the next setting another.
        let (every, turn) = if is_nightly() { (2, setting.turn(&settings[..at])) } else { (4, at) };
        let draw = seed as u32 % 4 + turn as u32;
        for (number, churn) in (0..).zip(CHURNS) {
            let one = 1 + (number / 2 + draw / 2) % 2;
            let threads = match rounds() {
                1 if (number + draw).is_multiple_of(every) => one..=one,
                1 => continue,
                _ => 1..=2,
            };
            threads.for_each(|threads| stays_bounded::<T>(setting, churn, threads, seed));
        }
    }
}

#[test]
fn memory_of_a_hash_table_is_bounded() {
    every_churn::<Hashed>("churn of a hash table");
}

#[test]
fn memory_of_an_ordered_table_is_bounded() {
    every_churn::<Ordered>("churn of an ordered table");
}

#[test]
fn memory_of_long_texts_is_bounded() {
    every_churn::<Long>("churn of long texts");
}

#[test]
fn memory_of_indexes_is_bounded() {
    every_churn::<Indexed>("churn of indexes");
}

/// Transactions that delete many rows each: what they leave must be cleared away as fast as it comes.
#[test]
fn large_deletes_are_cleared_away_as_they_come() {
    for setting in matrix(seed("large deletes")) {
        let db = setting.builder().workers(2).step_helpers(true).open().expect("a database");
        let table = db.create::<Ordered>().expect("a table");
        let mut session = db.session();
        let mut rng = Rng::from_seed(1);
        let mut peaks = [0, 0];
        for round in 0..40u32 {
            let base = round * 200;
            let insert = |tx: &Tx| (base..base + 200).try_for_each(|id| tx.insert(&table, &Ordered::new(id, &mut rng)));
            session.transact(insert).expect("alone");
            let delete = |tx: &Tx| (base..base + 200).try_for_each(|id| tx.delete_if(&table, &id).map(drop));
            session.transact(delete).expect("alone");
            db.step();
            let peak = &mut peaks[usize::from(round >= 10)];
            *peak = (*peak).max(db.statistics().memory_bytes);
        }
        let [warm, end] = peaks;
        assert!(end <= warm + warm / 20 + SLACK, "{setting}: {warm} bytes in ten rounds, {end} in forty");
    }
}
