//! The representation as a constant: `#[procedure]` writes it by [`Encode`], and registration reads it.
//!
//! A text holds the tree in pre-order, each struct as its fields and each enum as its variant's name and
//! fields, in the order in which they are listed here. Words end with a space. Truth values are `true` and
//! `false`, options a truth value and perhaps a value, lists their length and elements, names `length:name`.
//! Values that only the compiler knows are in lists beside the text, and the text refers to them by `#index`.
//!
//! Invariant: the macro that writes and the code that reads are of one version. A text that cannot be read is
//! a fault in them, and panics.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use seriatim_catalog::{IndexId, TableDef};

use crate::ir::{
    Arm, BinaryOperator, Block, Expression, ExpressionKind, Function, KeyRange, Notation, Operation, OperationId,
    OperationKind, Pattern, Procedure, Selector, Span, Step, StepId, StepKind, TableUse, Take, Target, UnaryOperator,
    Variable, VariableId,
};
use crate::{IntegerType, Value};

/// An index: the declaration of its table, and its number there.
pub(crate) type IndexOf = (fn() -> TableDef, IndexId);

/// A procedure as a constant.
#[derive(Debug)]
pub struct Encoded {
    /// The tree.
    pub text: &'static str,
    /// Where it is declared.
    pub file: &'static str,
    /// Names of the tables it uses.
    pub tables: &'static [&'static str],
    /// The indexes it uses.
    pub indexes: &'static [IndexOf],
    /// Values of constants.
    pub constants: &'static [fn() -> Value],
    /// Pure functions it calls.
    pub functions: &'static [Function],
}

impl Encoded {
    /// The tree.
    ///
    /// # Panics
    /// If the text encodes none.
    pub fn decode(&self) -> Procedure {
        let mut decoder = Decoder { rest: self.text, file: self.file.into(), encoded: self };
        let procedure = decoder.get();
        assert!(decoder.rest.is_empty(), "more than a procedure: {:?}", decoder.rest);
        procedure
    }
}

struct Decoder<'e> {
    rest: &'static str,
    file: Arc<str>,
    encoded: &'e Encoded,
}

impl Decoder<'_> {
    fn get<T: Decode>(&mut self) -> T {
        T::decode(self)
    }

    fn word(&mut self) -> &'static str {
        let (word, rest) = self.rest.split_once(' ').unwrap_or_else(|| panic!("{:?} is no word", self.rest));
        self.rest = rest;
        word
    }

    fn name(&mut self) -> &'static str {
        let (length, rest) = self.rest.split_once(':').unwrap_or_else(|| panic!("{:?} is no name", self.rest));
        let (name, rest) = rest.split_at(parse(length));
        self.rest = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{name:?} is longer than {length}"));
        name
    }

    /// The type of an integer, if it has one.
    fn suffix(&mut self) -> Option<IntegerType> {
        let name = self.name();
        let ty = IntegerType::ALL.into_iter().find(|ty| ty.name() == name);
        assert!(ty.is_some() || name.is_empty(), "{name:?} is no type of integers");
        ty
    }

    /// The element at `#position`.
    fn listed<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        let word = self.word();
        &list[parse::<usize>(word.strip_prefix('#').unwrap_or_else(|| panic!("{word:?} is no position")))]
    }
}

fn parse<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word:?} is no {}", std::any::type_name::<T>()))
}

trait Decode: Sized {
    fn decode(from: &mut Decoder<'_>) -> Self;
}

/// Writes the text. `C` is a front end's notation for values that only the compiler knows.
#[derive(Debug)]
pub struct Encoder<C> {
    /// The text so far.
    pub text: String,
    /// For [`Encoded::constants`].
    pub constants: Vec<C>,
    /// For [`Encoded::functions`].
    pub functions: Vec<C>,
}

impl<C> Default for Encoder<C> {
    fn default() -> Encoder<C> {
        Encoder { text: String::new(), constants: Vec::new(), functions: Vec::new() }
    }
}

impl<C> Encoder<C> {
    /// The name of a variant, a number, or a truth value.
    pub fn word(&mut self, word: impl Display) {
        self.text.push_str(&format!("{word} "));
    }

    /// A name, or any text.
    pub fn name(&mut self, name: &str) {
        self.word(format_args!("{}:{name}", name.len()));
    }

    /// A value that the compiler knows.
    pub fn constant(&mut self, constant: C) {
        self.word(format_args!("#{}", self.constants.len()));
        self.constants.push(constant);
    }

