//! Segments: pre-zeroed files that hold batches.
