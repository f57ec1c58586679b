//! The oracle: the contents of the tables after each commit, in plain maps that share nothing with the engine.
//!
//! One thread runs everything, so commits have an order, and their epochs agree with it. A commit is kept with
//! its undo until a recovery has confirmed it. Observed are a row, the holder of a tag, the members of a group, and a
//! whole table. For each the oracle knows the commit that last changed it. A result depends on the newest of those that
//! it saw, its own included.
//!
//! Deferred operations of a call are pending until they are published, as a commit of the same epoch.

use std::collections::BTreeMap;

use super::schema::{KINDS, Row};
use super::script::{Op, Seen};
use crate::linked::Rows;

/// How a transaction ends that runs by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Commits,
    /// An insert or update of an existing key, or tag.
    Duplicate,
    /// By its own will.
    Aborts,
}

/// An object whose changes can be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Row(usize, u32),
    Tag(usize, u32),
    Group(usize, u16),
    Table(usize),
}

/// The outcome of one transaction.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) verdict: Verdict,
    pub(crate) seen: Vec<Seen>,
    /// The newest commit whose effects it saw; 0 if none.
    pub(crate) saw: u64,
}

#[derive(Clone)]
struct Commit {
    number: u64,
    epoch: u64,
    rows: Vec<(usize, u32, Option<Row>)>,
    places: Vec<(Object, u64)>,
    /// The tables that refer to each other before it, if it changed them.
    linked: Option<Option<Rows>>,
}

/// The state after the last commit, and how it came to be.
#[derive(Clone, Default)]
pub(crate) struct Model {
    rows: Vec<BTreeMap<u32, Row>>,
    /// The holder of each tag, where tags are unique.
    tags: Vec<BTreeMap<u32, u32>>,
    /// The tables that refer to each other, while they exist.
    linked: Option<Rows>,
    places: BTreeMap<Object, u64>,
    /// Those that no recovery has settled.
    commits: Vec<Commit>,
    /// The deferred operations that are not published, and their epoch.
    pending: (Vec<Op>, u64),
    last: u64,
}

impl Model {
    pub(crate) fn new() -> Model {
        let (rows, tags) = (vec![BTreeMap::new(); KINDS.len()], vec![BTreeMap::new(); KINDS.len()]);
        Model { rows, tags, ..Model::default() }
    }

    /// The number of the last commit that changed anything.
    pub(crate) fn newest(&self) -> u64 {
        self.commits.last().map_or(0, |commit| commit.number)
    }

    pub(crate) fn rows(&self, table: usize) -> &BTreeMap<u32, Row> {
        &self.rows[table]
    }

    /// Runs a program on the newest state. If it commits, in `epoch`, its effects stay. It is answered with
    /// its number, or with that of the newest commit that it saw if it changed nothing.
    pub(crate) fn commit(&mut self, program: &[Op], epoch: u64) -> Ran {
        let mut run = Run { model: self, undo: Vec::new(), savepoints: Vec::new(), seen: Vec::new(), saw: 0 };
        let verdict = run.all(program);
        if verdict != Verdict::Commits {
            run.rollback_to(0);
        }
        let Run { undo, seen, mut saw, .. } = run;
        if let Some(number) = self.note(undo, epoch) {
            saw = number;
        }
        Ran { verdict, seen, saw }
    }

    /// As [`Model::commit`], for a program whose last operation is deferred.
    pub(crate) fn commit_deferring(&mut self, program: &[Op], epoch: u64) -> Ran {
        let (deferred, rest) = program.split_last().expect("something is deferred");
        // An addition to a row that exists until this is published.
        let saw = self.try_out(std::slice::from_ref(deferred)).saw;
        let ran = self.commit(rest, epoch);
        self.pending.0.push(deferred.clone());
        self.pending.1 = epoch;
        Ran { saw: ran.saw.max(saw), ..ran }
    }

