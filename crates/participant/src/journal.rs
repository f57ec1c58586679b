//! The durable state of owners and coordinators, beside their data: tables of the same database, which share
//! its log, its checkpoints and its recovery.
//!
//! | table | row | written |
//! |---|---|---|
//! | [`Identity`] | the owner of the directory, and its incarnation | at initialization, and at each opening |
//! | [`Undecided`] | a fragment that may be undone, and its undo | with the fragment; deleted at the undo |
//! | [`Highest`] | the highest number of a client | with the fragment, or the vote |
//! | [`Decided`] | a commit that a coordinator may have to repeat | before the decision is sent |
//!
//! Invariants:
//!
//! (a) The changes of a fragment and its undo are written by one transaction: a recovered log or checkpoint has both or
//!     neither.
//! (b) Votes, and the ends of fragments that will not be undone, are written by one transaction after each
//!     message, in the order of messages. So a fragment that is marked as voted depends on marked fragments
//!     only. If the disk takes no writes, the marks wait. Until then no fragment without a row runs: it would
//!     be decided at once, and might depend on one that is undone.
//! (c) An unmarked fragment has not been reported. It is undone when the database is opened, the
//!     latest first.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use seriatim::procedure::divided::{Divided, Fragment, FragmentEnd, Undo, pack_all, unpack_all};
use seriatim::{Abort, Database, Epoch, Handle, SchemaError, Session, Table, TransactError, Tx};
use seriatim_partition::{
    ClientId, Coordinator, CoordinatorId, CoordinatorRecord, Fault, HoldingCoordinator, Journal, OwnerRecord,
    PartitionId, RecoveredState, Scheme, TransactionId, Unfinished, is_injected,
};

use crate::program::numbers as numbers_of;
use crate::{Caller, OtherProcedures, Participant, Program, Taken};

/// A fragment that may be undone.
#[derive(Table, Clone, Debug)]
#[table(name = "partition books: undecided", key(here, place), ordered)]
pub(crate) struct Undecided {
    /// A number that the partition function maps to the partition.
    here: u32,
    /// Its position in execution order.
    place: u64,
    client: u32,
    number: u64,
    /// Whether it is the whole transaction.
    alone: bool,
    /// Whether the transaction has voted, or may be answered once the transactions below it are decided.
    voted: bool,
    coordinator: u32,
    /// The fragment, if there was work, and its undo: bytes, each as a character.
    what: String,
}

/// The highest number of a client.
#[derive(Table, Clone, Debug)]
#[table(name = "partition books: numbers", key(here, client, alone), ordered)]
pub(crate) struct Highest {
    here: u32,
    client: u32,
    /// Whether it is for single-partition transactions.
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

/// The owner of a directory.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "partition books: identity", key(only), ordered)]
struct Identity {
    /// The key of the only row.
    only: u32,
    is_coordinator: bool,
    number: u32,
    partitions: u32,
    digest: u64,
    deployment: u64,
    is_locking: bool,
    coordinators: u32,
    /// The number that is the partition column of this table's rows.
    here: u32,
    /// The incarnation; directories have the column by this name.
    life: u64,
}

/// Directories that belong together, and the settings of their owners. All are initialized and opened with the
/// same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// Drawn at random, once: directories that are initialized again belong to another deployment.
    /// [`number_of`] returns it.
    pub number: u64,
    /// The scheme of the owners. Undecided transactions of `locking` cannot be continued under other schemes,
    /// nor theirs under `locking`.
    pub scheme: Scheme,
    /// The number of coordinators.
    pub coordinators: u32,
}

/// The role of a database's process: a partition, or a coordinator.
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

