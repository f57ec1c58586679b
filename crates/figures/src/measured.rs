//! The measurements of a figure, as its file keeps them, and the curves of its views.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figure::{CurvePoint, Shows, View};
use crate::metric;

/// The format of the files; others are not read.
pub(crate) const FORMAT: u32 = 2;

/// The cores that threads run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cores {
    /// The machine's.
    Real,
    /// `--simulate-cores`.
    Simulated,
}

impl Cores {
    /// Both.
    pub const ALL: [Cores; 2] = [Cores::Real, Cores::Simulated];

    /// A number of them, in words.
    pub(crate) fn count(self, threads: usize) -> String {
        match (self, threads) {
            (Cores::Real, 1) => "1 thread".to_owned(),
            (Cores::Real, threads) => format!("{threads} threads"),
            (Cores::Simulated, 1) => "1 simulated core".to_owned(),
            (Cores::Simulated, threads) => format!("{threads} simulated cores"),
        }
    }
}

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Enough to see that every command runs and the figure is drawn. It says nothing of speed, so nothing is judged.
    Small,
    /// Enough to judge.
    Large,
}

/// The programs that measured the points on one kind of cores. Runs of different origins are not mixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The revision it was built from.
    pub revision: String,
    /// The program, by a checksum of its file.
    pub program: String,
    /// The machine, as reports describe it.
    pub machine: Value,
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Its output.
    Report(Value),
    /// It cannot be run by this program or on this machine; why.
    NotHere(String),
    /// It should have run and did not; why.
    Failed(String),
}

/// A command and its outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) command: String,
    #[serde(flatten)]
    pub(crate) answer: Answer,
}

/// A point with its runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MeasuredPoint {
    pub(crate) part: String,
    pub(crate) cores: Cores,
    pub(crate) threads: usize,
    pub(crate) series: String,
    pub(crate) x: f64,
    pub(crate) runs: Vec<Run>,
}

impl MeasuredPoint {
    /// Whether this is the same point of the figure.
    pub(crate) fn is_at(&self, other: &MeasuredPoint) -> bool {
        let place = |point: &MeasuredPoint| (point.cores, point.threads, point.x.to_bits());
        place(self) == place(other) && self.part == other.part && self.series == other.series
    }
}

/// A figure's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) format: u32,
    pub(crate) figure: String,
    pub(crate) size: Size,
    /// By the kind of cores.
    pub(crate) origins: BTreeMap<Cores, Origin>,
    pub(crate) points: Vec<MeasuredPoint>,
}

/// A curve: its name, and y by x in ascending order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A view's values on one kind of cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Curves {
    /// In the order of the points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) curves: Vec<Curve>,
    /// The most threads of a point that was measured.
    pub(crate) threads: usize,
    /// The back ends that ran regions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) backends: Vec<String>,
    /// The back end that replaced regions of a processor or modelled ones, if a command did not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stand_in: Option<String>,
    /// Why points are missing: the curve and the reason, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<(String, String)>,
    /// Curves of simulations that are not proven.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unproven: Vec<String>,
    /// Curves of runs whose throughput changed while they were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unsteady: Vec<String>,
    /// The curves of each round alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rounds: Vec<Vec<Curve>>,
    /// The shortest run, if runs have a length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
}

impl Curves {
    pub(crate) fn curve(&self, name: &str) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.name == name)
    }

    /// All x, ascending.
    pub(crate) fn xs(&self) -> Vec<f64> {
        let mut xs: Vec<f64> = self.curves.iter().flat_map(|curve| curve.points.iter().map(|(x, _)| *x)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }
}

impl Curve {
    pub(crate) fn at(&self, x: f64) -> Option<f64> {
        self.points.iter().find(|(at, _)| *at == x).map(|(_, y)| *y)
    }
}

