//! Processes that are killed during procedures in pieces: deposits, one or several of whose sums are published after
//! the rest, and TPC-C.
//!
//! Each deposit leaves an entry, so what sums must be is known; of TPC-C its consistency conditions say as much.

use std::collections::BTreeMap;
use std::path::Path;

use seriatim::{Abort, Builder, Database, Durability, Handle, Rng, Session, Table, TransactError, Tx, protocols};
use seriatim::{Fault, procedure, procedures};
use seriatim_workload::tpcc::{self, Scale, Tpcc};
use seriatim_workload::{Ending, Workload};

use super::{Canary, Oracle, THREADS, said, snapshots};
use crate::{patience, terminals};

/// The deposited amounts.
#[derive(Table, Clone, Debug)]
#[table(name = "deposit", key(thread, number))]
struct Deposit {
    thread: u32,
    /// From 1, without a gap.
    number: u64,
    /// The first of the sums that it is added to.
    sum: u32,
    sums: u32,
    amount: i64,
}

/// One of a thread: what all its deposits are, and how many.
#[derive(Table, Clone, Debug)]
#[table(name = "payer", key(thread), hash)]
struct Payer {
    thread: u32,
    paid: i64,
    number: u64,
}

/// Is only added to.
#[derive(Table, Clone, Debug)]
#[table(name = "sum", key(id), hash)]
struct Sum {
    id: u32,
    total: i64,
    count: u64,
}

const SUMS: u32 = 6;
/// To how many of them a deposit is added at most.
const SUMS_MAX: u64 = 4;

/// Pays in, and adds that to these sums; what the thread has paid. The sums are published late.
#[procedure]
fn pay_in(tx: &Tx, thread: u32, number: u64, sums: &[u32], amount: i64) -> Result<i64, Abort> {
    let mut first = 0u32;
    let mut count = 0u32;
    for sum in sums {
        if count == 0 {
            first = *sum;
        }
        count += 1;
    }
    let paid = tx.update::<Payer>(thread, |payer| {
        payer.paid += amount;
        payer.number = number;
        payer.paid
    })?;
    tx.insert(Deposit { thread, number, sum: first, sums: count, amount })?;
    for sum in sums {
        tx.update::<Sum>(*sum, |sum| {
            sum.total += amount;
            sum.count += 1;
        })?;
    }
    Ok(paid)
}

/// A thread that pays in, and one that runs TPC-C's terminal; both tell what was acknowledged to them.
const TERMINAL: u32 = THREADS;

fn tpcc() -> Tpcc {
    Tpcc::new(tpcc::Options::new(Scale { items: 50, customers: 6, undelivered: 3, ..Scale::small(1) }, 7))
}

/// The acknowledged deposits, and the state at the last recovery.
#[derive(Debug, Default)]
pub(super) struct Calls {
    deposits: BTreeMap<u32, u64>,
    /// Orders that were there, and that were acknowledged since.
    orders: [u64; 2],
}

/// The protocol with what Delivery adds to customers deferred; in all modes but `Group` with durability by
/// snapshot, too.
pub(super) const DEFERRING: &str = "dbx-tc+defer";

pub(super) fn builder(protocol: &str, directory: &Path, mode: Durability) -> Builder {
    let (protocol, defers) = match protocol {
        DEFERRING => ("dbx-tc", true),
        protocol => (protocol, false),
    };
    let builder = Database::builder().protocol(protocol).workers(8).retry(patience()).path(directory).durability(mode);
    let is_it = |known: &&seriatim::ProtocolInfo| known.name == protocol;
    let publishes_late = |known: &seriatim::ProtocolInfo| known.options.iter().any(|knob| knob.name == "late_period");
    let builder = builder.segment_bytes(256 << 10).checkpoint_bytes(None);
    let builder = if defers { builder.protocol_option("defer", 1) } else { builder };
    let builder = if defers && mode != Durability::Group { snapshots::configure(builder) } else { builder };
    match protocols().iter().find(is_it).is_some_and(publishes_late) {
        true => builder.protocol_option("late_period", 0),
        false => builder,
    }
}

/// Makes a directory with all rows in it: a child that is killed while loading leaves half of them.
pub(super) fn prepare(directory: &Path, protocol: &str) -> Result<(), String> {
    let db = terminals::load(builder(protocol, directory, Durability::Async), &tpcc())?;
    let payers = db.create::<Payer>().map_err(said)?;
    let sums = db.create::<Sum>().map_err(said)?;
    db.create::<Deposit>().map_err(said)?;
    let fill = |tx: &Tx| {
        (0..THREADS).try_for_each(|thread| tx.insert(&payers, &Payer { thread, paid: 0, number: 0 }))?;
        (0..SUMS).try_for_each(|id| tx.insert(&sums, &Sum { id, total: 0, count: 0 }))
    };
    db.session().transact(fill).map_err(said)?;
    db.close().map_err(said)
}

/// How many orders there are.
fn orders(db: &Database, session: &mut Session) -> Result<u64, String> {
    let orders = db.open_dyn("orders").map_err(said)?;
    let counted = session.snapshot(|tx| tx.scan_dyn(&orders, &[])?.try_count());
    counted.map(|count| count.value as u64).map_err(said)
}

impl Oracle for Calls {
    fn told(&mut self, thread: u32, number: u64) {
        if thread == TERMINAL {
            self.orders[1] += 1;
            return;
        }
        let known = self.deposits.entry(thread).or_default();
        *known = number.max(*known);
    }

