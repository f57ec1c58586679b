//! The consistency conditions (clauses 3.3.2.1 to 3.3.2.12), and more that hold of this population and these
//! transactions.
//!
//! A check collects totals part by part and compares them at the end. [`check`] collects all parts in one transaction,
//! so it may run beside writers wherever the protocol gives snapshots. [`check_in_parts`] gives each part its own, so
//! that a protocol without snapshots has a bounded read set to validate. It needs a database without writers. Workload
//! and auditor are different code: nothing here is shared with the transactions but the schema.

use std::collections::BTreeMap;

use super::scale::{DISTRICTS, Scale, district_ids};
use super::schema::{History, Tables};
use crate::{LoadError, Report, Rule};
use seriatim::{Abort, ReadTx, Session, Table};

macro_rules! rules {
    ($($name:ident $clause:literal $says:literal)*) => {
        $(static $name: Rule = Rule { clause: $clause, says: $says };)*
        /// Every rule of a check, in order.
        pub static RULES: &[&Rule] = &[$(&$name),*];
    };
}

rules! {
    WAREHOUSE_YTD "3.3.2.1" "W_YTD = sum(D_YTD)"
    NEXT_ORDER "3.3.2.2" "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)"
    QUEUE_DENSE "3.3.2.3" "max(NO_O_ID) - min(NO_O_ID) + 1 = count(NEW-ORDER)"
    LINES_IN_ALL "3.3.2.4" "sum(O_OL_CNT) = count(ORDER-LINE)"
    CARRIER_QUEUE "3.3.2.5" "O_CARRIER_ID is null = the order is in NEW-ORDER"
    LINES_PER_ORDER "3.3.2.6" "O_OL_CNT = count(ORDER-LINE) of the order"
    DELIVERED_LINES "3.3.2.7" "OL_DELIVERY_D is null = O_CARRIER_ID is null"
    WAREHOUSE_HISTORY "3.3.2.8" "W_YTD = sum(H_AMOUNT)"
    DISTRICT_HISTORY "3.3.2.9" "D_YTD = sum(H_AMOUNT)"
    CUSTOMER_BALANCE "3.3.2.10" "C_BALANCE = sum(delivered OL_AMOUNT) - sum(H_AMOUNT)"
    // The specification's 2,100 is what the population delivered; deliveries since are counted by customers.
    DELIVERED_ORDERS "3.3.2.11" "count(ORDER) - count(NEW-ORDER) = delivered at load + sum(C_DELIVERY_CNT)"
    CUSTOMER_PAID "3.3.2.12" "C_BALANCE + C_YTD_PAYMENT = sum(delivered OL_AMOUNT)"
    COUNTS "counts" "rows = rows by population and transactions"
    PAYMENTS "payments" "C_PAYMENT_CNT = count(HISTORY) of the customer"
    INDEXES "indexes" "entries of the secondary index = rows of the table"
    STOCK_ORDERS "stock 1" "sum(S_ORDER_CNT) = lines ordered of the warehouse since loading"
    STOCK_YTD "stock 2" "sum(S_YTD) = quantities ordered of the warehouse since loading"
    STOCK_REMOTE "stock 3" "sum(S_REMOTE_CNT) = lines ordered of the warehouse by others since loading"
    ALL_LOCAL "all local" "O_ALL_LOCAL = every line is supplied by the order's warehouse"
}

/// Checks everything in one transaction.
///
/// # Errors
/// A conflict, where the protocol has no snapshots.
pub fn check(tx: &ReadTx, tables: &Tables, scale: Scale) -> Result<Report, Abort> {
    let mut totals = Totals::new(scale);
    for part in parts(scale) {
        let mut next = Some(part);
        while let Some(part) = next {
            let found = collect(tx, tables, scale, part)?;
            next = totals.add(part, found);
        }
    }
    Ok(totals.compare())
}

/// Checks everything, each part in a transaction of its own.
///
/// # Errors
/// When one of them fails.
pub(super) fn check_in_parts(session: &mut Session, tables: &Tables, scale: Scale) -> Result<Report, LoadError> {
    let mut totals = Totals::new(scale);
    for part in parts(scale) {
        let mut next = Some(part);
        while let Some(part) = next {
            let found = session.snapshot(|tx| collect(tx, tables, scale, part))?.into_value();
            next = totals.add(part, found);
        }
    }
    Ok(totals.compare())
}

