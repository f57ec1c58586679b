//! An answer that says that a row may be missing is used, or dropped in so many words.

#![deny(unused_must_use)]

use seriatim::{Abort, Decimal, Handle, Table, Tx};

#[derive(Table)]
#[table(name = "account", key(id))]
struct Account {
    id: u32,
    balance: Decimal<2>,
    visits: u32,
}

fn dropped(tx: &Tx, accounts: &Handle<Account>) -> Result<(), Abort> {
    tx.update_if(accounts, &7, |account| account.set_visits(1))?;
    tx.update_columns_if(accounts, &7, AccountRow::VISITS, |account| account.set_visits(1))?;
    tx.add_if(accounts, &7, AccountRow::VISITS, 1)?;
    tx.delete_if(accounts, &7)?;
    // These are right.
    let _ = tx.delete_if(accounts, &7)?;
    tx.add(accounts, &7, AccountRow::VISITS, 1)?;
    tx.update(accounts, &7, |account| account.set_visits(1))
}

fn the_error_of_a_change(tx: &Tx, accounts: &Handle<Account>, amount: Decimal<2>) -> Result<(), Abort> {
    tx.update(accounts, &7, |account| -> Result<(), Abort> {
        account.set_balance((account.balance() + amount)?);
        Ok(())
    })?;
    // This is right.
    tx.update(accounts, &7, |account| -> Result<(), Abort> {
        account.set_balance((account.balance() + amount)?);
        Ok(())
    })?
}

fn main() {}
