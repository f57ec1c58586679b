//! The registered procedures of a database, divided by partition. Each partition has a database of its own and an
//! owner, which receives fragments (Jones, Abadi, Madden, SIGMOD 2010; decision record 23).
//!
//! The database of a partition holds its own rows and those of replicated tables. All these databases have the same
//! tables, procedures and number of partitions. The caller has such a database too, without rows. Messages between
//! them are plain data. A [`Call`] is the number of the procedure in the set, with its arguments as bytes. A
//! [`Fragment`] adds the results of earlier rounds. `seriatim_engine::procedure::fragment` defines which operations
//! run in which partition.

use std::any::TypeId;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use seriatim_catalog::{Key, TableDef, Value};
pub use seriatim_engine::procedure::divided::{BOOKS, Call, Fragment, Lock, Reply, Undivided};
use seriatim_engine::procedure::divided::{Locking, copy, digest, fill, number_in};
use seriatim_engine::procedure::fragment::{Division, FragmentRun};
use seriatim_engine::procedure::reach::{self, visit_all};
pub use seriatim_engine::procedure::undo::Undo;
use seriatim_engine::{Runner, TxCore};
use seriatim_procedure::analysis;
pub use seriatim_procedure::pack::{pack_all, unpack_all};
use seriatim_txn::{PartitionSet, Partitions};

use super::call::{Straight, unfit};
use super::registry::Entry;
use super::{Declared, Schedule};
use crate::{Abort, Database, Receipt, Session, TransactError, Tx};

/// The error of a call whose execution contradicts its plan.
pub(crate) fn unsound(what: impl Into<String>) -> TransactError {
    let error: Box<dyn std::error::Error + Send + Sync> = what.into().into();
    TransactError::User(error.into())
}

/// The result of a fragment.
#[derive(Debug)]
pub struct Ran {
    /// The reply to the caller.
    pub reply: Reply,
    /// The undo of the fragment, if it was requested.
    pub undo: Undo,
    /// The receipt of its commit.
    pub receipt: Receipt,
}

/// Runs at the end of the transaction that executes or undoes a fragment. It gets the rows that the fragment
/// replaced. Its own writes are not undone with the fragment.
pub type FragmentEnd<'t> = dyn Fn(&Tx, &Undo) -> Result<(), Abort> + 't;

/// A [`FragmentEnd`] that does nothing.
pub const NOTHING: &FragmentEnd<'static> = &|_, _| Ok(());

/// One execution of a procedure's fragment.
pub(crate) struct Job<'j> {
    pub(crate) division: &'j Division,
    pub(crate) partitions: &'j Partitions,
    /// The partition; `None` where the results of all partitions are combined.
    pub(crate) at: Option<usize>,
    pub(crate) fragment: &'j Fragment,
    pub(crate) undo: bool,
    pub(crate) then: &'j FragmentEnd<'j>,
}

/// Runs a fragment of a procedure that is a type.
pub(crate) fn run<P: Declared>(runner: &mut Runner, entry: &Entry, job: &Job<'_>) -> Result<Ran, TransactError> {
    let handles = entry.handles::<P>();
    let arguments: P::All = unpack_all(&job.fragment.arguments).map_err(|error| unfit(P::NAME, &error))?;
    runner.tx.name_procedure(P::NAME);
    let mut reply = None;
    // A result that its caller could not decode must not be committed.
    let packed = |core: &TxCore, output: &P::Output| {
        let bytes = pack_all(output);
        let read = unpack_all::<P::Output>(&bytes);
        read.map(|_| Reply::Output(bytes)).map_err(|error| core.abort(error))
    };
    let mut body = |core: &mut TxCore| {
        let Some(round) = job.fragment.round else {
            let body = Straight::<P> { handles, arguments: &arguments };
            reply = Some(packed(core, &body.value(Tx::of(core))?)?);
            return Ok(());
        };
        let run = FragmentRun::new(job.division, job.partitions, job.at, round, &job.fragment.found)
            .map_err(|error| core.abort(error))?;
        let tx = Tx::of_mut(core);
        let output = match P::scheduled(tx, handles, &arguments, &mut Schedule::of_fragment(&run)) {
            Ok(output) => Some(output),
            Err(_) if run.is_left() => None,
            Err(abort) => return Err(abort),
        };
        let is_whole = run.is_whole();
        let made = run.into_made().map_err(|fault| core.abort(fault))?;
        let output = output.filter(|_| is_whole).map(|output| packed(core, &output)).transpose()?;
        reply = Some(output.unwrap_or(Reply::Results(made)));
        Ok(())
    };
    let then = |core: &mut TxCore, undo: &Undo| (job.then)(Tx::of_mut(core), undo);
    let reach = job.at.map_or(PartitionSet::NONE, |at| job.division.owned(at));
    let (undo, receipt) = runner.run_alone(P::NAME, reach, job.undo, &mut body, &then)?;
    Ok(Ran { reply: reply.ok_or_else(|| unsound("a fragment without a reply"))?, undo, receipt })
}

