//! The closed lists of methods and associated functions that procedures may call, in addition to `#[pure]` functions.
//!
//! Invariant: these lists are the language. A front end refuses every other name. [`methods`](crate::methods) has their
//! effects.

/// Where a method may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// In any expression.
    Value,
    /// As a statement: it changes its receiver, a place.
    Statement,
    /// In the header of a `for` over a list.
    Header,
}

/// A method of the closed list.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// Number of arguments, the receiver among them.
    pub arity: usize,
    /// Where it may be called.
    pub position: Position,
    /// Whether in Rust it takes its receiver by reference.
    pub lends: bool,
    /// A description of its receiver and its value.
    pub meaning: &'static str,
}

/// An associated function of the closed list.
#[derive(Clone, Copy, Debug)]
pub struct Associated {
    /// The type: `{integer}` for any of [`INTEGERS`], `{decimal}` for `Decimal::<S>` and names of it.
    pub ty: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Number of arguments.
    pub arity: usize,
    /// A description of its value.
    pub meaning: &'static str,
}

/// A method that takes its receiver by value.
const fn value(name: &'static str, arity: usize, meaning: &'static str) -> Method {
    Method { name, arity, position: Position::Value, lends: false, meaning }
}

/// A method that takes its receiver by reference.
const fn view(name: &'static str, arity: usize, meaning: &'static str) -> Method {
    Method { name, arity, position: Position::Value, lends: true, meaning }
}

const fn change(name: &'static str, arity: usize, meaning: &'static str) -> Method {
    Method { name, arity, position: Position::Statement, lends: true, meaning }
}

const fn iterator(name: &'static str, arity: usize, meaning: &'static str) -> Method {
    Method { name, arity, position: Position::Header, lends: true, meaning }
}

/// The methods, in alphabetical order.
pub const METHODS: &[Method] = &[
    value("abs", 1, "an integer's or float's magnitude, checked"),
    view("as_str", 1, "the text"),
    view("clone", 1, "the value"),
    view("contains", 2, "whether a list has an equal element, or a text the other text in it"),
    change("dedup", 1, "removes all but the first of consecutive equal elements"),
    iterator("enumerate", 1, "pairs of position, a usize, and element"),
    value("into", 1, "the value; an integer takes the type of what it meets"),
    view("is_empty", 1, "whether len is 0"),
    view("is_none", 1, "of an Option"),
    view("is_some", 1, "of an Option"),
    iterator("iter", 1, "the list"),
    view("len", 1, "elements of a list, bytes of a text or of bytes: a usize"),
    value("max", 2, "the larger of two values of a type with an order"),
    value("min", 2, "the smaller of two values of a type with an order"),
    change("push", 2, "adds an element at the end of a list"),
    change("sort", 1, "sorts a list whose elements have an order"),
    view("starts_with", 2, "whether a text begins with the other, or a list with the other's elements"),
    view("to_owned", 1, "the value"),
    value("units", 1, "a decimal's units of 10^-scale: an i64"),
    value("unwrap_or", 2, "what the Option holds, or the argument"),
    iterator("zip", 2, "pairs of elements of two lists, as many as the shorter has"),
];

/// The associated functions.
pub const ASSOCIATED: &[Associated] = &[
    Associated { ty: "{integer}", name: "from", arity: 1, meaning: "an integer of a type within this one's range" },
    Associated { ty: "{decimal}", name: "from_units", arity: 1, meaning: "that many, an i64, units of 10^-scale" },
    Associated { ty: "Timestamp", name: "from_microseconds", arity: 1, meaning: "so many, an i64, since 1970" },
    Associated {
        ty: "Text",
        name: "truncated",
        arity: 1,
        meaning: "the part of a text that fits `Text::<N>`; `Text` without N: the whole text, which must fit",
    },
    Associated { ty: "String", name: "new", arity: 0, meaning: "the empty text" },
    Associated { ty: "Vec", name: "new", arity: 0, meaning: "the empty list" },
];

/// The types of integers.
pub const INTEGERS: &[&str] = &["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "usize"];

/// The method of this name.
pub fn method(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}
