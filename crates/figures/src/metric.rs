//! Numbers that figures show of a report of `seriatim bench … --format json`.

use serde::Deserialize;
use serde_json::Value;

use crate::figure::{CurvePoint, Function};

/// A number of a report. Its parts are paths, as JSON pointers are written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its meaning, with its unit.
    pub label: String,
    /// The number; of an object, the sum of its numbers.
    of: String,
    /// The number it is a part of: without any of these, it is no number.
    over: Option<String>,
    #[serde(default = "one")]
    times: f64,
    #[serde(default = "one")]
    per: f64,
    /// Whether it is multiplied by the point's x.
    #[serde(default)]
    by_x: bool,
}

pub(crate) fn one() -> f64 {
    1.0
}

impl Metric {
    /// Takes it from a report of a point at `x`; `None` if the report has none.
    pub fn of(&self, x: f64, report: &Value) -> Option<f64> {
        let number = number(report, &self.of)?;
        let share = match &self.over {
            Some(whole) => number / self::number(report, whole).filter(|whole| *whole > 0.0)?,
            None => number,
        };
        Some(self.times * share / self.per * if self.by_x { x } else { 1.0 })
    }
}

fn number(report: &Value, path: &str) -> Option<f64> {
    match report.pointer(path)? {
        Value::Object(parts) => Some(parts.values().filter_map(Value::as_f64).sum()),
        number => number.as_f64(),
    }
}

/// Functions for the places of views that no path describes: the name in a view, the unit, the function.
pub(crate) const FUNCTIONS: [(&str, &str, Function); 3] = [
    ("shares of tables", "percent of aborts", shares_of_tables),
    ("model and measurement", "thousand transactions a second", model_and_measurement),
    ("schemes over the best", "of the best scheme", schemes_over_the_best),
];

/// The two tables that HTCC names and all others: attempts that ended at their rows, in percent.
fn shares_of_tables(x: f64, report: &Value) -> Vec<CurvePoint> {
    const CURVES: [&str; 3] = ["WAREHOUSE", "DISTRICT", "others"];
    let mut attempts = [0.0; CURVES.len()];
    for table in report["contention"]["tables"].as_array().into_iter().flatten() {
        let curve = CURVES.iter().position(|curve| table["table"].as_str() == Some(&curve.to_lowercase()));
        attempts[curve.unwrap_or(CURVES.len() - 1)] += table["attempts"].as_f64().unwrap_or(0.0);
    }
    let all: f64 = attempts.iter().sum();
    // Without conflicts there are no shares.
    let shares = CURVES.iter().zip(attempts).filter(|_| all > 0.0);
    shares.map(|(curve, of)| ((*curve).to_owned(), x, 100.0 * of / all)).collect()
}

/// Throughput of each scheme by the share of transactions over two partitions, measured and as the model has it.
fn model_and_measurement(_: f64, report: &Value) -> Vec<CurvePoint> {
    let mut places = Vec::new();
    for of in report["compared"].as_array().into_iter().flatten() {
        let (Some(scheme), Some(multi)) = (of["scheme"].as_str(), of["multi"].as_f64()) else { continue };
        for (name, suffix) in [("measured", ""), ("model", ", model")] {
            if let Some(rate) = of[name].as_f64() {
                places.push((format!("{scheme}{suffix}"), 100.0 * multi, rate / 1000.0));
            }
        }
    }
    places
}

/// In each cell of the model's table, throughput of each scheme over that of the best, and of the recommended one.
fn schemes_over_the_best(_: f64, report: &Value) -> Vec<CurvePoint> {
    let mut places = Vec::new();
    for (at, cell) in report["cells"].as_array().into_iter().flatten().enumerate() {
        let Some(measured) = cell["measured"].as_object() else { continue };
        let best = measured.values().filter_map(Value::as_f64).fold(f64::MIN_POSITIVE, f64::max);
        let rates = measured.iter().filter_map(|(scheme, rate)| Some((scheme.clone(), rate.as_f64()? / best)));
        places.extend(rates.map(|(scheme, ratio)| (scheme, at as f64, ratio)));
        places.extend(cell["ratio"].as_f64().map(|ratio| ("recommended".to_owned(), at as f64, ratio)));
    }
    places
}

/// Whether a report is of a simulation that was not compared with threads, or was too far from them.
pub(crate) fn is_unproven(report: &Value) -> bool {
    !report["simulated"].is_null() && report["simulated"]["proven"] != true
}

