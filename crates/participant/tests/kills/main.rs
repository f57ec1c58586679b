//! Owners with databases, coordinators and clients on one thread, in an order that a seed decides. Owners and
//! coordinators die between any two outputs and continue from their records. Committed answers must be there
//! at all partitions and nothing else; the recovered state must equal the state before. Under `locking` a
//! coordinator lives with each client. The records are in lists, or in databases on disks whose power is cut.

mod bank;
mod nodes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use seriatim::procedure::divided::{Call, Fragment, Reply, output};
use seriatim::{Database, Rng, TransactError, rng};
use seriatim_base::panic_text;
use seriatim_participant::{Caller, Deployed, Program, single};
use seriatim_partition::{
    Call as ToRun, ClientId, CoordinatorId, CoordinatorOutput, Fault, MessageOf, Options, Outcome, OwnerOutput,
    PartitionId, Scheme, ToCoordinator, ToOwner, TransactionId, inject,
};

use bank::{
    ACCOUNTS, CLIENTS, PARTITIONS, SUM, Wanted, audit, contents, divided, loaded, sign, swap, tell, toggle, transfer,
};
use nodes::{CoordinatorSetup, Disks, EventCounts, Kind, Lists, Node, OwnerNode, OwnerSetup};

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    Owner(u32),
    Coordinator(u32),
    Client(u32),
    /// The observer that sends notices of deaths.
    Notices,
}

/// Messages in transit, by receiver and sender.
type Queues<M> = BTreeMap<(u32, Sender), VecDeque<M>>;

/// A node dies, and the messages in transit to it are lost. Notices are late.
fn lose<M>(queues: &mut Queues<M>, to: u32) {
    let lost = queues.iter_mut().filter(|((at, from), _)| *at == to && *from != Sender::Notices);
    lost.for_each(|(_, queue)| queue.clear());
}

/// A possible next event.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The next output of an owner leaves.
    OwnerPutsOut(u32),
    CoordinatorPutsOut(u32),
    ToOwner(u32, Sender),
    ToCoordinator(u32, Sender),
    Ask(u32),
    Tick(u32),
    /// A node takes a checkpoint.
    Checkpoint(u32),
}

/// A call of a client, and its answer.
#[derive(Clone, Debug)]
struct Asked {
    call: Call,
    /// The accounts at which it leaves a mark.
    accounts: Vec<u32>,
    /// Whether it sums all accounts.
    audits: bool,
    /// Whether it committed, if it was answered.
    committed: Option<bool>,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
struct Ran {
    committed: u32,
    /// Answered read-only calls over all partitions.
    audits: u32,
    /// Deaths of owners.
    owners: u32,
    /// Deaths of coordinators.
    coordinators: u32,
    /// Events at nodes, and the state that restarted ones found.
    found: EventCounts,
}

#[derive(Clone, Default)]
struct Client {
    /// The number of its latest call.
    latest: u32,
    waits: BTreeSet<u32>,
}

struct Run<K: Kind> {
    rng: Rng,
    caller: Arc<Caller>,
    owners: Vec<K::Owner>,
    /// One for all clients, or one for each.
    coordinators: Vec<K::Coordinator>,
    to_owners: Queues<ToOwner<Fragment>>,
    to_coordinators: Queues<MessageOf<Program>>,
    asked: BTreeMap<(u32, u32), Asked>,
    clients: Vec<Client>,
    /// The most calls for which a client waits: one or two.
    under_way: usize,
    left: u32,
    ran: Ran,
}

impl<K: Kind> Run<K> {
    fn new(seed: u64, scheme: Scheme, calls: u32) -> Run<K> {
        let (mut rng, whole): (_, Database) = (Rng::from_seed(seed), loaded());
        let coordinators = if scheme.needs_one_coordinator() { 1 } else { CLIENTS };
        let owner = |id, rng: &mut Rng| {
            let setup = OwnerSetup { id, whole: whole.clone(), options: Options::new(scheme), coordinators };
            K::Owner::begin(setup, rng)
        };
        let owners = (0..PARTITIONS).map(|id| owner(id, &mut rng)).collect();
        let of = Deployed { number: 7, scheme, coordinators };
        let coordinators = (0..coordinators).map(|id| K::Coordinator::begin(CoordinatorSetup { id, of }, &mut rng));
        let coordinators = coordinators.collect();
        Run {
            rng,
            caller: Arc::new(Caller::new(divided())),
            owners,
            coordinators,
            to_owners: BTreeMap::new(),
            to_coordinators: BTreeMap::new(),
            asked: BTreeMap::new(),
            clients: vec![Client::default(); CLIENTS as usize],
            under_way: 1 + (seed % 2) as usize,
            left: calls,
            ran: Ran::default(),
        }
    }

