//! A workload's declared procedures on partitions with one owner each: for any workload of the registry whose
//! procedures can be divided.
//!
//! The workload is loaded into one database, which is then divided. Each partition's database gets its rows and
//! the replicated tables. Each client is a terminal of the workload. Its calls are sent to owners as fragments
//! of the procedures that it would call in a session.
//!
//! Invariant, checked after each run: the partitions together satisfy the workload's consistency conditions,
//! with the results that its terminals got. No transaction fails unexpectedly, and none is still in progress.

mod client;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seriatim::procedure::divided::{Divided, Fragment, Reply};
use seriatim::{Database, Durability, TransactError};
use seriatim_base::thread;
use seriatim_participant::{
    Caller, Deployed, Fragments, Participant, Program, Role, Taken, begin, coordinator, highest, number_of,
};
use seriatim_partition::{CoordinatorId, LockMode, OwnerRecord, Partition, PartitionId, RecoveredState, TransactionId};
use seriatim_transport::{Application, Begin};
use seriatim_workload::{Loading, Workload};

use super::roles::{self, Ends};
use super::store::spend;
use super::{Measured, StoreCosts};

pub use client::ClientResults;

/// Workloads whose conditions depend only on tables. Others count the results of the terminals of one run.
const GO_ON: [&str; 1] = ["tpcc"];

/// Partitions with databases, and their procedures.
#[derive(Debug)]
pub struct Declared;

impl Application for Declared {
    type Partition = DelayedPartition;
    type Procedure = Program;
}

/// Options of a run.
#[derive(Clone)]
pub struct Plan {
    /// Scheme, partitions, delay, batches and costs.
    pub transport: seriatim_transport::Options,
    /// The workload.
    pub workload: Arc<dyn Workload>,
    /// The number of clients. Each is a terminal with one transaction in progress.
    pub clients: u32,
    /// The costs of fragments on simulated cores in addition to their accesses, and additional work for each.
    pub store: StoreCosts,
    /// The length of the warm-up.
    pub warmup: Duration,
    /// The length of the measurement.
    pub length: Duration,
    /// The seed of all inputs.
    pub seed: u64,
    /// The directory for databases of partitions and coordinators; `None` if they are in memory.
    data: Option<PathBuf>,
    /// The id that the directories share.
    deployment: u64,
    /// Whether the directories are from an earlier run.
    goes_on: bool,
    /// The caller of the procedures.
    caller: Arc<Caller>,
    /// The database that is divided.
    loaded: Database,
    /// The rows of an earlier run, of all partitions. From them terminals learn where the run ended.
    before: Option<Database>,
}

/// The result of a role.
pub type RoleOutput = roles::RoleOutput<Declared, ClientResults>;

/// A partition whose fragments take additional time.
pub struct DelayedPartition {
    participant: Participant,
    costs: StoreCosts,
}

impl DelayedPartition {
    /// A fragment has the work of this many keys.
    fn spend(&self) {
        thread::work(self.costs.fragment);
        spend(self.costs.more * super::KEYS as u32);
    }
}

impl Partition for DelayedPartition {
    type Work = Fragment;
    type Reply = Reply;
    type Abort = TransactError;
    type Undo = Taken;
    type Key = Vec<u8>;

    fn execute(&mut self, id: TransactionId, work: &Fragment) -> Result<(Reply, Taken), TransactError> {
        self.spend();
        let done = self.participant.execute(id, work)?;
        thread::work(self.costs.undo * done.1.writes() as u32);
        Ok(done)
    }

    fn execute_alone(&mut self, id: TransactionId, work: &Fragment, may_abort: bool) -> Result<Reply, TransactError> {
        self.spend();
        self.participant.execute_alone(id, work, may_abort)
    }

    fn execute_without_undo(&mut self, id: TransactionId, work: &Fragment) -> Result<Reply, TransactError> {
        self.spend();
        self.participant.execute_without_undo(id, work)
    }

    fn undo(&mut self, undo: Taken) {
        self.participant.undo(undo);
    }

    fn forget(&mut self, undo: Taken) {
        self.participant.forget(undo);
    }

    fn keep(&mut self, records: Vec<OwnerRecord<Fragment>>) -> u64 {
        self.participant.keep(records)
    }

    fn durable(&mut self) -> u64 {
        self.participant.durable()
    }

    /// Uses the defaults of the rest: undo and work are the same.
    fn left(&mut self) -> Option<RecoveredState<DelayedPartition>> {
        self.participant.left().map(RecoveredState::of_same)
    }

    fn footprint(&self, work: &Fragment, locks: &mut Vec<(Vec<u8>, LockMode)>) {
        let before = locks.len();
        self.participant.footprint(work, locks);
        thread::work(self.costs.lock * (locks.len() - before) as u32);
    }
}

