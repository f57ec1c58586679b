//! Cache-line alignment, against false sharing.

/// Bytes in a cache line on every processor that we build for. (ARM64 macOS prefetches 128, which only costs
/// false sharing there.)
pub const CACHE_LINE: usize = 64;

/// Aligns `T` to its own cache lines: two of them, because adjacent-line prefetchers fetch lines in pairs.
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
