//! Disks that take no writes for a while: which roles get which notices meanwhile, and that all continue when the disks
//! do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_base::thread;
use seriatim_partition::{
    Coordinator, CoordinatorRecord, HoldingCoordinator, Journal, LockMode, Outcome, OwnerRecord, Partition,
    PartitionId, RecoveredState, Scheme, TransactionId,
};

use super::store::{Op, Program, Store, VALUE, Work};
use crate::{Answer, Application, Begin, Ended, Ends, Options, Port, deploy_with};

/// A disk: the number of writes that it allows; more than any number of writes while it works.
#[derive(Clone)]
struct Disk(Arc<AtomicU64>);

impl Disk {
    fn new() -> Disk {
        Disk(Arc::new(AtomicU64::new(u64::MAX)))
    }

    fn fill(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    fn empty(&self) {
        self.0.store(u64::MAX, Ordering::SeqCst);
    }

    fn is_full(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

/// A store or journal on a disk: its writes while the disk is full become durable when it has space.
struct On<S> {
    what: S,
    disk: Disk,
    incarnation: u64,
    given: u64,
    reached: u64,
}

impl<S> On<S> {
    fn new(what: S, disk: &Disk, incarnation: u64) -> On<S> {
        On { what, disk: disk.clone(), incarnation, given: 0, reached: 0 }
    }

    fn give(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    fn reach(&mut self) -> u64 {
        if !self.disk.is_full() {
            self.reached = self.given;
        }
        self.reached
    }
}

impl Partition for On<Store> {
    type Work = Work;
    type Reply = Vec<i64>;
    type Abort = u32;
    type Undo = Vec<(u32, i64)>;
    type Key = u32;

    fn execute(&mut self, id: TransactionId, work: &Work) -> Result<(Vec<i64>, Self::Undo), u32> {
        self.what.execute(id, work)
    }

    fn undo(&mut self, undo: Self::Undo) {
        self.what.undo(undo);
    }

    fn forget(&mut self, _: Self::Undo) {}

    fn keep(&mut self, _: Vec<OwnerRecord<Work>>) -> u64 {
        self.give()
    }

    fn durable(&mut self) -> u64 {
        self.reach()
    }

    fn left(&mut self) -> Option<RecoveredState<On<Store>>> {
        Some(RecoveredState {
            incarnation: self.incarnation,
            unfinished: Vec::new(),
            calls: Vec::new(),
            fragments: Vec::new(),
        })
    }

    fn footprint(&self, work: &Work, locks: &mut Vec<(u32, LockMode)>) {
        self.what.footprint(work, locks);
    }
}

impl Journal for On<()> {
    fn keep(&mut self, _: &CoordinatorRecord) -> u64 {
        self.give()
    }

    fn durable(&mut self) -> u64 {
        self.reach()
    }
}

struct OnDisks;

impl Application for OnDisks {
    type Partition = On<Store>;
    type Procedure = Program;
}

const HOLD: Duration = Duration::from_millis(30);

/// Two partitions, of which the first is on `owner`, and coordinators on `coordinator`, which cannot begin
/// while that is full.
fn run(scheme: Scheme, owner: &Disk, coordinator: &Disk, clients: impl FnOnce(Vec<Port<OnDisks>>)) -> Ends<OnDisks> {
    let options = Options { hold_max: HOLD, ports: 2, outstanding_max: 4, ..Options::new(scheme, 2) };
    let (sound, owner, journal) = (Disk::new(), owner.clone(), coordinator.clone());
    let incarnations = Arc::new(AtomicU64::new(0));
    let next = move || incarnations.fetch_add(1, Ordering::SeqCst) + 1;
    let incarnation = next.clone();
    let make = move |id| {
        let disk = if id == PartitionId(0) { &owner } else { &sound };
        assert!(!disk.is_full(), "there is no space");
        On::new(Store::new(), disk, incarnation())
    };
    let begin: Begin<OnDisks> = Arc::new(move |id| {
        assert!(!journal.is_full(), "there is no space");
        let (incarnation, mut out) = (next(), Vec::new());
        let coordinator = Coordinator::recover(id, incarnation, [], [0, 1].map(PartitionId), &mut out);
        (HoldingCoordinator::of(coordinator, Some(Box::new(On::new((), &journal, incarnation))), out), incarnation)
    });
    let (running, ports) = deploy_with::<OnDisks>(&options, make, Some(begin)).start().expect("threads");
    clients(ports);
    running.join().expect("roles end")
}

fn add(port: &mut Port<OnDisks>, partition: u32, amount: i64) -> Ended<OnDisks> {
    port.call(PartitionId(partition), vec![Op::Add(0, amount)], false).expect("there is room");
    port.receive(None).expect("an answer").ended
}

fn both(port: &mut Port<OnDisks>) -> Ended<OnDisks> {
    port.run(Program::new([0, 1].map(|at| (PartitionId(at), vec![Op::Add(1, 1)])).into())).expect("there is room");
    port.receive(None).expect("an answer").ended
}

/// Repeats a call until it is not lost. A late partition says so again and again, and a call that was sent
/// meanwhile is lost.
fn until_not_lost(mut call: impl FnMut() -> Ended<OnDisks>) -> Ended<OnDisks> {
    (0..100).map(|_| call()).find(|ended| !matches!(ended, Ended::Lost)).unwrap_or(Ended::Lost)
}

/// Repeats a call until it commits.
fn until_committed(mut call: impl FnMut() -> Ended<OnDisks>) -> Vec<i64> {
    loop {
        match call() {
            Ended::Single(Outcome::Committed(seen)) => return seen,
            Ended::Multi(Outcome::Committed(_)) => return Vec::new(),
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn first(port: &mut Port<OnDisks>) -> Vec<i64> {
    until_committed(|| add(port, 0, 0))
}

#[test]
fn an_owner_whose_disk_is_full_reports_it_and_continues_when_there_is_space() {
    for scheme in [Scheme::Blocking, Scheme::Speculation, Scheme::Locking] {
        let (disk, sound) = (Disk::new(), Disk::new());
        let ends = run(scheme, &disk, &sound, |mut ports| {
            let mut port = ports.pop().expect("a port");
            assert_eq!(first(&mut port), [VALUE], "{}", scheme.name());
            disk.fill();
            assert!(matches!(add(&mut port, 0, 1), Ended::Lost), "it is held");
            // New calls are known to have no effect.
            let refused = until_not_lost(|| add(&mut port, 0, 2));
            assert!(matches!(refused, Ended::Single(Outcome::Unavailable(PartitionId(0)))));
            assert!(matches!(both(&mut port), Ended::Multi(Outcome::Unavailable(PartitionId(0)))));
            assert!(matches!(add(&mut port, 1, 4), Ended::Single(Outcome::Committed(_))), "the other goes on");
            disk.empty();
            assert_eq!(first(&mut port), [VALUE + 1], "{}", scheme.name());
            until_committed(|| both(&mut port));
        });
        for end in ends.owners {
            assert!(end.panics.is_empty() && end.owner.expect("it lives").is_idle(), "{:?}", end.panics);
        }
    }
}

#[test]
fn a_coordinator_whose_disk_is_full_reports_it_and_continues_when_there_is_space() {
    for scheme in [Scheme::Blocking, Scheme::Speculation, Scheme::Locking] {
        let (disk, sound) = (Disk::new(), Disk::new());
        let ends = run(scheme, &sound, &disk, |mut ports| {
            let mut port = ports.pop().expect("a port");
            until_committed(|| both(&mut port));
            disk.fill();
            assert!(matches!(both(&mut port), Ended::Lost), "it is held");
            assert!(matches!(both(&mut port), Ended::Lost), "it is late");
            disk.empty();
            until_committed(|| both(&mut port));
            // The held transaction has committed.
            port.call(PartitionId(1), vec![Op::Add(1, 0)], false).expect("there is room");
            let seen = port.receive(None).expect("an answer").ended;
            let Ended::Single(Outcome::Committed(seen)) = seen else { panic!("it commits") };
            assert!(seen[0] >= VALUE + 3, "{}: {seen:?}", scheme.name());
            assert!(port.panics().is_empty());
        });
        assert!(ends.coordinator.is_none_or(|end| end.panics.is_empty() && end.broken.is_empty()));
        assert!(ends.owners.iter().all(|end| end.owner.as_ref().is_some_and(|owner| owner.is_idle())));
    }
}

/// No role waits for a disk when all clients are gone.
#[test]
fn a_late_disk_does_not_delay_the_end() {
    for scheme in [Scheme::Speculation, Scheme::Locking] {
        for fills in [[true, false], [false, true]] {
            let (owner, coordinator) = (Disk::new(), Disk::new());
            let ends = run(scheme, &owner, &coordinator, |mut ports| {
                let mut port = ports.pop().expect("a port");
                until_committed(|| both(&mut port));
                for (disk, _) in [&owner, &coordinator].into_iter().zip(fills).filter(|(_, fills)| *fills) {
                    disk.fill();
                }
                let ended = both(&mut port);
                assert!(matches!(ended, Ended::Lost | Ended::Multi(Outcome::Unavailable(_))));
            });
            assert!(ends.owners.iter().all(|end| end.panics.is_empty()));
        }
    }
}

/// It dies while its disk takes no writes: it is gone until it can begin again.
#[test]
fn a_role_whose_disk_fails_is_gone_until_it_can_begin_again() {
    for scheme in [Scheme::Blocking, Scheme::Speculation, Scheme::Locking] {
        let (owner, coordinator) = (Disk::new(), Disk::new());
        let ends = run(scheme, &owner, &coordinator, |mut ports| {
            let mut port = ports.pop().expect("a port");
            until_committed(|| both(&mut port));
            owner.fill();
            port.call(PartitionId(0), vec![Op::Panic], false).expect("there is room");
            assert!(matches!(port.receive(None), Some(Answer { ended: Ended::Lost, .. })));
            assert!(matches!(add(&mut port, 0, 1), Ended::Single(Outcome::Unavailable(PartitionId(0)))));
            assert!(matches!(both(&mut port), Ended::Multi(Outcome::Unavailable(PartitionId(0)))));
            thread::sleep(Duration::from_millis(50));
            owner.empty();
            // Under `locking` its calls are answered at once until it is notified.
            until_committed(|| both(&mut port));
            assert_eq!(first(&mut port), [VALUE], "{}: this store forgets", scheme.name());
            coordinator.fill();
            let parts = [0, 1].map(|at| (PartitionId(at), vec![Op::Add(1, 0)])).into();
            port.run(Program::that_panics(parts)).expect("there is room");
            assert!(matches!(port.receive(None), Some(Answer { ended: Ended::Lost, .. })));
            assert!(matches!(both(&mut port), Ended::Lost));
            coordinator.empty();
            until_committed(|| both(&mut port));
        });
        let words = ["deliberately", "while it recovered: there is no space"];
        assert_eq!(ends.owners[0].panics, words, "{}: each once", scheme.name());
        let words = ["deliberately, when it is dropped", "coordinator 0 cannot begin: there is no space"];
        if let Some(end) = ends.coordinator {
            assert_eq!(end.panics, words, "{}", scheme.name());
        }
        assert!(ends.owners.iter().all(|end| end.owner.as_ref().is_some_and(|owner| owner.is_idle())));
    }
}
