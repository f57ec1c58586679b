//! Calls of registered procedures.
//!
//! Compared with the same closure, a call only adds a search in the session's own list of procedures. It takes no
//! lock, writes no shared counter and allocates nothing. The registry is searched only at a session's first call of a
//! procedure.

use std::any::TypeId;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use seriatim_engine::procedure::execution::Steps;
use seriatim_engine::procedure::in_procedure;
use seriatim_engine::procedure::reach;
use seriatim_engine::procedure::repair::{ConflictSeen, Conflicts};
use seriatim_engine::{Body, Committed, Decided, Detached, Operations, Origin, Pending, Runner, Step, with_value};
use seriatim_txn::{Mode, PartitionSet, Partitions};

use super::check::{self, PlanChecker};
use super::registry::{CallStrategy, Entry, Registry};
use super::schedule::run_with_checker;
use super::{Data, Declared, EvaluationError, Schedule, Value};
use crate::{Abort, Session, TransactError, Tx};

/// The procedures that a session has called, by type.
#[derive(Default)]
pub(crate) struct Called {
    entries: Vec<Arc<Entry>>,
    /// For each procedure: whether its calls had conflicts lately.
    conflicts: Vec<Conflicts>,
}

impl Called {
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> &Entry {
        &self.entries[at]
    }

    /// Whether the registry has another entry for the procedure at this place.
    #[inline]
    fn is_replaced(&self, at: usize) -> bool {
        // ORDERING: with a replaced entry a call that begins now is as valid as one that began before the change.
        self.entries[at].is_replaced.load(Ordering::Relaxed)
    }

    #[inline]
    fn find(&self, id: TypeId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == id)
    }
}

impl Session {
    /// Runs a registered procedure as one serializable transaction and commits. Like [`Session::transact`], it is
    /// retried after conflicts with other transactions. A read-only procedure reads a snapshot, where the protocol
    /// gives snapshots, unless it is declared `#[procedure(latest)]`.
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
    /// [`TransactError::UnknownProcedure`] if the procedure is not registered; its own abort; a missing or duplicate
    /// row; an overflow; a conflict that outlasted the retries.
    #[inline]
    pub fn call<P: Declared>(
        &mut self,
        _procedure: P,
        arguments: &P::Arguments,
    ) -> Result<Committed<P::Output>, TransactError> {
        let mut place = None;
        let arguments = self.complete::<P>(arguments, &mut place)?;
        let mut result = self.call_unless_overtaken::<P>(arguments, None);
        self.runner.answer(&mut result);
        result
    }

