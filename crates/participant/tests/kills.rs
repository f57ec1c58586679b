//! Owners with databases, a coordinator and clients on one thread, in an order that a seed decides, with owners that die between any two
//! outputs and go on from their records: what clients were told is there at all partitions, nothing else is, and what was recovered is what was there.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use seriatim::procedure::divided::{Call, Fragment, Reply};
use seriatim::{Abort, Database, Rng, Table, TransactError, Tx, procedure, procedures, rng};
use seriatim_participant::{Caller, Participant, Program, single};
use seriatim_partition::{
    Call as ToRun, ClientId, Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorOutputOf, Fault, Kept,
    MessageOf, Options, Outcome, Owner, OwnerOutput, OwnerOutputOf, OwnerRecord, PartitionId, Scheme, ToCoordinator,
    ToOwner, TransactionId, inject,
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
    Participant::new(divided, PartitionId(id), true)
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

/// An owner, and what is kept of it.
struct Node {
    owner: Owner<Participant>,
    out: VecDeque<OwnerOutputOf<Participant>>,
    log: Vec<OwnerRecord<Fragment>>,
    /// Records at the end of the log that may be lost.
    volatile: usize,
    life: u64,
}

/// What a client asked for, and was told.
#[derive(Clone, Debug)]
struct Asked {
    call: Call,
    accounts: Vec<u32>,
    /// Whether it committed, if it was answered.
    committed: Option<bool>,
}

struct Run {
    rng: Rng,
    options: Options,
    whole: Database,
    caller: Arc<Caller>,
    nodes: Vec<Node>,
    coordinator: Coordinator<Program>,
    coordinated: VecDeque<CoordinatorOutputOf<Program>>,
    /// To owners, by sender: a client, or after these the coordinator.
    to_owners: BTreeMap<(u32, u32), VecDeque<ToOwner<Fragment>>>,
    /// To the coordinator, by sender: an owner, or after these a client or whoever notices deaths.
    to_coordinator: BTreeMap<u32, VecDeque<MessageOf<Program>>>,
    asked: BTreeMap<(u32, u32), Asked>,
    /// By client: the number of its latest call, if it waits for that one.
    waits: Vec<(u32, bool)>,
    left: u32,
    kills: u32,
}

impl Run {
    fn new(seed: u64, scheme: Scheme) -> Run {
        let (whole, options) = (loaded(), Options::new(scheme));
        let caller = Arc::new(Caller::new(declare().divide().expect("all can be divided")));
        let node = |id| {
            let owner = Owner::new(PartitionId(id), partition(&whole, id), &options);
            Node { owner, out: VecDeque::new(), log: Vec::new(), volatile: 0, life: 0 }
        };
        let nodes = (0..PARTITIONS).map(node).collect();
        Run {
            rng: Rng::from_seed(seed),
            options,
            caller,
            nodes,
            coordinator: Coordinator::new(CoordinatorId(0), (0..PARTITIONS).map(PartitionId)),
            coordinated: VecDeque::new(),
            to_owners: BTreeMap::new(),
            to_coordinator: BTreeMap::new(),
            asked: BTreeMap::new(),
            waits: vec![(0, false); CLIENTS as usize],
            left: 200,
            kills: 0,
            whole,
        }
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
                self.to_owners.entry((at.0, client)).or_default().push_back(message);
            }
            None => {
                let procedure = Program::new(Arc::clone(&self.caller), call.clone());
                let message = ToCoordinator::Call { transaction, procedure };
                self.to_coordinator.entry(PARTITIONS + client).or_default().push_back(message);
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

    /// The next output of an owner leaves.
    fn put_out(&mut self, id: u32) {
        let node = &mut self.nodes[id as usize];
        match node.out.pop_front().expect("there is one") {
            OwnerOutput::Keep(kept, record) => {
                node.log.push(record);
                node.volatile = if kept == Kept::Forced { 0 } else { node.volatile + 1 };
            }
            OwnerOutput::Send { message, .. } => {
                self.to_coordinator.entry(id).or_default().push_back(ToCoordinator::Owner(message));
            }
            OwnerOutput::Reply { transaction, outcome } => {
                let is_whole = !matches!(&outcome, Outcome::Committed(Reply::Found(_)));
                assert!(is_whole, "{transaction} has no result");
                self.answer(transaction, &outcome);
            }
        }
    }

    /// The owner dies, and lives again.
    fn kill(&mut self, id: u32) {
        self.kills += 1;
        let node = &mut self.nodes[id as usize];
        let lost = self.rng.below(node.volatile as u64 + 1) as usize;
        node.log.truncate(node.log.len() - lost);
        (node.volatile, node.life) = (0, node.life + 1);
        node.out.clear();
        // What was on its way to it is lost, and clients hear so.
        for client in 0..CLIENTS {
            if let Some(calls) = self.to_owners.get_mut(&(id, client)) {
                calls.clear();
            }
            let (number, waits) = self.waits[client as usize];
            let is_single = self.asked.get(&(client, number)).and_then(|asked| single(&asked.call));
            if waits && is_single.is_some_and(|(at, _)| at.0 == id) {
                self.waits[client as usize].1 = false;
            }
        }
        self.to_owners.entry((id, CLIENTS)).or_default().clear();
        let down = ToCoordinator::PartitionDown { partition: PartitionId(id), life: node.life - 1 };
        self.to_coordinator.entry(PARTITIONS + CLIENTS).or_default().push_back(down);
        let mut out = Vec::new();
        let (records, coordinators) = (node.log.clone(), [CoordinatorId(0)]);
        let fresh = partition(&self.whole, id);
        node.owner = Owner::recover(PartitionId(id), node.life, fresh, &self.options, records, coordinators, &mut out);
        node.out.extend(out);
    }

    fn coordinate(&mut self, message: MessageOf<Program>) {
        let mut out = Vec::new();
        self.coordinator.handle(message, &mut out);
        self.coordinated.extend(out);
    }

    /// Something that can happen; `false`: nothing can.
    fn step(&mut self, kill_every: u64) -> bool {
        if kill_every > 0 && self.left > 0 && self.rng.below(kill_every) == 0 {
            let id = self.rng.below(PARTITIONS.into()) as u32;
            self.kill(id);
            return true;
        }
        let mut can: Vec<(u8, u32, u32)> = Vec::new();
        let outs = (0..PARTITIONS).filter(|id| !self.nodes[*id as usize].out.is_empty());
        can.extend(outs.map(|id| (0, id, 0)));
        can.extend((!self.coordinated.is_empty()).then_some((1, 0, 0)));
        can.extend(self.to_owners.iter().filter(|(_, queue)| !queue.is_empty()).map(|((to, from), _)| (2, *to, *from)));
        can.extend(self.to_coordinator.iter().filter(|(_, queue)| !queue.is_empty()).map(|(from, _)| (3, *from, 0)));
        if self.left > 0 {
            can.extend((0..CLIENTS).filter(|client| !self.waits[*client as usize].1).map(|client| (4, client, 0)));
        }
        if can.is_empty() {
            can.extend((0..PARTITIONS).filter(|id| self.nodes[*id as usize].owner.wants_ticks()).map(|id| (5, id, 0)));
        }
        let Some(&(what, a, b)) = can.get(self.rng.below(can.len().max(1) as u64) as usize) else { return false };
        match what {
            0 => self.put_out(a),
            1 => match self.coordinated.pop_front().expect("there is one") {
                CoordinatorOutput::Keep(..) => {}
                CoordinatorOutput::Send { to, message } => {
                    let queue = self.to_owners.entry((to.0, CLIENTS)).or_default();
                    queue.push_back(ToOwner::Coordinator(message));
                }
                CoordinatorOutput::Reply { transaction, outcome } => self.answer(transaction, &outcome),
                CoordinatorOutput::Broken { transaction, partition } => {
                    panic!("{transaction} is not done at {partition}")
                }
            },
            2 | 5 => {
                let queued = self.to_owners.get_mut(&(a, b)).filter(|_| what == 2).and_then(VecDeque::pop_front);
                let mut out = Vec::new();
                let node = &mut self.nodes[a as usize];
                node.owner.handle(queued.unwrap_or(ToOwner::Tick), &mut out);
                node.out.extend(out);
            }
            3 => {
                let message = self.to_coordinator.get_mut(&a).and_then(VecDeque::pop_front).expect("there is one");
                self.coordinate(message);
            }
            _ => self.ask(a),
        }
        true
    }

    /// What must hold when nothing is under way.
    fn check(mut self) -> (u32, u32) {
        let mut rows = Vec::new();
        for id in 0..PARTITIONS {
            let node = &self.nodes[id as usize];
            assert!(node.owner.is_idle(), "something is under way at partition {id}");
            let here = contents(node.owner.partition().divided().database());
            // Promise (a): what was recorded, run again, comes to the same.
            let (records, mut out) = (node.log.clone(), Vec::new());
            let fresh = partition(&self.whole, id);
            let again = Owner::recover(
                PartitionId(id),
                node.life + 1,
                fresh,
                &self.options,
                records,
                [CoordinatorId(0)],
                &mut out,
            );
            assert_eq!(contents(again.partition().divided().database()), here, "partition {id} recovered");
            rows.extend(here);
        }
        let sums =
            rows.iter().filter_map(|row| row.strip_prefix("account [UInt(")?.split("Int(").nth(1)?.split(')').next());
        let sum: i64 = sums.map(|sum| sum.parse::<i64>().expect("a number")).sum();
        assert_eq!(sum, SUM * i64::from(ACCOUNTS));
        let mut committed = 0;
        for ((client, number), asked) in std::mem::take(&mut self.asked) {
            let has = |account: &u32| rows.contains(&format!("mark [UInt({account}), UInt({client}), UInt({number})]"));
            let marks: Vec<bool> = asked.accounts.iter().map(has).collect();
            let (all, any) = (marks.iter().all(|has| *has), marks.iter().any(|has| *has));
            assert_eq!(all, any, "half of {client}.{number} is there: {asked:?}");
            if let Some(told) = asked.committed {
                assert_eq!(told, all, "{client}.{number}: {asked:?}");
            }
            committed += u32::from(all);
        }
        (committed, self.kills)
    }
}

fn run(seed: u64, scheme: Scheme, kill_every: u64) -> (u32, u32) {
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
            let (committed, kills) = run(seed.wrapping_add(at), scheme, 0);
            assert!(committed > 40 && kills == 0, "{}: {committed}", scheme.name());
        }
    }
}

