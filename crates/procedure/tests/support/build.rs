//! Procedures of tests, step by step. Ids are given in the order of the calls, which is source order; a
//! step's line is its number from 1.

use std::collections::HashMap;
use std::sync::Arc;

use seriatim_procedure::ir::{
    Arm, BinaryOperator, Block, Expression, KeyRange, Operation, OperationId, OperationKind, Pattern, Procedure,
    Selector, Span, Step, StepId, StepKind, TableUse, Take, Target, Variable, VariableId,
};

use super::parse::Parser;

/// A procedure under construction.
pub(crate) struct Build {
    name: Arc<str>,
    variables: Vec<Variable>,
    names: HashMap<String, VariableId>,
    tables: Vec<TableUse>,
    steps: u16,
    operations: u16,
    block: Vec<Step>,
}

/// A procedure of this name, with these parameters.
pub(crate) fn procedure(name: &str, parameters: &[&str], body: impl FnOnce(&mut Build)) -> Procedure {
    let mut build = Build {
        name: name.into(),
        variables: Vec::new(),
        names: HashMap::new(),
        tables: Vec::new(),
        steps: 0,
        operations: 0,
        block: Vec::new(),
    };
    for parameter in parameters {
        build.variable(parameter, false);
    }
    body(&mut build);
    Procedure {
        name: build.name.clone(),
        span: build.span(0),
        latest: false,
        parameters: parameters.len(),
        variables: build.variables,
        tables: build.tables,
        body: Block(build.block),
        steps: build.steps.into(),
        operations: build.operations.into(),
    }
}

impl Build {
    fn span(&self, line: u32) -> Span {
        Span { file: self.name.clone(), line, column: 1 }
    }

    fn here(&self) -> Span {
        self.span(u32::from(self.steps))
    }

    fn variable(&mut self, name: &str, mutable: bool) -> VariableId {
        let id = VariableId(self.variables.len() as u16);
        self.variables.push(Variable { name: name.into(), mutable, span: self.here() });
        self.names.insert(name.to_owned(), id);
        id
    }

    fn begin(&mut self) -> StepId {
        self.steps += 1;
        StepId(self.steps - 1)
    }

    fn end(&mut self, id: StepId, kind: StepKind) {
        self.block.push(Step { id, span: self.span(u32::from(id.0) + 1), kind });
    }

    fn nested(&mut self, body: impl FnOnce(&mut Build)) -> Block {
        let around = std::mem::take(&mut self.block);
        body(self);
        Block(std::mem::replace(&mut self.block, around))
    }

