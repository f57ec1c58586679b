//! Procedures by partition, and what is known of their keys before they run.

mod support;

use expect_test::expect_file;
use seriatim_procedure::analysis::{Schema, fragments, plan};
use seriatim_procedure::ir::Procedure;
use seriatim_procedure::plan::TransactionClass;
use seriatim_procedure::show;
use support::build::{Build, procedure};
use support::{table, tpcc};

fn schema() -> Schema {
    let account = table("account", "branch:u16 id:u32 sum:money", &["branch", "id"]).finish().expect("valid");
    let entry = table("entry", "branch:u16 id:u32 sum:money", &["branch", "id"]).finish().expect("valid");
    let rate = table("rate", "code:u16 value:money", &["code"]).replicated().finish().expect("valid");
    Schema::new([account, entry, rate])
}

fn class(body: impl FnOnce(&mut Build)) -> (TransactionClass, String) {
    let found = fragments(&plan(&procedure("p", &["a", "b", "list"], body), &schema()).expect("accepted"), &schema());
    (found.class, found.reason)
}

fn add(b: &mut Build, key: &str, value: &str) {
    b.update("", "account", key, "target", |b| b.assign("target.sum", "+=", value));
}

#[test]
fn one_known_partition_is_single() {
    let (found, _) = class(|b| {
        add(b, "a, 1", "1");
        b.require("row", "account", "a, 2");
        b.return_("row.sum");
    });
    assert_eq!(found, TransactionClass::Single);
}

#[test]
fn two_known_partitions_that_do_not_need_each_other_are_simple() {
    let (found, reason) = class(|b| {
        add(b, "a, 1", "1");
        add(b, "b, 1", "1");
        b.return_("1");
    });
    assert_eq!((found, reason.as_str()), (TransactionClass::Simple, "at a and b, none needs another"));
}

#[test]
fn two_values_may_name_one_partition_and_what_may_share_a_row_there_keeps_its_order() {
    let transfer = procedure("p", &["a", "b", "list"], |b| {
        b.update("left", "account", "a, 1", "source", |b| {
            b.assign("source.sum", "-=", "1");
            b.yield_("source.sum");
        });
        add(b, "b, 1", "1");
        b.return_("left");
    });
    let found = fragments(&plan(&transfer, &schema()).expect("accepted"), &schema());
    assert_eq!((found.class, &found.fragments[0].meets[..]), (TransactionClass::Simple, &[1][..]));
    let text = found.to_string();
    assert!(text.contains("round 0 at a: #0; where it is b too, one in order"), "{text}");
    assert!(text.contains("round 0 at b: #1; where it is a too, one in order"), "{text}");
    // Additions commute: they may run in any order where they are in one partition.
    let add_both = procedure("p", &["a", "b", "list"], |b| {
        add(b, "a, 1", "1");
        add(b, "b, 1", "1");
        b.return_("1");
    });
    let found = fragments(&plan(&add_both, &schema()).expect("accepted"), &schema());
    assert!(found.fragments.iter().all(|fragment| fragment.meets.is_empty()), "{found}");
    // One after another that waits for a result waits too.
    let later = procedure("p", &["a", "b", "list"], |b| {
        b.require("row", "account", "a, 1");
        b.update("", "account", "b, 1", "target", |b| b.assign("target.sum", "=", "row.sum"));
        b.require("again", "account", "a, 2");
        b.return_("again.sum");
    });
    let found = fragments(&plan(&later, &schema()).expect("accepted"), &schema());
    let rounds: Vec<usize> = found.fragments.iter().map(|fragment| fragment.round).collect();
    assert_eq!(rounds, [0, 1, 1], "{found}");
}

