//! Figures of DBX-TC (HTM with transaction chopping and eventual snapshots).
//!
//! The paper's systems by their names here: the naive use of regions is `naive`, Silo-2PL `nowait`. Figures 10 and 11, the chopping graphs of
//! TPC-C, are drawn by `seriatim graph`.

use crate::figure::Point;
use crate::measured::{Cores, Size};
use crate::setting::{Scene, Setting};

pub(crate) mod fig01;
pub(crate) mod fig12;
pub(crate) mod fig13;
pub(crate) mod fig14;
pub(crate) mod fig15;
pub(crate) mod table1;

/// Simulated cores in the place of the paper's 1 to 8 hardware threads, and more.
const CORES: [usize; 5] = [1, 2, 4, 8, 16];

/// The systems of figures 12 and 15.
const PROTOCOLS: [&str; 5] = ["dbx-tc", "naive", "dbx", "silo", "nowait"];

/// How many warehouses so many threads have.
type Warehouses = fn(usize) -> usize;

/// The paper's three levels of contention, each with the part of the figure that it is.
const LEVELS: [(&str, Warehouses); 3] =
    [("low", |threads| threads), ("medium", |threads| threads.div_ceil(2)), ("high", |_| 1)];

/// There is no most by which one curve may be ahead of another.
const AHEAD: f64 = f64::INFINITY;

/// Threads of the machine and simulated cores; of a small size fewer.
fn scenes(setting: &Setting) -> Vec<Scene> {
    if setting.size == Size::Small { setting.widest(8) } else { setting.scenes(&CORES) }
}

/// Points of a curve by threads, with the options by which its protocol runs in comparisons. `naive` has none on simulated cores, whose regions
/// cannot hold a whole transaction, and emulated regions where the processor has none.
fn by_threads(
    setting: &Setting,
    part: &'static str,
    (series, protocol): (&str, &str),
    command: impl Fn(usize, &str) -> String,
) -> Vec<Point> {
    let is_shown = |scene: &Scene| protocol != "naive" || scene.cores == Cores::Real;
    let point = |scene: Scene| {
        let htm = if protocol == "naive" { setting.regions(scene.cores) } else { "auto" };
        let command = format!("{} --htm {htm}", command(scene.threads, protocol));
        setting.point(part, series, scene.threads as f64, scene, &command)
    };
    scenes(setting).into_iter().filter(is_shown).map(point).collect()
}
