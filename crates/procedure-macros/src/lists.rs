//! The names that a procedure may call besides `#[pure]` functions: those that the interpreter has, from the same file.

// Shared by path, since this crate depends on nothing of ours. It looks at names, arguments and positions only.
#[allow(dead_code, unreachable_pub, rustdoc::broken_intra_doc_links)]
#[path = "../../procedure/src/names.rs"]
mod names;

pub(crate) use names::{ASSOCIATED, INTEGERS, METHODS, Position, method};

/// Names of methods, for messages.
pub(crate) fn method_names() -> String {
    METHODS.iter().map(|method| method.name).collect::<Vec<_>>().join(", ")
}
