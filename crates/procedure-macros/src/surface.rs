//! Recognises operations: method calls that begin at the transaction and end in `?`.
//!
//! Only the surface is read here: which operation, on which table, with which expressions. Errors are reported
//! at the token.

use proc_macro2::{Ident, Span};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprClosure, ExprMethodCall, ExprStruct, Path, Result};

use crate::tree::Take;

/// An operation as written.
pub(crate) struct Call<'e> {
    pub(crate) span: Span,
    pub(crate) table: Path,
    /// The index's constant.
    pub(crate) index: Option<Path>,
    pub(crate) kind: Kind<'e>,
    /// Of a row that is got, only whether it is there.
    pub(crate) asks: bool,
}

/// Its kind, with the user's expressions.
pub(crate) enum Kind<'e> {
    Get {
        key: &'e Expr,
        required: bool,
    },
    Update {
        key: &'e Expr,
        required: bool,
        change: &'e ExprClosure,
    },
    /// The sequence of the table has given the row its number, if it `is_numbered`.
    Insert {
        row: &'e ExprStruct,
        is_numbered: bool,
    },
    Delete {
        key: &'e Expr,
        required: bool,
    },
    Scan {
        keys: Keys<'e>,
        reverse: bool,
        limit: Option<&'e Expr>,
        take: Take,
    },
}

/// The keys of a scan.
pub(crate) enum Keys<'e> {
    Prefix(&'e Expr),
    Between { low: Option<&'e Expr>, high: Option<&'e Expr>, inclusive: bool },
    All,
}

/// The operations of a transaction.
const OPERATIONS: &str = "get, require, exists, get_by, require_by, exists_by, update, update_if, insert, \
    insert_new, insert_overriding, next, delete, delete_if, scan, prefix, find_by, scan_by, scan_all, first, last, \
    first_by, last_by, count, count_by, count_all and abort";

/// Operations of closures that a procedure says by others, and how.
const IN_OTHER_WORDS: [(&str, &str); 7] = [
    (
        "upsert",
        "`let found = tx.update_if::<Table>(key, |row| { .. })?; if found.is_none() { tx.insert(Table { .. })?; }`",
    ),
    ("put", "`let _ = tx.delete_if::<Table>(key)?;` and `tx.insert(Table { .. })?;`"),
    ("try_insert", "`if !tx.exists::<Table>(key)? { tx.insert(Table { .. })?; }`"),
    ("add", "`tx.update::<Table>(key, |row| row.column += amount)?`, which commutes"),
    ("add_and_get", "`tx.update::<Table>(key, |row| { row.column += amount; row.column })?`"),
    ("delete_range", "`for row in tx.scan::<Table>(low..high)? { tx.delete::<Table>(row.key)?; }`"),
    ("get_many", "`for key in keys { let row = tx.get::<Table>(key)?; .. }`: keys that arguments name are prefetched"),
];

/// The method calls of a chain, outermost last, if it begins at the transaction.
fn chain<'e>(expression: &'e Expr, tx: &Ident) -> Option<Vec<&'e ExprMethodCall>> {
    let mut calls = Vec::new();
    let mut at = expression;
    while let Expr::MethodCall(call) = at {
        calls.push(call);
        at = &call.receiver;
    }
    match at {
        Expr::Path(path) if path.path.is_ident(tx) && !calls.is_empty() => {
            calls.reverse();
            Some(calls)
        }
        _ => None,
    }
}

/// Whether an expression begins at the transaction, with or without `?` at its end.
pub(crate) fn is_call(expression: &Expr, tx: &Ident) -> bool {
    match expression {
        Expr::Try(tried) => is_call(&tried.expr, tx),
        Expr::Paren(inner) => is_call(&inner.expr, tx),
        _ => chain(expression, tx).is_some(),
    }
}

/// The operation, if the expression is one: it begins at the transaction. `each`: it is in the head of a
/// `for`.
pub(crate) fn operation<'e>(expression: &'e Expr, tx: &Ident, each: bool) -> Option<Result<Call<'e>>> {
    let (inner, tried) = match expression {
        Expr::Try(tried) => (&*tried.expr, true),
        other => (other, false),
    };
    let calls = chain(inner, tx)?;
    if calls[0].method == "abort" {
        let message =
            "write `return Err(tx.abort(error));`: an abort ends the procedure".replace("tx", &tx.to_string());
        return Some(Err(Error::new(calls[0].method.span(), message)));
    }
    if !tried {
        let message = "write `?` after the operation: it may conflict";
        return Some(Err(Error::new(calls[calls.len() - 1].method.span(), message)));
    }
    Some(read(&calls, each))
}

/// The arguments of a call: `N` of them.
fn arguments<const N: usize>(call: &ExprMethodCall, wanted: &str) -> Result<[usize; N]> {
    if call.args.len() == N {
        return Ok(std::array::from_fn(|at| at));
    }
    let message = format!("write {wanted}");
    Err(Error::new(call.method.span(), message))
}

