//! A TPC-C terminal: draws a card, generates the input, runs the transaction.

use std::hint::black_box;
use std::sync::Arc;

use super::input::Inputs;
use super::options::Mix;
use super::schema::{History, Tables};
use super::{UnusedItem, delivery, history_keys, new_order, order_status, payment, stock_level};
use crate::contract::{CallMode, InExecutor, Later, Now};
use crate::random::Deck;
use crate::{Ending, ExecutorClient, Outcome, Started, Submitted, Terminal};
use seriatim::{Session, TransactError};

/// The history key of a terminal is known once it looked for its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resume {
    Pending,
    Done,
}

/// One terminal.
pub struct TpccTerminal {
    tables: Tables,
    inputs: Inputs,
    deck: Deck,
    number: u16,
    resume: Resume,
    /// Nothing is booked: the tables tell it all.
    books: Arc<()>,
}

impl TpccTerminal {
    /// Terminal `number`, counting from 0, with the home warehouse of `inputs`.
    ///
    /// # Panics
    /// If the mix is empty.
    pub fn new(tables: Tables, inputs: Inputs, mix: Mix, number: u16) -> TpccTerminal {
        TpccTerminal { tables, inputs, deck: Deck::new(&mix.0), number, resume: Resume::Pending, books: Arc::default() }
    }

    /// Continues this terminal's history keys where an earlier run over the same database left off.
    fn resume(&mut self, session: &mut Session) -> Result<(), TransactError> {
        let (first, end) = history_keys(self.number);
        let last = session.snapshot(|tx| {
            let last = tx.scan_rev(&self.tables.history, first..=end).next().transpose()?;
            Ok(last.map(|row| row.h_id()))
        })?;
        let next = last.into_value().map_or(first, |last| last + 1);
        assert!(next <= end, "a terminal makes at most {} payments", History::SEQUENCE_MAX);
        self.inputs.set_history(next);
        self.resume = Resume::Done;
        Ok(())
    }

    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer {
        let kind = self.deck.draw(self.inputs.rng());
        if self.resume == Resume::Pending
            && let Err(error) = self.resume(W::session(caller))
        {
            return W::failed(kind, error);
        }
        let (inputs, books) = (&mut self.inputs, &self.books);
        match kind {
            0 => W::call(caller, kind, new_order, &inputs.new_order(), books, |(), result| ending(result)),
            1 => W::call(caller, kind, payment, &inputs.payment(), books, |(), result| ending(result)),
            2 => W::call(caller, kind, order_status, &inputs.order_status(), books, |(), result| ending(result)),
            3 => W::call(caller, kind, delivery, &inputs.delivery(), books, |(), result| ending(result)),
            _ => W::call(caller, kind, stock_level, &inputs.stock_level(), books, |(), result| ending(result)),
        }
    }
}

impl Terminal for TpccTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        self.one::<Now>(session)
    }

    fn submit_one(&mut self, session: &mut Session) -> Submitted {
        self.one::<Later>(session)
    }

    fn start_one(&mut self, client: &mut ExecutorClient) -> Started {
        self.one::<InExecutor>(client)
    }
}

#[inline]
fn ending<R>(result: Result<R, TransactError>) -> Ending {
    match result {
        Ok(ref output) => {
            black_box(output);
            Ending::Committed
        }
        Err(error) => Ending::of::<UnusedItem>(error),
    }
}
