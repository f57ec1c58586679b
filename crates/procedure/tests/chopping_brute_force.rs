//! Choppings of random sets of procedures against a checker that shares no code with the analysis. The checker knows
//! the sets as they were drawn, not the plans made of them. It enumerates cycles of the graph of all instances.

mod brute;

use std::collections::BTreeSet;

use brute::oracle::{self, Cut, Wrong};
use brute::runs::{self, Taken};
use brute::sets::{self, Act, Op, Procedure, Set, cases};
use proptest::prelude::*;
use seriatim_base::rng;
use seriatim_procedure::analysis::chop;
use seriatim_procedure::plan::{Chopping, Existence, MergeReason, Options, Plan};

fn chopped(set: &Set, options: Options) -> Chopping {
    chop(&set.plans(), options).expect("a set")
}

#[test]
fn no_set_keeps_a_cycle_or_loses_its_order_or_its_safety() {
    sets::check(cases(), &(sets::any_set(4, 5), sets::any_options()), |(set, options)| {
        let chopping = chopped(&set, options);
        prop_assert_eq!(oracle::check(&set, &Cut::of(&set, &chopping), options, 2), Ok(()));
        prop_assert_eq!(oracle::roles(&set, &chopping), Ok(()));
        prop_assert_eq!(oracle::deferrals(&set, &Cut::of(&set, &chopping).deferred, options), Ok(()));
        Ok(())
    });
}

#[test]
fn three_instances_have_no_cycle_where_two_have_none() {
    sets::check(cases() / 3, &(sets::any_set(3, 3), sets::any_options()), |(set, options)| {
        let chopping = chopped(&set, options);
        prop_assert_eq!(oracle::check(&set, &Cut::of(&set, &chopping), options, 3), Ok(()));
        Ok(())
    });
}

#[test]
fn every_run_piece_by_piece_has_a_serial_order() {
    sets::check(cases(), &(sets::any_set(4, 4), any::<u64>()), |(set, seed)| {
        let chopping = chopped(&set, Options::OPTIMIZED);
        prop_assert!(!runs::goes_wrong(&set, &Cut::of(&set, &chopping), Taken::Decisive, seed, 50));
        Ok(())
    });
}

#[test]
fn no_piece_can_be_split() {
    sets::check(cases() / 3, &(sets::any_set(3, 4), sets::any_options()), |(set, options)| {
        let chopping = chopped(&set, options);
        let cut = Cut::of(&set, &chopping);
        for smaller in cut.splits() {
            let verdict = oracle::check(&set, &smaller, options, 2);
            prop_assert!(verdict.is_err(), "also safe: {:?}", smaller.pieces);
        }
        Ok(())
    });
}

#[test]
fn the_log_holds_every_merge() {
    sets::check(cases() / 3, &sets::any_set(3, 4), |set| {
        for procedure in chopped(&set, Options::OPTIMIZED).procedures.iter().filter(|procedure| !procedure.snapshot) {
            prop_assert_eq!(procedure.labels.len() - procedure.pieces.len(), procedure.merges.len());
        }
        Ok(())
    });
}

#[test]
fn the_sets_are_varied() {
    let seen = std::cell::RefCell::new(BTreeSet::new());
    sets::check(cases(), &(sets::any_set(4, 5), sets::any_options()), |(set, options)| {
        let chopping = chopped(&set, options);
        let mut seen = seen.borrow_mut();
        for procedure in &chopping.procedures {
            seen.extend(procedure.pieces.iter().map(|piece| format!("{:?}", piece.role)));
            let reason = |reason: &MergeReason| format!("{reason:?}").split('(').next().unwrap_or_default().to_owned();
            seen.extend(procedure.merges.iter().map(|merge| reason(&merge.reason)));
        }
        seen.extend(chopping.refused.iter().filter(|refused| refused.reason.contains("joi")).map(|_| "joined".into()));
        Ok(())
    });
    let all =
        ["Between", "Buffered", "Cycle", "Decisive", "Deferred", "Loop", "Order", "Rollback", "Visible", "joined"];
    assert_eq!(seen.into_inner(), all.map(str::to_owned).into());
}

#[test]
fn the_order_of_registration_does_not_matter() {
    let sets = sets::any_set(4, 5).prop_flat_map(|set| {
        let plans = set.plans();
        (Just(plans.clone()), Just(plans).prop_shuffle(), sets::any_options())
    });
    sets::check(cases() / 3, &sets, |(plans, shuffled, options)| {
        prop_assert_eq!(chop(&plans, options), chop(&shuffled, options));
        Ok(())
    });
}

