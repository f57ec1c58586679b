//! What several protocols have in common. Protocol folders import this, never each other.

pub(crate) mod attempt;
pub(crate) mod head;
pub(crate) mod locking;
pub(crate) mod optimistic;
pub(crate) mod origin;
pub(crate) mod own;
pub(crate) mod prefetch;
pub(crate) mod record;
pub(crate) mod restore;
pub(crate) mod sweep;
pub(crate) mod versions;
pub(crate) mod worker;
pub(crate) mod writes;
