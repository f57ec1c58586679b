//! Owners with databases, coordinators and clients on one thread, in an order that a seed decides, with owners and coordinators that die between any two
//! outputs and go on from their records: what clients were told is there at all partitions, nothing else is, and what was recovered is what was there.
//! Under `locking` a coordinator lives with each client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use seriatim::procedure::divided::{Call, Fragment, Reply};
use seriatim::{Abort, Database, Rng, Table, TransactError, Tx, procedure, procedures, rng};
use seriatim_base::panic_text;
use seriatim_participant::{Caller, Participant, Program, single};
use seriatim_partition::{
    Call as ToRun, ClientId, Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorOutputOf, CoordinatorRecord,
    Fault, Kept, MessageOf, Options, Outcome, Owner, OwnerOutput, OwnerOutputOf, OwnerRecord, PartitionId, Scheme,
    ToCoordinator, ToOwner, TransactionId, inject,
};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "account", key(id), ordered)]
struct Account {
    id: u32,
    sum: i64,
    seen: i64,
    slot: Option<u32>,
}

/// What a call leaves at each of its accounts.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "mark", key(account, client, number), cluster(account, client))]
struct Mark {
    account: u32,
    client: u32,
    number: u32,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "slot", key(account, at), ordered)]
struct Slot {
    account: u32,
    at: u32,
    count: u32,
}

/// Moves an amount, in one round. Whether there was enough, only one of the two partitions knows; both have done their part.
#[procedure]
fn transfer(tx: &Tx, client: u32, number: u32, from: u32, to: u32, amount: i64) -> Result<(), Abort> {
    tx.insert(Mark { account: from, client, number })?;
    if from != to {
        tx.insert(Mark { account: to, client, number })?;
    }
    let left = tx.update::<Account>(from, |account| {
        account.sum -= amount;
        account.sum
    })?;
    tx.update::<Account>(to, |account| account.sum += amount)?;
    if left < 0 {
        return Err(tx.abort("not enough"));
    }
    Ok(())
}

/// Tells one account what another has, in two rounds.
#[procedure]
fn tell(tx: &Tx, client: u32, number: u32, from: u32, to: u32) -> Result<i64, Abort> {
    tx.insert(Mark { account: from, client, number })?;
    let row = tx.require::<Account>(from)?;
    let sum = row.sum;
    tx.update::<Account>(to, |account| account.seen = sum)?;
    if from != to {
        tx.insert(Mark { account: to, client, number })?;
    }
    Ok(sum)
}

/// Puts something where nothing is, and takes it away where it is.
#[procedure]
fn toggle(tx: &Tx, client: u32, number: u32, account: u32, at: u32) -> Result<bool, Abort> {
    tx.insert(Mark { account, client, number })?;
    let gone = tx.delete_if::<Slot>((account, at))?;
    if !gone {
        tx.insert(Slot { account, at, count: number })?;
    }
    tx.update::<Account>(account, |row| row.slot = Some(at))?;
    Ok(gone)
}

const PARTITIONS: u32 = 3;
const ACCOUNTS: u32 = 7;
const CLIENTS: u32 = 5;
const SUM: i64 = 60;

fn declare() -> Database {
    let db = Database::builder().partitions(PARTITIONS as usize).workers(2).step_helpers(true).open();
    let db = db.expect("a valid number");
    db.create::<Account>().expect("a valid table");
    db.create::<Mark>().expect("a valid table");
    db.create::<Slot>().expect("a valid table");
    db.register(procedures![transfer, tell, toggle]).expect("sound procedures");
    db
}

fn loaded() -> Database {
    let db = declare();
    let accounts = db.table::<Account>().expect("it is there");
    let account = |id| Account { id, sum: SUM, seen: 0, slot: None };
    let load = db.session().transact(|tx| (0..ACCOUNTS).try_for_each(|id| tx.insert(&accounts, &account(id))));
    load.expect("nobody is about");
    db
}

fn partition(whole: &Database, id: u32) -> Participant {
    let divided = declare().divide().expect("all can be divided");
    divided.fill(whole, id as usize).expect("an empty database");
    let digest = divided.digest();
    Participant::new(divided, PartitionId(id), digest, true).expect("its own procedures")
}

fn partitions() -> impl Iterator<Item = PartitionId> {
    (0..PARTITIONS).map(PartitionId)
}

