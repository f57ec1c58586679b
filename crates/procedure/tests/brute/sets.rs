//! Sets as they are drawn, and the plans made of them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use seriatim_base::{ColumnId, rng};
use seriatim_procedure::plan::{
    Access, Columns, Existence, Failure, FailureKind, Iteration, Kind, Known, Operation, Options, Plan, Table,
};

/// Tables, and columns of each.
const TABLES: u8 = 3;
const COLUMNS: u8 = 3;
/// The table that has an index, and the column it is of.
const INDEXED: (u8, u8) = (2, 2);

/// The effect of an operation on its table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Read(u8),
    Write(u8),
    Increment(u8),
    Add(u8),
    AddAndRead(u8, u8),
    /// Takes from a sum that may not be large enough: the answer is a read of it.
    Subtract(u8),
    Insert,
    Delete,
    Count,
    /// Counts by the index, if the table has one.
    Look,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) table: u8,
    pub(crate) act: Act,
    /// Bit i: it needs operation i, if that comes before it or both are in the loop.
    pub(crate) needs: u8,
    pub(crate) looped: bool,
    pub(crate) fails: bool,
}

/// A procedure.
#[derive(Clone, Debug)]
pub(crate) struct Procedure {
    pub(crate) operations: Vec<Op>,
    /// Pure code that fails depending on the operations of these bits.
    pub(crate) pure_failure: Option<u8>,
    /// It wants the newest state although it may only read.
    pub(crate) latest: bool,
}

/// A set.
#[derive(Clone, Debug)]
pub(crate) struct Set(pub(crate) Vec<Procedure>);

/// The effect of an act on columns and keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effect {
    pub(crate) keys: bool,
    pub(crate) reads: BTreeSet<u8>,
    pub(crate) writes: BTreeSet<u8>,
    pub(crate) adds: BTreeSet<u8>,
    /// Of the table's index: whether it changes which rows are where in it; `None`: it does not look at it.
    pub(crate) index: Option<bool>,
}

impl Op {
    pub(crate) fn effect(&self) -> Effect {
        let mut effect = Effect::default();
        match self.act {
            Act::Read(column) => drop(effect.reads.insert(column)),
            Act::Write(column) => drop(effect.writes.insert(column)),
            Act::Increment(column) | Act::Subtract(column) => {
                effect.reads.insert(column);
                effect.writes.insert(column);
            }
            Act::Add(column) => drop(effect.adds.insert(column)),
            Act::AddAndRead(column, other) => {
                effect.adds.insert(column);
                if other != column {
                    effect.reads.insert(other);
                }
            }
            Act::Insert | Act::Delete => effect.keys = true,
            Act::Count | Act::Look => {}
        }
        let (table, column) = INDEXED;
        let moves = effect.keys || effect.writes.contains(&column) || effect.adds.contains(&column);
        effect.index = (self.table == table && (moves || matches!(self.act, Act::Look))).then_some(moves);
        effect
    }

    /// The part of its effect that is in the answer of a failed execution: its reads.
    pub(crate) fn answer(&self) -> Effect {
        let Effect { reads, index, .. } = self.effect();
        Effect { reads, index: index.map(|_| false), ..Effect::default() }
    }

    /// Whether it makes an image of a row.
    fn needs_memory(&self) -> bool {
        !matches!(self.act, Act::Read(_) | Act::Delete | Act::Count | Act::Look)
    }

    /// Whether it can fail when it runs, apart from sums.
    pub(crate) fn may_fail(&self, options: Options) -> bool {
        self.fails || matches!(self.act, Act::Insert | Act::Subtract(_)) || self.needs_memory() && !options.memory
    }
}

