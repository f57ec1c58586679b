//! Changes of the set of tables and of their declarations, while the database serves.
//!
//! A change has four phases. (1) What the changed tables need is made: copies of tables whose rows get other columns
//! or another organization, and indexes. Both follow each write from then on ([`Follower`]), and a walk brings the rows
//! that exist. (2) The tables are closed at a moment at which no transaction is open, if nothing was refused. (3) One
//! transaction changes the catalogue. (4) When it is durable, the tables are opened in their new shape. Operations wait
//! between (2) and (4), for about a flush. A power cut before (3) leaves the old tables, and copies that are void in
//! the catalogue; after it, the new ones.
//!
//! Invariant: no transaction sees a table in two shapes. It sees the shape that the table had when it began, or begins
//! again.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use seriatim_base::Epoch;
use seriatim_base::clock::Instant;
use seriatim_base::thread;
use seriatim_catalog::evolution::Evolution;
use seriatim_catalog::{Checks, ReferenceDef, SequenceChange, SequenceDef, TableDef, check_references};
use seriatim_txn::{Mode, Table};

use crate::changing::{Changing, WAIT_MAX};
use crate::durability::{self, CatalogueRows, Failed, Persistence, Rows, WalkedRow, Walker};
use crate::earlier::Earlier;
use crate::engine::Inner;
use crate::error::{Abort, InvalidSchema, Problem, Refusal, SchemaError, StorageError, TransactError};
use crate::follower::{Build, Follower};
use crate::link::{Links, links};
use crate::sequences::SequenceSteps;
use crate::settling::Settling;
use crate::table::{Secondary, Shape, TableSet};
use crate::table_ids::TableIds;
use crate::tx::{Origin, TxCore};
use crate::{Engine, Runner};

/// A change of the set of tables.
#[derive(Clone, Debug)]
pub enum TableChange {
    /// A table is created.
    Create(TableDef),
    /// The table changes.
    Evolve(Box<Evolution>),
    /// All rows of the table of this name are deleted at once.
    Truncate(String),
    /// The table of this name and its rows are dropped.
    Drop(String),
    /// A sequence is created.
    CreateSequence(SequenceDef),
    /// The sequence of this name changes.
    AlterSequence(String, Vec<SequenceChange>),
    /// The sequence of this name is dropped.
    DropSequence(String),
    /// The table or sequence of this name, which is created before, is of the role with this id.
    Own(String, u32),
}

/// A refusal by a write whose transaction may have aborted is looked at again, so many times.
const VERIFICATIONS: u32 = 3;

/// How long an attempt to find such a moment keeps new transactions out, and how long it then lets them in. Sessions
/// wait for a second at most.
const QUIET_ATTEMPT: Duration = Duration::from_millis(200);

/// A change that is being made.
pub(crate) enum Step {
    /// A new table.
    Create(Arc<TableSet>),
    /// The table gets these parts.
    Reshape {
        set: Arc<TableSet>,
        before: Shape,
        after: Shape,
        follower: Vec<Arc<Follower>>,
        /// Its rows are still to be compared with these.
        new_references: Vec<ReferenceDef>,
        is_new_identity: bool,
    },
    /// The table is dropped.
    Drop(Arc<TableSet>),
}

impl Step {
    /// The table gets these parts, for which nothing is to be built.
    pub(crate) fn reshape(set: Arc<TableSet>, before: Shape, after: Shape) -> Step {
        let (follower, new_references) = (Vec::new(), Vec::new());
        Step::Reshape { set, before, after, follower, new_references, is_new_identity: false }
    }

    /// The table that exists, if the change is of one.
    fn set(&self) -> Option<&Arc<TableSet>> {
        match self {
            Step::Create(_) => None,
            Step::Reshape { set, .. } | Step::Drop(set) => Some(set),
        }
    }

    /// The parts of the table before and after.
    pub(crate) fn shapes(&self) -> Vec<Shape> {
        match self {
            Step::Create(set) | Step::Drop(set) => vec![set.shape()],
            Step::Reshape { before, after, .. } => vec![before.clone(), after.clone()],
        }
    }
}

impl Engine {
    /// Changes tables, all of them or none: durable when this returns. Transactions go on meanwhile. Those on changed
    /// tables wait for about a flush at the end.
    ///
    /// # Errors
    /// A change that makes no sense, or that rows contradict; no memory; an error of the file system. A transaction
    /// that stays open for longer than 10 s. Nothing is changed then.
    pub fn change_tables(
        &self,
        _changing: &Changing<'_>,
        changes: Vec<TableChange>,
    ) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        Migration::new(self, Vec::new()).run(changes)
    }

    /// The right to change tables, or to rely on them as they are. Others wait for it.
    ///
    /// # Errors
    /// [`SchemaError::Busy`]: an explicit transaction that changes tables stays open for longer than 10 s.
    pub fn changing(&self) -> Result<Changing<'_>, SchemaError> {
        self.inner.changing()
    }

    /// How many handles of a table there are, without that of a checkpoint: waits for one that is being taken.
    pub fn users_of(&self, set: &Arc<TableSet>) -> usize {
        let _no_checkpoint = self.inner.persistence.as_ref().map(Persistence::without_checkpoint);
        Arc::strong_count(set)
    }
}

