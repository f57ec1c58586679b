//! A TPC-C terminal: draws a card, generates the input, runs the transaction.

use std::hint::black_box;

use super::input::Inputs;
use super::options::Mix;
use super::schema::{History, Tables};
use super::{UnusedItem, delivery, history_keys, new_order, order_status, payment, stock_level};
use crate::random::Deck;
use crate::{Ending, Outcome, Terminal};
use seriatim::{Committed, Session, TransactError};

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
}

impl TpccTerminal {
    /// Terminal `number`, counting from 0, with the home warehouse of `inputs`.
    ///
    /// # Panics
    /// If the mix is empty.
    pub fn new(tables: Tables, inputs: Inputs, mix: Mix, number: u16) -> TpccTerminal {
        TpccTerminal { tables, inputs, deck: Deck::new(&mix.0), number, resume: Resume::Pending }
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
}

impl Terminal for TpccTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        let kind = self.deck.draw(self.inputs.rng());
        if self.resume == Resume::Pending
            && let Err(error) = self.resume(session)
        {
            return Outcome { kind, ending: Ending::Failed(error) };
        }
        let inputs = &mut self.inputs;
        let ending = match kind {
            0 => ending(session.call(new_order, &inputs.new_order())),
            1 => ending(session.call(payment, &inputs.payment())),
            2 => ending(session.call(order_status, &inputs.order_status())),
            3 => ending(session.call(delivery, &inputs.delivery())),
            _ => ending(session.call(stock_level, &inputs.stock_level())),
        };
        Outcome { kind, ending }
    }
}

#[inline]
fn ending<R>(result: Result<Committed<R>, TransactError>) -> Ending {
    match result {
        Ok(output) => {
            black_box(&output.value);
            Ending::Committed
        }
        Err(error) => Ending::of::<UnusedItem>(error),
    }
}
