//! Partitions and coordinators on disk: which directories are refused, what a restart restores, and how an
//! owner behaves when its disk is full or gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use seriatim::procedure::Procedures;
use seriatim::procedure::divided::{Divided, Fragment, pack_all};
use seriatim::{Abort, Builder, Database, Durability, PartitionValue, Table, TransactError, Tx, procedure, procedures};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::panic_text;
use seriatim_participant::{Caller, Deployed, Participant, Refused, Role, begin, coordinator, number_of};
use seriatim_partition::{
    Call, ClientId, CoordinatorId, Decision, FromCoordinator, FromOwner, HoldingOwner, Options, Outcome, OwnerOutput,
    OwnerOutputOf, OwnerRecord, Partition, PartitionId, Scheme, ToOwner, TransactionId,
};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "count", key(id), ordered)]
struct Count {
    id: u32,
    count: u32,
}

#[procedure]
fn add(tx: &Tx, id: u32, amount: u32) -> Result<(), Abort> {
    tx.insert(Count { id, count: amount })?;
    Ok(())
}

#[procedure]
fn count(tx: &Tx, id: u32) -> Result<u32, Abort> {
    let row = tx.require::<Count>(id)?;
    Ok(row.count)
}

const LOCKING: Deployed = Deployed { number: 7, scheme: Scheme::Locking, coordinators: 1 };
const OF: Deployed = Deployed { number: 7, scheme: Scheme::Blocking, coordinators: 1 };

fn divided(disk: &FaultyDisk, partitions: usize, set: Procedures) -> Divided {
    divided_by(disk, Database::builder(), partitions, set)
}

fn divided_by(disk: &FaultyDisk, builder: Builder, partitions: usize, set: Procedures) -> Divided {
    let builder = builder.partitions(partitions).workers(2).step_helpers(true).path("/db");
    let builder = builder.disk(Arc::new(disk.mount())).durability(Durability::Async).segment_bytes(64 << 10);
    let db = builder.log_buffer_bytes(256).checkpoint_bytes(None).open().expect("the disk works");
    db.create_or_open::<Count>().expect("a valid table");
    db.register(set).expect("sound procedures");
    db.divide().expect("they can be divided")
}

fn both() -> Procedures {
    procedures![add, count]
}

fn open(disk: &FaultyDisk, at: u32, partitions: usize, set: Procedures) -> Result<Participant, Refused> {
    open_as(disk, at, partitions, set, OF)
}

fn open_as(
    disk: &FaultyDisk,
    at: u32,
    partitions: usize,
    set: Procedures,
    of: Deployed,
) -> Result<Participant, Refused> {
    let divided = divided(disk, partitions, set);
    let callers = divided.digest();
    Participant::open(divided, PartitionId(at), callers, true, &of)
}

/// The owner of the only partition, in its next incarnation.
fn owner(disk: &FaultyDisk) -> HoldingOwner<Participant> {
    owner_of(disk, OF)
}

fn owner_of(disk: &FaultyDisk, of: Deployed) -> HoldingOwner<Participant> {
    let participant = open_as(disk, 0, 1, both(), of).unwrap_or_else(|refused| panic!("{refused}"));
    HoldingOwner::begin(PartitionId(0), participant, &Options::new(of.scheme), [CoordinatorId(0)])
}

fn begun(partitions: usize) -> FaultyDisk {
    begun_as(partitions, OF)
}

fn begun_as(partitions: usize, of: Deployed) -> FaultyDisk {
    let disk = FaultyDisk::new(3);
    begin(&divided(&disk, partitions, both()), Role::Partition(0), &of).expect("it is new");
    disk
}

fn transaction(number: u64) -> TransactionId {
    TransactionId { client: ClientId(0), number }
}

fn fragment(id: u32, round: Option<u32>) -> Fragment {
    Fragment { procedure: 0, arguments: pack_all(&(id, 1_u32)), round, found: Vec::new() }
}

fn call(number: u64, id: u32) -> ToOwner<Fragment> {
    ToOwner::Call(Call { transaction: transaction(number), work: fragment(id, None), may_abort: true })
}

