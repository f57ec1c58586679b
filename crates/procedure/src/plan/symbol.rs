//! Values in keys as far as they are known before execution: equal symbols stand for equal values in one execution.

use std::fmt;
use std::sync::Arc;

/// A value, as a symbol. Equal symbols have the same value in one execution and, if they refer to elements of
/// a loop, in one iteration of it. Different symbols may have equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Symbol {
    /// A constant, as it is written.
    Literal(String),
    /// A parameter of the procedure.
    Parameter(Arc<str>),
    /// The element of a loop (its index in the plan) over a list or range, by its name in the source.
    Element(usize, Arc<str>),
    /// The result of an operation: its row, or the value that an update yields. For a loop over a scan: the
    /// row.
    Result(usize),
    /// A field of a value, or a column of a row.
    Field(Box<Symbol>, Arc<str>),
    /// Any other value: a unique number, its text, and the innermost loop in which it is computed.
    Other(usize, String, Option<usize>),
}

impl Symbol {
    /// A field of this value.
    #[must_use]
    pub fn field(self, name: &Arc<str>) -> Symbol {
        Symbol::Field(Box::new(self), name.clone())
    }

    /// The operation of whose result it is a part.
    pub fn operation(&self) -> Option<usize> {
        match self {
            Symbol::Result(operation) => Some(*operation),
            Symbol::Field(base, _) => base.operation(),
            _ => None,
        }
    }

    /// The loop of whose element it is a part.
    pub fn iteration(&self) -> Option<usize> {
        match self {
            Symbol::Element(iteration, _) => Some(*iteration),
            Symbol::Field(base, _) => base.iteration(),
            _ => None,
        }
    }

    /// Whether it may have another value in another iteration of this loop, which is around its use.
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
