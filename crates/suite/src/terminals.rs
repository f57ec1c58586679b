//! A workload, small: loaded, run by terminals side by side, and checked.

use seriatim::{Builder, Database, Timestamp, thread};
use seriatim_workload::{Ending, Loading, Workload};

/// A database loaded by two threads, whose rows are made at the same time as those of any other.
///
/// # Errors
/// A description of the failure.
pub fn load(builder: Builder, workload: &dyn Workload) -> Result<Database, String> {
    let db = builder.open().map_err(|error| error.to_string())?;
    let loading = Loading { threads: 2, now: Timestamp::from_microseconds(1), ..Loading::default() };
    workload.load(&db, &loading).map_err(|error| error.to_string())?;
    Ok(db)
}

/// Runs terminals concurrently, none of whose transactions may fail, and checks the data.
///
/// # Errors
/// A description of the failure or the violated property.
///
/// # Panics
/// If a terminal does.
pub fn run(db: &Database, workload: &dyn Workload, terminals: u16, transactions: u32, seed: u64) -> Result<(), String> {
    let work = |index| -> Result<(), String> {
        let mut terminal = workload.terminal(db, index, seed).map_err(|error| error.to_string())?;
        let mut session = db.session();
        for at in 0..transactions {
            let outcome = terminal.run_one(&mut session);
            if let Ending::Failed(error) = outcome.ending {
                return Err(format!("{}, transaction {at}: {error}", workload.kinds()[outcome.kind]));
            }
        }
        Ok(())
    };
    let ended: Result<(), String> = thread::scope(|scope| {
        let running: Vec<_> = (0..terminals).map(|index| scope.spawn(move || work(index))).collect();
        running.into_iter().try_for_each(|terminal| terminal.join().expect("no terminal panics"))
    });
    ended?;
    let report = workload.consistency(db).map_err(|error| error.to_string())?;
    if report.passed() { Ok(()) } else { Err(report.to_string()) }
}
