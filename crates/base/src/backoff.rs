//! A bounded spin. Every wait in Seriatim has a bound.

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
    /// Steps that spin: step `n` executes 2^n pause instructions.
    pub const SPINS: u32 = 6;
    /// The default bound: after so many steps [`Backoff::wait`] returns `false`. Steps after `SPINS` yield the
    /// processor.
    pub const STEPS: u32 = 64;

    /// A backoff that has not waited yet.
    pub const fn new() -> Backoff {
        Backoff::bounded(Self::STEPS)
    }

    /// A backoff that has not waited yet, and waits at most `steps` times.
    pub const fn bounded(steps: u32) -> Backoff {
        Backoff { step: 0, most: steps }
    }

    /// Waits a little longer than the last time. Returns `false` once the bound is reached: the caller should give up.
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

/// Executes `pauses` pause instructions.
fn spin(pauses: u32) {
    #[cfg(feature = "simulate")]
    if crate::simulated::wait(crate::simulated::Wait::Spin(pauses)) {
        return;
    }
    if crate::word::wait() {
        return;
    }
    for _ in 0..pauses {
        std::hint::spin_loop();
    }
}
