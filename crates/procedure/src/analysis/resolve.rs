//! Names against the schema: which table and index an operation means, and whether the schema allows the
//! operation.
//!
//! First the representation itself is checked (ids dense and in range), so that later passes can index by
//! them.

use std::collections::BTreeSet;
use std::sync::Arc;

use seriatim_catalog::{ColumnDef, IndexDef, KeyPart, Organization, TableDef};

use super::Schema;
use super::refusal::{Collector, Refusals};
use crate::ir::{
    Block, Expression, ExpressionKind, KeyRange, Operation, OperationKind, Procedure, Selector, Span, Step, StepKind,
    Take, Target, VariableId,
};
use crate::visit;

/// A procedure whose names are resolved.
#[derive(Debug)]
pub(super) struct Resolved<'p> {
    pub(super) procedure: &'p Procedure,
    /// By [`Operation::table`].
    pub(super) tables: Vec<Arc<TableDef>>,
    /// By operation: the operation, its step, and its index.
    pub(super) operations: Vec<(&'p Operation, &'p Step, Option<usize>)>,
    /// By operation: the blocks around it.
    pub(super) blocks: Vec<Vec<(usize, usize)>>,
}

impl Resolved<'_> {
    /// The table of an operation.
    pub(super) fn table(&self, operation: usize) -> &TableDef {
        &self.tables[self.operations[operation].0.table]
    }

    /// The columns of the key by which an operation finds rows.
    pub(super) fn parts(&self, operation: usize) -> &[KeyPart] {
        let table = self.table(operation);
        self.operations[operation].2.map_or(&table.key, |index| &table.indexes[index].parts)
    }
}

pub(super) fn resolve<'p>(procedure: &'p Procedure, schema: &Schema) -> Result<Resolved<'p>, Refusals> {
    let mut collector = Collector::new(&procedure.name);
    if let Err((span, problem)) = check_structure(procedure) {
        collector.refuse(&span, format!("the intermediate representation is broken: {problem}"));
        let nothing = Resolved { procedure, tables: Vec::new(), operations: Vec::new(), blocks: Vec::new() };
        return collector.finish(nothing);
    }
    let mut tables = Vec::new();
    for used in &procedure.tables {
        match schema.table(&used.table) {
            Some(table) => tables.push(table.clone()),
            None => {
                collector.refuse(&used.span, format!("there is no table `{}`; create it first", used.table));
            }
        }
    }
    let mut resolved = Resolved { procedure, tables, operations: Vec::new(), blocks: Vec::new() };
    nest(&procedure.body, &mut Vec::new(), &mut resolved.blocks);
    if resolved.tables.len() < procedure.tables.len() {
        return collector.finish(resolved);
    }
    visit::steps(&procedure.body, &mut |step| {
        if let Some(operation) = visit::operation(step) {
            let table = &resolved.tables[operation.table];
            let index =
                check_operation(&mut collector, table, operation, matches!(step.kind, StepKind::ForEach { .. }));
            resolved.operations.push((operation, step, index));
        }
    });
    collector.finish(resolved)
}

/// Finds the blocks of each operation.
fn nest(block: &Block, around: &mut Vec<(usize, usize)>, found: &mut Vec<Vec<(usize, usize)>>) {
    for step in &block.0 {
        if visit::operation(step).is_some() {
            found.push(around.clone());
        }
        for (number, inner) in visit::blocks(step).into_iter().enumerate() {
            around.push((step.id.index(), number));
            nest(inner, around, found);
            around.pop();
        }
    }
}

