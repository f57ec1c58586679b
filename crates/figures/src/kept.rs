//! What a paper's page and drawings are made of: the numbers of its figures, as its file (`htcc.json`) keeps them.
//!
//! The file has what views show, and none of the reports, which take a hundred times as much. So it can be kept beside
//! the page, and claims that have changed are judged again without a measurement. The page is always written from the
//! file's numbers.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::figure::{Figure, View};
use crate::measured::{Answer, Cores, Curves, Measured, Origin, Size};

/// The figures of a paper, by their numbers.
pub(crate) type Paper = BTreeMap<String, Kept>;

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kept {
    pub(crate) size: Size,
    /// By the kind of cores: those that the figure has points for.
    pub(crate) cores: BTreeMap<Cores, Shown>,
}

/// What a figure shows on one kind of cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shown {
    /// What measured; nothing if no point was asked for yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
    /// By the titles of the views.
    pub(crate) views: BTreeMap<String, Curves>,
    /// How many runs printed a report, could not be run, and failed.
    pub(crate) runs: (usize, usize, usize),
    /// A line for each reason why points are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
    /// The commands that printed a report; those that differ in threads, cores or seeds alone are one line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) commands: Vec<String>,
}

impl Kept {
    /// The measurements that are kept. A kind of cores without a new measurement keeps its old one.
    pub(crate) fn of(figure: &Figure, measured: &Measured, before: Option<Kept>) -> Kept {
        let mut before = before.filter(|before| before.size == measured.size).map(|before| before.cores);
        let mut shown = |cores: Cores| {
            let known = before.as_mut().and_then(|before| before.remove(&cores));
            match (measured.origins.get(&cores), known) {
                (None, Some(known)) => known,
                (origin, _) => Shown {
                    origin: origin.cloned(),
                    views: figure
                        .views
                        .iter()
                        .map(|view| (view.title.clone(), curves(measured, view, cores)))
                        .collect(),
                    runs: runs(measured, cores),
                    missing: missing(measured, cores),
                    commands: commands(measured, cores),
                },
            }
        };
        let cores = measured.cores().into_iter().map(|cores| (cores, shown(cores))).collect();
        Kept { size: measured.size, cores }
    }

    /// What a view shows.
    pub(crate) fn curves(&self, view: &View, cores: Cores) -> Curves {
        self.cores.get(&cores).and_then(|shown| shown.views.get(&view.title)).cloned().unwrap_or_default()
    }
}

/// What a view shows, in six digits. Simulations repeat, so their rounds are the curves.
fn curves(measured: &Measured, view: &View, cores: Cores) -> Curves {
    let mut shown = measured.curves(view, cores);
    if cores == Cores::Simulated {
        shown.rounds.clear();
    }
    for (_, y) in shown.curves.iter_mut().chain(shown.rounds.iter_mut().flatten()).flat_map(|curve| &mut curve.points) {
        *y = format!("{y:.5e}").parse().unwrap_or(*y);
    }
    shown
}

fn runs(measured: &Measured, cores: Cores) -> (usize, usize, usize) {
    let (mut reports, mut left_out, mut failed) = (0, 0, 0);
    for run in measured.points.iter().filter(|point| point.cores == cores).flat_map(|point| &point.runs) {
        match run.answer {
            Answer::Report(_) => reports += 1,
            Answer::NotHere(_) => left_out += 1,
            Answer::Failed(_) => failed += 1,
        }
    }
    (reports, left_out, failed)
}

/// The points that could not be run, by the reason, and each that failed.
fn missing(measured: &Measured, cores: Cores) -> Vec<String> {
    // The reason, the curves, and the counts of threads.
    let mut left_out: Vec<(String, Vec<&str>, Vec<usize>)> = Vec::new();
    let mut failed = Vec::new();
    let points = measured.points.iter().filter(|point| point.cores == cores);
    for (point, run) in points.flat_map(|point| point.runs.iter().map(move |run| (point, run))) {
        match &run.answer {
            Answer::Report(_) => {}
            Answer::Failed(why) => {
                let (on, why) = (cores.count(point.threads), line(why));
                failed.push(format!("- **Failed**: {} on {on}: {why} (`{}`)", point.series, run.command));
            }
            Answer::NotHere(why) => {
                let (why, series) = (line(why), point.series.as_str());
                match left_out.iter_mut().find(|known| known.0 == why && known.1 == [series]) {
                    Some((.., counts)) if counts.contains(&point.threads) => {}
                    Some((.., counts)) => counts.push(point.threads),
                    None => left_out.push((why, vec![series], vec![point.threads])),
                }
            }
        }
    }
    let mut lines = Vec::new();
    while !left_out.is_empty() {
        let (why, mut series, counts) = left_out.remove(0);
        left_out.retain(|other| {
            let is_same = other.0 == why && other.2 == counts;
            if is_same {
                series.extend(&other.1);
            }
            !is_same
        });
        let Some((last, others)) = counts.split_last() else { continue };
        let on: String = others.iter().map(|count| format!("{count}, ")).collect();
        lines.push(format!("- Not shown here: {why}: {} on {on}{}", series.join(", "), cores.count(*last)));
    }
    lines.extend(failed);
    lines
}

/// Options whose values are joined on one line.
const VARIED: [&str; 3] = ["--threads", "--simulate-cores", "--seed"];

fn commands(measured: &Measured, cores: Cores) -> Vec<String> {
    let runs = measured.points.iter().filter(|point| point.cores == cores).flat_map(|point| &point.runs);
    // Each word of a line may have several values.
    let mut lines: Vec<Vec<Vec<&str>>> = Vec::new();
    for run in runs.filter(|run| matches!(run.answer, Answer::Report(_))) {
        let words: Vec<&str> = run.command.split(' ').collect();
        let varies = |at: usize| at > 0 && VARIED.contains(&words[at - 1]);
        let fits = |known: &&mut Vec<Vec<&str>>| {
            known.len() == words.len() && (0..words.len()).all(|at| varies(at) || known[at][0] == words[at])
        };
        match lines.iter_mut().find(fits) {
            Some(known) => {
                for (values, word) in known.iter_mut().zip(&words).filter(|(values, word)| !values.contains(word)) {
                    values.push(word);
                }
            }
            None => lines.push(words.iter().map(|word| vec![*word]).collect()),
        }
    }
    let joined = |words: Vec<Vec<&str>>| words.iter().map(|values| values.join("|")).collect::<Vec<_>>().join(" ");
    lines.into_iter().map(joined).collect()
}

/// Text on one line.
pub(crate) fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The file: a line for each figure, so that a measurement changes few lines.
pub(crate) fn to_text(paper: &Paper) -> serde_json::Result<String> {
    let mut text = String::new();
    for (number, kept) in paper {
        let comma = if text.is_empty() { "{\n" } else { ",\n" };
        let _ = write!(text, "{comma}{}: {}", serde_json::to_string(number)?, serde_json::to_string(kept)?);
    }
    Ok(if text.is_empty() { "{}\n".to_owned() } else { text + "\n}\n" })
}
