//! Owners and coordinators that can die. In memory their records are in a list. Others have databases on disks of their
//! own, whose power is cut.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use seriatim::catalog::Value;
use seriatim::procedure::divided::Fragment;
use seriatim::{Abort, Database, Rng};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::panic_text;
use seriatim_participant::{Caller, Deployed, Participant, Program, Refused, Role, begin, coordinator};
use seriatim_partition::{
    Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorOutputOf, CoordinatorRecord, HoldingCoordinator,
    HoldingOwner, Kept, MessageOf, Options, Owner, OwnerOutput, OwnerOutputOf, OwnerRecord, PartitionId, ToOwner,
};

use crate::bank::{divided, divided_on, partition, partitions};

/// Counts of events at nodes, and of the states that restarted nodes found.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventCounts(BTreeMap<&'static str, usize>);

impl EventCounts {
    pub(crate) fn note(&mut self, what: &'static str, count: usize) {
        *self.0.entry(what).or_default() += count;
    }

    pub(crate) fn add(&mut self, other: &EventCounts) {
        other.0.iter().for_each(|(what, count)| self.note(what, *count));
    }

    pub(crate) fn of(&self, what: &str) -> usize {
        self.0.get(what).copied().unwrap_or_default()
    }
}

/// A node: its messages, its outputs and its durable state.
pub(crate) trait Node {
    type Message;
    type Output;
    /// Its settings, the same in each incarnation.
    type Setup;

    fn begin(setup: Self::Setup, rng: &mut Rng) -> Self;
    /// Handles a message; `false`: it died while it did.
    fn tell(&mut self, message: Self::Message) -> bool;
    fn has_output(&self) -> bool;
    /// The next output that leaves, if one does; `Err`: it has died.
    fn put_out(&mut self) -> Result<Option<Self::Output>, ()>;
    /// Dies, perhaps several times while it recovers, and restarts. Returns its last incarnation that has
    /// ended.
    fn die(&mut self, rng: &mut Rng) -> u64;
    /// Will be killed at one of its next disk operations; `false`: it has none.
    fn hit(&mut self, _: &mut Rng) -> bool {
        false
    }
    /// Takes a checkpoint, if it is on disk; `false`: it died while it did.
    fn checkpoint(&mut self) -> bool {
        true
    }
    /// Its disk is full, or has space again.
    fn set_full(&mut self, _: bool) {}
    fn found(&self) -> EventCounts {
        EventCounts::default()
    }
    fn is_idle(&self) -> bool;
}

/// A node whose records others keep.
pub(crate) trait Recover: Sized {
    type Message;
    type Output;
    type Setup;
    type Record: Clone;

    fn begin(setup: &Self::Setup) -> Self;
    /// Its next incarnation.
    fn recover(setup: &Self::Setup, incarnation: u64, records: &[Self::Record], out: &mut Vec<Self::Output>) -> Self;
    fn tell(&mut self, message: Self::Message, out: &mut Vec<Self::Output>);
    /// A record, and how it is kept; `Err`: another output.
    fn record(output: Self::Output) -> Result<(Kept, Self::Record), Self::Output>;
    fn is_idle(&self) -> bool;
}

/// A node in memory, its pending outputs, and its records.
pub(crate) struct InMemory<M: Recover> {
    role: M,
    setup: M::Setup,
    out: VecDeque<M::Output>,
    log: Vec<M::Record>,
    /// Records at the end of the log that may be lost.
    volatile: usize,
    incarnation: u64,
}

impl<M: Recover> InMemory<M> {
    fn recovered(&self, out: &mut Vec<M::Output>) -> M {
        M::recover(&self.setup, self.incarnation, &self.log, out)
    }
}

impl<M: Recover> Node for InMemory<M> {
    type Message = M::Message;
    type Output = M::Output;
    type Setup = M::Setup;

    fn begin(setup: M::Setup, _: &mut Rng) -> Self {
        let role = M::begin(&setup);
        InMemory { role, setup, out: VecDeque::new(), log: Vec::new(), volatile: 0, incarnation: 0 }
    }

    fn tell(&mut self, message: M::Message) -> bool {
        let mut out = Vec::new();
        self.role.tell(message, &mut out);
        self.out.extend(out);
        true
    }

    fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    fn put_out(&mut self) -> Result<Option<M::Output>, ()> {
        match self.out.pop_front().map(M::record) {
            Some(Ok((kept, record))) => {
                self.log.push(record);
                self.volatile = if kept == Kept::Forced { 0 } else { self.volatile + 1 };
                Ok(None)
            }
            output => Ok(output.and_then(Result::err)),
        }
    }

