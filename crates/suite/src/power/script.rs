//! The work of transactions: small random programs, and how the engine runs them.

use seriatim::catalog::Value;
use seriatim::{Abort, DynHandle, ReadTx, Rng, Savepoint, Tx};

use super::schema::{KINDS, NOTE_MAX, Row};

/// One operation. Tables are numbered as in [`KINDS`].
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Get(usize, u32),
    Insert(usize, Row),
    /// Inserts or replaces.
    Put(usize, Row),
    Update(usize, u32, Change),
    Delete(usize, u32),
    /// All rows of an ordered table.
    Scan(usize),
    /// The rows of a group.
    Group(usize, u16),
    /// The row with a tag.
    Tag(usize, u32),
    Savepoint,
    /// To the savepoint of this number, of those that are left.
    RollbackTo(usize),
    /// The body's own abort.
    Abort,
}

impl Op {
    /// Whether it can be part of a read-only transaction.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Op::Get(..) | Op::Scan(_) | Op::Group(..) | Op::Tag(..))
    }
}

/// The effect of an update.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    /// The new amount, before something is added.
    pub(crate) set: Option<i64>,
    pub(crate) add: i64,
    pub(crate) group: Option<u16>,
    pub(crate) tag: Option<u32>,
    pub(crate) note: Option<Option<String>>,
}

/// The observation of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Row(Option<Row>),
    /// In order of their keys.
    Rows(Vec<Row>),
    Done(bool),
}

/// The limits of a generator's choices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    pub(crate) keys: u32,
    pub(crate) groups: u16,
    pub(crate) tags: u32,
}

/// A row of the workload's tables that is not one of its rows: the error a body aborts with then.
pub(crate) const STRANGE: &str = "a row that nobody wrote";

/// The error of [`Op::Abort`].
pub(crate) const ASKED: &str = "asked to abort";

/// Draws programs.
#[derive(Debug)]
pub(crate) struct Author<'r> {
    pub(crate) rng: &'r mut Rng,
    pub(crate) domain: Domain,
    /// The tables there are.
    pub(crate) tables: &'r [usize],
    pub(crate) born: u32,
}

impl Author<'_> {
    fn table(&mut self) -> usize {
        self.tables[self.rng.below(self.tables.len() as u64) as usize]
    }

    fn key(&mut self) -> u32 {
        self.rng.below(self.domain.keys.into()) as u32
    }

    fn group(&mut self) -> u16 {
        self.rng.below(self.domain.groups.into()) as u16
    }

    fn tag(&mut self) -> u32 {
        self.rng.below(self.domain.tags.into()) as u32
    }

    fn note(&mut self, table: usize) -> Option<String> {
        let length = match self.rng.below(20) {
            0..10 => return None,
            10..18 => self.rng.below(30),
            18 => self.rng.below(300),
            _ => self.rng.below(5000),
        };
        let length = if KINDS[table].is_clustered { length.min(NOTE_MAX.into()) } else { length };
        let letter = b'a' + self.rng.below(26) as u8;
        Some(char::from(letter).to_string().repeat(length as usize))
    }

    fn row(&mut self, table: usize) -> Row {
        let (key, group, tag, note) = (self.key(), self.group(), self.tag(), self.note(table));
        Row { key, group, tag, born: self.born, amount: self.rng.range(0, 1000) as i64, note }
    }

    fn change(&mut self, table: usize) -> Change {
        let mut change = Change { add: self.rng.range(0, 20) as i64 - 10, ..Change::default() };
        if self.rng.percent(25) {
            change.group = Some(self.group());
        }
        if self.rng.percent(20) {
            change.tag = Some(self.tag());
        }
        if self.rng.percent(25) {
            change.note = Some(self.note(table));
        }
        change
    }

    fn op(&mut self) -> Op {
        let table = self.table();
        match self.rng.below(100) {
            0..28 => Op::Insert(table, self.row(table)),
            28..38 => Op::Put(table, self.row(table)),
            38..62 => Op::Update(table, self.key(), self.change(table)),
            62..78 => Op::Delete(table, self.key()),
            78..100 => self.read(),
            _ => unreachable!("below 100"),
        }
    }

    fn read(&mut self) -> Op {
        let table = self.table();
        let kind = &KINDS[table];
        match self.rng.below(10) {
            0..2 if kind.is_ordered => Op::Scan(table),
            2..4 if kind.group_index().is_some() => Op::Group(table, self.group()),
            4..6 if kind.has_unique_tags() => Op::Tag(table, self.tag()),
            _ => Op::Get(table, self.key()),
        }
    }

    /// A transaction.
    pub(crate) fn program(&mut self) -> Vec<Op> {
        let mut program = match self.rng.below(10) {
            0 => (0..self.rng.range(1, 3)).map(|_| self.read()).collect(),
            1..4 => self.transfer(),
            _ => (0..self.rng.range(1, 5)).map(|_| self.op()).collect::<Vec<_>>(),
        };
        if self.rng.percent(12) {
            let at = self.rng.below(program.len() as u64 + 1) as usize;
            program.insert(at, Op::Savepoint);
            let back = self.rng.range(at as u64 + 1, program.len() as u64) as usize;
            program.insert(back, Op::RollbackTo(0));
            program.push(self.op());
        }
        if self.rng.percent(8) {
            program.push(Op::Abort);
        }
        program
    }

    /// Moves an amount between two rows, perhaps of two tables. If one is missing the amount is lost: the
    /// reference says the same.
    fn transfer(&mut self) -> Vec<Op> {
        let amount = self.rng.range(1, 50) as i64;
        let add = |add| Change { add, ..Change::default() };
        let from = Op::Update(self.table(), self.key(), add(-amount));
        vec![from, Op::Update(self.table(), self.key(), add(amount))]
    }
}

