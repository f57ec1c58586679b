//! Execution shapes: whole, in pieces, repaired.
