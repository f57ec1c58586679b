//! A SmallBank terminal: draws a card, generates the input, runs the transaction, and records commits.

use std::sync::Arc;

use super::input::Inputs;
use super::transactions::{
    InsufficientFunds, amalgamate, balance, deposit_checking, send_payment, transact_savings, write_check,
};
use super::{KINDS, Ledger};
use crate::Ending;
use crate::contract::{CallMode, Calls};
use crate::random::Deck;
use seriatim::TransactError;

/// One terminal.
pub struct SmallBankTerminal {
    inputs: Inputs,
    deck: Deck,
    ledger: Arc<Ledger>,
}

impl SmallBankTerminal {
    pub(super) fn new(inputs: Inputs, mix: [u32; KINDS.len()], ledger: Arc<Ledger>) -> SmallBankTerminal {
        SmallBankTerminal { inputs, deck: Deck::new(&mix), ledger }
    }
}

impl Calls for SmallBankTerminal {
    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer {
        let kind = self.deck.draw(self.inputs.rng());
        let (inputs, ledger) = (&mut self.inputs, &self.ledger);
        match kind {
            0 => W::call(caller, kind, balance, &inputs.balance(), ledger, |ledger, result| {
                ending(ledger, result, |_| (0, 0))
            }),
            1 => {
                let input = inputs.deposit_checking();
                let amount = input.amount.units();
                W::call(caller, kind, deposit_checking, &input, ledger, move |ledger, result| {
                    ending(ledger, result, |_| (0, amount))
                })
            }
            2 => {
                let input = inputs.transact_savings();
                let amount = input.amount.units();
                W::call(caller, kind, transact_savings, &input, ledger, move |ledger, result| {
                    ending(ledger, result, |_| (amount, 0))
                })
            }
            3 => W::call(caller, kind, amalgamate, &inputs.amalgamate(), ledger, |ledger, result| {
                ending(ledger, result, |moved| (-moved.savings.units(), moved.savings.units()))
            }),
            4 => W::call(caller, kind, write_check, &inputs.write_check(), ledger, |ledger, result| {
                ending(ledger, result, |taken| (0, -taken.value.units()))
            }),
            _ => W::call(caller, kind, send_payment, &inputs.send_payment(), ledger, |ledger, result| {
                ending(ledger, result, |_| (0, 0))
            }),
        }
    }
}

/// How a transaction ended; if it committed, `added` says how many cents it added to all savings and to all checking
/// accounts.
#[inline]
fn ending<R>(ledger: &Ledger, result: Result<R, TransactError>, added: impl Fn(&R) -> (i64, i64)) -> Ending {
    Ending::after::<InsufficientFunds, R>(result, |output| {
        let (savings, checking) = added(output);
        ledger.savings.add_signed(savings);
        ledger.checking.add_signed(checking);
    })
}
