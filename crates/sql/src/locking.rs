//! Rows that a statement locks: those that UPDATE and DELETE change, and those that FOR UPDATE and FOR SHARE name.
//!
//! A row is locked before it is read where its key is known. Otherwise it is locked when it was found. A row that has
//! changed in between is a conflict, and a transaction that has told nothing of what it read is repeated.

use seriatim::{Abort, DynHandle, IfLocked, LockStrength, RowLock, Value};
use sqlparser::ast::{LockClause, LockType, NonBlock};

use crate::error::{SqlError, SqlState};
use crate::from::From;
use crate::names::object;
use crate::rows::{Joined, Origin, Source, SourceRow};
use crate::run::Env;
use crate::write::key_of;

/// What is locked, and what becomes of rows that others have locked.
#[derive(Clone, Debug)]
pub(crate) struct Locking {
    strength: LockStrength,
    taken: Taken,
    /// The position of the one table, or none for all tables of FROM.
    source: Option<usize>,
}

/// What becomes of a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Awaited,
    Refused,
    Skipped,
}

/// As UPDATE and DELETE lock their rows: those of the first source, but not of the tables that they join.
pub(crate) const CHANGED: Locking =
    Locking { strength: LockStrength::Exclusive, taken: Taken::Awaited, source: Some(0) };

/// A row to be locked.
pub(crate) type RowKey = (usize, Vec<Value>);

impl Locking {
    /// Whether rows are skipped that others have locked.
    pub(crate) fn skips(&self) -> bool {
        self.taken == Taken::Skipped
    }

    /// The lock that a clause asks for.
    ///
    /// # Errors
    /// It names no table of FROM.
    pub(crate) fn bind(clause: &LockClause, from: &From) -> Result<Locking, SqlError> {
        let strength = match clause.lock_type {
            LockType::Update => LockStrength::Exclusive,
            LockType::Share => LockStrength::Shared,
        };
        let taken = match clause.nonblock {
            None => Taken::Awaited,
            Some(NonBlock::Nowait) => Taken::Refused,
            Some(NonBlock::SkipLocked) => Taken::Skipped,
        };
        let source = clause.of.as_ref().map(|of| {
            let own = object(of)?;
            from.sources.0.iter().position(|source| source.alias == own).ok_or_else(|| {
                let message = format!("relation \"{own}\" in {clause} clause not found in FROM clause");
                let message = message.replace(&format!(" OF {of}"), "");
                SqlError::new(SqlState::UNDEFINED_TABLE, message)
            })
        });
        Ok(Locking { strength, taken, source: source.transpose()? })
    }

    /// The tables whose rows it locks.
    pub(crate) fn tables(&self, from: &From) -> Vec<DynHandle> {
        let sources =
            from.sources.0.iter().enumerate().filter(|(at, _)| self.source.is_none_or(|wanted| wanted == *at));
        let table = |(_, source): (usize, &Source)| match &source.origin {
            Origin::Table(table) => Some(table.clone()),
            _ => None,
        };
        sources.filter_map(table).collect()
    }

    /// Locks the row with a key. Returns whether it counts: not if it is skipped.
    ///
    /// # Errors
    /// Another transaction has locked it; no memory.
    pub(crate) fn lock_key(&self, env: Env<'_>, table: &DynHandle, key: &[Value]) -> Result<bool, Abort> {
        let if_locked = if self.taken == Taken::Awaited { IfLocked::Wait } else { IfLocked::Refuse };
        let run = env.run;
        match run.tx.lock_row_dyn(table, key, self.strength, if_locked)? {
            RowLock::Held => Ok(true),
            RowLock::Taken => match self.taken {
                Taken::Skipped => {
                    run.has_skipped.set(true);
                    Ok(false)
                }
                Taken::Refused => {
                    let message = format!("could not obtain lock on row in relation \"{}\"", table.definition().name);
                    Err(env.fail(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message)))
                }
                Taken::Awaited => {
                    run.is_taken.set(true);
                    Err(run.tx.unwind())
                }
            },
            RowLock::Waits(wait) => {
                run.wait.replace(Some(wait));
                Err(run.tx.unwind())
            }
            RowLock::Deadlock(detail) => {
                Err(env.fail(SqlError::new(SqlState::DEADLOCK_DETECTED, "deadlock detected").detail(detail)))
            }
        }
    }

    /// Locks those rows among the found ones that it means. Returns whether all count.
    ///
    /// # Errors
    /// As [`Locking::lock_key`].
    pub(crate) fn lock_found(&self, env: Env<'_>, from: &From, rows: &[RowKey]) -> Result<bool, Abort> {
        env.run.is_locked_late.set(true);
        for (source, key) in rows.iter().filter(|(source, _)| self.source.is_none_or(|wanted| wanted == *source)) {
            let Origin::Table(table) = &from.sources.0[*source].origin else { continue };
            if !self.lock_key(env, table, key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// As [`Locking::lock_found`], of joined rows.
    ///
    /// # Errors
    /// As [`Locking::lock_key`].
    pub(crate) fn lock_joined(&self, env: Env<'_>, from: &From, joined: Joined<'_, '_>) -> Result<bool, Abort> {
        // Rows may be many, and their keys are worth something only if there are locks.
        match *env.run.minds_locks.get_or_init(|| env.run.tx.minds_locks()) {
            true => self.lock_found(env, from, &keys(from, joined)),
            false => Ok(true),
        }
    }
}

/// The rows of tables among joined ones.
pub(crate) fn keys(from: &From, joined: Joined<'_, '_>) -> Vec<RowKey> {
    let key = |(at, row): (usize, &SourceRow<'_>)| {
        let source = from.source_at(at);
        match (row, &from.sources.0[source].origin) {
            (SourceRow::Stored(row), Origin::Table(table)) => {
                Some((source, key_of(table.definition(), &|column| row.value(column))))
            }
            _ => None,
        }
    };
    joined.rows.iter().enumerate().filter_map(key).collect()
}
