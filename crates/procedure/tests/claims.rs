//! Claims: when they are made, and why they are right.

mod support;

use std::collections::BTreeSet;

use seriatim_procedure::analysis::{Schema, chop, plan};
use seriatim_procedure::ir::Procedure;
use seriatim_procedure::plan::{Chopping, Options};
use support::build::{Build, procedure};
use support::table;

fn schema() -> Schema {
    let tables = [
        table("queue", "shop:u16 number:u32", &["shop", "number"]),
        table("ticket", "shop:u16 number:u32 state:u8", &["shop", "number"]),
        table("item", "shop:u16 number:u32 line:u8 state:u8", &["shop", "number", "line"]),
    ];
    Schema::new(tables.map(|builder| builder.finish().expect("valid")))
}

fn enter_as(body: impl FnOnce(&mut Build)) -> Procedure {
    procedure("enter", &["shop", "number", "lines"], |b| {
        body(b);
        b.return_("1");
    })
}

fn ticket(b: &mut Build) {
    b.insert("ticket", "shop, number, state: 0");
}

fn queue(b: &mut Build) {
    b.insert("queue", "shop, number");
}

fn enter() -> Procedure {
    enter_as(|b| {
        ticket(b);
        queue(b);
        b.for_("line", "lines", |b| b.insert("item", "shop, number, line, state: 0"));
    })
}

fn serve_as(body: impl FnOnce(&mut Build)) -> Procedure {
    procedure("serve", &["shop", "lines"], |b| {
        b.first("oldest", "queue", "shop");
        b.let_else("Some(oldest)", "oldest", |b| b.return_("0"));
        b.let_("number", "oldest.number");
        body(b);
        b.return_("1");
    })
}

fn work(b: &mut Build) {
    b.update_if("", "ticket", "shop, number", "row", |b| b.assign("row.state", "=", "1"));
    b.for_("line", "lines", |b| {
        b.update_if("", "item", "shop, number, line", "row", |b| b.assign("row.state", "=", "1"));
    });
}

fn serve() -> Procedure {
    serve_as(|b| {
        b.delete("queue", "shop, number");
        work(b);
    })
}

fn chopped(procedures: &[Procedure]) -> Chopping {
    let plans: Vec<_> = procedures.iter().map(|procedure| plan(procedure, &schema()).expect("accepted")).collect();
    chop(&plans, Options::OPTIMIZED).expect("a set")
}

/// Operations of `serve` that are claimed.
/// No operation is claimed.
const NONE: [usize; 0] = [];

fn claimed(procedures: &[Procedure]) -> Vec<usize> {
    chopped(procedures).claims.iter().map(|claim| claim.operation.operation).collect()
}

#[test]
fn rows_of_a_key_that_was_taken_are_claimed() {
    let found = chopped(&[enter(), serve()]);
    let pieces: Vec<&[usize]> =
        found.procedure("serve").expect("there").pieces.iter().map(|piece| &piece.operations[..]).collect();
    assert_eq!(pieces, [&[0, 1][..], &[2], &[3]]);
    assert!(found.claims[0].exists && !found.claims[1].exists);
    assert_eq!(claimed(&[serve()]), [2, 3], "without inserts no record is needed");
    let required = serve_as(|b| {
        b.delete("queue", "shop, number");
        b.update("", "ticket", "shop, number", "row", |b| b.assign("row.state", "=", "1"));
    });
    assert_eq!(chopped(&[enter(), required]).procedure("serve").expect("there").pieces.len(), 2, "its row exists");
}

#[test]
fn without_a_record_nothing_is_claimed() {
    let bare = enter_as(queue);
    assert_eq!(claimed(&[bare.clone(), serve()]), NONE);
    let again = Procedure { name: "again".into(), ..bare };
    assert_eq!(claimed(&[enter(), again, serve()]), NONE, "one that does not record is enough");
    let forget = procedure("forget", &["shop", "number"], |b| {
        b.delete_if("", "ticket", "shop, number");
        b.return_("1");
    });
    assert_eq!(claimed(&[enter(), forget, serve()]), NONE, "a record forgets nothing");
    let sometimes = enter_as(|b| {
        b.if_("number < 3", ticket, |_| {});
        queue(b);
    });
    assert_eq!(claimed(&[sometimes, serve()]), NONE);
    let early = enter_as(|b| {
        queue(b);
        b.if_("number < 3", |b| b.return_("0"), |_| {});
        ticket(b);
    });
    assert_eq!(claimed(&[early, serve()]), NONE, "an exit between the two");
    let other = enter_as(|b| {
        b.insert("ticket", "shop, number: lines, state: 0");
        queue(b);
    });
    assert_eq!(claimed(&[other, serve()]), NONE, "another key");
}

#[test]
fn only_an_operation_that_has_taken_the_key_has_a_claim() {
    let perhaps = serve_as(|b| {
        b.delete_if("", "queue", "shop, number");
        work(b);
    });
    assert_eq!(claimed(&[enter(), perhaps]), NONE, "a delete that may have found nothing");
    let before = serve_as(|b| {
        work(b);
        b.delete("queue", "shop, number");
    });
    assert_eq!(claimed(&[enter(), before]), NONE);
    let aside = serve_as(|b| {
        b.if_("number < 3", |b| b.delete("queue", "shop, number"), |_| {});
        work(b);
    });
    assert_eq!(claimed(&[enter(), aside]), NONE, "in another block");
    let other = serve_as(|b| {
        b.delete("queue", "shop, number");
        b.update_if("", "ticket", "shop, 7", "row", |b| b.assign("row.state", "=", "1"));
        b.update_if("", "item", "shop, number, 1", "row", |b| b.assign("row.state", "=", "1"));
    });
    assert_eq!(claimed(&[enter(), other]), [3], "another key");
}

