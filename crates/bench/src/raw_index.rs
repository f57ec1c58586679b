//! The overhead of transactions over their index. The workload is YCSB's 80 % reads and 20 % read-modify-writes
//! of 100-byte values, one operation a transaction, uniform keys, one thread, through the public API. The
//! baseline has the same lookups and in-place changes in the same index without transactions ([`index`],
//! alone), on records of 104 bytes.
//!
//! The workload is from YCSB (Cooper et al., SoCC 2010), with the mix that STO reports.

use std::error::Error;
use std::hint::black_box;

use serde_json::{Value, json};
use seriatim::{Database, Handle, Session};
use seriatim_base::Rng;
use seriatim_catalog::Organization;
use seriatim_htm::HtmMode;

use crate::commands::Pairs;
use crate::index::{self, Options, Way};
use crate::measure::{Length, Quartiles, alternate, rate, until_signal};
use crate::report::Rows;
use crate::row::{Hashed, Ordered, Record, VALUE_BYTES};

/// The percentage of operations that write.
const WRITES: u64 = 20;

/// Draws the next operation: its key, and whether it writes.
#[inline]
fn draw(rng: &mut Rng, keys: u64) -> (u64, bool) {
    (rng.below(keys), rng.percent(WRITES))
}

/// Reads a value: copies it.
#[inline]
fn look(value: &[u8]) {
    let mut copy = [0; VALUE_BYTES];
    copy.copy_from_slice(value);
    black_box(&copy);
}

/// The arm with transactions.
struct Transactions<T> {
    table: Handle<T>,
    session: Session,
    keys: u64,
}

impl<T: Record> Transactions<T> {
    fn load(protocol: &str, keys: u64) -> Result<Transactions<T>, Box<dyn Error>> {
        let db = Database::builder().protocol(protocol).workers(1).open()?;
        let (table, mut session) = (db.create::<T>()?, db.session());
        for first in (0..keys).step_by(1_000) {
            session
                .transact(|tx| (first..keys.min(first + 1_000)).try_for_each(|key| tx.insert(&table, &T::new(key))))?;
        }
        Ok(Transactions { table, session, keys })
    }

    fn run(&mut self, length: Length, seed: u64) -> f64 {
        let (table, session, mut rng) = (&self.table, &mut self.session, Rng::from_seed(seed));
        rate(length, || {
            let (key, writes) = draw(&mut rng, self.keys);
            let done = session.transact(|tx| match writes {
                true => tx.update(table, &key, T::advance),
                false => tx.require(table, &key).map(|row| look(T::value(&row))),
            });
            assert!(done.is_ok(), "alone, every record is there");
        })
    }
}

/// The arm without transactions: one thread changes the index of [`index`] in place.
fn bare(client: &mut index::Client<'_>, keys: u64, length: Length, seed: u64) -> f64 {
    let mut rng = Rng::from_seed(seed);
    rate(length, || match draw(&mut rng, keys) {
        (key, true) => client.change(key),
        (key, false) => client.read(key),
    })
}

/// The loaded index of that arm.
fn load_bare(organization: Organization, records: u64) -> Result<index::Shared, index::Failure> {
    let (reads, inserts, htm) = (100 - WRITES as u32, 0, HtmMode::Auto);
    index::load(Options {
        organization,
        records,
        reads,
        inserts,
        way: Way::SingleThread,
        htm,
        threads: 1,
        seconds: 0.0,
        seed: 0,
    })
}

/// Runs both arms of one organization in pairs. Returns the rates with and without transactions.
fn compare<T: Record>(
    protocol: &str,
    organization: Organization,
    keys: u64,
    pairs: u32,
    length: Length,
    seed: u64,
) -> Result<[Vec<f64>; 2], Box<dyn Error>> {
    let mut transactions = Transactions::<T>::load(protocol, keys)?;
    let shared = load_bare(organization, keys)?;
    let mut client = index::Client::new(&shared)?;
    let mut with = |length, seed| transactions.run(length, seed);
    let mut without = |length, seed| bare(&mut client, keys, length, seed);
    let mut rates = alternate(&mut [&mut with, &mut without], pairs, length, seed);
    Ok([rates.remove(0), rates.remove(0)])
}

/// Measures and prints the results.
pub(crate) fn run(protocol: &str, keys: u64, pairs: &Pairs) -> Result<Value, Box<dyn Error>> {
    let heads = format!("{:8} {:>24} {:>24} {:>24}", "index", "million tx/s", "million bare/s", "ratio");
    let mut rows = Rows::new(pairs.format, &heads)?;
    let &Pairs { pairs, seconds, seed, .. } = pairs;
    let length = Length::Seconds(seconds);
    for organization in until_signal([Organization::Hash, Organization::Ordered]) {
        let (name, compared) = match organization {
            Organization::Hash => ("hash", compare::<Hashed>(protocol, organization, keys, pairs, length, seed)?),
            Organization::Ordered => {
                ("ordered", compare::<Ordered>(protocol, organization, keys, pairs, length, seed)?)
            }
        };
        let [with, without] = &compared;
        let scaled = |by: f64| [with, without].map(|rates| Quartiles::of(rates.iter().map(|rate| rate / by)));
        let (ratio, [with, without], [many, bare]) = (Quartiles::of_ratios(with, without), scaled(1e6), scaled(1.0));
        let row = json!({
            "index": name, "per_second": many.json(), "bare_per_second": bare.json(), "ratio": ratio.json(),
        });
        rows.add(&format!("{name:8} {with:>24.2} {without:>24.2} {ratio:>24.3}"), row)?;
    }
    Ok(rows.json())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::initial;

    fn same<T: Record>(protocol: &str, organization: Organization) {
        const KEYS: u64 = 300;
        let mut transactions = Transactions::<T>::load(protocol, KEYS).expect("memory");
        let shared = load_bare(organization, KEYS).expect("memory");
        let mut client = index::Client::new(&shared).expect("memory");
        for seed in 0..3 {
            assert!(transactions.run(Length::Operations(2_000), seed) > 0.0);
            assert!(bare(&mut client, KEYS, Length::Operations(2_000), seed) > 0.0);
        }
        let Transactions { table, session, .. } = &mut transactions;
        let mut changed = 0;
        for key in 0..KEYS {
            let changes = client.changes(key);
            let with = session.transact(|tx| Ok(tx.get(table, &key)?.map(|row| T::value(&row).to_vec())));
            let wanted = [initial(key)[0].wrapping_add(changes as u8); VALUE_BYTES];
            assert_eq!(with.expect("alone").value.as_deref(), Some(&wanted[..]), "{protocol}, key {key}");
            changed += u64::from(changes > 0);
        }
        assert!(changed > KEYS / 2, "one in five of 6000 operations writes one of {KEYS} keys");
    }

    #[test]
    fn both_arms_do_the_same_work() {
        for protocol in seriatim::available_protocols() {
            same::<Hashed>(protocol.name, Organization::Hash);
            same::<Ordered>(protocol.name, Organization::Ordered);
        }
    }

    #[test]
    fn a_small_comparison_has_a_rate_for_every_pair() {
        let compared =
            compare::<Hashed>("auto", Organization::Hash, 100, 4, Length::Operations(500), 1).expect("memory");
        assert!(compared.iter().all(|rates| rates.len() == 4 && rates.iter().all(|&rate| rate > 0.0)));
    }
}
