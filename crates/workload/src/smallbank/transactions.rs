//! The six transactions: functions of the database and their input.
//!
//! Each finds its customers by name first. A name or an account that is not there means a database loaded with other options,
//! and fails; what SmallBank itself asks to be rolled back is [`InsufficientFunds`].

use std::fmt;

use super::input::{
    AmalgamateInput, BalanceInput, DepositCheckingInput, SendPaymentInput, TransactSavingsInput, WriteCheckInput,
};
use super::schema::{Money, Tables};
use crate::Missing;
use seriatim::{Abort, ReadTx, Tx};

/// The rollback that SmallBank asks for: savings would become negative, or a payment exceeds what its payer has at hand.
#[derive(Debug)]
pub struct InsufficientFunds;

impl fmt::Display for InsufficientFunds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("insufficient funds")
    }
}

impl std::error::Error for InsufficientFunds {}

/// What a check costs beyond its amount if savings and checking together do not cover it.
pub const OVERDRAFT_PENALTY: Money = Money::ONE;

/// What a customer has: savings and checking together.
///
/// # Errors
/// A conflict where the protocol has no snapshots, or a row missing.
pub fn balance(tx: &ReadTx, tables: &Tables, input: &BalanceInput) -> Result<Money, Abort> {
    let Some(account) = tx.get(&tables.accounts, &input.name)? else { return Err(tx.abort(Missing("accounts"))) };
    let customer = account.customer();
    let Some(savings) = tx.get(&tables.savings, &customer)? else { return Err(tx.abort(Missing("savings"))) };
    let Some(checking) = tx.get(&tables.checking, &customer)? else { return Err(tx.abort(Missing("checking"))) };
    Ok(savings.balance() + checking.balance())
}

/// Adds to a customer's checking account.
///
/// # Errors
/// A conflict, or a row missing.
pub fn deposit_checking(tx: &Tx, tables: &Tables, input: &DepositCheckingInput) -> Result<(), Abort> {
    let Some(account) = tx.get(&tables.accounts, &input.name)? else { return Err(tx.abort(Missing("accounts"))) };
    let deposited = tx.update(&tables.checking, &account.customer(), |checking| {
        checking.set_balance(checking.balance() + input.amount);
    })?;
    if deposited.is_none() {
        return Err(tx.abort(Missing("checking")));
    }
    Ok(())
}

/// Adds to a customer's savings, or takes from them.
///
/// # Errors
/// [`InsufficientFunds`] if savings would become negative; a conflict, or a row missing.
pub fn transact_savings(tx: &Tx, tables: &Tables, input: &TransactSavingsInput) -> Result<(), Abort> {
    let Some(account) = tx.get(&tables.accounts, &input.name)? else { return Err(tx.abort(Missing("accounts"))) };
    let customer = account.customer();
    let Some(savings) = tx.get(&tables.savings, &customer)? else { return Err(tx.abort(Missing("savings"))) };
    let balance = savings.balance() + input.amount;
    if balance < Money::ZERO {
        return Err(tx.abort(InsufficientFunds));
    }
    tx.update(&tables.savings, &customer, |savings| savings.set_balance(balance))?;
    Ok(())
}

/// What Amalgamate moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmalgamateOutput {
    /// Out of the giver's savings.
    pub savings: Money,
    /// Out of the giver's checking account; negative if it was overdrawn.
    pub checking: Money,
}

/// Moves all that one customer has into another's checking account.
///
/// # Errors
/// A conflict, or a row missing.
pub fn amalgamate(tx: &Tx, tables: &Tables, input: &AmalgamateInput) -> Result<AmalgamateOutput, Abort> {
    let Some(from) = tx.get(&tables.accounts, &input.from)? else { return Err(tx.abort(Missing("accounts"))) };
    let Some(to) = tx.get(&tables.accounts, &input.to)? else { return Err(tx.abort(Missing("accounts"))) };
    let savings = tx.update(&tables.savings, &from.customer(), |savings| {
        let balance = savings.balance();
        savings.set_balance(Money::ZERO);
        balance
    })?;
    let Some(savings) = savings else { return Err(tx.abort(Missing("savings"))) };
    let checking = tx.update(&tables.checking, &from.customer(), |checking| {
        let balance = checking.balance();
        checking.set_balance(Money::ZERO);
        balance
    })?;
    let Some(checking) = checking else { return Err(tx.abort(Missing("checking"))) };
    let received = tx.update(&tables.checking, &to.customer(), |receiver| {
        receiver.set_balance(receiver.balance() + savings + checking);
    })?;
    if received.is_none() {
        return Err(tx.abort(Missing("checking")));
    }
    Ok(AmalgamateOutput { savings, checking })
}

/// Takes a check out of a customer's checking account, and a penalty if it is not covered; what was taken in all.
///
/// # Errors
/// A conflict, or a row missing.
pub fn write_check(tx: &Tx, tables: &Tables, input: &WriteCheckInput) -> Result<Money, Abort> {
    let Some(account) = tx.get(&tables.accounts, &input.name)? else { return Err(tx.abort(Missing("accounts"))) };
    let customer = account.customer();
    let Some(savings) = tx.get(&tables.savings, &customer)? else { return Err(tx.abort(Missing("savings"))) };
    let Some(checking) = tx.get(&tables.checking, &customer)? else { return Err(tx.abort(Missing("checking"))) };
    let covered = savings.balance() + checking.balance();
    let taken = if covered < input.amount { input.amount + OVERDRAFT_PENALTY } else { input.amount };
    tx.update(&tables.checking, &customer, |checking| checking.set_balance(checking.balance() - taken))?;
    Ok(taken)
}

/// Moves money from one checking account to another.
///
/// # Errors
/// [`InsufficientFunds`] if the payer's checking account does not hold the amount; a conflict, or a row missing.
pub fn send_payment(tx: &Tx, tables: &Tables, input: &SendPaymentInput) -> Result<(), Abort> {
    let Some(from) = tx.get(&tables.accounts, &input.from)? else { return Err(tx.abort(Missing("accounts"))) };
    let Some(to) = tx.get(&tables.accounts, &input.to)? else { return Err(tx.abort(Missing("accounts"))) };
    let Some(payer) = tx.get(&tables.checking, &from.customer())? else { return Err(tx.abort(Missing("checking"))) };
    if payer.balance() < input.amount {
        return Err(tx.abort(InsufficientFunds));
    }
    tx.update(&tables.checking, &from.customer(), |payer| payer.set_balance(payer.balance() - input.amount))?;
    let received = tx.update(&tables.checking, &to.customer(), |receiver| {
        receiver.set_balance(receiver.balance() + input.amount);
    })?;
    if received.is_none() {
        return Err(tx.abort(Missing("checking")));
    }
    Ok(())
}
