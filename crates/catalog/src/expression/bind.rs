//! Binding: columns get their numbers, every part its type, and constants their values.

use std::cmp::Ordering;

use super::datum::{Columns, Datum};
use super::error::{EvaluationError, ExpressionError, ExpressionErrorKind};
use super::evaluate::Node;
use super::functions::{self, Unresolved};
use super::types::{self, Shown};
use super::{Binary, Expression, Literal, Unary, cast, numeric};
use crate::{ColumnType, Numeric, TableDef};

type Result<T> = std::result::Result<T, ExpressionError>;

/// The columns that an expression may name.
pub trait Scope {
    /// The number and the type of a column.
    ///
    /// # Errors
    /// There is none of this name, or there are several.
    fn column(&self, table: Option<&str>, column: &str) -> Result<(usize, ColumnType)>;

    /// A function that this scope has beside those that there are everywhere, for arguments of these types. It is
    /// looked for first.
    ///
    /// # Errors
    /// It takes no arguments of these types.
    fn function(&self, name: &str, arguments: &[Option<ColumnType>]) -> Result<Option<ScopeFunction>> {
        let _ = (name, arguments);
        Ok(None)
    }
}

/// A function of a [`Scope`]. [`Columns::call`] computes it.
#[derive(Clone, Debug)]
pub struct ScopeFunction {
    /// Its number.
    pub number: usize,
    /// What its arguments are made of before it is called; `None` to leave one as it is.
    pub arguments: Vec<Option<ColumnType>>,
    /// The type of its result; `None` of NULL.
    pub result: Option<ColumnType>,
}

/// The columns of a table by their positions.
impl Scope for TableDef {
    fn column(&self, table: Option<&str>, column: &str) -> Result<(usize, ColumnType)> {
        let undefined = |problem: String| ExpressionError::new(ExpressionErrorKind::UndefinedColumn, column, problem);
        if let Some(other) = table.filter(|table| *table != self.name) {
            return Err(undefined(format!("the table is `{}`, and not `{other}`", self.name)));
        }
        let at = self.columns.iter().position(|known| known.name == column);
        let names = || self.columns.iter().map(|column| &*column.name).collect::<Vec<_>>().join(", ");
        let at = at.ok_or_else(|| undefined(format!("there is no such column; the columns are {}", names())))?;
        Ok((at, self.columns[at].ty))
    }
}

/// No columns.
#[derive(Clone, Copy, Debug)]
pub struct NoColumns;

impl Scope for NoColumns {
    fn column(&self, _: Option<&str>, column: &str) -> Result<(usize, ColumnType)> {
        let problem = "there are no columns here".to_owned();
        Err(ExpressionError::new(ExpressionErrorKind::UndefinedColumn, column, problem))
    }
}

/// An expression with types, which can be evaluated.
#[derive(Clone, Debug)]
pub struct Bound {
    node: Node,
    ty: Option<ColumnType>,
    columns: Vec<usize>,
    is_pure: bool,
}

impl Bound {
    /// The expression over these columns. `parameters` has the types of `$1`, `$2` and so on; what is `None` becomes
    /// the type that the parameter's place wants, if there is one.
    ///
    /// # Errors
    /// It names no column or function, or a type does not fit its place.
    pub fn new(expression: &Expression, scope: &dyn Scope, parameters: &mut [Option<ColumnType>]) -> Result<Bound> {
        Bound::of(expression, scope, parameters, |binder, typed| {
            // An untyped text is a text.
            match (&typed.node, typed.ty) {
                (Node::Constant(Datum::Text(_)), None) => binder.coerced(typed, ColumnType::LongText, expression),
                _ => Ok(typed),
            }
        })
    }

    /// The expression, which must be a truth value.
    ///
    /// # Errors
    /// As [`Bound::new`], or it has another type.
    pub fn condition(
        expression: &Expression,
        scope: &dyn Scope,
        parameters: &mut [Option<ColumnType>],
    ) -> Result<Bound> {
        Bound::of(expression, scope, parameters, |binder, typed| binder.truth(typed, expression))
    }

    /// The expression as what a column of this type stores: [`assigned`](super::assigned) makes such a value of it.
    ///
    /// # Errors
    /// As [`Bound::new`], or no value of its type is stored in such a column without a cast.
    pub fn assigning(
        expression: &Expression,
        scope: &dyn Scope,
        parameters: &mut [Option<ColumnType>],
        to: ColumnType,
    ) -> Result<Bound> {
        Bound::of(expression, scope, parameters, |binder, typed| match typed.ty {
            None => binder.coerced(typed, types::of_column(to), expression),
            Some(from) if cast::is_assignable(from, to) => Ok(typed),
            Some(from) => {
                let problem = format!("it is {}, and the column {}", Shown(from), Shown(to));
                Err(ExpressionError::new(ExpressionErrorKind::TypeMismatch, expression, problem))
            }
        })
    }

