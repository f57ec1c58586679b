//! A transfer, an order, a delivery: run against the toy, and shown.

use expect_test::expect;
use seriatim_procedure::ir::*;
use seriatim_procedure::{Data, EvaluationError, Value};

use crate::build::*;
use crate::support::toy::{Toy, ToyError};
use seriatim_procedure::interpret::interpret;

type Money = seriatim_catalog::Decimal<2>;

fn money(units: i64) -> Money {
    Money::from_units(units)
}

fn transfer() -> Procedure {
    let positive = binary(var(2), BinaryOperator::Greater, literal(money(0)));
    let body = vec![
        if_(of(ExpressionKind::Unary(UnaryOperator::Not, positive)), vec![abort(made("NotPositive", vec![]))], vec![]),
        update(
            Some(bind(4)),
            0,
            vec![var(0)],
            3,
            vec![
                assign(3, column("balance"), Some(BinaryOperator::Subtract), var(2)),
                yield_(field(var(3), "balance")),
            ],
        ),
        if_(
            binary(var(4), BinaryOperator::Less, literal(money(0))),
            vec![abort(made("Overdrawn", vec![("balance", var(4))]))],
            vec![],
        ),
        update(None, 0, vec![var(1)], 5, vec![assign(5, column("balance"), Some(BinaryOperator::Add), var(2))]),
        return_(var(4)),
    ];
    procedure("transfer", 3, &["from", "to", "amount", "account", "left", "account"], &["account"], body)
}

fn bank() -> Toy {
    Toy::default()
        .with("account", 1, &["id", "balance"])
        .row("account", vec![1u32.to_value(), money(1000).to_value()])
        .row("account", vec![2u32.to_value(), money(i64::MAX - 5).to_value()])
        .row("account", vec![3u32.to_value(), money(0).to_value()])
}

fn balances(toy: &Toy) -> Vec<i64> {
    toy.rows("account").iter().map(|row| Money::from_value(row.field("balance").unwrap()).unwrap().units()).collect()
}

#[test]
fn a_transfer_moves_money_or_aborts_for_its_reason() {
    let run = |from: u32, to: u32, amount: i64| {
        let toy = bank();
        let result = interpret(&transfer(), &(from, to, money(amount)).to_value(), &toy);
        (result, balances(&toy))
    };
    const LOT: i64 = i64::MAX - 5;
    assert_eq!(run(1, 3, 400), (Ok(money(600).to_value()), vec![600, LOT, 400]));
    assert_eq!(run(1, 1, 400), (Ok(money(600).to_value()), vec![1000, LOT, 0]));
    assert_eq!(run(1, 3, 0), (Err(ToyError::User(Value::record("NotPositive", []))), vec![1000, LOT, 0]));
    let overdrawn = Value::record("Overdrawn", [("balance", money(-1).to_value())]);
    assert_eq!(run(1, 3, 1001).0, Err(ToyError::User(overdrawn)));
    assert_eq!(run(9, 3, 1).0, Err(ToyError::Missing("account (9u32,)".into())));
    // The first update is done, the second is not: rolling back is the caller's.
    assert_eq!(run(1, 2, 6), (Err(ToyError::Evaluation(EvaluationError::Overflow)), vec![994, LOT, 0]));
}

#[test]
fn a_transfer_shows_as_pseudo_code() {
    expect![[r#"
        procedure transfer(from, to, amount)
          s0       if !(amount > 0.00) {
          s1         abort NotPositive
                   }
          s2   o0  let left = update account(from) as account#3 {
          s3         account#3.balance -= amount
          s4         yield account#3.balance
                   }
          s5       if left < 0.00 {
          s6         abort Overdrawn { balance: left }
                   }
          s7   o1  update account(to) as account#5 {
          s8         account#5.balance += amount
                   }
          s9       return left
    "#]]
    .assert_eq(&transfer().to_string());
}

