//! Valid and invalid templates, and their instances.

use seriatim_wire::messages::extendedquery::{Bind, Describe, Execute, Parse};

use super::*;

const SERIALIZABLE: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";
const FROM: &str = "UPDATE accounts SET balance = balance - $2 WHERE id = $1";
const TO: &str = "UPDATE accounts SET balance = balance + $1 WHERE id = $2";

fn templates() -> Templates {
    Templates::parse(EXAMPLE).expect("the example is right")
}

fn transfer(from: &str, to: &str) -> Option<Instance> {
    let keys = [from, to].map(|key| format!("accounts/{key}").into_bytes());
    Some(Instance { retry: 3, weight: 1, reads: vec![], writes: keys.to_vec() })
}

fn message(begin: &str, statements: &[&str], commit: &str) -> String {
    format!("{begin}; {}; {commit};", statements.join(";\n"))
}

const GOOD: [&str; 2] =
    ["update accounts set balance = balance - 5 where id = 7", "UPDATE Accounts SET balance=balance+'5' WHERE id=-08"];

#[test]
fn a_transaction_in_a_message_is_an_instance_with_its_keys() {
    let templates = templates();
    let begins = [
        SERIALIZABLE,
        "begin work isolation level serializable, read write",
        "START TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE",
    ];
    for begin in begins {
        for commit in ["COMMIT", "end transaction", "COMMIT WORK"] {
            let text = message(begin, &GOOD, commit);
            assert_eq!(templates.in_message(&text, true), transfer("7", "-8"), "{text}");
        }
    }
    let null = message(SERIALIZABLE, &[GOOD[0], "UPDATE accounts SET balance = balance + 5 WHERE id = null"], "COMMIT");
    assert_eq!(templates.in_message(&null, true), transfer("7", "NULL"));
}

#[test]
fn other_transactions_are_not_instances() {
    let templates = templates();
    let bad = [
        message("BEGIN", &GOOD, "COMMIT"),
        message("BEGIN ISOLATION LEVEL REPEATABLE READ", &GOOD, "COMMIT"),
        message("BEGIN ISOLATION LEVEL SERIALIZABLE,", &GOOD, "COMMIT"),
        message("BEGIN ISOLATION LEVEL SERIALIZABLE DEFERRABLE", &GOOD, "COMMIT"),
        message(SERIALIZABLE, &GOOD, "ROLLBACK"),
        message(SERIALIZABLE, &GOOD, "COMMIT AND CHAIN"),
        message(SERIALIZABLE, &GOOD, "COMMIT; SELECT 1"),
        message(SERIALIZABLE, &[GOOD[0], "COMMIT", GOOD[1]], "COMMIT"),
        message(SERIALIZABLE, &GOOD[..1], "COMMIT"),
        message(SERIALIZABLE, &[GOOD[1], GOOD[0]], "COMMIT"),
        message(SERIALIZABLE, &[GOOD[0], GOOD[1], "SELECT 1"], "COMMIT"),
        // The amounts differ.
        message(SERIALIZABLE, &[GOOD[0], "UPDATE accounts SET balance = balance + 6 WHERE id = 8"], "COMMIT"),
        message(SERIALIZABLE, &[GOOD[0], "UPDATE accounts SET balance = balance + 5 WHERE id = 8 OR true"], "COMMIT"),
        message(SERIALIZABLE, &[GOOD[0], "UPDATE accounts SET balance = balance + 5 WHERE id = (8)"], "COMMIT"),
        message(SERIALIZABLE, &[GOOD[0], "UPDATE accounts SET balance = balance + 5 WHERE id = 8 -- 9"], "COMMIT"),
        format!("{SERIALIZABLE} {}; COMMIT", GOOD.join(";")),
        String::new(),
        ";;".into(),
    ];
    for text in bad {
        assert_eq!(templates.in_message(&text, true), None, "{text}");
    }
    let plain = EXAMPLE.replace("serializable = false", "serializable = true");
    let plain = Templates::parse(&plain).expect("it is right");
    assert_eq!(plain.in_message(&message("BEGIN", &GOOD, "COMMIT"), true), transfer("7", "-8"));
}

