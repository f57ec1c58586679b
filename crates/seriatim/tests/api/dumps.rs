//! Dumps, and loads of them: every value comes back, and what is wrong is said with its line.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use seriatim::catalog::{ColumnDef, ColumnType, Organization, Scalar, TableDef, Variants, desc};
use seriatim::dump::{self, DumpError, Format, LoadProblem};
use seriatim::rng::{Rng, seed, tries};
use seriatim::{
    Database, Date, DateTime, DynHandle, Interval, Numeric, Table, Time, TransactError, Uuid, Value, thread,
};

use crate::common::{Person, each, person, sampled};

/// Every type of columns, each with values at its ends.
fn types() -> Vec<(ColumnType, Vec<Value>)> {
    let variants = Variants::new([(0, "New".to_owned()), (7, "Paid, \"twice\"".to_owned()), (65_535, "é".to_owned())]);
    let variants = variants.expect("sound variants");
    let texts = |max: usize| {
        let long = "\u{0}é\"'\\\n\r\t,{}[]\u{7f}\u{2028}😀".repeat(max);
        let long = &long[..long.floor_char_boundary(max)];
        let texts = ["", "a", "\\.", "NULL", "null", "\u{0}", " x ", long];
        texts.into_iter().filter(|text| text.len() <= max).map(Value::from).collect::<Vec<_>>()
    };
    let bytes = |max: usize| {
        let all = [vec![], vec![0], vec![0xff, 0xfe, b'"'], (0..=255).cycle().take(max).collect::<Vec<u8>>()];
        all.into_iter().filter(|bytes| bytes.len() <= max).map(Value::Bytes).collect::<Vec<_>>()
    };
    macro_rules! ends {
        ($ty:ident) => {
            vec![Value::from($ty::MIN), Value::from($ty::MAX), Value::from(0 as $ty), Value::from(1 as $ty)]
        };
    }
    let numeric = |coefficient: i128, scale| Value::from(Numeric::new(coefficient, scale).expect("a number"));
    let most = 10i128.pow(38) - 1;
    let interval = |months, days, microseconds| Value::from(Interval { months, days, microseconds });
    let decimal = |units| Value::Decimal { units, scale: 3 };
    vec![
        (ColumnType::Bool, vec![Value::from(true), Value::from(false)]),
        (ColumnType::I8, ends!(i8)),
        (ColumnType::I16, ends!(i16)),
        (ColumnType::I32, ends!(i32)),
        (ColumnType::I64, [ends!(i64), vec![Value::from(1i64 << 53), Value::from(-(1i64 << 53) - 1)]].concat()),
        (ColumnType::U8, ends!(u8)),
        (ColumnType::U16, ends!(u16)),
        (ColumnType::U32, ends!(u32)),
        (ColumnType::U64, [ends!(u64), vec![Value::from((1u64 << 53) + 1)]].concat()),
        (ColumnType::I128, ends!(i128)),
        (ColumnType::U128, ends!(u128)),
        (
            ColumnType::F32,
            [f32::MIN, f32::MAX, f32::MIN_POSITIVE, 1e-45, -0.0, 0.0, 0.1, f32::NAN, f32::INFINITY, f32::NEG_INFINITY]
                .map(Value::from)
                .to_vec(),
        ),
        (
            ColumnType::F64,
            [f64::MIN, f64::MAX, 5e-324, -0.0, 0.0, 0.1, 1e23, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]
                .map(Value::Float)
                .to_vec(),
        ),
        (ColumnType::Decimal { scale: 3 }, [i64::MIN, i64::MAX, 0, -1, 10].map(decimal).to_vec()),
        (ColumnType::Decimal { scale: 0 }, vec![Value::Decimal { units: i64::MIN, scale: 0 }]),
        (ColumnType::Decimal { scale: 18 }, vec![Value::Decimal { units: -1, scale: 18 }]),
        (
            ColumnType::Numeric,
            vec![numeric(most, 0), numeric(-most, 38), numeric(0, 5), numeric(150, 2), numeric(15, 1), numeric(-1, 38)],
        ),
        (ColumnType::Char, ['\u{0}', '"', '\n', 'é', char::MAX, '\u{d7ff}'].map(Value::from).to_vec()),
        (ColumnType::Text { max: 20 }, texts(20)),
        (ColumnType::LongText, texts(70_000)),
        (ColumnType::Bytes { max: 9 }, bytes(9)),
        (ColumnType::LongBytes, bytes(70_000)),
        (ColumnType::ByteArray { bytes: 3 }, vec![Value::Bytes(vec![0; 3]), Value::Bytes(vec![0xff; 3])]),
        (ColumnType::Uuid, vec![Value::from(Uuid::nil()), Value::from(Uuid::max()), Value::from(Uuid::from_u128(9))]),
        (ColumnType::Date, [Date::MIN, Date::MAX, Date::default()].map(Value::from).to_vec()),
        (
            ColumnType::Time,
            [0, 1, 86_399_999_999].map(|time| Value::from(Time::from_microseconds(time).expect("a time"))).to_vec(),
        ),
        (ColumnType::DateTime, [DateTime::MIN, DateTime::MAX, DateTime::default()].map(Value::from).to_vec()),
        (ColumnType::Timestamp, [i64::MIN, i64::MAX, 0, -1, 1_795_236_131_000_042].map(Value::Timestamp).to_vec()),
        (
            ColumnType::Interval,
            vec![
                interval(0, 0, 0),
                interval(i32::MIN, i32::MAX, i64::MIN),
                interval(i32::MAX, i32::MIN, i64::MAX),
                interval(1, -1, 0),
                interval(0, 30, -1),
            ],
        ),
        (ColumnType::Enum { variants }, variants.all().iter().map(|one| Value::record(one.name(), [])).collect()),
    ]
}

