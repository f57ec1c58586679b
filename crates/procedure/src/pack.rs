//! Values of procedures as bytes: the arguments and results that fragments send between partitions.
//!
//! The bytes have no types: the reader knows the type, as both ends have the same set of procedures. Numbers
//! are little-endian and of their width, lengths and variants are variable-length integers. Other bytes are
//! refused, and nothing is allocated for a length that exceeds the bytes. The nesting of values is bounded, so
//! that bytes from anywhere exhaust no stack. The ratio of their size in memory to the bytes is bounded too.

use std::mem::size_of;

use seriatim_catalog::wire::{read_varint, write_varint};
use seriatim_catalog::{Bytes, Column, ColumnType, Decimal, Scalar, ScalarType, Text, Timestamp};

use crate::{EvaluationError, IntegerType, Value};

/// A value that can be written as bytes and read again. `#[derive(Data)]` implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of values in procedures",
    label = "not `Data`",
    note = "a struct or enum can `#[derive(Data)]`; \
            scalars of columns, Option, Vec, arrays and tuples of them are `Data`"
)]
pub trait Pack: Sized {
    /// Appends the value.
    fn pack(&self, out: &mut Vec<u8>);

    /// Takes a value off the front.
    ///
    /// # Errors
    /// If there is none.
    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Self, EvaluationError>;
}

/// Bytes from which values are taken, from the front.
#[derive(Debug)]
pub struct Unpacker<'b> {
    rest: &'b [u8],
    /// How much deeper the values to be read may nest.
    depth: usize,
    /// How many bytes of memory values may still take beyond [`ROOM_PER_BYTE`].
    room: usize,
}

/// How deep values may nest.
const DEPTH_MAX: usize = 64;

/// Bytes of memory that an element of a list, or the content of a box, may take for each of its bytes. It is
/// also the least that is counted for one without bytes. An empty text of capacity 1,000 takes a thousand
/// bytes in memory and one here. A list of such texts is a value as any other, so there is also [`ROOM`].
const ROOM_PER_BYTE: usize = 64;

/// Bytes of memory that all values may take beyond that. It suffices for 70,000 empty texts of capacity 1,000, or a
/// million values without bytes, which take a thread some milliseconds.
const ROOM: usize = ROOM_PER_BYTE << 20;

impl<'b> Unpacker<'b> {
    /// All of `bytes`.
    pub fn new(bytes: &'b [u8]) -> Unpacker<'b> {
        Unpacker { rest: bytes, depth: DEPTH_MAX, room: ROOM }
    }

    /// Takes this many bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn take(&mut self, count: usize) -> Result<&'b [u8], EvaluationError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes a length, or the number of a variant.
    ///
    /// # Errors
    /// If there is none.
    pub fn count(&mut self) -> Result<usize, EvaluationError> {
        read_varint(&mut self.rest).ok().and_then(|count| usize::try_from(count).ok()).ok_or_else(malformed)
    }

    /// Takes bytes that are prefixed by their length.
    ///
    /// # Errors
    /// If there are none.
    pub fn bytes(&mut self) -> Result<&'b [u8], EvaluationError> {
        let count = self.count()?;
        self.take(count)
    }

    /// Whether all have been taken.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the content of a value whose type may contain itself.
    fn nested<T>(
        &mut self,
        inside: impl FnOnce(&mut Unpacker<'b>) -> Result<T, EvaluationError>,
    ) -> Result<T, EvaluationError> {
        self.depth = self.depth.checked_sub(1).ok_or_else(|| refused("values that lie too deep in each other"))?;
        let value = inside(self);
        self.depth += 1;
        value
    }

    /// Takes a value that is allocated.
    fn allocated<T>(
        &mut self,
        take: impl FnOnce(&mut Unpacker<'b>) -> Result<T, EvaluationError>,
    ) -> Result<T, EvaluationError> {
        let before = self.rest.len();
        let value = take(self)?;
        let free = ROOM_PER_BYTE.saturating_mul(before - self.rest.len());
        let beyond = size_of::<T>().max(ROOM_PER_BYTE).saturating_sub(free);
        self.room = self.room.checked_sub(beyond).ok_or_else(|| refused("values that take too much memory"))?;
        Ok(value)
    }

    /// Takes a list: its length, then its elements by `element`.
    fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Unpacker<'b>) -> Result<T, EvaluationError>,
    ) -> Result<Vec<T>, EvaluationError> {
        let count = self.count()?;
        // No more capacity than there are bytes: a length may be anything.
        let mut list = Vec::with_capacity(count.min(self.rest.len() / size_of::<T>().max(1)));
        self.nested(|bytes| {
            for _ in 0..count {
                list.push(bytes.allocated(&mut element)?);
            }
            Ok(list)
        })
    }
}

/// The bytes of a value.
pub fn pack_all(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes);
    bytes
}

