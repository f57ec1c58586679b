//! The machine alone: the order of cores, the cost of steps and waits, and the end of a run that cannot
//! continue.

mod common;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread::{self, Touch};
use seriatim_simulate::{Guard, Role, Step, run};

use common::{COSTS, Line, guard, step};

fn line() -> Line {
    Line(AtomicU64::new(0))
}

#[test]
fn the_core_furthest_behind_continues_and_of_several_the_first() {
    let (order, words) = (RefCell::new(Vec::new()), [line(), line()]);
    let core = |name: &'static str, touch, times| {
        let (order, words) = (&order, &words);
        Role::new(name, move || {
            for _ in 0..times {
                // Never the previous line.
                step(touch, &words[0].0);
                order.borrow_mut().push(name);
                step(Touch::Begin, &words[1].0);
            }
        })
    };
    // A step of 10 and one of 20, each followed by one of 100: at 10, 120, 230 the one, at 20, 140, 260 the other.
    run(&COSTS, guard(), vec![core("slow", Touch::Header, 3), core("fast", Touch::Node, 3)]).expect("it ends");
    assert_eq!(order.take(), ["fast", "slow", "fast", "slow", "fast", "slow"]);
    run(&COSTS, guard(), vec![core("one", Touch::Node, 2), core("two", Touch::Node, 2)]).expect("it ends");
    assert_eq!(order.take(), ["one", "two", "one", "two"]);
}

#[test]
fn steps_and_waits_are_charged_and_lines_that_others_wrote_cost_more() {
    let (word, other) = (line(), line());
    let begin = || Instant::now().nanoseconds();
    let first = || {
        assert_eq!(begin(), 0);
        step(Touch::Store, &word.0);
        assert_eq!(begin(), 5);
        step(Touch::Node, &word.0);
        assert_eq!(begin(), 6, "the line that was touched just before");
        step(Touch::Copy, &other.0);
        step(Touch::Store, &other.0);
        assert_eq!(begin(), 8, "the store of a copy is part of it");
        thread::sleep(Duration::from_nanos(942));
        assert_eq!(begin(), 50_950);
        thread::sleep(Duration::from_micros(100));
        // The other core has read it meanwhile.
        step(Touch::Store, &word.0);
        step(Touch::Exchange, &other.0);
        begin()
    };
    let second = || {
        thread::sleep(Duration::from_micros(10));
        step(Touch::Header, &word.0);
        step(Touch::Header, &other.0);
        step(Touch::Header, &word.0);
        begin()
    };
    let ended = run(&COSTS, guard(), vec![Role::new("first", first), Role::new("second", second)]).expect("it ends");
    let times: Vec<u64> = ended.results.into_iter().map(|time| time.expect("no panic")).collect();
    assert_eq!(times, [50_950 + 150_000 + (5 + 60) + (15 + 60), 60_000 + (20 + 60) + (20 + 7) + 3]);
    let [first, second] = &ended.cores[..] else { panic!("two cores") };
    assert_eq!((first.transfers, second.transfers), (2, 2));
    assert_eq!((first.counts[Step::Store as usize], first.counts[Step::Copy as usize]), (2, 1));
    assert_eq!((second.counts[Step::Record as usize], second.counts[Step::Revisit as usize]), (2, 1));
    assert_eq!(second.waited, Duration::from_nanos(60_000));
    assert_eq!(second.slept, second.waited);
}

#[test]
fn every_kind_of_wait_lets_other_cores_run() {
    for wait in [
        || thread::yield_now(),
        || thread::sleep(Duration::from_nanos(1)),
        || {
            let _ = seriatim_base::Backoff::new().wait();
        },
    ] {
        let done = AtomicBool::new(false);
        let waits = || {
            while !done.load(Ordering::Relaxed) {
                wait();
            }
        };
        let works = || {
            thread::sleep(Duration::from_micros(500));
            done.store(true, Ordering::Relaxed);
        };
        let ended = run(&COSTS, guard(), vec![Role::new("waits", waits), Role::new("works", works)]).expect("it ends");
        assert!(ended.cores.iter().all(|core| core.ended >= Duration::from_micros(500)), "{:?}", ended.cores);
    }
}

