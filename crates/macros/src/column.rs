//! Columns of a type of one's own: a struct around a column type, or an enum without fields.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Ident, Path, Result, parse_quote};

/// What `#[column(...)]` says of the type.
struct Attributes {
    catalog: Path,
    /// Where procedures are found; none if only a catalog is.
    procedures: Option<Path>,
    is_borrowed: bool,
}

/// The implementations for a type.
pub(crate) fn column(input: &DeriveInput) -> Result<TokenStream> {
    let mut attributes = Attributes {
        catalog: parse_quote!(::seriatim::catalog),
        procedures: Some(parse_quote!(::seriatim::procedure)),
        is_borrowed: false,
    };
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("column")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("crate") {
                attributes.catalog = meta.value()?.parse::<syn::LitStr>()?.parse_with(Path::parse_mod_style)?;
                attributes.procedures = None;
                Ok(())
            } else if meta.path.is_ident("borrowed") {
                attributes.is_borrowed = true;
                Ok(())
            } else {
                Err(meta.error("write #[column(borrowed)], or #[column(crate = \"path\")]"))
            }
        })?;
    }
    if let Some(parameter) = input.generics.params.first() {
        return Err(Error::new(parameter.span(), "a column has one type: leave out the parameters"));
    }
    match &input.data {
        Data::Enum(data) if attributes.is_borrowed => {
            Err(Error::new(data.enum_token.span(), "a variant is not borrowed from its row: leave out `borrowed`"))
        }
        Data::Enum(data) => variants(input, data, &attributes),
        Data::Struct(data) if data.fields.len() == 1 => Ok(around(input, &data.fields, &attributes)),
        Data::Struct(data) => Err(Error::new(
            data.fields.span(),
            "a column is a struct around one value; derive `Table` for a row of several",
        )),
        Data::Union(data) => Err(Error::new(data.union_token.span(), "a column is a struct or an enum")),
    }
}

/// A struct around a column type.
fn around(input: &DeriveInput, fields: &Fields, attributes: &Attributes) -> TokenStream {
    let (name, Attributes { catalog, procedures, is_borrowed }) = (&input.ident, attributes);
    let mut members = fields.members();
    let (Some(field), Some(member)) = (fields.iter().next(), members.next()) else { return TokenStream::new() };
    let inner = &field.ty;
    let access = match is_borrowed {
        true => quote! {
            type Ref<'t> = <#inner as #catalog::Column>::Ref<'t>;
            type Set<'a> = &'a Self;

            #[inline]
            fn load(__stored: #catalog::StoredRef<'_, Self>) -> Self::Ref<'_> {
                <#inner as #catalog::Column>::load(__stored)
            }

            #[inline]
            fn store(__value: Self::Set<'_>) -> #catalog::StoredSet<'_, Self> {
                <#inner as #catalog::Column>::store(<#inner as #catalog::Column>::lend(&__value.#member))
            }

            fn owned(__value: Self::Ref<'_>) -> Self {
                #name { #member: <#inner as #catalog::Column>::owned(__value) }
            }

            #[inline]
            fn lend(&self) -> Self::Set<'_> {
                self
            }
        },
        false => quote! {
            type Ref<'t> = Self;
            type Set<'a> = Self;

            #[inline]
            fn load(__stored: #catalog::StoredRef<'_, Self>) -> Self::Ref<'_> {
                #name { #member: <#inner as #catalog::Column>::load(__stored) }
            }

            #[inline]
            fn store(__value: Self::Set<'_>) -> #catalog::StoredSet<'_, Self> {
                <#inner as #catalog::Column>::store(__value.#member)
            }

            #[inline]
            fn owned(__value: Self::Ref<'_>) -> Self {
                __value
            }

            #[inline]
            fn lend(&self) -> Self::Set<'_> {
                *self
            }
        },
    };
    // In a procedure, a value is the one inside.
    let in_procedures = procedures.as_ref().map(|library| {
        let to_value = quote!(#library::Data::to_value(&self.#member));
        let from_value = quote!(#name { #member: #library::Data::from_value(__value)? });
        let pack = quote!(#library::Pack::pack(&self.#member, __out));
        let unpack = quote!(#name { #member: #library::Pack::unpack(__bytes)? });
        procedure_values(name, library, *is_borrowed, [to_value, from_value, pack, unpack])
    });
    quote! {
        #in_procedures

        #[automatically_derived]
        impl #catalog::Column for #name {
            const TYPE: #catalog::ColumnType = <#inner as #catalog::Column>::TYPE;
            const IS_EXACT: bool = <#inner as #catalog::Column>::IS_EXACT;
            type Stored = <#inner as #catalog::Column>::Stored;
            #access
        }

        #[automatically_derived]
        impl ::core::convert::From<#name> for #catalog::Value {
            fn from(__value: #name) -> #catalog::Value {
                __value.#member.into()
            }
        }
    }
}

/// What procedures need of values of the type, by expressions for each of the four ways to convert one.
fn procedure_values(
    name: &Ident,
    library: &Path,
    is_borrowed: bool,
    [to, from, pack, unpack]: [TokenStream; 4],
) -> TokenStream {
    let of_rows = match is_borrowed {
        true => quote! {
            #[automatically_derived]
            impl<'v> #library::support::Lend<'v, &'v #name> for #name {
                fn lend(&'v self) -> &'v #name {
                    self
                }
            }
        },
        false => quote! {
            #[automatically_derived]
            impl #library::support::Lend<'_, #name> for #name {
                fn lend(&self) -> #name {
                    *self
                }
            }

            #[automatically_derived]
            impl #library::support::Keep for #name {
                type Kept = #name;
                fn keep(self) -> #name {
                    self
                }
            }

            #[automatically_derived]
            impl #library::support::Kept for #name {
                type Ref<'k> = #name;
                fn show(&self) -> #name {
                    *self
                }
            }
        },
    };
    quote! {
        #of_rows

        #[automatically_derived]
        impl #library::Data for #name {
            fn to_value(&self) -> #library::Value {
                #to
            }

            fn from_value(
                __value: &#library::Value,
            ) -> ::core::result::Result<Self, #library::EvaluationError> {
                ::core::result::Result::Ok(#from)
            }
        }

        #[automatically_derived]
        impl #library::Pack for #name {
            fn pack(&self, __out: &mut ::std::vec::Vec<u8>) {
                #pack
            }

            fn unpack(
                __bytes: &mut #library::pack::Unpacker<'_>,
            ) -> ::core::result::Result<Self, #library::EvaluationError> {
                ::core::result::Result::Ok(#unpack)
            }
        }
    }
}

