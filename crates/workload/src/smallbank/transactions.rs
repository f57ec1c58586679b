//! The six transactions: procedures of their input.
//!
//! Each finds its customers by name first. A missing name or account means a database that was loaded with
//! other options, and is a failure; SmallBank's own rollbacks are [`InsufficientFunds`].

use std::fmt;

use super::input::{
    AmalgamateInput, BalanceInput, DepositCheckingInput, SendPaymentInput, TransactSavingsInput, WriteCheckInput,
};
use super::schema::{Account, Checking, Money, Savings};
use seriatim::procedure::Procedures;
use seriatim::{Abort, Data, Tx, procedure, procedures};

/// The six, to be registered as one set.
pub fn procedures() -> Procedures {
    procedures![balance, deposit_checking, transact_savings, amalgamate, write_check, send_payment]
}

/// The rollback that SmallBank asks for: savings would become negative, or a payment exceeds what its payer
/// has at hand.
#[derive(Clone, Copy, Debug, Data)]
pub struct InsufficientFunds;

impl fmt::Display for InsufficientFunds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("insufficient funds")
    }
}

impl std::error::Error for InsufficientFunds {}

/// The penalty of a check that savings and checking together do not cover.
pub const OVERDRAFT_PENALTY: Money = Money::ONE;

/// A customer's savings and checking together.
#[procedure]
pub fn balance(tx: &Tx, input: &BalanceInput) -> Result<Money, Abort> {
    let account = tx.require::<Account>(input.name)?;
    let savings = tx.require::<Savings>(account.customer)?;
    let checking = tx.require::<Checking>(account.customer)?;
    Ok(savings.balance + checking.balance)
}

/// Adds to a customer's checking account.
#[procedure]
pub fn deposit_checking(tx: &Tx, input: &DepositCheckingInput) -> Result<(), Abort> {
    let account = tx.require::<Account>(input.name)?;
    tx.update::<Checking>(account.customer, |checking| checking.balance += input.amount)?;
    Ok(())
}

/// Adds to a customer's savings, or takes from them. Aborts with [`InsufficientFunds`] if savings would
/// become negative.
#[procedure]
pub fn transact_savings(tx: &Tx, input: &TransactSavingsInput) -> Result<(), Abort> {
    let account = tx.require::<Account>(input.name)?;
    let savings = tx.require::<Savings>(account.customer)?;
    let left = savings.balance + input.amount;
    if left < Money::ZERO {
        return Err(tx.abort(InsufficientFunds));
    }
    tx.update::<Savings>(account.customer, |savings| savings.balance = left)?;
    Ok(())
}

/// The amounts that Amalgamate moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct AmalgamateOutput {
    /// Out of the giver's savings.
    pub savings: Money,
    /// Out of the giver's checking account; negative if it was overdrawn.
    pub checking: Money,
}

/// Moves all that one customer has into another's checking account.
#[procedure]
pub fn amalgamate(tx: &Tx, input: &AmalgamateInput) -> Result<AmalgamateOutput, Abort> {
    let from = tx.require::<Account>(input.from)?;
    let to = tx.require::<Account>(input.to)?;
    let savings = tx.update::<Savings>(from.customer, |savings| {
        let all = savings.balance;
        savings.balance = Money::ZERO;
        all
    })?;
    let checking = tx.update::<Checking>(from.customer, |checking| {
        let all = checking.balance;
        checking.balance = Money::ZERO;
        all
    })?;
    tx.update::<Checking>(to.customer, |receiver| receiver.balance += savings + checking)?;
    Ok(AmalgamateOutput { savings, checking })
}

/// Takes a check out of a customer's checking account, and a penalty if it is not covered. Returns the total.
#[procedure]
pub fn write_check(tx: &Tx, input: &WriteCheckInput) -> Result<Money, Abort> {
    let account = tx.require::<Account>(input.name)?;
    let savings = tx.require::<Savings>(account.customer)?;
    let checking = tx.require::<Checking>(account.customer)?;
    let covered = savings.balance + checking.balance;
    let taken = if covered < input.amount { input.amount + OVERDRAFT_PENALTY } else { input.amount };
    tx.update::<Checking>(account.customer, |checking| checking.balance -= taken)?;
    Ok(taken)
}

/// Moves money from one checking account to another. Aborts with [`InsufficientFunds`] if the payer's does
/// not hold the amount.
#[procedure]
pub fn send_payment(tx: &Tx, input: &SendPaymentInput) -> Result<(), Abort> {
    let from = tx.require::<Account>(input.from)?;
    let to = tx.require::<Account>(input.to)?;
    let payer = tx.require::<Checking>(from.customer)?;
    if payer.balance < input.amount {
        return Err(tx.abort(InsufficientFunds));
    }
    tx.update::<Checking>(from.customer, |payer| payer.balance -= input.amount)?;
    tx.update::<Checking>(to.customer, |receiver| receiver.balance += input.amount)?;
    Ok(())
}
