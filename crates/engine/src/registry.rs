//! The protocols: one line each. `for_each_protocol` goes through all of them.

#[doc(hidden)]
pub use seriatim_baselines::*;
#[doc(hidden)]
pub use seriatim_protocol::*;

/// Calls a macro with `name => module::Type` of every protocol.
#[macro_export]
macro_rules! for_each_protocol {
    ($callback:path) => {
        $callback! {
            dbx => $crate::registry::dbx::Dbx,
            silo => $crate::registry::silo::Silo,
            nowait => $crate::registry::nowait::NoWait,
            wait_die => $crate::registry::wait_die::WaitDie,
            tictoc => $crate::registry::tictoc::TicToc,
            htcc => $crate::registry::htcc::Htcc,
            dbx_tc => $crate::registry::dbx_tc::DbxTc,
            occ => $crate::registry::occ::Occ,
            occ_batch => $crate::registry::occ_batch::OccBatch,
            hto => $crate::registry::hto::Hto,
            cicada => $crate::registry::cicada::Cicada,
            naive => $crate::registry::naive::Naive,
            partitioned => $crate::registry::partitioned::Partitioned,
        }
    };
}

macro_rules! infos {
    ($($name:ident => $protocol:path,)*) => {
        /// The registry, in the order of preference.
        pub const PROTOCOLS: &[seriatim_txn::ProtocolInfo] =
            &[$(<$protocol as seriatim_txn::Protocol>::INFO,)*];
    };
}
for_each_protocol!(infos);

/// Bytes that each protocol adds to a record: its header, and the header before the row version inside. A
/// protocol that needs more words does not make the others' records larger.
const _A_RECORD_HAS_NO_MORE_THAN_ITS_PROTOCOL_NEEDS: () = {
    use seriatim_txn::Protocol;
    const fn added<P: Protocol>() -> [usize; 2] {
        [P::HEADER_BYTES, P::VERSION_HEADER_BYTES]
    }
    assert!(matches!(added::<silo::Silo>(), [16, 0]));
    assert!(matches!(added::<naive::Naive>(), [16, 0]));
    assert!(matches!(added::<partitioned::Partitioned>(), [16, 0]));
    assert!(matches!(added::<occ_batch::OccBatch>(), [24, 0]));
    assert!(matches!(added::<nowait::NoWait>(), [24, 0]));
    assert!(matches!(added::<wait_die::WaitDie>(), [24, 0]));
    assert!(matches!(added::<htcc::Htcc>(), [24, 0]));
    assert!(matches!(added::<tictoc::TicToc>(), [24, 0]));
    assert!(matches!(added::<occ::Occ>(), [24, 0]));
    assert!(matches!(added::<hto::Hto>(), [32, 0]));
    assert!(matches!(added::<cicada::Cicada>(), [32, 24]));
    assert!(matches!(added::<dbx::Dbx>(), [24, 24]));
    assert!(matches!(added::<dbx_tc::DbxTc>(), [24, 24]));
};
