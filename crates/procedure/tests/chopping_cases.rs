//! Choppings of small sets, rule by rule.

mod support;

use std::collections::BTreeSet;

use seriatim_procedure::analysis::{ChopError, Schema, agreements, chop, deferrable, plan};
use seriatim_procedure::ir::Procedure;
use seriatim_procedure::plan::{Chopping, Columns, MergeReason, Options, Plan, Role};
use support::build::{Build, procedure};
use support::table;

fn schema() -> Schema {
    let one = |name| table(name, "id:u32 value:i64 sum:i64 flag:bool", &["id"]);
    let tables = [one("a"), one("b"), one("c").index("by_flag", ["flag"]), one("d").index("by_sum", ["sum"])];
    Schema::new(tables.map(|builder| builder.finish().expect("valid")))
}

fn of(name: &str, body: impl FnOnce(&mut Build)) -> Plan {
    let built: Procedure = procedure(name, &["x", "y", "list"], |b| {
        body(b);
        b.return_("1");
    });
    plan(&built, &schema()).expect("accepted")
}

fn read(b: &mut Build, table: &str) {
    let name = format!("of_{table}");
    b.get(&name, table, "x");
    b.let_else("Some(row)", &name, |b| b.return_("0"));
    b.let_("got", "row.value");
}

fn write(b: &mut Build, table: &str) {
    b.update_if("", table, "x", "row", |b| b.assign("row.value", "=", "y"));
}

fn add(b: &mut Build, table: &str) {
    b.update_if("", table, "x", "row", |b| b.assign("row.sum", "+=", "y"));
}

fn read_sum(b: &mut Build, table: &str) {
    b.update_if("sum", table, "x", "row", |b| {
        b.assign("row.value", "=", "row.sum");
        b.yield_("1");
    });
}

fn chopped(plans: &[Plan], options: Options) -> Chopping {
    chop(plans, options).expect("a set")
}

fn pieces(chopping: &Chopping, name: &str) -> Vec<Vec<usize>> {
    let found = chopping.procedure(name).expect("there");
    found.pieces.iter().map(|piece| piece.operations.clone()).collect()
}

fn roles(chopping: &Chopping, name: &str) -> Vec<Role> {
    chopping.procedure(name).expect("there").pieces.iter().map(|piece| piece.role).collect()
}

const DEFAULT: Options = Options::DEFAULT;
const OPTIMIZED: Options = Options::OPTIMIZED;

#[test]
fn figure_2_of_the_paper() {
    let set = [
        of("tx1", |b| {
            b.get("a", "a", "x");
            b.get("b", "b", "x");
            b.let_("both", "use_of(a, b)");
        }),
        of("tx2", |b| {
            write(b, "a");
            write(b, "b");
        }),
        of("tx3", |b| {
            write(b, "b");
            b.get("c", "c", "x");
            b.let_("got", "use_of(c)");
        }),
    ];
    let found = chopped(&set, DEFAULT);
    assert_eq!(pieces(&found, "tx1"), [[0, 1]]);
    assert_eq!(pieces(&found, "tx2"), [[0, 1]]);
    assert_eq!(pieces(&found, "tx3"), [[0], [1]]);
}

#[test]
fn one_instance_is_not_enough() {
    let set = [of("alone", |b| {
        write(b, "a");
        write(b, "b");
    })];
    let found = chopped(&set, DEFAULT);
    assert_eq!(pieces(&found, "alone"), [[0, 1]], "it conflicts with a second of its kind");
    assert!(matches!(found.procedures[0].merges[0].reason, MergeReason::Cycle(_)));
}

#[test]
fn columns_that_differ_do_not_conflict() {
    let set = [
        of("adds", |b| {
            add(b, "a");
            add(b, "b");
        }),
        of("reads", |b| {
            read(b, "a");
            read(b, "b");
        }),
    ];
    let found = chopped(&set, DEFAULT);
    assert_eq!((found.conflicts.len(), pieces(&found, "adds").len()), (0, 2));
    let found = chopped(&set, Options { commute: false, ..DEFAULT });
    assert_eq!((found.conflicts.len(), pieces(&found, "adds").len()), (2, 1), "without commutativity");
}