impl Procedure {
    /// Whether it changes nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.operations.iter().all(|op| matches!(op.act, Act::Read(_) | Act::Count | Act::Look))
    }

    /// Whether operation `later` uses a result of `earlier`.
    pub(crate) fn needs(&self, later: usize, earlier: usize) -> bool {
        let both = self.operations[later].looped && self.operations[earlier].looped;
        later != earlier && self.operations[later].needs >> earlier & 1 == 1 && (earlier < later || both)
    }

    /// The operations of these bits.
    pub(crate) fn of_bits(&self, bits: u8) -> BTreeSet<usize> {
        (0..self.operations.len()).filter(|at| bits >> at & 1 == 1).collect()
    }

    fn plan(&self, number: usize) -> Plan {
        let name = format!("procedure_{number}");
        let looped = self.operations.iter().any(|op| op.looped);
        let mut failures = Vec::new();
        if let Some(bits) = self.pure_failure {
            let decided_by = self.of_bits(bits);
            let (kind, place) = (FailureKind::UserAbort, "pure".to_owned());
            failures.push(Failure { kind, place, step: 0, loops: Vec::new(), operation: None, decided_by });
        }
        let mut operations = Vec::new();
        for (id, op) in self.operations.iter().enumerate() {
            let mut failure = |kind| {
                let decided_by = BTreeSet::from([id]);
                let (place, loops) = (format!("#{id}"), if op.looped { vec![0] } else { Vec::new() });
                failures.push(Failure { kind, place, step: id, loops, operation: Some(id), decided_by });
            };
            if op.fails {
                failure(FailureKind::MissingRow);
            }
            if matches!(op.act, Act::Add(_) | Act::AddAndRead(..)) {
                failure(FailureKind::CommutativeOverflow);
            }
            if matches!(op.act, Act::Insert) {
                failure(FailureKind::DuplicateKey);
            }
            if matches!(op.act, Act::Subtract(_)) {
                failure(FailureKind::Overflow);
            }
            if op.needs_memory() {
                failure(FailureKind::OutOfMemory);
            }
            operations.push(self.operation(id, op));
        }
        let iteration = Iteration { step: 0, parent: None, scan: None, over_from: BTreeSet::new() };
        Plan {
            procedure: name.as_str().into(),
            place: name,
            latest: self.latest,
            tables: (0..TABLES)
                .map(|table| Table {
                    name: format!("table_{table}").into(),
                    columns: (0..COLUMNS).map(|column| format!("column_{column}").into()).collect(),
                    indexes: if table == INDEXED.0 { vec!["index".into()] } else { Vec::new() },
                })
                .collect(),
            operations,
            loops: if looped { vec![iteration] } else { Vec::new() },
            failures,
        }
    }

    fn operation(&self, id: usize, op: &Op) -> Operation {
        let effect = op.effect();
        let columns = |set: &BTreeSet<u8>| -> Columns { set.iter().map(|column| ColumnId((*column).into())).collect() };
        let needs: BTreeSet<usize> = (0..self.operations.len()).filter(|other| self.needs(id, *other)).collect();
        let existence = |writes: bool| if writes { Existence::Writes } else { Existence::Reads };
        let own = Access {
            table: op.table.into(),
            index: None,
            existence: existence(effect.keys),
            reads: columns(&effect.reads),
            writes: columns(&effect.writes),
            commutes: columns(&effect.adds),
        };
        let of_index = |moves| Access {
            table: op.table.into(),
            index: Some(0),
            existence: existence(moves),
            reads: Columns::new(),
            writes: Columns::new(),
            commutes: Columns::new(),
        };
        Operation {
            step: id,
            place: format!("#{id}"),
            kind: match op.act {
                Act::Read(_) => Kind::Get,
                Act::Insert => Kind::Insert,
                Act::Delete => Kind::Delete,
                Act::Count | Act::Look => Kind::Scan,
                _ => Kind::Update,
            },
            required: op.fails,
            table: op.table.into(),
            index: (effect.index == Some(false)).then_some(0),
            key: Vec::new(),
            accesses: std::iter::once(own).chain(effect.index.map(of_index)).collect(),
            // Which kind of need it is makes no difference here.
            key_from: needs.iter().copied().filter(|other| other % 3 == 0).collect(),
            value_from: needs.iter().copied().filter(|other| other % 3 == 1).collect(),
            control_from: needs.iter().copied().filter(|other| other % 3 == 2).collect(),
            carried_from: BTreeSet::new(),
            table_from: BTreeSet::new(),
            blocks: if op.looped { vec![(0, 0)] } else { Vec::new() },
            loops: if op.looped { vec![0] } else { Vec::new() },
            used: (0..self.operations.len()).any(|other| self.needs(other, id)),
            conditional: false,
            known: Known::Entry,
            partition: None,
        }
    }
}

