//! Choosing a back end: forced modes give the same results, and what cannot be had says why.

use super::{Words, Worker, all};
use crate::htm::Cpuid;
use crate::{
    Aborted, Agent, Backend, BodyError, Budget, Detection, Emulation, Htm, HtmMode, Outside, RegionStatistics,
    SpinLock, detect,
};
use seriatim_base::Rng;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn modes_are_written_as_they_are_read() {
    for text in ["auto", "rtm", "emulated", "absent"] {
        let mode: HtmMode = text.parse().expect("a mode");
        assert_eq!(mode.to_string(), text);
    }
    let error = "tsx".parse::<HtmMode>().expect_err("not a mode").to_string();
    assert!(error.contains("`tsx`") && error.contains("auto, rtm, emulated or absent"), "{error}");
}

/// The features that a processor reports, whether its regions commit if they are tried (`None`: they must not be), and
/// a word of the verdict.
const PROCESSORS: [(Option<Cpuid>, Option<bool>, &str); 6] = {
    const fn says(rtm: bool, always_abort: bool) -> Option<Cpuid> {
        Some(Cpuid { rtm, always_abort })
    }
    [
        (None, None, "x86-64"),
        // The instructions fault, or run and abort, or would even commit: the result is not used.
        (says(false, false), None, "does not offer"),
        (says(false, true), None, "does not offer"),
        (says(true, true), None, "RTM_ALWAYS_ABORT"),
        (says(true, false), Some(false), "no probe region committed"),
        (says(true, false), Some(true), "a probe region committed"),
    ]
};

#[test]
fn trap_4_a_processor_that_never_commits_is_not_used() {
    let found = detect();
    println!("{found:?}");
    let played = PROCESSORS.map(|(cpuid, commits, word)| {
        let detection = Detection::new(cpuid, || commits.expect("an instruction that is not offered is not executed"));
        assert_eq!(detection.probe_commits, commits == Some(true));
        assert!(detection.reason.contains(word), "{detection:?}");
        detection
    });
    for detection in played.into_iter().chain([found]) {
        assert!(!detection.probe_commits || (detection.cpuid_rtm && !detection.always_abort), "{detection:?}");
        let backend = |mode| Htm::detected(mode, || detection.clone()).map(|htm| htm.backend());
        let auto = backend(HtmMode::Auto).expect("auto is always there");
        assert_eq!(auto, if detection.probe_commits { Backend::Rtm } else { Backend::Absent });
        match backend(HtmMode::Rtm) {
            Ok(backend) => assert!(backend == Backend::Rtm && detection.probe_commits),
            Err(unavailable) => {
                assert!(!detection.probe_commits && unavailable.to_string().ends_with(&detection.reason));
            }
        }
        for mode in [HtmMode::Absent, HtmMode::Emulated(Emulation::default())] {
            let htm = Htm::detected(mode, || unreachable!("{mode} does not depend on the processor"));
            assert_eq!(htm.expect("always there").backend().to_string(), mode.to_string());
        }
    }
    assert_eq!(Htm::new(HtmMode::Rtm).is_ok(), detect().probe_commits);
}

/// Transfers between accounts, refused when the balance does not suffice; the balances and the number refused.
fn transfers(htm: &Htm, seed: u64) -> (Vec<u64>, u32) {
    let mut rng = Rng::from_seed(seed);
    let (lock, accounts) = (SpinLock::new(), [const { AtomicU64::new(50) }; 8]);
    let mut worker = Worker::new(htm, 0, Budget::default());
    let mut refused = 0;
    for _ in 0..2_000 {
        let (from, to) = (&accounts[rng.below(8) as usize], &accounts[rng.below(8) as usize]);
        let amount = rng.below(40);
        let body = |access: &mut dyn Words| {
            let rest = access.load(from).checked_sub(amount).ok_or(BodyError::Refused(9))?;
            access.store(from, rest);
            let sum = access.load(to) + amount;
            access.store(to, sum);
            Ok(())
        };
        match worker.run(&lock, body) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.code, 9);
                refused += 1;
            }
        }
    }
    let statistics = worker.statistics();
    assert_eq!(statistics == RegionStatistics::default(), htm.backend() == Backend::Absent);
    (accounts.iter().map(|account| account.load(Ordering::Relaxed)).collect(), refused)
}

#[test]
fn trap_4_every_back_end_gives_the_same_result() {
    println!("seed 5");
    let results: Vec<_> = all().iter().map(|htm| transfers(htm, 5)).collect();
    assert_eq!(results[0].0.iter().sum::<u64>(), 400);
    assert!(results[0].1 > 0);
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
}

#[test]
fn statistics_add_up() {
    let one = RegionStatistics {
        started: 11,
        committed: 1,
        aborted: Aborted { conflict: 1, capacity: 2, explicit: 3, system: 4 },
        fallback: 5,
        begun_while_locked: 6,
    };
    let mut two = one;
    two += one;
    assert_eq!(two.started + two.fallback + two.begun_while_locked, 44);
    assert_eq!(two.aborted.total(), 20);
    assert_eq!(two, one + one);
}

#[test]
fn agents_move_between_threads() {
    fn sendable<T: Send>() {}
    fn shareable<T: Send + Sync>() {}
    sendable::<Agent>();
    sendable::<Outside>();
    shareable::<Htm>();
    shareable::<SpinLock>();
}
