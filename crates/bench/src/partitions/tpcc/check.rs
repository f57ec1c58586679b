//! The checks after a run: conditions 1 to 4 of clause 3.3.2, and that warehouses match the results of clients.

use seriatim_workload::roofline::data::{District, Warehouse, seen};

use super::super::roles::Ends;
use super::client::{Book, ClientResults};
use super::{Plan, Tpcc};

/// The loaded amounts of each warehouse and customer.
const YTD: f64 = 300_000.0;
const YTD_PAYMENT: f64 = 10.0;

pub(super) fn check(plan: &Plan, ends: &Ends<Tpcc, ClientResults>) -> Result<(), String> {
    let mut checked = 0;
    for (number, warehouse) in ends.partitions().flat_map(|partition| partition.rows.numbered()) {
        let mut book = Book::default();
        ends.results.iter().for_each(|results| book.add(&results.books[usize::from(number)]));
        conditions(warehouse).map_err(|wrong| format!("warehouse {number}: {wrong}"))?;
        books(plan, warehouse, &book).map_err(|wrong| format!("warehouse {number}: {wrong}"))?;
        checked += 1;
    }
    let wanted = plan.warehouses;
    if checked == wanted { Ok(()) } else { Err(format!("{checked} warehouses are there, of {wanted}")) }
}

fn equal(what: &str, there: f64, wanted: f64) -> Result<(), String> {
    // Amounts have hundredths, and are added as floating-point numbers.
    if (there - wanted).abs() <= 0.004 + wanted.abs() * 1e-9 {
        Ok(())
    } else {
        Err(format!("{what}: {there}, expected {wanted}"))
    }
}

fn conditions(warehouse: &Warehouse) -> Result<(), String> {
    let districts = warehouse.districts.iter();
    equal("1: W_YTD, the sum of D_YTD", warehouse.ytd, districts.clone().map(|district| district.ytd).sum())?;
    for (d, district) in districts.enumerate() {
        of_district(district).map_err(|wrong| format!("district {d}: {wrong}"))?;
    }
    Ok(())
}

fn of_district(district: &District) -> Result<(), String> {
    let pending = &district.pending;
    if let (Some(first), Some(last)) = (pending.front(), pending.back()) {
        // The newest order has not been delivered, unless all orders have.
        equal("2: D_NEXT_O_ID - 1, the last new order", last + 1, district.next_order)?;
        equal("3: new orders without gaps", pending.len() as u32, last + 1 - first)?;
    }
    // The orders that the ring still has, with their lines.
    let kept = (district.orders.len() as u32 / 4).min(district.next_order);
    let mut next_line = district.next_line;
    for number in (district.next_order - kept..district.next_order).rev() {
        let order = seen(&district.orders, number);
        let lines = next_line.wrapping_sub(order.first_line);
        equal(&format!("4: lines of order {number}, O_OL_CNT"), lines, u32::from(order.lines))?;
        next_line = order.first_line;
    }
    return Ok(());

    fn equal(what: &str, there: u32, wanted: u32) -> Result<(), String> {
        super::check::equal(what, there.into(), wanted.into())
    }
}

fn books(plan: &Plan, warehouse: &Warehouse, book: &Book) -> Result<(), String> {
    let loaded = plan.extent.customers as u64;
    let customers = || warehouse.districts.iter().flat_map(|district| &district.customers);
    let number = |of: u64| of as f64;
    let entered = warehouse.districts.iter().map(|district| u64::from(district.next_order) - loaded).sum();
    equal("orders entered", number(entered), number(book.orders))?;
    let supplied = warehouse.stock.iter().map(|stock| u64::from(stock.order_cnt)).sum();
    equal("lines supplied", number(supplied), number(book.supplied))?;
    let quantity: i64 = warehouse.stock.iter().map(|stock| i64::from(stock.ytd)).sum();
    equal("items supplied", quantity as f64, number(book.quantity))?;
    equal("payments taken", f64::from(warehouse.next_history), number(book.payments))?;
    equal("sum of payments taken", warehouse.ytd - YTD, number(book.taken) / 100.0)?;
    let paid = customers().map(|customer| u64::from(customer.payment_cnt) - 1).sum();
    equal("payments of customers", number(paid), number(book.customers))?;
    let paid: f64 = customers().map(|customer| customer.ytd_payment - YTD_PAYMENT).sum();
    equal("sum of payments of customers", paid, number(book.paid) / 100.0)?;
    Ok(())
}

impl Book {
    fn add(&mut self, other: &Book) {
        self.orders += other.orders;
        self.supplied += other.supplied;
        self.quantity += other.quantity;
        self.payments += other.payments;
        self.taken += other.taken;
        self.customers += other.customers;
        self.paid += other.paid;
    }
}
