//! From the tree to code.
//!
//! Names of the generated code have their own hygiene, and it names everything of the library by its full path. The
//! user's tokens keep their spans, so that the compiler shows mistakes in the user's text.

mod expressions;
mod footprint;
mod ir;
mod prefetch;
mod scheduled;
mod slice;
mod straight;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Path;
use syn::spanned::Spanned;

use crate::known;
use crate::lower::Number;
use crate::options::Options;
use crate::tree::{Parameter, Passing, Procedure, VariableId};

/// Where generated code finds the library.
pub(crate) fn library() -> TokenStream {
    quote!(::seriatim::procedure)
}

/// A call of checked arithmetic, with `?`, at the place of the user's operator. All its tokens have that place. The
/// compiler takes a span that begins with the macro's tokens for one of the attribute, and would report an overflow
/// there.
fn checked_call(at: Span, function: &str, arguments: &[TokenStream]) -> TokenStream {
    let function = Ident::new(function, at);
    quote_spanned!(at=> ::seriatim::procedure::checked::#function(#(#arguments),*)?)
}

/// A name of the macro's own.
fn own(name: &str) -> Ident {
    Ident::new(&format!("__{name}"), Span::mixed_site())
}

/// The slot that is a variable.
fn slot(variable: VariableId) -> Ident {
    own(&format!("slot_{}", variable.0))
}

/// The field of the handles that holds a table's.
fn table_field(at: usize) -> Ident {
    format_ident!("table_{}", at, span = Span::mixed_site())
}

/// The field of the handles that holds an index's.
fn index_field(at: usize) -> Ident {
    format_ident!("index_{}", at, span = Span::mixed_site())
}

/// An expression that uses the type that a pure function declares. A function that is not pure declares none. Then the
/// compiler finds an empty type of its name in the surrounding block. It reports that this type is not `Pure`, instead
/// of a function where a type should be.
fn called(path: &Path, expression: impl FnOnce(&Ident) -> TokenStream) -> TokenStream {
    let (none, mut called) = (own("none"), own("called"));
    called.set_span(called.span().located_at(path.span()));
    let Some(name) = path.segments.last().map(|last| &last.ident) else { return TokenStream::new() };
    let expression = expression(&called);
    quote! {{
        #[allow(non_camel_case_types, dead_code)]
        mod #none {
            pub enum #name {}
        }
        #[allow(unused_imports)]
        use #none::#name as #called;
        {
            #[allow(unused_imports)]
            use #path as #called;
            #expression
        }
    }}
}

/// All items for a procedure.
pub(crate) fn procedure(procedure: &Procedure, options: &Options) -> TokenStream {
    let Procedure { attributes, visibility, name, .. } = procedure;
    let library = library();
    let text = crate::name_of(name);
    let are = |names: &'static [&'static str]| {
        attributes.iter().filter(move |attribute| names.iter().any(|name| attribute.path().is_ident(name)))
    };
    let (conditions, lints) = (are(&["cfg"]), are(&["allow", "expect", "warn", "deny"]));
    let own_parameters = procedure.parameters.len() - procedure.numbers.len();
    let (arguments, output) = (arguments_type(&procedure.parameters), &procedure.output);
    let given = arguments_type(&procedure.parameters[..own_parameters]);
    let numbers = procedure.numbers.iter().map(|number| match number {
        Number::OfSequence(name) => quote!(#library::Number::OfSequence(#name)),
        Number::OfTable(table) => {
            quote!(#library::Number::OfTable(<#table as ::seriatim::catalog::Table>::NAME))
        }
    });
    let complete = complete(procedure, own_parameters);
    let (handles, handles_of) = handles(procedure);
    let declaration = ir::declaration(procedure, options.latest);
    let flow = known::flow(procedure);
    let footprint = footprint::function(procedure, &flow);
    let straight = straight::function(procedure, &flow, options);
    let scheduled = scheduled::function(procedure);
    quote! {
        #(#attributes)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #name;

        #(#conditions)*
        const _: () = {
            #handles

            #[automatically_derived]
            #(#lints)*
            #[allow(clippy::all, clippy::pedantic, unused_parens, unused_braces, unused_mut, non_snake_case)]
            impl #library::Declared for #name {
                const NAME: &'static str = #text;
                type Arguments = #given;
                type All = #arguments;
                const NUMBERS: &'static [#library::Number] = &[#(#numbers),*];
                type Output = #output;
                type Handles = __Handles;

                fn declaration() -> #library::ir::Procedure {
                    #declaration
                }

                #complete
                #handles_of
                #straight

                #scheduled

                #footprint
            }
        };
    }
}

