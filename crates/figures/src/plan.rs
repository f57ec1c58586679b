//! The runs of a figure: a command with its words, and lists of curves, places, threads and simulated cores, which
//! multiply.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::figure::Point;
use crate::measured::Cores;
use crate::setting::{Setting, virtual_seconds};

/// Texts that commands are made of, by name: `{name}` in a command, or in another text.
pub(crate) type Words = BTreeMap<String, Word>;

/// Texts within texts: more are taken for one that contains itself.
const DEPTH_MAX: usize = 8;

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "a word is a text, or { threads = TEXT, cores = TEXT }")]
pub(crate) enum Word {
    Same(String),
    Each { threads: String, cores: String },
}

/// Points of a figure: all curves at all places on all counts of threads and simulated cores.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    #[serde(default)]
    pub(crate) part: String,
    command: String,
    curves: Vec<Curve>,
    /// Bars of each curve: their index is x, and their arguments follow the curve's.
    #[serde(default)]
    pub(crate) bars: Vec<Curve>,
    /// Threads of the machine; without them, none.
    threads: Option<Threads>,
    /// Simulated cores; of the small size 2.
    #[serde(default)]
    cores: Vec<usize>,
    /// Without it, the count of threads or cores.
    x: Option<Places>,
    /// The differences of the small size.
    #[serde(default)]
    small: Small,
    /// Words of these points alone.
    #[serde(default)]
    with: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Small {
    threads: Option<Threads>,
    cores: Option<Vec<usize>>,
    x: Option<Places>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a curve or bar is NAME, [NAME, ARGUMENTS] or [NAME, ARGUMENTS, \"threads\"]")]
pub(crate) enum Curve {
    /// With the arguments of the word of this name, or the protocol of this name.
    Name(String),
    Arguments(String, String),
    /// Not on simulated cores.
    OnThreads(String, String, OnThreads),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnThreads {
    Threads,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "threads are \"each\", \"all\", \"one\" or a list of numbers")]
enum Threads {
    Of(OfMachine),
    Counts(Vec<usize>),
}

/// Of the counts that [`Setting::threads`] gives.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OfMachine {
    Each,
    /// The largest.
    All,
    One,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "x is a list of numbers, or { threads = LIST, cores = LIST }")]
enum Places {
    Same(Vec<f64>),
    Each { threads: Vec<f64>, cores: Vec<f64> },
}

impl Curve {
    pub(crate) fn name(&self) -> &str {
        match self {
            Curve::Name(name) | Curve::Arguments(name, _) | Curve::OnThreads(name, ..) => name,
        }
    }

    fn arguments(&self, words: &Words) -> String {
        match self {
            Curve::Name(name) if words.contains_key(name) => format!("{{{name}}}"),
            Curve::Name(name) => format!("--protocol {name}"),
            Curve::Arguments(_, arguments) | Curve::OnThreads(_, arguments, _) => arguments.clone(),
        }
    }

    fn is_on(&self, cores: Cores) -> bool {
        cores == Cores::Real || !matches!(self, Curve::OnThreads(..))
    }
}

impl Plan {
    /// Adds the plan's points. The curves that are compared run one after another at each place.
    pub(crate) fn add_points(&self, setting: &Setting, words: &Words, points: &mut Vec<Point>) -> Result<(), String> {
        let small = setting.is_small().then_some(&self.small);
        let of_machine = setting.threads();
        let threads = match small.and_then(|small| small.threads.as_ref()).or(self.threads.as_ref()) {
            None => &[][..],
            Some(Threads::Of(OfMachine::Each)) => &of_machine,
            Some(Threads::Of(OfMachine::All)) => &of_machine[of_machine.len() - 1..],
            Some(Threads::Of(OfMachine::One)) => &of_machine[..1],
            Some(Threads::Counts(counts)) => counts,
        };
        let cores = match small {
            Some(small) if !self.cores.is_empty() => small.cores.as_deref().unwrap_or(&[2]),
            _ => &self.cores,
        };
        let places = small.and_then(|small| small.x.as_ref()).or(self.x.as_ref());
        let on = |cores: Cores, counts: &[usize]| counts.iter().map(|&count| (cores, count)).collect::<Vec<_>>();
        for (cores, threads) in [on(Cores::Real, threads), on(Cores::Simulated, cores)].concat() {
            let xs = match (places, cores) {
                (None, _) => &[threads as f64][..],
                (Some(Places::Same(xs) | Places::Each { threads: xs, .. }), Cores::Real) => xs,
                (Some(Places::Same(xs) | Places::Each { cores: xs, .. }), Cores::Simulated) => xs,
            };
            for (&x, curve) in xs.iter().flat_map(|x| self.curves.iter().map(move |curve| (x, curve))) {
                let arguments = curve.arguments(words);
                let mut add = |x: f64, arguments: &str| {
                    let scope = Scope { plan: self, setting, words, cores, threads, x, arguments };
                    let command = scope.fill(&self.command, 0)?;
                    let arguments = command.split_whitespace().map(str::to_owned).collect();
                    let (part, series) = (self.part.clone(), curve.name().to_owned());
                    points.push(Point { part, cores, threads, series, x, arguments });
                    Ok::<_, String>(())
                };
                if self.bars.is_empty() && curve.is_on(cores) {
                    add(x, &arguments)?;
                }
                for (at, bar) in self.bars.iter().enumerate().filter(|(_, bar)| bar.is_on(cores)) {
                    add(at as f64, &format!("{arguments} {}", bar.arguments(words)))?;
                }
            }
        }
        Ok(())
    }
}

