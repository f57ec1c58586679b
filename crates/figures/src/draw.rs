//! Draws a figure: a row for each view, a panel for the machine's threads and one for simulated cores.
//!
//! The places of x stand side by side at equal distances, whatever their numbers: threads and sizes double from place
//! to place. The drawing says which curves are missing and which back end ran regions. A panel that would show
//! nothing is left out ([`Panels`]), and the page gives the reason.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, DrawingArea, IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend,
    WHITE,
};
use plotters::style::{Color, TextStyle};

use crate::figure::{Axis, Figure, View};
use crate::judge::shortly;
use crate::kept::Kept;
use crate::measured::{Cores, Curves, Size};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Done = Result<(), Box<dyn Error>>;

const PANEL: (u32, u32) = (640, 380);
/// Width of the names of curves, beside the chart.
const NAMES: u32 = 150;
const HEADER: u32 = 34;
/// Height of a line of notes.
const LINE: u32 = 16;
/// Reasons for missing curves that a panel shows; the page has all.
const NOTES_MAX: usize = 3;
/// Letters of a note.
const NOTE_LETTERS: usize = 84;

/// Colours that the colour-blind distinguish too (Okabe and Ito), then darker ones.
const COLOURS: [RGBColor; 10] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
    RGBColor(128, 0, 32),
    RGBColor(90, 70, 160),
];

struct Panel<'a> {
    view: &'a View,
    cores: Cores,
    shown: Curves,
}

/// The panels of a figure.
pub(crate) struct Panels<'a> {
    /// A row for each view that has a panel to show.
    rows: Vec<Vec<Panel<'a>>>,
    /// Reasons, each with the titles of the panels that are left out for it.
    pub(crate) left_out: Vec<(String, Vec<String>)>,
}

impl<'a> Panels<'a> {
    pub(crate) fn of(figure: &'a Figure, kept: &Kept) -> Self {
        let mut panels = Panels { rows: Vec::new(), left_out: Vec::new() };
        for view in &figure.views {
            let mut row = Vec::new();
            for &cores in kept.cores.keys() {
                let shown = kept.curves(view, cores);
                match shows_nothing(view, &shown) {
                    None => row.push(Panel { view, cores, shown }),
                    Some(why) => {
                        let title = title(view, cores);
                        match panels.left_out.iter_mut().find(|known| known.0 == why) {
                            Some((_, titles)) => titles.push(title),
                            None => panels.left_out.push((why, vec![title])),
                        }
                    }
                }
            }
            if !row.is_empty() {
                panels.rows.push(row);
            }
        }
        panels
    }

    /// Whether no panel is left: then there is no drawing.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many panels stand side by side: those of a view, or else as many as leave no place empty.
    fn columns(&self) -> usize {
        let of_a_view = self.rows.first().map_or(1, Vec::len);
        if self.rows.iter().all(|row| row.len() == of_a_view) {
            return of_a_view;
        }
        let all: usize = self.rows.iter().map(Vec::len).sum();
        [3, 2].into_iter().find(|columns| all.is_multiple_of(*columns)).unwrap_or(1)
    }
}

/// Why a panel would show nothing, if so.
fn shows_nothing(view: &View, shown: &Curves) -> Option<String> {
    if shown.xs().is_empty() {
        let mut reasons: Vec<&str> = Vec::new();
        for (_, why) in &shown.missing {
            if !reasons.contains(&why.as_str()) {
                reasons.push(why);
            }
        }
        return Some(if reasons.is_empty() { "nothing was measured".to_owned() } else { reasons.join("; ") });
    }
    if let [only] = &shown.curves[..]
        && only.points.len() == 1
    {
        return Some("one point alone was measured".to_owned());
    }
    // The counts of a stand-in say nothing about a processor.
    let counts_regions = ["aborted regions", "fallbacks"].iter().any(|what| view.shows.label().starts_with(what));
    let stand_in = shown.stand_in.as_ref().filter(|_| counts_regions)?;
    Some(format!("regions are {stand_in}"))
}

