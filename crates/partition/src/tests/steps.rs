//! Owners and coordinators, message by message.

use super::program::{Kind, Program};
use super::store::{Failed, Op, Seen, Store, Work};
use crate::{
    Call, ClientId, Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorOutputOf, Decision, Fragment,
    FragmentRequest, FromCoordinator, FromOwner, LockMode, Misuse, Next, Options, Outcome, Owner, OwnerOutput,
    OwnerOutputOf, OwnerRecord, Partition, PartitionId, Procedure, Refusal, Response, Scheme, ToCoordinator, ToOwner,
    TransactionId,
};

pub(super) const P: PartitionId = PartitionId(0);
pub(super) const K: CoordinatorId = CoordinatorId(0);

pub(super) fn id(number: u64) -> TransactionId {
    TransactionId { client: ClientId(0), number }
}

pub(super) fn owner(scheme: Scheme) -> Owner<Store> {
    Owner::new(P, Store::new(P, 4, 5), &Options { records: false, ..Options::new(scheme) })
}

pub(super) type Outputs = Vec<OwnerOutputOf<Store>>;

pub(super) fn deliver(owner: &mut Owner<Store>, message: ToOwner<Work>) -> Outputs {
    let mut out = Vec::new();
    owner.handle(message, &mut out);
    out
}

pub(super) fn call(owner: &mut Owner<Store>, number: u64, work: Work) -> Outputs {
    deliver(owner, ToOwner::Call(Call { transaction: id(number), work, may_abort: true }))
}

pub(super) fn fragment(
    owner: &mut Owner<Store>,
    coordinator: CoordinatorId,
    number: u64,
    round: u32,
    work: Work,
    last: bool,
) -> Outputs {
    let fragment = Fragment { transaction: id(number), coordinator, incarnation: 0, round, work: Some(work), last };
    deliver(owner, ToOwner::Coordinator(FromCoordinator::Fragment(fragment)))
}

pub(super) fn decide(owner: &mut Owner<Store>, number: u64, commit: bool) -> Outputs {
    let decision = Decision { transaction: id(number), coordinator: K, commit };
    deliver(owner, ToOwner::Coordinator(FromCoordinator::Decision(decision)))
}

/// Replies to clients, as (transaction, the first value it saw), or nothing for a user abort.
pub(super) fn replies(out: &Outputs) -> Vec<(u64, Option<i64>)> {
    let reply = |output: &OwnerOutputOf<Store>| match output {
        OwnerOutput::Reply { transaction, outcome: Outcome::Committed(seen) } => {
            Some((transaction.number, Some(seen[0].value)))
        }
        OwnerOutput::Reply { transaction, outcome: Outcome::UserAborted(_) } => Some((transaction.number, None)),
        _ => None,
    };
    out.iter().filter_map(reply).collect()
}

/// Responses to coordinators, as (transaction, whether it went well, what it depends on).
pub(super) fn responses(out: &Outputs) -> Vec<(u64, bool, Option<u64>)> {
    let response = |output: &OwnerOutputOf<Store>| match output {
        OwnerOutput::Send { message: FromOwner::Response(Response { transaction, result, after, .. }), .. } => {
            Some((transaction.number, result.is_ok(), after.map(|after| after.number)))
        }
        _ => None,
    };
    out.iter().filter_map(response).collect()
}

pub(super) fn add(amount: i64) -> Work {
    vec![Op::Add(0, amount)]
}

