//! Ctrl-C during a measurement: the first SIGINT or SIGTERM ends the run early, and it reports what it has; the second
//! ends the process.

use seriatim_base::{interrupt, talk, thread};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;

/// Of what a signal ended: 128 and the number of SIGINT, as shells have it.
pub(crate) const EXIT_CODE: u8 = 130;

/// Catches signals from now on.
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
                talk!("interrupted: the run is ended and reported; a second signal ends it at once");
            }
        });
    };
    thread::spawn("signals", wait).map_err(Failure::run)?;
    talk!("Ctrl-C ends the run early and reports what it has");
    Ok(())
}

/// Fails where a signal came before there was anything to report.
pub(crate) fn check(when: &str) -> Result<(), Failure> {
    match interrupt::is_requested() {
        true => Err(Failure::Interrupted(format!("interrupted {when}: nothing was measured"))),
        false => Ok(()),
    }
}

/// Fails where a signal ended a run early that has been reported.
pub(crate) fn conclude(seconds: f64) -> Result<(), Failure> {
    match interrupt::is_requested() {
        true => Err(Failure::Interrupted(format!("interrupted: the figures are of the {seconds:.1} s until then"))),
        false => Ok(()),
    }
}