#[test]
fn deferrals_contradict_no_order_and_none_is_missing() {
    sets::check(cases(), &sets::any_set(4, 4), |set| {
        let chopping = chopped(&set, Options::OPTIMIZED);
        let deferred: BTreeSet<(usize, usize)> =
            chopping.deferrals.iter().map(|found| (found.publisher.procedure, found.publisher.operation)).collect();
        prop_assert_eq!(oracle::deferrals(&set, &deferred, Options::OPTIMIZED), Ok(()));
        for candidate in oracle::deferrable(&set) {
            let mut more = deferred.clone();
            if more.insert(candidate) {
                prop_assert!(
                    oracle::deferrals(&set, &more, Options::OPTIMIZED).is_err(),
                    "{:?} could be deferred",
                    candidate
                );
            }
        }
        Ok(())
    });
}

#[test]
fn two_procedures_that_publish_to_each_other_are_not_deferred() {
    let op = |table, act| Op { table, act, needs: 0, looped: false, fails: false };
    let one =
        Procedure { operations: vec![op(1, Act::Read(0)), op(0, Act::Add(0))], pure_failure: None, latest: false };
    let two =
        Procedure { operations: vec![op(0, Act::Read(0)), op(1, Act::Add(0))], pure_failure: None, latest: false };
    let set = Set(vec![one, two]);
    assert_eq!(oracle::deferrable(&set), [(0, 1), (1, 1)]);
    assert_eq!(chopped(&set, Options::OPTIMIZED).deferrals, []);
    let both = BTreeSet::from([(0, 1), (1, 1)]);
    assert!(matches!(oracle::deferrals(&set, &both, Options::OPTIMIZED), Err(Wrong::Deferral(_))));
}

#[test]
fn adding_a_procedure_names_exactly_what_changes() {
    sets::check(cases() / 3, &(sets::any_set(4, 4), sets::any_options()), |(set, options)| {
        let plans = set.plans();
        let Some((_, fewer)) = plans.split_last() else { return Ok(()) };
        let (before, after) = (chop(fewer, options).expect("a set"), chop(&plans, options).expect("a set"));
        let changed = before.changed(&after);
        for chopped in &after.procedures {
            let same = before.procedure(&chopped.procedure).is_some_and(|old| old.pieces == chopped.pieces);
            prop_assert_eq!(!same, changed.contains(&chopped.procedure) || chopped.snapshot && !same);
        }
        Ok(())
    });
}

/// Whether a property finds something in one of many sets.
fn caught(found: impl Fn(&Set) -> Option<Wrong>) -> bool {
    sets::any_has(3000, &sets::any_set(4, 5), |set| found(set).is_some())
}

#[test]
fn canary_an_analysis_that_forgets_keys_is_caught() {
    let forgetful = |plan: &Plan| {
        let mut plan = plan.clone();
        for operation in &mut plan.operations {
            operation.accesses.iter_mut().for_each(|access| access.existence = Existence::Reads);
        }
        plan
    };
    assert!(caught(|set| {
        let plans: Vec<Plan> = set.plans().iter().map(forgetful).collect();
        let chopping = chop(&plans, Options::DEFAULT).expect("a set");
        oracle::check(set, &Cut::of(set, &chopping), Options::DEFAULT, 2).err()
    }));
}

#[test]
fn canary_an_analysis_that_takes_every_write_for_an_addition_is_caught() {
    let careless = |plan: &Plan| {
        let mut plan = plan.clone();
        for access in plan.operations.iter_mut().flat_map(|operation| &mut operation.accesses) {
            let writes = std::mem::take(&mut access.writes);
            access.commutes.extend(&writes);
            let reads: Vec<_> = access.reads.iter().filter(|column| writes.contains(*column)).collect();
            reads.into_iter().for_each(|column| {
                access.reads.remove(column);
            });
        }
        plan
    };
    assert!(caught(|set| {
        let plans: Vec<Plan> = set.plans().iter().map(careless).collect();
        let chopping = chop(&plans, Options::DEFAULT).expect("a set");
        oracle::check(set, &Cut::of(set, &chopping), Options::DEFAULT, 2).err()
    }));
}

/// Plans in which a subtraction that can fall short is an addition like others.
fn hopeful(set: &Set) -> Vec<Plan> {
    let mut plans = set.plans();
    for (procedure, plan) in set.0.iter().zip(&mut plans) {
        for (op, operation) in procedure.operations.iter().zip(&mut plan.operations) {
            if matches!(op.act, Act::Subtract(_)) {
                let access = &mut operation.accesses[0];
                access.commutes = std::mem::take(&mut access.writes);
                access.reads = Default::default();
            }
        }
    }
    plans
}

#[test]
fn canary_an_analysis_that_takes_a_subtraction_for_an_addition_is_caught() {
    let chopped = |set: &Set| Cut::of(set, &chop(&hopeful(set), Options::DEFAULT).expect("a set"));
    assert!(caught(|set| oracle::check(set, &chopped(set), Options::DEFAULT, 2).err()));
    assert!(caught(|set| {
        runs::goes_wrong(set, &chopped(set), Taken::Decisive, 7, 50).then_some(Wrong::Cycle(Vec::new()))
    }));
}

