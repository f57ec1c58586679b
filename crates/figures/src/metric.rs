//! Numbers that figures show of a report of `seriatim bench … --format json`.

use serde_json::Value;

/// A number of a report.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// What it is, with its unit.
    pub label: &'static str,
    /// Takes it from a report; `None` where the report has none.
    pub of: fn(&Value) -> Option<f64>,
}

fn number(report: &Value, pointer: &str) -> Option<f64> {
    report.pointer(pointer)?.as_f64()
}

/// A part of a whole; `None` of nothing.
fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Committed transactions.
pub(crate) const THROUGHPUT: Metric = Metric {
    label: "thousand transactions a second",
    of: |report| Some(number(report, "/committed_per_second")? / 1000.0),
};

/// Attempts that conflicts ended, for each transaction that committed: the papers' abort rate of transactions.
pub(crate) const ABORTS: Metric = Metric {
    label: "aborted attempts for each commit",
    of: |report| share(number(report, "/conflict_aborted")?, number(report, "/committed")?),
};

fn region_aborts(report: &Value) -> Option<f64> {
    let causes = report.pointer("/htm/aborted")?.as_object()?;
    Some(causes.values().filter_map(Value::as_f64).sum())
}

/// Regions that aborted, of those that began.
pub(crate) const REGION_ABORTS: Metric = Metric {
    label: "aborted regions, percent of those begun",
    of: |report| Some(100.0 * share(region_aborts(report)?, number(report, "/htm/started")?)?),
};

/// Bodies of regions that ran under their fallback locks, for each transaction that committed.
pub(crate) const FALLBACKS: Metric = Metric {
    label: "fallbacks, percent of transactions",
    of: |report| Some(100.0 * share(number(report, "/htm/fallback")?, number(report, "/committed")?)?),
};

/// The median time until results are durable.
pub(crate) const DURABLE: Metric = Metric {
    label: "milliseconds until durable, median",
    of: |report| Some(number(report, "/durable_latency_us/p50")? / 1000.0),
};

/// Whether a report is of a simulation that was not compared with threads, or was too far from them.
pub(crate) fn is_unproven(report: &Value) -> bool {
    !report["simulated"].is_null() && report["simulated"]["proven"] != true
}

/// The back end that ran regions, as the report has it; of simulated cores also whether they are proven, and at which revision.
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

    #[test]
    fn metrics_take_what_they_say_from_a_report() {
        let report = json!({
            "committed": 200, "committed_per_second": 50_000.0, "conflict_aborted": 50,
            "htm": { "backend": "rtm", "started": 400, "committed": 380, "fallback": 4,
                     "aborted": { "conflict": 10, "capacity": 5, "explicit": 4, "system": 1 } },
        });
        assert_eq!((THROUGHPUT.of)(&report), Some(50.0));
        assert_eq!((ABORTS.of)(&report), Some(0.25));
        assert_eq!((REGION_ABORTS.of)(&report), Some(5.0));
        assert_eq!((FALLBACKS.of)(&report), Some(2.0));
        assert_eq!((DURABLE.of)(&json!({ "durable_latency_us": { "p50": 7500.0 } })), Some(7.5));
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
        let nothing =
            json!({ "committed": 0, "conflict_aborted": 0, "htm": { "started": 0, "aborted": {}, "fallback": 0 } });
        for metric in [THROUGHPUT, ABORTS, REGION_ABORTS, FALLBACKS, DURABLE] {
            assert_eq!((metric.of)(&nothing), None, "{}", metric.label);
            assert_eq!((metric.of)(&json!({})), None, "{}", metric.label);
        }
    }
}
