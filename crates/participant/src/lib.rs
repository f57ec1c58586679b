//! A partition whose data are a database: declared procedures behind owners that exchange messages.
//!
//! Each partition has a database of its own, opened with as many partitions as there are owners, and has its rows in it and the tables that are
//! everywhere. Its owner alone uses it. What a fragment runs there is said in [`seriatim::procedure::divided`]; how fragments of transactions are
//! ordered, in the crate `partition`. Between them stands this, which knows neither threads nor networks:
//!
//! - `books`: what survives the process beside the data, in tables of the same databases, whose log, checkpoints and recovery are the engine's;
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
//! be run again; so does what a full or slow disk does not take. (c) Rows are put back write by write; under `locking` rows of others' footprints are not among them. (d) Panics of procedures are
//! caught where they run. One of the commit is none of theirs and ends the owner, and so do errors of the database that neither the procedure nor its arguments
//! explain; it goes on from its records. (e) The footprint is that of the arguments, with a lock on all rows of a
//! table in the partition's value where they do not tell keys, and on everything where the footprint ends early or panics.

mod books;
mod program;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use seriatim::procedure::divided::{Divided, Fragment, Lock, NOTHING, Reply, Undo};
use seriatim::{Session, TransactError, TransactionOptions};
use seriatim_partition::{Fault, Left, LockMode, OwnerRecord, Partition, PartitionId, TransactionId, is_injected};

use books::{OwnerBooks, durable, is_of_the_disk, request};

pub use books::{Deployed, Refused, Role, begin, coordinator, highest, number_of};
pub use program::{Caller, Program, single};

/// Fragments after which the database's helpers have a turn: memory that nobody can reach is used again then.
const STEP_INTERVAL: u64 = 256;

/// Whether helpers have a turn, and after how many fragments.
fn interval(steps: bool) -> Option<u64> {
    steps.then_some(STEP_INTERVAL)
}

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

/// Whether the procedure failed, or its arguments are none, or there is no memory, or no space on the disk, for what it writes.
fn is_of_the_work(error: &TransactError) -> bool {
    is_of_the_disk(error)
        || matches!(
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
                | TransactError::OutOfMemory { .. }
        )
}

/// A partition.
pub struct Participant {
    divided: Divided,
    session: Session,
    at: usize,
    fragments: Fragments,
    /// If the database has no threads of its own, its helpers are run here, each time after so many fragments.
    steps: Option<u64>,
    /// What is kept of its transactions, if it is durable.
    books: Option<OwnerBooks>,
    /// What is to be taken back, in this order, and was not yet, as the disk takes nothing. Nothing runs before.
    owed: VecDeque<Taken>,
    /// For its owner, when that begins.
    left: Option<Left<Participant>>,
}

/// What takes a fragment back.
#[derive(Debug)]
pub struct Taken {
    undo: Undo,
    /// Where it stands in the books: of which transaction, whether it is all of it, and its place.
    kept: Option<(TransactionId, bool, u64)>,
}

