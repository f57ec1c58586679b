//! Redo entries: what a commit wrote, grouped by commit.
