//! Procedures written to be misunderstood, each in every division of its operations over two pieces, by the
//! replay, and with what its plan must say.

use std::collections::BTreeSet;

use seriatim_base::Rng;
use seriatim_procedure::analysis::late_failures;
use seriatim_procedure::ir::Procedure;
use seriatim_procedure::plan::{FailureKind, Known, Plan};

use super::support::build::{Build, procedure};
use super::{does_the_same, passes, pieces, planned, replay};

/// A procedure that holds what is to hold of every one.
fn sound(body: impl FnOnce(&mut Build)) -> (Procedure, Plan) {
    let built = procedure("nasty", &["a", "b", "list"], body);
    let plan = planned(&built);
    let rng = &mut Rng::from_seed(11);
    for _ in 0..50 {
        replay::check(&built, &plan, rng);
    }
    for mask in 0..1_u64 << plan.operations.len() {
        let of: Vec<u64> = (0..plan.operations.len()).map(|at| mask >> at & 1).collect();
        for _ in 0..5 {
            does_the_same(&built, &passes(&built, &pieces(&plan, &of)), rng);
        }
    }
    (built, plan)
}

/// The condition of its aborts.
fn aborts(plan: &Plan) -> Vec<BTreeSet<usize>> {
    let aborts = plan.failures.iter().filter(|failure| failure.kind == FailureKind::UserAbort);
    aborts.map(|failure| failure.decided_by.clone()).collect()
}

/// The verdict on the operations that would run after the first piece.
fn refused(procedure: &Procedure, plan: &Plan, late: &[usize]) -> String {
    let mut passes = vec![0; procedure.steps];
    late.iter().for_each(|at| passes[plan.operations[*at].step] = 1);
    late_failures(procedure, &passes).first().map_or_else(String::new, ToString::to_string)
}

fn count(b: &mut Build, table: &str, key: &str) {
    b.update("", table, key, "counted", |b| b.assign("counted.w", "+=", "1"));
}

#[test]
fn the_last_before_a_break_decides_an_abort() {
    let (built, plan) = sound(|b| {
        count(b, "two", "a");
        b.let_mut("last", "0");
        b.for_("id", "list.iter()", |b| {
            b.get("found", "one", "id");
            b.if_("found.is_none()", |b| b.break_(), |_| {});
            b.assign("last", "=", "id");
        });
        b.if_("last == 0", |b| b.abort(&b.next_step().to_string()), |_| {});
        b.return_("(last,)");
    });
    assert_eq!(aborts(&plan), [BTreeSet::from([1])]);
    assert_eq!(refused(&built, &plan, &[1]), "nasty:10:1: an abort, decided by #1 in a later piece");
}

#[test]
fn a_counter_before_a_break_is_a_key() {
    let (_, plan) = sound(|b| {
        b.let_mut("n", "0");
        b.for_("id", "list.iter()", |b| {
            b.assign("n", "+=", "1");
            b.get("found", "one", "id");
            b.if_("found.is_none()", |b| b.break_(), |_| {});
        });
        b.get("other", "two", "n");
        b.return_("(n,)");
    });
    assert_eq!(plan.operations[1].known, Known::After([0].into(), None));
}

#[test]
fn a_return_in_a_loop_decides_over_what_came_before_it_and_what_follows() {
    let (built, plan) = sound(|b| {
        b.let_mut("n", "0");
        b.for_("id", "list.iter()", |b| {
            b.assign("n", "+=", "id");
            b.require("row", "one", "id");
            b.if_("row.w == 2", |b| b.return_("(n,)"), |_| {});
        });
        b.get("other", "three", "n");
        count(b, "two", "a");
        b.return_("(n,)");
    });
    assert_eq!(plan.operations[1].key_from, [0].into());
    assert_eq!(plan.operations[2].control_from, [0].into());
    assert!(!refused(&built, &plan, &[0, 2]).is_empty());
}

#[test]
fn a_break_out_of_two_loops_by_a_flag() {
    let (_, plan) = sound(|b| {
        b.let_mut("stop", "0");
        b.let_mut("n", "0");
        b.for_("x", "list.iter()", |b| {
            b.for_("y", "0..3", |b| {
                b.get("found", "one", "y");
                b.if_(
                    "found.is_none()",
                    |b| {
                        b.assign("stop", "=", "1");
                        b.break_();
                    },
                    |_| {},
                );
                b.assign("n", "+=", "x");
            });
            b.if_("stop == 1", |b| b.break_(), |_| {});
            count(b, "two", "x");
        });
        b.if_("n == 2", |b| b.abort(&b.next_step().to_string()), |_| {});
        b.return_("(n,)");
    });
    assert_eq!(plan.operations[1].control_from, [0].into());
    assert_eq!(aborts(&plan), [BTreeSet::from([0])]);
}

