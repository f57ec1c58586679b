//! Epochs of commits, as checks of one setting: a commit belongs to the epoch in which it commits, not to that
//! of its begin. Stepped by hand on one thread, so that a stall across epochs is exact.

use seriatim::{Abort, Builder, Database, Handle, Receipt, Tx};

use crate::explore::{BucketCell, Cell};
use crate::{Setting, audit};

/// The write of a transaction of [`belong_to_their_commits`].
type Write = fn(&Tx, &Handle<Cell>, &Handle<BucketCell>) -> Result<(), Abort>;

/// Each kind of write, in a tree, in a hash table, and with a read before it.
const WRITES: [Write; 6] = [
    |tx, cells, _| tx.update_if(cells, &1, |cell| cell.set_value(2)).map(drop),
    |tx, cells, _| tx.insert(cells, &Cell { id: 9, value: 0 }),
    |tx, cells, _| tx.delete_if(cells, &2).map(drop),
    |tx, _, buckets| tx.update_if(buckets, &1, |cell| cell.set_value(2)).map(drop),
    |tx, _, buckets| tx.insert(buckets, &BucketCell { id: 9, value: 0 }),
    |tx, cells, buckets| tx.get(cells, &3).and_then(|_| tx.delete_if(buckets, &2)).map(drop),
];

fn epoch(receipt: Receipt) -> u64 {
    receipt.tid.epoch().0
}

/// A stepped database of this setting, as `configure` wants it.
fn open(setting: &Setting, configure: impl Fn(Builder) -> Builder) -> Database {
    let builder = setting.builder().step_helpers(true).record_history(true).workers(4);
    configure(builder).open().unwrap_or_else(|error| panic!("{setting}: {error}"))
}

/// The epoch now, from a transaction that begins and commits in it.
fn now(db: &Database, cells: &Handle<Cell>) -> u64 {
    epoch(db.session().transact(|tx| tx.put(cells, &Cell { id: 0, value: 0 })).expect("alone").receipt)
}

/// Whatever a transaction writes and whenever epochs pass meanwhile, its TID is of the epoch in which it
/// commits. The database, with the history it recorded.
///
/// # Errors
/// The first commit of another epoch, in words.
pub fn belong_to_their_commits(setting: &Setting, configure: impl Fn(Builder) -> Builder) -> Result<Database, String> {
    let db = open(setting, configure);
    let (cells, buckets) = (db.create::<Cell>().expect("a table"), db.create::<BucketCell>().expect("a table"));
    let load = |tx: &Tx| {
        (1..5).try_for_each(|id| {
            tx.insert(&cells, &Cell { id, value: 1 })?;
            tx.insert(&buckets, &BucketCell { id, value: 1 })
        })
    };
    db.session().transact(load).expect("loading");
    let mut session = db.session();
    for (at, write) in WRITES.into_iter().enumerate() {
        for (before, between) in [(0, 2), (2, 0), (1, 1), (0, 0)] {
            let begun = now(&db, &cells);
            let tx = session.begin().expect("a worker");
            (0..before).for_each(|_| db.step());
            write(&tx, &cells, &buckets).expect("alone");
            (0..between).for_each(|_| db.step());
            // Even a stall across two epochs: nothing ends meanwhile that the TID could be below.
            let current = now(&db, &cells);
            assert_eq!(current, begun + before + between, "{setting}: a step is an epoch");
            if before + between == 0 {
                // A rollback is no commit: it leaves no TID.
                tx.rollback();
                continue;
            }
            let assigned = epoch(tx.commit().expect("alone"));
            if assigned != current {
                return Err(format!(
                    "write {at} was begun in epoch {begun}, committed in {current}, with a TID of {assigned}"
                ));
            }
            let undo = |tx: &Tx| {
                tx.put(&cells, &Cell { id: 2, value: 1 })?;
                tx.put(&buckets, &BucketCell { id: 2, value: 1 })?;
                tx.delete_if(&cells, &9).and_then(|_| tx.delete_if(&buckets, &9)).map(drop)
            };
            db.session().transact(undo).expect("alone");
        }
    }
    Ok(db)
}

/// A transaction that stalls after its begin overwrites what another, which began and committed meanwhile,
/// has read. Nothing but the epoch orders the two; the auditor of [`audit::epochs_follow_dependencies`] looks
/// at it.
///
/// # Errors
/// The auditor's findings.
pub fn follow_what_was_read(setting: &Setting, configure: impl Fn(Builder) -> Builder) -> Result<usize, String> {
    let db = open(setting, configure);
    let cells = db.create::<Cell>().expect("a table");
    db.session().transact(|tx| (1..3).try_for_each(|id| tx.insert(&cells, &Cell { id, value: 1 }))).expect("loading");
    let (mut late, mut early) = (db.session(), db.session());
    let stalled = late.begin().expect("a worker");
    (0..2).for_each(|_| db.step());
    let reads = |tx: &Tx| {
        let value = tx.get(&cells, &1)?.map_or(0, |cell| cell.value());
        tx.update_if(&cells, &2, |cell| cell.set_value(value + 1)).map(drop)
    };
    early.transact(reads).expect("alone");
    stalled.update(&cells, &1, |cell| cell.set_value(5)).expect("alone");
    stalled.commit().expect("nothing it read has changed");
    audit::epochs_follow_dependencies(&db.take_history().expect("the database records"), setting.orders_epochs())
}
