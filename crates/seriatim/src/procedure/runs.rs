//! Tests of the runs of operations that a protocol with repairs is informed of.

use seriatim_engine::test_support::protocols::repairing::{NAME, NAMED, SCRIPT};

use crate::{Abort, Database, Tx};

#[derive(seriatim_macros::Table)]
#[table(name = "link", key(id), crate = "seriatim_catalog")]
struct Link {
    id: u32,
    to: u32,
    count: u32,
}

#[crate::procedure]
fn follow(tx: &Tx, ids: &[u32]) -> Result<u32, Abort> {
    let mut sum = 0u32;
    for link in tx.scan::<Link>(..)? {
        let next = tx.require::<Link>(link.to)?;
        sum += next.count;
    }
    for id in ids {
        tx.update::<Link>(*id, |link| link.count += 1)?;
    }
    Ok(sum)
}

#[test]
fn each_call_belongs_to_one_run_of_an_operation() {
    let db = Database::builder().protocol(NAME).workers(1).open().expect("a valid protocol");
    let links = db.create::<Link>().expect("a valid table");
    db.register(crate::procedures![follow]).expect("a sound procedure");
    let mut session = db.session();
    let load = session.transact(|tx| (0..2).try_for_each(|id| tx.insert(&links, &Link { id, to: 1 - id, count: 5 })));
    load.expect("an empty table");
    NAMED.take();
    // The procedure runs once, and then its updates run again.
    SCRIPT.with_borrow_mut(|script| script.push_back(vec![2]));
    assert_eq!(session.call(follow, &vec![1, 0]).expect("no conflict").value, 10);
    // The scan is named before each row, as the body of the loop makes calls of its own.
    let rows = [(0, 0), (0, 0), (1, 0), (0, 0), (1, 1), (0, 0)];
    let updates = [(2, 0), (2, 1)];
    assert_eq!(NAMED.take(), [&rows[..], &updates, &updates].concat());
    assert_eq!(*session.transact(|tx| Ok(tx.require(&links, &0)?.count())).expect("no conflict"), 6);
}