fn multi(number: u64, id: u32, last: bool) -> ToOwner<Fragment> {
    ToOwner::Coordinator(FromCoordinator::Fragment(seriatim_partition::Fragment {
        transaction: transaction(number),
        coordinator: CoordinatorId(0),
        incarnation: 1,
        round: 0,
        work: Some(fragment(id, Some(0))),
        last,
    }))
}

/// All outputs, once everything is durable.
fn out(owner: &mut HoldingOwner<Participant>) -> Vec<OwnerOutputOf<Participant>> {
    let mut all = Vec::new();
    while owner.is_holding() {
        owner.owner().partition().divided().database().step();
        all.extend(std::iter::from_fn(|| owner.take_output()));
    }
    all
}

fn ids(owner: &HoldingOwner<Participant>) -> Vec<u32> {
    let db = owner.owner().partition().divided().database();
    let counts = db.table::<Count>().expect("it is there");
    let read = db.session().transact(|tx| tx.scan(&counts, ..).map(|row| Ok(row?.id())).collect());
    read.expect("there is no other transaction").value
}

#[test]
fn directories_of_others_are_refused_with_the_reason() {
    let disk = begun(2);
    let refused = |at, partitions, set| match open(&disk, at, partitions, set) {
        Ok(_) => panic!("partition {at} of {partitions} is opened"),
        Err(refused) => refused.to_string(),
    };
    assert_eq!(refused(1, 2, both()), "this database belongs to partition 0, not to partition 1");
    assert_eq!(
        refused(0, 3, both()),
        "this database was divided by 2 partitions and is opened with 3: open it with Builder::partitions(2)"
    );
    for set in [procedures![count, add], procedures![add]] {
        let refused = refused(0, 2, set);
        assert!(refused.contains("other procedures than the caller, or in another order"), "{refused}");
    }
    let caller = Arc::new(Caller::new(divided(&disk, 2, both())));
    let other = coordinator(CoordinatorId(0), &caller, &OF).err().expect("it is a partition's").to_string();
    assert_eq!(other, "this database belongs to partition 0, not to coordinator 0");
    let again = begin(caller.divided(), Role::Partition(0), &OF).expect_err("it is there");
    assert_eq!(again.to_string(), "this database already belongs to partition 0: open it");
    drop(caller);
    assert!(open(&disk, 0, 2, both()).is_ok());
    // A database whose initialization was cut short.
    let disk = FaultyDisk::new(4);
    let found = open(&disk, 0, 2, both()).err().expect("it has not begun").to_string();
    assert!(found.starts_with("this database was not completely initialized for partition 0"), "{found}");
}

#[test]
fn directories_of_other_deployments_schemes_and_functions_are_refused() {
    let disk = begun(2);
    let digest = divided(&disk, 2, both()).digest();
    let refused = |of: Deployed| {
        let opened = Participant::open(divided(&disk, 2, both()), PartitionId(0), digest, true, &of);
        opened.err().expect("it is another's").to_string()
    };
    assert_eq!(
        refused(Deployed { number: 8, ..OF }),
        "this database belongs to partition 0 of another deployment: \
         the directories of a deployment are initialized together"
    );
    let locking = Deployed { scheme: Scheme::Locking, ..OF };
    assert_eq!(refused(locking), "this database was begun under another scheme and is opened under locking");
    assert_eq!(
        refused(Deployed { coordinators: 2, ..OF }),
        "this database was begun with 1 coordinators and is opened with 2"
    );
    // The other schemes keep undecided transactions in the same order.
    let speculation = Deployed { scheme: Scheme::Speculation, ..OF };
    let again = Participant::open(divided(&disk, 2, both()), PartitionId(0), digest, true, &speculation);
    drop(again.unwrap_or_else(|refused| panic!("{refused}")));
    let moved = Database::builder().partition_by(|value, partitions| match value {
        PartitionValue::Integer(number) => (*number as usize + 1) % partitions,
        PartitionValue::Bytes(_) => 0,
    });
    let moved = Participant::open(divided_by(&disk, moved, 2, both()), PartitionId(0), digest, true, &OF);
    assert_eq!(
        moved.err().expect("rows are elsewhere").to_string(),
        "the partition function is not the one with which this database was initialized for partition 0"
    );
    assert_eq!(number_of(&divided(&disk, 2, both()), Role::Partition(0)).expect("it has begun"), 7);
    let disk = FaultyDisk::new(5);
    begin(&divided(&disk, 2, both()), Role::Coordinator(0), &locking).expect("it is new");
    let caller = Arc::new(Caller::new(divided(&disk, 2, both())));
    let other = coordinator(CoordinatorId(0), &caller, &OF).err().expect("it is of locking").to_string();
    assert_eq!(other, "this database was begun under locking and is opened under another scheme");
    let memory = Database::builder().partitions(2).open().expect("in memory");
    memory.create::<Count>().expect("a valid table");
    memory.register(both()).expect("sound procedures");
    let memory = begin(&memory.divide().expect("they can be divided"), Role::Partition(1), &OF);
    assert_eq!(
        memory.expect_err("it keeps nothing").to_string(),
        "partition 1 needs a durable database, and this one is in memory: open it with Builder::path"
    );
}

