//! Handmade logs and rows for the tests of replay, checkpoints and backups. There is a table of accounts on a
//! simulated disk, and a writer of arbitrary batches. A keeper of rows restores rows as protocols must.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use seriatim_base::disk::{Disk, FaultyDisk, Opening};
use seriatim_base::{ColumnId, Epoch, LayoutId, TableId, Tid};
use seriatim_catalog::wire::RowWire;
use seriatim_catalog::{ColumnDef, ColumnType, Key, Layout, NoOutOfLine, RowRef, RowWriter, TableDef, Value};

use crate::batch::{self, Header, Link, PAGE, Salt, padded};
use crate::catalogue::{Catalogue, LayoutEntry, TableEntry};
use crate::entry::{Change, GroupWriter};
use crate::manifest::{DatabaseId, Incarnation, Manifest};
use crate::replay::{Apply, Outcome, Version};
use crate::segment::{self, Name};
use crate::{LogError, Tables};

pub(crate) const LAYOUT: LayoutId = LayoutId(40);
pub(crate) const TABLE: TableId = TableId(7);
pub(crate) const DATABASE: DatabaseId = DatabaseId(0xdead);

/// Balance and count of an account.
pub(crate) type Account = (i64, i64);

/// A change of an account.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Write {
    Row(u32, Account),
    Delete(u32),
    /// From the first value to the second, which differs.
    Update(u32, Account, Account),
    /// Adds an amount to the balance.
    Add(u32, i64),
}

/// The table of accounts.
pub(crate) struct Accounts {
    pub definition: TableDef,
    layout: Layout,
    pub wire: RowWire,
}

impl Accounts {
    pub(crate) fn new() -> Accounts {
        let definition = TableDef::builder("account")
            .column(ColumnDef::new("id", ColumnType::U32))
            .column(ColumnDef::new("balance", ColumnType::I64))
            .column(ColumnDef::new("count", ColumnType::I64))
            .key(["id"])
            .finish()
            .expect("a sound declaration");
        let layout = Layout::new(&definition.columns);
        let wire = RowWire::new(&definition, &layout);
        Accounts { definition, layout, wire }
    }

    pub(crate) fn writing<R>(image: &mut [u64], with: impl FnOnce(&mut RowWriter<'_>) -> R) -> R {
        let row: *mut u8 = image.as_mut_ptr().cast();
        let mut out_of_line_values = NoOutOfLine;
        // SAFETY: the image is all zeros or a row of this table. No column is immutable.
        with(&mut unsafe { RowWriter::for_insert(row, row, &mut out_of_line_values) })
    }

    pub(crate) fn image(&self, id: u32, (balance, count): Account) -> Vec<u64> {
        let mut image = vec![0; self.layout.row_bytes as usize / 8];
        let values = [Value::from(id), Value::from(balance), Value::from(count)];
        Accounts::writing(&mut image, |row| {
            for ((column, place), value) in self.definition.columns.iter().zip(&self.layout.places).zip(&values) {
                value.write(column, place, row).expect("values of the columns' types");
            }
        });
        image
    }

    fn account(&self, image: &[u64]) -> Account {
        let value = |at: usize| match Value::read(&self.definition.columns[at], &self.layout.places[at], as_row(image))
        {
            Value::Integer(value, _) => i64::try_from(value).expect("a column of 64 bits"),
            other => panic!("{other:?}"),
        };
        (value(1), value(2))
    }

    /// Encodes commits, each with its TID, as groups.
    pub(crate) fn payload(&self, commits: &[(Tid, Vec<Write>)]) -> (Vec<u8>, u32) {
        let (mut out, mut groups) = (Vec::new(), 0);
        for (tid, writes) in commits {
            let mut group = GroupWriter::begin(*tid, &mut out);
            for write in writes {
                let key = |id: u32| Key::Word8(id.into());
                match *write {
                    Write::Row(id, account) => group.row(LAYOUT, &self.wire, key(id), as_row(&self.image(id, account))),
                    Write::Delete(id) => group.delete(LAYOUT, &self.wire, key(id)),
                    Write::Add(id, amount) => group.delta(LAYOUT, &self.wire, key(id), ColumnId(1), amount),
                    Write::Update(id, before, after) => {
                        let (before, after) = (self.image(id, before), self.image(id, after));
                        let _ = group.update(LAYOUT, &self.wire, key(id), as_row(&before), as_row(&after));
                    }
                }
            }
            groups += group.finish();
        }
        (out, groups)
    }
}

pub(crate) fn as_row(image: &[u64]) -> RowRef<'_> {
    // SAFETY: the images are rows of the one table, written by `Accounts::image`.
    unsafe { RowRef::from_raw(image.as_ptr().cast()) }
}

