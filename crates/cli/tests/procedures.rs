//! `seriatim plan` and `seriatim graph` show every workload's procedures in every format. Drawings match the
//! library's analysis and are well-formed.

use std::process::{Command, Output};

use serde_json::Value;
use seriatim::Database;
use seriatim::procedure::plan::{Chopping, Options};
use seriatim_workload::{Entry, WORKLOADS};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seriatim")).args(arguments).output().expect("the binary starts")
}

/// The standard output, which must be the only output.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && talk.is_empty(), "{arguments:?}: {talk}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The one line of a refusal.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len(), line.lines().count()), (Some(2), 0, 1), "{line}");
    line
}

fn declared(entry: &Entry) -> Database {
    let workload = (entry.open)(&entry.values(0)).unwrap_or_else(|misuse| panic!("{}: {misuse}", entry.name));
    let db = Database::in_memory().expect("memory");
    workload.declare(&db).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
    assert!(!db.procedure_names().is_empty(), "{}", entry.name);
    db
}

/// Every workload with each set of options: its name, the options on the command line, and the chopping that
/// the command must show.
fn choppings() -> impl Iterator<Item = (&'static str, &'static str, Chopping)> {
    WORKLOADS.iter().flat_map(|entry| {
        let db = declared(entry);
        [("--default", Options::DEFAULT), ("--optimized", Options::OPTIMIZED)]
            .map(|(flag, options)| (entry.name, flag, db.chopping(options).expect("it can be chopped")))
    })
}

/// The number of operations of procedures in the graph.
fn drawn(chopping: &Chopping) -> usize {
    chopping.procedures.iter().filter(|chopped| !chopped.snapshot).map(|chopped| chopped.labels.len()).sum()
}

#[test]
fn every_procedure_is_shown_alone_and_with_the_others() {
    for entry in WORKLOADS {
        let all = printed(&["plan", entry.name]);
        let db = declared(entry);
        let each: Vec<_> = db.procedure_names().iter().map(|name| printed(&["plan", entry.name, name])).collect();
        assert_eq!(all, each.join("\n"));
        for (name, text) in db.procedure_names().iter().zip(&each) {
            let plan = db.plan(name).expect("it is registered");
            assert!(text.starts_with(&plan.to_string()) && text.contains("\nfootprint"), "{text}");
            let repairs = db.repairs(name).expect("it is registered");
            assert!(text.ends_with(&format!("\n{repairs}")) && repairs.starts_with("repairs: "), "{text}");
        }
    }
}

