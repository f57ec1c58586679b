//! Fixed-point numbers, for money: an `i64` counting units of 10^-S. Sums are exact. Overflow neither passes silently
//! nor panics.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul, Neg, Sub};
use std::str::FromStr;

use super::rules::signed;
use super::{Misfit, Raw, Rules};
use crate::column::by_value;
use crate::value::into_value;
use crate::{ColumnType, TableDef, Value};

/// A number with `S` digits after the point (at most 18), within ±9.2 × 10^(18 - S).
///
/// The operators `+`, `-`, `*` with an integer, and negation return a `Result` with [`Overflow`]. In the body of a
/// transaction `?` makes that an abort, as the same arithmetic in a procedure does. Sums and differences chain, as in
/// `(a + b - c)?`.
///
/// ```
/// use seriatim_catalog::Decimal;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let price: Decimal<2> = "19.99".parse()?;
/// let tax: Decimal<4> = "0.0825".parse()?;
/// assert_eq!((price * 3)?.to_string(), "59.97");
/// assert_eq!((price + price.times(tax)?)?.to_string(), "21.64");
/// assert_eq!((price - Decimal::from_units(2000))?.to_string(), "-0.01");
/// let most = Decimal::<2>::from_units(i64::MAX);
/// assert!((most + price).is_err());
/// assert_eq!([price, price].into_iter().sum::<Result<Decimal<2>, _>>()?.to_string(), "39.98");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal<const S: u32>(i64);

/// A number left the range of its type, or a divisor was zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number leaves the range of its type")
    }
}

impl std::error::Error for Overflow {}

/// Why a text is not a [`Decimal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalError {
    /// It is not of the form `[+-]digits[.digits]`.
    Syntax,
    /// It has more digits after the point than the type.
    TooPrecise {
        /// Digits after the point that the type has.
        scale: u32,
    },
    /// It is too large.
    Overflow,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecimalError::Syntax => {
                f.write_str("not a decimal number; write digits, optionally a point and more digits")
            }
            DecimalError::TooPrecise { scale } => {
                write!(f, "too many digits after the point; there is room for {scale}")
            }
            DecimalError::Overflow => f.write_str("too large for a decimal of 64 bits"),
        }
    }
}

impl std::error::Error for DecimalError {}

/// 10^`scale`; `scale` is at most 18.
const fn power(scale: u32) -> i64 {
    assert!(scale <= 18, "a decimal has at most 18 digits after the point");
    10i64.pow(scale)
}

impl<const S: u32> Decimal<S> {
    /// Units in 1: 10^S. Checked when compiled: `S` is at most 18.
    pub const ONE_UNITS: i64 = power(S);
    /// Digits after the point.
    pub(crate) const SCALE: u8 = {
        let _scale_is_valid = Self::ONE_UNITS;
        S as u8
    };
    /// Zero.
    pub const ZERO: Decimal<S> = Decimal(0);
    /// One.
    pub const ONE: Decimal<S> = Decimal(Self::ONE_UNITS);

    /// `units` × 10^-S.
    #[inline]
    pub const fn from_units(units: i64) -> Decimal<S> {
        let _scale_is_valid = Self::ONE_UNITS;
        Decimal(units)
    }

    /// How many units of 10^-S it is.
    #[inline]
    pub const fn units(self) -> i64 {
        self.0
    }

    /// A whole number.
    ///
    /// # Errors
    /// Overflow.
    pub const fn whole(number: i64) -> Result<Decimal<S>, Overflow> {
        match number.checked_mul(Self::ONE_UNITS) {
            Some(units) => Ok(Decimal(units)),
            None => Err(Overflow),
        }
    }

    /// The sum, or `None` on overflow.
    pub fn checked_add(self, other: Decimal<S>) -> Option<Decimal<S>> {
        self.0.checked_add(other.0).map(Decimal)
    }

    /// The difference, or `None` on overflow.
    pub fn checked_sub(self, other: Decimal<S>) -> Option<Decimal<S>> {
        self.0.checked_sub(other.0).map(Decimal)
    }

    /// The product with an integer, or `None` on overflow.
    pub fn checked_mul(self, factor: i64) -> Option<Decimal<S>> {
        self.0.checked_mul(factor).map(Decimal)
    }

    /// The product with a number of any scale, rounded to `S` digits, halves away from zero; `None` on overflow.
    pub fn checked_times<const T: u32>(self, factor: Decimal<T>) -> Option<Decimal<S>> {
        let product = i128::from(self.0) * i128::from(factor.0);
        round(product, i128::from(Decimal::<T>::ONE_UNITS)).map(Decimal)
    }

    /// The product with a number of any scale, rounded to `S` digits, halves away from zero.
    ///
    /// # Errors
    /// Overflow.
    pub fn times<const T: u32>(self, factor: Decimal<T>) -> Result<Decimal<S>, Overflow> {
        self.checked_times(factor).ok_or(Overflow)
    }

