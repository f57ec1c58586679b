//! What owners and coordinators keep beside their data: in tables of the same database, so that its log, its checkpoints and its recovery are theirs.
//!
//! | table | row | written |
//! |---|---|---|
//! | [`Identity`] | whose directory it is, and in which life | when it begins, and each time it is opened |
//! | [`Undecided`] | a fragment that may be taken back, and how | with the fragment, in its transaction; deleted with it when it is taken back |
//! | [`Highest`] | the highest number of a client | with the fragment, or the vote |
//! | [`Decided`] | a commit that a coordinator may have to repeat | before anybody is told |
//!
//! Invariants:
//!
//! (a) What a fragment changed and what takes it back are one transaction: whatever is recovered, log or checkpoint, has both or neither.
//! (b) Votes, and what need not be taken back any more, are written in one transaction after each message, in the order of messages. So what is marked as
//!     voted did not rest on anything that is not. Where the disk does not take them they wait, and nothing runs before that leaves no row: it would be
//!     decided, and might rest on what is taken back.
//! (c) What is not marked has not been told anybody, and is taken back when the database is opened, the latest first.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use seriatim::procedure::divided::{Divided, Fragment, Then, Undo, pack_all, unpack_all};
use seriatim::{Abort, Database, Epoch, Handle, SchemaError, Session, Table, TransactError, Tx};
use seriatim_partition::{
    ClientId, Coordinator, CoordinatorId, CoordinatorRecord, Fault, HoldingCoordinator, Journal, Left, OwnerRecord,
    PartitionId, Scheme, TransactionId, Unfinished, is_injected,
};

use crate::program::numbers as numbers_of;
use crate::{Caller, OtherProcedures, Participant, Program, Taken};

/// A fragment that may be taken back.
#[derive(Table, Clone, Debug)]
#[table(name = "partition books: undecided", key(here, place), ordered)]
pub(crate) struct Undecided {
    /// A number that names the partition.
    here: u32,
    /// Where it stands in the order in which fragments ran.
    place: u64,
    client: u32,
    number: u64,
    /// Whether it is all of a transaction.
    alone: bool,
    /// Whether the transaction has voted, or may be answered with what it ran on.
    voted: bool,
    coordinator: u32,
    /// The fragment, if there was work, and what takes it back: bytes, each as a character.
    what: String,
}

/// The highest number of a client.
#[derive(Table, Clone, Debug)]
#[table(name = "partition books: numbers", key(here, client, alone), ordered)]
pub(crate) struct Highest {
    here: u32,
    client: u32,
    /// Whether it is of single-partition transactions.
    alone: bool,
    number: u64,
    coordinator: u32,
}

/// A commit that not all participants have acknowledged.
#[derive(Table, Clone, Debug)]
#[table(name = "partition books: decided", key(here, client, number), ordered)]
pub(crate) struct Decided {
    here: u32,
    client: u32,
    number: u64,
    /// A bit for each participant.
    participants: u64,
}

/// Whose a directory is.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "partition books: identity", key(only), ordered)]
struct Identity {
    /// There is one row.
    only: u32,
    is_coordinator: bool,
    number: u32,
    partitions: u32,
    digest: u64,
    deployment: u64,
    is_locking: bool,
    coordinators: u32,
    /// The number under which the books are kept.
    here: u32,
    life: u64,
}

/// Directories that go together, and how those who have them work. All are begun with the same, and opened with the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// Drawn at random, once: directories that are begun anew are those of another deployment. [`number_of`] gives it again.
    pub number: u64,
    /// How owners work. What is undecided under `locking` is none of the other schemes', nor theirs of `locking`.
    pub scheme: Scheme,
    /// How many coordinators there are.
    pub coordinators: u32,
}

/// Who has a database: a partition, or a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The partition of this number.
    Partition(u32),
    /// The coordinator of this number.
    Coordinator(u32),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Partition(number) => write!(f, "partition {number}"),
            Role::Coordinator(number) => write!(f, "coordinator {number}"),
        }
    }
}

