//! Inputs of the transaction as plain data, and their generator.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::chooser::Chooser;
use super::options::Options;
use super::{KINDS_OF_ONE, Shared};
use seriatim::{Data, Rng};

/// [`Operation::kind`]: reads all fields of a row.
pub const READ: u8 = 0;
/// [`Operation::kind`]: writes one field of a row.
pub const UPDATE: u8 = 1;
/// [`Operation::kind`]: inserts a row.
pub const INSERT: u8 = 2;
/// [`Operation::kind`]: reads rows from a key on.
pub const SCAN: u8 = 3;
/// [`Operation::kind`]: reads all fields of a row, then writes one.
pub const READ_MODIFY_WRITE: u8 = 4;
const _KINDS_ARE_INDEXES: () = assert!(READ_MODIFY_WRITE as usize + 1 == KINDS_OF_ONE.len());

/// Most rows of a scan (YCSB's maxscanlength).
const SCAN_ROWS_MAX: u64 = 100;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct Operation {
    /// The kind of operation: [`READ`] to [`READ_MODIFY_WRITE`].
    pub kind: u8,
    /// The row, or where a scan starts.
    pub key: u64,
    /// The field that a write writes; a number that no field has writes none.
    pub field: u8,
    /// The letter that fills it, 0 to 25.
    pub letter: u8,
    /// Rows of a scan.
    pub rows: u8,
}

impl Operation {
    /// Whether it writes an existing row.
    pub fn writes(&self) -> bool {
        self.kind == UPDATE || self.kind == READ_MODIFY_WRITE
    }
}

/// Input of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Data)]
pub struct OperationsInput {
    /// The operations, in order.
    pub operations: Vec<Operation>,
    /// Keys below this were loaded, so their rows are there.
    pub records: u64,
    /// Bytes of a row's values, all fields together.
    pub value_bytes: u16,
}

/// Generates the inputs of one terminal.
pub struct Inputs {
    options: Options,
    rng: Rng,
    chooser: Chooser,
    shared: Arc<Shared>,
    /// Reused, so that generating does not allocate.
    next: OperationsInput,
}

impl Inputs {
    pub(super) fn new(options: Options, rng: Rng, shared: Arc<Shared>) -> Inputs {
        let chooser = Chooser::new(options.distribution, options.records, options.theta);
        let operations = Vec::with_capacity(options.ops);
        let next = OperationsInput { operations, records: options.records, value_bytes: options.value_bytes as u16 };
        Inputs { options, rng, chooser, shared, next }
    }

    /// The next input, for rows with this many fields.
    pub fn operations(&mut self, fields: usize) -> &OperationsInput {
        self.next.operations.clear();
        for _ in 0..self.options.ops {
            let kind = self.kind();
            // Key numbers only identify rows; nothing is ordered by them.
            let key = if kind == INSERT {
                self.shared.next_key.fetch_add(1, Ordering::Relaxed)
            } else {
                let end = self.shared.next_key.load(Ordering::Relaxed);
                self.chooser.draw(&mut self.rng, self.options.records, end)
            };
            let bits = self.rng.next_u64();
            let scaled = |bits: u64, bound: u64| (((bits & 0xFFFF) * bound) >> 16) as u8;
            let field = scaled(bits, fields as u64);
            let (letter, rows) = (scaled(bits >> 16, 26), 1 + scaled(bits >> 32, SCAN_ROWS_MAX));
            self.next.operations.push(Operation { kind, key, field, letter, rows });
        }
        &self.next
    }

    fn kind(&mut self) -> u8 {
        let shares = &self.options.shares;
        let mut card = self.rng.below(100) as u8;
        for (kind, share) in [
            (READ, shares.read),
            (READ_MODIFY_WRITE, shares.read_modify_write),
            (INSERT, shares.insert),
            (SCAN, shares.scan),
        ] {
            if card < share {
                return kind;
            }
            card -= share;
        }
        UPDATE
    }
}
