//! Messages that clients, coordinators and carriers must not send are answered, and do no harm.

use super::program::{Kind, Program};
use super::steps::{K, Outputs, P, add, call, decide, deliver, fragment, id, owner, replies, responses};
use super::store::{Op, Store};
use crate::{
    Call, Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorRecord, Decision, FromCoordinator, FromOwner,
    Options, Outcome, Owner, OwnerOutput, OwnerRecord, PartitionId, Refusal, Response, Scheme, ToCoordinator, ToOwner,
};

fn is_repeated(out: &Outputs, number: u64) -> bool {
    *out == [OwnerOutput::Reply { transaction: id(number), outcome: Outcome::Repeated }]
}

fn not_voted(number: u64) -> Outputs {
    let message = FromOwner::NotVoted { transaction: id(number), partition: P };
    vec![OwnerOutput::Send { to: K, message }]
}

#[test]
fn a_call_by_a_number_that_was_used_is_answered_and_not_run() {
    for scheme in Scheme::ALL {
        let mut p = owner(scheme);
        assert_eq!(replies(&call(&mut p, 2, add(1))), [(2, Some(5))]);
        fragment(&mut p, K, 3, 0, add(1), true);
        call(&mut p, 4, add(1));
        for number in [1, 2, 4] {
            assert!(is_repeated(&call(&mut p, number, add(100)), number), "{} {number}", scheme.name());
        }
        assert_eq!(replies(&decide(&mut p, 3, true)), [(4, Some(7))], "the first by this number is answered");
        assert_eq!((p.partition().sum(), p.is_idle()), (4 * 5 + 3, true));
    }
}

/// A single-partition transaction and one over several have the same number. Neither decision of the latter
/// touches the former.
#[test]
fn one_number_for_two_kinds_of_transaction_harms_neither() {
    for scheme in Scheme::ALL {
        for commit in [true, false] {
            let mut p = owner(scheme);
            fragment(&mut p, K, 1, 0, add(1), true);
            // The call first, and then the fragment, with one number.
            call(&mut p, 2, add(10));
            let mut out = fragment(&mut p, K, 2, 0, add(100), true);
            let refused = responses(&out).contains(&(2, false, None));
            assert_eq!(refused, scheme == Scheme::Locking, "{}: locks are held by number", scheme.name());
            out.extend(decide(&mut p, 1, true));
            out.extend(decide(&mut p, 2, commit && !refused));
            assert_eq!(replies(&out), [(2, Some(6))], "{}", scheme.name());
            let done = if commit && !refused { 111 } else { 11 };
            assert_eq!((p.partition().sum(), p.is_idle()), (20 + done, true), "{} {commit}", scheme.name());

            // The other way round.
            let mut p = owner(scheme);
            fragment(&mut p, K, 1, 0, add(1), true);
            let early = call(&mut p, 1, add(10));
            assert_eq!(is_repeated(&early, 1), scheme == Scheme::Locking);
            let late = decide(&mut p, 1, commit);
            let (first, done) = if commit { (6, 1) } else { (5, 0) };
            let told = if scheme == Scheme::Locking { vec![] } else { vec![(1, Some(first))] };
            assert_eq!(replies(&late), told, "{} {commit}", scheme.name());
            assert_eq!(p.partition().sum(), 20 + done + if told.is_empty() { 0 } else { 10 });
            assert!(p.is_idle());
        }
    }
}

#[test]
fn a_fragment_that_comes_twice_runs_once() {
    for scheme in Scheme::ALL {
        let mut p = owner(scheme);
        assert_eq!(responses(&fragment(&mut p, K, 1, 0, add(1), false)), [(1, true, None)]);
        assert_eq!(fragment(&mut p, K, 1, 0, add(1), false), []);
        assert_eq!(responses(&fragment(&mut p, K, 1, 1, add(1), true)), [(1, true, None)]);
        assert_eq!(fragment(&mut p, K, 1, 1, add(1), true), []);
        assert_eq!(fragment(&mut p, K, 1, 2, add(1), true), [], "it has voted");
        decide(&mut p, 1, true);
        assert_eq!(fragment(&mut p, K, 1, 0, add(1), true), [], "late");
        assert_eq!((p.partition().sum(), p.is_idle()), (22, true), "{}", scheme.name());
    }
}

#[test]
fn a_number_that_came_through_another_coordinator_is_refused_and_its_decisions_are_its_own() {
    for scheme in Scheme::ALL {
        let (mut p, other) = (owner(scheme), CoordinatorId(1));
        fragment(&mut p, K, 1, 0, add(1), true);
        let result = Err(Refusal::Repeated);
        let response = Response { transaction: id(1), partition: P, round: 0, result, after: None };
        let refused = OwnerOutput::Send { to: other, message: FromOwner::Response(response) };
        assert_eq!(fragment(&mut p, other, 1, 0, add(10), true), [refused]);
        let decision = Decision { transaction: id(1), coordinator: other, commit: false };
        deliver(&mut p, ToOwner::Coordinator(FromCoordinator::Decision(decision)));
        assert!(!p.is_idle(), "{}: it is not that coordinator's", scheme.name());
        decide(&mut p, 1, true);
        assert_eq!((p.partition().sum(), p.is_idle()), (21, true));
    }
}

