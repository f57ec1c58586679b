//! The results of the analysis of one procedure, case by case.

mod support;

use std::collections::BTreeSet;

use seriatim_procedure::analysis::{Schema, plan};
use seriatim_procedure::ir::{KeyRange, OperationKind, Procedure, StepKind};
use seriatim_procedure::plan::{FailureKind, Known, Operation, Plan};
use support::build::{Build, procedure};
use support::table;

fn schema() -> Schema {
    let account =
        table("account", "id:u32 owner:text20! sum:i64 count:u32 rate:f64 note:text24? limit:i64? flag:bool", &["id"])
            .index("by_flag", ["flag"])
            .unique_index("by_owner", ["owner"], seriatim_catalog::Organization::Ordered);
    let point = table("point", "x:u32 y:u32 value:i64", &["x", "y"]).hash();
    Schema::new([account, point].map(|builder| builder.finish().expect("valid")))
}

fn of(body: impl FnOnce(&mut Build)) -> Procedure {
    procedure("p", &["a", "b", "list"], body)
}

fn analysed(body: impl FnOnce(&mut Build)) -> Plan {
    plan(&of(body), &schema()).expect("accepted")
}

fn refused(body: impl FnOnce(&mut Build)) -> String {
    plan(&of(body), &schema()).expect_err("refused").to_string()
}

fn columns(plan: &Plan, operation: usize) -> (String, String, String) {
    let access = &plan.operations[operation].accesses[0];
    let names = &plan.tables[access.table].columns;
    (access.reads.names(names), access.writes.names(names), access.commutes.names(names))
}

/// The columns that an update with this body reads, writes and adds to.
fn update(body: impl FnOnce(&mut Build)) -> (String, String, String) {
    columns(
        &analysed(|b| {
            b.update("", "account", "a", "row", body);
            b.return_("1");
        }),
        0,
    )
}

fn three(reads: &str, writes: &str, commutes: &str) -> (String, String, String) {
    (reads.into(), writes.into(), commutes.into())
}

fn set(of: &[usize]) -> BTreeSet<usize> {
    of.iter().copied().collect()
}

#[test]
fn keys_keep_what_is_known_of_them_on_their_way_through_tuples_and_branches() {
    let plan = analysed(|b| {
        b.let_("key", "(a, (b, 1))");
        b.get("", "point", "key.0, key.1.0");
        b.let_("(x, y)", "(b, a)");
        b.get("", "point", "x, y");
        b.let_mut("m", "(a, b)");
        b.assign("m", "=", "(b, a)");
        b.get("", "point", "m.0, b");
        b.return_("1");
    });
    let keys = plan
        .operations
        .iter()
        .map(|operation| operation.key.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    assert_eq!(keys.collect::<Vec<_>>(), ["a, b", "b, a", "m.0, b"]);
}

#[test]
fn names_that_the_schema_does_not_have_are_refused_at_their_place() {
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Build));
    let cases: &[Case<'_>] = &[
        ("p:1:1: procedure `p`: there is no table `acount`; create it first", &|b| b.require("r", "acount", "a")),
        ("table `account` has no index `by_name`", &|b| b.require("r", "account/by_name", "a")),
        ("index `by_flag` of table `account` is not unique", &|b| b.require("r", "account/by_flag", "a")),
        ("the key of table `point` is (x, y): 2 values, not 1", &|b| b.require("r", "point", "a")),
        ("the key of table `point` is hashed", &|b| b.all("r", "point", "a")),
        ("has no ranges", &|b| b.all("r", "point", "a, 1 .. a, 2")),
        ("fewer than the prefix's", &|b| b.all("r", "account", "a, b")),
        ("is (id): 1 values, not 2", &|b| b.all("r", "account", "a, b .. a")),
        ("needs a value for y, value too", &|b| b.insert("point", "x: a")),
        ("table `point` has no column `z`", &|b| b.insert("point", "x: a, y: b, value: 1, z: 1")),
        ("column `x` is given twice", &|b| b.insert("point", "x: a, x: a, y: b, value: 1")),
        ("p:2:1: procedure `p`: column `owner` of table `account` is immutable", &|b| {
            b.update("", "account", "a", "row", |b| b.assign("row.owner", "=", "b"));
        }),
        ("column `id` of table `account` is in the primary key", &|b| {
            b.update("", "account", "a", "row", |b| b.assign("row.id", "=", "b"));
        }),
        ("table `account` has no column `total`", &|b| {
            b.update("", "account", "a", "row", |b| b.assign("row.total", "=", "b"));
        }),
        ("p:2:1: procedure `p`: table `account` has no column `total`", &|b| {
            b.require("row", "account", "a");
            b.return_("row.total");
        }),
    ];
    for (message, body) in cases {
        let found = refused(|b| {
            body(b);
            b.return_("1");
        });
        assert!(found.contains(message), "{found:?} does not say {message:?}");
    }
}

