//! The faults of a history, by the names that the field uses: G-classes are Adya's (PhD thesis, MIT 1999), the others
//! those of Berenson et al. (SIGMOD 1995) and Fekete et al. (SIGMOD Record 2004).

use std::fmt;

/// The class of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    /// The history contradicts itself: an error of the recorder, not an isolation anomaly.
    Malformed,
    /// One version of a key was written twice.
    DuplicateVersion,
    /// A version lies below one that its own writer read.
    VersionOrder,
    /// G1a: a version that no committed transaction wrote was read.
    AbortedRead,
    /// G1b: a version was read that its writer replaced before it committed.
    IntermediateRead,
    /// A row was not found although it was there in every serial order.
    MissingRow,
    /// G0: writes of transactions interleave.
    DirtyWrite,
    /// G1c: transactions read each other's writes.
    CircularInformationFlow,
    /// P4, a G-single: an update is based on a version another update had replaced.
    LostUpdate,
    /// P2, a G-single: a transaction saw two versions of one key.
    FuzzyRead,
    /// A5A, a G-single: a transaction saw part of another one's effects.
    ReadSkew,
    /// A5B, G2-item: transactions overwrote what the others had read.
    WriteSkew,
    /// G2-item that needs a read-only transaction.
    ReadOnlyAnomaly,
    /// P3, G2: a row appeared in a range that was read without it.
    Phantom,
    /// A transaction missed the effect of one that ended before it began, though real-time order was promised.
    StaleRead,
    /// Transactions are ordered against real time, without an overwritten read.
    RealTimeOrder,
    /// Transactions of one session are not in its order.
    SessionOrder,
    /// Neither an anomaly nor a serial order was found: the search reached its bound on work.
    Undecided,
}

impl Anomaly {
    /// The name, with its class.
    pub const fn name(self) -> &'static str {
        match self {
            Anomaly::Malformed => "malformed history",
            Anomaly::DuplicateVersion => "duplicate version",
            Anomaly::VersionOrder => "versions out of order",
            Anomaly::AbortedRead => "aborted read (G1a)",
            Anomaly::IntermediateRead => "intermediate read (G1b)",
            Anomaly::MissingRow => "missing row",
            Anomaly::DirtyWrite => "dirty write (G0)",
            Anomaly::CircularInformationFlow => "circular information flow (G1c)",
            Anomaly::LostUpdate => "lost update (G-single)",
            Anomaly::FuzzyRead => "fuzzy read (G-single)",
            Anomaly::ReadSkew => "read skew (G-single)",
            Anomaly::WriteSkew => "write skew (G2-item)",
            Anomaly::ReadOnlyAnomaly => "read-only anomaly (G2-item)",
            Anomaly::Phantom => "phantom (G2)",
            Anomaly::StaleRead => "stale read (real-time order)",
            Anomaly::RealTimeOrder => "real-time order broken",
            Anomaly::SessionOrder => "session order broken",
            Anomaly::Undecided => "undecided",
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why one transaction must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// ww: the second transaction overwrote a version that the first one wrote.
    Write,
    /// wr: the second transaction read a version that the first one wrote.
    Read,
    /// rw: the second transaction overwrote a version that the first one read.
    Anti,
    /// rw over a range: the second transaction inserted into, or deleted from, a range that the first one
    /// read.
    PredicateAnti,
    /// Both transactions ran in one session.
    Session,
    /// The first transaction ended before the second one began.
    RealTime,
}

/// One edge of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Id of the transaction that must come first.
    pub from: u64,
    /// Id of the transaction that must come after it.
    pub to: u64,
    /// The reason.
    pub dependency: Dependency,
    /// The reason, as a sentence.
    pub text: String,
}

/// A proof that no serial order explains a history; or that none was found ([`Anomaly::Undecided`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The class.
    pub anomaly: Anomaly,
    /// The cycle; empty where one claim is wrong by itself.
    pub cycle: Vec<Step>,
    /// Ids of the transactions involved.
    pub transactions: Vec<u64>,
    /// A summary in one sentence.
    pub text: String,
}

impl Violation {
    /// A claim that is wrong by itself.
    pub(crate) fn of_claim(anomaly: Anomaly, transactions: Vec<u64>, text: String) -> Violation {
        Violation { anomaly, cycle: Vec::new(), transactions, text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.anomaly, self.text)?;
        self.cycle.iter().try_for_each(|step| write!(f, "\n  {}", step.text))
    }
}

impl std::error::Error for Violation {}
