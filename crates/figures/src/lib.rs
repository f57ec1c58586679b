//! The registry of the papers' figures: what is run for each, what the paper shows, how it is drawn and judged.
//!
//! Every point of a figure is a command of the program `seriatim`, run in a process of its own and shown beside the figure, so that a
//! reader can run it again, memory is clean, and a crash is one point less. This crate knows commands and the JSON they print; it
//! imports no crate of ours and starts no process: who calls it does ([`draw_all`]).
//!
//! A figure is one file and one line in [`FIGURES`]. What a paper shows is kept as *relations* between measurements ([`Claim`]),
//! never as absolute numbers, which do not travel from machine to machine.

mod dbx;
mod dbx_tc;
mod draw;
mod figure;
mod home;
mod htcc;
mod judge;
mod measured;
mod metric;
mod page;
mod registry;
mod reordering;
mod run;
mod setting;
mod speculation;
#[cfg(test)]
mod test_support;

pub use figure::{Axis, Claim, Figure, Paper, Place, Point, Quantity, Shows, View};
pub use judge::Verdict;
pub use measured::{Answer, Cores, Origin, Size};
pub use metric::Metric;
pub use registry::{FIGURES, find};
pub use run::{Ask, Event, Job, Summary, draw_again, draw_all};
pub use setting::{Scene, Setting};
