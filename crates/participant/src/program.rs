//! A call over several partitions: rounds of fragments, each with the results of earlier ones.

use std::sync::{Arc, Mutex, PoisonError};

use seriatim::procedure::divided::{Call, Divided, Fragment, Reply};
use seriatim::{Session, TransactError};
use seriatim_partition::{FragmentRequest, Next, PartitionId, Procedure};

/// A caller that coordinates: the procedures, with a database without rows.
pub struct Caller {
    divided: Arc<Divided>,
    /// Idle sessions that combine results.
    sessions: Mutex<Vec<Session>>,
}

impl Caller {
    /// A caller of these procedures, whose database has no rows.
    pub fn new(divided: Divided) -> Caller {
        Caller { divided: Arc::new(divided), sessions: Mutex::default() }
    }

    /// The procedures.
    pub fn divided(&self) -> &Arc<Divided> {
        &self.divided
    }

    fn put_together(&self, call: &Call, found: Vec<u8>) -> Result<Vec<u8>, TransactError> {
        let idle = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut session = idle.unwrap_or_else(|| self.divided.database().session());
        let output = self.divided.put_together(&mut session, call, found);
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        output
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.divided.fmt(f)
    }
}

/// The numbers of the bits that are set.
pub(crate) fn numbers(mut bits: u64) -> impl Iterator<Item = PartitionId> {
    std::iter::from_fn(move || {
        let next = PartitionId(bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        (next.0 < u64::BITS).then_some(next)
    })
}

/// The fragment of a call that needs one partition, and that partition; `None` if it needs several.
pub fn single(call: &Call) -> Option<(PartitionId, Fragment)> {
    let partitions = call.partitions();
    let Call { procedure, arguments, .. } = call;
    let fragment = || Fragment { procedure: *procedure, arguments: arguments.clone(), round: None, found: Vec::new() };
    (partitions.count_ones() == 1).then(|| (PartitionId(partitions.trailing_zeros()), fragment()))
}

/// A call, run as a procedure over several partitions.
#[derive(Clone, Debug)]
pub struct Program {
    caller: Arc<Caller>,
    call: Call,
    /// The next round.
    round: usize,
    found: Vec<u8>,
    /// The result, if a fragment had all its inputs.
    output: Option<Vec<u8>>,
}

impl Program {
    /// Runs this call.
    pub fn new(caller: Arc<Caller>, call: Call) -> Program {
        Program { caller, call, round: 0, found: Vec::new(), output: None }
    }

    fn fragment(&self, round: usize) -> Fragment {
        let Call { procedure, arguments, .. } = self.call.clone();
        Fragment { procedure, arguments, round: Some(round as u32), found: self.found.clone() }
    }
}

impl Procedure for Program {
    type Work = Fragment;
    type Reply = Reply;
    type Abort = TransactError;
    /// The procedure's result, as bytes.
    type Output = Vec<u8>;

    fn next(&mut self, replies: Vec<(PartitionId, Option<Reply>)>) -> Next<Fragment, Vec<u8>, TransactError> {
        for (_, reply) in replies {
            match reply {
                Some(Reply::Results(found)) => self.found.extend(found),
                Some(Reply::Output(output)) => self.output = Some(output),
                None => {}
            }
        }
        let rounds = &self.call.rounds;
        let first = self.round == 0;
        while !first && rounds.get(self.round) == Some(&0) {
            self.round += 1;
        }
        if self.round == rounds.len() {
            let found = std::mem::take(&mut self.found);
            return match self.output.take().map_or_else(|| self.caller.put_together(&self.call, found), Ok) {
                Ok(output) => Next::Done(output),
                Err(error) => Next::Abort(error),
            };
        }
        let (here, later) = (rounds[self.round], rounds[self.round + 1..].iter().fold(0, |all, round| all | round));
        let part = |partition: PartitionId| {
            let has = |round: u64| round >> partition.0 & 1 == 1;
            let work = has(here).then(|| self.fragment(self.round));
            FragmentRequest { partition, work, last: !has(later) }
        };
        // All partitions take their position in the order with the first round.
        let parts = numbers(if first { self.call.partitions() } else { here }).map(part).collect();
        self.round += 1;
        Next::Round(parts)
    }
}
