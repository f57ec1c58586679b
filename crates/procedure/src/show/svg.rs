//! A chopping graph drawn: a column for each instance, a box for each operation, in order of execution.
//!
//! The piece with conflicts has an oval around it, other pieces of several operations a grey one. S-edges run down a column in
//! black, C-edges between columns in red, publish–subscribe dashed. All numbers are whole pixels, so that the same chopping gives
//! the same bytes.

use std::collections::HashMap;
use std::fmt::Write;

use seriatim_plan::{Chopping, Role};

use super::graph::{Graph, Node, graph};

const MARGIN: usize = 24;
const HEADER: usize = 34;
const BOX_HEIGHT: usize = 24;
const ROW: usize = 44;
const PIECE_GAP: usize = 16;
const COLUMN_GAP: usize = 90;
const CHARACTER: usize = 7;

/// The drawing as SVG.
pub fn svg(chopping: &Chopping) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(chopping, &mut out);
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where everything stands: left edges of columns, their widths, tops of boxes.
struct Places {
    columns: Vec<(usize, usize)>,
    tops: HashMap<Node, usize>,
    width: usize,
    height: usize,
}

fn place(graph: &Graph) -> Places {
    let mut places = Places { columns: Vec::new(), tops: HashMap::new(), width: MARGIN, height: 0 };
    for (instance, found) in graph.instances.iter().enumerate() {
        let labels = found.pieces.iter().flat_map(|piece| &piece.operations).map(|(_, label)| label.chars().count());
        let longest = labels.max().unwrap_or(0).max(found.name.chars().count());
        let width = longest * CHARACTER + 16;
        places.columns.push((places.width, width));
        places.width += width + COLUMN_GAP;
        let mut top = MARGIN + HEADER;
        for piece in &found.pieces {
            for (operation, _) in &piece.operations {
                places.tops.insert(Node { instance, operation: *operation }, top);
                top += ROW;
            }
            top += PIECE_GAP;
        }
        places.height = places.height.max(top);
    }
    places.width = places.width.saturating_sub(COLUMN_GAP) + MARGIN;
    places.height += MARGIN;
    places
}

fn write(chopping: &Chopping, out: &mut String) -> std::fmt::Result {
    let graph = graph(chopping);
    let places = place(&graph);
    let (width, height) = (places.width, places.height);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"11\">"
    )?;
    writeln!(out, "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>")?;
    // Edges first, so that boxes stay readable.
    for edge in &graph.edges {
        let (from, to) = match edge.from.instance <= edge.to.instance {
            true => (edge.from, edge.to),
            false => (edge.to, edge.from),
        };
        let (from_left, from_width) = places.columns[from.instance];
        let (x1, y1) = (from_left + from_width, places.tops[&from] + BOX_HEIGHT / 2);
        let (x2, y2) = (places.columns[to.instance].0, places.tops[&to] + BOX_HEIGHT / 2);
        let third = x2.saturating_sub(x1).min(COLUMN_GAP) / 2;
        let (class, style) = match edge.deferred {
            true => ("p", "stroke=\"black\" stroke-dasharray=\"6 4\""),
            false => ("c", "stroke=\"red\""),
        };
        writeln!(
            out,
            "<path class=\"{class}\" d=\"M{x1} {y1} C{} {y1} {} {y2} {x2} {y2}\" fill=\"none\" {style}><title>{}</title></path>",
            x1 + third,
            x2.saturating_sub(third),
            escape(&edge.label)
        )?;
    }
    for (instance, found) in graph.instances.iter().enumerate() {
        let (left, width) = places.columns[instance];
        let middle = left + width / 2;
        let top = |operation: usize| places.tops[&Node { instance, operation }];
        writeln!(
            out,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>",
            MARGIN + 8,
            escape(&found.name)
        )?;
        let mut bottom = None;
        for piece in &found.pieces {
            let (Some(first), Some(last)) = (piece.operations.first(), piece.operations.last()) else { continue };
            let (first, last) = (top(first.0), top(last.0) + BOX_HEIGHT);
            if let Some(bottom) = bottom {
                writeln!(
                    out,
                    "<line class=\"s\" x1=\"{middle}\" y1=\"{bottom}\" x2=\"{middle}\" y2=\"{first}\" stroke=\"black\"/>"
                )?;
            }
            bottom = Some(last);
            if piece.conflicting || piece.operations.len() > 1 {
                let stroke = if piece.conflicting { "firebrick" } else { "grey" };
                writeln!(
                    out,
                    "<rect class=\"piece\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\" fill=\"none\" \
                     stroke=\"{stroke}\" stroke-width=\"2\"/>",
                    left - 12,
                    first - 9,
                    width + 24,
                    last - first + 18,
                    (last - first + 18).min(width + 24).min(60) / 2
                )?;
            }
            for (operation, label) in &piece.operations {
                let y = top(*operation);
                let dash = if piece.role == Role::Deferred { " stroke-dasharray=\"4 3\"" } else { "" };
                writeln!(
                    out,
                    "<rect class=\"operation\" x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{BOX_HEIGHT}\" \
                     fill=\"white\" stroke=\"black\"{dash}/>"
                )?;
                writeln!(
                    out,
                    "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    y + BOX_HEIGHT / 2 + 4,
                    escape(label)
                )?;
            }
        }
    }
    writeln!(out, "</svg>")
}
