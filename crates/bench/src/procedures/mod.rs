//! The overhead of registered procedures over handwritten transactions; the goal is at most 5 %. New-Order and
//! Payment of TPC-C, and YCSB with 16 operations on a hash table and an ordered table, on one session. Each
//! transaction has four arms: closure and procedure, each with and without prefetching.
//!
//! All arms run on one database in turn, so that each uses the same rows. The inputs of a round are the same
//! for each arm, except the keys of history rows. The ratio is the closure's rate over the procedure's: with
//! 1.05 a procedure takes 5 % longer.

mod tpcc;
mod ycsb;

use std::error::Error;
use std::hint::black_box;
use std::io;

use serde_json::{Value, json};
use seriatim::{Committed, Database, Session, TransactError};
use seriatim_base::{interrupt, talk};
use seriatim_workload::ycsb::{HashOne, OrderedOne};

use crate::measure::{Arm, Length, alternate, until_signal};
use crate::report::Report;
use crate::setting::{Setting, Skew, index};

/// The form of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Closure,
    Procedure,
}

/// The arms of a transaction: its form, and whether it prefetches.
const ARMS: [(Form, bool); 4] =
    [(Form::Closure, true), (Form::Procedure, true), (Form::Closure, false), (Form::Procedure, false)];

/// The comparisons: closure and procedure among [`ARMS`], with and without prefetching. The last one is the
/// benefit of a plan for a user who would not prefetch by hand.
const COMPARISONS: [(&str, [usize; 2]); 3] = [("on", [0, 1]), ("off", [2, 3]), ("procedure only", [2, 1])];

/// Whether it committed. A rollback that the workload requests is `false`; any other error is a bug.
fn sound<R, E: Error + 'static>(result: Result<Committed<R>, TransactError>) {
    match result {
        Ok(committed) => drop(black_box(committed)),
        Err(error) if error.user::<E>().is_some() => {}
        Err(error) => panic!("a transaction failed without a conflict: {error}"),
    }
}

/// The rates of the arms of one transaction, measured in turn. `run` repeats it in a form on a session, and
/// returns transactions per second.
fn compare(db: &Database, setting: &Setting, run: impl Fn(&mut Session, Form, Length, u64) -> f64) -> Vec<Vec<f64>> {
    let run = &run;
    let mut arms = ARMS.map(|(form, prefetches)| {
        let mut session = db.session();
        session.set_prefetch(prefetches);
        move |length, seed| run(&mut session, form, length, seed)
    });
    let mut arms = arms.each_mut().map(|arm| arm as Arm<'_>);
    alternate(&mut arms, setting.rounds, setting.length, setting.seed)
}

/// Adds the comparisons of one transaction.
fn add(report: &mut Report, name: &str, case: &Value, rates: &[Vec<f64>]) -> io::Result<()> {
    for (prefetch, [closure, procedure]) in COMPARISONS {
        let mut case = case.clone();
        case["prefetch"] = prefetch.into();
        report.add(&format!("{name}, prefetch: {prefetch}"), case, [&rates[closure], &rates[procedure]])?;
    }
    Ok(())
}

fn add_ycsb<T: ycsb::OneField>(report: &mut Report, setting: &Setting, is_ordered: bool) -> Result<(), Box<dyn Error>> {
    let index = index(is_ordered);
    let bench = ycsb::Bench::<T>::load(setting, is_ordered)?;
    for skew in Skew::ALL.into_iter().take_while(|_| !interrupt::is_requested()) {
        talk!("YCSB, {index}, {}", skew.name());
        let rates = bench.compare(setting, &setting.ycsb(is_ordered, skew));
        let case = json!({ "workload": "ycsb", "records": setting.records, "index": index, "theta": skew.theta() });
        add(report, &format!("ycsb {index}, {}", skew.name()), &case, &rates)?;
    }
    Ok(())
}

/// Compares all transactions.
pub(crate) fn report(warehouses: u16, setting: &Setting) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new(["closure", "procedure"], setting)?;
    talk!("TPC-C, warehouses: {warehouses}");
    let bench = tpcc::Bench::load(setting, warehouses)?;
    for (name, kind) in until_signal(tpcc::KINDS) {
        talk!("{name}");
        let rates = bench.compare(kind, setting)?;
        let case = json!({ "workload": "tpcc", "transaction": name, "warehouses": warehouses,
        "items": (setting.scale)(warehouses).items });
        add(&mut report, name, &case, &rates)?;
    }
    drop(bench);
    add_ycsb::<HashOne>(&mut report, setting, false)?;
    add_ycsb::<OrderedOne>(&mut report, setting, true)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transaction_is_reported_with_every_comparison() {
        let report = report(2, &Setting::small("auto", 2, 50)).expect("memory").json();
        let cases = report["comparisons"].as_array().expect("a list");
        assert_eq!(cases.len(), (tpcc::KINDS.len() + 2 * Skew::ALL.len()) * COMPARISONS.len(), "{report}");
        assert!(cases.iter().all(|case| case["ratio"]["median"].as_f64() > Some(0.0)), "{report}");
    }

    #[test]
    fn comparisons_are_of_a_closure_with_a_procedure() {
        for (_, [closure, procedure]) in COMPARISONS {
            assert_eq!((ARMS[closure].0, ARMS[procedure].0), (Form::Closure, Form::Procedure));
        }
    }
}