/// Checks one operation and finds its index.
fn check_operation(
    collector: &mut Collector,
    table: &TableDef,
    operation: &Operation,
    for_each: bool,
) -> Option<usize> {
    let span = &operation.span;
    let index = match &operation.index {
        None => None,
        Some(name) => match table.index(name) {
            Some(index) => Some(index.index()),
            None => {
                collector.refuse(span, format!("table `{}` has no index `{name}`", table.name));
                return None;
            }
        },
    };
    let used: Option<&IndexDef> = index.map(|index| &table.indexes[index]);
    let parts = used.map_or(&table.key, |index| &index.parts);
    let columns = |parts: &[KeyPart]| {
        let names: Vec<&str> = parts.iter().map(|part| &*table.columns[part.column.index()].name).collect();
        names.join(", ")
    };
    let what = match &operation.index {
        None => format!("the key of table `{}`", table.name),
        Some(name) => format!("index `{name}` of table `{}`", table.name),
    };
    let whole = |collector: &mut Collector, key: &[Expression]| {
        if key.len() != parts.len() {
            let problem = format!("{what} is ({}): {} values, not {}", columns(parts), parts.len(), key.len());
            collector.refuse(span, problem);
        }
    };
    match &operation.kind {
        OperationKind::Get { key, .. } => {
            whole(collector, key);
            if used.is_some_and(|index| !index.is_always_unique()) {
                let problem = format!("{what} is not unique, so it has no one row to get; use find_by or scan_by");
                collector.refuse(span, problem);
            }
        }
        OperationKind::Update { key, row, body, .. } => {
            whole(collector, key);
            visit::steps(body, &mut |step| judge_update(collector, table, *row, step));
        }
        OperationKind::Delete { key, .. } => whole(collector, key),
        OperationKind::Insert { columns: given } => judge_insert(collector, table, span, given),
        OperationKind::Scan { range, take, reverse, .. } => {
            if for_each != (*take == Take::Each) {
                let problem = "a scan that is taken row by row is the head of a loop, and no other is";
                collector.refuse(span, problem);
            }
            let organization = used.map_or(table.organization, |index| index.organization);
            match range {
                KeyRange::Prefix(prefix) if organization == Organization::Hash && prefix.len() != parts.len() => {
                    let problem = format!(
                        "{what} is hashed: it finds whole keys ({}) only; declare it ordered to scan it",
                        columns(parts)
                    );
                    collector.refuse(span, problem);
                }
                KeyRange::Between { .. } if organization == Organization::Hash => {
                    let problem = format!(
                        "{what} is hashed and has no ranges; declare it ordered to scan it, or read all of it with \
                         scan_all or count_all"
                    );
                    collector.refuse(span, problem);
                }
                KeyRange::All if used.is_some() || *reverse => {
                    collector.refuse(span, "all rows are those of a table, in no order".to_owned());
                }
                KeyRange::All => {}
                KeyRange::Prefix(prefix) if prefix.len() > parts.len() => {
                    let problem = format!("{what} has the columns ({}), fewer than the prefix's", columns(parts));
                    collector.refuse(span, problem);
                }
                KeyRange::Prefix(_) => {}
                KeyRange::Between { low, high, .. } => low.iter().chain(high).for_each(|bound| whole(collector, bound)),
            }
        }
    }
    index
}

fn judge_insert(collector: &mut Collector, table: &TableDef, span: &Span, given: &[(Arc<str>, Expression)]) {
    let mut seen = BTreeSet::new();
    for (name, value) in given {
        if table.column(name).is_none() {
            collector.refuse(&value.span, format!("table `{}` has no column `{name}`", table.name));
        } else if !seen.insert(name.clone()) {
            collector.refuse(&value.span, format!("column `{name}` is given twice"));
        }
    }
    let is_missing =
        |(at, column): &(usize, &ColumnDef)| !seen.contains(&*column.name) && table.value_if_unknown(*at).is_none();
    let missing: Vec<&str> =
        table.columns.iter().enumerate().filter(is_missing).map(|(_, column)| &*column.name).collect();
    if !missing.is_empty() {
        let problem = format!("a new row of table `{}` needs a value for {} too", table.name, missing.join(", "));
        collector.refuse(span, problem);
    }
}

