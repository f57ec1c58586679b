//! A leaderboard: matches move points between players, and the table of the best is an index.
//!
//! `cargo run -p seriatim --example leaderboard`. What to look at: `best` reads the first entries of an ordered
//! index. A player that enters, leaves or moves within them meanwhile is a conflict, so all points shown are of one
//! moment.

use seriatim::procedure::plan::{Chopping, Options};
use seriatim::{Abort, Builder, Data, Database, Rng, Table, TransactError, Tx, procedure, procedures, thread};

const PLAYERS: u32 = 60;
const POINTS: i64 = 1000;
const REFEREES: u64 = 3;
const MATCHES: u32 = 400;

#[derive(Table)]
#[table(name = "player", key(id), hash)]
#[table(index(name = "by_points", columns(desc(points), id), ordered))]
struct Player {
    id: u32,
    points: i64,
    played: i64,
}

/// A rank in the table.
#[derive(Data, Clone, Copy, Debug, PartialEq)]
struct Ranked {
    player: u32,
    points: i64,
}

/// Moves a tenth of the loser's points to the winner; returns how many that is.
#[procedure]
fn play(tx: &Tx, winner: u32, loser: u32) -> Result<i64, Abort> {
    let stake = tx.update::<Player>(loser, |player| {
        let stake = player.points / 10;
        player.points -= stake;
        player.played += 1;
        stake
    })?;
    tx.update::<Player>(winner, |player| {
        player.points += stake;
        player.played += 1;
    })?;
    Ok(stake)
}

/// The best players, at most ten, in order.
#[procedure]
fn best(tx: &Tx, most: u8) -> Result<Vec<Ranked>, Abort> {
    let mut table = Vec::new();
    for player in tx.scan_by::<Player>(Player::BY_POINTS, ..).limit(10)? {
        if table.len() < usize::from(most) {
            table.push(Ranked { player: player.id, points: player.points });
        }
    }
    Ok(table)
}

/// The sum of all points.
#[procedure]
fn total(tx: &Tx, players: u32) -> Result<i64, Abort> {
    let mut sum = 0i64;
    for id in 0..players {
        let player = tx.require::<Player>(id)?;
        sum += player.points;
    }
    Ok(sum)
}

/// Opens a database, with its rows and procedures.
pub(crate) fn open(builder: Builder) -> Result<Database, Box<dyn std::error::Error>> {
    let db = builder.open()?;
    let players = db.create::<Player>()?;
    db.register(procedures![play, best, total])?;
    db.session().transact(|tx| {
        (0..PLAYERS).try_for_each(|id| tx.insert(&players, &Player { id, points: POINTS, played: 0 }))
    })?;
    Ok(db)
}

/// Runs the example under this protocol; returns into which pieces its procedures may be cut.
pub(crate) fn run(protocol: &str) -> Result<Chopping, Box<dyn std::error::Error>> {
    let db = open(Database::builder().protocol(protocol))?;
    let mut session = db.session();
    let referee = |referee: u64| -> Result<(), TransactError> {
        let (mut session, mut rng) = (db.session(), Rng::from_seed(referee));
        for number in 0..MATCHES {
            let winner = rng.below(u64::from(PLAYERS)).min(rng.below(u64::from(PLAYERS))) as u32;
            let loser = (winner + 1 + rng.below(u64::from(PLAYERS) - 1) as u32) % PLAYERS;
            session.call(play, &(winner, loser))?;
            if number % 20 == 0 {
                let table = session.call(best, &10)?.into_value();
                assert!(table.len() == 10 && table.is_sorted_by(|one, next| one.points >= next.points));
                let players = table.iter().map(|ranked| ranked.player).collect::<std::collections::BTreeSet<_>>();
                assert_eq!(players.len(), 10, "no player is shown twice");
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let referees: Vec<_> = (0..REFEREES).map(|number| scope.spawn(move || referee(number))).collect();
        referees.into_iter().try_for_each(|referee| referee.join().expect("no referee panics"))
    })?;
    for (place, Ranked { player, points }) in session.call(best, &5)?.iter().enumerate() {
        println!("{}. player {player} with {points}", place + 1);
    }
    assert_eq!(session.call(total, &PLAYERS)?.into_value(), i64::from(PLAYERS) * POINTS, "points only move");
    Ok(db.chopping(Options::OPTIMIZED)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run("auto")?);
    Ok(())
}
