//! A client's end of a deployment: calls, and answers in the order in which they arrive.
//!
//! Under `locking` a coordinator lives with each client, and runs while the client receives.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use seriatim_base::clock::Instant;
use seriatim_partition::{
    Call, ClientId, CoordinatorId, CoordinatorOutput, CoordinatorRecord, HoldingCoordinator, MessageOf, Outcome,
    PartitionId, ToCoordinator as ToMachine, ToOwner, TransactionId,
};

use crate::channel::{Inbox, Received};
use crate::coordinator::{Begin, bury, next_incarnation, note};
use crate::outbox::Outbox;
use crate::owner::said;
use crate::patience::{Attempts, Holding};
use crate::{AbortOf, Application, Options, OutputOf, ReplyOf, ToCoordinator, ToOwnerOf, ToPort, WorkOf};

/// A client's end of a deployment. One thread, or simulated core, uses it.
pub struct Port<A: Application> {
    client: ClientId,
    options: Options,
    /// Of the latest call.
    number: u64,
    /// Unanswered calls, with the partition of each; `None` if it is over several partitions.
    under_way: BTreeMap<u64, Option<PartitionId>>,
    inbox: Inbox<ToPort<A>>,
    batch: VecDeque<ToPort<A>>,
    answers: VecDeque<Answer<A>>,
    owners: Outbox<ToOwnerOf<A>>,
    coordinates: Coordinates<A>,
    broken: Vec<(TransactionId, PartitionId)>,
}

/// The coordinator of the client's transactions.
enum Coordinates<A: Application> {
    /// One coordinator for all clients.
    Shared(Outbox<ToCoordinator<A>>),
    /// The client's own.
    Own(Box<Own<A>>),
}

struct Own<A: Application> {
    id: CoordinatorId,
    /// `None` if it is gone.
    coordinator: Option<HoldingCoordinator<A::Procedure>>,
    incarnation: u64,
    /// `Some` if it keeps its records itself.
    begin: Option<Begin<A>>,
    records: Vec<CoordinatorRecord>,
    holding: Holding,
    /// Attempts to begin again.
    attempts: Attempts,
    /// The messages of panics that ended its incarnations.
    panics: Vec<String>,
}

impl<A: Application> Own<A> {
    /// Begins its next incarnation, which is its first without `next`. If it cannot, it is gone; if it keeps its
    /// records itself it tries again later.
    fn begin(&mut self, next: Option<u64>, partitions: u32) {
        match next_incarnation::<A>(self.id, self.begin.as_ref(), next, &self.records, partitions) {
            Ok((coordinator, incarnation)) => (self.coordinator, self.incarnation) = (Some(coordinator), incarnation),
            Err(panic) => {
                note(&mut self.panics, panic);
                if self.begin.is_some() {
                    self.attempts.again();
                }
            }
        }
    }
}

/// The end of a call.
pub struct Answer<A: Application> {
    /// The transaction.
    pub transaction: TransactionId,
    /// Its end.
    pub ended: Ended<A>,
}

/// The end of a call, by its kind.
pub enum Ended<A: Application> {
    /// Of a call on one partition.
    Single(Outcome<ReplyOf<A>, AbortOf<A>>),
    /// Of a call over several.
    Multi(Outcome<OutputOf<A>, AbortOf<A>>),
    /// The receiver of the call has died. The transaction may have committed or not.
    Lost,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The client has the most unanswered calls that it may have. Receive an answer first.
    Full,
    /// There is no such partition.
    NoSuchPartition(PartitionId),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Full => f.write_str("as many calls as may be are under way: receive an answer first"),
            Refused::NoSuchPartition(partition) => write!(f, "there is no partition {partition}"),
        }
    }
}

impl std::error::Error for Refused {}

impl<A: Application> Port<A> {
    pub(crate) fn new(
        number: u32,
        options: &Options,
        begin: Option<&Begin<A>>,
        inbox: Inbox<ToPort<A>>,
        owners: Outbox<ToOwnerOf<A>>,
        coordinator: Option<Outbox<ToCoordinator<A>>>,
    ) -> Port<A> {
        let own = || {
            let (id, begin, records, panics) = (CoordinatorId(number), begin.cloned(), Vec::new(), Vec::new());
            let (holding, attempts) = (Holding::default(), Attempts::default());
            let mut own = Own { id, coordinator: None, incarnation: 0, begin, records, holding, attempts, panics };
            own.begin(None, options.partitions);
            Coordinates::Own(Box::new(own))
        };
        Port {
            client: ClientId(number),
            options: options.clone(),
            number: options.numbers_above,
            under_way: BTreeMap::new(),
            inbox,
            batch: VecDeque::new(),
            answers: VecDeque::new(),
            owners,
            coordinates: coordinator.map_or_else(own, Coordinates::Shared),
            broken: Vec::new(),
        }
    }

