//! The intermediate representation: a procedure as data.
//!
//! Invariant: it is closed. Code that is not representable here cannot be analysed, so front ends (the attribute macro,
//! SQL) refuse it with its position in the source. Every [`Step`] and [`Operation`] has an id, dense and in source
//! order, which generated code, interpreter and analysis share. The tree is generic over its leaves ([`Notation`]), so
//! that the macro that emits code uses the same tree. Names are not resolved: that needs the schema and happens at
//! registration.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::encoded::{Called, Constant, Encoded, Readable, Written};
use crate::{EvaluationError, Pure, Scalar, Value};

/// A position in a source text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file, as the compiler names it; of SQL: the statement's name.
    pub file: Arc<str>,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(pub u16);

        impl $name {
            /// The id as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(/** A step of a procedure: dense, in source order, nested steps after the one they are in. */ StepId);
id!(/** An operation of a procedure: dense, in source order. */ OperationId);
id!(/** A variable: parameters first, then in order of declaration; shadowing makes a new one. */ VariableId);

/// A procedure.
#[derive(Clone, Debug, Deserialize)]
pub struct Procedure {
    /// Its name, unique in a set of registered procedures.
    pub name: Arc<str>,
    /// Where it is declared.
    pub span: Span,
    /// Whether it wants the newest state although it only reads.
    pub latest: bool,
    /// How many of `variables` are parameters.
    pub parameters: usize,
    /// Its variables; indexed by [`VariableId`].
    pub variables: Vec<Variable>,
    /// The tables it uses; indexed by [`TableUse`]'s position in operations.
    pub tables: Vec<TableUse>,
    /// Its body. Every path ends in [`StepKind::Return`] or [`StepKind::Abort`]; a body that runs off its end
    /// is a front end's fault.
    pub body: Block,
    /// Number of steps.
    pub steps: usize,
    /// Number of operations.
    pub operations: usize,
}

/// A variable.
#[derive(Clone, Debug, Deserialize)]
pub struct Variable {
    /// Its name in the source; empty for one the front end made.
    pub name: Arc<str>,
    /// Whether steps after its declaration assign it.
    pub mutable: bool,
    /// Where it is declared.
    pub span: Span,
}

/// A table that a procedure uses.
#[derive(Clone, Debug, Deserialize)]
pub struct TableUse {
    /// The table's name.
    #[serde(deserialize_with = "crate::encoded::table")]
    pub table: Arc<str>,
    /// Where it is first used.
    pub span: Span,
}

/// The leaves of a tree. There is one language with two trees. [`Decoded`] is analysed and interpreted. The attribute
/// macro emits code from the other tree, which keeps the source.
pub trait Notation: Copy + fmt::Debug + 'static {
    /// The position of a step, operation or expression.
    type Mark: Clone + fmt::Debug;
    /// A field of a record (of a tuple: "0", "1", …), or a column of a row.
    type Field: Clone + fmt::Debug + PartialEq;
    /// A literal or constant.
    type Constant: Clone + fmt::Debug;
    /// A number of elements.
    type Count: Clone + fmt::Debug;
    /// A struct, or a variant of an enum with fields: in a decoded tree, the last segment of its path.
    type Path: Clone + fmt::Debug;
    /// A function that depends on its arguments alone.
    type Function: Clone + fmt::Debug;
    /// An index of a table.
    type Index: Clone + fmt::Debug;
    /// Values of columns of a key, in order.
    type Key: Clone + fmt::Debug;
    /// A whole pattern.
    type Pattern: Clone + fmt::Debug;
    /// Content that only the source has: a decoded tree has none.
    type Kept: Copy + fmt::Debug;

    /// The expressions in a key.
    fn key(key: &Self::Key) -> &[Expression<Self>];

    /// The pattern itself.
    fn pattern(pattern: &Self::Pattern) -> &Pattern<Self>;

    /// Which function is called.
    fn callee(function: &Self::Function) -> Callee<'_>;
}

/// A function, as far as flow analysis cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee<'f> {
    /// Declared with `#[pure]`; `panics` tells whether it may panic, as far as is known.
    Pure {
        /// It may.
        panics: bool,
    },
    /// An expression of SQL; `fails` tells whether it has no value for some arguments.
    Scalar {
        /// It has none.
        fails: bool,
    },
    /// A method of the closed list.
    Method(&'f str),
    /// A conversion or constructor of the closed list.
    Associated,
}

