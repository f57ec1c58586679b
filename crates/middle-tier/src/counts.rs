//! The counts of a middle tier, which all its clients share.

use std::fmt::Write;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use seriatim_wire::log::Log;

macro_rules! counts {
    (counters { $($name:ident: $what:literal,)* } gauges { $($gauge:ident: $now:literal,)* }) => {
        /// Counters and gauges of a middle tier.
        #[derive(Debug, Default)]
        pub struct Counts {
            $(pub(crate) $name: Counter,)*
            $(pub(crate) $gauge: Gauge,)*
        }

        /// The counters at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counted {
            $(#[doc = $what] pub $name: u64,)*
        }

        impl Counts {
            /// A line of the log was dropped.
            pub fn lost_line(&self) {
                self.lost_lines.add(1);
            }

            /// Reads the counters.
            pub fn counted(&self) -> Counted {
                Counted { $($name: self.$name.get(),)* }
            }

            /// Counters and gauges in the text format of Prometheus.
            pub fn exposition(&self) -> String {
                let mut text = String::new();
                let mut expose = |name: &str, kind: &str, what: &str, value: u64| {
                    let name = format!("seriatim_middle_tier_{name}");
                    let _ = writeln!(text, "# HELP {name} {what}\n# TYPE {name} {kind}\n{name} {value}");
                };
                $(expose(concat!(stringify!($name), "_total"), "counter", $what, self.$name.get());)*
                $(expose(stringify!($gauge), "gauge", $now, self.$gauge.get());)*
                text
            }
        }

        impl Counted {
            /// The changes since `before` as text for the log. Empty without changes.
            pub(crate) fn changes_since(&self, before: &Counted) -> String {
                let counters = [$((stringify!($name), self.$name, before.$name),)*];
                let changed = counters.iter().filter(|(_, now, before)| now != before);
                let words = changed.map(|(name, now, before)| format!("{} +{}", name.replace('_', " "), now - before));
                words.collect::<Vec<_>>().join(", ")
            }
        }
    };
}

counts! {
    counters {
        clients: "Sessions that began.",
        matched: "Transactions that matched a template.",
        batches: "Batches, including those of one transaction.",
        batched: "Transactions in batches, counted again for each retry.",
        waited: "Transactions that waited for a conflicting one.",
        overdue: "Transactions that were sent because they had waited longer than hold.",
        serialization_failures: "Transactions of templates that failed with 40001 or 40P01, retried or not.",
        retried: "Retries of transactions.",
        cancelled: "Transactions that were cancelled while waiting.",
        upstream_failures: "Connections to the upstream that failed or were lost.",
        unknown: "Lost connections to the upstream that left an outcome unknown (08007).",
        refused: "Clients that were refused: too many (53300), or without the required TLS (28000).",
        violations: "Sessions that ended because the client violated the protocol (08P01).",
        ungreeted: "Connections that ended before a session began, other than by the client.",
        accept_failures: "Connections that could not be accepted, for instance for lack of open files.",
        lost_lines: "Lines of the log that were dropped, since nothing read the log.",
    }
    gauges {
        connections: "Connections without a session, which are new or have sent no request.",
        sessions: "Sessions.",
    }
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: usize) {
        // ORDERING: relaxed, since it is read only for reports.
        self.0.fetch_add(by as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A gauge.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge(Arc<AtomicU64>);

/// Counts as one in a gauge until it is dropped.
#[derive(Debug)]
pub(crate) struct Present(Gauge);

impl Gauge {
    pub(crate) fn enter(&self) -> Present {
        // ORDERING: relaxed, since it is read only for reports.
        self.0.fetch_add(1, Ordering::Relaxed);
        Present(self.clone())
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Logs the counts that change from now on, for ever.
pub(crate) fn report(counts: &Counts, log: &Log, interval: Option<Duration>) -> impl Future<Output = ()> {
    // When the future is polled first, clients may have been counted.
    let mut before = counts.counted();
    async move {
        let Some(interval) = interval else { return std::future::pending().await };
        loop {
            tokio::time::sleep(interval).await;
            let now = counts.counted();
            let changes = now.changes_since(&before);
            if !changes.is_empty() {
                let (sessions, connections) = (counts.sessions.get(), counts.connections.get());
                let seconds = interval.as_secs_f64();
                log.line(format_args!(
                    "{sessions} sessions, {connections} connections without one; in {seconds} s: {changes}"
                ));
            }
            before = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_before_the_report_is_polled_are_reported() {
        let counts = Arc::new(Counts::default());
        let (log, lines) = Log::new(|| {});
        let report = report(&counts, &log, Some(Duration::from_millis(1)));
        counts.clients.add(3);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("threads");
        let line = runtime.block_on(async {
            tokio::pin!(report);
            loop {
                tokio::select! {
                    () = &mut report => {}
                    // Something else is counted, until a line comes.
                    () = tokio::time::sleep(Duration::from_millis(5)) => counts.upstream_failures.add(1),
                }
                if let Ok(line) = lines.try_recv() {
                    return line;
                }
            }
        });
        assert!(line.contains("clients +3"), "{line}");
    }

    #[test]
    fn counts_are_exposed_with_what_they_mean_and_logged_when_they_change() {
        let counts = Counts::default();
        let before = counts.counted();
        assert_eq!(before.changes_since(&before), "");
        counts.clients.add(2);
        counts.upstream_failures.add(1);
        let present = counts.sessions.enter();
        assert_eq!(counts.counted().changes_since(&before), "clients +2, upstream failures +1");
        let text = counts.exposition();
        for line in [
            "# TYPE seriatim_middle_tier_clients_total counter",
            "seriatim_middle_tier_clients_total 2",
            "# HELP seriatim_middle_tier_sessions Sessions.",
            "seriatim_middle_tier_sessions 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in {text}");
        }
        drop(present);
        assert_eq!(counts.sessions.get(), 0);
    }
}
