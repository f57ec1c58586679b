//! `seriatim figures … --small` runs every command of the figures and draws them. A second run repeats no
//! measurement. Speed is not checked.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use seriatim::rng;
use seriatim_figures::{FIGURES, PAPERS};

/// A directory that is removed at the end.
struct Home(PathBuf);

impl Home {
    fn new() -> Home {
        Home(std::env::temp_dir().join(format!("seriatim-figures-{:016x}", rng::entropy())))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn figures(arguments: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.arg("figures").args(arguments).arg("--out").arg(out).output().expect("the binary starts")
}

/// The output of a successful run.
#[track_caller]
fn summary(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one object of JSON")
}

#[test]
#[ignore = "nightly: a minute"]
fn the_figures_of_each_paper_are_drawn_with_their_page() {
    let home = Home::new();
    for paper in PAPERS {
        let printed = summary(&figures(&[paper, "--small", "--format", "json"], &home.0));
        assert_eq!((&printed["failed"], printed["measured"].as_u64() > Some(0)), (&0.into(), true), "{printed}");
        let page = std::fs::read_to_string(home.0.join(format!("{paper}.md"))).expect("a page");
        for figure in FIGURES.iter().filter(|figure| figure.paper.name == paper) {
            let text = std::fs::read_to_string(home.0.join(format!("{}.json", figure.file()))).expect("a file");
            let file: Value = serde_json::from_str(&text).expect("JSON");
            let runs = || {
                file["points"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .flat_map(|point| point["runs"].as_array().into_iter().flatten())
            };
            assert!(runs().count() > 0 && runs().all(|run| run["command"].as_str().is_some()), "{}", figure.id());
            for report in runs().filter_map(|run| run.get("report")) {
                // Without validation the results are wrong, and not checked.
                let checked = if report["options"]["option"]["validate"] == 0 { "skipped" } else { "passed" };
                assert_eq!((&report["consistency"], &report["failed"]), (&checked.into(), &0.into()), "{report}");
                let mut origins = file["origins"].as_object().expect("by cores").values();
                let is_from_here = origins.all(|origin| origin["revision"] == report["revision"]);
                assert!(report["seed"].as_u64().is_some() && is_from_here, "{report}");
            }
            // A figure without results here, such as aborts of emulated regions, has text in place of a drawing.
            let svg = std::fs::read_to_string(home.0.join(format!("{}.svg", figure.file())));
            assert!(svg.as_ref().is_ok_and(|svg| svg.contains(&figure.title)) || page.contains("\nNot drawn: "));
            assert_eq!(page.contains(&format!("]({}.svg)", figure.file())), svg.is_ok(), "{page}");
            assert!(page.contains(&figure.paper_shows), "{page}");
        }
        let again = summary(&figures(&[paper, "--small", "--format", "json"], &home.0));
        assert_eq!((&again["reused"], &again["measured"]), (&printed["measured"], &printed["measured"]), "{again}");
    }
}

#[test]
fn invalid_arguments_are_refused_in_one_line() {
    let home = Home::new();
    for (arguments, wants) in [
        (&["htcc", "--only", "77"][..], "htcc/13"),
        (&["tictoc"], "possible values: dbx, htcc, dbx-tc, reordering, speculation, all"),
        (&["dbx", "--rounds", "0"], "1..=1000"),
        (&["dbx", "--seconds", "-1"], "from 0 to 86400"),
    ] {
        let output = figures(arguments, &home.0);
        let talk = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), talk.lines().count()), (Some(2), 1), "{talk}");
        assert!(talk.contains(wants) && output.stdout.is_empty(), "{talk}");
    }
    assert!(!home.0.exists(), "nothing was made");
    let file = Home::new();
    std::fs::write(&file.0, "in the way").expect("a file");
    let output = figures(&["dbx", "--small", "--only", "9"], &file.0);
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && talk.contains("name a directory"), "{talk}");
    std::fs::remove_file(&file.0).expect("the file is there");
}
