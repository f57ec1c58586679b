//! `cargo xtask mutants`: whether the tests notice when a mechanism of safety is missing.
//!
//! A mutant is a rewrite of one place in the sources ([`list`]). All of them are applied at once to a copy of the
//! repository below `target/mutants`. Each is behind a switch that the environment turns on, so that one build serves
//! all and the sources stay clean. For each mutant its tests run in their order until one fails. A test that takes far
//! longer than it does without the mutant has caught it too. Verdicts are kept by the mutant's text and the revision of
//! the sources, so a run continues where another stopped. A mutant that no test catches fails the run, unless the list
//! says why nothing can.

pub(crate) mod list;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread;

use crate::ci::cargo;
use crate::files::{Tree, crate_of};
use list::{Mutant, Test};

/// The environment variable with the number of the mutant that is on.
const VARIABLE: &str = "SERIATIM_MUTANT";
/// Seed of randomized tests: what is caught once is caught again.
const SEED: &str = "1";
/// KiB of address space of a test: a mutant may well ask for all there is.
const SPACE_KIB: &str = "16000000";
/// A test hangs after this many times what it takes without a mutant, and [`GRACE`].
const PATIENCE: u32 = 10;
const GRACE: Duration = Duration::from_secs(20);
/// Crates whose every line cargo-mutants may change: pure functions with tests of their own.
const SAMPLE: &[&str] = &["seriatim-history", "seriatim-catalog", "seriatim-procedure"];

const USAGE: &str = "usage: cargo xtask mutants [--quick] [--only TEXT]... [--without CRATE]... [--list] [--fresh]
       cargo xtask mutants --sample [cargo-mutants options]";

/// The text that is appended to the root of each crate that has mutants. An own module in each, so that no crate needs
/// a new dependency.
fn switch_module() -> String {
    format!(
        "\n#[allow(missing_docs, dead_code, unreachable_pub)]\nmod mutant_switch {{\n    use \
         std::sync::atomic::{{AtomicUsize, Ordering}};\n\
         \x20   static ON: AtomicUsize = AtomicUsize::new(usize::MAX);\n    #[cold]\n    fn read() -> usize \
         {{\n        \
         let on = std::env::var(\"{VARIABLE}\").ok().and_then(|on| on.parse().ok()).unwrap_or(0);\n        \
         ON.store(on, Ordering::Relaxed);\n        on\n    }}\n    #[inline]\n    pub(crate) fn on(mutant: usize) -> \
         bool {{\n        \
         let on = match ON.load(Ordering::Relaxed) {{ usize::MAX => read(), on => on }};\n        on == mutant\n    \
         }}\n}}\n"
    )
}

#[derive(Debug, Default)]
struct Options {
    quick: bool,
    only: Vec<String>,
    /// Crates whose tests are left out: for a first look without the slow ones.
    without: Vec<String>,
    list: bool,
    fresh: bool,
}

/// Runs what the arguments ask for.
///
/// # Errors
/// When a mutant survives, or the lists or the sources do not allow a run.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    if let Some((first, rest)) = arguments.split_first()
        && first == "--sample"
    {
        return sample(root, rest);
    }
    let options = parse(arguments)?;
    let tree = Tree::read(root)?;
    let mut mutants = list::read(&tree).map_err(|findings| {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    for mutant in &mut mutants {
        mutant.tests.retain(|test| !options.without.contains(&test.krate));
    }
    let chosen: Vec<usize> = (0..mutants.len()).filter(|&i| options.choose(&mutants[i])).collect();
    if chosen.is_empty() {
        return Err("no mutant is chosen; `--list` shows them".into());
    }
    if options.list {
        for &i in &chosen {
            let Mutant { name, class, breaks, .. } = &mutants[i];
            println!("{class:<14} {name:<36} {breaks}");
        }
        return Ok(());
    }
    let scratch = Scratch::new(root, &tree, &mutants);
    let mut found = VerdictFile::open(&scratch.home.join("results"), options.fresh)?;
    let hunted = hunt(&scratch, &chosen, &mut found);
    let summary = summarize(&mutants, &chosen, &found, &scratch);
    hunted.and(summary)
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--list" => options.list = true,
            "--fresh" => options.fresh = true,
            "--without" => options.without.push(rest.next().ok_or("--without wants a crate's folder")?.clone()),
            "--only" => options.only.push(rest.next().ok_or("--only wants a part of a name, class or file")?.clone()),
            other => return Err(format!("`{other}` is no option\n{USAGE}")),
        }
    }
    Ok(options)
}

