//! Statements that wait for rows, in two or more sessions of one thread: under every protocol.

use std::task::Poll;
use std::time::Duration;

use seriatim::catalog::expression::Datum;
use seriatim::{Database, WaitEnd, available_protocols, thread};
use seriatim_sql::{Answer, Failure, Session, SqlState, Status};

fn protocols() -> impl Iterator<Item = &'static str> {
    available_protocols().iter().filter(|protocol| !protocol.requirements.plan).map(|protocol| protocol.name)
}

/// A client, which sends one text after the other.
struct Client {
    session: Session,
    text: String,
}

type Answered = Result<Vec<Answer>, Failure>;

impl Client {
    /// Sends a text; none if it waits.
    fn send(&mut self, text: &str) -> Option<Answered> {
        self.text = text.to_owned();
        self.go_on()
    }

    fn go_on(&mut self) -> Option<Answered> {
        match self.session.poll_execute(&self.text) {
            Poll::Ready(answered) => Some(answered),
            Poll::Pending => None,
        }
    }

    fn waits(&mut self, text: &str) {
        if let Some(answered) = self.send(text) {
            panic!("{text} does not wait: {answered:?}");
        }
    }

    fn is_granted(&self) -> bool {
        let Some((mut wait, _)) = self.session.waiting() else { return true };
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(&mut wait).poll(&mut context).is_ready()
    }

    /// What the text that waited gives, now that it has the lock.
    fn granted(&mut self) -> String {
        assert!(self.is_granted(), "{} still waits", self.text);
        said(self.go_on().unwrap_or_else(|| panic!("{} waits again", self.text)))
    }

    fn run(&mut self, text: &str) -> String {
        said(self.send(text).unwrap_or_else(|| panic!("{text} waits")))
    }
}

/// The last answer, or the error: state, message and detail.
fn said(answered: Answered) -> String {
    match answered {
        Err(Failure { error, .. }) => format!("{} {error}", error.state),
        Ok(answers) => match answers.last() {
            Some(Answer::Rows { rows, .. }) => {
                let row =
                    |row: &Vec<Datum<'_>>| row.iter().map(|value| value.to_text(None)).collect::<Vec<_>>().join("|");
                rows.iter().map(row).collect::<Vec<_>>().join(" ")
            }
            Some(Answer::Done(tag)) => tag.clone(),
            other => format!("{other:?}"),
        },
    }
}

/// Clients of a database with a table of four rows.
fn clients<const COUNT: usize>(protocol: &str) -> [Client; COUNT] {
    let database = Database::builder().protocol(protocol).open().expect("there is memory");
    let mut clients = [(); COUNT].map(|()| Client { session: Session::new(database.clone()), text: String::new() });
    let table = "create table t (id int primary key, n int not null, word text)";
    assert_eq!(clients[0].run(table), "CREATE TABLE", "{protocol}");
    assert_eq!(clients[0].run("insert into t values (1, 0), (2, 0), (3, 0), (4, 0)"), "INSERT 0 4");
    clients
}

#[test]
fn a_change_waits_for_a_change_and_is_made_to_its_result() {
    let changes = [
        "update t set n = n + 1 where id = 1",
        "update t set n = n + 1 where id = 1 and word is null",
        "update t set n = n + 1 where word is null and id + 0 = 1",
        "insert into t values (1, 0) on conflict (id) do update set n = t.n + 1",
        "update t set n = t.n + 1 from t as other where t.id = 1 and other.id = 2",
    ];
    for protocol in protocols() {
        for change in changes {
            for explicit in [true, false] {
                let [mut a, mut b] = clients(protocol);
                let what = format!("{protocol}, explicit: {explicit}: {change}");
                eprintln!("{what}");
                a.run("begin");
                assert!(a.run(change).ends_with(" 1"), "{what}");
                if explicit {
                    b.run("begin");
                }
                b.waits(change);
                assert!(!b.is_granted() && b.go_on().is_none(), "{what}: polled before its time, it still waits");
                assert_eq!(a.run("commit"), "COMMIT", "{what}: the other has not changed it");
                assert!(b.granted().ends_with(" 1"), "{what}");
                assert_eq!(b.session.status(), if explicit { Status::Open } else { Status::Idle });
                assert_eq!(b.run("select n from t where id = 1"), "2", "{what}");
                if explicit {
                    assert_eq!(b.run("commit"), "COMMIT", "{what}");
                }
                assert_eq!(a.run("select n from t where id = 1"), "2", "{what}");
            }
        }
    }
}

