//! One hand-written history per anomaly, each of which must be refused under its own name, beside the closest
//! history that must be accepted.

use seriatim_history::{Anomaly, Promises, Saw, Summary, Violation, check, text};

fn judge(promises: &Promises, history: &str) -> Result<Summary, Violation> {
    let history = text::load(&format!("history 1\ntable 0 account\ntable 1 queue\n{history}")).expect("a history");
    check(&history, promises)
}

/// Refused under this name, in an explanation that says each of `words`.
#[track_caller]
fn refused_with(promises: &Promises, anomaly: Anomaly, words: &[&str], history: &str) {
    let violation = judge(promises, history).expect_err("a violation");
    let said = violation.to_string();
    assert_eq!(violation.anomaly, anomaly, "{said}");
    assert!(said.starts_with(anomaly.name()), "{said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is missing:\n{said}");
    }
    for (step, next) in violation.cycle.iter().zip(violation.cycle.iter().cycle().skip(1)) {
        assert_eq!(step.to, next.from, "{said}");
    }
}

#[track_caller]
fn refused(anomaly: Anomaly, words: &[&str], history: &str) {
    refused_with(&Promises::SERIALIZABLE, anomaly, words, history);
}

#[track_caller]
fn accepted_with(promises: &Promises, history: &str) -> Summary {
    judge(promises, history).unwrap_or_else(|violation| panic!("{violation}"))
}

#[track_caller]
fn accepted(history: &str) -> Summary {
    accepted_with(&Promises::SERIALIZABLE, history)
}

#[test]
fn the_empty_history_is_serializable() {
    assert_eq!(accepted("").order, []);
    accepted("transaction 1 session 0 from 0 to ?\n");
}

#[test]
fn dirty_write_g0() {
    refused(
        Anomaly::DirtyWrite,
        &["T1 wrote account/x at version 1, which T2 overwrote at version 2", "T2 is before T1"],
        "transaction 1 session 0 from 0 to ?
         write 0 x 1
         write 0 y 2
         transaction 2 session 0 from 0 to ?
         write 0 x 2
         write 0 y 1",
    );
}

#[test]
fn aborted_read_g1a() {
    let history = "transaction 1 session 0 from 0 to ?
                   read 0 x 7";
    refused(Anomaly::AbortedRead, &["T1 read account/x at version 7, which no committed"], history);
    accepted(&format!("initial unknown\n{history}"));
    accepted(&format!("initial 0 x 7\n{history}"));
    let above = "transaction 2 session 0 from 0 to ?
                 write 0 x 5";
    refused(Anomaly::AbortedRead, &[], &format!("initial unknown\n{history}\n{above}"));
    refused(Anomaly::Malformed, &[], &format!("initial 0 x 7\n{history}\n{above}"));
    refused(
        Anomaly::AbortedRead,
        &["T2's delete"],
        "transaction 2 session 0 from 0 to ?
         delete 0 x 5
         transaction 3 session 0 from 0 to ?
         read 0 x 5",
    );
    refused(
        Anomaly::AbortedRead,
        &["found account/x deleted as of version 6", "no committed transaction deleted version 5"],
        "transaction 2 session 0 from 0 to ?
         write 0 x 5
         transaction 3 session 0 from 0 to ?
         read 0 x absent@6",
    );
    // Two different initial versions of one key: at least one of them was never committed.
    refused(
        Anomaly::AbortedRead,
        &[],
        "initial unknown
         transaction 1 session 0 from 0 to ?
         read 0 x 1
         transaction 2 session 0 from 0 to ?
         read 0 x 2",
    );
}

#[test]
fn intermediate_read_g1b() {
    refused(
        Anomaly::IntermediateRead,
        &["T2 read account/x at version 1, which T1 itself replaced with 2"],
        "transaction 1 session 0 from 0 to ?
         write 0 x 1
         write 0 x 2
         transaction 2 session 0 from 0 to ?
         read 0 x 1",
    );
}

#[test]
fn circular_information_flow_g1c() {
    refused(
        Anomaly::CircularInformationFlow,
        &["T1 wrote account/x at version 1, which T2 read", "T2 wrote account/y at version 1, which T1 read"],
        "transaction 1 session 0 from 0 to ?
         write 0 x 1
         read 0 y 1
         transaction 2 session 0 from 0 to ?
         write 0 y 1
         read 0 x 1",
    );
}

