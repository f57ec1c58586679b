//! What holds of the records: together they show exactly what the terminals committed.

use super::Ledger;
use super::options::Options;
use super::schema::Tables;
use crate::ledger::Ledgers;
use crate::{LoadError, Report, Rule};
use seriatim::Database;

static UPDATES: Rule = Rule { clause: "updates", says: "sum of the records' update counters = updates committed" };
static VALUES: Rule = Rule { clause: "values", says: "sum of the records' values = sum of the amounts committed" };
static ROWS: Rule = Rule { clause: "rows", says: "records = records loaded" };

/// Keys looked at in one transaction.
const PART: u64 = 1 << 16;

/// Checks the table; if there are ledgers, against what the terminals of this workload committed.
///
/// # Errors
/// When the table is missing or a reading transaction fails.
pub(super) fn check(db: &Database, options: &Options, ledgers: Option<&Ledgers<Ledger>>) -> Result<Report, LoadError> {
    let (tables, mut session) = (Tables::open(db)?, db.session());
    let mut report = Report::new(&[&UPDATES, &VALUES, &ROWS]);
    let (mut rows, mut updates, mut values) = (0u64, 0u64, 0u64);
    for from in (0..options.records).step_by(PART as usize) {
        let found = session.snapshot(|tx| {
            let mut found = (0u64, 0u64, 0u64);
            for key in from..options.records.min(from + PART) {
                let Some(record) = tx.get(&tables.record, &key)? else { continue };
                found = (found.0 + 1, found.1.wrapping_add(record.updates()), found.2.wrapping_add(record.value()));
            }
            Ok(found)
        })?;
        let found = found.into_value();
        (rows, updates, values) = (rows + found.0, updates.wrapping_add(found.1), values.wrapping_add(found.2));
    }
    if let Some(ledgers) = ledgers {
        report.equal(&UPDATES, "the table", updates, ledgers.sum(|ledger| ledger.updates.get()));
        report.equal(&VALUES, "the table", values, ledgers.sum(|ledger| ledger.amounts.get()));
    }
    report.equal(&ROWS, "the table", rows, options.records);
    Ok(report)
}
