//! An operation and an overflow have the same meaning in a procedure, compiled and interpreted, in a closure, and in
//! an explicit transaction.

use seriatim::{
    Abort, Database, Decimal, Handle, MissingRow, ReadTx, Session, Table, TransactError, Tx, procedure, procedures,
};

use crate::common::each;

type Money = Decimal<2>;

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "purse", key(id), ordered)]
struct Purse {
    id: u32,
    balance: Money,
}

const THERE: u32 = 1;
const FULL: u32 = 2;
const MISSING: u32 = 9;

/// Moves money.
#[procedure]
fn transfer(tx: &Tx, from: u32, to: u32, amount: Money) -> Result<(), Abort> {
    tx.update::<Purse>(from, |purse| purse.balance -= amount)?;
    tx.update::<Purse>(to, |purse| {
        purse.balance += amount; // the credit
    })?;
    Ok(())
}

/// The operands are on other lines than the operators.
#[procedure]
fn computed(tx: &Tx, left: i64, right: i64, what: u8) -> Result<i64, Abort> {
    let purse = tx.require::<Purse>(1)?;
    let mut sum = [left];
    if what == 0 {
        return Ok(left * right); // product
    }
    if what == 1 {
        return Ok(-(left - right)); // negation
    }
    if what == 2 {
        sum[0] += right; // element
        return Ok(sum[0]);
    }
    if what == 3 {
        return Ok(purse.balance.units() / right); // quotient
    }
    Ok((left - right).abs()) // magnitude
}

/// The number of the line that ends with this comment.
fn line_of(mark: &str) -> usize {
    let lines = include_str!("worlds.rs").lines();
    1 + lines.enumerate().find(|(_, line)| line.ends_with(mark)).expect("there is one").0
}

#[procedure]
fn remove(tx: &Tx, id: u32) -> Result<(), Abort> {
    tx.delete::<Purse>(id)?;
    Ok(())
}

#[procedure]
fn remove_if(tx: &Tx, id: u32) -> Result<bool, Abort> {
    let was_there = tx.delete_if::<Purse>(id)?;
    Ok(was_there)
}

#[procedure]
fn empty_if(tx: &Tx, id: u32) -> Result<bool, Abort> {
    let emptied = tx.update_if::<Purse>(id, |purse| purse.balance = Money::from_units(0))?;
    Ok(emptied.is_some())
}

fn open(db: &Database) -> (Handle<Purse>, Session) {
    let purses = db.create::<Purse>().expect("a valid table");
    let mut session = db.session();
    let rows = [(THERE, Money::from_units(1000)), (FULL, Money::from_units(i64::MAX))];
    let load =
        session.transact(|tx| rows.iter().try_for_each(|&(id, balance)| tx.insert(&purses, &Purse { id, balance })));
    load.expect("an empty table");
    db.register(procedures![transfer, computed, remove, remove_if, empty_if]).expect("a sound set");
    (purses, session)
}

/// The transfer, written as a closure.
fn moves(tx: &Tx, purses: &Handle<Purse>, from: u32, to: u32, amount: Money) -> Result<(), Abort> {
    let add = |id: u32, amount: Money| {
        tx.update(purses, &id, |purse| -> Result<(), Abort> {
            purse.set_balance((purse.balance() + amount)?);
            Ok(())
        })?
    };
    add(from, (-amount)?)?;
    add(to, amount)
}

/// The kind of an error, without the place of an overflow.
fn kind(error: &TransactError) -> String {
    match error {
        TransactError::Overflow { .. } => "overflow".to_owned(),
        error => error.to_string(),
    }
}