/// The example of §4.2.1 and §4.2.2. The first transaction swaps x and y in two rounds. Two others increment x at this
/// partition, and a fourth increments both in between. x is 5, and 17 after the first.
#[test]
fn the_papers_example_runs_as_the_paper_says() {
    let mut p = owner(Scheme::Speculation);
    let (swap, early, both, late) = (1, 2, 3, 4);
    assert_eq!(responses(&fragment(&mut p, K, swap, 0, vec![Op::Read(0)], false)), [(swap, true, None)]);
    assert_eq!(call(&mut p, early, add(1)), [], "the swap has not finished");
    let out = fragment(&mut p, K, swap, 1, vec![Op::Set(0, 17)], true);
    assert_eq!(
        (responses(&out), replies(&out)),
        (vec![(swap, true, None)], vec![]),
        "it is speculated, and says nothing"
    );
    assert_eq!(responses(&fragment(&mut p, K, both, 0, add(1), true)), [(both, true, Some(swap))]);
    assert_eq!(call(&mut p, late, add(1)), []);
    assert_eq!(replies(&decide(&mut p, swap, true)), [(early, Some(17))], "the late one is behind another");
    assert_eq!(replies(&decide(&mut p, both, true)), [(late, Some(19))]);
    assert!(p.is_idle());
}

#[test]
fn under_blocking_one_transaction_runs_at_a_time() {
    let mut p = owner(Scheme::Blocking);
    assert_eq!(responses(&fragment(&mut p, K, 1, 0, add(1), true)), [(1, true, None)]);
    assert_eq!(call(&mut p, 2, add(1)), []);
    assert_eq!(fragment(&mut p, K, 3, 0, add(1), true), []);
    let out = decide(&mut p, 1, true);
    assert_eq!((replies(&out), responses(&out)), (vec![(2, Some(6))], vec![(3, true, None)]));
}

/// Behind an undecided transaction there are 1 to 8 others, of both kinds. It aborts, and they run again in
/// their order, as if it had never existed.
#[test]
fn transactions_on_top_of_an_aborted_one_run_again_in_order() {
    for length in 1..=8 {
        for kinds in 0u64..1 << length {
            let (mut p, is_call) = (owner(Scheme::Speculation), |n: u64| kinds >> (n - 1) & 1 == 0);
            fragment(&mut p, K, 0, 0, add(1000), true);
            let mut before = Some(0);
            for n in 1..=length {
                if is_call(n) {
                    assert_eq!(call(&mut p, n, add(1)), []);
                } else {
                    assert_eq!(responses(&fragment(&mut p, K, n, 0, add(1), true)), [(n, true, before)]);
                    before = Some(n);
                }
            }
            let out = decide(&mut p, 0, false);
            let first_multi = (1..=length).find(|&n| !is_call(n)).unwrap_or(length + 1);
            let mut told = replies(&out);
            assert_eq!(told.len() as u64, first_multi - 1, "those before another undecided one are answered");
            let (again, mut before) = (responses(&out), None);
            let multis: Vec<u64> = (1..=length).filter(|&n| !is_call(n)).collect();
            for (response, &n) in again.iter().zip(&multis) {
                assert_eq!(*response, (n, true, before));
                before = Some(n);
            }
            assert_eq!(again.len(), multis.len());
            for &n in &multis {
                told.extend(replies(&decide(&mut p, n, true)));
            }
            let calls: Vec<_> = (1..=length).filter(|&n| is_call(n)).map(|n| (n, Some(4 + n as i64))).collect();
            assert_eq!(told, calls, "each saw those before it, and nothing of what aborted");
            assert!(p.is_idle());
        }
    }
}

/// The failure may be due to effects that are undone: it is reported if the transactions below it commit, and
/// runs again otherwise.
#[test]
fn a_user_abort_behind_an_undecided_transaction_waits_for_its_decision() {
    let withdraw = || vec![Op::Require(0, 5), Op::Add(0, -5)];
    for scheme in [Scheme::LocalSpeculation, Scheme::Speculation] {
        for commit in [true, false] {
            let mut p = owner(scheme);
            fragment(&mut p, K, 1, 0, withdraw(), true);
            assert_eq!(call(&mut p, 2, withdraw()), [], "there is nothing left, if 1 commits");
            assert_eq!(replies(&decide(&mut p, 1, commit)), [(2, if commit { None } else { Some(5) })]);
        }
        let mut p = owner(scheme);
        fragment(&mut p, K, 1, 0, withdraw(), true);
        let voted = responses(&fragment(&mut p, K, 2, 0, withdraw(), true));
        assert_eq!(voted, if scheme == Scheme::Speculation { vec![(2, false, Some(1))] } else { vec![] });
        // The next transaction does not depend on the failed one.
        call(&mut p, 3, vec![Op::Read(0)]);
        assert_eq!(replies(&decide(&mut p, 1, true)), [(3, Some(0))]);
        assert!(p.is_idle());
    }
}

