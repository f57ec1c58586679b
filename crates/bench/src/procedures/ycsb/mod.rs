//! The arms of YCSB: the transaction's operations as a closure and as the procedure.

mod closures;

use std::error::Error;

use seriatim::{Database, Handle, Session};
use seriatim_workload::ycsb::{NoSuchOperation, UserTable, Ycsb};

pub(super) use closures::OneField;

use super::{Form, compare, sound};
use crate::measure::{Length, rate};
use crate::setting::{Setting, Skew};

/// A loaded database.
pub(super) struct Bench<T: UserTable> {
    db: Database,
    table: Handle<T>,
}

impl<T: OneField> Bench<T> {
    pub(super) fn load(setting: &Setting, is_ordered: bool) -> Result<Bench<T>, Box<dyn Error>> {
        let db = setting.load(&setting.ycsb(is_ordered, Skew::Uniform))?;
        Ok(Bench { table: db.table()?, db })
    }

    fn run(&self, workload: &Ycsb, session: &mut Session, form: Form, length: Length, seed: u64) -> f64 {
        let mut inputs = workload.inputs(seed);
        match form {
            Form::Closure => rate(length, || {
                let input = inputs.operations(T::FIELDS);
                let result = session.transact(|tx| closures::operations(tx, &self.table, input));
                sound::<_, NoSuchOperation>(result);
            }),
            Form::Procedure => rate(length, || {
                sound::<_, NoSuchOperation>(session.call(T::OPERATIONS, inputs.operations(T::FIELDS)));
            }),
        }
    }

    /// The rates of the arms, measured in turn, with the inputs of a workload on this table.
    pub(super) fn compare(&self, setting: &Setting, workload: &Ycsb) -> Vec<Vec<f64>> {
        compare(&self.db, setting, |session, form, length, seed| self.run(workload, session, form, length, seed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ARMS;
    use super::*;
    use seriatim_workload::ycsb::{HashOne, INSERT, Operation, OperationsInput, OrderedOne, UPDATE};

    /// The rows: writes and value.
    fn rows<T: OneField>(bench: &Bench<T>, end: u64) -> Vec<Option<(u64, String)>> {
        let read = |key| bench.db.session().transact(|tx| Ok(tx.get(&bench.table, &key)?.map(|row| shown::<T>(&row))));
        (0..end).map(|key| read(key).expect("nothing conflicts").into_value()).collect()
    }

    fn shown<T: OneField>(row: &T::Row<'_>) -> (u64, String) {
        (T::writes(row), T::field(row, 0).to_owned())
    }

    fn same<T: OneField>(protocol: &str, is_ordered: bool) {
        let setting = Setting::small(protocol, 1, 1);
        let (by_hand, declared) = (Bench::<T>::load(&setting, is_ordered), Bench::<T>::load(&setting, is_ordered));
        let (by_hand, declared) = (by_hand.expect("memory"), declared.expect("memory"));
        let (mut session, mut other) = (by_hand.db.session(), declared.db.session());
        let mut both = |input: &OperationsInput, prefetches| {
            session.set_prefetch(prefetches);
            other.set_prefetch(prefetches);
            let shown = |result: Result<_, seriatim::TransactError>| match result {
                Ok(committed) => format!("{}", seriatim::Committed::into_value(committed)),
                Err(error) => error.to_string(),
            };
            let closure = shown(session.transact(|tx| closures::operations(tx, &by_hand.table, input)));
            assert_eq!(closure, shown(other.call(T::OPERATIONS, input)), "{protocol}: {input:?}");
            closure
        };
        for skew in Skew::ALL {
            let workload = setting.ycsb(is_ordered, skew);
            let mut inputs = workload.inputs(3);
            (0..200).for_each(|at| drop(both(inputs.operations(T::FIELDS), at % 2 == 0)));
        }
        // Operations that the mix lacks: inserts, also of an existing key, and blind writes, also of a missing row.
        let operation = |kind, key| Operation { kind, key, field: 0, letter: 3, rows: 1 };
        let records = setting.records;
        let failures = [(INSERT, 7), (UPDATE, records + 9), (9, 0)].map(|last| vec![(UPDATE, 1), last]);
        let done = vec![(INSERT, records), (UPDATE, records), (UPDATE, 2)];
        for operations in failures.into_iter().chain([done]) {
            let operations = operations.into_iter().map(|(kind, key)| operation(kind, key)).collect();
            both(&OperationsInput { operations, records, value_bytes: 100 }, true);
        }
        let (rows, others) = (rows(&by_hand, records + 10), rows(&declared, records + 10));
        assert_eq!(rows, others, "{protocol}");
        assert!(rows[records as usize].is_some() && rows.iter().flatten().any(|(writes, _)| *writes > 1));
    }

    #[test]
    fn closures_and_procedures_answer_and_leave_the_same() {
        for protocol in seriatim::available_protocols() {
            same::<HashOne>(protocol.name, false);
            same::<OrderedOne>(protocol.name, true);
        }
    }

    #[test]
    fn every_arm_writes_as_often() {
        let setting = Setting::small("auto", 2, 100);
        let bench = Bench::<HashOne>::load(&setting, false).expect("memory");
        let rates = bench.compare(&setting, &setting.ycsb(false, Skew::Hot));
        assert!(rates.len() == ARMS.len() && rates.iter().flatten().all(|&rate| rate > 0.0), "{rates:?}");
        let writes = |rows: &[Option<(u64, String)>]| rows.iter().flatten().map(|(writes, _)| writes).sum::<u64>();
        let all = writes(&rows(&bench, setting.records));
        let expected: usize = (0..u64::from(setting.rounds))
            .map(|round| {
                let workload = setting.ycsb(false, Skew::Hot);
                let mut inputs = workload.inputs(setting.seed + round);
                (0..100).map(|_| inputs.operations(1).operations.iter().filter(|op| op.writes()).count()).sum::<usize>()
            })
            .sum();
        assert!(expected > 0);
        assert_eq!(all, (expected * ARMS.len()) as u64);
    }
}
