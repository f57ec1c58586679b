//! Order entry: loops over arguments, scans, branches, matches, optional and text columns, and lists and records that
//! are built step by step.

use seriatim::procedure::{Access, Declared, EvaluationError, Value, ir};
use seriatim::rng::seed;
use seriatim::{
    Abort, Builder, Data, Database, Decimal, Rng, Session, Table, Text, Timestamp, TransactError, Tx, procedure,
    procedures, pure,
};

type Money = Decimal<2>;

use super::run::{Both, Run};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "item", key(id), hash)]
struct Item {
    id: u32,
    name: Text<24>,
    price: Money,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "stock", key(place, item), ordered)]
struct Stock {
    place: u16,
    item: u32,
    quantity: i16,
    ordered: u32,
    note: Option<Text<16>>,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "buyer", key(id), ordered)]
#[table(index(name = "by_name", columns(name), ordered))]
#[table(index(name = "by_mail", columns(mail), hash, unique))]
struct Buyer {
    id: u32,
    name: Text<16>,
    mail: Text<24>,
    next_order: u32,
    rebate: Option<u8>,
    story: String,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "sale", key(buyer, number, line), ordered)]
struct Sale {
    buyer: u32,
    number: u32,
    line: u8,
    item: u32,
    amount: Money,
    entered: Timestamp,
    delivered: Option<Timestamp>,
}

#[derive(Data, Clone, Debug, PartialEq)]
enum Who {
    Id(u32),
    Name(Text<16>),
    Mail { address: Text<24> },
}

#[derive(Data, Clone, Copy, Debug, PartialEq)]
struct Line {
    item: u32,
    place: u16,
    quantity: u8,
}

#[derive(Data, Clone, Debug, PartialEq)]
struct Order {
    who: Who,
    entered: Timestamp,
    lines: Vec<Line>,
}

#[derive(Data, Clone, Debug, PartialEq)]
struct Shown {
    name: Text<24>,
    left: i16,
    amount: Money,
}

#[derive(Data, Clone, Debug, PartialEq)]
struct Receipt {
    number: u32,
    total: Money,
    lines: Vec<Shown>,
    low: [u8; 3],
}

