//! New-Order and Payment of TPC-C as handwritten closures with explicit prefetching: the baseline for
//! procedures. They differ from the procedures only in this, and compute with the same functions.

use seriatim::{Abort, ReadTx, Text, Tx};
use seriatim_workload::Missing;
use seriatim_workload::tpcc::formulas::{
    address, history_data, is_original, longer_data, middle, replenished, total, whether_all_local,
};
use seriatim_workload::tpcc::{
    CustomerChoice, History, Money, NewOrder, NewOrderInput, NewOrderOutput, NewOrderOutputLine, Order, OrderLine,
    Payer, PaymentInput, PaymentOutput, Tables, UnusedItem,
};

#[cold]
fn missing(tx: &ReadTx, table: &'static str) -> Abort {
    tx.abort(Missing(table))
}

/// Enters an order.
pub(super) fn new_order(tx: &Tx, tables: &Tables, input: &NewOrderInput) -> Result<NewOrderOutput, Abort> {
    let NewOrderInput { w_id, d_id, c_id, entry_d, ol_cnt, .. } = *input;
    let prefetches = tx.prefetching();
    // Every key is an argument. Rows that miss the cache are prefetched together, in groups, while others are
    // processed.
    if prefetches {
        tx.begin_prefetch(&tables.customer, [(w_id, d_id, c_id)]);
        tx.begin_prefetch(&tables.item, input.lines().iter().map(|line| line.i_id));
        tx.begin_prefetch(&tables.stock, input.lines().iter().map(|line| (line.supply_w_id, line.i_id)));
    }
    let w_tax = tx.require(&tables.warehouse, &w_id)?.w_tax();
    let (o_id, d_tax) = tx.update(&tables.district, &(w_id, d_id), |district| {
        let o_id = district.d_next_o_id();
        district.set_d_next_o_id(o_id + 1);
        (o_id, district.d_tax())
    })?;
    if prefetches {
        tx.advance_prefetch();
    }

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
            o_all_local: whether_all_local(input),
        },
    )?;
    tx.insert(&tables.new_order, &NewOrder { no_w_id: w_id, no_d_id: d_id, no_o_id: o_id })?;
    if prefetches {
        tx.advance_prefetch();
    }
    let customer = tx.require(&tables.customer, &(w_id, d_id, c_id))?;
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
        lines: [NewOrderOutputLine::EMPTY; _],
    };
    let mut sum = Money::from_units(0);
    for ((line, shown), ol_number) in input.lines().iter().zip(&mut output.lines).zip(1..) {
        let Some(item) = tx.get(&tables.item, &line.i_id)? else { return Err(tx.abort(UnusedItem)) };
        let (s_quantity, ol_dist_info, is_brand) =
            tx.update(&tables.stock, &(line.supply_w_id, line.i_id), |stock| {
                let left = replenished(stock.s_quantity(), line.quantity);
                stock.set_s_quantity(left);
                stock.set_s_ytd(stock.s_ytd() + u32::from(line.quantity));
                stock.set_s_order_cnt(stock.s_order_cnt() + 1);
                if line.supply_w_id != w_id {
                    stock.set_s_remote_cnt(stock.s_remote_cnt() + 1);
                }
                (left, Text::truncated(stock.dist(d_id)), is_original(item.i_data()) && is_original(stock.s_data()))
            })?;
        let i_price = item.i_price();
        let amount = (i_price * i64::from(line.quantity))?;
        sum = (sum + amount)?;
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

/// The customer of a payment.
#[inline]
fn customer(tx: &ReadTx, tables: &Tables, input: &PaymentInput) -> Result<u32, Abort> {
    let last = match input.customer {
        CustomerChoice::Id(c_id) => return Ok(c_id),
        CustomerChoice::Last(last) => last,
    };
    // The first rows are kept, so a second scan is needed only for a name that is more common than any in the
    // population.
    const KEPT: usize = 64;
    let prefix = (input.c_w_id, input.c_d_id, last);
    let mut rows = tx.find_by(&tables.customer_by_name, &prefix);
    let first = match rows.next() {
        Some(row) => row?,
        None => return Err(missing(tx, "customer")),
    };
    let (mut kept, mut n) = ([first; KEPT], 1);
    for row in rows {
        let row = row?;
        if n < KEPT {
            kept[n] = row;
        }
        n += 1;
    }
    match kept.get(middle(n)) {
        Some(row) => Ok(row.c_id()),
        None => match tx.find_by(&tables.customer_by_name, &prefix).nth(middle(n)) {
            Some(row) => Ok(row?.c_id()),
            None => Err(missing(tx, "customer")),
        },
    }
}

/// Takes a payment.
pub(super) fn payment(tx: &Tx, tables: &Tables, input: &PaymentInput) -> Result<PaymentOutput, Abort> {
    let PaymentInput { w_id, d_id, c_w_id, c_d_id, amount, .. } = *input;
    let (w_name, warehouse) = tx.update(&tables.warehouse, &w_id, |row| {
        row.set_w_ytd((row.w_ytd() + amount)?);
        let name = Text::truncated(row.w_name());
        let at = address(row.w_street_1(), row.w_street_2(), row.w_city(), row.w_state(), row.w_zip());
        Ok::<_, Abort>((name, at))
    })??;
    let (d_name, district) = tx.update(&tables.district, &(w_id, d_id), |row| {
        row.set_d_ytd((row.d_ytd() + amount)?);
        let name = Text::truncated(row.d_name());
        let at = address(row.d_street_1(), row.d_street_2(), row.d_city(), row.d_state(), row.d_zip());
        Ok::<_, Abort>((name, at))
    })??;
    let c_id = customer(tx, tables, input)?;
    let customer = tx.update(&tables.customer, &(c_w_id, c_d_id, c_id), |row| {
        let c_balance = (row.c_balance() - amount)?;
        row.set_c_balance(c_balance);
        row.set_c_ytd_payment((row.c_ytd_payment() + amount)?);
        row.set_c_payment_cnt(row.c_payment_cnt() + 1);
        let mut c_data = None;
        if row.c_credit() == "BC" {
            let data = longer_data(input, c_id, row.c_data());
            row.set_c_data(&data)?;
            c_data = Some(Text::truncated(&data));
        }
        Ok::<_, Abort>(Payer {
            c_id,
            c_first: Text::truncated(row.c_first()),
            c_middle: Text::truncated(row.c_middle()),
            c_last: Text::truncated(row.c_last()),
            address: address(row.c_street_1(), row.c_street_2(), row.c_city(), row.c_state(), row.c_zip()),
            c_phone: Text::truncated(row.c_phone()),
            c_since: row.c_since(),
            c_credit: Text::truncated(row.c_credit()),
            c_credit_lim: row.c_credit_lim(),
            c_discount: row.c_discount(),
            c_balance,
            c_data,
        })
    })??;
    tx.insert(
        &tables.history,
        &History {
            h_source: input.h_source,
            h_number: input.h_number,
            h_c_w_id: c_w_id,
            h_c_d_id: c_d_id,
            h_c_id: c_id,
            h_w_id: w_id,
            h_d_id: d_id,
            h_date: input.date,
            h_amount: amount,
            h_data: history_data(w_name, d_name),
        },
    )?;
    Ok(PaymentOutput { warehouse, district, customer })
}
