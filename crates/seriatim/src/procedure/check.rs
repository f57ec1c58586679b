//! Checks that an execution follows its plan (that the plan is sound): every access, with its table, index, keys and
//! columns.
//!
//! The checker knows the operations, but not which of them made an access. An access is valid if an operation of its
//! kind, table and index allows it. Keys are compared if all such operations take their keys from the arguments alone.
//! They are compared with the footprint of generated code, and with the keys given by the plan's symbols. Columns that
//! are read are known only in builds with debug assertions ([`seriatim_catalog::watch`]).
//!
//! In an execution in passes, each pass is checked by the operations that run in it. A row that a pass kept for a
//! later one is a copy; columns read from the copy are unknown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use seriatim_base::ColumnId;
use seriatim_catalog::watch::{self, Touched};
use seriatim_catalog::{ColumnSet, KeyBuf, KeyCodec};
use seriatim_engine::procedure::watch::{Accessed, KeysSeen};
use seriatim_engine::{Committed, Origin, Runner, TxCore};
use seriatim_procedure::check_column;
use seriatim_procedure::ir::{Procedure, StepId};
use seriatim_procedure::plan::{Kind, Operation, Plan, Symbol};

use super::call::Straight;
use super::registered::CallArguments;
use super::registry::Entry;
use super::{Access, Data, Declared, IntegerType, Keys, Touch, Value};
use crate::{Abort, TransactError, Tx};

/// Calls a procedure and panics if the execution leaves its plan.
#[cold]
pub(crate) fn run_checked<P: Declared>(
    runner: &mut Runner,
    entry: &Entry,
    call: &Straight<'_, P>,
    output: &mut Option<P::Output>,
) -> Result<Committed<()>, TransactError> {
    let checker = PlanChecker::new(entry, call.arguments.to_value(), call);
    checker.run(runner, entry, &mut |tx| P::straight(&tx.core, call.handles, call.arguments, output))
}

/// An access from the footprint, before the execution.
#[derive(Debug)]
struct FootprintAccess {
    operation: usize,
    keys: KeysSeen,
    writes: bool,
}

impl From<Touch<'_>> for FootprintAccess {
    fn from(touch: Touch<'_>) -> FootprintAccess {
        let Touch { operation, access, keys, .. } = touch;
        FootprintAccess { operation: operation.index(), keys: seen(keys), writes: access == Access::Write }
    }
}

fn seen(keys: Keys<'_>) -> KeysSeen {
    match keys {
        Keys::One(key) => KeysSeen::One(key.to_buf()),
        Keys::Range(low, high) => KeysSeen::Range(low.map(KeyBuf::from), high.map(KeyBuf::from)),
    }
}

/// Checks executions of one procedure with the same arguments.
pub(crate) struct PlanChecker<'j> {
    plan: &'j Plan,
    /// The accesses of the footprint, if it is complete.
    footprint: Option<Vec<FootprintAccess>>,
    declaration: &'j Procedure,
    arguments: Value,
}

impl<'j> PlanChecker<'j> {
    pub(crate) fn new(entry: &'j Entry, arguments: Value, call: &dyn CallArguments) -> PlanChecker<'j> {
        let mut accesses = Vec::new();
        let visit = AssertUnwindSafe(|| call.touches(&mut |touch| accesses.push(FootprintAccess::from(touch))));
        // If the footprint ends early, or panics, keys are checked only where the plan's symbols give them.
        let footprint = catch_unwind(visit).unwrap_or(false).then_some(accesses);
        PlanChecker { plan: &entry.plan, footprint, declaration: &entry.declaration, arguments }
    }

    /// Runs `body` as a transaction of its own.
    pub(crate) fn run(
        &self,
        runner: &mut Runner,
        entry: &Entry,
        body: &mut dyn FnMut(&Tx) -> Result<(), Abort>,
    ) -> Result<Committed<()>, TransactError> {
        let body = &mut |core: &TxCore| self.watch(core, &|_| true, &mut || body(Tx::of(core)));
        runner.run_dyn(entry.mode(), Origin::Procedure, body)
    }

    /// Runs `body`, and panics if it made an access that no operation allows whose step `runs`.
    pub(crate) fn watch(
        &self,
        tx: &TxCore,
        runs: &dyn Fn(StepId) -> bool,
        body: &mut dyn FnMut() -> Result<(), Abort>,
    ) -> Result<(), Abort> {
        tx.start_watching();
        watch::start();
        let result = body();
        let touched = watch::stop();
        let accessed = tx.stop_watching();
        let pass = Pass { checker: self, runs };
        if let Err(violation) = pass.all(tx, &accessed, &touched, result.is_err()) {
            let Plan { procedure, .. } = self.plan;
            panic!("procedure {procedure} leaves its plan: {violation}\n{}", self.plan);
        }
        result
    }
}

/// One pass of an execution.
struct Pass<'p> {
    checker: &'p PlanChecker<'p>,
    runs: &'p dyn Fn(StepId) -> bool,
}

