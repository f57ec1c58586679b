//! Values in keys as far as they are known before execution: equal symbols stand for equal values in one execution.

use std::fmt;
use std::sync::Arc;

/// A value, symbolically. Two symbols that are equal have the same value in one execution and, if they speak of the elements
/// of a loop, in one iteration of it. Different symbols may have equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Symbol {
    /// A constant, as it is written.
    Literal(String),
    /// A parameter of the procedure.
    Parameter(Arc<str>),
    /// The element of a loop (its index in the plan) over a list or range, as the source names it.
    Element(usize, Arc<str>),
    /// The result of an operation: its row, or what an update yields; of a loop over a scan, the row.
    Result(usize),
    /// A field of a value, or a column of a row.
    Field(Box<Symbol>, Arc<str>),
    /// Anything else: a number that tells it from all others, how it is written, and the innermost loop in which it is computed.
    Other(usize, String, Option<usize>),
}

impl Symbol {
    /// A field of this value.
    #[must_use]
    pub fn field(self, name: &Arc<str>) -> Symbol {
        Symbol::Field(Box::new(self), name.clone())
    }

    /// The operation whose result it is a part of.
    pub fn operation(&self) -> Option<usize> {
        match self {
            Symbol::Result(operation) => Some(*operation),
            Symbol::Field(base, _) => base.operation(),
            _ => None,
        }
    }

    /// The loop whose element it is a part of.
    pub fn iteration(&self) -> Option<usize> {
        match self {
            Symbol::Element(iteration, _) => Some(*iteration),
            Symbol::Field(base, _) => base.iteration(),
            _ => None,
        }
    }

    /// Whether it may have another value in another iteration of this loop, which is around what it is used for.
    pub fn varies(&self, around: usize) -> bool {
        match self {
            Symbol::Literal(_) | Symbol::Parameter(_) => false,
            // Loops are numbered from the outside.
            Symbol::Element(iteration, _) => around <= *iteration,
            Symbol::Other(_, _, iteration) => iteration.is_some_and(|iteration| around <= iteration),
            Symbol::Result(_) => true,
            Symbol::Field(base, _) => base.varies(around),
        }
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Symbol::Literal(text) | Symbol::Other(_, text, _) => f.write_str(text),
            Symbol::Parameter(name) | Symbol::Element(_, name) => f.write_str(name),
            Symbol::Result(operation) => write!(f, "#{operation}"),
            Symbol::Field(base, name) => write!(f, "{base}.{name}"),
        }
    }
}
