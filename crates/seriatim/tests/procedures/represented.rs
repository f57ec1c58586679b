//! Procedures that are made at run time: they mean what functions do, under every protocol, and can be replaced and
//! removed.

use std::sync::atomic::{AtomicBool, Ordering};

use seriatim::catalog::evolution::Change;
use seriatim::catalog::expression::EvaluationError;
use seriatim::catalog::{ColumnDef, ColumnType};
use seriatim::procedure::divided::{Call, Fragment, NOTHING, Reply};
use seriatim::procedure::ir::{Expression, ExpressionKind, Function, StepKind};
use seriatim::procedure::{Data, DataType, Declared, Procedures, RegisterError, Scalar, Value, ir};
use seriatim::rng::seed;
use seriatim::{
    Abort, Batch, Builder, Database, Handle, Rng, SchemaError, Session, Table, TransactError, Tx, procedure,
    procedures, thread,
};

use crate::common::{Setting, each};

#[derive(Table)]
#[table(name = "purse", key(branch, id))]
#[table(index(name = "by_owner", columns(branch, owner), ordered, unique))]
struct Purse {
    branch: u16,
    id: u32,
    owner: u32,
    coins: i64,
}

/// Puts coins into a purse.
#[procedure]
fn put(tx: &Tx, branch: u16, id: u32, coins: i64) -> Result<i64, Abort> {
    let held = tx.update::<Purse>((branch, id), |purse| {
        purse.coins += coins;
        purse.coins
    })?;
    Ok(held)
}

/// Adds without reading, and perhaps not at all.
#[procedure]
fn add(tx: &Tx, branch: u16, id: u32, coins: i64) -> Result<bool, Abort> {
    let found = tx.update_if::<Purse>((branch, id), |purse| {
        if coins > 0 {
            purse.coins += coins;
        }
    })?;
    Ok(found.is_some())
}

/// Moves coins between branches.
#[procedure]
fn pass(tx: &Tx, from: u16, to: u16, id: u32, coins: i64) -> Result<i64, Abort> {
    let purse = tx.require::<Purse>((from, id))?;
    if purse.coins < coins {
        return Err(tx.abort("too few coins"));
    }
    tx.update::<Purse>((from, id), |purse| purse.coins -= coins)?;
    tx.update::<Purse>((to, id), |purse| purse.coins += coins)?;
    Ok(purse.coins - coins)
}

/// Fills a branch in a loop over a range, and a list that ends it.
#[procedure]
fn fill(tx: &Tx, branch: u16, count: u32, coins: &[i64]) -> Result<u32, Abort> {
    let mut made = 0u32;
    for id in 0..count {
        let is_there = tx.exists::<Purse>((branch, id))?;
        if is_there {
            continue;
        }
        tx.insert(Purse { branch, id, owner: id + 100, coins: 0 })?;
        made += 1;
    }
    for more in coins {
        if *more < 0 {
            break;
        }
        tx.update::<Purse>((branch, made), |purse| purse.coins += *more)?;
    }
    Ok(made)
}

/// Removes the poor of a branch, and finds an owner.
#[procedure]
fn sweep(tx: &Tx, branch: u16, least: i64, owner: u32) -> Result<(u32, Option<i64>), Abort> {
    let mut poor: Vec<u32> = Vec::new();
    for purse in tx.prefix::<Purse>(branch)? {
        if purse.coins < least {
            poor.push(purse.id);
        }
    }
    let mut gone = 0u32;
    for id in poor {
        tx.delete::<Purse>((branch, id))?;
        gone += 1;
    }
    let found = tx.get_by::<Purse>(Purse::BY_OWNER, (branch, owner))?;
    if let Some(purse) = found {
        return Ok((gone, Some(purse.coins)));
    }
    Ok((gone, None))
}

/// Only reads.
#[procedure]
fn richest(tx: &Tx, branch: u16) -> Result<i64, Abort> {
    let mut most = 0i64;
    for purse in tx.prefix::<Purse>(branch)? {
        if purse.coins > most {
            most = purse.coins;
        }
    }
    Ok(most)
}

