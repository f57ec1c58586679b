//! Whether the dependencies that a plan declares are all there are, asked of registered procedures.

use super::{Data, Declared, Value};
use crate::{Session, TransactError};

impl Session {
    /// Runs a registered procedure by its declaration, rolls it back, and looks for a dependency that its plan does not
    /// declare: the result of each operation is changed in turn, and what operations that are not its descendants are given
    /// must stay the same. For tests.
    ///
    /// # Errors
    /// What stopped the execution, as [`Session::call`]. The inner error is the dependency found, in words.
    pub fn check_dependencies<P: Declared>(
        &mut self,
        _procedure: P,
        arguments: &P::Arguments,
        seed: u64,
    ) -> Result<Result<(), String>, TransactError> {
        let at = self.find_declared::<P>()?;
        self.check_dependencies_at(at, &arguments.to_value(), seed)
    }

    /// As [`Session::check_dependencies`], by name and on dynamic values.
    ///
    /// # Errors
    /// As [`Session::check_dependencies`].
    pub fn check_dependencies_by_name(
        &mut self,
        name: &str,
        arguments: &Value,
        seed: u64,
    ) -> Result<Result<(), String>, TransactError> {
        let at = self.find_by_name(name)?;
        self.check_dependencies_at(at, arguments, seed)
    }

    fn check_dependencies_at(
        &mut self,
        at: usize,
        arguments: &Value,
        seed: u64,
    ) -> Result<Result<(), String>, TransactError> {
        let entry = self.called.entry(at);
        self.runner.check_dependencies(entry.mode(), &entry.declaration, &entry.plan, arguments, seed)
    }
}