/// A table with two columns of every type, one of which may be NULL.
fn everything(organization: Organization) -> TableDef {
    let name = if organization == Organization::Hash { "all \"hashed\"" } else { "all, ordered" };
    let mut table = TableDef::builder(name).column(ColumnDef::new("id", ColumnType::U32)).key(["id"]).capacity(40);
    for (at, (ty, _)) in types().into_iter().enumerate() {
        table = table.column(ColumnDef::new(format!("c{at}"), ty));
        table = table.column(ColumnDef::new(format!("maybe\n\"{at}\""), ty).nullable().immutable());
    }
    if organization == Organization::Hash { table.hash() } else { table }.finish().expect("valid")
}

/// Rows of these values: each value at least once.
fn rows(rng: &mut Rng) -> Vec<Vec<Value>> {
    let types = types();
    let most = types.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let mut row = |id: usize| {
        let mut row = vec![Value::from(id as u32)];
        for (ty, values) in &types {
            row.push(if id < most { values[id % values.len()].clone() } else { random(rng, *ty, values) });
            let other = random(rng, *ty, values);
            row.push(if rng.below(4) == 0 { Value::NONE } else { other.some() });
        }
        row
    };
    (0..most + 20).map(&mut row).collect()
}

/// A value of these, or one of random bytes.
fn random(rng: &mut Rng, ty: ColumnType, values: &[Value]) -> Value {
    let bytes: Vec<u8> = (0..ty_bytes(ty)).map(|_| rng.below(256) as u8).collect();
    let one = values[rng.below(values.len() as u64) as usize].clone();
    match Scalar::of_stored(ty, &bytes) {
        Some(scalar) if rng.below(2) == 0 => Value::Scalar(scalar),
        _ => match (ty, one) {
            (ColumnType::F64, _) if rng.below(2) == 0 => Value::Float(f64::from_bits(rng.next_u64())),
            (ColumnType::I64, _) => Value::from(rng.next_u64() as i64 >> rng.below(64)),
            (ColumnType::U64, _) => Value::from(rng.next_u64() >> rng.below(64)),
            (ColumnType::Timestamp, _) if rng.below(2) == 0 => Value::Timestamp(rng.next_u64() as i64 >> rng.below(30)),
            (_, one) => one,
        },
    }
}

