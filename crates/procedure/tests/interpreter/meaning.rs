//! The meaning of expressions, patterns, steps and operations, one at a time.

use seriatim_procedure::evaluate::{DEPTH_MAX, Frame, VALUES_MAX};
use seriatim_procedure::interpret::interpret;
use seriatim_procedure::ir::*;
use seriatim_procedure::{Data, EvaluationError, Value};

use crate::build::*;
use crate::support::toy::{Toy, ToyError};

fn value(expression: Expression) -> Result<Value, EvaluationError> {
    Frame::new(8).evaluate(&expression)
}

/// Runs steps over a table `t` of three rows (1, 10), (2, 20), (3, 30); variable 0 is a list of numbers.
fn result(body: Vec<Step>) -> (Result<Value, ToyError>, Toy) {
    let mut toy = Toy::default().with("t", 1, &["key", "value"]);
    for key in 1..=3u8 {
        toy = toy.row("t", vec![key.to_value(), (10 * key).to_value()]);
    }
    let procedure = procedure("test", 1, &["list", "a", "b", "c", "d", "e"], &["t"], body);
    let result = interpret(&procedure, &vec![1u8, 2, 3].to_value(), &toy);
    (result, toy)
}

fn returned(body: Vec<Step>) -> Value {
    result(body).0.unwrap()
}

fn refused(body: Vec<Step>) -> String {
    match result(body).0 {
        Err(ToyError::Evaluation(EvaluationError::Type(problem))) => problem,
        other => panic!("{other:?}"),
    }
}

fn values(toy: &Toy) -> Vec<u8> {
    toy.rows("t").iter().map(|row| u8::from_value(row.field("value").unwrap()).unwrap()).collect()
}

const ADD: Option<BinaryOperator> = Some(BinaryOperator::Add);

#[test]
fn logic_is_lazy() {
    let overflow = || binary(binary(literal(1u8), BinaryOperator::Divide, int(0)), BinaryOperator::Equal, int(0));
    assert_eq!(value(binary(literal(false), BinaryOperator::And, overflow())), Ok(false.to_value()));
    assert_eq!(value(binary(literal(true), BinaryOperator::Or, overflow())), Ok(true.to_value()));
    assert_eq!(value(binary(literal(true), BinaryOperator::And, overflow())), Err(EvaluationError::Overflow));
    let choice = |condition| of(ExpressionKind::If(literal(condition), overflow(), literal(7u8)));
    assert_eq!(value(choice(false)), Ok(7u8.to_value()));
    assert_eq!(value(choice(true)), Err(EvaluationError::Overflow));
    assert!(value(binary(literal(true), BinaryOperator::And, int(1))).is_err());
}

#[test]
fn parts_of_values_are_read_and_assigned() {
    let index = |at| Selector::Index(int(at));
    let point =
        || made("P", vec![("x", literal(1u8)), ("y", of(ExpressionKind::List(vec![literal(2u8), literal(3u8)])))]);
    let body = |path: Vec<Selector>, operator, value| {
        vec![let_(bind(1), tuple(vec![point(), literal(4u8)])), assign(1, path, operator, value), return_(var(1))]
    };
    let field = |name: &str| Selector::Field(name.into());
    let changed = returned(body(vec![field("0"), field("y"), index(1)], ADD, int(252)));
    let list = changed.field("0").unwrap().field("y").unwrap();
    assert_eq!(*list, vec![2u8, 255].to_value(), "a literal took the type of what it was added to");
    let changed = returned(body(vec![field("1")], None, int(9)));
    assert_eq!(changed.field("1"), Some(&9u8.to_value()), "a literal takes the type of what it replaces");
    let stop = |body| result(body).0.unwrap_err();
    assert_eq!(
        stop(body(vec![field("0"), field("y"), index(2)], None, int(9))),
        ToyError::Evaluation(EvaluationError::OutOfBounds { index: 2, length: 2 })
    );
    assert_eq!(stop(body(vec![field("1")], None, int(256))), ToyError::Evaluation(EvaluationError::Overflow));
    assert_eq!(refused(body(vec![field("2")], None, int(9))), "test.rs:1:1: a tuple of 2 has no such field");
    assert_eq!(refused(body(vec![index(0)], None, int(9))), "test.rs:1:1: a tuple of 2 has no elements to assign");
    assert_eq!(refused(body(vec![field("0"), field("z")], None, int(9))), "test.rs:1:1: a `P` has no field `z`");
    let element = |at| of(ExpressionKind::Element(literal(vec![5u8, 6]), at));
    assert_eq!(value(element(int(1))), Ok(6u8.to_value()));
    assert_eq!(value(element(literal(2usize))), Err(EvaluationError::OutOfBounds { index: 2, length: 2 }));
    assert!(matches!(value(element(literal(1u8))), Err(EvaluationError::Type(_))));
}