#[test]
fn a_lookup_by_an_index_conflicts_with_an_update_that_moves_rows_in_it() {
    let set = [
        of("moves", |b| b.update_if("", "c", "x", "row", |b| b.assign("row.flag", "=", "y"))),
        of("counts", |b| {
            b.all("rows", "c/by_flag", "x");
            b.let_("n", "rows.len()");
        }),
    ];
    let found = chopped(&set, DEFAULT);
    let shown: Vec<String> =
        found.conflicts.iter().flat_map(|conflict| &conflict.grounds).map(ToString::to_string).collect();
    assert_eq!(shown, ["c.by_flag (keys)", "c (flag)", "c.by_flag (keys)"]);
    let statics: Vec<String> = chopped(&set, OPTIMIZED).statics.iter().map(ToString::to_string).collect();
    assert_eq!(statics, ["c"], "the table is static, its index is not");
}

#[test]
fn a_lookup_that_finds_nothing_conflicts_with_an_insertion() {
    let set = [
        of("misses", |b| {
            b.get("found", "a", "x");
            b.let_("there", "found.is_some()");
        }),
        of("inserts", |b| b.insert("a", "id: x, value: 0, sum: 0, flag: y")),
    ];
    assert_eq!(chopped(&set, DEFAULT).conflicts.len(), 2, "with each other, and inserts with inserts");
}

#[test]
fn operations_change_places_only_if_allowed() {
    let set = [of("p", |b| {
        write(b, "a");
        b.get("b", "b", "x");
        b.let_("use", "use_of(b)");
        write(b, "c");
    })];
    assert_eq!(pieces(&chopped(&set, DEFAULT), "p"), [vec![0, 2], vec![1]]);
    assert_eq!(pieces(&chopped(&set, Options { reorder: false, ..DEFAULT }), "p"), [[0, 1, 2]]);
}

#[test]
fn a_loop_is_split_only_if_nothing_runs_back() {
    let forward = of("forward", |b| {
        b.for_("x", "list", |b| {
            read(b, "a");
            b.update_if("", "b", "x", "row", |b| b.assign("row.value", "=", "got"));
        });
    });
    assert_eq!(pieces(&chopped(&[forward], DEFAULT), "forward"), [[0], [1]]);
    let back = of("back", |b| {
        b.let_mut("last", "0");
        b.for_("x", "list", |b| {
            b.get("found", "a", "last");
            b.let_else("Some(row)", "found", |b| b.continue_());
            b.update_if("old", "b", "row.value", "row", |b| {
                b.assign("row.value", "=", "x");
                b.yield_("row.flag");
            });
            b.assign("last", "=", "old");
        });
    });
    let found = chopped(&[back], DEFAULT);
    assert_eq!(pieces(&found, "back"), [[0, 1]]);
    let MergeReason::Loop(reason) = &found.procedures[0].merges[0].reason else { panic!("a loop") };
    assert_eq!(reason, "the key of #0 from #1 of the iteration before");
}

#[test]
fn operations_that_can_fail_come_before_the_decision_or_join_its_piece() {
    let set = [of("free", |b| {
        write(b, "a");
        b.require("row", "b", "x");
        b.let_("use", "row.value");
    })];
    let found = chopped(&set, DEFAULT);
    assert_eq!(
        (pieces(&found, "free"), roles(&found, "free")),
        (vec![vec![1], vec![0]], vec![Role::Buffered, Role::Decisive])
    );
    let bound = [of("bound", |b| {
        b.update_if("old", "a", "x", "row", |b| {
            b.assign("row.value", "=", "y");
            b.yield_("row.flag");
        });
        b.require("row", "b", "old");
        b.let_("use", "row.value");
    })];
    let found = chopped(&bound, DEFAULT);
    assert_eq!(pieces(&found, "bound"), [[0, 1]]);
    let MergeReason::Rollback(reason) = &found.procedures[0].merges[0].reason else { panic!("rollback") };
    assert!(reason.starts_with("missing row"), "{reason}");
}

