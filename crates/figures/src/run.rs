//! Measures figures and writes their files.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::data::{FIGURES, PAPERS};
use crate::draw;
use crate::figure::{Claim, Figure};
use crate::home::{Home, Reports};
use crate::judge::{self, Verdict};
use crate::kept::Kept;
use crate::measured::{Answer, Cores, Curves, FORMAT, Measured, MeasuredPoint, Origin, Run};
use crate::page;
use crate::setting::Setting;

/// Runs the program with each of these arguments on these cores, and reports the answer of each with its index, in any
/// order. On simulated cores several may run at a time, since they do not disturb each other.
pub type Ask<'a> = dyn FnMut(Cores, &[&[String]], &mut dyn FnMut(usize, Answer)) + 'a;

/// The figures to draw, the program that measures them, and the directory.
#[derive(Debug)]
pub struct Job<'a> {
    /// The figures.
    pub figures: &'a [&'static Figure],
    /// The setting of their measurement.
    pub setting: &'a Setting,
    /// Measures only points on these; the others are shown as the directory has them.
    pub cores: Option<Cores>,
    /// The program and machine that measure.
    pub origin: &'a Origin,
    /// Where the files go.
    pub directory: &'a Path,
}

/// Events while figures are measured.
#[derive(Debug)]
pub enum Event<'a> {
    /// An existing file was not used; why.
    PassedOver(&'a str),
    /// Progress: a command of this figure comes next.
    Next {
        /// Commands that are done, including those of earlier runs.
        done: usize,
        /// All commands.
        of: usize,
        /// The figure.
        figure: &'a str,
    },
    /// A command failed; why.
    Failed {
        /// The command.
        command: &'a str,
        /// Why.
        why: &'a str,
    },
}

/// Counts of commands and verdicts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Commands that printed a report, now or in an earlier run.
    pub measured: usize,
    /// Those of them that an earlier run or another figure had.
    pub reused: usize,
    /// Commands that cannot be run here.
    pub left_out: usize,
    /// Commands that failed.
    pub failed: usize,
    /// Claims that hold.
    pub hold: usize,
    /// Claims that differ.
    pub differ: usize,
    /// Claims that cannot be told.
    pub cannot_tell: usize,
}

