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
}

const fn value(name: &'static str, arguments: usize) -> Method {
    Method { name, arguments, changes: false, iterates: false }
}

const fn change(name: &'static str, arguments: usize) -> Method {
    Method { name, arguments, changes: true, iterates: false }
}

const fn iterator(name: &'static str, arguments: usize) -> Method {
    Method { name, arguments, changes: false, iterates: true }
}

/// Methods, in alphabetical order.
pub(crate) const METHODS: &[Method] = &[
    value("abs", 0),
    value("as_str", 0),
    value("clone", 0),
    value("contains", 1),
    change("dedup", 0),
    iterator("enumerate", 0),
    value("into", 0),
    value("is_empty", 0),
    value("is_none", 0),
    value("is_some", 0),
    iterator("iter", 0),
    value("len", 0),
    value("max", 1),
    value("min", 1),
    change("push", 1),
    change("sort", 0),
    value("starts_with", 1),
    value("to_owned", 0),
    value("units", 0),
    value("unwrap_or", 1),
    iterator("zip", 1),
];

/// Associated functions, `(type, function, arguments)`. `{int}` is any integer type.
pub(crate) const ASSOCIATED: &[(&str, &str, usize)] = &[
    ("{int}", "from", 1),
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
