//! Runs on threads and on simulated cores, and faults that the check must notice.

use std::time::Duration;

use seriatim_partition::{Fault as Mistake, Scheme, inject};
use seriatim_simulate::{Costs as CoreCosts, Guard, Machine, Role as CoreRole, Work as CoreWork, run};
use seriatim_transport::{Costs, Fault};

use super::*;

/// Arbitrary costs of roles.
const COSTS: Costs = Costs {
    send: Duration::from_nanos(100),
    receive: Duration::from_nanos(300),
    wake: Duration::from_nanos(200),
    woken: Duration::from_nanos(1000),
};
const STORE: StoreCosts = StoreCosts {
    fragment: Duration::from_nanos(100),
    key: Duration::from_nanos(40),
    undo: Duration::from_nanos(10),
    lock: Duration::from_nanos(60),
    more: Duration::ZERO,
};

/// A plan with each role on its own core.
fn plan(scheme: Scheme, mix: Mix, delay: u64) -> Plan {
    let mut plan = Plan::new(scheme, 40).charged(COSTS, STORE);
    plan.transport.delay = Duration::from_micros(delay);
    plan.transport.tick = Duration::from_micros(200);
    Plan { mix, length: Duration::from_millis(10), warmup: Duration::from_micros(500), records: true, ..plan }
}

/// Runs roles on simulated cores.
pub(super) fn on_cores<G>(roles: Vec<super::roles::Role<G>>) -> Result<Vec<G>, String> {
    let roles = roles.into_iter().map(|(name, body)| CoreRole::new(name, body)).collect();
    let tell = |reason| panic!("{reason}");
    let guard = Guard { longest: Duration::from_secs(2), held: Duration::from_secs(60), report: Box::new(tell) };
    let (unit, work) = (10.0, CoreWork::of_steps([10.0; 8]));
    let machine =
        Machine { transfer: unit, overlapped: unit, pause: unit, yields: unit, sleep: unit, region: unit, abort: unit };
    let run = run(&CoreCosts { work, machine }, guard, roles).map_err(|stuck| stuck.to_string())?;
    Ok(run.results.into_iter().map(|gives| gives.expect("roles do not panic")).collect())
}

fn simulated(plan: &Plan) -> Result<Measured, String> {
    plan.finish(on_cores(plan.roles())?)
}

/// A plan with everything at once: conflicts, aborts, two rounds.
const MIXED: Mix = Mix { multi: 0.4, conflicts: 0.5, aborts: 0.1, two_rounds: 0.5, undo: false };

/// The results of a short run, or of a longer one that suffices: a busy machine does little in a short time.
pub(super) fn enough(
    mut length: Duration,
    run: impl Fn(Duration) -> Result<Measured, String>,
    is_enough: impl Fn(&Measured) -> bool,
) -> Result<Measured, String> {
    loop {
        let measured = run(length)?;
        if is_enough(&measured) || length > Duration::from_secs(60) {
            return Ok(measured);
        }
        length *= 4;
    }
}

#[test]
fn short_runs_on_threads_are_serializable_and_lose_nothing() {
    for scheme in Scheme::ALL {
        for (mix, threads) in [(MIXED, 1), (Mix { multi: 0.5, ..Mix::default() }, 3)] {
            let aborts = mix.aborts > 0.0;
            let is_enough =
                |of: &Measured| of.committed > 100 && of.committed_multi > 20 && (of.user_aborted > 0 || !aborts);
            let run = |length| on_threads(&Plan { mix, records: true, length, ..Plan::new(scheme, threads) });
            let measured = enough(Duration::from_millis(60), run, is_enough);
            let measured = measured.unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
            assert!(is_enough(&measured), "{measured:?}");
            assert!(measured.ordered.is_some_and(|ordered| ordered >= measured.committed), "{measured:?}");
            assert_eq!(measured.user_aborted > 0, aborts);
        }
    }
}

#[test]
#[ignore = "nightly: seconds"]
fn simulated_runs_are_serializable_and_repeat() {
    for scheme in Scheme::ALL {
        for delay in [0, 40] {
            let plan = plan(scheme, MIXED, delay);
            let once = || simulated(&plan).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
            let (one, other) = (once(), once());
            assert!(one.committed > 100 && one.ordered.is_some(), "{}: {}", scheme.name(), one.committed);
            assert_eq!((one.latencies, one.owners, one.fragments), (other.latencies, other.owners, other.fragments));
        }
    }
}

/// §5.1, with transactions about as long as the paper's, and its network. A scheme that does not block hides stalls.
#[test]
fn schemes_that_do_not_block_hide_the_delay() {
    let rate = |scheme| {
        let mut plan = plan(scheme, Mix { multi: 0.2, ..Mix::default() }, 20);
        plan.store.more = Duration::from_micros(5);
        simulated(&Plan { length: Duration::from_millis(40), records: false, ..plan })
            .expect("it is right")
            .per_second()
    };
    let [blocking, local, speculation, locking] =
        [Scheme::Blocking, Scheme::LocalSpeculation, Scheme::Speculation, Scheme::Locking].map(rate);
    let all = format!("{blocking} {local} {speculation} {locking}");
    assert!(1.05 * blocking < local && 1.1 * local < speculation && 1.2 * blocking < locking, "{all}");
}

