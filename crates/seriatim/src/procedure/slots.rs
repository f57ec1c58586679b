//! Results that generated code keeps between passes, and variables within a pass.
//!
//! A pass goes through the whole body. An operation that runs in it keeps its result; one that ran in an earlier pass
//! returns the kept result. Pure steps compute their values anew. So only the results of operations live between
//! passes, in the order of their runs. The n-th run of an operation is the n-th in every later pass. The operations
//! that decide whether it is reached ran before it, and run again only if it does. The analysis of steps guarantees
//! this.
//!
//! A [`Slot`] is a variable to which a step may not have assigned a value yet.

use std::cell::{Cell, OnceCell, RefCell};

use seriatim_catalog::Table;
use seriatim_engine::procedure::repair::Again;
use seriatim_procedure::Pack;
use seriatim_procedure::ir::OperationId;

use super::Schedule;
use crate::scan::{Limit, Steps};
use crate::{Abort, Tx};

/// The number of results in the first chunk; each next chunk holds twice as many.
const FIRST: usize = 4;
/// The number of chunks: enough for more results than fit in memory.
const CHUNKS: usize = 32;

/// The results of one operation, in the order of its runs. They stay in place until the end of the execution,
/// replaced ones included. Rows can therefore be borrowed from them, and results of other operations can refer to
/// them.
pub struct Results<T> {
    chunks: [OnceCell<Box<[OnceCell<T>]>>; CHUNKS],
    /// The number of results kept, replaced ones included.
    kept: Cell<usize>,
    /// The first that is not replaced.
    first: Cell<usize>,
    /// The number of results returned or kept in this pass.
    next: Cell<usize>,
    /// The place of each result if some runs were made again; otherwise they are in order from `first` on.
    places: RefCell<Vec<usize>>,
}

/// The chunk of a result, and its place there.
fn place(at: usize) -> (usize, usize) {
    let chunk = (at / FIRST + 1).ilog2() as usize;
    (chunk, at - FIRST * ((1 << chunk) - 1))
}

impl<T> Results<T> {
    #[allow(clippy::new_without_default)]
    /// No results yet.
    pub fn new() -> Results<T> {
        let chunks = [const { OnceCell::new() }; CHUNKS];
        let places = RefCell::new(Vec::new());
        Results { chunks, kept: Cell::new(0), first: Cell::new(0), next: Cell::new(0), places }
    }

    /// Begins a pass. It replaces the results of runs that are made again.
    pub fn begin(&self, again: &Again) {
        match again {
            Again::Kept => {}
            Again::Some(_) => {
                let mut places = self.places.borrow_mut();
                if places.is_empty() {
                    places.extend(self.first.get()..self.kept.get());
                }
            }
            Again::All => {
                self.first.set(self.kept.get());
                self.places.borrow_mut().clear();
            }
        }
        self.next.set(0);
    }

    /// Returns the number of the next result and moves on.
    fn advance(&self) -> usize {
        let at = self.next.get();
        self.next.set(at + 1);
        at
    }

    /// Keeps a result.
    pub fn keep(&self, result: T) -> &T {
        let number = self.advance();
        if let Some(place) = self.places.borrow_mut().get_mut(number) {
            *place = self.kept.get();
        }
        let (chunk, at) = place(self.kept.get());
        self.kept.set(self.kept.get() + 1);
        let room = || (0..FIRST << chunk).map(|_| OnceCell::new()).collect();
        self.chunks[chunk].get_or_init(room)[at].get_or_init(|| result)
    }

    /// Returns the next result of an earlier pass.
    ///
    /// # Panics
    /// If there is none: an operation that should not run again was reached more often than before.
    pub fn again(&self) -> &T {
        let number = self.advance();
        let (chunk, at) = place(self.places.borrow().get(number).copied().unwrap_or(self.first.get() + number));
        let kept = self.chunks[chunk].get().and_then(|chunk| chunk[at].get());
        kept.expect("an operation was reached more often than in the pass in which it ran")
    }
}

/// Returns the next row of a running scan, or without one the next kept row. The end of a scan is kept as well.
///
/// # Errors
/// A conflict.
#[inline]
pub fn following<'r, T: Table, L: Limit, K: Pack>(
    tx: &Tx,
    schedule: &Schedule<'_>,
    operation: OperationId,
    scan: &mut Option<Steps<'_, T, L>>,
    results: &'r Results<Option<K>>,
    keep: impl FnOnce(T::Row<'_>) -> K,
) -> Result<Option<&'r K>, Abort> {
    let step = scan.as_mut().map(|scan| || Ok(scan.next()?.map(keep)));
    if !schedule.is_fragment() {
        return step_or_again(step, results);
    }
    let row = match step {
        None => schedule.recalled(tx, operation, results)?,
        Some(step) => {
            let row = results.keep(step()?);
            schedule.carries(operation, row);
            row
        }
    };
    Ok(row.as_ref())
}

/// The result of an operation, or its [`Results`], on the way to and from other fragments. Some results cannot be
/// passed: that of an update may refer to arguments. The compiler chooses, by taking the first of these traits that
/// the type implements.
pub struct Carried<V>(pub V);

