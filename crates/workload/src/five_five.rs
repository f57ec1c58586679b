//! The validator microbenchmark of Ding, Kot and Gehrke ("Improving Optimistic Concurrency Control Through
//! Transaction Batching and Operation Reordering", PVLDB 12(2), 2018, section 5). There are 100 K objects. Each
//! transaction reads five and writes five, drawn by Zipf's law, and one of the objects read is also written.
//!
//! Departure: the paper leaves values undefined. Here the object that is read and written counts its writes by
//! its old value, so that a lost update shows. Every write stores a value that no other transaction writes, so
//! that a lost blind write shows. The other four writes are blind, as in the paper: they set a column and read
//! none. Where the paper is silent: the nine objects differ, and the hottest have the lowest numbers.

use std::convert::Infallible;
use std::sync::Arc;

use crate::contract::{CallMode, Calls};
use crate::ledger::{Count, Ledgers};
use crate::random::Zipfian;
use crate::registry::{self, Entry, Knob, Misuse, Sizes};
use crate::wrapping::wrapping_sum;
use crate::{Ending, LoadError, Loading, Report, Rule, Terminal, Workload, parallel};
use seriatim::procedure::Procedures;
use seriatim::{Abort, Data, Database, Handle, Rng, SchemaError, Table, Tx, procedure, procedures};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "five-five",
    about: "five reads and five writes of objects by skewed keys (the reordering paper's validator microbenchmark)",
    knobs: &[
        Knob { name: "objects", value: "N", default: "100000", about: "rows, 9 to 16777216" },
        Knob { name: "theta", value: "Z", default: "0.9", about: "skew of the objects: 0 is none, below 1" },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    Tables::open(db).ok()?;
    let objects = rows("object");
    let is_possible = (Options::OBJECTS_MIN..=Options::OBJECTS_MAX).contains(&objects);
    is_possible.then(|| Box::new(FiveFive::new(Options { objects, ..Options::default() })) as _)
}

/// The kinds of transaction.
pub const KINDS: [&str; 1] = ["read_write"];

/// The committed transactions of one terminal.
#[derive(Debug)]
#[repr(align(128))]
struct Ledger {
    /// Its place among the ledgers.
    number: usize,
    /// Transactions.
    committed: Count,
    /// The value it last wrote to each object; zero if none.
    last: Box<[Count]>,
}

/// The five-five microbenchmark as a [`Workload`].
pub struct FiveFive {
    options: Options,
    ledgers: Ledgers<Ledger>,
}

impl FiveFive {
    /// The workload with these options.
    ///
    /// # Panics
    /// If there are too few or too many objects, or theta is outside `[0, 1)`.
    pub fn new(options: Options) -> FiveFive {
        assert!((Options::OBJECTS_MIN..=Options::OBJECTS_MAX).contains(&options.objects));
        assert!((0.0..1.0).contains(&options.theta));
        FiveFive { options, ledgers: Ledgers::default() }
    }
}

impl Workload for FiveFive {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn declare(&self, db: &Database) -> Result<(), LoadError> {
        db.create_or_open::<Object>()?;
        db.register(procedures())?;
        Ok(())
    }

    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        self.declare(db)?;
        load_table(db, self.options.objects, loading)
    }

    fn consistency(&self, db: &Database) -> Result<Report, LoadError> {
        check(db, &self.options, Some(&self.ledgers))
    }

    fn audit(&self, db: &Database) -> Result<Report, LoadError> {
        Ok(check(db, &self.options, None)?.asked())
    }

    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError> {
        Tables::open(db)?;
        let last = (0..self.options.objects).map(|_| Count::default()).collect();
        let ledger = self.ledgers.open(|number| Ledger { number, committed: Count::default(), last });
        let rng = Rng::from_seed(seed ^ u64::from(index) << 48);
        let inputs = Inputs::new(rng, &self.options, Values::of_terminal(ledger.number));
        Ok(Box::new(FiveFiveTerminal::new(inputs, ledger)))
    }
}

/// Options of the five-five microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Rows, [`Options::OBJECTS_MIN`] to [`Options::OBJECTS_MAX`].
    pub objects: u64,
    /// Skew of the objects, in `[0, 1)`.
    pub theta: f64,
}

impl Options {
    /// Objects of a transaction.
    pub const OBJECTS_MIN: u64 = 1 + 2 * BLIND as u64;
    /// Most objects: each terminal remembers eight bytes of each.
    pub const OBJECTS_MAX: u64 = 1 << 24;
}

impl Default for Options {
    /// A hundred thousand objects, theta 0.9.
    fn default() -> Self {
        Options { objects: 100_000, theta: 0.9 }
    }
}

