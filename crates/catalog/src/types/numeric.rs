//! Decimal numbers of 38 digits, each with a number of digits after the point of its own. `Decimal` is smaller and
//! faster, and has room for 18 digits.
//!
//! ```
//! use seriatim_catalog::{Decimal, Numeric};
//! let price: Numeric = "19.90".parse()?;
//! let rate: Numeric = "0.0825".parse()?;
//! assert_eq!((price + rate)?.to_string(), "19.9825");
//! assert_eq!((price * rate)?.to_string(), "1.641750");
//! assert_eq!((price * rate)?.round(2)?.to_string(), "1.64");
//! assert_eq!(price.divide("3".parse()?, 4)?.to_string(), "6.6333");
//! // Equal numbers are one key, and keep their digits.
//! assert_eq!(price, "19.9".parse()?);
//! assert_eq!(price.to_string(), "19.90");
//! assert_eq!(Numeric::from(Decimal::<2>::from_units(1990)).to_decimal::<2>()?, Decimal::from_units(1990));
//! assert!("1e3".parse::<Numeric>().is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Add, Mul, Neg, Sub};
use std::str::FromStr;

use super::Raw;
use super::scalar::{Plain, scalar};
use crate::{Decimal, DecimalError, KeyWriter, Overflow, Value};

/// A decimal number: a coefficient below 10^38, and how many of its digits, at most 38, are after the point. Numbers
/// are equal if their values are. Operators return a `Result` with [`Overflow`], as those of [`Decimal`].
#[derive(Clone, Copy, Default)]
pub struct Numeric {
    coefficient: i128,
    scale: u8,
}

/// 10^`digits`; at most 38.
const fn power(digits: u32) -> i128 {
    10i128.pow(digits)
}

impl Numeric {
    /// Most digits, also after the point.
    pub const DIGITS_MAX: u8 = 38;
    /// Zero, without digits after the point.
    pub const ZERO: Numeric = Numeric { coefficient: 0, scale: 0 };

    /// `coefficient` × 10^-`scale`.
    ///
    /// # Errors
    /// Overflow, if there are more than 38 digits, also after the point.
    pub const fn new(coefficient: i128, scale: u8) -> Result<Numeric, Overflow> {
        match coefficient.unsigned_abs() < power(38) as u128 && scale <= Self::DIGITS_MAX {
            true => Ok(Numeric { coefficient, scale }),
            false => Err(Overflow),
        }
    }

    /// The number without its point.
    pub const fn coefficient(self) -> i128 {
        self.coefficient
    }

    /// Digits after the point.
    pub const fn scale(self) -> u8 {
        self.scale
    }

    /// The same number with this many digits after the point, rounded, halves away from zero.
    ///
    /// # Errors
    /// Overflow.
    pub fn round(self, scale: u8) -> Result<Numeric, Overflow> {
        if scale >= self.scale {
            let shift = (scale - self.scale).into();
            let factor = if shift <= 38 { power(shift) } else { return Err(Overflow) };
            return Numeric::new(self.coefficient.checked_mul(factor).ok_or(Overflow)?, scale);
        }
        Numeric::new(rounded(self.coefficient, power((self.scale - scale).into())), scale)
    }

    /// The quotient with this many digits after the point, rounded, halves away from zero.
    ///
    /// # Errors
    /// Overflow, also of a divisor of zero, and where the dividend with so many digits has more than 38.
    pub fn divide(self, divisor: Numeric, scale: u8) -> Result<Numeric, Overflow> {
        if divisor.coefficient == 0 {
            return Err(Overflow);
        }
        // The dividend in units of 10^-(scale + divisor's).
        let wanted = u32::from(scale) + u32::from(divisor.scale);
        let (up, down) = (wanted.saturating_sub(self.scale.into()), u32::from(self.scale).saturating_sub(wanted));
        let shift =
            |number: i128, by: u32| 10i128.checked_pow(by).and_then(|power| number.checked_mul(power)).ok_or(Overflow);
        Numeric::new(rounded(shift(self.coefficient, up)?, shift(divisor.coefficient, down)?), scale)
    }

    /// The number as a decimal with `S` digits after the point, rounded, halves away from zero.
    ///
    /// # Errors
    /// Overflow.
    pub fn to_decimal<const S: u32>(self) -> Result<Decimal<S>, Overflow> {
        let units = self.round(Decimal::<S>::SCALE)?.coefficient;
        i64::try_from(units).map(Decimal::from_units).map_err(|_| Overflow)
    }

    /// The nearest floating-point number, or one beside it.
    pub fn to_f64(self) -> f64 {
        self.coefficient as f64 / power(self.scale.into()) as f64
    }