/// Why a database does not go on as that of a partition or coordinator.
#[derive(Debug)]
pub enum Refused {
    /// It is not known to be complete: whoever began it did not come to its end. Delete the directory and begin again.
    Unfinished(Role),
    /// It was begun already.
    Begun(Role),
    /// It is another's.
    Other {
        /// Who asks.
        asked: Role,
        /// Whose it is.
        found: Role,
    },
    /// It is of another number of partitions.
    Partitions {
        /// With how many it was opened.
        asked: u32,
        /// As how many it was divided.
        found: u32,
    },
    /// Its procedures or tables are others than when it was begun, or than those of who calls.
    Procedures(OtherProcedures),
    /// It belongs to other directories: these or it are of another deployment, or were begun anew.
    Deployment(Role),
    /// It was begun under `locking` and is opened under another scheme, or (`false`) the other way around.
    Scheme {
        /// Whether it was begun under `locking`.
        locking: bool,
    },
    /// It was begun with another number of coordinators.
    Coordinators {
        /// With how many it was opened.
        asked: u32,
        /// With how many it was begun.
        found: u32,
    },
    /// The partition function gives no number up to 65,535 for the partition.
    NoNumber(Role),
    /// The partition function is another than when it was begun.
    Moved(Role),
    /// It is in memory, and would keep nothing.
    InMemory(Role),
    /// What it keeps cannot be read.
    Damaged(String),
    /// The database fails.
    Database(TransactError),
    /// Its tables do.
    Schema(SchemaError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unfinished(role) => {
                write!(f, "this database was never begun as that of {role}: delete its directory and fill it again")
            }
            Refused::Begun(role) => write!(f, "this database is that of {role} already: open it"),
            Refused::Other { asked, found } => write!(f, "this database is that of {found}, not of {asked}"),
            Refused::Partitions { asked, found } => write!(
                f,
                "this database was divided by {found} partitions and is opened with {asked}: open it with Builder::partitions({found})"
            ),
            Refused::Procedures(other) => other.fmt(f),
            Refused::NoNumber(role) => {
                write!(
                    f,
                    "the partition function puts no number up to 65535 into {role}, where it would keep what is its own"
                )
            }
            Refused::Deployment(role) => write!(
                f,
                "this database is that of {role} of another deployment: directories are begun together, and none of them alone"
            ),
            Refused::Scheme { locking } => {
                let (found, asked) =
                    if *locking { ("locking", "another scheme") } else { ("another scheme", "locking") };
                write!(f, "this database was begun under {found} and is opened under {asked}")
            }
            Refused::Coordinators { asked, found } => {
                write!(f, "this database was begun with {found} coordinators and is opened with {asked}")
            }
            Refused::Moved(role) => {
                write!(f, "the partition function is another than when this database was begun as that of {role}")
            }
            Refused::InMemory(role) => {
                write!(f, "{role} would keep what it has to in a database in memory: open that with Builder::path")
            }
            Refused::Damaged(what) => {
                write!(f, "what the database keeps of undecided transactions cannot be read: {what}")
            }
            Refused::Database(error) => error.fmt(f),
            Refused::Schema(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

impl From<TransactError> for Refused {
    fn from(error: TransactError) -> Refused {
        Refused::Database(error)
    }
}

impl From<SchemaError> for Refused {
    fn from(error: SchemaError) -> Refused {
        Refused::Schema(error)
    }
}

/// The database of these procedures, with its rows, is that of a partition or coordinator from here on.
///
/// # Errors
/// It is somebody's already, or in memory; the database fails.
pub fn begin(divided: &Divided, role: Role, of: &Deployed) -> Result<(), Refused> {
    let database = divided.database();
    let here = here(divided, role)?;
    let identities = database.create_or_open::<Identity>()?;
    database.create_or_open::<Highest>()?;
    match role {
        Role::Partition(_) => database.create_or_open::<Undecided>().map(drop)?,
        Role::Coordinator(_) => database.create_or_open::<Decided>().map(drop)?,
    }
    let (is_coordinator, number) = match role {
        Role::Partition(number) => (false, number),
        Role::Coordinator(number) => (true, number),
    };
    let (partitions, digest) = (divided.partitions() as u32, divided.digest());
    let &Deployed { number: deployment, scheme, coordinators } = of;
    let is_locking = scheme == Scheme::Locking;
    let (only, life) = (0, 0);
    let identity =
        Identity { only, is_coordinator, number, partitions, digest, deployment, is_locking, coordinators, here, life };
    // Rows that were filled in are durable before it says so.
    database.flush()?;
    match database.session().transact(|tx| tx.try_insert(&identities, &identity))?.value {
        true => Ok(database.flush()?),
        false => Err(Refused::Begun(role)),
    }
}

/// The number that names the rows of who has this database.
fn here(divided: &Divided, role: Role) -> Result<u32, Refused> {
    if divided.database().durable_epoch().is_none() {
        return Err(Refused::InMemory(role));
    }
    let at = if let Role::Partition(number) = role { number as usize } else { 0 };
    divided.number_in(at).ok_or(Refused::NoNumber(role))
}

fn identity(divided: &Divided, role: Role) -> Result<(Handle<Identity>, Identity), Refused> {
    let database = divided.database();
    let identities = match database.table::<Identity>() {
        Err(SchemaError::Unknown(_)) => return Err(Refused::Unfinished(role)),
        identities => identities?,
    };
    let found = database.session().transact(|tx| Ok(tx.get(&identities, &0)?.map(|row| row.to_owned())))?.value;
    Ok((identities, found.ok_or(Refused::Unfinished(role))?))
}

/// Of which deployment ([`Deployed::number`]) this database is, which was begun as that of a partition or coordinator.
///
/// # Errors
/// It has not begun; the database fails.
pub fn number_of(divided: &Divided, role: Role) -> Result<u64, Refused> {
    Ok(identity(divided, role)?.1.deployment)
}

/// The highest number of a transaction of which this database keeps something, of any client. When a deployment goes on, numbers begin above those of all
/// its directories: what has the number of one that came before would not run.
///
/// # Errors
/// As where it is opened: it has not begun, or is another's; the database fails.
pub fn highest(divided: &Divided, role: Role, of: &Deployed) -> Result<u64, Refused> {
    fitting(divided, role, of)?;
    let numbers = divided.database().table::<Highest>()?;
    let highest = divided
        .database()
        .session()
        .transact(|tx| tx.scan(&numbers, ..).try_fold(0, |highest: u64, row| Ok(highest.max(row?.number()))));
    Ok(highest?.value)
}

/// Who has this database, if it is the one that is asked for.
fn fitting(divided: &Divided, role: Role, of: &Deployed) -> Result<(Handle<Identity>, Identity), Refused> {
    let here = here(divided, role)?;
    let (identities, identity) = identity(divided, role)?;
    let number = identity.number;
    let found = if identity.is_coordinator { Role::Coordinator(number) } else { Role::Partition(number) };
    if found != role {
        return Err(Refused::Other { asked: role, found });
    }
    let asked = divided.partitions() as u32;
    if identity.partitions != asked {
        return Err(Refused::Partitions { asked, found: identity.partitions });
    }
    if identity.deployment != of.number {
        return Err(Refused::Deployment(role));
    }
    if identity.is_locking != (of.scheme == Scheme::Locking) {
        return Err(Refused::Scheme { locking: identity.is_locking });
    }
    if identity.coordinators != of.coordinators {
        return Err(Refused::Coordinators { asked: of.coordinators, found: identity.coordinators });
    }
    if identity.digest != divided.digest() {
        return Err(Refused::Procedures(OtherProcedures { here: identity.digest, there: divided.digest() }));
    }
    if identity.here != here {
        return Err(Refused::Moved(role));
    }
    Ok((identities, identity))
}

/// Begins another life of who has this database, which is durable when this returns; which it is, from 1, and the number that names its rows.
fn next_life(divided: &Divided, role: Role, of: &Deployed) -> Result<(u64, u32), Refused> {
    let (identities, identity) = fitting(divided, role, of)?;
    let (database, life, here) = (divided.database(), identity.life + 1, identity.here);
    database.session().transact(|tx| tx.put(&identities, &Identity { life, ..identity.clone() }))?;
    database.flush()?;
    Ok((life, here))
}

fn to_text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn to_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|character| u8::try_from(character).ok()).collect()
}

/// Notes a number, if it is the highest: those of one client need not run in their order.
fn note_highest(tx: &Tx, numbers: &Handle<Highest>, row: Highest) -> Result<(), Abort> {
    let before = tx.get(numbers, &(row.here, row.client, row.alone))?.map(|before| before.number());
    if before < Some(row.number) { tx.put(numbers, &row) } else { Ok(()) }
}

/// Whether this is because a disk takes nothing just now. Nothing was written.
pub(crate) fn is_of_the_disk(error: &TransactError) -> bool {
    matches!(error, TransactError::DiskFull { .. } | TransactError::DiskBehind { .. })
}

/// Numbers of what waits for the disk, and in which epoch each was written.
#[derive(Default)]
pub(crate) struct Waits {
    given: u64,
    reached: u64,
    written: VecDeque<(u64, Epoch)>,
}

impl Waits {
    /// Another number, for what may not be written yet.
    pub(crate) fn next(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    /// All to which numbers were given is written, in epochs up to this one.
    pub(crate) fn written(&mut self, newest: Epoch) {
        match self.written.back_mut() {
            Some((given, epoch)) if *epoch == newest => *given = self.given,
            _ => self.written.push_back((self.given, newest)),
        }
    }

    /// The highest number of what is durable, as all up to this epoch is.
    pub(crate) fn reached(&mut self, durable: u64) -> u64 {
        while let Some((given, _)) = self.written.pop_front_if(|(_, epoch)| epoch.0 <= durable) {
            self.reached = given;
        }
        self.reached
    }
}

/// The books of an owner.
pub(crate) struct OwnerBooks {
    undecided: Handle<Undecided>,
    numbers: Handle<Highest>,
    here: u32,
    /// Of the next fragment.
    place: u64,
    /// Of fragments that may be taken back, by transaction and whether they are all of it.
    places: BTreeMap<(TransactionId, bool), Vec<u64>>,
    /// Of votes of transactions that have had no work here.
    without_work: BTreeMap<TransactionId, u64>,
    /// Votes that are not written yet.
    votes: Vec<Undecided>,
    /// Fragments that will not be taken back, whose rows are still there.
    ended: Vec<u64>,
    /// The latest epoch in which something was written.
    pub(crate) newest: Epoch,
    pub(crate) waits: Waits,
}

impl OwnerBooks {
    /// Of a database of this partition, what had not voted taken back; what is left there.
    pub(crate) fn open(
        divided: &Divided,
        session: &mut Session,
        at: PartitionId,
        of: &Deployed,
    ) -> Result<(OwnerBooks, Left<Participant>), Refused> {
        let (life, here) = next_life(divided, Role::Partition(at.0), of)?;
        let database = divided.database();
        let (undecided, numbers) = (database.table::<Undecided>()?, database.table::<Highest>()?);
        let mut books = OwnerBooks {
            undecided,
            numbers,
            here,
            place: 0,
            places: BTreeMap::new(),
            without_work: BTreeMap::new(),
            votes: Vec::new(),
            ended: Vec::new(),
            newest: Epoch(0),
            waits: Waits::default(),
        };
        let rows = session.transact(|tx| tx.scan(&books.undecided, ..).map(|row| Ok(row?.to_owned())).collect())?;
        let rows: Vec<Undecided> = rows.value;
        let mut left = Left { life, unfinished: Vec::new(), calls: Vec::new(), fragments: Vec::new() };
        let of = |row: &Undecided| (TransactionId { client: ClientId(row.client), number: row.number }, row.alone);
        for row in &rows {
            books.place = books.place.max(row.place + 1);
            books.places.entry(of(row)).or_default().push(row.place);
        }
        let mut voted: BTreeMap<_, _> =
            rows.iter().filter(|row| row.voted).map(|row| (of(row), row.coordinator)).collect();
        if is_injected(Fault::VotesForgotten) {
            voted.clear();
        }
        for row in rows.iter().rev().filter(|row| !voted.contains_key(&of(row))) {
            let (_, undo) = read(row)?;
            let undone = divided.undo(session, at.0 as usize, &undo, &|tx, _| books.undo(tx, row.place))?;
            books.newest = books.newest.max(undone.epoch());
        }
        books.places.retain(|one, _| voted.contains_key(one));
        for row in &rows {
            let (one, place) = (of(row), row.place);
            let Some(coordinator) = voted.get(&one) else { continue };
            let (work, undo) = read(row)?;
            if books.places[&one].first() == Some(&place) {
                let coordinator = (!one.1).then_some(CoordinatorId(*coordinator));
                left.unfinished.push(Unfinished { transaction: one.0, coordinator, done: Vec::new() });
            }
            let is_it = |other: &&mut Unfinished<Participant>| (other.transaction, other.coordinator.is_none()) == one;
            let unfinished = left.unfinished.iter_mut().find(is_it).expect("its first row was met");
            if work.is_none() {
                books.places.remove(&one);
                books.without_work.insert(one.0, place);
            }
            unfinished.done.extend(work.map(|work| (work, Taken { undo, kept: Some((one.0, one.1, place)) })));
        }
        let highest = session.transact(|tx| tx.scan(&books.numbers, ..).map(|row| Ok(row?.to_owned())).collect())?;
        let highest: Vec<Highest> = highest.value;
        for Highest { client, alone, number, coordinator, .. } in highest {
            let transaction = TransactionId { client: ClientId(client), number };
            match alone {
                true => left.calls.push(transaction),
                false => left.fragments.push((transaction, CoordinatorId(coordinator))),
            }
        }
        Ok((books, left))
    }