/// The back end that ran regions, as the report has it; of simulated cores also whether they are proven, and at which
/// revision.
pub(crate) fn backend(report: &Value) -> Option<String> {
    let simulated = &report["simulated"];
    match simulated["regions"].as_str() {
        Some(regions) => {
            let proven = if simulated["proven"] == true { "proven" } else { "unproven" };
            let at = simulated["validated_at"].as_str().map(|revision| format!(" at {revision}"));
            Some(format!("{regions}, {proven}{}", at.unwrap_or_default()))
        }
        None => Some(report.pointer("/htm/backend")?.as_str()?.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::data::metrics;
    use crate::test_support::figure;

    #[test]
    fn metrics_come_from_a_report() {
        let report = json!({
            "committed": 200, "committed_per_second": 50_000.0, "conflict_aborted": 50,
            "htm": { "backend": "rtm", "started": 400, "committed": 380, "fallback": 4,
                     "aborted": { "conflict": 10, "capacity": 5, "explicit": 4, "system": 1 } },
            "durable_latency_us": { "p50": 7500.0 }, "latency_us": { "p99": 40.0, "mean": 3000.0 },
            "ended_per_second": 7000.0, "left_out": 30, "smallest": 20, "microseconds_median": 8.0,
        });
        for (name, value) in [
            ("throughput", 50.0),
            ("operations", 500.0),
            ("aborts", 0.25),
            ("region aborts", 5.0),
            ("fallbacks", 2.0),
            ("until durable", 7.5),
            ("tail", 40.0),
            ("latency", 3.0),
            ("ended", 7.0),
            ("left out", 30.0),
            ("excess", 1.5),
            ("time of a batch", 8.0),
        ] {
            assert_eq!(metrics()[name].of(10.0, &report), Some(value), "{name}");
        }
        assert_eq!(backend(&report).as_deref(), Some("rtm"));
        for (proven, at, said) in [
            (true, json!("r1"), "modelled, proven at r1"),
            (false, json!("r1"), "modelled, unproven at r1"),
            (false, json!(null), "modelled, unproven"),
        ] {
            let of = json!({ "regions": "modelled", "proven": proven, "validated_at": at });
            let simulated = json!({ "simulated": of, "htm": { "backend": "absent" } });
            assert_eq!(backend(&simulated).as_deref(), Some(said));
        }
    }

    #[test]
    fn canary_a_report_without_the_numbers_gives_none() {
        let nothing = json!({ "committed": 0, "conflict_aborted": 0, "left_out": 0, "smallest": 0,
                              "htm": { "started": 0, "aborted": {}, "fallback": 0 } });
        for name in ["throughput", "aborts", "region aborts", "fallbacks", "until durable", "excess"] {
            assert_eq!(metrics()[name].of(1.0, &nothing), None, "{name}");
            assert_eq!(metrics()[name].of(1.0, &json!({})), None, "{name}");
        }
    }

    #[test]
    fn shares_are_of_all_attempts_at_a_table() {
        let of = |table: &str, attempts: u32| json!({ "table": table, "attempts": attempts });
        let tables = [of("stock", 5), of("warehouse", 60), of("customer", 5), of("district", 30)];
        let shares = |tables: &[Value]| -> Vec<f64> {
            let report = json!({ "contention": { "tables": tables } });
            shares_of_tables(4.0, &report).into_iter().map(|(_, x, share)| x * share).collect()
        };
        assert_eq!(shares(&tables), [240.0, 120.0, 40.0]);
        assert_eq!(shares(&[]), [0.0; 0]);
    }

    #[test]
    fn the_model_stands_beside_what_was_measured() {
        let compared =
            json!([{ "scheme": "locking", "multi": 0.2, "measured": 3000.0, "model": 2000.0 }, { "multi": 1 }]);
        let places = model_and_measurement(0.0, &json!({ "compared": compared }));
        let wanted = [("locking", 20.0, 3.0), ("locking, model", 20.0, 2.0)];
        assert_eq!(places, wanted.map(|(name, x, y)| (name.to_owned(), x, y)));
        let cells = json!([{}, { "measured": { "blocking": 2.0, "locking": 4.0 }, "ratio": 0.5 }]);
        let places = schemes_over_the_best(0.0, &json!({ "cells": cells }));
        let wanted = [("blocking", 1.0, 0.5), ("locking", 1.0, 1.0), ("recommended", 1.0, 0.5)];
        assert_eq!(places, wanted.map(|(name, x, y)| (name.to_owned(), x, y)));
    }

    /// The values of the curve `a` that a figure's only view shows of a report.
    fn bars(id: &str, report: &Value) -> Vec<(String, f64, f64)> {
        let crate::Shows::Bars(_, all) = &figure(id).views[0].shows else { panic!("{id} has no bars") };
        all.iter().flat_map(|bars| bars.places("a", report)).collect()
    }

    #[test]
    fn bars_are_of_the_parts_that_transactions_have() {
        let kind = |first: f64| json!({ "p50_us": first, "p90_us": 2.0, "p99_us": 3.0, "p999_us": 4.0 });
        let report = json!({ "transactions": { "new_order": kind(1.0), "payment": kind(9.0) } });
        let times = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)].map(|(x, y)| ("a".to_owned(), x, y));
        assert_eq!(bars("htcc/16", &report), times);
        assert_eq!(bars("htcc/16", &json!({ "transactions": {} })), []);
        let sizes = |lines: u32| {
            let [read, written, all] = [lines, 1, lines + 1].map(|mean| json!({ "mean": mean }));
            json!({ "read": read, "written": written, "lines": all })
        };
        let report = json!({ "transactions": {
            "payment": { "working_sets": { "first": sizes(5), "late": sizes(2), "all": sizes(9) } },
            "delivery": { "working_sets": { "first": sizes(50), "late": null, "all": sizes(50) } },
            "stock_level": { "working_sets": null },
        } });
        let all = bars("dbx-tc/table-1", &report);
        let of = |curve: &str, x: f64| all.iter().find(|place| place.0 == curve && place.1 == x).map(|place| place.2);
        let (payment, delivery) = (1.0, 2.0);
        assert_eq!(
            (of("read", payment), of("all", payment), of("a late piece", payment)),
            (Some(9.0), Some(10.0), Some(3.0))
        );
        assert_eq!((of("first piece", delivery), of("a late piece", delivery)), (Some(51.0), None));
        assert_eq!(of("all", 0.0), None);
        let times = json!({ "times": { "single_us": 64.0, "locks": 0.125 } });
        let wanted = [("times", 0.0, 64.0), ("l, percent", 0.0, 12.5)].map(|(name, x, y)| (name.to_owned(), x, y));
        assert_eq!(bars("speculation/table-2", &times), wanted);
    }
}
