//! HTCC, figure 16: how long a New-Order takes.

use serde_json::Value;

use super::high_contention;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Place, Point, Quantity, Shows, View};
use crate::setting::Setting;

/// The paper's protocols that validate, and htcc, dbx and silo as they are shipped.
const PROTOCOLS: [&str; 7] = ["htcc", "htcc-rows", "occ", "silo", "silo-rows", "dbx", "dbx-rows"];

/// The shares of transactions, and what a report calls the time within which they have committed.
const QUANTILES: [&str; 4] = ["p50_us", "p90_us", "p99_us", "p999_us"];
const NAMES: [&str; 4] = ["50 %", "90 %", "99 %", "99.9 %"];

/// Places of these: the paper has shares by time, of which some 90 % within 160 µs is HTCC's, and 37 % within 640 µs HOCC's.
const HALF: f64 = 0.0;
const NINE_TENTHS: f64 = 1.0;

fn points(setting: &Setting) -> Vec<Point> {
    let of = |protocol: &&str| {
        let point = |scene| {
            let command = setting.tpcc(high_contention(scene), protocol, "");
            setting.point("", protocol, 0.0, scene, &command)
        };
        setting.widest(40).into_iter().map(point).collect::<Vec<_>>()
    };
    PROTOCOLS.iter().flat_map(of).collect()
}

fn places(point: &Point, report: &Value) -> Vec<Place> {
    let latencies = &report["transactions"]["new_order"];
    let place = |(at, name): (usize, &&str)| Some((point.series.clone(), at as f64, latencies[*name].as_f64()?));
    QUANTILES.iter().enumerate().filter_map(place).collect()
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "16",
    title: "How long a New-Order takes",
    paper_shows: "With 40 threads on 4 warehouses 89 % of HTCC's New-Orders commit within 160 µs, against 78 % of OCC's and 73 % of SOCC's. HOCC is far \
                  behind: within 640 µs 37 % have committed.",
    here: "The full mix, on 4 warehouses with 40 simulated cores, and on one with the machine's threads: the time from a New-Order's begin to its \
           commit, attempts that failed included, within which so many have committed.",
    points,
    views: &[View { title: "", part: "", x: Axis::Named(&NAMES), shows: Shows::Many("microseconds", places) }],
    claims: &[
        Claim::new(
            "nine tenths of HTCC's have committed before nine tenths of OCC's",
            Quantity::RatioAt("htcc-rows", "occ", NINE_TENTHS),
        )
        .at_most(1.0)
        .from_threads(40),
        Claim::new(
            "and nine tenths of OCC's before those of SOCC's",
            Quantity::RatioAt("occ", "silo-rows", NINE_TENTHS),
        )
        .at_most(1.0)
        .from_threads(40)
        .because(super::READS_ARE_SHARED),
        Claim::new(
            "half of HOCC's take 4 times as long as half of HTCC's",
            Quantity::RatioAt("dbx-rows", "htcc-rows", HALF),
        )
        .at_least(4.0)
        .from_threads(40)
        .about_regions()
        .because(super::NO_GLOBAL_LOCK),
    ],
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_support::large;

    #[test]
    fn times_are_those_of_new_order() {
        let point = points(&large()).remove(0);
        let kind = |first: f64| json!({ "p50_us": first, "p90_us": 2.0, "p99_us": 3.0, "p999_us": 4.0 });
        let report = json!({ "transactions": { "new_order": kind(1.0), "payment": kind(9.0) } });
        let all: Vec<_> = places(&point, &report).into_iter().map(|(_, x, y)| (x, y)).collect();
        assert_eq!(all, [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]);
        assert_eq!(places(&point, &json!({ "transactions": {} })), []);
    }
}
