//! Procedures built by hand, as a front end would.

use std::sync::Arc;

use seriatim_procedure::Value;
use seriatim_procedure::ir::*;

pub(crate) fn span() -> Span {
    Span { file: "test.rs".into(), line: 1, column: 1 }
}

pub(crate) fn of(kind: ExpressionKind) -> Expression {
    Expression { span: span(), kind: Box::new(kind) }
}

pub(crate) fn literal(value: impl seriatim_procedure::Data) -> Expression {
    of(ExpressionKind::Literal(value.to_value()))
}

/// An integer without a type.
pub(crate) fn int(number: i128) -> Expression {
    of(ExpressionKind::Literal(Value::Integer(number, None)))
}

pub(crate) fn var(id: u16) -> Expression {
    of(ExpressionKind::Variable(VariableId(id)))
}

pub(crate) fn field(of_: Expression, name: &str) -> Expression {
    of(ExpressionKind::Field(of_, name.into()))
}

pub(crate) fn binary(a: Expression, operator: BinaryOperator, b: Expression) -> Expression {
    of(ExpressionKind::Binary(operator, a, b))
}

pub(crate) fn method(name: &str, arguments: Vec<Expression>) -> Expression {
    of(ExpressionKind::Call(Function::Method(name.into()), arguments))
}

pub(crate) fn associated(ty: &str, name: &str, arguments: Vec<Expression>) -> Expression {
    of(ExpressionKind::Call(Function::Associated(ty.into(), name.into()), arguments))
}

pub(crate) fn tuple(values: Vec<Expression>) -> Expression {
    of(ExpressionKind::Tuple(values))
}

pub(crate) fn record<N>(name: &str, fields: Vec<(&str, N)>) -> (Arc<str>, Vec<(Arc<str>, N)>) {
    (name.into(), fields.into_iter().map(|(field, value)| (field.into(), value)).collect())
}

pub(crate) fn made(name: &str, fields: Vec<(&str, Expression)>) -> Expression {
    let (name, fields) = record(name, fields);
    of(ExpressionKind::Record(name, fields))
}

pub(crate) fn range(low: Expression, high: Expression) -> Expression {
    of(ExpressionKind::Range { low, high, inclusive: false })
}

pub(crate) fn bind(id: u16) -> Pattern {
    Pattern::Bind(VariableId(id))
}

pub(crate) fn some(pattern: Pattern) -> Pattern {
    Pattern::Some(Box::new(pattern))
}

pub(crate) fn step(kind: StepKind) -> Step {
    Step { id: StepId(0), span: span(), kind }
}

pub(crate) fn let_(pattern: Pattern, value: Expression) -> Step {
    step(StepKind::Let { pattern, value })
}

pub(crate) fn let_else(pattern: Pattern, value: Expression, otherwise: Vec<Step>) -> Step {
    step(StepKind::LetElse { pattern, value, otherwise: Block(otherwise) })
}

/// `variable.path op= value`.
pub(crate) fn assign(variable: u16, path: Vec<Selector>, operator: Option<BinaryOperator>, value: Expression) -> Step {
    step(StepKind::Assign { place: Target { variable: VariableId(variable), path }, operator, value })
}

pub(crate) fn column(name: &str) -> Vec<Selector> {
    vec![Selector::Field(name.into())]
}

pub(crate) fn push(list: u16, value: Expression) -> Step {
    assign(list, vec![], None, method("push", vec![var(list), value]))
}

pub(crate) fn if_(condition: Expression, then: Vec<Step>, otherwise: Vec<Step>) -> Step {
    step(StepKind::If { condition, then: Block(then), otherwise: Block(otherwise) })
}

pub(crate) fn for_(pattern: Pattern, over: Expression, body: Vec<Step>) -> Step {
    step(StepKind::For { pattern, over, body: Block(body) })
}

pub(crate) fn operation(table: usize, kind: OperationKind) -> Box<Operation> {
    Box::new(Operation { id: OperationId(0), span: span(), table, index: None, kind })
}

pub(crate) fn run(bind: Option<Pattern>, table: usize, kind: OperationKind) -> Step {
    step(StepKind::Operation { operation: operation(table, kind), bind })
}

pub(crate) fn get(pattern: Pattern, table: usize, key: Vec<Expression>) -> Step {
    run(Some(pattern), table, OperationKind::Get { key, required: false })
}

pub(crate) fn require(pattern: Pattern, table: usize, key: Vec<Expression>) -> Step {
    run(Some(pattern), table, OperationKind::Get { key, required: true })
}

pub(crate) fn update(pattern: Option<Pattern>, table: usize, key: Vec<Expression>, row: u16, body: Vec<Step>) -> Step {
    run(pattern, table, OperationKind::Update { key, required: true, row: VariableId(row), body: Block(body) })
}

pub(crate) fn insert(table: usize, columns: Vec<(&str, Expression)>) -> Step {
    run(None, table, OperationKind::Insert { columns: record("", columns).1 })
}

pub(crate) fn scan(range: KeyRange, limit: Option<Expression>, take: Take) -> OperationKind {
    OperationKind::Scan { range, reverse: false, limit, take }
}

pub(crate) fn for_each(row: u16, table: usize, kind: OperationKind, body: Vec<Step>) -> Step {
    step(StepKind::ForEach { row: VariableId(row), operation: operation(table, kind), body: Block(body) })
}

pub(crate) fn return_(value: Expression) -> Step {
    step(StepKind::Return(value))
}

pub(crate) fn abort(value: Expression) -> Step {
    step(StepKind::Abort(value))
}

pub(crate) fn yield_(value: Expression) -> Step {
    step(StepKind::Yield(value))
}

/// A procedure, its steps and operations numbered in source order.
pub(crate) fn procedure(
    name: &str,
    parameters: usize,
    variables: &[&str],
    tables: &[&str],
    body: Vec<Step>,
) -> Procedure {
    let mut procedure = Procedure {
        name: name.into(),
        span: span(),
        latest: false,
        parameters,
        variables: variables.iter().map(|&name| Variable { name: name.into(), mutable: true, span: span() }).collect(),
        tables: tables.iter().map(|&table| TableUse { table: table.into(), span: span() }).collect(),
        body: Block(body),
        steps: 0,
        operations: 0,
    };
    let mut body = std::mem::take(&mut procedure.body);
    number(&mut body, &mut procedure);
    procedure.body = body;
    procedure
}

fn number(block: &mut Block, procedure: &mut Procedure) {
    for step in &mut block.0 {
        step.id = StepId(procedure.steps as u16);
        procedure.steps += 1;
        let mut blocks = Vec::new();
        match &mut step.kind {
            StepKind::LetElse { otherwise, .. } => blocks.push(otherwise),
            StepKind::If { then, otherwise, .. } => blocks.extend([then, otherwise]),
            StepKind::Match { arms, .. } => blocks.extend(arms.iter_mut().map(|arm| &mut arm.body)),
            StepKind::For { body, .. } => blocks.push(body),
            StepKind::Operation { operation, .. } => {
                operation.id = OperationId(procedure.operations as u16);
                procedure.operations += 1;
                if let OperationKind::Update { body, .. } = &mut operation.kind {
                    blocks.push(body);
                }
            }
            StepKind::ForEach { operation, body, .. } => {
                operation.id = OperationId(procedure.operations as u16);
                procedure.operations += 1;
                blocks.push(body);
            }
            _ => {}
        }
        for block in blocks {
            number(block, procedure);
        }
    }
}
