//! The options in the parentheses of `#[procedure(..)]`.

use syn::parse::Parser;
use syn::{LitBool, Result};

/// How a procedure is to run.
pub(crate) struct Options {
    /// Whether straight code fetches rows before it needs them.
    pub(crate) prefetch: bool,
    /// Whether it wants the newest state although it only reads.
    pub(crate) latest: bool,
}

/// Reads the options.
pub(crate) fn read(tokens: proc_macro2::TokenStream) -> Result<Options> {
    let (mut prefetch, mut latest) = (None, false);
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("prefetch") {
            return match prefetch.replace(meta.value()?.parse::<LitBool>()?.value) {
                None => Ok(()),
                Some(_) => Err(meta.error("`prefetch` is given twice")),
            };
        }
        if meta.path.is_ident("latest") {
            latest = true;
            return Ok(());
        }
        Err(meta.error("unknown option; write prefetch = false or latest"))
    });
    parser.parse2(tokens)?;
    Ok(Options { prefetch: prefetch.unwrap_or(true), latest })
}
