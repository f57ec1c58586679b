//! A terminal of Articles: draws a card, generates the input, runs the transaction, books what it committed.

use std::hint::black_box;
use std::sync::Arc;

use super::input::Inputs;
use super::transactions::{add_comment, get_article, get_articles, update_user_info};
use super::{KINDS, Ledger};
use crate::random::Deck;
use crate::{Ending, Outcome, Terminal};
use seriatim::{Session, TransactError};

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

    fn run(&mut self, kind: usize, session: &mut Session) -> Result<(), TransactError> {
        let inputs = &mut self.inputs;
        match kind {
            0 => {
                let input = inputs.get_article();
                black_box(session.call(get_article, &input)?.into_value());
            }
            1 => {
                let input = inputs.get_articles();
                black_box(session.call(get_articles, &input)?.into_value());
            }
            2 => {
                let input = inputs.add_comment();
                session.call(add_comment, &input)?;
                self.ledger.comments.add(1);
            }
            _ => {
                let input = inputs.update_user_info();
                session.call(update_user_info, &input)?;
                self.ledger.changes.add(1);
            }
        }
        Ok(())
    }
}

impl Terminal for ArticlesTerminal {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        let kind = self.deck.draw(self.inputs.rng());
        let ending = match self.run(kind, session) {
            Ok(()) => Ending::Committed,
            Err(error) => Ending::Failed(error),
        };
        Outcome { kind, ending }
    }
}
