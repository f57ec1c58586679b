//! Plans of the five transactions of TPC-C, reviewed by hand against the specification.

mod support;

use expect_test::expect;
use seriatim_procedure::analysis::plan;
use seriatim_procedure::ir::Procedure;
use support::tpcc;

fn shown(procedure: &Procedure) -> String {
    plan(procedure, &tpcc::schema()).expect("accepted").to_string()
}

#[test]
fn new_order_has_its_plan() {
    expect![[r#"
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
              reads i_name, i_price
              control from #5
              key known at entry
              partition unknown or any
              when it changes, run again #6 #7
          #6 update stock(line.supply_w_id, line.i_id), must exist, in loop 0
              reads s_quantity, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10, s_data; writes s_quantity; adds to s_ytd, s_order_cnt, s_remote_cnt
              control from #5
              key known at entry
              partition line.supply_w_id
              when it changes, run again #7
          #7 insert order_line(input.w_id, input.d_id, #1.0, number_of(…)), in loop 0
              changes keys
              key from #1
              values from #5 #6
              control from #5
              key known after #1, at loop 0
              partition input.w_id
          loop 0 over arguments
          can fail: missing row of #0 (new_order:1:1)
          can fail: missing row of #1 (new_order:2:1)
          can fail: overflow of #1 (new_order:4:1)
          can fail: out of memory of #1 (new_order:2:1)
          can fail: duplicate key of #2 (new_order:6:1)
          can fail: out of memory of #2 (new_order:6:1)
          can fail: duplicate key of #3 (new_order:7:1)
          can fail: out of memory of #3 (new_order:7:1)
          can fail: missing row of #4 (new_order:8:1)
          can fail: missing row of #6 (new_order:15:1)
          can fail: overflow of a sum of #6 (new_order:17:1)
          can fail: overflow of a sum of #6 (new_order:18:1)
          can fail: overflow of a sum of #6 (new_order:20:1)
          can fail: out of memory of #6 (new_order:15:1)
          can fail: duplicate key of #7 (new_order:24:1)
          can fail: out of memory of #7 (new_order:24:1)
          can fail: user abort after #5 (new_order:14:1)
          can fail: overflow after #5 (new_order:22:1)
          can fail: overflow after #5 (new_order:23:1)
    "#]].assert_eq(&shown(&tpcc::new_order()));
}

#[test]
fn payment_has_its_plan() {
    expect![[r#"
        procedure payment
          #0 update warehouse(input.w_id), must exist
              reads w_name, w_street_1, w_city, w_state, w_zip; adds to w_ytd
              key known at entry
              partition input.w_id
              when it changes, run again #4
          #1 update district(input.w_id, input.d_id), must exist
              reads d_name, d_street_1, d_city, d_state, d_zip; adds to d_ytd
              key known at entry
              partition input.w_id
              when it changes, run again #4
          #2 scan customer by by_name(input.c_w_id, input.c_d_id, input.customer.last), perhaps
              reads c_id
              index by_name: reads keys
              key known at entry
              partition input.c_w_id
              when it changes, run again #3 #4
          #3 update customer(input.c_w_id, input.c_d_id, c_id), must exist
              reads c_first, c_last, c_credit, c_balance, c_data; writes c_balance, c_data; adds to c_ytd_payment, c_payment_cnt
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
              partition input.w_id
          can fail: missing row of #0 (payment:1:1)
          can fail: overflow of a sum of #0 (payment:2:1)
          can fail: out of memory of #0 (payment:1:1)
          can fail: missing row of #1 (payment:4:1)
          can fail: overflow of a sum of #1 (payment:5:1)
          can fail: out of memory of #1 (payment:4:1)
          can fail: missing row of #3 (payment:15:1)
          can fail: overflow of #3 (payment:16:1)
          can fail: overflow of a sum of #3 (payment:17:1)
          can fail: overflow of a sum of #3 (payment:18:1)
          can fail: a value that does not fit of #3 (payment:22:1)
          can fail: out of memory of #3 (payment:15:1)
          can fail: duplicate key of #4 (payment:24:1)
          can fail: out of memory of #4 (payment:24:1)
          can fail: user abort after #2 (payment:13:1)
          can fail: out of bounds after #2 (payment:14:1)
    "#]].assert_eq(&shown(&tpcc::payment()));
}

#[test]
fn order_status_has_its_plan() {
    expect![[r#"
        procedure order_status (read only)
          #0 scan customer by by_name(input.w_id, input.d_id, input.customer.last), perhaps
              reads c_id
              index by_name: reads keys
              key known at entry
              partition input.w_id
              when it changes, run again #1 #2 #3
          #1 get customer(input.w_id, input.d_id, c_id), must exist
              reads c_last, c_balance
              key from #0
              control from #0
              key known after #0
              partition input.w_id
          #2 scan orders by by_customer(input.w_id, input.d_id, c_id)
              reads o_id, o_entry_d, o_carrier_id
              index by_customer: reads keys
              key from #0
              control from #0
              key known after #0
              partition input.w_id
              when it changes, run again #3
          #3 scan order_line(input.w_id, input.d_id, #2.o_id)
              reads ol_i_id, ol_supply_w_id, ol_delivery_d, ol_quantity, ol_amount
              key from #2
              control from #0 #2
              key known after #2
              partition input.w_id
          loop 0 over the rows of #3
          can fail: missing row of #1 (order_status:9:1)
          can fail: user abort after #0 (order_status:7:1)
          can fail: out of bounds after #0 (order_status:8:1)
          can fail: user abort after #0 #2 (order_status:12:1)
    "#]]
    .assert_eq(&shown(&tpcc::order_status()));
}

#[test]
fn delivery_has_its_plan() {
    expect![[r#"
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
          #2 update orders(input.w_id, d_id, #0.no_o_id), must exist, in loop 0, perhaps
              reads o_c_id, o_ol_cnt; writes o_carrier_id
              key from #0
              control from #0
              key known after #0
              partition input.w_id
              when it changes, run again #3 #4
          #3 update order_line(input.w_id, d_id, #0.no_o_id, number), must exist, in loop 0, in loop 1, perhaps
              reads ol_amount; writes ol_delivery_d
              key from #0 #2
              control from #0 #2
              key known after #0 #2, at loop 1
              partition input.w_id
              when it changes, run again #4
          #4 update customer(input.w_id, d_id, #2.0), must exist, in loop 0, perhaps
              adds to c_balance, c_delivery_cnt
              key from #2
              values from #0 #2 #3
              control from #0
              key known after #2
              partition input.w_id
          loop 0 over arguments
          loop 1 in loop 0 over results of #2
          can fail: missing row of #1 (delivery:8:1)
          can fail: missing row of #2 (delivery:10:1)
          can fail: out of memory of #2 (delivery:10:1)
          can fail: missing row of #3 (delivery:15:1)
          can fail: out of memory of #3 (delivery:15:1)
          can fail: missing row of #4 (delivery:19:1)
          can fail: overflow of a sum of #4 (delivery:20:1)
          can fail: overflow of a sum of #4 (delivery:21:1)
          can fail: out of memory of #4 (delivery:19:1)
          can fail: overflow after #0 #2 #3 (delivery:18:1)
    "#]]
    .assert_eq(&shown(&tpcc::delivery()));
}

#[test]
fn stock_level_has_its_plan() {
    expect![[r#"
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
          #2 get stock(input.w_id, i_id), must exist, in loop 1
              reads s_quantity
              key from #1
              control from #1
              key known after #1, at loop 1
              partition input.w_id
          loop 0 over the rows of #1
          loop 1 over results of #1
          can fail: missing row of #0 (stock_level:1:1)
          can fail: missing row of #2 (stock_level:10:1)
          can fail: overflow after #1 #2 (stock_level:12:1)
    "#]]
    .assert_eq(&shown(&tpcc::stock_level()));
}
