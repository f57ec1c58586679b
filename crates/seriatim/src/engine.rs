//! The one place that turns a protocol's name into its code.
//!
//! A closure cannot be generic over the protocol, so a session holds its worker behind `dyn Worker`: one predictable indirect
//! call per operation (decision record 2; `docs/performance.md` has the measurement).

#[cfg(test)]
pub(crate) mod repairing;

use seriatim_base::Stamp;
use seriatim_catalog::Key;
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_protocol::{PROTOCOLS, for_each_protocol};
use seriatim_store::RecordPtr;
use seriatim_txn::{Change, Core, Environment, Peeked, Protocol, ProtocolInfo, Recover, Restored, Table, Worker};

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

    /// As [`Protocol::peek_committed`].
    ///
    /// # Safety
    /// As there.
    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, pin: Pinned<'_>) -> Peeked;

    /// As [`Recover::restore`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    unsafe fn restore(
        &self,
        core: &mut Core,
        table: &Table,
        key: Key<'_>,
        stamp: Stamp,
        change: Change<'_>,
    ) -> Result<Restored, OutOfMemory>;

    /// As [`Recover::finish_restore`].
    ///
    /// # Safety
    /// As there.
    unsafe fn finish_restore(&self, core: &mut Core, table: &Table);
}

impl<P: Recover> Engine for P {
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

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, pin: Pinned<'_>) -> Peeked {
        // SAFETY: the caller's promise.
        unsafe { Protocol::peek_committed(self, table, record, pin) }
    }

    unsafe fn restore(
        &self,
        core: &mut Core,
        table: &Table,
        key: Key<'_>,
        stamp: Stamp,
        change: Change<'_>,
    ) -> Result<Restored, OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe { Recover::restore(self, core, table, key, stamp, change) }
    }

    unsafe fn finish_restore(&self, core: &mut Core, table: &Table) {
        // SAFETY: the caller's promise.
        unsafe { Recover::finish_restore(self, core, table) }
    }
}

/// What `auto` stands for: the newest snapshots, and as fast without regions as any.
const DEFAULT: &str = "dbx";

macro_rules! selector {
    ($($protocol:ident => $type:path,)*) => {
        /// Opens the protocol called `name`; `None` if there is none.
        pub(crate) fn open(name: &str, environment: &Environment) -> Option<Box<dyn Engine>> {
            #[cfg(test)]
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
