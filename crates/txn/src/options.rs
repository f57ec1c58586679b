//! Options of protocols: named settings, chosen when a database is opened.

use std::fmt;

use crate::ProtocolInfo;

/// A knob of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knob {
    /// The name it is set by.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: &'static str,
    /// Its default value.
    pub default: u64,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// A description in one line.
    pub about: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
}

/// Of protocols that can do without validation. Only [`Options::without_validation`] can change its value.
pub const VALIDATE: Knob = Knob {
    name: "validate",
    unit: "1: what was read is validated; 0 gives wrong results, and only `seriatim bench --without-validation` has it",
    default: 1,
    min: 1,
    max: 1,
    about: "whether what was read is validated: always, but for measurements of what that costs",
    source: "Wu and Tan, USENIX ATC 2016, figure 19: HTCC (NV)",
};

/// Of protocols that repair: from when on a procedure's calls keep what a repair needs. The code that runs
/// procedures obeys it.
pub const REPAIR_FROM: Knob = Knob {
    name: "repair_from",
    unit: "% of a procedure's calls in a session; 0: from its first call on",
    default: 30,
    min: 0,
    max: 100,
    about: "how many calls must have met conflicts lately before calls keep what a repair needs",
    source: "ours: keeping costs a call half as much again, which a repair gives back; \
                 the paper's transactions always keep it",
};

/// Of protocols that repair: the largest share of a procedure that a repair runs again. The code that runs
/// procedures obeys it.
pub const REPAIR_SHARE_MAX: Knob = Knob {
    name: "repair_share_max",
    unit: "% of the records and ranges that the procedure has touched",
    default: 50,
    min: 0,
    max: 100,
    about: "how much of what a procedure has touched a repair touches again at most; \
                where more follows from what is stale, the procedure is run again whole",
    source: "ours: a repair saves the lookups of what it makes again, and holds the locks of hot records meanwhile; \
                 the paper repairs whatever it takes",
};

/// Of protocols that repair: whether a repair runs all operations again. The code that runs procedures obeys
/// it too.
pub const REPAIR_ALL: Knob = Knob {
    name: "repair_all",
    unit: "0: no, 1: yes",
    default: 0,
    min: 0,
    max: 1,
    about: "whether a repair makes all operations again, not only those that follow what is stale, \
            whatever `repair_share_max` says: to measure what that is worth",
    source: "Wu and Tan, USENIX ATC 2016, figure 18: HTCC (-S)",
};

/// The options of a protocol: each knob as it was set, or its default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    set: Vec<(&'static str, u64)>,
}

impl Options {
    /// The options of `protocol` with these values; of several for one knob the last counts.
    ///
    /// # Errors
    /// A name that the protocol does not know, or a value out of the knob's range.
    pub fn new(protocol: &'static ProtocolInfo, given: &[(String, u64)]) -> Result<Options, OptionError> {
        let mut options = Options::default();
        for (name, value) in given {
            let Some(knob) = protocol.options.iter().find(|knob| knob.name == name) else {
                return Err(OptionError::Unknown { protocol, name: name.clone() });
            };
            if !(knob.min..=knob.max).contains(value) {
                return Err(OptionError::OutOfRange { knob, value: *value });
            }
            options.set.retain(|(set, _)| *set != knob.name);
            options.set.push((knob.name, *value));
        }
        Ok(options)
    }

    /// Switches validation off, which gives wrong results: to measure what it costs. Values given of the
    /// option are still refused.
    ///
    /// # Errors
    /// The protocol cannot do without.
    pub fn without_validation(mut self, protocol: &'static ProtocolInfo) -> Result<Options, OptionError> {
        let name = VALIDATE.name;
        let Some(knob) = protocol.options.iter().find(|knob| knob.name == name) else {
            return Err(OptionError::Unknown { protocol, name: name.to_owned() });
        };
        self.set.retain(|(set, _)| *set != name);
        self.set.push((knob.name, 0));
        Ok(self)
    }

    /// The value of a knob.
    pub fn get(&self, knob: &Knob) -> u64 {
        self.given(knob).unwrap_or(knob.default)
    }

    /// The value of a knob, if it was set.
    pub fn given(&self, knob: &Knob) -> Option<u64> {
        self.set.iter().find(|(name, _)| *name == knob.name).map(|(_, value)| *value)
    }
}

/// An option cannot be set so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// The protocol has no such option.
    Unknown {
        /// The protocol.
        protocol: &'static ProtocolInfo,
        /// The requested name.
        name: String,
    },
    /// The value is out of the option's range.
    OutOfRange {
        /// The option.
        knob: &'static Knob,
        /// The requested value.
        value: u64,
    },
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Unknown { protocol, name } if protocol.options.is_empty() => {
                write!(f, "protocol {} has no option {name:?}: it has none", protocol.name)
            }
            OptionError::Unknown { protocol, name } => {
                let known: Vec<&str> = protocol.options.iter().map(|knob| knob.name).collect();
                write!(f, "protocol {} has no option {name:?}; it has {}", protocol.name, known.join(", "))
            }
            OptionError::OutOfRange { knob, value } => {
                let Knob { name, unit, min, max, .. } = knob;
                write!(f, "option {name} is from {min} to {max} {unit}, not {value}")
            }
        }
    }
}

impl std::error::Error for OptionError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, Requirements};

    const SPINS: Knob =
        Knob { name: "spins", unit: "steps", default: 3, min: 1, max: 9, about: "for this test", source: "none" };
    const TEST: ProtocolInfo = ProtocolInfo {
        name: "test",
        summary: "",
        source: "",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities { ad_hoc: true, strict: true, epoch_order: true, ..Capabilities::NONE },
        options: &[SPINS],
        effects: &[],
    };

    fn options(given: &[(&str, u64)]) -> Result<Options, String> {
        let given: Vec<_> = given.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Options::new(&TEST, &given).map_err(|error| error.to_string())
    }

    #[test]
    fn a_knob_has_its_default_until_it_is_set() {
        let get = |given: &[(&str, u64)]| options(given).map(|options| options.get(&SPINS));
        assert_eq!(get(&[]), Ok(3));
        assert_eq!(get(&[("spins", 9)]), Ok(9));
        assert_eq!(get(&[("spins", 9), ("spins", 1)]), Ok(1), "the last counts");
        assert_eq!(options(&[]).map(|options| options.given(&SPINS)), Ok(None));
    }

    #[test]
    fn validation_is_not_switched_off_by_a_value() {
        const VALIDATING: ProtocolInfo = ProtocolInfo { options: &[VALIDATE], ..TEST };
        let refused = Options::new(&VALIDATING, &[("validate".to_owned(), 0)]).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|said| said.contains("wrong results") && said.ends_with("not 0")));
        let off = Options::default().without_validation(&VALIDATING).map(|options| options.get(&VALIDATE));
        assert_eq!((off, Options::default().get(&VALIDATE)), (Ok(0), 1));
        let error = Options::default().without_validation(&TEST).map_err(|error| error.to_string());
        assert_eq!(error.err().as_deref(), Some("protocol test has no option \"validate\"; it has spins"));
    }

    #[test]
    fn an_unknown_option_names_those_there_are_and_a_value_out_of_range_the_range() {
        let unknown = options(&[("spin", 2)]).expect_err("there is none");
        assert_eq!(unknown, "protocol test has no option \"spin\"; it has spins");
        for value in [0, 10] {
            let error = options(&[("spins", value)]).expect_err("out of range");
            assert_eq!(error, format!("option spins is from 1 to 9 steps, not {value}"));
        }
    }
}
