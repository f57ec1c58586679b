//! The definition of a figure: runs that measure, views that show them, and claims that are judged. All of it is read
//! from data.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::measured::Cores;
use crate::metric::Metric;
use crate::plan::{Plan, Words};
use crate::setting::Setting;

/// A paper whose figures are drawn.
#[derive(Debug)]
pub struct Paper {
    /// The name on the command line and of files.
    pub name: &'static str,
    /// The name in titles.
    pub title: String,
    /// Authors, title and year.
    pub source: String,
    /// Texts that commands are made of, by name.
    pub(crate) words: Words,
}

/// A figure or table of a paper.
#[derive(Debug)]
pub struct Figure {
    /// Which paper.
    pub paper: Arc<Paper>,
    /// Its number there: `13`, or `table-1`.
    pub number: String,
    /// Its subject.
    pub title: String,
    /// The paper's measurements and findings, as facts in our words.
    pub paper_shows: String,
    /// The runs here, and their departures from the paper.
    pub here: String,
    /// The measurements.
    pub(crate) plans: Vec<Plan>,
    /// The drawn views, a row each.
    pub views: Vec<View>,
    /// The claims.
    pub claims: Vec<Claim>,
}

impl Figure {
    /// `htcc/13`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.paper.name, self.number)
    }

    /// The name of its files, without extension: `htcc-13`.
    pub fn file(&self) -> String {
        format!("{}-{}", self.paper.name, self.number)
    }

    /// `Figure 13`, or `Table 1`.
    pub fn label(&self) -> String {
        match self.number.strip_prefix("table-") {
            Some(number) => format!("Table {number}"),
            None => format!("Figure {}", self.number),
        }
    }

    /// The index of the view that a claim is about.
    pub(crate) fn view(&self, title: &str) -> Option<usize> {
        self.views.iter().position(|view| title.is_empty() || view.title == title)
    }

    /// The points to measure, each once.
    pub fn points(&self, setting: &Setting) -> Vec<Point> {
        // Reading the data has made the points of both sizes.
        self.try_points(setting).unwrap_or_else(|why| panic!("{}: {why}", self.id()))
    }

    /// The points, or the first word of a command that does not exist.
    pub(crate) fn try_points(&self, setting: &Setting) -> Result<Vec<Point>, String> {
        let mut points = Vec::new();
        for plan in &self.plans {
            plan.add_points(setting, &self.paper.words, &mut points)?;
        }
        Ok(points)
    }
}

/// One place of a curve: a command, run once or several times with other seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Which part of the figure, as [`View::part`] selects; empty if it has one part.
    pub part: String,
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
    /// The difference from the figure's other views; empty if there are none.
    pub title: String,
    /// The part of the points that it shows.
    pub part: String,
    /// The meaning of x.
    pub x: Axis,
    /// The part of a point's report that is shown.
    pub shows: Shows,
}

/// The unit of x.
#[derive(Clone, Debug)]
pub enum Axis {
    /// A number with this name: curves.
    Number(String),
    /// An index into these names: bars.
    Named(Vec<String>),
}

/// A place of a curve: its name, x and y.
pub type CurvePoint = (String, f64, f64);

/// Makes places from a point's x and its report.
pub type Function = fn(f64, &Value) -> Vec<CurvePoint>;

/// The part of a report that a view shows.
#[derive(Clone, Debug)]
pub enum Shows {
    /// One number, at the point's x in its curve.
    One(Metric),
    /// Numbers of a report by their paths, each with its bar and curve; what they are.
    Bars(String, Vec<Bars>),
    /// Several places, made from the point's x and its report; what the numbers are.
    Many(&'static str, Function),
}

impl Shows {
    /// The meaning of y, with its unit.
    pub fn label(&self) -> &str {
        match self {
            Shows::One(metric) => &metric.label,
            Shows::Bars(label, _) => label,
            Shows::Many(label, _) => label,
        }
    }
}

/// Numbers of a report, one for each bar and curve.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    /// The bars' names, each with what stands for `{bar}` in the path.
    pub(crate) bars: Vec<(String, String)>,
    /// The curves' names, each with what stands for `{curve}`; without any, the number is of the point's curve.
    #[serde(default)]
    pub(crate) curves: Vec<(String, String)>,
    /// The path in the report, as JSON pointers are written.
    pub(crate) of: String,
    /// The factor of the number.
    #[serde(default = "crate::metric::one")]
    pub(crate) times: f64,
}

