//! Connections without a session: new ones, and those that have sent no request.
//!
//! They do not count as clients. Their number is limited: a new one ends the oldest, so connections that send
//! nothing do not exclude others.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct Greetings {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Present connections, the oldest first. Dropping a sender ends its connection.
    present: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A connection without a session.
#[derive(Debug)]
pub(crate) struct Greeting {
    id: u64,
    pushed_out: oneshot::Receiver<()>,
}

impl Greetings {
    pub(crate) fn new(max: usize) -> Greetings {
        Greetings { max, state: Mutex::default() }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection. If there are too many, the oldest is ended.
    pub(crate) fn enter(&self) -> Greeting {
        let (sender, pushed_out) = oneshot::channel();
        let mut state = self.locked();
        let id = state.next;
        state.next += 1;
        state.present.insert(id, sender);
        if state.present.len() > self.max {
            state.present.pop_first();
        }
        Greeting { id, pushed_out }
    }

    /// Removes a connection that has a session or has ended.
    pub(crate) fn leave(&self, greeting: &Greeting) {
        self.locked().present.remove(&greeting.id);
    }
}

impl Greeting {
    /// Completes when a newer connection has replaced this one.
    pub(crate) async fn pushed_out(&mut self) {
        let _ = (&mut self.pushed_out).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connection_is_ended() {
        let greetings = Greetings::new(2);
        let is_out =
            |greeting: &mut Greeting| greeting.pushed_out.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        let mut first = greetings.enter();
        let mut second = greetings.enter();
        assert!(!is_out(&mut first));
        let mut third = greetings.enter();
        assert!(is_out(&mut first) && !is_out(&mut second) && !is_out(&mut third));
        greetings.leave(&second);
        let mut fourth = greetings.enter();
        assert!(!is_out(&mut third) && !is_out(&mut fourth));
        greetings.leave(&first);
        greetings.leave(&third);
        greetings.leave(&fourth);
        assert!(greetings.locked().present.is_empty());
    }
}
