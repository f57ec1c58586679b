//! The derive macro behind typed tables.
