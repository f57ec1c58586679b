//! The output of comparisons of two arms: a table, line by line as comparisons end, or a JSON object with the
//! table on standard error.
//!
//! A ratio is the first arm's rate over the second's, for each round: above 1, the first is faster.

use std::io;

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::measure::Quartiles;
use crate::setting::Setting;
use seriatim_base::{say, talk};

/// The format of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The table.
    Text,
    /// One object; the table goes to standard error.
    Json,
}

/// Comparisons of one measurement.
pub(crate) struct Report {
    format: Format,
    /// The names of the arms.
    arms: [&'static str; 2],
    object: Map<String, Value>,
    comparisons: Vec<Value>,
    /// The first error of printing.
    printed: io::Result<()>,
}

impl Report {
    /// A report for a measurement whose arms have these names.
    pub(crate) fn new(measurement: &str, arms: [&'static str; 2], setting: &Setting) -> Report {
        let Setting { protocol, rounds, length, seed, format, .. } = setting;
        let about = json!({
            "measurement": measurement, "protocol": protocol, "rounds": rounds, "threads": 1, "seed": seed,
            "seconds": length.seconds(), "ratio": format!("{} over {}", arms[0], arms[1]),
        });
        let Value::Object(object) = about else { unreachable!("it was written as one") };
        let mut report = Report { format: *format, arms, object, comparisons: Vec::new(), printed: Ok(()) };
        let heads = arms.map(|arm| format!("{arm}, k tx/s"));
        report.line(&format!("{:50} {:>24} {:>24} {:>22}", "", heads[0], heads[1], "ratio"));
        report
    }

    fn line(&mut self, line: &str) {
        match self.format {
            Format::Text if self.printed.is_ok() => self.printed = say!("{line}\n"),
            Format::Text => {}
            Format::Json => talk!("{line}"),
        }
    }

    /// Adds a comparison with the rates of its arms, in transactions per second and by round. `case` describes
    /// the comparison as an object, `name` describes it in the table.
    pub(crate) fn add(&mut self, name: &str, case: Value, rates: [&[f64]; 2]) {
        let ratio = Quartiles::of_ratios(rates[0], rates[1]);
        let thousands = rates.map(|rates| Quartiles::of(rates.iter().map(|rate| rate / 1e3)));
        self.line(&format!("{name:50} {:>24.1} {:>24.1} {ratio:>22.3}", thousands[0], thousands[1]));
        let Value::Object(mut comparison) = case else { unreachable!("cases are objects") };
        for (arm, rates) in self.arms.iter().zip(rates) {
            comparison.insert(format!("{arm}_per_second"), json(Quartiles::of(rates.iter().copied())));
        }
        comparison.insert("ratio".to_owned(), json(ratio));
        self.comparisons.push(comparison.into());
    }

    /// The report as JSON.
    pub(crate) fn json(&self) -> Value {
        let mut object = self.object.clone();
        object.insert("comparisons".to_owned(), self.comparisons.clone().into());
        object.into()
    }

    /// Prints the rest.
    ///
    /// # Errors
    /// When the report could not be printed.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if self.format == Format::Json {
            self.printed = say!("{}\n", self.json());
        }
        self.printed
    }
}

fn json(quartiles: Quartiles) -> Value {
    let Quartiles { lower, median, upper } = quartiles;
    json!({ "lower": lower, "median": median, "upper": upper })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_case_the_rates_and_the_ratio_of_first_over_second() {
        let mut report = Report::new("prefetch", ["on", "off"], &Setting::small("auto", 3, 10));
        report.add("one", json!({ "workload": "tpcc" }), [&[4.0, 6.0, 8.0], &[2.0, 2.0, 2.0]]);
        let object = report.json();
        assert_eq!((&object["measurement"], &object["seed"]), (&json!("prefetch"), &json!(7)));
        let expected = json!([{
            "workload": "tpcc",
            "on_per_second": { "lower": 5.0, "median": 6.0, "upper": 7.0 },
            "off_per_second": { "lower": 2.0, "median": 2.0, "upper": 2.0 },
            "ratio": { "lower": 2.5, "median": 3.0, "upper": 3.5 },
        }]);
        assert_eq!(object["comparisons"], expected);
    }
}