    /// Its pending outputs are lost, and perhaps also records that were not durable.
    fn die(&mut self, rng: &mut Rng) -> u64 {
        let lost = rng.below(self.volatile as u64 + 1) as usize;
        self.log.truncate(self.log.len() - lost);
        (self.volatile, self.incarnation) = (0, self.incarnation + 1);
        let mut out = Vec::new();
        self.role = self.recovered(&mut out);
        self.out = out.into();
        self.incarnation - 1
    }

    fn is_idle(&self) -> bool {
        self.role.is_idle()
    }
}

/// The settings of an owner.
#[derive(Clone)]
pub(crate) struct OwnerSetup {
    pub(crate) id: u32,
    pub(crate) whole: Database,
    pub(crate) options: Options,
    pub(crate) coordinators: u32,
}

/// The settings of a coordinator.
#[derive(Clone)]
pub(crate) struct CoordinatorSetup {
    pub(crate) id: u32,
    pub(crate) of: Deployed,
}

/// A node that is an owner.
pub(crate) trait OwnerNode:
    Node<Message = ToOwner<Fragment>, Output = OwnerOutputOf<Participant>, Setup = OwnerSetup>
{
    fn owner(&self) -> &Owner<Participant>;
    /// Passes an owner that is restored from the state of this one, which is idle.
    fn look_again(&mut self, look: impl FnOnce(&Owner<Participant>));
}

impl Recover for Owner<Participant> {
    type Message = ToOwner<Fragment>;
    type Output = OwnerOutputOf<Participant>;
    type Setup = OwnerSetup;
    type Record = OwnerRecord<Fragment>;

    fn begin(setup: &OwnerSetup) -> Self {
        Owner::new(PartitionId(setup.id), partition(&setup.whole, setup.id), &setup.options)
    }

    fn recover(setup: &OwnerSetup, incarnation: u64, records: &[Self::Record], out: &mut Vec<Self::Output>) -> Self {
        let OwnerSetup { id, whole, options, coordinators } = setup;
        let (fresh, records) = (partition(whole, *id), records.iter().cloned());
        let coordinators = (0..*coordinators).map(CoordinatorId);
        Owner::recover(PartitionId(*id), incarnation, fresh, options, records, coordinators, out)
    }

    fn tell(&mut self, message: Self::Message, out: &mut Vec<Self::Output>) {
        self.handle(message, out);
    }

    fn record(output: Self::Output) -> Result<(Kept, Self::Record), Self::Output> {
        if let OwnerOutput::Keep(kept, record) = output { Ok((kept, record)) } else { Err(output) }
    }

    fn is_idle(&self) -> bool {
        Owner::is_idle(self)
    }
}

impl OwnerNode for InMemory<Owner<Participant>> {
    fn owner(&self) -> &Owner<Participant> {
        &self.role
    }

    fn look_again(&mut self, look: impl FnOnce(&Owner<Participant>)) {
        look(&self.recovered(&mut Vec::new()));
    }
}

impl Recover for Coordinator<Program> {
    type Message = MessageOf<Program>;
    type Output = CoordinatorOutputOf<Program>;
    type Setup = CoordinatorSetup;
    type Record = CoordinatorRecord;

    fn begin(setup: &CoordinatorSetup) -> Self {
        Coordinator::new(CoordinatorId(setup.id), partitions())
    }

    fn recover(
        setup: &CoordinatorSetup,
        incarnation: u64,
        records: &[Self::Record],
        out: &mut Vec<Self::Output>,
    ) -> Self {
        Coordinator::recover(CoordinatorId(setup.id), incarnation, records.iter().cloned(), partitions(), out)
    }

    fn tell(&mut self, message: Self::Message, out: &mut Vec<Self::Output>) {
        self.handle(message, out);
    }

    fn record(output: Self::Output) -> Result<(Kept, Self::Record), Self::Output> {
        if let CoordinatorOutput::Keep(kept, record) = output { Ok((kept, record)) } else { Err(output) }
    }

    fn is_idle(&self) -> bool {
        Coordinator::is_idle(self)
    }
}

/// A node with a database on a disk. It knows what the database holds.
pub(crate) struct OnDisk<M, S> {
    disk: FaultyDisk,
    /// `None` while it is dead.
    role: Option<M>,
    setup: S,
    found: EventCounts,
    /// Whether its initialization is complete, and whether it was tried.
    has_begun: bool,
    was_tried: bool,
}