impl Options {
    fn choose(&self, mutant: &Mutant) -> bool {
        let has = |text: &String| [&mutant.name, &mutant.class, &mutant.file].iter().any(|field| field.contains(text));
        (!self.quick || mutant.quick) && (self.only.is_empty() || self.only.iter().any(has))
    }
}

/// The copy of the repository that has the rewrites.
struct Scratch<'a> {
    home: PathBuf,
    root: &'a Path,
    tree: &'a Tree,
    mutants: &'a [Mutant],
    revision: u64,
}

impl<'a> Scratch<'a> {
    fn new(root: &'a Path, tree: &'a Tree, mutants: &'a [Mutant]) -> Scratch<'a> {
        let home = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into).join("mutants");
        let mut hasher = DefaultHasher::new();
        for (path, text) in tree.texts() {
            if path.starts_with("crates/") || path.starts_with("Cargo") || path == "rust-toolchain.toml" {
                (path, text).hash(&mut hasher);
            }
        }
        Scratch { home, root, tree, mutants, revision: hasher.finish() }
    }

    fn folder(&self) -> PathBuf {
        self.home.join("tree")
    }

    /// Brings the copy up to date, with the `build` of this name switched on. Files that do not change keep
    /// their time, so that cargo builds what it must.
    fn write(&self, built: Option<&str>) -> Result<(), String> {
        let mut roots: Vec<String> = self.mutants.iter().filter_map(|mutant| crate_root(&mutant.file)).collect();
        roots.sort();
        roots.dedup();
        let failed = |path: &Path, error: std::io::Error| format!("cannot write {}: {error}", path.display());
        for path in self.tree.paths() {
            let place = self.folder().join(path);
            let parent = place.parent().unwrap_or(&place);
            fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
            let Some(text) = self.tree.text(path) else {
                fs::copy(self.root.join(path), &place).map_err(|error| failed(&place, error))?;
                continue;
            };
            let switch = |number: usize| format!("crate::mutant_switch::on({number})");
            let mut text = list::rewrite(text, path, self.mutants, built, switch)
                .map_err(|findings| findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
            if roots.iter().any(|root| root == path) {
                text += &switch_module();
            }
            if fs::read(&place).ok().as_deref() != Some(text.as_bytes()) {
                fs::write(&place, text).map_err(|error| failed(&place, error))?;
            }
        }
        for stale in walked(&self.folder()).into_iter().filter(|path| !self.tree.has(path)) {
            let stale = self.folder().join(stale);
            let _ = fs::remove_file(&stale);
            // With the folders that are empty then: cargo would take one for a crate.
            stale.ancestors().skip(1).take_while(|folder| fs::remove_dir(folder).is_ok()).for_each(drop);
        }
        Ok(())
    }

    /// Builds the binaries of these tests.
    fn build(&self, tests: &[&Test]) -> Result<Binaries, String> {
        let mut binaries = Binaries::default();
        for loom in [false, true] {
            let tests: Vec<&Test> = tests.iter().copied().filter(|test| test.loom == loom).collect();
            if tests.is_empty() {
                continue;
            }
            let mut command = cargo(&self.folder());
            command.args(["test", "--no-run", "--message-format", "json-render-diagnostics"]).stdout(Stdio::piped());
            if loom {
                // The dependencies of the models are built already. A wrapper that does nothing sets the copy's crates
                // apart from the repository's.
                crate::ci::build_for_loom(&mut command, self.root);
                command.env("RUSTC_WORKSPACE_WRAPPER", "env");
            } else {
                command.env("CARGO_TARGET_DIR", self.home.join("target"));
            }
            let distinct = |mut words: Vec<String>| {
                words.sort();
                words.dedup();
                words
            };
            for package in distinct(tests.iter().map(|test| package(&test.krate)).collect()) {
                command.args(["-p", &package]);
            }
            for target in distinct(tests.iter().filter_map(|test| test.target.clone()).collect()) {
                command.args(["--test", &target]);
            }
            if tests.iter().any(|test| test.krate == "protocol") {
                // Elsewhere the suite asks for them.
                command.args(["--features", "seriatim-protocol/steps"]);
            }
            if tests.iter().any(|test| test.target.is_none()) {
                command.arg("--lib");
            }
            let output = command.output_with_errors_shown()?;
            binaries.take(&output, loom);
        }
        Ok(binaries)
    }
}

/// The root of the library that a source file belongs to.
fn crate_root(file: &str) -> Option<String> {
    Some(format!("crates/{}/src/lib.rs", crate_of(file)?))
}

fn package(krate: &str) -> String {
    if krate == "seriatim" { krate.to_owned() } else { format!("seriatim-{krate}") }
}

fn walked(folder: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inner)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if inner.is_empty() { name } else { format!("{inner}/{name}") };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

trait Shown {
    /// The standard output of a command that succeeds; its errors go where ours go.
    fn output_with_errors_shown(&mut self) -> Result<String, String>;
}

impl Shown for Command {
    fn output_with_errors_shown(&mut self) -> Result<String, String> {
        let output = self.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run {self:?}: {error}"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(format!("the copy with the rewrites does not build: {self:?} ended with {}", output.status))
        }
    }
}

