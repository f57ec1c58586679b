//! `cargo xtask sanitize`: the tests under tools of the nightly toolchain, each skipped with its reason where
//! it is not to be had.
//!
//! | tool | what it sees |
//! |---|---|
//! | `miri` | undefined behaviour of what a test runs: bounds, aliasing, uninitialized bytes, races, weak memory |
//! | `thread` | data races of real threads (ThreadSanitizer). It knows atomics and locks, but no fences |
//! | `address` | use after free, bounds, leaks of optimized code (AddressSanitizer) |
//!
//! ThreadSanitizer has to see the standard library's locks: where the toolchain has `rust-src` it is built
//! anew. Otherwise what waits in them looks like a race. Crates that share memory through locks are left out then,
//! visibly. Races of the standard library that the rest meets are listed in `xtask/tsan.supp`, each with its reason.

use std::path::Path;
use std::process::Command;

use crate::ci::finish;

struct Tool {
    name: &'static str,
    /// Why it cannot run here.
    missing: fn(&Nightly) -> Option<String>,
    run: fn(&Path, &Nightly) -> Result<(), String>,
}

const TOOLS: &[Tool] = &[
    Tool { name: "miri", missing: no_miri, run: miri },
    Tool { name: "thread", missing: |nightly| nightly.lacks("tsan"), run: thread },
    Tool { name: "address", missing: |nightly| nightly.lacks("asan"), run: address },
];

/// Arguments of `cargo test`, each a run: crates whose memory is shared or reached by address.
const SANITIZED: &[&[&str]] = &[
    &["-p", "seriatim-catalog", "--lib", "--test", "wire", "--test", "keys", "--test", "derive"],
    &["-p", "seriatim-store", "--lib", "--test", "hash"],
    &["-p", "seriatim-protocol", "-p", "seriatim-baselines", "--lib"],
    // A sample: every protocol on every back end, histories judged.
    &["-p", "seriatim-suite", "--test", "histories", "--test", "traps", "--test", "protocol"],
];

/// The same of crates whose threads hand memory to each other under locks of the standard library.
const LOCKED: &[&[&str]] = &[&["-p", "seriatim-memory", "--lib"], &["-p", "seriatim-redo", "--lib"]];

/// What Miri runs: it is some hundred times slower, and has no files and no threads of its own.
const INTERPRETED: &[&[&str]] =
    &[&["-p", "seriatim-memory", "--lib"], &["-p", "seriatim-store", "--lib"], &["-p", "seriatim-catalog", "--lib"]];

/// Runs the named tools, or all that are to be had.
///
/// # Errors
/// When a name is unknown, or at the first tool that finds something.
pub(crate) fn run(root: &Path, wanted: &[String]) -> Result<(), String> {
    let known: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no tool `{unknown}`; tools are {}", known.join(", ")));
    }
    let nightly = Nightly::find();
    for tool in TOOLS.iter().filter(|tool| wanted.is_empty() || wanted.iter().any(|name| name == tool.name)) {
        let name = tool.name;
        match nightly.as_ref().map_err(String::clone).and_then(|nightly| match (tool.missing)(nightly) {
            None => Ok(nightly),
            Some(reason) => Err(reason),
        }) {
            Ok(nightly) => {
                eprintln!("== {name}");
                (tool.run)(root, nightly).map_err(|message| format!("{name}: {message}"))?;
                eprintln!("== {name}: passed");
            }
            Err(reason) => eprintln!("== {name}: SKIPPED: {reason}"),
        }
    }
    Ok(())
}

/// A nightly toolchain of rustup's.
pub(crate) struct Nightly {
    pub(crate) host: String,
    sysroot: String,
}

impl Nightly {
    /// The one that is installed.
    ///
    /// # Errors
    /// In words, when there is none.
    pub(crate) fn find() -> Result<Nightly, String> {
        let ask = |arguments: &[&str]| {
            let mut command = rustup("rustc");
            let output = command.args(arguments).output().map_err(|error| format!("rustup cannot be run: {error}"))?;
            match output.status.success() {
                true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
                false => Err("there is no nightly toolchain: rustup toolchain install nightly".to_owned()),
            }
        };
        let version = ask(&["-vV"])?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc does not say its host")?;
        Ok(Nightly { host: host.to_owned(), sysroot: ask(&["--print", "sysroot"])? })
    }