#[test]
fn duplicate_versions_and_versions_out_of_order() {
    refused(
        Anomaly::DuplicateVersion,
        &["account/x was written at version 4", "T1", "T2"],
        "transaction 1 session 0 from 0 to ?
         write 0 x 4
         transaction 2 session 0 from 0 to ?
         delete 0 x 4",
    );
    // The same version of the same key in two tables is no duplicate.
    accepted(
        "transaction 1 session 0 from 0 to ?
         write 0 x 4
         transaction 2 session 0 from 0 to ?
         write 1 x 4",
    );
    refused(
        Anomaly::VersionOrder,
        &["T2 read account/x at version 4 and then wrote version 3"],
        "transaction 1 session 0 from 0 to ?
         write 0 x 4
         transaction 2 session 0 from 0 to ?
         read 0 x 4
         write 0 x 3",
    );
}

#[test]
fn malformed_histories_are_called_so() {
    refused(Anomaly::Malformed, &["T1 ended before it began"], "transaction 1 session 0 from 5 to 4");
    refused(Anomaly::Malformed, &["T1 was shown before"], "transaction 1 session 0 from 5 to 6 group 0 shown 5");
    refused(Anomaly::Malformed, &["a snapshot"], "transaction 1 session 0 from 5 to 6 snapshot 1 group 0");
    refused(Anomaly::Malformed, &["version 0"], "transaction 1 session 0 from 0 to ?\nwrite 0 x 0");
    let outside = "transaction 1 session 0 from 0 to ?
                   write 0 d 1
                   transaction 2 session 0 from 0 to ?
                   scan 0 [a d) d=1";
    refused(Anomaly::Malformed, &["account/d"], outside);
    accepted(&outside.replace("d)", "d]"));
}

#[test]
fn lost_update() {
    refused(
        Anomaly::LostUpdate,
        &["read account/x at version 1"],
        "initial 0 x 1
         transaction 1 session 0 from 0 to ?
         read 0 x 1
         write 0 x 2
         transaction 2 session 0 from 0 to ?
         read 0 x 1
         write 0 x 3",
    );
    // Two inserts that both found nothing lose one as well.
    refused(
        Anomaly::LostUpdate,
        &["did not find account/x, which T1 inserted at version 2"],
        "transaction 1 session 0 from 0 to ?
         read 0 x absent
         write 0 x 2
         transaction 2 session 0 from 0 to ?
         read 0 x absent
         write 0 x 3",
    );
}

#[test]
fn fuzzy_read() {
    refused(
        Anomaly::FuzzyRead,
        &["T1 read account/x at version 1, which T2 overwrote at version 2", "which T1 read"],
        "initial 0 x 1
         transaction 1 session 0 from 0 to ?
         read 0 x 1
         read 0 x 2
         transaction 2 session 0 from 0 to ?
         write 0 x 2",
    );
}

#[test]
fn read_skew() {
    refused(
        Anomaly::ReadSkew,
        &["T1 read account/x at version 1, which T2 overwrote", "T2 wrote account/y at version 2, which T1 read"],
        "initial 0 x 1
         initial 0 y 1
         transaction 1 session 0 from 0 to ?
         read 0 x 1
         read 0 y 2
         transaction 2 session 0 from 0 to ?
         write 0 x 2
         write 0 y 2",
    );
}

#[test]
fn write_skew() {
    refused(
        Anomaly::WriteSkew,
        &["T1 read account/x at version 1, which T2 overwrote", "T2 read account/y at version 1, which T1 overwrote"],
        "initial 0 x 1
         initial 0 y 1
         transaction 1 session 0 from 0 to ?
         read 0 x 1
         write 0 y 2
         transaction 2 session 0 from 0 to ?
         read 0 y 1
         write 0 x 2",
    );
}

#[test]
fn mutual_inserts_after_absent_reads_are_write_skew() {
    for (x, y) in [("absent", "absent"), ("absent@0", "absent"), ("absent@0", "absent@0")] {
        refused(
            Anomaly::WriteSkew,
            &["T1 did not find account/x", "T2 did not find account/y"],
            &format!(
                "transaction 1 session 0 from 0 to ?
                 read 0 x {x}
                 write 0 y 2
                 transaction 2 session 0 from 0 to ?
                 read 0 y {y}
                 write 0 x 2"
            ),
        );
    }
}

