//! What a transaction costs over its index: YCSB's 80 % reads and 20 % read-modify-writes of 100-byte values, one operation a
//! transaction, uniform keys, one thread, through the public API; and the same lookups and updates in place in the same
//! [`Index`] without transactions, on records that lie as densely.
//!
//! Source of the shape: YCSB (Cooper et al., SoCC 2010) with the mix that STO reports.

use std::error::Error;
use std::hint::black_box;
use std::ptr::NonNull;

use seriatim::{Database, Handle, Session};
use seriatim_base::Rng;
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
            session.transact(|tx| {
                (first..keys.min(first + 1_000)).try_for_each(|key| tx.insert(&table, &T::new(key)))
            })?;
        }
        Ok(Transactions { table, session, keys })
    }

    fn run(&mut self, length: Length, seed: u64) -> f64 {
        let (table, session, mut rng) = (&self.table, &mut self.session, Rng::from_seed(seed));
        rate(length, || {
            let (key, writes) = draw(&mut rng, self.keys);
            let done = session.transact(|tx| {
                if writes {
                    tx.update(table, &key, |row| {
                        let value = next(T::value(&T::row_of(row)));
                        T::set(row, &value);
                    })
                } else {
                    Ok(tx.get(table, &key)?.map(|row| {
                        let mut copy = [0; VALUE_BYTES];
                        copy.copy_from_slice(T::value(&row));
                        black_box(&copy);
                    }))
                }
            });
            assert!(matches!(done, Ok(ref done) if done.is_some()), "alone, every record is there");
        })
    }
}
