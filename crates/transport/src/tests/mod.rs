//! Roles on threads and on simulated cores, and faults that these tests must notice.

mod disks;
mod panics;
mod store;

use std::time::Duration;

use seriatim_base::Rng;
use seriatim_base::clock::Instant;
use seriatim_partition::{Outcome, PartitionId, Scheme};
use seriatim_simulate::{Costs as CoreCosts, Guard, Machine, Role, Run, Stuck, Work as CoreWork, run};

use crate::{Costs, Deployment, Ended, Ends, Fault, Options, Port, Refused, deploy};
use store::{Amounts, KEYS, Op, Program, Store, VALUE};

/// The answers of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Answers {
    committed: u64,
    aborted: u64,
    conflicts: u64,
    unavailable: u64,
    lost: u64,
    /// Answers that must not occur.
    wrong: Vec<String>,
}

impl Answers {
    fn note(&mut self, ended: Ended<Amounts>) {
        let (committed, other) = match ended {
            Ended::Single(Outcome::Committed(_)) | Ended::Multi(Outcome::Committed(_)) => (true, None),
            Ended::Single(other) => (false, Some(format!("{other:?}"))),
            Ended::Multi(other) => (false, Some(format!("{other:?}"))),
            Ended::Lost => return self.lost += 1,
        };
        match other {
            _ if committed => self.committed += 1,
            Some(what) if what.starts_with("UserAborted") => self.aborted += 1,
            Some(what) if what.starts_with("Conflict") => self.conflicts += 1,
            Some(what) if what.starts_with("Unavailable") => self.unavailable += 1,
            what => self.wrong.extend(what),
        }
    }

    fn all(&self) -> u64 {
        self.committed + self.aborted + self.conflicts + self.unavailable + self.lost
    }
}

/// Moves an amount between two keys, of one partition or of two. The sum stays; a user abort where the amount
/// is not there.
fn ask(port: &mut Port<Amounts>, rng: &mut Rng, partitions: u32, multi: u64) -> Result<(), Refused> {
    let key = |rng: &mut Rng| rng.below(KEYS.into()) as u32;
    let from = rng.below(partitions.into()) as u32;
    let to = (from + 1) % partitions;
    let (a, b, amount) = (key(rng), key(rng), rng.below(40) as i64);
    let take = vec![Op::Require(a, amount), Op::Add(a, -amount)];
    if !rng.percent(multi) {
        let work = take.into_iter().chain([Op::Add(b, amount)]).collect();
        return port.call(PartitionId(from), work, true).map(drop);
    }
    let parts = vec![(PartitionId(from), take), (PartitionId(to), vec![Op::Add(b, amount)])];
    let program = if rng.percent(30) { Program::in_two_rounds(parts) } else { Program::new(parts) };
    port.run(program).map(drop)
}

/// Keeps as many calls under way as allowed.
fn client(mut port: Port<Amounts>, seed: u64, calls: u64, options: &Options) -> Answers {
    let (mut rng, mut answers, mut asked) = (Rng::from_seed(seed), Answers::default(), 0);
    loop {
        while asked < calls && port.outstanding() < options.outstanding_max {
            ask(&mut port, &mut rng, options.partitions, 40).expect("there is room");
            asked += 1;
        }
        match port.receive(None) {
            Some(answer) => answers.note(answer.ended),
            None => break,
        }
    }
    answers.wrong.extend(port.broken().iter().map(|broken| format!("{broken:?} is broken")));
    answers
}

fn options(scheme: Scheme) -> Options {
    Options { ports: 3, outstanding_max: 7, ..Options::new(scheme, 3) }
}

