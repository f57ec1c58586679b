//! Rows, patches, deltas and keys as bytes: what is decoded is what was encoded. Patches and deltas have what changed
//! and nothing else, and the shorter of them is taken. Bytes that were not encoded are refused or stand for a row.

mod shared;

use proptest::collection::vec;
use proptest::prelude::*;
use seriatim_catalog::wire::{DecodeError, Malformed, RowWire, Updated, write_varint, zigzag};
use seriatim_catalog::{
    ColumnDef, ColumnId, ColumnSet, ColumnType, ColumnUse, IntegerType, Key, KeyCodec, Layout, OutOfMemory, TableDef,
    Value, desc,
};
use shared::{Block, check, column_type, is_same, same, value};

/// A table of these columns, named by their numbers; the first `key` are its key.
fn table(columns: &[ColumnDef], key: usize) -> TableDef {
    let name = |at: usize| format!("c{at}");
    let mut table = TableDef::builder("t");
    for (at, column) in columns.iter().enumerate() {
        let nullable = column.nullable && at >= key;
        table = table.column(ColumnDef { name: name(at).into(), nullable, ..column.clone() });
    }
    table.key((0..key).map(name)).finish().expect("a sound declaration")
}

fn tables() -> impl Strategy<Value = TableDef> {
    let column = || {
        (column_type(), any::<bool>(), any::<bool>()).prop_map(|(ty, nullable, immutable)| ColumnDef {
            nullable,
            immutable,
            ..ColumnDef::new("c", ty)
        })
    };
    let columns = prop_oneof![4 => vec(column(), 1..6), 2 => vec(column(), 1..40), 1 => vec(column(), 190..=200)];
    // Some of the last columns are an extension, but none of the key.
    (columns, 1..=3usize, prop_oneof![2 => Just(0), 1 => 1..9usize]).prop_map(|(columns, key, extension)| {
        let key = key.min(columns.len());
        let extension = extension.min(columns.len() - key);
        let mut table = table(&columns, key);
        table.columns.iter_mut().rev().take(extension).for_each(|column| column.immutable = false);
        TableDef { extension, ..table }
    })
}

fn rows_of(table: &TableDef) -> Vec<BoxedStrategy<Value>> {
    table.columns.iter().map(value).collect()
}

/// A table and a row of it.
fn one_row() -> impl Strategy<Value = (TableDef, Vec<Value>)> {
    tables().prop_flat_map(|table| (rows_of(&table), Just(table)).prop_map(|(row, table)| (table, row)))
}

/// A table, a row of it, and the row after some columns were set, mostly such as an update may set.
fn two_rows() -> impl Strategy<Value = (TableDef, Vec<Value>, Vec<Value>)> {
    tables().prop_flat_map(|table| {
        let columns = table.columns.len();
        let set = prop_oneof![
            Just(vec![false; columns]),
            vec(prop::bool::weighted(0.1), columns),
            vec(any::<bool>(), columns)
        ];
        (rows_of(&table), rows_of(&table), set, prop::bool::weighted(0.1), Just(table)).prop_map(
            |(before, other, set, any_column, table)| {
                let pick = |at: usize| set[at] && (any_column || table.is_updatable(ColumnId(at as u16)));
                let after = (0..before.len()).map(|at| if pick(at) { other[at].clone() } else { before[at].clone() });
                let after = after.collect();
                (table, before, after)
            },
        )
    })
}

struct Row {
    block: Block,
    wire: RowWire,
}

fn row(table: &TableDef, values: &[Value]) -> Row {
    let layout = Layout::of(table);
    let mut block = Block::new(&layout);
    block.insert_values(&table.columns, values);
    Row { block, wire: RowWire::new(table, &layout) }
}

fn encoded(row: &Row) -> Vec<u8> {
    let mut bytes = vec![];
    row.wire.encode_row(row.block.row(), &mut bytes);
    bytes
}

#[test]
fn rows_and_keys_come_back() {
    check(400, &one_row(), |(table, values)| {
        let row = row(&table, &values);
        let mut bytes = encoded(&row);
        let whole = bytes.clone();
        bytes.extend_from_slice(b"more");
        let mut rest = &bytes[..];
        prop_assert_eq!(row.wire.skip_row(&mut rest), Ok(&whole[..]));
        prop_assert_eq!(rest, b"more");

        let mut decoded = Block::new(&Layout::of(&table));
        prop_assert_eq!(row.wire.decode_row(&whole, &mut decoded.inserting()), Ok(()));
        prop_assert_eq!(decoded.bytes(), row.block.bytes());
        prop_assert!(same(&decoded.values(&table.columns), &values));
        prop_assert_eq!(row.wire.decode_row(&bytes, &mut decoded.inserting()), Err(Malformed::Trailing.into()));

        row.block.encode(&KeyCodec::for_table(&table), |key| {
            let mut bytes = vec![];
            row.wire.encode_key(key, &mut bytes);
            for cut in 0..bytes.len() {
                prop_assert_eq!(row.wire.decode_key(&mut &bytes[..cut]), Err(Malformed::CutShort));
            }
            let mut rest = &bytes[..];
            prop_assert_eq!(row.wire.decode_key(&mut rest), Ok(key));
            prop_assert!(rest.is_empty());
            Ok(())
        })
    });
}

