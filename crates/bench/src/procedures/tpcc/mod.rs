//! The arms of TPC-C: New-Order and Payment as closures and as procedures, for the terminals of all warehouses in turn.

mod closures;

use std::cell::Cell;
use std::error::Error;

use seriatim::{Database, Session};
use seriatim_base::Rng;
use seriatim_workload::tpcc::{
    Constants, Inputs, PaymentInput, Remote, Scale, Tables, UnusedItem, history_source, new_order, payment,
};

use super::{ARMS, Form, compare, sound};
use crate::measure::{Length, rate};
use crate::setting::Setting;

/// A loaded database.
pub(super) struct Bench {
    db: Database,
    tables: Tables,
    scale: Scale,
    constants: Constants,
    /// The next row of history. The number of the next history row.
    h_number: Cell<u32>,
}

/// The inputs of every warehouse, used in turn.
struct InputCycle {
    inputs: Vec<Inputs>,
    next: usize,
}

impl InputCycle {
    #[inline]
    fn next(&mut self) -> &mut Inputs {
        let at = self.next;
        self.next = if at + 1 == self.inputs.len() { 0 } else { at + 1 };
        &mut self.inputs[at]
    }
}

/// Repeats a transaction in one form. Returns transactions per second.
pub(super) type Kind = fn(&Bench, &mut Session, Form, Length, u64) -> f64;

pub(super) const KINDS: [(&str, Kind); 2] = [("new_order", Bench::new_orders), ("payment", Bench::payments)];

impl Bench {
    pub(super) fn load(setting: &Setting, warehouses: u16) -> Result<Bench, Box<dyn Error>> {
        let db = setting.load(&setting.tpcc(warehouses))?;
        let mut rng = Rng::from_seed(setting.seed);
        let constants = Constants::for_load(&mut rng);
        let constants = Constants::for_run(&mut rng, &constants);
        let (scale, h_number) = ((setting.scale)(warehouses), Cell::new(0));
        Ok(Bench { tables: Tables::open(&db)?, db, scale, constants, h_number })
    }

    fn inputs(&self, seed: u64) -> InputCycle {
        let of = |w_id| {
            let rng = Rng::from_seed(seed ^ u64::from(w_id) << 48);
            Inputs::new(rng, self.scale, self.constants, Remote::SPEC, w_id, history_source(0))
        };
        InputCycle { inputs: self.scale.warehouse_ids().map(of).collect(), next: 0 }
    }

    fn new_orders(&self, session: &mut Session, form: Form, length: Length, seed: u64) -> f64 {
        let mut inputs = self.inputs(seed);
        match form {
            Form::Closure => rate(length, || {
                let input = inputs.next().new_order();
                sound::<_, UnusedItem>(session.transact(|tx| closures::new_order(tx, &self.tables, &input)));
            }),
            Form::Procedure => rate(length, || {
                sound::<_, UnusedItem>(session.call(new_order, &inputs.next().new_order()));
            }),
        }
    }

    /// An input whose history row is new among all warehouses.
    fn payment(&self, inputs: &mut InputCycle) -> PaymentInput {
        let (inputs, number) = (inputs.next(), self.h_number.get());
        self.h_number.set(number.checked_add(1).expect("no terminal makes so many payments"));
        inputs.set_history(number);
        inputs.payment()
    }

    fn payments(&self, session: &mut Session, form: Form, length: Length, seed: u64) -> f64 {
        let mut inputs = self.inputs(seed);
        match form {
            Form::Closure => rate(length, || {
                let input = self.payment(&mut inputs);
                sound::<_, UnusedItem>(session.transact(|tx| closures::payment(tx, &self.tables, &input)));
            }),
            Form::Procedure => rate(length, || {
                sound::<_, UnusedItem>(session.call(payment, &self.payment(&mut inputs)));
            }),
        }
    }

    /// The rates of the arms of one transaction, measured in turn.
    pub(super) fn compare(&self, kind: Kind, setting: &Setting) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
        setting.prefault(&self.db, ARMS.len())?;
        Ok(compare(&self.db, setting, |session, form, length, seed| kind(self, session, form, length, seed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim::{Abort, Committed, TransactError, Tx};
    use seriatim_workload::Workload;

    fn small(protocol: &str) -> Bench {
        Bench::load(&Setting::small(protocol, 3, 200), 2).expect("memory")
    }

    /// An error that undoes a closure.
    #[derive(Debug)]
    struct Undo;

    impl std::fmt::Display for Undo {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("undone")
        }
    }

    impl Error for Undo {}

    /// The result of a closure as text. The closure is rolled back.
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
    #[ignore = "nightly: seconds"]
    fn closures_and_procedures_answer_the_same() {
        for protocol in seriatim::available_protocols() {
            let bench = small(protocol.name);
            let (mut session, mut inputs) = (bench.db.session(), bench.inputs(3));
            for at in 0..300 {
                session.set_prefetch(at % 2 == 0);
                let order = inputs.next().new_order();
                let by_hand = shown(&mut session, |tx| closures::new_order(tx, &bench.tables, &order));
                assert_eq!(answer(session.call(new_order, &order)), by_hand, "{}", protocol.name);
                let pay = bench.payment(&mut inputs);
                let by_hand = shown(&mut session, |tx| closures::payment(tx, &bench.tables, &pay));
                assert_eq!(answer(session.call(payment, &pay)), by_hand, "{}", protocol.name);
            }
        }
    }

    #[test]
    fn every_arm_runs_and_leaves_the_data_consistent() {
        let (bench, setting) = (small("auto"), Setting::small("auto", 3, 200));
        for (name, kind) in KINDS {
            let rates = bench.compare(kind, &setting).expect("nothing to touch");
            assert!(rates.len() == ARMS.len() && rates.iter().flatten().all(|&rate| rate > 0.0), "{name}: {rates:?}");
        }
        let report = setting.tpcc(2).consistency(&bench.db).expect("the check runs");
        assert!(report.passed(), "{report}");
    }
}
