//! What a registered procedure costs over the same transaction written by hand (the goal: at most 5 %): New-Order and Payment of
//! TPC-C on one session, in four arms a transaction: closure and procedure, each with prefetching and without.
//!
//! All arms run on one database, in turn, so that each meets the same rows; inputs of a round are the same for each arm but for
//! the keys of history rows. The ratio is the closure's rate over the procedure's: 1.05 is a procedure that takes 5 % longer.

mod closures;

use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;

use seriatim::{Committed, Database, Session, TransactError};
use seriatim_base::Rng;
use seriatim_workload::tpcc::{
    Constants, History, Inputs, Options, Remote, Scale, Tables, Tpcc, UnusedItem, history_keys, new_order, payment,
};
use seriatim_workload::{Loading, Workload};

use crate::measure::{Arm, Length, Quartiles, alternate, rate};

/// How a transaction is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Closure,
    Procedure,
}

/// The arms of a transaction: how it is run, and whether with prefetching.
const ARMS: [(Form, bool); 4] =
    [(Form::Closure, true), (Form::Procedure, true), (Form::Closure, false), (Form::Procedure, false)];

/// A loaded database with one session.
struct Bench {
    db: Database,
    tables: Tables,
    scale: Scale,
    constants: Constants,
    /// The next row of history.
    h_id: Cell<u64>,
}

/// Whether it committed or rolled back as the specification asks; anything else is a fault.
fn sound<R>(result: Result<Committed<R>, TransactError>) {
    match result {
        Ok(committed) => drop(black_box(committed)),
        Err(error) if error.user::<UnusedItem>().is_some() => {}
        Err(error) => panic!("a transaction failed with nobody in its way: {error}"),
    }
}

impl Bench {
    fn load(protocol: &str, scale: Scale, seed: u64) -> Result<Bench, Box<dyn Error>> {
        let db = Database::builder().protocol(protocol).open()?;
        Tpcc::new(Options::new(scale, seed)).load(&db, &Loading::default())?;
        let mut rng = Rng::from_seed(seed);
        let constants = Constants::for_load(&mut rng);
        let constants = Constants::for_run(&mut rng, &constants);
        Ok(Bench { tables: Tables::open(&db)?, db, scale, constants, h_id: Cell::new(history_keys(0).0) })
    }

    fn inputs(&self, seed: u64) -> Inputs {
        Inputs::new(Rng::from_seed(seed), self.scale, self.constants, Remote::SPEC, 1, self.h_id.get())
    }

    fn new_orders(&self, session: &mut Session, form: Form, length: Length, seed: u64) -> f64 {
        let mut inputs = self.inputs(seed);
        match form {
            Form::Closure => rate(length, || {
                let input = inputs.new_order();
                sound(session.transact(|tx| closures::new_order(tx, &self.tables, &input)));
            }),
            Form::Procedure => rate(length, || sound(session.call(new_order, &inputs.new_order()))),
        }
    }

    fn payments(&self, session: &mut Session, form: Form, length: Length, seed: u64) -> f64 {
        let mut inputs = self.inputs(seed);
        let mut next = || {
            let input = inputs.payment();
            self.h_id.set(input.h_id + 1);
            assert!(input.h_id <= History::id(1, History::SEQUENCE_MAX), "no terminal makes so many payments");
            input
        };
        match form {
            Form::Closure => rate(length, || {
                let input = next();
                sound(session.transact(|tx| closures::payment(tx, &self.tables, &input)));
            }),
            Form::Procedure => rate(length, || sound(session.call(payment, &next()))),
        }
    }

