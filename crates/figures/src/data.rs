//! Reads the figures from their data: one file for each paper in `data`, and `common.toml` with words and metrics of
//! all.
//!
//! Everything that a file names is looked up here: words, curves, views, metrics, reasons. An error says the file, the
//! figure and the name. `data/README.md` describes the files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::figure::{At, Axis, Bars, Claim, Figure, Paper, Point, Shows, View, folded};
use crate::measured::Size;
use crate::metric::{FUNCTIONS, Metric};
use crate::plan::{Plan, Words};
use crate::setting::Setting;

/// The names of the papers, in the order of their figures.
pub const PAPERS: [&str; 5] = [FILES[0].0, FILES[1].0, FILES[2].0, FILES[3].0, FILES[4].0];

const COMMON: &str = include_str!("../data/common.toml");
const FILES: [(&str, &str); 5] = [
    ("dbx", include_str!("../data/dbx.toml")),
    ("htcc", include_str!("../data/htcc.toml")),
    ("dbx-tc", include_str!("../data/dbx-tc.toml")),
    ("reordering", include_str!("../data/reordering.toml")),
    ("speculation", include_str!("../data/speculation.toml")),
];

/// Every figure, in the order of the papers.
pub static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let papers: Result<Vec<Vec<Figure>>, String> = FILES.iter().map(|(name, text)| read(name, text, COMMON)).collect();
    // A test reads all files.
    papers.unwrap_or_else(|why| panic!("{why}")).into_iter().flatten().collect()
});

