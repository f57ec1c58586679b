//! The procedures of a database: resolved, analysed as one set, and found by type and by name.
//!
//! A registration replaces the analysis of the set as a whole or changes nothing. A session keeps the [`Entry`] of a
//! procedure, which does not depend on the rest of the set and stays valid for ever. The pieces depend on the set and
//! are read from the registry.

use std::any::TypeId;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use seriatim_base::process::FORKED;
use seriatim_catalog::{ColumnDef, ColumnSet, ColumnUse};
use seriatim_engine::TableChange;
use seriatim_engine::procedure::execution::Passes;
use seriatim_engine::procedure::gate::Gate;
use seriatim_engine::procedure::reach::Reach;
use seriatim_engine::procedure::repair::Repairs;
use seriatim_procedure::analysis::{self, ChopError, Refusals, Schema, Steps};
use seriatim_procedure::ir::{self, Span, StepId};
use seriatim_procedure::plan::{self, Chopping, Fragments, Kind, Options, Plan};
use seriatim_procedure::show;
use seriatim_txn::{Freshness, Knob, Mode, REPAIR_ALL, REPAIR_FROM, REPAIR_SHARE_MAX};

use super::registered::{AnyHandles, Registered};
use super::{Declared, ExecutionMode, Number, Procedures};
use crate::{Database, SchemaError};

/// A registered procedure.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// The type that declares it.
    pub(crate) id: TypeId,
    /// Of the type that `registered` gives them; of [`Declared::Handles`] if it is a type.
    pub(crate) handles: AnyHandles,
    /// Whether it runs on a snapshot.
    pub(crate) snapshot: bool,
    pub(crate) strategy: CallStrategy,
    /// Whether every access is compared with the plan.
    pub(crate) checked: bool,
    /// Whether the arguments determine rows that it accesses, so that its calls can be batched.
    pub(crate) tells_footprint: bool,
    /// The partitions of its calls, in a database with partitions.
    pub(crate) reach: Reach,
    /// Which operations depend on which, for protocols that repair.
    pub(crate) repairs: Repairs,
    /// Whether its code follows a schedule, so that it can run in parts.
    pub(crate) follows_schedule: bool,
    /// The value of [`seriatim_txn::REPAIR_FROM`] in this database.
    pub(crate) repair_from: u32,
    pub(crate) declaration: ir::Procedure,
    steps: Steps,
    pub(crate) plan: Arc<Plan>,
    /// The columns of its rows that each operation may read and change, by the operation's id.
    pub(crate) columns: Box<[ColumnUse]>,
    /// The sequences whose numbers its calls take.
    pub(crate) numbers: Vec<Arc<seriatim_engine::Sequence>>,
    /// The procedure as it was registered.
    pub(crate) registered: Arc<dyn Registered>,
    /// Whether the registry has another entry for it, or none: a table was changed, or the procedure.
    pub(crate) is_replaced: AtomicBool,
}

impl Entry {
    /// The mode of its transaction where it runs in one.
    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        if self.snapshot { Mode::ReadOnly } else { Mode::ReadWrite }
    }

    /// The pass of each step by the chopping of its set. If the pieces after the decisive one cannot be separated,
    /// there is one pass, with the reason.
    fn cut(&self, chopping: &Chopping) -> (Vec<u16>, Option<String>) {
        let whole = || vec![0; self.declaration.steps];
        let Some(chopped) = chopping.procedure(&self.plan.procedure) else { return (whole(), None) };
        if self.plan.follows_references() {
            let follows = chopped.decisive.is_some_and(|decisive| decisive + 1 < chopped.pieces.len());
            return (whole(), follows.then(|| "constraints are checked once, at its end".to_owned()));
        }
        let passes = self.steps.passes(chopped);
        if passes.iter().all(|pass| *pass == 0) {
            let follows = chopped.decisive.is_some_and(|decisive| decisive + 1 < chopped.pieces.len());
            let reason = || "what runs between its operations would not keep its order in pieces".to_owned();
            return (passes, follows.then(reason));
        }
        // A second check, independent of the plan: nothing may fail after a piece is visible.
        match analysis::late_failures(&self.declaration, &passes).first() {
            None => (passes, None),
            Some(failure) => (whole(), Some(failure.to_string())),
        }
    }

    /// Whether its calls need all partitions, and why.
    fn everywhere(&self) -> Option<Everywhere> {
        let reason = self.reach.everywhere.clone()?;
        Some(Everywhere { procedure: self.name.to_owned(), reason })
    }

    /// The handles, with their type.
    #[inline]
    pub(crate) fn handles<P: Declared>(&self) -> &P::Handles {
        match self.handles.downcast_ref() {
            Some(handles) => handles,
            None => unreachable!("the handles of a procedure are made by the procedure"),
        }
    }
}

