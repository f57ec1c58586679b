//! An inbox with many senders.
//!
//! Invariants:
//!
//! (a) Messages are in the inbox in the order in which they are due. This is the order in which they were sent, as all
//! take the same time. (b) A receiver that sleeps has noted itself and the time until which it sleeps. It did so under
//! the lock under which it saw that nothing was due. A sender of a message that is due earlier takes that note and
//! wakes the receiver, so there is one wake-up for a sleep. (c) An inbox is closed when its senders are gone. Senders
//! are not told that a receiver is gone: their messages are dropped. (d) The lock is held for a few moves of memory,
//! never during a wait or a charge.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread::{self, Waiter};

use crate::options::Costs;

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Messages.
    Some,
    /// No messages until the given time.
    Late,
    /// No messages, and there will be none.
    Closed,
}

/// The receiving end.
pub(crate) struct Inbox<M> {
    shared: Arc<Shared<M>>,
    /// How often it slept.
    pub(crate) sleeps: u64,
    /// The total time of its sleeps.
    pub(crate) slept: Duration,
}

/// A sending end.
pub(crate) struct Sender<M> {
    shared: Arc<Shared<M>>,
}

struct Shared<M> {
    state: Mutex<State<M>>,
    delay: Duration,
    costs: Costs,
}

struct State<M> {
    /// Messages, each with the time at which it is due.
    queue: VecDeque<(Instant, M)>,
    senders: usize,
    /// The sleeping receiver, and the time until which it sleeps.
    asleep: Option<(Waiter, Option<Instant>)>,
    /// Whether the receiver is gone.
    gone: bool,
}

impl<M> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An inbox to which every message takes `delay`.
pub(crate) fn inbox<M>(delay: Duration, costs: Costs) -> Inbox<M> {
    let state = State { queue: VecDeque::new(), senders: 0, asleep: None, gone: false };
    Inbox { shared: Arc::new(Shared { state: Mutex::new(state), delay, costs }), sleeps: 0, slept: Duration::ZERO }
}

impl<M> Inbox<M> {
    /// Another sender.
    pub(crate) fn sender(&self) -> Sender<M> {
        self.shared.lock().senders += 1;
        Sender { shared: Arc::clone(&self.shared) }
    }

    /// Takes due messages, at most `max`. Sleeps while there are none, until the given time.
    pub(crate) fn receive(&mut self, into: &mut VecDeque<M>, max: usize, until: Option<Instant>) -> Received {
        let Shared { costs, .. } = *self.shared;
        let taken = loop {
            let now = Instant::now();
            let mut state = self.shared.lock();
            state.asleep = None;
            let mut taken = 0;
            while taken < max && state.queue.front().is_some_and(|(due, _)| *due <= now) {
                into.extend(state.queue.pop_front().map(|(_, message)| message));
                taken += 1;
            }
            let next = state.queue.front().map(|(due, _)| *due);
            if taken > 0 {
                break taken;
            }
            if next.is_none() && state.senders == 0 {
                return Received::Closed;
            }
            if until.is_some_and(|until| until <= now) {
                return Received::Late;
            }
            let wakes = [next, until].into_iter().flatten().min();
            state.asleep = Some((Waiter::current(), wakes));
            drop(state);
            self.sleeps += 1;
            thread::wait(wakes);
            thread::work(costs.woken);
            self.slept += now.elapsed();
        };
        thread::work(costs.receive * taken as u32);
        Received::Some
    }
}

impl<M> Drop for Inbox<M> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.gone = true;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        drop(queue);
    }
}

impl<M> Sender<M> {
    /// Sends these messages, in this order.
    pub(crate) fn send(&self, messages: &mut Vec<M>) {
        if messages.is_empty() {
            return;
        }
        let Shared { delay, costs, .. } = *self.shared;
        thread::work(costs.send * messages.len() as u32);
        let due = Instant::now().after(delay);
        let mut state = self.shared.lock();
        if state.gone {
            drop(state);
            return messages.clear();
        }
        // The clocks of two threads may differ slightly.
        let due = state.queue.back().map_or(due, |(latest, _)| due.max(*latest));
        state.queue.extend(messages.drain(..).map(|message| (due, message)));
        let wakes = state.asleep.take_if(|(_, until)| until.is_none_or(|until| due < until));
        drop(state);
        self.wake(wakes);
    }

    fn wake(&self, wakes: Option<(Waiter, Option<Instant>)>) {
        if let Some((waiter, _)) = wakes {
            thread::work(self.shared.costs.wake);
            waiter.wake();
        }
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Sender<M> {
        self.shared.lock().senders += 1;
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<M> Drop for Sender<M> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.senders -= 1;
        let wakes = if state.senders == 0 { state.asleep.take() } else { None };
        drop(state);
        self.wake(wakes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(inbox: &mut Inbox<u32>, max: usize, until: Option<Instant>) -> (Received, Vec<u32>) {
        let mut into = VecDeque::new();
        (inbox.receive(&mut into, max, until), into.into())
    }

    #[test]
    fn messages_come_in_order_as_many_as_are_wanted_until_all_senders_are_gone() {
        let mut to = inbox(Duration::ZERO, Costs::default());
        let (one, two) = (to.sender(), to.sender());
        one.send(&mut vec![1, 2]);
        two.clone().send(&mut vec![3]);
        one.send(&mut vec![4]);
        assert_eq!(all(&mut to, 3, None), (Received::Some, vec![1, 2, 3]));
        drop(one);
        assert_eq!(all(&mut to, 3, None), (Received::Some, vec![4]));
        assert_eq!(all(&mut to, 3, Some(Instant::now())), (Received::Late, vec![]));
        drop(two);
        assert_eq!(all(&mut to, 3, None), (Received::Closed, vec![]));
    }

    #[test]
    fn nothing_arrives_before_its_time_and_what_is_late_keeps_its_place() {
        let delay = Duration::from_millis(5);
        let mut to = inbox(delay, Costs::default());
        let (from, began) = (to.sender(), Instant::now());
        from.send(&mut vec![1]);
        from.send(&mut vec![2]);
        let (found, mut came) = all(&mut to, 9, Some(Instant::now()));
        // On a slow machine the delay may have passed already.
        assert!(found == Received::Late || began.elapsed() >= delay);
        while came.len() < 2 {
            came.extend(all(&mut to, 9, None).1);
            assert!(began.elapsed() >= delay);
        }
        assert_eq!(came, [1, 2]);
    }

    #[test]
    fn a_receiver_that_sleeps_is_woken_by_messages_and_by_the_last_sender() {
        let mut to = inbox(Duration::ZERO, Costs::default());
        let from = to.sender();
        let receiver = thread::spawn("receives", move || {
            let mut came = Vec::new();
            loop {
                match all(&mut to, 2, None) {
                    (Received::Closed, _) => return (came, to.sleeps),
                    (_, messages) => came.extend(messages),
                }
            }
        });
        // The thread may start late.
        while from.shared.lock().asleep.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        for number in 0..100 {
            from.send(&mut vec![number]);
            if number % 10 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        drop(from);
        let (came, sleeps) = receiver.expect("a thread").join().expect("it ends");
        assert!(came == (0..100).collect::<Vec<_>>() && sleeps > 0, "{came:?}");
    }

    #[test]
    fn a_message_without_a_receiver_is_dropped() {
        let to = inbox(Duration::ZERO, Costs::default());
        let from = to.sender();
        let message = Arc::new(());
        from.send(&mut vec![Arc::clone(&message)]);
        drop(to);
        from.send(&mut vec![Arc::clone(&message)]);
        assert_eq!(Arc::strong_count(&message), 1);
    }
}
