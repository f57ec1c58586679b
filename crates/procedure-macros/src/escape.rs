//! Which values may hold references to what a pass computed: they end with the pass, so they are not kept for later ones.
//!
//! What an operation reads is kept column by column, owned, to the end of the execution; references into it, and into
//! arguments, are no matter. The value of an update's closure is kept as it is; if it may hold a reference to a variable, the
//! procedure runs whole only. Columns of the row that an update changes never escape it.
//!
//! Types are not known here, so this errs on the side of a reference.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_procedure::{methods, visit};

use crate::tree::{
    self, Called, Expression, ExpressionKind, Field, OperationKind, Passing, Pattern, Procedure, StepKind, VariableId,
};

/// The first update whose value may not be kept: its number.
pub(crate) fn update(procedure: &Procedure) -> Option<usize> {
    let analysis = EscapeAnalysis::of(procedure);
    let mut found = None;
    visit::steps(&procedure.body, &mut |step| {
        let StepKind::Operation { operation, bind: Some(_) } = &step.kind else { return };
        let OperationKind::Update { body, .. } = &operation.kind else { return };
        if let Some(StepKind::Yield(value)) = body.0.last().map(|last| &last.kind)
            && analysis.level(value) > Level::Owned
        {
            found.get_or_insert(operation.id.index());
        }
    });
    found
}

/// What a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// No reference to a variable.
    Owned,
    /// It is perhaps one, to what is owned: a part of it that is taken is a copy of something owned.
    Reference,
    /// Perhaps some, anywhere in it.
    Holds,
}

impl Level {
    /// Of what this is a part of.
    fn around(self) -> Level {
        if self == Level::Owned { Level::Owned } else { Level::Holds }
    }

    /// Of what is taken out of this, or from behind it.
    fn inside(self) -> Level {
        if self == Level::Holds { Level::Holds } else { Level::Owned }
    }
}

#[derive(Default)]
struct EscapeAnalysis {
    /// Variables that are not owned.
    variables: BTreeMap<VariableId, Level>,
    /// Parameters that are references.
    arguments: BTreeSet<VariableId>,
    grown: bool,
}

impl EscapeAnalysis {
    fn of(procedure: &Procedure) -> EscapeAnalysis {
        let by_reference = procedure.parameters.iter().filter(|at| !matches!(at.passing, Passing::Value(_)));
        let mut analysis =
            EscapeAnalysis { arguments: by_reference.map(|at| at.variable).collect(), ..EscapeAnalysis::default() };
        loop {
            analysis.grown = false;
            visit::steps(&procedure.body, &mut |step| match &step.kind {
                StepKind::Let { pattern, value, .. } | StepKind::LetElse { pattern, value, .. } => {
                    analysis.bind(&pattern.pattern, analysis.level(value));
                }
                StepKind::For { pattern, over, .. } => analysis.iterate(&pattern.pattern, over),
                StepKind::Match { value, arms } => {
                    let level = analysis.level(value);
                    arms.iter().for_each(|arm| analysis.bind(&arm.pattern.pattern, level));
                }
                StepKind::Assign { place, operator, value } => {
                    let level = match tree::change(*operator, value) {
                        Some((_, arguments)) => analysis.most(arguments).around(),
                        None if place.path.is_empty() => analysis.level(value),
                        None => analysis.level(value).around(),
                    };
                    analysis.raise(place.variable, level);
                }
                _ => {}
            });
            tree::expressions(&procedure.body, &mut |expression| {
                for (pattern, value) in visit::bindings(expression) {
                    analysis.bind(pattern, analysis.level(value));
                }
            });
            if !analysis.grown {
                return analysis;
            }
        }
    }

    fn raise(&mut self, variable: VariableId, level: Level) {
        if level > self.variables.get(&variable).copied().unwrap_or(Level::Owned) {
            self.variables.insert(variable, level);
            self.grown = true;
        }
    }

    fn bind(&mut self, pattern: &Pattern, level: Level) {
        visit::bound(pattern).into_iter().for_each(|variable| self.raise(variable, level));
    }

    /// Binds what a loop goes over.
    fn iterate(&mut self, pattern: &Pattern, over: &Expression) {
        if let (ExpressionKind::Call(Called::Method(_, name), values), Pattern::Tuple(parts)) = (&*over.kind, pattern)
            && let [first, second] = &parts[..]
        {
            match (name.as_str(), &values[..]) {
                ("enumerate", [receiver, ..]) => return self.iterate(second, receiver),
                ("zip", [receiver, other]) => {
                    self.iterate(first, receiver);
                    return self.iterate(second, other);
                }
                _ => {}
            }
        }
        self.bind(pattern, self.level(over));
    }

