//! Copies are consistent and complete, whatever happens to the database meanwhile.