    /// The same number with `T` digits after the point, rounded, halves away from zero; `None` on overflow.
    pub fn rescale<const T: u32>(self) -> Option<Decimal<T>> {
        round(i128::from(self.0) * i128::from(Decimal::<T>::ONE_UNITS), i128::from(Self::ONE_UNITS)).map(Decimal)
    }

    /// The nearest floating-point number.
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / Self::ONE_UNITS as f64
    }
}

fn round(numerator: i128, denominator: i128) -> Option<i64> {
    let half = denominator / 2 * numerator.signum();
    i64::try_from((numerator + half) / denominator).ok()
}

impl<const S: u32> fmt::Display for Decimal<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(self.0.into(), S, f)
    }
}

/// Writes `units` × 10^-`scale`, with exactly `scale` digits after the point.
pub(super) fn display(units: i128, scale: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (magnitude, one) = (units.unsigned_abs(), 10u128.pow(scale));
    let text = match scale {
        0 => magnitude.to_string(),
        _ => format!("{}.{:0width$}", magnitude / one, magnitude % one, width = scale as usize),
    };
    f.pad_integral(units >= 0, "", &text)
}

/// Reads what [`display`] writes, and fewer digits after the point.
pub(super) fn parse(text: &str, scale: u32) -> Result<i128, DecimalError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() || !(whole.bytes().chain(fraction.bytes())).all(|b| b.is_ascii_digit()) {
        return Err(DecimalError::Syntax);
    }
    if fraction.len() > scale as usize {
        return Err(DecimalError::TooPrecise { scale });
    }
    let padding = std::iter::repeat_n(b'0', scale as usize - fraction.len());
    whole.bytes().chain(fraction.bytes()).chain(padding).try_fold(0i128, |units, digit| {
        let digit = i128::from(digit - b'0');
        let shifted = units.checked_mul(10).ok_or(DecimalError::Overflow)?;
        if negative { shifted.checked_sub(digit) } else { shifted.checked_add(digit) }.ok_or(DecimalError::Overflow)
    })
}

impl<const S: u32> fmt::Debug for Decimal<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const S: u32> FromStr for Decimal<S> {
    type Err = DecimalError;
    fn from_str(text: &str) -> Result<Decimal<S>, DecimalError> {
        i64::try_from(parse(text, S)?).map(Decimal::from_units).map_err(|_| DecimalError::Overflow)
    }
}

impl<const S: u32> Add for Decimal<S> {
    type Output = Result<Decimal<S>, Overflow>;
    #[inline]
    fn add(self, other: Decimal<S>) -> Self::Output {
        self.checked_add(other).ok_or(Overflow)
    }
}

impl<const S: u32> Sub for Decimal<S> {
    type Output = Result<Decimal<S>, Overflow>;
    #[inline]
    fn sub(self, other: Decimal<S>) -> Self::Output {
        self.checked_sub(other).ok_or(Overflow)
    }
}

impl<const S: u32> Mul<i64> for Decimal<S> {
    type Output = Result<Decimal<S>, Overflow>;
    #[inline]
    fn mul(self, factor: i64) -> Self::Output {
        self.checked_mul(factor).ok_or(Overflow)
    }
}

impl<const S: u32> Neg for Decimal<S> {
    type Output = Result<Decimal<S>, Overflow>;
    #[inline]
    fn neg(self) -> Self::Output {
        self.0.checked_neg().map(Decimal).ok_or(Overflow)
    }
}

/// Continues a sum.
impl<const S: u32> Add<Decimal<S>> for Result<Decimal<S>, Overflow> {
    type Output = Result<Decimal<S>, Overflow>;
    #[inline]
    fn add(self, other: Decimal<S>) -> Self::Output {
        self? + other
    }
}

/// Continues a sum.
impl<const S: u32> Sub<Decimal<S>> for Result<Decimal<S>, Overflow> {
    type Output = Result<Decimal<S>, Overflow>;
    #[inline]
    fn sub(self, other: Decimal<S>) -> Self::Output {
        self? - other
    }
}

impl<const S: u32> Sum<Decimal<S>> for Result<Decimal<S>, Overflow> {
    fn sum<I: Iterator<Item = Decimal<S>>>(mut numbers: I) -> Self {
        numbers.try_fold(Decimal::ZERO, Add::add)
    }
}

by_value! {
    [<const S: u32>] Decimal<S> => ColumnType::Decimal { scale: Decimal::<S>::SCALE }, i64,
        |stored| Decimal::from_units(stored), |value| value.units();
}

into_value! {
    [<const S: u32>] Decimal<S>, |value| Value::Decimal { units: value.units(), scale: Decimal::<S>::SCALE };
}

