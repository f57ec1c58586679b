//! `cargo xtask soak`: the long run of simulated power cuts and real kills, in optimized code with assertions
//! and small index nodes.

use std::path::Path;
use std::process::Command;

/// Builds and starts it with these arguments, which it knows itself.
///
/// # Errors
/// When it cannot be started, found something, or did less than was asked for.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["run", "--release", "-p", "seriatim-suite", "--bin", "soak", "--"]);
    // Optimized code and assertions, not the release profile's slow link.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    let status = command.args(arguments).status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("soak: see above; where a case does not hold, the line `rerun` says how to run it again".to_owned())
    }
}
