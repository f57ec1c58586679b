//! A procedure's plan, from the results of the other passes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::plan::{
    Access, Columns, Existence, Failure, FailureKind, Iteration, Kind, Known, Operation, Plan, Symbol, Table,
};
use seriatim_catalog::{IndexDef, TableDef};

use super::flow::{Flow, OperationFlow, Set};
use super::references;
use super::refusal::Refusals;
use super::resolve::{Resolved, resolve};
use super::rows::{RowColumns, rows};
use super::steps::Steps;
use super::symbols::{KeySymbols, symbols};
use super::{Schema, chop};
use crate::ir::{Expression, ExpressionKind, Function, OperationKind, Procedure, Step, StepKind};
use crate::visit;

/// Analyses a procedure against a schema.
///
/// # Errors
/// The violations of the schema, each with its position.
pub fn plan(procedure: &Procedure, schema: &Schema) -> Result<Plan, Refusals> {
    Ok(analyse(procedure, schema)?.0)
}

/// The plan of a procedure, and its consequences for the steps.
///
/// # Errors
/// As for [`plan`].
pub fn analyse(procedure: &Procedure, schema: &Schema) -> Result<(Plan, Steps), Refusals> {
    let resolved = resolve(procedure, schema)?;
    let columns = rows(&resolved)?;
    let flow = Flow::of(&procedure.body, procedure.variables.len(), procedure.parameters);
    let symbols = symbols(&resolved);
    let operations: Vec<Operation> =
        (0..resolved.operations.len()).map(|id| operation(&resolved, &flow, &columns[id], &symbols[id], id)).collect();
    let mut failures: Vec<Failure> = Vec::new();
    for site in &flow.sites {
        failures.push(Failure {
            kind: site.kind,
            place: site.span.to_string(),
            step: site.step,
            loops: site.loops.clone(),
            operation: site.operation,
            decided_by: site.operation.map_or_else(|| site.decided_by.clone(), |operation| Set::from([operation])),
        });
    }
    for (id, operation) in operations.iter().enumerate() {
        failures.extend(failures_of(&resolved, operation, &columns[id], id));
    }
    let mut plan = Plan {
        procedure: procedure.name.clone(),
        place: procedure.span.to_string(),
        latest: procedure.latest,
        tables: resolved.tables.iter().map(|table| describe(table)).collect(),
        operations,
        loops: flow
            .loops
            .iter()
            .map(|found| Iteration {
                step: found.step,
                parent: found.parent,
                scan: found.scan,
                over_from: found.over.clone(),
            })
            .collect(),
        failures,
    };
    references::imply(&mut plan, schema);
    plan.failures
        .sort_by_key(|failure| (failure.operation.unwrap_or(usize::MAX), failure.decided_by.clone(), failure.kind));
    plan.failures.dedup();
    // Additions count here: when a row was changed anew, its additions must be repeated.
    for (earlier, later) in chop::own_order(&plan, false) {
        plan.operations[later].table_from.insert(earlier);
    }
    debug_assert_eq!(plan.check(), Ok(()));
    Ok((plan, Steps::new(flow, procedure.steps)))
}

pub(super) fn describe(table: &TableDef) -> Table {
    let name = |name: &str| -> Arc<str> { name.into() };
    Table {
        name: name(&table.name),
        columns: table.columns.iter().map(|column| name(&column.name)).collect(),
        indexes: table.indexes.iter().map(|index| name(&index.name)).collect(),
    }
}

fn operation(resolved: &Resolved<'_>, flow: &Flow, columns: &RowColumns, symbols: &KeySymbols, id: usize) -> Operation {
    let (found, step, index) = resolved.operations[id];
    let flows = &flow.operations[id];
    let (key_from, value_from) = data(resolved, flows, id);
    let (kind, required) = match &found.kind {
        OperationKind::Get { required, .. } => (Kind::Get, *required),
        OperationKind::Update { required, .. } => (Kind::Update, *required),
        OperationKind::Insert { .. } => (Kind::Insert, false),
        OperationKind::Delete { required, .. } => (Kind::Delete, *required),
        OperationKind::Scan { .. } => (Kind::Scan, false),
    };
    Operation {
        step: step.id.index(),
        place: found.span.to_string(),
        kind,
        required,
        table: found.table,
        index,
        key: symbols.key.clone(),
        accesses: accesses(resolved.table(id), found.table, kind, index, columns),
        known: known(flow, id, &key_from),
        key_from,
        value_from,
        control_from: flows.control.clone(),
        carried_from: flows.carried.clone(),
        table_from: Set::new(),
        blocks: resolved.blocks[id].clone(),
        loops: flows.loops.clone(),
        used: is_used(resolved.procedure, step),
        conditional: flows.conditional,
        partition: partition(resolved, symbols, id),
    }
}

/// Whether the result of a step's operation is used anywhere.
fn is_used(procedure: &Procedure, step: &Step) -> bool {
    let bound = match &step.kind {
        StepKind::Operation { bind: Some(pattern), .. } if visit::is_refutable(pattern) => return true,
        StepKind::Operation { bind: Some(pattern), .. } => visit::bound(pattern),
        StepKind::ForEach { .. } => return true,
        _ => return false,
    };
    let mut used = false;
    visit::steps(&procedure.body, &mut |step| {
        for root in visit::all_own(step) {
            visit::expressions(root, &mut |part| {
                used |= matches!(&*part.kind, ExpressionKind::Variable(variable) if bound.contains(variable));
            });
        }
    });
    used
}

