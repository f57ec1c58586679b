//! Ctrl-C during a measurement: the first SIGINT or SIGTERM ends the run early with a report of the results so
//! far. The second ends the process.

use seriatim_base::{interrupt, talk, thread};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;

/// The exit code after a signal: 128 plus the number of SIGINT, as in shells.
pub(crate) const EXIT_CODE: u8 = 130;

pub(crate) fn catch() -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_io().build().map_err(Failure::run)?;
    let (mut interrupted, mut terminated) = {
        let _entered = runtime.enter();
        let caught = |kind| signal(kind).map_err(Failure::run);
        (caught(SignalKind::interrupt())?, caught(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                }
                if !interrupt::request() {
                    std::process::exit(EXIT_CODE.into());
                }
                talk!("interrupted: the run ends and is reported; a second signal ends the program at once");
            }
        });
    };
    thread::spawn("signals", wait).map_err(Failure::run)?;
    talk!("Ctrl-C ends the run early and reports the results so far");
    Ok(())
}

/// Fails if a signal came before there was anything to report.
pub(crate) fn check(when: &str) -> Result<(), Failure> {
    match interrupt::is_requested() {
        true => Err(Failure::Interrupted(format!("interrupted {when}: nothing was measured"))),
        false => Ok(()),
    }
}

/// Fails if a signal ended a run early, after its report.
pub(crate) fn conclude(seconds: f64) -> Result<(), Failure> {
    match interrupt::is_requested() {
        true => Err(Failure::Interrupted(format!("interrupted: the figures are of the first {seconds:.1} s"))),
        false => Ok(()),
    }
}
