//! A second checker of histories: `adya`, an independent checker in the manner of Elle, which looks at what
//! clients saw.
//!
//! [`seriatim_history`] sees versions by their TIDs, as the database reports them. This checker sees only
//! invocations and answers, and infers the order of versions from unique values. So it also notices a database
//! that records one thing and answers another. Registers show little of their order, so it may assume what the
//! promise under test implies. A value that a transaction read is older than the one that it then wrote. Where the
//! order is strict, values follow each other as the transactions that knew them do in real time.
//!
//! Snapshots that may be stale are left out of the judgement of real time; everything must be serializable together.
//!
//! Source: Adya, *Weak Consistency*, MIT 1999, for the anomalies; Kingsbury and Alvaro, *Elle*, VLDB 2020,
//! for the inference.

use adya::history::{Id, Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{History, Opts, Valid, Workload, check};

use crate::clients::{Attempt, DataModel, Step};

/// The promises of the database under test beyond serializability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promised {
    /// The serial order agrees with real time.
    pub is_strict: bool,
    /// Read-only transactions see what committed before they began; if not, they may be older.
    pub is_fresh: bool,
}

/// Histories that cannot be analyzed. The checker would pass them in silence, so each is named as something to refuse.
const MALFORMED: [&str; 3] = ["duplicate-appends", "duplicate-writes", "unexpected-txn-micro-op-types"];

/// Looks for anomalies that the promise excludes.
///
/// # Errors
/// The first anomaly of each kind with the checker's proof, or why there is no verdict: nothing could be inferred.
pub fn check_history(data_model: DataModel, attempts: &[Attempt], promised: Promised) -> Result<(), String> {
    let all: Vec<&Attempt> = attempts.iter().collect();
    if !promised.is_strict || promised.is_fresh {
        return ask(data_model, &all, promised.is_strict);
    }
    ask(data_model, &all, false)?;
    let current: Vec<&Attempt> = attempts.iter().filter(|attempt| !attempt.is_read_only).collect();
    ask(data_model, &current, true)
}

fn ask(data_model: DataModel, attempts: &[&Attempt], is_strict: bool) -> Result<(), String> {
    let workload = match data_model {
        DataModel::Registers => Workload::RwRegister,
        DataModel::Lists | DataModel::ListsInRows | DataModel::ListsInRuns | DataModel::ListsInColumns => {
            Workload::ListAppend
        }
    };
    let options = Opts {
        models: vec![if is_strict { "strict-serializable" } else { "serializable" }.to_owned()],
        anomalies: MALFORMED.map(str::to_owned).to_vec(),
        wfr_keys: true,
        linearizable_keys: is_strict,
        ..Opts::default()
    };
    let report = check(&history(data_model, attempts), workload, &options);
    if report.valid == Valid::True {
        return Ok(());
    }
    let mut words = format!("{:?} of {} by the second checker", report.valid, options.models[0]);
    for (kind, anomalies) in &report.anomalies {
        let first = anomalies.first().map_or("", |anomaly| &anomaly.explanation);
        words.push_str(&format!("\n{kind}: {first}"));
    }
    Err(words)
}

/// The history in the checker's words: two operations an attempt, in the order of their tickets.
fn history(data_model: DataModel, attempts: &[&Attempt]) -> History {
    let mut interner = Interner::default();
    let mut tickets: Vec<(u64, OpType, &Attempt)> = Vec::with_capacity(2 * attempts.len());
    for attempt in attempts {
        tickets.push((attempt.invoked, OpType::Invoke, attempt));
        tickets.push((attempt.answered, if attempt.is_committed { OpType::Ok } else { OpType::Fail }, attempt));
    }
    tickets.sort_unstable_by_key(|&(ticket, ..)| ticket);
    let in_words = |(index, (_, kind, attempt)): (usize, (u64, OpType, &Attempt))| Op {
        index: index as u64,
        kind,
        process: Some(attempt.process as i64),
        value: attempt.steps.iter().map(|step| micro_op(&mut interner, data_model, kind, step)).collect(),
        time: None,
    };
    let ops = tickets.into_iter().enumerate().map(in_words).collect();
    History::from_ops(ops, interner)
}

