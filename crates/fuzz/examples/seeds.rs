//! Writes the seeds of every target, and the inputs that once failed, into `DIRECTORY/TARGET/`, for libFuzzer.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: seeds DIRECTORY");
        return ExitCode::from(2);
    };
    match seriatim_fuzz::TARGETS.iter().try_for_each(|target| write(Path::new(&directory), target)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seeds: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(directory: &Path, target: &seriatim_fuzz::Target) -> std::io::Result<()> {
    let folder = directory.join(target.name);
    std::fs::create_dir_all(&folder)?;
    for (at, seed) in (target.seeds)().into_iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{at}")), seed)?;
    }
    let once = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions").join(target.name);
    for file in std::fs::read_dir(once).into_iter().flatten() {
        let file = file?;
        std::fs::copy(file.path(), folder.join(file.file_name()))?;
    }
    Ok(())
}
