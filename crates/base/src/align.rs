//! Cache-line alignment, against false sharing.

/// Bytes in a cache line on every processor we build for (ARM64 macOS prefetches 128, which costs only false
/// sharing there).
pub const CACHE_LINE: usize = 64;

/// Puts `T` alone on its cache lines. Two lines, because adjacent-line prefetchers pull lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CacheAligned<T>(pub T);

impl<T> std::ops::Deref for CacheAligned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> std::ops::DerefMut for CacheAligned<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
