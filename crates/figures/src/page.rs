//! The page of a paper: each figure beside the paper's claims, what is found here, and the commands.

use std::fmt::Write;

use serde_json::Value;

use crate::FIGURES;
use crate::draw::x_name;
use crate::figure::{Axis, Figure, Paper, View};
use crate::home::Home;
use crate::judge::{Verdict, shortly};
use crate::measured::{Answer, Cores, Curves, Measured, Origin, Size};
use crate::run::verdicts;

/// The page, of all figures of the paper that the directory has.
pub(crate) fn page(paper: Paper, home: &Home<'_>) -> String {
    let mut text = format!(
        "# Figures of {}\n\n{}.\n\nWritten by `seriatim figures {}`. What the paper shows is judged as relations: absolute numbers do not travel. \
         Points that were run several times are medians. A relation that needs more threads than were measured, or regions where there \
         are none, is not shown.\n",
        paper.title(),
        paper.source(),
        paper.name()
    );
    for figure in FIGURES.iter().filter(|figure| figure.paper == paper) {
        let _ = write!(text, "\n## {}: {}\n\n", figure.label(), figure.title);
        match home.measured(&figure.file()) {
            Some(measured) => text += &section(figure, &measured),
            None => {
                let _ =
                    writeln!(text, "Not measured yet: `seriatim figures {} --only {}`.", paper.name(), figure.number);
            }
        }
    }
    text
}

fn section(figure: &Figure, measured: &Measured) -> String {
    let mut text = format!("![{}]({}.svg)\n\n", figure.title, figure.file());
    if measured.size == Size::Small {
        text += "**Small size**: it shows that the commands run and are drawn, and says nothing of speed.\n\n";
    }
    let _ = write!(
        text,
        "**The paper:** {}\n\n**Here:** {}\n\n{}\n\n",
        figure.paper_shows,
        figure.here,
        origin(&measured.origin)
    );
    text += &claims(figure, measured);
    for view in figure.views {
        for cores in measured.cores() {
            text += &table(view, cores, &measured.curves(view, cores));
        }
    }
    text += &missing(measured);
    text += &commands(measured);
    text
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
    let all = measured.cores();
    let mut text = "| what the paper shows |".to_owned();
    all.iter().for_each(|cores| text += &format!(" {} |", heading(*cores)));
    text += &format!("\n|---|{}\n", "---|".repeat(all.len()));
    let mut reasons = String::new();
    for (claim, (says, verdicts)) in figure.claims.iter().zip(verdicts(figure, measured)) {
        text += &format!("| {} |", cell(says));
        verdicts.iter().for_each(|(_, verdict)| text += &format!(" {} |", cell(&verdict.to_string())));
        text.push('\n');
        if verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Differs { .. })) {
            let why = if claim.because.is_empty() { "the reason is not known." } else { claim.because };
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
    let axis = if let Axis::Number(name) = view.x { format!(", by {name}") } else { String::new() };
    let title =
        [view.title, view.shows.label()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
    let mut text = format!("{title}{axis}, {} (regions {}):\n\n|  |", heading(cores), shown.backends.join(", "));
    xs.iter().for_each(|x| text += &format!(" {} |", cell(&x_name(view.x, *x))));
    text += &format!("\n|---|{}\n", "---|".repeat(xs.len()));
    for curve in &shown.curves {
        text += &format!("| {} |", cell(&curve.name));
        xs.iter().for_each(|x| text += &format!(" {} |", curve.at(*x).map_or_else(String::new, shortly)));
        text.push('\n');
    }
    text.push('\n');
    text
}

/// What could not be run, by the reason; and what failed, each.
fn missing(measured: &Measured) -> String {
    let mut left_out: Vec<(String, Vec<String>)> = Vec::new();
    let mut failed = String::new();
    for (point, run) in measured.points.iter().flat_map(|point| point.runs.iter().map(move |run| (point, run))) {
        let what = format!("{} on {}", point.series, point.cores.count(point.threads));
        match &run.answer {
            Answer::Report(_) => {}
            Answer::Failed(why) => failed += &format!("- **Failed**: {what}: {} (`{}`)\n", line(why), run.command),
            Answer::NotHere(why) => match left_out.iter_mut().find(|(known, _)| *known == line(why)) {
                Some((_, all)) if all.contains(&what) => {}
                Some((_, all)) => all.push(what),
                None => left_out.push((line(why), vec![what])),
            },
        }
    }
    let mut text: String =
        left_out.iter().map(|(why, all)| format!("- Not shown here: {why}: {}\n", all.join(", "))).collect();
    text += &failed;
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn commands(measured: &Measured) -> String {
    let mut text = "<details><summary>The commands</summary>\n\n```text\n".to_owned();
    let runs = measured.points.iter().flat_map(|point| &point.runs);
    for run in runs.filter(|run| matches!(run.answer, Answer::Report(_))) {
        text += &format!("{}\n", run.command);
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