/// Fekete, O'Neil, O'Neil: A read-only transaction anomaly under snapshot isolation (SIGMOD Record 2004), the
/// bank example.
#[test]
fn read_only_anomaly() {
    let writers = "initial 0 checking 1
                   initial 0 savings 1
                   transaction 1 session 0 from 0 to ?
                   read 0 savings 1
                   write 0 savings 2
                   transaction 2 session 0 from 0 to ?
                   read 0 savings 1
                   read 0 checking 1
                   write 0 checking 2
                  ";
    accepted(writers);
    refused(
        Anomaly::ReadOnlyAnomaly,
        &["T3 read account/checking at version 1, which T2 overwrote"],
        &format!(
            "{writers}
             transaction 3 session 0 from 0 to ?
             read 0 savings 2
             read 0 checking 1"
        ),
    );
}

#[test]
fn phantom() {
    // Each counts the other's range, finds it empty and inserts into its own.
    refused(
        Anomaly::Phantom,
        &[
            "T1 did not find account/b1 in a scan, which T2 inserted at version 2",
            "T2 did not find account/a1 in a scan",
        ],
        "transaction 1 session 0 from 0 to ?
         scan 0 [b c)
         write 0 a1 2
         transaction 2 session 0 from 0 to ?
         scan 0 [a b)
         write 0 b1 2",
    );
    // One transaction counts twice, and another inserts in between.
    refused(
        Anomaly::Phantom,
        &["T1 did not find account/k in a scan, which T2 inserted at version 2"],
        "transaction 1 session 0 from 0 to ?
         scan 0 * *
         scan 0 * * k=2
         transaction 2 session 0 from 0 to ?
         write 0 k 2",
    );
    // A tombstone that is known and the reinsert after it.
    refused(
        Anomaly::Phantom,
        &["T2 did not find account/k (deleted at version 3) in a scan, which T3 wrote at version 4"],
        "initial 0 k 1
         initial 0 l 1
         transaction 1 session 0 from 0 to ?
         delete 0 k 3
         transaction 2 session 0 from 0 to ?
         scan 0 [a k] k=absent@3
         read 0 l 5
         transaction 3 session 0 from 0 to ?
         write 0 k 4
         write 0 l 5",
    );
    // The same with one of the two scans ending before the insert: serializable.
    accepted(
        "transaction 1 session 0 from 0 to ?
         scan 0 (b1 c)
         write 0 a1 2
         transaction 2 session 0 from 0 to ?
         scan 0 [a b)
         write 0 b1 2",
    );
    // The same keys in another table.
    accepted(
        "transaction 1 session 0 from 0 to ?
         scan 1 * *
         write 0 a1 2
         transaction 2 session 0 from 0 to ?
         scan 0 [a b)
         write 0 b1 2",
    );
}

#[test]
fn own_writes_do_not_hide_what_was_there_before() {
    // A scan after the transaction's own insert or delete says nothing about that key.
    accepted(
        "initial 0 a 1
         transaction 1 session 0 from 0 to ?
         write 0 b 2
         delete 0 a 2
         scan 0 * * b=2",
    );
    // A scan that claims the absence is refused.
    refused(
        Anomaly::MissingRow,
        &["T1 did not find account/a"],
        "initial 0 a 1
         transaction 1 session 0 from 0 to ?
         delete 0 a 2
         scan 0 * * a=absent",
    );
}

#[test]
fn a_row_that_was_always_there_cannot_be_missing() {
    let history = "initial 0 a 1
                   transaction 1 session 0 from 0 to ?
                   write 0 a 2
                   transaction 2 session 0 from 0 to ?
                   scan 0 [a b]";
    refused(Anomaly::MissingRow, &["T2 did not find account/a"], history);
    // A row that was deleted at some time can be missing.
    accepted(&format!("{history}\ntransaction 3 session 0 from 0 to ?\ndelete 0 a 3"));
}

