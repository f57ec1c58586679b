//! A YCSB terminal: generates the operations of a transaction, runs them, counts what committed.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Ledger;
use super::input::{INSERT, Inputs, Operation};
use super::table::UserTable;
use crate::Ending;
use crate::contract::{CallMode, Calls};

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
}

impl<T: UserTable> Calls for YcsbTerminal<T> {
    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer {
        let input = self.inputs.operations(T::FIELDS);
        let count =
            |is: fn(&Operation) -> bool| input.operations.iter().filter(|operation| is(operation)).count() as u64;
        let (writes, inserts) = (count(Operation::writes), count(|operation| operation.kind == INSERT));
        let kind = match input.operations[..] {
            [only] => usize::from(only.kind),
            _ => usize::from(writes + inserts > 0),
        };
        W::call(caller, kind, T::OPERATIONS, input, &self.ledger, move |ledger, result| {
            Ending::after::<Infallible, _>(result, |_| {
                ledger.writes.add(writes);
                ledger.inserts.add(inserts);
            })
        })
    }
}
