//! The benefit of prefetching by plans for whole workloads, on one thread. They are TPC-C's full mix, and YCSB with 16
//! operations a transaction on a hash table and an ordered table. Each runs with and without prefetching.
//!
//! Both arms run on one database in turn, with the same inputs in a round. One thread serves a terminal of
//! every warehouse in turn, so the rows of all warehouses compete for the caches.

use std::error::Error;

use serde_json::json;
use seriatim::Database;
use seriatim_base::{interrupt, talk};
use seriatim_workload::{Ending, LoadError, Terminal, Workload};

use crate::measure::{Arm, alternate, rate, until_signal};
use crate::report::Report;
use crate::setting::{Setting, Skew, index};

/// Counts of an arm's transactions, in all rounds together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    committed: u64,
    rolled_back: u64,
}

/// The results of both arms: with prefetching, without.
struct Compared {
    /// Transactions per second, for each round.
    rates: [Vec<f64>; 2],
    #[cfg_attr(not(test), allow(dead_code, reason = "for tests"))]
    tallies: [Tally; 2],
}

/// Compares the arms on a loaded database, whose workload has this many terminals.
fn compare(
    db: &Database,
    workload: &dyn Workload,
    terminals: u16,
    setting: &Setting,
) -> Result<Compared, Box<dyn Error>> {
    let open = |seed| {
        (0..terminals).map(|at| workload.terminal(db, at, seed)).collect::<Result<Vec<Box<dyn Terminal>>, LoadError>>()
    };
    // Later terminals cannot fail if these do not: they need the same tables.
    open(setting.seed)?;
    let mut tallies = [Tally::default(); 2];
    let mut arms: Vec<_> = [true, false]
        .into_iter()
        .zip(&mut tallies)
        .map(|(prefetches, tally)| {
            let mut session = db.session();
            session.set_prefetch(prefetches);
            move |length, seed| {
                let mut terminals = open(seed).expect("the tables were there before");
                let mut next = 0;
                rate(length, || {
                    let outcome = terminals[next].run_one(&mut session);
                    next = if next + 1 == terminals.len() { 0 } else { next + 1 };
                    match outcome.ending {
                        Ending::Committed => tally.committed += 1,
                        Ending::UserAborted => tally.rolled_back += 1,
                        Ending::Failed(error) => panic!("a transaction failed without a conflict: {error}"),
                    }
                })
            }
        })
        .collect();
    let mut arms: Vec<Arm<'_>> = arms.iter_mut().map(|arm| arm as Arm<'_>).collect();
    let mut rates = alternate(&mut arms, setting.rounds, setting.length, setting.seed);
    drop(arms);
    Ok(Compared { rates: [rates.remove(0), rates.remove(0)], tallies })
}

/// Compares all cases.
pub(crate) fn report(warehouses: &[u16], setting: &Setting) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new(["on", "off"], setting)?;
    for &warehouses in until_signal(warehouses) {
        talk!("TPC-C, warehouses: {warehouses}");
        let workload = setting.tpcc(warehouses);
        let db = setting.load(&workload)?;
        setting.prefault(&db, 2)?;
        let Compared { rates: [on, off], .. } = compare(&db, &workload, warehouses, setting)?;
        let case = json!({ "workload": "tpcc", "warehouses": warehouses, "items": (setting.scale)(warehouses).items });
        report.add(&format!("tpcc, warehouses: {warehouses}"), case, [&on, &off])?;
    }
    for is_ordered in [false, true].into_iter().take_while(|_| !interrupt::is_requested()) {
        let index = index(is_ordered);
        let workloads = Skew::ALL.map(|skew| (skew, setting.ycsb(is_ordered, skew)));
        let db = setting.load(&workloads[0].1)?;
        for (skew, workload) in until_signal(&workloads) {
            talk!("YCSB, {index}, {}", skew.name());
            let Compared { rates: [on, off], .. } = compare(&db, workload, 1, setting)?;
            let case = json!({
                "workload": "ycsb", "records": setting.records, "index": index, "theta": skew.theta(),
            });
            report.add(&format!("ycsb {index}, {}", skew.name()), case, [&on, &off])?;
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "nightly: seconds"]
    fn both_arms_do_the_same_and_leave_the_data_consistent() {
        for protocol in seriatim::available_protocols() {
            let setting = Setting::small(protocol.name, 2, 300);
            let workloads: [(&dyn Workload, u16); 3] =
                [(&setting.tpcc(2), 2), (&setting.ycsb(false, Skew::Hot), 1), (&setting.ycsb(true, Skew::Uniform), 1)];
            for (workload, terminals) in workloads {
                let db = setting.load(workload).expect("memory");
                let Compared { rates, tallies: [on, off] } =
                    compare(&db, workload, terminals, &setting).expect("it is loaded");
                assert!(rates.iter().all(|rates| rates.len() == 2 && rates.iter().all(|&rate| rate > 0.0)));
                assert_eq!(on, off, "{} {}", protocol.name, workload.name());
                assert_eq!(on.committed + on.rolled_back, 600);
                let report = workload.consistency(&db).expect("the check runs");
                assert!(report.passed(), "{} {}: {report}", protocol.name, workload.name());
            }
        }
    }

    #[test]
    fn every_case_is_reported() {
        let report = report(&[1, 3], &Setting::small("auto", 2, 50)).expect("memory").json();
        let cases = report["comparisons"].as_array().expect("a list");
        let of = |key: &str, value: serde_json::Value| cases.iter().filter(|case| case[key] == value).count();
        assert_eq!((cases.len(), of("warehouses", json!(3)), of("index", json!("ordered"))), (6, 1, 2));
        assert!(cases.iter().all(|case| case["ratio"]["median"].as_f64() > Some(0.0)), "{report}");
    }
}
