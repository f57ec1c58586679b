//! Who clients are, and what they may do.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use seriatim_server::{Acceptor, Counts, Log, Tls};

use super::*;

/// 32 bytes that prove nothing, in Base64.
const NO_PROOF: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Settings with a log, and its lines.
fn logged() -> (Settings, std::sync::mpsc::Receiver<String>) {
    let (log, lines) = Log::new(|| {});
    let failure_delay = Duration::ZERO;
    (Settings { log, log_connections: true, failure_delay, ..Settings::default() }, lines)
}

/// A connection that has sent its first packet.
fn begun(server: &Server, user: &str) -> Raw {
    let mut raw = Raw(std::net::TcpStream::connect(server.address).expect("it listens"));
    raw.send(&startup(&[b"user\0", user.as_bytes(), b"\0database\0postgres\0\0"].concat()));
    raw
}

/// The first message of SCRAM, behind the name of the mechanism.
fn first_response(mechanism: &str, message: &str) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    super::message(b'p', &[mechanism.as_bytes(), b"\0", &length, message.as_bytes()])
}

/// The code with which a connection ends.
fn ended(raw: &mut Raw) -> String {
    let (tag, body) = raw.answer();
    assert_eq!((tag, &*field(&body, b'S')), (b'E', "FATAL"), "{}", String::from_utf8_lossy(&body));
    let code = field(&body, b'C');
    assert_eq!(raw.0.read(&mut [0; 1]).expect("it is closed"), 0);
    code
}

/// Sends the messages of a log-in without a password. Returns what the server asks for, and how it ends.
fn guess(raw: &mut Raw) -> (String, String) {
    let (tag, body) = raw.answer();
    assert_eq!((tag, &body[..]), (b'R', &b"\0\0\0\x0aSCRAM-SHA-256\0\0"[..]));
    raw.send(&first_response("SCRAM-SHA-256", "n,,n=,r=abc"));
    let (tag, body) = raw.answer();
    assert_eq!((tag, &body[..4]), (b'R', &b"\0\0\0\x0b"[..]));
    let challenge = String::from_utf8(body[4..].to_vec()).expect("text");
    let nonce = challenge.split(',').next().expect("a nonce");
    raw.send(&message(b'p', &[format!("c=biws,{nonce},p={NO_PROOF}").as_bytes()]));
    let asked = challenge.split_once(",s=").expect("a salt").1.to_owned();
    (asked, ended(raw))
}

#[test]
fn a_log_in_is_a_sequence_of_messages_and_fails_alike_for_all() {
    let (settings, lines) = logged();
    let server = Server::start(settings);
    assert_eq!(ended(&mut begun(&server, "eve")), "28000", "there is nothing to guess yet");
    let mut session = Raw::connect(server.address.port());
    session.talk(&query("create user ann password 'secret'"));
    session.talk(&query("create role group_of_some password 'secret'"));
    // Known, unknown, without a log-in: the same messages, each with one salt.
    for user in ["ann", "eve", "group_of_some"] {
        let (first, code) = guess(&mut begun(&server, user));
        assert_eq!(code, "28P01", "{user}");
        assert_eq!(guess(&mut begun(&server, user)).0, first, "{user}");
        assert!(first.ends_with(",i=4096") && first.len() == 24 + 7, "{first}");
    }
    // The superuser has none, and comes from this machine.
    let (tag, body) = begun(&server, "postgres").answer();
    assert_eq!((tag, &body[..]), (b'R', &[0; 4][..]));
    let bad: [(&[u8], &str); 7] = [
        (&query("select 1"), "08P01"),
        (&message(b'p', &[b"SCRAM-SHA-256"]), "08P01"),
        (&first_response("SCRAM-SHA-1", "n,,n=,r=abc"), "08P01"),
        (&first_response("SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,n=,r=abc"), "08P01"),
        (&first_response("SCRAM-SHA-256", "p=tls-server-end-point,,n=,r=abc"), "08P01"),
        (&first_response("SCRAM-SHA-256", "n,a=bob,n=,r=abc"), "0A000"),
        (b"p\x7f\xff\xff\xff", "08P01"),
    ];
    for (bytes, code) in bad {
        let mut raw = begun(&server, "ann");
        raw.answer();
        raw.send(bytes);
        assert_eq!(ended(&mut raw), code, "{}", String::from_utf8_lossy(bytes));
    }
    // Cut off anywhere, or one byte after the other.
    let whole = first_response("SCRAM-SHA-256", "n,,n=,r=abc");
    for end in 0..whole.len() {
        let mut raw = begun(&server, "ann");
        raw.answer();
        raw.send(&whole[..end]);
    }
    let mut raw = begun(&server, "ann");
    raw.answer();
    whole.iter().for_each(|byte| raw.send(&[*byte]));
    assert_eq!(raw.answer().0, b'R');
    let said: Vec<String> = lines.try_iter().collect();
    let has = |words: &str| said.iter().any(|line| line.contains(words));
    assert!(has("user \"ann\": FATAL 28P01: password authentication failed for user \"ann\""), "{said:?}");
    assert!(has("user \"postgres\": connected without TLS"), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("secret")), "{said:?}");
}

