//! Prefetches cache lines that will be read soon.

/// Prefetches the line at `address`, which need not be mapped.
#[inline(always)]
pub fn line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads no memory and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Prefetches the first of the `bytes` bytes at `address`: one line at least, and `MAX` bytes at most.
#[inline(always)]
pub fn first_lines<const MAX: usize>(address: *const u8, bytes: usize) {
    for begin in (0..MAX).step_by(crate::CACHE_LINE) {
        line(address.wrapping_add(begin));
        if begin + crate::CACHE_LINE >= bytes {
            break;
        }
    }
}

/// Prefetches the `bytes` bytes at `address`.
#[inline(always)]
pub fn lines(address: *const u8, bytes: usize) {
    for index in 0..bytes.div_ceil(crate::CACHE_LINE) {
        line(address.wrapping_add(index * crate::CACHE_LINE));
    }
}