/// A row determines a second partition.
#[procedure]
fn chase(tx: &Tx, branch: u16, id: u32) -> Result<i64, Abort> {
    let first = tx.require::<Purse>((branch, id))?;
    let second = tx.get::<Purse>((branch, first.owner))?;
    let Some(second) = second else { return Ok(first.coins) };
    let mut coins = second.coins;
    for other in tx.scan::<Purse>(..)? {
        coins += other.coins;
    }
    Ok(coins)
}

const BRANCHES: u16 = 4;

/// The same, to be called by the name `data` and its own.
fn data<P: Declared>(_: P) -> ir::Procedure {
    let mut declaration = P::declaration();
    declaration.name = format!("data_{}", P::NAME).into();
    declaration
}

fn scalars(types: &[ColumnType]) -> Vec<DataType> {
    types.iter().copied().map(DataType::from).collect()
}

/// All of them as data.
fn all() -> Procedures {
    use ColumnType::{I64, U16, U32};
    let list = DataType::List(Box::new(I64.into()));
    Procedures::new()
        .with_representation(data(put), scalars(&[U16, U32, I64]))
        .with_representation(data(add), scalars(&[U16, U32, I64]))
        .with_representation(data(pass), scalars(&[U16, U16, U32, I64]))
        .with_representation(data(fill), [scalars(&[U16, U32]), vec![list]].concat())
        .with_representation(data(sweep), scalars(&[U16, I64, U32]))
        .with_representation(data(richest), scalars(&[U16]))
}

fn open(builder: Builder) -> (Database, Handle<Purse>) {
    let db = builder.open().expect("a valid setting");
    let purses = db.create::<Purse>().expect("a valid table");
    for branch in 0..BRANCHES {
        let insert =
            |tx: &Tx| (0..2).try_for_each(|id| tx.insert(&purses, &Purse { branch, id, owner: id, coins: 50 }));
        db.session().transact(insert).expect("new keys");
    }
    (db, purses)
}

/// A random call: the name of the procedure, and its arguments.
fn any(rng: &mut Rng) -> (&'static str, Value) {
    let branch = rng.below(u64::from(BRANCHES)) as u16;
    let (id, coins) = (rng.below(4) as u32, rng.below(60) as i64 - 10);
    match rng.below(7) {
        0 => ("put", (branch, id, coins).to_value()),
        1 => ("add", (branch, id, coins).to_value()),
        2 | 3 => ("pass", (branch, rng.below(u64::from(BRANCHES)) as u16, id, coins).to_value()),
        4 => {
            let coins: Vec<i64> = (0..rng.below(3)).map(|_| rng.below(9) as i64 - 2).collect();
            ("fill", (branch, rng.below(4) as u32, coins).to_value())
        }
        5 => ("sweep", (branch, rng.below(9) as i64 - 5, rng.below(103) as u32).to_value()),
        _ => ("richest", branch.to_value()),
    }
}

fn contents(db: &Database, purses: &Handle<Purse>) -> Vec<(u16, u32, u32, i64)> {
    let read = |tx: &Tx| {
        let rows = tx.scan(purses, ..).map(|row| row.map(|row| (row.branch(), row.id(), row.owner(), row.coins())));
        rows.collect::<Result<Vec<_>, _>>()
    };
    db.session().transact(read).expect("no conflict").into_value()
}

fn is_same(got: &Result<Value, TransactError>, wanted: &Result<Value, TransactError>) -> bool {
    match (got, wanted) {
        (Ok(got), Ok(wanted)) => got == wanted,
        (Err(got), Err(wanted)) => std::mem::discriminant(got) == std::mem::discriminant(wanted),
        _ => false,
    }
}

