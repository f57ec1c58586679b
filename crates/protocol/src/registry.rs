//! The protocols: one line each. [`for_each_protocol`](crate::for_each_protocol) goes through all of them.

/// Calls a macro with `name => module::Type` of every protocol.
#[macro_export]
macro_rules! for_each_protocol {
    ($callback:path) => {
        $callback! {
            dbx => $crate::dbx::Dbx,
            silo => $crate::silo::Silo,
            nowait => $crate::nowait::NoWait,
            wait_die => $crate::wait_die::WaitDie,
            tictoc => $crate::tictoc::TicToc,
            htcc => $crate::htcc::Htcc,
            dbx_tc => $crate::dbx_tc::DbxTc,
            occ => $crate::occ::Occ,
            occ_batch => $crate::occ_batch::OccBatch,
            hto => $crate::hto::Hto,
            cicada => $crate::cicada::Cicada,
            naive => $crate::naive::Naive,
            partitioned => $crate::partitioned::Partitioned,
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

/// Has the workers of all protocols compiled with this crate. Where little is optimized, crates that use it
/// take generic code from here; it would be compiled again in each program of tests that drives workers.
#[cfg(all(debug_assertions, not(test)))]
mod compiled {
    use seriatim_txn::{Core, Protocol, Worker};

    fn worker<P: Protocol>(protocol: &P, core: Core) -> Box<dyn Worker> {
        Box::new(protocol.worker(core))
    }

    macro_rules! workers {
        ($($name:ident => $protocol:path,)*) => {
            #[used]
            static WORKERS: ($(fn(&$protocol, Core) -> Box<dyn Worker>,)*) = ($(worker::<$protocol>,)*);
        };
    }
    for_each_protocol!(workers);
}

/// Bytes that each protocol adds to a record: its header, and the header before the row version inside. A
/// protocol that needs more words does not make the others' records larger.
const _A_RECORD_HAS_NO_MORE_THAN_ITS_PROTOCOL_NEEDS: () = {
    use seriatim_txn::Protocol;
    const fn added<P: Protocol>() -> [usize; 2] {
        [P::HEADER_BYTES, P::VERSION_HEADER_BYTES]
    }
    assert!(matches!(added::<crate::silo::Silo>(), [16, 0]));
    assert!(matches!(added::<crate::naive::Naive>(), [16, 0]));
    assert!(matches!(added::<crate::partitioned::Partitioned>(), [16, 0]));
    assert!(matches!(added::<crate::occ_batch::OccBatch>(), [24, 0]));
    assert!(matches!(added::<crate::nowait::NoWait>(), [24, 0]));
    assert!(matches!(added::<crate::wait_die::WaitDie>(), [24, 0]));
    assert!(matches!(added::<crate::htcc::Htcc>(), [24, 0]));
    assert!(matches!(added::<crate::tictoc::TicToc>(), [24, 0]));
    assert!(matches!(added::<crate::occ::Occ>(), [24, 0]));
    assert!(matches!(added::<crate::hto::Hto>(), [32, 0]));
    assert!(matches!(added::<crate::cicada::Cicada>(), [32, 24]));
    assert!(matches!(added::<crate::dbx::Dbx>(), [24, 24]));
    assert!(matches!(added::<crate::dbx_tc::DbxTc>(), [24, 24]));
};