/// A procedure of the set.
struct Procedure {
    entry: Arc<Entry>,
    division: Division,
}

/// The procedures of a database, divided by partition.
pub struct Divided {
    database: Database,
    partitions: Arc<Partitions>,
    procedures: Vec<Procedure>,
    locking: Locking,
}

impl fmt::Debug for Divided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.procedures.iter().map(|procedure| procedure.entry.name)).finish()
    }
}

impl Database {
    /// Divides the registered procedures by partition. Databases with the same tables, procedures, order of
    /// registration and number of partitions give the same division.
    ///
    /// # Errors
    /// The procedures that cannot be divided, each with the reason: the arguments do not determine its partitions, or
    /// data determine how many rounds it has. An empty list if the database has no partitions.
    pub fn divide(&self) -> Result<Divided, Undivided> {
        let Some(partitions) = self.engine().partitions() else { return Err(Undivided(Vec::new())) };
        let entries = self.entries();
        let schema = self.engine().schema();
        let (mut procedures, mut refused, mut locking) = (Vec::new(), Vec::new(), Locking::default());
        for entry in entries {
            let plan = &entry.plan;
            let fragments = analysis::fragments(plan, &schema);
            let in_parts = entry.follows_schedule;
            if !entry.numbers.is_empty() {
                let reason = "it takes numbers, and each partition has sequences of its own";
                refused.push((entry.name.to_owned(), reason.to_owned()));
                continue;
            }
            let division = Division::new(plan, &entry.declaration, &fragments, &entry.reach, in_parts, self.engine());
            let division = match division {
                Ok(division) => division,
                Err(reason) => {
                    refused.push((entry.name.to_owned(), reason));
                    continue;
                }
            };
            locking.add(plan, &division, &entry.reach);
            procedures.push(Procedure { entry, division });
        }
        match refused.is_empty() {
            true => Ok(Divided { database: self.clone(), partitions, procedures, locking }),
            false => Err(Undivided(refused)),
        }
    }
}

impl Divided {
    /// The number of partitions.
    pub fn partitions(&self) -> usize {
        self.partitions.count()
    }

    /// A number that names this partition, if the partition function maps one up to 65,535 to it.
    pub fn number_in(&self, at: usize) -> Option<u32> {
        number_in(&self.partitions, at)
    }

    /// The database of these procedures.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Copies into this database, whose tables are empty, the rows of `from` that belong to partition `at`.
    ///
    /// # Errors
    /// A table is missing; the partition function fails; no memory.
    pub fn fill(&self, from: &Database, at: usize) -> Result<(), TransactError> {
        fill(from.engine(), self.database.engine(), &self.partitions, at)
    }

    /// Copies the rows of this database, which is that of a partition, into `to`. Rows of replicated tables are
    /// copied only if `everywhere`.
    ///
    /// # Errors
    /// A table is missing, or already has such a row; no memory.
    pub fn pour(&self, to: &Database, everywhere: bool) -> Result<(), TransactError> {
        let wanted = |table: &TableDef, _: &[Value]| Ok(everywhere || table.partition_column().is_some());
        copy(self.database.engine(), to.engine(), &wanted)
    }

    /// A digest of the tables, of the number of partitions, and of the procedures in their order. It differs if these
    /// differ, as far as they have a description: the partition function has none, and of `#[pure]` functions only
    /// the names count.
    pub fn digest(&self) -> u64 {
        let describe = |Procedure { entry, .. }: &Procedure| {
            format!("{:?} {:?} {:?}", entry.plan, entry.declaration, entry.registered.types())
        };
        digest(self.database.engine(), self.procedures.iter().map(describe))
    }

    fn unknown(&self, name: String) -> TransactError {
        let known = self.procedures.iter().map(|procedure| procedure.entry.name.to_owned()).collect();
        TransactError::UnknownProcedure { name, known }
    }

    fn procedure(&self, number: u16) -> Result<&Procedure, TransactError> {
        self.procedures.get(usize::from(number)).ok_or_else(|| self.unknown(format!("number {number}")))
    }

    /// Encodes a call of a procedure with these arguments.
    ///
    /// # Errors
    /// The procedure is not in the set; its arguments do not determine its partitions.
    pub fn call<P: Declared>(&self, _procedure: P, arguments: &P::Arguments) -> Result<Call, TransactError> {
        let mut place = None;
        // Those that take numbers are not in the set.
        let arguments = P::complete(arguments, &mut |_| Err(self.unknown(P::NAME.to_owned())), &mut place)?;
        let of = |procedure: &Procedure| procedure.entry.id == TypeId::of::<P>();
        let found = self.procedures.iter().position(of).ok_or_else(|| self.unknown(P::NAME.to_owned()))?;
        let straight = Straight::<P> { handles: self.procedures[found].entry.handles::<P>(), arguments };
        self.call_of(found, &straight, pack_all(arguments))
    }