/// A change of several tables.
struct Migration<'e> {
    engine: &'e Engine,
    steps: Vec<Step>,
    /// Whether transactions may know the tables that were made, or the catalogue does.
    is_used: bool,
    /// How many of the steps were asked for. The others are of tables that are linked with theirs by references.
    asked: usize,
    sequences: SequenceSteps,
    /// The tables with which references are built.
    building: Vec<Building>,
    /// Tables whose rows nobody needs any more.
    left: Vec<Left>,
}

/// A table with links of references that are being built.
struct Building {
    /// The table whose writes they follow: the one that others use, or its copy.
    set: Arc<TableSet>,
    /// In which rows are looked up: the same, or the same rows with the indexes of after the change.
    end: Arc<TableSet>,
    links: Links,
}

/// Rows or entries to delete.
pub(crate) enum Left {
    Table(Box<TableSet>),
    Index(Arc<Secondary>),
}

/// Deletes what nobody needs any more, to free its memory.
pub(crate) fn delete(engine: &Engine, left: Vec<Left>) {
    Migration::new(engine, left).clean_up();
}

impl<'e> Migration<'e> {
    fn new(engine: &'e Engine, left: Vec<Left>) -> Migration<'e> {
        let sequences = SequenceSteps::default();
        Migration { engine, steps: Vec::new(), sequences, asked: 0, is_used: false, building: Vec::new(), left }
    }

    fn run(mut self, changes: Vec<TableChange>) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        let inner = &self.engine.inner;
        inner.check_process().map_err(SchemaError::storage)?;
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let is_creation = changes.iter().all(|change| matches!(change, TableChange::Create(_)));
        let persistence = inner.persistence.as_ref().filter(|_| !is_creation);
        // A checkpoint would have the rows of the old tables, and delete the log of the new ones.
        let _no_checkpoint = persistence.map(Persistence::without_checkpoint);
        if let Some(persistence) = persistence {
            durability::inherit_catalogue(inner, &self.engine.open, persistence)?;
        }
        self.asked = changes.len();
        let changes = follow_names(&inner.sets(), changes);
        check_names(&inner.sets(), &changes)?;
        check_links(&inner.sets(), &changes)?;
        let mut verifications = 0;
        loop {
            let ids = inner.tables_mut().ids.clone();
            let changed = self.prepare(changes.clone()).and_then(|()| self.build()).and_then(|()| self.switch());
            let looks_again = changed.is_err() && self.is_refused_by_a_write() && verifications < VERIFICATIONS;
            if changed.is_err() {
                self.give_up(ids);
            }
            self.clean_up();
            if !looks_again {
                return changed;
            }
            verifications += 1;
        }
    }

    /// Deletes what nobody needs any more.
    fn clean_up(&mut self) {
        std::mem::take(&mut self.left).iter().for_each(|left| self.delete(left));
    }

    /// Makes what the changes need.
    fn prepare(&mut self, changes: Vec<TableChange>) -> Result<(), SchemaError> {
        let inner = &self.engine.inner;
        let (mut ids, mut position) = {
            let tables = inner.tables.read().unwrap_or_else(PoisonError::into_inner);
            (tables.ids.clone(), tables.next_position())
        };
        let made = changes.into_iter().try_for_each(|change| {
            let step = match change {
                TableChange::CreateSequence(definition) => return self.sequences.create(inner, definition, None),
                TableChange::AlterSequence(name, changes) => {
                    return self.sequences.alter(inner, &name, &changes, false);
                }
                TableChange::DropSequence(name) => return self.sequences.drop(inner, &name, &inner.sets()),
                TableChange::Own(name, role) => return self.own(&name, role),
                TableChange::Create(definition) => {
                    self.sequences.create_owned(inner, &definition, position)?;
                    let set = inner.make_table(definition, &mut ids, position)?;
                    position += 1;
                    Step::Create(set)
                }
                TableChange::Drop(name) => {
                    let set = inner.table(&name)?;
                    self.sequences.drop_owned(inner, set.position);
                    Step::Drop(set)
                }
                TableChange::Truncate(name) => {
                    let set = inner.table(&name)?;
                    let before = set.shape();
                    let empty = inner.make_table((*before.definition).clone(), &mut ids, set.position)?;
                    Step::reshape(set, before, empty.shape())
                }
                TableChange::Evolve(evolution) => self.reshape(evolution, &mut ids)?,
            };
            self.steps.push(step);
            Ok(())
        });
        inner.tables_mut().ids = ids;
        made?;
        self.add_linked();
        Ok(())
    }

