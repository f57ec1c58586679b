//! Fragments: executions of a procedure on one partition in one round. Only operations of that round whose rows
//! are in that partition run (Jones, Abadi, Madden, SIGMOD 2010, §3.1).
//!
//! A fragment goes through the whole body. Each operation that it reaches is in one of three cases:
//!
//! 1. It has run in an earlier round, here or in another partition: the fragment was given its result.
//! 2. It can run: it reads a replicated table that the procedure does not change. Or it belongs to this round,
//!    and its key is of this partition or its table is replicated. It runs, and its result is noted.
//! 3. Otherwise it is skipped, with all steps that need its result ([`Availability`]).
//!
//! The partition is computed from the key itself when the operation is reached. The plan only says in which
//! rounds and partitions there is work ([`Division::call`]). Nothing else depends on the plan. If an execution
//! with the results of all rounds skips a step, the plan is wrong, and the transaction is aborted
//! ([`FragmentRun::is_whole`]).
//!
//! A result is named by the operation and the iterations of the enclosing loops. All fragments count these
//! alike, as a loop runs or is skipped as a whole. Its bytes are those of [`Pack`], one after another:
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

use super::reach::{Arguments, OperationPlacement, Placed, Reach, Visit};
use crate::{Engine, TransactError};

/// The most nested loops: an iteration is named by this many numbers.
const LOOPS_MAX: usize = 4;

/// One execution of an operation: its number, and the iterations of the enclosing loops, counted from 1.
type RunId = [u32; 1 + LOOPS_MAX];

/// Results of earlier rounds.
type KnownResults<'p> = BTreeMap<RunId, &'p [u8]>;

/// The division of a procedure by partition.
pub struct Division {
    availability: Availability,
    /// By operation: its round; `None` for reads that run where they are needed.
    rounds: Box<[Option<u32>]>,
    /// By operation: its table or index, whose keys name the partition.
    placed: Box<[Option<Placed>]>,
    /// Whether it changes replicated tables.
    is_everywhere: bool,
    variables: usize,
    parameters: usize,
    steps: usize,
}

/// The partitions in which a call has work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// By operation.
    pub places: Vec<OperationPlacement>,
    /// By round, the partitions with work.
    pub rounds: Vec<PartitionSet>,
}

impl Spread {
    /// All partitions.
    pub fn partitions(&self) -> PartitionSet {
        self.rounds.iter().fold(PartitionSet::NONE, |all, round| all.union(*round))
    }
}

impl Division {
    /// Divides a procedure, or says why it cannot be divided.
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
        if plan.follows_references() {
            return Err("constraints may have it read or change rows of other partitions".to_owned());
        }
        if fragments.class == (TransactionClass::General { rounds: 0 }) {
            return Err(format!("how many rounds it has depends on data: {}", fragments.reason));
        }
        if fragments.class != TransactionClass::Single && !in_parts {
            return Err(
                "the result of one of its updates refers to its variables, so it runs only as a whole".to_owned()
            );
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
                "{} changes rows that {} scans, and an earlier round has read all of these",
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

    /// The partitions in which a call with these arguments has work, by round: at least one partition in at
    /// least one round.
    ///
    /// # Errors
    /// The partition function fails on a value; or the arguments do not name a partition.
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

    /// The partitions that a fragment owns in this partition's database: all, if it changes replicated tables.
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

    /// Whether an operation accesses a replicated table.
    pub fn is_replicated(&self, operation: usize) -> bool {
        let placed = self.placed[operation].as_ref();
        placed.is_some_and(|placed| matches!(placed.placement(), Placement::Everywhere))
    }

    /// The round of an operation; `None` for reads that run where they are needed.
    pub fn round(&self, operation: usize) -> Option<u32> {
        self.rounds[operation]
    }
}

/// What an operation does when it is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// Its result is known.
    #[default]
    Known,
    /// It runs.
    Runs,
}

