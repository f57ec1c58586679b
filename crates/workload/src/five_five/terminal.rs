//! A terminal: generates the input, runs the transaction, remembers what it wrote.

use std::hint::black_box;
use std::sync::Arc;

use super::Ledger;
use super::input::{Inputs, ReadWriteInput};
use super::transactions::read_write;
use crate::contract::{Later, Now, Way};
use crate::{Ending, Outcome, Submitted, Terminal};
use seriatim::Session;

impl Ledger {
    fn committed(&self, input: &ReadWriteInput) {
        self.committed.add(1);
        for id in std::iter::once(&input.both).chain(&input.writes) {
            self.last[*id as usize].set(input.value);
        }
    }
}

/// One terminal.
pub struct FiveFiveTerminal {
    inputs: Inputs,
    ledger: Arc<Ledger>,
}

impl FiveFiveTerminal {
    pub(super) fn new(inputs: Inputs, ledger: Arc<Ledger>) -> FiveFiveTerminal {
        FiveFiveTerminal { inputs, ledger }
    }

    fn one<W: Way>(&mut self, session: &mut Session) -> W::Answer {
        let input = self.inputs.read_write();
        W::call(session, 0, read_write, &input, &self.ledger, move |ledger, result| match result {
            Ok(sum) => {
                black_box(sum);
                ledger.committed(&input);
                Ending::Committed
            }
            Err(error) => Ending::Failed(error),
        })
    }
}

impl Terminal for FiveFiveTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        self.one::<Now>(session)
    }

    fn submit_one(&mut self, session: &mut Session) -> Submitted {
        self.one::<Later>(session)
    }
}
