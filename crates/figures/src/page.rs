//! The page of a paper: each figure with the paper's claims, the verdicts here, and the commands.

use std::fmt::Write;

use serde_json::Value;

use crate::FIGURES;
use crate::draw::{Panels, x_name};
use crate::figure::{Axis, Figure, Paper, View};
use crate::home::Home;
use crate::judge::{Verdict, shortly};
use crate::measured::{Answer, Cores, Curves, Measured, Origin, Size};
use crate::run::verdicts;

/// The page, with all figures of the paper that the directory has.
pub(crate) fn page(paper: &Paper, home: &Home<'_>) -> String {
    let mut text = format!(
        "# Figures of {}\n\n{}.\n\nWritten by `seriatim figures {}`. What the paper shows is judged as relations: \
         absolute numbers do not travel. Points that were run several times are medians. A relation on threads is \
         judged by an interval over rounds, and cannot be told where that covers the bound. Points with `--settle` are \
         warmed up until throughput is stationary: until a second has that of the one before, or, of partitions, until \
         both halves of the measured time have the same, up to a tenth. A relation that needs more threads than were \
         measured, or regions where there are none, or a simulation that is not proven, is not shown. Of commands, \
         `--threads 1|2` is a run with each.\n",
        paper.title, paper.source, paper.name
    );
    for figure in FIGURES.iter().filter(|figure| figure.paper.name == paper.name) {
        let _ = write!(text, "\n## {}: {}\n\n", figure.label(), figure.title);
        match home.measured(&figure.file()) {
            Some(measured) => text += &section(figure, &measured),
            None => {
                let _ = writeln!(text, "Not measured yet: `seriatim figures {} --only {}`.", paper.name, figure.number);
            }
        }
    }
    text
}

fn section(figure: &Figure, measured: &Measured) -> String {
    let panels = Panels::of(figure, measured);
    let mut text = String::new();
    if !panels.is_empty() {
        let _ = write!(text, "![{}]({}.svg)\n\n", figure.title, figure.file());
    }
    for (why, titles) in &panels.left_out {
        let _ = write!(text, "Not drawn: {}: {}.\n\n", line(why), titles.join("; "));
    }
    if measured.size == Size::Small {
        text += "**Small size**: it shows that the commands run and are drawn, and says nothing of speed.\n\n";
    }
    let _ =
        write!(text, "**The paper:** {}\n\n**Here:** {}\n\n{}\n\n", figure.paper_shows, figure.here, origins(measured));
    text += &claims(figure, measured);
    for view in &figure.views {
        for cores in measured.cores() {
            text += &table(view, cores, &measured.curves(view, cores));
        }
    }
    text += &missing(measured);
    text += &commands(measured);
    text
}

/// The programs and machines that measured, once if there is one.
fn origins(measured: &Measured) -> String {
    let mut origins = measured.cores().into_iter().filter_map(|cores| Some((cores, measured.origins.get(&cores)?)));
    match (origins.next(), origins.next()) {
        (Some((_, first)), Some((_, second))) if first != second => {
            let each = [(Cores::Real, first), (Cores::Simulated, second)];
            each.map(|(cores, from)| format!("Of {}: {}", heading(cores), origin(from).replacen('M', "m", 1)))
                .join("\n\n")
        }
        (first, _) => first.map_or_else(String::new, |(_, first)| origin(first)),
    }
}

fn origin(origin: &Origin) -> String {
    let field = |name: &str| match &origin.machine[name] {
        Value::String(text) => text.clone(),
        Value::Null => "unknown".to_owned(),
        other => other.to_string(),
    };
    format!(
        "Measured by revision {} (program {}) on {} processors, {}; RTM: {}.",
        origin.revision,
        origin.program,
        field("cores"),
        field("processor"),
        field("rtm")
    )
}

fn heading(cores: Cores) -> &'static str {
    match cores {
        Cores::Real => "threads of this machine",
        Cores::Simulated => "simulated cores",
    }
}

fn claims(figure: &Figure, measured: &Measured) -> String {
    let mut text = relations(figure, measured, "what the paper shows", false);
    if figure.claims.iter().any(|claim| claim.ours) {
        text += &relations(figure, measured, "besides, not the paper's", true);
    }
    text
}