    /// Notes the role that creates a table or a sequence.
    fn own(&mut self, name: &str, role: u32) -> Result<(), SchemaError> {
        let created = self.steps.iter().find_map(|step| match step {
            Step::Create(set) if set.definition.name == *name => Some(set),
            _ => None,
        });
        self.engine.inner().check_creator(name, role)?;
        match created {
            Some(set) => set.note_creator(role),
            None => self.sequences.note_creator(name, role)?,
        }
        Ok(())
    }

    /// Adds the tables to which a changed table refers, or which refer to it: their links are made anew.
    fn add_linked(&mut self) {
        let definitions = self.steps.iter().flat_map(|step| match step {
            Step::Create(set) | Step::Drop(set) => vec![set.shape().definition],
            Step::Reshape { before, after, .. } => vec![Arc::clone(&before.definition), Arc::clone(&after.definition)],
        });
        let definitions: Vec<Arc<TableDef>> = definitions.collect();
        let is_changed =
            |set: &Arc<TableSet>| self.steps.iter().any(|step| step.set().is_some_and(|own| Arc::ptr_eq(own, set)));
        let mut linked = linked_with(&self.engine.inner.sets(), definitions.iter().map(|definition| &**definition));
        linked.retain(|set| !is_changed(set));
        for set in linked {
            let before = set.shape();
            let after = before.clone();
            self.steps.push(Step::reshape(set, before, after));
        }
    }

    /// The tables with links of new references; none if there are none. What is built from rows is complete.
    fn building(&self) -> Vec<Building> {
        let inner = self.engine.inner();
        let (mut tables, mut new): (Vec<(Arc<TableSet>, Shape)>, _) = (Vec::new(), Vec::new());
        let mut writes = Vec::new();
        let mut add = |set: &Arc<TableSet>, end: Arc<TableSet>, references: &[ReferenceDef]| {
            writes.push(Arc::clone(set));
            new.push(references.to_vec());
            tables.push((Arc::clone(&end), end.shape()));
        };
        for set in inner.sets() {
            match self.steps.iter().find(|step| step.set().is_some_and(|own| Arc::ptr_eq(own, &set))) {
                Some(Step::Reshape { after, follower, new_references, .. }) => {
                    let copy = follower.iter().find_map(|follower| follower.copy());
                    let end = || Arc::new(TableSet::of(inner, Shape { links: Arc::default(), ..after.clone() }, 0));
                    match copy {
                        Some(copy) => add(copy, Arc::clone(copy), new_references),
                        None => add(&set, end(), new_references),
                    }
                }
                Some(_) => {}
                None => add(&set, Arc::clone(&set), &[]),
            }
        }
        for step in &self.steps {
            if let Step::Create(set) = step {
                add(set, Arc::clone(set), &[]);
            }
        }
        let is_new = |end: &Arc<TableSet>, reference: &ReferenceDef| {
            let at = tables.iter().position(|(other, _)| Arc::ptr_eq(other, end));
            at.is_some_and(|at| new[at].contains(reference))
        };
        let links = links(&tables, is_new).into_iter().map(Links::building);
        let all = writes.iter().cloned().zip(&tables).zip(links);
        let all = all.map(|((set, (end, _)), links)| Building { set, end: Arc::clone(end), links });
        all.filter(|building| !building.links.is_empty()).collect()
    }

    /// The step that changes the declaration of a table.
    fn reshape(&mut self, evolution: Box<Evolution>, ids: &mut TableIds) -> Result<Step, SchemaError> {
        let inner = &self.engine.inner;
        let set = inner.table(&evolution.before().name)?;
        let (before, after) = (set.shape(), evolution.after());
        if evolution.changes_key() {
            // A copy that follows writes would keep one of two rows that get one key.
            let problem = "another primary key is set in an explicit transaction, which keeps others out".to_owned();
            return Err(SchemaError::Invalid(InvalidSchema::Invalid { table: after.name.to_string(), problem }));
        }
        let is_new_identity = !evolution.keeps_handles() || set.had_other_indexes(after);
        self.sequences.follow_column(inner, &evolution, set.position, false)?;
        let known = &before.definition.references;
        let adds_references = evolution.new_references().any(|reference| !known.contains(reference));
        let at_once = if adds_references { None } else { reshape_at_once(inner, &set, &evolution, ids)? };
        let keeps_rows = evolution.keeps_rows() || at_once.is_some();
        let is_proved = |reference: &ReferenceDef| keeps_rows && known.contains(reference);
        let new_references = evolution.new_references().filter(|reference| !is_proved(reference)).cloned().collect();
        let (after, builds) = match at_once {
            Some(after) => (after, Vec::new()),
            None => reshape(inner, &set, evolution, ids)?,
        };
        let follower: Vec<_> = builds.into_iter().map(|build| Follower::new(build, &set)).collect();
        let copies = follower.iter().filter_map(|follower| follower.copy());
        copies.for_each(|copy| self.sequences.bind_identity(inner, copy));
        Ok(Step::Reshape { set, before, after, follower, new_references, is_new_identity })
    }