pub(crate) fn tid(epoch: u64, counter: u64) -> Tid {
    Tid::from_bits(Tid::first_of(Epoch(epoch)).bits() + counter)
}

/// The header of a segment of 64 pages.
pub(crate) fn header(name: Name) -> segment::Header {
    let nonce = name.incarnation << 32 | u64::from(name.logger) << 16 | name.sequence;
    segment::Header { format: crate::FORMAT, database: DATABASE.0, name, nonce, bytes: 64 * PAGE as u64 }
}

/// The state with which its checksums begin.
pub(crate) fn salt(name: Name) -> Salt {
    header(name).salt()
}

/// A database directory on a simulated disk.
pub(crate) struct Database {
    pub disk: FaultyDisk,
    pub directory: PathBuf,
    pub accounts: Accounts,
    pub manifest: Manifest,
    logs: BTreeMap<(u64, u32), Log>,
}

/// The position of a logger.
#[derive(Clone)]
struct Log {
    sequence: u64,
    offset: u64,
    number: u64,
    /// The newest epoch of an entry so far.
    newest: Epoch,
}

impl Database {
    pub(crate) fn new(seed: u64, loggers: usize) -> Database {
        let accounts = Accounts::new();
        let definition = accounts.definition.clone();
        let manifest = Manifest {
            database: DATABASE,
            incarnations: Vec::new(),
            checkpoint: None,
            inherited: Some(Catalogue {
                tables: vec![TableEntry { id: TABLE, definition, indexes: Vec::new(), position: 0, is_void: false }],
                sequences: Vec::new(),
                earlier: Vec::new(),
                access: Default::default(),
                layouts: vec![LayoutEntry { id: LAYOUT, table: TABLE }],
            }),
        };
        let directory = PathBuf::from("/db");
        let disk = FaultyDisk::new(seed);
        disk.create_dir_all(&directory).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let mut database = Database { disk, directory, accounts, manifest, logs: BTreeMap::new() };
        database.incarnation(1, 10, loggers);
        database
    }

    /// Begins an incarnation: adds it to the manifest and creates its segments.
    pub(crate) fn incarnation(&mut self, number: u64, first_epoch: u64, loggers: usize) {
        self.manifest.incarnations.push(Incarnation {
            number,
            first_epoch: Epoch(first_epoch),
            durable_epoch: None,
            loggers: vec![PathBuf::new(); loggers],
            ends: Vec::new(),
        });
        self.manifest.write(&self.disk, &self.directory).unwrap();
        for logger in 0..loggers as u32 {
            self.logs.insert((number, logger), Log { sequence: 0, offset: 0, number: 1, newest: Epoch(0) });
            self.roll(number, logger);
        }
    }

    /// The layouts of its tables.
    pub(crate) fn tables(&self) -> Tables {
        Tables::new(self.manifest.inherited.as_ref().expect("its tables"))
    }

    pub(crate) fn segment(&self, incarnation: u64, logger: u32, sequence: u64) -> PathBuf {
        self.directory.join(Name { incarnation, logger, sequence }.to_string())
    }

    /// Continues in a new segment of 64 pages.
    pub(crate) fn roll(&mut self, incarnation: u64, logger: u32) {
        let log = self.logs.get_mut(&(incarnation, logger)).unwrap();
        let filled = Name { incarnation, logger, sequence: log.sequence };
        if log.sequence > 0 {
            let link = Link { incarnation, number: log.number, sequence: log.sequence + 1 }.encode(salt(filled));
            let file = self.disk.open(&self.directory.join(filled.to_string()), Opening::Write).unwrap();
            file.write_all_at(&link, log.offset).unwrap();
            file.sync_data().unwrap();
        }
        log.sequence += 1;
        log.offset = PAGE as u64;
        let name = Name { sequence: log.sequence, ..filled };
        let header = header(name);
        let file = self.disk.open(&self.directory.join(name.to_string()), Opening::Create).unwrap();
        file.write_all_at(&vec![0; 64 * PAGE], 0).unwrap();
        file.write_all_at(&header.encode(), 0).unwrap();
        file.sync_data().unwrap();
        self.disk.sync_dir(&self.directory).unwrap();
    }

    /// Writes and flushes a batch. Returns where it begins.
    pub(crate) fn batch(
        &mut self,
        (incarnation, logger): (u64, u32),
        closed: u64,
        durable: u64,
        commits: &[(Tid, Vec<Write>)],
    ) -> (PathBuf, u64) {
        let (payload, groups) = self.accounts.payload(commits);
        let newest = commits.iter().map(|(tid, _)| tid.epoch()).max().unwrap_or_default();
        self.payload((incarnation, logger), [closed, durable].map(Epoch), newest, (&payload, groups, false))
    }

