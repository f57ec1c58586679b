//! Statements with their answers, in the files of `slt/`. Where PostgreSQL is installed, it gives the same answers.

#[allow(dead_code, reason = "each program uses a part")]
mod shared;

use std::path::PathBuf;

use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::Datum;
use seriatim::dump::Format;
use seriatim::{Database, available_protocols};
use seriatim_postgres::Server;
use seriatim_sql::{Answer, Failure, Session, SqlState, SqlType};
use shared::{Ours, Psql};
use sqllogictest::Runner;

fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut files: Vec<PathBuf> =
        folder.read_dir().expect("the folder exists").map(|file| file.expect("it can be read").path()).collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    files
}

/// The protocols that run statements.
fn protocols() -> impl Iterator<Item = &'static str> {
    available_protocols().iter().filter(|protocol| !protocol.requirements.plan).map(|protocol| protocol.name)
}

fn session(protocol: &str) -> Session {
    Ours::open(protocol).session
}

#[test]
fn statements_have_their_answers() {
    for protocol in protocols() {
        for file in files() {
            let mut runner = Runner::new(|| async { Ok(Ours::open(protocol)) });
            runner.run_file(&file).unwrap_or_else(|error| panic!("under {protocol}: {error}"));
        }
    }
}

/// Defaults and primary keys as they were changed last, whichever way they come to another database.
#[test]
fn changed_defaults_and_keys_come_back_from_dumps_of_each_format() {
    let dumped = |db: &Database, format, tables: &[&str]| {
        let mut bytes = Vec::new();
        db.dump(format, tables, &mut bytes).expect("there is memory");
        String::from_utf8(bytes).expect("it is text")
    };
    for protocol in protocols() {
        let open = || Database::builder().protocol(protocol).open().expect("there is memory");
        let (db, made) = (open(), "create table t (id int, n int default 3, at timestamptz, word text not null)");
        let mut session = Session::new(db.clone());
        session.execute(made).expect("it is new");
        session.execute("insert into t (id, at, word) values (1, now(), 'a'), (2, now(), 'b')").expect("new keys");
        let changes = "alter table t alter n set default 4; alter table t alter at set default now();
            alter table t alter word set default lower('AB') || 'c'; alter table t add primary key (word, id);
            alter table t alter n drop default";
        session.execute(changes).expect("each makes sense");
        session.execute("insert into t (id) values (3); insert into t (id, n) values (4, 5)").expect("new keys");
        let [json, sql] = [Format::Json, Format::Sql].map(|format| dumped(&db, format, &[]));
        let csv = dumped(&db, Format::Csv, &["t"]);
        assert!(
            json.contains("now()") && csv.contains("abc") && sql.contains("PRIMARY KEY (\"word\", \"id\")"),
            "{sql}"
        );

        let copy = open();
        copy.load(json.as_bytes()).expect("it is whole");
        assert_eq!(dumped(&copy, Format::Json, &[]), json, "{protocol}");
        let by_sql = open();
        Session::new(by_sql.clone()).execute(&sql).unwrap_or_else(|failure| panic!("{failure:?}: {sql}"));
        assert_eq!(dumped(&by_sql, Format::Sql, &[]), sql, "{protocol}");
        assert_eq!(dumped(&by_sql, Format::Csv, &["t"]), csv, "{protocol}");
        let by_csv = open();
        by_csv.declare(db.open_dyn("t").expect("it is there").definition().clone()).expect("it is new");
        by_csv.load_csv("t", csv.as_bytes()).expect("it is whole");
        assert_eq!(dumped(&by_csv, Format::Csv, &["t"]), csv, "{protocol}");
        assert_eq!(dumped(&by_csv, Format::Json, &[]), json, "{protocol}");
        // Defaults and keys work, and are not only written.
        for copy in [copy, by_sql, by_csv] {
            let mut session = Session::new(copy);
            session.execute("insert into t (id) values (9)").expect("the others have defaults");
            let twin = session.execute("insert into t (id, word) values (9, 'abc')").expect_err("its key is there");
            assert_eq!(twin.error.state, SqlState::UNIQUE_VIOLATION, "{protocol}");
            session.execute("insert into t (id, word) values (9, 'abd')").expect("another key");
        }
    }
}

