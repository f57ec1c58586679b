//! The five transactions on arrays. Their inputs are drawn separately. Each part returns a number that depends
//! on everything it read.
//!
//! A part touches one warehouse, so a transaction on several warehouses has a part at each. The changes of a
//! part can be undone with its [notes](Notes), which are recorded only on request.

use super::data::{Customer, DISTRICTS, Extent, History, Item, Line, Order, Stock, Warehouse, at, seen};
use seriatim::Rng;

/// Most lines of an order.
pub const LINES_MAX: usize = 15;
/// Most lines of twenty orders.
const RECENT_LINES: usize = 300;

/// A line of an order: an item, its warehouse, and the quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ordered {
    /// The item.
    pub item: u32,
    /// The warehouse that supplies it.
    pub supply: u16,
    /// How many.
    pub quantity: u8,
}

/// The input of New-Order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// The district.
    pub district: u8,
    /// The customer, of that district.
    pub customer: u32,
    /// The last item does not exist: nothing is entered (clause 2.4.1.4).
    pub is_unused: bool,
    /// Lines in use.
    pub count: u8,
    /// The lines.
    pub lines: [Ordered; LINES_MAX],
}

impl NewOrder {
    /// Clause 2.4.1. `supplier` says which warehouse supplies a line.
    pub fn draw(rng: &mut Rng, extent: &Extent, mut supplier: impl FnMut(&mut Rng) -> u16) -> NewOrder {
        let district = rng.below(DISTRICTS as u64) as u8;
        let customer = extent.customer(rng) as u32;
        let count = rng.range(5, 15) as u8;
        let mut order =
            NewOrder { district, customer, is_unused: rng.percent(1), count, lines: [Ordered::default(); LINES_MAX] };
        for line in &mut order.lines[..usize::from(count)] {
            let (item, quantity) = (extent.item(rng) as u32, rng.range(1, 10) as u8);
            *line = Ordered { item, supply: supplier(rng), quantity };
        }
        order
    }

    /// The lines in use.
    pub fn lines(&self) -> &[Ordered] {
        &self.lines[..usize::from(self.count)]
    }
}

/// How a customer of a district is named (clause 2.5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// By number.
    Id(u32),
    /// By last name: the one in the middle.
    Last(u32),
}

impl Named {
    /// By last name in 60 of 100 cases.
    pub fn draw(rng: &mut Rng, extent: &Extent) -> Named {
        if rng.percent(60) { Named::Last(extent.name(rng) as u32) } else { Named::Id(extent.customer(rng) as u32) }
    }
}

/// Amount of a payment (clause 2.5.1.3).
pub fn draw_amount(rng: &mut Rng) -> f64 {
    rng.range(100, 500_000) as f64 / 100.0
}

/// A value before a part changed it.
#[derive(Clone, Debug)]
pub enum Before {
    /// Of an item's stock.
    Stock(u32, i32, i32, u32),
    /// Of a district: its next order and next line.
    Next(u8, u32, u32),
    /// Of a customer: his last order.
    LastOrder(u8, u32, u32),
    /// The slot of an order.
    Order(u8, u32, Order),
    /// The slot of a line.
    Line(u8, u32, Line),
    /// An order is pending since; with the one that had to go for it.
    Pending(u8, Option<u32>),
    /// An order was pending until then.
    Delivered(u8, u32),
    /// Of an order: its carrier.
    Carrier(u8, u32, u8),
    /// Of a line: its delivery.
    Delivery(u8, u32, u64),
    /// Sums of warehouse and district.
    Sums(u8, f64, f64),
    /// The slot of a payment.
    Paid(History),
    /// Of a customer: balance, payments and their sum, deliveries.
    Customer(u8, u32, (f64, f64, u32, u32)),
    /// Of a customer with bad credit: the data.
    Data(u8, u32, Box<[u8; 500]>),
}

/// Where parts note what they change.
pub trait Notes {
    /// Notes it.
    fn note(&mut self, before: impl FnOnce() -> Before);
}

/// Nothing is put back.
impl Notes for () {
    #[inline]
    fn note(&mut self, _: impl FnOnce() -> Before) {}
}

impl Notes for Vec<Before> {
    fn note(&mut self, before: impl FnOnce() -> Before) {
        self.push(before());
    }
}