#[test]
fn rows_that_a_change_joins_are_not_locked() {
    let changes = [
        "update t set n = 5 from t as other where t.id = 1 and other.id = 2",
        "delete from t using t as other where t.id = 1 and other.id = 2",
    ];
    for protocol in protocols() {
        for change in changes {
            let [mut a, mut b] = clients(protocol);
            a.run("begin");
            assert!(a.run(change).ends_with(" 1"), "{protocol}: {change}");
            assert_eq!(b.run("begin; select n from t where id = 2 for update; rollback"), "ROLLBACK", "{protocol}");
            b.waits("select n from t where id = 1 for update");
            a.run("rollback");
            assert_eq!(b.granted(), "0", "{protocol}: {change}");
        }
    }
}

#[test]
fn for_update_waits_and_sees_the_new_value_or_that_the_row_is_gone() {
    let queries = [
        "select n from t where id = 1 for update",
        "select n from t where n >= 0 order by id limit 1 for update",
        "select n from t where id = 1 limit 5 for share",
        "select n from t as one where id = 1 for no key update of one",
    ];
    for protocol in protocols() {
        for query in queries {
            let [mut a, mut b, mut c] = clients(protocol);
            let what = format!("{protocol}: {query}");
            a.run("begin; update t set n = 7 where id = 1");
            b.run("begin");
            b.waits(query);
            // Who does not want the row does not wait.
            assert_eq!(c.run("begin; select n from t where id = 2 for update; commit"), "COMMIT", "{what}");
            assert_eq!(a.run("commit"), "COMMIT");
            assert_eq!(b.granted(), "7", "{what}");
            // It has the row locked.
            a.run("begin");
            a.waits("delete from t where id = 1");
            assert_eq!(b.run("commit"), "COMMIT", "{what}");
            assert_eq!(a.granted(), "DELETE 1");
            b.run("begin");
            b.waits("select n from t where id = 1 for update");
            assert_eq!(a.run("commit"), "COMMIT");
            assert_eq!(b.granted(), "", "{what}: the row is gone");
            assert_eq!(b.run("commit"), "COMMIT", "{what}");
        }
    }
}

#[test]
fn a_rolled_back_change_was_none() {
    for protocol in protocols() {
        let [mut a, mut b] = clients(protocol);
        a.run("begin; update t set n = 7 where id = 1");
        b.run("begin");
        b.waits("update t set n = n + 1 where id = 1");
        assert_eq!(a.run("rollback"), "ROLLBACK");
        assert_eq!(b.granted(), "UPDATE 1", "{protocol}");
        assert_eq!(b.run("commit; select n from t where id = 1"), "1", "{protocol}");
    }
}

#[test]
fn what_was_read_before_a_wait_and_has_changed_is_a_conflict() {
    for protocol in protocols() {
        let [mut a, mut b] = clients(protocol);
        b.run("begin");
        assert_eq!(b.run("select n from t where id = 1"), "0");
        a.run("begin");
        // Under locks of the protocol it may be refused.
        if a.run("update t set n = 7 where id = 1") != "UPDATE 1" {
            continue;
        }
        b.waits("update t set n = n + 1 where id = 1");
        if a.run("commit") != "COMMIT" {
            continue;
        }
        let mut ended = b.granted();
        if ended == "UPDATE 1" {
            ended = b.run("commit");
        }
        assert!(ended.starts_with("40001 "), "{protocol}: {ended}");
        b.run("rollback");
        assert_eq!(b.run("select n from t where id = 1"), "7", "{protocol}");
    }
    // Locks of rows come before those of the default protocol, which finds the conflict at once.
    let [mut a, mut b] = clients("auto");
    assert_eq!(b.run("begin; select n from t where id = 1"), "0");
    a.run("begin; update t set n = 7 where id = 1");
    b.waits("update t set n = n + 1 where id = 1");
    a.run("commit");
    let ended = b.granted();
    assert!(ended.starts_with("40001 ") && ended.contains("table t"), "{ended}");
    assert!(ended.contains(&format!("waited for process {}.", a.session.number())), "{ended}");
    assert_eq!(b.session.status(), Status::Failed);
}