    /// The coordinator of a client's transactions.
    fn coordinator_of(&self, client: u32) -> u32 {
        client % self.coordinators.len() as u32
    }

    fn ask(&mut self, client: u32) {
        let (of, rng) = (&mut self.clients[client as usize], &mut self.rng);
        of.latest += 1;
        of.waits.insert(of.latest);
        let number = of.latest;
        self.left -= 1;
        let (from, to) = (rng.below(ACCOUNTS.into()) as u32, rng.below(ACCOUNTS.into()) as u32);
        // Half of them at one partition.
        let to = if rng.below(2) == 0 { from % PARTITIONS + PARTITIONS * (to % 2) } else { to };
        let divided = self.caller.divided();
        let all: Vec<Wanted> = (0..ACCOUNTS).map(|id| Wanted { id }).collect();
        let kind = rng.below(8);
        let (call, accounts) = match kind {
            4 => (divided.call(audit, &all), Vec::new()),
            0 => (divided.call(toggle, &(client, number, from, rng.below(2) as u32)), vec![from]),
            1 => (divided.call(tell, &(client, number, from, to)), vec![from, to]),
            2 => (divided.call(swap, &(client, number, from, to)), vec![from, to]),
            3 => (divided.call(sign, &(client, number, from)), vec![from]),
            _ => (divided.call(transfer, &(client, number, from, to, rng.below(90) as i64)), vec![from, to]),
        };
        let call = call.expect("its arguments tell its partitions");
        let transaction = TransactionId { client: ClientId(client), number: number.into() };
        match single(&call) {
            Some((at, work)) => {
                let message = ToOwner::Call(ToRun { transaction, work, may_abort: true });
                self.to_owners.entry((at.0, Sender::Client(client))).or_default().push_back(message);
            }
            None => {
                let procedure = Program::new(Arc::clone(&self.caller), call.clone());
                let (to, message) = (self.coordinator_of(client), ToCoordinator::Call { transaction, procedure });
                self.to_coordinators.entry((to, Sender::Client(client))).or_default().push_back(message);
            }
        }
        self.asked.insert((client, number), Asked { call, accounts, audits: kind == 4, committed: None });
    }

    /// Notes an answer to a client; and the reply of its call, if there is one part.
    fn answer<R>(
        &mut self,
        transaction: TransactionId,
        outcome: &Outcome<R, TransactError>,
        found: impl FnOnce(&R) -> Option<&[u8]>,
    ) {
        let (client, number) = (transaction.client.0, transaction.number as u32);
        let committed = match outcome {
            Outcome::Committed(_) => true,
            Outcome::UserAborted(TransactError::DiskFull { .. }) => {
                self.ran.found.note("calls that a full disk refused", 1);
                false
            }
            Outcome::UserAborted(error) => {
                assert!(error.to_string().contains("not enough"), "{error}");
                false
            }
            Outcome::Conflict(_) | Outcome::Unavailable(_) => false,
            Outcome::Misuse(misuse) => panic!("{misuse}"),
            Outcome::Repeated => panic!("{transaction} is repeated"),
        };
        let asked = self.asked.get_mut(&(client, number)).expect("it was asked");
        asked.committed = Some(committed);
        if let Outcome::Committed(reply) = outcome {
            let found = found(reply).expect("a call that has committed has a result");
            if asked.audits {
                let sum = output(audit, found).expect("its result");
                assert_eq!(sum, SUM * i64::from(ACCOUNTS), "{transaction} has seen what never was");
                self.ran.audits += 1;
            }
        }
        self.clients[client as usize].waits.remove(&number);
    }