    /// Both coefficients in units of the smaller last digit, and how many digits after the point that is.
    fn aligned(self, other: Numeric) -> Result<(i128, i128, u8), Overflow> {
        let scale = self.scale.max(other.scale);
        Ok((self.round(scale)?.coefficient, other.round(scale)?.coefficient, scale))
    }

    /// The exponent `e` and the coefficient with 38 digits of a number other than zero: it is
    /// 0.coefficient × 10^e. The sign is that of the coefficient.
    fn normalized(self) -> (i32, i128) {
        let digits = self.coefficient.unsigned_abs().ilog10() + 1;
        (digits as i32 - i32::from(self.scale), self.coefficient * power(38 - digits))
    }

    /// Key bytes: the exponent with the sign, then the digits, as one number. Those of a negative number are inverted.
    fn key(self) -> [u8; 17] {
        let mut key = [0; 17];
        if self.coefficient == 0 {
            key[0] = 0x80;
            return key;
        }
        let (exponent, digits) = self.normalized();
        // -37 to 38.
        key[0] = (0x80 + exponent + 38) as u8;
        key[1..].copy_from_slice(&digits.unsigned_abs().to_be_bytes());
        if self.coefficient < 0 {
            key.iter_mut().for_each(|byte| *byte = !*byte);
        }
        key
    }

    /// The number with these key bytes and no more digits after the point than it needs.
    fn of_key(mut key: [u8; 17]) -> Option<Numeric> {
        let is_negative = key[0] < 0x80;
        if is_negative {
            key.iter_mut().for_each(|byte| *byte = !*byte);
        }
        let (first, digits) = key.split_first_chunk::<1>()?;
        let mut digits = i128::try_from(u128::from_be_bytes(digits.try_into().ok()?)).ok()?;
        let number = match (first[0], digits) {
            (0x80, 0) if !is_negative => Numeric::ZERO,
            (0x81..=0xCC, 1..) => {
                // Digits after the point, below zero for zeros before it.
                let mut scale = 38 - (i32::from(first[0]) - 0x80 - 38);
                while digits % 10 == 0 {
                    digits /= 10;
                    scale -= 1;
                }
                let digits = digits.checked_mul(10i128.checked_pow(u32::try_from(-scale).unwrap_or(0))?)?;
                Numeric::new(if is_negative { -digits } else { digits }, u8::try_from(scale.max(0)).ok()?).ok()?
            }
            _ => return None,
        };
        Some(number)
    }

    fn to_stored(self) -> [u8; 17] {
        let mut stored = [0; 17];
        stored[..16].copy_from_slice(&self.coefficient.to_le_bytes());
        stored[16] = self.scale;
        stored
    }

    /// The number stored so; zero for bytes that are none's.
    fn of_stored(stored: [u8; 17]) -> Numeric {
        let (coefficient, scale) = stored.split_at(16);
        Numeric::new(i128::from_le_bytes(coefficient.try_into().unwrap_or_default()), scale[0]).unwrap_or_default()
    }
}

/// A quotient, rounded, halves away from zero.
fn rounded(dividend: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (dividend / divisor, dividend % divisor);
    let up = rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs();
    quotient + if up { dividend.signum() * divisor.signum() } else { 0 }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Numeric) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Numeric) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Numeric) -> Ordering {
        let signs = self.coefficient.signum().cmp(&other.coefficient.signum());
        signs.then_with(|| {
            if self.coefficient == 0 {
                return Ordering::Equal;
            }
            let ((exponent, digits), (other_exponent, other_digits)) = (self.normalized(), other.normalized());
            let magnitudes = exponent.cmp(&other_exponent);
            (if self.coefficient < 0 { magnitudes.reverse() } else { magnitudes }).then(digits.cmp(&other_digits))
        })
    }
}

impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::decimal::display(self.coefficient, self.scale.into(), f)
    }
}

impl fmt::Debug for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Digits, with a sign and a point if there is one. All digits after the point are kept.
impl FromStr for Numeric {
    type Err = DecimalError;
    fn from_str(text: &str) -> Result<Numeric, DecimalError> {
        let scale = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let scale = scale.min(Self::DIGITS_MAX.into());
        let coefficient = super::decimal::parse(text, scale as u32)?;
        Numeric::new(coefficient, scale as u8).map_err(|_| DecimalError::Overflow)
    }
}

impl From<i64> for Numeric {
    fn from(number: i64) -> Numeric {
        Numeric { coefficient: number.into(), scale: 0 }
    }
}

impl<const S: u32> From<Decimal<S>> for Numeric {
    fn from(decimal: Decimal<S>) -> Numeric {
        Numeric { coefficient: decimal.units().into(), scale: Decimal::<S>::SCALE }
    }
}

/// Exact; as many digits after the point as the operand with more.
impl Add for Numeric {
    type Output = Result<Numeric, Overflow>;
    fn add(self, other: Numeric) -> Self::Output {
        let (a, b, scale) = self.aligned(other)?;
        Numeric::new(a + b, scale)
    }
}

