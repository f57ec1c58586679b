//! The page of a paper: each figure with the paper's claims, the verdicts here, and the commands.

use std::fmt::Write;

use serde_json::Value;

use crate::FIGURES;
use crate::draw::{Panels, x_name};
use crate::figure::{Axis, Figure, Paper, View};
use crate::judge::{self, Verdict, shortly};
use crate::kept::{self, Kept, line};
use crate::measured::{Cores, Curves, Origin, Size};
use crate::run::verdicts;

/// The page, with all figures of the paper.
pub(crate) fn page(paper: &Paper, kept: &kept::Paper) -> String {
    let mut text = format!(
        "# Figures of {}\n\n{}.\n\nWritten by `seriatim figures {}`. What the paper shows is judged as relations: \
         absolute numbers do not travel. Points that were run several times are medians. A relation on threads is \
         judged by an interval over rounds, and cannot be told where that covers the bound. Points with `--settle` are \
         warmed up until throughput is stationary: until a second has that of the one before, or, of partitions, until \
         both halves of the measured time have the same, up to a tenth. A relation that needs more threads than were \
         measured, or regions where there are none, is not shown. One of a simulation that is not proven is neither \
         confirmed nor refuted. Of commands, `--threads 1|2` is a run with each.\n",
        paper.title, paper.source, paper.name
    );
    for figure in FIGURES.iter().filter(|figure| figure.paper.name == paper.name) {
        let _ = write!(text, "\n## {}: {}\n\n", figure.label(), figure.title);
        let is_measured = |kept: &&Kept| kept.cores.values().any(|shown| shown.origin.is_some());
        match kept.get(&figure.number).filter(is_measured) {
            Some(kept) => text += &section(figure, kept),
            None => {
                let _ = writeln!(text, "Not measured yet: `seriatim figures {} --only {}`.", paper.name, figure.number);
            }
        }
    }
    text
}

fn section(figure: &Figure, kept: &Kept) -> String {
    let panels = Panels::of(figure, kept);
    let mut text = String::new();
    if !panels.is_empty() {
        let _ = write!(text, "![{}]({}.svg)\n\n", figure.title, figure.file());
    }
    for (why, titles) in &panels.left_out {
        let _ = write!(text, "Not drawn: {}: {}.\n\n", line(why), titles.join("; "));
    }
    if kept.size == Size::Small {
        text += "**Small size**: it shows that the commands run and are drawn, and says nothing of speed.\n\n";
    }
    let _ = write!(text, "**The paper:** {}\n\n**Here:** {}\n\n{}\n\n", figure.paper_shows, figure.here, origins(kept));
    text += &claims(figure, kept);
    for view in &figure.views {
        for &cores in kept.cores.keys() {
            text += &table(view, cores, &kept.curves(view, cores));
        }
    }
    let lines = |of: fn(&kept::Shown) -> &Vec<String>| -> String {
        kept.cores.values().flat_map(of).map(|line| format!("{line}\n")).collect()
    };
    let missing = lines(|shown| &shown.missing);
    if !missing.is_empty() {
        let _ = writeln!(text, "{missing}");
    }
    let commands = lines(|shown| &shown.commands);
    if !commands.is_empty() {
        let _ = write!(text, "<details><summary>The commands</summary>\n\n```text\n{commands}```\n\n</details>\n");
    }
    text
}

/// The programs and machines that measured, once if there is one.
fn origins(kept: &Kept) -> String {
    let mut origins = kept.cores.iter().filter_map(|(&cores, shown)| Some((cores, shown.origin.as_ref()?)));
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

fn claims(figure: &Figure, kept: &Kept) -> String {
    let mut text = relations(figure, kept, "what the paper shows", false);
    if figure.claims.iter().any(|claim| claim.ours) {
        text += &relations(figure, kept, "besides, not the paper's", true);
    }
    text
}

/// The verdicts of a figure's claims that are the paper's, or of those that are ours, and why they differ.
fn relations(figure: &Figure, kept: &Kept, title: &str, ours: bool) -> String {
    let mut text = format!("| {title} |");
    kept.cores.keys().for_each(|cores| text += &format!(" {} |", heading(*cores)));
    text += &format!("\n|---|{}\n", "---|".repeat(kept.cores.len()));
    // Each reason with all that it explains.
    let mut reasons: Vec<(&str, String)> = Vec::new();
    let verdicts = figure.claims.iter().zip(verdicts(figure, kept));
    for (claim, (says, verdicts)) in verdicts.filter(|(claim, _)| claim.ours == ours) {
        text += &format!("| {} |", cell(says));
        verdicts.iter().for_each(|(_, verdict)| text += &format!(" {} |", cell(&verdict.to_string())));
        text.push('\n');
        let view = figure.view(&claim.view).map(|at| &figure.views[at]);
        // Of a simulation that is not proven, and of what cannot be told, only a reason that was found.
        let is_known = |(cores, verdict): &(Cores, Verdict)| match verdict {
            Verdict::Unproven { .. } | Verdict::CannotTell { .. } => {
                view.is_some_and(|view| judge::is_outside(claim, &kept.curves(view, *cores)))
            }
            _ => false,
        };
        let differs = verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Differs { .. }));
        if differs || !claim.because.is_empty() && verdicts.iter().any(is_known) {
            let why = if claim.because.is_empty() { "the reason is not known." } else { &claim.because };
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, of)) => *of += &format!("; that {says}"),
                None => reasons.push((why, format!("- Why it differs that {says}"))),
            }
        }
    }
    text.push('\n');
    reasons.iter().for_each(|(why, of)| text += &format!("{of}: {why}\n"));
    if !reasons.is_empty() {
        text.push('\n');
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
    let regions = if shown.backends.is_empty() { "" } else { &format!(" (regions {})", shown.backends.join(", ")) };
    let mut text = format!("{title}{axis}, {}{regions}:\n\n|  |", heading(cores));
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

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    line(text).replace('|', "\\|")
}
