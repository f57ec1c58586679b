//! Backups: a copy of a database directory that is consistent and complete.