    /// Publishes the pending operations, by one commit.
    pub(crate) fn publish(&mut self) {
        let (pending, epoch) = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            let ran = self.commit(&pending, epoch);
            assert_eq!(ran.verdict, Verdict::Commits, "additions");
        }
    }

    /// Whether something is.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.0.is_empty()
    }

    /// As [`Model::commit`], without any effect.
    pub(crate) fn try_out(&mut self, program: &[Op]) -> Ran {
        let mut run = Run { model: self, undo: Vec::new(), savepoints: Vec::new(), seen: Vec::new(), saw: 0 };
        let verdict = run.all(program);
        run.rollback_to(0);
        let Run { seen, saw, .. } = run;
        Ran { verdict, seen, saw }
    }

    /// Notes what a transaction changed, if it changed anything.
    fn note(&mut self, undo: Vec<(usize, u32, Option<Row>)>, epoch: u64) -> Option<u64> {
        let mut rows: BTreeMap<(usize, u32), Option<Row>> = BTreeMap::new();
        for (table, key, before) in undo {
            rows.entry((table, key)).or_insert(before);
        }
        rows.retain(|&(table, key), before| before.as_ref() != self.rows[table].get(&key));
        if rows.is_empty() {
            return None;
        }
        self.last += 1;
        let mut places = Vec::new();
        for (&(table, key), before) in &rows {
            let after = self.rows[table].get(&key);
            places.extend([Object::Row(table, key), Object::Table(table)]);
            let (tag, group) = (|row: &Row| row.tag, |row: &Row| row.group);
            if before.as_ref().map(tag) != after.map(tag) {
                places.extend([before.as_ref(), after].into_iter().flatten().map(|row| Object::Tag(table, row.tag)));
            }
            if before.as_ref().map(group) != after.map(group) {
                places
                    .extend([before.as_ref(), after].into_iter().flatten().map(|row| Object::Group(table, row.group)));
            }
        }
        places.sort_unstable();
        places.dedup();
        let number = self.last;
        let places = places.into_iter().map(|place| (place, self.places.insert(place, number).unwrap_or(0)));
        let commit = Commit {
            number,
            epoch,
            places: places.collect(),
            linked: None,
            rows: rows.into_iter().map(|((table, key), before)| (table, key, before)).collect(),
        };
        self.commits.push(commit);
        Some(number)
    }

    pub(crate) fn linked(&self) -> Option<&Rows> {
        self.linked.as_ref()
    }

    /// A recovery found these.
    pub(crate) fn set_linked(&mut self, linked: Option<Rows>) {
        self.linked = linked;
    }

    /// A transaction left the tables that refer to each other like this, or a migration did. Its
    /// number, if it changed anything. Of other commits than its own it depends on some that are not known.
    pub(crate) fn commit_linked(&mut self, after: Option<Rows>, epoch: u64) -> Option<u64> {
        if self.linked == after {
            return None;
        }
        self.last += 1;
        let (number, before) = (self.last, std::mem::replace(&mut self.linked, after));
        self.commits.push(Commit { number, epoch, rows: Vec::new(), places: Vec::new(), linked: Some(before) });
        Some(number)
    }

    /// The state of the epoch that is durable for ever, and the number of its last commit.
    pub(crate) fn at(&self, durable: u64) -> (Model, u64) {
        let mut model = self.clone();
        // Nothing is acknowledged of a copy.
        let _ = model.settle(durable, 0);
        let newest = self.commits.iter().take_while(|commit| commit.epoch <= durable).last();
        (model, newest.map_or(0, |commit| commit.number))
    }

    /// Goes back to the state that recovery says there is: the commits of epochs up to `durable`. They are
    /// settled now. Answers the number of those that went, or the epoch of the first up to `acknowledged`
    /// that did.
    pub(crate) fn settle(&mut self, durable: u64, acknowledged: u64) -> Result<u64, u64> {
        self.publish();
        let (mut lost, mut gone) = (None, 0);
        while let Some(commit) = self.commits.pop_if(|commit| commit.epoch > durable) {
            gone += 1;
            if commit.number <= acknowledged {
                lost = Some(commit.epoch);
            }
            self.take_back(commit);
        }
        self.commits.clear();
        self.places.clear();
        lost.map_or(Ok(gone), Err)
    }

    fn take_back(&mut self, commit: Commit) {
        for (table, key, before) in commit.rows.into_iter().rev() {
            self.set(table, key, before);
        }
        if let Some(before) = commit.linked {
            self.linked = before;
        }
        for (place, number) in commit.places {
            self.places.insert(place, number);
        }
    }

    /// The state after the commit of this number.
    pub(crate) fn after(&self, number: u64) -> Model {
        let mut model = self.clone();
        while let Some(commit) = model.commits.pop_if(|commit| commit.number > number) {
            model.take_back(commit);
        }
        model
    }

    fn set(&mut self, table: usize, key: u32, row: Option<Row>) -> Option<Row> {
        let tag = row.as_ref().map(|row| row.tag);
        let before = match row {
            Some(row) => self.rows[table].insert(key, row),
            None => self.rows[table].remove(&key),
        };
        if KINDS[table].has_unique_tags() {
            let tags = &mut self.tags[table];
            if let Some(before) = &before
                && tags.get(&before.tag) == Some(&key)
            {
                tags.remove(&before.tag);
            }
            if let Some(tag) = tag {
                tags.insert(tag, key);
            }
        }
        before
    }
}

