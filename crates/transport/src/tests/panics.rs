//! Roles that panic: which roles get which notices, and which continue.

use std::borrow::BorrowMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{Rng, thread};
use seriatim_partition::{
    ClientId, Coordinator, CoordinatorId, CoordinatorRecord, HoldingCoordinator, Journal, Outcome, PartitionId, Scheme,
    TransactionId,
};

use super::store::{Amounts, Op, Program, Store, VALUE};
use super::{Answers, ask, check, options};
use crate::{Begin, Ended, Ends, Options, Port, deploy, deploy_with};

/// Makes this many calls; `ask` makes the call of each number.
fn calls(port: &mut Port<Amounts>, count: u64, max: usize, mut ask: impl FnMut(&mut Port<Amounts>, u64)) -> Answers {
    let (mut answers, mut asked) = (Answers::default(), 0);
    loop {
        while asked < count && port.outstanding() < max {
            asked += 1;
            ask(port, asked);
        }
        match port.receive(None) {
            Some(answer) => answers.note(answer.ended),
            None => return answers,
        }
    }
}

/// Makes calls, of which one in `every` panics in its partition; alone, or as one of two partitions.
fn client(port: &mut Port<Amounts>, seed: u64, count: u64, every: u64, options: &Options) -> Answers {
    let mut rng = Rng::from_seed(seed);
    calls(port, count, options.outstanding_max, |port, asked| match asked % every {
        0 if rng.percent(50) => {
            let work = vec![Op::Add(1, 5), Op::Panic];
            port.call(PartitionId(0), work, true).expect("there is room");
        }
        0 => {
            let parts = vec![(PartitionId(0), vec![Op::Add(1, 5), Op::Panic]), (PartitionId(1), vec![Op::Add(1, -5)])];
            port.run(Program::new(parts)).expect("there is room");
        }
        _ => ask(port, &mut rng, options.partitions, 40).expect("there is room"),
    })
}

/// Makes calls, of which one in `every` ends its coordinator, where all clients share one.
fn client_that_ends_coordinators(
    port: &mut Port<Amounts>,
    seed: u64,
    count: u64,
    every: u64,
    options: &Options,
) -> Answers {
    let mut rng = Rng::from_seed(seed);
    calls(port, count, options.outstanding_max, |port, asked| {
        if asked % every == 0 {
            let parts = vec![(PartitionId(0), vec![Op::Add(1, 5)]), (PartitionId(1), vec![Op::Add(1, -5)])];
            port.run(Program::that_panics(parts)).expect("there is room");
        } else {
            ask(port, &mut rng, options.partitions, 40).expect("there is room");
        }
    })
}

/// Ports that are given away are dropped when their client has its answers.
fn clients<P: BorrowMut<Port<Amounts>> + Send>(
    options: &Options,
    ports: impl IntoIterator<Item = P>,
    calls: u64,
    every: u64,
) -> Vec<Answers> {
    seriatim_base::thread::scope(|scope| {
        let client =
            |(seed, mut port): (_, P)| scope.spawn(move || client(port.borrow_mut(), seed, calls, every, options));
        let clients: Vec<_> = (0..).zip(ports).map(client).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    })
}

/// In virtual time, where a missing answer is found at once.
#[test]
fn deaths_on_simulated_cores_are_reported() {
    for scheme in Scheme::ALL {
        let options = Options { costs: super::COSTS, delay: Duration::from_micros(2), ..options(scheme) };
        let calls = |mut port: Port<Amounts>, seed, options: &Options| client(&mut port, seed, 200, 50, options);
        let (ends, answers, _) =
            super::on_cores(&options, &calls).unwrap_or_else(|stuck| panic!("{}: {stuck}", scheme.name()));
        check(&ends, &answers, 200).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
        assert!(ends.owners[0].panics.len() >= 3 && answers.iter().any(|answers| answers.lost > 0), "{answers:?}");
    }
}

