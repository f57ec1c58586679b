//! Keys: their order is the order of their columns, typed keys and codecs agree byte for byte, ranges take in
//! what they should.

mod shared;

use std::cmp::{Ordering, Reverse};
use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use seriatim_catalog::{
    Bytes, Column, ColumnDef, Date, DateTime, Decimal, Interval, Key, KeyBuf, KeyClass, KeyCodec, KeyColumn, KeyFormat,
    KeyRange, Layout, Numeric, TableBuilder, TableDef, TableKey, Text, Time, Timestamp, Uuid, Value, asc, desc,
};
use shared::{Block, are_equal, check, column_type, compare, value};

/// A table with a key column that every index lacks, and an index on all the others.
/// A table with a unique index on these columns, in which NULL equals NULL: its keys are the columns alone.
fn table(columns: &[(ColumnDef, bool)]) -> TableDef {
    declared(columns, |index| index.nulls_not_distinct())
}

fn declared(columns: &[(ColumnDef, bool)], index: impl FnOnce(TableBuilder) -> TableBuilder) -> TableDef {
    let name = |at: usize| format!("c{at}");
    let mut table = TableDef::builder("t");
    for (at, (column, _)) in columns.iter().enumerate() {
        table = table.column(ColumnDef { name: name(at).into(), ..column.clone() });
    }
    let parts = columns.iter().enumerate().map(|(at, (_, is_descending))| match is_descending {
        true => desc(name(at)),
        false => asc(name(at)),
    });
    let table = table.column(ColumnDef::new("id", seriatim_catalog::ColumnType::U8)).key(["id"]);
    let unique = table.unique_index("i", parts, seriatim_catalog::Organization::Ordered);
    index(unique).finish().expect("a sound declaration")
}

