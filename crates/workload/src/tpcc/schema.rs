//! The nine tables of TPC-C clause 1.3, with its column names and sizes.
//!
//! Keys: every primary key fits eight bytes, so that all primary indexes compare integers. (w u16, d u8, c u32) has 7
//! bytes, and (w u16, d u8, o u32, ol u8) has 8. History has no key in the specification; it gets a surrogate, see
//! [`History::h_id`].
//!
//! Organization: tables reached by point access are hashed. Queues, and tables read in ranges, are ordered;
//! so is history, because a terminal then appends at one place.
//!
//! `immutable` parts a row in two, which saves copying on update and costs a second block per insert and a
//! second access per read. It is used where the unchanging part is large and updates are frequent: warehouse,
//! district, customer, stock. An order line is updated once in its life and is a single cache line whole;
//! there it would cost more than it saves.

use seriatim::catalog::{Organization, TableDef, kind};
use seriatim::{Database, Decimal, Handle, IndexHandle, SchemaError, Table, Text, Timestamp};

/// An amount in dollars and cents.
pub type Money = Decimal<2>;
/// A tax or discount, a fraction of one in ten-thousandths.
pub type Rate = Decimal<4>;

/// Clause 1.3, WAREHOUSE.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "warehouse", key(w_id), hash)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct Warehouse {
    #[column(immutable)]
    pub w_id: u16,
    #[column(immutable)]
    pub w_name: Text<10>,
    #[column(immutable)]
    pub w_street_1: Text<20>,
    #[column(immutable)]
    pub w_street_2: Text<20>,
    #[column(immutable)]
    pub w_city: Text<20>,
    #[column(immutable)]
    pub w_state: Text<2>,
    #[column(immutable)]
    pub w_zip: Text<9>,
    #[column(immutable)]
    pub w_tax: Rate,
    pub w_ytd: Money,
}

/// Clause 1.3, DISTRICT.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "district", key(d_w_id, d_id), hash)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct District {
    #[column(immutable)]
    pub d_w_id: u16,
    #[column(immutable)]
    pub d_id: u8,
    #[column(immutable)]
    pub d_name: Text<10>,
    #[column(immutable)]
    pub d_street_1: Text<20>,
    #[column(immutable)]
    pub d_street_2: Text<20>,
    #[column(immutable)]
    pub d_city: Text<20>,
    #[column(immutable)]
    pub d_state: Text<2>,
    #[column(immutable)]
    pub d_zip: Text<9>,
    #[column(immutable)]
    pub d_tax: Rate,
    pub d_ytd: Money,
    pub d_next_o_id: u32,
}

/// Clause 1.3, CUSTOMER. `c_data` is long text, because one payment in twenty changes its 500 characters and the others
/// should not copy them.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "customer", key(c_w_id, c_d_id, c_id), hash)]
#[table(index(name = "by_name", columns(c_w_id, c_d_id, c_last, c_first), ordered))]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct Customer {
    #[column(immutable)]
    pub c_w_id: u16,
    #[column(immutable)]
    pub c_d_id: u8,
    #[column(immutable)]
    pub c_id: u32,
    #[column(immutable)]
    pub c_first: Text<16>,
    #[column(immutable)]
    pub c_middle: Text<2>,
    #[column(immutable)]
    pub c_last: Text<16>,
    #[column(immutable)]
    pub c_street_1: Text<20>,
    #[column(immutable)]
    pub c_street_2: Text<20>,
    #[column(immutable)]
    pub c_city: Text<20>,
    #[column(immutable)]
    pub c_state: Text<2>,
    #[column(immutable)]
    pub c_zip: Text<9>,
    #[column(immutable)]
    pub c_phone: Text<16>,
    #[column(immutable)]
    pub c_since: Timestamp,
    #[column(immutable)]
    pub c_credit: Text<2>,
    #[column(immutable)]
    pub c_credit_lim: Money,
    #[column(immutable)]
    pub c_discount: Rate,
    pub c_balance: Money,
    pub c_ytd_payment: Money,
    pub c_payment_cnt: u32,
    pub c_delivery_cnt: u32,
    pub c_data: String,
}

/// Clause 1.3, HISTORY, with a surrogate key.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "history", key(h_w_id, h_source, h_number), ordered)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct History {
    /// The inserter: 0 is the loader, t + 1 is terminal t.
    pub h_source: u16,
    /// Its number among those of its source and warehouse.
    pub h_number: u32,
    pub h_c_w_id: u16,
    pub h_c_d_id: u8,
    pub h_c_id: u32,
    pub h_w_id: u16,
    pub h_d_id: u8,
    pub h_date: Timestamp,
    pub h_amount: Money,
    pub h_data: Text<24>,
}

/// Clause 1.3, NEW-ORDER: a queue of undelivered orders per district.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "new_order", key(no_w_id, no_d_id, no_o_id), ordered)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct NewOrder {
    pub no_w_id: u16,
    pub no_d_id: u8,
    pub no_o_id: u32,
}

/// Clause 1.3, ORDER.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "orders", key(o_w_id, o_d_id, o_id), ordered)]
#[table(index(name = "by_customer", columns(o_w_id, o_d_id, o_c_id, o_id), ordered, unique))]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct Order {
    pub o_w_id: u16,
    pub o_d_id: u8,
    pub o_id: u32,
    pub o_c_id: u32,
    pub o_entry_d: Timestamp,
    pub o_carrier_id: Option<u8>,
    pub o_ol_cnt: u8,
    pub o_all_local: bool,
}