/// The effect of a mistake, if one of five runs notices it. `run` gets a seed.
pub(super) fn noticed_by<M>(mistake: Option<Mistake>, run: impl Fn(u64) -> Result<M, String>) -> Option<String> {
    (1..6).find_map(|seed| {
        inject(mistake);
        let ran = run(seed);
        inject(None);
        ran.err()
    })
}

fn noticed(scheme: Scheme, fault: Option<Fault>, mistake: Option<Mistake>) -> Option<String> {
    noticed_by(mistake, |seed| {
        let mut plan = Plan { seed, ..plan(scheme, MIXED, 5 * seed) };
        plan.transport.fault = fault;
        simulated(&plan)
    })
}

#[test]
fn canary_a_reply_that_leaks_before_its_decision_is_noticed() {
    for scheme in [Scheme::LocalSpeculation, Scheme::Speculation] {
        let what = noticed(scheme, None, Some(Mistake::ReplyLeaked)).expect("it is noticed");
        assert!(what.contains("have grown by") || what.contains("no serial order") || what.contains("wrote"), "{what}");
    }
}

#[test]
fn canary_a_lost_dependency_and_a_skipped_lock_are_noticed() {
    for (scheme, mistake) in [
        (Scheme::Speculation, Mistake::DependencyLost),
        (Scheme::Speculation, Mistake::CascadeMissed),
        (Scheme::Blocking, Mistake::UndoDroppedEarly),
        (Scheme::Locking, Mistake::LockSkipped),
    ] {
        let what = noticed(scheme, None, Some(mistake));
        let what = what.unwrap_or_else(|| panic!("{mistake:?} is not noticed under {}", scheme.name()));
        eprintln!("{mistake:?}: {what}");
    }
}

#[test]
#[ignore = "nightly: ten seconds"]
fn canary_a_carrier_out_of_order_is_noticed() {
    for scheme in Scheme::ALL {
        for fault in [Fault::Overtaking, Fault::Losing, Fault::Repeating] {
            // With locks the order does not matter. A client has one call in progress, so its calls cannot be
            // reordered.
            if (scheme, fault) == (Scheme::Locking, Fault::Overtaking) {
                continue;
            }
            let what = noticed(scheme, Some(fault), None);
            let what = what.unwrap_or_else(|| panic!("{fault:?} is not noticed under {}", scheme.name()));
            eprintln!("{}, {fault:?}: {what}", scheme.name());
        }
    }
}

/// Prints the figures of `costs`: `cargo test --release -p seriatim-bench --lib time_of_an_owner -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement, for a quiet machine"]
fn time_of_an_owner() {
    use super::store::{Act, FragmentValues, Work};
    use seriatim_base::clock::Instant;
    use seriatim_partition::{
        Call, ClientId, CoordinatorId, Decision, Fragment, FromCoordinator, Options, Owner, ToOwner, TransactionId,
    };
    const TIMES: u64 = 400_000;
    let id = |n: u64| TransactionId { client: ClientId((n % 40) as u32), number: n + 1 };
    let work = |n: u64, count: u32| {
        let mut keys = FragmentValues::default();
        (0..count).for_each(|key| keys.push((n % 40) as u32 * KEYS as u32 + key));
        Work { keys, act: Act::Update, fails: false }
    };
    type Step<'a> = &'a dyn Fn(u64, &mut dyn FnMut(ToOwner<Work>));
    let each = |scheme, step: Step<'_>| {
        let options = Options { records: false, ..Options::new(scheme) };
        let mut owner = Owner::new(PartitionId(0), Undoable::new(Store::new(480, StoreCosts::default())), &options);
        let (mut out, began) = (Vec::new(), Instant::now());
        for n in 0..TIMES {
            step(n, &mut |message| {
                owner.handle(message, &mut out);
                out.clear();
            });
        }
        began.elapsed().as_nanos() as u64 / TIMES
    };
    for may_abort in [false, true] {
        let call = |n| ToOwner::Call(Call { transaction: id(n), work: work(n, KEYS as u32), may_abort });
        eprintln!("a call, undo {may_abort}: {} ns", each(Scheme::Blocking, &|n, handle| handle(call(n))));
    }
    for (scheme, keys) in
        [Scheme::Blocking, Scheme::Locking].into_iter().flat_map(|scheme| [0, 6, 12].map(|n| (scheme, n)))
    {
        let (coordinator, incarnation, round) = (CoordinatorId(0), 0, 0);
        let took = each(scheme, &|n, handle| {
            let (transaction, work) = (id(n), Some(work(n, keys)));
            let fragment = Fragment { transaction, coordinator, incarnation, round, work, last: true };
            handle(ToOwner::Coordinator(FromCoordinator::Fragment(fragment)));
            handle(ToOwner::Coordinator(FromCoordinator::Decision(Decision {
                transaction,
                coordinator,
                commit: true,
            })));
        });
        eprintln!("a fragment of {keys} keys and its decision, {}: {took} ns", scheme.name());
    }
}