    /// Builds copies and indexes from the rows, while transactions change them.
    fn build(&mut self) -> Result<(), SchemaError> {
        self.is_used |= self.steps.iter().any(|step| matches!(step, Step::Reshape { .. }));
        self.follow()
    }

    fn follow(&mut self) -> Result<(), SchemaError> {
        let followed = || {
            self.steps.iter().filter_map(|step| match step {
                Step::Reshape { set, before, follower, .. } if !follower.is_empty() => Some((set, before, follower)),
                _ => None,
            })
        };
        let has_new = |step: &Step| matches!(step, Step::Reshape { new_references, .. } if !new_references.is_empty());
        let has_new = self.steps.iter().any(has_new);
        if followed().next().is_none() && !has_new {
            return Ok(());
        }
        if self.engine.inner.persistence.is_some() {
            // Recovery must know the copies, to skip their rows.
            let copies = || followed().flat_map(|(_, _, follower)| follower).filter_map(|follower| follower.copy());
            if copies().next().is_some() {
                self.change_catalogue(&|rows| copies().try_for_each(|copy| rows.add(copy, true)))?;
            }
        }
        if followed().next().is_some() {
            self.quietly(|| {
                for (set, before, follower) in followed() {
                    set.set_shape(Shape { followers: Arc::new(follower.clone()), ..before.clone() });
                }
                Ok(())
            })?;
        }
        for (set, _, follower) in followed() {
            let source = set.apart(self.engine.inner());
            let bring = |tx: &TxCore, found: &WalkedRow<'_>| {
                source.each_row(found.key, found.row, |key, _| {
                    let mut live = follower.iter().filter(|follower| follower.refusal().is_none());
                    live.try_for_each(|follower| follower.bring(tx, &source, key))
                })
            };
            // A row that moves from an earlier layout to a later one meanwhile is found there.
            let brought = source.row_tables().try_for_each(|table| self.each_record(self.runner(), table, &bring));
            brought.map_err(not_walked)?;
        }
        if has_new {
            self.refusal()?;
            self.building = self.building();
            self.prove()?;
        }
        // Snapshots of the durable epoch find all rows in copies, if the log stops at the switch or the disk is full.
        let flushed = self.engine.inner.persistence.as_ref().map(|persistence| persistence.flush(None));
        flushed.transpose().map(drop).map_err(SchemaError::storage)
    }

    /// Proves new references, which all writes follow meanwhile.
    fn prove(&self) -> Result<(), SchemaError> {
        self.quietly(|| {
            for Building { set, links, .. } in &self.building {
                let shape = set.shape();
                set.set_links(Arc::new(shape.links.with(links)));
            }
            Ok(())
        })?;
        for Building { end, links, .. } in self.building.iter().filter(|building| !building.links.own.is_empty()) {
            let source = end.apart(self.engine.inner());
            let prove = |tx: &TxCore, found: &WalkedRow<'_>| {
                source.each_row(found.key, found.row, |key, _| {
                    let mut live = links.own.iter().filter(|link| link.refusal().is_none());
                    live.try_for_each(|link| tx.prove_reference(link, &source, key))
                })
            };
            let proved = source.row_tables().try_for_each(|table| self.each_record(self.runner(), table, &prove));
            proved.map_err(not_walked)?;
        }
        Ok(())
    }

    /// Why the rows of a table do not allow its change, if so.
    fn refusal(&self) -> Result<(), SchemaError> {
        for step in &self.steps {
            if let Step::Reshape { before, follower, .. } = step
                && let Some(problem) = follower.iter().find_map(|follower| follower.refusal())
            {
                return Err(problem.clone().of(&before.definition.name));
            }
        }
        for Building { end, links, .. } in &self.building {
            if let Some(problem) = links.own.iter().find_map(|link| link.refusal()) {
                return Err(problem.clone().of(&end.definition.name));
            }
        }
        Ok(())
    }

    /// Whether the first refusal was by a write of a transaction that may have aborted since.
    fn is_refused_by_a_write(&self) -> bool {
        let followers = self.steps.iter().flat_map(|step| match step {
            Step::Reshape { follower, .. } => &follower[..],
            Step::Create(_) | Step::Drop(_) => &[],
        });
        let mut refused = followers.filter(|follower| follower.refusal().is_some());
        refused.next().is_some_and(|follower| !follower.is_refusal_certain())
    }

    /// Puts the new tables in place of the old ones.
    fn switch(&mut self) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        let inner = &self.engine.inner;
        // No walk reads rows of the one shape as rows of the other.
        let _no_walk = self.steps.iter().any(|step| step.set().is_some()).then(|| inner.helping());
        let ready = || {
            self.refusal()?;
            // A transaction that begins from now on finds the rows of copies in every snapshot that it takes.
            inner.environment.epochs.renew_snapshot(&inner.environment.htm);
            Ok(())
        };
        let Some(persistence) = &inner.persistence else {
            let (sets, left) = self.quietly_unless_new(|| {
                ready()?;
                self.sequences.begin(inner)?.apply(inner, Epoch(0));
                Ok(self.apply())
            })?;
            self.left.extend(left);
            self.start_converting();
            return Ok(sets);
        };
        self.quietly_unless_new(|| {
            ready()?;
            self.steps.iter().filter_map(Step::set).for_each(|set| set.close());
            Ok(())
        })?;
        let sequences = self.sequences.begin(inner)?;
        let epoch = self.change_catalogue(&|rows| {
            self.steps.iter().try_for_each(|step| step.record(rows))?;
            sequences.record(rows)
        })?;
        self.is_used = true;
        // It was committed. Unless the log has stopped, it becomes durable when the disk has space.
        let durable = persistence.wait_for(epoch);
        if let (Err(_), Some(reason)) = (&durable, persistence.log().durable().stop_reason()) {
            return Err(SchemaError::storage(StorageError::Stopped(reason)));
        }
        sequences.apply(inner, epoch);
        let (sets, left) = self.apply();
        self.left.extend(left);
        self.start_converting();
        // Nothing of it can be given up any more.
        self.steps.clear();
        durable.map(|()| sets).map_err(SchemaError::storage)
    }

    /// Opens the tables in their new shapes. Returns the tables, and the rows of which nobody has a use any more.
    fn apply(&self) -> (Vec<Arc<TableSet>>, Vec<Left>) {
        publish(self.engine.inner(), &self.steps, self.asked, None)
    }

    fn start_converting(&self) {
        let has_earlier = |step: &Step| matches!(step, Step::Reshape { after, .. } if !after.earlier.is_empty());
        if self.steps.iter().any(has_earlier) {
            self.engine.open.start_converting();
        }
    }

    /// Undoes what was begun: the tables are as before. If nobody knows the tables that were made, their ids are free
    /// again.
    fn give_up(&mut self, ids: TableIds) {
        let inner = self.engine.inner();
        std::mem::take(&mut self.sequences).undo(inner);
        self.building.clear();
        let mut created = Vec::new();
        for step in self.steps.drain(..) {
            match step {
                Step::Create(set) => created.push(set),
                Step::Drop(set) => set.set_shape(set.shape()),
                Step::Reshape { set, before, after, follower, .. } => {
                    // A transaction that still finds followers only does work that nobody needs.
                    set.set_shape(before.clone());
                    for follower in follower {
                        self.left.extend(match &follower.build {
                            Build::Copy { set, .. } => Some(Left::Table(set.apart(inner))),
                            Build::Index(index, ..) => Some(Left::Index(Arc::clone(index))),
                            Build::Checks(..) => None,
                        });
                    }
                    let is_other =
                        !Arc::ptr_eq(&before.primary, &after.primary) || !Arc::ptr_eq(&before.indexes, &after.indexes);
                    let made = Arc::new(TableSet::of(inner, after, set.position));
                    match self.is_used {
                        true if is_other => inner.tables_mut().replaced.push(made),
                        true => {}
                        false => created.push(made),
                    }
                }
            }
        }
        if !self.is_used {
            self.left.clear();
            inner.tables_mut().ids = ids;
        }
        inner.dispose(created);
    }

    /// Runs `act` at a moment at which no transaction is open.
    fn quietly<R>(&self, act: impl Fn() -> Result<R, SchemaError>) -> Result<R, SchemaError> {
        let inner = self.engine.inner();
        let began = Instant::now();
        loop {
            let done = inner.quietly(QUIET_ATTEMPT, || {
                // Deferred additions belong to the transactions that deferred them.
                drop(inner.environment.epochs.windows().close());
                act()
            });
            match done {
                Some(result) => return result,
                None if began.elapsed() >= WAIT_MAX => return Err(SchemaError::Busy),
                None => thread::sleep(QUIET_ATTEMPT),
            }
        }
    }

    /// As [`Migration::quietly`], or at any moment if no table that exists is changed.
    fn quietly_unless_new<R>(&self, act: impl Fn() -> Result<R, SchemaError>) -> Result<R, SchemaError> {
        if self.steps.iter().all(|step| step.set().is_none()) { act() } else { self.quietly(act) }
    }

    fn change_catalogue(&self, change: &dyn Fn(&CatalogueRows<'_>) -> Result<(), Abort>) -> Result<Epoch, SchemaError> {
        durability::change_catalogue(&self.engine.inner, &self.engine.open, change)
    }

    /// A runner for work that is no application's.
    fn runner(&self) -> Runner {
        Runner::internal(&self.engine.inner, &self.engine.open, 0)
    }

    /// Calls `act` for each record of a table or index, some dozens in each transaction.
    fn each_record(&self, mut runner: Runner, table: &Table, act: &Act<'_>) -> Result<(), Failed> {
        let inner = self.engine.inner();
        let _one_at_a_time = inner.helping();
        let core = inner.environment.core().ok_or(Failed::Transact(TransactError::WorkersBusy))?;
        let mut walker = Walker::new(inner.protocol.as_ref(), core);
        let rows = Rows::new(table);
        let mut chunk = || {
            walker.chunk(&rows, |found| {
                let act = |tx: &TxCore| found.iter().try_for_each(|found| act(tx, found));
                runner.run(Mode::ReadWrite, Origin::Closure, act).map(drop).map_err(Failed::Transact)
            })
        };
        while chunk()? {
            if let Some(persistence) = &inner.persistence {
                // If the owner steps the loggers, no other thread empties their streams.
                persistence.step();
            }
        }
        Ok(())
    }

    /// Deletes rows or entries, to free their memory. Those that cannot be deleted stay until the database is closed.
    fn delete(&self, left: &Left) {
        let runner = || {
            let mut runner = self.runner();
            runner.tx.ignore_queue();
            runner.tx.ignore_history();
            runner
        };
        // An error leaves the rest where it is.
        let _ = match left {
            Left::Table(set) => set.row_tables().try_for_each(|table| {
                self.each_record(runner(), table, &|tx, found| {
                    set.each_row(found.key, found.row, |key, _| tx.delete_at(set, key).map(drop))
                })
            }),
            Left::Index(index) => {
                self.each_record(runner(), &index.table, &|tx, found| tx.unlink_entry(&index.table, found.key))
            }
        };
    }
}

