//! Fragments of procedures, in partitions with a database each, do the same as the procedures in one database with
//! all rows. A fragment that is undone leaves nothing behind.

use std::fmt::Debug;

use seriatim::procedure::Declared;
use seriatim::procedure::divided::{Call, Divided, Fragment, Lock, NOTHING, Ran, Reply, Undo, output};
use seriatim::rng::seed;
use seriatim::{Abort, Data, Database, Rng, Session, Table, Text, TransactError, Tx, procedure, procedures, pure};

use super::run::agree;
use super::transfer;

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "shop", key(id), ordered)]
struct Shop {
    id: u32,
    sold: i64,
    next: u32,
    motto: String,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "shelf", key(shop, ware), ordered, index(name = "by_label", columns(shop, label), ordered, unique))]
struct Shelf {
    shop: u32,
    ware: u32,
    left: i32,
    label: Text<8>,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "line", key(shop, number, at), cluster(shop, number))]
struct Line {
    shop: u32,
    number: u32,
    at: u8,
    label: Text<8>,
    price: i64,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "price", key(ware), replicated, ordered)]
struct Price {
    ware: u32,
    price: i64,
}

#[derive(Data, Clone, Debug, PartialEq)]
struct Wanted {
    shop: u32,
    ware: u32,
    count: i32,
}

#[derive(Data, Clone, Debug, PartialEq)]
struct NoSuchWare(u32);

impl std::fmt::Display for NoSuchWare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for NoSuchWare {}

#[pure]
fn motto(old: &str, number: u32) -> String {
    format!("{number} {old}").chars().take(40).collect()
}

/// As New-Order: an order at one shop, of wares from any shop. The names of the wares are stored with the order.
#[procedure]
fn order(tx: &Tx, shop: u32, wanted: &[Wanted]) -> Result<(u32, i64, Vec<i32>), Abort> {
    let number = tx.update::<Shop>(shop, |shop| {
        let number = shop.next;
        shop.next = number + 1;
        shop.motto = motto(shop.motto, number);
        number
    })?;
    let mut sum = 0i64;
    let mut left = Vec::new();
    let mut at = 0u8;
    for line in wanted {
        let price = tx.get::<Price>(line.ware)?;
        let Some(price) = price else { return Err(tx.abort(NoSuchWare(line.ware))) };
        if line.count == 5 && price.price > 3 {
            break;
        }
        let taken = tx.update_if::<Shelf>((line.shop, line.ware), |shelf| {
            shelf.left -= line.count;
            (shelf.left, Text::<8>::truncated(shelf.label))
        })?;
        let Some((now, label)) = taken else { continue };
        left.push(now);
        let cost = price.price * i64::from(line.count);
        sum += cost;
        tx.insert(Line { shop, number, at, label, price: cost })?;
        at += 1;
    }
    tx.update::<Shop>(shop, |shop| shop.sold += sum)?;
    Ok((number, sum, left))
}

/// Moves wares between two shops, by known keys; neither shop needs a result from the other.
#[procedure]
fn move_wares(tx: &Tx, from: u32, to: u32, ware: u32, count: i32) -> Result<(i32, i32), Abort> {
    let here = tx.update::<Shelf>((from, ware), |shelf| {
        shelf.left -= count;
        shelf.left
    })?;
    let there = tx.update::<Shelf>((to, ware), |shelf| {
        shelf.left += count;
        shelf.left
    })?;
    Ok((here, there))
}

/// The rows of one shop decide what is done at the other; the result there is stored in the first.
#[procedure]
fn close(tx: &Tx, shop: u32, heir: u32) -> Result<(u32, bool, u64), Abort> {
    let mut moved = 0u32;
    let mut all = 0i32;
    for shelf in tx.prefix::<Shelf>((shop,))? {
        if shelf.left <= 0 {
            continue;
        }
        if moved == 3 {
            break;
        }
        moved += 1;
        all += shelf.left;
    }
    let gone = tx.delete_if::<Shelf>((shop, 0))?;
    let lines = tx.prefix::<Line>((shop, 0)).count()?;
    if moved == 0 {
        return Ok((0, gone, lines));
    }
    let heir_sold = tx.update::<Shop>(heir, |row| {
        row.sold += i64::from(all);
        row.sold
    })?;
    if heir_sold > 400 {
        return Err(tx.abort("the heir has too much"));
    }
    tx.update::<Shop>(shop, |row| row.sold -= heir_sold)?;
    Ok((moved, gone, lines))
}