/// The rows that one transaction of the check reads.
#[derive(Clone, Copy, Debug)]
enum CheckPart {
    Items,
    Warehouse {
        w_id: u16,
    },
    District {
        w_id: u16,
        d_id: u8,
    },
    /// History from a key on, up to a bounded number of rows.
    History {
        from: HistoryKey,
    },
}

fn parts(scale: Scale) -> impl Iterator<Item = CheckPart> {
    let warehouses = scale.warehouse_ids().map(|w_id| CheckPart::Warehouse { w_id });
    let districts =
        scale.warehouse_ids().flat_map(|w_id| district_ids().map(move |d_id| CheckPart::District { w_id, d_id }));
    [CheckPart::Items, CheckPart::History { from: (0, 0, 0) }].into_iter().chain(warehouses).chain(districts)
}

/// The key of a history row.
type HistoryKey = <History as Table>::Key;

/// History rows of one part.
const HISTORY_ROWS: usize = 1 << 16;

/// The result of a part.
enum PartResult {
    Items(u64),
    Warehouse(WarehouseTotals),
    District(Box<DistrictTotals>),
    History { payments: Vec<(Customer, DistrictKey, i64)>, next: Option<HistoryKey> },
}

/// A warehouse and a district.
type DistrictKey = (u16, u8);
/// A customer, by warehouse, district and number.
type Customer = (u16, u8, u32);

/// Cents and counts of a warehouse's own row and its stock.
#[derive(Clone, Debug, Default)]
struct WarehouseTotals {
    ytd: Option<i64>,
    stock_rows: u64,
    order_cnt: u64,
    stock_ytd: u64,
    remote_cnt: u64,
}

/// The orders of a warehouse since loading.
#[derive(Clone, Copy, Debug, Default)]
struct Supplied {
    lines: u64,
    quantity: u64,
    remote: u64,
}

/// Cents and counts of a district.
#[derive(Clone, Debug, Default)]
struct DistrictTotals {
    ytd: Option<i64>,
    next_o_id: u32,
    customers: Vec<Option<CustomerTotals>>,
    delivered_amount: Vec<i64>,
    names: u64,
    names_in_order: bool,
    queue: Vec<u32>,
    orders: Vec<OrderTotals>,
    orders_by_customer: u64,
    supplied: BTreeMap<u16, Supplied>,
    lines: u64,
    /// Lines whose order does not exist.
    strays: u64,
}

#[derive(Clone, Debug)]
struct CustomerTotals {
    balance: i64,
    ytd_payment: i64,
    payment_cnt: u32,
    delivery_cnt: u32,
}

#[derive(Clone, Debug)]
struct OrderTotals {
    o_id: u32,
    c_id: u32,
    has_carrier: bool,
    ol_cnt: u8,
    all_local: bool,
    lines: u32,
    lines_delivered: u32,
    lines_local: u32,
    amount_delivered: i64,
}

fn collect(tx: &ReadTx, tables: &Tables, scale: Scale, part: CheckPart) -> Result<PartResult, Abort> {
    Ok(match part {
        CheckPart::Items => {
            let mut items = 0;
            for i_id in 1..=scale.items + 1 {
                items += u64::from(tx.get(&tables.item, &i_id)?.is_some());
            }
            PartResult::Items(items)
        }
        CheckPart::Warehouse { w_id } => PartResult::Warehouse(collect_warehouse(tx, tables, scale, w_id)?),
        CheckPart::District { w_id, d_id } => {
            PartResult::District(Box::new(collect_district(tx, tables, scale, w_id, d_id)?))
        }
        CheckPart::History { from } => collect_history(tx, tables, from)?,
    })
}

fn collect_history(tx: &ReadTx, tables: &Tables, from: HistoryKey) -> Result<PartResult, Abort> {
    let (mut payments, mut next) = (Vec::new(), None);
    for row in tx.scan(&tables.history, from..) {
        let row = row?;
        if payments.len() == HISTORY_ROWS {
            next = Some((row.h_w_id(), row.h_source(), row.h_number()));
            break;
        }
        let customer = (row.h_c_w_id(), row.h_c_d_id(), row.h_c_id());
        payments.push((customer, (row.h_w_id(), row.h_d_id()), row.h_amount().units()));
    }
    Ok(PartResult::History { payments, next })
}