/// Decodes a value.
///
/// # Errors
/// If the bytes are no value of this type, or more than one.
pub fn unpack_all<T: Pack>(bytes: &[u8]) -> Result<T, EvaluationError> {
    let mut bytes = Unpacker::new(bytes);
    let value = T::unpack(&mut bytes)?;
    if bytes.is_empty() { Ok(value) } else { Err(malformed()) }
}

/// The error for bytes that hold no value of the requested type.
#[cold]
pub fn malformed() -> EvaluationError {
    refused("bytes that are not a value of the procedure's type")
}

#[cold]
fn refused(what: &str) -> EvaluationError {
    EvaluationError::Type(what.to_owned())
}

/// Appends a length, or the number of a variant.
pub fn pack_count(count: usize, out: &mut Vec<u8>) {
    write_varint(out, count as u64);
}

macro_rules! number {
    ($($type:ty),+) => {$(
        impl Pack for $type {
            #[inline]
            fn pack(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn unpack(bytes: &mut Unpacker<'_>) -> Result<$type, EvaluationError> {
                let taken = bytes.take(size_of::<$type>())?;
                taken.try_into().map(<$type>::from_le_bytes).map_err(|_| malformed())
            }
        }
    )+};
}

number!(i8, i16, i32, i64, u8, u16, u32, u64, usize, f64);

impl Pack for bool {
    fn pack(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<bool, EvaluationError> {
        match bytes.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(malformed()),
        }
    }
}

impl<const S: u32> Pack for Decimal<S> {
    fn pack(&self, out: &mut Vec<u8>) {
        self.units().pack(out);
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Decimal<S>, EvaluationError> {
        i64::unpack(bytes).map(Decimal::from_units)
    }
}

impl Pack for Timestamp {
    fn pack(&self, out: &mut Vec<u8>) {
        self.microseconds().pack(out);
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Timestamp, EvaluationError> {
        i64::unpack(bytes).map(Timestamp::from_microseconds)
    }
}

macro_rules! scalars {
    ($($type:ty)+) => {$(
        impl Pack for $type {
            fn pack(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.to_scalar().stored());
            }

            fn unpack(bytes: &mut Unpacker<'_>) -> Result<$type, EvaluationError> {
                let ty = <$type as Column>::TYPE;
                let scalar = Scalar::of_stored(ty, bytes.take(ty.row_bytes() as usize)?);
                scalar.and_then(|scalar| <$type>::of_scalar(&scalar)).ok_or_else(malformed)
            }
        }
    )+};
}

seriatim_catalog::for_scalars!(scalars);

/// The types of scalars, by the numbers that stand for them.
const SCALARS: &[ColumnType] = {
    macro_rules! types {
        ($($type:ty)+) => { &[$(<$type as Column>::TYPE),+] };
    }
    seriatim_catalog::for_scalars!(types)
};

/// Appends bytes prefixed by their length.
pub fn pack_bytes(value: &[u8], out: &mut Vec<u8>) {
    pack_count(value.len(), out);
    out.extend_from_slice(value);
}

fn unpack_str<'b>(bytes: &mut Unpacker<'b>) -> Result<&'b str, EvaluationError> {
    std::str::from_utf8(bytes.bytes()?).map_err(|_| malformed())
}

