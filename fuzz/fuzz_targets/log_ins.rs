//! The target `log_ins` of `seriatim_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| seriatim_fuzz::run("log_ins", data));