    fn verify(&mut self, directory: &Path, protocol: &str) -> Result<u64, String> {
        let db = builder(protocol, directory, Durability::Async).open().map_err(said)?;
        let tables: (Handle<Deposit>, Handle<Payer>, Handle<Sum>) =
            (db.table().map_err(said)?, db.table().map_err(said)?, db.table().map_err(said)?);
        let mut session = db.session();
        let read = session.snapshot(|tx| {
            let mut deposits = Vec::new();
            for deposit in tx.scan(&tables.0, ..) {
                deposits.push(deposit?.to_owned());
            }
            let payers = (0..THREADS).map(|thread| Ok(tx.require(&tables.1, &thread)?.to_owned()));
            let sums = (0..SUMS).map(|id| Ok(tx.require(&tables.2, &id)?.to_owned()));
            Ok((deposits, payers.collect::<Result<Vec<_>, Abort>>()?, sums.collect::<Result<Vec<_>, Abort>>()?))
        });
        let (deposits, payers, sums) = read.map_err(said)?.into_value();
        for Payer { thread, paid, number } in payers {
            let own: Vec<&Deposit> = deposits.iter().filter(|deposit| deposit.thread == thread).collect();
            if !own.iter().map(|deposit| deposit.number).eq(1..=number) {
                return Err(format!("thread {thread} has paid in {number} times, and there are {}", own.len()));
            }
            if paid != own.iter().map(|deposit| deposit.amount).sum::<i64>() {
                return Err(format!("half a call: thread {thread} has paid {paid}"));
            }
            let acknowledged = self.deposits.insert(thread, number).unwrap_or_default();
            if number < acknowledged {
                return Err(format!(
                    "{acknowledged} deposits of thread {thread} were acknowledged, {number} are there"
                ));
            }
        }
        for Sum { id, total, count } in sums {
            let is_in = |deposit: &&Deposit| (id + SUMS - deposit.sum) % SUMS < deposit.sums;
            let amounts = deposits.iter().filter(is_in).map(|deposit| deposit.amount);
            if (total, count) != (amounts.clone().sum(), amounts.clone().count() as u64) {
                let wanted = amounts.sum::<i64>();
                return Err(format!("half a call: sum {id} is {total}, of {count}, and {wanted} was paid in"));
            }
        }
        let orders = orders(&db, &mut session)?;
        let [before, acknowledged] = self.orders;
        if orders < before + acknowledged {
            return Err(format!("{before} orders, {acknowledged} more were acknowledged, {orders} are there"));
        }
        self.orders = [orders, 0];
        let report = tpcc().consistency(&db).map_err(said)?;
        if !report.passed() {
            return Err(format!("half a call: {report}"));
        }
        db.check_structure()?;
        Ok(deposits.len() as u64 + orders)
    }
}

/// The work of a child until it is killed. Of what is acknowledged before it is durable, it tells what has become
/// durable.
pub(super) fn child(
    (db, mode, canary): (&Database, Durability, Canary),
    seed: u64,
    thread: u32,
    tell: &dyn Fn(u32, u64),
    stops: &dyn Fn() -> bool,
) -> Result<(), String> {
    // Calls that are waited for together.
    let together = match canary {
        Canary::None if mode == Durability::Async => 20,
        Canary::Halves => 500,
        _ => 1,
    };
    let (mut session, mut rng) = (db.session(), Rng::from_seed(seed ^ u64::from(thread)));
    let mut unreported = Vec::new();
    let mut acknowledged = |number| -> Result<(), TransactError> {
        unreported.push(number);
        if unreported.len() < together {
            return Ok(());
        }
        if together > 1 {
            db.flush()?;
        }
        unreported.drain(..).for_each(|number| tell(thread, number));
        Ok(())
    };
    if thread == TERMINAL {
        let workload = tpcc();
        let mut terminal = workload.terminal(db, 0, seed).map_err(said)?;
        session.record_calls();
        while !stops() {
            if let Ending::Failed(error) = terminal.run_one(&mut session).ending {
                return Err(said(error));
            }
            let is_order = |call: &seriatim::test_support::Call| call.procedure == "new_order" && call.result.is_ok();
            for _ in session.take_calls().iter().filter(|call| is_order(call)) {
                acknowledged(0).map_err(said)?;
            }
        }
        return Ok(());
    }
    let payers = db.table::<Payer>().map_err(said)?;
    let last = session.snapshot(|tx| Ok(tx.require(&payers, &thread)?.number())).map_err(said)?.value;
    for number in last + 1.. {
        if stops() {
            break;
        }
        let (first, sums) = (rng.below(SUMS.into()) as u32, rng.range(1, SUMS_MAX) as u32);
        let sums: Vec<u32> = (0..sums).map(|at| (first + at) % SUMS).collect();
        session.call(pay_in, &(thread, number, sums, rng.range(1, 20) as i64)).map_err(said)?;
        acknowledged(number).map_err(said)?;
    }
    Ok(())
}

/// Opens the database of a child.
pub(super) fn open(directory: &Path, protocol: &str, mode: Durability, canary: Canary) -> Result<Database, String> {
    let mode = if canary == Canary::None { mode } else { Durability::Async };
    let fault = if canary == Canary::Halves { Fault::NoWindows } else { Fault::None };
    let db = builder(protocol, directory, mode).canary(fault).open().map_err(said)?;
    tpcc().declare(&db).map_err(said)?;
    db.register(procedures![pay_in]).map_err(said)?;
    Ok(db)
}
