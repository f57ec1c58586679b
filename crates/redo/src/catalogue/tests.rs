//! A catalogue is read as its rows say at the end of the log, or refused.

use std::sync::Arc;

use expect_test::expect;
use seriatim_base::Epoch;
use seriatim_base::disk::Disk;
use seriatim_catalog::wire::{RowWire, write_varint};
use seriatim_catalog::{Checked, Identity, Layout, OnChange, Organization, OutOfLineStore, OutOfMemory, RowWriter};

use super::*;
use crate::LogError;
use crate::backup::verify;
use crate::checkpoint::CheckpointWriter;
use crate::replay::Replay;
use crate::synthetic::{Accounts, DATABASE, Database, Keeper, Write, as_row, tid};

fn entry(id: u32, name: &str, position: u64) -> TableEntry {
    let definition = TableDef::builder(name.to_owned())
        .column(ColumnDef::new("id", ColumnType::U64))
        .column(ColumnDef::new("tag", ColumnType::U32).nullable())
        .key(["id"])
        .unique_index("by_tag", ["tag"], Organization::Hash)
        .finish()
        .unwrap();
    TableEntry { id: TableId(id), definition, indexes: vec![TableId(id + 1)], position, is_void: false }
}

fn layout(id: u32) -> LayoutEntry {
    LayoutEntry { id: LayoutId(id), table: TableId(id) }
}

fn rows(entry: &TableEntry) -> Vec<Row> {
    entry.rows(&[layout(entry.id.0)])
}

