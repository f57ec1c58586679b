//! What a middle tier has done, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counts {
    ($($name:ident: $what:literal,)*) => {
        /// Counters of a middle tier, which all its clients share.
        #[derive(Debug, Default)]
        pub struct Counts {
            $(pub(crate) $name: Counter,)*
        }

        /// What was counted up to a moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counted {
            $(#[doc = $what] pub $name: u64,)*
        }

        impl Counts {
            /// What is counted now.
            pub fn counted(&self) -> Counted {
                Counted { $($name: self.$name.get(),)* }
            }
        }
    };
}

counts! {
    clients: "Sessions that began.",
    matched: "Transactions that are instances of templates.",
    batches: "Batches formed, those of one transaction included.",
    batched: "Transactions in them, once for each time that they were run.",
    waited: "Transactions that waited for one they conflict with.",
    overdue: "Of those, and of those that waited for their batch, such that waited for too long, and went.",
    serialization_failures: "Transactions of templates that ended with 40001 or 40P01, retried or not.",
    retried: "Times that a transaction was run again.",
    cancelled: "Transactions that were cancelled while they waited.",
    upstream_failures: "Connections to the upstream that failed.",
    unknown: "Of those, such that left an outcome unknown (08007).",
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: usize) {
        // ORDERING: none is needed; it is read for reports.
        self.0.fetch_add(by as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
