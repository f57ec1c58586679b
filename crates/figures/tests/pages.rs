//! The pages and drawings in `docs/figures` are those that the data beside them and the present claims give.
//! `UPDATE_EXPECT=1 cargo test -p seriatim-figures --test pages` writes them anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seriatim_figures::{draw_again, find};

/// The files of a directory, by their names.
type Files = BTreeMap<String, String>;

fn files(directory: &Path) -> Files {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        (name, std::fs::read_to_string(entry.path()).expect("a text"))
    };
    entries.map(read).collect()
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures")
}

/// The names of files that differ from what their data gives, that it does not give, or that are missing.
fn stale(test: &str, committed: &Files) -> Vec<String> {
    let home = std::env::temp_dir().join(format!("seriatim-pages-{test}-{}", std::process::id()));
    let remove = |home: &PathBuf| drop(std::fs::remove_dir_all(home));
    remove(&home);
    std::fs::create_dir_all(&home).expect("a temporary directory");
    for (name, text) in committed.iter().filter(|(name, _)| name.ends_with(".json")) {
        std::fs::write(home.join(name), text).expect("a temporary file");
    }
    draw_again(&find(None, &[]).expect("all"), &home).expect("there is data of each paper");
    let given = files(&home);
    remove(&home);
    let mut names: Vec<&String> = committed.keys().chain(given.keys()).collect();
    names.sort();
    names.dedup();
    names.into_iter().filter(|name| committed.get(*name) != given.get(*name)).cloned().collect()
}

#[test]
fn pages_and_drawings_are_those_of_their_data_and_of_the_present_claims() {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        draw_again(&find(None, &[]).expect("all"), &home()).expect("there is data of each paper");
    }
    let stale = stale("committed", &files(&home()));
    assert!(stale.is_empty(), "write them anew by `seriatim figures all --out docs/figures --redraw`: {stale:?}");
}

#[test]
fn canary_a_page_that_is_older_than_its_data_or_claims_is_reported() {
    let changed = |name: &str, from: &str, to: &str| {
        let mut files = files(&home());
        let text = files.get_mut(name).unwrap_or_else(|| panic!("there is no {name}"));
        assert!(text.contains(from), "{name} has no {from}");
        *text = text.replacen(from, to, 1);
        stale("canary", &files)
    };
    assert_eq!(changed("htcc.md", "HTCC is ahead of all others", "HTCC is a little ahead"), ["htcc.md"]);
    assert_eq!(changed("dbx-6.svg", "in regions", "in a region"), ["dbx-6.svg"]);
    let mut without = files(&home());
    without.remove("dbx-6.svg");
    without.insert("dbx-99.svg".to_owned(), String::new());
    assert_eq!(stale("canary-names", &without), ["dbx-6.svg", "dbx-99.svg"]);
    // A number of the data is on the page and in a drawing.
    let data = &files(&home())["dbx.json"];
    let (_, number) = data.split_once("[1.0,").expect("a point at 1");
    let number = number.split(']').next().expect("a number");
    let stale = changed("dbx.json", &format!("[1.0,{number}]"), "[1.0,12345.0]");
    assert!(stale.contains(&"dbx.md".to_owned()), "{stale:?}");
}
