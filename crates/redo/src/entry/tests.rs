//! Entries are read back in their groups. Random payloads are read, or refused with an offset.

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use seriatim_base::{Epoch, rng};
use seriatim_catalog::{ColumnDef, ColumnType, Layout, NoOutOfLine, RowWriter, TableDef, Value};

use super::*;

/// A table with rows of plain numbers, and memory for such rows.
struct Accounts {
    table: TableDef,
    layout: Layout,
    wire: RowWire,
}

const LAYOUT: LayoutId = LayoutId(40);

impl Layouts for Accounts {
    fn rows(&self, layout: LayoutId) -> Option<&RowWire> {
        (layout == LAYOUT).then_some(&self.wire)
    }
}

impl Accounts {
    fn new() -> Accounts {
        let table = TableDef::builder("account")
            .column(ColumnDef::new("id", ColumnType::U32))
            .column(ColumnDef::new("balance", ColumnType::I64))
            .column(ColumnDef::new("name", ColumnType::Text { max: 20 }).nullable())
            .key(["id"])
            .finish()
            .expect("a sound declaration");
        let layout = Layout::new(&table.columns);
        let wire = RowWire::new(&table, &layout);
        Accounts { table, layout, wire }
    }

    fn writing<R>(&self, image: &mut [u64], with: impl FnOnce(&mut RowWriter<'_>) -> R) -> R {
        let row: *mut u8 = image.as_mut_ptr().cast();
        let mut out_of_line_values = NoOutOfLine;
        // SAFETY: the image is all zeros or a row of this table. No column is immutable.
        with(&mut unsafe { RowWriter::for_insert(row, row, &mut out_of_line_values) })
    }

    fn row(&self, id: u32, balance: i64, name: Option<&str>) -> Vec<u64> {
        let mut image = vec![0; self.layout.row_bytes as usize / 8];
        let values = [Value::from(id), Value::from(balance), Value::from(name)];
        self.writing(&mut image, |row| {
            for ((column, place), value) in self.table.columns.iter().zip(&self.layout.places).zip(&values) {
                value.write(column, place, row).expect("values of the columns' types");
            }
        });
        image
    }

    fn values(&self, image: &[u64]) -> Vec<Value> {
        let columns = self.table.columns.iter().zip(&self.layout.places);
        columns.map(|(column, place)| Value::read(column, place, as_row(image))).collect()
    }

    /// The keys and changes of a payload's entries.
    fn read<'a>(&self, payload: &'a [u8]) -> Result<Vec<(Tid, u64, Change<'a>)>, EntryError> {
        let mut read = Vec::new();
        for group in groups(payload) {
            let group = group?;
            for entry in group.entries(self) {
                let entry = entry?;
                let Key::Word8(key) = entry.key else { panic!("keys of one word") };
                read.push((group.tid, key, entry.change));
            }
        }
        Ok(read)
    }
}

fn as_row(image: &[u64]) -> RowRef<'_> {
    // SAFETY: the images of these tests are rows of their one table, written by `Accounts::row`.
    unsafe { RowRef::from_raw(image.as_ptr().cast()) }
}

fn tid(epoch: u64) -> Tid {
    Tid::first_of(Epoch(epoch))
}

/// Two commits of several entries each.
fn payload(accounts: &Accounts) -> Vec<u8> {
    let wire = &accounts.wire;
    let mut out = vec![];
    let (ann, richer) = (accounts.row(1, 5, Some("ann")), accounts.row(1, 500, Some("ann")));
    let other = accounts.row(2, 5, None);
    let mut group = GroupWriter::begin(tid(3), &mut out);
    group.row(LAYOUT, wire, Key::Word8(1), as_row(&ann));
    assert_eq!(group.update(LAYOUT, wire, Key::Word8(1), as_row(&ann), as_row(&richer)), Updated::Patch);
    assert_eq!(group.update(LAYOUT, wire, Key::Word8(1), as_row(&ann), as_row(&ann)), Updated::Nothing);
    assert_eq!(group.finish(), 1);
    let mut group = GroupWriter::begin(tid(4), &mut out);
    group.delta(LAYOUT, wire, Key::Word8(1), ColumnId(1), -7);
    group.tid(tid(5));
    group.delete(LAYOUT, wire, Key::Word8(9));
    // A changed key, which no patch can express.
    assert_eq!(group.update(LAYOUT, wire, Key::Word8(2), as_row(&ann), as_row(&other)), Updated::NotByUpdate);
    assert_eq!(group.finish(), 2);
    out
}