#[test]
fn canary_a_procedure_that_wants_the_latest_state_and_is_left_out_is_caught() {
    assert!(caught(|set| {
        let mut plans = set.plans();
        plans.iter_mut().for_each(|plan| plan.latest = false);
        let chopping = chop(&plans, Options::OPTIMIZED).expect("a set");
        oracle::check(set, &Cut::of(set, &chopping), Options::OPTIMIZED, 2).err()
    }));
}

#[test]
fn a_subtraction_that_can_fall_short_waits_for_what_is_published_and_is_never_deferred() {
    let op = |act| Op { table: 0, act, needs: 0, looped: false, fails: false };
    let procedure = |act| Procedure { operations: vec![op(act)], pure_failure: None, latest: false };
    let set = Set(vec![procedure(Act::Add(0)), procedure(Act::Subtract(0))]);
    let chopping = chopped(&set, Options::OPTIMIZED);
    let [deferral] = &chopping.deferrals[..] else { panic!("{chopping}") };
    assert_eq!((deferral.publisher.procedure, deferral.publisher.operation), (0, 0));
    assert_eq!(deferral.subscribers.iter().map(|end| end.procedure).collect::<Vec<_>>(), [1]);
    // Two of them are ordered.
    assert!(chopping.conflicts.iter().any(|edge| edge.left == edge.right && edge.left.procedure == 1), "{chopping}");
}

#[test]
fn canary_a_skipped_merge_is_caught() {
    assert!(caught(|set| {
        let chopping = chopped(set, Options::OPTIMIZED);
        let skipped = Cut::of(set, &chopping).splits().into_iter().next()?;
        oracle::check(set, &skipped, Options::OPTIMIZED, 2).err()
    }));
}

#[test]
fn canary_a_run_with_a_skipped_merge_is_caught() {
    assert!(caught(|set| {
        let skipped = Cut::of(set, &chopped(set, Options::OPTIMIZED)).splits().into_iter().next()?;
        runs::goes_wrong(set, &skipped, Taken::Decisive, 7, 50).then_some(Wrong::Cycle(Vec::new()))
    }));
}

#[test]
fn canary_a_run_with_a_deferral_against_an_order_is_caught() {
    assert!(caught(|set| {
        let chopping = chopped(set, Options { defer: false, ..Options::OPTIMIZED });
        let mut cut = Cut::of(set, &chopping);
        cut.deferred = oracle::deferrable(set).into_iter().collect();
        runs::goes_wrong(set, &cut, Taken::Decisive, 7, 50).then_some(Wrong::Cycle(Vec::new()))
    }));
}

#[test]
fn canary_a_publisher_that_takes_its_epoch_when_it_begins_is_caught() {
    assert!(caught(|set| {
        let cut = Cut::of(set, &chopped(set, Options::OPTIMIZED));
        runs::goes_wrong(set, &cut, Taken::Begin, 7, 50).then_some(Wrong::Deferral(Vec::new()))
    }));
}

#[test]
fn canary_a_subscriber_that_continues_in_another_epoch_is_caught() {
    // One that subscribes to the first and publishes to the third, which subscribes to the first too.
    let op = |table, act| Op { table, act, needs: 0, looped: false, fails: false };
    let procedure = |operations| Procedure { operations, pure_failure: None, latest: false };
    let set = Set(vec![
        procedure(vec![op(1, Act::Add(1))]),
        procedure(vec![op(1, Act::Read(1)), op(0, Act::Insert), op(2, Act::Add(0))]),
        procedure(vec![op(2, Act::Increment(0)), op(1, Act::Read(1))]),
    ]);
    let chopping = chopped(&set, Options::OPTIMIZED);
    assert_eq!(chopping.deferrals.len(), 2);
    let cut = Cut::of(&set, &chopping);
    let at = runs::first_wrong(&set, &cut, Taken::Unconfirmed, 7, 200_000).expect("it is caught");
    assert!(!runs::goes_wrong(&set, &cut, Taken::Decisive, 7, rng::tries(at as u64 + 1, 200_000) as usize));
}

#[test]
fn canary_a_forgotten_failure_is_caught() {
    let hopeful = |plan: &Plan| Plan { failures: Vec::new(), ..plan.clone() };
    assert!(caught(|set| {
        let plans: Vec<Plan> = set.plans().iter().map(hopeful).collect();
        let chopping = chop(&plans, Options::DEFAULT).expect("a set");
        oracle::check(set, &Cut::of(set, &chopping), Options::DEFAULT, 2)
            .err()
            .filter(|wrong| matches!(wrong, Wrong::Rollback(_)))
    }));
}

#[test]
fn canary_a_deferral_against_an_order_is_caught() {
    assert!(caught(|set| {
        let all: BTreeSet<(usize, usize)> = oracle::deferrable(set).into_iter().collect();
        oracle::deferrals(set, &all, Options::OPTIMIZED).err()
    }));
}
