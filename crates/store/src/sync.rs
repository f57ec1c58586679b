//! The fence of optimistic readers: the standard one, or loom's when the words are model-checked (`--cfg
//! loom`). Words themselves are of either kind, see [`seriatim_htm::word`].

#[cfg(loom)]
pub(crate) use loom::sync::atomic::fence;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::fence;