/// A program at work on the state.
struct Run<'m> {
    model: &'m mut Model,
    undo: Vec<(usize, u32, Option<Row>)>,
    savepoints: Vec<usize>,
    seen: Vec<Seen>,
    saw: u64,
}

impl Run<'_> {
    fn all(&mut self, program: &[Op]) -> Verdict {
        for op in program {
            match self.op(op) {
                Ok(seen) => self.seen.push(seen),
                Err(verdict) => return verdict,
            }
        }
        Verdict::Commits
    }

    fn look(&mut self, place: Object) {
        self.saw = self.saw.max(self.model.places.get(&place).copied().unwrap_or(0));
    }

    fn get(&mut self, table: usize, key: u32) -> Option<Row> {
        self.look(Object::Row(table, key));
        self.model.rows[table].get(&key).cloned()
    }

    fn op(&mut self, op: &Op) -> Result<Seen, Verdict> {
        Ok(match op {
            Op::Get(table, key) => Seen::Row(self.get(*table, *key)),
            Op::Insert(table, row) => {
                if self.get(*table, row.key).is_some() {
                    return Err(Verdict::Duplicate);
                }
                self.write(*table, row.key, Some(row.clone()))?;
                Seen::Done(true)
            }
            Op::Put(table, row) => {
                self.get(*table, row.key);
                self.write(*table, row.key, Some(row.clone()))?;
                Seen::Done(true)
            }
            Op::Update(table, key, change) => {
                let before = self.get(*table, *key);
                if let Some(mut row) = before.clone() {
                    row.amount = change.set.unwrap_or(row.amount) + change.add;
                    row.group = change.group.unwrap_or(row.group);
                    row.tag = change.tag.unwrap_or(row.tag);
                    row.note = change.note.clone().unwrap_or(row.note);
                    self.write(*table, *key, Some(row))?;
                }
                Seen::Row(before)
            }
            Op::Delete(table, key) => {
                let there = self.get(*table, *key).is_some();
                if there {
                    self.write(*table, *key, None)?;
                }
                Seen::Done(there)
            }
            Op::Scan(table) => {
                self.look(Object::Table(*table));
                Seen::Rows(self.model.rows[*table].values().cloned().collect())
            }
            Op::Group(table, group) => {
                self.look(Object::Group(*table, *group));
                self.found(*table, |row| row.group == *group)
            }
            Op::Tag(table, tag) => {
                self.look(Object::Tag(*table, *tag));
                self.found(*table, |row| row.tag == *tag)
            }
            Op::Savepoint => {
                self.savepoints.push(self.undo.len());
                Seen::Done(true)
            }
            Op::RollbackTo(number) => {
                self.rollback_to(self.savepoints[*number]);
                self.savepoints.truncate(number + 1);
                Seen::Done(true)
            }
            Op::Abort => return Err(Verdict::Aborts),
        })
    }

    fn found(&mut self, table: usize, wanted: impl Fn(&Row) -> bool) -> Seen {
        let rows: Vec<Row> = self.model.rows[table].values().filter(|row| wanted(row)).cloned().collect();
        rows.iter().for_each(|row| self.look(Object::Row(table, row.key)));
        Seen::Rows(rows)
    }

    fn write(&mut self, table: usize, key: u32, row: Option<Row>) -> Result<(), Verdict> {
        if let (Some(row), true) = (&row, KINDS[table].has_unique_tags()) {
            let unchanged = self.model.rows[table].get(&key).is_some_and(|before| before.tag == row.tag);
            if !unchanged {
                self.look(Object::Tag(table, row.tag));
                if self.model.tags[table].get(&row.tag).is_some_and(|&holder| holder != key) {
                    return Err(Verdict::Duplicate);
                }
            }
        }
        let before = self.model.set(table, key, row);
        self.undo.push((table, key, before));
        Ok(())
    }

    fn rollback_to(&mut self, to: usize) {
        while self.undo.len() > to {
            let (table, key, before) = self.undo.pop().expect("longer than that");
            self.model.set(table, key, before);
        }
    }
}