#[test]
fn missing_rows_and_overflow_mean_the_same_however_a_transaction_is_written() {
    each(|setting| {
        let db = setting.builder().open().expect("a valid setting");
        let (purses, mut session) = open(&db);
        let amount = Money::from_units(30);
        let before = session
            .snapshot(|tx| tx.scan(&purses, ..).map(|row| Ok(row?.to_owned())).collect::<Result<Vec<_>, Abort>>());
        let before = before.expect("no conflict").into_value();
        for (from, to, wanted) in [
            (THERE, MISSING, "there is no row with key id 9 in purse"),
            (MISSING, THERE, "there is no row with key id 9 in purse"),
            (THERE, FULL, "overflow"),
        ] {
            let by_hand = |session: &mut Session| -> Result<(), TransactError> {
                let tx = session.begin()?;
                moves(&tx, &purses, from, to, amount)?;
                tx.commit()?;
                Ok(())
            };
            let ended = [
                session.call(transfer, &(from, to, amount)).map(drop),
                session.interpret(transfer, &(from, to, amount)).map(drop),
                session.transact(|tx| moves(tx, &purses, from, to, amount)).map(drop),
                by_hand(&mut session),
            ];
            for (at, ended) in ended.into_iter().enumerate() {
                assert_eq!(kind(&ended.expect_err("it cannot be done")), wanted, "way {at}");
            }
        }
        let missing = "there is no row with key id 9 in purse";
        let deleted = [
            session.call(remove, &MISSING).map(drop),
            session.interpret(remove, &MISSING).map(drop),
            session.transact(|tx| tx.delete(&purses, &MISSING)).map(drop),
        ];
        for deleted in deleted {
            assert_eq!(kind(&deleted.expect_err("it is not there")), missing);
        }
        let added = session.transact(|tx| tx.add(&purses, &MISSING, PurseRow::BALANCE, amount));
        assert_eq!(kind(&added.expect_err("it is not there")), missing);
        // Operations whose row may be missing.
        assert!(!session.call(remove_if, &MISSING).expect("it only asks").value);
        assert!(!session.call(empty_if, &MISSING).expect("it only asks").value);
        let asked = session.transact(|tx| {
            let emptied = tx.update_if(&purses, &MISSING, |purse| purse.set_balance(Money::ZERO))?;
            let added = tx.add_if(&purses, &MISSING, PurseRow::BALANCE, amount)?;
            Ok([tx.delete_if(&purses, &MISSING)?, emptied, added])
        });
        assert_eq!(asked.expect("it only asks").value, [Err(MissingRow); 3]);
        // A body may continue after a missing row, and its earlier writes stay.
        let went_on = session.transact(|tx| {
            let missing = tx.delete(&purses, &MISSING);
            assert!(missing.is_err());
            tx.insert(&purses, &Purse { id: 3, balance: Money::ZERO })
        });
        went_on.expect("nothing stopped it");
        session.call(remove, &3).expect("it is there");
        let after = session
            .snapshot(|tx| tx.scan(&purses, ..).map(|row| Ok(row?.to_owned())).collect::<Result<Vec<_>, Abort>>());
        assert_eq!(after.expect("no conflict").into_value(), before, "nothing stayed");
    });
}

#[derive(Table, Clone, Debug)]
#[table(name = "rating", key(rate), ordered)]
#[table(index(name = "by_grade", columns(grade), ordered))]
#[table(index(name = "by_mark", columns(mark), hash, unique))]
struct Rating {
    rate: f64,
    grade: Option<f64>,
    mark: f64,
}

#[procedure]
fn marked(tx: &Tx, rate: f64, mark: f64) -> Result<(u8, u8), Abort> {
    let rating = tx.get::<Rating>(rate)?;
    let found = tx.get_by::<Rating>(Rating::BY_MARK, mark)?;
    let has_rate = if rating.is_some() { 1 } else { 0 };
    let has_mark = if found.is_some() { 1 } else { 0 };
    Ok((has_rate, has_mark))
}

#[procedure]
fn count_to(tx: &Tx, high: f64) -> Result<u32, Abort> {
    let mut count = 0;
    for rating in tx.scan::<Rating>(..=high)? {
        if rating.mark == rating.mark {
            count += 1;
        }
    }
    Ok(count)
}

