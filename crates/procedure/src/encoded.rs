//! The representation as a constant: `#[procedure]` writes it as JSON, and registration reads it.
//!
//! Serde derives both directions for the tree. Scopes and references, which only the source has, are left out. Values
//! that only the compiler knows are in lists beside the text, and the text has their positions.
//!
//! Invariant: the macro that writes and the code that reads are of one version. A text that cannot be read is
//! a fault in them, and panics.

use std::cell::RefCell;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use seriatim_catalog::{IndexId, TableDef};

use crate::ir::{Block, Decoded, Expression, ExpressionKind, Function, Notation, Procedure, Span, Step, StepKind};
use crate::{Data, IntegerType, Value};

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

/// A constant as it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Constant {
    /// A truth value.
    Bool(bool),
    /// An integer: its digits, behind its sign, and its type, empty if it has none.
    Integer(String, String),
    /// A float: its digits, behind its sign. (As a number of JSON it would be rounded.)
    Float(String),
    /// Text.
    Text(String),
    /// At this position in [`Encoded::constants`].
    At(usize),
}

/// A function as it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Called {
    /// As [`Function::Method`].
    Method(Arc<str>),
    /// As [`Function::Associated`].
    Associated(Arc<str>, Arc<str>),
    /// At this position in [`Encoded::functions`].
    At(usize),
}

/// A notation that can be written.
pub trait Written:
    Notation<
        Mark: Serialize,
        Field: Serialize,
        Constant: Serialize,
        Count: Serialize,
        Path: Serialize,
        Function: Serialize,
        Index: Serialize,
        Key: Serialize,
        Pattern: Serialize,
    >
{
}

/// A notation that can be read.
pub trait Readable:
    Notation<
        Mark: DeserializeOwned,
        Field: DeserializeOwned,
        Path: DeserializeOwned,
        Function: DeserializeOwned,
        Key: DeserializeOwned,
        Pattern: DeserializeOwned,
    >
{
    /// Reads a [`Constant`].
    ///
    /// # Errors
    /// The text has something else.
    fn constant<'de, D: Deserializer<'de>>(from: D) -> Result<Self::Constant, D::Error>;

    /// Reads a [`Constant`] that is a number of elements.
    ///
    /// # Errors
    /// The text has something else.
    fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Self::Count, D::Error>;

    /// Reads the position of an index in [`Encoded::indexes`], if there is one.
    ///
    /// # Errors
    /// The text has something else.
    fn index<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Self::Index>, D::Error>;
}

thread_local! {
    /// The text that the thread is reading, and its file.
    static READING: RefCell<Option<(&'static Encoded, Arc<str>)>> = const { RefCell::new(None) };
}

/// The text that the thread is reading, and its file.
fn reading<E: Error>() -> Result<(&'static Encoded, Arc<str>), E> {
    READING.with_borrow(Clone::clone).ok_or_else(|| E::custom("a procedure is read by `Encoded::decode`"))
}

fn listed<T, E: Error>(list: &'static [T], at: usize) -> Result<&'static T, E> {
    list.get(at).ok_or_else(|| E::custom(format_args!("position {at} of a list of {}", list.len())))
}

impl Encoded {
    /// The tree.
    ///
    /// # Panics
    /// If the text encodes none.
    pub fn decode(&'static self) -> Procedure {
        READING.set(Some((self, self.file.into())));
        let mut text = serde_json::Deserializer::from_str(self.text);
        // The compiler has nested as deep as it.
        text.disable_recursion_limit();
        let read = Procedure::deserialize(&mut text).and_then(|procedure| text.end().map(|()| procedure));
        READING.set(None);
        read.unwrap_or_else(|error| panic!("a procedure in {} cannot be read: {error}", self.file))
    }
}

impl Readable for Decoded {
    fn constant<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
        fn parsed<T: std::str::FromStr, E: Error>(text: &str) -> Result<T, E> {
            text.parse().map_err(|_| E::custom(format_args!("{text:?} is no {}", std::any::type_name::<T>())))
        }
        Ok(match Constant::deserialize(from)? {
            Constant::Bool(value) => Value::Bool(value),
            Constant::Integer(digits, suffix) => {
                let ty = IntegerType::by_name(&suffix);
                if ty.is_none() && !suffix.is_empty() {
                    return Err(D::Error::custom(format_args!("{suffix:?} is no type of integers")));
                }
                Value::Integer(parsed::<_, D::Error>(&digits)?, ty)
            }
            Constant::Float(digits) => Value::Float(parsed::<_, D::Error>(&digits)?),
            Constant::Text(text) => Value::Text(text),
            Constant::At(at) => listed::<_, D::Error>(reading::<D::Error>()?.0.constants, at)?(),
        })
    }

    fn count<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
        usize::from_value(&Self::constant(from)?).map_err(D::Error::custom)
    }

    fn index<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<str>>, D::Error> {
        let Some(at) = Option::deserialize(from)? else { return Ok(None) };
        let (definition, index) = *listed::<_, D::Error>(reading::<D::Error>()?.0.indexes, at)?;
        Ok(Some(definition().indexes[index.index()].name.clone().into()))
    }
}