#[test]
fn responses_wait_where_another_coordinator_is_among_the_undecided() {
    let (mut p, other) = (owner(Scheme::Speculation), CoordinatorId(1));
    fragment(&mut p, K, 1, 0, add(1), true);
    assert_eq!(fragment(&mut p, other, 2, 0, add(1), true), []);
    assert_eq!(fragment(&mut p, K, 3, 0, add(1), true), [], "it depends on 2, of which its coordinator knows nothing");
    assert_eq!(responses(&decide(&mut p, 1, true)), [(2, true, None)]);
    let decision = Decision { transaction: id(2), coordinator: other, commit: true };
    assert_eq!(
        responses(&deliver(&mut p, ToOwner::Coordinator(FromCoordinator::Decision(decision)))),
        [(3, true, None)]
    );
}

/// A client may have been told, without a record, the outcome of a transaction that ran again when the one
/// below it aborted. So a restarted owner neither answers it nor runs it again.
#[test]
fn a_restarted_owner_does_not_answer_transactions_that_it_ran_before() {
    for commit in [true, false] {
        let records = [
            OwnerRecord::Prepared { transaction: id(1), coordinator: K, works: vec![add(1)], after: None },
            OwnerRecord::Executed { transaction: id(2), work: add(10), after: Some(id(1)) },
            OwnerRecord::Prepared { transaction: id(3), coordinator: K, works: vec![add(100)], after: Some(id(1)) },
        ];
        let (options, mut out) = (Options::new(Scheme::Speculation), Vec::new());
        let mut p = Owner::recover(P, 1, Store::new(P, 1, 5), &options, records, [], &mut out);
        let recovered = FromOwner::Recovered { partition: P, incarnation: 1, in_doubt: vec![id(1), id(3)] };
        assert_eq!(out, [OwnerOutput::Send { to: K, message: recovered }]);
        assert_eq!(p.partition().sum(), 116);
        let told = [decide(&mut p, 1, commit), decide(&mut p, 3, false)].concat();
        assert_eq!((replies(&told), responses(&told)), (vec![], vec![]));
        assert_eq!((p.partition().sum(), p.is_idle()), (if commit { 16 } else { 5 }, true));
    }
}

/// The decision is lost with the owner, whose question finds no coordinator. What the coordinator said as it left
/// decides.
#[test]
fn a_coordinator_that_leaves_decides_what_owners_may_have_in_doubt() {
    let q = PartitionId(1);
    for (scheme, commit) in Scheme::ALL.into_iter().flat_map(|scheme| [(scheme, true), (scheme, false)]) {
        let (mut k, mut out) = (Coordinator::<Program>::new(K, [P, q]), Vec::new());
        let procedure = Program::new(Kind::Simple(vec![(P, add(1)), (q, add(1))]));
        k.handle(ToCoordinator::Call { transaction: id(1), procedure }, &mut out);
        for partition in if commit { vec![q, P] } else { vec![q] } {
            let result = if commit { Ok(Some(Vec::new())) } else { Err(Refusal::UserAbort(Failed(q, Vec::new()))) };
            let response = Response { transaction: id(1), partition, round: 0, result, after: None };
            k.handle(ToCoordinator::Owner(FromOwner::Response(response)), &mut out);
        }
        k.handle(ToCoordinator::Owner(FromOwner::Ack { transaction: id(1), partition: q }), &mut out);
        assert_eq!((k.is_idle(), k.is_idle_without(&[P].into())), (!commit, true));
        let records = [OwnerRecord::Prepared { transaction: id(1), coordinator: K, works: vec![add(1)], after: None }];
        let options = Options::new(scheme);
        let mut p = Owner::recover(P, 1, Store::new(P, 1, 5), &options, records, [], &mut Vec::new());
        assert!(!p.is_idle());
        out.clear();
        k.leave(&mut out);
        let message = out.into_iter().find_map(|output| match output {
            CoordinatorOutput::Send { to: P, message } => Some(message),
            _ => None,
        });
        deliver(&mut p, ToOwner::Coordinator(message.expect("it tells all")));
        assert_eq!((p.is_idle(), p.partition().sum()), (true, 5 + i64::from(commit)), "{}", scheme.name());
    }
}