    /// As [`Session::call`], without waiting until the result is durable. The next transaction can begin meanwhile.
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
        let (mut output, mut place) = (None, None);
        let arguments = self.complete::<P>(arguments, &mut place)?;
        let committed = self.call_in::<P>(arguments, None, &mut output)?;
        Ok(with_value(committed, output))
    }

    /// All arguments of a call: with the numbers that it takes now. Its attempts have the same.
    #[inline]
    pub(crate) fn complete<'given, P: Declared>(
        &mut self,
        given: &'given P::Arguments,
        place: &'given mut Option<P::All>,
    ) -> Result<&'given P::All, TransactError> {
        match P::NUMBERS.is_empty() {
            true => P::complete(given, &mut |_| Ok(0), place),
            false => self.complete_numbers::<P>(given, place),
        }
    }

    #[cold]
    fn complete_numbers<'given, P: Declared>(
        &mut self,
        given: &'given P::Arguments,
        place: &'given mut Option<P::All>,
    ) -> Result<&'given P::All, TransactError> {
        let at = self.find_declared::<P>()?;
        let (entry, engine) = (Arc::clone(&self.called.entries[at]), self.runner.engine());
        P::complete(given, &mut |at| engine.next_number(&entry.numbers[at]), place)
    }

    /// As [`Session::call_declared`], in these partitions if they are known. It is called again if its result would
    /// have to wait for a slow disk.
    #[inline]
    fn call_unless_overtaken<P: Declared>(
        &mut self,
        arguments: &P::All,
        known: Option<&InPartitions>,
    ) -> Result<Committed<P::Output>, TransactError> {
        let mut output = None;
        let mut result = self.call_in::<P>(arguments, known, &mut output);
        if self.runner.tx.is_overtaken() {
            result = self.call_in::<P>(arguments, known, &mut output);
        }
        result.map(|committed| with_value(committed, output))
    }

    /// As [`Session::call_declared`], in these partitions if they are known. They are ignored if the procedure's
    /// registration has changed since. The result is left in `output`: a large one would be copied at every return.
    #[inline]
    fn call_in<P: Declared>(
        &mut self,
        arguments: &P::All,
        known: Option<&InPartitions>,
        output: &mut Option<P::Output>,
    ) -> Result<Committed<()>, TransactError> {
        // The outcome of this call does not depend on the previous transaction.
        self.runner.tx.renew();
        let at = self.find_declared::<P>()?;
        let Session { runner, called, procedures, .. } = self;
        runner.tx.name_procedure(P::NAME);
        let (entry, conflicts) = (&*called.entries[at], &mut called.conflicts[at]);
        let body = Straight::<P> { handles: entry.handles::<P>(), arguments };
        if let Some(partitions) = runner.partitions()
            && let Some(owned) = match known {
                Some(known) if std::ptr::eq(entry, &*known.entry) => Some(Ok(known.owned)),
                _ => entry.owned(&body, partitions),
            }
        {
            runner.reach(owned?);
        }
        let keeps = conflicts.are_frequent() || entry.checked;
        let mut result = match entry.strategy {
            CallStrategy::Checked => check::run_checked(runner, entry, &body, output),
            CallStrategy::Pieces => run_scheduled::<P>(runner, procedures, entry, arguments, output),
            CallStrategy::Repaired if keeps => run_scheduled::<P>(runner, procedures, entry, arguments, output),
            // The only place where the procedure's body is compiled.
            CallStrategy::Straight | CallStrategy::Repaired => {
                runner.run(entry.mode(), Origin::Procedure, |core| core.run_body(&body, output))
            }
        };
        if entry.strategy == CallStrategy::Repaired {
            let again = result.as_ref().map_or_else(TransactError::is_retryable, |committed| committed.attempts > 1);
            let seen = match runner.tx.take_conflict_seen() {
                ConflictSeen::None if again => ConflictSeen::Conflict,
                seen => seen,
            };
            conflicts.called(entry.repair_from, seen);
        }
        if let Err(error) = &mut result {
            in_procedure(error, P::NAME);
        }
        #[cfg(feature = "test-support")]
        self.record_value(
            P::NAME,
            arguments,
            result.as_ref().map(|_| output.as_ref().expect("a call leaves its result")),
        );
        result
    }

    /// A step of a call whose thread does not wait for the decision. A procedure that does not run from top to bottom
    /// runs whole in one step, if its thread may `wait`.
    pub(crate) fn step_declared<P: Declared, R: Data>(
        &mut self,
        (given, place): (&P::Arguments, &mut Option<P::All>),
        Stepping { known, detached, decided, wait }: Stepping<'_, R>,
        convert: impl Fn(P::Output) -> R,
    ) -> Step<R> {
        let at = match self.find_declared::<P>() {
            Ok(at) => at,
            Err(error) => return Step::Done(Err(error)),
        };
        if !P::NUMBERS.is_empty() && place.is_none() {
            // They may have to be reserved first.
            if !wait {
                return Step::Stalled;
            }
            if let Err(error) = self.complete::<P>(given, place) {
                return Step::Done(Err(error));
            }
        }
        let arguments = match P::NUMBERS.is_empty() {
            true => P::complete(given, &mut |_| Ok(0), place).ok(),
            false => place.as_ref(),
        };
        let arguments = arguments.expect("it was completed");
        let Session { runner, called, .. } = self;
        let entry = called.entry(at);
        // A transaction that waits for its decision cannot be repaired.
        let is_straight = match entry.strategy {
            CallStrategy::Straight => !runner.runs_whole(),
            CallStrategy::Repaired => !entry.checked,
            CallStrategy::Checked | CallStrategy::Pieces => false,
        };
        if !is_straight || entry.mode() != Mode::ReadWrite {
            if !wait {
                return Step::Stalled;
            }
            // As `call`, but the thread does not wait until the result is durable: the executor withholds it.
            let result = self.call_unless_overtaken::<P>(arguments, known);
            return Step::Done(result.map(|committed| self::convert(committed, convert)));
        }
        runner.tx.name_procedure(P::NAME);
        let handles = entry.handles::<P>();
        let body = Straight::<P> { handles, arguments };
        let mut step = detached.step(runner, decided, wait, |core| body.value(Tx::of(core)).map(&convert));
        if let Step::Done(Err(error)) = &mut step {
            in_procedure(error, P::NAME);
        }
        #[cfg(feature = "test-support")]
        if let Step::Done(result) = &step {
            self.record_value(P::NAME, arguments, result.as_ref().map(|committed| &committed.value));
        }
        step
    }

    /// Runs the registered procedure of this name. The types of the arguments are checked at run time: one value if
    /// there is one parameter, otherwise a tuple.
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
    /// As [`Session::call`]; [`TransactError::Arguments`], with the wrong argument and the type that was expected.
    pub fn call_by_name(&mut self, name: &str, arguments: &Value) -> Result<Committed<Value>, TransactError> {
        let mut result = self.call_named(name, arguments);
        if self.runner.tx.is_overtaken() {
            result = self.call_named(name, arguments);
        }
        self.runner.answer(&mut result);
        result
    }

    /// As [`Session::call_by_name`], without waiting until the result is durable. The next transaction can begin
    /// meanwhile.
    pub fn submit_by_name(&mut self, name: &str, arguments: &Value) -> Pending<Value> {
        let result = self.call_named(name, arguments);
        self.runner.pending(result)
    }

    pub(crate) fn call_named(&mut self, name: &str, arguments: &Value) -> Result<Committed<Value>, TransactError> {
        self.runner.tx.renew();
        let at = self.find_by_name(name)?;
        let call = self.called.entries[at].registered.call_by_name();
        call(self, at, arguments)
    }

    /// As [`Session::step_declared`], of the procedure of this name.
    pub(crate) fn step_named(&mut self, name: &str, arguments: &Value, stepping: Stepping<'_, Value>) -> Step<Value> {
        let called = self.called.entries.iter().position(|entry| entry.name == name);
        // An attempt that is decided ends, whatever has become of its procedure.
        let at = match called.filter(|_| stepping.decided.is_some()).map_or_else(|| self.find_by_name(name), Ok) {
            Ok(at) => at,
            Err(error) => return Step::Done(Err(error)),
        };
        let step = self.called.entries[at].registered.step_by_name();
        step(self, at, arguments, stepping)
    }

    /// The place of this procedure in the session's list.
    pub(crate) fn find_by_name(&mut self, name: &str) -> Result<usize, TransactError> {
        match self.called.entries.iter().position(|entry| entry.name == name) {
            Some(at) if !self.called.is_replaced(at) => Ok(at),
            _ => self.look_up(name, &|entry| entry.name == name),
        }
    }

    /// The place of a procedure in the session's list.
    #[inline]
    pub(crate) fn find_declared<P: Declared>(&mut self) -> Result<usize, TransactError> {
        match self.called.find(TypeId::of::<P>()) {
            Some(at) if !self.called.is_replaced(at) => Ok(at),
            _ => self.look_up(P::NAME, &|entry| entry.id == TypeId::of::<P>()),
        }
    }

    /// Finds a procedure in the registry, adds it to the session's list, and returns its place.
    #[cold]
    fn look_up(&mut self, name: &str, is_it: &dyn Fn(&Entry) -> bool) -> Result<usize, TransactError> {
        self.runner.check_process()?;
        let registry = self.procedures.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = registry.entries.iter().find(|entry| is_it(entry)).cloned() else {
            return Err(TransactError::UnknownProcedure { name: name.to_owned(), known: registry.names() });
        };
        drop(registry);
        let Called { entries, conflicts } = &mut self.called;
        let at = entries.iter().position(|known| known.name == entry.name).unwrap_or(entries.len());
        match entries.get_mut(at) {
            Some(replaced) => *replaced = entry,
            None => {
                conflicts.push(Conflicts::new(entry.repair_from));
                entries.push(entry);
            }
        }
        Ok(at)
    }
}

