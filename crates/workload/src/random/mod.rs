//! Distributions that benchmarks draw from: decks of cards, Zipf's law, random text.

mod deck;
mod text;
mod zipfian;

pub use deck::Deck;
pub use text::{a_string, a_text, n_text};
pub use zipfian::{Scrambled, Zipfian};
