//! Decides whether a claim holds for the measurements.
//!
//! A quantity that cannot be computed, or that means nothing here, is *not shown here*, with the reason. It neither
//! holds nor differs. Nor does one of a simulation that is *not proven*.
//!
//! On threads of the machine the quantity is computed for each round. An interval that covers its median with a
//! probability of at least nine tenths is compared with the bounds. If the interval covers a bound, or has too few or
//! too short rounds, the relation *cannot be told*. Simulations repeat to the last digit and have no interval.

use serde::Serialize;

use crate::figure::{All, At, Claim};
use crate::measured::{Cores, Curve, Curves, Size};

/// The verdict on a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// The quantity lies within the bounds.
    Holds {
        /// The quantity, and where it should lie.
        numbers: String,
    },
    /// The quantity lies outside the bounds.
    Differs {
        /// The quantity, and where it should lie.
        numbers: String,
    },
    /// The measurements do not decide it.
    CannotTell {
        /// The quantity, where it should lie, and what is missing.
        numbers: String,
    },
    /// The quantity is of a simulation that is not proven.
    Unproven {
        /// The quantity, where it should lie, and which simulation.
        numbers: String,
    },
    /// Nothing can be said.
    NotShown {
        /// Why.
        reason: String,
    },
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Holds { numbers } => write!(f, "**holds**: {numbers}"),
            Verdict::Differs { numbers } => write!(f, "**differs**: {numbers}"),
            Verdict::CannotTell { numbers } => write!(f, "cannot be told: {numbers}"),
            Verdict::Unproven { numbers } => write!(f, "not proven: {numbers}"),
            Verdict::NotShown { reason } => write!(f, "not shown here: {reason}"),
        }
    }
}

/// Rounds and seconds of each run that a verdict on threads takes.
pub(crate) const ROUNDS_MIN: usize = 5;
pub(crate) const SECONDS_MIN: f64 = 2.0;

/// How much shorter a run may be: threads check the time now and then.
const SECONDS_SLACK: f64 = 0.05;

/// The highest probability that an interval misses the median.
const MISSED_MAX: f64 = 0.1;

fn not_shown(reason: impl Into<String>) -> Verdict {
    Verdict::NotShown { reason: reason.into() }
}

/// Judges a claim by what its view shows on one kind of cores.
pub(crate) fn judge(claim: &Claim, shown: &Curves, size: Size, cores: Cores) -> Verdict {
    if size == Size::Small {
        return not_shown("the small size only tries the commands");
    }
    if shown.curves.is_empty() {
        return not_shown(first_reason(shown, &[]));
    }
    let value = match value(claim, shown) {
        Some(value) => value,
        None => return not_shown(first_reason(shown, &claim.series())),
    };
    let measured = format!("{claim} {}", shortly(value));
    if shown.threads < claim.threads {
        let here = cores.count(shown.threads);
        let says = if claim.ours { "this is claimed" } else { "the paper says so" };
        return not_shown(format!("{says} of {} and more, here are {here} ({measured})", claim.threads));
    }
    if let Some(backend) = shown.stand_in.as_ref().filter(|_| claim.regions) {
        return not_shown(format!("regions are {backend} ({measured})"));
    }
    let series = claim.series();
    let is_of = |names: &[String]| names.iter().find(|name| series.contains(&name.as_str())).cloned();
    let should = interval(claim.min, claim.max);
    if let Some(name) = is_of(&shown.unproven) {
        return Verdict::Unproven { numbers: format!("{measured}, {should}; the simulation of {name} is not proven") };
    }
    if let Some(name) = is_of(&shown.unsteady) {
        let numbers = format!("{measured}, {should}; the throughput of {name} changed while it was measured");
        return Verdict::CannotTell { numbers };
    }
    let (low, high, numbers) = match cores {
        Cores::Simulated => (value, value, format!("{measured}, {should}")),
        Cores::Real => {
            let rounds = shown.rounds.iter().filter_map(|round| self::value(claim, &of(round)));
            let values: Vec<f64> = rounds.collect();
            let (count, seconds) = (values.len(), shown.seconds);
            let is_short = seconds.is_some_and(|seconds| seconds < SECONDS_MIN * (1.0 - SECONDS_SLACK));
            if count < ROUNDS_MIN || is_short {
                let each = seconds.map(|seconds| format!(" of {} s", shortly(seconds))).unwrap_or_default();
                let needs = format!("a verdict takes {ROUNDS_MIN} rounds of {SECONDS_MIN} s, here are {count}{each}");
                return Verdict::CannotTell { numbers: format!("{measured}, {should}; {needs}") };
            }
            let (low, high) = around_the_median(values);
            let range = format!("{} to {} in {count} rounds", shortly(low), shortly(high));
            (low, high, format!("{measured} ({range}), {should}"))
        }
    };
    match (low >= claim.min && high <= claim.max, high < claim.min || low > claim.max) {
        (true, _) => Verdict::Holds { numbers },
        (_, true) => Verdict::Differs { numbers },
        _ => Verdict::CannotTell { numbers },
    }
}

