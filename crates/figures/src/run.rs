//! Measures figures and writes their files.

use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::draw;
use crate::figure::{Figure, Paper};
use crate::home::{Home, Reports};
use crate::judge::{self, Verdict};
use crate::measured::{Answer, Cores, Curves, FORMAT, Measured, MeasuredPoint, Origin, Run};
use crate::page;
use crate::setting::Setting;

/// What to draw, how, where.
#[derive(Debug)]
pub struct Job<'a> {
    /// The figures.
    pub figures: &'a [&'static Figure],
    /// What they are measured with.
    pub setting: &'a Setting,
    /// Measures points on these alone; of others it shows what the directory has.
    pub cores: Option<Cores>,
    /// What measures.
    pub origin: &'a Origin,
    /// Where the files go.
    pub directory: &'a Path,
}

/// What the one who waits may want to know.
#[derive(Debug)]
pub enum Event<'a> {
    /// A file that is there was not used; why.
    PassedOver(&'a str),
    /// So many commands of so many are done, and this one comes next.
    Next {
        /// Commands that are done, those of earlier runs included.
        done: usize,
        /// All of them.
        of: usize,
        /// The figure.
        figure: &'a str,
        /// The command.
        command: &'a str,
    },
    /// A command failed; why.
    Failed {
        /// The command.
        command: &'a str,
        /// Why.
        why: &'a str,
    },
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Commands that printed a report, now or in an earlier run.
    pub measured: usize,
    /// Of these, those that an earlier run or another figure had.
    pub reused: usize,
    /// Commands that cannot be run here.
    pub left_out: usize,
    /// Commands that failed.
    pub failed: usize,
    /// Claims that hold.
    pub hold: usize,
    /// Claims that differ.
    pub differ: usize,
}

/// Measures and draws figures, and writes a page for each of their papers.
///
/// `ask` runs the program with arguments and says what came of it; `tell` hears what happens.
///
/// # Errors
/// When the directory cannot be read or written.
pub fn draw_all(
    job: &Job<'_>,
    ask: &mut dyn FnMut(&[String]) -> Answer,
    tell: &mut dyn FnMut(Event<'_>),
) -> io::Result<Summary> {
    let home = Home(job.directory);
    home.make()?;
    let (reports, passed_over) = home.reports(job.origin)?;
    passed_over.iter().for_each(|line| tell(Event::PassedOver(line)));
    let rounds = |figure: &&Figure| -> usize {
        (figure.points)(job.setting).iter().map(|point| job.setting.rounds(point.cores) as usize).sum()
    };
    let of = job.figures.iter().map(rounds).sum();
    let mut work = Work { job, home, reports, ask, tell, done: 0, of, summary: Summary::default() };
    for figure in job.figures {
        work.measure(figure)?;
    }
    let Work { home, mut summary, .. } = work;
    summarize(job.figures, &home, &mut summary)?;
    Ok(summary)
}

/// Draws and judges what the directory has of these figures, by whichever program it was measured, and measures nothing.
///
/// # Errors
/// When the directory has none of them, or cannot be read or written.
pub fn draw_again(figures: &[&'static Figure], directory: &Path) -> io::Result<Summary> {
    let (home, mut summary) = (Home(directory), Summary::default());
    let found: Vec<_> = figures.iter().filter_map(|figure| Some((*figure, home.measured(&figure.file())?))).collect();
    if found.is_empty() {
        let none = format!("{}: none of these figures was measured there", directory.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, none));
    }
    for (figure, measured) in found {
        for run in measured.points.iter().flat_map(|point| &point.runs) {
            match run.answer {
                Answer::Report(_) => (summary.measured, summary.reused) = (summary.measured + 1, summary.reused + 1),
                Answer::NotHere(_) => summary.left_out += 1,
                Answer::Failed(_) => summary.failed += 1,
            }
        }
        keep(&home, figure, &measured)?;
        draw(&home, figure, &measured)?;
    }
    summarize(figures, &home, &mut summary)?;
    Ok(summary)
}

/// Writes the pages of the figures' papers, and counts what became of claims.
fn summarize(figures: &[&'static Figure], home: &Home<'_>, summary: &mut Summary) -> io::Result<()> {
    for paper in Paper::ALL.into_iter().filter(|paper| figures.iter().any(|figure| figure.paper == *paper)) {
        home.write(&format!("{}.md", paper.name()), &page::page(paper, home))?;
    }
    for (figure, measured) in figures.iter().filter_map(|figure| Some((figure, home.measured(&figure.file())?))) {
        for verdict in verdicts(figure, &measured).into_iter().flat_map(|(_, verdicts)| verdicts) {
            match verdict.1 {
                Verdict::Holds { .. } => summary.hold += 1,
                Verdict::Differs { .. } => summary.differ += 1,
                Verdict::NotShown { .. } => {}
            }
        }
    }
    Ok(())
}

/// What is to be said of each claim of a figure, on each kind of cores that it has points for.
pub(crate) fn verdicts(figure: &Figure, measured: &Measured) -> Vec<(&'static str, Vec<(Cores, Verdict)>)> {
    let all = measured.cores();
    let curves = |view| all.iter().map(|&cores| (cores, measured.curves(view, cores))).collect();
    let shown: Vec<Vec<(Cores, Curves)>> = figure.views.iter().map(curves).collect();
    let of = |claim: &crate::Claim| {
        let judge = |(cores, shown): &(Cores, Curves)| (*cores, judge::judge(claim, shown, measured.size, *cores));
        shown[claim.view].iter().map(judge).collect()
    };
    figure.claims.iter().map(|claim| (claim.says, of(claim))).collect()
}

struct Work<'a> {
    job: &'a Job<'a>,
    home: Home<'a>,
    reports: Reports,
    ask: &'a mut dyn FnMut(&[String]) -> Answer,
    tell: &'a mut dyn FnMut(Event<'_>),
    done: usize,
    of: usize,
    summary: Summary,
}

