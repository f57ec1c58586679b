//! A procedure as the macro understands it: the intermediate representation's shape, with the user's tokens kept.
//!
//! Invariant: everything generated (the representation, straight code, footprints, prefetching, scheduled code) is made from
//! this one tree, so it means the same. Steps and operations are numbered in source order, an outer step before those in it.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{Attribute, Member, Pat, Path, Type, Visibility};

/// A procedure.
pub(crate) struct Procedure {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) name: Ident,
    /// What the body calls its transaction.
    pub(crate) tx: Ident,
    /// `&Tx` and the whole result, as written: with them the user's imports are used.
    pub(crate) tx_type: Type,
    pub(crate) result: Type,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) output: Type,
    /// Parameters first.
    pub(crate) variables: Vec<Variable>,
    pub(crate) tables: Vec<Path>,
    pub(crate) indexes: Vec<Index>,
    pub(crate) body: Block,
    pub(crate) steps: usize,
    pub(crate) operations: usize,
}

/// A parameter beside the transaction.
pub(crate) struct Parameter {
    pub(crate) variable: VariableId,
    pub(crate) passing: Passing,
}

/// How a parameter is declared.
pub(crate) enum Passing {
    /// `x: T`.
    Value(Type),
    /// `x: &T`.
    Reference(Type),
    /// `x: &str`.
    Text,
    /// `x: &[T]`.
    Slice(Type),
}

/// An index that operations use: the table's position and the constant.
pub(crate) struct Index {
    pub(crate) table: usize,
    pub(crate) constant: Path,
}

/// A variable's position in [`Procedure::variables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VariableId(pub(crate) usize);

/// A variable.
pub(crate) struct Variable {
    /// With hygiene of its own if the macro made it.
    pub(crate) ident: Ident,
    /// Declared `mut`.
    pub(crate) mutable: bool,
    /// Declared first and given its value in branches.
    pub(crate) late: bool,
    /// Made by the macro.
    pub(crate) made: bool,
    /// Holds a reference: to take its value takes nothing away.
    pub(crate) borrowed: bool,
    /// Parts of the tuple that it is bound to, if it is one.
    pub(crate) parts: Option<usize>,
    pub(crate) value_type: ValueType,
}

/// What is known of a value's type: where the rows are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueType {
    /// No row, or a part of one.
    Value,
    /// A row of the table at this position.
    Row(usize),
    /// Perhaps one.
    Option(Box<ValueType>),
    /// Many.
    List(Box<ValueType>),
    /// A tuple.
    Tuple(Vec<ValueType>),
}

/// Steps in order.
#[derive(Default)]
pub(crate) struct Block(pub(crate) Vec<Step>);

/// A step.
pub(crate) struct Step {
    /// Its number, given when the tree is complete.
    pub(crate) id: usize,
    pub(crate) span: Span,
    pub(crate) kind: StepKind,
}

/// What a step does; see the intermediate representation.
pub(crate) enum StepKind {
    Declare(VariableId, Option<Type>),
    Let {
        pattern: Pattern,
        ty: Option<Type>,
        value: Expression,
    },
    LetElse {
        pattern: Pattern,
        value: Expression,
        otherwise: Block,
    },
    Assign {
        place: Place,
        operator: Option<Operator>,
        value: Expression,
    },
    /// `list.push(x);` and other methods that change their receiver.
    Change {
        place: Place,
        method: Ident,
        arguments: Vec<Expression>,
    },
    Operation {
        operation: Box<Operation>,
        bind: Option<(Pattern, Option<Type>)>,
    },
    If {
        condition: Expression,
        then: Block,
        otherwise: Block,
    },
    Match {
        value: Expression,
        arms: Vec<Arm>,
    },
    For {
        pattern: Pattern,
        over: Expression,
        body: Block,
    },
    ForEach {
        row: VariableId,
        operation: Box<Operation>,
        body: Block,
    },
    /// Steps whose names end with them. Not a step of the representation: its steps stand in its place.
    Scope(Block),
    Break,
    Continue,
    Return(Expression),
    Abort(Expression),
    Yield(Expression),
}

/// An arm of a match of steps.
pub(crate) struct Arm {
    pub(crate) pattern: Pattern,
    pub(crate) guard: Option<Expression>,
    pub(crate) body: Block,
}