#[test]
fn nothing_leaves_before_it_is_durable_and_numbers_outlive_their_owner() {
    let disk = begun(1);
    let mut first = owner(&disk);
    out(&mut first);
    first.handle(call(5, 1));
    assert!(first.take_output().is_none() && first.is_holding(), "it is not durable");
    let answered = out(&mut first);
    assert!(matches!(&answered[..], [OwnerOutput::Reply { outcome: Outcome::Committed(_), .. }]), "{answered:?}");
    first.handle(multi(7, 2, true));
    let voted = out(&mut first);
    assert!(
        matches!(&voted[..], [OwnerOutput::Send { message: FromOwner::Response(response), .. }]
            if response.result.is_ok()),
        "{voted:?}"
    );
    let incarnation = first.incarnation();
    drop(first);
    disk.crash();
    let mut second = owner(&disk);
    assert_eq!((second.incarnation(), ids(&second)), (incarnation + 1, vec![1, 2]));
    let said = out(&mut second);
    let [OwnerOutput::Send { message: FromOwner::Recovered { in_doubt, incarnation: new, .. }, .. }] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!((&in_doubt[..], *new), (&[transaction(7)][..], incarnation + 1));
    // Both came before the restart: neither runs again.
    second.handle(multi(7, 3, true));
    second.handle(call(5, 4));
    let said = out(&mut second);
    assert!(matches!(&said[..], [OwnerOutput::Reply { outcome: Outcome::Repeated, .. }]), "{said:?}");
    let decision = Decision { transaction: transaction(7), coordinator: CoordinatorId(0), commit: false };
    second.handle(ToOwner::Coordinator(FromCoordinator::Decision(decision)));
    assert_eq!(ids(&second), [1], "what was in doubt is taken back, by what the restart has left of it");
    second.handle(call(6, 4));
    out(&mut second);
    drop(second);
    disk.crash();
    assert_eq!(ids(&owner(&disk)), [1, 4]);
}

/// Under `locking` a call waits for its locks, and later ones of its client run before it.
#[test]
fn numbers_that_run_in_another_order_leave_the_highest() {
    let disk = begun_as(1, LOCKING);
    let mut first = owner_of(&disk, LOCKING);
    out(&mut first);
    // A transaction that has not voted has row 1, and call 5 waits for it.
    first.handle(multi(1, 1, false));
    first.handle(call(5, 1));
    first.handle(call(6, 2));
    let said = out(&mut first);
    assert!(
        matches!(&said[1..], [OwnerOutput::Reply { transaction: TransactionId { number: 6, .. }, .. }]),
        "{said:?}"
    );
    let decision = Decision { transaction: transaction(1), coordinator: CoordinatorId(0), commit: false };
    first.handle(ToOwner::Coordinator(FromCoordinator::Decision(decision)));
    let said = out(&mut first);
    assert!(matches!(&said[..], [OwnerOutput::Reply { transaction: TransactionId { number: 5, .. }, .. }]), "{said:?}");
    // The same with votes.
    first.handle(multi(10, 3, false));
    first.handle(multi(11, 3, true));
    first.handle(multi(12, 4, true));
    let decision = Decision { transaction: transaction(10), ..decision };
    first.handle(ToOwner::Coordinator(FromCoordinator::Decision(decision)));
    out(&mut first);
    drop(first);
    disk.crash();
    let mut second = owner_of(&disk, LOCKING);
    out(&mut second);
    second.handle(call(6, 5));
    let said = out(&mut second);
    assert!(matches!(&said[..], [OwnerOutput::Reply { outcome: Outcome::Repeated, .. }]), "{said:?}");
    second.handle(multi(12, 6, true));
    assert!(out(&mut second).is_empty() && ids(&second) == [1, 2, 3, 4], "{:?}", ids(&second));
}

