//! The population has the specification's cardinalities. Every condition holds after loading and after runs, and fails
//! when it is broken on purpose.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{Missing, test_support};
use seriatim::procedure::{Declared, support};
use seriatim::rng::tries;
use seriatim::{Abort, Freshness, ReadTx, Session, TransactError, Tx, available_protocols, thread};

const SEED: u64 = 20_241_121;

fn loaded(warehouses: u16) -> (Database, Tpcc, Tables) {
    loaded_under("auto", Options::new(Scale::small(warehouses), SEED))
}

fn loaded_under(protocol: &str, options: Options) -> (Database, Tpcc, Tables) {
    let workload = Tpcc::new(options);
    let db = test_support::loaded(protocol, &workload);
    let tables = Tables::open(&db).expect("loading made the tables");
    (db, workload, tables)
}

#[track_caller]
fn assert_consistent(db: &Database, workload: &Tpcc, tables: &Tables) {
    let report = workload.consistency(db).expect("the check runs");
    assert!(report.passed(), "{report}");
    let scale = workload.options.scale;
    let whole = db.session().snapshot(|tx| check(tx, tables, scale)).expect("the check runs").into_value();
    assert!(whole.passed(), "{whole}");
    RULES.iter().for_each(|rule| assert!(whole.checked(rule.clause) > 0, "{} is never asked", rule.clause));
}

fn count<T>(rows: impl Iterator<Item = Result<T, Abort>>) -> Result<u64, Abort> {
    rows.map(|row| row.map(|_| 1)).sum()
}

#[test]
fn the_population_has_the_cardinalities_of_clause_4_3_3() {
    let (db, workload, tables) = loaded(2);
    let Scale { items, customers, undelivered, .. } = workload.options.scale;
    let mut session = db.session();
    session
        .snapshot(|tx| {
            assert_eq!(count(tx.scan(&tables.order, ..))?, u64::from(customers) * 20);
            assert_eq!(count(tx.scan(&tables.new_order, ..))?, u64::from(undelivered) * 20);
            assert_eq!(count(tx.scan(&tables.history, ..))?, u64::from(customers) * 20);
            let lines = count(tx.scan(&tables.order_line, ..))?;
            let mean = lines as f64 / f64::from(customers * 20);
            assert!((9.5..10.5).contains(&mean), "5 to 15 lines an order, 10 in the mean: {mean}");
            let mut original = 0;
            for i_id in 1..=items {
                let item = tx.get(&tables.item, &i_id)?.expect("every item");
                assert!((14..=24).contains(&item.i_name().len()) && (26..=50).contains(&item.i_data().len()));
                assert!((100..=10_000).contains(&item.i_price().units()));
                original += u32::from(item.i_data().contains("ORIGINAL"));
                let stock = tx.get(&tables.stock, &(2, i_id))?.expect("stock of every item");
                assert!((10..=100).contains(&stock.s_quantity()));
                assert!((1..=10).all(|d_id| stock.dist(d_id).len() == 24));
            }
            assert!((items / 20..items / 5).contains(&original), "a tenth is original: {original} of {items}");
            assert!(tx.get(&tables.item, &(items + 1))?.is_none() && tx.get(&tables.warehouse, &3)?.is_none());
            let mut bad = 0;
            for (d_id, c_id) in district_ids().flat_map(|d_id| (1..=customers).map(move |c_id| (d_id, c_id))) {
                let customer = tx.get(&tables.customer, &(1, d_id, c_id))?.expect("every customer");
                assert_eq!(customer.c_last(), &*last_name(c_id - 1), "the first thousand have a name each");
                assert!((300..=500).contains(&customer.c_data().len()) && customer.c_middle() == "OE");
                assert_eq!((customer.c_balance().units(), customer.c_ytd_payment().units()), (-1000, 1000));
                bad += u32::from(customer.c_credit() == "BC");
            }
            let all = customers * 10;
            assert!((all / 20..all / 5).contains(&bad), "a tenth has bad credit: {bad} of {all}");
            let mut customers_of_orders = std::collections::BTreeSet::new();
            for order in tx.prefix(&tables.order, &(1, 1)) {
                customers_of_orders.insert(order?.o_c_id());
            }
            assert_eq!(customers_of_orders.len(), customers as usize, "a permutation: every customer has one order");
            Ok(())
        })
        .expect("the population can be read");
    assert_consistent(&db, &workload, &tables);
}

