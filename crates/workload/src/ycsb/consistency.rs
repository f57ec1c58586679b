//! The conditions on YCSB's table: rows count exactly the committed writes, and no value is torn.

use std::sync::atomic::Ordering;

use super::Shared;
use super::options::Options;
use super::table::UserTable;
use crate::{LoadError, Report, Rule};
use seriatim::{Abort, Database, Handle, ReadTx};

static WRITES: Rule = Rule { clause: "writes", says: "sum of the rows' write counters = writes committed" };
static ROWS: Rule = Rule { clause: "rows", says: "rows = rows loaded + inserts committed" };
static VALUES: Rule = Rule { clause: "values", says: "every field is one letter repeated, of its full length" };

/// Keys looked at in one transaction.
const PART: u64 = 1 << 16;

/// Keys beyond the number of rows that are checked if the number of assigned keys is unknown.
const STRAY_KEYS: u64 = 1 << 20;

/// The results of a part.
#[derive(Default)]
struct PartResult {
    rows: u64,
    writes: u64,
    torn: Vec<u64>,
}

/// Checks the table. If there are ledgers, also compares it with the commits of this workload's terminals.
///
/// # Errors
/// When the table is missing or a reading transaction fails.
pub(super) fn check<T: UserTable>(
    db: &Database,
    options: &Options,
    shared: Option<&Shared>,
) -> Result<Report, LoadError> {
    let (table, mut session) = (db.table::<T>()?, db.session());
    let end = match shared {
        Some(shared) => shared.next_key.load(Ordering::Relaxed),
        // A power cut takes inserts back in the order of their epochs, not of their keys.
        None => options.records + STRAY_KEYS,
    };
    let mut report = Report::new(&[&WRITES, &ROWS, &VALUES]);
    let (mut rows, mut writes) = (0, 0);
    for from in (0..end).step_by(PART as usize) {
        let keys = from..end.min(from + PART);
        let found = session.snapshot(|tx| collect(tx, &table, options, keys.clone()))?.into_value();
        (rows, writes) = (rows + found.rows, writes + found.writes);
        let place = format!("keys {} to {}", keys.start, keys.end - 1);
        let torn = found.torn.first().map_or_else(|| "whole".to_owned(), |key| format!("key {key} torn"));
        report.equal(&VALUES, place, torn.as_str(), "whole");
    }
    let inserts = match shared {
        Some(shared) => {
            report.equal(&WRITES, "the table", writes, shared.ledgers.sum(|ledger| ledger.writes.get()));
            shared.ledgers.sum(|ledger| ledger.inserts.get())
        }
        None => 0,
    };
    report.equal(&ROWS, "the table", rows, options.records + inserts);
    Ok(report)
}

fn collect<T: UserTable>(
    tx: &ReadTx,
    table: &Handle<T>,
    options: &Options,
    keys: std::ops::Range<u64>,
) -> Result<PartResult, Abort> {
    let mut found = PartResult::default();
    for key in keys {
        let Some(row) = tx.get(table, &key)? else { continue };
        found.rows += 1;
        found.writes += T::writes(&row);
        if !(0..T::FIELDS).all(|field| is_whole(T::field(&row, field), options.value_bytes / T::FIELDS)) {
            found.torn.push(key);
        }
    }
    Ok(found)
}

fn is_whole(field: &str, bytes: usize) -> bool {
    let field = field.as_bytes();
    field.len() == bytes && field.iter().all(|byte| byte.is_ascii_lowercase() && *byte == field[0])
}
