//! Execution modes differ in their speed only.

use std::collections::BTreeSet;

use seriatim::procedure::ir::Procedure;
use seriatim::procedure::plan::{Chopped, Piece, Plan, Role};
use seriatim::procedure::{Declared, ExecutionMode};
use seriatim::rng::seed;
use seriatim::{Abort, Rng, Table, Tx, procedure, thread};
use seriatim_procedure::analysis::{Follow, Schema, Steps, plan};

use crate::bank::{self, Account, Turnover, balance, transfer};
use crate::common::each;

#[test]
fn in_pieces_a_set_stays_serializable_and_loses_nothing() {
    each(|setting| {
        let seed = seed("in_pieces_a_set_stays_serializable_and_loses_nothing");
        let (db, _) = bank::open(setting.builder().execution_mode(ExecutionMode::Pieces), &[1000; 4]);
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

/// Adds two balances.
#[procedure]
fn sums(tx: &Tx, a: u64, b: u64) -> Result<(i64, i64), Abort> {
    let mut sum = 0i64;
    let first = tx.require::<Account>(a)?;
    sum += first.balance;
    let other = tx.require::<Turnover>(b)?;
    sum += other.transfers;
    let fixed = first.balance;
    Ok((sum, fixed))
}

/// The key of its second row is a sum.
#[procedure]
fn follows(tx: &Tx, a: u64) -> Result<u64, Abort> {
    let mut sum = 0u64;
    let first = tx.require::<Account>(a)?;
    sum += first.id;
    let second = tx.require::<Turnover>(sum)?;
    let third = tx.require::<Account>(3)?;
    sum += third.id;
    Ok(sum + second.id)
}

fn analysed(declaration: &Procedure) -> (Steps, Plan) {
    let schema = Schema::new([Account::definition(), Turnover::definition()]);
    (Steps::of(declaration), plan(declaration, &schema).expect("a sound procedure"))
}

/// The procedure in these pieces, of which the first is decisive.
fn pieces(procedure: &Procedure, pieces: &[&[usize]]) -> Chopped {
    let piece =
        |operations: &&[usize]| Piece { operations: operations.to_vec(), role: Role::Visible, conflicting: false };
    Chopped {
        procedure: procedure.name.clone(),
        labels: vec![String::new(); procedure.operations],
        pieces: pieces.iter().map(piece).collect(),
        decisive: Some(0),
        order: BTreeSet::new(),
        merges: Vec::new(),
        snapshot: false,
    }
}

#[test]
fn a_repair_takes_in_what_follows_and_nothing_else() {
    let followers = |declaration: &Procedure, has_runs: bool| {
        let (steps, plan) = analysed(declaration);
        steps.followers(&plan, |_| has_runs)
    };
    // Sums are computed again from kept results.
    assert_eq!(followers(&sums::declaration(), false), [[], []]);
    // Both accounts may be the same. The log has a row for each.
    let by_record = [vec![(1, Follow::Touching)], vec![], vec![]];
    assert_eq!(followers(&transfer::declaration(), false), by_record);
    assert_eq!(followers(&transfer::declaration(), true), [vec![(1, Follow::All)], vec![], vec![]]);
}

#[test]
fn steps_run_in_the_first_pass_that_has_what_they_use() {
    let declaration = sums::declaration();
    let (steps, _) = analysed(&declaration);
    // The first addition does not wait for the second one.
    assert_eq!(steps.passes(&pieces(&declaration, &[&[0], &[1]])), [0, 0, 0, 1, 1, 0, 1]);
    assert_eq!(steps.passes(&pieces(&declaration, &[&[0, 1]])), [0; 7]);
}

#[test]
fn pieces_that_would_show_run_as_one() {
    let declaration = follows::declaration();
    let (steps, _) = analysed(&declaration);
    let passes = |cut: &[&[usize]]| steps.passes(&pieces(&declaration, cut));
    // Operation 1 needs the sum before the result of operation 2 is added.
    assert_eq!(passes(&[&[0, 2], &[1]]), [0; 7]);
    assert_eq!(passes(&[&[1], &[0, 2]]), [0; 7]);
}