#[test]
#[should_panic(expected = "leaves when it has decided")]
fn a_coordinator_does_not_leave_with_an_undecided_transaction() {
    let (mut k, mut out) = (Coordinator::<Program>::new(K, [P]), Vec::new());
    let procedure = Program::new(Kind::Simple(vec![(P, add(1))]));
    k.handle(ToCoordinator::Call { transaction: id(1), procedure }, &mut out);
    k.leave(&mut out);
}

/// Alone and unable to fail, it runs without undo; on top of another, with.
#[test]
fn undo_is_kept_only_where_it_may_be_needed() {
    for scheme in Scheme::ALL {
        let mut p = owner(scheme);
        let sure = |number| ToOwner::Call(Call { transaction: id(number), work: add(1), may_abort: false });
        assert_eq!(replies(&deliver(&mut p, sure(1))), [(1, Some(5))]);
        assert_eq!(p.partition().without_undo, 1);
        fragment(&mut p, K, 2, 0, add(1), true);
        assert_eq!(deliver(&mut p, sure(3)), []);
        assert_eq!(p.partition().without_undo, 1, "it waits, or is speculated");
        assert_eq!(replies(&decide(&mut p, 2, false)), [(3, Some(6))]);
        assert_eq!(p.partition().without_undo, 2, "nothing is before it any more");
        assert!(p.is_idle() && !p.wants_ticks());
    }
}

#[test]
fn under_locking_transactions_without_conflicts_proceed() {
    let mut p = owner(Scheme::Locking);
    fragment(&mut p, K, 1, 0, add(1), true);
    assert_eq!(replies(&call(&mut p, 2, vec![Op::Add(1, 1)])), [(2, Some(5))]);
    assert_eq!(call(&mut p, 3, vec![Op::Read(1), Op::Read(0)]), []);
    assert_eq!(call(&mut p, 4, vec![Op::Add(1, 1)]), [], "3 holds it while it waits");
    assert_eq!(replies(&decide(&mut p, 1, true)), [(3, Some(6)), (4, Some(6))]);
    assert!(p.is_idle());
}

/// 2 holds key 1 and waits for key 0; then 1, which holds key 0, asks for key 1.
#[test]
fn a_single_partition_transaction_restarts_in_a_deadlock_without_its_client_noticing() {
    let mut p = owner(Scheme::Locking);
    fragment(&mut p, K, 1, 0, add(1), false);
    assert_eq!(call(&mut p, 2, vec![Op::Add(1, 1), Op::Add(0, 1)]), []);
    assert_eq!(responses(&fragment(&mut p, K, 1, 1, vec![Op::Add(1, 1)], true)), [(1, true, None)]);
    assert_eq!(replies(&decide(&mut p, 1, true)), [(2, Some(6))]);
    // Where there is none, one over several partitions is refused.
    fragment(&mut p, K, 3, 0, add(1), false);
    fragment(&mut p, K, 4, 0, vec![Op::Add(1, 1)], false);
    assert_eq!(fragment(&mut p, K, 3, 1, vec![Op::Add(1, 1)], true), []);
    assert!(p.wants_ticks());
    let out = fragment(&mut p, K, 4, 1, add(1), true);
    assert_eq!(responses(&out), [(4, false, None), (3, true, None)]);
}

