//! Writers: a worker's end of the log, and which epochs it may still write into.
