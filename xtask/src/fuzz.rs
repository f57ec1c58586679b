//! `cargo xtask fuzz`: every fuzz target for a while, from seeds that code makes of valid images.
//!
//! The targets' bodies are in the workspace, where the ordinary tests replay seeds and regressions on the
//! stable toolchain. `fuzz/`, outside it, gives them to libFuzzer.

use std::path::Path;

use crate::ci::{cargo, finish};
use crate::sanitize::{Nightly, folder_of, rustup};

/// Seconds for each target unless told otherwise.
const SECONDS: u32 = 60;

/// One allocation larger than this ends a target, in MiB: 4 KiB of zstd stand for at most half of it.
const ALLOCATION_MIB: u32 = 256;

/// Runs the named targets, or all, for `--seconds` each.
///
/// # Errors
/// When the arguments cannot be, or a target fails: then the input that did it is where libFuzzer says.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (seconds, wanted) = parse(arguments)?;
    let targets = targets(root)?;
    if let Some(unknown) = wanted.iter().find(|name| !targets.contains(name)) {
        return Err(format!("no target `{unknown}`; targets are {}", targets.join(", ")));
    }
    let nightly = match available() {
        Ok(nightly) => nightly,
        Err(reason) => {
            eprintln!("== fuzz: SKIPPED: {reason}");
            return Ok(());
        }
    };
    let folder = folder_of(root, "fuzz");
    let corpus = folder.join("corpus");
    let mut seeds = cargo(root);
    seeds.args(["run", "--quiet", "-p", "seriatim-fuzz", "--example", "seeds", "--"]).arg(&corpus);
    finish(seeds)?;
    copy_versions(root)?;
    for target in targets.iter().filter(|target| wanted.is_empty() || wanted.contains(target)) {
        eprintln!("== fuzz {target}: {seconds} s");
        let mut command = rustup("cargo");
        command.current_dir(root).args(["fuzz", "run", "--target", &nightly.host]);
        command.arg("--target-dir").arg(&folder).arg(target).arg(corpus.join(target)).args([
            "--",
            &format!("-max_total_time={seconds}"),
            &format!("-malloc_limit_mb={ALLOCATION_MIB}"),
            "-timeout=10",
            "-print_final_stats=1",
        ]);
        finish(command)?;
    }
    Ok(())
}

/// The fuzz targets use the versions that everything else is tested with.
fn copy_versions(root: &Path) -> Result<(), String> {
    let copied = std::fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock"));
    copied.map(drop).map_err(|error| format!("fuzz/Cargo.lock: {error}"))
}

/// The fuzz targets and the comparison with other databases compile. They are outside the workspace, so no other step
/// compiles them.
///
/// # Errors
/// One does not.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    copy_versions(root)?;
    for folder in ["fuzz", "compare"] {
        let mut command = cargo(root);
        command.args([
            "check",
            "--quiet",
            "--manifest-path",
            &format!("{folder}/Cargo.toml"),
            "--bins",
            "--target-dir",
        ]);
        command.arg(folder_of(root, folder));
        // Nothing is linked, so libFuzzer is not compiled: any file stands for it.
        command.env("CUSTOM_LIBFUZZER_PATH", root.join("Cargo.toml"));
        finish(command)?;
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<(u32, Vec<String>), String> {
    let (mut seconds, mut targets) = (SECONDS, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            let value = arguments.next().and_then(|value| value.parse().ok());
            seconds = value.filter(|&seconds| seconds > 0).ok_or("--seconds takes a number above 0")?;
        } else {
            targets.push(argument.clone());
        }
    }
    Ok((seconds, targets))
}

/// The targets are the files of a folder.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let files = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names =
        files.filter_map(|file| file.ok()?.file_name().into_string().ok()?.strip_suffix(".rs").map(str::to_owned));
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    Ok(names)
}

/// The nightly toolchain, if there is one and cargo-fuzz.
fn available() -> Result<Nightly, String> {
    let nightly = Nightly::find()?;
    let version = rustup("cargo").args(["fuzz", "--version"]).output();
    match version.is_ok_and(|output| output.status.success()) {
        true => Ok(nightly),
        false => Err("there is no cargo-fuzz: cargo install cargo-fuzz --locked".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_targets_and_seconds() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse(&[]), Ok((SECONDS, vec![])));
        assert_eq!(parse(&words("rows --seconds 5 keys")), Ok((5, words("rows keys"))));
        assert!(parse(&words("--seconds 0")).is_err() && parse(&words("--seconds")).is_err());
    }

    #[test]
    fn canary_an_unknown_target_is_refused() {
        let refused = run(&crate::files::root(), &["rovs".to_owned()]);
        assert!(refused.is_err_and(|message| message.contains("rovs") && message.contains("rows")));
    }
}