#[test]
fn an_ambiguous_absence_is_placed_wherever_it_fits() {
    // x lives in versions 1-2 and 5-6; T9 found it absent, and saw what T2 (delete at 3), T4 or T6 wrote.
    let lives = "transaction 1 session 0 from 0 to ?
                 write 0 x 1
                 write 0 one 1
                 transaction 2 session 0 from 0 to ?
                 delete 0 x 3
                 write 0 two 1
                 transaction 4 session 0 from 0 to ?
                 write 0 x 5
                 write 0 four 1
                 transaction 6 session 0 from 0 to ?
                 delete 0 x 7
                 write 0 six 1
                 transaction 9 session 0 from 0 to ?
                 read 0 x absent
                 ";
    for rest in ["", "read 0 two 1\nread 0 four absent", "read 0 one absent@0", "read 0 six 1", "read 0 four 1"] {
        accepted(&format!("{lives}{rest}"));
    }
    for rest in ["read 0 one 1\nread 0 two absent@0", "read 0 four 1\nread 0 six absent@0"] {
        let anomaly = judge(&Promises::SERIALIZABLE, &format!("{lives}{rest}")).expect_err("no place").anomaly;
        assert_eq!(anomaly, Anomaly::ReadSkew);
    }
}

#[test]
fn a_search_that_must_undo_a_choice() {
    // T9 misses x and y, each of which lived once. x: before T1 or after T2. y: before T3 or after T4. T1 ->
    // T3 (a), so that "after T4" and "before T1" exclude each other. T9 sees b of T3, so y forces "after T4",
    // and that forces "after T2".
    let history = "transaction 1 session 0 from 0 to ?
                   write 0 x 1
                   write 0 a 1
                   transaction 2 session 0 from 0 to ?
                   delete 0 x 2
                   transaction 3 session 0 from 0 to ?
                   read 0 a 1
                   write 0 y 1
                   write 0 b 1
                   transaction 4 session 0 from 0 to ?
                   delete 0 y 2
                   write 0 c 1
                   transaction 9 session 0 from 0 to ?
                   scan 0 [x y]
                   read 0 b 1
                   ";
    accepted(history);
    refused(Anomaly::Phantom, &["account/y"], &format!("{history}\nread 0 c absent@0"));
}

#[test]
fn real_time_order_when_promised() {
    let stale = "initial 0 x 1
                 transaction 1 session 0 from 10 to 20
                 write 0 x 2
                 transaction 2 session 1 from 30 to 40
                 read 0 x 1";
    accepted(stale);
    let real_time = Promises { real_time: true, ..Promises::SERIALIZABLE };
    refused_with(&real_time, Anomaly::StaleRead, &["T1 ended (at 20) before T2 began (at 30)"], stale);
    accepted_with(&real_time, &stale.replace("from 30", "from 20"));
    refused_with(
        &real_time,
        Anomaly::RealTimeOrder,
        &["T2 wrote account/x at version 2, which T1 overwrote at version 3"],
        "transaction 1 session 0 from 10 to 20
         write 0 x 3
         transaction 2 session 1 from 30 to 40
         write 0 x 2",
    );
    // A scan that misses what was inserted before it began.
    refused_with(
        &real_time,
        Anomaly::StaleRead,
        &["T2 did not find account/x in a scan"],
        "transaction 1 session 0 from 10 to 20
         write 0 x 3
         transaction 3 session 0 from 21 to 22
         transaction 2 session 1 from 30 to 40
         scan 0 * *",
    );
}

#[test]
fn snapshots_are_as_fresh_as_they_promise() {
    let at = |instant: u64| {
        format!(
            "initial 0 x 1
             transaction 1 session 0 from 10 to 20
             write 0 x 2
             transaction 2 session 1 from 30 to 40 snapshot {instant}
             read 0 x 1"
        )
    };
    accepted_with(&Promises::STRICT, &at(20));
    refused_with(&Promises::STRICT, Anomaly::StaleRead, &["before the snapshot of T2 (as of 21)"], &at(21));
    accepted_with(&Promises { snapshots: false, ..Promises::STRICT }, &at(21));
    // An instant after the begin promises no more than the begin.
    refused_with(&Promises::STRICT, Anomaly::StaleRead, &[], &at(100));
    // A transaction that begins after a snapshot ended need not come before it.
    refused_with(
        &Promises::STRICT,
        Anomaly::RealTimeOrder,
        &["T2 ended (at 40) before T1 began (at 50)"],
        "transaction 1 session 0 from 50 to 60
         write 0 x 2
         transaction 2 session 1 from 30 to 40 snapshot 0
         read 0 x 2",
    );
}

