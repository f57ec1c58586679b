//! Dumps: text from anywhere is refused with its line, or loaded. What is loaded is dumped, and that loads as the same.
//!
//! Input: whether the rest is a dump in JSON, or rows in CSV of a table of these; the text.

use seriatim::Database;
use seriatim::dump::{Format, LoadError};

/// A dump with columns of every form.
const DUMP: &str = concat!(
    r#"{"seriatim":"dump","version":1}"#,
    "\n",
    r#"{"table":"all","columns":[{"name":"id","type":"u32"},{"name":"big","type":"i128","nullable":true},"#,
    r#"{"name":"real","type":"f64","nullable":true},"#,
    r#"{"name":"sum","type":{"decimal":{"scale":2}},"nullable":true},"#,
    r#"{"name":"text","type":"long_text","nullable":true,"immutable":true},"#,
    r#"{"name":"bytes","type":{"bytes":{"max":4}},"nullable":true},"#,
    r#"{"name":"at","type":"timestamp","nullable":true},{"name":"span","type":"interval","nullable":true},"#,
    r#"{"name":"state","type":{"enum":{"variants":[[0,"New"],[7,"Paid"]]}},"nullable":true}],"key":["id"],"#,
    r#""organization":"hash","indexes":[{"name":"by_sum","key":[{"desc":"sum"}],"unique":true}]}"#,
    "\n",
    r#"{"table":"pair","columns":[{"name":"a","type":"u8"},"#,
    r#"{"name":"b","type":"char"}],"key":["a","b"],"cluster":["a"],"partition":"a"}"#,
    "\n",
    r#"{"table":"all","row":{"id":1,"big":"-170141183460469231731687303715884105728","real":-0.0,"#,
    r#""sum":"1.50","text":"a\"\\\u0000é","bytes":"00ff","at":"1970-01-01T00:00:00Z","span":"P1M-1D","#,
    r#""state":"Paid"}}"#,
    "\n",
    r#"{"table":"all","row":{"id":2,"real":"NaN"}}"#,
    "\n",
    r#"{"table":"pair","row":{"b":"\n","a":9}}"#,
    "\n",
    r#"{"end":{"tables":2,"rows":3}}"#,
    "\n",
);

const CSV: &str = "id,text,real,sum\n7,\"a \"\"quoted\"\"\ntext\",-1e300,-0.05\n8,\"\",inf,\n9,,,1\r\n";

fn open() -> Database {
    // A declared capacity is a hint, and may be of any size.
    Database::builder().workers(1).step_helpers(true).memory_limit(32 << 20).open().expect("memory")
}

pub(crate) fn run(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else { return };
    let db = open();
    let loaded = if kind & 1 == 0 {
        db.load(text)
    } else {
        db.load(DUMP.as_bytes()).expect("it is sound");
        db.load_csv("all", text)
    };
    match &loaded {
        Ok(loaded) => assert!(loaded.lines <= lines(text)),
        Err(LoadError { line, loaded, .. }) => {
            assert!((1..=lines(text) + 1).contains(line) && loaded.lines < *line, "line {line}");
        }
    }
    if let Err(error) = &loaded {
        assert!(error.to_string().starts_with(&format!("line {}: ", error.line)), "{error}");
    }
    let dump = dumped(&db);
    let again = open();
    again.load(dump.as_bytes()).unwrap_or_else(|error| panic!("{error}: {dump}"));
    assert_eq!(sorted(&dumped(&again)), sorted(&dump));
}

fn lines(text: &[u8]) -> u64 {
    text.split_inclusive(|byte| *byte == b'\n').count() as u64
}

fn dumped(db: &Database) -> String {
    let mut dump = Vec::new();
    db.dump(Format::Json, &[], &mut dump).expect("memory");
    String::from_utf8(dump).expect("JSON is UTF-8")
}

fn sorted(dump: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = dump.lines().collect();
    lines.sort_unstable();
    lines
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let seed = |kind: u8, text: &str| [&[kind], text.as_bytes()].concat();
    let head: String = DUMP.lines().take(2).map(|line| format!("{line}\n")).collect();
    vec![seed(0, DUMP), seed(0, &head), seed(1, CSV), seed(1, "id\n")]
}