impl Bars {
    /// The places that a report has, of a point of this curve.
    pub(crate) fn places(&self, series: &str, report: &Value) -> Vec<CurvePoint> {
        let own = [(series.to_owned(), String::new())];
        let curves = if self.curves.is_empty() { &own[..] } else { &self.curves };
        let place = |(at, bar): (usize, &(String, String)), curve: &(String, String)| {
            let path = self.of.replace("{bar}", &bar.1).replace("{curve}", &curve.1);
            Some((curve.0.clone(), at as f64, self.times * report.pointer(&path)?.as_f64()?))
        };
        let bars = self.bars.iter().enumerate();
        bars.flat_map(|bar| curves.iter().filter_map(move |curve| place(bar, curve))).collect()
    }
}

/// A relation that the paper shows, or one of ours: a quantity of a view's curves and the interval that it should be
/// in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The relation, with the paper's numbers if it gives some.
    #[serde(deserialize_with = "folded")]
    pub says: String,
    /// The title of the view whose curves decide; empty for the first.
    #[serde(default)]
    pub view: String,
    /// The curves: the quantity is computed of each, and the least counts.
    #[serde(deserialize_with = "one_or_many")]
    pub of: Vec<String>,
    /// The divisor of each place: the highest of these curves; none if there are none.
    #[serde(default, deserialize_with = "one_or_many")]
    pub over: Vec<String>,
    /// Whether it is divided by the lowest of them.
    #[serde(default)]
    pub lowest: bool,
    /// Where it is taken.
    #[serde(default)]
    pub at: At,
    /// The least it should be.
    #[serde(default = "no_least")]
    pub min: f64,
    /// The most it should be.
    #[serde(default = "no_most")]
    pub max: f64,
    /// Threads from which the paper says so: with fewer it is not shown.
    #[serde(default = "one_thread")]
    pub threads: usize,
    /// Whether it is about regions of a processor, or modelled ones: with emulated or absent ones it is not shown.
    #[serde(default)]
    pub regions: bool,
    /// Whether it is not the paper's: a requirement of ours, or a setting that the paper does not have.
    #[serde(default)]
    pub ours: bool,
    /// The known reason why it differs, if it does.
    #[serde(default, deserialize_with = "folded")]
    pub because: String,
}

/// Where a quantity is taken: by default at the largest x of the view. A curve that was not measured there gives no
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a place is a number, two numbers, or least, most, growth, scaling, step or fall")]
pub enum At {
    /// At this x.
    X(f64),
    /// The value at the second x over that at the first.
    Between(f64, f64),
    /// At the largest x.
    #[default]
    #[serde(skip)]
    Last,
    /// Of all x.
    All(All),
}

/// The statistic of the values at all x.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum All {
    /// The least.
    Least,
    /// The most.
    Most,
    /// The value at the largest x over that at the smallest.
    Growth,
    /// The growth over that of x.
    Scaling,
    /// The least of a value over that at the x before: above 1 if it rises all the time. Steps from zero are left out.
    Step,
    /// The value at the largest x over the highest: 1 if it does not fall again.
    Fall,
}

fn no_least() -> f64 {
    f64::NEG_INFINITY
}

fn no_most() -> f64 {
    f64::INFINITY
}

fn one_thread() -> usize {
    1
}

/// A text on one line.
pub(crate) fn folded<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "curves are a name, or a list of names")]
    enum Names {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Names::deserialize(from)? {
        Names::One(name) => vec![name],
        Names::Many(names) => names,
    })
}
