//! Expressions, patterns and places, evaluated over a frame of variables.
//!
//! Invariant: evaluation never panics and never runs out of stack or memory, whatever the expression. Input
//! that no front end makes, such as a variable that is read before it is bound or operands of different types,
//! is [`EvaluationError::Type`]. Where the language has no bound of its own there are limits. They are on the nesting
//! of expressions ([`DEPTH_MAX`]), and on the depth and size of values ([`VALUES_MAX`]).
//!
//! Evaluation is strict and from left to right, but for `&&`, `||`, `if` and `match`, which evaluate what they need. An
//! assignment evaluates its value first, then the indices of its place.
//!
//! An integer without a type takes the type of the value with which it is combined. That is the other operand, the
//! assigned variable, a parameter of a pure function, or a column. Until then it has the range of an `i128`. Generated
//! code, where the compiler gives a type from the start, may overflow earlier. A front end that knows a type writes it,
//! as `u8::from(0)`.

use crate::arithmetic::{binary, integer, meet, truth, unary};
use crate::compare::{equal, order};
use crate::ir::{BinaryOperator, Expression, ExpressionKind, Function, Pattern, Selector, Target, VariableId};
use crate::{Data, EvaluationError, Value, field, methods};

/// How deep expressions, patterns and blocks may nest together, so that evaluation fits the stack of any
/// thread; also the limit for values.
pub const DEPTH_MAX: usize = 100;

/// Most data in one value, counting the parts of lists, tuples, options and records.
pub const VALUES_MAX: usize = 1 << 22;

fn mistake(problem: impl Into<String>) -> EvaluationError {
    EvaluationError::Type(problem.into())
}

/// The values of a procedure's variables.
#[derive(Clone, Debug)]
pub struct Frame {
    variables: Vec<Option<Value>>,
    depth: usize,
}

impl Frame {
    /// A frame of this many variables, none of them bound.
    pub fn new(variables: usize) -> Frame {
        Frame { variables: vec![None; variables], depth: 0 }
    }

    /// The value of a variable.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] if it is not bound.
    pub fn value(&self, variable: VariableId) -> Result<&Value, EvaluationError> {
        let value = self.variables.get(variable.index()).and_then(Option::as_ref);
        value.ok_or_else(|| mistake(format!("variable {} has no value yet", variable.0)))
    }

    /// Gives a variable a value.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] if there is no such variable or the value is too large.
    pub fn bind(&mut self, variable: VariableId, value: Value) -> Result<(), EvaluationError> {
        measure(&value)?;
        *self.slot(variable)? = Some(value);
        Ok(())
    }

    /// Removes a variable's value.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] if there is no such variable.
    pub fn unbind(&mut self, variable: VariableId) -> Result<(), EvaluationError> {
        *self.slot(variable)? = None;
        Ok(())
    }

    fn slot(&mut self, variable: VariableId) -> Result<&mut Option<Value>, EvaluationError> {
        let slot = self.variables.get_mut(variable.index());
        slot.ok_or_else(|| mistake(format!("the procedure has no variable {}", variable.0)))
    }