#[test]
fn a_transaction_that_waits_for_too_many_ticks_is_refused() {
    let mut p = owner(Scheme::Locking);
    fragment(&mut p, K, 1, 0, add(1), true);
    assert_eq!(fragment(&mut p, K, 2, 0, add(1), true), []);
    for _ in 0..3 {
        assert_eq!(deliver(&mut p, ToOwner::Tick), []);
    }
    assert_eq!(responses(&deliver(&mut p, ToOwner::Tick)), [(2, false, None)]);
    assert!(!p.wants_ticks(), "1 has voted, and waits for its decision alone");
    assert_eq!(responses(&decide(&mut p, 2, false)), []);
}

#[test]
fn a_footprint_may_name_a_key_twice() {
    let (work, mut locks) = (vec![Op::Read(0), Op::Add(0, 1)], Vec::new());
    Store::new(P, 1, 0).footprint(&work, &mut locks);
    assert_eq!(locks, [(0, LockMode::Shared), (0, LockMode::Exclusive)]);
    let mut p = owner(Scheme::Locking);
    assert_eq!(responses(&fragment(&mut p, K, 1, 0, work, true)), [(1, true, None)]);
    decide(&mut p, 1, false);
    assert!(p.is_idle());
}

/// Returns its list of steps, round by round.
struct Script(Vec<Next<Work, (), Failed>>);

impl Procedure for Script {
    type Work = Work;
    type Reply = Vec<Seen>;
    type Abort = Failed;
    type Output = ();

    /// Panics when the list is empty.
    fn next(&mut self, _: Vec<(PartitionId, Option<Vec<Seen>>)>) -> Next<Work, (), Failed> {
        self.0.remove(0)
    }
}

/// Runs a script whose fragments all succeed. Returns the outcome, and the partitions that receive a decision.
fn scripted(rounds: Vec<Next<Work, (), Failed>>) -> (Outcome<(), Failed>, Vec<(u32, bool)>) {
    let (mut coordinator, mut decided) = (Coordinator::<Script>::new(K, (0..3).map(PartitionId)), Vec::new());
    let mut messages = vec![ToCoordinator::Call { transaction: id(1), procedure: Script(rounds) }];
    let mut ended = None;
    while let Some(message) = messages.pop() {
        let mut out = Vec::new();
        coordinator.handle(message, &mut out);
        for output in out {
            match output {
                CoordinatorOutput::Send { to, message: FromCoordinator::Fragment(fragment) } => {
                    let Fragment { transaction, round, .. } = fragment;
                    let response = Response { transaction, partition: to, round, result: Ok(None), after: None };
                    messages.push(ToCoordinator::Owner(FromOwner::Response(response)));
                }
                CoordinatorOutput::Send { to, message: FromCoordinator::Decision(decision) } => {
                    decided.push((to.0, decision.commit));
                }
                CoordinatorOutput::Reply { outcome, .. } => ended = Some(outcome),
                _ => {}
            }
        }
    }
    (ended.expect("it ends"), decided)
}

