//! A terminal of Articles: draws a card, generates the input, runs the transaction, and records commits.

use std::convert::Infallible;
use std::sync::Arc;

use super::input::Inputs;
use super::transactions::{add_comment, get_article, get_articles, update_user_info};
use super::{KINDS, Ledger};
use crate::Ending;
use crate::contract::{CallMode, Calls};
use crate::random::Deck;
use seriatim::TransactError;

/// One terminal.
pub struct ArticlesTerminal {
    inputs: Inputs,
    deck: Deck,
    ledger: Arc<Ledger>,
}

impl ArticlesTerminal {
    pub(super) fn new(inputs: Inputs, mix: [u32; KINDS.len()], ledger: Arc<Ledger>) -> ArticlesTerminal {
        ArticlesTerminal { inputs, deck: Deck::new(&mix), ledger }
    }
}

impl Calls for ArticlesTerminal {
    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer {
        let kind = self.deck.draw(self.inputs.rng());
        let (inputs, ledger) = (&mut self.inputs, &self.ledger);
        match kind {
            0 => W::call(caller, kind, get_article, &inputs.get_article(), ledger, |_, result| ending(result)),
            1 => W::call(caller, kind, get_articles, &inputs.get_articles(), ledger, |_, result| ending(result)),
            2 => W::call(caller, kind, add_comment, &inputs.add_comment(), ledger, |ledger, result| {
                ledger.comments.add(u64::from(result.is_ok()));
                ending(result)
            }),
            _ => W::call(caller, kind, update_user_info, &inputs.update_user_info(), ledger, |ledger, result| {
                ledger.changes.add(u64::from(result.is_ok()));
                ending(result)
            }),
        }
    }
}

#[inline]
fn ending<R>(result: Result<R, TransactError>) -> Ending {
    Ending::after::<Infallible, R>(result, |_| {})
}