#[test]
fn the_places_of_parameters_tell_which_arrays_they_are() {
    let mut session = session("auto");
    session.execute("create table t (id int primary key, word varchar(4), day date)").expect("it is new");
    session.execute("insert into t values (1, 'a', '2026-12-01'), (2, 'b', null), (3, 'c', null)").expect("new keys");
    for (text, wanted) in [
        ("select id from t where id = any($1)", vec![(0, 1007)]),
        ("select id from t where word = any($2) and id <> all($1)", vec![(1, 1015), (0, 1007)]),
        ("select id from t where id = any($1::bigint[])", vec![(0, 1016)]),
        ("select a.id from t a join t b on b.day = any($1)", vec![(0, 1182)]),
        ("select typname from pg_type where oid = any($1::oid[])", vec![(0, 1028)]),
        ("declare c cursor for select id from t where id = any($1)", vec![(0, 1007)]),
        ("delete from t where (id) = any ($1)", vec![(0, 1007)]),
        ("select id from t where id = $1", vec![]),
    ] {
        let prepared = session.prepare(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found: Vec<_> = prepared.array_parameters().iter().map(|(at, ty)| (*at, ty.oid())).collect();
        assert_eq!(found, wanted, "{text}");
    }
    let mut select = session.prepare("select id from t where id = any($1) order by id", &[]).expect("sound");
    let answers = session.execute_prepared(&mut select, &[Datum::Text("{3,NULL,1,7}".into())], true).expect("sound");
    let Some(Answer::Rows { rows, .. }) = answers.last() else { panic!("{answers:?}") };
    assert_eq!(*rows, [[Datum::Integer(1)], [Datum::Integer(3)]]);
}

#[test]
fn prepared_statements_have_parameters_and_notice_changes_of_tables() {
    let mut session = session("auto");
    session.execute("create table t (id int primary key, n numeric(6, 2), word varchar(4))").expect("it is new");
    let mut insert = session.prepare("insert into t values ($1, $2, $3)", &[]).expect("sound");
    let types: Vec<ColumnType> = insert.parameters().collect();
    assert_eq!(types, [ColumnType::I32, ColumnType::Numeric, ColumnType::LongText]);
    for id in 1..=3 {
        let values = [Datum::Integer(id), Datum::Null, Datum::Text("a".into())];
        session.execute_prepared(&mut insert, &values, true).expect("new keys");
    }
    let again = session.execute_prepared(&mut insert, &[Datum::Integer(1), Datum::Null, Datum::Null], true);
    assert_eq!(again.expect_err("the key exists").error.state, SqlState::UNIQUE_VIOLATION);

    let count = |answers: Vec<Answer>| match answers.last() {
        Some(Answer::Rows { rows, .. }) => rows.len(),
        other => panic!("{other:?}"),
    };
    let mut select = session.prepare("select * from t where id >= $1 and word = $2", &[]).expect("sound");
    let values = [Datum::Integer(2), Datum::Text("a".into())];
    assert_eq!(count(session.execute_prepared(&mut select, &values, true).expect("it reads")), 2);
    session.execute("create index word on t (word)").expect("it is new");
    assert_eq!(count(session.execute_prepared(&mut select, &values, true).expect("it reads by the index")), 2);
    session.execute("alter table t add column more int").expect("it is new");
    let changed = session.execute_prepared(&mut select, &values, true).expect_err("it has another column");
    assert_eq!(changed.error.state, SqlState::FEATURE_NOT_SUPPORTED);
    session.execute("drop table t; create table other (id int primary key)").expect("both in one transaction");
    let gone = session.execute_prepared(&mut insert, &[Datum::Integer(9), Datum::Null, Datum::Null], true);
    assert_eq!(gone.expect_err("it is gone").error.state, SqlState::UNDEFINED_TABLE);

    // Columns of queries around others are parameters behind those of the statement.
    session.execute("create table u (id int primary key, n int)").expect("it is new");
    session.execute("insert into u values (1, 10), (2, 20), (3, 30)").expect("new keys");
    let text = "select id, (select count(*) from u b where b.n < a.n + $1) from u a where id = any ($2) and exists \
                (select 1 from u c where c.id = a.id and c.n > $3) order by id";
    let mut select = session.prepare(text, &[None, SqlType::of_oid(1016)]).expect("sound");
    let types: Vec<ColumnType> = select.parameters().collect();
    assert_eq!(types, [ColumnType::I32, ColumnType::LongText, ColumnType::I32]);
    for (added, ids, least, found) in [(0, "{1,3}", 0, "1:0 3:2"), (15, "{2,3}", 20, "3:3"), (1, "{}", 0, "")] {
        let values = [Datum::Integer(added), Datum::Text(ids.into()), Datum::Integer(least)];
        let answers = session.execute_prepared(&mut select, &values, true).expect("it reads");
        let Some(Answer::Rows { rows, .. }) = answers.last() else { panic!("{answers:?}") };
        let row = |row: &seriatim_sql::Row| format!("{}:{}", row[0].to_text(None), row[1].to_text(None));
        assert_eq!(rows.iter().map(row).collect::<Vec<_>>().join(" "), found);
    }
    session.prepare("select (select a.id where $1 = 1) from u a", &[]).expect("a parameter is one of the statement");
    let beyond = session.execute("select (select a.id where $1 = 1) from u a").expect_err("it has no parameters");
    assert_eq!(beyond.error.state, SqlState::UNDEFINED_PARAMETER);

    let failed = |session: &mut Session, text| session.prepare(text, &[]).expect_err("it makes no sense").state;
    assert_eq!(failed(&mut session, "select $1; select 2"), SqlState::SYNTAX_ERROR);
    assert_eq!(failed(&mut session, "select 1 where $2"), SqlState::INDETERMINATE_DATATYPE);
    assert_eq!(failed(&mut session, "select * from t"), SqlState::UNDEFINED_TABLE);
    assert!(session.prepare("", &[]).expect("nothing").columns().is_none());
}

/// Others see what a transaction has changed when it has committed. Plans are those of the tables that it sees.
#[test]
fn plans_follow_the_tables_that_a_transaction_changes() {
    for protocol in protocols() {
        let database = Database::builder().protocol(protocol).open().expect("there is memory");
        let (mut a, mut b) = (Session::new(database.clone()), Session::new(database));
        a.execute("create table t (id int primary key, n int); insert into t values (1, 10)").expect("it is new");
        let mut select = a.prepare("select n from t where id = $1", &[]).expect("sound");
        let mut run = |session: &mut Session| -> Result<String, SqlState> {
            let ran = session.execute_prepared(&mut select, &[Datum::Integer(1)], true);
            match ran.map_err(|failure| failure.error.state)?.pop() {
                Some(Answer::Rows { rows, .. }) => Ok(rows[0][0].to_text(None).into_owned()),
                other => panic!("{other:?}"),
            }
        };
        a.execute("begin").expect("none is open");
        a.execute("alter table t add column more int default 3").expect("it is new");
        a.execute("update t set n = n + more").expect("it has the column");
        a.execute("create table made (id int primary key)").expect("it is new");
        assert_eq!(run(&mut a), Ok("13".to_owned()), "under {protocol}");
        let unseen = b.execute("select * from made").expect_err("nobody else sees it");
        assert_eq!(unseen.error.state, SqlState::UNDEFINED_TABLE, "under {protocol}");
        a.execute("rollback").expect("it is open");
        assert_eq!(run(&mut a), Ok("10".to_owned()), "under {protocol}");
        let changes = "begin; drop table t; create table t (id int primary key, x int, n int);
            insert into t values (1, 2, 77)";
        a.execute(changes).expect("all new");
        assert_eq!(run(&mut a), Ok("77".to_owned()), "under {protocol}");
        a.execute("commit").expect("nobody else was there");
        assert_eq!(run(&mut a), Ok("77".to_owned()), "under {protocol}");
        b.execute("begin; select * from t").expect("it is there");
        assert_eq!(run(&mut b), Ok("77".to_owned()), "under {protocol}");
    }
}

/// Each number is one session's, whether the statement takes one or many.
#[test]
fn sessions_take_different_numbers() {
    for protocol in protocols() {
        let database = Database::builder().protocol(protocol).open().expect("there is memory");
        let mut session = Session::new(database.clone());
        let tables = "create sequence s; create table one (id int generated always as identity primary key, n int);
            create table two (id serial, n bigint default nextval('s'))";
        session.execute(tables).expect("all new");
        const EACH: usize = 40;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut session = Session::new(database.clone());
                    for _ in 0..EACH {
                        for insert in ["one (n) values (1)", "one (n) values (2), (3)", "two default values"] {
                            let inserted = session.execute(&format!("insert into {insert}"));
                            inserted.unwrap_or_else(|failure| panic!("under {protocol}: {failure}"));
                        }
                    }
                });
            }
        });
        for (table, column, wanted) in [("one", "id", 6 * EACH), ("two", "id", 2 * EACH), ("two", "n", 2 * EACH)] {
            let answers = session.execute(&format!("select count(distinct {column}) from {table}")).expect("it reads");
            let Some(Answer::Rows { rows, .. }) = answers.last() else { panic!("{answers:?}") };
            assert_eq!(rows[0][0], Datum::Integer(wanted as i128), "{column} of {table}, under {protocol}");
        }
    }
}

