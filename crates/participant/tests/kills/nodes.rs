//! Owners and coordinators that can die: in memory, where what they keep is a list of records, and with databases on disks of their own, whose power is cut.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use seriatim::procedure::divided::Fragment;
use seriatim::{Database, Rng};
use seriatim_base::disk::FaultyDisk;
use seriatim_participant::{Caller, Deployed, Participant, Program, Role, begin, coordinator};
use seriatim_partition::{
    Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorOutputOf, CoordinatorRecord, HoldingCoordinator,
    HoldingOwner, Kept, MessageOf, Options, Owner, OwnerOutput, OwnerOutputOf, OwnerRecord, PartitionId, ToOwner,
};

use crate::bank::{divided, divided_on, partition, partitions};

/// What a node is told, puts out and goes on from.
pub(crate) trait Node {
    type Message;
    type Output;
    /// What it begins with, in each life.
    type Setup;

    fn begin(setup: Self::Setup, rng: &mut Rng) -> Self;
    /// Takes a message in; `false`: it has died of it.
    fn tell(&mut self, message: Self::Message) -> bool;
    fn has_output(&self) -> bool;
    /// The next that leaves, if one does; `Err`: it has died.
    fn put_out(&mut self) -> Result<Option<Self::Output>, ()>;
    /// Dies, perhaps several times while it recovers, and lives again. The last of its lives that has ended.
    fn die(&mut self, rng: &mut Rng) -> u64;
    /// Will be killed at one of its next operations of the disk; `false`: it has none.
    fn hit(&mut self, _: &mut Rng) -> bool {
        false
    }
    /// Takes a checkpoint, if it is on disk; `false`: it has died of it.
    fn checkpoint(&mut self) -> bool {
        true
    }
    fn is_idle(&self) -> bool;
}

/// One whose records are kept by others.
pub(crate) trait Recover: Sized {
    type Message;
    type Output;
    type Setup;
    type Record: Clone;

    fn begin(setup: &Self::Setup) -> Self;
    /// Its next life.
    fn recover(setup: &Self::Setup, life: u64, records: &[Self::Record], out: &mut Vec<Self::Output>) -> Self;
    fn tell(&mut self, message: Self::Message, out: &mut Vec<Self::Output>);
    /// A record, and how it is kept; `Err`: what leaves.
    fn record(output: Self::Output) -> Result<(Kept, Self::Record), Self::Output>;
    fn is_idle(&self) -> bool;
}

/// One in memory, what it has yet to put out, and what is kept of it.
pub(crate) struct InMemory<M: Recover> {
    role: M,
    setup: M::Setup,
    out: VecDeque<M::Output>,
    log: Vec<M::Record>,
    /// Records at the end of the log that may be lost.
    volatile: usize,
    life: u64,
}

impl<M: Recover> InMemory<M> {
    fn recovered(&self, out: &mut Vec<M::Output>) -> M {
        M::recover(&self.setup, self.life, &self.log, out)
    }
}

impl<M: Recover> Node for InMemory<M> {
    type Message = M::Message;
    type Output = M::Output;
    type Setup = M::Setup;

