//! Contention: the same transactions under several protocols and options, with the rows at which they conflict.
//!
//! `cargo run --release -p seriatim --example contention`. What to look at:
//! - The transactions know no protocol, so comparing two protocols takes two databases.
//! - The report names the rows and procedures that conflict.
//! - The sum shows that no update was lost.

use std::error::Error;

use seriatim::{Abort, Database, Handle, Rng, Table, Tx, clock, thread};

const PRODUCTS: u64 = 1_000;
const THREADS: u64 = 4;
const ORDERS: u32 = 5_000;

/// A product that is sold.
#[derive(Table)]
#[table(name = "product", key(id))]
struct Product {
    id: u64,
    sold: u64,
}

/// Sells two products.
fn order(tx: &Tx, products: &Handle<Product>, wanted: [u64; 2]) -> Result<(), Abort> {
    for id in wanted {
        tx.update(products, &id, |product| product.set_sold(product.sold() + 1))?;
    }
    Ok(())
}

/// Runs the orders under a protocol with these options; prints orders per second, and where attempts were aborted.
fn measure(protocol: &str, options: &[(&str, u64)]) -> Result<(), Box<dyn Error>> {
    let builder = Database::builder().protocol(protocol).track_contention(true);
    let db = options.iter().fold(builder, |builder, (name, value)| builder.protocol_option(name, *value)).open()?;
    let products = db.create::<Product>()?;
    db.session().transact(|tx| (0..PRODUCTS).try_for_each(|id| tx.insert(&products, &Product { id, sold: 0 })))?;
    let began = clock::Instant::now();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (mut session, products) = (db.session(), &products);
            scope.spawn(move || {
                let mut rng = Rng::from_seed(seed);
                for _ in 0..ORDERS {
                    // Half of the orders are for three products only.
                    let most = if rng.percent(50) { 3 } else { PRODUCTS };
                    // Drawn before the transaction, which may run again.
                    let wanted = [rng.below(most), rng.below(most)];
                    session.transact(|tx| order(tx, products, wanted)).expect("conflicts are retried");
                }
            });
        }
    });
    let orders = THREADS as f64 * f64::from(ORDERS);
    let per_second = orders / began.elapsed().as_secs_f64();
    println!("{protocol} {options:?}: {per_second:.0} orders a second");
    let contention = db.contention().ok_or("contention is tracked")?;
    println!("  {} attempts were ended by conflicts", contention.count());
    for place in contention.places.iter().take(3) {
        let key = place.key.as_deref().unwrap_or("no one row");
        println!("  {:>6} at {key}, {}", place.count, place.cause);
    }
    let sold = db.session().transact(|tx| {
        let sold = |id: u64| Ok::<u64, Abort>(tx.get(&products, &id)?.map_or(0, |product| product.sold()));
        (0..PRODUCTS).try_fold(0, |sum, id| Ok(sum + sold(id)?))
    })?;
    assert_eq!(*sold, 2 * THREADS * u64::from(ORDERS), "every order was counted");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    measure("dbx", &[])?;
    measure("htcc", &[])?;
    measure("htcc", &[("hot_failures", 20), ("hot_period", 10)])
}