/// Why a database cannot be opened for a partition or coordinator.
#[derive(Debug)]
pub enum Refused {
    /// The database may be incomplete, as its initialization was interrupted. Delete the directory and begin again.
    Unfinished(Role),
    /// The database is initialized already.
    Begun(Role),
    /// The database belongs to another role.
    Other {
        /// The role for which it was opened.
        asked: Role,
        /// The role to which it belongs.
        found: Role,
    },
    /// The database was divided into another number of partitions.
    Partitions {
        /// The number with which it was opened.
        asked: u32,
        /// The number into which it was divided.
        found: u32,
    },
    /// Its procedures or tables differ from those at its initialization, or from the caller's.
    Procedures(OtherProcedures),
    /// It belongs to another deployment than the other directories, or they were initialized again.
    Deployment(Role),
    /// It was initialized under `locking` and is opened under another scheme, or (`false`) the other way
    /// around.
    Scheme {
        /// Whether it was initialized under `locking`.
        locking: bool,
    },
    /// It was initialized with another number of coordinators.
    Coordinators {
        /// The number with which it was opened.
        asked: u32,
        /// The number with which it was initialized.
        found: u32,
    },
    /// The partition function maps no number up to 65,535 to the partition.
    NoNumber(Role),
    /// The partition function differs from the one at its initialization.
    Moved(Role),
    /// It is in memory, and would keep nothing.
    InMemory(Role),
    /// Its stored state cannot be read.
    Damaged(String),
    /// The database failed.
    Database(TransactError),
    /// Its tables could not be created or opened.
    Schema(SchemaError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unfinished(role) => {
                write!(
                    f,
                    "this database was not completely initialized for {role}: delete its directory and fill it again"
                )
            }
            Refused::Begun(role) => write!(f, "this database already belongs to {role}: open it"),
            Refused::Other { asked, found } => write!(f, "this database belongs to {found}, not to {asked}"),
            Refused::Partitions { asked, found } => write!(
                f,
                "this database was divided by {found} partitions and is opened with {asked}: \
                 open it with Builder::partitions({found})"
            ),
            Refused::Procedures(other) => other.fmt(f),
            Refused::NoNumber(role) => {
                write!(
                    f,
                    "the partition function maps no number up to 65535 to {role}, which needs one for its own tables"
                )
            }
            Refused::Deployment(role) => write!(
                f,
                "this database belongs to {role} of another deployment: \
                 the directories of a deployment are initialized together"
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
                write!(f, "the partition function is not the one with which this database was initialized for {role}")
            }
            Refused::InMemory(role) => {
                write!(f, "{role} needs a durable database, and this one is in memory: open it with Builder::path")
            }
            Refused::Damaged(what) => {
                write!(f, "the stored state of undecided transactions cannot be read: {what}")
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

/// Initializes the database of these procedures, with its rows, for a partition or coordinator.
///
/// # Errors
/// If the database has a role already or is in memory, or if it fails.
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
    // The rows of the data are durable before the identity is written.
    database.flush()?;
    match database.session().transact(|tx| tx.try_insert(&identities, &identity))?.value {
        true => Ok(database.flush()?),
        false => Err(Refused::Begun(role)),
    }
}

/// The number that is the partition column of this role's rows.
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

/// The deployment ([`Deployed::number`]) of a database that was initialized for a partition or coordinator.
///
/// # Errors
/// If it is not initialized, or if the database fails.
pub fn number_of(divided: &Divided, role: Role) -> Result<u64, Refused> {
    Ok(identity(divided, role)?.1.deployment)
}

/// The highest number of a transaction in the durable state of this database, of any client. When a deployment
/// continues, numbers begin above those of all its directories: a transaction with an old number would not
/// run.
///
/// # Errors
/// As at its opening: it is not initialized or belongs to another role, or the database fails.
pub fn highest(divided: &Divided, role: Role, of: &Deployed) -> Result<u64, Refused> {
    fitting(divided, role, of)?;
    let numbers = divided.database().table::<Highest>()?;
    let highest = divided
        .database()
        .session()
        .transact(|tx| tx.scan(&numbers, ..).try_fold(0, |highest: u64, row| Ok(highest.max(row?.number()))));
    Ok(highest?.value)
}

/// The identity of this database, if it matches.
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

/// Begins the next incarnation of this role, which is durable when this returns. Returns its number, from 1,
/// and the number that is the partition column of its rows.
fn next_incarnation(divided: &Divided, role: Role, of: &Deployed) -> Result<(u64, u32), Refused> {
    let (identities, identity) = fitting(divided, role, of)?;
    let (database, incarnation, here) = (divided.database(), identity.life + 1, identity.here);
    database.session().transact(|tx| tx.put(&identities, &Identity { life: incarnation, ..identity.clone() }))?;
    database.flush()?;
    Ok((incarnation, here))
}

fn to_text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn to_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|character| u8::try_from(character).ok()).collect()
}

/// Notes a number, if it is the highest: transactions of one client need not run in the order of their
/// numbers.
fn note_highest(tx: &Tx, numbers: &Handle<Highest>, row: Highest) -> Result<(), Abort> {
    let before = tx.get(numbers, &(row.here, row.client, row.alone))?.map(|before| before.number());
    if before < Some(row.number) { tx.put(numbers, &row) } else { Ok(()) }
}