/// The notation of a procedure as data.
#[derive(Clone, Copy, Debug)]
pub struct Decoded;

impl Notation for Decoded {
    type Mark = Span;
    type Field = Arc<str>;
    type Constant = Value;
    type Count = usize;
    type Path = Arc<str>;
    type Function = Function;
    type Index = Arc<str>;
    type Key = Vec<Expression>;
    type Pattern = Pattern;
    type Kept = Infallible;

    fn key(key: &Vec<Expression>) -> &[Expression] {
        key
    }

    fn pattern(pattern: &Pattern) -> &Pattern {
        pattern
    }

    fn callee(function: &Function) -> Callee<'_> {
        match function {
            Function::Pure { total, .. } => Callee::Pure { panics: !total },
            Function::Scalar(scalar) => Callee::Scalar { fails: !scalar.is_total() },
            Function::Method(name) => Callee::Method(name),
            Function::Associated(..) => Callee::Associated,
        }
    }
}

/// Steps in order.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "N: Readable")]
pub struct Block<N: Notation = Decoded>(pub Vec<Step<N>>);

impl<N: Notation> Default for Block<N> {
    fn default() -> Block<N> {
        Block(Vec::new())
    }
}

/// A step: executed at once, or with blocks of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub struct Step<N: Notation = Decoded> {
    /// Its id.
    pub id: StepId,
    /// Where it stands.
    pub span: N::Mark,
    /// Its kind.
    pub kind: StepKind<N>,
}

/// The kind of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub enum StepKind<N: Notation = Decoded> {
    /// Declares a variable that later steps assign before they read it.
    Declare(VariableId),
    /// Binds a value.
    Let {
        /// Matches every value that `value` can have.
        pattern: N::Pattern,
        /// The value.
        value: Expression<N>,
    },
    /// Binds a value if it matches; else runs a block that ends in a jump.
    LetElse {
        /// The pattern.
        pattern: N::Pattern,
        /// The value.
        value: Expression<N>,
        /// Ends in return, abort, break or continue.
        otherwise: Block<N>,
    },
    /// Assigns a variable, or a part of it, or (in the body of an update) a column.
    Assign {
        /// The target.
        place: Target<N>,
        /// `Some(op)` for `place op= value`.
        operator: Option<BinaryOperator>,
        /// The value.
        value: Expression<N>,
    },
    /// Accesses the database.
    Operation {
        /// The action.
        operation: Box<Operation<N>>,
        /// Binds the result (see [`OperationKind`]).
        bind: Option<N::Pattern>,
    },
    /// Runs one of two blocks.
    If {
        /// A truth value.
        condition: Expression<N>,
        /// If it is true.
        then: Block<N>,
        /// If it is not.
        otherwise: Block<N>,
    },
    /// Runs the block of the first arm that matches. The last arm matches always.
    Match {
        /// The value.
        value: Expression<N>,
        /// The arms in order.
        arms: Vec<Arm<N>>,
    },
    /// Runs a block for each element of a list or range.
    For {
        /// Binds the element.
        pattern: N::Pattern,
        /// The elements: a list, or [`ExpressionKind::Range`].
        over: Expression<N>,
        /// Run for each.
        body: Block<N>,
    },
    /// Runs a block for each row of a scan, in order, as the scan goes; `break` ends the scan early. The operation is a
    /// [`OperationKind::Scan`] with [`Take::Each`].
    ForEach {
        /// Binds the row.
        row: VariableId,
        /// The scan.
        operation: Box<Operation<N>>,
        /// Run for each.
        body: Block<N>,
    },
    /// Leaves the innermost loop.
    Break,
    /// Continues with the next element of the innermost loop.
    Continue,
    /// Ends the procedure, which is then committed, with a result.
    Return(Expression<N>),
    /// Ends the procedure, which is then rolled back, with the caller's own error.
    Abort(Expression<N>),
    /// In the body of an update: its value.
    Yield(Expression<N>),
    /// A scope of names, where the source is kept. It has no id of its own.
    #[serde(skip)]
    Scope(N::Kept, Block<N>),
}

/// An arm of a match.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub struct Arm<N: Notation = Decoded> {
    /// The pattern.
    pub pattern: N::Pattern,
    /// And what must also be true.
    pub guard: Option<Expression<N>>,
    /// Run if it does.
    pub body: Block<N>,
}

