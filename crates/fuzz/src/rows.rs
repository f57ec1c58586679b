//! Rows, patches and deltas: what is taken off the front decodes, and a row encodes to the bytes it was.
//!
//! Input: table, kind, bytes.

use seriatim_base::ColumnId;
use seriatim_catalog::wire::{Malformed, Updated};

use crate::allocation;
use crate::reader::Reader;
use crate::table::{Row, TestTable, samples, test_tables};

const KINDS: u8 = 3;

pub(crate) fn run(data: &[u8]) {
    let mut input = Reader(data);
    let test_tables = test_tables().0;
    let test_table = &test_tables[usize::from(input.u8()) % test_tables.len()];
    let kind = input.u8() % KINDS;
    // A row of zeros, texts and what formatting values needs.
    allocation::within(16 * data.len() + (8 << 10), || match kind {
        0 => row(test_table, input.0),
        1 => change(
            test_table,
            input.0,
            |bytes| test_table.wire.skip_patch(bytes),
            |row, bytes| test_table.wire.decode_patch(bytes, &mut row.updating()).is_ok(),
        ),
        _ => change(
            test_table,
            input.0,
            |bytes| test_table.wire.skip_delta(bytes),
            |row, bytes| test_table.wire.decode_delta(bytes, &mut row.updating()).is_ok(),
        ),
    });
}

fn row(test_table: &TestTable, bytes: &[u8]) {
    let mut rest = bytes;
    let taken = test_table.wire.skip_row(&mut rest);
    let whole = Row::decoded(test_table, bytes);
    let Ok(taken) = taken else {
        assert_eq!(rest, bytes, "what is no row is left as it is");
        return assert!(whole.is_none(), "what cannot be taken cannot be decoded");
    };
    assert_eq!([taken, rest].concat(), bytes, "a row is taken off the front");
    assert_eq!(whole.is_some(), rest.is_empty(), "a row and nothing else");
    let row = Row::decoded(test_table, taken).expect("what was checked decodes");
    assert_eq!(row.encoded(), taken, "what decodes encodes to the same bytes");
    assert_eq!(row.values().len(), test_table.definition.columns.len());
}

/// A patch or delta of any row gives a row whose difference from it is a change, which gives that row again.
fn change<'a>(
    test_table: &TestTable,
    bytes: &'a [u8],
    skip: impl Fn(&mut &'a [u8]) -> Result<&'a [u8], Malformed>,
    decode: impl Fn(&mut Row<'_>, &[u8]) -> bool,
) {
    let mut rest = bytes;
    let Ok(taken) = skip(&mut rest) else { return assert_eq!(rest, bytes, "what is no change is left as it is") };
    assert_eq!([taken, rest].concat(), bytes, "a change is taken off the front");
    for before in [Row::new(test_table)].into_iter().chain(samples(test_table)) {
        let mut after = before.copied();
        if !decode(&mut after, taken) {
            // An amount that the column has no room for.
            continue;
        }
        let mut told = Vec::new();
        let mut again = before.copied();
        match test_table.wire.encode_update(before.get(), after.get(), &mut told) {
            Updated::Nothing => assert!(told.is_empty()),
            Updated::Patch => assert_eq!(test_table.wire.decode_patch(&told, &mut again.updating()), Ok(())),
            Updated::Delta => assert_eq!(test_table.wire.decode_delta(&told, &mut again.updating()), Ok(())),
            Updated::NotByUpdate => panic!("a change changed what no update changes"),
        }
        assert_eq!(again.encoded(), after.encoded(), "a difference gives the row again");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (table, test_table) in (0..).zip(test_tables().0) {
        let columns = || (0..test_table.definition.columns.len()).map(|at| ColumnId(at as u16));
        seeds.extend(samples(test_table).iter().map(|row| [&[table, 0][..], &row.encoded()].concat()));
        if let Some(sum) = columns().find(|&at| test_table.wire.sums(at)) {
            let mut delta = vec![table, 2];
            test_table.wire.encode_delta(sum, -300, &mut delta);
            seeds.push(delta);
        }
        // Some bits of a patch, and zeros for values: mutations find the rest.
        let updatable = columns().filter(|&at| test_table.definition.is_updatable(at)).count();
        seeds.push([&[table, 1][..], &vec![0x11; updatable.div_ceil(8)], &[0; 64]].concat());
    }
    seeds
}
