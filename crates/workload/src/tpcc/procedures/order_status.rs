//! The Order-Status transaction (clause 2.6), which only reads.

use crate::Missing;
use crate::tpcc::formulas::middle;
use crate::tpcc::input::{CustomerChoice, OrderStatusInput};
use crate::tpcc::scale::LINES_MAX;
use crate::tpcc::schema::{Customer, Money, Order, OrderLine};
use seriatim::{Abort, Data, Text, Timestamp, Tx, procedure};

/// The output of the terminal (clause 2.6.3.3), apart from its input.
#[derive(Data, Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct OrderStatusOutput {
    pub c_id: u32,
    pub c_first: Text<16>,
    pub c_middle: Text<2>,
    pub c_last: Text<16>,
    pub c_balance: Money,
    pub o_id: u32,
    pub o_entry_d: Timestamp,
    pub o_carrier_id: Option<u8>,
    /// Lines in use.
    pub ol_cnt: u8,
    /// The lines; those beyond `ol_cnt` are empty.
    pub lines: [OrderStatusLine; LINES_MAX],
}

/// One line of [`OrderStatusOutput`].
#[derive(Data, Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct OrderStatusLine {
    pub ol_i_id: u32,
    pub ol_supply_w_id: u16,
    pub ol_quantity: u8,
    pub ol_amount: Money,
    pub ol_delivery_d: Option<Timestamp>,
}

impl OrderStatusLine {
    /// A line not in use.
    pub const EMPTY: OrderStatusLine = OrderStatusLine {
        ol_i_id: 0,
        ol_supply_w_id: 0,
        ol_quantity: 0,
        ol_amount: Money::from_units(0),
        ol_delivery_d: None,
    };
}

/// Shows a customer's last order.
#[procedure]
pub fn order_status(tx: &Tx, input: &OrderStatusInput) -> Result<OrderStatusOutput, Abort> {
    let customer = match &input.customer {
        CustomerChoice::Id(c_id) => tx.require::<Customer>((input.w_id, input.d_id, *c_id))?,
        CustomerChoice::Last(last) => {
            let named = tx.find_by::<Customer>(Customer::BY_NAME, (input.w_id, input.d_id, *last)).all()?;
            if named.is_empty() {
                return Err(tx.abort(Missing("customer")));
            }
            named[middle(named.len())]
        }
    };
    let c_id = customer.c_id;
    let last = tx.find_by::<Order>(Order::BY_CUSTOMER, (input.w_id, input.d_id, c_id)).rev().first()?;
    let Some(order) = last else { return Err(tx.abort(Missing("orders"))) };
    let o_id = order.o_id;
    let mut lines = [OrderStatusLine::EMPTY; LINES_MAX];
    let mut ol_cnt = 0u8;
    for line in tx.prefix::<OrderLine>((input.w_id, input.d_id, o_id)).limit(LINES_MAX)? {
        lines[usize::from(ol_cnt)] = OrderStatusLine {
            ol_i_id: line.ol_i_id,
            ol_supply_w_id: line.ol_supply_w_id,
            ol_quantity: line.ol_quantity,
            ol_amount: line.ol_amount,
            ol_delivery_d: line.ol_delivery_d,
        };
        ol_cnt += 1;
    }
    Ok(OrderStatusOutput {
        c_id,
        c_first: Text::truncated(customer.c_first),
        c_middle: Text::truncated(customer.c_middle),
        c_last: Text::truncated(customer.c_last),
        c_balance: customer.c_balance,
        o_id,
        o_entry_d: order.o_entry_d,
        o_carrier_id: order.o_carrier_id,
        ol_cnt,
        lines,
    })
}