/// A row is read at its first version after it was overwritten; other groups may see the first group's writes
/// from 50 on.
#[test]
fn real_time_order_by_groups() {
    let late = |reader: &str| {
        format!(
            "initial 0 x 1
             transaction 1 session 0 from 10 to 20 group 0 shown 50
             write 0 x 2
             transaction 2 session 1 {reader}
             read 0 x 1"
        )
    };
    for promises in [Promises::STRICT, Promises { sessions: true, ..Promises::SERIALIZABLE }] {
        accepted_with(&promises, &late("from 30 to 40 group 1"));
        accepted_with(&promises, &late("from 50 to 60 group 1"));
        accepted_with(&promises, &late("from 49 to 60 group 1").replace("session 1", "session 0"));
    }
    let shown = "T1 was shown to other groups (at 50) before T2 began (at 51)";
    let ended = "T1 ended (at 20) before T2 began (at 30)";
    for (words, reader) in [
        (shown, "from 51 to 60 group 1"),
        (ended, "from 30 to 40 group 0 shown 50"),
        (ended, "from 30 to 40"),
        ("T1 ended (at 20) before the snapshot of T2 (as of 30)", "from 30 to 40 snapshot 30"),
    ] {
        refused_with(&Promises::STRICT, Anomaly::StaleRead, &[words], &late(reader));
    }
    // All transactions see one without a group.
    let without = late("from 30 to 40 group 0 shown 50").replace("to 20 group 0 shown 50", "to 20");
    refused_with(&Promises::STRICT, Anomaly::StaleRead, &[ended], &without);
    // Of the same session.
    let sessions = Promises { sessions: true, ..Promises::SERIALIZABLE };
    for reader in ["from 50 to 60 group 1", "from 20 to 40 group 0 shown 50", "from 20 to 40"] {
        let history = late(reader).replace("session 1", "session 0");
        refused_with(&sessions, Anomaly::SessionOrder, &["T1 came before T2 in their session"], &history);
    }
    // Real-time order within a group, and between groups: an absence that would have to be placed before it.
    let absent = "transaction 1 session 0 from 10 to 20 group 0 shown 50
                  write 0 x 1
                  transaction 2 session 1 from 30 to 40 group 0 shown 50
                  read 0 x absent";
    refused_with(&Promises::STRICT, Anomaly::StaleRead, &[ended], absent);
    accepted_with(&Promises::STRICT, &absent.replace("40 group 0", "40 group 1"));
}

#[test]
fn session_order_when_promised() {
    let history = "initial 0 x 1
                   transaction 1 session 5 from 10 to 20
                   write 0 x 2
                   transaction 2 session 5 from 20 to 40
                   read 0 x 1";
    accepted(history);
    let sessions = Promises { sessions: true, ..Promises::SERIALIZABLE };
    refused_with(&sessions, Anomaly::SessionOrder, &["T1 came before T2 in their session"], history);
    accepted_with(&sessions, &history.replace("session 5 from 20", "session 6 from 20"));
    accepted_with(&sessions, &history.replace("to 40", "to 40 snapshot 0"));
}

#[test]
fn the_shortest_cycle_is_reported() {
    // A ring of five write skews with a chord that makes a ring of three.
    let mut history = String::new();
    for i in 0..5 {
        history += &format!("initial 0 k{i} 1\n");
    }
    for i in 0..5 {
        history += &format!("transaction {i} session 0 from 0 to ?\nread 0 k{i} 1\nwrite 0 k{} 2\n", (i + 4) % 5);
        if i == 2 {
            history += "read 0 k4 1\n";
        }
    }
    let violation = judge(&Promises::SERIALIZABLE, &history).expect_err("a ring");
    assert_eq!((violation.anomaly, violation.cycle.len()), (Anomaly::WriteSkew, 3), "{violation}");
}

#[test]
fn the_order_that_is_found_explains_the_history() {
    let summary = accepted(
        "initial 0 x 1
         transaction 1 session 0 from 0 to ?
         read 0 x 2
         transaction 2 session 0 from 0 to ?
         read 0 x 1
         write 0 x 2
         transaction 3 session 0 from 0 to ?
         read 0 x 1
         scan 0 [y z]
         transaction 4 session 0 from 0 to ?
         write 0 y 1
         read 0 x 1",
    );
    let place = |t: u32| summary.order.iter().position(|&other| other == t).expect("all are placed");
    assert!(place(2) < place(3) && place(3) < place(1) && place(1) < place(0), "{:?}", summary.order);
    assert_eq!((summary.transactions, summary.versions, summary.keys, summary.scans), (4, 2, 2, 1));
}

#[test]
fn saw_values_are_plain() {
    assert_ne!(Saw::Absent, Saw::AbsentAt(0));
}