/// One fragment during its execution.
pub struct FragmentRun<'p> {
    division: &'p Division,
    partitions: &'p Partitions,
    /// The partition; `None` if only known results are put together.
    at: Option<usize>,
    round: u32,
    found: KnownResults<'p>,
    /// By variable: whether its value is known.
    known: Box<[Cell<bool>]>,
    /// The exit up to which it is unknown whether steps are reached.
    lost: Cell<Option<Exit>>,
    /// By step that is a loop: the iterations begun.
    iterations: Box<[Cell<u32>]>,
    turn: Cell<Turn>,
    is_whole: Cell<bool>,
    /// The fragment has done all that it can.
    is_left: Cell<bool>,
    made: RefCell<Vec<u8>>,
    /// A fault of the plan.
    fault: RefCell<Option<String>>,
}

/// Decodes results by execution.
fn decode(bytes: &[u8]) -> Result<KnownResults<'_>, EvaluationError> {
    let (mut found, mut bytes) = (KnownResults::new(), Unpacker::new(bytes));
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

impl<'p> FragmentRun<'p> {
    /// A fragment in this partition; without one, an execution that puts known results together.
    ///
    /// # Errors
    /// The bytes of the results are malformed.
    pub fn new(
        division: &'p Division,
        partitions: &'p Partitions,
        at: Option<usize>,
        round: u32,
        found: &'p [u8],
    ) -> Result<FragmentRun<'p>, EvaluationError> {
        let known = |variable| Cell::new(variable < division.parameters);
        Ok(FragmentRun {
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

    /// Skips a step.
    fn pass_over(&self, needs: &Needs) {
        self.set(&needs.takes, false);
        self.lost.set(self.lost.get().max(needs.exit));
        self.is_whole.set(false);
    }

    /// Called for each step that is reached if all steps before it have run. Returns whether the results that
    /// it needs are known.
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

    /// Called for each operation that is due. Returns whether its result is known or it runs; `keys` visits its
    /// keys.
    pub fn here(
        &self,
        step: StepId,
        operation: OperationId,
        keys: &mut dyn FnMut(&mut Visit<'_>) -> Result<(), Overflow>,
    ) -> bool {
        let turn = if self.found.contains_key(&self.id(operation)) {
            Some(Turn::Known)
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
        let mut named = None;
        let computed = keys(&mut |_, low: Bound<Key<'_>>, high: Bound<Key<'_>>| {
            named = self.partitions.of_keys(place, low, high).ok();
        });
        match (computed, named) {
            // It fails in every partition alike, and ends the procedure.
            (Err(Overflow), _) => true,
            (Ok(()), Some(named)) if !named.is_all() => named.contains(at),
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

    /// Reports an operation whose result cannot be sent to other partitions.
    pub fn note_not(&self, operation: OperationId) {
        let what =
            "its result refers to arguments or variables, which other partitions do not have: return it by value";
        self.fail(format!("operation #{}: {what}", operation.0));
    }

    /// The known result of an operation.
    ///
    /// # Errors
    /// The result is not of this type, or there is none.
    pub fn recall<T: Pack>(&self, operation: OperationId) -> Result<T, EvaluationError> {
        unpack_all(self.found.get(&self.id(operation)).ok_or_else(malformed)?)
    }

    /// Ends the fragment without the procedure's result, which is not known here.
    pub fn leave(&self) {
        self.is_left.set(true);
    }

    /// Whether it ended without the result.
    pub fn is_left(&self) -> bool {
        self.is_left.get()
    }

    /// Whether no step was skipped.
    pub fn is_whole(&self) -> bool {
        self.is_whole.get()
    }

    /// The results of the operations that ran; or the fault.
    ///
    /// # Errors
    /// A key in no partition, or in several; another fault of the plan.
    pub fn into_made(self) -> Result<Vec<u8>, String> {
        match self.fault.into_inner() {
            None => Ok(self.made.into_inner()),
            Some(fault) => Err(fault),
        }
    }
}
