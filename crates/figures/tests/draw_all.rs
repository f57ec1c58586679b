//! Figures from made-up points: contradictions of the paper are told, missing points are named, measurements are kept.

use std::cell::RefCell;
use std::path::PathBuf;

use serde_json::{Value, json};
use seriatim_figures::{
    Answer, Cores, Event, FIGURES, Job, Origin, PAPERS, Setting, Size, Summary, draw_again, draw_all, find,
};

/// A directory that is removed at the end.
struct Home(PathBuf);

impl Home {
    fn new(test: &str) -> Home {
        let home = Home(std::env::temp_dir().join(format!("seriatim-figures-{test}-{}", std::process::id())));
        let _ = std::fs::remove_dir_all(&home.0);
        home
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn large() -> Setting {
    Setting { size: Size::Large, processors: 2, has_regions: true, seconds: None, rounds: None, seed: 1 }
}

fn origin(program: &str) -> Origin {
    let machine = json!({ "cores": 2, "processor": "A Processor", "rtm": "a probe region committed" });
    Origin { revision: "r1".to_owned(), program: program.to_owned(), machine }
}

/// A report with this throughput, as a protocol's.
fn report(rate: f64) -> Answer {
    Answer::Report(json!({
        "committed": 1000, "committed_per_second": rate, "conflict_aborted": 10, "seconds": 2.0,
        "machine": { "cores": 2 },
        "htm": { "backend": "rtm", "started": 4000, "committed": 3990, "fallback": 2,
                 "aborted": { "conflict": 8, "capacity": 1, "explicit": 0, "system": 1 } },
        "latency_us": { "p50": 5.0, "p95": 9.0, "p99": 20.0, "p999": 40.0, "max": 90.0 },
    }))
}

/// The value of an option of a command.
fn option<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1).map(String::as_str)
}

/// Threads or simulated cores times what one of this protocol does.
fn rate(arguments: &[String], of: impl Fn(&str) -> f64) -> f64 {
    let threads = option(arguments, "--threads").or(option(arguments, "--simulate-cores"));
    let threads = threads.filter(|threads| threads.parse::<f64>().is_ok()).unwrap_or("1");
    threads.parse::<f64>().expect("a number") * of(option(arguments, "--protocol").unwrap_or("auto"))
}

/// A made-up report of a command that asks for no regions has none.
fn without_regions(arguments: &[String], mut answer: Answer) -> Answer {
    if let Answer::Report(report) = &mut answer
        && option(arguments, "--htm") == Some("absent")
    {
        report["htm"]["backend"] = "absent".into();
    }
    answer
}

struct Drawn {
    summary: Summary,
    asked: Vec<String>,
    passed_over: Vec<String>,
    failed: Vec<String>,
}

fn drawn(home: &Home, ids: &[&str], program: &str, setting: &Setting, ask: impl Fn(&[String]) -> Answer) -> Drawn {
    drawn_on(None, home, ids, program, setting, ask)
}

/// As [`drawn`], where only points on these cores are measured.
fn drawn_on(
    cores: Option<Cores>,
    home: &Home,
    ids: &[&str],
    program: &str,
    setting: &Setting,
    ask: impl Fn(&[String]) -> Answer,
) -> Drawn {
    let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
    let figures = find(None, &ids).expect("they are registered");
    let origin = origin(program);
    let job = Job { figures: &figures, setting, cores, origin: &origin, directory: &home.0 };
    let (mut asked, mut passed_over, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    let summary = draw_all(
        &job,
        &mut |cores, commands, hear| {
            // Commands that run at the same time end in any order.
            for (at, arguments) in commands.iter().enumerate().rev() {
                assert_eq!(arguments.iter().any(|argument| argument == "--simulate-cores"), cores == Cores::Simulated);
                asked.push(arguments.join(" "));
                hear(at, without_regions(arguments, ask(arguments)));
            }
        },
        &mut |event| match event {
            Event::PassedOver(line) => passed_over.push(line.to_owned()),
            Event::Failed { command, why } => failed.push(format!("{command}: {why}")),
            Event::Next { done, of, .. } => assert!(done < of, "{done} of {of}"),
        },
    );
    Drawn { summary: summary.expect("the directory can be written"), asked, passed_over, failed }
}

fn verdict<'a>(file: &'a Value, says: &str, cores: &str) -> &'a Value {
    let claims = file["claims"].as_array().expect("a list");
    let claim = claims.iter().find(|claim| claim["says"] == says).unwrap_or_else(|| panic!("no claim {says}: {file}"));
    &claim[cores]
}

