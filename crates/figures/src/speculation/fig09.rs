//! Speculation, figure 9: New-Order alone, by how many lines are of another warehouse.

use super::{AS_IN_THE_PAPER, IN_ONE_PROCESS, by_scheme_and_process};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::measured::Size;
use crate::setting::Setting;

/// Percent of order lines that another of the six warehouses supplies: three in five of these are in the other partition.
const REMOTE: [(&str, f64); 6] = [
    ("--remote 0", 0.0),
    ("--remote 1", 1.0),
    ("--remote 2", 2.0),
    ("--remote 4", 4.0),
    ("--remote 12", 12.0),
    ("--remote 30", 30.0),
];

fn points(setting: &Setting) -> Vec<Point> {
    let remote = if setting.size == Size::Small { &REMOTE[1..2] } else { &REMOTE[..] };
    by_scheme_and_process(setting, remote, |&(share, x)| (6, x, share))
}

const fn view(title: &'static str, part: &'static str) -> View {
    View { title, part, x: Axis::Number("percent of lines of another warehouse"), shows: Shows::One(super::ENDED) }
}

const fn claim(says: &'static str, view: usize, quantity: Quantity, min: f64, max: f64) -> Claim {
    Claim::new(says, quantity).of_view(view).between(min, max).from_threads(super::ROLES)
}

const fn below_speculation(says: &'static str, view: usize, scheme: &'static str, x: f64, max: f64) -> Claim {
    claim(says, view, Quantity::RatioAt(scheme, "speculation", x), f64::NEG_INFINITY, max)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Speculation,
    number: "9",
    title: "New-Order by remote lines",
    paper_shows: "New-Order alone on 6 warehouses. Blocking and speculation are as in Figure 4: equal without transactions over both partitions, then blocking falls steeply. Locking degrades very rapidly, since transactions have more locks and conflict: where a tenth are over both, a third of the time goes into locks.",
    here: "The share of lines that are remote is the x axis: of 0, 1, 2, 4, 12 and 30 %, about 0, 6, 11, 21, 50 and 83 % of transactions are over both partitions.",
    points,
    views: &[
        view("no delay", "none"),
        view("40 µs", "40"),
        view("200 µs", "200"),
        view("as in the paper", "paper"),
        View {
            title: "in one process",
            part: "process",
            x: Axis::Number("percent of lines of another warehouse"),
            shows: Shows::One(crate::metric::THROUGHPUT),
        },
    ],
    claims: &[
        claim(
            "at 0 % blocking and speculation are equal",
            AS_IN_THE_PAPER,
            Quantity::RatioAt("blocking", "speculation", 0.0),
            0.95,
            1.05,
        ),
        claim(
            "at 0 % locking is as fast as blocking",
            AS_IN_THE_PAPER,
            Quantity::RatioAt("locking", "blocking", 0.0),
            0.95,
            1.05,
        ),
        below_speculation("with 4 % of lines blocking is far below speculation", AS_IN_THE_PAPER, "blocking", 4.0, 0.7),
        Claim {
            because: super::SHORT_LOCKS,
            ..below_speculation(
                "with 2 % of lines locking is far below speculation",
                AS_IN_THE_PAPER,
                "locking",
                2.0,
                0.7,
            )
        },
        Claim {
            because: super::SHORT_LOCKS,
            ..claim(
                "locking degrades very rapidly: 2 % of lines cost it much",
                AS_IN_THE_PAPER,
                Quantity::Between("locking", 0.0, 2.0),
                f64::NEG_INFINITY,
                0.7,
            )
        },
        below_speculation(
            "without delay: with 4 % of lines blocking is far below speculation",
            super::NO_DELAY,
            "blocking",
            4.0,
            0.7,
        ),
        below_speculation(
            "without delay: with 2 % of lines locking is far below speculation",
            super::NO_DELAY,
            "locking",
            2.0,
            0.7,
        ),
        below_speculation(
            "with 40 µs: with 4 % of lines blocking is far below speculation",
            super::DELAY_40,
            "blocking",
            4.0,
            0.7,
        ),
        below_speculation(
            "with 40 µs: with 2 % of lines locking is far below speculation",
            super::DELAY_40,
            "locking",
            2.0,
            0.7,
        ),
        below_speculation(
            "with 200 µs: with 4 % of lines blocking is far below speculation",
            super::DELAY_200,
            "blocking",
            4.0,
            0.7,
        ),
        below_speculation(
            "with 200 µs: with 2 % of lines locking is far below speculation",
            super::DELAY_200,
            "locking",
            2.0,
            0.7,
        ),
        claim(
            "in one process: without remote lines owners are above locks of rows",
            IN_ONE_PROCESS,
            Quantity::RatioAt("partitioned", "nowait", 0.0),
            1.0,
            f64::INFINITY,
        )
        .ours(),
    ],
};
