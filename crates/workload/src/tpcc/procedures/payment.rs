//! The Payment transaction (clause 2.5).

use crate::Missing;
use crate::tpcc::formulas::{Address, address, history_data, longer_data, middle};
use crate::tpcc::input::{CustomerChoice, PaymentInput};
use crate::tpcc::schema::{Customer, District, History, Money, Rate, Warehouse};
use seriatim::{Abort, Data, Text, Timestamp, Tx, procedure};

/// The output of the terminal (clause 2.5.3.3), apart from its input.
#[derive(Data, Clone, Copy, Debug)]
pub struct PaymentOutput {
    /// The warehouse's address.
    pub warehouse: Address,
    /// The district's address.
    pub district: Address,
    /// The customer.
    pub customer: Payer,
}

/// The paying customer.
#[derive(Data, Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct Payer {
    pub c_id: u32,
    pub c_first: Text<16>,
    pub c_middle: Text<2>,
    pub c_last: Text<16>,
    pub address: Address,
    pub c_phone: Text<16>,
    pub c_since: Timestamp,
    pub c_credit: Text<2>,
    pub c_credit_lim: Money,
    pub c_discount: Rate,
    pub c_balance: Money,
    /// The first 200 characters of C_DATA, if the customer's credit is bad.
    pub c_data: Option<Text<200>>,
}

/// Takes a payment.
#[procedure]
pub fn payment(tx: &Tx, input: &PaymentInput) -> Result<PaymentOutput, Abort> {
    let (w_name, warehouse) = tx.update::<Warehouse>(input.w_id, |row| {
        row.w_ytd += input.amount;
        (Text::truncated(row.w_name), address(row.w_street_1, row.w_street_2, row.w_city, row.w_state, row.w_zip))
    })?;
    let (d_name, district) = tx.update::<District>((input.w_id, input.d_id), |row| {
        row.d_ytd += input.amount;
        (Text::truncated(row.d_name), address(row.d_street_1, row.d_street_2, row.d_city, row.d_state, row.d_zip))
    })?;
    let c_id = match &input.customer {
        CustomerChoice::Id(c_id) => *c_id,
        CustomerChoice::Last(last) => {
            let named = tx.find_by::<Customer>(Customer::BY_NAME, (input.c_w_id, input.c_d_id, *last)).all()?;
            if named.is_empty() {
                return Err(tx.abort(Missing("customer")));
            }
            named[middle(named.len())].c_id
        }
    };
    let customer = tx.update::<Customer>((input.c_w_id, input.c_d_id, c_id), |customer| {
        let c_balance = customer.c_balance - input.amount;
        customer.c_balance = c_balance;
        customer.c_ytd_payment += input.amount;
        customer.c_payment_cnt += 1;
        let mut c_data = None;
        if customer.c_credit == "BC" {
            let longer = longer_data(input, c_id, customer.c_data);
            customer.c_data = longer;
            c_data = Some(Text::<200>::truncated(longer.as_str()));
        }
        Payer {
            c_id,
            c_first: Text::truncated(customer.c_first),
            c_middle: Text::truncated(customer.c_middle),
            c_last: Text::truncated(customer.c_last),
            address: address(
                customer.c_street_1,
                customer.c_street_2,
                customer.c_city,
                customer.c_state,
                customer.c_zip,
            ),
            c_phone: Text::truncated(customer.c_phone),
            c_since: customer.c_since,
            c_credit: Text::truncated(customer.c_credit),
            c_credit_lim: customer.c_credit_lim,
            c_discount: customer.c_discount,
            c_balance,
            c_data,
        }
    })?;
    tx.insert(History {
        h_source: input.h_source,
        h_number: input.h_number,
        h_c_w_id: input.c_w_id,
        h_c_d_id: input.c_d_id,
        h_c_id: c_id,
        h_w_id: input.w_id,
        h_d_id: input.d_id,
        h_date: input.date,
        h_amount: input.amount,
        h_data: history_data(w_name, d_name),
    })?;
    Ok(PaymentOutput { warehouse, district, customer })
}
