//! Rust types of values in procedures: every type of a column, and what is built of them.

use std::sync::Arc;

use seriatim_catalog::{Bytes, Decimal, Text, Timestamp};

use crate::{Data, Datum, EvaluationError, IntegerType};

impl Data for Datum {
    fn to_datum(&self) -> Datum {
        self.clone()
    }

    fn from_datum(datum: &Datum) -> Result<Datum, EvaluationError> {
        Ok(datum.clone())
    }
}

macro_rules! integer {
    ($($type:ty => $integer:ident;)+) => {$(
        impl Data for $type {
            fn to_datum(&self) -> Datum {
                Datum::Integer(*self as i128, Some(IntegerType::$integer))
            }

            fn from_datum(datum: &Datum) -> Result<$type, EvaluationError> {
                match *datum {
                    Datum::Integer(number, None | Some(IntegerType::$integer)) => {
                        <$type>::try_from(number).map_err(|_| EvaluationError::Overflow)
                    }
                    _ => Err(EvaluationError::expected(IntegerType::$integer, datum)),
                }
            }
        }
    )+};
}

integer! {
    i8 => I8;
    i16 => I16;
    i32 => I32;
    i64 => I64;
    u8 => U8;
    u16 => U16;
    u32 => U32;
    u64 => U64;
    usize => Usize;
}

impl Data for bool {
    fn to_datum(&self) -> Datum {
        Datum::Bool(*self)
    }

    fn from_datum(datum: &Datum) -> Result<bool, EvaluationError> {
        match *datum {
            Datum::Bool(value) => Ok(value),
            _ => Err(EvaluationError::expected("bool", datum)),
        }
    }
}

impl Data for f64 {
    fn to_datum(&self) -> Datum {
        Datum::Float(*self)
    }

    fn from_datum(datum: &Datum) -> Result<f64, EvaluationError> {
        match *datum {
            Datum::Float(value) => Ok(value),
            _ => Err(EvaluationError::expected("f64", datum)),
        }
    }
}

impl<const S: u32> Data for Decimal<S> {
    fn to_datum(&self) -> Datum {
        Datum::Decimal { units: self.units(), scale: S as u8 }
    }

    fn from_datum(datum: &Datum) -> Result<Decimal<S>, EvaluationError> {
        match *datum {
            Datum::Decimal { units, scale } if u32::from(scale) == S => Ok(Decimal::from_units(units)),
            _ => Err(EvaluationError::expected(format_args!("Decimal<{S}>"), datum)),
        }
    }
}

impl Data for Timestamp {
    fn to_datum(&self) -> Datum {
        Datum::Timestamp(self.microseconds())
    }

    fn from_datum(datum: &Datum) -> Result<Timestamp, EvaluationError> {
        match *datum {
            Datum::Timestamp(microseconds) => Ok(Timestamp::from_microseconds(microseconds)),
            _ => Err(EvaluationError::expected("Timestamp", datum)),
        }
    }
}

impl Data for String {
    fn to_datum(&self) -> Datum {
        Datum::Text(self.clone())
    }

    fn from_datum(datum: &Datum) -> Result<String, EvaluationError> {
        match datum {
            Datum::Text(text) => Ok(text.clone()),
            _ => Err(EvaluationError::expected("text", datum)),
        }
    }
}

impl<const N: usize> Data for Text<N> {
    fn to_datum(&self) -> Datum {
        Datum::Text(self.as_str().to_owned())
    }

    fn from_datum(datum: &Datum) -> Result<Text<N>, EvaluationError> {
        match datum {
            Datum::Text(text) => Text::new(text).map_err(|error| EvaluationError::Type(error.to_string())),
            _ => Err(EvaluationError::expected("text", datum)),
        }
    }
}

impl<const N: usize> Data for Bytes<N> {
    fn to_datum(&self) -> Datum {
        Datum::Bytes(self.to_vec())
    }

    fn from_datum(datum: &Datum) -> Result<Bytes<N>, EvaluationError> {
        match datum {
            Datum::Bytes(bytes) => Bytes::new(bytes).map_err(|error| EvaluationError::Type(error.to_string())),
            _ => Err(EvaluationError::expected("bytes", datum)),
        }
    }
}

