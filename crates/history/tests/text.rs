//! The text format: a history survives dumping and loading; a mistake is refused with its line; no text makes
//! the loader or the checker panic.

use seriatim_base::{Epoch, Rng, TableId, Tid, rng};
use seriatim_history::{Columns, History, Initial, InitialRow, Key, Promises, Saw, Scan, Transaction, check, text};
use std::ops::Bound;

/// A history with every form of fact.
fn everything() -> History {
    let tid = Tid::first_of(Epoch(3)).bits() + 7;
    let mut scans = Transaction::new(4).scan(0, "a", "b", &[("a", 3), ("b", tid)]).during(5, 9);
    let long = Key::new(&[0xab; 40]);
    let saw = vec![(Key::from("a"), Saw::Absent), (long.clone(), Saw::AbsentAt(tid))];
    scans.scans.push(Scan {
        table: TableId(7),
        low: Bound::Excluded(Key::new(b"")),
        high: Bound::Unbounded,
        columns: Columns::of(&[1, 70]),
        saw,
    });
    let (low, high) = (Bound::Unbounded, Bound::Excluded(Key::from("z")));
    scans.scans.push(Scan { table: TableId(0), low, high, columns: Columns::ALL, saw: Vec::new() });
    let reads = Transaction::new(5).in_session(2).on_snapshot(0).read(0, "a", Saw::Row(3)).read(1, 8u64, Saw::Absent);
    let reads =
        reads.read_columns(0, "a", Columns::of(&[0, 2]), Saw::Row(3)).read_columns(0, "a", Columns::NONE, Saw::Row(3));
    let writes = Transaction::new(6).write(0, long, u64::MAX).delete(1, "0xplain", tid).during(1, 1);
    let writes = writes.update(0, "a", Columns::of(&[63]), 9).update(1, "a", Columns::NONE, 9);
    let grouped = [7, 8].map(|shown| Transaction::new(shown).during(5, 7).in_group(3, shown));
    let row = InitialRow { table: TableId(0), key: Key::from("a"), version: 3 };
    let tables = vec!["account".into(), "order line".into()];
    let groups = vec![vec![Columns::of(&[1]), Columns::of(&[0, 2])], vec![], vec![Columns::ALL]];
    History {
        tables,
        groups,
        initial: Initial::Rows(vec![row]),
        transactions: [scans, reads, writes].into_iter().chain(grouped).collect(),
    }
}

#[test]
fn everything_comes_back() {
    let mut history = everything();
    for initial in [history.initial.clone(), Initial::Empty, Initial::Unknown] {
        history.initial = initial;
        let dumped = text::dump(&history);
        assert_eq!(text::load(&dumped).expect("a dump can be loaded"), history, "{dumped}");
    }
    assert!(text::dump(&history).contains("=absent@3.7"), "TIDs are shown as such");
    assert!(text::dump(&history).contains("group 0 columns 0,2\n"), "columns are shown by position");
    assert!(text::dump(&history).contains("from 5 to 7 group 3\n"), "a transaction shown at its end has no `shown`");
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (line, words) in [
        ("read 0 x 1", "before any transaction"),
        ("table x account", "`x` is not a number"),
        ("table 4000000000 account", "below 65536"),
        ("initial 0 x", "initial empty|unknown|TABLE KEY VERSION"),
        ("transaction 1 session 0 from 0 to 1 snap 3", "snapshot INSTANT"),
        ("transaction 1 session 0 from 0 to 1 group 3 seen 4", "group NUMBER [shown INSTANT]"),
        ("transaction 1 session 0 from 0", "transaction ID session"),
        ("transaction 1 session 0 from 0 to 1\nread 0 x", "read TABLE KEY VERSION"),
        ("transaction 1 session 0 from 0 to 1\nread 0 x absent7", "absent@VERSION"),
        ("transaction 1 session 0 from 0 to 1\nwrite 0 x 1.999999999999", "too large"),
        ("transaction 1 session 0 from 0 to 1\nwrite 0 a/b 1", "is not a key"),
        ("transaction 1 session 0 from 0 to 1\nscan 0 a b", "a range starts with"),
        ("transaction 1 session 0 from 0 to 1\nscan 0 [a b", "a range ends with"),
        ("transaction 1 session 0 from 0 to 1\nscan 0 [a b] c", "KEY=VERSION"),
        ("transaction 1 session 0 from 0 to 1\nread 0 x 1 columns", "only `columns COLUMNS` can follow"),
        ("transaction 1 session 0 from 0 to 1\nwrite 0 x 1 columns 1;2", "`1;2` is not a number"),
        ("group 0 columns", "group TABLE columns COLUMNS"),
        ("group 65536 columns 1", "below 65536"),
        ("frob", "`frob`"),
    ] {
        let error = text::load(&format!("# a comment\nhistory 1\n\n{line}")).expect_err(line);
        assert!(error.message.contains(words), "{line}: {error}");
        assert_eq!(error.line, 3 + line.lines().count(), "{line}: {error}");
    }
    assert!(text::load("").is_err());
    assert_eq!(text::load("table 0 x").expect_err("no first line").line, 1);
}

#[test]
fn no_text_makes_the_loader_or_the_checker_panic() {
    let dumped = text::dump(&everything());
    let seed = rng::seed("no_text_makes_the_loader_or_the_checker_panic");
    let mut rng = Rng::from_seed(seed);
    let mut loaded = 0;
    for _ in 0..5000 {
        let mut bytes = dumped.clone().into_bytes();
        for _ in 0..rng.range(1, 4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = b"0123456789abx@.=[]()* \n?"[rng.below(24) as usize],
                1 => drop(bytes.remove(at)),
                _ => bytes[at] = rng.next_u64() as u8,
            }
        }
        if let Ok(history) = text::load(&String::from_utf8_lossy(&bytes)) {
            loaded += 1;
            let _ = check(&history, &Promises::STRICT).map_err(|violation| violation.to_string());
        }
    }
    assert!(loaded > 100, "{loaded}");
}