/// Whether the cause is a disk that takes no writes at the moment. Nothing was written.
pub(crate) fn is_of_the_disk(error: &TransactError) -> bool {
    matches!(error, TransactError::DiskFull { .. } | TransactError::DiskBehind { .. })
}

/// Numbers for outputs that wait for the disk, and the epoch in which the state of each was written.
#[derive(Default)]
pub(crate) struct Waits {
    given: u64,
    reached: u64,
    written: VecDeque<(u64, Epoch)>,
}

impl Waits {
    /// The next number, for state that may not be written yet.
    pub(crate) fn next(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    /// The state of all numbers so far is written, in epochs up to this one.
    pub(crate) fn written(&mut self, newest: Epoch) {
        match self.written.back_mut() {
            Some((given, epoch)) if *epoch == newest => *given = self.given,
            _ => self.written.push_back((self.given, newest)),
        }
    }

    /// The highest number whose state is durable if all epochs up to `durable` are.
    pub(crate) fn reached(&mut self, durable: u64) -> u64 {
        while let Some((given, _)) = self.written.pop_front_if(|(_, epoch)| epoch.0 <= durable) {
            self.reached = given;
        }
        self.reached
    }
}

/// The durable state of an owner.
pub(crate) struct OwnerJournal {
    undecided: Handle<Undecided>,
    numbers: Handle<Highest>,
    here: u32,
    /// The position of the next fragment.
    place: u64,
    /// The positions of fragments that may be undone, by transaction and whether they are the whole
    /// transaction.
    places: BTreeMap<(TransactionId, bool), Vec<u64>>,
    /// The positions of votes of transactions without work here.
    without_work: BTreeMap<TransactionId, u64>,
    /// Votes that are not written yet.
    votes: Vec<Undecided>,
    /// Fragments that will not be undone, whose rows still exist.
    ended: Vec<u64>,
    /// The latest epoch in which something was written.
    pub(crate) newest: Epoch,
    pub(crate) waits: Waits,
}

impl OwnerJournal {
    /// Opens the state of this partition; transactions that had not voted are undone. Returns the undecided
    /// ones.
    pub(crate) fn open(
        divided: &Divided,
        session: &mut Session,
        at: PartitionId,
        of: &Deployed,
    ) -> Result<(OwnerJournal, RecoveredState<Participant>), Refused> {
        let (incarnation, here) = next_incarnation(divided, Role::Partition(at.0), of)?;
        let database = divided.database();
        let (undecided, numbers) = (database.table::<Undecided>()?, database.table::<Highest>()?);
        let mut journal = OwnerJournal {
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
        let rows = session.transact(|tx| tx.scan(&journal.undecided, ..).map(|row| Ok(row?.to_owned())).collect())?;
        let rows: Vec<Undecided> = rows.value;
        let mut left = RecoveredState { incarnation, unfinished: Vec::new(), calls: Vec::new(), fragments: Vec::new() };
        let of = |row: &Undecided| (TransactionId { client: ClientId(row.client), number: row.number }, row.alone);
        for row in &rows {
            journal.place = journal.place.max(row.place + 1);
            journal.places.entry(of(row)).or_default().push(row.place);
        }
        let mut voted: BTreeMap<_, _> =
            rows.iter().filter(|row| row.voted).map(|row| (of(row), row.coordinator)).collect();
        if is_injected(Fault::VotesForgotten) {
            voted.clear();
        }
        for row in rows.iter().rev().filter(|row| !voted.contains_key(&of(row))) {
            let (_, undo) = read(row)?;
            let undone = divided.undo(session, at.0 as usize, &undo, &|tx, _| journal.undo(tx, row.place))?;
            journal.newest = journal.newest.max(undone.epoch());
        }
        journal.places.retain(|one, _| voted.contains_key(one));
        for row in &rows {
            let (one, place) = (of(row), row.place);
            let Some(coordinator) = voted.get(&one) else { continue };
            let (work, undo) = read(row)?;
            if journal.places[&one].first() == Some(&place) {
                let coordinator = (!one.1).then_some(CoordinatorId(*coordinator));
                left.unfinished.push(Unfinished { transaction: one.0, coordinator, done: Vec::new() });
            }
            let is_it = |other: &&mut Unfinished<Participant>| (other.transaction, other.coordinator.is_none()) == one;
            let unfinished = left.unfinished.iter_mut().find(is_it).expect("its first row was met");
            if work.is_none() {
                journal.places.remove(&one);
                journal.without_work.insert(one.0, place);
            }
            unfinished.done.extend(work.map(|work| (work, Taken { undo, kept: Some((one.0, one.1, place)) })));
        }
        let highest = session.transact(|tx| tx.scan(&journal.numbers, ..).map(|row| Ok(row?.to_owned())).collect())?;
        let highest: Vec<Highest> = highest.value;
        for Highest { client, alone, number, coordinator, .. } in highest {
            let transaction = TransactionId { client: ClientId(client), number };
            match alone {
                true => left.calls.push(transaction),
                false => left.fragments.push((transaction, CoordinatorId(coordinator))),
            }
        }
        Ok((journal, left))
    }

    /// Writes the rows of a fragment in its transaction: its number if it is the whole transaction, and its
    /// undo if it may be undone.
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

    /// The fragment of the last `note` has run. Returns the data that its undo needs.
    pub(crate) fn noted(&mut self, transaction: TransactionId, alone: bool) -> (TransactionId, bool, u64) {
        let place = self.place;
        self.place += 1;
        self.places.entry((transaction, alone)).or_default().push(place);
        (transaction, alone, place)
    }

    /// Deletes, in its transaction, the row of a fragment that is undone.
    pub(crate) fn undo(&self, tx: &Tx, place: u64) -> Result<(), Abort> {
        tx.delete(&self.undecided, &(self.here, place))
    }

    /// The fragment was undone, or (`stays`) will not be.
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
            // A transaction that ran on top of nothing is committed by itself.
            OwnerRecord::Executed { after: None, .. } => return,
            OwnerRecord::Executed { transaction, .. } => (transaction, true, 0),
            OwnerRecord::Prepared { transaction, coordinator, .. } => (transaction, false, coordinator.0),
            OwnerRecord::Decided { transaction, .. } => {
                // A transaction without work has no undo whose end would remove its row.
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

    /// Writes all notes that are not written yet; none of them, if that fails.
    pub(crate) fn write(&mut self, divided: &Divided, session: &mut Session, at: usize) -> Result<(), TransactError> {
        if self.votes.is_empty() && self.ended.is_empty() {
            return Ok(());
        }
        let then: &FragmentEnd<'_> = &|tx, _| {
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

/// Decodes a fragment and its undo.
fn read(row: &Undecided) -> Result<(Option<Fragment>, Undo), Refused> {
    let damaged = |what: &str| Refused::Damaged(format!("{}.{}: {what}", row.client, row.number));
    let bytes = to_bytes(&row.what).ok_or_else(|| damaged("it is no bytes"))?;
    let read: Result<(Option<Fragment>, Undo), _> = unpack_all(&bytes);
    read.map_err(|error| damaged(&error.to_string()))
}

/// A coordinator that keeps its decisions in the caller's database, which was initialized for this coordinator
/// ([`begin`]), whatever state it was left in. Also returns its incarnation, which is above all earlier ones.
///
/// # Errors
/// If the database was not initialized for this coordinator, deployment, number of partitions and procedures,
/// or if it fails.
pub fn coordinator(
    id: CoordinatorId,
    caller: &Arc<Caller>,
    of: &Deployed,
) -> Result<(HoldingCoordinator<Program>, u64), Refused> {
    let divided = caller.divided();
    let mut session = divided.database().session();
    let (incarnation, here) = next_incarnation(divided, Role::Coordinator(id.0), of)?;
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
    let coordinator = Coordinator::recover(id, incarnation, records, partitions, &mut out);
    let (caller, owed, newest, waits) = (Arc::clone(caller), VecDeque::new(), Epoch(0), Waits::default());
    let journal = Decisions { caller, session, decided, numbers, here, owed, newest, waits };
    Ok((HoldingCoordinator::of(coordinator, Some(Box::new(journal)), out), incarnation))
}

/// The journal of a coordinator.
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
        let then: &FragmentEnd<'_> = &|tx, _| match record {
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

    /// Writes the owed records, as far as the disk takes them.
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

/// Requests a flush of this epoch.
///
/// # Panics
/// If the log has stopped.
pub(crate) fn request(database: &Database, newest: Epoch) {
    let requested = database.request_durable(newest);
    requested.unwrap_or_else(|error| panic!("a database of partitions fails: {error}"));
}

/// The durable epoch of a database.
///
/// # Panics
/// If the log has stopped.
pub(crate) fn durable(database: &Database) -> u64 {
    request(database, Epoch(0));
    database.durable_epoch().map_or(u64::MAX, |epoch| epoch.0)
}
