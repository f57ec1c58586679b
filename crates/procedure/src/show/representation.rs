//! Procedures as text, for people: the source as it was understood, each line with the ids of its step and
//! operation.
//!
//! The text is for reading and for snapshots; nothing reads it back.

use std::collections::BTreeSet;
use std::fmt;

use crate::ir::{
    BinaryOperator, Block, Expression, ExpressionKind, Function, KeyRange, Operation, OperationId, OperationKind,
    Pattern, Procedure, Selector, Step, StepId, StepKind, Take, Target, UnaryOperator, VariableId,
};

impl fmt::Display for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer { names: Names::of(self), procedure: self, out: String::new() };
        printer.procedure();
        f.write_str(&printer.out)
    }
}

impl Procedure {
    /// A variable's name in the text of the procedure, with its id if several variables have that name.
    pub fn name_of(&self, variable: VariableId) -> String {
        Names::of(self).variable(variable)
    }
}

/// Lines longer than this put the columns of an insert one on a line.
const WIDTH: usize = 100;

/// How tightly operators bind, from 0. An operand that binds less tightly than its position requires is put in
/// parentheses.
const LOOSEST: u8 = 0;
const TIGHTEST: u8 = 7;

fn tightness(operator: BinaryOperator) -> u8 {
    match operator {
        BinaryOperator::Or => 1,
        BinaryOperator::And => 2,
        BinaryOperator::Equal
        | BinaryOperator::NotEqual
        | BinaryOperator::Less
        | BinaryOperator::LessOrEqual
        | BinaryOperator::Greater
        | BinaryOperator::GreaterOrEqual => 3,
        BinaryOperator::Add | BinaryOperator::Subtract => 4,
        BinaryOperator::Multiply | BinaryOperator::Divide | BinaryOperator::Remainder => 5,
    }
}

impl fmt::Display for BinaryOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BinaryOperator::Add => "+",
            BinaryOperator::Subtract => "-",
            BinaryOperator::Multiply => "*",
            BinaryOperator::Divide => "/",
            BinaryOperator::Remainder => "%",
            BinaryOperator::Equal => "==",
            BinaryOperator::NotEqual => "!=",
            BinaryOperator::Less => "<",
            BinaryOperator::LessOrEqual => "<=",
            BinaryOperator::Greater => ">",
            BinaryOperator::GreaterOrEqual => ">=",
            BinaryOperator::And => "&&",
            BinaryOperator::Or => "||",
        })
    }
}

/// The names of variables.
struct Names<'p> {
    procedure: &'p Procedure,
    /// Names that several variables have.
    shared: BTreeSet<&'p str>,
}