#[test]
fn every_figure_is_drawn_and_has_its_place_on_the_page() {
    let home = Home::new("all");
    let once = Setting { rounds: Some(1), ..large() };
    let told = drawn(&home, &[], "p", &once, |arguments| report(rate(arguments, |_| 50_000.0)));
    assert_eq!((told.summary.failed, told.summary.left_out), (0, 0));
    assert!(told.summary.reused > 0, "figures of one paper share what they measure");
    assert_eq!(told.asked.len() + told.summary.reused, told.summary.measured);
    let mut drawings = 0;
    for figure in FIGURES.iter() {
        // The made-up reports have not all numbers: a figure without any has no drawing.
        if home.0.join(format!("{}.svg", figure.file())).exists() {
            let svg = home.text(&format!("{}.svg", figure.file()));
            assert!(svg.starts_with("<svg") && svg.contains(&figure.title), "{}", figure.id());
            assert!(svg.contains("<polyline") && svg.ends_with("</svg>\n"), "{}", figure.id());
            drawings += 1;
        }
        let file = home.json(&format!("{}.json", figure.file()));
        assert_eq!((&file["figure"], &file["size"]), (&json!(figure.id()), &json!("large")));
        assert_eq!(file["claims"].as_array().map(Vec::len), Some(figure.claims.len()));
        assert!(file["points"][0]["runs"][0]["command"].as_str().is_some_and(|command| {
            ["seriatim bench ", "seriatim model "].iter().any(|begin| command.starts_with(begin))
        }));
    }
    for paper in PAPERS {
        let page = home.text(&format!("{paper}.md"));
        for figure in FIGURES.iter().filter(|figure| figure.paper.name == paper) {
            let heading = format!("## {}: {}\n\n", figure.label(), figure.title);
            let (_, section) = page.split_once(&heading).unwrap_or_else(|| panic!("{}: no section", figure.id()));
            let image = format!("![{}]({}.svg)\n", figure.title, figure.file());
            let is_drawn = home.0.join(format!("{}.svg", figure.file())).exists();
            assert_eq!(section.starts_with(&image), is_drawn, "{}", figure.id());
            assert!(is_drawn || section.starts_with("Not drawn: its report has no such number: "), "{}", figure.id());
            let section = section.split("\n## ").next().unwrap_or_default();
            let (papers, ours) = section.split_once("| besides, not the paper's |").unwrap_or((section, ""));
            for claim in &figure.claims {
                let table = if claim.ours { ours } else { papers };
                assert!(table.contains(&format!("| {} |", claim.says)), "{}: {}", figure.id(), claim.says);
            }
        }
        assert!(page.contains("A Processor"), "{page}");
    }
    assert!(drawings > FIGURES.len() / 2, "{drawings} drawings");
}

#[test]
fn canary_points_that_contradict_the_paper_are_reported_in_file_and_page() {
    let says = "HTCC is ahead of all others";
    for (htcc, word, other) in [(3.0, "holds", "differs"), (0.5, "differs", "holds")] {
        let home = Home::new(&format!("contradicted-{word}"));
        let speed = |protocol: &str| if protocol == "htcc" { htcc * 1000.0 } else { 1000.0 };
        drawn(&home, &["htcc/14"], "p", &large(), |arguments| report(rate(arguments, speed)));
        let file = home.json("htcc-14.json");
        for cores in ["real", "simulated"] {
            assert_eq!(verdict(&file, says, cores)["verdict"], word, "{file}");
        }
        let page = home.text("htcc.md");
        let row = page.lines().find(|line| line.contains(&format!("| {says} |"))).expect("a row");
        assert!(row.contains(word) && !row.contains(other) && row.contains(&htcc.to_string()), "{row}");
        let reason = page.lines().any(|line| line.starts_with("- Why it differs that ") && line.contains(says));
        assert_eq!(reason, word == "differs", "{page}");
    }
}

