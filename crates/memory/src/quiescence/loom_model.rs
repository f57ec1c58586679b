//! The count protocol in every interleaving and under every reordering that the memory model allows, by loom.
//!
//! A reader comes online, follows the shared reference, leaves. A writer unlinks the old object, seals, and
//! frees it once the seal has passed. Objects are loom cells, which report every access that is not ordered
//! with the freeing. Readers come online by the code that ships, in both ways: by a store and a fence, and by
//! an exchange. Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-memory --release loom`.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const WRITER: usize = 0;

struct Shared {
    counts: Counts,
    /// Which object is linked.
    link: AtomicUsize,
    objects: [UnsafeCell<u32>; 2],
}

/// How readers come online.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Enter {
    StoreAndFence,
    Exchange,
}

const WAYS: [Enter; 2] = [Enter::StoreAndFence, Enter::Exchange];

/// The step that a broken protocol omits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    IgnoresOnline,
    SealsBeforeUnlinking,
    DoesNotEnter,
    EntersWithoutFence,
    EntersByWeakExchange,
}

const LINKED: u32 = 1;
const FREED: u32 = 2;

fn shared(readers: usize, broken: Broken) -> Arc<Shared> {
    let mut counts = Counts::new(1 + readers);
    counts.blind = broken == Broken::IgnoresOnline;
    (0..=readers).for_each(|worker| counts.admit(worker));
    Arc::new(Shared { counts, link: AtomicUsize::new(0), objects: [UnsafeCell::new(LINKED), UnsafeCell::new(LINKED)] })
}

fn read(shared: &Shared, worker: usize, transactions: usize, enter: Enter, broken: Broken) {
    let presence = shared.counts.presence(worker);
    let mut count = presence.resume();
    for _ in 0..transactions {
        match (broken, enter) {
            (Broken::DoesNotEnter, _) => {}
            (Broken::EntersWithoutFence, _) => {
                count = count.next();
                presence.0.store(count.0, Ordering::Release);
            }
            (Broken::EntersByWeakExchange, _) => {
                count = count.next();
                presence.0.swap(count.0, Ordering::AcqRel);
            }
            (_, Enter::StoreAndFence) => count = presence.enter_by::<false>(count),
            (_, Enter::Exchange) => count = presence.enter_by::<true>(count),
        }
        let at = shared.link.load(Ordering::Acquire);
        // SAFETY: the model checks that accesses are ordered.
        shared.objects[at].with(|object| assert_eq!(unsafe { *object }, LINKED, "read after free"));
        if broken != Broken::DoesNotEnter {
            count = presence.leave(count);
        }
    }
}

/// Replaces object 0 and frees it; gives up, as a worker does until its next transaction, when it is not time
/// after a few looks.
fn replace(shared: &Shared, broken: Broken) -> bool {
    let mut awaited = Vec::new();
    if broken == Broken::SealsBeforeUnlinking {
        shared.counts.seal(Some(WRITER), &mut awaited);
    }
    // Relaxed: the worst an unlinking store can be. Object 1 was initialised before the threads began.
    shared.link.store(1, Ordering::Relaxed);
    if broken != Broken::SealsBeforeUnlinking {
        shared.counts.seal(Some(WRITER), &mut awaited);
    }
    for _ in 0..2 {
        if shared.counts.passed(&mut awaited) {
            // SAFETY: the model checks that accesses are ordered.
            shared.objects[0].with_mut(|object| unsafe { *object = FREED });
            return true;
        }
        thread::yield_now();
    }
    false
}

/// `preemptions`: how often a thread may be interrupted in a schedule; `None`: any number of times.
fn model(readers: usize, transactions: usize, preemptions: Option<usize>, enter: Enter, broken: Broken) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let shared = shared(readers, broken);
        let threads: Vec<_> = (1..=readers)
            .map(|worker| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || read(&shared, worker, transactions, enter, broken))
            })
            .collect();
        let mut freed = replace(&shared, broken);
        for thread in threads {
            thread.join().expect("a reader");
        }
        if !freed {
            // All workers are offline: the grace period of a seal made now is over at once.
            let mut awaited = Vec::new();
            shared.counts.seal(Some(WRITER), &mut awaited);
            freed = shared.counts.passed(&mut awaited);
        }
        assert!(freed, "offline workers stall a grace period");
    });
}

#[test]
fn loom_one_reader_never_reads_what_was_freed() {
    for enter in WAYS {
        model(1, 2, None, enter, Broken::Nothing);
    }
}

#[test]
fn loom_two_readers_never_read_what_was_freed() {
    for enter in WAYS {
        model(2, 1, Some(5), enter, Broken::Nothing);
    }
}

/// A slot's next worker, on another thread, continues the count; a seal over its predecessor's transaction
/// passes, one over its own does not.
#[test]
fn loom_a_slot_changes_hands() {
    for enter in WAYS {
        loom::model(move || a_slot_changes_hands(enter));
    }
}

fn a_slot_changes_hands(enter: Enter) {
    let shared = shared(1, Broken::Nothing);
    let taken = Arc::new(AtomicUsize::new(1));
    let first = {
        let (shared, taken) = (Arc::clone(&shared), Arc::clone(&taken));
        thread::spawn(move || {
            read(&shared, 1, 1, enter, Broken::Nothing);
            // As `Shared::vacate` does.
            taken.store(0, Ordering::Release);
        })
    };
    let second = {
        let (shared, taken) = (Arc::clone(&shared), Arc::clone(&taken));
        thread::spawn(move || {
            if taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                read(&shared, 1, 1, enter, Broken::Nothing);
            }
        })
    };
    replace(&shared, Broken::Nothing);
    first.join().expect("the first worker of the slot");
    second.join().expect("the second worker of the slot");
}

#[test]
#[should_panic]
fn loom_canary_ignoring_online_workers_is_caught() {
    model(1, 1, None, WAYS[0], Broken::IgnoresOnline);
}

#[test]
#[should_panic]
fn loom_canary_sealing_before_unlinking_is_caught() {
    model(1, 1, None, WAYS[0], Broken::SealsBeforeUnlinking);
}

#[test]
#[should_panic]
fn loom_canary_entering_without_a_fence_is_caught() {
    model(1, 1, None, WAYS[0], Broken::EntersWithoutFence);
}

#[test]
#[should_panic]
fn loom_canary_entering_by_an_exchange_that_is_no_fence_is_caught() {
    model(1, 1, None, WAYS[1], Broken::EntersByWeakExchange);
}

#[test]
#[should_panic]
fn loom_canary_reading_while_offline_is_caught() {
    model(1, 1, None, WAYS[0], Broken::DoesNotEnter);
}