/// Measures and draws figures, and writes a page for each of their papers.
///
/// `ask` runs the program, and `notify` is called with what happens.
///
/// # Errors
/// When the directory cannot be read or written.
pub fn draw_all(job: &Job<'_>, ask: &mut Ask<'_>, notify: &mut dyn FnMut(Event<'_>)) -> io::Result<Summary> {
    let home = Home(job.directory);
    home.make()?;
    let (reports, passed_over) = home.reports(job.origin, job.cores)?;
    passed_over.iter().for_each(|line| notify(Event::PassedOver(line)));
    let rounds = |figure: &&Figure| -> usize {
        figure.points(job.setting).iter().map(|point| job.setting.rounds(point.cores) as usize).sum()
    };
    let of = job.figures.iter().map(rounds).sum();
    let mut work = Work { job, home, reports, notify, done: 0, of, reused: 0 };
    for figure in job.figures {
        work.measure(figure, ask)?;
    }
    let Work { home, reused, .. } = work;
    let mut summary = Summary { reused, ..Summary::default() };
    summarize(job.figures, &home, &mut summary)?;
    Ok(summary)
}

/// Draws and judges what the directory has of these figures, whichever program measured it. It measures nothing.
///
/// # Errors
/// When the directory has none of them, or cannot be read or written.
pub fn draw_again(figures: &[&'static Figure], directory: &Path) -> io::Result<Summary> {
    let (home, mut summary) = (Home(directory), Summary::default());
    for figure in figures {
        publish(&home, figure, home.measured(&figure.file()).as_ref())?;
    }
    summarize(figures, &home, &mut summary)?;
    if summary == Summary::default() {
        let none = format!("{}: none of these figures was measured there", directory.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, none));
    }
    summary.reused = summary.measured;
    Ok(summary)
}

/// Counts the runs and verdicts of the figures.
fn summarize(figures: &[&'static Figure], home: &Home<'_>, summary: &mut Summary) -> io::Result<()> {
    for name in PAPERS {
        let kept = home.kept(name)?;
        let of_paper = figures.iter().filter(|figure| figure.paper.name == name);
        for (figure, kept) in of_paper.filter_map(|figure| Some((figure, kept.get(&figure.number)?))) {
            for (reports, left_out, failed) in kept.cores.values().map(|shown| shown.runs) {
                summary.measured += reports;
                summary.left_out += left_out;
                summary.failed += failed;
            }
            for (_, verdict) in verdicts(figure, kept).into_iter().flat_map(|(_, verdicts)| verdicts) {
                match verdict {
                    Verdict::Holds { .. } => summary.hold += 1,
                    Verdict::Differs { .. } => summary.differ += 1,
                    Verdict::CannotTell { .. } => summary.cannot_tell += 1,
                    Verdict::Unproven { .. } | Verdict::NotShown { .. } => {}
                }
            }
        }
    }
    Ok(())
}

/// The verdicts of each claim of a figure, on each kind of cores that it has points for.
pub(crate) fn verdicts<'a>(figure: &'a Figure, kept: &Kept) -> Vec<(&'a str, Vec<(Cores, Verdict)>)> {
    let curves = |view| kept.cores.keys().map(|&cores| (cores, kept.curves(view, cores))).collect();
    let shown: Vec<Vec<(Cores, Curves)>> = figure.views.iter().map(curves).collect();
    let of = |claim: &Claim| {
        let judge = |(cores, shown): &(Cores, Curves)| (*cores, judge::judge(claim, shown, kept.size, *cores));
        let view = figure.view(&claim.view).expect("reading the data has looked it up");
        shown[view].iter().map(judge).collect()
    };
    figure.claims.iter().map(|claim| (claim.says.as_str(), of(claim))).collect()
}

struct Work<'a> {
    job: &'a Job<'a>,
    home: Home<'a>,
    reports: Reports,
    notify: &'a mut dyn FnMut(Event<'_>),
    done: usize,
    of: usize,
    reused: usize,
}

/// A figure while it is measured.
struct Drawing {
    /// The name of its files.
    file: String,
    measured: Measured,
}

/// One run of a point.
#[derive(Clone)]
struct Asked {
    /// Which point of the figure.
    at: usize,
    arguments: Vec<String>,
    command: String,
}

