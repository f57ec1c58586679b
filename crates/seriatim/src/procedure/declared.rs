//! The interface of a declared procedure, and sets of procedures.

use std::sync::Arc;

use seriatim_catalog::ColumnUse;
use seriatim_engine::Operations;
use seriatim_procedure::ir;

use super::call::Straight;
use super::registered::{Registered, Typed};
use super::represented::Represented;
use super::{Data, DataType, Schedule, Touch};
use crate::{Abort, Database, SchemaError, TransactError, Tx};

/// A declared procedure. `#[procedure]` implements it for a unit type with the function's name.
pub trait Declared: Copy + Send + Sync + 'static {
    /// The procedure's name, unique in a database.
    const NAME: &'static str;
    /// Whether [`Declared::scheduled`] follows its schedule step by step; otherwise the procedure only runs whole.
    const SCHEDULES: bool = false;
    /// The operations whose keys [`Declared::footprint`] visits completely, if it returns true.
    const TOLD: &'static [ir::OperationId] = &[];
    /// The numbers that a call takes before it runs, in the order of its last arguments.
    const NUMBERS: &'static [Number] = &[];
    /// The parameters of the caller, owned: the type itself if there is one, otherwise a tuple.
    type Arguments: Data + Send + Sync + 'static;
    /// Those, and the numbers that the call takes.
    type All: Data + Send + Sync + 'static;
    /// The result.
    type Output: Data + Send + 'static;
    /// The tables and indexes that the procedure uses.
    type Handles: Clone + Send + Sync + 'static;

    /// Returns all arguments: those of the caller, and the numbers that `number` gives for each of
    /// [`Declared::NUMBERS`]. They are put in `place` if they are not the caller's.
    ///
    /// # Errors
    /// Those of `number`.
    fn complete<'given>(
        given: &'given Self::Arguments,
        number: &mut dyn FnMut(usize) -> Result<i64, TransactError>,
        place: &'given mut Option<Self::All>,
    ) -> Result<&'given Self::All, TransactError>;

    /// Returns the procedure as data.
    fn declaration() -> ir::Procedure;

    /// Finds the tables that the procedure uses.
    ///
    /// # Errors
    /// A table is missing, or differs from the declaration of its type.
    fn handles(database: &Database) -> Result<Self::Handles, SchemaError>;

    /// Sets the columns that each operation, by its id, may read and change. [`Declared::straight`] and
    /// [`Declared::scheduled`] then request no others. By default they request all columns.
    fn set_columns(handles: &mut Self::Handles, columns: &[ColumnUse]) {
        let _ = (handles, columns);
    }

    /// Runs the body from top to bottom, and leaves its result in `output`. `operations` are those of a [`Tx`], or are
    /// compiled for a protocol.
    ///
    /// # Errors
    /// The procedure's own abort, a conflict, a duplicate or missing row, overflow.
    fn straight<O: Operations>(
        operations: &O,
        handles: &Self::Handles,
        arguments: &Self::All,
        output: &mut Option<Self::Output>,
    ) -> Result<(), Abort>;

    /// Runs the steps of `schedule`, in passes, up to its end (see [`Schedule`]).
    ///
    /// # Errors
    /// Those of [`Schedule::pass`].
    fn scheduled(
        tx: &mut Tx,
        handles: &Self::Handles,
        arguments: &Self::All,
        schedule: &mut Schedule<'_>,
    ) -> Result<Self::Output, Abort> {
        schedule.run_whole(tx, |tx| Straight::<Self> { handles, arguments }.value(tx))
    }

    /// Calls `visit` for each access whose keys depend on the arguments alone, also in loops and in branches over
    /// arguments. Returns whether it visited all of them. An overflow, or an index out of range, may end it early in
    /// a branch that the procedure does not take.
    ///
    /// # Panics
    /// If a `#[pure]` function that computes a key panics. The procedure itself might have ended before calling it.
    fn footprint(handles: &Self::Handles, arguments: &Self::All, visit: &mut dyn FnMut(Touch<'_>)) -> bool;
}

/// A number that a call takes: each time the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Of the sequence of this name.
    OfSequence(&'static str),
    /// Of the identity column of the table of this name.
    OfTable(&'static str),
}

/// Procedures to be registered together. [`procedures!`](crate::procedures) makes such a set.
#[derive(Default)]
pub struct Procedures {
    pub(crate) declared: Vec<Arc<dyn Registered>>,
}

impl Procedures {
    /// An empty set.
    pub fn new() -> Procedures {
        Procedures::default()
    }

    /// Adds a procedure to the set.
    #[must_use]
    pub fn with<P: Declared>(mut self, _: P) -> Procedures {
        self.declared.push(Arc::new(Typed::<P>::new()));
        self
    }

    /// Adds a procedure that is made at run time, with the types of its parameters. The interpreter runs it as one
    /// transaction; it is called by name. It is analysed like others, and a call's partitions and footprint follow from
    /// its arguments. It is neither cut, repaired nor prefetched. Names of procedures are kept in memory for ever.
    ///
    /// ```
    /// use seriatim::procedure::{Procedures, ir};
    /// use seriatim::{Abort, Database, Table, Tx, procedure, procedures};
    /// # use seriatim::procedure::{Data, Declared};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # #[procedure]
    /// # fn count(tx: &Tx, id: u32) -> Result<u64, Abort> {
    /// #     let n = tx.update::<Counter>(id, |counter| { counter.n += 1; counter.n })?;
    /// #     Ok(n)
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let counters = db.create::<Counter>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// # let made = count::declaration();
    /// let made: ir::Procedure = made; // by a front end, such as a language of queries
    /// let set = Procedures::new().with_representation(made, vec![seriatim::catalog::ColumnType::U32.into()]);
    /// db.register(set)?;
    /// assert_eq!(session.call_by_name("count", &7u32.to_value())?.value, 42u64.to_value());
    /// assert!(db.unregister("count")?);
    /// assert!(session.call_by_name("count", &7u32.to_value()).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_representation(mut self, procedure: ir::Procedure, parameters: Vec<DataType>) -> Procedures {
        self.declared.push(Arc::new(Represented::new(procedure, parameters)));
        self
    }

    /// Returns the declarations, in the order in which they were added.
    pub fn declarations(&self) -> impl Iterator<Item = ir::Procedure> {
        self.declared.iter().map(|procedure| procedure.declaration())
    }
}

impl std::fmt::Debug for Procedures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.declared.iter().map(|procedure| procedure.name())).finish()
    }
}

/// The procedures of these names, as a set to register: `db.register(procedures![transfer, audit])`.
#[macro_export]
macro_rules! procedures {
    ($($procedure:path),* $(,)?) => {
        $crate::procedure::Procedures::new()$(.with($procedure))*
    };
}
