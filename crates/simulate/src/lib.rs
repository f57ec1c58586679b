//! Simulated cores: the engine's real code on many workers, all on one thread, each with a virtual clock.
//!
//! A *core* is a stackful coroutine. Where code says that another thread may interrupt it
//! ([`thread::step`](seriatim_base::thread::step)), and wherever it waits, its clock is put forward by what that costs, and the core that is
//! furthest behind goes on: so accesses to shared words happen in the order of virtual time, whoever makes them. What lies between
//! two steps takes no time of its own; its cost is in those of the steps, which are measured ([`costs`]).
//!
//! Invariant: what happens depends on the cores' code, the costs and nothing else: neither on the real clock, nor on addresses, nor
//! on any other thread. So a run can be repeated, to the byte.
//!
//! | module | one idea |
//! |---|---|
//! | [`machine`] | cores, their clocks, and what steps do |
//! | `turns` | whose turn it is |
//! | [`costs`] | what a step costs, and the file that says so |
//! | `lines` | which core wrote a cache line last |
//! | `regions` | which lines open regions have touched, and which are lost |
//! | `watchdog` | a core that holds the thread is told of, instead of a hang |
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