/// Runs operations in the engine and notes what they show.
pub(crate) struct Runner<'t> {
    pub(crate) tables: &'t [Option<DynHandle>],
}

impl Runner<'_> {
    fn handle(&self, table: usize) -> &DynHandle {
        self.tables[table].as_ref().expect("programs use tables that are there")
    }

    pub(crate) fn run(
        &self,
        tx: &Tx,
        program: &[Op],
        savepoints: &mut Vec<Savepoint>,
        seen: &mut Vec<Seen>,
    ) -> Result<(), Abort> {
        for op in program {
            let done = self.op(tx, op, savepoints)?;
            seen.push(done);
        }
        Ok(())
    }

    /// Runs the reads of a program.
    pub(crate) fn read(&self, tx: &ReadTx, op: &Op) -> Result<Seen, Abort> {
        match op {
            Op::Get(table, key) => {
                let (handle, kind) = (self.handle(*table), &KINDS[*table]);
                let row = tx.get_dyn(handle, &kind.key_values(*key))?.map(|row| row.values());
                Ok(Seen::Row(row.map(|values| known(tx, *table, &values)).transpose()?))
            }
            Op::Scan(table) => self.rows(tx, *table, tx.scan_dyn(self.handle(*table), &[])?),
            Op::Group(table, group) => {
                let index = KINDS[*table].group_index().expect("the author knows").name;
                let found = tx.find_dyn(self.handle(*table), index, &[(*group).into()])?;
                self.rows(tx, *table, found)
            }
            Op::Tag(table, tag) => {
                let index = KINDS[*table].tag_index().expect("the author knows").name;
                let found = tx.find_dyn(self.handle(*table), index, &[(*tag).into()])?;
                self.rows(tx, *table, found)
            }
            _ => unreachable!("not a read"),
        }
    }

    fn rows(&self, tx: &ReadTx, table: usize, found: seriatim::DynScan<'_>) -> Result<Seen, Abort> {
        let mut rows = Vec::new();
        for row in found {
            rows.push(known(tx, table, &row?.values())?);
        }
        rows.sort_unstable_by_key(|row| row.key);
        Ok(Seen::Rows(rows))
    }

    fn op(&self, tx: &Tx, op: &Op, savepoints: &mut Vec<Savepoint>) -> Result<Seen, Abort> {
        match op {
            Op::Get(..) | Op::Scan(_) | Op::Group(..) | Op::Tag(..) => self.read(tx, op),
            Op::Insert(table, row) => {
                tx.insert_dyn(self.handle(*table), &row.values(&KINDS[*table]))?;
                Ok(Seen::Done(true))
            }
            Op::Put(table, row) => {
                tx.put_dyn(self.handle(*table), &row.values(&KINDS[*table]))?;
                Ok(Seen::Done(true))
            }
            Op::Update(table, key, change) => {
                let (handle, kind) = (self.handle(*table), &KINDS[*table]);
                let key = kind.key_values(*key);
                let Some(row) = tx.get_dyn(handle, &key)? else { return Ok(Seen::Row(None)) };
                let row = known(tx, *table, &row.values())?;
                let mut changes = vec![("amount", Value::from(change.set.unwrap_or(row.amount) + change.add))];
                changes.extend(change.group.map(|group| ("group", group.into())));
                changes.extend(change.tag.map(|tag| ("tag", tag.into())));
                changes.extend(change.note.as_ref().map(|note| ("note", note.as_deref().into())));
                tx.update_dyn(handle, &key, &changes)?;
                Ok(Seen::Row(Some(row)))
            }
            Op::Delete(table, key) => {
                let deleted = tx.delete_if_dyn(self.handle(*table), &KINDS[*table].key_values(*key))?;
                Ok(Seen::Done(deleted.is_ok()))
            }
            Op::Savepoint => {
                savepoints.push(tx.savepoint()?);
                Ok(Seen::Done(true))
            }
            Op::RollbackTo(number) => {
                tx.rollback_to(savepoints[*number])?;
                savepoints.truncate(number + 1);
                Ok(Seen::Done(true))
            }
            Op::Abort => Err(tx.abort(ASKED)),
        }
    }
}

fn known(tx: &ReadTx, table: usize, values: &[Value]) -> Result<Row, Abort> {
    Row::of(&KINDS[table], values).ok_or_else(|| tx.abort(STRANGE))
}