impl<T: Data> Data for Option<T> {
    fn to_datum(&self) -> Datum {
        Datum::Option(self.as_ref().map(|value| Box::new(value.to_datum())))
    }

    fn from_datum(datum: &Datum) -> Result<Option<T>, EvaluationError> {
        match datum {
            Datum::Option(value) => value.as_deref().map(T::from_datum).transpose(),
            _ => Err(EvaluationError::expected("an Option", datum)),
        }
    }
}

impl<T: Data> Data for Box<T> {
    fn to_datum(&self) -> Datum {
        (**self).to_datum()
    }

    fn part(&self, path: &[Arc<str>]) -> Option<Datum> {
        (**self).part(path)
    }

    fn from_datum(datum: &Datum) -> Result<Box<T>, EvaluationError> {
        T::from_datum(datum).map(Box::new)
    }
}

/// The elements of a list.
fn elements(datum: &Datum) -> Result<&[Datum], EvaluationError> {
    match datum {
        Datum::List(elements) => Ok(elements),
        _ => Err(EvaluationError::expected("a list", datum)),
    }
}

impl<T: Data> Data for Vec<T> {
    fn to_datum(&self) -> Datum {
        Datum::List(self.iter().map(T::to_datum).collect())
    }

    fn from_datum(datum: &Datum) -> Result<Vec<T>, EvaluationError> {
        elements(datum)?.iter().map(T::from_datum).collect()
    }
}

impl<T: Data, const N: usize> Data for [T; N] {
    fn to_datum(&self) -> Datum {
        Datum::List(self.iter().map(T::to_datum).collect())
    }

    fn from_datum(datum: &Datum) -> Result<[T; N], EvaluationError> {
        let array = <[T; N]>::try_from(Vec::from_datum(datum)?);
        array.map_err(|_| EvaluationError::expected(format_args!("a list of {N}"), datum))
    }
}

macro_rules! tuple {
    ($($count:literal: $($name:ident $at:tt)*;)+) => {$(
        impl<$($name: Data),*> Data for ($($name,)*) {
            fn to_datum(&self) -> Datum {
                Datum::Tuple(vec![$(self.$at.to_datum()),*])
            }

            fn part(&self, path: &[Arc<str>]) -> Option<Datum> {
                let Some((name, _rest)) = path.split_first() else { return Some(self.to_datum()) };
                match &**name {
                    $(stringify!($at) => self.$at.part(_rest),)*
                    _ => None,
                }
            }

            fn from_datum(datum: &Datum) -> Result<Self, EvaluationError> {
                match datum {
                    Datum::Tuple(_values) if _values.len() == $count => Ok(($($name::from_datum(&_values[$at])?,)*)),
                    _ => Err(EvaluationError::expected(concat!("a tuple of ", $count), datum)),
                }
            }
        }
    )+};
}

tuple! {
    0: ;
    1: A 0;
    2: A 0 B 1;
    3: A 0 B 1 C 2;
    4: A 0 B 1 C 2 D 3;
    5: A 0 B 1 C 2 D 3 E 4;
    6: A 0 B 1 C 2 D 3 E 4 F 5;
    7: A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    8: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
    9: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8;
    10: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9;
    11: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10;
    12: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11;
}

