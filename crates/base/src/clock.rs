//! The platform interface to time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::CacheAligned;

/// A point on the monotonic clock, in nanoseconds since the first call in this process. On a simulated core:
/// since the simulation began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The current time.
    pub fn now() -> Instant {
        #[cfg(feature = "simulate")]
        if let Some(nanoseconds) = crate::simulated::now() {
            return Instant(nanoseconds);
        }
        if let Some(nanoseconds) = crate::word::now() {
            return Instant(nanoseconds);
        }
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

    /// The instant `time` later.
    #[must_use]
    pub fn after(self, time: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Nanoseconds since the first call in this process.
    pub fn nanoseconds(self) -> u64 {
        self.0
    }
}

/// Processor time of this thread, as of the scheduler's last tick. `None` if the system does not report it, and
/// on a simulated core.
pub fn thread_processor_time() -> Option<Duration> {
    #[cfg(feature = "simulate")]
    if crate::simulated::now().is_some() {
        return None;
    }
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    schedule.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Wall-clock time in microseconds since 1970, for rows that carry a date. Not monotonic.
///
/// On a simulated core: since the simulation began.
pub fn unix_microseconds() -> i64 {
    #[cfg(feature = "simulate")]
    if let Some(nanoseconds) = crate::simulated::now() {
        return (nanoseconds / 1000) as i64;
    }
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// The time that a ticker last set, in nanoseconds from zero. Reading is one load, and the value is as old as
/// the last tick. In tests the test is the ticker.
#[derive(Debug, Default)]
pub struct CoarseClock(CacheAligned<AtomicU64>);

impl CoarseClock {
    /// Nanoseconds at the last tick.
    #[inline]
    pub fn now(&self) -> u64 {
        // ORDERING: no other memory depends on this word.
        self.0.load(Ordering::Relaxed)
    }

    /// Advances the clock. Only one ticker may call this at a time.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(self.now().saturating_add(by), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_has_no_processor() {
        let Some(began) = thread_processor_time() else {
            return println!("skipped: the system does not report processor time");
        };
        let mut work = 1u64;
        // A sleep may seem to use the processor: when the host takes the processor away from this virtual
        // machine, the guest may count that time.
        let cheap = (0..10).any(|_| {
            let before = thread_processor_time().expect("the system reports it");
            std::thread::sleep(Duration::from_millis(200));
            thread_processor_time().expect("it does") - before < Duration::from_millis(150)
        });
        let slept = thread_processor_time().expect("it does") - began;
        assert!(cheap, "{slept:?} in ten sleeps of 200 ms");
        // Works until the clock advances, in case other threads use the processor.
        while thread_processor_time().expect("the system reports it") - began < slept + Duration::from_millis(20) {
            work = std::hint::black_box(work.wrapping_mul(3));
        }
    }

    #[test]
    fn a_coarse_clock_moves_when_it_is_told() {
        let clock = CoarseClock::default();
        clock.advance(Duration::from_nanos(50));
        assert_eq!(clock.now(), 50);
        clock.advance(Duration::from_nanos(7));
        assert_eq!(clock.now(), 57);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), u64::MAX);
    }
}
