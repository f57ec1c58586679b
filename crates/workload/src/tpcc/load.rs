//! The initial population (clause 4.3.3.1). A warehouse's rows depend on the seed and its number alone, so
//! the population is the same for any number of threads.

use super::random::{Constants, last_name};
use super::scale::{LINES_MAX, LINES_MIN, Scale, district_ids};
use super::schema::{
    Customer, District, History, Item, Money, NewOrder, Order, OrderLine, Rate, Stock, Tables, Warehouse,
};
use crate::parallel;
use crate::random::{a_string, a_text, n_text};
use crate::{LoadError, Loading};
use seriatim::{Database, Handle, Rng, Table, Text, Timestamp};

/// Rows inserted by one transaction.
const BATCH: usize = 100;

/// Fills the nine tables, which are declared.
///
/// # Errors
/// When a table exists with another definition or with rows, a procedure exists, or an insert fails.
pub fn load(
    db: &Database,
    scale: Scale,
    seed: u64,
    constants: Constants,
    loading: &Loading<'_>,
) -> Result<(), LoadError> {
    let tables = Tables::open(db)?;
    // Part 0 is the items, part w warehouse w. Seeds of parts are apart by an odd constant, and the generator
    // mixes them.
    let parts = u64::from(scale.warehouses) + 1;
    parallel::load(db, loading, parts, scale.rows(), |thread, part| {
        let rng = Rng::from_seed(seed.wrapping_add((part + 1).wrapping_mul(0xD1B5_4A32_D192_ED03)));
        let now = loading.now;
        let mut loader = Loader { thread, tables: &tables, scale, constants, rng, now };
        match u16::try_from(part) {
            Ok(0) | Err(_) => loader.items(),
            Ok(w_id) => loader.warehouse(w_id),
        }
    })
}

struct Loader<'a, 'l> {
    thread: &'a mut parallel::Loader<'l>,
    tables: &'a Tables,
    scale: Scale,
    constants: Constants,
    rng: Rng,
    now: Timestamp,
}

impl Loader<'_, '_> {
    /// Inserts what `rows` makes, a batch per transaction.
    fn insert<T: Table>(
        &mut self,
        table: &Handle<T>,
        count: u32,
        mut row: impl FnMut(&mut Self, u32) -> T,
    ) -> Result<(), LoadError> {
        let mut next = 0;
        let mut batch = Vec::with_capacity(BATCH);
        while next < count {
            batch.clear();
            let end = count.min(next + BATCH as u32);
            batch.extend((next..end).map(|n| row(self, n)));
            next = end;
            self.flush(table, &batch)?;
        }
        Ok(())
    }

    fn flush<T: Table>(&mut self, table: &Handle<T>, batch: &[T]) -> Result<(), LoadError> {
        self.thread.transact(|tx| {
            batch.iter().try_for_each(|row| tx.insert(table, row))?;
            Ok(batch.len() as u64)
        })
    }

    fn items(&mut self) -> Result<(), LoadError> {
        self.insert(&self.tables.item, self.scale.items, |loader, n| Item {
            i_id: n + 1,
            i_im_id: loader.rng.range(1, 10_000) as u32,
            i_name: a_text(&mut loader.rng, 14, 24),
            i_price: Money::from_units(loader.rng.range(100, 10_000) as i64),
            i_data: loader.data(),
        })
    }

    fn warehouse(&mut self, w_id: u16) -> Result<(), LoadError> {
        let customers = i64::from(self.scale.customers) * i64::from(super::scale::DISTRICTS);
        self.insert(&self.tables.warehouse, 1, |loader, _| Warehouse {
            w_id,
            w_name: a_text(&mut loader.rng, 6, 10),
            w_street_1: a_text(&mut loader.rng, 10, 20),
            w_street_2: a_text(&mut loader.rng, 10, 20),
            w_city: a_text(&mut loader.rng, 10, 20),
            w_state: a_text(&mut loader.rng, 2, 2),
            w_zip: loader.zip(),
            w_tax: loader.rate(2000),
            w_ytd: Money::from_units(FIRST_PAYMENT.units() * customers),
        })?;
        self.insert(&self.tables.stock, self.scale.items, |loader, n| loader.stock(w_id, n + 1))?;
        district_ids().try_for_each(|d_id| self.district(w_id, d_id))
    }

    fn stock(&mut self, w_id: u16, i_id: u32) -> Stock {
        Stock {
            s_w_id: w_id,
            s_i_id: i_id,
            s_quantity: self.rng.range(10, 100) as i16,
            s_dist_01: a_text(&mut self.rng, 24, 24),
            s_dist_02: a_text(&mut self.rng, 24, 24),
            s_dist_03: a_text(&mut self.rng, 24, 24),
            s_dist_04: a_text(&mut self.rng, 24, 24),
            s_dist_05: a_text(&mut self.rng, 24, 24),
            s_dist_06: a_text(&mut self.rng, 24, 24),
            s_dist_07: a_text(&mut self.rng, 24, 24),
            s_dist_08: a_text(&mut self.rng, 24, 24),
            s_dist_09: a_text(&mut self.rng, 24, 24),
            s_dist_10: a_text(&mut self.rng, 24, 24),
            s_ytd: 0,
            s_order_cnt: 0,
            s_remote_cnt: 0,
            s_data: self.data(),
        }
    }

