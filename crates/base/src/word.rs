//! The words of records, indexes, clocks and locks that threads share, and the fences between accesses to them: those
//! of the standard library.
//!
//! Under `--cfg loom` they are words that loom runs while a model watches them. Their layout is that of
//! the standard word, so that records in raw memory have them too. A model is then a few transactions of a protocol,
//! as they ship. A word that the model does not watch is always up to date, and a point at which threads do not change.

pub use std::sync::atomic::Ordering;

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, fence};

#[cfg(loom)]
pub use model::{AtomicU64, fence};
#[cfg(loom)]
pub(crate) use model::{now, wait};

/// Waits in a model, if one runs, until other threads have gone on. Returns whether one does.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn wait() -> bool {
    false
}

/// The time of a model, if one runs.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn now() -> Option<u64> {
    None
}

/// The words that a model watches, and the fences that it omits.
#[cfg(loom)]
pub mod model {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::panic::Location;
    use std::sync::Arc;
    use std::sync::atomic::{self, Ordering};

    /// The state of the model that runs on this thread of the system.
    #[derive(Default)]
    struct Model {
        /// The words that a thread touches which rehearses, by address, and whether it stored to them.
        noted: Option<BTreeMap<usize, bool>>,
        watched: BTreeMap<usize, Arc<loom::sync::atomic::AtomicU64>>,
        /// The ends of the names of files without their fences.
        broken: &'static [&'static str],
    }

    thread_local! {
        static MODEL: RefCell<Option<Model>> = const { RefCell::new(None) };
    }

    fn with<R>(f: impl FnOnce(&mut Model) -> R) -> Option<R> {
        MODEL.with_borrow_mut(|model| model.as_mut().map(f))
    }

    /// Begins an execution of a model: nothing is watched yet. The sequentially consistent fences in files whose names
    /// end in these words are omitted.
    pub fn begin(broken: &'static [&'static str]) {
        MODEL.set(Some(Model { broken, ..Model::default() }));
    }

    pub(crate) fn wait() -> bool {
        let waits = now().is_some();
        if waits {
            loom::thread::yield_now();
        }
        waits
    }

    /// The clock of a model stands still: what time decides would not be the same in each execution.
    pub(crate) fn now() -> Option<u64> {
        with(|_| 1 << 40)
    }

    /// The words that a function touches, and whether it stores to them.
    pub struct Touched(BTreeMap<usize, bool>);

    /// Runs the code of a thread of the model, and records the words that it touches.
    pub fn rehearse(thread: impl FnOnce()) -> Touched {
        with(|model| model.noted = Some(BTreeMap::new()));
        thread();
        Touched(with(|model| model.noted.take()).flatten().unwrap_or_default())
    }

    /// Has the model watch the words that two of its threads touch and one of them stores to. Returns how many.
    pub fn watch(threads: &[Touched]) -> usize {
        let mut words = BTreeMap::<usize, (usize, bool)>::new();
        for (&word, &stored) in threads.iter().flat_map(|thread| &thread.0) {
            let (threads, is_stored) = words.entry(word).or_default();
            *threads += 1;
            *is_stored |= stored;
        }
        words.retain(|_, &mut (threads, is_stored)| threads > 1 && is_stored);
        for &word in words.keys() {
            // SAFETY: a rehearsal touched it, and the database that the threads share lives on.
            let now = unsafe { &*(word as *const atomic::AtomicU64) }.load(Ordering::Relaxed);
            let watched = Arc::new(loom::sync::atomic::AtomicU64::new(now));
            with(|model| model.watched.insert(word, watched));
        }
        words.len()
    }

    /// As the standard fence; in a model, loom's, unless the model omits it.
    #[track_caller]
    pub fn fence(order: Ordering) {
        let file = Location::caller().file();
        let is_broken = |model: &mut Model| model.broken.iter().any(|broken| file.ends_with(broken));
        match with(is_broken) {
            None => atomic::fence(order),
            Some(true) if order == Ordering::SeqCst => {}
            Some(_) => loom::sync::atomic::fence(order),
        }
    }

    /// A standard word, or loom's where a model watches it.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct AtomicU64(atomic::AtomicU64);

    macro_rules! access {
        ($($stores:literal $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
            /// As of the standard word.
            pub fn $name(&self, $($argument: $type),*) $(-> $result)? {
                match self.watched($stores) {
                    Some(word) => word.$name($($argument),*),
                    None => self.0.$name($($argument),*),
                }
            }
        )*};
    }

    impl AtomicU64 {
        /// As of the standard word.
        pub const fn new(value: u64) -> AtomicU64 {
            AtomicU64(atomic::AtomicU64::new(value))
        }

        fn watched(&self, stores: bool) -> Option<Arc<loom::sync::atomic::AtomicU64>> {
            let address = std::ptr::from_ref(self) as usize;
            with(|model| {
                if let Some(noted) = &mut model.noted {
                    *noted.entry(address).or_default() |= stores;
                }
                model.watched.get(&address).cloned()
            })?
        }

        access! {
            false load(order: Ordering) -> u64;
            true store(value: u64, order: Ordering);
            true swap(value: u64, order: Ordering) -> u64;
            true fetch_add(value: u64, order: Ordering) -> u64;
            true fetch_sub(value: u64, order: Ordering) -> u64;
            true fetch_max(value: u64, order: Ordering) -> u64;
            true fetch_or(value: u64, order: Ordering) -> u64;
            true compare_exchange(now: u64, next: u64, success: Ordering, failure: Ordering) -> Result<u64, u64>;
        }

        /// As of the standard word. loom's does not fail without a reason.
        pub fn compare_exchange_weak(
            &self,
            now: u64,
            next: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.compare_exchange(now, next, success, failure)
        }

        /// As of the standard word.
        pub fn try_update(
            &self,
            success: Ordering,
            failure: Ordering,
            mut next: impl FnMut(u64) -> Option<u64>,
        ) -> Result<u64, u64> {
            let mut now = self.load(failure);
            while let Some(value) = next(now) {
                match self.compare_exchange(now, value, success, failure) {
                    Ok(before) => return Ok(before),
                    Err(other) => now = other,
                }
            }
            Err(now)
        }
    }
}