#[test]
fn commands_that_cannot_run_here_are_left_out_visibly() {
    let home = Home::new("left-out");
    let ask = |arguments: &[String]| match (option(arguments, "--simulate-cores"), option(arguments, "--protocol")) {
        (Some(_), _) => Answer::NotHere("unexpected argument '--simulate-cores' found".to_owned()),
        (_, Some("occ")) => Answer::NotHere("no protocol | occ\nhere".to_owned()),
        _ => report(rate(arguments, |_| 1000.0)),
    };
    let told = drawn(&home, &["htcc/14"], "p", &large(), ask);
    assert!(told.summary.left_out > 0 && told.summary.failed == 0);
    let svg = home.text("htcc-14.svg");
    for said in ["occ: no protocol", "regions: rtm"] {
        assert!(svg.contains(said), "{said}: {svg}");
    }
    assert!(!svg.contains("simulated cores"), "a panel that shows nothing is left out: {svg}");
    let (file, page) = (home.json("htcc-14.json"), home.text("htcc.md"));
    assert!(page.contains("\nNot drawn: unexpected argument '--simulate-cores' found: throughput, simulated cores; "));
    let equal = verdict(&file, "OCC and wait-die locking are about equal", "real");
    assert_eq!(equal["verdict"], "not_shown");
    assert!(equal["reason"].as_str().is_some_and(|reason| reason.contains("no protocol | occ")), "{equal}");
    assert!(page.contains("- Not shown here: no protocol | occ here: occ on 1, 2 threads\n"), "{page}");
    let gone = page.lines().find(|line| line.starts_with("- Not shown here: unexpected argument")).expect("a line");
    assert!(gone.contains("found: htcc, ") && gone.ends_with(", 40 simulated cores"), "all curves at once: {gone}");
    let silo = page.lines().filter(|line| line.contains("--protocol silo --threads "));
    assert_eq!(silo.map(|line| line.contains(" --threads 1|2 ")).collect::<Vec<_>>(), [true], "{page}");
    assert!(page.lines().any(|line| line.contains("no protocol \\| occ here")), "{page}");
    // The relation that the paper shows of 40 threads is not shown of two, and the reason says so.
    let twice = verdict(&file, "HTCC commits twice as much as SOCC", "real");
    assert_eq!(twice["verdict"], "not_shown");
    assert!(twice["reason"].as_str().is_some_and(|reason| reason.contains("2 threads")), "{twice}");
}

#[test]
fn a_failed_point_is_reported_and_only_it_is_run_again() {
    let home = Home::new("failed");
    let fails = |arguments: &[String]| {
        option(arguments, "--protocol") == Some("silo") && option(arguments, "--threads") == Some("2")
    };
    let first = drawn(&home, &["dbx/5"], "p", &large(), |arguments| match fails(arguments) {
        true => Answer::Failed("killed by signal 11".to_owned()),
        false => report(rate(arguments, |_| 1000.0)),
    });
    assert!(first.summary.failed == 5 && first.failed.len() == 5, "five rounds: {:?}", first.failed);
    assert!(first.failed.iter().all(|line| line.contains("signal 11") && line.contains("--protocol silo")));
    assert!(home.text("dbx-5.svg").contains("killed by signal 11"));
    assert!(home.text("dbx.md").contains("**Failed**: silo on 2 threads: killed by signal 11 (`seriatim bench tpcc "));
    let second = drawn(&home, &["dbx/5"], "p", &large(), |arguments| report(rate(arguments, |_| 1000.0)));
    assert_eq!((second.asked.len(), second.summary.failed), (5, 0), "{:?}", second.asked);
    assert!(second.asked.iter().all(|line| line.contains("--protocol silo")));
    assert_eq!(second.summary.measured, first.summary.measured + 5);
    assert!(!home.text("dbx.md").contains("**Failed**"));
}

#[test]
fn an_interrupted_run_continues_where_it_was() {
    let home = Home::new("interrupted");
    let asked = RefCell::new(0);
    let interrupted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drawn(&home, &["htcc/13"], "p", &large(), |arguments| {
            *asked.borrow_mut() += 1;
            assert!(*asked.borrow() <= 10, "interrupted here");
            report(rate(arguments, |_| 1000.0))
        });
    }));
    assert!(interrupted.is_err());
    let told = drawn(&home, &["htcc/13"], "p", &large(), |arguments| report(rate(arguments, |_| 1000.0)));
    assert_eq!((told.summary.reused, told.asked.len() + 10), (10, told.summary.measured));
    assert!(told.passed_over.is_empty(), "{:?}", told.passed_over);
}

