//! TPC-C, updates of single rows, and prepared statements of SQL, in portions that callgrind can count separately.
//! `cargo xtask instructions` runs this under callgrind.
//!
//! A portion runs inside [`portion`], once for each printed line and in that order. A tool that counts only there
//! excludes loading and drawing inputs. There is one thread, one warehouse, `dbx` without regions, and one seed.

use std::error::Error;
use std::hint::black_box;

use clap::Args;
use seriatim::{Database, Rng, Table};
use seriatim_htm::HtmMode;
use seriatim_workload::tpcc::{self, Mix, Scale, Tpcc};
use seriatim_workload::{Ending, Loading, Workload};

use crate::embedded::Embedded;

/// Options of the run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Transactions of the full mix; each kind alone runs a fifth of them
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=20_000))]
    transactions: u32,
    /// A hundredth of the rows, for a test
    #[arg(long)]
    small: bool,
    /// The seed of rows and inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A loaded warehouse has 900 undelivered orders in each district, and a Delivery delivers one in each.
const DELIVERIES: u32 = 500;

/// The portions: name and mix.
const PORTIONS: [(&str, Mix); 6] = [
    ("full_mix", Mix::FULL),
    ("new_order", Mix([1, 0, 0, 0, 0])),
    ("payment", Mix([0, 1, 0, 0, 0])),
    ("order_status", Mix([0, 0, 1, 0, 0])),
    ("delivery", Mix([0, 0, 0, 1, 0])),
    ("stock_level", Mix([0, 0, 0, 0, 1])),
];

/// Runs `count` transactions. Returns how many failed. It is a separate function that a tool finds by its name.
#[inline(never)]
fn portion(transactions: u32, one: &mut dyn FnMut() -> bool) -> u32 {
    let mut failed = 0;
    for _ in 0..transactions {
        failed += u32::from(!one());
    }
    black_box(failed)
}

macro_rules! row {
    ($row:ident, $name:literal $(, $cluster:ident($($of:tt)*))?) => {
        /// A row of 32 bytes.
        #[derive(Table)]
        #[table(name = $name, key(group, number) $(, $cluster($($of)*))?)]
        struct $row {
            group: u32,
            number: u32,
            amount: u64,
            second: u64,
            third: u64,
        }

        impl $row {
            /// Groups of as many rows as fit into a run, and updates of one row each. Returns a line with the
            /// name and the number.
            fn portion(groups: u32, transactions: u32, seed: u64) -> Result<String, Box<dyn Error>> {
                let db = open(seed)?;
                let (rows, mut session, mut rng) = (db.create::<$row>()?, db.session(), Rng::from_seed(seed));
                for group in 0..groups {
                    let row = |number| $row { group, number, amount: 0, second: 0, third: 0 };
                    session.transact(|tx| (0..GROUP).try_for_each(|number| tx.insert(&rows, &row(number))))?;
                }
                let mut update = || {
                    let key = (rng.below(groups.into()) as u32, rng.below(GROUP.into()) as u32);
                    let add = session.transact(|tx| {
                        tx.update(&rows, &key, |row| row.set_amount(row.amount() + 1))
                    });
                    add.is_ok()
                };
                (0..transactions).for_each(|_| _ = update());
                match portion(transactions, &mut update) {
                    0 => Ok(format!("{} {transactions}\n", $name)),
                    failed => Err(format!("{}: {failed} transactions failed without a conflict", $name).into()),
                }
            }
        }
    };
}

/// Rows of 32 bytes that fit into a run.
const GROUP: u32 = 64;

row!(UpdateRecord, "update");
row!(UpdateRun, "update_in_run", cluster(group));

fn open(seed: u64) -> Result<Database, Box<dyn Error>> {
    Ok(Database::builder().protocol("dbx").htm(HtmMode::Absent).seed(seed).workers(2).open()?)
}

/// Runs all portions. Returns a line with the name and the number of transactions for each.
pub(crate) fn run(options: &Options) -> Result<String, Box<dyn Error>> {
    let &Options { transactions, small, seed } = options;
    let db = open(seed)?;
    let scale = if small { Scale::small(1) } else { Scale::spec(1) };
    let tpcc = |mix| Tpcc::new(tpcc::Options { mix, ..tpcc::Options::new(scale, seed) });
    let full = tpcc(Mix::FULL);
    full.load(&db, &Loading::default())?;
    let mut session = db.session();
    // Warms up code, pools and caches.
    let mut terminal = full.terminal(&db, 0, seed)?;
    for _ in 0..transactions / 5 {
        terminal.run_one(&mut session);
    }
    let mut text = String::new();
    for (name, mix) in PORTIONS {
        let count = match name {
            "full_mix" => transactions,
            "delivery" => DELIVERIES.min(transactions / 5),
            _ => transactions / 5,
        };
        let workload = tpcc(mix);
        let mut terminal = workload.terminal(&db, 0, seed + 1)?;
        let failed = portion(count, &mut || !matches!(terminal.run_one(&mut session).ending, Ending::Failed(_)));
        if failed > 0 {
            return Err(format!("{name}: {failed} transactions failed without a conflict").into());
        }
        text += &format!("{name} {count}\n");
    }
    let groups = if small { 10 } else { 1000 };
    text += &UpdateRecord::portion(groups, transactions / 5, seed)?;
    text += &UpdateRun::portion(groups, transactions / 5, seed)?;
    text += &statements(i64::from(groups * GROUP), transactions / 5, seed)?;
    Ok(text)
}

/// Reads and updates of one row by prepared statements of SQL. Returns a line for each.
fn statements(rows: i64, transactions: u32, seed: u64) -> Result<String, Box<dyn Error>> {
    let mut statements = Embedded::load(open(seed)?, (rows, rows))?.statements()?;
    let mut rng = Rng::from_seed(seed);
    let mut text = String::new();
    for (name, reads) in [("sql_select", true), ("sql_update", false)] {
        let mut one = || {
            let id = rng.below(rows as u64) as i64;
            if reads { statements.read(id).is_some() } else { statements.deposit(id, 1, true) }
        };
        (0..transactions).for_each(|_| _ = one());
        match portion(transactions, &mut one) {
            0 => text += &format!("{name} {transactions}\n"),
            failed => return Err(format!("{name}: {failed} statements failed without a conflict").into()),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_reported_in_the_order_in_which_they_run() {
        let text = run(&Options { transactions: 100, small: true, seed: 3 }).expect("memory");
        let names: Vec<&str> = text.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect();
        assert_eq!(names[..6], PORTIONS.map(|(name, _)| name));
        assert_eq!(names[6..], ["update", "update_in_run", "sql_select", "sql_update"]);
        assert_eq!(text.lines().next(), Some("full_mix 100"));
    }
}