    /// Writes, in its transaction, what a fragment leaves here: its number if it is all of a transaction, and how it is taken back if it may be.
    pub(crate) fn note(
        &self,
        tx: &Tx,
        transaction: TransactionId,
        work: &Fragment,
        undo: Option<&Undo>,
    ) -> Result<(), Abort> {
        let (here, alone) = (self.here, work.round.is_none());
        let TransactionId { client: ClientId(client), number } = transaction;
        if alone {
            note_highest(tx, &self.numbers, Highest { here, client, alone, number, coordinator: 0 })?;
        }
        let Some(undo) = undo else { return Ok(()) };
        tx.insert(&self.undecided, &self.row(transaction, alone, self.place, Some(work), undo))
    }

    fn row(
        &self,
        transaction: TransactionId,
        alone: bool,
        place: u64,
        work: Option<&Fragment>,
        undo: &Undo,
    ) -> Undecided {
        let TransactionId { client: ClientId(client), number } = transaction;
        let mut bytes = pack_all(&work.is_some());
        bytes.extend(work.map(pack_all).unwrap_or_default());
        bytes.extend(pack_all(undo));
        let what = to_text(&bytes);
        Undecided { here: self.here, place, client, number, alone, voted: false, coordinator: 0, what }
    }

    /// The fragment is done that was noted; what its undo has to know.
    pub(crate) fn noted(&mut self, transaction: TransactionId, alone: bool) -> (TransactionId, bool, u64) {
        let place = self.place;
        self.place += 1;
        self.places.entry((transaction, alone)).or_default().push(place);
        (transaction, alone, place)
    }

