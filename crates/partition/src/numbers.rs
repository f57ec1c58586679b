//! Numbers of transactions that have been seen, so that no transaction runs twice.

use std::collections::BTreeMap;

use crate::{ClientId, TransactionId};

/// The highest number of each client, with a value. Numbers of one client grow.
#[derive(Debug)]
pub(crate) struct Numbers<T> {
    highest: BTreeMap<ClientId, (u64, T)>,
}

impl<T: Copy> Numbers<T> {
    pub(crate) fn new() -> Numbers<T> {
        Numbers { highest: BTreeMap::new() }
    }

    /// Notes a number.
    ///
    /// # Errors
    /// If the number is not above all earlier ones of its client: the value of the highest one.
    pub(crate) fn note(&mut self, transaction: TransactionId, with: T) -> Result<(), T> {
        match self.highest.get_mut(&transaction.client) {
            Some((highest, earlier)) if transaction.number <= *highest => Err(*earlier),
            Some(known) => {
                *known = (transaction.number, with);
                Ok(())
            }
            None => {
                self.highest.insert(transaction.client, (transaction.number, with));
                Ok(())
            }
        }
    }
}
