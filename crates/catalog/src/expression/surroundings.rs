//! What functions ask that have no arguments for it: the time at which a transaction began, the user, sequences.
//!
//! Whoever evaluates expressions for somebody says so with [`within`], for the thread and as long as that takes.
//! Elsewhere it is the present time, and there are neither users nor sequences. Expressions of rows alone, as
//! conditions, cannot ask anything ([`Bound::is_pure`](super::Bound::is_pure)).

use std::cell::RefCell;
use std::sync::Arc;

use super::datum::Datum;
use super::error::EvaluationError;
use crate::Timestamp;

/// Who answers.
pub trait Surroundings: Send + Sync {
    /// The time at which the transaction began.
    fn now(&self) -> Timestamp;

    /// Who uses the session.
    fn user(&self) -> String;

    /// Takes or sets numbers of a sequence.
    ///
    /// # Errors
    /// There is no such sequence, it has no number, or this is not the place to take one.
    fn sequence(&self, call: SequenceCall<'_>) -> Result<i64, EvaluationError>;
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
    static CURRENT: RefCell<Option<Arc<dyn Surroundings>>> = const { RefCell::new(None) };
}

/// Evaluates expressions on this thread for somebody.
pub fn within<R>(surroundings: Arc<dyn Surroundings>, act: impl FnOnce() -> R) -> R {
    struct Restored(Option<Arc<dyn Surroundings>>);
    impl Drop for Restored {
        fn drop(&mut self) {
            CURRENT.replace(self.0.take());
        }
    }
    let _restored = Restored(CURRENT.replace(Some(surroundings)));
    act()
}

fn current() -> Option<Arc<dyn Surroundings>> {
    CURRENT.with_borrow(Option::clone)
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

fn nowhere() -> EvaluationError {
    EvaluationError::of_surroundings("0A000", "sequences and users are those of a session, and this is none")
}
