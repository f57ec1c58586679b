//! Expressions and patterns of tests, from text: a small part of the language of procedures.

use std::sync::Arc;

use seriatim_procedure::Value;
use seriatim_procedure::ir::{BinaryOperator, Expression, ExpressionKind, Function, Pattern, Span, VariableId};

/// Reads one text; `variable` finds a name.
pub(crate) struct Parser<'a> {
    tokens: Vec<String>,
    at: usize,
    span: Span,
    variable: &'a mut dyn FnMut(&str) -> VariableId,
}

fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            '"' => rest[1..].find('"').expect("closed text") + 2,
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            _ => ["..=", "..", "==", "!=", "<=", ">=", "&&", "||", "::"]
                .iter()
                .find(|symbol| rest.starts_with(**symbol))
                .map_or(1, |symbol| symbol.len()),
        };
        found.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    found
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &str, span: Span, variable: &'a mut dyn FnMut(&str) -> VariableId) -> Parser<'a> {
        Parser { tokens: tokens(text), at: 0, span, variable }
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.tokens[self.at - 1].clone()
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.peek() == token;
        self.at += usize::from(found);
        found
    }

    fn make(&self, kind: ExpressionKind) -> Expression {
        Expression { span: self.span.clone(), kind: Box::new(kind) }
    }

    /// All expressions, separated by commas.
    pub(crate) fn list(&mut self) -> Vec<Expression> {
        let mut found = Vec::new();
        while !matches!(self.peek(), "" | ")" | "]") {
            found.push(self.expression());
            self.take(",");
        }
        found
    }

    /// `name: value, …`.
    pub(crate) fn fields(&mut self) -> Vec<(Arc<str>, Expression)> {
        let mut found = Vec::new();
        while self.peek() != "" {
            let name = self.next();
            let value = match self.take(":") {
                true => self.expression(),
                false => {
                    let variable = (self.variable)(&name);
                    self.make(ExpressionKind::Variable(variable))
                }
            };
            found.push((name.as_str().into(), value));
            self.take(",");
        }
        found
    }

    pub(crate) fn expression(&mut self) -> Expression {
        let low = self.binary(0);
        let inclusive = self.peek() == "..=";
        match self.take("..=") || self.take("..") {
            true => {
                let high = self.binary(0);
                self.make(ExpressionKind::Range { low, high, inclusive })
            }
            false => low,
        }
    }

    fn binary(&mut self, level: usize) -> Expression {
        use BinaryOperator as B;
        const LEVELS: [&[(&str, B)]; 4] = [
            &[("&&", B::And), ("||", B::Or)],
            &[("==", B::Equal), ("!=", B::NotEqual), ("<=", B::LessOrEqual), (">=", B::GreaterOrEqual), ("<", B::Less)],
            &[("+", B::Add), ("-", B::Subtract)],
            &[("*", B::Multiply), ("/", B::Divide)],
        ];
        let Some(operators) = LEVELS.get(level) else { return self.postfix() };
        let mut left = self.binary(level + 1);
        while let Some((_, operator)) = operators.iter().find(|(token, _)| *token == self.peek()) {
            self.at += 1;
            let right = self.binary(level + 1);
            left = self.make(ExpressionKind::Binary(*operator, left, right));
        }
        left
    }

    fn postfix(&mut self) -> Expression {
        let mut base = self.primary();
        loop {
            if self.take(".") {
                let name: Arc<str> = self.next().as_str().into();
                base = match self.take("(") {
                    true => {
                        let arguments = [base].into_iter().chain(self.list()).collect();
                        assert!(self.take(")"));
                        self.make(ExpressionKind::Call(Function::Method(name), arguments))
                    }
                    false => self.make(ExpressionKind::Field(base, name)),
                };
            } else if self.take("[") {
                let index = self.expression();
                assert!(self.take("]"));
                base = self.make(ExpressionKind::Element(base, index));
            } else {
                return base;
            }
        }
    }

    fn primary(&mut self) -> Expression {
        let token = self.next();
        match token.as_str() {
            "(" => {
                let mut parts = self.list();
                assert!(self.take(")"));
                if parts.len() == 1 { parts.remove(0) } else { self.make(ExpressionKind::Tuple(parts)) }
            }
            "[" => {
                let parts = self.list();
                assert!(self.take("]"));
                self.make(ExpressionKind::List(parts))
            }
            "None" => self.make(ExpressionKind::None),
            "Some" => {
                let inner = self.primary();
                self.make(ExpressionKind::Some(inner))
            }
            text if text.starts_with('"') => {
                self.make(ExpressionKind::Literal(Value::Text(text.trim_matches('"').to_owned())))
            }
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                let value = number.parse().expect("an integer");
                self.make(ExpressionKind::Literal(Value::Integer(value, None)))
            }
            name if self.take("::") => {
                let function: Arc<str> = self.next().as_str().into();
                assert!(self.take("("));
                let arguments = self.list();
                assert!(self.take(")"));
                self.make(ExpressionKind::Call(Function::Associated(name.into(), function), arguments))
            }
            name if self.take("(") => {
                let arguments = self.list();
                assert!(self.take(")"));
                let evaluate = |_: &[Value]| Ok(Value::Bool(true));
                let total = !name.starts_with("may_");
                self.make(ExpressionKind::Call(
                    Function::Pure { name: name.to_owned().leak(), total, evaluate },
                    arguments,
                ))
            }
            name => {
                let variable = (self.variable)(name);
                self.make(ExpressionKind::Variable(variable))
            }
        }
    }

    /// `name`, `_`, `Some(pattern)`, `None`, `(pattern, …)`, `Variant(pattern)`. Names are new.
    pub(crate) fn pattern(&mut self) -> Pattern {
        let token = self.next();
        match token.as_str() {
            "_" => Pattern::Any,
            "None" => Pattern::None,
            "(" => {
                let mut parts = Vec::new();
                while !self.take(")") {
                    parts.push(self.pattern());
                    self.take(",");
                }
                Pattern::Tuple(parts)
            }
            "Some" => {
                assert!(self.take("("));
                let inner = self.pattern();
                assert!(self.take(")"));
                Pattern::Some(Box::new(inner))
            }
            name if self.take("(") => {
                let inner = self.pattern();
                assert!(self.take(")"));
                Pattern::Record { name: name.into(), fields: vec![("0".into(), inner)] }
            }
            name => Pattern::Bind((self.variable)(name)),
        }
    }
}
