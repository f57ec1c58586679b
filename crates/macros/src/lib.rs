//! The derive macro behind typed tables.
//!
//! Invariant: it only lowers tokens. Everything that needs types (widths, layout, key class) is decided by constants of
//! `seriatim-catalog` in the code it generates, by the same functions that lay out tables declared at run time.

mod generate;
mod parse;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Declares a table whose rows are values of a struct with named fields.
///
/// On the struct: `#[table(name = "stock", key(w_id, i_id), hash)]`. `name` defaults to the struct's name in lower case; `key`
/// lists the primary key's columns, `desc(column)` for descending order; `hash` or `ordered` (the default) says how rows are
/// found; `capacity = 1000` is a hint. Indexes: `#[table(index(name = "by_owner", columns(owner, desc(id)), ordered))]`, with
/// `unique` if two rows may not agree in its columns.
///
/// On a field: `#[column(immutable)]` for a column that is set when its row is inserted and never again.
///
/// For a struct `Stock` it makes `StockRow<'t>` with a getter for each column, `StockUpdate<'u>` with getters and, for the columns
/// that may change, setters, and a constant such as `Stock::BY_OWNER` for each index.
#[proc_macro_derive(Table, attributes(table, column))]
pub fn derive_table(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    parse::declaration(&input)
        .map(|declaration| generate::table(&declaration))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