#[test]
fn the_population_is_the_same_for_any_number_of_threads() {
    let load = |threads| {
        let db = Database::in_memory().expect("a database opens");
        let last = AtomicU64::new(0);
        let progress = |done, _| {
            last.fetch_max(done, Ordering::Relaxed);
        };
        let workload = Tpcc::new(Options::new(Scale::small(2), SEED));
        workload.load(&db, &Loading { threads, progress: &progress, ..Loading::default() }).expect("loading succeeds");
        assert!(last.into_inner() > 2000);
        let tables = Tables::open(&db).expect("loading made the tables");
        let rows = db.session().snapshot(|tx| {
            let mut rows = Vec::new();
            for order in tx.scan(&tables.order, ..) {
                let order = order?;
                rows.push((order.o_c_id(), order.o_ol_cnt(), order.o_carrier_id()));
            }
            let customer = tx.get(&tables.customer, &(2, 10, 30))?.expect("every customer");
            Ok((rows, customer.c_first().to_owned(), customer.c_data().to_owned()))
        });
        rows.expect("the population can be read").into_value()
    };
    assert_eq!(load(1), load(3));
}

#[test]
fn one_of_each_transaction_does_what_its_clause_says() {
    let (db, workload, tables) = loaded(2);
    let mut session = db.session();
    let line = |i_id, supply_w_id| NewOrderLine { i_id, supply_w_id, quantity: 5 };
    let mut lines = [line(1, 1); LINES_MAX];
    (lines[1], lines[2], lines[3], lines[4]) = (line(2, 2), line(3, 1), line(4, 1), line(1, 1));
    let date = seriatim::Timestamp::from_microseconds(7);
    let input = NewOrderInput { w_id: 1, d_id: 4, c_id: 9, entry_d: date, ol_cnt: 5, lines };
    let stock = |tx: &ReadTx, w_id, i_id| -> Result<(i16, u32, u32, u32), Abort> {
        let row = tx.get(&tables.stock, &(w_id, i_id))?.expect("stock");
        Ok((row.s_quantity(), row.s_ytd(), row.s_order_cnt(), row.s_remote_cnt()))
    };
    let before = session.snapshot(|tx| stock(tx, 2, 2)).expect("a read").into_value();
    let output = session.call(new_order, &input).expect("an order").into_value();
    assert_eq!((output.o_id, output.ol_cnt), (31, 5));
    let sum: i64 = output.lines[..5].iter().map(|line| line.amount.units()).sum();
    assert!(sum > 0 && output.lines[..5].iter().all(|line| line.amount.units() == line.i_price.units() * 5));
    let factor = (1.0 - output.c_discount.units() as f64 / 1e4)
        * (1.0 + (output.w_tax.units() + output.d_tax.units()) as f64 / 1e4);
    assert!((output.total_amount.units() as f64 - sum as f64 * factor).abs() <= 0.500_001);
    let after = session.snapshot(|tx| stock(tx, 2, 2)).expect("a read").into_value();
    let expected = if before.0 >= 15 { before.0 - 5 } else { before.0 + 86 };
    assert_eq!(after, (expected, 5, 1, 1), "another warehouse supplied the second line");
    assert_eq!(session.snapshot(|tx| stock(tx, 1, 1)).expect("a read").1, 10, "an item ordered twice");

    let status = OrderStatusInput { w_id: 1, d_id: 4, customer: CustomerChoice::Last(last_name(8)) };
    let shown = session.call(order_status, &status).expect("a status").into_value();
    assert_eq!((shown.c_id, shown.o_id, shown.ol_cnt, shown.o_carrier_id), (9, 31, 5, None));
    assert!((0..5).all(|n| shown.lines[n].ol_i_id == input.lines[n].i_id && shown.lines[n].ol_delivery_d.is_none()));

    let h_source = history_source(3);
    let amount = Money::from_units(7777);
    let customer = CustomerChoice::Id(9);
    let pay = PaymentInput { w_id: 2, d_id: 1, c_w_id: 1, c_d_id: 4, customer, amount, date, h_source, h_number: 0 };
    let paid = session.call(payment, &pay).expect("a payment").customer;
    assert_eq!((paid.c_id, paid.c_balance.units()), (9, -1000 - 7777));
    assert_eq!(paid.c_data.is_some(), &*paid.c_credit == "BC");
    if let Some(data) = paid.c_data {
        assert!(data.starts_with("9 4 1 1 2 77.77 | "), "{}", &*data);
    }

    let level = StockLevelInput { w_id: 1, d_id: 4, threshold: 101 };
    let all = session.call(stock_level, &level).expect("a level").into_value();
    let distinct = session.snapshot(|tx| {
        let mut items = std::collections::BTreeSet::new();
        for line in tx.scan(&tables.order_line, (1, 4, 12, 0)..(1, 4, 32, 0)) {
            items.insert(line?.ol_i_id());
        }
        Ok(items.len() as u32)
    });
    assert_eq!(all.low_stock, *distinct.expect("a scan"), "with such a threshold every item of 20 orders is low");

    let deliver = DeliveryInput { w_id: 1, carrier_id: 3, date };
    for oldest in 22..=30 {
        let output = session.call(delivery, &deliver).expect("a delivery").into_value();
        assert_eq!(output.delivered, [Some(oldest); 10]);
    }
    let output = session.call(delivery, &deliver).expect("a delivery").into_value();
    let only = |d| (d == 3).then_some(31);
    assert_eq!(output.delivered, std::array::from_fn(only), "districts without outstanding orders are skipped");
    let shown = session.call(order_status, &status).expect("a status").into_value();
    assert_eq!((shown.o_carrier_id, shown.lines[0].ol_delivery_d), (Some(3), Some(date)));
    assert_eq!(shown.c_balance.units(), -1000 - 7777 + sum);
    assert_consistent(&db, &workload, &tables);
}