#[test]
fn random_calls_of_data_mean_what_the_functions_do() {
    let seed = seed("random_calls_of_data_mean_what_the_functions_do");
    each(|setting| {
        let mut rng = Rng::from_seed(seed);
        for check in [false, true] {
            let (functions, of_functions) = open(setting.builder());
            functions.register(procedures![put, add, pass, fill, sweep, richest]).expect("a sound set");
            let (db, purses) = open(setting.builder().check_plans(check));
            let registered = db.register(all()).expect("a sound set");
            assert_eq!(registered.whole, registered.added, "data is not run in parts");
            // Both kinds are one set.
            db.register(procedures![put]).expect("another name");
            let (mut session, mut other) = (db.session(), functions.session());
            for _ in 0..60 {
                let (name, arguments) = any(&mut rng);
                let got = session.call_by_name(&format!("data_{name}"), &arguments).map(|done| done.value);
                let wanted = other.call_by_name(name, &arguments).map(|done| done.value);
                assert!(is_same(&got, &wanted), "{name}{arguments}: {got:?}, wanted {wanted:?}");
            }
            assert_eq!(contents(&db, &purses), contents(&functions, &of_functions));
        }
    });
}

#[test]
fn arguments_name_the_partitions_of_a_call() {
    each(|setting| {
        if !setting.protocol.capabilities.partitions {
            return;
        }
        let (db, purses) = open(setting.builder().partitions(usize::from(BRANCHES)));
        let everywhere = db.register(all()).expect("a sound set").everywhere;
        assert_eq!(everywhere, [], "all keys follow from the arguments");
        let chased = Procedures::new().with_representation(data(chase), scalars(&[ColumnType::U16, ColumnType::U32]));
        let everywhere = db.register(chased).expect("a sound set").everywhere;
        assert!(everywhere.len() == 1 && everywhere[0].procedure == "data_chase", "{everywhere:?}");

        let (functions, of_functions) = open(Database::builder());
        functions.register(procedures![put, add, pass, fill, sweep, richest]).expect("a sound set");
        let (executor, mut other) = (db.executor(2).expect("threads"), functions.session());
        let mut rng = Rng::from_seed(7);
        for _ in 0..100 {
            let (name, arguments) = any(&mut rng);
            let got = executor.call_by_name(&format!("data_{name}"), arguments.clone()).wait().map(|done| done.value);
            let wanted = other.call_by_name(name, &arguments).map(|done| done.value);
            assert!(is_same(&got, &wanted), "{name}{arguments}: {got:?}, wanted {wanted:?}");
        }
        assert_eq!(contents(&db, &purses), contents(&functions, &of_functions));
        functions.register(procedures![chase]).expect("a sound set");
        let arguments = (0u16, 0u32).to_value();
        let got = executor.call_by_name("data_chase", arguments.clone()).wait().map(|done| done.value);
        let wanted = other.call_by_name("chase", &arguments).map(|done| done.value);
        assert!(is_same(&got, &wanted), "{got:?}, wanted {wanted:?}");
    });
}

#[test]
fn calls_of_data_are_batched_by_their_rows() {
    each(|setting| {
        let (db, purses) = open(setting.builder().batch(Batch::Size(16)));
        db.register(all()).expect("a sound set");
        let executor = db.executor(2).expect("threads");
        let call = |at: u32| executor.call_by_name("data_put", ((at % 4) as u16, 0u32, 1i64).to_value());
        let running: Vec<_> = (0..64).map(call).collect();
        running.into_iter().for_each(|running| assert!(running.wait().is_ok()));
        let by_function = |at: u32| executor.call_by_name("data_pass", ((at % 4) as u16, 0u16, 9u32, 1i64).to_value());
        assert!((0..8).map(by_function).all(|running| running.wait().is_err()), "there is no such purse");
        let coins: Vec<i64> = contents(&db, &purses).iter().filter(|purse| purse.1 == 0).map(|purse| purse.3).collect();
        assert_eq!(coins, [50 + 16; BRANCHES as usize]);
        assert_eq!(executor.batch_statistics().calls, 72, "each has a footprint");
        drop(executor);
        // A function that is called by its name has the same footprint.
        db.register(procedures![put]).expect("another name");
        let executor = db.executor(2).expect("threads");
        let answer = executor.call_by_name("put", (1u16, 0u32, 1i64).to_value()).wait();
        assert_eq!(answer.expect("no conflict").value, 67i64.to_value());
        assert_eq!(executor.batch_statistics().calls, 1);
        let refused = executor.call_by_name("put", 1u16.to_value()).wait();
        assert!(matches!(refused, Err(TransactError::Arguments { .. })), "{refused:?}");
    });
}