#[test]
fn undo_is_kept_where_something_may_be_written_when_it_fails() {
    let undo = |body: &dyn Fn(&mut Build)| {
        let found =
            fragments(&plan(&procedure("p", &["a", "b", "list"], body), &schema()).expect("accepted"), &schema());
        (found.fails, found.undo)
    };
    let set =
        |b: &mut Build, key: &str| b.update_if("", "account", key, "target", |b| b.assign("target.sum", "=", "1"));
    assert_eq!(undo(&|b| b.return_("1")), (false, false));
    let only_writes = |b: &mut Build| {
        set(b, "a, 1");
        b.return_("1");
    };
    assert_eq!(undo(&only_writes), (false, false), "a writer that cannot fail");
    let only_reads = |b: &mut Build| {
        b.require("row", "account", "a, 1");
        b.return_("row.sum");
    };
    assert_eq!(undo(&only_reads), (true, false), "nothing is written");
    let fails_first = |b: &mut Build| {
        b.require("row", "account", "a, 1");
        set(b, "a, 2");
        b.return_("row.sum");
    };
    assert_eq!(undo(&fails_first), (true, false), "the writer comes after all that can fail");
    let fails_later = |b: &mut Build| {
        set(b, "a, 2");
        b.require("row", "account", "a, 1");
        b.return_("row.sum");
    };
    assert_eq!(undo(&fails_later), (true, true));
    let elsewhere = |b: &mut Build| {
        b.require("row", "account", "a, 1");
        set(b, "b, 2");
        b.return_("row.sum");
    };
    assert_eq!(undo(&elsewhere), (true, true), "the other partition does not wait");
    let repeated = |b: &mut Build| {
        b.for_("x", "0..2", |b| {
            b.require("row", "account", "a, 1");
            set(b, "a, 2");
        });
        b.return_("1");
    };
    assert_eq!(undo(&repeated), (true, true), "in its second iteration");
    let refused = |b: &mut Build| {
        b.if_("a == 0", |b| b.abort("1"), |_| {});
        set(b, "a, 2");
        b.return_("1");
    };
    assert_eq!(undo(&refused), (true, false), "the arguments decide first");
}

#[test]
fn a_partition_for_each_element_of_an_argument_is_simple() {
    let (found, _) = class(|b| {
        b.for_("x", "list", |b| add(b, "x, 1", "1"));
        b.return_("1");
    });
    assert_eq!(found, TransactionClass::Simple);
}

#[test]
fn a_result_that_goes_to_another_partition_takes_a_round() {
    let (found, reason) = class(|b| {
        b.require("row", "account", "a, 1");
        add(b, "b, 1", "row.sum");
        b.return_("1");
    });
    assert_eq!((found, reason.as_str()), (TransactionClass::General { rounds: 2 }, "#1 at b needs #0 at a"));
}

#[test]
fn a_partition_that_is_looked_up_takes_a_round() {
    let (found, reason) = class(|b| {
        b.require("row", "account", "a, 1");
        add(b, "row.branch, 2", "1");
        b.return_("1");
    });
    assert_eq!(found, TransactionClass::Single, "the row's branch is the one of its key: {reason}");
    let (found, _) = class(|b| {
        b.require("row", "account", "a, 1");
        add(b, "row.sum, 1", "1");
        b.return_("1");
    });
    assert_eq!(found, TransactionClass::General { rounds: 2 });
}

#[test]
fn a_variable_that_is_bound_in_two_branches_is_no_symbol() {
    let mut built = procedure("p", &["a", "b", "list"], |b| {
        b.declare("row");
        b.if_("a < 3", |b| b.require("row", "account", "a, 1"), |b| b.require("row", "account", "b, 1"));
        add(b, "row.branch, 2", "1");
        b.return_("1");
    });
    // As a front end may have it for `let row = if …`.
    built.variables.iter_mut().for_each(|variable| variable.mutable = false);
    let plan = plan(&built, &schema()).expect("accepted");
    assert_eq!(plan.operations[2].partition.as_ref().map(ToString::to_string).as_deref(), Some("row.branch"));
    assert_eq!(plan.operations[2].partition.as_ref().and_then(|symbol| symbol.operation()), None);
    assert_eq!(plan.operations[2].key_from, [0, 1].into());
}

#[test]
fn a_loop_that_goes_back_and_forth_has_no_bound() {
    let (found, _) = class(|b| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| {
            b.require("one", "account", "a, n");
            b.require("two", "account", "b, one.sum");
            b.assign("n", "=", "two.sum");
        });
        b.return_("n");
    });
    assert_eq!(found, TransactionClass::General { rounds: 0 });
}

