//! The reference execution: the interpreter runs procedures instead of their generated code.

use seriatim_engine::procedure::{Reference, Stopped};
use seriatim_engine::{Committed, with_value};
use seriatim_procedure::ir::Procedure;
use seriatim_procedure::plan::Plan;

use super::call::{to_value, unfit};
use super::{Data, Declared, Value};
use crate::{Session, TransactError};

impl Session {
    /// Runs a registered procedure by interpreting its declaration, as one transaction. It is slow, and gives the
    /// results that [`Session::call`] must have. Tests compare generated code with it.
    ///
    /// The procedure's own aborts are reported as [`TransactError::User`] with an [`Aborted`](super::Aborted). An
    /// overflow has no place.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn interpret<P: Declared>(
        &mut self,
        _procedure: P,
        arguments: &P::Arguments,
    ) -> Result<Committed<P::Output>, TransactError> {
        let mut result = self.interpret_declared::<P>(arguments);
        self.runner.answer(&mut result);
        result
    }

    /// As [`Session::interpret`], by name and with dynamic values.
    ///
    /// # Errors
    /// As [`Session::call_by_name`].
    pub fn interpret_by_name(&mut self, name: &str, arguments: &Value) -> Result<Committed<Value>, TransactError> {
        self.runner.tx.renew();
        let at = self.find_by_name(name)?;
        let interpret = self.called.entry(at).registered.interpret_by_name();
        let mut result = interpret(self, at, arguments);
        self.runner.answer(&mut result);
        result
    }

    /// Calls `run` with the interpreter's view of a transaction, and rolls back. For `seriatim-check`.
    #[doc(hidden)]
    pub fn interpret_with(
        &mut self,
        name: &str,
        run: &mut dyn FnMut(&Procedure, &Plan, &Reference<'_>) -> Result<(), Stopped>,
    ) -> Result<(), TransactError> {
        let at = self.find_by_name(name)?;
        let entry = self.called.entry(at);
        let run = &mut |database: &Reference<'_>| run(&entry.declaration, &entry.plan, database);
        self.runner.interpret_with(entry.mode(), &entry.declaration, run)
    }

    fn interpret_declared<P: Declared>(&mut self, given: &P::Arguments) -> Result<Committed<P::Output>, TransactError> {
        let mut place = None;
        let arguments = self.complete::<P>(given, &mut place)?.to_value();
        self.runner.tx.renew();
        let at = self.find_declared::<P>()?;
        self.runner.tx.name_procedure(P::NAME);
        let entry = self.called.entry(at);
        let mut output = None;
        let committed =
            self.runner.interpret(entry.mode(), &entry.declaration, &entry.columns, &arguments, &mut |value| {
                output = Some(P::Output::from_value(value)?);
                Ok(())
            })?;
        Ok(with_value(committed, output))
    }
}

/// Interprets a procedure with dynamic values. The result has the types that the procedure declares.
pub(crate) fn by_name<P: Declared>(
    session: &mut Session,
    _: usize,
    arguments: &Value,
) -> Result<Committed<Value>, TransactError> {
    let given = P::Arguments::from_value(arguments).map_err(|error| unfit(P::NAME, &error))?;
    session.interpret_declared::<P>(&given).map(to_value)
}
