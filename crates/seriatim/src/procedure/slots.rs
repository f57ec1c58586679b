//! What generated code keeps from pass to pass, and what it works with in one.
//!
//! A pass goes through the whole body. An operation that runs in it keeps its result; one that ran in an earlier pass gives
//! what it kept then; pure steps compute anew from those. So the only thing that lives between passes is the results of
//! operations, in the order in which they came, and the n-th time that a pass comes to an operation is the n-th time that
//! every later pass does: what decides whether it is reached ran before it, and runs again only if it does (the analysis of
//! steps sees to that).
//!
//! A variable that a step may not have given its value yet is a [`Slot`].

use std::cell::{Cell, OnceCell, RefCell};

use seriatim_catalog::Table;
use seriatim_engine::procedure::repair::Again;
use seriatim_procedure::Pack;
use seriatim_procedure::ir::OperationId;

use super::Schedule;
use crate::scan::{Limit, Steps};
use crate::{Abort, Tx};

/// Results that the first chunk holds; each next one holds twice as many.
const FIRST: usize = 4;
/// Chunks: more results than memory has room for.
const CHUNKS: usize = 32;

/// The results of one operation, in the order in which they came. They stay where they are up to the end of the execution, also
/// those that are void, so that rows can be lent out of them and results of other operations can refer to them.
pub struct Results<T> {
    chunks: [OnceCell<Box<[OnceCell<T>]>>; CHUNKS],
    /// How many were kept, with those that are void.
    kept: Cell<usize>,
    /// The first that is not void.
    first: Cell<usize>,
    /// How many were given or kept in this pass.
    next: Cell<usize>,
    /// Where each is, if some were made again: else they are in order, from the first on.
    places: RefCell<Vec<usize>>,
}

/// The chunk of a result, and where it is there.
fn place(at: usize) -> (usize, usize) {
    let chunk = (at / FIRST + 1).ilog2() as usize;
    (chunk, at - FIRST * ((1 << chunk) - 1))
}

impl<T> Results<T> {
    /// No results.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Results<T> {
        let chunks = [const { OnceCell::new() }; CHUNKS];
        let places = RefCell::new(Vec::new());
        Results { chunks, kept: Cell::new(0), first: Cell::new(0), next: Cell::new(0), places }
    }

    /// A pass begins. Results of runs that are made again in it are void.
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

    /// The number of the next result.
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

    /// The next result of an earlier pass.
    ///
    /// # Panics
    /// If there is none: an operation that was to stay as it was came more often than before.
    pub fn again(&self) -> &T {
        let number = self.advance();
        let (chunk, at) = place(self.places.borrow().get(number).copied().unwrap_or(self.first.get() + number));
        let kept = self.chunks[chunk].get().and_then(|chunk| chunk[at].get());
        kept.expect("an operation is reached as often as in the pass in which it ran")
    }
}

/// The next row of a scan: of the running one, or, if there is none, of the results of an earlier pass. A scan that ended kept
/// that it did.
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
    if !schedule.is_part() {
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

/// What an operation found, or its results, on the way to other fragments and from them. Not all can go it: what an update gives may refer
/// to arguments. Which it is, the compiler finds out: it takes the first of the traits that the type has.
pub struct Carried<V>(pub V);

/// What can be carried.
pub trait Carry {
    /// An operation has found it.
    fn note(&self, schedule: &Schedule<'_>, operation: OperationId);
}

impl<T: Pack> Carry for Carried<&T> {
    fn note(&self, schedule: &Schedule<'_>, operation: OperationId) {
        schedule.carries(operation, self.0);
    }
}

/// What can be carried, on its way back.
pub trait CarryBack<'r, T> {
    /// The result of an operation that does not run now.
    ///
    /// # Errors
    /// Another fragment gave what is no such result.
    fn recall(&self, tx: &Tx, schedule: &Schedule<'_>, operation: OperationId) -> Result<&'r T, Abort>;
}

impl<'r, T: Pack> CarryBack<'r, T> for Carried<&'r Results<T>> {
    fn recall(&self, tx: &Tx, schedule: &Schedule<'_>, operation: OperationId) -> Result<&'r T, Abort> {
        schedule.recalled(tx, operation, self.0)
    }
}

/// What cannot.
pub trait CarryNot {
    /// As [`Carry::note`].
    fn note(&self, schedule: &Schedule<'_>, operation: OperationId);
}

impl<T> CarryNot for &Carried<&T> {
    fn note(&self, schedule: &Schedule<'_>, operation: OperationId) {
        schedule.carries_not(operation);
    }
}

/// What cannot, on its way back.
pub trait CarryNotBack<'r, T> {
    /// As [`CarryBack::recall`], of an earlier pass only.
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

/// The result of a step, to be kept; without one, the next that was.
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

/// A variable, with or without a value yet.
pub struct Slot<T>(Option<T>);

impl<T> Slot<T> {
    /// Without a value.
    #[allow(clippy::new_without_default)]
    #[inline(always)]
    pub fn new() -> Slot<T> {
        Slot(None)
    }

    /// Gives it a value.
    #[inline(always)]
    pub fn set(&mut self, value: T) {
        self.0 = Some(value);
    }

    /// Looks at its value.
    ///
    /// # Panics
    /// If it has none.
    #[inline(always)]
    pub fn get(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => early(),
        }
    }

    /// Its value, to be changed.
    ///
    /// # Panics
    /// If it has none.
    #[inline(always)]
    pub fn get_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(value) => value,
            None => early(),
        }
    }
}

impl<T: Clone> Slot<T> {
    /// Its value.
    ///
    /// # Panics
    /// If it has none.
    #[inline(always)]
    pub fn value(&self) -> T {
        self.get().clone()
    }
}

#[cold]
fn early() -> ! {
    panic!("a step runs after those that give its variables their values")
}

/// A part of a slot's value, to be taken. A type of its own, so that what is expected of the value does not change how it is
/// taken.
pub struct Taken<'s, T>(pub &'s T);

impl<T: Clone> Taken<'_, T> {
    /// The value.
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
    #[should_panic(expected = "as often as in the pass in which it ran")]
    fn what_was_not_kept_does_not_come_again() {
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