impl Taken {
    /// How many writes are taken back.
    pub fn writes(&self) -> usize {
        self.undo.len()
    }
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
        let (at, fragments, steps) = (at.0 as usize, Fragments::default(), interval(steps));
        let owed = VecDeque::new();
        Ok(Participant { divided, session, at, fragments, steps, books: None, owed, left: None })
    }

    /// As [`Participant::new`], of a partition on disk: a database that was begun ([`begin`]), in whichever state it was left. It keeps what its owner needs to
    /// go on. What had not voted is taken back.
    ///
    /// # Errors
    /// The database is none of this partition, of this deployment, of as many partitions and of these procedures; it fails.
    pub fn open(
        divided: Divided,
        at: PartitionId,
        callers: u64,
        steps: bool,
        of: &Deployed,
    ) -> Result<Participant, Refused> {
        let mut participant = Participant::new(divided, at, callers, steps).map_err(Refused::Procedures)?;
        let (books, left) = OwnerBooks::open(&participant.divided, &mut participant.session, at, of)?;
        (participant.books, participant.left) = (Some(books), Some(left));
        Ok(participant)
    }

    fn fail(&self, error: &TransactError) -> ! {
        panic!("the database of partition {} fails: {error}", self.at)
    }

    /// Lets the helpers have a turn after so many fragments, if they are run here.
    pub fn set_step_interval(&mut self, fragments: u64) {
        self.steps = self.steps.map(|_| fragments.max(1));
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
    fn run(
        &mut self,
        transaction: TransactionId,
        work: &Fragment,
        undo: bool,
    ) -> Result<(Reply, Taken), TransactError> {
        self.take_back()?;
        // What leaves no row is decided as soon as it is in the log: what it may rest on has its marks there before.
        if !undo && self.books.as_ref().is_some_and(OwnerBooks::has_votes) && self.divided.changes(work.procedure) {
            self.write()?;
        }
        let apart = is_injected(Fault::UndoApart);
        // What changes nothing, and is not taken back, leaves no trace.
        let books = self.books.as_ref().filter(|_| undo || self.divided.changes(work.procedure));
        let ran = match books {
            Some(books) if !apart => self.divided.run(&mut self.session, self.at, work, undo, &|tx, noted| {
                books.note(tx, transaction, work, undo.then_some(noted))
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
        if let Some(books) = &mut self.books {
            books.newest = books.newest.max(ran.receipt.epoch());
            if apart {
                self.divided.database().step();
                let note = |tx: &_, _: &_| books.note(tx, transaction, work, undo.then_some(&ran.undo));
                let noted = self.divided.undo(&mut self.session, self.at, &Undo::default(), &note);
                noted.expect("the mistake is made");
            }
            kept = undo.then(|| books.noted(transaction, work.round.is_none()));
        }
        Ok((ran.reply, Taken { undo: ran.undo, kept }))
    }

    /// Takes back what is to be, as far as the disk lets it.
    fn take_back(&mut self) -> Result<(), TransactError> {
        while let Some(Taken { undo, kept }) = self.owed.front() {
            let undone = match self.books.as_ref().zip(*kept) {
                None => self.divided.undo(&mut self.session, self.at, undo, NOTHING),
                Some((books, (_, _, place))) => {
                    self.divided.undo(&mut self.session, self.at, undo, &|tx, _| books.undo(tx, place))
                }
            };
            match undone {
                Ok(receipt) => self.books.iter_mut().for_each(|books| books.newest = books.newest.max(receipt.epoch())),
                Err(error) if is_of_the_disk(&error) => return Err(error),
                Err(error) => panic!("a fragment cannot be taken back: {error}"),
            }
            self.owed.pop_front();
        }
        Ok(())
    }

    /// Writes what is to be kept, if the disk lets it.
    fn write(&mut self) -> Result<(), TransactError> {
        self.take_back()?;
        let Some(books) = &mut self.books else { return Ok(()) };
        match books.write(&self.divided, &mut self.session, self.at) {
            Ok(()) => {
                request(self.divided.database(), books.newest);
                books.waits.written(books.newest);
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

    /// What fails is rolled back: nothing has to be kept to take it back.
    fn execute_without_undo(&mut self, id: TransactionId, work: &Fragment) -> Result<Reply, TransactError> {
        self.run(id, work, false).map(|(reply, _)| reply)
    }

    fn execute_alone(&mut self, id: TransactionId, work: &Fragment, _: bool) -> Result<Reply, TransactError> {
        self.execute_without_undo(id, work)
    }

    /// Where the disk takes nothing, what was to be taken back stays, and nothing runs until it is.
    fn undo(&mut self, taken: Taken) {
        if let Some((books, kept)) = self.books.as_mut().zip(taken.kept) {
            books.end(kept, false);
        }
        self.owed.push_back(taken);
        self.fragments.undone += 1;
        if self.take_back().is_err() && is_injected(Fault::OwedForgotten) {
            self.owed.clear();
        }
    }

    fn forget(&mut self, Taken { kept, .. }: Taken) {
        if let Some((books, kept)) = self.books.as_mut().zip(kept) {
            books.end(kept, true);
        }
    }

    fn keep(&mut self, records: Vec<OwnerRecord<Fragment>>) -> u64 {
        let Some(books) = &mut self.books else { return 0 };
        records.iter().for_each(|record| books.keep(record));
        let number = books.waits.next();
        // What the disk does not take now is written later.
        let _ = self.write();
        number
    }

    fn durable(&mut self) -> u64 {
        let _ = self.write();
        let durable = durable(self.divided.database());
        self.books.as_mut().map_or(u64::MAX, |books| books.waits.reached(durable))
    }

    fn left(&mut self) -> Option<Left<Participant>> {
        self.left.take()
    }

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
