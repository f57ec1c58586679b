//! Transactions and migrations of the tables that refer to each other, and what the oracle says of them.

use seriatim::{Abort, Rng, SchemaError, Session, TransactError, Tx};

use super::crash_run::{CrashRun, Depends, Outstanding, Work};
use super::verify::Migration;
use crate::linked::{self, AMOUNT_END, CASCADED, CHILDREN, CHOSEN, CLEARED, DEFERRED, Given, RESTRICTED, Rows, Tables};

/// An operation.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Inserts an owner, by this identity or the next.
    Own(Option<i64>, i64),
    /// Inserts a row of an owner, or deletes the row if it is there.
    Refer(usize, u64, i64),
    /// Deletes an owner, if it is there.
    Release(i64),
    /// Changes the amount of an owner, if it is there.
    Change(i64, i64),
    /// Takes a number.
    Number,
}

/// How a transaction ends that runs by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    ForeignKey,
    Check,
}

/// Keys of rows that refer to others.
const KEYS: u64 = 8;

fn draw(rng: &mut Rng, rows: &Rows) -> Vec<Op> {
    let owner = |rng: &mut Rng| match rows.owners.len() as u64 {
        count if count > 0 && !rng.percent(15) => *rows.owners.keys().nth(rng.below(count) as usize).expect("there"),
        _ => CHOSEN + rng.below(4) as i64,
    };
    let op = |rng: &mut Rng| match rng.below(20) {
        0..4 => Op::Own(None, rng.below(AMOUNT_END as u64 + 10) as i64),
        4..12 => Op::Refer(rng.below(CHILDREN.len() as u64) as usize, rng.below(KEYS), owner(rng)),
        12..16 => Op::Release(owner(rng)),
        16..18 => Op::Change(owner(rng), rng.below(AMOUNT_END as u64 + 10) as i64),
        _ => Op::Number,
    };
    if rng.percent(20) {
        // The row comes before its owner.
        let id = CHOSEN + rng.below(4) as i64;
        if !rows.owners.contains_key(&id) {
            return vec![Op::Refer(DEFERRED, rng.below(KEYS), id), Op::Own(Some(id), 1)];
        }
    }
    (0..rng.range(1, 3)).map(|_| op(rng)).collect()
}

/// Runs it in the database. Of each attempt it notes the numbers that it was given.
fn run(tx: &Tx, tables: &Tables, program: &[Op], given: &mut Vec<Given>) -> Result<(), Abort> {
    for &op in program {
        match op {
            Op::Own(id, amount) => {
                let id = tables.own(tx, id, 0, amount)?;
                if id < CHOSEN {
                    given.push(Given::Identity(id));
                }
            }
            Op::Refer(child, key, owner) => match tx.exists_dyn(&tables.children[child], &[key.into()])? {
                true => tables.remove(tx, child, key)?,
                false => tables.refer(tx, child, key, owner)?,
            },
            Op::Release(owner) => tables.release(tx, owner)?,
            Op::Change(owner, amount) => {
                let _ = tx.update_if_dyn(&tables.owners, &[owner.into()], &[("amount", amount.into())])?;
            }
            Op::Number => given.push(Given::Number(tx.next(&tables.numbers)?)),
        }
    }
    Ok(())
}

/// Runs it on the oracle's rows, with these identities for new owners.
fn apply(rows: &mut Rows, program: &[Op], mut ids: impl Iterator<Item = i64>) -> Result<(), Refusal> {
    let check = |amount: i64| if amount < AMOUNT_END { Ok(()) } else { Err(Refusal::Check) };
    for &op in program {
        match op {
            Op::Own(id, amount) => {
                check(amount)?;
                rows.owners.extend(id.or_else(|| ids.next()).map(|id| (id, (0, amount))));
            }
            Op::Refer(child, key, owner) => {
                if rows.children[child].remove(&key).is_none() {
                    if child != DEFERRED && rows.has_reference(child) && !rows.owners.contains_key(&owner) {
                        return Err(Refusal::ForeignKey);
                    }
                    rows.children[child].insert(key, Some(owner));
                }
            }
            Op::Release(owner) => {
                if rows.owners.remove(&owner).is_some() {
                    let is_of = |of: &Option<i64>| *of == Some(owner);
                    if rows.children[RESTRICTED].values().any(is_of) {
                        return Err(Refusal::ForeignKey);
                    }
                    if rows.is_linked {
                        rows.children[CASCADED].retain(|_, of| !is_of(of));
                    }
                    rows.children[CLEARED].values_mut().filter(|of| is_of(of)).for_each(|of| *of = None);
                }
            }
            Op::Change(owner, amount) => {
                if let Some(row) = rows.owners.get_mut(&owner) {
                    check(amount)?;
                    row.1 = amount;
                }
            }
            Op::Number => {}
        }
    }
    // What is deferred is checked now.
    if rows.orphan(DEFERRED).is_some() { Err(Refusal::ForeignKey) } else { Ok(()) }
}

