//! Rows, patches and deltas: what is taken off the front decodes, and a row encodes to the bytes it was.
//!
//! Input: table, kind, bytes.

use seriatim_base::ColumnId;
use seriatim_catalog::wire::{Malformed, Updated};

use crate::allocation;
use crate::reader::Reader;
use crate::table::{Row, Shape, samples, shapes};

const KINDS: u8 = 3;

pub(crate) fn run(data: &[u8]) {
    let mut input = Reader(data);
    let shapes = shapes().0;
    let shape = &shapes[usize::from(input.u8()) % shapes.len()];
    let kind = input.u8() % KINDS;
    // A row of zeros, texts and what formatting values needs.
    allocation::within(8 * data.len() + (4 << 10), || match kind {
        0 => row(shape, input.0),
        1 => change(
            shape,
            input.0,
            |bytes| shape.wire.skip_patch(bytes),
            |row, bytes| shape.wire.decode_patch(bytes, &mut row.updating()).is_ok(),
        ),
        _ => change(
            shape,
            input.0,
            |bytes| shape.wire.skip_delta(bytes),
            |row, bytes| shape.wire.decode_delta(bytes, &mut row.updating()).is_ok(),
        ),
    });
}

fn row(shape: &Shape, bytes: &[u8]) {
    let mut rest = bytes;
    let taken = shape.wire.skip_row(&mut rest);
    let whole = Row::decoded(shape, bytes);
    let Ok(taken) = taken else {
        assert_eq!(rest, bytes, "what is no row is left as it is");
        return assert!(whole.is_none(), "what cannot be taken cannot be decoded");
    };
    assert_eq!([taken, rest].concat(), bytes, "a row is taken off the front");
    assert_eq!(whole.is_some(), rest.is_empty(), "a row and nothing else");
    let row = Row::decoded(shape, taken).expect("what was checked decodes");
    assert_eq!(row.encoded(), taken, "what decodes encodes to the same bytes");
    assert_eq!(row.values().len(), shape.definition.columns.len());
}

/// A patch or delta of any row gives a row whose difference from it is a change, which gives that row again.
fn change<'a>(
    shape: &Shape,
    bytes: &'a [u8],
    skip: impl Fn(&mut &'a [u8]) -> Result<&'a [u8], Malformed>,
    decode: impl Fn(&mut Row<'_>, &[u8]) -> bool,
) {
    let mut rest = bytes;
    let Ok(taken) = skip(&mut rest) else { return assert_eq!(rest, bytes, "what is no change is left as it is") };
    assert_eq!([taken, rest].concat(), bytes, "a change is taken off the front");
    for before in [Row::new(shape)].into_iter().chain(samples(shape)) {
        let mut after = before.copied();
        if !decode(&mut after, taken) {
            // An amount that the column has no room for.
            continue;
        }
        let mut told = Vec::new();
        let mut again = before.copied();
        match shape.wire.encode_update(before.get(), after.get(), &mut told) {
            Updated::Nothing => assert!(told.is_empty()),
            Updated::Patch => assert_eq!(shape.wire.decode_patch(&told, &mut again.updating()), Ok(())),
            Updated::Delta => assert_eq!(shape.wire.decode_delta(&told, &mut again.updating()), Ok(())),
            Updated::NotByUpdate => panic!("a change changed what no update changes"),
        }
        assert_eq!(again.encoded(), after.encoded(), "a difference gives the row again");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (table, shape) in (0..).zip(shapes().0) {
        let columns = || (0..shape.definition.columns.len()).map(|at| ColumnId(at as u16));
        seeds.extend(samples(shape).iter().map(|row| [&[table, 0][..], &row.encoded()].concat()));
        if let Some(sum) = columns().find(|&at| shape.wire.sums(at)) {
            let mut delta = vec![table, 2];
            shape.wire.encode_delta(sum, -300, &mut delta);
            seeds.push(delta);
        }
        // Some bits of a patch, and zeros for values: mutations find the rest.
        let updatable = columns().filter(|&at| shape.definition.is_updatable(at)).count();
        seeds.push([&[table, 1][..], &vec![0x11; updatable.div_ceil(8)], &[0; 64]].concat());
    }
    seeds
}