    /// The client's id.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The number of unanswered calls.
    pub fn outstanding(&self) -> usize {
        self.under_way.len()
    }

    /// Transactions that have committed but were not applied at a partition, which says that it has not voted;
    /// there must be none. Those of a shared coordinator are in [`crate::CoordinatorEnd`].
    pub fn broken(&self) -> &[(TransactionId, PartitionId)] {
        &self.broken
    }

    /// The messages of panics that ended incarnations of the client's own coordinator. Those of a shared one are in
    /// [`crate::CoordinatorEnd`].
    pub fn panics(&self) -> &[String] {
        match &self.coordinates {
            Coordinates::Shared(_) => &[],
            Coordinates::Own(own) => &own.panics,
        }
    }

    /// Calls a single-partition transaction. It is sent at the next [`Port::receive`] or [`Port::flush`].
    ///
    /// # Errors
    /// When too many calls are under way, or there is no such partition.
    pub fn call(&mut self, partition: PartitionId, work: WorkOf<A>, may_abort: bool) -> Result<TransactionId, Refused> {
        if partition.0 >= self.owners.len() {
            return Err(Refused::NoSuchPartition(partition));
        }
        let transaction = self.begin(Some(partition))?;
        self.owners.put(partition.0, ToOwner::Call(Call { transaction, work, may_abort }));
        Ok(transaction)
    }

    /// Calls a transaction over several partitions. It is sent at the next [`Port::receive`] or
    /// [`Port::flush`].
    ///
    /// # Errors
    /// When too many calls are under way.
    pub fn run(&mut self, procedure: A::Procedure) -> Result<TransactionId, Refused> {
        let transaction = self.begin(None)?;
        let call = ToMachine::Call { transaction, procedure };
        match &mut self.coordinates {
            Coordinates::Shared(coordinator) => coordinator.put(0, ToCoordinator::Message(call)),
            Coordinates::Own(_) => {
                // Otherwise a client whose calls are answered at once would not learn that a partition is
                // back.
                self.take_due();
                self.coordinate(call);
            }
        }
        Ok(transaction)
    }

    fn begin(&mut self, at: Option<PartitionId>) -> Result<TransactionId, Refused> {
        if self.under_way.len() >= self.options.outstanding_max.max(1) {
            return Err(Refused::Full);
        }
        self.number += 1;
        self.under_way.insert(self.number, at);
        Ok(TransactionId { client: self.client, number: self.number })
    }

    /// Sends the calls.
    pub fn flush(&mut self) {
        self.owners.flush();
        if let Coordinates::Shared(coordinator) = &mut self.coordinates {
            coordinator.flush();
        }
    }

