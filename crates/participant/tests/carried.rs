//! Partitions and coordinators on disks, carried by threads. Disks get full or lose their power under owners,
//! coordinators and clients that coordinate themselves. Answered transactions must exist and none may be there
//! in part, also for the next process.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use seriatim::procedure::divided::{Call, Divided};
use seriatim::{Abort, Database, Durability, Table, TransactError, Tx, procedure, procedures};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::thread;
use seriatim_participant::{Caller, Deployed, Participant, Program, Role, begin, coordinator, highest, single};
use seriatim_partition::{Outcome, PartitionId, Scheme};
use seriatim_transport::{Application, Begin, Ended, Ends, Options, Port, Running, deploy_with};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "mark", key(id), ordered)]
struct Mark {
    id: u32,
}

#[procedure]
fn mark(tx: &Tx, id: u32) -> Result<(), Abort> {
    tx.insert(Mark { id })?;
    Ok(())
}

/// Leaves a mark at one partition, and at another.
#[procedure]
fn mark_both(tx: &Tx, one: u32, other: u32) -> Result<(), Abort> {
    tx.insert(Mark { id: one })?;
    tx.insert(Mark { id: other })?;
    Ok(())
}

struct Marks;

impl Application for Marks {
    type Partition = Participant;
    type Procedure = Program;
}

const PARTITIONS: u32 = 2;
const PORTS: u32 = 2;

/// The procedures in a database on this disk, or in memory.
fn divided(disk: Option<&FaultyDisk>) -> Result<Divided, String> {
    let builder = Database::builder().partitions(PARTITIONS as usize).workers(3);
    let builder = match disk {
        None => builder.step_helpers(true),
        Some(disk) => builder
            .path("/db")
            .disk(Arc::new(disk.mount()))
            .durability(Durability::Async)
            .segment_bytes(16 << 10)
            .log_buffer_bytes(256)
            .checkpoint_bytes(None),
    };
    let db = builder.open().map_err(|error| error.to_string())?;
    db.create_or_open::<Mark>().map_err(|error| error.to_string())?;
    db.register(procedures![mark, mark_both]).expect("sound procedures");
    Ok(db.divide().expect("they can be divided"))
}

/// Disks of a deployment, which outlive processes.
struct Disks {
    of: Deployed,
    partitions: Vec<FaultyDisk>,
    coordinators: Vec<FaultyDisk>,
    caller: Arc<Caller>,
    /// The next pair of marks.
    next: u32,
    /// Pairs that were answered as committed, and all that were called.
    committed: BTreeSet<u32>,
    asked: BTreeSet<u32>,
}

impl Disks {
    fn new(scheme: Scheme) -> Disks {
        let coordinators = if scheme.needs_one_coordinator() { 1 } else { PORTS };
        let of = Deployed { number: 5, scheme, coordinators };
        let begun = |role: Role| {
            let disk = FaultyDisk::new(1);
            begin(&divided(Some(&disk)).expect("the disk works"), role, &of).expect("it is new");
            disk
        };
        let partitions = (0..PARTITIONS).map(|id| begun(Role::Partition(id))).collect();
        let coordinators = (0..coordinators).map(|id| begun(Role::Coordinator(id))).collect();
        let caller = Arc::new(Caller::new(divided(None).expect("in memory")));
        Disks { of, partitions, coordinators, caller, next: 0, committed: BTreeSet::new(), asked: BTreeSet::new() }
    }

    /// Starts another process.
    fn start(&self, hold_max: Duration) -> (Running<Marks>, Vec<Port<Marks>>) {
        let partitions = (0..).map(Role::Partition).zip(&self.partitions);
        let coordinators = (0..).map(Role::Coordinator).zip(&self.coordinators);
        let above = |(role, disk)| {
            highest(&divided(Some(disk)).expect("the disk works"), role, &self.of).expect("it has begun")
        };
        let numbers_above = partitions.chain(coordinators).map(above).max().unwrap_or_default();
        let of = self.of;
        let options = Options {
            ports: PORTS,
            outstanding_max: 4,
            hold_max,
            numbers_above,
            lock_wait_ticks_max: 20,
            ..Options::new(of.scheme, PARTITIONS)
        };
        let (partitions, coordinators) = (self.partitions.clone(), self.coordinators.clone());
        let callers = self.caller.divided().digest();
        let make = move |id: PartitionId| {
            let divided = divided(Some(&partitions[id.0 as usize])).unwrap_or_else(|what| panic!("{what}"));
            Participant::open(divided, id, callers, false, &of).unwrap_or_else(|refused| panic!("{refused}"))
        };
        let begin: Begin<Marks> = Arc::new(move |id| {
            let divided = divided(Some(&coordinators[id.0 as usize])).unwrap_or_else(|what| panic!("{what}"));
            coordinator(id, &Arc::new(Caller::new(divided)), &of).unwrap_or_else(|refused| panic!("{refused}"))
        });
        deploy_with::<Marks>(&options, make, Some(begin)).start().expect("threads")
    }

