//! Streams: bytes from one worker to its logger, without a lock.
//!
//! One producer, one consumer, a chain of chunks. The producer fills its chunk, links another when it is full,
//! and never waits; the consumer reads up to the published point. Chunks that the consumer has left are used
//! again. (Vyukov's unbounded queue for one producer and one consumer with its cache of nodes, with chunks of
//! bytes for nodes.)
//!
//! ```text
//!  first ──► … ──► tail ──► … ──► head
//!  free chunks     the consumer's  the producer's
//! ```
//! Which side may touch what:
//! 1. A chunk's bytes below the published point are the consumer's to read, those above it the producer's to write.
//! 2. A chunk's `next` is written by the producer, before it publishes anything beyond the chunk, and when it
//!    takes the chunk from the front of the chain, which it does only with chunks before `tail`.
//! 3. `tail` is moved by the consumer, after its last read of the chunk that it leaves.
//! 4. `first` is the producer's; shared only so that the last of the two can free the chain.

use crate::sync::{Arc, AtomicPtr, AtomicU64, Bytes, Ordering};
use seriatim_base::CacheAligned;
use std::ptr;

/// Chunks that a stream keeps for reuse once it needed as many, whether or not it needs them now. More are
/// given back one at a time: 4 MiB of chunks of 64 KiB stay, which is what a worker logs in about 10 ms at full
/// speed.
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
    /// The chunk the consumer is in.
    tail: CacheAligned<AtomicPtr<Chunk>>,
    first: CacheAligned<AtomicPtr<Chunk>>,
}

/// The end that is written.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    /// The chunk being filled, and how far it is.
    head: *mut Chunk,
    filled: usize,
    chunk_bytes: usize,
    /// The chunk the consumer was in when last asked.
    tail_seen: *mut Chunk,
    /// In the chain.
    chunks: usize,
    /// Since the stream began.
    written: u64,
}

/// The end that is read.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    tail: *mut Chunk,
    /// Bytes of `tail` that were read.
    left: usize,
    chunk_bytes: usize,
    /// Since the stream began.
    read: u64,
}

// SAFETY: the pointers are to chunks of the chain, which lives as long as either end; rules 1 to 4 say who
// touches what, whichever threads the two ends are on.
unsafe impl Send for Producer {}
// SAFETY: as for `Producer`.
unsafe impl Send for Consumer {}

/// A stream whose chunks hold `chunk_bytes` bytes, at least one.
pub fn stream(chunk_bytes: usize) -> (Producer, Consumer) {
    assert!(chunk_bytes > 0, "a chunk holds something");
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
    /// Adds bytes, which the consumer does not see yet. Never waits.
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

    /// Makes all that was written visible to the consumer.
    pub fn publish(&mut self) {
        // ORDERING: pairs with the acquire in `Consumer::available`: the bytes, and the links between their chunks.
        self.shared.published.store(self.written, Ordering::Release);
    }

    /// Bytes written since the stream began.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Gives chunks back that a burst has needed, as far as they are read, when nothing has been written for a while.
    pub fn rest(&mut self) {
        while self.chunks > CHUNKS_KEPT
            && let Some(spare) = self.unlink_free()
        {
            self.free(spare);
        }
    }

    fn free(&mut self, chunk: *mut Chunk) {
        // SAFETY: it came from `Chunk::allocate`, and neither the chain nor the consumer knows it any more.
        drop(unsafe { Box::from_raw(chunk) });
        self.chunks -= 1;
    }

    /// Puts an empty chunk at the head of the chain.
    fn link(&mut self) {
        let chunk = self.take_free().unwrap_or_else(|| {
            self.chunks += 1;
            Chunk::allocate(self.chunk_bytes)
        });
        // SAFETY: both are chunks of the chain or new; nothing beyond `head` is published yet (rule 2).
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
            // ORDERING: pairs with the release in `Consumer::read`: its reads of the chunks before `tail` are over.
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
                // SAFETY: `tail` is a chunk of the chain, and something beyond it is published, so that its
                // `next` is there (rule 2).
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
        // ORDERING: dropping the last `Arc` comes after all that either end did.
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