impl Datum {
    /// A record, its fields in order: what `#[derive(Data)]` makes of a struct or a variant of an enum.
    pub fn record(name: &str, fields: impl IntoIterator<Item = (&'static str, Datum)>) -> Datum {
        let fields = fields.into_iter().map(|(field, value)| (Arc::from(field), value)).collect();
        Datum::Record { name: name.into(), fields }
    }

    /// The field of this name of a record (positional fields: "0", "1", …) or the part of a tuple at this
    /// position.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] if there is none.
    pub fn field(&self, name: &str) -> Result<&Datum, EvaluationError> {
        let found = match self {
            Datum::Record { fields, .. } => fields.iter().find(|(field, _)| **field == *name).map(|(_, value)| value),
            Datum::Tuple(values) => name.parse::<usize>().ok().and_then(|at| values.get(at)),
            _ => None,
        };
        found.ok_or_else(|| EvaluationError::Type(format!("{} has no field `{name}`", self.kind())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn returns<T: Data + PartialEq + Debug>(value: T) {
        assert_eq!(T::from_datum(&value.to_datum()), Ok(value));
    }

    #[test]
    fn values_survive_the_way_to_a_datum_and_back() {
        returns(true);
        returns((i8::MIN, i16::MIN, i32::MIN, i64::MIN, u8::MAX, u16::MAX, u32::MAX, u64::MAX, usize::MAX));
        returns(-1.5f64);
        returns(Decimal::<2>::from_units(-5));
        returns(Timestamp::from_microseconds(7));
        returns(Text::<4>::literal("aé"));
        returns(Bytes::<3>::new(&[0, 255]).unwrap());
        returns("text".to_owned());
        returns((Some(1u8), None::<u8>, Some(None::<u8>)));
        returns(vec![[1u16, 2], [3, 4]]);
        returns(());
        returns((Box::new(1u8),));
        returns((1u8, 2u8, 3u8, 4u8, 5u8, 6u8, 7u8, 8u8, 9u8, 10u8, 11u8, 12u8));
    }

    #[test]
    fn a_part_is_that_of_the_datum() {
        let value = (Box::new((1u8, "text".to_owned())), vec![2u16]);
        let part = |path: &[&str]| value.part(&path.iter().map(|name| Arc::from(*name)).collect::<Vec<_>>());
        assert_eq!(part(&[]), Some(value.to_datum()));
        assert_eq!([part(&["0", "0"]), part(&["0", "1"])], [Some(1u8.to_datum()), Some(Datum::Text("text".into()))]);
        assert_eq!(part(&["1"]), Some(vec![2u16].to_datum()));
        assert_eq!([part(&["2"]), part(&["0", "2"]), part(&["1", "0"]), part(&["0", "0", "0"])], [const { None }; 4]);
    }

    #[test]
    fn integers_are_of_their_type_or_of_none() {
        assert_eq!(u8::from_datum(&Datum::Integer(255, None)), Ok(255));
        assert_eq!(u8::from_datum(&Datum::Integer(256, None)), Err(EvaluationError::Overflow));
        assert_eq!(u8::from_datum(&1u16.to_datum()).unwrap_err().to_string(), "expected u8, found a u16");
        assert_eq!(usize::from_datum(&1u64.to_datum()).unwrap_err().to_string(), "expected usize, found a u64");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let says = |error: EvaluationError| error.to_string();
        assert_eq!(
            says(Decimal::<2>::from_datum(&Decimal::<4>::ONE.to_datum()).unwrap_err()),
            "expected Decimal<2>, found a Decimal<4>"
        );
        assert_eq!(
            says(Text::<2>::from_datum(&Datum::Text("abc".into())).unwrap_err()),
            "the value has 3 bytes; the column has room for 2"
        );
        assert_eq!(
            says(<[u8; 2]>::from_datum(&vec![1u8].to_datum()).unwrap_err()),
            "expected a list of 2, found a list of 1"
        );
        assert_eq!(says(<(u8,)>::from_datum(&Datum::UNIT).unwrap_err()), "expected a tuple of 1, found ()");
        assert_eq!(says(Option::<u8>::from_datum(&1u8.to_datum()).unwrap_err()), "expected an Option, found a u8");
        assert_eq!(says(Datum::UNIT.field("0").unwrap_err()), "() has no field `0`");
    }

    #[test]
    fn data_show_as_in_source() {
        let shown = |datum: Datum| datum.to_string();
        assert_eq!(shown((1u8, -1i64).to_datum()), "(1u8, -1i64)");
        assert_eq!(shown((Some(1u8),).to_datum()), "(Some(1u8),)");
        assert_eq!(shown(Decimal::<2>::from_units(-5).to_datum()), "-0.05");
        assert_eq!(shown(Decimal::<0>::from_units(5).to_datum()), "5");
        assert_eq!(shown(Datum::Decimal { units: i64::MIN, scale: 255 }).len(), 258);
        assert_eq!(shown(Datum::List(vec![Datum::Text("a\"".into()), Datum::Bytes(vec![0])])), r#"["a\"", b"\x00"]"#);
        assert_eq!(shown(Datum::record("P", [("x", 1u8.to_datum()), ("y", Datum::NONE)])), "P { x: 1u8, y: None }");
        assert_eq!(shown(Datum::record("Unit", [])), "Unit");
    }
}