#[test]
fn canary_reports_of_another_program_or_damaged_files_are_not_used() {
    let home = Home::new("other");
    let ask = |arguments: &[String]| report(rate(arguments, |_| 1000.0));
    let before = drawn(&home, &["dbx/9"], "p", &large(), ask);
    let same = drawn(&home, &["dbx/9"], "p", &large(), ask);
    assert_eq!((same.asked.len(), same.summary.reused), (0, before.asked.len()));
    let seed = Setting { seed: 9, ..large() };
    assert_eq!(drawn(&home, &["dbx/9"], "p", &seed, ask).summary.reused, 0, "another seed is another command");
    let other = drawn(&home, &["dbx/9"], "q", &large(), ask);
    assert_eq!(other.asked.len(), before.asked.len());
    assert!(
        other.passed_over.len() == 1 && other.passed_over[0].contains("another program"),
        "{:?}",
        other.passed_over
    );
    std::fs::write(home.0.join("dbx-9.json"), "{").expect("the file can be written");
    let damaged = drawn(&home, &["dbx/9"], "q", &large(), ask);
    assert_eq!(damaged.asked.len(), before.asked.len());
    assert!(damaged.passed_over[0].contains("cannot be used"), "{:?}", damaged.passed_over);
}

#[test]
fn figures_of_the_small_size_are_drawn_and_not_judged() {
    let home = Home::new("small");
    let small = Setting { size: Size::Small, ..large() };
    let told = drawn(&home, &[], "p", &small, |arguments| report(rate(arguments, |_| 1000.0)));
    assert_eq!((told.summary.hold, told.summary.differ), (0, 0));
    assert!(home.text("htcc-13.svg").contains("small size") && home.text("dbx.md").contains("**Small size**"));
}

#[test]
fn a_page_names_the_figures_that_were_not_measured() {
    let home = Home::new("page");
    drawn(&home, &["htcc/13"], "p", &large(), |arguments| report(rate(arguments, |_| 1000.0)));
    let page = home.text("htcc.md");
    assert!(page.contains("Not measured yet: `seriatim figures htcc --only 14`"), "{page}");
    assert!(!home.0.join("dbx.md").exists());
}

#[test]
fn one_kind_of_cores_is_measured_after_the_other() {
    let home = Home::new("cores");
    let on =
        |cores| drawn_on(cores, &home, &["htcc/14"], "p", &large(), |arguments| report(rate(arguments, |_| 1000.0)));
    let simulated = on(Some(Cores::Simulated));
    assert!(!simulated.asked.is_empty() && simulated.asked.iter().all(|asked| asked.contains("--simulate-cores")));
    assert!(simulated.summary.left_out > 0 && simulated.summary.failed == 0);
    assert!(home.text("htcc.md").contains("not measured yet"));
    let real = on(Some(Cores::Real));
    assert!(real.asked.iter().all(|asked| asked.contains("--threads")));
    assert_eq!((real.summary.left_out, real.summary.reused), (0, simulated.summary.measured));
    assert_eq!(real.asked.len(), simulated.summary.left_out);
    let all = on(None);
    assert_eq!((all.asked.len(), all.summary.left_out), (0, 0));
    assert!(!home.text("htcc.md").contains("not measured yet"));
}

/// Threads are measured on a quiet machine, simulated cores anywhere and later.
#[test]
fn one_kind_of_cores_is_measured_again_by_another_program_and_the_other_stays() {
    let home = Home::new("two");
    // Threads ran once, for a time that is not the usual one.
    let short = Setting { seconds: Some(0.2), rounds: Some(1), ..large() };
    let on_for = |setting: &Setting, cores, program, rate| {
        drawn_on(cores, &home, &["htcc/14"], program, setting, |_| report(rate));
        home.text("htcc.md")
    };
    let on = |cores, program, rate| on_for(&large(), cores, program, rate);
    let page = on_for(&short, None, "old", 1000.0);
    assert!(page.contains("Measured by revision r1 (program old)") && !page.contains("program new"), "{page}");
    let (page, file) = (on(Some(Cores::Simulated), "new", 2000.0), home.json("htcc-14.json"));
    assert!(page.contains("Of threads of this machine: measured by revision r1 (program old)"), "{page}");
    assert!(page.contains("Of simulated cores: measured by revision r1 (program new)"), "{page}");
    assert_eq!(
        (&file["origins"]["real"]["program"], &file["origins"]["simulated"]["program"]),
        (&"old".into(), &"new".into())
    );
    for point in file["points"].as_array().expect("a list") {
        let rate = if point["cores"] == "real" { 1000.0 } else { 2000.0 };
        let runs = point["runs"].as_array().expect("a list");
        assert!(!runs.is_empty() && runs.iter().all(|run| run["report"]["committed_per_second"] == rate), "{point}");
    }
    // A program that measures both mixes nothing.
    assert!(!on(None, "third", 3000.0).contains("program new"));
}

