//! The workloads' procedures in every way to run a procedure: straight, by the interpreter, in pieces, with repairs.

use std::collections::BTreeSet;

use seriatim::Database;
use seriatim::catalog::{ColumnSet, ColumnUse};
use seriatim::procedure::plan::Kind;
use seriatim::rng::seed;
use seriatim::test_support::{PLAIN, asked};
use seriatim_suite::replay::{Make, Recorded};
use seriatim_suite::terminals::load;
use seriatim_workload::Workload;
use seriatim_workload::articles::{self, Articles};
use seriatim_workload::five_five::{self, FiveFive};
use seriatim_workload::multi_key::{self, MultiKey};
use seriatim_workload::smallbank::{self, SmallBank};
use seriatim_workload::tatp::{self, Tatp};
use seriatim_workload::tpcc::{self, Scale, Tpcc};
use seriatim_workload::twelve_key::{self, Rounds, TwelveKey};
use seriatim_workload::ycsb::{self, Core, Shares, Ycsb};

/// Runs a workload's calls in every way; which procedures it did not call. `in_parts` are those that run in
/// more than one piece.
#[must_use]
fn every_way_but(
    name: &str,
    transactions: usize,
    in_parts: &[&str],
    make: impl Fn(u64) -> Box<dyn Workload>,
) -> BTreeSet<String> {
    let seed = seed(name);
    let make: Make<'_> = &|| make(seed);
    let recorded = Recorded::of(make, transactions, seed).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    recorded.interpreted().unwrap_or_else(|fault| panic!("{name}, interpreted: {fault}"));
    let apart = recorded.in_pieces().unwrap_or_else(|fault| panic!("{name}, in pieces: {fault}"));
    let threaded = recorded.in_pieces_side_by_side(transactions as u32 / 2);
    threaded.unwrap_or_else(|fault| panic!("{name}, in pieces, side by side: {fault}"));
    let repairs = recorded.repaired().unwrap_or_else(|fault| panic!("{name}, repaired: {fault}"));
    let disturbed = recorded.disturbed().unwrap_or_else(|fault| panic!("{name}, disturbed: {fault}"));
    eprintln!("{name}: {} calls, pieces {apart:?}, repairs {repairs:?}, {disturbed} disturbed", recorded.calls().len());
    let apart: BTreeSet<&str> = apart.into_keys().collect();
    assert_eq!(apart, BTreeSet::from_iter(in_parts.iter().copied()), "{name}");
    assert!(disturbed > 0 && repairs.values().any(|repairs| *repairs > 0), "{name}");
    recorded.never_called()
}

/// As [`every_way_but`], and calls every procedure.
fn every_way(name: &str, transactions: usize, in_parts: &[&str], make: impl Fn(u64) -> Box<dyn Workload>) {
    let never_called = every_way_but(name, transactions, in_parts, make);
    assert!(never_called.is_empty(), "{name} never calls {never_called:?}");
}

#[test]
#[ignore = "nightly: minutes"]
fn tpcc_gives_the_same_in_every_way() {
    let scale = Scale { items: 100, customers: 12, undelivered: 4, ..Scale::small(2) };
    every_way("tpcc", 200, &[], |seed| Box::new(Tpcc::new(tpcc::Options::new(scale, seed))));
}

#[test]
#[ignore = "nightly: minutes"]
fn ycsb_gives_the_same_in_every_way() {
    let shares = Shares { read: 30, read_modify_write: 25, insert: 15, scan: 0 };
    for is_ordered in [false, true] {
        for value_bytes in [50, 500] {
            for ops in [1, 6] {
                let name = format!("ycsb, ordered {is_ordered}, {value_bytes} bytes, {ops} operations");
                let shares = Shares { scan: if is_ordered { 15 } else { 0 }, ..shares };
                every_way(&name, 150, &[], |seed| {
                    let core = ycsb::Options::core(Core::A, 60, seed);
                    Box::new(Ycsb::new(ycsb::Options { ops, shares, is_ordered, value_bytes, ..core }))
                });
            }
        }
    }
}