#[test]
fn the_last_of_those_who_wait_for_each_other_is_refused() {
    for protocol in protocols() {
        let [mut a, mut b, mut c] = clients(protocol);
        for (client, id) in [(&mut a, 1), (&mut b, 2), (&mut c, 3)] {
            let locked = client.run(&format!("begin; select id from t where id = {id} for update"));
            assert_eq!(locked, id.to_string(), "{protocol}");
        }
        a.waits("select id from t where id = 2 for update");
        b.waits("select id from t where id = 3 for update");
        let refused = c.run("select id from t where id = 1 for update");
        assert!(refused.starts_with("40P01 deadlock detected\nDETAIL:  Process "), "{protocol}: {refused}");
        assert_eq!(refused.matches("waits for the row (id ").count(), 3, "{protocol}: {refused}");
        assert_eq!(c.run("select 1").split(' ').next(), Some("25P02"));
        // What has failed holds nothing.
        assert_eq!(b.granted(), "3", "{protocol}");
        assert!(!a.is_granted());
        assert_eq!(b.run("commit"), "COMMIT", "{protocol}");
        assert_eq!(a.granted(), "2", "{protocol}");
        assert_eq!(a.run("commit"), "COMMIT", "{protocol}");
        assert_eq!(c.run("rollback"), "ROLLBACK");
    }
}

#[test]
fn nowait_and_lock_timeout_refuse() {
    for protocol in protocols() {
        eprintln!("{protocol}");
        let [mut a, mut b] = clients(protocol);
        a.run("begin; select n from t where id = 1 for update");
        b.run("begin");
        let refused = b.run("select n from t where id = 1 for update nowait");
        assert_eq!(refused, "55P03 could not obtain lock on row in relation \"t\"", "{protocol}");
        assert_eq!(b.session.status(), Status::Failed);
        b.run("rollback");
        assert_eq!(b.run("select n from t where id = 1 for update nowait").split(' ').next(), Some("55P03"));
        b.run("set lock_timeout = '3ms'");
        b.run("begin");
        b.waits("update t set n = 1 where id = 1");
        assert_eq!(b.session.waiting().and_then(|(_, limit)| limit), Some(Duration::from_millis(3)));
        // Blocked, it waits for so long.
        let refused = b.session.execute("update t set n = 1 where id = 1").map(drop).expect_err("a has it");
        assert_eq!(refused.error.state, SqlState::LOCK_NOT_AVAILABLE);
        assert_eq!(refused.error.message, "canceling statement due to lock timeout");
        assert_eq!((b.session.status(), b.run("rollback")), (Status::Failed, "ROLLBACK".to_owned()));
        // Outside a transaction, too.
        let refused = b.session.execute("update t set n = 1 where id = 1").map(drop).expect_err("a has it");
        assert_eq!(refused.error.state, SqlState::LOCK_NOT_AVAILABLE);
        assert_eq!(b.session.status(), Status::Idle);
        assert_eq!(a.run("commit"), "COMMIT", "{protocol}");
        assert_eq!(b.run("select n from t where id = 1 for update nowait"), "0", "{protocol}");
    }
}

