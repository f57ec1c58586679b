//! The protocols: one line each. Whoever needs them all goes through [`for_each_protocol`].

/// Calls a macro with `name => module::Type` of every protocol.
#[macro_export]
macro_rules! for_each_protocol {
    ($callback:path) => {
        $callback! {
            dbx => $crate::dbx::Dbx,
            silo => $crate::silo::Silo,
            nowait => $crate::nowait::NoWait,
            wait_die => $crate::wait_die::WaitDie,
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
