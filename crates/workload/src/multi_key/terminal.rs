//! A terminal: generates the input, runs the transaction, counts what committed.

use std::hint::black_box;
use std::sync::Arc;

use super::Ledger;
use super::input::{Inputs, KEYS};
use super::transactions::update;
use crate::contract::{Later, Now, Way};
use crate::{Ending, Outcome, Submitted, Terminal};
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

    fn one<W: Way>(&mut self, session: &mut Session) -> W::Answer {
        let input = self.inputs.update();
        let amounts = input.amount.wrapping_mul(KEYS as u64);
        W::call(session, 0, update, &input, &self.ledger, move |ledger, result| match result {
            Ok(sum) => {
                black_box(sum);
                ledger.updates.add(KEYS as u64);
                ledger.amounts.add(amounts);
                Ending::Committed
            }
            Err(error) => Ending::Failed(error),
        })
    }
}

impl Terminal for MultiKeyTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        self.one::<Now>(session)
    }

    fn submit_one(&mut self, session: &mut Session) -> Submitted {
        self.one::<Later>(session)
    }
}
