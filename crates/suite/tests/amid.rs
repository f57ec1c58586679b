//! Events before each step of a call, in all the ways to run it: [`seriatim_suite::amid`].

use seriatim::htm::HtmMode;
use seriatim::procedure::{Data, ExecutionMode, Value};
use seriatim::rng::{seed, tries};
use seriatim::{Builder, Database, Durability, Fault, LogFault, protocols};
use seriatim_base::thread::interrupt;
use seriatim_suite::Setting;
use seriatim_suite::amid::{Event, Tally, World, interrupt_calls, ledger, stall};
use seriatim_suite::replay::Recorded;
use seriatim_suite::terminals::load;
use seriatim_workload::Workload;
use seriatim_workload::tpcc::{self, Scale, Tpcc};

macro_rules! examples {
    ($($name:ident $path:literal)*) => {
        $(
            #[allow(dead_code, reason = "it is called from here only")]
            #[path = $path]
            mod $name;
        )*
    };
}

examples! {
    checkout "../../seriatim/examples/checkout.rs"
    feed "../../seriatim/examples/feed.rs"
    fees "../../seriatim/examples/fees.rs"
    job_queue "../../seriatim/examples/job_queue.rs"
    leaderboard "../../seriatim/examples/leaderboard.rs"
    seats "../../seriatim/examples/seats.rs"
}

/// The events that need no disk.
const EVENTS: [Event; 5] = [Event::Cancelled, Event::Disconnected, Event::TooOld, Event::OutOfMemory, Event::Panics];

const DISKS: [Event; 5] = [
    Event::DiskFull(Durability::Group),
    Event::DiskFull(Durability::Sync),
    Event::DiskFails(Durability::Group),
    Event::DiskFails(Durability::Sync),
    Event::DiskFails(Durability::Async),
];

/// Without regions, which are one step each: of those that publish in pieces, always late.
fn settings(names: &[&str]) -> Vec<Setting> {
    let named = protocols().iter().filter(|protocol| names.contains(&protocol.name));
    Setting::each_of(named, HtmMode::Absent).collect()
}

fn all(world: &World<'_>, settings: &[Setting], events: &[Event], mode: ExecutionMode, seed: u64) -> Vec<Tally> {
    let mut tallies = Vec::new();
    for setting in settings {
        for event in events {
            let tally = interrupt_calls(setting, world, *event, mode, seed);
            let tally = tally.unwrap_or_else(|found| panic!("{setting}, {event:?}: {found}"));
            eprintln!("{setting}, {event:?}, {mode:?}: {tally:?}");
            assert!(tally.struck > 0, "{setting}, {event:?}");
            tallies.push(tally);
        }
    }
    tallies
}

#[test]
fn a_call_to_which_something_happens_has_happened_once_or_not_at_all() {
    let seed = seed("amid");
    let world = World { open: &ledger::open, calls: ledger::calls(seed, 60) };
    let settings = settings(&["dbx-tc", "silo", "occ-batch"]);
    let tallies = all(&world, &settings, &EVENTS, ExecutionMode::Whole, seed);
    for (event, tally) in EVENTS.iter().cycle().zip(&tallies) {
        // Before its first piece nothing of it is there, and after it none of these can end it.
        assert_eq!(tally.unknown > 0, *event == Event::Disconnected, "{event:?}: {tally:?}");
        assert_eq!(tally.refused > 0, *event != Event::Disconnected, "{event:?}: {tally:?}");
        assert!(tally.struck > tally.refused, "{event:?}: {tally:?}");
    }
}

#[test]
#[ignore = "nightly: seconds"]
fn a_call_during_which_the_disk_fails_has_happened_once_or_not_at_all() {
    let seed = seed("amid disks");
    let world = World { open: &ledger::open, calls: ledger::calls(seed, 60) };
    all(&world, &settings(&["dbx-tc"]), &DISKS, ExecutionMode::Whole, seed);
}

