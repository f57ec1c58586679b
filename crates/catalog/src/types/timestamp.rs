//! Points in time: what SQL calls a timestamp with time zone.
//!
//! ```
//! use seriatim_catalog::Timestamp;
//! use std::time::{Duration, SystemTime};
//!
//! let sent: Timestamp = "2026-11-21T05:42:11+01:00".parse()?;
//! assert_eq!(sent.to_string(), "2026-11-21T04:42:11.000000Z");
//! let received = sent + Duration::from_millis(1500);
//! assert_eq!(received.since(sent), Some(Duration::from_millis(1500)));
//! assert_eq!((received - sent).to_string(), "PT1.5S");
//! assert!(received > sent && Timestamp::now() > Timestamp::default());
//! assert_eq!(Timestamp::try_from(SystemTime::try_from(sent)?)?, sent);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use super::rules::signed;
use super::{Misfit, Raw, Rules, named};
use crate::column::by_value;
use crate::value::into_value;
use crate::{ColumnType, DateTime, Interval, Overflow, Value};

pub(super) const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;

/// Microseconds since 1970-01-01 UTC. Displayed as ISO 8601, for example `2026-11-21T04:42:11.000000Z`; outside the
/// years -9999 to 9999 as the microseconds, for example `9223372036854775807us`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The point `microseconds` after (before, if negative) 1970-01-01 UTC.
    #[inline]
    pub const fn from_microseconds(microseconds: i64) -> Timestamp {
        Timestamp(microseconds)
    }

    /// Microseconds since 1970-01-01 UTC.
    #[inline]
    pub const fn microseconds(self) -> i64 {
        self.0
    }

    /// The time of the wall clock, which may go back. A procedure takes its time as an argument instead, so that it
    /// can be repeated.
    pub fn now() -> Timestamp {
        Timestamp(seriatim_base::clock::unix_microseconds())
    }

    /// What clocks in UTC show then; the first or last such time outside the range of [`DateTime`].
    pub fn to_utc(self) -> DateTime {
        DateTime::clamped(self.0)
    }

    /// The time from `earlier` to this point; `None` if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Option<Duration> {
        let microseconds = u64::try_from(i128::from(self.0) - i128::from(earlier.0)).ok()?;
        Some(Duration::from_micros(microseconds))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

/// A date and a time with an offset from UTC, as ISO 8601 and RFC 3339 have them.
impl FromStr for Timestamp {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Timestamp, TimeError> {
        if let Some(microseconds) = text.strip_suffix("us").and_then(|number| number.parse().ok()) {
            return Ok(Timestamp(microseconds));
        }
        Ok(text.parse::<jiff::Timestamp>()?.into())
    }
}

/// Digits below a microsecond are cut off, toward the past.
impl From<jiff::Timestamp> for Timestamp {
    fn from(timestamp: jiff::Timestamp) -> Timestamp {
        Timestamp(timestamp.as_nanosecond().div_euclid(1000) as i64)
    }
}

impl TryFrom<Timestamp> for jiff::Timestamp {
    type Error = TimeError;
    fn try_from(timestamp: Timestamp) -> Result<jiff::Timestamp, TimeError> {
        Ok(jiff::Timestamp::from_microsecond(timestamp.0)?)
    }
}

/// Digits below a microsecond are cut off, toward 1970.
impl TryFrom<SystemTime> for Timestamp {
    type Error = Overflow;
    fn try_from(time: SystemTime) -> Result<Timestamp, Overflow> {
        let microseconds = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i128,
            Err(before) => -(before.duration().as_micros() as i128),
        };
        i64::try_from(microseconds).map(Timestamp).map_err(|_| Overflow)
    }
}

impl TryFrom<Timestamp> for SystemTime {
    type Error = Overflow;
    fn try_from(timestamp: Timestamp) -> Result<SystemTime, Overflow> {
        let distance = Duration::from_micros(timestamp.0.unsigned_abs());
        let time = match timestamp.0 < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(distance),
            false => SystemTime::UNIX_EPOCH.checked_add(distance),
        };
        time.ok_or(Overflow)
    }
}

