//! The multi-key microbenchmark of HTCC (Wu and Tan, "Scalable In-Memory Transaction Processing with HTM",
//! USENIX ATC 2016, section 2, figure 1). There is a hash map of a million records, and each transaction updates ten of
//! them, drawn by Zipf's law.
//!
//! Where the paper is silent: the ten records differ, the hottest have the lowest keys, and an update adds to
//! the old value. The paper shows theta 0 and 0.8.

use std::convert::Infallible;
use std::sync::Arc;

use crate::contract::{CallMode, Calls};
use crate::ledger::{Count, Ledgers};
use crate::random::Zipfian;
use crate::registry::{Entry, Knob, Misuse, Sizes, Values};
use crate::wrapping::wrapping_sum;
use crate::{Ending, LoadError, Loading, Report, Rule, Terminal, Workload, parallel};
use seriatim::procedure::Procedures;
use seriatim::{Abort, Data, Database, Handle, Rng, SchemaError, Table, Tx, procedure, procedures};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "multi-key",
    about: "updates of ten records of a hash table by skewed keys (HTCC, figure 1)",
    knobs: &[
        Knob { name: "records", value: "N", default: "1000000", about: "rows, at least 10" },
        Knob { name: "theta", value: "Z", default: "0", about: "skew of the keys: 0 is none, below 1" },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    Tables::open(db).ok()?;
    let records = rows("record");
    (records >= KEYS as u64).then(|| Box::new(MultiKey::new(Options { records, ..Options::default() })) as _)
}

/// The kinds of transaction.
pub const KINDS: [&str; 1] = ["update"];

/// The committed transactions of one terminal.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ledger {
    /// Records updated.
    updates: Count,
    /// The sum of the amounts added, modulo 2^64.
    amounts: Count,
}

/// The multi-key microbenchmark as a [`Workload`].
pub struct MultiKey {
    options: Options,
    ledgers: Ledgers<Ledger>,
}

impl MultiKey {
    /// The workload with these options.
    ///
    /// # Panics
    /// If there are fewer than [`KEYS`] records, or theta is outside `[0, 1)`.
    pub fn new(options: Options) -> MultiKey {
        assert!(options.records >= KEYS as u64 && (0.0..1.0).contains(&options.theta));
        MultiKey { options, ledgers: Default::default() }
    }
}

impl Workload for MultiKey {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn declare(&self, db: &Database) -> Result<(), LoadError> {
        db.create_or_open::<Record>()?;
        db.register(procedures())?;
        Ok(())
    }

    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        self.declare(db)?;
        load_table(db, self.options.records, loading)
    }

    fn consistency(&self, db: &Database) -> Result<Report, LoadError> {
        check(db, &self.options, Some(&self.ledgers))
    }

    fn audit(&self, db: &Database) -> Result<Report, LoadError> {
        Ok(check(db, &self.options, None)?.asked())
    }

    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError> {
        Tables::open(db)?;
        let inputs = Inputs::new(Rng::from_seed(seed ^ u64::from(index) << 48), &self.options);
        let ledger = self.ledgers.open(|_| Ledger::default());
        Ok(Box::new(MultiKeyTerminal::new(inputs, ledger)))
    }
}

/// Options of the multi-key microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Rows, at least [`KEYS`].
    pub records: u64,
    /// Skew of the keys, in `[0, 1)`.
    pub theta: f64,
}

impl Default for Options {
    /// Figure 1a: a million records, no skew.
    fn default() -> Self {
        Options { records: 1_000_000, theta: 0.0 }
    }
}

/// The multi-key microbenchmark from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing.
pub fn open(values: &Values) -> Result<Box<dyn Workload>, Misuse> {
    let records = values.number("records", KEYS as u64, 1 << 40)?;
    let theta = values.number("theta", 0.0, 0.999)?;
    Ok(Box::new(MultiKey::new(Options { records, theta })))
}

/// A record. It counts its updates and has the sum of their amounts, so that a lost or half installed update is
/// noticed.
#[derive(Table, Clone, Debug, PartialEq, Eq)]
#[table(name = "record", key(key), hash)]
pub struct Record {
    /// 0, 1, 2, …; the hottest first.
    pub key: u64,
    /// Updates so far.
    pub updates: u64,
    /// The sum of their amounts, modulo 2^64.
    pub value: u64,
}

/// The tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The records.
    pub record: Handle<Record>,
}

impl Tables {
    /// Finds the tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables, SchemaError> {
        Ok(Tables { record: db.table()? })
    }
}

/// Creates the table, registers the procedure and fills the table with records never updated.
///
/// # Errors
/// When it exists with another definition or with rows, or an insert fails.
fn load_table(db: &Database, records: u64, loading: &Loading<'_>) -> Result<(), LoadError> {
    let table = db.table::<Record>()?;
    let make = |_: &mut Rng, key| Record { key, updates: 0, value: 0 };
    parallel::populate(db, loading, (records, records), 0, make, |tx, row| tx.insert(&table, row).map(|()| 1))
}

