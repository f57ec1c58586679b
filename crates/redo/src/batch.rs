//! Batches: the unit in which a logger writes and flushes.