    /// Clients that wait for a dead node continue without knowing how their calls ended: at a partition, or
    /// through a coordinator.
    fn give_up(&mut self, partition: Option<u32>, coordinator: Option<u32>) {
        for client in 0..CLIENTS {
            let through = self.coordinator_of(client);
            let asked = &self.asked;
            self.clients[client as usize].waits.retain(|number| match single(&asked[&(client, *number)].call) {
                Some((at, _)) => Some(at.0) != partition,
                None => Some(through) != coordinator,
            });
        }
    }

    fn owner_puts_out(&mut self, id: u32) {
        match self.owners[id as usize].put_out() {
            Ok(None | Some(OwnerOutput::Keep(..))) => {}
            Ok(Some(OwnerOutput::Send { to, message })) => {
                let queue = self.to_coordinators.entry((to.0, Sender::Owner(id))).or_default();
                queue.push_back(ToCoordinator::Owner(message));
            }
            Ok(Some(OwnerOutput::Reply { transaction, outcome })) => {
                self.answer(transaction, &outcome, |reply| match reply {
                    Reply::Output(output) => Some(output),
                    Reply::Results(_) => None,
                });
            }
            Err(()) => self.kill_owner(id),
        }
    }

    fn coordinator_puts_out(&mut self, id: u32) {
        match self.coordinators[id as usize].put_out() {
            Ok(None | Some(CoordinatorOutput::Keep(..))) => {}
            Ok(Some(CoordinatorOutput::Send { to, message })) => {
                let queue = self.to_owners.entry((to.0, Sender::Coordinator(id))).or_default();
                queue.push_back(ToOwner::Coordinator(message));
            }
            Ok(Some(CoordinatorOutput::Reply { transaction, outcome })) => {
                self.answer(transaction, &outcome, |output| Some(output));
            }
            Ok(Some(CoordinatorOutput::Broken { transaction, partition })) => {
                panic!("{transaction} is not done at {partition}")
            }
            Err(()) => self.kill_coordinator(id),
        }
    }

    /// The owner dies, and restarts.
    fn kill_owner(&mut self, id: u32) {
        self.ran.owners += 1;
        let incarnation = self.owners[id as usize].die(&mut self.rng);
        lose(&mut self.to_owners, id);
        self.give_up(Some(id), None);
        for coordinator in 0..self.coordinators.len() as u32 {
            let queue = self.to_coordinators.entry((coordinator, Sender::Notices)).or_default();
            queue.push_back(ToCoordinator::PartitionDown { partition: PartitionId(id), incarnation });
        }
    }

    /// The coordinator dies, and restarts.
    fn kill_coordinator(&mut self, id: u32) {
        self.ran.coordinators += 1;
        let incarnation = self.coordinators[id as usize].die(&mut self.rng);
        lose(&mut self.to_coordinators, id);
        self.give_up(None, Some(id));
        for owner in 0..PARTITIONS {
            let queue = self.to_owners.entry((owner, Sender::Notices)).or_default();
            queue.push_back(ToOwner::CoordinatorDown { coordinator: CoordinatorId(id), incarnation });
        }
    }

    /// A node dies, at once or soon; or all do.
    fn kill(&mut self) {
        let (owners, all) = (PARTITIONS, PARTITIONS + self.coordinators.len() as u32);
        let soon = self.rng.below(2) == 0;
        match self.rng.below(u64::from(all) + 1) as u32 {
            id if id < owners && soon && self.owners[id as usize].hit(&mut self.rng) => {}
            id if id < owners => self.kill_owner(id),
            id if id < all && soon && self.coordinators[(id - owners) as usize].hit(&mut self.rng) => {}
            id if id < all => self.kill_coordinator(id - owners),
            _ => {
                (0..owners).for_each(|id| self.kill_owner(id));
                (owners..all).for_each(|id| self.kill_coordinator(id - owners));
            }
        }
    }

    fn tell_owner(&mut self, id: u32, message: ToOwner<Fragment>) {
        if !self.owners[id as usize].tell(message) {
            self.kill_owner(id);
        }
    }

    fn tell_coordinator(&mut self, id: u32, message: MessageOf<Program>) {
        if !self.coordinators[id as usize].tell(message) {
            self.kill_coordinator(id);
        }
    }

