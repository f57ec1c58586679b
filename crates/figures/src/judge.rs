//! Whether a claim holds of what was measured.
//!
//! A quantity that cannot be computed, or that says nothing here, is *not shown here*, with the reason: it is never taken for one that
//! holds or differs.

use serde::Serialize;

use crate::figure::{Claim, Quantity};
use crate::measured::{Cores, Curves, Size};

/// What is to be said of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// The quantity lies where it should.
    Holds {
        /// It, and where it should lie.
        numbers: String,
    },
    /// It does not.
    Differs {
        /// It, and where it should lie.
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
            Verdict::NotShown { reason } => write!(f, "not shown here: {reason}"),
        }
    }
}

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
    let value = match value(&claim.quantity, shown) {
        Some(value) => value,
        None => return not_shown(first_reason(shown, &claim.quantity.series())),
    };
    let measured = format!("{} {}", claim.quantity, shortly(value));
    if shown.threads < claim.threads {
        let here = cores.count(shown.threads);
        return not_shown(format!("the paper says so of {} and more, here are {here} ({measured})", claim.threads));
    }
    if let Some(backend) = shown.stand_in.as_ref().filter(|_| claim.regions) {
        return not_shown(format!("regions are {backend} ({measured})"));
    }
    let numbers = format!("{measured}, {}", interval(claim.min, claim.max));
    match value >= claim.min && value <= claim.max {
        true => Verdict::Holds { numbers },
        false => Verdict::Differs { numbers },
    }
}

/// Why there is nothing of these curves, or of any if there are none.
fn first_reason(shown: &Curves, series: &[&str]) -> String {
    let of = |name: &str| series.is_empty() || series.contains(&name);
    match shown.missing.iter().find(|(name, _)| of(name)) {
        Some((name, why)) => format!("{name}: {why}"),
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

impl Quantity {
    /// The curves it needs.
    pub(crate) fn series(&self) -> Vec<&'static str> {
        match *self {
            Quantity::Ratio(a, b)
            | Quantity::RatioAt(a, b, _)
            | Quantity::LeastRatio(a, b)
            | Quantity::Widening(a, b) => vec![a, b],
            Quantity::Lead(a, others) => std::iter::once(a).chain(others.iter().copied()).collect(),
            Quantity::Sum(series) => series.to_vec(),
            Quantity::Scaling(a)
            | Quantity::Growth(a)
            | Quantity::Value(a)
            | Quantity::ValueAt(a, _)
            | Quantity::Between(a, ..) => vec![a],
        }
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Quantity::Ratio(a, b) => write!(f, "{a} over {b}"),
            Quantity::RatioAt(a, b, x) => write!(f, "{a} over {b} at {}", shortly(*x)),
            Quantity::LeastRatio(a, b) => write!(f, "{a} over {b} at least"),
            Quantity::Lead(a, _) => write!(f, "{a} over the best other"),
            Quantity::Scaling(a) => write!(f, "growth of {a} over that of x"),
            Quantity::Growth(a) => write!(f, "growth of {a}"),
            Quantity::Widening(a, b) => write!(f, "growth of {a} over {b}"),
            Quantity::Value(a) => write!(f, "{a}"),
            Quantity::ValueAt(a, x) => write!(f, "{a} at {}", shortly(*x)),
            Quantity::Between(a, from, to) => write!(f, "{a} at {} over {}", shortly(*to), shortly(*from)),
            Quantity::Sum(series) => write!(f, "{} together", series.join(" and ")),
        }
    }
}

