//! The validator: the resources by which it orders batches, and its options.
//!
//! Resources are records, and the leaves and buckets whose node versions prove ranges and absences. A record
//! is divided into columns if transactions of a batch change different columns of it. A transaction that saw a
//! resource commits before one that writes it, or links a row in it. Addresses name resources: a record or
//! node that a held transaction saw is not reused while it is held.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroUsize;
use std::time::Duration;

use seriatim_base::thread::{self, BatchWork};
use seriatim_batch::{ALGORITHMS, Batch, Decided, Member, POLICIES, Settings};
use seriatim_catalog::ColumnSet;
use seriatim_txn::{Batching, Environment, Fault, Knob, Options, Ordered, Prepared, Validator};

use crate::shared::epoch_commit::LOCK_STEPS;
use crate::shared::rebase::REBASES_MAX;

/// Orders batches by `seriatim_batch`.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) batching: Batching,
    /// Otherwise batches stay as they came.
    pub(super) reorders: bool,
    pub(super) settings: Settings,
    pub(super) faults: Faults,
}

/// The injected faults, for canaries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    miss_nodes: bool,
    miss_reads: bool,
    reverse: bool,
    keep_left_out: bool,
}

impl Faults {
    pub(super) fn of(environment: &Environment) -> Faults {
        Faults {
            miss_nodes: environment.injects(Fault::MissNodes),
            miss_reads: environment.injects(Fault::MissReads),
            reverse: environment.injects(Fault::ReverseOrder),
            keep_left_out: environment.injects(Fault::KeepLeftOut),
        }
    }
}

impl Validator for Orders {
    fn batching(&self) -> Batching {
        self.batching
    }

    fn order(&self, batch: &[Prepared]) -> Ordered {
        let of = |of: &Prepared| of.reads.len() + of.writes.len() + of.nodes.len() + of.inserts.len();
        thread::batch_work(BatchWork::Access, batch.iter().map(of).sum::<usize>() as u64);
        if batch.len() < 2 || !self.reorders {
            return Ordered { order: (0..batch.len()).collect(), ..Ordered::default() };
        }
        // Of transactions that a policy ranks alike the last is left out: so those that were left out before
        // come first.
        let mut members: Vec<usize> = (0..batch.len()).collect();
        members.sort_by_key(|&at| Reverse(batch[at].restarts));
        let (written, seen) = self.shared(batch);
        // Stale transactions are already removed. Here it means nothing if one transaction has an older version of a
        // record than another. The other may have been rebased on the newer one since, and the used columns may be
        // equal in both.
        let mut graph = Batch::<(usize, u16), (), Addresses>::default();
        for &at in &members {
            let prepared = &batch[at];
            let nodes = prepared.nodes.iter().filter(|_| !self.faults.miss_nodes);
            let nodes = nodes.map(|&node| ((node, WHOLE), ()));
            let reads = seen[at].iter().flat_map(|&(record, columns)| {
                Written::parts(written.get(&record), columns).map(move |part| ((record, part), ()))
            });
            let writes = prepared.writes().flat_map(|(record, columns)| {
                Written::parts(written.get(&record).filter(|written| written.is_read), columns)
                    .map(move |part| (record, part))
            });
            let inserts = prepared.inserts.iter().map(|&node| (node, WHOLE));
            graph
                .add(Member { restarts: prepared.restarts, value: prepared.weight })
                .reads(reads.chain(nodes))
                .writes(writes.chain(inserts));
        }
        let Decided { mut order, mut edges, aborted: mut left_out, looked, .. } = graph.reorder(&self.settings);
        thread::batch_work(BatchWork::GraphVisit, looked);
        if self.faults.reverse {
            order.reverse();
            edges.iter_mut().for_each(|(first, second)| std::mem::swap(first, second));
        }
        if self.faults.keep_left_out {
            order.append(&mut left_out);
        }
        order.iter_mut().chain(&mut left_out).for_each(|at| *at = members[*at]);
        edges.iter_mut().for_each(|(first, second)| (*first, *second) = (members[*first], members[*second]));
        Ordered { order, edges: self.batching.parallel.then_some(edges), left_out }
    }
}

/// A read: the record, and the columns that were used.
type Seen = (usize, ColumnSet);

