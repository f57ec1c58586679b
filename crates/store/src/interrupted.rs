//! Whatever another thread does between two loads of a reader, the reader's answer was true at some time. Its
//! node version holds only if the answer is still true. Every load is tried, with every kind of change.
//!
//! Readers call [`step`](crate::step) before each load; a test makes one of these steps the other thread's
//! turn. So a recheck that is missing is found at once, and by the same schedule each time, where threads
//! must be lucky. (Insertions into trees, which read through their access, have the same in
//! `tree::tests::between`.)

use crate::hash::Hash;
use crate::node_version::NodeVersion;
use crate::record::{Kind, RecordPtr, Word8, key_bytes, write_key};
use crate::tree::{LeafHint, Tree};
use crate::{Cursor, Direction, Inserted, StoreCx, Unobserved};
use seriatim_base::rng;
use seriatim_base::thread::interrupt;
use seriatim_catalog::{Key, KeyClass};
use seriatim_htm::{Agent, Budget, Htm, HtmMode, Outside};
use seriatim_memory::{Local, Memory, Options};
use std::collections::BTreeMap;
use std::ops::Bound;

struct World {
    memory: Memory,
    htm: Htm,
}

impl World {
    fn new() -> World {
        let memory = Memory::new(Options { workers_max: 2, huge_pages: false, ..Options::default() });
        World { memory: memory.expect("memory"), htm: Htm::new(HtmMode::Absent).expect("always there") }
    }

    /// A worker that is online.
    fn worker(&self) -> Worker {
        let mut local = self.memory.register().expect("a free slot");
        local.enter();
        let agent = self.htm.agent(local.worker(), Budget::default());
        Worker { local, agent, outside: Outside::claim() }
    }
}

struct Worker {
    local: Local,
    agent: Agent,
    outside: Outside,
}

impl Worker {
    fn cx(&mut self) -> StoreCx<'_> {
        StoreCx { local: &mut self.local, agent: &mut self.agent, outside: &mut self.outside }
    }

    fn record(&mut self, key: u64) -> RecordPtr {
        let memory = self.local.allocate(&mut self.outside, key_bytes(KeyClass::Word8)).expect("memory");
        // SAFETY: just allocated, and private.
        unsafe {
            let record = RecordPtr::from_raw(memory);
            write_key(record, Key::Word8(key), None);
            record
        }
    }
}

/// The operations of both kinds of index.
trait Subject: Sized {
    fn new(world: &World, worker: &mut Worker) -> Self;
    fn insert(&self, worker: &mut Worker, key: u64, record: RecordPtr) -> Inserted;
    fn remove(&self, worker: &mut Worker, key: u64, record: RecordPtr) -> bool;
    fn get(&self, worker: &Worker, key: u64) -> Result<RecordPtr, NodeVersion>;
    fn sound(&self) -> Result<(), String>;
}

type Leaves = Tree<Word8, 4, 4>;

/// Their operations have the same names; they are made and checked each in its own way.
macro_rules! subject {
    ($kind:ty, |$world:ident, $cx:ident| $new:expr, |$index:ident| $check:expr) => {
        impl Subject for $kind {
            fn new($world: &World, worker: &mut Worker) -> Self {
                let $cx = &mut worker.cx();
                $new.expect("memory")
            }

            fn insert(&self, worker: &mut Worker, key: u64, record: RecordPtr) -> Inserted {
                self.insert(&mut worker.cx(), key, record, &mut Unobserved).expect("memory")
            }

            fn remove(&self, worker: &mut Worker, key: u64, record: RecordPtr) -> bool {
                self.remove(&mut worker.cx(), key, record, &mut Unobserved)
            }

            fn get(&self, worker: &Worker, key: u64) -> Result<RecordPtr, NodeVersion> {
                self.get(key, worker.local.pinned())
            }

            fn sound(&self) -> Result<(), String> {
                let $index = self;
                $check
            }
        }
    };
}

