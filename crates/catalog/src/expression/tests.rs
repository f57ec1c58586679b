//! Tests of expressions: agreement with PostgreSQL, with values computed in other ways, and with their own text.

use proptest::prelude::*;

use super::*;
use crate::TableDef;

fn table() -> TableDef {
    let column = crate::ColumnDef::new;
    let table = TableDef::builder("t").column(column("id", ColumnType::I32)).column(column("n", ColumnType::U64));
    table.column(column("t", ColumnType::LongText)).key(["id"]).finish().expect("a sound declaration")
}

/// The type and the value of an expression, as the table of cases has them.
fn answer(text: &str) -> String {
    let evaluated = || {
        let expression: Expression =
            text.parse().map_err(|error: ExpressionError| (error.sqlstate(), error.to_string()))?;
        let bound = Bound::new(&expression, &table(), &mut []);
        let bound = bound.map_err(|error| (error.sqlstate(), error.to_string()))?;
        let none: &[Datum<'_>] = &[];
        let value = bound.evaluate(none, &[]).map_err(|error| (error.kind().sqlstate(), error.to_string()))?;
        let ty = types::Shown(bound.column_type().unwrap_or(ColumnType::LongText)).to_string();
        let value = match value {
            Datum::Null => "NULL".to_owned(),
            value => {
                let text = value.to_text(bound.column_type()).replace('\'', "''");
                if text.contains('\\') { format!("E'{}'", text.replace('\\', "\\\\")) } else { format!("'{text}'") }
            }
        };
        Ok(format!("{ty} {value}"))
    };
    evaluated().unwrap_or_else(|(code, _): (&str, String)| format!("! {code}"))
}

/// What stands for several grows exponentially with its nesting, and so does a text that functions make longer.
#[test]
fn an_expression_is_refused_that_is_short_and_would_take_no_end() {
    let nested = |before: &str, of: &str, behind: &str| {
        (0..40).fold(of.to_owned(), |inner, _| format!("{before}{inner}{behind}"))
    };
    for endless in [
        nested("(", "true", ") between false and true"),
        nested("case ", "1", " when 1 then 2 when 2 then 1 end"),
        nested("nullif(", "id", ", 1)"),
    ] {
        assert_eq!(answer(&endless), "! 54001");
    }
    assert_eq!(answer(&nested("replace(", "'aa'", ", 'a', 'aaaaaaaaaa')")), "! 54000");
    assert_eq!(answer("nullif(nullif(3, 1) between 2 and 4, false)"), "boolean 'true'");
    assert_eq!(answer("length(replace(replace('aa', 'a', 'aaa'), 'a', 'bb'))"), "integer '12'");
}

#[test]
fn expressions_mean_what_they_mean_in_postgresql() {
    let cases = include_str!("postgres.txt").lines().filter(|line| !line.starts_with('#'));
    let mut wrong = Vec::new();
    let mut all = 0;
    for case in cases {
        let (text, wanted) = case.rsplit_once(" -> ").expect("a case is an expression and its answer");
        all += 1;
        let found = answer(text);
        if found != wanted {
            wrong.push(format!("{text}: {found}, not {wanted}"));
        }
    }
    assert!(all > 500 && wrong.is_empty(), "{} of {all}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The value that binding computes, as it does not depend on the row. A function of NULL has none, whatever its other
/// arguments are, and a known condition decides.
fn known(of: &Expression) -> Option<Option<i128>> {
    const NONE: [Option<i128>; 2] = [None; 2];
    let all = |parts: Vec<&Expression>| parts.into_iter().all(|part| known(part).is_some());
    match of {
        Expression::Binary(operator, a, b) => {
            let is_null = *operator != Binary::Distinct && [a, b].into_iter().any(|part| known(part) == Some(None));
            if is_null { Some(None) } else { all(vec![a, b]).then(|| oracle_at(of, NONE).ok()).flatten() }
        }
        Expression::Case { branches, otherwise } => {
            for (when, then) in branches {
                if known(when)? == Some(1) {
                    return known(then);
                }
            }
            otherwise.as_ref().map_or(Some(None), |otherwise| known(otherwise))
        }
        Expression::Column { .. } => None,
        of => all(of.parts()).then(|| oracle_at(of, NONE).ok()).flatten(),
    }
}

fn oracle(of: &Expression, row: [Option<i128>; 2]) -> std::result::Result<Option<i128>, EvaluationErrorKind> {
    known(of).map_or_else(|| oracle_at(of, row), Ok)
}

/// A value computed in the simplest way: of integers as `Ok(Some(n))`, of truth values as 0 and 1.
fn oracle_at(of: &Expression, row: [Option<i128>; 2]) -> std::result::Result<Option<i128>, EvaluationErrorKind> {
    let truth = |known: Option<bool>| known.map(i128::from);
    Ok(match of {
        Expression::Literal(Literal::Number(text)) => text.parse().ok(),
        Expression::Literal(_) => None,
        Expression::Cast { of, .. } => oracle(of, row)?,
        Expression::Column { column, .. } => row[usize::from(*column == "n")],
        Expression::Unary(Unary::Negate, of) => match oracle(of, row)? {
            Some(n) => Some(n.checked_neg().ok_or(EvaluationErrorKind::NumberOutOfRange)?),
            None => None,
        },
        Expression::Unary(Unary::Not, of) => oracle(of, row)?.map(|truth| 1 - truth),
        Expression::Unary(Unary::IsNull, of) => Some(oracle(of, row)?.is_none().into()),
        Expression::Unary(..) => unreachable!("not generated"),
        Expression::All(parts) | Expression::Any(parts) => {
            let decides = i128::from(matches!(of, Expression::Any(_)));
            let mut all = Some(1 - decides);
            for part in parts {
                match oracle(part, row)? {
                    Some(truth) if truth == decides => return Ok(Some(decides)),
                    None => all = None,
                    Some(_) => {}
                }
            }
            all
        }
        Expression::Binary(operator, a, b) => {
            let (a, b) = (oracle(a, row)?, oracle(b, row)?);
            if *operator == Binary::Distinct {
                return Ok(truth(Some(a != b)));
            }
            let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
            match operator {
                Binary::Add => a.checked_add(b),
                Binary::Multiply => a.checked_mul(b),
                Binary::Divide if b == 0 => return Err(EvaluationErrorKind::DivisionByZero),
                Binary::Divide => a.checked_div(b),
                Binary::Equal => truth(Some(a == b)),
                Binary::Less => truth(Some(a < b)),
                _ => unreachable!("not generated"),
            }
            .ok_or(EvaluationErrorKind::NumberOutOfRange)
            .map(Some)?
        }
        Expression::Case { branches, otherwise } => {
            for (when, then) in branches {
                if oracle(when, row)? == Some(1) {
                    return oracle(then, row);
                }
            }
            otherwise.as_ref().map_or(Ok(None), |otherwise| oracle(otherwise, row))?
        }
        _ => unreachable!("not generated"),
    })
}

/// Integers in the `i128` of both columns, and truth values of them.
fn number() -> impl Strategy<Value = Expression> {
    let number = |n: i64| Expression::Literal(Literal::Number(n.to_string().into())).cast(ColumnType::I128);
    let leaf = prop_oneof![
        (-3..3i64).prop_map(number),
        Just(Expression::column("m")),
        Just(Expression::column("n")),
        Just(Expression::Literal(Literal::Null).cast(ColumnType::I128)),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        let operator = prop_oneof![Just(Binary::Add), Just(Binary::Multiply), Just(Binary::Divide)];
        let sum = (operator, inner.clone(), inner.clone()).prop_map(|(operator, a, b)| a.with(operator, b));
        let case =
            (truth(inner.clone()), inner.clone(), proptest::option::of(inner.clone())).prop_map(|(when, then, or)| {
                Expression::Case { branches: vec![(when, then)], otherwise: or.map(Box::new) }
            });
        prop_oneof![3 => sum, 1 => inner.prop_map(|of| of.apply(Unary::Negate)), 1 => case]
    })
}

fn truth(of: impl Strategy<Value = Expression> + Clone + 'static) -> impl Strategy<Value = Expression> {
    let operator = prop_oneof![Just(Binary::Equal), Just(Binary::Less), Just(Binary::Distinct)];
    let comparison = (operator, of.clone(), of.clone()).prop_map(|(operator, a, b)| a.with(operator, b));
    let leaf = prop_oneof![3 => comparison, 1 => of.prop_map(|of| of.apply(Unary::IsNull))];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = proptest::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            list.clone().prop_map(Expression::All),
            list.prop_map(Expression::Any),
            inner.prop_map(|of| of.apply(Unary::Not)),
        ]
    })
}