struct Statement<'a> {
    name: Option<&'a str>,
    text: &'a str,
    formats: Vec<i16>,
    values: Vec<Option<&'static [u8]>>,
}

fn statement<'a>(text: &'a str, values: &[&'static [u8]]) -> Statement<'a> {
    Statement { name: None, text, formats: vec![], values: values.iter().map(|value| Some(*value)).collect() }
}

/// The instance of a pipeline, or the number of the statement at which it could no longer match.
fn pipeline(templates: &Templates, statements: &[Statement<'_>]) -> Result<Option<Instance>, usize> {
    let mut pipeline = Pipeline::new(templates);
    for (at, Statement { name, text, formats, values }) in statements.iter().enumerate() {
        let bind_to = name.map(str::to_owned);
        let values = values.iter().map(|value| value.map(bytes::Bytes::from_static)).collect();
        let bind = Bind::new(None, bind_to, formats.clone(), values, vec![1]);
        let prepared = |_: &str| templates.prepare(text, true);
        let goes_on = (name.is_some() || pipeline.parse(templates, &Parse::new(None, (*text).into(), vec![]), true))
            && pipeline.bind(templates, &bind, prepared)
            && pipeline.describe(&Describe::new(b'P', None))
            && pipeline.execute(&Execute::new(None, 0));
        if !goes_on {
            return Err(at);
        }
    }
    Ok(pipeline.sync(templates))
}

#[test]
fn a_pipeline_is_an_instance_however_it_sends_its_values() {
    let templates = templates();
    let (begin, commit) = (|| statement(SERIALIZABLE, &[]), || statement("COMMIT", &[]));
    let text = [begin(), statement(FROM, &[b"7", b"5"]), statement(TO, &[b" 5", b"-08"]), statement("COMMIT ; ", &[])];
    assert_eq!(pipeline(&templates, &text), Ok(transfer("7", "-8")));
    let binary = [
        Statement { name: Some("b"), ..begin() },
        Statement { formats: vec![1], ..statement(FROM, &[&[0, 7], &[0, 0, 0, 5]]) },
        Statement {
            name: Some("t"),
            formats: vec![0, 1],
            ..statement(TO, &[b"5", &[255, 255, 255, 255, 255, 255, 255, 248]])
        },
        Statement { name: Some("c"), ..commit() },
    ];
    assert_eq!(pipeline(&templates, &binary), Ok(transfer("7", "-8")));
}

#[test]
fn a_pipeline_is_given_up_as_soon_as_it_cannot_become_one() {
    let templates = templates();
    let (begin, commit) = (|| statement(SERIALIZABLE, &[]), || statement("COMMIT", &[]));
    assert_eq!(pipeline(&templates, &[statement("SELECT 1", &[])]), Err(0));
    assert_eq!(pipeline(&templates, &[statement("BEGIN", &[])]), Err(0));
    assert_eq!(pipeline(&templates, &[begin(), statement("SELECT 1", &[])]), Err(1));
    assert_eq!(pipeline(&templates, &[begin(), statement(FROM, &[b"7"])]), Err(1), "a value is missing");
    let other = [begin(), statement(FROM, &[b"7", b"5"]), statement(TO, &[b"6", b"8"])];
    assert_eq!(pipeline(&templates, &other), Err(2), "the amounts differ");
    assert_eq!(pipeline(&templates, &[begin(), statement(FROM, &[b"7", b"5"]), commit()]), Err(2));
    assert_eq!(pipeline(&templates, &[begin(), statement(FROM, &[b"7", b"5"])]), Ok(None), "it does not commit");
    let whole = || [begin(), statement(FROM, &[b"7", b"5"]), statement(TO, &[b"5", b"8"]), commit()];
    assert_eq!(
        pipeline(&templates, &whole().into_iter().chain([statement("SELECT 1", &[])]).collect::<Vec<_>>()),
        Err(4)
    );
    // An unnamed statement is forgotten. A limit may end a statement early. A named portal may be used later.
    let mut odd = Pipeline::new(&templates);
    assert!(!odd.bind(&templates, &Bind::new(None, None, vec![], vec![], vec![]), |_| None));
    let mut named = Pipeline::new(&templates);
    assert!(!named.parse(&templates, &Parse::new(Some("s".into()), SERIALIZABLE.into(), vec![]), true));
    let mut limited = Pipeline::new(&templates);
    let bind = |portal: Option<&str>, values: &[&'static [u8]]| {
        let values = values.iter().map(|value| Some(bytes::Bytes::from_static(value))).collect();
        Bind::new(portal.map(str::to_owned), None, vec![], values, vec![])
    };
    assert!(limited.parse(&templates, &Parse::new(None, SERIALIZABLE.into(), vec![]), true));
    assert!(limited.bind(&templates, &bind(None, &[]), |_| None) && limited.execute(&Execute::new(None, 1)));
    assert!(limited.parse(&templates, &Parse::new(None, FROM.into(), vec![]), true));
    assert!(limited.bind(&templates, &bind(None, &[b"1", b"2"]), |_| None));
    assert!(!limited.execute(&Execute::new(None, 1)));
}

#[test]
fn an_invalid_file_is_refused_with_the_line_and_the_valid_form() {
    let changed = |from: &str, to: &str| {
        let text = EXAMPLE.replace(from, to);
        assert_ne!(text, EXAMPLE, "the example has no `{from}`");
        Templates::parse(&text).expect_err(to)
    };
    for (from, to, words) in [
        ("WHERE id = :from\"", "WHERE id = :form\"", ["line 10:", "`:form` is not a parameter"]),
        ("WHERE id = :to\"", "WHERE id = 1\"", ["line 6:", "`to` that no statement has"]),
        ("accounts/:from", "accounts/:form", ["line 15:", "`:form` of the key"]),
        ("[\"accounts/:from\", \"accounts/:to\"]", "[]", ["line 6:", "has no keys"]),
        ("WHERE id = :to\"", "WHERE id = :to;\"", ["line 11:", "without `;`"]),
        ("WHERE id = :to\"", "WHERE id = $1\"", ["line 11:", "$1 is a client's"]),
        ("WHERE id = :to\"", "WHERE id = :to -- x\"", ["line 11:", "comments"]),
        ("\"UPDATE accounts SET balance = balance - ", "\"COMMIT ", ["line 10:", "omit them"]),
        ("\"UPDATE accounts SET balance = balance - ", "\"VACUUM ", ["line 10:", "begins with one of select"]),
        ("retry = 3", "retry = 3000", ["line 6:", "at most 1000"]),
        ("retry = 3", "retries = 3", ["line 17:", "unknown field"]),
        ("amount = \"integer\"", "amount = \"money\"", ["line 7:", "`money`"]),
        ("name = \"transfer\"", "name = transfer", ["line 6:", ""]),
    ] {
        let error = changed(from, to);
        assert!(words.iter().all(|word| error.contains(word)), "{to}: {error}");
    }
    let twice = format!("{EXAMPLE}{}", &EXAMPLE[EXAMPLE.find("[[").expect("it has one")..]);
    assert!(Templates::parse(&twice).is_err_and(|error| error.contains("another template `transfer`")));
    for (from, to, words) in [
        ("name = \"transfer\"", "name = \" \"", ["line 6:", "name is empty"]),
        ("reads = []", "reads = [\" \"]", ["line 14:", "a key is empty"]),
        ("\"accounts/:to\"]", "\"accounts/:from\"]", ["line 15:", "`accounts/:from` occurs twice"]),
    ] {
        let error = changed(from, to);
        assert!(words.iter().all(|word| error.contains(word)), "{to}: {error}");
    }
    let with = |statement: &str| {
        Templates::parse(&EXAMPLE.replace("statements = [", &format!("statements = ['''{statement}''',")))
    };
    for weak in [
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "set transaction read only, isolation level repeatable read",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL :amount",
        "SET transaction_isolation = 'read committed'",
        "SET LOCAL \"Default_Transaction_Isolation\" TO DEFAULT",
        "SELECT set_config('Transaction_Isolation', 'read committed', true)",
        "UPDATE pg_settings SET setting = 'read committed' WHERE name = 'default_transaction_isolation'",
    ] {
        let error = with(weak).expect_err(weak);
        assert!(error.contains("line 9:") && error.contains("LEVEL SERIALIZABLE"), "{weak}: {error}");
    }
    for strong in [
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET LOCAL lock_timeout = 100",
        "SELECT current_setting('transaction_isolation')",
        "SELECT isolation level FROM t",
    ] {
        assert!(with(strong).is_ok(), "{strong}");
    }
    assert!(Templates::parse("").is_err_and(|error| error.contains("no [[template]]")));
}

#[test]
fn a_template_that_an_earlier_one_covers_is_refused() {
    type Case = (&'static str, &'static str);
    let template = |name: &str, (parameters, statements): Case| {
        format!(
            "[[template]]\nname = \"{name}\"\nparameters = {{ {parameters} }}\nstatements = [{statements}]\n\
             writes = [\"t\"]\n"
        )
    };
    let both = |first: Case, second: Case| Templates::parse(&(template("first", first) + &template("second", second)));
    let two: Case = ("a = \"integer\", b = \"integer\"", "\"UPDATE t SET n = :a WHERE id = :b\"");
    let renamed = ("x = \"integer\", y = \"integer\"", "\"update t set n=:x where id=:y\"");
    let same = ("a = \"integer\"", "\"UPDATE t SET n = :a WHERE id = :a\"");
    let negative = ("b = \"integer\"", "\"UPDATE t SET n = -5 WHERE id = :b\"");
    let constants = ("", "\"UPDATE t SET n = null WHERE id = '7'\"");
    for covered in [two, renamed, same, negative, constants] {
        let error = both(two, covered).expect_err(covered.1);
        let words = ["line 7:", "`second` would never be used", "Move `second` before `first`"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let equal = ("", "\"UPDATE t SET n = -5 WHERE id = -5\"");
    assert!(both(same, equal).is_err(), "a value of two tokens may occur twice");
    let column = ("b = \"integer\"", "\"UPDATE t SET n = m WHERE id = :b\"");
    let opposite = ("a = \"integer\", b = \"integer\"", "\"UPDATE t SET n = -:a WHERE id = :b\"");
    let longer = ("a = \"integer\", b = \"integer\"", "\"UPDATE t SET n = :a WHERE id = :b AND true\"");
    let table = ("a = \"integer\", b = \"integer\"", "\"UPDATE u SET n = :a WHERE id = :b\"");
    let text = ("a = \"text\", b = \"integer\"", "\"UPDATE t SET n = :a WHERE id = :b\"");
    let statements = ("", "\"UPDATE t SET n = 1 WHERE id = 1\", \"UPDATE t SET n = 1 WHERE id = 1\"");
    for other in [column, opposite, longer, table, text, statements] {
        both(two, other).expect(other.1);
        both(other, two).expect(other.1);
    }
    // The special one comes first.
    for special in [same, negative, constants] {
        both(special, two).expect(special.1);
    }
    both(same, negative).expect("their transactions differ");
    let across = ("a = \"integer\"", "\"DELETE FROM t WHERE id = :a\", \"DELETE FROM u WHERE id = :a\"");
    let values = ("", "\"DELETE FROM t WHERE id = 1\", \"DELETE FROM u WHERE id = 2\"");
    both(across, values).expect("a parameter has one value in all statements");
}