/// An owner must not take what a coordinator said at its restart for its decisions since.
#[test]
fn owners_and_coordinators_that_die_in_turn_on_simulated_cores_are_whole() {
    for (scheme, seed) in Scheme::ALL.into_iter().flat_map(|scheme| (0..4).map(move |seed| (scheme, seed))) {
        let options = Options { costs: super::COSTS, delay: Duration::from_micros(seed), ..options(scheme) };
        let calls = |mut port: Port<Amounts>, client_of, options: &Options| match client_of {
            0 if scheme.needs_one_coordinator() => client_that_ends_coordinators(&mut port, seed, 200, 20, options),
            _ => client(&mut port, 10 * seed + client_of, 200, 15, options),
        };
        let (ends, answers, _) =
            super::on_cores(&options, &calls).unwrap_or_else(|stuck| panic!("{}: {stuck}", scheme.name()));
        check(&ends, &answers, 200).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
        assert!(ends.owners[0].panics.len() >= 3);
        assert!(ends.coordinator.is_none_or(|end| end.panics.len() >= 3));
    }
}

/// The sum says that each transaction is at both of its partitions or at none, and that all answered ones are
/// there.
#[test]
fn an_owner_that_panics_continues_from_its_records() {
    for scheme in Scheme::ALL {
        let options = options(scheme);
        let (running, ports) = deploy::<Amounts>(&options, |_| Store::new()).start().expect("threads");
        // Under `locking`, a client that stops receiving and stays would hold up the others.
        let answers = clients(&options, ports, 400, 50);
        let ends = running.join().expect("roles end");
        check(&ends, &answers, 400).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
        let panics: Vec<usize> = ends.owners.iter().map(|end| end.panics.len()).collect();
        assert!(panics[0] >= 3 && panics[1..] == [0, 0], "{panics:?}");
        assert_eq!(ends.owners[0].panics[0], "deliberately");
        let committed: u64 = answers.iter().map(|answers| answers.committed).sum();
        let lost: u64 = answers.iter().map(|answers| answers.lost + answers.unavailable).sum();
        assert!(committed > 300 && lost > 0, "{}: {answers:?}", scheme.name());
    }
}

#[test]
fn without_records_the_partition_is_gone_and_the_others_continue() {
    for scheme in Scheme::ALL {
        let options = Options { records: false, ..options(scheme) };
        let (running, mut ports) = deploy::<Amounts>(&options, |_| Store::new()).start().expect("threads");
        let answers = clients(&options, &mut ports, 200, 50);
        assert!(
            answers.iter().all(|answers| answers.all() == 200 && answers.wrong.is_empty() && answers.unavailable > 0),
            "{answers:?}"
        );
        let port = &mut ports[0];
        // Nobody waits for what is gone: otherwise an answer would not come.
        let both = |a, b| vec![(PartitionId(a), vec![Op::Add(0, 1)]), (PartitionId(b), vec![Op::Add(0, -1)])];
        port.call(PartitionId(0), vec![Op::Add(0, 0)], false).expect("there is room");
        assert!(matches!(
            port.receive(None).expect("an answer").ended,
            Ended::Single(Outcome::Unavailable(PartitionId(0)))
        ));
        port.run(Program::new(both(0, 1))).expect("there is room");
        assert!(matches!(
            port.receive(None).expect("an answer").ended,
            Ended::Multi(Outcome::Unavailable(PartitionId(0)))
        ));
        port.run(Program::new(both(1, 2))).expect("there is room");
        assert!(matches!(port.receive(None).expect("an answer").ended, Ended::Multi(Outcome::Committed(2))));
        drop(ports);
        let ends = running.join().expect("roles end");
        assert!(ends.owners[0].owner.is_none() && ends.owners[0].panics.len() == 1);
        assert!(ends.owners[1..].iter().all(|end| end.owner.as_ref().is_some_and(|owner| owner.is_idle())));
    }
}