fn title(view: &View, cores: Cores) -> String {
    let where_ = match cores {
        Cores::Real => "threads of this machine",
        Cores::Simulated => "simulated cores",
    };
    [&view.title, where_].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The figure as SVG; `None` if it would show nothing.
pub(crate) fn draw(figure: &Figure, kept: &Kept) -> Result<Option<String>, Box<dyn Error>> {
    let panels = Panels::of(figure, kept);
    if panels.is_empty() {
        return Ok(None);
    }
    let columns = panels.columns() as u32;
    let panels: Vec<&Panel<'_>> = panels.rows.iter().flatten().collect();
    let rows = panels.len() as u32 / columns;
    let mut svg = String::new();
    {
        let size = (columns * PANEL.0, HEADER + rows * (PANEL.1 + NOTES_MAX as u32 * LINE + LINE));
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (header, body) = root.split_vertically(HEADER);
        let mut title = format!("{}, {}: {}", figure.paper.title, figure.label(), figure.title);
        if kept.size == Size::Small {
            title += " (small size: says nothing of speed)";
        }
        write(&header, &title, (12, 9), title_size(&title, size.0), &BLACK)?;
        let colours = colours(figure, kept);
        for (area, shown) in body.split_evenly((rows as usize, columns as usize)).iter().zip(panels) {
            panel(area, shown, &colours)?;
        }
        root.present()?;
    }
    Ok(Some(svg))
}

/// The names of all curves: one has the same colour in all panels.
fn colours(figure: &Figure, kept: &Kept) -> Vec<String> {
    let mut names = Vec::new();
    for (view, cores) in figure.views.iter().flat_map(|view| Cores::ALL.map(|cores| (view, cores))) {
        for curve in kept.curves(view, cores).curves {
            if !names.contains(&curve.name) {
                names.push(curve.name);
            }
        }
    }
    names
}

/// The size at which a title fits into a drawing of this width: a letter is about half as wide as it is high.
fn title_size(title: &str, width: u32) -> u32 {
    let letters = title.chars().count().max(1) as u32;
    (width.saturating_sub(24) * 19 / (10 * letters)).clamp(10, 19)
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), size: u32, colour: &RGBColor) -> Done {
    // plotters takes the size of the em square.
    let style = TextStyle::from(("sans-serif", f64::from(size) * 1.24).into_font()).color(colour);
    Ok(area.draw_text(text, &style, at)?)
}

fn panel(area: &Area<'_>, Panel { view, cores, shown }: &Panel<'_>, names: &[String]) -> Done {
    let (chart, notes) = area.split_vertically(PANEL.1);
    for (line, note) in panel_notes(shown).iter().enumerate() {
        write(&notes, note, (14, (line as u32 * LINE) as i32), 12, &RGBColor(90, 90, 90))?;
    }
    let xs = shown.xs();
    let highest = shown.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, y)| *y)).fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.15 } else { 1.0 };
    let (low, high) = (-0.5, xs.len() as f64 - 0.5);
    let (chart, beside) = chart.split_horizontally(PANEL.0 - NAMES);
    let mut chart = ChartBuilder::on(&chart);
    chart.caption(title(view, *cores), ("sans-serif", 19)).margin(8).x_label_area_size(36).y_label_area_size(58);
    let mut chart = chart.build_cartesian_2d(low..high, 0.0..top)?;
    let label = |place: &f64| {
        // Only places have labels.
        let at = place.round();
        let is_place = (place - at).abs() < 1e-6 && at >= 0.0 && (at as usize) < xs.len();
        if is_place { x_name(&view.x, xs[at as usize]) } else { String::new() }
    };
    let name = if let Axis::Number(name) = &view.x { name } else { "" };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * xs.len() + 1)
        .x_label_formatter(&label)
        .y_label_formatter(&|y| shortly(*y))
        .x_desc(name)
        .y_desc(view.shows.label())
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 15))
        .light_line_style(WHITE)
        .draw()?;
    let is_bars = matches!(&view.x, Axis::Named(_));
    let width = 0.8 / shown.curves.len() as f64;
    for (at, curve) in shown.curves.iter().enumerate() {
        let index = names.iter().position(|name| *name == curve.name).unwrap_or(at);
        let colour = COLOURS[index % COLOURS.len()];
        let place = |x: f64| xs.iter().position(|at| *at == x).unwrap_or_default() as f64;
        let points: Vec<(f64, f64)> = curve.points.iter().map(|&(x, y)| (place(x), y)).collect();
        if is_bars {
            let left = |x: f64| x - 0.4 + at as f64 * width;
            let bars = points
                .iter()
                .map(|&(x, y)| Rectangle::new([(left(x), 0.0), (left(x) + width * 0.92, y)], colour.filled()));
            chart.draw_series(bars)?;
        } else {
            chart.draw_series(std::iter::once(PathElement::new(points.clone(), colour.stroke_width(2))))?;
            chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
        }
        let line = 40 + 18 * i32::try_from(at)?;
        beside.draw(&Rectangle::new([(4, line), (18, line + 9)], colour.filled()))?;
        write(&beside, &curve.name, (23, line - 1), 12, &BLACK)?;
    }
    Ok(())
}

