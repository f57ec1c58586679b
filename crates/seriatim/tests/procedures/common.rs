//! The settings in which every test runs.

use seriatim::htm::{Emulation, HtmMode};
use seriatim::{Builder, Database, ProtocolInfo};

/// A protocol with a back end.
pub(crate) struct Setting {
    pub(crate) protocol: ProtocolInfo,
    htm: HtmMode,
}

impl Setting {
    /// Options for a database in this setting.
    pub(crate) fn builder(&self) -> Builder {
        Database::builder().protocol(self.protocol.name).htm(self.htm).workers(4)
    }
}

/// Runs a test under every protocol and one that copies rows, on the default back end and on emulated regions with
/// random aborts.
pub(crate) fn each(test: impl Fn(&Setting)) {
    let emulation = Emulation { seed: 7, abort_one_in: 16, yields: false };
    for htm in [HtmMode::Auto, HtmMode::Emulated(emulation)] {
        let copying = seriatim::protocols().iter().find(|protocol| protocol.name == "dbx");
        let copying = copying
            .map(|default| ProtocolInfo { name: seriatim_engine::test_support::protocols::copying::NAME, ..*default });
        let opens = |protocol: &ProtocolInfo| protocol.opens_on(htm);
        for protocol in seriatim::protocols().iter().copied().chain(copying).filter(opens) {
            let setting = Setting { protocol, htm };
            eprintln!("under {} on {htm}", protocol.name);
            test(&setting);
        }
    }
}
