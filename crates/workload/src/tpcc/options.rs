//! Options of TPC-C and their command-line spelling.

use super::input::Remote;
use super::scale::Scale;
use super::{KINDS, Tpcc};
use crate::registry::{Misuse, Values};
use crate::{Workload, mix};

/// Cards of each kind of transaction in a deck, in the order of [`KINDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix(pub [u32; KINDS.len()]);

impl Mix {
    /// The standard mix (clause 5.2.3), with the minimum of each kind and the rest for New-Order.
    pub const FULL: Mix = Mix([45, 43, 4, 4, 4]);

    const NAMED: [(&str, [u32; KINDS.len()]); 3] =
        [("full", Mix::FULL.0), ("read-only", [0, 0, 1, 0, 1]), ("new-order-payment", [50, 50, 0, 0, 0])];
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
    /// Whether all tables are ordered; else those that are only read by whole keys are hashed.
    pub is_ordered: bool,
    /// Determines the population and the constants of NURand.
    pub seed: u64,
}

impl Options {
    /// The specification's mix and percentages.
    pub const fn new(scale: Scale, seed: u64) -> Options {
        Options { scale, mix: Mix::FULL, remote: Remote::SPEC, is_ordered: false, seed }
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
    let mix = Mix(mix::cards(values, &KINDS, &Mix::NAMED)?);
    let remote = Remote {
        lines: values.number("remote", 0, 100)? as u8,
        payments: values.number("remote-payments", 0, 100)? as u8,
    };
    let is_ordered = match values.text("index")? {
        "mixed" => false,
        "ordered" => true,
        other => return Err(Misuse::new("index", other, "mixed or ordered")),
    };
    Ok(Box::new(Tpcc::new(Options { scale, mix, remote, is_ordered, seed: values.seed() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_named_or_counted() {
        let mix = |text| mix::parse(text, &KINDS, &Mix::NAMED).map(Mix);
        assert_eq!(mix("full"), Ok(Mix::FULL));
        assert_eq!(mix("read-only"), Ok(Mix([0, 0, 1, 0, 1])));
        assert_eq!(mix("new-order"), Ok(Mix([1, 0, 0, 0, 0])));
        assert_eq!(mix("10:20:0:0:1"), Ok(Mix([10, 20, 0, 0, 1])));
        for wrong in ["", "half", "1:2:3", "0:0:0:0:0", "1:2:3:4:5:6", "1:2:3:4:x", "1:2:3:4:5:", "9999:1:1:1:1"] {
            assert!(mix(wrong).is_err(), "{wrong}");
        }
    }
}