/// The meaning of the words of a point's command.
struct Scope<'a> {
    plan: &'a Plan,
    setting: &'a Setting,
    words: &'a Words,
    cores: Cores,
    threads: usize,
    x: f64,
    arguments: &'a str,
}

impl Scope<'_> {
    /// The text with all that is in braces replaced. `{name}` becomes a word, and `{name:8}` one whose `{}` is 8.
    /// `{name/2}` and `{name*2}` become a number, and `{large|small}` becomes one of them, as the size is.
    fn fill(&self, text: &str, depth: usize) -> Result<String, String> {
        if depth > DEPTH_MAX {
            return Err(format!("the word {text:?} contains itself"));
        }
        let (mut filled, mut rest) = (String::new(), text);
        while let Some(begin) = rest.find('{') {
            let Some(length) = matching(&rest[begin..]) else { return Err(format!("{text:?} lacks a closing brace")) };
            let inner = &rest[begin + 1..begin + length];
            filled += &rest[..begin];
            filled += &self.value(inner, depth)?;
            rest = &rest[begin + length + 1..];
        }
        Ok(filled + rest)
    }

    fn value(&self, inner: &str, depth: usize) -> Result<String, String> {
        if let Some((large, small)) = inner.split_once('|') {
            return self.fill(if self.setting.is_small() { small } else { large }, depth + 1);
        }
        if let Some((name, parameter)) = inner.split_once(':') {
            let Some(Word::Same(text)) = self.words.get(name) else {
                return Err(format!("there is no word {{{name}}} with a parameter"));
            };
            return self.fill(&text.replace("{}", parameter), depth + 1);
        }
        let operator = inner.find(['/', '*']);
        let (name, operation) = inner.split_at(operator.unwrap_or(inner.len()));
        let number = match name {
            "threads" => Some(self.threads as f64),
            "half the threads" => Some(self.threads.div_ceil(2) as f64),
            "processors" => Some(self.setting.processors as f64),
            "x" => Some(self.x),
            _ => None,
        };
        match (number, operation) {
            (Some(number), "") => return Ok(number.to_string()),
            (Some(number), _) => {
                let by: f64 = operation[1..].parse().map_err(|_| format!("{{{inner}}}: {operation} is no factor"))?;
                return Ok(if operation.starts_with('/') { number / by } else { number * by }.to_string());
            }
            (None, _) => {}
        }
        let text = match (inner, self.words.get(inner)) {
            ("part", _) => &self.plan.part,
            ("arguments", _) => self.arguments,
            ("regions", _) => self.setting.regions(self.cores),
            // A command that does not mention regions is shared with figures that are not about them.
            ("emulated", _) if self.setting.regions(self.cores) == "emulated" => "--htm emulated",
            ("emulated", _) => "",
            ("seconds", _) => return Ok(self.setting.run_seconds().to_string()),
            ("virtual seconds", _) => return Ok(virtual_seconds(self.threads).to_string()),
            (_, Some(Word::Same(text))) => text,
            (_, Some(Word::Each { threads, cores })) => {
                if self.cores == Cores::Real {
                    threads
                } else {
                    cores
                }
            }
            (_, None) => match self.plan.with.get(inner) {
                Some(text) => text,
                None => return Err(format!("there is no word {{{inner}}}")),
            },
        };
        self.fill(text, depth + 1)
    }
}

