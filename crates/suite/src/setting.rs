//! The settings a test runs in: protocol × back end.

use seriatim::htm::{Emulation, HtmMode};
use seriatim::{Builder, Database, protocols, rng};

/// One protocol on one back end.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The protocol's name.
    pub protocol: &'static str,
    /// How regions run.
    pub htm: HtmMode,
    /// Whether the serial order must agree with real time.
    pub strict: bool,
}

impl Setting {
    /// Options for a database in this setting.
    pub fn builder(&self) -> Builder {
        Database::builder().protocol(self.protocol).htm(self.htm)
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.protocol, self.htm)
    }
}

/// Every protocol of the registry on every back end: emulated with random aborts, absent, and rtm where it works.
pub fn matrix(seed: u64) -> Vec<Setting> {
    let emulation = Emulation { seed, abort_one_in: 8, yields: true };
    let mut backends = vec![HtmMode::Absent, HtmMode::Emulated(emulation)];
    if seriatim::htm::detect().probe_commits {
        backends.push(HtmMode::Rtm);
    }
    let settings = |htm: HtmMode| {
        protocols().iter().map(move |protocol| Setting { protocol: protocol.name, htm, strict: protocol.gives.strict })
    };
    backends.into_iter().flat_map(settings).collect()
}

/// The seed of a test: `SERIATIM_SEED` if set, else one nobody can predict. Printed before it is used.
pub fn seed(test: &str) -> u64 {
    let given = std::env::var("SERIATIM_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(rng::entropy);
    eprintln!("{test}: SERIATIM_SEED={seed}");
    seed
}