/// How a procedure is run in this database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallStrategy {
    /// From top to bottom.
    Straight,
    /// From top to bottom; the protocol may ask for some operations again.
    Repaired,
    /// From top to bottom, with every access checked against the plan.
    Checked,
    /// Piece by piece, if the chopping of the set gives it more than one.
    Pieces,
}

/// All registered procedures.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) entries: Vec<Arc<Entry>>,
    /// For each procedure: the pass in which each step runs when it runs in pieces.
    passes: Vec<Arc<Passes>>,
    /// The pieces from which `passes` are made.
    chopping: Option<Chopping>,
}

/// Whether read-only procedures run on snapshots. A chain is serializable together with whole transactions that see
/// the present. A snapshot that may be old could lie between the pieces of a chain whose end its caller has already
/// seen.
fn takes_snapshots(execution_mode: ExecutionMode, freshness: Freshness) -> bool {
    // Without snapshots, the procedure runs as a validated transaction.
    execution_mode == ExecutionMode::Whole || !freshness.is_bounded()
}

/// Whether the arguments determine rows that the procedure accesses.
fn tells_footprint(plan: &Plan) -> bool {
    let touches = plan.footprint().touches;
    let is_row = |touch: &plan::Touch| touch.known && plan.operations[touch.operation].kind != Kind::Scan;
    touches.iter().any(is_row)
}

/// The columns that an operation of a plan reads, replaces or adds to. A column with more than one addition counts as
/// read and replaced: each intermediate sum must stay in range.
fn columns(plan: &Plan, at: usize) -> ColumnUse {
    let operation = &plan.operations[at];
    let Some(own) = operation.accesses.first() else { return ColumnUse::default() };
    let used: ColumnSet = own.reads.iter().collect();
    let used = ColumnUse::reading(used).union(ColumnUse::setting(own.writes.iter()));
    let added = ColumnUse::adding(own.commutes.iter());
    let added = if analysis::adds_once(plan, at) { added } else { added.either().into() };
    used.union(added)
}

impl Registry {
    pub(crate) fn names(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.name.to_owned()).collect()
    }

    /// The procedure of this type, if it is registered.
    pub(crate) fn find<P: Declared>(&self) -> Option<&Arc<Entry>> {
        self.entries.iter().find(|entry| entry.id == TypeId::of::<P>())
    }

    /// The pass in which each step of a registered procedure runs, when it runs in pieces.
    pub(crate) fn passes_of(&self, entry: &Entry) -> Option<Arc<Passes>> {
        let is_it = |known: &Arc<Entry>| known.id == entry.id && known.name == entry.name;
        let at = self.entries.iter().position(is_it)?;
        self.passes.get(at).cloned()
    }
}

/// The effects of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registration {
    /// The names of the added procedures, in order.
    pub added: Vec<String>,
    /// The names of those that took the place of others.
    pub replaced: Vec<String>,
    /// Added procedures that run only as a whole, neither in pieces nor repaired: those that are data, and those
    /// whose code cannot. The result of one of their
    /// updates may refer to variables of the procedure, which end with a pass. Return it by value (`*x`,
    /// `x.to_owned()`), or read the column afterwards.
    pub whole: Vec<String>,
    /// Earlier procedures whose pieces have changed.
    pub changed: Vec<Repieced>,
    /// With [`ExecutionMode::Pieces`]: procedures that run whole although their chopping has pieces after the
    /// decisive one.
    pub uncut: Vec<Uncut>,
    /// In a database with partitions ([`Builder::partitions`](crate::Builder::partitions)): added procedures whose
    /// calls need all partitions, because the arguments do not determine which they need.
    pub everywhere: Vec<Everywhere>,
}

