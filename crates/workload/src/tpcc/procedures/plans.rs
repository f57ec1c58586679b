//! The plans of the five procedures and their chopping, reviewed by hand: which clause demands which access, and what a plan has
//! that no clause asks for.
//!
//! Of all plans: failures for want of a row are faults of the population, since every row that a key names here is loaded or was
//! inserted; the specification asks for one abort only, New-Order's. Partitions follow the first column of a key: that of item,
//! which would be replicated, and that of history, whose key is a surrogate, say nothing about warehouses.

use super::procedures;
use crate::tpcc::Tables;
use expect_test::{Expect, expect};
use seriatim::Database;
use seriatim::procedure::plan::Options;
use seriatim::procedure::show;

fn registered() -> Database {
    let db = Database::in_memory().expect("a database opens");
    Tables::create(&db).expect("the first");
    db.register(procedures()).expect("they are sound");
    db
}

fn check(procedure: &str, expected: &Expect) {
    let plan = registered().plan(procedure).expect("it is registered").to_string();
    expected.assert_eq(&without_places(&plan));
}

/// Lines of the source would change with every edit.
fn without_places(text: &str) -> String {
    text.lines().map(|line| line.split(" (crates").next().unwrap_or(line).to_owned() + "\n").collect()
}

// Clause 2.4.2.2, by operation:
//   #0 W_TAX. #1 D_TAX, and D_NEXT_O_ID is retrieved and incremented. #4 C_DISCOUNT, C_LAST, C_CREDIT.
//   #2, #3 a row of ORDER with the number from #1, and one of NEW-ORDER. O_ALL_LOCAL is computed from the lines.
//   #5 I_PRICE, I_NAME, I_DATA; an unused number is the rollback of 2.4.2.3, the user's abort.
//   #6 S_QUANTITY, S_DIST_xx, S_DATA; S_QUANTITY is set, S_YTD and S_ORDER_CNT grow, S_REMOTE_CNT if the line is remote.
//   #7 a row of ORDER-LINE, with OL_DIST_INFO from #6 and OL_AMOUNT from #5.
// Too much: #6 reads one S_DIST_xx, which the district's number chooses; ten are named because columns are static, and none can
// conflict, because they are immutable. #6 needs #5 only for what it yields (brand or generic), not for what it writes. The
// arithmetic on line numbers and the list of lines shown cannot fail, which the plan does not know.
// Too little: nothing. Of #6, that S_REMOTE_CNT grows only sometimes is not said, on the safe side.
#[test]
fn the_plan_of_new_order() {
    check(
        "new_order",
        &expect![[r#"
            procedure new_order
              #0 get warehouse(input.w_id), must exist
                  reads w_tax
                  key known at entry
                  partition input.w_id
              #1 update district(input.w_id, input.d_id), must exist
                  reads d_tax, d_next_o_id; writes d_next_o_id
                  key known at entry
                  partition input.w_id
                  when it changes, run again #2 #3 #7
              #2 insert orders(input.w_id, input.d_id, #1.0)
                  changes keys
                  index by_customer: changes keys
                  key from #1
                  key known after #1
                  partition input.w_id
              #3 insert new_order(input.w_id, input.d_id, #1.0)
                  changes keys
                  key from #1
                  key known after #1
                  partition input.w_id
              #4 get customer(input.w_id, input.d_id, input.c_id), must exist
                  reads c_last, c_credit, c_discount
                  key known at entry
                  partition input.w_id
              #5 get item(line.i_id), in loop 0
                  reads i_name, i_price, i_data
                  control from #5
                  key known at entry
                  partition line.i_id
                  when it changes, run again #6 #7
              #6 update stock(line.supply_w_id, line.i_id), must exist, in loop 0
                  reads s_quantity, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10, s_data; writes s_quantity; adds to s_ytd, s_order_cnt, s_remote_cnt
                  values from #5
                  control from #5
                  key known at entry
                  partition line.supply_w_id
                  when it changes, run again #7
              #7 insert order_line(input.w_id, input.d_id, #1.0, ol_number), in loop 0
                  changes keys
                  key from #1
                  values from #5 #6
                  control from #5
                  key known after #1, at loop 0
                  partition input.w_id
              loop 0 over arguments
              can fail: missing row of #0
              can fail: missing row of #1
              can fail: overflow of #1
              can fail: out of memory of #1
              can fail: duplicate key of #2
              can fail: out of memory of #2
              can fail: duplicate key of #3
              can fail: out of memory of #3
              can fail: missing row of #4
              can fail: missing row of #6
              can fail: overflow of a sum of #6
              can fail: overflow of a sum of #6
              can fail: overflow of a sum of #6
              can fail: out of memory of #6
              can fail: duplicate key of #7
              can fail: out of memory of #7
              can fail: user abort after #5
              can fail: overflow after #5
              can fail: overflow after #5
              can fail: overflow after #5
              can fail: out of bounds after #5 #6
        "#]],
    );
}

// Clause 2.5.2.2, by operation:
//   #0 W_NAME and the address; W_YTD grows. #1 D_NAME and the address; D_YTD grows.
//   #2 the customers with C_LAST, by C_FIRST; of them the one in the middle, by number.
//   #3 what the terminal shows of the customer; C_BALANCE, which is shown, falls, C_YTD_PAYMENT and C_PAYMENT_CNT grow; C_DATA is
//   read and replaced where C_CREDIT is BC.
//   #4 a row of HISTORY; H_DATA is made of W_NAME and D_NAME, so it needs #0 and #1.
// Too much: #3 names C_DATA for every customer, and says that it may not fit, as the length of a function's text is unknown; it
// is cut to its 500 characters. #2 may read C_ID of each row it finds: one is read.
// Too little: nothing. #3's key is known at entry when the input has the number, as 40 of 100 have; the plan speaks of all cases,
// and so does prefetching.
#[test]
fn the_plan_of_payment() {
    check(
        "payment",
        &expect![[r#"
            procedure payment
              #0 update warehouse(input.w_id), must exist
                  reads w_name, w_street_1, w_street_2, w_city, w_state, w_zip; adds to w_ytd
                  key known at entry
                  partition input.w_id
                  when it changes, run again #4
              #1 update district(input.w_id, input.d_id), must exist
                  reads d_name, d_street_1, d_street_2, d_city, d_state, d_zip; adds to d_ytd
                  key known at entry
                  partition input.w_id
                  when it changes, run again #4
              #2 scan customer by by_name(input.c_w_id, input.c_d_id, input.customer.Last.0), perhaps
                  reads c_id
                  index by_name: reads keys
                  key known at entry
                  partition input.c_w_id
                  when it changes, run again #3 #4
              #3 update customer(input.c_w_id, input.c_d_id, c_id), must exist
                  reads c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, c_credit, c_credit_lim, c_discount, c_balance, c_data; writes c_balance, c_data; adds to c_ytd_payment, c_payment_cnt
                  key from #2
                  values from #2
                  control from #2
                  key known after #2
                  partition input.c_w_id
              #4 insert history(input.h_id)
                  changes keys
                  values from #0 #1 #2
                  control from #2
                  key known at entry
                  partition input.h_id
              can fail: missing row of #0
              can fail: overflow of a sum of #0
              can fail: out of memory of #0
              can fail: missing row of #1
              can fail: overflow of a sum of #1
              can fail: out of memory of #1
              can fail: missing row of #3
              can fail: overflow of #3
              can fail: overflow of a sum of #3
              can fail: overflow of a sum of #3
              can fail: out of memory of #3
              can fail: duplicate key of #4
              can fail: out of memory of #4
              can fail: user abort after #2
              can fail: out of bounds after #2
        "#]],
    );
}

// Clause 2.6.2.2, by operation:
//   #0 or #1 C_BALANCE, C_FIRST, C_MIDDLE, C_LAST, by number or by name as in Payment. C_ID is shown (2.6.3.3).
//   #2 of the customer's orders the one with the largest O_ID: O_ID, O_ENTRY_D, O_CARRIER_ID.
//   #3 its lines: OL_I_ID, OL_SUPPLY_W_ID, OL_QUANTITY, OL_AMOUNT, OL_DELIVERY_D.
// Too much: #1 may read C_BALANCE of each row it finds, and reads that of one; fetching that one again by number would say so and
// cost an access. #2 takes the first row in descending order, and its range is all of the customer's orders. "Control from #1" is
// the name that nobody has.
// Too little: nothing.
#[test]
fn the_plan_of_order_status() {
    check(
        "order_status",
        &expect![[r#"
            procedure order_status (read only)
              #0 get customer(input.w_id, input.d_id, input.customer.Id.0), must exist, perhaps
                  reads c_id, c_first, c_middle, c_last, c_balance
                  key known at entry
                  partition input.w_id
                  when it changes, run again #2 #3
              #1 scan customer by by_name(input.w_id, input.d_id, input.customer.Last.0), perhaps
                  reads c_id, c_first, c_middle, c_last, c_balance
                  index by_name: reads keys
                  key known at entry
                  partition input.w_id
                  when it changes, run again #2 #3
              #2 scan orders by by_customer(input.w_id, input.d_id, customer.c_id)
                  reads o_id, o_entry_d, o_carrier_id
                  index by_customer: reads keys
                  key from #0 #1
                  control from #1
                  key known after #0 #1
                  partition input.w_id
                  when it changes, run again #3
              #3 scan order_line(input.w_id, input.d_id, #2.o_id)
                  reads ol_i_id, ol_supply_w_id, ol_delivery_d, ol_quantity, ol_amount
                  key from #2
                  control from #1 #2
                  key known after #2
                  partition input.w_id
              loop 0 over the rows of #3
              can fail: missing row of #0
              can fail: user abort after #1
              can fail: out of bounds after #1
              can fail: user abort after #1 #2
              can fail: overflow after #1 #2 #3
              can fail: out of bounds after #1 #2 #3
        "#]],
    );
}

// Clause 2.7.4.2, for each of ten districts, by operation:
//   #0 the row of NEW-ORDER with the lowest NO_O_ID; none is no failure. #1 it is deleted.
//   #2 O_C_ID is retrieved, O_CARRIER_ID set. #3 every line's OL_DELIVERY_D is set, OL_AMOUNT summed.
//   #4 C_BALANCE grows by the sum, C_DELIVERY_CNT by one.
// Too much: #2 reads O_OL_CNT, which the clause does not, because lines are reached by number instead of by a scan. #0's range is
// the whole queue of the district; it stops at the first row.
// Too little: that #2's key is the one #1 deletes. The order's number goes through a list, of which the plan knows where it comes
// from (#0) and not that it is the same; see the optimized chopping.
#[test]
fn the_plan_of_delivery() {
    check(
        "delivery",
        &expect![[r#"
            procedure delivery
              #0 scan new_order(input.w_id, d_id), in loop 0
                  reads no_o_id
                  rows perhaps from #1
                  key known at entry
                  partition input.w_id
                  when it changes, run again #1 #2 #3 #4
              #1 delete new_order(input.w_id, d_id, #0.no_o_id), must exist, in loop 0, perhaps
                  changes keys
                  key from #0
                  control from #0
                  rows perhaps from #0
                  key known after #0
                  partition input.w_id
                  when it changes, run again #0 #2 #3 #4
              #2 update orders(input.w_id, d_id, o_id), must exist, in loop 1, perhaps
                  reads o_c_id, o_ol_cnt; writes o_carrier_id
                  key from #0
                  control from #0
                  key known after #0, at loop 1
                  partition input.w_id
                  when it changes, run again #3 #4
              #3 update order_line(input.w_id, due.d_id, due.o_id, ol_number), must exist, in loop 2, in loop 3, perhaps
                  reads ol_amount; writes ol_delivery_d
                  key from #0 #2
                  control from #0 #2
                  key known after #0 #2, at loop 2
                  partition input.w_id
                  when it changes, run again #4
              #4 update customer(input.w_id, due.d_id, due.c_id), must exist, in loop 2, perhaps
                  adds to c_balance, c_delivery_cnt
                  key from #0 #2
                  values from #0 #2 #3
                  control from #0 #2
                  key known after #0 #2, at loop 2
                  partition input.w_id
              loop 0 over arguments
              loop 1 over results of #0
              loop 2 over results of #0 #2
              loop 3 in loop 2 over results of #0 #2
              can fail: missing row of #1
              can fail: missing row of #2
              can fail: out of memory of #2
              can fail: missing row of #3
              can fail: out of memory of #3
              can fail: missing row of #4
              can fail: overflow of a sum of #4
              can fail: overflow of a sum of #4
              can fail: out of memory of #4
              can fail: overflow after #0
              can fail: overflow after #0
              can fail: out of bounds after #0
              can fail: out of bounds after #0 #2
              can fail: overflow after #0 #2 #3
        "#]],
    );
}

// Clause 2.8.2.2, by operation:
//   #0 D_NEXT_O_ID. #1 OL_I_ID of the lines of the 20 orders before it. #2 S_QUANTITY of each different item.
// Too much: overflow and bounds of the counters and of the table of items, which cannot happen with 15 lines an order.
// Too little: of #1's range the plan knows warehouse and district only, and not that #2 visits an item once.
#[test]
fn the_plan_of_stock_level() {
    check(
        "stock_level",
        &expect![[r#"
            procedure stock_level (read only)
              #0 get district(input.w_id, input.d_id), must exist
                  reads d_next_o_id
                  key known at entry
                  partition input.w_id
                  when it changes, run again #1 #2
              #1 scan order_line(input.w_id, input.d_id)
                  reads ol_i_id
                  key from #0
                  key known after #0
                  partition input.w_id
                  when it changes, run again #2
              #2 get stock(input.w_id, (…)), must exist, in loop 1
                  reads s_quantity
                  key from #1
                  control from #1
                  key known after #1, at loop 1
                  partition input.w_id
              loop 0 over the rows of #1
              loop 1 over results of #1
              can fail: missing row of #0
              can fail: missing row of #2
              can fail: out of bounds of #2
              can fail: overflow after #1
              can fail: out of bounds after #1
              can fail: out of bounds after #1
              can fail: out of bounds after #1
              can fail: overflow after #1 #2
        "#]],
    );
}

// As docs/chopping-tpcc.md derives it, but for Order-Status: there the customer's row is fetched by number after the search by name,
// and the search is a piece of its own; here the row is the one that was found, which saves an access and puts C_BALANCE into the
// search. The C-edges are those of the table there, edge by edge; Order-Status has its customer twice (#0, #1).
#[test]
fn the_default_chopping() {
    expect![[r#"
        chopped with reordering, commutativity, headroom, reserved memory

        delivery: 1 piece
          0 decisive, conflicting: 0 scan new_order | 1 delete new_order | 2 update orders | 3 update order_line | 4 update customer
          merged #0 and #1: a loop carries the order of #0 and #1, which meet in one table, into the next iteration
          merged #0 and #2: SC-cycle delivery #0 –C new_order (keys)– delivery #1 –S– #2 –C orders (o_carrier_id)– #2 –S–
          merged #0 and #3: SC-cycle delivery #0 –C new_order (keys)– delivery #1 –S– #3 –C order_line (ol_delivery_d)– #3 –S–
          merged #0 and #4: SC-cycle delivery #0 –C new_order (keys)– delivery #1 –C new_order (keys)– second #0 –S– second #4 –C customer (c_balance)– order_status #0 –C customer (c_balance)– #4 –S–

        new_order: 4 pieces
          0 buffered: 0 get warehouse
          1 buffered: 4 get customer
          2 buffered: 5 get item
          3 decisive, conflicting: 1 update district | 2 insert orders | 3 insert new_order | 6 update stock | 7 insert order_line
          merged #1 and #2: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #2 –C orders (keys)– #2 –S–
          merged #1 and #3: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #3 –C new_order (keys)– #3 –S–
          merged #1 and #6: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #6 –C stock (s_quantity)– #6 –S–
          merged #1 and #7: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #7 –C order_line (keys)– #7 –S–

        order_status: 1 piece
          0 decisive, conflicting: 0 get customer | 1 scan customer by by_name | 2 scan orders by by_customer | 3 scan order_line
          merged #0 and #1: SC-cycle order_status #0 –C customer (c_balance)– delivery #4 –C customer (c_balance)– #1 –S–
          merged #0 and #2: SC-cycle order_status #0 –C customer (c_balance)– delivery #4 –S– #2 –C orders (o_carrier_id)– #2 –S–
          merged #0 and #3: SC-cycle order_status #0 –C customer (c_balance)– delivery #4 –S– #3 –C order_line (ol_delivery_d)– #3 –S–

        payment: 4 pieces
          0 buffered: 0 update warehouse
          1 buffered: 1 update district
          2 buffered: 2 scan customer by by_name
          3 decisive, conflicting: 3 update customer | 4 insert history
          merged #3 and #4: SC-cycle payment #3 –C customer (c_balance, c_data)– payment #3 –S– #4 –C history (keys)– #4 –S–

        stock_level: 1 piece
          0 decisive, conflicting: 0 get district | 1 scan order_line | 2 get stock
          merged #0 and #1: SC-cycle stock_level #0 –C district (d_next_o_id)– new_order #1 –S– #7 –C order_line (keys)– #1 –S–
          merged #0 and #2: SC-cycle stock_level #0 –C district (d_next_o_id)– new_order #1 –S– #6 –C stock (s_quantity)– #2 –S–

        C-edges, between any two instances
          delivery #0 – delivery #1: new_order (keys)
          delivery #0 – new_order #3: new_order (keys)
          delivery #1 – delivery #1: new_order (keys)
          delivery #1 – new_order #3: new_order (keys)
          delivery #2 – delivery #2: orders (o_carrier_id)
          delivery #2 – new_order #2: orders (keys)
          delivery #2 – order_status #2: orders (o_carrier_id)
          delivery #3 – delivery #3: order_line (ol_delivery_d)
          delivery #3 – new_order #7: order_line (keys)
          delivery #3 – order_status #3: order_line (ol_delivery_d)
          delivery #4 – order_status #0: customer (c_balance)
          delivery #4 – order_status #1: customer (c_balance)
          delivery #4 – payment #3: customer (c_balance)
          new_order #1 – new_order #1: district (d_next_o_id)
          new_order #1 – stock_level #0: district (d_next_o_id)
          new_order #2 – new_order #2: orders (keys); orders.by_customer (keys)
          new_order #2 – order_status #2: orders (keys); orders.by_customer (keys)
          new_order #3 – new_order #3: new_order (keys)
          new_order #6 – new_order #6: stock (s_quantity)
          new_order #6 – stock_level #2: stock (s_quantity)
          new_order #7 – new_order #7: order_line (keys)
          new_order #7 – order_status #3: order_line (keys)
          new_order #7 – stock_level #1: order_line (keys)
          order_status #0 – payment #3: customer (c_balance)
          order_status #1 – payment #3: customer (c_balance)
          payment #3 – payment #3: customer (c_balance, c_data)
          payment #4 – payment #4: history (keys)

        the engine sees to it that
          memory for all writes is reserved when an execution begins
          sums keep room: customer.c_payment_cnt, customer.c_ytd_payment, district.d_ytd, stock.s_order_cnt, stock.s_remote_cnt, stock.s_ytd, warehouse.w_ytd
    "#]].assert_eq(&without_places(&show::text(&registered().chopping(Options::DEFAULT).expect("a set"))));
}

// As docs/chopping-tpcc.md derives it for a Delivery that requires its rows: one piece, and no deferral, because a missing customer
// could not be reported later. That Delivery goes step by step through lists has a price here: nothing is claimed of its orders and
// lines, whose keys are those taken from the queue. It would cost pieces in a Delivery that passes over missing rows.
#[test]
fn the_optimized_chopping() {
    expect![[r#"
        chopped with snapshots, reordering, commutativity, deferral, static tables, claims, headroom, reserved memory

        delivery: 1 piece
          0 decisive, conflicting: 0 scan new_order | 1 delete new_order | 2 update orders | 3 update order_line | 4 update customer
          merged #0 and #1: a loop carries the order of #0 and #1, which meet in one table, into the next iteration
          merged #0 and #2: SC-cycle delivery #0 –C new_order (keys)– delivery #1 –S– #2 –C orders (o_carrier_id)– #2 –S–
          merged #0 and #3: SC-cycle delivery #0 –C new_order (keys)– delivery #1 –S– #3 –C order_line (ol_delivery_d)– #3 –S–
          merged #0 and #4: SC-cycle delivery #0 –C new_order (keys)– delivery #1 –C new_order (keys)– second #0 –S– second #4 –C customer (c_balance)– payment #3 –C customer (c_balance)– #4 –S–

        new_order: 4 pieces
          0 buffered: 0 get warehouse
          1 buffered: 4 get customer
          2 buffered: 5 get item
          3 decisive, conflicting: 1 update district | 2 insert orders | 3 insert new_order | 6 update stock | 7 insert order_line
          merged #1 and #2: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #2 –C orders (keys)– #2 –S–
          merged #1 and #3: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #3 –C new_order (keys)– #3 –S–
          merged #1 and #6: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #6 –C stock (s_quantity)– #6 –S–
          merged #1 and #7: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #7 –C order_line (keys)– #7 –S–

        order_status: read only, on a snapshot

        payment: 4 pieces
          0 buffered: 0 update warehouse
          1 buffered: 1 update district
          2 buffered: 2 scan customer by by_name
          3 decisive, conflicting: 3 update customer | 4 insert history
          merged #3 and #4: SC-cycle payment #3 –C customer (c_balance, c_data)– payment #3 –S– #4 –C history (keys)– #4 –S–

        stock_level: read only, on a snapshot

        C-edges, between any two instances
          delivery #0 – delivery #1: new_order (keys)
          delivery #0 – new_order #3: new_order (keys)
          delivery #1 – delivery #1: new_order (keys)
          delivery #1 – new_order #3: new_order (keys)
          delivery #2 – delivery #2: orders (o_carrier_id)
          delivery #2 – new_order #2: orders (keys)
          delivery #3 – delivery #3: order_line (ol_delivery_d)
          delivery #3 – new_order #7: order_line (keys)
          delivery #4 – payment #3: customer (c_balance)
          new_order #1 – new_order #1: district (d_next_o_id)
          new_order #2 – new_order #2: orders (keys); orders.by_customer (keys)
          new_order #3 – new_order #3: new_order (keys)
          new_order #6 – new_order #6: stock (s_quantity)
          new_order #7 – new_order #7: order_line (keys)
          payment #3 – payment #3: customer (c_balance, c_data)
          payment #4 – payment #4: history (keys)

        publish–subscribe
          not delivery #4: it can fail when it is published: missing row
          not new_order #6: it does not only add to columns
          not payment #3: it does not only add to columns

        static: customer, customer.by_name, district, item, stock, warehouse

        the engine sees to it that
          memory for all writes is reserved when an execution begins
          sums keep room: customer.c_payment_cnt, customer.c_ytd_payment, district.d_ytd, stock.s_order_cnt, stock.s_remote_cnt, stock.s_ytd, warehouse.w_ytd
    "#]].assert_eq(&without_places(&show::text(&registered().chopping(Options::OPTIMIZED).expect("a set"))));
}