#[test]
fn many_log_ins_fail_and_the_server_goes_on() {
    let (settings, _) = logged();
    let server = Server::start(Settings { waiting_max: 32, ..settings });
    let mut session = Raw::connect(server.address.port());
    session.talk(&query("create user ann password 'secret'"));
    let codes = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..10)
            .map(|_| {
                scope.spawn(|| {
                    let open: Vec<Raw> = (0..50).map(|_| begun(&server, "ann")).collect();
                    let end = |mut raw: Raw| {
                        // A connection may be one too many.
                        let (tag, body) = raw.answer();
                        if tag == b'E' {
                            return field(&body, b'C');
                        }
                        raw.send(&first_response("SCRAM-SHA-256", "n,,n=,r=abc"));
                        raw.answer();
                        raw.send(&message(b'p', &[b"c=biws,r=x,p="]));
                        ended(&mut raw)
                    };
                    open.into_iter().map(end).collect::<Vec<_>>()
                })
            })
            .collect();
        callers.into_iter().flat_map(|caller| caller.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert_eq!(codes.len(), 500);
    assert!(codes.iter().all(|code| code == "08P01" || code == "53300"), "{codes:?}");
    assert!(codes.iter().any(|code| code == "08P01") && codes.iter().any(|code| code == "53300"));
    let (answers, _) = session.talk(&query("select 1"));
    assert!(answers.contains(&"C SELECT 1\0".to_owned()), "{answers:?}");
    assert_eq!(guess(&mut begun(&server, "ann")).1, "28P01", "places are free again");
}

#[test]
fn slow_clients_end() {
    let (settings, _) = logged();
    let server = Server::start(Settings { greeting_max: Duration::from_millis(200), ..settings });
    let silent = |bytes: &[u8]| {
        let mut raw = Raw(std::net::TcpStream::connect(server.address).expect("it listens"));
        raw.send(bytes);
        let mut said = Vec::new();
        raw.0.read_to_end(&mut said).expect("it is closed");
        said
    };
    assert!(silent(b"").is_empty() && silent(&startup(b"user\0postgres\0\0")[..9]).is_empty());
    let mut session = Raw::connect(server.address.port());
    session.talk(&query("create user ann password 'secret'"));
    let mut raw = begun(&server, "ann");
    raw.answer();
    assert_eq!(ended(&mut raw), "57014");
    // After the log-in, by settings.
    for (setting, begin, code) in
        [("idle_session_timeout", "select 1", "57P05"), ("idle_in_transaction_session_timeout", "begin", "25P03")]
    {
        let mut raw = Raw::connect(server.address.port());
        raw.send(&query(&format!("set {setting} = '100ms'")));
        raw.send(&query(begin));
        let mut ready = 0;
        while ready < 2 {
            ready += u32::from(raw.answer().0 == b'Z');
        }
        assert_eq!(ended(&mut raw), code);
    }
}

