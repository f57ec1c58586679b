//! Databases are dumped and loaded: those of every workload, one that is in use, and one with values of every type.

use std::io::Write;
use std::process::{Command, Stdio};

use seriatim::Database;
use seriatim_postgres::Server;
use seriatim_workload::WORKLOADS;
use seriatim_workload::tpcc::Warehouse;

use crate::directories::{Home, printed, refused, seriatim};

/// Loads a dump from standard input; what it prints.
#[track_caller]
fn load(arguments: &[&str], text: &str) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.arg("load").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("the binary starts");
    // One that refuses its arguments does not read.
    let _ = running.stdin.take().expect("a pipe").write_all(text.as_bytes());
    let output = running.wait_with_output().expect("it ends");
    let (said, talk) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => Ok(said.into_owned()),
        code => Err(format!("{code:?}: {}", talk.trim_end())),
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn the_database_of_every_workload_is_the_same_after_a_dump_and_a_load() {
    let small = |workload: &str| match workload {
        "tpcc" => vec!["--scale", "small"],
        "ycsb" | "multi-key" => vec!["--records", "300"],
        "smallbank" => vec!["--accounts", "200"],
        "tatp" => vec!["--subscribers", "100"],
        "articles" => vec!["--articles", "50", "--users", "50"],
        _ => vec![],
    };
    for workload in WORKLOADS.iter().map(|entry| entry.name) {
        let home = Home::new(&format!("dump-{workload}"));
        let (data, copy, file) = (home.at("db"), home.at("copy"), home.at("dump"));
        let run = ["bench", workload, "--data", &data, "--seconds", "0.2", "--warmup", "0", "--prefault", "0"];
        printed(&[&run, &small(workload)[..]].concat());
        printed(&["dump", &data, "--out", &file]);
        let loaded = printed(&["load", &copy, "--input", &file]);
        assert_eq!(loaded.lines().count(), printed(&["schema", &data, "--format", "json"]).lines().count(), "{loaded}");
        let (dump, again) = (std::fs::read_to_string(&file).expect("it was written"), printed(&["dump", &copy]));
        assert!(dump.lines().count() > 100, "{workload}: {dump}");
        assert!(sorted(&dump) == sorted(&again), "{workload}: the second dump differs");
        assert_eq!(printed(&["schema", &data, "--format", "json"]), printed(&["schema", &copy, "--format", "json"]));
        let report = printed(&["check", &copy]);
        assert!(report.contains("no fault"), "{workload}: {report}");
    }
}

#[derive(seriatim::Table, Clone, Debug)]
#[table(name = "part", key(id), hash)]
struct Part {
    id: u32,
    name: String,
    weight: Option<u64>,
}

/// Rows of a hashed table are dumped while another process has the database open: what is durable.
#[test]
fn rows_are_dumped_and_counted_also_from_a_database_in_use() {
    let home = Home::new("in-use-dump");
    let (data, file, theirs) = (home.at("db"), home.at("parts.csv"), home.at("parts.csv.partial"));
    std::fs::write(&theirs, "theirs").expect("it can be written");
    let db = Database::open(&data).expect("a new database");
    let parts = db.create::<Part>().expect("valid");
    let rows = [(1, "nut, \"M4\"", Some(7)), (2, "", None), (3, "bolt\n", Some(u64::MAX))];
    let row = |(id, name, weight): (u32, &str, Option<u64>)| Part { id, name: name.to_owned(), weight };
    db.session().transact(|tx| rows.iter().try_for_each(|&part| tx.insert(&parts, &row(part)))).expect("alone");
    printed(&["dump", &data, "--format", "csv", "--out", &file]);
    let csv = std::fs::read_to_string(&file).expect("it was written");
    assert!(csv.starts_with("id,name,weight\n"), "{csv}");
    assert_eq!(std::fs::read_to_string(&theirs).expect("it is there"), "theirs", "another file beside it stays");
    for line in ["1,\"nut, \"\"M4\"\"\",7\n", "2,\"\",\n", "3,\"bolt\n\",18446744073709551615\n"] {
        assert!(csv.contains(line), "{csv}");
    }
    let dump = printed(&["dump", &data, "part"]);
    let found: Vec<&str> = dump.lines().filter(|line| line.contains("\"row\"")).collect();
    for line in [
        r#"{"table":"part","row":{"id":1,"name":"nut, \"M4\"","weight":7}}"#,
        r#"{"table":"part","row":{"id":2,"name":"","weight":null}}"#,
        r#"{"table":"part","row":{"id":3,"name":"bolt\n","weight":"18446744073709551615"}}"#,
    ] {
        assert!(found.len() == 3 && found.contains(&line), "{dump}");
    }
    assert_eq!(
        printed(&["schema", &data]),
        "table part, hashed\n  id      u32   key\n  name    text\n  weight  u64   nullable\n"
    );
    assert_eq!(printed(&["dump", &data, "--count"]), "table,rows\npart,3\n");
    for command in ["dump", "schema"] {
        let line = refused(&[command, &data, "bolts"], 2);
        assert!(line.contains("no table `bolts`") && line.ends_with("the tables are part"), "{line}");
        let line = refused(&[command, &home.at("none")], 2);
        assert!(line.contains("database"), "{line}");
    }
    let line = refused(&["dump", &data, "--format", "csv", "--out", &file], 2);
    assert!(line.contains(&file) && line.contains("exists"), "{line}");
    db.create::<Warehouse>().expect("valid");
    let line = refused(&["dump", &data, "--format", "csv"], 2);
    assert!(line.contains("name one") && line.contains("part, warehouse"), "{line}");
    // A load needs the database for itself.
    let error = load(&[&data], &dump).expect_err("it is open");
    assert!(error.starts_with("Some(1)") && error.contains(&data) && error.contains("open"), "{error}");
    drop(db);
    assert_eq!(printed(&["dump", &data, "--count"]), "table,rows\npart,3\nwarehouse,0\n");
    assert!(printed(&["dump", "--help"]).contains("--count"));
}

