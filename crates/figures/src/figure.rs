//! What a figure is: points to measure, views that show them, and claims that are judged.

use serde_json::Value;

use crate::measured::Cores;
use crate::metric::Metric;
use crate::setting::Setting;

/// A paper whose figures are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Wang, Qian, Li, Chen, "Using Restricted Transactional Memory to Build a Scalable In-Memory Database", EuroSys 2014.
    Dbx,
    /// Wu and Tan, "Scalable In-Memory Transaction Processing with HTM", USENIX ATC 2016.
    Htcc,
    /// HTM with transaction chopping and eventual snapshots for in-memory transactions.
    DbxTc,
    /// Ding, Kot, Gehrke, "Improving Optimistic Concurrency Control Through Transaction Batching and Operation Reordering", PVLDB 12(2), 2018.
    Reordering,
    /// Jones, Abadi, Madden, "Low Overhead Concurrency Control for Partitioned Main Memory Databases", SIGMOD 2010.
    Speculation,
}

impl Paper {
    /// All of them.
    pub const ALL: [Paper; 5] = [Paper::Dbx, Paper::Htcc, Paper::DbxTc, Paper::Reordering, Paper::Speculation];

    /// The name on the command line and of files.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Dbx => "dbx",
            Paper::Htcc => "htcc",
            Paper::DbxTc => "dbx-tc",
            Paper::Reordering => "reordering",
            Paper::Speculation => "speculation",
        }
    }

    /// The name in titles.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Dbx => "DBX",
            Paper::Htcc => "HTCC",
            Paper::DbxTc => "DBX-TC",
            Paper::Reordering => "Reordering",
            Paper::Speculation => "Speculation",
        }
    }

    /// Authors, title and year.
    pub fn source(self) -> &'static str {
        match self {
            Paper::Dbx => {
                "Wang, Qian, Li, Chen: Using Restricted Transactional Memory to Build a Scalable In-Memory Database, EuroSys 2014"
            }
            Paper::Htcc => "Wu, Tan: Scalable In-Memory Transaction Processing with HTM, USENIX ATC 2016",
            Paper::DbxTc => "HTM with transaction chopping and eventual snapshots for in-memory transactions (DBX-TC)",
            Paper::Reordering => {
                "Ding, Kot, Gehrke: Improving Optimistic Concurrency Control Through Transaction Batching and Operation Reordering, PVLDB 12(2), 2018"
            }
            Paper::Speculation => {
                "Jones, Abadi, Madden: Low Overhead Concurrency Control for Partitioned Main Memory Databases, SIGMOD 2010"
            }
        }
    }
}

/// A figure or table of a paper.
#[derive(Debug)]
pub struct Figure {
    /// Which paper.
    pub paper: Paper,
    /// Its number there: `13`, or `table-1`.
    pub number: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What the paper measured and saw, as facts in our words.
    pub paper_shows: &'static str,
    /// What is run here, and how that departs from the paper.
    pub here: &'static str,
    /// What to measure.
    pub points: fn(&Setting) -> Vec<Point>,
    /// What is drawn, a row each.
    pub views: &'static [View],
    /// What should hold.
    pub claims: &'static [Claim],
}

impl Figure {
    /// `htcc/13`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.paper.name(), self.number)
    }

    /// The name of its files, without extension: `htcc-13`.
    pub fn file(&self) -> String {
        format!("{}-{}", self.paper.name(), self.number)
    }

    /// `Figure 13`, or `Table 1`.
    pub fn label(&self) -> String {
        match self.number.strip_prefix("table-") {
            Some(number) => format!("Table {number}"),
            None => format!("Figure {}", self.number),
        }
    }
}

/// One place of a curve: a command, run once or several times with other seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Which part of the figure, as [`View::part`] selects; empty where it has one part.
    pub part: &'static str,
    /// Threads of the machine or simulated cores.
    pub cores: Cores,
    /// How many of them.
    pub threads: usize,
    /// The curve.
    pub series: String,
    /// The place on it.
    pub x: f64,
    /// Arguments of the program, without seed and format.
    pub arguments: Vec<String>,
}

/// Something drawn of a figure's points: a panel for the machine's threads and one for simulated cores.
#[derive(Debug)]
pub struct View {
    /// What is beside the others; empty where there are no others.
    pub title: &'static str,
    /// The part of the points it shows.
    pub part: &'static str,
    /// What x is.
    pub x: Axis,
    /// What is shown of a point's report.
    pub shows: Shows,
}

/// What x counts.
#[derive(Clone, Copy, Debug)]
pub enum Axis {
    /// A number with this name: curves.
    Number(&'static str),
    /// An index into these names: bars.
    Named(&'static [&'static str]),
}

/// A place of a curve: its name, x and y.
pub type Place = (String, f64, f64);

