//! Arithmetic of `numeric` as PostgreSQL has it, within 38 digits. Digits after the point that do not fit are rounded
//! away, halves away from zero. A number whose digits before the point do not fit is out of range.

use super::error::EvaluationError;
use crate::{ColumnType, Numeric};

type Result<T> = std::result::Result<T, EvaluationError>;

const LIMIT: u128 = 10u128.pow(38);

fn out_of_range() -> EvaluationError {
    EvaluationError::out_of_range(ColumnType::Numeric)
}

/// A number of 256 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wide {
    high: u128,
    low: u128,
}

impl Wide {
    fn product(a: u128, b: u128) -> Wide {
        let half = |n: u128| (n >> 64, n & u128::from(u64::MAX));
        let ((a1, a0), (b1, b0)) = (half(a), half(b));
        let (middle, carry) = (a1 * b0).overflowing_add(a0 * b1);
        let (low, more) = (a0 * b0).overflowing_add(middle << 64);
        Wide { high: a1 * b1 + (middle >> 64) + (u128::from(carry) << 64) + u128::from(more), low }
    }

    fn plus(self, other: Wide) -> Wide {
        let (low, carry) = self.low.overflowing_add(other.low);
        Wide { high: self.high + other.high + u128::from(carry), low }
    }

    /// `other` is not above it.
    fn minus(self, other: Wide) -> Wide {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Wide { high: self.high - other.high - u128::from(borrow), low }
    }

    /// A tenth of it, and the digit behind that.
    fn tenth(self) -> (Wide, u8) {
        let mut rest = 0u128;
        let mut digit = |limb: u128| {
            let part = rest << 64 | limb;
            rest = part % 10;
            part / 10
        };
        let limbs = |n: u128| (n >> 64, n & u128::from(u64::MAX));
        let ((h1, h0), (l1, l0)) = (limbs(self.high), limbs(self.low));
        let (h1, h0, l1, l0) = (digit(h1), digit(h0), digit(l1), digit(l0));
        (Wide { high: h1 << 64 | h0, low: l1 << 64 | l0 }, rest as u8)
    }
}

/// The number of these digits with as many of the `scale` after the point as there is room for.
fn fitted(is_negative: bool, mut digits: Wide, mut scale: u32) -> Result<Numeric> {
    let mut last = 0;
    while digits.high > 0 || digits.low >= LIMIT || scale > Numeric::DIGITS_MAX.into() {
        scale = scale.checked_sub(1).ok_or_else(out_of_range)?;
        (digits, last) = digits.tenth();
    }
    let rounded = digits.low + u128::from(last >= 5);
    let (rounded, scale) = match (rounded == LIMIT, scale) {
        (false, scale) => (rounded, scale),
        (true, 0) => return Err(out_of_range()),
        (true, scale) => (rounded / 10, scale - 1),
    };
    let signed = if is_negative { -(rounded as i128) } else { rounded as i128 };
    Numeric::new(signed, scale as u8).map_err(|_| out_of_range())
}

fn power(digits: u32) -> u128 {
    10u128.pow(digits)
}

/// The digits of both in units of the smaller last one, and how many are after the point.
fn aligned(a: Numeric, b: Numeric) -> (Wide, Wide, u32) {
    let scale = a.scale().max(b.scale());
    let digits =
        |n: Numeric| Wide::product(n.coefficient().unsigned_abs(), power(u32::from(scale) - u32::from(n.scale())));
    (digits(a), digits(b), scale.into())
}

pub(super) fn add(a: Numeric, b: Numeric) -> Result<Numeric> {
    if let Ok(sum) = a + b {
        return Ok(sum);
    }
    let ((x, y, scale), is_negative) = (aligned(a, b), a.coefficient() < 0);
    if is_negative == (b.coefficient() < 0) {
        fitted(is_negative, x.plus(y), scale)
    } else if x >= y {
        fitted(is_negative, x.minus(y), scale)
    } else {
        fitted(!is_negative, y.minus(x), scale)
    }
}

pub(super) fn subtract(a: Numeric, b: Numeric) -> Result<Numeric> {
    add(a, -b)
}

