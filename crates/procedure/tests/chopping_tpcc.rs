//! TPC-C chopped as the paper has it: the default graph (DBX-TC Figure 10) and the optimized one (Figure 11).
//!
//! Written by hand, where the procedures that are registered differ (`docs/chopping-tpcc.md`); their plans and pieces are
//! snapshots beside them.

mod support;

use expect_test::expect;
use seriatim_plan::{Chopping, Options, Plan};
use seriatim_procedure::analysis::{chop, plan};
use seriatim_procedure::ir::Procedure;
use seriatim_procedure::show;
use support::tpcc;

fn plans(procedures: &[Procedure]) -> Vec<Plan> {
    procedures.iter().map(|procedure| plan(procedure, &tpcc::schema()).expect("accepted")).collect()
}

fn chopped(procedures: &[Procedure], options: Options) -> Chopping {
    chop(&plans(procedures), options).expect("a set")
}

#[test]
fn the_default_graph() {
    expect![[r#"
        chopped with reordering, commutativity, headroom, reserved memory

        delivery: 1 piece
          0 decisive, conflicting: 0 scan new_order | 1 delete new_order | 2 update orders | 3 update order_line | 4 update customer
          merged #0 and #1: a loop carries the order of #0 and #1, which meet in one table, into the next iteration
          merged #0 and #2: SC-cycle delivery #0 –C new_order (keys)– delivery #1 –S– #2 –C orders (o_carrier_id)– #2 –S–
          merged #0 and #3: SC-cycle delivery #0 –C new_order (keys)– delivery #1 –S– #3 –C order_line (ol_delivery_d)– #3 –S–
          merged #0 and #4: SC-cycle delivery #0 –C new_order (keys)– delivery #1 –C new_order (keys)– second #0 –S– second #4 –C customer (c_balance)– order_status #1 –C customer (c_balance)– #4 –S–

        new_order: 4 pieces
          0 buffered: 0 get warehouse
          1 buffered: 4 get customer
          2 buffered: 5 get item
          3 decisive, conflicting: 1 update district | 2 insert orders | 3 insert new_order | 6 update stock | 7 insert order_line
          merged #1 and #2: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #2 –C orders (keys)– #2 –S–
          merged #1 and #3: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #3 –C new_order (keys)– #3 –S–
          merged #1 and #6: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #6 –C stock (s_quantity)– #6 –S–
          merged #1 and #7: SC-cycle new_order #1 –C district (d_next_o_id)– new_order #1 –S– #7 –C order_line (keys)– #7 –S–

        order_status: 2 pieces
          0 buffered: 0 scan customer by by_name
          1 decisive, conflicting: 1 get customer | 2 scan orders by by_customer | 3 scan order_line
          merged #1 and #2: SC-cycle order_status #1 –C customer (c_balance)– delivery #4 –S– #2 –C orders (o_carrier_id)– #2 –S–
          merged #1 and #3: SC-cycle order_status #1 –C customer (c_balance)– delivery #4 –S– #3 –C order_line (ol_delivery_d)– #3 –S–

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
          order_status #1 – payment #3: customer (c_balance)
          payment #3 – payment #3: customer (c_balance, c_data)
          payment #4 – payment #4: history (keys)

        the engine sees to it that
          memory for all writes is reserved when an execution begins
          sums keep room: customer.c_payment_cnt, customer.c_ytd_payment, district.d_ytd, stock.s_order_cnt, stock.s_remote_cnt, stock.s_ytd, warehouse.w_ytd
    "#]].assert_eq(&show::text(&chopped(&tpcc::all(), Options::DEFAULT)));
}

#[test]
fn the_optimized_graph_of_a_delivery_that_cannot_fail_half_way() {
    expect![[r#"
        chopped with snapshots, reordering, commutativity, deferral, static tables, claims, headroom, reserved memory

        delivery: 4 pieces
          0 decisive, conflicting: 0 scan new_order | 1 delete new_order
          1 visible: 2 update orders
          2 visible: 3 update order_line
          3 deferred: 4 update customer
          merged #0 and #1: a loop carries the order of #0 and #1, which meet in one table, into the next iteration

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
          new_order #1 – new_order #1: district (d_next_o_id)
          new_order #2 – new_order #2: orders (keys); orders.by_customer (keys)
          new_order #3 – new_order #3: new_order (keys)
          new_order #6 – new_order #6: stock (s_quantity)
          new_order #7 – new_order #7: order_line (keys)
          payment #3 – payment #3: customer (c_balance, c_data)
          payment #4 – payment #4: history (keys)

        claims
          delivery #2 by #1 out of new_order, recorded in orders: not against delivery #2, new_order #2; its row exists
          delivery #3 by #1 out of new_order, recorded in orders: not against delivery #3, new_order #7

        publish–subscribe
          delivery #4 to payment #3: customer (c_balance)
          not new_order #6: it does not only add to columns
          not payment #3: it does not only add to columns

        static: customer, customer.by_name, district, item, stock, warehouse

        the engine sees to it that
          memory for all writes is reserved when an execution begins
          sums keep room: customer.c_balance, customer.c_delivery_cnt, customer.c_payment_cnt, customer.c_ytd_payment, district.d_ytd, stock.s_order_cnt, stock.s_remote_cnt, stock.s_ytd, warehouse.w_ytd
          every key of new_order is in orders when the set is registered
          nobody else adds to new_order or removes from orders
          delivery #4 is published after the epoch that its decisive piece is in, before anyone reads its snapshot; payment waits for what is pending before it begins, and begins anew if its decisive piece is in another epoch
    "#]].assert_eq(&show::text(&chopped(&tpcc::all_without_failures(), Options::OPTIMIZED)));
}