fn collect_warehouse(tx: &ReadTx, tables: &Tables, scale: Scale, w_id: u16) -> Result<WarehouseTotals, Abort> {
    let ytd = tx.get(&tables.warehouse, &w_id)?.map(|row| row.w_ytd().units());
    let mut totals = WarehouseTotals { ytd, ..WarehouseTotals::default() };
    for i_id in 1..=scale.items + 1 {
        if let Some(stock) = tx.get(&tables.stock, &(w_id, i_id))? {
            totals.stock_rows += 1;
            totals.order_cnt += u64::from(stock.s_order_cnt());
            totals.stock_ytd += u64::from(stock.s_ytd());
            totals.remote_cnt += u64::from(stock.s_remote_cnt());
        }
    }
    Ok(totals)
}

fn collect_district(tx: &ReadTx, tables: &Tables, scale: Scale, w_id: u16, d_id: u8) -> Result<DistrictTotals, Abort> {
    let place = (w_id, d_id);
    let mut totals = DistrictTotals { names_in_order: true, ..DistrictTotals::default() };
    if let Some(row) = tx.get(&tables.district, &place)? {
        (totals.ytd, totals.next_o_id) = (Some(row.d_ytd().units()), row.d_next_o_id());
    }
    for c_id in 1..=scale.customers + 1 {
        totals.customers.push(tx.get(&tables.customer, &(w_id, d_id, c_id))?.map(|row| CustomerTotals {
            balance: row.c_balance().units(),
            ytd_payment: row.c_ytd_payment().units(),
            payment_cnt: row.c_payment_cnt(),
            delivery_cnt: row.c_delivery_cnt(),
        }));
    }
    let mut before = None;
    for row in tx.find_by(&tables.customer_by_name, &place) {
        let row = row?;
        let name = Some((row.c_last(), row.c_first()));
        totals.names += 1;
        totals.names_in_order &= before <= name;
        before = name;
    }
    for row in tx.prefix(&tables.new_order, &place) {
        totals.queue.push(row?.no_o_id());
    }
    for row in tx.prefix(&tables.order, &place) {
        let row = row?;
        totals.orders.push(OrderTotals {
            o_id: row.o_id(),
            c_id: row.o_c_id(),
            has_carrier: row.o_carrier_id().is_some(),
            ol_cnt: row.o_ol_cnt(),
            all_local: row.o_all_local(),
            lines: 0,
            lines_delivered: 0,
            lines_local: 0,
            amount_delivered: 0,
        });
    }
    for row in tx.find_by(&tables.order_by_customer, &place) {
        row?;
        totals.orders_by_customer += 1;
    }
    let mut at = 0;
    for row in tx.prefix(&tables.order_line, &place) {
        let row = row?;
        totals.lines += 1;
        if row.ol_o_id() > scale.customers {
            let supplied = totals.supplied.entry(row.ol_supply_w_id()).or_default();
            supplied.lines += 1;
            supplied.quantity += u64::from(row.ol_quantity());
            supplied.remote += u64::from(row.ol_supply_w_id() != w_id);
        }
        while totals.orders.get(at).is_some_and(|order| order.o_id < row.ol_o_id()) {
            at += 1;
        }
        match totals.orders.get_mut(at) {
            Some(order) if order.o_id == row.ol_o_id() => {
                order.lines += 1;
                order.lines_local += u32::from(row.ol_supply_w_id() == w_id);
                if row.ol_delivery_d().is_some() {
                    order.lines_delivered += 1;
                    order.amount_delivered += row.ol_amount().units();
                }
            }
            _ => totals.strays += 1,
        }
    }
    totals.delivered_amount = vec![0; totals.customers.len()];
    for order in &totals.orders {
        if let Some(amount) = totals.delivered_amount.get_mut((order.c_id as usize).wrapping_sub(1)) {
            *amount += order.amount_delivered;
        }
    }
    Ok(totals)
}

