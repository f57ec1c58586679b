//! HTCC, table 1: in which tables transactions conflict.

use serde_json::Value;

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Place, Point, Quantity, Shows, View};
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for scene in setting.widest(80) {
        for warehouses in super::warehouses(setting, scene) {
            let command = setting.tpcc(warehouses, "occ", "--contention 1");
            points.push(setting.point("", "occ", warehouses as f64, scene, &command));
        }
    }
    points
}

/// The paper's rows: two tables and the others.
const ROWS: [&str; 3] = ["WAREHOUSE", "DISTRICT", "others"];

fn places(point: &Point, report: &Value) -> Vec<Place> {
    let mut attempts = [0.0; ROWS.len()];
    for table in report["contention"]["tables"].as_array().into_iter().flatten() {
        let row = ROWS.iter().position(|row| table["table"].as_str() == Some(&row.to_lowercase()));
        attempts[row.unwrap_or(ROWS.len() - 1)] += table["attempts"].as_f64().unwrap_or(0.0);
    }
    let all: f64 = attempts.iter().sum();
    let place = |(row, of): (&&str, f64)| ((*row).to_owned(), point.x, 100.0 * of / all);
    // Without conflicts there are no shares.
    ROWS.iter().zip(attempts).map(place).filter(|_| all > 0.0).collect()
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "table-1",
    title: "Tables in which transactions conflict",
    paper_shows: "Under OCC with 80 threads 62.9 % of the aborts are at WAREHOUSE and 31.0 % at DISTRICT with 4 warehouses; 56.6 % and 37.2 % with 10; \
                  46.8 % and 42.6 % with 40.",
    here: "TPC-C's full mix under `occ`: attempts that ended by the table of the row at which they did, of all attempts that a table is known of; on \
           80 simulated cores, and on the machine's threads with 1 to 8 warehouses.",
    points,
    views: &[View {
        title: "",
        part: "",
        x: Axis::Number("warehouses"),
        shows: Shows::Many("percent of aborts", places),
    }],
    claims: &[
        Claim::new(
            "with 4 warehouses about 62.9 % of the aborts are at WAREHOUSE",
            Quantity::ValueAt("WAREHOUSE", 4.0),
        )
        .between(53.5, 72.3)
        .from_threads(80),
        Claim::new("their share falls as warehouses are added", Quantity::Growth("WAREHOUSE"))
            .at_most(0.95)
            .from_threads(80),
        Claim::new("and that of DISTRICT rises", Quantity::Growth("DISTRICT")).at_least(1.05).from_threads(80),
        Claim::new(
            "with the most warehouses 89 % are at WAREHOUSE and DISTRICT",
            Quantity::Sum(&["WAREHOUSE", "DISTRICT"]),
        )
        .between(89.0, 100.0)
        .from_threads(80),
    ],
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_support::large;

    #[test]
    fn shares_are_of_all_attempts_at_a_table() {
        let point = points(&large()).remove(0);
        let of = |table: &str, attempts: u32| json!({ "table": table, "attempts": attempts });
        let tables = [of("stock", 5), of("warehouse", 60), of("customer", 5), of("district", 30)];
        let shares = |tables: &[Value]| -> Vec<f64> {
            let report = json!({ "contention": { "tables": tables } });
            places(&point, &report).into_iter().map(|(_, _, share)| share).collect()
        };
        assert_eq!(shares(&tables), [60.0, 30.0, 10.0]);
        assert_eq!(shares(&[]), [0.0; 0]);
    }
}
