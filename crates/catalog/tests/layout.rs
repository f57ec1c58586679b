//! Layouts: the two ways to compute one agree, places do not overlap, and rows give back the values they were given.

mod shared;

use proptest::collection::vec;
use proptest::prelude::*;
use seriatim_catalog::{ColumnDef, ColumnLocation, ColumnSpec, Layout, RowPart, RowSizes, place, row_sizes};
use shared::{Block, check, column_type, same, value};

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