/// The sums over all parts.
struct Totals {
    scale: Scale,
    items: u64,
    warehouses: BTreeMap<u16, WarehouseTotals>,
    districts: BTreeMap<DistrictKey, DistrictTotals>,
    /// Cents by the district that took them.
    taken: BTreeMap<DistrictKey, i64>,
    /// Cents and payments by the customer that paid; index 0 is customer 1.
    paid: BTreeMap<DistrictKey, Vec<(i64, u32)>>,
    /// Payments by customers there are not.
    strays: u64,
}

impl Totals {
    fn new(scale: Scale) -> Totals {
        let places = scale.warehouse_ids().flat_map(|w_id| district_ids().map(move |d_id| (w_id, d_id)));
        let paid = places.map(|place| (place, vec![(0, 0); scale.customers as usize])).collect();
        Totals {
            scale,
            items: 0,
            warehouses: BTreeMap::new(),
            districts: BTreeMap::new(),
            taken: BTreeMap::new(),
            paid,
            strays: 0,
        }
    }

    /// Adds the result of a part. Returns the part that continues it, if it has more.
    fn add(&mut self, part: CheckPart, found: PartResult) -> Option<CheckPart> {
        match (part, found) {
            (CheckPart::Warehouse { w_id }, PartResult::Warehouse(totals)) => {
                self.warehouses.insert(w_id, totals);
            }
            (CheckPart::District { w_id, d_id }, PartResult::District(totals)) => {
                self.districts.insert((w_id, d_id), *totals);
            }
            (_, PartResult::Items(items)) => self.items = items,
            (_, PartResult::History { payments, next }) => {
                for ((c_w_id, c_d_id, c_id), place, amount) in payments {
                    *self.taken.entry(place).or_default() += amount;
                    let customers = self.paid.get_mut(&(c_w_id, c_d_id));
                    match customers.and_then(|customers| customers.get_mut((c_id as usize).wrapping_sub(1))) {
                        Some((paid, count)) => (*paid, *count) = (*paid + amount, *count + 1),
                        None => self.strays += 1,
                    }
                }
                return next.map(|from| CheckPart::History { from });
            }
            (_, PartResult::Warehouse(_) | PartResult::District(_)) => unreachable!("a part finds what it looked for"),
        }
        None
    }

    fn compare(&self) -> Report {
        let mut report = Report::new(RULES);
        report.equal(&COUNTS, "item", self.items, u64::from(self.scale.items));
        report.equal(&COUNTS, "history of customers that do not exist", self.strays, 0);
        for (&w_id, warehouse) in &self.warehouses {
            self.compare_warehouse(&mut report, w_id, warehouse);
        }
        for (&place, district) in &self.districts {
            self.compare_district(&mut report, place, district);
            compare_orders(&mut report, place, district);
            self.compare_customers(&mut report, place, district);
        }
        report
    }

    fn compare_warehouse(&self, report: &mut Report, w_id: u16, warehouse: &WarehouseTotals) {
        let at = format!("warehouse {w_id}");
        let Some(ytd) = warehouse.ytd else { return report.equal(&COUNTS, &at, 0, 1) };
        let districts = || self.districts.range((w_id, 1)..=(w_id, DISTRICTS)).map(|(_, district)| district);
        let taken: i64 = self.taken.range((w_id, 0)..=(w_id, u8::MAX)).map(|(_, amount)| amount).sum();
        report.equal(&WAREHOUSE_YTD, &at, ytd, districts().filter_map(|district| district.ytd).sum());
        report.equal(&WAREHOUSE_HISTORY, &at, ytd, taken);
        report.equal(&COUNTS, format_args!("stock of {at}"), warehouse.stock_rows, self.scale.items.into());
        let supplied = self.districts.values().filter_map(|district| district.supplied.get(&w_id));
        let sum = supplied.fold(Supplied::default(), |sum, supplied| Supplied {
            lines: sum.lines + supplied.lines,
            quantity: sum.quantity + supplied.quantity,
            remote: sum.remote + supplied.remote,
        });
        report.equal(&STOCK_ORDERS, &at, warehouse.order_cnt, sum.lines);
        report.equal(&STOCK_YTD, &at, warehouse.stock_ytd, sum.quantity);
        report.equal(&STOCK_REMOTE, &at, warehouse.remote_cnt, sum.remote);
    }

