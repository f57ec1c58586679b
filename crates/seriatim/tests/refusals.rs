//! Code that is not in the language of procedures, and operations that tables and indexes do not offer, are refused
//! at the token. The error says what to write instead.

#[path = "../../catalog/tests/shared/refused.rs"]
mod refused;

#[test]
fn refusals_are_reported_where_they_are() {
    refused::are_refused("tests/procedures/ui", &["seriatim"]);
}

#[test]
fn code_that_a_declaration_rules_out_does_not_compile() {
    refused::are_refused("tests/ui", &["seriatim"]);
}
