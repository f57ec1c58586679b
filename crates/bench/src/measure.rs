//! Runs arms in turn, and summarizes their rates.

use std::fmt;

use serde_json::{Value, json};
use seriatim_base::clock::Instant;
use seriatim_base::{interrupt, talk};

/// How long an arm runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    /// A number of operations.
    Operations(u64),
    /// A number of seconds.
    Seconds(f64),
}

impl Length {
    /// The seconds, if the length is in seconds.
    pub(crate) fn seconds(self) -> Option<f64> {
        match self {
            Length::Seconds(seconds) => Some(seconds),
            Length::Operations(_) => None,
        }
    }
}

/// Operations between two checks of the clock.
const BATCH: u64 = 1_000;

/// Repeats an operation. Returns its rate per second.
pub(crate) fn rate(length: Length, mut operation: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut operations = 0;
    let mut run = |count: u64| {
        (0..count).for_each(|_| operation());
        operations += count;
        begin.elapsed().as_secs_f64()
    };
    let seconds = match length {
        Length::Operations(count) => run(count),
        Length::Seconds(wanted) => loop {
            let seconds = run(BATCH);
            if seconds >= wanted {
                break seconds;
            }
        },
    };
    operations as f64 / seconds.max(1e-9)
}

/// One arm of a comparison: returns its rate for a length and a seed.
pub(crate) type Arm<'a> = &'a mut dyn FnMut(Length, u64) -> f64;

/// The items until a signal asks the measurement to end; at least the first.
pub(crate) fn until_signal<I: IntoIterator>(items: I) -> impl Iterator<Item = I::Item> {
    let items = items.into_iter().enumerate();
    items.take_while(|(at, _)| *at == 0 || !interrupt::is_requested()).map(|(_, item)| item)
}

/// Runs the arms in turn, in reverse order in every other round, each round with its own seed. Returns the
/// rates of each arm. Reports its progress. A signal ends it after the current round.
pub(crate) fn alternate(arms: &mut [Arm<'_>], rounds: u32, length: Length, seed: u64) -> Vec<Vec<f64>> {
    let mut rates = vec![Vec::new(); arms.len()];
    for round in until_signal(0..u64::from(rounds)) {
        let mut turn: Vec<_> = arms.iter_mut().zip(&mut rates).collect();
        if round % 2 == 1 {
            turn.reverse();
        }
        for (arm, rates) in turn {
            rates.push(arm(length, seed + round));
        }
        talk!("round {} of {rounds}", round + 1);
    }
    rates
}

/// The quantile `part`, from 0 to 1, with linear interpolation. `None` without numbers.
pub(crate) fn quantile(numbers: &[f64], part: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = part * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// Median and quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quartiles {
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
}

impl Quartiles {
    /// Of at least one number, with linear interpolation.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Quartiles {
        let numbers: Vec<f64> = numbers.into_iter().collect();
        let at = |part| quantile(&numbers, part).expect("at least one");
        Quartiles { lower: at(0.25), median: at(0.5), upper: at(0.75) }
    }

    pub(crate) fn json(self) -> Value {
        json!({ "lower": self.lower, "median": self.median, "upper": self.upper })
    }

    /// Of the ratios of paired numbers.
    pub(crate) fn of_ratios(above: &[f64], below: &[f64]) -> Quartiles {
        Quartiles::of(above.iter().zip(below).map(|(above, below)| above / below))
    }
}

impl fmt::Display for Quartiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(3);
        let text = format!("{:.places$} ({:.places$}-{:.places$})", self.median, self.lower, self.upper);
        f.pad_integral(true, "", &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_neighbours() {
        let quartiles = Quartiles::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(quartiles, Quartiles { lower: 1.75, median: 2.5, upper: 3.25 });
        assert_eq!(Quartiles::of([7.0]), Quartiles { lower: 7.0, median: 7.0, upper: 7.0 });
        assert_eq!(format!("{quartiles:.1}"), "2.5 (1.8-3.2)");
    }

    #[test]
    fn arms_take_turns_and_share_the_seeds() {
        let log = std::cell::RefCell::new(Vec::new());
        let mut first = |_: Length, seed: u64| {
            log.borrow_mut().push(('a', seed));
            seed as f64
        };
        let mut second = |_: Length, seed: u64| {
            log.borrow_mut().push(('b', seed));
            2.0 * seed as f64
        };
        let rates = alternate(&mut [&mut first, &mut second], 3, Length::Operations(1), 5);
        assert_eq!(*log.borrow(), [('a', 5), ('b', 5), ('b', 6), ('a', 6), ('a', 7), ('b', 7)]);
        assert_eq!(Quartiles::of_ratios(&rates[1], &rates[0]).median, 2.0);
    }

    #[test]
    fn a_length_in_operations_is_exact() {
        let mut count = 0;
        assert!(rate(Length::Operations(77), || count += 1) > 0.0);
        assert_eq!(count, 77);
    }
}