#[test]
fn a_procedure_that_breaks_a_rule_is_aborted_everywhere_and_the_client_gets_the_rule() {
    let (q, nowhere, work) = (PartitionId(1), PartitionId(3), Vec::new);
    let round = |parts: &[FragmentRequest<Work>]| Next::Round(parts.to_vec());
    let two = || round(&[FragmentRequest::more(P, work()), FragmentRequest::last(q, work())]);
    let aborted = vec![(0, false), (1, false)];
    for (rounds, misuse, told) in [
        (vec![round(&[])], Misuse::EmptyRound, vec![]),
        (
            vec![round(&[FragmentRequest::last(P, work()), FragmentRequest::last(P, work())])],
            Misuse::TwoFragments(P),
            vec![],
        ),
        (
            vec![two(), round(&[FragmentRequest::last(PartitionId(2), work())])],
            Misuse::NotInFirstRound(PartitionId(2)),
            aborted.clone(),
        ),
        (vec![two(), round(&[FragmentRequest::last(q, work())])], Misuse::AfterLast(q), aborted.clone()),
        (vec![two(), Next::Done(())], Misuse::NotFinished(P), aborted.clone()),
        (
            vec![round(&[FragmentRequest::last(P, work()), FragmentRequest::last(nowhere, work())])],
            Misuse::NoSuchPartition(nowhere),
            vec![],
        ),
        (vec![], Misuse::Panicked, vec![]),
        (vec![two()], Misuse::Panicked, aborted.clone()),
        (vec![two(), round(&[FragmentRequest::last(P, work())])], Misuse::Panicked, aborted.clone()),
    ] {
        assert_eq!(scripted(rounds), (Outcome::Misuse(misuse), told));
        assert!(misuse.to_string().starts_with("the procedure "));
    }
    let committed = vec![(0, true), (1, true)];
    assert_eq!(
        scripted(vec![two(), round(&[FragmentRequest::last(P, work())]), Next::Done(())]),
        (Outcome::Committed(()), committed)
    );
    assert_eq!(scripted(vec![Next::Done(())]), (Outcome::Committed(()), vec![]));
    let gives_up = Failed(P, Vec::new());
    assert_eq!(scripted(vec![two(), Next::Abort(gives_up.clone())]), (Outcome::UserAborted(gives_up), aborted));
}

/// The answers of a coordinator to clients, in order.
fn answers(out: &[CoordinatorOutputOf<Program>]) -> Vec<(u64, bool)> {
    let answer = |output: &CoordinatorOutputOf<Program>| match output {
        CoordinatorOutput::Reply { transaction, outcome } => {
            Some((transaction.number, matches!(outcome, Outcome::Committed(_))))
        }
        _ => None,
    };
    out.iter().filter_map(answer).collect()
}

/// C depends on B and B on A. When A aborts both are void, and a late response that depends on B's first run
/// is ignored.
#[test]
fn a_response_that_depends_on_a_void_one_is_void() {
    let mut k = Coordinator::<Program>::new(K, (0..3).map(PartitionId));
    let mut deliver = |message| {
        let mut out = Vec::new();
        k.handle(message, &mut out);
        answers(&out)
    };
    for number in 1..=3 {
        let procedure = Program::new(Kind::Simple(vec![(P, add(1)), (PartitionId(1), add(1))]));
        assert_eq!(deliver(ToCoordinator::Call { transaction: id(number), procedure }), []);
    }
    let response = |number, at, after: Option<u64>| {
        let result = Ok(Some(Vec::new()));
        let response =
            Response { transaction: id(number), partition: PartitionId(at), round: 0, result, after: after.map(id) };
        ToCoordinator::Owner(FromOwner::Response(response))
    };
    for number in 1..=3u64 {
        assert_eq!(deliver(response(number, 0, (number > 1).then(|| number - 1))), []);
    }
    let failed = Err(crate::Refusal::UserAbort(Failed(PartitionId(1), Vec::new())));
    let refused = Response { transaction: id(1), partition: PartitionId(1), round: 0, result: failed, after: None };
    assert_eq!(deliver(ToCoordinator::Owner(FromOwner::Response(refused))), [(1, false)]);
    assert_eq!(deliver(response(2, 1, None)), []);
    assert_eq!(deliver(response(3, 1, Some(2))), []);
    assert_eq!(deliver(response(3, 0, Some(2))), [], "late: it rests on what 2 did before 1 aborted");
    assert_eq!(deliver(response(2, 0, None)), [(2, true)]);
    assert_eq!(deliver(response(3, 0, Some(2))), [(3, true)]);
}