/// Two sessions that each read what the other writes cannot both commit.
#[test]
fn explicit_transactions_are_serializable() {
    for protocol in protocols() {
        let database = Database::builder().protocol(protocol).open().expect("there is memory");
        let (mut a, mut b) = (Session::new(database.clone()), Session::new(database));
        a.execute("create table duty (doctor int primary key, on_call boolean not null)").expect("it is new");
        a.execute("insert into duty values (1, true), (2, true)").expect("new keys");
        let begun = "begin; select count(*) from duty where on_call";
        let (of_a, of_b) = (a.execute(begun), b.execute(begun));
        let leave = |session: &mut Session, begun: Result<Vec<Answer>, Failure>, doctor: u8| -> Result<(), Failure> {
            begun?;
            session.execute(&format!("update duty set on_call = false where doctor = {doctor}"))?;
            session.execute("commit").map(drop)
        };
        let left = [leave(&mut a, of_a, 1), leave(&mut b, of_b, 2)];
        for failure in left.iter().filter_map(|left| left.as_ref().err()) {
            assert_eq!(failure.error.state, SqlState::SERIALIZATION_FAILURE, "under {protocol}: {failure}");
        }
        assert!(left.iter().any(Result::is_err), "under {protocol}, both left");
        for session in [&mut a, &mut b] {
            let _ = session.execute("rollback");
            let answers = session.execute("select count(*) from duty where on_call").expect("it reads");
            let Some(Answer::Rows { rows, .. }) = answers.last() else { panic!("{answers:?}") };
            assert!(matches!(rows[0][0], Datum::Integer(1..)), "under {protocol}: {rows:?}");
        }
    }
}

