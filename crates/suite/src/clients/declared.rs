//! The clients' transactions as registered procedures, for each data model. The same steps are code that takes all of
//! them, and code that only reads.

use std::fmt;

use seriatim::procedure::{Declared, Procedures};
use seriatim::{Abort, Data, Executor, Session, TransactError, Tx, procedure, procedures, pure};

use super::{DataModel, Element, List, Register, RunElement, Step, TwoLists};

/// How procedures are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Called, each as one transaction.
    Called,
    /// Called, in the pieces that registration proves safe.
    InPieces,
    /// Interpreted from their declaration.
    Interpreted,
    /// Called through an executor that batches calls.
    Batched,
}

impl Route {
    /// All of them.
    pub const ALL: [Route; 4] = [Route::Called, Route::InPieces, Route::Interpreted, Route::Batched];
}

/// One step.
#[derive(Clone, Debug, Data)]
struct StepInput {
    key: u32,
    /// For lists in columns: the row, and the number of its list.
    row: u32,
    is_right: bool,
    writes: bool,
    value: u64,
}

/// A transaction's steps.
#[derive(Clone, Debug, Data)]
struct StepsInput {
    steps: Vec<StepInput>,
    rolls_back: bool,
}

/// A transaction that was to roll back.
#[derive(Clone, Copy, Debug, Data)]
struct RolledBack;

impl fmt::Display for RolledBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client wanted it rolled back")
    }
}

impl std::error::Error for RolledBack {}

/// Takes steps on registers. Returns the value of each read.
#[procedure]
fn step_registers(tx: &Tx, input: &StepsInput) -> Result<Vec<Vec<u64>>, Abort> {
    let mut all = Vec::new();
    for step in &input.steps {
        if step.writes {
            let old = tx.update_if::<Register>(step.key, |register| {
                let old = register.value;
                register.value = step.value;
                old
            })?;
            if old.is_none() {
                tx.insert(Register { id: step.key, value: step.value })?;
            }
        } else {
            let mut saw = Vec::new();
            if let Some(register) = tx.get::<Register>(step.key)? {
                saw.push(register.value);
            }
            all.push(saw);
        }
    }
    if input.rolls_back {
        return Err(tx.abort(RolledBack));
    }
    Ok(all)
}

/// As [`step_registers`], of reads.
#[procedure]
fn read_registers(tx: &Tx, input: &StepsInput) -> Result<Vec<Vec<u64>>, Abort> {
    let mut all = Vec::new();
    for step in &input.steps {
        let mut saw = Vec::new();
        if let Some(register) = tx.get::<Register>(step.key)? {
            saw.push(register.value);
        }
        all.push(saw);
    }
    Ok(all)
}

#[pure]
fn longer(elements: &str, value: u64) -> String {
    format!("{elements}{value} ")
}

#[pure]
fn elements_of(text: &str) -> Vec<u64> {
    // A text that is no number was never written: it is in the answer, and the checker sees it.
    text.split_whitespace().map(|word| word.parse().unwrap_or(u64::MAX)).collect()
}

/// Takes steps on lists in one row each. Returns the value of each read.
#[procedure]
fn step_lists(tx: &Tx, input: &StepsInput) -> Result<Vec<Vec<u64>>, Abort> {
    let mut all = Vec::new();
    for step in &input.steps {
        if step.writes {
            let found = tx.update_if::<List>(step.key, |list| {
                let text = longer(list.elements, step.value);
                list.elements = text;
                true
            })?;
            if found.is_none() {
                tx.insert(List { id: step.key, elements: longer("", step.value) })?;
            }
        } else {
            let mut saw = Vec::new();
            if let Some(list) = tx.get::<List>(step.key)? {
                saw = elements_of(list.elements);
            }
            all.push(saw);
        }
    }
    if input.rolls_back {
        return Err(tx.abort(RolledBack));
    }
    Ok(all)
}

/// As [`step_lists`], of reads.
#[procedure]
fn read_lists(tx: &Tx, input: &StepsInput) -> Result<Vec<Vec<u64>>, Abort> {
    let mut all = Vec::new();
    for step in &input.steps {
        let mut saw = Vec::new();
        if let Some(list) = tx.get::<List>(step.key)? {
            saw = elements_of(list.elements);
        }
        all.push(saw);
    }
    Ok(all)
}

macro_rules! lists_of {
    ($element:ident: $step:ident, $read:ident) => {
        /// Takes steps on lists of rows, or of rows in runs. Returns the value of each read.
        #[procedure]
        fn $step(tx: &Tx, input: &StepsInput) -> Result<Vec<Vec<u64>>, Abort> {
            let mut all = Vec::new();
            for step in &input.steps {
                if step.writes {
                    let mut position = 0u32;
                    let last = tx.prefix::<$element>(step.key).rev().first()?;
                    if let Some(last) = last {
                        position = last.position + 1;
                    }
                    tx.insert($element { list: step.key, position, value: step.value })?;
                } else {
                    let mut saw = Vec::new();
                    for element in tx.prefix::<$element>(step.key)? {
                        saw.push(element.value);
                    }
                    all.push(saw);
                }
            }
            if input.rolls_back {
                return Err(tx.abort(RolledBack));
            }
            Ok(all)
        }

        /// As the other, of reads.
        #[procedure]
        fn $read(tx: &Tx, input: &StepsInput) -> Result<Vec<Vec<u64>>, Abort> {
            let mut all = Vec::new();
            for step in &input.steps {
                let mut saw = Vec::new();
                for element in tx.prefix::<$element>(step.key)? {
                    saw.push(element.value);
                }
                all.push(saw);
            }
            Ok(all)
        }
    };
}
lists_of!(Element: step_lists_in_rows, read_lists_in_rows);
lists_of!(RunElement: step_lists_in_runs, read_lists_in_runs);

