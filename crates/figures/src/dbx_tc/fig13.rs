//! DBX-TC, figure 13: what snapshots and durability do.

use super::{AHEAD, by_threads};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::{ABORTS, DURABLE, THROUGHPUT};
use crate::setting::Setting;

const SNAPSHOTS: [(&str, &str); 3] = [
    ("snapshots", "--option snapshot_wanted_min=0"),
    ("ROEP", "--option snapshot_interval_ms=0"),
    ("validated", "--snapshots off"),
];
const DURABLE_RUNS: [(&str, &str, &str); 7] = [
    ("dbx-tc", "dbx-tc", "--option durable_snapshots=1 --durability group"),
    ("dbx-tc (ROEP)", "dbx-tc", "--option durable_snapshots=2 --durability group"),
    ("dbx-tc by epoch", "dbx-tc", "--durability group"),
    ("dbx", "dbx", "--durability group"),
    ("dbx-tc without durability", "dbx-tc", "--option durable_snapshots=1"),
    ("dbx-tc (ROEP) without durability", "dbx-tc", "--option durable_snapshots=2"),
    ("dbx without durability", "dbx", ""),
];

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for (series, more) in SNAPSHOTS {
        let command = |_, protocol: &str| setting.tpcc(1, protocol, more);
        points.extend(by_threads(setting, "snapshots", (series, "dbx-tc"), command));
    }
    for (series, protocol, more) in DURABLE_RUNS {
        let command = |threads, protocol: &str| setting.tpcc(threads, protocol, more);
        points.extend(by_threads(setting, "durability", (series, protocol), command));
    }
    points
}

const fn view(title: &'static str, part: &'static str, shows: Shows) -> View {
    View { title, part, x: Axis::Number("threads"), shows }
}

/// Of [`FIGURE`]'s views.
const READ_ONLY: usize = 0;
const CONFLICTS: usize = 1;
const DURABLE_RATE: usize = 2;
const UNTIL_DURABLE: usize = 3;

const fn claim(says: &'static str, view: usize, one: &'static str, other: &'static str, min: f64, max: f64) -> Claim {
    Claim::new(says, Quantity::Ratio(one, other)).of_view(view).between(min, max)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::DbxTc,
    number: "13",
    title: "What snapshots and durability do",
    paper_shows: "(a) With one warehouse and eight threads, without snapshots, conflicts are 3.3 times as many and throughput stops growing after four \
                  threads. (b) Logging costs DBX-TC 11 to 16 % and DBX 9 to 18 %; DBX-TC stays 39 % ahead. (c) Results are durable after 114 ms with an epoch of 20 \
                  ms, and after 54 ms where read-only transactions advance it too; DBX 58 ms.",
    here: "(a) one warehouse; `snapshots`: made every 20 ms whether wanted or not (`--option snapshot_wanted_min=0`), as in the paper; `validated`: read-only transactions are validated as others (`--snapshots off`); `ROEP`: each makes a snapshot of its own \
           (`--option snapshot_interval_ms=0`). (b), (c) a warehouse for each thread, \
           group commit by one logger into the system's temporary directory. `dbx-tc`: durability by snapshot, one every 20 ms (`--option durable_snapshots=1`); `dbx-tc (ROEP)`: read-only transactions make one, too \
           (`durable_snapshots=2`); `dbx-tc by epoch`: as it is by default, epochs of 10 ms and snapshots while they are wanted. Results are submitted, many at a time, and wait for the next flush, which comes with each interval: 20 ms with durability by snapshot, and 10 otherwise. Read-only transactions that end an epoch have nothing flushed sooner.",
    points,
    views: &[
        view("(a) read-only transactions", "snapshots", Shows::One(THROUGHPUT)),
        view("(a) aborts", "snapshots", Shows::One(ABORTS)),
        view("(b) durability", "durability", Shows::One(THROUGHPUT)),
        view("(c) until results are durable", "durability", Shows::One(DURABLE)),
    ],
    claims: &[
        claim("snapshots help where all share a warehouse", READ_ONLY, "snapshots", "validated", 1.05, AHEAD)
            .from_threads(8),
        Claim::new("without them it stops growing after four threads", Quantity::Between("validated", 4.0, 8.0))
            .of_view(READ_ONLY)
            .at_most(1.1)
            .from_threads(8)
            .because("It grows by an eighth from there. With snapshots it is what stops at four: Deliveries, one after another, bound what commits."),
        claim("conflicts are 3.3 times as many without", CONFLICTS, "validated", "snapshots", 3.3, AHEAD)
            .from_threads(8)
            .because("Most conflicts here are of those that write, Deliveries at their queue above all, which both have."),
        claim(
            "snapshots of the past are at most 3 % slower than those of the present",
            READ_ONLY,
            "snapshots",
            "ROEP",
            0.97,
            AHEAD,
        ).ours(),
        claim("durable DBX-TC is at most 16 % slower", DURABLE_RATE, "dbx-tc", "dbx-tc without durability", 0.84, 1.02),
        claim(
            "durable DBX-TC (ROEP) is at most 24 % slower",
            DURABLE_RATE,
            "dbx-tc (ROEP)",
            "dbx-tc (ROEP) without durability",
            0.76,
            1.02,
        ),
        claim("durable DBX at most 18 % slower", DURABLE_RATE, "dbx", "dbx without durability", 0.82, 1.02),
        claim("durable DBX-TC is 39 % ahead of durable DBX", DURABLE_RATE, "dbx-tc", "dbx", 1.39, AHEAD)
            .because("As in figure 12 both execute alike here."),
        claim("durable DBX-TC (ROEP) is 30 % ahead of durable DBX", DURABLE_RATE, "dbx-tc (ROEP)", "dbx", 1.3, AHEAD)
            .because("As in figure 12 both execute alike here."),
        claim("results take about 2 times as long as those of DBX", UNTIL_DURABLE, "dbx-tc", "dbx", 1.8, 2.2)
            .because("The flush itself, which takes as long in both, is a large part of it."),
        claim("with ROEP about as long", UNTIL_DURABLE, "dbx-tc (ROEP)", "dbx", 0.9, 1.1)
            .because("The paper's loggers get what is to be flushed when the number advances; ours when an interval ends, or somebody waits."),
        // Not the paper's: what the option costs.
        claim(
            "durability by snapshot is at most 5 % slower than by epoch",
            DURABLE_RATE,
            "dbx-tc",
            "dbx-tc by epoch",
            0.95,
            AHEAD,
        ).ours(),
    ],
};