/// The figures of a paper, or of all; of these only those named, by `htcc/13` or, within a paper, `13`, if any are.
///
/// # Errors
/// A name that is no figure's, with those that are.
pub fn find(paper: Option<&str>, only: &[String]) -> Result<Vec<&'static Figure>, String> {
    let all = || FIGURES.iter().filter(|figure| paper.is_none_or(|paper| figure.paper.name == paper));
    let is = |figure: &Figure, name: &str| figure.id() == name || (paper.is_some() && figure.number == name);
    for name in only {
        if !all().any(|figure| is(figure, name)) {
            let names: Vec<String> = all().map(Figure::id).collect();
            return Err(format!("there is no figure {name}; there is {}", names.join(", ")));
        }
    }
    Ok(all().filter(|figure| only.is_empty() || only.iter().any(|name| is(figure, name))).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommonFile {
    words: Words,
    metrics: BTreeMap<String, Metric>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperFile {
    title: String,
    #[serde(deserialize_with = "folded")]
    source: String,
    #[serde(default)]
    words: Words,
    #[serde(default)]
    lists: Lists,
    #[serde(default)]
    reasons: BTreeMap<String, String>,
    figure: Vec<Table>,
}

/// Lists by name: of tables for `each`, or of curves.
type Lists = BTreeMap<String, Vec<Value>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureFile {
    number: String,
    title: String,
    #[serde(deserialize_with = "folded")]
    paper: String,
    #[serde(deserialize_with = "folded")]
    here: String,
    runs: Vec<Table>,
    views: Vec<Table>,
    claims: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewFile {
    #[serde(default)]
    title: String,
    #[serde(default)]
    part: String,
    x: Option<XFile>,
    /// The name of a metric or function.
    shows: Option<String>,
    /// In its place: numbers by bars, and what they are.
    bars: Option<Vec<Bars>>,
    label: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "x is a text, or a list of texts")]
enum XFile {
    Number(String),
    Named(Vec<String>),
}

/// The figures of a paper's file.
fn read(name: &'static str, text: &str, common: &str) -> Result<Vec<Figure>, String> {
    let common: CommonFile = toml::from_str(common).map_err(|error| format!("common.toml: {error}"))?;
    let file: PaperFile = toml::from_str(text).map_err(|error| format!("{name}.toml: {error}"))?;
    let mut words = common.words;
    words.extend(file.words);
    let paper = Arc::new(Paper { name, title: file.title, source: file.source, words });
    let reader = Reader { paper, lists: file.lists, reasons: file.reasons, metrics: common.metrics };
    let mut figures: Vec<Figure> = Vec::new();
    for table in file.figure {
        let number = table.get("number").and_then(Value::as_str).unwrap_or("without a number").to_owned();
        let figure = reader.figure(table).map_err(|why| format!("{name}.toml: figure {number}: {why}"))?;
        if figures.iter().any(|other| other.number == figure.number) {
            return Err(format!("{name}.toml: figure {number} is there twice"));
        }
        figures.push(figure);
    }
    Ok(figures)
}

/// The metrics of all papers.
#[cfg(test)]
pub(crate) fn metrics() -> BTreeMap<String, Metric> {
    toml::from_str::<CommonFile>(COMMON).expect("it is read by every test").metrics
}

struct Reader {
    paper: Arc<Paper>,
    lists: Lists,
    reasons: BTreeMap<String, String>,
    metrics: BTreeMap<String, Metric>,
}

impl Reader {
    fn figure(&self, table: Table) -> Result<Figure, String> {
        let file: FigureFile = parse(table)?;
        let mut figure = Figure {
            paper: Arc::clone(&self.paper),
            number: file.number,
            title: file.title,
            paper_shows: file.paper,
            here: file.here,
            plans: Vec::new(),
            views: Vec::new(),
            claims: Vec::new(),
        };
        for table in self.expand(file.runs)? {
            figure.plans.push(parse(table).map_err(|why| format!("runs: {why}"))?);
        }
        // Both sizes, since each has words that the other does not use.
        let points = |size| {
            let setting = Setting { size, processors: 2, has_regions: true, seconds: None, rounds: None, seed: 1 };
            figure.try_points(&setting).map_err(|why| format!("runs: {why}"))
        };
        points(Size::Small)?;
        let points = points(Size::Large)?;
        for table in self.expand(file.views)? {
            let view = self.view(table, &figure.plans).map_err(|why| format!("views: {why}"))?;
            figure.views.push(view);
        }
        for table in self.expand(file.claims)? {
            let says = table.get("says").and_then(Value::as_str).unwrap_or_default().to_owned();
            let claim = self.claim(table, &figure, &points).map_err(|why| format!("claim {says:?}: {why}"))?;
            figure.claims.push(claim);
        }
        let is_shown = |plan: &Plan| figure.views.iter().any(|view| view.part == plan.part);
        match figure.plans.iter().find(|plan| !is_shown(plan)) {
            Some(plan) => Err(format!("no view shows the part {:?} of the runs", plan.part)),
            None => Ok(figure),
        }
    }

    /// The tables. One with `each = NAME` becomes as many as the list of that name has, with their keys in addition to
    /// its own. Curves that are the name of a list are those of the list.
    fn expand(&self, tables: Vec<Table>) -> Result<Vec<Table>, String> {
        let mut expanded = Vec::new();
        for mut table in tables {
            if let Some(Value::String(name)) = table.get("curves") {
                let curves = Value::Array(self.list(name)?.clone());
                table.insert("curves".to_owned(), curves);
            }
            let Some(name) = table.remove("each") else {
                expanded.push(table);
                continue;
            };
            let name = name.as_str().ok_or("each is the name of a list")?.to_owned();
            for entry in self.list(&name)? {
                let mut merged = entry.as_table().ok_or_else(|| format!("the list {name} has no tables"))?.clone();
                for (key, value) in table.clone() {
                    match (merged.get_mut(&key), value) {
                        (Some(Value::Table(known)), Value::Table(more)) => known.extend(more),
                        (_, value) => drop(merged.insert(key, value)),
                    }
                }
                expanded.push(merged);
            }
        }
        Ok(expanded)
    }

    fn list(&self, name: &str) -> Result<&Vec<Value>, String> {
        self.lists.get(name).ok_or_else(|| format!("there is no list {name:?}; there are {}", names(self.lists.keys())))
    }

    fn view(&self, table: Table, plans: &[Plan]) -> Result<View, String> {
        let file: ViewFile = parse(table)?;
        let of_part = || plans.iter().filter(|plan| plan.part == file.part);
        if of_part().next().is_none() {
            return Err(format!("no run has the part {:?}", file.part));
        }
        let of_points = of_part().flat_map(|plan| plan.bars.iter().map(|bar| bar.name().to_owned())).collect();
        let (shows, bars): (Shows, Vec<String>) = match (file.shows, file.bars, file.label) {
            (Some(name), None, None) => (self.shows(&name)?, of_points),
            (None, Some(bars), Some(label)) => {
                let names = bars.first().map(|bars| bars.bars.iter().map(|(name, _)| name.clone()).collect());
                (Shows::Bars(label, bars), names.unwrap_or_default())
            }
            _ => return Err("a view has either `shows`, or `bars` and `label`".to_owned()),
        };
        let x = match file.x {
            Some(XFile::Number(name)) => Axis::Number(name),
            Some(XFile::Named(names)) => Axis::Named(names),
            None if !bars.is_empty() => Axis::Named(bars),
            None => Axis::Number("threads".to_owned()),
        };
        Ok(View { title: file.title, part: file.part, x, shows })
    }

    fn shows(&self, name: &str) -> Result<Shows, String> {
        let function = FUNCTIONS.iter().find(|(known, ..)| *known == name);
        match (self.metrics.get(name), function) {
            (Some(metric), _) => Ok(Shows::One(metric.clone())),
            (None, Some(&(_, label, of))) => Ok(Shows::Many(label, of)),
            (None, None) => {
                let known = names(self.metrics.keys().map(String::as_str).chain(FUNCTIONS.map(|(name, ..)| name)));
                Err(format!("there is no metric {name:?}; there are {known}"))
            }
        }
    }

    fn claim(&self, mut table: Table, figure: &Figure, points: &[Point]) -> Result<Claim, String> {
        if let Some(name) = table.remove("reason") {
            let name = name.as_str().ok_or("a reason is a name")?;
            let Some(text) = self.reasons.get(name) else {
                return Err(format!("there is no reason {name:?}; there are {}", names(self.reasons.keys())));
            };
            if table.insert("because".to_owned(), Value::String(text.clone())).is_some() {
                return Err("a claim has either `reason` or `because`".to_owned());
            }
        }
        let mut claim: Claim = parse(table)?;
        let Some(view) = figure.view(&claim.view).map(|at| &figure.views[at]) else {
            let titles = names(figure.views.iter().map(|view| &view.title));
            return Err(format!("there is no view {:?}; there are {titles}", claim.view));
        };
        if claim.min.is_infinite() && claim.max.is_infinite() {
            return Err("without `min` and `max` it holds of everything".to_owned());
        }
        measures(&claim, view, points)?;
        claim.says = claim.says.replace("{view}", &view.title);
        Ok(claim)
    }
}

/// Whether a view has the curves that a quantity is computed of, at the places where it is taken: otherwise it would
/// never be judged.
fn measures(claim: &Claim, view: &View, points: &[Point]) -> Result<(), String> {
    let xs = match claim.at {
        At::X(x) => vec![x],
        At::Between(from, to) => vec![from, to],
        _ => Vec::new(),
    };
    let bar = |x: &&f64| matches!(&view.x, Axis::Named(bars) if **x < 0.0 || **x >= bars.len() as f64);
    if let Some(x) = xs.iter().find(bar) {
        return Err(format!("there is no bar {x}"));
    }
    let places: Vec<(&str, Option<f64>)> = match &view.shows {
        Shows::Many(..) => return Ok(()),
        Shows::Bars(_, bars) if bars.iter().any(|bars| !bars.curves.is_empty()) => {
            bars.iter().flat_map(|bars| bars.curves.iter().map(|(name, _)| (name.as_str(), None))).collect()
        }
        shows => {
            let x = |point: &Point| matches!(shows, Shows::One(_)).then_some(point.x);
            let shown = points.iter().filter(|point| point.part == view.part);
            shown.map(|point| (point.series.as_str(), x(point))).collect()
        }
    };
    for curve in claim.series() {
        if !places.iter().any(|(name, _)| *name == curve) {
            let known: BTreeSet<&str> = places.iter().map(|(name, _)| *name).collect();
            return Err(format!("there is no curve {curve:?}; there are {}", names(&known)));
        }
        let has = |x: f64| places.iter().any(|(name, at)| *name == curve && at.is_none_or(|at| at == x));
        if let Some(x) = xs.iter().find(|x| !has(**x)) {
            return Err(format!("the curve {curve:?} is not measured at {x}"));
        }
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(table: Table) -> Result<T, String> {
    table.try_into().map_err(|error: toml::de::Error| error.to_string().trim().replace('\n', " "))
}

fn names(all: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    all.into_iter().map(|name| format!("{:?}", name.as_ref())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::measured::Cores;
    use crate::test_support::{figure, large, small};

    #[test]
    fn figures_are_found_by_paper_and_number() {
        let ids = |paper, only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            find(paper, &only).map(|found| found.into_iter().map(Figure::id).collect::<Vec<_>>())
        };
        assert_eq!(ids(None, &[]).map(|all| all.len()), Ok(FIGURES.len()));
        assert_eq!(ids(Some("htcc"), &["14", "htcc/13"]), Ok(vec!["htcc/13".to_owned(), "htcc/14".to_owned()]));
        for paper in PAPERS {
            let all = ids(Some(paper), &[]).expect("its figures");
            assert!(!all.is_empty() && all.iter().all(|id| id.starts_with(&format!("{paper}/"))), "{all:?}");
        }
        for (paper, name) in [(None, "13"), (Some("dbx"), "htcc/13"), (Some("htcc"), "99")] {
            let refused = ids(paper, &[name]).expect_err("there is none");
            assert!(refused.contains(name) && refused.contains("there is "), "{refused}");
        }
    }

    #[test]
    fn every_figure_is_whole() {
        for figure in FIGURES.iter() {
            let id = figure.id();
            assert!(!figure.title.is_empty() && !figure.paper_shows.is_empty() && !figure.here.is_empty(), "{id}");
            assert!(!figure.views.is_empty() && !figure.claims.is_empty(), "{id} shows and claims nothing");
            for setting in [large(), small()] {
                let points = figure.points(&setting);
                assert!(points.iter().any(|point| point.cores == Cores::Real), "{id}, {setting:?}");
                assert!(points.len() <= if setting.is_small() { 40 } else { 200 }, "{id}: {}", points.len());
                let mut places = HashSet::new();
                for point in &points {
                    let place = (&point.part, point.cores, point.threads, &point.series, point.x.to_bits());
                    assert!(places.insert(place), "{id}, {setting:?}: {point:?} is there twice");
                }
            }
        }
    }

    /// One without the option that tells it from another would run the other's commands.
    #[test]
    fn a_figure_that_runs_the_commands_of_another_says_so() {
        let arguments = |figure: &Figure| figure.points(&large()).into_iter().map(|point| point.arguments).collect();
        let commands: Vec<HashSet<Vec<String>>> = FIGURES.iter().map(arguments).collect();
        for (at, figure) in FIGURES.iter().enumerate() {
            if let Some(other) = commands[..at].iter().position(|other| *other == commands[at]) {
                let other = &FIGURES[other];
                let said = figure.here.contains(&format!(" of figure {}", other.number));
                assert!(said, "{} runs what {} does, and does not say so", figure.id(), other.id());
            }
        }
    }

    #[test]
    fn a_command_says_all_that_it_depends_on() {
        let command = |setting: &Setting, id: &str, cores, threads, series: &str| {
            let is = |point: &Point| (point.cores, point.threads, point.series.as_str()) == (cores, threads, series);
            let point = figure(id).points(setting).into_iter().find(is).expect("it is measured");
            point.arguments.join(" ")
        };
        let (real, simulated) = (Cores::Real, Cores::Simulated);
        assert_eq!(
            command(&large(), "htcc/14", real, 2, "silo-rows"),
            "bench tpcc --warehouses 1 --protocol silo --option rebases_max=0 --threads 2 --seconds 2 --warmup 0.5 \
             --settle --no-check"
        );
        assert_eq!(
            command(&large(), "htcc/14", simulated, 16, "dbx"),
            "bench tpcc --warehouses 4 --protocol dbx --simulate-cores 16 --seconds 0.015 --warmup 0.02 --no-check"
        );
        assert_eq!(
            command(&small(), "htcc/14", simulated, 2, "dbx"),
            "bench tpcc --warehouses 2 --scale small --protocol dbx --simulate-cores 2 --seconds 0.002 --warmup 0 \
             --prefault 0"
        );
        assert_eq!(
            command(&small(), "dbx/1", real, 2, "all"),
            "bench regions --written 4 --htm auto --threads 2 --seconds 0.05"
        );
        assert_eq!(
            command(&large(), "speculation/5", simulated, 4, "locking, 20 %"),
            "bench partitions --scheme locking --conflicts 0.2 --multi 0 --delay 0 --clients 40 --simulate-cores \
             --seconds 0.02 --warmup 0.005 --settle"
        );
    }

    const WORDS: &str =
        "[words]\nrun = '--threads {threads}'\n[metrics]\nrate = { label = 'a second', of = '/rate' }\n";
    const RUNS: &str = "{ command = 'bench {arguments} {run}', curves = ['silo', 'dbx'], threads = 'each' }";
    const VIEWS: &str = "{ title = 'a', shows = 'rate' }, { each = 'more' }";
    const CLAIMS: &str = "{ each = 'of both', says = '{view}: equal', of = 'dbx', over = 'silo', at = 1, min = 1 }";

    /// Figure 1 of a paper `p`.
    fn file(runs: &str, views: &str, claims: &str) -> Result<Vec<Figure>, String> {
        let lists =
            "more = [{ title = 'b', shows = 'rate' }]\n'of both' = [{ view = 'a', threads = 4 }, { view = 'b' }]";
        let figure = "number = '1'\ntitle = 't'\npaper = \"\"\"p\n q\"\"\"\nhere = 'h'";
        let text = format!(
            "title = 'P'\nsource = 's'\n[lists]\n{lists}\n[reasons]\nlocks = 'Of locks.'\n\
             [[figure]]\n{figure}\nruns = [{runs}]\nviews = [{views}]\nclaims = [{claims}]"
        );
        read("p", &text, WORDS)
    }

    #[test]
    fn a_list_makes_many_tables_of_one() {
        let figure = file(RUNS, VIEWS, CLAIMS).expect("it is right").remove(0);
        assert_eq!((figure.id().as_str(), figure.paper_shows.as_str()), ("p/1", "p q"));
        let claims: Vec<_> =
            figure.claims.iter().map(|claim| (&claim.says[..], &claim.view[..], claim.threads)).collect();
        assert_eq!(claims, [("a: equal", "a", 4), ("b: equal", "b", 1)]);
        assert_eq!(figure.points(&large())[0].arguments.join(" "), "bench --protocol silo --threads 1");
    }

    /// Each with a word that is wrong, and what the error says of it.
    #[test]
    fn canary_a_wrong_name_is_reported_with_file_figure_and_key() {
        let with = |of: &str, wrong: &str, right: &str| of.replace(right, wrong);
        for (runs, views, claims, says) in [
            (&with(RUNS, "{rnu}", "{run}"), VIEWS, CLAIMS, "runs: there is no word {rnu}"),
            (&with(RUNS, "{run|{rnu}}", "{run}"), VIEWS, CLAIMS, "runs: there is no word {rnu}"),
            (&with(RUNS, "trheads =", "threads ="), VIEWS, CLAIMS, "runs: unknown field `trheads`"),
            (
                &with(RUNS, "curves = 'al'", "curves = ['silo', 'dbx']"),
                VIEWS,
                CLAIMS,
                "no list \"al\"; there are \"more\"",
            ),
            (&with(RUNS, "part = 'b', threads", "threads"), VIEWS, CLAIMS, "views: no run has the part \"\""),
            (&format!("{RUNS}, {}", with(RUNS, "{ part = 'b', ", "{ ")), VIEWS, CLAIMS, "no view shows the part \"b\""),
            (&RUNS.to_owned(), &with(VIEWS, "'rat'", "'rate'"), CLAIMS, "views: there is no metric \"rat\"; there are"),
            (&RUNS.to_owned(), &with(VIEWS, "label = 'l', shows", "shows"), CLAIMS, "either `shows`, or `bars`"),
            (&RUNS.to_owned(), VIEWS, &with(CLAIMS, "'dxb'", "'dbx'"), "no curve \"dxb\"; there are \"dbx\", \"silo\""),
            (&RUNS.to_owned(), VIEWS, &with(CLAIMS, "at = 3", "at = 1"), "\"dbx\" is not measured at 3"),
            (&RUNS.to_owned(), VIEWS, &with(CLAIMS, "at = 'lats'", "at = 1"), "a place is a number, two numbers"),
            (&RUNS.to_owned(), VIEWS, &with(CLAIMS, "ours = true", "min = 1"), "without `min` and `max`"),
            (
                &RUNS.to_owned(),
                VIEWS,
                &with(CLAIMS, "reason = 'lock', min", "min"),
                "no reason \"lock\"; there are \"locks\"",
            ),
            (
                &RUNS.to_owned(),
                VIEWS,
                &with(CLAIMS, "view = 'c'", "each = 'of both'"),
                "there is no view \"c\"; there are \"a\", \"b\"",
            ),
            (
                &RUNS.to_owned(),
                VIEWS,
                &with(CLAIMS, "mni = 1", "min = 1"),
                "claim \"{view}: equal\": unknown field `mni`",
            ),
        ] {
            let error = file(runs, views, claims).map(drop).expect_err(says);
            assert!(error.starts_with("p.toml: figure 1: ") && error.contains(says), "{says}: {error}");
        }
        let twice = read("p", "title = 'P'\nsource = 's'\nfigre = []", WORDS).map(drop).expect_err("an unknown key");
        assert!(twice.starts_with("p.toml: ") && twice.contains("unknown field `figre`"), "{twice}");
    }
}
