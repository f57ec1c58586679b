//! What functions ask that have no arguments for it: the time at which a transaction began, the user, sequences.
//!
//! Whoever evaluates expressions for somebody says so with [`within`], for the thread and as long as that takes.
//! Elsewhere it is the present time, and there are neither users nor sequences. Expressions of rows alone, as
//! conditions, cannot ask anything ([`Bound::is_pure`](super::Bound::is_pure)).

use std::cell::Cell;

use super::datum::Datum;
use super::error::EvaluationError;
use crate::Timestamp;

/// Who answers.
pub trait Surroundings {
    /// The time at which the transaction began.
    fn now(&self) -> Timestamp;

    /// Who uses the session.
    fn user(&self) -> String;

    /// Takes or sets numbers of a sequence.
    ///
    /// # Errors
    /// There is no such sequence, it has no number, or this is not the place to take one.
    fn sequence(&self, call: SequenceCall<'_>) -> Result<i64, EvaluationError>;

    /// The name of the sequence of a column of a table, with its schema; none if it has none.
    ///
    /// # Errors
    /// There is no such table or column.
    fn sequence_of(&self, table: &str, column: &str) -> Result<Option<String>, EvaluationError>;
}

/// What is asked of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCall<'c> {
    /// Its next number.
    Next(&'c str),
    /// The number that the session took last of it.
    Current(&'c str),
    /// The number that the session took last of any.
    Last,
    /// It gets this number, which is given or comes next.
    Set(&'c str, i64, bool),
}

thread_local! {
    static CURRENT: Cell<Option<&'static dyn Surroundings>> = const { Cell::new(None) };
}

/// Evaluates expressions on this thread for somebody.
pub fn within<R>(surroundings: &dyn Surroundings, act: impl FnOnce() -> R) -> R {
    struct Restored(Option<&'static dyn Surroundings>);
    impl Drop for Restored {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    // SAFETY: only the lifetime differs. The reference is used by functions of this file, while they run, on this
    // thread, until `Restored` takes it back: before the borrow ends, also if `act` panics.
    let current = unsafe { std::mem::transmute::<&dyn Surroundings, &'static dyn Surroundings>(surroundings) };
    let _restored = Restored(CURRENT.replace(Some(current)));
    act()
}

fn current() -> Option<&'static dyn Surroundings> {
    CURRENT.get()
}

pub(super) fn now() -> Timestamp {
    current().map_or_else(Timestamp::now, |current| current.now())
}

pub(super) fn user() -> Result<String, EvaluationError> {
    current().map(|current| current.user()).ok_or_else(nowhere)
}

pub(super) fn sequence<'r>(call: SequenceCall<'_>) -> Result<Datum<'r>, EvaluationError> {
    let number = current().ok_or_else(nowhere)?.sequence(call)?;
    Ok(Datum::Integer(number.into()))
}

pub(super) fn sequence_of<'r>(table: &str, column: &str) -> Result<Datum<'r>, EvaluationError> {
    let name = current().ok_or_else(nowhere)?.sequence_of(table, column)?;
    Ok(name.map_or(Datum::Null, |name| Datum::Text(name.into())))
}

fn nowhere() -> EvaluationError {
    EvaluationError::of_surroundings("0A000", "sequences and users are those of a session, and this is none")
}
