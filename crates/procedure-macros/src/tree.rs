//! A procedure as the macro understands it: the intermediate representation's tree with the user's tokens as
//! its leaves.
//!
//! Invariant: everything generated (the representation, straight code, footprints, prefetching, scheduled
//! code) is made from this one tree, so it means the same. Steps and operations are numbered in source order,
//! an outer step before those in it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use seriatim_procedure::ir::{self, Callee, Notation, OperationId, StepId};
use seriatim_procedure::visit;
use syn::{Attribute, Member, Pat, Path, Type, Visibility};

use crate::lower::Number;

pub(crate) use seriatim_procedure::ir::{BinaryOperator as Operator, Take, UnaryOperator, VariableId};

pub(crate) type Block = ir::Block<Source>;
pub(crate) type Step = ir::Step<Source>;
pub(crate) type StepKind = ir::StepKind<Source>;
pub(crate) type Arm = ir::Arm<Source>;
pub(crate) type Pattern = ir::Pattern<Source>;
pub(crate) type Target = ir::Target<Source>;
pub(crate) type Selector = ir::Selector<Source>;
pub(crate) type Operation = ir::Operation<Source>;
pub(crate) type OperationKind = ir::OperationKind<Source>;
pub(crate) type KeyRange = ir::KeyRange<Source>;
pub(crate) type Expression = ir::Expression<Source>;
pub(crate) type ExpressionKind = ir::ExpressionKind<Source>;

/// A procedure.
pub(crate) struct Procedure {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) name: Ident,
    /// The name of the transaction in the body.
    pub(crate) tx: Ident,
    /// `&Tx` and the whole result, as written: with them the user's imports are used.
    pub(crate) tx_type: Type,
    pub(crate) result: Type,
    pub(crate) parameters: Vec<Parameter>,
    /// The numbers that a call takes: the last parameters.
    pub(crate) numbers: Vec<Number>,
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
    /// As declared, of one without a value at first.
    pub(crate) ty: Option<Type>,
    pub(crate) value_type: ValueType,
}

/// The known part of a value's type: where the rows are.
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

/// The notation of a procedure as written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source;

impl Notation for Source {
    type Mark = Mark;
    type Field = Field;
    type Constant = Constant;
    type Count = Count;
    type Path = Record;
    type Function = Called;
    type Index = IndexAt;
    type Key = Key;
    type Pattern = Written;
    type Kept = ();

    fn key(key: &Key) -> &[Expression] {
        std::slice::from_ref(&key.value)
    }

    fn pattern(pattern: &Written) -> &Pattern {
        &pattern.pattern
    }

    fn callee(function: &Called) -> Callee<'_> {
        match function {
            // Only the compiler knows whether it is total.
            Called::Pure(_) => Callee::Pure { panics: true },
            Called::Method(_, name) => Callee::Method(name),
            Called::Associated(_) => Callee::Associated,
        }
    }
}

/// The position of a step, operation or expression, and the rest of the source there.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) at: Span,
    /// The type of an expression.
    pub(crate) value_type: ValueType,
    /// The variable that is read or assigned, as it is named here.
    pub(crate) name: Option<Ident>,
    /// A list that is a `vec!`.
    pub(crate) is_vec: bool,
    /// The insertion of a row whose number a sequence has given.
    pub(crate) is_numbered: bool,
}

impl From<Span> for Mark {
    fn from(at: Span) -> Mark {
        Mark { at, value_type: ValueType::Value, name: None, is_vec: false, is_numbered: false }
    }
}

/// The name behind a dot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    Member(Member),
    /// A column of a row.
    Column(Ident),
}

impl ToTokens for Field {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Field::Member(member) => member.to_tokens(tokens),
            Field::Column(column) => column.to_tokens(tokens),
        }
    }
}

/// A literal as written, with its sign, or a constant or a variant without fields.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) tokens: TokenStream,
    pub(crate) at: Span,
    pub(crate) literal: Option<Literal>,
}

/// How many elements a list has that repeats one.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub(crate) tokens: TokenStream,
    pub(crate) at: Span,
}

/// A struct or variant with named fields, or, without names, one called like a function.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) path: Path,
    pub(crate) is_call: bool,
}

/// A function that is called.
#[derive(Clone, Debug)]
pub(crate) enum Called {
    Pure(Path),
    /// With its name as text.
    Method(Ident, String),
    Associated(Path),
}

