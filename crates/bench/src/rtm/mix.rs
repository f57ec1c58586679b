//! TPC-C's full mix under `dbx` with and without regions, beside the roofline; the outcomes of the regions; and
//! consistency afterwards.
//!
//! The arms run in turn, with the same inputs in a round. A row with budgets of one abort forces fallbacks.

use std::error::Error;

use seriatim::{Database, Session, thread};
use seriatim_base::talk;
use seriatim_htm::{Budget, HtmMode};
use seriatim_workload::tpcc::{self, Scale, Tpcc};
use seriatim_workload::{Ending, Loading, Terminal, Workload, roofline};

use super::{FATES, Setting, fates, table};
use crate::measure::{Arm, Length, Quartiles, alternate, rate, until_signal};

/// A loaded database under `dbx`, with a thread for each terminal.
struct Loaded {
    db: Database,
    workload: Tpcc,
    threads: u16,
    warehouses: u16,
}

impl Loaded {
    fn new(setting: &Setting, htm: HtmMode, budget: Budget, size: (u16, u16)) -> Result<Loaded, Box<dyn Error>> {
        let (threads, warehouses) = size;
        let builder = Database::builder().protocol("dbx").htm(htm).region_budget(budget).seed(setting.seed);
        let db = builder.workers(usize::from(threads) + 1).open()?;
        let scale = if setting.is_small { Scale::small(warehouses) } else { Scale::spec(warehouses) };
        let workload = Tpcc::new(tpcc::Options::new(scale, setting.seed));
        workload.load(&db, &Loading::default())?;
        Ok(Loaded { db, workload, threads, warehouses })
    }

    /// Transactions per second of all threads.
    fn run(&self, length: Length, seed: u64) -> f64 {
        let one = |at: u16| {
            let mut terminal = self.workload.terminal(&self.db, at, seed).expect("the tables are there");
            let mut session = self.db.session();
            rate(length, || run_one(terminal.as_mut(), &mut session))
        };
        thread::scope(|scope| {
            let one = &one;
            let running: Vec<_> = (0..self.threads).map(|at| scope.spawn(move || one(at))).collect();
            running.into_iter().map(|thread| thread.join().expect("a terminal panicked")).sum()
        })
    }

    /// Fails if the data violate a condition.
    fn check(&self, what: &str) -> Result<(), Box<dyn Error>> {
        let report = self.workload.consistency(&self.db)?;
        match report.violations().first() {
            None => Ok(()),
            Some(violation) => Err(format!("TPC-C, {what}: {violation}").into()),
        }
    }

    fn name(&self) -> String {
        format!("threads: {}, warehouses: {}", self.threads, self.warehouses)
    }
}

fn run_one(terminal: &mut dyn Terminal, session: &mut Session) {
    if let Ending::Failed(error) = terminal.run_one(session).ending {
        panic!("a transaction failed: {error}");
    }
}

/// Rates beside the roofline, and the outcomes of regions.
pub(super) fn beside_the_roofline(setting: &Setting) -> Result<String, Box<dyn Error>> {
    let (mut rates, mut regions) = (Vec::new(), Vec::new());
    for size in until_signal([(1, 1), (2, 2), (2, 1)]) {
        let with = Loaded::new(setting, setting.htm, Budget::default(), size)?;
        let without = Loaded::new(setting, HtmMode::Absent, Budget::default(), size)?;
        talk!("TPC-C, {}", with.name());
        let begun = with.db.statistics().regions;
        let (length, seconds) = (Length::Seconds(setting.seconds), setting.seconds);
        let mut first = |length, seed| with.run(length, seed);
        let mut second = |length, seed| without.run(length, seed);
        let mut third = |_, seed| roofline::run(usize::from(size.0), seconds, seed, &|| false).per_second;
        let arms: &mut [Arm<'_>] = &mut [&mut first, &mut second, &mut third];
        let measured = alternate(arms, setting.rounds, length, setting.seed);
        with.check("with regions")?;
        without.check("without regions")?;
        let [on, off, light] = [&measured[0], &measured[1], &measured[2]];
        let thousands = |rates: &[f64]| format!("{:.1}", Quartiles::of(rates.iter().map(|rate| rate / 1e3)));
        let ratio = |above: &[f64], below: &[f64]| format!("{:.3}", Quartiles::of_ratios(above, below));
        rates.push(vec![
            with.name(),
            thousands(on),
            thousands(off),
            thousands(light),
            ratio(on, off),
            ratio(on, light),
            ratio(off, light),
        ]);
        let mut row = vec![with.name()];
        row.extend(fates(&with.db.statistics().regions.since(&begun)));
        regions.push(row);
        drop((with, without));
        let forced = Loaded::new(setting, setting.htm, Budget::ONE, size)?;
        let begun = forced.db.statistics().regions;
        forced.run(length, setting.seed);
        forced.check("falling back at the first abort")?;
        let mut row = vec![format!("{}, falling back at the first abort", forced.name())];
        row.extend(fates(&forced.db.statistics().regions.since(&begun)));
        regions.push(row);
    }
    let heads = [
        "TPC-C, dbx",
        "regions, k tx/s",
        "absent, k tx/s",
        "roofline, k tx/s",
        "regions/absent",
        "regions/roofline",
        "absent/roofline",
    ];
    let fates: Vec<&str> = ["TPC-C, dbx"].into_iter().chain(FATES).collect();
    Ok(table("TPC-C with regions and without, beside the roofline", &heads, &rates)
        + &table("What became of the regions of TPC-C", &fates, &regions))
}
