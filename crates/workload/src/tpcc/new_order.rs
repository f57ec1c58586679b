//! The New-Order transaction (clause 2.4).

use std::fmt;

use super::input::NewOrderInput;
use super::scale::LINES_MAX;
use super::schema::{Money, NewOrder, Order, OrderLine, Rate, Tables};
use super::shared::{is_original, present};
use seriatim::{Abort, Text, Tx};

/// What the terminal shows (clause 2.4.3.3).
#[derive(Clone, Copy, Debug)]
pub struct NewOrderOutput {
    /// Number of the order.
    pub o_id: u32,
    /// The customer's last name.
    pub c_last: Text<16>,
    /// The customer's credit: GC or BC.
    pub c_credit: Text<2>,
    /// The customer's discount.
    pub c_discount: Rate,
    /// The warehouse's tax.
    pub w_tax: Rate,
    /// The district's tax.
    pub d_tax: Rate,
    /// What the order costs.
    pub total_amount: Money,
    /// Lines in use.
    pub ol_cnt: u8,
    /// The lines; those beyond `ol_cnt` are empty.
    pub lines: [NewOrderOutputLine; LINES_MAX],
}

/// One line of [`NewOrderOutput`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NewOrderOutputLine {
    /// The item's name.
    pub i_name: Text<24>,
    /// Stock after the order.
    pub s_quantity: i16,
    /// Whether both item and stock are original: B, else G.
    pub is_brand: bool,
    /// Price of one.
    pub i_price: Money,
    /// Price of the line.
    pub amount: Money,
}

/// "Item number is not valid" (clause 2.4.3.4): the rollback that the specification asks for in one order of a hundred.
#[derive(Debug)]
pub struct UnusedItem;

impl fmt::Display for UnusedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Item number is not valid")
    }
}

impl std::error::Error for UnusedItem {}

/// Enters an order. An unused item number aborts with [`UnusedItem`] after all work before it was done (clause 2.4.2.3).
///
/// # Errors
/// That abort, a conflict, or a row missing.
pub fn new_order(tx: &Tx, tables: &Tables, input: &NewOrderInput) -> Result<NewOrderOutput, Abort> {
    let NewOrderInput { w_id, d_id, c_id, entry_d, ol_cnt, .. } = *input;
    // Every key is an argument: the rows that miss the cache are fetched together, wave by wave between the work on others.
    tx.begin_prefetch(&tables.customer, [(w_id, d_id, c_id)]);
    tx.begin_prefetch(&tables.item, input.lines().iter().map(|line| line.i_id));
    tx.begin_prefetch(&tables.stock, input.lines().iter().map(|line| (line.supply_w_id, line.i_id)));
    let w_tax = present(tx, tx.get(&tables.warehouse, &w_id)?, "warehouse")?.w_tax();
    let district = tx.update(&tables.district, &(w_id, d_id), |district| {
        let o_id = district.d_next_o_id();
        district.set_d_next_o_id(o_id + 1);
        (o_id, district.d_tax())
    })?;
    let (o_id, d_tax) = present(tx, district, "district")?;
    tx.advance_prefetch();

    tx.insert(
        &tables.order,
        &Order {
            o_w_id: w_id,
            o_d_id: d_id,
            o_id,
            o_c_id: c_id,
            o_entry_d: entry_d,
            o_carrier_id: None,
            o_ol_cnt: ol_cnt,
            o_all_local: input.lines().iter().all(|line| line.supply_w_id == w_id),
        },
    )?;
    tx.insert(&tables.new_order, &NewOrder { no_w_id: w_id, no_d_id: d_id, no_o_id: o_id })?;
    tx.advance_prefetch();
    let customer = present(tx, tx.get(&tables.customer, &(w_id, d_id, c_id))?, "customer")?;
    let c_discount = customer.c_discount();

    let mut output = NewOrderOutput {
        o_id,
        c_last: Text::truncated(customer.c_last()),
        c_credit: Text::truncated(customer.c_credit()),
        c_discount,
        w_tax,
        d_tax,
        total_amount: Money::from_units(0),
        ol_cnt,
        lines: [NewOrderOutputLine::default(); LINES_MAX],
    };
    let mut sum = Money::from_units(0);
    for ((line, shown), ol_number) in input.lines().iter().zip(&mut output.lines).zip(1..) {
        let Some(item) = tx.get(&tables.item, &line.i_id)? else { return Err(tx.abort(UnusedItem)) };
        let stock = tx.update(&tables.stock, &(line.supply_w_id, line.i_id), |stock| {
            let (quantity, ordered) = (stock.s_quantity(), i16::from(line.quantity));
            // Clause 2.4.2.2: stock that would fall below 10 is replenished by 91.
            let left = if quantity >= ordered + 10 { quantity - ordered } else { quantity - ordered + 91 };
            stock.set_s_quantity(left);
            stock.set_s_ytd(stock.s_ytd() + u32::from(line.quantity));
            stock.set_s_order_cnt(stock.s_order_cnt() + 1);
            if line.supply_w_id != w_id {
                stock.set_s_remote_cnt(stock.s_remote_cnt() + 1);
            }
            (left, Text::truncated(stock.dist(d_id)), is_original(item.i_data()) && is_original(stock.s_data()))
        })?;
        let (s_quantity, ol_dist_info, is_brand) = present(tx, stock, "stock")?;
        let i_price = item.i_price();
        let amount = i_price * i64::from(line.quantity);
        sum += amount;
        tx.insert(
            &tables.order_line,
            &OrderLine {
                ol_w_id: w_id,
                ol_d_id: d_id,
                ol_o_id: o_id,
                ol_number,
                ol_i_id: line.i_id,
                ol_supply_w_id: line.supply_w_id,
                ol_delivery_d: None,
                ol_quantity: line.quantity,
                ol_amount: amount,
                ol_dist_info,
            },
        )?;
        let i_name = Text::truncated(item.i_name());
        *shown = NewOrderOutputLine { i_name, s_quantity, is_brand, i_price, amount };
    }
    output.total_amount = total(sum, c_discount, w_tax, d_tax);
    Ok(output)
}

/// sum(OL_AMOUNT) * (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX), rounded to the nearest cent.
fn total(sum: Money, discount: Rate, w_tax: Rate, d_tax: Rate) -> Money {
    const ONE: i64 = 10_000;
    // At most 15 lines of 10 at 100.00, so 1.5e6 cents, times 1e4, times 1.4e4: far inside 64 bits.
    let scaled = sum.units() * (ONE - discount.units()) * (ONE + w_tax.units() + d_tax.units());
    Money::from_units((scaled + ONE * ONE / 2) / (ONE * ONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_follow_clause_2_4_2_2_to_the_cent() {
        let total = |cents, discount, w_tax, d_tax| {
            total(
                Money::from_units(cents),
                Rate::from_units(discount),
                Rate::from_units(w_tax),
                Rate::from_units(d_tax),
            )
            .units()
        };
        assert_eq!(total(10_000, 0, 0, 0), 10_000);
        assert_eq!(total(10_000, 5000, 1000, 2000), 6_500);
        assert_eq!(total(1, 5000, 0, 0), 1, "half a cent rounds up");
        assert_eq!(total(15_000_000, 0, 2000, 2000), 21_000_000);
    }
}
