//! Checkpoints: all rows with their stamps, in compressed parts.
