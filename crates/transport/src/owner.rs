//! The role of an owner: its inbox, its lives and its records.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::panic_text;
use seriatim_partition::{
    CoordinatorId, FromCoordinator, HoldingOwner, Outcome, Owner, OwnerOutput, OwnerOutputOf, OwnerRecord, PartitionId,
    ToCoordinator as ToMachine, ToOwner,
};

use crate::channel::{Found, Inbox};
use crate::coordinator::note;
use crate::outbox::Outbox;
use crate::patience::{Attempts, Holding};
use crate::{Application, Options, ToCoordinator, ToOwnerOf, ToPort, WorkOf};

/// Makes the partition of this number in the state in which it begins, or goes on.
pub(crate) type Make<A> = Arc<dyn Fn(PartitionId) -> <A as Application>::Partition + Send + Sync>;

/// An owner, for the thread or simulated core that is to run it.
pub struct OwnerRole<A: Application> {
    pub(crate) id: PartitionId,
    pub(crate) options: Options,
    pub(crate) make: Make<A>,
    pub(crate) inbox: Inbox<ToOwnerOf<A>>,
    pub(crate) ports: Outbox<ToPort<A>>,
    /// One, or none where clients coordinate.
    pub(crate) coordinator: Outbox<ToCoordinator<A>>,
    /// Whether coordinators keep what they decide themselves.
    pub(crate) coordinators_keep: bool,
}

/// What a role did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that it handled.
    pub messages: u64,
    /// Batches of these.
    pub batches: u64,
    /// How often it slept.
    pub sleeps: u64,
    /// Time in which it did not sleep.
    pub busy: Duration,
}

/// What is left of an owner.
pub struct OwnerEnd<A: Application> {
    /// Which.
    pub id: PartitionId,
    /// Nothing if its partition is gone.
    pub owner: Option<Owner<A::Partition>>,
    /// All that were kept.
    pub records: Vec<OwnerRecord<WorkOf<A>>>,
    /// Panics that ended its lives, and what they said.
    pub panics: Vec<String>,
    /// What it did.
    pub counts: Counts,
}

/// What comes of an owner that dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Another life, at once.
    Now,
    /// One after a pause, if its partition keeps its state.
    Later,
    /// None: the next would die of the same.
    None,
}

/// An owner while it runs.
struct Lives<A: Application> {
    role: OwnerRole<A>,
    owner: Option<HoldingOwner<A::Partition>>,
    /// The latest of its lives.
    life: u64,
    holding: Holding,
    /// To begin again.
    attempts: Attempts,
    /// Whether the partition keeps its own state.
    keeps: bool,
    records: Vec<OwnerRecord<WorkOf<A>>>,
    panics: Vec<String>,
}

impl<A: Application> OwnerRole<A> {
    /// Which partition it owns.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Runs until all clients, and the coordinator, are gone.
    pub fn run(self) -> OwnerEnd<A> {
        let (batch_max, tick) = (self.options.batch_max.max(1), self.options.tick);
        let mut counts = Counts::default();
        let (holding, attempts) = (Holding::default(), Attempts::default());
        let (keeps, records, panics) = (false, Vec::new(), Vec::new());
        let mut lives = Lives { role: self, owner: None, life: 0, holding, attempts, keeps, records, panics };
        lives.first();
        let (mut batch, mut ticks, began) = (VecDeque::new(), None, Instant::now());
        loop {
            let wants_ticks = lives.owner.as_ref().is_some_and(|owner| owner.owner().wants_ticks());
            ticks = if wants_ticks { ticks.or_else(|| Some(Instant::now().after(tick))) } else { None };
            let until = ticks.into_iter().chain(lives.holding.look()).chain(lives.attempts.due).min();
            let found = lives.role.inbox.receive(&mut batch, batch_max, until);
            if ticks.is_some_and(|due| due <= Instant::now()) {
                ticks = None;
                batch.push_back(ToOwner::Tick);
            }
            if found == Found::Closed {
                break;
            }
            counts.batches += 1;
            counts.messages += batch.len() as u64;
            #[cfg(any(test, feature = "canary"))]
            lives.spoil(&mut batch, counts.messages);
            let mut is_again = false;
            while let Some(message) = batch.pop_front() {
                let notice = is_notice(&message).then(|| message.clone());
                let survives = lives.handle(message, if is_again { Next::None } else { Next::Now });
                if !survives {
                    batch.retain(is_notice);
                }
                is_again = !survives && !is_again && notice.is_some();
                if let Some(notice) = notice.filter(|_| is_again) {
                    batch.push_front(notice);
                }
            }
            lives.put_out(Next::Now);
            lives.wait();
            lives.flush();
        }
        counts.sleeps = lives.role.inbox.sleeps;
        counts.busy = began.elapsed().saturating_sub(lives.role.inbox.slept);
        let Lives { role, owner, records, panics, .. } = lives;
        OwnerEnd { id: role.id, owner: owner.map(HoldingOwner::into_owner), records, panics, counts }
    }
}