/// A procedure without tables whose value is this expression over its parameters.
fn valued(name: &str, parameters: u16, value: ExpressionKind) -> ir::Procedure {
    let span = ir::Span { file: "a test".into(), line: 1, column: 1 };
    let variable = |at: u16| ir::Variable { name: format!("p{at}").into(), mutable: false, span: span.clone() };
    let value = Expression { span: span.clone(), kind: Box::new(value) };
    let step = ir::Step { id: ir::StepId(0), span: span.clone(), kind: StepKind::Return(value) };
    ir::Procedure {
        name: name.into(),
        span: span.clone(),
        latest: false,
        parameters: parameters.into(),
        variables: (0..parameters).map(variable).collect(),
        tables: Vec::new(),
        body: ir::Block(vec![step]),
        steps: 1,
        operations: 0,
    }
}

fn version(number: u32) -> Procedures {
    let literal = ExpressionKind::Literal(number.to_value());
    Procedures::new().with_representation(valued("version", 0, literal), Vec::new())
}

#[test]
fn a_procedure_that_is_data_is_replaced_and_removed() {
    each(|setting| {
        let (db, _) = open(setting.builder());
        let mut session = db.session();
        let call = |session: &mut Session| session.call_by_name("version", &Value::UNIT).map(|done| done.value);
        assert!(matches!(call(&mut session), Err(TransactError::UnknownProcedure { .. })));
        db.register(version(1)).expect("a sound set");
        assert_eq!(call(&mut session).ok(), Some(1u32.to_value()));
        let taken = db.register(version(2)).map(drop);
        assert!(matches!(taken, Err(RegisterError::Exists { .. })), "{taken:?}");
        let registered = db.register_or_replace(version(2)).expect("a sound set");
        assert_eq!((&*registered.replaced, &*registered.added), (&["version".to_owned()][..], &[][..]));
        assert_eq!(call(&mut session).ok(), Some(2u32.to_value()));
        assert_eq!(
            db.executor(1).expect("a thread").call_by_name("version", Value::UNIT).wait().ok().map(|d| d.value),
            Some(2u32.to_value())
        );
        assert!(db.unregister("version").expect("it is data"));
        assert!(!db.unregister("version").expect("it is gone") && db.plan("version").is_none());
        assert!(matches!(call(&mut session), Err(TransactError::UnknownProcedure { .. })));
        db.register_or_replace(version(3)).expect("a sound set");
        assert_eq!(call(&mut session).ok(), Some(3u32.to_value()));

        // A function stays.
        db.register(procedures![put]).expect("a sound set");
        let kept = [
            db.unregister("put").map(drop),
            db.register_or_replace(Procedures::new().with_representation(
                put::declaration(),
                scalars(&[ColumnType::U16, ColumnType::U32, ColumnType::I64]),
            ))
            .map(drop),
            db.register_or_replace(procedures![put]).map(drop),
        ];
        assert!(matches!(kept[0], Err(RegisterError::Function { .. })), "{kept:?}");
        assert!(kept[1..].iter().all(|kept| matches!(kept, Err(RegisterError::Exists { .. }))), "{kept:?}");
        assert_eq!(session.call(put, &(0, 0, 1)).expect("no conflict").value, 51);
    });
}

