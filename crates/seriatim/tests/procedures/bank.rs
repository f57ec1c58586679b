//! Procedures over accounts, written by hand as the attribute macro would generate them from the functions in the
//! comments.

use std::sync::Arc;

use seriatim::procedure::ir::{
    BinaryOperator, Block, Expression, ExpressionKind, Operation, OperationId, OperationKind, Pattern, Procedure,
    Selector, Span, Step, StepId, StepKind, TableUse, Target, Variable, VariableId,
};
use seriatim::procedure::support::Operations;
use seriatim::procedure::{Access, Declared, Next, Schedule, Touch, checked, support};
use seriatim::{Abort, Builder, Database, Handle, SchemaError, Session, Table, TransactError, Tx, procedures};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "account", key(id), ordered)]
pub(crate) struct Account {
    pub(crate) id: u64,
    pub(crate) balance: i64,
}

/// The number of transfers.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "turnover", key(id), hash)]
pub(crate) struct Turnover {
    pub(crate) id: u64,
    pub(crate) transfers: i64,
}

/// A bank with accounts 0, 1, … with these balances, and both procedures.
pub(crate) fn open(builder: Builder, balances: &[i64]) -> (Database, Session) {
    let db = builder.check_plans(true).open().expect("a valid setting");
    let accounts = db.create::<Account>().expect("a valid table");
    let turnover = db.create::<Turnover>().expect("a valid table");
    let mut session = db.session();
    let load = session.transact(|tx| {
        for (id, &money) in (0..).zip(balances) {
            tx.insert(&accounts, &Account { id, balance: money })?;
        }
        tx.insert(&turnover, &Turnover { id: 0, transfers: 0 })
    });
    load.expect("an empty table");
    db.register(procedures![transfer, balance]).expect("a sound set");
    (db, session)
}

/// All accounts and the number of transfers.
pub(crate) fn state(db: &Database) -> (Vec<i64>, i64) {
    let (accounts, turnover) =
        (db.table::<Account>().expect("it is there"), db.table::<Turnover>().expect("it is there"));
    let read = db.session().transact(|tx| {
        let balances = tx.scan(&accounts, ..).map(|row| Ok(row?.balance())).collect::<Result<_, Abort>>()?;
        Ok((balances, tx.require(&turnover, &0)?.transfers()))
    });
    read.expect("no conflict").into_value()
}

#[derive(Clone)]
pub(crate) struct Handles {
    pub(crate) accounts: Handle<Account>,
    pub(crate) turnover: Handle<Turnover>,
}

fn handles(database: &Database) -> Result<Handles, SchemaError> {
    Ok(Handles { accounts: database.table()?, turnover: database.table()? })
}

fn span(line: u32) -> Span {
    Span { file: Arc::from("bank.rs"), line, column: 1 }
}

fn expression(kind: ExpressionKind) -> Expression {
    Expression { span: span(1), kind: Box::new(kind) }
}

fn variable(id: u16) -> Expression {
    expression(ExpressionKind::Variable(VariableId(id)))
}

fn column(row: u16, name: &str) -> Expression {
    expression(ExpressionKind::Field(variable(row), Arc::from(name)))
}

fn number(value: i128) -> Expression {
    expression(ExpressionKind::Literal(seriatim::procedure::Value::Integer(value, None)))
}

fn variables(names: &[&str]) -> Vec<Variable> {
    names.iter().map(|name| Variable { name: Arc::from(*name), mutable: false, span: span(1) }).collect()
}

fn tables(names: &[&str]) -> Vec<TableUse> {
    names.iter().map(|name| TableUse { table: Arc::from(*name), span: span(2) }).collect()
}

fn step(id: u16, kind: StepKind) -> Step {
    Step { id: StepId(id), span: span(10 + u32::from(id)), kind }
}

/// `row.column operator= value`.
fn assign(id: u16, row: u16, column: &str, operator: BinaryOperator, value: Expression) -> Step {
    let place = Target { variable: VariableId(row), path: vec![Selector::Field(Arc::from(column))] };
    step(id, StepKind::Assign { place, operator: Some(operator), value })
}

