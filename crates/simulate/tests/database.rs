//! Databases on simulated cores: a seed gives one result in every process. Faults of protocols are found,
//! since cores interleave within transactions and within commits.

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use seriatim::history::{self, Promises};
use seriatim::htm::{HtmMode, RegionStatistics};
use seriatim::{Database, Fault, Rng, Table, TransactError, thread};
use seriatim_simulate::{Costs, Guard, Machine, Role, Work, at};

const COSTS: Costs = Costs {
    work: Work {
        begin: 300.0,
        node: 6.0,
        record: 25.0,
        revisit: 3.0,
        again: 1.0,
        store: 3.0,
        exchange: 8.0,
        copy: 0.5,
    },
    machine: Machine {
        transfer: 60.0,
        overlapped: 60.0,
        pause: 20.0,
        yields: 300.0,
        sleep: 52_000.0,
        region: 14.0,
        abort: 50.0,
    },
};

/// The default interval of databases.
const EPOCH: Duration = Duration::from_millis(10);

#[derive(Table, Clone, Debug)]
#[table(name = "account", key(id), hash)]
struct Account {
    id: u32,
    balance: i64,
}

/// The outcome of a run.
struct Outcome {
    /// The violation that the checker found, if any.
    violation: Option<String>,
    /// The whole record: counts of cores, statistics, and the history itself.
    record: String,
    conflicts: u64,
    regions: RegionStatistics,
}

