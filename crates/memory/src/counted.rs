//! Lists that grow with a transaction: its reads, its writes, its locks.
//!
//! They are on the process's heap, not in blocks of this crate: large ones come and go as a whole. Their growth counts
//! against the limit all the same. The growth of a list may be refused, at a bound somewhat above that of rows
//! ([`Options::limit_bytes`](crate::Options::limit_bytes)). So reads and deletes continue when no row fits any more.
//!
//! A list returns the memory of a large transaction after [`SMALL_MAX`] transactions in a row that needed less than a
//! quarter of it. It does so at once when its worker rests, or when memory has just been refused. (To return it after
//! each small transaction would be worse: a worker that runs one large transaction in ten would pay for growing each
//! time.)

use seriatim_base::size::Size;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::memory::Shared;
use crate::{OutOfMemory, small};

/// Bytes that a list keeps however small the transactions are.
const KEPT_BYTES: Size = small(64 << 10, 1 << 10);
/// Transactions in a row that need less than a quarter of a list, after which the rest is given back.
const SMALL_MAX: u32 = 16;

/// Bytes that count against the limit, given back when dropped.
#[derive(Debug)]
pub struct Charge {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Charge {
    pub(crate) fn new(shared: Arc<Shared>) -> Charge {
        Charge { shared, bytes: 0 }
    }

    /// Bytes charged now.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges this many bytes instead, whatever the limit.
    pub fn set(&mut self, bytes: usize) {
        self.shared.heap.note(self.bytes, bytes);
        self.bytes = bytes;
    }

    /// Charges this many bytes instead, if the bound for lists allows it.
    ///
    /// # Errors
    /// At that bound.
    pub fn try_set(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        self.shared.heap.try_note(self.bytes, bytes)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A list of a transaction's notes; it dereferences to a slice of them.
#[derive(Debug)]
pub struct CountedVec<T> {
    items: Vec<T>,
    /// Items it has room for from the start; these are not counted.
    room_min: usize,
    /// Whether it has room for more than [`KEPT_BYTES`].
    is_large: bool,
    /// Transactions in a row that needed little of it.
    small: u32,
    charge: Charge,
}

impl<T> CountedVec<T> {
    pub(crate) fn new(shared: Arc<Shared>, room_min: usize) -> CountedVec<T> {
        let (items, charge) = (Vec::with_capacity(room_min), Charge::new(shared));
        let mut list = CountedVec { items, room_min, is_large: false, small: 0, charge };
        list.measure();
        list
    }

    /// Makes room for one item more.
    ///
    /// # Errors
    /// At the bound for such lists.
    #[inline(always)]
    pub fn reserve_one(&mut self) -> Result<(), OutOfMemory> {
        if self.items.len() == self.items.capacity() { self.grow() } else { Ok(()) }
    }

    /// Appends an item.
    ///
    /// # Errors
    /// At the bound for such lists.
    #[inline(always)]
    pub fn try_push(&mut self, item: T) -> Result<(), OutOfMemory> {
        self.reserve_one()?;
        self.items.push(item);
        Ok(())
    }

    /// Appends an item if there is room for it now.
    #[inline(always)]
    pub fn push_within(&mut self, item: T) -> Option<()> {
        self.items.spare_capacity_mut().first_mut()?.write(item);
        // SAFETY: the item was written behind the last one.
        unsafe { self.items.set_len(self.items.len() + 1) };
        Some(())
    }

    /// Appends an item, whatever the bound. It is for lists that are as long as others, which would have been refused
    /// before, and for items that must be noted.
    #[inline(always)]
    pub fn push(&mut self, item: T) {
        if self.items.len() == self.items.capacity() {
            self.grow_anyway();
        }
        self.items.push(item);
    }

    #[cold]
    fn grow(&mut self) -> Result<(), OutOfMemory> {
        let room = (2 * self.items.capacity()).max(8);
        self.charge.try_set((room - self.room_min) * size_of::<T>())?;
        self.items.reserve_exact(room - self.items.len());
        self.measure();
        Ok(())
    }

    #[cold]
    fn grow_anyway(&mut self) {
        let room = (2 * self.items.capacity()).max(8);
        self.charge.set((room - self.room_min) * size_of::<T>());
        self.items.reserve_exact(room - self.items.len());
        self.measure();
    }

    fn measure(&mut self) {
        self.is_large = self.items.capacity() * size_of::<T>() > KEPT_BYTES.get();
    }

    /// Whether it has room for so much that [`CountedVec::clear`] may give some back.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.is_large
    }

    /// Holds `len` copies of `item` instead, in room for no more, whatever the bound.
    pub fn reset(&mut self, len: usize, item: T)
    where
        T: Clone,
    {
        self.items.clear();
        self.items.shrink_to(len.max(self.room_min));
        self.charge.set(len.saturating_sub(self.room_min) * size_of::<T>());
        self.items.resize(len, item);
        self.measure();
    }

    /// Items that there is room for.
    #[inline]
    pub fn room(&self) -> usize {
        self.items.capacity()
    }

    /// Takes the last item out.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop()
    }

    /// Drops all items but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
    }

    /// Drops the items that do not fit.
    pub fn retain(&mut self, fits: impl FnMut(&T) -> bool) {
        self.items.retain(fits);
    }

    /// Likewise; those that stay may be changed.
    pub fn retain_mut(&mut self, fits: impl FnMut(&mut T) -> bool) {
        self.items.retain_mut(fits);
    }

    /// Drops all items, at the end of a transaction or before the next one.
    #[inline(always)]
    pub fn clear(&mut self) {
        if self.is_large {
            self.settle();
        }
        self.items.clear();
    }

    #[cold]
    fn settle(&mut self) {
        self.small = if self.items.len() < self.items.capacity() / 4 { self.small + 1 } else { 0 };
        if self.small >= SMALL_MAX || self.charge.shared.heap.is_tight() {
            self.items.clear();
            self.shrink_to(self.room_min.max(KEPT_BYTES.get() / size_of::<T>().max(1)));
        }
    }

    /// Drops all items and gives all back that it has grown by: its worker rests.
    pub fn rest(&mut self) {
        self.items.clear();
        if self.charge.bytes() > 0 {
            self.shrink_to(self.room_min);
        }
    }

    #[cold]
    fn shrink_to(&mut self, room: usize) {
        self.small = 0;
        self.items.shrink_to(room);
        self.charge.set(self.items.capacity().saturating_sub(self.room_min) * size_of::<T>());
        self.measure();
    }
}

impl<T> Deref for CountedVec<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> DerefMut for CountedVec<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}