#[test]
fn an_unused_item_rolls_everything_back() {
    let (db, workload, tables) = loaded(1);
    let mut session = db.session();
    let mut lines = [NewOrderLine { i_id: 1, supply_w_id: 1, quantity: 1 }; LINES_MAX];
    lines[4].i_id = workload.options.scale.items + 1;
    let entry_d = seriatim::Timestamp::from_microseconds(0);
    let input = NewOrderInput { w_id: 1, d_id: 1, c_id: 1, entry_d, ol_cnt: 5, lines };
    let error = session.call(new_order, &input).expect_err("the item is unused");
    assert!(error.user::<UnusedItem>().is_some() && !error.is_retryable());
    assert_consistent(&db, &workload, &tables);
    let ytd = session.snapshot(|tx| Ok(tx.get(&tables.stock, &(1, 1))?.map(|row| row.s_ytd())));
    assert_eq!(*ytd.expect("a read"), Some(0));
}

/// Long texts eat all memory within a transaction, then a customer of bad credit pays.
#[test]
fn a_payment_without_memory_is_no_rollback_of_the_users() {
    for protocol in available_protocols() {
        let db = Database::builder().protocol(protocol.name).memory_limit(32 << 20).open().expect("a database opens");
        let workload = Tpcc::new(Options::new(Scale::small(1), SEED));
        workload.load(&db, &Loading::default()).expect("loading succeeds");
        let tables = Tables::open(&db).expect("loading made the tables");
        let mut session = db.session();
        let bad = session.snapshot(|tx| {
            let bad = |c_id: &u32| Customer::from_row(tx, &tables, *c_id).c_credit == "BC";
            Ok((1..=workload.options.scale.customers).find(bad).expect("a tenth has bad credit"))
        });
        let customer = CustomerChoice::Id(bad.expect("a read").into_value());
        let (date, amount, h_source) =
            (seriatim::Timestamp::from_microseconds(7), Money::from_units(1), history_source(3));
        let pay =
            PaymentInput { w_id: 1, d_id: 1, c_w_id: 1, c_d_id: 1, customer, amount, date, h_source, h_number: 0 };
        let earned = |session: &mut Session| {
            let earned = session.snapshot(|tx| Ok(tx.get(&tables.warehouse, &1)?.map(|row| row.w_ytd())));
            earned.expect("reads go on").into_value()
        };
        let before = earned(&mut session);
        let text = "x".repeat(500);
        let (mut fits, handles) = (0, payment::handles(&db).expect("its tables"));
        let error = session.transact(|tx| {
            // The other writes of a payment are made once before, so that only the text lacks room.
            payment::straight(support::operations(tx), &handles, &pay, &mut None)?;
            tx.update(&tables.customer, &(1, 1, 1), |row| {
                while row.set_c_data(&text).is_ok() {
                    fits += 1;
                }
            })?;
            payment::straight(support::operations(tx), &handles, &PaymentInput { h_number: 1, ..pay }, &mut None)
        });
        let error = error.expect_err("the limit");
        assert!(matches!(error, TransactError::OutOfMemory { .. }), "{}: {error:?}", protocol.name);
        assert!(fits > 1000, "{}: {fits} texts", protocol.name);
        assert_eq!(earned(&mut session), before, "{}: nothing was paid", protocol.name);
    }
}

