//! Generated code against the reference. Random calls of procedures that use most of the language run in three
//! databases. One runs generated code and checks the plan, one interprets, and one runs generated code in the pieces
//! of the set. Results and all rows must agree after each call.

use seriatim::procedure::{Declared, ExecutionMode};
use seriatim::rng::{seed, tries};
use seriatim::{
    Abort, Builder, Data, Database, Decimal, Rng, Session, Table, Text, Timestamp, TransactError, Tx, procedure,
    procedures, pure,
};
use seriatim_check::check_dependencies;

use crate::common::each;

type Money = Decimal<2>;

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "good", key(id), ordered, index(name = "by_code", columns(code), hash, unique))]
struct Good {
    id: u32,
    code: u32,
    #[column(immutable)]
    name: Text<12>,
    price: Money,
    left: i16,
    sold: u8,
    note: String,
    discount: Option<i16>,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "sale", key(buyer, number, line), ordered, index(name = "by_good", columns(good), ordered))]
struct Sale {
    buyer: u16,
    number: u32,
    line: u8,
    good: u32,
    amount: Money,
    at: Timestamp,
    delivered: Option<Timestamp>,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "buyer", key(id), ordered)]
struct Buyer {
    id: u16,
    next: u32,
    spent: Money,
    visits: u64,
}

#[derive(Data, Clone, Debug, PartialEq)]
struct Wanted {
    code: u32,
    count: u8,
}

#[derive(Data, Clone, Debug, PartialEq)]
enum Pay {
    Cash,
    Card { number: u32, limit: Money },
    Voucher(u8),
}

#[derive(Data, Clone, Debug, PartialEq)]
enum Unsold {
    NoSuchGood(u32),
    TooMuch,
}

impl std::fmt::Display for Unsold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Unsold {}

#[pure]
fn reduced(price: Money, discount: Option<i16>) -> Money {
    Money::from_units(price.units() - price.units() * i64::from(discount.unwrap_or(0)) / 100)
}

/// Sells goods by their codes.
#[procedure]
fn sell(tx: &Tx, buyer: u16, wanted: &[Wanted], pay: &Pay, at: Timestamp) -> Result<(u32, Money, Vec<i16>), Abort> {
    let number = tx.update::<Buyer>(buyer, |row| {
        let number = row.next;
        row.next += 1;
        row.visits += 1;
        number
    })?;
    let mut sum = Money::from_units(0);
    let mut left = Vec::new();
    let mut line = 0u8;
    for one in wanted {
        let Some(good) = tx.get_by::<Good>(Good::BY_CODE, one.code)? else {
            return Err(tx.abort(Unsold::NoSuchGood(one.code)));
        };
        let rest = tx.update::<Good>(good.id, |row| {
            row.left -= i16::from(one.count);
            row.sold += one.count;
            if row.left < 0 {
                row.left = 50;
            }
            row.left
        })?;
        left.push(rest);
        let amount = reduced(good.price, good.discount) * i64::from(one.count);
        sum += amount;
        tx.insert(Sale { buyer, number, line, good: good.id, amount, at, delivered: None })?;
        line += 1;
    }
    let paid = match pay {
        Pay::Cash => sum,
        Pay::Card { limit, .. } => {
            if sum > *limit {
                return Err(tx.abort(Unsold::TooMuch));
            }
            sum
        }
        Pay::Voucher(percent) => reduced(sum, Some(i16::from(*percent))),
    };
    tx.update::<Buyer>(buyer, |row| row.spent += paid)?;
    Ok((number, paid, left))
}

/// Delivers up to `most` open lines of a buyer, newest first.
#[procedure]
fn deliver(tx: &Tx, buyer: u16, most: u8, at: Timestamp) -> Result<Vec<u32>, Abort> {
    let mut goods = Vec::new();
    let mut lines = Vec::new();
    for sale in tx.prefix::<Sale>((buyer,)).rev().limit(8)? {
        if sale.delivered.is_some() {
            continue;
        }
        if goods.len() >= usize::from(most) {
            break;
        }
        goods.push(sale.good);
        lines.push((sale.number, sale.line));
    }
    for (number, line) in &lines {
        let _ = tx.update_if::<Sale>((buyer, *number, *line), |sale| sale.delivered = Some(at))?;
    }
    goods.sort();
    goods.dedup();
    Ok(goods)
}

