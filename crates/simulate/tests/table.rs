//! The tables of costs that come with the program, and their descriptions in the documentation.

use seriatim_simulate::costs::Table;
use seriatim_simulate::validation::markdown;

fn tables() -> [Table; 2] {
    [include_str!("../costs/xeon-2.json"), include_str!("../costs/epyc-2.json")]
        .map(|text| serde_json::from_str(text).expect("it is a table"))
}

/// The documentation must repeat the measured comparisons exactly.
#[test]
fn the_documentation_has_the_comparisons_of_the_tables() {
    let text = include_str!("../../../docs/simulated-cores.md");
    // Lines may break anywhere but in tables.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for table in tables() {
        table.check().expect("its costs are numbers");
        let machine = table.validated_on.as_deref().expect("it was compared with a machine");
        let wanted = markdown(&table.validation);
        assert!(text.contains(&wanted), "docs/simulated-cores.md does not have the table {}:\n\n{wanted}", table.name);
        assert!(words.contains(machine), "docs/simulated-cores.md does not name the machine: {machine}");
        assert!(words.contains(&table.measured_on), "nor what costs were measured on: {}", table.measured_on);
    }
}
