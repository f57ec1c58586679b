//! `cargo xtask nightly`: every test in every setting, and the checks that take too long for each change, with a dated
//! report in `docs/nightly.md`.
//!
//! Steps run one after another. A step that passed is noted below `target/nightly` with the revision, so that an
//! interrupted run continues with the next step. A step that fails is reported and fails the whole, after all steps
//! have had their turn. `--only` runs the steps that it names, and prints its report. `--part` runs one short part of
//! it, which the revision's hash chooses: `.ci/run` does so with each change.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use seriatim_base::clock;
use seriatim_base::rng;

use crate::ci::cargo;
use crate::contributing::target;
use crate::files::Tree;
use crate::git::{git, revision};
use crate::runs::{Done, date, machine};
use crate::tiers;

/// All steps together take no longer: a night that does fails, whatever its steps say.
const MINUTES: u64 = 90;

/// The environment variable that has random tests run in all settings and as often as a night allows.
const TIER: (&str, &str) = ("SERIATIM_TIER", "nightly");

/// Where the report goes.
const REPORT: &str = "docs/nightly.md";

const USAGE: &str = "usage: cargo xtask nightly [--seed N] [--only STEP]... [--fresh] | --part | --age | --list";

/// A command, and what it checks.
struct Step {
    name: &'static str,
    what: &'static str,
    arguments: Vec<String>,
    /// Whether it has to run a test to pass.
    is_test: bool,
}

/// Parts of the night that take less than a minute after the tests were built: programs of the suite, in all settings.
const PARTS: &[&str] =
    &["isolation", "histories", "procedures", "clients", "traps", "balances", "stale", "workloads", "churn"];

fn steps(tree: &Tree) -> Vec<Step> {
    let step = |name, what, line: &str, more: &[String]| Step {
        name,
        what,
        arguments: line.split(' ').map(str::to_owned).chain(more.iter().cloned()).collect(),
        is_test: line.starts_with("test "),
    };
    let ci = |name, what| step(name, what, &format!("xtask ci {name}"), &[]);
    let each = |option: &str, names: Vec<String>| -> Vec<String> {
        names.into_iter().flat_map(|name| [option.to_owned(), name]).collect()
    };
    let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
    let programs = each("--test", tiers::programs_left_out(tree));
    let packages = each("-p", tiers::libraries_left_out(tree));
    let ignored = [programs.clone(), words("--no-fail-fast -- --ignored"), tiers::ignored_by_day(tree)].concat();
    let mut steps = vec![
        step("settings", "every test of the fast tier, in all settings", "test --workspace --no-fail-fast", &[]),
        step("ignored", "tests that the fast tier ignores", "test --workspace --tests", &ignored),
        // With `--doc` cargo runs even the examples that `doctest = false` leaves out.
        step("doctests", "examples in the documentation", "test --workspace --exclude seriatim-*-unit --doc", &[]),
        ci("docs", "the documentation builds without warnings"),
        ci("examples", "the examples of CONTRIBUTING.md compile"),
        step("contributing", "the examples of CONTRIBUTING.md run", "xtask contributing", &[]),
        ci("loom", "models of what threads share"),
        ci("mutants", "tests notice missing mechanisms: those that take a moment"),
        ci("simulate", "the command line on simulated cores"),
        ci("figures", "every figure is drawn, at its small size"),
        step("drivers", "drivers and programs of PostgreSQL, each by its script", "xtask drivers", &[]),
        ci("fuzz", "the fuzz targets and the comparison compile"),
        step("soak", "power cuts and kills in optimized code", "xtask soak --cuts 20000 --kills 60 --minutes 12", &[]),
    ];
    if !programs.is_empty() {
        let line = "test --workspace --no-fail-fast";
        steps.insert(2, step("programs", "test programs that the fast tier leaves out", line, &programs));
    }
    if !packages.is_empty() {
        let what = "tests of libraries that the fast tier leaves out";
        let all = [packages, words("-- --include-ignored"), each("--skip", tiers::by_hand(tree))].concat();
        steps.insert(2, step("libraries", what, "test --no-fail-fast --lib", &all));
    }
    steps
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    seed: Option<u64>,
    only: Vec<String>,
    fresh: bool,
}