/// Records that a transaction updates (figure 1).
pub const KEYS: usize = 10;

/// Input of the update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct UpdateInput {
    /// The records; all differ.
    pub keys: [u64; KEYS],
    /// The amount to add to each.
    pub amount: u64,
}

/// Generates the inputs of one terminal.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    keys: Zipfian,
}

impl Inputs {
    /// Inputs that `rng` determines.
    ///
    /// # Panics
    /// If there are no records, or theta is outside `[0, 1)`.
    pub fn new(rng: Rng, options: &Options) -> Inputs {
        Inputs { rng, keys: Zipfian::new(options.records, options.theta) }
    }

    /// The next input.
    pub fn update(&mut self) -> UpdateInput {
        UpdateInput { keys: self.keys.draw_distinct(&mut self.rng), amount: self.rng.next_u64() }
    }
}

/// The one, to be registered.
pub fn procedures() -> Procedures {
    procedures![update]
}

/// Adds the input's amount to each of its records. Returns the sum of their new values, modulo 2^64.
#[procedure]
pub fn update(tx: &Tx, input: &UpdateInput) -> Result<u64, Abort> {
    let mut sum = 0u64;
    for key in &input.keys {
        let value = tx.update::<Record>(*key, |record| {
            record.value = wrapping_sum(record.value, input.amount);
            record.updates += 1;
            record.value
        })?;
        sum = wrapping_sum(sum, value);
    }
    Ok(sum)
}

/// One terminal.
pub struct MultiKeyTerminal {
    inputs: Inputs,
    ledger: Arc<Ledger>,
}

impl MultiKeyTerminal {
    fn new(inputs: Inputs, ledger: Arc<Ledger>) -> MultiKeyTerminal {
        MultiKeyTerminal { inputs, ledger }
    }
}

impl Calls for MultiKeyTerminal {
    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer {
        let input = self.inputs.update();
        let amounts = input.amount.wrapping_mul(KEYS as u64);
        W::call(caller, 0, update, &input, &self.ledger, move |ledger, result| {
            Ending::after::<Infallible, _>(result, |_| {
                ledger.updates.add(KEYS as u64);
                ledger.amounts.add(amounts);
            })
        })
    }
}

static UPDATES: Rule = Rule { clause: "updates", says: "sum of the records' update counters = updates committed" };
static VALUES: Rule = Rule { clause: "values", says: "sum of the records' values = sum of the amounts committed" };
static ROWS: Rule = Rule { clause: "rows", says: "records = records loaded" };

/// Keys looked at in one transaction.
const PART: u64 = 1 << 16;