/// A pattern, and how it was written.
pub(crate) struct Pattern {
    /// `None`: what the macro made of `kind`, which then is `Any`, `Bind` or `Some`.
    pub(crate) syntax: Option<Pat>,
    pub(crate) kind: PatternKind,
}

/// See the intermediate representation.
pub(crate) enum PatternKind {
    Any,
    Bind(VariableId),
    /// A literal or constant, as an expression.
    Literal(Expression),
    Range {
        low: Expression,
        high: Expression,
        inclusive: bool,
    },
    None,
    Some(Box<Pattern>),
    Tuple(Vec<Pattern>),
    Record {
        name: String,
        fields: Vec<(String, Pattern)>,
    },
    Either(Vec<Pattern>),
}

/// What is assigned.
pub(crate) struct Place {
    pub(crate) variable: VariableId,
    pub(crate) ident: Ident,
    pub(crate) path: Vec<Selector>,
}

/// A step from a value to a part of it.
pub(crate) enum Selector {
    Field(Member),
    /// Of the row of an update.
    Column(Ident),
    Index(Expression),
}

/// An operation.
pub(crate) struct Operation {
    /// Its number, given when the tree is complete.
    pub(crate) id: usize,
    pub(crate) span: Span,
    pub(crate) table: usize,
    /// Position in [`Procedure::indexes`].
    pub(crate) index: Option<usize>,
    pub(crate) kind: OperationKind,
}

/// See the intermediate representation.
pub(crate) enum OperationKind {
    Get { key: Expression, required: bool },
    Update { key: Expression, required: bool, row: VariableId, body: Block },
    Insert { columns: Vec<(Ident, Expression)> },
    Delete { key: Expression, required: bool },
    Scan { range: KeyRange, reverse: bool, limit: Option<Expression>, take: Take },
}

/// The keys of a scan.
pub(crate) enum KeyRange {
    Prefix(Expression),
    Between { low: Option<Expression>, high: Option<Expression>, inclusive: bool },
}

/// What a scan does with its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    Each,
    First,
    All,
    Count,
}

/// A pure expression.
pub(crate) struct Expression {
    pub(crate) span: Span,
    pub(crate) value_type: ValueType,
    pub(crate) kind: Box<ExpressionKind>,
}

/// See the intermediate representation; the parts that it does not have are kept for straight code.
pub(crate) enum ExpressionKind {
    /// As written, with its sign.
    Literal {
        tokens: TokenStream,
        datum: Literal,
    },
    /// A constant or a variant without fields.
    Constant(TokenStream),
    Variable(VariableId, Ident),
    Field(Expression, Member),
    Column(Expression, Ident),
    Element(Expression, Expression),
    Not(Expression),
    Negate(Expression),
    Binary(Operator, Expression, Expression),
    /// `&x`: nothing to the intermediate representation.
    Reference(Expression),
    /// `*x`: likewise.
    Dereference(Expression),
    Pure(Path, Vec<Expression>),
    Method {
        receiver: Expression,
        method: Ident,
        arguments: Vec<Expression>,
    },
    Associated {
        path: Path,
        arguments: Vec<Expression>,
    },
    Tuple(Vec<Expression>),
    /// An array, or a `vec!`.
    List {
        elements: Vec<Expression>,
        is_vec: bool,
    },
    Repeat {
        element: Expression,
        count: TokenStream,
        is_vec: bool,
    },
    /// A struct or variant with named fields, or, without names, one called like a function.
    Record {
        path: Path,
        fields: Vec<(Member, Expression)>,
        is_call: bool,
    },
    None,
    Some(Expression),
    If(Expression, Expression, Expression),
    Match(Expression, Vec<(Pattern, Option<Expression>, Expression)>),
    Block(Vec<(Pattern, Option<Type>, Expression)>, Expression),
    Range {
        low: Expression,
        high: Expression,
        inclusive: bool,
    },
}

/// A literal's value.
pub(crate) enum Literal {
    Bool(bool),
    Integer { negative: bool, digits: String, suffix: String },
    Float { negative: bool, digits: String },
    Text(String),
}

/// An infix operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
}

impl Expression {
    pub(crate) fn new(span: Span, kind: ExpressionKind) -> Expression {
        Expression { span, value_type: ValueType::Value, kind: Box::new(kind) }
    }

