//! A drawing of a chopping graph. First instances are in a column on the left, second ones on the right. Each operation
//! has a box, in order of execution from top to bottom.
//!
//! C-edges connect first instances with second ones, so they all run between the columns and cross no box:
//! red, publish–subscribe dashed. S-edges run down a column, in black. The piece with conflicts is circled in
//! red, others of several operations in grey. The objects of an operation's edges are beside it. All numbers
//! are whole pixels, so that the same chopping gives the same bytes.

use std::collections::HashMap;
use std::fmt::{Result, Write};

use crate::plan::{Chopping, Role};

use super::graph::{Edge, Graph, Node, graph};
use super::notes::notes;

const MARGIN: usize = 24;
const TITLE: usize = 52;
const HEADING: usize = 24;
const BOX_HEIGHT: usize = 24;
const ROW: usize = 30;
const PIECE_GAP: usize = 18;
const PROCEDURE_GAP: usize = 26;
/// Between the columns.
const BETWEEN: usize = 340;
const CHARACTER: usize = 7;
/// Of the title, which is larger.
const TITLE_CHARACTER: usize = 8;
const LINE: usize = 18;
/// For the role of a piece, left of it.
const ROLE: usize = 78;

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

/// The layout.
struct Places {
    /// Left edges of the two columns of boxes.
    columns: [usize; 2],
    /// Width of a box.
    width: usize,
    /// Tops of boxes.
    tops: HashMap<Node, usize>,
    /// Baselines of the procedures' names, by instance.
    headings: Vec<usize>,
    /// Below all boxes.
    bottom: usize,
    /// The width of the text right of the second column.
    beside: usize,
}

impl Places {
    fn of(graph: &Graph) -> Places {
        let operations = || graph.instances.iter().flat_map(|found| &found.pieces).flat_map(|piece| &piece.operations);
        let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0) * CHARACTER;
        let width = longest(&mut operations().map(|operation| operation.label.chars().count())) + 16;
        let left = MARGIN + ROLE;
        let mut places = Places {
            columns: [left, left + width + BETWEEN],
            width,
            tops: HashMap::new(),
            headings: Vec::new(),
            bottom: MARGIN + TITLE,
            beside: longest(&mut operations().map(|operation| operation.grounds.chars().count())) + 24,
        };
        for (pair, found) in graph.instances.chunks(2).enumerate() {
            let Some(first) = found.first() else { continue };
            places.headings.extend([places.bottom + 8; 2]);
            let mut top = places.bottom + HEADING;
            for piece in &first.pieces {
                for operation in &piece.operations {
                    for instance in [2 * pair, 2 * pair + 1] {
                        places.tops.insert(Node { instance, operation: operation.id }, top);
                    }
                    top += ROW;
                }
                top += PIECE_GAP;
            }
            places.bottom = top + PROCEDURE_GAP - PIECE_GAP;
        }
        places
    }

    fn left(&self, instance: usize) -> usize {
        self.columns[instance % 2]
    }

    fn top(&self, instance: usize, operation: usize) -> usize {
        self.tops.get(&Node { instance, operation }).copied().unwrap_or(0)
    }

    fn right(&self) -> usize {
        self.columns[1] + self.width
    }
}

fn write(chopping: &Chopping, out: &mut String) -> Result {
    let graph = graph(chopping);
    let places = Places::of(&graph);
    let title = format!("Chopping graph with {}", chopping.options);
    let wanted = places.right().max(MARGIN + title.chars().count() * TITLE_CHARACTER).max(760);
    let width = wanted.max(places.right() + places.beside) + MARGIN;
    let below = notes(chopping, (width - 2 * MARGIN) / CHARACTER);
    let height = places.bottom + (LEGEND.len() + below.len() + 1) * LINE + MARGIN;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"11\">"
    )?;
    writeln!(out, "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>")?;
    text(out, (MARGIN, MARGIN + 4), "font-size=\"13\" font-weight=\"bold\"", &title)?;
    for (column, title) in ["first instances", "second instances"].into_iter().enumerate() {
        text(out, (places.columns[column], MARGIN + 28), "fill=\"dimgray\"", title)?;
    }
    // Edges first, so that boxes stay readable.
    edges(out, &graph, &places)?;
    for instance in 0..graph.instances.len() {
        column(out, &graph, &places, instance)?;
    }
    legend(out, places.bottom)?;
    for (at, line) in below.iter().enumerate() {
        let y = places.bottom + (LEGEND.len() + 1 + at) * LINE;
        text(out, (MARGIN, y), "", line)?;
    }
    writeln!(out, "</svg>")
}

fn text(out: &mut String, (x, y): (usize, usize), attributes: &str, text: &str) -> Result {
    let space = if attributes.is_empty() { "" } else { " " };
    writeln!(out, "<text x=\"{x}\" y=\"{y}\"{space}{attributes}>{}</text>", escape(text))
}