/// The verdicts of a figure's claims that are the paper's, or of those that are ours, and why they differ.
fn relations(figure: &Figure, measured: &Measured, title: &str, ours: bool) -> String {
    let all = measured.cores();
    let mut text = format!("| {title} |");
    all.iter().for_each(|cores| text += &format!(" {} |", heading(*cores)));
    text += &format!("\n|---|{}\n", "---|".repeat(all.len()));
    let mut reasons = String::new();
    let verdicts = figure.claims.iter().zip(verdicts(figure, measured));
    for (claim, (says, verdicts)) in verdicts.filter(|(claim, _)| claim.ours == ours) {
        text += &format!("| {} |", cell(says));
        verdicts.iter().for_each(|(_, verdict)| text += &format!(" {} |", cell(&verdict.to_string())));
        text.push('\n');
        if verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Differs { .. })) {
            let why = if claim.because.is_empty() { "the reason is not known." } else { &claim.because };
            let _ = writeln!(reasons, "- Why it differs that {says}: {why}");
        }
    }
    text.push('\n');
    if !reasons.is_empty() {
        text += &format!("{reasons}\n");
    }
    text
}

/// The numbers of a view, a row for each curve.
fn table(view: &View, cores: Cores, shown: &Curves) -> String {
    if shown.curves.is_empty() {
        return String::new();
    }
    let xs = shown.xs();
    let axis = if let Axis::Number(name) = &view.x { format!(", by {name}") } else { String::new() };
    let title =
        [&view.title, view.shows.label()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
    let mut text = format!("{title}{axis}, {} (regions {}):\n\n|  |", heading(cores), shown.backends.join(", "));
    xs.iter().for_each(|x| text += &format!(" {} |", cell(&x_name(&view.x, *x))));
    text += &format!("\n|---|{}\n", "---|".repeat(xs.len()));
    for curve in &shown.curves {
        text += &format!("| {} |", cell(&curve.name));
        xs.iter().for_each(|x| text += &format!(" {} |", curve.at(*x).map_or_else(String::new, shortly)));
        text.push('\n');
    }
    text.push('\n');
    text
}

/// The points that could not be run, by the reason, and each that failed.
fn missing(measured: &Measured) -> String {
    // The reason, the cores, the curves, and the counts of threads.
    let mut left_out: Vec<(String, Cores, Vec<&str>, Vec<usize>)> = Vec::new();
    let mut failed = String::new();
    for (point, run) in measured.points.iter().flat_map(|point| point.runs.iter().map(move |run| (point, run))) {
        match &run.answer {
            Answer::Report(_) => {}
            Answer::Failed(why) => {
                let on = point.cores.count(point.threads);
                failed += &format!("- **Failed**: {} on {on}: {} (`{}`)\n", point.series, line(why), run.command);
            }
            Answer::NotHere(why) => {
                let (why, series) = (line(why), point.series.as_str());
                let same = |known: &&mut (String, Cores, Vec<&str>, Vec<usize>)| {
                    known.0 == why && known.1 == point.cores && known.2 == [series]
                };
                match left_out.iter_mut().find(same) {
                    Some((.., counts)) if counts.contains(&point.threads) => {}
                    Some((.., counts)) => counts.push(point.threads),
                    None => left_out.push((why, point.cores, vec![series], vec![point.threads])),
                }
            }
        }
    }
    let mut text = String::new();
    while !left_out.is_empty() {
        let (why, cores, mut series, counts) = left_out.remove(0);
        left_out.retain(|other| {
            let is_same = other.0 == why && other.1 == cores && other.3 == counts;
            if is_same {
                series.extend(&other.2);
            }
            !is_same
        });
        let Some((last, others)) = counts.split_last() else { continue };
        let on: String = others.iter().map(|count| format!("{count}, ")).collect();
        let _ = writeln!(text, "- Not shown here: {why}: {} on {on}{}", series.join(", "), cores.count(*last));
    }
    text += &failed;
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Options whose values are joined on one line.
const VARIED: [&str; 3] = ["--threads", "--simulate-cores", "--seed"];

fn commands(measured: &Measured) -> String {
    let mut text = "<details><summary>The commands</summary>\n\n```text\n".to_owned();
    let runs = measured.points.iter().flat_map(|point| &point.runs);
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
    for words in lines {
        let words: Vec<String> = words.iter().map(|values| values.join("|")).collect();
        let _ = writeln!(text, "{}", words.join(" "));
    }
    text + "```\n\n</details>\n"
}

/// Text on one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    line(text).replace('|', "\\|")
}