    fn compare_district(&self, report: &mut Report, place: DistrictKey, district: &DistrictTotals) {
        let at = At(place);
        let Some(ytd) = district.ytd else { return report.equal(&COUNTS, at, 0, 1) };
        report.equal(&DISTRICT_HISTORY, at, ytd, self.taken.get(&place).copied().unwrap_or(0));
        let (orders, queue) = (&district.orders, &district.queue);
        let last = i64::from(district.next_o_id) - 1;
        report.equal(&NEXT_ORDER, at, last, orders.last().map_or(0, |order| order.o_id.into()));
        // Clauses 3.3.2.2 and 3.3.2.3 do not apply to an empty queue.
        if let (Some(&first), Some(&newest)) = (queue.first(), queue.last()) {
            report.equal(&NEXT_ORDER, at, last, newest.into());
            report.equal(&QUEUE_DENSE, at, u64::from(newest - first) + 1, queue.len() as u64);
        }
        report.equal(&LINES_IN_ALL, at, orders.iter().map(|order| u64::from(order.ol_cnt)).sum(), district.lines);
        let deliveries: u64 =
            district.customers.iter().flatten().map(|customer| u64::from(customer.delivery_cnt)).sum();
        let delivered = u64::from(self.scale.customers - self.scale.undelivered) + deliveries;
        report.equal(&DELIVERED_ORDERS, at, orders.len() as i64 - queue.len() as i64, delivered as i64);
        let customers = district.customers.iter().flatten().count() as u64;
        report.equal(&COUNTS, format_args!("customers of {at}"), customers, self.scale.customers.into());
        report.equal(&COUNTS, format_args!("lines without order in {at}"), district.strays, 0);
        report.equal(&INDEXES, format_args!("customers by name of {at}"), district.names, customers);
        report.equal(&INDEXES, format_args!("order of names in {at}"), district.names_in_order, true);
        let orders = orders.len() as u64;
        report.equal(&INDEXES, format_args!("orders by customer of {at}"), district.orders_by_customer, orders);
    }

    fn compare_customers(&self, report: &mut Report, place: DistrictKey, district: &DistrictTotals) {
        let paid = self.paid.get(&place).map_or(&[][..], Vec::as_slice);
        let customers = district.customers.iter().zip(paid).zip(&district.delivered_amount).zip(1..);
        for (((customer, &(paid, payments)), &delivered), c_id) in customers {
            let Some(customer) = customer else { continue };
            let at = DenseNumbers("customer", place, c_id);
            report.equal(&CUSTOMER_BALANCE, at, customer.balance, delivered - paid);
            report.equal(&CUSTOMER_PAID, at, customer.balance + customer.ytd_payment, delivered);
            report.equal(&PAYMENTS, at, customer.payment_cnt, payments);
        }
    }
}

fn compare_orders(report: &mut Report, place: DistrictKey, district: &DistrictTotals) {
    let mut queue = district.queue.iter().copied().peekable();
    let mut matched = 0;
    for order in &district.orders {
        while queue.next_if(|&o_id| o_id < order.o_id).is_some() {}
        let is_queued = queue.peek() == Some(&order.o_id);
        matched += usize::from(is_queued);
        let at = DenseNumbers("order", place, order.o_id);
        report.equal(&CARRIER_QUEUE, at, !order.has_carrier, is_queued);
        report.equal(&LINES_PER_ORDER, at, u32::from(order.ol_cnt), order.lines);
        report.equal(&DELIVERED_LINES, at, order.lines_delivered, if order.has_carrier { order.lines } else { 0 });
        report.equal(&ALL_LOCAL, at, order.all_local, order.lines_local == order.lines);
    }
    report.equal(&COUNTS, format_args!("queued orders of {}", At(place)), district.queue.len(), matched);
}

/// A district, for reports.
#[derive(Clone, Copy)]
struct At(DistrictKey);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (w_id, d_id) = self.0;
        write!(f, "warehouse {w_id} district {d_id}")
    }
}

/// An order or a customer, for reports.
#[derive(Clone, Copy)]
struct DenseNumbers(&'static str, DistrictKey, u32);

impl std::fmt::Display for DenseNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", At(self.1), self.0, self.2)
    }
}