#[test]
fn a_row_cut_short_is_none() {
    check(100, &one_row(), |(table, values)| {
        let row = row(&table, &values);
        let bytes = encoded(&row);
        for cut in 0..bytes.len() {
            let mut rest = &bytes[..cut];
            prop_assert_eq!(row.wire.skip_row(&mut rest), Err(Malformed::CutShort));
            prop_assert_eq!(rest.len(), cut);
        }
        Ok(())
    });
}

fn varint(value: u64) -> Vec<u8> {
    let mut bytes = vec![];
    write_varint(&mut bytes, value);
    bytes
}

/// The integer that a value is.
fn integer(value: &Value) -> Option<i128> {
    match *value {
        Value::Integer(number, _) => Some(number),
        Value::Decimal { units, .. } => Some(units.into()),
        _ => None,
    }
}

/// The delta that encodes an update of this column, if there is one.
fn delta(table: &TableDef, column: ColumnId, before: &Value, after: &Value) -> Option<Vec<u8>> {
    let ColumnDef { ty, nullable: false, .. } = table.columns[column.index()] else { return None };
    let (before, after) = (integer(before)?, integer(after)?);
    let value = match ty {
        ColumnType::U8 | ColumnType::I8 => 1,
        ColumnType::U16 | ColumnType::I16 => 2,
        ColumnType::U32 | ColumnType::U64 => varint(after as u64).len(),
        _ => varint(zigzag(after as i64)).len(),
    };
    let updatable = (0..table.columns.len()).filter(|&at| table.is_updatable(ColumnId(at as u16))).count();
    let amount = i64::try_from(after - before).ok()?;
    let delta = [varint(column.0.into()), varint(zigzag(amount))].concat();
    (delta.len() < updatable.div_ceil(8) + value).then_some(delta)
}

#[test]
fn an_update_is_what_changed() {
    check(800, &two_rows(), |(table, before, after)| {
        let columns = (0..table.columns.len()).map(|at| ColumnId(at as u16));
        let changed: Vec<ColumnId> = columns.filter(|at| !is_same(&before[at.index()], &after[at.index()])).collect();
        let added = match changed[..] {
            [only] => delta(&table, only, &before[only.index()], &after[only.index()]),
            _ => None,
        };
        let wanted = match &changed[..] {
            [] => Updated::Nothing,
            some if !some.iter().all(|&at| table.is_updatable(at)) => Updated::NotByUpdate,
            _ if added.is_some() => Updated::Delta,
            _ => Updated::Patch,
        };

        // The row after the change as another insert would have written it: its own fixed part and out-of-line values.
        let (old, new) = (row(&table, &before), row(&table, &after));
        let mut bytes = b"before".to_vec();
        prop_assert_eq!(old.wire.encode_update(old.block.row(), new.block.row(), &mut bytes), wanted);
        if !matches!(wanted, Updated::Patch | Updated::Delta) {
            prop_assert_eq!(&bytes[..], b"before");
            return Ok(());
        }
        let told = &bytes[6..];

        // And as an update writes it: with the fixed part and most out-of-line values of the row before.
        let mut updated = old.block.copied();
        for at in changed.iter().map(|at| at.index()) {
            prop_assert_eq!(updated.set_value(&table.columns[at], at, &after[at]), Ok(()));
        }
        let mut same_bytes = vec![];
        prop_assert_eq!(old.wire.encode_update(old.block.row(), updated.row(), &mut same_bytes), wanted);
        prop_assert_eq!(&same_bytes[..], told);

        if let Some(added) = added {
            prop_assert_eq!(told, &added[..]);
        }
        let mut decoded = old.block.copied();
        let dirty = decode(&old.wire, wanted, told, &mut decoded)?;
        prop_assert_eq!(dirty, changed.into_iter().collect::<ColumnSet>());
        prop_assert!(same(&decoded.values(&table.columns), &after));
        Ok(())
    });
}

/// The effect of an update on a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Nothing,
    Reads,
    Sets,
    SetsBlindly,
    Adds,
}