/// A procedure whose calls need all partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Everywhere {
    /// The name of the procedure.
    pub procedure: String,
    /// The reason.
    pub reason: String,
}

/// A procedure that does not run in the pieces of its set's chopping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncut {
    /// The name of the procedure.
    pub procedure: String,
    /// The reason, with the place in the source if there is one.
    pub reason: String,
}

/// A procedure whose pieces changed because other procedures were registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repieced {
    /// The name of the procedure.
    pub procedure: String,
    /// The number of pieces before.
    pub before: usize,
    /// The number of pieces now.
    pub after: usize,
}

/// Why procedures were not registered. None of the set was.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegisterError {
    /// A procedure with this name is already registered, or the set has two.
    Exists {
        /// The name of the procedure.
        name: String,
        /// The place of the first declaration.
        first: Span,
        /// The place of the second declaration.
        second: Span,
    },
    /// A table that the procedure uses is missing, or differs from the declaration of its type.
    Schema {
        /// The name of the procedure.
        procedure: String,
        /// The place of the procedure's declaration.
        span: Span,
        /// The fault of the table.
        error: SchemaError,
    },
    /// The schema forbids the procedures, or no sound plan can be derived: each reason with its place.
    Refused(Refusals),
    /// The set cannot be chopped.
    Chop(ChopError),
    /// A procedure of this name is a function, and cannot be removed.
    Function {
        /// The name of the procedure.
        name: String,
    },
    /// Registration timed out after 1 s. The set cannot change while a chain of pieces runs. Procedures cannot start to
    /// run in pieces while transactions are open.
    Busy,
    /// The process was forked from the one that opened the database.
    Forked,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Exists { name, first, second } if first == second => {
                write!(f, "{second}: procedure {name:?} is registered already")
            }
            RegisterError::Exists { name, first, second } => {
                write!(f, "{second}: there is a procedure {name:?} already, declared at {first}; rename one")
            }
            RegisterError::Schema { procedure, span, error } => write!(f, "{span}: procedure `{procedure}`: {error}"),
            RegisterError::Refused(refusals) => refusals.fmt(f),
            RegisterError::Chop(error) => error.fmt(f),
            RegisterError::Function { name } => {
                write!(
                    f,
                    "procedure {name:?} is a function of the application: only those that are data can be removed"
                )
            }
            RegisterError::Forked => write!(f, "nothing was registered: {FORKED}"),
            RegisterError::Busy => f.write_str(
                "open transactions did not end within 1 s; register when none is open and no procedure is running",
            ),
        }
    }
}

impl std::error::Error for RegisterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RegisterError::Schema { error, .. } => Some(error),
            RegisterError::Refused(refusals) => Some(refusals),
            RegisterError::Chop(error) => Some(error),
            RegisterError::Exists { .. }
            | RegisterError::Function { .. }
            | RegisterError::Busy
            | RegisterError::Forked => None,
        }
    }
}

impl Database {
    /// Registers procedures: finds their tables, which must exist, and analyses them together with those registered
    /// before. Sessions can then call them.
    ///
    /// ```
    /// # use seriatim::{Abort, Database, Table, Tx, procedure, procedures};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # #[procedure]
    /// # fn count(tx: &Tx, id: u32) -> Result<u64, Abort> {
    /// #     let n = tx.update::<Counter>(id, |counter| { counter.n += 1; counter.n })?;
    /// #     Ok(n)
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::in_memory()?;
    /// let refused = db.register(procedures![count]).expect_err("its table is not there yet");
    /// assert!(refused.to_string().contains("counter"), "{refused}");
    /// db.create::<Counter>()?;
    /// assert_eq!(db.register(procedures![count])?.added, ["count"]);
    /// assert!(db.register(procedures![count]).is_err(), "the name is taken");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A name that is taken; a table that is missing or declared differently; a body that the analysis refuses. Each
    /// error gives the place in the source. Nothing is registered then.
    pub fn register(&self, procedures: Procedures) -> Result<Registration, RegisterError> {
        self.register_set(&procedures, false)
    }

