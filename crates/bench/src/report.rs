//! The output of measurements: a table, line by line as rows end, or the rows of a JSON object with the table on
//! standard error. `commands` prints what stands above and below the table.
//!
//! A ratio is the first arm's rate over the second's, for each round: above 1, the first is faster.

use std::io;

use clap::ValueEnum;
use serde_json::{Value, json};

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

impl Format {
    /// Prints a line of the table.
    pub(crate) fn line(self, line: &str) -> io::Result<()> {
        match self {
            Format::Text => say!("{line}\n"),
            Format::Json => {
                talk!("{line}");
                Ok(())
            }
        }
    }
}

/// The rows of a table.
pub(crate) struct Rows {
    format: Format,
    rows: Vec<Value>,
}

impl Rows {
    /// Prints the heads of the columns.
    pub(crate) fn new(format: Format, heads: &str) -> io::Result<Rows> {
        format.line(heads)?;
        Ok(Rows { format, rows: Vec::new() })
    }

    /// Adds a row, and prints its line.
    pub(crate) fn add(&mut self, line: &str, row: Value) -> io::Result<()> {
        self.rows.push(row);
        self.format.line(line)
    }

    /// The rows as an object.
    pub(crate) fn json(self) -> Value {
        json!({ "rows": self.rows })
    }
}

/// Comparisons of the two arms of one measurement.
pub(crate) struct Report {
    /// The names of the arms.
    arms: [&'static str; 2],
    setting: Setting,
    comparisons: Rows,
}

impl Report {
    /// A report for a measurement whose arms have these names.
    pub(crate) fn new(arms: [&'static str; 2], setting: &Setting) -> io::Result<Report> {
        let heads = arms.map(|arm| format!("{arm}, k tx/s"));
        let heads = format!("{:50} {:>24} {:>24} {:>22}", "", heads[0], heads[1], "ratio");
        Ok(Report { arms, setting: setting.clone(), comparisons: Rows::new(setting.format, &heads)? })
    }

    /// Adds a comparison with the rates of its arms, in transactions per second and by round. `case` describes
    /// the comparison as an object, `name` describes it in the table.
    pub(crate) fn add(&mut self, name: &str, case: Value, rates: [&[f64]; 2]) -> io::Result<()> {
        let ratio = Quartiles::of_ratios(rates[0], rates[1]);
        let thousands = rates.map(|rates| Quartiles::of(rates.iter().map(|rate| rate / 1e3)));
        let line = format!("{name:50} {:>24.1} {:>24.1} {ratio:>22.3}", thousands[0], thousands[1]);
        let Value::Object(mut comparison) = case else { unreachable!("cases are objects") };
        for (arm, rates) in self.arms.iter().zip(rates) {
            comparison.insert(format!("{arm}_per_second"), Quartiles::of(rates.iter().copied()).json());
        }
        comparison.insert("ratio".to_owned(), ratio.json());
        self.comparisons.add(&line, comparison.into())
    }

    /// The report as JSON.
    pub(crate) fn json(self) -> Value {
        let Setting { rounds, length, .. } = self.setting;
        json!({
            "rounds": rounds, "seconds": length.seconds(), "ratio": format!("{} over {}", self.arms[0], self.arms[1]),
            "comparisons": self.comparisons.rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_case_the_rates_and_the_ratio_of_first_over_second() {
        let mut report = Report::new(["on", "off"], &Setting::small("auto", 3, 10)).expect("standard output");
        let rates: [&[f64]; 2] = [&[4.0, 6.0, 8.0], &[2.0, 2.0, 2.0]];
        report.add("one", json!({ "workload": "tpcc" }), rates).expect("standard output");
        let object = report.json();
        assert_eq!((&object["ratio"], &object["rounds"]), (&json!("on over off"), &json!(3)));
        let expected = json!([{
            "workload": "tpcc",
            "on_per_second": { "lower": 5.0, "median": 6.0, "upper": 7.0 },
            "off_per_second": { "lower": 2.0, "median": 2.0, "upper": 2.0 },
            "ratio": { "lower": 2.5, "median": 3.0, "upper": 3.5 },
        }]);
        assert_eq!(object["comparisons"], expected);
    }
}
