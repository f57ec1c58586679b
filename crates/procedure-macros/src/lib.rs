//! The attribute macros that make procedures of functions.
//!
//! Invariant: they only lower tokens. Everything that needs types, the schema or the whole set is decided at registration.