#[test]
fn other_users_of_the_rows_still_conflict() {
    let touch = procedure("touch", &["shop", "number"], |b| {
        b.update_if("", "item", "shop, number, 1", "row", |b| b.assign("row.state", "=", "2"));
        b.return_("1");
    });
    let found = chopped(&[enter(), serve(), touch]);
    let pieces: Vec<&[usize]> =
        found.procedure("serve").expect("there").pieces.iter().map(|piece| &piece.operations[..]).collect();
    assert_eq!(pieces, [&[0, 1, 3][..], &[2]]);
}

/// A model of the argument: pieces of transactions on the rows of one key, in every interleaving.
mod model {
    use super::BTreeSet;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Row {
        Token,
        Record,
        Other,
    }

    /// The effect of a piece on a row. Inserts and deletes that find it there, or not there, end the transaction;
    /// changes do not.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Act {
        Insert(Row),
        Delete(Row),
        Change(Row),
    }

    pub(super) type Transaction = Vec<Vec<Act>>;

    #[derive(Clone, Default)]
    struct State {
        there: BTreeSet<Row>,
        next: Vec<usize>,
        failed: Vec<bool>,
        history: Vec<(usize, Row)>,
    }

    /// Whether some interleaving of the pieces is not serializable.
    pub(super) fn goes_wrong(transactions: &[Transaction], there: &[Row]) -> bool {
        let count = transactions.len();
        let state = State {
            there: there.iter().copied().collect(),
            next: vec![0; count],
            failed: vec![false; count],
            history: Vec::new(),
        };
        explore(transactions, &state)
    }

    fn explore(transactions: &[Transaction], state: &State) -> bool {
        let mut ended = true;
        for (at, transaction) in transactions.iter().enumerate() {
            let Some(piece) = transaction.get(state.next[at]).filter(|_| !state.failed[at]) else { continue };
            ended = false;
            let mut after = state.clone();
            after.next[at] += 1;
            for act in piece {
                let (row, possible) = match *act {
                    Act::Insert(row) => (row, after.there.insert(row)),
                    Act::Delete(row) => (row, after.there.remove(&row)),
                    Act::Change(row) => (row, true),
                };
                after.history.push((at, row));
                if !possible {
                    // It failed before anything of it was visible.
                    assert_eq!(state.next[at], 0, "only first pieces fail");
                    after = State { next: after.next, ..state.clone() };
                    after.failed[at] = true;
                    break;
                }
            }
            if explore(transactions, &after) {
                return true;
            }
        }
        ended && is_cyclic(transactions.len(), &state.history)
    }

    fn is_cyclic(count: usize, history: &[(usize, Row)]) -> bool {
        let mut before = vec![vec![false; count]; count];
        for (place, (earlier, row)) in history.iter().enumerate() {
            for (later, other) in &history[place + 1..] {
                before[*earlier][*later] |= row == other && earlier != later;
            }
        }
        for middle in 0..count {
            for from in 0..count {
                for to in 0..count {
                    before[from][to] |= before[from][middle] && before[middle][to];
                }
            }
        }
        (0..count).any(|at| before[at][at])
    }
}

use model::{Act, Row, Transaction, goes_wrong};

fn producer() -> Transaction {
    vec![vec![Act::Insert(Row::Record), Act::Insert(Row::Token), Act::Insert(Row::Other)]]
}

fn consumer() -> Transaction {
    vec![vec![Act::Delete(Row::Token)], vec![Act::Change(Row::Record)], vec![Act::Change(Row::Other)]]
}

#[test]
fn in_no_interleaving_do_claimed_operations_contradict_the_decisive_pieces() {
    let all = [producer(), producer(), consumer(), consumer()];
    let invariant: [&[Row]; 6] = [
        &[],
        &[Row::Other],
        &[Row::Record],
        &[Row::Record, Row::Other],
        &[Row::Token, Row::Record],
        &[Row::Token, Row::Record, Row::Other],
    ];
    for there in invariant {
        assert!(!goes_wrong(&all, there), "from {there:?}");
    }
}

#[test]
fn canary_each_premise_is_needed() {
    let all = [producer(), producer(), consumer(), consumer()];
    assert!(goes_wrong(&all, &[Row::Token]), "(3): a key of the token that is not in the record");
    let unrecorded = vec![vec![Act::Insert(Row::Token), Act::Change(Row::Other)]];
    assert!(goes_wrong(&[unrecorded.clone(), unrecorded, consumer(), consumer()], &[]), "(2)");
    let forget: Transaction = vec![vec![Act::Delete(Row::Record)]];
    let change = vec![vec![Act::Delete(Row::Token)], vec![Act::Change(Row::Other)]];
    let refill = vec![vec![Act::Insert(Row::Record), Act::Insert(Row::Token), Act::Change(Row::Other)]];
    assert!(goes_wrong(&[refill, forget, change.clone(), change], &[Row::Token, Row::Record]), "(1)");
}
