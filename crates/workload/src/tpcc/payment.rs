//! The Payment transaction (clause 2.5).

use super::input::{CustomerChoice, PaymentInput};
use super::schema::{History, Money, Rate, Tables};
use super::shared::{Builder, customer, present};
use seriatim::{Abort, Text, Timestamp, Tx};

/// Characters of C_DATA.
const DATA_MAX: usize = 500;

/// A postal address.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct Address {
    pub street_1: Text<20>,
    pub street_2: Text<20>,
    pub city: Text<20>,
    pub state: Text<2>,
    pub zip: Text<9>,
}

/// What the terminal shows (clause 2.5.3.3), beside what it was told.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct PaymentOutput {
    pub warehouse: Address,
    pub district: Address,
    pub c_id: u32,
    pub c_first: Text<16>,
    pub c_middle: Text<2>,
    pub c_last: Text<16>,
    pub customer: Address,
    pub c_phone: Text<16>,
    pub c_since: Timestamp,
    pub c_credit: Text<2>,
    pub c_credit_lim: Money,
    pub c_discount: Rate,
    pub c_balance: Money,
    /// The first 200 characters of C_DATA, if the customer's credit is bad.
    pub c_data: Option<Text<200>>,
}

macro_rules! address {
    ($row:expr, $street_1:ident $street_2:ident $city:ident $state:ident $zip:ident) => {
        Address {
            street_1: Text::truncated($row.$street_1()),
            street_2: Text::truncated($row.$street_2()),
            city: Text::truncated($row.$city()),
            state: Text::truncated($row.$state()),
            zip: Text::truncated($row.$zip()),
        }
    };
}

/// Takes a payment.
///
/// # Errors
/// A conflict, no memory, or a row missing.
pub fn payment(tx: &Tx, tables: &Tables, input: &PaymentInput) -> Result<PaymentOutput, Abort> {
    let PaymentInput { w_id, d_id, c_w_id, c_d_id, amount, .. } = *input;
    let mut h_data = Builder::<24>::new();
    let warehouse = tx.update(&tables.warehouse, &w_id, |warehouse| {
        warehouse.set_w_ytd(warehouse.w_ytd() + amount);
        h_data.push(warehouse.w_name());
        address!(warehouse, w_street_1 w_street_2 w_city w_state w_zip)
    })?;
    let warehouse = present(tx, warehouse, "warehouse")?;
    let district = tx.update(&tables.district, &(w_id, d_id), |district| {
        district.set_d_ytd(district.d_ytd() + amount);
        h_data.push("    ");
        h_data.push(district.d_name());
        address!(district, d_street_1 d_street_2 d_city d_state d_zip)
    })?;
    let district = present(tx, district, "district")?;
    let c_id = match input.customer {
        CustomerChoice::Id(c_id) => c_id,
        by_name => customer(tx, tables, c_w_id, c_d_id, &by_name)?.c_id(),
    };
    let output = tx.update(&tables.customer, &(c_w_id, c_d_id, c_id), |customer| {
        let c_balance = customer.c_balance() - amount;
        customer.set_c_balance(c_balance);
        customer.set_c_ytd_payment(customer.c_ytd_payment() + amount);
        customer.set_c_payment_cnt(customer.c_payment_cnt() + 1);
        let mut c_data = None;
        if customer.c_credit() == "BC" {
            let data = longer_data(input, c_id, customer.c_data());
            customer.set_c_data(data.as_str())?;
            c_data = Some(Text::truncated(data.as_str()));
        }
        Ok::<_, Abort>(PaymentOutput {
            warehouse,
            district,
            c_id,
            c_first: Text::truncated(customer.c_first()),
            c_middle: Text::truncated(customer.c_middle()),
            c_last: Text::truncated(customer.c_last()),
            customer: address!(customer, c_street_1 c_street_2 c_city c_state c_zip),
            c_phone: Text::truncated(customer.c_phone()),
            c_since: customer.c_since(),
            c_credit: Text::truncated(customer.c_credit()),
            c_credit_lim: customer.c_credit_lim(),
            c_discount: customer.c_discount(),
            c_balance,
            c_data,
        })
    })?;
    let output = present(tx, output, "customer")??;
    tx.insert(
        &tables.history,
        &History {
            h_id: input.h_id,
            h_c_w_id: c_w_id,
            h_c_d_id: c_d_id,
            h_c_id: c_id,
            h_w_id: w_id,
            h_d_id: d_id,
            h_date: input.date,
            h_amount: amount,
            h_data: Text::truncated(h_data.as_str()),
        },
    )?;
    Ok(output)
}

/// The payment's particulars in front of what C_DATA held, cut to its size (clause 2.5.2.2).
fn longer_data(input: &PaymentInput, c_id: u32, old: &str) -> Builder<DATA_MAX> {
    let mut data = Builder::new();
    let ids = [c_id, input.c_d_id.into(), input.c_w_id.into(), input.d_id.into(), input.w_id.into()];
    for id in ids {
        data.push_number(id.into());
        data.push(" ");
    }
    let cents = input.amount.units().unsigned_abs();
    data.push_number(cents / 100);
    data.push(if cents % 100 < 10 { ".0" } else { "." });
    data.push_number(cents % 100);
    data.push(" | ");
    data.push(old);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_grows_on_the_left_and_stays_within_its_size() {
        let input = PaymentInput {
            w_id: 3,
            d_id: 4,
            c_w_id: 5,
            c_d_id: 6,
            customer: CustomerChoice::Id(7),
            amount: Money::from_units(123_405),
            date: Timestamp::from_microseconds(0),
            h_id: 0,
        };
        assert_eq!(longer_data(&input, 7, "old").as_str(), "7 6 5 4 3 1234.05 | old");
        let full = longer_data(&input, 7, &"x".repeat(DATA_MAX));
        assert_eq!(full.as_str().len(), DATA_MAX);
        assert!(full.as_str().starts_with("7 6 5 4 3 1234.05 | xxx"));
    }
}