fn operation(id: u16, table: usize, kind: OperationKind) -> Box<Operation> {
    Box::new(Operation { id: OperationId(id), span: span(10), table, index: None, kind })
}

/// ```text
/// fn transfer(tx: &Tx, from: u64, to: u64, amount: i64) -> Result<i64, Abort> {
///     let left = tx.update::<Account>(from, |account| { account.balance -= amount; account.balance })?;
///     tx.update::<Account>(to, |account| { account.balance += amount; })?;
///     tx.update::<Turnover>(0, |turnover| { turnover.transfers += 1; })?;
///     Ok(left)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub(crate) struct transfer;

/// Slots of `transfer`'s variables.
#[derive(Clone, Default)]
struct Frame {
    left: Option<i64>,
    result: Option<i64>,
}

/// Updates a row that must exist, as generated code does.
pub(crate) fn update<T: Table, R>(
    tx: &Tx,
    table: &Handle<T>,
    key: &T::Key,
    change: impl FnOnce(&mut T::Update<'_>) -> Result<R, Abort>,
) -> Result<R, Abort> {
    let mut result = None;
    support::update(support::operations(tx), table, key, support::ColumnUse::ALL, |row| {
        result = Some(change(row)?);
        Ok(())
    })?;
    result.ok_or_else(|| tx.missing(table, key))
}

fn withdraw(tx: &Tx, handles: &Handles, from: u64, amount: i64) -> Result<i64, Abort> {
    update(tx, &handles.accounts, &from, |account| {
        account.set_balance(checked::subtract(account.balance(), amount)?);
        Ok(account.balance())
    })
}

fn deposit(tx: &Tx, handles: &Handles, to: u64, amount: i64) -> Result<(), Abort> {
    update(tx, &handles.accounts, &to, |account| {
        account.set_balance(checked::add(account.balance(), amount)?);
        Ok(())
    })
}

fn count(tx: &Tx, handles: &Handles) -> Result<(), Abort> {
    update(tx, &handles.turnover, &0, |turnover| {
        turnover.set_transfers(checked::add(turnover.transfers(), 1)?);
        Ok(())
    })
}

impl Declared for transfer {
    const NAME: &'static str = "transfer";
    const SCHEDULES: bool = true;
    type Arguments = (u64, u64, i64);
    type All = (u64, u64, i64);
    type Output = i64;
    type Handles = Handles;

    fn complete<'given>(
        given: &'given Self::Arguments,
        _: &mut dyn FnMut(usize) -> Result<i64, TransactError>,
        _: &'given mut Option<Self::All>,
    ) -> Result<&'given Self::All, TransactError> {
        Ok(given)
    }

    fn declaration() -> Procedure {
        use BinaryOperator::{Add, Subtract};
        let update = |id: u16, table, key, row: u16, body| {
            let kind =
                OperationKind::Update { key: vec![key], required: true, row: VariableId(row), body: Block(body) };
            operation(id, table, kind)
        };
        let withdraw =
            vec![assign(1, 4, "balance", Subtract, variable(2)), step(2, StepKind::Yield(column(4, "balance")))];
        let deposit = vec![assign(4, 5, "balance", Add, variable(2))];
        let count = vec![assign(6, 6, "transfers", Add, number(1))];
        let bind = Some(Pattern::Bind(VariableId(3)));
        let body = vec![
            step(0, StepKind::Operation { operation: update(0, 0, variable(0), 4, withdraw), bind }),
            step(3, StepKind::Operation { operation: update(1, 0, variable(1), 5, deposit), bind: None }),
            step(5, StepKind::Operation { operation: update(2, 1, number(0), 6, count), bind: None }),
            step(7, StepKind::Return(variable(3))),
        ];
        Procedure {
            name: Arc::from(Self::NAME),
            span: span(1),
            latest: false,
            parameters: 3,
            variables: variables(&["from", "to", "amount", "left", "account", "account", "turnover"]),
            tables: tables(&["account", "turnover"]),
            body: Block(body),
            steps: 8,
            operations: 3,
        }
    }

    fn handles(database: &Database) -> Result<Handles, SchemaError> {
        handles(database)
    }

    fn straight<O: Operations>(
        operations: &O,
        handles: &Handles,
        &(from, to, amount): &(u64, u64, i64),
        output: &mut Option<i64>,
    ) -> Result<(), Abort> {
        let tx = support::tx(operations);
        *output = Some(withdraw(tx, handles, from, amount)?);
        deposit(tx, handles, to, amount)?;
        count(tx, handles)
    }

    fn scheduled(
        tx: &mut Tx,
        handles: &Handles,
        &(from, to, amount): &(u64, u64, i64),
        schedule: &mut Schedule<'_>,
    ) -> Result<i64, Abort> {
        let mut frame = Frame::default();
        loop {
            let mut copy = frame.clone();
            let next = schedule.pass(tx, |tx, schedule| {
                if schedule.enters(StepId(0), OperationId(0)) {
                    schedule.operation(tx, OperationId(0));
                    copy.left = Some(withdraw(tx, handles, from, amount)?);
                }
                if schedule.enters(StepId(3), OperationId(1)) {
                    schedule.operation(tx, OperationId(1));
                    deposit(tx, handles, to, amount)?;
                }
                if schedule.enters(StepId(5), OperationId(2)) {
                    schedule.operation(tx, OperationId(2));
                    count(tx, handles)?;
                }
                if schedule.due(StepId(7)) {
                    copy.result = copy.left;
                }
                Ok(())
            })?;
            match next {
                Next::Keep => frame = copy,
                Next::Repeat => {}
                Next::Done => return Ok(copy.result.expect("every step ran")),
            }
        }
    }

    fn footprint(handles: &Handles, (from, to, _): &(u64, u64, i64), visit: &mut dyn FnMut(Touch<'_>)) -> bool {
        Touch::key(OperationId(0), Access::Write, &handles.accounts, from, visit);
        Touch::key(OperationId(1), Access::Write, &handles.accounts, to, visit);
        Touch::key(OperationId(2), Access::Write, &handles.turnover, &0, visit);
        true
    }
}