    /// Deletes, in its transaction, the row of a fragment that is taken back.
    pub(crate) fn undo(&self, tx: &Tx, place: u64) -> Result<(), Abort> {
        tx.delete(&self.undecided, &(self.here, place))
    }

    /// The fragment was taken back, or (`stays`) will not be.
    pub(crate) fn end(&mut self, (transaction, alone, place): (TransactionId, bool, u64), stays: bool) {
        if let Some(places) = self.places.get_mut(&(transaction, alone)) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                self.places.remove(&(transaction, alone));
            }
        }
        if stays {
            self.ended.push(place);
        } else {
            self.votes.retain(|vote| vote.place != place);
        }
    }

    /// Notes a record of the owner.
    pub(crate) fn keep(&mut self, record: &OwnerRecord<Fragment>) {
        let (transaction, alone, coordinator) = match *record {
            // What ran alone is committed by itself.
            OwnerRecord::Executed { after: None, .. } => return,
            OwnerRecord::Executed { transaction, .. } => (transaction, true, 0),
            OwnerRecord::Prepared { transaction, coordinator, .. } => (transaction, false, coordinator.0),
            OwnerRecord::Decided { transaction, .. } => {
                // What had no work has no undo by which it would be known to have ended.
                self.ended.extend(self.without_work.remove(&transaction));
                return;
            }
        };
        let known = self.places.get(&(transaction, alone)).and_then(|places| places.last().copied());
        let place = known.unwrap_or_else(|| {
            self.without_work.insert(transaction, self.place);
            self.place += 1;
            self.place - 1
        });
        let row = self.row(transaction, alone, place, None, &Undo::default());
        self.votes.push(Undecided { voted: true, coordinator, ..row });
    }