/// The five-five microbenchmark from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing.
pub fn open(values: &registry::Values) -> Result<Box<dyn Workload>, Misuse> {
    let objects = values.number("objects", Options::OBJECTS_MIN, Options::OBJECTS_MAX)?;
    let theta = values.number("theta", 0.0, 0.999)?;
    Ok(Box::new(FiveFive::new(Options { objects, theta })))
}

/// An object.
#[derive(Table, Clone, Debug, PartialEq, Eq)]
#[table(name = "object", key(id), hash)]
pub struct Object {
    /// 0, 1, 2, …; the hottest first.
    pub id: u64,
    /// Transactions that read it and then wrote it.
    pub steps: u64,
    /// The value of the last write; zero before the first.
    pub value: u64,
}

/// The tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The objects.
    pub object: Handle<Object>,
}

impl Tables {
    /// Finds the tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables, SchemaError> {
        Ok(Tables { object: db.table()? })
    }
}

/// Creates the table, registers the procedure and fills the table with objects never written.
///
/// # Errors
/// When it exists with another definition or with rows, or an insert fails.
fn load_table(db: &Database, objects: u64, loading: &Loading<'_>) -> Result<(), LoadError> {
    let table = db.table::<Object>()?;
    let make = |_: &mut Rng, id| Object { id, steps: 0, value: 0 };
    parallel::populate(db, loading, (objects, objects), 0, make, |tx, row| tx.insert(&table, row).map(|()| 1))
}

/// Objects that are only read, and as many that are only written.
pub const BLIND: usize = 4;

/// Input of the transaction. All objects differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct ReadWriteInput {
    /// The object read and written.
    pub both: u64,
    /// Objects read.
    pub reads: [u64; BLIND],
    /// Objects written.
    pub writes: [u64; BLIND],
    /// The value to write; unlike that of any other input, and not zero.
    pub value: u64,
}

/// Values that one terminal writes: its number, counting from 1, in the upper bits; in the lower ones 1, 2, 3, ….
#[derive(Clone, Copy, Debug)]
pub struct Values {
    last: u64,
}

impl Values {
    const SEQUENCE_BITS: u32 = 44;

    /// The values of the `number`-th terminal, counting from 0.
    pub fn of_terminal(number: usize) -> Values {
        Values { last: (number as u64 + 1) << Self::SEQUENCE_BITS }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// Generates the inputs of one terminal.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    objects: Zipfian,
    values: Values,
}

impl Inputs {
    /// Inputs that `rng` determines, with these values.
    ///
    /// # Panics
    /// If there are no objects, or theta is outside `[0, 1)`.
    pub fn new(rng: Rng, options: &Options, values: Values) -> Inputs {
        Inputs { rng, objects: Zipfian::new(options.objects, options.theta), values }
    }

