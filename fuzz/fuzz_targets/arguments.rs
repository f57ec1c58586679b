//! The command line's arguments: they are a command, or the fault is one line that says something. Nothing is run.
//!
//! Input: arguments, each ended by a line break.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/cli/src/args.rs"]
mod args;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

/// What `args` knows of the crate that it is of.
pub(crate) enum Failure {
    Usage(String),
}

impl Failure {
    fn usage(error: impl std::fmt::Display) -> Failure {
        Failure::Usage(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::usage(error)
    }
}

/// Nothing is run, so nothing ends.
pub(crate) fn exit(done: Result<(), Failure>) -> ExitCode {
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Failure::Usage(message) = self;
        f.write_str(message)
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let words = data.split(|&byte| byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    args::check(&std::iter::once("seriatim".into()).chain(words).collect::<Vec<_>>());
});
