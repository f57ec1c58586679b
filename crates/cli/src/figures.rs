//! `seriatim figures`: draws the papers' figures. Each point is a command of this program, run in a process of its own.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use seriatim::clock::Instant;
use seriatim_base::{say, talk, thread};
use seriatim_figures::{Answer, Cores, Event, Figure, Job, Origin, Setting, Size, Summary, draw_again, draw_all, find};

use crate::Failure;
use crate::machine::{self, Machine};

/// The longest time of a point, with loading and checking many warehouses on a slow machine.
const PATIENCE: Duration = Duration::from_secs(1800);

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let only: Vec<String> = matches.get_many("only").into_iter().flatten().cloned().collect();
    let name = matches.get_one::<String>("paper").map_or("all", String::as_str);
    let paper = (name != "all").then_some(name);
    let figures = find(paper, &only).map_err(Failure::Usage)?;
    let Some(directory) = matches.get_one::<PathBuf>("out") else { unreachable!("clap requires it") };
    let summary = match matches.get_flag("redraw") {
        true => draw_again(&figures, directory),
        false => measure(matches, &figures, directory)?,
    };
    let summary = summary.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::Usage(error.to_string()),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists | ErrorKind::PermissionDenied => {
            Failure::Usage(format!("{error}: name a directory that can be written"))
        }
        _ => Failure::run(error),
    })?;
    let figures_drawn = figures.len();
    let report = json!({
        "figures": figures_drawn, "directory": directory, "measured": summary.measured, "reused": summary.reused,
        "left_out": summary.left_out, "failed": summary.failed, "hold": summary.hold, "differ": summary.differ,
        "cannot_tell": summary.cannot_tell,
    });
    match crate::args::is_json(matches) {
        true => say!("{report}\n")?,
        false => say!(
            "{figures_drawn} figures in {}: {} points measured, of these {} before, {} not here, {} failed; \
             {} relations hold, {} differ, {} cannot be told\n",
            directory.display(),
            summary.measured,
            summary.reused,
            summary.left_out,
            summary.failed,
            summary.hold,
            summary.differ,
            summary.cannot_tell
        )?,
    }
    match summary.failed {
        0 => Ok(()),
        failed => Err(Failure::Run(format!("{failed} points failed: the figures are drawn without them"))),
    }
}

/// Measures the figures' points and draws them.
fn measure(
    matches: &ArgMatches,
    figures: &[&'static Figure],
    directory: &Path,
) -> Result<std::io::Result<Summary>, Failure> {
    let setting = Setting {
        size: if matches.get_flag("small") { Size::Small } else { Size::Large },
        processors: thread::processors(),
        has_regions: seriatim::htm::detect().probe_commits,
        seconds: matches.get_one::<f64>("seconds").copied(),
        rounds: matches.get_one::<u32>("rounds").copied(),
        seed: matches.get_one::<u64>("seed").copied().unwrap_or(1),
    };
    let program = std::env::current_exe().map_err(|error| Failure::Run(format!("this program's file: {error}")))?;
    let origin = origin(&program)?;
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} {msg}");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut notify = |event: Event<'_>| match event {
        Event::PassedOver(line) => bar.suspend(|| talk!("{line}")),
        Event::Failed { command, why } => bar.suspend(|| talk!("failed: {command}: {why}")),
        Event::Next { done, of, figure, .. } => {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
            bar.set_message(figure.to_owned());
        }
    };
    let named = matches.get_one::<String>("cores");
    let cores = named.map(|name| if name == "real" { Cores::Real } else { Cores::Simulated });
    let jobs = matches.get_one::<u64>("jobs").map_or(1, |&jobs| jobs as usize);
    let mut ask = |cores, commands: &[&[String]], hear: &mut dyn FnMut(usize, Answer)| {
        let jobs = if cores == Cores::Simulated { jobs.min(commands.len()) } else { 1 };
        points(&program, commands, jobs, hear);
    };
    let job = Job { figures, setting: &setting, cores, origin: &origin, directory };
    let summary = draw_all(&job, &mut ask, &mut notify);
    bar.finish_and_clear();
    Ok(summary)
}

/// This program, by a checksum, since the sources may have changed after the revision.
fn origin(program: &Path) -> Result<Origin, Failure> {
    let bytes = std::fs::read(program).map_err(|error| Failure::Run(format!("{}: {error}", program.display())))?;
    let program = format!("crc32 {:08x}", crc32fast::hash(&bytes));
    Ok(Origin { revision: machine::revision().to_owned(), program, machine: json!(Machine::here()) })
}

/// Runs commands of this program in their order, `jobs` at a time.
fn points(program: &Path, commands: &[&[String]], jobs: usize, hear: &mut dyn FnMut(usize, Answer)) {
    let (next, (sender, answers)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| {
        for _ in 0..jobs {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(arguments) = commands.get(at) else { return };
                    // The receiver lives until all threads have ended.
                    let _ = sender.send((at, point(program, arguments)));
                }
            });
        }
        drop(sender);
        answers.into_iter().for_each(|(at, answer)| hear(at, answer));
    });
}

/// Runs a command of this program.
fn point(program: &Path, arguments: &[String]) -> Answer {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => answer(child, PATIENCE),
        Err(error) => Answer::Failed(format!("it did not start: {error}")),
    }
}