    fn begin(setup: M::Setup, _: &mut Rng) -> Self {
        let role = M::begin(&setup);
        InMemory { role, setup, out: VecDeque::new(), log: Vec::new(), volatile: 0, life: 0 }
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

    /// What it had yet to put out is lost, and what was not durable perhaps.
    fn die(&mut self, rng: &mut Rng) -> u64 {
        let lost = rng.below(self.volatile as u64 + 1) as usize;
        self.log.truncate(self.log.len() - lost);
        (self.volatile, self.life) = (0, self.life + 1);
        let mut out = Vec::new();
        self.role = self.recovered(&mut out);
        self.out = out.into();
        self.life - 1
    }

    fn is_idle(&self) -> bool {
        self.role.is_idle()
    }
}

/// What an owner begins with.
#[derive(Clone)]
pub(crate) struct OwnerSetup {
    pub(crate) id: u32,
    pub(crate) whole: Database,
    pub(crate) options: Options,
    pub(crate) coordinators: u32,
}

/// What a coordinator begins with.
#[derive(Clone)]
pub(crate) struct CoordinatorSetup {
    pub(crate) id: u32,
    pub(crate) of: Deployed,
}

/// One that is an owner.
pub(crate) trait OwnerNode:
    Node<Message = ToOwner<Fragment>, Output = OwnerOutputOf<Participant>, Setup = OwnerSetup>
{
    fn owner(&self) -> &Owner<Participant>;
    /// Asks an owner that goes on from what is kept of this one, which is idle.
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

    fn recover(setup: &OwnerSetup, life: u64, records: &[Self::Record], out: &mut Vec<Self::Output>) -> Self {
        let OwnerSetup { id, whole, options, coordinators } = setup;
        let (fresh, records) = (partition(whole, *id), records.iter().cloned());
        let coordinators = (0..*coordinators).map(CoordinatorId);
        Owner::recover(PartitionId(*id), life, fresh, options, records, coordinators, out)
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

    fn recover(setup: &CoordinatorSetup, life: u64, records: &[Self::Record], out: &mut Vec<Self::Output>) -> Self {
        Coordinator::recover(CoordinatorId(setup.id), life, records.iter().cloned(), partitions(), out)
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

/// One with a database on a disk. What it knows is what that holds.
pub(crate) struct OnDisk<M, S> {
    disk: FaultyDisk,
    /// None while it is dead.
    role: Option<M>,
    setup: S,
}

/// One that opens from a disk.
pub(crate) trait Open: Sized {
    type Message;
    type Output;
    type Setup;

    /// Opens it, and begins it if it has not begun; none if the disk fails.
    fn open(disk: &FaultyDisk, setup: &Self::Setup) -> Option<Self>;
    fn life(&self) -> u64;
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

    /// Does something; `None`: the disk was dead, and perhaps it has panicked of that.
    fn attempt<R>(&mut self, act: impl FnOnce(&mut M) -> R) -> Option<R> {
        // Each mount is of one life.
        let done = catch_unwind(AssertUnwindSafe(|| act(self.role())));
        match done {
            _ if self.is_dead() => None,
            Ok(done) => Some(done),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Whether the power was cut, or the process killed, since it was opened.
    fn is_dead(&mut self) -> bool {
        let refusal = self.role().database().statistics().log.and_then(|log| log.refusal);
        !self.disk.is_powered() || refusal.is_some()
    }

    /// Opens it, however often it is killed while it does.
    fn revive(&mut self, rng: &mut Rng) {
        self.role = None;
        self.disk.reboot();
        for attempt in 0.. {
            assert!(attempt < 100, "it does not open");
            if rng.below(3) == 0 {
                let at = 1 + rng.below(60);
                if rng.below(2) == 0 {
                    self.disk.crash_at(at)
                } else {
                    self.disk.kill_at(at)
                };
            }
            self.role = M::open(&self.disk, &self.setup);
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
        let role = M::open(&disk, &setup);
        OnDisk { disk, role, setup }
    }

    fn tell(&mut self, message: M::Message) -> bool {
        self.attempt(|role| role.tell(message)).is_some()
    }

    fn has_output(&self) -> bool {
        self.role.as_ref().is_some_and(Open::is_holding)
    }

    /// What cannot leave yet gets nearer to it.
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
        let ended = self.role().life();
        if self.disk.is_powered() {
            if rng.below(2) == 0 {
                self.disk.power_off()
            } else {
                self.disk.kill()
            };
        }
        self.revive(rng);
        // Lives that began and ended meanwhile have told nobody anything.
        self.role().life().max(ended + 1) - 1
    }

    fn hit(&mut self, rng: &mut Rng) -> bool {
        let at = 1 + rng.below(12);
        if rng.below(2) == 0 {
            self.disk.crash_at(at)
        } else {
            self.disk.kill_at(at)
        };
        true
    }

    fn checkpoint(&mut self) -> bool {
        self.attempt(|role| drop(role.database().checkpoint())).is_some()
    }

    fn is_idle(&self) -> bool {
        self.role.as_ref().is_some_and(Open::is_idle)
    }
}

type DurableOwner = HoldingOwner<Participant>;

impl OwnerSetup {
    fn of(&self) -> Deployed {
        Deployed { number: 7, scheme: self.options.scheme, coordinators: self.coordinators }
    }
}

impl Open for DurableOwner {
    type Message = ToOwner<Fragment>;
    type Output = OwnerOutputOf<Participant>;
    type Setup = OwnerSetup;

    fn open(disk: &FaultyDisk, setup: &OwnerSetup) -> Option<DurableOwner> {
        let (id, callers) = (PartitionId(setup.id), divided().digest());
        let open = || {
            let mut participant = Participant::open(divided_on(disk)?, id, callers, true, &setup.of()).ok()?;
            // Epochs also end amid a message.
            participant.set_step_interval(5);
            Some(participant)
        };
        let participant = open().or_else(|| {
            // Perhaps it has not begun, or not to its end.
            let divided = divided_on(disk)?;
            divided.fill(&setup.whole, setup.id as usize).ok()?;
            begin(&divided, Role::Partition(setup.id), &setup.of()).ok()?;
            drop(divided);
            open()
        })?;
        let coordinators = (0..setup.coordinators).map(CoordinatorId);
        let owner =
            catch_unwind(AssertUnwindSafe(|| HoldingOwner::begin(id, participant, &setup.options, coordinators)));
        owner.ok()
    }

    fn life(&self) -> u64 {
        HoldingOwner::life(self)
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

    /// What is kept of one that is idle is its rows, and no fragments that could be taken back.
    fn look_again(&mut self, look: impl FnOnce(&Owner<Participant>)) {
        // What was to come is taken back.
        self.disk.kill_at(u64::MAX);
        self.role().database().flush().expect("the disk works");
        self.role = None;
        self.disk.crash();
        self.role = DurableOwner::open(&self.disk, &self.setup);
        let database = self.role().database();
        let table = database.open_dyn("partition books: undecided").expect("it is there");
        let rows = database.session().transact(|tx| Ok(tx.scan_dyn(&table, &[])?.count()));
        assert_eq!(rows.expect("nobody is about").value, 0, "fragments that are kept");
        look(self.owner());
    }
}

/// With who calls.
pub(crate) struct DurableCoordinator {
    coordinator: HoldingCoordinator<Program>,
    caller: Arc<Caller>,
    life: u64,
}

impl Open for DurableCoordinator {
    type Message = MessageOf<Program>;
    type Output = CoordinatorOutputOf<Program>;
    type Setup = CoordinatorSetup;

    fn open(disk: &FaultyDisk, setup: &CoordinatorSetup) -> Option<DurableCoordinator> {
        let open = || {
            let caller = Arc::new(Caller::new(divided_on(disk)?));
            let (coordinator, life) = coordinator(CoordinatorId(setup.id), &caller, &setup.of).ok()?;
            Some(DurableCoordinator { coordinator, caller, life })
        };
        open().or_else(|| {
            begin(&divided_on(disk)?, Role::Coordinator(setup.id), &setup.of).ok()?;
            open()
        })
    }

    fn life(&self) -> u64 {
        self.life
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

/// Where nodes keep what they have to.
pub(crate) trait Kind {
    type Owner: OwnerNode;
    type Coordinator: Node<Message = MessageOf<Program>, Output = CoordinatorOutputOf<Program>, Setup = CoordinatorSetup>;
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
