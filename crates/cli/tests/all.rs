//! The tests of the command line, in one program: they run at the same time, and it is linked once.

mod bench;
mod directories;
mod documentation;
mod figures;
mod interrupt;
mod middle_tier;
mod output;
mod partitions;
mod procedures;
