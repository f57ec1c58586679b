//! The intermediate representation, encoded: the input of `Declared::declaration`.
//!
//! Invariant: the nodes encode themselves (`seriatim_procedure::ir::Encode`, where the format is); here is
//! what the leaves of the source are in it. Constant data compiles in no time; code that builds the tree took
//! longer to compile than the procedure itself.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use seriatim_procedure::ir::{self, Encode};

use super::{called, library};
use crate::tree::{
    Called, Constant, Count, ExpressionKind, Field, IndexAt, Key, Literal, Mark, Procedure, Record, Written,
};

type Encoder = ir::Encoder<TokenStream>;

/// The body of `Declared::declaration`.
pub(super) fn declaration(procedure: &Procedure, latest: bool) -> TokenStream {
    let library = library();
    let mut encoder = Encoder::default();
    encode(procedure, latest, &mut encoder);
    let Encoder { text, constants, functions } = encoder;
    let tables = &procedure.tables;
    let indexes = procedure.indexes.iter().map(|index| {
        let (row, constant) = (&tables[index.table], &index.constant);
        quote!((<#row as ::seriatim::catalog::Table>::definition, #constant.id()))
    });
    quote! {
        const __ENCODED: #library::ir::Encoded = #library::ir::Encoded {
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

/// A procedure: the code around its body is the macro's own.
fn encode(procedure: &Procedure, latest: bool, to: &mut Encoder) {
    to.name(&crate::name_of(&procedure.name));
    Mark::from(procedure.name.span()).encode(to);
    to.word(latest);
    to.word(procedure.parameters.len());
    to.word(procedure.variables.len());
    for variable in &procedure.variables {
        to.name(&if variable.made { String::new() } else { crate::name_of(&variable.ident) });
        to.word(variable.mutable || variable.late);
        Mark::from(variable.ident.span()).encode(to);
    }
    to.word(procedure.tables.len());
    for (at, table) in procedure.tables.iter().enumerate() {
        to.word(format_args!("#{at}"));
        Mark::from(syn::spanned::Spanned::span(table)).encode(to);
    }
    procedure.body.encode(to);
    to.word(procedure.steps);
    to.word(procedure.operations);
}

/// A place in the source.
impl Encode<TokenStream> for Mark {
    fn encode(&self, to: &mut Encoder) {
        // Outside of a compiler (unit tests of this crate) there are no places.
        let (line, column) = match proc_macro::is_available() {
            true => {
                let start = self.at.unwrap().start();
                (start.line(), start.column())
            }
            false => (1, 1),
        };
        to.word(line);
        to.word(column);
    }
}

impl Encode<TokenStream> for Written {
    fn encode(&self, to: &mut Encoder) {
        self.pattern.encode(to);
    }
}

impl Encode<TokenStream> for IndexAt {
    fn encode(&self, to: &mut Encoder) {
        to.word(format_args!("#{}", self.0));
    }
}

impl Encode<TokenStream> for Field {
    fn encode(&self, to: &mut Encoder) {
        to.name(&match self {
            Field::Member(member) => crate::member_name(member),
            Field::Column(column) => crate::name_of(column),
        });
    }
}

impl Encode<TokenStream> for Record {
    fn encode(&self, to: &mut Encoder) {
        to.name(&self.path.segments.last().map(|last| crate::name_of(&last.ident)).unwrap_or_default());
    }
}

/// The columns of a key.
impl Encode<TokenStream> for Key {
    fn encode(&self, to: &mut Encoder) {
        match (&*self.value.kind, self.parts) {
            (ExpressionKind::Tuple(columns), _) => columns.encode(to),
            (_, Some(parts)) => {
                to.word(parts);
                for part in 0..parts {
                    self.value.span.encode(to);
                    to.word("Field");
                    self.value.encode(to);
                    to.name(&part.to_string());
                }
            }
            (_, None) => [&self.value].to_vec().encode(to),
        }
    }
}

impl Encode<TokenStream> for Constant {
    fn encode(&self, to: &mut Encoder) {
        let sign = |negative: &bool| if *negative { "-" } else { "" };
        match &self.literal {
            Some(Literal::Bool(value)) => to.word(format_args!("Bool {value}")),
            Some(Literal::Integer { negative, digits, suffix }) => {
                to.word(format_args!("Integer {}{digits}", sign(negative)));
                to.name(suffix);
            }
            Some(Literal::Float { negative, digits }) => to.word(format_args!("Float {}{digits}", sign(negative))),
            Some(Literal::Text(text)) => {
                to.word("Text");
                to.name(text);
            }
            None => {
                let (library, tokens) = (library(), &self.tokens);
                to.constant(quote_spanned!(self.at=> || #library::Data::to_value(&#tokens)));
            }
        }
    }
}

impl Encode<TokenStream> for Count {
    fn encode(&self, to: &mut Encoder) {
        let tokens = &self.tokens;
        let tokens = quote!({ let count: ::core::primitive::usize = #tokens; count });
        Constant { tokens, at: self.at, literal: None }.encode(to);
    }
}

impl Encode<TokenStream> for Called {
    fn encode(&self, to: &mut Encoder) {
        let library = library();
        match self {
            Called::Pure(path) => {
                to.function(called(path, |called| quote!(#library::ir::Function::pure::<#called>())));
            }
            Called::Method(_, name) => {
                to.word("Method");
                to.name(name);
            }
            Called::Associated(path) => associated(path, to),
        }
    }
}

/// A conversion or constructor: by the type as written or, where its name is another type's, through the
/// compiler.
fn associated(path: &syn::Path, to: &mut Encoder) {
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
            to.function(quote!(#library::ir::Function::Pure {
                name: #name,
                total: true,
                evaluate: |arguments| #library::methods::apply(arguments, #call),
            }));
        }
        None => {
            to.word("Associated");
            to.name(&ty.map(crate::text).unwrap_or_default().replace(' ', ""));
            to.name(&function);
        }
    }
}