impl Set {
    pub(crate) fn plans(&self) -> Vec<Plan> {
        self.0.iter().enumerate().map(|(number, procedure)| procedure.plan(number)).collect()
    }
}

fn any_act() -> impl Strategy<Value = Act> {
    let keys = prop_oneof![Just(Act::Insert), Just(Act::Delete), Just(Act::Count), Just(Act::Look)];
    prop_oneof![13 => any_change(), 4 => keys]
}

/// Acts that do not change keys.
fn any_change() -> impl Strategy<Value = Act> {
    let column = || 0..COLUMNS;
    prop_oneof![
        4 => column().prop_map(Act::Read),
        2 => column().prop_map(Act::Write),
        1 => column().prop_map(Act::Increment),
        4 => column().prop_map(Act::Add),
        1 => (column(), column()).prop_map(|(add, read)| Act::AddAndRead(add, read)),
        1 => column().prop_map(Act::Subtract),
    ]
}

fn any_procedure(operations: usize, act: impl Strategy<Value = Act>) -> impl Strategy<Value = Procedure> {
    let op = (0..TABLES, act, any::<u8>(), any::<u8>(), prop::bool::weighted(0.3), prop::bool::weighted(0.2))
        .prop_map(|(table, act, some, others, looped, fails)| Op { table, act, needs: some & others, looped, fails });
    let pure_failure = prop::option::weighted(0.2, any::<u8>());
    (prop::collection::vec(op, 1..=operations), pure_failure, prop::bool::weighted(0.3))
        .prop_map(|(operations, pure_failure, latest)| Procedure { operations, pure_failure, latest })
}

/// Sets of up to so many procedures of up to so many operations.
pub(crate) fn any_set(procedures: usize, operations: usize) -> impl Strategy<Value = Set> {
    prop::collection::vec(any_procedure(operations, any_act()), 1..=procedures).prop_map(Set)
}

/// Such sets in which most keys stay, and much is added.
pub(crate) fn any_adding_set(procedures: usize, operations: usize) -> impl Strategy<Value = Set> {
    let add = (0..COLUMNS).prop_map(Act::Add);
    let act = prop_oneof![12 => add, 20 => any_change(), 1 => any_act()];
    prop::collection::vec(any_procedure(operations, act), 1..=procedures).prop_map(Set)
}

/// Options.
pub(crate) fn any_options() -> impl Strategy<Value = Options> {
    let often = || prop::bool::weighted(0.8);
    (any::<bool>(), often(), often(), any::<bool>(), often(), often()).prop_map(
        |(snapshots, reorder, commute, defer, headroom, memory)| Options {
            snapshots,
            reorder,
            commute,
            defer,
            statics: true,
            claims: true,
            headroom,
            memory,
        },
    )
}

/// Sets drawn for each property.
pub(crate) fn cases() -> u32 {
    rng::tries(150, 3000) as u32
}

/// What generates values. Prints the seed first; `SERIATIM_SEED` repeats a run.
fn runner(cases: u32) -> TestRunner {
    let seed = rng::seed("a property");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// Checks a property of generated values; proptest shrinks what fails.
pub(crate) fn check<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    if let Err(failure) = runner(cases).run(strategy, test) {
        panic!("{failure}");
    }
}

/// Whether one of up to so many generated values has a property. The first is enough.
pub(crate) fn any_has<S: Strategy>(cases: u32, strategy: &S, has: impl Fn(&S::Value) -> bool) -> bool {
    let mut runner = runner(cases);
    (0..cases).any(|_| has(&strategy.new_tree(&mut runner).expect("nothing is rejected").current()))
}
