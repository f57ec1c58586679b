//! Intervals of time: months, days and microseconds, as PostgreSQL has them.
//!
//! ```
//! use seriatim_catalog::Interval;
//! let interval: Interval = "P1Y2M3DT4H5M6.5S".parse()?;
//! assert_eq!(interval, Interval { months: 14, days: 3, microseconds: 14_706_500_000 });
//! assert_eq!(interval.to_string(), "P1Y2M3DT4H5M6.5S");
//! assert_eq!("2 weeks 90 minutes".parse::<Interval>()?.to_string(), "P14DT1H30M");
//! // Each part has a sign of its own.
//! assert_eq!("P1M-1D".parse::<Interval>()?, Interval { months: 1, days: -1, microseconds: 0 });
//! // In comparisons, and so in keys, a month has 30 days and a day 24 hours.
//! assert_eq!("P1M".parse::<Interval>()?, "P30D".parse()?);
//! assert!("P1D".parse::<Interval>()? < "PT25H".parse()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::time::Duration;

use super::scalar::scalar;
use super::timestamp::MICROSECONDS_PER_DAY;
use crate::{DecimalError, KeyWriter, Overflow};

/// An interval. Months and days are apart from the time, because they differ in length. Compared with a month as 30
/// days and a day as 24 hours, so that intervals of different parts can be equal, and are one key. Displayed as ISO
/// 8601, with a sign for each negative part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Months, 12 for a year.
    pub months: i32,
    /// Days, 7 for a week.
    pub days: i32,
    /// Microseconds.
    pub microseconds: i64,
}

impl Interval {
    /// No time.
    pub const ZERO: Interval = Interval { months: 0, days: 0, microseconds: 0 };

    /// The days and the rest of so many microseconds.
    pub const fn of_microseconds(microseconds: i64) -> Interval {
        let (days, microseconds) = (microseconds / MICROSECONDS_PER_DAY, microseconds % MICROSECONDS_PER_DAY);
        Interval { months: 0, days: days as i32, microseconds }
    }

    /// The interval backwards; `None` if a part leaves its range.
    pub fn checked_neg(self) -> Option<Interval> {
        Some(Interval {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            microseconds: self.microseconds.checked_neg()?,
        })
    }

    /// Both together, part by part; `None` if a part leaves its range.
    pub fn checked_add(self, other: Interval) -> Option<Interval> {
        Some(Interval {
            months: self.months.checked_add(other.months)?,
            days: self.days.checked_add(other.days)?,
            microseconds: self.microseconds.checked_add(other.microseconds)?,
        })
    }

    /// The length that is compared: microseconds, with 30 days in a month.
    fn length(self) -> i128 {
        let days = i128::from(self.months) * 30 + i128::from(self.days);
        days * i128::from(MICROSECONDS_PER_DAY) + i128::from(self.microseconds)
    }

    /// The interval of whole months and days, and the rest, that has this length.
    fn of_length(length: i128) -> Option<Interval> {
        let day = i128::from(MICROSECONDS_PER_DAY);
        let months = i32::try_from(length / (30 * day)).unwrap_or(if length < 0 { i32::MIN } else { i32::MAX });
        let rest = length - i128::from(months) * 30 * day;
        let days = i32::try_from(rest / day).unwrap_or(if rest < 0 { i32::MIN } else { i32::MAX });
        let microseconds = i64::try_from(rest - i128::from(days) * day).ok()?;
        Some(Interval { months, days, microseconds })
    }

    fn to_stored(self) -> [u8; 16] {
        let mut stored = [0; 16];
        stored[..4].copy_from_slice(&self.months.to_le_bytes());
        stored[4..8].copy_from_slice(&self.days.to_le_bytes());
        stored[8..].copy_from_slice(&self.microseconds.to_le_bytes());
        stored
    }

    fn of_stored(stored: [u8; 16]) -> Interval {
        let all = u128::from_le_bytes(stored);
        Interval { months: all as i32, days: (all >> 32) as i32, microseconds: (all >> 64) as i64 }
    }
}

