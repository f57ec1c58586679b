//! The attribute macros that make procedures of functions.
//!
//! Invariant: they only lower tokens, to the tree of `seriatim_procedure`, whose flow analysis determines when
//! values are known. Everything that needs types, the schema or the whole set is decided at registration.
//!
//! ```text
//! lower     the user's function becomes a tree; what is not in the language is refused at its token
//! known     what can be run ahead of its time: slices
//! escape    which values later passes of scheduled code cannot have
//! emit      from the tree: the intermediate representation, straight and scheduled code, prefetching, the footprint
//! ```

mod data;
mod emit;
mod escape;
mod known;
mod lower;
mod options;
mod pure;
mod surface;
mod tree;

use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{DeriveInput, Ident, ItemFn, parse_macro_input};

/// Makes a procedure of a function: a unit type of the same name, registered with `Database::register` and run with
/// `Session::call`.
///
/// ```text
/// #[procedure]
/// pub fn transfer(tx: &Tx, from: u64, to: u64, amount: Money) -> Result<Money, Abort> {
///     let account = tx.require::<Account>(from)?;
///     if account.balance < amount {
///         return Err(tx.abort(Insufficient));
///     }
///     let left = tx.update::<Account>(from, |account| {
///         account.balance -= amount;
///         account.balance
///     })?;
///     tx.update::<Account>(to, |account| account.balance += amount)?;
///     Ok(left)
/// }
/// ```
///
/// # Head
///
/// First `tx: &Tx`, then arguments: `x: T` (cloned for each attempt), `x: &T`, `x: &str` or `x: &[T]`, where
/// `T` implements `Data`. The result is `Result<T, Abort>`. Options: `#[procedure(prefetch = false)]` fetches
/// nothing ahead; `#[procedure(latest)]` reads the newest state although it only reads.
///
/// # Operations
///
/// Each is a separate step. It stands after `let .. =`, as a statement, in the head of an `if`, `if let`, `match` or
/// `for`, or last in a branch of a `let`.
///
/// | | gives |
/// |---|---|
/// | `tx.get::<T>(key)?` | the row, if there is one |
/// | `tx.require::<T>(key)?` | the row; an abort if there is none |
/// | `tx.exists::<T>(key)?` | whether there is a row; not as a statement |
/// | `tx.get_by::<T>(T::INDEX, key)?`, `require_by`, `exists_by` | the same by a unique index |
/// | `tx.update::<T>(key, \|row\| ..)?` | the closure's value; an abort if there is no row |
/// | `tx.update_if::<T>(key, \|row\| ..)?` | the closure's value, if there is a row; not as a statement |
/// | `tx.insert(T { column: value, .. })?` | |
/// | `tx.next("sequence")?` | a number of the sequence, an `i64`; not in a loop |
/// | `tx.insert_new(\|id\| T { id, .. })?` | the number that its sequence gives the row; not in a loop |
/// | `tx.delete::<T>(key)?` | an abort if there is no row |
/// | `tx.delete_if::<T>(key)?` | whether there was a row; not as a statement |
/// | `tx.scan::<T>(low..high)`, `tx.prefix::<T>(first columns)` | rows, see below |
/// | `tx.scan_by::<T>(T::INDEX, low..high)`, `tx.find_by::<T>(T::INDEX, first columns)` | rows by an index |
/// | `tx.scan_all::<T>()` | all rows of a table, which may be hashed, in no order |
/// | `tx.first::<T>(low..high)?`, `tx.last::<T>(low..high)?` | the first or last row, if there is one |
/// | `tx.count::<T>(low..high)?`, `tx.count_all::<T>()?` | the number of rows, a `u64` |
/// | `tx.first_by::<T>(T::INDEX, low..high)?`, `last_by`, `count_by` | the same by an index |
///
/// A range of an index with one bound has no row whose first indexed column is NULL, as in SQL; `..` has all rows.
///
/// After a scan come `.rev()` and `.limit(n)` if wanted; then `for row in ..? {}`, or `.first()?`, `.all()?` or
/// `.count()?`.
///
/// Rows are used column by column: `row.column`. In an update's closure columns are assigned (`=`, `+=`, …)
/// by name; it only computes. An increment (`+=`, `-=`) of a column that is not otherwise read commutes with
/// others, unless it subtracts from an unsigned one.
///
/// # Everything else
///
/// `let` (with `else`), `if`, `match`, `for` over lists and ranges, assignments, `return`, `break`,
/// `continue`; literals, constants, structs, variants, tuples, lists, `vec!` and `matches!`. There are `#[pure]`
/// functions and a short list of methods and conversions. Arithmetic is checked: a result outside the range of its type
/// aborts, and so does an index beyond a list's end. Anything outside of the language is refused at its token, with
/// what to write instead.
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

/// Lets procedures call a function. It may use its arguments only: no clock, no randomness, nothing that
/// changes. Arguments and result implement `Data` (`&str`, `&[T]` and `&T` are taken as `String`, `Vec<T>` and
/// `T`).
///
/// `#[pure(total)]` promises that it has a value for all arguments: no `unwrap`, no index, division or plain
/// arithmetic that could panic. Only such functions are called ahead of time, to prefetch the keys that they
/// compute. A call of any other function is a possible failure of the procedure, so its piece cannot follow
/// the decisive one.
///
/// The function stays as it is. A type of the same name is added, by which the interpreter calls it.
#[proc_macro_attribute]
pub fn pure(options: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    expanded(pure::is_total(options.into()).and_then(|total| pure::expand(&function, total)))
}

/// Lets values of a struct or enum be arguments, results and values of procedures. The types of all fields
/// implement `Data`.
///
/// `#[data(crate = path)]` says where the library's module `procedure` is found, if not at `::seriatim::procedure`.
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
