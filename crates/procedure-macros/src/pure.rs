//! `#[pure]`: keeps the function and adds, under its name but among types, a wrapper that calls it on dynamic
//! values.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Error, FnArg, Ident, ItemFn, Pat, Result, ReturnType, Token, Type};

use crate::emit::library;
use crate::lower::refuse;

/// Whether the attribute says that the function is total.
pub(crate) fn is_total(options: TokenStream) -> Result<bool> {
    let options = Punctuated::<Ident, Token![,]>::parse_terminated.parse2(options)?;
    match options.iter().find(|option| *option != "total") {
        Some(unknown) => refuse(unknown, "`#[pure]` has one option: `total`, for a function that never panics"),
        None => Ok(!options.is_empty()),
    }
}

/// The function and its wrapper.
pub(crate) fn expand(function: &ItemFn, total: bool) -> Result<TokenStream> {
    let signature = &function.sig;
    if let Some(token) = &signature.asyncness {
        return refuse(token, "a pure function waits for nothing: leave out `async`");
    }
    if let Some(token) = &signature.unsafety {
        return refuse(token, "a procedure may call this with any arguments: make it safe");
    }
    if let Some(parameter) = signature.generics.params.first() {
        return refuse(parameter, "a pure function has no parameters of types or lifetimes: write one for each type");
    }
    let library = library();
    let (mut lets, mut passed) = (Vec::new(), Vec::new());
    for (at, input) in signature.inputs.iter().enumerate() {
        let FnArg::Typed(typed) = input else {
            return refuse(input, "a pure function is a function without `self`");
        };
        if matches!(&*typed.pat, Pat::Wild(_)) {
            return refuse(&typed.pat, "a pure function uses its arguments: leave this one out");
        }
        let argument = format_ident!("argument_{}", at);
        let owned = match &*typed.ty {
            Type::Reference(reference) => {
                if let Some(token) = &reference.mutability {
                    return refuse(token, "a pure function changes nothing: return what is new");
                }
                passed.push(quote!(&#argument));
                match &*reference.elem {
                    Type::Path(path) if path.path.is_ident("str") => quote!(::std::string::String),
                    Type::Slice(slice) => {
                        let element = &slice.elem;
                        quote!(::std::vec::Vec<#element>)
                    }
                    other => quote!(#other),
                }
            }
            Type::ImplTrait(other) => return refuse(other, "arguments have one type that implements `Data`"),
            other => {
                passed.push(quote!(#argument));
                quote!(#other)
            }
        };
        lets.push(quote!(let #argument = <#owned as #library::Data>::from_value(&arguments[#at])?;));
    }
    let result = match &signature.output {
        ReturnType::Default => {
            let message = "a pure function is there for its result: write `-> T`";
            return Err(Error::new(signature.ident.span(), message));
        }
        ReturnType::Type(_, ty) => match &**ty {
            Type::ImplTrait(other) => return refuse(other, "the result has one type that implements `Data`"),
            // The arguments lend the result: the wrapper copies it while they live.
            Type::Reference(reference) => match &*reference.elem {
                Type::Path(path) if path.path.is_ident("str") => quote!(&::std::string::String::from(result)),
                Type::Slice(_) => quote!(&result.to_vec()),
                _ => quote!(result),
            },
            _ => quote!(&result),
        },
    };
    let (visibility, name) = (&function.vis, &signature.ident);
    let (text, count) = (crate::name_of(name), signature.inputs.len());
    let conditions = function.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    Ok(quote! {
        #function

        #(#conditions)*
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code, missing_docs)]
        #visibility enum #name {}

        const _: () = {
            #[automatically_derived]
            impl #library::Pure for #name {
                const NAME: &'static str = #text;
                const TOTAL: bool = #total;

                fn evaluate(
                    arguments: &[#library::Value],
                ) -> ::core::result::Result<#library::Value, #library::EvaluationError> {
                    if arguments.len() != #count {
                        return ::core::result::Result::Err(#library::EvaluationError::Type(::std::format!(
                            "`{}` takes {} arguments, found {}", #text, #count, arguments.len(),
                        )));
                    }
                    #(#lets)*
                    let result = #name(#(#passed),*);
                    ::core::result::Result::Ok(#library::Data::to_value(#result))
                }
            }
        };
    })
}
