//! The stream in every interleaving and under every reordering that the memory model allows, by loom: chunks of one and two bytes.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-redo --release --lib loom`.

use super::*;
use loom::thread;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The producer publishes `pieces` one after the other; the consumer looks `looks` times, and once more after the producer's end.
fn passes(chunk_bytes: usize, pieces: &'static [&'static [u8]], looks: usize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let (mut producer, mut consumer) = stream(chunk_bytes);
        let written = thread::spawn(move || {
            for piece in pieces {
                producer.write(piece);
                producer.publish();
            }
            producer
        });
        let mut read = Vec::new();
        let mut look = |consumer: &mut Consumer| {
            let available = consumer.available() as usize;
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
    check(passes(2, &[b"a", b"bc", b"d"], 2));
}

#[test]
fn loom_chunks_are_used_again_only_after_they_were_read() {
    check(passes(1, &[b"a", b"b", b"c", b"d"], 3));
}
