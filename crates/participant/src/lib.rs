//! A partition whose data are a database: declared procedures behind owners that exchange messages.
//!
//! Each partition has a database of its own, opened with as many partitions as there are owners. It holds the
//! partition's rows, and the tables that are replicated everywhere. Only its owner uses it.
//! [`seriatim::procedure::divided`] says what a fragment runs there, and the crate `partition` how fragments
//! are ordered. This crate connects the two, and knows neither threads nor networks:
//!
//! - `journal`: the state that survives the process beside the data, in tables of the same databases, whose
//!   log, checkpoints and recovery are the engine's;
//! - [`Participant`] is the [`Partition`]: it runs each fragment in a transaction of its own that is committed
//!   at once. Another transaction undoes it, from the row versions that it replaced;
//! - [`Program`] is the [`Procedure`](seriatim_partition::Procedure): rounds of fragments, and the result
//!   computed from their replies.
//!
//! Invariants: work and replies are plain data. Aborts are the errors themselves, with the user's types, so
//! they stay in one process for now. A partition and its callers have the same procedures in the same order,
//! which they compare by digests.
//!
//! # The promises of a partition
//! (a) A fragment depends only on the rows of its partition and its work. Procedures use no random numbers and no time,
//! and a fragment is not aborted for its age. (b) A fragment that fails is rolled back, as any transaction is. So is
//! one that fails for lack of memory, or because a disk is full or slow. It leaves no record that would be run again.
//! (c) Rows are restored write by write. Under `locking` there are no rows of other footprints among them. (d) Panics
//! of procedures are caught where they run. A panic in the commit is not the procedure's and ends the owner. So do
//! errors of the database that neither the procedure nor its arguments explain. The owner then continues from its
//! records. (e) The footprint is that of the arguments. Where they do not determine keys, it has a lock on all rows of
//! the table with the partition's value. Where computing it fails or panics, it has a lock on everything.

mod journal;
mod program;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use seriatim::procedure::divided::{Divided, Fragment, Lock, NOTHING, Reply, Undo};
use seriatim::{Session, TransactError, TransactionOptions};
use seriatim_partition::{
    Fault, LockMode, OwnerRecord, Partition, PartitionId, RecoveredState, TransactionId, is_injected,
};

use journal::{OwnerJournal, durable, is_of_the_disk, request};

pub use journal::{Deployed, Refused, Role, begin, coordinator, highest, number_of};
pub use program::{Caller, Program, single};

/// Fragments after which the database's helpers run once, so that unreachable memory is reused.
const STEP_INTERVAL: u64 = 256;

/// The interval of the helpers, if they run here.
fn interval(steps: bool) -> Option<u64> {
    steps.then_some(STEP_INTERVAL)
}

/// Counts of fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragments {
    /// Fragments that ran.
    pub ran: u64,
    /// Those of them that were undone.
    pub undone: u64,
}

/// The partition and its caller have different procedures, or in a different order: a procedure's number would
/// mean another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherProcedures {
    /// The digest of the partition's procedures.
    pub here: u64,
    /// The digest of the caller's procedures.
    pub there: u64,
}

impl fmt::Display for OtherProcedures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the partition has other procedures than the caller, or in another order ({:016x}, {:016x}): \
             register the same set with both, on the same tables and as many partitions",
            self.here, self.there
        )
    }
}

impl std::error::Error for OtherProcedures {}

/// Whether the procedure failed, its arguments are invalid, or memory or disk space for its writes is lacking.
fn is_of_the_work(error: &TransactError) -> bool {
    is_of_the_disk(error)
        || matches!(
            error,
            TransactError::User(_)
                | TransactError::Duplicate { .. }
                | TransactError::Check { .. }
                | TransactError::MissingRow { .. }
                | TransactError::ForeignKey { .. }
                | TransactError::Overflow { .. }
                | TransactError::UnknownProcedure { .. }
                | TransactError::Arguments { .. }
                | TransactError::Unsupported(_)
                | TransactError::OtherPartition { .. }
                | TransactError::NoPartition { .. }
                | TransactError::TooLarge { .. }
                | TransactError::OutOfMemory { .. }
        )
}

/// A partition.
pub struct Participant {
    divided: Divided,
    session: Session,
    at: usize,
    fragments: Fragments,
    /// If the database has no threads of its own: the number of fragments after which its helpers run here.
    steps: Option<u64>,
    /// The durable state of its transactions, if it is durable.
    journal: Option<OwnerJournal>,
    /// Fragments to be undone, in this order, that could not be because the disk takes no writes. Nothing runs
    /// before them.
    owed: VecDeque<Taken>,
    /// The undecided transactions for the owner when it begins.
    left: Option<RecoveredState<Participant>>,
}

