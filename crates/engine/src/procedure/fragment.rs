//! Fragments: executions of a procedure in which only those operations run whose rows are in one partition, and whose round it is (Jones,
//! Abadi, Madden, SIGMOD 2010, §3.1).
//!
//! A fragment goes through the whole body. An operation that it reaches
//!
//! 1. has run in an earlier round, here or elsewhere: its result is in what the fragment was given;
//! 2. or is a read of a replicated table that the procedure does not change, or one of this round whose key is of this partition or whose table
//!    every partition has: it runs, and its result is noted;
//! 3. or is passed over, and so is all that needs its result, as [`Availability`] has it.
//!
//! The partition is that of the key itself, when it is reached; the plan only says in which rounds and at which partitions there is
//! something to do ([`Division::call`]). Nothing else is trusted to the plan: an execution that has the results of all rounds and passes over something shows that it
//! does not hold, and the transaction is aborted ([`Part::is_whole`]).
//!
//! What an execution found is named by the operation and the iterations of the loops around it, which all fragments count alike: a loop runs as a whole, or
//! is passed over as a whole. Its bytes are those of [`Pack`], one after another:
//!
//! ```text
//! varint operation | varint loops | varint iteration of each | varint length | value
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;

use seriatim_catalog::Key;
use seriatim_procedure::analysis::{Availability, Exit, Needs};
use seriatim_procedure::checked::Overflow;
use seriatim_procedure::ir::{OperationId, Procedure, StepId, StepKind, VariableId};
use seriatim_procedure::pack::{Unpacker, malformed, pack_all, pack_bytes, pack_count, unpack_all};
use seriatim_procedure::plan::{Fragments, Plan, TransactionClass};
use seriatim_procedure::{EvaluationError, Pack, visit};
use seriatim_txn::{PartitionSet, Partitions, Placement};

use super::reach::{Arguments, Place, Placed, Reach, Visit};
use crate::{Engine, TransactError};

/// Loops in each other, at most: an iteration is named by so many numbers.
const LOOPS_MAX: usize = 4;

/// Which execution of an operation: its number, and the iterations of the loops around it, counted from 1.
type RunId = [u32; 1 + LOOPS_MAX];

/// What earlier rounds found.
type Found<'p> = BTreeMap<RunId, &'p [u8]>;

/// How a procedure is divided by partition.
pub struct Division {
    availability: Availability,
    /// By operation: its round; none of what is read where it is needed.
    rounds: Box<[Option<u32>]>,
    /// By operation: where its keys say the partition.
    placed: Box<[Option<Placed>]>,
    /// Whether it changes what every partition has.
    is_everywhere: bool,
    variables: usize,
    parameters: usize,
    steps: usize,
}

/// Where a call has something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// By operation.
    pub places: Vec<Place>,
    /// By round: in which partitions.
    pub rounds: Vec<PartitionSet>,
}

impl Spread {
    /// All partitions.
    pub fn partitions(&self) -> PartitionSet {
        self.rounds.iter().fold(PartitionSet::NONE, |all, round| all.union(*round))
    }
}