/// Test binaries, by crate, integration test and whether it is for loom; with the folder they run in.
#[derive(Debug, Default)]
struct Binaries(BTreeMap<(String, Option<String>, bool), (PathBuf, PathBuf)>);

impl Binaries {
    /// Notes what cargo's messages say it built.
    fn take(&mut self, messages: &str, loom: bool) {
        for line in messages.lines().filter(|line| line.starts_with("{\"reason\":\"compiler-artifact\"")) {
            let (Some(manifest), Some(executable)) = (field(line, "manifest_path"), field(line, "executable")) else {
                continue;
            };
            let Some(target) = line.split_once("\"target\":").map(|(_, target)| target) else { continue };
            let folder = Path::new(manifest).parent().unwrap_or(Path::new(""));
            let Some(krate) = folder.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
            let target = match target.starts_with("{\"kind\":[\"test\"]") {
                true => field(target, "name").map(str::to_owned),
                false => None,
            };
            self.0.insert((krate, target, loom), (executable.into(), folder.into()));
        }
    }

    fn of(&self, test: &Test) -> Result<&(PathBuf, PathBuf), String> {
        let key = (test.krate.clone(), test.target.clone(), test.loom);
        self.0.get(&key).ok_or_else(|| format!("cargo built no binary for the test `{test}`"))
    }
}

/// The text of a field of an object of JSON, if it is a text. Paths and names have nothing to unescape.
fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    json.split_once(&format!("\"{name}\":\""))?.1.split('"').next()
}

/// How a run of one test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Passed(Duration),
    Failed,
    Hung,
}