    fn most<'e>(&self, values: impl IntoIterator<Item = &'e Expression>) -> Level {
        values.into_iter().map(|value| self.level(value)).max().unwrap_or(Level::Owned)
    }

    fn level(&self, value: &Expression) -> Level {
        match &*value.kind {
            ExpressionKind::Variable(variable) => self.variables.get(variable).copied().unwrap_or(Level::Owned),
            ExpressionKind::Reference(_, inner) => self.lend(inner),
            ExpressionKind::Field(inner, Field::Member(_))
            | ExpressionKind::Element(inner, _)
            | ExpressionKind::Dereference(_, inner) => self.level(inner).inside(),
            ExpressionKind::Some(inner) | ExpressionKind::Repeat(inner, _) => self.level(inner).around(),
            // A `#[pure]` function may give back what it was analysis.
            ExpressionKind::Call(Called::Pure(_), values)
            | ExpressionKind::Tuple(values)
            | ExpressionKind::List(values) => self.most(values).around(),
            ExpressionKind::Record(_, fields) => self.most(fields.iter().map(|(_, value)| value)).around(),
            ExpressionKind::Call(Called::Method(_, name), values) => match name.as_str() {
                "is_some" | "is_none" | "is_empty" | "len" | "contains" | "starts_with" | "units" | "abs" => {
                    Level::Owned
                }
                "clone" | "to_owned" | "into" => self.level(&values[0]).inside(),
                name if methods::method(name).is_some_and(|method| method.lends) => {
                    self.lend(&values[0]).max(self.most(&values[1..]))
                }
                _ => self.most(values),
            },
            ExpressionKind::If(_, then, otherwise) => self.level(then).max(self.level(otherwise)),
            ExpressionKind::Match(_, arms) => self.most(arms.iter().map(|(.., value)| value)),
            ExpressionKind::Block(_, value) => self.level(value),
            ExpressionKind::Literal(_)
            | ExpressionKind::None
            | ExpressionKind::Field(_, Field::Column(_))
            | ExpressionKind::Unary(..)
            | ExpressionKind::Binary(..)
            | ExpressionKind::Range { .. }
            | ExpressionKind::Call(Called::Associated(_), _) => Level::Owned,
        }
    }

    /// The level of a reference to this.
    fn lend(&self, place: &Expression) -> Level {
        match self.level(place) {
            Level::Holds => Level::Holds,
            Level::Reference => Level::Reference,
            Level::Owned if self.is_of_argument(place) => Level::Owned,
            Level::Owned => Level::Reference,
        }
    }

    /// Whether this is a part of an argument, which outlives all passes.
    fn is_of_argument(&self, place: &Expression) -> bool {
        match &*place.kind {
            ExpressionKind::Variable(variable) => self.arguments.contains(variable),
            ExpressionKind::Field(base, Field::Member(_))
            | ExpressionKind::Element(base, _)
            | ExpressionKind::Dereference(_, base) => self.is_of_argument(base),
            ExpressionKind::Call(Called::Method(..), values) => self.is_of_argument(&values[0]),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> Option<usize> {
        let text = format!("fn p(tx: &Tx, a: &A, list: &[Line], m: Vec<u32>) -> Result<u32, Abort> {{ {body} Ok(1) }}");
        let function = syn::parse_str(&text).expect("a function");
        update(&crate::lower::procedure(&function).expect("a procedure"))
    }

    #[test]
    fn values_of_updates_are_kept_if_they_refer_to_no_variable() {
        for owned in [
            "let x = tx.update::<T>(1, |row| { row.n += 1; (row.n, a.name, &a.list, list.len()) })?;",
            "let other = tx.require::<T>(2)?; let x = tx.update::<T>(1, |row| (other.name, f(row.name, other.n)))?;",
            "for (at, line) in list.iter().enumerate() { let x = tx.update::<T>(1, |row| (line, line.n, at))?; }",
            "for line in &m { let x = tx.update::<T>(1, |row| f(*line))?; }",
            "for line in f(a).iter() { let x = tx.update::<T>(1, |row| line.n + 1)?; }",
            "let lent = &m; tx.update::<T>(1, |row| row.n = lent.len())?;",
        ] {
            assert_eq!(refused(owned), None, "{owned}");
        }
    }

    #[test]
    fn values_of_updates_that_may_refer_to_variables_are_not_kept() {
        for lent in [
            "let x = tx.update::<T>(1, |row| &m)?;",
            "let lent = &m; let x = tx.update::<T>(1, |row| (row.n, lent))?;",
            "for line in &m { let x = tx.update::<T>(1, |row| line)?; }",
            "let (b, c) = (&m, 1); let d = (b, c); let x = tx.update::<T>(1, |row| { let e = d.0; e })?;",
            "let mut all = Vec::new(); all.push(&m); let x = tx.update::<T>(1, |row| all[0])?;",
            "let text = f(1); let x = tx.update::<T>(1, |row| text.as_str())?;",
            "let text = f(1); let x = tx.update::<T>(1, |row| g(&text))?;",
            "let text = f(1); let x = tx.update::<T>(1, |row| match 1 { 1 => Some(&text), _ => None })?;",
        ] {
            assert_eq!(refused(lent), Some(0), "{lent}");
        }
    }
}
