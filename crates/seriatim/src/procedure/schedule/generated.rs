//! Generated code gives the same results in every schedule as from top to bottom. Calls the procedures of
//! `tests/generated` at random: in random pieces that keep their order, and with random repairs, also when another
//! transaction changed rows meanwhile.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::rc::Rc;

use seriatim_base::rng::{sample, seed};
use seriatim_procedure::analysis::Steps as Places;
use seriatim_procedure::plan::{Chopped, Piece, Plan, Role};

use self::run::{Run, agree, contents};
use super::*;
use crate::procedure::Declared;
use crate::procedure::registry::Entry;
use crate::{Builder, Database, Session};
use seriatim_engine::procedure::repair::Repairs;
use seriatim_engine::test_support::closed;
use seriatim_engine::test_support::protocols::repairing::{MEANWHILE, NAME, SCRIPT};

#[path = "../../../tests/generated/orders.rs"]
mod orders;
#[path = "../../../tests/generated/passes.rs"]
mod passes;
#[path = "../../../tests/generated/run.rs"]
mod run;
#[path = "../../../tests/generated/transfer.rs"]
mod transfer;

/// Changes rows of a table; for the same seed, in the same way in both databases.
type Disturb = fn(&Database, &str, Rng);

/// The kind of schedule.
enum ScheduleKind {
    /// In random pieces.
    Pieces,
    /// With repairs that find unchanged rows.
    Repairs,
    /// With repairs that find rows of a table that another transaction changed.
    Disturbed(Disturb),
}

/// Each procedure is called in one database, interpreted in another, and scheduled in a third.
struct Three {
    called: (Database, Session),
    interpreted: (Database, Session),
    scheduled: (Database, Session),
    how: ScheduleKind,
    rng: Rng,
    /// Procedures that ran in more than one pass.
    apart: BTreeSet<&'static str>,
    /// Procedures in which a loop ran in more than one pass.
    fissioned: BTreeSet<&'static str>,
    /// Executions that were repaired without beginning again.
    repaired: u32,
    /// The operations to repair in place of those from the analysis.
    canary: Option<fn(&Entry) -> Repairs>,
}

impl Three {
    fn new(open: fn(Builder) -> (Database, Session), protocol: &str, how: ScheduleKind, seed: u64) -> Three {
        Three {
            called: open(Database::builder()),
            interpreted: open(Database::builder()),
            scheduled: open(Database::builder().protocol(protocol).workers(4)),
            how,
            rng: Rng::from_seed(!seed),
            apart: BTreeSet::new(),
            fissioned: BTreeSet::new(),
            repaired: 0,
            canary: None,
        }
    }
}