/// Columns of a key, each with whether it is descending, and two values of each, often equal from the first column on.
fn two_keys() -> impl Strategy<Value = (Vec<(ColumnDef, bool)>, Vec<Value>, Vec<Value>)> {
    let column =
        (column_type(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(ty, nullable, immutable, down)| {
            (ColumnDef { nullable, immutable, ..ColumnDef::new("c", ty) }, down)
        });
    vec(column, 1..=6).prop_flat_map(|columns| {
        let values = columns.iter().map(|(column, _)| value(column)).collect::<Vec<_>>();
        (values.clone(), values, 0..=columns.len(), Just(columns)).prop_map(|(first, mut second, equal, columns)| {
            second[..equal].clone_from_slice(&first[..equal]);
            (columns, first, second)
        })
    })
}

fn order(columns: &[(ColumnDef, bool)], first: &[Value], second: &[Value]) -> Ordering {
    let each = columns.iter().zip(first.iter().zip(second));
    each.map(|((_, down), (a, b))| if *down { compare(a, b).reverse() } else { compare(a, b) })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Columns whose key bytes, written one after another without escapes, ends or flipped signs, are out of
/// order must occur.
#[test]
#[should_panic(expected = "out of order")]
fn canary_naive_keys_are_caught() {
    check(3000, &two_keys(), |(columns, first, second)| {
        let naive = |values: &[Value]| {
            let bytes = values.iter().flat_map(|value| match value {
                Value::Text(text) => text.as_bytes().to_vec(),
                Value::Integer(number, _) => number.to_be_bytes().to_vec(),
                _ => vec![],
            });
            bytes.collect::<Vec<u8>>()
        };
        let is_naive = |value: &Value| matches!(value, Value::Text(_) | Value::Integer(..));
        if columns.iter().any(|(_, down)| *down) || !first.iter().chain(&second).all(is_naive) {
            return Ok(());
        }
        prop_assert_eq!(naive(&first).cmp(&naive(&second)), order(&columns, &first, &second), "out of order");
        Ok(())
    });
}

#[test]
fn keys_are_ordered_as_their_columns_are() {
    check(3000, &two_keys(), |(columns, first, second)| {
        let table = table(&columns);
        let codec = KeyCodec::for_index(&table.indexes[0], &table);
        let key = |values: &[Value]| codec.encode_values(values).expect("values of the columns' types");
        let wanted = order(&columns, &first, &second);
        prop_assert_eq!(key(&first).cmp(&key(&second)), wanted);
        // As byte strings too, which is how histories and messages hold them.
        prop_assert_eq!(key(&first).as_key().to_bytes().cmp(&key(&second).as_key().to_bytes()), wanted);
        if let (Key::Bytes(a), Key::Bytes(b)) = (key(&first).as_key(), key(&second).as_key()) {
            prop_assert!(wanted.is_eq() || !b.starts_with(a), "a key is never the beginning of another");
        }
        Ok(())
    });
}

/// In a primary key and in an index, as `f64`, nullable and descending.
#[test]
fn floats_are_ordered_by_value_with_one_zero_and_one_nan() {
    let nans = [f64::NAN, -f64::NAN, f64::from_bits(0x7FF0_0000_0000_0001), f64::from_bits(u64::MAX)];
    let ascending = [
        &[f64::NEG_INFINITY][..],
        &[f64::MIN],
        &[-f64::MIN_POSITIVE],
        &[-f64::from_bits(1)],
        &[-0.0, 0.0],
        &[f64::from_bits(1)],
        &[f64::MAX],
        &[f64::INFINITY],
        &nans,
    ];
    let keys: Vec<Vec<KeyBuf>> =
        ascending.iter().map(|equal| equal.iter().map(TableKey::to_buf).collect::<Vec<_>>()).collect();
    for (at, equal) in keys.iter().enumerate() {
        assert!(equal.iter().all(|key| *key == equal[0]), "{:?}", ascending[at]);
        assert!(keys[..at].iter().flatten().all(|lower| lower < &equal[0]), "{:?}", ascending[at]);
    }
    let down = |float: f64| Reverse(Some(float)).to_buf();
    assert!(down(-0.0) == down(0.0) && down(nans[0]) == down(nans[3]) && down(nans[1]) < down(f64::INFINITY));
}

#[test]
fn keys_of_rows_and_of_values_agree_and_decode() {
    check(1000, &two_keys(), |(columns, values, _)| {
        let table = table(&columns);
        let codec = KeyCodec::for_index(&table.indexes[0], &table);
        let key = codec.encode_values(&values).expect("values of the columns' types");
        let mut block = Block::new(&Layout::new(&table.columns));
        let row: Vec<Value> = values.iter().cloned().chain([3u16.into()]).collect();
        block.insert_values(&table.columns, &row);
        prop_assert!(block.encode(&codec, |from_row| from_row == key.as_key()));
        prop_assert!(are_equal(&codec.decode(key.as_key()).unwrap_or_default(), &values));
        prop_assert!(codec.describe(key.as_key()).starts_with("c0 "));
        Ok(())
    });
}

#[test]
fn rows_agree_in_a_unique_index_unless_one_of_its_columns_is_null() {
    check(1000, &two_keys(), |(columns, values, _)| {
        let table = declared(&columns, |index| index);
        let codec = KeyCodec::for_index(&table.indexes[0], &table);
        let key = |id: u16| {
            let mut block = Block::new(&Layout::new(&table.columns));
            let row: Vec<Value> = values.iter().cloned().chain([id.into()]).collect();
            block.insert_values(&table.columns, &row);
            block.encode(&codec, |key| key.to_buf())
        };
        prop_assert_eq!(key(3) != key(4), values.contains(&Value::NONE));
        Ok(())
    });
}

#[test]
fn a_prefix_takes_in_the_keys_that_begin_with_it_and_no_others() {
    check(1000, &(two_keys(), any::<prop::sample::Index>()), |((columns, first, second), length)| {
        let table = table(&columns);
        let codec = KeyCodec::for_index(&table.indexes[0], &table);
        let length = length.index(first.len() + 1);
        let range = codec.range_of_values(&first[..length]).expect("values of the columns' types");
        let key = codec.encode_values(&second).expect("values of the columns' types");
        prop_assert_eq!(range.contains(key.as_key()), are_equal(&first[..length], &second[..length]));
        Ok(())
    });
}

/// A typed key and a codec of the same columns agree, alone, optional, descending, and after another column.
fn agrees<C>(values: impl Strategy<Value = C>)
where
    C: Column + KeyColumn + Clone + Into<Value> + std::fmt::Debug,
{
    let def = || ColumnDef::new("c", C::TYPE);
    let codec = |column: ColumnDef, down: bool| {
        let columns = [(ColumnDef::new("c", seriatim_catalog::ColumnType::I16), true), (column, down)];
        let table = table(&columns);
        KeyCodec::for_index(&table.indexes[0], &table)
    };
    let (plain, optional) = (codec(def(), false), codec(def().nullable(), false));
    let (down, optional_down) = (codec(def(), true), codec(def().nullable(), true));
    check(60, &(any::<i16>(), values, any::<bool>()), |(first, value, is_null)| {
        let given = [Value::from(first), value.clone().into()];
        let first = Reverse(first);
        let key = |codec: &KeyCodec, given: &[Value]| codec.encode_values(given).expect("of the columns' types");
        prop_assert_eq!((first, value.clone()).to_buf(), key(&plain, &given));
        prop_assert_eq!((first, Reverse(value.clone())).to_buf(), key(&down, &given));
        let option = (!is_null).then_some(value.clone());
        let given = [given[0].clone(), option.clone().into()];
        prop_assert_eq!((first, option.clone()).to_buf(), key(&optional, &given));
        prop_assert_eq!((first, Reverse(option.clone())).to_buf(), key(&optional_down, &given));
        // A prefix given as words and one given as bytes make the same range.
        let (typed, dynamic) = (plain.range_of_prefix(&first), plain.range_of_values(&given[..1]));
        prop_assert_eq!(Ok(typed), dynamic);
        prop_assert_eq!(<(Reverse<i16>, C)>::FORMAT, plain.format());
        Ok(())
    });
}

#[test]
fn typed_keys_and_codecs_agree() {
    agrees::<bool>(any::<bool>());
    agrees::<i8>(any::<i8>());
    agrees::<i16>(any::<i16>());
    agrees::<i32>(any::<i32>());
    agrees::<i64>(any::<i64>());
    agrees::<u8>(any::<u8>());
    agrees::<u16>(any::<u16>());
    agrees::<u32>(any::<u32>());
    agrees::<u64>(any::<u64>());
    agrees::<f64>(any::<f64>());
    agrees::<Decimal<3>>(any::<i64>().prop_map(Decimal::from_units));
    agrees::<Timestamp>(any::<i64>().prop_map(Timestamp::from_microseconds));
    agrees::<Text<9>>(any::<String>().prop_map(|text| Text::truncated(&text)));
    agrees::<Bytes<3>>(vec(0..3u8, 0..=3).prop_map(|bytes| Bytes::new(&bytes).expect("at most three")));
    agrees::<String>(any::<String>());
    agrees::<Vec<u8>>(vec(0..3u8, 0..=70));
    agrees::<[u8; 3]>(any::<[u8; 3]>());
    agrees::<[u8; 16]>(any::<[u8; 16]>());
    agrees::<[u8; 30]>(any::<[u8; 30]>());
    agrees::<i128>(any::<i128>());
    agrees::<u128>(any::<u128>());
    agrees::<f32>(any::<f32>());
    agrees::<Numeric>(shared::numeric());
    agrees::<char>(any::<char>());
    agrees::<Uuid>(any::<u128>().prop_map(Uuid::from_u128));
    agrees::<Date>(any::<u16>().prop_map(|days| Date::from_days(days.into()).expect("of the range")));
    agrees::<Time>(any::<u32>().prop_map(|n| Time::from_microseconds(n.into()).expect("of a day")));
    agrees::<DateTime>(any::<i32>().prop_map(|n| DateTime::from_microseconds(n.into()).expect("of the range")));
    agrees::<Interval>(shared::interval());
}

/// A key of one column of 16 bytes, and of 17 with its NULL.
#[test]
fn sixteen_bytes_are_two_words() {
    assert_eq!(Uuid::FORMAT, KeyFormat { class: KeyClass::Word16, bytes: 16 });
    assert_eq!(<(Uuid,)>::FORMAT.class, KeyClass::Word16);
    assert_eq!(<Option<Uuid>>::FORMAT.class, KeyClass::Bytes);
    assert_eq!(Numeric::FORMAT.class, KeyClass::Bytes);
    let key = |number: u128| (Uuid::from_u128(number),).to_buf();
    assert_eq!(key(u128::MAX), Key::Word16(u128::MAX).to_buf());
    assert_eq!((Reverse(Uuid::from_u128(5)),).to_buf(), Key::Word16(!5).to_buf());
}

/// What a value is written as is read as the same value.
#[test]
fn values_come_back_from_their_texts() {
    check(3000, &column_type().prop_flat_map(|ty| (Just(ty), value(&ColumnDef::new("c", ty)))), |(ty, value)| {
        let text = value.to_text().expect("not NULL");
        let again = ty.parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let is_nan = matches!(&value, Value::Float(number) if number.is_nan()) || text == "NaN";
        prop_assert!(is_nan || shared::is_same(&again, &value), "{} became {}", text, again);
        Ok(())
    });
}

/// No text makes a value that its column does not take.
#[test]
fn any_text_is_a_value_of_its_type_or_an_error() {
    let text = prop_oneof![any::<String>(), "[-+0-9a-fTPDHMSx:. ]{0,40}"];
    check(3000, &(column_type(), text), |(ty, text)| {
        match ty.parse(&text) {
            Err(error) => {
                let is_said = error.to_string().contains(&format!("is no {ty}: "));
                prop_assert!(is_said, "{}", error);
            }
            Ok(value) => {
                let column = ColumnDef::new("c", ty);
                let mut block = Block::new(&Layout::new(std::slice::from_ref(&column)));
                prop_assert_eq!(block.set_value(&column, 0, &value), Ok(()));
            }
        }
        Ok(())
    });
}

/// Tuples of every length agree with their columns written one after another.
#[test]
fn tuples_are_their_columns_in_order() {
    check(200, &any::<(u8, u16, u32, u64, i8, i16, i32, i64)>(), |all| {
        let (a, b, c, d, e, f, g, h) = all;
        let bytes = |key: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            key(&mut bytes);
            bytes
        };
        let long = bytes(&|out| {
            out.extend(a.to_be_bytes());
            out.extend(b.to_be_bytes());
            out.extend(c.to_be_bytes());
            out.extend(d.to_be_bytes());
            out.extend((e as u8 ^ 0x80).to_be_bytes());
            out.extend((f as u16 ^ 0x8000).to_be_bytes());
            out.extend((g as u32 ^ 0x8000_0000).to_be_bytes());
            out.extend((h as u64 ^ 1 << 63).to_be_bytes());
        });
        let number = |len: usize| long[..len].iter().fold(0u128, |bits, &byte| bits << 8 | u128::from(byte));
        (a,).encode(|key| assert_eq!(key, Key::Word8(number(1) as u64)));
        a.encode(|key| assert_eq!(key, Key::Word8(number(1) as u64)));
        (a, b).encode(|key| assert_eq!(key, Key::Word8(number(3) as u64)));
        (a, b, c).encode(|key| assert_eq!(key, Key::Word8(number(7) as u64)));
        (a, b, c, d).encode(|key| assert_eq!(key, Key::Word16(number(15))));
        (a, b, c, d, e).encode(|key| assert_eq!(key, Key::Word16(number(16))));
        (a, b, c, d, e, f).encode(|key| assert_eq!(key, Key::Bytes(&long[..18])));
        (a, b, c, d, e, f, g).encode(|key| assert_eq!(key, Key::Bytes(&long[..22])));
        (a, b, c, d, e, f, g, h).encode(|key| assert_eq!(key, Key::Bytes(&long)));
        Ok(())
    });
}

/// Ranges over the first columns of a key, for each class.
fn ranges<K: TableKey + Clone>(class: KeyClass, make: impl Fn(u8, u8) -> K) {
    assert_eq!(K::FORMAT.class, class);
    let edge = || prop_oneof![Just(0u8), 0..4u8, 252..=255u8];
    let bound =
        || prop_oneof![edge().prop_map(Bound::Included), edge().prop_map(Bound::Excluded), Just(Bound::Unbounded)];
    check(400, &(bound(), bound(), edge(), any::<u8>()), |(low, high, first, second)| {
        let range = KeyRange::between(low.as_ref(), high.as_ref(), K::FORMAT);
        let inside = std::ops::RangeBounds::contains(&(low, high), &first);
        make(first, second).encode(|key| assert_eq!(range.contains(key), inside));
        Ok(())
    });
}

#[test]
fn a_range_over_first_columns_takes_in_all_that_follow_an_included_bound() {
    ranges(KeyClass::Word8, |first, second| (first, second));
    ranges(KeyClass::Word16, |first, second| (first, u64::from(second), second));
    ranges(KeyClass::Bytes, |first, second| (first, Bytes::<2>::new(&[second]).expect("one fits two")));
}

#[test]
fn descending_columns_wider_than_two_words_are_no_number() {
    assert_eq!([Reverse(Numeric::from(7)).bits(), Reverse(Some(7u128)).bits()], [0, 0]);
    assert_eq!(Reverse(7u128).bits(), !7);
}
