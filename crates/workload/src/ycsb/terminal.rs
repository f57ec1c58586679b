//! A YCSB terminal: generates the operations of a transaction, runs them, counts what committed.

use std::hint::black_box;
use std::sync::Arc;

use super::Ledger;
use super::input::{INSERT, Inputs, Operation};
use super::table::{Shape, Tables};
use crate::{Ending, Outcome, Terminal};
use seriatim::Session;

/// One terminal.
pub struct YcsbTerminal<T: Shape> {
    tables: Tables<T>,
    inputs: Inputs,
    ledger: Arc<Ledger>,
}

impl<T: Shape> YcsbTerminal<T> {
    pub(super) fn new(tables: Tables<T>, inputs: Inputs, ledger: Arc<Ledger>) -> YcsbTerminal<T> {
        YcsbTerminal { tables, inputs, ledger }
    }
}

impl<T: Shape> Terminal for YcsbTerminal<T> {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        let (tables, input) = (&self.tables, self.inputs.operations(T::FIELDS));
        let count =
            |is: fn(&Operation) -> bool| input.operations.iter().filter(|operation| is(operation)).count() as u64;
        let (writes, inserts) = (count(Operation::writes), count(|operation| operation.kind == INSERT));
        let kind = match input.operations[..] {
            [only] => usize::from(only.kind),
            _ => usize::from(writes + inserts > 0),
        };
        let ending = match session.transact(|tx| T::run(tx, tables, input)) {
            Ok(sum) => {
                black_box(*sum);
                self.ledger.writes.add(writes);
                self.ledger.inserts.add(inserts);
                Ending::Committed
            }
            Err(error) => Ending::Failed(error),
        };
        Outcome { kind, ending }
    }
}
