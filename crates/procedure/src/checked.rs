//! Arithmetic of procedures: a result outside the range of its type is [`Overflow`], in every build, and never
//! passes silently.
//!
//! Generated code writes `checked::add(a, b)?` for `a + b` without knowing the types. Each type has one
//! implementation of each trait, so a literal takes the type of the other operand, as with the operators.
//! Floats follow IEEE 754 and never fail. Decimals have what [`Decimal`] has: sum, difference, negation, and
//! the product with an `i64`.

use seriatim_catalog::Decimal;
pub use seriatim_catalog::Overflow;

use crate::EvaluationError;

impl From<Overflow> for EvaluationError {
    fn from(_: Overflow) -> EvaluationError {
        EvaluationError::Overflow
    }
}

macro_rules! operations {
    ($($trait:ident, $function:ident, $symbol:literal, $method:ident, $float:tt;)+) => {$(
        #[doc = concat!("Types with `", $symbol, "` in procedures.")]
        #[diagnostic::on_unimplemented(
            message = "procedures have no such arithmetic on `{Self}` and `{Rhs}`",
            note = "it is on two numbers of one type, or a Decimal times an i64; of a reference, take the value: `*x`"
        )]
        pub trait $trait<Rhs = Self>: Sized {
            #[doc = concat!("`self ", $symbol, " other`.")]
            ///
            /// # Errors
            /// [`Overflow`].
            fn $function(self, other: Rhs) -> Result<Self, Overflow>;
        }

        #[doc = concat!("`a ", $symbol, " b`.")]
        ///
        /// # Errors
        /// [`Overflow`].
        #[inline(always)]
        pub fn $function<A: $trait<B>, B>(a: A, b: B) -> Result<A, Overflow> {
            a.$function(b)
        }

        operations!(integers $trait, $function, $method: i8 i16 i32 i64 u8 u16 u32 u64 usize);

        impl $trait for f64 {
            #[inline(always)]
            fn $function(self, other: f64) -> Result<f64, Overflow> {
                Ok(self $float other)
            }
        }
    )+};
    (integers $trait:ident, $function:ident, $method:ident: $($type:ty)+) => {$(
        impl $trait for $type {
            #[inline(always)]
            fn $function(self, other: $type) -> Result<$type, Overflow> {
                self.$method(other).ok_or(Overflow)
            }
        }
    )+};
}

operations! {
    Add, add, "+", checked_add, +;
    Subtract, subtract, "-", checked_sub, -;
    Multiply, multiply, "*", checked_mul, *;
    Divide, divide, "/", checked_div, /;
    Remainder, remainder, "%", checked_rem, %;
}

macro_rules! decimals {
    ($($trait:ident<$rhs:ty>, $function:ident, $method:ident;)+) => {$(
        impl<const S: u32> $trait<$rhs> for Decimal<S> {
            #[inline(always)]
            fn $function(self, other: $rhs) -> Result<Decimal<S>, Overflow> {
                self.$method(other).ok_or(Overflow)
            }
        }
    )+};
}

decimals! {
    Add<Decimal<S>>, add, checked_add;
    Subtract<Decimal<S>>, subtract, checked_sub;
    Multiply<i64>, multiply, checked_mul;
}

/// Types with `-x` in procedures.
pub trait Signed: Sized {
    /// `-self`.
    ///
    /// # Errors
    /// [`Overflow`].
    fn negate(self) -> Result<Self, Overflow>;
}

/// Types with `x.abs()` in procedures.
pub trait Absolute: Signed {
    /// `self.abs()`.
    ///
    /// # Errors
    /// [`Overflow`].
    fn absolute(self) -> Result<Self, Overflow>;
}

macro_rules! signed {
    ($($type:ty)+) => {$(
        impl Signed for $type {
            #[inline(always)]
            fn negate(self) -> Result<$type, Overflow> {
                self.checked_neg().ok_or(Overflow)
            }
        }

        impl Absolute for $type {
            #[inline(always)]
            fn absolute(self) -> Result<$type, Overflow> {
                self.checked_abs().ok_or(Overflow)
            }
        }
    )+};
}

signed!(i8 i16 i32 i64);

impl Signed for f64 {
    #[inline(always)]
    fn negate(self) -> Result<f64, Overflow> {
        Ok(-self)
    }
}

impl Absolute for f64 {
    #[inline(always)]
    fn absolute(self) -> Result<f64, Overflow> {
        Ok(self.abs())
    }
}

impl<const S: u32> Signed for Decimal<S> {
    #[inline(always)]
    fn negate(self) -> Result<Decimal<S>, Overflow> {
        Decimal::ZERO.checked_sub(self).ok_or(Overflow)
    }
}

/// `-x`.
///
/// # Errors
/// [`Overflow`].
#[inline(always)]
pub fn negate<T: Signed>(x: T) -> Result<T, Overflow> {
    x.negate()
}

/// `x.abs()`.
///
/// # Errors
/// [`Overflow`].
#[inline(always)]
pub fn absolute<T: Absolute>(x: T) -> Result<T, Overflow> {
    x.absolute()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_takes_the_type_of_the_other_operand() {
        let (byte, word, price) = (250u8, 7usize, Decimal::<2>::from_units(150));
        assert_eq!(add(byte, 5), Ok(255));
        assert_eq!(add(5, byte), Ok(255));
        assert_eq!(multiply(2, byte), Err(Overflow));
        assert_eq!(subtract(word, 8), Err(Overflow));
        assert_eq!(divide(word, 2), Ok(3));
        assert_eq!(remainder(5, word), Ok(5));
        assert_eq!(multiply(3, 7i64), Ok(21));
        assert_eq!(multiply(price, 3), Ok(Decimal::from_units(450)));
        assert_eq!(add(1, 2), Ok(3));
        assert_eq!(negate(5), Ok(-5));
    }

    #[test]
    fn a_result_out_of_range_is_overflow() {
        assert_eq!(divide(1u8, 0), Err(Overflow));
        assert_eq!(divide(i64::MIN, -1), Err(Overflow));
        assert_eq!(remainder(i8::MIN, -1), Err(Overflow));
        assert_eq!(remainder(1i8, 0), Err(Overflow));
        assert_eq!(negate(i32::MIN), Err(Overflow));
        assert_eq!(absolute(i16::MIN), Err(Overflow));
        assert_eq!(absolute(-3i16), Ok(3));
        let most = Decimal::<2>::from_units(i64::MAX);
        assert_eq!(add(most, Decimal::from_units(1)), Err(Overflow));
        assert_eq!(multiply(most, 2), Err(Overflow));
        assert_eq!(negate(most), Ok(Decimal::from_units(-i64::MAX)));
        assert_eq!(negate(Decimal::<2>::from_units(i64::MIN)), Err(Overflow));
    }

    #[test]
    fn floats_never_fail() {
        assert_eq!(divide(1.0, 0.0), Ok(f64::INFINITY));
        assert_eq!(multiply(f64::MAX, 2.0), Ok(f64::INFINITY));
        assert!(remainder(1.0, 0.0).is_ok_and(f64::is_nan));
        assert_eq!(negate(0.5), Ok(-0.5));
    }
}
