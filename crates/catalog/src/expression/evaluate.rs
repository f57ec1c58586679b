//! Evaluation of bound expressions.

use std::cmp::Ordering;

use super::datum::{Columns, Datum};
use super::error::EvaluationError;
use super::functions::Apply;
use super::{Binary, cast, pattern};
use crate::ColumnType;

type Result<T> = std::result::Result<T, EvaluationError>;

/// An expression whose types are known and right.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Constant(Datum<'static>),
    Column(usize),
    Parameter(usize),
    /// A strict function and the type of its result.
    Call(Apply, ColumnType, Box<[Node]>),
    /// One whose result depends on more than its arguments.
    Ask(Box<Node>),
    /// The function of this number of the scope.
    OfScope(usize, Box<[Node]>),
    /// From a type to another.
    Cast(Box<Node>, ColumnType, ColumnType),
    /// A comparison of two values of one type.
    Compare(Binary, Box<(Node, Node)>),
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Not(Box<Node>),
    IsNull(Box<Node>),
    /// Whether it is this truth value.
    Is(Box<Node>, bool),
    In(Box<Node>, Box<[Node]>),
    /// Text, pattern and escape.
    Like(Box<[Node]>),
    Case(Box<[(Node, Node)]>, Box<Node>),
    Coalesce(Box<[Node]>),
    /// The greatest, or the least, of those that are not NULL.
    Extreme(Ordering, Box<[Node]>),
}

/// Most arguments of a strict function.
pub(super) const ARGUMENTS_MAX: usize = 3;

impl Node {
    /// Whether it cannot fail.
    pub(super) fn is_total(&self) -> bool {
        let all = |parts: &[Node]| parts.iter().all(Node::is_total);
        match self {
            Node::Constant(_) | Node::Column(_) | Node::Parameter(_) => true,
            Node::Compare(_, operands) => operands.0.is_total() && operands.1.is_total(),
            Node::Not(of) | Node::IsNull(of) | Node::Is(of, _) => of.is_total(),
            Node::In(of, list) => of.is_total() && all(list),
            Node::All(parts) | Node::Any(parts) | Node::Coalesce(parts) | Node::Extreme(_, parts) => all(parts),
            Node::Case(branches, otherwise) => {
                branches.iter().all(|(when, then)| when.is_total() && then.is_total()) && otherwise.is_total()
            }
            Node::Call(..) | Node::Cast(..) | Node::Ask(_) | Node::OfScope(..) | Node::Like(_) => false,
        }
    }

