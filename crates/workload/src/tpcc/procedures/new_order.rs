//! The New-Order transaction (clause 2.4).

use std::fmt;

use crate::tpcc::formulas::{is_original, lines_of, replenished, total, whether_all_local};
use crate::tpcc::input::NewOrderInput;
use crate::tpcc::scale::LINES_MAX;
use crate::tpcc::schema::{Customer, District, Item, Money, NewOrder, Order, OrderLine, Rate, Stock, Warehouse};
use seriatim::{Abort, Data, Text, Tx, procedure};

/// The output of the terminal (clause 2.4.3.3).
#[derive(Data, Clone, Copy, Debug)]
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
    /// The price of the order.
    pub total_amount: Money,
    /// Lines in use.
    pub ol_cnt: u8,
    /// The lines; those beyond `ol_cnt` are empty.
    pub lines: [NewOrderOutputLine; LINES_MAX],
}

/// One line of [`NewOrderOutput`].
#[derive(Data, Clone, Copy, Debug)]
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

impl NewOrderOutputLine {
    /// A line not in use.
    pub const EMPTY: NewOrderOutputLine = NewOrderOutputLine {
        i_name: Text::EMPTY,
        s_quantity: 0,
        is_brand: false,
        i_price: Money::from_units(0),
        amount: Money::from_units(0),
    };
}

/// "Item number is not valid" (clause 2.4.3.4): the rollback that the specification asks for in one order of a hundred.
#[derive(Data, Debug)]
pub struct UnusedItem;

impl fmt::Display for UnusedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Item number is not valid")
    }
}

impl std::error::Error for UnusedItem {}

/// Enters an order. An unused item number aborts with [`UnusedItem`] after all work before it was done
/// (clause 2.4.2.3).
#[procedure]
pub fn new_order(tx: &Tx, input: &NewOrderInput) -> Result<NewOrderOutput, Abort> {
    let warehouse = tx.require::<Warehouse>(input.w_id)?;
    let w_tax = warehouse.w_tax;
    let (o_id, d_tax) = tx.update::<District>((input.w_id, input.d_id), |district| {
        let o_id = district.d_next_o_id;
        district.d_next_o_id = o_id + 1;
        (o_id, district.d_tax)
    })?;
    tx.insert(Order {
        o_w_id: input.w_id,
        o_d_id: input.d_id,
        o_id,
        o_c_id: input.c_id,
        o_entry_d: input.entry_d,
        o_carrier_id: None,
        o_ol_cnt: input.ol_cnt,
        o_all_local: whether_all_local(input),
    })?;
    tx.insert(NewOrder { no_w_id: input.w_id, no_d_id: input.d_id, no_o_id: o_id })?;
    let customer = tx.require::<Customer>((input.w_id, input.d_id, input.c_id))?;
    let c_last = Text::truncated(customer.c_last);
    let c_credit = Text::truncated(customer.c_credit);
    let c_discount = customer.c_discount;

    let mut sum = Money::from_units(0);
    let mut lines = [NewOrderOutputLine::EMPTY; LINES_MAX];
    for (line, ol_number) in lines_of(input).iter().zip(1..=input.ol_cnt) {
        let Some(item) = tx.get::<Item>(line.i_id)? else { return Err(tx.abort(UnusedItem)) };
        let (s_quantity, ol_dist_info, is_brand) = tx.update::<Stock>((line.supply_w_id, line.i_id), |stock| {
            let left = replenished(stock.s_quantity, line.quantity);
            stock.s_quantity = left;
            stock.s_ytd += u32::from(line.quantity);
            stock.s_order_cnt += 1;
            if line.supply_w_id != input.w_id {
                stock.s_remote_cnt += 1;
            }
            let dist = match input.d_id {
                1 => stock.s_dist_01,
                2 => stock.s_dist_02,
                3 => stock.s_dist_03,
                4 => stock.s_dist_04,
                5 => stock.s_dist_05,
                6 => stock.s_dist_06,
                7 => stock.s_dist_07,
                8 => stock.s_dist_08,
                9 => stock.s_dist_09,
                _ => stock.s_dist_10,
            };
            (left, Text::truncated(dist), is_original(item.i_data) && is_original(stock.s_data))
        })?;
        let i_price = item.i_price;
        let amount = i_price * i64::from(line.quantity);
        sum += amount;
        tx.insert(OrderLine {
            ol_w_id: input.w_id,
            ol_d_id: input.d_id,
            ol_o_id: o_id,
            ol_number,
            ol_i_id: line.i_id,
            ol_supply_w_id: line.supply_w_id,
            ol_delivery_d: None,
            ol_quantity: line.quantity,
            ol_amount: amount,
            ol_dist_info,
        })?;
        let i_name = Text::truncated(item.i_name);
        lines[usize::from(ol_number - 1)] = NewOrderOutputLine { i_name, s_quantity, is_brand, i_price, amount };
    }
    Ok(NewOrderOutput {
        o_id,
        c_last,
        c_credit,
        c_discount,
        w_tax,
        d_tax,
        total_amount: total(sum, c_discount, w_tax, d_tax),
        ol_cnt: input.ol_cnt,
        lines,
    })
}
