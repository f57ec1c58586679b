//! Figures of DBX (Wang et al., EuroSys 2014).

use crate::figure::{Axis, Claim, Point, Quantity, Shows, View};
use crate::metric::THROUGHPUT;
use crate::setting::Setting;

pub(crate) mod fig01;
pub(crate) mod fig05;
pub(crate) mod fig06;
pub(crate) mod fig07;
pub(crate) mod fig08;
pub(crate) mod fig09;
pub(crate) mod fig10;
pub(crate) mod fig11;
pub(crate) mod fig12;
pub(crate) mod fig13;
pub(crate) mod fig14;
pub(crate) mod fig15;
pub(crate) mod fig16;
pub(crate) mod fig17;

/// Simulated cores in the place of the paper's 1 to 8 hardware threads.
const CORES: [usize; 4] = [1, 2, 4, 8];

/// Why Silo is not as far behind as in the paper.
const SHARED_STORE: &str = "Here both share store, rows and memory, and the commit is about a seventh of the full mix's instructions: whatever it does \
                            changes the whole little. The paper's Silo has another store beside another commit.";

/// TPC-C by threads: curves by name, protocol and further options; warehouses for so many threads.
fn by_threads(setting: &Setting, curves: &[(&str, &str, &str)], warehouses: impl Fn(usize) -> usize) -> Vec<Point> {
    let mut points = Vec::new();
    for (series, protocol, more) in curves {
        for scene in setting.scenes(&CORES) {
            let command = setting.tpcc(warehouses(scene.threads), protocol, more);
            points.push(setting.point("", series, scene.threads as f64, scene, &command));
        }
    }
    points
}

/// The stores of figures 12 and 13.
const MIXED: &str = "mixed";
const ORDERED: &str = "ordered";

/// TPC-C over both, by threads.
fn stores(setting: &Setting, mix: &str) -> Vec<Point> {
    let ordered = format!("{mix} --index ordered");
    by_threads(setting, &[(MIXED, "dbx", mix), (ORDERED, "dbx", &ordered)], |threads| threads)
}

/// The curves of figures 6 and 7.
const IN_REGIONS: &str = "in regions";
const OPTIMISTIC: &str = "optimistic";
const SPIN_LOCK: &str = "one spin lock";

/// An index of this organization in regions and without, by threads; with insertions in the second part.
fn index_points(setting: &Setting, organization: &str) -> Vec<Point> {
    let mut points = Vec::new();
    for (part, mix) in [("", "--reads 80"), ("insertions", "--reads 50 --inserts 25")] {
        for scene in setting.real() {
            let htm = setting.regions(scene.cores);
            for (series, regions, htm) in [
                (IN_REGIONS, "operations", htm),
                (SPIN_LOCK, "operations", "absent"),
                (OPTIMISTIC, "changes", "absent"),
                ("optimistic, changes in regions", "changes", htm),
            ] {
                let rows = format!("--index {organization} --records {} {mix}", setting.records());
                let command = format!("index {rows} --regions {regions} --htm {htm}");
                points.push(setting.below(part, series, scene.threads as f64, scene, &command));
            }
        }
    }
    points
}

const fn index_views() -> [View; 2] {
    let (x, shows) = (Axis::Number("threads"), Shows::One(THROUGHPUT));
    [
        View { title: "80 % lookups", part: "", x, shows },
        View { title: "50 % lookups, 25 % insertions", part: "insertions", x, shows },
    ]
}

const GROWS: Claim =
    index_claim("in regions it grows with the threads", 0, Quantity::Scaling(IN_REGIONS), 0.7, f64::INFINITY)
        .from_threads(2);

const LOCK_FALLS_BEHIND: Claim = index_claim(
    "a spin lock in their place falls behind",
    0,
    Quantity::Ratio(SPIN_LOCK, IN_REGIONS),
    f64::NEG_INFINITY,
    0.8,
)
.from_threads(2);

const fn index_claim(says: &'static str, view: usize, quantity: Quantity, min: f64, max: f64) -> Claim {
    Claim::new(says, quantity).of_view(view).between(min, max).about_regions()
}