/// Rows of two columns beside the key, each a group.
const GROUPS: &str = "group 0 columns 1\ngroup 0 columns 2\n";

/// Refused by rows and accepted by groups.
#[track_caller]
fn accepted_by_groups_only(history: &str) {
    judge(&Promises::SERIALIZABLE, history).expect_err("a violation by rows");
    accepted(&format!("{GROUPS}{history}"));
}

/// Refused by groups as well as by rows.
#[track_caller]
fn refused_by_groups(anomaly: Anomaly, words: &[&str], history: &str) {
    refused(anomaly, words, &format!("{GROUPS}{history}"));
    judge(&Promises::SERIALIZABLE, history).expect_err("what groups refuse, rows refuse");
}

/// Rows x and y at version 1, and transactions of these facts, which `; ` separates.
fn transactions(facts: &[&str]) -> String {
    let mut history = "initial 0 x 1\ninitial 0 y 1\n".to_owned();
    for (at, facts) in facts.iter().enumerate() {
        history += &format!("transaction {} session 0 from 0 to ?\n{}\n", at + 1, facts.replace("; ", "\n"));
    }
    history
}

#[test]
fn disjoint_columns_of_a_row_do_not_conflict() {
    let writers =
        transactions(&["read 0 x 1 columns 1; write 0 x 2 columns 1", "read 0 x 1 columns 2; write 0 x 3 columns 2"]);
    accepted_by_groups_only(&writers);
    // Each pair has a reader that saw one update and not the other: no order of rows explains both.
    let [first, second] = ["write 0 x 2 columns 1", "write 0 x 3 columns 2"];
    let saw_second = "read 0 x 3 columns 2; read 0 x 1 columns 1";
    accepted_by_groups_only(&transactions(&[first, second, saw_second, "read 0 x 2 columns 1"]));
    // One reader that saw the first and not the second, and another the other way round.
    let fork = transactions(&[first, second, saw_second, "read 0 x 2 columns 1; read 0 x 1 columns 2"]);
    refused_by_groups(Anomaly::ReadOnlyAnomaly, &["account[1]/x", "account[2]/x"], &fork);
    // The columns of no group form one group.
    let others = writers.replace("columns 1", "columns 0").replace("columns 2", "columns 7");
    refused_by_groups(Anomaly::LostUpdate, &["account[others]/x"], &others);
    // One TID for the row: a column was seen at its newest version at or below that TID.
    accepted(&format!("{GROUPS}{}", transactions(&[first, second, "read 0 x 3 columns 1,2"])));
}

#[test]
fn anomalies_within_a_group_are_refused_by_groups() {
    let cases: [(Anomaly, &[&str], &[&str]); 6] = [
        (
            Anomaly::LostUpdate,
            &["T2 read account[1]/x at version 1, which T1 overwrote at version 2"],
            &["read 0 x 1 columns 1; write 0 x 2 columns 1", "read 0 x 1 columns 1; write 0 x 3 columns 1"],
        ),
        // Canary: anti-dependencies between groups of one row.
        (
            Anomaly::WriteSkew,
            &["T1 read account[1]/x at version 1, which T2 overwrote", "T2 read account[2]/x at version 1, which T1"],
            &["read 0 x 1 columns 1; write 0 x 2 columns 2", "read 0 x 1 columns 2; write 0 x 3 columns 1"],
        ),
        // Canary: version order in a group.
        (
            Anomaly::DirtyWrite,
            &["account[1]/x", "account[2]/y"],
            &["write 0 x 2 columns 1; write 0 y 3 columns 2", "write 0 x 3 columns 1; write 0 y 2 columns 2"],
        ),
        // Canary: reads-from in a group.
        (
            Anomaly::CircularInformationFlow,
            &["T1 wrote account[1]/x at version 2, which T2 read", "T2 wrote account[2]/y at version 2, which T1 read"],
            &["write 0 x 2 columns 1; read 0 y 2 columns 2", "write 0 y 2 columns 2; read 0 x 2 columns 1"],
        ),
        (Anomaly::AbortedRead, &["T1 read account/x at version 4, which no committed"], &["read 0 x 4 columns 1"]),
        // A scan uses columns of each row: a reader that sees one update and not the one before it.
        (
            Anomaly::ReadSkew,
            &["account[2]/x", "account[2]/y"],
            &["write 0 x 2 columns 2; write 0 y 2 columns 2", "scan 0 * * columns 2 x=1 y=2"],
        ),
    ];
    for (anomaly, words, facts) in cases {
        refused_by_groups(anomaly, words, &transactions(facts));
    }
}

