//! A TPC-C terminal: draws a card, generates the input, runs the transaction.

use std::sync::Arc;

use super::input::Inputs;
use super::options::Mix;
use super::schema::Tables;
use super::{UnusedItem, delivery, new_order, order_status, payment, stock_level};
use crate::Ending;
use crate::contract::{CallMode, Calls};
use crate::random::Deck;
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
    resume: Resume,
    /// No ledger: all conditions are on tables.
    books: Arc<()>,
}

impl TpccTerminal {
    /// A terminal with the home warehouse and the history rows of `inputs`.
    ///
    /// # Panics
    /// If the mix is empty.
    pub fn new(tables: Tables, inputs: Inputs, mix: Mix) -> TpccTerminal {
        TpccTerminal { tables, inputs, deck: Deck::new(&mix.0), resume: Resume::Pending, books: Arc::default() }
    }

    /// Continues this terminal's numbers of history rows where an earlier run over the same database left off.
    fn resume(&mut self, session: &mut Session) -> Result<(), TransactError> {
        let (w_id, source) = (self.inputs.w_id(), self.inputs.history_source());
        // Reads the present state, since a snapshot may miss recent rows.
        let last = session.transact(|tx| {
            let own = (w_id, source, 0)..=(w_id, source, u32::MAX);
            let last = tx.scan_rev(&self.tables.history, own).next().transpose()?;
            Ok(last.map(|row| row.h_number()))
        })?;
        let next = last.into_value().map_or(Some(0), |last| last.checked_add(1));
        self.inputs.set_history(next.expect("a terminal makes fewer than 2^32 payments"));
        self.resume = Resume::Done;
        Ok(())
    }
}

impl Calls for TpccTerminal {
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

#[inline]
fn ending<R>(result: Result<R, TransactError>) -> Ending {
    Ending::after::<UnusedItem, R>(result, |_| {})
}
