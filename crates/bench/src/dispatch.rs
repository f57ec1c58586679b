//! The cost of dispatch: one read transaction in three forms on equal tables. The first is a session's closure,
//! as users write it. The second is the worker behind `dyn Worker`, which the session uses. The third is the
//! protocol's own worker type, which the compiler can inline. The second and third differ by the indirect
//! calls. The first and second differ by the session: lease, unwinding guard, counters.

use std::error::Error;
use std::hint::black_box;

use serde_json::{Value, json};
use seriatim::{Database, Handle, Session};
use seriatim_base::{Rng, TableId, talk};
use seriatim_catalog::{ColumnSet, Key, NoOutOfLine, RowRef, RowWriter, TableKey};
use seriatim_engine::for_each_protocol;
use seriatim_htm::{Budget, Htm, HtmMode};
use seriatim_memory::{Memory, Options};
use seriatim_txn::{
    Environment, Inserted, Mode, NoRedo, OnExists, OpError, Outcome, Priority, Protocol, Table, Worker,
};

use crate::commands::Pairs;
use crate::measure::{Length, Quartiles, alternate, rate, until_signal};
use crate::report::Rows;
use crate::row::{Hashed, Record};

/// A number that depends on a row's value.
#[inline]
fn look(value: &[u8]) -> u64 {
    value.iter().map(|&byte| u64::from(byte)).sum()
}

/// A protocol without a database: its worker, and one table that only this thread uses.
struct Direct<P: Protocol> {
    worker: P::Worker,
    // Boxed, since a table must not move while its worker lives.
    table: Box<Table>,
    _protocol: P,
    _environment: Environment,
}

/// The error of a worker without concurrency, which is a bug.
fn stopped(error: OpError) -> String {
    format!("a transaction stopped without a conflict: {error:?}")
}

impl<P: Protocol> Direct<P> {
    fn load(keys: u64) -> Result<Direct<P>, Box<dyn Error>> {
        let memory = Memory::new(Options { workers_max: 1, ..Options::default() })?;
        let environment = Environment::new(Htm::new(HtmMode::Auto)?, memory, Budget::default());
        let protocol = P::open(&seriatim_txn::Options::default(), &environment);
        let mut core = environment.core().ok_or("no worker is left")?;
        let definition = <Hashed as seriatim::catalog::Table>::definition();
        core.local.enter();
        let table = Table::new(TableId(0), &definition, None, P::HEADER_BYTES, P::VERSION_HEADER_BYTES, &mut core);
        core.local.leave();
        let table = Box::new(table?);
        let mut direct =
            Direct { worker: protocol.worker(core), table, _protocol: protocol, _environment: environment };
        (0..keys).try_for_each(|key| direct.insert(key))?;
        Ok(direct)
    }

    fn insert(&mut self, key: u64) -> Result<(), Box<dyn Error>> {
        let (worker, table) = (&mut self.worker, &*self.table);
        worker.begin(Mode::ReadWrite, Priority::NONE);
        let staged = worker.stage(table).map_err(stopped)?;
        let mut out_of_line_values = NoOutOfLine;
        // SAFETY: a staged row is private, zeroed, and of the table's layout.
        let mut writer =
            unsafe { RowWriter::for_insert(staged.row.as_ptr(), staged.fixed.as_ptr(), &mut out_of_line_values) };
        seriatim::catalog::Table::encode(&Hashed::new(key), &mut writer)?;
        let inserted = key.encode(|key| worker.insert(table, key, staged, OnExists::Refuse)).map_err(stopped)?;
        assert_eq!(inserted, Inserted::New, "keys are distinct");
        match worker.commit(&mut NoRedo).map_err(stopped)? {
            Outcome::Committed(_) => Ok(()),
            outcome => Err(format!("an insert ended with {outcome:?}").into()),
        }
    }
}

/// Runs the transaction on a worker, of its own type or `dyn`.
#[inline]
fn read<W: Worker + ?Sized>(worker: &mut W, table: &Table, key: Key<'_>) -> u64 {
    worker.begin(Mode::ReadWrite, Priority::NONE);
    let Ok(Some(row)) = worker.read(table, key, ColumnSet::ALL) else { panic!("alone, every record is there") };
    // SAFETY: a row of this table, readable until the commit.
    let row = unsafe { RowRef::from_raw(row.as_ptr()) };
    let value = look(Hashed::value(&<Hashed as seriatim::catalog::Table>::row(row)));
    let committed = worker.commit(&mut NoRedo);
    assert!(matches!(committed, Ok(Outcome::Committed(_))), "alone, a read commits");
    worker.collect_garbage(64);
    value
}

fn run_worker<W: Worker + ?Sized>(worker: &mut W, table: &Table, keys: u64, length: Length, seed: u64) -> (f64, u64) {
    let (mut rng, mut sum) = (Rng::from_seed(seed), 0u64);
    let rate = rate(length, || sum = sum.wrapping_add(read(worker, table, Key::Word8(rng.below(keys)))));
    (rate, black_box(sum))
}

fn run_session(session: &mut Session, table: &Handle<Hashed>, keys: u64, length: Length, seed: u64) -> (f64, u64) {
    let (mut rng, mut sum) = (Rng::from_seed(seed), 0u64);
    let rate = rate(length, || {
        let key = rng.below(keys);
        let value = session.transact(|tx| Ok(tx.get(table, &key)?.map(|row| look(Hashed::value(&row)))));
        let Ok(Some(value)) = value.map(seriatim::Committed::into_value) else {
            panic!("without other transactions, every record exists")
        };
        sum = sum.wrapping_add(value);
    });
    (rate, black_box(sum))
}

