//! The closed lists of names that a procedure may call besides `#[pure]` functions.
//!
//! What they mean is written down where they are evaluated, in `seriatim_procedure::methods`; a test compares the lists.

/// A method of values.
pub(crate) struct Method {
    pub(crate) name: &'static str,
    /// Arguments beside the receiver.
    pub(crate) arguments: usize,
    /// Stands as a statement and changes its receiver.
    pub(crate) changes: bool,
    /// Only in the head of a `for`.
    pub(crate) iterates: bool,
    /// In Rust, takes its receiver by reference.
    pub(crate) lends: bool,
}

const fn value(name: &'static str, arguments: usize) -> Method {
    Method { name, arguments, changes: false, iterates: false, lends: false }
}

const fn view(name: &'static str, arguments: usize) -> Method {
    Method { name, arguments, changes: false, iterates: false, lends: true }
}

const fn change(name: &'static str, arguments: usize) -> Method {
    Method { name, arguments, changes: true, iterates: false, lends: true }
}

const fn iterator(name: &'static str, arguments: usize) -> Method {
    Method { name, arguments, changes: false, iterates: true, lends: true }
}

/// Methods, in alphabetical order.
pub(crate) const METHODS: &[Method] = &[
    value("abs", 0),
    view("as_str", 0),
    view("clone", 0),
    view("contains", 1),
    change("dedup", 0),
    iterator("enumerate", 0),
    value("into", 0),
    view("is_empty", 0),
    view("is_none", 0),
    view("is_some", 0),
    iterator("iter", 0),
    view("len", 0),
    value("max", 1),
    value("min", 1),
    change("push", 1),
    change("sort", 0),
    view("starts_with", 1),
    view("to_owned", 0),
    value("units", 0),
    value("unwrap_or", 1),
    iterator("zip", 1),
];

/// Associated functions, `(type, function, arguments)`. `{integer}` is any integer type.
pub(crate) const ASSOCIATED: &[(&str, &str, usize)] = &[
    ("{integer}", "from", 1),
    ("{decimal}", "from_units", 1),
    ("Timestamp", "from_microseconds", 1),
    ("Text", "truncated", 1),
    ("String", "new", 0),
    ("Vec", "new", 0),
];

/// The types of integers.
pub(crate) const INTEGERS: &[&str] = &["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "usize"];

/// The method of this name.
pub(crate) fn method(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// Names of methods, for messages.
pub(crate) fn method_names() -> String {
    METHODS.iter().map(|method| method.name).collect::<Vec<_>>().join(", ")
}

/// The lists as text, a name a line, for the test that compares them with those of the interpreter: a macro's crate exports
/// nothing else. Methods show their arguments with the receiver, and where they stand.
pub(crate) fn shown() -> String {
    let methods = METHODS.iter().map(|method| {
        let position = match (method.changes, method.iterates) {
            (true, _) => "Statement",
            (_, true) => "Header",
            _ => "Value",
        };
        format!("{} {} {position}\n", method.name, method.arguments + 1)
    });
    let associated = ASSOCIATED.iter().map(|(ty, name, arguments)| format!("{ty}::{name} {arguments}\n"));
    methods.chain(associated).collect()
}
