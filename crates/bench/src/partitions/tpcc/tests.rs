//! Short runs of TPC-C on threads and simulated cores, and faults that its check must notice.

use std::time::Duration;

use seriatim_partition::{Fault as Mistake, Scheme};
use seriatim_transport::Fault;

use super::*;
use crate::partitions::costs;
use crate::partitions::tests::{enough, noticed_by, on_cores};

fn plan(scheme: Scheme, delay: u64) -> Plan {
    let mut plan = super::super::Plan::new(scheme, 8).charged(costs::TRANSPORT, costs::STORE);
    plan.transport.delay = Duration::from_micros(delay);
    plan.transport.tick = Duration::from_micros(200);
    (plan.length, plan.warmup) = (Duration::from_millis(8), Duration::from_micros(500));
    Plan { remote: 5.0, ..Plan::of(&plan, 4, Extent::SMALL) }
}

fn simulated(plan: &Plan) -> Result<Measured, String> {
    plan.finish(on_cores(plan.roles())?)
}

#[test]
fn short_runs_on_threads_are_consistent() {
    for scheme in Scheme::ALL {
        for (kinds, partitions) in [(Kinds::Full, 2), (Kinds::NewOrder, 3)] {
            let run = |length| {
                let mut plan = Plan { kinds, length, ..plan(scheme, 0) };
                plan.transport.partitions = partitions;
                on_threads(&plan)
            };
            let is_enough = |of: &Measured| of.committed > 10 && of.ended[1] > 0;
            let measured = enough(Duration::from_millis(150), run, is_enough);
            let measured = measured.unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
            assert!(is_enough(&measured), "{measured:?}");
        }
    }
}

#[test]
fn simulated_runs_are_consistent_and_repeat() {
    let mut undone = 0;
    for scheme in Scheme::ALL {
        for delay in [0, 40] {
            let once = || simulated(&plan(scheme, delay)).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
            let (one, other) = (once(), once());
            assert!(one.committed > 50 && one.user_aborted > 0, "{}: {one:?}", scheme.name());
            assert_eq!((&one.latencies, &one.owners), (&other.latencies, &other.owners));
            assert_eq!(one.fragments, other.fragments);
            undone += one.fragments[1];
        }
    }
    assert!(undone > 0, "what others supplied of an order that fails is taken back");
}

/// §5.5 and §5.6: few transactions use several partitions, and many conflict.
#[test]
fn speculation_is_best_and_locking_suffers_from_conflicts() {
    let rate = |scheme, remote| {
        let mut plan = Plan { kinds: Kinds::NewOrder, remote, length: Duration::from_millis(30), ..plan(scheme, 20) };
        plan.store.more = Duration::from_micros(1);
        simulated(&plan).expect("it is right").per_second()
    };
    let [blocking, speculation, locking] =
        [Scheme::Blocking, Scheme::Speculation, Scheme::Locking].map(|of| rate(of, 2.0));
    assert!(1.1 * blocking < speculation && locking < speculation, "{blocking} {speculation} {locking}");
}

#[test]
fn canary_lost_undo_lost_decisions_and_work_done_twice_are_noticed() {
    for (scheme, fault, mistake) in [
        (Scheme::Blocking, None, Some(Mistake::UndoDroppedEarly)),
        (Scheme::Speculation, None, Some(Mistake::CascadeMissed)),
        (Scheme::Speculation, Some(Fault::Losing), None),
        (Scheme::Blocking, Some(Fault::Repeating), None),
    ] {
        let what = noticed_by(mistake, |seed| {
            let mut plan = Plan { seed, remote: 10.0, ..plan(scheme, 5 * seed) };
            plan.transport.fault = fault;
            simulated(&plan)
        });
        let what = what.unwrap_or_else(|| panic!("{fault:?}, {mistake:?} is not noticed under {}", scheme.name()));
        eprintln!("{fault:?}, {mistake:?}: {what}");
    }
}
