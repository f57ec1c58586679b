//! Rows of the specification's sizes in plain arrays, touched when made; how many there are is an [`Extent`].

#![allow(missing_docs, reason = "tables and columns are the specification's")]

use std::collections::VecDeque;

use seriatim::Rng;

/// Districts of a warehouse.
pub const DISTRICTS: usize = 10;

/// The numbers of rows. Orders, their lines and payments are in rings, whose sizes are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Items, and stock of a warehouse.
    pub items: usize,
    /// Customers of a district; each has an order at the start.
    pub customers: usize,
    /// Different last names.
    pub names: usize,
    /// Orders of a district.
    pub orders: usize,
    /// Lines of these.
    pub lines: usize,
    /// Payments of a warehouse.
    pub history: usize,
}

impl Extent {
    /// The specification's rows, and rings for as many orders as a thread enters in a second.
    pub const SPEC: Extent =
        Extent { items: 100_000, customers: 3000, names: 1000, orders: 1 << 14, lines: 1 << 18, history: 1 << 16 };
    /// The specification's rows, and rings that hold little more than the loaded orders.
    pub const SHORT: Extent = Extent { orders: 1 << 12, lines: 1 << 16, history: 1 << 12, ..Extent::SPEC };
    /// A hundredth of the rows, for tests.
    pub const SMALL: Extent =
        Extent { items: 1000, customers: 30, names: 30, orders: 1 << 9, lines: 1 << 13, history: 1 << 9 };

    /// Orders of a district that are delivered at the start: 2,100 of 3,000 (clause 4.3.3.1).
    const fn delivered(&self) -> usize {
        self.customers * 7 / 10
    }

    /// A customer of a district (clause 2.1.6).
    pub fn customer(&self, rng: &mut Rng) -> usize {
        nurand(rng, 1023, 0, self.customers as u64 - 1) as usize
    }

    /// A last name.
    pub fn name(&self, rng: &mut Rng) -> usize {
        nurand(rng, 255, 0, self.names as u64 - 1) as usize
    }

    /// An item.
    pub fn item(&self, rng: &mut Rng) -> usize {
        nurand(rng, 8191, 0, self.items as u64 - 1) as usize
    }
}

/// A ring's entry; there are as many as a power of two.
pub fn at<T>(ring: &mut [T], number: u32) -> &mut T {
    let mask = ring.len() - 1;
    &mut ring[number as usize & mask]
}

/// As [`at`], to read.
pub fn seen<T>(ring: &[T], number: u32) -> &T {
    &ring[number as usize & (ring.len() - 1)]
}

#[derive(Clone)]
pub struct Item {
    pub name: [u8; 24],
    pub data: [u8; 50],
    pub price: f64,
    pub image: u32,
}

#[derive(Clone)]
pub struct Stock {
    pub quantity: i32,
    pub ytd: i32,
    pub order_cnt: u32,
    pub dist: [[u8; 24]; DISTRICTS],
    pub data: [u8; 50],
}

#[derive(Clone)]
pub struct Customer {
    pub balance: f64,
    pub ytd_payment: f64,
    pub payment_cnt: u32,
    pub delivery_cnt: u32,
    pub last_order: u32,
    pub discount: f64,
    pub is_bad: bool,
    pub first: [u8; 16],
    pub last: [u8; 16],
    pub address: [u8; 90],
    pub data: [u8; 500],
}

#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub customer: u32,
    pub entry: u64,
    pub carrier: u8,
    pub lines: u8,
    pub first_line: u32,
}

/// Columns that the transactions write and never read are written all the same: the runner shows the whole
/// warehouse to a black box.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub item: u32,
    pub supply: u32,
    pub quantity: i32,
    pub amount: f64,
    pub delivery: u64,
    pub dist: [u8; 24],
}

#[derive(Clone, Copy, Debug)]
pub struct History {
    pub customer: u32,
    pub district: u32,
    pub amount: f64,
    pub data: [u8; 24],
}

