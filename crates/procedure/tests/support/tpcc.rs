//! TPC-C as procedures: the tables of clause 1.3 and the five transactions, as `crates/workload` has them.

use seriatim_catalog::{Organization, TableDef};
use seriatim_procedure::analysis::Schema;
use seriatim_procedure::ir::Procedure;

use super::build::{Build, procedure};
use super::table;

/// The nine tables.
pub(crate) fn tables() -> Vec<TableDef> {
    let all = [
        table(
            "warehouse",
            "w_id:u16! w_name:text10! w_street_1:text20! w_street_2:text20! w_city:text20! w_state:text2! w_zip:text9! \
             w_tax:rate! w_ytd:money",
            &["w_id"],
        )
        .hash(),
        table(
            "district",
            "d_w_id:u16! d_id:u8! d_name:text10! d_street_1:text20! d_street_2:text20! d_city:text20! d_state:text2! \
             d_zip:text9! d_tax:rate! d_ytd:money d_next_o_id:u32",
            &["d_w_id", "d_id"],
        )
        .hash(),
        table(
            "customer",
            "c_w_id:u16! c_d_id:u8! c_id:u32! c_first:text16! c_middle:text2! c_last:text16! c_street_1:text20! \
             c_street_2:text20! c_city:text20! c_state:text2! c_zip:text9! c_phone:text16! c_since:time! \
             c_credit:text2! c_credit_lim:money! c_discount:rate! c_balance:money c_ytd_payment:money \
             c_payment_cnt:u32 c_delivery_cnt:u32 c_data:long",
            &["c_w_id", "c_d_id", "c_id"],
        )
        .hash()
        .index("by_name", ["c_w_id", "c_d_id", "c_last", "c_first"]),
        table(
            "history",
            "h_id:u64 h_c_w_id:u16 h_c_d_id:u8 h_c_id:u32 h_w_id:u16 h_d_id:u8 h_date:time \
             h_amount:money h_data:text24",
            &["h_id", "h_w_id"],
        )
        .partition("h_w_id"),
        table("new_order", "no_w_id:u16 no_d_id:u8 no_o_id:u32", &["no_w_id", "no_d_id", "no_o_id"]),
        table(
            "orders",
            "o_w_id:u16 o_d_id:u8 o_id:u32 o_c_id:u32 o_entry_d:time o_carrier_id:u8? o_ol_cnt:u8 o_all_local:bool",
            &["o_w_id", "o_d_id", "o_id"],
        )
        .unique_index("by_customer", ["o_w_id", "o_d_id", "o_c_id", "o_id"], Organization::Ordered),
        table(
            "order_line",
            "ol_w_id:u16 ol_d_id:u8 ol_o_id:u32 ol_number:u8 ol_i_id:u32 ol_supply_w_id:u16 ol_delivery_d:time? \
             ol_quantity:u8 ol_amount:money ol_dist_info:text24",
            &["ol_w_id", "ol_d_id", "ol_o_id", "ol_number"],
        ),
        table("item", "i_id:u32 i_im_id:u32 i_name:text24 i_price:money i_data:text50", &["i_id"]).hash().replicated(),
        table(
            "stock",
            "s_w_id:u16! s_i_id:u32! s_quantity:i16 s_dist_01:text24! s_dist_02:text24! s_dist_03:text24! \
             s_dist_04:text24! s_dist_05:text24! s_dist_06:text24! s_dist_07:text24! \
             s_dist_08:text24! s_dist_09:text24! s_dist_10:text24! s_ytd:u32 s_order_cnt:u32 \
             s_remote_cnt:u32 s_data:text50!",
            &["s_w_id", "s_i_id"],
        )
        .hash(),
    ];
    all.into_iter().map(|builder| builder.finish().expect("a valid table")).collect()
}

/// The schema, partitioned by warehouse (DBX-TC §3.3, Speculation §5.5).
pub(crate) fn schema() -> Schema {
    Schema::new(tables())
}

