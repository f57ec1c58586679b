//! What generated code does with values: rows of scans, elements of lists, values lent to setters.

use seriatim_catalog::{Bytes, Decimal, Table, Text, Timestamp};
use seriatim_procedure::EvaluationError;

use crate::scan::{Limit, Steps};
use crate::{Abort, ReadTx};

/// The first row.
///
/// # Errors
/// A conflict.
#[inline]
pub fn first<R>(mut rows: impl Iterator<Item = Result<R, Abort>>) -> Result<Option<R>, Abort> {
    rows.next().transpose()
}

/// Rows that are kept in place.
const FEW: usize = 16;

/// A list of rows, without allocation while they are few. Most scans whose rows are taken all find a handful.
#[derive(Clone, Debug)]
pub enum Rows<R> {
    /// None.
    None,
    /// So many as the number says.
    Few([R; FEW], usize),
    /// More.
    Many(Vec<R>),
}

/// All rows.
///
/// # Errors
/// A conflict.
#[inline]
pub fn all<R: Copy>(mut rows: impl Iterator<Item = Result<R, Abort>>) -> Result<Rows<R>, Abort> {
    let Some(first) = rows.next() else { return Ok(Rows::None) };
    let (mut few, mut count) = ([first?; FEW], 1);
    for row in rows.by_ref() {
        let row = row?;
        match few.get_mut(count) {
            Some(place) => *place = row,
            None => return many(few, row, rows).map(Rows::Many),
        }
        count += 1;
    }
    Ok(Rows::Few(few, count))
}

#[cold]
fn many<R: Copy>(few: [R; FEW], next: R, rows: impl Iterator<Item = Result<R, Abort>>) -> Result<Vec<R>, Abort> {
    few.into_iter().chain([next]).map(Ok).chain(rows).collect()
}

impl<R> std::ops::Deref for Rows<R> {
    type Target = [R];

    #[inline]
    fn deref(&self) -> &[R] {
        match self {
            Rows::None => &[],
            Rows::Few(rows, count) => &rows[..*count],
            Rows::Many(rows) => rows,
        }
    }
}

impl<'r, R> IntoIterator for &'r Rows<R> {
    type Item = &'r R;
    type IntoIter = std::slice::Iter<'r, R>;

    #[inline]
    fn into_iter(self) -> std::slice::Iter<'r, R> {
        self.iter()
    }
}

impl<R: Copy> IntoIterator for Rows<R> {
    type Item = R;
    type IntoIter = IntoRows<R>;

    #[inline]
    fn into_iter(self) -> IntoRows<R> {
        IntoRows { rows: self, next: 0 }
    }
}

/// Goes through a list of rows.
#[derive(Clone, Debug)]
pub struct IntoRows<R> {
    rows: Rows<R>,
    next: usize,
}

impl<R: Copy> Iterator for IntoRows<R> {
    type Item = R;

    #[inline]
    fn next(&mut self) -> Option<R> {
        let row = self.rows.get(self.next).copied();
        self.next += 1;
        row
    }
}

/// How many rows there are.
///
/// # Errors
/// A conflict.
#[inline]
pub fn count<T: Table, L: Limit>(mut steps: Steps<'_, T, L>) -> Result<u64, Abort> {
    let mut count = 0;
    while steps.next()?.is_some() {
        count += 1;
    }
    Ok(count)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_and_many_are_all_there_in_order() {
        for count in [0, 1, FEW - 1, FEW, FEW + 1, 5 * FEW] {
            let rows = all((0..count).map(Ok)).expect("no conflict");
            assert_eq!(matches!(rows, Rows::Many(_)), count > FEW);
            assert!(rows.iter().copied().eq(0..count) && (&rows).into_iter().copied().eq(0..count));
            assert_eq!((rows.len(), rows.is_empty(), rows.get(count)), (count, count == 0, None));
            assert!(rows.into_iter().eq(0..count));
        }
    }
}
