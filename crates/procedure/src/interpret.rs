//! The interpreter: runs a procedure against any database behind [`Operate`]. It is the reference for the
//! meaning of a procedure; generated code is tested against it.
//!
//! The meaning of the intermediate representation:
//!
//! - **Order.** Steps run in source order, one after the other. Keys, columns, bounds and limits are evaluated
//!   from left to right before their operation begins ([`Frame`] defines the evaluation of expressions).
//!   Nothing runs ahead: prefetching and reordering must have no visible effect.
//! - **Variables.** Entering a block again binds its variables anew. A row that was read is a copy: later
//!   writes, also to the same row, do not change it.
//! - **Update.** The body runs once, on the current row, and only if there is one. It reads columns with its
//!   own assignments so far. When it ends, by [`StepKind::Yield`] or at its end, the assigned columns are
//!   written all at once; if it fails, none. It cannot reach the database, return or abort.
//! - **Loops over scans.** The scan reads one row for each iteration. Rows after a `break` or beyond the limit are not
//!   read; with a limit of 0 there are none. The scan sees the transaction's writes from before it began. If the loop's
//!   body updates a row ahead of the scan, the scan may find the old or the new row. A row that is inserted there may
//!   be found or not. A procedure should not depend on that.
//! - **Abort.** A user's abort, a missing required row, a duplicate key, an overflow or an element out of bounds ends
//!   the procedure at that step. So does any error of the database. The caller rolls the transaction back. Steps before
//!   it ran in full, so of two aborts the first in source order decides.
//! - **Return** ends the procedure, also from within loops; its value is the result. The caller commits.
//!
//! It never panics: a representation that no front end makes is [`EvaluationError::Type`], with its position
//! in the source.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::arithmetic::truth;
use crate::evaluate::{Elements, Frame, count, no_arm};
use crate::ir::{
    Block, KeyRange, Operation, OperationKind, Pattern, Procedure, Selector, Span, Step, StepKind, Take, VariableId,
};
use crate::{Data, EvaluationError, Value, field};

/// Columns and their new values.
pub type Changes = Vec<(Arc<str>, Value)>;

/// The keys a scan covers, evaluated: see [`KeyRange`].
#[derive(Clone, Debug, PartialEq)]
pub enum Keys {
    /// Keys that begin with these values.
    Prefix(Vec<Value>),
    /// Keys between two bounds.
    Between {
        /// Where it begins.
        low: Option<Vec<Value>>,
        /// Where it ends.
        high: Option<Vec<Value>>,
        /// Whether `high` itself is in it.
        inclusive: bool,
    },
    /// All.
    All,
}

/// A database in a transaction. Rows are [`Value::Record`]s of all columns.
///
/// `table` is a table's name; the index, if one is used, is in `operation`. All methods take `&self`, because
/// the body of a loop over a scan runs operations during the scan.
pub trait Operate {
    /// The error that ends a procedure.
    type Error: From<EvaluationError>;

