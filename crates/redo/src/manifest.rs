//! The manifest: what a database directory consists of.
