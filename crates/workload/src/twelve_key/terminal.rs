//! A terminal: generates the input, runs the transaction, counts what committed.

use std::hint::black_box;
use std::sync::Arc;

use super::Ledger;
use super::input::{Inputs, KEYS};
use super::options::{Options, Rounds};
use super::transactions::{GivenUp, one_round, two_rounds};
use crate::contract::{CallMode, InExecutor, Later, Now};
use crate::{Ending, ExecutorClient, Outcome, Started, Submitted, Terminal};
use seriatim::{Session, TransactError};

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
    match result {
        Ok(output) => {
            black_box(&output);
            ledger.hot.add(hot as u64);
            ledger.own.add((KEYS - hot) as u64);
            Ending::Committed
        }
        Err(error) => Ending::of::<GivenUp>(error),
    }
}

impl Terminal for TwelveKeyTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        self.one::<Now>(session)
    }

    fn submit_one(&mut self, session: &mut Session) -> Submitted {
        self.one::<Later>(session)
    }

    fn start_one(&mut self, client: &mut ExecutorClient) -> Started {
        self.one::<InExecutor>(client)
    }
}