impl Warehouse {
    /// One transaction of the standard mix (clause 5.2.3), all of it in this warehouse. `now` serves as its date.
    pub(super) fn run_one(&mut self, items: &[Item], extent: &Extent, rng: &mut Rng, now: u64) -> f64 {
        match rng.below(100) {
            0..45 => {
                let order = NewOrder::draw(rng, extent, |_| 0);
                if order.is_unused { 0.0 } else { self.enter(items, &order, 0, now, &mut ()) }
            }
            45..88 => {
                let d = rng.below(DISTRICTS as u64) as usize;
                let customer = self.find(d, Named::draw(rng, extent));
                let amount = draw_amount(rng);
                self.take(d, customer as u32, amount, &mut ());
                self.credit(d, customer, amount, &mut ())
            }
            88..92 => {
                let d = rng.below(DISTRICTS as u64) as usize;
                self.order_status(d, self.find(d, Named::draw(rng, extent)))
            }
            92..96 => self.deliver(rng.range(1, 10) as u8, now, &mut ()),
            _ => self.stock_level(rng.below(DISTRICTS as u64) as usize, rng.range(10, 20) as i32),
        }
    }

    /// New-Order at its warehouse, which has this number: the order, its lines, and the stock of those that
    /// it supplies itself.
    pub fn enter(&mut self, items: &[Item], order: &NewOrder, own: u16, now: u64, notes: &mut impl Notes) -> f64 {
        let (d, customer) = (order.district, order.customer);
        let (w_tax, district) = (self.tax, &mut self.districts[usize::from(d)]);
        let (o_id, first_line) = (district.next_order, district.next_line);
        notes.note(|| Before::Next(d, o_id, first_line));
        district.next_order += 1;
        let orderer = &mut district.customers[customer as usize];
        notes.note(|| Before::LastOrder(d, customer, orderer.last_order));
        orderer.last_order = o_id;
        let slot = at(&mut district.orders, o_id);
        notes.note(|| Before::Order(d, o_id, *slot));
        *slot = Order { customer, entry: now, carrier: 0, lines: order.count, first_line };
        // The mix enters more orders than it delivers; the oldest one's slot was just taken.
        let is_full = district.pending.len() == district.orders.len();
        let gone = if is_full { district.pending.pop_front() } else { None };
        notes.note(|| Before::Pending(d, gone));
        district.pending.push_back(o_id);
        let mut total = 0.0;
        for line in order.lines() {
            let (i, quantity) = (line.item, i32::from(line.quantity));
            let (item, stock) = (&items[i as usize], &mut self.stock[i as usize]);
            if line.supply == own {
                supply(stock, line, notes);
            }
            let amount = f64::from(quantity) * item.price;
            // The columns read of stock are the same in all warehouses.
            let read = u32::from(item.name[0]) + u32::from(item.data[0]) + u32::from(stock.data[0]) + item.image;
            total += amount + f64::from(read) * 1e-9;
            let next = district.next_line;
            let slot = at(&mut district.lines, next);
            notes.note(|| Before::Line(d, next, *slot));
            let (supply, dist) = (line.supply.into(), stock.dist[usize::from(d)]);
            *slot = Line { item: i, supply, quantity, amount, delivery: 0, dist };
            district.next_line = next.wrapping_add(1);
        }
        total * (1.0 - district.customers[customer as usize].discount) * (1.0 + w_tax + district.tax)
    }

    /// New-Order at a warehouse that supplies a line.
    pub fn supply(&mut self, line: &Ordered, notes: &mut impl Notes) {
        supply(&mut self.stock[line.item as usize], line, notes);
    }

    /// Payment at its warehouse.
    pub fn take(&mut self, d: usize, customer: u32, amount: f64, notes: &mut impl Notes) {
        let district = &mut self.districts[d];
        notes.note(|| Before::Sums(d as u8, self.ytd, district.ytd));
        self.ytd += amount;
        district.ytd += amount;
        let mut data = [b' '; 24];
        data[..10].copy_from_slice(&self.name);
        data[14..].copy_from_slice(&district.name);
        let slot = at(&mut self.history, self.next_history);
        notes.note(|| Before::Paid(*slot));
        *slot = History { customer, district: d as u32, amount, data };
        self.next_history = self.next_history.wrapping_add(1);
    }

