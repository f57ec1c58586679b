//! Random intermediate representations, many of them nonsense: the interpreter and the printer must come back. So must
//! the analysis of valid ones. A footprint has all keys that are used.
//!
//! To get beyond the first step, procedures begin by giving every variable a value. Conditions, keys and headers of
//! loops are mostly of the right type.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use seriatim_catalog::{ColumnDef, ColumnType, TableDef};
use seriatim_procedure::analysis::{self, Schema};
use seriatim_procedure::footprint::{KnownKeys, footprint};
use seriatim_procedure::interpret::{Changes, Keys, Operate, interpret};
use seriatim_procedure::ir::*;
use seriatim_procedure::methods::METHODS;
use seriatim_procedure::{Data, EvaluationError, IntegerType, Value};

use crate::build::*;
use crate::support::toy::{Toy, ToyError};

const VARIABLES: u16 = 5;

fn small() -> impl Strategy<Value = Value> {
    let ty = prop::option::weighted(0.2, select(IntegerType::ALL.to_vec()));
    (-2..6i128, ty).prop_map(|(number, ty)| Value::Integer(number, ty))
}

fn name() -> impl Strategy<Value = Arc<str>> {
    select(vec!["key", "value", "0", "1", "A", "B", "t", ""]).prop_map(Arc::from)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => small(),
        1 => select(vec![i128::MIN, i128::MAX, i64::MIN as i128, 255]).prop_map(|n| Value::Integer(n, None)),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => any::<f64>().prop_map(Value::Float),
        1 => (any::<i64>(), any::<u8>()).prop_map(|(units, scale)| Value::Decimal { units, scale }),
        1 => any::<i64>().prop_map(Value::Timestamp),
        1 => "[a-cé]{0,3}".prop_map(Value::Text),
        1 => vec(any::<u8>(), 0..3).prop_map(Value::Bytes),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let fields = vec((name(), inner.clone()), 0..3);
        prop_oneof![
            prop::option::of(inner.clone()).prop_map(|value| Value::Option(value.map(Box::new))),
            vec(inner.clone(), 0..3).prop_map(Value::Tuple),
            vec(inner, 0..3).prop_map(Value::List),
            (name(), fields).prop_map(|(name, fields)| Value::Record { name, fields }),
        ]
    })
}

fn variable() -> impl Strategy<Value = VariableId> {
    // Rarely one more than there are.
    prop_oneof![20 => 0..VARIABLES, 1 => Just(VARIABLES)].prop_map(VariableId)
}

fn operator() -> impl Strategy<Value = BinaryOperator> {
    use BinaryOperator::*;
    select(vec![
        Add,
        Subtract,
        Multiply,
        Divide,
        Remainder,
        Equal,
        NotEqual,
        Less,
        LessOrEqual,
        Greater,
        GreaterOrEqual,
        And,
        Or,
    ])
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let leaf = prop_oneof![
        2 => Just(Pattern::Any),
        4 => variable().prop_map(Pattern::Bind),
        1 => value().prop_map(Pattern::Literal),
        1 => Just(Pattern::None),
        1 => (small(), small(), any::<bool>())
            .prop_map(|(low, high, inclusive)| Pattern::Range { low, high, inclusive }),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(some),
            vec(inner.clone(), 0..3).prop_map(Pattern::Tuple),
            (name(), vec((name(), inner.clone()), 0..2)).prop_map(|(name, fields)| Pattern::Record { name, fields }),
            vec(inner, 0..3).prop_map(Pattern::Either),
        ]
    })
}

fn function() -> impl Strategy<Value = Function> {
    let methods: Vec<&str> = METHODS.iter().map(|method| method.name).chain(["unwrap"]).collect();
    let types = vec![
        "u8",
        "i64",
        "usize",
        "Decimal::<2>",
        "Decimal<99>",
        "Money",
        "Text::<2>",
        "Text",
        "Vec",
        "String",
        "Timestamp",
    ];
    let names = vec!["from", "from_units", "truncated", "new", "from_microseconds", "default"];
    prop_oneof![
        4 => select(methods).prop_map(|name| Function::Method(name.into())),
        2 => (select(types), select(names)).prop_map(|(ty, name)| Function::Associated(ty.into(), name.into())),
        1 => Just(Function::Pure {
            name: "first",
            total: true,
            evaluate: |arguments| {
                u8::from_value(arguments.first().unwrap_or(&Value::UNIT)).map(|n| n.to_value())
            },
        }),
    ]
}