#[test]
fn there_is_one_zero_and_one_nan_among_keys() {
    let odd_nan = -f64::from_bits(f64::NAN.to_bits() | 7);
    each(|setting| {
        let db = setting.builder().open().expect("a valid setting");
        let ratings = db.create::<Rating>().expect("a valid table");
        let (by_grade, by_mark) = (ratings.index(Rating::BY_GRADE), ratings.index(Rating::BY_MARK));
        db.register(procedures![marked, count_to]).expect("a sound set");
        let mut session = db.session();
        let rating = |rate: f64| Rating { rate, grade: Some(rate), mark: rate };
        let rows = [odd_nan, 1.0, -0.0, -1.0];
        session.transact(|tx| rows.iter().try_for_each(|&rate| tx.insert(&ratings, &rating(rate)))).expect("new keys");
        for (rate, same) in [(-0.0, 0.0), (0.0, -0.0), (f64::NAN, odd_nan), (odd_nan, f64::NAN)] {
            for (rate, mark) in [(rate, 7.0), (8.0, same)] {
                let twice = session.transact(|tx| tx.insert(&ratings, &Rating { rate, grade: None, mark }));
                assert!(matches!(twice, Err(TransactError::Duplicate { .. })), "{rate} {mark}: {twice:?}");
            }
            assert_eq!(session.call(marked, &(rate, same)).expect("no conflict").value, (1, 1), "{rate}");
            assert_eq!(session.interpret(marked, &(rate, same)).expect("no conflict").value, (1, 1), "{rate}");
            let found = session.transact(|tx| {
                let row = tx.require(&ratings, &rate)?.mark().to_bits();
                let by_mark = tx.get_by(&by_mark, &rate)?.map(|row| row.rate().to_bits());
                let of_grade = tx.count_by(&by_grade, Some(rate)..=Some(same))?;
                Ok((row, by_mark, of_grade))
            });
            let (row, by_mark, of_grade) = found.expect("no conflict").value;
            assert_eq!((Some(row), of_grade), (by_mark, 1), "{rate}: the row keeps its bits");
        }
        let bits = |tx: &ReadTx| {
            tx.scan(&ratings, ..).map(|row| Ok(row?.rate().to_bits())).collect::<Result<Vec<u64>, Abort>>()
        };
        let order = session.snapshot(bits).expect("no conflict").into_value();
        assert_eq!(order, [-1.0, -0.0, 1.0, odd_nan].map(f64::to_bits), "NaN is greater than all numbers");
        for (high, wanted) in [(-0.5, 1), (-0.0, 2), (0.0, 2), (f64::INFINITY, 3), (odd_nan, 3)] {
            assert_eq!(session.call(count_to, &high).expect("no conflict").value, wanted, "to {high}");
            assert_eq!(session.interpret(count_to, &high).expect("no conflict").value, wanted, "to {high}");
        }
        let counts = session.transact(|tx| {
            let below = tx.count_by(&by_grade, ..Some(0.0))?;
            Ok((below, tx.count_by(&by_grade, Some(-0.0)..)?, tx.count_by(&by_grade, Some(f64::INFINITY)..)?))
        });
        assert_eq!(counts.expect("no conflict").value, (1, 3, 1));
        // The other zero is the same key: the entries of indexes stay where they are.
        session.transact(|tx| tx.update(&ratings, &0.0, |row| row.set_mark(0.0))).expect("its own key");
        session.transact(|tx| tx.delete(&ratings, &0.0)).expect("it is there");
        assert_eq!(session.call(marked, &(-0.0, -0.0)).expect("no conflict").value, (0, 0));
    });
}

#[test]
fn an_overflow_is_reported_at_the_line_of_the_arithmetic() {
    let db = Database::in_memory().expect("memory");
    let (_, mut session) = open(&db);
    let place = |ended: Result<(), TransactError>| match ended.expect_err("it overflows") {
        TransactError::Overflow { place, procedure } => {
            assert_ne!(procedure, "");
            place
        }
        error => panic!("{error}"),
    };
    let here = |mark: &str| format!("worlds.rs:{}:", line_of(mark));
    let credit = place(session.call(transfer, &(THERE, FULL, Money::from_units(1))).map(drop));
    assert!(credit.contains(&here("// the credit")), "{credit}");
    let cases = [
        ("// product", i64::MAX, 2),
        ("// negation", i64::MIN, 0),
        ("// element", i64::MAX, 1),
        ("// quotient", 1, 0),
        ("// magnitude", i64::MIN, 0),
    ];
    for (what, (mark, left, right)) in (0u8..).zip(cases) {
        let place = place(session.call(computed, &(left, right, what)).map(drop));
        assert!(place.contains(&here(mark)), "{mark}: {place}");
    }
}