#[test]
fn patterns_match_what_they_say() {
    let evaluated = |value: Expression| Frame::new(0).evaluate(&value).unwrap();
    let literal_ = |number: i128| Pattern::Literal(Value::Integer(number, None));
    let range = |inclusive| Pattern::Range { low: Value::Integer(2, None), high: Value::Integer(4, None), inclusive };
    let matches = |pattern: &Pattern, value: &Value| Frame::new(8).matches(pattern, value);
    for (number, expected) in [(1u8, [false, false, false]), (2, [true, true, true]), (4, [false, true, false])] {
        let number = number.to_value();
        assert_eq!(matches(&range(false), &number), Ok(expected[0]));
        assert_eq!(matches(&range(true), &number), Ok(expected[1]));
        assert_eq!(matches(&literal_(2), &number), Ok(expected[2]));
    }
    let either = Pattern::Either(vec![literal_(1), literal_(3)]);
    assert_eq!(matches(&either, &3u8.to_value()), Ok(true));
    assert_eq!(matches(&either, &2u8.to_value()), Ok(false));
    assert_eq!(matches(&some(literal_(1)), &Some(1u8).to_value()), Ok(true));
    assert_eq!(matches(&some(Pattern::Any), &Value::NONE), Ok(false));
    assert_eq!(matches(&Pattern::None, &Value::NONE), Ok(true));
    let (name, fields) = record("Circle", vec![("radius", literal_(2))]);
    let circle = Pattern::Record { name, fields };
    let shape = |name: &str, radius: u8| evaluated(made(name, vec![("radius", literal(radius)), ("x", literal(0u8))]));
    assert_eq!(matches(&circle, &shape("Circle", 2)), Ok(true));
    assert_eq!(matches(&circle, &shape("Circle", 3)), Ok(false));
    assert_eq!(matches(&circle, &shape("Ball", 2)), Ok(false));
    for (pattern, value) in [
        (some(Pattern::Any), 1u8.to_value()),
        (Pattern::Tuple(vec![]), 1u8.to_value()),
        (circle, 1u8.to_value()),
        (literal_(1), true.to_value()),
        (bind(99), true.to_value()),
    ] {
        assert!(matches!(matches(&pattern, &value), Err(EvaluationError::Type(_))), "{pattern:?}");
    }
}

#[test]
fn the_first_arm_that_matches_and_whose_guard_holds_is_taken() {
    let guard = || Some(binary(var(1), BinaryOperator::Greater, int(5)));
    let arm = |number: u8| literal(number);
    let pick = |number: u8| {
        let arms = vec![
            (Pattern::Literal(1u8.to_value()), None, arm(1)),
            (bind(1), guard(), arm(2)),
            (Pattern::Any, None, arm(3)),
        ];
        Frame::new(2).evaluate(&of(ExpressionKind::Match(literal(number), arms)))
    };
    assert_eq!((pick(1), pick(9), pick(4)), (Ok(1u8.to_value()), Ok(2u8.to_value()), Ok(3u8.to_value())));
    let step_ = |number: u8| {
        let arm = |pattern, guard, value| Arm { pattern, guard, body: Block(vec![return_(value)]) };
        let arms = vec![arm(Pattern::Literal(1u8.to_value()), None, literal(1u8)), arm(bind(1), guard(), var(1))];
        vec![step(StepKind::Match { value: literal(number), arms }), return_(literal(0u8))]
    };
    assert_eq!((returned(step_(1)), returned(step_(9))), (1u8.to_value(), 9u8.to_value()));
    assert_eq!(refused(step_(4)), "test.rs:1:1: expected a value that an arm of the match takes, found a u8");
}