/// The outcome of opening a node.
pub(crate) enum Opened<M> {
    Running(M),
    /// The disk has failed.
    Dead,
    /// It is not initialized, or not completely.
    Unfinished,
}

/// The outcome for a database that was refused for a reason that a cut explains.
fn refused<M>(refused: Refused) -> Opened<M> {
    match refused {
        Refused::Unfinished(_) => Opened::Unfinished,
        Refused::Database(_) | Refused::Schema(_) => Opened::Dead,
        other => panic!("{other}"),
    }
}

/// Whether a panic says that the disk has failed, and nothing else.
fn is_of_the_disk(panic: &(dyn Any + Send)) -> bool {
    panic_text(panic).is_some_and(|said| said.contains("the log has stopped"))
}

/// A node that opens from a disk.
pub(crate) trait Open: Sized {
    type Message;
    type Output;
    type Setup;

    /// Opens it, and notes what it finds.
    fn open(disk: &FaultyDisk, setup: &Self::Setup, found: &mut EventCounts) -> Opened<Self>;
    /// Initializes it on an empty disk; `None` if that fails.
    fn create(disk: &FaultyDisk, setup: &Self::Setup) -> Option<()>;
    fn incarnation(&self) -> u64;
    fn database(&self) -> &Database;
    fn tell(&mut self, message: Self::Message);
    fn next(&mut self) -> Option<Self::Output>;
    fn is_holding(&self) -> bool;
    fn is_idle(&self) -> bool;
}

impl<M: Open> OnDisk<M, M::Setup> {
    fn role(&mut self) -> &mut M {
        self.role.as_mut().expect("it lives")
    }

    /// Runs `act`; `None`: the disk was dead, which may have caused a panic.
    fn attempt<R>(&mut self, act: impl FnOnce(&mut M) -> R) -> Option<R> {
        // Each mount is for one incarnation.
        let done = catch_unwind(AssertUnwindSafe(|| act(self.role())));
        match done {
            Err(panic) if !self.is_dead() || !is_of_the_disk(&*panic) => resume_unwind(panic),
            Ok(done) if !self.is_dead() => Some(done),
            _ => None,
        }
    }

    /// Whether the power was cut, or the process killed, since it was opened.
    fn is_dead(&mut self) -> bool {
        let refusal = self.role().database().statistics().log.and_then(|log| log.refusal);
        !self.disk.is_powered() || refusal.is_some_and(|refusal| refusal.contains("has stopped"))
    }

    /// It will be killed at one of the next `operations` of the disk.
    fn kill_within(&mut self, operations: u64, rng: &mut Rng) {
        let at = 1 + rng.below(operations);
        if rng.below(2) == 0 { self.disk.crash_at(at) } else { self.disk.kill_at(at) }
    }

    fn open(&mut self) -> Option<M> {
        let opened = match M::open(&self.disk, &self.setup, &mut self.found) {
            Opened::Unfinished => {
                assert!(!self.has_begun, "what had begun is gone");
                M::create(&self.disk, &self.setup)?;
                M::open(&self.disk, &self.setup, &mut self.found)
            }
            opened => opened,
        };
        match opened {
            Opened::Running(role) => Some(role),
            Opened::Dead => None,
            Opened::Unfinished => panic!("what has begun is gone"),
        }
    }

    /// Opens it, however often it is killed while it does.
    fn revive(&mut self, rng: &mut Rng) {
        self.role = None;
        self.disk.reboot();
        self.set_full(false);
        for attempt in 0.. {
            assert!(attempt < 100, "it does not open");
            if !self.has_begun && self.was_tried {
                // An incomplete initialization is repeated.
                let left = M::open(&self.disk, &self.setup, &mut self.found);
                if let Opened::Unfinished = left {
                    self.found.note("beginnings that were cut short", 1);
                    self.disk = FaultyDisk::new(rng.next_u64());
                }
            }
            if rng.below(3) == 0 {
                self.kill_within(if self.has_begun { 60 } else { 150 }, rng);
            }
            self.role = self.open();
            (self.has_begun, self.was_tried) = (self.has_begun || self.role.is_some(), true);
            self.disk.reboot();
            if self.role.is_some() {
                return;
            }
        }
    }
}

impl<M: Open> Node for OnDisk<M, M::Setup> {
    type Message = M::Message;
    type Output = M::Output;
    type Setup = M::Setup;

