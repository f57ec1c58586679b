//! Which columns of its rows an operation uses and changes.
//!
//! A variable *carries* the rows of operations: directly, in an `Option`, a list or a tuple. Reading
//! `row.column` where the base carries rows is a use of that column of each row. A use of a whole row that
//! this analysis does not understand counts as a use of all its columns. Rounds over the body are repeated
//! until no loop passes a row back.
//!
//! A column *commutes* in an update if every assignment adds to it or subtracts from it, and nothing in the body uses
//! it. The amounts must not depend on mutable columns of the row, directly or through variables of the body. Nor must
//! the conditions and loop exits around them. The column is an integer or a decimal and not nullable: addition of
//! floats is not associative, and adding to NULL has no effect. Nothing may be subtracted from an unsigned column. Its
//! sum may be near zero, and an abort when it falls below is a read of the sum. So is a condition of the table that
//! uses the column.

use std::collections::BTreeSet;

use crate::plan::{Columns, FailureKind};
use seriatim_catalog::{CheckDef, ColumnId, ColumnType, TableDef};

use super::refusal::{Collector, Refusals};
use super::resolve::Resolved;
use crate::ir::{
    Block, Expression, ExpressionKind, Function, Operation, OperationKind, Pattern, Selector, Span, Step, StepKind,
    Take, VariableId,
};
use crate::visit::{self, Delta};

/// The uses and changes of columns by one operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RowColumns {
    pub(super) reads: Columns,
    pub(super) writes: Columns,
    pub(super) commutes: Columns,
    /// Additions to columns, which can overflow, and conditions that the row may not meet.
    pub(super) failures: Vec<(FailureKind, Span)>,
}

pub(super) fn rows(resolved: &Resolved<'_>) -> Result<Vec<RowColumns>, Refusals> {
    let mut walk = Walk {
        resolved,
        carriers: vec![BTreeSet::new(); resolved.procedure.variables.len()],
        columns: vec![RowColumns::default(); resolved.operations.len()],
        collector: Collector::new(&resolved.procedure.name),
    };
    // Rows pass from variable to variable, in loops against the order of the steps: repeat until nothing more
    // is found.
    loop {
        let before = (walk.carriers.clone(), walk.columns.clone());
        walk.block(&resolved.procedure.body);
        if before.0 == walk.carriers && before.1 == walk.columns {
            break;
        }
    }
    for (id, (operation, ..)) in resolved.operations.iter().enumerate() {
        if let OperationKind::Update { row, body, .. } = &operation.kind {
            update(resolved.table(id), *row, body, &mut walk.columns[id]);
        }
        check(resolved.table(id), operation, &mut walk.columns[id]);
    }
    walk.collector.finish(walk.columns)
}

struct Walk<'r, 'p> {
    resolved: &'r Resolved<'p>,
    carriers: Vec<BTreeSet<usize>>,
    columns: Vec<RowColumns>,
    collector: Collector,
}

impl Walk<'_, '_> {
    fn block(&mut self, block: &Block) {
        for step in &block.0 {
            self.step(step);
        }
    }

    fn step(&mut self, step: &Step) {
        if let Some(operation) = visit::operation(step) {
            for expression in visit::key(operation).into_iter().chain(visit::values(operation)) {
                self.expression(expression, true);
            }
            let result = BTreeSet::from([operation.id.index()]);
            if let OperationKind::Update { row, .. } = &operation.kind {
                self.carriers[row.index()] = result.clone();
            }
            match &step.kind {
                StepKind::ForEach { row, .. } => self.carriers[row.index()] = result,
                StepKind::Operation { bind: Some(pattern), .. } if gives_rows(&operation.kind) => {
                    self.carry(pattern, &result);
                }
                _ => {}
            }
        }
        match &step.kind {
            StepKind::Let { pattern, value } | StepKind::LetElse { pattern, value, .. } => {
                self.expression(value, false);
                self.give(pattern, value);
            }
            StepKind::Assign { place, value, .. } => {
                for selector in visit::selectors(place) {
                    self.expression(selector, true);
                }
                let value = visit::delta(place, step).map_or(value, |delta| delta.by);
                self.expression(value, false);
                let rows = self.rows(value);
                self.carriers[place.variable.index()].extend(rows);
            }
            StepKind::Match { value, arms } => {
                self.expression(value, false);
                let rows = self.rows(value);
                for arm in arms {
                    self.carry(&arm.pattern, &rows);
                    arm.guard.iter().for_each(|guard| self.expression(guard, true));
                }
            }
            StepKind::For { pattern, over, .. } => {
                self.expression(over, false);
                self.give(pattern, over);
            }
            _ => visit::own(step).into_iter().for_each(|expression| self.expression(expression, true)),
        }
        for block in visit::blocks(step) {
            self.block(block);
        }
    }

