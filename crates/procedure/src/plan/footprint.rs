//! The footprint of a procedure, as far as it is known before it runs: for batching, scheduling and
//! prefetching.

use std::fmt;
use std::sync::Arc;

use super::Symbol;

/// The footprint of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The operation.
    pub operation: usize,
    /// Its table.
    pub table: Arc<str>,
    /// The index by which it finds rows.
    pub index: Option<Arc<str>>,
    /// The fixed values of its key.
    pub key: Vec<Symbol>,
    /// Whether it changes these rows.
    pub writes: bool,
    /// Whether it runs in every execution that does not fail.
    pub certain: bool,
    /// Whether the arguments determine all its keys.
    pub known: bool,
}

/// The footprint of a procedure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// By operation.
    pub touches: Vec<Touch>,
}

impl Footprint {
    /// Whether the arguments determine every key, so that nothing is left to discover.
    pub fn is_complete(&self) -> bool {
        self.touches.iter().all(|touch| touch.known)
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "footprint{}", if self.is_complete() { " (complete)" } else { "" })?;
        for touch in &self.touches {
            let key: Vec<String> = touch.key.iter().map(Symbol::to_string).collect();
            let index = touch.index.as_ref().map(|index| format!(" by {index}")).unwrap_or_default();
            writeln!(
                f,
                "  #{} {} {}{index}({}){}{}",
                touch.operation,
                if touch.writes { "writes" } else { "reads" },
                touch.table,
                key.join(", "),
                if touch.known { "" } else { ", not known before" },
                if touch.certain { "" } else { ", perhaps" },
            )?;
        }
        Ok(())
    }
}