#[test]
fn all_problems_are_reported_in_order() {
    let found = refused(|b| {
        b.require("r", "point", "a");
        b.require("s", "account", "a, b");
        b.return_("r.z");
    });
    assert_eq!(found.lines().count(), 2, "columns are looked at once names are right: {found}");
    assert!(found.starts_with("p:1:1") && found.contains("\np:2:1"));
}

#[test]
fn a_broken_representation_is_refused() {
    let mut broken = of(|b| b.return_("1"));
    broken.steps = 7;
    assert!(plan(&broken, &schema()).expect_err("refused").to_string().contains("is broken"));
    let mut broken = of(|b| {
        b.require("r", "account", "a");
        b.return_("r.sum");
    });
    broken.variables.truncate(1);
    assert!(plan(&broken, &schema()).expect_err("refused").to_string().contains("is broken"));
    let impure = refused(|b| {
        b.update("", "account", "a", "row", |b| b.require("other", "account", "b"));
        b.return_("1");
    });
    assert!(impure.contains("the body of an update is not pure"), "{impure}");
    let mut each = of(|b| {
        b.each("row", "account", "", |_| {});
        b.return_("1");
    });
    let StepKind::ForEach { operation, .. } = &mut each.body.0[0].kind else { panic!("a loop") };
    operation.kind = OperationKind::Delete { key: Vec::new(), required: false };
    assert!(plan(&each, &schema()).expect_err("refused").to_string().contains("no scan"));
}

#[test]
fn a_read_has_the_columns_that_are_used() {
    let found = analysed(|b| {
        b.get("found", "account", "a");
        b.let_else("Some(row)", "found", |b| b.return_("0"));
        b.let_("copy", "row");
        b.return_("copy.sum");
    });
    assert_eq!(columns(&found, 0), three("sum", "", ""));
    assert!(!found.operations[0].required && found.operations[0].used);
    let found = analysed(|b| {
        b.all("rows", "account", "");
        b.for_("row", "rows.iter()", |b| b.if_("row.flag", |b| b.return_("row.count"), |_| {}));
        b.return_("rows[0].sum");
    });
    assert_eq!(columns(&found, 0), three("sum, count, flag", "", ""));
    let found = analysed(|b| {
        b.get("found", "account", "a");
        b.return_("found.is_some()");
    });
    assert_eq!(columns(&found, 0), three("", "", ""), "existence alone");
    let found = analysed(|b| {
        b.require("row", "account", "a");
        b.return_("whatever(row)");
    });
    assert_eq!(columns(&found, 0).0, "id, owner, sum, count, rate, note, limit, flag", "a row as a whole is all of it");
}

#[test]
fn to_count_rows_is_to_read_no_column() {
    let found = analysed(|b| {
        b.count("n", "account", "");
        b.if_("n > 3", |b| b.return_("n"), |_| {});
        b.return_("(n, a)");
    });
    assert_eq!(columns(&found, 0), three("", "", ""));
    assert!(found.operations[0].used);
}

#[test]
fn additions_commute_only_if_blind() {
    assert_eq!(update(|b| b.assign("row.sum", "+=", "b")), three("", "", "sum"));
    assert_eq!(update(|b| b.assign("row.sum", "-=", "b")), three("", "", "sum"));
    assert_eq!(update(|b| b.assign("row.count", "+=", "b")), three("", "", "count"));
    let short = three("count", "count", "");
    assert_eq!(update(|b| b.assign("row.count", "-=", "b")), short, "an abort tells that the sum is too small");
    assert_eq!(update(|b| b.assign("row.count", "=", "row.count - b")), short, "the same written out");
    assert_eq!(update(|b| b.assign("row.sum", "=", "row.sum + b")), three("", "", "sum"), "the same written out");
    assert_eq!(update(|b| b.assign("row.sum", "=", "b - row.sum")), three("sum", "sum", ""));
    assert_eq!(update(|b| b.assign("row.sum", "*=", "b")), three("sum", "sum", ""));
    assert_eq!(update(|b| b.assign("row.sum", "=", "b")), three("", "sum", ""));
    assert_eq!(update(|b| b.assign("row.rate", "+=", "b")), three("rate", "rate", ""), "floats do not associate");
    assert_eq!(update(|b| b.assign("row.limit", "+=", "b")), three("limit", "limit", ""), "NULL has no sum");
    let both = |b: &mut Build| {
        b.assign("row.sum", "+=", "b");
        b.assign("row.sum", "=", "0");
    };
    assert_eq!(update(both), three("sum", "sum", ""));
    let used = |b: &mut Build| {
        b.assign("row.sum", "+=", "b");
        b.yield_("row.sum");
    };
    assert_eq!(update(used), three("sum", "sum", ""), "the new value is used");
    let other = |b: &mut Build| {
        b.assign("row.sum", "+=", "1");
        b.assign("row.count", "+=", "1");
        b.yield_("row.owner");
    };
    assert_eq!(update(other), three("owner", "", "sum, count"));
}