/// The table in `::<T>`.
fn table(call: &ExprMethodCall, example: &str) -> Result<Path> {
    let missing = || Error::new(call.method.span(), format!("say which table: write {example}"));
    let turbofish = call.turbofish.as_ref().ok_or_else(missing)?;
    match (turbofish.args.first(), turbofish.args.len()) {
        (Some(syn::GenericArgument::Type(syn::Type::Path(ty))), 1) if ty.qself.is_none() => Ok(ty.path.clone()),
        (Some(other), 1) => Err(Error::new(other.span(), "a table is named by the path of its row's struct")),
        _ => Err(Error::new(turbofish.span(), "one table is named: its row's struct")),
    }
}

fn index(expression: &Expr, example: &str) -> Result<Path> {
    match expression {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        other => Err(Error::new(other.span(), format!("an index is named by its constant: write {example}"))),
    }
}

fn read<'e>(calls: &[&'e ExprMethodCall], each: bool) -> Result<Call<'e>> {
    let (first, rest) = (calls[0], &calls[1..]);
    let name = first.method.to_string();
    let span = first.method.span();
    let scan = |keys: Keys<'e>| scan(keys, rest, each, span);
    // The rows between two keys, of which the operation itself says what to take.
    let taken = |keys: Keys<'e>, reverse: bool, take: Take| Kind::Scan { keys, reverse, limit: None, take };
    let (table, index, kind) = match name.as_str() {
        "get" | "require" | "exists" => {
            let example = format!("`{name}::<Table>(key)`");
            arguments::<1>(first, &example)?;
            (table(first, &example)?, None, Kind::Get { key: &first.args[0], required: name == "require" })
        }
        "get_by" | "require_by" | "exists_by" => {
            let example = format!("`{name}::<Table>(Table::INDEX, key)`");
            arguments::<2>(first, &example)?;
            let required = name == "require_by";
            let index = index(&first.args[0], &example)?;
            (table(first, &example)?, Some(index), Kind::Get { key: &first.args[1], required })
        }
        "update" | "update_if" => {
            let example = format!("`{name}::<Table>(key, |row| {{ .. }})`");
            arguments::<2>(first, &example)?;
            let Expr::Closure(change) = &first.args[1] else {
                return Err(Error::new(first.args[1].span(), format!("write the change in place: {example}")));
            };
            (table(first, &example)?, None, Kind::Update { key: &first.args[0], required: name == "update", change })
        }
        "insert" | "insert_overriding" => {
            arguments::<1>(first, "`insert(Table { column: value, .. })` with all columns")?;
            let row = match &first.args[0] {
                Expr::Struct(row) => row,
                Expr::Reference(reference) => {
                    return Err(Error::new(
                        reference.and_token.span(),
                        "the row is given, not lent: leave out the `&`",
                    ));
                }
                other => {
                    let message = "write the row in place, with its columns by name: `insert(Table { column: value })`";
                    return Err(Error::new(other.span(), message));
                }
            };
            if let Some(turbofish) = &first.turbofish {
                return Err(Error::new(turbofish.span(), "the row says which table: leave out `::<..>`"));
            }
            (row.path.clone(), None, Kind::Insert { row, is_numbered: name == "insert_overriding" })
        }
        "delete" | "delete_if" => {
            let example = format!("`{name}::<Table>(key)`");
            arguments::<1>(first, &example)?;
            (table(first, &example)?, None, Kind::Delete { key: &first.args[0], required: name == "delete" })
        }
        "prefix" => {
            let example = "`prefix::<Table>((first, columns))`";
            arguments::<1>(first, example)?;
            let kind = scan(Keys::Prefix(&first.args[0]))?;
            return Ok(Call { span, table: table(first, example)?, index: None, kind, asks: false });
        }
        "find_by" => {
            let example = "`find_by::<Table>(Table::INDEX, (first, columns))`";
            arguments::<2>(first, example)?;
            let index = index(&first.args[0], example)?;
            let kind = scan(Keys::Prefix(&first.args[1]))?;
            return Ok(Call { span, table: table(first, example)?, index: Some(index), kind, asks: false });
        }
        "scan" => {
            let example = "`scan::<Table>(low..high)`";
            arguments::<1>(first, example)?;
            let kind = scan(between(&first.args[0])?)?;
            return Ok(Call { span, table: table(first, example)?, index: None, kind, asks: false });
        }
        "scan_by" => {
            let example = "`scan_by::<Table>(Table::INDEX, low..high)`";
            arguments::<2>(first, example)?;
            let index = index(&first.args[0], example)?;
            let kind = scan(between(&first.args[1])?)?;
            return Ok(Call { span, table: table(first, example)?, index: Some(index), kind, asks: false });
        }
        "scan_all" => {
            let example = "`scan_all::<Table>()`";
            arguments::<0>(first, example)?;
            if let Some(reverse) = rest.iter().find(|call| call.method == "rev") {
                let message =
                    "all rows of a table are in no order: leave out `.rev()`, or write `scan::<Table>(..).rev()`";
                return Err(Error::new(reverse.method.span(), message));
            }
            let kind = scan(Keys::All)?;
            return Ok(Call { span, table: table(first, example)?, index: None, kind, asks: false });
        }
        "count_all" => {
            let example = "`count_all::<Table>()`";
            arguments::<0>(first, example)?;
            (table(first, example)?, None, taken(Keys::All, false, Take::Count))
        }
        "first" | "last" | "count" => {
            let example = format!("`{name}::<Table>(low..high)`");
            arguments::<1>(first, &example)?;
            let take = if name == "count" { Take::Count } else { Take::First };
            (table(first, &example)?, None, taken(between(&first.args[0])?, name == "last", take))
        }
        "first_by" | "last_by" | "count_by" => {
            let example = format!("`{name}::<Table>(Table::INDEX, low..high)`");
            arguments::<2>(first, &example)?;
            let index = index(&first.args[0], &example)?;
            let take = if name == "count_by" { Take::Count } else { Take::First };
            (table(first, &example)?, Some(index), taken(between(&first.args[1])?, name == "last_by", take))
        }
        _ => {
            let other = IN_OTHER_WORDS.iter().find(|(of_closures, _)| *of_closures == name);
            let message = match other {
                Some((_, other)) => format!("a procedure has no `{name}`: write {other}"),
                None => format!("no operation `{name}`; a procedure has {OPERATIONS}"),
            };
            return Err(Error::new(span, message));
        }
    };
    if let Some(more) = rest.first() {
        let message = "bind the operation's result with `let` first, then use it";
        return Err(Error::new(more.method.span(), message));
    }
    if each {
        let message = "a loop goes over a scan: `scan`, `prefix`, `find_by`, `scan_by` or `scan_all`";
        return Err(Error::new(span, message));
    }
    Ok(Call { span, table, index, kind, asks: name.starts_with("exists") })
}

