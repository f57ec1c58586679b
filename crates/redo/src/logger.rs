//! Loggers: collect, write, flush.
