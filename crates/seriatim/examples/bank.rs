//! A bank: threads transfer money between accounts while an auditor adds them all up, and the sum never changes.
//!
//! `cargo run -p seriatim --example bank`. What to look at:
//! - A transfer is a closure that may run again.
//! - A refused transfer returns an error of the program's own, which rolls the transaction back.
//! - The audit reads the whole bank at one moment while transfers run.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use seriatim::{Abort, Database, Decimal, Handle, Rng, Session, Table, TransactError, clock, thread};

type Money = Decimal<2>;

const ACCOUNTS: u32 = 100;
const TELLERS: u64 = 3;
const TRANSFERS: u32 = 2_000;

/// An account. The table is ordered by number, so that it can be scanned.
#[derive(Table)]
#[table(name = "account", key(number), ordered)]
#[table(index(name = "by_owner", columns(owner), ordered))]
struct Account {
    number: u32,
    owner: String,
    balance: Money,
}

/// A completed transfer.
#[derive(Table)]
#[table(name = "transfer", key(teller, number), ordered)]
struct Transfer {
    teller: u64,
    number: u32,
    from: u32,
    to: u32,
    amount: Money,
}

/// The account's balance is too low.
#[derive(Debug)]
struct Insufficient {
    balance: Money,
}

impl fmt::Display for Insufficient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only {} left", self.balance)
    }
}

impl std::error::Error for Insufficient {}

/// Moves money, or returns why not. A refused transfer has no effect.
fn transfer(
    session: &mut Session,
    accounts: &Handle<Account>,
    transfers: &Handle<Transfer>,
    wanted: &Transfer,
) -> Result<u32, TransactError> {
    let &Transfer { from, to, amount, .. } = wanted;
    let done = session.transact(|tx| {
        tx.insert(transfers, wanted)?;
        let move_to = |account: &u32, amount: Money| {
            tx.update(accounts, account, |account| -> Result<Money, Abort> {
                account.set_balance((account.balance() + amount)?);
                Ok(account.balance())
            })?
        };
        move_to(&to, amount)?;
        let left = move_to(&from, (-amount)?)?;
        match left < Money::ZERO {
            true => Err(tx.abort(Insufficient { balance: (left + amount)? })),
            false => Ok(()),
        }
    })?;
    Ok(done.attempts)
}

/// Makes transfers; returns how many were made, refused and repeated.
fn teller(mut session: Session, accounts: &Handle<Account>, transfers: &Handle<Transfer>, teller: u64) -> [u32; 3] {
    let mut rng = Rng::from_seed(teller);
    let [mut made, mut refused, mut repeated] = [0; 3];
    for number in 0..TRANSFERS {
        let from = rng.below(ACCOUNTS.into()) as u32;
        let to = (from + 1 + rng.below(u64::from(ACCOUNTS) - 1) as u32) % ACCOUNTS;
        let amount = Money::from_units(rng.range(1, 40_000) as i64);
        match transfer(&mut session, accounts, transfers, &Transfer { teller, number, from, to, amount }) {
            Ok(attempts) => {
                made += 1;
                repeated += attempts - 1;
            }
            Err(error) if error.user::<Insufficient>().is_some() => refused += 1,
            Err(error) => panic!("a transfer failed: {error}"),
        }
    }
    [made, refused, repeated]
}

/// Adds up all balances at one moment.
fn audit(session: &mut Session, accounts: &Handle<Account>) -> Result<Money, TransactError> {
    let total = session.snapshot(|tx| {
        let mut total = Money::ZERO;
        for account in tx.scan(accounts, ..) {
            total = (total + account?.balance())?;
        }
        Ok(total)
    })?;
    Ok(total.into_value())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = Database::in_memory()?;
    let (accounts, transfers) = (db.create::<Account>()?, db.create::<Transfer>()?);
    let mut session = db.session();
    session.transact(|tx| {
        (0..ACCOUNTS).try_for_each(|number| {
            let owner = format!("owner {}", number / 2);
            tx.insert(&accounts, &Account { number, owner, balance: Money::from_units(50_000) })
        })
    })?;
    let funds = audit(&mut session, &accounts)?;

    let begin = clock::Instant::now();
    let closed = AtomicBool::new(false);
    let (totals, audits) = thread::scope(|scope| {
        let auditor = scope.spawn(|| {
            let mut audits = 0;
            while !closed.load(Ordering::Relaxed) {
                assert_eq!(
                    audit(&mut session, &accounts).expect("an audit is retried"),
                    funds,
                    "money appeared or vanished"
                );
                audits += 1;
            }
            audits
        });
        let tellers: Vec<_> = (0..TELLERS)
            .map(|number| {
                let (session, accounts, transfers) = (db.session(), &accounts, &transfers);
                scope.spawn(move || teller(session, accounts, transfers, number))
            })
            .collect();
        let totals: Vec<[u32; 3]> = tellers.into_iter().map(|teller| teller.join().expect("no panic")).collect();
        closed.store(true, Ordering::Relaxed);
        (totals, auditor.join().expect("no panic"))
    });
    let elapsed = begin.elapsed();

    let mut session = db.session();
    let [made, refused, repeated] = [0, 1, 2].map(|kind| totals.iter().map(|counts| counts[kind]).sum::<u32>());
    let written = session.snapshot(|tx| tx.count(&transfers, ..))?;
    assert_eq!(*written as u32, made, "refused transfers left no trace");
    assert_eq!(audit(&mut session, &accounts)?, funds);
    let first = session.snapshot(|tx| {
        let by_owner = accounts.index(Account::BY_OWNER);
        tx.find_by(&by_owner, &"owner 0".to_owned())
            .map(|account| Ok(account?.balance()))
            .collect::<Result<Vec<_>, _>>()
    })?;

    println!("protocol    {}", db.protocol().name);
    println!("transfers   {made} made, {refused} refused, {repeated} attempts repeated, in {elapsed:.1?}");
    println!("audits      {audits} while transfers ran, each {funds}");
    println!("owner 0     {}", first.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "));
    Ok(())
}
