//! What is wrong with an expression, and with the values that one meets.

use std::fmt;

macro_rules! kinds {
    ($(#[$about:meta])* $name:ident; $($(#[$says:meta])* $kind:ident = $code:literal,)+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {$(
            $(#[$says])*
            $kind,
        )+}

        impl $name {
            /// The SQLSTATE by which PostgreSQL reports it.
            pub const fn sqlstate(self) -> &'static str {
                match self {$(
                    $name::$kind => $code,
                )+}
            }
        }
    };
}

kinds! {
    /// Kinds of [`EvaluationError`].
    EvaluationErrorKind;
    /// A number is beyond the range of its type.
    NumberOutOfRange = "22003",
    /// A divisor is zero.
    DivisionByZero = "22012",
    /// A text is no value of a type.
    InvalidText = "22P02",
    /// A text is no date or time.
    InvalidTime = "22007",
    /// A date or time is beyond the range of its type.
    TimeOutOfRange = "22008",
    /// A text or bytes are longer than the type has room for.
    TooLong = "22001",
    /// A text or bytes are longer than any column has room for.
    TooLarge = "54000",
    /// A part of a text with a length below zero.
    InvalidSubstring = "22011",
    /// A pattern ends with an escape, or the escape is more than a character.
    InvalidEscape = "22025",
    /// NULL where there may be none.
    NotNull = "23502",
    /// What the expression asks for is not there, as a number of a sequence: [`EvaluationError::sqlstate`] says more.
    Surroundings = "55000",
    /// A function of the scope has no value; the scope knows why.
    OfScope = "XX000",
}

/// An expression has no value for the values that it meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationError {
    kind: EvaluationErrorKind,
    sqlstate: &'static str,
    problem: Box<str>,
}

impl EvaluationError {
    #[cold]
    pub(super) fn new(kind: EvaluationErrorKind, problem: impl Into<String>) -> EvaluationError {
        EvaluationError { kind, sqlstate: kind.sqlstate(), problem: problem.into().into() }
    }

    /// The answer to what an expression asks of its [`Surroundings`](super::Surroundings) is an error of this class.
    #[cold]
    pub fn of_surroundings(sqlstate: &'static str, problem: impl Into<String>) -> EvaluationError {
        EvaluationError { sqlstate, ..EvaluationError::new(EvaluationErrorKind::Surroundings, problem) }
    }

    /// A number is beyond the range of this type.
    #[cold]
    pub(super) fn out_of_range(ty: crate::ColumnType) -> EvaluationError {
        let problem = format!("{} out of range", super::types::Shown(ty));
        EvaluationError::new(EvaluationErrorKind::NumberOutOfRange, problem)
    }

    #[cold]
    pub(super) fn division_by_zero() -> EvaluationError {
        EvaluationError::new(EvaluationErrorKind::DivisionByZero, "division by zero")
    }

    /// A function of the scope has no value.
    #[cold]
    pub fn of_scope(problem: impl Into<String>) -> EvaluationError {
        EvaluationError::new(EvaluationErrorKind::OfScope, problem)
    }

    /// What kind of error it is.
    pub fn kind(&self) -> EvaluationErrorKind {
        self.kind
    }

    /// The SQLSTATE by which PostgreSQL reports it.
    pub fn sqlstate(&self) -> &'static str {
        self.sqlstate
    }
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for EvaluationError {}

kinds! {
    /// Kinds of [`ExpressionError`].
    ExpressionErrorKind;
    /// The text is no expression.
    Syntax = "42601",
    /// There is no such column.
    UndefinedColumn = "42703",
    /// Several tables have a column of this name.
    AmbiguousColumn = "42702",
    /// There is no such function, or operator, for these types.
    UndefinedFunction = "42883",
    /// Several functions would do, as the types of the arguments are not known.
    AmbiguousFunction = "42725",
    /// A value is of another type than its place wants.
    TypeMismatch = "42804",
    /// No value of one type is made of those of another.
    NoConversion = "42846",
    /// There is no such parameter, or its type is not known.
    UndefinedParameter = "42P02",
    /// It has too many levels, or too many copies of its parts.
    TooComplex = "54001",
    /// A constant in it is no value of its type.
    InvalidConstant = "22P02",
}

/// A text is no expression, or an expression makes no sense for the columns at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    kind: ExpressionErrorKind,
    /// What is wrong with a constant.
    constant: Option<EvaluationErrorKind>,
    expression: Box<str>,
    problem: Box<str>,
}

impl ExpressionError {
    /// An error in this part of an expression.
    #[cold]
    pub fn new(
        kind: ExpressionErrorKind,
        expression: impl fmt::Display,
        problem: impl Into<String>,
    ) -> ExpressionError {
        let (expression, problem) = (expression.to_string().into(), problem.into().into());
        ExpressionError { kind, constant: None, expression, problem }
    }

    /// It has too many copies of its parts.
    #[cold]
    pub(super) fn copies() -> ExpressionError {
        let problem = "it is too complex: BETWEEN, CASE and NULLIF can be nested less deeply";
        ExpressionError::new(ExpressionErrorKind::TooComplex, "…", problem)
    }

    /// A constant is no value of its type.
    #[cold]
    pub(super) fn constant(expression: impl fmt::Display, error: &EvaluationError) -> ExpressionError {
        let of = ExpressionError::new(ExpressionErrorKind::InvalidConstant, expression, error.to_string());
        ExpressionError { constant: Some(error.kind), ..of }
    }

    /// The SQLSTATE by which PostgreSQL reports it.
    pub fn sqlstate(&self) -> &'static str {
        self.constant.map_or(self.kind.sqlstate(), EvaluationErrorKind::sqlstate)
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ExpressionErrorKind {
        self.kind
    }

    /// The part of the expression.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// What is wrong with that part.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in `{}`: {}", self.expression, self.problem)
    }
}

impl std::error::Error for ExpressionError {}
