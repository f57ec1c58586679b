//! Figures of HTCC (Wu and Tan, USENIX ATC 2016).
//!
//! The paper's protocols by their names here: 2PL is `wait-die`, OCC `occ`, SOCC `silo`, HOCC `dbx`, HTO `hto`. Its SOCC, HOCC and
//! HTCC validate whole rows, as `silo-rows`, `dbx-rows` and `htcc-rows` do; `silo`, `dbx` and `htcc` validate by columns.

use crate::figure::Point;
use crate::measured::{Cores, Size};
use crate::setting::{Scene, Setting, thresholds};

pub(crate) mod fig01;
pub(crate) mod fig10;
pub(crate) mod fig11;
pub(crate) mod fig12;
pub(crate) mod fig13;
pub(crate) mod fig14;
pub(crate) mod fig15;
pub(crate) mod fig16;
pub(crate) mod fig17;
pub(crate) mod fig18;
pub(crate) mod fig19;
pub(crate) mod table1;

/// Simulated cores in the place of the paper's 1 to 40 cores.
const CORES: [usize; 6] = [1, 2, 4, 8, 16, 40];

/// The protocols that figures 13 to 15 compare.
const PROTOCOLS: [&str; 9] = ["htcc", "htcc-rows", "occ", "silo", "silo-rows", "dbx", "dbx-rows", "wait-die", "hto"];

/// A curve's growth over that of the cores where it grows "nearly linearly".
const NEARLY_LINEAR: f64 = 0.8;

/// And at most where it "does not scale": ten times as much with 40 cores as with one.
const DOES_NOT_SCALE: f64 = 0.25;

/// Why HOCC does not collapse here as in the paper.
const NO_GLOBAL_LOCK: &str = "The paper's HOCC falls back to one lock for all, which ends every region that is open. Here a region that gives up takes \
                              the locks of its records, and others go on.";

/// Why HTCC is not ahead where nobody contends.
const NOTHING_TO_REPAIR: &str = "With few warehouses it is. Where there is one for each core hardly a transaction is refuted: repairs gain nothing, and what calls \
                                 keep for them costs a few hundredths.";

/// Why OCC is further behind SOCC here than in the paper.
const READS_ARE_SHARED: &str = "`occ` writes a timestamp to each record that it read. Simulated cores charge the transfer of that line to whoever comes next, \
                                with or without a conflict.";

/// A point of each of these protocols by threads, TPC-C with as many warehouses as the scene should have.
fn tpcc_by_threads(setting: &Setting, protocols: &[&str], warehouses: impl Fn(Scene) -> usize) -> Vec<Point> {
    let scenes = setting.scenes(&CORES);
    let of = |protocol: &&str| {
        let point = |scene: &Scene| {
            let command = setting.tpcc(warehouses(*scene), protocol, "");
            setting.point("", protocol, scene.threads as f64, *scene, &command)
        };
        scenes.iter().map(point).collect::<Vec<_>>()
    };
    protocols.iter().flat_map(of).collect()
}

/// Warehouses where there is little contention: one for each thread; the paper has 40 for its 40 cores.
fn low_contention(setting: &Setting) -> impl Fn(Scene) -> usize {
    let processors = setting.processors;
    move |scene| if scene.cores == Cores::Real { processors } else { 40 }
}

/// Warehouses where there is much: the paper's 4, or, where there are few threads, one.
fn high_contention(scene: Scene) -> usize {
    if scene.cores == Cores::Real { 1 } else { 4 }
}

/// Points of variants with high contention, by threads: each with the curve's name, the protocol and further options.
fn parts(setting: &Setting, variants: &[(&str, &str, &str)]) -> Vec<Point> {
    let mut points = Vec::new();
    for scene in setting.scenes(&CORES) {
        for (series, protocol, more) in variants {
            let command = setting.tpcc(high_contention(scene), protocol, more);
            points.push(setting.point("", series, scene.threads as f64, scene, &command));
        }
    }
    points
}

/// Warehouses of figures about their number.
fn warehouses(setting: &Setting, scene: Scene) -> impl Iterator<Item = usize> + use<> {
    let warehouses: &[usize] = match (setting.size, scene.cores) {
        (Size::Small, _) => &[1, 2],
        (_, Cores::Real) => &[1, 2, 4, 8],
        (_, Cores::Simulated) => &[4, 10, 20, 40],
    };
    warehouses.iter().copied()
}

/// HOCC by its restart thresholds, and OCC, by threads.
fn restarts(setting: &Setting, warehouses: impl Fn(Scene) -> usize) -> Vec<Point> {
    let mut points = Vec::new();
    for scene in setting.scenes(&CORES) {
        for (series, restarts) in [("HOCC(1)", 1), ("HOCC(8)", 8), ("HOCC(64)", 64)] {
            let more = format!("--htm {} {}", setting.regions(scene.cores), thresholds(restarts));
            let command = setting.tpcc(warehouses(scene), "dbx-rows", &more);
            points.push(setting.point("", series, scene.threads as f64, scene, &command));
        }
        let command = setting.tpcc(warehouses(scene), "occ", "");
        points.push(setting.point("", "occ", scene.threads as f64, scene, &command));
    }
    points
}
