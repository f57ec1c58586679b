//! Owners, coordinators and clients in virtual time, on one thread. A seed decides how long messages and disks
//! take, which node stalls, and which node dies between which two outputs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use seriatim_base::Rng;

use super::program::{Asked, Program};
use super::store::{Failed, Seen, Store, Work};
use crate::{
    Call, ClientId, Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorOutputOf, CoordinatorRecord, Kept,
    MessageOf, Options, Outcome, Owner, OwnerOutput, OwnerOutputOf, OwnerRecord, PartitionId, Scheme, ToCoordinator,
    ToOwner, TransactionId,
};

/// Keys of a partition, and their initial value.
pub(super) const KEYS: u32 = 64;
pub(super) const VALUE: i64 = 20;

/// The settings of a run.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) seed: u64,
    pub(super) scheme: Scheme,
    pub(super) partitions: u32,
    pub(super) clients: u32,
    pub(super) calls: u32,
    /// The longest time of a message. One in twenty takes ten times as long.
    pub(super) delay_max: u64,
    /// The longest time of a forced record.
    pub(super) sync_max: u64,
    /// The mean time between random kills; 0: none.
    pub(super) kill_every: u64,
    /// Whether all events are written to standard error.
    pub(super) shown: bool,
    /// Kills this node before its output of this number.
    pub(super) kill_at: Option<(Node, u64)>,
}

/// A node of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Owner(u32),
    Coordinator(u32),
    Client(u32),
}

/// A transaction, as its client knows it.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) asked: Asked,
    pub(super) began: u64,
    /// The time of the answer.
    pub(super) ended: Option<u64>,
    pub(super) answer: Option<Answer>,
}

/// The answer to a client.
pub(super) type Answer = Outcome<Vec<(PartitionId, Vec<Seen>)>, Failed>;

/// The result of a run.
pub(super) struct Ran {
    pub(super) attempts: BTreeMap<TransactionId, Attempt>,
    pub(super) owners: Vec<Owner<Store>>,
    pub(super) logs: Vec<Vec<OwnerRecord<Work>>>,
    pub(super) options: Options,
    /// A hash of all events.
    pub(super) trace: u64,
    /// The number of outputs of each node.
    pub(super) outputs: BTreeMap<Node, u64>,
    pub(super) kills: u64,
}

#[derive(Clone, Debug)]
enum Message {
    ToOwner(ToOwner<Work>),
    ToCoordinator(MessageOf<Program>),
    Answer(TransactionId, Answer),
}

#[derive(Clone, Debug)]
enum Event {
    Deliver(Node, Message),
    /// The next output of a node leaves, or is durable, in this incarnation of the node.
    Output(Node, u64),
    Kill(Node),
    Restart(Node),
    Tick(u32, u64),
    /// A client continues.
    Next(u32),
}

/// A node that can die.
struct Machine<M, O, R> {
    /// `None` while it is down.
    alive: Option<M>,
    incarnation: u64,
    outputs: VecDeque<O>,
    /// Whether its next output is on its way.
    busy: bool,
    /// Whether the next output is being made durable.
    syncing: bool,
    log: Vec<R>,
    /// Records at the end of the log that may be lost.
    volatile: usize,
    ticking: bool,
}

impl<M, O, R> Machine<M, O, R> {
    fn new(alive: M) -> Machine<M, O, R> {
        Machine {
            alive: Some(alive),
            incarnation: 0,
            outputs: VecDeque::new(),
            busy: false,
            syncing: false,
            log: Vec::new(),
            volatile: 0,
            ticking: false,
        }
    }

    fn die(&mut self, rng: &mut Rng) {
        self.alive = None;
        self.incarnation += 1;
        self.outputs.clear();
        (self.busy, self.syncing, self.ticking) = (false, false, false);
        let lost = rng.below(self.volatile as u64 + 1) as usize;
        self.log.truncate(self.log.len() - lost);
        self.volatile = 0;
    }

    fn append(&mut self, kept: Kept, record: R) {
        self.log.push(record);
        self.volatile = if kept == Kept::Forced { 0 } else { self.volatile + 1 };
    }
}

type OwnerMachine = Machine<Owner<Store>, OwnerOutputOf<Store>, OwnerRecord<Work>>;
type CoordinatorMachine = Machine<Coordinator<Program>, CoordinatorOutputOf<Program>, CoordinatorRecord>;