/// Under `locking`. An owner takes all messages of a client that coordinates for itself at once. It votes for the
/// client's transaction, panics, and gets the notice that the client is gone. Returns how calls of another client end
/// then.
fn after_a_client_that_goes(part: Vec<Op>, alone: Vec<Op>) -> (Vec<Ended<Amounts>>, Ends<Amounts>) {
    let options = Options { ports: 2, outstanding_max: 2, batch_max: 4, ..Options::new(Scheme::Locking, 2) };
    let mut deployment = deploy::<Amounts>(&options, |_| Store::new());
    let mut ports = std::mem::take(&mut deployment.ports).into_iter();
    let (mut goes, mut stays) = (ports.next().expect("a port"), ports.next().expect("a port"));
    goes.run(Program::new(vec![(PartitionId(0), part), (PartitionId(1), vec![Op::Add(0, -1)])]))
        .expect("there is room");
    goes.call(PartitionId(0), alone, true).expect("there is room");
    drop(goes);
    let (running, _) = deployment.start().expect("threads");
    let call = |_| {
        stays.call(PartitionId(0), vec![Op::Add(0, 0)], false).expect("there is room");
        let answer = stays.receive(None);
        answer.expect("what nobody decides any more holds no locks").ended
    };
    // A call may end with the death of its owner, once for each death.
    let ended = (0..3).map(call).collect();
    drop(stays);
    (ended, running.join().expect("roles end"))
}

#[test]
fn an_owner_that_dies_as_a_client_goes_keeps_nothing_of_that_client() {
    // The work that panics runs before the notices, or waits for the lock that they release.
    for alone in [vec![Op::Panic], vec![Op::Add(0, 0), Op::Panic]] {
        let (ended, ends) = after_a_client_that_goes(vec![Op::Add(0, 1)], alone);
        assert!(matches!(ended[0], Ended::Lost));
        assert!(matches!(&ended[2], Ended::Single(Outcome::Committed(seen)) if *seen == [VALUE]));
        assert_eq!(ends.owners[0].panics, ["deliberately"]);
        check(&ends, &[], 0).expect("it is whole");
    }
}

/// It votes for work that it cannot undo: its next incarnation would die of the same notice, and so on.
#[test]
fn an_owner_that_dies_of_one_notice_twice_is_gone() {
    let (ended, ends) = after_a_client_that_goes(vec![Op::Add(0, 1), Op::Stay], vec![Op::Add(1, 0)]);
    assert!(matches!(ended[2], Ended::Single(Outcome::Unavailable(PartitionId(0)))));
    assert!(ends.owners[0].owner.is_none());
    assert_eq!(ends.owners[0].panics, ["it cannot be taken back"; 2]);
}

