//! Running registered procedures.
//!
//! A call costs a look into the session's own list of procedures over what the same closure costs: no lock, no counter that
//! others write, no allocation. The registry is asked at a session's first call of a procedure only.

use std::any::TypeId;
use std::sync::{Arc, PoisonError, RwLock};

use seriatim_engine::procedure::execution::Steps;
use seriatim_engine::procedure::in_procedure;
use seriatim_engine::procedure::reach;
use seriatim_engine::procedure::repair::{Conflicts, Met};
use seriatim_engine::{Body, Committed, Decided, Detached, Operations, Origin, Pending, Runner, Step, with_value};
use seriatim_txn::{Mode, PartitionSet, Partitions};

use super::check::{self, PlanChecker};
use super::registry::{CallStrategy, Entry, Registry};
use super::schedule::run_with_checker;
use super::{Data, Declared, EvaluationError, Schedule, Value};
use crate::{Abort, Session, TransactError, Tx};

/// The procedures a session has called, by type.
#[derive(Default)]
pub(crate) struct Called {
    entries: Vec<Arc<Entry>>,
    /// Of each: whether its calls met conflicts lately.
    conflicts: Vec<Conflicts>,
}

impl Called {
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> &Entry {
        &self.entries[at]
    }

    #[inline]
    fn find(&self, id: TypeId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == id)
    }
}

impl Session {
    /// Runs a registered procedure as one serializable transaction and commits. As [`Session::transact`], it is run again when
    /// other transactions were in the way. A procedure that only reads sees a snapshot, where the protocol gives them, unless
    /// it is declared `#[procedure(latest)]`.
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
    /// db.register(procedures![count])?;
    /// let committed = session.call(count, &7)?;
    /// assert_eq!((committed.value, committed.attempts), (42, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransactError::UnknownProcedure`] if it is not registered; the procedure's own abort; a missing or duplicate row,
    /// overflow; a conflict that outlasted the retries.
    #[inline]
    pub fn call<P: Declared>(
        &mut self,
        _procedure: P,
        arguments: &P::Arguments,
    ) -> Result<Committed<P::Output>, TransactError> {
        let mut result = self.call_declared::<P>(arguments);
        if self.runner.tx.is_overtaken() {
            result = self.call_declared::<P>(arguments);
        }
        self.runner.answer(&mut result);
        result
    }

    /// As [`Session::call`], without waiting until the result is durable: the next transaction can begin meanwhile.
    #[inline]
    pub fn submit_call<P: Declared>(&mut self, _procedure: P, arguments: &P::Arguments) -> Pending<P::Output> {
        let result = self.call_declared::<P>(arguments);
        self.runner.pending(result)
    }

    #[inline]
    pub(crate) fn call_declared<P: Declared>(
        &mut self,
        arguments: &P::Arguments,
    ) -> Result<Committed<P::Output>, TransactError> {
        self.call_in::<P>(arguments, None)
    }

    /// As [`Session::call_declared`], in these partitions, if they are known already and the procedure is still the one they were told by.
    #[inline]
    fn call_in<P: Declared>(
        &mut self,
        arguments: &P::Arguments,
        known: Option<&InPartitions>,
    ) -> Result<Committed<P::Output>, TransactError> {
        // Whatever becomes of this call, it does not depend on the transaction before.
        self.runner.tx.renew();
        let at = self.find_declared::<P>()?;
        let Session { runner, called, procedures, .. } = self;
        runner.tx.name_procedure(P::NAME);
        let (entry, conflicts) = (&*called.entries[at], &mut called.conflicts[at]);
        let body = Straight::<P> { handles: entry.handles::<P>(), arguments };
        if let Some(partitions) = runner.partitions()
            && let Some(owned) = match known {
                Some(known) if std::ptr::eq(entry, &*known.entry) => Some(Ok(known.owned)),
                _ => entry.owned::<P>(arguments, partitions),
            }
        {
            runner.reach(owned?);
        }
        let keeps = conflicts.are_frequent() || entry.checked;
        let mut result = match entry.strategy {
            CallStrategy::Checked => check::run_checked::<P>(runner, entry, arguments),
            CallStrategy::Pieces => run_scheduled::<P>(runner, procedures, entry, arguments),
            CallStrategy::Repaired if keeps => run_scheduled::<P>(runner, procedures, entry, arguments),
            // The body is compiled here, once for each procedure.
            CallStrategy::Straight | CallStrategy::Repaired => {
                runner.run(entry.mode(), Origin::Procedure, |core| core.run_body(&body))
            }
        };
        if entry.strategy == CallStrategy::Repaired {
            let again = result.as_ref().map_or_else(TransactError::is_retryable, |committed| committed.attempts > 1);
            let met = match runner.tx.take_met() {
                Met::Nothing if again => Met::Conflict,
                met => met,
            };
            conflicts.called(entry.repair_from, met);
        }
        if let Err(error) = &mut result {
            in_procedure(error, P::NAME);
        }
        #[cfg(feature = "test-support")]
        self.tell::<P>(arguments, &result);
        result
    }

