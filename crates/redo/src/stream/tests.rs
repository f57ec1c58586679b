//! Streams: what is written is read, whole and in order.

use super::*;
use seriatim_base::{Rng, thread};

#[test]
fn unpublished_bytes_are_not_seen() {
    let (mut producer, mut consumer) = stream(4);
    producer.write(b"abcdefghij");
    assert_eq!(consumer.available(), 0);
    producer.publish();
    producer.write(b"k");
    assert_eq!(consumer.available(), 10);
    let mut read = Vec::new();
    consumer.read(10, &mut read);
    assert_eq!((&*read, consumer.consumed(), producer.written()), (&b"abcdefghij"[..], 10, 11));
}

#[test]
fn chunks_are_used_again_and_a_burst_is_given_back() {
    let (mut producer, mut consumer) = stream(4);
    let mut read = Vec::new();
    let turn = |bytes: usize, producer: &mut Producer, consumer: &mut Consumer, read: &mut Vec<u8>| {
        producer.write(&vec![7; bytes]);
        producer.publish();
        consumer.read(bytes, read);
    };
    for _ in 0..1000 {
        turn(10, &mut producer, &mut consumer, &mut read);
    }
    assert!(producer.chunks <= 5, "{} chunks for 10 bytes at a time", producer.chunks);
    turn(4 * 10 * CHUNKS_KEPT, &mut producer, &mut consumer, &mut read);
    assert!(producer.chunks >= 10 * CHUNKS_KEPT);
    for _ in 0..20 * CHUNKS_KEPT {
        turn(10, &mut producer, &mut consumer, &mut read);
    }
    assert!(producer.chunks <= CHUNKS_KEPT, "{} chunks stay", producer.chunks);
    turn(4 * 10 * CHUNKS_KEPT, &mut producer, &mut consumer, &mut read);
    producer.write(b"not read yet");
    producer.rest();
    assert!(producer.chunks <= CHUNKS_KEPT, "{} chunks stay at rest", producer.chunks);
    producer.publish();
    read.clear();
    consumer.read(12, &mut read);
    assert_eq!(read, b"not read yet");
}

#[test]
fn two_threads_pass_every_byte_once_and_in_order() {
    const BYTES: u64 = 2_000_000;
    let seed = 4;
    println!("seed {seed}");
    for chunk_bytes in [1, 7, 256] {
        let (mut producer, mut consumer) = stream(chunk_bytes);
        let written = thread::spawn("producer", move || {
            let mut rng = Rng::from_seed(seed);
            let mut at = 0;
            while at < BYTES {
                let more = (1 + rng.below(300)).min(BYTES - at);
                let bytes: Vec<u8> = (at..at + more).map(|i| (i % 251) as u8).collect();
                producer.write(&bytes);
                if rng.below(3) == 0 || at + more == BYTES {
                    producer.publish();
                }
                at += more;
            }
            producer
        });
        let mut read = Vec::new();
        while consumer.consumed() < BYTES {
            match consumer.available() {
                0 => thread::yield_now(),
                available => consumer.read(available as usize, &mut read),
            }
        }
        assert!(read.iter().zip(0..).all(|(&byte, i): (_, u64)| byte == (i % 251) as u8), "in order");
        drop(written.expect("a thread").join().expect("the producer"));
    }
}
