//! Consistency of the keys: each client's, and the hot ones, count exactly the updates that committed.

use super::Ledger;
use super::input::{KEYS, KeyLocation};
use super::options::Options;
use super::schema::Tables;
use crate::ledger::Ledgers;
use crate::{LoadError, Report, Rule};
use seriatim::{Abort, Database, ReadTx};

static OWN: Rule = Rule { clause: "own", says: "sum of a client's keys = its updates of them committed" };
static HOT: Rule = Rule { clause: "hot", says: "sum of the partitions' hot keys = updates of them committed" };
static ROWS: Rule = Rule { clause: "rows", says: "a client's rows = twelve on each partition" };

/// The sums of one client's keys.
#[derive(Default)]
struct ClientKeys {
    rows: u64,
    own: u64,
    hot: u64,
}

/// Checks the table; if there are ledgers, against what the terminals of this workload committed.
///
/// # Errors
/// When the table is missing or a reading transaction fails.
pub(super) fn check(db: &Database, options: &Options, ledgers: Option<&Ledgers<Ledger>>) -> Result<Report, LoadError> {
    let (tables, mut session) = (Tables::open(db)?, db.session());
    let mut report = Report::new(&[&OWN, &HOT, &ROWS]);
    let mut hot = 0u64;
    for client in 0..options.clients {
        let found = session.snapshot(|tx| collect(tx, &tables, options.partitions, client))?.into_value();
        let place = format_args!("client {client}");
        if let Some(ledgers) = ledgers {
            let committed = ledgers.sum(|ledger| if ledger.client == client { ledger.own.get() } else { 0 });
            report.equal(&OWN, place, found.own, committed);
        }
        report.equal(&ROWS, place, found.rows, u64::from(options.partitions) * KEYS as u64);
        hot = hot.wrapping_add(found.hot);
    }
    if let Some(ledgers) = ledgers {
        report.equal(&HOT, "the table", hot, ledgers.sum(|ledger| ledger.hot.get()));
    }
    Ok(report)
}

fn collect(tx: &ReadTx, tables: &Tables, partitions: u16, client: u16) -> Result<ClientKeys, Abort> {
    let mut found = ClientKeys::default();
    for partition in 0..partitions {
        for number in 0..KEYS as u8 {
            let Some(cell) = tx.get(&tables.cell, &(partition, client, number))? else { continue };
            found.rows += 1;
            let sum =
                if (KeyLocation { partition, client, number }).is_hot() { &mut found.hot } else { &mut found.own };
            *sum = sum.wrapping_add(cell.value());
        }
    }
    Ok(found)
}
