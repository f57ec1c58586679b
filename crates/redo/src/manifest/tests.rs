//! The manifest as text, its replacement with power cuts, and contents that are refused.

use expect_test::expect;
use seriatim_base::disk::FaultyDisk;
use seriatim_base::rng;
use seriatim_catalog::{ColumnDef, ColumnType, Organization, asc, desc};

use seriatim_base::{LayoutId, TableId};
use seriatim_catalog::TableDef;

use super::*;
use crate::catalogue::{LayoutEntry, TableEntry};

fn every_type() -> TableDef {
    let column = ColumnDef::new;
    TableDef::builder("every \"type\"")
        .column(column("w", ColumnType::U16).immutable())
        .column(column("line", ColumnType::I8))
        .column(column("flag", ColumnType::Bool).nullable())
        .column(column("i16", ColumnType::I16))
        .column(column("i32", ColumnType::I32))
        .column(column("i64", ColumnType::I64))
        .column(column("u8", ColumnType::U8))
        .column(column("u32", ColumnType::U32))
        .column(column("u64", ColumnType::U64))
        .column(column("f64", ColumnType::F64))
        .column(column("sum", ColumnType::Decimal { scale: 2 }))
        .column(column("at", ColumnType::Timestamp).nullable().immutable())
        .column(column("name", ColumnType::Text { max: 16 }))
        .column(column("note", ColumnType::LongText))
        .column(column("tag", ColumnType::Bytes { max: 300 }))
        .key([asc("w"), desc("line")])
        .index("by_name", [asc("name"), desc("sum")])
        .unique_index("by_tag", ["tag"], Organization::Hash)
        .partition("line")
        .finish()
        .expect("a sound declaration")
}

pub(super) fn inherited(manifest: &mut Manifest) -> &mut Catalogue {
    manifest.inherited.as_mut().expect("it has tables")
}

/// The JSON of a manifest as formats before the catalogue had it.
pub(super) fn before_catalogues(manifest: &Manifest, format: u64) -> Value {
    let mut value: Value = serde_json::from_str(&mirror::to_json(manifest)).expect("JSON");
    let fields = value.as_object_mut().expect("an object");
    let Some(Value::Object(tables)) = fields.remove("inherited") else { panic!("it has tables") };
    fields.extend(tables);
    for (name, value) in [("format", format), ("next_table", 100), ("next_layout", 100)] {
        fields.insert(name.to_owned(), value.into());
    }
    value
}

pub(super) fn small() -> Manifest {
    let item = TableDef::builder("item")
        .column(ColumnDef::new("id", ColumnType::U32))
        .column(ColumnDef::new("name", ColumnType::Text { max: 24 }).immutable())
        .column(ColumnDef::new("price", ColumnType::Decimal { scale: 2 }))
        .key([desc("id")])
        .hash()
        .index("by_name", ["name"])
        .finish()
        .expect("a sound declaration");
    let item = TableDef { capacity: 1000, ..item };
    Manifest {
        database: DatabaseId(0xABC),
        incarnations: vec![
            Incarnation {
                number: 1,
                first_epoch: Epoch(1),
                durable_epoch: Some(Epoch(70)),
                loggers: vec![".".into()],
                ends: vec![LogEnd { segment: 3, batches: 40, bytes: 8192 }],
            },
            Incarnation {
                number: 2,
                first_epoch: Epoch(75),
                durable_epoch: None,
                loggers: vec!["log0".into(), "/other/disk".into()],
                ends: Vec::new(),
            },
        ],
        checkpoint: Some(Checkpoint {
            directory: "checkpoint-60".into(),
            begin_epoch: Epoch(60),
            end_epoch: Epoch(61),
            parts: 2,
            rows: 1000,
            bytes: 4096,
        }),
        inherited: Some(Catalogue {
            tables: vec![TableEntry {
                id: TableId(0),
                definition: item,
                indexes: vec![TableId(1)],
                position: 0,
                is_void: false,
            }],
            sequences: Vec::new(),
            earlier: Vec::new(),
            access: Default::default(),
            layouts: vec![LayoutEntry { id: LayoutId(0), table: TableId(0) }],
        }),
    }
}

fn encoded(manifest: &Manifest) -> Vec<u8> {
    manifest.encode().expect("it agrees with itself")
}

fn decode(bytes: &[u8]) -> Result<Manifest, LogError> {
    Manifest::decode(bytes, Path::new("db/MANIFEST"))
}

/// The text with a recomputed checksum, as another program would write it.
fn sealed(text: &str) -> Vec<u8> {
    format!("{text}crc32 {:08x}\n", crc32fast::hash(text.as_bytes())).into_bytes()
}