    /// Payment at the customer's warehouse.
    pub fn credit(&mut self, d: usize, c: usize, amount: f64, notes: &mut impl Notes) -> f64 {
        let customer = &mut self.districts[d].customers[c];
        notes.note(|| Before::Customer(d as u8, c as u32, sums(customer)));
        customer.balance -= amount;
        customer.ytd_payment += amount;
        customer.payment_cnt += 1;
        if customer.is_bad {
            notes.note(|| Before::Data(d as u8, c as u32, Box::new(customer.data)));
            customer.data.copy_within(..460, 40);
            customer.data[0] = c as u8;
        }
        let shown = u32::from(customer.first[0]) + u32::from(customer.last[0]) + u32::from(customer.address[0]);
        customer.balance + f64::from(shown)
    }

    /// Order-Status.
    pub fn order_status(&self, d: usize, c: usize) -> f64 {
        let district = &self.districts[d];
        let customer = &district.customers[c];
        let order = seen(&district.orders, customer.last_order);
        let at = |n| seen(&district.lines, order.first_line.wrapping_add(n));
        let lines = (0..u32::from(order.lines)).map(at);
        lines.map(|line| line.amount + line.delivery as f64 + f64::from(line.quantity)).sum::<f64>()
            + customer.balance
            + order.entry as f64
            + f64::from(order.carrier)
    }

    /// Delivery.
    pub fn deliver(&mut self, carrier: u8, now: u64, notes: &mut impl Notes) -> f64 {
        let mut sum = 0.0;
        for (d, district) in (0..).zip(&mut self.districts) {
            let Some(o_id) = district.pending.pop_front() else { continue };
            notes.note(|| Before::Delivered(d, o_id));
            let order = at(&mut district.orders, o_id);
            notes.note(|| Before::Carrier(d, o_id, order.carrier));
            order.carrier = carrier;
            let mut total = 0.0;
            for n in 0..u32::from(order.lines) {
                let number = order.first_line.wrapping_add(n);
                let line = at(&mut district.lines, number);
                notes.note(|| Before::Delivery(d, number, line.delivery));
                line.delivery = now;
                total += line.amount;
            }
            let customer = &mut district.customers[order.customer as usize];
            notes.note(|| Before::Customer(d, order.customer, sums(customer)));
            customer.balance += total;
            customer.delivery_cnt += 1;
            sum += total;
        }
        sum
    }

    /// Stock-Level.
    pub fn stock_level(&self, d: usize, threshold: i32) -> f64 {
        let district = &self.districts[d];
        let first = seen(&district.orders, district.next_order - 20).first_line;
        let (mut low, mut count) = ([0u32; RECENT_LINES], 0);
        for n in 0..district.next_line.wrapping_sub(first) {
            let item = seen(&district.lines, first.wrapping_add(n)).item;
            if self.stock[item as usize].quantity < threshold {
                low[count] = item;
                count += 1;
            }
        }
        low[..count].sort_unstable();
        low[..count].chunk_by(|a, b| a == b).count() as f64
    }

    /// The customer of a district that is named so.
    pub fn find(&self, d: usize, named: Named) -> usize {
        match named {
            Named::Id(id) => id as usize,
            Named::Last(name) => {
                let named = &self.districts[d].by_last[name as usize];
                named[named.len() / 2] as usize
            }
        }
    }

    /// Puts back what a part has changed: the last first.
    pub fn put_back(&mut self, before: &Before) {
        match *before {
            Before::Stock(item, quantity, ytd, order_cnt) => {
                let stock = &mut self.stock[item as usize];
                (stock.quantity, stock.ytd, stock.order_cnt) = (quantity, ytd, order_cnt);
            }
            Before::Next(d, order, line) => {
                let district = &mut self.districts[usize::from(d)];
                (district.next_order, district.next_line) = (order, line);
            }
            Before::LastOrder(d, customer, order) => self.customer(d, customer).last_order = order,
            Before::Order(d, number, order) => *at(&mut self.districts[usize::from(d)].orders, number) = order,
            Before::Line(d, number, line) => *at(&mut self.districts[usize::from(d)].lines, number) = line,
            Before::Pending(d, gone) => {
                let pending = &mut self.districts[usize::from(d)].pending;
                pending.pop_back();
                gone.into_iter().for_each(|gone| pending.push_front(gone));
            }
            Before::Delivered(d, order) => self.districts[usize::from(d)].pending.push_front(order),
            Before::Carrier(d, number, carrier) => {
                at(&mut self.districts[usize::from(d)].orders, number).carrier = carrier;
            }
            Before::Delivery(d, number, delivery) => {
                at(&mut self.districts[usize::from(d)].lines, number).delivery = delivery;
            }
            Before::Sums(d, warehouse, district) => {
                (self.ytd, self.districts[usize::from(d)].ytd) = (warehouse, district);
            }
            Before::Paid(history) => {
                self.next_history = self.next_history.wrapping_sub(1);
                *at(&mut self.history, self.next_history) = history;
            }
            Before::Customer(d, number, (balance, ytd_payment, payment_cnt, delivery_cnt)) => {
                let customer = self.customer(d, number);
                (customer.balance, customer.ytd_payment) = (balance, ytd_payment);
                (customer.payment_cnt, customer.delivery_cnt) = (payment_cnt, delivery_cnt);
            }
            Before::Data(d, number, ref data) => self.customer(d, number).data = **data,
        }
    }