impl Run for Three {
    fn run<P: Declared>(&mut self, procedure: P, arguments: &P::Arguments)
    where
        P::Arguments: Debug,
        P::Output: Debug + PartialEq,
    {
        const { assert!(P::SCHEDULES) };
        let Three { called, interpreted, scheduled, how, rng, .. } = self;
        let told = format!("{}{arguments:?}", P::NAME);
        let at = scheduled.1.find_declared::<P>().expect("it is registered");
        let Session { runner, called: entries, .. } = &mut scheduled.1;
        let entry = entries.entry(at);
        let handles = entry.handles::<P>();
        let mut place = None;
        let all = P::complete(arguments, &mut |_| unreachable!("none takes numbers"), &mut place);
        let all = all.expect("nothing is taken");
        let mut straight = || {
            let got = called.1.call(procedure, arguments).map(|done| done.value);
            let wanted = interpreted.1.interpret(procedure, arguments).map(|done| done.value);
            agree(&got, &wanted, &told);
            got
        };
        let mut run = |steps: Steps<'_>| {
            let got = run_scheduled(runner, steps, |tx, schedule| P::scheduled(tx, handles, all, schedule));
            got.map(|committed| (committed.value, committed.attempts))
        };
        match how {
            ScheduleKind::Pieces => {
                let wanted = straight();
                let mut passes = vec![0; entry.declaration.steps];
                if wanted.is_ok() {
                    // A procedure that fails has one piece only: nothing may fail after the first piece.
                    passes = Places::of(&entry.declaration).passes(&pieces(&entry.plan, rng));
                }
                let passes = Passes::new(passes.into());
                if passes.count() > 1 {
                    self.apart.insert(P::NAME);
                }
                if is_fissioned(&entry.plan, &passes) {
                    self.fissioned.insert(P::NAME);
                }
                let got = run(Steps::Pieces(&passes)).map(|(value, _)| value);
                agree(&got, &wanted, &format!("{told} in {passes:?}"));
            }
            ScheduleKind::Repairs => {
                let mut script = Vec::new();
                for _ in 0..1 + rng.below(2) {
                    let stale = |id| (rng.below(3) == 0).then_some(id);
                    let stale: Vec<usize> = (0..entry.plan.operations.len()).filter_map(stale).collect();
                    script.push(closed(&entry.plan, &entry.repairs, stale));
                }
                SCRIPT.set(script.iter().cloned().collect());
                let got = run(Steps::Whole(Some(&entry.repairs)));
                self.repaired += SCRIPT.with_borrow(|left| script.len() - left.len()) as u32;
                SCRIPT.take();
                let wanted = straight();
                assert!(got.as_ref().is_ok_and(|(_, attempts)| *attempts == 1) == wanted.is_ok(), "{told}: {got:?}");
                agree(&got.map(|(value, _)| value), &wanted, &format!("{told} with {script:?}"));
            }
            ScheduleKind::Disturbed(disturb) => {
                let tables = &entry.plan.tables;
                let disturb = *disturb;
                if let Some(table) = tables.get(rng.below(tables.len().max(1) as u64) as usize) {
                    let (name, at, seed) = (table.name.to_string(), table, rng.next_u64());
                    let uses = |id: &usize| {
                        let operation = &entry.plan.operations[*id];
                        std::ptr::eq(&tables[operation.table], at) || operation.changes()
                    };
                    let stale = (0..entry.plan.operations.len()).filter(uses).collect();
                    let fault = self.canary.map(|fault| fault(entry));
                    let repairs = fault.as_ref().unwrap_or(&entry.repairs);
                    let stale = closed(&entry.plan, repairs, stale);
                    SCRIPT.set([stale.clone()].into());
                    let done = Rc::new(Cell::new(false));
                    let (db, once, table) = (scheduled.0.clone(), Rc::clone(&done), name.clone());
                    let meanwhile = move || {
                        disturb(&db, &table, Rng::from_seed(seed));
                        once.set(true);
                    };
                    MEANWHILE.set([Box::new(meanwhile) as Box<dyn FnOnce()>].into());
                    let got = run(Steps::Whole(Some(repairs)));
                    SCRIPT.take();
                    MEANWHILE.take();
                    if done.get() {
                        [&called.0, &interpreted.0].into_iter().for_each(|db| disturb(db, &name, Rng::from_seed(seed)));
                        self.repaired += u32::from(got.as_ref().is_ok_and(|(_, attempts)| *attempts == 1));
                    }
                    let wanted = straight();
                    let what = format!("{told} with {stale:?} after {name} changed");
                    agree(&got.map(|(value, _)| value), &wanted, &what);
                }
            }
        }
        let of_straight = contents(&called.0);
        assert_eq!(contents(&interpreted.0), of_straight, "after {told}");
        assert_eq!(contents(&scheduled.0), of_straight, "after {told}, scheduled");
    }
}

/// Random pieces. Each operation is in the same piece as the operations that it needs, or in a later one. Conflicting
/// operations keep their order.
fn pieces(plan: &Plan, rng: &mut Rng) -> Chopped {
    let operations = &plan.operations;
    let mut of = vec![0u64; operations.len()];
    for piece in &mut of {
        *piece = rng.below(4);
    }
    let shared = |a: usize, b: usize| operations[a].loops.iter().any(|at| operations[b].loops.contains(at));
    loop {
        let before = of.clone();
        for at in 0..of.len() {
            for needed in operations[at].from() {
                of[at] = of[at].max(of[needed]);
            }
            for earlier in 0..at {
                let meet = operations[at].table == operations[earlier].table;
                if meet && (operations[at].changes() || operations[earlier].changes()) {
                    of[at] = of[at].max(of[earlier]);
                    if shared(at, earlier) {
                        of[earlier] = of[at];
                    }
                }
            }
        }
        if of == before {
            break;
        }
    }
    let piece = |number| Piece {
        operations: (0..of.len()).filter(|at| of[*at] == number).collect(),
        role: Role::Visible,
        conflicting: false,
    };
    Chopped {
        procedure: plan.procedure.clone(),
        labels: vec![String::new(); of.len()],
        pieces: (0..4).map(piece).filter(|piece| !piece.operations.is_empty()).collect(),
        decisive: Some(0),
        order: Default::default(),
        merges: Vec::new(),
        snapshot: false,
    }
}

/// Whether operations of one loop run in different passes.
fn is_fissioned(plan: &Plan, passes: &Passes) -> bool {
    (0..plan.loops.len()).any(|at| {
        let inside = plan.operations.iter().filter(|operation| operation.loops.contains(&at));
        let passes: BTreeSet<u16> = inside.map(|operation| passes.of(StepId(operation.step as u16))).collect();
        passes.len() > 1
    })
}