    /// A step of a call whose thread does not wait for the decision. What does not run from top to bottom runs whole in one step, in
    /// which its thread may have to `wait`.
    pub(crate) fn step_declared<P: Declared>(
        &mut self,
        _: P,
        arguments: &P::Arguments,
        known: Option<&InPartitions>,
        detached: &mut Detached<P::Output>,
        decided: Option<Decided>,
        wait: bool,
    ) -> Step<P::Output> {
        let at = match self.find_declared::<P>() {
            Ok(at) => at,
            Err(error) => return Step::Done(Err(error)),
        };
        let Session { runner, called, .. } = self;
        let entry = called.entry(at);
        // What is held is not repaired.
        let is_straight = match entry.strategy {
            CallStrategy::Straight => !runner.runs_whole(),
            CallStrategy::Repaired => !entry.checked,
            CallStrategy::Checked | CallStrategy::Pieces => false,
        };
        if !is_straight || entry.mode() != Mode::ReadWrite {
            if !wait {
                return Step::Stalled;
            }
            // As `call`, but that the thread does not wait until the result may leave: the executor withholds it.
            let mut result = self.call_in::<P>(arguments, known);
            if self.runner.tx.is_overtaken() {
                result = self.call_in::<P>(arguments, known);
            }
            return Step::Done(result);
        }
        runner.tx.name_procedure(P::NAME);
        let handles = entry.handles::<P>();
        let body = Straight::<P> { handles, arguments };
        let mut step = detached.step(runner, decided, wait, |core| core.run_body(&body));
        if let Step::Done(Err(error)) = &mut step {
            in_procedure(error, P::NAME);
        }
        #[cfg(feature = "test-support")]
        if let Step::Done(result) = &step {
            self.tell::<P>(arguments, result);
        }
        step
    }

    /// Runs the registered procedure of this name on arguments whose types are checked now: one value if it has one parameter,
    /// else a tuple of them.
    ///
    /// ```
    /// # use seriatim::procedure::{Data, Value};
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
    /// let committed = session.call_by_name("count", &7u32.to_value())?;
    /// assert_eq!(committed.value, 42u64.to_value());
    /// let error = session.call_by_name("count", &Value::Text("seven".to_owned()));
    /// assert!(error.is_err_and(|error| error.to_string().contains("wrong arguments for procedure count")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Session::call`]; [`TransactError::Arguments`], saying what was given and what would be right.
    pub fn call_by_name(&mut self, name: &str, arguments: &Value) -> Result<Committed<Value>, TransactError> {
        let mut result = self.call_named(name, arguments);
        if self.runner.tx.is_overtaken() {
            result = self.call_named(name, arguments);
        }
        self.runner.answer(&mut result);
        result
    }

    /// As [`Session::call_by_name`], without waiting until the result is durable: the next transaction can begin meanwhile.
    pub fn submit_by_name(&mut self, name: &str, arguments: &Value) -> Pending<Value> {
        let result = self.call_named(name, arguments);
        self.runner.pending(result)
    }

    fn call_named(&mut self, name: &str, arguments: &Value) -> Result<Committed<Value>, TransactError> {
        self.runner.tx.renew();
        let at = self.find_by_name(name)?;
        let call = self.called.entries[at].call_by_name;
        call(self, arguments)
    }

    /// Where the session keeps the procedure of this name.
    pub(crate) fn find_by_name(&mut self, name: &str) -> Result<usize, TransactError> {
        match self.called.entries.iter().position(|entry| entry.name == name) {
            Some(at) => Ok(at),
            None => self.look_up(name, &|entry| entry.name == name),
        }
    }

    /// Where the session keeps a procedure.
    #[inline]
    pub(crate) fn find_declared<P: Declared>(&mut self) -> Result<usize, TransactError> {
        match self.called.find(TypeId::of::<P>()) {
            Some(at) => Ok(at),
            None => self.look_up(P::NAME, &|entry| entry.id == TypeId::of::<P>()),
        }
    }

    /// Finds a procedure in the registry and keeps it; where.
    #[cold]
    fn look_up(&mut self, name: &str, is_it: &dyn Fn(&Entry) -> bool) -> Result<usize, TransactError> {
        let registry = self.procedures.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = registry.entries.iter().find(|entry| is_it(entry)).cloned() else {
            return Err(TransactError::UnknownProcedure { name: name.to_owned(), known: registry.names() });
        };
        drop(registry);
        self.called.conflicts.push(Conflicts::new(entry.repair_from));
        self.called.entries.push(entry);
        Ok(self.called.entries.len() - 1)
    }
}

