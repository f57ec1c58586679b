//! Every transaction follows the paper, money is kept under every protocol, and every rule of the check detects
//! a violation.

use super::*;
use crate::Ending;
use crate::test_support::{self, assert_consistent};
use seriatim::{Abort, TransactError, Tx, available_protocols};

const SEED: u64 = 20_080_407;

fn loaded(protocol: &str, options: Options) -> (Database, SmallBank, Tables) {
    let workload = SmallBank::new(options);
    let db = test_support::loaded(protocol, &workload);
    let tables = Tables::open(&db).expect("loading made the tables");
    (db, workload, tables)
}

/// Customers 0, 1, … with these cents of savings and checking.
fn with_balances(balances: &[(i64, i64)]) -> (Database, Tables) {
    let (db, _, tables) = loaded("auto", Options::new(balances.len() as u64, SEED));
    let set = |tx: &Tx| {
        for (customer, &(savings, checking)) in (0..).zip(balances) {
            tx.update(&tables.savings, &customer, |row| row.set_balance(Money::from_units(savings)))?;
            tx.update(&tables.checking, &customer, |row| row.set_balance(Money::from_units(checking)))?;
        }
        Ok(())
    };
    db.session().transact(set).expect("the balances are set");
    (db, tables)
}

#[track_caller]
fn assert_balances(db: &Database, tables: &Tables, wanted: &[(i64, i64)]) {
    let found = db.session().snapshot(|tx| {
        let mut found = Vec::new();
        for customer in 0..wanted.len() as u64 {
            let savings = tx.get(&tables.savings, &customer)?.expect("every customer").balance().units();
            found.push((savings, tx.get(&tables.checking, &customer)?.expect("every customer").balance().units()));
        }
        Ok(found)
    });
    assert_eq!(*found.expect("a read"), wanted);
}

#[track_caller]
fn assert_insufficient<R: std::fmt::Debug>(result: Result<R, TransactError>) {
    let error = result.expect_err("the funds are insufficient");
    assert!(error.user::<InsufficientFunds>().is_some(), "{error}");
}

const fn money(cents: i64) -> Money {
    Money::from_units(cents)
}

#[test]
fn balances_add_up_and_deposits_and_savings_change_them() {
    let (db, tables) = with_balances(&[(10_00, 5_00), (1_00, -3_00)]);
    let mut session = db.session();
    let total = session.call(balance, &BalanceInput { name: name(1) });
    assert_eq!(*total.expect("a balance"), money(-2_00));
    let deposit = DepositCheckingInput { name: name(1), amount: money(1_30) };
    session.call(deposit_checking, &deposit).expect("a deposit");
    assert_balances(&db, &tables, &[(10_00, 5_00), (1_00, -1_70)]);
    let mut save = |cents| {
        let input = TransactSavingsInput { name: name(0), amount: money(cents) };
        session.call(transact_savings, &input)
    };
    save(-10_00).expect("savings may become zero");
    assert_insufficient(save(-1));
    save(20_20).expect("a deposit");
    assert_balances(&db, &tables, &[(20_20, 5_00), (1_00, -1_70)]);
}

#[test]
fn amalgamate_moves_everything() {
    let (db, tables) = with_balances(&[(10_00, 5_00), (1_00, -3_00)]);
    let mut session = db.session();
    let mut merge = |from, to| {
        let input = AmalgamateInput { from: name(from), to: name(to) };
        session.call(amalgamate, &input).expect("it always works").into_value()
    };
    assert_eq!(merge(0, 1), AmalgamateOutput { savings: money(10_00), checking: money(5_00) });
    assert_balances(&db, &tables, &[(0, 0), (1_00, 12_00)]);
    merge(1, 0);
    assert_balances(&db, &tables, &[(0, 13_00), (0, 0)]);
}

#[test]
fn checks_beyond_both_accounts_cost_a_penalty() {
    let (db, tables) = with_balances(&[(3_00, 2_00), (0, 0)]);
    let mut session = db.session();
    let mut write = |cents| {
        let input = WriteCheckInput { name: name(0), amount: money(cents) };
        session.call(write_check, &input).expect("it always works").into_value()
    };
    assert_eq!(write(5_00), money(5_00), "savings cover it");
    assert_balances(&db, &tables, &[(3_00, -3_00), (0, 0)]);
    assert_eq!(write(1), money(1_01));
    assert_balances(&db, &tables, &[(3_00, -4_01), (0, 0)]);
}