/// Where the brace that a text begins with is closed.
fn matching(text: &str) -> Option<usize> {
    let mut open = 0;
    text.char_indices().find_map(|(at, letter)| {
        open += i32::from(letter == '{') - i32::from(letter == '}');
        (open == 0).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{large, small};

    fn points(setting: &Setting, text: &str) -> Result<Vec<Point>, String> {
        let plan: Plan = toml::from_str(text).map_err(|error| error.to_string())?;
        let words = toml::from_str(
            "dbx-rows = '--protocol dbx --rows'\nlow = { threads = '{{processors}|2}', cores = '{40|2}' }\n\
             times = '--times {}'\nloop = 'a {loop}'",
        );
        let (words, mut points): (Words, _) = (words.expect("words"), Vec::new());
        plan.add_points(setting, &words, &mut points).map(|()| points)
    }

    fn commands(setting: &Setting, text: &str) -> Vec<String> {
        points(setting, text).expect("points").into_iter().map(|point| point.arguments.join(" ")).collect()
    }

    #[test]
    fn lists_multiply_and_curves_stand_side_by_side() {
        let text = "command = 'bench {arguments} -w {low} -x {x/100}'\n\
                    curves = ['silo', 'dbx-rows', ['naive', '', 'threads']]\n\
                    threads = 'each'\ncores = [8, 40]\nx = { threads = [5, 100], cores = [1] }\nsmall = { x = [7] }";
        let large = points(&large(), text).expect("points");
        let on = |cores| large.iter().filter(move |point| point.cores == cores);
        assert_eq!((on(Cores::Real).count(), on(Cores::Simulated).count()), (2 * 2 * 3, 2 * 2));
        let places: Vec<_> = large[..4].iter().map(|point| (point.series.as_str(), point.threads, point.x)).collect();
        assert_eq!(places, [("silo", 1, 5.0), ("dbx-rows", 1, 5.0), ("naive", 1, 5.0), ("silo", 1, 100.0)]);
        assert_eq!(large[0].arguments.join(" "), "bench --protocol silo -w 2 -x 0.05");
        assert_eq!(large[13].arguments.join(" "), "bench --protocol dbx --rows -w 40 -x 0.01");
        let small = commands(&small(), text);
        assert_eq!((small.len(), small[6].as_str()), (2 * 3 + 2, "bench --protocol silo -w 2 -x 0.07"));
    }

    #[test]
    fn bars_have_their_index_and_both_arguments() {
        let text = "command = 'bench {arguments} {threads*4} {more} {times:3}'\ncurves = [['dbx', '--one']]\n\
                    threads = 'all'\ncores = [2]\nbars = [['a', '--a'], ['b', '--b', 'threads']]\n\
                    with = { more = '{half the threads}' }";
        let points = points(&Setting { processors: 3, ..large() }, text).expect("points");
        let all: Vec<_> = points.iter().map(|point| (point.x, point.arguments.join(" "))).collect();
        let wanted = [
            (0.0, "bench --one --a 12 2 --times 3"),
            (1.0, "bench --one --b 12 2 --times 3"),
            (0.0, "bench --one --a 8 1 --times 3"),
        ];
        assert_eq!(all, wanted.map(|(x, command)| (x, command.to_owned())));
    }

    #[test]
    fn seconds_and_regions_are_those_of_the_setting() {
        let text = "command = '{seconds} {virtual seconds} {regions} {emulated}'\n\
                    curves = ['a']\nthreads = 'one'\ncores = [16]";
        let setting = Setting { has_regions: false, ..large() };
        assert_eq!(commands(&setting, text), ["2 0.03 emulated --htm emulated", "2 0.015 auto"]);
        assert_eq!(commands(&Setting { seconds: Some(0.3), ..large() }, text)[0], "0.3 0.03 auto");
        assert_eq!(commands(&small(), text)[0], "0.05 0.03 auto");
        assert_eq!(commands(&large(), "command = 'a'\ncurves = ['a']\nthreads = [3, 5]"), ["a", "a"]);
    }

    #[test]
    fn options_that_are_not_understood_are_reported() {
        for (line, says) in [
            ("command = '{low} {hihg}'", "there is no word {hihg}"),
            ("command = '{low'", "lacks a closing brace"),
            ("command = '{loop}'", "contains itself"),
            ("command = '{tmies:3}'", "there is no word {tmies} with a parameter"),
            ("command = '{x/y}'", "{x/y}: /y is no factor"),
            ("command = ''\nsmall = { y = [1] }", "unknown field `y`"),
            ("command = ''\nx = 'threads'", "x is a list of numbers"),
            ("command = ''\nbars = [['a', '', 'cores']]", "a curve or bar is NAME"),
            ("command = ''\nthreads = 'most'", "threads are \"each\", \"all\", \"one\" or a list"),
        ] {
            let threads = if line.contains("threads") { "" } else { "threads = 'one'\n" };
            let error = points(&large(), &format!("curves = ['a']\n{threads}{line}")).expect_err(line);
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