/// Numbers of items and quantities in, number of the order and its price out.
fn order() -> Procedure {
    let lines = method("enumerate", vec![method("iter", vec![var(1)])]);
    let stock = vec![
        let_(bind(9), field(var(8), "quantity")),
        assign(
            8,
            column("quantity"),
            None,
            of(ExpressionKind::If(
                binary(var(9), BinaryOperator::GreaterOrEqual, binary(var(5), BinaryOperator::Add, int(10))),
                binary(var(9), BinaryOperator::Subtract, var(5)),
                binary(binary(var(9), BinaryOperator::Subtract, var(5)), BinaryOperator::Add, int(91)),
            )),
        ),
        assign(8, column("orders"), Some(BinaryOperator::Add), int(1)),
        yield_(field(var(8), "quantity")),
    ];
    let body = vec![
        update(
            Some(bind(2)),
            0,
            vec![var(0)],
            11,
            vec![
                let_(bind(12), field(var(11), "next")),
                assign(11, column("next"), Some(BinaryOperator::Add), int(1)),
                yield_(var(12)),
            ],
        ),
        let_(bind(3), literal(money(0))),
        let_(bind(13), associated("Vec", "new", vec![])),
        for_(
            Pattern::Tuple(vec![bind(4), bind(14)]),
            lines,
            vec![
                let_(Pattern::Tuple(vec![bind(6), bind(5)]), var(14)),
                get(bind(15), 1, vec![var(6)]),
                let_else(some(bind(7)), var(15), vec![abort(made("UnusedItem", vec![("0", var(6))]))]),
                update(Some(bind(10)), 2, vec![var(6)], 8, stock),
                assign(
                    3,
                    vec![],
                    Some(BinaryOperator::Add),
                    binary(field(var(7), "price"), BinaryOperator::Multiply, associated("i64", "from", vec![var(5)])),
                ),
                insert(
                    3,
                    vec![
                        ("order", var(2)),
                        ("number", var(4)),
                        ("item", var(6)),
                        ("quantity", var(5)),
                        ("left", var(10)),
                    ],
                ),
                push(13, var(10)),
            ],
        ),
        return_(made("Output", vec![("order", var(2)), ("total", var(3)), ("left", var(13))])),
    ];
    let variables = [
        "district", "lines", "order", "sum", "number", "quantity", "item", "found", "stock", "before", "left", "row",
        "next", "all", "", "",
    ];
    procedure("order", 2, &variables, &["district", "item", "stock", "line"], body)
}

fn shop() -> Toy {
    let mut toy = Toy::default()
        .with("district", 1, &["id", "next"])
        .row("district", vec![1u8.to_value(), 3001u32.to_value()])
        .with("item", 1, &["id", "price"])
        .with("stock", 1, &["item", "quantity", "orders"])
        .with("line", 2, &["order", "number", "item", "quantity", "left"]);
    for (id, price, quantity) in [(1u32, 100, 50i16), (2, 250, 12)] {
        toy = toy.row("item", vec![id.to_value(), money(price).to_value()]);
        toy = toy.row("stock", vec![id.to_value(), quantity.to_value(), u16::MAX.saturating_sub(1).to_value()]);
    }
    toy
}

#[test]
fn an_order_loops_over_its_lines() {
    let toy = shop();
    let lines = vec![(1u32, 4i16), (2, 3)];
    let output = interpret(&order(), &(1u8, lines).to_value(), &toy).unwrap();
    assert_eq!(output.field("order"), Some(&3001u32.to_value()));
    assert_eq!(output.field("total"), Some(&money(4 * 100 + 3 * 250).to_value()));
    assert_eq!(output.field("left"), Some(&vec![46i16, 12 - 3 + 91].to_value()));
    assert_eq!(toy.rows("district")[0].field("next"), Some(&3002u32.to_value()));
    let quantities: Vec<_> = toy.rows("line").iter().map(|row| row.field("quantity").unwrap().clone()).collect();
    assert_eq!(quantities, [4i16.to_value(), 3i16.to_value()]);
    let log = ["update district [1]", "get item [1]", "update stock [1]", "get item [2]", "update stock [2]"];
    assert_eq!(*toy.log.borrow(), log);
}

#[test]
fn an_order_of_an_unused_item_aborts_at_its_line() {
    let toy = shop();
    let stop = interpret(&order(), &(1u8, vec![(1u32, 4i16), (7, 1)]).to_value(), &toy).unwrap_err();
    assert_eq!(stop, ToyError::User(Value::record("UnusedItem", [("0", 7u32.to_value())])));
    assert_eq!(toy.rows("line").len(), 1);
    // The second order of one item overflows the column that counts them.
    let stop = interpret(&order(), &(1u8, vec![(2u32, 1i16), (2, 1)]).to_value(), &shop()).unwrap_err();
    assert_eq!(stop, ToyError::Evaluation(EvaluationError::Overflow));
}