#[test]
fn those_who_skip_locked_rows_share_them_out() {
    let take = "select id from t where n = 0 order by id limit 2 for update skip locked";
    for protocol in protocols() {
        let [mut a, mut b, mut c] = clients(protocol);
        let took = [&mut a, &mut b, &mut c].map(|client| client.run(&format!("begin; {take}")));
        assert_eq!(took, ["1 2", "3 4", ""], "{protocol}");
        // Where the place of a transaction is its begin, later reads of others count.
        if ["hto", "cicada"].contains(&protocol) {
            continue;
        }
        assert_eq!(a.run("update t set n = 1 where id in (1, 2); commit"), "COMMIT", "{protocol}");
        // That it has seen rows of others is forgotten: it did not get them.
        let done = b.run("delete from t where id = 3; update t set n = 1 where id = 4; commit");
        assert_eq!(done, "COMMIT", "{protocol}");
        assert_eq!(c.run("commit"), "COMMIT", "{protocol}");
        assert_eq!(c.run("select id, n from t order by id"), "1|1 2|1 4|1", "{protocol}");
    }
}

#[test]
fn what_cannot_be_locked_is_refused() {
    let [mut a] = clients("auto");
    let refused = [
        ("select n, count(*) from t group by n for update", "0A000 FOR UPDATE is not allowed with GROUP BY clause"),
        ("select count(*) from t for share", "0A000 FOR SHARE is not allowed with aggregate functions"),
        ("select distinct n from t for update", "0A000 FOR UPDATE is not allowed with DISTINCT clause"),
        (
            "select n from t union select n from t for update",
            "0A000 FOR UPDATE is not allowed with UNION/INTERSECT/EXCEPT",
        ),
        ("select n from t for update of u", "42P01 relation \"u\" in FOR UPDATE clause not found in FROM clause"),
        ("begin read only; select n from t for update", "25006 cannot write in a read-only transaction"),
    ];
    for (text, says) in refused {
        assert_eq!(a.run(text), says, "{text}");
        a.run("rollback");
    }
}

#[test]
fn a_savepoint_keeps_the_locks_before_it() {
    let [mut a, mut b] = clients("auto");
    a.run("begin; select n from t where id = 1 for update; savepoint s; select n from t where id = 2 for update");
    let [first, second] = [1, 2].map(|id| format!("select n from t where id = {id} for update nowait"));
    assert_eq!(b.run(&second).split(' ').next(), Some("55P03"));
    a.run("rollback to s");
    assert_eq!(b.run(&second), "0");
    assert_eq!(b.run(&first).split(' ').next(), Some("55P03"));
    assert_eq!(a.run("commit"), "COMMIT");
    assert_eq!(b.run(&first), "0");
}

#[test]
fn a_wait_ends_when_it_is_cancelled_and_with_its_session() {
    for protocol in protocols() {
        let [mut a, mut b, mut c, mut d] = clients(protocol);
        a.run("begin; select n from t where id = 1 for update");
        b.run("begin");
        b.waits("update t set n = 1 where id = 1");
        c.run("begin");
        c.waits("update t set n = 2 where id = 1");
        d.waits("update t set n = n + 5 where id = 1");
        b.session.canceller().cancel();
        assert_eq!(b.granted(), "57014 canceling statement due to user request", "{protocol}");
        assert_eq!(b.session.status(), Status::Failed);
        drop(c);
        assert!(!d.is_granted(), "{protocol}");
        drop(a);
        assert_eq!(d.granted(), "UPDATE 1", "{protocol}");
        assert_eq!((b.run("rollback"), b.run("select n from t where id = 1")), ("ROLLBACK".into(), "5".into()));
        // A thread that blocks is woken.
        b.run("begin; select n from t where id = 1 for update");
        let canceller = d.session.canceller();
        thread::scope(|scope| {
            let blocked = scope.spawn(|| d.session.execute("delete from t where id = 1").map(drop));
            // It is not known when it begins to wait.
            while !blocked.is_finished() {
                canceller.cancel();
                thread::sleep(Duration::from_millis(1));
            }
            let failed = blocked.join().expect("no panic").expect_err("b has the row");
            assert_eq!(failed.error.state, SqlState::QUERY_CANCELED, "{protocol}");
        });
    }
}

