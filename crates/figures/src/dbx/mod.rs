//! Figures of DBX (Wang et al., EuroSys 2014).

use crate::figure::Point;
use crate::setting::Setting;

pub(crate) mod fig05;
pub(crate) mod fig08;
pub(crate) mod fig09;
pub(crate) mod fig10;
pub(crate) mod fig14;
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
