//! A shop's checkout. A basket is sold as a whole or not at all, and a coupon is redeemed at most as often as it
//! allows.
//!
//! `cargo run -p seriatim --example checkout`. What to look at:
//! - `checkout` gives up in three ways, and then has no effect.
//! - Sales of a product are only added to a column, so these additions do not conflict.
//! - The last lines show into which pieces the set may be cut.

use std::fmt;

use seriatim::procedure::plan::{Chopping, Options};
use seriatim::{Abort, Builder, Data, Database, Decimal, Rng, Table, TransactError, Tx, procedure, procedures, thread};

type Money = Decimal<2>;

const PRODUCTS: u32 = 20;
const STOCK: i64 = 200;
const REDEMPTIONS: u32 = 50;
const BUYERS: u32 = 3;
const BASKETS: u32 = 400;

#[derive(Table)]
#[table(name = "product", key(id), hash)]
struct Product {
    id: u32,
    #[column(immutable)]
    price: Money,
    left: i64,
    sold: i64,
}

#[derive(Table)]
#[table(name = "coupon", key(code), hash)]
struct Coupon {
    code: u32,
    #[column(immutable)]
    percent: i64,
    redemptions_left: u32,
}

#[derive(Table)]
#[table(name = "order", key(buyer, number), ordered)]
struct Order {
    buyer: u32,
    number: u32,
    total: Money,
    coupon: Option<u32>,
}

/// A product and how many of it.
#[derive(Data, Clone, Debug)]
struct Line {
    product: u32,
    count: i64,
}

/// A basket; its number is unique for the buyer.
#[derive(Data, Clone, Debug)]
struct Basket {
    buyer: u32,
    number: u32,
    lines: Vec<Line>,
    coupon: Option<u32>,
}

/// Why a basket is not sold.
#[derive(Data, Clone, Debug, PartialEq)]
enum Refused {
    SoldOut(u32),
    CouponUsedUp(u32),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::SoldOut(product) => write!(f, "product {product} is sold out"),
            Refused::CouponUsedUp(code) => write!(f, "coupon {code} is used up"),
        }
    }
}

impl std::error::Error for Refused {}

#[seriatim::pure]
fn reduced(total: Money, percent: i64) -> Money {
    Money::from_units(total.units() - total.units() * percent / 100)
}

/// Sells a basket; returns its price.
#[procedure]
fn checkout(tx: &Tx, basket: &Basket) -> Result<Money, Abort> {
    let mut total = Money::from_units(0);
    for line in &basket.lines {
        let product = tx.require::<Product>(line.product)?;
        total += product.price * line.count;
    }
    if let Some(code) = basket.coupon {
        let coupon = tx.require::<Coupon>(code)?;
        if coupon.redemptions_left == 0 {
            return Err(tx.abort(Refused::CouponUsedUp(code)));
        }
        total = reduced(total, coupon.percent);
        tx.update::<Coupon>(code, |coupon| coupon.redemptions_left -= 1)?;
    }
    for line in &basket.lines {
        let left = tx.update::<Product>(line.product, |product| {
            product.left -= line.count;
            product.left
        })?;
        if left < 0 {
            return Err(tx.abort(Refused::SoldOut(line.product)));
        }
        // The row exists, so this cannot fail, and may be published after the rest.
        let _ = tx.update_if::<Product>(line.product, |product| product.sold += line.count)?;
    }
    tx.insert(Order { buyer: basket.buyer, number: basket.number, total, coupon: basket.coupon })?;
    Ok(total)
}

/// The stock and the sales of all products, and the number of orders with this coupon.
#[procedure]
fn stock_taking(tx: &Tx, coupon: u32) -> Result<(i64, i64, u32), Abort> {
    let (mut left, mut sold, mut redeemed) = (0i64, 0i64, 0u32);
    for id in 0..PRODUCTS {
        let product = tx.require::<Product>(id)?;
        left += product.left;
        sold += product.sold;
    }
    for order in tx.scan::<Order>(..)? {
        if order.coupon == Some(coupon) {
            redeemed += 1;
        }
    }
    Ok((left, sold, redeemed))
}

fn basket(rng: &mut Rng, buyer: u32, number: u32) -> Basket {
    let line = |rng: &mut Rng| Line { product: rng.below(u64::from(PRODUCTS)) as u32, count: rng.range(1, 5) as i64 };
    let lines = (0..rng.range(1, 4)).map(|_| line(rng)).collect();
    Basket { buyer, number, lines, coupon: rng.percent(30).then_some(7) }
}

/// Opens a database, with its rows and procedures.
pub(crate) fn open(builder: Builder) -> Result<Database, Box<dyn std::error::Error>> {
    let db = builder.open()?;
    let (products, coupons) = (db.create::<Product>()?, db.create::<Coupon>()?);
    db.create::<Order>()?;
    db.register(procedures![checkout, stock_taking])?;
    db.session().transact(|tx| {
        for id in 0..PRODUCTS {
            let price = Money::from_units(99 + 100 * i64::from(id));
            tx.insert(&products, &Product { id, price, left: STOCK, sold: 0 })?;
        }
        tx.insert(&coupons, &Coupon { code: 7, percent: 10, redemptions_left: REDEMPTIONS })
    })?;
    Ok(db)
}

/// Runs the example under this protocol; returns into which pieces its procedures may be cut.
pub(crate) fn run(protocol: &str) -> Result<Chopping, Box<dyn std::error::Error>> {
    let db = open(Database::builder().protocol(protocol))?;
    let mut session = db.session();
    let buyer = |buyer: u32| -> Result<[u32; 3], TransactError> {
        let (mut session, mut rng, mut counts) = (db.session(), Rng::from_seed(u64::from(buyer)), [0; 3]);
        for number in 0..BASKETS {
            let result = session.call(checkout, &basket(&mut rng, buyer, number));
            let refused = result.as_ref().err().and_then(|error| error.user::<Refused>().cloned());
            match (refused, result) {
                (Some(Refused::SoldOut(_)), _) => counts[1] += 1,
                (Some(Refused::CouponUsedUp(_)), _) => counts[2] += 1,
                (None, result) => counts[0] += result.map(|_| 1)?,
            }
        }
        Ok(counts)
    };
    let counts = thread::scope(|scope| {
        let buyers: Vec<_> = (0..BUYERS).map(|number| scope.spawn(move || buyer(number))).collect();
        buyers.into_iter().map(|buyer| buyer.join().expect("no buyer panics")).collect::<Result<Vec<_>, _>>()
    })?;
    let [sold, sold_out, used_up] = [0, 1, 2].map(|at| counts.iter().map(|counts| counts[at]).sum::<u32>());
    println!("{sold} baskets sold; {sold_out} refused as sold out, {used_up} because the coupon was used up");

    let (left, items, redeemed) = session.call(stock_taking, &7)?.into_value();
    println!("{items} items sold, {left} left, coupon redeemed {redeemed} times");
    assert_eq!(left + items, i64::from(PRODUCTS) * STOCK, "nothing is lost, nothing sold twice");
    assert!(redeemed <= REDEMPTIONS);
    Ok(db.chopping(Options::OPTIMIZED)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run("auto")?);
    Ok(())
}
