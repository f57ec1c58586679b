//! Notes which columns are read and set, for checks of plans and of callers: in builds with debug assertions
//! only.
//!
//! A row that was requested with some of its columns panics when another one is read or set. A thread that
//! watches notes every column that it reads or sets through its place, by the address of the row version.
//! Without debug assertions nothing is checked or noted and accessors are a load and nothing else.

use std::cell::{Cell, RefCell};

use seriatim_base::ColumnId;

use crate::ColumnSet;

/// A column of a row was read or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The address of the row version.
    pub row: usize,
    /// The column.
    pub column: ColumnId,
    /// Whether it was set.
    pub set: bool,
}

thread_local! {
    static WATCHING: Cell<bool> = const { Cell::new(false) };
    static UNWATCHED: Cell<bool> = const { Cell::new(false) };
    static TOUCHED: RefCell<Vec<Touched>> = const { RefCell::new(Vec::new()) };
}

/// Whether this build can watch.
pub const AVAILABLE: bool = cfg!(debug_assertions);

/// Begins to note, from nothing.
pub fn start() {
    TOUCHED.with_borrow_mut(Vec::clear);
    WATCHING.set(AVAILABLE);
}

/// Ends noting. Returns the notes since [`start`].
pub fn stop() -> Vec<Touched> {
    WATCHING.set(false);
    TOUCHED.take()
}

/// Runs `work`, which is neither watched nor checked: its reads are no use of the row.
pub fn unwatched<R>(work: impl FnOnce() -> R) -> R {
    if !AVAILABLE {
        return work();
    }
    let before = UNWATCHED.replace(true);
    let result = work();
    UNWATCHED.set(before);
    result
}

/// Checks that a column is among those that were requested with the row, and notes it if this thread watches.
///
/// # Panics
/// In builds with debug assertions, if it is not.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn touch(row: *const u8, named: Named, column: u16, set: bool) {
    if !AVAILABLE || UNWATCHED.get() {
        return;
    }
    let (column, verb) = (ColumnId(column), if set { "set" } else { "read" });
    let named = named.columns();
    assert!(named.contains(column), "{column:?} is {verb}, and the row was asked for with columns {named:?} only");
    if WATCHING.get() {
        TOUCHED.with_borrow_mut(|touched| touched.push(Touched { row: row.addr(), column, set }));
    }
}

/// The columns that were requested with a row: kept in builds with debug assertions, nothing in others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    #[cfg(debug_assertions)]
    columns: ColumnSet,
}

impl Named {
    /// Every column.
    pub(crate) const ALL: Named = Named::new(ColumnSet::ALL);

    #[inline(always)]
    #[allow(unused_variables, reason = "used with debug assertions")]
    pub(crate) const fn new(columns: ColumnSet) -> Named {
        Named {
            #[cfg(debug_assertions)]
            columns,
        }
    }

    #[inline(always)]
    fn columns(self) -> ColumnSet {
        #[cfg(debug_assertions)]
        return self.columns;
        #[cfg(not(debug_assertions))]
        ColumnSet::ALL
    }
}

#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Named>() == 0);