/// A vote without work, on top of a transaction that is aborted after a restart: it does not run again, and
/// leaves nothing.
#[test]
fn votes_without_work_that_are_void_leave_nothing() {
    let speculation = Deployed { scheme: Scheme::Speculation, ..OF };
    let disk = begun_as(1, speculation);
    let mut first = owner_of(&disk, speculation);
    first.handle(multi(1, 1, true));
    let ToOwner::Coordinator(FromCoordinator::Fragment(fragment)) = multi(2, 2, true) else { unreachable!() };
    let without_work = seriatim_partition::Fragment { work: None, ..fragment };
    first.handle(ToOwner::Coordinator(FromCoordinator::Fragment(without_work)));
    out(&mut first);
    drop(first);
    disk.crash();
    let mut second = owner_of(&disk, speculation);
    let in_doubt = |said: &[OwnerOutputOf<Participant>]| match said {
        [OwnerOutput::Send { message: FromOwner::Recovered { in_doubt, .. }, .. }] => in_doubt.clone(),
        said => panic!("{said:?}"),
    };
    assert_eq!(in_doubt(&out(&mut second)), [transaction(1), transaction(2)]);
    for number in [1, 2] {
        let decision = Decision { transaction: transaction(number), coordinator: CoordinatorId(0), commit: false };
        second.handle(ToOwner::Coordinator(FromCoordinator::Decision(decision)));
    }
    second.owner().partition().divided().database().flush().expect("the disk works");
    drop(second);
    disk.crash();
    assert_eq!(in_doubt(&out(&mut owner_of(&disk, speculation))), []);
}

/// Why the log takes no writes, if it takes none.
fn refusal(owner: &HoldingOwner<Participant>) -> Option<String> {
    owner.owner().partition().divided().database().statistics().log.and_then(|log| log.refusal)
}

/// Under `locking`, with an undecided transaction that is to be undone while there is no space for that.
#[test]
fn a_full_disk_refuses_calls_and_waiting_transactions_proceed_when_there_is_space() {
    let disk = begun_as(1, LOCKING);
    let mut running = owner_of(&disk, LOCKING);
    out(&mut running);
    running.handle(multi(1, 1, true));
    running.handle(multi(2, 2, false));
    out(&mut running);
    disk.set_capacity(disk.used_bytes() + (32 << 10));
    let (mut id, mut before) = (2, Vec::new());
    while refusal(&running).is_none() {
        id += 1;
        assert!(id < 100_000, "the disk does not get full");
        running.handle(call(id.into(), id));
        running.owner().partition().divided().database().step();
        before.extend(std::iter::from_fn(|| running.take_output()));
    }
    assert!(refusal(&running).is_some_and(|why| why.contains("full")) && before.len() > 5, "{before:?}");
    // A call that writes; the vote of a transaction that has run; an undo, and a call for the same row.
    let full = id + 1;
    running.handle(call(full.into(), full));
    let ToOwner::Coordinator(FromCoordinator::Fragment(fragment)) = multi(2, 0, true) else { unreachable!() };
    let last = seriatim_partition::Fragment { round: 1, work: None, ..fragment };
    running.handle(ToOwner::Coordinator(FromCoordinator::Fragment(last)));
    let decision = Decision { transaction: transaction(1), coordinator: CoordinatorId(0), commit: false };
    running.handle(ToOwner::Coordinator(FromCoordinator::Decision(decision)));
    running.handle(call(u64::from(full) + 1, 1));
    for _ in 0..100 {
        running.owner().partition().divided().database().step();
        assert!(running.take_output().is_none(), "nothing is durable, and nothing leaves");
    }
    disk.set_capacity(u64::MAX);
    let after = out(&mut running);
    let refused = |output: &OwnerOutputOf<Participant>| match output {
        OwnerOutput::Reply { transaction, outcome: Outcome::UserAborted(TransactError::DiskFull { .. }) } => {
            Some(transaction.number)
        }
        _ => None,
    };
    let full = u64::from(full);
    assert!(after.iter().filter_map(refused).eq([full, full + 1]), "{after:?}");
    let voted = |output: &OwnerOutputOf<Participant>| {
        let OwnerOutput::Send { message: FromOwner::Response(response), .. } = output else { return false };
        response.result.is_ok()
    };
    assert_eq!(after.iter().filter(|output| voted(output)).count(), 1, "{after:?}");
    let committed = |output: OwnerOutputOf<Participant>| match output {
        OwnerOutput::Reply { transaction, outcome: Outcome::Committed(_) } => Some(transaction.number as u32),
        _ => None,
    };
    let mut there: Vec<u32> = before.into_iter().chain(after).filter_map(committed).chain([2]).collect();
    there.sort_unstable();
    assert_eq!(ids(&running), there, "what was answered is there, what was in doubt, and nothing else");
    // It was undone, and can be inserted again.
    running.handle(call(full + 2, 1));
    assert!(matches!(&out(&mut running)[..], [OwnerOutput::Reply { outcome: Outcome::Committed(_), .. }]));
    there.insert(0, 1);
    drop(running);
    disk.crash();
    let mut again = owner_of(&disk, LOCKING);
    assert_eq!(ids(&again), there);
    let said = out(&mut again);
    let [OwnerOutput::Send { message: FromOwner::Recovered { in_doubt, .. }, .. }] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(in_doubt[..], [transaction(2)], "its vote was written when there was space");
}

