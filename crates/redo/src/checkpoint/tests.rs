//! Checkpoints are read as they were written, or refused.
