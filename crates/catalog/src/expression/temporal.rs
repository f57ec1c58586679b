//! Arithmetic of dates, times and intervals, and how PostgreSQL writes them.

use std::fmt::Write;

use super::error::{EvaluationError, EvaluationErrorKind};
use crate::{ColumnType, Date, DateTime, Interval, Time, Timestamp};

type Result<T> = std::result::Result<T, EvaluationError>;

const DAY: i64 = 86_400_000_000;

#[cold]
pub(super) fn out_of_range(ty: ColumnType) -> EvaluationError {
    let problem = format!("{} out of range", super::types::Shown(ty));
    EvaluationError::new(EvaluationErrorKind::TimeOutOfRange, problem)
}

pub(super) fn date_plus(date: Date, days: i128) -> Result<Date> {
    let moved = i32::try_from(days).ok().and_then(|days| date.checked_add_days(days));
    moved.ok_or_else(|| out_of_range(ColumnType::Date))
}

pub(super) fn moment_plus(moment: DateTime, interval: Interval) -> Result<DateTime> {
    moment.checked_add(interval).ok_or_else(|| out_of_range(ColumnType::DateTime))
}

/// Months and days are those of UTC.
pub(super) fn timestamp_plus(timestamp: Timestamp, interval: Interval) -> Result<Timestamp> {
    let moment = DateTime::from_microseconds(timestamp.microseconds());
    let moved = moment.and_then(|moment| moment.checked_add(interval));
    moved.map(DateTime::in_utc).ok_or_else(|| out_of_range(ColumnType::Timestamp))
}

/// The days are left out, and midnight is passed in either direction.
pub(super) fn time_plus(time: Time, interval: Interval) -> Time {
    let moved = (time.microseconds() + interval.microseconds % DAY).rem_euclid(DAY);
    Time::from_microseconds(moved).unwrap_or_default()
}

pub(super) fn negative(interval: Interval) -> Result<Interval> {
    interval.checked_neg().ok_or_else(|| out_of_range(ColumnType::Interval))
}

pub(super) fn sum(a: Interval, b: Interval) -> Result<Interval> {
    a.checked_add(b).ok_or_else(|| out_of_range(ColumnType::Interval))
}

/// Fractions of months become days, and those of days become time.
pub(super) fn times(interval: Interval, factor: f64) -> Result<Interval> {
    scaled(interval, |part| part * factor)
}

/// As [`times`].
pub(super) fn divided(interval: Interval, divisor: f64) -> Result<Interval> {
    if divisor == 0.0 {
        return Err(EvaluationError::division_by_zero());
    }
    scaled(interval, |part| part / divisor)
}

fn scaled(interval: Interval, scale: impl Fn(f64) -> f64) -> Result<Interval> {
    // Rounded to microseconds, as a fraction of a day or a month is inexact.
    let exact = |number: f64| (number * 1e6).round_ties_even() / 1e6;
    let whole = |number: f64| {
        let is_one = number.abs() <= f64::from(i32::MAX);
        if is_one { Ok(number as i32) } else { Err(out_of_range(ColumnType::Interval)) }
    };
    let (months, days) = (scale(interval.months.into()), scale(interval.days.into()));
    let (whole_months, whole_days) = (whole(months)?, whole(days)?);
    let days_of_months = exact((months - f64::from(whole_months)) * 30.0);
    let mut seconds = exact((days - f64::from(whole_days) + days_of_months - days_of_months.trunc()) * 86_400.0);
    let mut all_days = f64::from(whole_days) + days_of_months.trunc();
    if seconds.abs() >= 86_400.0 {
        let more = (seconds / 86_400.0).trunc();
        all_days += more;
        seconds -= more * 86_400.0;
    }
    let microseconds = (scale(interval.microseconds as f64) + seconds * 1e6).round_ties_even();
    if microseconds.is_nan() || microseconds.abs() >= 9.2e18 {
        return Err(out_of_range(ColumnType::Interval));
    }
    Ok(Interval { months: whole_months, days: whole(all_days)?, microseconds: microseconds as i64 })
}