#[test]
fn slow_statements_are_cancelled_and_logged() {
    let (mut settings, lines) = logged();
    settings.defaults = vec![("log_min_duration_statement".to_owned(), "0".to_owned())];
    let server = Server::start(settings);
    let mut session = Raw::connect(server.address.port());
    session.talk(&query("create table t (id int primary key)"));
    session.talk(&query("insert into t select x from generate_series(1, 400) as x"));
    session.talk(&query("create user ann password 'secret'"));
    session.send(&[query("set statement_timeout = 50"), query("select count(*) from t a, t b, t c, t d")].concat());
    let failed = loop {
        let (tag, body) = session.answer();
        if tag == b'E' {
            break body;
        }
    };
    assert_eq!(field(&failed, b'C'), "57014");
    assert_eq!(field(&failed, b'M'), "canceling statement due to statement timeout");
    while session.answer().0 != b'Z' {}
    let (answers, rows) = session.talk(&query("show statement_timeout"));
    assert!(rows[0].ends_with(b"50ms"), "{answers:?}");
    // The limit is one of statements, not of messages.
    session.talk(&query("set statement_timeout = 0"));
    let (answers, _) = session.talk(&query("set statement_timeout = 50; select count(*) from t a, t b, t c, t d"));
    assert!(answers.contains(&"E 57014".to_owned()), "{answers:?}");
    drop(session);
    let said: Vec<String> = lines.try_iter().collect();
    assert!(said.iter().any(|line| line.contains("ms  statement: create table t")), "{said:?}");
    assert!(said.iter().any(|line| line.ends_with("statement: create user ann password (not shown)")), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("secret")), "{said:?}");
}

/// A certificate of its own authority for 127.0.0.1, made by openssl; none where that is not installed.
fn certificate(folder: &Path) -> Option<Acceptor> {
    std::fs::create_dir_all(folder).expect("there is space");
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(folder).output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(())
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let own = ["req", "-x509", "-days", "1", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&[&own[..], &key].concat())?;
    openssl(&[&["req", "-subj", "/CN=server", "-keyout", "key.pem", "-out", "request"][..], &key].concat())?;
    std::fs::write(folder.join("names"), "subjectAltName = IP:127.0.0.1").expect("there is space");
    openssl(&[
        "x509",
        "-req",
        "-in",
        "request",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "1",
        "-extfile",
        "names",
        "-out",
        "cert.pem",
    ])?;
    let read = |name: &str| std::fs::read(folder.join(name)).expect("openssl has made it");
    Some(Acceptor::new(&read("cert.pem"), &read("key.pem")).expect("they belong together"))
}

/// What psql says as this user with this password and these settings of the connection.
fn psql(server: &Server, user: &str, password: &str, settings: &str, text: &str) -> String {
    let connection = format!("user={user} dbname=postgres {settings}");
    let mut command = server.command("psql", &["-XAtqw", "-v", "VERBOSITY=verbose", "-c", text, &connection]);
    command.env_remove("PGUSER").env("PGPASSWORD", password);
    let output = command.output().expect("it can be started");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn psql_logs_in_with_a_password_and_tls() {
    if !are_installed() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("seriatim-tls-{}", std::process::id()));
    let Some(acceptor) = certificate(&folder) else {
        println!("skipped: openssl is not installed");
        return;
    };
    let root = folder.join("ca.pem");
    let verified = format!("sslmode=verify-full sslrootcert={}", root.display());
    let tls = Some(Tls::new(acceptor));
    let (settings, _) = logged();
    let server = Server::start(Settings { tls: tls.clone(), ..settings.clone() });
    let as_postgres = |text: &str| psql(&server, "postgres", "", "sslmode=disable", text);
    assert_eq!(as_postgres("create table account (id int primary key); "), "");
    assert_eq!(as_postgres("create user ann password 'gr\u{fc}n' connection limit 1"), "");
    assert_eq!(as_postgres("create user bob"), "");
    assert_eq!(as_postgres("grant select on account to ann"), "");
    let me = "select current_user || count(*) from account";
    for settings in [
        "sslmode=disable",
        "sslmode=require channel_binding=disable",
        "sslmode=require channel_binding=require",
        &format!("{verified} channel_binding=require"),
    ] {
        assert_eq!(psql(&server, "ann", "gr\u{fc}n", settings, me), "ann0\n", "{settings}");
    }
    let failed = psql(&server, "ann", "wrong", &format!("{verified} channel_binding=require"), me);
    assert!(failed.contains("FATAL:  password authentication failed for user \"ann\""), "{failed}");
    let failed = psql(&server, "eve", "wrong", &verified, me);
    assert!(failed.contains("FATAL:  password authentication failed for user \"eve\""), "{failed}");
    let failed = psql(&server, "ann", "gr\u{fc}n", "sslmode=disable channel_binding=require", me);
    assert!(failed.contains("channel binding required"), "{failed}");
    let denied = psql(&server, "bob", "", &verified, me);
    assert!(denied.contains("ERROR:  42501: permission denied for table account"), "{denied}");
    // A password that was hashed by the client, as by \password of psql.
    let hash = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    assert_eq!(as_postgres(&format!("alter role bob password '{hash}'")), "");
    assert_eq!(psql(&server, "bob", "pencil", &verified, "select session_user"), "bob\n");
    assert_eq!(as_postgres("alter role bob nologin"), "");
    let failed = psql(&server, "bob", "pencil", &verified, me);
    assert!(failed.contains("role \"bob\" is not permitted to log in"), "{failed}");

    // Passwords always.
    let server = Server::start(Settings { passwords_always: true, ..settings.clone() });
    let failed = psql(&server, "postgres", "", "sslmode=disable", me);
    assert!(failed.contains("no password supplied"), "{failed}");

    // An address that others reach.
    let database = Database::in_memory().expect("there is memory");
    let start = |settings: &Settings| Server::start_at("0.0.0.0:0", database.clone(), settings.clone());
    let refused = |settings: &Settings, why: &str| {
        let mut server = start(settings);
        let error = server.running.take().expect("it runs").join().expect("no panic").expect_err("it refuses");
        assert!(error.contains(why), "{error}");
    };
    refused(&settings, "give a certificate and its key");
    let settings = Settings { tls, ..settings };
    refused(&settings, "no role has a password");
    let mut session = seriatim_sql::Session::new(database.clone());
    session.execute("alter role postgres password 'secret'").expect("it exists");
    session.execute("create user bob").expect("it is new");
    let server = start(&settings);
    let failed = psql(&server, "postgres", "secret", "sslmode=disable", "select 1");
    assert!(failed.contains("need encryption"), "{failed}");
    assert_eq!(psql(&server, "postgres", "secret", &verified, "select 1"), "1\n");
    let failed = psql(&server, "bob", "x", &verified, "select 1");
    assert!(failed.contains("password authentication failed"), "{failed}");
    std::fs::remove_dir_all(folder).expect("it exists");
}

