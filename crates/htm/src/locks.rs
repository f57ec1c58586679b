//! Fallback locks: a body that cannot run in a region holds them instead, and every region checks them first.

use crate::access::{Access, Direct};
use crate::htm::Htm;
use crate::word;
use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{Backoff, CacheAligned};

/// The locks a body runs under when it does not run in a region, declared before the region begins.
///
/// A region *subscribes*: `held` is its first access, so taking a lock afterwards aborts it. Holders make progress on
/// their own and in bounded time, and so does `acquire`.
pub trait FallbackLocks {
    /// Whether any lock is held, read through `access`.
    fn held(&self, access: &mut impl Access) -> bool;
    /// Takes all locks, in an order that is the same for all threads.
    fn acquire(&self, htm: &Htm);
    /// Gives all locks back.
    fn release(&self, htm: &Htm);
    /// Waits until no lock is held. `false` once the bound of [`Backoff`] is reached.
    #[must_use]
    fn wait_until_free(&self) -> bool;
}

/// Fallback locks that are held, and given back when this is dropped, also by a panic.
#[derive(Debug)]
pub struct Held<'a, L: FallbackLocks + ?Sized> {
    locks: &'a L,
    htm: &'a Htm,
}

impl<'a, L: FallbackLocks + ?Sized> Held<'a, L> {
    /// Takes the locks.
    #[inline(always)]
    pub(crate) fn take(locks: &'a L, htm: &'a Htm) -> Held<'a, L> {
        locks.acquire(htm);
        Held { locks, htm }
    }
}

impl<L: FallbackLocks + ?Sized> Drop for Held<'_, L> {
    #[inline(always)]
    fn drop(&mut self) {
        self.locks.release(self.htm);
    }
}

/// One lock alone on its cache lines: 0 free, 1 held.
#[derive(Debug, Default)]
pub struct SpinLock(pub(crate) CacheAligned<AtomicU64>);

impl SpinLock {
    const FREE: u64 = 0;
    const HELD: u64 = 1;

    /// A free lock.
    pub const fn new() -> SpinLock {
        SpinLock(CacheAligned(AtomicU64::new(Self::FREE)))
    }

    /// Takes the lock, or gives up after this many steps of a [`Backoff`].
    pub fn hold<'a>(&'a self, htm: &'a Htm, steps: u32) -> Option<Held<'a, SpinLock>> {
        let mut backoff = Backoff::bounded(steps);
        while !self.try_acquire(htm) {
            if !backoff.wait() {
                return None;
            }
        }
        Some(Held { locks: self, htm })
    }

    /// Takes the lock if it is free.
    #[inline]
    fn try_acquire(&self, htm: &Htm) -> bool {
        word::step(Touch::Exchange, &*self.0);
        // ORDERING: pairs with the release in `release`. Regions that subscribed notice this write and abort.
        htm.outside(|| self.0.compare_exchange(Self::FREE, Self::HELD, Ordering::Acquire, Ordering::Relaxed).is_ok())
    }
}

impl FallbackLocks for SpinLock {
    #[inline]
    fn held(&self, access: &mut impl Access) -> bool {
        access.load(&self.0) != Self::FREE
    }

    #[inline]
    fn acquire(&self, htm: &Htm) {
        while !self.try_acquire(htm) {
            // Reaching the bound only means to try again: the holder is running its body.
            let _ = self.wait_until_free();
        }
    }

    #[inline]
    fn release(&self, _htm: &Htm) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), Self::HELD, "a lock that is not held cannot be released");
        word::step(Touch::Store, &*self.0);
        // ORDERING: pairs with the acquire in `acquire` and with the subscription of regions.
        self.0.store(Self::FREE, Ordering::Release);
    }

    fn wait_until_free(&self) -> bool {
        if !self.held(&mut Direct) {
            return true;
        }
        let mut backoff = Backoff::new();
        while backoff.wait() {
            if !self.held(&mut Direct) {
                return true;
            }
        }
        false
    }
}

/// No lock: for bodies that look at and turn the lock bits of the words they touch.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLocks;

impl FallbackLocks for NoLocks {
    #[inline(always)]
    fn held(&self, _access: &mut impl Access) -> bool {
        false
    }

    #[inline(always)]
    fn acquire(&self, _htm: &Htm) {}

    #[inline(always)]
    fn release(&self, _htm: &Htm) {}

    #[inline(always)]
    fn wait_until_free(&self) -> bool {
        true
    }
}

/// A set of locks, taken in address order; a lock named twice is taken once.
impl FallbackLocks for [&SpinLock] {
    fn held(&self, access: &mut impl Access) -> bool {
        self.iter().any(|lock| lock.held(access))
    }

    fn acquire(&self, htm: &Htm) {
        in_address_order(self, |lock| lock.acquire(htm));
    }

    fn release(&self, htm: &Htm) {
        in_address_order(self, |lock| lock.release(htm));
    }

    fn wait_until_free(&self) -> bool {
        self.iter().all(|lock| lock.wait_until_free())
    }
}

/// Calls `f` once for each distinct lock by ascending address. Sets are a handful of locks: selection needs no memory.
fn in_address_order(locks: &[&SpinLock], mut f: impl FnMut(&SpinLock)) {
    let address = |lock: &SpinLock| std::ptr::from_ref(lock) as usize;
    let mut done = 0;
    while let Some(next) = locks.iter().copied().filter(|lock| address(lock) > done).min_by_key(|lock| address(lock)) {
        f(next);
        done = address(next);
    }
}

impl<const N: usize> FallbackLocks for [&SpinLock; N] {
    fn held(&self, access: &mut impl Access) -> bool {
        self.as_slice().held(access)
    }

    fn acquire(&self, htm: &Htm) {
        self.as_slice().acquire(htm);
    }

    fn release(&self, htm: &Htm) {
        self.as_slice().release(htm);
    }

    fn wait_until_free(&self) -> bool {
        self.as_slice().wait_until_free()
    }
}

impl FallbackLocks for (&SpinLock, &SpinLock) {
    fn held(&self, access: &mut impl Access) -> bool {
        [self.0, self.1].held(access)
    }

    fn acquire(&self, htm: &Htm) {
        [self.0, self.1].acquire(htm);
    }

    fn release(&self, htm: &Htm) {
        [self.0, self.1].release(htm);
    }

    fn wait_until_free(&self) -> bool {
        [self.0, self.1].wait_until_free()
    }
}

impl<L: FallbackLocks + ?Sized> FallbackLocks for &L {
    #[inline]
    fn held(&self, access: &mut impl Access) -> bool {
        L::held(self, access)
    }

    #[inline]
    fn acquire(&self, htm: &Htm) {
        L::acquire(self, htm);
    }

    #[inline]
    fn release(&self, htm: &Htm) {
        L::release(self, htm);
    }

    #[inline]
    fn wait_until_free(&self) -> bool {
        L::wait_until_free(self)
    }
}
