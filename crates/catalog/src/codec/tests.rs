//! Codecs on one small table: values, types and words for the same keys.

use super::*;
use crate::{ColumnType, Decimal, Reverse, TableKey, Text, asc, desc};

fn table() -> TableDef {
    TableDef::builder("t")
        .column(ColumnDef::new("w", ColumnType::U16))
        .column(ColumnDef::new("name", ColumnType::Text { max: 8 }))
        .column(ColumnDef::new("since", ColumnType::I32).nullable())
        .column(ColumnDef::new("sum", ColumnType::Decimal { scale: 2 }))
        .key(["w"])
        .index("by_name", [asc("name"), desc("since")])
        .index("by_sum", [desc("sum")])
        .index("by_w", [desc("w")])
        .finish()
        .expect("a sound declaration")
}

#[test]
fn keys_of_values_are_those_of_types_and_describe_themselves() {
    let table = table();
    let primary = KeyCodec::for_table(&table);
    let key = primary.encode_values(&[7u16.into()]).expect("of its type");
    assert_eq!(key, 7u16.to_buf());
    assert_eq!(primary.describe(key.as_key()), "w 7");

    let by_name = KeyCodec::for_index(&table.indexes[0], &table);
    let values = [Value::Text("ab".into()), Some(-5i32).into(), 3u16.into()];
    let key = by_name.encode_values(&values).expect("of their types");
    assert_eq!(by_name.describe(key.as_key()), "name \"ab\", since -5, w 3");
    assert_eq!(by_name.decode(key.as_key()).as_deref(), Some(&values[..]));
    assert_eq!(key, (Text::<8>::literal("ab"), Reverse(Some(-5i32)), 3u16).to_buf());

    let by_sum = KeyCodec::for_index(&table.indexes[1], &table);
    let key = by_sum.encode_values(&[Value::Decimal { units: -1250, scale: 2 }, 1u16.into()]).expect("a decimal");
    assert_eq!(by_sum.describe(key.as_key()), "sum -12.50, w 1");
}

#[test]
fn a_foreign_key_is_described_as_far_as_it_goes() {
    let table = table();
    let by_name = KeyCodec::for_index(&table.indexes[0], &table);
    assert_eq!(by_name.describe(Key::Bytes(b"ab\0\xFF\x80")), "name \"ab\", b\"\\xff\\x80\"");
    assert_eq!(by_name.describe(Key::Word8(1)), "0x1");
    assert_eq!(by_name.decode(Key::Bytes(b"ab")), None);
}

#[test]
fn prefixes_of_an_index_take_in_every_primary_key() {
    let table = table();
    let by_sum = KeyCodec::for_index(&table.indexes[1], &table);
    let range = by_sum.range_of_prefix(&Reverse(Decimal::<2>::from_units(5)));
    let key = |units, w: u16| by_sum.encode_values(&[Value::Decimal { units, scale: 2 }, w.into()]).expect("typed");
    let inside = |key: KeyBuf| range.contains(key.as_key());
    assert!(inside(key(5, 0)) && inside(key(5, 65_535)) && !inside(key(4, 9)) && !inside(key(6, 9)));
    let same = by_sum.range_of_values(&[Value::Decimal { units: 5, scale: 2 }]).expect("typed");
    assert_eq!(range, same);
}

#[test]
fn an_index_on_the_primary_key_does_not_repeat_it() {
    let table = table();
    let by_w = KeyCodec::for_index(&table.indexes[2], &table);
    assert_eq!(by_w.format(), KeyFormat::new(2, false));
    assert!(by_w.columns().contains(crate::ColumnId(0)) && !by_w.columns().contains(crate::ColumnId(1)));
}

#[test]
fn the_rest_of_a_key_is_a_word_of_the_row_where_it_is_one_number() {
    use ColumnType::{Bool, I8, I16, I32, I64, U8, U16, U32, U64};
    let codec = |ty: ColumnType, is_descending: bool| {
        let column = ColumnDef::new("b", ty);
        let definition = TableDef::builder("t").column(ColumnDef::new("a", U16)).column(column);
        let key = if is_descending { desc("b") } else { asc("b") };
        let definition = definition.key([asc("a"), key]).finish().expect("a sound declaration");
        (KeyCodec::for_table(&definition), Layout::of(&definition).places[1])
    };
    for ty in [Bool, I8, U8, I16, U16, I32, U32, I64, U64, ColumnType::Timestamp, ColumnType::Decimal { scale: 2 }] {
        for is_descending in [false, true] {
            let (codec, place) = codec(ty, is_descending);
            let word = codec.rest_word(1).expect("one number");
            assert!(codec.rest_word(0).is_none(), "two");
            for stored in [0, 1, 0x7F, 0x80, 0x7FFF, 0xFFFF_FFFE, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX] {
                let mut row = [0u64; 4];
                let bytes = &stored.to_le_bytes()[..place.bytes as usize];
                for (at, byte) in bytes.iter().enumerate() {
                    // SAFETY: the row is longer than the place's end.
                    unsafe { row.as_mut_ptr().cast::<u8>().add(place.offset as usize + at).write(*byte) };
                }
                let start = row.as_ptr().cast::<u8>();
                // SAFETY: a row of the table's layout.
                let (bits, rest) = unsafe { (word.load(start), codec.encode_rest(RowRef::from_raw(start), 1)) };
                assert_eq!(u128::from(bits), rest, "{ty:?}, descending: {is_descending}, {stored:#x}");
            }
        }
    }
    let (floats, _) = codec(ColumnType::F64, false);
    assert!(floats.rest_word(1).is_none());
    let (texts, _) = codec(ColumnType::Text { max: 8 }, false);
    assert!(texts.rest_word(1).is_none());
}