/// Of a chain of transactions a later one is no place to give up.
#[test]
#[ignore = "nightly: seconds"]
fn a_chain_to_which_something_happens_has_happened_once_or_not_at_all() {
    let seed = seed("amid chains");
    let world = World { open: &ledger::open, calls: ledger::calls(seed, 60) };
    let tallies = all(&world, &settings(&["dbx-tc", "dbx"]), &EVENTS, ExecutionMode::Pieces, seed);
    for (event, tally) in EVENTS.iter().cycle().zip(&tallies) {
        assert!(tally.unknown == 0 || *event != Event::Cancelled, "{tally:?}: it goes on");
    }
}

fn tpcc(seed: u64) -> Box<dyn Workload> {
    let scale = Scale { items: 50, customers: 6, undelivered: 3, ..Scale::small(1) };
    Box::new(Tpcc::new(tpcc::Options::new(scale, seed)))
}

#[test]
#[ignore = "nightly: a minute"]
fn transactions_of_tpcc_to_which_something_happens_have_happened_once_or_not_at_all() {
    let seed = seed("amid tpcc");
    let make = || tpcc(seed);
    let recorded = Recorded::of(&make, 120, seed).expect("it runs");
    let writes = recorded.calls().iter().filter(|call| ["new_order", "payment", "delivery"].contains(&call.procedure));
    let calls: Vec<_> = writes.map(|call| (call.procedure.to_owned(), call.arguments.clone())).collect();
    assert!(calls.len() > 80);
    let open = |builder: Builder| load(builder, &*tpcc(seed));
    let world = World { open: &open, calls };
    let settings = settings(&["dbx-tc"]);
    // Deliveries are deferred in part: with durable snapshots where there is a disk.
    let [deferring, both] = [settings[0].that_defers(), settings[0].that_defers_with_durable_snapshots()];
    for (events, deferring) in [(&EVENTS[..4], deferring), (&DISKS[..1], both)] {
        let settings: Vec<Setting> = settings.iter().cloned().chain(deferring).collect();
        all(&world, &settings, events, ExecutionMode::Whole, seed);
    }
}

fn in_words(opened: Result<Database, Box<dyn std::error::Error>>) -> Result<Database, String> {
    opened.map_err(|error| error.to_string())
}

/// One in which these calls were made.
fn after(
    opened: Result<Database, Box<dyn std::error::Error>>,
    calls: impl Iterator<Item = (String, Value)>,
) -> Result<Database, String> {
    let db = in_words(opened)?;
    let mut session = db.session();
    calls.for_each(|(name, arguments)| drop(session.submit_by_name(&name, &arguments)));
    drop(session);
    Ok(db)
}