/// New-Order (clause 2.4).
pub(crate) fn new_order() -> Procedure {
    procedure("new_order", &["input"], |b| {
        b.require("warehouse", "warehouse", "input.w_id");
        b.update("(o_id, d_tax)", "district", "input.w_id, input.d_id", "district", |b| {
            b.let_("next", "district.d_next_o_id");
            b.assign("district.d_next_o_id", "+=", "1");
            b.yield_("(next, district.d_tax)");
        });
        b.insert(
            "orders",
            "o_w_id: input.w_id, o_d_id: input.d_id, o_id, o_c_id: input.c_id, o_entry_d: input.entry_d, \
             o_carrier_id: None, o_ol_cnt: input.ol_cnt, o_all_local: input.all_local",
        );
        b.insert("new_order", "no_w_id: input.w_id, no_d_id: input.d_id, no_o_id: o_id");
        b.require("customer", "customer", "input.w_id, input.d_id, input.c_id");
        b.let_mut("sum", "Money::from_units(0)");
        b.let_mut("lines", "[]");
        b.for_("(number, line)", "input.lines.iter().enumerate()", |b| {
            b.get("found", "item", "line.i_id");
            b.let_else("Some(item)", "found", |b| b.abort("unused_item()"));
            b.update("(left, dist, is_brand)", "stock", "line.supply_w_id, line.i_id", "stock", |b| {
                b.assign("stock.s_quantity", "=", "replenished(stock.s_quantity, line.quantity)");
                b.assign("stock.s_ytd", "+=", "u32::from(line.quantity)");
                b.assign("stock.s_order_cnt", "+=", "1");
                b.if_("line.supply_w_id != input.w_id", |b| b.assign("stock.s_remote_cnt", "+=", "1"), |_| {});
                b.yield_(
                    "(stock.s_quantity, dist_info(input.d_id, stock.s_dist_01, stock.s_dist_02, stock.s_dist_03, \
                     stock.s_dist_04, stock.s_dist_05, stock.s_dist_06, stock.s_dist_07, stock.s_dist_08, \
                     stock.s_dist_09, stock.s_dist_10), is_original(stock.s_data))",
                );
            });
            b.let_("amount", "item.i_price * i64::from(line.quantity)");
            b.assign("sum", "+=", "amount");
            b.insert(
                "order_line",
                "ol_w_id: input.w_id, ol_d_id: input.d_id, ol_o_id: o_id, ol_number: number_of(number), \
                 ol_i_id: line.i_id, ol_supply_w_id: line.supply_w_id, ol_delivery_d: None, \
                 ol_quantity: line.quantity, ol_amount: amount, ol_dist_info: dist",
            );
            b.push("lines", "(Text::truncated(item.i_name), left, is_brand, item.i_price, amount)");
        });
        b.return_(
            "(o_id, Text::truncated(customer.c_last), Text::truncated(customer.c_credit), customer.c_discount, \
             total(sum, customer.c_discount, warehouse.w_tax, d_tax), lines)",
        );
    })
}

fn customer_by_choice(b: &mut Build, w_id: &str, d_id: &str, choice: &str) {
    b.declare("c_id");
    b.match_(
        choice,
        "Id(id)",
        |b| b.assign("c_id", "=", "id"),
        |b| {
            b.let_("last", &format!("{choice}.last"));
            b.all("named", "customer/by_name", &format!("{w_id}, {d_id}, last"));
            b.if_("named.is_empty()", |b| b.abort("missing_customer()"), |_| {});
            b.assign("c_id", "=", "named[middle(named.len())].c_id");
        },
    );
}

/// Payment (clause 2.5).
pub(crate) fn payment() -> Procedure {
    procedure("payment", &["input"], |b| {
        b.update("warehouse", "warehouse", "input.w_id", "warehouse", |b| {
            b.assign("warehouse.w_ytd", "+=", "input.amount");
            b.yield_("(warehouse.w_name, warehouse.w_street_1, warehouse.w_city, warehouse.w_state, warehouse.w_zip)");
        });
        b.update("district", "district", "input.w_id, input.d_id", "district", |b| {
            b.assign("district.d_ytd", "+=", "input.amount");
            b.yield_("(district.d_name, district.d_street_1, district.d_city, district.d_state, district.d_zip)");
        });
        customer_by_choice(b, "input.c_w_id", "input.c_d_id", "input.customer");
        b.update("output", "customer", "input.c_w_id, input.c_d_id, c_id", "customer", |b| {
            b.assign("customer.c_balance", "-=", "input.amount");
            b.assign("customer.c_ytd_payment", "+=", "input.amount");
            b.assign("customer.c_payment_cnt", "+=", "1");
            b.let_mut("data", "None");
            b.if_(
                "customer.c_credit == \"BC\"",
                |b| {
                    b.assign("customer.c_data", "=", "longer_data(input, c_id, customer.c_data)");
                    b.assign("data", "=", "Some(Text::truncated(customer.c_data))");
                },
                |_| {},
            );
            b.yield_("(customer.c_first, customer.c_last, customer.c_credit, customer.c_balance, data)");
        });
        b.insert(
            "history",
            "h_id: input.h_id, h_c_w_id: input.c_w_id, h_c_d_id: input.c_d_id, h_c_id: c_id, h_w_id: input.w_id, \
             h_d_id: input.d_id, h_date: input.date, h_amount: input.amount, h_data: particulars(warehouse, district)",
        );
        b.return_("(warehouse, district, c_id, output)");
    })
}