/// Opens tables in their new shapes. Returns those of the first steps, and the rows of which nobody has a use any more.
/// If they are `settling`, some transactions are not admitted yet.
pub(crate) fn publish(
    inner: &Inner,
    steps: &[Step],
    asked: usize,
    settling: Option<&Settling>,
) -> (Vec<Arc<TableSet>>, Vec<Left>) {
    let (mut sets, mut left) = (Vec::new(), Vec::new());
    let mut opened: Vec<(Arc<TableSet>, Shape)> = Vec::new();
    let mut tables = inner.tables_mut();
    for (at, step) in steps.iter().enumerate() {
        let mut open = |set: &Arc<TableSet>, shape: Shape| {
            settling.iter().for_each(|settling| set.begin_settling((*settling).clone()));
            opened.push((Arc::clone(set), shape));
            if at < asked {
                sets.push(Arc::clone(set));
            }
        };
        match step {
            Step::Create(set) => {
                inner.access.created(set);
                tables.sets.push(Arc::clone(set));
                open(set, set.shape());
            }
            Step::Drop(set) => {
                set.end();
                inner.access.dropped(set);
                left.push(Left::Table(set.apart(inner)));
                tables.sets.retain(|other| !Arc::ptr_eq(other, set));
                tables.replaced.push(Arc::clone(set));
            }
            Step::Reshape { set, before, after, is_new_identity, .. } => {
                if !Arc::ptr_eq(&before.primary, &after.primary) && !after.has_earlier(before) {
                    left.push(Left::Table(set.apart(inner)));
                } else {
                    let is_kept = |index: &&Arc<Secondary>| after.indexes.iter().any(|new| Arc::ptr_eq(new, index));
                    let gone = before.indexes.iter().filter(|index| !is_kept(index));
                    left.extend(gone.map(|index| Left::Index(Arc::clone(index))));
                }
                if !is_new_identity {
                    open(set, after.clone());
                    continue;
                }
                let new = Arc::new(TableSet::of(inner, after.clone(), set.position));
                set.end();
                if let Some(at) = tables.sets.iter().position(|other| Arc::ptr_eq(other, set)) {
                    tables.sets[at] = Arc::clone(&new);
                }
                tables.replaced.push(Arc::clone(set));
                open(&new, after.clone());
            }
        }
    }
    // Only now are all tables there that refer to each other.
    let shape = |set: &Arc<TableSet>| {
        let shape = opened.iter().find(|(own, _)| Arc::ptr_eq(own, set)).map(|(_, shape)| shape);
        shape.map_or_else(|| set.shape(), Shape::clone)
    };
    let all: Vec<(Arc<TableSet>, Shape)> = tables.sets.iter().map(|set| (Arc::clone(set), shape(set))).collect();
    let links = links(&all, |_, _| false);
    for (set, shape) in opened {
        let at = all.iter().position(|(own, _)| Arc::ptr_eq(own, &set));
        let links = at.map(|at| Arc::new(links[at].clone())).unwrap_or_default();
        set.set_shape(Shape { links, ..shape });
        inner.bind_identity(&set);
    }
    (sets, left)
}