/// Results that can be passed to other fragments.
pub trait Carry {
    /// Passes on the result of an operation that has run.
    fn note(&self, schedule: &Schedule<'_>, operation: OperationId);
}

impl<T: Pack> Carry for Carried<&T> {
    fn note(&self, schedule: &Schedule<'_>, operation: OperationId) {
        schedule.carries(operation, self.0);
    }
}

/// Results that can be received from other fragments.
pub trait CarryBack<'r, T> {
    /// Returns the result of an operation that does not run now.
    ///
    /// # Errors
    /// Another fragment passed bytes that are no such result.
    fn recall(&self, tx: &Tx, schedule: &Schedule<'_>, operation: OperationId) -> Result<&'r T, Abort>;
}

impl<'r, T: Pack> CarryBack<'r, T> for Carried<&'r Results<T>> {
    fn recall(&self, tx: &Tx, schedule: &Schedule<'_>, operation: OperationId) -> Result<&'r T, Abort> {
        schedule.recalled(tx, operation, self.0)
    }
}

/// Results that cannot be passed to other fragments.
pub trait CarryNot {
    /// As [`Carry::note`].
    fn note(&self, schedule: &Schedule<'_>, operation: OperationId);
}

impl<T> CarryNot for &Carried<&T> {
    fn note(&self, schedule: &Schedule<'_>, operation: OperationId) {
        schedule.carries_not(operation);
    }
}

/// Results that cannot be received from other fragments.
pub trait CarryNotBack<'r, T> {
    /// As [`CarryBack::recall`], but only for results of an earlier pass.
    ///
    /// # Errors
    /// None.
    fn recall(&self, tx: &Tx, schedule: &Schedule<'_>, operation: OperationId) -> Result<&'r T, Abort>;
}

impl<'r, T> CarryNotBack<'r, T> for &Carried<&'r Results<T>> {
    fn recall(&self, _: &Tx, _: &Schedule<'_>, _: OperationId) -> Result<&'r T, Abort> {
        Ok(self.0.again())
    }
}

/// Keeps the result of `step`, if there is one; otherwise returns the next kept result.
#[inline(always)]
fn step_or_again<K>(
    step: Option<impl FnOnce() -> Result<Option<K>, Abort>>,
    results: &Results<Option<K>>,
) -> Result<Option<&K>, Abort> {
    Ok(match step {
        Some(step) => results.keep(step()?).as_ref(),
        None => results.again().as_ref(),
    })
}

/// A variable that may have no value yet.
pub struct Slot<T>(Option<T>);

impl<T> Slot<T> {
    /// A variable without a value.
    #[allow(clippy::new_without_default)]
    #[inline(always)]
    pub fn new() -> Slot<T> {
        Slot(None)
    }

    /// Assigns a value.
    #[inline(always)]
    pub fn set(&mut self, value: T) {
        self.0 = Some(value);
    }

    /// Borrows the value.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn get(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => early(),
        }
    }

    /// Borrows the value mutably.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn get_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(value) => value,
            None => early(),
        }
    }
}

impl<T: Clone> Slot<T> {
    /// Clones the value.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn value(&self) -> T {
        self.get().clone()
    }
}

#[cold]
fn early() -> ! {
    panic!("a step ran before the step that assigns its variable")
}

/// A part of a slot's value that is to be cloned. It is a type of its own so that type inference does not choose
/// another way to clone it.
pub struct Taken<'s, T>(pub &'s T);

impl<T: Clone> Taken<'_, T> {
    /// Clones the part.
    #[inline(always)]
    pub fn value(&self) -> T {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn results_come_again_in_order_from_where_they_were() {
        let results = Results::new();
        for pass in 0..3usize {
            results.begin(&Again::All);
            let lent: Vec<&usize> = (0..1000).map(|at| results.keep(at + pass)).collect();
            assert!(lent.iter().enumerate().all(|(at, value)| **value == at + pass));
            for _ in 0..2 {
                results.begin(&Again::Kept);
                assert!((0..1000).all(|at| *results.again() == at + pass));
            }
        }
        results.begin(&Again::All);
        results.keep(7);
        results.begin(&Again::Kept);
        assert_eq!(*results.again(), 7);
    }

    #[test]
    fn results_that_are_made_again_come_in_the_place_of_those_before() {
        let results = Results::new();
        results.begin(&Again::All);
        let _: Vec<&usize> = (0..5).map(|at| results.keep(at)).collect();
        for (pass, again) in [[1, 4], [1, 2]].into_iter().enumerate() {
            results.begin(&Again::Some(BTreeSet::new()));
            for at in 0..5 {
                if again.contains(&at) {
                    results.keep(100 * (pass + 1) + at);
                } else {
                    results.again();
                }
            }
        }
        results.begin(&Again::Kept);
        assert_eq!([(); 5].map(|()| *results.again()), [0, 201, 202, 3, 104]);
        results.begin(&Again::All);
        results.keep(7);
        results.begin(&Again::Kept);
        assert_eq!(*results.again(), 7);
    }

    #[test]
    #[should_panic(expected = "often than in the pass in which it ran")]
    fn results_that_were_not_kept_do_not_return() {
        let results = Results::new();
        results.keep(1);
        results.keep(2);
        results.begin(&Again::All);
        results.keep(3);
        results.begin(&Again::Kept);
        assert_eq!(*results.again(), 3);
        results.again();
    }

    #[test]
    fn a_scan_that_was_left_early_continues_with_the_next_one() {
        let results = Results::new();
        let mut first = 0..9u32;
        for at in 0..3 {
            assert_eq!(step_or_again(Some(|| Ok(first.next())), &results).expect("no conflict"), Some(&at));
        }
        let mut second = 10..11;
        let mut rows = Vec::new();
        while let Some(row) = step_or_again(Some(|| Ok(second.next())), &results).expect("no conflict") {
            rows.push(*row);
        }
        assert_eq!(rows, [10]);
        results.begin(&Again::Kept);
        let none = None::<fn() -> Result<Option<u32>, Abort>>;
        let again: Vec<_> = (0..5).map(|_| step_or_again(none, &results).expect("kept").copied()).collect();
        assert_eq!(again, [Some(0), Some(1), Some(2), Some(10), None]);
    }
}