/// The results for one protocol: session, `dyn Worker`, worker.
struct Compared {
    /// Transactions per second, for each round.
    rates: [Vec<f64>; 3],
    /// The values that were read, which are the same in each arm.
    #[cfg_attr(not(test), allow(dead_code, reason = "for tests"))]
    sums: [u64; 3],
}

/// Compares the arms of one protocol. The arguments are its name, records, rounds, length, and seed.
type Compare = fn(&str, u64, u32, Length, u64) -> Result<Compared, Box<dyn Error>>;

/// The three arms of one protocol.
fn compare<P: Protocol>(
    name: &str,
    keys: u64,
    rounds: u32,
    length: Length,
    seed: u64,
) -> Result<Compared, Box<dyn Error>> {
    let db = Database::builder().protocol(name).workers(1).open()?;
    let (handle, mut session) = (db.create::<Hashed>()?, db.session());
    session.transact(|tx| (0..keys).try_for_each(|key| tx.insert(&handle, &Hashed::new(key))))?;
    let (mut indirect, mut direct) = (Direct::<P>::load(keys)?, Direct::<P>::load(keys)?);
    let mut sums = [0; 3];
    let [through_session, through_dyn, through_type] = &mut sums;
    let mut first = |length, seed| {
        let (rate, sum) = run_session(&mut session, &handle, keys, length, seed);
        *through_session += sum;
        rate
    };
    let worker: &mut dyn Worker = black_box(&mut indirect.worker);
    let mut second = |length, seed| {
        let (rate, sum) = run_worker(worker, &indirect.table, keys, length, seed);
        *through_dyn += sum;
        rate
    };
    let mut third = |length, seed| {
        let (rate, sum) = run_worker(&mut direct.worker, &direct.table, keys, length, seed);
        *through_type += sum;
        rate
    };
    let mut rates = alternate(&mut [&mut first, &mut second, &mut third], rounds, length, seed);
    Ok(Compared { rates: [rates.remove(0), rates.remove(0), rates.remove(0)], sums })
}

/// Runs `$body` for each protocol of the registry, with its name and type.
macro_rules! comparisons {
    ($($protocol:ident => $type:path,)*) => {
        /// The functions that compare the arms of each protocol.
        const COMPARISONS: &[(&str, Compare)] =
            &[$((<$type as seriatim_txn::Protocol>::INFO.name, compare::<$type>),)*];
    };
}
for_each_protocol!(comparisons);

/// Whether the protocol can run on this machine.
fn opens(name: &str) -> bool {
    seriatim::available_protocols().iter().any(|protocol| protocol.name == name)
}

/// Measures and prints the results.
pub(crate) fn run(keys: u64, pairs: &Pairs) -> Result<Value, Box<dyn Error>> {
    let what =
        "nanoseconds a transaction, and what calls through `dyn Worker` and the session add to the worker's type";
    let arms = format!("{:8} {:>22} {:>22} {:>22}", "protocol", "session", "dyn worker", "worker");
    let mut rows = Rows::new(pairs.format, &format!("{what}\n{arms} {:>10} {:>10}", "dyn", "session"))?;
    for (name, compare) in until_signal(COMPARISONS) {
        if !opens(name) {
            talk!("{name} needs regions, and the processor has none");
            continue;
        }
        let Compared { rates, .. } = compare(name, keys, pairs.pairs, Length::Seconds(pairs.seconds), pairs.seed)?;
        let [session, indirect, direct] =
            rates.map(|rates| rates.into_iter().map(|rate| 1e9 / rate).collect::<Vec<_>>());
        let added = |arm: &[f64]| Quartiles::of(arm.iter().zip(&direct).map(|(arm, direct)| arm - direct)).median;
        let (by_dyn, by_session) = (added(&indirect), added(&session));
        let [session, indirect, direct] = [&session, &indirect, &direct].map(|arm| Quartiles::of(arm.iter().copied()));
        let line =
            format!("{name:8} {session:>22.1} {indirect:>22.1} {direct:>22.1} {by_dyn:>+10.1} {by_session:>+10.1}");
        let row = json!({
            "protocol": name, "session_ns": session.json(), "dyn_worker_ns": indirect.json(),
            "worker_ns": direct.json(), "dyn_adds_ns": by_dyn, "session_adds_ns": by_session,
        });
        rows.add(&line, row)?;
    }
    Ok(rows.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_reads_the_same_under_every_protocol() {
        assert_eq!(COMPARISONS.len(), seriatim::protocols().len());
        for ((name, compare), protocol) in COMPARISONS.iter().zip(seriatim::protocols()) {
            assert_eq!(*name, protocol.name);
            if !opens(name) {
                continue;
            }
            let Compared { rates, sums } = compare(name, 200, 2, Length::Operations(1_500), 3).expect("memory");
            assert!(rates.iter().all(|rates| rates.len() == 2 && rates.iter().all(|&rate| rate > 0.0)));
            assert!(sums[0] > 0 && sums.iter().all(|&sum| sum == sums[0]), "{name}: {sums:?}");
        }
    }
}