/// Exact; as many digits after the point as the operand with more.
impl Sub for Numeric {
    type Output = Result<Numeric, Overflow>;
    fn sub(self, other: Numeric) -> Self::Output {
        let (a, b, scale) = self.aligned(other)?;
        Numeric::new(a - b, scale)
    }
}

/// Exact, with the digits after the point of both, where these are at most 38.
impl Mul for Numeric {
    type Output = Result<Numeric, Overflow>;
    fn mul(self, other: Numeric) -> Self::Output {
        let coefficient = self.coefficient.checked_mul(other.coefficient).ok_or(Overflow)?;
        Numeric::new(coefficient, self.scale.saturating_add(other.scale))
    }
}

impl Neg for Numeric {
    type Output = Numeric;
    fn neg(self) -> Numeric {
        Numeric { coefficient: -self.coefficient, scale: self.scale }
    }
}

scalar! {
    Numeric, "numeric", Digits => Numeric, [u8; 17], |stored| Numeric::of_stored(stored), |value| value.to_stored(),
    |text| text.parse().map_err(|error: DecimalError| match error {
        DecimalError::Overflow => "a numeric has at most 38 digits".to_owned(),
        error => error.to_string(),
    });

    /// Whole numbers and decimals.
    fn converted(&self, value: &Value) -> Option<Raw<'static>> {
        let number = match *value {
            Value::Integer(number, _) => Numeric::new(number, 0),
            Value::Decimal { units, scale } => Numeric::new(units.into(), scale),
            _ => return None,
        };
        number.ok().map(|number| number.to_stored().raw())
    }

    fn write_key(&self, stored: &[u8], key: &mut KeyWriter) {
        key.bytes(&Numeric::of_stored(Plain::of_raw(stored)).key());
    }

    fn of_key(&self, key: &[u8]) -> Option<Vec<u8>> {
        Some(Numeric::of_key(key.try_into().ok()?)?.to_stored().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(text: &str) -> Numeric {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn texts_keep_their_digits() {
        let most = "9".repeat(38);
        let least = format!("-0.{most}");
        for text in ["0", "0.00", "-0.050", "12.30", &most, &least] {
            assert_eq!(numeric(text).to_string(), text);
        }
        assert_eq!(format!("1{}", "0".repeat(38)).parse::<Numeric>(), Err(DecimalError::Overflow));
        assert_eq!(format!("0.{}", "0".repeat(39)).parse::<Numeric>(), Err(DecimalError::TooPrecise { scale: 38 }));
    }

    #[test]
    fn arithmetic_is_exact_or_an_error() {
        let (most, one) = (numeric(&"9".repeat(38)), numeric("1"));
        assert_eq!(most + one, Err(Overflow));
        assert_eq!(-most - one, Err(Overflow));
        assert_eq!(most * numeric("10"), Err(Overflow));
        assert_eq!(most.round(1), Err(Overflow));
        assert_eq!(one.divide(Numeric::ZERO, 2), Err(Overflow));
        assert_eq!(one.round(39), Err(Overflow));
        for (text, scale, wanted) in [("0.5", 0, "1"), ("-0.5", 0, "-1"), ("2.449", 1, "2.4"), ("2.4", 3, "2.400")] {
            assert_eq!(numeric(text).round(scale).map(|number| number.to_string()).as_deref(), Ok(wanted));
        }
        for (a, b, scale, wanted) in [("2", "3", 2, "0.67"), ("-2", "3", 0, "-1"), ("1.5", "0.05", 0, "30")] {
            let quotient = numeric(a).divide(numeric(b), scale).map(|number| number.to_string());
            assert_eq!(quotient.as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn order_is_by_value_and_that_of_keys() {
        let tiny = format!("0.{}1", "0".repeat(37));
        let most = "9".repeat(38);
        let ascending = [
            vec![format!("-{most}")],
            vec!["-10.5".into()],
            vec!["-10".into(), "-10.00".into()],
            vec!["-9.99".into()],
            vec![format!("-{tiny}")],
            vec!["0".into(), "0.000".into(), "-0".into()],
            vec![tiny],
            vec!["0.1".into(), "0.10".into()],
            vec!["9.99".into()],
            vec!["10".into()],
            vec![most],
        ];
        let ascending: Vec<Vec<Numeric>> =
            ascending.iter().map(|equal| equal.iter().map(|text| numeric(text)).collect()).collect();
        for (at, equal) in ascending.iter().enumerate() {
            for number in equal {
                assert!(*number == equal[0] && number.key() == equal[0].key());
                assert_eq!(Numeric::of_key(number.key()), Some(*number));
                assert!(ascending[..at].iter().flatten().all(|less| less < number && less.key() < number.key()));
            }
        }
    }
}