impl<const N: usize> Pack for Text<N> {
    fn pack(&self, out: &mut Vec<u8>) {
        pack_bytes(self.as_str().as_bytes(), out);
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Text<N>, EvaluationError> {
        Text::new(unpack_str(bytes)?).map_err(|error| EvaluationError::Type(error.to_string()))
    }
}

impl<const N: usize> Pack for Bytes<N> {
    fn pack(&self, out: &mut Vec<u8>) {
        pack_bytes(self, out);
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Bytes<N>, EvaluationError> {
        Bytes::new(bytes.bytes()?).map_err(|error| EvaluationError::Type(error.to_string()))
    }
}

macro_rules! text {
    ($($type:ty),+) => {$(
        impl Pack for $type {
            fn pack(&self, out: &mut Vec<u8>) {
                pack_bytes(self.as_bytes(), out);
            }

            fn unpack(bytes: &mut Unpacker<'_>) -> Result<$type, EvaluationError> {
                unpack_str(bytes).map(Into::into)
            }
        }
    )+};
}

text!(String, Box<str>);

impl Pack for Box<[u8]> {
    fn pack(&self, out: &mut Vec<u8>) {
        pack_bytes(self, out);
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Box<[u8]>, EvaluationError> {
        bytes.bytes().map(Into::into)
    }
}

impl<T: Pack> Pack for Box<T> {
    fn pack(&self, out: &mut Vec<u8>) {
        (**self).pack(out);
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Box<T>, EvaluationError> {
        bytes.nested(|bytes| bytes.allocated(T::unpack)).map(Box::new)
    }
}

impl<T: Pack> Pack for Option<T> {
    fn pack(&self, out: &mut Vec<u8>) {
        self.is_some().pack(out);
        if let Some(value) = self {
            value.pack(out);
        }
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Option<T>, EvaluationError> {
        bool::unpack(bytes)?.then(|| T::unpack(bytes)).transpose()
    }
}

impl<T: Pack> Pack for Vec<T> {
    fn pack(&self, out: &mut Vec<u8>) {
        pack_count(self.len(), out);
        self.iter().for_each(|value| value.pack(out));
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Vec<T>, EvaluationError> {
        bytes.list(T::unpack)
    }
}

impl<T: Pack, const N: usize> Pack for [T; N] {
    fn pack(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.pack(out));
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<[T; N], EvaluationError> {
        let list = (0..N).map(|_| T::unpack(bytes)).collect::<Result<Vec<T>, _>>()?;
        list.try_into().map_err(|_| malformed())
    }
}

macro_rules! tuple {
    ($(($($name:ident $at:tt)*))+) => {$(
        impl<$($name: Pack),*> Pack for ($($name,)*) {
            fn pack(&self, _out: &mut Vec<u8>) {
                $(self.$at.pack(_out);)*
            }

            fn unpack(_bytes: &mut Unpacker<'_>) -> Result<Self, EvaluationError> {
                Ok(($($name::unpack(_bytes)?,)*))
            }
        }
    )+};
}

tuple! {
    ()
    (A 0)
    (A 0 B 1)
    (A 0 B 1 C 2)
    (A 0 B 1 C 2 D 3)
    (A 0 B 1 C 2 D 3 E 4)
    (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11)
}

impl Pack for Value {
    fn pack(&self, out: &mut Vec<u8>) {
        match self {
            Value::Bool(value) => (0u8, *value).pack(out),
            Value::Integer(number, ty) => {
                let ty = ty.map(|ty| IntegerType::ALL.iter().position(|known| *known == ty).unwrap_or(0) as u8);
                (1u8, *number, ty).pack(out);
            }
            Value::Float(value) => (2u8, *value).pack(out),
            Value::Decimal { units, scale } => (3u8, *units, *scale).pack(out),
            Value::Timestamp(microseconds) => (4u8, *microseconds).pack(out),
            Value::Text(text) => {
                out.push(5);
                text.pack(out);
            }
            Value::Bytes(bytes) => {
                out.push(6);
                pack_bytes(bytes, out);
            }
            Value::Scalar(scalar) => {
                let at = SCALARS.iter().position(|ty| *ty == scalar.column_type()).unwrap_or(SCALARS.len());
                (11u8, at as u8).pack(out);
                out.extend_from_slice(scalar.stored());
            }
            Value::Option(value) => {
                out.push(7);
                value.pack(out);
            }
            Value::Tuple(values) => {
                out.push(8);
                values.pack(out);
            }
            Value::List(values) => {
                out.push(9);
                values.pack(out);
            }
            Value::Record { name, fields } => {
                out.push(10);
                pack_bytes(name.as_bytes(), out);
                pack_count(fields.len(), out);
                for (name, value) in fields {
                    pack_bytes(name.as_bytes(), out);
                    value.pack(out);
                }
            }
        }
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Value, EvaluationError> {
        Ok(match u8::unpack(bytes)? {
            0 => Value::Bool(bool::unpack(bytes)?),
            1 => {
                let (number, ty) = <(i128, Option<u8>)>::unpack(bytes)?;
                let ty =
                    ty.map(|at| IntegerType::ALL.get(usize::from(at)).copied().ok_or_else(malformed)).transpose()?;
                Value::Integer(number, ty)
            }
            2 => Value::Float(f64::unpack(bytes)?),
            3 => Value::Decimal { units: i64::unpack(bytes)?, scale: u8::unpack(bytes)? },
            4 => Value::Timestamp(i64::unpack(bytes)?),
            5 => Value::Text(String::unpack(bytes)?),
            6 => Value::Bytes(bytes.bytes()?.to_vec()),
            7 => Value::Option(Option::unpack(bytes)?),
            8 => Value::Tuple(Vec::unpack(bytes)?),
            9 => Value::List(Vec::unpack(bytes)?),
            10 => {
                let name = unpack_str(bytes)?.into();
                let field = |bytes: &mut Unpacker<'_>| Ok((unpack_str(bytes)?.into(), Value::unpack(bytes)?));
                Value::Record { name, fields: bytes.list(field)? }
            }
            11 => {
                let ty = *SCALARS.get(usize::from(u8::unpack(bytes)?)).ok_or_else(malformed)?;
                let stored = bytes.take(ty.row_bytes() as usize)?;
                Value::Scalar(Scalar::of_stored(ty, stored).ok_or_else(malformed)?)
            }
            _ => return Err(malformed()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::Data;

    /// The value comes back from its bytes, and from none of their proper prefixes.
    fn returns<T: Pack + PartialEq + Debug>(value: T) {
        let bytes = pack_all(&value);
        assert_eq!(unpack_all::<T>(&bytes), Ok(value));
        for cut in 0..bytes.len() {
            assert!(unpack_all::<T>(&bytes[..cut]).is_err(), "{cut} of {bytes:?}");
        }
        assert!(unpack_all::<T>(&[&bytes[..], &[0]].concat()).is_err(), "more than {bytes:?}");
    }

    #[test]
    fn values_survive_the_way_to_bytes_and_back_whole_only() {
        returns((i8::MIN, i16::MIN, i32::MIN, i64::MIN, u8::MAX, u16::MAX, u32::MAX, u64::MAX, usize::MAX));
        returns((true, -1.5f64, Decimal::<2>::from_units(-5), Timestamp::from_microseconds(7)));
        returns((Text::<4>::literal("aé"), Bytes::<3>::new(&[0, 255]).expect("it fits"), "text".to_owned()));
        returns((Some(1u8), None::<u8>, Some(None::<u8>), Box::<str>::from("kept"), Box::<[u8]>::from([1, 2])));
        returns((vec![[1u16, 2], [3, 4]], Box::new(1u8)));
        assert_eq!(unpack_all::<()>(&[]), Ok(()));
        assert_eq!(unpack_all::<Vec<()>>(&pack_all(&vec![(); 3])), Ok(vec![(); 3]));
    }

    #[test]
    fn data_do_too() {
        let list = Value::List(vec![Value::Integer(-1, None), 7u64.to_value(), Value::Bytes(vec![0, 255])]);
        let pair =
            Value::Tuple(vec![true.to_value(), Value::Float(0.5), Value::NONE, Some("text".to_owned()).to_value()]);
        let more = [("d", Decimal::<2>::ONE.to_value()), ("t", Value::Timestamp(5)), ("l", list), ("p", pair)];
        returns(Value::record("R", more));
    }

    #[test]
    fn bytes_that_are_no_value_are_refused_without_allocation() {
        assert!(unpack_all::<bool>(&[2]).is_err());
        assert!(unpack_all::<Text<2>>(&pack_all(&"abc".to_owned())).is_err(), "it does not fit");
        assert!(unpack_all::<String>(&[1, 0xff]).is_err(), "it is no text");
        assert!(unpack_all::<Vec<u8>>(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).is_err());
        assert!(unpack_all::<Vec<()>>(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).is_err());
        assert!(unpack_all::<Value>(&[11]).is_err());
        assert!(unpack_all::<Value>(&[1; 40]).is_err(), "no such integer");
        assert!(unpack_all::<Value>(&[&[7, 1].repeat(100)[..], &[0, 1]].concat()).is_err(), "too deep");
        assert!(unpack_all::<Vec<[u64; 16]>>(&[&[100][..], &[0; 99]].concat()).is_err(), "lists of nearly nothing");
    }

    #[test]
    fn values_much_larger_in_memory_than_their_bytes_are_taken_up_to_a_bound() {
        let empty = || Text::<1000>::literal("");
        let words = || Text::<1000>::literal("a text of sixteen");
        returns(vec![empty(); 100]);
        let list = |text: Text<1000>, count| {
            let mut bytes = Vec::new();
            pack_count(count, &mut bytes);
            bytes.extend(pack_all(&text).repeat(count));
            unpack_all::<Vec<Text<1000>>>(&bytes).map(|list| list.len())
        };
        assert_eq!((list(empty(), 60_000), list(words(), 80_000)), (Ok(60_000), Ok(80_000)));
        assert!(list(empty(), 80_000).is_err());
        let lists = |counts: &[usize]| {
            let bytes: Vec<Vec<u8>> = counts.iter().map(|count| pack_all(&vec![(); *count])).collect();
            unpack_all::<Vec<Vec<()>>>(&[&[counts.len() as u8][..], &bytes.concat()].concat())
        };
        assert!(lists(&[1 << 19, 1 << 19]).is_ok());
        assert!(lists(&[1 << 19, 1 << 19, 1]).is_err(), "together");
        let boxed = [&[0xc0, 0x84, 0x3d][..], &[0; 1_000_000]].concat();
        assert!(unpack_all::<Vec<Box<Text<1000>>>>(&boxed).is_err(), "a million boxes");
    }

    #[derive(PartialEq, Debug)]
    struct Chain(Option<Box<Chain>>, Vec<Chain>);

    impl Pack for Chain {
        fn pack(&self, out: &mut Vec<u8>) {
            self.0.pack(out);
            self.1.pack(out);
        }

        fn unpack(bytes: &mut Unpacker<'_>) -> Result<Chain, EvaluationError> {
            Ok(Chain(Pack::unpack(bytes)?, Pack::unpack(bytes)?))
        }
    }

    #[test]
    fn values_of_recursive_types_nest_up_to_the_limit_and_no_deeper() {
        let end = || Chain(None, Vec::new());
        // The list in the last of them is one deeper.
        let boxes = |count| (0..count).fold(end(), |rest, _| Chain(Some(Box::new(rest)), Vec::new()));
        let lists = |count| (0..count).fold(end(), |rest, _| Chain(None, vec![rest]));
        returns(boxes(DEPTH_MAX - 1));
        returns(lists(DEPTH_MAX - 1));
        returns(Chain(None, vec![boxes(DEPTH_MAX - 2), end(), lists(DEPTH_MAX - 2)]));
        assert!(unpack_all::<Chain>(&pack_all(&boxes(DEPTH_MAX))).is_err());
        assert!(unpack_all::<Chain>(&pack_all(&lists(DEPTH_MAX))).is_err());
        assert!(unpack_all::<Chain>(&vec![1; 1 << 20]).is_err(), "and no stack is exhausted");
        assert!(unpack_all::<Chain>(&[0, 1].repeat(1 << 19)).is_err());
    }
}
