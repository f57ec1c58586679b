//! The attribute macros that make procedures of functions.
//!
//! Invariant: they only lower tokens. Everything that needs types, the schema or the whole set is decided at registration.

mod data;
mod emit;
mod lists;
mod lower;
mod options;
mod pure;
mod surface;
mod tree;

use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{DeriveInput, Ident, ItemFn, parse_macro_input};

/// Makes a procedure of a function.
#[proc_macro_attribute]
pub fn procedure(options: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    let expanded = options::read(options.into()).and_then(|options| Ok((lower::procedure(&function)?, options)));
    match expanded {
        Ok((procedure, options)) => emit::procedure(&procedure, &options).into(),
        Err(error) => {
            let (visibility, name, errors) = (&function.vis, &function.sig.ident, error.into_compile_error());
            // The name stays, so that its uses are not reported as well.
            quote! {
                #errors
                #[allow(non_camel_case_types, missing_docs)]
                #[derive(Clone, Copy, Debug)]
                #visibility struct #name;
            }
            .into()
        }
    }
}

/// Lets procedures call a function.
#[proc_macro_attribute]
pub fn pure(options: TokenStream, item: TokenStream) -> TokenStream {
    if let Some(option) = proc_macro2::TokenStream::from(options).into_iter().next() {
        return syn::Error::new(option.span(), "`#[pure]` has no options").into_compile_error().into();
    }
    let function = parse_macro_input!(item as ItemFn);
    expanded(pure::expand(&function))
}

/// Makes values of a struct or enum values of procedures.
#[proc_macro_derive(Data, attributes(data))]
pub fn derive_data(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expanded(data::expand(&input))
}

fn expanded(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Tokens as text, to compare them.
fn text(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}

/// An identifier's name, without `r#`.
fn name_of(ident: &Ident) -> String {
    ident.unraw().to_string()
}

/// A field's name, or its position.
fn member_name(member: &syn::Member) -> String {
    match member {
        syn::Member::Named(name) => name_of(name),
        syn::Member::Unnamed(at) => at.index.to_string(),
    }
}