#[test]
fn a_break_in_a_nested_loop_under_a_branch() {
    let (_, plan) = sound(|b| {
        b.let_mut("n", "0");
        b.require("row", "one", "a");
        b.for_("x", "list.iter()", |b| {
            b.for_("y", "list.iter()", |b| {
                b.if_("x == y", |b| b.if_("row.w < y", |b| b.break_(), |b| b.continue_()), |_| {});
                b.assign("n", "+=", "1");
            });
        });
        b.update("", "two", "n", "counted", |b| b.assign("counted.v", "-=", "1"));
        b.return_("(n,)");
    });
    assert_eq!(plan.operations[1].key_from, [0].into());
    assert_eq!(plan.operations[1].accesses[0].commutes.iter().count(), 0);
}

#[test]
fn a_break_before_a_return_of_the_same_loop_decides_whether_that_is_reached() {
    let (_, plan) = sound(|b| {
        b.for_("x", "list.iter()", |b| {
            b.get("found", "one", "x");
            b.if_("found.is_none()", |b| b.break_(), |_| {});
            b.if_("x == a", |b| b.return_("(x,)"), |_| {});
        });
        count(b, "two", "b");
        b.return_("(0,)");
    });
    assert_eq!(plan.operations[1].control_from, [0].into());
    assert!(plan.operations[1].conditional);
}

#[test]
fn an_accumulator_handed_from_loop_to_loop() {
    let (_, plan) = sound(|b| {
        b.let_mut("all", "Vec::new()");
        b.each("row", "one", "", |b| {
            b.if_("row.w == 2", |b| b.break_(), |_| {});
            b.push("all", "a");
        });
        b.let_mut("n", "0");
        b.for_("x", "all.iter()", |b| {
            b.assign("n", "+=", "x");
            b.if_("n >= 2", |b| b.break_(), |_| {});
        });
        b.get("found", "two", "n");
        b.let_else("Some(last)", "found", |b| b.abort(&b.next_step().to_string()));
        b.return_("(last.v,)");
    });
    assert_eq!(plan.operations[1].key_from, [0].into(), "how many there are, not what is in them");
    assert_eq!(aborts(&plan), [BTreeSet::from([1])]);
}

#[test]
fn a_loop_that_only_counts_rows() {
    let (built, plan) = sound(|b| {
        count(b, "two", "a");
        b.let_mut("n", "0");
        b.each("row", "one", "", |b| b.assign("n", "+=", "1"));
        b.if_("n == 1", |b| b.abort(&b.next_step().to_string()), |_| {});
        b.return_("(n,)");
    });
    assert_eq!(aborts(&plan), [BTreeSet::from([1])]);
    assert!(!refused(&built, &plan, &[1]).is_empty());
}

#[test]
fn a_search_as_a_while_would_have_it() {
    let (_, plan) = sound(|b| {
        b.let_mut("at", "a");
        b.for_("step", "0..3", |b| {
            b.get("found", "one", "at");
            b.let_else("Some(row)", "found", |b| b.break_());
            b.if_("row.v == at", |b| b.break_(), |_| {});
            b.assign("at", "=", "row.v");
        });
        b.if_("at == b", |b| b.abort(&b.next_step().to_string()), |_| {});
        b.get("other", "two", "at");
        b.return_("(at,)");
    });
    assert_eq!(plan.operations[0].key_from, [0].into());
    assert_eq!(plan.operations[1].key_from, [0].into());
    assert_eq!(aborts(&plan), [BTreeSet::from([0])]);
}

#[test]
fn a_variable_that_shadows_another_and_one_that_does_not_outlive_its_iteration() {
    let (_, plan) = sound(|b| {
        b.let_mut("n", "0");
        b.for_("x", "list.iter()", |b| {
            b.let_mut("inner", "x");
            b.get("found", "one", "x");
            b.if_("found.is_none()", |b| b.break_(), |_| {});
            b.assign("inner", "+=", "1");
            b.get("other", "two", "inner");
            b.match_("other", "Some(row)", |b| b.assign("n", "+=", "row.v"), |b| b.continue_());
            b.let_("n", "inner");
            b.get("third", "three", "n");
        });
        b.return_("(a,)");
    });
    assert!(plan.operations[1].key_from.is_empty(), "an operation that reads it is in its iteration");
    assert_eq!(plan.operations[1].control_from, [0].into());
    assert!(plan.operations[2].key_from.is_empty());
    assert_eq!(plan.operations[2].control_from, [0, 1].into());
}