    /// Whether the standard library can be built.
    fn has_source(&self) -> bool {
        Path::new(&self.sysroot).join("lib/rustlib/src/rust/library/std/Cargo.toml").exists()
    }

    /// Why a sanitizer cannot be linked.
    fn lacks(&self, runtime: &str) -> Option<String> {
        let name = format!("librustc-nightly_rt.{runtime}.a");
        let path = Path::new(&self.sysroot).join("lib/rustlib").join(&self.host).join("lib").join(&name);
        (!path.exists()).then(|| format!("the nightly toolchain for {} has no {name}", self.host))
    }

    /// `cargo test` of these packages for the host, with flags that do not reach build scripts and macros, in
    /// a folder of its own.
    fn test(&self, root: &Path, arguments: &[&str], folder: &str, flags: &str) -> Command {
        let mut command = rustup("cargo");
        command.current_dir(root).args(["test", "--target", &self.host]).args(arguments);
        command.env("CARGO_TARGET_DIR", folder_of(root, folder)).env("RUSTFLAGS", flags);
        // A report without line numbers is useless.
        command.env("CARGO_PROFILE_TEST_DEBUG", "line-tables-only");
        command
    }
}

/// A folder for artefacts that are built with flags of their own.
pub(crate) fn folder_of(root: &Path, name: &str) -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into).join(name)
}

/// A program of the nightly toolchain.
pub(crate) fn rustup(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", program]);
    // The variables that cargo has set for this program are about its own toolchain.
    for name in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(name);
    }
    command
}

fn no_miri(_: &Nightly) -> Option<String> {
    let output = rustup("cargo").args(["miri", "setup"]).output().ok()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it cannot be set up").trim();
    (!output.status.success()).then(|| format!("rustup +nightly component add miri rust-src ({reason})"))
}

fn miri(root: &Path, nightly: &Nightly) -> Result<(), String> {
    for arguments in INTERPRETED {
        let mut command = rustup("cargo");
        command.current_dir(root).args(["miri", "test", "--target", &nightly.host]).args(*arguments);
        command.env("CARGO_TARGET_DIR", folder_of(root, "miri"));
        // Tests print seeds that they draw from the system. Records are found again from addresses in words.
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance");
        finish(command)?;
    }
    Ok(())
}

fn thread(root: &Path, nightly: &Nightly) -> Result<(), String> {
    let suppressions = root.join("xtask/tsan.supp");
    let run = |arguments: &[&str], options: &str, flags: &str| {
        let mut command = nightly.test(root, arguments, "thread", flags);
        command.env("TSAN_OPTIONS", format!("{options} history_size=4"));
        finish(command)
    };
    if nightly.has_source() {
        let all = || SANITIZED.iter().chain(LOCKED);
        return all().try_for_each(|arguments| {
            run(&[&["-Zbuild-std"], *arguments].concat(), "second_deadlock_stack=1", "-Zsanitizer=thread")
        });
    }
    let left_out: Vec<_> = LOCKED.iter().map(|arguments| arguments[1]).collect();
    eprintln!("   SKIPPED: {}: rustup +nightly component add rust-src", left_out.join(", "));
    let options = format!("suppressions={}", suppressions.display());
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    SANITIZED.iter().try_for_each(|arguments| run(arguments, &options, flags))
}

fn address(root: &Path, nightly: &Nightly) -> Result<(), String> {
    for arguments in SANITIZED.iter().chain(LOCKED) {
        finish(nightly.test(root, arguments, "address", "-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_an_unknown_tool_is_refused() {
        let refused = run(Path::new("."), &["treads".to_owned()]);
        assert!(refused.is_err_and(|message| message.contains("treads") && message.contains("thread")));
    }

    #[test]
    fn canary_a_toolchain_without_the_runtime_is_skipped_with_a_reason() {
        let nightly = Nightly { host: "x86_64-nowhere".to_owned(), sysroot: "/nonexistent".to_owned() };
        assert!(nightly.lacks("tsan").is_some_and(|reason| reason.contains("librustc-nightly_rt.tsan.a")));
    }
}
