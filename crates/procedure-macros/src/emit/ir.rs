//! The intermediate representation, encoded: the input of `Declared::declaration`.
//!
//! Invariant: serde writes the nodes (`seriatim_procedure::ir::Encoded`); here is what the leaves of the source are in
//! it. Constant data compiles in no time; code that builds the tree took longer to compile than the procedure itself.

use std::cell::RefCell;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use serde::{Serialize, Serializer};
use serde_json::json;
use seriatim_procedure::ir;
use syn::spanned::Spanned;

use super::{called, library};
use crate::tree::{
    Called, Constant, Count, Expression, ExpressionKind, Field, IndexAt, Key, Literal, Mark, Procedure, Record, Source,
    Written,
};

/// Values that only the compiler knows.
#[derive(Default)]
struct Lists {
    constants: Vec<TokenStream>,
    functions: Vec<TokenStream>,
}

thread_local! {
    /// Those of the procedure that the thread encodes.
    static LISTS: RefCell<Lists> = RefCell::default();
}

/// Adds a value to a list; its position.
fn listed(list: fn(&mut Lists) -> &mut Vec<TokenStream>, value: TokenStream) -> usize {
    LISTS.with_borrow_mut(|lists| {
        let list = list(lists);
        list.push(value);
        list.len() - 1
    })
}

/// The body of `Declared::declaration`.
pub(super) fn declaration(procedure: &Procedure, latest: bool) -> TokenStream {
    let library = library();
    let tables = &procedure.tables;
    let text = json!({
        "name": crate::name_of(&procedure.name),
        "span": Mark::from(procedure.name.span()),
        "latest": latest,
        "parameters": procedure.parameters.len(),
        "variables": procedure.variables.iter().map(|variable| json!({
            "name": if variable.made { String::new() } else { crate::name_of(&variable.ident) },
            "mutable": variable.mutable || variable.late,
            "span": Mark::from(variable.ident.span()),
        })).collect::<Vec<_>>(),
        "tables": tables.iter().enumerate().map(|(at, table)| json!({
            "table": at,
            "span": Mark::from(table.span()),
        })).collect::<Vec<_>>(),
        "body": procedure.body,
        "steps": procedure.steps,
        "operations": procedure.operations,
    })
    .to_string();
    let Lists { constants, functions } = LISTS.take();
    let indexes = procedure.indexes.iter().map(|index| {
        let (row, constant) = (&tables[index.table], &index.constant);
        quote!((<#row as ::seriatim::catalog::Table>::definition, #constant.id()))
    });
    quote! {
        static __ENCODED: #library::ir::Encoded = #library::ir::Encoded {
            text: #text,
            file: ::core::file!(),
            tables: &[#(<#tables as ::seriatim::catalog::Table>::NAME),*],
            indexes: &[#(#indexes),*],
            constants: &[#(#constants),*],
            functions: &[#(#functions),*],
        };
        __ENCODED.decode()
    }
}

impl ir::Written for Source {}

/// A place in the source.
impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Outside of a compiler (unit tests of this crate) there are no places.
        match proc_macro::is_available() {
            true => {
                let start = self.at.unwrap().start();
                (start.line(), start.column()).serialize(to)
            }
            false => (1, 1).serialize(to),
        }
    }
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.pattern.serialize(to)
    }
}

impl Serialize for IndexAt {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let name = match self {
            Field::Member(member) => crate::member_name(member),
            Field::Column(column) => crate::name_of(column),
        };
        name.serialize(to)
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.path.segments.last().map(|last| crate::name_of(&last.ident)).unwrap_or_default().serialize(to)
    }
}

/// The columns of a key.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match (&*self.value.kind, self.parts) {
            (ExpressionKind::Tuple(columns), _) => columns.serialize(to),
            (_, Some(parts)) => to.collect_seq((0..parts).map(|part| {
                let part = Field::Member(syn::Member::from(part));
                let kind = Box::new(ExpressionKind::Field(self.value.clone(), part));
                Expression { span: self.value.span.clone(), kind }
            })),
            (_, None) => [&self.value].serialize(to),
        }
    }
}

impl Serialize for Constant {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let signed = |negative: bool, digits: &str| format!("{}{digits}", if negative { "-" } else { "" });
        let constant = match &self.literal {
            Some(Literal::Bool(value)) => ir::Constant::Bool(*value),
            Some(Literal::Integer { negative, digits, suffix }) => {
                ir::Constant::Integer(signed(*negative, digits), suffix.clone())
            }
            Some(Literal::Float { negative, digits }) => ir::Constant::Float(signed(*negative, digits)),
            Some(Literal::Text(text)) => ir::Constant::Text(text.clone()),
            None => {
                let (library, tokens) = (library(), &self.tokens);
                let value = quote_spanned!(self.at=> || #library::Data::to_value(&#tokens));
                ir::Constant::At(listed(|lists| &mut lists.constants, value))
            }
        };
        constant.serialize(to)
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let tokens = &self.tokens;
        let tokens = quote!({ let count: ::core::primitive::usize = #tokens; count });
        Constant { tokens, at: self.at, literal: None }.serialize(to)
    }
}

impl Serialize for Called {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let library = library();
        let function = match self {
            Called::Pure(path) => {
                let function = called(path, |called| quote!(#library::ir::Function::pure::<#called>()));
                ir::Called::At(listed(|lists| &mut lists.functions, function))
            }
            Called::Method(_, name) => ir::Called::Method(name.as_str().into()),
            Called::Associated(path) => associated(path),
        };
        function.serialize(to)
    }
}

/// A conversion or constructor: by the type as written or, where its name is another type's, through the
/// compiler.
fn associated(path: &syn::Path) -> ir::Called {
    let library = library();
    let mut segments = path.segments.iter().rev();
    let function = segments.next().map(|segment| crate::name_of(&segment.ident)).unwrap_or_default();
    let ty = segments.next();
    let owner = ty.map(|segment| crate::name_of(&segment.ident)).unwrap_or_default();
    let is_plain = ty.is_none_or(|ty| match &ty.arguments {
        syn::PathArguments::AngleBracketed(given) => {
            given.args.iter().all(|argument| matches!(argument, syn::GenericArgument::Const(syn::Expr::Lit(_))))
        }
        _ => true,
    });
    let through_compiler = match function.as_str() {
        "from_units" if owner != "Decimal" || !is_plain => Some(quote!(#path)),
        "truncated" if owner != "Text" || !is_plain => Some(quote!(|text: ::std::string::String| #path(&text))),
        _ => None,
    };
    match through_compiler {
        Some(call) => {
            let name = format!("{owner}::{function}");
            let function = quote!(#library::ir::Function::Pure {
                name: #name,
                total: true,
                evaluate: |arguments| #library::methods::apply(arguments, #call),
            });
            ir::Called::At(listed(|lists| &mut lists.functions, function))
        }
        None => {
            let ty = ty.map(crate::text).unwrap_or_default().replace(' ', "");
            ir::Called::Associated(ty.into(), function.into())
        }
    }
}
