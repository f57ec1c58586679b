//! Transactions compiled for the worker of each protocol.

use std::ops::Bound;

use crate::for_each_protocol;
use seriatim_catalog::{ColumnDef, ColumnType, RowWriter, TableDef};
use seriatim_htm::{Emulation, HtmMode};
use seriatim_store::Direction;
use seriatim_txn::{OnExists, Protocol};

use super::*;
use crate::{RawScan, protocols};

/// Writes, reads and scans by a transaction that is compiled for the worker of `P`.
fn run<P: Protocol>() {
    let htm = match P::INFO.opens_on(HtmMode::Auto) {
        true => HtmMode::Auto,
        false => HtmMode::Emulated(Emulation::default()),
    };
    let protocol = P::INFO.name.to_owned();
    let settings = Settings { protocol, htm, workers: 1, step_helpers: true, ..Settings::default() };
    let engine = settings.open().expect("a protocol of this name");
    let column = |name: &'static str| ColumnDef::new(name, ColumnType::U64);
    let table = TableDef::builder("cell").column(column("id")).column(column("value")).key(["id"]);
    let set = engine.create(table.finish().expect("a table")).expect("memory");
    let mut tx = TxCore::<P::Worker>::new(Arc::clone(engine.inner()), 0);
    let open = |tx: &TxCore<P::Worker>| {
        let Lease { slot, worker, writer } = tx.lease(Origin::Closure, true).expect("a worker is free");
        // The workers of this database are of this protocol.
        tx.begin(Lease { slot, worker: worker.cast::<P::Worker>(), writer }, Mode::ReadWrite, 1, Origin::Closure, true);
    };
    let places = &set.layout.places;
    open(&tx);
    for id in 0..9u64 {
        let encode = |writer: &mut RowWriter<'_>| {
            writer.set::<u64>(&places[0], id)?;
            writer.set::<u64>(&places[1], 10 * id)
        };
        assert_eq!(tx.insert_at(&set, Key::Word8(id), encode, OnExists::Refuse), Ok(true));
    }
    assert_eq!(tx.delete_at(&set, Key::Word8(3)), Ok(true));
    tx.commit().expect("nobody is in the way");
    open(&tx);
    let row = tx.get_at(&set, Key::Word8(4), ColumnSet::ALL).expect("nobody is in the way").expect("it was inserted");
    // SAFETY: a row of this table, readable until the transaction ends.
    assert_eq!(unsafe { RowRef::from_raw(row.as_ptr()) }.get::<u64>(&places[1]), 40);
    let scan = RawScan::new(&tx, &set, Target::Rows, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    assert_eq!(scan.count(), Ok(8));
    tx.roll_back(None);
}

#[test]
fn a_transaction_can_be_compiled_for_the_worker_of_each_protocol() {
    let mut ran = 0;
    macro_rules! each {
        ($($protocol:ident => $type:path,)*) => {
            $({
                run::<$type>();
                ran += 1;
            })*
        };
    }
    for_each_protocol!(each);
    assert_eq!(ran, protocols().len());
}
