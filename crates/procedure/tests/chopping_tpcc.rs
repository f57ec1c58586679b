//! TPC-C chopped as the paper has it: the default graph (DBX-TC Figure 10) and the optimized one (Figure 11).
//!
//! Written by hand, where the procedures that are registered differ (`docs/chopping-tpcc.md`); their plans
//! and pieces are snapshots beside them.

mod support;

use expect_test::expect_file;
use seriatim_procedure::analysis::{agreements, chop, plan};
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

/// Payment adds to the sums of warehouse and district and to nothing else of them that procedures change.
/// What New-Order and Delivery add to they add to together with what others use.
#[test]
fn sums_that_procedures_only_add_to() {
    let sums = |plans: &[Plan]| {
        let name = |(table, sums): (std::sync::Arc<str>, seriatim_procedure::analysis::Agreement)| {
            let plan = plans.iter().find_map(|plan| plan.tables.iter().find(|known| known.name == table));
            format!("{table}: {}", sums.sums.names(&plan.expect("a table of a plan").columns))
        };
        agreements(plans).into_iter().map(name).collect::<Vec<_>>()
    };
    let all = plans(&tpcc::all());
    let updating: Vec<Plan> = all.iter().filter(|plan| !plan.is_read_only()).cloned().collect();
    assert_eq!(sums(&updating), ["district: d_ytd", "warehouse: w_ytd"]);
    assert_eq!(sums(&all), ["district: d_ytd", "warehouse: w_ytd"], "nobody reads them");
}
