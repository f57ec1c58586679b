//! How many rows there are (clause 1.2.1). Everything but the number of districts can be scaled down for tests.

/// Districts of a warehouse. The stock table has a column for each, so this does not scale.
pub const DISTRICTS: u8 = 10;
/// Most lines of an order (clause 2.4.1.3).
pub const LINES_MAX: usize = 15;
/// Fewest lines of an order.
pub const LINES_MIN: usize = 5;
/// Different last names (clause 4.3.2.3).
pub const LAST_NAMES: u32 = 1000;

/// Rows of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u16,
    /// Rows of item, and of stock per warehouse.
    pub items: u32,
    /// Customers of a district. A district also starts with this many orders, one for each customer.
    pub customers: u32,
    /// Orders of a district that are not delivered at the start: the last of them.
    pub undelivered: u32,
}

impl Scale {
    /// The specification's numbers: 100,000 items, 3,000 customers a district, 900 of their orders undelivered.
    pub const fn spec(warehouses: u16) -> Scale {
        Scale { warehouses, items: 100_000, customers: 3000, undelivered: 900 }
    }

    /// A hundredth of that, for tests.
    pub const fn small(warehouses: u16) -> Scale {
        Scale { warehouses, items: 1000, customers: 30, undelivered: 9 }
    }

    /// Undelivered orders of a district with this many customers: 900 of 3,000 (clause 4.3.3.1).
    pub const fn undelivered_of(customers: u32) -> u32 {
        (customers as u64 * 3 / 10) as u32
    }

    /// Different last names among the customers of a district.
    pub fn last_names(&self) -> u32 {
        LAST_NAMES.min(self.customers)
    }

    /// Warehouse numbers.
    pub fn warehouse_ids(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.warehouses
    }

    /// Rows that loading inserts, with the mean of order lines.
    pub fn rows(&self) -> u64 {
        let district = u64::from(self.customers) * (3 + 10) + u64::from(self.undelivered) + 1;
        let warehouse = 1 + u64::from(self.items) + u64::from(DISTRICTS) * district;
        u64::from(self.items) + u64::from(self.warehouses) * warehouse
    }
}

/// District numbers.
pub fn district_ids() -> impl Iterator<Item = u8> + Clone {
    1..=DISTRICTS
}