    /// A function that the compiler knows.
    pub fn function(&mut self, function: C) {
        self.word(format_args!("#{}", self.functions.len()));
        self.functions.push(function);
    }
}

/// Encodes a node. The leaves of a notation encode themselves.
pub trait Encode<C> {
    /// Appends it.
    fn encode(&self, to: &mut Encoder<C>);
}

/// Encodes a node of any notation whose leaves are encoded.
macro_rules! encodes {
    ($ty:ident, |$node:ident, $to:ident| $body:expr) => {
        impl<C, N: Notation> Encode<C> for $ty<N>
        where
            N::Mark: Encode<C>,
            N::Field: Encode<C>,
            N::Constant: Encode<C>,
            N::Count: Encode<C>,
            N::Path: Encode<C>,
            N::Function: Encode<C>,
            N::Index: Encode<C>,
            N::Key: Encode<C>,
            N::Pattern: Encode<C>,
        {
            fn encode(&self, $to: &mut Encoder<C>) {
                let $node = self;
                $body
            }
        }
    };
}

macro_rules! words {
    ($($ty:ident)*) => {
        $(
            impl Decode for $ty {
                fn decode(from: &mut Decoder<'_>) -> $ty {
                    parse(from.word())
                }
            }

            impl<C> Encode<C> for $ty {
                fn encode(&self, to: &mut Encoder<C>) {
                    to.word(self);
                }
            }
        )*
    };
}

macro_rules! ids {
    ($($ty:ident)*) => {
        $(
            impl Decode for $ty {
                fn decode(from: &mut Decoder<'_>) -> $ty {
                    $ty(from.get())
                }
            }

            impl<C> Encode<C> for $ty {
                fn encode(&self, to: &mut Encoder<C>) {
                    to.word(self.0);
                }
            }
        )*
    };
}

macro_rules! units {
    ($($ty:ident { $($variant:ident)* })*) => {
        $(
            impl Decode for $ty {
                fn decode(from: &mut Decoder<'_>) -> $ty {
                    match from.word() {
                        $(stringify!($variant) => $ty::$variant,)*
                        word => panic!("{word:?} is no {}", stringify!($ty)),
                    }
                }
            }

            impl<C> Encode<C> for $ty {
                fn encode(&self, to: &mut Encoder<C>) {
                    to.word(match self {
                        $($ty::$variant => stringify!($variant),)*
                    });
                }
            }
        )*
    };
}

macro_rules! heads {
    ($($ty:ident { $($field:ident),* })*) => {
        $(impl Decode for $ty {
            fn decode(from: &mut Decoder<'_>) -> $ty {
                $ty { $($field: from.get()),* }
            }
        })*
    };
}

macro_rules! structs {
    ($($ty:ident { $($field:ident),* })*) => {
        heads! { $($ty { $($field),* })* }
        $(encodes! { $ty, |node, to| { $(node.$field.encode(to);)* } })*
    };
}

macro_rules! enums {
    ($($ty:ident { $($variant:ident { $($field:tt: $name:ident),* })* })*) => {
        $(
            impl Decode for $ty {
                fn decode(from: &mut Decoder<'_>) -> $ty {
                    match from.word() {
                        $(stringify!($variant) => $ty::$variant { $($field: from.get()),* },)*
                        word => panic!("{word:?} is no {}", stringify!($ty)),
                    }
                }
            }

            encodes! { $ty, |node, to| match node {
                $($ty::$variant { $($field: $name),* } => {
                    to.word(stringify!($variant));
                    $($name.encode(to);)*
                })*
                // A variant that only the source has: its steps and expressions are encoded in its stead.
                #[allow(unreachable_patterns)]
                _ => {}
            } }
        )*
    };
}

words! { bool u16 u32 }

ids! { StepId OperationId VariableId }

units! {
    Take { Each First All Count }
    UnaryOperator { Not Negate }
    BinaryOperator {
        Add Subtract Multiply Divide Remainder Equal NotEqual Less LessOrEqual Greater GreaterOrEqual And Or
    }
}

heads! {
    Procedure { name, span, latest, parameters, variables, tables, body, steps, operations }
    Variable { name, mutable, span }
    Expression { span, kind }
}

structs! {
    Step { id, span, kind }
    Arm { pattern, guard, body }
    Target { variable, path }
}

enums! {
    StepKind {
        Declare { 0: variable }
        Let { pattern: pattern, value: value }
        LetElse { pattern: pattern, value: value, otherwise: otherwise }
        Assign { place: place, operator: operator, value: value }
        Operation { operation: operation, bind: bind }
        If { condition: condition, then: then, otherwise: otherwise }
        Match { value: value, arms: arms }
        For { pattern: pattern, over: over, body: body }
        ForEach { row: row, operation: operation, body: body }
        Break {}
        Continue {}
        Return { 0: value }
        Abort { 0: value }
        Yield { 0: value }
    }
    Pattern {
        Any {}
        Bind { 0: variable }
        Literal { 0: value }
        Range { low: low, high: high, inclusive: inclusive }
        None {}
        Some { 0: inner }
        Tuple { 0: parts }
        Record { name: name, fields: fields }
        Either { 0: alternatives }
    }
    Selector { Field { 0: field } Index { 0: index } }
    OperationKind {
        Get { key: key, required: required }
        Update { key: key, required: required, row: row, body: body }
        Insert { columns: columns }
        Delete { key: key, required: required }
        Scan { range: range, reverse: reverse, limit: limit, take: take }
    }
    KeyRange { Prefix { 0: prefix } Between { low: low, high: high, inclusive: inclusive } }
    ExpressionKind {
        Literal { 0: value }
        Variable { 0: variable }
        Field { 0: base, 1: field }
        Element { 0: list, 1: index }
        Unary { 0: operator, 1: inner }
        Binary { 0: operator, 1: left, 2: right }
        Call { 0: function, 1: arguments }
        Tuple { 0: parts }
        List { 0: elements }
        Repeat { 0: element, 1: count }
        Record { 0: path, 1: fields }
        None {}
        Some { 0: inner }
        If { 0: condition, 1: then, 2: otherwise }
        Match { 0: value, 1: arms }
        Block { 0: bindings, 1: value }
        Range { low: low, high: high, inclusive: inclusive }
    }
}

impl Decode for Block {
    fn decode(from: &mut Decoder<'_>) -> Block {
        Block(from.get())
    }
}

encodes! { Block, |block, to| {
    fn flat<'b, N: Notation>(block: &'b Block<N>, steps: &mut Vec<&'b Step<N>>) {
        for step in &block.0 {
            match &step.kind {
                StepKind::Scope(_, inner) => flat(inner, steps),
                _ => steps.push(step),
            }
        }
    }
    let mut steps = Vec::new();
    flat(block, &mut steps);
    steps.encode(to);
} }

