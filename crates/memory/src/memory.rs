//! The memory of a database, shared by its workers: heap, counts, slots.

use crate::garbage::Orphans;
use crate::heap::{Heap, lock};
use crate::horizon::Horizon;
use crate::quiescence::Counts;
use crate::snapshots::SnapshotHorizon;
use crate::{Charge, Error, Local, OutOfMemory};
use seriatim_base::{CacheAligned, DurablePoint, Epoch};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// How a [`Memory`] is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Workers that can be registered at a time, from 1 to [`Options::WORKERS_MAX`]. Default: 256.
    pub workers_max: usize,
    /// Ask the kernel for huge pages (`madvise`; a kernel without them is fine). Default: yes.
    pub huge_pages: bool,
    /// Bytes mapped and touched by [`Memory::new`], at most `limit_bytes`. Default: 0.
    pub prefault_bytes: usize,
    /// Bytes that allocations may take. Workers take memory in spans of 64 KiB. Allocations of the same size class can
    /// reuse released blocks, at the limit smaller ones too. When a whole span is free, all can reuse it
    /// ([`Memory::give_back`]). Lists that grow with a transaction ([`CountedVec`]) count too, and leave less for
    /// allocations. They may exceed the limit by an eighth of it, or by 16 MiB if that is more. If allocations have
    /// taken more than the limit ([`Memory::set_limit`]), lists may exceed that by as much. Where at least a sixteenth
    /// of the limit is free, in blocks that are too small for a request, a sixteenth more is taken. Default: no limit.
    ///
    /// [`CountedVec`]: crate::CountedVec
    pub limit_bytes: Option<usize>,
}

impl Options {
    /// The most workers: their ids have 16 bits.
    pub const WORKERS_MAX: usize = u16::MAX as usize + 1;
}

impl Default for Options {
    fn default() -> Options {
        Options { workers_max: 256, huge_pages: true, prefault_bytes: 0, limit_bytes: None }
    }
}

/// The memory of a database: a heap, and the quiescence domain of the workers that use it. Cheap to clone.
///
/// Allocated memory stays mapped until the last clone and the last [`Local`] are dropped, and is unmapped
/// then, whether it was released or not.
#[derive(Clone, Debug)]
pub struct Memory(pub(crate) Arc<Shared>);

/// The state that [`Memory`] and every [`Local`] share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) heap: Heap,
    pub(crate) counts: Counts,
    pub(crate) horizon: Horizon,
    pub(crate) slots: Box<[Slot]>,
    orphans: Mutex<Orphans>,
    /// Whether there are orphans: read often, written when a worker leaves.
    orphaned: AtomicBool,
    /// Until when replaced versions are kept; none: not beyond their grace period.
    pub(crate) kept_until: OnceLock<Arc<DurablePoint>>,
    /// Until when they are kept for readers of snapshots of the past; none: there are no such readers.
    pub(crate) snapshots: OnceLock<SnapshotHorizon>,
    /// Readers of versions that were replaced before they came online, if there are such readers.
    pub(crate) past_reads: OnceLock<Arc<dyn PastReads>>,
    /// Whether one of these three keeps versions: read by every transaction.
    keeps_versions: AtomicBool,
}

/// Readers of the past: workers that come online later may read versions that were replaced before.
pub trait PastReads: std::fmt::Debug + Send + Sync {
    /// A worker that comes online after this call reads no version that commits of epochs before the returned
    /// one replaced. `now`: the epoch, read before the call. The returned epochs never go back. A helper calls
    /// this now and then.
    fn since(&self, now: Epoch) -> Epoch;
}

/// A worker's place.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Bytes this slot's workers allocated less those they released; negative where they release what others allocate.
    /// Written by the slot's worker only, for others to sum up.
    pub(crate) in_use: CacheAligned<AtomicI64>,
    taken: AtomicBool,
}