#[test]
fn owners_that_die_between_any_two_outputs_go_on_from_their_records() {
    let seed = seed("owners_that_die_between_any_two_outputs_go_on_from_their_records");
    let mut all = 0;
    for scheme in Scheme::ALL {
        for at in 0..4 {
            let (committed, kills) = run(seed.wrapping_add(at), scheme, 60 + 40 * at);
            eprintln!("{}, {at}: {committed} committed, {kills} kills", scheme.name());
            assert!(committed > 5, "{}: {committed}", scheme.name());
            all += kills;
        }
    }
    assert!(all > 20, "{all}");
}

/// Mistakes of owners, which these runs must notice.
#[test]
fn canary_mistakes_of_owners_are_noticed() {
    for (scheme, mistake) in [
        (Scheme::Speculation, Fault::UndoDroppedEarly),
        (Scheme::Speculation, Fault::DependencyLost),
        (Scheme::Speculation, Fault::CascadeMissed),
        (Scheme::Speculation, Fault::ReplyLeaked),
        (Scheme::Blocking, Fault::UndoDroppedEarly),
        (Scheme::Locking, Fault::LockSkipped),
    ] {
        let noticed = (0..40).any(|seed| {
            inject(Some(mistake));
            let ran = catch_unwind(AssertUnwindSafe(|| run(seed, scheme, 0)));
            inject(None);
            ran.is_err()
        });
        assert!(noticed, "{mistake:?} is not noticed under {}", scheme.name());
    }
}
