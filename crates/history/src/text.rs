//! Histories as text, one fact a line, so that a failing seed can be kept, cut down by hand and checked again.
//!
//! ```text
//! # a comment
//! history 1                              the format's version; must come first
//! table 0 account                        a name for table 0
//! group 0 columns 2,3                    columns of table 0 that are judged apart from the others
//! initial empty                          or: initial unknown, or any number of
//! initial 0 alice 3                      a row that was there: table, key, version
//! transaction 12 session 1 from 100 to 250      its id, its session and when it ran
//! transaction 13 session 2 from 0 to ? snapshot 90      `?`: the end is unknown; shows all that ended before 90
//! transaction 14 session 3 from 260 to 300 group 2 shown 350      of this group; others must see it from 350 on
//!                                 (without `shown`: from its end on)
//! read 0 alice 3                         facts of the latest transaction: it read this row version,
//! read 0 bob absent                      found nothing,
//! read 0 carl absent@7                   found nothing as of version 7,
//! scan 0 [alice dave) alice=3 bob=absent@7      found this and nothing else in the range; (..): ends excluded, * none
//! scan 0 [alice dave) bob=hidden  found nothing else; a write of its own covered this key,
//! scan 0 * *                             found the table empty,
//! write 0 alice 8                        wrote a row version,
//! delete 0 bob 9                         deleted a row
//! read 0 alice 3 columns 1,2             used only these columns (`none`: only that there is a row),
//! scan 0 * * columns 1 alice=3           likewise, of each row,
//! write 0 alice 8 columns 2              changed only these of a row that was there
//! add 0 alice 8 columns 2         only added to these, so that other additions may come before or after it
//! defer 0 alice 8 columns 2       likewise, published later, perhaps together with other additions
//! ```
//!
//! Keys are plain words (letters, digits, `_`, `.`, `-`) or `0x` and hexadecimal digits. Versions are numbers
//! or, where they are TIDs of an epoch above 0, `epoch.counter`.

use crate::{Addition, Columns, Group, History, Initial, InitialRow, Key, Read, Saw, Scan, Transaction, Write};
use seriatim_base::{Epoch, TableId, Tid};
use std::fmt::{self, Write as _};
use std::ops::Bound;

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// The mistake, and the valid form.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// The text of a history.
pub fn dump(history: &History) -> String {
    let mut out = String::from("history 1\n");
    let w = &mut out;
    // Writing to a string does not fail.
    let _ = dump_to(w, history);
    out
}

fn dump_to(w: &mut String, history: &History) -> fmt::Result {
    for (i, name) in history.tables.iter().enumerate() {
        writeln!(w, "table {i} {name}")?;
    }
    for (i, group) in
        history.groups.iter().enumerate().flat_map(|(i, groups)| groups.iter().map(move |group| (i, group)))
    {
        writeln!(w, "group {i} columns {group}")?;
    }
    match &history.initial {
        Initial::Empty => writeln!(w, "initial empty")?,
        Initial::Rows(rows) if rows.is_empty() => writeln!(w, "initial empty")?,
        Initial::Unknown => writeln!(w, "initial unknown")?,
        Initial::Rows(rows) => {
            for row in rows {
                writeln!(w, "initial {} {} {}", row.table, row.key, version(row.version))?;
            }
        }
    }
    for t in &history.transactions {
        write!(w, "transaction {} session {} from {} to ", t.id, t.session, t.began)?;
        if t.ended == u64::MAX {
            w.push('?')
        } else {
            write!(w, "{}", t.ended)?
        }
        if let Some(instant) = t.snapshot {
            write!(w, " snapshot {instant}")?;
        }
        match t.group {
            Some(Group { number, shown }) if shown != t.ended => write!(w, " group {number} shown {shown}")?,
            Some(Group { number, .. }) => write!(w, " group {number}")?,
            None => {}
        }
        w.push('\n');
        for read in &t.reads {
            writeln!(w, "read {} {} {}{}", read.table, read.key, saw(read.saw), used(read.columns))?;
        }
        for scan in &t.scans {
            write!(w, "scan {} ", scan.table)?;
            match &scan.low {
                Bound::Included(key) => write!(w, "[{key}")?,
                Bound::Excluded(key) => write!(w, "({key}")?,
                Bound::Unbounded => w.push('*'),
            }
            match &scan.high {
                Bound::Included(key) => write!(w, " {key}]")?,
                Bound::Excluded(key) => write!(w, " {key})")?,
                Bound::Unbounded => w.push_str(" *"),
            }
            w.push_str(&used(scan.columns));
            for (key, seen) in &scan.saw {
                write!(w, " {key}={}", saw(*seen))?;
            }
            w.push('\n');
        }
        for write in &t.writes {
            let verb = if write.deleted { "delete" } else { "write" };
            write!(w, "{verb} {} {} {}", write.table, write.key, version(write.version))?;
            match write.columns {
                Some(columns) => writeln!(w, " columns {columns}")?,
                None => w.push('\n'),
            }
        }
        for Addition { table, key, version: at, columns, deferred } in &t.additions {
            let verb = if *deferred { "defer" } else { "add" };
            writeln!(w, "{verb} {table} {key} {} columns {columns}", version(*at))?;
        }
    }
    Ok(())
}

