//! Seat reservation: seats of a show are reserved together or not at all, and each seat has at most one holder.
//!
//! `cargo run -p seriatim --example seats`. What to look at:
//! - The database, and no lock in the program, separates concurrent reservations of overlapping seats.
//! - One column counts the free seats, and every reservation only adds to it.

use std::fmt;

use seriatim::procedure::plan::{Chopping, Options};
use seriatim::{Abort, Builder, Data, Database, Rng, Table, TransactError, Tx, procedure, procedures, thread};

const ROWS: u8 = 10;
const SEATS: u8 = 20;
const AGENTS: u32 = 3;
const WISHES: u32 = 300;

#[derive(Table)]
#[table(name = "show", key(id), hash)]
struct Show {
    id: u32,
    free: i64,
}

#[derive(Table)]
#[table(name = "seat", key(show, row, number), ordered)]
struct Seat {
    show: u32,
    row: u8,
    number: u8,
    holder: Option<u32>,
}

/// The seat is taken: its row and number.
#[derive(Data, Clone, Copy, Debug, PartialEq)]
struct Taken {
    row: u8,
    number: u8,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seat {} in row {} is taken", self.number, self.row)
    }
}

impl std::error::Error for Taken {}

/// Reserves these neighbouring seats for a customer.
#[procedure]
fn reserve(tx: &Tx, show: u32, row: u8, seats: &[u8], customer: u32) -> Result<(), Abort> {
    let mut count = 0i64;
    for number in seats {
        let taken = tx.update::<Seat>((show, row, *number), |seat| {
            let taken = seat.holder.is_some();
            seat.holder = Some(customer);
            taken
        })?;
        if taken {
            return Err(tx.abort(Taken { row, number: *number }));
        }
        count += 1;
    }
    let _ = tx.update_if::<Show>(show, |show| show.free -= count)?;
    Ok(())
}

/// Cancels a customer's seats in a row; returns how many.
#[procedure]
fn cancel(tx: &Tx, show: u32, row: u8, customer: u32) -> Result<i64, Abort> {
    let mut held = Vec::new();
    for seat in tx.prefix::<Seat>((show, row))? {
        if seat.holder == Some(customer) {
            held.push(seat.number);
        }
    }
    let mut count = 0i64;
    for number in &held {
        tx.update::<Seat>((show, row, *number), |seat| seat.holder = None)?;
        count += 1;
    }
    let _ = tx.update_if::<Show>(show, |show| show.free += count)?;
    Ok(count)
}

/// The number of free seats by the counter, and by the seats.
#[procedure]
fn free_seats(tx: &Tx, show: u32) -> Result<(i64, i64), Abort> {
    let said = tx.require::<Show>(show)?;
    let mut found = 0i64;
    for seat in tx.prefix::<Seat>((show,))? {
        if seat.holder.is_none() {
            found += 1;
        }
    }
    Ok((said.free, found))
}

/// Opens a database, with its rows and procedures.
pub(crate) fn open(builder: Builder) -> Result<Database, Box<dyn std::error::Error>> {
    let db = builder.open()?;
    let (shows, seats) = (db.create::<Show>()?, db.create::<Seat>()?);
    db.register(procedures![reserve, cancel, free_seats])?;
    db.session().transact(|tx| {
        tx.insert(&shows, &Show { id: 1, free: i64::from(ROWS) * i64::from(SEATS) })?;
        for (row, number) in (0..ROWS).flat_map(|row| (0..SEATS).map(move |number| (row, number))) {
            tx.insert(&seats, &Seat { show: 1, row, number, holder: None })?;
        }
        Ok(())
    })?;
    Ok(db)
}

/// Runs the example under this protocol; returns into which pieces its procedures may be cut.
pub(crate) fn run(protocol: &str) -> Result<Chopping, Box<dyn std::error::Error>> {
    let db = open(Database::builder().protocol(protocol))?;
    let mut session = db.session();
    let agent = |agent: u32| -> Result<[u32; 3], TransactError> {
        let (mut session, mut rng, mut counts) = (db.session(), Rng::from_seed(u64::from(agent)), [0; 3]);
        for wish in 0..WISHES {
            let (row, first) = (rng.below(u64::from(ROWS)) as u8, rng.below(u64::from(SEATS) - 3) as u8);
            let customer = agent << 16 | wish;
            let wanted: Vec<u8> = (first..=first + rng.below(4) as u8).collect();
            match session.call(reserve, &(1, row, wanted, customer)) {
                Ok(_) if rng.percent(60) => {
                    counts[1] += 1;
                    session.call(cancel, &(1, row, customer))?;
                }
                Ok(_) => counts[0] += 1,
                Err(error) if error.user::<Taken>().is_some() => counts[2] += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(counts)
    };
    let counts = thread::scope(|scope| {
        let agents: Vec<_> = (0..AGENTS).map(|number| scope.spawn(move || agent(number))).collect();
        agents.into_iter().map(|agent| agent.join().expect("no agent panics")).collect::<Result<Vec<_>, _>>()
    })?;
    let [kept, cancelled, refused] = [0, 1, 2].map(|at| counts.iter().map(|counts| counts[at]).sum::<u32>());
    let (said, found) = session.call(free_seats, &1)?.into_value();
    println!("{kept} reservations kept, {cancelled} cancelled, {refused} refused; {found} seats free");
    assert_eq!(said, found);
    Ok(db.chopping(Options::OPTIMIZED)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run("auto")?);
    Ok(())
}
