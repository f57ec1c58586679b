//! Execution shapes show in nothing but their speed.

use seriatim::procedure::Shape;
use seriatim::{Rng, thread};

use crate::bank::{self, balance, transfer};
use crate::common::{each, seed};

#[test]
fn in_pieces_a_set_stays_serializable_and_loses_nothing() {
    each(|setting| {
        let seed = seed("in_pieces_a_set_stays_serializable_and_loses_nothing");
        let (db, _) = bank::open(setting.builder().shape(Shape::Pieces), &[1000; 4]);
        let work = |seed: u64| {
            let (mut session, mut rng) = (db.session(), Rng::from_seed(seed));
            for _ in 0..50 {
                let arguments = (rng.below(4), rng.below(4), rng.below(9) as i64);
                session.call(transfer, &arguments).expect("both exist");
                session.call(balance, &arguments.0).expect("conflicts are retried");
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| work(seed));
            scope.spawn(|| work(!seed));
        });
        let (balances, transfers) = bank::state(&db);
        assert_eq!((balances.iter().sum::<i64>(), transfers), (4000, 100));
    });
}

#[test]
fn the_chopping_of_the_registered_set_is_there_to_be_read() {
    let (db, _) = bank::open(seriatim::Database::builder(), &[]);
    let chopping = db.chopping(seriatim::procedure::plan::Options::DEFAULT).expect("a sound set");
    assert_eq!(chopping.check(), Ok(()));
    assert_eq!(chopping.procedures.len(), 2);
    let plan = db.plan("transfer").expect("it is registered");
    assert_eq!((plan.operations.len(), plan.is_read_only()), (3, false));
    assert!(db.plan("transfers").is_none());
}
