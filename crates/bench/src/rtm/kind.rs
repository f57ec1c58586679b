//! Determines the kind of machine: the instructions of RTM fault, run and abort, or commit.
//!
//! A separate process of this program executes them, since they may fault unexpectedly. The processor's feature
//! flags are checked before, but hypervisors hide RTM and leave the instructions enabled.

use std::error::Error;
use std::fmt::Write;
use std::process::{Command, ExitStatus, Stdio};

use seriatim_htm::{Detection, RtmKind, detect};

/// The exit code of a probe whose regions all aborted. A panic or an unknown argument gives another one.
const ABORTED: i32 = 3;
/// The signal of an invalid opcode.
const SIGILL: i32 = 4;

/// Executes regions and ends this process: with 0 if one committed, with [`ABORTED`] if none did, or by SIGILL
/// if the instructions fault.
pub(super) fn probe() -> ! {
    // SAFETY: SIGILL may end this process, which has no other work.
    let commits = unsafe { seriatim_htm::probe() };
    std::process::exit(if commits { 0 } else { ABORTED })
}

/// The machine's flags and behaviour, as lines.
pub(super) fn report() -> Result<String, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "rtm", "--probe"]);
    Ok(text(&detect(), if cfg!(target_arch = "x86_64") { Some(ask(command)?) } else { None }))
}

fn text(detection: &Detection, kind: Option<RtmKind>) -> String {
    let mut text = format!("usable: {}\n", if detection.probe_commits { "yes" } else { "no" });
    let _ = writeln!(text, "detection: {}", detection.reason);
    if let Some(kind) = kind {
        let _ = writeln!(text, "executed in a process of its own: {kind}");
    }
    text
}

/// The meaning of a probe's exit status.
fn ask(mut probe: Command) -> Result<RtmKind, String> {
    let status = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.map_err(|error| format!("cannot run {probe:?}: {error}"))?;
    match (status.code(), signal(status)) {
        (Some(0), _) => Ok(RtmKind::Commits),
        (Some(ABORTED), _) => Ok(RtmKind::Aborts),
        (None, Some(SIGILL)) => Ok(RtmKind::Faults),
        _ => Err(format!("{probe:?} ended with {status}: neither a commit, nor an abort, nor a fault")),
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_status: ExitStatus) -> Option<i32> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn ends(script: &str) -> Result<RtmKind, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ask(command)
    }

    #[test]
    fn the_three_kinds_are_distinguished_and_nothing_else_is_taken_for_one() {
        assert_eq!(ends("exit 0"), Ok(RtmKind::Commits));
        assert_eq!(ends("exit 3"), Ok(RtmKind::Aborts));
        assert_eq!(ends("kill -ILL $$"), Ok(RtmKind::Faults));
        for other in ["exit 2", "exit 101", "kill -TERM $$"] {
            assert!(ends(other).is_err_and(|message| message.contains("neither")), "{other}");
        }
    }

    #[test]
    fn the_kind_is_reported_in_lines() {
        let hidden =
            Detection { cpuid_rtm: false, always_abort: false, probe_commits: false, reason: "hidden".to_owned() };
        let said = text(&hidden, Some(RtmKind::Aborts));
        assert!(said.starts_with("usable: no\ndetection: hidden\n") && said.contains("every region aborts"), "{said}");
        let works = Detection { cpuid_rtm: true, probe_commits: true, ..hidden };
        assert!(text(&works, Some(RtmKind::Commits)).starts_with("usable: yes\n"));
        assert_eq!(text(&works, None).lines().count(), 2);
    }
}
