//! Simulated cores: the engine's real code on many workers, all on one thread, each with a virtual clock.
//!
//! A *core* is a stackful coroutine. Where code says that another thread may interrupt it
//! ([`thread::step`](seriatim_base::thread::step)), and wherever it waits, its clock advances by the cost.
//! Then the core that is furthest behind continues: so accesses to shared words happen in the order of virtual
//! time, whichever core makes them. Code between two steps takes no time of its own; its cost is part of the
//! steps' measured costs ([`costs`]).
//!
//! Invariant: a run depends on the cores' code and the costs only: not on the real clock, on addresses or on
//! other threads. So a run can be repeated, to the byte.
//!
//! | module | one idea |
//! |---|---|
//! | [`machine`] | cores, their clocks, and the effects of steps |
//! | `turns` | the order in which cores continue |
//! | [`costs`] | the cost of each step, and the file format |
//! | `lines` | which core wrote a cache line last |
//! | `regions` | which lines open regions have touched, and which regions are lost |
//! | `watchdog` | reports a core that holds the thread, instead of a hang |
//! | [`fit`] | costs from measured times and counted steps |
//! | [`validation`] | how far simulated cores are from threads |
//! | [`measure`] | costs of the machine that two threads can measure |

pub mod costs;
pub mod fit;
mod lines;
pub mod machine;
pub mod measure;
mod regions;
mod turns;
pub mod validation;
mod watchdog;

pub use costs::{Costs, Counts, Machine, Step, Work};
pub use machine::{Core, Guard, Role, Run, Stuck, at, run};
