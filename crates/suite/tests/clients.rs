//! The results of random transactions that clients see, in every setting, pass a checker by others.

use seriatim::rng::seed;
use seriatim_suite::clients::{DataModel, Load, Route, interrogate, interrogate_declared};
use seriatim_suite::{matrix, rounds};

fn every_setting(test: &str, data_model: DataModel, load: &Load) {
    let seed = seed(test);
    for setting in matrix(seed) {
        for round in 0..rounds() {
            let seen = interrogate(&setting, data_model, load, seed ^ round).unwrap_or_else(|fault| panic!("{fault}"));
            eprintln!("{setting}, {data_model:?}: {seen:?}");
            assert!(seen.read_only > 0 && seen.informed_reads > 0, "{setting}, {data_model:?}: {seen:?}");
        }
    }
}

#[test]
#[ignore = "nightly: minutes"]
fn registers_are_serializable_to_their_clients() {
    every_setting("registers", DataModel::Registers, &Load { clients: 3, transactions: 600, keys: 5, steps: 5 });
}

#[test]
fn lists_are_serializable_to_their_clients() {
    every_setting("lists", DataModel::Lists, &Load { clients: 3, transactions: 1000, keys: 5, steps: 5 });
}

#[test]
#[ignore = "nightly: minutes"]
fn lists_in_rows_are_serializable_to_their_clients() {
    every_setting("lists in rows", DataModel::ListsInRows, &Load { clients: 3, transactions: 1000, keys: 5, steps: 5 });
}

#[test]
#[ignore = "nightly: minutes"]
fn lists_in_runs_are_serializable_to_their_clients() {
    every_setting("lists in runs", DataModel::ListsInRuns, &Load { clients: 3, transactions: 1000, keys: 5, steps: 5 });
}

#[test]
#[ignore = "nightly: minutes"]
fn lists_in_columns_are_serializable_to_their_clients() {
    every_setting(
        "lists in columns",
        DataModel::ListsInColumns,
        &Load { clients: 3, transactions: 500, keys: 5, steps: 5 },
    );
}

/// Runs until there were batches.
const RUNS_MAX: u64 = 20;

/// Transactions that are registered procedures, and the recorded history of them.
fn declared_in_every_setting(test: &str, data_model: DataModel) {
    let (seed, load) = (seed(test), Load { clients: 3, transactions: 300, keys: 5, steps: 5 });
    // The places of elements of lists in rows are not known before.
    let tells = !matches!(data_model, DataModel::ListsInRows | DataModel::ListsInRuns);
    let settings = matrix(seed);
    for (at, setting) in settings.iter().enumerate() {
        // Two of the routes in each setting: which they are differs by what the data are. Procedures that cannot be
        // batched are called, in any setting.
        let mut routes = Route::ALL;
        routes.rotate_left((seed as usize + at + data_model as usize) % Route::ALL.len());
        let tried = if rounds() > 1 { &routes[..] } else { &routes[..2] };
        for route in tried.iter().copied().filter(|&route| tells || at < routes.len() || route != Route::Batched) {
            // Those that wait in line make batches.
            let load = Load { clients: if route == Route::Batched { 8 } else { load.clients }, ..load };
            let wants_batches = tells && route == Route::Batched;
            // A thread that runs as soon as it has work finds one call: without waiting calls there are no batches.
            for run in 0..RUNS_MAX {
                let seen = interrogate_declared(setting, (data_model, route), &load, seed ^ run, |builder| builder);
                let seen = seen.unwrap_or_else(|fault| panic!("{fault}"));
                let what = format!("{setting}, {data_model:?}, {route:?}: {seen:?}");
                eprintln!("{what}");
                assert!(seen.read_only > 0 && seen.informed_reads > 0, "{what}");
                assert!(wants_batches || seen.batched <= 100, "{what}");
                if !wants_batches || seen.batched > 100 {
                    break;
                }
                assert!(run + 1 < RUNS_MAX, "{what}");
            }
        }
    }
}

#[test]
#[ignore = "nightly: minutes"]
fn procedures_on_registers_are_serializable_to_their_clients() {
    declared_in_every_setting("procedures on registers", DataModel::Registers);
}

#[test]
fn procedures_on_lists_are_serializable_to_their_clients() {
    declared_in_every_setting("procedures on lists", DataModel::Lists);
}

#[test]
#[ignore = "nightly: minutes"]
fn procedures_on_lists_in_rows_are_serializable_to_their_clients() {
    declared_in_every_setting("procedures on lists in rows", DataModel::ListsInRows);
}

#[test]
#[ignore = "nightly: minutes"]
fn procedures_on_lists_in_runs_are_serializable_to_their_clients() {
    declared_in_every_setting("procedures on lists in runs", DataModel::ListsInRuns);
}

#[test]
#[ignore = "nightly: minutes"]
fn procedures_on_lists_in_columns_are_serializable_to_their_clients() {
    declared_in_every_setting("procedures on lists in columns", DataModel::ListsInColumns);
}