/// Checks the table; if there are ledgers, against what the terminals of this workload committed.
///
/// # Errors
/// When the table is missing or a reading transaction fails.
fn check(db: &Database, options: &Options, ledgers: Option<&Ledgers<Ledger>>) -> Result<Report, LoadError> {
    let (tables, mut session) = (Tables::open(db)?, db.session());
    let mut report = Report::new(&[&UPDATES, &VALUES, &ROWS]);
    let (mut rows, mut updates, mut values) = (0u64, 0u64, 0u64);
    for from in (0..options.records).step_by(PART as usize) {
        let found = session.snapshot(|tx| {
            let mut found = (0u64, 0u64, 0u64);
            for key in from..options.records.min(from + PART) {
                let Some(record) = tx.get(&tables.record, &key)? else { continue };
                found = (found.0 + 1, found.1.wrapping_add(record.updates()), found.2.wrapping_add(record.value()));
            }
            Ok(found)
        })?;
        let found = found.into_value();
        (rows, updates, values) = (rows + found.0, updates.wrapping_add(found.1), values.wrapping_add(found.2));
    }
    if let Some(ledgers) = ledgers {
        report.equal(&UPDATES, "the table", updates, ledgers.sum(|ledger| ledger.updates.get()));
        report.equal(&VALUES, "the table", values, ledgers.sum(|ledger| ledger.amounts.get()));
    }
    report.equal(&ROWS, "the table", rows, options.records);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;
    use crate::test_support::{self, Plans};
    use seriatim::procedure::plan;
    use seriatim::{TransactError, available_protocols};

    const SEED: u64 = 10_001;

    fn hot() -> MultiKey {
        MultiKey::new(Options { records: 40, theta: 0.8 })
    }

    #[test]
    fn an_update_adds_to_each_of_its_records_and_to_no_other() {
        let workload = hot();
        let db = test_support::loaded("auto", &workload);
        let (tables, mut session) = (Tables::open(&db).expect("loaded"), db.session());
        let keys = [0, 2, 4, 6, 8, 10, 12, 14, 16, 39];
        let mut sums = Vec::new();
        for amount in [5, u64::MAX] {
            let input = UpdateInput { keys, amount };
            sums.push(session.call(update, &input).expect("it commits").into_value());
        }
        assert_eq!(sums, [50, 40], "amounts wrap");
        session
            .snapshot(|tx| {
                for key in 0..40 {
                    let record = tx.get(&tables.record, &key)?.expect("every record").to_owned();
                    let expected = if keys.contains(&key) { (2, 4) } else { (0, 0) };
                    assert_eq!((record.updates, record.value), expected, "record {key}");
                }
                Ok(())
            })
            .expect("the records can be read");
    }

    #[test]
    fn an_update_of_a_record_that_is_not_there_fails_and_leaves_nothing() {
        let workload = hot();
        let db = test_support::loaded("auto", &workload);
        let mut session = db.session();
        let input = UpdateInput { keys: [0, 1, 2, 3, 4, 5, 6, 7, 8, 40], amount: 1 };
        let error = session.call(update, &input).expect_err("there is no record 40");
        assert!(matches!(&error, TransactError::MissingRow { table, .. } if table == "record"), "{error}");
        test_support::assert_consistent(&db, &workload);
    }

    #[test]
    fn inputs_draw_ten_records_by_the_law() {
        for (theta, hottest) in [(0.0, 2..30), (0.8, 400..660)] {
            let mut inputs = Inputs::new(Rng::from_seed(SEED), &Options { records: 1000, theta });
            let mut seen = [0u32; 1000];
            for _ in 0..1000 {
                let mut keys = inputs.update().keys.map(|key| key as usize);
                keys.iter().for_each(|key| seen[*key] += 1);
                keys.sort_unstable();
                assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "the records differ: {keys:?}");
            }
            // A single draw takes rank 0 with probability 1/zeta: 0.001, or 0.065 at theta 0.8. Ten that
            // differ, a little less than ten times as often.
            assert!(hottest.contains(&seen[0]), "theta {theta}: {}", seen[0]);
        }
    }

    #[test]
    fn every_protocol_keeps_the_sums_under_contention() {
        for protocol in available_protocols() {
            let workload = hot();
            let db = test_support::loaded(protocol.name, &workload);
            let tallies = test_support::run(&db, &workload, 3, 400, SEED);
            assert_eq!(tallies[0].committed, 1200);
            test_support::assert_consistent(&db, &workload);
        }
    }

    #[test]
    fn the_check_notices_a_lost_update_a_torn_record_and_a_lost_row() {
        let canary = |clauses: &[&str], corrupt: fn(&Tx, &Tables) -> Result<(), Abort>| {
            let workload = hot();
            let db = test_support::loaded("auto", &workload);
            test_support::run(&db, &workload, 1, 50, SEED);
            let tables = Tables::open(&db).expect("loaded");
            test_support::canary(&db, &workload, clauses, |tx| corrupt(tx, &tables));
        };
        canary(&["updates"], |tx, tables| {
            tx.update(&tables.record, &0, |record| record.set_updates(record.updates() - 1))
        });
        canary(&["values"], |tx, tables| tx.update(&tables.record, &0, |record| record.set_value(record.value() ^ 1)));
        canary(&["updates", "values", "rows"], |tx, tables| tx.delete(&tables.record, &0));
    }

    #[test]
    fn options_out_of_range_are_refused_with_the_valid_range() {
        assert_eq!(test_support::open(&ENTRY, &[("records", "10"), ("theta", "0.8")]), Ok(()));
        for (knob, wants) in
            [(("records", "9"), "from 10"), (("theta", "1"), "from 0 to 0.999"), (("theta", "x"), "number")]
        {
            let misuse = test_support::open(&ENTRY, &[knob]).expect_err("this cannot be");
            assert!(misuse.contains(wants), "{misuse}");
        }
    }

    fn plans() -> Plans {
        Plans::of(&MultiKey::new(Options { records: 10, theta: 0.0 }))
    }

    /// Ten updates by keys in the arguments (figure 1). Each adds to a sum that wraps, so it reads the value, and adds
    /// to the count blindly.
    #[test]
    fn the_plan_of_update() {
        expect_file!["multi_key/update.txt"].assert_eq(&plans().plan("update"));
    }

    /// One operation, one piece.
    #[test]
    fn the_default_graph() {
        expect_file!["multi_key/the_default_graph.txt"].assert_eq(&plans().chopping(plan::Options::DEFAULT));
    }

    /// The value does not commute, so nothing is deferred.
    #[test]
    fn the_optimized_graph() {
        expect_file!["multi_key/the_optimized_graph.txt"].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
    }

    #[test]
    fn executions_keep_to_the_plans() {
        test_support::assert_runs_as_planned(&MultiKey::new(Options { records: 100, theta: 0.5 }));
    }
}