#[test]
fn additions_of_what_the_row_says_do_not_commute() {
    let by_column = |b: &mut Build| b.assign("row.sum", "+=", "row.count");
    assert_eq!(update(by_column), three("sum, count", "sum", ""));
    let by_fixed = |b: &mut Build| b.assign("row.sum", "+=", "row.owner.len()");
    assert_eq!(update(by_fixed), three("owner", "", "sum"), "an immutable column is as good as an argument");
    let by_variable = |b: &mut Build| {
        b.let_("n", "row.count");
        b.assign("row.sum", "+=", "n");
    };
    assert_eq!(update(by_variable), three("sum, count", "sum", ""));
    let by_condition = |b: &mut Build| {
        b.let_("low", "row.count < 3");
        b.if_("low", |b| b.assign("row.sum", "+=", "1"), |_| {});
    };
    assert_eq!(update(by_condition), three("sum, count", "sum", ""));
    let by_exit = |b: &mut Build, exit: fn(&mut Build)| {
        b.for_("n", "list", |b| {
            b.if_("row.count < 3", exit, |_| {});
            b.assign("row.sum", "+=", "n");
        });
    };
    assert_eq!(update(|b| by_exit(b, Build::break_)), three("sum, count", "sum", ""), "how often it adds");
    assert_eq!(update(|b| by_exit(b, Build::continue_)), three("sum, count", "sum", ""), "whether it adds");
    let by_inner_exit = |b: &mut Build| {
        b.for_("m", "list", |b| {
            b.for_("n", "list", |b| b.if_("row.count < m", Build::break_, |_| {}));
            b.assign("row.sum", "+=", "m");
        });
    };
    assert_eq!(update(by_inner_exit), three("count", "", "sum"), "an inner loop's exit is its own");
    let by_counter = |b: &mut Build| {
        b.let_mut("n", "0");
        b.for_("m", "list", |b| {
            b.if_("row.count < 3", Build::break_, |_| {});
            b.assign("n", "+=", "m");
        });
        b.assign("row.sum", "+=", "n");
    };
    assert_eq!(update(by_counter), three("sum, count", "sum", ""), "what was counted tells where it ended");
    let by_argument = |b: &mut Build| b.if_("b < 3", |b| b.assign("row.sum", "+=", "1"), |_| {});
    assert_eq!(update(by_argument), three("", "", "sum"));
}

#[test]
fn sums_fail_by_overflow_and_near_zero_for_good() {
    let kinds = |body: &dyn Fn(&mut Build)| -> BTreeSet<FailureKind> {
        let found = analysed(|b| {
            b.update("", "account", "a", "row", body);
            b.return_("1");
        });
        found.failures.iter().map(|failure| failure.kind).collect()
    };
    let common = [FailureKind::MissingRow, FailureKind::OutOfMemory];
    let with = |kind| common.into_iter().chain([kind]).collect::<BTreeSet<_>>();
    assert_eq!(kinds(&|b| b.assign("row.sum", "+=", "b")), with(FailureKind::CommutativeOverflow));
    assert_eq!(kinds(&|b| b.assign("row.count", "-=", "b")), with(FailureKind::Overflow));
    assert_eq!(kinds(&|b| b.assign("row.sum", "*=", "b")), with(FailureKind::Overflow));
    assert_eq!(kinds(&|b| b.assign("row.sum", "=", "b")), common.into());
}

#[test]
fn a_text_of_unknown_length_may_not_fit() {
    let kinds = |value: &str| -> BTreeSet<FailureKind> {
        let found = analysed(|b| {
            b.update("", "account", "a", "row", |b| b.assign("row.note", "=", value));
            b.return_("1");
        });
        found.failures.iter().map(|failure| failure.kind).collect()
    };
    assert!(kinds("Some(Text::truncated(b))").contains(&FailureKind::Type));
    assert!(!kinds("b").contains(&FailureKind::Type));
}