/// Runs one test with a mutant on (0: none).
fn execute(
    scratch: &Scratch<'_>,
    binaries: &Binaries,
    test: &Test,
    mutant: usize,
    limit: Duration,
) -> Result<End, String> {
    let (binary, folder) = binaries.of(test)?;
    let log = scratch.home.join("log");
    let file = File::create(&log).map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let errors = file.try_clone().map_err(|error| error.to_string())?;
    // The shell's limit, then the test in its place.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {SPACE_KIB}; exec \"$0\" \"$@\"")]).arg(binary).current_dir(folder);
    match test.path.strip_suffix('*') {
        Some(beginning) => command.arg(beginning),
        // A test may be of the night.
        None => command.args(["--include-ignored", "--exact", &test.path]),
    };
    command.env(VARIABLE, mutant.to_string()).env("SERIATIM_SEED", SEED).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(file).stderr(errors).process_group(0);
    let began = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let mut pause = Duration::from_millis(1);
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if began.elapsed() > limit => {
                // The whole group: some tests start processes.
                let _ = Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).status();
                let _ = child.wait();
                return Ok(End::Hung);
            }
            None => {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        }
    };
    let took = began.elapsed();
    let said = fs::read_to_string(&log).unwrap_or_default();
    if mutant == 0 && (said.contains("running 0 tests") || !status.success()) {
        let why = if status.success() { "there is no such test" } else { "it fails without a mutant" };
        return Err(format!("`{test}`: {why}\n{said}"));
    }
    Ok(if status.success() { End::Passed(took) } else { End::Failed })
}

/// The verdicts about mutants: a file with a line for each, which is appended at once.
struct VerdictFile {
    path: PathBuf,
    known: BTreeMap<u64, Verdict>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    /// `caught`, `hung` or `survived`.
    kind: String,
    /// The test that caught it.
    by: String,
    seconds: String,
}

impl VerdictFile {
    fn open(path: &Path, fresh: bool) -> Result<VerdictFile, String> {
        if fresh {
            let _ = fs::remove_file(path);
        }
        let mut known = BTreeMap::new();
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            if let [key, _, kind, by, seconds] = line.split('\t').collect::<Vec<_>>()[..]
                && let Ok(key) = u64::from_str_radix(key, 16)
            {
                known.insert(key, Verdict { kind: kind.into(), by: by.into(), seconds: seconds.into() });
            }
        }
        Ok(VerdictFile { path: path.into(), known })
    }

    fn note(&mut self, key: u64, name: &str, verdict: Verdict) -> Result<(), String> {
        let Verdict { kind, by, seconds } = &verdict;
        let line = format!("{key:016x}\t{name}\t{kind}\t{by}\t{seconds}\n");
        let file = fs::OpenOptions::new().create(true).append(true).open(&self.path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
        self.known.insert(key, verdict);
        Ok(())
    }
}

/// The identity of a result: the mutant and the sources.
fn key(mutant: &Mutant, revision: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (mutant.text(), revision).hash(&mut hasher);
    hasher.finish()
}

