//! Replay of synthetic logs.