/// Position in [`Procedure::indexes`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexAt(pub(crate) usize);

/// A key as written.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) value: Expression,
    /// Its columns, if it is a variable that holds them.
    pub(crate) parts: Option<usize>,
}

/// A whole pattern, and how it was written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// `None`: the macro made `pattern`, which then is `Any` or `Bind`.
    pub(crate) syntax: Option<Pat>,
    /// The type after it.
    pub(crate) ty: Option<Type>,
    pub(crate) pattern: Pattern,
}

/// A literal's value.
#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Bool(bool),
    Integer { negative: bool, digits: String, suffix: String },
    Float { negative: bool, digits: String },
    Text(String),
}

/// A step, which gets its number when the tree is complete.
pub(crate) fn step(at: Span, kind: StepKind) -> Step {
    Step { id: StepId(0), span: at.into(), kind }
}

pub(crate) fn expression(at: Span, kind: ExpressionKind) -> Expression {
    typed(at, ValueType::Value, kind)
}

pub(crate) fn typed(at: Span, value_type: ValueType, kind: ExpressionKind) -> Expression {
    Expression { span: Mark { value_type, ..at.into() }, kind: Box::new(kind) }
}

/// The method of `list.push(x);` and the like, which change their receiver, and its arguments without that.
pub(crate) fn change(operator: Option<Operator>, value: &Expression) -> Option<(&Ident, &[Expression])> {
    match &*value.kind {
        ExpressionKind::Call(Called::Method(method, _), parts) if operator.is_none() => {
            visit::changed(value).map(|_| (method, &parts[1..]))
        }
        _ => None,
    }
}

/// Every expression of a block.
pub(crate) fn expressions<'t>(block: &'t Block, visit: &mut dyn FnMut(&'t Expression)) {
    visit::steps(block, &mut |step| {
        visit::all_own(step).into_iter().for_each(|own| visit::expressions(own, visit));
    });
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

    /// The type of an element.
    pub(crate) fn element(&self) -> ValueType {
        match self {
            ValueType::List(element) => (**element).clone(),
            _ => ValueType::Value,
        }
    }

    /// The type of the value in an `Option`.
    pub(crate) fn inside(&self) -> ValueType {
        match self {
            ValueType::Option(inner) => (**inner).clone(),
            _ => ValueType::Value,
        }
    }

    /// The type of a tuple's field.
    pub(crate) fn part(&self, at: usize) -> ValueType {
        match self {
            ValueType::Tuple(parts) => parts.get(at).cloned().unwrap_or(ValueType::Value),
            _ => ValueType::Value,
        }
    }
}

impl Written {
    /// Binds one variable.
    pub(crate) fn bind(variable: VariableId) -> Written {
        Written { syntax: None, ty: None, pattern: Pattern::Bind(variable) }
    }

    /// Matches anything.
    pub(crate) fn any() -> Written {
        Written { syntax: None, ty: None, pattern: Pattern::Any }
    }

    /// The variables it binds.
    pub(crate) fn binds(&self) -> Vec<VariableId> {
        visit::bound(&self.pattern)
    }
}

/// Whether control never runs off the end of a block, as far as one can see.
pub(crate) fn diverges(block: &Block) -> bool {
    block.0.last().is_some_and(|step| match &step.kind {
        StepKind::Return(_) | StepKind::Abort(_) | StepKind::Break | StepKind::Continue => true,
        StepKind::If { then, otherwise, .. } => diverges(then) && diverges(otherwise),
        StepKind::Scope(_, inner) => diverges(inner),
        StepKind::Match { arms, .. } => arms.iter().all(|arm| diverges(&arm.body)),
        _ => false,
    })
}

/// Numbers steps and operations; how many there are.
pub(crate) fn number(body: &mut Block) -> (usize, usize) {
    let mut numbers = (0, 0);
    number_block(body, &mut numbers);
    numbers
}

fn number_block(block: &mut Block, numbers: &mut (usize, usize)) {
    for step in &mut block.0 {
        if let StepKind::Scope(_, inner) = &mut step.kind {
            number_block(inner, numbers);
            continue;
        }
        step.id = StepId(numbers.0 as u16);
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
    operation.id = OperationId(numbers.1 as u16);
    numbers.1 += 1;
    if let OperationKind::Update { body, .. } = &mut operation.kind {
        number_block(body, numbers);
    }
}