/// Order-Status (clause 2.6).
pub(crate) fn order_status() -> Procedure {
    procedure("order_status", &["input"], |b| {
        customer_by_choice(b, "input.w_id", "input.d_id", "input.customer");
        b.require("customer", "customer", "input.w_id, input.d_id, c_id");
        b.last("order", "orders/by_customer", "input.w_id, input.d_id, c_id");
        b.let_else("Some(order)", "order", |b| b.abort("missing_order()"));
        b.let_mut("lines", "[]");
        b.each("line", "order_line", "input.w_id, input.d_id, order.o_id", |b| {
            b.push(
                "lines",
                "(line.ol_i_id, line.ol_supply_w_id, line.ol_quantity, line.ol_amount, line.ol_delivery_d)",
            );
        });
        b.return_(
            "(c_id, customer.c_balance, customer.c_last, order.o_id, order.o_entry_d, order.o_carrier_id, lines)",
        );
    })
}

/// Delivery (clause 2.7) as `crates/workload` has it: rows must exist and sums are checked.
pub(crate) fn delivery() -> Procedure {
    delivery_as(true)
}

/// Delivery in which nothing fails after the order is taken from the queue. Missing rows are passed over, and a
/// function of its own takes the sum.
pub(crate) fn delivery_without_failures() -> Procedure {
    delivery_as(false)
}

fn delivery_as(strict: bool) -> Procedure {
    type Body = Box<dyn FnOnce(&mut Build)>;
    let update = move |b: &mut Build, bind: &str, table: &str, key: &str, row: &str, body: Body| match strict {
        true => b.update(bind, table, key, row, body),
        false => {
            b.update_if(&format!("{row}_found"), table, key, row, body);
            if !bind.is_empty() {
                b.let_else(&format!("Some({bind})"), &format!("{row}_found"), Build::continue_);
            }
        }
    };
    procedure("delivery", &["input"], |b| {
        b.let_mut("delivered", "[]");
        b.for_("d_id", "1..=10", |b| {
            b.first("oldest", "new_order", "input.w_id, d_id");
            b.let_else("Some(oldest)", "oldest", |b| {
                b.push("delivered", "None");
                b.continue_();
            });
            b.let_("o_id", "oldest.no_o_id");
            b.delete("new_order", "input.w_id, d_id, o_id");
            b.push("delivered", "Some(o_id)");
            update(
                b,
                "(c_id, ol_cnt)",
                "orders",
                "input.w_id, d_id, o_id",
                "order",
                Box::new(|b| {
                    b.assign("order.o_carrier_id", "=", "Some(input.carrier_id)");
                    b.yield_("(order.o_c_id, order.o_ol_cnt)");
                }),
            );
            b.let_mut("total", "Money::from_units(0)");
            b.for_("number", "1..=ol_cnt", |b| {
                update(
                    b,
                    "amount",
                    "order_line",
                    "input.w_id, d_id, o_id, number",
                    "line",
                    Box::new(|b| {
                        b.assign("line.ol_delivery_d", "=", "Some(input.date)");
                        b.yield_("line.ol_amount");
                    }),
                );
                match strict {
                    true => b.assign("total", "+=", "amount"),
                    false => b.assign("total", "=", "sum_of(total, amount)"),
                }
            });
            update(
                b,
                "",
                "customer",
                "input.w_id, d_id, c_id",
                "customer",
                Box::new(|b| {
                    b.assign("customer.c_balance", "+=", "total");
                    b.assign("customer.c_delivery_cnt", "+=", "1");
                }),
            );
        });
        b.return_("delivered");
    })
}

/// Stock-Level (clause 2.8).
pub(crate) fn stock_level() -> Procedure {
    procedure("stock_level", &["input"], |b| {
        b.require("district", "district", "input.w_id, input.d_id");
        b.let_("next", "district.d_next_o_id");
        b.let_mut("items", "[]");
        b.each(
            "line",
            "order_line",
            "input.w_id, input.d_id, less(next, 20), 0 .. input.w_id, input.d_id, next, 0",
            |b| {
                b.push("items", "line.ol_i_id");
            },
        );
        b.assign("items", "=", "items.sort()");
        b.assign("items", "=", "items.dedup()");
        b.let_mut("low_stock", "0");
        b.for_("i_id", "items.iter()", |b| {
            b.require("stock", "stock", "input.w_id, i_id");
            b.if_("stock.s_quantity < input.threshold", |b| b.assign("low_stock", "+=", "1"), |_| {});
        });
        b.return_("low_stock");
    })
}

/// All five.
pub(crate) fn all() -> Vec<Procedure> {
    vec![new_order(), payment(), order_status(), delivery(), stock_level()]
}

/// All five, with the Delivery that cannot fail half-way.
pub(crate) fn all_without_failures() -> Vec<Procedure> {
    vec![new_order(), payment(), order_status(), delivery_without_failures(), stock_level()]
}