/// The outcome of a process, which is killed after `patience`.
fn answer(mut child: Child, patience: Duration) -> Answer {
    let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        unreachable!("both are pipes")
    };
    thread::scope(|scope| {
        let output = scope.spawn(move || text(&mut stdout));
        let talk = scope.spawn(move || text(&mut stderr));
        let ended = wait(&mut child, patience);
        let (output, talk) = (output.join().unwrap_or_default(), talk.join().unwrap_or_default());
        let last = talk.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        let last = last.strip_prefix("seriatim: ").unwrap_or(last).to_owned();
        match ended {
            Ok(Some(status)) => match (status.code(), serde_json::from_str(&output)) {
                (Some(0), Ok(report)) => Answer::Report(report),
                (Some(0), Err(error)) => Answer::Failed(format!("its output is no object of JSON: {error}")),
                // Wrong arguments: this program or machine has no such protocol, option or back end.
                (Some(2), _) => Answer::NotHere(last),
                (Some(_), _) => Answer::Failed(last),
                (None, _) => Answer::Failed(format!("{status}: {last}")),
            },
            Ok(None) => Answer::Failed(format!("it was ended after {} s: {last}", patience.as_secs())),
            Err(error) => Answer::Failed(format!("it cannot be waited for: {error}")),
        }
    })
}

fn text(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    // After an error, the text is what was read before.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the end; `None` if the process had to be killed.
fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begin.elapsed() >= patience {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim_figures::FIGURES;

    /// A mistake in a figure's command would look like a program that cannot run it.
    #[test]
    fn commands_of_figures_are_valid() {
        let (mut command, mut seen) = (crate::args::command(), std::collections::HashSet::new());
        for size in [Size::Small, Size::Large] {
            let setting = Setting { size, processors: 2, has_regions: true, seconds: None, rounds: None, seed: 1 };
            let points = FIGURES.iter().flat_map(|figure| figure.points(&setting));
            for arguments in points.map(|point| point.arguments).filter(|arguments| seen.insert(arguments.clone())) {
                let all = std::iter::once("seriatim").chain(arguments.iter().map(String::as_str));
                if let Err(error) = command.try_get_matches_from_mut(all) {
                    panic!("{arguments:?}: {error}");
                }
                check_options(&arguments);
            }
        }
    }

    /// The protocol and its options, which are only known when the database opens.
    fn check_options(arguments: &[String]) {
        let after = |name: &str| {
            let pairs = arguments.windows(2).filter(move |pair| pair[0] == name).map(|pair| pair[1].as_str());
            pairs.map(str::to_owned).collect::<Vec<_>>()
        };
        let (named, options) = (after("--protocol"), after("--option"));
        let Some(named) = named.first() else { return assert!(options.is_empty(), "{arguments:?}") };
        let protocol = seriatim::protocols().iter().find(|protocol| protocol.name == *named);
        let protocol = protocol.unwrap_or_else(|| panic!("there is no protocol {named}: {arguments:?}"));
        for option in options {
            let (name, value) = option.split_once('=').expect("NAME=VALUE");
            let knob = protocol.options.iter().find(|knob| knob.name == name);
            let knob = knob.unwrap_or_else(|| panic!("{named} has no option {name}"));
            assert!(value.parse().is_ok_and(|value: u64| (knob.min..=knob.max).contains(&value)), "{option}");
        }
    }

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("there is a shell")
    }

    #[test]
    fn results_of_processes_are_distinguished() {
        let patience = Duration::from_secs(60);
        assert_eq!(answer(shell("echo talk >&2; echo '{\"a\": 1}'"), patience), Answer::Report(json!({ "a": 1 })));
        let unknown = answer(shell("echo seed 1 >&2; echo seriatim: no such protocol >&2; exit 2"), patience);
        assert_eq!(unknown, Answer::NotHere("no such protocol".to_owned()));
        let failed = answer(shell("echo '{}'; echo 'seriatim: the check failed' >&2; exit 1"), patience);
        assert_eq!(failed, Answer::Failed("the check failed".to_owned()));
        for (script, word) in [("kill -9 $$", "signal"), ("echo {", "JSON"), ("exit 1", "it said nothing")] {
            assert!(matches!(answer(shell(script), patience), Answer::Failed(why) if why.contains(word)), "{script}");
        }
        // More than a pipe holds.
        let long = answer(shell("head -c 300000 /dev/zero | tr '\\0' x >&2; echo '[]'"), patience);
        assert_eq!(long, Answer::Report(json!([])));
    }

    #[test]
    fn each_command_runs_once_and_few_run_at_a_time() {
        let commands: Vec<Vec<String>> = (0..7).map(|at| vec!["-c".to_owned(), format!("echo {at}")]).collect();
        let commands: Vec<&[String]> = commands.iter().map(|arguments| &arguments[..]).collect();
        for jobs in [1, 3] {
            let mut heard = Vec::new();
            points(Path::new("sh"), &commands, jobs, &mut |at, answer| heard.push((at, answer)));
            heard.sort_by_key(|(at, _)| *at);
            assert_eq!(heard, (0..7).map(|at| (at, Answer::Report(json!(at)))).collect::<Vec<_>>());
        }
    }

    #[test]
    fn canary_a_process_that_hangs_is_killed() {
        let hung = answer(shell("exec sleep 600"), Duration::from_millis(50));
        assert!(matches!(&hung, Answer::Failed(why) if why.contains("ended after")), "{hung:?}");
    }
}
