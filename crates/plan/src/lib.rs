//! What the analysis of procedures found, as inert data.
//!
//! Invariant: no behaviour but checking and showing itself. Analysis sits high (`procedure`), its conclusions are consumed low.
//!
//! A [`Plan`] is about one procedure; a [`Chopping`] about a set of them; [`Fragments`] about one procedure and a way to
//! partition tables. Operations, steps, loops and tables are named by their dense indexes, which for operations and steps are
//! the ids of the intermediate representation. The same procedures and schema give the same bytes in every run.

mod chopping;
mod columns;
mod footprint;
mod fragments;
mod operation;
mod plan;
mod symbol;

pub use chopping::{
    Chopped, Chopping, Claim, Conflict, Deferral, End, Ground, Merge, MergeReason, Options, Piece, Refused, Role,
};
pub use columns::Columns;
pub use footprint::{Footprint, Touch};
pub use fragments::{Fragment, Fragments, TransactionClass};
pub use operation::{Access, Existence, Failure, FailureKind, Kind, Known, Operation};
pub use plan::{Iteration, Plan, Table};
pub use symbol::Symbol;
