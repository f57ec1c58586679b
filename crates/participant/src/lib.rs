//! A partition whose data are a database: declared procedures behind owners that exchange messages.
//!
//! Each partition has a database of its own, opened with as many partitions as there are owners, and has its rows in it and the tables that are
//! everywhere. Its owner alone uses it. What a fragment runs there is said in [`seriatim::procedure::divided`]; how fragments of transactions are
//! ordered, in the crate `partition`. Between them stands this, which knows neither threads nor networks:
//!
//! - [`Participant`] is the [`Partition`]: it runs fragments, each in a transaction of its own that is committed at once, and takes them back by
//!   other transactions, from what they replaced;
//! - [`Program`] is the [`Procedure`](seriatim_partition::Procedure): rounds of fragments, and the result from what they found.
//!
//! Invariants: work and replies are plain data; aborts are the errors themselves, with the user's types, so they stay in one process as yet. A
//! partition and who calls have the same procedures in the same order, which their digests tell.
//!
//! # The promises of a partition
//!
//! (a) A fragment depends on the rows of its partition and its work alone: procedures draw nothing and know no time, and a fragment is not ended for its age.
//! (b) What fails is rolled back, as any transaction is. What fails for want of memory fails too, as an error that says so: it leaves no record that would
//! be run again. (c) Rows are put back write by write; under `locking` rows of others' footprints are not among them. (d) Panics of procedures are
//! caught where they run. One of the commit is none of theirs and ends the owner, and so do errors of the database that neither the procedure nor its arguments
//! explain; it goes on from its records. (e) The footprint is that of the arguments, with a lock on all rows of a
//! table in the partition's value where they do not tell keys, and on everything where the footprint ends early or panics.

mod program;

use std::fmt;
use std::time::Duration;

use seriatim::procedure::divided::{Divided, Fragment, Lock, Reply, Undo};
use seriatim::{Session, TransactError, TransactionOptions};
use seriatim_partition::{LockMode, Partition, PartitionId, TransactionId};

pub use program::{Caller, Program, single};

/// Fragments after which the database's helpers have a turn: memory that nobody can reach is used again then.
const STEP_INTERVAL: u64 = 256;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragments {
    /// Fragments that ran to their end.
    pub ran: u64,
    /// Those of them that were taken back.
    pub undone: u64,
}

/// A partition has other procedures than who calls, or has them in another order: its number for one would be another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherProcedures {
    /// The digest of the partition's.
    pub here: u64,
    /// The digest of the caller's.
    pub there: u64,
}

impl fmt::Display for OtherProcedures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the partition has other procedures than who calls, or in another order ({:016x}, {:016x}): register the same set with both, on the same tables \
             and as many partitions",
            self.here, self.there
        )
    }
}

impl std::error::Error for OtherProcedures {}

/// Whether the procedure failed, or its arguments are none, or there is no memory for what it writes.
fn is_of_the_work(error: &TransactError) -> bool {
    matches!(
        error,
        TransactError::User(_)
            | TransactError::Duplicate { .. }
            | TransactError::MissingRow { .. }
            | TransactError::Overflow { .. }
            | TransactError::UnknownProcedure { .. }
            | TransactError::Arguments { .. }
            | TransactError::Unsupported(_)
            | TransactError::OtherPartition { .. }
            | TransactError::NoPartition { .. }
            | TransactError::TooLarge { .. }
            | TransactError::OutOfMemory
    )
}

/// A partition.
pub struct Participant {
    divided: Divided,
    session: Session,
    at: usize,
    fragments: Fragments,
    /// Whether the database has no threads of its own, and its helpers are run here.
    steps: bool,
}

impl Participant {
    /// The partition of this number, whose rows are in the database of these procedures; `callers` is the digest ([`Divided::digest`]) of those of whoever
    /// calls. With `steps` the database was opened by `Builder::step_helpers`, and its helpers run between fragments.
    ///
    /// # Errors
    /// The digests differ.
    pub fn new(divided: Divided, at: PartitionId, callers: u64, steps: bool) -> Result<Participant, OtherProcedures> {
        let (here, there) = (divided.digest(), callers);
        if here != there {
            return Err(OtherProcedures { here, there });
        }
        let mut session = divided.database().session();
        // How long one takes is not a matter of its work.
        session.set_options(TransactionOptions::new().age_max(Duration::MAX));
        Ok(Participant { divided, session, at: at.0 as usize, fragments: Fragments::default(), steps })
    }

    /// Its procedures, and its database.
    pub fn divided(&self) -> &Divided {
        &self.divided
    }

    /// What it has done.
    pub fn fragments(&self) -> Fragments {
        self.fragments
    }

    /// # Panics
    /// If the database fails, and not the procedure.
    fn run(&mut self, work: &Fragment, undo: bool) -> Result<(Reply, Undo), TransactError> {
        let ran = self.divided.run(&mut self.session, self.at, work, undo);
        if let Err(error) = &ran
            && !is_of_the_work(error)
        {
            panic!("the database of partition {} fails: {error}", self.at);
        }
        self.fragments.ran += u64::from(ran.is_ok());
        if self.steps && self.fragments.ran.is_multiple_of(STEP_INTERVAL) {
            self.divided.database().step();
        }
        ran
    }
}

impl Partition for Participant {
    type Work = Fragment;
    type Reply = Reply;
    type Abort = TransactError;
    type Undo = Undo;
    type Key = Vec<u8>;

    fn execute(&mut self, _: TransactionId, work: &Fragment) -> Result<(Reply, Undo), TransactError> {
        self.run(work, true)
    }

    /// What fails is rolled back: nothing has to be kept to take it back.
    fn execute_without_undo(&mut self, _: TransactionId, work: &Fragment) -> Result<Reply, TransactError> {
        self.run(work, false).map(|(reply, _)| reply)
    }

    fn undo(&mut self, undo: Undo) {
        let undone = self.divided.undo(&mut self.session, self.at, &undo);
        undone.unwrap_or_else(|error| panic!("a fragment cannot be taken back: {error}"));
        self.fragments.undone += 1;
    }

    fn forget(&mut self, _: Undo) {}

    fn footprint(&self, work: &Fragment, locks: &mut Vec<(Vec<u8>, LockMode)>) {
        let mut all = Vec::new();
        // Arguments that are none fail where the fragment runs. Until then it has what has not been told.
        if self.divided.locks(self.at, work, &mut all).is_err() {
            all = vec![Lock::of_all(true)];
        }
        let mode = |exclusive| if exclusive { LockMode::Exclusive } else { LockMode::Shared };
        locks.extend(all.into_iter().map(|lock| (lock.what, mode(lock.exclusive))));
    }
}