    /// As [`Divided::call`], by name and with dynamic values.
    ///
    /// # Errors
    /// As [`Divided::call`]; arguments of other types.
    pub fn call_by_name(&self, name: &str, arguments: &Value) -> Result<Call, TransactError> {
        let of = |procedure: &Procedure| procedure.entry.name == name;
        let found = self.procedures.iter().position(of).ok_or_else(|| self.unknown(name.to_owned()))?;
        let entry = &*self.procedures[found].entry;
        let told = entry.registered.arguments(entry, arguments)?;
        self.call_of(found, &&*told, entry.registered.pack(entry, arguments)?)
    }

    fn call_of(&self, at: usize, told: &impl reach::Arguments, arguments: Vec<u8>) -> Result<Call, TransactError> {
        let Procedure { entry, division, .. } = &self.procedures[at];
        let spread = division.call(&entry.reach, told, &self.partitions)?;
        let rounds = spread.rounds.iter().map(|round| round.bits()).collect();
        Ok(Call { procedure: at as u16, arguments, rounds })
    }

    /// Decodes the result of a call, whatever procedure it is of: see [`output`].
    ///
    /// # Errors
    /// The bytes are no such result.
    pub fn value(&self, call: &Call, bytes: &[u8]) -> Result<Value, TransactError> {
        let entry = &self.procedure(call.procedure)?.entry;
        entry.registered.output(bytes).map_err(|error| unfit(entry.name, &error))
    }

    /// Whether the procedure of this number may change data.
    pub fn changes(&self, procedure: u16) -> bool {
        self.procedure(procedure).is_ok_and(|found| found.entry.plan.operations.iter().any(|one| one.changes()))
    }

    /// Runs a fragment and commits it; the commit may not be durable yet. `session` is of the partition's database.
    /// With `undo` the fragment can be undone.
    ///
    /// # Errors
    /// Those of the procedure. The fragment then has no effect.
    pub fn run(
        &self,
        session: &mut Session,
        at: usize,
        fragment: &Fragment,
        undo: bool,
        then: &FragmentEnd<'_>,
    ) -> Result<Ran, TransactError> {
        let Procedure { entry, division, .. } = self.procedure(fragment.procedure)?;
        let job = Job { division, partitions: &self.partitions, at: Some(at), fragment, undo, then };
        entry.registered.run(&mut session.runner, entry, &job)
    }

    /// Undoes a fragment. `session` is of the partition's database. All fragments that ran after it must have been
    /// undone before.
    ///
    /// # Errors
    /// A row is not as the fragment left it; no memory.
    pub fn undo(
        &self,
        session: &mut Session,
        at: usize,
        undo: &Undo,
        then: &FragmentEnd<'_>,
    ) -> Result<Receipt, TransactError> {
        session.runner.undo(self.database.engine(), PartitionSet::one(at), undo, &|core| then(Tx::of(core), undo))
    }

    /// Combines what all partitions found into the result of a call. `session` may be of any database of the
    /// procedures.
    ///
    /// # Errors
    /// The procedure's own abort; an operation that has run in no partition.
    pub fn put_together(&self, session: &mut Session, call: &Call, found: Vec<u8>) -> Result<Vec<u8>, TransactError> {
        let Procedure { entry, division, .. } = self.procedure(call.procedure)?;
        let Call { procedure, arguments, .. } = call.clone();
        let fragment = Fragment { procedure, arguments, round: Some(0), found };
        let job =
            Job { division, partitions: &self.partitions, at: None, fragment: &fragment, undo: false, then: NOTHING };
        match entry.registered.run(&mut session.runner, entry, &job)?.reply {
            Reply::Output(output) => Ok(output),
            Reply::Results(_) => {
                Err(unsound(format!("an operation of procedure {} has run in no partition", entry.name)))
            }
        }
    }

    /// Collects the locks of a fragment at a partition.
    /// - An operation whose keys are unknown before it runs locks the value of the partitioning column.
    /// - So do all operations on a table for which the keys of any operation of the set are unknown.
    /// - A replicated table is locked as a whole, unless no procedure changes it.
    /// - The whole partition is locked as well: shared if the footprint is complete, otherwise exclusively.
    ///
    /// # Errors
    /// The bytes of the arguments cannot be decoded.
    pub fn locks(&self, at: usize, fragment: &Fragment, locks: &mut Vec<Lock>) -> Result<(), TransactError> {
        let Procedure { entry, division } = self.procedure(fragment.procedure)?;
        let told = entry.registered.unpack(entry, &fragment.arguments)?;
        let spread = division.call(&entry.reach, &&*told, &self.partitions)?;
        let of = self.locking.of(fragment, division, &self.partitions, at);
        of.values(&spread.places, locks);
        let mut row = |operation: usize, low: Bound<Key<'_>>, _: Bound<Key<'_>>| of.row(operation, low, locks);
        let is_whole = visit_all(&&*told, &mut row);
        locks.push(Lock::of_all(!is_whole));
        Ok(())
    }
}

/// Decodes the result of a procedure.
///
/// # Errors
/// The bytes are no such result.
pub fn output<P: Declared>(_procedure: P, bytes: &[u8]) -> Result<P::Output, TransactError> {
    unpack_all(bytes).map_err(|error| unfit(P::NAME, &error))
}
