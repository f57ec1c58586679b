//! Expressions as text of SQL, with the parentheses that they need.

use std::fmt::{self, Display, Formatter};

use super::syntax::{Level, is_plain_name};
use super::types::Shown;
use super::{Binary, Expression, Literal, Unary};

impl Binary {
    pub(super) fn text(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Subtract => "-",
            Binary::Multiply => "*",
            Binary::Divide => "/",
            Binary::Modulo => "%",
            Binary::Concatenate => "||",
            Binary::Equal => "=",
            Binary::NotEqual => "<>",
            Binary::Less => "<",
            Binary::LessOrEqual => "<=",
            Binary::Greater => ">",
            Binary::GreaterOrEqual => ">=",
            Binary::Distinct => "IS DISTINCT FROM",
        }
    }
}

/// How tightly an expression holds together.
fn level(of: &Expression) -> Level {
    match of {
        Expression::Any(parts) | Expression::All(parts) if parts.len() < 2 => parts.first().map_or(Level::Whole, level),
        Expression::Any(_) => Level::Or,
        Expression::All(_) => Level::And,
        Expression::Unary(Unary::Not, _) => Level::Not,
        Expression::Unary(Unary::Negate, _) => Level::Negative,
        Expression::Unary(..) => Level::Is,
        Expression::Binary(operator, ..) => operator.level(),
        Expression::In { .. } | Expression::Like { .. } => Level::In,
        Expression::Literal(Literal::Number(text)) if text.starts_with('-') => Level::Negative,
        _ => Level::Whole,
    }
}

/// An operand, in parentheses unless it holds together more tightly than this.
struct Operand<'e>(&'e Expression, Level);

impl Display for Operand<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if level(self.0) > self.1 { self.0.fmt(f) } else { write!(f, "({})", self.0) }
    }
}

/// A name, in quotes if it needs them.
struct Named<'n>(&'n str);

impl Display for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_plain_name(self.0) { f.write_str(self.0) } else { write!(f, "\"{}\"", self.0.replace('"', "\"\"")) }
    }
}

fn separated(f: &mut Formatter<'_>, parts: &[Expression], by: &str, within: Option<Level>) -> fmt::Result {
    for (at, part) in parts.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { by })?;
        match within {
            Some(level) => Operand(part, level).fmt(f)?,
            None => part.fmt(f)?,
        }
    }
    Ok(())
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Literal(Literal::Null) => f.write_str("NULL"),
            Expression::Literal(Literal::Bool(truth)) => f.write_str(if *truth { "TRUE" } else { "FALSE" }),
            Expression::Literal(Literal::Number(text)) => f.write_str(text),
            Expression::Literal(Literal::Text(text)) => write!(f, "'{}'", text.replace('\'', "''")),
            Expression::Column { table: None, column } => Named(column).fmt(f),
            Expression::Column { table: Some(table), column } => write!(f, "{}.{}", Named(table), Named(column)),
            Expression::Parameter(number) => write!(f, "${number}"),
            Expression::Unary(Unary::Negate, of) => write!(f, "- {}", Operand(of, Level::Negative)),
            Expression::Unary(Unary::Not, of) => match &**of {
                Expression::Unary(Unary::IsNull, of) => write!(f, "{} IS NOT NULL", Operand(of, Level::Is)),
                Expression::In { of, list } => {
                    write!(f, "{} NOT IN (", Operand(of, Level::In))?;
                    separated(f, list, ", ", None)?;
                    f.write_str(")")
                }
                Expression::Binary(Binary::Distinct, a, b) => {
                    let (a, b) = (Operand(a, Level::Is), Operand(b, Level::Is));
                    write!(f, "{a} IS NOT DISTINCT FROM {b}")
                }
                of => write!(f, "NOT {}", Operand(of, Level::Not)),
            },
            Expression::Unary(Unary::IsNull, of) => write!(f, "{} IS NULL", Operand(of, Level::Is)),
            Expression::Unary(Unary::IsTrue, of) => write!(f, "{} IS TRUE", Operand(of, Level::Is)),
            Expression::Unary(Unary::IsFalse, of) => write!(f, "{} IS FALSE", Operand(of, Level::Is)),
            Expression::Binary(operator, a, b) => {
                let (text, level) = (operator.text(), operator.level());
                // Operators of one level stand from left to right; of comparisons there is one.
                let left = if level <= Level::Comparison { level } else { level.below() };
                write!(f, "{} {text} {}", Operand(a, left), Operand(b, level))
            }
            // One is itself, and none of them is what it is without any.
            Expression::All(parts) if parts.is_empty() => f.write_str("TRUE"),
            Expression::Any(parts) if parts.is_empty() => f.write_str("FALSE"),
            Expression::All(parts) => {
                separated(f, parts, " AND ", if parts.len() == 1 { None } else { Some(Level::And) })
            }
            Expression::Any(parts) => {
                separated(f, parts, " OR ", if parts.len() == 1 { None } else { Some(Level::Or) })
            }
            Expression::In { of, list } => {
                write!(f, "{} IN (", Operand(of, Level::In))?;
                separated(f, list, ", ", None)?;
                f.write_str(")")
            }
            Expression::Like { of, pattern, escape } => {
                write!(f, "{} LIKE {}", Operand(of, Level::In), Operand(pattern, Level::In))?;
                escape.as_ref().map_or(Ok(()), |escape| write!(f, " ESCAPE {}", Operand(escape, Level::In)))
            }
            Expression::Case { branches, otherwise } => {
                f.write_str("CASE")?;
                for (when, then) in branches {
                    write!(f, " WHEN {when} THEN {then}")?;
                }
                if let Some(otherwise) = otherwise {
                    write!(f, " ELSE {otherwise}")?;
                }
                f.write_str(" END")
            }
            Expression::Cast { of, to } => write!(f, "CAST({of} AS {})", Shown(*to)),
            // Called without parentheses, as words that are reserved for it.
            Expression::Call { function, arguments }
                if arguments.is_empty() && matches!(&**function, "current_user" | "session_user") =>
            {
                f.write_str(function)
            }
            Expression::Call { function, arguments } => {
                write!(f, "{}(", Named(function))?;
                separated(f, arguments, ", ", None)?;
                f.write_str(")")
            }
        }
    }
}