fn is_negative(a: Numeric, b: Numeric) -> bool {
    (a.coefficient() < 0) != (b.coefficient() < 0)
}

pub(super) fn multiply(a: Numeric, b: Numeric) -> Result<Numeric> {
    let digits = Wide::product(a.coefficient().unsigned_abs(), b.coefficient().unsigned_abs());
    fitted(is_negative(a, b), digits, u32::from(a.scale()) + u32::from(b.scale()))
}

/// How many digits PostgreSQL's quotient has after the point: at least those of the operands, and enough for 16
/// significant ones, counted in groups of four.
fn quotient_scale(a: Numeric, b: Numeric) -> u32 {
    // The group of the first digit, by its power of 10,000, and that group's value.
    let first = |n: Numeric| {
        let digits = n.coefficient().unsigned_abs();
        if digits == 0 {
            return (0, 0);
        }
        let top = digits.ilog10() as i32 - i32::from(n.scale());
        let group = top.div_euclid(4);
        // The digits of the group lie from 10^(4 group) on.
        let shift = 4 * group + i32::from(n.scale());
        let value = if shift >= 0 { digits / power(shift as u32) } else { digits * power(shift.unsigned_abs()) };
        (group, value)
    };
    let ((group, value), (other, divisor)) = (first(a), first(b));
    let weight = group - other - i32::from(value <= divisor);
    let wanted = 16 - 4 * weight;
    wanted.max(a.scale().into()).max(b.scale().into()).clamp(0, Numeric::DIGITS_MAX.into()) as u32
}

pub(super) fn divide(a: Numeric, b: Numeric) -> Result<Numeric> {
    let divisor = b.coefficient().unsigned_abs();
    if divisor == 0 {
        return Err(EvaluationError::division_by_zero());
    }
    let wanted = quotient_scale(a, b);
    // Long division of a.coefficient × 10^(b.scale) by b.coefficient × 10^(a.scale), a digit at a time. Digits up to
    // `start` come from the whole coefficients.
    let dividend = a.coefficient().unsigned_abs();
    let (mut quotient, mut rest) = (dividend / divisor, dividend % divisor);
    // The quotient now has this many digits after the point, perhaps below zero of them.
    let mut scale = i32::from(a.scale()) - i32::from(b.scale());
    let next = |rest: u128| {
        let mut wide = Wide::product(rest, 10);
        let divisor = Wide { high: 0, low: divisor };
        let mut digit = 0;
        while wide >= divisor {
            wide = wide.minus(divisor);
            digit += 1;
        }
        (digit, wide.low)
    };
    while scale < wanted as i32 && quotient < LIMIT / 10 {
        let (digit, left) = next(rest);
        (quotient, rest, scale) = (quotient * 10 + digit, left, scale + 1);
    }
    if scale < 0 {
        return Err(out_of_range());
    }
    // `scale` may be above what is wanted only if the dividend's is, and then the quotient is as long as wanted.
    let (digit, _) = next(rest);
    let rounded = quotient + u128::from(digit >= 5);
    fitted(is_negative(a, b), Wide { high: 0, low: rounded }, scale as u32)
}

pub(super) fn modulo(a: Numeric, b: Numeric) -> Result<Numeric> {
    if b.coefficient() == 0 {
        return Err(EvaluationError::division_by_zero());
    }
    let scale = a.scale().max(b.scale());
    // The rest of a smaller number is that number.
    if a.coefficient().unsigned_abs() == 0 {
        return Numeric::ZERO.round(scale).map_err(|_| out_of_range());
    }
    let factor = power(u32::from(scale) - u32::from(b.scale()));
    let divisor = Wide::product(b.coefficient().unsigned_abs(), factor);
    let mut digits = a.coefficient().unsigned_abs();
    // The digits of `a` in units of 10^-scale, a digit at a time.
    let mut rest = Wide { high: 0, low: 0 };
    let reduce = |mut rest: Wide| {
        while rest >= divisor {
            rest = rest.minus(divisor);
        }
        rest
    };
    let mut place = power(digits.ilog10());
    let zeros = u32::from(scale) - u32::from(a.scale());
    let ten = |rest: Wide| {
        let mut sum = rest;
        for _ in 0..9 {
            sum = sum.plus(rest);
        }
        sum
    };
    while place > 0 {
        rest = reduce(ten(rest).plus(Wide { high: 0, low: digits / place }));
        digits %= place;
        place /= 10;
    }
    for _ in 0..zeros {
        rest = reduce(ten(rest));
    }
    fitted(a.coefficient() < 0, rest, scale.into())
}