/// Whether what a view shows lies outside the bounds of a claim.
pub(crate) fn is_outside(claim: &Claim, shown: &Curves) -> bool {
    value(claim, shown).is_some_and(|value| value < claim.min || value > claim.max)
}

/// Curves alone.
fn of(round: &[Curve]) -> Curves {
    Curves { curves: round.to_vec(), ..Curves::default() }
}

/// The narrowest interval between two values, equally far from either end, that misses the median of their distribution
/// with a probability of at most [`MISSED_MAX`]. This holds for any distribution. Where there is no such interval it is
/// that of all values.
fn around_the_median(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // The probability that at most `cut` values lie on one side of the median.
    let (mut cut, mut choices) = (0, 1.0);
    let mut below = 0.5f64.powi(count as i32);
    loop {
        choices = choices * (count - cut) as f64 / (cut + 1) as f64;
        below += choices * 0.5f64.powi(count as i32);
        if 2.0 * below > MISSED_MAX || 2 * (cut + 1) >= count {
            return (values[cut], values[count - 1 - cut]);
        }
        cut += 1;
    }
}

/// Why these curves are missing; why all are, if no curve is named.
fn first_reason(shown: &Curves, series: &[&str]) -> String {
    let of = |name: &str| series.is_empty() || series.contains(&name);
    if let Some((name, why)) = shown.missing.iter().find(|(name, _)| of(name)) {
        return format!("{name}: {why}");
    }
    // A file that is drawn again may be older than the curve.
    match series.iter().find(|name| shown.curve(name).is_none()) {
        Some(name) => format!("{name}: it was not measured"),
        None => "nothing was measured that says so".to_owned(),
    }
}

fn interval(min: f64, max: f64) -> String {
    match (min.is_finite(), max.is_finite()) {
        (true, true) => format!("should be from {} to {}", shortly(min), shortly(max)),
        (true, false) => format!("should be at least {}", shortly(min)),
        _ => format!("should be at most {}", shortly(max)),
    }
}

/// Three digits.
pub(crate) fn shortly(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 || size == 0.0 => 2,
        size if size >= 0.01 => 3,
        _ => 5,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

impl Claim {
    /// The curves it needs.
    pub(crate) fn series(&self) -> Vec<&str> {
        self.of.iter().chain(&self.over).map(String::as_str).collect()
    }
}

/// A description of the computation.
impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = self.of.join(", ");
        let of = match (&self.over[..], self.lowest) {
            ([], _) => of,
            ([one], _) => format!("{of} over {one}"),
            (_, false) => format!("{of} over the highest other"),
            (_, true) => format!("{of} over the lowest other"),
        };
        match self.at {
            At::Last => write!(f, "{of}"),
            At::X(x) => write!(f, "{of} at {}", shortly(x)),
            At::All(All::Least) => write!(f, "{of} at least"),
            At::All(All::Most) => write!(f, "{of} at most"),
            At::All(All::Growth) => write!(f, "growth of {of}"),
            At::All(All::Scaling) if self.of.len() > 1 => write!(f, "least growth over that of x of {of}"),
            At::All(All::Scaling) => write!(f, "growth of {of} over that of x"),
            At::All(All::Step) => write!(f, "{of} over its value before at least"),
            At::All(All::Fall) => write!(f, "{of} over its highest"),
            At::Between(from, to) => write!(f, "{of} at {} over {}", shortly(to), shortly(from)),
        }
    }
}