fn parse(arguments: &[String], names: &[&str]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--fresh" => options.fresh = true,
            "--seed" => {
                let seed = rest.next().and_then(|text| text.parse().ok());
                options.seed = Some(seed.ok_or("--seed wants a number")?);
            }
            "--only" => {
                let name = rest.next().filter(|name| names.contains(&name.as_str()));
                options.only.push(name.ok_or(format!("--only wants one of: {}", names.join(", ")))?.clone());
            }
            other => return Err(format!("`{other}` is no option\n{USAGE}")),
        }
    }
    Ok(options)
}

/// Runs what the arguments ask for.
///
/// # Errors
/// When an argument is none, or a step failed; then the report says which.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let steps = steps(&tree);
    let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
    match arguments {
        [only] if only == "--age" => {
            println!("{}", age(root, tree.text(REPORT)));
            return Ok(());
        }
        [only] if only == "--part" => return part(root),
        [only] if only == "--list" => {
            steps.iter().for_each(|step| println!("{:<14} {}", step.name, step.what));
            return Ok(());
        }
        _ => {}
    }
    let options = parse(arguments, &names)?;
    let mut packages = Command::new("bash");
    packages.current_dir(root).arg(".ci/packages");
    crate::ci::finish(packages)?;
    let notes = Notes::open(root, &target(root), options.fresh)?;
    let seed = notes.seed(options.seed)?;
    eprintln!("nightly of {}, SERIATIM_SEED={seed}; steps: {}", notes.revision, names.join(", "));
    let is_whole = options.only.is_empty();
    let mut results = Vec::new();
    for step in steps {
        let done = match notes.passed(step.name) {
            Some(seconds) => Some(Done { failure: None, seconds, output: String::new() }),
            None if !is_whole && !options.only.iter().any(|name| name == step.name) => None,
            None => {
                eprintln!("== {}: cargo {}", step.name, step.arguments.join(" "));
                let done = execute(root, &step, seed);
                eprintln!("   {} in {:.0} s", done.failure.as_deref().unwrap_or("passed"), done.seconds);
                match done.failure {
                    None => notes.note(step.name, done.seconds)?,
                    Some(_) => eprintln!("{}", done.end()),
                }
                Some(done)
            }
        };
        results.push((step, done));
    }
    let text = report(seed, &machine(root, REPORT), clock::unix_microseconds(), &results);
    if is_whole {
        std::fs::write(root.join(REPORT), text).map_err(|error| format!("{REPORT}: {error}"))?;
        println!("{REPORT}");
    } else {
        println!("{text}");
    }
    verdict(&results)
}

/// # Errors
/// Names the steps that failed, and the night if it took too long. A step that was not run is none of them.
fn verdict(results: &[Outcome]) -> Result<(), String> {
    let steps = failed(results).map(|(step, _)| step.name.to_owned());
    let failed: Vec<String> = steps.chain(late(results)).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed, as the report says: {}", failed.join(", "))) }
}

/// A step and its outcome; none if other steps were asked for.
type Outcome = (Step, Option<Done>);

/// The seconds of all steps, also of those that an earlier run noted.
fn seconds(results: &[Outcome]) -> f64 {
    results.iter().flat_map(|(_, done)| done).map(|done| done.seconds).sum()
}

/// Tells of a whole night that took too long.
fn late(results: &[Outcome]) -> Option<String> {
    let is_late = results.iter().all(|(_, done)| done.is_some()) && seconds(results) > 60.0 * MINUTES as f64;
    is_late.then(|| format!("the steps took {:.1} minutes, more than {MINUTES}", seconds(results) / 60.0))
}