/// With so many digits after the point, or so many zeros before it, if there are fewer than none.
pub(super) fn round(number: Numeric, scale: i32, toward_zero: bool) -> Result<Numeric> {
    let kept = scale.clamp(0, Numeric::DIGITS_MAX.into()) as u32;
    let dropped = i64::from(number.scale()) - i64::from(scale);
    if dropped <= 0 {
        let more = Wide::product(number.coefficient().unsigned_abs(), power(kept - u32::from(number.scale())));
        return fitted(number.coefficient() < 0, more, kept);
    }
    if dropped > 38 {
        return Numeric::new(0, kept as u8).map_err(|_| out_of_range());
    }
    let unit = power(dropped as u32);
    let digits = number.coefficient().unsigned_abs();
    let (mut units, rest) = (digits / unit, digits % unit);
    units += u128::from(!toward_zero && rest >= unit - rest);
    // Behind the point if the scale is below zero.
    let zeros = if scale < 0 { power(scale.unsigned_abs().min(38)) } else { 1 };
    fitted(number.coefficient() < 0, Wide::product(units, zeros), kept)
}

/// The next whole number below it, or above.
pub(super) fn whole(number: Numeric, up: bool) -> Result<Numeric> {
    let unit = power(number.scale().into()) as i128;
    let (below, rest) = (number.coefficient().div_euclid(unit), number.coefficient().rem_euclid(unit));
    Numeric::new(below + i128::from(up && rest > 0), 0).map_err(|_| out_of_range())
}

pub(super) fn of_integer(number: i128) -> Result<Numeric> {
    Numeric::new(number, 0).map_err(|_| out_of_range())
}

/// The integer nearest to it, halves away from zero.
pub(super) fn to_integer(number: Numeric) -> i128 {
    number.round(0).map_or(0, Numeric::coefficient)
}

/// The nearest floating-point number.
pub(super) fn to_float(number: Numeric) -> f64 {
    // Both are exact, so that the quotient is rounded once.
    if number.coefficient().unsigned_abs() < 1 << 53 && number.scale() <= 22 {
        return number.coefficient() as f64 / 10f64.powi(number.scale().into());
    }
    number.to_string().parse().unwrap_or(f64::NAN)
}

/// Digits, perhaps with a sign, a point and an exponent; `None` for another text.
pub(super) fn parse(text: &str) -> Option<Result<Numeric>> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, digits) = match digits.as_bytes().first()? {
        b'-' => (true, &digits[1..]),
        b'+' => (false, &digits[1..]),
        _ => (false, digits),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = || whole.bytes().chain(fraction.bytes());
    if whole.is_empty() && fraction.is_empty() || !all().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // The digits that fit, and how many are left of them behind the point.
    let (mut kept, mut scale, mut is_full) = (0u128, exponent.checked_neg()?, false);
    let mut next = None;
    for (at, digit) in all().enumerate() {
        let digit = u128::from(digit - b'0');
        let is_fraction = at >= whole.len();
        let longer = kept * 10 + digit;
        if is_full || longer >= LIMIT || scale >= 38 && is_fraction {
            is_full = true;
            next.get_or_insert(digit);
            scale -= i32::from(!is_fraction);
        } else {
            kept = longer;
            scale = scale.checked_add(i32::from(is_fraction))?;
        }
    }
    kept += u128::from(next.is_some_and(|digit| digit >= 5));
    if scale < 0 && kept > 0 {
        let Some(more) = 10u128.checked_pow(scale.unsigned_abs()).and_then(|factor| kept.checked_mul(factor)) else {
            return Some(Err(out_of_range()));
        };
        (kept, scale) = (more, 0);
    }
    let digits = Wide { high: 0, low: kept };
    // Beyond the digits of any number nothing is left.
    Some(fitted(is_negative, digits, scale.clamp(0, 200) as u32))
}