/// The owned parameters: one type, or a tuple.
fn arguments_type(parameters: &[Parameter]) -> TokenStream {
    let mut types = parameters.iter().map(|parameter| match &parameter.passing {
        Passing::Value(ty) | Passing::Reference(ty) => quote!(#ty),
        Passing::Text => quote!(::std::string::String),
        Passing::Slice(element) => quote!(::std::vec::Vec<#element>),
    });
    match (parameters.len(), types.next()) {
        (1, Some(only)) => only,
        (_, first) => quote!((#first #(, #types)*)),
    }
}

/// `Declared::complete`: the arguments that are given, and behind them the numbers.
fn complete(procedure: &Procedure, own_parameters: usize) -> TokenStream {
    let (library, given, number, place) = (library(), own("given"), own("number"), own("place"));
    let body = match procedure.numbers.is_empty() {
        true => quote! {{
            let _ = (#number, #place);
            ::core::result::Result::Ok(#given)
        }},
        false => {
            let own_values = (0..own_parameters).map(|at| match own_parameters {
                1 => quote!(::core::clone::Clone::clone(#given)),
                _ => {
                    let at = syn::Index::from(at);
                    quote!(::core::clone::Clone::clone(&#given.#at))
                }
            });
            let numbers = procedure.numbers.iter().enumerate().map(|(at, of)| match of {
                Number::OfSequence(_) => quote!(#number(#at)?),
                Number::OfTable(table) => quote!(#library::support::identity::<#table>(#number(#at)?)?),
            });
            let values: Vec<TokenStream> = own_values.chain(numbers).collect();
            let all = match &values[..] {
                [only] => quote!(#only),
                all => quote!((#(#all),*)),
            };
            quote! {{
                let _ = #given;
                ::core::result::Result::Ok(#place.insert(#all))
            }}
        }
    };
    quote! {
        fn complete<'given>(
            #given: &'given Self::Arguments,
            #number: &mut dyn FnMut(::core::primitive::usize) -> ::core::result::Result<
                ::core::primitive::i64,
                ::seriatim::TransactError,
            >,
            #place: &'given mut ::core::option::Option<Self::All>,
        ) -> ::core::result::Result<&'given Self::All, ::seriatim::TransactError> #body
    }
}

/// Binds the parameters to the owned arguments.
fn bind_arguments(procedure: &Procedure) -> TokenStream {
    let arguments = own("arguments");
    let lets = procedure.parameters.iter().enumerate().map(|(at, parameter)| {
        let variable = &procedure.variables[parameter.variable.index()];
        let (ident, mutable) = (&variable.ident, variable.mutable.then(|| quote!(mut)));
        let place = match procedure.parameters.len() {
            1 => quote!(#arguments),
            _ => {
                let at = syn::Index::from(at);
                quote!(&#arguments.#at)
            }
        };
        match &parameter.passing {
            Passing::Value(ty) => quote!(let #mutable #ident: #ty = ::core::clone::Clone::clone(#place);),
            Passing::Reference(ty) => quote!(let #mutable #ident: &#ty = #place;),
            Passing::Text => quote!(let #mutable #ident: &::core::primitive::str = #place;),
            Passing::Slice(element) => quote!(let #mutable #ident: &[#element] = #place;),
        }
    });
    quote!(#(#lets)*)
}

/// The struct of handles, and the function that finds them.
fn handles(procedure: &Procedure) -> (TokenStream, TokenStream) {
    let (tables, indexes) = (&procedure.tables, &procedure.indexes);
    let table_fields: Vec<Ident> = (0..tables.len()).map(table_field).collect();
    let index_fields: Vec<Ident> = (0..indexes.len()).map(index_field).collect();
    let (library, database, handles, columns, operations) =
        (library(), own("database"), own("handles"), own("columns"), procedure.operations);
    let index_types = indexes.iter().map(|index| {
        let (table, constant) = (&tables[index.table], &index.constant);
        quote!(::seriatim::IndexHandle<
            #table,
            <#table as ::seriatim::catalog::IndexedBy<{ #constant.id().0 }>>::Key,
            <#table as ::seriatim::catalog::IndexedBy<{ #constant.id().0 }>>::Kind,
        >)
    });
    let index_values = indexes.iter().map(|index| {
        let (table, constant) = (table_field(index.table), &index.constant);
        quote!(#table.index(#constant))
    });
    let definition = quote! {
        #[derive(::core::clone::Clone)]
        pub struct __Handles {
            #(#table_fields: ::seriatim::Handle<#tables>,)*
            #(#index_fields: #index_types,)*
            #columns: [#library::support::ColumnUse; #operations],
        }
    };
    let of = quote! {
        fn handles(
            #database: &::seriatim::Database,
        ) -> ::core::result::Result<Self::Handles, ::seriatim::SchemaError> {
            let _ = #database;
            #(let #table_fields = #database.table::<#tables>()?;)*
            #(let #index_fields = #index_values;)*
            ::core::result::Result::Ok(__Handles {
                #(#table_fields,)*
                #(#index_fields,)*
                #columns: [#library::support::ColumnUse::ALL; #operations],
            })
        }

        fn set_columns(#handles: &mut Self::Handles, #columns: &[#library::support::ColumnUse]) {
            #handles.#columns.copy_from_slice(#columns);
        }
    };
    (definition, of)
}
