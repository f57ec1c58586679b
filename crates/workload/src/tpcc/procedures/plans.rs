//! The plans of the five procedures and their chopping, reviewed by hand. The review says which clause demands which
//! access, and which entries of a plan no clause asks for.
//!
//! Of all plans: failures because a row is missing are faults of the population. Every row that a key names here is
//! loaded or was inserted. The specification asks for one abort only, New-Order's. Partitions follow the first column
//! of a key. That of item, which would be replicated, and that of history, whose key is a surrogate, say nothing about
//! warehouses.

use super::procedures;
use crate::tpcc::Tables;
use expect_test::{ExpectFile, expect_file};
use seriatim::Database;
use seriatim::procedure::plan::Options;
use seriatim::procedure::show;

fn registered() -> Database {
    let db = Database::in_memory().expect("a database opens");
    Tables::create(&db).expect("the first");
    db.register(procedures()).expect("they are sound");
    db
}

fn check(procedure: &str, expected: &ExpectFile) {
    let plan = registered().plan(procedure).expect("it is registered").to_string();
    expected.assert_eq(&without_places(&plan));
}

/// Lines of the source would change with every edit.
fn without_places(text: &str) -> String {
    text.lines().map(|line| line.split(" (crates").next().unwrap_or(line).to_owned() + "\n").collect()
}

// Clause 2.4.2.2, by operation: #0 W_TAX. #1 D_TAX, and D_NEXT_O_ID is retrieved and incremented. #4
// C_DISCOUNT, C_LAST, C_CREDIT. #2, #3 a row of ORDER with the number from #1, and one of NEW-ORDER.
// O_ALL_LOCAL is computed from the lines. #5 I_PRICE, I_NAME, I_DATA; an unused number is the rollback of
// 2.4.2.3, the user's abort. #6 S_QUANTITY, S_DIST_xx, S_DATA; S_QUANTITY is set, S_YTD and S_ORDER_CNT grow,
// S_REMOTE_CNT if the line is remote. #7 a row of ORDER-LINE, with OL_DIST_INFO from #6 and OL_AMOUNT from
// #5. Too much: #6 reads one S_DIST_xx, which the district's number chooses; ten are named because columns
// are static, and none can conflict, because they are immutable. #6 needs #5 only for what it yields (brand or
// generic), not for what it writes. The arithmetic on line numbers and the list of lines shown cannot fail, which the
// plan does not know. Too little: nothing. Of #6, that S_REMOTE_CNT grows only sometimes is not said, on the safe side.
#[test]
fn the_plan_of_new_order() {
    check("new_order", &expect_file!["plans/the_plan_of_new_order.txt"]);
}

// Clause 2.5.2.2, by operation: #0 W_NAME and the address; W_YTD grows. #1 D_NAME and the address; D_YTD grows. #2 the
// customers with C_LAST, by C_FIRST; of them the one in the middle, by number. #3 what the terminal shows of the
// customer; C_BALANCE, which is shown, falls, C_YTD_PAYMENT and C_PAYMENT_CNT grow; C_DATA is read and replaced where
// C_CREDIT is BC. #4 a row of HISTORY; H_DATA is made of W_NAME and D_NAME, so it needs #0 and #1. Too much: #3 names
// C_DATA for every customer. It says that the text may not fit, as the length of a function's text is unknown. It is
// cut to its 500 characters. #2 may read C_ID of each row it finds: one is read. Too little: nothing. #3's key is known
// at entry when the input has the number, as 40 of 100 have; the plan speaks of all cases, and so does prefetching.
#[test]
fn the_plan_of_payment() {
    check("payment", &expect_file!["plans/the_plan_of_payment.txt"]);
}

// Clause 2.6.2.2, by operation: #0 or #1 C_BALANCE, C_FIRST, C_MIDDLE, C_LAST, by number or by name as in
// Payment. C_ID is shown (2.6.3.3). #2 of the customer's orders the one with the largest O_ID: O_ID,
// O_ENTRY_D, O_CARRIER_ID. #3 its lines: OL_I_ID, OL_SUPPLY_W_ID, OL_QUANTITY, OL_AMOUNT, OL_DELIVERY_D. Too
// much: #1 may read C_BALANCE of each row that it finds, and reads that of one. Fetching that one again by number would
// say so and cost an access. #2 takes the first row in descending order, and its range is all of the customer's orders.
// "Control from #1" is a name that no customer has. Too little: nothing.
#[test]
fn the_plan_of_order_status() {
    check("order_status", &expect_file!["plans/the_plan_of_order_status.txt"]);
}

// Clause 2.7.4.2, for each of ten districts, by operation: #0 the row of NEW-ORDER with the lowest NO_O_ID;
// none is no failure. #1 it is deleted. #2 O_C_ID is retrieved, O_CARRIER_ID set. #3 every line's
// OL_DELIVERY_D is set, OL_AMOUNT summed. #4 C_BALANCE grows by the sum, C_DELIVERY_CNT by one. Too much: #2
// reads O_OL_CNT, which the clause does not, because lines are reached by number instead of by a scan. #0's
// range is the whole queue of the district; it stops at the first row. Too little: that #2's key is the one
// #1 deletes. The order's number goes through a list, of which the plan knows where it comes from (#0) and
// not that it is the same; see the optimized chopping.
#[test]
fn the_plan_of_delivery() {
    check("delivery", &expect_file!["plans/the_plan_of_delivery.txt"]);
}

// Clause 2.8.2.2, by operation:
//   #0 D_NEXT_O_ID. #1 OL_I_ID of the lines of the 20 orders before it. #2 S_QUANTITY of each different item.
// Too much: overflow and bounds of the counters and of the table of items, which cannot happen with 15 lines an order.
// Too little: of #1's range the plan knows warehouse and district only, and not that #2 visits an item once.
#[test]
fn the_plan_of_stock_level() {
    check("stock_level", &expect_file!["plans/the_plan_of_stock_level.txt"]);
}

// As docs/chopping-tpcc.md derives it, but for Order-Status. There the customer's row is fetched by number after the
// search by name, and the search is a piece of its own. Here the row is the one that was found. That saves an access
// and puts C_BALANCE into the search. The C-edges are those of the table there, edge by edge; Order-Status has its
// customer twice (#0, #1).
#[test]
fn the_default_chopping() {
    expect_file!["plans/the_default_chopping.txt"]
        .assert_eq(&without_places(&show::text(&registered().chopping(Options::DEFAULT).expect("a set"))));
}

// As docs/chopping-tpcc.md derives it for a Delivery that requires its rows: one piece, and no deferral, because a
// missing customer could not be reported later. Delivery goes step by step through lists, which has a price here.
// Nothing is claimed of its orders and lines, whose keys are those taken from the queue. It would cost pieces in a
// Delivery that passes over missing rows. dbx-tc runs it whole, and may nevertheless publish its additions to customers
// later.
#[test]
fn the_optimized_chopping() {
    expect_file!["plans/the_optimized_chopping.txt"]
        .assert_eq(&without_places(&show::text(&registered().chopping(Options::OPTIMIZED).expect("a set"))));
}