pub struct District {
    pub ytd: f64,
    pub tax: f64,
    pub name: [u8; 10],
    pub next_order: u32,
    pub next_line: u32,
    pub orders: Vec<Order>,
    pub lines: Vec<Line>,
    pub pending: VecDeque<u32>,
    pub customers: Vec<Customer>,
    /// Customers of each last name.
    pub by_last: Vec<Vec<u32>>,
}

pub struct Warehouse {
    pub ytd: f64,
    pub tax: f64,
    pub name: [u8; 10],
    pub stock: Vec<Stock>,
    pub districts: Vec<District>,
    pub history: Vec<History>,
    pub next_history: u32,
}

/// NURand of clause 2.1.6 with C = 123.
fn nurand(rng: &mut Rng, a: u64, low: u64, high: u64) -> u64 {
    ((rng.range(0, a) | rng.range(low, high)) + 123) % (high - low + 1) + low
}

/// The items.
pub fn items(extent: &Extent) -> Vec<Item> {
    let item = |i| Item { name: [b'i'; 24], data: [b'x'; 50], price: (i % 100) as f64 + 1.0, image: i as u32 };
    (0..extent.items).map(item).collect()
}

impl Warehouse {
    /// One in the state in which it begins.
    pub fn load(rng: &mut Rng, extent: &Extent) -> Warehouse {
        let stock = |_| Stock {
            quantity: rng.range(10, 100) as i32,
            ytd: 0,
            order_cnt: 0,
            dist: [[b'd'; 24]; DISTRICTS],
            data: [b's'; 50],
        };
        let stock = (0..extent.items).map(stock).collect();
        let districts = (0..DISTRICTS).map(|_| District::load(rng, extent)).collect();
        let payment = History { customer: 1, district: 1, amount: 1.0, data: [1; 24] };
        Warehouse {
            ytd: 300_000.0,
            tax: 0.1,
            name: [b'w'; 10],
            stock,
            districts,
            history: vec![payment; extent.history],
            next_history: 0,
        }
    }
}

impl District {
    fn load(rng: &mut Rng, extent: &Extent) -> District {
        let mut by_last = vec![Vec::new(); extent.names];
        let customers = (0..extent.customers).map(|c| {
            let last = if c < extent.names { c } else { extent.name(rng) };
            by_last[last].push(c as u32);
            Customer {
                balance: -10.0,
                ytd_payment: 10.0,
                payment_cnt: 1,
                delivery_cnt: 0,
                last_order: c as u32,
                discount: 0.1,
                is_bad: rng.percent(10),
                first: [b'f'; 16],
                last: [b'l'; 16],
                address: [b'a'; 90],
                data: [b'c'; 500],
            }
        });
        let customers = customers.collect();
        // Values that are not all zero, so that the pages are really there.
        let mut orders = vec![Order { customer: 0, entry: 1, carrier: 1, lines: 5, first_line: 0 }; extent.orders];
        let line = Line { item: 0, supply: 1, quantity: 5, amount: 1.0, delivery: 1, dist: [b'd'; 24] };
        let mut lines = vec![line; extent.lines];
        let (mut pending, mut next_line) = (VecDeque::with_capacity(extent.orders), 0);
        for (o, order) in orders.iter_mut().enumerate().take(extent.customers) {
            let count = rng.range(5, 15) as u8;
            let is_delivered = o < extent.delivered();
            let carrier = u8::from(is_delivered);
            *order = Order { customer: o as u32, entry: 0, carrier, lines: count, first_line: next_line };
            for _ in 0..count {
                at(&mut lines, next_line).item = rng.below(extent.items as u64) as u32;
                next_line += 1;
            }
            if !is_delivered {
                pending.push_back(o as u32);
            }
        }
        District {
            ytd: 30_000.0,
            tax: 0.1,
            name: [b'n'; 10],
            next_order: extent.customers as u32,
            next_line,
            orders,
            lines,
            pending,
            customers,
            by_last,
        }
    }
}
