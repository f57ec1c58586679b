//! Reordering, figures 26 to 28: the middle tier before PostgreSQL.

use super::LATENCY;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::measured::{Cores, Size};
use crate::metric::{ABORTS, THROUGHPUT};
use crate::setting::{Scene, Setting};

const SERIES: [(&str, &str); 3] = [("alone", "none"), ("passing", "off"), ("reorder", "50")];

const X: Axis = Axis::Number("clients");

fn points(setting: &Setting) -> Vec<Point> {
    let (clients, accounts) = match setting.size {
        Size::Small => (&[2][..], 1_000),
        Size::Large => (&[1, 2, 4, 8, 16, 32, 64][..], 100_000),
    };
    let mut points = Vec::new();
    for &threads in clients {
        for (series, tier) in SERIES {
            let command = format!("middle-tier --tier {tier} --accounts {accounts} --theta 0.9");
            let scene = Scene { cores: Cores::Real, threads };
            points.push(setting.below("", series, threads as f64, scene, &command));
        }
    }
    points
}

const fn claim(says: &'static str, view: usize, quantity: Quantity, max: f64, because: &'static str) -> Claim {
    Claim::new(says, quantity).of_view(view).at_most(max).from_threads(8).because(because)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "26",
    title: "The middle tier before PostgreSQL",
    paper_shows: "SmallBank with a skew of 0.9 before a commercial system. Without batches few transactions run at a time and few conflict. With batches \
                  that are not reordered aborts and latency rise with the load; with reordering throughput is up to 3.1 times as high, latency lower by up to \
                  66 %, and the abort rate by up to 62 %.",
    here: "Figures 26 to 28 in three views, by clients, each with a connection and one transaction at a time; PostgreSQL runs on the same machine, does not \
           flush, and is at SERIALIZABLE. `alone` is without the middle tier, `passing` with it and without batches, `reorder` with batches of 50, the \
           paper's. The paper's batches without reordering, which its system runs at once, are not there: `alone` with many clients is the nearest.",
    points,
    views: &[
        View { title: "throughput", part: "", x: X, shows: Shows::One(THROUGHPUT) },
        View { title: "aborts", part: "", x: X, shows: Shows::One(ABORTS) },
        View { title: "latency", part: "", x: X, shows: Shows::One(LATENCY) },
    ],
    claims: &[
        Claim::new("with many clients reordering has more throughput", Quantity::Ratio("reorder", "alone"))
            .at_least(1.0)
            .from_threads(8)
            .because(
                "on few processors a process more costs more than the aborts that it saves: PostgreSQL's clients \
                 wait for each other's row locks",
            ),
        claim("and half the aborts or fewer", 1, Quantity::Ratio("reorder", "alone"), 0.5, ""),
        claim("and less latency", 2, Quantity::Ratio("reorder", "alone"), 1.0, "as of throughput"),
    ],
};