/// The first owner votes for a transaction, gets a call that panics, and then the abort. It runs only when the
/// coordinator has ended. The abort is lost with it, and its next incarnation has nobody to ask.
#[test]
fn an_owner_that_dies_with_the_last_abort_still_learns_it() {
    for scheme in [Scheme::Blocking, Scheme::LocalSpeculation, Scheme::Speculation] {
        let options = Options { ports: 1, outstanding_max: 3, batch_max: 8, ..Options::new(scheme, 3) };
        let mut deployment = deploy::<Amounts>(&options, |_| Store::new());
        let mut port = deployment.ports.pop().expect("a port");
        let mut owners = deployment.owners.into_iter();
        let [voter, refuser, other] = [(); 3].map(|()| owners.next().expect("an owner"));
        let coordinator = deployment.coordinator.expect("all clients share it");
        let coordinator = thread::spawn("coordinator", move || coordinator.run()).expect("a thread");
        let other = thread::spawn("other", move || other.run()).expect("a thread");
        let take = vec![Op::Require(0, VALUE + 1), Op::Add(0, -1)];
        port.run(Program::new(vec![(PartitionId(0), vec![Op::Add(0, 1)]), (PartitionId(1), take)])).expect("room");
        port.run(Program::new(vec![(PartitionId(2), vec![Op::Add(0, 0)])])).expect("there is room");
        // Behind the fragments of the first.
        assert!(matches!(port.receive(None).expect("an answer").ended, Ended::Multi(Outcome::Committed(_))));
        port.call(PartitionId(0), vec![Op::Add(1, 0), Op::Panic], true).expect("there is room");
        port.flush();
        let refuser = thread::spawn("refuser", move || refuser.run()).expect("a thread");
        assert!(matches!(port.receive(None).expect("an answer").ended, Ended::Multi(Outcome::UserAborted(0))));
        drop(port);
        let coordinator = Some(coordinator.join().expect("it ends"));
        let voter = voter.run();
        assert_eq!(voter.panics, ["deliberately"], "{}", scheme.name());
        let owners = vec![voter, refuser.join().expect("it ends"), other.join().expect("it ends")];
        check(&Ends { owners, coordinator }, &[], 0).unwrap_or_else(|what| panic!("{}: {what}", scheme.name()));
    }
}

/// Calls until the owner runs the call.
fn until_it_runs(port: &mut Port<Amounts>, mut meanwhile: impl FnMut()) -> Ended<Amounts> {
    loop {
        meanwhile();
        if port.outstanding() == 0 {
            port.call(PartitionId(0), vec![Op::Add(0, 0)], false).expect("there is room");
        }
        let answer = port.receive(Some(Instant::now().after(Duration::from_millis(1))));
        match answer.map(|answer| answer.ended) {
            None | Some(Ended::Lost | Ended::Single(Outcome::Unavailable(_))) => {}
            Some(ended) => return ended,
        }
    }
}

/// Under `locking`. As above, with a client that stays. It has no call under way, and receives.
#[test]
fn a_client_that_has_all_its_answers_tells_owners_what_they_have_lost() {
    let options = Options { ports: 2, outstanding_max: 2, batch_max: 8, ..Options::new(Scheme::Locking, 2) };
    let mut deployment = deploy::<Amounts>(&options, |_| Store::new());
    let mut ports = std::mem::take(&mut deployment.ports).into_iter();
    let (mut rests, mut works) = (ports.next().expect("a port"), ports.next().expect("a port"));
    let mut owners = deployment.owners.into_iter();
    let (voter, refuser) = (owners.next().expect("an owner"), owners.next().expect("an owner"));
    let take = vec![Op::Require(0, VALUE + 1), Op::Add(0, -1)];
    rests
        .run(Program::new(vec![(PartitionId(0), vec![Op::Add(0, 1)]), (PartitionId(1), take)]))
        .expect("there is room");
    rests.flush();
    works.call(PartitionId(0), vec![Op::Add(1, 0), Op::Panic], true).expect("there is room");
    works.flush();
    let refuser = thread::spawn("refuser", move || refuser.run()).expect("a thread");
    assert!(matches!(rests.receive(None).expect("an answer").ended, Ended::Multi(Outcome::UserAborted(0))));
    assert!(rests.receive(None).is_none(), "it sends the abort, and has no call under way");
    let voter = thread::spawn("voter", move || voter.run()).expect("a thread");
    assert!(matches!(works.receive(None).expect("an answer").ended, Ended::Lost));
    let ended = until_it_runs(&mut works, || assert!(rests.receive(None).is_none()));
    assert!(matches!(ended, Ended::Single(Outcome::Committed(seen)) if seen == [VALUE]));
    drop((rests, works));
    let owners = vec![voter.join().expect("it ends"), refuser.join().expect("it ends")];
    assert_eq!(owners[0].panics, ["deliberately"]);
    check(&Ends { owners, coordinator: None }, &[], 0).expect("it is whole");
}