/// The partitions of a call, computed from the procedure as it was registered then.
pub(crate) struct InPartitions {
    pub(crate) entry: Arc<Entry>,
    pub(crate) owned: PartitionSet,
}

impl Entry {
    /// The partitions that a call owns while it runs; `None` if the procedure does not run whole.
    #[inline]
    pub(crate) fn owned(
        &self,
        arguments: &impl reach::Arguments,
        partitions: &Partitions,
    ) -> Option<Result<PartitionSet, TransactError>> {
        let is_whole = matches!(self.strategy, CallStrategy::Straight | CallStrategy::Checked);
        is_whole.then(|| self.reach.of(arguments, partitions))
    }
}

/// A procedure's body with its arguments.
pub(crate) struct Straight<'c, P: Declared> {
    pub(crate) handles: &'c P::Handles,
    pub(crate) arguments: &'c P::All,
}

impl<P: Declared> Body for Straight<'_, P> {
    type Output = P::Output;

    #[inline(always)]
    fn run<O: Operations>(&self, operations: &O, output: &mut Option<P::Output>) -> Result<(), Abort> {
        P::straight(operations, self.handles, self.arguments, output)
    }
}

impl<P: Declared> Straight<'_, P> {
    /// The body's result.
    ///
    /// # Errors
    /// As [`Declared::straight`].
    pub(crate) fn value(&self, tx: &Tx) -> Result<P::Output, Abort> {
        let mut output = None;
        tx.core.run_body(self, &mut output)?;
        Ok(output.expect("a body that succeeds leaves its result"))
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

/// Runs a procedure by its schedule.
#[cold]
fn run_scheduled<P: Declared>(
    runner: &mut Runner,
    procedures: &RwLock<Registry>,
    entry: &Entry,
    arguments: &P::All,
    output: &mut Option<P::Output>,
) -> Result<Committed<()>, TransactError> {
    let handles = entry.handles::<P>();
    let straight = Straight::<P> { handles, arguments };
    let checker = entry.checked.then(|| PlanChecker::new(entry, arguments.to_value(), &straight));
    follow_schedule(runner, procedures, entry, checker.as_ref(), &mut |tx, schedule| {
        *output = Some(P::scheduled(tx, handles, arguments, schedule)?);
        Ok(())
    })
}

fn follow_schedule(
    runner: &mut Runner,
    procedures: &RwLock<Registry>,
    entry: &Entry,
    checker: Option<&PlanChecker<'_>>,
    body: &mut dyn FnMut(&mut Tx, &mut Schedule<'_>) -> Result<(), Abort>,
) -> Result<Committed<()>, TransactError> {
    runner.check_process()?;
    if entry.strategy == CallStrategy::Repaired {
        return run_with_checker(runner, Steps::Whole(Some(&entry.repairs)), checker, body);
    }
    let gate = runner.tx.gate();
    let passes = || {
        let registry = procedures.read().unwrap_or_else(PoisonError::into_inner);
        registry.passes_of(entry).filter(|passes| passes.count() > 1)
    };
    // In one pass it is a transaction of the set, whatever the pieces of other procedures are or become.
    let chain = match (passes(), &gate) {
        (Some(_), Some(gate)) => Some(gate.chain()?),
        _ => None,
    };
    // A registration cannot change the pieces while the chain is open, but may have changed them before.
    let passes = chain.as_ref().and_then(|_| passes());
    let steps = passes.as_deref().map_or(Steps::Whole(None), Steps::Pieces);
    run_with_checker(runner, steps, checker, body)
}

/// Calls a procedure with dynamic values.
pub(crate) fn by_name<P: Declared>(
    session: &mut Session,
    _: usize,
    arguments: &Value,
) -> Result<Committed<Value>, TransactError> {
    let arguments = P::Arguments::from_value(arguments).map_err(|error| unfit(P::NAME, &error))?;
    session.call_declared::<P>(&arguments).map(to_value)
}

/// As [`Session::step_declared`], with dynamic values.
pub(crate) fn step_by_name<P: Declared>(
    session: &mut Session,
    _: usize,
    arguments: &Value,
    stepping: Stepping<'_, Value>,
) -> Step<Value> {
    let given = match P::Arguments::from_value(arguments) {
        Ok(given) => given,
        Err(error) => return Step::Done(Err(unfit(P::NAME, &error))),
    };
    // Numbers that a call has taken are not kept between its steps.
    match (P::NUMBERS.is_empty(), stepping.wait) {
        (true, _) => session.step_declared::<P, Value>((&given, &mut None), stepping, |value| value.to_value()),
        (false, true) => Step::Done(session.call_declared::<P>(&given).map(to_value)),
        (false, false) => Step::Stalled,
    }
}

/// A step of a call by an executor.
pub(crate) struct Stepping<'s, R> {
    /// The partitions of the call, if they are known.
    pub(crate) known: Option<&'s InPartitions>,
    pub(crate) detached: &'s mut Detached<R>,
    /// The decision of the last attempt, if there is one.
    pub(crate) decided: Option<Decided>,
    /// Whether the thread may wait.
    pub(crate) wait: bool,
}

/// Converts the value to data.
pub(crate) fn to_value<R: Data>(committed: Committed<R>) -> Committed<Value> {
    convert(committed, |value| value.to_value())
}

fn convert<R, S>(committed: Committed<R>, convert: impl Fn(R) -> S) -> Committed<S> {
    let Committed { value, receipt, attempts } = committed;
    Committed { value: convert(value), receipt, attempts }
}

/// The error for arguments that are not of the procedure's types.
pub(crate) fn unfit(procedure: &str, error: &EvaluationError) -> TransactError {
    TransactError::Arguments { procedure: procedure.to_owned(), problem: error.to_string() }
}