/// Uses an index key within one partition: deletes the row and inserts it again under another key.
#[procedure]
fn relabel(tx: &Tx, shop: u32, label: Text<8>, ware: u32) -> Result<Option<i32>, Abort> {
    let found = tx.get_by::<Shelf>(Shelf::BY_LABEL, (shop, label))?;
    let Some(found) = found else { return Ok(None) };
    let (old, left) = (found.ware, found.left);
    tx.delete::<Shelf>((shop, old))?;
    tx.insert(Shelf { shop, ware, left, label })?;
    Ok(Some(left))
}

/// Reads rows of two shops one after the other, and may end early.
#[procedure]
fn compare(tx: &Tx, one: u32, other: u32) -> Result<i64, Abort> {
    let first = tx.require::<Shop>(one)?;
    let second = tx.get::<Shop>(other)?;
    let Some(second) = second else { return Ok(first.sold) };
    let difference = first.sold - second.sold;
    Ok(difference)
}

/// The price of the first ware that the other shop has, or of the last one requested. Only the other shop's partition
/// knows where the loop stops.
#[procedure]
fn first_of(tx: &Tx, shop: u32, other: u32, wares: &[u32]) -> Result<i64, Abort> {
    tx.update::<Shop>(shop, |row| row.next += 1)?;
    let mut last = 0u32;
    for ware in wares {
        last = *ware;
        let shelf = tx.get::<Shelf>((other, *ware))?;
        let Some(shelf) = shelf else { continue };
        if shelf.left <= 0 {
            continue;
        }
        break;
    }
    let price = tx.get::<Price>(last)?;
    let Some(price) = price else { return Ok(0) };
    let price = price.price;
    tx.update::<Shop>(shop, |row| row.sold += price)?;
    Ok(price)
}

/// Changes lines of one order: lowers one and raises one, and deletes one between them.
#[procedure]
fn mark_down(tx: &Tx, shop: u32, number: u32, at: u8, by: i64) -> Result<Option<i64>, Abort> {
    let left = tx.update_if::<Line>((shop, number, at), |line| {
        line.price -= by;
        line.price
    })?;
    let _ = tx.delete_if::<Line>((shop, number, at + 1))?;
    let _ = tx.update_if::<Line>((shop, number, at + 2), |line| line.price += by)?;
    Ok(left)
}

/// Adds what one shop has sold to a line of the next one.
#[procedure]
fn hand_on(tx: &Tx, wanted: &[Wanted]) -> Result<i64, Abort> {
    let mut before = 0i64;
    for line in wanted {
        let shop = tx.require::<Shop>(line.shop)?;
        let sold = shop.sold;
        let _ = tx.update_if::<Line>((line.shop, line.ware, 0), |line| line.price += before)?;
        before = sold;
    }
    Ok(before)
}

/// As [`hand_on`], but one iteration may write what the next reads.
#[procedure]
fn hand_on_here(tx: &Tx, wanted: &[Wanted]) -> Result<i64, Abort> {
    let mut before = 0i64;
    for line in wanted {
        let shop = tx.require::<Shop>(line.shop)?;
        let sold = shop.sold;
        tx.update::<Shop>(line.shop, |shop| shop.sold += before)?;
        before = sold;
    }
    Ok(before)
}

/// The stock of a shop decides the price of a ware, in a replicated table. Another shop stores the new price.
#[procedure]
fn reprice(tx: &Tx, shop: u32, other: u32, ware: u32) -> Result<i64, Abort> {
    let shelf = tx.get::<Shelf>((shop, ware))?;
    let Some(shelf) = shelf else {
        let _ = tx.delete_if::<Price>(ware)?;
        return Ok(0);
    };
    let more = i64::from(shelf.left);
    let before = tx.get::<Price>(ware)?;
    let Some(before) = before else {
        tx.insert(Price { ware, price: 1 })?;
        return Ok(1);
    };
    let most = before.price + more;
    tx.update::<Price>(ware, |row| {
        if most > 20 {
            row.price = 2;
        } else {
            row.price += 1;
        }
    })?;
    let mut sum = 0i64;
    for price in tx.scan::<Price>(0..)? {
        sum += price.price;
    }
    tx.update::<Shop>(other, |row| row.sold += sum)?;
    Ok(sum)
}