    /// Whether there are votes that are not written yet.
    pub(crate) fn has_votes(&self) -> bool {
        !self.votes.is_empty()
    }

    /// Writes what was noted and has not been written; nothing of it is, if that fails.
    pub(crate) fn write(&mut self, divided: &Divided, session: &mut Session, at: usize) -> Result<(), TransactError> {
        if self.votes.is_empty() && self.ended.is_empty() {
            return Ok(());
        }
        let then: &Then<'_> = &|tx, _| {
            for vote in &self.votes {
                let marked = tx.update_if(&self.undecided, &(vote.here, vote.place), |row| {
                    row.set_voted(true);
                    row.set_coordinator(vote.coordinator);
                });
                if marked?.is_err() {
                    tx.insert(&self.undecided, vote)?;
                }
                let &Undecided { here, client, alone, number, coordinator, .. } = vote;
                if !alone {
                    note_highest(tx, &self.numbers, Highest { here, client, alone, number, coordinator })?;
                }
            }
            self.ended.iter().try_for_each(|place| self.undo(tx, *place))
        };
        let written = divided.undo(session, at, &Undo::default(), then)?;
        self.newest = self.newest.max(written.epoch());
        self.votes.clear();
        self.ended.clear();
        Ok(())
    }
}

/// A fragment and what takes it back.
fn read(row: &Undecided) -> Result<(Option<Fragment>, Undo), Refused> {
    let damaged = |what: &str| Refused::Damaged(format!("{}.{}: {what}", row.client, row.number));
    let bytes = to_bytes(&row.what).ok_or_else(|| damaged("it is no bytes"))?;
    let read: Result<(Option<Fragment>, Undo), _> = unpack_all(&bytes);
    read.map_err(|error| damaged(&error.to_string()))
}