#[test]
fn indexes_are_maintained_by_operations_that_change_their_columns() {
    let found = analysed(|b| {
        b.update("", "account", "a", "row", |b| b.assign("row.flag", "=", "b"));
        b.update("", "account", "a", "row", |b| b.assign("row.sum", "=", "b"));
        b.delete("account", "b");
        b.require("r", "account/by_owner", "a");
        b.return_("r.sum");
    });
    let indexes = |operation: &Operation| -> Vec<Option<usize>> {
        operation.accesses.iter().map(|access| access.index).collect()
    };
    let all: Vec<_> = found.operations.iter().map(indexes).collect();
    assert_eq!(all, [vec![None, Some(0)], vec![None], vec![None, Some(0), Some(1)], vec![None, Some(1)]]);
    assert!(found.operations[0].accesses[1].changes() && !found.operations[3].accesses[1].changes());
}

#[test]
fn keys_values_and_control_are_distinguished() {
    let found = analysed(|b| {
        b.require("one", "account", "a");
        b.require("two", "account", "one.sum");
        b.if_("two.flag", |b| b.update("", "account", "b", "row", |b| b.assign("row.sum", "+=", "one.sum")), |_| {});
        b.return_("1");
    });
    let [_, two, three] = &found.operations[..] else { panic!("three operations") };
    assert_eq!((&two.key_from, &two.value_from, &two.control_from), (&set(&[0]), &set(&[]), &set(&[])));
    assert_eq!((&three.key_from, &three.value_from, &three.control_from), (&set(&[]), &set(&[0]), &set(&[1])));
    assert!(three.conditional && !two.conditional && three.is_key_invariant() && !two.is_key_invariant());
    assert_eq!(found.descendants(0), set(&[0, 1, 2]));
    assert_eq!(found.descendants(1), set(&[1, 2]));
    assert_eq!(found.descendants(2), set(&[2]));
}

#[test]
fn a_variable_assigned_in_a_branch_depends_on_the_condition() {
    let found = analysed(|b| {
        b.require("one", "account", "a");
        b.let_mut("key", "1");
        b.if_("one.flag", |b| b.assign("key", "=", "2"), |_| {});
        b.require("two", "account", "key");
        b.return_("two.sum");
    });
    assert_eq!((&found.operations[1].key_from, &found.operations[1].control_from), (&set(&[0]), &set(&[])));
}

#[test]
fn an_abort_depends_on_everything_that_decides_whether_it_is_reached() {
    let found = analysed(|b| {
        b.require("one", "account", "a");
        b.if_("one.flag", |b| b.abort("1"), |_| {});
        b.return_("1");
    });
    let abort = found.failures.iter().find(|failure| failure.kind == FailureKind::UserAbort).expect("it may abort");
    assert_eq!(abort.decided_by, set(&[0]));
}

#[test]
fn later_operations_in_a_table_are_run_again() {
    let found = analysed(|b| {
        b.update("", "account", "a", "row", |b| b.assign("row.sum", "=", "1"));
        b.require("same", "account", "b");
        b.require("other", "point", "same.sum, 1");
        b.require("free", "account", "b");
        b.return_("(same.sum, other.value, free.owner)");
    });
    assert_eq!(found.operations[1].table_from, set(&[0]), "b may be a");
    assert_eq!(found.operations[3].table_from, set(&[]), "another column");
    assert_eq!(found.descendants(0), set(&[0, 1, 2]));
}

#[test]
fn an_accumulator_pulls_all_its_definitions() {
    let found = analysed(|b| {
        b.let_mut("total", "0");
        b.for_("x", "list", |b| {
            b.require("row", "account", "x");
            b.assign("total", "+=", "row.sum");
        });
        b.require("other", "account", "b");
        b.assign("total", "+=", "other.sum");
        b.update("", "account", "a", "row", |b| b.assign("row.sum", "=", "total"));
        b.return_("total");
    });
    assert_eq!(found.operations[2].value_from, set(&[0, 1]));
    assert_eq!(found.operations[1].from(), set(&[]), "what is added later does not count before");
}