    /// The row with this key.
    ///
    /// # Errors
    /// Errors of the database; values that are not of the key's types.
    fn get(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<Option<Value>, Self::Error>;

    /// Calls `body` once with the row of this key, if there is one, and writes the changes that it returns.
    /// Returns whether there is a row.
    ///
    /// # Errors
    /// The error of `body`, and then nothing is written; an error of the database; values that are not of the
    /// columns' types.
    fn update(
        &self,
        operation: &Operation,
        table: &str,
        key: Vec<Value>,
        body: &mut dyn FnMut(Value) -> Result<Changes, Self::Error>,
    ) -> Result<bool, Self::Error>;

    /// Adds a row of these columns.
    ///
    /// # Errors
    /// A row with its key; what the database has; values that are not of the columns' types, one missing or unknown.
    fn insert(&self, operation: &Operation, table: &str, columns: Changes) -> Result<(), Self::Error>;

    /// Deletes the row with this key. Returns whether there was one.
    ///
    /// # Errors
    /// Errors of the database; values that are not of the key's types.
    fn delete(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<bool, Self::Error>;

    /// Calls `visit` for each row in key order, or against it, until it breaks or fails.
    ///
    /// # Errors
    /// What `visit` returns; what the database has; values that are not of the key's types.
    fn scan(
        &self,
        operation: &Operation,
        table: &str,
        keys: Keys,
        reverse: bool,
        visit: &mut dyn FnMut(Value) -> Result<ControlFlow<()>, Self::Error>,
    ) -> Result<(), Self::Error>;

    /// The error for a required row that is missing.
    fn missing(&self, operation: &Operation, table: &str, key: &[Value]) -> Self::Error;

    /// The error for the procedure's own abort.
    fn abort(&self, error: Value) -> Self::Error;
}

/// Runs a procedure. `arguments` is the value of its parameter, or of several or none a tuple of their values.
///
/// # Errors
/// Errors of the database; the procedure's abort; a mistake in the procedure or the arguments.
pub fn interpret<O: Operate>(procedure: &Procedure, arguments: &Value, database: &O) -> Result<Value, O::Error> {
    let mut frame = Frame::new(procedure.variables.len());
    bind_arguments(procedure, arguments, &mut frame)?;
    match (Interpreter { procedure, database }).run(&procedure.body, &mut frame, None)? {
        Flow::Return(value) => Ok(value),
        flow => Err(mistake(&procedure.span, format!("procedure `{}` {}", procedure.name, flow.complaint())).into()),
    }
}

/// Binds the parameters of a procedure, in a frame of its variables.
///
/// # Errors
/// [`EvaluationError::Type`] if there are too many or too few arguments.
pub fn bind_arguments(procedure: &Procedure, arguments: &Value, frame: &mut Frame) -> Result<(), EvaluationError> {
    let values = match arguments {
        one if procedure.parameters == 1 => std::slice::from_ref(one),
        Value::Tuple(values) if values.len() == procedure.parameters => values,
        other => {
            let (name, wanted) = (&procedure.name, procedure.parameters);
            let problem = format!("procedure `{name}` takes a tuple of {wanted} arguments, found {}", other.kind());
            return Err(EvaluationError::Type(problem));
        }
    };
    for (at, value) in values.iter().enumerate() {
        let variable = u16::try_from(at).map_err(|_| EvaluationError::Type("too many parameters".to_owned()))?;
        frame.bind(VariableId(variable), value.clone())?;
    }
    Ok(())
}

fn mistake(span: &Span, problem: impl std::fmt::Display) -> EvaluationError {
    EvaluationError::Type(format!("{span}: {problem}"))
}

/// The result at a position; an error names the position.
fn at<R>(span: &Span, result: Result<R, EvaluationError>) -> Result<R, EvaluationError> {
    result.map_err(|error| match error {
        EvaluationError::Type(problem) => mistake(span, problem),
        other => other,
    })
}

/// How a block ended.
enum Flow {
    /// At its end.
    Next,
    Break,
    Continue,
    Return(Value),
    Yield(Value),
}

impl Flow {
    fn complaint(&self) -> &'static str {
        match self {
            Flow::Next => "ends without return or abort",
            Flow::Break | Flow::Continue => "has a break or continue outside a loop",
            Flow::Return(_) => "has a return in the body of an update",
            Flow::Yield(_) => "has a yield outside an update",
        }
    }
}

/// The body of an update as it runs: the row, and the columns assigned so far.
struct Updating {
    row: VariableId,
    assigned: Vec<Arc<str>>,
}

struct Interpreter<'p, O> {
    procedure: &'p Procedure,
    database: &'p O,
}