    /// Calls the next pair of marks.
    fn ask(&mut self, port: &mut Port<Marks>) -> u32 {
        let pair = self.next;
        self.next += 1;
        self.asked.insert(pair);
        let call = self.caller.divided().call(mark_both, &(2 * pair, 2 * pair + 1)).expect("its partitions are told");
        assert!(single(&call).is_none(), "they are at two partitions");
        port.run(Program::new(Arc::clone(&self.caller), call)).expect("there is room");
        pair
    }

    /// Calls a pair, and returns its end.
    fn pair(&mut self, port: &mut Port<Marks>) -> Ended<Marks> {
        let pair = self.ask(port);
        let ended = port.receive(None).expect("an answer").ended;
        if let Ended::Multi(Outcome::Committed(_)) = ended {
            self.committed.insert(pair);
        }
        ended
    }

    /// Calls pairs until one commits.
    fn until_committed(&mut self, port: &mut Port<Marks>) {
        loop {
            match self.pair(port) {
                Ended::Multi(Outcome::Committed(_)) => return,
                Ended::Multi(
                    Outcome::UserAborted(TransactError::DiskFull { .. } | TransactError::DiskBehind { .. })
                    | Outcome::Unavailable(_)
                    | Outcome::Conflict(_),
                )
                | Ended::Lost => thread::sleep(Duration::from_millis(2)),
                Ended::Multi(other) => panic!("{other:?}"),
                Ended::Single(other) => panic!("{other:?}"),
            }
        }
    }

    /// Calls pairs until one is lost.
    fn until_lost(&mut self, port: &mut Port<Marks>) {
        for _ in 0..20_000 {
            if let Ended::Lost = self.pair(port) {
                return;
            }
        }
        panic!("all are answered");
    }

    /// Checks the state that a process has left.
    fn check(&self, ends: Ends<Marks>) {
        let mut there = BTreeSet::new();
        for end in &ends.owners {
            let owner = end.owner.as_ref().unwrap_or_else(|| panic!("a partition is gone: {:?}", end.panics));
            assert!(owner.is_idle(), "something is under way at partition {}", end.id);
            let db = owner.partition().divided().database();
            let marks = db.table::<Mark>().expect("it is there");
            let ids = db
                .session()
                .transact(|tx| tx.scan(&marks, ..).map(|row| Ok(row?.id())).collect::<Result<Vec<_>, Abort>>());
            there.extend(ids.expect("there is no other transaction").value);
        }
        for pair in &self.asked {
            let has = [2 * pair, 2 * pair + 1].map(|id| there.contains(&id));
            assert_eq!(has[0], has[1], "half of {pair} is there");
            assert!(has[0] || !self.committed.contains(pair), "{pair} was answered, and is lost");
        }
        assert!(ends.coordinator.as_ref().is_none_or(|end| end.broken.is_empty()));
    }

    /// Starts another process, which runs a few calls, and checks what it leaves.
    fn check_in_the_next_process(&mut self) {
        let (running, mut ports) = self.start(Duration::from_secs(60));
        ports.iter_mut().for_each(|port| self.until_committed(port));
        drop(ports);
        self.check(running.join().expect("roles end"));
    }
}

/// Counts these panics, which must all say that a disk has failed, or that a role could not begin on a slow
/// one.
fn are_of_disks<'p>(panics: impl IntoIterator<Item = &'p String>) -> usize {
    let words = ["the log has stopped", "the power is off", "the disk of", "the disk is behind"];
    let of = |said: &String| assert!(words.iter().any(|words| said.contains(words)), "{said}");
    panics.into_iter().map(of).count()
}

const SCHEMES: [Scheme; 3] = [Scheme::Blocking, Scheme::Speculation, Scheme::Locking];

/// How long outputs wait for disks here.
const HOLD: Duration = Duration::from_millis(200);