/// A database with this many partitions, for this many sessions at a time. A new database has no rows. Its
/// owner runs the database's helpers; a database on disk runs them on threads.
fn declared(workload: &dyn Workload, partitions: u32, sessions: u32, at: Option<PathBuf>) -> Result<Database, String> {
    let workers = sessions as usize + 1;
    let builder = Database::builder().partitions(partitions as usize).workers(workers);
    let builder = match at {
        None => builder.step_helpers(true),
        // The owner waits for durability, and does not wait for each commit.
        Some(directory) => builder.path(directory).durability(Durability::Async),
    };
    let database = builder.open().map_err(|error| error.to_string())?;
    workload.declare(&database).map_err(|error| error.to_string())?;
    Ok(database)
}

/// The divided procedures of a database that exists from its first incarnation.
fn divided(database: Database) -> Result<Divided, String> {
    database.divide().map_err(|undivided| undivided.to_string())
}

impl Plan {
    /// Loads and divides this workload. The other options come from a plan of the microbenchmark.
    ///
    /// # Errors
    /// It cannot be loaded, or one of its procedures cannot be divided.
    pub fn of(plan: &super::Plan, workload: Box<dyn Workload>, threads: usize) -> Result<Plan, String> {
        let (workload, partitions): (Arc<dyn Workload>, _) = (workload.into(), plan.transport.partitions);
        // One for each thread of clients, and one for the coordinator.
        let caller = declared(&*workload, partitions, plan.transport.ports + 1, None)?;
        let caller = Arc::new(Caller::new(divided(caller)?));
        let loaded = Database::in_memory().map_err(|error| error.to_string())?;
        workload.load(&loaded, &Loading { threads, ..Loading::default() }).map_err(|error| error.to_string())?;
        let super::Plan { transport, clients, store, warmup, length, seed, .. } = plan.clone();
        let (deployment, data, goes_on) = (seriatim::rng::entropy(), None, false);
        Ok(Plan {
            transport,
            workload,
            clients,
            store,
            warmup,
            length,
            seed,
            data,
            deployment,
            goes_on,
            caller,
            loaded,
            before: None,
        })
    }

    /// Keeps partitions and coordinators below this directory. It must be new, empty, or from an earlier run of
    /// this workload, which then continues.
    ///
    /// # Errors
    /// The directory has other contents, its run never began, or it belongs to another workload, scheme, or
    /// number of partitions or coordinators.
    pub fn keep_in(&mut self, data: PathBuf) -> Result<(), String> {
        let (named, name) = (data.join("workload"), self.workload.name());
        let failed = |error: std::io::Error| format!("{}: {error}", data.display());
        match std::fs::read_to_string(&named) {
            Ok(found) if found == name && !GO_ON.contains(&name) => {
                return Err(format!(
                    "{} is of an earlier run, which workload {name:?} cannot continue: name a new directory",
                    data.display()
                ));
            }
            Ok(found) if found == name => self.goes_on = true,
            Ok(found) => return Err(format!("{} is of workload {found:?}, not of {name:?}", data.display())),
            Err(_) => {
                let is_used = std::fs::read_dir(&data).is_ok_and(|mut entries| entries.next().is_some());
                if is_used {
                    return Err(format!(
                        "{} is not empty: name a new directory, or that of an earlier run",
                        data.display()
                    ));
                }
                std::fs::create_dir_all(&data).map_err(failed)?;
                let new = std::fs::File::create_new(&named);
                new.and_then(|mut file| file.write_all(name.as_bytes())).map_err(failed)?;
            }
        }
        self.data = Some(data);
        if !self.goes_on {
            return Ok(());
        }
        let partitions = (0..self.transport.partitions).map(Role::Partition);
        let coordinators = (0..self.deployed().coordinators).map(Role::Coordinator);
        let before = declared(&*self.workload, self.transport.partitions, self.transport.ports + 1, None)?;
        for role in partitions.chain(coordinators) {
            let divided = divided(declared(&*self.workload, self.transport.partitions, 1, self.home(role))?)?;
            let refused = |refused: seriatim_participant::Refused| refused.to_string();
            if role == Role::Partition(0) {
                self.deployment = number_of(&divided, role).map_err(refused)?;
            }
            let of = self.deployed();
            let above = &mut self.transport.numbers_above;
            *above = highest(&divided, role, &of).map_err(refused)?.max(*above);
            if let Role::Partition(number) = role {
                divided.pour(&before, number == 0).map_err(|error| error.to_string())?;
            }
        }
        self.before = Some(before);
        Ok(())
    }

    fn home(&self, role: Role) -> Option<PathBuf> {
        self.data.as_ref().map(|data| data.join(role.to_string().replace(' ', "-")))
    }