#[test]
fn measurements_of_another_program_are_drawn_again_unchanged() {
    let home = Home::new("again");
    let figures = find(None, &["htcc/13".to_owned()]).expect("there is one");
    let nothing = draw_again(&figures, &home.0).expect_err("there is no directory");
    assert_eq!(nothing.kind(), std::io::ErrorKind::NotFound, "{nothing}");
    let told = drawn(&home, &["htcc/13"], "old", &large(), |arguments| report(rate(arguments, |_| 1.0)));
    let (file, drawing) = (home.text("htcc-13.json"), home.text("htcc-13.svg"));
    for name in ["htcc-13.svg", "htcc.md"] {
        std::fs::remove_file(home.0.join(name)).expect("it was written");
    }
    std::fs::write(home.0.join("htcc-13.json"), file.replace("over 10 % ahead", "far ahead")).expect("it is there");
    let summary = draw_again(&figures, &home.0).expect("it is there");
    let Summary { hold, differ, .. } = told.summary;
    assert!(hold + differ > 0 && summary.measured > 0, "{summary:?}");
    assert_eq!((summary.hold, summary.differ, summary.failed), (hold, differ, 0));
    assert_eq!(home.text("htcc-13.json"), file, "claims are those of today");
    assert_eq!(home.text("htcc-13.svg"), drawing);
    assert!(home.text("htcc.md").contains("old"), "the page says what measured");
}

#[test]
fn numbers_of_the_papers_file_stay_where_the_measurements_are_gone() {
    let home = Home::new("numbers");
    let on = |cores, program, rate| {
        drawn_on(cores, &home, &["htcc/14"], program, &large(), |_| report(rate));
        home.text("htcc.md")
    };
    let page = on(None, "old", 1000.0);
    std::fs::remove_file(home.0.join("htcc-14.json")).expect("it was written");
    let figures = find(None, &["htcc/14".to_owned()]).expect("there is one");
    let (summary, drawing) = (draw_again(&figures, &home.0).expect("it is there"), home.text("htcc-14.svg"));
    assert_eq!((home.text("htcc.md"), summary.measured > 0), (page, true));
    let page = on(Some(Cores::Simulated), "new", 2000.0);
    assert!(page.contains("Of threads of this machine: measured by revision r1 (program old)"), "{page}");
    assert!(page.contains("Of simulated cores: measured by revision r1 (program new)"), "{page}");
    assert_ne!(home.text("htcc-14.svg"), drawing);
    std::fs::write(home.0.join("htcc.json"), "{").expect("the file can be written");
    let damaged = draw_again(&figures, &home.0).expect_err("it cannot be read").to_string();
    assert!(damaged.contains("htcc.json: ") && damaged.contains("restore the file"), "{damaged}");
    assert_eq!(home.text("htcc.json"), "{", "it is left as it is");
}

/// Figures may have curves that files of earlier programs lack.
#[test]
fn a_curve_that_was_not_measured_is_not_shown_when_the_rest_is_drawn_again() {
    const CURVE: &str = "htcc -S";
    let home = Home::new("lacks");
    let says = "with static analysis it commits over 10 % more";
    drawn(&home, &["htcc/18"], "p", &large(), |arguments| report(rate(arguments, |_| 1.0)));
    let mut file = home.json("htcc-18.json");
    assert_eq!(verdict(&file, says, "simulated")["verdict"], "differs");
    let points = file["points"].as_array_mut().expect("a list");
    points.retain(|point| point["series"] != CURVE);
    assert!(!points.is_empty());
    std::fs::write(home.0.join("htcc-18.json"), file.to_string()).expect("it is there");
    draw_again(&find(None, &["htcc/18".to_owned()]).expect("there is one"), &home.0).expect("it is there");
    let file = home.json("htcc-18.json");
    let said = verdict(&file, says, "simulated");
    assert_eq!(
        (&said["verdict"], &said["reason"]),
        (&"not_shown".into(), &format!("{CURVE}: it was not measured").into())
    );
    assert_ne!(
        verdict(&file, "with hot records alone it is about 20 % ahead of OCC", "simulated")["verdict"],
        "not_shown"
    );
    let page = home.text("htcc.md");
    let row = page.lines().find(|line| line.contains(says)).expect("a row");
    assert!(row.contains(&format!("not shown here: {CURVE}: it was not measured")), "{row}");
    assert!(home.text("htcc-18.svg").contains("htcc -SC"));
}