#[test]
fn examples_to_which_something_happens_have_happened_once_or_not_at_all() {
    let seed = seed("amid examples");
    let money = |units| Value::Decimal { units, scale: 2 };
    let pay = |number: u32| {
        let fields = [("day", (number % 2).to_value()), ("from", (number % 40).to_value())];
        let fields = fields.into_iter().chain([("to", (number % 40 + 7).to_value()), ("amount", money(500))]);
        ("pay".to_owned(), Value::record("Payment", fields))
    };
    let line = |product: u32| Value::record("Line", [("product", product.to_value()), ("count", 1i64.to_value())]);
    let buy = |number: u32| {
        let lines = Value::List((0..3).map(|at| line((number + at) % 20)).collect());
        let fields = [("buyer", 1u32.to_value()), ("number", number.to_value()), ("lines", lines)];
        let fields = fields.into_iter().chain([("coupon", number.is_multiple_of(3).then_some(7u32).to_value())]);
        ("checkout".to_owned(), Value::record("Basket", fields))
    };
    let seats = |number: u32| {
        let row = (number / 2 % 10) as u8;
        match number % 2 {
            0 => ("reserve".to_owned(), (1u32, row, vec![1u8, 2, 3], number).to_value()),
            _ => ("cancel".to_owned(), (1u32, row, number - 1).to_value()),
        }
    };
    let post = |number: u32| {
        let (round, author) = (number / 4, number / 4 % 2);
        match number % 4 {
            0 => ("publish".to_owned(), (author, format!("post {round}")).to_value()),
            1 => ("follow".to_owned(), (round, author).to_value()),
            2 => ("like".to_owned(), (round, author, 0u32).to_value()),
            _ => ("timeline".to_owned(), round.to_value()),
        }
    };
    let play = |number: u32| match number % 3 {
        0 => ("best".to_owned(), 5u8.to_value()),
        _ => ("play".to_owned(), (number % 7, number % 5 + 7).to_value()),
    };
    let enqueue = |number: u32| ("enqueue".to_owned(), (1u16, format!("job {number}")).to_value());
    let take = |number: u32| ("take".to_owned(), (1u16, number).to_value());
    // Each ends a job that was taken before all of this.
    let end = |name: &str, job: u32| (name.to_owned(), (1u16, u64::from(job)).to_value());
    let work = |number: u32| match number % 4 {
        0 => enqueue(number),
        1 => take(number),
        2 => end("finish", number / 4),
        _ => end("put_back", 79 - number / 4),
    };
    let worlds: [World<'_>; 6] = [
        World { open: &|builder| in_words(fees::open(builder)), calls: (0..60).map(pay).collect() },
        World { open: &|builder| in_words(checkout::open(builder)), calls: (0..60).map(buy).collect() },
        World { open: &|builder| in_words(seats::open(builder)), calls: (0..240).map(seats).collect() },
        World { open: &|builder| after(feed::open(builder), (0..24).map(post)), calls: (24..144).map(post).collect() },
        World { open: &|builder| in_words(leaderboard::open(builder)), calls: (0..400).map(play).collect() },
        World {
            open: &|builder| after(job_queue::open(builder), (0..100).map(enqueue).chain((0..80).map(take))),
            calls: (0..160).map(work).collect(),
        },
    ];
    for world in worlds.iter().take(tries(1, 6) as usize) {
        let settings = settings(&["dbx-tc"]);
        let mut tallies = all(world, &settings, &EVENTS[..4], ExecutionMode::Whole, seed);
        tallies.extend(all(world, &settings, &DISKS[2..4], ExecutionMode::Whole, seed));
        assert!(tallies.iter().all(|tally| tally.is_through), "{}: {tallies:?}", world.calls[0].0);
    }
}

#[test]
fn a_stalled_call_delays_only_callers_that_must_not_see_half_of_it() {
    let seed = seed("stalls");
    let calls: [(&str, Value, i64); 3] = [
        ("deposit", (0u32, 0u32, 5i64).to_value(), 5),
        ("share", (0u32, 0u32, 1u32, 5i64).to_value(), 10),
        ("spread", (0u32, vec![0u32, 1, 2], 5i64).to_value(), 15),
    ];
    for setting in settings(&["dbx-tc"]) {
        for (name, arguments, pays) in &calls {
            // A caller that never continued had to wait, or did not run in time.
            let waits = stall::STANDS.into_iter().find_map(|stands| {
                let waits = stall::stall(&setting, (name, arguments), (*pays, stands), seed, &|builder| builder);
                let waits = waits.unwrap_or_else(|found| panic!("{setting}: {found}"));
                eprintln!("{setting}, {name}, {stands:?}: {waits:?}");
                let all_went_on = waits.values().all(|[went_on, _]| *went_on > 0);
                (all_went_on || Some(&stands) == stall::STANDS.last()).then_some(waits)
            });
            for (who, [went_on, waited]) in waits.expect("the last is taken as it is") {
                // Chains wait for each other's records only, and for threads that close windows.
                let is_chain = who == "a call with the same rows";
                assert!(went_on > 0 && (waited > 0 || is_chain), "{name}, {who}: {went_on} went on, {waited} waited");
            }
        }
    }
}

#[test]
fn canary_half_of_a_call_is_met_where_nothing_keeps_others_away() {
    let (seed, spread) = (seed("halves"), (0u32, vec![0u32, 1, 2], 5i64).to_value());
    for setting in settings(&["dbx-tc"]) {
        let broken = |builder: Builder| builder.canary(Fault::NoWindows);
        // If they are run while the call stands still.
        let found = stall::STANDS
            .into_iter()
            .find_map(|stands| stall::stall(&setting, ("spread", &spread), (15, stands), seed, &broken).err());
        let found = found.expect("somebody meets it");
        eprintln!("{found}");
        assert!(
            ["met half", "branches and accounts", "no serial order"].iter().any(|said| found.contains(said)),
            "{found}"
        );
    }
}