    /// All possible next events.
    fn can(&self) -> Vec<Step> {
        let (owners, coordinators) = (0..PARTITIONS, 0..self.coordinators.len() as u32);
        let mut can = Vec::new();
        let puts_out = |id: &u32| self.owners[*id as usize].has_output();
        can.extend(owners.clone().filter(puts_out).map(Step::OwnerPutsOut));
        let puts_out = |id: &u32| self.coordinators[*id as usize].has_output();
        can.extend(coordinators.filter(puts_out).map(Step::CoordinatorPutsOut));
        let queued = self.to_owners.iter().filter(|(_, queue)| !queue.is_empty());
        can.extend(queued.map(|((to, from), _)| Step::ToOwner(*to, *from)));
        let queued = self.to_coordinators.iter().filter(|(_, queue)| !queue.is_empty());
        can.extend(queued.map(|((to, from), _)| Step::ToCoordinator(*to, *from)));
        if self.left > 0 {
            can.extend(
                (0..CLIENTS)
                    .filter(|client| self.clients[*client as usize].waits.len() < self.under_way)
                    .map(Step::Ask),
            );
        }
        if can.is_empty() {
            can.extend(owners.filter(|id| self.owners[*id as usize].owner().wants_ticks()).map(Step::Tick));
        }
        can
    }

    /// A disk gets full, or all have space again.
    fn fill(&mut self, fills: bool) {
        if fills && self.left > 0 && self.rng.below(3) == 0 {
            let id = self.rng.below(u64::from(PARTITIONS) + self.coordinators.len() as u64) as u32;
            return match id.checked_sub(PARTITIONS) {
                None => self.owners[id as usize].set_full(true),
                Some(id) => self.coordinators[id as usize].set_full(true),
            };
        }
        self.owners.iter_mut().for_each(|owner| owner.set_full(false));
        self.coordinators.iter_mut().for_each(|coordinator| coordinator.set_full(false));
    }

    /// Runs a possible event; `false` if there is none.
    fn step(&mut self, kill_every: u64) -> bool {
        if self.left == 0 || kill_every > 0 && self.rng.below(30) == 0 {
            self.fill(kill_every > 0);
        }
        if kill_every > 0 && self.left > 0 && self.rng.below(kill_every) == 0 {
            self.kill();
            return true;
        }
        let mut can = self.can();
        if !can.is_empty() && self.rng.below(100) == 0 {
            let all = u64::from(PARTITIONS) + self.coordinators.len() as u64;
            can = vec![Step::Checkpoint(self.rng.below(all) as u32)];
        }
        let Some(step) = can.get(self.rng.below(can.len().max(1) as u64) as usize) else { return false };
        match *step {
            Step::OwnerPutsOut(id) => self.owner_puts_out(id),
            Step::CoordinatorPutsOut(id) => self.coordinator_puts_out(id),
            Step::ToOwner(to, from) => {
                let message = self.to_owners.get_mut(&(to, from)).and_then(VecDeque::pop_front);
                self.tell_owner(to, message.expect("there is one"));
            }
            Step::ToCoordinator(to, from) => {
                let message = self.to_coordinators.get_mut(&(to, from)).and_then(VecDeque::pop_front);
                self.tell_coordinator(to, message.expect("there is one"));
            }
            Step::Ask(client) => self.ask(client),
            Step::Tick(id) => self.tell_owner(id, ToOwner::Tick),
            Step::Checkpoint(id) if id < PARTITIONS => {
                if !self.owners[id as usize].checkpoint() {
                    self.kill_owner(id);
                }
            }
            Step::Checkpoint(id) => {
                if !self.coordinators[(id - PARTITIONS) as usize].checkpoint() {
                    self.kill_coordinator(id - PARTITIONS);
                }
            }
        }
        true
    }