#[test]
fn pure_code_that_fails_holds_back_what_it_uses() {
    let chop_with = |sum: &'static str| {
        let set = [of("p", |b| {
            b.update_if("old", "a", "x", "row", |b| {
                b.assign("row.value", "=", "y");
                b.yield_("row.flag");
            });
            b.get("found", "b", "old");
            b.let_else("Some(row)", "found", |b| b.return_("0"));
            b.let_("use", sum);
        })];
        pieces(&chopped(&set, DEFAULT), "p")
    };
    assert_eq!(chop_with("use_of(row.value)"), [[0], [1]]);
    assert_eq!(chop_with("row.value + 1"), [[0, 1]], "the sum may overflow once the row is read");
    assert_eq!(chop_with("may_panic(row.value)"), [[0, 1]], "nothing could undo the first piece");
}

#[test]
fn without_headroom_an_addition_takes_effect_where_it_is_checked() {
    let set = [of("p", |b| {
        write(b, "a");
        add(b, "b");
    })];
    assert_eq!(pieces(&chopped(&set, DEFAULT), "p"), [[0], [1]]);
    assert_eq!(pieces(&chopped(&set, Options { headroom: false, ..DEFAULT }), "p"), [[0, 1]]);
}

#[test]
fn a_write_that_may_find_no_memory_joins_the_decisive_piece() {
    let options = |memory| Options { memory, ..DEFAULT };
    let added = [of("p", |b| {
        b.update_if("old", "a", "x", "row", |b| {
            b.assign("row.value", "=", "y");
            b.yield_("row.flag");
        });
        b.update_if("_", "b", "old", "row", |b| b.assign("row.value", "+=", "y"));
    })];
    let found = chopped(&added, options(true));
    assert_eq!(pieces(&found, "p"), [[0], [1]]);
    assert!(found.obligations.iter().any(|asked| asked.contains("memory")), "{:?}", found.obligations);
    let found = chopped(&added, options(false));
    assert_eq!(pieces(&found, "p"), [[0, 1]]);
    let MergeReason::Rollback(reason) = &found.procedures[0].merges[0].reason else { panic!("rollback") };
    assert!(reason.starts_with("out of memory"), "{reason}");
}

#[test]
fn without_conflicts_what_can_fail_comes_first() {
    let set = [of("p", |b| {
        add(b, "a");
        b.require("row", "b", "x");
        b.let_("use", "row.value");
        add(b, "c");
    })];
    let found = chopped(&set, DEFAULT);
    assert_eq!(pieces(&found, "p"), [[1], [0], [2]]);
    assert_eq!(roles(&found, "p"), [Role::Decisive, Role::Visible, Role::Visible]);
}

/// Figure 3: a publisher, its subscriber, and perhaps a third procedure.
fn figure_3(third: Option<Plan>) -> Chopping {
    let publisher = of("publisher", |b| {
        write(b, "a");
        add(b, "b");
    });
    let subscriber = of("subscriber", |b| read_sum(b, "b"));
    chopped(&[publisher, subscriber].into_iter().chain(third).collect::<Vec<_>>(), OPTIMIZED)
}

#[test]
fn a_blind_addition_is_published_later() {
    let found = figure_3(None);
    assert_eq!(found.deferrals.len(), 1);
    assert_eq!(roles(&found, "publisher"), [Role::Decisive, Role::Deferred]);
    assert!(found.obligations.iter().any(|line| line.contains("subscriber waits for what is pending")));
}

#[test]
fn a_third_procedure_that_sees_both_forbids_it() {
    let witness = of("witness", |b| {
        write(b, "a");
        b.update_if("", "b", "x", "row", |b| b.assign("row.value", "=", "y"));
    });
    let found = figure_3(Some(witness));
    assert_eq!(found.deferrals, []);
    assert!(found.refused[0].reason.contains("other conflicts join publisher and subscriber"), "{:?}", found.refused);
    assert_eq!(pieces(&found, "publisher"), [[0, 1]]);
    let reader = of("reader", |b| {
        read(b, "a");
        read(b, "b");
    });
    assert_eq!(figure_3(Some(reader)).deferrals.len(), 1, "one that only reads has a snapshot");
}

