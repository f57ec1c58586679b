//! The papers' figures: what is run for each, what the paper shows, how it is drawn and judged.
//!
//! Every point of a figure is a command of the program `seriatim`, run in a process of its own and shown beside the
//! figure. So a reader can run it again, memory is clean, and a crash costs one point. This crate knows commands and
//! the JSON that they print. It imports no crate of this workspace and starts no process: its caller does
//! ([`draw_all`]).
//!
//! Figures are data, in one file for each paper (`data/*.toml`, described in `data/README.md`). A paper's results are
//! kept as *relations* between measurements ([`Claim`]), never as absolute numbers, which differ from machine to
//! machine.

mod data;
mod draw;
mod figure;
mod home;
mod judge;
mod kept;
mod measured;
mod metric;
mod page;
mod plan;
mod run;
mod setting;
#[cfg(test)]
mod test_support;

pub use data::{FIGURES, PAPERS, find};
pub use figure::{All, At, Axis, Bars, Claim, CurvePoint, Figure, Function, Paper, Point, Shows, View};
pub use judge::Verdict;
pub use measured::{Answer, Cores, Origin, Size};
pub use metric::Metric;
pub use run::{Ask, Event, Job, Summary, draw_again, draw_all};
pub use setting::Setting;