    /// Checks the state when no transaction is under way.
    fn check(mut self) -> Ran {
        assert!(self.coordinators.iter().all(Node::is_idle), "something is under way at a coordinator");
        let mut rows = Vec::new();
        for id in 0..PARTITIONS {
            let node = &mut self.owners[id as usize];
            assert!(node.is_idle(), "something is under way at partition {id}");
            let here = contents(node.owner().partition().divided().database());
            // Promise (a): the recorded work, run again, gives the same state. On disk the stored state must
            // be the same.
            node.look_again(|again| {
                assert_eq!(contents(again.partition().divided().database()), here, "partition {id} recovered");
            });
            rows.extend(here);
            self.ran.found.add(&node.found());
        }
        for coordinator in &self.coordinators {
            self.ran.found.add(&coordinator.found());
        }
        let latest: BTreeSet<&String> = rows.iter().filter(|row| row.starts_with("latest ")).collect();
        assert_eq!(latest.len(), 1, "half of a change of what every partition has: {latest:?}");
        let sums = rows.iter().filter_map(|row| row.strip_prefix("account ")?.split(' ').nth(1)?.strip_suffix("i64"));
        let sum: i64 = sums.map(|sum| sum.parse::<i64>().expect("a number")).sum();
        assert_eq!(sum, SUM * i64::from(ACCOUNTS));
        for ((client, number), asked) in std::mem::take(&mut self.asked) {
            let has = |account: &u32| rows.contains(&format!("mark {account}u32 {client}u32 {number}u32"));
            let marks: Vec<bool> = asked.accounts.iter().map(has).collect();
            if asked.audits {
                continue;
            }
            let (all, any) = (marks.iter().all(|has| *has), marks.iter().any(|has| *has));
            let is_latest = latest.contains(&format!("latest 0u32 {client}u32 {number}u32"));
            assert!(all || !is_latest, "half of {client}.{number} is everywhere: {asked:?}");
            assert_eq!(all, any, "half of {client}.{number} is there: {asked:?}");
            if let Some(told) = asked.committed {
                assert_eq!(told, all, "{client}.{number}: {asked:?}");
            }
            self.ran.committed += u32::from(all);
        }
        self.ran
    }
}

fn run<K: Kind>(seed: u64, scheme: Scheme, kill_every: u64, calls: u32) -> Ran {
    let mut run = Run::<K>::new(seed, scheme, calls);
    let mut steps = 0;
    while run.step(kill_every) {
        steps += 1;
        assert!(steps < 1_000_000, "it does not come to an end");
    }
    run.check()
}

#[test]
fn nothing_is_lost_or_half_there_under_any_scheme() {
    let seed = rng::seed("nothing_is_lost_or_half_there_under_any_scheme");
    for scheme in Scheme::ALL {
        for at in 0..3 {
            let ran = run::<Lists>(seed.wrapping_add(at), scheme, 0, 200);
            assert!(ran.committed > 40 && ran.owners + ran.coordinators == 0, "{}: {ran:?}", scheme.name());
        }
    }
}

#[test]
fn owners_and_coordinators_that_die_between_any_two_outputs_continue_from_their_records() {
    let seed = rng::seed("owners_and_coordinators_that_die_between_any_two_outputs_go_on_from_their_records");
    for scheme in Scheme::ALL {
        let (mut owners, mut coordinators) = (0, 0);
        for at in 0..4 {
            let ran = run::<Lists>(seed.wrapping_add(at), scheme, 40 + 30 * at, 250);
            eprintln!("{}, {at}: {ran:?}", scheme.name());
            assert!(ran.committed > 5, "{}: {ran:?}", scheme.name());
            (owners, coordinators) = (owners + ran.owners, coordinators + ran.coordinators);
        }
        assert!(owners > 10 && coordinators > 2, "{}: {owners}, {coordinators}", scheme.name());
    }
}

/// Runs after which an event counts as never seen; the rarest occurs once in several runs.
const RUNS_MAX: u64 = 60;

/// The events that runs on disks must all reach.
fn wanted(scheme: Scheme) -> Vec<&'static str> {
    let mut wanted = vec![
        "votes in doubt",
        "votes after two rounds",
        "fragments without a vote",
        "undecided changes of what every partition has",
        "commits to be repeated",
        "deaths of who held outputs",
        "beginnings that were cut short",
        "calls that a full disk refused",
    ];
    if scheme == Scheme::Speculation || scheme == Scheme::Locking {
        wanted.push("votes beside votes");
    }
    if scheme == Scheme::Speculation || scheme == Scheme::LocalSpeculation {
        wanted.push("speculated calls");
    }
    wanted
}

