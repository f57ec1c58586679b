//! The requests of simulated clients: fragments of the small store, and procedures over several.

use super::store::{Failed, Op, Seen, Work};
use crate::{FragmentRequest, Next, PartitionId, Procedure};

/// A request of a client.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// A single-partition transaction.
    Single { partition: PartitionId, work: Work, may_abort: bool },
    /// A transaction over several partitions.
    Multi(Program),
}

/// A procedure over several partitions.
#[derive(Clone, Debug)]
pub(super) struct Program {
    kind: Kind,
    round: u32,
    seen: Vec<(PartitionId, Vec<Seen>)>,
}

/// The kind of procedure.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// One fragment for each.
    Simple(Vec<(PartitionId, Work)>),
    /// Reads keys in a first round; writes each, plus one, in a second. A partition may fail in the first.
    TwoRounds { keys: Vec<(PartitionId, Vec<u32>)>, fails_at: Option<PartitionId> },
    /// Takes two from a value at one partition, which has then finished, and adds them to a value at another
    /// one, which waits for them. With `gives_up` it aborts if the value was odd.
    Carry { from: (PartitionId, u32), to: (PartitionId, u32), gives_up: bool },
}

impl Program {
    pub(super) fn new(kind: Kind) -> Program {
        Program { kind, round: 0, seen: Vec::new() }
    }

    pub(super) fn participants(&self) -> Vec<PartitionId> {
        match &self.kind {
            Kind::Simple(parts) => parts.iter().map(|&(partition, _)| partition).collect(),
            Kind::TwoRounds { keys, .. } => keys.iter().map(|&(partition, _)| partition).collect(),
            Kind::Carry { from, to, .. } => vec![from.0, to.0],
        }
    }

    /// By how much the sum of all values grows if it commits.
    fn grows(&self) -> i64 {
        match &self.kind {
            Kind::Simple(parts) => parts.iter().map(|(_, work)| grows(work)).sum(),
            Kind::TwoRounds { keys, .. } => keys.iter().map(|(_, keys)| keys.len() as i64).sum(),
            Kind::Carry { .. } => 0,
        }
    }
}

impl Asked {
    pub(super) fn participants(&self) -> Vec<PartitionId> {
        match self {
            Asked::Single { partition, .. } => vec![*partition],
            Asked::Multi(program) => program.participants(),
        }
    }

    /// By how much the sum of all values grows if it commits.
    pub(super) fn grows(&self) -> i64 {
        match self {
            Asked::Single { work, .. } => grows(work),
            Asked::Multi(program) => program.grows(),
        }
    }
}

fn grows(work: &Work) -> i64 {
    let amount = |op: &Op| match op {
        Op::Add(_, amount) => *amount,
        _ => 0,
    };
    work.iter().map(amount).sum()
}

impl Procedure for Program {
    type Work = Work;
    type Reply = Vec<Seen>;
    type Abort = Failed;
    type Output = Vec<(PartitionId, Vec<Seen>)>;

    fn next(&mut self, replies: Vec<(PartitionId, Option<Vec<Seen>>)>) -> Next<Work, Self::Output, Failed> {
        let (round, kind) = (self.round, &self.kind);
        self.round += 1;
        let next = match (kind, round) {
            (Kind::Simple(parts), 0) => Next::Round(
                parts.iter().map(|(partition, work)| FragmentRequest::last(*partition, work.clone())).collect(),
            ),
            (Kind::TwoRounds { keys, fails_at }, 0) => {
                let part = |(partition, keys): &(PartitionId, Vec<u32>)| {
                    let fails = *fails_at == Some(*partition);
                    let ops = keys.iter().map(|&key| Op::Read(key)).chain(fails.then_some(Op::Fail));
                    FragmentRequest::more(*partition, ops.collect())
                };
                Next::Round(keys.iter().map(part).collect())
            }
            (Kind::TwoRounds { .. }, 1) => {
                let part = |(partition, seen): &(PartitionId, Option<Vec<Seen>>)| {
                    let seen = seen.iter().flatten();
                    FragmentRequest::last(*partition, seen.map(|seen| Op::Set(seen.key, seen.value + 1)).collect())
                };
                Next::Round(replies.iter().map(part).collect())
            }
            (&Kind::Carry { from, to, .. }, 0) => Next::Round(vec![
                FragmentRequest::last(from.0, vec![Op::Add(from.1, -2)]),
                FragmentRequest::place(to.0),
            ]),
            (&Kind::Carry { to, gives_up, .. }, 1) => {
                let (from, seen) = replies.iter().find_map(|(at, seen)| Some((*at, seen.clone()?))).expect("a reply");
                if gives_up && seen[0].value % 2 != 0 {
                    return Next::Abort(Failed(from, seen));
                }
                Next::Round(vec![FragmentRequest::last(to.0, vec![Op::Add(to.1, 2)])])
            }
            _ => Next::Done(Vec::new()),
        };
        let seen = replies.into_iter().filter_map(|(partition, seen)| Some((partition, seen?)));
        self.seen.extend(seen);
        match next {
            Next::Done(_) => Next::Done(std::mem::take(&mut self.seen)),
            next => next,
        }
    }
}