/// The quantity; `None` where a curve or a place is missing.
fn value(quantity: &Quantity, shown: &Curves) -> Option<f64> {
    let ratios = |a: &str, b: &str| -> Option<Vec<(f64, f64)>> {
        let (a, b) = (shown.curve(a)?, shown.curve(b)?);
        let both = a.points.iter().filter_map(|&(x, y)| Some((x, y / b.at(x)?)));
        Some(both.filter(|(_, ratio)| ratio.is_finite()).collect())
    };
    let ends = |name: &str| {
        let curve = shown.curve(name)?;
        Some((*curve.points.first()?, *curve.points.last()?))
    };
    let value = match *quantity {
        Quantity::Ratio(a, b) => ratios(a, b)?.last()?.1,
        Quantity::RatioAt(a, b, x) => shown.curve(a)?.at(x)? / shown.curve(b)?.at(x)?,
        Quantity::LeastRatio(a, b) => ratios(a, b)?.into_iter().map(|(_, ratio)| ratio).reduce(f64::min)?,
        Quantity::Lead(a, others) => {
            let &(x, y) = shown.curve(a)?.points.last()?;
            let best = others.iter().filter_map(|other| shown.curve(other)?.at(x)).reduce(f64::max)?;
            y / best
        }
        Quantity::Scaling(a) => {
            let ((x, y), (x_last, y_last)) = ends(a).filter(|(first, last)| last.0 > first.0)?;
            (y_last / y) / (x_last / x)
        }
        Quantity::Growth(a) => {
            let (first, last) = ends(a).filter(|(first, last)| last.0 > first.0)?;
            last.1 / first.1
        }
        Quantity::Widening(a, b) => {
            let ratios = ratios(a, b).filter(|ratios| ratios.len() > 1)?;
            ratios.last()?.1 / ratios.first()?.1
        }
        Quantity::Value(a) => shown.curve(a)?.points.last()?.1,
        Quantity::ValueAt(a, x) => shown.curve(a)?.at(x)?,
        Quantity::Between(a, from, to) => shown.curve(a)?.at(to)? / shown.curve(a)?.at(from)?,
        Quantity::Sum(series) => {
            let x = *shown.xs().last()?;
            series.iter().map(|name| shown.curve(name)?.at(x)).sum::<Option<f64>>()?
        }
    };
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIGURES;
    use crate::measured::Curve;

    /// Curves of which the quantity is `value`.
    fn example(quantity: &Quantity, value: f64) -> Curves {
        let curve = |name: &str, points: &[(f64, f64)]| Curve { name: name.to_owned(), points: points.to_vec() };
        let flat = |name: &str, y| curve(name, &[(1.0, y), (4.0, y)]);
        let curves = match *quantity {
            Quantity::Ratio(a, b) => vec![curve(a, &[(1.0, 1.0), (4.0, 3.0 * value)]), flat(b, 3.0)],
            Quantity::RatioAt(a, b, x) => {
                vec![curve(a, &[(x, 3.0 * value), (x + 1.0, 77.0)]), curve(b, &[(x, 3.0), (x + 1.0, 3.0)])]
            }
            Quantity::LeastRatio(a, b) => vec![curve(a, &[(1.0, value), (4.0, value + 1.0)]), flat(b, 1.0)],
            Quantity::Lead(a, others) => {
                let lesser = others.iter().map(|other| flat(other, 1.0));
                let mut curves: Vec<Curve> = lesser.chain([flat(a, 2.0 * value)]).collect();
                curves[0] = flat(others[0], 2.0);
                curves
            }
            Quantity::Scaling(a) => vec![curve(a, &[(1.0, 2.0), (4.0, 8.0 * value)])],
            Quantity::Growth(a) => vec![curve(a, &[(1.0, 2.0), (4.0, 2.0 * value)])],
            Quantity::Widening(a, b) => {
                vec![curve(a, &[(1.0, 1.0), (4.0, 2.0 * value)]), curve(b, &[(1.0, 1.0), (4.0, 2.0)])]
            }
            Quantity::Value(a) => vec![curve(a, &[(1.0, 77.0), (4.0, value)])],
            Quantity::ValueAt(a, x) => vec![curve(a, &[(x, value), (x + 1.0, 77.0)])],
            Quantity::Between(a, from, to) => vec![curve(a, &[(from, 2.0), (to, 2.0 * value)])],
            Quantity::Sum(series) => {
                series.iter().map(|name| curve(name, &[(4.0, value / series.len() as f64)])).collect()
            }
        };
        Curves { curves, threads: usize::MAX, backends: vec!["rtm".to_owned()], ..Curves::default() }
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

    /// The canary of every claim there is: points that contradict it are told, those that agree are not.
    #[test]
    fn canary_points_that_contradict_a_claim_are_told() {
        for (figure, claim) in FIGURES.iter().flat_map(|figure| figure.claims.iter().map(move |claim| (figure, claim)))
        {
            let (inside, outside) = values(claim);
            assert!(!outside.is_empty(), "{}: whatever is measured, {:?} holds", figure.id(), claim.says);
            for value in inside {
                let said = verdict(claim, &example(&claim.quantity, value));
                assert!(matches!(said, Verdict::Holds { .. }), "{}, {value}: {claim:?} {said}", figure.id());
            }
            for value in outside {
                let said = verdict(claim, &example(&claim.quantity, value));
                assert!(matches!(said, Verdict::Differs { .. }), "{}, {value}: {claim:?} {said}", figure.id());
            }
        }
    }

    const CLAIM: Claim = Claim {
        says: "a is twice as fast as b",
        view: 0,
        quantity: Quantity::Ratio("a", "b"),
        min: 2.0,
        max: f64::INFINITY,
        threads: 8,
        regions: true,
        because: "",
    };

    fn reason(said: &Verdict) -> &str {
        let Verdict::NotShown { reason } = said else { panic!("{said}") };
        reason
    }

    #[test]
    fn what_cannot_be_said_is_not_shown_with_the_reason() {
        let twice = example(&CLAIM.quantity, 3.0);
        assert_eq!(verdict(&CLAIM, &twice).to_string(), "**holds**: a over b 3, should be at least 2");
        let few = Curves { threads: 2, ..twice.clone() };
        let said = verdict(&CLAIM, &few);
        assert!(["8", "2 threads", "a over b 3"].iter().all(|word| reason(&said).contains(word)), "{said}");
        let emulated = Curves { stand_in: Some("emulated".to_owned()), ..twice.clone() };
        assert!(reason(&verdict(&CLAIM, &emulated)).contains("emulated"));
        assert!(reason(&judge(&CLAIM, &twice, Size::Small, Cores::Real)).contains("small"));
        let mut lone = twice.clone();
        lone.curves.pop();
        lone.missing =
            vec![("c".to_owned(), "not of interest".to_owned()), ("b".to_owned(), "no such protocol".to_owned())];
        assert_eq!(reason(&verdict(&CLAIM, &lone)), "b: no such protocol");
        lone.missing.clear();
        assert!(reason(&verdict(&CLAIM, &lone)).contains("nothing was measured"));
        assert!(reason(&verdict(&CLAIM, &Curves::default())).contains("nothing was measured"));
    }

    #[test]
    fn a_curve_with_one_place_neither_scales_nor_widens() {
        let curve = |name: &str| Curve { name: name.to_owned(), points: vec![(1.0, 2.0)] };
        let shown = Curves { curves: vec![curve("a"), curve("b")], threads: 1, ..Curves::default() };
        for quantity in [Quantity::Scaling("a"), Quantity::Growth("a"), Quantity::Widening("a", "b")] {
            assert_eq!(value(&quantity, &shown), None, "{quantity}");
        }
        assert_eq!(value(&Quantity::Ratio("a", "b"), &shown), Some(1.0));
    }

    #[test]
    fn a_division_by_nothing_is_no_value() {
        let curve = |name: &str, y| Curve { name: name.to_owned(), points: vec![(1.0, y), (2.0, y)] };
        let shown = Curves { curves: vec![curve("a", 1.0), curve("b", 0.0)], threads: 1, ..Curves::default() };
        assert_eq!(value(&Quantity::Ratio("a", "b"), &shown), None);
        assert_eq!(value(&Quantity::Growth("b"), &shown), None);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [1234.5, 12.34, 1.234, 0.1234, 0.001, 2.0, 0.0].map(shortly);
        assert_eq!(shown, ["1234", "12.3", "1.23", "0.123", "0.001", "2", "0"]);
    }
}
