//! A transaction on two partitions: one round that reads and increments, or one that reads and another that writes.

use seriatim_partition::{FragmentRequest, Next, PartitionId, Procedure};

use super::PARTS;
use super::store::{Act, FragmentValues, Work};

/// The values that were read at each partition.
pub type Seen = [(PartitionId, FragmentValues); PARTS];

/// The transaction.
#[derive(Clone, Debug)]
pub struct Program {
    parts: [(PartitionId, FragmentValues); PARTS],
    /// The half at which it fails.
    fails_at: Option<usize>,
    two_rounds: bool,
    round: u32,
    seen: Seen,
}

impl Program {
    pub(super) fn new(
        parts: [(PartitionId, FragmentValues); PARTS],
        fails_at: Option<usize>,
        two_rounds: bool,
    ) -> Program {
        Program { parts, fails_at, two_rounds, round: 0, seen: parts.map(|(at, _)| (at, FragmentValues::default())) }
    }
}

impl Procedure for Program {
    type Work = Work;
    type Reply = FragmentValues;
    type Abort = ();
    type Output = Seen;

    fn next(&mut self, replies: Vec<(PartitionId, Option<FragmentValues>)>) -> Next<Work, Seen, ()> {
        if self.round == 1 {
            for (to, (_, reply)) in self.seen.iter_mut().zip(replies) {
                to.1 = reply.unwrap_or_default();
            }
        }
        self.round += 1;
        let act = |at: usize| match (self.round, self.two_rounds) {
            (1, false) => Act::Update,
            (1, true) => Act::Read,
            _ => Act::Write(self.seen[at].1),
        };
        if self.round > 1 + u32::from(self.two_rounds) {
            return Next::Done(self.seen);
        }
        let last = self.round == 1 + u32::from(self.two_rounds);
        let part = |(at, &(partition, keys)): (usize, &(PartitionId, FragmentValues))| {
            let fails = self.round == 1 && self.fails_at == Some(at);
            FragmentRequest { partition, work: Some(Work { keys, act: act(at), fails }), last }
        };
        Next::Round(self.parts.iter().enumerate().map(part).collect())
    }
}