const DUMP: &str = r#"{"seriatim":"dump","version":1}
{"table":"part","columns":[{"name":"id","type":"u8"}],"key":["id"]}
{"table":"part","row":{"id":1}}
{"end":{"tables":1,"rows":1}}
"#;

#[test]
fn what_is_loaded_is_said_and_what_is_wrong_too() {
    let home = Home::new("load");
    let data = home.at("db");
    let parts = |command: &[&str]| printed(&[&["dump", &data], command].concat());
    assert_eq!(load(&[&data], DUMP).as_deref(), Ok("loaded         part: 1 rows, created\n"));
    let error = load(&[&data], &DUMP.replace("\"id\":1}}", "\"id\":2}}\n{\"table\":\"part\",\"row\":{\"id\":256}}"));
    let says =
        "column `id`: \"256\" is no u8: write an integer from 0 to 255; loaded are the rows up to line 3: 1 of part";
    assert_eq!(error, Err(format!("Some(1): seriatim: {data}: line 4: table `part`, {says}")));
    assert_eq!(parts(&["--count"]), "table,rows\npart,2\n");
    let error = load(&[&data], DUMP);
    assert_eq!(error, Err(format!("Some(1): seriatim: {data}: line 3: duplicate key id 1 in part; nothing is loaded")));
    let loaded = load(&[&data, "part", "--format", "csv"], "id\n9\n8\n");
    assert_eq!(loaded.as_deref(), Ok("loaded         part: 2 rows\n"));
    assert_eq!(parts(&["part", "--format", "csv"]), "id\n1\n2\n8\n9\n");
    for (arguments, says) in [
        (&["load", &data, "part"][..], "leave out TABLE"),
        (&["load", &data, "--format", "csv"], "name it after DIR"),
        (&["load", &home.at("none"), "part", "--format", "csv", "--input", "/dev/null"], "database"),
        (&["load", &home.at("none"), "--input", &home.at("missing")], "--input"),
    ] {
        let line = refused(arguments, 2);
        assert!(line.contains(says), "{line}");
    }
    assert!(!home.exists("none"), "nothing is made");
    let error = load(&[&data, "bolt", "--format", "csv"], "id\n").expect_err("there is no such table");
    assert!(error.starts_with("Some(2): seriatim: line 1: there is no"), "{error}");
    // What a pipe gives is read to its end, and a reader that goes away is no failure.
    assert!(seriatim(&["dump", &data]).status.success());
}