#[test]
fn transactions_over_a_partition_that_is_down_are_answered_and_others_continue() {
    let mut k = Coordinator::<Program>::new(K, (0..3).map(PartitionId));
    let mut deliver = |message| {
        let mut out = Vec::new();
        k.handle(message, &mut out);
        out
    };
    let over = |partitions: &[u32]| {
        Program::new(Kind::Simple(partitions.iter().map(|&at| (PartitionId(at), add(1))).collect()))
    };
    let call =
        |number, partitions: &[u32]| ToCoordinator::Call { transaction: id(number), procedure: over(partitions) };
    deliver(call(1, &[0, 1]));
    let out = deliver(ToCoordinator::PartitionDown { partition: P, incarnation: 0 });
    let unavailable = |output: &CoordinatorOutputOf<Program>| {
        matches!(output, CoordinatorOutput::Reply { outcome: Outcome::Unavailable(P), .. })
    };
    assert!(out.iter().any(unavailable) && deliver(call(2, &[0, 1])).iter().any(unavailable));
    assert!(!deliver(call(3, &[1, 2])).iter().any(unavailable));
    let recovered = FromOwner::Recovered { partition: P, incarnation: 1, in_doubt: vec![id(1)] };
    let out = deliver(ToCoordinator::Owner(recovered));
    let abort = FromCoordinator::Decision(Decision { transaction: id(1), coordinator: K, commit: false });
    assert_eq!(out, [CoordinatorOutput::Send { to: P, message: abort }]);
    // A repeated late notice does no harm.
    assert_eq!(deliver(ToCoordinator::PartitionDown { partition: P, incarnation: 0 }), []);
    assert!(!deliver(call(4, &[0, 1])).iter().any(unavailable));
    // The message of its second incarnation arrives after the notice that this incarnation has ended.
    assert!(deliver(ToCoordinator::PartitionDown { partition: P, incarnation: 2 }).iter().any(unavailable));
    assert_eq!(
        deliver(ToCoordinator::Owner(FromOwner::Recovered { partition: P, incarnation: 2, in_doubt: vec![] })),
        []
    );
    assert!(deliver(call(5, &[0, 1])).iter().any(unavailable));
    deliver(ToCoordinator::Owner(FromOwner::Recovered { partition: P, incarnation: 3, in_doubt: vec![] }));
    assert!(!deliver(call(6, &[0, 1])).iter().any(unavailable));
}

/// It does not know which partitions are down, and holds calls back until it knows of each partition.
#[test]
fn a_restarted_coordinator_waits_for_a_message_or_notice_of_each_partition() {
    let mut k = Coordinator::<Program>::recover(K, 1, [], [P, PartitionId(1)], &mut Vec::new());
    let mut deliver = |message| {
        let mut out = Vec::new();
        k.handle(message, &mut out);
        out
    };
    let mut sent = |number, alive: Option<(PartitionId, u64)>, ended: Option<u64>| {
        let mut out = Vec::new();
        if let Some((partition, incarnation)) = alive {
            out = deliver(ToCoordinator::Owner(FromOwner::Alive { partition, incarnation }));
        }
        if let Some(incarnation) = ended {
            deliver(ToCoordinator::PartitionDown { partition: P, incarnation });
        }
        let procedure = Program::new(Kind::Simple(vec![(P, add(1)), (PartitionId(1), add(1))]));
        out.extend(deliver(ToCoordinator::Call { transaction: id(number), procedure }));
        let is_sent = |output: &&_| matches!(output, CoordinatorOutput::Send { .. });
        (out.iter().filter(is_sent).count(), out.len())
    };
    assert_eq!(sent(1, None, None), (0, 0));
    assert_eq!(sent(2, Some((PartitionId(1), 0)), None), (0, 0), "one is missing");
    assert_eq!(sent(3, Some((P, 4)), Some(3)), (6, 6), "the notice is late");
    assert_eq!(sent(4, None, Some(4)), (0, 1));
    assert_eq!(sent(5, Some((P, 4)), None), (0, 1), "its word is late");
}