#[test]
fn the_format_is_these_rows() {
    let rows = rows(&entry(4, "item", 7));
    let shown = rows.iter().map(|row| format!("{:?} {}", row.key, row.body.replace("\",", "\",\n  ")));
    let shown: Vec<String> = shown.collect();
    expect![[r#"
        (4, 0, 0) {"id":4,"name":"item",
          "key":[{"column":0,"descending":false}],"organization":"ordered",
          "capacity":0,"position":7}
        (4, 1, 0) {"name":"id",
          "type":"u64",
          "nullable":false,"immutable":false}
        (4, 1, 1) {"name":"tag",
          "type":"u32",
          "nullable":true,"immutable":false}
        (4, 2, 0) {"id":5,"name":"by_tag",
          "key":[{"column":1,"descending":false}],"unique":true,"nulls_distinct":true,"organization":"hash"}
        (4, 3, 4) {}"#]]
    .assert_eq(&shown.join("\n"));
    let mut bytes = Vec::new();
    row_bytes(&rows[4], &mut bytes);
    let definition = definition();
    let wire = RowWire::new(&definition, &Layout::stored(&definition));
    assert_eq!(wire.skip_row(&mut &bytes[..]), Ok(&bytes[..]), "this is how the catalogue's own layout encodes a row");
}

#[test]
fn foreign_keys_are_rows_that_agree_with_other_tables() {
    let mut child = entry(6, "child", 1);
    let reference = || ReferenceDef::new(["tag"], "item").referenced(["tag"]).named("to_item");
    child.definition.references = vec![reference().on_delete(OnChange::SetNull).deferred(), reference().named("other")];
    let [child_rows, item_rows] = [rows(&child), rows(&entry(4, "item", 0))];
    let shown = child_rows
        .iter()
        .filter(|row| row.key.1 == 6)
        .map(|row| format!("{:?} {}", row.key, row.body.replace("],", "],\n  ")));
    expect![[r#"
        (6, 6, 0) {"name":"to_item","columns":["tag"],
          "table":"item","referenced":["tag"],
          "on_delete":"set_null","checked":"deferred"}
        (6, 6, 1) {"name":"other","columns":["tag"],
          "table":"item","referenced":["tag"]}"#]]
    .assert_eq(&shown.collect::<Vec<_>>().join("\n"));
    let both: Vec<Row> = child_rows.iter().chain(&item_rows).cloned().collect();
    assert_eq!(Catalogue::of_rows(both.clone()).unwrap().tables, [entry(4, "item", 0), child]);
    let refused = |rows: Vec<Row>| Catalogue::of_rows(rows).expect_err("it makes no sense");
    expect!["table `child`: reference `to_item` refers to table `item`, which there is not"]
        .assert_eq(&refused(child_rows));
    expect!["table 6 lacks one of its references"]
        .assert_eq(&refused(both.into_iter().filter(|row| row.key != (6, 6, 0)).collect()));
}

#[test]
fn an_index_says_when_it_is_checked() {
    let mut entry = entry(4, "item", 0);
    entry.definition.indexes[0].checked = Checked::Deferrable;
    let rows = rows(&entry);
    let index = rows.iter().find(|row| row.key == (4, 2, 0)).expect("it has an index");
    assert!(index.body.contains(r#""nulls_distinct":true,"checked":"deferrable""#), "{}", index.body);
    assert_eq!(Catalogue::of_rows(rows).expect("they make a table").tables, [entry]);
}

#[test]
fn conditions_are_rows_of_their_own() {
    let mut entry = entry(4, "item", 7);
    let conditions = [(Some("small".into()), "tag<9".into()), (None, "id > 0".into())];
    entry.definition = entry.definition.with_checks(conditions);
    let rows = rows(&entry);
    let shown: Vec<&str> = rows.iter().filter(|row| row.key.1 == 4).map(|row| &*row.body).collect();
    let wanted = [r#"{"name":"small","expression":"tag < 9"}"#, r#"{"name":"item_id_check","expression":"id > 0"}"#];
    assert_eq!(shown, wanted);
    let catalogue = Catalogue::of_rows(rows.clone()).expect("they make a table");
    assert_eq!(catalogue.tables, [entry]);
    let refused = |change: &dyn Fn(&mut Row)| {
        let changed = rows.iter().cloned().map(|mut row| {
            if row.key == (4, 4, 0) {
                change(&mut row);
            }
            row
        });
        Catalogue::of_rows(changed.collect::<Vec<_>>()).expect_err("they make no sense")
    };
    assert_eq!(refused(&|row| row.key.2 = 2), "table 4 lacks one of its conditions");
    let problem = refused(&|row| row.body = row.body.replace("tag < 9", "tag <"));
    assert!(problem.contains("condition `small`: in `tag <`: write a value"), "{problem}");
    let problem = refused(&|row| row.body = row.body.replace("}", ",\"more\":1}"));
    assert!(problem.contains("row 0 of kind 4 of table 4: unknown field `more`"), "{problem}");
}

#[test]
fn rows_that_do_not_make_tables_are_refused() {
    let sound = rows(&entry(4, "item", 0));
    let refused = |change: &dyn Fn(&mut Vec<Row>)| {
        let mut rows = sound.clone();
        change(&mut rows);
        Catalogue::of_rows(rows).expect_err("they make no sense")
    };
    assert_eq!(Catalogue::of_rows(sound.clone()).unwrap().tables, [entry(4, "item", 0)]);
    expect!["there are rows of table 4, but none that says what it is"]
        .assert_eq(&refused(&|rows| drop(rows.remove(0))));
    expect!["table 4 lacks one of its columns"].assert_eq(&refused(&|rows| drop(rows.remove(1))));
    expect!["table 4 lacks one of its indexes"].assert_eq(&refused(&|rows| rows[3].key.2 = 1));
    expect!["row 1 of kind 0 of table 4: this program knows no such row"]
        .assert_eq(&refused(&|rows| rows[0].key.2 = 1));
    expect!["row 4 of kind 99 of table 4: this program knows no such row"]
        .assert_eq(&refused(&|rows| rows[4].key.1 = 99));
    expect!["layout id 16383 is used twice, or not below 16383"].assert_eq(&refused(&|rows| rows[4].key.2 = 16383));
    expect!["row 0 of kind 1 of table 4: missing field `name` at line 1 column 2"]
        .assert_eq(&refused(&|rows| rows[1].body = "{}".to_owned()));
    expect!["the row of table 4 has columns or indexes, which are rows of their own"]
        .assert_eq(&refused(&|rows| rows[0].body.insert_str(1, "\"columns\":[],")));
    expect!["the row of table 4 says that it is table 5"]
        .assert_eq(&refused(&|rows| rows[0].body = rows[0].body.replace("\"id\":4", "\"id\":5")));
    expect!["table `item` has the place 9223372036854775808; places are below 9223372036854775808"]
        .assert_eq(&refused(&|rows| rows[0].body.insert_str(1, "\"position\":9223372036854775808,")));
    expect!["there are two tables `item`"].assert_eq(&refused(&|rows| rows.extend(self::rows(&entry(6, "item", 1)))));
    // A table that is void leaves its name to another.
    let void = TableEntry { is_void: true, ..entry(6, "item", 0) };
    let both = Catalogue::of_rows(sound.into_iter().chain(self::rows(&void))).unwrap();
    assert_eq!(both.tables, [entry(4, "item", 0), void], "by position, then by id");
}

#[test]
fn a_sequence_is_two_rows() {
    let definition = SequenceDef::new("ticket").maximum(i64::MAX);
    let free = SequenceEntry { id: 7, definition, owner: None, reserved: Reserved { last: 32, given: true } };
    let shown: Vec<String> = free.rows().iter().map(|row| format!("{:?} {}", row.key, row.body)).collect();
    expect![[r#"
        (7, 8, 0) {"sequence":{"name":"ticket","type":"i64","options":{"maximum":9223372036854775807}}}
        (7, 9, 0) {"last":32,"given":true}"#]]
    .assert_eq(&shown.join("\n"));
    let mut numbered = entry(4, "item", 3);
    numbered.definition.columns[0].identity = Some(Identity::always());
    let definition = SequenceDef::new("item_id_seq").ty(ColumnType::U64);
    let own = SequenceEntry { id: 2, definition, owner: Some(3), reserved: Reserved { last: 1, given: false } };
    let all = |sequences: &[&SequenceEntry]| {
        let rows = rows(&numbered).into_iter().chain(sequences.iter().flat_map(|sequence| sequence.rows()));
        Catalogue::of_rows(rows)
    };
    assert_eq!(all(&[&free, &own]).expect("they make sense").sequences, [own.clone(), free.clone()]);
    let refused = |sequences: &[&SequenceEntry]| all(sequences).expect_err("they make no sense");
    expect!["the identity column of table `item` has no sequence"].assert_eq(&refused(&[&free]));
    let twin = SequenceEntry { id: 8, ..free.clone() };
    expect!["there are two sequences `ticket`"].assert_eq(&refused(&[&free, &own, &twin]));
    let second = SequenceEntry { id: 9, definition: SequenceDef::new("other"), ..own.clone() };
    expect!["table `item` has no use for sequence `other`"].assert_eq(&refused(&[&own, &second]));
    expect!["sequence `other` is of a table that there is not"]
        .assert_eq(&refused(&[&own, &SequenceEntry { owner: Some(1), ..second.clone() }]));
    let beyond = Reserved { last: 0, given: true };
    expect!["sequence `other` has got to 0; its numbers are 1 to 9223372036854775807"]
        .assert_eq(&refused(&[&own, &SequenceEntry { owner: None, reserved: beyond, ..second }]));
    let [declared, reserved] = free.rows();
    expect!["sequence 7 does not say how far it has got"]
        .assert_eq(&Catalogue::of_rows([declared.clone()]).expect_err("half of it"));
    expect!["there is a row of sequence 7, but none that says what it is"]
        .assert_eq(&Catalogue::of_rows([reserved.clone()]).expect_err("half of it"));
    let unknown = Row { body: declared.body.replace("options", "opinions"), ..declared };
    let error = Catalogue::of_rows([unknown, reserved]).expect_err("a field that this program does not know");
    assert!(error.starts_with("row of kind 8 of sequence 7: unknown field `opinions`"), "{error}");
}

/// Appends the encoding of a row's columns.
fn row_bytes(row: &Row, out: &mut Vec<u8>) {
    let (object, kind, number) = row.key;
    write_varint(out, object.into());
    out.push(kind);
    write_varint(out, number.into());
    write_varint(out, row.body.len() as u64);
    out.extend_from_slice(row.body.as_bytes());
}

/// A change of a row.
enum Change<'r> {
    Row(&'r Row),
    Patch(&'r Row),
    Delete(&'r Row),
}

/// A group with these changes.
fn group(epoch: u64, counter: u64, changes: &[Change<'_>]) -> Vec<u8> {
    let mut entries = Vec::new();
    for change in changes {
        let (kind, row) = match change {
            Change::Row(row) => (0, row),
            Change::Delete(row) => (1, row),
            Change::Patch(row) => (2, row),
        };
        write_varint(&mut entries, u64::from(LAYOUT.0) << 2 | kind);
        let (object, of, number) = row.key;
        entries.extend([&object.to_be_bytes()[..], &[of], &number.to_be_bytes()].concat());
        match change {
            Change::Row(row) => row_bytes(row, &mut entries),
            Change::Patch(row) => {
                entries.push(1);
                write_varint(&mut entries, row.body.len() as u64);
                entries.extend_from_slice(row.body.as_bytes());
            }
            Change::Delete(_) => {}
        }
    }
    let mut bytes = (entries.len() as u32).to_le_bytes().to_vec();
    bytes.extend(tid(epoch, counter).bits().to_le_bytes());
    bytes.extend(entries);
    bytes
}

/// A database with these batches of the catalogue: logger, epoch that it closes, groups.
fn database(loggers: usize, batches: &[(u32, u64, Vec<u8>)]) -> Database {
    let mut database = Database::new(1, loggers);
    for (logger, closed, payload) in batches {
        let tids = crate::entry::groups(payload).map(|group| group.unwrap().tid);
        let (groups, newest) = tids.fold((0, Epoch(0)), |(count, newest), tid| (count + 1, tid.epoch().max(newest)));
        database.payload((1, *logger), [Epoch(*closed), Epoch(9)], newest, (payload, groups, true));
    }
    database
}

fn found(database: &Database) -> Result<Found, LogError> {
    let replay = Replay::open(&database.disk, &database.directory, &database.manifest)?;
    Ok(replay.catalogue().clone())
}

fn names(found: &Found) -> Vec<(u32, &str, bool)> {
    let told = |table: &'_ TableEntry| (table.id.0, table.is_void);
    let all = found.catalogue.tables.iter();
    all.map(|table| (told(table).0, &*table.definition.name, told(table).1)).collect()
}

/// Logger 1 has the later changes and is read after logger 0, or before it: TIDs tell.
#[test]
fn the_last_change_of_each_row_counts_whatever_log_it_is_in() {
    let (item, other) = (rows(&entry(20, "item", 1)), rows(&entry(30, "other", 2)));
    let add = |rows: &[Row], epoch, counter| group(epoch, counter, &rows.iter().map(Change::Row).collect::<Vec<_>>());
    let void = TableEntry { is_void: true, ..entry(20, "item", 1) }.row();
    let renamed = entry(20, "renamed", 1).row();
    for loggers in [[0, 1], [1, 0]] {
        let [early, late] = loggers;
        let batches = [
            (early, 11, [add(&item, 10, 1), add(&other, 11, 2)].concat()),
            (late, 11, group(11, 1, &[Change::Patch(&void)])),
            (early, 13, group(12, 1, &[Change::Patch(&renamed)])),
            (late, 13, group(13, 1, &other.iter().map(Change::Delete).collect::<Vec<_>>())),
            // Void: logger `early` has not closed this epoch.
            (late, 14, group(14, 1, &[Change::Patch(&void)])),
        ];
        let database = database(2, &batches);
        let found = found(&database).unwrap();
        assert_eq!(names(&found), [(7, "account", false), (20, "renamed", false)]);
        assert_eq!(found.entries, 5 + 5 + 1 + 1 + 5, "those of durable epochs");
        let verified = verify(&database.disk, &database.directory, &|_, _| {}).unwrap();
        assert_eq!(verified.entries, 0, "they are no rows of tables");
    }
}

/// A commit creates a table and writes rows, in two groups of two batches. The second batch closes their epoch.
#[test]
fn a_group_of_the_catalogue_counts_with_the_rows_of_its_commit_or_not_at_all() {
    let item = rows(&entry(20, "item", 1));
    let own = (group(11, 5, &item.iter().map(Change::Row).collect::<Vec<_>>()), 1, true);
    let (others, groups) = Accounts::new().payload(&[(tid(11, 5), vec![Write::Row(1, (2, 3))])]);
    let others = (others, groups, false);
    for (batches, is_cut) in [[&own, &others], [&others, &own]].into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let mut database = Database::new(1, 1);
        for ((payload, groups, has_catalogue), closed) in
            batches.into_iter().zip([10, 11]).take(2 - usize::from(is_cut))
        {
            database.payload((1, 0), [Epoch(closed), Epoch(9)], Epoch(11), (payload, *groups, *has_catalogue));
        }
        let found = found(&database).unwrap();
        let verified = verify(&database.disk, &database.directory, &|_, _| {}).unwrap();
        let is_there = (found.catalogue.tables.len() == 2, verified.entries == 1);
        assert_eq!(is_there, (!is_cut, !is_cut), "{:?}, {} rows", names(&found), verified.entries);
    }
}

#[test]
fn a_log_whose_catalogue_makes_no_sense_is_refused() {
    let item = rows(&entry(20, "item", 1));
    let refused = |payload: Vec<u8>| match found(&database(1, &[(0, 10, payload)])) {
        Err(LogError::Corrupt { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    expect!["the catalogue of its tables makes no sense: there are rows of table 20, but none that says what it is"]
        .assert_eq(&refused(group(10, 1, &[Change::Row(&item[1])])));
    expect!["the catalogue of its tables makes no sense: a row that does not exist was changed"]
        .assert_eq(&refused(group(10, 1, &[Change::Patch(&item[0])])));
    let (mut mixed, groups) = Accounts::new().payload(&[(tid(10, 2), vec![Write::Row(1, (2, 3))])]);
    assert_eq!(groups, 1);
    let own = group(10, 2, &[Change::Row(&item[0])]);
    let bytes = mixed.len() + own.len() - 24;
    mixed.extend_from_slice(&own[12..]);
    mixed[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    let mut database = Database::new(1, 1);
    database.payload((1, 0), [Epoch(10), Epoch(9)], Epoch(10), (&mixed, 1, false));
    let replay = Replay::open(&database.disk, &database.directory, &database.manifest).unwrap();
    let error = replay.run(&database.disk, 1, &Keeper::new(), &|_| {}).unwrap_err().to_string();
    assert!(error.contains("a group has entries of the catalogue and others"), "{error}");
}

/// A batch whose header hides that it has a catalogue, or states one that it has not.
#[test]
fn a_header_that_is_wrong_about_the_catalogue_is_damage() {
    let item = rows(&entry(20, "item", 1));
    let own = group(10, 1, &item.iter().map(Change::Row).collect::<Vec<_>>());
    let (others, _) = Accounts::new().payload(&[(tid(10, 2), vec![Write::Row(1, (2, 3))])]);
    for (payload, has_catalogue) in [(own, false), (others, true)] {
        let mut database = Database::new(1, 1);
        database.payload((1, 0), [Epoch(10), Epoch(9)], Epoch(10), (&payload, 1, has_catalogue));
        let replay = Replay::open(&database.disk, &database.directory, &database.manifest);
        let replayed = replay.and_then(|replay| replay.run(&database.disk, 1, &Keeper::new(), &|_| {}));
        assert!(matches!(replayed, Err(LogError::Corrupt { .. })), "{replayed:?}");
    }
}

/// Out-of-line texts: blocks of a length and bytes.
#[derive(Default)]
struct Texts(Vec<Vec<u64>>);

impl OutOfLineStore for Texts {
    fn store(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        let word = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0)));
        let block: Vec<u64> = std::iter::once(bytes.len() as u64).chain(bytes.chunks(8).map(word)).collect();
        let address = block.as_ptr().expose_provenance() as u64;
        self.0.push(block);
        Ok(address)
    }
}

/// A checkpoint has rows of the catalogue before others. Void tables from before it are obsolete, later ones are not.
#[test]
fn a_checkpoint_has_the_catalogue_first_and_makes_void_tables_obsolete() {
    let mut database = Database::new(1, 1);
    database.manifest.inherited = None;
    let accounts = Database::new(2, 1).manifest.inherited.unwrap();
    let void = |id: u32, is_void| TableEntry { is_void, ..entry(id, &format!("table{id}"), id.into()) };
    let definition = definition();
    let (own, wire) = (Layout::stored(&definition), codec());
    let encoding = RowWire::new(&definition, &own);
    let disk: Arc<dyn Disk> = Arc::new(database.disk.clone());
    let writer = CheckpointWriter::begin(disk, &database.directory, DATABASE, Epoch(11), None).unwrap();
    let mut part = writer.part(0).unwrap();
    part.set_catalogue(true).unwrap();
    let rows_of = |entry: &TableEntry| rows(entry);
    let all = accounts.rows().chain(rows_of(&void(20, true))).chain(rows_of(&void(30, false)));
    let mut texts = Texts::default();
    for row in all {
        let mut image = vec![0u64; own.row_bytes as usize / 8];
        let address: *mut u8 = image.as_mut_ptr().cast();
        // SAFETY: the image is all zeros and has the layout's bytes. No column is immutable.
        let mut writer = unsafe { RowWriter::for_insert(address, address, &mut texts) };
        let values = row.key_values().into_iter().chain([Value::from(row.body.as_str())]);
        for ((column, place), value) in definition.columns.iter().zip(&own.places).zip(values) {
            value.write(column, place, &mut writer).unwrap();
        }
        let key = wire.encode_values(&row.key_values()).unwrap();
        part.row(LAYOUT, &encoding, key.as_key(), tid(10, 1), as_row(&image));
    }
    part.set_catalogue(false).unwrap();
    let image = database.accounts.image(3, (4, 5));
    let key = seriatim_catalog::Key::Word8(3);
    part.row(crate::synthetic::LAYOUT, &database.accounts.wire, key, tid(10, 2), as_row(&image));
    let parts = vec![part.finish().unwrap()];
    database.manifest.checkpoint = Some(writer.finish(parts, Epoch(12)).unwrap());
    let later = TableEntry { is_void: true, ..void(30, true) }.row();
    database.payload((1, 0), [Epoch(12), Epoch(11)], Epoch(12), (&group(12, 1, &[Change::Patch(&later)]), 1, true));
    database.manifest.write(&database.disk, &database.directory).unwrap();

    let found = found(&database).unwrap();
    assert_eq!(names(&found), [(7, "account", false), (20, "table20", true), (30, "table30", true)]);
    assert_eq!(found.obsolete, [TableId(20)], "the log may have rows of the other");
    let verified = verify(&database.disk, &database.directory, &|_, _| {}).unwrap();
    assert_eq!((verified.rows, verified.entries), (1, 0));
}
