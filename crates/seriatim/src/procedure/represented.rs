//! Procedures that exist only as data: the interpreter runs them. Their footprints are walks over the representation.
//!
//! They can be replaced and removed. A call that finds in its attempt that its entry is no longer the registered one
//! begins again with the one that is. So none runs after another has taken its place.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use seriatim_catalog::ColumnUse;
use seriatim_engine::procedure::divided::Reply;
use seriatim_engine::procedure::watch::KeysSeen;
use seriatim_engine::procedure::{InterpretedTables, in_procedure, reach};
use seriatim_engine::{Committed, Origin, Runner, Step, TxCore, with_value};
use seriatim_procedure::analysis;
use seriatim_procedure::ir::{self, OperationId, OperationKind};
use seriatim_procedure::pack::{pack_all, unpack_all};
use seriatim_txn::{Mode, PartitionSet};

use super::call::{InPartitions, Stepping, unfit};
use super::check::PlanChecker;
use super::divided::{Job, Ran, unsound};
use super::registered::{AnyHandles, CallArguments, CallByName, Registered, StepByName};
use super::registry::Entry;
use super::{Access, DataType, EvaluationError, Keys, Refusals, Touch, Value};
use crate::{Abort, Database, SchemaError, Session, TransactError, Tx};

/// A procedure that is data.
pub(crate) struct Represented {
    name: &'static str,
    declaration: ir::Procedure,
    arguments: DataType,
}

/// What a call needs.
struct Handles {
    tables: InterpretedTables,
    arguments: DataType,
}

/// Procedures have their names for ever, as reports of conflicts outlive them: each name is kept once.
fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    name
}

impl Represented {
    pub(crate) fn new(declaration: ir::Procedure, parameters: Vec<DataType>) -> Represented {
        let mut parameters = parameters;
        let arguments = match parameters.len() {
            1 => parameters.remove(0),
            _ => DataType::Tuple(parameters),
        };
        Represented { name: kept(&declaration.name), declaration, arguments }
    }
}

impl Registered for Represented {
    fn name(&self) -> &'static str {
        self.name
    }

    fn id(&self) -> TypeId {
        TypeId::of::<Represented>()
    }

    fn schedules(&self) -> bool {
        false
    }

    fn is_data(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), Refusals> {
        analysis::validate(&self.declaration)?;
        let parameters = match &self.arguments {
            DataType::Tuple(parts) if self.declaration.parameters != 1 => parts.len(),
            _ => 1,
        };
        if parameters == self.declaration.parameters {
            return Ok(());
        }
        let ir::Procedure { name, span, parameters: wanted, .. } = &self.declaration;
        let problem = format!("it has {wanted} parameters and the types of {parameters}");
        Err(Refusals(vec![analysis::Refusal { procedure: name.clone(), span: span.clone(), problem }]))
    }

    fn told(&self) -> Vec<OperationId> {
        (0..self.declaration.operations).map(|id| OperationId(id as u16)).collect()
    }

    fn declaration(&self) -> ir::Procedure {
        self.declaration.clone()
    }

    fn types(&self) -> [String; 2] {
        [self.arguments.to_string(), "its value".to_owned()]
    }

    fn handles(&self, database: &Database, _: &[ColumnUse]) -> Result<AnyHandles, SchemaError> {
        let tables = InterpretedTables::of(&self.declaration, database.engine());
        Ok(Box::new(Handles { tables, arguments: self.arguments.clone() }))
    }

    fn handles_again(&self, database: &Database, _: &AnyHandles, _: &[ColumnUse]) -> AnyHandles {
        let tables = InterpretedTables::of(&self.declaration, database.engine());
        Box::new(Handles { tables, arguments: self.arguments.clone() })
    }

    fn call_by_name(&self) -> CallByName {
        by_name
    }

    fn interpret_by_name(&self) -> CallByName {
        by_name
    }

    fn step_by_name(&self) -> StepByName {
        step_by_name
    }

    fn run_in(&self, entry: &Entry, tx: &Tx, arguments: &Value) -> Result<Result<Value, Abort>, TransactError> {
        let call = Call::new(entry, arguments)?;
        Ok(tx.core.in_one_call(|| call.value(&tx.core)))
    }

    fn arguments<'e>(&self, entry: &'e Entry, value: &Value) -> Result<Box<dyn CallArguments + 'e>, TransactError> {
        Call::new(entry, value).map(|call| Box::new(call) as Box<_>)
    }

    fn pack(&self, entry: &Entry, value: &Value) -> Result<Vec<u8>, TransactError> {
        Call::new(entry, value).map(|call| pack_all(&call.arguments))
    }

    fn unpack<'e>(&self, entry: &'e Entry, bytes: &[u8]) -> Result<Box<dyn CallArguments + 'e>, TransactError> {
        Call::unpacked(entry, bytes).map(|call| Box::new(call) as Box<_>)
    }

    fn output(&self, bytes: &[u8]) -> Result<Value, EvaluationError> {
        unpack_all(bytes)
    }

    fn run(&self, runner: &mut Runner, entry: &Entry, job: &Job<'_>) -> Result<Ran, TransactError> {
        let call = Call::unpacked(entry, &job.fragment.arguments)?;
        if job.fragment.round.is_some() {
            return Err(unsound(format!("procedure {} does not run in parts", entry.name)));
        }
        runner.tx.name_procedure(entry.name);
        let mut reply = None;
        let mut body = |core: &mut TxCore| {
            reply = Some(Reply::Output(pack_all(&call.value(core)?)));
            Ok(())
        };
        let then = |core: &mut TxCore, undo: &super::divided::Undo| (job.then)(Tx::of_mut(core), undo);
        let reach = job.at.map_or(PartitionSet::NONE, |at| job.division.owned(at));
        let (undo, receipt) = runner.run_alone(entry.name, reach, job.undo, &mut body, &then)?;
        Ok(Ran { reply: reply.ok_or_else(|| unsound("a fragment without a reply"))?, undo, receipt })
    }
}