#[test]
fn the_middle_customer_of_a_name_pays_and_a_name_without_customers_fails() {
    let (db, _, tables) = loaded(1);
    let mut session = db.session();
    let mut more = session.snapshot(|tx| Ok(Customer::from_row(tx, &tables, 1))).expect("a read").into_value();
    session
        .transact(|tx| {
            for n in 0..200u32 {
                more.c_id = 1000 + n;
                more.c_last = seriatim::Text::literal("COMMON");
                more.c_first = seriatim::Text::new(&format!("{:08}", 199 - n)).expect("eight digits");
                tx.insert(&tables.customer, &more)?;
            }
            Ok(())
        })
        .expect("inserts");
    let pay = |last| PaymentInput {
        w_id: 1,
        d_id: 1,
        c_w_id: 1,
        c_d_id: 1,
        customer: CustomerChoice::Last(seriatim::Text::literal(last)),
        amount: Money::from_units(1),
        date: seriatim::Timestamp::from_microseconds(7),
        h_source: history_source(3),
        h_number: 0,
    };
    // By first name the n-th of 200 is 1199 - n; n = 100 counts from 1.
    assert_eq!(session.call(payment, &pay("COMMON")).expect("a payment").customer.c_id, 1100);
    let error = session.call(payment, &pay("NOBODY")).expect_err("nobody has this name");
    assert!(error.user::<Missing>().is_some());
    let nobody = OrderStatusInput { w_id: 1, d_id: 1, customer: pay("NOBODY").customer };
    assert!(session.call(order_status, &nobody).expect_err("nobody has this name").user::<Missing>().is_some());
}

impl Customer {
    fn from_row(tx: &ReadTx, tables: &Tables, c_id: u32) -> Customer {
        let row = tx.get(&tables.customer, &(1, 1, c_id)).expect("a read");
        row.expect("every customer").to_owned()
    }
}

#[test]
fn conditions_hold_after_a_concurrent_run_and_a_second_one_over_the_same_data() {
    println!("seed {SEED}");
    let decks = tries(2, 10) as u32;
    for protocol in available_protocols() {
        let (db, workload, tables) = loaded_under(protocol.name, Options::new(Scale::small(2), SEED));
        for round in 0..2 {
            let tallies = test_support::run(&db, &workload, 4, 100 * decks, SEED + round);
            let kinds: Vec<u32> = tallies.iter().map(|kind| kind.all()).collect();
            assert_eq!(kinds, [180, 172, 16, 16, 16].map(|kind| kind * decks), "full decks a terminal");
            let only_new_order = tallies[1..].iter().all(|kind| kind.rolled_back == 0);
            assert!(only_new_order && (1..60).contains(&tallies[0].rolled_back), "{}: {tallies:?}", protocol.name);
            assert_consistent(&db, &workload, &tables);
        }
    }
}

#[test]
#[ignore = "nightly: seconds"]
fn conditions_hold_when_everything_is_remote() {
    println!("seed {SEED}");
    let remote = Remote { lines: 100, payments: 100 };
    for protocol in available_protocols() {
        let options = Options { remote, ..Options::new(Scale::small(3), SEED) };
        let (db, workload, tables) = loaded_under(protocol.name, options);
        test_support::run(&db, &workload, 3, tries(150, 500) as u32, SEED);
        assert_consistent(&db, &workload, &tables);
    }
}