/// Clause 1.3, ORDER-LINE.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "order_line", key(ol_w_id, ol_d_id, ol_o_id, ol_number), cluster(ol_w_id, ol_d_id, ol_o_id))]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct OrderLine {
    pub ol_w_id: u16,
    pub ol_d_id: u8,
    pub ol_o_id: u32,
    pub ol_number: u8,
    pub ol_i_id: u32,
    pub ol_supply_w_id: u16,
    pub ol_delivery_d: Option<Timestamp>,
    pub ol_quantity: u8,
    pub ol_amount: Money,
    pub ol_dist_info: Text<24>,
}

/// Clause 1.3, ITEM.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "item", key(i_id), replicated, hash, capacity = 100_000)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct Item {
    pub i_id: u32,
    pub i_im_id: u32,
    pub i_name: Text<24>,
    pub i_price: Money,
    pub i_data: Text<50>,
}

/// Clause 1.3, STOCK.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "stock", key(s_w_id, s_i_id), hash, capacity = 100_000)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct Stock {
    #[column(immutable)]
    pub s_w_id: u16,
    #[column(immutable)]
    pub s_i_id: u32,
    pub s_quantity: i16,
    #[column(immutable)]
    pub s_dist_01: Text<24>,
    #[column(immutable)]
    pub s_dist_02: Text<24>,
    #[column(immutable)]
    pub s_dist_03: Text<24>,
    #[column(immutable)]
    pub s_dist_04: Text<24>,
    #[column(immutable)]
    pub s_dist_05: Text<24>,
    #[column(immutable)]
    pub s_dist_06: Text<24>,
    #[column(immutable)]
    pub s_dist_07: Text<24>,
    #[column(immutable)]
    pub s_dist_08: Text<24>,
    #[column(immutable)]
    pub s_dist_09: Text<24>,
    #[column(immutable)]
    pub s_dist_10: Text<24>,
    pub s_ytd: u32,
    pub s_order_cnt: u32,
    pub s_remote_cnt: u32,
    #[column(immutable)]
    pub s_data: Text<50>,
}

macro_rules! dist {
    ($view:ident) => {
        impl $view<'_> {
            /// S_DIST_xx for district `d_id`, 1 to 10.
            #[inline]
            pub fn dist(&self, d_id: u8) -> &str {
                match d_id {
                    1 => self.s_dist_01(),
                    2 => self.s_dist_02(),
                    3 => self.s_dist_03(),
                    4 => self.s_dist_04(),
                    5 => self.s_dist_05(),
                    6 => self.s_dist_06(),
                    7 => self.s_dist_07(),
                    8 => self.s_dist_08(),
                    9 => self.s_dist_09(),
                    _ => self.s_dist_10(),
                }
            }
        }
    };
}

dist!(StockRow);
dist!(StockUpdate);

/// Handles of all tables and indexes.
#[derive(Clone)]
#[allow(missing_docs, reason = "named as the tables")]
pub struct Tables {
    pub warehouse: Handle<Warehouse>,
    pub district: Handle<District>,
    pub customer: Handle<Customer>,
    /// Customers by (w, d, last name, first name).
    pub customer_by_name: IndexHandle<Customer, (u16, u8, Text<16>, Text<16>)>,
    pub history: Handle<History>,
    pub new_order: Handle<NewOrder>,
    pub order: Handle<Order>,
    /// Orders by (w, d, c, o).
    pub order_by_customer: IndexHandle<Order, (u16, u8, u32, u32), kind::UniqueOrdered>,
    pub order_line: Handle<OrderLine>,
    pub item: Handle<Item>,
    pub stock: Handle<Stock>,
}

impl Tables {
    /// Creates all tables.
    ///
    /// # Errors
    /// When one exists with another definition.
    pub fn create(db: &Database) -> Result<Tables, SchemaError> {
        db.create_or_open::<Warehouse>()?;
        db.create_or_open::<District>()?;
        db.create_or_open::<Customer>()?;
        db.create_or_open::<History>()?;
        db.create_or_open::<NewOrder>()?;
        db.create_or_open::<Order>()?;
        db.create_or_open::<OrderLine>()?;
        db.create_or_open::<Item>()?;
        db.create_or_open::<Stock>()?;
        Tables::open(db)
    }

    /// Creates all tables, those too that are declared as hashed, as ordered ones: to compare.
    ///
    /// # Errors
    /// As [`Tables::create`].
    pub fn create_ordered(db: &Database) -> Result<Tables, SchemaError> {
        fn create<T: Table>(db: &Database) -> Result<(), SchemaError> {
            match db.declare(TableDef { organization: Organization::Ordered, ..T::definition() }) {
                Ok(_) | Err(SchemaError::Exists(_)) => Ok(()),
                Err(error) => Err(error),
            }
        }
        create::<Warehouse>(db)?;
        create::<District>(db)?;
        create::<Customer>(db)?;
        create::<Item>(db)?;
        create::<Stock>(db)?;
        Tables::create(db)
    }

    /// Finds all tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables, SchemaError> {
        let (customer, order) = (db.table::<Customer>()?, db.table::<Order>()?);
        Ok(Tables {
            warehouse: db.table()?,
            district: db.table()?,
            customer_by_name: customer.index(Customer::BY_NAME),
            customer,
            history: db.table()?,
            new_order: db.table()?,
            order_by_customer: order.index(Order::BY_CUSTOMER),
            order,
            order_line: db.table()?,
            item: db.table()?,
            stock: db.table()?,
        })
    }
}
