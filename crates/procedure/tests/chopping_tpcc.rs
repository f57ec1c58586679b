//! TPC-C chopped as the paper has it: the default graph (DBX-TC Figure 10) and the optimized one (Figure 11).
//!
//! Written by hand, where the procedures that are registered differ (`docs/chopping-tpcc.md`); their plans and pieces are
//! snapshots beside them.

mod support;

use expect_test::expect_file;
use seriatim_procedure::analysis::{chop, plan};
use seriatim_procedure::ir::Procedure;
use seriatim_procedure::plan::{Chopping, Options, Plan};
use seriatim_procedure::show;
use support::tpcc;

fn plans(procedures: &[Procedure]) -> Vec<Plan> {
    procedures.iter().map(|procedure| plan(procedure, &tpcc::schema()).expect("accepted")).collect()
}

fn chopped(procedures: &[Procedure], options: Options) -> Chopping {
    chop(&plans(procedures), options).expect("a set")
}

#[test]
fn the_default_graph() {
    expect_file!["chopping_tpcc/the_default_graph.txt"]
        .assert_eq(&show::text(&chopped(&tpcc::all(), Options::DEFAULT)));
}

#[test]
fn the_optimized_graph_of_a_delivery_that_cannot_fail_half_way() {
    expect_file!["chopping_tpcc/the_optimized_graph_of_a_delivery_that_cannot_fail_half_way.txt"]
        .assert_eq(&show::text(&chopped(&tpcc::all_without_failures(), Options::OPTIMIZED)));
}
