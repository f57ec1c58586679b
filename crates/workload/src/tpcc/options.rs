//! Options of TPC-C and their command-line spelling.

use super::input::Remote;
use super::scale::Scale;
use super::{KINDS, Tpcc};
use crate::Workload;
use crate::registry::{Misuse, Values};

/// Cards of each kind of transaction in a deck, in the order of [`KINDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix(pub [u32; KINDS.len()]);

impl Mix {
    /// The standard mix (clause 5.2.3), with the minimum of each kind and the rest for New-Order.
    pub const FULL: Mix = Mix([45, 43, 4, 4, 4]);

    const NAMED: [(&str, Mix); 8] = [
        ("full", Mix::FULL),
        ("new-order", Mix([1, 0, 0, 0, 0])),
        ("payment", Mix([0, 1, 0, 0, 0])),
        ("order-status", Mix([0, 0, 1, 0, 0])),
        ("delivery", Mix([0, 0, 0, 1, 0])),
        ("stock-level", Mix([0, 0, 0, 0, 1])),
        ("read-only", Mix([0, 0, 1, 0, 1])),
        ("new-order-payment", Mix([50, 50, 0, 0, 0])),
    ];
}

impl std::str::FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        if let Some((_, mix)) = Mix::NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*mix);
        }
        let counts: Vec<u32> = text.split(':').filter_map(|count| count.parse().ok().filter(|&n| n <= 1000)).collect();
        match <[u32; KINDS.len()]>::try_from(counts) {
            Ok(counts) if text.split(':').count() == KINDS.len() && counts.iter().any(|&n| n > 0) => Ok(Mix(counts)),
            _ => {
                let names: Vec<&str> = Mix::NAMED.iter().map(|(name, _)| *name).collect();
                Err(format!("a mix is one of {} or five counts up to 1000 such as 45:43:4:4:4", names.join(", ")))
            }
        }
    }
}

/// Options of TPC-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many rows.
    pub scale: Scale,
    /// Which transactions.
    pub mix: Mix,
    /// How often another warehouse is involved.
    pub remote: Remote,
    /// Determines the population and the constants of NURand.
    pub seed: u64,
}

impl Options {
    /// The specification's mix and percentages.
    pub const fn new(scale: Scale, seed: u64) -> Options {
        Options { scale, mix: Mix::FULL, remote: Remote::SPEC, seed }
    }
}

/// TPC-C from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing.
pub fn open(values: &Values) -> Result<Box<dyn Workload>, Misuse> {
    let warehouses = values.number("warehouses", 1, 65_535)? as u16;
    let scale = match values.text("scale")? {
        "spec" => Scale::spec(warehouses),
        "small" => Scale::small(warehouses),
        other => return Err(Misuse::new("scale", other, "spec or small")),
    };
    let text = values.text("mix")?;
    let mix = text.parse().map_err(|right: String| Misuse::new("mix", text, &right))?;
    let remote = Remote {
        lines: values.number("remote", 0, 100)? as u8,
        payments: values.number("remote-payments", 0, 100)? as u8,
    };
    Ok(Box::new(Tpcc::new(Options { scale, mix, remote, seed: values.seed() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_named_or_counted() {
        assert_eq!("full".parse(), Ok(Mix::FULL));
        assert_eq!("new-order".parse(), Ok(Mix([1, 0, 0, 0, 0])));
        assert_eq!("10:20:0:0:1".parse(), Ok(Mix([10, 20, 0, 0, 1])));
        for wrong in ["", "half", "1:2:3", "0:0:0:0:0", "1:2:3:4:5:6", "1:2:3:4:x", "1:2:3:4:5:", "9999:1:1:1:1"] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
    }
}