#[test]
fn any_legal_pieces_have_the_result_of_a_run_from_top_to_bottom() {
    let seed = seed("any_legal_pieces_have_the_result_of_a_run_from_top_to_bottom");
    let mut rng = Rng::from_seed(seed);
    let (mut apart, mut fissioned) = (BTreeSet::new(), BTreeSet::new());
    for protocol in sample(crate::available_protocols(), 3, seed) {
        eprintln!("under {}", protocol.name);
        let mut of_passes = Three::new(passes::open, protocol.name, ScheduleKind::Pieces, seed);
        (0..200).for_each(|_| passes::any(&mut rng, &mut of_passes));
        let mut of_orders = Three::new(orders::open, protocol.name, ScheduleKind::Pieces, seed);
        (0..100).for_each(|_| orders::any(&mut rng, &mut of_orders));
        let mut of_transfer = Three::new(transfer::open, protocol.name, ScheduleKind::Pieces, seed);
        (0..20).for_each(|_| transfer::any(&mut rng, &mut of_transfer));
        for three in [of_passes, of_orders, of_transfer] {
            apart.extend(three.apart);
            fissioned.extend(three.fissioned);
        }
    }
    eprintln!("in more than one pass: {apart:?}, loops of {fissioned:?}");
    assert!(["walk", "fan", "split", "choose", "refers", "hands_on", "enter"].iter().all(|name| apart.contains(name)));
    assert!(fissioned.contains("split"));
}

#[test]
fn repairs_that_find_nothing_new_change_nothing() {
    let seed = seed("repairs_that_find_nothing_new_change_nothing");
    let mut rng = Rng::from_seed(seed);
    let mut three = Three::new(passes::open, NAME, ScheduleKind::Repairs, seed);
    (0..400).for_each(|_| passes::any(&mut rng, &mut three));
    assert!(three.repaired > 100, "repairs: {}", three.repaired);
    let mut three = Three::new(orders::open, NAME, ScheduleKind::Repairs, seed);
    (0..200).for_each(|_| orders::any(&mut rng, &mut three));
    let mut three = Three::new(transfer::open, NAME, ScheduleKind::Repairs, seed);
    (0..50).for_each(|_| transfer::any(&mut rng, &mut three));
}

#[test]
fn repaired_keys_branches_and_ranges_are_those_of_a_full_execution() {
    let seed = seed("repaired_keys_branches_and_ranges_are_those_of_a_full_execution");
    let mut rng = Rng::from_seed(seed);
    let mut three = Three::new(passes::open, NAME, ScheduleKind::Disturbed(passes::disturb), seed);
    (0..400).for_each(|_| passes::any(&mut rng, &mut three));
    assert!(three.repaired > 100, "repaired executions: {}", three.repaired);
    let mut three = Three::new(orders::open, NAME, ScheduleKind::Disturbed(orders::disturb), seed);
    (0..200).for_each(|_| orders::any(&mut rng, &mut three));
    assert!(three.repaired > 50, "repaired executions: {}", three.repaired);
}

#[test]
fn canary_repairs_without_descendants_are_noticed() {
    let mut rng = Rng::from_seed(7);
    let mut three = Three::new(passes::open, NAME, ScheduleKind::Disturbed(passes::disturb), 7);
    // Only the operations of the script run again, and none that depends on them.
    three.canary = Some(|entry| {
        let operations = entry.plan.operations.iter();
        Repairs::new(operations.map(|operation| (StepId(operation.step as u16), Vec::new())))
    });
    let run = || (0..400).for_each(|_| passes::any(&mut rng, &mut three));
    catch_unwind(AssertUnwindSafe(run)).expect_err("keys and branches are stale");
    SCRIPT.take();
    MEANWHILE.take();
}

#[test]
fn canary_pieces_out_of_order_are_noticed() {
    let (_db, mut session) = passes::open(Database::builder());
    let at = session.find_declared::<passes::walk>().expect("it is registered");
    let Session { runner, called, .. } = &mut session;
    let entry = called.entry(at);
    let handles = entry.handles::<passes::walk>();
    // The last step is due first: what it returns is not available yet.
    let last = entry.declaration.steps - 1;
    let passes = Passes::new((0..=last).map(|step| u16::from(step != last)).collect());
    let run = || {
        run_scheduled(runner, Steps::Pieces(&passes), |tx, schedule| {
            passes::walk::scheduled(tx, handles, &(0, 2), schedule)
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the analysis makes no such passes");
    let message = panic.downcast_ref::<&str>().expect("a message");
    assert!(message.contains("a step ran before the step that assigns its variable"), "{message}");
}