struct Client {
    rng: Rng,
    left: u32,
    /// The transaction for which it waits, and the node that it called.
    waits: Option<(TransactionId, Node)>,
    /// The request that it tries again.
    again: Option<Asked>,
    number: u64,
}

/// Chooses the requests of a client.
pub(super) trait Workload {
    fn ask(&mut self, client: u32, rng: &mut Rng) -> Asked;
}

impl<F: FnMut(u32, &mut Rng) -> Asked> Workload for F {
    fn ask(&mut self, client: u32, rng: &mut Rng) -> Asked {
        self(client, rng)
    }
}

struct Simulation<'a> {
    settings: &'a Settings,
    options: Options,
    rng: Rng,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    sequence: u64,
    /// The arrival of the latest message from one node to another.
    channels: BTreeMap<(Node, Node), u64>,
    owners: Vec<OwnerMachine>,
    coordinators: Vec<CoordinatorMachine>,
    clients: Vec<Client>,
    attempts: BTreeMap<TransactionId, Attempt>,
    trace: u64,
    outputs: BTreeMap<Node, u64>,
    kills: u64,
    kill_at: Option<(Node, u64)>,
    /// The alarm of a coordinator.
    broken: Option<String>,
    workload: &'a mut dyn Workload,
}

/// Runs clients until all calls are answered and all transactions have ended.
pub(super) fn run(settings: &Settings, workload: &mut dyn Workload) -> Result<Ran, String> {
    let mut rng = Rng::from_seed(settings.seed);
    let options = Options::new(settings.scheme);
    let coordinators = if settings.scheme.needs_one_coordinator() { 1 } else { settings.clients };
    let owner = |id| Machine::new(Owner::new(PartitionId(id), Store::new(PartitionId(id), KEYS, VALUE), &options));
    let partitions = || (0..settings.partitions).map(PartitionId);
    let client = |_| Client { rng: rng.fork(), left: settings.calls, waits: None, again: None, number: 0 };
    let clients = (0..settings.clients).map(client).collect();
    let mut simulation = Simulation {
        settings,
        options,
        rng,
        now: 0,
        queue: BinaryHeap::new(),
        events: BTreeMap::new(),
        sequence: 0,
        channels: BTreeMap::new(),
        owners: (0..settings.partitions).map(owner).collect(),
        coordinators: (0..coordinators)
            .map(|id| Machine::new(Coordinator::new(CoordinatorId(id), partitions())))
            .collect(),
        clients,
        attempts: BTreeMap::new(),
        trace: 0xcbf2_9ce4_8422_2325,
        outputs: BTreeMap::new(),
        kills: 0,
        kill_at: settings.kill_at,
        broken: None,
        workload,
    };
    simulation.go()?;
    Ok(Ran {
        attempts: simulation.attempts,
        logs: simulation.owners.iter().map(|owner| owner.log.clone()).collect(),
        owners: simulation.owners.into_iter().filter_map(|owner| owner.alive).collect(),
        options,
        trace: simulation.trace,
        outputs: simulation.outputs,
        kills: simulation.kills,
    })
}