    /// As [`Database::register`]. A procedure that is data ([`Procedures::with_representation`]) takes the place of one
    /// that is data and has its name. Calls that have begun end as they began.
    ///
    /// # Errors
    /// As [`Database::register`]. A name of a procedure that is a function stays taken. [`RegisterError::Busy`] where
    /// procedures run in pieces, or under a protocol that publishes in pieces, if transactions stay open.
    pub fn register_or_replace(&self, procedures: Procedures) -> Result<Registration, RegisterError> {
        self.register_set(&procedures, true)
    }

    /// Removes a registered procedure that is data. Returns whether there was one of this name. Calls that have begun
    /// end as they began.
    ///
    /// # Errors
    /// [`RegisterError::Function`] if it is a function; [`RegisterError::Busy`] as for
    /// [`Database::register_or_replace`].
    pub fn unregister(&self, name: &str) -> Result<bool, RegisterError> {
        if self.engine().is_forked() {
            return Err(RegisterError::Forked);
        }
        let _unchanged = self.engine().changing().map_err(|_| RegisterError::Busy)?;
        let _alone = self.engine().gate().map(Gate::other).transpose().map_err(|_| RegisterError::Busy)?;
        let mut registry = self.procedures().write().unwrap_or_else(PoisonError::into_inner);
        let mut entries = registry.entries.clone();
        let Some(at) = entries.iter().position(|entry| entry.name == name) else { return Ok(false) };
        if !entries[at].registered.is_data() {
            return Err(RegisterError::Function { name: name.to_owned() });
        }
        let removed = [entries.remove(at)];
        self.install_without(&mut registry, entries, &removed).map(|_| true)
    }

    fn register_set(&self, procedures: &Procedures, replaces: bool) -> Result<Registration, RegisterError> {
        if self.engine().is_forked() {
            return Err(RegisterError::Forked);
        }
        procedures.declared.iter().try_for_each(|procedure| procedure.check()).map_err(RegisterError::Refused)?;
        let whole = procedures.declared.iter().filter(|procedure| !procedure.schedules());
        let whole = whole.map(|procedure| procedure.name().to_owned()).collect();
        // Handles are opened before, as that may change a table. They are those of the tables if no other change came
        // between.
        let changing = || self.engine().changing().map_err(|_| RegisterError::Busy);
        let mut number = changing()?.number();
        let (resolved, _unchanged) = loop {
            let schema = self.engine().schema();
            let resolved = procedures.declared.iter().map(|procedure| self.resolve(procedure, None, &schema));
            let resolved = resolved.collect::<Result<Vec<_>, _>>()?;
            let changing = changing()?;
            // The turn that told the number counts.
            if changing.number() == number + 1 {
                break (resolved, changing);
            }
            number = changing.number();
        };
        let _alone = self.engine().gate().map(Gate::other).transpose().map_err(|_| RegisterError::Busy)?;
        let mut registry = self.procedures().write().unwrap_or_else(PoisonError::into_inner);
        let mut entries = registry.entries.clone();
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for entry in resolved {
            let entry = Arc::new(entry);
            let Some(known) = entries.iter_mut().find(|known| known.name == entry.name) else {
                added.push(Arc::clone(&entry));
                entries.push(entry);
                continue;
            };
            let is_first = registry.entries.iter().any(|registered| Arc::ptr_eq(registered, known));
            if !(replaces && is_first && known.registered.is_data() && entry.registered.is_data()) {
                let (first, second) = (known.declaration.span.clone(), entry.declaration.span.clone());
                return Err(RegisterError::Exists { name: entry.name.to_owned(), first, second });
            }
            added.push(Arc::clone(&entry));
            removed.push(std::mem::replace(known, entry));
        }
        let installed = self.install_without(&mut registry, entries, &removed)?;
        let has_partitions = self.protocol().capabilities.partitions;
        let (replaced, new) =
            added.iter().partition::<Vec<_>, _>(|entry| removed.iter().any(|removed| removed.name == entry.name));
        let names = |entries: Vec<&Arc<Entry>>| entries.into_iter().map(|entry| entry.name.to_owned()).collect();
        Ok(Registration {
            added: names(new),
            replaced: names(replaced),
            whole,
            everywhere: added.iter().filter(|_| has_partitions).filter_map(|entry| entry.everywhere()).collect(),
            ..installed
        })
    }