#[test]
fn a_sum_over_partitions_is_simple_and_one_that_each_uses_is_not() {
    let (found, _) = class(|b| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| {
            b.require("row", "account", "x, 1");
            b.assign("n", "+=", "row.sum");
        });
        b.return_("n");
    });
    assert_eq!(found, TransactionClass::Simple);
    let (found, _) = class(|b| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| {
            b.update("sum", "account", "x, 1", "row", |b| {
                b.assign("row.sum", "+=", "n");
                b.yield_("row.sum");
            });
            b.assign("n", "=", "sum");
        });
        b.return_("n");
    });
    assert_eq!(found, TransactionClass::General { rounds: 0 });
}

#[test]
fn results_of_an_earlier_iteration_in_another_partition_need_another_round() {
    let general = |rounds| TransactionClass::General { rounds };
    let write = |b: &mut Build, key: &str, value: &str| {
        b.update("", "entry", key, "target", |b| b.assign("target.sum", "+=", value));
    };
    // Reads a row, adds what was read before to one of another table, or of the same.
    let carry = |b: &mut Build, partition: &str, table: &str| {
        b.require("row", "account", &format!("{partition}, 1"));
        b.update("", table, &format!("{partition}, 2"), "target", |b| b.assign("target.sum", "+=", "n"));
        b.assign("n", "=", "row.sum");
    };
    let (found, reason) = class(|b| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| carry(b, "x", "entry"));
        b.return_("n");
    });
    assert_eq!((found, reason.as_str()), (general(2), "#1 at x needs #0 at x of an earlier iteration"));
    let of = |body: &dyn Fn(&mut Build)| class(body).0;
    let same = |b: &mut Build| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| carry(b, "x", "account"));
        b.return_("n");
    };
    assert_eq!(of(&same), general(0), "what is written is read in the next iteration");
    let anew = |b: &mut Build| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| {
            b.require("row", "account", "x, 1");
            b.assign("n", "=", "row.sum");
            write(b, "x, 2", "n");
        });
        b.return_("n");
    };
    assert_eq!(of(&anew), TransactionClass::Simple, "assigned in each iteration before it is used");
    let perhaps_anew = |b: &mut Build| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| {
            b.require("row", "account", "x, 1");
            b.if_("row.sum > 0", |b| b.assign("n", "=", "row.sum"), |_| {});
            write(b, "x, 2", "n");
        });
        b.return_("n");
    };
    assert_eq!(of(&perhaps_anew), general(2));
    let in_one_iteration = |b: &mut Build| {
        b.for_("x", "list", |b| {
            b.let_mut("n", "0");
            b.for_("y", "0..3", |b| carry(b, "x", "entry"));
        });
        b.return_("1");
    };
    assert_eq!(of(&in_one_iteration), TransactionClass::Simple, "carried by a loop in one partition");
    let beyond_it = |b: &mut Build| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| b.for_("y", "0..3", |b| carry(b, "x", "entry")));
        b.return_("n");
    };
    assert_eq!(of(&beyond_it), general(2));
}

#[test]
fn a_partition_that_is_computed_is_another_in_each_iteration() {
    let rounds = |inside: bool| {
        let (found, _) = class(|b| {
            b.let_mut("n", "0");
            if !inside {
                b.let_("at", "a + 1");
            }
            b.for_("x", "list", |b| {
                if inside {
                    b.let_("at", "x + 1");
                }
                b.require("row", "account", "at, 1");
                b.update("", "entry", "at, 2", "target", |b| b.assign("target.sum", "+=", "n"));
                b.assign("n", "=", "row.sum");
            });
            b.return_("n");
        });
        found
    };
    assert_eq!(rounds(true), TransactionClass::General { rounds: 2 });
    assert_eq!(rounds(false), TransactionClass::General { rounds: 1 });
}