    fn parse<T>(&mut self, text: &str, read: impl FnOnce(&mut Parser<'_>) -> T) -> T {
        let span = self.here();
        let names = self.names.clone();
        let mut find = |name: &str| *names.get(name).unwrap_or_else(|| panic!("no variable {name}"));
        read(&mut Parser::new(text, span, &mut find))
    }

    /// The number of the next step.
    pub(crate) fn next_step(&self) -> u16 {
        self.steps
    }

    pub(crate) fn expression(&mut self, text: &str) -> Expression {
        self.parse(text, |parser| parser.expression())
    }

    fn list(&mut self, text: &str) -> Vec<Expression> {
        self.parse(text, |parser| parser.list())
    }

    fn pattern(&mut self, text: &str, mutable: bool) -> Pattern {
        let span = self.here();
        let mut new = |name: &str| self.variable(name, mutable);
        Parser::new(text, span, &mut new).pattern()
    }

    pub(crate) fn declare(&mut self, name: &str) {
        let id = self.begin();
        let variable = self.variable(name, true);
        self.end(id, StepKind::Declare(variable));
    }

    pub(crate) fn let_(&mut self, pattern: &str, value: &str) {
        let id = self.begin();
        let value = self.expression(value);
        let pattern = self.pattern(pattern, false);
        self.end(id, StepKind::Let { pattern, value });
    }

    pub(crate) fn let_mut(&mut self, name: &str, value: &str) {
        let id = self.begin();
        let value = self.expression(value);
        let pattern = self.pattern(name, true);
        self.end(id, StepKind::Let { pattern, value });
    }

    pub(crate) fn let_else(&mut self, pattern: &str, value: &str, otherwise: impl FnOnce(&mut Build)) {
        let id = self.begin();
        let value = self.expression(value);
        let otherwise = self.nested(otherwise);
        let pattern = self.pattern(pattern, false);
        self.end(id, StepKind::LetElse { pattern, value, otherwise });
    }

    /// `place operator value`, the operator one of `=`, `+=`, `-=`; the place `variable` or `row.column`.
    pub(crate) fn assign(&mut self, place: &str, operator: &str, value: &str) {
        let id = self.begin();
        let value = self.expression(value);
        let mut parts = place.split('.');
        let variable = self.names[parts.next().expect("a variable")];
        let path = parts.map(|part| Selector::Field(part.into())).collect();
        let operator = match operator {
            "=" => None,
            "+=" => Some(BinaryOperator::Add),
            "-=" => Some(BinaryOperator::Subtract),
            "*=" => Some(BinaryOperator::Multiply),
            other => panic!("operator {other}"),
        };
        self.end(id, StepKind::Assign { place: Target { variable, path }, operator, value });
    }

    /// `list.push(value)`.
    pub(crate) fn push(&mut self, list: &str, value: &str) {
        self.assign(list, "=", &format!("{list}.push({value})"));
    }

    fn operation(&mut self, table: &str, kind: impl FnOnce(&mut Build) -> OperationKind) -> Operation {
        let (table, index) = match table.split_once('/') {
            Some((table, index)) => (table, Some(index.into())),
            None => (table, None),
        };
        let span = self.here();
        let id = OperationId(self.operations);
        self.operations += 1;
        let table = self.tables.iter().position(|used| &*used.table == table).unwrap_or_else(|| {
            self.tables.push(TableUse { table: table.into(), span: span.clone() });
            self.tables.len() - 1
        });
        let kind = kind(self);
        Operation { id, span, table, index, kind }
    }

    fn bound(&mut self, id: StepId, bind: &str, operation: Operation) {
        let bind = (!bind.is_empty()).then(|| match self.names.get(bind) {
            // A declared variable is assigned.
            Some(variable) if self.variables[variable.index()].mutable => Pattern::Bind(*variable),
            _ => self.pattern(bind, false),
        });
        self.end(id, StepKind::Operation { operation: Box::new(operation), bind });
    }

    /// `let bind = tx.get(key)`. A table is `name` or `name/index`.
    pub(crate) fn get(&mut self, bind: &str, table: &str, key: &str) {
        let id = self.begin();
        let operation = self.operation(table, |b| OperationKind::Get { key: b.list(key), required: false });
        self.bound(id, bind, operation);
    }

    pub(crate) fn require(&mut self, bind: &str, table: &str, key: &str) {
        let id = self.begin();
        let operation = self.operation(table, |b| OperationKind::Get { key: b.list(key), required: true });
        self.bound(id, bind, operation);
    }

    pub(crate) fn update(&mut self, bind: &str, table: &str, key: &str, row: &str, body: impl FnOnce(&mut Build)) {
        self.change(bind, table, key, row, true, body);
    }

    pub(crate) fn update_if(&mut self, bind: &str, table: &str, key: &str, row: &str, body: impl FnOnce(&mut Build)) {
        self.change(bind, table, key, row, false, body);
    }

    fn change(&mut self, bind: &str, table: &str, key: &str, row: &str, required: bool, body: impl FnOnce(&mut Build)) {
        let id = self.begin();
        let operation = self.operation(table, |b| {
            let key = b.list(key);
            let row = b.variable(row, false);
            let body = b.nested(body);
            OperationKind::Update { key, required, row, body }
        });
        self.bound(id, bind, operation);
    }

    pub(crate) fn insert(&mut self, table: &str, columns: &str) {
        let id = self.begin();
        let operation =
            self.operation(table, |b| OperationKind::Insert { columns: b.parse(columns, |parser| parser.fields()) });
        self.bound(id, "", operation);
    }

    pub(crate) fn delete(&mut self, table: &str, key: &str) {
        let id = self.begin();
        let operation = self.operation(table, |b| OperationKind::Delete { key: b.list(key), required: true });
        self.bound(id, "", operation);
    }

    pub(crate) fn delete_if(&mut self, bind: &str, table: &str, key: &str) {
        let id = self.begin();
        let operation = self.operation(table, |b| OperationKind::Delete { key: b.list(key), required: false });
        self.bound(id, bind, operation);
    }

    fn scan(&mut self, table: &str, range: &str, reverse: bool, take: Take) -> Operation {
        self.operation(table, |b| {
            let range = match range.split_once("..") {
                None => KeyRange::Prefix(b.list(range)),
                Some((low, high)) => {
                    let bound = |b: &mut Build, text: &str| (!text.trim().is_empty()).then(|| b.list(text));
                    let (low, high) = (bound(b, low), bound(b, high));
                    KeyRange::Between { low, high, inclusive: false }
                }
            };
            OperationKind::Scan { range, reverse, limit: None, take }
        })
    }

    /// `let bind = tx.prefix(range).first()`; a range is a prefix or `low..high`.
    pub(crate) fn first(&mut self, bind: &str, table: &str, range: &str) {
        let id = self.begin();
        let operation = self.scan(table, range, false, Take::First);
        self.bound(id, bind, operation);
    }

    pub(crate) fn last(&mut self, bind: &str, table: &str, range: &str) {
        let id = self.begin();
        let operation = self.scan(table, range, true, Take::First);
        self.bound(id, bind, operation);
    }

    pub(crate) fn all(&mut self, bind: &str, table: &str, range: &str) {
        let id = self.begin();
        let operation = self.scan(table, range, false, Take::All);
        self.bound(id, bind, operation);
    }

    /// `let bind = tx.prefix(range).count()`.
    pub(crate) fn count(&mut self, bind: &str, table: &str, range: &str) {
        let id = self.begin();
        let operation = self.scan(table, range, false, Take::Count);
        self.bound(id, bind, operation);
    }

    pub(crate) fn each(&mut self, row: &str, table: &str, range: &str, body: impl FnOnce(&mut Build)) {
        let id = self.begin();
        let operation = Box::new(self.scan(table, range, false, Take::Each));
        let row = self.variable(row, false);
        let body = self.nested(body);
        self.end(id, StepKind::ForEach { row, operation, body });
    }

    pub(crate) fn if_(&mut self, condition: &str, then: impl FnOnce(&mut Build), otherwise: impl FnOnce(&mut Build)) {
        let id = self.begin();
        let condition = self.expression(condition);
        let (then, otherwise) = (self.nested(then), self.nested(otherwise));
        self.end(id, StepKind::If { condition, then, otherwise });
    }

    /// A match of two arms, the second of which is `_`.
    pub(crate) fn match_(
        &mut self,
        value: &str,
        pattern: &str,
        then: impl FnOnce(&mut Build),
        otherwise: impl FnOnce(&mut Build),
    ) {
        let id = self.begin();
        let value = self.expression(value);
        let pattern = self.pattern(pattern, false);
        let first = Arm { pattern, guard: None, body: self.nested(then) };
        let second = Arm { pattern: Pattern::Any, guard: None, body: self.nested(otherwise) };
        self.end(id, StepKind::Match { value, arms: vec![first, second] });
    }

    pub(crate) fn for_(&mut self, pattern: &str, over: &str, body: impl FnOnce(&mut Build)) {
        let id = self.begin();
        let over = self.expression(over);
        let pattern = self.pattern(pattern, false);
        let body = self.nested(body);
        self.end(id, StepKind::For { pattern, over, body });
    }

    pub(crate) fn break_(&mut self) {
        let id = self.begin();
        self.end(id, StepKind::Break);
    }

    pub(crate) fn continue_(&mut self) {
        let id = self.begin();
        self.end(id, StepKind::Continue);
    }

    pub(crate) fn return_(&mut self, value: &str) {
        let id = self.begin();
        let value = self.expression(value);
        self.end(id, StepKind::Return(value));
    }

    pub(crate) fn abort(&mut self, value: &str) {
        let id = self.begin();
        let value = self.expression(value);
        self.end(id, StepKind::Abort(value));
    }

    pub(crate) fn yield_(&mut self, value: &str) {
        let id = self.begin();
        let value = self.expression(value);
        self.end(id, StepKind::Yield(value));
    }
}
