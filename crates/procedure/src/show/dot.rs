//! A chopping graph for Graphviz.

use std::fmt::Write;

use crate::plan::{Chopping, Role};

use super::graph::{Node, graph};

/// The chopping graph in the DOT language. First instances are on the left, second ones on the right. Each is
/// a cluster, with one cluster inside for each piece of several operations or with conflicts. S-edges are
/// black, C-edges red, publish–subscribe dashed.
pub fn dot(chopping: &Chopping) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(chopping, &mut out);
    out
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn id(node: Node) -> String {
    format!("i{}_{}", node.instance, node.operation)
}

fn write(chopping: &Chopping, out: &mut String) -> std::fmt::Result {
    let graph = graph(chopping);
    writeln!(out, "graph chopping {{")?;
    writeln!(
        out,
        "  rankdir=LR; newrank=true; ranksep=4; nodesep=0.08; node [shape=box, fontname=\"monospace\", fontsize=10];"
    )?;
    for (instance, found) in graph.instances.iter().enumerate() {
        writeln!(out, "  subgraph cluster_{instance} {{")?;
        let title = format!("{} {}", found.procedure, found.number);
        writeln!(out, "    label={}; color=white;", quote(&title))?;
        for (place, piece) in found.pieces.iter().enumerate() {
            let circled = piece.conflicting || piece.operations.len() > 1;
            if circled {
                let color = if piece.conflicting { "red" } else { "black" };
                writeln!(out, "    subgraph cluster_{instance}_{place} {{")?;
                writeln!(out, "      label=\"\"; style=rounded; color={color};")?;
            }
            for operation in &piece.operations {
                let style = if piece.role == Role::Deferred { ", style=dashed" } else { "" };
                let node = id(Node { instance, operation: operation.id });
                writeln!(out, "      {node} [label={}{style}];", quote(&operation.label))?;
            }
            if circled {
                writeln!(out, "    }}")?;
            }
        }
        writeln!(out, "  }}")?;
        for pair in found.pieces.windows(2) {
            let (Some(last), Some(first)) = (pair[0].operations.last(), pair[1].operations.first()) else { continue };
            let node = |operation: usize| id(Node { instance, operation });
            writeln!(out, "  {} -- {};", node(last.id), node(first.id))?;
        }
    }
    for number in [1, 2] {
        let column = graph.instances.iter().enumerate().filter(|(_, found)| found.number == number);
        let nodes = column.flat_map(|(instance, found)| {
            let operations = found.pieces.iter().flat_map(|piece| &piece.operations);
            operations.map(move |operation| format!("{}; ", id(Node { instance, operation: operation.id })))
        });
        writeln!(out, "  {{ rank=same; {}}}", nodes.collect::<String>())?;
    }
    for edge in &graph.edges {
        let style = if edge.deferred { "style=dashed" } else { "color=red" };
        writeln!(out, "  {} -- {} [{style}, tooltip={}];", id(edge.from), id(edge.to), quote(&edge.label))?;
    }
    writeln!(out, "}}")
}