impl PartialEq for Interval {
    fn eq(&self, other: &Interval) -> bool {
        self.length() == other.length()
    }
}

impl Eq for Interval {}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Interval) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Interval {
    fn cmp(&self, other: &Interval) -> Ordering {
        self.length().cmp(&other.length())
    }
}

impl Hash for Interval {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.length().hash(state);
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |f: &mut fmt::Formatter<'_>, number: i64, unit: char| match number {
            0 => Ok(()),
            _ => write!(f, "{number}{unit}"),
        };
        f.write_str("P")?;
        part(f, (self.months / 12).into(), 'Y')?;
        part(f, (self.months % 12).into(), 'M')?;
        part(f, self.days.into(), 'D')?;
        let (minutes, rest) = (self.microseconds / 60_000_000, self.microseconds % 60_000_000);
        if self.microseconds != 0 {
            f.write_str("T")?;
            part(f, minutes / 60, 'H')?;
            part(f, minutes % 60, 'M')?;
        }
        if rest != 0 {
            let sign = if rest < 0 { "-" } else { "" };
            let (seconds, fraction) = (rest.unsigned_abs() / 1_000_000, rest.unsigned_abs() % 1_000_000);
            let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
            write!(f, "{sign}{seconds}{}S", fraction.trim_end_matches('0'))?;
        }
        if self.to_stored() == [0; 16] { f.write_str("T0S") } else { Ok(()) }
    }
}

/// Why a text is no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalError {
    /// It is no duration as ISO 8601 has them, and no list of numbers with units.
    Syntax,
    /// A part of it is out of range.
    Overflow,
}

impl fmt::Display for IntervalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IntervalError::Syntax => "write an interval, such as P1Y2M3DT4H5M6.5S or 3 days 4 hours",
            IntervalError::Overflow => "a part of the interval leaves its range",
        })
    }
}

impl std::error::Error for IntervalError {}

impl From<Overflow> for IntervalError {
    fn from(_: Overflow) -> IntervalError {
        IntervalError::Overflow
    }
}

/// Durations of ISO 8601, of which each part may have a sign, and lists such as `3 days 4 hours`, as `jiff` reads them.
impl FromStr for Interval {
    type Err = IntervalError;
    fn from_str(text: &str) -> Result<Interval, IntervalError> {
        match text.strip_prefix('P') {
            Some(parts) => parse(parts),
            None => Ok(text.parse::<jiff::Span>().map_err(|_| IntervalError::Syntax)?.try_into()?),
        }
    }
}

/// What follows the P of ISO 8601.
fn parse(text: &str) -> Result<Interval, IntervalError> {
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    let (mut months, mut days, mut microseconds) = (0i128, 0i128, 0i128);
    for (is_time, mut rest) in [(false, date), (true, time)] {
        while !rest.is_empty() {
            let unit = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or(IntervalError::Syntax)?;
            let (number, after) = rest.split_at(unit);
            // Of seconds, six digits after the point.
            let millionths = super::decimal::parse(number, 6).map_err(|error| match error {
                DecimalError::Overflow => IntervalError::Overflow,
                DecimalError::Syntax | DecimalError::TooPrecise { .. } => IntervalError::Syntax,
            })?;
            let (sum, factor) = match (is_time, &after[..1]) {
                (false, "Y") => (&mut months, 12),
                (false, "M") => (&mut months, 1),
                (false, "W") => (&mut days, 7),
                (false, "D") => (&mut days, 1),
                (true, "H") => (&mut microseconds, 3_600_000_000),
                (true, "M") => (&mut microseconds, 60_000_000),
                (true, "S") => (&mut microseconds, 1_000_000),
                _ => return Err(IntervalError::Syntax),
            };
            // Only seconds have digits after the point.
            if millionths % 1_000_000 != 0 && &after[..1] != "S" {
                return Err(IntervalError::Syntax);
            }
            let more = millionths.checked_mul(factor).ok_or(Overflow)? / 1_000_000;
            *sum = sum.checked_add(more).ok_or(Overflow)?;
            rest = &after[1..];
        }
    }
    if text.is_empty() || text.ends_with('T') {
        return Err(IntervalError::Syntax);
    }
    Ok(parts(months, days, microseconds)?)
}

