//! Points in time, for rows that carry a date. Where they come from is the caller's business: this crate
//! reads no clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Microseconds since 1970-01-01 UTC. Displayed as ISO 8601, for example `2026-11-21T04:42:11.000000Z`.
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

    /// Year, month and day, in UTC. Days-to-civil algorithm of H. Hinnant, "chrono-compatible low-level date
    /// algorithms".
    fn civil(self) -> (i64, i64, i64) {
        let days = self.0.div_euclid(86_400_000_000) + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        (year_of_era + era * 400 + i64::from(month <= 2), month, day)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        let within = self.0.rem_euclid(86_400_000_000);
        let (seconds, micro) = (within / 1_000_000, within % 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z")
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
        assert_eq!(Timestamp::default() + Duration::from_secs(60) - Duration::from_secs(60), Timestamp::default());
    }
}
