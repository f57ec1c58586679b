//! What generated code does with values: rows of scans, elements of lists, values lent to setters.

use seriatim_catalog::{Bytes, Decimal, Text, Timestamp};
use seriatim_procedure::EvaluationError;

use crate::{Abort, ReadTx};

/// The first row.
///
/// # Errors
/// A conflict.
#[inline]
pub fn first<R>(mut rows: impl Iterator<Item = Result<R, Abort>>) -> Result<Option<R>, Abort> {
    rows.next().transpose()
}

/// All rows.
///
/// # Errors
/// A conflict.
#[inline]
pub fn all<R>(rows: impl Iterator<Item = Result<R, Abort>>) -> Result<Vec<R>, Abort> {
    rows.collect()
}

/// How many rows there are.
///
/// # Errors
/// A conflict.
#[inline]
pub fn count<R>(mut rows: impl Iterator<Item = Result<R, Abort>>) -> Result<u64, Abort> {
    rows.try_fold(0, |count, row| row.map(|_| count + 1))
}

/// A limit of rows. One below zero lets none through.
#[inline(always)]
pub fn limit<N: TryInto<usize>>(limit: N) -> usize {
    limit.try_into().unwrap_or(0)
}

/// An abort for an element beyond the end of a list.
#[cold]
pub fn out_of_bounds(tx: &ReadTx, index: usize, length: usize) -> Abort {
    tx.abort(EvaluationError::OutOfBounds { index, length })
}

/// A value as its column's setter takes it: `S` is the setter's, so that a literal takes the column's type.
#[diagnostic::on_unimplemented(
    message = "a column that takes `{S}` cannot be set to a `{Self}`",
    note = "a text column of a fixed room is set to a Text: write Text::truncated(..)"
)]
pub trait Lend<'v, S> {
    /// The value, or a reference to it.
    fn lend(&'v self) -> S;
}

macro_rules! by_value {
    ($([$($parameters:tt)*] $type:ty;)+) => {$(
        impl<$($parameters)*> Lend<'_, $type> for $type {
            #[inline(always)]
            fn lend(&self) -> $type {
                *self
            }
        }
    )+};
}

by_value! {
    [] bool;
    [] i8;
    [] i16;
    [] i32;
    [] i64;
    [] u8;
    [] u16;
    [] u32;
    [] u64;
    [] f64;
    [] Timestamp;
    [const S: u32] Decimal<S>;
}

impl<'v, const N: usize> Lend<'v, &'v Text<N>> for Text<N> {
    #[inline(always)]
    fn lend(&'v self) -> &'v Text<N> {
        self
    }
}

impl<'v, const N: usize> Lend<'v, &'v Text<N>> for &Text<N> {
    #[inline(always)]
    fn lend(&'v self) -> &'v Text<N> {
        self
    }
}

impl<'v, const N: usize> Lend<'v, &'v Bytes<N>> for Bytes<N> {
    #[inline(always)]
    fn lend(&'v self) -> &'v Bytes<N> {
        self
    }
}

impl<'v> Lend<'v, &'v str> for String {
    #[inline(always)]
    fn lend(&'v self) -> &'v str {
        self
    }
}

impl<'v> Lend<'v, &'v str> for &str {
    #[inline(always)]
    fn lend(&'v self) -> &'v str {
        self
    }
}

impl<'v> Lend<'v, &'v str> for &String {
    #[inline(always)]
    fn lend(&'v self) -> &'v str {
        self
    }
}

impl<'v, const N: usize> Lend<'v, &'v str> for Text<N> {
    #[inline(always)]
    fn lend(&'v self) -> &'v str {
        self
    }
}

impl<'v, V: Lend<'v, S>, S> Lend<'v, Option<S>> for Option<V> {
    #[inline(always)]
    fn lend(&'v self) -> Option<S> {
        self.as_ref().map(V::lend)
    }
}