    fn begin(setup: M::Setup, rng: &mut Rng) -> Self {
        let disk = FaultyDisk::new(rng.next_u64());
        let (has_begun, was_tried) = (false, false);
        let mut node = OnDisk { disk, role: None, setup, found: EventCounts::default(), has_begun, was_tried };
        node.revive(rng);
        node
    }

    fn tell(&mut self, message: M::Message) -> bool {
        self.attempt(|role| role.tell(message)).is_some()
    }

    fn has_output(&self) -> bool {
        self.role.as_ref().is_some_and(Open::is_holding)
    }

    /// A step towards the next output, which may have to wait.
    fn put_out(&mut self) -> Result<Option<Self::Output>, ()> {
        let put_out = self.attempt(|role| {
            let next = role.next();
            if next.is_none() {
                role.database().step();
            }
            next
        });
        put_out.ok_or(())
    }

    fn die(&mut self, rng: &mut Rng) -> u64 {
        let (ended, held) = (self.role().incarnation(), self.role().is_holding());
        self.found.note("deaths of who held outputs", held.into());
        if self.disk.is_powered() {
            if rng.below(2) == 0 {
                self.disk.power_off()
            } else {
                self.disk.kill()
            };
        }
        self.revive(rng);
        // Incarnations that began and ended meanwhile have sent nothing.
        self.role().incarnation().max(ended + 1) - 1
    }

    fn hit(&mut self, rng: &mut Rng) -> bool {
        self.kill_within(12, rng);
        true
    }

    fn checkpoint(&mut self) -> bool {
        self.attempt(|role| drop(role.database().checkpoint())).is_some()
    }

    fn set_full(&mut self, full: bool) {
        self.disk.set_capacity(if full { self.disk.used_bytes() } else { u64::MAX });
    }

    fn found(&self) -> EventCounts {
        self.found.clone()
    }

    fn is_idle(&self) -> bool {
        self.role.as_ref().is_some_and(Open::is_idle)
    }
}

type DurableOwner = HoldingOwner<Participant>;

/// The rows of a table of the durable state; none if there is no such table, or the disk fails.
fn stored_rows(database: &Database, table: &str) -> Vec<Vec<Value>> {
    let Ok(table) = database.open_dyn(&format!("partition books: {table}")) else { return Vec::new() };
    let read = database
        .session()
        .transact(|tx| tx.scan_dyn(&table, &[])?.map(|row| Ok(row?.values())).collect::<Result<Vec<_>, Abort>>());
    read.map(|read| read.value).unwrap_or_default()
}

/// Notes which undecided fragments an owner finds.
fn note_undecided(database: &Database, found: &mut EventCounts) {
    // By transaction and whether a fragment is all of it: the number of fragments, and whether it has voted.
    let mut all: BTreeMap<(String, String, bool), (usize, bool)> = BTreeMap::new();
    for row in stored_rows(database, "undecided") {
        let [_, _, client, number, Value::Bool(alone), Value::Bool(voted), _, Value::Text(what)] = &row[..] else {
            panic!("{row:?}")
        };
        let (fragments, has_voted) = all.entry((client.to_string(), number.to_string(), *alone)).or_default();
        *fragments += 1;
        *has_voted |= voted;
        found.note("undecided changes of what every partition has", what.contains("latest").into());
    }
    let count = |of: &dyn Fn(bool, usize, bool) -> bool| {
        all.iter().filter(|((_, _, alone), (fragments, voted))| of(*alone, *fragments, *voted)).count()
    };
    let votes = count(&|alone, _, voted| !alone && voted);
    found.note("votes in doubt", votes);
    found.note("votes beside votes", usize::from(votes > 1));
    found.note("votes after two rounds", count(&|alone, fragments, voted| !alone && voted && fragments > 1));
    found.note("fragments without a vote", count(&|_, _, voted| !voted));
    found.note("speculated calls", count(&|alone, _, voted| alone && voted));
}

impl OwnerSetup {
    fn of(&self) -> Deployed {
        Deployed { number: 7, scheme: self.options.scheme, coordinators: self.coordinators }
    }
}

impl Open for DurableOwner {
    type Message = ToOwner<Fragment>;
    type Output = OwnerOutputOf<Participant>;
    type Setup = OwnerSetup;