#[test]
fn loops_run_over_lists_and_ranges_and_are_left_early() {
    let sum = |over: Expression, body: Vec<Step>| {
        let mut body = body;
        body.push(assign(1, vec![], ADD, var(2)));
        returned(vec![let_(bind(1), literal(0u8)), for_(bind(2), over, body), return_(var(1))])
    };
    assert_eq!(sum(var(0), vec![]), 6u8.to_value());
    assert_eq!(sum(range(literal(1u8), int(5)), vec![]), 10u8.to_value());
    assert_eq!(sum(range(int(5), int(1)), vec![]), 0u8.to_value());
    let all = of(ExpressionKind::Range { low: int(i128::MAX), high: int(i128::MAX), inclusive: true });
    assert_eq!(sum(all, vec![step(StepKind::Continue)]), 0u8.to_value());
    let at_two = |kind| if_(binary(var(2), BinaryOperator::Equal, int(2)), vec![step(kind)], vec![]);
    assert_eq!(sum(var(0), vec![at_two(StepKind::Continue)]), 4u8.to_value());
    assert_eq!(sum(var(0), vec![at_two(StepKind::Break)]), 1u8.to_value());
    assert_eq!(sum(var(0), vec![at_two(StepKind::Return(literal(99u8)))]), 99u8.to_value());
    // A range is not made a list: this one would not fit any memory.
    assert_eq!(sum(range(int(0), int(i128::MAX)), vec![at_two(StepKind::Break)]), 1u8.to_value());
    // A break leaves the innermost loop only.
    let inner = for_(bind(3), var(0), vec![step(StepKind::Break)]);
    assert_eq!(sum(var(0), vec![inner]), 6u8.to_value());
}

#[test]
fn a_variable_declared_first_is_assigned_later() {
    let body =
        |declared: Vec<Step>| [vec![step(StepKind::Declare(VariableId(1)))], declared, vec![return_(var(1))]].concat();
    assert_eq!(returned(body(vec![assign(1, vec![], None, literal(5u8))])), 5u8.to_value());
    assert_eq!(refused(body(vec![])), "test.rs:1:1: variable 1 has no value yet");
}

#[test]
fn operations_give_what_they_promise() {
    let scanned = |range, limit, take| {
        let kind = scan(range, limit, take);
        returned(vec![run(Some(bind(1)), 0, kind), return_(var(1))])
    };
    let between = |low: Option<u8>, high: Option<u8>, inclusive| {
        let bound = |key: Option<u8>| key.map(|key| vec![literal(key)]);
        KeyRange::Between { low: bound(low), high: bound(high), inclusive }
    };
    let all = || KeyRange::Prefix(vec![]);
    assert_eq!(scanned(all(), None, Take::Count), 3u64.to_value());
    assert_eq!(scanned(all(), Some(int(2)), Take::Count), 2u64.to_value());
    assert_eq!(scanned(all(), Some(int(0)), Take::Count), 0u64.to_value());
    assert_eq!(scanned(between(Some(1), Some(3), false), None, Take::Count), 2u64.to_value());
    assert_eq!(scanned(between(Some(1), Some(3), true), None, Take::Count), 3u64.to_value());
    assert_eq!(scanned(between(Some(4), None, false), None, Take::First), Value::NONE);
    let Value::Option(Some(first)) = scanned(between(Some(2), None, false), None, Take::First) else { panic!() };
    assert_eq!(first.field("value"), Some(&20u8.to_value()));
    let Value::List(rows) = scanned(all(), Some(int(2)), Take::All) else { panic!() };
    assert_eq!(rows.len(), 2);
    let last = OperationKind::Scan { range: all(), reverse: true, limit: None, take: Take::First };
    let (last, toy) = result(vec![run(Some(some(bind(1))), 0, last), return_(field(var(1), "key"))]);
    assert_eq!(last, Ok(3u8.to_value()));
    assert_eq!(*toy.log.borrow(), ["visit t [3]"]);

    let one = |kind| result(vec![run(Some(bind(1)), 0, kind), return_(var(1))]).0;
    let key = |key: u8| vec![literal(key)];
    let missing = || Err(ToyError::Missing("t (9u8,)".into()));
    assert_eq!(one(OperationKind::Get { key: key(9), required: false }), Ok(Value::NONE));
    assert_eq!(one(OperationKind::Get { key: key(9), required: true }), missing());
    assert_eq!(one(OperationKind::Delete { key: key(9), required: false }), Ok(false.to_value()));
    assert_eq!(one(OperationKind::Delete { key: key(2), required: false }), Ok(true.to_value()));
    assert_eq!(one(OperationKind::Delete { key: key(2), required: true }), Ok(Value::UNIT));
    assert_eq!(one(OperationKind::Delete { key: key(9), required: true }), missing());
    let update = |at, required| {
        let body = Block(vec![assign(2, column("value"), None, int(1)), yield_(literal(7u8))]);
        one(OperationKind::Update { key: key(at), required, row: VariableId(2), body })
    };
    assert_eq!(update(2, true), Ok(7u8.to_value()));
    assert_eq!(update(2, false), Ok(Some(7u8).to_value()));
    assert_eq!(update(9, false), Ok(Value::NONE));
    assert_eq!(update(9, true), missing());
    let inserted =
        |key: u8| result(vec![insert(0, vec![("value", literal(1u8)), ("key", literal(key))]), return_(int(0))]).0;
    assert!(inserted(4).is_ok());
    assert_eq!(inserted(3), Err(ToyError::Duplicate("t [3]".into())));
    let kind = OperationKind::Get { key: vec![literal(20u8)], required: true };
    let mut by_value = operation(0, kind);
    by_value.index = Some("value".into());
    let found = step(StepKind::Operation { operation: by_value, bind: Some(bind(1)) });
    assert_eq!(returned(vec![found, return_(field(var(1), "key"))]), 2u8.to_value());
}