    pub(crate) fn typed(span: Span, value_type: ValueType, kind: ExpressionKind) -> Expression {
        Expression { span, value_type, kind: Box::new(kind) }
    }
}

impl ValueType {
    /// Whether a row is in it.
    pub(crate) fn has_row(&self) -> bool {
        match self {
            ValueType::Value => false,
            ValueType::Row(_) => true,
            ValueType::Option(inner) | ValueType::List(inner) => inner.has_row(),
            ValueType::Tuple(parts) => parts.iter().any(ValueType::has_row),
        }
    }

    /// Of an element.
    pub(crate) fn element(&self) -> ValueType {
        match self {
            ValueType::List(element) => (**element).clone(),
            _ => ValueType::Value,
        }
    }

    /// Of the value in an `Option`.
    pub(crate) fn inside(&self) -> ValueType {
        match self {
            ValueType::Option(inner) => (**inner).clone(),
            _ => ValueType::Value,
        }
    }

    /// Of a tuple's field.
    pub(crate) fn part(&self, at: usize) -> ValueType {
        match self {
            ValueType::Tuple(parts) => parts.get(at).cloned().unwrap_or(ValueType::Value),
            _ => ValueType::Value,
        }
    }
}

impl Pattern {
    /// Binds one variable.
    pub(crate) fn bind(variable: VariableId) -> Pattern {
        Pattern { syntax: None, kind: PatternKind::Bind(variable) }
    }

    /// Matches anything.
    pub(crate) fn any() -> Pattern {
        Pattern { syntax: None, kind: PatternKind::Any }
    }

    /// Calls `visit` for each variable it binds.
    pub(crate) fn binds(&self, visit: &mut impl FnMut(VariableId)) {
        match &self.kind {
            PatternKind::Bind(variable) => visit(*variable),
            PatternKind::Some(inner) => inner.binds(visit),
            PatternKind::Tuple(parts) => parts.iter().for_each(|part| part.binds(visit)),
            PatternKind::Record { fields, .. } => fields.iter().for_each(|(_, part)| part.binds(visit)),
            // All alternatives bind the same.
            PatternKind::Either(alternatives) => alternatives.iter().take(1).for_each(|part| part.binds(visit)),
            PatternKind::Any | PatternKind::Literal(_) | PatternKind::Range { .. } | PatternKind::None => {}
        }
    }
}

impl Block {
    /// Whether control never runs off its end, as far as one can see.
    pub(crate) fn diverges(&self) -> bool {
        self.0.last().is_some_and(|step| match &step.kind {
            StepKind::Return(_) | StepKind::Abort(_) | StepKind::Break | StepKind::Continue => true,
            StepKind::If { then, otherwise, .. } => then.diverges() && otherwise.diverges(),
            StepKind::Scope(inner) => inner.diverges(),
            StepKind::Match { arms, .. } => arms.iter().all(|arm| arm.body.diverges()),
            _ => false,
        })
    }
}

/// Numbers steps and operations.
pub(crate) fn number(body: &mut Block) -> (usize, usize) {
    let mut numbers = (0, 0);
    number_block(body, &mut numbers);
    numbers
}

fn number_block(block: &mut Block, numbers: &mut (usize, usize)) {
    for step in &mut block.0 {
        if let StepKind::Scope(inner) = &mut step.kind {
            number_block(inner, numbers);
            continue;
        }
        step.id = numbers.0;
        numbers.0 += 1;
        match &mut step.kind {
            StepKind::LetElse { otherwise, .. } => number_block(otherwise, numbers),
            StepKind::Operation { operation, .. } => number_operation(operation, numbers),
            StepKind::If { then, otherwise, .. } => {
                number_block(then, numbers);
                number_block(otherwise, numbers);
            }
            StepKind::Match { arms, .. } => arms.iter_mut().for_each(|arm| number_block(&mut arm.body, numbers)),
            StepKind::For { body, .. } => number_block(body, numbers),
            StepKind::ForEach { operation, body, .. } => {
                number_operation(operation, numbers);
                number_block(body, numbers);
            }
            _ => {}
        }
    }
}

fn number_operation(operation: &mut Operation, numbers: &mut (usize, usize)) {
    operation.id = numbers.1;
    numbers.1 += 1;
    if let OperationKind::Update { body, .. } = &mut operation.kind {
        number_block(body, numbers);
    }
}
