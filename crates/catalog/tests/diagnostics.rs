//! Mistakes in a derived table are told at the token, with what to write instead.

#[test]
fn mistakes_are_told_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