encodes! { Expression, |expression, to| match &*expression.kind {
    ExpressionKind::Reference(_, inner) | ExpressionKind::Dereference(_, inner) => inner.encode(to),
    kind => {
        expression.span.encode(to);
        kind.encode(to);
    }
} }

encodes! { Operation, |operation, to| {
    operation.id.encode(to);
    operation.span.encode(to);
    operation.table.encode(to);
    operation.index.encode(to);
    operation.kind.encode(to);
} }

impl<C> Encode<C> for usize {
    fn encode(&self, to: &mut Encoder<C>) {
        to.word(self);
    }
}

impl<C> Encode<C> for Arc<str> {
    fn encode(&self, to: &mut Encoder<C>) {
        to.name(self);
    }
}

impl<C, T: Encode<C>> Encode<C> for Box<T> {
    fn encode(&self, to: &mut Encoder<C>) {
        (**self).encode(to);
    }
}

impl<C, T: Encode<C>> Encode<C> for &T {
    fn encode(&self, to: &mut Encoder<C>) {
        (**self).encode(to);
    }
}

impl<C, T: Encode<C>> Encode<C> for Option<T> {
    fn encode(&self, to: &mut Encoder<C>) {
        to.word(self.is_some());
        self.iter().for_each(|value| value.encode(to));
    }
}

impl<C, T: Encode<C>> Encode<C> for Vec<T> {
    fn encode(&self, to: &mut Encoder<C>) {
        to.word(self.len());
        self.iter().for_each(|element| element.encode(to));
    }
}

impl<C, X: Encode<C>, Y: Encode<C>> Encode<C> for (X, Y) {
    fn encode(&self, to: &mut Encoder<C>) {
        self.0.encode(to);
        self.1.encode(to);
    }
}

impl<C, X: Encode<C>, Y: Encode<C>, Z: Encode<C>> Encode<C> for (X, Y, Z) {
    fn encode(&self, to: &mut Encoder<C>) {
        self.0.encode(to);
        self.1.encode(to);
        self.2.encode(to);
    }
}

impl Decode for Span {
    fn decode(from: &mut Decoder<'_>) -> Span {
        Span { file: Arc::clone(&from.file), line: from.get(), column: from.get() }
    }
}

impl Decode for TableUse {
    fn decode(from: &mut Decoder<'_>) -> TableUse {
        TableUse { table: (*from.listed(from.encoded.tables)).into(), span: from.get() }
    }
}

