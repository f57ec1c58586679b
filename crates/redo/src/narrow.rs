//! Epochs in files of formats 1 and 2, which have 34 bits.
//!
//! The bits of a TID have stayed what they are. Its epoch was their upper 34, and is their upper 45 since format 3. So
//! an earlier epoch is a range of today's: its commits, and no others, have TIDs of these epochs.

use seriatim_base::{Epoch, Tid};

/// The last format with these epochs.
const LAST: u32 = 2;
/// Bits of a TID below its epoch in these formats.
const COUNTER_BITS: u32 = 26;
/// Epochs of today in one of these.
const EPOCHS: u64 = 1 << (COUNTER_BITS - Tid::COUNTER_BITS);

/// The first epoch of today in this epoch of a file.
pub(crate) fn first(format: u32, epoch: Epoch) -> Epoch {
    if format > LAST { epoch } else { Epoch(epoch.0.saturating_mul(EPOCHS)) }
}

/// The last epoch of today in this epoch of a file. It is out of range if that one is.
pub(crate) fn last(format: u32, epoch: Epoch) -> Epoch {
    if format > LAST { epoch } else { Epoch(first(format, epoch).0.saturating_add(EPOCHS - 1)) }
}

/// The epoch that stands for this one in files of the format: the [`last`] of its range. Zero stays zero.
pub(crate) fn rounded(format: u32, epoch: Epoch) -> Epoch {
    if format > LAST || epoch == Epoch(0) { epoch } else { Epoch(epoch.0 | (EPOCHS - 1)) }
}

/// The epoch of the file of which [`last`] gives this one.
pub(crate) fn narrowed(format: u32, epoch: Epoch) -> Epoch {
    if format > LAST { epoch } else { Epoch(epoch.0 / EPOCHS) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_of_format_two_has_exactly_the_tids_that_it_had() {
        for (epoch, counter) in [(1, 0), (1, (1 << 26) - 1), (77, 1 << 15), ((1 << 34) - 1, (1 << 26) - 1)] {
            let tid = Tid::from_bits(epoch << 26 | counter);
            assert!((first(2, Epoch(epoch))..=last(2, Epoch(epoch))).contains(&tid.epoch()), "{epoch}, {counter}");
            assert_eq!(narrowed(2, last(2, Epoch(epoch))), Epoch(epoch));
            assert_eq!(rounded(2, tid.epoch()), last(2, Epoch(epoch)));
            assert!(last(2, Epoch(epoch - 1)).0 + 1 == first(2, Epoch(epoch)).0, "there is no gap");
        }
        assert_eq!(last(1, Epoch((1 << 34) - 1)).0, (1 << 45) - 1, "the last epoch stays the last");
        assert_eq!([first, last, rounded, narrowed].map(|of| of(3, Epoch(9))), [Epoch(9); 4]);
        assert_eq!(last(2, Epoch(u64::MAX)), Epoch(u64::MAX));
    }
}
