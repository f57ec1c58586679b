//! The Delivery transaction (clause 2.7), all ten districts of a warehouse in one.

use super::input::DeliveryInput;
use super::scale::{DISTRICTS, district_ids};
use super::schema::{Money, Tables};
use super::shared::present;
use seriatim::{Abort, Tx};

/// What goes into the result file (clause 2.7.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryOutput {
    /// Order delivered per district, the first at index 0; `None` where nothing was outstanding (clause 2.7.4.2).
    pub delivered: [Option<u32>; DISTRICTS as usize],
}

/// Delivers the oldest outstanding order of each district.
///
/// # Errors
/// A conflict, or a row missing.
pub fn delivery(tx: &Tx, tables: &Tables, input: &DeliveryInput) -> Result<DeliveryOutput, Abort> {
    let mut output = DeliveryOutput::default();
    for (d_id, delivered) in district_ids().zip(&mut output.delivered) {
        *delivered = deliver(tx, tables, input, d_id)?;
    }
    Ok(output)
}

fn deliver(tx: &Tx, tables: &Tables, input: &DeliveryInput, d_id: u8) -> Result<Option<u32>, Abort> {
    let (w_id, date) = (input.w_id, input.date);
    let oldest = tx.prefix(&tables.new_order, &(w_id, d_id)).next().transpose()?;
    let Some(o_id) = oldest.map(|row| row.no_o_id()) else { return Ok(None) };
    tx.delete(&tables.new_order, &(w_id, d_id, o_id))?;
    let order = tx.update(&tables.order, &(w_id, d_id, o_id), |order| {
        order.set_o_carrier_id(Some(input.carrier_id));
        (order.o_c_id(), order.o_ol_cnt())
    })?;
    let (c_id, ol_cnt) = present(tx, order, "orders")?;
    let mut total = Money::from_units(0);
    // The lines of an order are numbered from 1 to O_OL_CNT (condition 3.3.2.6) and never change in number, so they are
    // reached by key.
    for ol_number in 1..=ol_cnt {
        let amount = tx.update(&tables.order_line, &(w_id, d_id, o_id, ol_number), |line| {
            line.set_ol_delivery_d(Some(date));
            line.ol_amount()
        })?;
        total += present(tx, amount, "order_line")?;
    }
    let customer = tx.update(&tables.customer, &(w_id, d_id, c_id), |customer| {
        customer.set_c_balance(customer.c_balance() + total);
        customer.set_c_delivery_cnt(customer.c_delivery_cnt() + 1);
    })?;
    present(tx, customer, "customer")?;
    Ok(Some(o_id))
}