fn micro_op(interner: &mut Interner, data_model: DataModel, kind: OpType, step: &Step) -> Mop {
    let mut id = |number: u64| -> Id { interner.intern(Scalar::Int(number as i64)) };
    match (step, data_model) {
        (Step::Write { key, value }, DataModel::Registers) => Mop::Write { key: id((*key).into()), value: id(*value) },
        (Step::Write { key, value }, _) => Mop::Append { key: id((*key).into()), value: id(*value) },
        (Step::Read { key, .. }, _) if kind != OpType::Ok => {
            Mop::Read { key: id((*key).into()), value: ReadValue::Nil }
        }
        (Step::Read { key, saw, .. }, DataModel::Registers) => {
            let value = saw.first().map_or(ReadValue::Nil, |value| ReadValue::Scalar(id(*value)));
            Mop::Read { key: id((*key).into()), value }
        }
        (Step::Read { key, saw, .. }, _) => {
            let list = saw.iter().map(|value| id(*value)).collect();
            Mop::Read { key: id((*key).into()), value: ReadValue::List(list) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Promised = Promised { is_strict: true, is_fresh: true };
    const STALE: Promised = Promised { is_strict: true, is_fresh: false };
    const ANY_ORDER: Promised = Promised { is_strict: false, is_fresh: true };

    fn read<const N: usize>(key: u32, saw: [u64; N]) -> Step {
        Step::Read { key, by_rolled_back_write: false, saw: saw.to_vec() }
    }

    fn write(key: u32, value: u64) -> Step {
        Step::Write { key, value }
    }

    /// An attempt of a process of its own that lasts from ticket to ticket.
    fn attempt(invoked: u64, answered: u64, steps: impl Into<Vec<Step>>) -> Attempt {
        let steps = steps.into();
        let is_read_only = steps.iter().all(|step| matches!(step, Step::Read { .. }));
        Attempt { process: invoked as usize, invoked, answered, is_read_only, is_committed: true, steps }
    }

    fn failed(attempt: Attempt) -> Attempt {
        Attempt { is_committed: false, ..attempt }
    }

    #[track_caller]
    fn convicted(data_model: DataModel, attempts: &[Attempt], promised: Promised, of: &str) {
        let words = check_history(data_model, attempts, promised).expect_err("a broken history passed");
        assert!(words.lines().any(|line| line.starts_with(&format!("{of}:"))), "not convicted of {of}: {words}");
    }

    #[track_caller]
    fn acquitted(data_model: DataModel, attempts: &[Attempt], promised: Promised) {
        check_history(data_model, attempts, promised).unwrap_or_else(|words| panic!("{words}"));
    }

    const EACH: [Promised; 3] = [STRICT, STALE, ANY_ORDER];

    #[test]
    fn a_serial_history_passes() {
        let lists = [
            attempt(0, 1, [read(1, []), write(1, 10)]),
            failed(attempt(2, 3, [read(1, []), write(1, 11)])),
            attempt(4, 7, [read(1, [10]), write(1, 12), read(1, [10, 12]), write(2, 13)]),
            attempt(5, 8, [read(2, [13]), read(1, [10, 12])]),
        ];
        let registers = [
            attempt(0, 1, [read(1, []), write(1, 10)]),
            failed(attempt(2, 3, [read(1, []), write(1, 11)])),
            attempt(4, 7, [read(1, [10]), write(1, 12), read(1, [12]), write(2, 13)]),
            attempt(5, 8, [read(2, [13]), read(1, [12])]),
        ];
        for promised in EACH {
            acquitted(DataModel::Lists, &lists, promised);
            acquitted(DataModel::Registers, &registers, promised);
        }
    }

    #[test]
    fn circular_information_flow_is_g1c() {
        let lists = [attempt(0, 2, [write(1, 10), read(2, [11])]), attempt(1, 3, [write(2, 11), read(1, [10])])];
        for promised in EACH {
            convicted(DataModel::Lists, &lists, promised, "G1c");
            convicted(DataModel::ListsInRows, &lists, promised, "G1c");
            convicted(DataModel::Registers, &lists, promised, "G1c");
        }
    }

    #[test]
    fn read_skew_is_g_single() {
        let attempts = [attempt(0, 2, [write(1, 10), write(2, 11)]), attempt(1, 3, [read(1, []), read(2, [11])])];
        for promised in EACH {
            convicted(DataModel::Lists, &attempts, promised, "G-single-item");
            convicted(DataModel::Registers, &attempts, promised, "G-single-item");
        }
    }

    #[test]
    fn write_skew_is_g2() {
        let skewed = |key, value| [read(1, []), read(2, []), write(key, value)];
        let attempts = [attempt(0, 2, skewed(1, 10)), attempt(1, 3, skewed(2, 11))];
        for promised in EACH {
            convicted(DataModel::Lists, &attempts, promised, "G2-item");
            convicted(DataModel::Registers, &attempts, promised, "G2-item");
        }
    }

    #[test]
    fn lost_updates_are_convicted() {
        let lists = [
            attempt(0, 2, [read(1, []), write(1, 10)]),
            attempt(1, 3, [read(1, []), write(1, 11)]),
            attempt(4, 5, [read(1, [11])]),
        ];
        for promised in EACH {
            convicted(DataModel::Lists, &lists, promised, "lost-update");
            convicted(DataModel::Registers, &lists, promised, "lost-update");
        }
    }

    #[test]
    fn effects_of_a_failed_attempt_are_g1a() {
        let attempts = [failed(attempt(0, 1, [write(1, 10)])), attempt(2, 3, [read(1, [10])])];
        for promised in EACH {
            convicted(DataModel::Lists, &attempts, promised, "G1a");
            convicted(DataModel::Registers, &attempts, promised, "G1a");
        }
    }

    #[test]
    fn real_time_counts_where_it_is_promised() {
        let writes = attempt(0, 1, [write(1, 10)]);
        let late = attempt(2, 3, [read(1, []), write(2, 11)]);
        let glimpse = attempt(4, 5, [read(1, [10]), read(2, [11])]);
        let attempts = [writes.clone(), late, glimpse.clone()];
        for data_model in [DataModel::Lists, DataModel::Registers] {
            for promised in [STRICT, STALE] {
                assert!(check_history(data_model, &attempts, promised).is_err(), "{data_model:?}, {promised:?}");
            }
            acquitted(data_model, &attempts, ANY_ORDER);
        }
        // A stale snapshot.
        let attempts = [writes, attempt(2, 3, [read(1, [])]), attempt(4, 5, [read(1, [10]), write(2, 11)])];
        for data_model in [DataModel::Lists, DataModel::Registers] {
            assert!(check_history(data_model, &attempts, STRICT).is_err(), "{data_model:?}");
            acquitted(data_model, &attempts, STALE);
            acquitted(data_model, &attempts, ANY_ORDER);
        }
    }

    #[test]
    fn histories_that_cannot_be_judged_are_refused() {
        for data_model in DataModel::ALL {
            let twice = [attempt(0, 1, [write(1, 10)]), attempt(2, 3, [write(1, 10)]), attempt(4, 5, [read(1, [10])])];
            assert!(check_history(data_model, &twice, ANY_ORDER).is_err(), "{data_model:?}: a value written twice");
            let nothing = [attempt(0, 1, [read(1, [])])];
            assert!(check_history(data_model, &nothing, ANY_ORDER).is_err(), "{data_model:?}: no dependency at all");
        }
    }
}
