//! Standard output and standard error of programs.
//!
//! `print!` and `eprintln!` panic when the reader has gone away or the disk is full. [`print()`] returns an
//! error. If the reader has gone away ([`is_closed`]), the program ends quietly. Text for standard error is
//! lost if it cannot be written.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// Writes `text` to standard output and flushes it.
///
/// # Errors
/// When the text cannot be written: the reader has gone away ([`is_closed`]), or the disk is full.
pub fn print(text: Arguments<'_>) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot write to standard output: {error}"));
    let mut output = io::stdout().lock();
    output.write_fmt(text).and_then(|()| output.flush()).map_err(named)
}

/// Writes a line to standard error, and ignores errors.
pub fn talk(line: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Whether an error of [`print()`] means that the reader went away, as `head` does when it has seen enough.
/// This is not a fault, and the program ends quietly.
pub fn is_closed(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// Formats to standard output, as `print!` does: `io::Result<()>` of [`output::print`](crate::output::print).
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::print(::core::format_args!($($text)*)) };
}

/// Formats a line to standard error, as `eprintln!` does, by [`output::talk`](crate::output::talk).
#[macro_export]
macro_rules! talk {
    ($($text:tt)*) => { $crate::output::talk(::core::format_args!($($text)*)) };
}