impl<O: Operate> Interpreter<'_, O> {
    fn run(&self, block: &Block, frame: &mut Frame, mut updating: Option<&mut Updating>) -> Result<Flow, O::Error> {
        frame.nested(|frame| {
            for step in &block.0 {
                let flow = self.step(step, frame, updating.as_deref_mut())?;
                if !matches!(flow, Flow::Next) {
                    return Ok(flow);
                }
            }
            Ok(Flow::Next)
        })
    }

    fn step(&self, step: &Step, frame: &mut Frame, updating: Option<&mut Updating>) -> Result<Flow, O::Error> {
        let here = &step.span;
        match &step.kind {
            StepKind::Scope(never, _) => match *never {},
            StepKind::Declare(variable) => at(here, frame.unbind(*variable))?,
            StepKind::Let { pattern, value } => {
                let value = at(&value.span, frame.evaluate(value))?;
                at(here, frame.destructure(pattern, &value))?;
            }
            StepKind::LetElse { pattern, value, otherwise } => {
                let value = at(&value.span, frame.evaluate(value))?;
                if !at(here, frame.matches(pattern, &value))? {
                    return match self.run(otherwise, frame, updating)? {
                        Flow::Next => Err(mistake(here, "the else of a let comes back").into()),
                        flow => Ok(flow),
                    };
                }
            }
            StepKind::Assign { place, operator, value } => {
                if let Some(updating) = updating.filter(|updating| updating.row == place.variable) {
                    let [Selector::Field(column)] = &place.path[..] else {
                        return Err(mistake(here, "of a row, columns are assigned").into());
                    };
                    if !updating.assigned.contains(column) {
                        updating.assigned.push(column.clone());
                    }
                }
                at(here, frame.assign(place, *operator, value))?;
            }
            StepKind::Operation { operation, bind } => {
                outside_updates(here, updating.as_deref())?;
                let result = self.operate(operation, frame)?;
                if let Some(pattern) = bind {
                    at(here, frame.destructure(pattern, &result))?;
                }
            }
            StepKind::If { condition, then, otherwise } => {
                let holds = at(&condition.span, frame.evaluate(condition).and_then(|value| truth(&value)))?;
                return self.run(if holds { then } else { otherwise }, frame, updating);
            }
            StepKind::Match { value, arms } => {
                let value = at(&value.span, frame.evaluate(value))?;
                for arm in arms {
                    if at(here, frame.accepts(&arm.pattern, arm.guard.as_ref(), &value))? {
                        return self.run(&arm.body, frame, updating);
                    }
                }
                return Err(mistake(here, no_arm(&value)).into());
            }
            StepKind::For { pattern, over, body } => {
                let elements = at(&over.span, frame.elements(over))?;
                return self.run_for(here, pattern, elements, body, frame, updating);
            }
            StepKind::ForEach { row, operation, body } => {
                outside_updates(here, updating.as_deref())?;
                return self.run_for_each(*row, operation, body, frame);
            }
            StepKind::Break => return Ok(Flow::Break),
            StepKind::Continue => return Ok(Flow::Continue),
            StepKind::Return(value) => {
                outside_updates(here, updating.as_deref())?;
                return Ok(Flow::Return(at(&value.span, frame.evaluate(value))?));
            }
            StepKind::Abort(error) => {
                outside_updates(here, updating.as_deref())?;
                let error = at(&error.span, frame.evaluate(error))?;
                return Err(self.database.abort(error));
            }
            StepKind::Yield(value) => return Ok(Flow::Yield(at(&value.span, frame.evaluate(value))?)),
        }
        Ok(Flow::Next)
    }

    fn run_for(
        &self,
        here: &Span,
        pattern: &Pattern,
        elements: Elements,
        body: &Block,
        frame: &mut Frame,
        mut updating: Option<&mut Updating>,
    ) -> Result<Flow, O::Error> {
        for element in elements {
            at(here, frame.destructure(pattern, &element))?;
            match self.run(body, frame, updating.as_deref_mut())? {
                Flow::Next | Flow::Continue => {}
                Flow::Break => break,
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn run_for_each(
        &self,
        row: VariableId,
        operation: &Operation,
        body: &Block,
        frame: &mut Frame,
    ) -> Result<Flow, O::Error> {
        let scan = self.prepare(operation, frame)?;
        if scan.take != Take::Each {
            return Err(mistake(&operation.span, "a loop over a scan takes each row").into());
        }
        let mut left_by = Flow::Next;
        self.scan(operation, scan, &mut |value| {
            at(&operation.span, frame.bind(row, value))?;
            match self.run(body, frame, None)? {
                Flow::Next | Flow::Continue => return Ok(ControlFlow::Continue(())),
                Flow::Break => {}
                flow => left_by = flow,
            }
            Ok(ControlFlow::Break(()))
        })?;
        Ok(left_by)
    }

    fn table(&self, operation: &Operation) -> Result<&str, EvaluationError> {
        let table = self.procedure.tables.get(operation.table);
        table.map(|table| &*table.table).ok_or_else(|| mistake(&operation.span, "an operation on no table"))
    }

    /// The result of an operation.
    fn operate(&self, operation: &Operation, frame: &mut Frame) -> Result<Value, O::Error> {
        let (table, here) = (self.table(operation)?, &operation.span);
        match &operation.kind {
            OperationKind::Get { key, required } => {
                let key = at(here, frame.evaluate_all(key))?;
                match (self.database.get(operation, table, key.clone())?, required) {
                    (Some(row), true) => Ok(row),
                    (None, true) => Err(self.database.missing(operation, table, &key)),
                    (row, false) => Ok(Value::Option(row.map(Box::new))),
                }
            }
            OperationKind::Update { key, required, row, body } => {
                let key = at(here, frame.evaluate_all(key))?;
                let mut value = Value::UNIT;
                let found = self.database.update(operation, table, key.clone(), &mut |before| {
                    let (yielded, changes) = self.run_update(here, *row, before, body, frame)?;
                    value = yielded;
                    Ok(changes)
                })?;
                match (found, required) {
                    (true, true) => Ok(value),
                    (true, false) => Ok(value.some()),
                    (false, true) => Err(self.database.missing(operation, table, &key)),
                    (false, false) => Ok(Value::NONE),
                }
            }
            OperationKind::Insert { columns } => {
                let columns = at(here, frame.evaluate_fields(columns))?;
                self.database.insert(operation, table, columns)?;
                Ok(Value::UNIT)
            }
            OperationKind::Delete { key, required } => {
                let key = at(here, frame.evaluate_all(key))?;
                match (self.database.delete(operation, table, key.clone())?, required) {
                    (true, true) => Ok(Value::UNIT),
                    (false, true) => Err(self.database.missing(operation, table, &key)),
                    (found, false) => Ok(Value::Bool(found)),
                }
            }
            OperationKind::Scan { .. } => self.collect(operation, frame),
        }
    }

    /// The value that the body of an update yields, and the columns that it assigned.
    fn run_update(
        &self,
        here: &Span,
        row: VariableId,
        before: Value,
        body: &Block,
        frame: &mut Frame,
    ) -> Result<(Value, Changes), O::Error> {
        at(here, frame.bind(row, before))?;
        let mut updating = Updating { row, assigned: Vec::new() };
        let value = match self.run(body, frame, Some(&mut updating))? {
            Flow::Next => Value::UNIT,
            Flow::Yield(value) => value,
            flow => return Err(mistake(here, format_args!("an update {}", flow.complaint())).into()),
        };
        let after = at(here, frame.value(row))?;
        let changed = |column: Arc<str>| Ok((column.clone(), field(after, &column)?.clone()));
        let changes = at(here, updating.assigned.into_iter().map(changed).collect())?;
        frame.unbind(row)?;
        Ok((value, changes))
    }

    /// The keys, direction and limit of a scan.
    fn prepare(&self, operation: &Operation, frame: &mut Frame) -> Result<Scanning, EvaluationError> {
        let here = &operation.span;
        let OperationKind::Scan { range, reverse, limit, take } = &operation.kind else {
            return Err(mistake(here, "a loop over an operation that is no scan"));
        };
        let keys = match range {
            KeyRange::Prefix(prefix) => Keys::Prefix(at(here, frame.evaluate_all(prefix))?),
            KeyRange::All => Keys::All,
            KeyRange::Between { low, high, inclusive } => {
                let mut bound =
                    |key: &Option<Vec<_>>| at(here, key.as_ref().map(|key| frame.evaluate_all(key)).transpose());
                Keys::Between { low: bound(low)?, high: bound(high)?, inclusive: *inclusive }
            }
        };
        let limit = match limit {
            Some(limit) => at(&limit.span, frame.evaluate(limit).and_then(|limit| count(&limit)))?,
            None => usize::MAX,
        };
        Ok(Scanning { keys, reverse: *reverse, limit, take: *take })
    }

    /// Visits the rows of a scan up to its limit.
    fn scan(
        &self,
        operation: &Operation,
        scan: Scanning,
        visit: &mut dyn FnMut(Value) -> Result<ControlFlow<()>, O::Error>,
    ) -> Result<(), O::Error> {
        let mut left = scan.limit;
        if left == 0 {
            return Ok(());
        }
        let table = self.table(operation)?;
        self.database.scan(operation, table, scan.keys, scan.reverse, &mut |row| {
            left = left.saturating_sub(1);
            let flow = visit(row)?;
            Ok(if left == 0 { ControlFlow::Break(()) } else { flow })
        })
    }

    /// The result of a scan that is not looped over.
    fn collect(&self, operation: &Operation, frame: &mut Frame) -> Result<Value, O::Error> {
        let scan = self.prepare(operation, frame)?;
        let mut rows = Vec::new();
        let mut number = 0u64;
        let take = scan.take;
        if take == Take::Each {
            return Err(mistake(&operation.span, "a scan that takes each row is looped over").into());
        }
        self.scan(operation, scan, &mut |row| {
            number += 1;
            if take != Take::Count {
                rows.push(row);
            }
            Ok(if take == Take::First { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        match take {
            Take::First => Ok(Value::Option(rows.pop().map(Box::new))),
            Take::All => Ok(Value::List(rows)),
            Take::Count | Take::Each => Ok(number.to_value()),
        }
    }
}

/// A scan whose expressions are evaluated.
struct Scanning {
    keys: Keys,
    reverse: bool,
    limit: usize,
    take: Take,
}

fn outside_updates(here: &Span, updating: Option<&Updating>) -> Result<(), EvaluationError> {
    match updating {
        None => Ok(()),
        Some(_) => Err(mistake(here, "the body of an update cannot reach the database, return or abort")),
    }
}
