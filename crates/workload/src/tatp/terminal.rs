//! A TATP terminal: draws a card, generates the input, runs the transaction, books call forwardings.

use std::hint::black_box;
use std::sync::Arc;

use super::input::Inputs;
use super::transactions::{
    Unsuccessful, delete_call_forwarding, get_access_data, get_new_destination, get_subscriber_data,
    insert_call_forwarding, update_location, update_subscriber_data,
};
use super::{KINDS, Ledger};
use crate::random::Deck;
use crate::{Ending, Outcome, Terminal};
use seriatim::{Session, TransactError};

/// One terminal.
pub struct TatpTerminal {
    inputs: Inputs,
    deck: Deck,
    ledger: Arc<Ledger>,
}

impl TatpTerminal {
    pub(super) fn new(inputs: Inputs, mix: [u32; KINDS.len()], ledger: Arc<Ledger>) -> TatpTerminal {
        TatpTerminal { inputs, deck: Deck::new(&mix), ledger }
    }

    /// Runs a transaction of the kind; how many rows it added to call_forwarding.
    fn run(&mut self, kind: usize, session: &mut Session) -> Result<i64, TransactError> {
        let inputs = &mut self.inputs;
        match kind {
            0 => {
                let input = inputs.get_subscriber_data();
                black_box(session.call(get_subscriber_data, &input)?.into_value());
            }
            1 => {
                let input = inputs.get_new_destination();
                black_box(session.call(get_new_destination, &input)?.into_value());
            }
            2 => {
                let input = inputs.get_access_data();
                black_box(session.call(get_access_data, &input)?.into_value());
            }
            3 => {
                let input = inputs.update_subscriber_data();
                session.call(update_subscriber_data, &input)?;
            }
            4 => {
                let input = inputs.update_location();
                session.call(update_location, &input)?;
            }
            5 => {
                let input = inputs.insert_call_forwarding();
                session.call(insert_call_forwarding, &input)?;
                return Ok(1);
            }
            _ => {
                let input = inputs.delete_call_forwarding();
                session.call(delete_call_forwarding, &input)?;
                return Ok(-1);
            }
        }
        Ok(0)
    }
}

impl Terminal for TatpTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        let kind = self.deck.draw(self.inputs.rng());
        let ending = match self.run(kind, session) {
            Ok(added) => {
                self.ledger.forwardings.add_signed(added);
                Ending::Committed
            }
            Err(error) => Ending::of::<Unsuccessful>(error),
        };
        Outcome { kind, ending }
    }
}
