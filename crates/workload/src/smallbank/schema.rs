//! The three tables: accounts from names to customers, savings and checking balances by customer.
//!
//! All are hashed: SmallBank reaches every row by its key.

use seriatim::{Database, Decimal, Handle, SchemaError, Table, Text};

/// An amount in dollars and cents.
pub type Money = Decimal<2>;
/// A customer's name.
pub type Name = Text<12>;

/// ACCOUNT: the customer of a name.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "accounts", key(name), hash)]
pub struct Account {
    /// The name.
    pub name: Name,
    /// The customer's number, from 0.
    pub customer: u64,
}

/// SAVING: a customer's savings, never negative.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "savings", key(customer), hash)]
pub struct Savings {
    /// The customer's number.
    pub customer: u64,
    /// The balance.
    pub balance: Money,
}

/// CHECKING: a customer's checking balance, negative when overdrawn.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "checking", key(customer), hash)]
pub struct Checking {
    /// The customer's number.
    pub customer: u64,
    /// The balance.
    pub balance: Money,
}

/// Digits of a name, which every number of a customer fits.
const NAME_DIGITS: usize = 12;

/// The name of a customer: the number in twelve digits.
///
/// # Panics
/// If the number has more digits.
pub fn name(customer: u64) -> Name {
    let (mut digits, mut rest) = ([b'0'; NAME_DIGITS], customer);
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    assert_eq!(rest, 0, "customers have numbers of at most {NAME_DIGITS} digits");
    Text::truncated(std::str::from_utf8(&digits).expect("digits are ASCII"))
}

/// Handles of all tables.
#[derive(Clone)]
#[allow(missing_docs, reason = "named as the tables")]
pub struct Tables {
    pub accounts: Handle<Account>,
    pub savings: Handle<Savings>,
    pub checking: Handle<Checking>,
}

impl Tables {
    /// Creates all tables.
    ///
    /// # Errors
    /// When one exists with another definition.
    pub fn create(db: &Database) -> Result<Tables, SchemaError> {
        db.create_or_open::<Account>()?;
        db.create_or_open::<Savings>()?;
        db.create_or_open::<Checking>()?;
        Tables::open(db)
    }

    /// Finds all tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables, SchemaError> {
        Ok(Tables { accounts: db.table()?, savings: db.table()?, checking: db.table()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_numbers_in_twelve_digits() {
        assert_eq!(&*name(0), "000000000000");
        assert_eq!(&*name(1_234_567), "000001234567");
        assert_eq!(&*name(999_999_999_999), "999999999999");
    }
}
