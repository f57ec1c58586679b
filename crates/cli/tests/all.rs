//! The tests of the command line in one program, which is linked once and runs them concurrently.

mod bench;
mod directories;
mod documentation;
mod dumps;
mod figures;
mod interrupt;
mod middle_tier;
mod output;
mod partitions;
mod procedures;
mod sql;