impl Division {
    /// Divides a procedure; or says why that cannot be done.
    ///
    /// # Errors
    /// The reason.
    pub fn new(
        plan: &Plan,
        declaration: &Procedure,
        fragments: &Fragments,
        reach: &Reach,
        in_parts: bool,
        engine: &Engine,
    ) -> Result<Division, String> {
        if let Some(why) = &reach.unknown {
            return Err(why.clone());
        }
        if fragments.class == (TransactionClass::General { rounds: 0 }) {
            return Err(format!("how many rounds it has depends on data: {}", fragments.reason));
        }
        if fragments.class != TransactionClass::Single && !in_parts {
            return Err("what an update of it gives refers to its variables, so it runs as a whole only".to_owned());
        }
        let availability = Availability::of(declaration);
        let count = plan.operations.len();
        if let Some(deep) = (0..count).find(|id| availability.loops(*id).len() > LOOPS_MAX) {
            return Err(format!("{} is in more than {LOOPS_MAX} loops", plan.label(deep)));
        }
        let round = |id: usize| {
            let found = fragments.fragments.iter().find(|fragment| fragment.operations.contains(&id));
            found.map(|fragment| fragment.round as u32)
        };
        let mut overtaken = None;
        visit::steps(&declaration.body, &mut |step| {
            let StepKind::ForEach { .. } = step.kind else { return };
            let Some(scan) = visit::operation(step).map(|operation| operation.id.index()) else { return };
            let writes = |id: &usize| {
                let operation = &plan.operations[*id];
                operation.changes() && operation.table == plan.operations[scan].table && round(*id) != round(scan)
            };
            let inside = |id: &usize| *id != scan && availability.loops(*id).contains(&step.id);
            overtaken = overtaken.or((0..count).filter(inside).find(writes).map(|id| (scan, id)));
        });
        if let Some((scan, write)) = overtaken {
            return Err(format!(
                "{} changes what {} goes over, which is all read in an earlier round",
                plan.label(write),
                plan.label(scan)
            ));
        }
        let placed = plan.operations.iter().map(|operation| {
            let set = engine.find(&plan.tables[operation.table].name)?;
            Some(Placed { set, index: operation.index })
        });
        Ok(Division {
            availability,
            rounds: (0..count).map(round).collect(),
            placed: placed.collect(),
            is_everywhere: fragments.fragments.iter().any(|fragment| fragment.everywhere),
            variables: declaration.variables.len(),
            parameters: declaration.parameters,
            steps: declaration.steps,
        })
    }

    /// Where a call with these arguments has something to do, by rounds: one at least, in one partition at least.
    ///
    /// # Errors
    /// The partition function fails on a value; or the arguments do not tell one.
    pub fn call(
        &self,
        reach: &Reach,
        arguments: &impl Arguments,
        partitions: &Partitions,
    ) -> Result<Spread, TransactError> {
        let places = reach.places(arguments, partitions)?;
        let last = self.rounds.iter().flatten().max().map_or(0, |last| *last as usize);
        let mut rounds = vec![PartitionSet::NONE; last + 1];
        for (round, place) in self.rounds.iter().zip(&places) {
            if let Some(round) = round {
                rounds[*round as usize] = rounds[*round as usize].union(place.partitions);
            }
        }
        if rounds.iter().all(|round| round.is_empty()) {
            rounds[0] = PartitionSet::one(0);
        }
        Ok(Spread { places, rounds })
    }

    /// What a fragment in this partition owns of the partition's database: all of it, if it changes what every partition has.
    pub fn owned(&self, at: usize) -> PartitionSet {
        if self.is_everywhere { PartitionSet::ALL } else { PartitionSet::one(at) }
    }

    /// Whether a key of an operation is in this partition.
    pub fn is_at(&self, operation: usize, partitions: &Partitions, key: Key<'_>, at: usize) -> bool {
        match self.placed[operation].as_ref().map(Placed::placement) {
            Some(Placement::Value(place)) => partitions.of_key(place, key).is_ok_and(|found| found == at),
            Some(Placement::Everywhere) => true,
            None => false,
        }
    }

    /// Whether every partition has what an operation touches.
    pub fn is_replicated(&self, operation: usize) -> bool {
        let placed = self.placed[operation].as_ref();
        placed.is_some_and(|placed| matches!(placed.placement(), Placement::Everywhere))
    }

    /// The round of an operation; none of what is read where it is needed.
    pub fn round(&self, operation: usize) -> Option<u32> {
        self.rounds[operation]
    }
}

/// What comes of an operation that was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// Its result was found before.
    #[default]
    Found,
    /// It runs.
    Runs,
}