#[test]
fn commits_come_back_entry_by_entry() {
    let accounts = Accounts::new();
    let bytes = payload(&accounts);
    let read = accounts.read(&bytes).expect("as written");
    let tids: Vec<_> = read.iter().map(|(tid, key, _)| (tid.epoch().0, *key)).collect();
    assert_eq!(tids, [(3, 1), (3, 1), (4, 1), (5, 9), (5, 2)]);
    let mut image = accounts.row(0, 0, None);
    let mut balances = vec![];
    for (_, _, change) in &read {
        let applied = accounts.writing(&mut image, |row| match change {
            Change::Row(bytes) => accounts.wire.decode_row(bytes, row),
            Change::Patch(bytes) => accounts.wire.decode_patch(bytes, row),
            Change::Delta(bytes) => accounts.wire.decode_delta(bytes, row),
            Change::Delete => Ok(()),
        });
        assert_eq!(applied, Ok(()));
        balances.push(accounts.values(&image)[1].clone());
    }
    assert_eq!(balances, [5, 500, 493, 493, 5i64].map(Value::from));
}

/// The bytes of the format, which existing files have. If this test fails, raise the manifest's format.
#[test]
fn the_format_is_these_bytes() {
    let bytes = payload(&Accounts::new());
    let row = [160, 1, 0, 0, 0, 1, 0, 1, 10, 3, b'a', b'n', b'n'];
    let patch = [162, 1, 0, 0, 0, 1, 0b01, 0xE8, 0x07];
    let first = [&[22, 0, 0, 0], &tid(3).bits().to_le_bytes()[..], &row, &patch].concat();
    assert_eq!(bytes[..first.len()], first);
    let delta = [163, 1, 0, 0, 0, 1, 1, 13];
    let second = [&[8, 0, 0, 0], &tid(4).bits().to_le_bytes()[..], &delta].concat();
    assert_eq!(bytes[first.len()..][..second.len()], second);
    let (delete, row) = ([161, 1, 0, 0, 0, 9], [160, 1, 0, 0, 0, 2, 1, 2, 10]);
    let third = [&[15, 0, 0, 0], &tid(5).bits().to_le_bytes()[..], &delete, &row].concat();
    assert_eq!(bytes[first.len() + second.len()..], third);
}

#[test]
fn an_update_that_adds_to_one_column_is_a_delta_where_that_is_shorter() {
    let accounts = Accounts::new();
    let wire = &accounts.wire;
    let row = |balance, name| accounts.row(1, balance, name);
    let updates = [
        (row(500, Some("ann")), row(501, Some("ann")), Updated::Delta),
        (row(501, Some("ann")), row(-500, Some("ann")), Updated::Patch),
        (row(-500, Some("ann")), row(-501, None), Updated::Patch),
        (row(-501, None), row(-501, Some("bob")), Updated::Patch),
        (row(-501, Some("bob")), row(-564, Some("bob")), Updated::Delta),
        (row(i64::MAX, None), row(i64::MIN, None), Updated::Patch),
        (row(i64::MIN, None), row(i64::MIN + 1, None), Updated::Delta),
    ];
    for layout in [LAYOUT, LayoutId(u32::MAX)] {
        let mut out = vec![];
        let mut group = GroupWriter::begin(tid(3), &mut out);
        for (before, after, form) in &updates {
            let updated = group.update(layout, wire, Key::Word8(1), as_row(before), as_row(after));
            assert_eq!(updated, *form);
        }
        group.finish();
        if layout != LAYOUT {
            continue;
        }
        let read = accounts.read(&out).expect("as written");
        assert_eq!(read.len(), updates.len());
        for ((_, key, change), (before, after, form)) in read.iter().zip(&updates) {
            let mut image = before.clone();
            let (applied, is) = accounts.writing(&mut image, |row| match change {
                Change::Patch(bytes) => (wire.decode_patch(bytes, row), Updated::Patch),
                Change::Delta(bytes) => (wire.decode_delta(bytes, row), Updated::Delta),
                other => panic!("{other:?}"),
            });
            assert_eq!((applied, is, *key), (Ok(()), *form, 1));
            assert_eq!(accounts.values(&image), accounts.values(after));
        }
        assert_eq!(out[12..][..8], [163, 1, 0, 0, 0, 1, 1, 2], "a delta of one to column 1");
    }
}