/// The partitions of a call, by the procedure as it was registered when they were computed.
pub(crate) struct InPartitions {
    pub(crate) entry: Arc<Entry>,
    pub(crate) owned: PartitionSet,
}

impl Entry {
    /// The partitions that a call owns while it runs; none of its own where it runs in parts.
    #[inline]
    pub(crate) fn owned<P: Declared>(
        &self,
        arguments: &P::Arguments,
        partitions: &Partitions,
    ) -> Option<Result<PartitionSet, TransactError>> {
        let is_whole = matches!(self.strategy, CallStrategy::Straight | CallStrategy::Checked);
        is_whole.then(|| self.reach.of(&Straight::<P> { handles: self.handles::<P>(), arguments }, partitions))
    }
}

/// A procedure's body with what it is called with.
pub(crate) struct Straight<'c, P: Declared> {
    pub(crate) handles: &'c P::Handles,
    pub(crate) arguments: &'c P::Arguments,
}

impl<P: Declared> Body for Straight<'_, P> {
    type Output = P::Output;

    #[inline(always)]
    fn run<O: Operations>(&self, operations: &O) -> Result<P::Output, Abort> {
        P::straight(operations, self.handles, self.arguments)
    }
}

impl<P: Declared> reach::Arguments for Straight<'_, P> {
    fn part(&self, path: &[Arc<str>]) -> Option<Value> {
        self.arguments.part(path)
    }

    fn visit(&self, visit: &mut reach::Visit<'_>) -> bool {
        P::footprint(self.handles, self.arguments, &mut |touch| touch.bounds(visit))
    }
}

/// Runs a procedure as a schedule says.
#[cold]
fn run_scheduled<P: Declared>(
    runner: &mut Runner,
    procedures: &RwLock<Registry>,
    entry: &Entry,
    arguments: &P::Arguments,
) -> Result<Committed<P::Output>, TransactError> {
    let handles = entry.handles::<P>();
    let checker = entry.checked.then(|| PlanChecker::of::<P>(entry, arguments));
    let mut value = None;
    let committed = follow_schedule(runner, procedures, entry, checker.as_ref(), &mut |tx, schedule| {
        value = Some(P::scheduled(tx, handles, arguments, schedule)?);
        Ok(())
    })?;
    Ok(with_value(committed, value))
}

fn follow_schedule(
    runner: &mut Runner,
    procedures: &RwLock<Registry>,
    entry: &Entry,
    checker: Option<&PlanChecker<'_>>,
    body: &mut dyn FnMut(&mut Tx, &mut Schedule<'_>) -> Result<(), Abort>,
) -> Result<Committed<()>, TransactError> {
    if entry.strategy == CallStrategy::Repaired {
        return run_with_checker(runner, Steps::Whole(Some(&entry.repairs)), checker, body);
    }
    let gate = runner.tx.gate();
    let passes = || {
        let registry = procedures.read().unwrap_or_else(PoisonError::into_inner);
        registry.passes_of(entry).filter(|passes| passes.count() > 1)
    };
    // In one pass it is a transaction of the set, whatever the pieces of the others are, or will be.
    let chain = match (passes(), &gate) {
        (Some(_), Some(gate)) => Some(gate.chain()?),
        _ => None,
    };
    // Registering cannot change the pieces before the end of the chain; but it may have, before its beginning.
    let passes = chain.as_ref().and_then(|_| passes());
    let steps = passes.as_deref().map_or(Steps::Whole(None), Steps::Pieces);
    run_with_checker(runner, steps, checker, body)
}

/// Calls a procedure on dynamic values.
pub(crate) fn by_name<P: Declared>(
    session: &mut Session,
    arguments: &Value,
) -> Result<Committed<Value>, TransactError> {
    let arguments = P::Arguments::from_value(arguments).map_err(|error| unfit::<P>(&error))?;
    session.call_declared::<P>(&arguments).map(to_value)
}

/// The value as data.
pub(crate) fn to_value<R: Data>(committed: Committed<R>) -> Committed<Value> {
    let Committed { value, receipt, attempts } = committed;
    Committed { value: value.to_value(), receipt, attempts }
}

/// Arguments are not of the procedure's types.
pub(crate) fn unfit<P: Declared>(error: &EvaluationError) -> TransactError {
    TransactError::Arguments { procedure: P::NAME.to_owned(), problem: error.to_string() }
}
