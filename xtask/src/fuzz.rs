//! `cargo xtask fuzz`: every fuzz target for a while, from seeds that code makes of valid images.
//!
//! The targets' bodies are in the workspace, where the ordinary tests replay seeds and regressions on the
//! stable toolchain; `fuzz/`, outside it, gives them to libFuzzer.

use std::path::Path;

use crate::ci::{cargo, finish};
use crate::sanitize::{Nightly, folder_of, rustup};

/// Seconds for each target unless told otherwise.
const SECONDS: u32 = 60;

/// One allocation larger than this ends a target, in MiB: 4 KiB of zstd stand for at most half of it.
const ALLOCATION_MIB: u32 = 256;

/// The target that is not of `seriatim-fuzz`.
const ARGUMENTS: &str = "arguments";

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
    // The versions that everything else is tested with.
    let copied = std::fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock"));
    copied.map_err(|error| format!("fuzz/Cargo.lock: {error}"))?;
    write_arguments(&corpus.join(ARGUMENTS)).map_err(|error| format!("{}: {error}", corpus.display()))?;
    for target in targets.iter().filter(|target| wanted.is_empty() || wanted.contains(target)) {
        eprintln!("== fuzz {target}: {seconds} s");
        let mut command = rustup("cargo");
        command.current_dir(root).args(["fuzz", "run", "--target", &nightly.host]);
        // The command line's arguments are those of the whole database; the decoders do without.
        command.args((target == ARGUMENTS).then_some("--features=arguments"));
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

/// Seeds of the command line's arguments: commands as documents have them.
fn write_arguments(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let commands = [
        "bench tpcc --warehouses 2 --threads 2 --seconds 5 --format json",
        "bench ycsb --records 1000 --durability group --data d --checkpoint-every 64KiB",
        "plan tpcc new_order",
        "graph articles --optimized --format svg",
        "recover d --checkpoint",
        "backup a b",
        "--help",
    ];
    for (at, command) in commands.iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{at}")), command.replace(' ', "\n"))?;
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
