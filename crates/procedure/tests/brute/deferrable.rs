//! The additions of random sets that dbx-tc may publish later ([`deferrable`]). The oracle knows the sets as they were
//! drawn, and runs by intervals.
//!
//! A run has its transactions one after another, each whole and at once, except for deferred additions. These are
//! pending until all of them are published, at some moment between two transactions. A serial order must remain that
//! has transactions of one interval before those of the next, and those of one group as they ran. As in
//! [`runs`](super::runs), every table has one row.

use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use seriatim_base::Rng;
use seriatim_procedure::analysis::deferrable;
use seriatim_procedure::plan::{Deferrable, Options, Plan};

use super::oracle::{self, conflict, drawn};
use super::runs::{is_cyclic, orders};
use super::sets::{self, Act, Effect, Op, Procedure, Set, cases};

/// An operation of a procedure.
type End = (usize, usize);
/// A column of a table.
type Column = (u8, u8);

fn analysed(set: &Set, clustered: Option<u8>) -> Deferrable {
    let plans = set.plans();
    let plans: Vec<&Plan> = plans.iter().collect();
    let clustered = clustered.map(|table| format!("table_{table}"));
    deferrable(&plans, |at| plans[at].takes_snapshot(), |table| clustered.as_deref() == Some(table))
}

fn publishers(found: &Deferrable) -> BTreeSet<End> {
    found.deferrals.iter().map(|found| (found.publisher.procedure, found.publisher.operation)).collect()
}

/// The operations of a set, without snapshots.
struct Oracle<'s> {
    set: &'s Set,
    ends: Vec<(End, &'s Op, Effect)>,
    clustered: Option<u8>,
}

impl<'s> Oracle<'s> {
    fn new(set: &'s Set, clustered: Option<u8>) -> Oracle<'s> {
        let operations = |at: usize| set.0[at].operations.iter().enumerate().map(move |(id, op)| ((at, id), op));
        let ends = drawn(set).into_iter().flat_map(operations).map(|(end, op)| (end, op, op.effect()));
        Oracle { set, ends: ends.collect(), clustered }
    }

    fn of_table(&self, table: u8) -> impl Iterator<Item = &Effect> {
        self.ends.iter().filter(move |(_, op, _)| op.table == table).map(|(_, _, effect)| effect)
    }

    /// Operations that add to a column.
    fn adding(&self, (table, column): Column) -> BTreeSet<End> {
        let adds = |(_, op, effect): &&(End, &Op, Effect)| op.table == table && effect.adds.contains(&column);
        self.ends.iter().filter(adds).map(|(end, ..)| *end).collect()
    }

    /// Whether an operation does nothing but add to rows that stay, in a way that others cannot tell but by the sum.
    fn only_adds(&self, op: &Op, effect: &Effect) -> bool {
        let changes = |other: &Effect, column: &u8| other.writes.contains(column) || other.adds.contains(column);
        !effect.adds.is_empty()
            && effect.index.is_none()
            && self.clustered != Some(op.table)
            && !self.of_table(op.table).any(|other| other.keys)
            && !effect.reads.iter().any(|column| self.of_table(op.table).any(|other| changes(other, column)))
    }

    /// Columns that a procedure uses, and to which all adding procedures only add; with the adding procedures.
    fn candidates(&self) -> Vec<(Column, BTreeSet<End>)> {
        let columns: BTreeSet<Column> = self
            .ends
            .iter()
            .flat_map(|(_, op, effect)| effect.adds.iter().map(move |column| (op.table, *column)))
            .collect();
        let is_used = |(table, column): Column| {
            self.of_table(table).any(|other| other.reads.contains(&column) || other.writes.contains(&column))
        };
        let columns = columns.into_iter().filter(|column| is_used(*column)).map(|at| (at, self.adding(at)));
        let all_only_add = |adding: &BTreeSet<End>| {
            self.ends.iter().filter(|(end, ..)| adding.contains(end)).all(|(_, op, effect)| self.only_adds(op, effect))
        };
        columns.filter(|(_, adding)| all_only_add(adding)).collect()
    }

    /// The additions deferred at run time, where an update is known by its columns.
    fn known_by(&self, columns: &BTreeSet<Column>) -> BTreeSet<End> {
        let is_known = |(_, op, effect): &&(End, &Op, Effect)| {
            self.only_adds(op, effect) && effect.adds.iter().all(|column| columns.contains(&(op.table, *column)))
        };
        self.ends.iter().filter(is_known).map(|(end, ..)| *end).collect()
    }

    /// Of each procedure, the first of those that conflicts join with it, directly or not, if these are deferred.
    fn groups(&self, deferred: &BTreeSet<End>) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.set.0.len()).collect();
        for _ in 0..groups.len() {
            for (one, left, _) in &self.ends {
                for (two, right, _) in &self.ends {
                    let joins = !deferred.contains(one) && !deferred.contains(two) && conflict(left, right, true);
                    if joins {
                        groups[one.0] = groups[one.0].min(groups[two.0]);
                    }
                }
            }
        }
        groups
    }

    /// Whether one of so many runs with these deferred has no serial order.
    fn goes_wrong(&self, deferred: &BTreeSet<End>, groups: &[usize], seed: u64, runs: usize) -> bool {
        let (mut rng, drawn) = (Rng::from_seed(seed), drawn(self.set));
        !drawn.is_empty() && (0..runs).any(|_| self.run(deferred, groups, &drawn, &mut rng))
    }

    fn run(&self, deferred: &BTreeSet<End>, groups: &[usize], drawn: &[usize], rng: &mut Rng) -> bool {
        // (transaction, operation) in order of effect; of each transaction the procedure and the interval.
        let (mut history, mut pending, mut transactions) = (Vec::new(), Vec::new(), Vec::new());
        let mut interval = 0;
        for at in 0..5 {
            let procedure = drawn[rng.below(drawn.len() as u64) as usize];
            transactions.push((procedure, interval));
            let operations = (0..self.set.0[procedure].operations.len()).map(|operation| (at, operation));
            let (later, now): (Vec<_>, Vec<_>) =
                operations.partition(|(_, operation)| deferred.contains(&(procedure, *operation)));
            history.extend(now);
            pending.extend(later);
            if rng.below(4) == 0 {
                history.append(&mut pending);
                interval += 1;
            }
        }
        history.append(&mut pending);
        let effect = |(at, operation): &(usize, usize)| {
            let op = &self.set.0[transactions[*at].0].operations[*operation];
            (op.table, op.effect())
        };
        let mut before = orders(transactions.len(), &history, effect);
        for (at, (procedure, interval)) in transactions.iter().enumerate() {
            let follows = |(other, of): &(usize, usize)| groups[*other] == groups[*procedure] || of != interval;
            before[at].extend((at + 1..transactions.len()).filter(|later| follows(&transactions[*later])));
        }
        is_cyclic(before)
    }
}