/// Runs the chosen mutants that are not known yet.
fn hunt(scratch: &Scratch<'_>, chosen: &[usize], found: &mut VerdictFile) -> Result<(), String> {
    let mutants = scratch.mutants;
    let unknown =
        |&i: &usize| mutants[i].equivalent.is_none() && !found.known.contains_key(&key(&mutants[i], scratch.revision));
    let todo: Vec<usize> = chosen.iter().copied().filter(unknown).collect();
    let (builds, switched): (Vec<usize>, Vec<usize>) = todo.iter().partition(|&&i| mutants[i].build);
    eprintln!("mutants: {} chosen, {} to run, {} with a build of their own", chosen.len(), todo.len(), builds.len());
    if todo.is_empty() {
        return Ok(());
    }
    scratch.write(None)?;
    let mut limits = BTreeMap::new();
    // Those that want a model last: loom's builds take as long as all the others, and are made when no other
    // test has caught one.
    let (modelled, plain): (Vec<usize>, Vec<usize>) =
        switched.iter().partition(|&&i| mutants[i].tests.iter().any(|test| test.loom));
    // A test that cannot be judged by does not keep the others from being run.
    let mut failures = Vec::new();
    let tests = |loom| -> Vec<&Test> {
        switched.iter().flat_map(|&i| &mutants[i].tests).filter(|test| test.loom == loom).collect()
    };
    let (mut binaries, mut models) = (scratch.build(&tests(false))?, Some(tests(true)));
    for &i in plain.iter().chain(&modelled) {
        failures.extend(judge(scratch, (&mut binaries, &mut models), &mut limits, i, i + 1, found).err());
    }
    let unchanged: Vec<&Test> = builds.iter().flat_map(|&i| &mutants[i].tests).collect();
    let binaries = scratch.build(&unchanged)?;
    for &i in &builds {
        // The time of the tests without it is measured first.
        for test in &mutants[i].tests {
            limit(scratch, &binaries, &mut limits, test)?;
        }
        scratch.write(Some(&mutants[i].name))?;
        let mut binaries = scratch.build(&mutants[i].tests.iter().collect::<Vec<_>>())?;
        failures.extend(judge(scratch, (&mut binaries, &mut None), &mut limits, i, usize::MAX - 1, found).err());
    }
    failures.dedup();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// How long a test may take, from what it takes without a mutant.
fn limit<'a>(
    scratch: &Scratch<'a>,
    binaries: &Binaries,
    limits: &mut BTreeMap<&'a Test, Duration>,
    test: &'a Test,
) -> Result<Duration, String> {
    if let Some(&limit) = limits.get(test) {
        return Ok(limit);
    }
    match execute(scratch, binaries, test, 0, Duration::from_secs(900))? {
        End::Passed(took) => {
            let limit = took * PATIENCE + GRACE;
            limits.insert(test, limit);
            Ok(limit)
        }
        end => Err(format!("`{test}` does not pass without a mutant: {end:?}")),
    }
}

/// Runs a mutant's tests until one catches it. Models that are not built yet are built when the first is wanted.
fn judge<'a>(
    scratch: &Scratch<'a>,
    (binaries, models): (&mut Binaries, &mut Option<Vec<&'a Test>>),
    limits: &mut BTreeMap<&'a Test, Duration>,
    at: usize,
    number: usize,
    found: &mut VerdictFile,
) -> Result<(), String> {
    let mutant = &scratch.mutants[at];
    let mut verdict = ("survived", String::new());
    let began = Instant::now();
    for test in &mutant.tests {
        if let Some(models) = models.take_if(|_| test.loom) {
            binaries.0.extend(scratch.build(&models)?.0);
        }
        let limit = limit(scratch, binaries, limits, test)?;
        match execute(scratch, binaries, test, number, limit)? {
            End::Passed(_) => continue,
            End::Failed => verdict = ("caught", test.to_string()),
            End::Hung => verdict = ("hung", test.to_string()),
        }
        break;
    }
    let (kind, by) = verdict;
    let seconds = format!("{:.1}", began.elapsed().as_secs_f64());
    eprintln!("  {kind:<9} {:<40} {seconds:>6} s  {by}", mutant.name);
    found.note(key(mutant, scratch.revision), &mutant.name, Verdict { kind: kind.into(), by, seconds })
}

/// Tells what was found, by class.
fn summarize(mutants: &[Mutant], chosen: &[usize], found: &VerdictFile, scratch: &Scratch<'_>) -> Result<(), String> {
    let mut classes: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut survivors = Vec::new();
    for &i in chosen {
        let mutant = &mutants[i];
        let verdict = found.known.get(&key(mutant, scratch.revision));
        let column = match (verdict.map(|verdict| verdict.kind.as_str()), &mutant.equivalent) {
            (_, Some(_)) => 2,
            (Some("caught"), None) => 0,
            (Some("hung"), None) => 1,
            _ => {
                survivors.push(mutant);
                3
            }
        };
        classes.entry(&mutant.class).or_default()[column] += 1;
    }
    println!("{:<16} {:>6} {:>6} {:>10} {:>8}", "class", "caught", "hung", "equivalent", "survived");
    let mut all = [0; 4];
    for (class, counts) in &classes {
        println!("{class:<16} {:>6} {:>6} {:>10} {:>8}", counts[0], counts[1], counts[2], counts[3]);
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
    }
    println!("{:<16} {:>6} {:>6} {:>10} {:>8}", "all", all[0], all[1], all[2], all[3]);
    for mutant in &survivors {
        eprintln!("SURVIVED {} ({}): {}", mutant.name, mutant.file, mutant.breaks);
    }
    match survivors.len() {
        0 => Ok(()),
        n => Err(format!(
            "{n} of {} mutants survived: write the test that catches each, or say why none can",
            chosen.len()
        )),
    }
}

