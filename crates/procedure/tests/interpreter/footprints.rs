//! Footprints: the keys that the arguments determine.

use seriatim_procedure::footprint::{KnownKeys, footprint};
use seriatim_procedure::ir::*;
use seriatim_procedure::{Data, Value};

use crate::build::*;

/// The keys that a footprint visits, in order; none if it ended early.
fn keys(procedure: &Procedure, arguments: &Value) -> Option<Vec<i128>> {
    let mut keys = Vec::new();
    let is_whole = footprint(procedure, arguments, &mut |_, known| {
        match known {
            Some(KnownKeys::One(key)) => match key[..] {
                [Value::Integer(key, _)] => keys.push(key),
                _ => panic!("a key of one number: {key:?}"),
            },
            other => panic!("the arguments determine each key: {other:?}"),
        }
        Ok(())
    });
    is_whole.then_some(keys)
}

/// A row decides whether an iteration ends before its last step. Then the loop goes on, or the procedure behind it.
#[test]
fn what_comes_after_a_jump_that_may_happen_is_visited() {
    let jumps = [StepKind::Continue, StepKind::Break];
    let exits = [StepKind::Break, StepKind::Return(int(0)), StepKind::Abort(int(0))];
    for jump in &jumps {
        for exit in &exits {
            for nested in [false, true] {
                let ends = step(exit.clone());
                let ends = if nested { if_(literal(true), vec![ends], vec![]) } else { ends };
                let body = vec![
                    get(bind(1), 0, vec![int(0)]),
                    if_(method("is_some", vec![var(1)]), vec![step(jump.clone())], vec![]),
                    get(bind(1), 0, vec![var(2)]),
                    ends,
                ];
                let steps = vec![for_(bind(2), var(0), body), get(bind(1), 0, vec![int(9)]), return_(int(1))];
                let procedure = procedure("p", 1, &["list", "row", "i"], &["t"], steps);
                let found = keys(&procedure, &vec![1, 2, 3].to_value()).expect("nothing fails");
                assert_eq!(found, [0, 1, 0, 2, 0, 3, 9], "{jump:?} {exit:?}, nested: {nested}");
            }
        }
    }
}

/// A jump that certainly happens, or does not, ends what it ends.
#[test]
fn what_comes_after_a_jump_that_happens_is_not_visited() {
    let is_two = || binary(var(2), BinaryOperator::Equal, int(2));
    for (exit, wanted) in
        [(StepKind::Break, vec![1, 9]), (StepKind::Continue, vec![1, 3, 9]), (StepKind::Return(int(0)), vec![1])]
    {
        let body = vec![if_(is_two(), vec![step(exit)], vec![]), get(bind(1), 0, vec![var(2)])];
        let steps = vec![for_(bind(2), var(0), body), get(bind(1), 0, vec![int(9)]), return_(int(1))];
        let procedure = procedure("p", 1, &["list", "row", "i"], &["t"], steps);
        assert_eq!(keys(&procedure, &vec![1, 2, 3].to_value()), Some(wanted));
    }
}