#[test]
fn every_group_sees_insertions_and_deletions() {
    // Canary: a read of a column, or of none, requires that the row was not yet deleted.
    for columns in ["1", "none"] {
        refused_by_groups(
            Anomaly::WriteSkew,
            &["T1 read account/x at version 1, which T2 deleted at version 2"],
            &format!(
                "initial 0 x 1
                 initial 0 y 1
                 transaction 1 session 0 from 0 to ?
                 read 0 x 1 columns {columns}
                 write 0 y 2 columns 1
                 transaction 2 session 0 from 0 to ?
                 read 0 y 1 columns 1
                 delete 0 x 2"
            ),
        );
    }
    // Canary: so does an update, although it is listed without a read and names no column.
    for columns in ["1", "none"] {
        refused(
            Anomaly::LostUpdate,
            &["T2 updated account/x at version 3, but the row was deleted at version 2"],
            &format!(
                "{GROUPS}initial 0 x 1
                 transaction 1 session 0 from 0 to ?
                 delete 0 x 2
                 transaction 2 session 0 from 0 to ?
                 write 0 x 3 columns {columns}"
            ),
        );
        let history = format!(
            "{GROUPS}initial 0 x 1
             initial 0 y 1
             transaction 1 session 0 from 0 to ?
             delete 0 x 3
             write 0 y 2 columns 1
             transaction 2 session 0 from 0 to ?
             read 0 y 2 columns 1
             write 0 x 2 columns {columns}"
        );
        judge(&Promises::SERIALIZABLE, &history).expect_err("T2 came after the deletion and found the row");
    }
    let nothing = format!("{GROUPS}transaction 1 session 0 from 0 to ?\nwrite 0 x 3 columns 1");
    refused(Anomaly::AbortedRead, &["T1 updated account/x at version 3, but no committed"], &nothing);
    accepted(&format!("initial unknown\n{nothing}"));
    // An insertion after a deletion writes every column.
    let reborn = "initial 0 x 1
                  transaction 1 session 0 from 0 to ?
                  write 0 x 2 columns 1
                  transaction 2 session 0 from 0 to ?
                  delete 0 x 3
                  transaction 3 session 0 from 0 to ?
                  read 0 x absent@3
                  write 0 x 4
                  transaction 4 session 0 from 0 to ?
                  read 0 x 2 columns 1
                  read 0 x 1 columns 2
                  transaction 5 session 0 from 0 to ?
                  read 0 x 4 columns 1
                  ";
    accepted(&format!("{GROUPS}{reborn}"));
    for seen in ["read 0 x 1 columns 2", "read 0 x 2 columns 1", "read 0 x 3 columns 1", "read 0 x absent@3"] {
        let history = format!("{GROUPS}{reborn}{seen}");
        judge(&Promises::SERIALIZABLE, &history).expect_err("the row before, or none, beside the row after");
    }
    // Rows come and go by insertions and deletions only.
    refused_by_groups(
        Anomaly::MissingRow,
        &["T2 did not find account/x"],
        "initial 0 x 1
         transaction 1 session 0 from 0 to ?
         write 0 x 2 columns 1
         transaction 2 session 0 from 0 to ?
         scan 0 * * columns 2",
    );
    // A scan after the transaction's own update says nothing about that key.
    accepted(&format!(
        "{GROUPS}initial 0 x 1
         transaction 1 session 0 from 0 to ?
         write 0 x 2 columns 1
         scan 0 * *"
    ));
}

#[test]
fn groups_that_overlap_are_called_malformed() {
    let fact = "transaction 1 session 0 from 0 to ?\nwrite 0 x 1";
    refused(Anomaly::Malformed, &["column groups of account overlap"], &format!("{GROUPS}group 0 columns 2,3\n{fact}"));
    refused(Anomaly::Malformed, &["or one is empty"], &format!("group 0 columns none\n{fact}"));
    refused(Anomaly::Malformed, &["two initial rows"], &format!("{GROUPS}initial 0 x 1\ninitial 0 x 1\n{fact}"));
    refused(Anomaly::Malformed, &["one above"], &format!("{GROUPS}initial 0 x 1\n{fact}"));
}
