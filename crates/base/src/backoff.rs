//! A bounded spin: nothing in Seriatim waits without a bound it can name.

/// Spins with growing pauses, then yields, then reports that the bound is reached.
#[derive(Debug)]
pub struct Backoff {
    step: u32,
    most: u32,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new()
    }
}

impl Backoff {
    /// Steps that spin (2^step pause instructions each).
    pub const SPINS: u32 = 6;
    /// Steps after which [`Backoff::wait`] answers `false`, if nothing else is said; those after `SPINS` yield
    /// the processor.
    pub const STEPS: u32 = 64;

    /// A backoff that has not waited yet.
    pub const fn new() -> Backoff {
        Backoff::bounded(Self::STEPS)
    }

    /// A backoff that has not waited yet, and waits so many steps at most.
    pub const fn bounded(steps: u32) -> Backoff {
        Backoff { step: 0, most: steps }
    }

    /// Waits a little longer than the last time. `false` once the bound is reached: stop waiting and give up.
    #[must_use]
    pub fn wait(&mut self) -> bool {
        if self.step >= self.most {
            return false;
        }
        if self.step < Self::SPINS {
            spin(1 << self.step);
        } else {
            crate::thread::yield_now();
        }
        self.step += 1;
        true
    }
}

/// So many pause instructions.
fn spin(pauses: u32) {
    #[cfg(feature = "simulate")]
    if crate::simulated::wait(crate::simulated::Wait::Spin(pauses)) {
        return;
    }
    for _ in 0..pauses {
        std::hint::spin_loop();
    }
}
