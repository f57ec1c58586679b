//! A terminal: generates the input, runs the transaction, counts what committed.

use std::hint::black_box;
use std::sync::Arc;

use super::Ledger;
use super::input::{Inputs, KEYS};
use super::transactions::update;
use crate::{Ending, Outcome, Terminal};
use seriatim::Session;

/// One terminal.
pub struct MultiKeyTerminal {
    inputs: Inputs,
    ledger: Arc<Ledger>,
}

impl MultiKeyTerminal {
    pub(super) fn new(inputs: Inputs, ledger: Arc<Ledger>) -> MultiKeyTerminal {
        MultiKeyTerminal { inputs, ledger }
    }
}

impl Terminal for MultiKeyTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        let input = self.inputs.update();
        let ending = match session.call(update, &input) {
            Ok(sum) => {
                black_box(*sum);
                self.ledger.updates.add(KEYS as u64);
                self.ledger.amounts.add(input.amount.wrapping_mul(KEYS as u64));
                Ending::Committed
            }
            Err(error) => Ending::Failed(error),
        };
        Outcome { kind: 0, ending }
    }
}