    fn district(&mut self, w_id: u16, d_id: u8) -> Result<(), LoadError> {
        let Scale { customers, undelivered, .. } = self.scale;
        self.insert(&self.tables.district, 1, |loader, _| District {
            d_w_id: w_id,
            d_id,
            d_name: a_text(&mut loader.rng, 6, 10),
            d_street_1: a_text(&mut loader.rng, 10, 20),
            d_street_2: a_text(&mut loader.rng, 10, 20),
            d_city: a_text(&mut loader.rng, 10, 20),
            d_state: a_text(&mut loader.rng, 2, 2),
            d_zip: loader.zip(),
            d_tax: loader.rate(2000),
            d_ytd: Money::from_units(FIRST_PAYMENT.units() * i64::from(customers)),
            d_next_o_id: customers + 1,
        })?;
        self.insert(&self.tables.customer, customers, |loader, n| loader.customer(w_id, d_id, n + 1))?;
        self.insert(&self.tables.history, customers, |loader, n| History {
            h_source: 0,
            h_number: u32::from(d_id) << 24 | n,
            h_c_w_id: w_id,
            h_c_d_id: d_id,
            h_c_id: n + 1,
            h_w_id: w_id,
            h_d_id: d_id,
            h_date: loader.now,
            h_amount: FIRST_PAYMENT,
            h_data: a_text(&mut loader.rng, 12, 24),
        })?;
        self.orders(w_id, d_id)?;
        let first = customers - undelivered + 1;
        self.insert(&self.tables.new_order, undelivered, |_, n| NewOrder {
            no_w_id: w_id,
            no_d_id: d_id,
            no_o_id: first + n,
        })
    }

    fn customer(&mut self, w_id: u16, d_id: u8, c_id: u32) -> Customer {
        let names = self.scale.last_names();
        let name = if c_id <= names { c_id - 1 } else { self.constants.last_name(&mut self.rng, names) };
        Customer {
            c_w_id: w_id,
            c_d_id: d_id,
            c_id,
            c_first: a_text(&mut self.rng, 8, 16),
            c_middle: Text::literal("OE"),
            c_last: last_name(name),
            c_street_1: a_text(&mut self.rng, 10, 20),
            c_street_2: a_text(&mut self.rng, 10, 20),
            c_city: a_text(&mut self.rng, 10, 20),
            c_state: a_text(&mut self.rng, 2, 2),
            c_zip: self.zip(),
            c_phone: n_text(&mut self.rng),
            c_since: self.now,
            c_credit: Text::literal(if self.rng.percent(10) { "BC" } else { "GC" }),
            c_credit_lim: Money::from_units(5_000_000),
            c_discount: self.rate(5000),
            c_balance: Money::from_units(-FIRST_PAYMENT.units()),
            c_ytd_payment: FIRST_PAYMENT,
            c_payment_cnt: 1,
            c_delivery_cnt: 0,
            c_data: a_string(&mut self.rng, 300, 500),
        }
    }

    /// The orders of a district, one for each customer in random order, and their lines.
    fn orders(&mut self, w_id: u16, d_id: u8) -> Result<(), LoadError> {
        let Scale { customers, undelivered, items, .. } = self.scale;
        let mut permutation: Vec<u32> = (1..=customers).collect();
        self.rng.shuffle(&mut permutation);
        let mut lines = Vec::with_capacity(BATCH + LINES_MAX);
        let tables = self.tables;
        self.insert(&tables.order, customers, |loader, n| {
            let (o_id, is_delivered) = (n + 1, n < customers - undelivered);
            let o_ol_cnt = loader.rng.range(LINES_MIN as u64, LINES_MAX as u64) as u8;
            lines.extend((1..=o_ol_cnt).map(|ol_number| OrderLine {
                ol_w_id: w_id,
                ol_d_id: d_id,
                ol_o_id: o_id,
                ol_number,
                ol_i_id: loader.rng.range(1, items.into()) as u32,
                ol_supply_w_id: w_id,
                ol_delivery_d: is_delivered.then_some(loader.now),
                ol_quantity: 5,
                ol_amount: Money::from_units(if is_delivered { 0 } else { loader.rng.range(1, 999_999) as i64 }),
                ol_dist_info: a_text(&mut loader.rng, 24, 24),
            }));
            Order {
                o_w_id: w_id,
                o_d_id: d_id,
                o_id,
                o_c_id: permutation[n as usize],
                o_entry_d: loader.now,
                o_carrier_id: is_delivered.then(|| loader.rng.range(1, 10) as u8),
                o_ol_cnt,
                o_all_local: true,
            }
        })?;
        lines.chunks(BATCH).try_for_each(|batch| self.flush(&tables.order_line, batch))
    }

    /// S_DATA or I_DATA: in a tenth of the rows, "ORIGINAL" stands somewhere.
    fn data(&mut self) -> Text<50> {
        const MARK: &str = "ORIGINAL";
        let data: Text<50> = a_text(&mut self.rng, 26, 50);
        if !self.rng.percent(10) {
            return data;
        }
        let at = self.rng.below((data.len() - MARK.len() + 1) as u64) as usize;
        text(&format!("{}{MARK}{}", &data[..at], &data[at + MARK.len()..]))
    }

    /// Clause 4.3.2.7: four random digits and 11111.
    fn zip(&mut self) -> Text<9> {
        text(&format!("{:04}11111", self.rng.below(10_000)))
    }

    fn rate(&mut self, max: u64) -> Rate {
        Rate::from_units(self.rng.range(0, max) as i64)
    }
}

/// H_AMOUNT, C_YTD_PAYMENT and -C_BALANCE of every customer: 10.00. The year-to-date sums of districts and warehouses
/// add up to it: 30,000.00 and 300,000.00 at the specification's scale.
const FIRST_PAYMENT: Money = Money::from_units(10_00);

fn text<const N: usize>(text: &str) -> Text<N> {
    Text::new(text).expect("the specification's texts fit its columns")
}
