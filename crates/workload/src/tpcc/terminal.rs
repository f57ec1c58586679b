//! A TPC-C terminal: draws a card, generates the input, runs the transaction.

use std::hint::black_box;

use super::input::Inputs;
use super::new_order::{UnusedItem, new_order};
use super::options::Mix;
use super::schema::{History, Tables};
use super::{delivery, history_keys, order_status, payment, stock_level};
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
        let (tables, inputs) = (&self.tables, &mut self.inputs);
        let ending = match kind {
            0 => {
                let input = inputs.new_order();
                ending(session.transact(|tx| new_order(tx, tables, &input)))
            }
            1 => {
                let input = inputs.payment();
                ending(session.transact(|tx| payment(tx, tables, &input)))
            }
            2 => {
                let input = inputs.order_status();
                ending(session.snapshot(|tx| order_status(tx, tables, &input)))
            }
            3 => {
                let input = inputs.delivery();
                ending(session.transact(|tx| delivery(tx, tables, &input)))
            }
            _ => {
                let input = inputs.stock_level();
                ending(session.snapshot(|tx| stock_level(tx, tables, &input)))
            }
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