fn between(range: &Expr) -> Result<Keys<'_>> {
    match range {
        Expr::Range(range) => Ok(Keys::Between {
            low: range.start.as_deref(),
            high: range.end.as_deref(),
            inclusive: matches!(range.limits, syn::RangeLimits::Closed(_)),
        }),
        Expr::Paren(inner) => between(&inner.expr),
        other => {
            let message = "write a range of whole keys: `low..high`, `low..=high`, `low..` or `..`; for keys that \
                begin alike, use `prefix`";
            Err(Error::new(other.span(), message))
        }
    }
}

fn scan<'e>(keys: Keys<'e>, rest: &[&'e ExprMethodCall], each: bool, span: Span) -> Result<Kind<'e>> {
    let (mut reverse, mut limit, mut take) = (false, None, None);
    for call in rest {
        let name = call.method.to_string();
        let mistake = |message: &str| Err(Error::new(call.method.span(), message));
        if take.is_some() {
            return mistake("bind the operation's result with `let` first, then use it");
        }
        match name.as_str() {
            "rev" if reverse || limit.is_some() => return mistake("write `.rev()` once, before `.limit(n)`"),
            "rev" => {
                arguments::<0>(call, "`.rev()`")?;
                reverse = true;
            }
            "limit" if limit.is_some() => return mistake("write `.limit(n)` once"),
            "limit" => {
                arguments::<1>(call, "`.limit(n)`")?;
                limit = Some(&call.args[0]);
            }
            "take" => return mistake("write `.limit(n)`"),
            "first" | "all" | "count" => {
                arguments::<0>(call, &format!("`.{name}()`"))?;
                take = Some(match name.as_str() {
                    "first" => Take::First,
                    "all" => Take::All,
                    _ => Take::Count,
                });
            }
            _ => {
                return mistake(
                    "after a scan come `.rev()`, `.limit(n)` and, outside of a `for`, `.first()`, `.all()` or \
                     `.count()`",
                );
            }
        }
    }
    let take = match (take, each) {
        (None, true) => Take::Each,
        (Some(take), false) => take,
        (Some(_), true) => {
            let message = "in a `for`, a scan goes row by row: leave out `.first()`, `.all()` and `.count()`, or bind \
                the result with `let` first";
            return Err(Error::new(rest[rest.len() - 1].method.span(), message));
        }
        (None, false) => {
            let message =
                "say what to do with the rows: `.first()?`, `.all()?` or `.count()?`, or write `for row in ..?`";
            return Err(Error::new(span, message));
        }
    };
    Ok(Kind::Scan { keys, reverse, limit, take })
}