#[test]
fn a_text_goes_on_at_the_statement_that_waited() {
    for protocol in protocols() {
        let [mut a, mut b] = clients(protocol);
        a.run("begin; select n from t where id = 1 for update");
        b.waits("insert into t values (5, 5); update t set n = n + 1 where id = 1; select n from t where id in (1, 5)");
        a.run("commit");
        let answers = b.go_on().expect("it has the lock").expect("no conflict");
        assert_eq!(answers.len(), 3, "{protocol}: {answers:?}");
        assert_eq!(said(Ok(answers)), "1 5", "{protocol}");
        assert_eq!(a.run("select sum(n) from t"), "6", "{protocol}");
        // So do a prepared statement, EXECUTE and DECLARE.
        b.run("prepare p as update t set n = n + $1 where id = 1");
        for (begin, waits, then) in [
            ("begin", "execute p (3)", "commit"),
            ("begin", "declare c cursor for select n from t where id = 1 for update", "fetch c"),
        ] {
            a.run("begin; update t set n = n + 1 where id = 1");
            b.run(begin);
            b.waits(waits);
            a.run("commit");
            b.granted();
            b.run(then);
        }
        b.run("rollback");
        let mut prepared = b.session.prepare("update t set n = n + $1 where id = $2", &[]).expect("sound");
        a.run("begin; update t set n = n + 1 where id = 1");
        let values = [Datum::Integer(10), Datum::Integer(1)];
        assert!(b.session.poll_execute_prepared(&mut prepared, &values, true).is_pending(), "{protocol}");
        a.run("commit");
        let ran = b.session.poll_execute_prepared(&mut prepared, &values, true);
        assert!(matches!(ran, Poll::Ready(Ok(_))), "{protocol}: {ran:?}");
        assert_eq!(b.run("select n from t where id = 1"), "17", "{protocol}");
    }
}

/// A database with one worker: who waits with its first statement, or has begun and done nothing, has none.
#[test]
fn whoever_waits_first_and_whoever_has_done_nothing_holds_no_worker() {
    let database = Database::builder().workers(2).open().expect("there is memory");
    let mut clients: Vec<Client> =
        (0..40).map(|_| Client { session: Session::new(database.clone()), text: String::new() }).collect();
    clients[0].run("create table t (id int primary key, n int); insert into t values (1, 0)");
    clients.iter_mut().for_each(|client| assert_eq!(client.run("begin"), "BEGIN"));
    assert_eq!(clients[0].run("update t set n = n + 1 where id = 1"), "UPDATE 1");
    clients[1..].iter_mut().for_each(|client| client.waits("update t set n = n + 1 where id = 1"));
    for at in 0..clients.len() {
        if at > 0 {
            assert_eq!(clients[at].granted(), "UPDATE 1");
        }
        assert!(clients[at + 1..].iter().all(|client| !client.is_granted()), "nobody passes");
        assert_eq!(clients[at].run("commit"), "COMMIT");
    }
    assert_eq!(clients[0].run("select n from t"), "40");
    // Those who have done something have one each.
    let busy = [0, 1, 2].map(|at| clients[at].run("begin; select n from t where id = 1"));
    assert!(busy[..2].iter().all(|said| said == "40") && busy[2].starts_with("53300 "), "{busy:?}");
}

