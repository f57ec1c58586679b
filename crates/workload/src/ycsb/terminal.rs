//! A YCSB terminal: generates the operations of a transaction, runs them, counts what committed.

use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Ledger;
use super::input::{INSERT, Inputs, Operation};
use super::table::UserTable;
use crate::contract::{CallMode, InExecutor, Later, Now};
use crate::{Ending, ExecutorClient, Outcome, Started, Submitted, Terminal};
use seriatim::Session;

/// One terminal.
pub struct YcsbTerminal<T: UserTable> {
    table: PhantomData<T>,
    inputs: Inputs,
    ledger: Arc<Ledger>,
}

impl<T: UserTable> YcsbTerminal<T> {
    pub(super) fn new(inputs: Inputs, ledger: Arc<Ledger>) -> YcsbTerminal<T> {
        YcsbTerminal { table: PhantomData, inputs, ledger }
    }

    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer {
        let input = self.inputs.operations(T::FIELDS);
        let count =
            |is: fn(&Operation) -> bool| input.operations.iter().filter(|operation| is(operation)).count() as u64;
        let (writes, inserts) = (count(Operation::writes), count(|operation| operation.kind == INSERT));
        let kind = match input.operations[..] {
            [only] => usize::from(only.kind),
            _ => usize::from(writes + inserts > 0),
        };
        W::call(caller, kind, T::OPERATIONS, input, &self.ledger, move |ledger, result| match result {
            Ok(sum) => {
                black_box(sum);
                ledger.writes.add(writes);
                ledger.inserts.add(inserts);
                Ending::Committed
            }
            Err(error) => Ending::Failed(error),
        })
    }
}

impl<T: UserTable> Terminal for YcsbTerminal<T> {
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