impl<A: Application> Lives<A> {
    /// Whether the owner has survived this message; if it has not, what comes of it.
    fn handle(&mut self, message: ToOwnerOf<A>, next: Next) -> bool {
        let is_late = self.holding.is_late() && matches!(message, ToOwner::Call(_));
        let Some(owner) = self.owner.as_mut().filter(|_| !is_late) else {
            self.refuse(message);
            return true;
        };
        match catch_unwind(AssertUnwindSafe(|| owner.handle(message))) {
            Ok(()) => self.put_out(next),
            Err(panic) => {
                self.die(&*panic, next);
                false
            }
        }
    }

    /// Keeps records and addresses messages, as far as they may leave; whether the owner has survived it.
    fn put_out(&mut self, next: Next) -> bool {
        while let Some(owner) = &mut self.owner {
            match catch_unwind(AssertUnwindSafe(|| owner.take_output())) {
                Ok(Some(output)) => {
                    self.holding.left();
                    self.address(output);
                }
                Ok(None) => {
                    self.holding.note(owner.is_holding());
                    break;
                }
                Err(panic) => {
                    self.die(&*panic, next);
                    return false;
                }
            }
        }
        true
    }

    /// Says so if what it holds has been held for too long, and tries again to begin if it could not.
    fn wait(&mut self) {
        let partition = self.role.id;
        if self.holding.becomes_late(self.role.options.hold_max) {
            self.role.coordinator.put_all(|| ToCoordinator::Message(ToMachine::PartitionLate { partition }));
            self.role.ports.put_all(|| ToPort::PartitionLate(partition));
        }
        if self.attempts.take() {
            self.begin_again();
        }
    }

    fn address(&mut self, output: OwnerOutputOf<A::Partition>) {
        match output {
            OwnerOutput::Keep(_, record) => self.records.push(record),
            OwnerOutput::Reply { transaction, outcome } => {
                self.role.ports.put(transaction.client.0, ToPort::Single(transaction, outcome));
            }
            OwnerOutput::Send { to, message } if self.role.coordinator.len() == 0 => {
                self.role.ports.put(to.0, ToPort::Owner(message));
            }
            OwnerOutput::Send { to, message } => {
                self.role.coordinator.put(to.0, ToCoordinator::Message(ToMachine::Owner(message)));
            }
        }
    }

    fn flush(&mut self) {
        self.role.coordinator.flush();
        self.role.ports.flush();
    }

    /// Its first life, if it can begin: what a partition has in doubt must not be decided by coordinators that forget.
    fn first(&mut self) {
        let begun = catch_unwind(AssertUnwindSafe(|| {
            let owner = self.begin();
            let forgets = owner.keeps() && !self.role.coordinators_keep;
            assert!(!forgets, "the partition keeps its state, and its coordinators do not: deploy it by `deploy_with`");
            owner
        }));
        match begun {
            Ok(owner) => self.live(owner),
            Err(panic) => {
                // One that may keep its state begins when its disk lets it.
                self.keeps = self.role.coordinators_keep;
                self.die(&*panic, Next::Later);
                self.flush();
            }
        }
    }