impl CrashRun<'_> {
    /// A transaction, or a migration, of these tables.
    pub(super) fn link(&mut self, work: &mut Work<'_>, session: &mut Session, lane: usize) -> Result<(), String> {
        if work.in_doubt {
            return Ok(());
        }
        match &work.linked {
            Some(_) if !self.rng.percent(8) => self.change_linked(work, session, lane),
            _ if work.parked.is_empty() => self.migrate_linked(work),
            _ => Ok(()),
        }
    }

    fn change_linked(&mut self, work: &mut Work<'_>, session: &mut Session, lane: usize) -> Result<(), String> {
        let (Some(tables), Some(before)) = (&work.linked, self.model.linked().cloned()) else {
            return Err("tables are there that nobody created".to_owned());
        };
        if let Some(planted) = self.planted.filter(|_| self.rng.percent(20)) {
            // The disk may refuse it.
            let _ = planted.plant(&self.db);
        }
        let program = draw(&mut self.rng, &before);
        let (mut given, mut attempt) = (Vec::new(), 0);
        let pending = session.submit(|tx| {
            attempt = given.len();
            run(tx, tables, &program, &mut given)
        });
        self.tally.numbers += given.len() as u64;
        given.iter().try_for_each(|&given| self.known.judge.give(given))?;
        self.note_published()?;
        let ids = given[attempt..].iter().filter_map(|given| match given {
            Given::Identity(id) => Some(*id),
            Given::Number(_) => None,
        });
        let mut after = before.clone();
        let wanted = apply(&mut after, &program, ids);
        // A reservation of numbers ends epochs.
        let mut epoch = 0;
        let refusal = match pending.decided() {
            Some(Ok(committed)) => {
                epoch = committed.receipt.epoch().0;
                None
            }
            Some(Err(TransactError::ForeignKey { .. })) => Some(Refusal::ForeignKey),
            Some(Err(TransactError::Check { .. })) => Some(Refusal::Check),
            Some(Err(TransactError::Conflict { .. })) if !work.parked.is_empty() => return Ok(()),
            Some(Err(_)) if work.faulted || !self.process.is_alive() => {
                self.count_fault();
                return Ok(());
            }
            other => return Err(format!("{program:?} came to {other:?}")),
        };
        if refusal != wanted.err() {
            return Err(format!("{program:?} came to {refusal:?}, alone it comes to {wanted:?}: {before:?}"));
        }
        self.tally.refused += u64::from(refusal.is_some());
        let after = if refusal.is_some() { before } else { after };
        let number = self.model.commit_linked(Some(after), epoch);
        self.tally.commits += u64::from(number.is_some());
        let (saw, own) = (number.unwrap_or(0), number.map(|_| epoch));
        work.outstanding.push(Outstanding { pending, depends: Depends { saw, own } });
        work.shown[lane] = work.shown[lane].map(|shown| shown.max(saw));
        Ok(())
    }

    fn migrate_linked(&mut self, work: &mut Work<'_>) -> Result<(), String> {
        let before = self.model.linked().cloned();
        let epoch = self.db.epoch_now();
        let (migrated, after, is_refused) = match &before {
            None => (linked::create(&self.db), Some(Rows { is_linked: true, ..Rows::default() }), false),
            Some(_) if self.rng.percent(40) => {
                work.linked = None;
                (linked::drop_all(&self.db), None, false)
            }
            Some(rows) => {
                let after = Rows { is_linked: !rows.is_linked, ..rows.clone() };
                let is_refused = after.is_linked && after.orphan(CASCADED).is_some();
                (linked::link(&self.db, after.is_linked), Some(after), is_refused)
            }
        };
        self.note_published()?;
        let durable = match migrated {
            Ok(()) if is_refused => return Err("a row that refers to nothing got a foreign key".to_owned()),
            Ok(()) => self.db.durable_epoch().map(|epoch| epoch.0),
            Err(SchemaError::Refused { reason, .. })
                if is_refused && matches!(*reason, seriatim::Refusal::ForeignKey { .. }) =>
            {
                return Ok(());
            }
            Err(_) if work.faulted || !self.process.is_alive() => {
                self.count_fault();
                work.in_doubt = true;
                None
            }
            Err(error) => return Err(format!("{before:?} does not become {after:?}: {error}")),
        };
        self.known.migrations.push(Migration { before, after: after.clone(), durable });
        if durable.is_some() {
            self.tally.migrations += 1;
            if after.is_none() {
                self.known.judge = Default::default();
            }
            self.model.commit_linked(after, epoch);
            self.all_durable();
            work.linked = Tables::open(&self.db)?;
        }
        Ok(())
    }
}