/// One fragment, while it is executed.
pub struct Part<'p> {
    division: &'p Division,
    partitions: &'p Partitions,
    /// Where; nowhere if only what was found elsewhere is put together.
    at: Option<usize>,
    round: u32,
    found: Found<'p>,
    /// By variable: whether it has its value.
    known: Box<[Cell<bool>]>,
    /// Up to where it is not known whether steps are reached.
    lost: Cell<Option<Exit>>,
    /// By step that is a loop: the iterations begun.
    iterations: Box<[Cell<u32>]>,
    turn: Cell<Turn>,
    is_whole: Cell<bool>,
    /// It has come to the end of what it can do.
    is_left: Cell<bool>,
    made: RefCell<Vec<u8>>,
    /// What cannot be.
    fault: RefCell<Option<String>>,
}

/// The executions named in bytes.
fn decode(bytes: &[u8]) -> Result<Found<'_>, EvaluationError> {
    let (mut found, mut bytes) = (Found::new(), Unpacker::new(bytes));
    while !bytes.is_empty() {
        let mut id = RunId::default();
        let number = |bytes: &mut Unpacker<'_>| u32::try_from(bytes.count()?).map_err(|_| malformed());
        id[0] = number(&mut bytes)?;
        let loops = number(&mut bytes)? as usize;
        for iteration in id[1..].get_mut(..loops).ok_or_else(malformed)? {
            *iteration = number(&mut bytes)?;
        }
        let result = bytes.bytes()?;
        if found.insert(id, result).is_some_and(|other| other != result) {
            return Err(EvaluationError::Type(format!("two results of one run of operation #{}", id[0])));
        }
    }
    Ok(found)
}