/// The text above the checksum.
fn text(manifest: &Manifest) -> String {
    let bytes = encoded(manifest);
    String::from_utf8(checked(&bytes).expect("its own checksum").to_vec()).expect("text")
}

/// The text of the format, which existing files have. If it changes, raise the format.
#[test]
fn the_format_is_this_text() {
    let expected = expect![[r#"
        {
          "format": 4,
          "database": "00000000000000000000000000000abc",
          "incarnations": [
            {
              "number": 1,
              "first_epoch": 1,
              "durable_epoch": 70,
              "loggers": [
                "."
              ],
              "ends": [
                {
                  "segment": 3,
                  "batches": 40,
                  "bytes": 8192
                }
              ]
            },
            {
              "number": 2,
              "first_epoch": 75,
              "durable_epoch": null,
              "loggers": [
                "log0",
                "/other/disk"
              ],
              "ends": []
            }
          ],
          "checkpoint": {
            "directory": "checkpoint-60",
            "begin_epoch": 60,
            "end_epoch": 61,
            "parts": 2,
            "rows": 1000,
            "bytes": 4096
          },
          "inherited": {
            "tables": [
              {
                "id": 0,
                "name": "item",
                "columns": [
                  {
                    "name": "id",
                    "type": "u32",
                    "nullable": false,
                    "immutable": false
                  },
                  {
                    "name": "name",
                    "type": {
                      "text": {
                        "max": 24
                      }
                    },
                    "nullable": false,
                    "immutable": true
                  },
                  {
                    "name": "price",
                    "type": {
                      "decimal": {
                        "scale": 2
                      }
                    },
                    "nullable": false,
                    "immutable": false
                  }
                ],
                "key": [
                  {
                    "column": 0,
                    "descending": true
                  }
                ],
                "organization": "hash",
                "indexes": [
                  {
                    "id": 1,
                    "name": "by_name",
                    "key": [
                      {
                        "column": 1,
                        "descending": false
                      }
                    ],
                    "unique": false,
                    "organization": "ordered"
                  }
                ],
                "capacity": 1000
              }
            ],
            "layouts": [
              {
                "id": 0,
                "table": 0
              }
            ]
          }
        }
        crc32 62df914f
    "#]];
    expected.assert_eq(&String::from_utf8_lossy(&encoded(&small())));
}

#[test]
fn every_declaration_comes_back() {
    let mut manifest = small();
    let indexes = vec![TableId(3), TableId(7)];
    let entry = TableEntry { id: TableId(2), definition: every_type(), indexes, position: 1, is_void: false };
    let tables = inherited(&mut manifest);
    tables.tables.push(entry);
    tables.layouts.push(LayoutEntry { id: LayoutId(5), table: TableId(2) });
    let organization = tables.tables[1].definition.indexes[1].organization;
    assert_eq!(Catalogue::of_rows(tables.rows()).as_ref(), Ok(&*tables), "as rows");
    assert_eq!(decode(&encoded(&manifest)).expect("as written"), manifest);
    assert_eq!(organization, Organization::Hash, "the sample has all that a declaration can have");
}

#[test]
fn every_changed_byte_is_noticed() {
    let good = encoded(&small());
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            let error = decode(&bytes).expect_err("damaged");
            assert!(matches!(error, LogError::Corrupt { .. }), "byte {at}, bit {bit}: {error}");
        }
    }
    for cut in 0..good.len() {
        assert!(decode(&good[..cut]).is_err(), "cut at {cut}");
    }
}

/// Format 1 did not state where logs end.
#[test]
fn a_manifest_of_format_one_is_read_as_one_of_today_that_does_not_know_where_logs_end() {
    let mut expected = small();
    expected.incarnations.iter_mut().for_each(|incarnation| incarnation.ends.clear());
    let mut value = before_catalogues(&expected, 1);
    for incarnation in value["incarnations"].as_array_mut().expect("a list") {
        incarnation.as_object_mut().expect("an object").remove("ends");
    }
    widen(&mut expected);
    let older = |value: &Value| sealed(&format!("{value}\n"));
    assert_eq!(decode(&older(&value)).expect("it is upgraded"), expected);
    value["incarnations"] = Value::Null;
    assert!(decode(&older(&value)).is_err());
    value["incarnations"] = serde_json::json!([1]);
    assert!(decode(&older(&value)).is_err());
}

