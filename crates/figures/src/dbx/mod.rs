//! Figures of DBX (Wang et al., EuroSys 2014).

pub(crate) mod fig05;
pub(crate) mod fig09;

/// Simulated cores in the place of the paper's 1 to 8 hardware threads.
const CORES: [usize; 4] = [1, 2, 4, 8];