impl<'p> Part<'p> {
    /// In this partition, or, without one, to put together what was found.
    ///
    /// # Errors
    /// The bytes of what was found are none.
    pub fn new(
        division: &'p Division,
        partitions: &'p Partitions,
        at: Option<usize>,
        round: u32,
        found: &'p [u8],
    ) -> Result<Part<'p>, EvaluationError> {
        let known = |variable| Cell::new(variable < division.parameters);
        Ok(Part {
            division,
            partitions,
            at,
            round,
            found: decode(found)?,
            known: (0..division.variables).map(known).collect(),
            lost: Cell::new(None),
            iterations: vec![Cell::new(0); division.steps].into(),
            turn: Cell::default(),
            is_whole: Cell::new(true),
            is_left: Cell::new(false),
            made: RefCell::default(),
            fault: RefCell::default(),
        })
    }

    fn set(&self, variables: &[VariableId], known: bool) {
        variables.iter().for_each(|variable| self.known[variable.index()].set(known));
    }

    /// A step is passed over.
    fn pass_over(&self, needs: &Needs) {
        self.set(&needs.takes, false);
        self.lost.set(self.lost.get().max(needs.exit));
        self.is_whole.set(false);
    }

    /// A step is reached, if all before it have run: whether it can run, as far as it needs results.
    pub fn due(&self, step: StepId) -> bool {
        let availability = &self.division.availability;
        if self.lost.get().is_some_and(|exit| !availability.is_inside(step, exit)) {
            self.lost.set(None);
        }
        let needs = availability.step(step);
        let is_known = |variable: &VariableId| self.known[variable.index()].get();
        if self.lost.get().is_some() || !needs.reads.iter().all(is_known) {
            self.pass_over(needs);
            return false;
        }
        self.set(&needs.gives, true);
        self.iterations[step.index()].set(0);
        true
    }

    /// An iteration of a loop begins.
    pub fn iterates(&self, step: StepId) {
        if self.lost.get() == Some(Exit::Iteration(step)) {
            self.lost.set(None);
        }
        let begun = &self.iterations[step.index()];
        begun.set(begun.get() + 1);
    }

    fn id(&self, operation: OperationId) -> RunId {
        let mut id = RunId::default();
        id[0] = operation.0.into();
        let loops = self.division.availability.loops(operation.index()).iter();
        id[1..].iter_mut().zip(loops).for_each(|(to, step)| *to = self.iterations[step.index()].get());
        id
    }

    /// An operation is reached that is due: whether its result was found, or it runs; `keys` tells its keys.
    pub fn here(
        &self,
        step: StepId,
        operation: OperationId,
        keys: &mut dyn FnMut(&mut Visit<'_>) -> Result<(), Overflow>,
    ) -> bool {
        let turn = if self.found.contains_key(&self.id(operation)) {
            Some(Turn::Found)
        } else {
            self.runs(operation.index(), keys).then_some(Turn::Runs)
        };
        match turn {
            Some(turn) => self.turn.set(turn),
            None => self.pass_over(self.division.availability.step(step)),
        }
        turn.is_some()
    }

    fn runs(&self, operation: usize, keys: &mut dyn FnMut(&mut Visit<'_>) -> Result<(), Overflow>) -> bool {
        let Some(at) = self.at else { return false };
        match self.division.rounds[operation] {
            None => true,
            Some(round) => round == self.round && self.is_at(at, operation, keys),
        }
    }

    /// Whether the keys of an operation are in this partition.
    fn is_at(&self, at: usize, operation: usize, keys: &mut dyn FnMut(&mut Visit<'_>) -> Result<(), Overflow>) -> bool {
        let place = match self.division.placed[operation].as_ref().map(Placed::placement) {
            Some(Placement::Value(place)) => place,
            Some(Placement::Everywhere) => return true,
            None => {
                self.fail(format!("operation #{operation} has no table"));
                return false;
            }
        };
        let mut told = None;
        let computed = keys(&mut |_, low: Bound<Key<'_>>, high: Bound<Key<'_>>| {
            told = self.partitions.of_keys(place, low, high).ok();
        });
        match (computed, told) {
            // Nor can it run where it belongs: there as here it ends the procedure.
            (Err(Overflow), _) => true,
            (Ok(()), Some(told)) if !told.is_all() => told.contains(at),
            (Ok(()), _) => {
                self.fail(format!("the keys of operation #{operation} are not in one partition"));
                false
            }
        }
    }

    #[cold]
    fn fail(&self, fault: String) {
        self.fault.borrow_mut().get_or_insert(fault);
    }

    /// Whether the operation that was reached last runs.
    #[inline]
    pub fn enters(&self) -> bool {
        self.turn.get() == Turn::Runs
    }

    /// Notes the result of an operation that has run.
    pub fn note(&self, operation: OperationId, result: &impl Pack) {
        let (id, made) = (self.id(operation), &mut *self.made.borrow_mut());
        let loops = self.division.availability.loops(operation.index()).len();
        pack_count(operation.index(), made);
        pack_count(loops, made);
        id[1..=loops].iter().for_each(|iteration| pack_count(*iteration as usize, made));
        pack_bytes(&pack_all(result), made);
    }

    /// An operation has run whose result cannot be told to others.
    pub fn note_not(&self, operation: OperationId) {
        let what =
            "what it gives refers to arguments or variables, which other partitions do not have: give it by value";
        self.fail(format!("operation #{}: {what}", operation.0));
    }

    /// The result of an operation that was found.
    ///
    /// # Errors
    /// It is none of this type, or there is none.
    pub fn recall<T: Pack>(&self, operation: OperationId) -> Result<T, EvaluationError> {
        unpack_all(self.found.get(&self.id(operation)).ok_or_else(malformed)?)
    }

    /// The procedure's result is not known here: the fragment ends without it.
    pub fn leave(&self) {
        self.is_left.set(true);
    }

    /// Whether it ended so.
    pub fn is_left(&self) -> bool {
        self.is_left.get()
    }

    /// Whether nothing has been passed over.
    pub fn is_whole(&self) -> bool {
        self.is_whole.get()
    }

    /// What has run, and what came of it; or what cannot be.
    ///
    /// # Errors
    /// A key that is in no partition, or in several.
    pub fn into_made(self) -> Result<Vec<u8>, String> {
        match self.fault.into_inner() {
            None => Ok(self.made.into_inner()),
            Some(fault) => Err(fault),
        }
    }
}
