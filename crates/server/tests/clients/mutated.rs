//! Messages of a client that has logged in, with mistakes in them: bytes that are wrong, missing or too many.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim::Rng;
use seriatim::rng::{seed, tries};
use seriatim_server::Settings;

use super::{Raw, Server, bind, close, describe, execute, message, parse, query, sync};

/// Messages that are right, of each kind.
fn messages() -> Vec<Vec<u8>> {
    vec![
        query("select id, name, n, at from t where id between 1 and 3 order by name desc limit 2"),
        query("insert into t values (7, 'x', 1.5, now()) on conflict (id) do update set n = t.n + 1 returning *"),
        query("begin; update t set name = name || 'y' where id = 1; savepoint s; delete from t; rollback to s; commit"),
        query("with recursive r(x) as (select 1 union all select x + 1 from r where x < 9) select sum(x) from r"),
        query("create table if not exists u (id int primary key, b bytea); drop table u"),
        query("copy t from stdin"),
        message(b'd', &[b"8\teight\t8\t2026-01-01\n"]),
        message(b'c', &[]),
        message(b'f', &[b"no\0"]),
        query("copy t to stdout (format csv, header)"),
        parse("s", "select $1::int + id, $2::numeric, $3::timestamptz from t where name = $4", &[23, 1700, 1184, 25]),
        bind("", "s", 0, &[Some(b"1"), Some(b"2.50"), Some(b"2026-01-01"), None], 1),
        bind(
            "p",
            "s",
            1,
            &[Some(&[0, 0, 0, 1]), Some(&[0, 1, 0, 0, 0, 0, 0, 1, 0, 7]), Some(&[9; 8]), Some(b"ann")],
            0,
        ),
        describe(b'S', "s"),
        describe(b'P', "p"),
        execute("", 0),
        execute("p", 1),
        close(b'P', "p"),
        close(b'S', "s"),
        message(b'H', &[]),
        sync(),
    ]
}

/// Spoils a message in one of several ways.
fn spoil(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(bytes.len() as u64) as usize;
    match rng.below(6) {
        0 => bytes[at] = rng.below(256) as u8,
        1 => bytes[at] ^= 1 << rng.below(8),
        2 => bytes.truncate(at.max(1)),
        3 => bytes.insert(at, rng.below(256) as u8),
        4 => {
            let end = (at + 1 + rng.below(8) as usize).min(bytes.len());
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        // A number of four bytes, at the extremes.
        _ => {
            let number = [0, 1, u32::MAX, 1 << 31, 1 << 16, 0x7fff_ffff][rng.below(6) as usize].to_be_bytes();
            bytes.iter_mut().skip(at).zip(number).for_each(|(byte, new)| *byte = new);
        }
    }
}

/// Panics of threads that serve.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts panics of all servers of this process from now on.
fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let serves = std::thread::current().name().is_some_and(|name| name.starts_with("tokio"));
        PANICS.fetch_add(u64::from(serves), Ordering::Relaxed);
        before(panic);
    }));
}

/// The server answers such messages or ends the connection, and no other session notices.
#[test]
fn spoiled_messages_disturb_no_other_session() {
    let seed = seed("spoiled messages");
    let mut rng = Rng::from_seed(seed);
    // A recursion may have no end any more.
    let defaults = vec![("statement_timeout".to_owned(), "2s".to_owned())];
    let server = Server::start(Settings { defaults, ..Settings::default() });
    let port = server.address.port();
    let mut witness = Raw::connect(port);
    let create = "create table t (id int primary key, name text, n numeric, at timestamptz);
                  insert into t values (1, 'ann', 1, now()), (2, 'bob', 2, null);
                  create table kept (id int primary key); insert into kept values (1)";
    witness.talk(&query(create));
    count_panics();
    let right = messages();
    for attempt in 0..tries(200, 20_000) {
        let mut stream = Raw::connect(port).0;
        let mut sent = Vec::new();
        for _ in 0..=rng.below(6) {
            let mut bytes = right[rng.below(right.len() as u64) as usize].clone();
            if rng.percent(60) {
                spoil(&mut bytes, &mut rng);
            }
            sent.extend(bytes);
        }
        // The server may end the connection before it has read all.
        let _ = stream.write_all(&sent);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        let _ = stream.read_to_end(&mut answers);
        let is_internal = answers.windows(7).any(|field| field == b"CXX000\0");
        assert!(!is_internal && PANICS.load(Ordering::Relaxed) == 0, "seed {seed}, attempt {attempt}: {sent:?}");
        if attempt % 20 == 0 {
            let (answers, _) = witness.talk(&query("select count(*) from kept"));
            assert!(answers.contains(&"C SELECT 1\0".to_owned()), "seed {seed}, attempt {attempt}: {answers:?}");
        }
    }
}
