//! The durable point, and the callers that wait for it.
//!
//! Invariant: the point never moves back. Once it has reached an epoch, every commit of that epoch and of
//! earlier ones is on disk. Reading the point is one load. Waiting takes a mutex, off the commit path. The
//! loggers take the same mutex when they move the point, so no waiter misses a move.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{DurablePoint, Epoch, Process};

use crate::LogError;

/// The durable point, and whether it may still move.
#[derive(Debug)]
pub struct Durable {
    point: Arc<DurablePoint>,
    /// The process that has the loggers. In a fork of it another thread may have the mutex for ever.
    process: Process,
    waiters: Mutex<Waiters>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Waiters {
    /// Why the point will not move again, if it has stopped.
    stop_reason: Option<String>,
    /// Whether it stopped because the log was closed.
    closed: bool,
    /// By the awaited epoch, and a number that distinguishes waiters for the same epoch.
    wakers: BTreeMap<(Epoch, u64), Waker>,
    next: u64,
}

impl Waiters {
    fn error(&self) -> Option<LogError> {
        match self.closed {
            true => Some(LogError::Closed),
            false => self.stop_reason.clone().map(LogError::Stopped),
        }
    }
}

impl Durable {
    pub(crate) fn new(epoch: Epoch) -> Durable {
        let (point, process) = (Arc::new(DurablePoint::new(epoch)), Process::current());
        Durable { point, process, waiters: Mutex::default(), moved: Condvar::new() }
    }

    /// The point itself, for readers that do not wait.
    pub fn point(&self) -> &Arc<DurablePoint> {
        &self.point
    }

    /// The newest epoch whose commits survive a crash, with all commits of earlier epochs.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.point.epoch()
    }

    /// Whether commits of `epoch` survive a crash: `Some(Ok)` if they do, `None` while that is undecided,
    /// `Some(Err)` if the log ended before it was decided.
    pub fn poll(&self, epoch: Epoch) -> Option<Result<(), LogError>> {
        if self.epoch() >= epoch {
            return Some(Ok(()));
        }
        self.point.final_epoch()?;
        self.waiters().map_or_else(|forked| Some(Err(forked)), |waiters| self.answer(&waiters, epoch))
    }

    /// Waits until commits of `epoch` survive a crash. The wait has no bound of its own: it ends when the
    /// loggers, or the thread that steps them, move or stop the point. See [`Durable::wait_timeout`].
    ///
    /// # Errors
    /// [`LogError::Stopped`] or [`LogError::Closed`] when the log ended before. Only the next recovery then
    /// knows whether these commits survive. [`LogError::Forked`] in a fork, if it
    /// did not get there before.
    pub fn wait(&self, epoch: Epoch) -> Result<(), LogError> {
        if self.epoch() >= epoch {
            return Ok(());
        }
        let mut waiters = self.waiters()?;
        loop {
            if let Some(answer) = self.answer(&waiters, epoch) {
                return answer;
            }
            waiters = self.moved.wait(waiters).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`Durable::wait`], but at most for `timeout`. Returns `false` if the time ran out.
    ///
    /// # Errors
    /// As [`Durable::wait`].
    pub fn wait_timeout(&self, epoch: Epoch, timeout: Duration) -> Result<bool, LogError> {
        if self.epoch() >= epoch {
            return Ok(true);
        }
        let began = Instant::now();
        let mut waiters = self.waiters()?;
        loop {
            if let Some(answer) = self.answer(&waiters, epoch) {
                return answer.map(|()| true);
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            waiters = self.moved.wait_timeout(waiters, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A future that is ready when commits of `epoch` survive a crash, with the result of [`Durable::wait`]. It
    /// needs no particular executor.
    pub fn reached(self: &Arc<Durable>, epoch: Epoch) -> Reached {
        Reached { durable: Arc::clone(self), epoch, number: None }
    }

    /// Why the log has stopped, if it has.
    pub fn stop_reason(&self) -> Option<String> {
        self.waiters().map_or_else(|forked| Some(forked.to_string()), |waiters| waiters.stop_reason.clone())
    }

    /// The error for an operation that needs a running log, if the log has ended.
    pub(crate) fn error(&self) -> Option<LogError> {
        self.waiters().map_or_else(Some, |waiters| waiters.error())
    }

    /// Whether the log has stopped.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.point.final_epoch().is_some()
    }

    /// Moves the point to `epoch`, unless it is there already.
    pub(crate) fn publish(&self, epoch: Epoch) {
        if self.epoch() >= epoch {
            return;
        }
        let Ok(mut waiters) = self.waiters() else { return };
        // Under the mutex: a waiter that saw the old point sleeps by now, and is woken below.
        if !self.point.advance(epoch) {
            return;
        }
        let later = waiters.wakers.split_off(&(Epoch(epoch.0 + 1), 0));
        let woken = std::mem::replace(&mut waiters.wakers, later);
        drop(waiters);
        self.moved.notify_all();
        woken.into_values().for_each(Waker::wake);
    }

    /// Ends all waiting. The first reason is kept.
    pub(crate) fn stop(&self, reason: impl Into<String>) {
        self.end(reason, false);
    }

    /// As [`Durable::stop`], with the reason that the log was closed.
    pub(crate) fn close(&self) {
        self.end("it was closed", true);
    }

    fn end(&self, reason: impl Into<String>, closes: bool) {
        let Ok(mut waiters) = self.waiters() else { return };
        if waiters.stop_reason.is_none() {
            waiters.stop_reason = Some(reason.into());
            waiters.closed = closes;
        }
        self.point.finish();
        let woken = std::mem::take(&mut waiters.wakers);
        drop(waiters);
        self.moved.notify_all();
        woken.into_values().for_each(Waker::wake);
    }

    fn answer(&self, waiters: &Waiters, epoch: Epoch) -> Option<Result<(), LogError>> {
        if self.epoch() >= epoch {
            return Some(Ok(()));
        }
        waiters.error().map(Err)
    }

    /// Those that wait, unless this is a fork.
    fn waiters(&self) -> Result<MutexGuard<'_, Waiters>, LogError> {
        match self.process.is_current() {
            true => Ok(self.waiters.lock().unwrap_or_else(PoisonError::into_inner)),
            false => Err(LogError::Forked),
        }
    }
}

/// Ready when an epoch is durable: [`Durable::reached`].
#[derive(Debug)]
#[must_use = "a future does nothing unless polled"]
pub struct Reached {
    durable: Arc<Durable>,
    epoch: Epoch,
    /// The number under which its waker is registered.
    number: Option<u64>,
}

impl Future for Reached {
    type Output = Result<(), LogError>;

    fn poll(self: Pin<&mut Reached>, context: &mut Context<'_>) -> Poll<Result<(), LogError>> {
        let this = self.get_mut();
        if this.durable.epoch() >= this.epoch {
            return Poll::Ready(Ok(()));
        }
        let mut waiters = match this.durable.waiters() {
            Ok(waiters) => waiters,
            Err(forked) => return Poll::Ready(Err(forked)),
        };
        if let Some(answer) = this.durable.answer(&waiters, this.epoch) {
            return Poll::Ready(answer);
        }
        let number = *this.number.get_or_insert_with(|| {
            waiters.next += 1;
            waiters.next
        });
        let replaced = waiters.wakers.insert((this.epoch, number), context.waker().clone());
        // Dropping a waker may drop its task, which may drop other waiters: not under the mutex.
        drop(waiters);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && let Ok(mut waiters) = self.durable.waiters()
        {
            let removed = waiters.wakers.remove(&(self.epoch, number));
            drop(waiters);
            drop(removed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