impl Work<'_> {
    /// Measures a figure's points: those on simulated cores at once, the others in rounds, so that other work of the
    /// machine affects all curves equally.
    fn measure(&mut self, figure: &Figure, ask: &mut Ask<'_>) -> io::Result<()> {
        let setting = self.job.setting;
        let points = figure.points(setting);
        let unmeasured = points.iter().map(|point| MeasuredPoint {
            part: point.part.clone(),
            cores: point.cores,
            threads: point.threads,
            series: point.series.clone(),
            x: point.x,
            runs: Vec::new(),
        });
        let measured = Measured {
            format: FORMAT,
            figure: figure.id(),
            size: setting.size,
            origins: BTreeMap::new(),
            points: unmeasured.collect(),
        };
        let mut drawing = Drawing { file: figure.file(), measured };
        let asked = |at: usize, round: u32| {
            let seed = setting.seed.wrapping_add(u64::from(round)).to_string();
            let more = ["--seed", &seed, "--format", "json"].map(str::to_owned);
            let arguments = [&points[at].arguments[..], &more].concat();
            Asked { at, command: format!("seriatim {}", arguments.join(" ")), arguments }
        };
        let on = |cores| (0..points.len()).filter(|&at| points[at].cores == cores).collect::<Vec<_>>();
        // The longest runs begin first.
        let mut simulated = on(Cores::Simulated);
        simulated.sort_by_key(|&at| Reverse(points[at].threads));
        let simulated = simulated.into_iter().map(|at| asked(at, 0)).collect();
        let (real, rounds) = (on(Cores::Real), 0..setting.rounds(Cores::Real));
        // Every other round goes backwards, so that drift affects all curves equally.
        let mut turns = Vec::new();
        for round in rounds {
            let turn = real.iter().map(|&at| asked(at, round));
            turns.extend(if round % 2 == 0 { turn.collect::<Vec<_>>() } else { turn.rev().collect() });
        }
        let real = turns;
        let (wanted, left): (Vec<_>, Vec<_>) = [(Cores::Simulated, simulated), (Cores::Real, real)]
            .into_iter()
            .partition(|(cores, _)| self.job.cores.is_none_or(|wanted| wanted == *cores));
        // The file's contents come first, since the file is replaced after each command.
        left.into_iter().for_each(|(cores, runs)| self.leave(&mut drawing, cores, runs));
        wanted.into_iter().try_for_each(|(cores, runs)| self.run(ask, &mut drawing, cores, runs))?;
        publish(&self.home, figure, Some(&drawing.measured))
    }

    /// Answers runs on cores that are not measured now from the figure's file, whichever program measured them, for
    /// whatever time and number of rounds.
    fn leave(&mut self, drawing: &mut Drawing, cores: Cores, runs: Vec<Asked>) {
        let before = self.home.measured(&drawing.file).filter(|before| before.size == drawing.measured.size);
        let (origins, points) = before.map(|before| (before.origins, before.points)).unwrap_or_default();
        drawing.measured.origins.extend(origins.into_iter().filter(|(kind, _)| *kind == cores));
        let done = self.done + runs.len();
        for run in runs {
            let point = &drawing.measured.points[run.at];
            match points.iter().find(|before| before.is_at(point) && !before.runs.is_empty()) {
                Some(before) if point.runs.is_empty() => {
                    for Run { command, answer } in before.runs.clone() {
                        self.reused += usize::from(matches!(answer, Answer::Report(_)));
                        self.note(drawing, &Asked { command, ..run.clone() }, answer);
                    }
                }
                // The first run of the point took all that the file has.
                Some(_) => {}
                None => self.note(drawing, &run, Answer::NotHere("not measured yet".to_owned())),
            }
        }
        self.done = done;
    }

    /// Answers runs on one kind of cores: from known reports, or else by asking.
    fn run(&mut self, ask: &mut Ask<'_>, drawing: &mut Drawing, cores: Cores, runs: Vec<Asked>) -> io::Result<()> {
        let (mut again, mut new) = (Vec::new(), Vec::<Asked>::new());
        for run in runs {
            let is_asked = new.iter().any(|other| other.command == run.command);
            if is_asked || self.reports.contains_key(&run.command) { &mut again } else { &mut new }.push(run);
        }
        drawing.measured.origins.insert(cores, self.job.origin.clone());
        if !new.is_empty() {
            let arguments: Vec<&[String]> = new.iter().map(|run| &run.arguments[..]).collect();
            let mut kept = Ok(());
            self.say(drawing);
            ask(cores, &arguments, &mut |at, answer| {
                self.note(drawing, &new[at], answer);
                // Views and verdicts are added when all answers are there.
                let text = serde_json::to_string(&drawing.measured).map_err(io::Error::other);
                let written = text.and_then(|text| self.home.write(&format!("{}.json", drawing.file), &text));
                kept = std::mem::replace(&mut kept, Ok(())).and(written.map(drop));
                self.say(drawing);
            });
            kept?;
        }
        for run in again {
            let answer = match self.reports.get(&run.command) {
                Some(report) => {
                    self.reused += 1;
                    Answer::Report(report.clone())
                }
                // The same command has failed just now.
                None => drawing.answer(&run.command),
            };
            self.note(drawing, &run, answer);
        }
        Ok(())
    }

    fn say(&mut self, drawing: &Drawing) {
        if self.done < self.of {
            (self.notify)(Event::Next { done: self.done, of: self.of, figure: &drawing.measured.figure });
        }
    }

    /// Records the answer of a run.
    fn note(&mut self, drawing: &mut Drawing, Asked { at, command, .. }: &Asked, mut answer: Answer) {
        self.done += 1;
        match &mut answer {
            Answer::Report(report) => {
                // The origin has it once for all runs.
                if let Some(fields) = report.as_object_mut() {
                    fields.remove("machine");
                }
                self.reports.entry(command.clone()).or_insert_with(|| report.clone());
            }
            Answer::NotHere(_) => {}
            Answer::Failed(why) => (self.notify)(Event::Failed { command, why }),
        }
        drawing.measured.points[*at].runs.push(Run { command: command.clone(), answer });
    }
}

