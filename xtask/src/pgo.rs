//! A binary that is compiled twice: the second time with a profile of what the first one did (profile-guided
//! optimization).
//!
//! Transactions are short walks through much code, so where the compiler puts it, and what it inlines,
//! counts: measured figures are in `docs/performance.md`. The profile comes from small runs of the workloads,
//! under every protocol, not from one benchmark.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ci::{cargo, finish};

/// The run of the first binary: a workload with its arguments.
const TRAINING: &[&[&str]] = &[
    &["tpcc", "--warehouses", "1", "--seconds", "10"],
    &["tpcc", "--warehouses", "2", "--threads", "2", "--seconds", "5"],
    &["tpcc", "--warehouses", "1", "--protocol", "silo", "--seconds", "3"],
    &["tpcc", "--warehouses", "1", "--protocol", "nowait", "--seconds", "3"],
    &["tpcc", "--warehouses", "1", "--protocol", "wait-die", "--seconds", "3"],
    &["ycsb", "--records", "200000", "--seconds", "4"],
    &["smallbank", "--seconds", "3"],
    &["tatp", "--seconds", "3"],
    &["articles", "--seconds", "3"],
];

/// Builds the binary and says where it is.
///
/// # Errors
/// When a step fails, or the tool that merges profiles is not there.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let merge = profdata(root)?;
    let host = host(root)?;
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into).join("pgo");
    let profiles = folder.join("profiles");
    if profiles.exists() {
        std::fs::remove_dir_all(&profiles).map_err(|error| format!("{}: {error}", profiles.display()))?;
    }
    eprintln!("== 1 of 3: a binary that counts");
    let counting = build(root, &host, &folder.join("counting"), &format!("-Cprofile-generate={}", profiles.display()))?;
    eprintln!("== 2 of 3: training");
    for arguments in TRAINING {
        eprintln!("   bench {}", arguments.join(" "));
        let mut command = Command::new(&counting);
        command.current_dir(root).arg("bench").args(*arguments).args(["--warmup", "0", "--format", "json"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        finish(command)?;
    }
    let merged = folder.join("merged.profdata");
    let mut command = Command::new(merge);
    command.arg("merge").arg("-o").arg(&merged).arg(&profiles);
    finish(command)?;
    eprintln!("== 3 of 3: the binary");
    let binary = build(root, &host, &folder.join("binary"), &format!("-Cprofile-use={}", merged.display()))?;
    println!("{}", binary.display());
    Ok(())
}

/// Builds the command-line program with these flags, in a folder of its own; where it is. Naming the host as
/// the target keeps the flags away from build scripts and macros.
fn build(root: &Path, host: &str, folder: &Path, flags: &str) -> Result<PathBuf, String> {
    let mut command = cargo(root);
    command.args(["build", "--release", "-p", "seriatim-cli", "--target", host]);
    command.env("CARGO_TARGET_DIR", folder).env("RUSTFLAGS", flags);
    finish(command)?;
    Ok(folder.join(host).join("release").join(format!("seriatim{}", std::env::consts::EXE_SUFFIX)))
}

/// `llvm-profdata` of the toolchain in use: profiles of another LLVM may not be read.
fn profdata(root: &Path) -> Result<PathBuf, String> {
    let libraries = rustc(root, &["--print", "target-libdir"])?;
    let tool = Path::new(libraries.trim())
        .join("..")
        .join("bin")
        .join(format!("llvm-profdata{}", std::env::consts::EXE_SUFFIX));
    if tool.exists() {
        return Ok(tool);
    }
    Err(format!("there is no {}: run `rustup component add llvm-tools`", tool.display()))
}

/// The triple of this machine.
pub(crate) fn host(root: &Path) -> Result<String, String> {
    let version = rustc(root, &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say its host".to_owned())
}

fn rustc(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.current_dir(root).args(arguments);
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}"))
}
