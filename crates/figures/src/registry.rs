//! The figures there are: a file and a line each.

use crate::figure::{Figure, Paper};
use crate::{dbx, dbx_tc, htcc, reordering, speculation};

/// Every figure, in the order of the papers.
pub const FIGURES: &[&Figure] = &[
    &dbx::fig01::FIGURE,
    &dbx::fig05::FIGURE,
    &dbx::fig06::FIGURE,
    &dbx::fig07::FIGURE,
    &dbx::fig08::FIGURE,
    &dbx::fig09::FIGURE,
    &dbx::fig10::FIGURE,
    &dbx::fig11::FIGURE,
    &dbx::fig12::FIGURE,
    &dbx::fig13::FIGURE,
    &dbx::fig14::FIGURE,
    &dbx::fig15::FIGURE,
    &dbx::fig16::FIGURE,
    &dbx::fig17::FIGURE,
    &htcc::fig01::FIGURE,
    &htcc::fig10::FIGURE,
    &htcc::fig11::FIGURE,
    &htcc::fig12::FIGURE,
    &htcc::fig13::FIGURE,
    &htcc::fig14::FIGURE,
    &htcc::fig15::FIGURE,
    &htcc::fig16::FIGURE,
    &htcc::fig17::FIGURE,
    &htcc::fig18::FIGURE,
    &htcc::fig19::FIGURE,
    &htcc::table1::FIGURE,
    &dbx_tc::fig01::FIGURE,
    &dbx_tc::fig12::FIGURE,
    &dbx_tc::fig13::FIGURE,
    &dbx_tc::fig14::FIGURE,
    &dbx_tc::fig15::FIGURE,
    &dbx_tc::table1::FIGURE,
    &reordering::fig05::FIGURE,
    &reordering::fig06::FIGURE,
    &reordering::fig07::FIGURE,
    &reordering::fig10::FIGURE,
    &reordering::fig13::FIGURE,
    &reordering::fig16::FIGURE,
    &reordering::fig20::FIGURE,
    &reordering::fig23::FIGURE,
    &reordering::fig26::FIGURE,
    &speculation::fig04::FIGURE,
    &speculation::fig05::FIGURE,
    &speculation::fig06::FIGURE,
    &speculation::fig07::FIGURE,
    &speculation::fig08::FIGURE,
    &speculation::fig09::FIGURE,
    &speculation::fig10::FIGURE,
    &speculation::table1::FIGURE,
    &speculation::table2::FIGURE,
];

/// The figures of a paper; of these only those named, by `htcc/13` or `13`, if any are.
///
/// # Errors
/// A name that is none, with those that are.
pub fn find(paper: Option<Paper>, only: &[String]) -> Result<Vec<&'static Figure>, String> {
    let all = || FIGURES.iter().copied().filter(|figure| paper.is_none_or(|paper| figure.paper == paper));
    let is = |figure: &Figure, name: &str| figure.id() == name || (paper.is_some() && figure.number == name);
    for name in only {
        if !all().any(|figure| is(figure, name)) {
            let names: Vec<String> = all().map(Figure::id).collect();
            return Err(format!("there is no figure {name}; there is {}", names.join(", ")));
        }
    }
    Ok(all().filter(|figure| only.is_empty() || only.iter().any(|name| is(figure, name))).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::figure::{Axis, Shows};
    use crate::measured::{Cores, Size};
    use crate::test_support::{large, small};

    #[test]
    fn figures_are_found_by_paper_and_number() {
        let ids = |paper, only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            find(paper, &only).map(|found| found.into_iter().map(Figure::id).collect::<Vec<_>>())
        };
        assert_eq!(ids(None, &[]).map(|all| all.len()), Ok(FIGURES.len()));
        assert_eq!(ids(Some(Paper::Htcc), &["14", "htcc/13"]), Ok(vec!["htcc/13".to_owned(), "htcc/14".to_owned()]));
        assert!(ids(Some(Paper::Dbx), &[]).is_ok_and(|all| all.iter().all(|id| id.starts_with("dbx/"))));
        for (paper, name) in [(None, "13"), (Some(Paper::Dbx), "htcc/13"), (Some(Paper::Htcc), "99")] {
            let refused = ids(paper, &[name]).expect_err("there is none");
            assert!(refused.contains(name) && refused.contains("there is "), "{refused}");
        }
    }

    #[test]
    fn every_figure_is_whole() {
        let mut ids = HashSet::new();
        for figure in FIGURES {
            let id = figure.id();
            assert!(ids.insert(id.clone()), "{id} is there twice");
            assert!(!figure.title.is_empty() && !figure.paper_shows.is_empty() && !figure.here.is_empty(), "{id}");
            assert!(!figure.views.is_empty() && !figure.claims.is_empty(), "{id} shows and claims nothing");
            assert!(figure.claims.iter().all(|claim| claim.view < figure.views.len()), "{id}");
            for (setting, size) in [(large(), Size::Large), (small(), Size::Small)] {
                let points = (figure.points)(&setting);
                assert!(points.iter().any(|point| point.cores == Cores::Real), "{id}, {size:?}");
                assert!(points.len() <= if size == Size::Small { 40 } else { 200 }, "{id}: {}", points.len());
                let mut places = HashSet::new();
                for point in &points {
                    let place = (point.part, point.cores, point.threads, &point.series, point.x.to_bits());
                    assert!(places.insert(place), "{id}, {size:?}: {point:?} is there twice");
                    assert!(figure.views.iter().any(|view| view.part == point.part), "{id} does not show {point:?}");
                }
                for view in figure.views {
                    let shown: Vec<_> = points.iter().filter(|point| point.part == view.part).collect();
                    assert!(!shown.is_empty(), "{id}: nothing in {:?}", view.title);
                    if let (Axis::Named(names), Shows::One(_)) = (view.x, view.shows) {
                        assert!(shown.iter().all(|point| (point.x as usize) < names.len()), "{id}");
                    }
                }
            }
        }
    }

    /// A claim about a curve that no point has would never be judged.
    #[test]
    fn claims_are_about_curves_that_are_measured() {
        for figure in FIGURES {
            let points = (figure.points)(&large());
            for claim in figure.claims {
                let view = &figure.views[claim.view];
                if let Shows::Many(..) = view.shows {
                    continue;
                }
                for name in claim.quantity.series() {
                    let has = |cores| {
                        points
                            .iter()
                            .any(|point| point.part == view.part && point.series == name && point.cores == cores)
                    };
                    assert!(Cores::ALL.into_iter().any(has), "{}: no curve {name} of {claim:?}", figure.id());
                }
            }
        }
    }
}
