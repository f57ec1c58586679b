//! A SmallBank terminal: draws a card, generates the input, runs the transaction, books what it committed.

use std::hint::black_box;
use std::sync::Arc;

use super::input::Inputs;
use super::schema::Money;
use super::transactions::{
    InsufficientFunds, amalgamate, balance, deposit_checking, send_payment, transact_savings, write_check,
};
use super::{KINDS, Ledger};
use crate::random::Deck;
use crate::{Ending, Outcome, Terminal};
use seriatim::{Session, TransactError};

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

    /// Runs a transaction of the kind; what it added to all savings and to all checking accounts.
    fn run(&mut self, kind: usize, session: &mut Session) -> Result<(Money, Money), TransactError> {
        let inputs = &mut self.inputs;
        Ok(match kind {
            0 => {
                let input = inputs.balance();
                black_box(session.call(balance, &input)?.into_value());
                (Money::ZERO, Money::ZERO)
            }
            1 => {
                let input = inputs.deposit_checking();
                session.call(deposit_checking, &input)?;
                (Money::ZERO, input.amount)
            }
            2 => {
                let input = inputs.transact_savings();
                session.call(transact_savings, &input)?;
                (input.amount, Money::ZERO)
            }
            3 => {
                let input = inputs.amalgamate();
                let moved = session.call(amalgamate, &input)?;
                (-moved.savings, moved.savings)
            }
            4 => {
                let input = inputs.write_check();
                let taken = session.call(write_check, &input)?;
                (Money::ZERO, -*taken)
            }
            _ => {
                let input = inputs.send_payment();
                session.call(send_payment, &input)?;
                (Money::ZERO, Money::ZERO)
            }
        })
    }
}

impl Terminal for SmallBankTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        let kind = self.deck.draw(self.inputs.rng());
        let ending = match self.run(kind, session) {
            Ok((savings, checking)) => {
                self.ledger.savings.add_signed(savings.units());
                self.ledger.checking.add_signed(checking.units());
                Ending::Committed
            }
            Err(error) => Ending::of::<InsufficientFunds>(error),
        };
        Outcome { kind, ending }
    }
}