/// A coordinator that keeps its decisions in the database of who calls, which was begun as that coordinator's ([`begin`]), in whichever state that was left; and
/// in which of its lives it is, which is above those before.
///
/// # Errors
/// The database is none of this coordinator, of this deployment, of as many partitions and of these procedures; it fails.
pub fn coordinator(
    id: CoordinatorId,
    caller: &Arc<Caller>,
    of: &Deployed,
) -> Result<(HoldingCoordinator<Program>, u64), Refused> {
    let divided = caller.divided();
    let mut session = divided.database().session();
    let (life, here) = next_life(divided, Role::Coordinator(id.0), of)?;
    let (decided, numbers) = (divided.database().table::<Decided>()?, divided.database().table::<Highest>()?);
    let read = session.transact(|tx| {
        let highest = tx.scan(&numbers, ..).map(|row| Ok(row?.to_owned())).collect::<Result<Vec<_>, Abort>>()?;
        Ok((highest, tx.scan(&decided, ..).map(|row| Ok(row?.to_owned())).collect::<Result<Vec<_>, Abort>>()?))
    });
    let (highest, commits): (Vec<Highest>, Vec<Decided>) = read?.value;
    let mut records = Vec::new();
    for Highest { client, number, .. } in highest {
        let transaction = TransactionId { client: ClientId(client), number };
        records.push(CoordinatorRecord::Committed { transaction, participants: Vec::new() });
        records.push(CoordinatorRecord::Ended { transaction });
    }
    for Decided { client, number, participants, .. } in commits {
        let transaction = TransactionId { client: ClientId(client), number };
        records.push(CoordinatorRecord::Committed { transaction, participants: numbers_of(participants).collect() });
    }
    let (partitions, mut out) = ((0..divided.partitions() as u32).map(PartitionId), Vec::new());
    let coordinator = Coordinator::recover(id, life, records, partitions, &mut out);
    let (caller, owed, newest, waits) = (Arc::clone(caller), VecDeque::new(), Epoch(0), Waits::default());
    let journal = Decisions { caller, session, decided, numbers, here, owed, newest, waits };
    Ok((HoldingCoordinator::of(coordinator, Some(Box::new(journal)), out), life))
}