impl<'p> Names<'p> {
    fn of(procedure: &'p Procedure) -> Names<'p> {
        let mut seen = BTreeSet::new();
        let names = procedure.variables.iter().map(|variable| &*variable.name);
        Names { procedure, shared: names.filter(|name| !seen.insert(*name)).collect() }
    }

    fn variable(&self, variable: VariableId) -> String {
        match self.procedure.variables.get(variable.index()).map(|variable| &*variable.name) {
            Some("") => format!("_{}", variable.0),
            Some(name) if self.shared.contains(name) => format!("{name}#{}", variable.0),
            Some(name) => name.to_owned(),
            None => format!("?{}", variable.0),
        }
    }

    fn list(&self, expressions: &[Expression]) -> String {
        join(expressions.iter().map(|expression| self.expression(expression, LOOSEST)))
    }

    fn fields(&self, fields: &[(std::sync::Arc<str>, Expression)]) -> Vec<String> {
        fields.iter().map(|(name, value)| format!("{name}: {}", self.expression(value, LOOSEST))).collect()
    }

    fn expression(&self, expression: &Expression, at_least: u8) -> String {
        let (text, binds) = match &*expression.kind {
            ExpressionKind::Literal(value) => (value.to_string(), TIGHTEST),
            ExpressionKind::Variable(variable) => (self.variable(*variable), TIGHTEST),
            ExpressionKind::Field(of, name) => (format!("{}.{name}", self.expression(of, TIGHTEST)), TIGHTEST),
            ExpressionKind::Element(of, at) => {
                (format!("{}[{}]", self.expression(of, TIGHTEST), self.expression(at, LOOSEST)), TIGHTEST)
            }
            ExpressionKind::Unary(operator, value) => {
                let sign = match operator {
                    UnaryOperator::Not => "!",
                    UnaryOperator::Negate => "-",
                };
                (format!("{sign}{}", self.expression(value, 6)), 6)
            }
            ExpressionKind::Binary(operator, a, b) => {
                let binds = tightness(*operator);
                // Operators associate to the left, comparisons not at all.
                let left = if binds == 3 { binds + 1 } else { binds };
                let (a, b) = (self.expression(a, left), self.expression(b, binds + 1));
                (format!("{a} {operator} {b}"), binds)
            }
            ExpressionKind::Call(Function::Method(name), arguments) => match &arguments[..] {
                [] => (format!(".{name}()"), TIGHTEST),
                [receiver, rest @ ..] => {
                    (format!("{}.{name}({})", self.expression(receiver, TIGHTEST), self.list(rest)), TIGHTEST)
                }
            },
            ExpressionKind::Call(function, arguments) => (format!("{function:?}({})", self.list(arguments)), TIGHTEST),
            ExpressionKind::Tuple(values) => match &values[..] {
                [one] => (format!("({},)", self.expression(one, LOOSEST)), TIGHTEST),
                values => (format!("({})", self.list(values)), TIGHTEST),
            },
            ExpressionKind::List(values) => (format!("[{}]", self.list(values)), TIGHTEST),
            ExpressionKind::Repeat(value, times) => {
                (format!("[{}; {times}]", self.expression(value, LOOSEST)), TIGHTEST)
            }
            ExpressionKind::Record(name, fields) if fields.is_empty() => (name.to_string(), TIGHTEST),
            ExpressionKind::Record(name, fields) => {
                (format!("{name} {{ {} }}", self.fields(fields).join(", ")), TIGHTEST)
            }
            ExpressionKind::None => ("None".to_owned(), TIGHTEST),
            ExpressionKind::Some(value) => (format!("Some({})", self.expression(value, LOOSEST)), TIGHTEST),
            ExpressionKind::Reference(never, _) | ExpressionKind::Dereference(never, _) => match *never {},
            ExpressionKind::If(condition, then, otherwise) => {
                let part = |part| self.expression(part, LOOSEST);
                let text = format!("if {} {{ {} }} else {{ {} }}", part(condition), part(then), part(otherwise));
                (text, LOOSEST)
            }
            ExpressionKind::Match(value, arms) => {
                let arms = arms.iter().map(|(pattern, guard, then)| {
                    format!("{}{} => {}", self.pattern(pattern), self.guard(guard), self.expression(then, LOOSEST))
                });
                (format!("match {} {{ {} }}", self.expression(value, LOOSEST), join(arms)), LOOSEST)
            }
            ExpressionKind::Block(bindings, value) => {
                let lets = bindings.iter().map(|(pattern, value)| {
                    format!("let {} = {}; ", self.pattern(pattern), self.expression(value, LOOSEST))
                });
                (format!("{{ {}{} }}", lets.collect::<String>(), self.expression(value, LOOSEST)), TIGHTEST)
            }
            ExpressionKind::Range { low, high, inclusive } => {
                let dots = if *inclusive { "..=" } else { ".." };
                (format!("{}{dots}{}", self.expression(low, 1), self.expression(high, 1)), LOOSEST)
            }
        };
        if binds < at_least { format!("({text})") } else { text }
    }

    fn guard(&self, guard: &Option<Expression>) -> String {
        guard.as_ref().map_or(String::new(), |guard| format!(" if {}", self.expression(guard, LOOSEST)))
    }

    fn pattern(&self, pattern: &Pattern) -> String {
        match pattern {
            Pattern::Any => "_".to_owned(),
            Pattern::Bind(variable) => self.variable(*variable),
            Pattern::Literal(value) => value.to_string(),
            Pattern::Range { low, high, inclusive } => format!("{low}{}{high}", if *inclusive { "..=" } else { ".." }),
            Pattern::None => "None".to_owned(),
            Pattern::Some(inner) => format!("Some({})", self.pattern(inner)),
            Pattern::Tuple(parts) => {
                let end = if parts.len() == 1 { "," } else { "" };
                format!("({}{end})", join(parts.iter().map(|part| self.pattern(part))))
            }
            Pattern::Record { name, fields } if fields.is_empty() => name.to_string(),
            Pattern::Record { name, fields } => {
                let fields = fields.iter().map(|(field, pattern)| format!("{field}: {}", self.pattern(pattern)));
                format!("{name} {{ {} }}", join(fields))
            }
            Pattern::Either(patterns) => {
                patterns.iter().map(|pattern| self.pattern(pattern)).collect::<Vec<_>>().join(" | ")
            }
        }
    }

    fn place(&self, place: &Target) -> String {
        let mut text = self.variable(place.variable);
        for selector in &place.path {
            text += &match selector {
                Selector::Field(name) => format!(".{name}"),
                Selector::Index(at) => format!("[{}]", self.expression(at, LOOSEST)),
            };
        }
        text
    }

    /// An operation without the body of an update and the columns of an insert.
    fn operation(&self, operation: &Operation) -> String {
        let mut table = match self.procedure.tables.get(operation.table) {
            Some(table) => table.table.to_string(),
            None => format!("?{}", operation.table),
        };
        if let Some(index) = &operation.index {
            table += &format!(".{index}");
        }
        let keyed = |verb: &str, required: bool, key: &[Expression]| {
            format!("{verb}{} {table}({})", if required { "" } else { "_if" }, self.list(key))
        };
        match &operation.kind {
            OperationKind::Get { key, required } => {
                format!("{} {table}({})", if *required { "require" } else { "get" }, self.list(key))
            }
            OperationKind::Update { key, required, row, .. } => {
                format!("{} as {}", keyed("update", *required, key), self.variable(*row))
            }
            OperationKind::Insert { .. } => format!("insert {table}"),
            OperationKind::Delete { key, required } => keyed("delete", *required, key),
            OperationKind::Scan { range, reverse, limit, take } => {
                let range = match range {
                    KeyRange::Prefix(prefix) => format!("prefix({})", self.list(prefix)),
                    KeyRange::All => "every row".to_owned(),
                    KeyRange::Between { low, high, inclusive } => {
                        let bound = |key: &Option<Vec<Expression>>| {
                            key.as_ref().map_or(String::new(), |key| format!("({})", self.list(key)))
                        };
                        format!("{}..{}{}", bound(low), if *inclusive { "=" } else { "" }, bound(high))
                    }
                };
                let reverse = if *reverse { " reverse" } else { "" };
                let limit = limit.as_ref().map_or(String::new(), |n| format!(" limit {}", self.expression(n, LOOSEST)));
                let take = match take {
                    Take::Each => "",
                    Take::First => " first",
                    Take::All => " all",
                    Take::Count => " count",
                };
                format!("scan {table} {range}{reverse}{limit}{take}")
            }
        }
    }
}

fn join(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

struct Printer<'p> {
    names: Names<'p>,
    procedure: &'p Procedure,
    out: String,
}

impl Printer<'_> {
    fn line(&mut self, step: Option<StepId>, operation: Option<OperationId>, depth: usize, text: &str) {
        let step = step.map_or(String::new(), |id| format!("s{}", id.0));
        let operation = operation.map_or(String::new(), |id| format!("o{}", id.0));
        self.out += &format!("{step:>4} {operation:>4}  {:indent$}{text}\n", "", indent = 2 * depth);
    }