fn failed(results: &[Outcome]) -> impl Iterator<Item = (&Step, &Done)> {
    let run = results.iter().filter_map(|(step, done)| Some((step, done.as_ref()?)));
    run.filter(|(_, done)| done.failure.is_some())
}

fn execute(root: &Path, step: &Step, seed: u64) -> Done {
    let mut command = cargo(root);
    if step.is_test {
        // As `cargo xtask ci` builds them, so that nothing is compiled once more.
        crate::ci::with_lints(&mut command);
    }
    command.args(&step.arguments).env(TIER.0, TIER.1).env("SERIATIM_SEED", seed.to_string());
    command.env("CARGO_TERM_COLOR", "never");
    Done::of(command, step.is_test, false, Duration::from_secs(60 * MINUTES))
}

/// The steps that passed at this revision, in a folder of files: a step's name, and in it the seconds that it took.
struct Notes {
    folder: PathBuf,
    revision: String,
}

impl Notes {
    fn open(root: &Path, target: &Path, fresh: bool) -> Result<Notes, String> {
        let revision = revision(root, REPORT);
        let folder = target.join("nightly").join(&revision);
        // Changes since the revision may change again, so nothing is kept.
        if fresh || revision == "unknown" || revision.ends_with("-dirty") {
            let _ = std::fs::remove_dir_all(&folder);
        }
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Notes { folder, revision })
    }

    fn passed(&self, step: &str) -> Option<f64> {
        std::fs::read_to_string(self.folder.join(step)).ok()?.trim().parse().ok()
    }

    fn note(&self, name: &str, value: impl ToString) -> Result<(), String> {
        let path = self.folder.join(name);
        std::fs::write(&path, value.to_string()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The seed of all steps of this revision: the one given, else the one of the run that is continued, else a new
    /// one.
    fn seed(&self, given: Option<u64>) -> Result<u64, String> {
        let kept = || std::fs::read_to_string(self.folder.join("seed")).ok()?.trim().parse().ok();
        let seed = given.or_else(kept).unwrap_or_else(rng::entropy);
        self.note("seed", seed)?;
        Ok(seed)
    }
}

/// How many commits old the report is.
fn age(root: &Path, report: Option<&str>) -> String {
    let named = report.and_then(|text| text.lines().find_map(|line| line.strip_prefix("revision: ")));
    let Some(named) = named else { return format!("no nightly run has been reported in {REPORT}") };
    match git(root, &["rev-list", "--count", &format!("{}..HEAD", named.trim_end_matches("-dirty"))]) {
        Some(commits) => format!("the newest nightly report is of {named}, {commits} commits ago"),
        None => format!("the newest nightly report is of {named}, which this repository does not have"),
    }
}

/// One of the parts, by the hash of the revision.
///
/// # Errors
/// When a test fails.
pub(crate) fn part(root: &Path) -> Result<(), String> {
    let hash = git(root, &["rev-parse", "HEAD"]).unwrap_or_default();
    let chosen = choice(&hash);
    let mut command = crate::ci::tests(root, &["--test", chosen, "--no-fail-fast"]);
    command.env(TIER.0, TIER.1);
    eprintln!("part of the night, chosen by {hash}: {command:?}");
    crate::ci::finish(command)
}

fn choice(hash: &str) -> &'static str {
    let number = hash.get(..8).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    PARTS[(number % PARTS.len() as u64) as usize]
}