/// Under `locking`. A partition has a vote for a client that goes. Its owner cannot begin before that.
#[test]
fn an_owner_that_begins_late_knows_what_a_client_said_as_it_went() {
    let begin: Begin<Amounts> = Arc::new(|id| {
        let mut out = Vec::new();
        (HoldingCoordinator::of(Coordinator::recover(id, 1, [], [PartitionId(0)], &mut out), None, out), 1)
    });
    let disk = Arc::new(AtomicBool::new(false));
    let is_there = Arc::clone(&disk);
    let make = move |_| {
        assert!(is_there.load(Ordering::SeqCst), "the disk is away");
        let transaction = TransactionId { client: ClientId(0), number: 1 };
        Store::that_keeps_in_doubt(transaction, CoordinatorId(0), 0)
    };
    let options = Options { ports: 2, ..Options::new(Scheme::Locking, 1) };
    let (running, ports) = deploy_with::<Amounts>(&options, make, Some(begin)).start().expect("threads");
    let mut ports = ports.into_iter();
    drop(ports.next());
    let mut stays = ports.next().expect("a port");
    // The first may be lost with the notice that the owner could not begin. The second is behind the client's last
    // message.
    for _ in 0..2 {
        stays.call(PartitionId(0), vec![Op::Add(0, 0)], false).expect("there is room");
        assert!(stays.receive(None).is_some());
    }
    disk.store(true, Ordering::SeqCst);
    let ended = until_it_runs(&mut stays, || ());
    assert!(matches!(ended, Ended::Single(Outcome::Committed(seen)) if seen == [VALUE]));
    drop(stays);
    check(&running.join().expect("roles end"), &[], 0).expect("it is whole");
}

/// A procedure that panics when it is dropped ends the coordinator, which continues in a new incarnation.
#[test]
fn a_coordinator_that_panics_continues_also_without_records() {
    for (scheme, records) in [
        (Scheme::Blocking, true),
        (Scheme::LocalSpeculation, false),
        (Scheme::Speculation, true),
        (Scheme::Speculation, false),
    ] {
        let options = Options { records, ..options(scheme) };
        let (running, mut ports) = deploy::<Amounts>(&options, |_| Store::new()).start().expect("threads");
        let answers = seriatim_base::thread::scope(|scope| {
            let options = &options;
            let client =
                |(seed, port)| scope.spawn(move || client_that_ends_coordinators(port, seed, 300, 60, options));
            let clients: Vec<_> = (0u64..).zip(&mut ports).map(client).collect();
            clients.into_iter().map(|client| client.join().expect("a client")).collect::<Vec<Answers>>()
        });
        drop(ports);
        let ends = running.join().expect("roles end");
        check(&ends, &answers, 300).unwrap_or_else(|what| panic!("{}, {records}: {what}", scheme.name()));
        let panics = ends.coordinator.map(|end| end.panics).unwrap_or_default();
        assert!(panics.len() >= 3 && panics[0].contains("when it is dropped"), "{panics:?}");
        assert!(answers.iter().map(|answers| answers.committed).sum::<u64>() > 300, "{answers:?}");
    }
}

/// A log that fails.
struct Stopped;

impl Journal for Stopped {
    fn keep(&mut self, _: &CoordinatorRecord) -> u64 {
        panic!("the log has stopped")
    }

    fn durable(&mut self) -> u64 {
        u64::MAX
    }
}

/// Begins one incarnation of a coordinator, whose log fails.
fn begins_once() -> Begin<Amounts> {
    let incarnations = AtomicU64::new(0);
    Arc::new(move |id| {
        assert!(incarnations.fetch_add(1, Ordering::Relaxed) == 0, "the log has stopped for good");
        let mut out = Vec::new();
        let coordinator = Coordinator::recover(id, 1, [], [0, 1].map(PartitionId), &mut out);
        (HoldingCoordinator::of(coordinator, Some(Box::new(Stopped)), out), 1)
    })
}

