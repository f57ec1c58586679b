//! A call that must wait has changed nothing and may be repeated. Under protocols that wait, the older transaction
//! waits and the younger one does not.

use seriatim_catalog::Key;
use seriatim_txn::{Inserted, Mode, OnExists, OpError, Priority, Protocol, Worker};

use crate::common::{Bench, modes};
use crate::contract::{commit, commits, insert};

const WAIT: OpError = OpError::Wait;

/// A bench with two cells, and workers with open transactions, the oldest first.
fn open<P: Protocol>(each: impl Fn(&Bench<P>, [P::Worker; 3])) {
    // Protocols that never wait are not asked.
    if P::INFO.options.iter().all(|knob| knob.name != "wait_max_us") {
        return;
    }
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1, 1]);
        let worker = |age: u64| {
            let mut worker = bench.worker();
            worker.begin(Mode::ReadWrite, Priority::from_bits(age << 22));
            worker
        };
        each(&bench, [worker(1), worker(2), worker(3)]);
    }
}

pub(crate) fn an_insert_keeps_its_row<P: Protocol>() {
    open::<P>(|bench, [mut older, mut younger, mut youngest]| {
        assert_eq!(insert(bench, &mut younger, 9, 5), Ok(Inserted::New));
        let staged = older.stage(&bench.cells).expect("memory");
        bench.set(staged.row, 7);
        let mut again = || older.insert(&bench.cells, Key::Word8(9), staged, OnExists::Refuse);
        assert_eq!([again(), again()], [Err(WAIT), Err(WAIT)], "the key's record is another's");
        assert!(matches!(insert(bench, &mut youngest, 9, 6), Err(OpError::Abort(_))));
        youngest.abort();
        younger.abort();
        assert_eq!(again(), Ok(Inserted::New));
        assert!(commit(&mut older).is_ok());
        assert_eq!(bench.state(&[9]), [7]);
    });
}

pub(crate) fn an_insert_into_a_gap_keeps_its_row_and_the_gap_is_reserved<P: Protocol>() {
    open::<P>(|bench, [mut older, mut younger, mut youngest]| {
        assert_eq!(bench.read(&mut younger, 9), Ok(None), "which locks the gap");
        let staged = older.stage(&bench.cells).expect("memory");
        bench.set(staged.row, 7);
        let mut again = || older.insert(&bench.cells, Key::Word8(9), staged, OnExists::Refuse);
        assert_eq!([again(), again()], [Err(WAIT), Err(WAIT)]);
        assert!(matches!(bench.read(&mut youngest, 9), Err(OpError::Abort(_))), "an older transaction waits");
        youngest.abort();
        assert!(commits(&mut younger, Ok(())));
        assert_eq!(again(), Ok(Inserted::New));
        assert!(commit(&mut older).is_ok());
        assert_eq!(bench.state(&[9]), [7]);
    });
}

pub(crate) fn a_released_lock_is_reserved_for_the_waiter<P: Protocol>() {
    open::<P>(|bench, [mut older, mut younger, mut youngest]| {
        assert_eq!(bench.change(&mut younger, 0, |value| value + 1), Ok(2));
        assert_eq!(bench.read(&mut older, 0), Err(WAIT));
        assert!(commit(&mut younger).is_ok());
        assert!(matches!(bench.read(&mut youngest, 0), Err(OpError::Abort(_))), "reserved");
        youngest.abort();
        assert_eq!(bench.read(&mut older, 0), Ok(Some(2)));
        assert!(commit(&mut older).is_ok());
    });
}

pub(crate) fn a_waiter_that_has_left_reserves_nothing<P: Protocol>() {
    open::<P>(|bench, [mut older, mut younger, mut youngest]| {
        assert_eq!(bench.change(&mut younger, 0, |value| value + 1), Ok(2));
        assert_eq!(bench.read(&mut older, 0), Err(WAIT));
        older.abort();
        assert!(commit(&mut younger).is_ok());
        assert_eq!(bench.change(&mut youngest, 0, |value| value + 1), Ok(3));
        assert!(commit(&mut youngest).is_ok());
    });
}

pub(crate) fn the_oldest_that_asks_is_the_one_that_waits<P: Protocol>() {
    open::<P>(|bench, [mut older, mut younger, mut youngest]| {
        assert_eq!(bench.change(&mut youngest, 0, |value| value + 1), Ok(2));
        assert_eq!(bench.read(&mut younger, 0), Err(WAIT));
        assert_eq!(bench.read(&mut older, 0), Err(WAIT));
        assert!(matches!(bench.read(&mut younger, 0), Err(OpError::Abort(_))), "an older one took its place");
        younger.abort();
        assert!(commit(&mut youngest).is_ok());
        assert_eq!(bench.read(&mut older, 0), Ok(Some(2)));
        assert!(commit(&mut older).is_ok());
    });
}

pub(crate) fn of_two_readers_that_write_the_older_waits<P: Protocol>() {
    open::<P>(|bench, [mut older, mut younger, mut youngest]| {
        assert_eq!(bench.read(&mut younger, 0), Ok(Some(1)));
        assert_eq!(bench.read(&mut older, 0), Ok(Some(1)));
        assert_eq!(bench.change(&mut older, 0, |value| value + 1), Err(WAIT));
        assert!(matches!(bench.read(&mut youngest, 0), Err(OpError::Abort(_))), "no reader joins");
        assert!(matches!(bench.change(&mut younger, 0, |value| value + 1), Err(OpError::Abort(_))));
        younger.abort();
        youngest.abort();
        assert_eq!(bench.change(&mut older, 0, |value| value + 1), Ok(2));
        assert!(commit(&mut older).is_ok());
        assert_eq!(bench.state(&[0]), [2]);
    });
}
