//! What a registered procedure is: a type with compiled code, or data that the interpreter runs.

use std::any::{Any, TypeId, type_name};
use std::marker::PhantomData;
use std::sync::Arc;

use seriatim_catalog::ColumnUse;
use seriatim_engine::procedure::reach;
use seriatim_engine::{Runner, Step};
use seriatim_procedure::ir::{self, OperationId};
use seriatim_procedure::pack::{pack_all, unpack_all};

use super::call::{self, Stepping, Straight, unfit};
use super::divided::{self, Job, Ran};
use super::registry::Entry;
use super::{Data, Declared, EvaluationError, Number, Refusals, Touch, Value, interpret};
use crate::{Abort, Committed, Database, SchemaError, Session, TransactError, Tx};

/// The handles of a procedure, of any type.
pub(crate) type AnyHandles = Box<dyn Any + Send + Sync>;

/// Runs the procedure at this place of the session's list.
pub(crate) type CallByName = fn(&mut Session, usize, &Value) -> Result<Committed<Value>, TransactError>;

/// As [`CallByName`], by an executor.
pub(crate) type StepByName = fn(&mut Session, usize, &Value, Stepping<'_, Value>) -> Step<Value>;

/// The arguments of a call, and what they tell of it.
pub(crate) trait CallArguments: reach::Arguments {
    /// As [`Declared::footprint`].
    fn touches(&self, visit: &mut dyn FnMut(Touch<'_>)) -> bool;
}

/// A procedure as it is registered.
pub(crate) trait Registered: Send + Sync {
    fn name(&self) -> &'static str;

    /// The type that declares it; of one that is data, a type that declares none.
    fn id(&self) -> TypeId;

    /// Whether its code follows a schedule.
    fn schedules(&self) -> bool;

    /// Whether it exists only as data.
    fn is_data(&self) -> bool {
        false
    }

    /// Checks that it is a procedure.
    fn check(&self) -> Result<(), Refusals> {
        Ok(())
    }

    /// The operations whose keys [`CallArguments::touches`] visits, if it does not end early.
    fn told(&self) -> Vec<OperationId>;

    /// The numbers that a call takes before it runs.
    fn numbers(&self) -> &'static [Number] {
        &[]
    }

    fn declaration(&self) -> ir::Procedure;

    /// Descriptions of its arguments and its result.
    fn types(&self) -> [String; 2];

    /// Finds its tables. `columns`: by operation, those that it may read and change.
    fn handles(&self, database: &Database, columns: &[ColumnUse]) -> Result<AnyHandles, SchemaError>;

    /// As [`Registered::handles`], of tables that are changed and were found before. It opens none.
    fn handles_again(&self, database: &Database, before: &AnyHandles, columns: &[ColumnUse]) -> AnyHandles;

    fn call_by_name(&self) -> CallByName;

    fn interpret_by_name(&self) -> CallByName;

    fn step_by_name(&self) -> StepByName;

    /// Runs it as a part of an open transaction. The outer error is of the arguments.
    fn run_in(&self, entry: &Entry, tx: &Tx, arguments: &Value) -> Result<Result<Value, Abort>, TransactError>;

    /// The arguments of a call, which takes no numbers.
    fn arguments<'e>(&self, entry: &'e Entry, value: &Value) -> Result<Box<dyn CallArguments + 'e>, TransactError>;

    /// The same as bytes, for another process.
    fn pack(&self, entry: &Entry, value: &Value) -> Result<Vec<u8>, TransactError>;

    /// Arguments as [`Registered::pack`] makes them.
    fn unpack<'e>(&self, entry: &'e Entry, bytes: &[u8]) -> Result<Box<dyn CallArguments + 'e>, TransactError>;

    /// The result of a call from its bytes.
    fn output(&self, bytes: &[u8]) -> Result<Value, EvaluationError>;

    /// Runs a fragment of a call.
    fn run(&self, runner: &mut Runner, entry: &Entry, job: &Job<'_>) -> Result<Ran, TransactError>;
}

/// A procedure that is a type.
pub(crate) struct Typed<P>(PhantomData<P>);

impl<P: Declared> Typed<P> {
    pub(crate) fn new() -> Typed<P> {
        Typed(PhantomData)
    }
}

impl<P: Declared> Registered for Typed<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn id(&self) -> TypeId {
        TypeId::of::<P>()
    }

    fn schedules(&self) -> bool {
        P::SCHEDULES
    }

    fn told(&self) -> Vec<OperationId> {
        P::TOLD.to_vec()
    }

    fn numbers(&self) -> &'static [Number] {
        P::NUMBERS
    }

    fn declaration(&self) -> ir::Procedure {
        P::declaration()
    }

    fn types(&self) -> [String; 2] {
        [type_name::<P::All>(), type_name::<P::Output>()].map(str::to_owned)
    }

    fn handles(&self, database: &Database, columns: &[ColumnUse]) -> Result<AnyHandles, SchemaError> {
        let mut handles = P::handles(database)?;
        P::set_columns(&mut handles, columns);
        Ok(Box::new(handles))
    }

    fn handles_again(&self, _: &Database, before: &AnyHandles, columns: &[ColumnUse]) -> AnyHandles {
        match before.downcast_ref::<P::Handles>() {
            Some(handles) => {
                let mut handles = handles.clone();
                P::set_columns(&mut handles, columns);
                Box::new(handles)
            }
            None => unreachable!("the handles of a procedure are made by the procedure"),
        }
    }

    fn call_by_name(&self) -> CallByName {
        call::by_name::<P>
    }

    fn interpret_by_name(&self) -> CallByName {
        interpret::by_name::<P>
    }

    fn step_by_name(&self) -> StepByName {
        call::step_by_name::<P>
    }

    fn run_in(&self, entry: &Entry, tx: &Tx, arguments: &Value) -> Result<Result<Value, Abort>, TransactError> {
        let given = P::Arguments::from_value(arguments).map_err(|error| unfit(P::NAME, &error))?;
        let (mut output, mut place) = (None, None);
        let mut stopped = None;
        let mut number = |at: usize| {
            tx.core.next_number(&entry.numbers[at]).map_err(|abort| {
                stopped = Some(abort);
                TransactError::Closed
            })
        };
        let arguments = match (P::complete(&given, &mut number, &mut place), stopped) {
            (Ok(arguments), _) => arguments,
            // The abort says why, and ends the transaction.
            (Err(_), Some(abort)) => return Ok(Err(abort)),
            (Err(error), None) => return Err(error),
        };
        let done = tx.core.in_one_call(|| P::straight(&tx.core, entry.handles::<P>(), arguments, &mut output));
        Ok(done.map(|()| output.expect("a body that succeeds leaves its result").to_value()))
    }

    fn arguments<'e>(&self, entry: &'e Entry, value: &Value) -> Result<Box<dyn CallArguments + 'e>, TransactError> {
        let arguments = P::All::from_value(value).map_err(|error| unfit(P::NAME, &error))?;
        Ok(Box::new(Owned::<P> { handles: entry.handles::<P>(), arguments }))
    }

    fn pack(&self, _: &Entry, value: &Value) -> Result<Vec<u8>, TransactError> {
        P::All::from_value(value).map(|value| pack_all(&value)).map_err(|error| unfit(P::NAME, &error))
    }

    fn unpack<'e>(&self, entry: &'e Entry, bytes: &[u8]) -> Result<Box<dyn CallArguments + 'e>, TransactError> {
        let arguments = unpack_all(bytes).map_err(|error| unfit(P::NAME, &error))?;
        Ok(Box::new(Owned::<P> { handles: entry.handles::<P>(), arguments }))
    }

    fn output(&self, bytes: &[u8]) -> Result<Value, EvaluationError> {
        unpack_all::<P::Output>(bytes).map(|output| output.to_value())
    }

    fn run(&self, runner: &mut Runner, entry: &Entry, job: &Job<'_>) -> Result<Ran, TransactError> {
        divided::run::<P>(runner, entry, job)
    }
}

/// As [`Straight`], with its arguments.
struct Owned<'e, P: Declared> {
    handles: &'e P::Handles,
    arguments: P::All,
}

impl<P: Declared> reach::Arguments for Owned<'_, P> {
    fn part(&self, path: &[Arc<str>]) -> Option<Value> {
        self.arguments.part(path)
    }

    fn visit(&self, visit: &mut reach::Visit<'_>) -> bool {
        self.touches(&mut |touch| touch.bounds(visit))
    }
}

impl<P: Declared> CallArguments for Owned<'_, P> {
    fn touches(&self, visit: &mut dyn FnMut(Touch<'_>)) -> bool {
        P::footprint(self.handles, &self.arguments, visit)
    }
}

impl<P: Declared> CallArguments for Straight<'_, P> {
    fn touches(&self, visit: &mut dyn FnMut(Touch<'_>)) -> bool {
        P::footprint(self.handles, self.arguments, visit)
    }
}
