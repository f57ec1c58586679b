//! Rows of runs against rows that are records. Procedures may change the transaction's own run without a check.

use seriatim::rng::seed;
use seriatim::{Abort, Rng, Table, Text, TransactError, Tx, procedure, procedures};

use crate::common::each;

/// The same table and procedures, clustered or not.
macro_rules! twin {
    ($twin:ident $(, $cluster:ident)?) => {
        mod $twin {
            use seriatim::{Abort, Table, Tx, procedure};

            #[derive(Table, Clone, Debug, PartialEq)]
            #[table(name = "line", key(order, number) $(, $cluster(order))?)]
            pub(crate) struct Line {
                pub(crate) order: u32,
                pub(crate) number: u16,
                pub(crate) amount: i64,
            }

            /// Inserts lines, reads one of them, changes them twice; returns the sum and the line read.
            #[procedure]
            pub(crate) fn enter(tx: &Tx, order: u32, numbers: &[u16], looked_at: u16) -> Result<(i64, i64), Abort> {
                for number in numbers {
                    tx.insert(Line { order, number: *number, amount: 1 })?;
                }
                let looked_at = tx.get::<Line>((order, looked_at))?;
                for number in numbers {
                    tx.update::<Line>((order, *number), |line| line.amount += 10)?;
                }
                for number in numbers {
                    tx.update::<Line>((order, *number), |line| line.amount += 100)?;
                }
                let mut sum = 0;
                for line in tx.prefix::<Line>(order)? {
                    sum += line.amount;
                }
                let Some(looked_at) = looked_at else { return Ok((sum, 0)) };
                Ok((sum, looked_at.amount))
            }

            /// Changes the lines that exist, deletes one, and inserts one again; returns the old values.
            #[procedure]
            pub(crate) fn change(tx: &Tx, order: u32, numbers: &[u16], gone: u16) -> Result<i64, Abort> {
                let mut before = 0;
                for number in numbers {
                    let line = tx.get::<Line>((order, *number))?;
                    let _ = tx.update_if::<Line>((order, *number), |line| line.amount += 1000)?;
                    if let Some(line) = line {
                        before += line.amount;
                    }
                }
                let _ = tx.delete_if::<Line>((order, gone))?;
                for number in numbers {
                    let _ = tx.update_if::<Line>((order, *number), |line| line.amount += 1000)?;
                }
                tx.insert(Line { order, number: gone, amount: 7 })?;
                Ok(before)
            }

            pub(crate) fn rows(tx: &Tx, lines: &seriatim::Handle<Line>) -> Result<Vec<(u32, u16, i64)>, Abort> {
                tx.scan(lines, ..).map(|line| line.map(|line| (line.order(), line.number(), line.amount()))).collect()
            }
        }
    };
}

twin!(records);
twin!(runs, cluster);

/// A call of one of the procedures, which have the same names in both modules.
macro_rules! call {
    ($twin:ident, $session:expr, $rng:expr) => {{
        let mut rng: Rng = $rng;
        let mut numbers: Vec<u16> = (0..rng.below(12)).map(|_| rng.below(20) as u16).collect();
        // Most orders have ascending numbers without repetition.
        if rng.below(3) > 0 {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let (order, other) = (rng.below(4) as u32, rng.below(20) as u16);
        match rng.below(2) {
            0 => $session.call($twin::enter, &(order, numbers, other)).map(|done| done.value),
            _ => $session.call($twin::change, &(order, numbers, other)).map(|done| (done.value, 0)),
        }
    }};
}

/// The result of a call: its value, or its error as text.
fn told(result: Result<(i64, i64), TransactError>) -> Result<(i64, i64), String> {
    result.map_err(|error| error.to_string())
}

#[test]
fn procedures_on_runs_do_what_they_do_on_records() {
    each(|setting| {
        let seed = seed("procedures_on_runs_do_what_they_do_on_records");
        let db = setting.builder().open().expect("a valid setting");
        let lines = db.create::<records::Line>().expect("valid");
        db.register(procedures![records::enter, records::change]).expect("they are declared soundly");
        let twin = setting.builder().open().expect("a valid setting");
        let twin_lines = twin.create::<runs::Line>().expect("valid");
        twin.register(procedures![runs::enter, runs::change]).expect("they are declared soundly");
        let (mut session, mut twin_session) = (db.session(), twin.session());
        let mut rng = Rng::from_seed(seed);
        for _ in 0..150 {
            let one = Rng::from_seed(rng.next_u64());
            let wanted = told(call!(records, session, one.clone()));
            assert_eq!(told(call!(runs, twin_session, one)), wanted, "seed {seed}");
            if rng.below(8) == 0 {
                let wanted = session.transact(|tx| records::rows(tx, &lines)).expect("no conflict").value;
                let found = twin_session.transact(|tx| runs::rows(tx, &twin_lines)).expect("no conflict").value;
                assert_eq!(found, wanted, "seed {seed}");
            }
        }
    });
}

/// Keys that are not numbers, in a table whose rows are not in runs but have index entries.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "name", key(name), index(name = "by_length", columns(length)))]
struct Name {
    name: Text<12>,
    length: u32,
}

#[procedure]
fn rename(tx: &Tx, old: &Text<12>, new: &Text<12>) -> Result<bool, Abort> {
    let known = tx.update_if::<Name>(*old, |name| name.length = 0)?;
    tx.insert(Name { name: *new, length: 1 })?;
    Ok(known.is_some())
}

#[test]
fn rows_with_index_entries_have_keys_of_any_kind() {
    each(|setting| {
        let db = setting.builder().open().expect("a valid setting");
        let names = db.create::<Name>().expect("valid");
        db.register(procedures![rename]).expect("it is declared soundly");
        let mut session = db.session();
        let [old, new] = [Text::literal("old"), Text::literal("new")];
        assert!(!session.call(rename, &(new, old)).expect("no conflict").value);
        assert!(session.call(rename, &(old, new)).expect("no conflict").value);
        let lengths = |tx: &Tx| {
            tx.scan(&names, ..).map(|name| name.map(|name| name.length())).collect::<Result<Vec<u32>, Abort>>()
        };
        assert_eq!(session.transact(lengths).expect("no conflict").value, [1, 0]);
    });
}
