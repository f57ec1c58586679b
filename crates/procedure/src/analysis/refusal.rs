//! Why a procedure is not accepted, and where.

use std::fmt;
use std::sync::Arc;

use crate::ir::Span;

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The procedure.
    pub procedure: Arc<str>,
    /// The position.
    pub span: Span,
    /// The mistake, and the remedy.
    pub problem: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: procedure `{}`: {}", self.span, self.procedure, self.problem)
    }
}

/// All reasons found, at least one, in source order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals(pub Vec<Refusal>);

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, refusal) in self.0.iter().enumerate() {
            write!(f, "{}{refusal}", if at > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusals {}

/// Collects reasons during an analysis.
#[derive(Debug)]
pub(super) struct Collector {
    procedure: Arc<str>,
    found: Vec<Refusal>,
}

impl Collector {
    pub(super) fn new(procedure: &Arc<str>) -> Collector {
        Collector { procedure: procedure.clone(), found: Vec::new() }
    }

    pub(super) fn refuse(&mut self, span: &Span, problem: impl Into<String>) {
        let refusal = Refusal { procedure: self.procedure.clone(), span: span.clone(), problem: problem.into() };
        if !self.found.contains(&refusal) {
            self.found.push(refusal);
        }
    }

    /// `value`, if nothing was refused.
    pub(super) fn finish<T>(mut self, value: T) -> Result<T, Refusals> {
        self.found.sort_by(|left, right| left.span.cmp(&right.span));
        if self.found.is_empty() { Ok(value) } else { Err(Refusals(self.found)) }
    }
}
