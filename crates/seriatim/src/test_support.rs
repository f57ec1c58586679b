//! Access for tests: recorded calls, the contents of all tables, and repairs on demand.
//!
//! The terminals of a workload call procedures by their types. The recorded calls are data, so a test can repeat them
//! in another database, run procedures there in any other way, and compare.

use std::sync::PoisonError;

use seriatim_base::Rng;
use seriatim_engine::test_support::closed;
use seriatim_engine::test_support::protocols::repairing::{self, MEANWHILE, SCRIPT};
pub use seriatim_engine::test_support::protocols::repairing::{Asked, asked};
pub use seriatim_engine::test_support::{Between, between_chunks};

use crate::procedure::registry::CallStrategy;
use crate::procedure::{Data, EvaluationError, Value};
use crate::{Committed, Database, Session, TransactError};

/// The name of the protocol that asks for repairs: [`Session::call_repaired`].
pub const REPAIRING: &str = repairing::NAME;

/// The name of the default protocol in a variant that records the columns that workers are asked for: [`asked`].
pub const PLAIN: &str = repairing::PLAIN;

/// The name of the protocol that claims to keep all columns apart. It wraps the default one, which admits fewer
/// schedules.
pub const GROUPED: &str = repairing::GROUPED;

/// A call and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The name of the procedure.
    pub procedure: &'static str,
    /// The arguments of the call.
    pub arguments: Value,
    /// The procedure's result, or its error as text.
    pub result: Result<Value, String>,
}

/// Describes an error. Errors of the procedure's own have different types in each way to run it, and an overflow has
/// no place in the interpreter. Of these the text gives only the kind.
pub fn in_words(error: &TransactError) -> String {
    match error {
        // A mistake of the interpreter, not an abort of the procedure.
        error if error.user::<EvaluationError>().is_some() => error.to_string(),
        TransactError::User(_) => "it aborted".to_owned(),
        TransactError::Overflow { .. } => "it overflowed".to_owned(),
        error => error.to_string(),
    }
}

/// The outcome of a call that was repaired.
#[derive(Debug)]
pub struct Repaired {
    /// The result of the call.
    pub result: Result<Committed<Value>, TransactError>,
    /// The number of repairs.
    pub repairs: u32,
    /// Whether the disturbing call ran.
    pub disturbed: bool,
}

/// A call by another session before a repair begins.
pub struct Disturbance {
    /// The procedure that is called.
    pub procedure: String,
    /// Makes the call, in a session of its own.
    pub call: Box<dyn FnOnce()>,
}

impl Session {
    /// Starts to record calls of procedures.
    pub fn record_calls(&mut self) {
        self.recorded_calls = Some(Vec::new());
    }

    /// Returns the calls recorded since the last time, in order.
    pub fn take_calls(&mut self) -> Vec<Call> {
        self.recorded_calls.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn record_value<R: Data>(
        &mut self,
        procedure: &'static str,
        arguments: &impl Data,
        result: Result<&R, &TransactError>,
    ) {
        if let Some(calls) = &mut self.recorded_calls {
            let result = result.map(R::to_value).map_err(in_words);
            calls.push(Call { procedure, arguments: arguments.to_value(), result });
        }
    }

    /// Calls a procedure in a database of the protocol [`REPAIRING`], which asks for random operations to run again,
    /// once or twice. With a `disturbance`, its call comes before one repair, which covers every operation that the
    /// call may affect.
    ///
    /// # Errors
    /// The procedure is not registered.
    pub fn call_repaired(
        &mut self,
        procedure: &str,
        arguments: &Value,
        rng: &mut Rng,
        disturbance: Option<Disturbance>,
    ) -> Result<Repaired, TransactError> {
        let (at, other) = (self.find_by_name(procedure)?, disturbance);
        let changed: Vec<String> = match &other {
            None => Vec::new(),
            Some(other) => {
                let other = self.find_by_name(&other.procedure)?;
                let plan = &self.called.entry(other).plan;
                let changes = plan.operations.iter().filter(|operation| operation.changes());
                changes.map(|operation| plan.tables[operation.table].name.to_string()).collect()
            }
        };
        let entry = self.called.entry(at);
        if entry.strategy != CallStrategy::Repaired {
            return Ok(Repaired { result: self.call_by_name(procedure, arguments), repairs: 0, disturbed: false });
        }
        let operations = &entry.plan.operations;
        let meets = |id: &usize| {
            let table = &*entry.plan.tables[operations[*id].table].name;
            operations[*id].changes() || changed.iter().any(|changed| changed == table)
        };
        let mut stale = || -> Vec<u16> {
            let ids = 0..operations.len();
            let stale = match &other {
                Some(_) => ids.filter(meets).collect(),
                None => ids.filter(|_| rng.percent(33)).collect(),
            };
            closed(&entry.plan, &entry.repairs, stale)
        };
        let mut script = vec![stale()];
        if other.is_none() {
            script.push(stale());
        }
        let (asked, is_disturbing) = (script.len(), other.is_some());
        SCRIPT.set(script.into());
        MEANWHILE.set(other.map(|other| other.call).into_iter().collect());
        let result = self.call_by_name(procedure, arguments);
        let repairs = (asked - SCRIPT.take().len()) as u32;
        let disturbed = is_disturbing && MEANWHILE.take().is_empty();
        Ok(Repaired { result, repairs, disturbed })
    }

    /// Returns the number of passes in which a procedure runs.
    ///
    /// # Errors
    /// The procedure is not registered.
    pub fn passes(&mut self, procedure: &str) -> Result<u16, TransactError> {
        let at = self.find_by_name(procedure)?;
        let entry = self.called.entry(at);
        if entry.strategy != CallStrategy::Pieces {
            return Ok(1);
        }
        let registry = self.procedures.read().unwrap_or_else(PoisonError::into_inner);
        Ok(registry.passes_of(entry).map_or(1, |passes| passes.count()))
    }
}

impl Database {
    /// Makes a snapshot, under protocols that make them periodically.
    pub fn make_snapshot(&self) {
        self.engine().make_snapshot();
    }

    /// Advances the epoch, and makes a snapshot.
    pub fn advance_epoch(&self) {
        self.engine().advance_epoch();
    }

    /// Steps one logger, if the log has that many.
    pub fn step_logger(&self, logger: usize) {
        self.engine().step_logger(logger);
    }

    /// Whether deferred changes are unpublished. No transaction may be running.
    pub fn has_deferred(&self) -> bool {
        self.engine().has_deferred()
    }

    /// Returns the current epoch.
    pub fn epoch_now(&self) -> u64 {
        self.engine().epoch_now()
    }

    /// Returns every row of every table as text, sorted.
    ///
    /// # Errors
    /// A transaction is open.
    pub fn contents(&self) -> Result<Vec<String>, TransactError> {
        self.engine().contents()
    }
}
