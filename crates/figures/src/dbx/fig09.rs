//! DBX, figure 9: how often regions abort, and fall back to their locks.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::{FALLBACKS, REGION_ABORTS};
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let point = |scene: crate::Scene| {
        // The command of figure 5 where there are regions.
        let more = if setting.regions(scene.cores) == "auto" { "" } else { "--htm emulated" };
        setting.point("", "dbx", scene.threads as f64, scene, &setting.tpcc(scene.threads, "dbx", more))
    };
    setting.scenes(&super::CORES).into_iter().map(point).collect()
}

/// Why regions fall back more often than in the paper.
const FIRST_TOUCH: &str =
    "Each page that a region touches first sends it to its locks: the paper's memory was touched before.";

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "9",
    title: "Aborted regions and fallbacks in TPC-C",
    paper_shows: "With one thread 0.05 % of regions abort, most of them for their size, and 0.001 % of transactions take the fallback lock; with eight \
                  threads it is 1.4 %, about half by conflicts, and 0.002 %.",
    here: "TPC-C's full mix, a warehouse for each thread. Fallback locks are those of the records, not one for all. Fallbacks include pages that a \
           region touches first: a region cannot fetch them, so a body that finds one runs under its locks at once.",
    points,
    views: &[
        View { title: "aborted regions", part: "", x: Axis::Number("threads"), shows: Shows::One(REGION_ABORTS) },
        View { title: "fallbacks", part: "", x: Axis::Number("threads"), shows: Shows::One(FALLBACKS) },
    ],
    claims: &[
        Claim::new("with one thread 0.05 % of regions abort", Quantity::ValueAt("dbx", 1.0))
            .at_most(0.05)
            .about_regions(),
        Claim::new("with eight threads 1.4 % of them", Quantity::Value("dbx"))
            .at_most(1.4)
            .from_threads(8)
            .about_regions(),
        Claim::new("of a hundred thousand transactions two take a fallback lock", Quantity::Value("dbx"))
            .of_view(1)
            .at_most(0.002)
            .about_regions()
            .because(FIRST_TOUCH),
        Claim::new("more of them with eight threads than with one", Quantity::Growth("dbx"))
            .at_least(1.1)
            .from_threads(8)
            .about_regions(),
        Claim::new("of a thousand transactions not one takes a fallback lock", Quantity::Value("dbx"))
            .ours()
            .of_view(1)
            .at_most(0.1)
            .about_regions()
            .because(FIRST_TOUCH),
    ],
};