/// Checks the final states.
fn check(ends: &Ends<Amounts>, answers: &[Answers], calls: u64) -> Result<(), String> {
    let mut sum = 0;
    for end in &ends.owners {
        let owner = end.owner.as_ref().ok_or_else(|| format!("partition {} is gone", end.id))?;
        if !owner.is_idle() {
            return Err(format!("owner {} is not idle", end.id));
        }
        sum += owner.partition().sum();
    }
    let wanted = ends.owners.len() as i64 * i64::from(KEYS) * VALUE;
    if sum != wanted {
        return Err(format!("the sum is {sum} and should be {wanted}"));
    }
    if let Some(broken) = ends.coordinator.iter().find(|end| !end.broken.is_empty()) {
        return Err(format!("broken: {:?}", broken.broken));
    }
    match answers.iter().find(|answers| answers.all() != calls || !answers.wrong.is_empty()) {
        Some(answers) => Err(format!("answers {answers:?}")),
        None => Ok(()),
    }
}

fn on_threads(options: &Options, calls: u64) -> (Ends<Amounts>, Vec<Answers>) {
    let (running, ports) = deploy::<Amounts>(options, |_| Store::new()).start().expect("threads");
    let answers = seriatim_base::thread::scope(|scope| {
        let client = |(seed, port)| scope.spawn(move || client(port, seed, calls, options));
        let clients: Vec<_> = (0..).zip(ports).map(client).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    (running.join().expect("roles end"), answers)
}

/// The result of a role on a simulated core.
enum RoleOutput {
    Owner(Box<crate::OwnerEnd<Amounts>>),
    Coordinator(crate::CoordinatorEnd),
    Client(Answers),
}

const COSTS: Costs = Costs {
    send: Duration::from_nanos(50),
    receive: Duration::from_nanos(200),
    wake: Duration::from_nanos(300),
    woken: Duration::from_nanos(1000),
};

/// Clients that make this many calls.
fn asks(calls: u64) -> impl Fn(Port<Amounts>, u64, &Options) -> Answers {
    move |port, seed, options| client(port, seed, calls, options)
}

/// As on threads, with a simulated core for each role.
fn on_cores(
    options: &Options,
    client: &dyn Fn(Port<Amounts>, u64, &Options) -> Answers,
) -> Result<(Ends<Amounts>, Vec<Answers>, Duration), Stuck> {
    let Deployment { owners, coordinator, ports } = deploy::<Amounts>(options, |_| Store::new());
    let mut roles: Vec<Role<'_, RoleOutput>> = Vec::new();
    roles.extend(owners.into_iter().map(|owner| Role::new("owner", move || RoleOutput::Owner(Box::new(owner.run())))));
    roles.extend(coordinator.map(|role| Role::new("coordinator", move || RoleOutput::Coordinator(role.run()))));
    let client = |(seed, port)| Role::new("client", move || RoleOutput::Client(client(port, seed, options)));
    roles.extend((0..).zip(ports).map(client));
    let cost = 10.0;
    let machine =
        Machine { transfer: cost, overlapped: cost, pause: cost, yields: cost, sleep: cost, region: cost, abort: cost };
    let costs = CoreCosts { work: CoreWork::of_steps([cost; 8]), machine };
    let tell = |reason| panic!("{reason}");
    let guard = Guard { longest: Duration::from_secs(2), held: Duration::from_secs(60), report: Box::new(tell) };
    let Run { results, cores, .. } = run(&costs, guard, roles)?;
    let (mut ends, mut answers) = (Ends { owners: Vec::new(), coordinator: None }, Vec::new());
    for gives in results {
        match gives.expect("roles do not panic") {
            RoleOutput::Owner(end) => ends.owners.push(*end),
            RoleOutput::Coordinator(end) => ends.coordinator = Some(end),
            RoleOutput::Client(of) => answers.push(of),
        }
    }
    Ok((ends, answers, cores.iter().map(|core| core.ended).max().unwrap_or_default()))
}

#[test]
fn transfers_on_threads_are_whole_under_every_scheme_with_and_without_records_and_delay() {
    for scheme in Scheme::ALL {
        for (records, delay, batch_max) in [(true, 0, 16), (false, 50, 1)] {
            let delay = Duration::from_micros(delay);
            let options = Options { records, delay, batch_max, ..options(scheme) };
            let (ends, answers) = on_threads(&options, 300);
            check(&ends, &answers, 300).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
            let sum = |of: fn(&Answers) -> u64| answers.iter().map(of).sum::<u64>();
            assert!(sum(|answers| answers.committed) > 300 && sum(|answers| answers.aborted) > 0, "{answers:?}");
            assert_eq!(sum(|answers| answers.lost + answers.unavailable), 0);
            assert!(scheme == Scheme::Locking || sum(|answers| answers.conflicts) == 0);
            assert_eq!(ends.coordinator.is_some(), scheme.needs_one_coordinator());
            assert!(ends.owners.iter().all(|end| end.panics.is_empty() && records != end.records.is_empty()));
            assert!(ends.owners.iter().all(|end| end.counts.sleeps > 0), "an idle owner sleeps");
        }
    }
}

#[test]
fn simulated_cores_repeat_a_run_and_do_what_threads_do() {
    for scheme in Scheme::ALL {
        let options = Options { delay: Duration::from_micros(3), costs: COSTS, ..options(scheme) };
        let ran = || {
            let (ends, answers, ended) = on_cores(&options, &asks(200)).expect("it ends");
            check(&ends, &answers, 200).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
            let stores: Vec<Store> =
                ends.owners.iter().filter_map(|end| Some(end.owner.as_ref()?.partition().clone())).collect();
            (answers, ended, stores, ends.owners.iter().map(|end| end.counts).collect::<Vec<_>>())
        };
        assert_eq!(ran(), ran(), "{}", scheme.name());
    }
}

/// One call after another, each there and back, at two partitions in turn.
#[test]
fn a_message_takes_its_delay_and_what_it_costs() {
    let costs = Costs { woken: Duration::ZERO, ..COSTS };
    let options = Options { delay: Duration::from_micros(40), costs, ..Options::new(Scheme::Blocking, 2) };
    let (_, answers, ended) = on_cores(&options, &asks(50)).expect("it ends");
    let most = Duration::from_micros(50 * 2 * 40 * 2 * 2);
    assert!(ended >= Duration::from_micros(50 * 2 * 40) && ended < most, "{ended:?}");
    assert_eq!(answers[0].all(), 50);
}

#[test]
fn batches_save_wake_ups() {
    let sleeps = |batch_max| {
        let options = Options { batch_max, costs: COSTS, outstanding_max: 30, ..options(Scheme::Speculation) };
        let (ends, answers, _) = on_cores(&options, &asks(300)).expect("it ends");
        check(&ends, &answers, 300).expect("it is whole");
        ends.owners.iter().map(|end| end.counts.sleeps).sum::<u64>()
            + ends.coordinator.map_or(0, |end| end.counts.sleeps)
    };
    assert!(sleeps(16) < sleeps(1), "{} {}", sleeps(16), sleeps(1));
}

#[test]
fn calls_are_bounded_and_go_to_partitions_that_exist() {
    for scheme in [Scheme::Speculation, Scheme::Locking] {
        let options = Options { outstanding_max: 2, ports: 1, ..options(scheme) };
        let (running, mut ports) = deploy::<Amounts>(&options, |_| Store::new()).start().expect("threads");
        let port = &mut ports[0];
        assert_eq!(port.call(PartitionId(3), Vec::new(), false), Err(Refused::NoSuchPartition(PartitionId(3))));
        let both = || vec![(PartitionId(0), vec![Op::Add(0, 1)]), (PartitionId(1), vec![Op::Add(0, -1)])];
        port.call(PartitionId(0), vec![Op::Add(1, 0)], false).expect("there is room");
        port.run(Program::new(both())).expect("there is room");
        assert_eq!(port.call(PartitionId(0), Vec::new(), false), Err(Refused::Full));
        assert_eq!(port.run(Program::new(both())), Err(Refused::Full));
        let mut answers = Answers::default();
        while let Some(answer) = port.receive(None) {
            answers.note(answer.ended);
        }
        assert_eq!((answers.committed, port.outstanding()), (2, 0));
        assert!(port.receive(None).is_none(), "nothing is under way");
        // A procedure that names a partition that does not exist gets an error.
        port.run(Program::new(vec![(PartitionId(9), Vec::new())])).expect("there is room");
        let ended = port.receive(None).expect("an answer").ended;
        assert!(matches!(ended, Ended::Multi(Outcome::Misuse(_))));
        port.run(Program::new(both())).expect("there is room");
        assert!(port.receive(Some(Instant::now())).is_none() || port.outstanding() == 0, "it waits no longer");
        drop(ports);
        check(&running.join().expect("roles end"), &[], 0).expect("it is whole");
    }
}

/// Two clients lock a key at each of two partitions, in opposite orders: ticks end the deadlock.
#[test]
fn waiting_in_a_circle_over_partitions_ends_by_ticks() {
    let options = Options { ports: 2, outstanding_max: 40, ..options(Scheme::Locking) };
    // One may finish before the other runs.
    let waited = (0..100).any(|_| {
        let (ends, answers) = on_threads(&options, 2000);
        check(&ends, &answers, 2000).expect("it is whole");
        answers.iter().any(|answers| answers.conflicts > 0)
    });
    assert!(waited, "nobody waits in a circle");
}

#[test]
fn a_client_that_disconnects_stops_no_other() {
    for scheme in Scheme::ALL {
        let options = Options { outstanding_max: 20, ..options(scheme) };
        let (running, mut ports) = deploy::<Amounts>(&options, |_| Store::new()).start().expect("threads");
        for round in 0..2 {
            // One leaves with calls under way; one panics.
            let mut port = ports.pop().expect("a port");
            let mut rng = Rng::from_seed(round);
            let goes = seriatim_base::thread::spawn("goes", move || {
                (0..20).for_each(|_| ask(&mut port, &mut rng, 3, 80).expect("there is room"));
                (0..3).for_each(|_| drop(port.receive(None)));
                assert!(round == 0, "deliberately");
            });
            assert_eq!(goes.expect("a thread").join().is_err(), round == 1);
        }
        let answers = client(ports.pop().expect("a port"), 7, 300, &options);
        check(&running.join().expect("roles end"), &[answers], 300)
            .unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
    }
}

/// The effect of a fault, if it is noticed.
fn noticed(fault: Fault, scheme: Scheme) -> Option<String> {
    for seed in 0..4 {
        let options = Options {
            fault: Some(fault),
            costs: COSTS,
            delay: Duration::from_micros(seed),
            outstanding_max: 20,
            ..options(scheme)
        };
        match on_cores(&options, &asks(300)) {
            Err(stuck) => return Some(stuck.to_string()),
            Ok((ends, answers, _)) => {
                if let Err(what) = check(&ends, &answers, 300) {
                    return Some(what);
                }
            }
        }
    }
    None
}

#[test]
fn canary_messages_that_overtake_or_are_repeated_or_lost_are_noticed() {
    for scheme in Scheme::ALL {
        for (fault, words) in
            [(Fault::Overtaking, "Repeated"), (Fault::Repeating, "Repeated"), (Fault::Losing, "given up")]
        {
            let what = noticed(fault, scheme).unwrap_or_else(|| panic!("{fault:?} is not noticed: {}", scheme.name()));
            let stuck = what.contains("given up") || what.contains("is not idle") || what.contains("broken");
            assert!(what.contains(words) || stuck, "{}, {fault:?}: {what}", scheme.name());
            eprintln!("{}, {fault:?}: {what}", scheme.name());
        }
    }
}