/// ```text
/// fn balance(tx: &Tx, id: u64) -> Result<Option<i64>, Abort> {
///     let Some(account) = tx.get::<Account>(id)? else { return Ok(None) };
///     Ok(Some(account.balance))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub(crate) struct balance;

impl Declared for balance {
    const NAME: &'static str = "balance";
    type Arguments = u64;
    type All = u64;
    type Output = Option<i64>;
    type Handles = Handles;

    fn complete<'given>(
        given: &'given Self::Arguments,
        _: &mut dyn FnMut(usize) -> Result<i64, TransactError>,
        _: &'given mut Option<Self::All>,
    ) -> Result<&'given Self::All, TransactError> {
        Ok(given)
    }

    fn declaration() -> Procedure {
        let get = operation(0, 0, OperationKind::Get { key: vec![variable(0)], required: false });
        let body = vec![
            step(0, StepKind::Operation { operation: get, bind: Some(Pattern::Bind(VariableId(1))) }),
            step(
                1,
                StepKind::LetElse {
                    pattern: Pattern::Some(Box::new(Pattern::Bind(VariableId(2)))),
                    value: variable(1),
                    otherwise: Block(vec![step(2, StepKind::Return(expression(ExpressionKind::None)))]),
                },
            ),
            step(3, StepKind::Return(expression(ExpressionKind::Some(column(2, "balance"))))),
        ];
        Procedure {
            name: Arc::from(Self::NAME),
            span: span(20),
            latest: false,
            parameters: 1,
            variables: variables(&["id", "", "account"]),
            tables: tables(&["account"]),
            body: Block(body),
            steps: 4,
            operations: 1,
        }
    }

    fn handles(database: &Database) -> Result<Handles, SchemaError> {
        handles(database)
    }

    fn straight<O: Operations>(
        operations: &O,
        handles: &Handles,
        id: &u64,
        output: &mut Option<Option<i64>>,
    ) -> Result<(), Abort> {
        *output = Some(support::tx(operations).get(&handles.accounts, id)?.map(|account| account.balance()));
        Ok(())
    }

    fn footprint(handles: &Handles, id: &u64, visit: &mut dyn FnMut(Touch<'_>)) -> bool {
        Touch::key(OperationId(0), Access::Read, &handles.accounts, id, visit);
        true
    }
}