#[test]
fn an_update_reads_what_it_assigned_and_writes_all_or_nothing() {
    let body = |second| {
        vec![
            assign(1, column("value"), ADD, int(1)),
            let_(bind(2), field(var(1), "value")),
            if_(literal(true), vec![assign(1, column("value"), ADD, second), yield_(var(2))], vec![]),
            yield_(literal(0u8)),
        ]
    };
    let steps = |second| vec![update(Some(bind(3)), 0, vec![literal(2u8)], 1, body(second)), return_(var(3))];
    let (yielded, toy) = result(steps(var(2)));
    assert_eq!((yielded, values(&toy)), (Ok(21u8.to_value()), vec![10, 42, 30]));
    let (stopped, toy) = result(steps(int(250)));
    assert_eq!((stopped, values(&toy)), (Err(ToyError::Evaluation(EvaluationError::Overflow)), vec![10, 20, 30]));
    let nothing = returned(vec![update(Some(bind(3)), 0, vec![literal(2u8)], 1, vec![]), return_(var(3))]);
    assert_eq!(nothing, Value::UNIT);
}

#[test]
fn the_body_of_an_update_stays_within_its_row() {
    let within = |steps| vec![update(None, 0, vec![literal(2u8)], 1, steps), return_(int(0))];
    let outside = "test.rs:1:1: the body of an update cannot reach the database, return or abort";
    for step in [
        return_(int(0)),
        abort(int(0)),
        get(bind(2), 0, vec![literal(1u8)]),
        for_each(2, 0, scan(KeyRange::Prefix(vec![]), None, Take::Each), vec![]),
    ] {
        assert_eq!(refused(within(vec![if_(literal(true), vec![step], vec![])])), outside);
    }
    assert_eq!(refused(within(vec![assign(1, vec![], None, int(0))])), "test.rs:1:1: of a row, columns are assigned");
    assert_eq!(
        refused(within(vec![step(StepKind::Break)])),
        "test.rs:1:1: an update has a break or continue outside a loop"
    );
    assert_eq!(
        refused(within(vec![assign(1, column("none"), None, int(0))])),
        "test.rs:1:1: a `t` has no field `none`"
    );
}