impl Measured {
    /// The kinds of cores that there are points for.
    pub(crate) fn cores(&self) -> Vec<Cores> {
        Cores::ALL.into_iter().filter(|cores| self.points.iter().any(|point| point.cores == *cores)).collect()
    }

    /// A view's values: medians of points that ran several times. Of points that ran the same code, only the first.
    pub(crate) fn curves(&self, view: &View, cores: Cores) -> Curves {
        let mut shown = Curves::default();
        // The code that ran at each x, and its curve.
        let mut ran: Vec<(String, String)> = Vec::new();
        'points: for point in self.points.iter().filter(|point| point.part == view.part && point.cores == cores) {
            // Values of the runs, by curve and x.
            let mut places: Vec<(String, f64, Vec<f64>)> = Vec::new();
            for (round, Run { command, answer }) in point.runs.iter().enumerate() {
                let report = match answer {
                    Answer::Report(report) => report,
                    Answer::NotHere(why) | Answer::Failed(why) => {
                        note(&mut shown.missing, (point.series.clone(), why.clone()));
                        continue;
                    }
                };
                if let Some(backend) = metric::backend(report) {
                    let code = format!("{} at {}", code(command, &backend), point.x);
                    match ran.iter().find(|(other, _)| *other == code) {
                        Some((_, other)) if *other != point.series => {
                            let why = format!("here it is the same code as {other}: regions are {backend}");
                            note(&mut shown.missing, (point.series.clone(), why));
                            continue 'points;
                        }
                        Some(_) => {}
                        None => ran.push((code, point.series.clone())),
                    }
                    let is_stand_in = ["emulated", "absent"].iter().any(|other| backend.starts_with(other));
                    if is_stand_in && !command.contains("--htm absent") {
                        shown.stand_in = Some(backend.clone());
                    }
                    note(&mut shown.backends, backend);
                }
                shown.threads = shown.threads.max(point.threads);
                if let Some(seconds) = report["seconds"].as_f64() {
                    shown.seconds = Some(shown.seconds.map_or(seconds, |least| least.min(seconds)));
                }
                let values = point.values(&view.shows, report);
                if values.is_empty() {
                    note(&mut shown.missing, (point.series.clone(), "its report has no such number".to_owned()));
                }
                for (name, x, y) in values {
                    if metric::is_unproven(report) {
                        note(&mut shown.unproven, name.clone());
                    }
                    if report["stationary"] == false || report["warmup"]["settled"] == false {
                        note(&mut shown.unsteady, name.clone());
                    }
                    if shown.rounds.len() <= round {
                        shown.rounds.resize_with(round + 1, Vec::new);
                    }
                    add(&mut shown.rounds[round], &name, x, y);
                    match places.iter_mut().find(|place| place.0 == name && place.1 == x) {
                        Some(place) => place.2.push(y),
                        None => places.push((name, x, vec![y])),
                    }
                }
            }
            for (name, x, ys) in places {
                add(&mut shown.curves, &name, x, median(ys));
            }
        }
        let all = shown.rounds.iter_mut().flatten().chain(&mut shown.curves);
        all.for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        shown
    }
}

impl MeasuredPoint {
    fn values(&self, shows: &Shows, report: &Value) -> Vec<CurvePoint> {
        let values = match shows {
            Shows::One(metric) => {
                metric.of(self.x, report).map(|y| (self.series.clone(), self.x, y)).into_iter().collect()
            }
            Shows::Bars(_, bars) => bars.iter().flat_map(|bars| bars.places(&self.series, report)).collect(),
            Shows::Many(_, of) => of(self.x, report),
        };
        values.into_iter().filter(|(_, x, y)| x.is_finite() && y.is_finite()).collect()
    }
}

/// Adds a place to the curve of this name.
fn add(curves: &mut Vec<Curve>, name: &str, x: f64, y: f64) {
    match curves.iter_mut().find(|curve| curve.name == name) {
        Some(curve) => curve.points.push((x, y)),
        None => curves.push(Curve { name: name.to_owned(), points: vec![(x, y)] }),
    }
}

