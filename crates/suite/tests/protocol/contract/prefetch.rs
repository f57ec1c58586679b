//! A prefetch is only a hint and conflicts with nothing: a record that it found and that was unlinked since aborts no
//! transaction.

use seriatim_catalog::{ColumnSet, Key};
use seriatim_txn::{Inserted, Mode, Priority, Protocol, Worker};

use crate::common::{Bench, modes};
use crate::contract::insert;

pub(crate) fn unlinked_since<P: Protocol>() {
    for mode in modes() {
        for prefetches in [false, true] {
            let bench = Bench::<P>::open(mode, &[1]);
            let (mut inserting, mut reading) = (bench.worker(), bench.worker());
            inserting.begin(Mode::ReadWrite, Priority::NONE);
            assert_eq!(insert(&bench, &mut inserting, 9, 3), Ok(Inserted::New));
            reading.begin(Mode::ReadWrite, Priority::NONE);
            if prefetches {
                reading.prefetch(&bench.cells, Key::Word8(9), ColumnSet::ALL);
                reading.advance_prefetch();
                reading.advance_prefetch();
            }
            // Takes the placeholder along.
            inserting.abort();
            assert_eq!(bench.read(&mut reading, 9), Ok(None), "{} on {mode}, {prefetches}", P::INFO.name);
            reading.abort();
        }
    }
}
