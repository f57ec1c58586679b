//! Runs of registered workloads on threads and on simulated cores.

use std::time::Duration;

use seriatim_partition::Scheme;
use seriatim_workload::Entry;

use super::*;
use crate::partitions::tests::enough;

/// A workload with these options, under a plan of the microbenchmark with each role on its own core.
fn plan(scheme: Scheme, workload: &str, knobs: &[(&str, &str)], partitions: u32, seed: u64) -> Plan {
    let entry = Entry::find(workload).expect("it is registered");
    let mut values = entry.values(seed);
    knobs.iter().for_each(|(name, value)| values.set(name, value).expect("a knob"));
    let workload = (entry.open)(&values).expect("valid values");
    let mut of = super::super::Plan::new(scheme, 4).with_clients(12, 4);
    of.transport.partitions = partitions;
    of.transport.tick = Duration::from_micros(200);
    of.seed = seed;
    Plan::of(&of, workload, 1).expect("it can be loaded and divided")
}

/// Runs a plan for a short time, or longer until it suffices. A new plan is made each time, since terminals
/// count their results.
fn run(plan: impl Fn() -> Plan, is_enough: impl Fn(&Measured) -> bool) -> Result<Measured, String> {
    let run = |length| on_threads(&Plan { length, ..plan() });
    enough(Duration::from_millis(120), run, is_enough)
}

const TPCC: [(&str, &str); 4] = [("scale", "small"), ("warehouses", "4"), ("remote", "10"), ("remote-payments", "40")];

#[test]
#[ignore = "nightly: seconds"]
fn tpcc_as_declared_keeps_its_conditions_under_every_scheme() {
    for (scheme, partitions) in Scheme::ALL.into_iter().zip([2, 3, 2, 4]) {
        let is_enough = |of: &Measured| of.committed > 20 && of.committed_multi > 5;
        let measured = run(|| plan(scheme, "tpcc", &TPCC, partitions, 7), is_enough);
        let measured = measured.unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
        assert!(is_enough(&measured), "{}: {measured:?}", scheme.name());
    }
}

#[test]
fn other_workloads_run_without_a_line_of_their_own() {
    let twelve_key = [("partitions", "3"), ("clients", "12"), ("multi", "40"), ("abort", "10"), ("rounds", "2")];
    for scheme in Scheme::ALL {
        for (workload, knobs, both) in [("twelve-key", &twelve_key[..], true), ("ycsb", &[("records", "1000")], false)]
        {
            let is_enough = |of: &Measured| of.committed > 20 && (of.committed_multi > 5 || !both);
            let measured = run(|| plan(scheme, workload, knobs, 3, 11), is_enough);
            let measured = measured.unwrap_or_else(|what| panic!("{workload}, {}: {what}", scheme.name()));
            assert!(is_enough(&measured), "{workload}: {measured:?}");
        }
    }
}

#[test]
#[ignore = "nightly: ten seconds"]
fn partitions_on_disk_keep_the_conditions_and_can_be_opened_again() {
    for scheme in [Scheme::Blocking, Scheme::Speculation, Scheme::Locking] {
        let mut length = Duration::from_millis(120);
        let (home, mut plan, measured) = loop {
            let home = std::env::temp_dir().join(format!("seriatim-partitions-{:016x}", seriatim::rng::entropy()));
            let mut plan = Plan { length, ..plan(scheme, "tpcc", &TPCC, 2, 7) };
            // Long enough for any disk.
            plan.transport.hold_max = Duration::from_secs(600);
            plan.keep_in(home.clone()).expect("it is new");
            let measured = on_threads(&plan).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
            if measured.committed > 5 || length > Duration::from_secs(60) {
                break (home, plan, measured);
            }
            std::fs::remove_dir_all(home).expect("it is there");
            length *= 4;
        };
        assert!(measured.committed > 5, "{}: {measured:?}", scheme.name());
        // Another run would continue with these.
        let (begun, above) = (plan.deployed(), plan.transport.numbers_above);
        plan.keep_in(home.clone()).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
        assert!(plan.deployed() == begun && above == 0 && plan.transport.numbers_above > 0);
        for id in 0..2 {
            plan.partition(PartitionId(id), true).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
        }
        std::fs::remove_dir_all(home).expect("it is there");
    }
}
