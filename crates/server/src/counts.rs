//! What a server counts, and what it says by HTTP: `/livez`, `/readyz` and `/metrics`.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use seriatim::Database;
use seriatim_wire::http::{self, Answer, Request};
use tokio::net::TcpListener;

/// Counters and gauges of a server. They are read only for reports, so no ordering among them matters.
#[derive(Debug, Default)]
pub struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) authentication_failures: AtomicU64,
    pub(crate) violations: AtomicU64,
    pub(crate) cancel_requests: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) slow_statements: AtomicU64,
    lost_lines: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) sessions: AtomicU64,
    pub(crate) is_stopping: AtomicBool,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// One in a gauge, until it is dropped.
pub(crate) struct Present<'c>(&'c AtomicU64);

impl<'c> Present<'c> {
    pub(crate) fn enter(gauge: &'c AtomicU64) -> Present<'c> {
        count(gauge);
        Present(gauge)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    /// A line of the log was dropped.
    pub fn lost_line(&self) {
        count(&self.lost_lines);
    }

    /// The text of Prometheus.
    fn exposition(&self, database: &Database) -> String {
        let (mut text, statistics) = (String::new(), database.statistics());
        let mut expose = |name: &str, kind: &str, what: &str, value: u64| {
            let _ =
                writeln!(text, "# HELP seriatim_{name} {what}\n# TYPE seriatim_{name} {kind}\nseriatim_{name} {value}");
        };
        let counters = [
            ("connections_total", "Connections that were accepted.", &self.connections),
            ("refused_total", "Connections that were refused: too many, or without encryption.", &self.refused),
            ("authentication_failures_total", "Log-ins that failed.", &self.authentication_failures),
            ("violations_total", "Connections that violated the protocol.", &self.violations),
            ("cancel_requests_total", "Requests to cancel a statement.", &self.cancel_requests),
            ("errors_total", "Statements that failed.", &self.errors),
            ("timeouts_total", "Statements and sessions that took too long.", &self.timeouts),
            ("slow_statements_total", "Statements that the log has as slow.", &self.slow_statements),
            ("lost_lines_total", "Lines of the log that were dropped, since nothing read the log.", &self.lost_lines),
        ];
        for (name, what, counter) in counters {
            expose(name, "counter", what, counter.load(Ordering::Relaxed));
        }
        expose("committed_total", "counter", "Transactions that committed.", statistics.committed);
        expose("conflicts_total", "counter", "Attempts that a conflict ended.", statistics.conflict_aborted);
        let waiting = self.waiting.load(Ordering::Relaxed);
        expose("connections_waiting", "gauge", "Connections that have not logged in yet.", waiting);
        expose("sessions", "gauge", "Sessions.", self.sessions.load(Ordering::Relaxed));
        expose("memory_bytes", "gauge", "Bytes of rows and indexes.", statistics.memory_bytes as u64);
        expose("reserved_bytes", "gauge", "Bytes that are mapped.", statistics.reserved_bytes as u64);
        if let Some(log) = statistics.log {
            expose("log_bytes_total", "counter", "Bytes of the log that were written.", log.bytes);
            expose("log_flushes_total", "counter", "Flushes of the log.", log.flushes);
            expose("log_backlog_bytes", "gauge", "Bytes of the log that are not written yet.", log.backlog_bytes);
        }
        text
    }

    /// Whether a server takes work; why not.
    fn readiness(&self, database: &Database) -> Result<(), String> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err("the server is shutting down".to_owned());
        }
        match database.statistics().log.and_then(|log| log.refusal) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    fn answer(&self, request: Request<'_>, database: &Database, token: Option<&str>) -> Answer {
        let is_permitted = || {
            let given = request.authorization.and_then(|given| given.strip_prefix("Bearer "));
            token.is_none_or(|token| given.is_some_and(|given| is_same(given.as_bytes(), token.as_bytes())))
        };
        match request.path {
            "/livez" => ("200 OK", "alive\n".to_owned()),
            "/readyz" => match self.readiness(database) {
                Ok(()) => ("200 OK", "ready\n".to_owned()),
                Err(why) => ("503 Service Unavailable", format!("{why}\n")),
            },
            "/metrics" if is_permitted() => ("200 OK", self.exposition(database)),
            "/metrics" => ("401 Unauthorized", "send the token: Authorization: Bearer TOKEN\n".to_owned()),
            _ => ("404 Not Found", "there are /livez, /readyz and /metrics\n".to_owned()),
        }
    }
}

/// Compares in a time that depends on the lengths only.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b))) == 0
}

/// Serves `/livez`, `/readyz` and `/metrics` until the future is dropped. With a `token`, `/metrics` needs it.
pub async fn serve_http(listener: TcpListener, database: Database, counts: Arc<Counts>, token: Option<String>) {
    http::serve(listener, move |request| counts.answer(request, &database, token.as_deref())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_and_metrics_have_their_answers() {
        let (counts, database) = (Counts::default(), Database::in_memory().expect("there is memory"));
        let answer = |path, authorization, token| counts.answer(Request { path, authorization }, &database, token);
        assert_eq!(answer("/livez", None, Some("x")).0, "200 OK");
        assert_eq!(answer("/readyz", None, Some("x")).0, "200 OK");
        assert_eq!(answer("/", None, None).0, "404 Not Found");
        assert_eq!(answer("/metrics", None, Some("x")).0, "401 Unauthorized");
        assert_eq!(answer("/metrics", Some("Bearer y"), Some("x")).0, "401 Unauthorized");
        assert_eq!(answer("/metrics", Some("Bearer x"), Some("x")).0, "200 OK");
        count(&counts.errors);
        let (status, text) = answer("/metrics", None, None);
        assert_eq!(status, "200 OK");
        assert!(text.contains("# TYPE seriatim_errors_total counter\nseriatim_errors_total 1\n"), "{text}");
        counts.is_stopping.store(true, Ordering::Relaxed);
        assert_eq!(answer("/readyz", None, None).0, "503 Service Unavailable");
    }
}
