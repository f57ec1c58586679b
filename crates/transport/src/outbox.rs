//! The messages of a role, kept until its batch of incoming messages is handled: then each receiver is woken
//! once.

use crate::channel::Sender;

/// Messages to receivers of one kind, by number.
pub(crate) struct Outbox<M> {
    receivers: Vec<(Sender<M>, Vec<M>)>,
    /// Receivers with messages.
    waiting: Vec<usize>,
}

impl<M> Outbox<M> {
    pub(crate) fn new(receivers: Vec<Sender<M>>) -> Outbox<M> {
        let receivers = receivers.into_iter().map(|receiver| (receiver, Vec::new())).collect();
        Outbox { receivers, waiting: Vec::new() }
    }

    /// Adds a message for the receiver of this number. For one that does not exist it is dropped: no role here
    /// has sent the message that named it.
    pub(crate) fn put(&mut self, to: u32, message: M) {
        let to = to as usize;
        let Some((_, messages)) = self.receivers.get_mut(to) else { return };
        if messages.is_empty() {
            self.waiting.push(to);
        }
        messages.push(message);
    }

    /// Adds the same message for each receiver.
    pub(crate) fn put_all(&mut self, message: impl Fn() -> M) {
        (0..self.receivers.len() as u32).for_each(|to| self.put(to, message()));
    }

    /// Sends all messages.
    pub(crate) fn flush(&mut self) {
        for to in self.waiting.drain(..) {
            let (receiver, messages) = &mut self.receivers[to];
            receiver.send(messages);
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.receivers.len() as u32
    }
}