/// A table, a row of it, what an update makes of each column, and what another makes of it.
#[allow(clippy::type_complexity, reason = "said above")]
fn two_updates() -> impl Strategy<Value = (TableDef, [Vec<Value>; 3], Vec<Does>, Vec<bool>)> {
    tables().prop_flat_map(|table| {
        let columns = table.columns.len();
        let does = prop_oneof![
            6 => Just(Does::Nothing),
            1 => Just(Does::Reads),
            2 => Just(Does::Sets),
            2 => Just(Does::SetsBlindly),
            3 => Just(Does::Adds)
        ];
        let changes = prop_oneof![vec(prop::bool::weighted(0.1), columns), vec(any::<bool>(), columns)];
        let rows = [rows_of(&table), rows_of(&table), rows_of(&table)];
        (rows, vec(does, columns), changes, Just(table))
            .prop_map(|(rows, does, changes, table)| (table, rows, does, changes))
    })
}

#[test]
fn an_update_is_put_after_another_unless_it_used_what_that_changed() {
    let counts = [const { std::cell::Cell::new(0) }; 4];
    check(1200, &two_updates(), |(table, [base, newer, ours], does, changes)| {
        let (mut wanted, mut uses) = (Some(base.clone()), ColumnUse::default());
        let base_row = row(&table, &base);
        let (mut newer_row, mut after) = (base_row.block.copied(), base_row.block.copied());
        let does = |at: usize| match does[at] {
            _ if !table.is_updatable(ColumnId(at as u16)) => Does::Nothing,
            Does::Adds if table.columns[at].nullable || integer(&base[at]).is_none() => Does::Sets,
            does => does,
        };
        for at in 0..base.len() {
            let column = ColumnId(at as u16);
            match does(at) {
                Does::Nothing => {}
                Does::Reads => uses = uses.union(ColumnUse::reading(ColumnSet::of(column))),
                Does::Sets => uses = uses.union(ColumnSet::of(column).into()),
                Does::SetsBlindly => uses = uses.union(ColumnUse::setting([column])),
                Does::Adds => uses = uses.union(ColumnUse::adding([column])),
            }
        }
        for (at, column) in table.columns.iter().enumerate() {
            let (id, mut value) = (ColumnId(at as u16), base[at].clone());
            let changed = changes[at] && table.is_updatable(id) && !is_same(&base[at], &newer[at]);
            if changed {
                prop_assert_eq!(newer_row.set_value(column, at, &newer[at]), Ok(()));
                value = newer[at].clone();
            }
            if matches!(does(at), Does::Sets | Does::SetsBlindly | Does::Adds) {
                prop_assert_eq!(after.set_value(column, at, &ours[at]), Ok(()));
            }
            // Setting a column to its old value is like not setting it. Columns from the 64th on share a bit, so any
            // may be read.
            let is_set = does(at) == Does::SetsBlindly && at < 63 && !is_same(&base[at], &ours[at]);
            if changed && is_set {
                value = ours[at].clone();
                counts[3].update(|count| count + 1);
            } else if changed && uses.used().contains(id) {
                wanted = None;
            } else if matches!(does(at), Does::Sets | Does::SetsBlindly) || does(at) == Does::Adds && !changed {
                value = ours[at].clone();
            } else if does(at) == Does::Adds {
                let [base, newer, ours] = [&base, &newer, &ours].map(|row| integer(&row[at]).expect("a number"));
                let (_, low, high) = SUMS.into_iter().find(|sum| range(sum.0) == range(column.ty)).expect("a sum's");
                let sum = Some(newer + ours - base).filter(|sum| (low..=high).contains(sum));
                match sum.filter(|_| i64::try_from(ours - base).is_ok()) {
                    Some(sum) => value = of_type(column.ty, sum),
                    None => wanted = None,
                }
                counts[0].update(|count| count + 1);
            }
            if let Some(wanted) = &mut wanted {
                wanted[at] = value;
            }
        }
        let refutes = |at: usize| {
            let column = ColumnId(at as u16);
            let changed = changes[at] && table.is_updatable(column) && !is_same(&base[at], &newer[at]);
            changed && uses.used().contains(column)
        };
        let agree = !(0..base.len()).any(refutes);
        // SAFETY: rows of the table, the last one private.
        let (agreed, merged) = unsafe {
            let (base, newer) = (base_row.block.row(), newer_row.row());
            (base_row.wire.agree(base, newer, uses.used()), base_row.wire.merge(base, newer, after.as_mut_ptr(), uses))
        };
        prop_assert_eq!(agreed, agree);
        prop_assert_eq!(merged, wanted.is_some());
        counts[usize::from(merged) + 1].update(|count| count + 1);
        if let Some(wanted) = wanted {
            prop_assert!(same(&after.values(&table.columns), &wanted));
        }
        Ok(())
    });
    let counts = counts.map(|count| count.get());
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

/// Seed 14407470714614798494: an update that sets column 64 blindly is not put after one that changed it. It may have
/// read column 63, which has the same bit.
#[test]
fn columns_that_share_a_bit_are_not_set_blindly() {
    let table = table(&vec![ColumnDef::new("n", ColumnType::U8); 65], 1);
    let numbers = |at: usize, number| -> Vec<_> {
        (0..65).map(|column| Value::from(if column == at { number } else { 0u8 })).collect()
    };
    for (at, is_merged) in [(62, true), (63, false), (64, false)] {
        let [base, newer, ours] = [0, 1, 2].map(|number| row(&table, &numbers(at, number)));
        let mut after = ours.block.copied();
        // SAFETY: rows of the table, the last one private.
        let merged = unsafe {
            let uses = ColumnUse::setting([ColumnId(at as u16)]);
            base.wire.merge(base.block.row(), newer.block.row(), after.as_mut_ptr(), uses)
        };
        assert_eq!(merged, is_merged, "column {at}");
    }
}

/// The row owns the text that the newer row version has, although the older one has the same elsewhere.
#[test]
fn a_text_that_is_the_same_elsewhere_is_taken_over() {
    let number = ColumnDef::new("n", ColumnType::U8);
    let table = table(&[number.clone(), number, ColumnDef::new("t", ColumnType::LongText)], 1);
    let text = || Value::Text("long".to_owned());
    let base = row(&table, &[1u8.into(), 2u8.into(), text()]);
    let (mut newer, mut after) = (base.block.copied(), base.block.copied());
    assert_eq!(newer.set_value(&table.columns[2], 2, &text()), Ok(()));
    assert_eq!(after.set_value(&table.columns[1], 1, &5u8.into()), Ok(()));
    assert_ne!(newer.out_of_line(), base.block.out_of_line(), "a text that is set is another block");
    let uses = ColumnUse::adding([ColumnId(1)]);
    // SAFETY: rows of the table, the last one private.
    assert!(unsafe { base.wire.merge(base.block.row(), newer.row(), after.as_mut_ptr(), uses) });
    assert_eq!(after.out_of_line(), newer.out_of_line());
    assert!(same(&after.values(&table.columns), &[1u8.into(), 5u8.into(), text()]));
}

/// A number's type without what does not bear on its range.
fn range(ty: ColumnType) -> ColumnType {
    if let ColumnType::Decimal { .. } = ty { ColumnType::I64 } else { ty }
}

/// Applies the encoding of an update to the row before, and refuses each cut of it. Returns which columns are set.
fn decode(wire: &RowWire, form: Updated, told: &[u8], row: &mut Block) -> Result<ColumnSet, TestCaseError> {
    let is_delta = form == Updated::Delta;
    fn skip<'a>(wire: &RowWire, is_delta: bool, rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
        if is_delta { wire.skip_delta(rest) } else { wire.skip_patch(rest) }
    }
    let mut rest = told;
    prop_assert_eq!(skip(wire, is_delta, &mut rest), Ok(told));
    prop_assert!(rest.is_empty());
    for cut in 0..told.len() {
        prop_assert_eq!(skip(wire, is_delta, &mut &told[..cut]), Err(Malformed::CutShort));
    }
    let mut writer = row.updating();
    let decoded = if is_delta { wire.decode_delta(told, &mut writer) } else { wire.decode_patch(told, &mut writer) };
    prop_assert_eq!(decoded, Ok(()));
    Ok(writer.dirty())
}