fn contents(db: &Database) -> Vec<String> {
    let mut all = Vec::new();
    for name in db.table_names() {
        let table = db.open_dyn(&name).expect("it is listed");
        let rows = db.session().transact(|tx| {
            tx.scan_dyn(&table, &[])?.map(|row| Ok(format!("{name} {:?}", row?))).collect::<Result<Vec<_>, Abort>>()
        });
        all.extend(rows.expect("nobody is about").into_value());
    }
    all
}

/// One that can die, what it has yet to put out, and what is kept of it.
struct Node<M, O, R> {
    role: M,
    out: VecDeque<O>,
    log: Vec<R>,
    /// Records at the end of the log that may be lost.
    volatile: usize,
    life: u64,
}

impl<M, O, R> Node<M, O, R> {
    fn new(role: M) -> Node<M, O, R> {
        Node { role, out: VecDeque::new(), log: Vec::new(), volatile: 0, life: 0 }
    }

    fn keep(&mut self, kept: Kept, record: R) {
        self.log.push(record);
        self.volatile = if kept == Kept::Forced { 0 } else { self.volatile + 1 };
    }

    /// What it had yet to put out is lost, and what was not durable perhaps. The life that has ended.
    fn die(&mut self, rng: &mut Rng) -> u64 {
        let lost = rng.below(self.volatile as u64 + 1) as usize;
        self.log.truncate(self.log.len() - lost);
        self.out.clear();
        (self.volatile, self.life) = (0, self.life + 1);
        self.life - 1
    }
}

type OwnerNode = Node<Owner<Participant>, OwnerOutputOf<Participant>, OwnerRecord<Fragment>>;
type CoordinatorNode = Node<Coordinator<Program>, CoordinatorOutputOf<Program>, CoordinatorRecord>;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    Owner(u32),
    Coordinator(u32),
    Client(u32),
    /// Whoever notices deaths.
    Notices,
}

/// What is on its way, by receiver and sender.
type Queues<M> = BTreeMap<(u32, Sender), VecDeque<M>>;

/// One dies, and what is on its way to it is lost. Notices are late.
fn lose<M>(queues: &mut Queues<M>, to: u32) {
    let lost = queues.iter_mut().filter(|((at, from), _)| *at == to && *from != Sender::Notices);
    lost.for_each(|(_, queue)| queue.clear());
}

/// What can happen.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The next output of an owner leaves.
    OwnerPutsOut(u32),
    CoordinatorPutsOut(u32),
    ToOwner(u32, Sender),
    ToCoordinator(u32, Sender),
    Ask(u32),
    Tick(u32),
}

/// What a client asked for, and was told.
#[derive(Clone, Debug)]
struct Asked {
    call: Call,
    accounts: Vec<u32>,
    /// Whether it committed, if it was answered.
    committed: Option<bool>,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    committed: u32,
    /// Deaths of owners.
    owners: u32,
    /// Deaths of coordinators.
    coordinators: u32,
}

struct Run {
    rng: Rng,
    options: Options,
    whole: Database,
    caller: Arc<Caller>,
    owners: Vec<OwnerNode>,
    /// One for all, or one for each client.
    coordinators: Vec<CoordinatorNode>,
    to_owners: Queues<ToOwner<Fragment>>,
    to_coordinators: Queues<MessageOf<Program>>,
    asked: BTreeMap<(u32, u32), Asked>,
    /// By client: the number of its latest call, if it waits for that one.
    waits: Vec<(u32, bool)>,
    left: u32,
    ran: Ran,
}

impl Run {
    fn new(seed: u64, scheme: Scheme) -> Run {
        let (whole, options) = (loaded(), Options::new(scheme));
        let caller = Arc::new(Caller::new(declare().divide().expect("all can be divided")));
        let owner = |id: PartitionId| Node::new(Owner::new(id, partition(&whole, id.0), &options));
        let owners = partitions().map(owner).collect();
        let coordinators = if scheme.needs_one_coordinator() { 1 } else { CLIENTS };
        let coordinator = |id| Node::new(Coordinator::new(CoordinatorId(id), partitions()));
        Run {
            rng: Rng::from_seed(seed),
            options,
            caller,
            owners,
            coordinators: (0..coordinators).map(coordinator).collect(),
            to_owners: BTreeMap::new(),
            to_coordinators: BTreeMap::new(),
            asked: BTreeMap::new(),
            waits: vec![(0, false); CLIENTS as usize],
            left: 200,
            ran: Ran::default(),
            whole,
        }
    }

