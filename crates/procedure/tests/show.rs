//! Choppings drawn.

mod support;

use expect_test::expect;
use seriatim_plan::{Chopping, Options};
use seriatim_procedure::analysis::{Schema, chop, plan};
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
    expect![[r#"
        chopped with reordering, commutativity, headroom

        set <all>: 2 pieces
          0 decisive, conflicting: 0 update account
          1 visible: 1 get account

        transfer: 2 pieces
          0 buffered: 0 update total
          1 decisive, conflicting: 1 update account | 2 update account
          merged #1 and #2: SC-cycle transfer #1 –C account (sum)– set <all> #0 –C account (sum)– #2 –S–

        C-edges, between any two instances
          set <all> #0 – set <all> #0: account (sum)
          set <all> #0 – transfer #1: account (sum)
          set <all> #0 – transfer #2: account (sum)

        the engine sees to it that
          memory for all writes is reserved when an execution begins
          sums keep room: account.sum, total.count
    "#]]
    .assert_eq(&show::text(&small()));
}

#[test]
fn a_small_graph_for_graphviz() {
    expect![[r#"
        graph chopping {
          rankdir=TB; node [shape=box, fontname="monospace", fontsize=10];
          subgraph cluster_0 {
            label="set <all> 1"; color=white;
            subgraph cluster_0_0 {
              label=""; style=rounded; color=red;
              i0_0 [label="0 update account"];
            }
              i0_1 [label="1 get account"];
          }
          i0_0 -- i0_1;
          subgraph cluster_1 {
            label="set <all> 2"; color=white;
            subgraph cluster_1_0 {
              label=""; style=rounded; color=red;
              i1_0 [label="0 update account"];
            }
              i1_1 [label="1 get account"];
          }
          i1_0 -- i1_1;
          subgraph cluster_2 {
            label="transfer 1"; color=white;
              i2_0 [label="0 update total"];
            subgraph cluster_2_1 {
              label=""; style=rounded; color=red;
              i2_1 [label="1 update account"];
              i2_2 [label="2 update account"];
            }
          }
          i2_0 -- i2_1;
          subgraph cluster_3 {
            label="transfer 2"; color=white;
              i3_0 [label="0 update total"];
            subgraph cluster_3_1 {
              label=""; style=rounded; color=red;
              i3_1 [label="1 update account"];
              i3_2 [label="2 update account"];
            }
          }
          i3_0 -- i3_1;
          i0_0 -- i1_0 [color=red, constraint=false, tooltip="account (sum)"];
          i1_0 -- i2_1 [color=red, constraint=false, tooltip="account (sum)"];
          i1_0 -- i2_2 [color=red, constraint=false, tooltip="account (sum)"];
        }
    "#]]
    .assert_eq(&show::dot(&small()));
}

#[test]
fn a_small_graph_drawn() {
    expect![[r#"
        <svg xmlns="http://www.w3.org/2000/svg" width="830" height="246" viewBox="0 0 830 246" font-family="monospace" font-size="11">
        <rect width="830" height="246" fill="white"/>
        <path class="c" d="M152 70 C197 70 197 70 242 70" fill="none" stroke="red"><title>account (sum)</title></path>
        <path class="c" d="M370 70 C415 70 415 130 460 130" fill="none" stroke="red"><title>account (sum)</title></path>
        <path class="c" d="M370 70 C415 70 415 174 460 174" fill="none" stroke="red"><title>account (sum)</title></path>
        <text x="88" y="32" text-anchor="middle" font-weight="bold">set &lt;all&gt; 1</text>
        <rect class="piece" x="12" y="49" width="152" height="42" rx="21" fill="none" stroke="firebrick" stroke-width="2"/>
        <rect class="operation" x="24" y="58" width="128" height="24" fill="white" stroke="black"/>
        <text x="88" y="74" text-anchor="middle">0 update account</text>
        <line class="s" x1="88" y1="82" x2="88" y2="118" stroke="black"/>
        <rect class="operation" x="24" y="118" width="128" height="24" fill="white" stroke="black"/>
        <text x="88" y="134" text-anchor="middle">1 get account</text>
        <text x="306" y="32" text-anchor="middle" font-weight="bold">set &lt;all&gt; 2</text>
        <rect class="piece" x="230" y="49" width="152" height="42" rx="21" fill="none" stroke="firebrick" stroke-width="2"/>
        <rect class="operation" x="242" y="58" width="128" height="24" fill="white" stroke="black"/>
        <text x="306" y="74" text-anchor="middle">0 update account</text>
        <line class="s" x1="306" y1="82" x2="306" y2="118" stroke="black"/>
        <rect class="operation" x="242" y="118" width="128" height="24" fill="white" stroke="black"/>
        <text x="306" y="134" text-anchor="middle">1 get account</text>
        <text x="524" y="32" text-anchor="middle" font-weight="bold">transfer 1</text>
        <rect class="operation" x="460" y="58" width="128" height="24" fill="white" stroke="black"/>
        <text x="524" y="74" text-anchor="middle">0 update total</text>
        <line class="s" x1="524" y1="82" x2="524" y2="118" stroke="black"/>
        <rect class="piece" x="448" y="109" width="152" height="86" rx="30" fill="none" stroke="firebrick" stroke-width="2"/>
        <rect class="operation" x="460" y="118" width="128" height="24" fill="white" stroke="black"/>
        <text x="524" y="134" text-anchor="middle">1 update account</text>
        <rect class="operation" x="460" y="162" width="128" height="24" fill="white" stroke="black"/>
        <text x="524" y="178" text-anchor="middle">2 update account</text>
        <text x="742" y="32" text-anchor="middle" font-weight="bold">transfer 2</text>
        <rect class="operation" x="678" y="58" width="128" height="24" fill="white" stroke="black"/>
        <text x="742" y="74" text-anchor="middle">0 update total</text>
        <line class="s" x1="742" y1="82" x2="742" y2="118" stroke="black"/>
        <rect class="piece" x="666" y="109" width="152" height="86" rx="30" fill="none" stroke="firebrick" stroke-width="2"/>
        <rect class="operation" x="678" y="118" width="128" height="24" fill="white" stroke="black"/>
        <text x="742" y="134" text-anchor="middle">1 update account</text>
        <rect class="operation" x="678" y="162" width="128" height="24" fill="white" stroke="black"/>
        <text x="742" y="178" text-anchor="middle">2 update account</text>
        </svg>
    "#]].assert_eq(&show::svg(&small()));
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
        assert_eq!(count(&dot, "color=red, constraint"), chopping.conflicts.len());
        assert_eq!(count(&dot, "style=dashed, constraint"), chopping.deferrals.len());
        assert_eq!(count(&dot, "{"), count(&dot, "}"));
        assert_eq!(show::svg(&chop(plans.iter().rev(), options).expect("a set")), svg, "in any order");
    }
}