#[test]
#[ignore = "nightly: half a minute"]
fn databases_that_lose_power_between_any_two_messages_continue_from_their_disks() {
    let seed = rng::seed("databases_that_lose_power_between_any_two_messages_go_on_from_their_disks");
    for scheme in Scheme::ALL {
        let (wanted, mut all) = (wanted(scheme), Ran::default());
        let is_covered = |all: &Ran| {
            let has_ran = all.committed > 10 && all.audits > 0 && all.owners > 8 && all.coordinators > 2;
            has_ran && wanted.iter().all(|what| all.found.of(what) > 0)
        };
        for at in 0.. {
            let ran = run::<Disks>(seed.wrapping_add(at), scheme, 60 + 60 * (at % 3), 120);
            all.committed += ran.committed;
            all.audits += ran.audits;
            all.owners += ran.owners;
            all.coordinators += ran.coordinators;
            all.found.add(&ran.found);
            if at >= 2 && is_covered(&all) {
                eprintln!("{}, {} runs: {all:?}", scheme.name(), at + 1);
                break;
            }
            assert!(at < RUNS_MAX, "{} has not met all of {wanted:?}: {all:?}", scheme.name());
        }
    }
}

/// One of several runs must notice a fault, with one of these messages; other panics do not count.
fn is_noticed<K: Kind>(mistake: Fault, scheme: Scheme, kill_every: u64, calls: u32, words: &[&str]) {
    let mut others = BTreeSet::new();
    for seed in 0..150 {
        inject(Some(mistake));
        let ran = catch_unwind(AssertUnwindSafe(|| run::<K>(seed, scheme, kill_every, calls)));
        inject(None);
        let Err(panic) = ran else { continue };
        let said = panic_text(&*panic).unwrap_or_default();
        if words.iter().any(|words| said.contains(words)) {
            return eprintln!("{}, seed {seed} notices {mistake:?}: {said}", scheme.name());
        }
        others.insert(said);
    }
    panic!("{mistake:?} is not noticed under {}, only {others:?}", scheme.name());
}

/// At the end half of a transaction exists, a client was told something else, or the state differs. Or a sum is wrong,
/// or a coordinator raises an alarm.
const WORDS: [&str; 3] = ["half of", "assertion", "is not done at"];

/// Faults of owners, which these runs must notice.
#[test]
fn canary_faults_of_owners_are_noticed() {
    // A fragment that was not undone collides with the same transaction when it runs again, or with a later
    // undo.
    let kept = ["half of", "duplicate key account", "has seen what never was"];
    for (scheme, mistake, words) in [
        (Scheme::Speculation, Fault::UndoDroppedEarly, &kept[..]),
        (Scheme::Speculation, Fault::DependencyLost, &WORDS),
        (Scheme::Speculation, Fault::CascadeMissed, &kept),
        (Scheme::Speculation, Fault::ReplyLeaked, &WORDS),
        (Scheme::Blocking, Fault::UndoDroppedEarly, &WORDS),
        (Scheme::Locking, Fault::LockSkipped, &WORDS),
    ] {
        is_noticed::<Lists>(mistake, scheme, 0, 200, words);
    }
}

/// Faults that show only if a node dies.
#[test]
#[ignore = "nightly: a minute"]
fn canary_faults_before_deaths_are_noticed() {
    for scheme in Scheme::ALL {
        for mistake in [Fault::PrepareForgotten, Fault::DecisionHalfPersisted, Fault::VotedUndone] {
            is_noticed::<Lists>(mistake, scheme, 40, 200, &WORDS);
        }
    }
}

/// Faults of nodes with durable state, and of owners that lose their power.
#[test]
#[ignore = "nightly: a minute"]
fn canary_faults_with_disks_are_noticed() {
    for (scheme, mistake) in [
        (Scheme::Blocking, Fault::LeftEarly),
        (Scheme::Speculation, Fault::LeftEarly),
        (Scheme::Locking, Fault::LeftEarly),
        (Scheme::Blocking, Fault::VotesForgotten),
        (Scheme::Speculation, Fault::VotesForgotten),
        (Scheme::Locking, Fault::VotesForgotten),
        (Scheme::Blocking, Fault::PrepareForgotten),
        (Scheme::Speculation, Fault::UndoApart),
        (Scheme::Locking, Fault::UndoApart),
        (Scheme::Speculation, Fault::OwedForgotten),
        (Scheme::Locking, Fault::OwedForgotten),
        (Scheme::Speculation, Fault::DecisionLeftEarly),
        (Scheme::Locking, Fault::DecisionLeftEarly),
    ] {
        is_noticed::<Disks>(mistake, scheme, 60, 120, &WORDS);
    }
}
