//! Mistakes in a derived table are reported at the token, with what to write instead.

#[path = "shared/refused.rs"]
mod refused;

#[test]
fn mistakes_are_reported_where_they_are() {
    refused::are_refused("tests/ui", &["seriatim_catalog", "seriatim_macros"]);
}

#[test]
#[should_panic(expected = "sound.rs compiles")]
fn canary_a_program_that_compiles_is_noticed() {
    refused::are_refused("tests/shared/compiles", &["seriatim_catalog"]);
}