#[test]
fn an_order_shows_as_pseudo_code() {
    expect![[r#"
        procedure order(district, lines)
          s0   o0  let order = update district(district) as row {
          s1         let next = row.next
          s2         row.next += 1
          s3         yield next
                   }
          s4       let sum = 0.00
          s5       let all = Vec::new()
          s6       for (number, _14) in lines.iter().enumerate() {
          s7         let (item, quantity) = _14
          s8   o1    let _15 = get item(item)
          s9         let Some(found) = _15 else {
         s10           abort UnusedItem { 0: item }
                     }
         s11   o2    let left = update stock(item) as stock {
         s12           let before = stock.quantity
         s13           stock.quantity = if before >= quantity + 10 { before - quantity } else { before - quantity + 91 }
         s14           stock.orders += 1
         s15           yield stock.quantity
                     }
         s16         sum += found.price * i64::from(quantity)
         s17   o3    insert line { order: order, number: number, item: item, quantity: quantity, left: left }
         s18         all = all.push(left)
                   }
         s19       return Output { order: order, total: sum, left: all }
    "#]]
    .assert_eq(&order().to_string());
}

/// Sums lines in key order until the sum exceeds the bound.
fn sum_until() -> Procedure {
    let body = vec![
        let_(bind(1), literal(0u32)),
        for_each(
            2,
            0,
            scan(KeyRange::Prefix(vec![literal(1u32)]), Some(int(4)), Take::Each),
            vec![
                if_(
                    binary(field(var(2), "value"), BinaryOperator::Equal, int(0)),
                    vec![step(StepKind::Continue)],
                    vec![],
                ),
                assign(1, vec![], Some(BinaryOperator::Add), field(var(2), "value")),
                if_(binary(var(1), BinaryOperator::Greater, var(0)), vec![step(StepKind::Break)], vec![]),
                run(
                    None,
                    0,
                    OperationKind::Delete { key: vec![literal(1u32), field(var(2), "number")], required: true },
                ),
            ],
        ),
        return_(var(1)),
    ];
    procedure("sum_until", 1, &["bound", "sum", "row"], &["line"], body)
}

#[test]
fn a_scan_continues_as_its_loop_does() {
    let lines = || {
        let toy = Toy::default().with("line", 2, &["order", "number", "value"]);
        let row = |toy: Toy, order: u32, number: u32, value: u32| {
            toy.row("line", [order, number, value].map(|n| n.to_value()).into())
        };
        [(0, 0, 9), (1, 0, 5), (1, 1, 0), (1, 2, 6), (1, 3, 7), (1, 4, 8), (2, 0, 9)]
            .into_iter()
            .fold(toy, |toy, (order, number, value)| row(toy, order, number, value))
    };
    let toy = lines();
    assert_eq!(interpret(&sum_until(), &10u32.to_value(), &toy), Ok(11u32.to_value()));
    let log = ["visit line [1, 0]", "delete line [1, 0]", "visit line [1, 1]", "visit line [1, 2]"];
    assert_eq!(*toy.log.borrow(), log, "what lies after the break is not read");
    let toy = lines();
    assert_eq!(interpret(&sum_until(), &100u32.to_value(), &toy), Ok(18u32.to_value()));
    assert_eq!(toy.log.borrow().last().unwrap(), "delete line [1, 3]", "what lies beyond the limit is not read");
    assert_eq!(toy.rows("line").len(), 7 - 3);
}

#[test]
fn a_scan_shows_as_pseudo_code() {
    expect![[r#"
        procedure sum_until(bound)
          s0       let sum = 0u32
          s1   o0  for row in scan line prefix(1u32) limit 4 {
          s2         if row.value == 0 {
          s3           continue
                     }
          s4         sum += row.value
          s5         if sum > bound {
          s6           break
                     }
          s7   o1    delete line(1u32, row.number)
                   }
          s8       return sum
    "#]]
    .assert_eq(&sum_until().to_string());
}
