//! What is not in the language of procedures, and what tables and indexes cannot be asked, is refused at the token, with what to write
//! instead.

#[test]
fn refusals_are_told_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/procedures/ui/*.rs");
}

#[test]
fn what_a_declaration_rules_out_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