fn both() -> Program {
    Program::new(vec![(PartitionId(0), vec![Op::Add(0, 1)]), (PartitionId(1), vec![Op::Add(0, -1)])])
}

/// Shared, or with its client: the first call finds its log full, and it cannot begin again.
#[test]
fn a_coordinator_whose_log_fails_is_gone_and_says_so() {
    for scheme in [Scheme::Speculation, Scheme::Locking] {
        let options = Options { batch_max: 1, ..Options::new(scheme, 2) };
        let deployment = deploy_with::<Amounts>(&options, |_| Store::that_keeps(), Some(begins_once()));
        let (running, ports) = deployment.start().expect("threads");
        let mut port = ports.into_iter().next().expect("a port");
        for _ in 0..2 {
            port.run(both()).expect("there is room");
            assert!(matches!(port.receive(None).expect("an answer").ended, Ended::Lost));
        }
        let words = ["the log has stopped", "coordinator 0 cannot begin: "];
        let are_said = |panics: &[String]| {
            assert!(
                panics.len() == 2 && words.iter().zip(panics).all(|(one, said)| said.starts_with(one)),
                "{panics:?}"
            );
        };
        if scheme == Scheme::Locking {
            are_said(port.panics());
        }
        // Also while its client unwinds.
        let unwinds = catch_unwind(AssertUnwindSafe(move || {
            let _port = port;
            panic!("deliberately");
        }));
        assert!(unwinds.is_err());
        let ends = running.join().expect("roles end");
        ends.coordinator.iter().for_each(|end| are_said(&end.panics));
        assert_eq!(ends.coordinator.is_some(), scheme == Scheme::Speculation);
    }
}

#[test]
fn partitions_that_keep_are_gone_beside_coordinators_that_do_not() {
    for scheme in [Scheme::Speculation, Scheme::Locking] {
        let options = Options { outstanding_max: 2, ..Options::new(scheme, 2) };
        let (running, mut ports) = deploy::<Amounts>(&options, |_| Store::that_keeps()).start().expect("threads");
        ports[0].call(PartitionId(0), vec![Op::Add(0, 0)], false).expect("there is room");
        let answer = ports[0].receive(None).expect("an answer").ended;
        assert!(matches!(answer, Ended::Single(Outcome::Unavailable(PartitionId(0))) | Ended::Lost));
        // It was not sent before the partitions were known to be gone.
        ports[0].run(both()).expect("there is room");
        assert!(matches!(ports[0].receive(None).expect("an answer").ended, Ended::Multi(Outcome::Unavailable(_))));
        drop(ports);
        let ends = running.join().expect("roles end");
        for end in ends.owners {
            assert!(end.owner.is_none() && end.panics[0].contains("its coordinators do not"), "{:?}", end.panics);
        }
    }
}

/// The first calls of a coordinator that has restarted, or of a new one that keeps its records, wait until it
/// knows of all partitions.
#[test]
fn calls_that_come_before_partitions_have_been_heard_wait() {
    for scheme in [Scheme::Speculation, Scheme::Locking] {
        let begin: Begin<Amounts> = Arc::new(|id| {
            let mut out = Vec::new();
            (HoldingCoordinator::of(Coordinator::recover(id, 1, [], [0, 1].map(PartitionId), &mut out), None, out), 1)
        });
        let mut deployment = deploy_with::<Amounts>(&Options::new(scheme, 2), |_| Store::that_keeps(), Some(begin));
        let mut port = deployment.ports.pop().expect("a port");
        port.run(both()).expect("there is room");
        port.flush();
        let (running, _) = deployment.start().expect("threads");
        let answer = port.receive(None).expect("an answer").ended;
        assert!(matches!(answer, Ended::Multi(Outcome::Committed(_))), "{}", scheme.name());
        drop(port);
        running.join().expect("roles end");
    }
}
