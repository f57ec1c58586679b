//! Whether dependencies are all there: an execution is recorded and repeated with one operation giving
//! something else. Only operations that depend on it by the plan may then be given other keys and values, or run more
//! or less often. Only an abort that it decides over may come.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use seriatim_base::Rng;
use seriatim_procedure::Value;
use seriatim_procedure::interpret::{Changes, Keys, Operate, interpret};
use seriatim_procedure::ir::{Operation, Procedure};
use seriatim_procedure::plan::{FailureKind, Plan};

use super::arguments;
use super::chain::{number, rows};
use super::support::toy::{Toy, ToyError};

/// The inputs of an operation: its key, and the columns it set.
type Given = (Vec<Value>, Changes);

/// The rows that it found.
type Gave = Vec<Value>;

/// By operation.
#[derive(Clone, Default)]
struct Events {
    given: Vec<Vec<Given>>,
    gave: Vec<Vec<Gave>>,
}

/// Operations answer from a database, or what they answered before, except one.
struct Script<'s> {
    toy: Toy,
    before: Option<(&'s Events, usize)>,
    rng: RefCell<Rng>,
    events: RefCell<Events>,
}

impl Script<'_> {
    fn rows(&self, operation: &Operation, key: &[Value], real: impl FnOnce() -> Gave) -> Gave {
        let id = operation.id.index();
        let at = self.events.borrow().given[id].len();
        let gave = match self.before {
            None => real(),
            Some((before, other)) => {
                let mut rng = self.rng.borrow_mut();
                match before.gave[id].get(at) {
                    Some(gave) if id != other => gave.clone(),
                    _ => {
                        (0..rng.below(3)).map(|at| row(at.into(), [rng.below(3).into(), rng.below(3).into()])).collect()
                    }
                }
            }
        };
        let mut events = self.events.borrow_mut();
        events.given[id].push((key.to_vec(), Changes::new()));
        events.gave[id].push(gave.clone());
        gave
    }
}

impl Operate for Script<'_> {
    type Error = ToyError;

    fn get(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<Option<Value>, ToyError> {
        let real = || self.toy.get(operation, table, key.clone()).ok().flatten().into_iter().collect();
        Ok(self.rows(operation, &key, real).into_iter().next())
    }

    fn update(
        &self,
        operation: &Operation,
        table: &str,
        key: Vec<Value>,
        body: &mut dyn FnMut(Value) -> Result<Changes, ToyError>,
    ) -> Result<bool, ToyError> {
        let id = operation.id.index();
        let real = || self.toy.get(operation, table, key.clone()).ok().flatten().into_iter().collect();
        let found = self.rows(operation, &key, real).into_iter().next();
        let Some(found) = found else { return Ok(false) };
        let changes = body(found)?;
        let at = self.events.borrow().given[id].len() - 1;
        self.events.borrow_mut().given[id][at].1.clone_from(&changes);
        if self.before.is_none() {
            return self.toy.update(operation, table, key, &mut |_| Ok(changes.clone()));
        }
        Ok(true)
    }

    fn insert(&self, _: &Operation, _: &str, _: Changes) -> Result<(), ToyError> {
        unreachable!("none is written")
    }

    fn delete(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<bool, ToyError> {
        let gone = || self.toy.delete(operation, table, key.clone()).unwrap_or(false);
        Ok(!self.rows(operation, &key, || if gone() { vec![Value::UNIT] } else { Vec::new() }).is_empty())
    }

    fn scan(
        &self,
        operation: &Operation,
        table: &str,
        keys: Keys,
        reverse: bool,
        visit: &mut dyn FnMut(Value) -> Result<ControlFlow<()>, ToyError>,
    ) -> Result<(), ToyError> {
        let mut rows = Vec::new();
        self.toy.scan(operation, table, keys, reverse, &mut |row| {
            rows.push(row);
            Ok(ControlFlow::Continue(()))
        })?;
        for row in self.rows(operation, &[], || rows) {
            if visit(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn missing(&self, operation: &Operation, table: &str, key: &[Value]) -> ToyError {
        self.toy.missing(operation, table, key)
    }

    fn abort(&self, error: Value) -> ToyError {
        ToyError::User(error)
    }
}

fn row(key: i128, [v, w]: [i128; 2]) -> Value {
    Value::record("row", [("id", number(key)), ("v", number(v)), ("w", number(w))])
}

/// Panics with what the plan hides.
pub(crate) fn check(procedure: &Procedure, plan: &Plan, rng: &mut Rng) {
    let (arguments, toy) = (arguments(rng), rows(rng));
    let nothing =
        Events { given: vec![Vec::new(); procedure.operations], gave: vec![Vec::new(); procedure.operations] };
    let script = |before, rng: &mut Rng| Script {
        toy: toy.clone(),
        before,
        rng: RefCell::new(rng.fork()),
        events: RefCell::new(nothing.clone()),
    };
    let recorder = script(None, rng);
    let first = interpret(procedure, &arguments, &recorder);
    let recorded = recorder.events.into_inner();
    for changed in 0..procedure.operations {
        let replay = script(Some((&recorded, changed)), rng);
        let second = interpret(procedure, &arguments, &replay);
        let again = replay.events.into_inner();
        let told = |what: String| format!("{what} with #{changed} changed: {arguments} on {toy:?}\n{procedure}{plan}");
        if let (Err(ToyError::User(Value::Integer(step, _))), true) = (&second, first != second) {
            let decides = |by: &BTreeSet<usize>| by.iter().any(|by| plan.descendants(changed).contains(by));
            let mut failures = plan.failures.iter().filter(|failure| {
                failure.kind == FailureKind::UserAbort && failure.step == usize::try_from(*step).unwrap_or(usize::MAX)
            });
            // An execution that failed before may have come to other ends.
            assert!(
                first.is_err() || failures.any(|failure| decides(&failure.decided_by)),
                "{}",
                told("aborts".into())
            );
        }
        let descendants = plan.descendants(changed);
        for other in (0..procedure.operations).filter(|other| !descendants.contains(other)) {
            let (mine, theirs) = (&recorded.given[other], &again.given[other]);
            let common = mine.len().min(theirs.len());
            assert_eq!(mine[..common], theirs[..common], "{}", told(format!("#{other}")));
            // An execution that ended early did less.
            assert!(first.is_err() || mine.len() >= theirs.len(), "{}", told(format!("#{other} runs more often")));
            assert!(second.is_err() || mine.len() <= theirs.len(), "{}", told(format!("#{other} runs less often")));
        }
    }
}