#[test]
fn an_update_that_cannot_wait_is_not_deferred() {
    let case = |update: &dyn Fn(&mut Build)| {
        let publisher = of("publisher", |b| {
            write(b, "a");
            update(b);
        });
        let found = chopped(&[publisher, of("subscriber", |b| read_sum(b, "b"))], OPTIMIZED);
        found.refused.first().map(|refused| refused.reason.clone()).unwrap_or_default()
    };
    assert_eq!(case(&|b| add(b, "b")), "");
    let required = |b: &mut Build| b.update("", "b", "x", "row", |b| b.assign("row.sum", "+=", "y"));
    assert!(case(&required).contains("can fail when it is published: missing row"));
    let used = |b: &mut Build| {
        b.update_if("there", "b", "x", "row", |b| b.assign("row.sum", "+=", "y"));
        b.let_("use", "there.is_some()");
    };
    assert_eq!(case(&used), "its result is used");
    let also = |b: &mut Build| {
        b.update_if("", "b", "x", "row", |b| {
            b.assign("row.sum", "+=", "y");
            b.assign("row.flag", "=", "y");
        });
    };
    assert_eq!(case(&also), "it does not only add to columns");
    let seen = |b: &mut Build| {
        add(b, "b");
        read_sum(b, "b");
    };
    assert!(case(&seen).contains("#2 comes after it"));
}

#[test]
fn an_update_that_also_conflicts_on_the_existence_of_its_row_is_not_deferred() {
    let publisher = of("publisher", |b| {
        write(b, "a");
        add(b, "b");
    });
    let found = chopped(&[publisher, of("remover", |b| b.delete_if("_", "b", "x"))], OPTIMIZED);
    assert_eq!(found.deferrals, []);
    assert!(found.refused[0].reason.contains("it also conflicts on"), "{:?}", found.refused);
}

#[test]
fn a_procedure_added_later_changes_the_pieces_of_procedures_that_conflict_with_it() {
    let set = [
        of("far", |b| {
            write(b, "c");
            read(b, "c");
        }),
        of("near", |b| {
            write(b, "a");
            add(b, "b");
        }),
    ];
    let before = chopped(&set, DEFAULT);
    let more: Vec<Plan> = set.into_iter().chain([of("new", |b| read_sum(b, "b"))]).collect();
    let changed = before.changed(&chopped(&more, DEFAULT));
    assert_eq!(changed, BTreeSet::from(["near".into(), "new".into()]));
}

#[test]
fn names_are_unique() {
    let twice = [of("p", |b| write(b, "a")), of("p", |b| write(b, "b"))];
    assert_eq!(chop(&twice, DEFAULT), Err(ChopError::Duplicate("p".into())));
}

#[test]
fn canary_a_plan_that_does_not_agree_with_itself_is_refused() {
    let sound = of("p", |b| {
        b.for_("x", "list", |b| add(b, "a"));
    });
    let broken: [&dyn Fn(&mut Plan); 6] = [
        &|plan| plan.operations[0].key_from.extend([9]),
        &|plan| plan.operations[0].loops = vec![0, 0],
        &|plan| plan.operations[0].accesses.clear(),
        &|plan| {
            let commutes = plan.operations[0].accesses[0].commutes.clone();
            plan.operations[0].accesses[0].reads.extend(&commutes);
        },
        &|plan| plan.operations[0].accesses[0].reads = Columns::from_iter([seriatim_catalog::ColumnId(99)]),
        &|plan| plan.failures[0].decided_by.extend([9]),
    ];
    assert!(chop([&sound], DEFAULT).is_ok());
    for (at, breaks) in broken.into_iter().enumerate() {
        let mut plan = sound.clone();
        breaks(&mut plan);
        assert!(matches!(chop([&plan], DEFAULT), Err(ChopError::Broken(_))), "case {at}");
    }
}

