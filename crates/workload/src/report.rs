//! The result of a consistency check: for each rule how often it was checked, and where it was violated, with
//! both values.
//!
//! The first few violations of each rule are kept with their place and values; all are counted.

use std::fmt;

/// A condition on the data, stated as an equation `left = right`.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it comes from, such as `3.3.2.1`; unique in its workload.
    pub clause: &'static str,
    /// The equation.
    pub says: &'static str,
}

/// One place where a rule does not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: &'static Rule,
    /// Where, such as `warehouse 1 district 2`.
    pub place: String,
    /// The value of the rule's left side.
    pub left: String,
    /// The value of the rule's right side.
    pub right: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { rule, place, left, right } = self;
        write!(f, "{}: {} is violated at {place}: {left} against {right}", rule.clause, rule.says)
    }
}

/// How one rule fared.
#[derive(Clone, Debug)]
struct Tally {
    rule: &'static Rule,
    checked: u64,
    violated: u64,
}

/// The outcome of a consistency check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    tallies: Vec<Tally>,
    samples: Vec<Violation>,
}

impl Report {
    /// Violations kept per rule.
    const SAMPLES_MAX: u64 = 4;

    /// A report over `rules`; a rule that is never asked stays visible with a count of zero.
    pub fn new(rules: &[&'static Rule]) -> Report {
        let tallies = rules.iter().map(|&rule| Tally { rule, checked: 0, violated: 0 }).collect();
        Report { tallies, samples: Vec::new() }
    }

    /// Asks whether the two sides of `rule` agree at `place`.
    pub fn equal<V: PartialEq + fmt::Display>(
        &mut self,
        rule: &'static Rule,
        place: impl fmt::Display,
        left: V,
        right: V,
    ) {
        let index = self.tallies.iter().position(|tally| tally.rule.clause == rule.clause).unwrap_or_else(|| {
            self.tallies.push(Tally { rule, checked: 0, violated: 0 });
            self.tallies.len() - 1
        });
        let tally = &mut self.tallies[index];
        tally.checked += 1;
        if left != right {
            tally.violated += 1;
            if tally.violated <= Self::SAMPLES_MAX {
                let (place, left, right) = (place.to_string(), left.to_string(), right.to_string());
                self.samples.push(Violation { rule, place, left, right });
            }
        }
    }

    /// The rules, also those never asked.
    pub fn rules(&self) -> impl Iterator<Item = &'static Rule> {
        self.tallies.iter().map(|tally| tally.rule)
    }

    /// The same without the rules that were never asked.
    pub(crate) fn asked(mut self) -> Report {
        self.tallies.retain(|tally| tally.checked > 0);
        self
    }

    /// Whether every rule held everywhere.
    pub fn passed(&self) -> bool {
        self.tallies.iter().all(|tally| tally.violated == 0)
    }

    /// The violations kept, in the order they were found.
    pub fn violations(&self) -> &[Violation] {
        &self.samples
    }

    /// Whether the rule of this clause was violated anywhere.
    pub fn is_violated(&self, clause: &str) -> bool {
        self.tallies.iter().any(|tally| tally.rule.clause == clause && tally.violated > 0)
    }

    /// How often the rule of this clause was asked.
    pub fn checked(&self, clause: &str) -> u64 {
        self.tallies.iter().filter(|tally| tally.rule.clause == clause).map(|tally| tally.checked).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tallies.is_empty() {
            writeln!(f, "{:<10} {:<8} {:<20} must hold", "clause", "verdict", "violated of checked")?;
        }
        for Tally { rule, checked, violated } in &self.tallies {
            let state = if *violated == 0 { "holds" } else { "VIOLATED" };
            let counts = format!("{violated} of {checked}");
            writeln!(f, "{:<10} {state:<8} {counts:<20} {}", rule.clause, rule.says)?;
        }
        self.samples.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SUM: Rule = Rule { clause: "1", says: "a = b" };
    static COUNT: Rule = Rule { clause: "2", says: "c = d" };

    #[test]
    fn violations_name_rule_place_and_both_values_and_are_counted_beyond_the_samples() {
        let mut report = Report::new(&[&SUM, &COUNT]);
        report.equal(&SUM, "warehouse 1", 3, 3);
        assert!(report.passed());
        (0..10).for_each(|w| report.equal(&SUM, format_args!("warehouse {w}"), 3, 4));
        assert!(!report.passed() && report.is_violated("1") && !report.is_violated("2"));
        assert_eq!((report.checked("1"), report.checked("2")), (11, 0));
        assert!(report.rules().eq([&SUM, &COUNT]));
        assert_eq!(report.violations().len(), Report::SAMPLES_MAX as usize);
        assert_eq!(report.violations()[1].to_string(), "1: a = b is violated at warehouse 1: 3 against 4");
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("clause") && lines[1].contains("VIOLATED 10 of 11"), "{report}");
        // Headings stand over their columns.
        for (heading, below) in [("verdict", "VIOLATED"), ("violated of", "10 of 11"), ("must", "a = b")] {
            assert_eq!(lines[0].find(heading), lines[1].find(below), "{report}");
        }
        assert_eq!(Report::default().to_string(), "");
    }
}
