//! The partitions of a call, computed before it runs (Jones, Abadi, Madden, SIGMOD 2010, §3.1).
//!
//! An operation's partition is known if
//! 1. the value that names it is a part of the arguments; or
//! 2. the arguments determine the whole key, and the generated footprint visits it, for each iteration; or
//! 3. another operation is known by 2, and runs whenever this one does, with the same value.
//!
//! Reads of replicated tables need no partition, unless the procedure changes the table: then they need all, as
//! the change does. A procedure with any other operation needs all partitions too, and registration says why.
//! The result is not trusted: the protocol checks each access.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use seriatim_catalog::{ColumnId, Found, Key, OnChange, PartitionValue};
use seriatim_procedure::Value;
use seriatim_procedure::ir::{OperationId, Procedure};
use seriatim_procedure::plan::{Kind, Operation, Plan, Symbol};
use seriatim_txn::{PartitionSet, Partitions, Placement};

use crate::link::{End, Link};
use crate::{Engine, TableSet, TransactError};

/// The arguments of a call.
pub trait Arguments {
    /// The part that these names of fields lead to, if there is one.
    fn part(&self, path: &[Arc<str>]) -> Option<Value>;

    /// Calls `visit` for each access whose keys the arguments determine: with the operation, and the bounds of
    /// its keys.
    /// Returns whether these are all: it may end early, where it computes a value that the call may never need.
    fn visit(&self, visit: &mut Visit<'_>) -> bool;
}

impl<A: Arguments + ?Sized> Arguments for &A {
    fn part(&self, path: &[Arc<str>]) -> Option<Value> {
        (**self).part(path)
    }

    fn visit(&self, visit: &mut Visit<'_>) -> bool {
        (**self).visit(visit)
    }
}

/// Called with an operation, and the bounds of its keys.
pub type Visit<'v> = dyn FnMut(usize, Bound<Key<'_>>, Bound<Key<'_>>) + 'v;

/// As [`Arguments::visit`]. A pure function that panics ends it early; it also panics in the procedure, if that
/// reaches it.
pub fn visit_all(arguments: &impl Arguments, visit: &mut Visit<'_>) -> bool {
    catch_unwind(AssertUnwindSafe(|| arguments.visit(visit))).unwrap_or(false)
}

/// How the partitions of a procedure's calls follow from its arguments.
#[derive(Default)]
pub struct Reach {
    /// Why its calls need all partitions, if they do.
    pub everywhere: Option<String>,
    /// Why the partitions of some of its operations are unknown, if they are.
    pub unknown: Option<String>,
    /// By operation: whether the footprint visits all its keys, if it does not end early.
    in_footprint: Vec<bool>,
    /// Parts of the arguments, by the names of fields, whose values name partitions.
    parts: Vec<Vec<Arc<str>>>,
    /// Constants that name partitions.
    constants: Vec<i128>,
    /// By operation: its table or index, if the footprint's keys are needed. Empty if none is.
    footprint: Vec<Option<Placed>>,
    /// By operation: which of the above names its partition; empty if the partition of an operation is unknown.
    by: Vec<By>,
}

/// The source of an operation's partition: it needs none, or all, or the one named by [`Reach::parts`],
/// [`Reach::constants`] or [`Reach::footprint`].
#[derive(Clone, Copy, Debug)]
enum By {
    Nothing,
    Everywhere,
    Argument(usize),
    Constant(usize),
    Footprint(usize),
}

/// Where an operation of a call may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationPlacement {
    /// In these partitions.
    pub partitions: PartitionSet,
    /// The values that name them; none if the operation needs no partition.
    pub values: Vec<PartitionValue>,
}

/// A table, or an index of it by its position.
#[derive(Clone)]
pub(super) struct Placed {
    pub(super) set: Arc<TableSet>,
    pub(super) index: Option<usize>,
}

impl Placed {
    /// How its keys name the partition.
    pub(super) fn placement(&self) -> &Placement {
        match self.index {
            None => &self.set.primary.placement,
            Some(at) => &self.set.indexes[at].table.placement,
        }
    }
}

/// How the partition of an operation is known.
enum Known {
    /// The operation needs none.
    Nowhere,
    /// The operation needs all, for this reason.
    Everywhere(String),
    Argument(Vec<Arc<str>>),
    Constant(i128),
    /// The footprint visits the keys of this operation.
    Footprint(usize),
}