fn parts(months: i128, days: i128, microseconds: i128) -> Result<Interval, Overflow> {
    Ok(Interval {
        months: months.try_into().map_err(|_| Overflow)?,
        days: days.try_into().map_err(|_| Overflow)?,
        microseconds: microseconds.try_into().map_err(|_| Overflow)?,
    })
}

/// Digits below a microsecond are cut off.
impl TryFrom<jiff::Span> for Interval {
    type Error = Overflow;
    fn try_from(span: jiff::Span) -> Result<Interval, Overflow> {
        let seconds =
            i128::from(span.get_hours()) * 3600 + i128::from(span.get_minutes()) * 60 + i128::from(span.get_seconds());
        let microseconds = seconds * 1_000_000
            + i128::from(span.get_milliseconds()) * 1000
            + i128::from(span.get_microseconds())
            + i128::from(span.get_nanoseconds()) / 1000;
        let months = i128::from(span.get_years()) * 12 + i128::from(span.get_months());
        parts(months, i128::from(span.get_weeks()) * 7 + i128::from(span.get_days()), microseconds)
    }
}

/// Digits below a microsecond are cut off.
impl TryFrom<Duration> for Interval {
    type Error = Overflow;
    fn try_from(duration: Duration) -> Result<Interval, Overflow> {
        i64::try_from(duration.as_micros()).map(Interval::of_microseconds).map_err(|_| Overflow)
    }
}

scalar! {
    Interval, "interval", Span => Interval, [u8; 16], |stored| Interval::of_stored(stored), |value| value.to_stored(),
    |text| text.parse().map_err(|error: IntervalError| error.to_string());

    fn write_key(&self, stored: &[u8], key: &mut KeyWriter) {
        let interval = Interval::of_stored(stored.try_into().unwrap_or_default());
        key.wide(interval.length() as u128 ^ 1 << 127, 16);
    }

    fn of_key(&self, key: &[u8]) -> Option<Vec<u8>> {
        let length = u128::from_be_bytes(key.try_into().ok()?) ^ 1 << 127;
        Some(Interval::of_length(length as i128)?.to_stored().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interval_comes_back_from_its_text() {
        let numbers = [0i64, 1, -1, 11, 12, -13, i32::MIN.into(), i32::MAX.into()];
        let times = [0, 1, -1, 60_000_000, -59_999_999, 3_600_000_000, 86_400_000_000, i64::MIN, i64::MAX];
        for months in numbers {
            for days in numbers {
                for microseconds in times {
                    let interval = Interval { months: months as i32, days: days as i32, microseconds };
                    let text = interval.to_string();
                    assert_eq!(text.parse().map(Interval::to_stored), Ok(interval.to_stored()), "{text}");
                }
            }
        }
    }

    #[test]
    fn texts_that_are_no_interval_say_so() {
        for text in ["", "P", "PT", "P1", "P1H", "PT1D", "P1.5D", "PT1.0000001S", "1 fortnight", "P1é", "PTé", "P-M"]
        {
            assert_eq!(text.parse::<Interval>(), Err(IntervalError::Syntax), "{text}");
        }
        let wide = "9".repeat(32);
        for text in ["P2147483648D", &format!("P{wide}Y"), &format!("PT{wide}H"), &format!("PT{wide}{wide}S")] {
            assert_eq!(text.parse::<Interval>(), Err(IntervalError::Overflow), "{text}");
        }
        let sum = format!("PT{}", format!("{wide}S").repeat(3));
        assert_eq!(sum.parse::<Interval>(), Err(IntervalError::Overflow), "each addend is in the range of the sum");
        assert_eq!("P1W".parse::<Interval>(), Ok(Interval { days: 7, ..Interval::ZERO }));
    }
}