/// Undoes every sale of a good to a buyer.
#[procedure]
fn take_back(tx: &Tx, buyer: u16, good: u32, note: &str) -> Result<(u32, bool), Abort> {
    let sales = tx.find_by::<Sale>(Sale::BY_GOOD, good).all()?;
    let mut count = 0u32;
    for sale in &sales {
        if sale.buyer == buyer {
            tx.delete::<Sale>((buyer, sale.number, sale.line))?;
            count += 1;
        }
    }
    let mut noted = false;
    if count > 0 {
        tx.update::<Good>(good, |row| {
            row.note = note;
            row.discount = if row.left > 20 { Some(10) } else { None };
        })?;
        noted = true;
    }
    Ok((count, noted))
}

/// Adds a good, or replaces one that was never sold.
#[procedure]
fn stock_up(tx: &Tx, id: u32, code: u32, price: Money) -> Result<bool, Abort> {
    let sold = tx.find_by::<Sale>(Sale::BY_GOOD, id).count()?;
    let gone = if sold == 0 { tx.delete_if::<Good>(id)? } else { false };
    tx.insert(Good {
        id,
        code,
        name: Text::truncated("new"),
        price,
        left: 5,
        sold: 0,
        note: String::new(),
        discount: None,
    })?;
    Ok(gone)
}

/// The spending of buyers in a range, up to `most` each.
#[procedure]
fn spending(tx: &Tx, from: u16, to: u16, most: Money) -> Result<(Money, Option<u16>), Abort> {
    let mut sum = Money::from_units(0);
    let mut first = None;
    for buyer in tx.scan::<Buyer>(from..to)? {
        if first.is_none() {
            first = Some(buyer.id);
        }
        sum += if buyer.spent > most { most } else { buyer.spent };
    }
    Ok((sum, first))
}

const GOODS: u32 = 6;
const BUYERS: u16 = 3;

fn open(builder: Builder) -> (Database, Session) {
    let db = builder.open().expect("a valid setting");
    let (goods, buyers) = (db.create::<Good>().expect("valid"), db.create::<Buyer>().expect("valid"));
    db.create::<Sale>().expect("valid");
    let mut session = db.session();
    let load = session.transact(|tx| {
        for id in 0..GOODS {
            let (name, price) = (Text::truncated(&format!("good {id}")), Money::from_units(i64::from(id) * 250 + 99));
            let discount = (id % 2 == 0).then_some(5);
            let note = "as new".repeat(id as usize);
            tx.insert(&goods, &Good { id, code: id + 100, name, price, left: 30, sold: 0, note, discount })?;
        }
        let buyer = |id| Buyer { id, next: 1, spent: Money::from_units(0), visits: 0 };
        (0..BUYERS).try_for_each(|id| tx.insert(&buyers, &buyer(id)))
    });
    load.expect("empty tables");
    db.register(procedures![sell, deliver, take_back, stock_up, spending]).expect("a sound set");
    (db, session)
}

/// Every row of every table.
fn contents(db: &Database) -> Vec<String> {
    let read = db.session().transact(|tx| {
        let mut all = Vec::new();
        for name in db.table_names() {
            let table = db.open_dyn(&name).expect("it is listed");
            for row in tx.scan_dyn(&table, &[])? {
                all.push(format!("{name} {:?}", row?));
            }
        }
        Ok(all)
    });
    read.expect("no conflict").into_value()
}

struct Trio {
    compiled: (Database, Session),
    interpreted: (Database, Session),
    /// Runs in the pieces of the registered set's chopping.
    pieces: (Database, Session),
    rng: Rng,
}