/// The message of a late partition waits for its disk: the calls to other partitions do not wait for it.
#[test]
fn a_restarted_coordinator_does_not_wait_for_a_partition_that_is_late() {
    let q = PartitionId(1);
    let mut k = Coordinator::<Program>::recover(K, 1, [], [P, q], &mut Vec::new());
    let mut out = Vec::new();
    let call = |number, parts: &[PartitionId]| {
        let procedure = Program::new(Kind::Simple(parts.iter().map(|&part| (part, add(1))).collect()));
        ToCoordinator::Call { transaction: id(number), procedure }
    };
    k.handle(call(1, &[q]), &mut out);
    k.handle(call(2, &[P, q]), &mut out);
    k.handle(ToCoordinator::Owner(FromOwner::Alive { partition: q, incarnation: 0 }), &mut out);
    assert_eq!(out.len(), 0, "nothing is known of the other");
    k.handle(ToCoordinator::PartitionLate { partition: P }, &mut out);
    assert!(matches!(&out[0], CoordinatorOutput::Send { to, .. } if *to == q), "{out:?}");
    let unavailable = |output: &CoordinatorOutputOf<Program>| {
        matches!(output, CoordinatorOutput::Reply { transaction, outcome: Outcome::Unavailable(P) }
            if *transaction == id(2))
    };
    assert!(out.iter().any(unavailable), "{out:?}");
    out.clear();
    k.handle(ToCoordinator::Owner(FromOwner::Alive { partition: P, incarnation: 0 }), &mut out);
    k.handle(call(3, &[P]), &mut out);
    assert!(matches!(&out[..], [CoordinatorOutput::Send { to: P, .. }]), "{out:?}");
}

/// Transactions that have not voted are undone when their coordinator is down, and those behind them proceed;
/// voted ones wait.
#[test]
fn only_voted_transactions_of_a_coordinator_that_is_down_stay() {
    for scheme in Scheme::ALL {
        let down = |incarnation| ToOwner::CoordinatorDown { coordinator: K, incarnation };
        let mut p = owner(scheme);
        fragment(&mut p, K, 1, 0, add(1), false);
        call(&mut p, 2, add(1));
        fragment(&mut p, K, 3, 0, add(1), true);
        let out = deliver(&mut p, down(0));
        assert_eq!((replies(&out), responses(&out)), (vec![(2, Some(5))], vec![]), "{}", scheme.name());
        assert_eq!((p.partition().sum(), p.is_idle()), (21, true));
        assert_eq!(fragment(&mut p, K, 4, 0, add(1), true), [], "it was sent before that, and nobody would decide it");
        assert!(p.is_idle());
        // Its next incarnation.
        let recovered = FromCoordinator::Recovered { coordinator: K, incarnation: 1, committed: vec![] };
        let alive = FromOwner::Alive { partition: P, incarnation: 0 };
        let out = deliver(&mut p, ToOwner::Coordinator(recovered));
        assert_eq!(out, [OwnerOutput::Send { to: K, message: alive }]);
        let next = |number, last| {
            let work = Some(add(1));
            let next = Fragment { transaction: id(number), coordinator: K, incarnation: 1, round: 0, work, last };
            ToOwner::Coordinator(FromCoordinator::Fragment(next))
        };
        assert_eq!(responses(&deliver(&mut p, next(5, false))), [(5, true, None)]);
        assert_eq!(deliver(&mut p, down(0)), []);
        assert!(!p.is_idle(), "the notice is late");
        deliver(&mut p, down(1));
        assert!(p.is_idle());
        let mut p = owner(scheme);
        deliver(&mut p, next(6, true));
        call(&mut p, 7, add(1));
        assert_eq!(deliver(&mut p, down(1)), [], "it has voted");
        assert_eq!(replies(&decide(&mut p, 6, true)), [(7, Some(6))]);
        assert!(p.is_idle());
    }
}
