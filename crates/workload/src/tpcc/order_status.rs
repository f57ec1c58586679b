//! The Order-Status transaction (clause 2.6), which only reads.

use super::input::OrderStatusInput;
use super::scale::LINES_MAX;
use super::schema::{Money, Tables};
use super::shared::{customer, present};
use seriatim::{Abort, ReadTx, Text, Timestamp};

/// What the terminal shows (clause 2.6.3.3), beside what it was told.
#[derive(Clone, Copy, Debug)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct OrderStatusLine {
    pub ol_i_id: u32,
    pub ol_supply_w_id: u16,
    pub ol_quantity: u8,
    pub ol_amount: Money,
    pub ol_delivery_d: Option<Timestamp>,
}

/// Shows a customer's last order.
///
/// # Errors
/// A conflict where the protocol has no snapshots, or a row missing.
pub fn order_status(tx: &ReadTx, tables: &Tables, input: &OrderStatusInput) -> Result<OrderStatusOutput, Abort> {
    let OrderStatusInput { w_id, d_id, customer: choice } = input;
    let customer = customer(tx, tables, *w_id, *d_id, choice)?;
    let c_id = customer.c_id();
    let order = tx.find_by_rev(&tables.order_by_customer, &(*w_id, *d_id, c_id)).next().transpose()?;
    let order = present(tx, order, "orders")?;
    let o_id = order.o_id();
    let mut lines = [OrderStatusLine::default(); LINES_MAX];
    let mut ol_cnt = 0;
    for line in tx.prefix(&tables.order_line, &(*w_id, *d_id, o_id)) {
        let line = line?;
        if let Some(shown) = lines.get_mut(usize::from(ol_cnt)) {
            *shown = OrderStatusLine {
                ol_i_id: line.ol_i_id(),
                ol_supply_w_id: line.ol_supply_w_id(),
                ol_quantity: line.ol_quantity(),
                ol_amount: line.ol_amount(),
                ol_delivery_d: line.ol_delivery_d(),
            };
            ol_cnt += 1;
        }
    }
    Ok(OrderStatusOutput {
        c_id,
        c_first: Text::truncated(customer.c_first()),
        c_middle: Text::truncated(customer.c_middle()),
        c_last: Text::truncated(customer.c_last()),
        c_balance: customer.c_balance(),
        o_id,
        o_entry_d: order.o_entry_d(),
        o_carrier_id: order.o_carrier_id(),
        ol_cnt,
        lines,
    })
}
