//! Choppings drawn.

mod support;

use expect_test::expect_file;
use seriatim_procedure::analysis::{Schema, chop, plan};
use seriatim_procedure::plan::{Chopping, Options};
use seriatim_procedure::show;
use support::build::procedure;
use support::{table, tpcc};

/// Figure 2 of DBX-TC in small: a transfer, an audit of one account, a counter that is only added to.
fn small() -> Chopping {
    let schema = Schema::new(
        [table("account", "id:u32 sum:i64", &["id"]), table("total", "id:u32 count:i64", &["id"])]
            .map(|builder| builder.finish().expect("valid")),
    );
    let transfer = procedure("transfer", &["from", "to"], |b| {
        b.update_if("", "total", "1", "row", |b| b.assign("row.count", "+=", "1"));
        b.update_if("", "account", "from", "row", |b| b.assign("row.sum", "-=", "1"));
        b.update_if("", "account", "to", "row", |b| b.assign("row.sum", "+=", "1"));
        b.return_("1");
    });
    let set = procedure("set <all>", &["id"], |b| {
        b.update_if("", "account", "id", "row", |b| b.assign("row.sum", "=", "0"));
        b.get("found", "account", "id");
        b.return_("found.is_some()");
    });
    let plans = [transfer, set].map(|procedure| plan(&procedure, &schema).expect("accepted"));
    chop(&plans, Options::DEFAULT).expect("a set")
}

#[test]
fn a_small_graph_as_text() {
    expect_file!["show/a_small_graph_as_text.txt"].assert_eq(&show::text(&small()));
}

#[test]
fn a_small_graph_for_graphviz() {
    expect_file!["show/a_small_graph_for_graphviz.dot"].assert_eq(&show::dot(&small()));
}

#[test]
fn a_small_graph_drawn() {
    expect_file!["show/a_small_graph_drawn.svg"].assert_eq(&show::svg(&small()));
}

#[test]
fn drawings_hold_every_operation_twice_and_every_edge_once() {
    let plans: Vec<_> = tpcc::all_without_failures()
        .iter()
        .map(|procedure| plan(procedure, &tpcc::schema()).expect("accepted"))
        .collect();
    for options in [Options::DEFAULT, Options::OPTIMIZED] {
        let chopping = chop(&plans, options).expect("a set");
        let svg = show::svg(&chopping);
        let count = |text: &str, what: &str| text.matches(what).count();
        let drawn = chopping.procedures.iter().filter(|procedure| !procedure.snapshot);
        let operations: usize = drawn.map(|procedure| procedure.labels.len()).sum();
        assert_eq!(count(&svg, "class=\"operation\""), 2 * operations);
        assert_eq!(count(&svg, "class=\"c\""), chopping.conflicts.len());
        assert_eq!(count(&svg, "class=\"p\""), chopping.deferrals.len(), "each has one subscriber here");
        assert_eq!(count(&svg, "<svg"), count(&svg, "</svg>"));
        let dot = show::dot(&chopping);
        assert_eq!(count(&dot, "color=red, tooltip"), chopping.conflicts.len());
        assert_eq!(count(&dot, "style=dashed, tooltip"), chopping.deferrals.len());
        assert_eq!(count(&dot, "{"), count(&dot, "}"));
        assert_eq!(show::svg(&chop(plans.iter().rev(), options).expect("a set")), svg, "in any order");
    }
}
