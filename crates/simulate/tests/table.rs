//! The table of costs that comes with the program, and what the documentation says of it.

use seriatim_simulate::costs::Table;
use seriatim_simulate::validation::markdown;

fn table() -> Table {
    serde_json::from_str(include_str!("../costs/default.json")).expect("it is a table")
}

/// Nobody writes by hand what is proven.
#[test]
fn the_documentation_has_the_comparison_of_the_table() {
    let (table, text) = (table(), include_str!("../../../docs/simulated-cores.md"));
    table.check().expect("its costs are numbers");
    let Some(machine) = &table.validated_on else {
        assert!(table.validation.is_empty() && !text.contains("| proven |"), "a comparison without its machine");
        return;
    };
    let wanted = markdown(&table.validation);
    assert!(text.contains(&wanted), "docs/simulated-cores.md does not have the table:\n\n{wanted}");
    assert!(text.contains(machine.as_str()), "docs/simulated-cores.md does not name the machine: {machine}");
    assert!(text.contains(&table.measured_on), "nor what costs were measured on: {}", table.measured_on);
}