#[test]
fn a_row_that_was_read_is_a_copy() {
    let steps = vec![
        require(bind(1), 0, vec![literal(2u8)]),
        update(None, 0, vec![literal(2u8)], 2, vec![assign(2, column("value"), ADD, int(1))]),
        require(bind(3), 0, vec![literal(2u8)]),
        return_(tuple(vec![field(var(1), "value"), field(var(3), "value")])),
    ];
    assert_eq!(returned(steps), (20u8, 21u8).to_value());
}

#[test]
fn the_first_abort_in_source_order_decides() {
    let missing = || require(bind(1), 0, vec![literal(9u8)]);
    assert_eq!(result(vec![abort(int(1)), missing()]).0, Err(ToyError::User(Value::Integer(1, None))));
    assert_eq!(result(vec![missing(), abort(int(1))]).0, Err(ToyError::Missing("t (9u8,)".into())));
}

#[test]
fn a_tree_that_no_front_end_makes_is_refused_with_its_position() {
    assert_eq!(refused(vec![]), "test.rs:1:1: procedure `test` ends without return or abort");
    assert_eq!(
        refused(vec![step(StepKind::Break)]),
        "test.rs:1:1: procedure `test` has a break or continue outside a loop"
    );
    assert_eq!(refused(vec![yield_(int(0))]), "test.rs:1:1: procedure `test` has a yield outside an update");
    assert_eq!(refused(vec![return_(var(77))]), "test.rs:1:1: variable 77 has no value yet");
    assert_eq!(
        refused(vec![let_else(Pattern::None, literal(Some(1u8)), vec![])]),
        "test.rs:1:1: the else of a let comes back"
    );
    assert_eq!(
        refused(vec![let_(Pattern::None, literal(Some(1u8)))]),
        "test.rs:1:1: the pattern of a let does not match Some"
    );
    assert_eq!(refused(vec![get(bind(1), 7, vec![])]), "test.rs:1:1: an operation on no table");
    assert_eq!(
        refused(vec![run(None, 0, scan(KeyRange::Prefix(vec![]), None, Take::Each))]),
        "test.rs:1:1: a scan that takes each row is looped over"
    );
    assert_eq!(
        refused(vec![for_each(1, 0, OperationKind::Insert { columns: vec![] }, vec![])]),
        "test.rs:1:1: a loop over an operation that is no scan"
    );
    let procedure = procedure("two", 2, &["a", "b"], &[], vec![return_(var(0))]);
    let stop = interpret(&procedure, &1u8.to_value(), &Toy::default()).unwrap_err();
    let problem = "procedure `two` takes a tuple of 2 arguments, found a u8";
    assert_eq!(stop, ToyError::Evaluation(EvaluationError::Type(problem.into())));
}

#[test]
fn nothing_runs_out_of_stack_or_memory() {
    let nested = |depth| (1..depth).fold(literal(1u8), |inner, _| of(ExpressionKind::Some(inner)));
    assert!(value(nested(DEPTH_MAX)).is_ok());
    assert_eq!(
        value(nested(DEPTH_MAX + 1)),
        Err(EvaluationError::Type(format!("code nests deeper than {DEPTH_MAX} levels")))
    );
    let loops = |depth| {
        let over = || scan(KeyRange::Prefix(vec![]), Some(int(1)), Take::Each);
        (0..depth).fold(vec![return_(int(0))], |body, _| vec![for_each(1, 0, over(), body)])
    };
    assert!(result(loops(DEPTH_MAX - 2)).0.is_ok());
    assert!(refused(loops(DEPTH_MAX + 1)).contains("nests deeper"));
    // Values that grow in a loop.
    let growing = |grow: Expression| {
        refused(vec![
            let_(bind(1), int(0)),
            for_(bind(2), range(int(0), int(1000)), vec![assign(1, vec![], None, grow)]),
        ])
    };
    assert!(growing(of(ExpressionKind::Some(var(1)))).contains("nests deeper"));
    assert!(growing(of(ExpressionKind::Repeat(var(1), 64))).contains("more than"));
    assert!(growing(of(ExpressionKind::Repeat(int(0), usize::MAX))).contains("more than"));
    assert!(growing(range(int(i128::MIN), int(i128::MAX))).contains("more than"));
    assert_eq!(
        value(of(ExpressionKind::Repeat(int(0), VALUES_MAX + 1))),
        value(range(int(-1), int(VALUES_MAX as i128)))
    );
}
