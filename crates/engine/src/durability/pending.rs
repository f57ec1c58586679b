//! Results that are not returned yet.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use seriatim_redo::durable::Reached;

use super::persistence::not_durable;
use super::{CommitDependency, OpenHandle};
use crate::engine::Inner;
use crate::{Committed, TransactError};

/// The result of a transaction that has been decided but may not be durable yet. It is withheld until then, as
/// a power cut can still undo it. A thread can have many of them outstanding.
///
/// Dropping it discards the result, not the transaction.
///
/// ```
/// # use seriatim::{Database, Table};
/// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = Database::in_memory()?;
/// # let counters = db.create::<Counter>()?;
/// # let mut session = db.session();
/// let outstanding: Vec<_> =
///     (0..8).map(|id| session.submit(|tx| tx.insert(&counters, &Counter { id, n: 0 }))).collect();
/// for pending in outstanding {
///     pending.wait()?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a result that is not waited for may be lost to a power cut unnoticed"]
pub struct Pending<R> {
    result: Option<Result<Committed<R>, TransactError>>,
    /// What must be durable first; `None` if nothing must.
    withheld: Option<(CommitDependency, Arc<Shared>)>,
    /// How long [`Pending::wait`] waits.
    limit: Option<Duration>,
    /// Present once it was polled as a future.
    reached: Option<Reached>,
}

/// The database, as the results of one session share it: counting them touches no cache line of other sessions.
pub(crate) struct Shared {
    /// Dropped first: the last handle that is dropped waits until no thread uses the database.
    pub(crate) open: Arc<OpenHandle>,
    inner: Arc<Inner>,
}

impl Shared {
    pub(crate) fn new(open: Arc<OpenHandle>, inner: Arc<Inner>) -> Shared {
        Shared { open, inner }
    }
}

/// Nothing in it is pinned.
impl<R> Unpin for Pending<R> {}

impl<R> Pending<R> {
    pub(crate) fn new(
        result: Result<Committed<R>, TransactError>,
        dependency: CommitDependency,
        limit: Option<Duration>,
        shared: &Arc<Shared>,
    ) -> Pending<R> {
        let withheld = shared.inner.must_wait(dependency).then(|| (dependency, Arc::clone(shared)));
        Pending { result: Some(result), withheld, limit, reached: None }
    }

    /// Waits until the result may be returned, at most for the session's bound when it was submitted
    /// (`Session::set_wait_max`). As a future it has no such bound.
    ///
    /// # Errors
    /// The transaction's own; [`TransactError::NotDurable`] if the log stopped before the result was durable,
    /// [`TransactError::NotDurableYet`] beyond the bound.
    pub fn wait(mut self) -> Result<Committed<R>, TransactError> {
        if let Some((dependency, shared)) = &self.withheld {
            shared.inner.wait_until_durable(*dependency, self.limit)?;
        }
        self.take()
    }

    /// As [`Pending::wait`], for at most `most`: the result, or this again.
    ///
    /// # Errors
    /// The same [`Pending`], still withheld.
    // In place: results can be large anyway.
    #[allow(clippy::result_large_err)]
    pub fn wait_timeout(mut self, most: Duration) -> Result<Result<Committed<R>, TransactError>, Pending<R>> {
        let waited = match &self.withheld {
            None => Ok(true),
            Some((dependency, shared)) => shared.inner.wait_until_durable_within(*dependency, most),
        };
        match waited {
            Ok(true) => Ok(self.take()),
            Ok(false) => Err(self),
            Err(error) => Ok(Err(error)),
        }
    }

    /// The result if it may be returned already, or this again. Does not block.
    ///
    /// # Errors
    /// The same [`Pending`], still withheld.
    #[allow(clippy::result_large_err)]
    pub fn poll(self) -> Result<Result<Committed<R>, TransactError>, Pending<R>> {
        self.wait_timeout(Duration::ZERO)
    }

    /// Whether [`Pending::wait`] would return at once.
    pub fn is_ready(&self) -> bool {
        match &self.withheld {
            None => true,
            Some((dependency, shared)) => {
                !matches!(shared.inner.wait_until_durable_within(*dependency, Duration::ZERO), Ok(false))
            }
        }
    }

    #[cfg(feature = "test-support")]
    pub(crate) fn result(&self) -> Option<&Result<Committed<R>, TransactError>> {
        self.result.as_ref()
    }

    fn take(&mut self) -> Result<Committed<R>, TransactError> {
        self.result.take().expect("a result is taken once")
    }
}

/// The result, once it may be returned.
///
/// # Panics
/// If polled again after it was ready.
impl<R> Future for Pending<R> {
    type Output = Result<Committed<R>, TransactError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Pending { withheld, reached, .. } = &mut *self;
        if let Some((dependency, shared)) = withheld {
            if let Err(forked) = shared.inner.check_process() {
                return Poll::Ready(Err(not_durable(forked)));
            }
            if reached.is_none() {
                *reached = shared.inner.reached(*dependency);
            }
            if let Some(reached) = reached {
                match Pin::new(reached).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(not_durable(error))),
                    Poll::Ready(Ok(())) => {}
                }
            }
        }
        Poll::Ready(self.take())
    }
}

impl<R> std::fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("ready", &self.is_ready()).finish_non_exhaustive()
    }
}
