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

/// An order on its way: district, order, customer, lines.
#[derive(Clone, Copy, Debug)]
struct Due {
    d_id: u8,
    o_id: u32,
    c_id: u32,
    ol_cnt: u8,
}

/// Delivers the oldest outstanding order of each district. It goes through the districts step by step, so that the rows of one
/// step are fetched together.
///
/// # Errors
/// A conflict, or a row missing.
pub fn delivery(tx: &Tx, tables: &Tables, input: &DeliveryInput) -> Result<DeliveryOutput, Abort> {
    let w_id = input.w_id;
    let mut output = DeliveryOutput::default();
    for (d_id, delivered) in district_ids().zip(&mut output.delivered) {
        let oldest = tx.prefix(&tables.new_order, &(w_id, d_id)).next().transpose()?;
        if let Some(o_id) = oldest.map(|row| row.no_o_id()) {
            tx.delete(&tables.new_order, &(w_id, d_id, o_id))?;
            *delivered = Some(o_id);
        }
    }

    let mut due = [None; DISTRICTS as usize];
    let keys = |output: DeliveryOutput| {
        district_ids().zip(output.delivered).filter_map(move |(d_id, o_id)| Some((w_id, d_id, o_id?)))
    };
    tx.prefetch(&tables.order, keys(output));
    for ((_, d_id, o_id), due) in keys(output).zip(&mut due) {
        let order = tx.update(&tables.order, &(w_id, d_id, o_id), |order| {
            order.set_o_carrier_id(Some(input.carrier_id));
            (order.o_c_id(), order.o_ol_cnt())
        })?;
        let (c_id, ol_cnt) = present(tx, order, "orders")?;
        *due = Some(Due { d_id, o_id, c_id, ol_cnt });
    }

    let due = || due.iter().flatten();
    tx.prefetch(&tables.customer, due().map(|due| (w_id, due.d_id, due.c_id)));
    for due in due() {
        deliver(tx, tables, input, *due)?;
    }
    Ok(output)
}

/// Dates the order's lines and credits the customer.
fn deliver(tx: &Tx, tables: &Tables, input: &DeliveryInput, due: Due) -> Result<(), Abort> {
    let (w_id, date) = (input.w_id, input.date);
    let Due { d_id, o_id, c_id, ol_cnt } = due;
    let mut total = Money::from_units(0);
    // The lines of an order are numbered from 1 to O_OL_CNT (condition 3.3.2.6) and never change in number, so they are
    // reached by key.
    tx.prefetch(&tables.order_line, (1..=ol_cnt).map(|ol_number| (w_id, d_id, o_id, ol_number)));
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
    present(tx, customer, "customer").map(|_| ())
}