/// The types of columns to which amounts can be added, and their ranges.
const SUMS: [(ColumnType, i128, i128); 9] = [
    (ColumnType::U8, 0, u8::MAX as i128),
    (ColumnType::I8, i8::MIN as i128, i8::MAX as i128),
    (ColumnType::U16, 0, u16::MAX as i128),
    (ColumnType::I16, i16::MIN as i128, i16::MAX as i128),
    (ColumnType::U32, 0, u32::MAX as i128),
    (ColumnType::I32, i32::MIN as i128, i32::MAX as i128),
    (ColumnType::U64, 0, u64::MAX as i128),
    (ColumnType::I64, i64::MIN as i128, i64::MAX as i128),
    (ColumnType::Decimal { scale: 2 }, i64::MIN as i128, i64::MAX as i128),
];

fn of_type(ty: ColumnType, number: i128) -> Value {
    match ty {
        ColumnType::Decimal { scale } => Value::Decimal { units: number as i64, scale },
        _ => Value::Integer(number, IntegerType::of_column(ty)),
    }
}

/// A table with a number of this type behind columns that make patches long and columns' numbers large.
fn among(ty: ColumnType, others: usize) -> TableDef {
    let other = ColumnDef::new("o", ColumnType::Bool).nullable();
    let mut columns = vec![ColumnDef::new("k", ColumnType::U8)];
    columns.extend((0..others).map(|_| other.clone()));
    columns.push(ColumnDef::new("n", ty));
    table(&columns, 1)
}