impl Reach {
    /// For a procedure with this plan, whose tables exist. `visited` are the operations whose keys
    /// [`Arguments::visit`] visits.
    pub fn new(plan: &Plan, declaration: &Procedure, visited: &[OperationId], engine: &Engine) -> Reach {
        let touches = plan.footprint().touches.into_iter();
        let in_footprint = |id: usize| visited.iter().any(|visited| visited.index() == id);
        let in_footprint = touches.enumerate().map(|(id, touch)| touch.known && in_footprint(id)).collect();
        let mut reach = Reach { in_footprint, ..Reach::default() };
        for id in 0..plan.operations.len() {
            let operation = &plan.operations[id];
            let Some(set) = engine.find(&plan.tables[operation.table].name) else {
                return reach.without(format!("the table of {} is gone", plan.label(id)));
            };
            let by = match known(plan, declaration, &reach.in_footprint, id, &set) {
                Ok(Known::Nowhere) => By::Nothing,
                Ok(Known::Everywhere(why)) => {
                    reach.everywhere.get_or_insert(why);
                    By::Everywhere
                }
                Ok(Known::Argument(path)) => {
                    let at = reach.parts.iter().position(|known| *known == path).unwrap_or(reach.parts.len());
                    if at == reach.parts.len() {
                        reach.parts.push(path);
                    }
                    By::Argument(at)
                }
                Ok(Known::Constant(number)) => {
                    reach.constants.push(number);
                    By::Constant(reach.constants.len() - 1)
                }
                Ok(Known::Footprint(by)) => {
                    reach.footprint.resize(plan.operations.len(), None);
                    reach.footprint[by] = Some(Placed { index: plan.operations[by].index, set });
                    By::Footprint(by)
                }
                Err(why) => return reach.without(why),
            };
            reach.by.push(by);
        }
        reach
    }

    /// The partitions of some operations are unknown.
    fn without(mut self, why: String) -> Reach {
        self.unknown = Some(why.clone());
        self.everywhere.get_or_insert(why);
        self
    }

    /// Whether the footprint of a call visits all keys of an operation, if it does not end early.
    pub fn in_footprint(&self, operation: usize) -> bool {
        self.in_footprint[operation]
    }

    /// Where each operation of a call with these arguments may run.
    ///
    /// # Errors
    /// The partition function fails on a value; or the arguments do not name a partition.
    pub fn places(
        &self,
        arguments: &impl Arguments,
        partitions: &Partitions,
    ) -> Result<Vec<OperationPlacement>, TransactError> {
        let no_partition = |what: &str| TransactError::NoPartition { table: String::new(), key: what.to_owned() };
        let of_value = |value: PartitionValue| match partitions.of_value(&value) {
            Ok(partition) => Ok(OperationPlacement { partitions: PartitionSet::one(partition), values: vec![value] }),
            Err(_) => Err(no_partition(&shown(&value))),
        };
        let by_footprint = self.footprint_placements(arguments, partitions)?;
        let place = |by: &By| match *by {
            By::Nothing => Ok(OperationPlacement::default()),
            By::Everywhere => Ok(OperationPlacement { partitions: all(partitions), values: Vec::new() }),
            By::Constant(at) => of_value(PartitionValue::Integer(self.constants[at])),
            By::Footprint(at) => Ok(by_footprint[at].clone()),
            By::Argument(at) => match arguments.part(&self.parts[at]).and_then(|part| value(&part)) {
                Some(Some(value)) => of_value(value),
                Some(None) => Ok(OperationPlacement::default()),
                None => Err(no_partition("a value that the arguments do not have")),
            },
        };
        self.by.iter().map(place).collect()
    }

    /// The places of the operations whose keys the footprint visits.
    fn footprint_placements(
        &self,
        arguments: &impl Arguments,
        partitions: &Partitions,
    ) -> Result<Vec<OperationPlacement>, TransactError> {
        let mut places = vec![OperationPlacement::default(); self.footprint.len()];
        if places.is_empty() {
            return Ok(places);
        }
        let mut failed = None;
        let mut visit = |operation: usize, low: Bound<Key<'_>>, high: Bound<Key<'_>>| {
            let Some(placed) = self.footprint.get(operation).and_then(Option::as_ref) else { return };
            let Placement::Value(at) = placed.placement() else { return };
            let value = match (low, high) {
                (Bound::Included(low), Bound::Included(high)) if low == high => at.value(low),
                _ => at.value_between(low, high),
            };
            let place = &mut places[operation];
            match value.as_ref().map(|value| partitions.of_value(value)) {
                Some(Ok(partition)) => place.partitions = place.partitions.union(PartitionSet::one(partition)),
                _ => failed = Some(placed.set.definition.name.to_string()),
            }
            place.values.extend(value.filter(|value| !place.values.contains(value)));
        };
        let is_complete = visit_all(arguments, &mut visit);
        if let Some(table) = failed {
            return Err(TransactError::NoPartition { table, key: "a key".to_owned() });
        }
        if !is_complete {
            // The remaining keys may be in any partition.
            places.iter_mut().for_each(|place| place.partitions = all(partitions));
        }
        Ok(places)
    }