    /// Waits for the next answer, until the given time if there is one. `None`: none arrived, or no call is
    /// under way. Then the client's own coordinator has handled what has arrived.
    pub fn receive(&mut self, until: Option<Instant>) -> Option<Answer<A>> {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return Some(answer);
            }
            if let Some(message) = self.batch.pop_front() {
                self.take(message);
                continue;
            }
            self.try_again();
            self.put_out();
            let look = self.wait();
            if !self.answers.is_empty() {
                continue;
            }
            self.flush();
            if self.under_way.is_empty() {
                // An owner that has died may have lost a decision, and asks for it.
                if matches!(self.coordinates, Coordinates::Own(_)) && self.take_due() {
                    continue;
                }
                return None;
            }
            let look = look.filter(|look| until.is_none_or(|until| *look < until));
            match self.inbox.receive(&mut self.batch, self.options.batch_max.max(1), look.or(until)) {
                Received::Some => {}
                Received::Late if look.is_some() => {}
                Received::Late => return None,
                // All roles are gone, which does not happen while they run as they should.
                Received::Closed => self.lose(|_| true),
            }
        }
    }

    /// Handles the messages that have arrived. Returns whether there were any.
    fn take_due(&mut self) -> bool {
        if self.batch.is_empty() {
            self.inbox.receive(&mut self.batch, self.options.batch_max.max(1), Some(Instant::now()));
        }
        let any = !self.batch.is_empty();
        while let Some(message) = self.batch.pop_front() {
            self.take(message);
        }
        any
    }

    fn take(&mut self, message: ToPort<A>) {
        match message {
            ToPort::Single(transaction, outcome) => self.answer(transaction, Ended::Single(outcome)),
            ToPort::Multi(transaction, outcome) => self.answer(transaction, Ended::Multi(outcome)),
            ToPort::Owner(message) => self.coordinate(ToMachine::Owner(message)),
            ToPort::CoordinatorDown => self.lose(|at| at.is_none()),
            ToPort::PartitionLate(partition) => {
                self.lose(|at| at == Some(partition));
                self.coordinate(ToMachine::PartitionLate { partition });
            }
            ToPort::PartitionDown { partition, incarnation } => {
                self.lose(|at| at == Some(partition));
                self.coordinate(ToMachine::PartitionDown { partition, incarnation });
            }
        }
    }

    /// Answers a call, unless it was given up before.
    fn answer(&mut self, transaction: TransactionId, ended: Ended<A>) {
        if self.under_way.remove(&transaction.number).is_some() {
            self.answers.push_back(Answer { transaction, ended });
        }
    }

    /// Gives up the calls that wait there: they are lost.
    fn lose(&mut self, is_there: impl Fn(Option<PartitionId>) -> bool) {
        let lost = self.under_way.iter().filter(|(_, at)| is_there(**at)).map(|(&number, _)| number);
        for number in lost.collect::<Vec<_>>() {
            self.answer(TransactionId { client: self.client, number }, Ended::Lost);
        }
    }

    /// Lets the client's own coordinator handle a message.
    fn coordinate(&mut self, message: MessageOf<A::Procedure>) {
        self.try_again();
        let Coordinates::Own(own) = &mut self.coordinates else { return };
        let is_late = own.holding.is_late() && matches!(message, ToMachine::Call { .. });
        match own.coordinator.as_mut().filter(|_| !is_late) {
            Some(coordinator) => match catch_unwind(AssertUnwindSafe(|| coordinator.handle(message))) {
                Ok(()) => self.put_out(),
                Err(panic) => self.coordinator_died(&*panic),
            },
            None => self.lose(|at| at.is_none()),
        }
    }

    /// The client's own coordinator has died. The owners are notified, and its next incarnation begins, if it can.
    fn coordinator_died(&mut self, panic: &(dyn Any + Send)) {
        let Coordinates::Own(own) = &mut self.coordinates else { return };
        own.panics.push(said(panic));
        let (coordinator, incarnation) = (own.id, own.incarnation);
        self.owners.put_all(|| ToOwner::CoordinatorDown { coordinator, incarnation });
        self.owners.flush();
        bury(own.coordinator.take());
        own.holding.left();
        own.begin(Some(incarnation + 1), self.options.partitions);
        self.lose(|at| at.is_none());
    }

    /// If the client's own coordinator could not begin, tries again when that is due. If it is late, sends the
    /// held outputs that may leave.
    fn try_again(&mut self) {
        let Coordinates::Own(own) = &mut self.coordinates else { return };
        if own.attempts.take() {
            own.begin(Some(own.incarnation + 1), self.options.partitions);
        }
        if own.holding.is_late() {
            self.put_out();
        }
    }

    /// Gives up calls of the client's own coordinator if it has held its outputs too long. Returns when to
    /// check again.
    fn wait(&mut self) -> Option<Instant> {
        let Coordinates::Own(own) = &mut self.coordinates else { return None };
        let is_late = own.holding.becomes_late(self.options.hold_max);
        let look = own.holding.look().into_iter().chain(own.attempts.due).min();
        if is_late {
            self.lose(|at| at.is_none());
        }
        look
    }

    /// Sends the outputs of the client's own coordinator that may leave.
    fn put_out(&mut self) {
        while let Coordinates::Own(own) = &mut self.coordinates {
            let Some(alive) = &mut own.coordinator else { return };
            let output = match catch_unwind(AssertUnwindSafe(|| alive.take_output())) {
                Ok(output) => output,
                Err(panic) => {
                    return self.coordinator_died(&*panic);
                }
            };
            if output.is_some() {
                own.holding.left();
            }
            match output {
                None => return own.holding.note(alive.is_holding()),
                Some(CoordinatorOutput::Keep(_, record)) if self.options.records => own.records.push(record),
                Some(CoordinatorOutput::Keep(..)) => {}
                Some(CoordinatorOutput::Send { to, message }) => self.owners.put(to.0, ToOwner::Coordinator(message)),
                Some(CoordinatorOutput::Reply { transaction, outcome }) => {
                    self.answer(transaction, Ended::Multi(outcome));
                }
                Some(CoordinatorOutput::Broken { transaction, partition }) => {
                    self.broken.push((transaction, partition));
                }
            }
        }
    }
}

/// A shared coordinator continues the client's transactions. Undecided ones of the client's own coordinator
/// are aborted: that incarnation of it ends. The next incarnation has nothing to send but commits that owners
/// already know.
impl<A: Application> Drop for Port<A> {
    fn drop(&mut self) {
        self.flush();
        match &mut self.coordinates {
            Coordinates::Shared(coordinator) => coordinator.put(0, ToCoordinator::ClientGone),
            Coordinates::Own(own) => {
                let (coordinator, incarnation) = (own.id, own.incarnation);
                self.owners.put_all(|| ToOwner::CoordinatorDown { coordinator, incarnation });
                bury(own.coordinator.take());
                own.begin(Some(incarnation + 1), self.options.partitions);
                self.put_out();
            }
        }
        self.flush();
    }
}
