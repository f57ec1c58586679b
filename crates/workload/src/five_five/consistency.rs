//! What holds of the objects: they count the transactions that committed, and each holds what some terminal last wrote there.
//!
//! The second needs that a session's own transactions are serialized in the order in which it ran them, and finds a blind write
//! that got lost: what shows then is older than the last of whoever wrote it, or nobody's.

use std::sync::Arc;

use super::Ledger;
use super::options::Options;
use super::schema::Tables;
use crate::ledger::Ledgers;
use crate::{LoadError, Report, Rule};
use seriatim::Database;

static STEPS: Rule = Rule { clause: "steps", says: "sum of the objects' step counters = transactions committed" };
static VALUES: Rule = Rule { clause: "values", says: "an object's value = the last that a terminal wrote there" };
static ROWS: Rule = Rule { clause: "rows", says: "objects = objects loaded" };

/// Objects looked at in one transaction.
const PART: u64 = 1 << 16;

/// Checks the table; if there are ledgers, against what the terminals of this workload committed.
///
/// # Errors
/// When the table is missing or a reading transaction fails.
pub(super) fn check(db: &Database, options: &Options, ledgers: Option<&Ledgers<Ledger>>) -> Result<Report, LoadError> {
    let (tables, mut session) = (Tables::open(db)?, db.session());
    let mut report = Report::new(&[&STEPS, &VALUES, &ROWS]);
    let (mut rows, mut steps) = (0u64, 0u64);
    for from in (0..options.objects).step_by(PART as usize) {
        let found = session.snapshot(|tx| {
            let mut found = Vec::with_capacity(PART as usize);
            for id in from..options.objects.min(from + PART) {
                if let Some(object) = tx.get(&tables.object, &id)? {
                    found.push((id, object.steps(), object.value()));
                }
            }
            Ok(found)
        })?;
        let ledgers = ledgers.map(Ledgers::all);
        for (id, object_steps, value) in found.into_value() {
            (rows, steps) = (rows + 1, steps.wrapping_add(object_steps));
            if let Some(ledgers) = &ledgers {
                report.equal(&VALUES, format_args!("object {id}"), value, last_written(ledgers, id, value));
            }
        }
    }
    if let Some(ledgers) = ledgers {
        report.equal(&STEPS, "the table", steps, ledgers.sum(|ledger| ledger.committed.get()));
    }
    report.equal(&ROWS, "the table", rows, options.objects);
    Ok(report)
}

/// A value that a terminal wrote last to an object: `shown` if it is one; zero if none wrote there.
fn last_written(ledgers: &[Arc<Ledger>], id: u64, shown: u64) -> u64 {
    let lasts = || ledgers.iter().map(|ledger| ledger.last[id as usize].get()).filter(|value| *value != 0);
    lasts().find(|value| *value == shown).or_else(|| lasts().next()).unwrap_or(0)
}
