//! Arithmetic of the interpreter against that of Rust, on random expressions.

use proptest::prelude::*;
use seriatim_catalog::Decimal;
use seriatim_procedure::evaluate::Frame;
use seriatim_procedure::ir::*;
use seriatim_procedure::{Data, EvaluationError, checked};

use crate::build::*;

/// An expression of one type of numbers.
#[derive(Clone, Debug)]
enum Number<T> {
    Constant(T),
    /// An operator between two numbers, or, flagged, a number and a literal without a type.
    Binary(BinaryOperator, Box<Number<T>>, Box<Number<T>>),
    WithLiteral(BinaryOperator, Box<Number<T>>, T),
    LiteralWith(BinaryOperator, T, Box<Number<T>>),
    Negate(Box<Number<T>>),
    /// `if a op b { c } else { d }`.
    If(BinaryOperator, [Box<Number<T>>; 4]),
    Min(Box<Number<T>>, Box<Number<T>>),
    Max(Box<Number<T>>, Box<Number<T>>),
}

/// What Rust does, by the methods of the standard library.
trait Native: Data + Copy + PartialOrd + std::fmt::Debug {
    fn binary(self, operator: BinaryOperator, other: Self) -> Option<Self>;
    /// The same by the functions that generated code calls.
    fn checked(self, operator: BinaryOperator, other: Self) -> Option<Self>;
    fn negate(self) -> Option<Self>;
    /// The value as a literal without a type.
    fn bare(self) -> Expression;
    fn least(self, other: Self) -> Self;
    fn most(self, other: Self) -> Self;
}

macro_rules! native {
    ($negate:expr; $($type:ty)+) => {$(
        impl Native for $type {
            fn binary(self, operator: BinaryOperator, other: $type) -> Option<$type> {
                match operator {
                    BinaryOperator::Add => self.checked_add(other),
                    BinaryOperator::Subtract => self.checked_sub(other),
                    BinaryOperator::Multiply => self.checked_mul(other),
                    BinaryOperator::Divide => self.checked_div(other),
                    _ => self.checked_rem(other),
                }
            }

            fn checked(self, operator: BinaryOperator, other: $type) -> Option<$type> {
                match operator {
                    BinaryOperator::Add => checked::add(self, other),
                    BinaryOperator::Subtract => checked::subtract(self, other),
                    BinaryOperator::Multiply => checked::multiply(self, other),
                    BinaryOperator::Divide => checked::divide(self, other),
                    _ => checked::remainder(self, other),
                }.ok()
            }

            fn negate(self) -> Option<$type> {
                $negate(self as i128).and_then(|number: i128| number.try_into().ok())
            }

            fn bare(self) -> Expression {
                int(self as i128)
            }

            fn least(self, other: $type) -> $type {
                self.min(other)
            }

            fn most(self, other: $type) -> $type {
                self.max(other)
            }
        }
    )+};
}

native!(|number: i128| Some(-number); i8 i16 i32 i64);
native!(|_: i128| None; u8 u16 u32 u64 usize);

impl<T: Native> Number<T> {
    fn value(&self) -> Option<T> {
        let operate = |operator, a: T, b: T| {
            let value = a.binary(operator, b);
            assert_eq!(a.checked(operator, b), value, "{a:?} {operator} {b:?}");
            value
        };
        match self {
            Number::Constant(value) => Some(*value),
            Number::Binary(operator, a, b) => operate(*operator, a.value()?, b.value()?),
            Number::WithLiteral(operator, a, b) => operate(*operator, a.value()?, *b),
            Number::LiteralWith(operator, a, b) => operate(*operator, *a, b.value()?),
            Number::Negate(value) => value.value()?.negate(),
            Number::If(operator, [a, b, c, d]) => {
                let (a, b) = (a.value()?, b.value()?);
                let holds = match operator {
                    BinaryOperator::Equal => a == b,
                    BinaryOperator::NotEqual => a != b,
                    BinaryOperator::Less => a < b,
                    BinaryOperator::LessOrEqual => a <= b,
                    BinaryOperator::Greater => a > b,
                    _ => a >= b,
                };
                if holds { c.value() } else { d.value() }
            }
            Number::Min(a, b) => Some(a.value()?.least(b.value()?)),
            Number::Max(a, b) => Some(a.value()?.most(b.value()?)),
        }
    }

    fn expression(&self) -> Expression {
        match self {
            Number::Constant(value) => literal(*value),
            Number::Binary(operator, a, b) => binary(a.expression(), *operator, b.expression()),
            Number::WithLiteral(operator, a, b) => binary(a.expression(), *operator, b.bare()),
            Number::LiteralWith(operator, a, b) => binary(a.bare(), *operator, b.expression()),
            Number::Negate(value) => of(ExpressionKind::Unary(UnaryOperator::Negate, value.expression())),
            Number::If(operator, [a, b, c, d]) => of(ExpressionKind::If(
                binary(a.expression(), *operator, b.expression()),
                c.expression(),
                d.expression(),
            )),
            Number::Min(a, b) => method("min", vec![a.expression(), b.expression()]),
            Number::Max(a, b) => method("max", vec![a.expression(), b.expression()]),
        }
    }
}

fn arithmetic() -> impl Strategy<Value = BinaryOperator> {
    use BinaryOperator::*;
    prop::sample::select(vec![Add, Subtract, Multiply, Divide, Remainder])
}

fn comparison() -> impl Strategy<Value = BinaryOperator> {
    use BinaryOperator::*;
    prop::sample::select(vec![Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual])
}