    /// Binds a value or, for a loop, the elements of a list: parts of a pattern carry the rows at their
    /// position.
    fn give(&mut self, pattern: &Pattern, value: &Expression) {
        match (pattern, &*value.kind) {
            (Pattern::Tuple(parts), ExpressionKind::Tuple(values)) if parts.len() == values.len() => {
                parts.iter().zip(values).for_each(|(part, value)| self.give(part, value));
            }
            (Pattern::Tuple(parts), ExpressionKind::Call(Function::Method(name), lists)) => {
                match (&**name, &parts[..], &lists[..]) {
                    ("zip", [left, right], [first, second]) => {
                        self.give(left, first);
                        self.give(right, second);
                    }
                    ("enumerate", [_, element], [list]) => self.give(element, list),
                    ("iter", _, [list]) => self.give(pattern, list),
                    _ => self.carry(pattern, &self.rows(value)),
                }
            }
            _ => self.carry(pattern, &self.rows(value)),
        }
    }

    fn carry(&mut self, pattern: &Pattern, rows: &BTreeSet<usize>) {
        if looks_inside(pattern) {
            rows.iter().for_each(|operation| self.whole(*operation));
        }
        for variable in visit::bound(pattern) {
            self.carriers[variable.index()].extend(rows);
        }
    }

    /// Counts a use of all columns.
    fn whole(&mut self, operation: usize) {
        let all = 0..self.resolved.table(operation).columns.len();
        self.columns[operation].reads.extend(&all.map(|column| ColumnId(column as u16)).collect());
    }

    /// The operations whose rows an expression may hold.
    fn rows(&self, expression: &Expression) -> BTreeSet<usize> {
        match &*expression.kind {
            ExpressionKind::Variable(variable) => self.carriers[variable.index()].clone(),
            ExpressionKind::Field(base, name) if is_position(name) => self.rows(base),
            ExpressionKind::Field(..) | ExpressionKind::Binary(..) | ExpressionKind::Unary(..) => BTreeSet::new(),
            ExpressionKind::Element(base, _) => self.rows(base),
            ExpressionKind::Call(Function::Method(name), _)
                if matches!(&**name, "len" | "is_empty" | "is_some" | "is_none" | "contains") =>
            {
                BTreeSet::new()
            }
            // A row inside was counted as a whole.
            ExpressionKind::Record(..)
            | ExpressionKind::Call(Function::Pure { .. } | Function::Scalar(_) | Function::Associated(..), _) => {
                BTreeSet::new()
            }
            ExpressionKind::If(_, then, otherwise) => &self.rows(then) | &self.rows(otherwise),
            _ => visit::children(expression).into_iter().flat_map(|child| self.rows(child)).collect(),
        }
    }

    /// Notes the uses of an expression. `whole`: a row that is the expression's value is used as a whole.
    fn expression(&mut self, expression: &Expression, whole: bool) {
        match &*expression.kind {
            ExpressionKind::Variable(variable) if whole => {
                for operation in self.carriers[variable.index()].clone() {
                    self.whole(operation);
                }
            }
            ExpressionKind::Field(base, name) if !is_position(name) => {
                for operation in self.rows(base) {
                    let table = self.resolved.table(operation);
                    match table.column(name) {
                        Some(column) => {
                            self.columns[operation].reads.insert(column);
                        }
                        None => {
                            let problem = format!("table `{}` has no column `{name}`", table.name);
                            self.collector.refuse(&expression.span, problem);
                        }
                    }
                }
                self.expression(base, false);
            }
            ExpressionKind::Field(base, _) => self.expression(base, false),
            ExpressionKind::Element(base, index) => {
                self.expression(base, false);
                self.expression(index, true);
            }
            ExpressionKind::Call(Function::Method(name), parts) => {
                let apart = matches!(
                    &**name,
                    "len" | "is_empty" | "is_some" | "is_none" | "iter" | "enumerate" | "zip" | "unwrap_or" | "push"
                );
                parts.iter().for_each(|part| self.expression(part, !apart));
            }
            ExpressionKind::Match(value, arms) => {
                self.expression(value, false);
                let rows = self.rows(value);
                for (pattern, guard, result) in arms {
                    self.carry(pattern, &rows);
                    guard.iter().for_each(|guard| self.expression(guard, true));
                    self.expression(result, whole);
                }
            }
            ExpressionKind::Block(bindings, result) => {
                for (pattern, value) in bindings {
                    self.expression(value, false);
                    self.carry(pattern, &self.rows(value));
                }
                self.expression(result, whole);
            }
            ExpressionKind::If(condition, then, otherwise) => {
                self.expression(condition, true);
                self.expression(then, whole);
                self.expression(otherwise, whole);
            }
            ExpressionKind::Some(inner) => self.expression(inner, whole),
            ExpressionKind::Tuple(parts) | ExpressionKind::List(parts) => {
                parts.iter().for_each(|part| self.expression(part, whole));
            }
            _ => visit::children(expression).into_iter().for_each(|child| self.expression(child, true)),
        }
    }
}