    fn customer(&mut self, d: u8, number: u32) -> &mut Customer {
        &mut self.districts[usize::from(d)].customers[number as usize]
    }
}

fn supply(stock: &mut Stock, line: &Ordered, notes: &mut impl Notes) {
    notes.note(|| Before::Stock(line.item, stock.quantity, stock.ytd, stock.order_cnt));
    let quantity = i32::from(line.quantity);
    let left = stock.quantity - quantity;
    stock.quantity = if left >= 10 { left } else { left + 91 };
    stock.ytd += quantity;
    stock.order_cnt += 1;
}

fn sums(customer: &Customer) -> (f64, f64, u32, u32) {
    (customer.balance, customer.ytd_payment, customer.payment_cnt, customer.delivery_cnt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roofline::data;
    use seriatim::rng::tries;

    /// A sum over all that transactions change, by which states are compared.
    fn state(warehouse: &Warehouse) -> Vec<f64> {
        let mut all = vec![warehouse.ytd, f64::from(warehouse.next_history)];
        all.extend(
            warehouse
                .stock
                .iter()
                .flat_map(|stock| [f64::from(stock.quantity), f64::from(stock.ytd), f64::from(stock.order_cnt)]),
        );
        all.extend(warehouse.history.iter().map(|history| history.amount));
        for district in &warehouse.districts {
            all.extend([district.ytd, f64::from(district.next_order), f64::from(district.next_line)]);
            all.extend(district.pending.iter().map(|&order| f64::from(order)));
            all.extend(district.orders.iter().flat_map(|order| {
                [
                    f64::from(order.customer),
                    f64::from(order.carrier),
                    f64::from(order.lines),
                    f64::from(order.first_line),
                ]
            }));
            all.extend(
                district.lines.iter().flat_map(|line| [f64::from(line.item), line.amount, line.delivery as f64]),
            );
            all.extend(district.customers.iter().flat_map(|customer| {
                let data: u32 = (0..).zip(&customer.data).map(|(at, &byte)| at * u32::from(byte)).sum();
                [customer.balance, customer.ytd_payment, f64::from(customer.last_order), f64::from(data)]
            }));
        }
        all
    }

    #[test]
    fn changes_of_parts_can_be_undone() {
        let (seed, extent) = (5, Extent { orders: 32, lines: 512, ..Extent::SMALL });
        println!("seed {seed}");
        let mut rng = Rng::from_seed(seed);
        let (items, mut warehouse) = (data::items(&extent), Warehouse::load(&mut rng, &extent));
        let mut changed = 0;
        for now in 0..tries(60, 600) {
            // Part of it stays, so that rings go round.
            let (before, mut notes) = (state(&warehouse), Vec::new());
            let d = rng.below(DISTRICTS as u64) as usize;
            match rng.below(3) {
                0 => {
                    let order = NewOrder::draw(&mut rng, &extent, |rng| rng.below(2) as u16);
                    warehouse.enter(&items, &order, 0, now, &mut notes);
                }
                1 => {
                    let (customer, amount) = (warehouse.find(d, Named::draw(&mut rng, &extent)), draw_amount(&mut rng));
                    warehouse.take(d, customer as u32, amount, &mut notes);
                    warehouse.credit(d, customer, amount, &mut notes);
                }
                _ => _ = warehouse.deliver(3, now, &mut notes),
            }
            if rng.percent(50) {
                continue;
            }
            changed += usize::from(state(&warehouse) != before);
            notes.iter().rev().for_each(|before| warehouse.put_back(before));
            assert!(state(&warehouse) == before, "transaction {now}");
        }
        assert!(changed as u64 > tries(18, 200), "{changed}");
    }
}