/// The name of a place of x.
pub(crate) fn x_name(axis: &Axis, x: f64) -> String {
    match axis {
        Axis::Number(_) => shortly(x),
        Axis::Named(names) => names.get(x as usize).map_or_else(|| shortly(x), Clone::clone),
    }
}

/// The notes below a panel: the back end that ran regions, and missing curves.
fn panel_notes(shown: &Curves) -> Vec<String> {
    let mut notes = Vec::new();
    if !shown.backends.is_empty() {
        notes.push(format!("regions: {}", shown.backends.join(", ")));
    }
    // Curves that are missing for one reason share a note.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (series, why) in &shown.missing {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, all)) => all.push(series),
            None => reasons.push((why, vec![series])),
        }
    }
    let more = reasons.len().saturating_sub(NOTES_MAX);
    for (at, (why, series)) in reasons.iter().take(NOTES_MAX).enumerate() {
        let rest = if more > 0 && at + 1 == NOTES_MAX { format!(" (and {more} more)") } else { String::new() };
        notes.push(cut(&format!("not shown here: {}: {why}", series.join(", "))) + &rest);
    }
    notes
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(NOTE_LETTERS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::FIGURES;
    use crate::measured::{Answer, FORMAT, Measured, MeasuredPoint, Origin, Run};
    use crate::test_support::figure;

    fn measured(xs: &[f64], series: &[&str], rate: f64) -> Measured {
        let report = json!({ "committed_per_second": rate, "htm": { "backend": "emulated" } });
        let points = series.iter().flat_map(|series| {
            let run = Run { command: format!("--protocol {series}"), answer: Answer::Report(report.clone()) };
            xs.iter().map(move |&x| MeasuredPoint {
                part: String::new(),
                cores: Cores::Real,
                threads: 1,
                series: (*series).to_owned(),
                x,
                runs: vec![run.clone()],
            })
        });
        let origin = Origin { revision: String::new(), program: String::new(), machine: json!({}) };
        let (size, points) = (Size::Large, points.collect());
        let origins = [(Cores::Real, origin)].into();
        Measured { format: FORMAT, figure: "htcc/13".to_owned(), size, origins, points }
    }

    fn drawn(measured: &Measured) -> String {
        of(figure("htcc/13"), measured).expect("it shows something")
    }

    fn of(figure: &Figure, measured: &Measured) -> Option<String> {
        draw(figure, &Kept::of(figure, measured, None)).expect("it can be drawn")
    }

    #[test]
    fn every_place_of_x_has_its_label_and_every_curve_its_name() {
        for places in 1..=12 {
            let xs: Vec<f64> = (0..places).map(|at| f64::from(1_000 + at)).collect();
            let svg = drawn(&measured(&xs, &["htcc", "a < b"], 5e3));
            for x in xs {
                assert_eq!(svg.matches(&format!("\n{x}\n")).count(), 1, "{x} of {places}: {svg}");
            }
            assert!(
                svg.contains("\nhtcc\n") && svg.contains("\na &lt; b\n") && svg.contains("regions: emulated"),
                "{svg}"
            );
        }
    }

    #[test]
    fn zero_is_drawn_and_nothing_is_not() {
        assert!(drawn(&measured(&[1.0, 2.0], &["htcc"], 0.0)).contains("<circle"));
        assert_eq!(of(figure("htcc/13"), &measured(&[], &[], 0.0)), None);
    }

    #[test]
    fn a_panel_that_shows_nothing_is_left_out_with_its_reason() {
        let mut half = measured(&[1.0, 2.0], &["htcc"], 5e3);
        let mut simulated = half.points[0].clone();
        simulated.cores = Cores::Simulated;
        simulated.runs[0].answer = Answer::NotHere("no such option".to_owned());
        half.points.push(simulated);
        let svg = drawn(&half);
        assert!(svg.contains(r#"width="640""#) && !svg.contains("simulated cores"), "one panel: {svg}");
        let figure = figure("htcc/13");
        let left_out = Panels::of(figure, &Kept::of(figure, &half, None)).left_out;
        assert_eq!(left_out, [("no such option".to_owned(), vec!["simulated cores".to_owned()])]);
    }

    #[test]
    fn aborts_of_emulated_regions_are_not_drawn() {
        let figure = figure("dbx/9");
        let is_drawn = |backend: &str| {
            let mut measured = measured(&[1.0, 2.0], &["dbx"], 5e3);
            let aborted = json!({ "conflict": 1 });
            let htm = json!({ "backend": backend, "started": 9, "aborted": aborted, "fallback": 1 });
            let report = Answer::Report(json!({ "committed": 8, "htm": htm }));
            measured.points.iter_mut().for_each(|point| point.runs[0].answer = report.clone());
            of(figure, &measured).is_some()
        };
        assert!(is_drawn("rtm") && !is_drawn("emulated"));
    }

    #[test]
    fn a_title_fits_into_its_drawing() {
        for figure in FIGURES.iter() {
            let title = format!(
                "{}, {}: {} (small size: says nothing of speed)",
                figure.paper.title,
                figure.label(),
                figure.title
            );
            let width = 24 + title.chars().count() as u32 * title_size(&title, PANEL.0) * 10 / 19;
            assert!(width <= PANEL.0, "{title}: {width}");
        }
        assert_eq!(title_size("short", PANEL.0), 19);
    }

    #[test]
    fn one_point_alone_is_not_drawn() {
        let figure = figure("htcc/13");
        let is_drawn = |xs: &[f64], series: &[&str]| of(figure, &measured(xs, series, 5e3)).is_some();
        assert!(!is_drawn(&[1.0], &["htcc"]));
        assert!(is_drawn(&[1.0], &["htcc", "occ"]) && is_drawn(&[1.0, 2.0], &["htcc"]));
    }

    #[test]
    fn a_drawing_has_no_empty_place() {
        let columns = |rows: &[usize]| {
            let figure = figure("htcc/13");
            let panel = || Panel { view: &figure.views[0], cores: Cores::Real, shown: Curves::default() };
            let rows = rows.iter().map(|&count| (0..count).map(|_| panel()).collect()).collect();
            Panels { rows, left_out: Vec::new() }.columns()
        };
        assert_eq!([&[2, 2][..], &[1, 1, 1], &[2, 1, 1], &[2, 1], &[2, 1, 1, 1]].map(columns), [2, 1, 2, 3, 1]);
    }
}
