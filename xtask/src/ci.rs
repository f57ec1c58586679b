//! Every check, in the order in which failures are cheapest to find; the first failure ends the run.

use std::path::Path;
use std::process::Command;

use seriatim_base::clock::Instant;
use seriatim_base::thread;

use crate::{contributing, fuzz, nightly, tidy, timings};

/// Crates with loom models: tests of the library whose path contains `loom`.
const MODELLED: &[&str] =
    &["seriatim-base", "seriatim-memory", "seriatim-store", "seriatim-txn", "seriatim-redo", "seriatim-baselines"];

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Path) -> Result<(), String>,
    /// Whether it runs if no steps are named. The others are parts of `cargo xtask nightly`.
    always: bool,
}

impl Step {
    const fn always(name: &'static str, what: &'static str, run: fn(&Path) -> Result<(), String>) -> Step {
        Step { name, what, run, always: true }
    }

    const fn nightly(name: &'static str, what: &'static str, run: fn(&Path) -> Result<(), String>) -> Step {
        Step { name, what, run, always: false }
    }
}

const STEPS: &[Step] = &[
    Step::always("format", "cargo fmt --all --check", format),
    Step::always("tidy", "the repository's own rules", tidy::run),
    Step::always("build", "cargo test --no-run, and what clippy finds, warnings denied", build),
    Step::always("part", "one part of the nightly run, by the hash of the revision", nightly::part),
    Step::always("test", "cargo test --workspace --no-fail-fast", test),
    Step::nightly("clippy", "cargo clippy, every target, warnings denied", clippy),
    Step::nightly("docs", "cargo doc, warnings denied", docs),
    Step::nightly("examples", "the examples of CONTRIBUTING.md compile", contributing::compile),
    Step::nightly("loom", "model-checked state words", loom),
    Step::nightly("mutants", "tests notice missing mechanisms: those that take a moment", mutants),
    Step::nightly("fuzz", "the fuzz targets and the comparison with other databases compile", fuzz::check),
    Step::nightly("simulate", "the command line on simulated cores, which is another build", simulate),
    Step::nightly("figures", "every figure at its small size, by the program of `simulate`", figures),
];

/// The steps' names, in order.
pub(crate) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// Runs the named steps, or those that each change needs. With `--timings` they run twice, and what they cost is
/// printed ([`timings`]).
///
/// # Errors
/// When a name is unknown, or at the first step that fails.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    if let Some((_, steps)) = arguments.split_first().filter(|(first, _)| *first == "--timings") {
        return timings::run(root, steps);
    }
    let chosen = choose(arguments)?;
    let mut summary = Vec::new();
    let began = Instant::now();
    for step in &chosen {
        eprintln!("== {}: {}", step.name, step.what);
        let step_began = Instant::now();
        let done = (step.run)(root);
        let seconds = step_began.elapsed().as_secs_f64();
        timings::note_step(step.name, seconds);
        let verdict = if done.is_ok() { "passed" } else { "FAILED" };
        summary.push(format!("   {:<8} {verdict} {seconds:>7.1} s", step.name));
        if let Err(message) = done {
            report(&summary, began);
            return Err(format!("step `{}`: {message}", step.name));
        }
    }
    report(&summary, began);
    Ok(())
}

fn choose(wanted: &[String]) -> Result<Vec<&'static Step>, String> {
    if let Some(unknown) = wanted.iter().find(|name| !names().contains(&name.as_str())) {
        return Err(format!("no step `{unknown}`; steps are {}", names().join(", ")));
    }
    let is_chosen = |step: &&Step| match wanted {
        [] => step.always,
        _ => wanted.iter().any(|name| name == step.name),
    };
    Ok(STEPS.iter().filter(is_chosen).collect())
}

fn report(summary: &[String], began: Instant) {
    eprintln!("== summary\n{}\n   total           {:>7.1} s", summary.join("\n"), began.elapsed().as_secs_f64());
}

pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

pub(crate) fn finish(mut command: Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}

fn format(root: &Path) -> Result<(), String> {
    let mut command = cargo(root);
    command.args(["fmt", "--all", "--check"]);
    finish(command)
}

fn clippy(root: &Path) -> Result<(), String> {
    let mut command = cargo(root);
    command.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    finish(command)
}

fn docs(root: &Path) -> Result<(), String> {
    let mut command = cargo(root);
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    // The step `clippy` has checked the crates that documentation needs, if its driver and features are the same. Else
    // it is checked again.
    command.args(["--features", "seriatim/simulate,seriatim-transport/canary"]);
    with_lints(&mut command);
    finish(command)
}

