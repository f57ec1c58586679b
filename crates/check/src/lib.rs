//! Checks of procedures, for the tests of their authors.
//!
//! [`check_dependencies`] asks whether the dependencies that a plan declares are all there are. Execution in pieces and
//! repairs rely on them. An undeclared one is a fault of the analysis, or of a `#[pure]` function that is not pure.
//!
//! One execution by the interpreter is recorded: what each operation was given and what it gave back. Then the
//! interpreter runs the procedure again and again without a database. Operations give back what they gave then, except
//! that one of them gives something else. Only its declared descendants may be given other keys or values. Values reach
//! an operation through the procedure's own variables and branches only. An execution that fails because of the change
//! ends early and is compared up to there.
//!
//! ```
//! use seriatim::{Abort, Database, Table, Tx, procedure, procedures};
//!
//! #[derive(Table)]
//! #[table(name = "account", key(id), hash)]
//! struct Account {
//!     id: u64,
//!     balance: i64,
//! }
//!
//! /// Moves money.
//! #[procedure]
//! fn transfer(tx: &Tx, from: u64, to: u64, amount: i64) -> Result<(), Abort> {
//!     tx.update::<Account>(from, |account| account.balance -= amount)?;
//!     tx.update::<Account>(to, |account| account.balance += amount)?;
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = Database::in_memory()?;
//! let accounts = db.create::<Account>()?;
//! let mut session = db.session();
//! session.transact(|tx| (1..=2).try_for_each(|id| tx.insert(&accounts, &Account { id, balance: 100 })))?;
//!
//! db.register(procedures![transfer])?;
//! assert_eq!(seriatim_check::check_dependencies(&mut session, transfer, &(1, 2, 30), 7)?, Ok(()));
//! # Ok(())
//! # }
//! ```

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use seriatim::catalog::Scalar;
use seriatim::procedure::ir::{Operation, Procedure};
use seriatim::procedure::plan::Plan;
use seriatim::procedure::support::{Reference, Stopped};
use seriatim::procedure::{Data, Declared, EvaluationError, IntegerType, Value};
use seriatim::{Rng, Session, TransactError};
use seriatim_procedure::interpret::{Changes, Keys, Operate, interpret};

/// Runs a registered procedure by its declaration, rolls it back, and looks for a dependency that its plan does not
/// declare. The result of each operation is changed in turn. The inputs of other operations must stay the same unless
/// they are its descendants. `seed` decides the changes.
///
/// # Errors
/// The error that stopped the execution, as [`Session::interpret`]. The inner error is the dependency found, in words.
pub fn check_dependencies<P: Declared>(
    session: &mut Session,
    _procedure: P,
    arguments: &P::Arguments,
    seed: u64,
) -> Result<Result<(), String>, TransactError> {
    let mut place = None;
    // It is rolled back, so it need not take numbers.
    let arguments = P::complete(arguments, &mut |at| Ok(at as i64 + 1), &mut place)?;
    check_dependencies_by_name(session, P::NAME, &arguments.to_value(), seed)
}

/// As [`check_dependencies`], by name and on dynamic values. The numbers that the procedure takes are among them.
///
/// # Errors
/// As [`check_dependencies`].
pub fn check_dependencies_by_name(
    session: &mut Session,
    name: &str,
    arguments: &Value,
    seed: u64,
) -> Result<Result<(), String>, TransactError> {
    let mut found = None;
    session.interpret_with(name, &mut |declaration, plan, database| {
        let recorder = Recorder { database, events: RefCell::default() };
        interpret(declaration, arguments, &recorder)?;
        found = undeclared(plan, declaration, arguments, &recorder.events.into_inner(), seed);
        Ok(())
    })?;
    Ok(found.map_or(Ok(()), Err))
}

/// The inputs of an operation: its keys, and the values it writes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Given {
    keys: Option<Keys>,
    changes: Changes,
}

/// Its result.
#[derive(Clone, Debug, PartialEq)]
enum OperationResult {
    Nothing,
    Row(Option<Value>),
    Flag(bool),
    Rows(Vec<Value>),
}

#[derive(Clone, Debug, PartialEq)]
struct Event {
    operation: usize,
    given: Given,
    gave: OperationResult,
}

fn whole(key: &[Value]) -> Given {
    Given { keys: Some(Keys::Prefix(key.to_vec())), changes: Changes::new() }
}

