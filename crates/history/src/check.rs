//! The check: the steps of the crate's documentation, one after another.

use crate::absence::{self, Contradiction};
use crate::explain;
use crate::graph::{Edges, Graph};
use crate::index::Index;
use crate::items;
use crate::order::Order;
use crate::{History, Violation};
use std::fmt;

/// The promises of the recorded system beyond serializability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// A transaction comes before every later one (not on a snapshot) that began after it ended. For a later
    /// one of another [group](crate::Group), it is the instant `shown` that must come first.
    pub real_time: bool,
    /// A snapshot shows every transaction that ended before the instant it names.
    pub snapshots: bool,
    /// Transactions of one session are in the session's order. A snapshot may be older than earlier
    /// transactions of its session. A transaction of another group may miss what was not yet shown to it.
    pub sessions: bool,
}

impl Promises {
    /// Serializability and no more.
    pub const SERIALIZABLE: Promises = Promises { real_time: false, snapshots: false, sessions: false };
    /// Strict serializability, and snapshots as fresh as they say.
    pub const STRICT: Promises = Promises { real_time: true, snapshots: true, sessions: true };
}

/// The extent of the check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Transactions in the history.
    pub transactions: u64,
    /// Keys read or written; where column groups are judged apart, those of each count too, here and below.
    pub keys: u64,
    /// Versions written.
    pub versions: u64,
    /// Reads of a known version or absence, rows of scans included.
    pub reads: u64,
    /// Absent reads for which the history does not say since when the key was absent.
    pub absences: u64,
    /// Range reads over keys of the history.
    pub scans: u64,
    /// Dependencies and order edges.
    pub edges: u64,
    /// Absences for which the search had to choose a place before an insert or after a delete.
    pub clauses: u64,
    /// How many of these either place could have explained.
    pub ambiguous: u64,
    /// A serial order that explains the history: indices into [`History::transactions`].
    pub order: Vec<u32>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { transactions, keys, versions, reads, absences, scans, edges, .. } = self;
        write!(
            f,
            "{transactions} transactions are serializable: {versions} versions of {keys} keys, {reads} reads, \
             {absences} absences, {scans} scans, {edges} edges"
        )?;
        if self.ambiguous > 0 {
            write!(f, "; {} absences had two places", self.ambiguous)?;
        }
        Ok(())
    }
}

/// Looks for a serial order that explains a history and keeps the promises.
///
/// # Errors
/// Returns a violation if there is no such order. Also if none was found within a bound on work
/// ([`Anomaly::Undecided`]): a history without a verdict does not pass.
///
/// [`Anomaly::Undecided`]: crate::Anomaly::Undecided
pub fn check(history: &History, promises: &Promises) -> Result<Summary, Violation> {
    check_within(history, promises, absence::WORK_MAX)
}

fn check_within(history: &History, promises: &Promises, work_max: u64) -> Result<Summary, Violation> {
    let by_groups = history.groups.iter().any(|groups| !groups.is_empty());
    let adds = history.transactions.iter().any(|t| !t.additions.is_empty());
    let items = (by_groups || adds).then(|| items::split(history)).transpose()?;
    let index = Index::build(items.as_ref().unwrap_or(history))?;
    let edges = Edges::new(&index, promises);
    let mut graph = Graph::new(edges.nodes(), |visit| edges.each(|from, to, _| visit(from, to)));
    let successors_first = match graph.successors_first() {
        Ok(sequence) => sequence,
        Err(component) => return Err(explain::explain(&index, &edges, &[], &component, false)),
    };
    let mut order = Order::new(&graph, &successors_first, &hints(&index));
    drop(successors_first);
    let explained = match absence::explain(&index, promises, &mut graph, &mut order, work_max) {
        Ok(explained) => explained,
        Err(Contradiction::WrongClaim(violation)) => return Err(violation),
        Err(Contradiction::Cycle { added, searched }) => {
            // The graph holds all of `added` but the last, which closes the cycle.
            let closing = added.last().expect("an edge was refused");
            graph.add(closing.from, closing.to);
            let component = graph.successors_first().expect_err("the order refused only edges that close cycles");
            return Err(explain::explain(&index, &edges, &added, &component, searched));
        }
    };
    let n = index.transactions();
    let transactions = || 0..n;
    Ok(Summary {
        transactions: u64::from(n),
        keys: index.keys.len() as u64,
        versions: (index.states.len() - index.keys.len()) as u64,
        reads: transactions().map(|t| index.reads.of(t).len() as u64).sum(),
        absences: transactions().map(|t| index.absent.of(t).len() as u64).sum(),
        scans: transactions().map(|t| index.ranges.of(t).len() as u64).sum(),
        edges: graph.edges(),
        clauses: explained.clauses,
        ambiguous: explained.ambiguous,
        order: order.sequence().iter().copied().filter(|&node| node < n).collect(),
    })
}

/// The preferred position of each transaction: by its end (a snapshot: by its instant), then by its highest
/// version.
fn hints(index: &Index<'_>) -> Vec<u32> {
    let key = |t: u32| {
        let transaction = &index.history.transactions[t as usize];
        let instant = transaction.snapshot.unwrap_or(transaction.ended);
        let written = index.writes.of(t).iter().map(|&s| index.states[s as usize].tid).max();
        let read = || index.reads.of(t).iter().map(|claim| index.states[claim.number() as usize].tid).max();
        (instant, written.or_else(read).unwrap_or(0))
    };
    let mut sorted: Vec<(u64, u64, u32)> = (0..index.transactions())
        .map(|t| {
            let (instant, tid) = key(t);
            (instant, tid, t)
        })
        .collect();
    sorted.sort_unstable();
    let mut hints = vec![0; sorted.len()];
    sorted.iter().enumerate().for_each(|(rank, &(_, _, t))| hints[t as usize] = rank as u32);
    hints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Anomaly, Saw, Transaction};

    /// Canary: a history that the bound on work leaves undecided does not pass.
    #[test]
    fn a_history_without_a_verdict_is_refused() {
        let transactions = vec![
            Transaction::new(1).write(0, "x", 1),
            Transaction::new(2).delete(0, "x", 2).write(0, "y", 1),
            Transaction::new(3).read(0, "x", Saw::Absent).read(0, "y", Saw::AbsentAt(0)),
        ];
        let mut history = crate::History { transactions, ..Default::default() };
        // The times place the reader between the insert and the delete.
        for (t, ended) in history.transactions.iter_mut().zip([1, 3, 2]) {
            t.ended = ended;
        }
        let full = check(&history, &Promises::SERIALIZABLE).expect("serializable");
        assert_eq!(full.clauses, 1);
        let bounded = check_within(&history, &Promises::SERIALIZABLE, 0).expect_err("no verdict");
        assert_eq!((bounded.anomaly, &*bounded.transactions), (Anomaly::Undecided, &[3][..]));
        assert!(bounded.to_string().starts_with("undecided: 1 absences are neither"), "{bounded}");
    }
}