    pub(super) fn evaluate<'r>(&'r self, columns: &dyn Columns<'r>, parameters: &'r [Datum<'r>]) -> Result<Datum<'r>> {
        let value = |node: &'r Node| node.evaluate(columns, parameters);
        Ok(match self {
            Node::Constant(datum) => datum.borrowed(),
            Node::Column(column) => columns.get(*column),
            Node::Parameter(number) => parameters.get(*number).map_or(Datum::Null, Datum::borrowed),
            Node::Call(apply, ty, arguments) => {
                let mut values = [const { Datum::Null }; ARGUMENTS_MAX];
                let values = &mut values[..arguments.len()];
                for (at, argument) in values.iter_mut().zip(arguments) {
                    *at = value(argument)?;
                }
                if values.iter().any(Datum::is_null) { Datum::Null } else { apply(values, *ty)? }
            }
            Node::Ask(call) => value(call)?,
            Node::OfScope(number, arguments) => {
                let values = arguments.iter().map(value).collect::<Result<Vec<_>>>()?;
                columns.call(*number, &values)?
            }
            Node::Cast(of, from, to) => cast::cast(value(of)?, *from, *to)?,
            Node::Compare(operator, operands) => {
                let (a, b) = (value(&operands.0)?, value(&operands.1)?);
                match (operator, a.is_null() || b.is_null()) {
                    (Binary::Distinct, true) => Datum::Bool(a.is_null() != b.is_null()),
                    (_, true) => Datum::Null,
                    (operator, false) => Datum::Bool(holds(*operator, a.compare(&b))),
                }
            }
            Node::All(parts) => connected(parts, false, value)?,
            Node::Any(parts) => connected(parts, true, value)?,
            Node::Not(of) => match value(of)? {
                Datum::Bool(truth) => Datum::Bool(!truth),
                _ => Datum::Null,
            },
            Node::IsNull(of) => Datum::Bool(value(of)?.is_null()),
            Node::Is(of, wanted) => Datum::Bool(value(of)? == Datum::Bool(*wanted)),
            Node::In(of, list) => {
                let wanted = value(of)?;
                let mut is_known = !wanted.is_null();
                for other in list {
                    let other = value(other)?;
                    is_known &= !other.is_null();
                    if !wanted.is_null() && !other.is_null() && wanted.compare(&other).is_eq() {
                        return Ok(Datum::Bool(true));
                    }
                }
                if is_known { Datum::Bool(false) } else { Datum::Null }
            }
            Node::Like(parts) => {
                let mut values = [const { Datum::Null }; 3];
                for (at, part) in values.iter_mut().zip(parts) {
                    *at = value(part)?;
                }
                match &values {
                    [Datum::Text(text), Datum::Text(pattern), Datum::Text(escape)] => {
                        Datum::Bool(pattern::is_like(text, pattern, pattern::escape(escape)?)?)
                    }
                    _ => Datum::Null,
                }
            }
            Node::Case(branches, otherwise) => {
                for (when, then) in branches {
                    if value(when)? == Datum::Bool(true) {
                        return value(then);
                    }
                }
                value(otherwise)?
            }
            Node::Coalesce(parts) => {
                for part in parts {
                    let found = value(part)?;
                    if !found.is_null() {
                        return Ok(found);
                    }
                }
                Datum::Null
            }
            Node::Extreme(wanted, parts) => {
                let mut extreme = Datum::Null;
                for part in parts {
                    let other = value(part)?;
                    if !other.is_null() && (extreme.is_null() || other.compare(&extreme) == *wanted) {
                        extreme = other;
                    }
                }
                extreme
            }
        })
    }

    pub(super) fn is_constant(&self) -> bool {
        matches!(self, Node::Constant(_))
    }

    /// What it is if its operands are constants: its value, unless that is an error, which is one only where the value
    /// is needed.
    pub(super) fn folded(self) -> Node {
        let is_null = |part: &Node| matches!(part, Node::Constant(Datum::Null));
        match &self {
            // A condition that is known decides.
            Node::Case(branches, otherwise) => match branches.first() {
                None => return (**otherwise).clone(),
                Some((Node::Constant(known), then)) => {
                    if matches!(known, Datum::Bool(true)) {
                        return then.clone();
                    }
                    return Node::Case(branches[1..].into(), otherwise.clone()).folded();
                }
                Some(_) => {}
            },
            // A function of NULL has no value, whatever its other arguments are.
            Node::Call(_, _, parts) | Node::Like(parts) if parts.iter().any(is_null) => {
                return Node::Constant(Datum::Null);
            }
            Node::In(of, _) if is_null(of) => return Node::Constant(Datum::Null),
            Node::Compare(operator, operands)
                if *operator != Binary::Distinct && (is_null(&operands.0) || is_null(&operands.1)) =>
            {
                return Node::Constant(Datum::Null);
            }
            _ => {}
        }
        let is_constant = match &self {
            Node::Constant(_) | Node::Column(_) | Node::Parameter(_) | Node::Ask(_) | Node::OfScope(..) => false,
            Node::Cast(of, ..) | Node::Not(of) | Node::IsNull(of) | Node::Is(of, _) => of.is_constant(),
            Node::Compare(_, operands) => operands.0.is_constant() && operands.1.is_constant(),
            Node::Call(_, _, parts)
            | Node::All(parts)
            | Node::Any(parts)
            | Node::Like(parts)
            | Node::Coalesce(parts)
            | Node::Extreme(_, parts) => parts.iter().all(Node::is_constant),
            Node::In(of, list) => of.is_constant() && list.iter().all(Node::is_constant),
            Node::Case(branches, otherwise) => {
                otherwise.is_constant() && branches.iter().all(|(when, then)| when.is_constant() && then.is_constant())
            }
        };
        if !is_constant {
            return self;
        }
        let none: &[Datum<'_>] = &[];
        let value = self.evaluate(&none, &[]).map(Datum::into_owned);
        value.map_or(self, Node::Constant)
    }
}

/// Whether this order is what the operator asks for.
fn holds(operator: Binary, order: Ordering) -> bool {
    match operator {
        Binary::Equal => order.is_eq(),
        Binary::NotEqual | Binary::Distinct => order.is_ne(),
        Binary::Less => order.is_lt(),
        Binary::LessOrEqual => order.is_le(),
        Binary::Greater => order.is_gt(),
        Binary::GreaterOrEqual => order.is_ge(),
        _ => false,
    }
}

/// AND, which `false` decides, or OR, which `true` decides. What follows the decision is not evaluated.
fn connected<'r>(parts: &'r [Node], decides: bool, value: impl Fn(&'r Node) -> Result<Datum<'r>>) -> Result<Datum<'r>> {
    let mut is_known = true;
    for part in parts {
        match value(part)? {
            Datum::Bool(truth) if truth == decides => return Ok(Datum::Bool(decides)),
            Datum::Bool(_) => {}
            _ => is_known = false,
        }
    }
    Ok(if is_known { Datum::Bool(!decides) } else { Datum::Null })
}