/// The undo of a fragment.
#[derive(Debug)]
pub struct Taken {
    undo: Undo,
    /// Its durable row: the transaction, whether it is the whole of it, and its position.
    kept: Option<(TransactionId, bool, u64)>,
}

impl Taken {
    /// The number of writes to be undone.
    pub fn writes(&self) -> usize {
        self.undo.len()
    }
}

impl Participant {
    /// The partition of this number, whose rows are in the database of these procedures. `callers` is the
    /// digest ([`Divided::digest`]) of the callers' procedures. With `steps` the database was opened by
    /// `Builder::step_helpers`, and its helpers run between fragments.
    ///
    /// # Errors
    /// The digests differ.
    pub fn new(divided: Divided, at: PartitionId, callers: u64, steps: bool) -> Result<Participant, OtherProcedures> {
        let (here, there) = (divided.digest(), callers);
        if here != there {
            return Err(OtherProcedures { here, there });
        }
        let mut session = divided.database().session();
        // The duration of a fragment must not affect its result.
        session.set_options(TransactionOptions::new().age_max(Duration::MAX));
        let (at, fragments, steps) = (at.0 as usize, Fragments::default(), interval(steps));
        let owed = VecDeque::new();
        Ok(Participant { divided, session, at, fragments, steps, journal: None, owed, left: None })
    }

    /// As [`Participant::new`], for a partition on disk. Its database was initialized ([`begin`]), and may be
    /// in any state. It keeps the state from which its owner continues. Transactions that had not voted are
    /// undone.
    ///
    /// # Errors
    /// If the database was not initialized for this partition, deployment, number of partitions and
    /// procedures, or if it fails.
    pub fn open(
        divided: Divided,
        at: PartitionId,
        callers: u64,
        steps: bool,
        of: &Deployed,
    ) -> Result<Participant, Refused> {
        let mut participant = Participant::new(divided, at, callers, steps).map_err(Refused::Procedures)?;
        let (journal, left) = OwnerJournal::open(&participant.divided, &mut participant.session, at, of)?;
        (participant.journal, participant.left) = (Some(journal), Some(left));
        Ok(participant)
    }

    fn fail(&self, error: &TransactError) -> ! {
        panic!("the database of partition {} fails: {error}", self.at)
    }

    /// Runs the helpers after this many fragments, if they run here.
    pub fn set_step_interval(&mut self, fragments: u64) {
        self.steps = self.steps.map(|_| fragments.max(1));
    }

    /// Its procedures, with its database.
    pub fn divided(&self) -> &Divided {
        &self.divided
    }

    /// The counts of its fragments.
    pub fn fragments(&self) -> Fragments {
        self.fragments
    }

