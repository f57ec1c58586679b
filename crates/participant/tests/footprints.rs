//! What a participant locks for work whose locks cannot be told.

use seriatim::procedure::divided::Fragment;
use seriatim::{Abort, Database, Table, Tx, procedure, procedures};
use seriatim_participant::Participant;
use seriatim_partition::{LockMode, Partition, PartitionId};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "count", key(id), ordered)]
struct Count {
    id: u32,
    count: u32,
}

#[procedure]
fn count(tx: &Tx, id: u32) -> Result<u32, Abort> {
    let row = tx.require::<Count>(id)?;
    Ok(row.count)
}

#[test]
fn work_whose_arguments_are_none_locks_everything() {
    let db = Database::builder().partitions(1).workers(2).open().expect("a valid number");
    db.create::<Count>().expect("a valid table");
    db.register(procedures![count]).expect("a sound procedure");
    let participant = Participant::new(db.divide().expect("it can be divided"), PartitionId(0), false);
    let locks = |arguments: Vec<u8>| {
        let mut locks = Vec::new();
        participant.footprint(&Fragment { procedure: 0, arguments, round: None, found: Vec::new() }, &mut locks);
        locks
    };
    let none = locks(Vec::new());
    assert_eq!(none.len(), 1, "{none:?}");
    assert_eq!(none[0].1, LockMode::Exclusive);
    // Whoever has arguments shares it.
    let some = locks(vec![7, 0, 0, 0]);
    assert!(some.contains(&(none[0].0.clone(), LockMode::Shared)), "{some:?}");
    assert_eq!(some.len(), 2, "{some:?}");
}