/// Bytes of a value in a row, for types of scalars.
fn ty_bytes(ty: ColumnType) -> usize {
    match ty {
        ColumnType::F32 | ColumnType::Char | ColumnType::Date => 4,
        ColumnType::Time | ColumnType::DateTime => 8,
        ColumnType::Numeric => 17,
        ColumnType::Interval | ColumnType::I128 | ColumnType::U128 | ColumnType::Uuid => 16,
        _ => 0,
    }
}

fn written(db: &Database, format: Format, tables: &[&str]) -> String {
    let mut text = Vec::new();
    db.dump(format, tables, &mut text).expect("memory");
    String::from_utf8(text).expect("UTF-8")
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The rows as values, with the bits of floats.
fn listed(db: &Database, table: &DynHandle) -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    db.each_row_dyn(table, |row| drop(rows.insert(format!("{:?}", row.value(0)), format!("{:?}", row.values()))))
        .expect("no transaction is open");
    rows
}

#[test]
fn every_value_of_every_type_comes_back() {
    let mut rng = Rng::from_seed(seed("every_value_comes_back"));
    for round in 0..tries(3, 30) {
        let organization = if round % 2 == 0 { Organization::Hash } else { Organization::Ordered };
        let db = Database::in_memory().expect("memory");
        let table = db.declare(everything(organization)).expect("valid");
        let rows = rows(&mut rng);
        for row in &rows {
            db.session().transact(|tx| tx.insert_dyn(&table, row)).expect("a new key");
        }
        let json = written(&db, Format::Json, &[]);
        assert_eq!(json.lines().count(), rows.len() + 3);
        let copy = Database::in_memory().expect("memory");
        let loaded = copy.load(json.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            (loaded.tables[0].rows, loaded.tables[0].is_new, loaded.lines),
            (rows.len() as u64, true, rows.len() as u64 + 2)
        );
        let copied = copy.open_dyn(&table.definition().name).expect("it was created");
        assert_eq!(copied.definition(), table.definition());
        assert_eq!(listed(&copy, &copied), listed(&db, &table));
        let again = written(&copy, Format::Json, &[]);
        assert_eq!(sorted(&again), sorted(&json));
        // CSV knows no types, and its table exists.
        let csv = written(&db, Format::Csv, &[]);
        let copy = Database::in_memory().expect("memory");
        let copied = copy.declare(table.definition().clone()).expect("valid");
        copy.load_csv(&table.definition().name, csv.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(listed(&copy, &copied), listed(&db, &table));
    }
}

#[test]
fn a_dump_declares_all_that_a_table_has() {
    let db = Database::in_memory().expect("memory");
    let people = db.create::<Person>().expect("valid");
    db.session().transact(|tx| (0..9).try_for_each(|number| tx.insert(&people, &person(1, number)))).expect("alone");
    let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
    let lines =
        TableDef::builder("line").column(column("order")).column(column("number")).column(column("item").nullable());
    let lines = lines.key(["order", "number"]).cluster(["order"]).replicated().capacity(7);
    let lines = lines.unique_index("by_item", [desc("item")], Organization::Hash).nulls_not_distinct();
    let lines = db.declare(lines.finish().expect("valid")).expect("valid");
    let parts = TableDef::builder("part").column(column("a")).column(column("b"));
    let parts = parts.column(ColumnDef { former: Some("d".into()), ..column("c").default("7") });
    let parts = parts.key(["a".into(), desc("b")]).partition("b").hash_index("by_a", ["a"]).finish().expect("valid");
    let parts = db.declare(TableDef { extension: 1, ..parts }).expect("valid");
    db.session().transact(|tx| tx.insert_dyn(&lines, &[1u32.into(), 2u32.into(), Value::NONE])).expect("alone");

    let json = written(&db, Format::Json, &[]);
    let copy = Database::in_memory().expect("memory");
    copy.load(json.as_bytes()).expect("a whole dump");
    assert_eq!(copy.table_names(), ["person", "line", "part"]);
    for name in copy.table_names() {
        let (table, copied) = (db.open_dyn(&name).expect("it is there"), copy.open_dyn(&name).expect("it is there"));
        assert_eq!(table.definition(), copied.definition());
    }
    assert_eq!(written(&copy, Format::Json, &[]), json, "ordered tables are in order");
    assert_eq!(copy.table::<Person>().map(|_| ()).map_err(|error| error.to_string()), Ok(()));
    // Some tables alone.
    let json = written(&db, Format::Json, &["line", "line"]);
    assert_eq!(json.lines().count(), 4, "{json}");
    assert!(json.ends_with("{\"end\":{\"tables\":1,\"rows\":1}}\n"), "{json}");
    let described = "table part, ordered, partitioned by desc(b)\n  a  u32  key\n  b  u32  key\n  c  u32  default \
                     \"7\", formerly d\n  key (a, desc(b))\n  index by_a (a), hashed\n";
    assert_eq!(dump::describe(parts.definition()), described);
    let sql = dump::to_sql(&[parts.definition()]).expect("names of SQL");
    assert!(sql.contains("\"c\" bigint NOT NULL DEFAULT 7 CHECK"), "{sql}");
    copy.load_csv("part", &b"b,a\n1,2\n"[..]).expect("the default is for the rest");
    assert!(written(&copy, Format::Csv, &["part"]).ends_with("2,1,7\n"));
    assert_eq!(
        dump::describe(lines.definition()),
        "table line, ordered, clustered by (order), replicated\n  order   u32  key\n  number  u32  key\n  item    u32  \
         nullable\n  key (order, number)\n  index by_item (desc(item)), unique, nulls not distinct, hashed\n"
    );
}

#[test]
fn tables_that_exist_keep_their_rows_and_must_be_declared_alike() {
    let db = Database::in_memory().expect("memory");
    let people = db.create::<Person>().expect("valid");
    db.session().transact(|tx| (0..9).try_for_each(|number| tx.insert(&people, &person(1, number)))).expect("alone");
    let json = written(&db, Format::Json, &[]);
    // The rows come in order of descending numbers. The last that is there comes first.
    let copy = Database::in_memory().expect("memory");
    let copied = copy.create::<Person>().expect("valid");
    copy.session().transact(|tx| tx.insert(&copied, &person(1, 3))).expect("alone");
    let error = copy.load(json.as_bytes()).expect_err("a row is there");
    assert!(matches!(&error.problem, LoadProblem::Row(TransactError::Duplicate { .. })), "{error}");
    assert_eq!((error.line, error.loaded.lines, error.loaded.tables[0].rows), (8, 7, 5));
    assert!(error.to_string().starts_with("line 8: duplicate key"), "{error}");
    assert!(error.to_string().ends_with("; loaded are the rows up to line 7: 5 of person"), "{error}");
    assert_eq!(copy.each_row(&copied, |_| ()).ok(), Some(6), "all rows before that line, and none behind it");

    #[derive(Table)]
    #[table(name = "person", key(id))]
    struct Other {
        id: u32,
    }
    let other = Database::in_memory().expect("memory");
    other.create::<Other>().expect("valid");
    let error = other.load(json.as_bytes()).expect_err("it differs");
    let says = "line 2: table `person` exists with another declaration: column number 0 is `id` u32, not `region` \
                u8; load the dump into a new directory; nothing is loaded";
    assert_eq!(error.to_string(), says);
}

/// The message of a failed load into a new database.
#[track_caller]
fn refused(text: &[u8]) -> String {
    let db = Database::in_memory().expect("memory");
    db.load(text).expect_err("it is wrong").to_string()
}

const BEGIN: &str = concat!(
    r#"{"seriatim":"dump","version":1}"#,
    "\n",
    r#"{"table":"part","columns":[{"name":"id","type":"u8"},"#,
    r#"{"name":"name","type":{"text":{"max":4}},"nullable":true}],"key":["id"]}"#,
    "\n",
    r#"{"table":"part","row":{"id":1,"name":"nut"}}"#,
    "\n"
);

#[test]
fn what_is_wrong_with_a_line_is_said() {
    let part = |line: &str| format!("{BEGIN}{line}\n");
    let after = "; loaded are the rows up to line 3: 1 of part";
    let lines = [
        r#"{"table":"part","row":{"id":300}}"#,
        r#"{"table":"part","row":{"id":1.5}}"#,
        r#"{"table":"part","row":{"id":true}}"#,
        r#"{"table":"part","row":{"id":null}}"#,
        r#"{"table":"part","row":{"id":2,"name":7}}"#,
        r#"{"table":"part","row":{"id":2,"name":["a"]}}"#,
        r#"{"table":"part","row":{"id":2,"name":"bolts"}}"#,
        r#"{"table":"part","row":{"name":"nut"}}"#,
        r#"{"table":"part","row":{"id":2,"id":3}}"#,
        r#"{"table":"part","row":{"id":2,"size":3}}"#,
        r#"{"table":"bolt","row":{"id":2}}"#,
        r#"{"table":"part","row":{"id":1}}"#,
        r#"{"table":"part","row":[2]}"#,
        r#"{"table":"part","row":{"id":2},"more":1}"#,
        r#"{"table":"part","row":{"id":"#,
        "[1]",
        r#"{"end":{"tables":1,"rows":2}}"#,
        "{\"end\":{\"tables\":1,\"rows\":1}}\n{\"seriatim\":\"dump\",\"version\":1}",
        "",
        BEGIN.lines().nth(1).unwrap_or_default(),
    ];
    let messages = lines.map(|line| refused(part(line).as_bytes()).replace(after, "\n")).concat();
    expect_test::expect![[r#"
        line 4: table `part`, column `id`: "300" is no u8: write an integer from 0 to 255
        line 4: table `part`, column `id`: "1.5" is no u8: write an integer from 0 to 255
        line 4: table `part`, column `id`: true is no u8: write a number, or a text with one
        line 4: table `part`, column `id`: null is no u8, and the column is not nullable
        line 4: table `part`, column `name`: 7 is no text(4): write a text
        line 4: table `part`, column `name`: ["a"] is no text(4): write a text
        line 4: table `part`, column `name`: "bolts" is no text(4): the value has 5 bytes; the column has room for 4
        line 4: table `part`, column `id`: it has no value, and is neither nullable nor has a default
        line 4: table `part`, column `id`: it is in the line twice
        line 4: table `part` has no column `size`
        line 4: there is no declaration of table `bolt`; the tables are part
        line 4: duplicate key id 1 in part
        line 4: at byte 22: invalid type: sequence, expected an object of columns and their values
        line 4: at byte 37: unknown field `more`, expected `table` or `row`
        line 4: at byte 28: EOF while parsing a value
        line 4: the line is no object of JSON, as all lines of a dump are
        line 4: the dump had 1 tables and 2 rows, but 1 tables and 1 rows are there
        line 5: the dump goes on behind its last line: load one dump after the other
        line 5: the dump ends before its last line: the rest was cut off
        line 4: a declaration follows a row; declarations come before all rows
    "#]]
    .assert_eq(&messages);
    assert!(refused(BEGIN.trim_end().as_bytes()).contains("the rest was cut off"));
    assert!(refused(&[BEGIN.as_bytes(), b"\xff\n"].concat()).contains("line 4: the line is not in UTF-8"));
}

#[test]
fn what_is_no_dump_loads_nothing() {
    let begin = "{\"seriatim\":\"dump\",\"version\":1}\n";
    let declared = BEGIN.lines().nth(1).unwrap_or_default();
    let dumps = [
        String::new(),
        "{\"id\":1}\n".to_owned(),
        "{\"seriatim\":\"dump\",\"version\":9}".to_owned(),
        begin.to_owned(),
        format!("{begin}{declared}\n{declared}"),
        format!("{begin}{}\n", declared.replace("\"id\"]", "\"size\"]")),
        format!("{begin}{}\n", declared.replace("nullable", "maybe")),
        format!("{begin}{declared}\n{{\"end\":{{\"tables\":2,\"rows\":0}}}}"),
    ];
    let lines =
        |dump: String| refused(dump.as_bytes()).replace("; ", ";\n  ").replace(", expected", ",\n  expected") + "\n";
    let messages = dumps.map(lines).concat().replace("`declared`, ", "`declared`,\n  ");
    expect_test::expect![[r#"
        line 1: "" is not how a dump begins: `seriatim dump --format json` writes one;
          rows of one table can be CSV;
          nothing is loaded
        line 1: "{\"id\":1}" is not how a dump begins: `seriatim dump --format json` writes one;
          rows of one table can be CSV;
          nothing is loaded
        line 1: the dump has version 9, and this program reads dumps up to version 1;
          nothing is loaded
        line 2: the dump ends before its last line: the rest was cut off;
          nothing is loaded
        line 3: table `part` is declared twice;
          nothing is loaded
        line 2: table `part`: the primary key names `size`, but the columns are id, name;
          nothing is loaded
        line 2: at byte 101: unknown field `maybe`,
          expected one of `name`, `type`, `nullable`, `immutable`, `default`, `computed_default`, `former`, `declared`,
          `identity`;
          nothing is loaded
        line 3: the dump had 2 tables and 0 rows, but 1 tables and 0 rows are there;
          no row is loaded, and tables were created: part
    "#]]
    .assert_eq(&messages);
}

#[test]
fn a_dump_that_is_cut_anywhere_is_refused() {
    let db = Database::in_memory().expect("memory");
    db.load(format!("{BEGIN}{{\"end\":{{\"tables\":1,\"rows\":1}}}}\n").as_bytes()).expect("whole");
    let whole = written(&db, Format::Json, &[]);
    assert!(
        Database::in_memory().expect("memory").load(whole.trim_end().as_bytes()).is_ok(),
        "only its end is missing"
    );
    for end in 0..whole.trim_end().len() {
        refused(&whole.as_bytes()[..end]);
    }
}

#[test]
fn csv_and_sql_say_what_they_cannot_hold() {
    let db = Database::in_memory().expect("memory");
    let db_says = |format, tables: &[&str]| db.dump(format, tables, Vec::new()).expect_err("refused").to_string();
    assert_eq!(db_says(Format::Csv, &[]), "CSV has the rows of one table: name one; the database has no table");
    db.load(format!("{BEGIN}{{\"end\":{{\"tables\":1,\"rows\":1}}}}\n").as_bytes()).expect("whole");
    db.create::<Person>().expect("valid");
    assert_eq!(db_says(Format::Csv, &[]), "CSV has the rows of one table: name one; the tables are part, person");
    assert_eq!(db_says(Format::Json, &["part", "bolt"]), "there is no table `bolt`; the tables are part, person");
    let parts = db.open_dyn("part").expect("it is there");
    db.session().transact(|tx| tx.insert_dyn(&parts, &[2u8.into(), Value::from("a\0b")])).expect("a new key");
    assert_eq!(
        db_says(Format::Sql, &["part"]),
        "table `part`, column `name`: PostgreSQL has no text with the character NUL; dump it as JSON"
    );
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is full"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = db.dump(Format::Json, &[], Full).expect_err("it cannot be written");
    assert!(matches!(&error, DumpError::Output(_)) && error.to_string().contains("the disk is full"), "{error}");
    let says = |text: &str| db.load_csv("part", text.as_bytes()).expect_err("refused").to_string();
    assert_eq!(says(""), "line 1: the input is empty: the first line has the names of columns; nothing is loaded");
    assert_eq!(says("id,size\n"), "line 1: table `part` has no column `size`; nothing is loaded");
    assert_eq!(says("id,id\n"), "line 1: table `part`, column `id`: it is named twice; nothing is loaded");
    assert_eq!(
        says("name\nbolt\n"),
        "line 2: table `part`, column `id`: it has no value, and is neither nullable nor has a default; nothing is \
         loaded"
    );
    assert_eq!(
        says("name,id\n\"a\nb\",5\nc,\n"),
        "line 4: table `part`, column `id`: an empty field is NULL, and the column is not nullable; an empty text is \
         \"\"; loaded are the rows up to line 2: 1 of part"
    );
    assert_eq!(
        says("name,id\nc,9\nd\n"),
        "line 3: there are 1 fields, and the first line names 2; loaded are the rows up to line 2: 1 of part"
    );
    assert_eq!(
        says("id\n6\n256\n"),
        "line 3: table `part`, column `id`: \"256\" is no u8: write an integer from 0 to 255; loaded are the rows \
         up to line 2: 1 of part"
    );
    let error = db.load_csv("bolt", &b"id\n"[..]).expect_err("there is none");
    assert!(error.to_string().starts_with("line 1: there is no declaration of table `bolt`"), "{error}");
}

/// Balances in a hashed and an ordered table.
#[derive(Table)]
#[table(name = "hashed", key(id), hash)]
struct Hashed {
    id: u64,
    balance: i64,
}

#[derive(Table)]
#[table(name = "ordered", key(id))]
struct Ordered {
    id: u64,
    balance: i64,
}

/// The sum of the balances in a dump, and the number of its rows.
fn sum(text: &str) -> (i64, usize) {
    let rows = text.lines().filter_map(|line| line.split_once("\"balance\":"));
    let balances: Vec<i64> = rows.map(|(_, number)| number.trim_end_matches('}').parse().expect("a number")).collect();
    (balances.iter().sum(), balances.len())
}

/// Amounts move between two tables, and accounts are replaced by others, while dumps are written.
#[test]
fn a_dump_of_a_database_in_use_is_of_one_moment() {
    const ACCOUNTS: u64 = 40;
    sampled("dump of a database in use", |setting| {
        let db = setting.open();
        let (hashed, ordered) = (db.create::<Hashed>().expect("valid"), db.create::<Ordered>().expect("valid"));
        let fill = |tx: &seriatim::Tx| {
            (0..ACCOUNTS).try_for_each(|id| {
                tx.insert(&hashed, &Hashed { id, balance: 100 })?;
                tx.insert(&ordered, &Ordered { id, balance: 100 })
            })
        };
        if setting.protocol.capabilities.ad_hoc {
            db.session().transact(fill).expect("alone");
        } else {
            return;
        }
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut session, mut rng, mut next) = (db.session(), Rng::from_seed(7), ACCOUNTS);
                while !done.load(Ordering::Relaxed) {
                    let (from, to) = (next - ACCOUNTS, rng.below(ACCOUNTS));
                    // An account is closed, and another opened with its balance less what goes to the other table. So
                    // the hashed table grows if its rows are not unlinked at once.
                    let moved = session.transact(|tx| {
                        let balance = tx.require(&hashed, &from)?.balance();
                        tx.delete(&hashed, &from)?;
                        tx.insert(&hashed, &Hashed { id: next, balance: balance - 1 })?;
                        tx.update(&ordered, &to, |row| row.set_balance(row.balance() + 1))
                    });
                    // A dump may keep transactions waiting for too long.
                    if moved.is_ok() {
                        next += 1;
                    }
                }
            });
            for _ in 0..tries(6, 40) {
                let mut text = Vec::new();
                match db.dump(Format::Json, &[], &mut text) {
                    Ok(dumped) => {
                        let text = String::from_utf8(text).expect("UTF-8");
                        assert_eq!(sum(&text), (200 * ACCOUNTS as i64, 2 * ACCOUNTS as usize), "{text}");
                        assert_eq!(dumped.tables[0], ("hashed".to_owned(), ACCOUNTS));
                    }
                    Err(error) => {
                        assert!(matches!(error, DumpError::Transact(TransactError::Excluded { .. })), "{error}")
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn rows_are_loaded_under_every_protocol() {
    each(|setting| {
        let db = setting.open();
        let row = r#"{"table":"part","row":{"name":null,"id":9}}"#;
        let text = format!("{BEGIN}{row}\n{{\"end\":{{\"tables\":1,\"rows\":2}}}}\n");
        match db.load(text.as_bytes()) {
            Ok(loaded) => {
                assert_eq!((loaded.lines, loaded.tables[0].rows), (4, 2));
                let mut lines = written(&db, Format::Csv, &[]).lines().map(str::to_owned).collect::<Vec<_>>();
                lines.sort_unstable();
                assert_eq!(lines, ["1,nut", "9,", "id,name"]);
            }
            Err(error) => {
                assert!(matches!(error.problem, LoadProblem::Transact(TransactError::NeedsPlan { .. })), "{error}");
                assert!(!setting.protocol.capabilities.ad_hoc, "{error}");
            }
        }
    });
}