impl Memory {
    /// Sets memory up.
    ///
    /// # Errors
    /// When the options contradict themselves, or the operating system refuses the memory to touch beforehand.
    pub fn new(options: Options) -> Result<Memory, Error> {
        let Options { workers_max, prefault_bytes, .. } = options;
        if !(1..=Options::WORKERS_MAX).contains(&workers_max) {
            return Err(Error::Workers(workers_max));
        }
        if let Some(limit) = options.limit_bytes.filter(|&limit| prefault_bytes > limit) {
            return Err(Error::PrefaultAboveLimit { prefault: prefault_bytes, limit });
        }
        let memory = Memory(Arc::new(Shared {
            heap: Heap::new(&options),
            counts: Counts::new(workers_max),
            horizon: Horizon::new(),
            slots: (0..workers_max).map(|_| Slot::default()).collect(),
            orphans: Mutex::default(),
            orphaned: AtomicBool::new(false),
            kept_until: OnceLock::new(),
            snapshots: OnceLock::new(),
            past_reads: OnceLock::new(),
            keeps_versions: AtomicBool::new(false),
        }));
        memory.prefault(prefault_bytes).map_err(Error::OutOfMemory)?;
        Ok(memory)
    }

    /// A domain that ignores online workers: every test that watches for use after free must catch it.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn blind(options: Options) -> Memory {
        let mut memory = Memory::new(options).expect("sane options");
        Arc::get_mut(&mut memory.0).expect("new").counts.blind = true;
        memory
    }

    /// Registers a worker; `None` when all `workers_max` slots are taken. A dropped [`Local`] frees its slot.
    pub fn register(&self) -> Option<Local> {
        // ORDERING: acquire pairs with the release in `Shared::vacate`: the new worker continues its
        // predecessor's count.
        let free = |slot: &Slot| !slot.taken.load(Ordering::Relaxed) && !slot.taken.swap(true, Ordering::Acquire);
        let worker = self.0.slots.iter().position(free)?;
        Some(Local::new(Arc::clone(&self.0), worker))
    }

    /// Bytes on the process's heap that are to count against the limit: none at first.
    pub fn charge(&self) -> Charge {
        Charge::new(Arc::clone(&self.0))
    }

    /// Workers that can be registered at a time.
    pub fn workers_max(&self) -> usize {
        self.0.slots.len()
    }

    /// Returns wholly free spans of 64 KiB to the system, when more than 64 MiB, and more than an eighth of the taken
    /// memory, is free. Returns its size in bytes. It does nothing unless much more is free than was left the last
    /// time. It first requests the free blocks of workers at rest, so that the next call finds them. It takes about a
    /// second for 20 million blocks; a helper calls it now and then.
    pub fn give_back(&self) -> usize {
        self.0.heap.give_back_pages()
    }

    /// Bytes mapped: used, free, and not yet touched; without those given back.
    pub fn reserved_bytes(&self) -> usize {
        self.0.heap.mapped()
    }

    /// Bytes allocated and not released, rounded up as the allocator does. They include retired memory, and
    /// the growth of transactions' lists ([`Memory::noted_bytes`]). Exact when no worker runs.
    pub fn in_use_bytes(&self) -> usize {
        let sum: i64 = self.0.slots.iter().map(|slot| slot.in_use.load(Ordering::Relaxed)).sum();
        usize::try_from(sum).unwrap_or(0) + self.noted_bytes()
    }

    /// Bytes by which the lists of transactions ([`CountedVec`](crate::CountedVec)), and the bags of retired
    /// memory, have grown.
    pub fn noted_bytes(&self) -> usize {
        self.0.heap.noted()
    }

    /// Bytes of free blocks between workers: they serve allocations of their own size, and at the limit smaller ones.
    pub fn free_bytes(&self) -> usize {
        self.0.heap.pooled_bytes()
    }

    /// Changes the limit. Below what was taken already it frees nothing: requests that free blocks cannot
    /// serve are refused from now on.
    pub fn set_limit(&self, bytes: Option<usize>) {
        self.0.heap.set_limit(bytes);
    }

    /// From now on keeps a retired version ([`Local::retire_version`]) until this point has reached the epoch
    /// that replaced it. The version is also kept while a caller holds an earlier epoch ([`DurablePoint::hold`]).
    /// Called at most once.
    ///
    /// # Panics
    /// If called again.
    pub fn keep_versions(&self, until: Arc<DurablePoint>) {
        assert!(self.0.kept_until.set(until).is_ok(), "one log to a database");
        self.0.keeps();
    }

    /// From now on keeps a retired version until no snapshot that needs it is read
    /// ([`Memory::pass_snapshot`]).
    pub fn keep_snapshots(&self) {
        self.0.snapshots.get_or_init(SnapshotHorizon::default);
        self.0.keeps();
    }

    /// From now on, snapshots need no version that commits of epochs up to `whole` replaced. Every worker that comes
    /// online from now on takes such a snapshot. Versions for older ones are kept until all workers that may read them
    /// have gone offline. A helper calls this now and then. It does nothing without [`Memory::keep_snapshots`].
    pub fn pass_snapshot(&self, whole: Epoch) {
        if let Some(snapshots) = self.0.snapshots.get() {
            snapshots.pass(&self.0.counts, whole);
        }
    }

    /// Ends a time without snapshots ([`Memory::pass_snapshot`] of the last epoch of all): new snapshots need the
    /// versions that commits of epochs after `whole` replace. Call this before anything commits that such a snapshot
    /// does not show.
    pub fn resume_snapshots(&self, whole: Epoch) {
        if let Some(snapshots) = self.0.snapshots.get() {
            snapshots.resume(whole);
        }
    }

    /// From now on keeps a retired version until [`Local::horizon`] has passed the epoch that replaced it, and
    /// has the horizon wait for these readers. So memory is freed only if a helper advances the horizon
    /// ([`Memory::advance_horizon`]). Called at most once, before there are versions.
    ///
    /// # Panics
    /// If called again.
    pub fn keep_for(&self, past_reads: Arc<dyn PastReads>) {
        assert!(self.0.past_reads.set(past_reads).is_ok(), "one protocol to a database");
        self.0.keeps();
    }

    /// Advances [`Local::horizon`] if all workers have gone offline that were online at the last call that
    /// advanced it. A helper calls this now and then, as when it advances the epoch. `now`: the epoch.
    pub fn advance_horizon(&self, now: Epoch) {
        // Before the seal of a round: a worker that comes online after that reads no version older than this
        // says.
        let now = self.0.past_reads.get().map_or(now, |past_reads| past_reads.since(now));
        self.0.horizon.advance(&self.0.counts, now);
    }

    /// Maps and touches at least `bytes` more, which are handed out before other memory. Takes seconds for
    /// gigabytes: call it outside any measured window.
    ///
    /// # Errors
    /// When the operating system refuses, or the limit would be exceeded.
    pub fn prefault(&self, bytes: usize) -> Result<(), OutOfMemory> {
        self.0.heap.prefault(bytes)
    }
}