#[test]
fn values_of_an_iteration_reach_the_next() {
    let found = analysed(|b| {
        b.let_mut("key", "a");
        b.for_("x", "list", |b| {
            b.require("row", "account", "key");
            b.require("next", "account", "x");
            b.assign("key", "=", "next.sum");
        });
        b.return_("key");
    });
    assert_eq!(found.operations[0].key_from, set(&[1]), "from the iteration before");
    let found = analysed(|b| {
        b.for_("x", "list", |b| {
            b.let_mut("key", "a");
            b.require("row", "account", "key");
            b.require("next", "account", "x");
            b.assign("key", "=", "next.sum");
        });
        b.return_("1");
    });
    assert_eq!(found.operations[0].key_from, set(&[]), "a variable of one iteration");
}

#[test]
fn early_exits_control_what_comes_after_them() {
    let found = analysed(|b| {
        b.require("one", "account", "a");
        b.if_("one.flag", |b| b.return_("1"), |_| {});
        b.require("two", "account", "b");
        b.return_("two.sum");
    });
    assert_eq!(found.operations[1].control_from, set(&[0]));
    assert!(found.operations[1].conditional);
    let found = analysed(|b| {
        b.for_("x", "list", |b| {
            b.require("one", "account", "x");
            b.require("two", "account", "a");
            b.if_("two.flag", |b| b.break_(), |_| {});
        });
        b.require("three", "account", "b");
        b.return_("three.sum");
    });
    assert_eq!(found.operations[0].control_from, set(&[1]), "a break ends the iterations to come");
    let conditional: Vec<bool> = found.operations.iter().map(|operation| operation.conditional).collect();
    assert_eq!(conditional, [true, true, false], "what is in a loop that may be left may not run in each pass");
    assert_eq!(found.operations[2].control_from, set(&[]), "but not what follows the loop");
    let found = analysed(|b| {
        b.for_("x", "list", |b| {
            b.require("one", "account", "x");
            b.if_("one.flag", |b| b.continue_(), |_| {});
            b.require("two", "account", "a");
        });
        b.return_("1");
    });
    assert_eq!(found.operations[0].control_from, set(&[]));
    assert_eq!(found.operations[1].control_from, set(&[0]));
    let found = analysed(|b| {
        b.each("row", "account", "", |b| {
            b.require("one", "account", "a");
            b.if_("one.flag", |b| b.break_(), |_| {});
        });
        b.return_("1");
    });
    assert!(found.operations[0].control_from.contains(&1), "the exits of its loop decide how far a scan reads");
}

#[test]
fn keys_are_known_at_the_loop_after_what_they_need() {
    let found = analysed(|b| {
        b.require("one", "account", "a");
        b.for_("x", "list", |b| {
            b.require("two", "point", "x, one.sum");
            b.for_("y", "list", |b| {
                b.require("three", "point", "y, two.value");
                b.require("four", "point", "y, x");
            });
        });
        b.return_("1");
    });
    let known: Vec<&Known> = found.operations.iter().map(|operation| &operation.known).collect();
    assert_eq!(known[0], &Known::Entry);
    assert_eq!(known[1], &Known::After(set(&[0]), Some(0)));
    assert_eq!(known[2], &Known::After(set(&[1]), Some(1)));
    assert_eq!(known[3], &Known::Entry);
    assert!(found.footprint().touches[3].known && !found.footprint().is_complete());
}

#[test]
fn an_update_may_hand_its_row_out_by_a_variable() {
    let found = analysed(|b| {
        b.let_mut("text", "0");
        b.update("", "account", "a", "row", |b| b.assign("text", "=", "row.owner"));
        b.insert("point", "x: 1, y: 2, value: text");
        b.return_("1");
    });
    assert_eq!(found.operations[1].value_from, set(&[0]));
    assert_eq!(found.operations[0].value_from, set(&[]), "its own row is no need");
}

#[test]
fn a_limit_is_a_value_and_bounds_are_keys() {
    let mut found = of(|b| {
        b.require("one", "account", "a");
        b.all("rows", "account", "0 .. one.sum");
        b.return_("rows.len()");
    });
    let limit = of(|b| b.return_("b")).body.0.remove(0);
    let StepKind::Return(limit) = limit.kind else { panic!("a return") };
    let StepKind::Operation { operation, .. } = &mut found.body.0[1].kind else { panic!("an operation") };
    let OperationKind::Scan { limit: place, range: KeyRange::Between { .. }, .. } = &mut operation.kind else {
        panic!("a scan")
    };
    *place = Some(limit);
    let found = plan(&found, &schema()).expect("accepted");
    assert_eq!(found.operations[1].key_from, set(&[0]));
    assert_eq!(found.operations[1].key, [], "two bounds have nothing in common");
}
