//! A YCSB terminal: generates the operations of a transaction, runs them, counts what committed.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::chooser::Chooser;
use super::options::Options;
use super::table::{Shape, value};
use super::{Ledger, Shared};
use crate::tpcc::Missing;
use crate::{Ending, Outcome, Terminal};
use seriatim::{Abort, Handle, Rng, Session, Tx};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Reads all fields of a row.
    Read,
    /// Writes one field of a row.
    Update,
    /// Inserts a row.
    Insert,
    /// Reads rows from a key on.
    Scan,
    /// Reads all fields of a row, then writes one.
    ReadModifyWrite,
}

const SINGLE: [&str; 5] = ["read", "update", "insert", "scan", "read_modify_write"];
const SEVERAL: [&str; 2] = ["read_only", "read_write"];

/// The kinds of transaction of `ops` operations.
pub(super) fn kinds(ops: usize) -> &'static [&'static str] {
    if ops == 1 { &SINGLE } else { &SEVERAL }
}

/// One operation, as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub kind: OperationKind,
    /// The row, or where a scan starts.
    pub key: u64,
    /// The field that a write writes.
    pub field: u8,
    /// The letter that fills it, 0 to 25.
    pub letter: u8,
    /// Rows of a scan.
    pub rows: u8,
}

impl Operation {
    fn writes(&self) -> bool {
        matches!(self.kind, OperationKind::Update | OperationKind::ReadModifyWrite)
    }
}

/// One terminal.
pub struct YcsbTerminal<T: Shape> {
    table: Handle<T>,
    options: Options,
    rng: Rng,
    chooser: Chooser,
    operations: Vec<Operation>,
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
}

/// Most rows of a scan (YCSB's maxscanlength).
const SCAN_ROWS_MAX: u64 = 100;

impl<T: Shape> YcsbTerminal<T> {
    pub(super) fn new(
        table: Handle<T>,
        options: Options,
        rng: Rng,
        shared: Arc<Shared>,
        ledger: Arc<Ledger>,
    ) -> YcsbTerminal<T> {
        let chooser = Chooser::new(options.distribution, options.records, options.theta);
        let operations = Vec::with_capacity(options.ops);
        YcsbTerminal { table, options, rng, chooser, operations, shared, ledger }
    }

    /// Draws the operations of the next transaction.
    fn generate(&mut self) {
        self.operations.clear();
        for _ in 0..self.options.ops {
            let kind = self.kind();
            let (records, insert) = (self.options.records, kind == OperationKind::Insert);
            // Key numbers only name rows: nothing is ordered by them.
            let key = if insert {
                self.shared.next_key.fetch_add(1, Ordering::Relaxed)
            } else {
                let end = self.shared.next_key.load(Ordering::Relaxed);
                self.chooser.draw(&mut self.rng, records, end)
            };
            let bits = self.rng.next_u64();
            let scaled = |bits: u64, bound: u64| (((bits & 0xFFFF) * bound) >> 16) as u8;
            let field = scaled(bits, T::FIELDS as u64);
            let (letter, rows) = (scaled(bits >> 16, 26), 1 + scaled(bits >> 32, SCAN_ROWS_MAX));
            self.operations.push(Operation { kind, key, field, letter, rows });
        }
    }

    fn kind(&mut self) -> OperationKind {
        let shares = &self.options.shares;
        let mut card = self.rng.below(100) as u8;
        for (kind, share) in [
            (OperationKind::Read, shares.read),
            (OperationKind::ReadModifyWrite, shares.read_modify_write),
            (OperationKind::Insert, shares.insert),
            (OperationKind::Scan, shares.scan),
        ] {
            if card < share {
                return kind;
            }
            card -= share;
        }
        OperationKind::Update
    }
}

/// Runs the operations in order. What the reads saw comes back as a sum, so that none can be optimized away.
fn execute<T: Shape>(tx: &Tx, table: &Handle<T>, options: &Options, operations: &[Operation]) -> Result<u64, Abort> {
    let mut sum = 0u64;
    for operation in operations {
        let key = &operation.key;
        if matches!(operation.kind, OperationKind::Read | OperationKind::ReadModifyWrite) {
            match tx.get(table, key)? {
                Some(row) => sum = sum.wrapping_add(look::<T>(&row)),
                // A newer key may be of an insert that is still running, or failed.
                None if *key >= options.records => {}
                None => return Err(tx.abort(Missing(T::NAME))),
            }
        }
        match operation.kind {
            OperationKind::Read => {}
            OperationKind::Update | OperationKind::ReadModifyWrite => {
                let value = value(operation.letter, options.value_bytes / T::FIELDS);
                let written = tx.update(table, key, |row| T::write(row, usize::from(operation.field), &value))?;
                if written.is_none() {
                    return Err(tx.abort(Missing(T::NAME)));
                }
            }
            OperationKind::Insert => tx.insert(table, &T::new(*key, operation.letter, options.value_bytes))?,
            OperationKind::Scan => {
                for row in tx.scan(table, *key..).take(usize::from(operation.rows)) {
                    sum = sum.wrapping_add(look::<T>(&row?));
                }
            }
        }
    }
    Ok(sum)
}

/// Both ends of every field, which touches every line of the row.
#[inline]
fn look<T: Shape>(row: &T::Row<'_>) -> u64 {
    (0..T::FIELDS).fold(0, |sum, field| {
        let bytes = T::field(row, field).as_bytes();
        sum + u64::from(bytes.first().copied().unwrap_or(0)) + u64::from(bytes.last().copied().unwrap_or(0))
    })
}

impl<T: Shape> Terminal for YcsbTerminal<T> {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        self.generate();
        let (table, options, operations) = (&self.table, &self.options, &self.operations);
        let writes = operations.iter().filter(|operation| operation.writes()).count() as u64;
        let inserts = operations.iter().filter(|operation| operation.kind == OperationKind::Insert).count() as u64;
        let kind = if options.ops == 1 { operations[0].kind as usize } else { usize::from(writes + inserts > 0) };
        let ending = match session.transact(|tx| execute(tx, table, options, operations)) {
            Ok(sum) => {
                black_box(*sum);
                self.ledger.add(writes, inserts);
                Ending::Committed
            }
            Err(error) => Ending::Failed(error),
        };
        Outcome { kind, ending }
    }
}
