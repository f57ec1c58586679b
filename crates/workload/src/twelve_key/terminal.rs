//! A terminal: generates the input, runs the transaction, counts what committed.

use std::sync::Arc;

use super::Ledger;
use super::input::{Inputs, KEYS};
use super::options::{Options, Rounds};
use super::transactions::{GivenUp, one_round, two_rounds};
use crate::Ending;
use crate::contract::{CallMode, Calls};
use seriatim::TransactError;

/// One terminal.
pub struct TwelveKeyTerminal {
    inputs: Inputs,
    rounds: Rounds,
    ledger: Arc<Ledger>,
}

impl TwelveKeyTerminal {
    pub(super) fn new(inputs: Inputs, options: Options, ledger: Arc<Ledger>) -> TwelveKeyTerminal {
        TwelveKeyTerminal { inputs, rounds: options.rounds, ledger }
    }
}

impl Calls for TwelveKeyTerminal {
    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer {
        let input = self.inputs.keys();
        let kind = usize::from(input.is_multi());
        let hot = input.keys.iter().filter(|key| key.is_hot()).count();
        if input.is_multi() && self.rounds == Rounds::Two {
            W::call(caller, kind, two_rounds, &input, &self.ledger, move |ledger, result| booked(ledger, hot, result))
        } else {
            W::call(caller, kind, one_round, &input, &self.ledger, move |ledger, result| booked(ledger, hot, result))
        }
    }
}

/// The end of a transaction with this many hot keys.
#[inline]
fn booked<R>(ledger: &Ledger, hot: usize, result: Result<R, TransactError>) -> Ending {
    Ending::after::<GivenUp, R>(result, |_| {
        ledger.hot.add(hot as u64);
        ledger.own.add((KEYS - hot) as u64);
    })
}