#[pure]
fn first_if(wanted: bool, value: u64) -> String {
    if wanted { format!("{value} ") } else { String::new() }
}

/// Takes steps on lists in columns. Returns the value of each read.
#[procedure]
fn step_lists_in_columns(tx: &Tx, input: &StepsInput) -> Result<Vec<Vec<u64>>, Abort> {
    let mut all = Vec::new();
    for step in &input.steps {
        if step.writes {
            if step.is_right {
                let found = tx.update_if::<TwoLists>(step.row, |lists| {
                    let text = longer(lists.right, step.value);
                    lists.right = text;
                    true
                })?;
                if found.is_none() {
                    let (left, right) = (first_if(false, step.value), first_if(true, step.value));
                    tx.insert(TwoLists { id: step.row, left, right, since: 0 })?;
                }
            } else {
                let found = tx.update_if::<TwoLists>(step.row, |lists| {
                    let text = longer(lists.left, step.value);
                    lists.left = text;
                    true
                })?;
                if found.is_none() {
                    let (left, right) = (first_if(true, step.value), first_if(false, step.value));
                    tx.insert(TwoLists { id: step.row, left, right, since: 0 })?;
                }
            }
        } else {
            let mut saw = Vec::new();
            if let Some(lists) = tx.get::<TwoLists>(step.row)? {
                if step.is_right {
                    saw = elements_of(lists.right);
                } else {
                    saw = elements_of(lists.left);
                }
            }
            all.push(saw);
        }
    }
    if input.rolls_back {
        return Err(tx.abort(RolledBack));
    }
    Ok(all)
}

/// As [`step_lists_in_columns`], of reads.
#[procedure]
fn read_lists_in_columns(tx: &Tx, input: &StepsInput) -> Result<Vec<Vec<u64>>, Abort> {
    let mut all = Vec::new();
    for step in &input.steps {
        let mut saw = Vec::new();
        if let Some(lists) = tx.get::<TwoLists>(step.row)? {
            if step.is_right {
                saw = elements_of(lists.right);
            } else {
                saw = elements_of(lists.left);
            }
        }
        all.push(saw);
    }
    Ok(all)
}

/// The procedures of a data model, to be registered.
pub(super) fn procedures(data_model: DataModel) -> Procedures {
    match data_model {
        DataModel::Registers => procedures![step_registers, read_registers],
        DataModel::Lists => procedures![step_lists, read_lists],
        DataModel::ListsInRows => procedures![step_lists_in_rows, read_lists_in_rows],
        DataModel::ListsInRuns => procedures![step_lists_in_runs, read_lists_in_runs],
        DataModel::ListsInColumns => procedures![step_lists_in_columns, read_lists_in_columns],
    }
}

/// Runs a transaction's procedure once and fills in the values of its reads. Returns whether it committed.
///
/// # Errors
/// An error that is neither a conflict, nor a duplicate key, nor the requested rollback.
pub(super) fn run(
    session: &mut Session,
    executor: &Executor,
    (data_model, route): (DataModel, Route),
    steps: &mut [Step],
    is_read_only: bool,
    rolls_back: bool,
) -> Result<bool, String> {
    let of = |step: &Step| {
        let (key, writes, value) = match *step {
            Step::Read { key, .. } => (key, false, 0),
            Step::Write { key, value } => (key, true, value),
        };
        let (row, is_right) = TwoLists::place(key);
        StepInput { key, row, is_right, writes, value }
    };
    let input = StepsInput { steps: steps.iter().map(of).collect(), rolls_back };
    let ended = match (data_model, is_read_only) {
        (DataModel::Registers, false) => once(session, executor, step_registers, &input, route),
        (DataModel::Registers, true) => once(session, executor, read_registers, &input, route),
        (DataModel::Lists, false) => once(session, executor, step_lists, &input, route),
        (DataModel::Lists, true) => once(session, executor, read_lists, &input, route),
        (DataModel::ListsInRows, false) => once(session, executor, step_lists_in_rows, &input, route),
        (DataModel::ListsInRows, true) => once(session, executor, read_lists_in_rows, &input, route),
        (DataModel::ListsInRuns, false) => once(session, executor, step_lists_in_runs, &input, route),
        (DataModel::ListsInRuns, true) => once(session, executor, read_lists_in_runs, &input, route),
        (DataModel::ListsInColumns, false) => once(session, executor, step_lists_in_columns, &input, route),
        (DataModel::ListsInColumns, true) => once(session, executor, read_lists_in_columns, &input, route),
    };
    match ended {
        Ok(all) => {
            let reads = steps.iter_mut().filter_map(|step| match step {
                Step::Read { saw, .. } => Some(saw),
                Step::Write { .. } => None,
            });
            reads.zip(all).for_each(|(saw, answer)| *saw = answer);
            Ok(true)
        }
        Err(TransactError::Conflict { .. } | TransactError::Duplicate { .. }) => Ok(false),
        Err(TransactError::User(_)) if rolls_back => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

fn once<P>(
    session: &mut Session,
    executor: &Executor,
    procedure: P,
    input: &StepsInput,
    route: Route,
) -> Result<Vec<Vec<u64>>, TransactError>
where
    P: Declared<Arguments = StepsInput, Output = Vec<Vec<u64>>>,
{
    let committed = match route {
        Route::Called | Route::InPieces => session.call(procedure, input),
        Route::Interpreted => session.interpret(procedure, input),
        Route::Batched => executor.call(procedure, input.clone()).wait(),
    };
    committed.map(seriatim::Committed::into_value)
}