impl Decode for Operation {
    fn decode(from: &mut Decoder<'_>) -> Operation {
        let (id, span, table) = (from.get(), from.get(), from.get());
        let index = from.get::<bool>().then(|| {
            let (definition, at) = *from.listed(from.encoded.indexes);
            definition().indexes[at.index()].name.clone().into()
        });
        Operation { id, span, table, index, kind: from.get() }
    }
}

impl Decode for Function {
    fn decode(from: &mut Decoder<'_>) -> Function {
        if from.rest.starts_with('#') {
            return from.listed(from.encoded.functions).clone();
        }
        match from.word() {
            "Method" => Function::Method(from.get()),
            "Associated" => Function::Associated(from.get(), from.get()),
            word => panic!("{word:?} is no function"),
        }
    }
}

impl Decode for Value {
    fn decode(from: &mut Decoder<'_>) -> Value {
        if from.rest.starts_with('#') {
            return from.listed(from.encoded.constants)();
        }
        match from.word() {
            "Bool" => Value::Bool(from.get()),
            "Integer" => Value::Integer(parse(from.word()), from.suffix()),
            "Float" => Value::Float(parse(from.word())),
            "Text" => Value::Text(from.name().to_owned()),
            word => panic!("{word:?} is no value"),
        }
    }
}

impl Decode for usize {
    fn decode(from: &mut Decoder<'_>) -> usize {
        if !from.rest.starts_with('#') {
            return parse(from.word());
        }
        match from.get() {
            Value::Integer(number, _) if let Ok(number) = usize::try_from(number) => number,
            value => panic!("{value:?} is no number"),
        }
    }
}

impl Decode for Arc<str> {
    fn decode(from: &mut Decoder<'_>) -> Arc<str> {
        from.name().into()
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(from: &mut Decoder<'_>) -> Box<T> {
        Box::new(from.get())
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(from: &mut Decoder<'_>) -> Option<T> {
        from.get::<bool>().then(|| from.get())
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(from: &mut Decoder<'_>) -> Vec<T> {
        (0..from.get::<usize>()).map(|_| from.get()).collect()
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(from: &mut Decoder<'_>) -> (A, B) {
        (from.get(), from.get())
    }
}

impl<A: Decode, B: Decode, C: Decode> Decode for (A, B, C) {
    fn decode(from: &mut Decoder<'_>) -> (A, B, C) {
        (from.get(), from.get(), from.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Data, EvaluationError};

    struct Twice;

    impl crate::Pure for Twice {
        const NAME: &'static str = "twice";
        const TOTAL: bool = true;

        fn evaluate(_: &[Value]) -> Result<Value, EvaluationError> {
            Ok(Value::UNIT)
        }
    }

    const FUNCTIONS: &[Function] = &[Function::pure::<Twice>()];

    fn encoded(text: &'static str) -> Encoded {
        Encoded {
            text,
            file: "there.rs",
            tables: &["counter"],
            indexes: &[],
            constants: &[|| 3usize.to_value()],
            functions: FUNCTIONS,
        }
    }

    /// `let x = [twice("a b"); 3]; return x`.
    const TEXT: &str = "1:p 7 1 false 0 1 1:x true 8 9 1 #0 8 2 2 \
        0 8 1 Let Bind 0 8 9 Repeat 8 10 Call #0 1 8 16 Literal Text 3:a b #0 \
        1 9 1 Return 9 8 Variable 0 2 0 ";

    #[test]
    fn a_text_and_its_lists_are_a_procedure() {
        let procedure = encoded(TEXT).decode();
        assert_eq!((&*procedure.name, &*procedure.tables[0].table, procedure.steps), ("p", "counter", 2));
        assert_eq!(procedure.variables[0].span.to_string(), "there.rs:8:9");
        let StepKind::Let { pattern: Pattern::Bind(VariableId(0)), value } = &procedure.body.0[0].kind else {
            panic!("{procedure:?}")
        };
        let ExpressionKind::Repeat(called, 3) = &*value.kind else { panic!("{value:?}") };
        let ExpressionKind::Call(Function::Pure { name: "twice", total: true, .. }, arguments) = &*called.kind else {
            panic!("{called:?}")
        };
        assert!(matches!(&*arguments[0].kind, ExpressionKind::Literal(Value::Text(text)) if text == "a b"));
        assert!(matches!(procedure.body.0[1].kind, StepKind::Return(_)));
    }

    #[test]
    #[should_panic(expected = "\"Leet\" is no StepKind")]
    fn a_word_of_no_variant_is_told() {
        encoded("1:p 7 1 false 0 0 0 1 0 8 1 Leet ").decode();
    }
}
