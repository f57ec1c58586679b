//! Which values may hold references to values of a pass: they end with the pass, so they are not kept for
//! later ones.
//!
//! The columns that an operation reads are kept one by one, owned, to the end of the execution. References into them,
//! and into arguments, are unproblematic. The value of an update's closure is kept as it is; if it may hold a reference
//! to a variable, the procedure runs whole only. Columns of the row that an update changes never escape it.
//!
//! Likewise, whether what a loop reads of a row outlives the pass through the loop for which the row lives.
//!
//! Types are not known here, so this errs on the side of a reference.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_procedure::{methods, visit};

use crate::tree::{
    self, Block, Called, Expression, ExpressionKind, Field, Operation, OperationKind, Passing, Pattern, Procedure,
    Selector, StepKind, VariableId,
};

/// The first update whose value may not be kept: its number.
pub(crate) fn update(procedure: &Procedure) -> Option<usize> {
    let analysis = EscapeAnalysis::of(procedure);
    let mut found = None;
    visit::steps(&procedure.body, &mut |step| {
        let StepKind::Operation { operation, bind: Some(_) } = &step.kind else { return };
        if yielded(operation).is_some_and(|value| analysis.level(value) > Level::Owned) {
            found.get_or_insert(operation.id.index());
        }
    });
    found
}

/// The value of an update's closure.
fn yielded(operation: &Operation) -> Option<&Expression> {
    let OperationKind::Update { body, .. } = &operation.kind else { return None };
    match &body.0.last()?.kind {
        StepKind::Yield(value) => Some(value),
        _ => None,
    }
}

/// Whether a variable may hold a column of the scan's row that this loop binds when the pass ends. Such a
/// variable is declared outside of the loop and is assigned, or changed by, a value that may refer to the row.
/// An addend is a number.
pub(crate) fn outlives_pass(row: VariableId, body: &Block) -> bool {
    let analysis = EscapeAnalysis { row: Some(row), ..EscapeAnalysis::default() }.grow(body);
    let (mut inside, mut outlives) = (BTreeSet::new(), false);
    visit::steps(body, &mut |step| match &step.kind {
        StepKind::Let { pattern, .. }
        | StepKind::LetElse { pattern, .. }
        | StepKind::For { pattern, .. }
        | StepKind::Operation { bind: Some(pattern), .. } => inside.extend(pattern.binds()),
        StepKind::Match { arms, .. } => arms.iter().for_each(|arm| inside.extend(arm.pattern.binds())),
        StepKind::Declare(variable) => {
            inside.insert(*variable);
        }
        StepKind::Assign { place, operator, value } => {
            let level = match tree::change(*operator, value) {
                Some((_, arguments)) => analysis.most(arguments),
                None if operator.is_none() => analysis.level(value),
                None => Level::Owned,
            };
            // A column of an update is copied into its row.
            let is_column = matches!(place.path[..], [Selector::Field(Field::Column(_))]);
            outlives |= !is_column && !inside.contains(&place.variable) && level > Level::Owned;
        }
        _ => {}
    });
    outlives
}

/// The kind of references in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// No reference to a variable.
    Owned,
    /// Perhaps a reference, to an owned value: a part that is taken from it is a copy of an owned value.
    Reference,
    /// Perhaps some, anywhere in it.
    Holds,
}

impl Level {
    /// The level of a value of which this is a part.
    fn around(self) -> Level {
        if self == Level::Owned { Level::Owned } else { Level::Holds }
    }

    /// The level of a value that is taken out of this one, or from behind it.
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
    /// A row that does not outlive what is looked at: a column of it may be a reference into it, however it is copied.
    row: Option<VariableId>,
    grown: bool,
}

impl EscapeAnalysis {
    fn of(procedure: &Procedure) -> EscapeAnalysis {
        let by_reference = procedure.parameters.iter().filter(|at| !matches!(at.passing, Passing::Value(_)));
        EscapeAnalysis { arguments: by_reference.map(|at| at.variable).collect(), ..EscapeAnalysis::default() }
            .grow(&procedure.body)
    }