impl Drawing {
    /// The answer of a command that was run.
    fn answer(&self, command: &str) -> Answer {
        let mut runs = self.measured.points.iter().flat_map(|point| &point.runs);
        runs.find(|run| run.command == command).expect("it was run").answer.clone()
    }
}

/// Draws a figure as it was measured, or else as its paper's file has it, and writes its files and the paper's page.
fn publish(home: &Home<'_>, figure: &Figure, measured: Option<&Measured>) -> io::Result<()> {
    let paper = &figure.paper;
    let mut kept = home.kept(paper.name)?;
    if let Some(measured) = measured {
        let now = Kept::of(figure, measured, kept.remove(&figure.number));
        keep(home, figure, measured, &now)?;
        kept.insert(figure.number.clone(), now);
    }
    // Measurements of programs that kept no paper's file.
    for other in FIGURES.iter().filter(|other| other.paper.name == paper.name) {
        if !kept.contains_key(&other.number)
            && let Some(measured) = home.measured(&other.file())
        {
            kept.insert(other.number.clone(), Kept::of(other, &measured, None));
        }
    }
    // Of a paper without measurements there is no page.
    if kept.is_empty() {
        return Ok(());
    }
    let name = format!("{}.svg", figure.file());
    let drawing = kept.get(&figure.number).map(|kept| draw::draw(figure, kept)).transpose();
    match drawing.map_err(|error| io::Error::other(error.to_string()))?.flatten() {
        Some(drawing) => home.write(&name, &drawing).map(drop)?,
        None => home.remove(&name)?,
    }
    home.keep(paper.name, &kept)?;
    home.write(&format!("{}.md", paper.name), &page::page(paper, &kept)).map(drop)
}

/// Writes a figure's file: the measurements, the curves of the views, and the verdicts.
fn keep(home: &Home<'_>, figure: &Figure, measured: &Measured, kept: &Kept) -> io::Result<()> {
    let mut file = serde_json::to_value(measured).map_err(io::Error::other)?;
    let fields = file.as_object_mut().ok_or_else(|| io::Error::other("a figure's file is an object"))?;
    fields.insert("title".to_owned(), json!(figure.title));
    fields.insert("paper_shows".to_owned(), json!(figure.paper_shows));
    fields.insert("views".to_owned(), views(figure, kept));
    let claims = figure.claims.iter().zip(verdicts(figure, kept)).map(|(claim, (says, verdicts))| {
        let on = |cores| verdicts.iter().find(|verdict| verdict.0 == cores).map(|verdict| json!(verdict.1));
        json!({ "says": says, "ours": claim.ours, "real": on(Cores::Real), "simulated": on(Cores::Simulated) })
    });
    fields.insert("claims".to_owned(), claims.collect());
    home.write(&format!("{}.json", figure.file()), &format!("{file:#}\n"))?;
    Ok(())
}

/// The curves of all views.
fn views(figure: &Figure, kept: &Kept) -> Value {
    let of = |view: &crate::View| {
        let mut shown = Map::new();
        shown.insert("title".to_owned(), json!(view.title));
        shown.insert("y".to_owned(), json!(view.shows.label()));
        for &cores in kept.cores.keys() {
            let name = json!(cores).as_str().unwrap_or_default().to_owned();
            shown.insert(name, json!(kept.curves(view, cores).curves));
        }
        Value::Object(shown)
    };
    figure.views.iter().map(of).collect()
}
