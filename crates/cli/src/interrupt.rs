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

/// What a server says at the first signal.
pub(crate) const DRAINS: &str = "shutting down after the clients' transactions; a second signal ends at once";

/// For servers, inside a runtime: the first result completes at the first SIGINT or SIGTERM, after `told` was called,
/// and the second at the second.
pub(crate) fn twice(
    told: impl FnOnce() + Send + 'static,
) -> Result<(impl Future<Output = ()>, impl Future<Output = ()>), Failure> {
    let mut terminated = signal(SignalKind::terminate()).map_err(Failure::run)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::run)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (abandon, abandoned) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
        };
        next().await;
        told();
        let _ = stop.send(());
        next().await;
        let _ = abandon.send(());
    });
    Ok((async { _ = stopped.await }, async { _ = abandoned.await }))
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