#[test]
fn a_commit_without_a_vote_is_not_done_and_its_coordinator_is_notified() {
    for scheme in Scheme::ALL {
        let mut p = owner(scheme);
        fragment(&mut p, K, 1, 0, add(1), false);
        assert_eq!(decide(&mut p, 1, true), not_voted(1), "{}: it has a round to come", scheme.name());
        // It waits behind the first.
        fragment(&mut p, K, 2, 0, add(1), true);
        assert_eq!(decide(&mut p, 2, true), not_voted(2), "{}", scheme.name());
        decide(&mut p, 1, false);
        decide(&mut p, 2, false);
        assert_eq!((p.partition().sum(), p.is_idle()), (20, true), "{}", scheme.name());
    }
    // One that failed on top of another has voted to abort.
    let mut p = owner(Scheme::Speculation);
    fragment(&mut p, K, 1, 0, add(1), true);
    fragment(&mut p, K, 2, 0, vec![Op::Fail], true);
    assert_eq!(decide(&mut p, 2, true), not_voted(2));
    let mut k = Coordinator::<Program>::new(K, [P, PartitionId(1)]);
    let mut out = Vec::new();
    let message = FromOwner::NotVoted { transaction: id(2), partition: P };
    k.handle(ToCoordinator::Owner(message), &mut out);
    assert_eq!(out, [CoordinatorOutput::Broken { transaction: id(2), partition: P }]);
}

#[test]
fn recorded_work_is_not_done_again() {
    for scheme in Scheme::ALL {
        let records = [
            OwnerRecord::Executed { transaction: id(3), work: add(10), after: None },
            OwnerRecord::Prepared { transaction: id(2), coordinator: K, works: vec![add(100)], after: None },
            OwnerRecord::Decided { transaction: id(2), commit: true },
        ];
        let mut p = Owner::recover(P, 1, Store::new(P, 1, 5), &Options::new(scheme), records, [], &mut Vec::new());
        assert!(is_repeated(&call(&mut p, 3, add(10)), 3));
        assert_eq!(fragment(&mut p, K, 2, 0, add(100), true), []);
        assert_eq!((p.partition().sum(), p.is_idle()), (115, true));
    }
}

/// A record of a single-partition transaction stays when one over several by the same number is prepared, or aborts.
#[test]
fn records_of_one_number_for_two_kinds_of_transaction_are_distinguished() {
    let records = [
        OwnerRecord::Prepared { transaction: id(1), coordinator: K, works: vec![add(1)], after: None },
        OwnerRecord::Executed { transaction: id(2), work: add(10), after: Some(id(1)) },
        OwnerRecord::Prepared { transaction: id(2), coordinator: K, works: vec![add(100)], after: Some(id(1)) },
        OwnerRecord::Decided { transaction: id(2), commit: false },
        OwnerRecord::Decided { transaction: id(1), commit: true },
    ];
    let options = Options::new(Scheme::Speculation);
    let p = Owner::recover(P, 1, Store::new(P, 1, 5), &options, records, [], &mut Vec::new());
    assert_eq!((p.partition().sum(), p.is_idle()), (16, true));
}

#[test]
fn a_coordinator_answers_a_repeated_call_and_continues_with_the_first() {
    let program = || Program::new(Kind::Simple(vec![(P, add(1)), (PartitionId(1), add(1))]));
    let mut k = Coordinator::<Program>::new(K, [P, PartitionId(1)]);
    let mut deliver = |message| {
        let mut out = Vec::new();
        k.handle(message, &mut out);
        out
    };
    let call = |number| ToCoordinator::Call { transaction: id(number), procedure: program() };
    let repeated = |number| [CoordinatorOutput::Reply { transaction: id(number), outcome: Outcome::Repeated }];
    assert_eq!(deliver(call(2)).len(), 2);
    assert_eq!(deliver(call(2)), repeated(2));
    assert_eq!(deliver(call(1)), repeated(1));
    for at in [P, PartitionId(1)] {
        let result = Ok(Some(Vec::new()));
        let response = Response { transaction: id(2), partition: at, round: 0, result, after: None };
        let out = deliver(ToCoordinator::Owner(FromOwner::Response(response)));
        let is_commit = |output: &CoordinatorOutput<_, _, _>| {
            matches!(output, CoordinatorOutput::Reply { outcome: Outcome::Committed(_), .. })
        };
        assert_eq!(out.iter().any(is_commit), at != P);
    }
    assert_eq!(deliver(call(2)), repeated(2), "late");
    // After a crash as well.
    let record = CoordinatorRecord::Committed { transaction: id(2), participants: vec![P] };
    let mut k = Coordinator::<Program>::recover(K, 1, [record], [P], &mut Vec::new());
    let mut out = Vec::new();
    k.handle(call(2), &mut out);
    assert_eq!(out, repeated(2));
}

/// A client wrongly says that its call cannot fail. It is notified, the owner continues, and half of the call is
/// missing.
#[test]
fn a_call_that_fails_although_it_said_that_it_cannot_is_a_user_abort() {
    for scheme in Scheme::ALL {
        let mut p = owner(scheme);
        let sure = |number| {
            let work = vec![Op::Add(0, 100), Op::Require(1, 1000), Op::Add(1, 100)];
            ToOwner::Call(Call { transaction: id(number), work, may_abort: false })
        };
        assert_eq!(replies(&deliver(&mut p, sure(1))), [(1, None)]);
        fragment(&mut p, K, 2, 0, add(1), true);
        assert_eq!(deliver(&mut p, sure(3)), []);
        assert_eq!(replies(&decide(&mut p, 2, true)), [(3, None)]);
        assert_eq!((p.partition().sum(), p.partition().without_undo, p.is_idle()), (21, 0, true), "{}", scheme.name());
    }
}