/// The parts of a table after a change of columns for which no row must be read: the rows stay in their layout. `None`
/// for other changes.
fn reshape_at_once(
    inner: &Inner,
    set: &TableSet,
    evolution: &Evolution,
    ids: &mut TableIds,
) -> Result<Option<Shape>, SchemaError> {
    let before = set.shape();
    if evolution.keeps_rows() || *before.definition != *evolution.before() || evolution.conversion().is_none() {
        return Ok(None);
    }
    let definition = evolution.after();
    let rows = TableDef { indexes: Vec::new(), ..definition.clone() };
    let rows = inner.make_table(rows, ids, set.position)?.shape();
    let (definition, checks) = (Arc::new(definition.clone()), Arc::new(Checks::of(definition)));
    let Shape { indexes, followers, links, .. } = before.clone();
    let after = Shape { definition, indexes, followers, links, checks, ..rows };
    let earlier = Earlier::after(inner, &before, &after, evolution, set.position);
    Ok(earlier.map(|earlier| Shape { earlier: Arc::new(earlier), ..after }))
}

/// The parts of a table after a change, and what is to be built from its rows for them.
pub(crate) fn reshape(
    inner: &Inner,
    set: &TableSet,
    evolution: Box<Evolution>,
    ids: &mut TableIds,
) -> Result<(Shape, Vec<Build>), SchemaError> {
    let before = set.shape();
    if *before.definition != *evolution.before() {
        let problem = Problem::new(Refusal::Changed, "it was changed by another call meanwhile");
        return Err(problem.of(&evolution.before().name));
    }
    if !evolution.keeps_rows() {
        let copy = inner.make_table(evolution.after().clone(), ids, set.position)?;
        return Ok((copy.shape(), vec![Build::Copy { set: copy, evolution }]));
    }
    let (mut indexes, mut builds) = (Vec::new(), Vec::new());
    for (at, was) in evolution.indexes().iter().enumerate() {
        indexes.push(match was {
            Some(was) => Arc::clone(&before.indexes[*was]),
            None => {
                let index = Arc::new(inner.make_index(evolution.after(), at, before.primary.class, ids)?);
                builds.push(Build::Index(Arc::clone(&index), Arc::new(evolution.after().clone()), at));
                index
            }
        });
    }
    let definition = Arc::new(evolution.after().clone());
    let checks = Arc::new(Checks::of(&definition));
    if evolution.adds_checks() {
        builds.push(Build::Checks(Arc::clone(&checks), Arc::clone(&definition)));
    }
    Ok((Shape { definition, indexes: Arc::new(indexes), checks, ..before }, builds))
}

