//! What is not in the language of procedures is refused at the token, with what to write instead.

#[test]
fn refusals_are_told_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/procedures/ui/*.rs");
}
