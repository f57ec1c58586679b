//! The five transactions as procedures, and the set of them that a database registers.

pub(super) mod delivery;
pub(super) mod new_order;
pub(super) mod order_status;
pub(super) mod payment;
#[cfg(test)]
mod plans;
pub(super) mod stock_level;

use seriatim::procedure::Procedures;
use seriatim::procedures;

/// All of them, as one set.
pub fn procedures() -> Procedures {
    procedures![
        new_order::new_order,
        payment::payment,
        order_status::order_status,
        delivery::delivery,
        stock_level::stock_level,
    ]
}
