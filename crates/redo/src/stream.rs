//! Streams: bytes from one worker to its logger, without a lock.
//!
//! A stream is a chain of chunks with one producer and one consumer. The producer fills its chunk, links
//! another one when it is full, and never waits. The consumer reads up to the published point. Chunks that the
//! consumer has left are reused. (This is Vyukov's unbounded single-producer, single-consumer queue with its
//! cache of nodes; a node is a chunk of bytes.)
//!
//! ```text
//!  first ──► … ──► tail ──► … ──► head
//!  free chunks     the consumer's  the producer's
//! ```
//! Access rules:
//! 1. The consumer reads the bytes of a chunk below the published point, the producer writes those above it.
//! 2. The producer writes the `next` of a chunk before it publishes anything beyond the chunk. It also does so when it
//!    takes the chunk from the front of the chain. It takes only chunks before `tail`.
//! 3. The consumer moves `tail`, after its last read of the chunk that it leaves.
//! 4. The producer uses `first`. It is shared so that whichever end is dropped last can free the chain.

use crate::sync::{Arc, AtomicPtr, AtomicU64, Bytes, Ordering};
use seriatim_base::CacheAligned;
use std::ptr;

/// Chunks that a stream keeps for reuse, whether or not it still needs them. Others are freed one at a time. 64
/// chunks of 64 KiB are 4 MiB, which a worker at full speed logs in about 10 ms.
const CHUNKS_KEPT: usize = 64;

#[derive(Debug)]
struct Chunk {
    next: AtomicPtr<Chunk>,
    bytes: Bytes,
}

#[derive(Debug)]
struct Shared {
    /// Bytes the producer has published since the stream began.
    published: CacheAligned<AtomicU64>,
    /// The chunk that the consumer reads.
    tail: CacheAligned<AtomicPtr<Chunk>>,
    first: CacheAligned<AtomicPtr<Chunk>>,
}

/// The writing end.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    /// The chunk being filled, and how many of its bytes are filled.
    head: *mut Chunk,
    filled: usize,
    chunk_bytes: usize,
    /// The chunk that the consumer was reading when `tail` was last loaded.
    tail_seen: *mut Chunk,
    /// Chunks in the chain.
    chunks: usize,
    /// Bytes written since the stream began.
    written: u64,
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    tail: *mut Chunk,
    /// Bytes of `tail` that were read.
    left: usize,
    chunk_bytes: usize,
    /// Bytes read since the stream began.
    read: u64,
}

// SAFETY: the pointers lead to chunks of the chain, which lives as long as either end. Rules 1 to 4 separate
// the accesses of the two ends, on whichever threads they are.
unsafe impl Send for Producer {}
// SAFETY: as for `Producer`.
unsafe impl Send for Consumer {}

/// Makes a stream with chunks of `chunk_bytes` bytes, which is at least one.
pub fn stream(chunk_bytes: usize) -> (Producer, Consumer) {
    assert!(chunk_bytes > 0, "a chunk has at least one byte");
    let chunk = Chunk::allocate(chunk_bytes);
    let shared = Arc::new(Shared {
        published: CacheAligned(AtomicU64::new(0)),
        tail: CacheAligned(AtomicPtr::new(chunk)),
        first: CacheAligned(AtomicPtr::new(chunk)),
    });
    let other = Arc::clone(&shared);
    let producer = Producer { shared, head: chunk, filled: 0, chunk_bytes, tail_seen: chunk, chunks: 1, written: 0 };
    (producer, Consumer { shared: other, tail: chunk, left: 0, chunk_bytes, read: 0 })
}

