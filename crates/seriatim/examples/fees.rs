//! Fees by tier: a payment costs a fee that depends on the payer's tier. All payments add their fees to one sum per
//! day.
//!
//! `cargo run -p seriatim --example fees`. What to look at:
//! - Every payment writes the sum of the day, which is only added to. Under `dbx`, `silo` and `dbx-tc` payments that
//!   share no other row do not conflict.
//! - Every payment reads a tier, and tiers hardly ever change.

use std::fmt;

use seriatim::procedure::plan::{Chopping, Options};
use seriatim::{Abort, Builder, Data, Database, Decimal, Rng, Table, TransactError, Tx, procedure, procedures, thread};

type Money = Decimal<2>;

const ACCOUNTS: u32 = 50;
const BALANCE: i64 = 100_000;
const TELLERS: u64 = 3;
const PAYMENTS: u32 = 500;

#[derive(Table)]
#[table(name = "account", key(id), hash)]
struct Account {
    id: u32,
    tier: u8,
    balance: Money,
}

#[derive(Table)]
#[table(name = "tier", key(id), hash, replicated)]
struct Tier {
    id: u8,
    /// The fee in hundredths of a percent of the amount.
    fee: i64,
    /// The highest fee.
    fee_max: Money,
}

#[derive(Table)]
#[table(name = "day", key(day), ordered)]
struct Day {
    day: u32,
    fees: Money,
    payments: i64,
}

#[derive(Data, Clone, Copy, Debug)]
struct Payment {
    day: u32,
    from: u32,
    to: u32,
    amount: Money,
}

/// The payer's balance is below the amount and the fee.
#[derive(Data, Clone, Copy, Debug, PartialEq)]
struct TooLittle {
    balance: Money,
}

impl fmt::Display for TooLittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is too little for the amount and its fee", self.balance)
    }
}

impl std::error::Error for TooLittle {}

#[seriatim::pure]
fn fee_of(amount: Money, fee: i64, fee_max: Money) -> Money {
    Money::from_units((amount.units() * fee / 10_000).min(fee_max.units()))
}

/// Pays, and charges the fee of the payer's tier; returns the fee.
#[procedure]
fn pay(tx: &Tx, payment: &Payment) -> Result<Money, Abort> {
    let payer = tx.require::<Account>(payment.from)?;
    let tier = tx.require::<Tier>(payer.tier)?;
    tx.require::<Day>(payment.day)?;
    let fee = fee_of(payment.amount, tier.fee, tier.fee_max);
    if payer.balance < payment.amount + fee {
        return Err(tx.abort(TooLittle { balance: payer.balance }));
    }
    tx.update::<Account>(payment.from, |account| account.balance -= payment.amount + fee)?;
    tx.update::<Account>(payment.to, |account| account.balance += payment.amount)?;
    // The row exists, so this cannot fail, and may be published after the rest.
    let _ = tx.update_if::<Day>(payment.day, |day| {
        day.fees += fee;
        day.payments += 1;
    })?;
    Ok(fee)
}

/// Moves an account to another tier.
#[procedure]
fn promote(tx: &Tx, account: u32, tier: u8) -> Result<(), Abort> {
    tx.require::<Tier>(tier)?;
    tx.update::<Account>(account, |account| account.tier = tier)?;
    Ok(())
}

/// The sum of all balances, the fees of all days, and the number of payments.
#[procedure]
fn balance_sheet(tx: &Tx, accounts: u32) -> Result<(Money, Money, i64), Abort> {
    let (mut held, mut fees, mut payments) = (Money::from_units(0), Money::from_units(0), 0i64);
    for id in 0..accounts {
        let account = tx.require::<Account>(id)?;
        held += account.balance;
    }
    for day in tx.scan::<Day>(..)? {
        fees += day.fees;
        payments += day.payments;
    }
    Ok((held, fees, payments))
}

/// Opens a database, with its rows and procedures.
pub(crate) fn open(builder: Builder) -> Result<Database, Box<dyn std::error::Error>> {
    let db = builder.open()?;
    let (accounts, tiers, days) = (db.create::<Account>()?, db.create::<Tier>()?, db.create::<Day>()?);
    db.register(procedures![pay, promote, balance_sheet])?;
    db.session().transact(|tx| {
        for (id, fee, fee_max) in [(0, 150, 1000), (1, 75, 500), (2, 0, 0)] {
            tx.insert(&tiers, &Tier { id, fee, fee_max: Money::from_units(fee_max) })?;
        }
        (0..2).try_for_each(|day| tx.insert(&days, &Day { day, fees: Money::from_units(0), payments: 0 }))?;
        let account = |id| Account { id, tier: (id % 3) as u8, balance: Money::from_units(BALANCE) };
        (0..ACCOUNTS).try_for_each(|id| tx.insert(&accounts, &account(id)))
    })?;
    Ok(db)
}

/// Runs the example under this protocol; returns into which pieces its procedures may be cut.
pub(crate) fn run(protocol: &str) -> Result<Chopping, Box<dyn std::error::Error>> {
    let db = open(Database::builder().protocol(protocol))?;
    let mut session = db.session();
    let teller = |teller: u64| -> Result<(Money, u32), TransactError> {
        let (mut session, mut rng) = (db.session(), Rng::from_seed(teller));
        let (mut charged, mut refused) = (0, 0);
        for number in 0..PAYMENTS {
            let mut account = || rng.below(u64::from(ACCOUNTS)) as u32;
            let (from, to) = (account(), account());
            let amount = Money::from_units(rng.range(100, 60_000) as i64);
            match session.call(pay, &Payment { day: number % 2, from, to, amount }) {
                Ok(fee) => charged += fee.units(),
                Err(error) if error.user::<TooLittle>().is_some() => refused += 1,
                Err(error) => return Err(error),
            }
            if number % 100 == 0 {
                session.call(promote, &(from, rng.below(3) as u8))?;
            }
        }
        Ok((Money::from_units(charged), refused))
    };
    let results = thread::scope(|scope| {
        let tellers: Vec<_> = (0..TELLERS).map(|number| scope.spawn(move || teller(number))).collect();
        tellers.into_iter().map(|teller| teller.join().expect("no teller panics")).collect::<Result<Vec<_>, _>>()
    })?;
    let charged: i64 = results.iter().map(|(charged, _)| charged.units()).sum();
    let refused: u32 = results.iter().map(|(_, refused)| refused).sum();
    let (held, fees, payments) = session.call(balance_sheet, &ACCOUNTS)?.into_value();
    println!("{payments} payments, {refused} refused; {fees} of fees, {held} held");
    assert_eq!(fees.units(), charged, "what was charged is what came in");
    assert_eq!(held.units() + fees.units(), i64::from(ACCOUNTS) * BALANCE, "no money is made or lost");
    Ok(db.chopping(Options::OPTIMIZED)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run("auto")?);
    Ok(())
}