subject!(Leaves, |world, cx| Tree::new(&world.htm, cx), |tree| {
    // SAFETY: the only thread.
    unsafe { tree.check() }
});
subject!(Hash<Word8>, |world, cx| Hash::new(0, &world.htm, cx), |table| table.check());

type Model = BTreeMap<u64, RecordPtr>;

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u64),
    Remove(u64),
}

/// Keys that are linked before: multiples of this.
const STEP: u64 = 10;

/// The changes of `key` that another thread may make in one turn, with `count` keys linked.
fn changes(key: u64, count: u64) -> Vec<Vec<Op>> {
    let linked = || (1..=count).map(|n| n * STEP);
    let is_linked = linked().any(|other| other == key);
    let around = |from: u64, to: u64| (from..=to).map(move |n| Op::Insert((key + n).saturating_sub(5)));
    let near = move |other: &u64| other.abs_diff(key) < 5 * STEP && *other != key;
    let own = |ops: &[Op]| if is_linked { ops.to_vec() } else { vec![Op::Insert(key)] };
    let fresh = |ops: Vec<Op>| {
        ops.into_iter().filter(|op| !matches!(op, Op::Insert(new) if new % STEP == 0)).collect::<Vec<_>>()
    };
    vec![
        own(&[Op::Remove(key)]),
        own(&[Op::Remove(key), Op::Insert(key)]),
        linked().filter(near).map(Op::Remove).collect(),
        linked().filter(|&other| other != key).map(Op::Remove).collect(),
        fresh(around(1, 4).collect()),
        fresh(around(0, 9).chain((1..40).map(|n| Op::Insert(key / STEP * STEP + 1000 + n))).collect()),
        own(&[Op::Remove(key)]).into_iter().chain(fresh(around(1, 4).collect())).collect(),
        linked()
            .filter(|&other| other != key)
            .map(Op::Remove)
            .chain((1..80).map(|n| Op::Insert(2001 + 10 * n)))
            .collect(),
        // The leaf of `key` gets a record of the range of a leaf that was unlinked, under another node perhaps.
        linked().filter(|&other| other > key).map(Op::Remove).chain([Op::Insert(key + 30)]).collect(),
        linked().filter(|&other| other < key).map(Op::Remove).chain([Op::Insert(key.abs_diff(33))]).collect(),
    ]
}

fn apply<S: Subject>(subject: &S, worker: &mut Worker, model: &mut Model, ops: &[Op]) {
    for &op in ops {
        match op {
            Op::Insert(key) => {
                let record = worker.record(key);
                match subject.insert(worker, key, record) {
                    Inserted::Linked => assert!(model.insert(key, record).is_none()),
                    // By the thread whose turn it is not.
                    other => {
                        assert!(matches!(other, Inserted::Exists(_)) && !model.contains_key(&key), "{key}: {other:?}")
                    }
                }
            }
            Op::Remove(key) => {
                let record = model.remove(&key).expect("it was linked");
                assert!(subject.remove(worker, key, record), "{key}");
            }
        }
    }
}

/// An index with linked keys, and its contents.
fn filled<S: Subject>(world: &World, worker: &mut Worker, count: u64) -> (S, Model) {
    let (subject, mut model) = (S::new(world, worker), Model::new());
    let ops: Vec<Op> = (1..=count).map(|n| Op::Insert(n * STEP)).collect();
    apply(&subject, worker, &mut model, &ops);
    (subject, model)
}

/// Whether a node version taken by a worker that has been online since still holds.
fn holds(node_version: NodeVersion) -> bool {
    // SAFETY: both workers of a test are online all the time.
    unsafe { node_version.still_valid() }
}