#[test]
fn values_are_those_of_a_simpler_evaluation_and_texts_are_read_again() {
    let seed = seriatim_base::rng::seed("expressions");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() };
    let rng = proptest::test_runner::TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &bytes);
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(config, rng);
    let column = |name: &'static str| crate::ColumnDef::new(name, ColumnType::I128).nullable();
    let table = TableDef::builder("t").column(column("m")).column(column("n"));
    let table = table.column(crate::ColumnDef::new("id", ColumnType::U8)).key(["id"]).finish().expect("sound");
    let value = || proptest::option::of(prop_oneof![-3..3i128, Just(i128::MAX)]);
    let cases = (truth(number().boxed()), value(), value());
    let result = runner.run(&cases, |(expression, m, n)| {
        let text = expression.to_string();
        let again: Expression = text.parse().map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        // Parentheses around a part of AND and OR of the same kind go, and stay away.
        prop_assert_eq!(again.to_string().parse::<Expression>(), Ok(again.clone()), "{}", text);
        let row = [m, n].map(|n| n.map_or(Datum::Null, Datum::Integer));
        let wanted = oracle(&expression, [m, n]);
        for expression in [&expression, &again] {
            let bound = Bound::condition(expression, &table, &mut [])
                .map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
            let found = bound.evaluate(&row[..], &[]).map_err(|error| error.kind());
            let wanted = wanted.map(|truth| truth.map_or(Datum::Null, |truth| Datum::Bool(truth == 1)));
            prop_assert_eq!(found, wanted, "{}", text);
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn an_error_says_the_part_and_what_would_be_right() {
    let error = |text: &str| {
        let bound = text.parse().and_then(|of| Bound::condition(&of, &table(), &mut []));
        bound.map_err(|error| error.to_string()).expect_err("it is refused")
    };
    for (text, wanted) in [
        ("id >", "in `id >`: write a value, a column or a function at the end"),
        ("id = 'a", "in `id = 'a`: the quotes do not end at `'a`"),
        ("id = 1 = 2", "in `id = 1 = 2`: the expression goes on at `=`"),
        ("idd > 1", "in `idd`: there is no such column; the columns are id, n, t"),
        ("u.id > 1", "in `id`: the table is `t`, and not `u`"),
        ("id + 1", "in `id + 1`: it must be boolean, and is integer"),
        ("id > t", "in `id > t`: integer and text are of different types"),
        ("nosuch(id)", "in `nosuch(id)`: there is no function nosuch"),
        ("length(id) > 1", "in `length(id)`: the function length does not exist for integer"),
        ("id = 'x'", "in `'x'`: invalid input syntax for type integer: \"x\""),
        ("CAST(id AS nosuch) = 1", "in `CAST(id AS nosuch) = 1`: there is no such type at `nosuch`"),
        ("CAST(id AS date) IS NULL", "in `CAST(id AS date)`: cannot cast type integer to date"),
        ("id = $1", "in `$1`: there is no such parameter; there are 0"),
        ("id # 1", "in `id # 1`: no token of SQL begins at `# 1`"),
    ] {
        assert_eq!(error(text), wanted);
    }
    let deep = |levels: usize| format!("{}true{}", "(".repeat(levels), ")".repeat(levels));
    assert!(error(&deep(100_000)).contains("more than 128 levels"));
    assert!(error(&format!("id{} > 0", " + 1".repeat(100_000))).contains("more than 128 levels"));
    assert!(error(&format!("{} true", "NOT ".repeat(100_000))).contains("more than 128 levels"));
    let wide = vec!["id > 0"; 10_000].join(" AND ");
    assert!(Bound::condition(&wide.parse().expect("AND is one level"), &table(), &mut []).is_ok());
}

#[test]
fn parameters_take_the_types_of_their_places() {
    let expression: Expression = "n > $1 AND t LIKE $2 || '%' AND $3 IN (id, 2)".parse().expect("sound");
    let mut types = [None, None, Some(ColumnType::I64)];
    let bound = Bound::condition(&expression, &table(), &mut types).expect("sound");
    assert_eq!(types, [Some(ColumnType::U64), Some(ColumnType::LongText), Some(ColumnType::I64)]);
    assert_eq!(bound.columns(), [1, 2, 0]);
    let row = [Datum::Integer(2), Datum::Integer(7), Datum::Text("abc".into())];
    let parameters = [Datum::Integer(6), Datum::Text("ab".into()), Datum::Integer(2)];
    assert_eq!(bound.evaluate(&row[..], &parameters), Ok(Datum::Bool(true)));
}

/// Types that PostgreSQL does not have.
#[test]
fn results_of_other_integers_have_the_narrowest_type_for_all_values() {
    for (text, wanted) in [
        ("CAST(1 AS u8) + CAST(1 AS u16)", "u16 '2'"),
        ("CAST(1 AS u8) + CAST(1 AS i8)", "smallint '2'"),
        ("CAST(1 AS u8) + CAST(1 AS smallint)", "smallint '2'"),
        ("CAST(1 AS u32) + 1", "bigint '2'"),
        ("CAST(1 AS u64) + 1", "i128 '2'"),
        ("CAST(1 AS u64) - CAST(2 AS u64)", "! 22003"),
        ("CAST(1 AS u64) - 2", "i128 '-1'"),
        ("CAST(255 AS u8) + CAST(1 AS u8)", "! 22003"),
        ("- CAST(5 AS u16)", "integer '-5'"),
        ("- CAST(5 AS u64)", "i128 '-5'"),
        ("CAST('340282366920938463463374607431768211455' AS u128) > 1", "boolean 'true'"),
        ("CAST('340282366920938463463374607431768211455' AS u128) + 1", "! 22003"),
        ("CAST('340282366920938463463374607431768211455' AS u128)", "u128 '340282366920938463463374607431768211455'"),
        ("CAST(300 AS u8)", "! 22003"),
        ("CAST(-1 AS u64)", "! 22003"),
        ("CAST(1.5 AS numeric(18, 0))", "numeric '2'"),
        ("CAST('abcdef' AS text(3))", "text 'abc'"),
        ("CAST('a' AS \"char\")", "! 42601"),
        ("CAST('a' AS char) || 'b'", "text 'ab'"),
        ("upper('é') < 'z'", "boolean 'false'"),
    ] {
        assert_eq!(answer(text), wanted, "{text}");
    }
}

/// Numbers that count up.
struct Counter(std::cell::Cell<i64>);

impl Surroundings for Counter {
    fn now(&self) -> crate::Timestamp {
        crate::Timestamp::default()
    }

    fn user(&self) -> String {
        "ann".to_owned()
    }

    fn sequence(&self, call: SequenceCall<'_>) -> Result<i64, EvaluationError> {
        match call {
            SequenceCall::Next("s") => {
                self.0.set(self.0.get() + 1);
                Ok(self.0.get())
            }
            other => Err(EvaluationError::of_surroundings("42P01", format!("{other:?}"))),
        }
    }

    fn sequence_of(&self, table: &str, column: &str) -> Result<Option<String>, EvaluationError> {
        Ok((column == "id").then(|| format!("public.{table}_id_seq")))
    }
}

#[test]
fn what_surrounds_an_expression_is_asked_each_time() {
    let bound = |text: &str| {
        let expression: Expression = text.parse().expect("sound");
        assert_eq!(expression.to_string().parse(), Ok(expression.clone()), "{text}");
        Bound::new(&expression, &NoColumns, &mut []).expect("sound")
    };
    let none: &[Datum<'_>] = &[];
    let (next, user, other) = (bound("nextval('s') + 1"), bound("current_user()"), bound("nextval('t')"));
    assert!(!next.is_pure() && next.constant().is_none() && bound("1 + 1").is_pure());
    let nowhere = next.evaluate(none, &[]).expect_err("there is no session");
    assert_eq!(nowhere.sqlstate(), "0A000");
    let counter = Counter(std::cell::Cell::new(0));
    within(&counter, || {
        assert_eq!(
            (next.evaluate(none, &[]), next.evaluate(none, &[])),
            (Ok(Datum::Integer(2)), Ok(Datum::Integer(3)))
        );
        assert_eq!(user.evaluate(none, &[]), Ok(Datum::Text("ann".into())));
        assert_eq!(other.evaluate(none, &[]).expect_err("there is none").sqlstate(), "42P01");
        let inner = Counter(std::cell::Cell::new(10));
        within(&inner, || assert_eq!(next.evaluate(none, &[]), Ok(Datum::Integer(12))));
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| within(&inner, || panic!("on purpose"))));
        assert!(panics.is_err());
        assert_eq!(next.evaluate(none, &[]), Ok(Datum::Integer(4)));
    });
    assert!(next.evaluate(none, &[]).is_err());
    let keys = [bound("gen_random_uuid()"), bound("random()"), bound("clock_timestamp()")];
    for key in &keys[..2] {
        assert_ne!(key.evaluate(none, &[]), key.evaluate(none, &[]));
    }
    // A condition must hold of the row, whenever one looks.
    let condition = TableDef::builder("t").column(crate::ColumnDef::new("id", ColumnType::I32)).key(["id"]);
    let error = condition.check("late", "random() < 2").finish().expect_err("it is of no row");
    assert!(error.to_string().contains("has another value each time"), "{error}");
}

/// A scope has functions of its own, which get values of the types that they want and are never constants.
#[test]
fn a_scope_has_functions_of_its_own() {
    struct Twice;
    impl Scope for Twice {
        fn column(&self, of: Option<&str>, column: &str) -> std::result::Result<(usize, ColumnType), ExpressionError> {
            Scope::column(&table(), of, column)
        }

        fn function(
            &self,
            name: &str,
            arguments: &[Option<ColumnType>],
        ) -> std::result::Result<Option<ScopeFunction>, ExpressionError> {
            let is_own = name == "twice" && arguments.len() == 1;
            let wanted = vec![Some(ColumnType::I64)];
            Ok(is_own.then_some(ScopeFunction { number: 7, arguments: wanted, result: Some(ColumnType::I64) }))
        }
    }
    struct Row;
    impl<'r> Columns<'r> for Row {
        fn get(&self, _: usize) -> Datum<'r> {
            Datum::Integer(20)
        }

        fn call(&self, number: usize, arguments: &[Datum<'_>]) -> std::result::Result<Datum<'r>, EvaluationError> {
            match (number, arguments) {
                (7, [Datum::Integer(value)]) => Ok(Datum::Integer(2 * value)),
                other => Err(EvaluationError::of_scope(format!("{other:?}"))),
            }
        }
    }
    let value = |text: &str| {
        let bound = Bound::new(&text.parse().expect("an expression"), &Twice, &mut []).expect("it makes sense");
        assert_eq!((bound.column_type(), bound.constant()), (Some(ColumnType::I64), None), "{text}");
        bound.evaluate(Row, &[]).map(Datum::into_owned).map_err(|error| error.kind())
    };
    assert_eq!(value("twice(id) + twice(1.6) + twice('1')"), Ok(Datum::Integer(46)));
    assert_eq!(value("twice(NULL)"), Err(EvaluationErrorKind::OfScope));
    let bound = Bound::new(&"abs(twice(1))".parse().expect("an expression"), &table(), &mut []);
    assert_eq!(bound.expect_err("the table has no functions").kind(), ExpressionErrorKind::UndefinedFunction);
}
