//! A deck of cards (TPC-C clause 5.2.4.2): kinds come in random order, and exactly in proportion over every full deck.
//!
//! Fisher–Yates one step per draw, so no draw pays for a whole shuffle.

use seriatim::Rng;

/// Cards that are drawn without replacement; the deck is whole again after the last.
#[derive(Clone, Debug)]
pub struct Deck {
    cards: Box<[u8]>,
    drawn: usize,
}

impl Deck {
    /// `counts[k]` cards of each kind k.
    ///
    /// # Panics
    /// If there is no card at all, or more than 256 kinds.
    pub fn new(counts: &[u32]) -> Deck {
        assert!(counts.len() <= 256);
        let cards: Box<[u8]> =
            counts.iter().enumerate().flat_map(|(kind, &n)| std::iter::repeat_n(kind as u8, n as usize)).collect();
        assert!(!cards.is_empty(), "a deck needs at least one card");
        Deck { cards, drawn: 0 }
    }

    /// The kind of the next card.
    #[inline]
    pub fn draw(&mut self, rng: &mut Rng) -> usize {
        if self.drawn == self.cards.len() {
            self.drawn = 0;
        }
        let at = self.drawn;
        let pick = at + rng.below((self.cards.len() - at) as u64) as usize;
        self.cards.swap(at, pick);
        self.drawn += 1;
        usize::from(self.cards[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_full_deck_holds_each_kind_exactly_as_often_as_it_has_cards() {
        let (mut deck, mut rng) = (Deck::new(&[45, 43, 4, 4, 4]), Rng::from_seed(1));
        let mut orders = std::collections::HashSet::new();
        for _ in 0..50 {
            let order: Vec<usize> = (0..100).map(|_| deck.draw(&mut rng)).collect();
            assert_eq!([0, 1, 2, 3, 4].map(|k| order.iter().filter(|&&o| o == k).count()), [45, 43, 4, 4, 4]);
            orders.insert(order);
        }
        assert_eq!(orders.len(), 50, "decks come in different orders");
    }

    #[test]
    fn positions_are_uniform() {
        let (mut deck, mut rng) = (Deck::new(&[1, 9]), Rng::from_seed(2));
        let mut first = [0u32; 10];
        for _ in 0..10_000 {
            (0..10).for_each(|at| first[at] += u32::from(deck.draw(&mut rng) == 0));
        }
        assert!(first.iter().all(|&n| (850..1150).contains(&n)), "{first:?}");
    }
}