/// A pattern.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub enum Pattern<N: Notation = Decoded> {
    /// Matches anything.
    Any,
    /// Matches anything and binds it.
    Bind(VariableId),
    /// A value that compares equal.
    Literal(#[serde(deserialize_with = "N::constant")] N::Constant),
    /// `low..=high` or `low..high` of literals.
    Range {
        /// Smallest.
        #[serde(deserialize_with = "N::constant")]
        low: N::Constant,
        /// Largest, or the first too large.
        #[serde(deserialize_with = "N::constant")]
        high: N::Constant,
        /// Whether `high` matches.
        inclusive: bool,
    },
    /// `None`.
    None,
    /// `Some(pattern)`.
    Some(Box<Pattern<N>>),
    /// A tuple.
    Tuple(Vec<Pattern<N>>),
    /// A struct, or a variant of an enum, by its last path segment, with named or (names "0", "1", …)
    /// positional fields. Fields left out match anything.
    Record {
        /// Last segment of the path.
        name: Arc<str>,
        /// Fields.
        fields: Vec<(Arc<str>, Pattern<N>)>,
    },
    /// Any of these; they bind the same variables.
    Either(Vec<Pattern<N>>),
}

/// The target of an assignment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub struct Target<N: Notation = Decoded> {
    /// A mutable variable; in the body of an update it may be the row.
    pub variable: VariableId,
    /// The path to a part of it. For the row of an update: one [`Selector::Field`], a column.
    pub path: Vec<Selector<N>>,
}

/// A step from a value to a part of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub enum Selector<N: Notation = Decoded> {
    /// A field of a record (of a tuple: "0", "1", …), or a column of a row.
    Field(N::Field),
    /// An element of a list.
    Index(Expression<N>),
}

/// An access to the database.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub struct Operation<N: Notation = Decoded> {
    /// Its id.
    pub id: OperationId,
    /// Where it stands.
    pub span: N::Mark,
    /// Index into [`Procedure::tables`].
    pub table: usize,
    /// The index used instead of the primary key, by its name; [`OperationKind::Get`] and [`OperationKind::Scan`] only.
    #[serde(deserialize_with = "N::index")]
    pub index: Option<N::Index>,
    /// Its kind.
    pub kind: OperationKind<N>,
}

/// The kind of an operation, and its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub enum OperationKind<N: Notation = Decoded> {
    /// Reads one row. Result: `Option` of a row, or, if required, the row, and an abort if there is none.
    Get {
        /// Values of all columns of the key.
        key: N::Key,
        /// Whether a missing row aborts.
        required: bool,
    },
    /// Changes columns of one row. Result: the value that the body yields (unit if none), in an `Option`
    /// unless required.
    Update {
        /// Values of all columns of the key.
        key: N::Key,
        /// Whether a missing row aborts.
        required: bool,
        /// The row in `body`.
        row: VariableId,
        /// Pure steps and assignments of columns; may end in [`StepKind::Yield`].
        body: Block<N>,
    },
    /// Adds a row. Result: unit. A row with its key, or with its key in a unique index, aborts.
    Insert {
        /// A value for each column, by name.
        columns: Vec<(N::Field, Expression<N>)>,
    },
    /// Deletes one row. Result: whether it existed; if required: unit, and an abort if it did not.
    Delete {
        /// Values of all columns of the key.
        key: N::Key,
        /// Whether a missing row aborts.
        required: bool,
    },
    /// Reads rows in key order.
    Scan {
        /// The keys.
        range: KeyRange<N>,
        /// Whether in descending order.
        reverse: bool,
        /// The most rows.
        limit: Option<Expression<N>>,
        /// The use of the rows.
        take: Take,
    },
}

/// The keys that a scan covers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub enum KeyRange<N: Notation = Decoded> {
    /// Keys that begin with these values; all keys if there are none.
    Prefix(N::Key),
    /// Keys between two bounds, each all columns of the key.
    Between {
        /// Where it begins; `None` for the first key.
        low: Option<N::Key>,
        /// Where it ends; `None` for the last key.
        high: Option<N::Key>,
        /// Whether `high` itself is in it.
        inclusive: bool,
    },
    /// All rows of a table, which may be hashed, in no order.
    All,
}

