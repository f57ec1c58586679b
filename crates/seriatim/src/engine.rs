//! The one place that turns a protocol's name into its code.
//!
//! A closure cannot be generic over the protocol, so a session holds its worker behind `dyn Worker`: one predictable indirect
//! call per operation (decision record 2; `docs/performance.md` has the measurement).

#[cfg(any(test, feature = "trial"))]
pub(crate) mod repairing;

use seriatim_protocol::{PROTOCOLS, for_each_protocol};
use seriatim_txn::{Core, Environment, Protocol, ProtocolInfo, Worker};

/// The registry of protocols: name, paper, needs, gives.
pub fn protocols() -> &'static [ProtocolInfo] {
    PROTOCOLS
}

/// A protocol opened for one database.
pub(crate) trait Engine: Send + Sync {
    fn worker(&self, core: Core) -> Box<dyn Worker>;
    fn info(&self) -> &'static ProtocolInfo;
    fn head_bytes(&self) -> usize;
    fn image_header_bytes(&self) -> usize;
}

impl<P: Protocol> Engine for P {
    fn worker(&self, core: Core) -> Box<dyn Worker> {
        Box::new(Protocol::worker(self, core))
    }

    fn info(&self) -> &'static ProtocolInfo {
        &P::INFO
    }

    fn head_bytes(&self) -> usize {
        P::HEAD_BYTES
    }

    fn image_header_bytes(&self) -> usize {
        P::IMAGE_HEADER_BYTES
    }
}

/// What `auto` stands for: the newest snapshots, and as fast without regions as any.
const DEFAULT: &str = "dbx";

macro_rules! selector {
    ($($protocol:ident => $type:path,)*) => {
        /// Opens the protocol called `name`; `None` if there is none.
        pub(crate) fn open(name: &str, environment: &Environment) -> Option<Box<dyn Engine>> {
            #[cfg(any(test, feature = "trial"))]
            if name == repairing::NAME {
                let inner = open(DEFAULT, environment)?;
                return Some(Box::new(repairing::Repairing(inner)));
            }
            match if name == "auto" { DEFAULT } else { name } {
                $(stringify!($protocol) => {
                    Some(Box::new(<$type as Protocol>::open(Default::default(), environment)))
                })*
                _ => None,
            }
        }
    };
}
for_each_protocol!(selector);