/// Sets, the table that is clustered, and a seed of runs.
fn any_case() -> impl Strategy<Value = (Set, Option<u8>, u64)> {
    (sets::any_adding_set(4, 4), prop::option::weighted(0.2, 0..3_u8), any::<u64>())
}

/// No deferred addition contradicts an order, and no other column could be deferred. An addition is deferred if it is
/// known to be deferrable when it runs.
#[test]
fn deferral_contradicts_no_order_and_covers_every_possible_column() {
    let deferring = Cell::new(0);
    sets::check(cases(), &any_case(), |(set, clustered, _)| {
        let (oracle, found) = (Oracle::new(&set, clustered), analysed(&set, clustered));
        let deferred = publishers(&found);
        deferring.set(deferring.get() + u32::from(!deferred.is_empty()));
        prop_assert_eq!(oracle::deferrals(&set, &deferred, Options::OPTIMIZED), Ok(()));
        let mut columns = BTreeSet::new();
        for (column, adding) in oracle.candidates() {
            if adding.is_subset(&deferred) {
                columns.insert(column);
                continue;
            }
            prop_assert!(adding.is_disjoint(&deferred), "some add to {:?} later, and some do not", column);
            let more = &deferred | &adding;
            let verdict = oracle::deferrals(&set, &more, Options::OPTIMIZED);
            prop_assert!(verdict.is_err(), "{:?} could be deferred", column);
        }
        prop_assert_eq!(oracle.known_by(&columns), deferred.clone());
        let named = columns.iter().map(|(table, column)| (format!("table_{table}"), u32::from(*column)));
        let told = found
            .columns
            .iter()
            .flat_map(|(table, columns)| columns.iter().map(move |column| (table.to_string(), column.index() as u32)));
        prop_assert_eq!(named.collect::<BTreeSet<_>>(), told.collect::<BTreeSet<_>>());
        prop_assert_eq!(oracle.groups(&deferred), found.groups);
        Ok(())
    });
    assert!(deferring.get() >= cases() / 20, "only {} sets defer something", deferring.get());
}