/// A call with arguments of the declared types.
struct Call<'e> {
    entry: &'e Entry,
    handles: &'e Handles,
    arguments: Value,
}

impl<'e> Call<'e> {
    fn new(entry: &'e Entry, arguments: &Value) -> Result<Call<'e>, TransactError> {
        let Some(handles) = entry.handles.downcast_ref::<Handles>() else {
            unreachable!("the handles of a procedure are made by the procedure")
        };
        let arguments = handles.arguments.value(arguments).map_err(|error| unfit(entry.name, &error))?;
        Ok(Call { entry, handles, arguments })
    }

    fn unpacked(entry: &'e Entry, bytes: &[u8]) -> Result<Call<'e>, TransactError> {
        let value = unpack_all(bytes).map_err(|error: EvaluationError| unfit(entry.name, &error))?;
        Call::new(entry, &value)
    }

    /// The result, in an open transaction.
    fn value(&self, tx: &TxCore) -> Result<Value, Abort> {
        let Entry { declaration, columns, .. } = self.entry;
        self.handles.tables.interpret(tx, declaration, columns, &self.arguments)
    }

    /// As [`Call::value`]; `None` if another procedure has taken its place.
    fn value_unless_replaced(&self, tx: &TxCore) -> Result<Option<Value>, Abort> {
        // ORDERING: pairs with the release when it was replaced. Where others rely on the set, no transaction was open
        // then, and the lease of the worker makes it visible to this attempt.
        match self.entry.is_replaced.load(Ordering::Acquire) {
            true => Ok(None),
            false => self.value(tx).map(Some),
        }
    }

    /// Runs it. `None` if another procedure has taken its place.
    fn run(
        &self,
        runner: &mut Runner,
        known: Option<&InPartitions>,
    ) -> Result<Committed<Option<Value>>, TransactError> {
        let entry = self.entry;
        runner.tx.renew();
        runner.tx.name_procedure(entry.name);
        if let Some(partitions) = runner.partitions() {
            let owned = match known {
                Some(known) if std::ptr::eq(entry, &*known.entry) => known.owned,
                _ => entry.reach.of(self, partitions)?,
            };
            runner.reach(owned);
        }
        let mut output = None;
        let mut body = |core: &TxCore| {
            output = Some(self.value_unless_replaced(core)?);
            Ok(())
        };
        let mut result = match entry.checked {
            true => PlanChecker::new(entry, self.arguments.clone(), self).run(runner, entry, &mut |tx| body(&tx.core)),
            false => runner.run_dyn(entry.mode(), Origin::Procedure, &mut body),
        };
        if let Err(error) = &mut result {
            in_procedure(error, entry.name);
        }
        result.map(|committed| with_value(committed, output))
    }
}

impl reach::Arguments for Call<'_> {
    fn part(&self, path: &[Arc<str>]) -> Option<Value> {
        path.iter().try_fold(self.arguments.clone(), |value, name| value.field(name).cloned())
    }

    fn visit(&self, visit: &mut reach::Visit<'_>) -> bool {
        self.touches(&mut |touch| touch.bounds(visit))
    }
}

impl CallArguments for Call<'_> {
    fn touches(&self, visit: &mut dyn FnMut(Touch<'_>)) -> bool {
        let Entry { declaration, plan, .. } = self.entry;
        self.handles.tables.footprint(declaration, plan, &self.arguments, &mut |operation, table, keys| {
            let access = match operation.kind {
                OperationKind::Get { .. } | OperationKind::Scan { .. } => Access::Read,
                _ => Access::Write,
            };
            let keys = match &keys {
                KeysSeen::One(key) => Keys::One(key.as_key()),
                KeysSeen::Range(low, high) => {
                    Keys::Range(low.as_ref().map(|key| key.as_key()), high.as_ref().map(|key| key.as_key()))
                }
            };
            visit(Touch { operation: operation.id, table, access, keys });
        })
    }
}

fn by_name(session: &mut Session, at: usize, arguments: &Value) -> Result<Committed<Value>, TransactError> {
    run_by_name(session, at, arguments, None)
}

fn run_by_name(
    session: &mut Session,
    at: usize,
    arguments: &Value,
    known: Option<&InPartitions>,
) -> Result<Committed<Value>, TransactError> {
    let Session { runner, called, .. } = &mut *session;
    let entry = called.entry(at);
    let name = entry.name;
    let result = match Call::new(entry, arguments)?.run(runner, known) {
        Ok(Committed { value: Some(value), receipt, attempts }) => Ok(Committed { value, receipt, attempts }),
        Ok(Committed { value: None, .. }) => return session.call_named(name, arguments),
        Err(error) => Err(error),
    };
    #[cfg(feature = "test-support")]
    session.record_value(name, arguments, result.as_ref().map(|committed| &committed.value));
    result
}

/// As `Session::step_declared`.
fn step_by_name(session: &mut Session, at: usize, arguments: &Value, stepping: Stepping<'_, Value>) -> Step<Value> {
    let Stepping { known, detached, decided, wait } = stepping;
    let Session { runner, called, .. } = &mut *session;
    let entry = called.entry(at);
    let entry_name = entry.name;
    // A decided attempt is concluded by the entry that ran it, or by what has its place.
    if decided.is_none() && (entry.checked || runner.runs_whole() || entry.mode() != Mode::ReadWrite) {
        if !wait {
            return Step::Stalled;
        }
        return Step::Done(run_by_name(session, at, arguments, known));
    }
    let call = match Call::new(entry, arguments) {
        Ok(call) => call,
        Err(error) => return Step::Done(Err(error)),
    };
    runner.tx.name_procedure(entry.name);
    let mut is_replaced = false;
    let mut step = detached.step(runner, decided, wait, |core| match call.value_unless_replaced(core)? {
        Some(value) => Ok(value),
        None => {
            is_replaced = true;
            Err(core.abort("another procedure has its place"))
        }
    });
    if is_replaced {
        return if wait { Step::Done(session.call_named(entry_name, arguments)) } else { Step::Stalled };
    }
    if let Step::Done(Err(error)) = &mut step {
        in_procedure(error, entry_name);
    }
    #[cfg(feature = "test-support")]
    if let Step::Done(result) = &step {
        session.record_value(entry_name, arguments, result.as_ref().map(|committed| &committed.value));
    }
    step
}