fn number<T: Native + 'static>(
    constant: impl Strategy<Value = T> + Clone + 'static,
    signed: bool,
) -> impl Strategy<Value = Number<T>> {
    let leaf = constant.clone().prop_map(Number::Constant);
    leaf.prop_recursive(6, 40, 4, move |inner| {
        let boxed = inner.prop_map(Box::new).boxed();
        let (a, b, literal) = (boxed.clone(), boxed.clone(), constant.clone());
        let negate = boxed.clone().prop_map(Number::Negate);
        let four = [boxed.clone(), boxed.clone(), boxed.clone(), boxed.clone()];
        prop_oneof![
            6 => (arithmetic(), a.clone(), b.clone()).prop_map(|(operator, a, b)| Number::Binary(operator, a, b)),
            2 => (arithmetic(), a.clone(), literal.clone()).prop_map(|(operator, a, b)| Number::WithLiteral(operator, a, b)),
            2 => (arithmetic(), literal, b.clone()).prop_map(|(operator, a, b)| Number::LiteralWith(operator, a, b)),
            u32::from(signed) => negate,
            1 => (comparison(), four).prop_map(|(operator, parts)| Number::If(operator, parts)),
            1 => (a.clone(), b.clone()).prop_map(|(a, b)| Number::Min(a, b)),
            1 => (a, b).prop_map(|(a, b)| Number::Max(a, b)),
        ]
    })
}

fn agrees<T: Native>(number: &Number<T>) -> Result<(), TestCaseError> {
    let value = Frame::new(0).evaluate(&number.expression());
    prop_assert_eq!(value, number.value().map(|value| value.to_datum()).ok_or(EvaluationError::Overflow));
    Ok(())
}

macro_rules! integers_agree {
    ($($name:ident: $type:ident, $signed:literal;)+) => {
        proptest! {$(
            #[test]
            fn $name(number in number(
                prop_oneof![
                    4 => (0..6u8).prop_map(|small| small as $type),
                    2 => any::<$type>(),
                    1 => prop::sample::select(vec![$type::MIN, $type::MAX, $type::MIN + 1, $type::MAX - 1, <$type>::MIN / 2]),
                    1 => Just(($type::MIN as i128).max(-1) as $type),
                ],
                $signed,
            )) {
                agrees(&number)?;
            }
        )+}
    };
}

integers_agree! {
    i8_computes_as_in_rust: i8, true;
    i16_computes_as_in_rust: i16, true;
    i32_computes_as_in_rust: i32, true;
    i64_computes_as_in_rust: i64, true;
    u8_computes_as_in_rust: u8, false;
    u16_computes_as_in_rust: u16, false;
    u32_computes_as_in_rust: u32, false;
    u64_computes_as_in_rust: u64, false;
    usize_computes_as_in_rust: usize, false;
}

fn units() -> impl Strategy<Value = i64> {
    prop_oneof![4 => -300..300i64, 1 => any::<i64>(), 1 => prop::sample::select(vec![i64::MIN, i64::MAX])]
}

proptest! {
    #[test]
    fn decimals_compute_as_in_rust(a in units(), b in units(), factor in units(), is_typed: bool) {
        let (x, y) = (Decimal::<2>::from_units(a), Decimal::<2>::from_units(b));
        let value = |expression: Expression| Frame::new(0).evaluate(&expression);
        let of_native = |native: Option<Decimal<2>>| native.map(|d| d.to_datum()).ok_or(EvaluationError::Overflow);
        let both = |operator| value(binary(literal(x), operator, literal(y)));
        prop_assert_eq!(both(BinaryOperator::Add), of_native(x.checked_add(y)));
        prop_assert_eq!(both(BinaryOperator::Subtract), of_native(x.checked_sub(y)));
        prop_assert_eq!(both(BinaryOperator::Less), Ok((x < y).to_datum()));
        prop_assert_eq!(both(BinaryOperator::GreaterOrEqual), Ok((x >= y).to_datum()));
        prop_assert_eq!(both(BinaryOperator::Equal), Ok((x == y).to_datum()));
        let by = if is_typed { literal(factor) } else { int(factor.into()) };
        prop_assert_eq!(value(binary(literal(x), BinaryOperator::Multiply, by)), of_native(x.checked_mul(factor)));
        let negated = of(ExpressionKind::Unary(UnaryOperator::Negate, literal(x)));
        prop_assert_eq!(value(negated), of_native(a.checked_neg().map(Decimal::from_units)));
        prop_assert_eq!(checked::add(x, y).ok(), x.checked_add(y));
        prop_assert_eq!(checked::subtract(x, y).ok(), x.checked_sub(y));
        prop_assert_eq!(checked::multiply(x, factor).ok(), x.checked_mul(factor));
        prop_assert!(both(BinaryOperator::Multiply).is_err() && both(BinaryOperator::Divide).is_err());
    }

    #[test]
    fn floats_compute_as_in_rust(a in any::<f64>(), b in any::<f64>()) {
        for (operator, native) in [
            (BinaryOperator::Add, a + b),
            (BinaryOperator::Subtract, a - b),
            (BinaryOperator::Multiply, a * b),
            (BinaryOperator::Divide, a / b),
            (BinaryOperator::Remainder, a % b),
        ] {
            let value = Frame::new(0).evaluate(&binary(literal(a), operator, literal(b))).and_then(|d| f64::from_datum(&d));
            prop_assert!(value.as_ref().is_ok_and(|value| *value == native || value.is_nan() && native.is_nan()));
        }
    }
}