    /// The id that the directories share.
    fn deployed(&self) -> Deployed {
        let scheme = self.transport.scheme;
        let coordinators = if scheme.needs_one_coordinator() { 1 } else { self.transport.ports };
        Deployed { number: self.deployment, scheme, coordinators }
    }

    /// The partition with this number. It is new or, with `again`, existed before.
    fn partition(&self, id: PartitionId, again: bool) -> Result<DelayedPartition, String> {
        let at = self.home(Role::Partition(id.0));
        let is_on_disk = at.is_some();
        let divided = divided(declared(&*self.workload, self.transport.partitions, 1, at)?)?;
        if !again || !is_on_disk {
            divided.fill(&self.loaded, id.0 as usize).map_err(|error| error.to_string())?;
        }
        let callers = self.caller.divided().digest();
        let participant = if is_on_disk {
            if !again {
                begin(&divided, Role::Partition(id.0), &self.deployed()).map_err(|refused| refused.to_string())?;
            }
            Participant::open(divided, id, callers, false, &self.deployed()).map_err(|refused| refused.to_string())?
        } else {
            Participant::new(divided, id, callers, true).map_err(|other| other.to_string())?
        };
        Ok(DelayedPartition { participant, costs: self.store })
    }

    /// Begins incarnations of coordinators, if they are on disk.
    fn coordinators(&self) -> Result<Option<Begin<Declared>>, String> {
        if self.data.is_none() {
            return Ok(None);
        }
        let of = self.deployed();
        let callers = (0..of.coordinators).map(|id| {
            let role = Role::Coordinator(id);
            let divided = divided(declared(&*self.workload, self.transport.partitions, 1, self.home(role))?)?;
            if !self.goes_on {
                begin(&divided, role, &of).map_err(|refused| refused.to_string())?;
            }
            Ok(Arc::new(Caller::new(divided)))
        });
        let callers: Vec<_> = callers.collect::<Result<_, String>>()?;
        let begin = move |id: CoordinatorId| {
            coordinator(id, &callers[id.0 as usize], &of).unwrap_or_else(|refused| panic!("{refused}"))
        };
        Ok(Some(Arc::new(begin)))
    }

    /// The roles. Partitions are filled before they run.
    ///
    /// # Errors
    /// A partition cannot be filled.
    pub fn roles(&self) -> Result<Vec<roles::Role<RoleOutput>>, String> {
        let filled = (0..self.transport.partitions).map(|id| self.partition(PartitionId(id), self.goes_on));
        let filled: Vec<_> = filled.collect::<Result<_, _>>()?;
        let filled = std::sync::Mutex::new(filled.into_iter().map(Some).collect::<Vec<_>>());
        let plan = self.clone();
        let make = move |id: PartitionId| {
            let mut filled = filled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // The first incarnation begins with the loaded rows, later ones with the rows on disk.
            let first = filled[id.0 as usize].take();
            first.unwrap_or_else(|| plan.partition(id, true).unwrap_or_else(|what| panic!("{what}")))
        };
        let plan = self.clone();
        Ok(roles::roles::<Declared, ClientResults>(&self.transport, make, self.coordinators()?, move |port, number| {
            client::serve(&plan, port, number)
        }))
    }

    /// The results, if the run passes its check.
    ///
    /// # Errors
    /// The first failed check.
    pub fn finish(&self, given: Vec<RoleOutput>) -> Result<Measured, String> {
        let ends = Ends::of(given);
        ends.check(self.transport.scheme, |results: &ClientResults| &results.counted)?;
        self.check(&ends)?;
        let fragments: Vec<Fragments> = ends.partitions().map(|partition| partition.participant.fragments()).collect();
        let sum = |of: fn(&Fragments) -> u64| fragments.iter().map(of).sum();
        let fragments = [sum(|of| of.ran), sum(|of| of.undone)];
        Ok(ends.measured(self.length.as_secs_f64(), fragments, |results| &results.counted))
    }

    /// Checks the workload's conditions on all partitions together.
    fn check(&self, ends: &Ends<Declared, ClientResults>) -> Result<(), String> {
        let union = Database::in_memory().map_err(|error| error.to_string())?;
        self.workload.declare(&union).map_err(|error| error.to_string())?;
        for (at, partition) in ends.partitions().enumerate() {
            let divided = partition.participant.divided();
            // Replicated tables are taken from the first partition.
            divided.pour(&union, at == 0).map_err(|error| error.to_string())?;
            divided.database().check_structure()?;
        }
        let report = self.workload.consistency(&union).map_err(|error| error.to_string())?;
        match report.violations().first() {
            None => Ok(()),
            Some(violation) => Err(format!("the partitions together: {violation}")),
        }
    }
}

/// Runs a plan on threads.
///
/// # Errors
/// A failed check, or a role that panicked.
pub fn on_threads(plan: &Plan) -> Result<Measured, String> {
    plan.finish(roles::on_threads(plan.roles()?)?)
}
