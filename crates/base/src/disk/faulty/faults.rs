//! Decides which operations fail, by counting them.

use std::io::{self, ErrorKind};

use super::super::Located;

/// A kind of operation on the simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Opening or creating a file.
    Open,
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// Setting a file's length.
    Resize,
    /// Making a file's contents durable.
    Sync,
    /// Making a directory's names durable.
    SyncDir,
    /// Renaming.
    Rename,
    /// Removing a file, or a directory with its contents.
    Remove,
    /// Creating a directory.
    CreateDir,
    /// Locking a file.
    Lock,
    /// Listing a directory, finding a path, asking for a file's length.
    Look,
}

impl Operation {
    /// Every kind.
    pub const ALL: [Operation; 11] = {
        use Operation::*;
        [Open, Read, Write, Resize, Sync, SyncDir, Rename, Remove, CreateDir, Lock, Look]
    };
}

/// How often a fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// At the planned operation only.
    Once,
    /// From the planned operation on.
    ForEver,
}

/// The outcome of an operation.
pub(super) enum Fate {
    Succeeds,
    Fails(ErrorKind),
    /// The process ends during the operation.
    Ends(End),
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    PowerCut,
    Kill,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    counts: [u64; Operation::ALL.len()],
    total: u64,
    ends_at: Option<(u64, End)>,
    planned: Vec<Fault>,
}

#[derive(Debug)]
struct Fault {
    operation: Operation,
    at: u64,
    times: Times,
    kind: ErrorKind,
}

impl Faults {
    pub(super) fn count(&self, operation: Operation) -> u64 {
        self.counts[operation as usize]
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn ends_at(&self) -> Option<u64> {
        self.ends_at.map(|(at, _)| at)
    }

    pub(super) fn is_planned(&self) -> bool {
        !self.planned.is_empty()
    }

    /// Plans a failure of the n-th operation of this kind from now.
    pub(super) fn fail(&mut self, operation: Operation, n: u64, times: Times, kind: ErrorKind) {
        let at = self.count(operation).saturating_add(n);
        self.planned.push(Fault { operation, at, times, kind });
    }

    /// Plans that the process ends at the n-th operation from now.
    pub(super) fn end(&mut self, n: u64, end: End) {
        self.ends_at = Some((self.total.saturating_add(n), end));
    }

    pub(super) fn forget_end(&mut self) {
        self.ends_at = None;
    }

    pub(super) fn heal(&mut self) {
        self.planned.clear();
    }

    /// Counts an operation and returns its outcome.
    pub(super) fn next(&mut self, operation: Operation) -> Fate {
        self.total += 1;
        let count = &mut self.counts[operation as usize];
        *count += 1;
        if let Some((_, end)) = self.ends_at.filter(|(at, _)| *at == self.total) {
            return Fate::Ends(end);
        }
        let strikes = |fault: &&Fault| match fault.times {
            _ if fault.operation != operation => false,
            Times::Once => fault.at == *count,
            Times::ForEver => fault.at <= *count,
        };
        self.planned.iter().find(strikes).map_or(Fate::Succeeds, |fault| Fate::Fails(fault.kind))
    }
}

/// Why a call of an ended process fails.
#[derive(Debug)]
pub(super) enum PowerOff {
    /// The power is still off.
    Still,
    /// The disk was rebooted, but the handle is from before the reboot.
    Since,
}

impl std::fmt::Display for PowerOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PowerOff::Still => "the power is off",
            PowerOff::Since => "the power was cut, or the process killed, since this was opened",
        })
    }
}

impl std::error::Error for PowerOff {}

impl From<PowerOff> for io::Error {
    fn from(error: PowerOff) -> io::Error {
        io::Error::other(error)
    }
}

/// Whether a call failed because its process has ended: the simulated power is off, or was off since the handle
/// was opened.
pub fn is_power_off(error: &io::Error) -> bool {
    let mut innermost = error;
    while let Some(located) = innermost.get_ref().and_then(|inner| inner.downcast_ref::<Located>()) {
        innermost = &located.error;
    }
    innermost.get_ref().is_some_and(|inner| inner.is::<PowerOff>())
}
