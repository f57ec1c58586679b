//! The workloads there are: a folder and a line each.
//!
//! An entry has its knobs, so that a command line can offer them without knowing the workload.

use std::fmt;
use std::str::FromStr;

use seriatim::Database;

use crate::Workload;

/// Every workload, by name.
pub const WORKLOADS: &[Entry] = &[
    crate::tpcc::ENTRY,
    crate::ycsb::ENTRY,
    crate::smallbank::ENTRY,
    crate::tatp::ENTRY,
    crate::articles::ENTRY,
    crate::twelve_key::ENTRY,
    crate::five_five::ENTRY,
    crate::multi_key::ENTRY,
];

/// A workload that can be run by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// Its options.
    pub knobs: &'static [Knob],
    /// Makes it from values of its knobs.
    pub open: fn(&Values) -> Result<Box<dyn Workload>, Misuse>,
    /// Makes it for a database that holds its tables, as large as they are. Of use for [`Workload::audit`] only.
    pub recognize: fn(&Database, &Sizes<'_>) -> Option<Box<dyn Workload>>,
}

/// Returns the number of rows of a table by name; 0 if there is none.
pub type Sizes<'a> = dyn Fn(&str) -> u64 + 'a;

/// One option of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Its name on the command line, without dashes.
    pub name: &'static str,
    /// The kind of its value, such as `PERCENT`.
    pub value: &'static str,
    /// Its value if none is given; empty if that depends on others.
    pub default: &'static str,
    /// Its effect.
    pub about: &'static str,
}

impl Entry {
    /// The workload of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(name: &str) -> Result<&'static Entry, Misuse> {
        WORKLOADS.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let names: Vec<&str> = WORKLOADS.iter().map(|entry| entry.name).collect();
            Misuse::new("workload", name, &names.join(" or "))
        })
    }

    /// The workloads whose tables a database holds, with their definitions. `sizes` gives the number of rows
    /// of each table.
    pub fn recognize(db: &Database, sizes: &Sizes<'_>) -> Vec<Box<dyn Workload>> {
        WORKLOADS.iter().filter_map(|entry| (entry.recognize)(db, sizes)).collect()
    }

    /// Values of this workload's knobs, none given yet, for a population and inputs that `seed` determines.
    pub fn values(&self, seed: u64) -> Values {
        Values { knobs: self.knobs, given: Vec::new(), seed }
    }
}

/// Values of a workload's knobs.
#[derive(Clone, Debug)]
pub struct Values {
    knobs: &'static [Knob],
    given: Vec<(&'static str, String)>,
    seed: u64,
}

impl Values {
    /// Gives a knob a value; the last one counts.
    ///
    /// # Errors
    /// When the workload has no such knob.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Misuse> {
        let Some(knob) = self.knobs.iter().find(|knob| knob.name == name) else {
            let names: Vec<&str> = self.knobs.iter().map(|knob| knob.name).collect();
            return Err(Misuse::new("option", name, &format!("one of {}", names.join(", "))));
        };
        self.given.retain(|(given, _)| *given != name);
        self.given.push((knob.name, value.to_owned()));
        Ok(())
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The value given to a knob, if any.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// The value of a knob or its default.
    ///
    /// # Errors
    /// When the workload has no such knob.
    pub fn text(&self, name: &str) -> Result<&str, Misuse> {
        let default = || self.knobs.iter().find(|knob| knob.name == name).map(|knob| knob.default);
        self.given(name).or_else(default).ok_or_else(|| Misuse::new("option", name, "an option of this workload"))
    }

    /// The value of a knob as a number in `low..=high`.
    ///
    /// # Errors
    /// When it is none.
    pub fn number<N: FromStr + PartialOrd + fmt::Display + Copy>(
        &self,
        name: &str,
        low: N,
        high: N,
    ) -> Result<N, Misuse> {
        let text = self.text(name)?;
        match text.parse() {
            Ok(number) if low <= number && number <= high => Ok(number),
            _ => Err(Misuse::new(name, text, &format!("a number from {low} to {high}"))),
        }
    }
}

/// An invalid option, with the valid values in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misuse(String);

impl Misuse {
    /// `name` was given `wrong`, and `right` would be right.
    pub fn new(name: &str, wrong: &str, right: &str) -> Misuse {
        Misuse(format!("{name} cannot be \"{wrong}\": it must be {right}"))
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_opens_with_its_defaults_and_names_are_unique() {
        for (at, entry) in WORKLOADS.iter().enumerate() {
            assert!(WORKLOADS[..at].iter().all(|other| other.name != entry.name));
            let workload = (entry.open)(&entry.values(1)).unwrap_or_else(|misuse| panic!("{}: {misuse}", entry.name));
            assert_eq!(workload.name(), entry.name);
            assert!(!workload.kinds().is_empty());
            assert_eq!(Entry::find(entry.name).map(|found| found.name), Ok(entry.name));
        }
    }

    #[test]
    fn mistakes_are_reported_with_the_valid_values() {
        let misuse = Entry::find("tpcd").map(|_| ()).unwrap_err().to_string();
        assert!(misuse.contains("\"tpcd\"") && misuse.contains("tpcc"), "{misuse}");
        let entry = Entry::find("tpcc").expect("it is registered");
        let mut values = entry.values(1);
        assert!(values.set("warehouse", "1").unwrap_err().to_string().contains("warehouses"));
        for (name, wrong) in
            [("warehouses", "0"), ("warehouses", "x"), ("mix", "half"), ("scale", "big"), ("remote", "101")]
        {
            let mut values = entry.values(1);
            values.set(name, wrong).expect("a knob of this workload");
            let misuse = (entry.open)(&values).map(|_| ()).unwrap_err().to_string();
            assert!(misuse.contains(name) && misuse.contains(&format!("\"{wrong}\"")), "{misuse}");
        }
    }
}