/// Why a text or a time of another kind is no date, time, timestamp or interval.
#[derive(Clone, Debug)]
pub struct TimeError(jiff::Error);

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for TimeError {}

impl From<jiff::Error> for TimeError {
    fn from(error: jiff::Error) -> TimeError {
        TimeError(error)
    }
}

by_value! {
    [] Timestamp => ColumnType::Timestamp, i64, |stored| Timestamp(stored), |value| value.0;
}

into_value! {
    [] Timestamp, |value| Value::Timestamp(value.microseconds());
}

pub(super) struct Instant;

impl Rules for Instant {
    named!("timestamp");

    fn value(&self, stored: &[u8]) -> Value {
        Value::Timestamp(signed(stored) as i64)
    }

    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit> {
        if let Value::Timestamp(value) = value { Ok(Raw::copied(&value.to_ne_bytes())) } else { Err(Misfit::Other) }
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        text.parse::<Timestamp>().map(Value::from).map_err(|error| error.to_string())
    }
}

/// # Panics
/// Beyond the range of a timestamp, 292 000 years either way.
impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, duration: Duration) -> Timestamp {
        let moved = i64::try_from(duration.as_micros()).ok().and_then(|micro| self.0.checked_add(micro));
        Timestamp(moved.expect("a timestamp stays within its range"))
    }
}

/// # Panics
/// Beyond the range of a timestamp, 292 000 years either way.
impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, duration: Duration) -> Timestamp {
        let moved = i64::try_from(duration.as_micros()).ok().and_then(|micro| self.0.checked_sub(micro));
        Timestamp(moved.expect("a timestamp stays within its range"))
    }
}

/// Days of 24 hours and a time.
impl Sub for Timestamp {
    type Output = Interval;
    fn sub(self, earlier: Timestamp) -> Interval {
        let distance = i128::from(self.0) - i128::from(earlier.0);
        let day = i128::from(MICROSECONDS_PER_DAY);
        // Less than 2^28 days.
        Interval { months: 0, days: (distance / day) as i32, microseconds: (distance % day) as i64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        let shown = |microseconds| Timestamp::from_microseconds(microseconds).to_string();
        assert_eq!(shown(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(shown(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(shown(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(shown(1_795_236_131_000_042), "2026-11-21T04:42:11.000042Z");
        assert_eq!(shown(i64::MAX), "9223372036854775807us");
        assert_eq!(Timestamp::default() + Duration::from_secs(60) - Duration::from_secs(60), Timestamp::default());
    }

    #[test]
    fn texts_and_times_of_the_system_come_back() {
        let all = [0, -1, 1, 951_782_400_000_000, -62_135_596_800_000_001, i64::MIN, i64::MAX];
        for timestamp in all.map(Timestamp) {
            assert_eq!(timestamp.to_string().parse::<Timestamp>().ok(), Some(timestamp));
            if let Ok(time) = SystemTime::try_from(timestamp) {
                assert_eq!(Timestamp::try_from(time), Ok(timestamp));
            }
        }
        assert_eq!(Timestamp(-5).since(Timestamp(-8)), Some(Duration::from_micros(3)));
        assert_eq!(Timestamp(i64::MIN).since(Timestamp(i64::MAX)), None);
        assert_eq!((Timestamp(i64::MIN) - Timestamp(i64::MAX)).to_string(), "P-213503982DT-8H-1M-49.551615S");
        assert_eq!("1970-01-01 01:00:00+01".parse::<Timestamp>().ok(), Some(Timestamp(0)), "as PostgreSQL writes it");
        assert!("1970-01-01T00:00:00".parse::<Timestamp>().is_err(), "it lacks an offset");
    }
}