/// Passes operations on and records them.
struct Recorder<'r> {
    database: &'r Reference<'r>,
    events: RefCell<Vec<Event>>,
}

impl Recorder<'_> {
    fn note(&self, operation: &Operation, given: Given, gave: OperationResult) {
        self.events.borrow_mut().push(Event { operation: operation.id.index(), given, gave });
    }
}

impl Operate for Recorder<'_> {
    type Error = Stopped;

    fn get(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<Option<Value>, Stopped> {
        let given = whole(&key);
        let row = self.database.get(operation, table, key)?;
        self.note(operation, given, OperationResult::Row(row.clone()));
        Ok(row)
    }

    fn update(
        &self,
        operation: &Operation,
        table: &str,
        key: Vec<Value>,
        body: &mut dyn FnMut(Value) -> Result<Changes, Stopped>,
    ) -> Result<bool, Stopped> {
        let (mut given, mut before) = (whole(&key), None);
        let found = self.database.update(operation, table, key, &mut |row| {
            before = Some(row.clone());
            given.changes = body(row)?;
            Ok(given.changes.clone())
        })?;
        self.note(operation, given, OperationResult::Row(before));
        Ok(found)
    }

    fn insert(&self, operation: &Operation, table: &str, columns: Changes) -> Result<(), Stopped> {
        let given = Given { keys: None, changes: columns.clone() };
        self.database.insert(operation, table, columns)?;
        self.note(operation, given, OperationResult::Nothing);
        Ok(())
    }

    fn delete(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<bool, Stopped> {
        let given = whole(&key);
        let found = self.database.delete(operation, table, key)?;
        self.note(operation, given, OperationResult::Flag(found));
        Ok(found)
    }

    fn scan(
        &self,
        operation: &Operation,
        table: &str,
        keys: Keys,
        reverse: bool,
        visit: &mut dyn FnMut(Value) -> Result<ControlFlow<()>, Stopped>,
    ) -> Result<(), Stopped> {
        // Noted before its loop's body runs, as the replay does it.
        let at = self.events.borrow().len();
        let given = Given { keys: Some(keys.clone()), changes: Changes::new() };
        self.note(operation, given, OperationResult::Rows(Vec::new()));
        self.database.scan(operation, table, keys, reverse, &mut |row| {
            if let OperationResult::Rows(rows) = &mut self.events.borrow_mut()[at].gave {
                rows.push(row.clone());
            }
            visit(row)
        })
    }

    fn missing(&self, operation: &Operation, table: &str, key: &[Value]) -> Stopped {
        self.database.missing(operation, table, key)
    }

    fn abort(&self, error: Value) -> Stopped {
        self.database.abort(error)
    }
}

/// The end of a replay; its reason does not matter.
struct Ended;

impl From<EvaluationError> for Ended {
    fn from(_: EvaluationError) -> Ended {
        Ended
    }
}

/// Gives back what was recorded, of one operation something else.
struct Replay<'r> {
    recorded: &'r [Event],
    changed: usize,
    rng: RefCell<Rng>,
    /// The inputs of each operation, in order.
    given: RefCell<Vec<Vec<Given>>>,
}

impl Replay<'_> {
    /// The result of the operation at its run with the same number.
    fn answer(&self, operation: &Operation, given: Given) -> OperationResult {
        let id = operation.id.index();
        let mut all = self.given.borrow_mut();
        let time = all[id].len();
        all[id].push(given);
        let mut times = self.recorded.iter().filter(|event| event.operation == id);
        let gave = times
            .clone()
            .nth(time)
            .or_else(|| times.next_back())
            .map_or(OperationResult::Nothing, |event| event.gave.clone());
        if id != self.changed {
            return gave;
        }
        let rng = &mut *self.rng.borrow_mut();
        match gave {
            OperationResult::Nothing => OperationResult::Nothing,
            OperationResult::Flag(found) => OperationResult::Flag(!found),
            OperationResult::Row(Some(row)) => OperationResult::Row((!rng.percent(20)).then(|| mutated(&row, rng))),
            OperationResult::Row(None) => OperationResult::Row(None),
            OperationResult::Rows(mut rows) => {
                if rng.percent(30) {
                    rows.pop();
                }
                OperationResult::Rows(rows.iter().map(|row| mutated(row, rng)).collect())
            }
        }
    }
}

