//! Which columns are read and set, for checks of what a plan says: in builds with debug assertions only.
//!
//! A thread that watches notes every column it reads or sets through its place, by the address of the row image. Without debug
//! assertions nothing is noted and accessors are a load and nothing else.

use std::cell::{Cell, RefCell};

use seriatim_base::ColumnId;

/// A column of a row was read or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The address of the row image.
    pub row: usize,
    /// The column.
    pub column: ColumnId,
    /// Whether it was set.
    pub set: bool,
}

thread_local! {
    static WATCHING: Cell<bool> = const { Cell::new(false) };
    static TOUCHED: RefCell<Vec<Touched>> = const { RefCell::new(Vec::new()) };
}

/// Whether this build can watch.
pub const AVAILABLE: bool = cfg!(debug_assertions);

/// Begins to note, from nothing.
pub fn start() {
    TOUCHED.with_borrow_mut(Vec::clear);
    WATCHING.set(AVAILABLE);
}

/// Ends noting; what was noted since [`start`].
pub fn stop() -> Vec<Touched> {
    WATCHING.set(false);
    TOUCHED.take()
}

/// Runs `work`, which is not watched.
pub fn unwatched<R>(work: impl FnOnce() -> R) -> R {
    if !AVAILABLE {
        return work();
    }
    let watching = WATCHING.replace(false);
    let result = work();
    WATCHING.set(watching);
    result
}

/// Notes, if this thread watches.
#[inline(always)]
pub(crate) fn note(row: *const u8, column: u16, set: bool) {
    if AVAILABLE && WATCHING.get() {
        TOUCHED.with_borrow_mut(|touched| touched.push(Touched { row: row.addr(), column: ColumnId(column), set }));
    }
}
