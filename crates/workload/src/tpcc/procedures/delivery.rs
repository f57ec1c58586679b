//! The Delivery transaction (clause 2.7), all ten districts of a warehouse in one.
//!
//! It goes through the districts step by step, so that the rows of one step are fetched together.

use crate::tpcc::input::DeliveryInput;
use crate::tpcc::scale::DISTRICTS;
use crate::tpcc::schema::{Customer, Money, NewOrder, Order, OrderLine};
use seriatim::{Abort, Data, Tx, procedure};

/// Most orders that one delivery takes: one of each district.
const ORDERS_MAX: usize = DISTRICTS as usize;

/// The contents of the result file (clause 2.7.3.4).
#[derive(Data, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryOutput {
    /// Order delivered per district, the first at index 0; `None` where nothing was outstanding (clause 2.7.4.2).
    pub delivered: [Option<u32>; ORDERS_MAX],
}

/// An order on its way.
#[derive(Data, Clone, Copy, Debug)]
struct Due {
    d_id: u8,
    o_id: u32,
    c_id: u32,
    ol_cnt: u8,
}

/// Delivers the oldest outstanding order of each district.
#[procedure]
pub fn delivery(tx: &Tx, input: &DeliveryInput) -> Result<DeliveryOutput, Abort> {
    let w_id = input.w_id;
    let mut delivered = [None; ORDERS_MAX];
    for d_id in 1..=DISTRICTS {
        let oldest = tx.prefix::<NewOrder>((w_id, d_id)).first()?;
        let Some(oldest) = oldest else { continue };
        let o_id = oldest.no_o_id;
        tx.delete::<NewOrder>((w_id, d_id, o_id))?;
        delivered[usize::from(d_id - 1)] = Some(o_id);
    }

    let mut due = [None; ORDERS_MAX];
    for (o_id, d_id) in delivered.iter().zip(1..=DISTRICTS) {
        let Some(o_id) = *o_id else { continue };
        let (c_id, ol_cnt) = tx.update::<Order>((w_id, d_id, o_id), |order| {
            order.o_carrier_id = Some(input.carrier_id);
            (order.o_c_id, order.o_ol_cnt)
        })?;
        due[usize::from(d_id - 1)] = Some(Due { d_id, o_id, c_id, ol_cnt });
    }

    for due in &due {
        let Some(due) = *due else { continue };
        let mut total = Money::from_units(0);
        // The lines of an order are numbered from 1 to O_OL_CNT (condition 3.3.2.6) and never change in
        // number, so they are reached by key.
        for ol_number in 1..=due.ol_cnt {
            let amount = tx.update::<OrderLine>((w_id, due.d_id, due.o_id, ol_number), |line| {
                line.ol_delivery_d = Some(input.date);
                line.ol_amount
            })?;
            total += amount;
        }
        tx.update::<Customer>((w_id, due.d_id, due.c_id), |customer| {
            customer.c_balance += total;
            customer.c_delivery_cnt += 1;
        })?;
    }
    Ok(DeliveryOutput { delivered })
}
