//! The derive macros behind typed tables.
//!
//! Invariant: it only lowers tokens. Widths, layout, key class and whether a setter can fail need types. They are
//! decided by constants and associated types of `seriatim-catalog` in the code that it generates. They use the same
//! functions that lay out tables declared at run time. So an alias of a type is as good as the type.

mod column;
mod generate;
mod parse;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Declares a table whose rows are values of a struct with named fields.
///
/// # On the struct
///
/// ```text
/// #[table(name = "stock", key(w_id, i_id), hash, capacity = 100_000)]
/// #[table(index(name = "by_quantity", columns(w_id, desc(quantity)), ordered))]
/// ```
/// - `key(...)`: the primary key's columns, most significant first, at most 8; `desc(column)` for larger
///   values first. Required.
/// - `name`: the table's name; without it the struct's, `OrderLine` becoming `order_line`.
/// - `ordered` (the default) or `hash`: how rows are found by key; only ordered tables are scanned.
/// - `cluster(...)`: the first columns of the key, but not all. Rows that agree in them are kept together, in one
///   record as far as there is room. Transactions at rows of one record conflict. The key is made of numbers, and no
///   column is long text. In a database on disk a table that was declared otherwise is converted when it is opened by
///   this type (`Database::table`).
/// - `partition(column)`: the column of the key whose value decides the partition of a row, where the database
///   has several; without it the key's first. `replicated`: every partition has a copy, of a table that is
///   mostly read.
/// - `capacity`: how many rows to expect, an expression of type `usize`; a hint.
/// - `index(name = ..., columns(...))`: a secondary index, with `unique` if two rows may not agree in all its
///   columns, and `ordered` (the default) or `hash`. A `hash` index finds whole keys only. Rows with a NULL in one of
///   the columns do not count as equal, as in SQL; with `nulls_not_distinct` NULL equals NULL. A `deferred` unique
///   index is checked at the end of the transaction, a `deferrable` one if the transaction asks for that. Both are
///   used as one in which rows may agree. Repeat for more.
/// - `check(name = ..., "balance >= 0")`: a condition that each row meets, an expression of SQL over columns. Without
///   a name it gets one as in PostgreSQL, such as `account_balance_check`. Repeat for more.
/// - `crate = path`: where the catalog is found, if not at `::seriatim::catalog`.
///
/// # On a field
///
/// - `#[column(immutable)]`: set when its row is inserted and never again; such columns are stored apart and
///   not copied by updates. Where the others take at most 56 bytes, a row has room for two versions of them.
///   Key columns cannot be updated either, with or without it.
///
/// Fields have column types. Numbers are integers of 8 to 128 bits, `f32`, `f64`, `Decimal<S>` and `Numeric`. Text is
/// `Text<N>` or `String`. Bytes are `Bytes<N>`, `Vec<u8>` or `[u8; N]`. Times are `Date`, `Time`, `DateTime`,
/// `Timestamp` and `Interval`. Others are `bool`, `char`, `Uuid`, and types that derive [`Column`](macro@Column). All
/// of them can be in an `Option`, except in the primary key.
///
/// # What it makes
///
/// For a struct `Stock` it generates the implementation of `Table` and a constant such as `Stock::BY_QUANTITY` for each
/// index. `StockRow<'t>` is a row as it was read, with a getter for each column and `to_owned()`. `StockUpdate<'u>` is
/// a row being updated, with the same getters and, for each column that may change, `set_` and its name. A key of
/// several columns is a tuple, a descending column in it a [`Reverse`](std::cmp::Reverse). Getters and setters are as
/// visible as their fields.
#[proc_macro_derive(Table, attributes(table, column))]
pub fn derive_table(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    parse::declaration(&input)
        .map(|declaration| generate::table(&declaration))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a type one of columns: a struct around one value of a column type, or an enum without fields.
///
/// # Structs
///
/// A column of the struct is one of the type inside, also in the schema and in keys. Getters give the struct, which is
/// `Copy` and `Debug`, and setters take it. Around text and bytes write `#[column(borrowed)]`. Then getters give what
/// those of the type inside do, such as `&str`, and setters take a reference to the struct.
///
/// # Enums
///
/// Each variant declares its discriminant, from 0 to 65535, in ascending order. Columns store it, in 2 bytes. The
/// schema has the variants too, by name. A variant can be renamed in the program only together with the schema. The
/// enum is `Copy` and `Debug`.
///
/// # Both
///
/// Values of the type can be made a `Value`. In procedures they are `Data`, so `Data` is not derived beside. A struct
/// is there what it is in the schema, the value inside.
///
/// `#[column(crate = "path")]` says where the catalog is found, if not at `::seriatim::catalog`. Then the type is not
/// for procedures.
#[proc_macro_derive(Column, attributes(column))]
pub fn derive_column(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    column::column(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
