//! `#[derive(Data)]`: structs and enums as values of procedures.
//!
//! A struct is a record with its name and fields; a variant one with the variant's name; fields without names
//! are "0", "1", ….

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Data, DeriveInput, Fields, LitStr, Path, Result};

use crate::lower::{Attributes, refuse};

/// The implementation.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let library = library(input)?;
    if let Some(parameter) = input.generics.params.first() {
        return refuse(parameter, "values of procedures have one type: derive `Data` for a type without parameters");
    }
    let (name, text) = (&input.ident, crate::name_of(&input.ident));
    let part = match &input.data {
        Data::Struct(record) => part_of_record(&record.fields, &library),
        // Parts of a variant are those of its value.
        _ => TokenStream::new(),
    };
    let (pack, unpack) = packed(input, &library);
    let (to, from) = match &input.data {
        Data::Struct(record) => {
            let (to, from) = (to_record(&text, &record.fields, &library), from_record(&record.fields, &library));
            let pattern = pattern(&record.fields);
            (
                quote!(let #name #pattern = self; #to),
                quote! {
                    match value {
                        #library::Value::Record { name, .. } if **name == *#text => {
                            ::core::result::Result::Ok(#name #from)
                        }
                        _ => ::core::result::Result::Err(#library::EvaluationError::expected(#text, value)),
                    }
                },
            )
        }
        Data::Enum(choice) => {
            if choice.variants.is_empty() {
                return refuse(&input.ident, "an enum without variants has no values");
            }
            let to = choice.variants.iter().map(|variant| {
                let (ident, pattern) = (&variant.ident, pattern(&variant.fields));
                let to = to_record(&crate::name_of(ident), &variant.fields, &library);
                quote!(#name::#ident #pattern => { #to })
            });
            let from = choice.variants.iter().map(|variant| {
                let (ident, known) = (&variant.ident, crate::name_of(&variant.ident));
                let from = from_record(&variant.fields, &library);
                quote! {
                    #library::Value::Record { name, .. } if **name == *#known => {
                        ::core::result::Result::Ok(#name::#ident #from)
                    }
                }
            });
            let variants: Vec<_> = choice.variants.iter().map(|variant| crate::name_of(&variant.ident)).collect();
            let wanted = format!("{text}: one of {}", variants.join(", "));
            (
                quote!(match self { #(#to)* }),
                quote! {
                    match value {
                        #(#from)*
                        _ => ::core::result::Result::Err(#library::EvaluationError::expected(#wanted, value)),
                    }
                },
            )
        }
        Data::Union(union) => {
            return refuse(&union.union_token, "the fields of a union share their memory: write an enum");
        }
    };
    Ok(quote! {
        #[automatically_derived]
        impl #library::Data for #name {
            fn to_value(&self) -> #library::Value {
                #to
            }

            fn from_value(
                value: &#library::Value,
            ) -> ::core::result::Result<Self, #library::EvaluationError> {
                #from
            }

            #part
        }

        #[automatically_derived]
        impl #library::Pack for #name {
            fn pack(&self, out: &mut ::std::vec::Vec<u8>) {
                let _ = &out;
                #pack
            }

            fn unpack(
                bytes: &mut #library::pack::Unpacker<'_>,
            ) -> ::core::result::Result<Self, #library::EvaluationError> {
                let _ = &bytes;
                #unpack
            }
        }
    })
}