/// The encoding of an update of the number, after it was encoded, decoded, and compared with the update.
fn told(ty: ColumnType, others: usize, before: i128, after: i128) -> Result<Updated, TestCaseError> {
    let table = among(ty, others);
    let values = |number| {
        let mut values = vec![Value::from(1u8)];
        values.extend((0..others).map(|at| if at % 2 == 0 { Value::NONE } else { Value::from(Some(true)) }));
        values.push(of_type(ty, number));
        values
    };
    let (old, new) = (row(&table, &values(before)), row(&table, &values(after)));
    let mut bytes = vec![];
    let form = old.wire.encode_update(old.block.row(), new.block.row(), &mut bytes);
    if before == after {
        prop_assert_eq!(form, Updated::Nothing);
        return Ok(form);
    }
    let column = ColumnId(others as u16 + 1);
    let added = delta(&table, column, &of_type(ty, before), &of_type(ty, after));
    prop_assert_eq!(form, if added.is_some() { Updated::Delta } else { Updated::Patch });
    prop_assert_eq!(added.unwrap_or_else(|| bytes.clone()), &bytes[..]);
    let mut decoded = old.block.copied();
    prop_assert_eq!(decode(&old.wire, form, &bytes, &mut decoded)?, [column].into_iter().collect::<ColumnSet>());
    prop_assert_eq!(decoded.bytes(), new.block.bytes());
    Ok(form)
}

#[test]
fn a_number_is_recovered_from_its_value_or_from_the_added_amount() {
    let integer = || prop_oneof![any::<i64>(), -300..300i64, Just(i64::MAX), Just(i64::MIN)];
    let strategy = (0..SUMS.len(), prop_oneof![Just(0usize), 0..20usize, Just(150)], integer(), integer(), integer());
    check(1500, &strategy, |(at, others, first, second, near)| {
        let (ty, low, high) = SUMS[at];
        // The upper half of what has no sign, too.
        let first = (i128::from(first) + i128::from(second.max(0))).clamp(low, high);
        for second in [i128::from(second), first + i128::from(near)] {
            let _ = told(ty, others, first, second.clamp(low, high))?;
        }
        Ok(())
    });
}

#[test]
fn numbers_come_back_from_one_end_of_their_range_to_the_other() {
    let mut forms = [0, 0];
    for (ty, low, high) in SUMS {
        let points = || [low, low + 1, (low + high) / 2, (low + high) / 2 + 1, high - 1, high].into_iter();
        for (before, after) in points().flat_map(|before| points().map(move |after| (before, after))) {
            for others in [0, 9, 150] {
                let form = told(ty, others, before, after).unwrap_or_else(|problem| panic!("{problem}"));
                forms[usize::from(form == Updated::Delta)] += 1;
            }
        }
    }
    assert!(forms.iter().all(|&count| count > 100), "{forms:?}");
}

#[test]
fn an_addition_is_logged_as_an_amount_where_that_is_shorter_and_fits() {
    let form = |ty, before, after| told(ty, 0, before, after).unwrap_or_else(|problem| panic!("{problem}"));
    let (u64_max, i64_max) = (i128::from(u64::MAX), i128::from(i64::MAX));
    // Column and amount take a byte each, as do the patch's bits.
    assert_eq!(form(ColumnType::U32, 127, 128), Updated::Delta);
    assert_eq!(form(ColumnType::U32, 126, 127), Updated::Patch, "as long as what was added");
    assert_eq!(form(ColumnType::I8, 100, 101), Updated::Patch);
    assert_eq!(form(ColumnType::I16, -5, -69), Updated::Delta);
    assert_eq!(form(ColumnType::I16, -5, -70), Updated::Patch);
    assert_eq!(form(ColumnType::U64, 1000, u64_max), Updated::Patch, "of more than 63 bits");
    assert_eq!(form(ColumnType::U64, u64_max, u64_max - 9), Updated::Delta);
    assert_eq!(form(ColumnType::I64, -i64_max, i64_max), Updated::Patch);
    // A patch of 20 bytes of bits is longer than the longest amount.
    let wide = |before, after| told(ColumnType::U64, 150, before, after).unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(wide(0, i64_max), Updated::Delta);
    assert_eq!(wide(u64_max, u64_max - i64_max - 1), Updated::Delta);
    assert_eq!(wide(0, i64_max + 1), Updated::Patch);
    assert_eq!(wide(u64_max, u64_max - i64_max - 2), Updated::Patch);
}

