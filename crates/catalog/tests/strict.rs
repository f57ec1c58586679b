//! Derived tables compile where unsafe code is forbidden and every public item has documentation.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs)]

use seriatim_catalog::{Table as _, Text};

/// Public tables, as an application's crate has them.
pub mod tables {
    use seriatim_catalog::{Bytes, Text};
    use seriatim_macros::Table;

    /// A customer.
    #[derive(Table)]
    #[table(key(region, id), hash, crate = "seriatim_catalog")]
    #[table(index(name = "by_name", columns(name)))]
    pub struct Customer {
        /// Where.
        pub region: u16,
        /// Which.
        pub id: u64,
        /// Who.
        #[column(immutable)]
        pub name: Text<16>,
        /// Nobody's business.
        secret: Option<Bytes<8>>,
    }

    impl Customer {
        /// A customer without secrets.
        pub fn new(region: u16, id: u64, name: Text<16>) -> Customer {
            Customer { region, id, name, secret: None }
        }

        /// Whether there is none.
        pub fn is_plain(&self) -> bool {
            self.secret.is_none()
        }
    }
}

#[test]
fn a_public_table_is_used_from_elsewhere() {
    let customer = tables::Customer::new(1, 2, Text::literal("ann"));
    assert!(customer.is_plain());
    assert_eq!(customer.key(), (1, 2));
    assert_eq!(tables::Customer::BY_NAME.id().index(), 0);
}
