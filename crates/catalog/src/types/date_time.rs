//! Dates with a time of the day, in no time zone: what SQL calls a timestamp without time zone.
//!
//! ```
//! use seriatim_catalog::{DateTime, Interval};
//! let meeting: DateTime = "2026-01-31T09:00".parse()?;
//! assert_eq!(meeting.to_string(), "2026-01-31T09:00:00.000000");
//! // A month later is the last day of a shorter month.
//! let month: Interval = "P1M".parse()?;
//! assert_eq!(meeting.checked_add(month).map(|next| next.to_string()).as_deref(), Some("2026-02-28T09:00:00.000000"));
//! assert_eq!(("2026-02-01T08:00".parse::<DateTime>()? - meeting).to_string(), "PT23H");
//! assert_eq!(meeting.in_utc().to_string(), "2026-01-31T09:00:00.000000Z");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::ops::Sub;
use std::str::FromStr;

use jiff::{SignedDuration, civil};

use super::scalar::scalar;
use super::timestamp::MICROSECONDS_PER_DAY;
use crate::{Date, Interval, Time, TimeError, Timestamp};

/// A date and a time, without a time zone. Displayed as ISO 8601.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Microseconds since 1970-01-01T00:00, within the days of `Date`.
pub struct DateTime(i64);

impl DateTime {
    /// The first moment of the first day.
    pub const MIN: DateTime = DateTime(Date::MIN.days() as i64 * MICROSECONDS_PER_DAY);
    /// The last moment of the last day.
    pub const MAX: DateTime = DateTime((Date::MAX.days() as i64 + 1) * MICROSECONDS_PER_DAY - 1);

    /// The date and time so many microseconds after (before, if negative) 1970-01-01T00:00; `None` outside the range.
    pub const fn from_microseconds(microseconds: i64) -> Option<DateTime> {
        let is_one = DateTime::MIN.0 <= microseconds && microseconds <= DateTime::MAX.0;
        if is_one { Some(DateTime(microseconds)) } else { None }
    }

    pub(super) fn clamped(microseconds: i64) -> DateTime {
        DateTime(microseconds.clamp(DateTime::MIN.0, DateTime::MAX.0))
    }

    /// Microseconds since 1970-01-01T00:00.
    pub const fn microseconds(self) -> i64 {
        self.0
    }

    /// The date.
    pub fn date(self) -> Date {
        // A day of the range, as the moment is of it.
        Date::from_days(self.0.div_euclid(MICROSECONDS_PER_DAY) as i32).unwrap_or_default()
    }

    /// The time.
    pub fn time(self) -> Time {
        Time::from_microseconds(self.0.rem_euclid(MICROSECONDS_PER_DAY)).unwrap_or_default()
    }

    /// The point in time at which clocks in UTC show it.
    pub const fn in_utc(self) -> Timestamp {
        Timestamp::from_microseconds(self.0)
    }

    /// What clocks show an interval later: first the months are added, of which a shorter one ends earlier, then the
    /// days, then the time. `None` outside the range.
    pub fn checked_add(self, interval: Interval) -> Option<DateTime> {
        let months = jiff::Span::new().try_months(interval.months).ok()?;
        let day = civil::Date::from(self.date()).checked_add(months).ok()?;
        let day = Date::from(day).checked_add_days(interval.days)?;
        DateTime::from_microseconds(day.at(self.time()).0.checked_add(interval.microseconds)?)
    }

    /// What clocks showed an interval before; `None` outside the range.
    pub fn checked_sub(self, interval: Interval) -> Option<DateTime> {
        self.checked_add(interval.checked_neg()?)
    }
}

/// Days and a time.
impl Sub for DateTime {
    type Output = Interval;
    fn sub(self, earlier: DateTime) -> Interval {
        Interval::of_microseconds(self.0 - earlier.0)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", civil::DateTime::from(*self))
    }
}

impl FromStr for DateTime {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<DateTime, TimeError> {
        Ok(text.parse::<civil::DateTime>()?.into())
    }
}

/// Digits below a microsecond are cut off, toward the past.
impl From<civil::DateTime> for DateTime {
    fn from(date_time: civil::DateTime) -> DateTime {
        DateTime::clamped(date_time.duration_since(EPOCH).as_nanos().div_euclid(1000) as i64)
    }
}

impl From<DateTime> for civil::DateTime {
    fn from(date_time: DateTime) -> civil::DateTime {
        EPOCH.saturating_add(SignedDuration::from_micros(date_time.0))
    }
}

const EPOCH: civil::DateTime = civil::date(1970, 1, 1).to_datetime(civil::Time::midnight());

scalar! {
    DateTime, "date_time", DateAndTime => DateTime, i64, |stored| DateTime::clamped(stored), |value| value.0,
    |text| text.parse().map_err(|error: TimeError| {
        format!("write a date and a time without an offset, such as 2026-11-21T04:42:11.5 ({error})")
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_that_of_jiff() {
        for (first, own) in [(civil::Date::MIN, Date::MIN), (civil::Date::MAX, Date::MAX)] {
            assert_eq!((Date::from(first), civil::Date::from(own)), (own, first));
        }
        for (moment, own) in [(civil::DateTime::MIN, DateTime::MIN), (civil::DateTime::MAX, DateTime::MAX)] {
            assert_eq!(DateTime::from(moment), own);
            assert_eq!(DateTime::from(civil::DateTime::from(own)), own);
            assert_eq!(own.to_string().parse::<DateTime>().ok(), Some(own));
        }
        assert_eq!(Time::from(civil::Time::MAX).microseconds(), MICROSECONDS_PER_DAY - 1);
        assert_eq!(DateTime::from_microseconds(DateTime::MAX.0 + 1), None);
        assert_eq!(Date::MAX.checked_add_days(1), None);
    }

    #[test]
    fn intervals_are_added_from_months_to_microseconds() {
        let moment: DateTime = "2024-01-31T23:00".parse().expect("a moment");
        let later = |interval: &str| {
            let interval = interval.parse().expect("an interval");
            moment.checked_add(interval).map(|later| later.to_string())
        };
        assert_eq!(later("P1M1DT1H").as_deref(), Some("2024-03-02T00:00:00.000000"));
        assert_eq!(later("P-1M").as_deref(), Some("2023-12-31T23:00:00.000000"));
        assert_eq!(later("P8000Y"), None);
        let day = Interval { days: 1, ..Interval::ZERO };
        assert_eq!(moment.checked_sub(day).map(|before| moment - before), Some(day));
        assert_eq!(moment.checked_sub(Interval { days: i32::MIN, ..Interval::ZERO }), None);
    }
}