fn judge_update(collector: &mut Collector, table: &TableDef, row: VariableId, step: &Step) {
    let StepKind::Assign { place: Target { variable, path }, .. } = &step.kind else { return };
    if *variable != row {
        return;
    }
    let [Selector::Field(name)] = &path[..] else {
        collector.refuse(&step.span, "a row is changed column by column: assign `row.column`");
        return;
    };
    match table.column(name) {
        None => collector.refuse(&step.span, format!("table `{}` has no column `{name}`", table.name)),
        Some(column) if !table.is_updatable(column) => {
            let why = match table.columns[column.index()].immutable {
                true => "immutable",
                false => "in the primary key; delete the row and insert another",
            };
            collector.refuse(&step.span, format!("column `{name}` of table `{}` is {why}", table.name));
        }
        Some(_) => {}
    }
}

/// Whether ids are dense, in source order, and in range.
fn check_structure(procedure: &Procedure) -> Result<(), (Span, String)> {
    let wrong = |span: &Span, problem: &str| Err((span.clone(), problem.to_owned()));
    if procedure.parameters > procedure.variables.len() {
        return wrong(&procedure.span, "more parameters than variables");
    }
    let mut steps: Vec<&Step> = Vec::new();
    visit::steps(&procedure.body, &mut |step| steps.push(step));
    let is_scan = |operation: &Operation| matches!(operation.kind, OperationKind::Scan { .. });
    let mut operations = 0;
    for (at, step) in steps.iter().enumerate() {
        if step.id.index() != at {
            return wrong(&step.span, "steps are not numbered in source order");
        }
        if let Some(operation) = visit::operation(step) {
            if matches!(step.kind, StepKind::ForEach { .. }) && !is_scan(operation) {
                return wrong(&operation.span, "a loop runs over the rows of something that is no scan");
            }
            if let OperationKind::Update { body, .. } = &operation.kind
                && !is_pure(body, false, true)
            {
                return wrong(&operation.span, "the body of an update is not pure");
            }
            if operation.id.index() != operations {
                return wrong(&operation.span, "operations are not numbered in source order");
            }
            if operation.table >= procedure.tables.len() {
                return wrong(&operation.span, "an operation uses a table that is not listed");
            }
            if operation.index.is_some()
                && !matches!(operation.kind, OperationKind::Get { .. } | OperationKind::Scan { .. })
            {
                return wrong(&operation.span, "only reads go by an index");
            }
            operations += 1;
        }
        if variables(step).iter().any(|variable| variable.index() >= procedure.variables.len()) {
            return wrong(&step.span, "a step uses a variable that is not listed");
        }
    }
    if steps.len() != procedure.steps || operations != procedure.operations {
        return wrong(&procedure.span, "the numbers of steps and operations are wrong");
    }
    Ok(())
}

/// Whether the body of an update reaches no database, ends only at its end, and leaves only loops of its own.
fn is_pure(body: &Block, in_loop: bool, at_end: bool) -> bool {
    body.0.iter().enumerate().all(|(at, step)| {
        let at_end = at_end && at + 1 == body.0.len();
        let may_stand = match &step.kind {
            StepKind::Return(_) | StepKind::Abort(_) => false,
            StepKind::Operation { .. } | StepKind::ForEach { .. } => false,
            StepKind::Break | StepKind::Continue => in_loop,
            StepKind::Yield(_) => at_end,
            _ => true,
        };
        let is_loop = matches!(step.kind, StepKind::For { .. });
        let mut blocks = visit::blocks(step).into_iter();
        may_stand && blocks.all(|inner| is_pure(inner, in_loop || is_loop, at_end && !is_loop))
    })
}

/// Every variable that a step itself names.
fn variables(step: &Step) -> Vec<VariableId> {
    let mut found = visit::defined(step);
    let mut roots = visit::own(step);
    if let Some(operation) = visit::operation(step) {
        roots.extend(visit::key(operation));
        roots.extend(visit::values(operation));
        if let OperationKind::Update { row, .. } = &operation.kind {
            found.push(*row);
        }
    }
    for root in roots {
        visit::expressions(root, &mut |expression| {
            if let ExpressionKind::Variable(variable) = &*expression.kind {
                found.push(*variable);
            }
            found.extend(visit::bindings(expression).into_iter().flat_map(|(pattern, _)| visit::bound(pattern)));
        });
    }
    found
}