/// Whether an index has a column that is changed.
fn is_changed(index: &IndexDef, columns: &RowColumns) -> bool {
    index.parts.iter().any(|part| columns.writes.contains(part.column) || columns.commutes.contains(part.column))
}

fn accesses(table: &TableDef, number: usize, kind: Kind, index: Option<usize>, columns: &RowColumns) -> Vec<Access> {
    let access = |index: Option<usize>, existence: Existence| Access {
        table: number,
        index,
        existence,
        reads: Columns::new(),
        writes: Columns::new(),
        commutes: Columns::new(),
    };
    let members = match kind {
        Kind::Insert | Kind::Delete => Existence::Writes,
        Kind::Get | Kind::Update | Kind::Scan => Existence::Reads,
    };
    let mut own = access(None, members);
    (own.reads, own.writes, own.commutes) = (columns.reads.clone(), columns.writes.clone(), columns.commutes.clone());
    let mut all = vec![own];
    for (at, definition) in table.indexes.iter().enumerate() {
        let changed = members == Existence::Writes || is_changed(definition, columns);
        if changed || index == Some(at) {
            all.push(access(Some(at), if changed { Existence::Writes } else { Existence::Reads }));
        }
    }
    all
}

/// The flow into the key of an operation, and into its values.
fn data(resolved: &Resolved<'_>, flows: &OperationFlow, id: usize) -> (Set, Set) {
    let (mut key, mut value) = (flows.key.clone(), Set::new());
    match &resolved.operations[id].0.kind {
        OperationKind::Insert { columns } => {
            let table = resolved.table(id);
            let is_key = |name: &str| table.key.iter().any(|part| table.columns[part.column.index()].name == name);
            for ((name, _), from) in columns.iter().zip(&flows.values) {
                if is_key(name) { &mut key } else { &mut value }.extend(from);
            }
        }
        _ => value.extend(flows.values.iter().flatten()),
    }
    // The body of an update uses its own row, which does not make it depend on another run of it.
    if !flows.carries {
        value.remove(&id);
    }
    (key, value)
}

/// From when on the key of an operation, which these results reach, is known.
fn known(flow: &Flow, id: usize, key: &Set) -> Known {
    let found = &flow.operations[id];
    if key.is_empty() {
        return Known::Entry;
    }
    // The innermost loop around both the operation and one that its key needs: the key is known anew in each
    // iteration.
    let inside = found.loops.iter().rposition(|at| {
        key.iter().any(|other| flow.operations[*other].loops.contains(at) || flow.loops[*at].scan == Some(*other))
    });
    let next = inside.map_or(0, |inside| inside + 1);
    Known::After(key.clone(), found.loops.get(next).copied())
}

/// The value that names the partition of an operation's rows.
fn partition(resolved: &Resolved<'_>, symbols: &KeySymbols, id: usize) -> Option<Symbol> {
    let column = resolved.table(id).partition_column()?;
    if let Some(value) = symbols.columns.get(column.index()) {
        return value.clone();
    }
    let at = resolved.parts(id).iter().position(|part| part.column == column)?;
    symbols.key.get(at).cloned()
}

/// How an operation itself can fail.
fn failures_of(resolved: &Resolved<'_>, operation: &Operation, columns: &RowColumns, id: usize) -> Vec<Failure> {
    let failure = |kind: FailureKind, place: String| Failure {
        kind,
        place,
        step: operation.step,
        loops: operation.loops.clone(),
        operation: Some(id),
        decided_by: BTreeSet::from([id]),
    };
    let here = || operation.place.clone();
    let mut found: Vec<Failure> =
        columns.failures.iter().map(|(kind, span)| failure(*kind, span.to_string())).collect();
    if operation.required {
        found.push(failure(FailureKind::MissingRow, here()));
    }
    let unique = resolved.table(id).indexes.iter().any(|index| index.is_always_unique() && is_changed(index, columns));
    if operation.kind == Kind::Insert || operation.kind == Kind::Update && unique {
        found.push(failure(FailureKind::DuplicateKey, here()));
    }
    if matches!(operation.kind, Kind::Insert | Kind::Update) {
        found.push(failure(FailureKind::OutOfMemory, here()));
    }
    for value in stored(resolved.operations[id].0) {
        visit::expressions(value, &mut |part| {
            // `Text::<N>` truncates a value that is too long; `Text` takes the length of its column, and the
            // value must fit.
            if matches!(&*part.kind, ExpressionKind::Call(Function::Associated(ty, _), _) if &**ty == "Text") {
                found.push(failure(FailureKind::Type, part.span.to_string()));
            }
        });
    }
    found
}

/// The values that an operation stores in columns.
fn stored(operation: &crate::ir::Operation) -> Vec<&Expression> {
    match &operation.kind {
        OperationKind::Insert { columns } => columns.iter().map(|(_, value)| value).collect(),
        OperationKind::Update { body, .. } => {
            let mut values = Vec::new();
            visit::steps(body, &mut |step| {
                if matches!(step.kind, StepKind::Assign { .. } | StepKind::Let { .. }) {
                    values.extend(visit::own(step));
                }
            });
            values
        }
        _ => Vec::new(),
    }
}