impl Orders {
    /// The records that a batch will change, and for each transaction its reads of records that another will
    /// change: other reads make no edge.
    fn shared(&self, batch: &[Prepared]) -> (HashMap<usize, Written, Addresses>, Vec<Vec<Seen>>) {
        let mut written = Written::of(batch);
        let of_others = batch.iter().enumerate().map(|(at, prepared)| {
            let reads = prepared.reads().filter(|_| !self.faults.miss_reads);
            let reads = reads.map(|(record, _, columns)| (record, columns));
            let is_anothers = |&(record, _): &Seen| {
                let Some(written) = written.get_mut(&record).filter(|written| written.by != Some(at)) else {
                    return false;
                };
                written.is_read = true;
                true
            };
            reads.filter(is_anothers).collect()
        });
        let seen = of_others.collect();
        (written, seen)
    }
}

/// Hashes addresses, and the numbers of columns. They are the protocol's own, so no user can choose many that collide.
type Addresses = BuildHasherDefault<Folded>;

/// Multiplies, and folds both halves of the product.
#[derive(Debug, Default)]
pub(super) struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u64(&mut self, word: u64) {
        // The odd number next to 2^64 over the golden ratio.
        let product = u128::from(self.0 ^ word) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The part of a resource without columns: no column's number, as those from the 64th on share one.
const WHOLE: u16 = u16::MAX;

/// The changes of a record by a batch.
#[derive(Clone, Copy, Debug)]
struct Written {
    columns: ColumnSet,
    /// Whether some change other columns than others.
    differ: bool,
    /// The transaction that changes it, if there is only one.
    by: Option<usize>,
    /// Whether one reads it that is not the only one to change it.
    is_read: bool,
}

impl Written {
    /// By record.
    fn of(batch: &[Prepared]) -> HashMap<usize, Written, Addresses> {
        let size = batch.iter().map(|prepared| prepared.writes.len()).sum();
        let mut written: HashMap<usize, Written, Addresses> =
            HashMap::with_capacity_and_hasher(size, Addresses::default());
        for (at, prepared) in batch.iter().enumerate() {
            for (record, columns) in prepared.writes() {
                let new = Written { columns, differ: false, by: Some(at), is_read: false };
                let of = written.entry(record).or_insert(new);
                of.by = of.by.filter(|&by| by == at);
                of.differ |= of.columns != columns;
                of.columns = of.columns.union(columns);
            }
        }
        written
    }

    /// The parts of a record that these columns touch, if the record matters. If a transaction changes a column that
    /// another uses, they have a part in common. Where all change the same columns the record is one part.
    fn parts(written: Option<&Written>, columns: ColumnSet) -> impl Iterator<Item = u16> {
        let (whole, apart) = match written {
            None => (false, ColumnSet::EMPTY),
            Some(Written { columns: changed, differ: false, .. }) => (changed.intersects(columns), ColumnSet::EMPTY),
            Some(Written { columns: changed, .. }) => (false, changed.intersection(columns)),
        };
        whole.then_some(WHOLE).into_iter().chain(apart.iter().map(|column| column.0))
    }
}

pub(super) const OPTIONS: &[Knob] = &[
    BATCH_MAX,
    WAIT,
    STORAGE_BATCHING,
    REORDER,
    PARALLEL,
    ALGORITHM,
    POLICY,
    FACTOR,
    WORKERS,
    PATIENCE,
    LOCK_STEPS,
    REBASES_MAX,
];

const BATCH_MAX: Knob = Knob {
    name: "batch_max",
    unit: "transactions",
    default: 4,
    min: 1,
    max: 4096,
    about: "the most transactions in a batch, which is closed when it has this many",
    source: "ours: of 2, 3, 4, 8, 16 and 40, with enough workers to fill a batch, 4 commits the most of YCSB \
        and five-five on 32 simulated cores (docs/batching.md). Ding, Kot, Gehrke, PVLDB 2018, section 5: 40, for 300 \
        transactions at a time",
};

const WAIT: Knob = Knob {
    name: "batch_wait_us",
    unit: "microseconds",
    default: 0,
    min: 0,
    max: 30_000_000,
    about: "how long a batch that is not full waits for more, at most. It does not wait if no other transaction is \
        open; 0: never. It must be less than a transaction may be open",
    source: "ours: while a batch is decided the next one gathers, and a thread that waits does nothing else",
};

pub(super) const STORAGE_BATCHING: Knob = Knob {
    name: "storage_batching",
    unit: "0 no, 1 yes",
    default: 0,
    min: 0,
    max: 1,
    about: "whether reads wait, with a bound, for queued transactions that will overwrite the row that is \
        read",
    source: "Ding, Kot, Gehrke, PVLDB 2018, section 3.1: for each object the writes of a batch come before the reads",
};

pub(super) const REORDER: Knob = Knob {
    name: "reorder",
    unit: "0 no, 1 yes",
    default: 1,
    min: 0,
    max: 1,
    about: "whether batches are ordered; otherwise they are decided in order of arrival, and no transaction is left \
            out",
    source: "Ding, Kot, Gehrke, PVLDB 2018, section 5: batch and sr, the modes without reordering in the validator",
};

const PARALLEL: Knob = Knob {
    name: "parallel",
    unit: "0 no, 1 yes",
    default: 1,
    min: 0,
    max: 1,
    about: "whether transactions of an ordered batch that do not conflict are decided at the same time, \
        by the threads that wait for them",
    source: "Ding, Kot, Gehrke, PVLDB 2018, section 4.3: transactions within an ordered batch can be validated in \
        parallel",
};

const ALGORITHM: Knob = Knob {
    name: "algorithm",
    unit: "0 trim, 1 sort-greedy, 2 scc-greedy, 3 random, 4 random-3, 5 hybrid, 6 exact",
    default: 1,
    min: 0,
    max: 6,
    about: "the algorithm that chooses the transactions to leave out of a batch",
    source: "Ding, Kot, Gehrke, PVLDB 2018, section 5",
};

const POLICY: Knob = Knob {
    name: "policy",
    unit: "0 random, 1 max-degree, 2 sum-degree, 3 prod-degree, 4 rct, 5 rdeg, 6 value",
    default: 3,
    min: 0,
    max: 6,
    about: "which transactions are preferably left out: rct and rdeg spare those that were left out before, value \
            spares \
        those with a larger `TransactionOptions::weight`",
    source: "Ding, Kot, Gehrke, PVLDB 2018, section 5: prod-degree; section 5.3: rdeg for short tails",
};

const FACTOR: Knob = Knob {
    name: "factor",
    unit: "transactions",
    default: 2,
    min: 1,
    max: 64,
    about: "how many transactions sort-greedy leaves out at a time (the paper's k)",
    source: "Ding, Kot, Gehrke, PVLDB 2018, section 5",
};

const WORKERS: Knob = Knob {
    name: "reorder_workers",
    unit: "batches",
    default: 8,
    min: 1,
    max: 64,
    about: "the most batches that are ordered at the same time while another one is decided; beside another one, \
        only full batches are ordered",
    source: "ours, with batches of 4: 32 transactions at a time. Ding, Kot, Gehrke, PVLDB 2018, section 5.4: 1 to 4",
};

const PATIENCE: Knob = Knob {
    name: "patience",
    unit: "restarts",
    default: 32,
    min: 0,
    max: 1_000_000,
    about: "after how many restarts a transaction is executed and decided alone, while no batch is decided; 0: \
        never",
    source: "ours: a reader of rows that change all the time is stale before it joins a batch, under any policy. 4 \
        and 8 shorten the longest tail and halve throughput (docs/batching.md)",
};

pub(super) fn batching(options: &Options) -> Batching {
    Batching {
        batch_max: options.get(&BATCH_MAX) as usize,
        wait: Duration::from_micros(options.get(&WAIT)),
        workers: options.get(&WORKERS) as usize,
        parallel: options.get(&PARALLEL) != 0,
        patience: if options.get(&PATIENCE) == 0 { u32::MAX } else { options.get(&PATIENCE) as u32 },
    }
}

pub(super) fn settings(options: &Options) -> Settings {
    Settings {
        algorithm: &ALGORITHMS[options.get(&ALGORITHM) as usize],
        policy: &POLICIES[options.get(&POLICY) as usize],
        factor: NonZeroUsize::new(options.get(&FACTOR) as usize).unwrap_or(NonZeroUsize::MIN),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values in the unit of a knob whose values are names.
    fn names(knob: &Knob) -> Vec<String> {
        let named = |(at, named): (usize, &str)| {
            let (number, name) = named.split_once(' ').expect("a number and a name");
            assert_eq!(number.parse(), Ok(at));
            name.to_owned()
        };
        let names: Vec<String> = knob.unit.split(", ").enumerate().map(named).collect();
        assert_eq!(knob.max as usize + 1, names.len());
        names
    }

    #[test]
    fn numbers_stand_for_the_algorithms_and_policies_that_there_are() {
        assert_eq!(names(&ALGORITHM), ALGORITHMS.iter().map(|known| known.name).collect::<Vec<_>>());
        assert_eq!(names(&POLICY), POLICIES.iter().map(|known| known.name).collect::<Vec<_>>());
    }

    #[test]
    fn the_defaults_are_the_papers_but_for_the_size_of_batches() {
        let (options, paper) = (Options::default(), Settings::default());
        let settings = settings(&options);
        assert_eq!((settings.algorithm.name, settings.policy.name), (paper.algorithm.name, paper.policy.name));
        assert_eq!((settings.factor, batching(&options).batch_max), (paper.factor, 4));
    }
}