/// A column of every type: its name and type, a value at an end that PostgreSQL has too, and another or NULL.
const TYPES: [[&str; 4]; 23] = [
    ["bool", r#""bool""#, "true", "null"],
    ["i8", r#""i8""#, "-128", "null"],
    ["i64", r#""i64""#, r#""-9223372036854775808""#, "null"],
    ["u8", r#""u8""#, "255", "null"],
    ["u32", r#""u32""#, "4294967295", "null"],
    ["u64", r#""u64""#, r#""18446744073709551615""#, "null"],
    ["i128", r#""i128""#, r#""-170141183460469231731687303715884105728""#, "null"],
    ["u128", r#""u128""#, r#""340282366920938463463374607431768211455""#, "null"],
    ["f32", r#""f32""#, "-0.0", r#""inf""#],
    ["f64", r#""f64""#, r#""NaN""#, "-1.5e300"],
    ["decimal", r#"{"decimal":{"scale":3}}"#, r#""-9223372036854775.808""#, "null"],
    ["numeric", r#""numeric""#, r#""1.50""#, "null"],
    ["char", r#""char""#, r#""'""#, "null"],
    ["text", r#"{"text":{"max":20}}"#, r#""it's \"\\\n""#, r#""""#],
    ["bytes", r#""long_bytes""#, r#""00ff27""#, r#""""#],
    ["array", r#"{"byte_array":{"bytes":3}}"#, r#""0102ff""#, "null"],
    ["uuid", r#""uuid""#, r#""00000000-0000-0000-0000-00000000000a""#, "null"],
    ["date", r#""date""#, r#""-004713-11-24""#, r#""0000-02-29""#],
    ["time", r#""time""#, r#""23:59:59.999999""#, "null"],
    ["date_time", r#""date_time""#, r#""9999-12-31T23:59:59.999999""#, r#""-000001-01-01T00:00:00""#],
    ["timestamp", r#""timestamp""#, r#""9223372036854775807us""#, r#""-000001-01-01T00:00:00.5Z""#],
    ["interval", r#""interval""#, r#""P-2147483648M2147483647DT-9223372036854.775808S""#, "null"],
    ["enum", r#"{"enum":{"variants":[[1,"it's"]]}}"#, r#""it's""#, "null"],
];

/// A dump of a table with these columns and two rows.
fn dump_of_types() -> String {
    let table = r#"{"table":"all \"types\"""#;
    let columns = TYPES.map(|[name, ty, ..]| format!(r#",{{"name":"{name}","type":{ty},"nullable":true}}"#)).concat();
    let keys = r#""key":["id"],"indexes":[{"name":"by_u64","key":[{"desc":"u64"}],"unique":true,"#;
    let others = r#""nulls_not_distinct":true},{"name":"all \"types\"","key":["i8","f64"]}]}"#;
    let row = |id: usize| {
        let values = TYPES.map(|of| format!(r#","{}":{}"#, of[0], of[1 + id])).concat();
        format!(r#"{table},"row":{{"id":{id}{values}}}}}"#)
    };
    [
        r#"{"seriatim":"dump","version":1}"#.to_owned(),
        format!(r#"{table},"columns":[{{"name":"id","type":"u16"}}{columns}],{keys}{others}"#),
        row(1),
        row(2),
        r#"{"end":{"tables":1,"rows":2}}"#.to_owned(),
    ]
    .join("\n")
}

#[test]
fn a_script_of_every_type_is_taken_by_postgresql() {
    let Some(binaries) = seriatim_postgres::binaries() else {
        eprintln!("skipped: {}", seriatim_postgres::MISSING);
        return;
    };
    let home = Home::new("sql");
    let data = home.at("db");
    load(&[&data], &dump_of_types()).expect("a whole dump");
    let script = printed(&["dump", &data, "--format", "sql"]);
    let server = Server::start(binaries, "dump", "", "timezone = 'UTC'\n").expect("it starts");
    server.psql(&script).expect("it takes the script");
    let expected = expect_test::expect![[r#"
        1
        t
        -128
        -9223372036854775808
        255
        4294967295
        18446744073709551615
        -170141183460469231731687303715884105728
        340282366920938463463374607431768211455
        -0
        NaN
        -9223372036854775.808
        1.50
        '
        it's "\\\n
        \\x00ff27
        \\x0102ff
        00000000-0000-0000-0000-00000000000a
        4714-11-24 BC
        23:59:59.999999
        9999-12-31 23:59:59.999999
        294247-01-10 04:00:54.775807+00
        -178956970 years -8 mons +2147483647 days -2562047788:00:54.775808
        it's
        2
        \N
        \N
        \N
        \N
        \N
        \N
        \N
        \N
        Infinity
        -1.5e+300
        \N
        \N
        \N

        \\x
        \N
        \N
        0001-02-29 BC
        \N
        0002-01-01 00:00:00 BC
        0002-01-01 00:00:00.5+00 BC
        \N
        \N"#]];
    let rows = server.psql("COPY (SELECT * FROM \"all \"\"types\"\"\" ORDER BY id) TO STDOUT").expect("a table");
    expected.assert_eq(&rows.replace('\t', "\n"));
    let indexes =
        server.psql("SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1").expect("a view");
    expect_test::expect![[r#"
        CREATE INDEX "all ""types""_i8_f64_idx" ON public."all ""types""" USING btree (i8, f64)
        CREATE UNIQUE INDEX "all ""types""_pkey" ON public."all ""types""" USING btree (id)
        CREATE UNIQUE INDEX by_u64 ON public."all ""types""" USING btree (u64 DESC) NULLS NOT DISTINCT"#]]
    .assert_eq(&indexes);
    // Each condition of a column is one that its table has.
    for (column, value) in [("u8", "256"), ("u64", "-1"), ("enum", "'its'"), ("array", "'\\x00'"), ("char", "'ab'")] {
        let refused = server.psql(&format!("INSERT INTO \"all \"\"types\"\"\" (id, \"{column}\") VALUES (9, {value})"));
        assert!(refused.is_err_and(|error| error.contains("check constraint")), "{column}");
    }
}