    /// As [`Database::install`]. `removed` are not among them: their calls are refused from here on. Where others rely
    /// on the set, those that have begun end before it changes.
    fn install_without(
        &self,
        registry: &mut Registry,
        entries: Vec<Arc<Entry>>,
        removed: &[Arc<Entry>],
    ) -> Result<Registration, RegisterError> {
        let mark = |is: bool| removed.iter().for_each(|entry| entry.is_replaced.store(is, Ordering::Release));
        if !removed.is_empty() && !self.engine().between_calls(&|| mark(true)) {
            return Err(RegisterError::Busy);
        }
        let installed = self.install(registry, entries);
        if installed.is_err() {
            mark(false);
        }
        installed
    }

    /// Makes these the registered procedures: analyses them as one set. Returns whose pieces changed, and who runs
    /// whole.
    fn install(&self, registry: &mut Registry, entries: Vec<Arc<Entry>>) -> Result<Registration, RegisterError> {
        let chopping =
            analysis::chop(entries.iter().map(|entry| &*entry.plan), Options::PIECES).map_err(RegisterError::Chop)?;
        let pieces =
            |chopping: &Chopping, name: &str| chopping.procedure(name).map_or(0, |chopped| chopped.pieces.len());
        let changed = registry.chopping.iter().flat_map(|before| {
            let names = before.changed(&chopping).into_iter().filter(|name| before.procedure(name).is_some());
            names.map(|name| Repieced {
                before: pieces(before, &name),
                after: pieces(&chopping, &name),
                procedure: name.to_string(),
            })
        });
        let mut registration = Registration { changed: changed.collect(), ..Registration::default() };
        let mut passes = Vec::new();
        for entry in &entries {
            let (cut, reason) = entry.cut(&chopping);
            passes.push(Arc::new(Passes::new(cut.into())));
            if let Some(reason) = reason.filter(|_| entry.strategy == CallStrategy::Pieces) {
                registration.uncut.push(Uncut { procedure: entry.name.to_owned(), reason });
            }
        }
        if passes.iter().any(|passes| passes.count() > 1) && !self.engine().arm_gate() {
            return Err(RegisterError::Busy);
        }
        self.engine().agree(entries.iter().filter(|entry| !entry.snapshot).map(|entry| &*entry.plan));
        registry.passes = passes;
        (registry.entries, registry.chopping) = (entries, Some(chopping));
        Ok(registration)
    }

    /// Whether registered procedures allow these changes of these tables.
    ///
    /// # Errors
    /// [`SchemaError::InUse`].
    pub(crate) fn check_procedures(&self, tables: Schema, changes: &[TableChange]) -> Result<(), SchemaError> {
        match self.objection(tables, changes) {
            None => Ok(()),
            Some((table, procedure, problem)) => Err(SchemaError::InUse { table, procedure, problem }),
        }
    }