#[test]
fn threads_that_update_hot_rows_lose_nothing() {
    const THREADS: u32 = 4;
    const EACH: u32 = 60;
    for (protocol, has_lone) in protocols().flat_map(|protocol| [(protocol, true), (protocol, false)]) {
        let [mut first] = clients(protocol);
        let database = Database::builder().protocol(protocol).open().expect("there is memory");
        let mut loader = Client { session: Session::new(database.clone()), text: String::new() };
        loader.run("create table t (id int primary key, n int); insert into t values (1, 0), (2, 0)");
        let failed: u32 = thread::scope(|scope| {
            let run = |number: u32| {
                let mut session = Session::new(database.clone());
                let mut failed = 0;
                for round in 0..EACH {
                    let id = (number + round) % 2 + 1;
                    let update = format!("update t set n = n + 1 where id = {id}");
                    let text = match (number + round) % 3 {
                        0 if has_lone => update,
                        1 => format!("begin; {update}; commit"),
                        _ => format!("begin; select n from t where id = {id} for update; {update}; commit"),
                    };
                    if session.execute(&text).is_err() {
                        failed += 1;
                        let _ = session.execute("rollback");
                    }
                }
                failed
            };
            let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || run(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(loader.run("select sum(n) from t"), (THREADS * EACH - failed).to_string(), "{protocol}");
        assert_eq!(first.run("select sum(n) from t"), "0");
        // Every update holds the lock of its row, and an optimistic protocol has nothing else to refuse. A lone
        // statement that had looked before the row was locked is a conflict.
        if database.protocol().name == "dbx" && !has_lone {
            assert_eq!(failed, 0, "{protocol}");
        }
    }
}

#[test]
fn a_lock_of_a_program_excludes_statements() {
    let [mut a, mut b] = clients("auto");
    a.run("begin; update t set n = 7 where id = 1");
    b.waits("update t set n = n + 1 where id = 1");
    let (wait, limit) = b.session.waiting().expect("it waits");
    assert_eq!(limit, None);
    wait.end(WaitEnd::TimedOut);
    assert_eq!(b.granted(), "55P03 canceling statement due to lock timeout");
    assert_eq!(a.run("commit"), "COMMIT");
}

#[test]
fn a_cancellation_between_two_waits_is_not_lost() {
    for protocol in protocols() {
        for explicit in [true, false] {
            let [mut a, mut b, mut c] = clients(protocol);
            a.run("begin; select n from t where id = 1 for update");
            c.run("begin; select n from t where id = 2 for update");
            if explicit {
                b.run("begin");
            }
            b.waits("update t set n = 9 where id in (1, 2)");
            assert_eq!(a.run("commit"), "COMMIT", "{protocol}");
            assert!(b.is_granted());
            b.session.canceller().cancel();
            let said = b.go_on().map(said);
            assert_eq!(said.unwrap_or_default().split(' ').next(), Some("57014"), "{protocol}, explicit: {explicit}");
            b.run("rollback");
            c.run("rollback");
            // One that comes before a statement does not concern it.
            b.session.canceller().cancel();
            assert_eq!(b.run("update t set n = 7 where id = 1"), "UPDATE 1", "{protocol}, explicit: {explicit}");
            b.run("begin");
            b.session.canceller().cancel();
            assert_eq!(b.run("update t set n = n + 1 where id = 1"), "UPDATE 1", "{protocol}, explicit: {explicit}");
            assert_eq!(b.run("commit; select n from t where id = 1"), "8", "{protocol}");
        }
    }
}

#[test]
fn a_prepared_statement_that_is_refused_after_its_wait_leaves_nothing() {
    let [mut a, mut b] = clients("auto");
    for text in ["create role clerk", "grant select, update on t to clerk"] {
        assert!(text.starts_with(&a.run(text).to_lowercase()), "{text}");
    }
    assert_eq!(b.run("set role clerk"), "SET");
    let mut prepared = b.session.prepare("update t set n = $1 where id = 1", &[]).expect("sound");
    a.run("begin; select n from t where id = 1 for update");
    let values = [Datum::Integer(7)];
    assert!(b.session.poll_execute_prepared(&mut prepared, &values, true).is_pending());
    assert_eq!((a.run("commit"), a.run("revoke update on t from clerk")), ("COMMIT".into(), "REVOKE".into()));
    match b.session.poll_execute_prepared(&mut prepared, &values, true) {
        Poll::Ready(Err(Failure { error, .. })) => assert_eq!(error.state.0, "42501"),
        other => panic!("it has no right any more: {other:?}"),
    }
    assert_eq!((b.session.status(), b.run("select 1")), (Status::Idle, "1".to_owned()));
}

#[test]
fn an_offset_counts_rows_that_are_not_skipped() {
    for protocol in protocols() {
        let [mut a, mut b] = clients(protocol);
        a.run("begin; select n from t where id = 1 for update");
        for (clause, wanted) in [
            ("order by id limit 1 offset 1", "3"),
            ("order by n, id limit 1 offset 1", "3"),
            ("order by id offset 2", "4"),
            ("order by id offset 7", ""),
        ] {
            let skipping = format!("begin; select id from t {clause} for update skip locked");
            assert_eq!(b.run(&skipping), wanted, "{protocol}: {clause}");
            assert_eq!(b.run("commit"), "COMMIT", "{protocol}: {clause}");
        }
    }
}

/// Rights and the mode of the transaction are those of all queries in a statement that lock rows.
#[test]
fn whoever_locks_rows_in_a_query_inside_may_change_them() {
    let [mut a] = clients("auto");
    a.run("create table u (id int primary key); insert into u values (1)");
    for text in ["create role reader", "grant select on t, u to reader", "grant update on u to reader"] {
        assert!(text.starts_with(&a.run(text).to_lowercase()), "{text}");
    }
    assert_eq!(a.run("set role reader"), "SET");
    let locks = [
        "select * from (select id from t for update) as x",
        "with x as (select id from t for share) select * from x",
        "select exists (select from t where id = 1 for update)",
        "select t.id from t join u on t.id = u.id for update",
        "update u set id = 1 where id in (select id from t for update)",
    ];
    for text in locks {
        assert_eq!(a.run(text), "42501 permission denied for table t", "{text}");
    }
    // Of the other table it only reads.
    assert_eq!(a.run("select t.id from t join u on t.id = u.id for update of u"), "1");
    assert_eq!(a.run("select id from u where id in (select id from t) for update"), "1");
    a.run("reset role");
    for text in locks {
        assert_eq!(a.run(&format!("begin read only; {text}")).split(' ').next(), Some("25006"), "{text}");
        a.run("rollback");
    }
}

#[test]
fn shared_locks_do_not_exclude_each_other_in_a_transaction_or_out_of_one() {
    for protocol in protocols() {
        let [mut a, mut b, mut c] = clients(protocol);
        assert_eq!(a.run("begin; select n from t where id = 1 for share"), "0", "{protocol}");
        for clause in ["for share", "for share nowait", "for share skip locked"] {
            let query = format!("select n from t where id = 1 {clause}");
            assert_eq!(b.run(&query), "0", "{protocol}: {clause}");
            assert_eq!(b.run(&format!("begin; {query}; rollback")), "ROLLBACK", "{protocol}: {clause}");
        }
        assert_eq!(b.run("select n from t where id = 1 for update nowait").split(' ').next(), Some("55P03"));
        // Nobody passes one that waits.
        c.waits("select n from t where id = 1 for update");
        assert_eq!(b.run("select n from t where id = 1 for share nowait").split(' ').next(), Some("55P03"));
        assert_eq!(a.run("commit"), "COMMIT", "{protocol}");
        assert_eq!(c.granted(), "0", "{protocol}");
    }
}

/// A long query conflicts with each of many short transactions, which have rows locked nearly all the time.
#[test]
fn a_long_query_ends_beside_transactions_that_lock_rows() {
    const ROWS: u32 = 3000;
    let database = Database::builder().open().expect("there is memory");
    let mut reader = Client { session: Session::new(database.clone()), text: String::new() };
    reader.run("create table t (id int primary key, n int)");
    reader.run(&format!("insert into t select i, 0 from generate_series(1, {ROWS}) as i"));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..3 {
            let (database, is_over) = (database.clone(), &is_over);
            scope.spawn(move || {
                let mut session = Session::new(database);
                for round in 0.. {
                    let id = (round * 7 + number * 1000) % ROWS + 1;
                    let _ = session.execute("begin");
                    let _ = session.execute(&format!("update t set n = n + 1 where id = {id}"));
                    let _ = session.execute(&format!("update t set n = n - 1 where id = {id}"));
                    let _ = session.execute("commit");
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let said: Vec<String> = (0..2).map(|_| reader.run("select sum(n) from t")).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(said, ["0"; 2]);
    });
}
