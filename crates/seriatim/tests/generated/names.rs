//! The names that the macro lets procedures call are those that the interpreter knows.

use std::collections::BTreeSet;

use seriatim::procedure::methods::{ASSOCIATED, METHODS};

#[test]
fn the_macro_and_the_interpreter_know_the_same_names() {
    let methods = METHODS.iter().map(|method| format!("{} {} {:?}", method.name, method.arity, method.position));
    let associated = ASSOCIATED.iter().map(|function| format!("{}::{} {}", function.ty, function.name, function.arity));
    let interpreted: BTreeSet<String> = methods.chain(associated).collect();
    let lowered: BTreeSet<String> = seriatim::procedure::support::names!().lines().map(str::to_owned).collect();
    assert_eq!(lowered, interpreted);
}