/// One reader against each change before each of its loads. `read` gets the index and the key. Its result then
/// checks the answer against the keys that were linked before and after the change.
fn every_turn<S: Subject, P>(
    count: u64,
    keys: impl Fn(u64) -> Vec<u64>,
    prepare: impl Fn(&S, &mut Worker, u64) -> P,
    read: impl Fn(&S, &mut Worker, u64, P) -> Answer,
) {
    let mut turns = 0;
    for key in keys(count) {
        // One index for each key: linked records are freed with the world's memory.
        let world = World::new();
        for (number, ops) in changes(key, count).into_iter().enumerate() {
            for at in 0.. {
                let (mut worker, mut other) = (world.worker(), world.worker());
                let (subject, before) = filled::<S>(&world, &mut worker, count);
                let prepared = prepare(&subject, &mut worker, key);
                let mut after = before.clone();
                let turn = || apply(&subject, &mut other, &mut after, &ops);
                let (answer, interrupted) = interrupt(at, turn, || read(&subject, &mut worker, key, prepared));
                let case = || format!("key {key} of {count}, change {number}, before load {at}");
                answer.check(&before, &after).unwrap_or_else(|wrong| panic!("{}: {wrong}", case()));
                if let Answer::Wrote(ops) = &answer {
                    // The writer's changes come on top.
                    for &op in ops {
                        match op {
                            (key, Some(record)) => drop(after.insert(key, record)),
                            (key, None) => drop(after.remove(&key)),
                        }
                    }
                    let gone = ops.iter().filter(|(key, _)| !after.contains_key(key));
                    assert!(gone.into_iter().all(|&(key, _)| subject.get(&worker, key).is_err()), "{}", case());
                    for (&key, record) in &after {
                        assert_eq!(subject.get(&worker, key).ok(), Some(*record), "{}: {key}", case());
                    }
                }
                assert_eq!(subject.sound(), Ok(()), "{}", case());
                if !interrupted {
                    break;
                }
                turns += 1;
            }
        }
    }
    println!("{turns} turns");
    assert!(turns > 100, "{turns}");
}

/// A reader's answer.
enum Answer {
    Found(u64, RecordPtr),
    Absent(u64, NodeVersion),
    /// Records by their keys in the order shown, those of each leaf with its node version; within these bounds.
    Shown(Vec<(NodeVersion, Vec<(u64, RecordPtr)>)>, Direction, std::ops::RangeInclusive<u64>),
    /// Records visited by a walk, and whether buckets were split meanwhile.
    Visited(Vec<(u64, RecordPtr)>, bool),
    /// A removal's answer that this record is not linked.
    NotLinked(u64, RecordPtr),
    /// A writer's changes.
    Wrote(Vec<(u64, Option<RecordPtr>)>),
}

impl Answer {
    fn check(&self, before: &Model, after: &Model) -> Result<(), String> {
        let was_linked =
            |key: &u64, record: &RecordPtr| [before, after].iter().any(|model| model.get(key) == Some(record));
        match self {
            Answer::Found(key, record) if !was_linked(key, record) => Err("a record that was never linked".into()),
            Answer::NotLinked(key, record) if [before, after].iter().all(|model| model.get(key) == Some(record)) => {
                Err("a record that stays was not found".into())
            }
            Answer::Found(..) | Answer::NotLinked(..) | Answer::Wrote(_) => Ok(()),
            Answer::Absent(key, _)
                if before.contains_key(key) && after.contains_key(key) && before[key] == after[key] =>
            {
                Err("a key that stays was not found".into())
            }
            Answer::Absent(key, node_version) if holds(*node_version) && after.contains_key(key) => {
                Err("a node version holds although the key is linked".into())
            }
            Answer::Absent(..) => Ok(()),
            Answer::Shown(leaves, direction, range) => {
                let shown: Vec<(u64, RecordPtr)> = leaves.iter().flat_map(|leaf| leaf.1.iter().copied()).collect();
                let forward = *direction == Direction::Forward;
                if !shown.windows(2).all(|pair| if forward { pair[0].0 < pair[1].0 } else { pair[0].0 > pair[1].0 }) {
                    return Err(format!("out of order: {shown:?}"));
                }
                if let Some(strange) =
                    shown.iter().find(|(key, record)| !was_linked(key, record) || !range.contains(key))
                {
                    return Err(format!("{strange:?} was never linked, or is out of range"));
                }
                all_that_stay(&shown, before, after, range)?;
                let mut now: Vec<(u64, RecordPtr)> =
                    after.range(range.clone()).map(|(&key, &record)| (key, record)).collect();
                if !forward {
                    now.reverse();
                }
                match leaves.iter().all(|leaf| holds(leaf.0)) && shown != now {
                    true => {
                        Err(format!("all node versions hold although what was shown is not there: {shown:?}, {now:?}"))
                    }
                    false => Ok(()),
                }
            }
            Answer::Visited(visited, split) => {
                if let Some(strange) = visited.iter().find(|(key, record)| !was_linked(key, record)) {
                    return Err(format!("{strange:?} was never linked"));
                }
                let again = |at: &usize| visited[..*at].contains(&visited[*at]);
                if let (false, Some(at)) = (*split, (0..visited.len()).find(again)) {
                    return Err(format!("{:?} stayed in its bucket and was visited twice", visited[at]));
                }
                all_that_stay(visited, before, after, &(0..=u64::MAX))
            }
        }
    }
}

