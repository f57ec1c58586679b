//! Options of SmallBank and their command-line spelling.

use super::{KINDS, SmallBank};
use crate::registry::{Misuse, Values};
use crate::{Workload, mix};

/// Which customers are hot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// None.
    Uniform,
    /// The first ones.
    Hotspot {
        /// How many.
        size: u64,
        /// Percent of the transactions that are within.
        percent: u8,
    },
    /// Zipf's law, the first customer the hottest.
    Zipfian {
        /// Skew, in `[0, 1)`.
        theta: f64,
    },
}

impl Keys {
    /// # Panics
    /// If two different customers of `accounts` cannot be drawn.
    pub(super) fn check(self, accounts: u64) {
        assert!(accounts >= 2, "a transfer needs two accounts");
        if let Keys::Hotspot { size, percent } = self {
            assert!(size >= 2 && size + 2 <= accounts && percent <= 100, "a transfer needs two accounts on each side");
        }
    }
}

/// Options of SmallBank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Customers, at least 2.
    pub accounts: u64,
    /// Which are hot.
    pub keys: Keys,
    /// Cards of each kind of transaction in a deck, in the order of [`KINDS`].
    pub mix: [u32; KINDS.len()],
    /// Determines the population.
    pub seed: u64,
}

impl Options {
    /// H-Store's mix.
    pub const STANDARD: [u32; KINDS.len()] = [15, 15, 15, 15, 15, 25];
    /// The mix of the paper, which has no SendPayment.
    pub const UNIFORM: [u32; KINDS.len()] = [1, 1, 1, 1, 1, 0];

    /// The standard mix over customers none of which is hot.
    pub const fn new(accounts: u64, seed: u64) -> Options {
        Options { accounts, keys: Keys::Uniform, mix: Options::STANDARD, seed }
    }
}

/// SmallBank from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing, or two that contradict each other.
pub fn open(values: &Values) -> Result<Box<dyn Workload>, Misuse> {
    let accounts: u64 = values.number("accounts", 2, 1_000_000_000)?;
    let mix = mix::cards(values, &KINDS, &[("standard", Options::STANDARD), ("uniform", Options::UNIFORM)])?;
    let percent = values.number("hotspot-percent", 0, 100)?;
    let theta: f64 = values.number("theta", 0.0, 1.0)?;
    if theta >= 1.0 {
        return Err(Misuse::new("theta", values.text("theta")?, "at least 0 and below 1"));
    }
    let keys = if theta > 0.0 {
        if percent > 0 {
            let given = values.text("hotspot-percent")?;
            return Err(Misuse::new("hotspot-percent", given, "0 with --theta, which sets the skew"));
        }
        Keys::Zipfian { theta }
    } else if percent > 0 {
        if accounts < 4 {
            return Err(Misuse::new("accounts", values.text("accounts")?, "at least 4 with a hotspot"));
        }
        Keys::Hotspot { size: values.number("hotspot", 2, accounts - 2)?, percent }
    } else {
        Keys::Uniform
    };
    Ok(Box::new(SmallBank::new(Options { accounts, keys, mix, seed: values.seed() })))
}

#[cfg(test)]
mod tests {
    use crate::smallbank::ENTRY;
    use crate::test_support;

    #[test]
    fn knobs_that_contradict_each_other_are_refused_with_the_reason() {
        let open = |knobs: &[(&str, &str)]| test_support::open(&ENTRY, knobs);
        assert_eq!(open(&[("hotspot", "10"), ("hotspot-percent", "90"), ("mix", "uniform")]), Ok(()));
        assert_eq!(open(&[("theta", "0.9"), ("mix", "write-check")]), Ok(()));
        for (knobs, wants) in [
            (&[("accounts", "1")][..], "from 2"),
            (&[("theta", "1")], "below 1"),
            (&[("theta", "0.5"), ("hotspot-percent", "1")], "0 with --theta"),
            (&[("hotspot-percent", "101")], "from 0 to 100"),
            (&[("accounts", "50"), ("hotspot-percent", "10")], "from 2 to 48"),
            (&[("accounts", "3"), ("hotspot-percent", "10")], "at least 4"),
            (&[("mix", "1:2:3")], "6 counts"),
        ] {
            let misuse = open(knobs).expect_err("these cannot be");
            assert!(misuse.contains(wants), "{misuse}");
        }
    }
}