    /// Why a registered procedure does not allow these changes of tables, if so: its table, its name, and the reason.
    fn objection(&self, mut after: Schema, changes: &[TableChange]) -> Option<(String, String, String)> {
        // Names last: tables may swap theirs.
        for change in changes {
            match change {
                TableChange::Evolve(evolution) => after.remove(&evolution.before().name),
                TableChange::Drop(name) => after.remove(name),
                _ => {}
            }
        }
        for change in changes {
            match change {
                TableChange::Create(definition) => after.put(definition.clone()),
                TableChange::Evolve(evolution) => after.put(evolution.after().clone()),
                _ => {}
            }
        }
        for entry in self.entries() {
            let uses = |table: &str| entry.plan.tables.iter().any(|used| &*used.name == table);
            let object = |table: &str, problem: String| Some((table.to_owned(), entry.name.to_owned(), problem));
            for change in changes {
                match change {
                    TableChange::Drop(name) if uses(name) => return object(name, "it would be gone".to_owned()),
                    TableChange::Evolve(evolution) if uses(&evolution.before().name) => {
                        let (before, now) = (evolution.before(), evolution.after());
                        let has_its_name = |(was, is): (&ColumnDef, &ColumnDef)| was.name == is.name;
                        let keeps_names =
                            before.name == now.name && before.columns.iter().zip(&now.columns).all(has_its_name);
                        if !evolution.keeps_handles() || !keeps_names {
                            let problem = format!("would not find what it is compiled for: {evolution}");
                            return object(&before.name, problem);
                        }
                        if let Err(refusals) = analysis::analyse(&entry.declaration, &after) {
                            return object(&before.name, refusals.to_string());
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// Analyses the registered procedures again, after a change of tables.
    pub(crate) fn analyse_again(&self) -> Result<(), RegisterError> {
        let schema = self.engine().schema();
        let mut registry = self.procedures().write().unwrap_or_else(PoisonError::into_inner);
        if registry.entries.is_empty() {
            return Ok(());
        }
        let entries =
            registry.entries.iter().map(|entry| self.resolve(&entry.registered, Some(entry), &schema).map(Arc::new));
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        let before = registry.entries.clone();
        self.install(&mut registry, entries)?;
        before.iter().for_each(|entry| entry.is_replaced.store(true, Ordering::Release));
        Ok(())
    }

    /// Cuts the registered set into pieces under these assumptions, to be printed and reviewed. How procedures run in
    /// pieces ([`ExecutionMode::Pieces`]) does not depend on it.
    ///
    /// ```
    /// # use seriatim::procedure::plan::Options;
    /// # use seriatim::{Abort, Database, Table, Tx, procedure, procedures};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # #[procedure]
    /// # fn count(tx: &Tx, id: u32) -> Result<u64, Abort> {
    /// #     let n = tx.update::<Counter>(id, |counter| { counter.n += 1; counter.n })?;
    /// #     Ok(n)
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let counters = db.create::<Counter>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// # db.register(procedures![count])?;
    /// let chopping = db.chopping(Options::DEFAULT)?;
    /// assert_eq!(chopping.procedures[0].pieces.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The set cannot be chopped.
    pub fn chopping(&self, options: Options) -> Result<Chopping, ChopError> {
        analysis::chop(self.entries().iter().map(|entry| &*entry.plan), options)
    }

    /// The registered procedures, in order of registration; none in a fork, where another thread may have the lock for
    /// ever.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        match self.engine().is_forked() {
            true => Vec::new(),
            false => self.procedures().read().unwrap_or_else(PoisonError::into_inner).entries.clone(),
        }
    }

    /// Returns the names of the registered procedures, in order of registration.
    pub fn procedure_names(&self) -> Vec<String> {
        self.entries().iter().map(|entry| entry.name.to_owned()).collect()
    }

    /// Returns the analysis of a registered procedure: data that can be displayed.
    ///
    /// ```
    /// # use seriatim::{Abort, Database, Table, Tx, procedure, procedures};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # #[procedure]
    /// # fn count(tx: &Tx, id: u32) -> Result<u64, Abort> {
    /// #     let n = tx.update::<Counter>(id, |counter| { counter.n += 1; counter.n })?;
    /// #     Ok(n)
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let counters = db.create::<Counter>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// # db.register(procedures![count])?;
    /// let plan = db.plan("count").expect("it is registered");
    /// assert!(!plan.is_read_only() && plan.operations.len() == 1);
    /// let fragments = db.fragments("count").expect("it is registered");
    /// assert_eq!(fragments.fragments.len(), 1, "{plan}\n{fragments}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn plan(&self, procedure: &str) -> Option<Arc<Plan>> {
        self.entries().iter().find(|entry| entry.name == procedure).map(|entry| Arc::clone(&entry.plan))
    }

    /// Returns a registered procedure divided by partition: what
    /// [`show::procedure`](crate::procedure::show::procedure) prints beside its plan.
    pub fn fragments(&self, procedure: &str) -> Option<Fragments> {
        let plan = self.plan(procedure)?;
        Some(analysis::fragments(&plan, &self.engine().schema()))
    }

    /// Returns, as text, which operations of a registered procedure a repair runs again. `seriatim plan` prints it.
    /// It does not depend on the protocol.
    pub fn repairs(&self, procedure: &str) -> Option<String> {
        let entries = self.entries();
        let entry = entries.iter().find(|entry| entry.name == procedure)?;
        Some(show::repairs(&entry.plan, entry.repairs.followers(), entry.follows_schedule))
    }

    fn resolve(
        &self,
        procedure: &Arc<dyn Registered>,
        known: Option<&Entry>,
        schema: &Schema,
    ) -> Result<Entry, RegisterError> {
        let declaration = procedure.declaration();
        let (plan, steps) = analysis::analyse(&declaration, schema).map_err(RegisterError::Refused)?;
        let columns: Box<[ColumnUse]> = (0..plan.operations.len()).map(|at| columns(&plan, at)).collect();
        // Handles of a changed table stay valid: see `Database::objection`. To open one again could change a table.
        let handles = match known {
            Some(known) => Ok(procedure.handles_again(self, &known.handles, &columns)),
            None => procedure.handles(self, &columns),
        };
        let handles = handles.map_err(|error| RegisterError::Schema {
            procedure: procedure.name().to_owned(),
            span: declaration.span.clone(),
            error,
        })?;
        let settings = self.engine().settings();
        let execution_mode = settings.execution_mode;
        let snapshot =
            plan.takes_snapshot() && settings.snapshots && takes_snapshots(execution_mode, self.engine().freshness());
        let checked = settings.check_plans;
        let scheduled = !snapshot && procedure.schedules();
        let strategy = match execution_mode {
            ExecutionMode::Pieces if scheduled => CallStrategy::Pieces,
            _ if scheduled && self.protocol().capabilities.repair && !plan.follows_references() => {
                CallStrategy::Repaired
            }
            _ if checked => CallStrategy::Checked,
            _ => CallStrategy::Straight,
        };
        let tells_footprint = !snapshot && tells_footprint(&plan);
        let followers = steps
            .followers(&plan, |table| schema.table(&plan.tables[table].name).is_none_or(|table| table.cluster > 0));
        let steps_of = plan.operations.iter().map(|operation| StepId(operation.step as u16));
        let option = |wanted: &Knob, otherwise| {
            let mut options = self.engine().protocol_options();
            options.find(|(knob, _)| knob.name == wanted.name).map_or(otherwise, |(_, value)| value as u32)
        };
        // `REPAIR_ALL` repairs all operations, so no share is too large.
        let share_max = if option(&REPAIR_ALL, 0) == 1 { 100 } else { option(&REPAIR_SHARE_MAX, 100) };
        let repairs = Repairs::new(steps_of.zip(followers)).up_to(share_max);
        let repair_from = option(&REPAIR_FROM, 0);
        let number = |of: &Number| match *of {
            Number::OfSequence(name) => self.engine().sequence(name),
            Number::OfTable(name) => {
                let table = self.open_dyn(name)?;
                self.engine().identity_of(&table).ok_or_else(|| SchemaError::Unknown(name.to_owned()))
            }
        };
        let numbers = procedure.numbers().iter().map(number).collect::<Result<Vec<_>, _>>();
        let numbers = numbers.map_err(|error| RegisterError::Schema {
            procedure: procedure.name().to_owned(),
            span: declaration.span.clone(),
            error,
        })?;
        let reach = Reach::new(&plan, &declaration, &procedure.told(), self.engine());
        let plan = Arc::new(plan);
        Ok(Entry {
            name: procedure.name(),
            id: procedure.id(),
            handles,
            numbers,
            snapshot,
            strategy,
            checked,
            tells_footprint,
            reach,
            repairs,
            repair_from,
            follows_schedule: procedure.schedules(),
            declaration,
            steps,
            plan,
            columns,
            registered: Arc::clone(procedure),
            is_replaced: AtomicBool::new(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;

    #[derive(seriatim_macros::Table)]
    #[table(name = "counter", key(id), hash, crate = "seriatim_catalog")]
    struct Counter {
        id: u32,
        count: u32,
    }

    #[derive(seriatim_macros::Table)]
    #[table(name = "label", key(id), hash, crate = "seriatim_catalog")]
    struct Label {
        id: u32,
        text: u32,
    }

    #[crate::procedure]
    fn count_until(tx: &crate::Tx, ids: &[u32]) -> Result<u32, crate::Abort> {
        tx.update::<Counter>(0, |counter| counter.count += 1)?;
        let mut last = 0u32;
        for id in ids {
            let label = tx.get::<Label>(*id)?;
            let Some(label) = label else { break };
            last = label.text;
        }
        if last == 0 {
            return Err(tx.abort("no label"));
        }
        Ok(last)
    }

    #[test]
    fn a_fork_does_not_wait_for_the_registry() {
        let db = Database::builder().open().expect("in memory");
        db.create::<Counter>().expect("a valid table");
        db.create::<Label>().expect("a valid table");
        db.register(crate::procedures![count_until]).expect("a sound set");
        let (executor, _bodies) = crate::Executor::apart(&db, 1).expect("valid");
        let registry = db.procedures().write().expect("no panic");
        let mut all = Some((db.clone(), executor));
        seriatim_base::process::in_fork(|| {
            let called = db.session().call(count_until, &Vec::new());
            assert!(matches!(called, Err(crate::TransactError::Forked)), "{called:?}");
            let called = all.as_ref().map(|(_, executor)| executor.call(count_until, Vec::new()).wait());
            assert!(matches!(called, Some(Err(crate::TransactError::Forked))), "{called:?}");
            assert!(matches!(db.register(crate::procedures![count_until]), Err(RegisterError::Forked)));
            assert!(db.procedure_names().is_empty() && db.plan("count_until").is_none());
            drop(all.take());
        });
        drop(registry);
    }

    #[test]
    fn a_chopping_that_would_fail_after_its_first_piece_is_not_executed() {
        let db = Database::builder().execution_mode(ExecutionMode::Pieces).open().expect("a valid setting");
        db.create::<Counter>().expect("a valid table");
        db.create::<Label>().expect("a valid table");
        let registered = db.register(crate::procedures![count_until]).expect("a sound set");
        assert_eq!(registered.uncut, [], "its plan does not ask for it");
        let registry = db.procedures().read().expect("no panic");
        let entry = &registry.entries[0];
        // A plan in which flow analysis has missed what decides the abort.
        let mut plan = (*entry.plan).clone();
        plan.failures.iter_mut().for_each(|failure| failure.decided_by.retain(|by| *by == 0));
        let chopping = analysis::chop([&plan], Options::PIECES).expect("a set");
        let asked = entry.steps.passes(&chopping.procedures[0]);
        assert!(asked.iter().any(|pass| *pass > 0), "{chopping}");
        let (passes, reason) = entry.cut(&chopping);
        assert!(passes.iter().all(|pass| *pass == 0));
        let reason = reason.expect("it is told");
        assert!(reason.contains("an abort, decided by #1 in a later piece"), "{reason}");
    }

    #[crate::procedure]
    fn look(tx: &crate::Tx, id: u32) -> Result<u32, crate::Abort> {
        let counter = tx.require::<Counter>(id)?;
        Ok(counter.count)
    }

    #[test]
    fn a_procedure_that_only_reads_runs_on_a_snapshot_unless_that_is_switched_off() {
        for (wanted, mode) in [(None, Mode::ReadOnly), (Some(true), Mode::ReadOnly), (Some(false), Mode::ReadWrite)] {
            let builder = Database::builder().protocol("dbx");
            let builder = wanted.into_iter().fold(builder, Builder::procedure_snapshots);
            let db = builder.open().expect("a valid setting");
            db.create::<Counter>().expect("a valid table");
            db.register(crate::procedures![look]).expect("a sound set");
            assert_eq!(db.procedures().read().expect("no panic").entries[0].mode(), mode, "{wanted:?}");
        }
    }

    #[test]
    fn beside_chains_only_snapshots_of_the_present_are_taken() {
        assert!(takes_snapshots(ExecutionMode::Pieces, Freshness::Latest));
        assert!(!takes_snapshots(ExecutionMode::Pieces, Freshness::Past));
        assert!(takes_snapshots(ExecutionMode::Whole, Freshness::Past));
    }
}
