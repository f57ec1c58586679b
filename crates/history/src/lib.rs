//! An independent serializability checker over recorded histories.
//!
//! Invariant: imports only `seriatim-base`, so it cannot share the engine's mistakes. It sees committed
//! transactions, what each read (row versions, absences, ranges) and what each wrote, and nothing else.
//!
//! How [`check`] decides, in the order of the modules:
//!
//! 1. `index`: keys become dense ids in key order; the TIDs of a key's writes are its version order. Rejected
//!    here: a version written twice (or never: G1a), an intermediate version read (G1b), a version below the
//!    one its writer read.
//! 2. `graph`: the direct serialization graph of Adya (PhD thesis, MIT 1999, §3.1 and §4.4). Its edges are
//!    write, read and anti-dependencies between neighbours in version order, session order, and real-time
//!    order. Real-time order goes through one node per point in time instead of one edge per pair. A strongly
//!    connected component (Tarjan) is a violation.
//! 3. `order`: if there is none, a serial order that is close to the order in which transactions ended.
//! 4. `absence`: that order is replayed. Every claim must hold in the replay, so **an accepted history comes with a
//!    serial order that explains it**. A key that exists in the replay but was not found (a point read or a gap of a
//!    range) gives a clause. It says that the reader comes before the row's insert, or after its delete. Clauses are
//!    added only when a replay needs them; they are decided by what the graph rules out, else by bounded search. A case
//!    that the bound leaves open is a separate error: a history without a verdict does not pass.
//! 5. `explain`: the shortest cycle of the worst class (Adya's G0, G1c, G-single, G2), in words.
//!
//! **Column groups.** A protocol may let transactions at different columns of one row pass each other. Its
//! histories are judged by column groups. [`History::groups`] lists, for each table, disjoint sets of columns;
//! the columns of no set form one more group. Without any set the row is one group. `items` turns each group
//! of a row into an item of its own before the steps above; the existence of the row is another item.
//! Additions to a group are items too, so that they have no order among themselves. A history without groups
//! is judged by whole rows, as strictly and at the same cost as before.
//!
//! Size: all steps are `O(n log n)` in the number of operations for histories whose absences need no search.

mod absence;
mod anomaly;
mod bits;
mod check;
mod explain;
mod graph;
mod history;
mod index;
mod intern;
mod items;
mod key;
mod order;
mod recorder;
pub mod text;

pub use anomaly::{Anomaly, Dependency, Step, Violation};
pub use check::{Promises, Summary, check};
pub use history::{Addition, Columns, Group, History, Initial, InitialRow, Read, Saw, Scan, Transaction, Write};
pub use key::Key;
pub use recorder::{Recorder, Recording};
pub use seriatim_base::TableId;