/// The books of a coordinator.
struct Decisions {
    caller: Arc<Caller>,
    session: Session,
    decided: Handle<Decided>,
    numbers: Handle<Highest>,
    here: u32,
    /// Records that the disk has not taken yet.
    owed: VecDeque<CoordinatorRecord>,
    /// The latest epoch in which something was written.
    newest: Epoch,
    waits: Waits,
}

impl Decisions {
    /// Writes a record in its transaction.
    fn write(&mut self, record: &CoordinatorRecord) -> Result<(), TransactError> {
        let here = self.here;
        let then: &Then<'_> = &|tx, _| match record {
            CoordinatorRecord::Committed { transaction, participants } => {
                let TransactionId { client: ClientId(client), number } = *transaction;
                let participants = participants.iter().fold(0, |all, one| all | 1 << one.0);
                tx.put(&self.decided, &Decided { here, client, number, participants })?;
                note_highest(tx, &self.numbers, Highest { here, client, alone: false, number, coordinator: 0 })
            }
            CoordinatorRecord::Ended { transaction } => {
                tx.delete(&self.decided, &(here, transaction.client.0, transaction.number))
            }
        };
        let receipt = self.caller.divided().undo(&mut self.session, 0, &Undo::default(), then)?;
        self.newest = self.newest.max(receipt.epoch());
        Ok(())
    }

    /// Writes what is owed, as far as the disk takes it.
    fn write_owed(&mut self) {
        while let Some(record) = self.owed.pop_front() {
            match self.write(&record) {
                Ok(()) => {}
                Err(error) if is_of_the_disk(&error) => return self.owed.push_front(record),
                Err(error) => panic!("the database of a coordinator fails: {error}"),
            }
        }
        request(self.caller.divided().database(), self.newest);
        self.waits.written(self.newest);
    }
}

impl Journal for Decisions {
    fn keep(&mut self, record: &CoordinatorRecord) -> u64 {
        self.owed.push_back(record.clone());
        let number = self.waits.next();
        self.write_owed();
        number
    }

    fn durable(&mut self) -> u64 {
        self.write_owed();
        self.waits.reached(durable(self.caller.divided().database()))
    }
}

/// What was written in this epoch is wanted soon.
///
/// # Panics
/// If the log has stopped.
pub(crate) fn request(database: &Database, newest: Epoch) {
    let requested = database.request_durable(newest);
    requested.unwrap_or_else(|error| panic!("a database of partitions fails: {error}"));
}

/// Up to which epoch a database is durable.
///
/// # Panics
/// If the log has stopped.
pub(crate) fn durable(database: &Database) -> u64 {
    request(database, Epoch(0));
    database.durable_epoch().map_or(u64::MAX, |epoch| epoch.0)
}
