//! Rows of the specification's sizes in plain arrays, touched when made.

use std::collections::VecDeque;

use seriatim::Rng;

pub(super) const DISTRICTS: usize = 10;
pub(super) const CUSTOMERS: usize = 3000;
pub(super) const ITEMS: usize = 100_000;
pub(super) const NAMES: usize = 1000;
/// Slots of the rings, powers of two.
pub(super) const ORDERS: usize = 1 << 14;
pub(super) const LINES: usize = 1 << 18;
pub(super) const HISTORY: usize = 1 << 16;
/// Orders of a district that are delivered at the start.
const DELIVERED: usize = 2100;

#[derive(Clone)]
pub(super) struct Item {
    pub(super) name: [u8; 24],
    pub(super) data: [u8; 50],
    pub(super) price: f64,
    pub(super) image: u32,
}

#[derive(Clone)]
pub(super) struct Stock {
    pub(super) quantity: i32,
    pub(super) ytd: i32,
    pub(super) order_cnt: u32,
    pub(super) dist: [[u8; 24]; DISTRICTS],
    pub(super) data: [u8; 50],
}

#[derive(Clone)]
pub(super) struct Customer {
    pub(super) balance: f64,
    pub(super) ytd_payment: f64,
    pub(super) payment_cnt: u32,
    pub(super) delivery_cnt: u32,
    pub(super) last_order: u32,
    pub(super) discount: f64,
    pub(super) is_bad: bool,
    pub(super) first: [u8; 16],
    pub(super) last: [u8; 16],
    pub(super) address: [u8; 90],
    pub(super) data: [u8; 500],
}

#[derive(Clone, Copy)]
pub(super) struct Order {
    pub(super) customer: u32,
    pub(super) entry: u64,
    pub(super) carrier: u8,
    pub(super) lines: u8,
    pub(super) first_line: u32,
}

/// Columns that the transactions write and never read are written all the same: the runner shows the whole warehouse to a
/// black box.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "some columns are only written")]
pub(super) struct Line {
    pub(super) item: u32,
    pub(super) supply: u32,
    pub(super) quantity: i32,
    pub(super) amount: f64,
    pub(super) delivery: u64,
    pub(super) dist: [u8; 24],
}

#[derive(Clone, Copy)]
#[allow(dead_code, reason = "the table is only written")]
pub(super) struct History {
    pub(super) customer: u32,
    pub(super) district: u32,
    pub(super) amount: f64,
    pub(super) data: [u8; 24],
}

pub(super) struct District {
    pub(super) ytd: f64,
    pub(super) tax: f64,
    pub(super) name: [u8; 10],
    pub(super) next_order: u32,
    pub(super) next_line: u32,
    pub(super) orders: Vec<Order>,
    pub(super) lines: Vec<Line>,
    pub(super) pending: VecDeque<u32>,
    pub(super) customers: Vec<Customer>,
    /// Customers of each last name.
    pub(super) by_last: Vec<Vec<u32>>,
}

pub(super) struct Warehouse {
    pub(super) ytd: f64,
    pub(super) tax: f64,
    pub(super) name: [u8; 10],
    pub(super) stock: Vec<Stock>,
    pub(super) districts: Vec<District>,
    pub(super) history: Vec<History>,
    pub(super) next_history: usize,
}

/// NURand of clause 2.1.6 with C = 123.
pub(super) fn nurand(rng: &mut Rng, a: u64, low: u64, high: u64) -> u64 {
    ((rng.range(0, a) | rng.range(low, high)) + 123) % (high - low + 1) + low
}

pub(super) fn items() -> Vec<Item> {
    let item = |i| Item { name: [b'i'; 24], data: [b'x'; 50], price: (i % 100) as f64 + 1.0, image: i as u32 };
    (0..ITEMS).map(item).collect()
}

impl Warehouse {
    pub(super) fn load(rng: &mut Rng) -> Warehouse {
        let stock = |_| Stock {
            quantity: rng.range(10, 100) as i32,
            ytd: 0,
            order_cnt: 0,
            dist: [[b'd'; 24]; DISTRICTS],
            data: [b's'; 50],
        };
        let stock = (0..ITEMS).map(stock).collect();
        let districts = (0..DISTRICTS).map(|_| District::load(rng)).collect();
        let payment = History { customer: 1, district: 1, amount: 1.0, data: [1; 24] };
        Warehouse {
            ytd: 300_000.0,
            tax: 0.1,
            name: [b'w'; 10],
            stock,
            districts,
            history: vec![payment; HISTORY],
            next_history: 0,
        }
    }
}

impl District {
    fn load(rng: &mut Rng) -> District {
        let mut by_last = vec![Vec::new(); NAMES];
        let customers = (0..CUSTOMERS).map(|c| {
            let last = if c < NAMES { c } else { nurand(rng, 255, 0, NAMES as u64 - 1) as usize };
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
        let mut orders = vec![Order { customer: 0, entry: 1, carrier: 1, lines: 5, first_line: 0 }; ORDERS];
        let line = Line { item: 0, supply: 1, quantity: 5, amount: 1.0, delivery: 1, dist: [b'd'; 24] };
        let mut lines = vec![line; LINES];
        let (mut pending, mut next_line) = (VecDeque::with_capacity(ORDERS), 0);
        for (o, order) in orders.iter_mut().enumerate().take(CUSTOMERS) {
            let count = rng.range(5, 15) as u8;
            let is_delivered = o < DELIVERED;
            let carrier = u8::from(is_delivered);
            *order = Order { customer: o as u32, entry: 0, carrier, lines: count, first_line: next_line };
            for _ in 0..count {
                lines[next_line as usize % LINES].item = rng.below(ITEMS as u64) as u32;
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
            next_order: CUSTOMERS as u32,
            next_line,
            orders,
            lines,
            pending,
            customers,
            by_last,
        }
    }
}
