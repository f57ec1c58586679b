//! Model-checks the stream with loom, in every interleaving and under every reordering that the memory model
//! allows. Chunks have one or two bytes.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-redo --release --lib loom`.

use super::*;
use loom::thread;

/// The fault of a broken stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The published point may become visible before the bytes.
    PublishRelaxed,
    /// The consumer releases its chunk before it has read it.
    LeavesBeforeReading,
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The producer publishes `pieces` one after the other. The consumer looks `looks` times, and once more after
/// the producer has ended.
fn passes(
    broken: Broken,
    chunk_bytes: usize,
    pieces: &'static [&'static [u8]],
    looks: usize,
) -> impl Fn() + Sync + Send + 'static {
    move || {
        let (mut producer, mut consumer) = stream(chunk_bytes);
        let written = thread::spawn(move || {
            for piece in pieces {
                producer.write(piece);
                match broken {
                    Broken::PublishRelaxed => producer.shared.published.store(producer.written, Ordering::Relaxed),
                    _ => producer.publish(),
                }
            }
            producer
        });
        let mut read = Vec::new();
        let mut look = |consumer: &mut Consumer| {
            let available = consumer.available() as usize;
            if broken == Broken::LeavesBeforeReading && available > chunk_bytes {
                // SAFETY: `tail` is a chunk of the chain.
                let next = unsafe { (*consumer.tail).next.load(Ordering::Relaxed) };
                consumer.shared.tail.store(next, Ordering::Release);
            }
            consumer.read(available, &mut read);
            let whole = pieces.concat();
            assert!(whole.starts_with(&read), "in order");
            let ends: Vec<_> = (0..=pieces.len()).map(|n| pieces[..n].concat().len()).collect();
            assert!(ends.contains(&read.len()), "whole pieces");
            read.len() == whole.len()
        };
        for _ in 0..looks {
            look(&mut consumer);
        }
        let producer = written.join().expect("the producer");
        assert!(look(&mut consumer), "everything arrives");
        drop((producer, consumer));
    }
}

#[test]
fn loom_pieces_arrive_whole_and_in_order() {
    check(passes(Broken::Nothing, 2, &[b"a", b"bc", b"d"], 2));
}

#[test]
fn loom_chunks_are_used_again_only_after_they_were_read() {
    check(passes(Broken::Nothing, 1, &[b"a", b"b", b"c", b"d"], 3));
}

#[test]
fn loom_broken_streams_are_caught() {
    for broken in [Broken::PublishRelaxed, Broken::LeavesBeforeReading] {
        let model = passes(broken, 1, &[b"a", b"b", b"c", b"d"], 2);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(model))).is_err(), "{broken:?}");
    }
}
