//! Arithmetic of the interpreter against that of Rust, on random expressions.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use seriatim_catalog::Decimal;
use seriatim_procedure::evaluate::Frame;
use seriatim_procedure::ir::*;
use seriatim_procedure::{Data, EvaluationError, checked};

use crate::build::*;

/// A number of whichever type: the strategy is compiled once for all of them.
#[derive(Clone, Copy, Debug)]
enum Constant {
    Small(u8),
    /// The low bits of this.
    Any(u64),
    Least(u8),
    Most(u8),
    /// -1, or the least.
    MinusOne,
}

/// An expression of one type of numbers.
#[derive(Clone, Debug)]
enum Number {
    Constant(Constant),
    /// An operator between two numbers, or, flagged, a number and a literal without a type.
    Binary(BinaryOperator, Box<Number>, Box<Number>),
    WithLiteral(BinaryOperator, Box<Number>, Constant),
    LiteralWith(BinaryOperator, Constant, Box<Number>),
    Negate(Box<Number>),
    /// `if a op b { c } else { d }`.
    If(BinaryOperator, [Box<Number>; 4]),
    Min(Box<Number>, Box<Number>),
    Max(Box<Number>, Box<Number>),
}

/// What Rust does, by the methods of the standard library.
trait Native: Data + Copy + PartialOrd + std::fmt::Debug {
    fn of(constant: Constant) -> Self;
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
            fn of(constant: Constant) -> $type {
                match constant {
                    Constant::Small(small) => small as $type,
                    Constant::Any(bits) => bits as $type,
                    Constant::Least(above) => <$type>::MIN + above as $type,
                    Constant::Most(below) => <$type>::MAX - below as $type,
                    Constant::MinusOne => (<$type>::MIN as i128).max(-1) as $type,
                }
            }

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

impl Number {
    fn value<T: Native>(&self) -> Option<T> {
        let operate = |operator, a: T, b: T| {
            let value = a.binary(operator, b);
            assert_eq!(a.checked(operator, b), value, "{a:?} {operator} {b:?}");
            value
        };
        match self {
            Number::Constant(constant) => Some(T::of(*constant)),
            Number::Binary(operator, a, b) => operate(*operator, a.value()?, b.value()?),
            Number::WithLiteral(operator, a, b) => operate(*operator, a.value()?, T::of(*b)),
            Number::LiteralWith(operator, a, b) => operate(*operator, T::of(*a), b.value()?),
            Number::Negate(value) => value.value::<T>()?.negate(),
            Number::If(operator, [a, b, c, d]) => {
                let (a, b): (T, T) = (a.value()?, b.value()?);
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
            Number::Min(a, b) => Some(a.value::<T>()?.least(b.value()?)),
            Number::Max(a, b) => Some(a.value::<T>()?.most(b.value()?)),
        }
    }

    fn expression<T: Native>(&self) -> Expression {
        match self {
            Number::Constant(constant) => literal(T::of(*constant)),
            Number::Binary(operator, a, b) => binary(a.expression::<T>(), *operator, b.expression::<T>()),
            Number::WithLiteral(operator, a, b) => binary(a.expression::<T>(), *operator, T::of(*b).bare()),
            Number::LiteralWith(operator, a, b) => binary(T::of(*a).bare(), *operator, b.expression::<T>()),
            Number::Negate(value) => of(ExpressionKind::Unary(UnaryOperator::Negate, value.expression::<T>())),
            Number::If(operator, [a, b, c, d]) => of(ExpressionKind::If(
                binary(a.expression::<T>(), *operator, b.expression::<T>()),
                c.expression::<T>(),
                d.expression::<T>(),
            )),
            Number::Min(a, b) => method("min", vec![a.expression::<T>(), b.expression::<T>()]),
            Number::Max(a, b) => method("max", vec![a.expression::<T>(), b.expression::<T>()]),
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

fn constant() -> impl Strategy<Value = Constant> + Clone {
    prop_oneof![
        4 => (0..6u8).prop_map(Constant::Small),
        2 => any::<u64>().prop_map(Constant::Any),
        1 => (0..2u8).prop_map(Constant::Least),
        1 => (0..2u8).prop_map(Constant::Most),
        1 => Just(Constant::MinusOne),
    ]
}

fn number(signed: bool) -> impl Strategy<Value = Number> {
    let leaf = constant().prop_map(Number::Constant);
    leaf.prop_recursive(6, 40, 4, move |inner| {
        let a = inner.prop_map(Box::new).boxed();
        let (b, literal) = (a.clone(), constant().boxed());
        let four = [a.clone(), a.clone(), a.clone(), a.clone()];
        prop_oneof![
            6 => (arithmetic(), a.clone(), b.clone()).prop_map(|(operator, a, b)| Number::Binary(operator, a, b)),
            2 => (arithmetic(), a.clone(), literal.clone())
                .prop_map(|(operator, a, b)| Number::WithLiteral(operator, a, b)),
            2 => (arithmetic(), literal, b.clone()).prop_map(|(operator, a, b)| Number::LiteralWith(operator, a, b)),
            u32::from(signed) => a.clone().prop_map(Number::Negate),
            1 => (comparison(), four).prop_map(|(operator, parts)| Number::If(operator, parts)),
            1 => (a.clone(), b.clone()).prop_map(|(a, b)| Number::Min(a, b)),
            1 => (a, b).prop_map(|(a, b)| Number::Max(a, b)),
        ]
    })
}

fn agree<T: Native>(signed: bool) {
    let agrees = |number: Number| {
        let value = Frame::new(0).evaluate(&number.expression::<T>());
        prop_assert_eq!(value, number.value::<T>().map(|value| value.to_value()).ok_or(EvaluationError::Overflow));
        Ok(())
    };
    run(&number(signed), &agrees);
}

/// Compiled once.
fn run(numbers: &impl Strategy<Value = Number>, agrees: &dyn Fn(Number) -> Result<(), TestCaseError>) {
    let result = TestRunner::new(crate::config()).run(numbers, agrees);
    result.unwrap_or_else(|error| panic!("{error}"));
}

macro_rules! integers_agree {
    ($($name:ident: $type:ident, $signed:literal;)+) => {$(
        #[test]
        fn $name() {
            agree::<$type>($signed);
        }
    )+};
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
    #![proptest_config(crate::config())]

    #[test]
    fn decimals_compute_as_in_rust(a in units(), b in units(), factor in units(), is_typed: bool) {
        let (x, y) = (Decimal::<2>::from_units(a), Decimal::<2>::from_units(b));
        let value = |expression: Expression| Frame::new(0).evaluate(&expression);
        let of_native = |native: Option<Decimal<2>>| native.map(|d| d.to_value()).ok_or(EvaluationError::Overflow);
        let both = |operator| value(binary(literal(x), operator, literal(y)));
        prop_assert_eq!(both(BinaryOperator::Add), of_native(x.checked_add(y)));
        prop_assert_eq!(both(BinaryOperator::Subtract), of_native(x.checked_sub(y)));
        prop_assert_eq!(both(BinaryOperator::Less), Ok((x < y).to_value()));
        prop_assert_eq!(both(BinaryOperator::GreaterOrEqual), Ok((x >= y).to_value()));
        prop_assert_eq!(both(BinaryOperator::Equal), Ok((x == y).to_value()));
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
            let value = Frame::new(0).evaluate(&binary(literal(a), operator, literal(b)))
                .and_then(|d| f64::from_value(&d));
            prop_assert!(value.as_ref().is_ok_and(|value| *value == native || value.is_nan() && native.is_nan()));
        }
    }
}