    /// The partitions of a call with these arguments.
    ///
    /// # Errors
    /// The partition function fails on a value.
    pub fn of(&self, arguments: &impl Arguments, partitions: &Partitions) -> Result<PartitionSet, TransactError> {
        if self.everywhere.is_some() {
            return Ok(PartitionSet::ALL);
        }
        let mut all = PartitionSet::NONE;
        let of_value = |value: &PartitionValue| match partitions.of_value(value) {
            Ok(partition) => Ok(PartitionSet::one(partition)),
            Err(_) => Err(TransactError::NoPartition { table: String::new(), key: shown(value) }),
        };
        for path in &self.parts {
            let Some(part) = arguments.part(path) else { return Ok(PartitionSet::ALL) };
            match value(&part) {
                Some(Some(value)) => all = all.union(of_value(&value)?),
                Some(None) => {}
                None => return Ok(PartitionSet::ALL),
            }
        }
        for number in &self.constants {
            all = all.union(of_value(&PartitionValue::Integer(*number))?);
        }
        if self.footprint.is_empty() { Ok(all) } else { self.with_footprint(arguments, partitions, all) }
    }

    /// Adds the partitions of the footprint's keys.
    fn with_footprint(
        &self,
        arguments: &impl Arguments,
        partitions: &Partitions,
        known: PartitionSet,
    ) -> Result<PartitionSet, TransactError> {
        let mut all = Ok(known);
        let mut visit = |operation: usize, low: Bound<Key<'_>>, high: Bound<Key<'_>>| {
            let Some(placed) = self.footprint.get(operation).and_then(Option::as_ref) else { return };
            let (Placement::Value(place), Ok(so_far)) = (placed.placement(), &all) else { return };
            let more = partitions.of_keys(place, low, high);
            all = more.map(|more| so_far.union(more)).map_err(|_| placed.set.definition.name.to_string());
        };
        match visit_all(arguments, &mut visit) {
            false => Ok(PartitionSet::ALL),
            true => all.map_err(|table| TransactError::NoPartition { table, key: "a key".to_owned() }),
        }
    }
}

/// All partitions of the database.
fn all(partitions: &Partitions) -> PartitionSet {
    (0..partitions.count()).fold(PartitionSet::NONE, |all, at| all.union(PartitionSet::one(at)))
}

/// How the partition of an operation follows from the arguments; or why it does not.
fn known(
    plan: &Plan,
    declaration: &Procedure,
    in_footprint: &[bool],
    id: usize,
    set: &TableSet,
) -> Result<Known, String> {
    let operation = &plan.operations[id];
    let everywhere = |index: &usize| matches!(set.indexes[*index].table.placement, Placement::Everywhere);
    let written = operation.accesses.iter().filter(|access| access.table == operation.table && access.changes());
    if matches!(set.primary.placement, Placement::Everywhere) {
        let changes = |other: &Operation| other.table == operation.table && other.changes();
        let why = |id: usize| Known::Everywhere(format!("{} writes a replicated table", plan.label(id)));
        return Ok(plan.operations.iter().position(changes).map_or(Known::Nowhere, why));
    }
    if let Some(index) = written.filter_map(|access| access.index).find(everywhere) {
        let (what, name) = (plan.label(id), &set.definition.indexes[index].name);
        return Err(format!(
            "{what} writes index {name}, which does not have the column that the table is partitioned by"
        ));
    }
    if let Some(link) = elsewhere(operation, set) {
        let what = plan.label(id);
        return Err(format!("{what} follows {link}, whose other rows may be in other partitions"));
    }
    let Some(symbol) = &operation.partition else {
        return Err(format!("the partition of {} is not one value", plan.label(id)));
    };
    if let Some(path) = path(declaration, symbol) {
        return Ok(Known::Argument(path));
    }
    if let Symbol::Literal(text) = symbol
        && let Ok(number) = text.parse()
    {
        return Ok(Known::Constant(number));
    }
    let in_footprint = |id: usize| in_footprint[id] && has_place(&plan.operations[id], set);
    let same = |other: &Operation| other.table == operation.table && other.partition.as_ref() == Some(symbol);
    let tells = |other: &usize| {
        let found = &plan.operations[*other];
        in_footprint(*other) && (*other == id || same(found) && found.accompanies(operation))
    };
    let by = std::iter::once(id).chain(0..plan.operations.len()).find(tells);
    by.map(Known::Footprint)
        .ok_or_else(|| format!("the partition of {}, {symbol}, is not known from the arguments", plan.label(id)))
}