/// Has cargo compile the workspace with clippy's driver, whose findings are errors: what is compiled for tests need
/// not be checked once more. Without clippy nothing is linted.
pub(crate) fn with_lints(command: &mut Command) {
    match Path::new(command.get_program()).with_file_name("clippy-driver").canonicalize() {
        Ok(driver) => {
            command.env("RUSTC_WORKSPACE_WRAPPER", driver);
            command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
        }
        Err(_) => eprintln!("no clippy beside cargo: nothing is linted"),
    }
}

/// The tests as the README has them, compiled with lints.
pub(crate) fn tests(root: &Path, more: &[&str]) -> Command {
    let mut command = cargo(root);
    command.args(["test", "--workspace"]).args(more);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        // Some tests wait: for a disk, another process, a lock. Others run meanwhile.
        command.env("RUST_TEST_THREADS", (2 * thread::processors()).to_string());
    }
    with_lints(&mut command);
    command
}

fn build(root: &Path) -> Result<(), String> {
    finish(tests(root, &["--no-run"]))
}

fn test(root: &Path) -> Result<(), String> {
    finish(tests(root, &["--no-fail-fast"]))
}

fn simulate(root: &Path) -> Result<(), String> {
    let mut command = cargo(root);
    command.args(["test", "-p", "seriatim-cli", "--features", "simulate", "--test", "simulate"]);
    finish(command)
}

/// Measures and draws every figure; fails if a point does. The step `simulate` compiles the same program.
fn figures(root: &Path) -> Result<(), String> {
    let folder = contributing::target(root).join("figures");
    // A point that is there would not be measured again.
    let _ = std::fs::remove_dir_all(&folder);
    let mut command = cargo(root);
    command.args(["run", "--profile", "test", "-p", "seriatim-cli", "--features", "simulate", "--"]);
    command.args(["figures", "all", "--small", "--out"]).arg(folder);
    finish(command)
}

fn mutants(root: &Path) -> Result<(), String> {
    crate::mutants::run(root, &["--quick".to_owned()])
}

/// Has cargo build for loom, in a folder of its own, or the flag would rebuild everything each time.
pub(crate) fn build_for_loom(command: &mut Command, root: &Path) {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into).join("loom");
    command.arg("--release").env("CARGO_TARGET_DIR", folder).env("RUSTFLAGS", "--cfg loom");
    // Loom needs optimized code, and the models a little; not the other dependencies, nor the release
    // profile's slow link.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "0").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    for (package, level) in [("\"*\"", 0), ("loom", 3), ("generator", 3)] {
        command.arg("--config").arg(format!("profile.release.package.{package}.opt-level={level}"));
    }
}

/// Runs the models of each crate, and makes sure that there are some: a filter that matches nothing also passes.
fn loom(root: &Path) -> Result<(), String> {
    let models = || {
        // All at once: what they depend on is built once.
        let mut command = cargo(root);
        command.args(["test", "--lib"]).args(MODELLED.iter().flat_map(|package| ["-p", package]));
        build_for_loom(&mut command, root);
        command.arg("loom");
        command
    };
    let mut list = models();
    let output = list.args(["--", "--list"]).output().map_err(|error| format!("cannot run {list:?}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let listed = tests_listed(&String::from_utf8_lossy(&output.stdout));
    if listed.len() != MODELLED.len() || listed.contains(&0) {
        return Err(format!("one of {MODELLED:?} has no loom models: name its test module `loom`; models: {listed:?}"));
    }
    finish(models())
}

/// How many tests each program lists.
fn tests_listed(list: &str) -> Vec<usize> {
    let summaries = list.lines().filter(|line| line.ends_with(" benchmarks"));
    summaries.filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_run_in_their_own_order_whatever_order_they_are_named_in() {
        let chosen = choose(&["docs".to_owned(), "format".to_owned()]).map_err(|error| panic!("{error}"));
        let names: Vec<_> = chosen.into_iter().flatten().map(|step| step.name).collect();
        assert_eq!(names, ["format", "docs"]);
        let always = choose(&[]).map_err(|error| panic!("{error}"));
        let names: Vec<_> = always.into_iter().flatten().map(|step| step.name).collect();
        assert_eq!(names, ["format", "tidy", "build", "part", "test"]);
    }

    #[test]
    fn canary_an_unknown_step_is_refused() {
        assert!(
            choose(&["formt".to_owned()]).is_err_and(|message| message.contains("formt") && message.contains("format"))
        );
    }

    #[test]
    fn canary_an_empty_list_of_models_is_seen() {
        let list = "loom::a: test\nloom::b: test\n\n2 tests, 0 benchmarks\n\n0 tests, 0 benchmarks\n";
        assert_eq!(tests_listed(list), [2, 0]);
        assert_eq!(tests_listed("loom::a: test\n\n1 test, 0 benchmarks\n"), [1]);
    }
}