impl Producer {
    /// Appends bytes, which stay invisible to the consumer until [`Producer::publish`]. Never waits.
    pub fn write(&mut self, mut bytes: &[u8]) {
        self.written += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.filled == self.chunk_bytes {
                self.link();
            }
            let (now, rest) = bytes.split_at(bytes.len().min(self.chunk_bytes - self.filled));
            // SAFETY: `head` is a chunk of the chain; these bytes are above the published point (rule 1).
            unsafe { (*self.head).bytes.write(self.filled, now) };
            self.filled += now.len();
            bytes = rest;
        }
    }

    /// Makes everything written so far visible to the consumer.
    pub fn publish(&mut self) {
        // ORDERING: pairs with the acquire in `Consumer::available`, for the bytes and for the links between chunks.
        self.shared.published.store(self.written, Ordering::Release);
    }

    /// Bytes written since the stream began.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Frees the chunks that a burst needed and the consumer has read. Called after a time without writes.
    pub fn rest(&mut self) {
        while self.chunks > CHUNKS_KEPT
            && let Some(spare) = self.unlink_free()
        {
            self.free(spare);
        }
    }

    fn free(&mut self, chunk: *mut Chunk) {
        // SAFETY: it came from `Chunk::allocate`, and neither the chain nor the consumer refers to it any more.
        drop(unsafe { Box::from_raw(chunk) });
        self.chunks -= 1;
    }

    /// Puts an empty chunk at the head of the chain.
    fn link(&mut self) {
        let chunk = self.take_free().unwrap_or_else(|| {
            self.chunks += 1;
            Chunk::allocate(self.chunk_bytes)
        });
        // SAFETY: both are chunks of the chain, or new. Nothing beyond `head` is published yet (rule 2).
        unsafe { (*self.head).next.store(chunk, Ordering::Relaxed) };
        self.head = chunk;
        self.filled = 0;
    }

    /// The chunk at the front of the chain, if the consumer has left it.
    fn take_free(&mut self) -> Option<*mut Chunk> {
        let taken = self.unlink_free()?;
        if self.chunks > CHUNKS_KEPT
            && let Some(spare) = self.unlink_free()
        {
            self.free(spare);
        }
        Some(taken)
    }

    fn unlink_free(&mut self) -> Option<*mut Chunk> {
        let first = self.shared.first.load(Ordering::Relaxed);
        if first == self.tail_seen {
            // ORDERING: pairs with the release in `Consumer::read`: the consumer no longer reads the chunks
            // before `tail`.
            self.tail_seen = self.shared.tail.load(Ordering::Acquire);
            if first == self.tail_seen {
                return None;
            }
        }
        // SAFETY: chunks before `tail` are the producer's (rule 2).
        let next = unsafe { (*first).next.swap(ptr::null_mut(), Ordering::Relaxed) };
        self.shared.first.store(next, Ordering::Relaxed);
        Some(first)
    }
}

impl Consumer {
    /// Bytes published and not yet read.
    pub fn available(&self) -> u64 {
        // ORDERING: pairs with the release in `Producer::publish`.
        self.shared.published.load(Ordering::Acquire) - self.read
    }

    /// Appends the next `bytes` bytes to `to`.
    ///
    /// # Panics
    /// When fewer are available.
    pub fn read(&mut self, bytes: usize, to: &mut Vec<u8>) {
        assert!(bytes as u64 <= self.available(), "only what is published is read");
        let mut missing = bytes;
        while missing > 0 {
            if self.left == self.chunk_bytes {
                // SAFETY: `tail` is a chunk of the chain. Bytes beyond it are published, so its `next` is set (rule 2).
                self.tail = unsafe { (*self.tail).next.load(Ordering::Relaxed) };
                self.left = 0;
                // ORDERING: pairs with the acquire in `Producer::unlink_free`.
                self.shared.tail.store(self.tail, Ordering::Release);
            }
            let now = missing.min(self.chunk_bytes - self.left);
            // SAFETY: `tail` is a chunk of the chain; these bytes are below the published point (rule 1).
            unsafe { (*self.tail).bytes.read(self.left, now, to) };
            self.left += now;
            missing -= now;
        }
        self.read += bytes as u64;
    }

    /// Bytes read since the stream began.
    pub fn consumed(&self) -> u64 {
        self.read
    }
}

impl Chunk {
    fn allocate(bytes: usize) -> *mut Chunk {
        Box::into_raw(Box::new(Chunk { next: AtomicPtr::new(ptr::null_mut()), bytes: Bytes::new(bytes) }))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // ORDERING: dropping the last `Arc` happens after every access of either end.
        let mut chunk = self.first.load(Ordering::Relaxed);
        while !chunk.is_null() {
            // SAFETY: all chunks of the chain came from `Chunk::allocate`, and both ends are gone.
            let owned = unsafe { Box::from_raw(chunk) };
            chunk = owned.next.load(Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model;
#[cfg(all(test, not(loom)))]
mod tests;
