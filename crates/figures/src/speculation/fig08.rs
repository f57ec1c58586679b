//! Speculation, figure 8: TPC-C by the number of warehouses.

use super::{AS_IN_THE_PAPER, IN_ONE_PROCESS, by_scheme_and_process};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::measured::Size;
use crate::setting::Setting;

/// Warehouses over two partitions.
const WAREHOUSES: [u32; 6] = [2, 4, 8, 12, 16, 20];

fn points(setting: &Setting) -> Vec<Point> {
    let warehouses = if setting.size == Size::Small { &WAREHOUSES[..1] } else { &WAREHOUSES[..] };
    by_scheme_and_process(setting, warehouses, |&of| (of, f64::from(of), ""))
}

const fn view(title: &'static str, part: &'static str) -> View {
    View { title, part, x: Axis::Number("warehouses"), shows: Shows::One(super::ENDED) }
}

const fn claim(says: &'static str, view: usize, quantity: Quantity, min: f64, max: f64) -> Claim {
    Claim::new(says, quantity).of_view(view).between(min, max).from_threads(super::ROLES)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Speculation,
    number: "8",
    title: "TPC-C by warehouses",
    paper_shows: "The full mix over two partitions, with the default shares of remote lines and payments: 10.7 % of transactions are over both with 2 warehouses, 5.7 % with 20. Blocking and speculation change little; locking rises with the warehouses, as fewer transactions conflict, and stays last. With 20 warehouses speculation is 9.7 % above blocking and 63 % above locking.",
    here: "Warehouses are divided evenly over two partitions, and 40 clients or more have one each. In a panel of its own the database itself, whose owners are locks: `partitioned` with a partition for each warehouse, beside the best protocol without partitions and one that locks.",
    points,
    views: &[
        view("no delay", "none"),
        view("40 µs", "40"),
        view("200 µs", "200"),
        view("as in the paper", "paper"),
        View {
            title: "in one process",
            part: "process",
            x: Axis::Number("warehouses"),
            shows: Shows::One(crate::metric::THROUGHPUT),
        },
    ],
    claims: &[
        claim(
            "with 20 warehouses speculation is 9.7 % above blocking",
            AS_IN_THE_PAPER,
            Quantity::Ratio("speculation", "blocking"),
            1.097,
            f64::INFINITY,
        ),
        Claim {
            because: super::SHORT_LOCKS,
            ..claim(
                "with 20 warehouses speculation is 63 % above locking",
                AS_IN_THE_PAPER,
                Quantity::Ratio("speculation", "locking"),
                1.63,
                f64::INFINITY,
            )
        },
        Claim {
            because: super::SHORT_LOCKS,
            ..claim(
                "with 20 warehouses locking is last",
                AS_IN_THE_PAPER,
                Quantity::Trail("locking", &["blocking", "speculation"]),
                f64::NEG_INFINITY,
                1.0,
            )
        },
        claim("locking rises with the warehouses", AS_IN_THE_PAPER, Quantity::Growth("locking"), 1.1, f64::INFINITY),
        claim(
            "speculation changes little with the warehouses, by less than a quarter",
            AS_IN_THE_PAPER,
            Quantity::Growth("speculation"),
            0.8,
            1.25,
        ),
        claim("and so does blocking", AS_IN_THE_PAPER, Quantity::Growth("blocking"), 0.8, 1.25),
        claim(
            "without delay: speculation is above blocking",
            super::NO_DELAY,
            Quantity::Ratio("speculation", "blocking"),
            1.05,
            f64::INFINITY,
        )
        .ours(),
        claim(
            "without delay: speculation is 20 % above locking",
            super::NO_DELAY,
            Quantity::Ratio("speculation", "locking"),
            1.2,
            f64::INFINITY,
        )
        .ours(),
        claim(
            "with 40 µs: speculation is above blocking",
            super::DELAY_40,
            Quantity::Ratio("speculation", "blocking"),
            1.05,
            f64::INFINITY,
        )
        .ours(),
        claim(
            "with 40 µs: speculation is 20 % above locking",
            super::DELAY_40,
            Quantity::Ratio("speculation", "locking"),
            1.2,
            f64::INFINITY,
        )
        .ours(),
        claim(
            "with 200 µs: speculation is above blocking",
            super::DELAY_200,
            Quantity::Ratio("speculation", "blocking"),
            1.05,
            f64::INFINITY,
        )
        .ours(),
        claim(
            "with 200 µs: speculation is 20 % above locking",
            super::DELAY_200,
            Quantity::Ratio("speculation", "locking"),
            1.2,
            f64::INFINITY,
        )
        .ours(),
        claim(
            "in one process: owners are above locks of rows",
            IN_ONE_PROCESS,
            Quantity::Ratio("partitioned", "nowait"),
            1.0,
            f64::INFINITY,
        )
        .ours(),
    ],
};