/// Whether every text of a row is UTF-8: `Value::read` takes it for granted.
fn is_sound(values: &[Value]) -> bool {
    values.iter().all(|value| match value {
        Value::Text(text) => std::str::from_utf8(text.as_bytes()).is_ok(),
        _ => true,
    })
}

/// Properties of decoding, whatever the bytes.
fn survives(table: &TableDef, values: &[Value], bytes: &[u8]) -> Result<(), TestCaseError> {
    let base = row(table, values);
    let (wire, layout) = (&base.wire, Layout::of(table));
    let mut decoded = Block::new(&layout);
    let mut rest = bytes;
    match wire.skip_row(&mut rest) {
        Ok(taken) => {
            prop_assert_eq!(wire.decode_row(taken, &mut decoded.inserting()), Ok(()));
            prop_assert!(is_sound(&decoded.values(&table.columns)));
            let mut again = vec![];
            wire.encode_row(decoded.row(), &mut again);
            prop_assert_eq!(&again[..], taken);
        }
        Err(error) => {
            prop_assert_eq!(wire.decode_row(bytes, &mut decoded.inserting()), Err(error.into()));
            prop_assert!(is_sound(&decoded.values(&table.columns)));
        }
    }
    let mut rest = bytes;
    let mut patched = base.block.copied();
    match wire.skip_patch(&mut rest) {
        Ok(taken) => prop_assert_eq!(wire.decode_patch(taken, &mut patched.updating()), Ok(())),
        Err(error) => prop_assert_eq!(wire.decode_patch(bytes, &mut patched.updating()), Err(error.into())),
    }
    prop_assert!(is_sound(&patched.values(&table.columns)));
    let mut rest = bytes;
    let mut summed = base.block.copied();
    match wire.skip_delta(&mut rest) {
        Ok(taken) => {
            let added = wire.decode_delta(taken, &mut summed.updating());
            let expected = matches!(added, Ok(()) | Err(DecodeError::Overflow { .. }));
            prop_assert!(expected, "{:?}", added);
        }
        Err(error) => prop_assert_eq!(wire.decode_delta(bytes, &mut summed.updating()), Err(error.into())),
    }
    let mut rest = bytes;
    if let Ok(key) = wire.decode_key(&mut rest) {
        let mut again = vec![];
        wire.encode_key(key, &mut again);
        prop_assert_eq!(&again[..], &bytes[..bytes.len() - rest.len()]);
    }
    Ok(())
}

#[test]
fn bytes_from_anywhere_are_refused_or_stand_for_a_row() {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(0x7F), Just(0x80), Just(0xFF), any::<u8>()];
    let strategy = (one_row(), vec(byte(), 0..300));
    check(600, &strategy, |((table, values), bytes)| survives(&table, &values, &bytes));
}

#[test]
fn damaged_rows_and_patches_are_refused_or_stand_for_a_row() {
    let damage = vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..4);
    check(600, &(two_rows(), damage), |((table, before, after), damage)| {
        let (old, new) = (row(&table, &before), row(&table, &after));
        let mut patch = vec![];
        let updated = old.wire.encode_update(old.block.row(), new.block.row(), &mut patch);
        prop_assert_eq!(patch.is_empty(), matches!(updated, Updated::Nothing | Updated::NotByUpdate));
        for mut bytes in [encoded(&old), patch] {
            for (at, byte, how) in &damage {
                let at = at.index(bytes.len() + 1);
                match how {
                    0 => bytes.insert(at, *byte),
                    1 if at < bytes.len() => drop(bytes.remove(at)),
                    _ if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
                    _ => bytes.push(*byte),
                }
            }
            survives(&table, &before, &bytes)?;
        }
        Ok(())
    });
}

/// Columns of all kinds, so that the bytes below show each.
fn sample() -> TableDef {
    TableDef::builder("sample")
        .column(ColumnDef::new("w", ColumnType::U16))
        .column(ColumnDef::new("id", ColumnType::U32))
        .column(ColumnDef::new("flag", ColumnType::Bool).nullable())
        .column(ColumnDef::new("name", ColumnType::Text { max: 300 }).immutable())
        .column(ColumnDef::new("sum", ColumnType::Decimal { scale: 2 }))
        .column(ColumnDef::new("at", ColumnType::Timestamp).nullable())
        .column(ColumnDef::new("small", ColumnType::I8))
        .column(ColumnDef::new("ratio", ColumnType::F64))
        .column(ColumnDef::new("note", ColumnType::LongText))
        .key([desc("w"), seriatim_catalog::asc("id")])
        .finish()
        .expect("a sound declaration")
}