    fn open(disk: &FaultyDisk, setup: &OwnerSetup, found: &mut EventCounts) -> Opened<DurableOwner> {
        let (id, callers) = (PartitionId(setup.id), divided().digest());
        let Some(divided) = divided_on(disk) else { return Opened::Dead };
        note_undecided(divided.database(), found);
        let mut participant = match Participant::open(divided, id, callers, true, &setup.of()) {
            Ok(participant) => participant,
            Err(error) => return refused(error),
        };
        // Epochs also end in the middle of a message.
        participant.set_step_interval(5);
        let coordinators = (0..setup.coordinators).map(CoordinatorId);
        let begin = || HoldingOwner::begin(id, participant, &setup.options, coordinators);
        match catch_unwind(AssertUnwindSafe(begin)) {
            Ok(owner) => Opened::Running(owner),
            Err(panic) if is_of_the_disk(&*panic) => Opened::Dead,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn create(disk: &FaultyDisk, setup: &OwnerSetup) -> Option<()> {
        let divided = divided_on(disk)?;
        divided.fill(&setup.whole, setup.id as usize).ok()?;
        begin(&divided, Role::Partition(setup.id), &setup.of()).ok()
    }

    fn incarnation(&self) -> u64 {
        HoldingOwner::incarnation(self)
    }

    fn database(&self) -> &Database {
        self.owner().partition().divided().database()
    }

    fn tell(&mut self, message: ToOwner<Fragment>) {
        self.handle(message);
    }

    fn next(&mut self) -> Option<Self::Output> {
        self.take_output()
    }

    fn is_holding(&self) -> bool {
        HoldingOwner::is_holding(self)
    }

    fn is_idle(&self) -> bool {
        self.owner().is_idle()
    }
}

impl OwnerNode for OnDisk<DurableOwner, OwnerSetup> {
    fn owner(&self) -> &Owner<Participant> {
        self.role.as_ref().expect("it lives").owner()
    }

    /// The durable state of an idle owner is its rows, without fragments that could be undone.
    fn look_again(&mut self, look: impl FnOnce(&Owner<Participant>)) {
        // The planned kill is cancelled.
        self.disk.kill_at(u64::MAX);
        self.role().database().flush().expect("the disk works");
        self.role = None;
        self.disk.crash();
        self.role = self.open();
        assert_eq!(stored_rows(self.role().database(), "undecided").len(), 0, "fragments that are kept");
        look(self.owner());
    }
}

/// A coordinator with its caller.
pub(crate) struct DurableCoordinator {
    coordinator: HoldingCoordinator<Program>,
    caller: Arc<Caller>,
    incarnation: u64,
}

impl Open for DurableCoordinator {
    type Message = MessageOf<Program>;
    type Output = CoordinatorOutputOf<Program>;
    type Setup = CoordinatorSetup;

    fn open(disk: &FaultyDisk, setup: &CoordinatorSetup, found: &mut EventCounts) -> Opened<DurableCoordinator> {
        let Some(divided) = divided_on(disk) else { return Opened::Dead };
        let caller = Arc::new(Caller::new(divided));
        found.note("commits to be repeated", stored_rows(caller.divided().database(), "decided").len());
        match coordinator(CoordinatorId(setup.id), &caller, &setup.of) {
            Ok((coordinator, incarnation)) => Opened::Running(DurableCoordinator { coordinator, caller, incarnation }),
            Err(error) => refused(error),
        }
    }

    fn create(disk: &FaultyDisk, setup: &CoordinatorSetup) -> Option<()> {
        begin(&divided_on(disk)?, Role::Coordinator(setup.id), &setup.of).ok()
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn database(&self) -> &Database {
        self.caller.divided().database()
    }

    fn tell(&mut self, message: MessageOf<Program>) {
        self.coordinator.handle(message);
    }

    fn next(&mut self) -> Option<Self::Output> {
        self.coordinator.take_output()
    }

    fn is_holding(&self) -> bool {
        self.coordinator.is_holding()
    }

    fn is_idle(&self) -> bool {
        self.coordinator.coordinator().is_idle()
    }
}

type CoordinatorOut = CoordinatorOutputOf<Program>;

/// Where nodes keep their records.
pub(crate) trait Kind {
    type Owner: OwnerNode;
    type Coordinator: Node<Message = MessageOf<Program>, Output = CoordinatorOut, Setup = CoordinatorSetup>;
}

/// In lists.
pub(crate) struct Lists;

impl Kind for Lists {
    type Owner = InMemory<Owner<Participant>>;
    type Coordinator = InMemory<Coordinator<Program>>;
}

/// On disks.
pub(crate) struct Disks;

impl Kind for Disks {
    type Owner = OnDisk<DurableOwner, OwnerSetup>;
    type Coordinator = OnDisk<DurableCoordinator, CoordinatorSetup>;
}