#[test]
fn a_panic_is_a_result_and_the_other_cores_continue() {
    let word = line();
    struct Steps<'a>(&'a AtomicU64);
    impl Drop for Steps<'_> {
        fn drop(&mut self) {
            // A core keeps the thread while it unwinds: another core would appear to panic as well.
            (0..100).for_each(|_| step(Touch::Node, self.0));
        }
    }
    let panics = || {
        let _steps = Steps(&word.0);
        step(Touch::Node, &word.0);
        panic!("on purpose");
    };
    let goes_on = || {
        for _ in 0..10 {
            step(Touch::Begin, &word.0);
            assert!(!thread::panicking());
        }
    };
    let ended =
        run(&COSTS, guard(), vec![Role::new("panics", panics), Role::new("goes on", goes_on)]).expect("it ends");
    assert!(ended.results[0].is_err() && ended.results[1].is_ok());
}

#[test]
fn cores_that_wait_for_ever_are_named() {
    let waits = || loop {
        thread::yield_now();
    };
    let guard = Guard { longest: Duration::from_millis(2), ..guard() };
    let stuck =
        run(&COSTS, guard, vec![Role::new("ends", || ()), Role::new("waits", waits)]).expect_err("it cannot end");
    let said = stuck.to_string();
    assert!(said.contains("waits (last: Yield)") && !said.contains("ends ("), "{said}");
}

#[test]
fn a_core_that_holds_the_thread_is_reported() {
    let (released, said) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(String::new())));
    let (release, says) = (Arc::clone(&released), Arc::clone(&said));
    let tell = move |reason| {
        *says.lock().expect("no panic") = reason;
        release.store(true, Ordering::Relaxed);
    };
    let guard = Guard { longest: Duration::from_secs(1), held: Duration::from_secs(1), report: Box::new(tell) };
    let holds = || {
        while !released.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    run(&COSTS, guard, vec![Role::new("ends", || ()), Role::new("holds", holds)]).expect("it was let go");
    let said = said.lock().expect("no panic");
    assert!(said.contains("core holds has held the thread for 1.0 s"), "{said}");
}

#[test]
fn a_woken_core_does_not_continue_before_the_time_of_its_waker() {
    let (who, now) = (RefCell::new(None), || Instant::now().nanoseconds());
    let sleeper = || {
        *who.borrow_mut() = Some(thread::Waiter::current());
        thread::wait(None);
        let woken = now();
        thread::wait(Some(Instant::now().after(Duration::from_nanos(300))));
        let late = now();
        // It was woken while it worked.
        thread::work(Duration::from_nanos(1000));
        thread::wait(None);
        vec![woken, late, now()]
    };
    let waker = || {
        thread::work(Duration::from_nanos(500));
        let waiter = who.borrow().clone().expect("it has said who it is");
        waiter.wake();
        thread::work(Duration::from_nanos(500));
        waiter.wake();
        vec![now()]
    };
    let ran = run(&COSTS, guard(), vec![Role::new("sleeper", sleeper), Role::new("waker", waker)]).expect("it ends");
    let times: Vec<Vec<u64>> = ran.results.into_iter().map(|result| result.expect("no panic")).collect();
    assert_eq!(times, [vec![500, 800, 1800], vec![1000]]);
    assert_eq!(ran.cores[0].slept, Duration::from_nanos(800));
    // Woken before the time until which it waits; that time does not wake it again.
    let early = || {
        *who.borrow_mut() = Some(thread::Waiter::current());
        thread::wait(Some(Instant::now().after(Duration::from_nanos(700))));
        let woken = now();
        thread::wait(Some(Instant::now().after(Duration::from_nanos(700))));
        vec![woken, now()]
    };
    let waker = || {
        thread::work(Duration::from_nanos(100));
        who.borrow().clone().expect("it has said who it is").wake();
        Vec::new()
    };
    let ran = run(&COSTS, guard(), vec![Role::new("early", early), Role::new("waker", waker)]).expect("it ends");
    assert_eq!(ran.results[0].as_ref().expect("no panic"), &[100, 800]);
}

#[test]
fn cores_that_wait_for_each_other_are_reported_at_once() {
    let waits = |name: &'static str| Role::new(name, || thread::wait(None));
    let stuck = run(&COSTS, guard(), vec![waits("one"), waits("two")]).expect_err("nobody wakes them");
    let last = "waits to be woken".to_owned();
    assert_eq!(stuck.cores, [("one".to_owned(), last.clone()), ("two".to_owned(), last)]);
}
