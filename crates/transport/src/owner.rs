//! The role of an owner: its inbox, its incarnations and its records.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::panic_text;
use seriatim_partition::{
    CoordinatorId, FromCoordinator, HoldingOwner, Outcome, Owner, OwnerOutput, OwnerOutputOf, OwnerRecord, PartitionId,
    ToCoordinator as ToMachine, ToOwner,
};

use crate::channel::{Inbox, Received};
use crate::coordinator::note;
use crate::outbox::Outbox;
use crate::patience::{Attempts, Holding};
use crate::{Application, Options, ToCoordinator, ToOwnerOf, ToPort, WorkOf};

/// Makes the partition of this number in its initial or kept state.
pub(crate) type Make<A> = Arc<dyn Fn(PartitionId) -> <A as Application>::Partition + Send + Sync>;

/// An owner, for the thread or simulated core that runs it.
pub struct OwnerRole<A: Application> {
    pub(crate) id: PartitionId,
    pub(crate) options: Options,
    pub(crate) make: Make<A>,
    pub(crate) inbox: Inbox<ToOwnerOf<A>>,
    pub(crate) ports: Outbox<ToPort<A>>,
    /// One receiver, or none where clients coordinate.
    pub(crate) coordinator: Outbox<ToCoordinator<A>>,
    /// Whether coordinators keep their decisions themselves.
    pub(crate) coordinators_keep: bool,
}

/// The counts of a role.
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

/// The final state of an owner.
pub struct OwnerEnd<A: Application> {
    /// Its partition.
    pub id: PartitionId,
    /// `None` if its partition is gone.
    pub owner: Option<Owner<A::Partition>>,
    /// All records that were kept.
    pub records: Vec<OwnerRecord<WorkOf<A>>>,
    /// The messages of panics that ended its incarnations.
    pub panics: Vec<String>,
    /// Its counts.
    pub counts: Counts,
}

/// The action after the death of an owner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Another incarnation, at once.
    Now,
    /// Another incarnation after a pause, if its partition keeps its state. Others would die of the same message.
    Later,
}

/// A running owner.
struct RunningOwner<A: Application> {
    role: OwnerRole<A>,
    owner: Option<HoldingOwner<A::Partition>>,
    /// The number of its latest incarnation.
    incarnation: u64,
    holding: Holding,
    /// Attempts to begin again.
    attempts: Attempts,
    /// Whether the partition keeps its own state.
    keeps: bool,
    records: Vec<OwnerRecord<WorkOf<A>>>,
    panics: Vec<String>,
    /// The last [`FromCoordinator::Recovered`] of each coordinator that has sent no fragment since. It decides all that
    /// a later incarnation may have in doubt. Its sender may be gone, and is then asked in vain. An owner that has died
    /// of it handles it once more. The panic may have come from work that it allowed to run, which is lost.
    last_words: BTreeMap<CoordinatorId, ToOwnerOf<A>>,
}

impl<A: Application> OwnerRole<A> {
    /// The partition that it owns.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Runs until all clients, and the coordinator, are gone.
    pub fn run(self) -> OwnerEnd<A> {
        let (batch_max, tick) = (self.options.batch_max.max(1), self.options.tick);
        let mut counts = Counts::default();
        let (holding, attempts) = (Holding::default(), Attempts::default());
        let mut running = RunningOwner {
            role: self,
            owner: None,
            incarnation: 0,
            holding,
            attempts,
            keeps: false,
            records: Vec::new(),
            panics: Vec::new(),
            last_words: BTreeMap::new(),
        };
        running.first();
        let (mut batch, mut ticks, began) = (VecDeque::new(), None, Instant::now());
        loop {
            let wants_ticks = running.owner.as_ref().is_some_and(|owner| owner.owner().wants_ticks());
            ticks = if wants_ticks { ticks.or_else(|| Some(Instant::now().after(tick))) } else { None };
            let until = ticks.into_iter().chain(running.holding.look()).chain(running.attempts.due).min();
            let found = running.role.inbox.receive(&mut batch, batch_max, until);
            if ticks.is_some_and(|due| due <= Instant::now()) {
                ticks = None;
                batch.push_back(ToOwner::Tick);
            }
            if found == Received::Closed {
                break;
            }
            counts.batches += 1;
            counts.messages += batch.len() as u64;
            #[cfg(any(test, feature = "canary"))]
            running.spoil(&mut batch, counts.messages);
            while let Some(message) = batch.pop_front() {
                if !running.handle(message, Next::Now) {
                    batch.retain(is_notice);
                }
            }
            running.put_out(Next::Now);
            running.wait();
            running.flush();
        }
        counts.sleeps = running.role.inbox.sleeps;
        counts.busy = began.elapsed().saturating_sub(running.role.inbox.slept);
        let RunningOwner { role, owner, records, panics, .. } = running;
        OwnerEnd { id: role.id, owner: owner.map(HoldingOwner::into_owner), records, panics, counts }
    }
}