/// The epochs as today's, of a manifest that states them as format 2 did.
fn widen(manifest: &mut Manifest) {
    for incarnation in &mut manifest.incarnations {
        incarnation.first_epoch.0 <<= 11;
        incarnation.durable_epoch.iter_mut().for_each(|epoch| epoch.0 = (epoch.0 << 11) + 2047);
    }
    if let Some(checkpoint) = &mut manifest.checkpoint {
        checkpoint.begin_epoch.0 <<= 11;
        checkpoint.end_epoch.0 = (checkpoint.end_epoch.0 << 11) + 2047;
    }
}

/// Epochs had 34 bits, and the last of them is in the range of today's last.
#[test]
fn a_manifest_of_format_two_is_read_with_the_epochs_that_its_tids_have_today() {
    let mut manifest = small();
    let decode = |value: &Value| decode(&sealed(&format!("{value}\n")));
    let mut value = before_catalogues(&manifest, 2);
    manifest.checkpoint.as_mut().expect("it has one").end_epoch = Epoch((1 << 34) - 1);
    value["checkpoint"]["end_epoch"] = ((1u64 << 34) - 1).into();
    widen(&mut manifest);
    assert_eq!(decode(&value).expect("it is upgraded"), manifest);
    for epoch in [1 << 34, u64::MAX] {
        value["checkpoint"]["end_epoch"] = epoch.into();
        let error = decode(&value).expect_err("no epoch of format 2").to_string();
        assert!(error.contains("out of range"), "{error}");
    }
    for wrong in [serde_json::json!("7"), serde_json::json!(-1), serde_json::json!({})] {
        value["checkpoint"]["end_epoch"] = wrong;
        let error = decode(&value).expect_err("no number").to_string();
        assert!(error.contains("`end_epoch` is not a natural number"), "{error}");
    }
    value["checkpoint"] = serde_json::json!({});
    assert!(decode(&value).expect_err("fields are missing").to_string().contains("`begin_epoch` is missing"));
}

