//! A sum of decimals may leave their range: it is no decimal before that was looked at.

use seriatim::{Abort, Decimal, Handle, Table, Tx};

#[derive(Table)]
#[table(name = "account", key(id))]
struct Account {
    id: u32,
    balance: Decimal<2>,
}

fn credit(tx: &Tx, accounts: &Handle<Account>, amount: Decimal<2>) -> Result<(), Abort> {
    tx.update(accounts, &7, |account| account.set_balance(account.balance() + amount))?;
    Ok(())
}

fn main() {}