impl<A: Application> RunningOwner<A> {
    /// Lets the owner handle a message. Returns whether it has survived; otherwise `next` says what follows.
    fn handle(&mut self, message: ToOwnerOf<A>, next: Next) -> bool {
        match &message {
            ToOwner::Coordinator(FromCoordinator::Recovered { coordinator, .. }) => {
                self.last_words.insert(*coordinator, message.clone());
            }
            ToOwner::Coordinator(FromCoordinator::Fragment(fragment)) => {
                self.last_words.remove(&fragment.coordinator);
            }
            _ => {}
        }
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

    /// Keeps records and addresses messages, as far as they may leave. Returns whether the owner has survived.
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

    /// Tells the others if outputs have been held for too long, and tries again to begin if it could not.
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

    /// Begins its first incarnation, if it can. Coordinators without durable state must not decide a partition's
    /// transactions in doubt.
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
                // A partition that may keep its state begins when its disk lets it.
                self.keeps = self.role.coordinators_keep;
                self.die(&*panic, Next::Later);
                self.flush();
            }
        }
    }

    /// The outputs of the message that panicked are lost, and so is the partition. The other roles are notified.
    fn die(&mut self, panic: &(dyn Any + Send), next: Next) {
        self.panics.push(said(panic));
        // A partition that is half changed may panic again.
        let owner = self.owner.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(owner)));
        let (partition, incarnation) = (self.role.id, self.incarnation);
        self.role.coordinator.put_all(|| ToCoordinator::Message(ToMachine::PartitionDown { partition, incarnation }));
        self.role.ports.put_all(|| ToPort::PartitionDown { partition, incarnation });
        self.flush();
        self.holding.left();
        match next {
            Next::Now if self.role.options.records || self.keeps => self.begin_again(),
            Next::Later if self.keeps => self.is_gone(true),
            _ => self.is_gone(false),
        }
    }

    /// Begins its next incarnation, if it can.
    fn begin_again(&mut self) {
        match catch_unwind(AssertUnwindSafe(|| self.recover())) {
            Ok(owner) => {
                self.live(owner);
                let last_words: Vec<_> = self.last_words.values().cloned().collect();
                let _ = self.put_out(Next::Later)
                    && last_words.into_iter().all(|message| self.handle(message, Next::Later));
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
        (self.incarnation, self.keeps) = (owner.incarnation(), owner.keeps());
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
            self.incarnation + 1,
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
        let (partition, incarnation) = (self.role.id, self.incarnation);
        match message {
            ToOwner::Call(call) => {
                let outcome = Outcome::Unavailable(partition);
                self.role.ports.put(call.transaction.client.0, ToPort::Single(call.transaction, outcome));
            }
            // The coordinator waits for an answer.
            ToOwner::Coordinator(FromCoordinator::Recovered { coordinator, .. })
                if self.role.coordinator.len() == 0 =>
            {
                self.role.ports.put(coordinator.0, ToPort::PartitionDown { partition, incarnation });
            }
            ToOwner::Coordinator(FromCoordinator::Recovered { coordinator, .. }) => {
                let message = ToCoordinator::Message(ToMachine::PartitionDown { partition, incarnation });
                self.role.coordinator.put(coordinator.0, message);
            }
            _ => {}
        }
    }

    /// Injects the fault of a test.
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

/// Whether a message says that a coordinator has ended or begun again. No sender repeats it, so it must outlive the
/// owner. Senders are notified of all other lost messages.
fn is_notice<W>(message: &ToOwner<W>) -> bool {
    matches!(message, ToOwner::CoordinatorDown { .. } | ToOwner::Coordinator(FromCoordinator::Recovered { .. }))
}

/// The message of a panic.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    panic_text(panic).unwrap_or_else(|| "a panic without words".to_owned())
}
