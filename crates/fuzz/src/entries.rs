//! Groups and entries of the log: what is read is what was there, byte by byte, up to the first error.
//!
//! Input: the payload of a batch.

use seriatim_base::{ColumnId, Epoch, LayoutId, Tid};
use seriatim_catalog::wire::write_varint;
use seriatim_redo::entry::{Change, GROUP_HEADER_BYTES, GroupWriter, Layouts, groups};

use crate::allocation;
use crate::table::{Row, TestTables, samples, test_tables};

pub(crate) fn run(data: &[u8]) {
    // Made outside of the bound, which is that of the input.
    let test_tables = test_tables();
    allocation::within(8 * data.len() + (4 << 10), || read(&test_tables, data));
}

fn read(test_tables: &TestTables, data: &[u8]) {
    let mut again = Vec::new();
    let mut ended = false;
    for group in groups(data) {
        assert!(!ended, "nothing comes after an error");
        let Ok(group) = group else {
            ended = true;
            continue;
        };
        assert_eq!(group.offset, again.len() + GROUP_HEADER_BYTES);
        assert!(!group.body.is_empty() && group.tid.bits() > 0);
        again.extend_from_slice(&(group.body.len() as u32).to_le_bytes());
        again.extend_from_slice(&group.tid.bits().to_le_bytes());
        let body = again.len();
        for entry in group.entries(test_tables) {
            let Ok(entry) = entry else { break };
            assert_eq!(entry.offset, again.len(), "an entry is where it says");
            let wire = test_tables.rows(entry.layout).expect("the entry was read by it");
            let (kind, bytes) = match entry.change {
                Change::Row(bytes) => (0, bytes),
                Change::Delete => (1, &[][..]),
                Change::Patch(bytes) => (2, bytes),
                Change::Delta(bytes) => (3, bytes),
            };
            if kind == 0 {
                let test_table = &test_tables.0[entry.layout.index()];
                assert!(Row::decoded(test_table, bytes).is_some(), "what was checked decodes");
            }
            write_varint(&mut again, u64::from(entry.layout.0) << 2 | kind);
            wire.encode_key(entry.key, &mut again);
            again.extend_from_slice(bytes);
            assert!(again.len() <= group.offset + group.body.len(), "an entry ends within its group");
        }
        assert!(group.body.starts_with(&again[body..]), "what decodes encodes to the same bytes");
        again.truncate(body);
        again.extend_from_slice(group.body);
    }
    assert!(data.starts_with(&again) && (ended || again == data));
}

/// A payload of commits of these epochs, and how many groups it has.
pub(crate) fn payload(epochs: &[u64]) -> (Vec<u8>, u32) {
    let (mut out, mut count) = (Vec::new(), 0);
    for (at, &epoch) in epochs.iter().enumerate() {
        let tid = Tid::from_bits(Tid::first_of(Epoch(epoch)).bits() + at as u64);
        let mut group = GroupWriter::begin(tid, &mut out);
        for (layout, test_table) in test_tables().0.iter().enumerate().take(3) {
            let layout = LayoutId(layout as u32);
            let rows = samples(test_table);
            for (number, row) in rows.iter().enumerate() {
                row.with_key(|key| match (at + number) % 4 {
                    3 => group.delete(layout, &test_table.wire, key),
                    _ => group.row(layout, &test_table.wire, key, row.get()),
                });
            }
            let sum = (0..test_table.definition.columns.len())
                .map(|at| ColumnId(at as u16))
                .find(|&at| test_table.wire.sums(at));
            if let Some(sum) = sum {
                rows[0].with_key(|key| group.delta(layout, &test_table.wire, key, sum, 7));
            }
        }
        count += group.finish();
    }
    (out, count)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [&[][..], &[3], &[3, 4, 9]].map(|epochs| payload(epochs).0).into()
}