/// One instance: its name, pieces and operations.
fn column(out: &mut String, graph: &Graph, places: &Places, instance: usize) -> Result {
    let found = &graph.instances[instance];
    let (left, width) = (places.left(instance), places.width);
    let title = format!("{} {}", found.procedure, found.number);
    text(out, (left, places.headings[instance]), "font-weight=\"bold\"", &title)?;
    let mut above = None;
    for piece in &found.pieces {
        let (Some(first), Some(last)) = (piece.operations.first(), piece.operations.last()) else { continue };
        let (first, last) = (places.top(instance, first.id), places.top(instance, last.id) + BOX_HEIGHT);
        if let Some(above) = above {
            let x = left + width / 2;
            writeln!(out, "<line class=\"s\" x1=\"{x}\" y1=\"{above}\" x2=\"{x}\" y2=\"{first}\" stroke=\"black\"/>")?;
        }
        above = Some(last);
        if piece.conflicting || piece.operations.len() > 1 {
            let stroke = if piece.conflicting { "firebrick" } else { "grey" };
            let merges = piece.merges.join("\n");
            let (x, y, width, height) = (left - 8, first - 6, width + 16, last - first + 12);
            writeln!(
                out,
                "<rect class=\"piece\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"18\" \
                 fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\"><title>{}</title></rect>",
                escape(&merges)
            )?;
        }
        if instance.is_multiple_of(2) {
            let at = (left - 14, (first + last) / 2 + 4);
            text(out, at, "text-anchor=\"end\" fill=\"dimgray\"", role(piece.role))?;
        }
        for operation in &piece.operations {
            let y = places.top(instance, operation.id);
            let dash = if piece.role == Role::Deferred { " stroke-dasharray=\"4 3\"" } else { "" };
            writeln!(
                out,
                "<rect class=\"operation\" x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{BOX_HEIGHT}\" \
                 fill=\"white\" stroke=\"black\"{dash}/>"
            )?;
            let baseline = y + BOX_HEIGHT / 2 + 4;
            text(out, (left + 8, baseline), "", &operation.label)?;
            if !instance.is_multiple_of(2) && !operation.grounds.is_empty() {
                text(out, (left + width + 16, baseline), "fill=\"firebrick\"", &operation.grounds)?;
            }
        }
    }
    Ok(())
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Buffered => "buffered",
        Role::Decisive => "decisive",
        Role::Visible => "visible",
        Role::Deferred => "deferred",
    }
}

/// The point where each edge meets its box: those of one box are spread over its side, in the order of their
/// other ends.
fn ports(edges: &[Edge], places: &Places, own: impl Fn(&Edge) -> Node, other: impl Fn(&Edge) -> Node) -> Vec<usize> {
    let top = |node: Node| places.top(node.instance, node.operation);
    let place = |at: usize| (top(other(&edges[at])), at);
    let port = |at: usize| {
        let mine: Vec<usize> = (0..edges.len()).filter(|edge| own(&edges[*edge]) == own(&edges[at])).collect();
        let before = mine.iter().filter(|edge| place(**edge) < place(at)).count();
        top(own(&edges[at])) + BOX_HEIGHT * (before + 1) / (mine.len() + 1)
    };
    (0..edges.len()).map(port).collect()
}

fn edges(out: &mut String, graph: &Graph, places: &Places) -> Result {
    let from = ports(&graph.edges, places, |edge| edge.from, |edge| edge.to);
    let to = ports(&graph.edges, places, |edge| edge.to, |edge| edge.from);
    for ((edge, y1), y2) in graph.edges.iter().zip(from).zip(to) {
        let (x1, x2) = (places.columns[0] + places.width, places.columns[1]);
        let (class, style) = match edge.deferred {
            true => ("p", "stroke=\"black\" stroke-dasharray=\"6 4\""),
            false => ("c", "stroke=\"red\""),
        };
        let (bend1, bend2) = (x1 + BETWEEN / 3, x2 - BETWEEN / 3);
        writeln!(
            out,
            "<path class=\"{class}\" d=\"M{x1} {y1} C{bend1} {y1} {bend2} {y2} {x2} {y2}\" fill=\"none\" {style}>\
             <title>{}</title></path>",
            escape(&edge.label)
        )?;
    }
    Ok(())
}

/// The meaning of the lines: the element without its position and size, and the words.
const LEGEND: [(&str, &str); 5] = [
    ("stroke=\"black\"", "S-edge: siblings in one execution, in this order"),
    ("stroke=\"red\"", "C-edge: conflict between any two instances, on what stands in red beside the operations"),
    (
        "stroke=\"black\" stroke-dasharray=\"6 4\"",
        "publish–subscribe: published after its epoch; the subscriber waits for what is pending",
    ),
    ("stroke=\"firebrick\"", "piece with conflicts: it decides the order of its transaction"),
    ("stroke=\"grey\"", "piece of several operations without conflicts"),
];

fn legend(out: &mut String, top: usize) -> Result {
    for (at, (style, words)) in LEGEND.iter().enumerate() {
        let y = top + at * LINE;
        match at < 3 {
            true => writeln!(
                out,
                "<line class=\"legend\" x1=\"{MARGIN}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" {style}/>",
                MARGIN + 36
            )?,
            false => writeln!(
                out,
                "<rect class=\"legend\" x=\"{MARGIN}\" y=\"{}\" width=\"36\" height=\"12\" rx=\"6\" \
                 fill=\"none\" {style} stroke-width=\"2\"/>",
                y - 6
            )?,
        }
        text(out, (MARGIN + 48, y + 4), "", words)?;
    }
    Ok(())
}