/// Handles of hashed tables, and procedures that were written for them, find the same rows in ordered ones.
#[test]
#[ignore = "nightly: seconds"]
fn conditions_hold_where_all_tables_are_ordered() {
    use seriatim::catalog::Organization;
    println!("seed {SEED}");
    for protocol in available_protocols() {
        let options = Options { is_ordered: true, ..Options::new(Scale::small(2), SEED) };
        let (db, workload, tables) = loaded_under(protocol.name, options);
        for name in db.table_names() {
            let table = db.open_dyn(&name).expect("it is there");
            assert_eq!(table.definition().organization, Organization::Ordered, "{name}");
        }
        let tallies = test_support::run(&db, &workload, 2, tries(100, 300) as u32, SEED);
        assert!(tallies.iter().all(|kind| kind.committed > 0), "{}: {tallies:?}", protocol.name);
        assert_consistent(&db, &workload, &tables);
    }
}

/// Every access of every transaction is one of its plan: its table, index, key, and the columns.
#[test]
#[ignore = "nightly: seconds"]
fn no_transaction_leaves_its_plan() {
    println!("seed {SEED}");
    for protocol in available_protocols() {
        let db = Database::builder().protocol(protocol.name).check_plans(true).open().expect("a database opens");
        let workload = Tpcc::new(Options::new(Scale::small(2), SEED));
        workload.load(&db, &Loading::default()).expect("loading succeeds");
        let tallies = test_support::run(&db, &workload, 2, tries(100, 200) as u32, SEED);
        assert!(tallies.iter().all(|kind| kind.committed > 0));
        assert_consistent(&db, &workload, &Tables::open(&db).expect("loading made the tables"));
    }
}

#[test]
fn snapshots_are_consistent_beside_writers() {
    println!("seed {SEED}");
    for protocol in available_protocols().iter().filter(|protocol| protocol.capabilities.snapshots != Freshness::None) {
        let (db, workload, tables) = loaded_under(protocol.name, Options::new(Scale::small(2), SEED));
        let running = AtomicBool::new(true);
        thread::scope(|scope| {
            let writers = scope.spawn(|| {
                test_support::run(&db, &workload, 2, tries(300, 2000) as u32, SEED);
                running.store(false, Ordering::Relaxed);
            });
            let (mut session, mut checks) = (db.session(), 0);
            while running.load(Ordering::Relaxed) || checks == 0 {
                let report = session.snapshot(|tx| check(tx, &tables, workload.options.scale));
                let report = report.expect("a snapshot never aborts").into_value();
                assert!(report.passed(), "{}: {report}", protocol.name);
                checks += 1;
            }
            writers.join().expect("a terminal panicked");
        });
    }
}

/// Loads, corrupts with `corrupt`, and asks that exactly `clauses` are violated.
#[track_caller]
fn canary(clauses: &[&str], corrupt: impl Fn(&Tx, &Tables) -> Result<(), Abort>) {
    let (db, workload, tables) = loaded(1);
    test_support::canary(&db, &workload, clauses, |tx| corrupt(tx, &tables));
}

const CENT: Money = Money::from_units(1);

#[test]
fn condition_1_notices_a_warehouse_that_earned_too_much() {
    canary(&["3.3.2.1", "3.3.2.8"], |tx, tables| {
        tx.update(&tables.warehouse, &1, |row| row.set_w_ytd((row.w_ytd() + CENT).expect("in range")))
    });
}

#[test]
fn condition_2_notices_a_skipped_order_number() {
    canary(&["3.3.2.2"], |tx, tables| {
        tx.update(&tables.district, &(1, 2), |row| row.set_d_next_o_id(row.d_next_o_id() + 1))
    });
}

#[test]
fn condition_3_notices_a_hole_in_the_queue() {
    canary(&["3.3.2.3", "3.3.2.5", "3.3.2.11"], |tx, tables| tx.delete(&tables.new_order, &(1, 3, 25)));
}

#[test]
fn conditions_4_and_6_notice_a_lost_line() {
    canary(&["3.3.2.4", "3.3.2.6"], |tx, tables| tx.delete(&tables.order_line, &(1, 4, 7, 5)));
}

