//! Keys: what is taken off the front encodes to the same bytes; two rows' keys are ordered as their columns are.
//!
//! Input: table, then the bytes of a key, or two rows with their lengths in front.

use std::cmp::Ordering;

use seriatim_catalog::Value;

use crate::allocation;
use crate::reader::{Reader, counted};
use crate::table::{Row, TestTable, samples, test_tables};

pub(crate) fn run(data: &[u8]) {
    let mut input = Reader(data);
    let test_tables = test_tables().0;
    let table = input.u8();
    let test_table = &test_tables[usize::from(table >> 1) % test_tables.len()];
    allocation::within(16 * data.len() + (4 << 10), || match table & 1 {
        0 => raw(test_table, input.0),
        _ => {
            let rows = [input.counted(), input.counted()].map(|bytes| Row::decoded(test_table, bytes));
            if let [Some(a), Some(b)] = rows {
                order(test_table, &a, &b);
            }
        }
    });
}

fn raw(test_table: &TestTable, bytes: &[u8]) {
    let mut rest = bytes;
    let Ok(key) = test_table.wire.decode_key(&mut rest) else { return };
    let mut again = Vec::new();
    test_table.wire.encode_key(key, &mut again);
    again.extend_from_slice(rest);
    // A count has one encoding, or it could be read two ways.
    assert_eq!(again, bytes, "what decodes encodes to the same bytes");
    assert_eq!(key.to_buf().as_key(), key);
    // For messages: of any key, without a panic.
    let _ = test_table.codec.describe(key);
    // A text may be longer than its column allows: then its values are no key.
    if let Some(values) = test_table.codec.decode(key)
        && values.iter().all(has_one_encoding)
        && let Ok(encoded) = test_table.codec.encode_values(&values)
    {
        assert_eq!(encoded.as_key(), key, "{values:?}");
    }
}

/// Keys have one zero and one NaN; others decode, for messages.
fn has_one_encoding(value: &Value) -> bool {
    match value {
        Value::Option(Some(value)) => has_one_encoding(value),
        Value::Float(float) => *float != 0.0 && !float.is_nan(),
        _ => true,
    }
}

fn order(test_table: &TestTable, a: &Row<'_>, b: &Row<'_>) {
    let values = [a.values(), b.values()];
    let columns = test_table.definition.key.iter().map(|part| {
        let [a, b] = [&values[0], &values[1]].map(|values| &values[part.column.index()]);
        if part.descending { compare(b, a) } else { compare(a, b) }
    });
    let wanted = columns.fold(Ordering::Equal, Ordering::then);
    let keys = [a, b].map(|row| row.with_key(|key| key.to_buf()));
    assert_eq!(keys[0].cmp(&keys[1]), wanted, "{:?} and {:?}", keys[0], keys[1]);
    assert_eq!(keys[0].as_key().to_bytes().cmp(&keys[1].as_key().to_bytes()), wanted, "as bytes");
    for (key, values) in keys.iter().zip(&values) {
        let parts: Vec<Value> =
            test_table.definition.key.iter().map(|part| values[part.column.index()].clone()).collect();
        let decoded = test_table.codec.decode(key.as_key()).expect("a row's key decodes");
        assert!(decoded.iter().zip(&parts).all(|(a, b)| compare(a, b).is_eq()), "{decoded:?} and {parts:?}");
        assert_eq!(test_table.codec.encode_values(&parts).as_ref(), Ok(key));
    }
}

/// How values of a key's column are ordered.
fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Integer(a, ty), Value::Integer(b, other)) if ty == other => a.cmp(b),
        // All NaNs are equal, and greater than all numbers.
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => panic!("{a:?} and {b:?} are not of one column of a key here"),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (table, test_table) in test_tables().0.iter().enumerate() {
        let rows = samples(test_table);
        for (at, row) in rows.iter().enumerate() {
            let mut key = vec![2 * table as u8];
            row.with_key(|encoded| test_table.wire.encode_key(encoded, &mut key));
            seeds.push(key);
            let other = &rows[(at + 1) % rows.len()];
            seeds.push([&[2 * table as u8 + 1][..], &counted(&row.encoded()), &counted(&other.encoded())].concat());
        }
    }
    seeds
}