    /// Writes and flushes a batch of this payload, its groups, and whether some are of the catalogue.
    pub(crate) fn payload(
        &mut self,
        (incarnation, logger): (u64, u32),
        [closed, durable]: [Epoch; 2],
        newest: Epoch,
        (payload, groups, has_catalogue): (&[u8], u32, bool),
    ) -> (PathBuf, u64) {
        let log = &self.logs[&(incarnation, logger)];
        if log.offset as usize + padded(batch::HEADER_BYTES + payload.len()) > 63 * PAGE {
            self.roll(incarnation, logger);
        }
        let log = self.logs.get_mut(&(incarnation, logger)).unwrap();
        let header = Header {
            number: log.number,
            incarnation,
            closed,
            durable,
            newest,
            newest_before: log.newest,
            groups,
            has_catalogue,
            payload_bytes: payload.len() as u32,
            payload_crc: crc32fast::hash(payload),
        };
        let name = Name { incarnation, logger, sequence: log.sequence };
        let mut bytes = header.encode(salt(name)).to_vec();
        bytes.extend_from_slice(payload);
        let offset = log.offset;
        log.number += 1;
        log.newest = log.newest.max(header.newest);
        log.offset += header.bytes();
        let path = self.directory.join(name.to_string());
        let file = self.disk.open(&path, Opening::Write).unwrap();
        file.write_all_at(&bytes, offset).unwrap();
        file.sync_data().unwrap();
        (path, offset)
    }
}

/// Restores rows as protocols must.
pub(crate) struct Keeper {
    accounts: Accounts,
    /// Deleted rows are `None`.
    rows: Mutex<BTreeMap<u64, (Tid, Option<Account>)>>,
    /// The thread that owns each key.
    threads: Mutex<BTreeMap<u64, usize>>,
}

impl Keeper {
    pub(crate) fn new() -> Keeper {
        Keeper { accounts: Accounts::new(), rows: Mutex::default(), threads: Mutex::default() }
    }

    /// The existing accounts.
    pub(crate) fn rows(&self) -> BTreeMap<u32, Account> {
        let rows = self.rows.lock().unwrap();
        rows.iter().filter_map(|(&id, (_, account))| Some((id as u32, (*account)?))).collect()
    }

    /// The existing accounts with their TIDs.
    pub(crate) fn rows_with_tids(&self) -> Vec<(u32, Tid, Account)> {
        let rows = self.rows.lock().unwrap();
        rows.iter().filter_map(|(&id, (tid, account))| Some((id as u32, *tid, (*account)?))).collect()
    }
}

impl Apply for Keeper {
    fn apply(&self, thread: usize, version: &Version<'_>) -> Result<Outcome, LogError> {
        let Key::Word8(id) = version.key else { panic!("keys of one word") };
        assert_eq!(version.table, TABLE);
        let owner = *self.threads.lock().unwrap().entry(id).or_insert(thread);
        assert_eq!(owner, thread, "a key belongs to one thread");
        let mut rows = self.rows.lock().unwrap();
        let before = rows.get(&id).copied();
        if before.is_some_and(|(tid, _)| tid >= version.tid) {
            return Ok(Outcome::Older);
        }
        let mut image = before.and_then(|(_, account)| Some(self.accounts.image(id as u32, account?)));
        for (at, change) in version.changes.iter().enumerate() {
            match *change {
                Change::Row(bytes) => {
                    assert_eq!(at, 0, "a row is the first change of its version");
                    let mut new = self.accounts.image(0, (0, 0));
                    new.fill(0);
                    Accounts::writing(&mut new, |row| version.rows.decode_row(bytes, row)).expect("a row");
                    image = Some(new);
                }
                Change::Delete => {
                    assert_eq!(version.changes.len(), 1);
                    image = None;
                }
                Change::Patch(bytes) => {
                    let Some(image) = &mut image else { return Ok(Outcome::NoBase) };
                    Accounts::writing(image, |row| version.rows.decode_patch(bytes, row)).expect("a patch");
                }
                Change::Delta(bytes) => {
                    let Some(image) = &mut image else { return Ok(Outcome::NoBase) };
                    Accounts::writing(image, |row| version.rows.decode_delta(bytes, row)).expect("a delta");
                }
            }
        }
        rows.insert(id, (version.tid, image.map(|image| self.accounts.account(&image))));
        Ok(Outcome::Applied)
    }
}