/// Whether the result of an operation is rows of its table, not their number.
fn gives_rows(kind: &OperationKind) -> bool {
    match kind {
        OperationKind::Get { .. } => true,
        OperationKind::Scan { take, .. } => *take != Take::Count,
        OperationKind::Update { .. } | OperationKind::Insert { .. } | OperationKind::Delete { .. } => false,
    }
}

/// Whether a pattern compares values or destructures records, which is not analysed for rows.
fn looks_inside(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Any | Pattern::Bind(_) | Pattern::None => false,
        Pattern::Some(inner) => looks_inside(inner),
        Pattern::Tuple(parts) | Pattern::Either(parts) => parts.iter().any(looks_inside),
        Pattern::Literal(_) | Pattern::Range { .. } | Pattern::Record { .. } => true,
    }
}

/// Whether a field is one of a tuple.
fn is_position(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Adds what the table's conditions read, and that they may refuse the row. The new row of an insert is known.
fn check(table: &TableDef, operation: &Operation, columns: &mut RowColumns) {
    let changed: Columns = columns.writes.iter().chain(columns.commutes.iter()).collect();
    let is_insert = matches!(operation.kind, OperationKind::Insert { .. });
    for condition in &table.checks {
        let used = conditioned(table, condition);
        if is_insert || !used.intersection(&changed).is_empty() {
            columns.failures.push((FailureKind::Check, operation.span.clone()));
        }
        if !is_insert && !used.intersection(&changed).is_empty() {
            columns.reads.extend(&used);
        }
    }
}

/// The columns that a condition uses.
pub(super) fn conditioned(table: &TableDef, condition: &CheckDef) -> Columns {
    let parsed = condition.parse();
    parsed.iter().flat_map(|of| of.columns()).filter_map(|name| table.column(name)).collect()
}

/// Adds the assignments in the body of an update to its uses.
fn update(table: &TableDef, row: VariableId, body: &Block, columns: &mut RowColumns) {
    let tainted = Taint::of(table, row, body);
    let mut assigned: Vec<(ColumnId, &Step, Option<Delta<'_>>, bool)> = Vec::new();
    tainted.assignments(body, false, &mut assigned);
    // A condition uses the sum.
    let is_checked = |column| table.checks.iter().any(|condition| conditioned(table, condition).contains(column));
    let may_commute = |column: ColumnId| {
        let found = &table.columns[column.index()];
        found.ty.is_sum() && !found.nullable && !is_checked(column)
    };
    let reads = columns.reads.clone();
    let all: BTreeSet<ColumnId> = assigned.iter().map(|(column, ..)| *column).collect();
    for column in all {
        let own = || assigned.iter().filter(|(other, ..)| *other == column);
        let unsigned = matches!(
            table.columns[column.index()].ty,
            ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64
        );
        let answers = |delta: &Delta<'_>| unsigned && delta.negative;
        let blind = own().all(|(.., delta, tainted)| delta.is_some_and(|delta| !answers(&delta)) && !tainted);
        let commutes = blind && may_commute(column) && !reads.contains(column);
        match commutes {
            true => columns.commutes.insert(column),
            false => columns.writes.insert(column),
        };
        for (_, step, delta, _) in own() {
            let StepKind::Assign { operator, .. } = &step.kind else { continue };
            if delta.is_none() {
                if operator.is_some() {
                    columns.reads.insert(column);
                    columns.failures.push((FailureKind::Overflow, step.span.clone()));
                }
                continue;
            }
            if !commutes {
                columns.reads.insert(column);
            }
            let kind = if commutes { FailureKind::CommutativeOverflow } else { FailureKind::Overflow };
            columns.failures.push((kind, step.span.clone()));
        }
    }
}

/// The values in the body of an update that depend on mutable columns of the row.
struct Taint<'t> {
    table: &'t TableDef,
    row: VariableId,
    variables: BTreeSet<VariableId>,
}

impl<'t> Taint<'t> {
    fn of(table: &'t TableDef, row: VariableId, body: &Block) -> Taint<'t> {
        let mut taint = Taint { table, row, variables: BTreeSet::new() };
        loop {
            let before = taint.variables.len();
            taint.block(body, false);
            if taint.variables.len() == before {
                return taint;
            }
        }
    }

    fn expression(&self, expression: &Expression) -> bool {
        let mut found = false;
        visit::expressions(expression, &mut |part| match &*part.kind {
            ExpressionKind::Field(base, name) => {
                let of_row = matches!(&*base.kind, ExpressionKind::Variable(variable) if *variable == self.row);
                found |= of_row && self.table.column(name).is_none_or(|column| self.table.is_updatable(column));
            }
            ExpressionKind::Variable(variable) => found |= self.variables.contains(variable),
            _ => {}
        });
        found
    }

    /// Whether the blocks of a step depend on a tainted condition: in its own expressions, or in an exit of
    /// its loop.
    fn guards(&self, step: &Step) -> bool {
        let own = visit::own(step).into_iter().any(|expression| self.expression(expression));
        own || matches!(&step.kind, StepKind::For { body, .. } if self.leaves(body, false))
    }

    /// Whether a `break` or `continue` of the loop around a block depends on a tainted condition.
    fn leaves(&self, block: &Block, controlled: bool) -> bool {
        block.0.iter().any(|step| match &step.kind {
            StepKind::Break | StepKind::Continue => controlled,
            // Exits in there belong to the inner loop.
            StepKind::For { .. } => false,
            _ => {
                let controlled = controlled || self.guards(step);
                visit::blocks(step).into_iter().any(|inner| self.leaves(inner, controlled))
            }
        })
    }

    fn block(&mut self, block: &Block, controlled: bool) {
        for step in &block.0 {
            let tainted = controlled || self.guards(step);
            let bound = match &step.kind {
                StepKind::Let { pattern, .. } | StepKind::LetElse { pattern, .. } | StepKind::For { pattern, .. } => {
                    visit::bound(pattern)
                }
                StepKind::Match { arms, .. } => arms.iter().flat_map(|arm| visit::bound(&arm.pattern)).collect(),
                StepKind::Assign { place, .. } if place.variable != self.row => vec![place.variable],
                _ => Vec::new(),
            };
            if tainted {
                self.variables.extend(bound);
            }
            let inner: Vec<VariableId> = inner_bindings(step);
            if tainted {
                self.variables.extend(inner);
            }
            for inner in visit::blocks(step) {
                self.block(inner, tainted);
            }
        }
    }

    /// Assignments of columns, in order: step, amount, and whether the amount or the control is tainted.
    fn assignments<'b>(
        &self,
        block: &'b Block,
        controlled: bool,
        found: &mut Vec<(ColumnId, &'b Step, Option<Delta<'b>>, bool)>,
    ) {
        for step in &block.0 {
            if let StepKind::Assign { place, .. } = &step.kind
                && place.variable == self.row
                && let [Selector::Field(name)] = &place.path[..]
                && let Some(column) = self.table.column(name)
            {
                let delta = visit::delta(place, step);
                let tainted = controlled || delta.is_some_and(|delta| self.expression(delta.by));
                found.push((column, step, delta, tainted));
            }
            let controlled = controlled || self.guards(step);
            for inner in visit::blocks(step) {
                self.assignments(inner, controlled, found);
            }
        }
    }
}

/// Variables bound inside the expressions of a step.
fn inner_bindings(step: &Step) -> Vec<VariableId> {
    let mut found = Vec::new();
    for expression in visit::own(step) {
        visit::expressions(expression, &mut |part| {
            found.extend(visit::bindings(part).into_iter().flat_map(|(pattern, _)| visit::bound(pattern)));
        });
    }
    found
}