#[test]
fn payments_move_what_is_there() {
    let (db, tables) = with_balances(&[(9_00, 5_00), (0, 1_00)]);
    let mut session = db.session();
    let mut pay = || {
        let input = SendPaymentInput { from: name(0), to: name(1), amount: money(5_00) };
        session.call(send_payment, &input)
    };
    pay().expect("the account holds as much");
    assert_balances(&db, &tables, &[(9_00, 0), (0, 6_00)]);
    assert_insufficient(pay());
    assert_balances(&db, &tables, &[(9_00, 0), (0, 6_00)]);
}

#[test]
fn unknown_customers_fail_and_do_not_count_as_rollbacks() {
    let (db, ..) = loaded("auto", Options::new(2, SEED));
    let error = db.session().call(balance, &BalanceInput { name: name(2) });
    let error = error.expect_err("there are two customers");
    assert!(matches!(error, TransactError::MissingRow { .. }), "{error}");
    assert!(matches!(Ending::of::<InsufficientFunds>(error), Ending::Failed(_)));
}

#[test]
#[ignore = "nightly: seconds"]
fn money_is_kept_under_every_protocol_and_distribution() {
    let hotspot = Keys::Hotspot { size: 3, percent: 90 };
    for keys in [Keys::Uniform, hotspot, Keys::Zipfian { theta: 0.9 }] {
        for protocol in available_protocols() {
            let (db, workload, _) = loaded(protocol.name, Options { keys, ..Options::new(40, SEED) });
            let tallies = test_support::run(&db, &workload, 3, 800, SEED);
            let kinds: Vec<u32> = tallies.iter().map(|kind| kind.all()).collect();
            assert_eq!(kinds, [360, 360, 360, 360, 360, 600], "eight full decks a terminal");
            let may_refuse = |kind: usize| matches!(KINDS[kind], "transact_savings" | "send_payment");
            assert!((0..KINDS.len()).all(|kind| may_refuse(kind) || tallies[kind].rolled_back == 0), "{tallies:?}");
            let are_refused = tallies[2].rolled_back > 0 && tallies[5].rolled_back > 0;
            assert!(are_refused, "amalgamated customers have nothing: {tallies:?}");
            assert_consistent(&db, &workload);
        }
    }
}

/// Corrupts a small bank after a run and asks that exactly `clauses` are violated.
#[track_caller]
fn canary(clauses: &[&str], corrupt: impl Fn(&Tx, &Tables) -> Result<(), Abort>) {
    let (db, workload, tables) = loaded("auto", Options::new(30, SEED));
    test_support::run(&db, &workload, 1, 200, SEED);
    test_support::canary(&db, &workload, clauses, |tx| corrupt(tx, &tables));
}

#[test]
fn a_lost_update_of_a_balance_is_noticed() {
    canary(&["total"], |tx, tables| {
        tx.update(&tables.checking, &7, |row| row.set_balance((row.balance() - money(1)).expect("in range")))
    });
    canary(&["total", "savings"], |tx, tables| {
        tx.update(&tables.savings, &7, |row| row.set_balance((row.balance() + money(1)).expect("in range")))
    });
}

#[test]
fn money_moved_out_of_savings_unbooked_is_noticed() {
    canary(&["savings"], |tx, tables| {
        tx.update(&tables.savings, &7, |row| row.set_balance((row.balance() + money(1)).expect("in range")))?;
        tx.update(&tables.checking, &9, |row| row.set_balance((row.balance() - money(1)).expect("in range")))
    });
}

#[test]
fn negative_savings_are_noticed() {
    canary(&["solvent"], |tx, tables| {
        let all = tx.update(&tables.savings, &7, |row| {
            let all = row.balance();
            row.set_balance(money(-1));
            all
        })?;
        tx.update(&tables.savings, &8, |row| row.set_balance((row.balance() + all + money(1)).expect("in range")))
    });
}

#[test]
fn rows_too_few_or_too_many_are_noticed() {
    let nobody = |customer| Checking { customer, balance: Money::ZERO };
    canary(&["rows"], |tx, tables| tx.insert(&tables.checking, &nobody(30)));
    canary(&["rows"], |tx, tables| tx.delete(&tables.accounts, &name(4)));
    canary(&["total", "savings", "rows"], |tx, tables| {
        for customer in 0..30 {
            let savings = tx.get(&tables.savings, &customer)?.map(|row| row.balance());
            if savings.is_some_and(|savings| savings > Money::ZERO) {
                return tx.delete(&tables.savings, &customer);
            }
        }
        panic!("somebody has savings")
    });
}

#[test]
fn a_name_that_leads_to_another_customer_is_noticed() {
    canary(&["names"], |tx, tables| tx.update(&tables.accounts, &name(4), |row| row.set_customer(5)));
}