impl Trio {
    fn run<P: Declared>(&mut self, procedure: P, arguments: &P::Arguments)
    where
        P::Arguments: std::fmt::Debug,
        P::Output: std::fmt::Debug + PartialEq,
    {
        let told = format!("{}{arguments:?}", P::NAME);
        let dependencies = check_dependencies(&mut self.interpreted.1, procedure, arguments, self.rng.next_u64());
        if let Ok(found) = dependencies {
            assert_eq!(found, Ok(()), "{told}");
        }
        let got = self.compiled.1.call(procedure, arguments);
        let wanted = self.interpreted.1.interpret(procedure, arguments);
        match (self.pieces.1.call(procedure, arguments), &got) {
            (Ok(in_pieces), Ok(got)) => assert_eq!(in_pieces.value, got.value, "{told}, in pieces"),
            (Err(in_pieces), Err(got)) => assert_eq!(in_pieces.to_string(), got.to_string(), "{told}, in pieces"),
            (in_pieces, got) => panic!("{told}, in pieces: {in_pieces:?}, {got:?}"),
        }
        match (got, wanted) {
            (Ok(got), Ok(wanted)) => assert_eq!(got.value, wanted.value, "{told}"),
            (Err(TransactError::User(got)), Err(TransactError::User(wanted))) => {
                let (got, wanted) = (got.to_string(), wanted.to_string());
                assert_eq!(got.replace(['(', ')', ' '], ""), simplified(&wanted), "{told}");
            }
            (Err(TransactError::Overflow { .. }), Err(TransactError::Overflow { .. })) => {}
            (Err(got), Err(wanted)) => assert_eq!(got.to_string(), wanted.to_string(), "{told}"),
            (got, wanted) => panic!("{told}: {got:?}, {wanted:?}"),
        }
        let rows = contents(&self.compiled.0);
        assert_eq!(rows, contents(&self.interpreted.0), "after {told}");
        assert_eq!(contents(&self.pieces.0), rows, "after {told}, in pieces");
    }
}

/// Rewrites `NoSuchGood { 0: 7u32 }` as `NoSuchGood7`.
fn simplified(shown: &str) -> String {
    shown.replace("0: ", "").replace("u32", "").replace(['{', '}', '(', ')', ' '], "")
}

/// The sum is read and not set (seed 16496107452119576912 of the test below).
#[test]
fn a_sum_that_overflows_leaves_no_plan() {
    each(|setting| {
        let (_, mut session) = open(setting.builder().check_plans(true));
        let mut sell_some = |count| {
            let (wanted, at) = (vec![Wanted { code: 100, count }], Timestamp::from_microseconds(0));
            session.call(sell, &(0, wanted, Pay::Cash, at)).map(|committed| committed.attempts)
        };
        assert!(sell_some(200).is_ok());
        assert!(matches!(sell_some(56), Err(TransactError::Overflow { .. })));
        assert!(sell_some(55).is_ok());
    });
}

#[test]
fn generated_code_and_the_interpreter_agree_on_results_and_rows() {
    each(|setting| {
        let seed = seed("generated_code_and_the_interpreter_agree_on_results_and_rows");
        let mut rng = Rng::from_seed(seed);
        let mut trio = Trio {
            compiled: open(setting.builder().check_plans(true)),
            interpreted: open(setting.builder()),
            pieces: open(setting.builder().execution_mode(ExecutionMode::Pieces)),
            rng: Rng::from_seed(!seed),
        };
        for time in 0..tries(25, 150) as i64 {
            let buyer = rng.below(u64::from(BUYERS) + 1) as u16;
            let at = Timestamp::from_microseconds(time);
            match rng.below(8) {
                0..4 => {
                    let line = |rng: &mut Rng| Wanted { code: 100 + rng.below(7) as u32, count: rng.below(20) as u8 };
                    let wanted: Vec<_> = (0..rng.below(4)).map(|_| line(&mut rng)).collect();
                    let pay = match rng.below(3) {
                        0 => Pay::Cash,
                        1 => Pay::Card { number: 7, limit: Money::from_units(rng.below(30_000) as i64) },
                        _ => Pay::Voucher(rng.below(100) as u8),
                    };
                    trio.run(sell, &(buyer, wanted, pay, at));
                }
                4 => trio.run(deliver, &(buyer, rng.below(5) as u8, at)),
                5 => trio.run(take_back, &(buyer, rng.below(7) as u32, format!("returned {time}"))),
                6 => trio.run(stock_up, &(rng.below(9) as u32, 100 + rng.below(9) as u32, Money::from_units(time))),
                _ => trio.run(spending, &(buyer, 2 + rng.below(3) as u16, Money::from_units(rng.below(9000) as i64))),
            }
        }
        for db in [&trio.compiled.0, &trio.interpreted.0, &trio.pieces.0] {
            assert_eq!(db.check_structure(), Ok(()));
        }
    });
}