#[test]
fn the_document_has_the_kinds() {
    let document = include_str!("../../FORMAT.md");
    for (kind, name) in [(ROW, "row"), (DELETE, "delete"), (PATCH, "patch"), (DELTA, "delta")] {
        assert!(document.contains(&format!("| {kind} | {name} |")), "{name}");
    }
    assert!(document.contains(&format!("layout id × {} + kind", 1 << KIND_BITS)));
    assert!(document.contains(&format!("| {GROUP_HEADER_BYTES} | | entries")));
}

#[test]
fn a_commit_without_entries_is_no_group() {
    let mut out = vec![7];
    assert_eq!(GroupWriter::begin(tid(1), &mut out).finish(), 0);
    assert_eq!(out, [7]);
}

#[test]
fn a_large_commit_is_cut_into_groups_of_its_tid() {
    let accounts = Accounts::new();
    let (mut out, row) = (vec![], accounts.row(1, 1, Some("twenty letters, no l")));
    let mut writer = GroupWriter::begin(tid(8), &mut out);
    for _ in 0..1000 {
        writer.row(LAYOUT, &accounts.wire, Key::Word8(1), as_row(&row));
    }
    let written = writer.finish();
    let read: Vec<_> = groups(&out).map(|group| group.expect("as written")).collect();
    assert!(written > 10 && read.len() == written as usize);
    assert!(read.iter().all(|group| group.tid == tid(8) && group.body.len() < 2 * CUT_BYTES));
    assert_eq!(accounts.read(&out).map(|entries| entries.len()), Ok(1000));
}

#[test]
fn an_error_has_the_offset_of_its_group_or_entry() {
    let accounts = Accounts::new();
    let good = payload(&accounts);
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let EntryError { offset, problem } = accounts.read(&bytes).expect_err("damaged");
        (offset, problem)
    };
    // The groups begin at 0, 34 and 54; the entries of the first at 12 and 25.
    assert_eq!(error(&|bytes| bytes.truncate(60)), (54, Problem::GroupCutShort));
    assert_eq!(error(&|bytes| bytes[34] = 200), (34, Problem::GroupCutShort));
    assert_eq!(error(&|bytes| bytes[34] = 0), (34, Problem::EmptyGroup));
    assert_eq!(error(&|bytes| bytes[11] = 0xFF), (0, Problem::Tid));
    assert_eq!(error(&|bytes| bytes[4..12].fill(0)), (0, Problem::Tid));
    assert_eq!(error(&|bytes| bytes[13] = 2), (12, Problem::Layout(72)));
    assert_eq!(error(&|bytes| bytes[0] = 21), (25, Problem::Malformed(Malformed::CutShort)));
    assert_eq!(error(&|bytes| bytes[31] = 0), (25, Problem::Malformed(Malformed::Empty)));
    let shown = EntryError { offset: 25, problem: Problem::Malformed(Malformed::Empty) }.to_string();
    assert_eq!(shown, "at byte 25 of the payload: an entry is not of its layout: a patch changes no column");
    assert_eq!(accounts.read(&good).map(|entries| entries.len()), Ok(5));
}

/// Reading random bytes must end without a panic, and offsets of errors must lie in the payload.
#[test]
fn payloads_from_anywhere_are_read_or_refused() {
    let accounts = Accounts::new();
    let good = payload(&accounts);
    let damage = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let noise = proptest::collection::vec(any::<u8>(), 0..100);
    let seed = rng::seed("payloads_from_anywhere_are_read_or_refused");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&(damage, noise), |(damage, noise)| {
        let mut bytes = good.clone();
        for (at, byte) in &damage {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        for payload in [bytes, noise] {
            match accounts.read(&payload) {
                Ok(_) => {}
                Err(error) => prop_assert!(error.offset < payload.len()),
            }
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