#[test]
fn smallbank_gives_the_same_in_every_way() {
    every_way("smallbank", 200, &[], |seed| Box::new(SmallBank::new(smallbank::Options::new(20, seed))));
}

#[test]
fn tatp_gives_the_same_in_every_way() {
    let mix = [1, 3, 1, 1, 1, 5, 5];
    every_way("tatp", 300, &[], |seed| Box::new(Tatp::new(tatp::Options { mix, ..tatp::Options::new(20, seed) })));
}

#[test]
fn articles_give_the_same_in_every_way() {
    every_way("articles", 200, &[], |seed| {
        let options = articles::Options { users: 10, comments: 5, ..articles::Options::new(20, seed) };
        Box::new(Articles::new(options))
    });
}

#[test]
#[ignore = "nightly: minutes"]
fn twelve_key_gives_the_same_in_every_way() {
    let never_called = [Rounds::One, Rounds::Two].map(|rounds| {
        let options = twelve_key::Options { partitions: 2, clients: 3, multi: 50, conflict: 20, abort: 10, rounds };
        every_way_but(&format!("twelve-key, {rounds:?}"), 150, &[], |_| Box::new(TwelveKey::new(options)))
    });
    assert!(never_called[0].is_disjoint(&never_called[1]), "{never_called:?}");
}

#[test]
fn five_five_gives_the_same_in_every_way() {
    let options = five_five::Options { objects: 30, theta: 0.5 };
    every_way("five-five", 150, &[], |_| Box::new(FiveFive::new(options)));
}

#[test]
fn multi_key_gives_the_same_in_every_way() {
    let options = multi_key::Options { records: 30, theta: 0.5 };
    every_way("multi-key", 150, &[], |_| Box::new(MultiKey::new(options)));
}

#[test]
fn payment_asks_for_the_columns_that_it_reads_and_changes() {
    let seed = seed("the columns of payment");
    let scale = Scale { items: 100, customers: 12, undelivered: 4, ..Scale::small(1) };
    let workload = Tpcc::new(tpcc::Options::new(scale, seed));
    let db = load(Database::builder().protocol(PLAIN), &workload).expect("it loads");
    let (mut terminal, mut session) = (workload.terminal(&db, 0, seed).expect("it was loaded"), db.session());
    session.record_calls();
    let call = loop {
        let _ = terminal.run_one(&mut session);
        if let Some(call) = session.take_calls().into_iter().find(|call| call.procedure == "payment") {
            break call;
        }
    };
    let asked = asked(|| {
        session.call_by_name(call.procedure, &call.arguments).expect_err("its row of history is there");
    });
    let columns = |table: &str, names: &[&str]| {
        let set = db.open_dyn(table).expect("it is TPC-C's");
        names.iter().map(|name| set.definition().column(name).expect("a column")).collect::<Vec<_>>()
    };
    let of = |table: &str| {
        let updates = asked.iter().filter(|asked| asked.kind == Kind::Update && asked.table == table);
        updates.map(|asked| asked.columns).collect::<Vec<_>>()
    };
    let used = |table: &str, names: &[&str]| columns(table, names).into_iter().collect::<ColumnSet>();
    let sums = |table: &str, names: &[&str]| ColumnUse::adding(columns(table, names));
    let warehouse = used("warehouse", &["w_name", "w_street_1", "w_street_2", "w_city", "w_state", "w_zip"]);
    assert_eq!(of("warehouse"), [ColumnUse::reading(warehouse).union(sums("warehouse", &["w_ytd"]))]);
    let district = used("district", &["d_name", "d_street_1", "d_street_2", "d_city", "d_state", "d_zip"]);
    assert_eq!(of("district"), [ColumnUse::reading(district).union(sums("district", &["d_ytd"]))]);
    let [customer] = of("customer")[..] else { panic!("one customer pays: {asked:?}") };
    assert!(used("customer", &["c_balance", "c_credit", "c_data"]).is_subset(customer.used()));
    assert_eq!(customer.added, sums("customer", &["c_ytd_payment", "c_payment_cnt"]).added);
    assert!(!customer.either().intersects(used("customer", &["c_delivery_cnt"])), "that is Delivery's");
}