#[test]
fn postgresql_gives_the_same_answers() {
    let Some(binaries) = seriatim_postgres::binaries() else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let server = Server::start(binaries, "slt", "", "").unwrap_or_else(|error| panic!("{error}"));
    for file in files() {
        server.psql("drop schema public cascade; create schema public;").expect("it is empty");
        let mut runner = Runner::new(|| async { Ok(Psql::new(&server)) });
        runner.add_label("postgresql");
        runner.run_file(&file).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_statement_that_computes_for_long_is_cancelled() {
    let mut session = session("auto");
    for begun in [false, true] {
        if begun {
            session.execute("begin").expect("none is open");
        }
        let canceller = session.canceller();
        let done = std::sync::atomic::AtomicBool::new(false);
        let failed = std::thread::scope(|scope| {
            scope.spawn(|| {
                // It may not have begun at first.
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    canceller.cancel();
                    std::thread::yield_now();
                }
            });
            let failed = session.execute("select count(*) from generate_series(1, 9000000000000000)");
            done.store(true, std::sync::atomic::Ordering::Release);
            failed
        });
        assert_eq!(failed.expect_err("it has no end").error.state, SqlState::QUERY_CANCELED);
    }
    // Rows that are in memory, which no operation of the transaction finds.
    let elements = format!("unnest('{{{}}}'::int[])", vec!["1"; 5_000].join(","));
    let text = format!("select count(*) from {elements} a, {elements} b, {elements} c");
    let mut session = self::session("auto");
    let canceller = session.canceller();
    let waits = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        canceller.cancel();
    });
    let failed = session.execute(&text).expect_err("it takes hours");
    assert_eq!(failed.error.state, SqlState::QUERY_CANCELED);
    waits.join().expect("no panic");
}