fn expression() -> BoxedStrategy<Expression> {
    let leaf = prop_oneof![
        3 => variable().prop_map(ExpressionKind::Variable),
        2 => value().prop_map(ExpressionKind::Literal),
        3 => small().prop_map(ExpressionKind::Literal),
        1 => Just(ExpressionKind::None),
    ];
    let tree = leaf.prop_map(of).prop_recursive(3, 12, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        let arm = (pattern(), prop::option::of(inner.clone()), inner.clone());
        let unary = select(vec![UnaryOperator::Not, UnaryOperator::Negate]);
        prop_oneof![
            2 => (inner.clone(), name()).prop_map(|(of, name)| ExpressionKind::Field(of, name)),
            1 => two.clone().prop_map(|(of, at)| ExpressionKind::Element(of, at)),
            1 => (unary, inner.clone()).prop_map(|(operator, value)| ExpressionKind::Unary(operator, value)),
            4 => (operator(), two.clone()).prop_map(|(operator, (a, b))| ExpressionKind::Binary(operator, a, b)),
            3 => (function(), vec(inner.clone(), 0..3)).prop_map(|(function, all)| ExpressionKind::Call(function, all)),
            1 => vec(inner.clone(), 0..3).prop_map(ExpressionKind::Tuple),
            1 => vec(inner.clone(), 0..3).prop_map(ExpressionKind::List),
            1 => (inner.clone(), select(vec![0, 1, 3, usize::MAX]))
                .prop_map(|(value, times)| ExpressionKind::Repeat(value, times)),
            1 => (name(), vec((name(), inner.clone()), 0..3))
                .prop_map(|(name, fields)| ExpressionKind::Record(name, fields)),
            1 => inner.clone().prop_map(ExpressionKind::Some),
            1 => (inner.clone(), two.clone()).prop_map(|(condition, (a, b))| ExpressionKind::If(condition, a, b)),
            1 => (inner.clone(), vec(arm, 0..3)).prop_map(|(value, arms)| ExpressionKind::Match(value, arms)),
            1 => (vec((pattern(), inner.clone()), 0..2), inner.clone())
                .prop_map(|(lets, value)| ExpressionKind::Block(lets, value)),
            1 => (two, any::<bool>())
                .prop_map(|((low, high), inclusive)| ExpressionKind::Range { low, high, inclusive }),
        ]
        .prop_map(of)
    });
    tree.boxed()
}

/// The sequence of a loop: a list, or a range that ends soon.
fn header() -> impl Strategy<Value = Expression> {
    let soon = (small(), small(), any::<bool>());
    let soon = soon.prop_map(|(low, high, inclusive)| {
        of(ExpressionKind::Range { low: literal(low), high: literal(high), inclusive })
    });
    let list = expression().prop_filter("ends soon", |list| !matches!(*list.kind, ExpressionKind::Range { .. }));
    prop_oneof![soon, list]
}

fn place() -> impl Strategy<Value = Target> {
    let selector = prop_oneof![name().prop_map(Selector::Field), expression().prop_map(Selector::Index)];
    (variable(), vec(selector, 0..3)).prop_map(|(variable, path)| Target { variable, path })
}

fn condition() -> impl Strategy<Value = Expression> {
    let compare = (small(), operator(), small()).prop_map(|(a, operator, b)| binary(literal(a), operator, literal(b)));
    prop_oneof![3 => any::<bool>().prop_map(literal), 2 => compare, 1 => expression()]
}

fn key() -> impl Strategy<Value = Vec<Expression>> {
    prop_oneof![6 => small().prop_map(|key| vec![literal(key)]), 1 => vec(expression(), 0..3)]
}

fn scan_(take: impl Strategy<Value = Take> + 'static) -> BoxedStrategy<OperationKind> {
    let range = prop_oneof![
        2 => Just(KeyRange::Prefix(vec![])),
        1 => key().prop_map(KeyRange::Prefix),
        1 => (prop::option::of(key()), prop::option::of(key()), any::<bool>())
            .prop_map(|(low, high, inclusive)| KeyRange::Between { low, high, inclusive }),
    ];
    let limit = prop::option::of(prop_oneof![3 => small().prop_map(literal), 1 => expression()]);
    let scan = (range, any::<bool>(), limit, take);
    scan.prop_map(|(range, reverse, limit, take)| OperationKind::Scan { range, reverse, limit, take }).boxed()
}

