//! Layouts: the two ways to compute one agree, places do not overlap, and rows give back the values they were given,
//! also to expressions.

mod shared;

use proptest::collection::vec;
use proptest::prelude::*;
use seriatim_catalog::expression::{Binary, Bound, Datum, Expression, RowColumns, assigned};
use seriatim_catalog::{
    ColumnDef, ColumnLocation, ColumnSpec, ColumnType, Layout, RowPart, RowSizes, TableDef, Value as CatalogValue,
    place, row_sizes,
};
use shared::{Block, check, column_type, compare, same, value};

fn column() -> impl Strategy<Value = ColumnDef> {
    (column_type(), any::<bool>(), any::<bool>()).prop_map(|(ty, nullable, immutable)| ColumnDef {
        nullable,
        immutable,
        ..ColumnDef::new("c", ty)
    })
}

fn columns() -> impl Strategy<Value = Vec<ColumnDef>> {
    prop_oneof![vec(column(), 1..6), vec(column(), 1..40)]
}

/// The places by the function that derived tables use, which takes arrays.
fn derived(specs: &[ColumnSpec]) -> Vec<ColumnLocation> {
    fn of<const N: usize>(specs: &[ColumnSpec]) -> Option<Vec<ColumnLocation>> {
        Some(place::<N>(specs.try_into().ok()?).to_vec())
    }
    of::<1>(specs)
        .or_else(|| of::<2>(specs))
        .or_else(|| of::<7>(specs))
        .or_else(|| of::<33>(specs))
        .expect("a length above")
}

#[test]
fn compile_time_and_run_time_agree() {
    let lengths = prop_oneof![Just(1usize), Just(2), Just(7), Just(33)];
    let columns = lengths.prop_flat_map(|length| vec(column(), length));
    check(300, &columns, |columns| {
        let layout = Layout::new(&columns);
        let specs: Vec<ColumnSpec> = columns.iter().map(ColumnSpec::from).collect();
        prop_assert_eq!(derived(&specs), layout.places);
        prop_assert_eq!(row_sizes(&specs), RowSizes { row: layout.row_bytes, fixed: layout.fixed_bytes });
        Ok(())
    });
}

#[test]
fn places_and_null_bits_do_not_overlap() {
    check(300, &columns(), |columns| {
        let layout = Layout::new(&columns);
        for (part, bytes) in [(RowPart::Row, layout.row_bytes), (RowPart::Fixed, layout.fixed_bytes)] {
            prop_assert_eq!(bytes % 8, 0);
            // Each bit of the block by the number of columns that claim it.
            let mut claims = vec![0u8; 8 * bytes as usize];
            if part == RowPart::Row && layout.fixed_bytes > 0 {
                claims[..64].fill(1);
            }
            for place in layout.places.iter().filter(|place| place.part == part) {
                claims[8 * place.offset as usize..][..8 * place.bytes as usize]
                    .iter_mut()
                    .for_each(|claim| *claim += 1);
                if let Some((byte, mask)) = place.null {
                    prop_assert_eq!(mask.count_ones(), 1);
                    claims[8 * byte as usize + mask.trailing_zeros() as usize] += 1;
                }
            }
            prop_assert!(claims.iter().all(|&claim| claim <= 1));
            let used = claims.iter().filter(|&&claim| claim == 1).count();
            let nulls = columns.iter().filter(|column| column.nullable).count();
            // Nothing is wasted but the padding and the rest of the last NULL byte.
            prop_assert!(claims.len() - used < 64 + 8 || nulls == 0 && claims.len() - used < 64);
        }
        Ok(())
    });
}

#[test]
fn rows_give_back_what_they_were_given() {
    let rows = columns().prop_flat_map(|columns| {
        let values = columns.iter().map(value).collect::<Vec<_>>();
        (Just(columns), values.clone(), values)
    });
    check(300, &rows, |(columns, first, second)| {
        let mut block = Block::new(&Layout::new(&columns));
        block.insert_values(&columns, &first);
        prop_assert!(same(&block.values(&columns), &first));
        // Updating every mutable column gives the bytes of a row inserted so.
        let mut wanted = first.clone();
        for (at, column) in columns.iter().enumerate().filter(|(_, column)| !column.immutable) {
            prop_assert_eq!(block.set_value(column, at, &second[at]), Ok(()));
            wanted[at] = second[at].clone();
        }
        prop_assert!(same(&block.values(&columns), &wanted));
        let mut fresh = Block::new(&Layout::new(&columns));
        fresh.insert_values(&columns, &wanted);
        prop_assert_eq!(fresh.bytes(), block.bytes());
        Ok(())
    });
}

/// Two columns of one type, and a value of each.
fn two_values() -> impl Strategy<Value = (ColumnDef, [CatalogValue; 2])> {
    column().prop_flat_map(|column| {
        let values = [value(&column), value(&column)];
        (Just(column), values)
    })
}

#[test]
fn expressions_read_compare_and_write_the_values_of_rows() {
    check(600, &two_values(), |(column, values)| {
        let named = |name: &'static str| ColumnDef { name: name.into(), ..column.clone() };
        let columns = [named("a"), named("b"), ColumnDef::new("id", ColumnType::U8)];
        let table = columns.iter().cloned().fold(TableDef::builder("t"), |table, column| table.column(column));
        let table = table.key(["id"]).finish().expect("a sound declaration");
        let mut block = Block::new(&Layout::of(&table));
        block.insert_values(&columns, &[values[0].clone(), values[1].clone(), 1u8.into()]);
        let (row_columns, none) = (RowColumns::of(&table), []);
        let bound = |expression: &Expression| Bound::new(expression, &table, &mut []).expect("sound");
        let (a, b) = (Expression::column("a"), Expression::column("b"));

        let of_a = bound(&a);
        let datum = of_a.evaluate(row_columns.row(block.row()), &none).expect("a column has a value");
        let stored = assigned(datum.clone(), of_a.column_type(), &columns[0]);
        prop_assert!(
            stored.as_ref().is_ok_and(|stored| same(std::slice::from_ref(stored), &values[..1])),
            "{:?}",
            stored
        );

        let is_less = bound(&a.clone().with(Binary::Less, b.clone()));
        let found = is_less.evaluate(row_columns.row(block.row()), &none).expect("values of one type are compared");
        let is_null = |value: &CatalogValue| *value == CatalogValue::NONE;
        let wanted = match values.iter().any(is_null) {
            true => Datum::Null,
            false => Datum::Bool(compare(&values[0], &values[1]).is_lt()),
        };
        prop_assert_eq!(found, wanted);

        // As a constant, and as the text of one; types of enums have no text.
        let constant = Expression::value(&values[0], column.ty).expect("a value of the type");
        let again = match column.ty {
            ColumnType::Enum { .. } => constant.clone(),
            _ => constant.to_string().parse::<Expression>().expect("an expression is read again"),
        };
        prop_assert_eq!(&again, &constant);
        let constant = bound(&again);
        let value = constant.constant().map(|datum| assigned(datum, constant.column_type(), &columns[0]));
        let is_same = |value: &CatalogValue| compare(value, &values[0]).is_eq();
        prop_assert!(value.as_ref().is_some_and(|value| value.as_ref().is_ok_and(is_same)), "{again}: {value:?}");
        Ok(())
    });
}