fn all_that_stay(
    shown: &[(u64, RecordPtr)],
    before: &Model,
    after: &Model,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<(), String> {
    let stays = before.range(range.clone()).filter(|(key, record)| after.get(key) == Some(record));
    match stays.map(|(&key, &record)| (key, record)).find(|stays| !shown.contains(stays)) {
        Some(missed) => Err(format!("{missed:?} stays and is not shown in {shown:?}")),
        None => Ok(()),
    }
}

/// Keys that are linked and keys that are not, from all over the range.
fn some_keys(count: u64) -> Vec<u64> {
    (1..=count).flat_map(|n| [n * STEP, n * STEP + 5]).collect()
}

fn found(key: u64, answer: Result<RecordPtr, NodeVersion>) -> Answer {
    answer.map_or_else(|node_version| Answer::Absent(key, node_version), |record| Answer::Found(key, record))
}

#[test]
fn a_lookup_in_a_tree() {
    for count in [3, 9, 33].into_iter().take(rng::tries(2, 3) as usize) {
        every_turn::<Leaves, ()>(
            count,
            some_keys,
            |_, _, _| (),
            |tree, worker, key, ()| found(key, tree.get(key, worker.local.pinned())),
        );
    }
}

#[test]
fn a_lookup_by_leaf_hint() {
    for count in [3, 9, 33].into_iter().take(rng::tries(2, 3) as usize) {
        let prepare = |tree: &Leaves, worker: &mut Worker, key| {
            let mut leaf_hint = LeafHint::default();
            let _ = tree.get_near(key, &mut leaf_hint, worker.local.pinned());
            leaf_hint
        };
        every_turn::<Leaves, LeafHint>(count, some_keys, prepare, |tree, worker, key, mut leaf_hint| {
            found(key, tree.get_near(key, &mut leaf_hint, worker.local.pinned()))
        });
    }
}

#[test]
fn a_scan_of_a_tree() {
    for direction in [Direction::Forward, Direction::Backward] {
        let few = |count| some_keys(count).into_iter().step_by(3).collect();
        let read = move |tree: &Leaves, worker: &mut Worker, key: u64, ()| {
            let (low, high) = (key.saturating_sub(35), key + 30);
            let mut cursor = Cursor::new();
            cursor.begin(Bound::Included(Key::Word8(low)), Bound::Included(Key::Word8(high)), direction);
            let mut leaves = Vec::new();
            while tree.next_leaf(&mut cursor, &mut LeafHint::default(), worker.local.pinned()) {
                // SAFETY: found while online.
                let keyed = |&record: &RecordPtr| (unsafe { Word8::of(record) }, record);
                leaves.push((cursor.node_version(), cursor.records().iter().map(keyed).collect()));
            }
            Answer::Shown(leaves, direction, low..=high)
        };
        for count in [9, 3, 33].into_iter().take(rng::tries(1, 3) as usize) {
            every_turn::<Leaves, ()>(count, few, |_, _, _| (), read);
        }
    }
}

#[test]
fn a_lookup_in_a_hash_table() {
    for count in [3, 12, 40].into_iter().take(rng::tries(2, 3) as usize) {
        every_turn::<Hash<Word8>, ()>(
            count,
            some_keys,
            |_, _, _| (),
            |table, worker, key, ()| found(key, table.get(key, worker.local.pinned())),
        );
    }
}

#[test]
fn a_walk_of_a_hash_table() {
    let few = |count| some_keys(count).into_iter().step_by(rng::tries(14, 7) as usize).collect();
    for count in [12, 40].into_iter().take(rng::tries(1, 2) as usize) {
        every_turn::<Hash<Word8>, ()>(
            count,
            few,
            |_, _, _| (),
            |table, worker, _, ()| {
                let (mut next, mut records, buckets) = (0, Vec::new(), table.buckets());
                while table.walk(&mut next, 8, worker.local.pinned(), &mut records) {}
                // SAFETY: found while online.
                let visited = records.into_iter().map(|record| (unsafe { Word8::of(record) }, record)).collect();
                Answer::Visited(visited, table.buckets() != buckets)
            },
        );
    }
}

#[test]
fn a_removal_from_a_hash_table() {
    let few = |count| (1..=count).map(|n| n * STEP).step_by(3).collect();
    for count in [12, 40] {
        let prepare =
            |table: &Hash<Word8>, worker: &mut Worker, key| table.get(key, worker.local.pinned()).expect("linked");
        every_turn::<Hash<Word8>, RecordPtr>(count, few, prepare, |table, worker, key, record| {
            match table.remove(&mut worker.cx(), key, record, &mut Unobserved) {
                true => Answer::Wrote(vec![(key, None)]),
                false => Answer::NotLinked(key, record),
            }
        });
    }
}

#[test]
fn an_insertion_into_a_hash_table() {
    let absent = |count: u64| (1..=count).map(|n| n * STEP + 5).step_by(3).collect();
    for count in [12, 40] {
        let prepare = |_: &Hash<Word8>, worker: &mut Worker, key| worker.record(key);
        every_turn::<Hash<Word8>, RecordPtr>(count, absent, prepare, |table, worker, key, record| {
            match table.insert(&mut worker.cx(), key, record, &mut Unobserved) {
                Ok(Inserted::Linked) => Answer::Wrote(vec![(key, Some(record))]),
                Ok(Inserted::Exists(other)) => Answer::Found(key, other),
                refused => panic!("{refused:?}"),
            }
        });
    }
}

#[test]
fn a_gap_locked_while_its_split_is_planned_stops_the_split() {
    let world = World::new();
    let mut stopped = 0;
    for at in 0..600 {
        let (mut worker, mut other) = (world.worker(), world.worker());
        let (table, _) = filled::<Hash<Word8>>(&world, &mut other, 40);
        let held = std::cell::Cell::new(None);
        let lock = || held.set(Some(table.hold_the_next_gap()));
        let ((), interrupted) = interrupt(at, lock, || {
            for key in 1..=60 {
                let record = worker.record(10_000 + key);
                let linked = table.insert(&mut worker.cx(), 10_000 + key, record, &mut Unobserved);
                assert_eq!(linked, Ok(Inserted::Linked));
            }
        });
        if interrupted && let Some(buckets) = held.get() {
            assert_eq!(table.buckets(), buckets, "before load {at}: a bucket whose gap is held was split");
            stopped += 1;
        }
    }
    assert!(stopped > 100, "{stopped}");
}