#[test]
fn an_abort_after_a_loop_that_has_nothing_to_do_with_it() {
    let (built, plan) = sound(|b| {
        b.delete_if("gone", "two", "b");
        b.if_(
            "gone",
            |b| {
                b.each("row", "three", "", |b| {
                    b.get("found", "three", "b");
                    b.if_("found.is_none()", |b| b.break_(), |_| {});
                });
            },
            |_| {},
        );
        b.if_("b == 1", |b| b.abort(&b.next_step().to_string()), |_| {});
        b.return_("(a, b)");
    });
    assert_eq!(aborts(&plan), [BTreeSet::new()]);
    // The arguments decide it, so it runs first although it stands last.
    assert_eq!(refused(&built, &plan, &[1, 2]), "");
    assert!(passes(&built, &pieces(&plan, &[0, 1, 1])).contains(&1));
}

#[test]
fn the_else_of_a_let_with_two_ways_out_of_a_loop() {
    sound(|b| {
        b.let_mut("n", "0");
        b.require("row", "one", "a");
        b.for_("x", "list.iter()", |b| {
            b.get("found", "two", "x");
            b.let_else("Some(there)", "found", |b| {
                b.get("other", "three", "x");
                b.if_("other.is_none()", |b| b.break_(), |b| b.continue_());
            });
            b.assign("n", "+=", "there.v");
        });
        count(b, "two", "b");
        b.get("last", "three", "n");
        b.match_("last", "Some(end)", |b| b.return_("(end.v, n)"), |b| b.return_("(row.v, n)"));
    });
}

#[test]
fn a_loop_that_is_always_left_at_once() {
    let (_, plan) = sound(|b| {
        b.let_mut("n", "0");
        b.each("row", "one", "", |b| {
            b.assign("n", "=", "row.v");
            b.break_();
        });
        b.each("row", "two", "", |b| b.return_("(n,)"));
        b.get("found", "three", "n");
        b.if_("found.is_none()", |b| b.abort(&b.next_step().to_string()), |_| {});
        b.return_("(n,)");
    });
    assert_eq!(plan.operations[2].key_from, [0].into());
    assert_eq!(plan.operations[2].control_from, [1].into());
    assert_eq!(aborts(&plan), [BTreeSet::from([1, 2])]);
}

#[test]
fn a_pair_of_a_row_and_something_else_is_taken_apart() {
    let (_, plan) = sound(|b| {
        b.all("rows", "one", "");
        b.let_mut("n", "0");
        b.for_("(at, row)", "rows.iter().enumerate()", |b| {
            b.let_("(one, two)", "(row, at.into())");
            b.assign("n", "+=", "one.w + two");
        });
        b.return_("(n,)");
    });
    let names = plan.operations[0].accesses[0].reads.names(&plan.tables[0].columns).to_string();
    assert_eq!(names, "w", "a position is no row");
}

#[test]
fn a_column_is_one_of_the_row_and_not_of_what_it_is_paired_with() {
    let built = procedure("nasty", &["lines"], |b| {
        b.all("rows", "one", "");
        b.let_mut("n", "0");
        b.for_("(row, line)", "rows.iter().zip(lines.iter())", |b| b.assign("n", "+=", "row.w * line.quantity"));
        b.return_("(n,)");
    });
    planned(&built);
}

#[test]
fn the_body_of_an_update_ends_at_its_end_and_leaves_its_own_loops_only() {
    let refused = |body: fn(&mut Build)| {
        let built = procedure("nasty", &["a", "b", "list"], |b| {
            b.let_mut("n", "0");
            b.for_("x", "list.iter()", |b| {
                b.update("", "one", "x", "row", |b| {
                    b.assign("row.w", "+=", "1");
                    body(b);
                });
                b.get("found", "two", "n");
            });
            b.return_("(n,)");
        });
        seriatim_procedure::analysis::plan(&built, &super::program::schema()).err().map(|found| found.to_string())
    };
    let problem =
        "nasty:3:1: procedure `nasty`: the intermediate representation is broken: the body of an update is not pure";
    let bodies: [fn(&mut Build); 3] = [
        |b| b.break_(),
        |b| b.continue_(),
        |b| {
            b.if_("row.v == 0", |b| b.yield_("row.w"), |_| {});
            b.assign("row.w", "+=", "1");
        },
    ];
    for body in bodies {
        assert_eq!(refused(body).as_deref(), Some(problem));
    }
    assert_eq!(refused(|b| b.for_("y", "0..3", |b| b.if_("y == 1", |b| b.break_(), |_| {}))), None);
}
