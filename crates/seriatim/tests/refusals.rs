//! What is not in the language of procedures, and what tables and indexes cannot be asked, is refused at the token, with what to write
//! instead.

#[path = "../../catalog/tests/shared/refused.rs"]
mod refused;

#[test]
fn refusals_are_told_where_they_are() {
    refused::are_refused("tests/procedures/ui", &["seriatim"]);
}

#[test]
fn what_a_declaration_rules_out_does_not_compile() {
    refused::are_refused("tests/ui", &["seriatim"]);
}