/// Of so many runs one at least notices it: an answer is early only if the log had not got so far by itself.
const RUNS_MAX: u64 = 100;

#[test]
fn canary_an_answer_that_does_not_wait_for_the_log_is_noticed() {
    let seed = seed("early answers");
    let early = |builder: Builder| ledger::open(builder.log_canary(LogFault::AcknowledgeBeforeFlush));
    for setting in settings(&["dbx-tc"]) {
        let found = (0..RUNS_MAX).find_map(|run| {
            let seed = seed.wrapping_add(run);
            let world = World { open: &early, calls: ledger::calls(seed, 60) };
            interrupt_calls(&setting, &world, Event::DiskFails(Durability::Group), ExecutionMode::Whole, seed).err()
        });
        let found = found.expect("it is noticed");
        // A checkpoint may have taken note of what was acknowledged: then recovery misses it.
        let is_noticed =
            ["is there in part, or not at all", "batches are missing"].iter().any(|said| found.contains(said));
        assert!(is_noticed, "{found}");
    }
}

/// Directory and step of a child.
const CHILD: &str = "SERIATIM_AMID";

/// Of so many steps a child panics before one: each is a process.
const CHILDREN: usize = 12;

/// An internal panic during publication would keep windows open for ever. So the process ends, and recovery finds
/// nothing of the call, or all of it.
#[test]
fn a_panic_during_a_call_ends_the_call_or_the_process() {
    let seed = seed("panics amid a call");
    let tests = std::env::current_exe().expect("the tests are a program");
    let (mut caught, mut aborted) = (0, 0);
    for step in (seed as usize % CHILDREN..).step_by(CHILDREN) {
        let directory = std::env::temp_dir().join(format!("seriatim-amid-{}-{step}", std::process::id()));
        let child = std::process::Command::new(&tests)
            .args(["--exact", "panic_amid_a_call", "--ignored", "--nocapture"])
            .env(CHILD, format!("{step} {}", directory.display()))
            .output()
            .expect("the tests start themselves");
        let said = String::from_utf8_lossy(&child.stderr).into_owned();
        let recovered = ledger::sums(settings(&["dbx-tc"])[0].builder().path(&directory));
        let recovered = recovered.unwrap_or_else(|found| panic!("before step {step}: {found}: {said}"));
        let _ = std::fs::remove_dir_all(&directory);
        let is_caught = said.contains("it was caught");
        let is_over = said.contains("there are not so many");
        assert!(is_caught || is_over || child.status.code().is_none(), "before step {step}: {}: {said}", child.status);
        let allowed: &[i64] = if is_over {
            &[15]
        } else if is_caught {
            &[0]
        } else {
            &[0, 15]
        };
        assert!(
            recovered.0 == recovered.1 && allowed.contains(&recovered.0),
            "before step {step}: {recovered:?}: {said}"
        );
        if is_over {
            break;
        }
        (caught, aborted) = (caught + u32::from(is_caught), aborted + u32::from(!is_caught));
    }
    assert!(caught > 0 && aborted > 0, "{caught} calls, {aborted} processes");
}

/// A child of the test above.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn panic_amid_a_call() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (step, directory) = told.split_once(' ').expect("a step and a directory");
    let builder = settings(&["dbx-tc"])[0].builder().path(directory).durability(Durability::Group);
    let db = ledger::open(builder).expect("a new database");
    db.flush().expect("the disk works");
    let (step, mut session) = (step.parse().expect("a step"), db.session());
    let call = || session.call_by_name("spread", &(0u32, vec![0u32, 1, 2], 5i64).to_value()).map(drop);
    let interrupted = std::panic::AssertUnwindSafe(|| interrupt(step, || panic!("deliberately"), call));
    match std::panic::catch_unwind(interrupted) {
        Ok((called, _)) => eprintln!("there are not so many steps: {called:?}"),
        Err(_) => eprintln!("it was caught"),
    }
    drop(session);
    db.close().expect("the disk works");
}
