//! Prefetching is only a hint. Random programs are compared with a map of the standard library. They prefetch rows
//! that they may then read, change, delete, insert or ignore, in another order or twice.

use std::collections::BTreeMap;

use seriatim::catalog::{Table, TableKey};
use seriatim::rng::seed;
use seriatim::{Database, Handle, Rng, Session, Table as Derive, Tx};

use crate::common::each;

const KEYS: u64 = 40;

macro_rules! table {
    ($name:ident, $table:literal, $key:ty, $($organization:ident)?) => {
        #[derive(Derive, Clone, Debug, PartialEq)]
        #[table(name = $table, key(id) $(, $organization)?)]
        struct $name {
            id: $key,
            #[column(immutable)]
            twin: u64,
            value: u64,
        }
    };
}

table!(Hashed, "hashed", u64, hash);
table!(Ordered, "ordered", u64, ordered);

fn program<T: Table<Key = u64>>(
    tx: &Tx,
    table: &Handle<T>,
    rng: &mut Rng,
    model: &mut BTreeMap<u64, u64>,
    make: fn(u64, u64) -> T,
    value_of: for<'t> fn(&T::Row<'t>) -> (u64, u64),
    add: for<'u, 'v> fn(&'v mut T::Update<'u>, u64),
) -> Result<(), seriatim::Abort>
where
    u64: TableKey,
{
    for _ in 0..rng.below(3) {
        let count = rng.below(12);
        let keys: Vec<u64> = (0..count).map(|_| rng.below(KEYS)).collect();
        tx.begin_prefetch(table, keys.iter().copied());
        // There may be too few waves, or too many.
        (0..rng.below(4)).for_each(|_| tx.advance_prefetch());
        for key in keys {
            let key = if rng.below(4) == 0 { rng.below(KEYS) } else { key };
            match rng.below(5) {
                0 => assert_eq!(tx.delete_if(table, &key)?.is_ok(), model.remove(&key).is_some()),
                1 => {
                    let value = rng.below(1000);
                    let inserted = tx.try_insert(table, &make(key, value))?;
                    assert_eq!(inserted, !model.contains_key(&key));
                    model.entry(key).or_insert(value);
                }
                2 => {
                    let by = rng.below(10);
                    let updated = tx.update_if(table, &key, |row| add(row, by))?;
                    assert_eq!(updated.is_ok(), model.contains_key(&key));
                    model.entry(key).and_modify(|value| *value += by);
                }
                _ => {
                    let found = tx.get(table, &key)?.map(|row| value_of(&row));
                    assert_eq!(found, model.get(&key).map(|&value| (!key, value)));
                }
            }
        }
    }
    Ok(())
}

fn run(
    session: &mut Session,
    rng: &mut Rng,
    tables: &(Handle<Hashed>, Handle<Ordered>),
    models: &mut [BTreeMap<u64, u64>; 2],
) {
    let commits = rng.below(4) > 0;
    let (before, drawn) = (models.clone(), rng.clone());
    let result = session.transact(|tx| {
        // The body may run again.
        (*models, *rng) = (before.clone(), drawn.clone());
        let [first, second] = &mut *models;
        let make = |id, value| Hashed { id, twin: !id, value };
        program(
            tx,
            &tables.0,
            rng,
            first,
            make,
            |row| (row.twin(), row.value()),
            |row, by| row.set_value(row.value() + by),
        )?;
        let make = |id, value| Ordered { id, twin: !id, value };
        program(
            tx,
            &tables.1,
            rng,
            second,
            make,
            |row| (row.twin(), row.value()),
            |row, by| row.set_value(row.value() + by),
        )?;
        if commits { Ok(()) } else { Err(tx.abort("rolled back")) }
    });
    assert_eq!(result.is_ok(), commits);
    if !commits {
        *models = before;
    }
}

#[test]
fn prefetched_rows_are_found_or_not_as_they_would_be_without() {
    let seed = seed("prefetched_rows_are_found_or_not_as_they_would_be_without");
    each(|setting| {
        let db: Database = setting.open();
        let tables = (db.create::<Hashed>().expect("a table"), db.create::<Ordered>().expect("a table"));
        let (mut session, mut rng) = (db.session(), Rng::from_seed(seed));
        let mut models = [BTreeMap::new(), BTreeMap::new()];
        for _ in 0..400 {
            run(&mut session, &mut rng, &tables, &mut models);
        }
        let snapshot = session.snapshot(|tx| {
            tx.prefetch(&tables.0, 0..KEYS);
            tx.prefetch(&tables.1, 0..KEYS);
            let mut seen = [BTreeMap::new(), BTreeMap::new()];
            for key in 0..KEYS {
                seen[0].extend(tx.get(&tables.0, &key)?.map(|row| (key, row.value())));
                seen[1].extend(tx.get(&tables.1, &key)?.map(|row| (key, row.value())));
            }
            Ok(seen)
        });
        assert_eq!(snapshot.expect("no conflict").value, models);
    });
}