/// An action on a record in a transaction.
type Act<'a> = dyn Fn(&TxCore, &WalkedRow<'_>) -> Result<(), Abort> + 'a;

/// Why the rows of a table could not be walked over.
fn not_walked(failed: Failed) -> SchemaError {
    match failed {
        Failed::Stuck => SchemaError::Busy,
        Failed::Transact(TransactError::WorkersBusy) => SchemaError::WorkersBusy,
        Failed::Transact(TransactError::OutOfMemory { held, .. }) => SchemaError::OutOfMemory { held },
        Failed::Transact(error) => SchemaError::Transact(Box::new(error)),
    }
}

impl Step {
    /// Writes the change into the catalogue.
    pub(crate) fn record(&self, rows: &CatalogueRows<'_>) -> Result<(), Abort> {
        match self {
            Step::Create(set) => {
                rows.inner().record_rights(rows, set, true)?;
                rows.add(set, false)
            }
            Step::Drop(set) => {
                rows.inner().record_rights(rows, set, false)?;
                rows.set_void(&set.shape(), set.position, true)
            }
            Step::Reshape { set, before, after, follower, .. } => {
                if Arc::ptr_eq(&before.primary, &after.primary) {
                    return rows.replace((before, after), set.position);
                }
                if after.has_earlier(before) {
                    return rows.succeed((before, after), set.position);
                }
                rows.set_void(before, set.position, true)?;
                match follower.is_empty() {
                    // A copy is there already.
                    false => rows.set_void(after, set.position, false),
                    true => rows.add_shape(after, set.position, false),
                }
            }
        }
    }
}

/// Lets references follow the tables and columns whose names change.
pub(crate) fn follow_names(sets: &[Arc<TableSet>], mut changes: Vec<TableChange>) -> Vec<TableChange> {
    let evolution = |change: &TableChange| match change {
        TableChange::Evolve(evolution) => Some(Evolution::clone(evolution)),
        _ => None,
    };
    let parents: Vec<Evolution> = changes.iter().filter_map(evolution).collect();
    for set in sets {
        let name = &set.definition.name;
        let refers = |parent: &&Evolution| {
            let to = &parent.before().name;
            to != name && set.definition.references.iter().any(|reference| reference.table == *to)
        };
        let own = |change: &&mut TableChange| match change {
            TableChange::Evolve(evolution) => evolution.before().name == *name,
            TableChange::Drop(table) | TableChange::Truncate(table) => table == name,
            _ => false,
        };
        for parent in parents.iter().filter(refers) {
            match changes.iter_mut().find(own) {
                Some(TableChange::Evolve(evolution)) => evolution.follow(parent),
                Some(_) => {}
                None => {
                    let mut evolution = Evolution::of(&set.definition);
                    evolution.follow(parent);
                    if evolution.after() != evolution.before() {
                        changes.push(TableChange::Evolve(Box::new(evolution)));
                    }
                }
            }
        }
    }
    changes
}