    /// Runs `inner` one level further down.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] beyond [`DEPTH_MAX`]; what `inner` returns.
    pub(crate) fn nested<R, E: From<EvaluationError>>(
        &mut self,
        inner: impl FnOnce(&mut Frame) -> Result<R, E>,
    ) -> Result<R, E> {
        if self.depth >= DEPTH_MAX {
            return Err(mistake(format!("code nests deeper than {DEPTH_MAX} levels")).into());
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// The value of an expression. Lets and patterns within it bind their variables.
    ///
    /// # Errors
    /// Overflow, an element out of bounds, or a mistake of the front end.
    pub fn evaluate(&mut self, expression: &Expression) -> Result<Value, EvaluationError> {
        self.nested(|frame| frame.evaluate_kind(&expression.kind))
    }

    fn evaluate_kind(&mut self, kind: &ExpressionKind) -> Result<Value, EvaluationError> {
        match kind {
            ExpressionKind::Reference(never, _) | ExpressionKind::Dereference(never, _) => match *never {},
            ExpressionKind::Literal(value) => Ok(value.clone()),
            ExpressionKind::Variable(variable) => self.value(*variable).cloned(),
            ExpressionKind::Field(of, name) => field(&self.evaluate(of)?, name).cloned(),
            ExpressionKind::Element(of, at) => {
                let list = self.evaluate(of)?;
                let at = count(&self.evaluate(at)?)?;
                element(&list, at)
            }
            ExpressionKind::Unary(operator, value) => unary(*operator, &self.evaluate(value)?),
            ExpressionKind::Binary(operator, a, b) => self.evaluate_binary(*operator, a, b),
            ExpressionKind::Call(function, arguments) => {
                let arguments = self.evaluate_all(arguments)?;
                match function {
                    Function::Pure { evaluate, .. } => evaluate(&arguments),
                    Function::Scalar(scalar) => scalar.evaluate(&arguments),
                    Function::Method(name) => methods::call(name, &arguments),
                    Function::Associated(ty, name) => methods::call_associated(ty, name, &arguments),
                }
            }
            ExpressionKind::Tuple(values) => self.evaluate_all(values).map(Value::Tuple),
            ExpressionKind::List(values) => self.evaluate_all(values).map(Value::List),
            ExpressionKind::Repeat(value, times) => {
                let value = self.evaluate(value)?;
                if measure(&value)?.checked_mul(*times).is_none_or(|all| all > VALUES_MAX) {
                    return Err(too_large());
                }
                Ok(Value::List(vec![value; *times]))
            }
            ExpressionKind::Record(name, fields) => {
                let fields = self.evaluate_fields(fields)?;
                Ok(Value::Record { name: name.clone(), fields })
            }
            ExpressionKind::None => Ok(Value::NONE),
            ExpressionKind::Some(value) => self.evaluate(value).map(Value::some),
            ExpressionKind::If(condition, then, otherwise) => {
                let branch = if truth(&self.evaluate(condition)?)? { then } else { otherwise };
                self.evaluate(branch)
            }
            ExpressionKind::Match(value, arms) => {
                let value = self.evaluate(value)?;
                for (pattern, guard, then) in arms {
                    if self.accepts(pattern, guard.as_ref(), &value)? {
                        return self.evaluate(then);
                    }
                }
                Err(no_arm(&value))
            }
            ExpressionKind::Block(bindings, value) => {
                for (pattern, bound) in bindings {
                    let bound = self.evaluate(bound)?;
                    self.destructure(pattern, &bound)?;
                }
                self.evaluate(value)
            }
            ExpressionKind::Range { low, high, inclusive } => {
                let range = self.range(low, high, *inclusive)?;
                if range.left() > VALUES_MAX as u128 {
                    return Err(too_large());
                }
                Ok(Value::List(range.collect()))
            }
        }
    }

    fn evaluate_binary(
        &mut self,
        operator: BinaryOperator,
        a: &Expression,
        b: &Expression,
    ) -> Result<Value, EvaluationError> {
        let a = self.evaluate(a)?;
        let decided = match operator {
            BinaryOperator::And => !truth(&a)?,
            BinaryOperator::Or => truth(&a)?,
            _ => false,
        };
        if decided { Ok(a) } else { binary(operator, &a, &self.evaluate(b)?) }
    }

    /// The values of expressions, in order.
    ///
    /// # Errors
    /// As [`Frame::evaluate`].
    pub fn evaluate_all(&mut self, expressions: &[Expression]) -> Result<Vec<Value>, EvaluationError> {
        expressions.iter().map(|expression| self.evaluate(expression)).collect()
    }

    pub(crate) fn evaluate_fields<N: Clone>(
        &mut self,
        fields: &[(N, Expression)],
    ) -> Result<Vec<(N, Value)>, EvaluationError> {
        fields.iter().map(|(name, value)| Ok((name.clone(), self.evaluate(value)?))).collect()
    }

    fn range(&mut self, low: &Expression, high: &Expression, inclusive: bool) -> Result<Elements, EvaluationError> {
        let (low, high) = (self.evaluate(low)?, self.evaluate(high)?);
        let (low, high, ty) = meet(&low, &high)?;
        let last = if inclusive { Some(high) } else { high.checked_sub(1) };
        Ok(match last {
            Some(last) => Elements::Range(low..=last, ty),
            None => Elements::List(Vec::new().into_iter()),
        })
    }

    /// The elements of a loop over this expression. A range is not turned into a list.
    ///
    /// # Errors
    /// As [`Frame::evaluate`]; [`EvaluationError::Type`] if it is neither a list nor a range.
    pub fn elements(&mut self, over: &Expression) -> Result<Elements, EvaluationError> {
        if let ExpressionKind::Range { low, high, inclusive } = &*over.kind {
            return self.nested(|frame| frame.range(low, high, *inclusive));
        }
        match self.evaluate(over)? {
            Value::List(elements) => Ok(Elements::List(elements.into_iter())),
            other => Err(EvaluationError::expected("a list", &other)),
        }
    }

    /// Whether a pattern matches a value; if it does, its variables are bound.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] for a pattern of another type than the value.
    pub fn matches(&mut self, pattern: &Pattern, value: &Value) -> Result<bool, EvaluationError> {
        self.nested(|frame| frame.matches_here(pattern, value))
    }

    fn matches_here(&mut self, pattern: &Pattern, value: &Value) -> Result<bool, EvaluationError> {
        match pattern {
            Pattern::Any => Ok(true),
            Pattern::Bind(variable) => self.bind(*variable, value.clone()).map(|()| true),
            Pattern::Literal(literal) => equal(literal, value),
            Pattern::Range { low, high, inclusive } => {
                let above = order(low, value)?.is_some_and(|ordering| ordering.is_le());
                let end = order(value, high)?;
                Ok(above && end.is_some_and(|ordering| ordering.is_lt() || *inclusive && ordering.is_eq()))
            }
            Pattern::None | Pattern::Some(_) => match (pattern, value) {
                (Pattern::None, Value::Option(option)) => Ok(option.is_none()),
                (Pattern::Some(_), Value::Option(None)) => Ok(false),
                (Pattern::Some(inner), Value::Option(Some(value))) => self.matches(inner, value),
                _ => Err(EvaluationError::expected("an Option", value)),
            },
            Pattern::Tuple(parts) => match value {
                Value::Tuple(values) if values.len() == parts.len() => {
                    for (part, value) in parts.iter().zip(values) {
                        if !self.matches(part, value)? {
                            return Ok(false);
                        }
                    }
                    Ok(true)
                }
                _ => Err(EvaluationError::expected(format_args!("a tuple of {}", parts.len()), value)),
            },
            Pattern::Record { name, fields } => match value {
                Value::Record { name: given, .. } if given != name => Ok(false),
                Value::Record { .. } => {
                    for (field, part) in fields {
                        if !self.matches(part, crate::field(value, field)?)? {
                            return Ok(false);
                        }
                    }
                    Ok(true)
                }
                _ => Err(EvaluationError::expected(format_args!("a `{name}`"), value)),
            },
            Pattern::Either(patterns) => {
                for pattern in patterns {
                    if self.matches(pattern, value)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Whether an arm takes a value: its pattern matches and its guard, which sees what the pattern bound, is true.
    pub(crate) fn accepts(
        &mut self,
        pattern: &Pattern,
        guard: Option<&Expression>,
        value: &Value,
    ) -> Result<bool, EvaluationError> {
        Ok(self.matches(pattern, value)? && guard.map_or(Ok(true), |guard| truth(&self.evaluate(guard)?))?)
    }

    /// Binds the variables of a pattern that must match.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] if it does not.
    pub fn destructure(&mut self, pattern: &Pattern, value: &Value) -> Result<(), EvaluationError> {
        match self.matches(pattern, value)? {
            true => Ok(()),
            false => Err(mistake(format!("the pattern of a let does not match {}", value.kind()))),
        }
    }

    /// Assigns `place = value` or `place operator= value`.
    ///
    /// # Errors
    /// As [`Frame::evaluate`]; [`EvaluationError::Type`] if the place is not there.
    pub fn assign(
        &mut self,
        place: &Target,
        operator: Option<BinaryOperator>,
        value: &Expression,
    ) -> Result<(), EvaluationError> {
        let value = self.evaluate(value)?;
        if place.path.is_empty() && operator.is_none() && self.value(place.variable).is_err() {
            return self.bind(place.variable, value);
        }
        let mut path = Vec::with_capacity(place.path.len());
        for selector in &place.path {
            path.push(match selector {
                Selector::Field(name) => KnownSelector::Field(name),
                Selector::Index(at) => KnownSelector::Index(count(&self.evaluate(at)?)?),
            });
        }
        let mut whole = self.value(place.variable)?.clone();
        let mut target = &mut whole;
        for part in path {
            target = part.of(target)?;
        }
        let value = match operator {
            Some(operator) => binary(operator, target, &value)?,
            None => value,
        };
        *target = match (&*target, &value) {
            (&Value::Integer(_, ty), &Value::Integer(number, None)) => integer(Some(number), ty)?,
            _ => value,
        };
        self.bind(place.variable, whole)
    }
}

/// A selector whose index is known.
enum KnownSelector<'n> {
    Field(&'n str),
    Index(usize),
}

impl KnownSelector<'_> {
    fn of(self, value: &mut Value) -> Result<&mut Value, EvaluationError> {
        let at = match &self {
            KnownSelector::Field(name) => match &*value {
                Value::Record { fields, .. } => fields.iter().position(|(field, _)| **field == **name),
                Value::Tuple(_) => name.parse().ok(),
                _ => None,
            },
            KnownSelector::Index(at) => Some(*at),
        };
        let kind = value.kind();
        let part = match (self, value, at) {
            (KnownSelector::Field(_), Value::Record { fields, .. }, Some(at)) => {
                fields.get_mut(at).map(|(_, value)| value)
            }
            (KnownSelector::Field(_), Value::Tuple(values), Some(at)) => values.get_mut(at),
            (KnownSelector::Index(index), Value::List(values), _) => {
                let length = values.len();
                return values.get_mut(index).ok_or(EvaluationError::OutOfBounds { index, length });
            }
            (KnownSelector::Index(_), ..) => return Err(mistake(format!("{kind} has no elements to assign"))),
            (KnownSelector::Field(name), ..) => return Err(mistake(format!("{kind} has no field `{name}`"))),
        };
        part.ok_or_else(|| mistake(format!("{kind} has no such field")))
    }
}

/// The elements of a loop.
#[derive(Clone, Debug)]
pub enum Elements {
    /// The elements of a list.
    List(std::vec::IntoIter<Value>),
    /// Integers of one type.
    Range(std::ops::RangeInclusive<i128>, Option<crate::IntegerType>),
}

impl Elements {
    fn left(&self) -> u128 {
        match self {
            Elements::List(elements) => elements.len() as u128,
            Elements::Range(range, _) if range.is_empty() => 0,
            Elements::Range(range, _) => range.end().abs_diff(*range.start()).saturating_add(1),
        }
    }
}

impl Iterator for Elements {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        match self {
            Elements::List(elements) => elements.next(),
            Elements::Range(range, ty) => range.next().map(|number| Value::Integer(number, *ty)),
        }
    }
}

pub(crate) fn no_arm(value: &Value) -> EvaluationError {
    EvaluationError::expected("a value that an arm of the match takes", value)
}

fn too_large() -> EvaluationError {
    mistake(format!("a value of more than {VALUES_MAX} parts"))
}

/// A count or position: a `usize`.
pub(crate) fn count(value: &Value) -> Result<usize, EvaluationError> {
    usize::from_value(value)
}

fn element(list: &Value, index: usize) -> Result<Value, EvaluationError> {
    let (found, length) = match list {
        Value::List(elements) => (elements.get(index).cloned(), elements.len()),
        Value::Bytes(bytes) => (bytes.get(index).map(u8::to_value), bytes.len()),
        other => return Err(EvaluationError::expected("a list", other)),
    };
    found.ok_or(EvaluationError::OutOfBounds { index, length })
}

/// The number of data in a value, within the limits.
fn measure(value: &Value) -> Result<usize, EvaluationError> {
    let mut left = VALUES_MAX;
    weigh(value, DEPTH_MAX, &mut left)?;
    Ok(VALUES_MAX - left)
}

fn weigh(value: &Value, deeper: usize, left: &mut usize) -> Result<(), EvaluationError> {
    *left = left.checked_sub(1).ok_or_else(too_large)?;
    let deeper =
        deeper.checked_sub(1).ok_or_else(|| mistake(format!("a value nests deeper than {DEPTH_MAX} levels")))?;
    match value {
        Value::Option(Some(value)) => weigh(value, deeper, left),
        Value::Tuple(values) | Value::List(values) => values.iter().try_for_each(|value| weigh(value, deeper, left)),
        Value::Record { fields, .. } => fields.iter().try_for_each(|(_, value)| weigh(value, deeper, left)),
        _ => Ok(()),
    }
}
