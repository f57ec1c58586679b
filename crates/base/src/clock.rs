//! The door to time.

use std::sync::OnceLock;
use std::time::Duration;

/// A point on the monotonic clock, in nanoseconds since the process first asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Now.
    pub fn now() -> Instant {
        static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
        Instant(ORIGIN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64)
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time from this point until now.
    pub fn elapsed(self) -> Duration {
        Instant::now().since(self)
    }

    /// Nanoseconds since the process first asked for the time.
    pub fn nanoseconds(self) -> u64 {
        self.0
    }
}

/// Wall-clock time in microseconds since 1970, for rows that carry a date. Not monotonic.
pub fn unix_microseconds() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
