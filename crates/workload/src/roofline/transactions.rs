//! The five transactions over arrays. Each returns a number that depends on everything it read.

use super::data::{
    CUSTOMERS, DISTRICTS, HISTORY, History, ITEMS, Item, LINES, Line, NAMES, ORDERS, Order, Warehouse, nurand,
};
use seriatim::Rng;

/// Most lines of twenty orders.
const RECENT_LINES: usize = 300;

impl Warehouse {
    /// One transaction of the standard mix (clause 5.2.3). `now` serves as its date.
    pub(super) fn run_one(&mut self, items: &[Item], rng: &mut Rng, now: u64) -> f64 {
        match rng.below(100) {
            0..45 => self.new_order(items, rng, now),
            45..88 => self.payment(rng),
            88..92 => self.order_status(rng),
            92..96 => self.delivery(rng, now),
            _ => self.stock_level(rng),
        }
    }

    fn new_order(&mut self, items: &[Item], rng: &mut Rng, now: u64) -> f64 {
        let d = rng.below(DISTRICTS as u64) as usize;
        let customer = nurand(rng, 1023, 0, CUSTOMERS as u64 - 1) as usize;
        let count = rng.range(5, 15) as usize;
        if rng.percent(1) {
            return 0.0;
        }
        let mut ordered = [(0, 0); 15];
        for slot in &mut ordered[..count] {
            *slot = (nurand(rng, 8191, 0, ITEMS as u64 - 1) as usize, rng.range(1, 10) as i32);
        }
        let (w_tax, district) = (self.tax, &mut self.districts[d]);
        let o_id = district.next_order;
        district.next_order += 1;
        let first_line = district.next_line;
        district.customers[customer].last_order = o_id;
        district.orders[o_id as usize % ORDERS] =
            Order { customer: customer as u32, entry: now, carrier: 0, lines: count as u8, first_line };
        if district.pending.len() == ORDERS {
            // The mix enters more orders than it delivers; the oldest one's slot was just taken.
            district.pending.pop_front();
        }
        district.pending.push_back(o_id);
        let mut total = 0.0;
        for &(i, quantity) in &ordered[..count] {
            let (item, stock) = (&items[i], &mut self.stock[i]);
            let left = stock.quantity - quantity;
            stock.quantity = if left >= 10 { left } else { left + 91 };
            stock.ytd += quantity;
            stock.order_cnt += 1;
            let amount = f64::from(quantity) * item.price;
            let read = u32::from(item.name[0]) + u32::from(item.data[0]) + u32::from(stock.data[0]) + item.image;
            total += amount + f64::from(read) * 1e-9;
            district.lines[district.next_line as usize % LINES] =
                Line { item: i as u32, supply: 0, quantity, amount, delivery: 0, dist: stock.dist[d] };
            district.next_line = district.next_line.wrapping_add(1);
        }
        total * (1.0 - district.customers[customer].discount) * (1.0 + w_tax + district.tax)
    }

    fn payment(&mut self, rng: &mut Rng) -> f64 {
        let d = rng.below(DISTRICTS as u64) as usize;
        let c = self.pick_customer(d, rng);
        let amount = rng.range(100, 500_000) as f64 / 100.0;
        self.ytd += amount;
        let district = &mut self.districts[d];
        district.ytd += amount;
        let mut data = [b' '; 24];
        data[..10].copy_from_slice(&self.name);
        data[14..].copy_from_slice(&district.name);
        let customer = &mut district.customers[c];
        customer.balance -= amount;
        customer.ytd_payment += amount;
        customer.payment_cnt += 1;
        if customer.is_bad {
            customer.data.copy_within(..460, 40);
            customer.data[0] = c as u8;
        }
        self.history[self.next_history % HISTORY] = History { customer: c as u32, district: d as u32, amount, data };
        self.next_history += 1;
        let shown = u32::from(customer.first[0]) + u32::from(customer.last[0]) + u32::from(customer.address[0]);
        customer.balance + f64::from(shown)
    }

    fn order_status(&mut self, rng: &mut Rng) -> f64 {
        let d = rng.below(DISTRICTS as u64) as usize;
        let c = self.pick_customer(d, rng);
        let district = &self.districts[d];
        let customer = &district.customers[c];
        let order = &district.orders[customer.last_order as usize % ORDERS];
        let at = |n| &district.lines[order.first_line.wrapping_add(n) as usize % LINES];
        let lines = (0..u32::from(order.lines)).map(at);
        lines.map(|line| line.amount + line.delivery as f64 + f64::from(line.quantity)).sum::<f64>()
            + customer.balance
            + order.entry as f64
            + f64::from(order.carrier)
    }

    fn delivery(&mut self, rng: &mut Rng, now: u64) -> f64 {
        let carrier = rng.range(1, 10) as u8;
        let mut sum = 0.0;
        for district in &mut self.districts {
            let Some(o_id) = district.pending.pop_front() else { continue };
            let order = &mut district.orders[o_id as usize % ORDERS];
            order.carrier = carrier;
            let mut total = 0.0;
            for n in 0..u32::from(order.lines) {
                let line = &mut district.lines[order.first_line.wrapping_add(n) as usize % LINES];
                line.delivery = now;
                total += line.amount;
            }
            let customer = &mut district.customers[order.customer as usize];
            customer.balance += total;
            customer.delivery_cnt += 1;
            sum += total;
        }
        sum
    }

    fn stock_level(&mut self, rng: &mut Rng) -> f64 {
        let district = &self.districts[rng.below(DISTRICTS as u64) as usize];
        let threshold = rng.range(10, 20) as i32;
        let first = district.orders[(district.next_order - 20) as usize % ORDERS].first_line;
        let (mut low, mut count) = ([0u32; RECENT_LINES], 0);
        for n in 0..district.next_line.wrapping_sub(first) {
            let item = district.lines[first.wrapping_add(n) as usize % LINES].item;
            if self.stock[item as usize].quantity < threshold {
                low[count] = item;
                count += 1;
            }
        }
        low[..count].sort_unstable();
        low[..count].chunk_by(|a, b| a == b).count() as f64
    }

    /// 60 of 100 by last name: the one in the middle (clause 2.5.1.2).
    fn pick_customer(&self, d: usize, rng: &mut Rng) -> usize {
        if !rng.percent(60) {
            return nurand(rng, 1023, 0, CUSTOMERS as u64 - 1) as usize;
        }
        let named = &self.districts[d].by_last[nurand(rng, 255, 0, NAMES as u64 - 1) as usize];
        named[named.len() / 2] as usize
    }
}