#[test]
fn an_exit_ends_later_iterations_wherever_they_are() {
    let leave = |b: &mut Build| {
        b.require("row", "account", "x, 1");
        b.if_("row.sum == 0", |b| b.break_(), |_| {});
        b.update("", "entry", "x, 2", "target", |b| b.assign("target.sum", "+=", "1"));
    };
    let (found, _) = class(|b| {
        b.for_("x", "list", leave);
        b.return_("1");
    });
    assert_eq!(found, TransactionClass::General { rounds: 0 });
    let (found, _) = class(|b| {
        b.for_("x", "list", |b| b.for_("y", "0..3", leave));
        b.return_("1");
    });
    assert_eq!(found, TransactionClass::Simple, "all iterations of that loop are in one partition");
}

#[test]
fn results_of_an_earlier_iteration_are_followed_through_replicated_tables() {
    let add = |b: &mut Build, value: &str| {
        b.update("", "entry", "x, 2", "target", |b| b.assign("target.sum", "+=", value));
    };
    let (before, _) = class(|b| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| {
            b.require("rate", "rate", "n");
            add(b, "rate.value");
            b.require("row", "account", "x, 1");
            b.assign("n", "=", "row.sum");
        });
        b.return_("n");
    });
    let (after, _) = class(|b| {
        b.let_mut("n", "0");
        b.for_("x", "list", |b| {
            add(b, "n");
            b.require("row", "account", "x, 1");
            b.require("rate", "rate", "row.sum");
            b.assign("n", "=", "rate.value");
        });
        b.return_("n");
    });
    assert_eq!([before, after], [TransactionClass::General { rounds: 2 }; 2]);
}

#[test]
fn replicated_tables_are_read_where_they_are_needed() {
    let (found, _) = class(|b| {
        b.require("rate", "rate", "7");
        add(b, "a, 1", "rate.value");
        add(b, "b, 1", "rate.value");
        b.return_("1");
    });
    assert_eq!(found, TransactionClass::Simple);
}

#[test]
fn replicated_tables_are_changed_everywhere_and_read_there_in_order() {
    let set = |b: &mut Build| b.update("", "rate", "7", "target", |b| b.assign("target.value", "=", "a"));
    let of = |body: &dyn Fn(&mut Build)| {
        fragments(&plan(&procedure("p", &["a", "b", "list"], body), &schema()).expect("accepted"), &schema())
    };
    let alone = of(&|b| {
        set(b);
        b.return_("1");
    });
    assert_eq!((alone.class, alone.fragments[0].everywhere), (TransactionClass::Simple, true), "{alone}");
    assert!(alone.to_string().contains("round 0 at every partition: #0"), "{alone}");
    // It needs a row of one partition; what is written where it is read is read there.
    let later = of(&|b| {
        b.require("row", "account", "a, 1");
        b.update("", "rate", "7", "target", |b| b.assign("target.value", "=", "row.sum"));
        b.require("rate", "rate", "7");
        add(b, "b, 1", "rate.value");
        b.return_("1");
    });
    assert_eq!(later.class, TransactionClass::General { rounds: 2 });
    assert_eq!(later.reason, "#1 at every partition needs #0 at a");
    let rounds: Vec<_> = later.fragments.iter().map(|at| (at.round, at.everywhere, &at.operations[..])).collect();
    assert_eq!(rounds, [(0, false, &[0][..]), (1, true, &[1, 2]), (1, false, &[3])], "{later}");
    assert!(later.replicated.is_empty(), "{later}");
}

fn shown(procedure: &Procedure) -> String {
    let plan = plan(procedure, &tpcc::schema()).expect("accepted");
    let fragments = fragments(&plan, &tpcc::schema());
    assert_eq!(show::procedure(&plan, &fragments), format!("{plan}\n{fragments}\n{}", plan.footprint()));
    format!("{fragments}{}", plan.footprint())
}

#[test]
fn tpcc_by_warehouse() {
    let all: Vec<String> =
        tpcc::all().iter().map(|procedure| format!("{}: {}", procedure.name, shown(procedure))).collect();
    expect_file!["fragments/tpcc_by_warehouse.txt"].assert_eq(&all.join("\n"));
}
