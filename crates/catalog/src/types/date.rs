//! Dates of the Gregorian calendar.
//!
//! ```
//! use seriatim_catalog::{Date, Time};
//! let due: Date = "2026-11-30".parse()?;
//! assert_eq!(due, Date::new(2026, 11, 30)?);
//! assert_eq!(due.days_since(Date::new(2026, 11, 1)?), 29);
//! assert_eq!(due.checked_add_days(1).map(|day| day.to_string()).as_deref(), Some("2026-12-01"));
//! assert_eq!(due.at(Time::new(23, 59, 0, 0)?).to_string(), "2026-11-30T23:59:00.000000");
//! assert!("2026-02-30".parse::<Date>().is_err());
//! # Ok::<(), seriatim_catalog::TimeError>(())
//! ```

use std::fmt;
use std::str::FromStr;

use jiff::civil;

use super::scalar::scalar;
use super::timestamp::MICROSECONDS_PER_DAY;
use crate::{DateTime, Time, TimeError, Timestamp};

/// A day of the years -9999 to 9999, without a time zone. Displayed as ISO 8601.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Days since 1970-01-01, within the range.
pub struct Date(i32);

impl Date {
    /// The first day of the range.
    pub const MIN: Date = Date(-4_371_587);
    /// The last day of the range.
    pub const MAX: Date = Date(2_932_896);

    /// A day by year, month and day of the month.
    ///
    /// # Errors
    /// [`TimeError`] if there is no such day.
    pub fn new(year: i16, month: i8, day: i8) -> Result<Date, TimeError> {
        Ok(civil::Date::new(year, month, day)?.into())
    }

    /// The day now, in UTC. See [`Timestamp::now`].
    pub fn today() -> Date {
        Timestamp::now().to_utc().date()
    }

    /// The day so many days after (before, if negative) 1970-01-01; `None` outside the range.
    pub const fn from_days(days: i32) -> Option<Date> {
        if Date::MIN.0 <= days && days <= Date::MAX.0 { Some(Date(days)) } else { None }
    }

    /// Days since 1970-01-01.
    pub const fn days(self) -> i32 {
        self.0
    }

    /// Days from `earlier` to this one; negative if it is later.
    pub const fn days_since(self, earlier: Date) -> i32 {
        self.0 - earlier.0
    }

    /// The day so many days later; `None` outside the range.
    pub fn checked_add_days(self, days: i32) -> Option<Date> {
        self.0.checked_add(days).and_then(Date::from_days)
    }

    /// A time of this day.
    pub fn at(self, time: Time) -> DateTime {
        DateTime::clamped(i64::from(self.0) * MICROSECONDS_PER_DAY + time.microseconds())
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        civil::Date::from(*self).fmt(f)
    }
}

impl FromStr for Date {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Date, TimeError> {
        Ok(text.parse::<civil::Date>()?.into())
    }
}

impl From<civil::Date> for Date {
    fn from(date: civil::Date) -> Date {
        DateTime::from(date.to_datetime(civil::Time::midnight())).date()
    }
}

impl From<Date> for civil::Date {
    fn from(date: Date) -> civil::Date {
        civil::DateTime::from(date.at(Time::MIDNIGHT)).date()
    }
}

scalar! {
    Date, "date", Day => Date, i32, |stored| Date(stored.clamp(Date::MIN.0, Date::MAX.0)), |value| value.0,
    |text| text.parse().map_err(|error: TimeError| format!("write a date, such as 2026-11-21 ({error})"));
}