#[test]
fn probes_and_counts_are_served_by_http() {
    let counts = Arc::new(Counts::default());
    let server = Server::start(Settings { counts: Arc::clone(&counts), ..Settings::default() });
    let mut session = Raw::connect(server.address.port());
    session.talk(&query("select nothing"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("there are threads");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let database = Database::in_memory().expect("there is memory");
    runtime.spawn(seriatim_server::serve_http(listener, database, counts, None));
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    for line in ["seriatim_connections_total 1", "seriatim_sessions 1", "seriatim_errors_total 1"] {
        assert!(answer.lines().any(|own| own == line), "{line}: {answer}");
    }
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

/// Both ends of each connection are in this process, whose files have a limit.
#[test]
fn idle_sessions_are_small() {
    const ALONE: &str = "SERIATIM_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        // In a process of its own the memory of other tests does not count.
        let mut alone = Command::new(std::env::current_exe().expect("Linux knows it"));
        let alone = alone.args(["--exact", "authentication::idle_sessions_are_small", "--nocapture"]).env(ALONE, "1");
        let output = alone.output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    // Without optimization; frames of futures are larger there.
    const BYTES_MAX: usize = 30_000;
    let most = std::fs::read_to_string("/proc/self/limits").expect("Linux has it");
    let files =
        most.lines().find(|line| line.starts_with("Max open files")).and_then(|line| line.split_whitespace().nth(3));
    let files = files.and_then(|files| files.parse::<u64>().ok()).expect("a number");
    let count = seriatim::rng::tries(300, 10_000).min(files / 4) as usize;
    let server = Server::start(Settings { connections_max: count + 200, ..Settings::default() });
    let open = |count: usize| -> Vec<Raw> {
        let one = || {
            let mut raw = Raw::connect(server.address.port());
            raw.talk(&query("select 1"));
            raw
        };
        (0..count).map(|_| one()).collect()
    };
    // What the first sessions need is not theirs.
    let mut sessions = open(100);
    let before = resident_bytes();
    sessions.extend(open(count));
    let each = resident_bytes().saturating_sub(before) / count;
    println!("{count} idle sessions need {each} bytes each");
    assert!(each <= BYTES_MAX, "{each} bytes");
    let (answers, _) = sessions[count / 2].talk(&query("select 1"));
    assert!(answers.contains(&"C SELECT 1\0".to_owned()), "{answers:?}");
}