/// The report, in Markdown.
fn report(seed: u64, machine: &str, unix_microseconds: i64, results: &[Outcome]) -> String {
    let verdict = match (failed(results).count(), results.iter().filter(|(_, done)| done.is_none()).count()) {
        (0, 0) => "every step passed".to_owned(),
        (0, left_out) => format!("every step that was run passed, {left_out} were not run"),
        (failed, _) => format!("**{failed} steps FAILED**"),
    };
    let mut text = format!("# The nightly run of {}\n\n", date(unix_microseconds));
    let _ = writeln!(
        text,
        "Written by `cargo xtask nightly`: {verdict}, in {:.0} of {MINUTES} minutes.\n\n\
         ```text\n{machine}\nseed: {seed}\n```\n",
        seconds(results) / 60.0
    );
    if let Some(says) = late(results) {
        let _ = writeln!(text, "**FAILED**: {says}.\n");
    }
    let _ = writeln!(text, "| step | what it checks | verdict | seconds |\n| --- | --- | --- | --- |");
    for (step, done) in results {
        let (verdict, seconds) =
            done.as_ref().map_or(("not run".to_owned(), 0.0), |done| (done.verdict(), done.seconds));
        let _ = writeln!(text, "| {} | {} | {verdict} | {seconds:.0} |", step.name, step.what);
    }
    for (step, done) in failed(results).filter(|(_, done)| !done.output.is_empty()) {
        let _ = writeln!(text, "\n## Failed: {}\n\nThe end of its output:\n\n{}", step.name, done.end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::tests::Repository;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    fn results(failure: Option<&str>) -> Vec<Outcome> {
        let tree = Tree::of(&[("crates/a/Cargo.toml", "[[test]]\nname = \"long\"\ntest = false\n")]);
        let done = |at: usize| Done {
            failure: failure.filter(|_| at == 2).map(str::to_owned),
            seconds: 60.0,
            output: "said\n".to_owned(),
        };
        steps(&tree).into_iter().enumerate().map(|(at, step)| (step, Some(done(at)))).collect()
    }

    #[test]
    fn whatever_the_fast_tier_leaves_out_runs_at_night() {
        let manifest = "name = \"of-a\"\n[lib]\ntest = false\n\n[[test]]\nname = \"long\"\ntest = false\n";
        let test = |reason: &str, name: &str| format!("#[test]\n#[ignore = \"{reason}\"]\nfn {name}() {{}}\n");
        let library = test("nightly: an hour", "within") + &test("a measurement", "by_hand");
        let program = test("nightly: an hour", "long_one");
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/src/lib.rs", &library),
            ("crates/a/tests/long.rs", &program),
        ]);
        let line = |name: &str| {
            let step = steps(&tree).into_iter().find(|step| step.name == name);
            step.map(|step| step.arguments.join(" ")).unwrap_or_default()
        };
        assert_eq!(line("libraries"), "test --no-fail-fast --lib -p of-a -- --include-ignored --skip by_hand");
        assert_eq!(line("programs"), "test --workspace --no-fail-fast --test long");
        assert_eq!(line("figures"), "xtask ci figures");
        let ignored = "test --workspace --tests --test long --no-fail-fast -- --ignored long_one within";
        assert_eq!(line("ignored"), ignored);
    }

    #[test]
    fn arguments_are_checked() {
        let names = ["soak", "loom"];
        let parsed = parse(&words("--seed 7 --only loom --fresh"), &names);
        assert_eq!(parsed, Ok(Options { seed: Some(7), only: vec!["loom".to_owned()], fresh: true }));
        assert!(parse(&words("--only lom"), &names).is_err_and(|message| message.contains("soak, loom")));
        for wrong in ["--seed x", "--seed", "--soon"] {
            assert!(parse(&words(wrong), &names).is_err(), "{wrong}");
        }
    }

    #[test]
    fn programs_that_the_fast_tier_leaves_out_are_a_step() {
        let all = results(None);
        let programs = all.iter().find(|(step, _)| step.name == "programs").expect("a step");
        assert!(programs.0.arguments.join(" ").ends_with("--test long"), "{:?}", programs.0.arguments);
        assert!(steps(&Tree::default()).iter().all(|step| step.name != "programs"));
    }

    #[test]
    fn the_report_has_revision_seed_steps_and_verdicts() {
        let text = report(7, "revision: abc", 1_795_305_600_000_000, &results(None));
        for wanted in ["2026-11-22", "\nrevision: abc\n", "seed: 7", "| soak |", "every step passed"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains("FAILED"));
    }

    #[test]
    fn canary_a_failed_step_is_reported_with_the_end_of_its_output() {
        let text = report(7, "", 0, &results(Some("ended with 1")));
        assert!(text.contains("1 steps FAILED") && text.contains("**FAILED**: ended with 1"), "{text}");
        assert!(text.contains("## Failed: programs") && text.contains("\nsaid\n"), "{text}");
    }

    #[test]
    fn a_step_that_is_not_run_is_no_failure() {
        let mut results = results(Some("ended with 1"));
        assert_eq!(verdict(&results), Err("failed, as the report says: programs".to_owned()));
        results[2].1 = None;
        assert_eq!(verdict(&results), Ok(()));
        let text = report(7, "", 0, &results);
        assert!(text.contains("every step that was run passed, 1 were not run"), "{text}");
        assert!(text.contains("| not run | 0 |") && !text.contains("FAILED"), "{text}");
    }

    #[test]
    fn canary_a_night_that_takes_too_long_fails_by_itself() {
        let mut results = results(None);
        let whole = 60.0 * MINUTES as f64 / results.len() as f64;
        results.iter_mut().flat_map(|(_, done)| done).for_each(|done| done.seconds = whole);
        assert_eq!(verdict(&results), Ok(()));
        results[0].1.as_mut().expect("it ran").seconds += 66.0;
        assert_eq!(
            verdict(&results),
            Err("failed, as the report says: the steps took 91.1 minutes, more than 90".into())
        );
        let text = report(7, "", 0, &results);
        assert!(text.contains("every step passed, in 91 of 90") && text.contains("\n**FAILED**: the steps"), "{text}");
        results[1].1 = None;
        results[0].1.as_mut().expect("it ran").seconds += 6000.0;
        assert_eq!(verdict(&results), Ok(()), "some steps may take any time");
    }

    #[test]
    fn the_hash_chooses_each_part() {
        let chosen: std::collections::BTreeSet<&str> = (0..100).map(|n| choice(&format!("{n:08x}abcd"))).collect();
        assert_eq!(chosen.len(), PARTS.len());
        assert_eq!(choice(""), PARTS[0]);
    }

    #[test]
    fn passed_steps_are_kept_for_their_revision() {
        let folder = std::env::temp_dir().join(format!("seriatim-nightly-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let notes = Notes { folder: folder.clone(), revision: "abc".to_owned() };
        assert_eq!(notes.passed("loom"), None);
        notes.note("loom", 12.5).expect("a disk");
        assert_eq!(notes.passed("loom"), Some(12.5));
        let first = notes.seed(None).expect("a disk");
        assert_eq!((notes.seed(None), notes.seed(Some(7)), notes.seed(None)), (Ok(first), Ok(7), Ok(7)));
        std::fs::remove_dir_all(folder).expect("a folder");
    }

    #[test]
    fn a_report_that_is_tracked_does_not_have_steps_repeated() {
        let Some(repository) = Repository::new() else { return };
        repository.write(REPORT, "every step passed\n");
        repository.write(".gitignore", "target\n");
        repository.commit();
        let passed = || Notes::open(&repository.0, &repository.0.join("target"), false).expect("a disk").passed("loom");
        let notes = Notes::open(&repository.0, &repository.0.join("target"), false).expect("a disk");
        notes.note("loom", 12.5).expect("a disk");
        repository.write(REPORT, "1 steps FAILED\n");
        assert_eq!(passed(), Some(12.5));
        repository.write("a.rs", "");
        assert_eq!(passed(), None);
    }

    #[test]
    fn a_report_without_a_revision_has_no_age() {
        let root = crate::files::root();
        assert!(age(&root, None).starts_with("no nightly run"));
        assert!(age(&root, Some("a\nrevision: none-such\n")).contains("does not have"));
    }
}