/// If the two shops are one, it changes rows ahead of its scan. A scan that had recorded all its rows would miss the
/// changes.
#[procedure]
fn refill(tx: &Tx, shop: u32, other: u32) -> Result<i32, Abort> {
    let mut sum = 0i32;
    for shelf in tx.prefix::<Shelf>((shop,))? {
        sum += shelf.left;
        let _ = tx.update_if::<Shelf>((other, shelf.ware + 1), |next| next.left += 1)?;
    }
    Ok(sum)
}

/// Each iteration needs the result of the one before, in any partition: there are as many rounds as wares.
#[procedure]
fn endless(tx: &Tx, wanted: &[Wanted]) -> Result<u32, Abort> {
    let mut count = 0u32;
    for line in wanted {
        let left = tx.update::<Shelf>((line.shop, line.ware), |shelf| {
            shelf.left -= line.count;
            shelf.left
        })?;
        if left < 0 {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// The arguments do not determine its second partition.
#[procedure]
fn follow(tx: &Tx, shop: u32) -> Result<i64, Abort> {
    let row = tx.require::<Shop>(shop)?;
    let next = tx.require::<Shop>(row.next)?;
    Ok(next.sold)
}

#[test]
fn a_procedure_that_cannot_be_divided_is_refused_with_the_reason() {
    let db = declare(2);
    db.register(procedures![endless, follow, refill, hand_on_here]).expect("sound procedures");
    let refused = db.divide().expect_err("these cannot").to_string();
    assert!(refused.contains("procedure endless cannot be divided by partition: how many rounds"), "{refused}");
    assert!(refused.contains("procedure hand_on_here cannot be divided by partition: how many rounds"), "{refused}");
    assert!(refused.contains("needs #0 at line.shop of an earlier iteration"), "{refused}");
    assert!(refused.contains("procedure follow cannot be divided by partition: the partition of"), "{refused}");
    assert!(refused.contains("procedure refill cannot be divided by partition: "), "{refused}");
    assert!(refused.contains("scans, and an earlier round has read all of these"), "{refused}");
    assert!(!refused.contains("procedure order"), "{refused}");
    let db = Database::in_memory().expect("a database");
    assert!(db.divide().expect_err("it has no partitions").to_string().contains("Builder::partitions"));
}

const SHOPS: u64 = 7;
const WARES: u64 = 5;

fn declare(partitions: usize) -> Database {
    let db = Database::builder().partitions(partitions).workers(4).open().expect("a valid number");
    db.create::<Shop>().expect("a valid table");
    db.create::<Shelf>().expect("a valid table");
    db.create::<Line>().expect("a valid table");
    db.create::<Price>().expect("a valid table");
    transfer::create(&db);
    db.register(procedures![order, move_wares, close, relabel, compare, first_of, mark_down, hand_on, reprice])
        .expect("sound procedures");
    db.register(transfer::set()).expect("sound procedures");
    db
}

fn load(db: &Database) {
    let (shops, shelves) = (db.table::<Shop>().expect("it is there"), db.table::<Shelf>().expect("it is there"));
    let prices = db.table::<Price>().expect("it is there");
    let load = db.session().transact(|tx| {
        for id in 0..SHOPS as u32 {
            tx.insert(&shops, &Shop { id, sold: 0, next: 0, motto: format!("shop {id}") })?;
            for ware in 0..WARES as u32 {
                let label = Text::truncated(&format!("w{ware}"));
                tx.insert(&shelves, &Shelf { shop: id, ware, left: 20, label })?;
            }
        }
        (0..WARES as u32).try_for_each(|ware| tx.insert(&prices, &Price { ware, price: 1 + i64::from(ware) }))
    });
    load.expect("no conflict");
    transfer::load(db);
}

/// The rows of partitioned tables, in order, and those of replicated tables.
fn contents(db: &Database) -> (Vec<String>, Vec<String>) {
    let (all, everywhere) = super::run::contents(db).into_iter().partition(|row| !row.starts_with("price "));
    (all, everywhere)
}

/// A database with all rows, and a divided one.
struct Parts {
    whole: (Database, Session),
    divided: Vec<(Divided, Session)>,
    caller: (Divided, Session),
    rng: Rng,
    /// Counts: calls over several partitions, calls in several rounds, aborted calls, fragments undone, lines marked
    /// down.
    met: [u32; 5],
}

/// The fragments of one attempt of a call that can be undone.
type Done = Vec<(usize, Undo)>;

impl Parts {
    fn new(partitions: usize, seed: u64) -> Parts {
        let whole = declare(partitions);
        load(&whole);
        let one = |at| {
            let db = declare(partitions);
            let divided = db.divide().expect("all can be divided");
            divided.fill(&whole, at).expect("an empty database");
            (divided, db.session())
        };
        let divided = (0..partitions).map(one).collect();
        let caller = declare(partitions);
        let session = caller.session();
        let caller = (caller.divide().expect("all can be divided"), session);
        let session = whole.session();
        Parts { whole: (whole, session), divided, caller, rng: Rng::from_seed(!seed), met: [0; 5] }
    }

    fn attempt<P: Declared>(
        &mut self,
        procedure: P,
        arguments: &P::Arguments,
        done: &mut Done,
    ) -> Result<P::Output, TransactError> {
        let call = self.caller.0.call(procedure, arguments)?;
        let (count, several) = (call.rounds.len(), call.partitions().count_ones() > 1);
        self.met[0] += u32::from(several);
        self.met[1] += u32::from(several && count > 1);
        let (mut found, mut result) = (Vec::new(), None);
        for round in 0..if several { count } else { 1 } {
            let (mut here, before) = (if several { call.rounds[round] } else { call.partitions() }, found.clone());
            while here != 0 {
                let at = here.trailing_zeros() as usize;
                here &= here - 1;
                let round = several.then_some(round as u32);
                let (procedure, arguments) = (call.procedure, call.arguments.clone());
                let fragment = Fragment { procedure, arguments, round, found: before.clone() };
                let (divided, session) = &mut self.divided[at];
                let mut locks = Vec::new();
                divided.locks(at, &fragment, &mut locks)?;
                check_locks(&locks);
                let Ran { reply, undo, .. } = divided.run(session, at, &fragment, true, NOTHING)?;
                done.push((at, undo));
                match reply {
                    Reply::Results(more) => found.extend(more),
                    Reply::Output(bytes) => result = Some(bytes),
                }
            }
        }
        let result = match result {
            Some(result) => result,
            None => self.caller.0.put_together(&mut self.caller.1, &call, found)?,
        };
        output(procedure, &result)
    }

    fn undo(&mut self, done: Done) {
        for (at, undo) in done.into_iter().rev() {
            let (divided, session) = &mut self.divided[at];
            divided.undo(session, at, &undo, NOTHING).expect("it is as it was left");
            self.met[3] += 1;
        }
    }

    fn contents(&self) -> Vec<String> {
        let mut all = Vec::new();
        let (_, everywhere) = contents(&self.whole.0);
        for (divided, _) in &self.divided {
            let (rows, own) = contents(divided.database());
            assert_eq!(own, everywhere);
            all.extend(rows);
        }
        all.sort();
        all
    }

    fn run<P: Declared>(&mut self, procedure: P, arguments: &P::Arguments)
    where
        P::Arguments: Debug,
        P::Output: Debug + PartialEq,
    {
        let told = format!("{}{arguments:?}", P::NAME);
        let before = self.contents();
        let mut done = Done::new();
        if self.rng.below(3) == 0 {
            let _ = self.attempt(procedure, arguments, &mut done);
            self.undo(std::mem::take(&mut done));
            assert_eq!(self.contents(), before, "after {told} was taken back");
        }
        let got = self.attempt(procedure, arguments, &mut done);
        let wanted = self.whole.1.call(procedure, arguments).map(|done| done.value);
        if got.is_err() {
            self.met[2] += 1;
            self.undo(done);
        }
        agree(&got, &wanted, &told);
        self.met[4] += u32::from(P::NAME == mark_down::NAME && format!("{got:?}").contains("Some"));
        let mut of_whole = contents(&self.whole.0).0;
        of_whole.sort();
        assert_eq!(self.contents(), of_whole, "after {told}");
    }

    fn any(&mut self) {
        let mut rng = self.rng.fork();
        draw(&mut rng, self);
    }
}

/// Runs a call that was drawn at random.
trait Drawn {
    fn call<P: Declared>(&mut self, procedure: P, arguments: &P::Arguments)
    where
        P::Arguments: Debug,
        P::Output: Debug + PartialEq;
}

impl Drawn for Parts {
    fn call<P: Declared>(&mut self, procedure: P, arguments: &P::Arguments)
    where
        P::Arguments: Debug,
        P::Output: Debug + PartialEq,
    {
        self.run(procedure, arguments);
    }
}

/// Draws a procedure and its arguments.
fn draw(rng: &mut Rng, drawn: &mut impl Drawn) {
    let shop = |rng: &mut Rng| rng.below(SHOPS) as u32;
    match rng.below(14) {
        0..3 => {
            let near = shop(rng);
            let one = |rng: &mut Rng| {
                let shop = if rng.below(2) == 0 { near } else { shop(rng) };
                let ware = rng.below(WARES + 1).min(rng.below(40)) as u32;
                Wanted { shop, ware, count: rng.below(6) as i32 }
            };
            let wanted = (0..rng.below(5)).map(|_| one(rng)).collect();
            drawn.call(order, &(near, wanted));
        }
        3 => drawn.call(move_wares, &(shop(rng), shop(rng), rng.below(WARES) as u32, rng.below(4) as i32)),
        4 => drawn.call(close, &(shop(rng), shop(rng))),
        5 => {
            let label = Text::truncated(&format!("w{}", rng.below(WARES)));
            drawn.call(relabel, &(shop(rng), label, rng.below(WARES + 2) as u32));
        }
        7 => {
            let wares = (0..rng.below(4)).map(|_| rng.below(WARES + 2) as u32).collect();
            drawn.call(first_of, &(shop(rng), shop(rng), wares));
        }
        6 => drawn.call(compare, &(shop(rng), rng.below(SHOPS + 1) as u32)),
        8 | 11 | 12 => {
            let (number, at, by) = (rng.below(3) as u32, rng.below(3) as u8, rng.below(4) as i64);
            let (number, at) = (number.min(rng.below(3) as u32), at.min(rng.below(3) as u8));
            drawn.call(mark_down, &(shop(rng), number, at, by));
        }
        9 => {
            let line = |rng: &mut Rng| Wanted { shop: shop(rng), ware: rng.below(3) as u32, count: 0 };
            let wanted = (0..rng.below(4)).map(|_| line(rng)).collect();
            drawn.call(hand_on, &wanted);
        }
        10 => drawn.call(reprice, &(shop(rng), shop(rng), rng.below(WARES + 1) as u32)),
        _ => transfer::any_of(rng, |arguments| drawn.call(transfer::transfer, &arguments)),
    }
}

/// A lock names at least a table, or is on everything. The latter is shared, as these footprints are complete.
fn check_locks(locks: &[Lock]) {
    let all = Lock::of_all(false);
    assert!(locks.iter().all(|lock| lock.what.len() >= 2 || *lock == all), "{locks:?}");
    assert!(locks.contains(&all), "{locks:?}");
}

#[test]
fn fragments_in_their_partitions_do_what_the_procedure_does_in_one_database() {
    let seed = seed("fragments_in_their_partitions_do_what_the_procedure_does_in_one_database");
    let mut all = [0; 5];
    let is_covered = |all: &[u32; 5]| all[..4].iter().all(|met| *met > 30) && all[4] > 5;
    // Rare events may need another pass.
    for pass in 0..8 {
        for partitions in 1..=4 {
            let mut parts = Parts::new(partitions, seed.wrapping_add(pass));
            (0..150).for_each(|_| parts.any());
            (0..5).for_each(|at| all[at] += parts.met[at]);
        }
        if is_covered(&all) {
            break;
        }
    }
    eprintln!("over several partitions, in several rounds, aborted, taken back, marked down: {all:?}");
    assert!(is_covered(&all), "{all:?}");
}

#[test]
fn a_break_that_may_not_be_reached_leaves_nothing_known_behind_it() {
    // Shop 0 has no ware 5, but partition 1 does not know that.
    Parts::new(2, 1).run(first_of, &(1, 0, vec![5, 2]));
}

/// A partition with all rows, and calls of it.
struct SinglePartition {
    divided: Divided,
    session: Session,
    drawn: Option<(Fragment, String)>,
}

impl Drawn for SinglePartition {
    fn call<P: Declared>(&mut self, procedure: P, arguments: &P::Arguments)
    where
        P::Arguments: Debug,
        P::Output: Debug + PartialEq,
    {
        let Call { procedure, arguments: bytes, .. } = self.divided.call(procedure, arguments).expect("they tell it");
        let fragment = Fragment { procedure, arguments: bytes, round: None, found: Vec::new() };
        self.drawn = Some((fragment, format!("{}{arguments:?}", P::NAME)));
    }
}

impl SinglePartition {
    fn new() -> SinglePartition {
        let (whole, db) = (declare(1), declare(1));
        load(&whole);
        let divided = db.divide().expect("all can be divided");
        divided.fill(&whole, 0).expect("an empty database");
        SinglePartition { divided, session: db.session(), drawn: None }
    }

    fn draw(&mut self, rng: &mut Rng) -> (Fragment, String) {
        draw(rng, self);
        self.drawn.take().expect("one is drawn")
    }

    fn run(&mut self, fragment: &Fragment) -> Result<(Reply, Undo), String> {
        let ran = self.divided.run(&mut self.session, 0, fragment, true, NOTHING);
        ran.map(|ran| (ran.reply, ran.undo)).map_err(|error| error.to_string())
    }

    fn locks(&self, fragment: &Fragment) -> Vec<Lock> {
        let mut locks = Vec::new();
        self.divided.locks(0, fragment, &mut locks).expect("its arguments are sound");
        locks
    }
}

/// Promises (c) and (e) of a partition: a fragment may stay when another one with which its locks do not conflict is
/// undone. It has not seen the effects of that one.
#[test]
fn fragments_whose_locks_do_not_conflict_do_not_notice_that_one_is_undone() {
    let seed = seed("fragments_whose_locks_do_not_conflict_do_not_notice_that_one_is_undone");
    let mut rng = Rng::from_seed(seed);
    let (mut both, mut one) = (SinglePartition::new(), SinglePartition::new());
    let mut met = 0;
    for _ in 0..1500 {
        let ((first, told), (second, too)) = (both.draw(&mut rng), both.draw(&mut rng));
        let (held, wanted) = (both.locks(&first), both.locks(&second));
        let conflict = |lock: &Lock| held.iter().any(|at| at.what == lock.what && (at.exclusive || lock.exclusive));
        if wanted.iter().any(conflict) {
            continue;
        }
        let Ok((_, undo)) = both.run(&first) else { continue };
        let got = both.run(&second).map(|(reply, _)| reply);
        both.divided.undo(&mut both.session, 0, &undo, NOTHING).expect("it is as it was left");
        let alone = one.run(&second).map(|(reply, _)| reply);
        assert_eq!(got, alone, "{too} after {told}");
        assert_eq!(
            contents(both.divided.database()),
            contents(one.divided.database()),
            "{told} taken back after {too}"
        );
        met += u32::from(!undo.is_empty());
    }
    assert!(met > 100, "{met}");
}

/// Reads a row whose key the arguments determine.
#[procedure]
fn look(tx: &Tx, shop: u32, number: u32) -> Result<Option<i64>, Abort> {
    let line = tx.get::<Line>((shop, number, 0))?;
    let Some(line) = line else { return Ok(None) };
    Ok(Some(line.price))
}

/// The arguments determine its key, but its footprint does not follow a variable that is assigned.
#[procedure]
fn raise(tx: &Tx, shop: u32, by: u32) -> Result<bool, Abort> {
    let mut number = 3u32;
    number += by;
    let raised = tx.update_if::<Line>((shop, number, 0), |line| line.price += 1)?;
    Ok(raised.is_some())
}

/// Reads a row of one shop, then changes a row of another.
#[procedure]
fn copy_price(tx: &Tx, from: u32, to: u32, number: u32) -> Result<i64, Abort> {
    let line = tx.require::<Line>((from, number, 0))?;
    let price = line.price;
    let _ = tx.update_if::<Line>((to, number, 0), |line| line.price = price)?;
    Ok(price)
}

/// Writes a row whose key is an argument. The footprint visits that key after code that data may skip.
#[procedure]
fn skip(tx: &Tx, shop: u32, wanted: &[Wanted], number: u32) -> Result<u32, Abort> {
    let row = tx.require::<Shop>(shop)?;
    let mut count = 0u32;
    for line in wanted {
        if row.sold == 0 {
            continue;
        }
        let changed = tx.update_if::<Line>((line.shop, line.ware - 1, 0), |line| line.price += 1)?;
        if changed.is_some() {
            count += 1;
        }
    }
    let _ = tx.update_if::<Line>((shop, number, 0), |line| line.price += 1)?;
    Ok(count)
}

#[pure]
fn not_nine(number: u32) -> u32 {
    assert!(number != 9, "nine");
    number
}

/// A function that may panic computes its key.
#[procedure]
fn pick(tx: &Tx, shop: u32, number: u32) -> Result<bool, Abort> {
    let picked = tx.update_if::<Line>((shop, not_nine(number), 0), |line| line.price += 1)?;
    Ok(picked.is_some())
}

/// Reads a replicated table.
#[procedure]
fn price_of(tx: &Tx, shop: u32, ware: u32) -> Result<i64, Abort> {
    let price = tx.require::<Price>(ware)?;
    let price = price.price;
    tx.update::<Shop>(shop, |row| row.sold += price)?;
    Ok(price)
}

/// Changes a replicated table, in all partitions.
#[procedure]
fn set_price(tx: &Tx, ware: u32, price: i64) -> Result<(), Abort> {
    let _ = tx.delete_if::<Price>(ware)?;
    tx.insert(Price { ware, price })?;
    Ok(())
}

/// Reads all of a replicated table.
#[procedure]
fn count_prices(tx: &Tx, shop: u32) -> Result<u64, Abort> {
    let all = tx.scan::<Price>(0..).count()?;
    tx.update::<Shop>(shop, |row| row.next = 1)?;
    Ok(all)
}

#[derive(Data, Clone, Debug, PartialEq)]
struct Nested(Vec<Nested>);

#[pure]
fn nested(depth: u32) -> Nested {
    (0..depth).fold(Nested(Vec::new()), |inner, _| Nested(vec![inner]))
}

/// Its result is nested as deeply as requested.
#[procedure]
fn dig(tx: &Tx, shop: u32, depth: u32) -> Result<Nested, Abort> {
    tx.update::<Shop>(shop, |shop| shop.next += 1)?;
    Ok(nested(depth))
}

/// Iterates over a list that it owns, which footprints do not visit.
#[procedure]
fn own_list(tx: &Tx, shops: Vec<u32>) -> Result<u32, Abort> {
    let mut count = 0u32;
    for shop in shops {
        let sold = tx.update_if::<Shop>(shop, |shop| shop.sold += 1)?;
        if sold.is_some() {
            count += 1;
        }
    }
    Ok(count)
}

fn only(partitions: usize, procedures: seriatim::procedure::Procedures) -> Divided {
    let db = Database::builder().partitions(partitions).workers(2).open().expect("a valid number");
    let shops = db.create::<Shop>().expect("a valid table");
    db.create::<Line>().expect("a valid table");
    db.create::<Price>().expect("a valid table");
    db.register(procedures).expect("sound procedures");
    let load = db.session().transact(|tx| tx.insert(&shops, &Shop { id: 1, sold: 0, next: 0, motto: String::new() }));
    load.expect("no conflict");
    db.divide().expect("all can be divided")
}

fn fragment<P: Declared>(divided: &Divided, procedure: P, arguments: &P::Arguments) -> Fragment {
    let Call { procedure, arguments, .. } = divided.call(procedure, arguments).expect("they tell it");
    Fragment { procedure, arguments, round: None, found: Vec::new() }
}

fn locks_of<P: Declared>(divided: &Divided, procedure: P, arguments: &P::Arguments) -> Vec<Lock> {
    let mut locks = Vec::new();
    divided.locks(0, &fragment(divided, procedure, arguments), &mut locks).expect("its arguments are sound");
    locks
}

fn conflict(some: &[Lock], others: &[Lock]) -> bool {
    let with = |lock: &Lock| others.iter().any(|at| at.what == lock.what && (at.exclusive || lock.exclusive));
    some.iter().any(with)
}

#[test]
fn a_key_that_the_footprint_does_not_name_is_locked_with_all_keys_of_its_value() {
    let divided = only(1, procedures![look, raise]);
    let raised = locks_of(&divided, raise, &(1, 2));
    assert!(conflict(&raised, &locks_of(&divided, look, &(1, 5))), "{raised:?}");
    assert!(!conflict(&raised, &locks_of(&divided, look, &(2, 5))), "{raised:?}");
    // Where all operations on a table have known keys, rows are locked.
    let divided = only(1, procedures![look, pick]);
    let picked = locks_of(&divided, pick, &(1, 5));
    assert!(conflict(&picked, &locks_of(&divided, look, &(1, 5))), "{picked:?}");
    assert!(!conflict(&picked, &locks_of(&divided, look, &(1, 6))), "{picked:?}");
}

#[test]
fn a_round_locks_what_runs_in_it_and_nothing_else() {
    let divided = only(2, procedures![look, copy_price]);
    let locks = |at, round| {
        let mut all = Vec::new();
        let fragment = Fragment { round: Some(round), ..fragment(&divided, copy_price, &(1, 0, 5)) };
        divided.locks(at, &fragment, &mut all).expect("its arguments are sound");
        let rows = all.into_iter().filter(|lock| !lock.what.is_empty());
        rows.map(|lock| lock.exclusive).collect::<Vec<_>>()
    };
    assert_eq!([locks(1, 0), locks(1, 1), locks(0, 0), locks(0, 1)], [vec![false], vec![], vec![], vec![true]]);
}

#[test]
fn replicated_rows_are_changed_in_all_partitions_and_locked_if_a_procedure_changes_them() {
    let divided = only(2, procedures![price_of, set_price]);
    assert_eq!(divided.call(set_price, &(5, 2)).expect("it goes everywhere").rounds, [0b11]);
    let set = locks_of(&divided, set_price, &(5, 2));
    assert!(conflict(&set, &locks_of(&divided, price_of, &(0, 5))), "{set:?}");
    assert!(!conflict(&set, &locks_of(&divided, price_of, &(0, 6))), "{set:?}");
    let divided = only(2, procedures![price_of, count_prices, set_price]);
    let set = locks_of(&divided, set_price, &(5, 2));
    assert!(conflict(&set, &locks_of(&divided, count_prices, &0)), "{set:?}");
    assert!(conflict(&set, &locks_of(&divided, price_of, &(0, 6))), "{set:?}");
    let divided = only(2, procedures![price_of, count_prices]);
    assert_eq!(locks_of(&divided, price_of, &(1, 5)), [Lock::of_all(false)], "its shop is elsewhere");
}

#[test]
fn a_partition_that_only_an_untold_key_names_is_refused() {
    let db = declare(2);
    db.register(procedures![own_list]).expect("a sound procedure");
    let refused = db.divide().expect_err("it cannot").to_string();
    assert!(refused.contains("procedure own_list cannot be divided by partition: the partition of"), "{refused}");
}

#[test]
fn a_footprint_that_ends_early_locks_everything_and_goes_everywhere() {
    let divided = only(1, procedures![look, skip]);
    let line = |shop, ware| Wanted { shop, ware, count: 0 };
    let whole = locks_of(&divided, skip, &(1, vec![line(1, 4)], 5));
    assert!(conflict(&whole, &locks_of(&divided, look, &(1, 3))), "{whole:?}");
    assert!(conflict(&whole, &locks_of(&divided, look, &(1, 5))), "{whole:?}");
    assert!(!conflict(&whole, &locks_of(&divided, look, &(1, 4))), "{whole:?}");
    let early = (1, vec![line(1, 0), line(0, 4)], 5);
    let locks = locks_of(&divided, skip, &early);
    assert!(conflict(&locks, &locks_of(&divided, look, &(1, 5))), "{locks:?}");
    // The execution reaches the row that the footprint did not visit.
    let mut session = divided.database().session();
    let ran = divided.run(&mut session, 0, &fragment(&divided, skip, &early), true, NOTHING);
    assert_eq!(ran.expect("it overflows nowhere").reply, Reply::Output(vec![0; 4]));
    let divided = only(2, procedures![look, skip]);
    let call = |wanted| divided.call(skip, &(1, wanted, 5)).expect("they tell it").partitions();
    assert_eq!((call(vec![line(1, 4)]), call(vec![line(1, 4), line(0, 4)])), (0b10, 0b11));
    assert_eq!(call(vec![line(1, 0), line(0, 4)]), 0b11);
}

#[test]
fn a_footprint_that_panics_locks_everything_and_the_fragment_fails() {
    let divided = only(1, procedures![look, pick]);
    let locks = locks_of(&divided, pick, &(1, 9));
    assert!(conflict(&locks, &locks_of(&divided, look, &(2, 5))), "{locks:?}");
    let mut session = divided.database().session();
    let mut run = |number| divided.run(&mut session, 0, &fragment(&divided, pick, &(1, number)), true, NOTHING);
    let failed = run(9).expect_err("nine").to_string();
    assert!(failed.contains("procedure pick panicked: nine"), "{failed}");
    run(8).expect("there is no such row");
}

#[test]
fn a_result_that_its_caller_could_not_read_is_not_committed() {
    let divided = only(1, procedures![dig]);
    let mut session = divided.database().session();
    for round in [None, Some(0)] {
        let mut run = |depth| {
            let fragment = Fragment { round, ..fragment(&divided, dig, &(1, depth)) };
            divided.run(&mut session, 0, &fragment, true, NOTHING).map(|ran| ran.reply)
        };
        let Reply::Output(bytes) = run(63).expect("it can be read") else { panic!("nothing else is to do") };
        assert_eq!(output(dig, &bytes).expect("its result"), nested(63));
        let before = super::run::contents(divided.database());
        let failed = run(64).expect_err("one too deep").to_string();
        assert!(failed.contains("too deep"), "{failed}");
        assert_eq!(super::run::contents(divided.database()), before);
    }
}