    /// Through whom a client's transactions go.
    fn coordinator_of(&self, client: u32) -> u32 {
        client % self.coordinators.len() as u32
    }

    fn ask(&mut self, client: u32) {
        let (number, rng) = (self.waits[client as usize].0 + 1, &mut self.rng);
        self.waits[client as usize] = (number, true);
        self.left -= 1;
        let (from, to) = (rng.below(ACCOUNTS.into()) as u32, rng.below(ACCOUNTS.into()) as u32);
        // Half of them at one partition.
        let to = if rng.below(2) == 0 { from % PARTITIONS + PARTITIONS * (to % 2) } else { to };
        let divided = self.caller.divided();
        let (call, accounts) = match rng.below(4) {
            0 => (divided.call(toggle, &(client, number, from, rng.below(2) as u32)), vec![from]),
            1 => (divided.call(tell, &(client, number, from, to)), vec![from, to]),
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
        self.asked.insert((client, number), Asked { call, accounts, committed: None });
    }

    fn answer<R>(&mut self, transaction: TransactionId, outcome: &Outcome<R, TransactError>) {
        let (client, number) = (transaction.client.0, transaction.number as u32);
        let committed = match outcome {
            Outcome::Committed(_) => true,
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
        if self.waits[client as usize].0 == number {
            self.waits[client as usize].1 = false;
        }
    }

    /// Those who wait for one that has died go on, and do not know how their calls ended: at a partition, or through a coordinator.
    fn give_up(&mut self, partition: Option<u32>, coordinator: Option<u32>) {
        for client in 0..CLIENTS {
            let number = self.waits[client as usize].0;
            let Some(asked) = self.asked.get(&(client, number)) else { continue };
            let is_lost = match single(&asked.call) {
                Some((at, _)) => Some(at.0) == partition,
                None => Some(self.coordinator_of(client)) == coordinator,
            };
            self.waits[client as usize].1 &= !is_lost;
        }
    }

    fn owner_puts_out(&mut self, id: u32) {
        let node = &mut self.owners[id as usize];
        match node.out.pop_front().expect("there is one") {
            OwnerOutput::Keep(kept, record) => node.keep(kept, record),
            OwnerOutput::Send { to, message } => {
                let queue = self.to_coordinators.entry((to.0, Sender::Owner(id))).or_default();
                queue.push_back(ToCoordinator::Owner(message));
            }
            OwnerOutput::Reply { transaction, outcome } => {
                let is_whole = !matches!(&outcome, Outcome::Committed(Reply::Found(_)));
                assert!(is_whole, "{transaction} has no result");
                self.answer(transaction, &outcome);
            }
        }
    }

    fn coordinator_puts_out(&mut self, id: u32) {
        let node = &mut self.coordinators[id as usize];
        match node.out.pop_front().expect("there is one") {
            CoordinatorOutput::Keep(kept, record) => node.keep(kept, record),
            CoordinatorOutput::Send { to, message } => {
                let queue = self.to_owners.entry((to.0, Sender::Coordinator(id))).or_default();
                queue.push_back(ToOwner::Coordinator(message));
            }
            CoordinatorOutput::Reply { transaction, outcome } => self.answer(transaction, &outcome),
            CoordinatorOutput::Broken { transaction, partition } => {
                panic!("{transaction} is not done at {partition}")
            }
        }
    }

    fn recovered(&self, id: u32, out: &mut Vec<OwnerOutputOf<Participant>>) -> Owner<Participant> {
        let (node, fresh) = (&self.owners[id as usize], partition(&self.whole, id));
        let coordinators = (0..self.coordinators.len() as u32).map(CoordinatorId);
        let records = node.log.iter().cloned();
        Owner::recover(PartitionId(id), node.life, fresh, &self.options, records, coordinators, out)
    }

    /// The owner dies, and lives again.
    fn kill_owner(&mut self, id: u32) {
        self.ran.owners += 1;
        let life = self.owners[id as usize].die(&mut self.rng);
        lose(&mut self.to_owners, id);
        self.give_up(Some(id), None);
        for coordinator in 0..self.coordinators.len() as u32 {
            let queue = self.to_coordinators.entry((coordinator, Sender::Notices)).or_default();
            queue.push_back(ToCoordinator::PartitionDown { partition: PartitionId(id), life });
        }
        let mut out = Vec::new();
        let owner = self.recovered(id, &mut out);
        let node = &mut self.owners[id as usize];
        (node.role, node.out) = (owner, out.into());
    }

    /// The coordinator dies, and lives again.
    fn kill_coordinator(&mut self, id: u32) {
        self.ran.coordinators += 1;
        let life = self.coordinators[id as usize].die(&mut self.rng);
        lose(&mut self.to_coordinators, id);
        self.give_up(None, Some(id));
        for owner in 0..PARTITIONS {
            let queue = self.to_owners.entry((owner, Sender::Notices)).or_default();
            queue.push_back(ToOwner::CoordinatorDown { coordinator: CoordinatorId(id), life });
        }
        let (mut out, node) = (Vec::new(), &mut self.coordinators[id as usize]);
        let records = node.log.iter().cloned();
        node.role = Coordinator::recover(CoordinatorId(id), node.life, records, partitions(), &mut out);
        node.out = out.into();
    }

    fn tell_owner(&mut self, id: u32, message: ToOwner<Fragment>) {
        let (mut out, node) = (Vec::new(), &mut self.owners[id as usize]);
        node.role.handle(message, &mut out);
        node.out.extend(out);
    }

    fn tell_coordinator(&mut self, id: u32, message: MessageOf<Program>) {
        let (mut out, node) = (Vec::new(), &mut self.coordinators[id as usize]);
        node.role.handle(message, &mut out);
        node.out.extend(out);
    }

    /// All that can happen next.
    fn can(&self) -> Vec<Step> {
        let (owners, coordinators) = (0..PARTITIONS, 0..self.coordinators.len() as u32);
        let mut can = Vec::new();
        let puts_out = |id: &u32| !self.owners[*id as usize].out.is_empty();
        can.extend(owners.clone().filter(puts_out).map(Step::OwnerPutsOut));
        let puts_out = |id: &u32| !self.coordinators[*id as usize].out.is_empty();
        can.extend(coordinators.filter(puts_out).map(Step::CoordinatorPutsOut));
        let queued = self.to_owners.iter().filter(|(_, queue)| !queue.is_empty());
        can.extend(queued.map(|((to, from), _)| Step::ToOwner(*to, *from)));
        let queued = self.to_coordinators.iter().filter(|(_, queue)| !queue.is_empty());
        can.extend(queued.map(|((to, from), _)| Step::ToCoordinator(*to, *from)));
        if self.left > 0 {
            can.extend((0..CLIENTS).filter(|client| !self.waits[*client as usize].1).map(Step::Ask));
        }
        if can.is_empty() {
            can.extend(owners.filter(|id| self.owners[*id as usize].role.wants_ticks()).map(Step::Tick));
        }
        can
    }

    /// Something that can happen; `false`: nothing can.
    fn step(&mut self, kill_every: u64) -> bool {
        if kill_every > 0 && self.left > 0 && self.rng.below(kill_every) == 0 {
            let all = u64::from(PARTITIONS) + self.coordinators.len() as u64;
            match self.rng.below(all) as u32 {
                id if id < PARTITIONS => self.kill_owner(id),
                id => self.kill_coordinator(id - PARTITIONS),
            }
            return true;
        }
        let can = self.can();
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
        }
        true
    }

    /// What must hold when nothing is under way.
    fn check(mut self) -> Ran {
        assert!(self.coordinators.iter().all(|node| node.role.is_idle()), "something is under way at a coordinator");
        let mut rows = Vec::new();
        for id in 0..PARTITIONS {
            let owner = &self.owners[id as usize].role;
            assert!(owner.is_idle(), "something is under way at partition {id}");
            let here = contents(owner.partition().divided().database());
            // Promise (a): what was recorded, run again, comes to the same.
            let again = self.recovered(id, &mut Vec::new());
            assert_eq!(contents(again.partition().divided().database()), here, "partition {id} recovered");
            rows.extend(here);
        }
        let sums =
            rows.iter().filter_map(|row| row.strip_prefix("account [UInt(")?.split("Int(").nth(1)?.split(')').next());
        let sum: i64 = sums.map(|sum| sum.parse::<i64>().expect("a number")).sum();
        assert_eq!(sum, SUM * i64::from(ACCOUNTS));
        for ((client, number), asked) in std::mem::take(&mut self.asked) {
            let has = |account: &u32| rows.contains(&format!("mark [UInt({account}), UInt({client}), UInt({number})]"));
            let marks: Vec<bool> = asked.accounts.iter().map(has).collect();
            let (all, any) = (marks.iter().all(|has| *has), marks.iter().any(|has| *has));
            assert_eq!(all, any, "half of {client}.{number} is there: {asked:?}");
            if let Some(told) = asked.committed {
                assert_eq!(told, all, "{client}.{number}: {asked:?}");
            }
            self.ran.committed += u32::from(all);
        }
        self.ran
    }
}

fn run(seed: u64, scheme: Scheme, kill_every: u64) -> Ran {
    let mut run = Run::new(seed, scheme);
    let mut steps = 0;
    while run.step(kill_every) {
        steps += 1;
        assert!(steps < 1_000_000, "it does not come to an end");
    }
    run.check()
}

fn seed(test: &str) -> u64 {
    let given = std::env::var("SERIATIM_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(rng::entropy);
    eprintln!("{test}: SERIATIM_SEED={seed}");
    seed
}

#[test]
fn nothing_is_lost_or_half_there_under_any_scheme() {
    let seed = seed("nothing_is_lost_or_half_there_under_any_scheme");
    for scheme in Scheme::ALL {
        for at in 0..3 {
            let ran = run(seed.wrapping_add(at), scheme, 0);
            assert!(ran.committed > 40 && ran.owners + ran.coordinators == 0, "{}: {ran:?}", scheme.name());
        }
    }
}

#[test]
fn owners_and_coordinators_that_die_between_any_two_outputs_go_on_from_their_records() {
    let seed = seed("owners_and_coordinators_that_die_between_any_two_outputs_go_on_from_their_records");
    for scheme in Scheme::ALL {
        let (mut owners, mut coordinators) = (0, 0);
        for at in 0..4 {
            let ran = run(seed.wrapping_add(at), scheme, 40 + 30 * at);
            eprintln!("{}, {at}: {ran:?}", scheme.name());
            assert!(ran.committed > 5, "{}: {ran:?}", scheme.name());
            (owners, coordinators) = (owners + ran.owners, coordinators + ran.coordinators);
        }
        assert!(owners > 10 && coordinators > 2, "{}: {owners}, {coordinators}", scheme.name());
    }
}

/// One of some runs must notice a mistake, in these words; other panics do not count.
fn is_noticed(mistake: Fault, scheme: Scheme, kill_every: u64, words: &[&str]) {
    let mut others = BTreeSet::new();
    for seed in 0..40 {
        inject(Some(mistake));
        let ran = catch_unwind(AssertUnwindSafe(|| run(seed, scheme, kill_every)));
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

/// At the end half of a transaction is there, or not what its client was told, or not what was there, or a sum is wrong; or a coordinator raises an alarm.
const WORDS: [&str; 3] = ["half of", "assertion", "is not done at"];

/// Mistakes of owners, which these runs must notice.
#[test]
fn canary_mistakes_of_owners_are_noticed() {
    // What was not taken back is in the way: of the same transaction when it runs again, or of what is taken back after it.
    let kept = ["half of", "duplicate key account"];
    for (scheme, mistake, words) in [
        (Scheme::Speculation, Fault::UndoDroppedEarly, &kept[..]),
        (Scheme::Speculation, Fault::DependencyLost, &WORDS),
        (Scheme::Speculation, Fault::CascadeMissed, &kept),
        (Scheme::Speculation, Fault::ReplyLeaked, &WORDS),
        (Scheme::Blocking, Fault::UndoDroppedEarly, &WORDS),
        (Scheme::Locking, Fault::LockSkipped, &WORDS),
    ] {
        is_noticed(mistake, scheme, 0, words);
    }
}

/// Mistakes that show only if somebody dies.
#[test]
fn canary_mistakes_before_deaths_are_noticed() {
    for scheme in Scheme::ALL {
        for mistake in [Fault::PrepareForgotten, Fault::DecisionHalfPersisted, Fault::VotedUndone] {
            is_noticed(mistake, scheme, 40, &WORDS);
        }
    }
}