pub(super) struct Units {
    pub(super) scale: u8,
}

impl Rules for Units {
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "decimal({})", self.scale)
    }

    fn problem(&self) -> Option<String> {
        let (scale, most) = (self.scale, TableDef::SCALE_MAX);
        (scale > most).then(|| format!("has {scale} digits after the point; at most {most} fit"))
    }

    fn value(&self, stored: &[u8]) -> Value {
        Value::Decimal { units: signed(stored) as i64, scale: self.scale }
    }

    /// Decimals and whole numbers of another scale fit if they need no rounding.
    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit> {
        let units = match *value {
            Value::Decimal { units, scale } => exact(units, scale, self.scale),
            Value::Integer(number, _) => i64::try_from(number).ok().and_then(|number| exact(number, 0, self.scale)),
            _ => None,
        };
        units.map(|units| Raw::copied(&units.to_ne_bytes())).ok_or(Misfit::Other)
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        let units = parse(text, self.scale.into()).map_err(|error| error.to_string())?;
        let units = i64::try_from(units).map_err(|_| DecimalError::Overflow.to_string())?;
        Ok(Value::Decimal { units, scale: self.scale })
    }
}

/// `units` / 10^`scale` in units of 10^-`wanted`, if that is exact and fits.
fn exact(units: i64, scale: u8, wanted: u8) -> Option<i64> {
    let power = 10i64.checked_pow(scale.abs_diff(wanted).into())?;
    if wanted >= scale { units.checked_mul(power) } else { (units % power == 0).then_some(units / power) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_units_agree() {
        for (text, units) in [("0.00", 0), ("-0.05", -5), ("12.30", 1230), ("92233720368547758.07", i64::MAX)] {
            assert_eq!(text.parse(), Ok(Decimal::<2>::from_units(units)), "{text}");
            assert_eq!(Decimal::<2>::from_units(units).to_string(), text);
        }
        assert_eq!(Decimal::<2>::from_units(i64::MIN).to_string().parse(), Ok(Decimal::<2>::from_units(i64::MIN)));
        assert_eq!("+.5".parse(), Ok(Decimal::<1>::from_units(5)));
        assert_eq!("7".parse(), Ok(Decimal::<0>::from_units(7)));
        assert_eq!("0.001".parse::<Decimal<2>>(), Err(DecimalError::TooPrecise { scale: 2 }));
        assert_eq!("92233720368547758.08".parse::<Decimal<2>>(), Err(DecimalError::Overflow));
        for text in ["", "-", ".", "1.2.3", "1e3", "--1", "٣"] {
            assert_eq!(text.parse::<Decimal<2>>(), Err(DecimalError::Syntax), "{text}");
        }
        assert_eq!(
            format!("{:>8}|{:<8}|{:+}", Decimal::<2>::ONE, Decimal::<2>::ONE, Decimal::<2>::ONE),
            "    1.00|1.00    |+1.00"
        );
    }

    #[test]
    fn products_round_halves_away_from_zero() {
        let rate = Decimal::<1>::from_units(5);
        assert_eq!(Decimal::<2>::from_units(1).times(rate), Ok(Decimal::from_units(1)));
        assert_eq!(Decimal::<2>::from_units(-1).times(rate), Ok(Decimal::from_units(-1)));
        let third = Decimal::<2>::from_units(33);
        assert_eq!(Decimal::<2>::from_units(-3).times(third), Ok(Decimal::from_units(-1)));
        assert_eq!(Decimal::<4>::from_units(12345).rescale::<2>(), Some(Decimal::from_units(123)));
        assert_eq!(Decimal::<2>::from_units(i64::MAX).times(Decimal::<0>::from_units(2)), Err(Overflow));
        assert_eq!(Decimal::<0>::from_units(10).rescale::<18>(), None);
    }

    #[test]
    fn a_result_out_of_range_is_an_error_and_not_a_panic() {
        let (most, least) = (Decimal::<2>::from_units(i64::MAX), Decimal::<2>::from_units(i64::MIN));
        let cent = Decimal::from_units(1);
        assert_eq!(most + cent, Err(Overflow));
        assert_eq!(least - cent, Err(Overflow));
        assert_eq!(most * 2, Err(Overflow));
        assert_eq!(-least, Err(Overflow));
        assert_eq!(Decimal::<2>::whole(i64::MAX), Err(Overflow));
        assert_eq!(most.times(Decimal::<1>::from_units(11)), Err(Overflow));
        assert_eq!([most, cent].into_iter().sum::<Result<Decimal<2>, Overflow>>(), Err(Overflow));
        assert_eq!(most - cent + cent, Ok(most));
        assert_eq!(most + cent - cent, Err(Overflow), "a sum that has left the range does not come back");
    }
}