fn operation_(inner: BoxedStrategy<Block>) -> BoxedStrategy<OperationKind> {
    let kind = prop_oneof![
        (key(), any::<bool>()).prop_map(|(key, required)| OperationKind::Get { key, required }),
        (key(), any::<bool>(), variable(), inner).prop_map(|(key, required, row, body)| OperationKind::Update {
            key,
            required,
            row,
            body
        }),
        (expression(), expression()).prop_map(|(key, value)| OperationKind::Insert {
            columns: vec![("key".into(), key), ("value".into(), value)]
        }),
        (key(), any::<bool>()).prop_map(|(key, required)| OperationKind::Delete { key, required }),
        scan_(select(vec![Take::Each, Take::First, Take::All, Take::Count])),
    ];
    kind.boxed()
}

/// An operation, rarely on a table that the procedure does not have, or by an index.
fn placed(kind: BoxedStrategy<OperationKind>) -> impl Strategy<Value = Box<Operation>> {
    let index = prop::option::weighted(0.1, name());
    (prop_oneof![20 => Just(0usize), 1 => Just(1)], index, kind).prop_map(|(table, index, kind)| {
        let mut operation = operation(table, kind);
        operation.index = index;
        operation
    })
}

fn block() -> BoxedStrategy<Block> {
    let leaf = prop_oneof![
        1 => variable().prop_map(StepKind::Declare),
        3 => (pattern(), expression()).prop_map(|(pattern, value)| StepKind::Let { pattern, value }),
        3 => (place(), prop::option::of(operator()), expression())
            .prop_map(|(place, operator, value)| StepKind::Assign { place, operator, value }),
        1 => select(vec![StepKind::Break, StepKind::Continue]),
        1 => expression().prop_map(StepKind::Return),
        1 => expression().prop_map(StepKind::Abort),
        1 => expression().prop_map(StepKind::Yield),
    ];
    let leaf = vec(leaf.prop_map(step), 0..3).prop_map(Block).boxed();
    let tree = leaf.prop_recursive(3, 16, 4, |inner| {
        let inner = inner.boxed();
        let (body, then) = (inner.clone(), inner.clone());
        let arm = (pattern(), prop::option::of(condition()), inner.clone());
        let arm = arm.prop_map(|(pattern, guard, body)| Arm { pattern, guard, body });
        let nested = prop_oneof![
            1 => (pattern(), expression(), body.clone())
                .prop_map(|(pattern, value, otherwise)| StepKind::LetElse { pattern, value, otherwise }),
            1 => (condition(), then, body.clone())
                .prop_map(|(condition, then, otherwise)| StepKind::If { condition, then, otherwise }),
            1 => (expression(), vec(arm, 0..3)).prop_map(|(value, arms)| StepKind::Match { value, arms }),
            2 => (pattern(), header(), body.clone())
                .prop_map(|(pattern, over, body)| StepKind::For { pattern, over, body }),
            2 => (
                variable(),
                placed(prop_oneof![9 => scan_(Just(Take::Each)), 1 => operation_(inner.clone())].boxed()),
                body,
            )
                .prop_map(|(row, operation, body)| StepKind::ForEach { row, operation, body }),
            4 => (placed(operation_(inner.clone())), prop::option::of(pattern()))
                .prop_map(|(operation, bind)| StepKind::Operation { operation, bind }),
        ];
        (vec(nested.prop_map(step), 0..3), inner).prop_map(|(mut steps, rest)| {
            steps.extend(rest.0);
            Block(steps)
        })
    });
    tree.boxed()
}

/// Values for the variables, of several types.
fn beginning() -> impl Strategy<Value = Vec<Value>> {
    let numbers = || vec(small(), 0..3).prop_map(Value::List);
    (small(), numbers(), value(), prop::option::of(small()), numbers())
        .prop_map(|(a, b, c, d, e)| vec![a, b, c, Value::Option(d.map(Box::new)), e])
}

fn schema() -> Schema {
    let column = |name| ColumnDef::new(name, ColumnType::U8);
    let table = TableDef::builder("t").column(column("key")).column(column("value")).key(["key"]).finish();
    Schema::new([table.expect("a valid table")])
}

/// The keys that a footprint visits, by operation, and the operations of which it knows none at times.
#[derive(Default)]
struct Footprint {
    visited: HashSet<(u16, String)>,
    unknown: HashSet<u16>,
}

impl Footprint {
    fn note(&mut self, operation: &Operation, keys: Option<KnownKeys>) -> Result<(), EvaluationError> {
        let keys = match keys {
            Some(KnownKeys::One(key)) => Some(format!("{key:?}")),
            Some(KnownKeys::Range(keys)) => Some(format!("{keys:?}")),
            Some(KnownKeys::Row(row)) => {
                row.iter().find(|(name, _)| **name == *"key").map(|(_, key)| format!("{key:?}"))
            }
            None => None,
        };
        match keys {
            Some(keys) => _ = self.visited.insert((operation.id.0, keys)),
            None => _ = self.unknown.insert(operation.id.0),
        }
        Ok(())
    }
}

