//! DBX-TC, figure 15: the Articles benchmark.

use super::{AHEAD, PROTOCOLS, by_threads};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::measured::Size;
use crate::metric::THROUGHPUT;
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let rows = if setting.size == Size::Small { "--articles 100 --users 20" } else { "" };
    let command = |_: usize, protocol: &str| format!("articles {rows} {}", setting.protocol(protocol));
    PROTOCOLS.iter().flat_map(|protocol| by_threads(setting, "", (protocol, protocol), command)).collect()
}

const fn claim(says: &'static str, over: &'static str, min: f64) -> Claim {
    let quantity = Quantity::Ratio("dbx-tc", over);
    Claim::new(says, quantity).between(min, AHEAD).from_threads(2)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::DbxTc,
    number: "15",
    title: "The Articles benchmark",
    paper_shows: "There is little contention: all but the naive use of regions scale to eight threads. DBX-TC is 10 % ahead of DBX and 30 % ahead of Silo-2PL.",
    here: "Articles with its first mix, 40 % and 20 % of which only read, and a skew of 0.99.",
    points,
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        claim("10 % ahead of DBX", "dbx", 1.1)
            .because("Both execute alike here; a tenth is what the paper's DBX spends on validation."),
        claim("30 % ahead of two-phase locking", "nowait", 1.3),
        Claim::new(
            "all but whole transactions grow with the threads",
            Quantity::LeastScaling(&["dbx-tc", "dbx", "silo", "nowait"]),
        )
        .at_least(0.6)
        .from_threads(2),
    ],
};