    fn of(
        expression: &Expression,
        scope: &dyn Scope,
        parameters: &mut [Option<ColumnType>],
        finish: impl FnOnce(&mut Binder<'_>, Typed) -> Result<Typed>,
    ) -> Result<Bound> {
        let mut binder = Binder { scope, parameters, columns: Vec::new(), depth: 0, copied: 0, is_pure: true };
        let typed = binder.bind(expression)?;
        let typed = finish(&mut binder, typed)?;
        Ok(Bound { node: typed.node, ty: typed.ty, columns: binder.columns, is_pure: binder.is_pure })
    }

    /// Whether its value depends on columns and parameters alone, and not on its
    /// [`Surroundings`](super::Surroundings).
    pub fn is_pure(&self) -> bool {
        self.is_pure
    }

    /// Whether it certainly has a value for all rows and parameters: it calls no function, and casts nothing.
    pub fn is_total(&self) -> bool {
        self.node.is_total()
    }

    /// Its type; `None` of NULL and of a parameter whose type is not known.
    pub fn column_type(&self) -> Option<ColumnType> {
        self.ty
    }

    /// The numbers of the columns that it uses, each once.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Its value, if that is the same for all rows.
    pub fn constant(&self) -> Option<Datum<'_>> {
        if let Node::Constant(value) = &self.node { Some(value.borrowed()) } else { None }
    }

    /// The value for a row and the values of parameters, which are of the types that binding left.
    ///
    /// # Errors
    /// [`EvaluationError`]: there is none.
    pub fn evaluate<'r>(
        &'r self,
        columns: impl Columns<'r>,
        parameters: &'r [Datum<'r>],
    ) -> std::result::Result<Datum<'r>, EvaluationError> {
        self.node.evaluate(&columns, parameters)
    }
}

/// A part and its type; `None` of an untyped text, NULL or parameter.
struct Typed {
    node: Node,
    ty: Option<ColumnType>,
}

struct Binder<'b> {
    scope: &'b dyn Scope,
    parameters: &'b mut [Option<ColumnType>],
    columns: Vec<usize>,
    depth: usize,
    /// The size of all parts that were bound again.
    copied: usize,
    is_pure: bool,
}

fn typed(node: Node, ty: ColumnType) -> Typed {
    Typed { node: node.folded(), ty: Some(ty) }
}

fn shown(ty: Option<ColumnType>) -> String {
    ty.map_or_else(|| "an untyped value".to_owned(), |ty| Shown(ty).to_string())
}

fn mismatch(part: &Expression, problem: String) -> ExpressionError {
    ExpressionError::new(ExpressionErrorKind::TypeMismatch, part, problem)
}

fn compare(operator: Binary, operands: Vec<Node>, whole: &Expression) -> Result<Node> {
    let operands: [Node; 2] = operands.try_into().map_err(|_| mismatch(whole, "it needs two operands".to_owned()))?;
    Ok(Node::Compare(operator, Box::new(operands.into())).folded())
}