impl Work<'_> {
    /// Measures a figure's points in rounds, so that what the machine does meanwhile meets all curves alike.
    fn measure(&mut self, figure: &'static Figure) -> io::Result<()> {
        let (id, setting) = (figure.id(), self.job.setting);
        let points = (figure.points)(setting);
        let measured = points.iter().map(|point| MeasuredPoint {
            part: point.part.to_owned(),
            cores: point.cores,
            threads: point.threads,
            series: point.series.clone(),
            x: point.x,
            runs: Vec::new(),
        });
        let mut measured = Measured {
            format: FORMAT,
            figure: id.clone(),
            size: setting.size,
            origin: self.job.origin.clone(),
            points: measured.collect(),
        };
        let rounds = points.iter().map(|point| setting.rounds(point.cores)).max().unwrap_or(0);
        for round in 0..rounds {
            for (at, point) in points.iter().enumerate().filter(|(_, point)| round < setting.rounds(point.cores)) {
                let seed = setting.seed.wrapping_add(u64::from(round)).to_string();
                let more = ["--seed", &seed, "--format", "json"].map(str::to_owned);
                let arguments = [&point.arguments[..], &more].concat();
                let command = format!("seriatim {}", arguments.join(" "));
                let (done, of) = (self.done, self.of);
                (self.tell)(Event::Next { done, of, figure: &id, command: &command });
                let answer = self.answer(&command, &arguments, point.cores);
                self.done += 1;
                let is_new = !self.reports.contains_key(&command);
                if let (true, Answer::Report(report)) = (is_new, &answer) {
                    self.reports.insert(command.clone(), report.clone());
                }
                measured.points[at].runs.push(Run { command, answer });
                if is_new {
                    // What is concluded of it waits until there is all.
                    write(&self.home, figure, &record(&measured)?)?;
                }
            }
        }
        keep(&self.home, figure, &measured)?;
        draw(&self.home, figure, &measured)
    }

    fn answer(&mut self, command: &str, arguments: &[String], cores: Cores) -> Answer {
        if let Some(report) = self.reports.get(command) {
            self.summary.measured += 1;
            self.summary.reused += 1;
            return Answer::Report(report.clone());
        }
        if self.job.cores.is_some_and(|wanted| wanted != cores) {
            self.summary.left_out += 1;
            return Answer::NotHere("left to another run (--cores)".to_owned());
        }
        let answer = (self.ask)(arguments);
        match answer {
            Answer::Report(mut report) => {
                self.summary.measured += 1;
                // Said once, of all runs.
                if let Some(fields) = report.as_object_mut() {
                    fields.remove("machine");
                }
                Answer::Report(report)
            }
            Answer::NotHere(why) => {
                self.summary.left_out += 1;
                Answer::NotHere(why)
            }
            Answer::Failed(why) => {
                self.summary.failed += 1;
                (self.tell)(Event::Failed { command, why: &why });
                Answer::Failed(why)
            }
        }
    }
}

/// Draws what was measured.
fn draw(home: &Home<'_>, figure: &Figure, measured: &Measured) -> io::Result<()> {
    let drawing = draw::draw(figure, measured).map_err(|error| io::Error::other(error.to_string()))?;
    home.write(&format!("{}.svg", figure.file()), &drawing)?;
    Ok(())
}

/// Writes a figure's file: what was measured, and what is shown and concluded of it.
fn keep(home: &Home<'_>, figure: &Figure, measured: &Measured) -> io::Result<()> {
    let mut file = record(measured)?;
    let fields = file.as_object_mut().ok_or_else(|| io::Error::other("a figure's file is an object"))?;
    fields.insert("title".to_owned(), json!(figure.title));
    fields.insert("paper_shows".to_owned(), json!(figure.paper_shows));
    fields.insert("views".to_owned(), views(figure, measured));
    let claims = verdicts(figure, measured).into_iter().map(|(says, verdicts)| {
        let on = |cores| verdicts.iter().find(|verdict| verdict.0 == cores).map(|verdict| json!(verdict.1));
        json!({ "says": says, "real": on(Cores::Real), "simulated": on(Cores::Simulated) })
    });
    fields.insert("claims".to_owned(), claims.collect());
    write(home, figure, &file)
}

/// What was measured, as the figure's file has it.
fn record(measured: &Measured) -> io::Result<Value> {
    serde_json::to_value(measured).map_err(io::Error::other)
}

fn write(home: &Home<'_>, figure: &Figure, file: &Value) -> io::Result<()> {
    home.write(&format!("{}.json", figure.file()), &format!("{file:#}\n")).map(drop)
}

/// The curves of all views.
fn views(figure: &Figure, measured: &Measured) -> Value {
    let of = |view: &crate::View| {
        let mut shown = Map::new();
        shown.insert("title".to_owned(), json!(view.title));
        shown.insert("y".to_owned(), json!(view.shows.label()));
        for cores in measured.cores() {
            shown.insert(
                json!(cores).as_str().unwrap_or_default().to_owned(),
                json!(measured.curves(view, cores).curves),
            );
        }
        Value::Object(shown)
    };
    figure.views.iter().map(of).collect()
}