/// An enum without fields.
fn variants(input: &DeriveInput, data: &DataEnum, attributes: &Attributes) -> Result<TokenStream> {
    let (name, catalog) = (&input.ident, &attributes.catalog);
    let mut mistakes: Option<Error> = None;
    for variant in &data.variants {
        let problem = match (&variant.fields, &variant.discriminant) {
            (Fields::Unit, Some(_)) => continue,
            (Fields::Unit, None) => {
                format!("columns store the discriminant, so declare it: `{} = 0` or another number", variant.ident)
            }
            _ => "a variant in a column has no fields".to_owned(),
        };
        let error = Error::new(variant.span(), problem);
        match &mut mistakes {
            Some(first) => first.combine(error),
            None => mistakes = Some(error),
        }
    }
    if let Some(mistakes) = mistakes {
        return Err(mistakes);
    }
    if data.variants.is_empty() {
        return Err(Error::new(name.span(), "an enum in a column has at least one variant"));
    }
    let all: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let names: Vec<_> = all.iter().map(|variant| syn::ext::IdentExt::unraw(*variant).to_string()).collect();
    let title = syn::ext::IdentExt::unraw(name).to_string();
    // In a procedure, a value is a variant as `#[derive(Data)]` makes it.
    let in_procedures = attributes.procedures.as_ref().map(|library| {
        let wanted = format!("{title}: one of {}", names.join(", "));
        let no_one = quote! {
            return ::core::result::Result::Err(#library::EvaluationError::expected(#wanted, __value))
        };
        let from_value = quote! {
            match __value {
                #(#library::Value::Record { name, fields } if **name == *#names && fields.is_empty() => #name::#all,)*
                _ => #no_one,
            }
        };
        let unpack = quote! {
            match <u16 as #library::Pack>::unpack(__bytes)? {
                #(__stored if __stored == #name::#all as u16 => #name::#all,)*
                __stored => {
                    let __value = &#library::Data::to_value(&__stored);
                    #no_one
                }
            }
        };
        let (to_value, pack) = (quote!((*self).into()), quote!(#library::Pack::pack(&(*self as u16), __out)));
        procedure_values(name, library, false, [to_value, from_value, pack, unpack])
    });
    Ok(quote! {
        #in_procedures

        #[automatically_derived]
        impl #catalog::Column for #name {
            const TYPE: #catalog::ColumnType = #catalog::ColumnType::Enum {
                variants: #catalog::Variants::declared(
                    const { &[#(#catalog::Variant::new(#name::#all as i128, #names)),*] },
                ),
            };
            const IS_EXACT: bool = true;
            type Stored = u16;
            type Ref<'t> = Self;
            type Set<'a> = Self;

            #[inline]
            fn load(__stored: #catalog::StoredRef<'_, Self>) -> Self::Ref<'_> {
                #(if __stored == #name::#all as u16 {
                    return #name::#all;
                })*
                #catalog::no_variant(#title, __stored)
            }

            #[inline]
            fn store(__value: Self::Set<'_>) -> #catalog::StoredSet<'_, Self> {
                __value as u16
            }

            #[inline]
            fn owned(__value: Self::Ref<'_>) -> Self {
                __value
            }

            #[inline]
            fn lend(&self) -> Self::Set<'_> {
                *self
            }
        }

        #[automatically_derived]
        impl ::core::convert::From<#name> for #catalog::Value {
            fn from(__value: #name) -> #catalog::Value {
                #catalog::Value::record(match __value { #(#name::#all => #names),* }, [])
            }
        }
    })
}