fn sample_values() -> Vec<Value> {
    vec![
        Value::from(0x0102u16),
        Value::from(300u32),
        Value::NONE,
        Value::from("ann"),
        Value::Decimal { units: -3, scale: 2 },
        Value::Timestamp(64).some(),
        Value::from(-1i8),
        Value::Float(1.0),
        Value::from("é"),
    ]
}

/// The bytes themselves: they are on people's disks. If this fails, raise the manifest's format.
#[test]
fn the_format_is_these_bytes() {
    let (table, values) = (sample(), sample_values());
    let old = row(&table, &values);
    assert_eq!(
        encoded(&old),
        [
            &[0b01][..],                     // flag is NULL, at is not
            &[0x02, 0x01, 0xAC, 0x02],       // w, id
            &[3, b'a', b'n', b'n'],          // name
            &[5, 0x80, 0x01, 0xFF],          // sum, at, small
            &[0, 0, 0, 0, 0, 0, 0xF0, 0x3F], // ratio
            &[2, 0xC3, 0xA9],                // note
        ]
        .concat()
    );

    let mut after = values.clone();
    (after[2], after[5], after[6]) = (Some(true).into(), Value::NONE, 5i8.into());
    let new = row(&table, &after);
    let mut patch = vec![];
    assert_eq!(old.wire.encode_update(old.block.row(), new.block.row(), &mut patch), Updated::Patch);
    // Of flag, sum, at, small, ratio, note: flag, at, small; at is NULL; flag, small.
    assert_eq!(patch, [0b001101, 0b10, 1, 5]);

    let mut delta = vec![];
    old.wire.encode_delta(ColumnId(4), -100, &mut delta);
    assert_eq!(delta, [4, 0xC7, 0x01]);

    let mut key = vec![];
    old.block.encode(&KeyCodec::for_table(&table), |of_row| old.wire.encode_key(of_row, &mut key));
    assert_eq!(key, [0xFE, 0xFD, 0, 0, 1, 44]);
    let named = TableDef::builder("named").column(ColumnDef::new("name", ColumnType::LongText)).key(["name"]);
    let named = named.finish().expect("a sound declaration");
    let named = RowWire::new(&named, &Layout::new(&named.columns));
    let mut key = vec![];
    named.encode_key(Key::Bytes(b"ann\0"), &mut key);
    assert_eq!(key, [4, b'a', b'n', b'n', 0]);
}

#[test]
fn amounts_add_up_or_are_refused() {
    let integer = || prop_oneof![any::<i64>(), -3..3i64, Just(i64::MAX), Just(i64::MIN)];
    check(600, &(0..SUMS.len(), integer(), integer()), |(at, first, amount)| {
        let (ty, low, high) = SUMS[at];
        let table = table(&[ColumnDef::new("k", ColumnType::U8), ColumnDef::new("n", ty)], 1);
        let first = i128::from(first).clamp(low, high);
        let number = |n| of_type(ty, n);
        let row = row(&table, &[1u8.into(), number(first)]);
        let mut delta = vec![];
        row.wire.encode_delta(ColumnId(1), amount, &mut delta);
        prop_assert_eq!(row.wire.skip_delta(&mut &delta[..]), Ok(&delta[..]));
        let mut summed = row.block.copied();
        let added = row.wire.decode_delta(&delta, &mut summed.updating());
        let sum = first + i128::from(amount);
        let fits = (low..=high).contains(&sum);
        prop_assert_eq!(added, if fits { Ok(()) } else { Err(DecodeError::Overflow { column: 1 }) });
        let wanted = [1u8.into(), number(if fits { sum } else { first })];
        prop_assert!(same(&summed.values(&table.columns), &wanted));
        Ok(())
    });
}

#[test]
fn only_numbers_that_updates_change_are_sums() {
    let wire = row(&sample(), &sample_values()).wire;
    let sums: Vec<u16> = (0..100).filter(|&at| wire.sums(ColumnId(at))).collect();
    assert_eq!(sums, [4, 6]);
    let delta = [5, 2];
    assert_eq!(wire.skip_delta(&mut &delta[..]), Err(Malformed::NotASum { column: 5 }));
    let of_no_column = [0xFF, 0xFF, 0x7F, 2];
    assert_eq!(wire.skip_delta(&mut &of_no_column[..]), Err(Malformed::NotASum { column: 0x1F_FFFF }));
}

