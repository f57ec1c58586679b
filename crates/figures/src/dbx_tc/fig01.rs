//! DBX-TC, figure 1: regions that write at random, and whole transactions in regions.

use super::{LEVELS, by_threads};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::measured::Size;
use crate::metric::{FALLBACKS, REGION_ABORTS, THROUGHPUT};
use crate::setting::Setting;

/// Cache lines written at random: of the large size, and of the small one.
const LINES: [&[u32]; 2] = [&[1, 2, 4, 7, 14, 28, 56, 112, 224, 448], &[7, 448]];

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for scene in setting.widest(1) {
        for &lines in LINES[usize::from(setting.size == Size::Small)] {
            let command = format!("regions --scattered {lines} --htm {}", setting.regions(scene.cores));
            points.push(setting.below("random", "written at random", f64::from(lines * 64), scene, &command));
        }
    }
    for (level, warehouses) in LEVELS {
        let command = |threads, protocol: &str| setting.tpcc(warehouses(threads), protocol, "");
        points.extend(by_threads(setting, "whole", (level, "naive"), command));
    }
    points
}

const fn by_contention(title: &'static str, shows: Shows) -> View {
    View { title, part: "whole", x: Axis::Number("threads"), shows }
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::DbxTc,
    number: "1",
    title: "Regions that write at random, and whole transactions in regions",
    paper_shows: "(b) Of regions that write 448 bytes at random places of 4 MB more than 90 % abort. (c) TPC-C with each transaction in one region does not \
                  scale, with little contention no better than with much; on one thread 88 % of the transactions take the lock.",
    here: "(a) is figure 1 of DBX. (b): cache lines at random in 4 MiB, each naming the next, by the bytes of these lines. (c): TPC-C's full mix under \
           `naive`, a warehouse for each thread (low), for two (medium) or for all (high). Not on simulated cores, whose regions hold commits only.",
    points,
    views: &[
        View { title: "written at random", part: "random", x: Axis::Number("bytes"), shows: Shows::One(REGION_ABORTS) },
        by_contention("whole transactions", Shows::One(THROUGHPUT)),
        by_contention("run under the lock", Shows::One(FALLBACKS)),
    ],
    claims: &[
        Claim::new("of regions that write 448 bytes at random more than 90 % abort", Quantity::ValueAt("written at random", 448.0))
            .between(90.0, 100.0)
            .about_regions()
            .because(
                "Seven lines do not fill the 8 to 12 lines of a set, so the cache is not why; what the paper's \
                 array met besides is not said.",
            ),
        Claim::new(
            "what does not fit grows faster than its size at random places: 28 KiB of the 48 that the cache has \
             are too much",
            Quantity::ValueAt("written at random", 28672.0),
        )
        .between(90.0, 100.0)
        .about_regions(),
        Claim::new("on one thread 88 of 100 transactions take the lock", Quantity::ValueAt("low", 1.0))
            .of_view(2)
            .at_least(88.0)
            .about_regions()
            .because("The paper's first cache has 8 lines of 64 bytes in a set; newer ones have 12, in which more transactions fit."),
        Claim::new("whole transactions do not scale", Quantity::Scaling("low"))
            .of_view(1)
            .at_most(0.25)
            .from_threads(8)
            .about_regions(),
        Claim::new("little contention is no better than much", Quantity::Ratio("low", "high"))
            .of_view(1)
            .at_most(1.1)
            .from_threads(2)
            .about_regions(),
    ],
};