/// The reference or unique constraint by which an operation reads or changes rows that may be in another partition, if
/// there is one.
fn elsewhere(operation: &Operation, set: &TableSet) -> Option<String> {
    let own = operation.accesses.first()?;
    if !operation.changes() {
        return None;
    }
    let is_changed_column = |column: ColumnId| match operation.kind {
        Kind::Update => own.writes.contains(column) || own.commutes.contains(column),
        _ => true,
    };
    let is_changed = |end: &End| end.columns.iter().any(|at| is_changed_column(ColumnId(*at as u16)));
    let from_it = set.links.own.iter().filter(|link| operation.kind != Kind::Delete && is_changed(&link.child));
    let to_it = set.links.to_it.iter().filter(|link| operation.kind != Kind::Insert && is_changed(&link.parent));
    let far = from_it.filter(|link| !is_near(link)).chain(to_it.filter(|link| !finds_near(link))).next();
    // Rows with the same values may be in any partition, unless one of the values names it.
    let place = set.definition.partition_column();
    let far_off = set.links.distinct.iter().filter(|distinct| {
        let is_checked = operation.kind != Kind::Delete && distinct.mask.iter().any(is_changed_column);
        is_checked && place.is_none_or(|place| !distinct.mask.contains(place))
    });
    let reference = far.map(|link| format!("reference {}", link.name));
    reference.or_else(|| far_off.map(|distinct| format!("unique constraint {}", distinct.name)).next())
}

/// Whether each row of a link is in the partition of the row that it refers to, or that row is in all.
fn is_near(link: &Link) -> bool {
    let (Some(child), Some(parent)) = (link.child.set(), link.parent.set()) else { return false };
    if matches!(parent.primary.placement, Placement::Everywhere) && matches!(link.parent.found, Found::Key(_)) {
        return true;
    }
    let place = |set: &TableSet, end: &End| {
        let column = set.definition.partition_column()?;
        end.columns.iter().position(|at| *at == column.index())
    };
    let (of, to) = (place(&child, &link.child), place(&parent, &link.parent));
    of.is_some() && of == to && matches!(link.parent.found, Found::Key(_))
}

/// As [`is_near`], if the rows that refer to a row are also found in its partition, and nothing else follows them.
fn finds_near(link: &Link) -> bool {
    let Some(child) = link.child.set() else { return false };
    let is_found = match &link.child.found {
        Found::Key(_) => matches!(child.primary.placement, Placement::Value(_)),
        Found::Index(at, _) => matches!(child.indexes[*at].table.placement, Placement::Value(_)),
        Found::Scan => false,
    };
    let writes = |action: OnChange| !matches!(action, OnChange::NoAction | OnChange::Restrict);
    let ends_there = child.links.to_it.is_empty() && child.links.own.len() == 1;
    is_near(link) && is_found && (ends_there || !writes(link.on_delete) && !writes(link.on_update))
}

/// Whether the keys of an operation name the partition.
fn has_place(operation: &Operation, set: &TableSet) -> bool {
    let placement = match operation.index {
        None => &set.primary.placement,
        Some(at) => &set.indexes[at].table.placement,
    };
    matches!(placement, Placement::Value(_))
}

/// The fields that lead to a symbol's value in the arguments.
fn path(declaration: &Procedure, symbol: &Symbol) -> Option<Vec<Arc<str>>> {
    match symbol {
        Symbol::Parameter(name) => {
            let mut parameters = declaration.variables.iter().take(declaration.parameters);
            let at = parameters.position(|variable| variable.name == *name)?;
            Some(if declaration.parameters == 1 { Vec::new() } else { vec![at.to_string().into()] })
        }
        // Fields of a variant are in values of that variant only.
        Symbol::Field(base, name) if !name.contains('.') => {
            let mut path = path(declaration, base)?;
            path.push(name.clone());
            Some(path)
        }
        _ => None,
    }
}

/// The value that names a partition; `Some(None)` for an absent value, `None` for a composed one.
fn value(part: &Value) -> Option<Option<PartitionValue>> {
    match part {
        Value::Option(part) => part.as_ref().map_or(Some(None), |part| value(part)),
        part => part.partition_value().map(Some),
    }
}

fn shown(value: &PartitionValue) -> String {
    match value {
        PartitionValue::Integer(number) => number.to_string(),
        PartitionValue::Bytes(bytes) => format!("\"{}\"", bytes.escape_ascii()),
    }
}