    /// What the message that panicked had put out is lost, and so is the partition; others are told.
    fn die(&mut self, panic: &(dyn Any + Send), next: Next) {
        self.panics.push(said(panic));
        // A partition that is half changed may panic again.
        let owner = self.owner.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(owner)));
        let (partition, life) = (self.role.id, self.life);
        self.role.coordinator.put_all(|| ToCoordinator::Message(ToMachine::PartitionDown { partition, life }));
        self.role.ports.put_all(|| ToPort::PartitionDown { partition, life });
        self.flush();
        self.holding.left();
        match next {
            Next::Now if self.role.options.records || self.keeps => self.begin_again(),
            Next::Later if self.keeps => self.is_gone(true),
            _ => self.is_gone(false),
        }
    }

    /// Its next life begins, if it can.
    fn begin_again(&mut self) {
        match catch_unwind(AssertUnwindSafe(|| self.recover())) {
            Ok(owner) => {
                self.live(owner);
                self.put_out(Next::Later);
            }
            Err(panic) => {
                note(&mut self.panics, format!("while it recovered: {}", said(&*panic)));
                self.is_gone(self.keeps);
            }
        }
    }

    fn is_gone(&mut self, for_now: bool) {
        let partition = self.role.id;
        self.role.coordinator.put_all(|| ToCoordinator::Gone(partition));
        if for_now {
            self.attempts.again();
        }
    }

    fn live(&mut self, owner: HoldingOwner<A::Partition>) {
        (self.life, self.keeps) = (owner.life(), owner.keeps());
        self.owner = Some(owner);
    }

    fn coordinators(&self) -> impl Iterator<Item = CoordinatorId> + use<A> {
        let role = &self.role;
        let count = if role.coordinator.len() == 0 { role.ports.len() } else { role.coordinator.len() };
        (0..count).map(CoordinatorId)
    }

    fn begin(&self) -> HoldingOwner<A::Partition> {
        let (role, options) = (&self.role, self.role.options.of_owners());
        HoldingOwner::begin(role.id, (role.make)(role.id), &options, self.coordinators())
    }

    fn recover(&self) -> HoldingOwner<A::Partition> {
        if self.keeps {
            return self.begin();
        }
        let (role, mut out) = (&self.role, Vec::new());
        let owner = Owner::recover(
            role.id,
            self.life + 1,
            (role.make)(role.id),
            &role.options.of_owners(),
            self.records.iter().cloned(),
            self.coordinators(),
            &mut out,
        );
        HoldingOwner::of(owner, out)
    }

    /// Answers for a partition that is gone, or late.
    fn refuse(&mut self, message: ToOwnerOf<A>) {
        let (partition, life) = (self.role.id, self.life);
        match message {
            ToOwner::Call(call) => {
                let outcome = Outcome::Unavailable(partition);
                self.role.ports.put(call.transaction.client.0, ToPort::Single(call.transaction, outcome));
            }
            // It waits to hear.
            ToOwner::Coordinator(FromCoordinator::Recovered { coordinator, .. })
                if self.role.coordinator.len() == 0 =>
            {
                self.role.ports.put(coordinator.0, ToPort::PartitionDown { partition, life });
            }
            ToOwner::Coordinator(FromCoordinator::Recovered { coordinator, .. }) => {
                let message = ToCoordinator::Message(ToMachine::PartitionDown { partition, life });
                self.role.coordinator.put(coordinator.0, message);
            }
            _ => {}
        }
    }

    /// Makes the mistake that a test wants.
    #[cfg(any(test, feature = "canary"))]
    fn spoil(&self, batch: &mut VecDeque<ToOwnerOf<A>>, messages: u64) {
        use crate::Fault;
        use seriatim_partition::FromCoordinator::Decision;
        match self.role.options.fault {
            None => {}
            Some(Fault::Overtaking) => (1..batch.len()).step_by(2).for_each(|at| batch.swap(at - 1, at)),
            Some(Fault::Losing) if messages.is_multiple_of(8) => {
                batch.retain(|message| !matches!(message, ToOwner::Coordinator(Decision(_))));
            }
            Some(Fault::Repeating) if messages.is_multiple_of(8) => {
                if let Some(ToOwner::Call(call)) = batch.front() {
                    let again = ToOwner::Call(call.clone());
                    batch.push_back(again);
                }
            }
            Some(_) => {}
        }
    }
}

/// Whether it says that a coordinator has ended or begun again. Nobody repeats that, so it outlives the owner; and one that the owner has died of is
/// handled once more, as what it let run, which was perhaps what panicked, is lost. Of all else that is lost the senders hear.
fn is_notice<W>(message: &ToOwner<W>) -> bool {
    matches!(message, ToOwner::CoordinatorDown { .. } | ToOwner::Coordinator(FromCoordinator::Recovered { .. }))
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    panic_text(panic).unwrap_or_else(|| "a panic without words".to_owned())
}