/// The tables to which one of these declarations refers, or which refer to one.
pub(crate) fn linked_with<'d>(
    sets: &[Arc<TableSet>],
    definitions: impl Iterator<Item = &'d TableDef> + Clone,
) -> Vec<Arc<TableSet>> {
    let refers = |from: &TableDef, to: &TableDef| from.references.iter().any(|reference| reference.table == to.name);
    let is_linked =
        |set: &&Arc<TableSet>| definitions.clone().any(|of| refers(of, &set.definition) || refers(&set.definition, of));
    sets.iter().filter(is_linked).cloned().collect()
}

/// Checks that all references are to keys of tables afterwards.
pub(crate) fn check_links(sets: &[Arc<TableSet>], changes: &[TableChange]) -> Result<(), SchemaError> {
    let mut tables: Vec<TableDef> = sets.iter().map(|set| TableDef::clone(&set.definition)).collect();
    for change in changes {
        let at = |name: &str| tables.iter().position(|table| table.name == name);
        match change {
            TableChange::Create(definition) => tables.push(definition.clone()),
            TableChange::Drop(name) => _ = at(name).map(|at| tables.remove(at)),
            TableChange::Evolve(evolution) => {
                if let Some(at) = at(&evolution.before().name) {
                    tables[at] = evolution.after().clone();
                }
            }
            _ => {}
        }
    }
    for change in changes {
        let (TableChange::Drop(name) | TableChange::Truncate(name)) = change else { continue };
        let refers = |table: &&TableDef| {
            table.name != *name && table.references.iter().any(|reference| reference.table == *name)
        };
        if let Some(table) = tables.iter().find(refers) {
            let reference = table.references.iter().find(|reference| reference.table == *name);
            let reference = reference.map_or("", |reference| &reference.name);
            let says = format!("reference `{reference}` of table `{}` refers to it: drop that first", table.name);
            let (constraint, by) = (reference.to_owned(), table.name.to_string());
            return Err(Problem::new(Refusal::Referenced { constraint, by }, says).of(name));
        }
    }
    // Rows refer to keys of before.
    for change in changes {
        let TableChange::Evolve(evolution) = change else { continue };
        let name = &evolution.before().name;
        let refers = |reference: &&ReferenceDef| reference.table == *name && reference.referenced.is_empty();
        let by = sets.iter().find_map(|set| Some((set, set.definition.references.iter().find(refers)?)));
        if let Some((set, reference)) = by.filter(|_| evolution.changes_key()) {
            let (constraint, by) = (reference.name.to_string(), set.definition.name.to_string());
            let says = format!("reference `{constraint}` of table `{by}` is to its primary key: drop that first");
            return Err(Problem::new(Refusal::Referenced { constraint, by }, says).of(name));
        }
    }
    check_references(&tables).map_err(SchemaError::Invalid)
}

/// Checks that each table has its own name afterwards, and is changed once.
pub(crate) fn check_names(sets: &[Arc<TableSet>], changes: &[TableChange]) -> Result<(), SchemaError> {
    let mut changed = HashSet::new();
    let mut names: Vec<String> = Vec::new();
    for change in changes {
        let (of, to) = match change {
            TableChange::Create(definition) => {
                definition.validate().map_err(SchemaError::Invalid)?;
                (None, Some(definition.name.to_string()))
            }
            TableChange::Evolve(evolution) => {
                (Some(evolution.before().name.to_string()), Some(evolution.after().name.to_string()))
            }
            TableChange::Truncate(name) => (Some(name.clone()), Some(name.clone())),
            TableChange::Drop(name) => (Some(name.clone()), None),
            TableChange::CreateSequence(_)
            | TableChange::AlterSequence(..)
            | TableChange::DropSequence(_)
            | TableChange::Own(..) => continue,
        };
        names.extend(to);
        if let Some(of) = of
            && !changed.insert(of.clone())
        {
            let problem = "it is changed twice; put all its changes into one".to_owned();
            return Err(SchemaError::Invalid(InvalidSchema::Invalid { table: of, problem }));
        }
    }
    let others = sets.iter().map(|set| set.definition.name.to_string()).filter(|name| !changed.contains(name));
    let mut taken: HashSet<String> = others.collect();
    match names.into_iter().find(|name| !taken.insert(name.clone())) {
        Some(twin) => Err(SchemaError::Exists(twin)),
        None => Ok(()),
    }
}
