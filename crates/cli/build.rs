//! Tells the binary which revision it is built from, where git knows.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/refs/heads");
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    if let Some(output) = output.ok().filter(|output| output.status.success()) {
        println!("cargo::rustc-env=SERIATIM_REVISION={}", String::from_utf8_lossy(&output.stdout).trim());
    }
}