impl Simulation<'_> {
    fn go(&mut self) -> Result<(), String> {
        for client in 0..self.settings.clients {
            let at = self.rng.below(self.settings.delay_max);
            self.at(at, Event::Next(client));
        }
        self.plan_kill();
        let mut steps = 0u64;
        while let Some(Reverse((at, sequence))) = self.queue.pop() {
            let event = self.events.remove(&sequence).expect("it was put there");
            self.now = at;
            self.note(&event);
            self.happen(event);
            if let Some(what) = self.broken.take() {
                return Err(what);
            }
            steps += 1;
            if steps > 2_000_000 {
                return Err(format!("no end: {}", self.state()));
            }
        }
        let waiting = self.clients.iter().any(|client| client.waits.is_some() || client.left > 0);
        let idle_owners = self.owners.iter().all(|owner| owner.alive.as_ref().is_some_and(Owner::is_idle));
        let idle = self.coordinators.iter().all(|one| one.alive.as_ref().is_some_and(Coordinator::is_idle));
        if waiting || !idle_owners || !idle {
            return Err(format!("stuck: {}", self.state()));
        }
        Ok(())
    }

    fn state(&self) -> String {
        let waits: Vec<_> = self.clients.iter().filter_map(|client| client.waits).collect();
        let busy = |alive: Option<bool>| alive.map_or("down", |idle| if idle { "idle" } else { "busy" });
        let owners: Vec<_> = self.owners.iter().map(|o| busy(o.alive.as_ref().map(Owner::is_idle))).collect();
        let coordinators: Vec<_> =
            self.coordinators.iter().map(|c| busy(c.alive.as_ref().map(Coordinator::is_idle))).collect();
        format!("at {}, clients wait for {waits:?}, owners {owners:?}, coordinators {coordinators:?}", self.now)
    }

    fn note(&mut self, event: &Event) {
        let text = format!("{} {event:?}", self.now);
        for byte in text.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.settings.shown {
            eprintln!("{text}");
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.insert(self.sequence, event);
        self.queue.push(Reverse((time, self.sequence)));
    }

    /// Sends a message, behind all others from the same sender to the same receiver.
    fn send(&mut self, from: Node, to: Node, message: Message) {
        let slow = if self.rng.percent(5) { 10 } else { 1 };
        let arrives = self.now + 1 + self.rng.below(self.settings.delay_max * slow);
        let latest = self.channels.entry((from, to)).or_default();
        *latest = arrives.max(*latest);
        let at = *latest;
        self.at(at, Event::Deliver(to, message));
    }

    /// Sends a notice that a node is down, in any order with its messages, and often when it is up again.
    fn notice(&mut self, to: Node, message: Message) {
        let takes = if self.rng.percent(50) { 2 } else { 40 };
        let at = self.now + self.rng.below(takes * self.settings.delay_max);
        self.at(at, Event::Deliver(to, message));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(Node::Owner(id), Message::ToOwner(message)) => self.tell_owner(id, message),
            Event::Deliver(Node::Coordinator(id), Message::ToCoordinator(message)) => {
                self.tell_coordinator(id, message)
            }
            Event::Deliver(Node::Client(id), Message::Answer(transaction, answer)) => {
                self.answer(id, transaction, answer);
            }
            Event::Deliver(to, message) => unreachable!("{message:?} to {to:?}"),
            Event::Output(node, incarnation) => self.put_out(node, incarnation),
            Event::Kill(Node::Owner(id)) if self.rng.percent(20) => {
                // The owner is reported as late, perhaps falsely.
                let late = ToCoordinator::PartitionLate { partition: PartitionId(id) };
                for coordinator in 0..self.coordinators.len() as u32 {
                    self.notice(Node::Coordinator(coordinator), Message::ToCoordinator(late.clone()));
                }
                self.plan_kill();
            }
            Event::Kill(node) => {
                self.kill(node);
                self.plan_kill();
            }
            Event::Restart(node) => self.restart(node),
            Event::Tick(id, incarnation) => {
                let owner = &mut self.owners[id as usize];
                if owner.incarnation == incarnation {
                    owner.ticking = false;
                    self.tell_owner(id, ToOwner::Tick);
                }
            }
            Event::Next(client) => self.next(client),
        }
    }

    fn tell_owner(&mut self, id: u32, message: ToOwner<Work>) {
        let machine = &mut self.owners[id as usize];
        let Some(owner) = &mut machine.alive else { return };
        let mut out = Vec::new();
        owner.handle(message, &mut out);
        machine.outputs.extend(out);
        let incarnation = machine.incarnation;
        if owner.wants_ticks() && !machine.ticking {
            machine.ticking = true;
            self.at(self.now + 20 * self.settings.delay_max, Event::Tick(id, incarnation));
        }
        self.schedule_output(Node::Owner(id));
    }

    fn tell_coordinator(&mut self, id: u32, message: MessageOf<Program>) {
        let machine = &mut self.coordinators[id as usize];
        let Some(coordinator) = &mut machine.alive else { return };
        let mut out = Vec::new();
        coordinator.handle(message, &mut out);
        machine.outputs.extend(out);
        self.schedule_output(Node::Coordinator(id));
    }

    fn schedule_output(&mut self, node: Node) {
        let sync_max = self.settings.sync_max;
        let (incarnation, takes) = match node {
            Node::Owner(id) => {
                let machine = &mut self.owners[id as usize];
                if machine.busy || machine.outputs.is_empty() {
                    return;
                }
                machine.busy = true;
                (machine.incarnation, matches!(machine.outputs[0], OwnerOutput::Keep(Kept::Forced, _)))
            }
            Node::Coordinator(id) => {
                let machine = &mut self.coordinators[id as usize];
                if machine.busy || machine.outputs.is_empty() {
                    return;
                }
                machine.busy = true;
                (machine.incarnation, matches!(machine.outputs[0], CoordinatorOutput::Keep(Kept::Forced, _)))
            }
            Node::Client(_) => unreachable!("clients put nothing out"),
        };
        let delay = self.rng.below(if takes { sync_max + 1 } else { 2 });
        self.at(self.now + delay, Event::Output(node, incarnation));
    }

    /// The next output of a node leaves.
    fn put_out(&mut self, node: Node, incarnation: u64) {
        let alive_in = match node {
            Node::Owner(id) => self.owners[id as usize].incarnation,
            Node::Coordinator(id) => self.coordinators[id as usize].incarnation,
            Node::Client(_) => unreachable!("clients put nothing out"),
        };
        if alive_in != incarnation {
            return;
        }
        let count = self.outputs.entry(node).or_default();
        *count += 1;
        if self.kill_at == Some((node, *count)) {
            self.kill_at = None;
            return self.kill(node);
        }
        match node {
            Node::Owner(id) => {
                let machine = &mut self.owners[id as usize];
                machine.busy = false;
                match machine.outputs.pop_front().expect("it was there") {
                    OwnerOutput::Keep(kept, record) => machine.append(kept, record),
                    OwnerOutput::Reply { transaction, outcome } => {
                        let at = PartitionId(id);
                        self.reply(node, transaction, map(outcome, |seen| vec![(at, seen)]));
                    }
                    OwnerOutput::Send { to, message } => {
                        let message = Message::ToCoordinator(ToCoordinator::Owner(message));
                        self.send(node, Node::Coordinator(to.0), message);
                    }
                }
            }
            Node::Coordinator(id) => {
                let machine = &mut self.coordinators[id as usize];
                machine.busy = false;
                match machine.outputs.pop_front().expect("it was there") {
                    CoordinatorOutput::Keep(kept, record) => machine.append(kept, record),
                    CoordinatorOutput::Reply { transaction, outcome } => self.reply(node, transaction, outcome),
                    CoordinatorOutput::Broken { transaction, partition } => {
                        let what = format!("{transaction} committed without a vote of partition {partition}");
                        self.broken.get_or_insert(what);
                    }
                    CoordinatorOutput::Send { to, message } => {
                        self.send(node, Node::Owner(to.0), Message::ToOwner(ToOwner::Coordinator(message)));
                    }
                }
            }
            Node::Client(_) => {}
        }
        self.schedule_output(node);
    }

    fn reply(&mut self, from: Node, transaction: TransactionId, answer: Answer) {
        self.send(from, Node::Client(transaction.client.0), Message::Answer(transaction, answer));
    }

    fn next(&mut self, id: u32) {
        let client = &mut self.clients[id as usize];
        let asked = match client.again.take() {
            Some(asked) => asked,
            None if client.left == 0 => return,
            None => {
                client.left -= 1;
                self.workload.ask(id, &mut client.rng)
            }
        };
        client.number += 1;
        let transaction = TransactionId { client: ClientId(id), number: client.number };
        let (to, message) = match asked.clone() {
            Asked::Single { partition, work, may_abort } => {
                (Node::Owner(partition.0), Message::ToOwner(ToOwner::Call(Call { transaction, work, may_abort })))
            }
            Asked::Multi(procedure) => {
                let coordinator = if self.settings.scheme.needs_one_coordinator() { 0 } else { id };
                let call = ToCoordinator::Call { transaction, procedure };
                (Node::Coordinator(coordinator), Message::ToCoordinator(call))
            }
        };
        client.waits = Some((transaction, to));
        self.attempts.insert(transaction, Attempt { asked, began: self.now, ended: None, answer: None });
        let is_up = match to {
            Node::Owner(id) => self.owners[id as usize].alive.is_some(),
            Node::Coordinator(id) => self.coordinators[id as usize].alive.is_some(),
            Node::Client(_) => false,
        };
        if is_up {
            self.send(Node::Client(id), to, message);
        } else {
            self.give_up(id, to);
        }
    }

    fn answer(&mut self, id: u32, transaction: TransactionId, answer: Answer) {
        let attempt = self.attempts.get_mut(&transaction).expect("it was asked for");
        assert!(attempt.answer.is_none(), "{transaction} is answered twice");
        attempt.ended = Some(self.now);
        let again = matches!(answer, Outcome::Conflict(_) | Outcome::Unavailable(_)).then(|| attempt.asked.clone());
        attempt.answer = Some(answer);
        let client = &mut self.clients[id as usize];
        if client.waits.is_some_and(|(waited, _)| waited == transaction) {
            (client.waits, client.again) = (None, again);
            self.think(id);
        }
    }

    fn think(&mut self, id: u32) {
        let pause = self.rng.below(4 * self.settings.delay_max);
        self.at(self.now + pause, Event::Next(id));
    }

    /// Clients that wait for a node continue without knowing the outcome of their transactions.
    fn give_up(&mut self, client: u32, node: Node) {
        let waits = &mut self.clients[client as usize].waits;
        if waits.is_some_and(|(_, at)| at == node) {
            *waits = None;
            self.think(client);
        }
    }

    fn plan_kill(&mut self) {
        if self.settings.kill_every > 0 && self.clients.iter().any(|client| client.left > 0) {
            let at = self.now + self.rng.below(2 * self.settings.kill_every);
            let nodes = (self.owners.len() + self.coordinators.len()) as u64;
            let chosen = self.rng.below(nodes) as u32;
            let owners = self.owners.len() as u32;
            let node = if chosen < owners { Node::Owner(chosen) } else { Node::Coordinator(chosen - owners) };
            self.at(at, Event::Kill(node));
        }
    }

    fn kill(&mut self, node: Node) {
        match node {
            Node::Owner(id) if self.owners[id as usize].alive.is_some() => {
                self.owners[id as usize].die(&mut self.rng);
                let incarnation = self.owners[id as usize].incarnation - 1;
                for coordinator in 0..self.coordinators.len() as u32 {
                    let down = ToCoordinator::PartitionDown { partition: PartitionId(id), incarnation };
                    self.notice(Node::Coordinator(coordinator), Message::ToCoordinator(down));
                }
            }
            Node::Coordinator(id) if self.coordinators[id as usize].alive.is_some() => {
                self.coordinators[id as usize].die(&mut self.rng);
                let incarnation = self.coordinators[id as usize].incarnation - 1;
                for owner in 0..self.owners.len() as u32 {
                    let down = ToOwner::CoordinatorDown { coordinator: CoordinatorId(id), incarnation };
                    self.notice(Node::Owner(owner), Message::ToOwner(down));
                }
            }
            _ => return,
        }
        self.kills += 1;
        for client in 0..self.clients.len() as u32 {
            self.give_up(client, node);
        }
        let at = self.now + self.rng.below(20 * self.settings.delay_max);
        self.at(at, Event::Restart(node));
    }

    fn restart(&mut self, node: Node) {
        match node {
            Node::Owner(id) => {
                let coordinators = (0..self.coordinators.len() as u32).map(CoordinatorId);
                let machine = &mut self.owners[id as usize];
                let (at, mut out, log) = (PartitionId(id), Vec::new(), machine.log.clone());
                let store = Store::new(at, KEYS, VALUE);
                machine.alive =
                    Some(Owner::recover(at, machine.incarnation, store, &self.options, log, coordinators, &mut out));
                machine.outputs.extend(out);
            }
            Node::Coordinator(id) => {
                let partitions = (0..self.settings.partitions).map(PartitionId);
                let machine = &mut self.coordinators[id as usize];
                let (mut out, log) = (Vec::new(), machine.log.clone());
                machine.alive =
                    Some(Coordinator::recover(CoordinatorId(id), machine.incarnation, log, partitions, &mut out));
                machine.outputs.extend(out);
            }
            Node::Client(_) => unreachable!("clients do not die"),
        }
        self.schedule_output(node);
    }
}

fn map<R, S, A>(outcome: Outcome<R, A>, f: impl FnOnce(R) -> S) -> Outcome<S, A> {
    match outcome {
        Outcome::Committed(reply) => Outcome::Committed(f(reply)),
        Outcome::UserAborted(abort) => Outcome::UserAborted(abort),
        Outcome::Conflict(conflict) => Outcome::Conflict(conflict),
        Outcome::Unavailable(partition) => Outcome::Unavailable(partition),
        Outcome::Misuse(misuse) => Outcome::Misuse(misuse),
        Outcome::Repeated => Outcome::Repeated,
    }
}