/// Reads a history from text.
///
/// # Errors
/// At the first line that does not follow the format.
pub fn load(text: &str) -> Result<History, ParseError> {
    let mut history = History::default();
    let mut started = false;
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = |message: String| ParseError { line: i + 1, message };
        if !started {
            if line != "history 1" {
                return Err(fault(format!("`{line}`: a history starts with the line `history 1`")));
            }
            started = true;
            continue;
        }
        load_line(&mut history, line).map_err(fault)?;
    }
    if !started {
        return Err(ParseError {
            line: 1,
            message: "nothing here: a history starts with the line `history 1`".to_owned(),
        });
    }
    Ok(history)
}

fn load_line(history: &mut History, line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match (words[0], &words[1..]) {
        ("table", [number, name @ ..]) => {
            let number = table(number)?.index();
            // There are few names; a huge number is a mistake, not a reason to allocate.
            if number >= 1 << 16 {
                return Err(format!("table {number}: names are for tables below 65536"));
            }
            if history.tables.len() <= number {
                history.tables.resize_with(number + 1, String::new);
            }
            history.tables[number] = name.join(" ");
        }
        ("group", [of, "columns", columns]) => {
            let number = table(of)?.index();
            if number >= 1 << 16 {
                return Err(format!("table {number}: groups are for tables below 65536"));
            }
            if history.groups.len() <= number {
                history.groups.resize_with(number + 1, Vec::new);
            }
            history.groups[number].push(load_columns(columns)?);
        }
        ("initial", ["empty"]) => history.initial = Initial::Empty,
        ("initial", ["unknown"]) => history.initial = Initial::Unknown,
        ("initial", [of, key, at]) => {
            let row = InitialRow { table: table(of)?, key: key.parse()?, version: load_version(at)? };
            match &mut history.initial {
                Initial::Rows(rows) => rows.push(row),
                Initial::Empty | Initial::Unknown => history.initial = Initial::Rows(vec![row]),
            }
        }
        ("transaction", [id, "session", session, "from", began, "to", ended, rest @ ..]) => {
            let ended = if *ended == "?" { u64::MAX } else { number(ended)? };
            let (snapshot, rest) = match rest {
                ["snapshot", instant, rest @ ..] => (Some(number(instant)?), rest),
                rest => (None, rest),
            };
            let group = match rest {
                [] => None,
                ["group", of] => Some(Group { number: number(of)?, shown: ended }),
                ["group", of, "shown", shown] => Some(Group { number: number(of)?, shown: number(shown)? }),
                _ => {
                    let rest = rest.join(" ");
                    return Err(format!(
                        "`{rest}`: only `snapshot INSTANT` and `group NUMBER [shown INSTANT]` can follow"
                    ));
                }
            };
            history.transactions.push(Transaction {
                id: number(id)?,
                session: number(session)?,
                began: number(began)?,
                ended,
                snapshot,
                group,
                ..Transaction::default()
            });
        }
        (verb @ ("read" | "scan" | "write" | "delete" | "add" | "defer"), rest) => {
            let t = history.transactions.last_mut().ok_or_else(|| format!("`{verb}` before any transaction"))?;
            load_fact(t, verb, rest)?;
        }
        (verb, _) => {
            return Err(format!(
                "`{verb}`: expected `table NUMBER NAME`, `group TABLE columns COLUMNS`, \
                     `initial empty|unknown|TABLE KEY VERSION`, `transaction ID session NUMBER from INSTANT to INSTANT \
                     [snapshot INSTANT] [group NUMBER [shown INSTANT]]`, `read`, `scan`, `write`, `delete`, \
                     `add` or `defer`"
            ));
        }
    }
    Ok(())
}

