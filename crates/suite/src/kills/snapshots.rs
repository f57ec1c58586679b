//! Processes that are killed where durability is by snapshot. They run transfers, and a reader that reports the number
//! of each snapshot and its contents. After a kill, the recovered state is the snapshot with the reported number, as
//! the reader saw it.

use std::collections::BTreeMap;
use std::path::Path;

use seriatim::{Builder, Database, OpenError, SnapshotTransaction};

use super::{ACCOUNTS, Account, Line, Oracle, Transfers, said};

/// The bit by which what a reader tells is not a thread of transfers: the rest of it is what the reader saw.
const READER: u32 = 1 << 31;

/// These options, with durability by snapshot.
pub(super) fn configure(builder: Builder) -> Builder {
    builder.protocol_option("durable_snapshots", 1)
}

/// Something that differs where rows do; `None` where there are no tables yet.
fn fingerprint(db: &Database, tx: &SnapshotTransaction<'_>) -> Result<Option<u32>, String> {
    let (Ok(accounts), Ok(lines)) = (db.table::<Account>(), db.table::<Line>()) else { return Ok(None) };
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    // FNV-1a, a word at a time.
    let mut note = |word: u64| hash = (hash ^ word).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    for id in 0..ACCOUNTS {
        let balance = tx.get(&accounts, &id).map_err(said)?.map(|account| account.balance());
        note(balance.map_or(u64::MAX, |balance| balance as u64));
    }
    for line in tx.scan(&lines, ..) {
        let line = line.map_err(said)?;
        [line.thread().into(), line.number(), line.account().into()].into_iter().for_each(&mut note);
    }
    Ok(Some(hash as u32 | READER))
}

/// Reads one snapshot after another, and tells of each, durable or not.
pub(super) fn read(db: &Database, tell: &dyn Fn(u32, u64), stops: &dyn Fn() -> bool) -> Result<(), String> {
    let (mut session, mut last) = (db.session(), 0);
    while !stops() {
        let tx = session.begin_snapshot().map_err(said)?;
        let Some(seen) = fingerprint(db, &tx)? else { continue };
        let number = match tx.submit().decided() {
            Some(Ok(committed)) => committed.receipt.snapshot().ok_or("a receipt does not say its snapshot")?,
            other => return Err(format!("a snapshot came to {other:?}")),
        };
        if number > last {
            tell(seen, number);
            last = number;
        }
    }
    Ok(())
}

/// The reports of readers, and the transfers that must be there.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    transfers: Transfers,
    /// The contents seen, by the numbers of snapshots.
    seen: BTreeMap<u64, u32>,
    /// The newest snapshot that children before the last told of.
    before: u64,
    /// A number that was reported again.
    again: Option<u64>,
    matched: u64,
}

impl Oracle for Snapshots {
    fn told(&mut self, thread: u32, number: u64) {
        if thread & READER == 0 {
            return self.transfers.told(thread, number);
        }
        if number <= self.before {
            self.again = Some(number);
        }
        self.seen.insert(number, thread);
    }

    fn verify(&mut self, directory: &Path, protocol: &str) -> Result<u64, String> {
        if let Some(number) = self.again {
            return Err(format!("the number of snapshot {number} is used again: {} was told before", self.before));
        }
        match configure(Database::builder().protocol(protocol).path(directory)).open() {
            Ok(db) => {
                let told = !self.seen.is_empty() || self.before > 0;
                match db.recovery() {
                    // A child that is killed before it has made its database leaves none: this one is new.
                    None if told => return Err("the database is gone".to_owned()),
                    None => {}
                    Some(recovery) => {
                        let number = recovery.durable_snapshot.ok_or("the recovery does not say its snapshot")?;
                        let (mut session, seen) = (db.session(), self.seen.get(&number));
                        let found = fingerprint(&db, &session.begin_snapshot().map_err(said)?)?;
                        if seen.is_some_and(|&seen| found != Some(seen)) {
                            return Err(format!(
                                "snapshot {number} was recovered, with other rows than its reader saw"
                            ));
                        }
                        self.matched += u64::from(seen.is_some());
                    }
                }
            }
            Err(OpenError::NoDatabase { .. }) => {}
            Err(error) => return Err(format!("it does not open: {error}")),
        }
        self.before = self.before.max(self.seen.last_key_value().map_or(0, |(&number, _)| number));
        self.seen.clear();
        self.transfers.verify(directory, protocol)
    }

    fn matched(&self) -> u64 {
        self.matched
    }
}