/// The session of a role with this right to a table `t`, in which a superuser has put rows.
fn session_with(right: &str) -> Session {
    let database = Database::in_memory().expect("there is memory");
    let mut session = Session::new(database.clone());
    for text in [
        "create table t (id int primary key, word text check (word <> 'bad'), n int unique)",
        "insert into t values (1, 'secret', 10), (2, 'secret', 20)",
        "create table u (id int primary key, t int references t)",
        "insert into u values (1, 1)",
        "create role ann",
        &format!("grant {right} on t to ann"),
    ] {
        session.execute(text).unwrap_or_else(|failure| panic!("{text}: {failure}"));
    }
    let access = database.access();
    let (ann, _) = access.named("ann").expect("it was made");
    Session::new(database).of_role(ann)
}

#[test]
fn errors_tell_no_values_to_who_may_not_read_them() {
    let copy = |session: &mut Session| {
        session.execute("copy t from stdin").map_err(|failure| failure.error)?;
        session.copy_data(b"2\tword\t30\n")
    };
    for (right, is_told) in [("update, insert, delete", false), ("update, insert, delete, select", true)] {
        let mut session = session_with(right);
        for text in ["update t set word = 'bad'", "update t set n = 10", "delete from t", "insert into t values (2)"] {
            let failed = session.execute(text).expect_err("it violates something").error;
            assert!(failed.state.0.starts_with("23"), "{text}: {failed}");
            assert_eq!(failed.detail.is_some(), is_told, "{text}: {failed}");
        }
        let failed = copy(&mut session).expect_err("the key exists");
        assert_eq!((failed.state, failed.detail.is_some()), (SqlState::UNIQUE_VIOLATION, is_told), "{failed}");
    }
}

#[test]
fn a_role_that_is_gone_creates_no_table() {
    let database = Database::in_memory().expect("there is memory");
    let mut first = Session::new(database.clone());
    first.execute("create role ann").expect("it is new");
    first.execute("grant create on schema public to public").expect("it is there");
    let (ann, _) = database.access().named("ann").map(|(id, role)| (id, role.clone())).expect("it was made");
    let mut session = Session::new(database).of_role(ann);
    session.execute("create table t (id int primary key)").expect("it is new");
    session.execute("drop table t").expect("it is its own");
    first.execute("drop role ann").expect("nothing depends on it");
    for text in ["create table t (id int primary key)", "begin; create table t (id int primary key); commit"] {
        let failed = session.execute(text).expect_err("nobody would own it").error;
        assert_eq!(failed.state, SqlState::UNDEFINED_OBJECT, "{failed}");
        session.execute("rollback").expect("there may be one");
    }
}

/// A statement is refused or has an answer, however deep it is.
#[test]
fn statements_of_any_form_do_not_exhaust_the_stack() {
    let thread = std::thread::Builder::new().stack_size(seriatim_sql::STACK_BYTES).spawn(run_statements_of_any_form);
    thread.expect("it starts").join().expect("no panic");
}