#[test]
fn a_value_that_does_not_fit_is_named() {
    let row = row(&sample(), &sample_values());
    let good = encoded(&row);
    let after = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        row.wire.skip_row(&mut &bytes[..]).expect_err("damaged")
    };
    assert_eq!(after(&|bytes| bytes[0] |= 4), Malformed::Padding);
    assert_eq!(after(&|bytes| bytes[6] = 0xFF), Malformed::NotUtf8 { column: 3 });
    let long = after(&|bytes| drop(bytes.splice(5..6, [0xAD, 0x02])));
    assert_eq!(long, Malformed::TooLong { column: 3, bytes: 301, max: 300 });
    assert_eq!(long.to_string(), "the value in column 3 has 301 bytes; the column has room for 300");
    let wide = after(&|bytes| drop(bytes.splice(3..5, [0xFF, 0xFF, 0xFF, 0xFF, 0x10])));
    assert_eq!(wide, Malformed::Number { column: 1 });
    assert_eq!(after(&|bytes| drop(bytes.splice(3..5, [0x80, 0]))), Malformed::Varint);
    let empty = [0];
    assert_eq!(row.wire.skip_patch(&mut &empty[..]), Err(Malformed::Empty));
    let far = [0b0100_0000];
    assert_eq!(row.wire.skip_patch(&mut &far[..]), Err(Malformed::Padding));
}

#[test]
fn a_long_text_without_memory_is_refused() {
    let row = row(&sample(), &sample_values());
    let mut decoded = Block::new(&Layout::new(&sample().columns));
    decoded.refuse_out_of_line();
    let outcome = row.wire.decode_row(&encoded(&row), &mut decoded.inserting());
    assert_eq!(outcome, Err(DecodeError::OutOfMemory(OutOfMemory)));
}

/// Orders of up to four lines, one of them without an amount.
fn lines(cluster: bool) -> TableDef {
    let column = |name: &'static str, ty| ColumnDef::new(name, ty);
    let table =
        TableDef::builder("line").column(column("order", ColumnType::U32)).column(column("number", ColumnType::U8));
    let table = table.column(column("amount", ColumnType::I32).nullable());
    let table = table.column(column("label", ColumnType::Text { max: 9 }).immutable()).key(["order", "number"]);
    if cluster { table.cluster(["order"]) } else { table }.finish().expect("a sound declaration")
}

/// A run of these lines, as the format says, with those of the table that is not clustered.
fn run_of(numbers: &[u8], is_followed: bool) -> Vec<u8> {
    let mut bytes = vec![2 * numbers.len() as u8 + u8::from(is_followed)];
    for &number in numbers {
        let amount = if number == 3 { Value::NONE } else { Value::from(-5i32).some() };
        let values = [Value::from(7u32), number.into(), amount, Value::Text("label".to_owned())];
        bytes.extend(encoded(&row(&lines(false), &values)));
    }
    bytes
}

#[test]
fn runs_come_back_and_what_is_cut_off_is_refused() {
    let table = lines(true);
    let layout = Layout::stored(&table);
    let wire = RowWire::new(&table, &layout);
    let decoded = |bytes: &[u8]| {
        let mut block = Block::new(&layout);
        wire.decode_row(bytes, &mut block.inserting()).expect("a run");
        block
    };
    let encoded = |block: &Block| {
        let mut bytes = vec![];
        wire.encode_row(block.row(), &mut bytes);
        bytes
    };
    for (numbers, is_followed) in [(&[][..], true), (&[1], false), (&[1, 2, 3, 4], true)] {
        let bytes = run_of(numbers, is_followed);
        assert_eq!(encoded(&decoded(&bytes)), bytes);
        let more = [&bytes[..], b"more"].concat();
        assert_eq!(wire.skip_row(&mut &more[..]), Ok(&bytes[..]));
        for cut in 0..bytes.len() {
            assert_eq!(wire.skip_row(&mut &bytes[..cut]), Err(Malformed::CutShort), "{cut} of {numbers:?}");
        }
        assert_eq!(wire.decode_row(&more, &mut Block::new(&layout).inserting()), Err(Malformed::Trailing.into()));
    }
    // An update writes a patch, and the whole run.
    let (before, after) = (decoded(&run_of(&[1, 2], false)), decoded(&run_of(&[1, 2, 3], false)));
    let mut patch = vec![];
    assert_eq!(wire.encode_update(before.row(), after.row(), &mut patch), Updated::Patch);
    let mut patched = before.copied();
    wire.decode_patch(&patch, &mut patched.updating()).expect("a patch");
    assert_eq!(encoded(&patched), run_of(&[1, 2, 3], false));
    let same = decoded(&run_of(&[1, 2], false));
    assert_eq!(wire.encode_update(before.row(), same.row(), &mut vec![]), Updated::Nothing);
    let followed = decoded(&run_of(&[1, 2], true));
    assert_eq!(wire.encode_update(before.row(), followed.row(), &mut vec![]), Updated::Patch);
}
