//! Distributions that benchmarks draw from: decks of cards, NURand, Zipf's law, random text.

mod deck;
mod nurand;
mod text;
mod zipfian;

pub use deck::Deck;
pub(crate) use nurand::nurand;
pub use text::{a_string, a_text, n_text};
pub use zipfian::{Scrambled, Zipfian};