/// `hh:mm:ss` and the digits of a fraction that are needed.
fn clock(text: &mut String, microseconds: u64) {
    let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
    // A string takes every text.
    let _ = write!(text, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction > 0 {
        let _ = write!(text, ".{}", format!("{fraction:06}").trim_end_matches('0'));
    }
}

pub(super) fn time_text(time: Time) -> String {
    let mut text = String::new();
    clock(&mut text, time.microseconds().unsigned_abs());
    text
}

/// Years before the first are counted back from it.
pub(super) fn date_text(date: Date) -> String {
    let text = date.to_string();
    let (sign, rest) = text.strip_prefix('-').map_or((1, &*text), |rest| (-1, rest));
    let (year, day) = rest.split_once('-').unwrap_or((rest, ""));
    match sign * year.parse::<i32>().unwrap_or(0) {
        year @ 1.. => format!("{year:04}-{day}"),
        year => format!("{:04}-{day} BC", 1 - year),
    }
}

/// The text of a day or a moment as ISO 8601 has it, which has no BC.
fn without_era(text: &str) -> Option<String> {
    let Some(before) = text.strip_suffix(" BC") else { return Some(text.to_owned()) };
    let (year, rest) = before.split_once('-')?;
    let year = 1 - year.parse::<i32>().ok().filter(|year| *year > 0)?;
    Some(if year < 0 { format!("-{:06}-{rest}", -year) } else { format!("{year:04}-{rest}") })
}

/// A text without the zone behind its time, which has no meaning for values without a zone.
fn without_zone(text: &str) -> &str {
    let Some(colon) = text.find(':') else { return text };
    let Some(at) = text[colon..].find(['+', '-', 'Z', 'z']).map(|at| colon + at) else { return text };
    let (before, zone) = text.split_at(at);
    let offset = zone.get(1..).unwrap_or_default();
    let is_offset = offset.starts_with(|c: char| c.is_ascii_digit())
        && offset.len() <= "hh:mm:ss".len()
        && offset.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    if zone.eq_ignore_ascii_case("z") || is_offset { before.trim_end() } else { text }
}

pub(super) fn parse_date(text: &str) -> Option<Date> {
    without_zone(&without_era(text)?).parse().ok()
}

pub(super) fn parse_moment(text: &str) -> Option<DateTime> {
    without_zone(&without_era(text)?).parse().ok()
}

pub(super) fn parse_time(text: &str) -> Option<Time> {
    without_zone(text).parse().ok()
}

/// Numbers with units and a time, as PostgreSQL writes them, or what [`Interval`] reads.
pub(super) fn parse_interval(text: &str) -> Option<Interval> {
    parts(text).or_else(|| text.parse().ok())
}

fn parts(text: &str) -> Option<Interval> {
    let mut sum = Interval::ZERO;
    let mut words = text.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let part = match word.contains(':') {
            true => Interval { microseconds: clock_of(word)?, ..Interval::ZERO },
            false => {
                let number: i32 = word.parse().ok()?;
                let many = |each: i32| number.checked_mul(each);
                let unit = words.next()?.to_ascii_lowercase();
                match unit.strip_suffix('s').unwrap_or(&unit) {
                    "year" => Interval { months: many(12)?, ..Interval::ZERO },
                    "mon" | "month" => Interval { months: number, ..Interval::ZERO },
                    "week" => Interval { days: many(7)?, ..Interval::ZERO },
                    "day" => Interval { days: number, ..Interval::ZERO },
                    "hour" => Interval { microseconds: i64::from(number) * 3_600_000_000, ..Interval::ZERO },
                    "min" | "minute" => Interval { microseconds: i64::from(number) * 60_000_000, ..Interval::ZERO },
                    "sec" | "second" => Interval { microseconds: i64::from(number) * 1_000_000, ..Interval::ZERO },
                    _ => return None,
                }
            }
        };
        sum = sum.checked_add(part)?;
    }
    (!text.trim().is_empty()).then_some(sum)
}

/// The microseconds of `hh:mm:ss.ffffff`, with a sign.
fn clock_of(text: &str) -> Option<i64> {
    let (sign, text) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (if text.starts_with('-') { -1 } else { 1 }, rest),
        None => (1, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut fields = whole
        .split(':')
        .map(|field| field.bytes().all(|byte| byte.is_ascii_digit()).then(|| field.parse::<i64>().ok()).flatten());
    let (hours, minutes) = (fields.next()??, fields.next()??);
    let seconds = fields.next().unwrap_or(Some(0))?;
    let is_fraction = fraction.len() <= 6 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if fields.next().is_some() || minutes > 59 || seconds > 59 || !is_fraction {
        return None;
    }
    let microseconds = format!("{fraction:0<6}").parse::<i128>().ok()?;
    let seconds = i128::from(hours) * 3600 + i128::from(minutes * 60 + seconds);
    i64::try_from((seconds * 1_000_000 + microseconds) * sign).ok()
}

pub(super) fn moment_text(moment: DateTime, offset: &str) -> String {
    let (date, time) = (date_text(moment.date()), time_text(moment.time()));
    match date.strip_suffix(" BC") {
        None => format!("{date} {time}{offset}"),
        Some(date) => format!("{date} {time}{offset} BC"),
    }
}

pub(super) fn timestamp_text(timestamp: Timestamp) -> String {
    match DateTime::from_microseconds(timestamp.microseconds()) {
        Some(moment) => moment_text(moment, "+00"),
        None => timestamp.to_string(),
    }
}

pub(super) fn interval_text(interval: Interval) -> String {
    let (mut text, mut is_before) = (String::new(), false);
    for (number, unit) in [(interval.months / 12, "year"), (interval.months % 12, "mon"), (interval.days, "day")] {
        if number != 0 {
            let space = if text.is_empty() { "" } else { " " };
            // A plus stands behind a part below zero.
            let plus = if is_before && number > 0 { "+" } else { "" };
            let plural = if number == 1 { "" } else { "s" };
            let _ = write!(text, "{space}{plus}{number} {unit}{plural}");
            is_before = number < 0;
        }
    }
    if interval.microseconds != 0 || text.is_empty() {
        let space = if text.is_empty() { "" } else { " " };
        let sign = if interval.microseconds < 0 {
            "-"
        } else if is_before {
            "+"
        } else {
            ""
        };
        text.push_str(space);
        text.push_str(sign);
        clock(&mut text, interval.microseconds.unsigned_abs());
    }
    text
}