#[test]
fn a_coordinator_whose_disk_is_full_continues_when_there_is_space() {
    for scheme in SCHEMES {
        let mut disks = Disks::new(scheme);
        let (running, mut ports) = disks.start(HOLD);
        disks.until_committed(&mut ports[0]);
        let disk = disks.coordinators[0].clone();
        disk.set_capacity(disk.used_bytes());
        disks.until_lost(&mut ports[0]);
        disk.set_capacity(u64::MAX);
        disks.until_committed(&mut ports[0]);
        assert!(ports[0].panics().is_empty());
        drop(ports);
        let ends = running.join().expect("roles end");
        assert!(ends.owners.iter().all(|end| end.panics.is_empty()));
        assert!(ends.coordinator.as_ref().is_none_or(|end| end.panics.is_empty()));
        disks.check(ends);
        disks.check_in_the_next_process();
    }
}

#[test]
fn an_owner_whose_disk_is_full_continues_when_there_is_space() {
    for scheme in SCHEMES {
        let mut disks = Disks::new(scheme);
        let (running, mut ports) = disks.start(HOLD);
        disks.until_committed(&mut ports[0]);
        let disk = disks.partitions[1].clone();
        disk.set_capacity(disk.used_bytes());
        let refused = (0..2000).any(|_| !matches!(disks.pair(&mut ports[0]), Ended::Multi(Outcome::Committed(_))));
        assert!(refused, "the disk gets full");
        // The other owner continues, though it is also late if its thread does not run for a while.
        let mut goes_on = |id: u32| {
            let call: Call = disks.caller.divided().call(mark, &id).expect("its partition is told");
            let (at, work) = single(&call).expect("it is at one partition");
            assert_eq!(at, PartitionId(0));
            ports[1].call(at, work, true).expect("there is room");
            let answer = ports[1].receive(None).expect("an answer").ended;
            matches!(answer, Ended::Single(Outcome::Committed(_)))
        };
        assert!((0..20).any(|tried| goes_on(1_000_000 + 2 * tried)), "the other one stands still");
        disk.set_capacity(u64::MAX);
        disks.until_committed(&mut ports[0]);
        drop(ports);
        let ends = running.join().expect("roles end");
        assert!(ends.owners.iter().all(|end| end.panics.is_empty()));
        disks.check(ends);
        disks.check_in_the_next_process();
    }
}

/// Under `locking`: its decision was neither sent nor durable. The next process finds no commit of it.
#[test]
fn a_client_that_dies_with_a_commit_that_is_held_leaves_nothing_in_part() {
    let mut disks = Disks::new(Scheme::Locking);
    let (running, mut ports) = disks.start(HOLD);
    let mut port = ports.remove(0);
    disks.until_committed(&mut port);
    let disk = disks.coordinators[0].clone();
    disk.set_capacity(disk.used_bytes());
    disks.until_lost(&mut port);
    let unwinds = catch_unwind(AssertUnwindSafe(move || {
        let _port = port;
        panic!("deliberately");
    }));
    assert!(unwinds.is_err());
    drop(ports);
    running.join().expect("roles end");
    disk.set_capacity(u64::MAX);
    disks.check_in_the_next_process();
}

/// Each of them, and all at once: a power cut loses the memory of an owner or coordinator, which continues at
/// once from its disk. So does the next process.
#[test]
fn owners_and_coordinators_whose_power_is_cut_continue_from_their_disks() {
    for scheme in SCHEMES {
        let mut disks = Disks::new(scheme);
        let (running, mut ports) = disks.start(Duration::from_secs(60));
        let all: Vec<FaultyDisk> = disks.partitions.iter().chain(&disks.coordinators).cloned().collect();
        for cut in all.iter().map(std::slice::from_ref).chain([&all[..], &all[..]]) {
            ports.iter_mut().for_each(|port| disks.until_committed(port));
            // A transaction is under way at each.
            for port in &mut ports {
                disks.ask(port);
                port.flush();
            }
            cut.iter().for_each(FaultyDisk::crash);
            ports.iter_mut().for_each(|port| drop(port.receive(None)));
        }
        ports.iter_mut().for_each(|port| disks.until_committed(port));
        let of_ports: usize = ports.iter().map(|port| are_of_disks(port.panics())).sum();
        drop(ports);
        let ends = running.join().expect("roles end");
        let of_owners: Vec<usize> = ends.owners.iter().map(|end| are_of_disks(&end.panics)).collect();
        assert!(of_owners.iter().all(|panics| *panics >= 2), "{}: {of_owners:?}", scheme.name());
        let of_coordinator = ends.coordinator.as_ref().map_or(of_ports, |end| are_of_disks(&end.panics));
        assert!(of_coordinator >= 2, "{}: {of_coordinator}", scheme.name());
        disks.check(ends);
        disks.check_in_the_next_process();
    }
}