/// cargo-mutants on the crates that are pure, where it is installed.
fn sample(root: &Path, options: &[String]) -> Result<(), String> {
    let installed = cargo(root).args(["mutants", "--version"]).stderr(Stdio::null()).stdout(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        eprintln!("mutants: SKIPPED the sample: cargo-mutants is not installed (cargo install cargo-mutants --locked)");
        return Ok(());
    }
    let mut command = cargo(root);
    command.args(["mutants", "--no-shuffle", "--output"]);
    command.arg(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into).join("mutants"));
    if options.is_empty() {
        for package in SAMPLE {
            command.args(["-p", package]);
        }
        command.args(["--shard", "0/40"]);
    }
    crate::ci::finish({
        command.args(options);
        command
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_choose() {
        let mutant = Mutant { name: "a".into(), class: "fence".into(), quick: true, ..Mutant::default() };
        let with = |arguments: &[&str]| parse(&arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>());
        assert!(with(&[]).is_ok_and(|options| options.choose(&mutant)));
        assert!(with(&["--quick", "--only", "fen"]).is_ok_and(|options| options.choose(&mutant)));
        assert!(with(&["--only", "undo"]).is_ok_and(|options| !options.choose(&mutant)));
        assert!(with(&["--quick"]).is_ok_and(|options| !options.choose(&Mutant::default())));
        assert!(with(&["--onyl", "a"]).is_err_and(|message| message.contains("--onyl") && message.contains("usage")));
        assert!(with(&["--only"]).is_err());
    }

    #[test]
    fn binaries_are_found_by_cargos_messages() {
        let mut binaries = Binaries::default();
        let message = |kind: &str, name: &str, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"p\",\
                 \"manifest_path\":\"/r/crates/store/Cargo.toml\",\"target\":\
                 {{\"kind\":[\"{kind}\"],\"crate_types\":[\"bin\"],\"name\":\"{name}\",\
                 \"src_path\":\"/x\"}},\"executable\":{executable}}}\n"
            )
        };
        let messages = message("lib", "seriatim_store", "null")
            + &message("lib", "seriatim_store", "\"/t/lib\"")
            + &message("test", "hash", "\"/t/hash\"");
        binaries.take(&messages, false);
        let test = |target: Option<&str>, loom| Test {
            loom,
            krate: "store".into(),
            target: target.map(Into::into),
            path: "a".into(),
        };
        let folder = PathBuf::from("/r/crates/store");
        assert_eq!(binaries.of(&test(None, false)), Ok(&("/t/lib".into(), folder.clone())));
        assert_eq!(binaries.of(&test(Some("hash"), false)), Ok(&("/t/hash".into(), folder)));
        assert!(binaries.of(&test(None, true)).is_err_and(|message| message.contains("loom:store a")));
    }

    #[test]
    fn a_result_is_of_one_mutant_and_one_revision() {
        let mutant = Mutant { file: "a".into(), ..Mutant::default() };
        assert_eq!(key(&mutant, 1), key(&mutant, 1));
        assert_ne!(key(&mutant, 1), key(&mutant, 2));
        assert_ne!(key(&mutant, 1), key(&Mutant { file: "b".into(), ..Mutant::default() }, 1));
    }
}
