//! Loops over scans: rows used within a pass, and rows kept for later passes, also under a protocol that copies rows.
//! The text is a reference into the row, so a row that is freed too early shows.

use seriatim::{Abort, Database, Session, Table, Text, Tx, procedure, procedures};

use crate::common::each;

#[derive(Table, Clone, Debug, PartialEq)]
#[table(
    name = "word",
    key(id),
    index(name = "by_length", columns(length)),
    index(name = "by_first", columns(first), hash)
)]
struct Word {
    id: u32,
    length: u32,
    first: u32,
    text: Text<24>,
    long: String,
}

const WORDS: [&str; 7] = ["rows", "live", "for", "a", "pass", "or", "transaction"];

fn word(id: u32) -> Word {
    let text = WORDS[id as usize];
    let (length, first) = (text.len() as u32, u32::from(text.as_bytes()[0]));
    Word { id, length, first, text: Text::truncated(text), long: text.repeat(20) }
}

/// Adds up rows, skips rows, ends a scan early, and reads rows while others change.
#[procedure]
fn used_up(tx: &Tx, least: u32, most: usize) -> Result<(u32, u64, u64, u32), Abort> {
    let (mut sum, mut bytes, mut limited, mut left) = (0u32, 0u64, 0u64, 0u32);
    for row in tx.scan::<Word>(..)? {
        if row.length < least {
            continue;
        }
        sum += row.length;
        for other in tx.scan_by::<Word>(Word::BY_LENGTH, ..row.length)? {
            bytes += measure(other.text, other.long);
        }
        tx.update::<Word>(row.id, |word| {
            word.length += 1;
        })?;
        sum += row.length;
    }
    for row in tx.scan::<Word>(..).limit(most)? {
        limited += measure(row.text, row.long);
    }
    for row in tx.find_by::<Word>(Word::BY_FIRST, 97)? {
        left += row.id;
        break;
    }
    let all = tx.scan::<Word>(..).limit(most).count()?;
    Ok((sum, bytes, limited + all, left))
}

/// Columns of rows of earlier passes: the longest text, those of the first and the last row, and all ids.
#[procedure]
fn kept(tx: &Tx, none: &str) -> Result<(String, String, String, Vec<u32>), Abort> {
    let (mut longest, mut first, mut last) = (none, None, none);
    let mut ids = Vec::new();
    for row in tx.scan::<Word>(..)? {
        let text = row.text;
        if text.len() > longest.len() {
            longest = text;
        }
        if first.is_none() {
            first = Some(text);
        }
        last = row.long;
        ids.push(row.id);
    }
    Ok((longest.to_owned(), first.unwrap_or(none).to_owned(), last.to_owned(), ids))
}

#[seriatim::pure(total)]
fn measure(text: &str, long: &str) -> u64 {
    (text.len() + long.len()) as u64
}

fn open(builder: seriatim::Builder) -> (Database, Session) {
    let db = builder.open().expect("a valid setting");
    let words = db.create::<Word>().expect("valid");
    db.register(procedures![used_up, kept]).expect("a sound set");
    let mut session = db.session();
    let fill = |tx: &Tx| (0..WORDS.len() as u32).try_for_each(|id| tx.insert(&words, &word(id)));
    session.transact(fill).expect("no conflict");
    (db, session)
}

#[test]
fn a_loop_over_rows_has_the_same_result_however_it_runs() {
    each(|setting| {
        let (_db, mut straight) = open(setting.builder());
        let (_db, mut checked) = open(setting.builder().check_plans(true));
        let (_db, mut interpreted) = open(setting.builder());
        let words: Vec<Word> = (0..WORDS.len() as u32).map(word).collect();
        let expected = ("transaction".to_owned(), "rows".to_owned(), word(6).long, (0..7).collect::<Vec<u32>>());
        let mut run = |least, most| {
            let none = String::new();
            assert_eq!(straight.call(kept, &none).expect("no conflict").value, expected);
            assert_eq!(checked.call(kept, &none).expect("no conflict").value, expected);
            assert_eq!(interpreted.interpret(kept, &none).expect("no conflict").value, expected);
            let given = (least, most);
            let wanted = interpreted.interpret(used_up, &given).expect("no conflict").value;
            assert_eq!(straight.call(used_up, &given).expect("no conflict").value, wanted);
            assert_eq!(checked.call(used_up, &given).expect("no conflict").value, wanted);
            wanted
        };
        let (sum, bytes, limited, left) = run(5, 3);
        // Only one word has five letters or more.
        let measured = |words: &[Word]| words.iter().map(|word| word.text.len() as u64 * 21).sum::<u64>();
        assert_eq!((sum, bytes), (22, measured(&words[..6])));
        assert_eq!((limited, left), (measured(&words[..3]) + 3, 3));
        run(1, 100);
    });
}
