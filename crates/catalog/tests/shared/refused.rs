//! Programs that must not compile. The compiler's message for each is kept beside it, in a file that ends in `stderr`,
//! and rewritten with `UPDATE_EXPECT=1`.
//!
//! They are compiled against the libraries that cargo built for the test itself, so that nothing is built for
//! them alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles each program of a folder with these libraries.
pub(crate) fn are_refused(folder: &str, libraries: &[&str]) {
    let test = std::env::current_exe().expect("a test is a file");
    let built = test.parent().expect("in a folder");
    let mut rustc = vec!["--edition=2024", "--crate-type=bin", "--diagnostic-width=140", "-Adead_code"];
    let search = format!("-Ldependency={}", built.display());
    let found: Vec<String> = libraries.iter().map(|name| format!("--extern={name}={}", library(&test, name))).collect();
    rustc.extend(found.iter().chain([&search]).map(String::as_str));
    let mut programs: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    programs.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    assert!(!programs.is_empty(), "{folder} has no programs");
    let none = std::env::temp_dir().join(format!("seriatim-refused-{}", std::process::id()));
    for program in programs {
        let compile = |emit: &str| {
            let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
            command.args(&rustc).arg(emit).arg("-o").arg(&none).arg(&program).output().expect("there is a compiler")
        };
        // Assertions in generic code fail when it is compiled for a type.
        let checked = compile("--emit=metadata");
        let output = if checked.status.success() { compile("--emit=obj") } else { checked };
        assert!(!output.status.success(), "{} compiles", program.display());
        let kept = std::env::current_dir().expect("the crate's folder").join(program.with_extension("stderr"));
        expect_test::expect_file![kept].assert_eq(&normalized(&String::from_utf8_lossy(&output.stderr)));
    }
}

/// The library of this name that the test was linked with: the newest that is no newer than the test.
fn library(test: &Path, name: &str) -> String {
    let time = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).expect("a file has a time");
    let is_library = |path: &PathBuf| {
        let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        let of_name = file.strip_prefix(&format!("lib{name}-"));
        of_name.is_some_and(|rest| rest.ends_with(".rlib") || rest.ends_with(std::env::consts::DLL_SUFFIX))
    };
    let all = fs::read_dir(test.parent().expect("in a folder")).expect("a folder").flatten().map(|entry| entry.path());
    let before = all.filter(is_library).filter(|path| time(path) <= time(test));
    let newest = before.max_by_key(|path| time(path)).unwrap_or_else(|| panic!("no library {name} beside {test:?}"));
    newest.display().to_string()
}

/// The messages about the programs, without lines of libraries, and without numbers of errors and of types, which
/// change.
fn normalized(said: &str) -> String {
    let lines = said.lines().take_while(|line| !line.starts_with("error: aborting due to"));
    let lines = lines.filter(|line| !line.contains("--> /rustc/"));
    let lines: Vec<String> = lines
        .map(|line| match line.split_once(".rs:") {
            Some((place, _)) if place.contains("--> crates/") || place.contains("::: crates/") => format!("{place}.rs"),
            _ if line.ends_with(" others") => format!("{}and others", line.split("and ").next().unwrap_or_default()),
            _ => line.to_owned(),
        })
        .collect();
    lines.join("\n").trim_end().to_owned() + "\n"
}
