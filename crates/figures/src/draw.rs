//! Draws a figure: a row for each view, a panel for the machine's threads and one for simulated cores.
//!
//! The places of x stand side by side at equal distances, whatever their numbers: threads and sizes double from place to place. What is
//! missing is said on the drawing, and so is which back end ran regions.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, DrawingArea, IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend,
    WHITE,
};
use plotters::style::{Color, TextStyle};

use crate::figure::{Axis, Figure, View};
use crate::judge::shortly;
use crate::measured::{Cores, Curves, Measured, Size};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Done = Result<(), Box<dyn Error>>;

const PANEL: (u32, u32) = (640, 380);
/// Width of the names of curves, beside the chart.
const NAMES: u32 = 150;
const HEADER: u32 = 34;
/// Height of a line of notes.
const LINE: u32 = 16;
/// Curves whose absence is said on a panel; the page has all.
const NOTES_MAX: usize = 3;
/// Letters of a note.
const NOTE_LETTERS: usize = 84;

/// Colours that differ for the colour-blind too (Okabe and Ito), then darker ones.
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

/// The figure as SVG.
pub(crate) fn draw(figure: &Figure, measured: &Measured) -> Result<String, Box<dyn Error>> {
    let panels = match measured.cores() {
        none if none.is_empty() => vec![Cores::Real],
        cores => cores,
    };
    let (columns, rows) = (panels.len() as u32, figure.views.len() as u32);
    let mut svg = String::new();
    {
        let size = (columns * PANEL.0, HEADER + rows * (PANEL.1 + NOTES_MAX as u32 * LINE + LINE));
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (header, body) = root.split_vertically(HEADER);
        let mut title = format!("{}, {}: {}", figure.paper.title(), figure.label(), figure.title);
        if measured.size == Size::Small {
            title += " (small size: says nothing of speed)";
        }
        write(&header, &title, (12, 9), 19, &BLACK)?;
        let colours = colours(figure, measured);
        for (at, area) in body.split_evenly((rows as usize, columns as usize)).iter().enumerate() {
            let (view, cores) = (&figure.views[at / columns as usize], panels[at % columns as usize]);
            panel(area, view, cores, &measured.curves(view, cores), &colours)?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// The names of all curves: one has the same colour in all panels.
fn colours(figure: &Figure, measured: &Measured) -> Vec<String> {
    let mut names = Vec::new();
    for (view, cores) in figure.views.iter().flat_map(|view| Cores::ALL.map(|cores| (view, cores))) {
        for curve in measured.curves(view, cores).curves {
            if !names.contains(&curve.name) {
                names.push(curve.name);
            }
        }
    }
    names
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), size: u32, colour: &RGBColor) -> Done {
    // plotters takes sizes for those of the em square.
    let style = TextStyle::from(("sans-serif", f64::from(size) * 1.24).into_font()).color(colour);
    Ok(area.draw_text(text, &style, at)?)
}

fn panel(area: &Area<'_>, view: &View, cores: Cores, shown: &Curves, names: &[String]) -> Done {
    let (chart, notes) = area.split_vertically(PANEL.1);
    let where_ = match cores {
        Cores::Real => "threads of this machine",
        Cores::Simulated => "simulated cores",
    };
    let title = [view.title, where_].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    for (line, note) in panel_notes(shown).iter().enumerate() {
        write(&notes, note, (14, (line as u32 * LINE) as i32), 12, &RGBColor(90, 90, 90))?;
    }
    let xs = shown.xs();
    if xs.is_empty() {
        write(&chart, &title, (14, 12), 16, &BLACK)?;
        return write(
            &chart,
            "nothing to show here",
            (i32::try_from(PANEL.0)? / 2 - 70, i32::try_from(PANEL.1)? / 2),
            15,
            &BLACK,
        );
    }
    let highest = shown.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, y)| *y)).fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.15 } else { 1.0 };
    let (low, high) = (-0.5, xs.len() as f64 - 0.5);
    let (chart, beside) = chart.split_horizontally(PANEL.0 - NAMES);
    let mut chart = ChartBuilder::on(&chart);
    chart.caption(title, ("sans-serif", 19)).margin(8).x_label_area_size(36).y_label_area_size(58);
    let mut chart = chart.build_cartesian_2d(low..high, 0.0..top)?;
    let label = |place: &f64| {
        // Labels are wanted where places are.
        let at = place.round();
        let is_place = (place - at).abs() < 1e-6 && at >= 0.0 && (at as usize) < xs.len();
        if is_place { x_name(view.x, xs[at as usize]) } else { String::new() }
    };
    let name = if let Axis::Number(name) = view.x { name } else { "" };
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
    let is_bars = matches!(view.x, Axis::Named(_));
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

/// How a place of x is called.
pub(crate) fn x_name(axis: Axis, x: f64) -> String {
    match axis {
        Axis::Number(_) => shortly(x),
        Axis::Named(names) => names.get(x as usize).map_or_else(|| shortly(x), |name| (*name).to_owned()),
    }
}

/// What is said below a panel: who ran regions, and what is missing.
fn panel_notes(shown: &Curves) -> Vec<String> {
    let mut notes = Vec::new();
    if !shown.backends.is_empty() {
        notes.push(format!("regions: {}", shown.backends.join(", ")));
    }
    // Curves that are missing for one reason are said together.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (series, why) in &shown.missing {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, all)) => all.push(series),
            None => reasons.push((why, vec![series])),
        }
    }
    let more = reasons.len().saturating_sub(NOTES_MAX);
    for (at, (why, series)) in reasons.iter().take(NOTES_MAX).enumerate() {
        // Where nothing can be shown for one reason, that is all there is to say.
        let series = if shown.curves.is_empty() && reasons.len() == 1 {
            String::new()
        } else {
            format!("{}: ", series.join(", "))
        };
        let rest = if more > 0 && at + 1 == NOTES_MAX { format!(" (and {more} more)") } else { String::new() };
        notes.push(cut(&format!("not shown here: {series}{why}")) + &rest);
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
    use crate::measured::{Answer, FORMAT, MeasuredPoint, Origin, Run};

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
        let figure = FIGURES.iter().find(|figure| figure.id() == "htcc/13").expect("it is registered");
        draw(figure, measured).expect("it can be drawn")
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
    fn nothing_and_zero_are_drawn_too() {
        assert!(drawn(&measured(&[1.0, 2.0], &["htcc"], 0.0)).contains("<circle"));
        let empty = drawn(&measured(&[], &[], 0.0));
        assert!(empty.starts_with("<svg") && !empty.contains("<circle"), "{empty}");
    }
}