impl<'p> std::ops::Deref for Pass<'p> {
    type Target = PlanChecker<'p>;
    fn deref(&self) -> &PlanChecker<'p> {
        self.checker
    }
}

impl Pass<'_> {
    /// Checks all accesses of the pass. `failed`: the body has not run to its end.
    fn all(&self, tx: &TxCore, accessed: &[Accessed], touched: &[Touched], failed: bool) -> Result<(), String> {
        for access in accessed {
            self.access(tx, access).map_err(|problem| format!("{}: {problem}", describe(access)))?;
        }
        self.columns(accessed, touched, failed)
    }

    /// The operations that may have made the access.
    fn candidates(&self, access: &Accessed) -> Vec<(usize, &Operation)> {
        let is_it = |operation: &Operation| {
            let table = &self.plan.tables[operation.table];
            let index = operation.index.map(|at| &*table.indexes[at]);
            operation.kind == access.kind && *table.name == *access.table && index == access.index.as_deref()
        };
        let runs = |operation: &Operation| (self.runs)(StepId(operation.step as u16));
        let operations = self.plan.operations.iter().enumerate();
        operations.filter(|(_, operation)| is_it(operation) && runs(operation)).collect()
    }

    fn access(&self, tx: &TxCore, access: &Accessed) -> Result<(), String> {
        let candidates = self.candidates(access);
        if candidates.is_empty() {
            return Err("no operation of the plan makes this access".to_owned());
        }
        let own = || candidates.iter().filter_map(|(_, operation)| operation.accesses.first());
        let planned = |column| own().any(|own| own.writes.contains(column) || own.commutes.contains(column));
        if let Some(column) = columns(access.set).find(|column| access.kind == Kind::Update && !planned(*column)) {
            return Err(format!("it sets column {}", self.column(access, column)));
        }
        self.keys(tx, access, &candidates)
    }

    fn keys(&self, tx: &TxCore, access: &Accessed, candidates: &[(usize, &Operation)]) -> Result<(), String> {
        let footprint = self.plan.footprint();
        if !candidates.iter().all(|(id, _)| footprint.touches[*id].known) {
            return Ok(());
        }
        if let Some(footprint) = &self.footprint {
            let accesses = || footprint.iter().filter(|seen| candidates.iter().any(|(id, _)| *id == seen.operation));
            // The footprint visits the key of a new row only if the macro could determine the key columns.
            let must_be_visited = access.kind != Kind::Insert || accesses().next().is_some();
            if must_be_visited && !accesses().any(|seen| seen.keys == access.keys) {
                return Err("the arguments determine its keys, and the footprint has not visited these".to_owned());
            }
            if let Some(wrong) = accesses().find(|seen| seen.writes != self.plan.operations[seen.operation].changes()) {
                let says = if wrong.writes { "writes" } else { "reads" };
                return Err(format!("the footprint says that operation {} {says}", wrong.operation));
            }
        }
        let KeysSeen::One(key) = &access.keys else { return Ok(()) };
        // The key must be that of a candidate. If the key of a candidate has no value here, any key is valid.
        let wanted = candidates.iter().map(|(_, operation)| self.symbolic(tx, operation));
        let Some(wanted) = wanted.collect::<Option<Vec<_>>>() else { return Ok(()) };
        if wanted.contains(key) {
            return Ok(());
        }
        let keys = candidates.iter().map(|(_, operation)| format!("({})", listed(&operation.key)));
        Err(format!("the plan says that its key is {}, not {key:?}", keys.collect::<Vec<_>>().join(" or ")))
    }

    /// The key given by the plan's symbols, if these are fields of arguments and literals.
    fn symbolic(&self, tx: &TxCore, operation: &Operation) -> Option<KeyBuf> {
        let set = tx.find_table(&self.plan.tables[operation.table].name)?;
        let (codec, parts): (&KeyCodec, _) = match operation.index {
            None => (&set.primary.codec, &set.definition.key),
            Some(at) => (&set.indexes.get(at)?.table.codec, &set.definition.indexes.get(at)?.parts),
        };
        let values = parts.iter().zip(&operation.key).map(|(part, symbol)| {
            let value = self.value(symbol)?;
            check_column(&value, &set.definition.columns[part.column.index()]).ok()?;
            Some(value)
        });
        let values: Vec<Value> = values.collect::<Option<_>>()?;
        codec.encode_values(&values).ok()
    }

    fn value(&self, symbol: &Symbol) -> Option<Value> {
        match symbol {
            Symbol::Parameter(name) => {
                let parameters = &self.declaration.variables[..self.declaration.parameters];
                let at = parameters.iter().position(|parameter| parameter.name == *name)?;
                match &self.arguments {
                    one if parameters.len() == 1 => Some(one.clone()),
                    Value::Tuple(values) => values.get(at).cloned(),
                    _ => None,
                }
            }
            Symbol::Field(base, name) => self.value(base)?.field(name).cloned(),
            Symbol::Literal(text) => text.parse().ok().map(|number| Value::Integer(number, None::<IntegerType>)),
            Symbol::Element(..) | Symbol::Result(_) | Symbol::Other(..) => None,
        }
    }

    /// Checks that every column read is read by an operation that returned the row.
    fn columns(&self, accessed: &[Accessed], touched: &[Touched], failed: bool) -> Result<(), String> {
        let mut added = BTreeMap::<(usize, ColumnId), (i64, &Accessed)>::new();
        for touch in touched {
            let sources: Vec<&Accessed> = accessed.iter().filter(|access| access.rows.contains(&touch.row)).collect();
            let planned: Vec<_> = sources.iter().flat_map(|access| self.candidates(access)).collect();
            let own = || planned.iter().filter_map(|(_, operation)| operation.accesses.first());
            let Some(source) = sources.first() else { continue };
            if own().any(|own| own.reads.contains(touch.column)) {
                continue;
            }
            if own().any(|own| own.commutes.contains(touch.column)) {
                // `x += y` reads x once and sets x once.
                added.entry((touch.row, touch.column)).or_insert((0, source)).0 += if touch.set { -1 } else { 1 };
            } else if !touch.set {
                return Err(format!("{}: column {} is read", describe(source), self.column(source, touch.column)));
            }
        }
        // A sum that overflows is read and not set.
        let overflowed = if failed { 1 } else { 0 };
        match added.into_iter().find(|(_, (balance, _))| !(0..=overflowed).contains(balance)) {
            None => Ok(()),
            Some(((_, column), (_, source))) => {
                let name = self.column(source, column);
                Err(format!("{}: column {name} is read or replaced, and the plan only adds to it", describe(source)))
            }
        }
    }

    fn column(&self, access: &Accessed, column: ColumnId) -> String {
        let table = self.plan.tables.iter().find(|table| *table.name == *access.table);
        table.and_then(|table| table.columns.get(column.index())).map_or("?", |name| name).to_owned()
    }
}

fn columns(set: ColumnSet) -> impl Iterator<Item = ColumnId> {
    // Columns from the 64th on share one bit of the set.
    set.iter().take_while(|column| column.0 < 63)
}

fn listed(key: &[Symbol]) -> String {
    key.iter().map(Symbol::to_string).collect::<Vec<_>>().join(", ")
}

fn describe(access: &Accessed) -> String {
    let mut text = format!("{} of {}", access.kind, access.table);
    if let Some(index) = &access.index {
        let _ = write!(text, " by {index}");
    }
    let _ = match &access.keys {
        KeysSeen::One(key) => write!(text, ", key {key:?}"),
        KeysSeen::Range(low, high) => write!(text, ", keys {low:?} to {high:?}"),
    };
    text
}
