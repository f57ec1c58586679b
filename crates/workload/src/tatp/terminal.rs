//! A TATP terminal: draws a card, generates the input, runs the transaction, and records call forwardings.

use std::sync::Arc;

use super::input::Inputs;
use super::transactions::{
    Unsuccessful, delete_call_forwarding, get_access_data, get_new_destination, get_subscriber_data,
    insert_call_forwarding, update_location, update_subscriber_data,
};
use super::{KINDS, Ledger};
use crate::Ending;
use crate::contract::{CallMode, Calls};
use crate::random::Deck;
use seriatim::TransactError;

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
}

impl Calls for TatpTerminal {
    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer {
        let kind = self.deck.draw(self.inputs.rng());
        let (inputs, ledger) = (&mut self.inputs, &self.ledger);
        match kind {
            0 => {
                let input = inputs.get_subscriber_data();
                W::call(caller, kind, get_subscriber_data, &input, ledger, |ledger, result| ending(ledger, 0, result))
            }
            1 => {
                let input = inputs.get_new_destination();
                W::call(caller, kind, get_new_destination, &input, ledger, |ledger, result| ending(ledger, 0, result))
            }
            2 => {
                let input = inputs.get_access_data();
                W::call(caller, kind, get_access_data, &input, ledger, |ledger, result| ending(ledger, 0, result))
            }
            3 => {
                let input = inputs.update_subscriber_data();
                W::call(caller, kind, update_subscriber_data, &input, ledger, |ledger, result| {
                    ending(ledger, 0, result)
                })
            }
            4 => {
                let input = inputs.update_location();
                W::call(caller, kind, update_location, &input, ledger, |ledger, result| ending(ledger, 0, result))
            }
            5 => {
                let input = inputs.insert_call_forwarding();
                W::call(caller, kind, insert_call_forwarding, &input, ledger, |ledger, result| {
                    ending(ledger, 1, result)
                })
            }
            _ => {
                let input = inputs.delete_call_forwarding();
                W::call(caller, kind, delete_call_forwarding, &input, ledger, |ledger, result| {
                    ending(ledger, -1, result)
                })
            }
        }
    }
}

/// The end of a transaction that adds this many rows to call_forwarding if it commits.
#[inline]
fn ending<R>(ledger: &Ledger, added: i64, result: Result<R, TransactError>) -> Ending {
    Ending::after::<Unsuccessful, R>(result, |_| ledger.forwardings.add_signed(added))
}