    /// The next input.
    pub fn read_write(&mut self) -> ReadWriteInput {
        // Which draws are the reads and which the writes must not depend on the order: later ones are colder,
        // since they differ from the earlier.
        let mut drawn = self.objects.draw_distinct::<{ 1 + 2 * BLIND }>(&mut self.rng);
        self.rng.shuffle(&mut drawn);
        ReadWriteInput {
            both: drawn[0],
            reads: std::array::from_fn(|at| drawn[1 + at]),
            writes: std::array::from_fn(|at| drawn[1 + BLIND + at]),
            value: self.values.next(),
        }
    }
}

/// The one, to be registered.
pub fn procedures() -> Procedures {
    procedures![read_write]
}

/// Reads five objects and writes five, one of them by its old value. Returns the sum of the values read, modulo 2^64.
#[procedure]
pub fn read_write(tx: &Tx, input: &ReadWriteInput) -> Result<u64, Abort> {
    let both = tx.require::<Object>(input.both)?;
    let mut sum = both.value;
    for id in &input.reads {
        let object = tx.require::<Object>(*id)?;
        sum = wrapping_sum(sum, object.value);
    }
    let steps = both.steps + 1;
    tx.update::<Object>(input.both, |object| {
        object.steps = steps;
        object.value = input.value;
    })?;
    for id in &input.writes {
        tx.update::<Object>(*id, |object| object.value = input.value)?;
    }
    Ok(sum)
}

impl Ledger {
    fn committed(&self, input: &ReadWriteInput) {
        self.committed.add(1);
        for id in std::iter::once(&input.both).chain(&input.writes) {
            self.last[*id as usize].set(input.value);
        }
    }
}

/// One terminal.
pub struct FiveFiveTerminal {
    inputs: Inputs,
    ledger: Arc<Ledger>,
}

impl FiveFiveTerminal {
    fn new(inputs: Inputs, ledger: Arc<Ledger>) -> FiveFiveTerminal {
        FiveFiveTerminal { inputs, ledger }
    }
}

impl Calls for FiveFiveTerminal {
    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer {
        let input = self.inputs.read_write();
        W::call(caller, 0, read_write, &input, &self.ledger, move |ledger, result| {
            Ending::after::<Infallible, _>(result, |_| ledger.committed(&input))
        })
    }
}

static STEPS: Rule = Rule { clause: "steps", says: "sum of the objects' step counters = transactions committed" };
static VALUES: Rule = Rule { clause: "values", says: "an object's value = the last that a terminal wrote there" };
static ROWS: Rule = Rule { clause: "rows", says: "objects = objects loaded" };

/// Objects looked at in one transaction.
const PART: u64 = 1 << 16;

/// Checks the table; with ledgers, also against the committed transactions of this workload's terminals. The
/// objects count the transactions, and each holds the last value that some terminal wrote there. The latter
/// requires that a session's own transactions are serialized in the order in which it ran them. It finds a
/// lost blind write: the object then shows a value that is not the last write of any terminal.
///
/// # Errors
/// When the table is missing or a reading transaction fails.
fn check(db: &Database, options: &Options, ledgers: Option<&Ledgers<Ledger>>) -> Result<Report, LoadError> {
    let (tables, mut session) = (Tables::open(db)?, db.session());
    let mut report = Report::new(&[&STEPS, &VALUES, &ROWS]);
    let (mut rows, mut steps) = (0u64, 0u64);
    for from in (0..options.objects).step_by(PART as usize) {
        let found = session.snapshot(|tx| {
            let mut found = Vec::with_capacity(PART as usize);
            for id in from..options.objects.min(from + PART) {
                if let Some(object) = tx.get(&tables.object, &id)? {
                    found.push((id, object.steps(), object.value()));
                }
            }
            Ok(found)
        })?;
        let ledgers = ledgers.map(Ledgers::all);
        for (id, object_steps, value) in found.into_value() {
            (rows, steps) = (rows + 1, steps.wrapping_add(object_steps));
            if let Some(ledgers) = &ledgers {
                report.equal(&VALUES, format_args!("object {id}"), value, last_written(ledgers, id, value));
            }
        }
    }
    if let Some(ledgers) = ledgers {
        report.equal(&STEPS, "the table", steps, ledgers.sum(|ledger| ledger.committed.get()));
    }
    report.equal(&ROWS, "the table", rows, options.objects);
    Ok(report)
}

/// A value that a terminal wrote last to an object: `shown` if it is one; zero if none wrote there.
fn last_written(ledgers: &[Arc<Ledger>], id: u64, shown: u64) -> u64 {
    let lasts = || ledgers.iter().map(|ledger| ledger.last[id as usize].get()).filter(|value| *value != 0);
    lasts().find(|value| *value == shown).or_else(|| lasts().next()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;
    use crate::test_support::{self, Plans};
    use seriatim::procedure::plan;
    use seriatim::{TransactError, available_protocols};

    const SEED: u64 = 55_055;

    fn hot() -> FiveFive {
        FiveFive::new(Options { objects: 50, theta: 0.9 })
    }

    #[test]
    fn a_transaction_writes_five_objects_and_counts_by_what_it_read() {
        let workload = hot();
        let db = test_support::loaded("auto", &workload);
        let (tables, mut session) = (Tables::open(&db).expect("loaded"), db.session());
        let first = ReadWriteInput { both: 7, reads: [0, 1, 2, 3], writes: [10, 11, 12, 13], value: 100 };
        let second = ReadWriteInput { both: 7, reads: [10, 11, 1, 2], writes: [3, 4, 5, 13], value: 1000 };
        let sum =
            |session: &mut seriatim::Session, input| session.call(read_write, input).expect("it commits").into_value();
        assert_eq!(sum(&mut session, &first), 0);
        assert_eq!(sum(&mut session, &second), 300, "what objects 7, 10 and 11 got");
        session
            .snapshot(|tx| {
                for id in 0..50 {
                    let object = tx.get(&tables.object, &id)?.expect("every object").to_owned();
                    let expected = match id {
                        7 => (2, 1000),
                        10..=12 => (0, 100),
                        3..=5 | 13 => (0, 1000),
                        _ => (0, 0),
                    };
                    assert_eq!((object.steps, object.value), expected, "object {id}");
                }
                Ok(())
            })
            .expect("the objects can be read");
    }

    #[test]
    fn an_object_that_is_not_there_fails_the_transaction_wherever_it_is_named() {
        let workload = hot();
        let db = test_support::loaded("auto", &workload);
        let mut session = db.session();
        let good = ReadWriteInput { both: 7, reads: [0, 1, 2, 3], writes: [10, 11, 12, 13], value: 100 };
        for input in [
            ReadWriteInput { both: 50, ..good },
            ReadWriteInput { reads: [0, 1, 2, 50], ..good },
            ReadWriteInput { writes: [10, 11, 12, 50], ..good },
        ] {
            let error = session.call(read_write, &input).expect_err("there is no object 50");
            assert!(matches!(&error, TransactError::MissingRow { table, .. } if table == "object"), "{error}");
        }
        test_support::assert_consistent(&db, &workload);
    }

    #[test]
    fn inputs_draw_nine_objects_by_the_law_and_values_never_twice() {
        let options = Options { objects: 1000, theta: 0.9 };
        let of = |number| Inputs::new(Rng::from_seed(SEED), &options, Values::of_terminal(number));
        let (mut one, mut other) = (of(0), of(1));
        let (mut hottest, mut values) = ([0u32; 3], std::collections::HashSet::new());
        for _ in 0..3000 {
            let input = one.read_write();
            let mut all: Vec<u64> = [input.both].into_iter().chain(input.reads).chain(input.writes).collect();
            all.sort_unstable();
            assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all[8] < 1000, "the objects differ: {all:?}");
            let roles = [input.both == 0, input.reads.contains(&0), input.writes.contains(&0)];
            hottest.iter_mut().zip(roles).for_each(|(count, is_hottest)| *count += u32::from(is_hottest));
            let values_differ = values.insert(input.value) && values.insert(other.read_write().value);
            assert!(values_differ && input.value != 0);
        }
        let all: u32 = hottest.iter().sum();
        // A draw is object 0 with probability 0.095; nine that differ, a little less than nine times as often.
        assert!((1600..2640).contains(&all), "{hottest:?}");
        assert!(hottest[0] * 6 < all && hottest[1].abs_diff(hottest[2]) * 5 < all, "no role is hotter: {hottest:?}");
    }

    #[test]
    fn every_protocol_keeps_counts_and_last_writes_under_contention() {
        for protocol in available_protocols() {
            let workload = hot();
            let db = test_support::loaded(protocol.name, &workload);
            let tallies = test_support::run(&db, &workload, 3, 400, SEED);
            assert_eq!(tallies[0].committed, 1200);
            test_support::assert_consistent(&db, &workload);
        }
    }

    #[test]
    fn the_check_notices_a_lost_update_a_lost_blind_write_and_a_lost_row() {
        let canary = |clauses: &[&str], corrupt: fn(&Tx, &Tables) -> Result<(), Abort>| {
            let workload = hot();
            let db = test_support::loaded("auto", &workload);
            test_support::run(&db, &workload, 1, 200, SEED);
            let tables = Tables::open(&db).expect("loaded");
            test_support::canary(&db, &workload, clauses, |tx| corrupt(tx, &tables));
        };
        canary(&["steps"], |tx, tables| tx.update(&tables.object, &0, |object| object.set_steps(object.steps() - 1)));
        // An older value of the same terminal, and as if never written.
        canary(&["values"], |tx, tables| tx.update(&tables.object, &0, |object| object.set_value(object.value() - 1)));
        canary(&["values"], |tx, tables| tx.update(&tables.object, &0, |object| object.set_value(0)));
        canary(&["steps", "rows"], |tx, tables| tx.delete(&tables.object, &0));
    }

    #[test]
    fn options_out_of_range_are_refused_with_the_valid_range() {
        assert_eq!(test_support::open(&ENTRY, &[("objects", "9"), ("theta", "0")]), Ok(()));
        for (knob, wants) in
            [(("objects", "8"), "from 9"), (("objects", "16777217"), "to 16777216"), (("theta", "1"), "0.999")]
        {
            let misuse = test_support::open(&ENTRY, &[knob]).expect_err("this cannot be");
            assert!(misuse.contains(wants), "{misuse}");
        }
    }

    fn plans() -> Plans {
        Plans::of(&FiveFive::new(Options { objects: 9, theta: 0.0 }))
    }

    /// Five reads, five writes, all keys known (section 5). One object is read and written; the others
    /// written are written blind, so they need nothing that was read. When the object read and written
    /// changes, only its write runs again.
    #[test]
    fn the_plan_of_read_write() {
        expect_file!["five_five/read_write.txt"].assert_eq(&plans().plan("read_write"));
    }

    /// Reads and writes of one table conflict in every order, so they are one piece.
    #[test]
    fn the_default_graph() {
        expect_file!["five_five/the_default_graph.txt"].assert_eq(&plans().chopping(plan::Options::DEFAULT));
    }

    /// No different: it also writes, and adds nothing.
    #[test]
    fn the_optimized_graph() {
        expect_file!["five_five/the_optimized_graph.txt"].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
    }

    #[test]
    fn executions_keep_to_the_plans() {
        test_support::assert_runs_as_planned(&FiveFive::new(Options { objects: 100, theta: 0.5 }));
    }
}