fn run_statements_of_any_form() {
    let mut session = session("auto");
    session.execute("create table t (id int primary key)").expect("it is new");
    let state = |session: &mut Session, text: &str| {
        session.execute(text).map_or_else(|failure| failure.error.state.0, |_| "00000")
    };
    let chain = |before: &str, link: &str, count: usize| format!("select 1 {before}{}", link.repeat(count));
    for (before, link) in [
        ("", "+ 1 "),
        ("", "isnull "),
        ("", "notnull "),
        ("", "at time zone 'UTC' "),
        ("", "like 'a' "),
        ("", "in (1) "),
        ("", "::int "),
        ("", "union select 1 "),
        ("", "except select 1 "),
        ("", "intersect select 1 "),
        ("where true ", "and true "),
        ("where false ", "or true "),
        ("from t ", "join t on true "),
        ("from t ", "cross join t "),
        ("from t ", ", t "),
        ("", "between 0 and 2 "),
        ("", "collate \"C\" "),
        ("", "[1] "),
    ] {
        for count in [100, 299, 5_000] {
            let text = chain(before, link, count);
            let state = state(&mut session, &text);
            assert!(
                matches!(state, "00000" | "0A000" | "42601" | "42712" | "42804" | "42883" | "54001"),
                "{link}: {state}"
            );
        }
    }
    // Operators before, within and behind parentheses make a tree of all their depths.
    let nested = (0..40).fold("1".to_owned(), |inner, _| format!("({inner}){}", " + 1".repeat(100)));
    assert_eq!(state(&mut session, &format!("select {nested}")), "54001");
    // Each level would be computed twice.
    let doubled = (0..40).fold("true".to_owned(), |inner, _| format!("({inner} between false and true)"));
    assert_eq!(state(&mut session, &format!("select {doubled}")), "54001");
    let sources: Vec<String> = (0..5_000).map(|at| format!("generate_series(1, 1) as s{at}")).collect();
    assert_eq!(state(&mut session, &format!("select 1 from {}", sources.join(", "))), "54001");
    assert_eq!(state(&mut session, &format!("select 1 from {}", sources[..60].join(", "))), "00000");
    assert_eq!(state(&mut session, "select 1 where 1 in (1, 2) and (1 = 2 or 1 = 1)"), "00000");
    // Queries in queries.
    for (open, close) in [
        ("(select ", ")"),
        ("1 where 1 in (select ", ")"),
        ("(select a from (select ", " as a) x)"),
        ("(with w as (select ", " as a) select a from w)"),
        ("(select 1 where exists (select ", "))"),
    ] {
        for count in [3, 20, 40, 500] {
            let text = format!("select {}1{}", open.repeat(count), close.repeat(count));
            let state = state(&mut session, &text);
            let is_right = if count == 3 { state == "00000" } else { matches!(state, "00000" | "54001") };
            assert!(is_right, "{open} {count} times: {state}");
        }
    }
    let alternating = |count: usize| format!("select 1 {}", "union select 1 except select 2 ".repeat(count));
    assert_eq!(state(&mut session, &alternating(5)), "00000");
    assert_eq!(state(&mut session, &alternating(140)), "54001");
    let tables = |count: usize| format!("select 1 from {}t a0{}", "(".repeat(count), " natural join t)".repeat(count));
    assert!(matches!(state(&mut session, &tables(40)), "54001" | "42712"));
    let whole = (0..40).map(|at| format!(" full join t a{at} using (id)")).collect::<String>();
    assert!(matches!(state(&mut session, &format!("select 1 from t{whole}")), "00000" | "54001"));
    // Each query of WITH uses the one before twice: it runs once.
    let chain = (1..40).map(|at| format!(", w{at} as (select a.x from w{} a, w{} b)", at - 1, at - 1));
    let chain = format!("with w0 as (select 1 as x){} select x from w39", chain.collect::<String>());
    assert_eq!(state(&mut session, &chain), "00000");
    assert_eq!(state(&mut session, "with x as (insert into t values (1) returning id) select * from x"), "0A000");
    // What is behind a query in parentheses is not ignored.
    let answers = session.execute("(select 1) fetch first 0 rows only").expect("it has no rows");
    assert!(matches!(answers.last(), Some(Answer::Rows { rows, .. }) if rows.is_empty()), "{answers:?}");
    assert_eq!(state(&mut session, "drop table t purge"), "0A000");
}

