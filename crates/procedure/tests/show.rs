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
        chopped with reordering, commutativity, headroom, reserved memory

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
          rankdir=LR; newrank=true; ranksep=4; nodesep=0.08; node [shape=box, fontname="monospace", fontsize=10];
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
          { rank=same; i0_0; i0_1; i2_0; i2_1; i2_2; }
          { rank=same; i1_0; i1_1; i3_0; i3_1; i3_2; }
          i0_0 -- i1_0 [color=red, tooltip="account (sum)"];
          i0_0 -- i3_1 [color=red, tooltip="account (sum)"];
          i0_0 -- i3_2 [color=red, tooltip="account (sum)"];
        }
    "#]]
    .assert_eq(&show::dot(&small()));
}

#[test]
fn a_small_graph_drawn() {
    expect![[r#"
        <svg xmlns="http://www.w3.org/2000/svg" width="784" height="512" viewBox="0 0 784 512" font-family="monospace" font-size="11">
        <rect width="784" height="512" fill="white"/>
        <text x="24" y="28" font-size="13" font-weight="bold">Chopping graph with reordering, commutativity, headroom, reserved memory</text>
        <text x="102" y="52" fill="dimgray">first instances</text>
        <text x="570" y="52" fill="dimgray">second instances</text>
        <path class="c" d="M230 106 C343 106 457 112 570 112" fill="none" stroke="red"><title>account (sum)</title></path>
        <path class="c" d="M230 112 C343 112 457 288 570 288" fill="none" stroke="red"><title>account (sum)</title></path>
        <path class="c" d="M230 118 C343 118 457 318 570 318" fill="none" stroke="red"><title>account (sum)</title></path>
        <text x="102" y="84" font-weight="bold">set &lt;all&gt; 1</text>
        <rect class="piece" x="94" y="94" width="144" height="36" rx="18" fill="none" stroke="firebrick" stroke-width="2"><title></title></rect>
        <text x="88" y="116" text-anchor="end" fill="dimgray">decisive</text>
        <rect class="operation" x="102" y="100" width="128" height="24" fill="white" stroke="black"/>
        <text x="110" y="116">0 update account</text>
        <line class="s" x1="166" y1="124" x2="166" y2="148" stroke="black"/>
        <text x="88" y="164" text-anchor="end" fill="dimgray">visible</text>
        <rect class="operation" x="102" y="148" width="128" height="24" fill="white" stroke="black"/>
        <text x="110" y="164">1 get account</text>
        <text x="570" y="84" font-weight="bold">set &lt;all&gt; 2</text>
        <rect class="piece" x="562" y="94" width="144" height="36" rx="18" fill="none" stroke="firebrick" stroke-width="2"><title></title></rect>
        <rect class="operation" x="570" y="100" width="128" height="24" fill="white" stroke="black"/>
        <text x="578" y="116">0 update account</text>
        <text x="714" y="116" fill="firebrick">sum</text>
        <line class="s" x1="634" y1="124" x2="634" y2="148" stroke="black"/>
        <rect class="operation" x="570" y="148" width="128" height="24" fill="white" stroke="black"/>
        <text x="578" y="164">1 get account</text>
        <text x="102" y="212" font-weight="bold">transfer 1</text>
        <text x="88" y="244" text-anchor="end" fill="dimgray">buffered</text>
        <rect class="operation" x="102" y="228" width="128" height="24" fill="white" stroke="black"/>
        <text x="110" y="244">0 update total</text>
        <line class="s" x1="166" y1="252" x2="166" y2="276" stroke="black"/>
        <rect class="piece" x="94" y="270" width="144" height="66" rx="18" fill="none" stroke="firebrick" stroke-width="2"><title>#1 and #2: SC-cycle transfer #1 –C account (sum)– set &lt;all&gt; #0 –C account (sum)– #2 –S–</title></rect>
        <text x="88" y="307" text-anchor="end" fill="dimgray">decisive</text>
        <rect class="operation" x="102" y="276" width="128" height="24" fill="white" stroke="black"/>
        <text x="110" y="292">1 update account</text>
        <rect class="operation" x="102" y="306" width="128" height="24" fill="white" stroke="black"/>
        <text x="110" y="322">2 update account</text>
        <text x="570" y="212" font-weight="bold">transfer 2</text>
        <rect class="operation" x="570" y="228" width="128" height="24" fill="white" stroke="black"/>
        <text x="578" y="244">0 update total</text>
        <line class="s" x1="634" y1="252" x2="634" y2="276" stroke="black"/>
        <rect class="piece" x="562" y="270" width="144" height="66" rx="18" fill="none" stroke="firebrick" stroke-width="2"><title>#1 and #2: SC-cycle transfer #1 –C account (sum)– set &lt;all&gt; #0 –C account (sum)– #2 –S–</title></rect>
        <rect class="operation" x="570" y="276" width="128" height="24" fill="white" stroke="black"/>
        <text x="578" y="292">1 update account</text>
        <text x="714" y="292" fill="firebrick">sum</text>
        <rect class="operation" x="570" y="306" width="128" height="24" fill="white" stroke="black"/>
        <text x="578" y="322">2 update account</text>
        <text x="714" y="322" fill="firebrick">sum</text>
        <line class="legend" x1="24" y1="362" x2="60" y2="362" stroke="black"/>
        <text x="72" y="366">S-edge: siblings in one execution, in this order</text>
        <line class="legend" x1="24" y1="380" x2="60" y2="380" stroke="red"/>
        <text x="72" y="384">C-edge: conflict between any two instances, on what stands in red beside the operations</text>
        <line class="legend" x1="24" y1="398" x2="60" y2="398" stroke="black" stroke-dasharray="6 4"/>
        <text x="72" y="402">publish–subscribe: published after its epoch; the subscriber waits for what is pending</text>
        <rect class="legend" x="24" y="410" width="36" height="12" rx="6" fill="none" stroke="firebrick" stroke-width="2"/>
        <text x="72" y="420">piece with conflicts: it decides the order of its transaction</text>
        <rect class="legend" x="24" y="428" width="36" height="12" rx="6" fill="none" stroke="grey" stroke-width="2"/>
        <text x="72" y="438">piece of several operations without conflicts</text>
        <text x="24" y="470">merged in transfer: #1 #2 (SC-cycles)</text>
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
        assert_eq!(count(&dot, "color=red, tooltip"), chopping.conflicts.len());
        assert_eq!(count(&dot, "style=dashed, tooltip"), chopping.deferrals.len());
        assert_eq!(count(&dot, "{"), count(&dot, "}"));
        assert_eq!(show::svg(&chop(plans.iter().rev(), options).expect("a set")), svg, "in any order");
    }
}