impl Binder<'_> {
    fn bind(&mut self, expression: &Expression) -> Result<Typed> {
        if self.depth == Expression::DEPTH_MAX {
            let problem = format!("it has more than {} levels", Expression::DEPTH_MAX);
            return Err(ExpressionError::new(ExpressionErrorKind::TooComplex, "…", problem));
        }
        self.depth += 1;
        let bound = self.bind_one(expression);
        self.depth -= 1;
        bound
    }

    fn bind_one(&mut self, expression: &Expression) -> Result<Typed> {
        Ok(match expression {
            Expression::Literal(literal) => self.literal(literal, expression)?,
            Expression::Column { table, column } => {
                let (at, ty) = self.scope.column(table.as_deref(), column)?;
                if !self.columns.contains(&at) {
                    self.columns.push(at);
                }
                typed(Node::Column(at), types::of_column(ty))
            }
            Expression::Parameter(number) => {
                let at = usize::from(*number).wrapping_sub(1);
                let Some(ty) = self.parameters.get(at) else {
                    let problem = format!("there is no such parameter; there are {}", self.parameters.len());
                    return Err(ExpressionError::new(ExpressionErrorKind::UndefinedParameter, expression, problem));
                };
                Typed { node: Node::Parameter(at), ty: ty.map(types::of_column) }
            }
            Expression::Unary(Unary::Negate, of) => self.call("-", true, &[&**of], expression)?,
            Expression::Unary(operator, of) => {
                let part = self.bind(of)?;
                let node = match operator {
                    Unary::IsNull => Node::IsNull(part.node.into()),
                    Unary::Not => Node::Not(self.truth(part, of)?.node.into()),
                    Unary::IsTrue | Unary::IsFalse => {
                        Node::Is(self.truth(part, of)?.node.into(), *operator == Unary::IsTrue)
                    }
                    Unary::Negate => return Err(mismatch(expression, "it is no truth value".to_owned())),
                };
                typed(node, ColumnType::Bool)
            }
            Expression::Binary(operator, a, b) => self.binary(*operator, a, b, expression)?,
            Expression::All(parts) => typed(Node::All(self.truths(parts)?), ColumnType::Bool),
            Expression::Any(parts) => typed(Node::Any(self.truths(parts)?), ColumnType::Bool),
            Expression::In { of, list } => {
                let all: Vec<&Expression> = [&**of].into_iter().chain(list).collect();
                let (mut nodes, _) = self.alike(&all, true, expression)?;
                let of = nodes.remove(0);
                typed(Node::In(of.into(), nodes.into()), ColumnType::Bool)
            }
            Expression::Like { of, pattern, escape } => {
                let backslash = Expression::Literal(Literal::Text("\\".into()));
                let parts = [&**of, &**pattern, escape.as_deref().unwrap_or(&backslash)];
                let text = |part: &Expression, binder: &mut Self| {
                    let bound = binder.bind(part)?;
                    if let Some(other) = bound.ty.filter(|ty| !types::is_implicit(*ty, ColumnType::LongText)) {
                        let problem = format!("LIKE is for texts, and this is {}", Shown(other));
                        return Err(ExpressionError::new(ExpressionErrorKind::UndefinedFunction, part, problem));
                    }
                    Ok(binder.coerced(bound, ColumnType::LongText, part)?.node)
                };
                let nodes = parts.into_iter().map(|part| text(part, self)).collect::<Result<_>>()?;
                typed(Node::Like(nodes), ColumnType::Bool)
            }
            Expression::Case { branches, otherwise } => {
                let mut conditions = Vec::new();
                for (when, _) in branches {
                    let bound = self.bind(when)?;
                    conditions.push(self.truth(bound, when)?.node);
                }
                let null = Expression::Literal(Literal::Null);
                let last = otherwise.as_deref().unwrap_or(&null);
                let results: Vec<&Expression> = branches.iter().map(|(_, then)| then).chain([last]).collect();
                let (mut nodes, ty) = self.alike(&results, false, expression)?;
                let otherwise = nodes.pop().unwrap_or(Node::Constant(Datum::Null));
                let node = Node::Case(conditions.into_iter().zip(nodes).collect(), otherwise.into());
                Typed { node: node.folded(), ty: Some(ty) }
            }
            Expression::Cast { of, to } => {
                let part = self.bind(of)?;
                match part.ty {
                    None => {
                        let coerced = self.coerced(part, types::of_column(*to), of)?;
                        self.converted(coerced.node, types::of_column(*to), *to)
                    }
                    Some(from) if cast::is_castable(from, *to) => self.converted(part.node, from, *to),
                    Some(from) => {
                        let problem = format!("cannot cast type {} to {}", Shown(from), Shown(*to));
                        return Err(ExpressionError::new(ExpressionErrorKind::NoConversion, expression, problem));
                    }
                }
            }
            Expression::Call { function, arguments } => {
                let arguments: Vec<&Expression> = arguments.iter().collect();
                match (&**function, &*arguments) {
                    ("coalesce", [_, ..]) => {
                        let (nodes, ty) = self.alike(&arguments, false, expression)?;
                        typed(Node::Coalesce(nodes.into()), ty)
                    }
                    ("greatest" | "least", [_, ..]) => {
                        let (nodes, ty) = self.alike(&arguments, false, expression)?;
                        let wanted = if function == "greatest" { Ordering::Greater } else { Ordering::Less };
                        typed(Node::Extreme(wanted, nodes.into()), ty)
                    }
                    ("nullif", [_, _]) => {
                        let (nodes, ty) = self.alike(&arguments, true, expression)?;
                        let first = nodes.first().cloned().unwrap_or(Node::Constant(Datum::Null));
                        let equal = compare(Binary::Equal, nodes, expression)?;
                        let branch = (equal, Node::Constant(Datum::Null));
                        // What PostgreSQL compares without a cast keeps its type.
                        let own = arguments[0];
                        self.copied += own.size();
                        if self.copied > Expression::COPIED_MAX {
                            return Err(ExpressionError::copies());
                        }
                        let own = self.bind(own)?;
                        let (first, ty) = match own.ty {
                            Some(from) if types::are_compared_uncast(from, ty) => (own.node, from),
                            _ => (first, ty),
                        };
                        typed(Node::Case([branch].into(), first.into()), ty)
                    }
                    _ => self.call(function, false, &arguments, expression)?,
                }
            }
        })
    }

    fn literal(&self, literal: &Literal, expression: &Expression) -> Result<Typed> {
        Ok(match literal {
            Literal::Null => Typed { node: Node::Constant(Datum::Null), ty: None },
            Literal::Bool(truth) => typed(Node::Constant(Datum::Bool(*truth)), ColumnType::Bool),
            Literal::Text(text) => {
                Typed { node: Node::Constant(Datum::Text(text.clone().into_owned().into())), ty: None }
            }
            Literal::Number(text) => {
                let is = |ty: ColumnType| cast::parse(text, ty).ok().map(|value| (value, ty));
                // What `numeric` has no room for is a floating-point number.
                let nonzero =
                    text.split(['e', 'E']).next().is_some_and(|digits| digits.contains(|c| matches!(c, '1'..='9')));
                let numeric = || match numeric::parse(text) {
                    Some(Ok(number)) if !nonzero || number != Numeric::ZERO => {
                        Some((Datum::Numeric(number), ColumnType::Numeric))
                    }
                    _ => None,
                };
                let found = is(ColumnType::I32).or_else(|| is(ColumnType::I64)).or_else(numeric);
                let (value, ty) = match found {
                    Some(found) => found,
                    None => {
                        let parsed = cast::parse(text, ColumnType::F64);
                        let float = parsed.map_err(|error| ExpressionError::constant(expression, &error))?;
                        (float, ColumnType::F64)
                    }
                };
                typed(Node::Constant(value), ty)
            }
        })
    }

    fn truths(&mut self, parts: &[Expression]) -> Result<Box<[Node]>> {
        let truth = |part: &Expression| {
            let bound = self.bind(part)?;
            Ok(self.truth(bound, part)?.node)
        };
        parts.iter().map(truth).collect()
    }

    fn truth(&mut self, part: Typed, expression: &Expression) -> Result<Typed> {
        match part.ty {
            None | Some(ColumnType::Bool) => self.coerced(part, ColumnType::Bool, expression),
            Some(other) => Err(mismatch(expression, format!("it must be boolean, and is {}", Shown(other)))),
        }
    }

    fn binary(&mut self, operator: Binary, a: &Expression, b: &Expression, whole: &Expression) -> Result<Typed> {
        if operator.is_comparison() {
            let (nodes, _) = self.alike(&[a, b], true, whole)?;
            return Ok(typed(compare(operator, nodes, whole)?, ColumnType::Bool));
        }
        self.call(operator.text(), true, &[a, b], whole)
    }

    fn call(&mut self, name: &str, is_operator: bool, arguments: &[&Expression], whole: &Expression) -> Result<Typed> {
        let mut parts = arguments.iter().map(|argument| self.bind(argument)).collect::<Result<Vec<_>>>()?;
        let is_bytes = |part: &Typed| part.ty == Some(ColumnType::LongBytes);
        let is_text = |part: &Typed| matches!(part.ty, None | Some(ColumnType::LongText));
        if name == "||" && parts.iter().any(is_text) && !parts.iter().any(is_bytes) {
            // Whatever stands beside a text is one.
            for part in &mut parts {
                if let Some(from) = part.ty {
                    let node = std::mem::replace(&mut part.node, Node::Constant(Datum::Null));
                    *part = self.converted(node, from, ColumnType::LongText);
                }
            }
        }
        let given: Vec<Option<ColumnType>> = parts.iter().map(|part| part.ty).collect();
        if !is_operator && let Some(function) = self.scope.function(name, &given)? {
            let mut nodes = Vec::new();
            for (at, (part, argument)) in parts.into_iter().zip(arguments).enumerate() {
                nodes.push(match (function.arguments.get(at).copied().flatten(), part.ty) {
                    (Some(wanted), Some(from)) if from != wanted && cast::is_castable(from, wanted) => {
                        self.converted(part.node, from, wanted).node
                    }
                    (Some(wanted), _) => self.coerced(part, wanted, argument)?.node,
                    (None, None) => self.coerced(part, ColumnType::LongText, argument)?.node,
                    (None, Some(_)) => part.node,
                });
            }
            self.is_pure = false;
            let node = Node::OfScope(function.number, nodes.into());
            return Ok(Typed { node, ty: function.result.map(types::of_column) });
        }
        let resolved = functions::resolve(name, is_operator, &given).map_err(|unresolved| {
            let what = if is_operator { "operator" } else { "function" };
            let types = given.iter().map(|ty| shown(*ty)).collect::<Vec<_>>().join(" and ");
            let (kind, problem) = match unresolved {
                Unresolved::Name => (ExpressionErrorKind::UndefinedFunction, format!("there is no {what} {name}")),
                Unresolved::Types => {
                    let types = if types.is_empty() { "no arguments" } else { &types };
                    (ExpressionErrorKind::UndefinedFunction, format!("the {what} {name} does not exist for {types}"))
                }
                Unresolved::Ambiguous => {
                    let problem = format!("the {what} {name} is not unique for {types}; add casts");
                    (ExpressionErrorKind::AmbiguousFunction, problem)
                }
            };
            ExpressionError::new(kind, whole, problem)
        })?;
        let mut nodes = Vec::new();
        for ((part, wanted), argument) in parts.into_iter().zip(&resolved.arguments).zip(arguments) {
            nodes.push(self.coerced(part, *wanted, argument)?.node);
        }
        let call = Node::Call(resolved.function.apply, resolved.result, nodes.into());
        if resolved.function.is_pure {
            return Ok(typed(call, resolved.result));
        }
        self.is_pure = false;
        Ok(typed(Node::Ask(call.into()), resolved.result))
    }

    /// The parts as values of one type, to compare them or as results of one expression. It is `text` if all are
    /// untyped.
    fn alike(
        &mut self,
        parts: &[&Expression],
        is_comparison: bool,
        whole: &Expression,
    ) -> Result<(Vec<Node>, ColumnType)> {
        let bound = parts.iter().map(|part| self.bind(part)).collect::<Result<Vec<_>>>()?;
        let join = if is_comparison { types::compared } else { types::common };
        let mut wanted: Option<ColumnType> = None;
        for ty in bound.iter().filter_map(|part| part.ty) {
            wanted = Some(match wanted {
                None => ty,
                Some(before) => join(before, ty).ok_or_else(|| {
                    let problem = format!("{} and {} are of different types", Shown(before), Shown(ty));
                    let kind = match whole {
                        Expression::Binary(..) | Expression::In { .. } => ExpressionErrorKind::UndefinedFunction,
                        _ => ExpressionErrorKind::TypeMismatch,
                    };
                    ExpressionError::new(kind, whole, problem)
                })?,
            });
        }
        let wanted = wanted.unwrap_or(ColumnType::LongText);
        let nodes = bound.into_iter().zip(parts).map(|(part, expression)| match part.ty {
            // Integers of all types are compared as they are.
            Some(from) if is_comparison && types::is_integer(from) && types::is_integer(wanted) => Ok(part.node),
            Some(from) => Ok(self.converted(part.node, from, wanted).node),
            None => Ok(self.coerced(part, wanted, expression)?.node),
        });
        Ok((nodes.collect::<Result<_>>()?, wanted))
    }

    /// A part as a value of this type of expressions, if it is one without being asked.
    fn coerced(&mut self, part: Typed, to: ColumnType, expression: &Expression) -> Result<Typed> {
        match (part.ty, part.node) {
            (Some(from), node) if types::is_implicit(from, to) => Ok(self.converted(node, from, to)),
            (Some(from), _) => Err(mismatch(expression, format!("it must be {}, and is {}", Shown(to), Shown(from)))),
            (None, Node::Constant(Datum::Text(text))) => {
                let value = cast::parse(&text, to).map_err(|error| ExpressionError::constant(expression, &error))?;
                Ok(typed(Node::Constant(value), to))
            }
            (None, Node::Parameter(at)) => {
                self.parameters[at] = Some(to);
                Ok(typed(Node::Parameter(at), to))
            }
            (None, node) => Ok(typed(node, to)),
        }
    }

    fn converted(&self, node: Node, from: ColumnType, to: ColumnType) -> Typed {
        let is_within = |from, to| match (types::range(from), types::range(to)) {
            (Some((low, high)), Some((least, most))) => least <= low && high <= most && from != ColumnType::U128,
            _ => false,
        };
        let of = types::of_column(to);
        let node = if from == to || is_within(from, to) { node } else { Node::Cast(node.into(), from, to).folded() };
        Typed { node, ty: Some(of) }
    }
}
