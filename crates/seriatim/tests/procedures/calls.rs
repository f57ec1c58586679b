//! Registration and calls of procedures.

use seriatim::procedure::{Data, IntegerType, RegisterError, Value};
use seriatim::rng::seed;
use seriatim::{Database, Rng, TransactError, procedures};

use crate::bank::{self, Account, balance, transfer};
use crate::common::each;

fn unsigned(number: i128) -> Value {
    Value::Integer(number, Some(IntegerType::U64))
}

#[test]
fn a_registered_procedure_is_called_by_type_and_by_name() {
    each(|setting| {
        let (db, mut session) = bank::open(setting.builder(), &[100, 0]);
        assert_eq!(db.procedure_names(), ["transfer", "balance"]);
        let committed = session.call(transfer, &(0, 1, 30)).expect("both exist");
        assert_eq!((committed.value, committed.attempts), (70, 1));
        let arguments = Value::Tuple(vec![unsigned(1), unsigned(0), 10i64.to_value()]);
        assert_eq!(session.call_by_name("transfer", &arguments).expect("both exist").value, 20i64.to_value());
        assert_eq!(session.call(balance, &0).expect("no conflict").value, Some(80));
        assert_eq!(session.call_by_name("balance", &unsigned(9)).expect("no conflict").value, Value::NONE);
        assert_eq!(bank::state(&db), (vec![80, 20], 2));
    });
}

#[test]
fn a_procedure_that_is_not_registered_is_refused_with_the_registered_ones() {
    let db = Database::in_memory().expect("memory");
    let mut session = db.session();
    let error = session.call(balance, &0).expect_err("nothing is registered");
    assert!(error.to_string().contains("\"balance\" is not registered; no procedure is"), "{error}");
    let (_, mut session) = bank::open(Database::builder(), &[]);
    let error = session.call_by_name("transfers", &Value::UNIT).expect_err("no such procedure");
    assert_eq!(error.to_string(), "procedure \"transfers\" is not registered; registered are transfer, balance");
}

#[test]
fn wrong_arguments_are_reported_and_nothing_runs() {
    let (db, mut session) = bank::open(Database::builder(), &[100, 0]);
    for wrong in [Value::UNIT, Value::Tuple(vec![unsigned(0), unsigned(1)]), Value::Text("0".to_owned())] {
        let error = session.call_by_name("transfer", &wrong).expect_err("wrong arguments");
        assert!(matches!(&error, TransactError::Arguments { procedure, .. } if procedure == "transfer"), "{error}");
    }
    assert_eq!(bank::state(&db), (vec![100, 0], 0));
}

#[test]
fn a_missing_row_and_an_overflow_roll_back_and_are_typed() {
    each(|setting| {
        let (db, mut session) = bank::open(setting.builder(), &[100, i64::MAX]);
        for reference in [false, true] {
            let mut run = |arguments| match reference {
                false => session.call(transfer, &arguments),
                true => session.interpret(transfer, &arguments),
            };
            let missing = run((0, 7, 30)).expect_err("account 7 is missing");
            let TransactError::MissingRow { table, key } = &missing else { panic!("{missing}") };
            assert_eq!((&**table, &**key), ("account", "id 7"));
            let overflow = run((0, 1, 30)).expect_err("no room in account 1");
            let TransactError::Overflow { procedure, place } = &overflow else { panic!("{overflow}") };
            assert_eq!(procedure, "transfer");
            assert!(reference || place.contains("bank.rs:"), "{overflow}");
        }
        assert_eq!(bank::state(&db), (vec![100, i64::MAX], 0));
    });
}

#[test]
fn a_set_that_does_not_fit_the_schema_is_refused_whole() {
    let db = Database::in_memory().expect("memory");
    db.create::<Account>().expect("a valid table");
    let error = db.register(procedures![transfer, balance]).expect_err("no turnover");
    assert!(matches!(&error, RegisterError::Refused(_)), "{error}");
    assert!(error.to_string().contains("bank.rs:"), "{error}");
    assert!(db.procedure_names().is_empty());
}

#[test]
fn a_name_is_taken_once() {
    let (db, _) = bank::open(Database::builder(), &[]);
    let error = db.register(procedures![balance]).expect_err("it is registered");
    assert!(error.to_string().contains("\"balance\" is registered already"), "{error}");
    assert_eq!(db.procedure_names(), ["transfer", "balance"]);
}

#[test]
fn sessions_opened_before_a_registration_see_it() {
    let db = Database::in_memory().expect("memory");
    let mut early = db.session();
    let accounts = db.create::<Account>().expect("a valid table");
    db.create::<bank::Turnover>().expect("a valid table");
    assert!(early.call(balance, &1).is_err());
    db.register(procedures![balance]).expect("a sound set");
    early.transact(|tx| tx.insert(&accounts, &Account { id: 1, balance: 5 })).expect("an empty table");
    assert_eq!(early.call(balance, &1).expect("registered").value, Some(5));
    db.register(procedures![transfer]).expect("a sound set");
    assert_eq!(early.call(balance, &1).expect("still registered").value, Some(5));
}

#[test]
fn the_interpreter_and_the_generated_code_agree() {
    each(|setting| {
        let seed = seed("the_interpreter_and_the_generated_code_agree");
        let mut rng = Rng::from_seed(seed);
        let start = [50, i64::MAX - 20, 0, i64::MIN + 20];
        let (compiled, mut one) = bank::open(setting.builder(), &start);
        let (interpreted, mut other) = bank::open(setting.builder(), &start);
        for _ in 0..200 {
            // Accounts 0 to 4, of which the last does not exist.
            let arguments = (rng.below(5), rng.below(5), rng.below(30) as i64 - 5);
            let (got, wanted) = (one.call(transfer, &arguments), other.interpret(transfer, &arguments));
            match (got, wanted) {
                (Ok(got), Ok(wanted)) => assert_eq!(got.value, wanted.value, "{arguments:?}"),
                (Err(got), Err(wanted)) => {
                    assert_eq!(std::mem::discriminant(&got), std::mem::discriminant(&wanted), "{got}, {wanted}");
                }
                (got, wanted) => panic!("{arguments:?}: {got:?}, {wanted:?}"),
            }
            let id = rng.below(5);
            assert_eq!(
                one.call(balance, &id).expect("no conflict").value,
                other.interpret(balance, &id).expect("no conflict").value
            );
            assert_eq!(bank::state(&compiled), bank::state(&interpreted), "after {arguments:?}");
        }
    });
}