fn json(arguments: &[&str]) -> Value {
    let text = printed(&[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The length of a list.
#[track_caller]
fn count(list: &Value) -> usize {
    list.as_array().unwrap_or_else(|| panic!("no list: {list}")).len()
}

#[test]
fn plans_as_json_have_every_operation_with_what_it_touches() {
    for entry in WORKLOADS {
        let (all, db) = (json(&["plan", entry.name]), declared(entry));
        assert_eq!(all["workload"], entry.name);
        assert_eq!(count(&all["procedures"]), db.procedure_names().len());
        for (at, name) in db.procedure_names().iter().enumerate() {
            let (shown, plan) = (&all["procedures"][at], db.plan(name).expect("it is registered"));
            assert_eq!(json(&["plan", entry.name, name])["procedures"], Value::Array(vec![shown.clone()]));
            assert_eq!((&shown["procedure"], &shown["read_only"]), (&(**name).into(), &plan.is_read_only().into()));
            assert_eq!(count(&shown["operations"]), plan.operations.len());
            let fragments = db.fragments(name).expect("it is registered");
            assert_eq!(count(&shown["fragments"]["fragments"]), fragments.fragments.len());
            assert_eq!((count(&shown["loops"]), count(&shown["failures"])), (plan.loops.len(), plan.failures.len()));
            for (id, operation) in plan.operations.iter().enumerate() {
                let shown = &shown["operations"][id];
                assert_eq!(shown["table"], *plan.tables[operation.table].name);
                assert_eq!(
                    (count(&shown["key"]), count(&shown["accesses"])),
                    (operation.key.len(), operation.accesses.len())
                );
                let writes: usize = operation.accesses.iter().map(|access| access.writes.iter().count()).sum();
                let listed =
                    shown["accesses"].as_array().expect("a list").iter().map(|access| count(&access["writes"]));
                assert_eq!(listed.sum::<usize>(), writes, "{shown}");
            }
        }
    }
}

#[test]
fn graphs_as_json_have_every_piece_and_edge() {
    for (name, flag, chopping) in choppings() {
        let shown = json(&["graph", name, flag]);
        assert_eq!(
            (&shown["options"], count(&shown["conflicts"])),
            (&chopping.options.to_string().into(), chopping.conflicts.len())
        );
        assert_eq!(
            (count(&shown["deferrals"]), count(&shown["claims"])),
            (chopping.deferrals.len(), chopping.claims.len())
        );
        for (at, chopped) in chopping.procedures.iter().enumerate() {
            let shown = &shown["procedures"][at];
            assert_eq!(
                (&shown["procedure"], count(&shown["pieces"])),
                (&(*chopped.procedure).into(), chopped.pieces.len())
            );
            assert_eq!(shown["decisive"].as_u64(), chopped.decisive.map(|piece| piece as u64), "{shown}");
        }
        let ends = |conflict: &Value| conflict["left"]["procedure"].is_string() && count(&conflict["on"]) > 0;
        assert!(shown["conflicts"].as_array().expect("a list").iter().all(ends), "{shown}");
    }
}

#[test]
fn repairs_are_listed_by_operation_with_the_reason() {
    let tpcc = WORKLOADS.iter().find(|entry| entry.name == "tpcc").expect("it is listed");
    let repairs = declared(tpcc).repairs("new_order").expect("it is registered");
    for wanted in ["this iteration", "of the same iteration, by its result", "by its result", " alone"] {
        assert!(repairs.contains(wanted), "{wanted}: {repairs}");
    }
}

#[test]
fn the_default_graph_is_the_default_and_the_same_every_time() {
    for (name, flag, chopping) in choppings() {
        let text = printed(&["graph", name, flag]);
        assert_eq!(text, printed(&["graph", name, flag, "--format", "text"]));
        assert!(text.starts_with(&format!("chopped with {}\n", chopping.options)), "{text}");
        if flag == "--default" {
            assert_eq!(text, printed(&["graph", name]));
        }
        for chopped in &chopping.procedures {
            assert!(text.lines().any(|line| line.starts_with(&format!("{}: ", chopped.procedure))), "{text}");
        }
    }
}

#[test]
fn graphs_for_graphviz_declare_every_node_once_and_join_declared_nodes() {
    for (name, flag, chopping) in choppings() {
        let dot = printed(&["graph", name, flag, "--format", "dot"]);
        let statements: Vec<&str> = dot.lines().map(str::trim).collect();
        assert_eq!((statements.first(), statements.last()), (Some(&"graph chopping {"), Some(&"}")), "{dot}");
        let (mut depth, mut nodes, mut edges) = (0_i32, Vec::new(), Vec::new());
        for (at, statement) in statements.iter().enumerate() {
            depth += i32::from(statement.ends_with('{')) - i32::from(*statement == "}");
            assert!(depth > 0 || at + 1 == statements.len(), "{dot}");
            assert!(statement.ends_with(['{', '}', ';']), "{statement}");
            let words: Vec<&str> = statement.trim_end_matches(';').splitn(4, ' ').collect();
            match words[..] {
                [from, "--", to, ..] => edges.extend([from.to_owned(), to.to_owned()]),
                [node, label, ..] if node.starts_with('i') && label.starts_with("[label=\"") => {
                    nodes.push(node.to_owned());
                }
                _ => {}
            }
        }
        assert_eq!((depth, nodes.len()), (0, 2 * drawn(&chopping)), "{dot}");
        let distinct: std::collections::BTreeSet<_> = nodes.iter().collect();
        assert_eq!(distinct.len(), nodes.len(), "{dot}");
        assert!(edges.iter().all(|end| distinct.contains(end)), "{dot}");
    }
}

#[test]
fn drawings_are_well_formed_and_have_a_box_for_each_operation_of_two_instances() {
    for (name, flag, chopping) in choppings() {
        let svg = printed(&["graph", name, flag, "--format", "svg"]);
        let classes = classes_of(&svg).unwrap_or_else(|problem| panic!("{name} {flag}: {problem}"));
        let count = |class: &str| classes.iter().filter(|found| *found == class).count();
        assert_eq!(count("operation"), 2 * drawn(&chopping));
        assert_eq!(count("c"), chopping.conflicts.len());
        assert_eq!(count("p"), chopping.deferrals.iter().map(|deferral| deferral.subscribers.len()).sum::<usize>());
        let pieces = || chopping.procedures.iter().map(|chopped| &chopped.pieces);
        assert_eq!(count("s"), 2 * pieces().map(|pieces| pieces.len().saturating_sub(1)).sum::<usize>());
        let circled = pieces().flatten().filter(|piece| piece.conflicting || piece.operations.len() > 1);
        assert_eq!(count("piece"), 2 * circled.count());
    }
}

/// The classes of a document's elements. The document must be well-formed XML with only elements, attributes and text.
fn classes_of(document: &str) -> Result<Vec<String>, String> {
    let (mut open, mut classes, mut rest) = (Vec::new(), Vec::new(), document.trim_end());
    while let Some(at) = rest.find('<') {
        let (text, element) = rest.split_at(at);
        let end = element.find('>').ok_or_else(|| format!("not closed: {element}"))?;
        let (inside, after) = (&element[1..end], &element[end + 1..]);
        if open.is_empty() && (!text.is_empty() || !classes.is_empty() && !after.is_empty()) {
            return Err(format!("text outside of the root: {text}"));
        }
        check_text(text)?;
        rest = after;
        if let Some(name) = inside.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
            continue;
        }
        let (inside, is_empty) = inside.strip_suffix('/').map_or((inside, false), |inside| (inside, true));
        let (name, attributes) = inside.split_once(' ').unwrap_or((inside, ""));
        let mut parts = attributes.split('"');
        let mut seen = Vec::new();
        while let Some(before) = parts.next() {
            let attribute = before.trim();
            if attribute.is_empty() {
                break;
            }
            let key = attribute.strip_suffix('=').ok_or_else(|| format!("no value: {attribute}"))?;
            let value = parts.next().ok_or_else(|| format!("no value: {attribute}"))?;
            if seen.contains(&key) {
                return Err(format!("twice: {key}"));
            }
            check_text(value)?;
            seen.push(key);
            if key == "class" {
                classes.push(value.to_owned());
            }
        }
        if !is_empty {
            open.push(name.to_owned());
        }
    }
    check_text(rest)?;
    if open.is_empty() { Ok(classes) } else { Err(format!("not closed: {}", open.join(", "))) }
}

/// Checks that each `&` of a text begins an entity.
fn check_text(text: &str) -> Result<(), String> {
    let entities = ["amp;", "lt;", "gt;", "quot;"];
    let broken = text.split('&').skip(1).find(|after| !entities.iter().any(|entity| after.starts_with(entity)));
    broken.map_or(Ok(()), |after| Err(format!("not an entity: &{after}")))
}

#[test]
fn canary_documents_that_are_not_well_formed_are_noticed() {
    assert_eq!(classes_of("<a class=\"x\"><b class=\"y\" z=\"1\"/>t &amp; t</a>\n"), Ok(vec!["x".into(), "y".into()]));
    for broken in ["<a><b></a></b>", "<a>", "<a x=1></a>", "<a>a & b</a>", "<a x=\"1\" x=\"2\"/>", "<a x=\"&lt\"/>"] {
        assert!(classes_of(broken).is_err(), "{broken}");
    }
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    for command in ["plan", "graph"] {
        let line = refused(&[command, "tpcd"]);
        assert!(line.contains("tpcd") && WORKLOADS.iter().all(|entry| line.contains(entry.name)), "{line}");
    }
    let line = refused(&["graph", "tpcc", "--format", "png"]);
    assert!(["png", "json", "text", "dot", "svg"].iter().all(|format| line.contains(format)), "{line}");
    let line = refused(&["plan", "ycsb", "--core", "G"]);
    assert!(line.contains("core") && line.contains("\"G\""), "{line}");
    for entry in WORKLOADS {
        let line = refused(&["plan", entry.name, "no such"]);
        assert!(line.contains("no such") && line.contains(entry.name), "{line}");
        assert!(declared(entry).procedure_names().iter().all(|name| line.contains(name)), "{line}");
    }
}

#[test]
fn a_protocol_is_shown_by_its_name_with_its_options_and_no_line_is_wide() {
    let narrow = |text: &str| {
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{longest:?}: {text}");
    };
    let said = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let list = said(&["protocols"]);
    narrow(&list);
    assert!(list.lines().any(|line| line.starts_with("* dbx ")), "{list}");
    let all: Value = serde_json::from_str(&said(&["protocols", "--format", "json"])).expect("JSON");
    for (protocol, listed) in seriatim::protocols().iter().zip(all["protocols"].as_array().expect("a list")) {
        let shown = said(&["protocols", protocol.name]);
        narrow(&shown);
        assert!(
            protocol.options.iter().all(|knob| shown.contains(&format!("\n  {} = {} ", knob.name, knob.default))),
            "{shown}"
        );
        let one: Value = serde_json::from_str(&said(&["protocols", protocol.name, "--format", "json"])).expect("JSON");
        assert_eq!((&one, &one["name"]), (listed, &protocol.name.into()));
        assert_eq!(one["default"], protocol.name == "dbx", "{one}");
    }
    let line = refused(&["protocols", "2pl"]);
    assert!(seriatim::protocols().iter().all(|protocol| line.contains(protocol.name)), "{line}");
}

#[test]
fn the_version_has_the_revision_that_reports_have() {
    let version = printed(&["--version"]);
    let report = run(&["bench", "reorder", "--batches", "1", "--format", "json"]);
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let revision = report["revision"].as_str().expect("a text");
    assert_eq!(version, format!("seriatim {} (revision {revision})\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn without_arguments_the_commands_and_their_workloads_are_shown() {
    let help = printed(&[]);
    assert!(["bench", "plan", "graph", "protocols"].iter().all(|command| help.contains(command)), "{help}");
    for command in ["plan", "graph"] {
        let help = printed(&[command]);
        assert!(WORKLOADS.iter().all(|entry| help.contains(entry.name)), "{help}");
    }
    let help = printed(&["graph", "tpcc", "--help"]);
    assert!(
        ["--default", "--optimized", "dot", "svg", "--warehouses"].iter().all(|word| help.contains(word)),
        "{help}"
    );
    assert!(printed(&["plan", "tpcc", "--help"]).contains("[PROCEDURE]"));
}

/// The texts of a drawing that do not fit into it, by the widths of its two sizes of characters.
fn clipped(svg: &str) -> Vec<String> {
    let attribute = |tag: &str, name: &str| -> Option<usize> {
        tag.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split('"').next()?.parse().ok())
    };
    let width = svg.split('>').next().and_then(|tag| attribute(tag, "width")).expect("a drawing has a width");
    let texts = svg.split("<text ").skip(1).filter_map(|rest| rest.split_once("</text>")?.0.split_once('>'));
    texts
        .filter_map(|(tag, content)| {
            let plain = ["&amp;", "&lt;", "&gt;", "&quot;"]
                .iter()
                .fold(content.to_owned(), |text, entity| text.replace(entity, "x"));
            let tag = format!(" {tag}");
            let long = plain.chars().count() * if attribute(&tag, "font-size") == Some(13) { 8 } else { 7 };
            let at = attribute(&tag, "x").expect("text stands somewhere");
            let fits = if tag.contains("text-anchor=\"end\"") { at >= long } else { at + long <= width };
            (!fits).then(|| format!("`{content}` from {at}, {long} long, in {width}"))
        })
        .collect()
}

#[test]
fn every_text_of_a_drawing_is_inside_it() {
    for (name, flag, _) in choppings() {
        let svg = printed(&["graph", name, flag, "--format", "svg"]);
        assert!(svg.matches("<text ").count() > 5, "{name} {flag}");
        let cut = clipped(&svg);
        assert!(cut.is_empty(), "{name} {flag}: {cut:?}");
    }
}

#[test]
fn canary_text_that_is_cut_off_is_noticed() {
    let drawing = |text: &str| format!("<svg width=\"100\" height=\"9\"><text x=\"30\" y=\"1\"{text}</text></svg>");
    assert!(
        clipped(&drawing(">1234567890")).is_empty() && clipped(&drawing(" text-anchor=\"end\">1&amp;34")).is_empty()
    );
    for cut in [">12345678901", " font-size=\"13\">123456789", " text-anchor=\"end\">12345"] {
        assert_eq!(clipped(&drawing(cut)).len(), 1, "{cut}");
    }
}
