//! The list of deleted records that a worker still has to unlink may name a record that another worker has
//! unlinked since. Its key was inserted and deleted again. In a binary of its own, for it ends in a crash where it does
//! not hold.

use std::time::Duration;

use seriatim::rng::seed;
use seriatim::{Session, Table, Text, thread};
use seriatim_suite::matrix;

/// So wide that its record is a mapping of its own, gone from the address space once freed.
#[derive(Table, Clone)]
#[table(name = "wide", key(id))]
struct Wide {
    id: u32,
    text: Text<60000>,
}

/// Keeps workers busy without mappings of its own.
#[derive(Table, Clone)]
#[table(name = "small", key(id))]
struct Small {
    id: u32,
}

#[test]
fn a_record_that_another_worker_unlinked_is_not_touched() {
    for setting in matrix(seed("stale list of tombstones")) {
        let db = setting.builder().workers(2).epoch_interval(Duration::from_millis(1)).open().expect("a database");
        let wides = db.create::<Wide>().expect("a table");
        let smalls = db.create::<Small>().expect("a table");
        let wide = |id| Wide { id, text: Text::default() };
        let (mut idling, mut working) = (db.session(), db.session());
        let busy = |session: &mut Session, id: u32| {
            for round in 0..60 {
                session.transact(|tx| tx.put(&smalls, &Small { id })).expect("alone");
                if round % 20 == 0 {
                    thread::sleep(Duration::from_millis(3));
                }
            }
        };
        working.transact(|tx| tx.insert(&wides, &wide(1))).expect("alone");
        idling.transact(|tx| tx.delete(&wides, &1)).expect("alone");
        working.transact(|tx| tx.insert(&wides, &wide(1))).expect("alone");
        working.transact(|tx| tx.delete(&wides, &1)).expect("alone");
        busy(&mut working, 2);
        eprintln!("{setting}: the idle worker wakes");
        busy(&mut idling, 3);
        db.check_structure().unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    }
}
