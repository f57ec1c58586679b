//! Functions on values in generated code: rows of scans, elements of lists, arguments of setters.

use seriatim_catalog::{Bytes, Decimal, Table, Text, Timestamp};
use seriatim_procedure::EvaluationError;

use crate::scan::{Limit, Steps};
use crate::{Abort, ReadTx};

/// Returns the first row.
///
/// # Errors
/// A conflict.
#[inline]
pub fn first<R>(mut rows: impl Iterator<Item = Result<R, Abort>>) -> Result<Option<R>, Abort> {
    rows.next().transpose()
}

/// The number of rows that are stored in place.
const FEW: usize = 16;

/// A list of rows, without allocation for up to `FEW`. Most scans whose rows are all kept find a handful.
#[derive(Clone, Debug)]
pub enum Rows<R> {
    /// No rows.
    None,
    /// The given number of rows.
    Few([R; FEW], usize),
    /// More rows.
    Many(Vec<R>),
}

/// Collects all rows.
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

/// Iterates over a list of rows.
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

/// Counts the rows.
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

/// Converts a limit of rows; a negative limit becomes 0.
#[inline(always)]
pub fn limit<N: TryInto<usize>>(limit: N) -> usize {
    limit.try_into().unwrap_or(0)
}

/// The abort for an index beyond the end of a list.
#[cold]
pub fn out_of_bounds(tx: &ReadTx, index: usize, length: usize) -> Abort {
    tx.abort(EvaluationError::OutOfBounds { index, length })
}

/// A value in the form that a column's setter takes. `S` is the type of the setter's argument, so that a literal gets
/// the column's type.
#[diagnostic::on_unimplemented(
    message = "a column that takes `{S}` cannot be set to a `{Self}`",
    note = "a text column of a fixed room is set to a Text: write Text::truncated(..)"
)]
pub trait Lend<'v, S> {
    /// Returns the value, or a reference to it.
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
    [const N: usize] [u8; N];
}

macro_rules! scalars {
    ($($type:ty)+) => { by_value! { $([] $type;)+ } };
}

seriatim_catalog::for_scalars!(scalars);

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

impl<'v> Lend<'v, &'v [u8]> for Vec<u8> {
    #[inline(always)]
    fn lend(&'v self) -> &'v [u8] {
        self
    }
}

impl<'v> Lend<'v, &'v [u8]> for &[u8] {
    #[inline(always)]
    fn lend(&'v self) -> &'v [u8] {
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
