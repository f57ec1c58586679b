//! Functions that depend on their arguments alone, callable on values whose type is known at run time.

use crate::{EvaluationError, Value};

/// A pure function: `#[pure]` implements this under the function's own name.
///
/// A procedure may call it anywhere, generated code calls the function itself, and the interpreter calls
/// [`Pure::evaluate`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pure function",
    label = "a procedure may call `#[pure]` functions only",
    note = "mark it: `#[pure] fn ..`; it may use its arguments alone, no clock, no randomness, no static that changes"
)]
pub trait Pure {
    /// The function's name.
    const NAME: &'static str;
    /// Whether it is declared to have a value for all arguments (`#[pure(total)]`); else it may panic.
    const TOTAL: bool;

    /// Its value for these arguments, in order.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] for too many or too few arguments, or one of a wrong type.
    fn evaluate(arguments: &[Value]) -> Result<Value, EvaluationError>;
}