#[derive(Data, Clone, Debug, PartialEq)]
enum Refused {
    Unknown(u32),
    Nothing,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Refused {}

const LINES_MAX: usize = 3;

#[pure]
fn replenished(quantity: i16, ordered: u8) -> i16 {
    let ordered = i16::from(ordered);
    if quantity >= ordered + 10 { quantity - ordered } else { quantity - ordered + 91 }
}

#[pure]
fn longer(number: u32, old: &str) -> String {
    format!("{number} {old}")
}

/// Enters an order.
#[procedure]
fn enter(tx: &Tx, order: &Order) -> Result<Receipt, Abort> {
    if order.lines.is_empty() || order.lines.len() > LINES_MAX {
        return Err(tx.abort(Refused::Nothing));
    }
    let buyer = match &order.who {
        Who::Id(id) => tx.require::<Buyer>(*id)?,
        Who::Name(name) => {
            let named = tx.find_by::<Buyer>(Buyer::BY_NAME, *name).all()?;
            if named.is_empty() {
                return Err(tx.abort(Refused::Nothing));
            }
            named[(named.len() - 1) / 2]
        }
        Who::Mail { address } => tx.require_by::<Buyer>(Buyer::BY_MAIL, *address)?,
    };
    let id = buyer.id;
    let percent = match buyer.rebate {
        Some(rebate) if rebate <= 50 => i64::from(rebate),
        Some(_) => 50,
        None => 0,
    };
    let number = tx.update::<Buyer>(id, |buyer| {
        let number = buyer.next_order;
        buyer.next_order += 1;
        buyer.story = longer(number, buyer.story);
        number
    })?;
    let mut total = Money::from_units(0);
    let mut lines = Vec::new();
    let mut low = [0u8; 3];
    for (at, line) in order.lines.iter().enumerate() {
        let Some(item) = tx.get::<Item>(line.item)? else { return Err(tx.abort(Refused::Unknown(line.item))) };
        let left = tx.update::<Stock>((line.place, line.item), |stock| {
            let left = replenished(stock.quantity, line.quantity);
            stock.quantity = left;
            stock.ordered += u32::from(line.quantity);
            if left < 20 {
                stock.note = Some(Text::truncated("low"));
            } else {
                stock.note = None;
            }
            left
        })?;
        if left < 20 {
            low[at] += 1;
        }
        let whole = item.price * i64::from(line.quantity);
        let amount = whole - Money::from_units(whole.units() * percent / 100);
        total += amount;
        tx.insert(Sale {
            buyer: id,
            number,
            line: line_number(at),
            item: line.item,
            amount,
            entered: order.entered,
            delivered: None,
        })?;
        lines.push(Shown { name: Text::truncated(item.name), left, amount });
    }
    Ok(Receipt { number, total, lines, low })
}

#[pure]
fn line_number(at: usize) -> u8 {
    u8::try_from(at + 1).unwrap_or(u8::MAX)
}

/// The purchases of a buyer, newest first, up to a sum; and the number of all lines.
#[procedure]
fn history(tx: &Tx, buyer: u32, most: Money) -> Result<(Vec<u32>, Money, u64, Option<u32>), Abort> {
    let mut items = Vec::new();
    let mut sum = Money::from_units(0);
    for sale in tx.prefix::<Sale>(buyer).rev()? {
        if sale.delivered.is_some() {
            continue;
        }
        if sum + sale.amount > most {
            break;
        }
        sum += sale.amount;
        items.push(sale.item);
    }
    items.sort();
    items.dedup();
    let count = tx.scan::<Sale>((buyer, 0, 0)..(buyer + 1, 0, 0)).count()?;
    let first = tx.scan::<Sale>((buyer, 0, 0)..).limit(1).first()?;
    let number = if let Some(sale) = first { Some(sale.number) } else { None };
    Ok((items, sum, count, number))
}

/// Delivers an order's lines and removes the order after it.
#[procedure]
fn deliver(tx: &Tx, buyer: u32, number: u32, lines: &[u8], at: Timestamp, note: &str) -> Result<(bool, Money), Abort> {
    let mut total = Money::from_units(0);
    for line in lines {
        let amount = tx.update_if::<Sale>((buyer, number, *line), |sale| {
            sale.delivered = Some(at);
            sale.amount
        })?;
        total += amount.unwrap_or(Money::from_units(0));
    }
    let gone = tx.delete_if::<Sale>((buyer, number + 1, 1))?;
    if let Some(row) = tx.get::<Buyer>(buyer)? {
        if row.name == note || note.is_empty() {
            tx.update::<Buyer>(buyer, |row| row.rebate = None)?;
        }
    } else {
        return Err(tx.abort(Refused::Unknown(buyer)));
    }
    let shown = if gone {
        tx.delete::<Sale>((buyer, number + 1, 2))?;
        total
    } else {
        let rest = tx.scan::<Sale>((buyer, number, 0)..=(buyer, number, 255)).all()?;
        let mut rest_sum = Money::from_units(0);
        for sale in &rest {
            rest_sum += sale.amount;
        }
        rest_sum
    };
    match shown.units() {
        0 => Ok((gone, total)),
        1..=999 if gone => Ok((false, shown)),
        _ => Ok((gone, shown)),
    }
}

#[procedure]
fn nothing(tx: &Tx) -> Result<(), Abort> {
    Ok(())
}

fn shop() -> (Database, Session) {
    open(Database::builder())
}

pub(crate) fn open(builder: Builder) -> (Database, Session) {
    let db = builder.open().expect("a database");
    let (items, stock) = (db.create::<Item>().unwrap(), db.create::<Stock>().unwrap());
    let (buyers, _) = (db.create::<Buyer>().unwrap(), db.create::<Sale>().unwrap());
    let mut session = db.session();
    let loaded = session.transact(|tx| {
        for id in 1..=5u32 {
            let price = Money::from_units(i64::from(id) * 100);
            tx.insert(&items, &Item { id, name: Text::truncated(&format!("item {id}")), price })?;
            for place in 1..=2 {
                tx.insert(&stock, &Stock { place, item: id, quantity: 30, ordered: 0, note: None })?;
            }
        }
        for (id, name, rebate) in [(1, "ann", None), (2, "bob", Some(10)), (3, "ann", Some(99)), (4, "ann", None)] {
            tx.insert(
                &buyers,
                &Buyer {
                    id,
                    name: Text::literal(name),
                    mail: Text::truncated(&format!("{name}{id}@example")),
                    next_order: 1,
                    rebate,
                    story: "old".to_owned(),
                },
            )?;
        }
        Ok(())
    });
    loaded.expect("no conflict");
    db.register(procedures![enter, history, deliver, nothing, pick, shadowed, computes]).expect("sound procedures");
    (db, session)
}

/// Runs a random procedure on random arguments.
pub(crate) fn any(rng: &mut Rng, run: &mut impl Run) {
    let buyer = |rng: &mut Rng| 1 + rng.below(5) as u32;
    match rng.below(8) {
        0..3 => {
            let who = match rng.below(4) {
                0 => Who::Name(Text::literal("ann")),
                1 => Who::Mail { address: Text::literal("bob2@example") },
                2 => Who::Name(Text::literal("eve")),
                _ => Who::Id(buyer(rng)),
            };
            let line = |rng: &mut Rng| (1 + rng.below(6) as u32, 1 + rng.below(2) as u16, rng.below(30) as u8);
            let lines: Vec<_> = (0..1 + rng.below(3)).map(|_| line(rng)).collect();
            run.run(enter, &order(who, &lines));
        }
        3 => run.run(history, &(buyer(rng), Money::from_units(rng.below(90_00) as i64))),
        4 => {
            let lines = (0..rng.below(3)).map(|_| rng.below(4) as u8).collect();
            let note = if rng.below(2) == 0 { "ann" } else { "" }.to_owned();
            run.run(deliver, &(buyer(rng), 1 + rng.below(3) as u32, lines, AT, note));
        }
        5 => run.run(pick, &((0..3).map(|_| 1 + rng.below(5) as u32).collect(), rng.below(3) as usize)),
        6 => run.run(shadowed, &(1 + rng.below(5) as u32)),
        _ => {
            run.run(nothing, &());
            run.run(computes, &(rng.below(30) as i32 - 12, "longer".to_owned(), vec![(1, Some(2)), (3, None)]));
        }
    }
}

/// Changes some rows of one of the tables.
pub(crate) fn disturb(db: &Database, table: &str, mut rng: Rng) {
    let (items, stock) = (db.table::<Item>().unwrap(), db.table::<Stock>().unwrap());
    let (buyers, sales) = (db.table::<Buyer>().unwrap(), db.table::<Sale>().unwrap());
    let change = db.session().transact(|tx| {
        for _ in 0..3 {
            let id = 1 + rng.below(5) as u32;
            match table {
                "item" => {
                    let _ =
                        tx.update_if(&items, &id, |item| item.set_price(Money::from_units(rng.below(500) as i64)))?;
                }
                "stock" => {
                    let _ = tx.update_if(&stock, &(1, id), |stock| stock.set_quantity(rng.below(60) as i16))?;
                }
                "buyer" => {
                    let _ = tx.update_if(&buyers, &id, |buyer| {
                        buyer.set_name(&Text::literal(if rng.below(2) == 0 { "ann" } else { "bob" }));
                        buyer.set_rebate((rng.below(2) == 0).then_some(rng.below(70) as u8));
                        buyer.set_next_order(buyer.next_order() + 1);
                    })?;
                }
                _ => {
                    let (number, line) = (1 + rng.below(3) as u32, 1 + rng.below(3) as u8);
                    if tx.delete_if(&sales, &(id, number, line))?.is_err() {
                        let (amount, item) = (Money::from_units(rng.below(900) as i64), 1 + rng.below(5) as u32);
                        let entered = AT;
                        tx.insert(&sales, &Sale { buyer: id, number, line, item, amount, entered, delivered: None })?;
                    }
                }
            }
        }
        Ok(())
    });
    change.expect("no conflict");
}

#[test]
fn random_calls_mean_what_the_code_does() {
    let mut rng = Rng::from_seed(seed("random_calls_mean_what_the_code_does"));
    let mut both = Both { called: open(Database::builder()), interpreted: open(Database::builder()) };
    for time in 0..300 {
        if time % 8 == 0 {
            let (table, seed) = (["item", "stock", "buyer", "sale"][rng.below(4) as usize], rng.next_u64());
            [&both.called.0, &both.interpreted.0].into_iter().for_each(|db| disturb(db, table, Rng::from_seed(seed)));
        }
        any(&mut rng, &mut both);
    }
}

const AT: Timestamp = Timestamp::from_microseconds(77);

fn order(who: Who, lines: &[(u32, u16, u8)]) -> Order {
    let lines = lines.iter().map(|&(item, place, quantity)| Line { item, place, quantity }).collect();
    Order { who, entered: AT, lines }
}

#[test]
fn an_order_is_entered() {
    let (db, mut session) = shop();
    let receipt = session.call(enter, &order(Who::Id(2), &[(1, 1, 5), (3, 2, 25)])).expect("sound");
    let shown =
        |name: &str, left, amount| Shown { name: Text::truncated(name), left, amount: Money::from_units(amount) };
    let expected = Receipt {
        number: 1,
        total: Money::from_units(450 + 6750),
        lines: vec![shown("item 1", 25, 450), shown("item 3", 96, 6750)],
        low: [0, 0, 0],
    };
    assert_eq!(*receipt, expected);
    let receipt = session.call(enter, &order(Who::Id(2), &[(1, 1, 7)])).expect("sound");
    assert_eq!((receipt.number, receipt.low), (2, [1, 0, 0]));
    let (stock, buyers) = (db.table::<Stock>().unwrap(), db.table::<Buyer>().unwrap());
    let rows = session.transact(|tx| {
        let stock = tx.require(&stock, &(1, 1))?.to_owned();
        let buyer = tx.require(&buyers, &2)?.to_owned();
        Ok((stock.quantity, stock.ordered, stock.note, buyer.next_order, buyer.story))
    });
    assert_eq!(*rows.unwrap(), (18, 12, Some(Text::literal("low")), 3, "2 1 old".to_owned()));
}

#[test]
fn buyers_are_found_each_way() {
    let (_db, mut session) = shop();
    // The middle one of three, by name and then by key: buyer 3, with half the rebate.
    let receipt = session.call(enter, &order(Who::Name(Text::literal("ann")), &[(2, 1, 1)])).expect("sound");
    assert_eq!(receipt.total, Money::from_units(100));
    let mail = Who::Mail { address: Text::literal("ann1@example") };
    assert_eq!(session.call(enter, &order(mail, &[(2, 1, 1)])).expect("sound").total, Money::from_units(200));
    let nobody = session.call(enter, &order(Who::Name(Text::literal("eve")), &[(2, 1, 1)])).expect_err("no such buyer");
    assert_eq!(nobody.user(), Some(&Refused::Nothing));
    let nobody =
        session.call(enter, &order(Who::Mail { address: Text::EMPTY }, &[(2, 1, 1)])).expect_err("no such buyer");
    assert!(matches!(nobody, TransactError::MissingRow { .. }), "{nobody}");
}

#[test]
fn an_abort_leaves_nothing() {
    let (db, mut session) = shop();
    let error = session.call(enter, &order(Who::Id(1), &[(1, 1, 5), (9, 1, 1)])).expect_err("no item 9");
    assert_eq!(error.user(), Some(&Refused::Unknown(9)));
    let sales = db.table::<Sale>().unwrap();
    assert_eq!(*session.transact(|tx| Ok(tx.scan(&sales, ..).count())).unwrap(), 0);
    let error = session.call(enter, &order(Who::Id(1), &[])).expect_err("no lines");
    assert_eq!(error.user(), Some(&Refused::Nothing));
}

#[test]
fn scans_stop_where_the_source_says() {
    let (_db, mut session) = shop();
    for lines in [&[(1, 1, 2), (2, 1, 2)][..], &[(2, 1, 1), (1, 2, 1), (3, 1, 3)]] {
        session.call(enter, &order(Who::Id(1), lines)).expect("sound");
    }
    // Lines newest first cost 9.00, 1.00, 2.00, 4.00 and 2.00.
    let found = session.call(history, &(1, Money::from_units(13_00))).expect("sound");
    assert_eq!(*found, (vec![1, 2, 3], Money::from_units(12_00), 5, Some(1)));
    let found = session.call(history, &(4, Money::from_units(13_00))).expect("sound");
    assert_eq!(*found, (vec![], Money::from_units(0), 0, None));
    let delivered = session.call(deliver, &(1, 1, vec![1, 2, 3], AT, "ann".to_owned()));
    assert_eq!(*delivered.expect("sound"), (false, Money::from_units(6_00)));
    let found = session.call(history, &(1, Money::from_units(99_00))).expect("sound");
    assert_eq!(*found, (vec![3], Money::from_units(9_00), 3, Some(1)));
    let error = session.call(deliver, &(9, 1, vec![], AT, String::new())).expect_err("no buyer");
    assert_eq!(error.user(), Some(&Refused::Unknown(9)));
    let sum = session.call(deliver, &(1, 2, vec![3], AT, String::new())).expect("sound");
    assert_eq!(*sum, (false, Money::from_units(9_00)));
    session.call(nothing, &()).expect("sound");
}

#[test]
fn overflow_aborts() {
    let (_db, mut session) = shop();
    let error = session.call(history, &(u32::MAX, Money::from_units(1))).expect_err("no buyer after the last");
    assert!(matches!(error, TransactError::Overflow { .. }), "{error}");
    assert!(error.to_string().contains("orders.rs"), "{error}");
}

#[test]
fn values_survive_the_way_to_a_value_and_back() {
    let order = order(Who::Mail { address: Text::literal("a@b") }, &[(1, 2, 3)]);
    assert_eq!(Order::from_value(&order.to_value()), Ok(order.clone()));
    assert_eq!(Refused::from_value(&Refused::Nothing.to_value()), Ok(Refused::Nothing));
    assert_eq!(
        order.to_value().to_string(),
        "Order { who: Mail { address: \"a@b\" }, entered: 1970-01-01T00:00:00.000077Z, \
         lines: [Line { item: 1u32, place: 2u16, quantity: 3u8 }] }"
    );
    let error = Who::from_value(&order.to_value()).expect_err("not one of them");
    assert_eq!(error.to_string(), "expected Who: one of Id, Name, Mail, found a `Order`");
    let pure = <replenished as seriatim::procedure::Pure>::evaluate;
    assert_eq!(pure(&[30i16.to_value(), 5u8.to_value()]), Ok(25i16.to_value()));
    assert_eq!(pure(&[]).unwrap_err().to_string(), "`replenished` takes 2 arguments, found 0");
    assert_eq!(
        <longer as seriatim::procedure::Pure>::evaluate(&[1u32.to_value(), Value::Text("x".into())]),
        Ok(Value::Text("1 x".into()))
    );
}

#[test]
fn ids_are_dense_and_in_source_order() {
    fn walk(block: &ir::Block, steps: &mut Vec<u16>, operations: &mut Vec<u16>) {
        for step in &block.0 {
            steps.push(step.id.0);
            assert!(step.span.file.ends_with("orders.rs") && step.span.line > 1 && step.span.column > 1);
            match &step.kind {
                ir::StepKind::LetElse { otherwise, .. } => walk(otherwise, steps, operations),
                ir::StepKind::Operation { operation, .. } => {
                    operations.push(operation.id.0);
                    if let ir::OperationKind::Update { body, .. } = &operation.kind {
                        walk(body, steps, operations);
                    }
                }
                ir::StepKind::If { then, otherwise, .. } => {
                    walk(then, steps, operations);
                    walk(otherwise, steps, operations);
                }
                ir::StepKind::Match { arms, .. } => arms.iter().for_each(|arm| walk(&arm.body, steps, operations)),
                ir::StepKind::For { body, .. } => walk(body, steps, operations),
                ir::StepKind::ForEach { operation, body, .. } => {
                    operations.push(operation.id.0);
                    walk(body, steps, operations);
                }
                _ => {}
            }
        }
    }
    for procedure in [enter::declaration(), history::declaration(), deliver::declaration(), nothing::declaration()] {
        let (mut steps, mut operations) = (Vec::new(), Vec::new());
        walk(&procedure.body, &mut steps, &mut operations);
        assert!(steps.iter().copied().eq(0..procedure.steps as u16), "{}: {steps:?}", procedure.name);
        assert!(operations.iter().copied().eq(0..procedure.operations as u16), "{}: {operations:?}", procedure.name);
    }
}

/// The accesses of a footprint, as (operation, table, whether it writes).
fn footprint<P: Declared<All = <P as Declared>::Arguments>>(
    db: &Database,
    _: P,
    arguments: &P::Arguments,
) -> Vec<(u16, String, bool)> {
    let mut touches = Vec::new();
    let handles = P::handles(db).expect("the tables are there");
    P::footprint(&handles, arguments, &mut |touch| {
        touches.push((touch.operation.0, touch.table.to_owned(), touch.access == Access::Write));
    });
    touches
}

#[test]
fn footprints_are_what_the_arguments_alone_decide() {
    let (db, _) = shop();
    let touch = |operation, table: &str, write| (operation, table.to_owned(), write);
    // The buyer's own row, then items and stock by line. The key of the final update of the buyer comes from the row.
    let touches = footprint(&db, enter, &order(Who::Id(2), &[(1, 1, 5), (3, 2, 25)]));
    let lines = [touch(4, "item", false), touch(5, "stock", true), touch(4, "item", false), touch(5, "stock", true)];
    assert_eq!(touches, [&[touch(0, "buyer", false)][..], &lines].concat());
    let touches = footprint(&db, enter, &order(Who::Name(Text::literal("ann")), &[]));
    assert_eq!(touches, [], "the procedure ends at once without lines");
    let touches = footprint(&db, enter, &order(Who::Name(Text::literal("ann")), &[(1, 1, 1)]));
    assert_eq!(touches[0], touch(1, "buyer.by_name", false));
    let touches = footprint(&db, enter, &order(Who::Mail { address: Text::literal("x") }, &[(1, 1, 1)]));
    assert_eq!(touches[0], touch(2, "buyer.by_mail", false));
    let touches = footprint(&db, history, &(7, Money::from_units(0)));
    assert_eq!(touches, [touch(0, "sale", false), touch(1, "sale", false), touch(2, "sale", false)]);
    let touches = footprint(&db, deliver, &(7, 1, vec![1, 2], AT, String::new()));
    let tables: Vec<_> = touches.iter().map(|(operation, ..)| *operation).collect();
    // All branches that rows decide are visited.
    assert_eq!(tables, [0, 0, 1, 2, 3, 4, 5]);
    assert_eq!(footprint(&db, nothing, &()), []);
}

#[test]
fn an_index_beyond_the_end_aborts() {
    let (_db, mut session) = shop();
    assert_eq!(*session.call(pick, &(vec![1, 2], 1)).expect("there is one"), (2, 12));
    for prefetch in [true, false] {
        session.set_prefetch(prefetch);
        let error = session.call(pick, &(vec![1, 2], 2)).expect_err("there is none");
        assert_eq!(error.user(), Some(&EvaluationError::OutOfBounds { index: 2, length: 2 }));
    }
}

/// Values are moved, not borrowed: the footprint leaves them in place.
#[procedure]
fn pick(tx: &Tx, list: Vec<u32>, at: usize) -> Result<(u32, i16), Abort> {
    let taken = list;
    let wanted = taken[at];
    let mut found = Vec::new();
    let mut sum = 0;
    for place in 1..=2 {
        let stock = tx.require::<Stock>((place, wanted))?;
        found.push((place, stock.item));
        sum += stock.quantity / 12;
    }
    for (place, item) in &found {
        tx.update::<Stock>((*place, *item), |stock| stock.ordered += 1)?;
        let item = tx.require::<Item>(*item)?;
        for again in found.iter() {
            let key = (again.0, item.id);
            let stock = tx.require::<Stock>(key)?;
            sum += min(stock.quantity, 2);
        }
    }
    let first = found[0];
    Ok((wanted, sum - i16::from(first.0 == 9)))
}

#[pure]
fn min(a: i16, b: i16) -> i16 {
    a.min(b)
}

/// Names that are bound in a block end with it.
#[procedure]
fn shadowed(tx: &Tx, id: u32) -> Result<(u32, i64), Abort> {
    let price = {
        let id = tx.require::<Item>(id)?;
        id.price
    };
    let id = if price.units() > 100 {
        let id = tx.require::<Item>(id - 1)?;
        id.id
    } else {
        id
    };
    Ok((id, price.units()))
}

#[test]
fn shadowed_names_mean_what_they_do_in_rust() {
    let (_db, mut session) = shop();
    assert_eq!(*session.call(shadowed, &1).expect("sound"), (1, 100));
    assert_eq!(*session.call(shadowed, &3).expect("sound"), (2, 300));
}

/// Calls a procedure and interprets it, each in its own shop: results and failures are the same.
fn both<P: Declared>(called: &mut Session, interpreted: &mut Session, procedure: P, arguments: &P::Arguments)
where
    P::Arguments: std::fmt::Debug,
    P::Output: std::fmt::Debug + PartialEq,
{
    let got = called.call(procedure, arguments).map(|done| done.value);
    let wanted = interpreted.interpret(procedure, arguments).map(|done| done.value);
    match (got, wanted) {
        (Ok(got), Ok(wanted)) => assert_eq!(got, wanted, "{}{arguments:?}", P::NAME),
        (Err(got), Err(wanted)) => {
            let (got, wanted) = (std::mem::discriminant(&got), std::mem::discriminant(&wanted));
            assert_eq!(got, wanted, "{}{arguments:?}", P::NAME);
        }
        (got, wanted) => panic!("{}{arguments:?}: {got:?}, interpreted: {wanted:?}", P::NAME),
    }
}

#[test]
fn the_representation_means_what_the_code_does() {
    let ((_one, mut called), (_other, mut interpreted)) = (shop(), shop());
    let (called, interpreted) = (&mut called, &mut interpreted);
    for who in [
        Who::Id(1),
        Who::Id(9),
        Who::Name(Text::literal("ann")),
        Who::Name(Text::literal("eve")),
        Who::Mail { address: Text::literal("bob2@example") },
    ] {
        for lines in [&[][..], &[(1, 1, 25)], &[(2, 1, 9), (3, 2, 1), (5, 2, 30)], &[(1, 1, 5), (9, 1, 1)]] {
            both(called, interpreted, enter, &order(who.clone(), lines));
        }
    }
    for buyer in [1, 2, 3, 9, u32::MAX] {
        both(called, interpreted, history, &(buyer, Money::from_units(20_00)));
        both(called, interpreted, deliver, &(buyer, 1, vec![1, 2, 7], AT, "ann".to_owned()));
        both(called, interpreted, deliver, &(buyer, 2, vec![0, 1], AT, String::new()));
        both(called, interpreted, history, &(buyer, Money::from_units(90_000)));
    }
    for at in 0..4 {
        both(called, interpreted, pick, &(vec![1, 2, 9], at));
    }
    for id in 0..7 {
        both(called, interpreted, shadowed, &id);
    }
    both(called, interpreted, nothing, &());
}

const LOW: i32 = 10;
const HIGH: i32 = 20;
const ANSWER: i32 = 42;
const KINDS: usize = 3;

/// Patterns, methods and conversions, without an operation.
#[procedure]
fn computes(tx: &Tx, x: i32, text: &str, pairs: &[(u16, Option<i32>)]) -> Result<(u8, i32, Vec<i32>, bool), Abort> {
    let kind = match x {
        -1 => 1,
        -9..=-2 => 2,
        LOW..=HIGH => 4,
        ANSWER => 5,
        _ if x % 7 == 0 => 6,
        _ => 7,
    };
    let known = match text {
        "a" | "b" => 10,
        "" => 20,
        other if other.starts_with("long") && other.contains("er") => -30,
        _ => -40,
    };
    let y = if matches!(x, 1..=3 | 8) { -x } else { x.abs() - 1 };
    let mut counts = [0; KINDS];
    let mut all = vec![x; 2];
    let others = [1, 2, 4];
    for ((number, perhaps), other) in pairs.iter().zip(&others) {
        let (low, high) = (x.min(*other), x.max(*other * 10));
        counts[usize::from(*number)] += low;
        all.push(perhaps.unwrap_or(high) / 2);
    }
    let wanted: i32 = i32::from(kind == 7) + counts[1];
    let is_known = all.contains(&wanted) || !text.is_empty() && text.len() <= 1;
    all.push(counts[0] - counts[2]);
    Ok((kind, known + y, all, is_known))
}

#[test]
fn computations_are_interpreted_as_they_are_compiled() {
    let ((_one, mut called), (_other, mut interpreted)) = (shop(), shop());
    for x in (-12..60).chain([i32::MIN, i32::MAX]) {
        for text in ["", "a", "b", "longer", "long", "x"] {
            let pairs = vec![(0, None), (1, Some(x)), (x.unsigned_abs().min(4) as u16, Some(3))];
            both(&mut called, &mut interpreted, computes, &(x, text.to_owned(), pairs));
        }
    }
}
