//! A terminal: generates the input, runs the transaction, counts what committed.

use std::hint::black_box;
use std::sync::Arc;

use super::Ledger;
use super::input::{Inputs, KEYS};
use super::options::{Options, Rounds};
use super::transactions::{GivenUp, one_round, two_rounds};
use crate::{Ending, Outcome, Terminal};
use seriatim::Session;

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

impl Terminal for TwelveKeyTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        let input = self.inputs.keys();
        let result = if input.is_multi() && self.rounds == Rounds::Two {
            session.call(two_rounds, &input)
        } else {
            session.call(one_round, &input)
        };
        let ending = match result {
            Ok(output) => {
                black_box(&output.value);
                let hot = input.keys.iter().filter(|key| key.is_hot()).count();
                self.ledger.hot.add(hot as u64);
                self.ledger.own.add((KEYS - hot) as u64);
                Ending::Committed
            }
            Err(error) => Ending::of::<GivenUp>(error),
        };
        Outcome { kind: usize::from(input.is_multi()), ending }
    }
}