#[test]
fn canary_a_chopping_that_is_not_safe_is_reported() {
    let set = [of("p", |b| {
        read(b, "b");
        b.update_if("", "a", "x", "row", |b| b.assign("row.value", "=", "got"));
        add(b, "c");
    })];
    let sound = chopped(&set, DEFAULT);
    assert_eq!((sound.check(), pieces(&sound, "p")), (Ok(()), vec![vec![0], vec![1], vec![2]]));
    type Break<'a> = (&'a str, &'a dyn Fn(&mut Chopping));
    let broken: [Break<'_>; 5] = [
        ("is in 2 pieces", &|chopping| chopping.procedures[0].pieces[0].operations.push(2)),
        ("is in 0 pieces", &|chopping| drop(chopping.procedures[0].pieces.pop())),
        ("wrongly said to conflict", &|chopping| chopping.procedures[0].pieces[0].conflicting = true),
        ("is not the decisive one", &|chopping| chopping.procedures[0].decisive = Some(0)),
        ("runs before 0, which it needs", &|chopping| {
            chopping.procedures[0].pieces.swap(0, 1);
            chopping.procedures[0].decisive = Some(0);
        }),
    ];
    for (message, breaks) in broken {
        let mut chopping = sound.clone();
        breaks(&mut chopping);
        let found = chopping.check().expect_err("told");
        assert!(found.contains(message), "{found:?} does not say {message:?}");
    }
}

/// The sums that a set only adds to, by table.
fn sums(set: &[Plan]) -> Vec<String> {
    let agreed = agreements(set).into_iter();
    let columns: Vec<std::sync::Arc<str>> = ["id", "value", "sum", "flag"].map(Into::into).into();
    agreed.map(|(table, agreed)| format!("{table}.{}", agreed.sums.names(&columns))).collect()
}

#[test]
fn a_sum_is_agreed_on_if_every_operation_of_the_set_leaves_it_alone() {
    let adds = || of("adds", |b| add(b, "a"));
    assert_eq!(sums(&[adds()]), ["a.sum"]);
    assert_eq!(sums(&[adds(), of("writes", |b| write(b, "a"))]), ["a.sum"], "another column");
    assert_eq!(sums(&[adds(), of("writes", |b| write(b, "b"))]), ["a.sum"], "another table");
    assert!(sums(&[adds(), of("reads", |b| read_sum(b, "a"))]).is_empty(), "it is read");
    let sets = of("sets", |b| b.update_if("", "a", "x", "row", |b| b.assign("row.sum", "=", "y")));
    assert!(sums(&[adds(), sets]).is_empty(), "it is set");
    let both = || {
        of("both", |b| {
            b.update_if("", "a", "x", "row", |b| {
                b.assign("row.sum", "+=", "y");
                b.assign("row.value", "=", "y");
            });
        })
    };
    assert!(sums(&[both()]).is_empty() && sums(&[adds(), both()]).is_empty(), "one adds to it with what others use");
    let twice = of("twice", |b| {
        b.update_if("", "a", "x", "row", |b| {
            b.assign("row.sum", "+=", "y");
            b.assign("row.sum", "+=", "y");
        });
    });
    assert!(sums(&[adds(), twice]).is_empty(), "each of two additions has to stay in range");
    let indexed = || of("indexed", |b| add(b, "d"));
    assert!(sums(&[indexed()]).is_empty(), "its row moves in an index");
    let flips = of("flips", |b| b.update_if("", "c", "x", "row", |b| b.assign("row.flag", "=", "y")));
    let adds_there = of("adds_there", |b| add(b, "c"));
    assert_eq!(sums(&[adds_there, flips]), ["c.sum"], "rows move in an index of another column");
    let inserts = of("inserts", |b| b.insert("a", "id: x, value: y, sum: y, flag: x == y"));
    assert!(sums(&[adds(), inserts]).is_empty(), "rows come");
    let deletes = of("deletes", |b| b.delete("a", "x"));
    assert!(sums(&[adds(), deletes]).is_empty(), "rows go");
}

/// The columns that dbx-tc publishes at the end of an epoch, and why others are not.
fn later(set: &[Plan], clustered: &str) -> (Vec<String>, Vec<String>) {
    let plans: Vec<&Plan> = set.iter().collect();
    let found = deferrable(&plans, |procedure| plans[procedure].takes_snapshot(), |table| table == clustered);
    let columns: Vec<std::sync::Arc<str>> = ["id", "value", "sum", "flag"].map(Into::into).into();
    let names = found.columns.iter().map(|(table, sums)| format!("{table}.{}", sums.names(&columns)));
    (names.collect(), found.refused.into_iter().map(|refused| refused.reason).collect())
}