    /// # Panics
    /// If the database fails, and not the procedure.
    fn run(
        &mut self,
        transaction: TransactionId,
        work: &Fragment,
        undo: bool,
    ) -> Result<(Reply, Taken), TransactError> {
        self.take_back()?;
        // A fragment without a row is decided as soon as it is in the log. The marks of all fragments on which it may
        // depend must be in the log before it.
        if !undo && self.journal.as_ref().is_some_and(OwnerJournal::has_votes) && self.divided.changes(work.procedure) {
            self.write()?;
        }
        let apart = is_injected(Fault::UndoApart);
        // A fragment that changes nothing, and will not be undone, leaves no trace.
        let journal = self.journal.as_ref().filter(|_| undo || self.divided.changes(work.procedure));
        let ran = match journal {
            Some(journal) if !apart => self.divided.run(&mut self.session, self.at, work, undo, &|tx, noted| {
                journal.note(tx, transaction, work, undo.then_some(noted))
            }),
            _ => self.divided.run(&mut self.session, self.at, work, undo, NOTHING),
        };
        self.fragments.ran += u64::from(ran.is_ok());
        if self.steps.is_some_and(|interval| self.fragments.ran.is_multiple_of(interval)) {
            self.divided.database().step();
        }
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) if is_of_the_work(&error) => return Err(error),
            Err(error) => self.fail(&error),
        };
        let mut kept = None;
        if let Some(journal) = &mut self.journal {
            journal.newest = journal.newest.max(ran.receipt.epoch());
            if apart {
                self.divided.database().step();
                let note = |tx: &_, _: &_| journal.note(tx, transaction, work, undo.then_some(&ran.undo));
                let noted = self.divided.undo(&mut self.session, self.at, &Undo::default(), &note);
                noted.expect("the fault is injected");
            }
            kept = undo.then(|| journal.noted(transaction, work.round.is_none()));
        }
        Ok((ran.reply, Taken { undo: ran.undo, kept }))
    }

    /// Undoes the owed fragments, as far as the disk takes writes.
    fn take_back(&mut self) -> Result<(), TransactError> {
        while let Some(Taken { undo, kept }) = self.owed.front() {
            let undone = match self.journal.as_ref().zip(*kept) {
                None => self.divided.undo(&mut self.session, self.at, undo, NOTHING),
                Some((journal, (_, _, place))) => {
                    self.divided.undo(&mut self.session, self.at, undo, &|tx, _| journal.undo(tx, place))
                }
            };
            match undone {
                Ok(receipt) => {
                    self.journal.iter_mut().for_each(|journal| journal.newest = journal.newest.max(receipt.epoch()))
                }
                Err(error) if is_of_the_disk(&error) => return Err(error),
                Err(error) => panic!("a fragment cannot be taken back: {error}"),
            }
            self.owed.pop_front();
        }
        Ok(())
    }

    /// Writes the owner's marks, if the disk takes writes.
    fn write(&mut self) -> Result<(), TransactError> {
        self.take_back()?;
        let Some(journal) = &mut self.journal else { return Ok(()) };
        match journal.write(&self.divided, &mut self.session, self.at) {
            Ok(()) => {
                request(self.divided.database(), journal.newest);
                journal.waits.written(journal.newest);
                Ok(())
            }
            Err(error) if is_of_the_disk(&error) => Err(error),
            Err(error) => self.fail(&error),
        }
    }
}

impl Partition for Participant {
    type Work = Fragment;
    type Reply = Reply;
    type Abort = TransactError;
    type Undo = Taken;
    type Key = Vec<u8>;

    fn execute(&mut self, id: TransactionId, work: &Fragment) -> Result<(Reply, Taken), TransactError> {
        self.run(id, work, true)
    }

    /// A fragment that fails is rolled back: no undo is needed.
    fn execute_without_undo(&mut self, id: TransactionId, work: &Fragment) -> Result<Reply, TransactError> {
        self.run(id, work, false).map(|(reply, _)| reply)
    }

    fn execute_alone(&mut self, id: TransactionId, work: &Fragment, _: bool) -> Result<Reply, TransactError> {
        self.execute_without_undo(id, work)
    }

    /// If the disk takes no writes, the undo is owed, and nothing runs before it.
    fn undo(&mut self, taken: Taken) {
        if let Some((journal, kept)) = self.journal.as_mut().zip(taken.kept) {
            journal.end(kept, false);
        }
        self.owed.push_back(taken);
        self.fragments.undone += 1;
        if self.take_back().is_err() && is_injected(Fault::OwedForgotten) {
            self.owed.clear();
        }
    }

    fn forget(&mut self, Taken { kept, .. }: Taken) {
        if let Some((journal, kept)) = self.journal.as_mut().zip(kept) {
            journal.end(kept, true);
        }
    }

    fn keep(&mut self, records: Vec<OwnerRecord<Fragment>>) -> u64 {
        let Some(journal) = &mut self.journal else { return 0 };
        records.iter().for_each(|record| journal.keep(record));
        let number = journal.waits.next();
        // If the disk takes no writes now, this is written later.
        let _ = self.write();
        number
    }

    fn durable(&mut self) -> u64 {
        let _ = self.write();
        let durable = durable(self.divided.database());
        self.journal.as_mut().map_or(u64::MAX, |journal| journal.waits.reached(durable))
    }

    fn left(&mut self) -> Option<RecoveredState<Participant>> {
        self.left.take()
    }

    fn footprint(&self, work: &Fragment, locks: &mut Vec<(Vec<u8>, LockMode)>) {
        let mut all = Vec::new();
        // Invalid arguments fail where the fragment runs. Until then it locks everything.
        if self.divided.locks(self.at, work, &mut all).is_err() {
            all = vec![Lock::of_all(true)];
        }
        let mode = |exclusive| if exclusive { LockMode::Exclusive } else { LockMode::Shared };
        locks.extend(all.into_iter().map(|lock| (lock.what, mode(lock.exclusive))));
    }
}