#[test]
fn condition_5_notices_a_carrier_of_an_undelivered_order() {
    canary(&["3.3.2.5", "3.3.2.7"], |tx, tables| {
        tx.update(&tables.order, &(1, 5, 30), |row| row.set_o_carrier_id(Some(1)))
    });
}

#[test]
fn condition_6_notices_a_line_counted_at_the_wrong_order() {
    canary(&["3.3.2.6"], |tx, tables| {
        tx.update(&tables.order, &(1, 6, 1), |row| row.set_o_ol_cnt(row.o_ol_cnt() + 1))?;
        tx.update(&tables.order, &(1, 6, 2), |row| row.set_o_ol_cnt(row.o_ol_cnt() - 1))
    });
}

#[test]
fn condition_7_notices_a_line_delivered_before_its_order() {
    canary(&["3.3.2.7", "3.3.2.10", "3.3.2.12"], |tx, tables| {
        tx.update(&tables.order_line, &(1, 7, 30, 1), |row| {
            row.set_ol_delivery_d(Some(seriatim::Timestamp::from_microseconds(1)))
        })
    });
}

#[test]
fn condition_8_notices_a_payment_missing_in_history() {
    canary(&["3.3.2.8", "3.3.2.9"], |tx, tables| {
        tx.update(&tables.warehouse, &1, |row| row.set_w_ytd((row.w_ytd() + CENT).expect("in range")))?;
        tx.update(&tables.district, &(1, 8), |row| row.set_d_ytd((row.d_ytd() + CENT).expect("in range")))
    });
}

#[test]
fn condition_9_notices_a_payment_booked_in_the_wrong_district() {
    canary(&["3.3.2.9"], |tx, tables| {
        tx.update(&tables.district, &(1, 8), |row| row.set_d_ytd((row.d_ytd() + CENT).expect("in range")))?;
        tx.update(&tables.district, &(1, 9), |row| row.set_d_ytd((row.d_ytd() - CENT).expect("in range")))
    });
}

#[test]
fn condition_10_notices_a_wrong_balance() {
    canary(&["3.3.2.10"], |tx, tables| {
        tx.update(&tables.customer, &(1, 10, 3), |row| {
            row.set_c_balance((row.c_balance() + CENT).expect("in range"));
            row.set_c_ytd_payment((row.c_ytd_payment() - CENT).expect("in range"));
        })
    });
}

#[test]
fn condition_11_notices_a_counted_delivery_that_did_not_happen() {
    canary(&["3.3.2.11"], |tx, tables| {
        tx.update(&tables.customer, &(1, 1, 3), |row| row.set_c_delivery_cnt(row.c_delivery_cnt() + 1))
    });
}

#[test]
fn condition_12_notices_a_payment_that_was_not_counted() {
    canary(&["3.3.2.12"], |tx, tables| {
        tx.update(&tables.customer, &(1, 1, 3), |row| {
            row.set_c_ytd_payment((row.c_ytd_payment() + CENT).expect("in range"))
        })
    });
}

#[test]
fn counts_notice_rows_that_are_gone() {
    canary(&["counts"], |tx, tables| tx.delete(&tables.item, &7));
    canary(&["counts"], |tx, tables| tx.delete(&tables.stock, &(1, 7)));
}

#[test]
fn payments_notice_a_lost_payment_count() {
    canary(&["payments"], |tx, tables| {
        tx.update(&tables.customer, &(1, 1, 3), |row| row.set_c_payment_cnt(row.c_payment_cnt() + 1))
    });
}

#[test]
fn stock_notices_an_order_that_was_not_entered() {
    canary(&["stock 1"], |tx, tables| {
        tx.update(&tables.stock, &(1, 3), |row| row.set_s_order_cnt(row.s_order_cnt() + 1))
    });
    canary(&["stock 2"], |tx, tables| tx.update(&tables.stock, &(1, 3), |row| row.set_s_ytd(row.s_ytd() + 1)));
    canary(&["stock 3"], |tx, tables| {
        tx.update(&tables.stock, &(1, 3), |row| row.set_s_remote_cnt(row.s_remote_cnt() + 1))
    });
}

#[test]
fn all_local_notices_an_order_that_was_not() {
    canary(&["all local"], |tx, tables| {
        tx.update(&tables.order, &(1, 1, 1), |row| row.set_o_all_local(!row.o_all_local()))
    });
}