/// Notes the keys of each operation.
struct Watched {
    toy: Toy,
    seen: RefCell<Vec<(u16, String)>>,
}

impl Watched {
    fn note(&self, operation: &Operation, keys: &impl std::fmt::Debug) {
        self.seen.borrow_mut().push((operation.id.0, format!("{keys:?}")));
    }
}

impl Operate for Watched {
    type Error = ToyError;

    fn get(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<Option<Value>, ToyError> {
        self.note(operation, &key);
        self.toy.get(operation, table, key)
    }

    fn update(
        &self,
        operation: &Operation,
        table: &str,
        key: Vec<Value>,
        body: &mut dyn FnMut(Value) -> Result<Changes, ToyError>,
    ) -> Result<bool, ToyError> {
        self.note(operation, &key);
        self.toy.update(operation, table, key, body)
    }

    fn insert(&self, operation: &Operation, table: &str, columns: Changes) -> Result<(), ToyError> {
        columns.iter().filter(|(name, _)| **name == *"key").for_each(|(_, key)| self.note(operation, key));
        self.toy.insert(operation, table, columns)
    }

    fn delete(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<bool, ToyError> {
        self.note(operation, &key);
        self.toy.delete(operation, table, key)
    }

    fn scan(
        &self,
        operation: &Operation,
        table: &str,
        keys: Keys,
        reverse: bool,
        visit: &mut dyn FnMut(Value) -> Result<ControlFlow<()>, ToyError>,
    ) -> Result<(), ToyError> {
        self.note(operation, &keys);
        self.toy.scan(operation, table, keys, reverse, visit)
    }

    fn missing(&self, operation: &Operation, table: &str, key: &[Value]) -> ToyError {
        self.toy.missing(operation, table, key)
    }

    fn abort(&self, error: Value) -> ToyError {
        self.toy.abort(error)
    }
}

proptest! {
    #![proptest_config(crate::config())]

    #[test]
    fn no_procedure_makes_the_interpreter_or_the_printer_panic(
        beginning in beginning(),
        body in block(),
        end in expression(),
        arguments in prop_oneof![9 => vec(value(), 2).prop_map(Value::Tuple), 1 => value()],
    ) {
        let mut toy = Toy::default().with("t", 1, &["key", "value"]);
        for key in 0..3u8 {
            toy = toy.row("t", vec![key.to_value(), (10 * key).to_value()]);
        }
        let mut steps: Vec<Step> =
            beginning.into_iter().zip(0..).map(|(value, at)| let_(bind(at), literal(value))).collect();
        steps.extend(body.0);
        steps.push(return_(end));
        let procedure = procedure("random", 2, &["a", "b", "a", "", "e"], &["t"], steps);
        prop_assert!(procedure.to_string().starts_with("procedure random(a#0, b)\n"));
        // If it is one, it can be analysed.
        if analysis::validate(&procedure).is_ok() {
            let _ = analysis::analyse(&procedure, &schema());
        }
        let mut known = Footprint::default();
        let is_whole = footprint(&procedure, &arguments, &mut |operation, keys| known.note(operation, keys));
        let watched = Watched { toy, seen: RefCell::default() };
        // It ends, in whatever way. So does a scan whose body inserts ahead of it: keys do not grow without end.
        let _ = interpret(&procedure, &arguments, &watched);
        for (operation, keys) in watched.seen.take() {
            let is_visited = known.visited.contains(&(operation, keys.clone()));
            prop_assert!(!is_whole || is_visited || known.unknown.contains(&operation),
                "operation {operation} has {keys}, and its footprint {:?}", known.visited);
        }
    }
}

/// Plans tell values apart by these names.
#[test]
fn parameters_and_the_variables_of_a_loop_have_different_names() {
    let of = |names: [&str; 4]| {
        let pattern = Pattern::Tuple(vec![bind(2), bind(3)]);
        let steps = vec![for_(pattern, var(0), vec![]), return_(int(1))];
        let refused = analysis::validate(&procedure("p", 2, &names, &[], steps));
        refused.map_err(|refusals| refusals.to_string())
    };
    let at = "test.rs:1:1: procedure `p`: ";
    assert_eq!(of(["a", "b", "a", "b"]), Ok(()));
    assert_eq!(of(["a", "a", "c", "d"]), Err(format!("{at}two parameters have the name `a`")));
    assert_eq!(of(["a", "b", "", ""]), Err(format!("{at}two variables of a loop have the name ``")));
}