    /// Adds the values that the variables of this block hold.
    fn grow(self, body: &Block) -> EscapeAnalysis {
        let mut analysis = self;
        loop {
            analysis.grown = false;
            visit::steps(body, &mut |step| match &step.kind {
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
                StepKind::Operation { operation, bind: Some(pattern) } => {
                    if let Some(value) = yielded(operation) {
                        analysis.bind(&pattern.pattern, analysis.level(value));
                    }
                }
                _ => {}
            });
            tree::expressions(body, &mut |expression| {
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

    /// Binds the elements of a loop.
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
            // A `#[pure]` function may return its argument.
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
            ExpressionKind::Field(row, Field::Column(_)) => match (&*row.kind, self.row) {
                (ExpressionKind::Variable(variable), Some(row)) if *variable == row => Level::Holds,
                _ => Level::Owned,
            },
            ExpressionKind::If(_, then, otherwise) => self.level(then).max(self.level(otherwise)),
            ExpressionKind::Match(_, arms) => self.most(arms.iter().map(|(.., value)| value)),
            ExpressionKind::Block(_, value) => self.level(value),
            ExpressionKind::Literal(_)
            | ExpressionKind::None
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

    /// Whether the row of the loop in this body, `row`, may outlive a pass.
    fn outlives(body: &str) -> bool {
        let text = format!("fn p(tx: &Tx, a: &A, b: u32) -> Result<u32, Abort> {{ {body} Ok(1) }}");
        let procedure =
            crate::lower::procedure(&syn::parse_str(&text).expect("a function")).expect("a procedure of the language");
        let mut found = None;
        visit::steps(&procedure.body, &mut |step| {
            if let StepKind::ForEach { row, body, .. } = &step.kind
                && procedure.variables[row.index()].ident == "row"
            {
                found = Some(outlives_pass(*row, body));
            }
        });
        found.expect("a loop over a scan")
    }

    #[test]
    fn rows_whose_columns_are_used_up_within_a_pass_do_not_outlive_it() {
        for used_up in [
            "let mut n = 0; for row in tx.scan::<T>(0..b)? { n += row.n; }",
            "let mut n = 0; for row in tx.scan::<T>(0..b)? { let x = row.name; n = n + x.len(); }",
            "let mut n = false; for row in tx.scan::<T>(0..b)? { let mut x = a.name; x = row.name; n = x == \
             row.other; }",
            "for row in tx.scan::<T>(0..b)? { tx.update::<T>(row.n, |other| { other.name = row.name; })?; }",
            "for row in tx.scan::<T>(0..b)? { tx.insert(T { id: row.n, name: row.name })?; }",
            "let mut n = 0; for row in tx.scan::<T>(0..b)? { for other in tx.scan::<T>(0..row.n)? { n += other.n; } }",
            "for row in tx.scan::<T>(0..b)? { if row.n > 3 { return Ok(row.n); } }",
        ] {
            assert!(!outlives(used_up), "{used_up}");
        }
    }

    #[test]
    fn rows_whose_columns_may_be_kept_outlive_a_pass() {
        for kept in [
            "let mut n = a.name; for row in tx.scan::<T>(0..b)? { n = row.name; }",
            "let mut n = None; for row in tx.scan::<T>(0..b)? { if row.n > 2 { n = Some(row.name); } }",
            "let mut n = Vec::new(); for row in tx.scan::<T>(0..b)? { n.push(row.name); }",
            "let mut n = a.name; for row in tx.scan::<T>(0..b)? { let x = (1, row.name); let y = x.1; n = y; }",
            "let mut n = a.name; for row in tx.scan::<T>(0..b)? { n = f(row.name.clone()); }",
            "let mut n = a.name; for row in tx.scan::<T>(0..b)? { n = match row.n { 1 => row.name, _ => a.name }; }",
            "let mut n = a.name; for row in tx.scan::<T>(0..b)? { let x = tx.update::<T>(1, |other| { row.name })?; n \
             = x; }",
            "let mut n = a.name; for row in tx.scan::<T>(0..b)? { for other in tx.scan::<T>(0..1)? { n = row.name; } }",
        ] {
            assert!(outlives(kept), "{kept}");
        }
    }

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
