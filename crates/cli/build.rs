//! Passes the revision to the binary, if git knows it. Runs again only when the checked-out revision changes.

use std::process::Command;

/// The first line of git's output, if it succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // In a linked working tree HEAD and the branches are in different directories. A path that does not exist
    // would run this script at each build.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let path = git(&["rev-parse", "--git-path", name]);
        if let Some(path) = path.filter(|path| std::fs::exists(path).is_ok_and(|exists| exists)) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let revision = git(&["describe", "--always", "--dirty", "--abbrev=12"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=SERIATIM_REVISION={revision}");
    println!("cargo::rustc-env=SERIATIM_VERSION={} (revision {revision})", env!("CARGO_PKG_VERSION"));
}