#[test]
fn every_run_by_intervals_has_a_serial_order() {
    sets::check(cases(), &any_case(), |(set, clustered, seed)| {
        let (oracle, found) = (Oracle::new(&set, clustered), analysed(&set, clustered));
        prop_assert!(!oracle.goes_wrong(&publishers(&found), &found.groups, seed, 50));
        Ok(())
    });
}

/// Whether runs that defer these go wrong, and the oracle says so.
fn is_caught(set: &Set, deferred: &BTreeSet<End>) -> bool {
    let oracle = Oracle::new(set, None);
    let is_wrong = oracle.goes_wrong(deferred, &oracle.groups(deferred), 7, 2000);
    assert_eq!(oracle::deferrals(set, deferred, Options::OPTIMIZED).is_err(), is_wrong, "{set:?}");
    is_wrong
}

fn op(table: u8, act: Act) -> Op {
    Op { table, act, needs: 0, looped: false, fails: false }
}

/// Procedures of these operations; those that only read see the present.
fn set(procedures: &[&[Op]]) -> Set {
    let of = |operations: &&[Op]| Procedure { operations: operations.to_vec(), pure_failure: None, latest: true };
    Set(procedures.iter().map(of).collect())
}

#[test]
fn canary_deferral_of_all_that_only_adds_is_caught() {
    let caught = Cell::new(0);
    sets::check(cases(), &any_case(), |(set, _, seed)| {
        let oracle = Oracle::new(&set, None);
        let all: BTreeSet<End> = oracle.candidates().into_iter().flat_map(|(_, adding)| adding).collect();
        let is_wrong = oracle.goes_wrong(&all, &oracle.groups(&all), seed, 50);
        caught.set(caught.get() + u32::from(is_wrong));
        let verdict = oracle::deferrals(&set, &all, Options::OPTIMIZED);
        prop_assert!(!is_wrong || verdict.is_err(), "the runs are stricter than the oracle");
        Ok(())
    });
    assert!(caught.get() > cases() / 40, "only {} were caught", caught.get());
}

#[test]
fn canary_deferral_within_a_group_is_caught() {
    let joined = set(&[&[op(0, Act::Write(0)), op(1, Act::Add(0))], &[op(1, Act::Read(0)), op(0, Act::Read(0))]]);
    assert!(is_caught(&joined, &BTreeSet::from([(0, 1)])));
    assert_eq!(analysed(&joined, None).deferrals, []);
    let apart = set(&[&[op(0, Act::Write(0)), op(1, Act::Add(0))], &[op(1, Act::Read(0)), op(0, Act::Read(1))]]);
    assert!(!is_caught(&apart, &BTreeSet::from([(0, 1)])));
    assert_eq!(publishers(&analysed(&apart, None)), BTreeSet::from([(0, 1)]));
}

/// Each is the subscriber of the next, and the last of the first.
#[test]
fn canary_groups_that_publish_in_a_circle_are_caught() {
    for length in 2..=3 {
        let ring = |last| -> Vec<Vec<Op>> {
            let operations =
                |at: u8| vec![op(0, Act::Read((at + 1) % length)), op(0, Act::Add(if at == last { 9 } else { at }))];
            (0..length).map(operations).collect()
        };
        let made = |ring: Vec<Vec<Op>>| set(&ring.iter().map(|operations| &operations[..]).collect::<Vec<_>>());
        let all: BTreeSet<End> = (0..usize::from(length)).map(|at| (at, 1)).collect();
        let circle = made(ring(9));
        assert!(is_caught(&circle, &all));
        assert_eq!(analysed(&circle, None).deferrals, []);
        // Open at one place.
        let chain = made(ring(0));
        let others: BTreeSet<End> = all.iter().copied().filter(|(at, _)| *at > 0).collect();
        assert!(!is_caught(&chain, &others));
        assert_eq!(publishers(&analysed(&chain, None)), others);
    }
}

/// It is legal that one adding procedure may defer and another may not, but at run time an update is known by its
/// columns.
#[test]
fn canary_a_column_to_which_some_may_add_later_and_some_may_not_is_caught() {
    let set = set(&[
        &[op(1, Act::Add(0))],
        &[op(0, Act::Write(0)), op(1, Act::Add(0))],
        &[op(1, Act::Read(0)), op(0, Act::Read(0))],
    ]);
    assert!(!is_caught(&set, &BTreeSet::from([(0, 0)])));
    let known = Oracle::new(&set, None).known_by(&BTreeSet::from([(1, 0)]));
    assert_eq!(known, BTreeSet::from([(0, 0), (1, 1)]));
    assert!(is_caught(&set, &known));
    assert_eq!(analysed(&set, None).deferrals, []);
}