/// A transaction that ran on top of an undecided one has a mark that the full disk did not take. When there is
/// space again, a transaction that leaves no row has its changes in the log. So the mark must be there too, or
/// a restart would undo the transactions below.
#[test]
fn a_fragment_without_a_row_waits_for_the_marks_of_fragments_on_which_it_may_depend() {
    let speculation = Deployed { scheme: Scheme::Speculation, ..OF };
    let disk = begun_as(1, speculation);
    let mut partition = open_as(&disk, 0, 1, both(), speculation).unwrap_or_else(|refused| panic!("{refused}"));
    let step = |partition: &Participant| partition.divided().database().step();
    let log = |partition: &Participant| partition.divided().database().statistics().log.expect("it is on disk");
    let (on_top, first) = (transaction(2), transaction(1));
    let (_, _taken) = partition.execute(on_top, &fragment(2, None)).expect("there is space");
    disk.set_capacity(disk.used_bytes() + (32 << 10));
    let mut id = 2;
    while log(&partition).refusal.is_none() {
        id += 1;
        assert!(id < 100_000, "the disk does not get full");
        let _ = partition.execute_alone(transaction(id), &fragment(id as u32, None), true);
        step(&partition);
    }
    partition.keep(vec![OwnerRecord::Executed { transaction: on_top, work: fragment(2, None), after: Some(first) }]);
    let refused = partition.execute_alone(transaction(id + 1), &fragment(200_001, None), true);
    assert!(matches!(refused, Err(TransactError::DiskFull { .. })), "{refused:?}");
    disk.set_capacity(u64::MAX);
    while log(&partition).refusal.is_some() {
        step(&partition);
    }
    partition.execute_alone(transaction(id + 2), &fragment(200_002, None), true).expect("there is space");
    partition.divided().database().flush().expect("there is space");
    drop(partition);
    disk.crash();
    let again = owner_of(&disk, speculation);
    let ids = ids(&again);
    assert!(ids.contains(&200_002), "it is in the log");
    assert!(ids.contains(&2), "and so is what it may rest on");
}

#[test]
fn a_log_that_has_stopped_ends_the_owner() {
    let disk = begun(1);
    let mut running = owner(&disk);
    out(&mut running);
    running.handle(call(1, 1));
    disk.kill();
    let ended = catch_unwind(AssertUnwindSafe(|| out(&mut running))).expect_err("nothing gets durable any more");
    let said = panic_text(&*ended).unwrap_or_default();
    assert!(said.contains("the log has stopped"), "{said}");
    assert!(ids(&owner(&disk)).is_empty(), "it was not answered");
}