/// Cores that read some accounts and change one or two, and one that runs the helpers.
fn simulate(run: (&str, HtmMode), fault: Fault, cores: usize, transactions: u32, seed: u64) -> Outcome {
    let (protocol, htm) = run;
    const ACCOUNTS: u64 = 12;
    let builder = Database::builder().protocol(protocol).htm(htm).workers(cores + 2).seed(seed);
    let db = builder.step_helpers(true).record_history(true).canary(fault).open().expect("a database opens");
    let accounts = db.create::<Account>().expect("a table is created");
    let fill =
        |tx: &seriatim::Tx| (0..ACCOUNTS as u32).try_for_each(|id| tx.insert(&accounts, &Account { id, balance: 0 }));
    // Before the cores begin, by their clocks.
    at(Duration::ZERO, || db.session().transact(fill)).expect("no conflict");
    let left = std::cell::Cell::new(cores);
    let work = |number: usize| {
        let (db, accounts, left) = (&db, &accounts, &left);
        move || {
            let (mut session, mut rng) = (db.session(), Rng::from_seed(seed ^ (number as u64 + 1) << 20));
            for _ in 0..transactions {
                let keys: Vec<u32> = (0..4).map(|_| rng.below(ACCOUNTS) as u32).collect();
                let result = session.transact(|tx| {
                    let mut sum = 0;
                    for id in &keys[..2] {
                        sum += tx.get(accounts, id)?.map_or(0, |account| account.balance());
                    }
                    for id in &keys[2..] {
                        tx.update(accounts, id, |account| account.set_balance((sum + 1) % 1000))?;
                    }
                    Ok(())
                });
                match result {
                    Ok(_) | Err(TransactError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            left.set(left.get() - 1);
        }
    };
    let mut roles: Vec<Role<'_, ()>> = (0..cores).map(|number| Role::new(number.to_string(), work(number))).collect();
    roles.push(Role::new("ticker", || {
        while left.get() > 0 {
            thread::sleep(EPOCH);
            db.step();
        }
    }));
    let tell = |reason| {
        eprintln!("{reason}");
        std::process::abort();
    };
    let guard = Guard { longest: Duration::from_secs(60), held: Duration::from_secs(60), report: Box::new(tell) };
    let ran = seriatim_simulate::run(&COSTS, guard, roles).expect("nobody waits for ever");
    ran.results.iter().for_each(|result| assert!(result.is_ok(), "a body panicked"));
    let history = db.take_history().expect("it is recorded");
    let violation = history::check(&history, &Promises::STRICT).err().map(|violation| violation.to_string());
    let statistics = db.statistics();
    let mut record = String::new();
    let (cores, conflicts, regions) = (&ran.cores, statistics.conflict_aborted, statistics.regions);
    write!(record, "{cores:?} {} {statistics:?} {:?}", ran.switches, history.transactions).expect("room");
    Outcome { violation, record, conflicts, regions }
}

/// Every protocol that runs without regions, and with modelled ones.
fn runs() -> impl Iterator<Item = (&'static str, HtmMode)> {
    let protocols = seriatim::protocols().iter().filter(|protocol| !protocol.requirements.regions);
    protocols.flat_map(|protocol| [(protocol.name, HtmMode::Absent), (protocol.name, HtmMode::Modelled)])
}

#[test]
fn histories_of_simulated_cores_are_serializable_and_have_conflicts() {
    for run in runs() {
        for (cores, seed) in [(1, 1), (2, 2), (8, 3)] {
            let Outcome { violation, conflicts, .. } = simulate(run, Fault::None, cores, 200, seed);
            assert_eq!(violation, None, "{run:?} on {cores} cores");
            assert_eq!(conflicts > 0, cores > 1, "{run:?} on {cores} cores: {conflicts} conflicts");
        }
    }
}

#[test]
fn commits_run_in_modelled_regions_which_abort_on_conflicts() {
    for protocol in ["dbx", "htcc"] {
        let regions = |cores| simulate((protocol, HtmMode::Modelled), Fault::None, cores, 200, 4).regions;
        let (alone, many) = (regions(1), regions(8));
        assert!(alone.committed >= 200 && alone.aborted.conflict == 0, "{protocol}: {alone:?}");
        assert!(many.committed >= 1000 && many.aborted.conflict > 10, "{protocol}: {many:?}");
    }
}

/// Faults that show only when another core runs between the steps of one commit.
#[test]
fn canary_faults_of_protocols_are_found_on_two_simulated_cores() {
    for (protocol, htm, fault) in [
        ("silo", HtmMode::Absent, Fault::SkipValidation),
        ("dbx", HtmMode::Absent, Fault::NoSubscription),
        ("dbx", HtmMode::Absent, Fault::LateSubscription),
        ("htcc", HtmMode::Absent, Fault::LateSubscription),
        ("tictoc", HtmMode::Absent, Fault::ExtendOverwritten),
        ("dbx", HtmMode::Modelled, Fault::SkipValidation),
        ("dbx", HtmMode::Modelled, Fault::NoSubscription),
        ("htcc", HtmMode::Modelled, Fault::SkipValidation),
    ] {
        let found = (0..20).find_map(|seed| simulate((protocol, htm), fault, 2, 400, seed).violation);
        println!(
            "{protocol} {htm} {fault:?}: {}",
            found.as_deref().unwrap_or("not found").lines().next().unwrap_or_default()
        );
        assert!(found.is_some(), "{protocol} {htm} with {fault:?} was not found out");
    }
}

/// The run that a child process repeats.
const CHILD: &str = "SERIATIM_SIMULATED";

#[test]
fn child() {
    let Ok(number) = std::env::var(CHILD) else { return };
    let run = runs().nth(number.parse().expect("a number")).expect("that many");
    println!("\n{}", simulate(run, Fault::None, 4, 300, 7).record);
}

#[test]
fn a_seed_gives_one_result_to_the_byte_in_every_process() {
    let tests = std::env::current_exe().expect("the tests are a program");
    let said = |number: usize, more: &str| {
        let mut child = Command::new(&tests);
        // The inherited environment moves the heap and the stack of a process; the kernel moves them as well.
        child.args(["--exact", "child", "--nocapture"]).env(CHILD, number.to_string()).env("SERIATIM_MORE", more);
        let output = child.output().expect("the tests start themselves");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).expect("text");
        said.lines().find(|line| line.starts_with("[Core")).expect("what the cores did").to_owned()
    };
    for (number, run) in runs().enumerate() {
        let (one, two) = (said(number, ""), said(number, &"x".repeat(5000)));
        assert!(one == two, "{run:?}: two processes had different results:\n{one}\n{two}");
        let other = simulate(run, Fault::None, 4, 300, 8).record;
        assert!(one != other, "{run:?}: another seed gives another result");
    }
}
