//! Times of a day.
//!
//! ```
//! use seriatim_catalog::Time;
//! let opens: Time = "08:30".parse()?;
//! assert_eq!(opens.to_string(), "08:30:00.000000");
//! assert_eq!(opens, Time::new(8, 30, 0, 0)?);
//! assert_eq!((Time::new(9, 0, 0, 0)? - opens).to_string(), "PT30M");
//! assert!("24:01".parse::<Time>().is_err());
//! # Ok::<(), seriatim_catalog::TimeError>(())
//! ```

use std::fmt;
use std::ops::Sub;
use std::str::FromStr;

use jiff::civil;

use super::scalar::scalar;
use super::timestamp::MICROSECONDS_PER_DAY;
use crate::{Date, DateTime, Interval, TimeError};

/// A time of a day, from midnight to a microsecond before the next. Displayed as ISO 8601.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Microseconds since midnight, less than a day.
pub struct Time(i64);

impl Time {
    /// The beginning of a day.
    pub const MIDNIGHT: Time = Time(0);

    /// A time by hour, minute, second and microsecond.
    ///
    /// # Errors
    /// [`TimeError`] if there is no such time.
    pub fn new(hour: i8, minute: i8, second: i8, microsecond: u32) -> Result<Time, TimeError> {
        let nanosecond = microsecond.checked_mul(1000).and_then(|nanosecond| i32::try_from(nanosecond).ok());
        Ok(civil::Time::new(hour, minute, second, nanosecond.unwrap_or(i32::MAX))?.into())
    }

    /// The time so many microseconds after midnight; `None` if that is another day.
    pub const fn from_microseconds(microseconds: i64) -> Option<Time> {
        if 0 <= microseconds && microseconds < MICROSECONDS_PER_DAY { Some(Time(microseconds)) } else { None }
    }

    /// Microseconds since midnight.
    pub const fn microseconds(self) -> i64 {
        self.0
    }
}

impl Sub for Time {
    type Output = Interval;
    fn sub(self, earlier: Time) -> Interval {
        Interval { microseconds: self.0 - earlier.0, ..Interval::ZERO }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", civil::Time::from(*self))
    }
}

impl FromStr for Time {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Time, TimeError> {
        Ok(text.parse::<civil::Time>()?.into())
    }
}

/// Digits below a microsecond are cut off.
impl From<civil::Time> for Time {
    fn from(time: civil::Time) -> Time {
        DateTime::from(time.to_datetime(civil::Date::from(Date::default()))).time()
    }
}

impl From<Time> for civil::Time {
    fn from(time: Time) -> civil::Time {
        civil::DateTime::from(Date::default().at(time)).time()
    }
}

scalar! {
    Time, "time", TimeOfDay => Time, i64, |stored| Time(stored.clamp(0, MICROSECONDS_PER_DAY - 1)), |value| value.0,
    |text| text.parse().map_err(|error: TimeError| format!("write a time, such as 04:42:11.5 ({error})"));
}