/// A file of that name may have any length, and a number any value.
#[test]
fn a_manifest_with_a_length_or_number_out_of_bounds_is_refused_by_that_bound() {
    let disk = FaultyDisk::new(1);
    disk.create_dir_all(Path::new("db")).expect("a disk without faults");
    disk.open(Path::new("db/MANIFEST"), Opening::Create).and_then(|file| file.set_bytes(1 << 30)).expect("a hole");
    let error = Manifest::find(&disk, Path::new("db")).expect_err("it is too long").to_string();
    assert!(error.contains("it has 1073741824 bytes; a manifest has at most 268435456"), "{error}");

    let text = text(&small());
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        match decode(&sealed(&text.replacen(from, to, 1))) {
            Err(LogError::Corrupt { problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    };
    expect!["table id 16383 is used twice, or not below 16383"].assert_eq(&refused("\"id\": 1,", "\"id\": 16383,"));
    expect!["table `item`: has a capacity of 1099511627776 rows; at most 4294967296 are possible"]
        .assert_eq(&refused("\"capacity\": 1000", "\"capacity\": 1099511627776"));
    expect!["epoch 18446744073709551615 is out of range: epochs are below 35184372088832"]
        .assert_eq(&refused("\"first_epoch\": 75", "\"first_epoch\": 18446744073709551615"));
    expect!["epoch 35184372088832 is out of range: epochs are below 35184372088832"]
        .assert_eq(&refused("\"end_epoch\": 61", "\"end_epoch\": 35184372088832"));
    expect!["incarnation 18446744073709551615 is out of range: incarnations are numbered from 1 to 4294967295"]
        .assert_eq(&refused("\"number\": 2", "\"number\": 18446744073709551615"));
    expect!["the checkpoint has 4294967295 parts; 65536 are possible"]
        .assert_eq(&refused("\"parts\": 2", "\"parts\": 4294967295"));
    expect!["a log of incarnation 1 ends at byte 9223372036854775808, where none can"]
        .assert_eq(&refused("\"bytes\": 8192", "\"bytes\": 9223372036854775808"));
}

#[test]
fn the_error_of_a_file_with_line_breaks_in_its_names_is_one_line() {
    let broken = text(&small()).replacen("\"database\"", "\"data\\nbase\"", 1);
    let error = decode(&sealed(&broken)).expect_err("an unknown field").to_string();
    assert!(error.contains("unknown field `data\u{FFFD}base`") && !error.contains('\n'), "{error}");
}

#[test]
fn a_newer_format_is_refused_by_number() {
    let newer = text(&small()).replacen("\"format\": 4", "\"format\": 7, \"what this program never heard of\": []", 1);
    let error = decode(&sealed(&newer)).expect_err("newer");
    expect!["db/MANIFEST has format 7; this program knows formats up to 4: open the database with a newer one"]
        .assert_eq(&error.to_string());
}

#[test]
fn an_older_format_goes_through_the_upgrades_from_it_on() {
    fn step(value: Value, from: u64) -> Result<Value, String> {
        let ok = value["format"] == from;
        if ok { Ok(serde_json::json!({ "format": from + 1 })) } else { Err(format!("not of format {from}: {value}")) }
    }
    let upgrades: [Upgrade; 3] = [|value| step(value, 1), |value| step(value, 2), |value| step(value, 3)];
    for format in 1..=4 {
        let value = serde_json::json!({ "format": format });
        assert_eq!(upgraded(value, format, &upgrades), Ok(serde_json::json!({ "format": 4 })));
    }
    assert!(upgraded(serde_json::json!({ "format": 4 }), 2, &upgrades).is_err());
    assert!(upgraded(Value::Null, 0, &upgrades).is_err());
}

/// The names of all fields, and all strings that name a type or an organization.
fn words(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| words(value, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                found.push(name.clone());
                match value {
                    Value::String(word) if ["type", "organization"].contains(&&**name) => found.push(word.clone()),
                    _ => words(value, found),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn the_document_has_every_field() {
    let document = include_str!("../../FORMAT.md");
    let mut manifest = small();
    inherited(&mut manifest).tables[0].definition = every_type();
    let mut found = Vec::new();
    words(&serde_json::from_str(&mirror::to_json(&manifest)).expect("JSON"), &mut found);
    assert!(found.len() > 100);
    for word in found {
        let is_there = document.contains(&format!("`{word}`")) || document.contains(&format!("\"{word}\":"));
        assert!(is_there, "FORMAT.md does not have {word}");
    }
}

#[test]
fn a_contradictory_manifest_is_neither_accepted_nor_written() {
    let problem = |text: String| match decode(&sealed(&text)) {
        Err(LogError::Corrupt { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    let text = text(&small());
    let edited = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        problem(text.replacen(from, to, 1))
    };
    expect!["there is no format 0"].assert_eq(&edited("\"format\": 4", "\"format\": 0"));
    expect!["it does not say its format"].assert_eq(&edited("\"format\": 4", "\"format\": \"1\""));
    expect![[r#"table `item`: column `id` is declared twice"#]]
        .assert_eq(&edited("\"name\": \"price\"", "\"name\": \"id\""));
    expect!["table id 0 is used twice, or not below 16383"].assert_eq(&edited("\"id\": 1,", "\"id\": 0,"));
    expect!["`database` is not 32 hexadecimal digits"].assert_eq(&edited("00000abc", "+0000abc"));
    assert!(edited("\"parts\": 2", "\"pieces\": 2").contains("unknown field `pieces`"));
    assert!(problem("[1\n".to_owned()).starts_with("no JSON: "));

    let refused = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = small();
        change(&mut manifest);
        let problem = manifest.check().expect_err("a contradiction");
        let disk = FaultyDisk::new(1);
        assert!(
            manifest
                .write(&disk, Path::new("db"))
                .is_err_and(|not_written| not_written.error.to_string().contains(&problem))
        );
        problem
    };
    expect!["incarnation 2 does not begin after 1 has ended"]
        .assert_eq(&refused(&|manifest| manifest.incarnations[0].durable_epoch = Some(Epoch(75))));
    refused(&|manifest| manifest.incarnations[0].durable_epoch = None);
    refused(&|manifest| manifest.incarnations[0].number = 2);
    expect!["incarnation 2 has 0 loggers; 1 to 1024 are possible"]
        .assert_eq(&refused(&|manifest| manifest.incarnations[1].loggers.clear()));
    expect!["incarnation 2 has 2 loggers and 1 ends of their logs"]
        .assert_eq(&refused(&|manifest| manifest.incarnations[1].ends.push(LogEnd::FIRST)));
    expect!["the checkpoint's last epoch is before its first"].assert_eq(&refused(&|manifest| {
        manifest.checkpoint.as_mut().expect("there is one").end_epoch = Epoch(59);
    }));
    expect!["there are two tables `item`"].assert_eq(&refused(&|manifest| {
        let again = TableEntry { id: TableId(5), ..inherited(manifest).tables[0].clone() };
        inherited(manifest).tables.push(again);
    }));
    expect!["table `item` has 1 indexes and 0 ids for them"]
        .assert_eq(&refused(&|manifest| inherited(manifest).tables[0].indexes.clear()));
    expect!["layout id 16383 is used twice, or not below 16383"]
        .assert_eq(&refused(&|manifest| inherited(manifest).layouts[0].id = LayoutId(16383)));
    expect!["layout 0 is of table 9, which there is not"]
        .assert_eq(&refused(&|manifest| inherited(manifest).layouts[0].table = TableId(9)));
}

#[test]
fn a_missing_manifest_is_explained() {
    let disk = FaultyDisk::new(1);
    let directory = Path::new("db");
    let find = || Manifest::find(&disk, directory).map_err(|error| error.to_string());
    assert_eq!(find(), Ok(None));
    disk.create_dir_all(directory).expect("a disk without faults");
    disk.create_dir_all(&directory.join("notes")).expect("a disk without faults");
    assert_eq!(find(), Ok(None));
    let error = Manifest::read(&disk, directory).expect_err("none");
    expect!["cannot use db: it holds no database: there is no file MANIFEST in it"].assert_eq(&error.to_string());
    disk.create_dir_all(&directory.join("checkpoint-7")).expect("a disk without faults");
    expect![
        "db/MANIFEST is damaged at byte 0: it is missing, although there is checkpoint-7; restore a backup, \
             or MANIFEST from a copy of this directory"
    ]
    .assert_eq(&find().expect_err("it must have been there"));
    small().write(&disk, directory).expect("a disk without faults");
    assert_eq!(find(), Ok(Some(small())));
}

/// Power is cut at every operation of replacing a manifest. The old one or the new one is there, and the next
/// write works.
#[test]
fn a_power_cut_leaves_the_old_one_or_the_new_one() {
    let (seed, directory) = (rng::seed("a_power_cut_leaves_the_old_one_or_the_new_one"), Path::new("db"));
    let (old, mut new) = (small(), small());
    new.incarnations[1].durable_epoch = Some(Epoch(99));
    let (mut seen_old, mut seen_new) = (false, false);
    for round in 0..40 {
        for cut in 1.. {
            let disk = FaultyDisk::new(seed.wrapping_add(round));
            disk.create_dir_all(directory).expect("no faults yet");
            disk.sync_dir(Path::new("")).expect("no faults yet");
            old.write(&disk, directory).expect("no faults yet");
            disk.crash_at(cut);
            let written = new.write(&disk.mount(), directory);
            let is_cut = !disk.is_powered();
            disk.crash();
            let found = Manifest::read(&disk, directory).expect("one of the two");
            assert!(found == old || found == new);
            assert!(written.is_err() || found == new, "a successful write is there");
            (seen_old, seen_new) = (seen_old || found == old, seen_new || (written.is_err() && found == new));
            old.write(&disk, directory).expect("the faults are over");
            assert_eq!(Manifest::read(&disk, directory).expect("it was written"), old);
            if !is_cut {
                break;
            }
        }
    }
    assert!(seen_old && seen_new, "cuts fell on both sides of the rename");
}

#[test]
fn a_manifest_from_before_distinct_nulls_means_what_it_meant() {
    let mut manifest = small();
    let table = &mut inherited(&mut manifest).tables[0];
    table.definition.columns[1].nullable = true;
    table.definition.indexes[0].unique = true;
    let text = mirror::to_json(&manifest);
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    let index = value.pointer_mut("/inherited/tables/0/indexes/0").and_then(Value::as_object_mut).expect("an index");
    assert_eq!(index.remove("nulls_distinct"), Some(Value::Bool(true)), "{text}");
    let mut old = mirror::from_json(value).expect("an older manifest");
    assert!(inherited(&mut old).tables[0].definition.indexes[0].nulls_not_distinct && old != manifest);
    assert!(!mirror::to_json(&old).contains("nulls_distinct"));
    let read = |manifest: &Manifest| mirror::from_json(serde_json::from_str(&mirror::to_json(manifest)).expect("JSON"));
    assert_eq!((read(&old), read(&manifest)), (Ok(old), Ok(manifest)));
}

#[test]
fn a_void_table_leaves_its_name_to_another() {
    let mut manifest = small();
    assert!(!mirror::to_json(&manifest).contains("void"), "as before there were any");
    let tables = &mut inherited(&mut manifest).tables;
    let to_be = TableEntry { id: TableId(5), indexes: vec![TableId(6)], position: 1, ..tables[0].clone() };
    tables.push(to_be);
    tables[0].is_void = true;
    assert_eq!(manifest.check(), Ok(()));
    let read = mirror::from_json(serde_json::from_str(&mirror::to_json(&manifest)).expect("JSON"));
    assert_eq!(read, Ok(manifest));
}
