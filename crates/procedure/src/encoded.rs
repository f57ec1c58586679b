//! The representation as a constant: what `#[procedure]` writes, and registration reads.
//!
//! A text holds the tree in pre-order, each struct as its fields and each enum as its variant's name and fields, in the order in
//! which they are listed here. Words end with a space. Truth values are `true` and `false`, options a truth value and perhaps a
//! value, lists their length and elements, names `length:name`. What only the compiler knows stands in lists beside the text, and
//! `#position` in it.
//!
//! Invariant: the macro that writes and the code that reads are of one version; what cannot be read is a mistake in them, and
//! panics.

use std::str::FromStr;
use std::sync::Arc;

use seriatim_catalog::{IndexId, TableDef};

use crate::ir::{
    Arm, BinaryOperator, Block, Expression, ExpressionKind, Function, KeyRange, Operation, OperationId, OperationKind,
    Pattern, Place, Procedure, Selector, Span, Step, StepId, StepKind, TableUse, Take, UnaryOperator, Variable,
    VariableId,
};
use crate::{Datum, IntegerType};

/// An index: where its table is declared, and its position there.
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
    pub constants: &'static [fn() -> Datum],
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

macro_rules! words {
    ($($ty:ident)*) => {
        $(impl Decode for $ty {
            fn decode(from: &mut Decoder<'_>) -> $ty {
                parse(from.word())
            }
        })*
    };
}

macro_rules! structs {
    ($($ty:ident { $($field:tt),* })*) => {
        $(impl Decode for $ty {
            fn decode(from: &mut Decoder<'_>) -> $ty {
                $ty { $($field: from.get()),* }
            }
        })*
    };
}

macro_rules! enums {
    ($($ty:ident { $($variant:ident { $($field:tt),* })* })*) => {
        $(impl Decode for $ty {
            fn decode(from: &mut Decoder<'_>) -> $ty {
                match from.word() {
                    $(stringify!($variant) => $ty::$variant { $($field: from.get()),* },)*
                    word => panic!("{word:?} is no {}", stringify!($ty)),
                }
            }
        })*
    };
}

words! { bool u16 u32 }

structs! {
    Procedure { name, span, latest, parameters, variables, tables, body, steps, operations }
    Variable { name, mutable, span }
    Block { 0 }
    Step { id, span, kind }
    StepId { 0 }
    OperationId { 0 }
    VariableId { 0 }
    Arm { pattern, guard, body }
    Place { variable, path }
    Expression { span, kind }
}

enums! {
    StepKind {
        Declare { 0 }
        Let { pattern, value }
        LetElse { pattern, value, otherwise }
        Assign { place, operator, value }
        Operation { operation, bind }
        If { condition, then, otherwise }
        Match { value, arms }
        For { pattern, over, body }
        ForEach { row, operation, body }
        Break {}
        Continue {}
        Return { 0 }
        Abort { 0 }
        Yield { 0 }
    }
    Pattern {
        Any {}
        Bind { 0 }
        Literal { 0 }
        Range { low, high, inclusive }
        None {}
        Some { 0 }
        Tuple { 0 }
        Record { name, fields }
        Either { 0 }
    }
    Selector { Field { 0 } Index { 0 } }
    OperationKind {
        Get { key, required }
        Update { key, required, row, body }
        Insert { columns }
        Delete { key, required }
        Scan { range, reverse, limit, take }
    }
    KeyRange { Prefix { 0 } Between { low, high, inclusive } }
    Take { Each {} First {} All {} Count {} }
    ExpressionKind {
        Literal { 0 }
        Variable { 0 }
        Field { 0, 1 }
        Element { 0, 1 }
        Unary { 0, 1 }
        Binary { 0, 1, 2 }
        Call { 0, 1 }
        Tuple { 0 }
        List { 0 }
        Repeat { 0, 1 }
        Record { 0, 1 }
        None {}
        Some { 0 }
        If { 0, 1, 2 }
        Match { 0, 1 }
        Block { 0, 1 }
        Range { low, high, inclusive }
    }
    UnaryOperator { Not {} Negate {} }
    BinaryOperator {
        Add {} Subtract {} Multiply {} Divide {} Remainder {} Equal {} NotEqual {} Less {} LessOrEqual {} Greater {}
        GreaterOrEqual {} And {} Or {}
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

impl Decode for Datum {
    fn decode(from: &mut Decoder<'_>) -> Datum {
        if from.rest.starts_with('#') {
            return from.listed(from.encoded.constants)();
        }
        match from.word() {
            "Bool" => Datum::Bool(from.get()),
            "Integer" => Datum::Integer(parse(from.word()), from.suffix()),
            "Float" => Datum::Float(parse(from.word())),
            "Text" => Datum::Text(from.name().to_owned()),
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
            Datum::Integer(number, _) if let Ok(number) = usize::try_from(number) => number,
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

        fn evaluate(_: &[Datum]) -> Result<Datum, EvaluationError> {
            Ok(Datum::UNIT)
        }
    }

    const FUNCTIONS: &[Function] = &[Function::pure::<Twice>()];

    fn encoded(text: &'static str) -> Encoded {
        Encoded {
            text,
            file: "there.rs",
            tables: &["counter"],
            indexes: &[],
            constants: &[|| 3usize.to_datum()],
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
        assert!(matches!(&*arguments[0].kind, ExpressionKind::Literal(Datum::Text(text)) if text == "a b"));
        assert!(matches!(procedure.body.0[1].kind, StepKind::Return(_)));
    }

    #[test]
    #[should_panic(expected = "\"Leet\" is no StepKind")]
    fn a_word_of_no_variant_is_told() {
        encoded("1:p 7 1 false 0 0 0 1 0 8 1 Leet ").decode();
    }
}