    fn procedure(&mut self) {
        let parameters = (0..self.procedure.parameters).map(|at| match u16::try_from(at) {
            Ok(at) => self.names.variable(VariableId(at)),
            Err(_) => format!("?{at}"),
        });
        self.out = format!("procedure {}({})\n", self.procedure.name, join(parameters));
        self.block(&self.procedure.body, 0);
    }

    fn block(&mut self, block: &Block, depth: usize) {
        for step in &block.0 {
            self.step(step, depth);
        }
    }

    fn step(&mut self, step: &Step, depth: usize) {
        let id = Some(step.id);
        let names = &self.names;
        let shown = |expression: &Expression| names.expression(expression, LOOSEST);
        match &step.kind {
            StepKind::Declare(variable) => {
                let text = format!("let {}", names.variable(*variable));
                self.line(id, None, depth, &text);
            }
            StepKind::Let { pattern, value } => {
                let text = format!("let {} = {}", names.pattern(pattern), shown(value));
                self.line(id, None, depth, &text);
            }
            StepKind::LetElse { pattern, value, otherwise } => {
                let text = format!("let {} = {} else {{", names.pattern(pattern), shown(value));
                self.line(id, None, depth, &text);
                self.block(otherwise, depth + 1);
                self.line(None, None, depth, "}");
            }
            StepKind::Assign { place, operator, value } => {
                let operator = operator.map_or(String::new(), |operator| operator.to_string());
                let text = format!("{} {operator}= {}", names.place(place), shown(value));
                self.line(id, None, depth, &text);
            }
            StepKind::Operation { operation, bind } => {
                let bind = bind.as_ref().map_or(String::new(), |bind| format!("let {} = ", names.pattern(bind)));
                self.operation(step.id, operation, &bind, depth);
            }
            StepKind::If { condition, then, otherwise } => {
                let text = format!("if {} {{", shown(condition));
                self.line(id, None, depth, &text);
                self.block(then, depth + 1);
                if !otherwise.0.is_empty() {
                    self.line(None, None, depth, "} else {");
                    self.block(otherwise, depth + 1);
                }
                self.line(None, None, depth, "}");
            }
            StepKind::Match { value, arms } => {
                let text = format!("match {} {{", shown(value));
                self.line(id, None, depth, &text);
                for arm in arms {
                    let text = format!("{}{} => {{", self.names.pattern(&arm.pattern), self.names.guard(&arm.guard));
                    self.line(None, None, depth + 1, &text);
                    self.block(&arm.body, depth + 2);
                    self.line(None, None, depth + 1, "}");
                }
                self.line(None, None, depth, "}");
            }
            StepKind::For { pattern, over, body } => {
                let text = format!("for {} in {} {{", names.pattern(pattern), shown(over));
                self.line(id, None, depth, &text);
                self.block(body, depth + 1);
                self.line(None, None, depth, "}");
            }
            StepKind::ForEach { row, operation, body } => {
                let text = format!("for {} in {} {{", names.variable(*row), names.operation(operation));
                self.line(id, Some(operation.id), depth, &text);
                self.block(body, depth + 1);
                self.line(None, None, depth, "}");
            }
            StepKind::Scope(never, _) => match *never {},
            StepKind::Break => self.line(id, None, depth, "break"),
            StepKind::Continue => self.line(id, None, depth, "continue"),
            StepKind::Return(value) => {
                let text = format!("return {}", shown(value));
                self.line(id, None, depth, &text);
            }
            StepKind::Abort(error) => {
                let text = format!("abort {}", shown(error));
                self.line(id, None, depth, &text);
            }
            StepKind::Yield(value) => {
                let text = format!("yield {}", shown(value));
                self.line(id, None, depth, &text);
            }
        }
    }

    fn operation(&mut self, step: StepId, operation: &Operation, bind: &str, depth: usize) {
        let (id, of) = (Some(step), Some(operation.id));
        let text = format!("{bind}{}", self.names.operation(operation));
        match &operation.kind {
            OperationKind::Update { body, .. } => {
                self.line(id, of, depth, &format!("{text} {{"));
                self.block(body, depth + 1);
                self.line(None, None, depth, "}");
            }
            OperationKind::Insert { columns } => {
                let columns = self.names.fields(columns);
                let whole = format!("{text} {{ {} }}", columns.join(", "));
                if whole.len() <= WIDTH {
                    return self.line(id, of, depth, &whole);
                }
                self.line(id, of, depth, &format!("{text} {{"));
                for column in columns {
                    self.line(None, None, depth + 1, &column);
                }
                self.line(None, None, depth, "}");
            }
            _ => self.line(id, of, depth, &text),
        }
    }
}