/// Reads the position of a table in [`Encoded::tables`].
pub(crate) fn table<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    listed(reading::<D::Error>()?.0.tables, usize::deserialize(from)?).map(|table| Arc::from(*table))
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        let (line, column) = Deserialize::deserialize(from)?;
        Ok(Span { file: reading::<D::Error>()?.1, line, column })
    }
}

impl<'de> Deserialize<'de> for Function {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Function, D::Error> {
        Ok(match Called::deserialize(from)? {
            Called::Method(name) => Function::Method(name),
            Called::Associated(ty, name) => Function::Associated(ty, name),
            Called::At(at) => listed::<_, D::Error>(reading::<D::Error>()?.0.functions, at)?.clone(),
        })
    }
}

/// Steps in scopes are written as steps of the block.
impl<N: Written> Serialize for Block<N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        fn flat<'b, N: Notation>(block: &'b Block<N>, steps: &mut Vec<&'b Step<N>>) {
            for step in &block.0 {
                match &step.kind {
                    StepKind::Scope(_, inner) => flat(inner, steps),
                    _ => steps.push(step),
                }
            }
        }
        let mut steps = Vec::new();
        flat(self, &mut steps);
        steps.serialize(to)
    }
}

/// A reference is written as what it refers to.
impl<N: Written> Serialize for Expression<N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let ExpressionKind::Reference(_, inner) | ExpressionKind::Dereference(_, inner) = &*self.kind {
            return inner.serialize(to);
        }
        let mut fields = to.serialize_struct("Expression", 2)?;
        fields.serialize_field("span", &self.span)?;
        fields.serialize_field("kind", &self.kind)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EvaluationError;
    use crate::ir::{Pattern, VariableId};

    struct Twice;

    impl crate::Pure for Twice {
        const NAME: &'static str = "twice";
        const TOTAL: bool = true;

        fn evaluate(_: &[Value]) -> Result<Value, EvaluationError> {
            Ok(Value::UNIT)
        }
    }

    /// `let x = [twice("a b"); 3]; return x`, where this is the call.
    macro_rules! encoded {
        ($call:literal) => {{
            static ENCODED: Encoded = Encoded {
                text: concat!(
                    r#"{"name": "p", "span": [7, 1], "latest": false, "parameters": 0, "steps": 2, "operations": 0,
                    "variables": [{"name": "x", "mutable": true, "span": [8, 9]}],
                    "tables": [{"table": 0, "span": [8, 2]}], "body": [
                    {"id": 0, "span": [8, 1], "kind": {"Let": {"pattern": {"Bind": 0}, "value": {"span": [8, 9],
                    "kind": {"Repeat": [{"span": [8, 10], "kind": "#,
                    $call,
                    r#"}, {"At": 0}]}}}}},
                    {"id": 1, "span": [9, 1], "kind": {"Return": {"span": [9, 8], "kind": {"Variable": 0}}}}]}"#
                ),
                file: "there.rs",
                tables: &["counter"],
                indexes: &[],
                constants: &[|| 3usize.to_value()],
                functions: &[Function::pure::<Twice>()],
            };
            ENCODED.decode()
        }};
    }

    #[test]
    fn a_text_and_its_lists_are_a_procedure() {
        let procedure = encoded!(r#"{"Call": [{"At": 0}, [{"span": [8, 16], "kind": {"Literal": {"Text": "a b"}}}]]}"#);
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
    #[should_panic(expected = "a procedure in there.rs cannot be read: unknown variant `Caul`")]
    fn a_word_of_no_variant_is_reported() {
        encoded!(r#"{"Caul": []}"#);
    }

    #[test]
    #[should_panic(expected = "position 1 of a list of 1")]
    fn a_position_beyond_a_list_is_reported() {
        encoded!(r#"{"Call": [{"At": 1}, []]}"#);
    }
}