#[test]
fn a_sum_that_others_use_is_added_to_later_unless_something_else_joins_them() {
    let publisher = |add: &dyn Fn(&mut Build)| {
        of("publisher", |b| {
            write(b, "a");
            add(b);
        })
    };
    let adds = || publisher(&|b| add(b, "b"));
    let subscriber = || of("subscriber", |b| read_sum(b, "b"));
    let case = |set: &[Plan]| later(set, "");
    assert_eq!(case(&[adds(), subscriber()]), (vec!["b.sum".to_owned()], vec![]));
    assert_eq!(case(&[adds()]), (vec![], vec![]), "nobody uses it: it is published apart from the rest anyway");
    let reader = of("reader", |b| read(b, "a"));
    assert_eq!(case(&[adds(), subscriber(), reader]).0, ["b.sum"], "who only reads has a snapshot");
    // The row may be missing, and the used columns that no procedure changes.
    let required = publisher(&|b| {
        b.update("got", "b", "x", "row", |b| {
            b.assign("row.sum", "+=", "y");
            b.yield_("row.flag");
        });
        b.let_("use", "got");
    });
    assert_eq!(case(&[required, subscriber()]).0, ["b.sum"]);

    let why = |set: &[Plan]| {
        let (columns, refused) = later(set, "c");
        assert_eq!(columns, [""; 0], "{refused:?}");
        refused.join("; ")
    };
    let witness = of("witness", |b| {
        write(b, "a");
        b.update_if("", "b", "x", "row", |b| b.assign("row.value", "=", "y"));
    });
    assert!(why(&[adds(), subscriber(), witness]).contains("other conflicts join publisher and subscriber"));
    let own = publisher(&|b| {
        add(b, "b");
        read_sum(b, "b");
    });
    assert!(why(&[own]).contains("publisher itself uses what it adds to"));
    let in_turn = of("subscriber", |b| {
        read_sum(b, "b");
        add(b, "c");
    });
    let to_it = publisher(&|b| {
        add(b, "b");
        read_sum(b, "c");
    });
    let found = later(&[to_it, in_turn], "");
    assert_eq!(
        (found.0.len(), found.1.len()),
        (0, 2),
        "each joins the other's group as soon as one is not deferred: {found:?}"
    );
    let other = publisher(&|b| {
        b.update_if("", "b", "x", "row", |b| {
            b.assign("row.sum", "+=", "y");
            b.assign("row.flag", "=", "x == y");
        });
    });
    assert!(why(&[other, subscriber()]).contains("does not only add"));
    let twice = publisher(&|b| {
        b.update_if("", "b", "x", "row", |b| {
            b.assign("row.sum", "+=", "y");
            b.assign("row.sum", "+=", "y");
        });
    });
    assert!(why(&[twice, subscriber()]).contains("more than once"));
    let uses = publisher(&|b| {
        b.update("got", "b", "x", "row", |b| {
            b.assign("row.sum", "+=", "y");
            b.yield_("row.value");
        });
        b.let_("use", "got");
    });
    assert!(why(&[uses, subscriber()]).contains("uses what others change"));
    assert!(why(&[publisher(&|b| add(b, "d")), of("subscriber", |b| read_sum(b, "d"))]).contains("index"));
    assert!(why(&[publisher(&|b| add(b, "c")), of("subscriber", |b| read_sum(b, "c"))]).contains("clustered"));
    let inserts = of("inserts", |b| b.insert("b", "id: x, value: y, sum: y, flag: x == y"));
    assert!(why(&[adds(), subscriber(), inserts]).contains("keys of its table change"));
}

/// An update is known by its columns when it runs.
#[test]
fn a_sum_is_deferred_by_all_its_adders_or_by_none() {
    let publisher = of("publisher", |b| {
        write(b, "a");
        add(b, "b");
    });
    let subscriber = of("subscriber", |b| read_sum(b, "b"));
    let also = of("also", |b| {
        b.update_if("", "b", "x", "row", |b| {
            b.assign("row.sum", "+=", "y");
            b.assign("row.flag", "=", "x == y");
        });
    });
    let (columns, refused) = later(&[publisher, subscriber, also], "");
    assert_eq!(columns, [""; 0]);
    assert!(refused.iter().any(|why| why == "also #0 adds to the same sum, and may not"), "{refused:?}");
}