/// The bodies of `pack` and `unpack`: the fields in order, of an enum after the number of the variant.
fn packed(input: &DeriveInput, library: &TokenStream) -> (TokenStream, TokenStream) {
    let name = &input.ident;
    let pack = |fields: &Fields| {
        let names = fields.iter().enumerate().map(|(at, field)| format_ident!("field_{}", at, span = field.span()));
        quote!(#(#library::Pack::pack(#names, out);)*)
    };
    let unpack = |fields: &Fields| {
        built(fields, |_, field| {
            let ty = &field.ty;
            quote!(<#ty as #library::Pack>::unpack(bytes)?)
        })
    };
    match &input.data {
        Data::Struct(record) => {
            let (names, pack, unpack) = (pattern(&record.fields), pack(&record.fields), unpack(&record.fields));
            (quote!(let #name #names = self; #pack), quote!(::core::result::Result::Ok(#name #unpack)))
        }
        Data::Enum(choice) => {
            let to = choice.variants.iter().enumerate().map(|(at, variant)| {
                let (ident, names, pack) = (&variant.ident, pattern(&variant.fields), pack(&variant.fields));
                quote!(#name::#ident #names => { #library::pack::pack_count(#at, out); #pack })
            });
            let from = choice.variants.iter().enumerate().map(|(at, variant)| {
                let (ident, unpack) = (&variant.ident, unpack(&variant.fields));
                quote!(#at => ::core::result::Result::Ok(#name::#ident #unpack),)
            });
            let malformed = quote!(::core::result::Result::Err(#library::pack::malformed()));
            (quote!(match self { #(#to)* }), quote!(match bytes.count()? { #(#from)* _ => #malformed }))
        }
        Data::Union(_) => (TokenStream::new(), TokenStream::new()),
    }
}

/// Where the library is found: as `#[data(crate = path)]` says.
fn library(input: &DeriveInput) -> Result<TokenStream> {
    let mut path: Option<Path> = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("data")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("unknown data attribute; write crate = path"));
            }
            let value = meta.value()?;
            let found = match value.peek(LitStr) {
                true => value.parse::<LitStr>()?.parse_with(Path::parse_mod_style)?,
                false => value.call(Path::parse_mod_style)?,
            };
            match path.replace(found) {
                None => Ok(()),
                Some(_) => Err(meta.error("the crate is given twice")),
            }
        })?;
    }
    let mut inside = Attributes::default();
    inside.visit_data(&input.data);
    if let Some(attribute) = inside.0.iter().find(|attribute| attribute.path().is_ident("data")) {
        return refuse(attribute, "`data` stands on the struct or enum, not on its fields and variants");
    }
    Ok(path.map_or_else(crate::emit::library, |path| quote!(#path)))
}

/// `{ name, .. }` or `(..)` with a name for each field.
fn pattern(fields: &Fields) -> TokenStream {
    let names = fields.iter().enumerate().map(|(at, field)| format_ident!("field_{}", at, span = field.span()));
    match fields {
        Fields::Named(named) => {
            let fields = named.named.iter().map(|field| &field.ident);
            quote!({ #(#fields: #names),* })
        }
        Fields::Unnamed(_) => quote!((#(#names),*)),
        Fields::Unit => TokenStream::new(),
    }
}

fn to_record(name: &str, fields: &Fields, library: &TokenStream) -> TokenStream {
    let each = fields.iter().enumerate().map(|(at, field)| {
        let (label, value) = (label(at, field), format_ident!("field_{}", at, span = field.span()));
        quote!((#label, #library::Data::to_value(#value)))
    });
    quote!(#library::Value::record(#name, [#(#each),*]))
}

/// The method that finds a part, without converting the whole.
fn part_of_record(fields: &Fields, library: &TokenStream) -> TokenStream {
    let each = fields.iter().enumerate().map(|(at, field)| {
        let label = label(at, field);
        let member = field.ident.clone().map_or_else(|| syn::Member::from(at), syn::Member::from);
        quote!(#label => #library::Data::part(&self.#member, rest),)
    });
    quote! {
        fn part(&self, path: &[::std::sync::Arc<str>]) -> ::core::option::Option<#library::Value> {
            let ::core::option::Option::Some((name, rest)) = path.split_first() else {
                return ::core::option::Option::Some(#library::Data::to_value(self));
            };
            let _ = rest;
            match &**name {
                #(#each)*
                _ => ::core::option::Option::None,
            }
        }
    }
}

/// `{ name: .. }` or `(..)` with the fields' values, read from `value`.
fn from_record(fields: &Fields, library: &TokenStream) -> TokenStream {
    built(fields, |at, field| {
        let (label, ty) = (label(at, field), &field.ty);
        quote!(<#ty as #library::Data>::from_value(#library::field(value, #label)?)?)
    })
}

/// `{ name: .. }` or `(..)` with the fields' values, each by its position.
fn built(fields: &Fields, value: impl Fn(usize, &syn::Field) -> TokenStream) -> TokenStream {
    let each = fields.iter().enumerate().map(|(at, field)| {
        let value = value(at, field);
        match &field.ident {
            Some(name) => quote!(#name: #value),
            None => value,
        }
    });
    match fields {
        Fields::Named(_) => quote!({ #(#each),* }),
        Fields::Unnamed(_) => quote!((#(#each),*)),
        Fields::Unit => TokenStream::new(),
    }
}

fn label(at: usize, field: &syn::Field) -> String {
    field.ident.as_ref().map_or_else(|| at.to_string(), crate::name_of)
}