    /// The rates of the arms of one transaction, in turn.
    fn compare(&self, kind: Kind, rounds: u32, length: Length, seed: u64) -> Vec<Vec<f64>> {
        let mut arms = ARMS.map(|(form, prefetches)| {
            let mut session = self.db.session();
            session.set_prefetch(prefetches);
            move |length, seed| kind(self, &mut session, form, length, seed)
        });
        let mut arms = arms.each_mut().map(|arm| arm as Arm<'_>);
        alternate(&mut arms, rounds, length, seed)
    }
}

/// A transaction in one form: transactions a second.
type Kind = fn(&Bench, &mut Session, Form, Length, u64) -> f64;

const KINDS: [(&str, Kind); 2] = [("new_order", Bench::new_orders), ("payment", Bench::payments)];

/// Measures and prints.
pub(crate) fn run(protocol: &str, scale: Scale, rounds: u32, length: Length, seed: u64) -> Result<(), Box<dyn Error>> {
    let warehouses = scale.warehouses;
    eprintln!("{warehouses} warehouses, {rounds} rounds, 1 thread, protocol {protocol}, seed {seed}");
    let bench = Bench::load(protocol, scale, seed)?;
    println!("{:10} {:9} {:>24} {:>24} {:>22}", "", "prefetch", "closure, k tx/s", "procedure, k tx/s", "ratio");
    for (name, kind) in KINDS {
        let rates = bench.compare(kind, rounds, length, seed);
        for (pair, prefetch) in rates.chunks(2).zip(["on", "off"]) {
            let thousands = |rates: &[f64]| Quartiles::of(rates.iter().map(|rate| rate / 1e3));
            let (closure, procedure) = (thousands(&pair[0]), thousands(&pair[1]));
            let ratio = Quartiles::of_ratios(&pair[0], &pair[1]);
            println!("{name:10} {prefetch:9} {closure:>24.1} {procedure:>24.1} {ratio:>22.3}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim::{Abort, Tx};

    fn small(protocol: &str) -> Bench {
        Bench::load(protocol, Scale::small(2), 7).expect("memory")
    }

    /// Undoes what a closure did.
    #[derive(Debug)]
    struct Undo;

    impl std::fmt::Display for Undo {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("undone")
        }
    }

    impl Error for Undo {}

    /// What a closure answers, shown; it leaves nothing.
    fn shown<R: std::fmt::Debug>(session: &mut Session, run: impl Fn(&Tx) -> Result<R, Abort>) -> String {
        let mut shown = String::new();
        let undone = session.transact(|tx| {
            shown = format!("{:?}", run(tx)?);
            Err::<(), _>(tx.abort(Undo))
        });
        match undone {
            Err(error) if error.user::<Undo>().is_some() => shown,
            Err(error) => format!("{error}"),
            Ok(_) => panic!("it was undone"),
        }
    }

    fn answer<R: std::fmt::Debug>(result: Result<Committed<R>, TransactError>) -> String {
        result.map_or_else(|error| format!("{error}"), |committed| format!("{:?}", committed.value))
    }

    #[test]
    fn closures_and_procedures_answer_the_same() {
        for protocol in seriatim::protocols() {
            let bench = small(protocol.name);
            let (mut session, mut inputs) = (bench.db.session(), bench.inputs(3));
            for at in 0..300 {
                session.set_prefetch(at % 2 == 0);
                let order = inputs.new_order();
                let by_hand = shown(&mut session, |tx| closures::new_order(tx, &bench.tables, &order));
                assert_eq!(answer(session.call(new_order, &order)), by_hand, "{}", protocol.name);
                let pay = inputs.payment();
                let by_hand = shown(&mut session, |tx| closures::payment(tx, &bench.tables, &pay));
                assert_eq!(answer(session.call(payment, &pay)), by_hand, "{}", protocol.name);
            }
        }
    }

    #[test]
    fn every_arm_runs_and_leaves_the_data_consistent() {
        let bench = small("auto");
        for (name, kind) in KINDS {
            let rates = bench.compare(kind, 3, Length::Operations(200), 5);
            assert!(rates.len() == ARMS.len() && rates.iter().flatten().all(|&rate| rate > 0.0), "{name}: {rates:?}");
        }
        let report = Tpcc::new(Options::new(bench.scale, 7)).consistency(&bench.db).expect("the check runs");
        assert!(report.passed(), "{report}");
    }
}
