//! What a transaction costs over its index: YCSB's 80 % reads and 20 % read-modify-writes of 100-byte values, one operation a
//! transaction, uniform keys, one thread, through the public API; and the same lookups and updates in place in the same
//! [`Index`] without transactions, on records that lie as densely.
//!
//! Source of the shape: YCSB (Cooper et al., SoCC 2010) with the mix that STO reports.

use std::error::Error;
use std::hint::black_box;
use std::ptr::NonNull;

use seriatim::{Database, Handle, Session};
use seriatim_base::{Rng, say, talk};
use seriatim_catalog::{Key, KeyClass, Organization};
use seriatim_htm::{Agent, Budget, Htm, HtmMode, Outside};
use seriatim_memory::{Local, Memory, Options};
use seriatim_store::{Index, Inserted, RecordPtr, StoreCx, Unobserved, key_bytes, write_key};

use crate::measure::{Length, Quartiles, alternate, rate};
use crate::row::{Hashed, Ordered, Record, VALUE_BYTES, initial, next};

/// Percent of operations that write.
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

/// The arm without: records `key word | value`, changed in place by the one thread there is.
struct Bare {
    index: Index,
    keys: u64,
    local: Local,
    _agent: Agent,
    _outside: Outside,
}

impl Bare {
    fn load(organization: Organization, keys: u64) -> Result<Bare, Box<dyn Error>> {
        let memory = Memory::new(Options { workers_max: 1, ..Options::default() })?;
        let htm = Htm::new(HtmMode::Auto)?;
        let mut local = memory.register().ok_or("no worker is left")?;
        let mut agent = htm.agent(local.worker(), Budget::default());
        let mut outside = Outside::claim();
        local.enter();
        let mut cx = StoreCx { local: &mut local, agent: &mut agent, outside: &mut outside };
        let index = Index::new(organization, KeyClass::Word8, 0, &htm, &mut cx)?;
        let head = key_bytes(KeyClass::Word8);
        for key in 0..keys {
            let memory = cx.local.allocate(cx.outside, head + VALUE_BYTES)?;
            // SAFETY: fresh memory with room for key word and value, aligned for both, never released.
            let record = unsafe {
                memory.add(head).cast::<[u8; VALUE_BYTES]>().write(initial(key));
                RecordPtr::from_raw(memory)
            };
            // SAFETY: as above; nobody else knows the record.
            unsafe { write_key(record, Key::Word8(key), None) };
            let inserted = index.insert(&mut cx, Key::Word8(key), record, &mut Unobserved)?;
            assert_eq!(inserted, Inserted::Linked, "keys are distinct");
        }
        Ok(Bare { index, keys, local, _agent: agent, _outside: outside })
    }

    /// The value of a key.
    #[inline]
    fn value(&self, key: u64) -> NonNull<[u8; VALUE_BYTES]> {
        let Ok(record) = self.index.get(Key::Word8(key), self.local.pinned()) else { panic!("every key is linked") };
        // SAFETY: the value lies behind the key word, inside the record.
        unsafe { NonNull::new_unchecked(record.as_ptr().add(key_bytes(KeyClass::Word8))).cast() }
    }

    fn run(&mut self, length: Length, seed: u64) -> f64 {
        let mut rng = Rng::from_seed(seed);
        rate(length, || {
            let (key, writes) = draw(&mut rng, self.keys);
            let mut value = self.value(key);
            // SAFETY: `self` is borrowed mutably and no other reference to the value lives.
            let value = unsafe { value.as_mut() };
            match writes {
                true => *value = next(value),
                false => look(value),
            }
        })
    }
}

/// Both arms of one organization, in pairs: rates with transactions and without.
fn compare<T: Record>(
    protocol: &str,
    organization: Organization,
    keys: u64,
    pairs: u32,
    length: Length,
    seed: u64,
) -> Result<[Vec<f64>; 2], Box<dyn Error>> {
    let mut transactions = Transactions::<T>::load(protocol, keys)?;
    let mut bare = Bare::load(organization, keys)?;
    let mut with = |length, seed| transactions.run(length, seed);
    let mut without = |length, seed| bare.run(length, seed);
    let mut rates = alternate(&mut [&mut with, &mut without], pairs, length, seed);
    Ok([rates.remove(0), rates.remove(0)])
}

/// Measures and prints.
pub(crate) fn run(protocol: &str, keys: u64, pairs: u32, length: Length, seed: u64) -> Result<(), Box<dyn Error>> {
    talk!("{keys} records, {pairs} pairs, 1 thread, protocol {protocol}, seed {seed}");
    say!("{:8} {:>24} {:>24} {:>24}\n", "index", "million tx/s", "million bare/s", "ratio")?;
    for organization in [Organization::Hash, Organization::Ordered] {
        let (name, compared) = match organization {
            Organization::Hash => ("hash", compare::<Hashed>(protocol, organization, keys, pairs, length, seed)?),
            Organization::Ordered => {
                ("ordered", compare::<Ordered>(protocol, organization, keys, pairs, length, seed)?)
            }
        };
        let [with, without] = &compared;
        let millions = |rates: &[f64]| Quartiles::of(rates.iter().map(|rate| rate / 1e6));
        let (ratio, with, without) = (Quartiles::of_ratios(with, without), millions(with), millions(without));
        say!("{name:8} {with:>24.2} {without:>24.2} {ratio:>24.3}\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same<T: Record>(protocol: &str, organization: Organization) {
        const KEYS: u64 = 300;
        let mut transactions = Transactions::<T>::load(protocol, KEYS).expect("memory");
        let mut bare = Bare::load(organization, KEYS).expect("memory");
        for seed in 0..3 {
            assert!(transactions.run(Length::Operations(2_000), seed) > 0.0);
            assert!(bare.run(Length::Operations(2_000), seed) > 0.0);
        }
        let Transactions { table, session, .. } = &mut transactions;
        let mut changed = 0;
        for key in 0..KEYS {
            // SAFETY: nothing writes meanwhile.
            let without = unsafe { *bare.value(key).as_ref() };
            let with = session.transact(|tx| Ok(tx.get(table, &key)?.map(|row| T::value(&row).to_vec())));
            assert_eq!(with.expect("alone").value.as_deref(), Some(&without[..]), "{protocol}, key {key}");
            changed += u64::from(without != initial(key));
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
