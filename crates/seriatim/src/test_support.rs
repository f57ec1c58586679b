//! What tests look through: what was called, every row there is, and repairs on demand.
//!
//! A workload's terminals call procedures whose types they alone know. Told as data, the same calls can be made again in another
//! database, in every other way to run a procedure, and compared.

use std::sync::PoisonError;

use seriatim_base::Rng;
use seriatim_engine::protocol::repairing::{self, MEANWHILE, SCRIPT, closed};
pub use seriatim_engine::protocol::repairing::{Asked, asked};
pub use seriatim_engine::test_support::{Between, between_chunks};

use crate::procedure::registry::CallStrategy;
use crate::procedure::{Data, Declared, EvaluationError, Value};
use crate::{Committed, Database, Session, TransactError};

/// The name of the protocol that asks for repairs: [`Session::call_repaired`].
pub const REPAIRING: &str = repairing::NAME;

/// The name of the protocol that is the default one but notes what it is asked for: [`asked`].
pub const PLAIN: &str = repairing::PLAIN;

/// The name of the protocol that claims to keep all columns apart, over the default one, which lets pass less.
pub const GROUPED: &str = repairing::GROUPED;

/// A call and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The procedure.
    pub procedure: &'static str,
    /// Its arguments.
    pub arguments: Value,
    /// What it gave.
    pub result: Result<Value, String>,
}

/// An error in words. Errors of the procedure's own differ in type between ways to run it, and an overflow has no place in the
/// interpreter: of these only the kind is told.
pub fn in_words(error: &TransactError) -> String {
    match error {
        // A mistake of the interpreter's, and no abort of the procedure's.
        error if error.user::<EvaluationError>().is_some() => error.to_string(),
        TransactError::User(_) => "it aborted".to_owned(),
        TransactError::Overflow { .. } => "it overflowed".to_owned(),
        error => error.to_string(),
    }
}

/// What came of a call that was repaired.
#[derive(Debug)]
pub struct Repaired {
    /// What it gave.
    pub result: Result<Committed<Value>, TransactError>,
    /// How often it was repaired.
    pub repairs: u32,
    /// Whether the other call came between.
    pub disturbed: bool,
}

/// A call that others make before a repair begins.
pub struct Disturbance {
    /// The procedure.
    pub procedure: String,
    /// Calls it, in a session of its own.
    pub call: Box<dyn FnOnce()>,
}

impl Session {
    /// From now on notes what procedures are called.
    pub fn tell_calls(&mut self) {
        self.told = Some(Vec::new());
    }

    /// What was called since the last time, in order.
    pub fn take_calls(&mut self) -> Vec<Call> {
        self.told.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn tell<P: Declared>(
        &mut self,
        arguments: &P::Arguments,
        result: &Result<Committed<P::Output>, TransactError>,
    ) {
        if let Some(calls) = &mut self.told {
            let result = result.as_ref().map(|committed| committed.value.to_value()).map_err(in_words);
            calls.push(Call { procedure: P::NAME, arguments: arguments.to_value(), result });
        }
    }

    /// Calls a procedure in a database of the protocol [`REPAIRING`], which asks for random operations again, once or twice. If
    /// others disturb, their call comes before one repair, of all that it may have touched.
    ///
    /// # Errors
    /// If it is not registered.
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

    /// In how many passes a procedure runs.
    ///
    /// # Errors
    /// If it is not registered.
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
    /// Makes a snapshot, where they are made every so often.
    pub fn make_snapshot(&self) {
        self.engine().make_snapshot();
    }

    /// Advances the epoch, and makes a snapshot.
    pub fn advance_epoch(&self) {
        self.engine().advance_epoch();
    }

    /// Steps one logger, if there are so many.
    pub fn step_logger(&self, logger: usize) {
        self.engine().step_logger(logger);
    }

    /// Whether something was deferred that is not published. Nobody else may be about.
    pub fn has_deferred(&self) -> bool {
        self.engine().has_deferred()
    }

    /// The epoch now.
    pub fn epoch_now(&self) -> u64 {
        self.engine().epoch_now()
    }

    /// Every row of every table in words, sorted. Nobody may be about.
    ///
    /// # Errors
    /// A transaction is open.
    pub fn contents(&self) -> Result<Vec<String>, TransactError> {
        self.engine().contents()
    }
}