/// The code that a command runs if regions have this back end: the command without its seed and without the options of
/// regions. Without regions nothing depends on how often they begin.
fn code(command: &str, backend: &str) -> String {
    let mut words = command.split_whitespace();
    let mut kept = vec![backend];
    while let Some(word) = words.next() {
        match word {
            "--seed" | "--htm" => drop(words.next()),
            "--option" => match words.next() {
                Some(option) if backend == "absent" && option.starts_with("region_") => {}
                option => kept.extend(option.into_iter().flat_map(|option| [word, option])),
            },
            _ => kept.push(word),
        }
    }
    kept.join(" ")
}

fn note<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// The median; of an even number of values the mean of the middle two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_support::figure;

    fn view() -> &'static View {
        &figure("dbx/5").views[0]
    }

    fn point(series: &str, x: f64, answers: &[Answer]) -> MeasuredPoint {
        let runs = answers.iter().map(|answer| Run { command: "seriatim".to_owned(), answer: answer.clone() });
        let (part, series) = (String::new(), series.to_owned());
        MeasuredPoint { part, cores: Cores::Real, threads: x as usize, series, x, runs: runs.collect() }
    }

    fn report(rate: f64) -> Answer {
        Answer::Report(json!({ "committed_per_second": rate * 1000.0, "htm": { "backend": "rtm" } }))
    }

    fn measured(points: Vec<MeasuredPoint>) -> Measured {
        let origin = Origin { revision: "r".to_owned(), program: "p".to_owned(), machine: json!({}) };
        let origins = BTreeMap::from([(Cores::Real, origin)]);
        Measured { format: FORMAT, figure: "htcc/13".to_owned(), size: Size::Large, origins, points }
    }

    #[test]
    fn a_curve_has_medians_of_runs_in_the_order_of_x() {
        let points = vec![
            point("dbx", 2.0, &[report(9.0), Answer::Failed("crashed".to_owned()), report(1.0), report(5.0)]),
            point("dbx", 1.0, &[report(2.0), report(4.0)]),
            point("occ", 4.0, &[Answer::NotHere("no such protocol".to_owned())]),
            point("silo", 1.0, &[Answer::Report(json!({}))]),
        ];
        let shown = measured(points).curves(view(), Cores::Real);
        assert_eq!(shown.curves, [Curve { name: "dbx".to_owned(), points: vec![(1.0, 3.0), (2.0, 5.0)] }]);
        assert_eq!((shown.threads, &shown.backends[..]), (2, &["rtm".to_owned()][..]));
        let missing: Vec<_> = shown.missing.iter().map(|(series, why)| (series.as_str(), why.as_str())).collect();
        let number = "its report has no such number";
        assert_eq!(missing, [("dbx", "crashed"), ("occ", "no such protocol"), ("silo", number)]);
    }

    #[test]
    fn a_run_without_regions_on_request_is_no_stand_in() {
        let absent = |command: &str| {
            let mut point = point("without", 1.0, &[Answer::Report(json!({ "htm": { "backend": "absent" } }))]);
            point.runs[0].command = command.to_owned();
            measured(vec![point]).curves(view(), Cores::Real)
        };
        let asked = absent("seriatim bench tpcc --htm absent --seed 1");
        assert_eq!((&asked.backends[..], asked.stand_in), (&["absent".to_owned()][..], None));
        assert_eq!(absent("seriatim bench tpcc --seed 1").stand_in.as_deref(), Some("absent"));
    }

    #[test]
    fn commands_that_run_the_same_code_here_are_one_curve() {
        let on = |series: &str, command: &str, backend: &str| {
            let answer = json!({ "committed_per_second": 1000.0, "htm": { "backend": backend } });
            let mut point = point(series, 1.0, &[Answer::Report(answer)]);
            point.runs[0].command = format!("seriatim bench tpcc {command}");
            point
        };
        let (with, without) = ("--protocol dbx --seed 1", "--protocol dbx --htm absent --seed 2");
        let curves = |points: Vec<MeasuredPoint>| {
            let shown = measured(points).curves(view(), Cores::Real);
            (shown.curves.into_iter().map(|curve| curve.name).collect::<Vec<_>>(), shown.missing)
        };
        let (names, missing) = curves(vec![on("dbx", with, "absent"), on("dbx without regions", without, "absent")]);
        assert_eq!(names, ["dbx"]);
        let why = "here it is the same code as dbx: regions are absent";
        assert_eq!(missing, [("dbx without regions".to_owned(), why.to_owned())]);
        let (names, missing) = curves(vec![on("dbx", with, "rtm"), on("dbx without regions", without, "absent")]);
        assert_eq!((names.len(), missing.len()), (2, 0));
        let begins = |count: u32| format!("--protocol dbx --option region_held_max={count} --option rebases_max=0");
        let both = |backend| vec![on("HOCC(1)", &begins(1), backend), on("HOCC(8)", &begins(8), backend)];
        assert_eq!((curves(both("absent")).0.len(), curves(both("rtm")).0.len()), (1, 2));
        let other = on("occ", "--protocol occ", "absent");
        assert_eq!(curves(vec![on("dbx", with, "absent"), other]).0.len(), 2);
    }

    #[test]
    fn rounds_lengths_and_unreliable_numbers_are_distinguished() {
        let of = |rate: f64, seconds: f64, more: Value| {
            let mut report = json!({ "committed_per_second": rate * 1000.0, "seconds": seconds });
            if let (Some(fields), Value::Object(more)) = (report.as_object_mut(), more) {
                fields.extend(more);
            }
            Answer::Report(report)
        };
        let steady = of(1.0, 2.0, json!({ "simulated": { "proven": true }, "stationary": true }));
        let points = vec![
            point("dbx", 2.0, &[of(5.0, 2.0, json!({})), of(7.0, 1.5, json!({}))]),
            point("dbx", 1.0, &[of(3.0, 2.0, json!({})), of(4.0, 2.0, json!({}))]),
            point("silo", 1.0, &[of(1.0, 2.0, json!({ "simulated": { "proven": false } })), steady]),
            point("occ", 1.0, &[of(1.0, 2.0, json!({ "stationary": false }))]),
        ];
        let shown = measured(points).curves(view(), Cores::Real);
        let dbx: Vec<_> = shown.rounds.iter().map(|round| round[0].points.clone()).collect();
        assert_eq!(dbx, [[(1.0, 3.0), (2.0, 5.0)], [(1.0, 4.0), (2.0, 7.0)]]);
        assert_eq!((shown.rounds[0].len(), shown.rounds[1].len(), shown.seconds), (3, 2, Some(1.5)));
        assert_eq!((shown.unproven, shown.unsteady), (vec!["silo".to_owned()], vec!["occ".to_owned()]));
    }

    #[test]
    fn other_cores_and_parts_are_not_shown() {
        let mut other = point("dbx", 1.0, &[report(1.0)]);
        other.cores = Cores::Simulated;
        let mut part = point("dbx", 1.0, &[report(1.0)]);
        part.part = "b".to_owned();
        assert_eq!(measured(vec![other, part]).curves(view(), Cores::Real), Curves::default());
    }

    #[test]
    fn a_file_says_again_what_was_written() {
        let before = measured(vec![point("dbx", 1.0, &[report(1.0), Answer::NotHere("no".to_owned())])]);
        let text = serde_json::to_string(&before).expect("JSON");
        assert!(text.contains("\"not_here\":\"no\"") && text.contains("\"report\":{"), "{text}");
        let after: Measured = serde_json::from_str(&text).expect("what was written");
        assert_eq!(serde_json::to_string(&after).expect("JSON"), text);
    }
}