impl Shared {
    /// Frees a slot.
    pub(crate) fn vacate(&self, worker: usize) {
        // ORDERING: pairs with the acquire in `register`.
        self.slots[worker].taken.store(false, Ordering::Release);
    }

    /// From now on versions are kept beyond their grace period.
    fn keeps(&self) {
        // ORDERING: pairs with the acquire in `kept_until`: whoever sees this sees for what they are kept.
        self.keeps_versions.store(true, Ordering::Release);
    }

    /// Up to which epoch replaced versions are kept no more.
    #[inline]
    pub(crate) fn kept_until(&self) -> Epoch {
        match self.keeps_versions.load(Ordering::Acquire) {
            true => self.kept_for_readers(),
            false => Epoch(u64::MAX),
        }
    }

    /// As [`Shared::kept_until`], where versions are kept beyond their grace period.
    fn kept_for_readers(&self) -> Epoch {
        let released = self.released().unwrap_or(Epoch(u64::MAX));
        match self.past_reads.get() {
            Some(_) => released.min(Epoch(self.horizon.epoch().0.saturating_sub(1))),
            None => released,
        }
    }

    /// Until when deletions are listed that readers of the durable epoch or of snapshots need; `None` where
    /// there are no such readers.
    pub(crate) fn released(&self) -> Option<Epoch> {
        let durable = self.kept_until.get().map(|point| point.released());
        let passed = self.snapshots.get().map(SnapshotHorizon::epoch);
        durable.into_iter().chain(passed).min()
    }

    /// Lets a leaving worker put its garbage among the orphans.
    pub(crate) fn bequeath(&self, give: impl FnOnce(&mut Orphans)) {
        let mut orphans = lock(&self.orphans);
        give(&mut orphans);
        self.orphaned.store(!orphans.is_empty(), Ordering::Relaxed);
    }

    /// Lets a worker take the orphans in, if there are any.
    #[inline]
    pub(crate) fn inherit(&self, take: impl FnOnce(&mut Orphans)) {
        // ORDERING: a hint; the lock orders what matters.
        if self.orphaned.load(Ordering::Relaxed) {
            let mut orphans = lock(&self.orphans);
            take(&mut orphans);
            self.orphaned.store(!orphans.is_empty(), Ordering::Relaxed);
        }
    }
}
