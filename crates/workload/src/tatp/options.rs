//! Options of TATP and their command-line spelling.

use super::{KINDS, Tatp};
use crate::registry::{Misuse, Values};
use crate::{Workload, mix};

/// Which subscribers transactions are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Some more often: NURand with the description's A.
    Skewed,
    /// All alike.
    Uniform,
}

/// Options of TATP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Subscribers, 1 to [`Options::SUBSCRIBERS_MAX`].
    pub subscribers: u32,
    /// Which of them are hot.
    pub keys: Keys,
    /// Cards of each kind of transaction in a deck, in the order of [`KINDS`].
    pub mix: [u32; KINDS.len()],
    /// Determines the population.
    pub seed: u64,
}

impl Options {
    /// Most subscribers.
    pub const SUBSCRIBERS_MAX: u32 = 1_000_000_000;
    /// The description's mix.
    pub const STANDARD: [u32; KINDS.len()] = [35, 10, 35, 2, 14, 2, 2];

    /// The description's mix and distribution.
    pub const fn new(subscribers: u32, seed: u64) -> Options {
        Options { subscribers, keys: Keys::Skewed, mix: Options::STANDARD, seed }
    }
}

/// TATP from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing.
pub fn open(values: &Values) -> Result<Box<dyn Workload>, Misuse> {
    let subscribers = values.number("subscribers", 1, Options::SUBSCRIBERS_MAX)?;
    let mix = mix::cards(values, &KINDS, &[("standard", Options::STANDARD)])?;
    let keys = match values.text("keys")? {
        "skewed" => Keys::Skewed,
        "uniform" => Keys::Uniform,
        other => return Err(Misuse::new("keys", other, "skewed or uniform")),
    };
    Ok(Box::new(Tatp::new(Options { subscribers, keys, mix, seed: values.seed() })))
}

#[cfg(test)]
mod tests {
    use crate::tatp::ENTRY;
    use crate::test_support;

    #[test]
    fn invalid_values_are_refused_with_the_valid_ones() {
        let open = |name: &str, value: &str| test_support::open(&ENTRY, &[(name, value)]);
        assert_eq!(open("mix", "update-location"), Ok(()));
        assert_eq!(open("keys", "uniform"), Ok(()));
        for (name, value, wants) in
            [("subscribers", "0", "from 1"), ("keys", "hot", "uniform"), ("mix", "1:2", "7 counts")]
        {
            let misuse = open(name, value).expect_err("this cannot be");
            assert!(misuse.contains(wants), "{misuse}");
        }
    }
}