/// What a view shows of a report.
#[derive(Clone, Copy, Debug)]
pub enum Shows {
    /// One number, at the point's x in its curve.
    One(Metric),
    /// Several places, each with its curve, from the point and its report; what the numbers are.
    Many(&'static str, fn(&Point, &Value) -> Vec<Place>),
}

impl Shows {
    /// What y is, with its unit.
    pub fn label(&self) -> &'static str {
        match self {
            Shows::One(metric) => metric.label,
            Shows::Many(label, _) => label,
        }
    }
}

/// A relation that the paper shows, or one of ours, to be judged here: a quantity and the interval it should lie in.
#[derive(Debug)]
pub struct Claim {
    /// The relation, with the paper's figures where it gives some.
    pub says: &'static str,
    /// Index of the view whose curves decide.
    pub view: usize,
    /// What is computed of them.
    pub quantity: Quantity,
    /// The least it should be.
    pub min: f64,
    /// The most it should be.
    pub max: f64,
    /// Threads from which the paper says so: with fewer it is not shown.
    pub threads: usize,
    /// Whether it says something of regions of a processor, or of modelled ones: where they are emulated or absent it is not shown.
    pub regions: bool,
    /// Whether it is no relation of the paper's: one that we ask of ours, or of a setting that the paper does not have.
    pub ours: bool,
    /// What is known of why it differs, where it does.
    pub because: &'static str,
}

impl Claim {
    /// Of the first view, whatever the number and the threads, until more is said.
    #[must_use]
    pub const fn new(says: &'static str, quantity: Quantity) -> Claim {
        let (min, max) = (f64::NEG_INFINITY, f64::INFINITY);
        Claim { says, view: 0, quantity, min, max, threads: 1, regions: false, ours: false, because: "" }
    }

    /// The curves of this view decide.
    #[must_use]
    pub const fn of_view(self, view: usize) -> Claim {
        Claim { view, ..self }
    }

    /// The number should be no less.
    #[must_use]
    pub const fn at_least(self, min: f64) -> Claim {
        Claim { min, ..self }
    }

    /// The number should be no more.
    #[must_use]
    pub const fn at_most(self, max: f64) -> Claim {
        Claim { max, ..self }
    }

    /// The number should lie between these, which it may be.
    #[must_use]
    pub const fn between(self, min: f64, max: f64) -> Claim {
        Claim { min, max, ..self }
    }

    /// The paper says so from so many threads on.
    #[must_use]
    pub const fn from_threads(self, threads: usize) -> Claim {
        Claim { threads, ..self }
    }

    /// It says something of regions.
    #[must_use]
    pub const fn about_regions(self) -> Claim {
        Claim { regions: true, ..self }
    }

    /// It is not the paper's.
    #[must_use]
    pub const fn ours(self) -> Claim {
        Claim { ours: true, ..self }
    }

    /// Why it differs, where it does.
    #[must_use]
    pub const fn because(self, because: &'static str) -> Claim {
        Claim { because, ..self }
    }
}

/// A number computed of a view's curves. "The largest x" is that of the view: a curve that was not measured there gives no number.
#[derive(Clone, Copy, Debug)]
pub enum Quantity {
    /// The first curve over the second, at the largest x.
    Ratio(&'static str, &'static str),
    /// The first curve over the second at this x.
    RatioAt(&'static str, &'static str, f64),
    /// The least of the ratio of two curves over all x that both have.
    LeastRatio(&'static str, &'static str),
    /// The most of the ratio of two curves over all x that both have.
    MostRatio(&'static str, &'static str),
    /// A curve over the highest of these others at the largest x.
    Lead(&'static str, &'static [&'static str]),
    /// The least of a curve over the highest of these others, over all x that all have.
    LeastLead(&'static str, &'static [&'static str]),
    /// A curve over the lowest of these others at the largest x.
    Trail(&'static str, &'static [&'static str]),
    /// A curve's growth from the smallest x to the largest, over the growth of x.
    Scaling(&'static str),
    /// The least [`Scaling`](Quantity::Scaling) of these curves.
    LeastScaling(&'static [&'static str]),
    /// A curve's value at the largest x over that at the smallest.
    Growth(&'static str),
    /// The least of a curve's value over that at the x before: above 1 where it rises all the time. Steps from nothing are passed over.
    LeastStep(&'static str),
    /// A curve's value at the largest x over its highest: 1 where it does not fall again.
    Fall(&'static str),
    /// The ratio of two curves at the largest x over that at the smallest: above 1 where the gap widens.
    Widening(&'static str, &'static str),
    /// The value of a curve at the largest x.
    Value(&'static str),
    /// The value of a curve at this x.
    ValueAt(&'static str, f64),
    /// The ratio of a curve's values at two x: the second's over the first's.
    Between(&'static str, f64, f64),
    /// The sum of curves at the largest x.
    Sum(&'static [&'static str]),
}
