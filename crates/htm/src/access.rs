//! The operations of a body on shared words, in a region or not: [`Access`], and [`Body`], the code that uses
//! it.

use crate::word;
use seriatim_base::word::AtomicU64;

/// Shared words as a body sees them. In a region loads and stores are plain and take effect together. In direct mode
/// stores are releases, each visible at once, so the body first sets lock bits (or runs under the fallback locks).
pub trait Access {
    /// Whether this is a region: locks need not be taken, only found free, and an `Err` undoes every store.
    const REGION: bool;

    /// The word's value.
    fn load(&mut self, word: &AtomicU64) -> u64;

    /// Sets the word. Direct: a release, pairing with the acquire loads of readers.
    fn store(&mut self, word: &AtomicU64, value: u64);

    /// Turns `unlocked` into `locked`; `false`, with nothing changed, if the word holds another value.
    ///
    /// Direct: one compare-and-swap (acquire and release). Region: a look and a plain store.
    #[must_use]
    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool;
}

/// Why a body ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// A lock bit was seen held: undo, wait, run again within the budget.
    Busy,
    /// Undo and hand this code, below [`BodyError::CODES`], to the caller; never run again.
    Refused(u8),
}

impl BodyError {
    /// Codes of [`BodyError::Refused`] are below this; the ones above are the region's own.
    pub const CODES: u8 = 0xF0;
}

/// Why [`Agent::run`](crate::Agent::run) gave up: the body's code, or [`Refused::BUSY`]. Nothing of the body
/// remains stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The body's code, below [`BodyError::CODES`], or that of [`Refused::BUSY`].
    pub code: u8,
}

impl Refused {
    /// The body kept finding a lock bit held until the bound of waiting was reached.
    pub const BUSY: Refused = Refused { code: 0xFF };

    /// Whether this is [`Refused::BUSY`] and not a code of the body.
    pub fn is_busy(self) -> bool {
        self == Refused::BUSY
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Refused::BUSY => f.write_str("the locks of other workers stayed held until the bound of waiting"),
            Refused { code } => write!(f, "the body refused with code {code:#x}"),
        }
    }
}

impl std::error::Error for Refused {}

/// Code that runs in a region or, word by word, in direct mode. It may be run any number of times.
///
/// # Safety
/// Every word given to `access` stays allocated until [`Agent::run`](crate::Agent::run) returns (rule 3 of the crate).
/// An emulated region reads and writes its words after the body has ended.
pub unsafe trait Body {
    /// The result of the body.
    type Output;

    /// Runs once. Begins by resetting whatever it keeps in `self`. With [`Access::REGION`] an `Err` undoes
    /// all stores; in direct mode the body undoes its own before returning `Err`.
    ///
    /// # Errors
    /// [`BodyError`] says what happens next.
    fn run<A: Access>(&mut self, access: &mut A) -> Result<Self::Output, BodyError>;

    /// Whether a run of this decides a transaction, or publishes a piece of one: for statistics of the words
    /// that such regions touch.
    const DECIDES: bool = false;

    /// How many times a short body's work one run of this is. The [`Budget`](crate::Budget) of conflicts is
    /// divided by it, so that what these lose before the fallback is about the same for all bodies. Asked
    /// outside regions, and only after an abort.
    #[inline]
    fn weight(&self) -> u32 {
        1
    }
}

/// Direct mode where no region is emulated: the locks of the words, or the fallback locks, protect the body.
#[derive(Debug)]
pub(crate) struct Direct;

impl Access for Direct {
    const REGION: bool = false;

    #[inline(always)]
    fn load(&mut self, word: &AtomicU64) -> u64 {
        word::load(word)
    }

    #[inline(always)]
    fn store(&mut self, word: &AtomicU64, value: u64) {
        word::store(word, value);
    }

    #[inline(always)]
    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        word::lock(word, unlocked, locked)
    }
}