#[test]
fn no_call_that_begins_later_runs_what_was_replaced() {
    each(|setting: &Setting| {
        let db = setting.builder().workers(8).open().expect("a valid setting");
        db.register(version(0)).expect("a sound set");
        let stop = AtomicBool::new(false);
        let replaced = std::sync::atomic::AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut session = db.session();
                    while !stop.load(Ordering::Relaxed) {
                        let least = replaced.load(Ordering::SeqCst);
                        let value = session.call_by_name("version", &Value::UNIT).expect("it is there").value;
                        let Value::Integer(number, _) = value else { panic!("{value}") };
                        assert!(number >= i128::from(least), "{number} after {least}");
                    }
                });
            }
            for number in 1..12 {
                db.register_or_replace(version(number)).expect("calls end");
                replaced.store(number, Ordering::SeqCst);
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn changes_of_tables_find_procedures_that_are_data() {
    each(|setting| {
        let (db, _) = open(setting.builder());
        db.register(all()).expect("a sound set");
        let refused = db.migration().drop_table("purse").run().expect_err("procedures use it");
        assert!(
            matches!(&refused, SchemaError::InUse { procedure, .. } if procedure.starts_with("data_")),
            "{refused}"
        );
        let note = ColumnDef::new("note", ColumnType::U8).default("3");
        db.migration().change("purse", [Change::add_column(note)]).run().expect("the procedures find their columns");
        let mut session = db.session();
        let added = session.call_by_name("data_put", &(0u16, 0u32, 1i64).to_value());
        assert_eq!(added.expect("no conflict").value, 51i64.to_value());
        let filled = session.call_by_name("data_fill", &(0u16, 3u32, Vec::<i64>::new()).to_value());
        assert_eq!(filled.expect("the new column has a default").value, 1u32.to_value());
        ["put", "add", "pass", "fill", "sweep", "richest"].iter().for_each(|name| {
            assert!(db.unregister(&format!("data_{name}")).expect("it is data"));
        });
        db.migration().drop_table("purse").run().expect("no procedure uses it");
    });
}

#[test]
fn what_is_no_procedure_is_refused_with_its_place() {
    let (db, _) = open(Database::builder());
    let refused = |declaration: ir::Procedure, types: Vec<DataType>| {
        let set = Procedures::new().with_representation(declaration, types);
        db.register(set).expect_err("it is none").to_string()
    };
    let literal = || ExpressionKind::Literal(1u32.to_value());
    let unknown = ExpressionKind::Variable(ir::VariableId(7));
    assert_eq!(refused(valued("p", 0, unknown), Vec::new()), "a test:1:1: procedure `p`: it has no variable 7");
    let text = refused(valued("p", 2, literal()), scalars(&[ColumnType::U8]));
    assert_eq!(text, "a test:1:1: procedure `p`: it has 2 parameters and the types of 1");
    let mut twice = valued("p", 2, literal());
    twice.variables[1].name = "p0".into();
    assert!(refused(twice, scalars(&[ColumnType::U8; 2])).contains("two parameters have the name `p0`"));
    let mut numbered = valued("p", 0, literal());
    numbered.body.0[0].id = ir::StepId(3);
    assert!(refused(numbered, Vec::new()).contains("step 0 is counted as 3"));
    let mut endless = valued("p", 0, literal());
    (endless.body.0, endless.steps) = (Vec::new(), 0);
    assert!(refused(endless, Vec::new()).contains("must end in a return or an abort"));
    let mut deep = literal();
    for _ in 0..150 {
        let span = ir::Span { file: "a test".into(), line: 1, column: 1 };
        deep = ExpressionKind::Some(Expression { span, kind: Box::new(deep) });
    }
    assert!(refused(valued("p", 0, deep), Vec::new()).contains("nests deeper than 100 levels"));
    let mut elsewhere = data(put);
    elsewhere.tables[0].table = "nowhere".into();
    let types = scalars(&[ColumnType::U16, ColumnType::U32, ColumnType::I64]);
    assert!(refused(elsewhere, types).contains("nowhere"));
    assert!(db.procedure_names().is_empty());
}

#[test]
fn an_expression_of_sql_is_a_function_of_a_procedure() {
    each(|setting| {
        let (db, _) = open(setting.builder());
        let half = "10 / $1".parse().expect("an expression");
        let scalar = Scalar::value(&half, &[ColumnType::I32]).expect("typed");
        let span = ir::Span { file: "a test".into(), line: 1, column: 1 };
        let argument = Expression { span, kind: Box::new(ExpressionKind::Variable(ir::VariableId(0))) };
        let call = ExpressionKind::Call(Function::Scalar(scalar.into()), vec![argument]);
        let types = vec![DataType::Option(Box::new(ColumnType::I32.into()))];
        db.register(Procedures::new().with_representation(valued("half", 1, call), types)).expect("a sound set");
        let plan = db.plan("half").expect("it is registered").to_string();
        assert!(plan.contains("can fail: an expression without a value"), "{plan}");
        let mut session = db.session();
        let mut call =
            |argument: Option<i32>| session.call_by_name("half", &argument.to_value()).map(|done| done.value);
        assert_eq!(call(Some(3)).expect("no conflict"), Some(3i32).to_value());
        assert_eq!(call(None).expect("no conflict"), Value::NONE);
        let error = call(Some(0)).expect_err("no value");
        assert_eq!(error.user::<EvaluationError>().map(EvaluationError::sqlstate), Some("22012"), "{error}");
    });
}

#[test]
fn a_call_can_be_a_part_of_an_explicit_transaction() {
    each(|setting| {
        let (functions, of_functions) = open(setting.builder());
        functions.register(procedures![put, add, pass, fill, sweep, richest]).expect("a sound set");
        let (db, purses) = open(setting.builder());
        db.register(all()).expect("a sound set");
        let (mut session, mut other) = (db.session(), functions.session());
        let tx = session.begin().expect("a worker");
        let tx_of_functions = other.begin().expect("the same protocol");
        let mut rng = Rng::from_seed(7);
        for _ in 0..30 {
            let (name, arguments) = any(&mut rng);
            let savepoints = [tx.savepoint(), tx_of_functions.savepoint()];
            let got = tx.call_by_name(&format!("data_{name}"), &arguments);
            let wanted = tx_of_functions.call_by_name(name, &arguments);
            assert!(is_same(&got, &wanted), "{name}{arguments}: {got:?}, wanted {wanted:?}");
            if got.is_err() {
                let [own, others] = savepoints.map(|savepoint| savepoint.expect("it is open"));
                tx.rollback_to(own).expect("it is open");
                tx_of_functions.rollback_to(others).expect("it is open");
            }
        }
        let unknown = tx.call_by_name("nothing", &Value::UNIT);
        assert!(matches!(unknown, Err(TransactError::UnknownProcedure { .. })), "{unknown:?}");
        let refused = tx.call_by_name("data_put", &7u32.to_value());
        assert!(matches!(refused, Err(TransactError::Arguments { .. })), "{refused:?}");
        tx.commit().expect("no conflict");
        tx_of_functions.commit().expect("no conflict");
        assert_eq!(contents(&db, &purses), contents(&functions, &of_functions));
    });
}

#[test]
fn a_call_of_data_is_sent_to_the_owner_of_its_partition() {
    let (db, _) = open(Database::builder().partitions(usize::from(BRANCHES)));
    let types = scalars(&[ColumnType::U16, ColumnType::U32, ColumnType::I64]);
    db.register(Procedures::new().with_representation(data(put), types)).expect("a sound set");
    db.register(procedures![put]).expect("another name");
    let divided = db.divide().expect("each call needs one partition");
    let mut session = db.session();
    for (name, held) in [("data_put", 57i64), ("put", 64)] {
        let call = divided.call_by_name(name, &(3u16, 1u32, 7i64).to_value()).expect("it names its partition");
        assert_eq!(call.partitions().count_ones(), 1);
        let Call { procedure, arguments, .. } = call.clone();
        let fragment = Fragment { procedure, arguments, round: None, found: Vec::new() };
        let at = call.partitions().trailing_zeros() as usize;
        let ran = divided.run(&mut session, at, &fragment, false, NOTHING).expect("no conflict");
        let Reply::Output(bytes) = ran.reply else { panic!("it needs no other partition") };
        assert_eq!(divided.value(&call, &bytes).expect("its result"), held.to_value());
    }
    let refused = divided.call_by_name("data_put", &7u16.to_value());
    assert!(matches!(refused, Err(TransactError::Arguments { .. })), "{refused:?}");
}
