//! What a declared procedure is to the engine, and sets of them.

use seriatim_catalog::ColumnUse;
use seriatim_engine::Operations;
use seriatim_procedure::ir;

use super::support::Erased;
use super::{Data, Schedule, Touch};
use crate::{Abort, Database, SchemaError, Tx};

/// A declared procedure. `#[procedure]` implements it for a unit type with the function's name.
pub trait Declared: Copy + Send + Sync + 'static {
    /// Its name, unique among the procedures of a database.
    const NAME: &'static str;
    /// Whether [`Declared::scheduled`] follows its schedule step by step; else it only runs whole.
    const SCHEDULES: bool = false;
    /// The operations all of whose keys [`Declared::footprint`] visits, if it comes to its end.
    const TOLD: &'static [ir::OperationId] = &[];
    /// Its parameters, owned: the type itself if there is one, else a tuple.
    type Arguments: Data + Send + Sync + 'static;
    /// Its result.
    type Output: Data + Send + 'static;
    /// The tables and indexes it uses.
    type Handles: Send + Sync + 'static;

    /// The procedure as data.
    fn declaration() -> ir::Procedure;

    /// Finds the tables it uses.
    ///
    /// # Errors
    /// A table that is not there, or is another than the type declares.
    fn handles(database: &Database) -> Result<Self::Handles, SchemaError>;

    /// Notes the columns that each operation, by its id, may read and change, so that [`Declared::straight`] and
    /// [`Declared::scheduled`] ask for no others. Without it they are all columns.
    fn set_columns(handles: &mut Self::Handles, columns: &[ColumnUse]) {
        let _ = (handles, columns);
    }

    /// Runs the body from top to bottom, by these operations: those of a [`Tx`], or such as are compiled for a protocol.
    ///
    /// # Errors
    /// Its own abort, a conflict, a duplicate or missing row, overflow.
    fn straight<O: Operations>(
        operations: &O,
        handles: &Self::Handles,
        arguments: &Self::Arguments,
    ) -> Result<Self::Output, Abort>;

    /// Runs the steps that `schedule` says, in passes, up to its end (see [`Schedule`]).
    ///
    /// # Errors
    /// What [`Schedule::pass`] returns.
    fn scheduled(
        tx: &mut Tx,
        handles: &Self::Handles,
        arguments: &Self::Arguments,
        schedule: &mut Schedule<'_>,
    ) -> Result<Self::Output, Abort> {
        schedule.run_whole(tx, |tx| Self::straight(&tx.core, handles, arguments))
    }

    /// Calls `visit` for each access whose keys depend on the arguments alone, also those in loops and branches over arguments. Returns
    /// whether it came to its end: arithmetic or an index in a branch that data decide may end it where the procedure goes on.
    ///
    /// # Panics
    /// If a `#[pure]` function that computes a key panics; the procedure itself may have ended before it called it.
    fn footprint(handles: &Self::Handles, arguments: &Self::Arguments, visit: &mut dyn FnMut(Touch<'_>)) -> bool;
}

/// Procedures to be registered together. [`procedures!`](crate::procedures) makes one.
#[derive(Default)]
pub struct Procedures {
    pub(crate) declared: Vec<Erased>,
}

impl Procedures {
    /// No procedures.
    pub fn new() -> Procedures {
        Procedures::default()
    }

    /// These procedures and one more.
    #[must_use]
    pub fn with<P: Declared>(mut self, _: P) -> Procedures {
        self.declared.push(Erased::of::<P>());
        self
    }

    /// Their declarations, in the order they were added.
    pub fn declarations(&self) -> impl Iterator<Item = ir::Procedure> {
        self.declared.iter().map(|procedure| (procedure.declaration)())
    }
}

impl std::fmt::Debug for Procedures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.declared.iter().map(|procedure| procedure.name)).finish()
    }
}

/// The procedures of these names, as a set to register: `db.register(procedures![transfer, audit])`.
#[macro_export]
macro_rules! procedures {
    ($($procedure:path),* $(,)?) => {
        $crate::procedure::Procedures::new()$(.with($procedure))*
    };
}