/// The quantity of a claim; `None` if a curve or a place is missing.
fn value(claim: &Claim, shown: &Curves) -> Option<f64> {
    let xs = shown.xs();
    let (first, last) = (*xs.first()?, *xs.last()?);
    let measured = |name: &str, x: f64| shown.curve(name)?.at(x);
    let at = |name: &str, x: f64| {
        let others: Option<Vec<f64>> = claim.over.iter().map(|other| measured(other, x)).collect();
        let pick = if claim.lowest { f64::min } else { f64::max };
        Some(measured(name, x)? / others?.into_iter().reduce(pick).unwrap_or(1.0))
    };
    let everywhere =
        |name: &str| -> Vec<f64> { xs.iter().filter_map(|&x| at(name, x)).filter(|value| value.is_finite()).collect() };
    let between = |name: &str, from: f64, to: f64| Some(at(name, to)? / at(name, from)?).filter(|_| to != from);
    let of = |name: &String| match claim.at {
        At::Last => at(name, last),
        At::X(x) => at(name, x),
        At::All(All::Least) => everywhere(name).into_iter().reduce(f64::min),
        At::All(All::Most) => everywhere(name).into_iter().reduce(f64::max),
        At::All(All::Growth) => between(name, first, last),
        At::All(All::Scaling) => Some(between(name, first, last)? / (last / first)),
        At::All(All::Step) => {
            at(name, last)?;
            let values = everywhere(name);
            values.windows(2).filter(|step| step[0] > 0.0).map(|step| step[1] / step[0]).reduce(f64::min)
        }
        At::All(All::Fall) => {
            let highest = everywhere(name).into_iter().reduce(f64::max)?;
            Some(at(name, last).filter(|_| xs.len() > 1)? / highest)
        }
        At::Between(from, to) => between(name, from, to),
    };
    let values: Option<Vec<f64>> = claim.of.iter().map(of).collect();
    values?.into_iter().reduce(f64::min).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIGURES;

    /// Curves of which the quantity is `value`.
    fn example(claim: &Claim, value: f64) -> Curves {
        let places: &[(f64, f64)] = match claim.at {
            At::Last => &[(1.0, 77.0), (4.0, value)],
            At::X(x) => &[(x, value), (x + 1.0, 77.0)],
            At::All(All::Least) => &[(1.0, value), (4.0, value + 1.0)],
            At::All(All::Most) => &[(1.0, value), (4.0, value / 2.0)],
            At::All(All::Growth) => &[(1.0, 2.0), (4.0, 2.0 * value)],
            At::All(All::Scaling) => &[(1.0, 2.0), (4.0, 8.0 * value)],
            At::All(All::Step) => {
                &[(1.0, 0.0), (2.0, 2.0), (4.0, 2.0 * value + 2.0), (8.0, (2.0 * value + 2.0) * value)]
            }
            At::All(All::Fall) => &[(1.0, 1.0), (2.0, 4.0), (4.0, 4.0 * value)],
            At::Between(from, to) => &[(from, 2.0), (to, 2.0 * value)],
        };
        let curve = |name: &String, by: f64| {
            let points = places.iter().map(|(x, y)| (*x, y * by)).collect();
            Curve { name: name.clone(), points }
        };
        let flat =
            |name: &String, y: f64| Curve { name: name.clone(), points: places.iter().map(|(x, _)| (*x, y)).collect() };
        // The first of the others is the one that counts.
        let rest = if claim.lowest { 3.0 } else { 1.0 };
        let others = claim.over.iter().enumerate().map(|(at, name)| flat(name, if at == 0 { 2.0 } else { rest }));
        let by = if claim.over.is_empty() { 1.0 } else { 2.0 };
        let curves: Vec<Curve> = claim.of.iter().map(|name| curve(name, by)).chain(others).collect();
        let rounds = vec![curves.clone(); ROUNDS_MIN];
        let backends = vec!["rtm".to_owned()];
        Curves { curves, threads: usize::MAX, backends, rounds, seconds: Some(SECONDS_MIN), ..Curves::default() }
    }

    /// A claim of the curve `a` over these.
    fn a(over: &[&str], at: At) -> Claim {
        let over = over.iter().map(|&name| name.to_owned()).collect();
        Claim { over, at, ..toml::from_str("says = ''\nof = 'a'\nmin = 2").expect("a claim") }
    }

    fn verdict(claim: &Claim, shown: &Curves) -> Verdict {
        judge(claim, shown, Size::Large, Cores::Real)
    }

    /// Values inside the claim's interval, and outside.
    fn values(claim: &Claim) -> (Vec<f64>, Vec<f64>) {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        if claim.min.is_finite() {
            inside.push(claim.min * 1.01);
            outside.push(claim.min * 0.98);
        }
        if claim.max.is_finite() {
            inside.push(claim.max * 0.99);
            outside.push(claim.max * 1.02);
        }
        (inside, outside)
    }

    /// The canary of every claim: points that contradict it are reported, and points that agree are not.
    #[test]
    fn canary_points_that_contradict_a_claim_are_reported() {
        for (figure, claim) in FIGURES.iter().flat_map(|figure| figure.claims.iter().map(move |claim| (figure, claim)))
        {
            let (inside, outside) = values(claim);
            assert!(!outside.is_empty(), "{}: whatever is measured, {:?} holds", figure.id(), claim.says);
            for value in inside {
                let said = verdict(claim, &example(claim, value));
                assert!(matches!(said, Verdict::Holds { .. }), "{}, {value}: {claim:?} {said}", figure.id());
            }
            for value in outside {
                let said = verdict(claim, &example(claim, value));
                assert!(matches!(said, Verdict::Differs { .. }), "{}, {value}: {claim:?} {said}", figure.id());
            }
        }
    }

    /// `a` is twice as fast as `b`.
    fn claim() -> Claim {
        Claim { threads: 8, regions: true, ..a(&["b"], At::Last) }
    }

    fn reason(said: &Verdict) -> &str {
        let Verdict::NotShown { reason } = said else { panic!("{said}") };
        reason
    }

    #[test]
    fn a_claim_that_cannot_be_judged_is_not_shown_and_has_a_reason() {
        let twice = example(&claim(), 3.0);
        assert_eq!(
            verdict(&claim(), &twice).to_string(),
            "**holds**: a over b 3 (3 to 3 in 5 rounds), should be at least 2"
        );
        let few = Curves { threads: 2, ..twice.clone() };
        let said = verdict(&claim(), &few);
        assert_eq!(reason(&said), "the paper says so of 8 and more, here are 2 threads (a over b 3)");
        let ours = verdict(&Claim { ours: true, ..claim() }, &few);
        assert!(reason(&ours).starts_with("this is claimed of 8 and more, "), "{ours}");
        let emulated = Curves { stand_in: Some("emulated".to_owned()), ..twice.clone() };
        assert!(reason(&verdict(&claim(), &emulated)).contains("emulated"));
        assert!(reason(&judge(&claim(), &twice, Size::Small, Cores::Real)).contains("small"));
        let mut lone = twice.clone();
        lone.curves.pop();
        lone.missing =
            vec![("c".to_owned(), "not of interest".to_owned()), ("b".to_owned(), "no such protocol".to_owned())];
        assert_eq!(reason(&verdict(&claim(), &lone)), "b: no such protocol");
        lone.missing.clear();
        assert_eq!(reason(&verdict(&claim(), &lone)), "b: it was not measured");
        lone.curves.push(Curve { name: "b".to_owned(), points: vec![(1.0, 3.0)] });
        assert!(reason(&verdict(&claim(), &lone)).contains("nothing was measured"), "not where it counts");
        assert!(reason(&verdict(&claim(), &Curves::default())).contains("nothing was measured"));
    }

    #[test]
    fn an_interval_that_covers_the_bound_decides_nothing() {
        let mut shown = example(&claim(), 2.5);
        let ratio = |to: f64| example(&claim(), to).curves;
        let mut judged = |ratios: [f64; 5]| {
            shown.rounds = ratios.map(ratio).into();
            verdict(&claim(), &shown)
        };
        assert!(matches!(judged([2.1, 2.5, 2.6, 3.0, 2.2]), Verdict::Holds { .. }));
        assert!(matches!(judged([1.1, 1.5, 1.6, 1.0, 1.9]), Verdict::Differs { .. }));
        let said = judged([2.5, 2.6, 1.9, 2.5, 3.0]);
        assert_eq!(said.to_string(), "cannot be told: a over b 2.5 (1.9 to 3 in 5 rounds), should be at least 2");
    }

    #[test]
    fn few_or_short_rounds_decide_nothing_and_say_what_would() {
        let full = example(&claim(), 3.0);
        let few = Curves { rounds: full.rounds[1..].to_vec(), ..full.clone() };
        let said = verdict(&claim(), &few).to_string();
        assert!(said.starts_with("cannot be told: ") && said.ends_with("5 rounds of 2 s, here are 4 of 2 s"), "{said}");
        let short = Curves { seconds: Some(0.2), ..full.clone() };
        let said = verdict(&claim(), &short).to_string();
        assert!(said.starts_with("cannot be told: ") && said.ends_with("here are 5 of 0.2 s"), "{said}");
        // Without a length the time is not checked.
        assert!(matches!(verdict(&claim(), &Curves { seconds: None, ..full }), Verdict::Holds { .. }));
    }

    #[test]
    fn simulations_that_are_not_proven_hold_nothing() {
        for value in [3.0, 1.0] {
            let mut shown = Curves { rounds: Vec::new(), ..example(&claim(), value) };
            let proven = judge(&claim(), &shown, Size::Large, Cores::Simulated);
            assert_eq!(matches!(proven, Verdict::Holds { .. }), value > 2.0, "{proven}");
            shown.unproven = vec!["c".to_owned()];
            assert_eq!(judge(&claim(), &shown, Size::Large, Cores::Simulated), proven, "another curve");
            shown.unproven.push("b".to_owned());
            let said = judge(&claim(), &shown, Size::Large, Cores::Simulated);
            let said = said.to_string();
            assert!(said.starts_with("not proven: a over b ") && said.ends_with("; the simulation of b is not proven"));
        }
    }

    #[test]
    fn a_measurement_whose_throughput_changes_decides_nothing() {
        let mut shown = example(&claim(), 3.0);
        shown.unsteady = vec!["a".to_owned()];
        let said = verdict(&claim(), &shown).to_string();
        assert!(said.starts_with("cannot be told: ") && said.ends_with("a changed while it was measured"), "{said}");
    }

    #[test]
    fn an_interval_around_the_median_is_as_narrow_as_nine_tenths_allow() {
        let of = |count: u32| around_the_median((1..=count).map(f64::from).collect());
        assert_eq!(of(1), (1.0, 1.0));
        // Of five, all: missed once in 16. Of eight without the ends: nine in 128.
        assert_eq!([of(5), of(7), of(8), of(11)], [(1.0, 5.0), (1.0, 7.0), (2.0, 7.0), (3.0, 9.0)]);
    }

    #[test]
    fn a_curve_with_one_place_neither_scales_nor_widens() {
        let curve = |name: &str| Curve { name: name.to_owned(), points: vec![(1.0, 2.0)] };
        let shown = Curves { curves: vec![curve("a"), curve("b")], threads: 1, ..Curves::default() };
        for at in [At::All(All::Scaling), At::All(All::Growth), At::All(All::Step), At::All(All::Fall)] {
            assert_eq!(value(&a(&[], at), &shown), None, "{at:?}");
            assert_eq!(value(&a(&["b"], at), &shown), None, "{at:?}");
        }
        assert_eq!(value(&a(&["b"], At::Last), &shown), Some(1.0));
    }

    /// A claim about all curves, or about many threads, is not judged by those that were measured.
    #[test]
    fn a_curve_that_is_missing_or_ends_early_is_not_passed_over() {
        let curve = |name: &str, points: &[(f64, f64)]| Curve { name: name.to_owned(), points: points.to_vec() };
        let both = |y| [(1.0, y), (4.0, y)];
        let mut shown = Curves { curves: vec![curve("a", &both(6.0)), curve("b", &both(2.0))], ..Curves::default() };
        for (at, lowest) in [(At::Last, false), (At::All(All::Least), false), (At::Last, true)] {
            for (others, wanted) in [(&["b"][..], Some(3.0)), (&["b", "c"], None)] {
                let claim = Claim { lowest, ..a(others, at) };
                assert_eq!(value(&claim, &shown), wanted, "{claim}");
            }
        }
        let both = |at| Claim { of: vec!["a".to_owned(), "b".to_owned()], ..a(&[], at) };
        assert_eq!(value(&both(At::Last), &shown), Some(2.0), "the least");
        shown.curves[1].points.pop();
        for at in [At::Last, At::All(All::Growth), At::All(All::Step), At::All(All::Fall)] {
            assert_eq!(value(&both(at), &shown), None, "{at:?}");
            assert_eq!(value(&a(&["b"], at), &shown), None, "{at:?}");
        }
    }

    #[test]
    fn a_curve_rises_step_by_step_or_falls_again() {
        let of = |ys: &[f64]| {
            let points = ys.iter().enumerate().map(|(at, y)| (at as f64, *y)).collect();
            let shown = Curves { curves: vec![Curve { name: "a".to_owned(), points }], ..Curves::default() };
            [At::All(All::Step), At::All(All::Fall)].map(|at| value(&a(&[], at), &shown))
        };
        assert_eq!(of(&[0.0, 0.0, 1.0, 2.0, 3.0]), [Some(1.5), Some(1.0)]);
        assert_eq!(of(&[1.0, 4.0, 2.0, 3.0]), [Some(0.5), Some(0.75)]);
        assert_eq!(of(&[0.0, 0.0]), [None, None]);
    }

    /// The least and the most that a quantity may be by the words of a claim, as docs/figures.md has them.
    fn said(says: &str) -> (f64, f64) {
        let words: Vec<&str> =
            says.split_whitespace().map(|word| word.trim_matches([',', ':', ';', '.', '(', ')'])).collect();
        let number = |word: &str| match word {
            "twice" | "two" => Some(2.0),
            "three" => Some(3.0),
            "four" => Some(4.0),
            "six" => Some(6.0),
            _ => word.parse::<f64>().ok(),
        };
        let (mut min, mut max) = (f64::NEG_INFINITY, f64::INFINITY);
        for (at, word) in words.iter().enumerate() {
            let after = |by: usize| words.get(at + by).copied().unwrap_or_default();
            let is_rough = at > 0 && ["about", "almost", "nearly"].contains(&words[at - 1]);
            let is_bound = at > 1 && matches!(words[at - 2..at], ["at", "most"] | ["less", "than"]);
            let named = match (number(word), after(1), after(2)) {
                (Some(times), next, _) if *word == "twice" || next == "times" => Some(times),
                (Some(percent), "%", "ahead" | "above" | "more") => Some(1.0 + percent / 100.0),
                (Some(percent), "%", "behind" | "below" | "less" | "slower" | "shorter") => Some(1.0 - percent / 100.0),
                _ => None,
            };
            let (least, most) = match (named, *word, after(1)) {
                (Some(named), ..) if is_rough => (named * 0.85, named * 1.15),
                (Some(named), ..) if (named > 1.0) != is_bound => (named, f64::INFINITY),
                (Some(named), ..) => (f64::NEG_INFINITY, named),
                (None, "far", "ahead" | "above") => (1.4, f64::INFINITY),
                (None, "far", "behind" | "below") => (f64::NEG_INFINITY, 0.7),
                (None, "about", "equal" | "as") => (0.9, 1.1),
                _ => continue,
            };
            (min, max) = (min.max(least), max.min(most));
        }
        (min, max)
    }

    #[test]
    fn words_say_what_a_quantity_may_be() {
        let any = (f64::NEG_INFINITY, f64::INFINITY);
        assert_eq!(said("a is over 10 % ahead of b with 40 threads"), (1.1, f64::INFINITY));
        assert_eq!(said("c: a is 25 % slower than b"), (f64::NEG_INFINITY, 0.75));
        assert_eq!(said("a is about 100 % above b"), (2.0 * 0.85, 2.0 * 1.15));
        assert_eq!(said("a is twice as fast as b"), (2.0, f64::INFINITY));
        assert_eq!(said("a commits 2.7 times as much"), (2.7, f64::INFINITY));
        assert_eq!(said("a is at most 5 % slower"), (0.95, f64::INFINITY));
        assert_eq!(said("a is less than 5 % ahead"), (f64::NEG_INFINITY, 1.05));
        assert_eq!(said("a is far behind b"), (f64::NEG_INFINITY, 0.7));
        assert_eq!(said("at 20 % a and b are about equal"), (0.9, 1.1));
        assert_eq!((said("a is ahead of b at 20 %"), said("up to 0.7 a is best")), (any, any));
    }

    /// A claim that names a number or a distance has bounds that are no wider. If the lower curve is divided by the
    /// higher it has the inverse ones.
    #[test]
    fn intervals_judge_what_claims_say() {
        for (figure, claim) in FIGURES.iter().flat_map(|figure| figure.claims.iter().map(move |claim| (figure, claim)))
        {
            let is_within = |min: f64, max: f64| claim.min >= min - 1e-9 && claim.max <= max + 1e-9;
            let (min, max) = said(&claim.says);
            let is_turned = min > 1.0 && is_within(f64::NEG_INFINITY, 1.0 / min);
            assert!(
                is_within(min, max) || is_turned,
                "{}: {:?} from {min} to {max}: {claim:?}",
                figure.id(),
                claim.says
            );
        }
    }

    #[test]
    fn a_division_by_nothing_is_no_value() {
        let curve = |name: &str, y| Curve { name: name.to_owned(), points: vec![(1.0, y), (2.0, y)] };
        let shown = Curves { curves: vec![curve("a", 1.0), curve("b", 0.0)], threads: 1, ..Curves::default() };
        let of_b = |at| Claim { of: vec!["b".to_owned()], ..a(&[], at) };
        for claim in [a(&["b"], At::Last), of_b(At::All(All::Growth)), of_b(At::All(All::Fall))] {
            assert_eq!(value(&claim, &shown), None, "{claim}");
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [1234.5, 12.34, 1.234, 0.1234, 0.001, 2.0, 0.0].map(shortly);
        assert_eq!(shown, ["1234", "12.3", "1.23", "0.123", "0.001", "2", "0"]);
    }
}
