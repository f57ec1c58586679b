//! The platform interface to the operating system's memory: map, advise, touch, unmap.
//!
//! A map is aligned to a huge page when it holds one. So the kernel can back it by huge pages from the first touch on.
//! The crate calls nothing else of the system. Under Miri and outside Unix it uses the standard allocator instead.

use std::ptr::NonNull;

use seriatim_base::size::Size;

use crate::small;

/// Bytes of a huge page, and the alignment of maps that hold one.
pub(crate) const HUGE: usize = 2 << 20;
/// Maps are multiples of this: the largest page the target's kernels use.
pub(crate) const PAGE_MAX: usize = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };
/// One byte in this many is written to bring memory in: the smallest page of any target.
const PAGE_MIN: usize = 4 << 10;
/// The smallest map for which huge pages are requested. In tests databases are many and short-lived: zeroing a
/// huge page for each is a third of their time.
const HUGE_FROM: Size = small(HUGE, 2 * HUGE);

const _: () = assert!(HUGE.is_multiple_of(PAGE_MAX) && PAGE_MAX.is_multiple_of(PAGE_MIN));

/// Zeroed memory of our own, given back when dropped.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a map is memory that nothing else refers to; it is tied to no thread.
unsafe impl Send for Map {}

impl Map {
    /// Maps at least `bytes`, untouched. `None` when the system refuses or `bytes` overflow.
    pub(crate) fn new(bytes: usize, huge_pages: bool) -> Option<Map> {
        let bytes = Map::rounded(bytes)?;
        let align = align(bytes);
        let start = map(bytes, align)?;
        if huge_pages && bytes >= HUGE_FROM.get() {
            advise_huge(start, bytes);
        }
        Some(Map { start, bytes })
    }

    /// Where it starts; a multiple of [`HUGE`] if it holds a huge page, else of [`PAGE_MAX`].
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes mapped.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The size of the map that [`Map::new`] makes for a request; `None` on overflow.
    pub(crate) fn rounded(bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(PAGE_MAX)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with these bytes and not unmapped since; the owner that drops a map gave up
        // what lies in it.
        unsafe { unmap(self.start, self.bytes) };
    }
}

/// The alignment of a map of this many bytes.
const fn align(bytes: usize) -> usize {
    if bytes >= HUGE { HUGE } else { PAGE_MAX }
}

/// Brings memory in that was not used since it was mapped or returned, so that no thread faults on it later.
///
/// # Safety
/// The bytes are mapped, and no other reference to them exists.
pub(crate) unsafe fn touch(start: NonNull<u8>, bytes: usize) {
    let mut offset = 0;
    while offset < bytes {
        // SAFETY: inside the caller's bytes; volatile, or the write of a zero over a zero might be dropped.
        unsafe { start.as_ptr().add(offset).write_volatile(0) };
        offset += PAGE_MIN;
    }
}

/// The address at which a map is requested from the kernel: any.
#[cfg(all(unix, not(miri), not(feature = "simulate")))]
fn hint(_: usize) -> *mut libc::c_void {
    std::ptr::null_mut()
}

/// The address at which a map is requested from the kernel: behind the last one, from an address that no process uses.
/// So words have the same addresses in every process that does the same. An order by address is one by age of the map
/// and offset in it.
#[cfg(all(unix, not(miri), feature = "simulate"))]
fn hint(bytes: usize) -> *mut libc::c_void {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1 << 44);
    let room = bytes.next_multiple_of(HUGE);
    std::ptr::with_exposed_provenance_mut(NEXT.fetch_add(room, std::sync::atomic::Ordering::Relaxed))
}

#[cfg(all(unix, not(miri)))]
fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    // A kernel page of alignment comes by itself. For more, map more and cut off both ends.
    let slack = if align > PAGE_MAX { align } else { 0 };
    let total = bytes.checked_add(slack)?;
    // SAFETY: an anonymous map at an address of the kernel's choice.
    let whole = unsafe {
        libc::mmap(
            hint(total),
            total,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if whole == libc::MAP_FAILED {
        return None;
    }
    let whole = NonNull::new(whole.cast::<u8>())?;
    if slack == 0 {
        return Some(whole);
    }
    let before = whole.as_ptr().align_offset(align);
    // SAFETY: `before <= slack`, so `start + bytes` lies within the map; both cuts are multiples of a page.
    unsafe {
        let start = whole.add(before);
        if before > 0 {
            unmap(whole, before);
        }
        if slack > before {
            unmap(start.add(bytes), slack - before);
        }
        Some(start)
    }
}

#[cfg(all(unix, not(miri)))]
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's pages.
    let result = unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    debug_assert_eq!(result, 0, "munmap of our own pages");
}

/// Returns the pages of these bytes. The map stays; its contents are arbitrary until it is written again.
///
/// # Safety
/// The bytes are mapped, multiples of [`PAGE_MAX`] from one on, and their contents are no longer needed.
pub(crate) unsafe fn give_back(start: NonNull<u8>, bytes: usize) {
    #[cfg(all(unix, not(miri)))]
    // SAFETY: the caller's pages.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTNEED);
    }
    #[cfg(not(all(unix, not(miri))))]
    let _ = (start, bytes);
}

/// Asks for huge pages. A kernel that has none refuses, and small ones serve as well.
fn advise_huge(start: NonNull<u8>, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: advice on our own map, which changes no contents.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, bytes);
}

#[cfg(not(all(unix, not(miri))))]
fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let layout = std::alloc::Layout::from_size_align(bytes, align).ok()?;
    // SAFETY: `bytes` is not zero.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

#[cfg(not(all(unix, not(miri))))]
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    if let Ok(layout) = std::alloc::Layout::from_size_align(bytes, align(bytes)) {
        // SAFETY: allocated by `map` with this layout: `bytes` is rounded, as it was there.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_aligned_zeroed_and_writable_to_the_end() {
        for bytes in [1, PAGE_MAX, PAGE_MAX + 1, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE] {
            for huge_pages in [false, true] {
                let map = Map::new(bytes, huge_pages).expect("a few megabytes");
                assert!(map.bytes() >= bytes && Some(map.bytes()) == Map::rounded(bytes));
                assert!(map.start().as_ptr().addr().is_multiple_of(align(bytes)));
                // SAFETY: our own map.
                unsafe {
                    touch(map.start(), map.bytes());
                    let last = map.start().as_ptr().add(map.bytes() - 1);
                    assert_eq!(last.read(), 0);
                    last.write(7);
                }
            }
        }
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Map::new(usize::MAX, true).is_none());
        assert!(Map::new(usize::MAX / 2, true).is_none());
    }
}