/// What a transaction wrote and read is found by each index, and rows that others add there are conflicts.
#[test]
fn indexes_hide_no_phantoms() {
    for protocol in protocols() {
        let database = Database::builder().protocol(protocol).open().expect("there is memory");
        let (mut a, mut b) = (Session::new(database.clone()), Session::new(database));
        a.execute("create table seat (id int primary key, hall int, owner int unique)").expect("it is new");
        a.execute("create index seat_hall on seat (hall desc)").expect("it is new");
        let count = |session: &mut Session, text: &str| -> Result<String, Failure> {
            match session.execute(text)?.pop() {
                Some(Answer::Rows { rows, .. }) => Ok(rows[0][0].to_text(None).into_owned()),
                other => panic!("{other:?}"),
            }
        };
        let book = |session: &mut Session, id: u8| -> Result<(), Failure> {
            let inserted =
                format!("insert into seat values ({id}, 7, {id}); update seat set hall = 7 where owner = {id}");
            session.execute(&inserted)?;
            assert_eq!(count(session, &format!("select count(*) from seat where owner = {id}"))?, "1");
            session.execute("commit").map(drop)
        };
        // Each adds a seat if there is none between two halls.
        let asked = "begin; select count(*) from seat where hall > 5 and hall <= 7";
        let free = [count(&mut a, asked), count(&mut b, asked)];
        let mut booked = 0;
        for ((session, free), id) in [&mut a, &mut b].into_iter().zip(free).zip([1, 2]) {
            match free.and_then(|free| (free == "0").then(|| book(session, id)).transpose()) {
                Ok(done) => booked += usize::from(done.is_some()),
                Err(failure) => {
                    assert_eq!(failure.error.state, SqlState::SERIALIZATION_FAILURE, "under {protocol}: {failure}");
                }
            }
            let _ = session.execute("rollback");
        }
        assert!(booked < 2, "under {protocol}, both booked");
        assert_eq!(count(&mut a, "select count(*) from seat where hall = 7").expect("it reads"), booked.to_string());
    }
}

/// All rows of an UPDATE leave their primary keys before the first arrives.
#[test]
fn rows_of_one_statement_can_change_places() {
    for protocol in protocols() {
        let mut session = session(protocol);
        session.execute("create table t (id int primary key, place int unique)").expect("it is new");
        session.execute("insert into t values (1, 1), (2, 2), (3, 3)").expect("new keys");
        for swap in ["id = 4 - id", "id = id + 1", "id = id - 1", "id = 4 - id, place = 4 - place"] {
            let answers = session.execute(&format!("update t set {swap}")).expect("each place once");
            assert!(matches!(answers.last(), Some(Answer::Done(tag)) if tag == "UPDATE 3"), "{swap}, under {protocol}");
        }
        let taken = session.execute("update t set place = 2").expect_err("one has it").error;
        let fields = (taken.state, taken.table.as_deref(), taken.constraint.as_deref());
        assert_eq!(fields, (SqlState::UNIQUE_VIOLATION, Some("t"), Some("t_place_key")), "under {protocol}");
    }
}

/// A large statement takes time in proportion to its length: these would take many minutes otherwise.
#[test]
fn large_statements_are_not_quadratic() {
    let mut session = session("auto");
    session.execute("create table t (id int primary key, n int)").expect("it is new");
    let rows: Vec<String> = (0..20_000).map(|id| format!("({id}, 0)")).collect();
    let insert = format!("insert into t values {} on conflict (id) do update set n = t.n + 1", rows.join(", "));
    for _ in 0..2 {
        session.execute(&insert).expect("each row once");
    }
    let locks = "for key share ".repeat(100_000);
    assert_eq!(session.execute(&locks).expect_err("it is no statement").error.state, SqlState::SYNTAX_ERROR);
    let line = "select 1; ".repeat(50_000);
    assert_eq!(seriatim_sql::split(&line).len(), 50_000);
}