fn load_fact(t: &mut Transaction, verb: &str, rest: &[&str]) -> Result<(), String> {
    match (verb, rest) {
        ("read", [of, key, seen, rest @ ..]) => {
            let columns = load_used(rest)?.unwrap_or(Columns::ALL);
            t.reads.push(Read { table: table(of)?, key: key.parse()?, columns, saw: load_saw(seen)? });
        }
        ("write" | "delete", [of, key, at, rest @ ..]) => {
            let (version, deleted, columns) = (load_version(at)?, verb == "delete", load_used(rest)?);
            t.writes.push(Write { table: table(of)?, key: key.parse()?, version, deleted, columns });
        }
        ("add" | "defer", [of, key, at, "columns", columns]) => {
            let (version, columns, deferred) = (load_version(at)?, load_columns(columns)?, verb == "defer");
            t.additions.push(Addition { table: table(of)?, key: key.parse()?, version, columns, deferred });
        }
        ("add" | "defer", _) => {
            return Err(format!("`{verb} {}`: write `{verb} TABLE KEY VERSION columns COLUMNS`", rest.join(" ")));
        }
        ("scan", [of, low, high, rest @ ..]) => {
            let (columns, seen) = match rest {
                ["columns", columns, seen @ ..] => (load_columns(columns)?, seen),
                seen => (Columns::ALL, seen),
            };
            let low = match low.split_at_checked(1) {
                Some(("*", "")) => Bound::Unbounded,
                Some(("[", key)) => Bound::Included(key.parse()?),
                Some(("(", key)) => Bound::Excluded(key.parse()?),
                _ => return Err(format!("`{low}`: a range starts with `[KEY`, `(KEY` or `*`")),
            };
            let high = match (high.strip_suffix(']'), high.strip_suffix(')')) {
                (Some(key), _) => Bound::Included(key.parse()?),
                (_, Some(key)) => Bound::Excluded(key.parse()?),
                _ if *high == "*" => Bound::Unbounded,
                _ => return Err(format!("`{high}`: a range ends with `KEY]`, `KEY)` or `*`")),
            };
            let saw: Result<Vec<(Key, Saw)>, String> = seen
                .iter()
                .map(|pair| {
                    let (key, seen) = pair.split_once('=').ok_or_else(|| format!("`{pair}`: write KEY=VERSION"))?;
                    Ok((key.parse()?, load_saw(seen)?))
                })
                .collect();
            t.scans.push(Scan { table: table(of)?, low, high, columns, saw: saw? });
        }
        _ => return Err(format!("`{verb} {}`: write `{verb} TABLE KEY VERSION`", rest.join(" "))),
    }
    Ok(())
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is not a number that fits here"))
}

fn table(word: &str) -> Result<TableId, String> {
    number(word).map(TableId)
}

/// A version: `epoch.counter` if it is a TID of an epoch above 0, else its number.
pub(crate) fn version(version: u64) -> String {
    let tid = (version >> Tid::BITS == 0).then(|| Tid::from_bits(version));
    match tid {
        Some(tid) if tid.epoch() != Epoch(0) => tid.to_string(),
        _ => version.to_string(),
    }
}

fn load_version(word: &str) -> Result<u64, String> {
    let Some((epoch, counter)) = word.split_once('.') else {
        return number(word);
    };
    let (epoch, counter) = (number::<u64>(epoch)?, number::<u64>(counter)?);
    if epoch >> (Tid::BITS - Tid::COUNTER_BITS) != 0 || counter >> Tid::COUNTER_BITS != 0 {
        return Err(format!("`{word}` is not a TID: the epoch or the counter is too large"));
    }
    Ok(epoch << Tid::COUNTER_BITS | counter)
}

/// The columns of a read; nothing for all.
fn used(columns: Columns) -> String {
    if columns == Columns::ALL { String::new() } else { format!(" columns {columns}") }
}

/// The columns after a read or a write.
fn load_used(rest: &[&str]) -> Result<Option<Columns>, String> {
    match rest {
        [] => Ok(None),
        ["columns", columns] => load_columns(columns).map(Some),
        _ => Err(format!("`{}`: only `columns COLUMNS` can follow", rest.join(" "))),
    }
}

impl fmt::Display for Columns {
    /// As in the text format: positions with commas between, or `all`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Columns::ALL => return f.write_str("all"),
            Columns::NONE => return f.write_str("none"),
            Columns(_) => {}
        }
        let columns = (0..64).filter(|column| self.0 >> column & 1 != 0);
        columns.enumerate().try_for_each(|(i, column)| write!(f, "{}{column}", if i == 0 { "" } else { "," }))
    }
}

fn load_columns(word: &str) -> Result<Columns, String> {
    match word {
        "all" => Ok(Columns::ALL),
        "none" => Ok(Columns::NONE),
        _ => word.split(',').map(number::<u32>).collect::<Result<Vec<u32>, String>>().map(|list| Columns::of(&list)),
    }
}

fn saw(saw: Saw) -> String {
    match saw {
        Saw::Row(at) => version(at),
        Saw::AbsentAt(at) => format!("absent@{}", version(at)),
        Saw::Absent => "absent".to_owned(),
        Saw::Hidden => "hidden".to_owned(),
    }
}

fn load_saw(word: &str) -> Result<Saw, String> {
    if word == "hidden" {
        return Ok(Saw::Hidden);
    }
    match word.strip_prefix("absent") {
        Some("") => Ok(Saw::Absent),
        Some(at) => {
            let at = at.strip_prefix('@').ok_or_else(|| format!("`{word}`: write `absent` or `absent@VERSION`"))?;
            Ok(Saw::AbsentAt(load_version(at)?))
        }
        None => Ok(Saw::Row(load_version(word)?)),
    }
}
