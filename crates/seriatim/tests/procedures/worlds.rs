//! An operation and an overflow have the same meaning in a procedure, compiled and interpreted, in a closure, and in
//! an explicit transaction.

use seriatim::{
    Abort, Database, Decimal, Handle, MissingRow, Session, Table, TransactError, Tx, procedure, procedures,
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

#[test]
fn an_overflow_is_told_of_at_the_line_of_the_arithmetic() {
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