#[test]
fn a_plan_says_how_rows_are_found() {
    let mut session = session("auto");
    let tables = "create table a (id int primary key, kind text, n int); create index a_kind on a (kind, n desc);
        create table b (a int, at date, primary key (a, at))";
    tables.split(';').for_each(|table| drop(session.execute(table).expect("it is new")));
    for (query, plan) in [
        ("select * from a where id = 7", "Lookup in a by its primary key (id)"),
        ("select * from a where kind = 'x' and n > 3 order by n desc", "Scan of a by index a_kind (kind, range of n)"),
        ("select * from a order by id desc limit 1", "Limit|  Scan of a, backward"),
        ("select * from a where n = 1 order by kind desc, n", "Scan of a by index a_kind, backward"),
        ("select * from a where n = 1 order by n", "Sort|  Scan of a"),
        (
            "select kind, count(*) from a where id > 2 group by kind",
            "Aggregate|  Scan of a by its primary key (range of id)",
        ),
        (
            "select * from a x left join b on b.a = x.id where x.kind in ('x', 'y')",
            "Scan of a x by index a_kind (kind), for each value of a list|  \
             -> for each row, or none: Scan of b by its primary key (a)",
        ),
        ("select * from a where id in (1, 2)", "Lookup in a by its primary key (id), for each value of a list"),
        ("select * from a where id in (1, 2.5)", "Scan of a"),
        (
            "select * from a, b where b.a = a.n and b.at = any ('{2026-11-30}') and a.id = any (array[1, 2]) \
             order by 1",
            "Sort|  Lookup in a by its primary key (id), for each value of a list|    \
             -> for each row: Lookup in b by its primary key (a, at), for each value of a list",
        ),
        (
            "select * from b left join a on a.n = b.a and a.id in (1, 2)",
            "Scan of b|  -> for each row, or none: Scan of a, kept by n",
        ),
        (
            "select * from b, a where a.id = b.a and a.kind = 'x'",
            "Scan of a by index a_kind (kind)|  -> for each row: Scan of b by its primary key (a)",
        ),
        (
            "select * from a join a c on c.n = a.n full join b on b.a = a.id",
            "Rows of the join|  Rows of the join|    Scan of a|      -> for each row: Scan of a c, kept by n|    \
             -> for each row, or none, and those without: Scan of b, kept by a",
        ),
        (
            "select id from a where n > (select avg(n) from a) union select a from b order by 1",
            "Sort|  Rows of each of|    Scan of a|    Scan of b|Query 0, its value|  Aggregate|    Scan of a",
        ),
        (
            "select kind from a where exists (select 1 from b where b.a = a.id)",
            "Scan of a|Query 0, whether it has rows|  Scan of b by its primary key (a)",
        ),
        ("update a set n = 1 where kind = 'x'", "Update of a|  Scan of a by index a_kind (kind)"),
        ("delete from b where a = 1 and at = '2026-11-30'", "Delete from b|  Lookup in b by its primary key (a, at)"),
    ] {
        let answers = session.execute(&format!("explain {query}")).unwrap_or_else(|error| panic!("{query}: {error}"));
        let Some(Answer::Rows { rows, .. }) = answers.last() else { panic!("{answers:?}") };
        let lines: Vec<_> = rows.iter().map(|row| row[0].to_text(None).into_owned()).collect();
        assert_eq!(lines.join("|"), plan, "{query}");
    }
    assert_eq!(
        session.execute("explain analyze select 1").expect_err("there is none").error.state,
        SqlState::FEATURE_NOT_SUPPORTED
    );
}

/// Numbers of objects stay when tables change, and when a directory is opened again.
#[test]
fn numbers_of_objects_stay() {
    let folder = std::env::temp_dir().join(format!("seriatim-oids-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let numbers = |session: &mut Session| -> Vec<(String, String)> {
        let asked = "select relname, oid from pg_class where relnamespace = 'public'::regnamespace and relname <> \
                     'more' union all select conname, oid from pg_constraint union all select column_name, \
                     ordinal_position from information_schema.columns where table_name = 'a' and column_name <> 'n' \
                     order by 1";
        match session.execute(asked).expect("it reads").pop() {
            Some(Answer::Rows { rows, .. }) => {
                rows.iter().map(|row| (row[0].to_text(None).into_owned(), row[1].to_text(None).into_owned())).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    let before = {
        let mut session = Session::new(Database::open(&folder).expect("it is new"));
        for statement in [
            "create table first (id int primary key)",
            "create table a (id int primary key, b int unique references a, check (b > 0))",
            "create index a_b on a (b desc)",
        ] {
            session.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        let before = numbers(&mut session);
        assert_eq!(before.iter().filter(|(name, _)| name.starts_with("a_")).count(), 7, "{before:?}");
        for change in ["alter table a add column n bigint default 7", "create index more on a (n)"] {
            session.execute(change).unwrap_or_else(|error| panic!("{change}: {error}"));
            assert_eq!(numbers(&mut session), before, "after {change}");
        }
        before
    };
    let mut session = Session::new(Database::open(&folder).expect("it exists"));
    assert_eq!(numbers(&mut session), before, "after it was opened again");
    session.execute("drop index more").expect("it exists");
    assert_eq!(numbers(&mut session), before, "after an index has gone");
    drop(session);
    std::fs::remove_dir_all(&folder).expect("nobody uses it");
}