impl Operate for Replay<'_> {
    type Error = Ended;

    fn get(&self, operation: &Operation, _: &str, key: Vec<Value>) -> Result<Option<Value>, Ended> {
        match self.answer(operation, whole(&key)) {
            OperationResult::Row(row) => Ok(row),
            _ => Ok(None),
        }
    }

    fn update(
        &self,
        operation: &Operation,
        _: &str,
        key: Vec<Value>,
        body: &mut dyn FnMut(Value) -> Result<Changes, Ended>,
    ) -> Result<bool, Ended> {
        let OperationResult::Row(Some(row)) = self.answer(operation, whole(&key)) else { return Ok(false) };
        let changes = body(row)?;
        if let Some(given) = self.given.borrow_mut()[operation.id.index()].last_mut() {
            given.changes = changes;
        }
        Ok(true)
    }

    fn insert(&self, operation: &Operation, _: &str, columns: Changes) -> Result<(), Ended> {
        self.answer(operation, Given { keys: None, changes: columns });
        Ok(())
    }

    fn delete(&self, operation: &Operation, _: &str, key: Vec<Value>) -> Result<bool, Ended> {
        Ok(self.answer(operation, whole(&key)) == OperationResult::Flag(true))
    }

    fn scan(
        &self,
        operation: &Operation,
        _: &str,
        keys: Keys,
        _: bool,
        visit: &mut dyn FnMut(Value) -> Result<ControlFlow<()>, Ended>,
    ) -> Result<(), Ended> {
        let OperationResult::Rows(rows) = self.answer(operation, Given { keys: Some(keys), changes: Changes::new() })
        else {
            return Ok(());
        };
        for row in rows {
            if visit(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn missing(&self, _: &Operation, _: &str, _: &[Value]) -> Ended {
        Ended
    }

    fn abort(&self, _: Value) -> Ended {
        Ended
    }
}

/// Another value of the same type: a byte of it is one more or one less.
fn other_scalar(scalar: &Scalar) -> Scalar {
    let others = (0..scalar.stored().len()).flat_map(|at| [1, u8::MAX].map(|step| (at, step)));
    let mut others = others.filter_map(|(at, step)| {
        let mut stored = scalar.stored().to_vec();
        stored[at] = stored[at].wrapping_add(step);
        Scalar::of_stored(scalar.column_type(), &stored)
    });
    others.next().unwrap_or(*scalar)
}

/// Another value of the same type, where there is one.
fn mutated(value: &Value, rng: &mut Rng) -> Value {
    let other = |number: i128, ty: IntegerType, rng: &mut Rng| {
        let step = 1 + i128::from(rng.below(3));
        if ty.has(number + step) { number + step } else { number - step }
    };
    match value {
        Value::Bool(value) => Value::Bool(!value),
        Value::Integer(number, ty) => Value::Integer(other(*number, ty.unwrap_or(IntegerType::I64), rng), *ty),
        Value::Float(value) => Value::Float(value + 1.0),
        Value::Decimal { units, scale } => Value::Decimal { units: units ^ 1, scale: *scale },
        Value::Timestamp(microseconds) => Value::Timestamp(microseconds ^ 1),
        Value::Scalar(scalar) => Value::Scalar(other_scalar(scalar)),
        Value::Text(text) => Value::Text(format!("{text}~")),
        Value::Bytes(bytes) => Value::Bytes([&bytes[..], b"~"].concat()),
        Value::Option(Some(value)) => Value::Option((!rng.percent(20)).then(|| Box::new(mutated(value, rng)))),
        Value::Option(None) => Value::NONE,
        Value::Tuple(values) => Value::Tuple(values.iter().map(|value| mutated(value, rng)).collect()),
        Value::List(values) => Value::List(values.iter().map(|value| mutated(value, rng)).collect()),
        Value::Record { name, fields } => {
            // Some of the columns, so that a change of one does not always come with that of another.
            let field = |(field, value): &(_, Value)| {
                let value = if rng.percent(70) { mutated(value, rng) } else { value.clone() };
                (Arc::clone(field), value)
            };
            Value::Record { name: name.clone(), fields: fields.iter().map(field).collect() }
        }
    }
}

/// Mutations of each operation.
const TRIES: u32 = 8;

/// A dependency between operations that the plan does not declare, in words.
fn undeclared(
    plan: &Plan,
    declaration: &Procedure,
    arguments: &Value,
    recorded: &[Event],
    seed: u64,
) -> Option<String> {
    let mut rng = Rng::from_seed(seed);
    let operations = declaration.operations;
    let then = |id: usize| recorded.iter().filter(move |event| event.operation == id).map(|event| &event.given);
    for changed in 0..operations {
        let descendants = plan.descendants(changed);
        for _ in 0..TRIES {
            let given = RefCell::new(vec![Vec::new(); operations]);
            let rng = RefCell::new(Rng::from_seed(rng.next_u64()));
            let replay = Replay { recorded, changed, rng, given };
            let ended = interpret(declaration, arguments, &replay).is_err();
            let now = replay.given.into_inner();
            let differs = |id: &usize| {
                let (now, all) = (&now[*id], then(*id).count());
                let is_whole = now.len() == all || ended && now.len() < all;
                !is_whole || now.iter().zip(then(*id)).any(|(now, then)| now != then)
            };
            let found = (0..operations).filter(|id| !descendants.contains(id)).find(differs);
            if let Some(id) = found {
                let (id, changed) = (plan.label(id), plan.label(changed));
                return Some(format!("the plan does not say that operation {id} depends on operation {changed}"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use seriatim::catalog::{ColumnDef, ColumnType, TableDef};
    use seriatim::procedure::ir::{
        Block, Expression, ExpressionKind, OperationId, OperationKind, Pattern, Span, Step, StepId, StepKind, TableUse,
        Variable, VariableId,
    };

    use seriatim_procedure::analysis::{Schema, plan};

    use super::*;

    fn span() -> Span {
        Span { file: Arc::from("here"), line: 1, column: 1 }
    }

    fn expression(kind: ExpressionKind) -> Expression {
        Expression { span: span(), kind: Box::new(kind) }
    }

    fn variable(id: u16) -> Expression {
        expression(ExpressionKind::Variable(VariableId(id)))
    }

    /// `let a = tx.require::<Link>(id)?; let b = tx.require::<Link>(a.next)?; Ok(b.next)`.
    fn follow() -> Procedure {
        let next = |of| expression(ExpressionKind::Field(variable(of), Arc::from("next")));
        let get = |id: u16, key| {
            let kind = OperationKind::Get { key: vec![key], required: true };
            let operation = Operation { id: OperationId(id), span: span(), table: 0, index: None, kind };
            let bind = Some(Pattern::Bind(VariableId(id + 1)));
            Step { id: StepId(id), span: span(), kind: StepKind::Operation { operation: Box::new(operation), bind } }
        };
        let end = Step { id: StepId(2), span: span(), kind: StepKind::Return(next(2)) };
        let named = |name: &str| Variable { name: Arc::from(name), mutable: false, span: span() };
        Procedure {
            name: Arc::from("follow"),
            span: span(),
            latest: false,
            parameters: 1,
            variables: ["id", "a", "b"].map(named).to_vec(),
            tables: vec![TableUse { table: Arc::from("link"), span: span() }],
            body: Block(vec![get(0, variable(0)), get(1, next(1)), end]),
            steps: 3,
            operations: 2,
        }
    }

    #[test]
    fn canary_a_dependency_that_the_plan_hides_is_found() {
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
        let table = TableDef::builder("link").column(column("id")).column(column("next")).key(["id"]);
        let procedure = follow();
        let mut plan =
            plan(&procedure, &Schema::new([table.finish().expect("a valid table")])).expect("a sound procedure");
        let number = |value| Value::Integer(value, Some(IntegerType::U32));
        let event = |operation: usize, key: i128| {
            let fields = [("id", key), ("next", key + 1)].map(|(name, value)| (Arc::from(name), number(value)));
            let row = Value::Record { name: Arc::from("link"), fields: fields.to_vec() };
            Event { operation, given: whole(&[number(key)]), gave: OperationResult::Row(Some(row)) }
        };
        let recorded = [event(0, 5), event(1, 6)];
        assert_eq!(undeclared(&plan, &procedure, &number(5), &recorded, 1), None);
        plan.operations[1].key_from.clear();
        let found = undeclared(&plan, &procedure, &number(5), &recorded, 1).expect("it is hidden");
        assert!(found.ends_with("operation 1 get link depends on operation 0 get link"), "{found}");
    }
}