/// The use of a scan's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Take {
    /// The body of a [`StepKind::ForEach`] runs for each.
    Each,
    /// Result: `Option` of the first row.
    First,
    /// Result: a list of rows.
    All,
    /// Result: their number, a `u64`.
    Count,
}

/// A pure expression.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "N: Readable")]
pub struct Expression<N: Notation = Decoded> {
    /// Where it stands.
    pub span: N::Mark,
    /// Its kind.
    pub kind: Box<ExpressionKind<N>>,
}

/// An arm of a match of values: what to match, what must also be true, and the value then.
pub type ValueArm<N> = (<N as Notation>::Pattern, Option<Expression<N>>, Expression<N>);

/// The kind of an expression.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Written", deserialize = "N: Readable"))]
pub enum ExpressionKind<N: Notation = Decoded> {
    /// A constant. Integers without a suffix take the type of their surroundings.
    Literal(#[serde(deserialize_with = "N::constant")] N::Constant),
    /// A variable.
    Variable(VariableId),
    /// A field of a record or tuple, or a column of a row.
    Field(Expression<N>, N::Field),
    /// An element of a list.
    Element(Expression<N>, Expression<N>),
    /// `!x` or `-x`.
    Unary(UnaryOperator, Expression<N>),
    /// Arithmetic is checked: overflow and division by zero abort. Comparisons give truth values; `&&` and
    /// `||` are lazy.
    Binary(BinaryOperator, Expression<N>, Expression<N>),
    /// A call of a pure function, or of a method or conversion of the closed list (see [`Function`]).
    Call(N::Function, Vec<Expression<N>>),
    /// A tuple; the empty one is unit.
    Tuple(Vec<Expression<N>>),
    /// A list.
    List(Vec<Expression<N>>),
    /// `[value; count]`.
    Repeat(Expression<N>, #[serde(deserialize_with = "N::count")] N::Count),
    /// A struct, or a variant of an enum with fields; names as in [`Pattern::Record`].
    Record(N::Path, Vec<(N::Field, Expression<N>)>),
    /// `None`.
    None,
    /// `Some(x)`.
    Some(Expression<N>),
    /// `&x`, where the source is kept: the value of `x`.
    #[serde(skip)]
    Reference(N::Kept, Expression<N>),
    /// `*x`, likewise.
    #[serde(skip)]
    Dereference(N::Kept, Expression<N>),
    /// One of two values.
    If(Expression<N>, Expression<N>, Expression<N>),
    /// Values by pattern; guards allowed. The last arm matches always.
    Match(Expression<N>, Vec<ValueArm<N>>),
    /// `{ let …; value }`: bindings, then a value.
    Block(Vec<(N::Pattern, Expression<N>)>, Expression<N>),
    /// `low..high` or `low..=high` of integers: a list.
    Range {
        /// First.
        low: Expression<N>,
        /// Last, or the first too large.
        high: Expression<N>,
        /// Whether `high` is in it.
        inclusive: bool,
    },
}

/// A function that depends on its arguments alone.
#[derive(Clone)]
pub enum Function {
    /// Declared with `#[pure]`; called on dynamic values through its wrapper.
    Pure {
        /// Its name, for people.
        name: &'static str,
        /// Whether it is declared to have a value for all arguments; else it may panic.
        total: bool,
        /// The wrapper.
        evaluate: fn(&[Value]) -> Result<Value, EvaluationError>,
    },
    /// An expression of SQL.
    Scalar(Arc<Scalar>),
    /// Of the closed list of methods, by name, the receiver first: see the interpreter.
    Method(Arc<str>),
    /// Of the closed list of conversions and constructors: the type as written and the function, as `("u32", "from")`.
    Associated(Arc<str>, Arc<str>),
}

impl Function {
    /// A function that is declared with `#[pure]`.
    pub const fn pure<P: Pure>() -> Function {
        Function::Pure { name: P::NAME, total: P::TOTAL, evaluate: P::evaluate }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Function::Pure { name, .. } => write!(f, "{name}"),
            Function::Scalar(scalar) => write!(f, "{scalar:?}"),
            Function::Method(name) => write!(f, ".{name}"),
            Function::Associated(ty, name) => write!(f, "{ty}::{name}"),
        }
    }
}

/// A prefix operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum UnaryOperator {
    Not,
    Negate,
}

/// An infix operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum BinaryOperator {
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
